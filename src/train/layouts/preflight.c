#include "train/layouts/matrix.h"

#include "base/clock.h"
#include "base/log.h"

enum { STEPS = 2, DEPTH = 2 };

/* The layout l of the run on mesh m; rank 0 (leads) also runs the steps alone, and compares. */
typedef struct preflight {
    const layout_trial *t;
    const mesh *m;
    layout l;
    bool leads;
} preflight;

static layout planned(const config *c, const mesh *m) {
    return (layout){.dp = m->shape.dp,
                    .dp_replicate = m->shape.dp_replicate,
                    .zero = (int)c->parallel.zero,
                    .tp = m->shape.tp,
                    .sp = c->parallel.sp,
                    .async = c->parallel.tp_async,
                    .recompute = c->train.recompute,
                    .cp = m->shape.cp,
                    .cp_kind = c->parallel.cp_kind,
                    .ep = m->shape.ep,
                    .offload = c->parallel.offload,
                    .pp = m->shape.pp,
                    .schedule = c->parallel.pp_schedule,
                    .virtual = m->shape.pp > 1 ? (int)c->parallel.virtual : 1};
}

/* Tensor and context parallelism sum matrix products in parts; in 16 bits the results differ too much to
 * compare. */
static int precision_of(const config *c, const layout *l) {
    return layout_is_exact(l) ? layout_precision(c) : CONFIG_PRECISION_FP32;
}

static status name_difference(const layout *l, const layout_way *way, const char *why, err *e) {
    char name[LAYOUT_NAME_MAX];
    layout_name(l, name);
    err_set(e, ST_FAILED, "layout %s does not compute what one rank does%s: %s", name,
            way->ordinary ? " with ordinary sums" : "", why);
    return err_hint(e, "nothing was trained; `athanor verify layouts` says which layouts do; "
                       "parallel.verify=false trains all the same");
}

/* Tells all ranks how the run of one rank ended: they go on or not depending on it. */
static status tell_alone(const mesh *m, status st) {
    int64_t told = (int64_t)st;
    comm_call call = {.kind = COMM_BROADCAST,
                      .out = &told,
                      .n = sizeof told,
                      .dt = DT_U8,
                      .what = "the trial on one rank"};
    comm_run(m->axis[MESH_WORLD], &call);
    return (status)told;
}

/* Rank 0 runs the steps alone; *st is its status, on all ranks. Two failures are no error here:
 * ST_NONFINITE, which the run itself will explain, and ST_MEMORY, since one rank may lack memory
 * that several have. */
static status run_alone(const preflight *p, int precision, layout_result **one, status *st,
                        err *e) {
    static const layout alone = {.dp = 1, .dp_replicate = 1, .tp = 1};
    layout_way way = {.precision = precision, .steps = STEPS};
    err why = {0};
    *st = ST_OK;
    *one = layout_result_new(p->t, &way);
    if (p->leads) *st = layout_run_rank(p->t, &alone, &way, NULL, *one, &why);
    *st = tell_alone(p->m, *st);
    if (*st == ST_OK) return ST_OK;
    if (*st == ST_NONFINITE || *st == ST_MEMORY) {
        if (p->leads) log_warn("the layout is not checked against one rank: %s", why.message);
        return ST_OK;
    }
    if (p->leads && e) *e = why;
    return p->leads ? *st : ST_OK;
}

/* Runs the layout and compares with `one`; with one NULL, only checks that it runs. */
static status run_way(const preflight *p, const layout_way *way, const layout_result *one, err *e) {
    layout_result *r = layout_result_new(p->t, way);
    TRY(layout_run_rank(p->t, &p->l, way, p->m->world, r, e));
    if (!p->leads || !one) return ST_OK;
    layout_verdict v = layout_compare(p->t, &p->l, one, r);
    return v.ok ? ST_OK : name_difference(&p->l, way, v.why, e);
}

static void tell_success(const preflight *p, double seconds) {
    char name[LAYOUT_NAME_MAX];
    layout_name(&p->l, name);
    if (p->leads)
        log_info("layout %s computes what one rank does (%d steps of %d layers, %.1f s)", name,
                 STEPS, p->t->depth, seconds);
}

/* First with exact sums, which show any mistake. Then, unless the run is deterministic itself,
 * with the ordinary sums and the memory layout that the run will have. */
static status run(const preflight *p, const config *c, err *e) {
    int64_t began = clock_now_ns();
    layout_result *one;
    layout_way exact = {.precision = precision_of(c, &p->l), .steps = STEPS};
    layout_way ordinary = {.precision = exact.precision, .steps = STEPS, .ordinary = true};
    status st;
    TRY(run_alone(p, exact.precision, &one, &st, e));
    if (st != ST_OK && st != ST_MEMORY) return ST_OK;
    TRY(run_way(p, &exact, st == ST_OK ? one : NULL, e));
    if (st == ST_MEMORY) return ST_OK;
    if (!c->train.deterministic) TRY(run_way(p, &ordinary, one, e));
    tell_success(p, (double)(clock_now_ns() - began) / 1e9);
    return ST_OK;
}

status preflight_check(const config *c, const mesh *m, err *e) {
    layout_trial *t;
    int pp = m->shape.pp, chunks = pp > 1 ? pp * (int)c->parallel.virtual : 1;
    TRY(layout_trial_new(&t, c, chunks > DEPTH ? chunks : DEPTH, m->shape.dp * pp, e));
    preflight p = {.t = t, .m = m, .l = planned(c, m), .leads = m->rank[MESH_WORLD] == 0};
    status st = run(&p, c, e);
    layout_trial_free(t);
    return st;
}
