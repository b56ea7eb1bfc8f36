/* Reading order: schedule_build; a function for each kind; schedule_time. */
#include "base/text.h"
#include "step/schedule.h"

#include <math.h>

static const char *const names[SCHEDULES] = {"afab", "1f1b",  "interleaved", "zb-h1",
                                             "zb-v", "zb-h2", "zb-2p",       "dualpipe"};

const char *schedule_name(schedule_kind kind) {
    return names[kind];
}

int schedule_chunks_of(schedule_kind kind) {
    return kind == SCHEDULE_INTERLEAVED ? 0 : kind == SCHEDULE_ZB_V ? 2 : 1;
}

bool schedule_splits(schedule_kind kind) {
    return kind >= SCHEDULE_ZB_H1;
}

bool schedule_runs(schedule_kind kind) {
    return kind < SCHEDULE_ZB_H2;
}

int schedule_stage_of(const schedule *s, int chunk) {
    int place = chunk % s->stages, round = chunk / s->stages;
    bool turns = s->kind == SCHEDULE_ZB_V || s->kind == SCHEDULE_DUALPIPE;
    return turns && round % 2 ? s->stages - 1 - place : place;
}

int schedule_parts(const schedule *s) {
    return s->chunks / s->stages / s->copies;
}

static void put(schedule *s, int stage, schedule_work work, int chunk, int micro_batch) {
    schedule_stage *t = &s->stage[stage];
    t->item[t->n++] = (schedule_item){.work = work, .micro_batch = micro_batch, .chunk = chunk};
}

/* ---- orders that can be written down ---- */

/* The i-th forward or backward of a stage, of v M. Micro-batches go in groups of P, each group through all chunks of the
 * stage; backward in the opposite order of chunks. With one chunk this is micro-batch i. */
static void put_turn(schedule *s, int stage, schedule_work work, int i) {
    int P = s->stages, v = s->chunks / P, round = i / P % v;
    if (work != WORK_FORWARD) round = v - 1 - round;
    int micro_batch = v == 1 ? i : i / (P * v) * P + i % P;
    put(s, stage, work, round * P + stage, micro_batch);
}

/* Forward pieces of a stage before its first backward. */
static int warm_up(const schedule *s, int stage) {
    int P = s->stages, v = s->chunks / P, all = v * s->micro_batches;
    int n = s->kind == SCHEDULE_AFAB ? all
            : v == 1                 ? P - 1 - stage
                                     : 2 * (P - 1 - stage) + (v - 1) * P;
    return n < all ? n : all;
}

static void build_turns(schedule *s) {
    int all = s->chunks / s->stages * s->micro_batches;
    for (int stage = 0; stage < s->stages; stage++) {
        int ahead = warm_up(s, stage);
        for (int i = 0; i < ahead; i++) put_turn(s, stage, WORK_FORWARD, i);
        for (int i = 0; i < all; i++) {
            if (ahead + i < all) put_turn(s, stage, WORK_FORWARD, ahead + i);
            put_turn(s, stage, WORK_BACKWARD, i);
        }
    }
}

/* ---- zb-v: of its two chunks a stage counts what it did with each ---- */

typedef struct vee {
    schedule *s;
    int stage, done[WORKS][2];
} vee;

static void do_next(vee *v, schedule_work work, int round) {
    int P = v->s->stages, m = v->done[work][round]++;
    if (m < v->s->micro_batches)
        put(v->s, v->stage, work, round ? 2 * P - 1 - v->stage : v->stage, m);
}

static void do_back(vee *v, int round) {
    do_next(v, WORK_INPUT, round);
    do_next(v, WORK_WEIGHT, round);
}

/* The order for 2 P - 1 micro-batches and more; of fewer, what does not exist is left out. */
static void build_vee(schedule *s, int stage) {
    int P = s->stages, all = s->micro_batches > 2 * P - 1 ? s->micro_batches : 2 * P - 1;
    vee v = {.s = s, .stage = stage};
    for (int i = 0; i < 2 * (P - stage) - 1; i++) do_next(&v, WORK_FORWARD, 0);
    for (int i = 0; i < stage; i++) {
        do_next(&v, WORK_FORWARD, 1);
        do_next(&v, WORK_FORWARD, 0);
    }
    for (int i = 0; i < P - stage; i++) {
        do_next(&v, WORK_FORWARD, 1);
        do_back(&v, 1);
    }
    while (v.done[WORK_FORWARD][1] < all) {
        if (v.done[WORK_FORWARD][0] < all) do_next(&v, WORK_FORWARD, 0);
        do_back(&v, 0);
        do_next(&v, WORK_FORWARD, 1);
        do_back(&v, 1);
    }
    for (int i = 0; i < stage; i++) {
        do_next(&v, WORK_INPUT, 0);
        do_next(&v, WORK_INPUT, 1);
    }
    while (v.done[WORK_INPUT][0] < all) do_back(&v, 0);
    for (int round = 1; round >= 0; round--)
        while (v.done[WORK_WEIGHT][round] < all) do_next(&v, WORK_WEIGHT, round);
}

