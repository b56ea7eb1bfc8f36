/* libFuzzer target: .npy files from outside bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "io/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/fuzz-npy-%d", (int)getpid());
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, len, f) == len, "cannot write %s", path);
    fclose(f);
    npy_i32 a;
    err e = {0};
    if (npy_read_i32(&a, path, &e) == ST_OK) npy_i32_free(&a);
    if (npz_read_i32(&a, path, "a", &e) == ST_OK) npy_i32_free(&a);
    unlink(path);
    return 0;
}
