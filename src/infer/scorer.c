/* Scoring: how requests become passes (see scorer.h).
 *
 *   1. Requests are sorted, so that those with the same trunk are neighbours: a group. Groups with
 *      a long prefix in common (a task's examples) come together, and within them those of about
 *      the same length.
 *   2. As many groups as there are slots for trunks are a batch. What all trunks of a batch have in
 *      common is computed once; then the rest of each trunk; then the lanes of all groups.
 *   3. Lanes are sorted by length and cut into passes, so that the rows that are computed, padding
 *      included, and the cost of reading the weights for each pass are least (scorer_cut.c).
 *
 * A slot remembers its tokens. Before a pass each lane looks for the slot with the longest prefix
 * that it needs, and copies the rows of keys and values which its own slot has not. So nothing
 * needs to know what was computed before.
 *
 * Reading order: scorer_run, run_batch, fill_trunks, score_lanes, run_pass, place. */
#include "infer/scorer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "infer/generator.h"
#include "infer/scorer_int.h"
#include "model/parts.h"
#include "op/gemm.h"

/* Prefixes shorter than this are not worth a pass of their own. */
enum { BASE_LEAST = 24 };

typedef struct slot {
    int32_t *ids; /* tokens whose keys and values it holds */
    int32_t n;
} slot;

/* The ports of a program. */
typedef struct score_pass {
    const prog *p; /* NULL: there is none */
    prog_port ids, pos, qpos, span, rows, targets, nll;
} score_pass;

typedef struct shape_programs {
    score_pass fill, score;
} shape_programs;

struct scorer {
    dev *dev;
    const model_config *mc;
    scorer_size size;
    scorer_cache cache;
    int n_shapes;
    shape_programs *shape;
    generator_pass write; /* p NULL: there is none */
    slot *slots;
    int32_t *ids, *pos, *qpos, *rows, *targets, *span; /* inputs of the largest pass */
    bool
        states; /* it has linear layers: what a slot holds counts only where a text goes on behind it */
    float *nll;
    float *logits; /* of the last pass of `write` */
    score_stats stats;
    void (*replay)(void *ctx, const prog *p, const op_run *run); /* NULL: prog_replay */
    void *replay_ctx;
};

/* Requests [first, end) of the sorted order with one trunk. */
typedef struct group {
    const int32_t *trunk;
    int64_t n_trunk; /* tokens */
    int64_t first, end;
    int slot; /* of its trunk */
} group;

/* A run of scorer_run. */
typedef struct score_job {
    scorer *s;
    score_request **order;
    int64_t n, done;
    const score_options *opt;
} score_job;

/* ---- making one ---- */

scorer *scorer_new(dev *d, const model_config *mc, const scorer_size *size,
                   const scorer_cache *cache) {
    scorer *s = xcalloc(1, sizeof *s);
    *s = (scorer){.dev = d, .mc = mc, .size = *size, .cache = *cache};
    s->states = model_has_states(mc);
    s->n_shapes = scorer_shapes(size);
    s->shape = xcalloc((size_t)s->n_shapes, sizeof *s->shape);
    s->slots = xcalloc((size_t)size->slots, sizeof *s->slots);
    for (int i = 0; i < size->slots; i++) s->slots[i].ids = xcalloc((size_t)size->tok, 4);
    int32_t *inputs = xcalloc(SCORER_MOST_ROWS * 7, sizeof *inputs);
    s->ids = inputs;
    s->pos = inputs + SCORER_MOST_ROWS;
    s->qpos = inputs + 2 * SCORER_MOST_ROWS;
    s->rows = inputs + 3 * SCORER_MOST_ROWS;
    s->targets = inputs + 4 * SCORER_MOST_ROWS;
    s->span = inputs + 5 * SCORER_MOST_ROWS;
    s->nll = xcalloc(SCORER_MOST_ROWS, sizeof *s->nll);
    gemm_hold_own(d, true); /* other products give a row other bits in another batch */
    return s;
}

static score_pass pass_of(const prog *p) {
    return (score_pass){.p = p,
                        .ids = prog_find_port(p, "ids"),
                        .pos = prog_find_port(p, "pos"),
                        .qpos = prog_find_port(p, "qpos"),
                        .span = prog_find_port(p, "span"),
                        .rows = prog_find_port(p, "rows"),
                        .targets = prog_find_port(p, "targets"),
                        .nll = prog_find_port(p, "nll")};
}