/* ---- dualpipe: of both ways through the model a stage counts what it did; way 0 enters at the nearer end ---- */

typedef struct dual {
    schedule *s;
    int stage;
    int forward[2], back[2]; /* micro-batches, by way */
    int whole;               /* items before this one lack no W */
} dual;

static void put_way(dual *d, schedule_work work, int way) {
    int P = d->s->stages, half = d->s->micro_batches / 2, copy = way ^ (d->stage >= P / 2);
    int m = (work == WORK_FORWARD ? d->forward : d->back)[way]++;
    put(d->s, d->stage, work, copy ? 2 * P - 1 - d->stage : d->stage, m + copy * half);
}

static void put_both(dual *d, int way, bool joined) {
    schedule_stage *g = &d->s->stage[d->stage];
    put_way(d, WORK_FORWARD, way);
    g->item[g->n - 1].joined = joined;
    put_way(d, WORK_BACKWARD, !way);
}

static void put_oldest_weights(dual *d) {
    const schedule_item *item = d->s->stage[d->stage].item;
    while (item[d->whole].work != WORK_INPUT) d->whole++;
    const schedule_item *it = &item[d->whole++];
    put(d->s, d->stage, WORK_WEIGHT, it->chunk, it->micro_batch);
}

/* Forward until the first backward comes, and until every forward has a backward beside it. */
static void fill_dual(dual *d, int outer, int inner) {
    for (int i = 0; i < 2 * outer; i++) put_way(d, WORK_FORWARD, 0);
    for (int i = 0; i < 2 * inner; i++) put_way(d, WORK_FORWARD, i % 2);
    for (int i = 0; i < outer; i++) {
        put_way(d, WORK_INPUT, 1);
        put_oldest_weights(d);
        put_way(d, WORK_FORWARD, 1);
    }
}

/* Backward when no forward is left: W of the later half waits until there is nothing else to do. */
static void drain_dual(dual *d, int outer, int inner) {
    for (int i = 0; i < 2 * inner; i++)
        put_way(d, i < inner ? WORK_BACKWARD : WORK_INPUT, i % 2 == 0);
    for (int i = 0; i < outer; i++) {
        put_oldest_weights(d);
        put_way(d, WORK_INPUT, 0);
    }
    for (int i = 0; i < inner; i++) put_oldest_weights(d);
}

/* The order of the authors' program. inner: places from the nearer end, from 1 on; outer: from there to the middle. */
static void build_dual(schedule *s, int stage) {
    int P = s->stages, near = stage < P / 2 ? stage : P - 1 - stage;
    int inner = near + 1, outer = P / 2 - inner, pairs = s->micro_batches / 2 - P + inner;
    bool middle = outer == 0; /* where the other stage waits for the first forward alone */
    dual d = {.s = s, .stage = stage};
    fill_dual(&d, outer, inner);
    for (int i = 0; i < pairs; i++) {
        put_both(&d, 0, i > 0 || !middle);
        put_both(&d, 1, true);
    }
    for (int i = 0; i < outer; i++) {
        put_way(&d, WORK_BACKWARD, 1);
        put_both(&d, 1, true);
    }
    drain_dual(&d, outer, inner);
}

/* ---- zb-h1, zb-h2, zb-2p: found by doing the work, each piece in the time that it takes ---- */

typedef struct progress {
    schedule *s;
    double takes[WORKS], transfer;
    int *done[WORKS];   /* [P] micro-batches */
    double *end[WORKS]; /* [P * M] */
    double *free;       /* [P] when a stage has done what it does */
    double now;
} progress;

