#include "run/config/config_device.h"

static status find_kind(const config *c, dev_kind *kind, err *e) {
    if (c->device == CONFIG_DEVICE_CUDA) {
        config_error(c, e, "device", "the device cuda is not built into this version");
        return err_hint(e, "write cpu, or leave `device` out");
    }
    return dev_find_kind(config_device_name(c->device), kind, e);
}

status config_open_device(const config *c, dev **out, err *e) {
    dev_kind kind;
    *out = NULL;
    TRY(find_kind(c, &kind, e));
    return dev_open(out, kind, (int)c->train.threads, e);
}

status config_open_meta(const config *c, dev **out, err *e) {
    dev_kind kind;
    *out = NULL;
    TRY(find_kind(c, &kind, e));
    return dev_open_meta(out, kind, (int)c->train.threads, e);
}
