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

status on_cluster_limit(const config *c, const cluster *on, double *usable_bytes, err *e) {
    double limit = (double)c->train.memory_limit, has = cluster_usable_bytes(on);
    *usable_bytes = limit > 0 ? limit : has;
    if (limit <= has) return ST_OK;
    config_error(
        c, e, "train.memory_limit",
        "a limit of %.1f GiB is more than the %.1f GiB that each %s of cluster %s has for a run",
        limit / (1 << 30), has / (1 << 30), on->device_name, on->name);
    return err_hint(e, "leave train.memory_limit out");
}

status on_cluster_take(config *c, cluster *out, err *e) {
    double usable;
    TRY(on_cluster_find(c, out, e));
    TRY(on_cluster_ranks(c, out, e));
    TRY(on_cluster_limit(c, out, &usable, e));
    c->train.memory_limit = (int64_t)usable;
    return ST_OK;
}