void scorer_set_pass(scorer *s, int number, const prog *fill, const prog *score) {
    CHECK(number < s->n_shapes, "shape %d of %d", number, s->n_shapes);
    s->shape[number] = (shape_programs){pass_of(fill), pass_of(score)};
}

void scorer_set_replay(scorer *s, void (*replay)(void *ctx, const prog *p, const op_run *run),
                       void *ctx) {
    s->replay = replay;
    s->replay_ctx = ctx;
}

void scorer_free(scorer *s) {
    if (!s) return;
    gemm_hold_own(s->dev, false);
    for (int i = 0; i < s->size.slots; i++) free(s->slots[i].ids);
    free(s->slots);
    free(s->shape);
    free(s->ids);
    free(s->nll);
    free(s->logits);
    free(s);
}

/* ---- slots ---- */

static int64_t common_prefix(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b) {
    int64_t most = n_a < n_b ? n_a : n_b, i = 0;
    while (i < most && a[i] == b[i]) i++;
    return i;
}

/* How many of ids[0..n) are in a slot. */
static int64_t held(const scorer *s, int i, const int32_t *ids, int64_t n) {
    int64_t same = common_prefix(s->slots[i].ids, s->slots[i].n, ids, n);
    return s->states && same < s->slots[i].n ? 0 : same;
}

/* The states of a linear layer, which begin at `at`; returns the end of all slots'. */
static char *copy_states(const scorer *s, const linear_layer *a, char *at, int to, int from) {
    int64_t bytes[2];
    model_linear_state_parts(a, s->cache.dt, bytes);
    for (int i = 0; i < 2; i++) {
        dev_copy(s->dev, at + to * bytes[i], at + from * bytes[i], (size_t)bytes[i]);
        at += s->size.slots * bytes[i];
    }
    return at;
}

/* Keys and values of positions [from, to), of all layers and heads; states. */
static void copy_rows(const scorer *s, int to_slot, int from_slot, int64_t from, int64_t to) {
    char *at = s->cache.at;
    for (int l = 0; l < model_layers(s->mc); l++) {
        layer_spec layer = model_layer(s->mc, l);
        if (layer.linear.Hv) {
            linear_layer linear = model_local_linear(&layer.linear, s->cache.tp);
            at = copy_states(s, &linear, at, to_slot, from_slot);
            continue;
        }
        attention_layer a = layer.attn;
        bool latent = a.kv_rank > 0; /* one cache of one head */
        int64_t K = latent ? 1 : model_local_kv_heads(&a, s->cache.tp);
        int64_t widths[] = {latent ? model_cache_cols(&a, s->cache.tp) : a.D, a.Dv};
        for (int kv = 0; kv < 2 - latent; kv++) {
            int64_t row = widths[kv] * (int64_t)dtype_bytes(s->cache.dt), head = row * s->size.tok;
            for (int64_t k = 0; k < K; k++)
                dev_copy(s->dev, at + (to_slot * K + k) * head + from * row,
                         at + (from_slot * K + k) * head + from * row, (size_t)((to - from) * row));
            at += s->size.slots * K * head;
        }
    }
}

/* The slot that holds the most of ids[0..n); *has: how many of these. */
static int best_slot(const scorer *s, const int32_t *ids, int64_t n, int64_t *has) {
    int best = 0;
    *has = -1;
    for (int i = 0; i < s->size.slots; i++) {
        int64_t same = held(s, i, ids, n);
        if (same > *has) *has = same, best = i;
    }
    return best;
}

/* Lets a slot hold as much of ids[0..n) as any slot does; returns how many that are. */
static int64_t place(scorer *s, int to, const int32_t *ids, int64_t n) {
    slot *k = &s->slots[to];
    int64_t own = held(s, to, ids, n), has;
    int from = best_slot(s, ids, n, &has);
    if (has > own) copy_rows(s, to, from, own, has);
    if (has < own) has = own;
    memcpy(k->ids, ids, (size_t)has * sizeof *ids);
    k->n = (int32_t)has;
    return has;
}

/* ---- passes ---- */

