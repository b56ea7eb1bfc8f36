/* Opens the driver's library, or the emulated device. */
#include "gpu/driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_VERSION = 12000 };

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
            return err_hint(e, "install a driver of CUDA 12 or later, or use device=cpu");
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
    if (version >= LEAST_VERSION) return ST_OK;
    err_set(e, ST_USAGE, "the NVIDIA driver is of CUDA %d.%d, and 12.0 is the oldest that serves",
            version / 1000, version % 1000 / 10);
    return err_hint(e, "install a newer driver, or use device=cpu");
}

/* ATHANOR_CUDA; "": it is not set. */
static const char *choice_of_user(void) {
    const char *choice = getenv("ATHANOR_CUDA");
    return choice ? choice : "";
}

static bool wants_emulated(void) {
    return strcmp(choice_of_user(), "emulated") == 0;
}

bool cu_driver_is_there(void) {
    if (wants_emulated()) return true;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library) dlclose(library);
    return library != NULL;
}

status cu_driver_open(cu_driver *d, err *e) {
    const char *choice = choice_of_user();
    *d = (cu_driver){0};
    if (wants_emulated()) {
        emu_driver_fill(d);
        return ST_OK;
    }
    if (*choice) {
        err_at(e, ST_USAGE, "ATHANOR_CUDA", "ATHANOR_CUDA is \"%s\", which is not a GPU", choice);
        return err_hint(e, "use ATHANOR_CUDA=emulated, or unset it");
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
