/* Reading order: pipeline_build, then emit_pass. */
#include "step/pipeline.h"

#include <stdlib.h>

#include "step/schedule.h"

/* What one stage sends another. */
typedef struct transfer {
    double ready; /* when the pass ends that gives it */
    int from, to; /* chunks */
    int micro_batch;
    bool comes; /* to this stage */
} transfer;

typedef struct maker {
    arena *a, *scratch;
    const schedule *s;
    pipeline *out;
    int cap;
    transfer *list;           /* of this stage, in the common order */
    int n, next;              /* `next`: the first that has not begun */
    int *begun[2], *taken[2]; /* [chunks] by direction */
} maker;

/* The chunk that needs what a piece of work gives; -1: none does, or it is on the same stage. */
static int find_receiver(const schedule *s, const schedule_item *it) {
    int to = it->work == WORK_FORWARD ? it->chunk + 1 : it->chunk - 1;
    if (it->work == WORK_WEIGHT || to < 0 || to == s->chunks) return -1;
    return schedule_stage_of(s, to) == schedule_stage_of(s, it->chunk) ? -1 : to;
}

/* Two transfers that are ready at the same time do not depend on each other: any order will do, if
 * it is the same on all ranks. */
static int by_time(const void *a, const void *b) {
    const transfer *x = a, *y = b;
    if (x->ready != y->ready) return x->ready < y->ready ? -1 : 1;
    if (x->from != y->from) return x->from - y->from;
    return x->to - y->to;
}

static void list_transfer(maker *k, const schedule_item *it, bool comes) {
    int to = find_receiver(k->s, it);
    if (to >= 0) k->list[k->n++] = (transfer){it->end, it->chunk, to, it->micro_batch, comes};
}

static void list_transfers(maker *k) {
    const schedule *s = k->s;
    int M = s->micro_batches;
    k->list = ARENA_ARRAY(k->scratch, transfer, 4 * s->chunks / s->stages * M);
    for (int c = 0; c < s->chunks; c++)
        for (int m = 0; m < M && schedule_stage_of(s, c) == k->out->stage; m++) {
            list_transfer(k, s->forward[c * M + m], false);
            list_transfer(k, s->back[c * M + m], false);
            if (c > 0) list_transfer(k, s->forward[(c - 1) * M + m], true);
            if (c + 1 < s->chunks) list_transfer(k, s->back[(c + 1) * M + m], true);
        }
    if (k->n) qsort(k->list, (size_t)k->n, sizeof *k->list, by_time);
}

/* ---- events ---- */

static pipeline_event *append(maker *k, pipeline_action action, bool back, int micro_batch,
                              int chunk, int other) {
    pipeline *p = k->out;
    p->event = arena_grow(k->a, p->event, p->n, &k->cap, sizeof *p->event);
    pipeline_event *e = &p->event[p->n++];
    *e = (pipeline_event){.action = action,
                          .back = back,
                          .micro_batch = micro_batch,
                          .chunk = chunk,
                          .other = other,
                          .stage = -1};
    if (other >= 0) e->stage = schedule_stage_of(k->s, other);
    return e;
}

/* Transfers of a chunk and direction come in the order of micro-batches, and use its boxes in turn.
 * How many these are is known at the end: until then `box` says which transfer it is. */
static void begin_receive(maker *k) {
    const transfer *t = &k->list[k->next++];
    bool back = t->to < t->from;
    int *begun = &k->begun[back][t->to], *most = &k->out->boxes[back][t->to];
    append(k, PIPELINE_RECEIVE, back, t->micro_batch, t->to, t->from)->box = (*begun)++;
    int used = *begun - k->taken[back][t->to];
    if (used > *most) *most = used;
}

/* Begins what comes next, as far as there is a box. */
static void receive_early(maker *k) {
    while (k->next < k->n && k->list[k->next].comes) {
        const transfer *t = &k->list[k->next];
        bool back = t->to < t->from;
        if (k->begun[back][t->to] > k->taken[back][t->to]) break;
        begin_receive(k);
    }
}

/* Begins to receive whatever comes before transfer from -> to of the micro-batch in the common
 * order. */
static void receive_before(maker *k, int from, int to, int micro_batch) {
    for (;; begin_receive(k)) {
        CHECK(k->next < k->n, "a transfer that is not in the schedule");
        const transfer *t = &k->list[k->next];
        if (t->from == from && t->to == to && t->micro_batch == micro_batch) return;
        CHECK(t->comes, "stage %d would send out of order", k->out->stage);
    }
}

static void take(maker *k, bool back, int chunk, int micro_batch) {
    int from = back ? chunk + 1 : chunk - 1, *taken = &k->taken[back][chunk];
    if (from < 0 || from == k->s->chunks ||
        schedule_stage_of(k->s, from) == schedule_stage_of(k->s, chunk))
        return;
    if (k->begun[back][chunk] == *taken) {
        receive_before(k, from, chunk, micro_batch);
        begin_receive(k);
    }
    append(k, PIPELINE_TAKE, back, micro_batch, chunk, from)->box = (*taken)++;
}

