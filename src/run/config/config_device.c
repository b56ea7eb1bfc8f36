#include "run/config/config_device.h"

#include <stdio.h>

#include "base/file.h"
#include "base/log.h"

status config_open_device(const config *c, comm_world *w, dev **out, err *e) {
    dev_kind kind;
    *out = NULL;
    TRY(dev_find_kind(config_device_name(c->device), &kind, e));
    int rank = kind == DEV_CUDA ? comm_rank_here(w) : 0;
    status st = dev_open_of_rank(out, kind, rank, (int)c->train.threads, e);
    if (st == ST_USAGE && kind == DEV_CUDA) config_locate(c, "device", e);
    return st != ST_OK ? st : comm_use_device(w, *out, e);
}

status config_open_meta(const config *c, dev **out, err *e) {
    dev_kind kind;
    *out = NULL;
    TRY(dev_find_kind(config_device_name(c->device), &kind, e));
    return dev_open_meta(out, kind, (int)c->train.threads, e);
}

bool config_find_cluster(const config *c, int ranks, dev_kind kind, cluster *out) {
    char name[32] = "local", path[4400];
    err why = {0};
    if (c->cluster) {
        if (cluster_find(out, c->cluster, &why) != ST_OK) return false; /* plan says why */
        if (cluster_devices(out) == ranks && out->kind == kind) return true;
    }
    if (ranks > 1) snprintf(name, sizeof name, "local-%d", ranks);
    if (kind != DEV_CPU || !cluster_local_path(name, path, sizeof path) || !file_exists(path))
        return false;
    if (cluster_find(out, name, &why) == ST_OK) return true;
    log_warn("no step time is predicted: %s", why.message);
    return false;
}