/* What a lane does in a pass: rows [from, from + n) of ids go in; they are in its slot before. */
typedef struct lane_rows {
    const int32_t *ids;
    int64_t from, n;
} lane_rows;

static void put_lane(scorer *s, int T, int b, const lane_rows *l) {
    s->qpos[b] = s->span[2 * b] = (int32_t)l->from;
    s->span[2 * b + 1] = (int32_t)l->n;
    for (int i = 0; i < T; i++) { /* what pads repeats the last row's position: tables end there */
        int64_t at = l->from + (i < l->n ? i : l->n > 0 ? l->n - 1 : 0);
        s->ids[b * T + i] = l->n > 0 ? l->ids[at] : 0;
        s->pos[b * T + i] = (int32_t)at;
    }
}

static void replay(const scorer *s, const prog *p, const op_run *run) {
    if (s->replay)
        s->replay(s->replay_ctx, p, run);
    else
        prog_replay(p, PROG_F, run);
}

/* The lanes are in slots 0 to n - 1, where the rows before theirs lie. */
static void run_pass(scorer *s, const score_pass *p, scorer_shape shape, const lane_rows *lanes,
                     int n) {
    for (int b = 0; b < shape.B; b++) {
        lane_rows none = {0};
        put_lane(s, shape.T, b, b < n ? &lanes[b] : &none);
        slot *k = &s->slots[b]; /* padding is written over what follows */
        if (b >= n) k->n = 0;
    }
    prog_put(p->p, 0, p->ids, s->ids);
    prog_put(p->p, 0, p->pos, s->pos);
    prog_put(p->p, 0, p->qpos, s->qpos);
    prog_put(p->p, 0, p->span, s->span);
    prog_put(p->p, 0, p->rows, s->rows);
    prog_put(p->p, 0, p->targets, s->targets);
    op_run run = {.dev = s->dev, .first_micro = true, .grad_scale = 1.0f};
    replay(s, p->p, &run);
    for (int b = 0; b < n; b++) {
        slot *k = &s->slots[b];
        memcpy(k->ids + lanes[b].from, lanes[b].ids + lanes[b].from,
               (size_t)lanes[b].n * sizeof *k->ids);
        k->n = (int32_t)(lanes[b].from + lanes[b].n);
    }
    s->stats.passes++;
    s->stats.rows += (int64_t)shape.B * shape.T;
}

/* ---- trunks ---- */

typedef struct trunk_lane {
    const int32_t *ids;
    int64_t n, left;
    int slot; /* where it is kept */
} trunk_lane;

static int longest_left_first(const void *a, const void *b) {
    const trunk_lane *x = a, *y = b;
    return (x->left < y->left) - (x->left > y->left);
}

/* Puts what is there of each into its slot; those that are whole leave the list. Returns how many
 * stay. */
static int take_what_is_there(scorer *s, trunk_lane *t, int n) {
    int stay = 0;
    for (int i = 0; i < n; i++) {
        t[i].left = t[i].n - place(s, t[i].slot, t[i].ids, t[i].n);
        if (t[i].left > 0) t[stay++] = t[i];
    }
    qsort(t, (size_t)stay, sizeof *t, longest_left_first);
    return stay;
}

/* One pass over the first `n` of t. */
static void fill_some(scorer *s, trunk_lane *t, int n, int number) {
    scorer_shape shape = scorer_shape_at(&s->size, number);
    lane_rows lanes[SCORER_MOST_LANES];
    for (int i = 0; i < n; i++) {
        int64_t has = place(s, i, t[i].ids, t[i].n), left = t[i].n - has;
        lanes[i] = (lane_rows){t[i].ids, has, left < shape.T ? left : shape.T};
    }
    s->rows[0] = 0;
    run_pass(s, &s->shape[number].fill, shape, lanes, n);
    for (int i = 0; i < n; i++) place(s, t[i].slot, t[i].ids, t[i].n);
}

static bool is_stopped(const score_job *j) {
    return j->opt->interrupt && *j->opt->interrupt;
}

/* Computes what no slot has of the trunks, and puts each in its slot, which nothing else is put
 * in. */
