#include "train/ranks/preflight.h"

#include "base/clock.h"
#include "base/log.h"
#include "train/layouts/matrix.h"

enum { STEPS = 2, DEPTH = 2 };

static layout planned(const config *c, const mesh *m) {
    return (layout){.dp = m->shape.dp,
                    .dp_replicate = m->shape.dp_replicate,
                    .zero = (int)c->parallel.zero,
                    .tp = m->shape.tp,
                    .sp = c->parallel.sp,
                    .recompute = c->train.recompute};
}

/* Products of shared matrices are summed in parts, which only fp32 shows to be the same. */
static int precision_of(const config *c, const layout *l) {
    bool bits = c->train.precision.compute == CONFIG_PRECISION_BF16 && l->tp == 1;
    return bits ? CONFIG_PRECISION_BF16 : CONFIG_PRECISION_FP32;
}

static status compare(const layout_trial *t, const layout *l, const layout_result *one,
                      const layout_result *r, double seconds, err *e) {
    char name[LAYOUT_NAME_MAX];
    layout_name(l, name);
    layout_verdict v = layout_compare(t, l, one, r);
    if (v.ok) {
        log_info("layout %s computes what one rank does (%d steps of %d layers, %.1f s)", name,
                 STEPS, t->depth, seconds);
        return ST_OK;
    }
    err_set(e, ST_FAILED, "layout %s does not compute what one rank does: %s", name, v.why);
    return err_hint(e, "nothing was trained; `athanor verify layouts` says which layouts do; "
                       "parallel.verify=false trains all the same");
}

/* What came of one rank alone, known to all: whether they try the layout depends on it. */
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

static void warn_unchecked(const mesh *m, const err *why) {
    if (m->rank[MESH_WORLD] == 0)
        log_warn("the layout is not checked against one rank: %s", why->message);
}

static status run(const layout_trial *t, const config *c, const mesh *m, err *e) {
    layout l = planned(c, m), alone = {.dp = 1, .dp_replicate = 1, .tp = 1};
    int precision = precision_of(c, &l);
    int64_t began = clock_now_ns();
    bool leads = m->rank[MESH_WORLD] == 0;
    layout_result *one = layout_result_new(t, STEPS), *r = layout_result_new(t, STEPS);
    err why = {0};
    status st = ST_OK;
    if (leads) st = layout_run_rank(t, &alone, precision, STEPS, NULL, LAYOUT_SOUND, one, &why);
    st = tell_alone(m, st);
    if (st == ST_NONFINITE) { /* the run will say which tensor */
        warn_unchecked(m, &why);
        return ST_OK;
    }
    if (st != ST_OK && st != ST_MEMORY) {
        if (leads && e) *e = why;
        return leads ? st : ST_OK;
    }
    TRY(layout_run_rank(t, &l, precision, STEPS, m->world, LAYOUT_SOUND, r, e));
    if (st == ST_MEMORY) warn_unchecked(m, &why);
    if (st == ST_MEMORY || !leads) return ST_OK;
    return compare(t, &l, one, r, (double)(clock_now_ns() - began) / 1e9, e);
}

status preflight_check(const config *c, const mesh *m, err *e) {
    layout_trial *t;
    TRY(layout_trial_new(&t, c, DEPTH, m->shape.dp, e));
    status st = run(t, c, m, e);
    layout_trial_free(t);
    return st;
}
