#include "train/layouts/matrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "optim/optim.h"
#include "step/schedule.h"
#include "train/objective/objective.h"

/* ---- which ---- */

typedef struct layouts {
    layout *item;
    int n, cap;
    bool async; /* what tp ranks send may travel beside products */
    bool away;  /* something may lie in files */
} layouts;

static bool can_lie_in_files(const config *c) {
    return !config_adapts(c) && !optim_at(c->optim.name)->declare_states;
}

/* Weights need ZeRO-3. */
static void take_turn_of_files(const layouts *all, layout *l) {
    static const int words[] = {CONFIG_OFFLOAD_NONE, CONFIG_OFFLOAD_ALL, CONFIG_OFFLOAD_WEIGHTS};
    int turn = all->n / 3 % 3;
    if (!all->away) return;
    l->offload = l->zero == 3 ? words[turn] : turn == 2 ? CONFIG_OFFLOAD_OPTIMIZER : words[0];
}

/* The three recompute policies take turns, and so does parallel.tp_async, so that all are tried without six times as many
 * layouts. */
static void add(layouts *all, layout l) {
    l.recompute = all->n % 3;
    l.async = all->async && l.tp > 1 && all->n % 2;
    take_turn_of_files(all, &l);
    VEC_PUSH(all->item, all->n, all->cap, l);
}

static void add_zero(layouts *all, layout l) {
    add(all, l);
    for (l.zero = 1; l.dp > 1 && l.zero <= 3; l.zero++)
        for (l.dp_replicate = 1; l.dp_replicate < l.dp; l.dp_replicate *= 2)
            if (l.dp % l.dp_replicate == 0) add(all, l);
}

/* The schedules take turns, where they can be. */
static void add_stages(layouts *all, const layout_trial *t, layout l) {
    int64_t each = t->c->train.global_batch_size / t->c->train.micro_batch_size / l.dp;
    bool halves = layout_trial_has_stages(t, 2 * l.pp);
    const struct {
        int schedule, chunks; /* of a stage */
        bool can_be;
    } turns[] = {{CONFIG_PP_1F1B, 1, true},
                 {CONFIG_PP_INTERLEAVED, 2, halves && each % l.pp == 0},
                 {CONFIG_PP_ZB_H1, 1, true},
                 {CONFIG_PP_AFAB, 1, true},
                 {CONFIG_PP_ZB_V, 2, halves}};
    layouts some = {.async = all->async, .away = all->away};
    add_zero(&some, l);
    for (int i = 0; i < some.n; i++) {
        layout *k = &some.item[i];
        int turn = all->n % ARRAY_LEN(turns);
        if (!turns[turn].can_be) turn = 0;
        k->schedule = turns[turn].schedule;
        k->virtual = turns[turn].chunks;
        bool splits = k->schedule == CONFIG_PP_ZB_H1 || k->schedule == CONFIG_PP_ZB_V;
        k->async = all->async && k->tp > 1 && all->n % 2 && !splits;
        VEC_PUSH(all->item, all->n, all->cap, *k);
    }
    free(some.item);
}

/* Of a micro-batch. */
static int64_t rows_of(const layout_trial *t) {
    const objective *o = objective_of(t->c);
    return t->c->train.micro_batch_size / o->sequences * o->learned * t->c->train.seq_len;
}

/* Sequence parallelism takes turns, too. */
static void add_pipelines(layouts *all, const layout_trial *t, int ranks, int64_t rows) {
    for (int pp = 2; pp <= ranks; pp++) {
        if (ranks % pp != 0 || !layout_trial_has_stages(t, pp)) continue;
        for (int tp = 1; tp <= ranks / pp; tp++) {
            if (ranks / pp % tp != 0 || (tp > 1 && !layout_trial_divides(t, tp))) continue;
            layout l = {.dp = ranks / pp / tp, .dp_replicate = 1, .tp = tp, .pp = pp};
            l.sp = tp > 1 && rows % tp == 0 && all->n % 2;
            add_stages(all, t, l);
        }
    }
}

/* The ways of exchange take turns, and so do sp and stages. */
static void add_contexts(layouts *all, const layout_trial *t, int ranks) {
    for (int cp = 2; cp <= ranks; cp++)
        for (int tp = 1; ranks % cp == 0 && tp <= ranks / cp; tp++) {
            int rest = ranks / cp;
            if (rest % tp != 0 || (tp > 1 && !layout_trial_divides(t, tp))) continue;
            for (int kind = CONTEXT_ALLGATHER; kind <= CONTEXT_ULYSSES; kind++) {
                layout l = {
                    .dp = rest / tp, .dp_replicate = 1, .tp = tp, .cp = cp, .cp_kind = kind};
                l.sp = tp > 1 && kind == CONTEXT_RING;
                if (!layout_trial_shares_tokens(t, &l)) continue;
                add_zero(all, l);
                l.pp = 2, l.dp /= 2;
                if (rest / tp % 2 == 0 && layout_trial_has_stages(t, 2)) add_stages(all, t, l);
            }
        }
}