static status fill_trunks(const score_job *j, trunk_lane *t, int n, err *e) {
    scorer *s = j->s;
    while ((n = take_what_is_there(s, t, n)) > 0 && !is_stopped(j)) {
        score_cut cut = {0};
        for (int i = 0; i < n; i++) cut.rows[i] = t[i].left;
        int first = scorer_cut_first(&s->size, &cut, n);
        fill_some(s, t, first, cut.number);
    }
    return n == 0 ? ST_OK : err_set(e, ST_STOPPED, "stopped by a signal");
}

/* What all trunks of a batch begin with. */
static int64_t common_base(const group *g, int n) {
    int64_t base = g[0].n_trunk;
    for (int i = 1; i < n; i++) base = common_prefix(g[0].trunk, base, g[i].trunk, g[i].n_trunk);
    return base;
}

static status fill_batch(const score_job *j, const group *g, int n, err *e) {
    trunk_lane *t = xmalloc(sizeof *t * (size_t)n);
    int64_t base = common_base(g, n);
    status st = ST_OK;
    if (n > 1 && base >= BASE_LEAST) {
        trunk_lane all = {.ids = g[0].trunk, .n = base, .slot = g[0].slot};
        st = fill_trunks(j, &all, 1, e);
    }
    for (int i = 0; i < n; i++)
        t[i] = (trunk_lane){.ids = g[i].trunk, .n = g[i].n_trunk, .slot = g[i].slot};
    if (st == ST_OK) st = fill_trunks(j, t, n, e);
    free(t);
    return st;
}

/* ---- lanes ---- */

/* Requests [first, end) have these inputs. */
typedef struct lane {
    const int32_t *ids;
    int64_t n_trunk, rows;
    int64_t first, end;
} lane;

static int longest_lane_first(const void *a, const void *b) {
    const lane *x = a, *y = b;
    if (x->rows != y->rows) return x->rows < y->rows ? 1 : -1;
    return (x->first > y->first) - (x->first < y->first);
}

static bool same_inputs(const score_request *a, const score_request *b) {
    return a->n == b->n && a->n_scored == b->n_scored &&
           memcmp(a->ids, b->ids, sizeof *a->ids * (size_t)(a->n - 1)) == 0;
}

/* The lanes of a group, after those in the list; a lane has few enough targets for any pass. */
static int64_t add_lanes(const score_job *j, const group *g, lane *list, int64_t n) {
    for (int64_t i = g->first; i < g->end; i++) {
        const score_request *r = j->order[i];
        lane *last = n ? &list[n - 1] : NULL;
        bool joins = i > g->first && same_inputs(j->order[i - 1], r) &&
                     (last->end - last->first + 1) * last->rows <= SCORER_LEAST_ROWS;
        if (joins)
            last->end = i + 1;
        else
            list[n++] = (lane){r->ids, g->n_trunk, r->n_scored, i, i + 1};
    }
    return n;
}

/* Adds the targets of rows [done, done + rows) of a lane, which is number b of a pass; returns how
 * many there are now. */
static int add_targets(const score_job *j, const lane *l, int b, int T, int64_t done, int64_t rows,
                       int n) {
    scorer *s = j->s;
    for (int64_t i = l->first; i < l->end; i++) {
        const score_request *r = j->order[i];
        for (int64_t k = 0; k < rows; k++, n++) {
            s->rows[n] = (int32_t)(b * T + k);
            s->targets[n] = r->ids[l->n_trunk + 1 + done + k];
        }
    }
    return n;
}

/* Takes what add_targets has added, in the same order. */
static int take_scores(const score_job *j, const lane *l, int64_t done, int64_t rows, int n) {
    for (int64_t i = l->first; i < l->end; i++) {
        score_request *r = j->order[i];
        if (r->nll) memcpy(r->nll + done, j->s->nll + n, (size_t)rows * sizeof *r->nll);
        for (int64_t k = 0; k < rows; k++, n++) r->loglik -= (double)j->s->nll[n];
    }
    return n;
}