/* When the forward or input of a micro-batch can begin on a stage, by what others have done: never before they do it. */
static double comes_to(const progress *p, int stage, schedule_work work, int micro_batch) {
    int from = work == WORK_FORWARD ? stage - 1 : stage + 1;
    if (from < 0 || from == p->s->stages) return 0;
    if (p->done[work][from] <= micro_batch) return INFINITY;
    return p->end[work][from * p->s->micro_batches + micro_batch] + p->transfer;
}

/* zb-h1: a stage may keep P micro-batches up to their W, and as many up to their I as 1f1b; zb-h2: of each nearly twice as many. */
static bool has_room(const progress *p, int stage) {
    int P = p->s->stages, left = P - stage, inputs = p->done[WORK_INPUT][stage];
    int of_input = p->done[WORK_FORWARD][stage] - inputs;
    int of_weight = inputs - p->done[WORK_WEIGHT][stage];
    switch (p->s->kind) {
        case SCHEDULE_ZB_2P:
            return 2 * of_input + of_weight < 4 * P - 1 && (inputs || of_input < 2 * left - 1);
        case SCHEDULE_ZB_H2: return of_input + of_weight < 2 * P - 1 && of_input < 2 * left - 1;
        default: return of_input + of_weight < P && of_input < left;
    }
}

static bool may_do(const progress *p, int stage, schedule_work work) {
    int m = p->done[work][stage];
    if (m == p->s->micro_batches) return false;
    if (work == WORK_FORWARD && !has_room(p, stage)) return false;
    if (work == WORK_INPUT && m == p->done[WORK_FORWARD][stage]) return false;
    return work == WORK_WEIGHT ? m < p->done[WORK_INPUT][stage]
                               : comes_to(p, stage, work, m) <= p->now;
}

/* What others wait for comes first. WORKS: nothing can be done. */
static schedule_work find_work(const progress *p, int stage) {
    static const schedule_work forward[] = {WORK_FORWARD, WORK_INPUT, WORK_WEIGHT},
                               back[] = {WORK_INPUT, WORK_FORWARD, WORK_WEIGHT};
    const schedule_work *order = p->s->kind == SCHEDULE_ZB_2P ? back : forward;
    for (int i = 0; i < ARRAY_LEN(forward) && p->free[stage] <= p->now; i++)
        if (may_do(p, stage, order[i])) return order[i];
    return WORKS;
}

static void later(double *next, double at, double now) {
    if (at > now && at < *next) *next = at;
}

/* When a stage is free again, or what one waits for comes. */
static double next_event(const progress *p) {
    double next = INFINITY;
    for (int i = 0; i < p->s->stages; i++) {
        later(&next, p->free[i], p->now);
        later(&next, comes_to(p, i, WORK_FORWARD, p->done[WORK_FORWARD][i]), p->now);
        later(&next, comes_to(p, i, WORK_INPUT, p->done[WORK_INPUT][i]), p->now);
    }
    return next;
}

static void do_work(progress *p, int stage, schedule_work work) {
    int m = p->done[work][stage]++;
    p->free[stage] = p->now + p->takes[work];
    p->end[work][stage * p->s->micro_batches + m] = p->free[stage];
    put(p->s, stage, work, stage, m);
}

/* False: no stage can do anything now. */
static bool work_now(progress *p) {
    bool any = false;
    for (int i = 0; i < p->s->stages; i++) {
        schedule_work work = find_work(p, i);
        if (work == WORKS) continue;
        do_work(p, i, work);
        any = true;
    }
    return any;
}

static void build_by_doing(arena *a, schedule *s, const schedule_times *t) {
    progress p = {.s = s, .transfer = t->transfer};
    for (int w = 0; w < WORKS; w++) {
        p.takes[w] = t->work[w];
        p.done[w] = ARENA_ARRAY(a, int, s->stages);
        p.end[w] = ARENA_ARRAY(a, double, s->stages * s->micro_batches);
    }
    p.free = ARENA_ARRAY(a, double, s->stages);
    for (; p.now < INFINITY; p.now = next_event(&p))
        while (work_now(&p)) continue; /* what takes no time lets others begin at once */
}

/* ---- building ---- */

/* In zb-2p one that lacks its W alone counts half. */
static int most_kept(const schedule *s, const schedule_stage *t) {
    int halves = 0, most = 0, of_weight = s->kind == SCHEDULE_ZB_2P ? 1 : 2;
    for (int i = 0; i < t->n; i++) {
        schedule_work w = t->item[i].work;
        if (w == WORK_FORWARD) halves += 2;
        if (halves > most) most = halves;
        halves -= w == WORK_BACKWARD ? 2 : w == WORK_INPUT ? 2 - of_weight : 0;
        if (w == WORK_WEIGHT) halves -= of_weight;
    }
    return (most + 1) / 2;
}

