#include "run/config/config_device.h"

status config_open_device(const config *c, dev **out, err *e) {
    dev_kind kind;
    *out = NULL;
    TRY(dev_find_kind(config_device_name(c->device), &kind, e));
    status st = dev_open(out, kind, (int)c->train.threads, e);
    if (st == ST_USAGE && kind == DEV_CUDA) config_locate(c, "device", e);
    return st;
}

status config_open_meta(const config *c, dev **out, err *e) {
    dev_kind kind;
    *out = NULL;
    TRY(dev_find_kind(config_device_name(c->device), &kind, e));
    return dev_open_meta(out, kind, (int)c->train.threads, e);
}