/* Ranks of one replica share experts out: of data, of tokens, beside stages and tensor-parallel ranks. */
static bool can_spread(const layout_trial *t, const layout *l, int ep) {
    int replica = l->dp / l->dp_replicate * (l->cp > 1 ? l->cp : 1);
    return replica % ep == 0 && layout_trial_spreads_experts(t, ep);
}

/* Each layout so far once more, with its experts shared out among 2 ranks, or 4, ...; in one round of exchange and in several. */
static void add_spread(layouts *all, const layout_trial *t) {
    for (int i = 0, n = all->n, ep = 2; i < n; i++) {
        layout l = all->item[i];
        if (!can_spread(t, &l, ep) && !can_spread(t, &l, ep = 2)) continue;
        l.ep = ep;
        l.at_once = i % 2;
        VEC_PUSH(all->item, all->n, all->cap, l);
        ep = ep == 2 ? 4 : 2;
    }
}

layout *layout_matrix_of(const layout_trial *t, int ranks, int *n) {
    const config *c = t->c;
    layouts all = {.async = !config_adapts(c) &&
                            !c->train.keep_collectives, /* which sp does not go with then */
                   .away = can_lie_in_files(c)};
    int64_t rows = rows_of(t);
    for (int tp = 1; tp <= ranks; tp++) {
        if (ranks % tp != 0 || (tp > 1 && !layout_trial_divides(t, tp))) continue;
        layout l = {.dp = ranks / tp, .dp_replicate = 1, .tp = tp};
        add_zero(&all, l);
        l.sp = true;
        if (tp > 1 && rows % tp == 0) add_zero(&all, l);
    }
    add_pipelines(&all, t, ranks, rows);
    add_contexts(&all, t, ranks);
    add_spread(&all, t);
    for (int i = 1; ranks == 1 && i < 3; i++) add(&all, all.item[0]);
    if (ranks == 1 && all.away) {
        layout l = all.item[0];
        l.zero = 3, l.offload = CONFIG_OFFLOAD_ALL;
        VEC_PUSH(all.item, all.n, all.cap, l);
    }
    *n = all.n;
    return all.item;
}

/* ---- layouts at random ---- */

static int roll(layout_dice *d, int sides) {
    return (int)(rng_u32(d->key, d->n++) % (uint32_t)sides);
}

/* A divisor of n. */
static int draw_divisor(layout_dice *d, int n) {
    int k = 1 + roll(d, n);
    while (n % k) k = 1 + roll(d, n);
    return k;
}

/* Every size is drawn by itself; whether they go together is asked afterwards. */
static layout draw(layout_dice *d, int ranks) {
    layout l = {.tp = draw_divisor(d, ranks)};
    l.cp = draw_divisor(d, ranks / l.tp);
    l.pp = draw_divisor(d, ranks / l.tp / l.cp);
    l.dp = ranks / l.tp / l.cp / l.pp;
    l.dp_replicate = draw_divisor(d, l.dp);
    l.zero = roll(d, 4);
    l.sp = roll(d, 2);
    l.recompute = roll(d, 3);
    l.cp_kind = roll(d, 3);
    l.ep = draw_divisor(d, l.dp / l.dp_replicate * l.cp);
    l.at_once = l.ep > 1 && roll(d, 2);
    l.offload = roll(d, CONFIG_OFFLOAD_ALL + 1);
    do l.schedule = roll(d, SCHEDULES);
    while (!schedule_runs((schedule_kind)l.schedule));
    int needs = schedule_chunks_of((schedule_kind)l.schedule);
    l.virtual = needs ? needs : 2;
    return l;
}

static bool can_be_staged(const layout_trial *t, const layout *l, int64_t micro_batches) {
    bool in_groups = l->schedule == CONFIG_PP_INTERLEAVED;
    if (l->pp == 1) return l->schedule == CONFIG_PP_1F1B; /* chunks of one rank are the config's */
    return (!in_groups || micro_batches % l->pp == 0) &&
           layout_trial_has_stages(t, l->pp * l->virtual);
}