/* A pass over rows [done, ...) of n lanes, up to T of each. */
static void score_pass_of(score_job *j, const lane *l, int n, int number, int64_t done) {
    scorer *s = j->s;
    scorer_shape shape = scorer_shape_at(&s->size, number);
    lane_rows lanes[SCORER_MOST_LANES];
    int targets = 0, all = shape.B * shape.T;
    for (int i = 0; i < n; i++) {
        int64_t from = l[i].n_trunk + done, left = l[i].rows - done;
        int64_t has = place(s, i, l[i].ids, from);
        CHECK(has == from, "%ld of %ld tokens are in the cache", (long)has, (long)from);
        lanes[i] = (lane_rows){l[i].ids, from, left < shape.T ? left : shape.T};
        targets = add_targets(j, &l[i], i, shape.T, done, lanes[i].n, targets);
    }
    CHECK(targets <= all, "%d targets in a pass of %d rows", targets, all);
    for (int i = targets; i < all; i++) s->rows[i] = 0, s->targets[i] = -1;
    run_pass(s, &s->shape[number].score, shape, lanes, n);
    prog_get(s->shape[number].score.p, 0, s->shape[number].score.nll, s->nll);
    targets = 0;
    for (int i = 0; i < n; i++) targets = take_scores(j, &l[i], done, lanes[i].n, targets);
}

/* Says how far the job is. */
static void count_done(score_job *j, const lane *l, int64_t n) {
    for (int64_t i = 0; i < n; i++) j->done += l[i].end - l[i].first;
    if (j->opt->progress) j->opt->progress(j->opt->ctx, j->done, j->n);
}

/* A lane that is longer than any shape goes through alone, since its slot must not be used
 * meanwhile. */
static void score_long(score_job *j, const lane *l, int64_t longest) {
    for (int64_t done = 0; done < l->rows && !is_stopped(j); done += longest) {
        score_cut cut = {.rows = {l->rows - done}};
        scorer_cut_first(&j->s->size, &cut, 1);
        score_pass_of(j, l, 1, cut.number, done);
    }
}

static status score_lanes(score_job *j, lane *l, int64_t n, err *e) {
    const scorer_size *size = &j->s->size;
    int64_t longest = scorer_shape_at(size, scorer_longest_shape(size)).T;
    qsort(l, (size_t)n, sizeof *l, longest_lane_first);
    while (n > 0 && !is_stopped(j)) {
        int taken = 1;
        if (l->rows > longest) {
            score_long(j, l, longest);
        } else {
            score_cut cut = {0};
            int some = n < SCORER_CUT_MOST ? (int)n : SCORER_CUT_MOST;
            for (int i = 0; i < some; i++)
                cut.rows[i] = l[i].rows, cut.targets[i] = l[i].rows * (l[i].end - l[i].first);
            taken = scorer_cut_first(size, &cut, some);
            score_pass_of(j, l, taken, cut.number, 0);
        }
        count_done(j, l, taken);
        l += taken, n -= taken;
    }
    return is_stopped(j) ? err_set(e, ST_STOPPED, "stopped by a signal") : ST_OK;
}

/* ---- batches ---- */

static int64_t trunk_of(const score_request *r) {
    return r->n - 1 - r->n_scored;
}

static status run_batch(score_job *j, group *g, int n, err *e) {
    int64_t lanes = 0, requests = g[n - 1].end - g[0].first;
    for (int i = 0; i < n; i++) g[i].slot = j->s->size.lanes + i;
    TRY(fill_batch(j, g, n, e));
    lane *l = xmalloc(sizeof *l * (size_t)requests);
    for (int i = 0; i < n; i++) lanes = add_lanes(j, &g[i], l, lanes);
    status st = score_lanes(j, l, lanes, e);
    free(l);
    return st;
}

/* The group that begins with request i. */
static group group_at(const score_job *j, int64_t i) {
    const score_request *r = j->order[i];
    group g = {.trunk = r->ids, .n_trunk = trunk_of(r), .first = i, .end = i + 1};
    for (; g.end < j->n; g.end++) {
        const score_request *next = j->order[g.end];
        if (trunk_of(next) != g.n_trunk ||
            memcmp(next->ids, g.trunk, sizeof *g.trunk * (size_t)g.n_trunk) != 0)
            break;
    }
    return g;
}

static status run_all(score_job *j, err *e) {
    int most = j->s->size.slots - j->s->size.lanes, n = 0;
    group *g = xmalloc(sizeof *g * (size_t)most);
    status st = ST_OK;
    for (int64_t i = 0; st == ST_OK && i < j->n;) {
        g[n] = group_at(j, i);
        i = g[n++].end;
        if (n < most && i < j->n) continue;
        st = run_batch(j, g, n, e);
        n = 0;
    }
    free(g);
    return st;
}

