/* A library that looks like cuBLASLt and does nothing, for the test of opening one. FAKE_VERSION 0: it
 * has none of the functions. */
#include "gpu/lt.h"

#if FAKE_VERSION
#define FAKE(name, symbol, arguments)                                                              \
    int fake_##name(void) __asm__(symbol);                                                         \
    int fake_##name(void) {                                                                        \
        return 0;                                                                                  \
    }
LT_FUNCTIONS(FAKE)

size_t cublasLtGetVersion(void);
size_t cublasLtGetVersion(void) {
    return FAKE_VERSION;
}
const char *cublasLtGetStatusString(int r);
const char *cublasLtGetStatusString(int r) {
    return r ? "a failure" : "none";
}
#endif