static bool can_be(const layout_trial *t, const layout *l) {
    int64_t all = t->c->train.global_batch_size / t->c->train.micro_batch_size;
    if (l->offload &&
        (!can_lie_in_files(t->c) || (l->offload >= CONFIG_OFFLOAD_WEIGHTS && l->zero != 3)))
        return false;
    return all % l->dp == 0 && can_be_staged(t, l, all / l->dp) &&
           (l->tp == 1 || layout_trial_divides(t, l->tp)) &&
           (!l->sp || (l->tp > 1 && rows_of(t) % l->tp == 0)) && layout_trial_shares_tokens(t, l) &&
           (l->ep == 1 || can_spread(t, l, l->ep));
}

layout layout_draw(const layout_trial *t, layout_dice *d, int ranks) {
    layout l = draw(d, ranks);
    while (!can_be(t, &l)) l = draw(d, ranks); /* dp alone always can */
    if (l.pp == 1) l.virtual = 1;
    return l;
}

/* ---- what must be equal ---- */

ATH_PRINTF(2, 3) static void differs(layout_verdict *v, const char *fmt, ...) {
    if (!v->ok) return;
    v->ok = false;
    va_list args;
    va_start(args, fmt);
    vsnprintf(v->why, sizeof v->why, fmt, args);
    va_end(args);
}

static double relative(double a, double b, double least) {
    double scale = fmax(fmax(fabs(a), fabs(b)), least);
    return scale > 0 ? fabs(a - b) / scale : 0;
}

static void compare_weights(layout_verdict *v, const layout_trial *t, const layout_result *one,
                            const layout_result *r) {
    for (int i = 0; i < t->n_params; i++)
        if (one->digest[i] != r->digest[i])
            differs(v, "step 0: the initial weights of %s are others than on one rank",
                    t->param[i]);
    if (one->initial != r->initial)
        differs(v, "step 0: digest %016" PRIx64 ", on one rank %016" PRIx64, r->initial,
                one->initial);
}

/* For a gradient that is much smaller than the others, the error is relative to `least`, not to
 * itself. */
static void compare_gradients(layout_verdict *v, const layout_trial *t, const layout_result *one,
                              const layout_result *r, double tolerance) {
    double least = 1e-3 * one->steps[0].norm;
    for (int i = 0; i < t->n_params; i++) {
        double error = relative(one->norm[i], r->norm[i], least);
        v->norm_error = fmax(v->norm_error, error);
        if (!(error <= tolerance))
            differs(v, "step 1: the gradient of %s has norm %.9g, on one rank %.9g", t->param[i],
                    r->norm[i], one->norm[i]);
    }
}

static void compare_steps(layout_verdict *v, const layout_result *one, const layout_result *r,
                          double tolerance) {
    for (int i = 0; i < r->n_steps; i++) {
        const layout_step *a = &one->steps[i], *b = &r->steps[i];
        double error = relative(a->loss, b->loss, 0);
        v->loss_error = fmax(v->loss_error, error);
        if (!(error <= tolerance))
            differs(v, "step %d: loss %.9g, on one rank %.9g", i + 1, b->loss, a->loss);
        if (v->exact && a->digest != b->digest)
            differs(v, "step %d: digest %016" PRIx64 ", on one rank %016" PRIx64, i + 1, b->digest,
                    a->digest);
    }
}

typedef struct tolerances {
    double loss, norm;
} tolerances;

/* Ordinary sums differ in their last bits. Adam divides by the gradient's size, so the update of a
 * gradient that is nearly zero may differ by much; in 16 bits a weight may be rounded to the
 * other neighbour, and gradients that travel in 16 bits (parallel.reduce_dtype) are. */
static tolerances tolerances_of(const layout_trial *t, const layout_way *way) {
    bool narrow = way->ordinary && t->c->parallel.reduce_dtype == CONFIG_REDUCE_BF16;
    if (way->precision != CONFIG_PRECISION_FP32 || narrow) return (tolerances){1e-3, 1e-2};
    return (tolerances){way->ordinary ? 1e-4 : 1e-5, 1e-4};
}

layout_verdict layout_compare(const layout_trial *t, const layout *l, const layout_result *one,
                              const layout_result *r) {
    layout_verdict v = {.ok = true, .exact = layout_is_exact(l) && !r->way.ordinary};
    tolerances most = v.exact ? (tolerances){0, 0} : tolerances_of(t, &r->way);
    compare_weights(&v, t, one, r);
    compare_gradients(&v, t, one, r, most.norm);
    if (!v.exact && relative(one->steps[0].norm, r->steps[0].norm, 0) > most.loss)
        differs(&v, "step 1: gradient norm %.9g, on one rank %.9g", r->steps[0].norm,
                one->steps[0].norm);
    compare_steps(&v, one, r, most.loss);
    return v;
}