status score_check(const score_request *r, int64_t n, err *e) {
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(r[i].loglik)) continue;
        err_set(e, ST_NONFINITE, "the log-likelihood of request %ld is not finite", (long)i);
        return err_hint(e, "the weights may be damaged, or have diverged in training");
    }
    return ST_OK;
}

status scorer_run(scorer *s, score_request *requests, int64_t n, const score_options *opt,
                  score_stats *stats, err *e) {
    score_job j = {.s = s, .n = n, .opt = opt, .order = xmalloc(sizeof *j.order * (size_t)(n + 1))};
    s->stats = (score_stats){0};
    for (int64_t i = 0; i < n; i++) {
        j.order[i] = &requests[i];
        requests[i].loglik = 0;
        s->stats.rows_alone += requests[i].n - 1;
        CHECK(requests[i].n_scored > 0 && trunk_of(&requests[i]) >= 0, "request %ld", (long)i);
    }
    scorer_sort(j.order, n);
    status st = run_all(&j, e);
    free(j.order);
    if (stats) *stats = s->stats;
    return st == ST_OK ? score_check(requests, n, e) : st;
}

/* ---- for writers ---- */

const scorer_size *scorer_get_size(const scorer *s) {
    return &s->size;
}

void scorer_set_write(scorer *s, const prog *write) {
    s->write = generator_pass_of(write);
    if (!write) return;
    int64_t n = s->write.logits.rows * s->write.logits.cols;
    s->logits = xmalloc(sizeof *s->logits * (size_t)n);
}

/* The shape of one lane for so many rows, or the longest one. */
static int shape_of_one(const scorer *s, int64_t rows) {
    int best = -1, longest = -1;
    for (int i = 0; i < s->n_shapes; i++) {
        scorer_shape k = scorer_shape_at(&s->size, i);
        if (k.B != 1) continue;
        longest = i; /* they come by rising length */
        if (best < 0 && k.T >= rows) best = i;
    }
    return best < 0 ? longest : best;
}

bool scorer_fill_slot(scorer *s, int b, const int32_t *ids, int64_t n,
                      const volatile sig_atomic_t *interrupt) {
    while (place(s, b, ids, n) < n) {
        if (interrupt && *interrupt) return false;
        int64_t has = place(s, 0, ids, n), left = n - has;
        int number = shape_of_one(s, left);
        scorer_shape shape = scorer_shape_at(&s->size, number);
        lane_rows rows = {ids, has, left < shape.T ? left : shape.T};
        s->rows[0] = 0;
        run_pass(s, &s->shape[number].fill, shape, &rows, 1);
    }
    return true;
}

void scorer_set_next(scorer *s, int b, int32_t id) {
    slot *k = &s->slots[b];
    if (id < 0) k->n = 0;
    s->ids[b] = id < 0 ? 0 : id;
    s->pos[b] = s->qpos[b] = s->span[2 * b] = k->n;
    s->span[2 * b + 1] = id >= 0;
    s->rows[b] = b;
    if (id >= 0) k->ids[k->n++] = id;
}

void scorer_write(scorer *s) {
    const generator_pass *k = &s->write;
    prog_put(k->p, 0, k->ids, s->ids);
    prog_put(k->p, 0, k->pos, s->pos);
    prog_put(k->p, 0, k->qpos, s->qpos);
    prog_put(k->p, 0, k->span, s->span);
    prog_put(k->p, 0, k->rows, s->rows);
    op_run run = {.dev = s->dev, .first_micro = true, .grad_scale = 1.0f};
    replay(s, k->p, &run);
    s->stats.passes++;
    s->stats.rows += s->size.writes;
}

float *scorer_written(scorer *s) {
    prog_get(s->write.p, 0, s->write.logits, s->logits);
    return s->logits;
}

bool scorer_picks(const scorer *s) {
    return pick_is_on_device(s->dev);
}

void scorer_pick(const scorer *s, int32_t vocab, int32_t n_ids, const pick_rule *rule,
                 int32_t *ids) {
    const float *at = prog_port_at(s->write.p, 0, s->write.logits);
    pick_rows(s->dev, at, vocab, s->size.writes, n_ids, rule, ids);
}
