/* Opens cuBLASLt, or the stand-in of the emulated device. */
#include "gpu/lt.h"

#include <dlfcn.h>
#include <string.h>

#include "gpu/library.h"

enum { LEAST_VERSION = 120000 };

/* 12 has the same functions; a machine may have it and a driver of its time. */
static const char *const NAMES[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

static status find_functions(lt_library *lt, err *e) {
    static const struct {
        const char *symbol;
        size_t at;
    } all[] = {
#define LT_ROW(name, symbol, arguments) {symbol, offsetof(lt_library, name)},
        LT_FUNCTIONS(LT_ROW)
#undef LT_ROW
            {"cublasLtGetVersion", offsetof(lt_library, version)},
        {"cublasLtGetStatusString", offsetof(lt_library, status_text)},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *f = dlsym(lt->library, all[i].symbol);
        if (!f) return err_set(e, ST_USAGE, "the cuBLASLt found here has no %s", all[i].symbol);
        memcpy((char *)lt + all[i].at, &f, sizeof f);
    }
    if (lt->version() >= LEAST_VERSION) return ST_OK;
    return err_set(e, ST_USAGE,
                   "the cuBLASLt found here is of version %zu, and %d is the oldest that "
                   "serves",
                   lt->version(), LEAST_VERSION);
}

status lt_open(lt_library *lt, bool emulated, err *e) {
    *lt = (lt_library){0};
    if (emulated) {
        emu_lt_fill(lt);
        return ST_OK;
    }
    status st = ST_USAGE;
    lt->library = gpu_find_library(NAMES, ARRAY_LEN(NAMES));
    if (lt->library)
        st = find_functions(lt, e);
    else
        err_set(e, ST_USAGE, "the GPU needs NVIDIA's cuBLASLt, and %s cannot be opened", NAMES[0]);
    if (st == ST_OK) return ST_OK;
    lt_close(lt);
    return err_hint(e, "install cuBLAS 13 (or the wheel nvidia-cublas) and name its folder in "
                       "ATHANOR_CUDA_LIBS, or use device=cpu");
}

void lt_close(lt_library *lt) {
    if (lt->library) dlclose(lt->library);
    *lt = (lt_library){0};
}
