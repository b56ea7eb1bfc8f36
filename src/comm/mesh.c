/* Coordinates: every axis is a line of ranks with a stride. */
#include "comm/mesh.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/text.h"

/* ---- sizes ---- */

static status refuse_size(const char *key, int size, err *e) {
    err_set(e, ST_USAGE, "parallel.%s is %d, and must be at least 1", key, size);
    return err_where(e, "parallel.%s", key);
}

static status check_sizes(const mesh_shape *s, err *e) {
    if (s->dp < 0) return refuse_size("dp", s->dp, e);
    if (s->dp_replicate < 1) return refuse_size("dp_replicate", s->dp_replicate, e);
    if (s->tp < 1) return refuse_size("tp", s->tp, e);
    if (s->cp < 1) return refuse_size("cp", s->cp, e);
    if (s->pp < 1) return refuse_size("pp", s->pp, e);
    if (s->ep < 0) return refuse_size("ep", s->ep, e);
    return ST_OK;
}

/* The divisor of n nearest to x; the smaller of two. */
static int nearest_divisor(int n, int64_t x) {
    int best = 1;
    for (int d = 2; d <= n; d++)
        if (n % d == 0 && llabs(d - x) < llabs(best - x)) best = d;
    return best;
}

static status refuse_model_size(const mesh_shape *s, int ranks, int64_t model, err *e) {
    const char *key = s->tp > 1 ? "tp" : s->cp > 1 ? "cp" : "pp";
    int size = s->tp > 1 ? s->tp : s->cp > 1 ? s->cp : s->pp;
    err_set(e, ST_USAGE, "%d rank%s cannot be split into groups of tp %d x cp %d x pp %d = %lld",
            ranks, text_s(ranks), s->tp, s->cp, s->pp, (long long)model);
    err_where(e, "parallel.%s", key);
    int64_t others = model / size;
    if (others <= ranks && ranks % others == 0)
        return err_hint(e, "parallel.%s=%d divides %d rank%s; or start a multiple of %lld ranks",
                        key, nearest_divisor(ranks / (int)others, size), ranks, text_s(ranks),
                        (long long)model);
    return err_hint(e, "start a multiple of %lld ranks", (long long)model);
}

status mesh_resolve(mesh_shape *s, int ranks, err *e) {
    TRY(check_sizes(s, e));
    int64_t model = (int64_t)s->tp * s->cp * s->pp;
    if (model > ranks || ranks % model != 0) return refuse_model_size(s, ranks, model, e);
    int dp = ranks / (int)model;
    if (s->dp != 0 && s->dp != dp) {
        err_at(e, ST_USAGE, "parallel.dp",
               "parallel.dp=%d with tp %d, cp %d and pp %d makes %lld rank%s, not %d", s->dp, s->tp,
               s->cp, s->pp, (long long)(s->dp * model), text_s(s->dp * model), ranks);
        return err_hint(e, "parallel.dp=%d, or leave it out; or start %lld rank%s", dp,
                        (long long)(s->dp * model), text_s(s->dp * model));
    }
    if (dp % s->dp_replicate != 0) {
        err_at(e, ST_USAGE, "parallel.dp_replicate",
               "parallel.dp_replicate=%d does not divide dp %d", s->dp_replicate, dp);
        return err_hint(e, "parallel.dp_replicate=%d", nearest_divisor(dp, s->dp_replicate));
    }
    s->dp = dp;
    if (s->ep == 0) s->ep = 1;
    int replica = dp / s->dp_replicate * s->cp;
    if (replica % s->ep == 0) return ST_OK;
    err_at(
        e, ST_USAGE, "parallel.ep",
        "parallel.ep=%d does not divide the %d ranks that share experts: dp %d / dp_replicate %d x "
        "cp %d",
        s->ep, replica, dp, s->dp_replicate, s->cp);
    return err_hint(e, "parallel.ep=%d", nearest_divisor(replica, s->ep));
}

/* ---- coordinates ---- */

mesh_line mesh_line_of(const mesh_shape *s, mesh_axis axis) {
    int shard = s->dp / s->dp_replicate, dp_stride = s->cp * s->tp, ep = s->ep ? s->ep : 1;
    switch (axis) {
        case MESH_WORLD: return (mesh_line){s->pp * s->dp * dp_stride, 1};
        case MESH_TP: return (mesh_line){s->tp, 1};
        case MESH_CP: return (mesh_line){s->cp, s->tp};
        case MESH_DP: return (mesh_line){s->dp, dp_stride};
        case MESH_DATA: return (mesh_line){s->dp * s->cp, s->tp};
        case MESH_SHARD: return (mesh_line){shard * s->cp, s->tp};
        case MESH_REPLICATE: return (mesh_line){s->dp_replicate, dp_stride * shard};
        case MESH_EP: return (mesh_line){ep, s->tp};
        case MESH_EP_SHARD: return (mesh_line){shard * s->cp / ep, s->tp * ep};
        case MESH_EP_DATA: return (mesh_line){s->dp * s->cp / ep, s->tp * ep};
        case MESH_PP: return (mesh_line){s->pp, dp_stride * s->dp};
        case MESH_AXES: break;
    }
    CHECK(false, "axis %d", (int)axis);
}

void mesh_place(mesh *m, const mesh_shape *resolved, int rank) {
    *m = (mesh){.shape = *resolved};
    for (int a = 0; a < MESH_AXES; a++) {
        mesh_line line = mesh_line_of(resolved, (mesh_axis)a);
        m->size[a] = line.size;
        m->rank[a] = rank / line.stride % line.size;
    }
}

void mesh_open(mesh *m, const mesh_shape *resolved, comm_world *w) {
    int rank = comm_world_rank(w);
    mesh_place(m, resolved, rank);
    CHECK(m->size[MESH_WORLD] == comm_world_size(w), "a mesh of %d ranks in a world of %d",
          m->size[MESH_WORLD], comm_world_size(w));
    m->world = w;
    int *ranks = xcalloc((size_t)m->size[MESH_WORLD], sizeof *ranks);
    for (int a = 0; a < MESH_AXES; a++) {
        int stride = mesh_line_of(resolved, (mesh_axis)a).stride;
        for (int i = 0; i < m->size[a]; i++) ranks[i] = rank + (i - m->rank[a]) * stride;
        m->axis[a] = comm_group(w, ranks, m->size[a]);
    }
    free(ranks);
}
