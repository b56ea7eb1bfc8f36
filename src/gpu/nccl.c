/* Opens NCCL, or the stand-in of the emulated device. */
#include "gpu/nccl.h"

#include <dlfcn.h>
#include <string.h>

#include "gpu/library.h"

enum { LEAST_VERSION = 22200 }; /* 2.22, the first that aborts communicators in a group */

static const char *const NAMES[] = {"libnccl.so.2"};

static status find_functions(nccl_library *n, err *e) {
    static const struct {
        const char *symbol;
        size_t at;
    } all[] = {
#define NCCL_ROW(name, symbol, arguments) {symbol, offsetof(nccl_library, name)},
        NCCL_FUNCTIONS(NCCL_ROW)
#undef NCCL_ROW
            {"ncclGetErrorString", offsetof(nccl_library, error_text)},
    };
    int version = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *f = dlsym(n->library, all[i].symbol);
        if (!f) return err_set(e, ST_USAGE, "the NCCL found here has no %s", all[i].symbol);
        memcpy((char *)n + all[i].at, &f, sizeof f);
    }
    if (n->get_version(&version) == 0 && version >= LEAST_VERSION) return ST_OK;
    return err_set(e, ST_USAGE,
                   "the NCCL found here is of version %d, and %d is the oldest that serves",
                   version, LEAST_VERSION);
}

status nccl_open(nccl_library *n, bool emulated, err *e) {
    *n = (nccl_library){0};
    if (emulated) {
        emu_nccl_fill(n);
        return ST_OK;
    }
    status st = ST_USAGE;
    n->library = gpu_find_library(NAMES, ARRAY_LEN(NAMES));
    if (n->library)
        st = find_functions(n, e);
    else
        err_set(e, ST_USAGE, "%s cannot be opened", NAMES[0]);
    if (st == ST_OK) return ST_OK;
    nccl_close(n);
    return err_hint(
        e, "install NCCL 2.22 or later (or the wheel nvidia-nccl-cu13) and name its folder "
           "in ATHANOR_CUDA_LIBS");
}

void nccl_close(nccl_library *n) {
    if (n->library) dlclose(n->library);
    *n = (nccl_library){0};
}

int nccl_type_of(dtype dt) {
    switch (dt) {
        case DT_U8: return NCCL_U8;
        case DT_I32: return NCCL_I32;
        case DT_I64: return NCCL_I64;
        case DT_F16: return NCCL_F16;
        case DT_F32: return NCCL_F32;
        case DT_F64: return NCCL_F64;
        case DT_BF16: return NCCL_BF16;
        default: return -1;
    }
}
