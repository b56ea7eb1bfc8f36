/* A library that looks like NVIDIA's driver and does nothing, for the test of opening one. FAKE_DRIVER in the environment
 * says which CUDA it is of (11080 is 11.8), or that it does not start: broken. FAKE_LINK says how its GPUs reach each other:
 * "peer", or with "atomics"; unset: they do not. */
#include <stdlib.h>
#include <string.h>

#include "gpu/driver.h"

static int answer(const char *symbol, void *first, const void **second) {
    const char *how = getenv("FAKE_DRIVER");
    bool broken = strcmp(how, "broken") == 0;
    if (strcmp(symbol, "cuDriverGetVersion") == 0) *(int *)first = atoi(how);
    if (strcmp(symbol, "cuGetErrorString") == 0) *second = "unknown error";
    const char *link = getenv("FAKE_LINK");
    if (strcmp(symbol, "cuDeviceGetPCIBusId") == 0) memcpy(first, "0000:3B:00.0", 13);
    if (strcmp(symbol, "cuDeviceCanAccessPeer") == 0) *(int *)first = link != NULL;
    if (strcmp(symbol, "cuDeviceGetP2PAttribute") == 0)
        *(int *)first = link && strcmp(link, "atomics") == 0;
    return strcmp(symbol, "cuInit") == 0 && broken ? 999 : 0;
}

#define FAKE(name, symbol, arguments)                                                              \
    int fake_##name(void *first, const void **second) __asm__(symbol);                             \
    int fake_##name(void *first, const void **second) {                                            \
        return answer(symbol, first, second);                                                      \
    }
CU_FUNCTIONS(FAKE)