static void index_items(arena *a, schedule *s) {
    s->forward = ARENA_ARRAY(a, schedule_item *, s->chunks * s->micro_batches);
    s->back = ARENA_ARRAY(a, schedule_item *, s->chunks * s->micro_batches);
    for (int i = 0; i < s->stages; i++)
        for (int k = 0; k < s->stage[i].n; k++) {
            schedule_item *it = &s->stage[i].item[k];
            if (it->work == WORK_WEIGHT) continue;
            (it->work == WORK_FORWARD ? s->forward
                                      : s->back)[it->chunk * s->micro_batches + it->micro_batch] =
                it;
        }
}

static void finish(arena *a, schedule *s) {
    index_items(a, s);
    for (int i = 0; i < s->stages; i++) s->stage[i].kept = most_kept(s, &s->stage[i]);
}

static status check_dual(int stages, int micro_batches, err *e) {
    if (stages % 2) {
        err_set(e, ST_USAGE, "dualpipe has stages in pairs, and %d are none", stages);
        return err_hint(e, "use %d stages", stages + 1);
    }
    if (micro_batches % 2 == 0 && micro_batches >= 2 * stages) return ST_OK;
    err_set(e, ST_USAGE,
            "dualpipe sends half of the micro-batches from each end, 2 P of them or more: "
            "%d stages do not begin with %d",
            stages, micro_batches);
    return err_hint(e, "use %d micro-batches",
                    micro_batches < 2 * stages ? 2 * stages : micro_batches + 1);
}

static status check(schedule_kind kind, int stages, int micro_batches, int of_stage, err *e) {
    int needs = schedule_chunks_of(kind);
    if (needs ? of_stage != needs : of_stage < 2) {
        err_set(e, ST_USAGE, "%s has %s chunk%s of layers on each stage, not %d", names[kind],
                needs == 0   ? "two or more"
                : needs == 1 ? "one"
                             : "two",
                text_s(needs), of_stage);
        return err_hint(e, needs == 1 ? "with several chunks it is interleaved or zb-v"
                                      : "set parallel.virtual");
    }
    if (kind == SCHEDULE_DUALPIPE) return check_dual(stages, micro_batches, e);
    if (kind != SCHEDULE_INTERLEAVED || micro_batches % stages == 0) return ST_OK;
    err_set(e, ST_USAGE,
            "interleaved stages take micro-batches in groups of %d, of which %d is no multiple",
            stages, micro_batches);
    return err_hint(e, "use %d micro-batches", (micro_batches / stages + 1) * stages);
}

static const schedule_times alike = {.work = {1, 2, 1, 1}};

static void build(arena *a, schedule *s) {
    void (*one)(schedule *, int) = s->kind == SCHEDULE_ZB_V       ? build_vee
                                   : s->kind == SCHEDULE_DUALPIPE ? build_dual
                                                                  : NULL;
    for (int i = 0; i < s->stages && one; i++) one(s, i);
    if (!one && schedule_splits(s->kind))
        build_by_doing(a, s, &alike);
    else if (!one)
        build_turns(s);
}

status schedule_build(arena *a, schedule_kind kind, int stages, int micro_batches, int of_stage,
                      schedule *out, err *e) {
    TRY(check(kind, stages, micro_batches, of_stage, e));
    int copies = kind == SCHEDULE_DUALPIPE ? 2 : 1;
    *out = (schedule){.kind = kind,
                      .stages = stages,
                      .micro_batches = micro_batches,
                      .chunks = stages * of_stage * copies,
                      .copies = copies};
    out->stage = ARENA_ARRAY(a, schedule_stage, stages);
    for (int i = 0; i < stages; i++)
        out->stage[i].item = ARENA_ARRAY(a, schedule_item, 3 * of_stage * micro_batches);
    build(a, out);
    finish(a, out);
    return ST_OK;
}

/* Of all chunks, where they differ. */
static schedule_times mean_times(const schedule *s, const schedule_times *t) {
    schedule_times mean = *t;
    for (int w = 0; w < WORKS && t->of_chunk; w++) {
        mean.work[w] = 0;
        for (int i = 0; i < s->chunks; i++) mean.work[w] += t->of_chunk[i][w] / s->chunks;
    }
    return mean;
}

