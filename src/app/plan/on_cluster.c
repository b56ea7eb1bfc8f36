#include "app/plan/on_cluster.h"

#include "base/log.h"

status on_cluster_ranks(config *c, const cluster *on, err *e) {
    mesh_shape s = {.dp = c->parallel.dp == CONFIG_AUTO ? 0 : (int)c->parallel.dp,
                    .dp_replicate = (int)c->parallel.dp_replicate,
                    .tp = (int)c->parallel.tp,
                    .cp = (int)c->parallel.cp,
                    .pp = (int)c->parallel.pp};
    status st = mesh_resolve(&s, cluster_devices(on), e);
    if (st != ST_OK) {
        if (e && *e->where) config_locate(c, e->where, e);
        return err_context(e, "cluster %s", c->cluster);
    }
    c->parallel.dp = s.dp;
    return ST_OK;
}

status on_cluster_find(config *c, cluster *out, err *e) {
    status st = cluster_find(out, c->cluster, e);
    if (st == ST_USAGE) config_locate(c, "cluster", e);
    if (st == ST_OK && out->n_rates == 0)
        log_warn("cluster %s has no rates: kernels are reckoned at its limits, which none reaches "
                 "(athanor plan cluster h100 shows some)",
                 out->name);
    if (st == ST_OK && c->device == CONFIG_DEVICE_AUTO)
        c->device = out->kind == DEV_CUDA ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    return st;
}

status on_cluster_take(config *c, cluster *out, err *e) {
    TRY(on_cluster_find(c, out, e));
    TRY(on_cluster_ranks(c, out, e));
    if (!c->train.memory_limit) c->train.memory_limit = (int64_t)cluster_usable_bytes(out);
    return ST_OK;
}
