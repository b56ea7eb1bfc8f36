/* Opens the driver's library, or the emulated device. */
#include "gpu/driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const char LIBRARY[] = "libcuda.so.1";

static status find_functions(cu_driver *d, err *e) {
    static const struct {
        const char *symbol;
        size_t at;
    } all[] = {
#define CU_ROW(name, symbol, arguments) {symbol, offsetof(cu_driver, name)},
        CU_FUNCTIONS(CU_ROW)
#undef CU_ROW
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *f = dlsym(d->library, all[i].symbol);
        if (!f) {
            err_set(e, ST_USAGE, "the NVIDIA driver's %s has no %s", LIBRARY, all[i].symbol);
            return err_hint(e, "install a driver of CUDA %d or later, or use device=cpu",
                            GPU_CUDA_MAJOR);
        }
        memcpy((char *)d + all[i].at, &f, sizeof f);
    }
    return ST_OK;
}

static status check_version(const cu_driver *d, err *e) {
    int version = 0;
    const char *text = NULL;
    cu_result r = d->init(0);
    if (r != 0 && r != CU_NO_DEVICE) { /* without a device, device_count says so */
        d->error_text(r, &text);
        err_set(e, ST_USAGE, "the NVIDIA driver does not start: %s",
                text ? text : "no reason given");
        return err_hint(e, "look at nvidia-smi, or use device=cpu");
    }
    d->driver_version(&version);
    if (version >= GPU_CUDA_MAJOR * 1000) return ST_OK;
    err_set(e, ST_USAGE, "the NVIDIA driver is of CUDA %d.%d, and %d.0 is the oldest that serves",
            version / 1000, version % 1000 / 10, GPU_CUDA_MAJOR);
    return err_hint(e, "install a newer driver, or use device=cpu");
}

status cu_driver_choice(bool *emulated, err *e) {
    static const char *const words[] = {"emulated"};
    int which = -1;
    int64_t unused;
    status st = env_word("ATHANOR_CUDA", words, ARRAY_LEN(words), &which, e);
    *emulated = which == 0;
    if (!*emulated) return st;
    TRY(env_int("ATHANOR_CUDA_SEED", 0, INT64_MAX, &unused, e));
    return env_int("ATHANOR_CUDA_COUNT", 1, 1024, &unused, e);
}

bool gpu_arch_serves(const char *archs, int major, int minor) {
    char *end;
    for (const char *at = archs; *at; at = *end ? end + 1 : end) {
        long arch = strtol(at, &end, 10);
        bool exact = *end == 'a';
        end += exact;
        if (arch / 10 == major && (exact ? arch % 10 == minor : arch % 10 <= minor)) return true;
    }
    return false;
}

bool cu_driver_is_there(void) {
    bool emulated;
    if (cu_driver_choice(&emulated, NULL) == ST_OK && emulated) return true;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library) dlclose(library);
    return library != NULL;
}

status cu_driver_open(cu_driver *d, err *e) {
    bool emulated;
    *d = (cu_driver){0};
    TRY(cu_driver_choice(&emulated, e));
    if (emulated) {
        emu_driver_fill(d);
        return ST_OK;
    }
    d->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!d->library) {
        err_set(e, ST_USAGE, "there is no NVIDIA driver here: %s cannot be opened", LIBRARY);
        return err_hint(e, "use device=cpu, or ATHANOR_CUDA=emulated to try it without a GPU");
    }
    status st = find_functions(d, e);
    if (st == ST_OK) st = check_version(d, e);
    if (st != ST_OK) cu_driver_close(d);
    return st;
}

void cu_driver_close(cu_driver *d) {
    if (d->library) dlclose(d->library);
    *d = (cu_driver){0};
}