/* The order that the rules of another kind give for these times; those of fixed orders have theirs for F, I and W alike. */
static void order_as(arena *a, schedule *s, schedule_kind kind, const schedule_times *mean) {
    schedule_kind own = s->kind;
    s->kind = kind;
    for (int i = 0; i < s->stages; i++) s->stage[i].n = 0;
    build_by_doing(a, s, kind == own ? mean : &alike);
    s->kind = own;
    finish(a, s);
}

void schedule_suit(arena *a, schedule *s, const schedule_times *t) {
    static const schedule_kind tried[] = {SCHEDULE_ZB_2P, SCHEDULE_ZB_H2, SCHEDULE_ZB_H1};
    if (s->kind != SCHEDULE_ZB_2P) return;
    schedule_times mean = mean_times(s, t);
    int best = 0;
    double least = INFINITY;
    for (int i = 0; i <= ARRAY_LEN(tried); i++) { /* the best again at last */
        int k = i < ARRAY_LEN(tried) ? i : best;
        order_as(a, s, tried[k], &mean);
        schedule_time(s, t);
        if (s->step < least) least = s->step, best = k;
    }
}

/* ---- time ---- */

/* What an item waits for, besides its own stage; NULL: nothing. */
static const schedule_item *find_need(const schedule *s, const schedule_item *it) {
    bool forward = it->work == WORK_FORWARD;
    int of_copy = s->chunks / s->copies, ends = forward ? 0 : of_copy - 1;
    if (it->work == WORK_WEIGHT || it->chunk % of_copy == ends) return NULL;
    int chunk = forward ? it->chunk - 1 : it->chunk + 1;
    return (forward ? s->forward : s->back)[chunk * s->micro_batches + it->micro_batch];
}

/* When what the item needs is there; INFINITY: that has no times yet. */
static double comes_at(const schedule *s, const schedule_times *t, const schedule_item *it) {
    const schedule_item *need = find_need(s, it);
    if (!need) return 0;
    bool here = schedule_stage_of(s, need->chunk) == schedule_stage_of(s, it->chunk);
    return need->end <= 0 ? INFINITY : need->end + (here ? 0 : t->transfer);
}

/* The next item of a stage, or the next two, which are done together. False: what they need has no times yet. */
static bool time_next(const schedule *s, const schedule_times *t, schedule_stage *g) {
    schedule_item *it = &g->item[g->timed];
    int n = it->joined ? 2 : 1;
    double begin = g->free_at, takes = 0;
    for (int i = 0; i < n; i++) {
        begin = fmax(begin, comes_at(s, t, &it[i]));
        takes += t->of_chunk ? t->of_chunk[it[i].chunk][it[i].work] : t->work[it[i].work];
    }
    if (begin == INFINITY) return false;
    if (n == 2 && t->both > 0) takes = t->both;
    for (int i = 0; i < n; i++) it[i].begin = begin, it[i].end = begin + takes;
    g->free_at = begin + takes;
    g->busy += takes;
    g->timed += n;
    return true;
}

static void forget_times(schedule *s) {
    for (int i = 0; i < s->stages; i++) {
        schedule_stage *g = &s->stage[i];
        g->busy = g->free_at = 0;
        g->timed = 0;
        for (int k = 0; k < g->n; k++) g->item[k].end = 0;
    }
}

void schedule_time(schedule *s, const schedule_times *t) {
    double busy = 0;
    forget_times(s);
    for (bool moves = true; moves;) {
        moves = false;
        for (int i = 0; i < s->stages; i++)
            for (schedule_stage *g = &s->stage[i]; g->timed < g->n && time_next(s, t, g);)
                moves = true;
    }
    s->end = s->step = 0;
    for (int i = 0; i < s->stages; i++) {
        const schedule_stage *g = &s->stage[i];
        CHECK(g->timed == g->n, "stage %d of %s waits for ever", i, names[s->kind]);
        busy += g->busy;
        if (g->free_at > s->end) s->end = g->free_at;
        if (g->free_at - g->item[0].begin > s->step) s->step = g->free_at - g->item[0].begin;
    }
    if (s->kind != SCHEDULE_ZB_H2 && s->kind != SCHEDULE_ZB_2P) s->step = s->end;
    s->bubble = 1 - busy / (s->step * s->stages);
}
