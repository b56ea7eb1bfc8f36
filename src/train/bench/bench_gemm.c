#include "train/bench/bench_gemm.h"

#include <stdio.h>
#include <string.h>

#include "run/config/config_device.h"
#include "train/bench/bench.h"
#include "train/layouts/trial.h"

/* A linear layer of `rows` rows: x [rows,in], w [width,in]. */
typedef struct layer {
    char name[96];
    int64_t rows, in, width;
} layer;

static bool find_layer(const prog_op *o, layer *l) {
    const op_class *k = &op_classes[o->kind];
    bool head = k->profile == OPP_HEAD;
    if (!(k->flags & OPF_PRODUCT) || o->phase != PHASE_F) return false;
    l->rows = o->in[0].rows;
    l->in = o->in[0].cols;
    l->width = o->in[1].rows;
    if (head) l->rows = op_head_chunk_rows(o->attr, l->rows, l->width);
    snprintf(l->name, sizeof l->name, "%s", head ? "head" : bench_without_layer(o->name));
    return true;
}

static bool is_listed(const layer *l, const bench_gemm *list, int n) {
    for (int i = 0; i < n; i++)
        if (list[i].c.layout == GEMM_FORWARD && strcmp(list[i].name, l->name) == 0 &&
            list[i].c.m == l->rows && list[i].c.n == l->width && list[i].c.k == l->in)
            return true;
    return false;
}

static void add_layer(const layer *l, dtype dt, bench_gemm *list, int *n) {
    const gemm_case cases[] = {{l->rows, l->width, l->in, GEMM_FORWARD, dt},
                               {l->rows, l->in, l->width, GEMM_BACKWARD_INPUT, dt},
                               {l->width, l->in, l->rows, GEMM_BACKWARD_WEIGHT, dt}};
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        bench_gemm *g = &list[(*n)++];
        memcpy(g->name, l->name, sizeof g->name);
        g->c = cases[i];
    }
}

static void list_products(const plan *p, arena *a, bench_gemm **out, int *n) {
    const prog *train = plan_prog(p, USE_TRAIN, 0);
    int ops = prog_get_stats(train)->ops;
    *out = ARENA_ARRAY(a, bench_gemm, GEMM_LAYOUTS * ops);
    for (int i = 0; i < ops; i++) {
        prog_op o = prog_get_op(train, i);
        layer l;
        if (find_layer(&o, &l) && !is_listed(&l, *out, *n)) add_layer(&l, p->spec.compute, *out, n);
    }
}

status bench_gemm_list(config *c, arena *a, bench_gemm **out, int *n, err *e) {
    dev *meta;
    plan *p = NULL;
    *n = 0;
    trial_trim_config(c);
    TRY(config_open_meta(c, &meta, e));
    status st = train_plan(c, meta, &p, e);
    if (p) list_products(p, a, out, n); /* also of a model that does not fit */
    plan_free(p);
    dev_close(meta);
    return p ? ST_OK : st;
}