static void emit_pass(maker *k, const schedule_item *it) {
    bool back = it->work != WORK_FORWARD;
    int to = find_receiver(k->s, it);
    if (it->work == WORK_WEIGHT) {
        append(k, PIPELINE_PASS, back, it->micro_batch, it->chunk, -1)->weights = true;
        return;
    }
    take(k, back, it->chunk, it->micro_batch);
    receive_early(k);
    append(k, PIPELINE_PASS, back, it->micro_batch, it->chunk, -1);
    if (to < 0) return;
    receive_before(k, it->chunk, to, it->micro_batch);
    k->next++;
    append(k, PIPELINE_SEND, back, it->micro_batch, it->chunk, to);
    receive_early(k);
}

/* ---- counts ---- */

static void count_frames(pipeline *p, arena *a) {
    int *now = ARENA_ARRAY(a, int, p->chunks);
    for (int i = 0; i < p->n; i++) {
        const pipeline_event *e = &p->event[i];
        if (e->action != PIPELINE_PASS) continue;
        now[e->chunk] += !e->back;
        if (now[e->chunk] > p->frames[e->chunk]) p->frames[e->chunk] = now[e->chunk];
        now[e->chunk] -= p->splits ? e->weights : e->back;
    }
}

/* On stage s chunk number r keeps a micro-batch while 2 (P - s) - 1 + 2 (v - 1 - r) P others go forward, and a group of P of it
 * comes after each v P of these. */
static void find_mates(pipeline *p, arena *a, const schedule *s) {
    int P = s->stages, v = s->chunks / P, pairs = 2 * (P - p->stage) - 1 <= P ? v - 1 : v;
    p->mate = ARENA_ARRAY(a, int, s->chunks);
    for (int c = 0; c < s->chunks; c++) {
        int round = c / P, other = pairs - round;
        bool has = s->kind == SCHEDULE_INTERLEAVED && p->frames[c] && other != round && other < v &&
                   other >= 0;
        p->mate[c] = has ? other * P + p->stage : -1;
    }
}

static void number_boxes(const pipeline *p) {
    for (int i = 0; i < p->n; i++) {
        pipeline_event *e = &p->event[i];
        if (e->action == PIPELINE_RECEIVE || e->action == PIPELINE_TAKE)
            e->box %= p->boxes[e->back][e->chunk];
    }
}

static void make(arena *a, arena *scratch, schedule *s, int stage, pipeline *out) {
    /* any times in which a backward is longer than a forward; whole numbers, so that ties are ties */
    static const schedule_times usual = {.work = {1, 2, 1, 1}};
    maker k = {.a = a, .scratch = scratch, .s = s, .out = out};
    *out = (pipeline){.stage = stage,
                      .stages = s->stages,
                      .chunks = s->chunks,
                      .splits = schedule_splits(s->kind)};
    schedule_time(s, &usual);
    out->frames = ARENA_ARRAY(a, int, s->chunks);
    for (int back = 0; back < 2; back++) {
        out->boxes[back] = ARENA_ARRAY(a, int, s->chunks);
        k.begun[back] = ARENA_ARRAY(scratch, int, s->chunks);
        k.taken[back] = ARENA_ARRAY(scratch, int, s->chunks);
    }
    list_transfers(&k);
    receive_early(&k);
    for (int i = 0; i < s->stage[stage].n; i++) emit_pass(&k, &s->stage[stage].item[i]);
    CHECK(k.next == k.n, "stage %d would wait for what nobody takes", stage);
    count_frames(out, scratch);
    find_mates(out, a, s);
    number_boxes(out);
}

/* The schedule of all stages is many times as large as what one stage does. */
status pipeline_build(arena *a, int kind, int stages, int micro_batches, int of_stage, int stage,
                      pipeline *out, err *e) {
    arena *scratch = arena_new("schedule");
    schedule s;
    status st =
        schedule_build(scratch, (schedule_kind)kind, stages, micro_batches, of_stage, &s, e);
    if (st == ST_OK) make(a, scratch, &s, stage, out);
    arena_free(scratch);
    return st;
}

static bool shares(const pipeline *p, int chunk) {
    return p->shares && p->shares[chunk];
}

int pipeline_frame(const pipeline *p, int chunk, int micro_batch) {
    if (!shares(p, chunk)) return micro_batch % p->frames[chunk];
    return (micro_batch + (chunk > p->mate[chunk] ? p->stages : 0)) % (2 * p->stages);
}

int pipeline_ports(const pipeline *p, int chunk) {
    if (!shares(p, chunk)) return p->frames[chunk];
    return p->frames[chunk] > p->stages ? 2 * p->stages : p->stages;
}

int pipeline_stage_of(int kind, int stages, int chunk) {
    schedule s = {.kind = (schedule_kind)kind, .stages = stages};
    return schedule_stage_of(&s, chunk);
}
