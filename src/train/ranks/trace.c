/* Several threads note spans: the one that trains, and those of the side stream and of NCCL's watch. */
#include "train/ranks/trace.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

enum { ROW_COMPUTE, ROW_SIDE }; /* threads of the timeline */

typedef struct span {
    const char *category, *verb, *name; /* "compute", "forward", "layers.3" */
    int64_t begin_ns, end_ns;
    int64_t step;
    int64_t number; /* a number that follows the words; -1: none */
    int micro_batch, row;
    bool is_pass; /* ops of a micro-batch */
    bool is_comm; /* the two below count */
    comm_kind kind;
    int64_t sent_bytes;
} span;

/* What an op is part of. */
typedef struct label {
    const char *verb, *part;
} label;

/* A program with the label of each of its ops. */
typedef struct labelled {
    const prog *p;
    label *label;
} labelled;

struct trace {
    arena *a; /* of labels */
    peers *p;
    const char *path;
    int64_t first, last, step;
    bool on, done;
    int64_t zero_ns; /* when the timeline begins, by this rank's clock */
    int64_t step_ns, micro_ns;
    int micro_batch;
    labelled *programs;
    int n_programs, cap_programs;
    pthread_mutex_t lock; /* guards what follows */
    span *spans;
    int n, cap;
};

/* ---- one clock ---- */

/* Identifies the running kernel, so that ranks know whether they share a clock. */
static int64_t machine_id(void) {
    char *id;
    size_t len;
    if (file_read_all("/proc/sys/kernel/random/boot_id", &id, &len, NULL) != ST_OK) return 0;
    int64_t hash = (int64_t)hash_bytes(id, len);
    free(id);
    return hash;
}

/* Ranks on the machine of rank 0 take its zero; on others a barrier's end is as near as it gets. */
static void agree_on_zero(trace *t) {
    comm_barrier(t->p->m.axis[MESH_WORLD]);
    int64_t now = clock_now_ns(), machine = machine_id();
    int64_t first_now = peers_first(t->p, now);
    t->zero_ns = peers_first(t->p, machine) == machine ? first_now : now;
}

/* ---- notes ---- */

static void note(trace *t, span s) {
    s.step = t->step;
    pthread_mutex_lock(&t->lock);
    VEC_PUSH(t->spans, t->n, t->cap, s);
    pthread_mutex_unlock(&t->lock);
}

static void note_comm(void *ctx, const comm_event *ev) {
    const char *what = ev->call->what;
    note(ctx, (span){.category = "communication",
                     .verb = what ? what : comm_kind_name(ev->call->kind),
                     .begin_ns = ev->begin_ns,
                     .end_ns = ev->end_ns,
                     .number = -1,
                     .micro_batch = -1,
                     .row = ev->side ? ROW_SIDE : ROW_COMPUTE,
                     .is_comm = true,
                     .kind = ev->call->kind,
                     .sent_bytes = ev->sent_bytes});
}

int64_t trace_now(const trace *t) {
    return t && t->on ? clock_now_ns() : 0;
}

static void note_own(trace *t, int64_t began, const char *category, const char *verb,
                     const char *name, int64_t number, bool is_pass) {
    note(t, (span){.category = category,
                   .verb = verb,
                   .name = name,
                   .begin_ns = began,
                   .end_ns = clock_now_ns(),
                   .number = number,
                   .is_pass = is_pass,
                   .micro_batch = t->micro_batch});
}

void trace_span(trace *t, int64_t began, const char *verb, const char *name) {
    if (!t || !t->on) return;
    note_own(t, began, strcmp(verb, "wait for") == 0 ? "wait" : "compute", verb, name, -1, false);
}

void trace_micro_batch(trace *t, int m) {
    if (!t || !t->on || m == t->micro_batch) return;
    if (t->micro_batch >= 0)
        note_own(t, t->micro_ns, "micro-batch", "micro-batch", NULL, t->micro_batch, false);
    t->micro_batch = m;
    t->micro_ns = clock_now_ns();
}

/* ---- ops ---- */

static const char *part_of(trace *t, const prog_op *op, bool seen_layers) {
    if (op->block >= 0) return arena_printf(t->a, "layers.%d", op->block);
    bool backward = op->phase != PHASE_F;
    if (strcmp(op->name, "embedding") == 0) return "embedding";
    return seen_layers == backward ? "embedding" : "head";
}

/* Ops outside of layers belong to the embedding or the head: a forward pass begins with the
 * embedding, a backward pass with the head. */
static label *label_ops(trace *t, const prog *p) {
    int n = prog_get_stats(p)->ops, later = prog_get_stats(p)->ops_back;
    label *list = ARENA_ARRAY(t->a, label, n);
    op_phase direction = PHASE_F;
    bool seen_layers = false;
    for (int i = 0; i < n; i++) {
        prog_op op = prog_get_op(p, i);
        if ((op.phase == PHASE_F) != (direction == PHASE_F)) seen_layers = false;
        direction = op.phase;
        seen_layers = seen_layers || op.block >= 0;
        const char *verb = op.phase == PHASE_F ? "forward"
                           : i >= later        ? "weight gradients of"
                           : op.recomputed     ? "recompute"
                                               : "backward";
        if (i == later) seen_layers = false;
        const char *part = part_of(t, &op, seen_layers);
        bool same = i > 0 && strcmp(part, list[i - 1].part) == 0;
        list[i] = (label){verb, same ? list[i - 1].part : part};
    }
    return list;
}

static const label *labels_of(trace *t, const prog *p) {
    for (int i = 0; i < t->n_programs; i++)
        if (t->programs[i].p == p) return t->programs[i].label;
    t->programs =
        arena_grow(t->a, t->programs, t->n_programs, &t->cap_programs, sizeof *t->programs);
    t->programs[t->n_programs] = (labelled){p, label_ops(t, p)};
    return t->programs[t->n_programs++].label;
}

int trace_stretch(trace *t, const prog *p, int first, int end) {
    if (!t || !t->on) return end;
    const label *l = labels_of(t, p);
    int i = first + 1;
    while (i < end && l[i].part == l[first].part && l[i].verb == l[first].verb) i++;
    return i;
}

void trace_ops(trace *t, const prog *p, int64_t began, int first) {
    if (!t || !t->on) return;
    const label *l = &labels_of(t, p)[first];
    note_own(t, began, "compute", l->verb, l->part, -1, true);
}

/* ---- steps ---- */

status trace_open(trace **out, const char *path, int64_t first, int64_t last, peers *p, err *e) {
    bool leads = peers_rank(p) == 0;
    TRY(peers_agree(p, leads ? file_write_atomic(path, "[]\n", 3, e) : ST_OK, e));
    trace *t = xcalloc(1, sizeof *t);
    *t = (trace){.a = arena_new("trace"), .p = p, .path = path, .first = first, .last = last};
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return ST_OK;
}

/* A trace is freed inside a step only when the world has failed; then collectives on the side
 * stream return at once. */
static void leave_step(trace *t) {
    comm *world = t->p->m.axis[MESH_WORLD];
    comm_wait(t->p->m.world, comm_start(world, &(comm_call){.kind = COMM_BARRIER, .dt = DT_U8}));
    comm_observe(t->p->m.world, NULL, NULL);
}

void trace_free(trace *t) {
    if (!t) return;
    if (t->on) leave_step(t);
    pthread_mutex_destroy(&t->lock);
    free(t->spans);
    arena_free(t->a);
    free(t);
}

/* The side stream is idle between steps, or comm_observe waits for it: the observer changes there. */
void trace_step_begin(trace *t, int64_t step) {
    if (!t || t->done || step < t->first || step > t->last) return;
    if (t->zero_ns == 0) agree_on_zero(t);
    if (peers_ranks(t->p) > 1) comm_observe(t->p->m.world, note_comm, t);
    t->step = step;
    t->micro_batch = -1;
    t->on = true;
    t->step_ns = clock_now_ns();
}

void trace_step_end(trace *t) {
    if (!t || !t->on) return;
    trace_micro_batch(t, -1);
    note_own(t, t->step_ns, "step", "step", NULL, t->step, false);
    comm_observe(t->p->m.world, NULL, NULL);
    t->on = false;
    t->done = t->step >= t->last;
}

/* ---- the file ---- */

/* A span that encloses others comes before them. */
static int by_time(const void *a, const void *b) {
    const span *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

static void put_quoted(strbuf *b, const char *text) {
    json_t *name = json_text(text, strlen(text));
    json_format(b, name, 0);
    json_decref(name);
}

void trace_put_event(strbuf *b, const trace_event *ev) {
    strbuf_puts(b, ",\n{\"name\": ");
    put_quoted(b, ev->name);
    strbuf_printf(b,
                  ", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, "
                  "\"dur\": %.3f, \"args\": {",
                  ev->category, ev->process, ev->thread, ev->at_us, ev->us);
}

void trace_put_name(strbuf *b, const char *what, int process, int thread, const char *name) {
    strbuf_printf(
        b,
        "{\"name\": \"%s\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": {\"name\": ", what,
        process, thread);
    put_quoted(b, name);
    strbuf_puts(b, "}}");
}

static void put_span(strbuf *b, const trace *t, const span *s) {
    strbuf words = {0};
    strbuf_puts(&words, s->verb);
    if (s->name) strbuf_printf(&words, " %s", s->name);
    if (s->number >= 0) strbuf_printf(&words, " %" PRId64, s->number);
    trace_put_event(b, &(trace_event){.name = strbuf_cstr(&words),
                                      .category = s->category,
                                      .process = peers_rank(t->p),
                                      .thread = s->row,
                                      .at_us = (double)(s->begin_ns - t->zero_ns) / 1e3,
                                      .us = (double)(s->end_ns - s->begin_ns) / 1e3});
    strbuf_free(&words);
    strbuf_printf(b, "\"step\": %" PRId64, s->step);
    if (s->micro_batch >= 0) strbuf_printf(b, ", \"micro_batch\": %d", s->micro_batch);
    if (s->is_comm)
        strbuf_printf(b, ", \"kind\": \"%s\", \"sent_bytes\": %" PRId64, comm_kind_name(s->kind),
                      s->sent_bytes);
    strbuf_puts(b, "}}");
}

static void put_rows(strbuf *b, int rank) {
    static const char *const row[] = {"compute", "side stream"};
    char name[32];
    snprintf(name, sizeof name, "rank %d", rank);
    trace_put_name(b, "process_name", rank, 0, name);
    for (int i = 0; i < ARRAY_LEN(row); i++) {
        strbuf_puts(b, ",\n");
        trace_put_name(b, "thread_name", rank, i, row[i]);
    }
}

static void put_rank(strbuf *b, trace *t) {
    if (t->n) qsort(t->spans, (size_t)t->n, sizeof *t->spans, by_time);
    put_rows(b, peers_rank(t->p));
    for (int i = 0; i < t->n; i++) put_span(b, t, &t->spans[i]);
}

/* Brings the notes of rank `from` to rank 0, which appends them. */
static void bring(trace *t, int from, const strbuf *own, strbuf *all) {
    comm *world = t->p->m.axis[MESH_WORLD];
    bool mine = peers_rank(t->p) == from;
    int64_t bytes = mine ? (int64_t)own->len : 0;
    comm_broadcast(world, &bytes, sizeof bytes, from);
    if (bytes <= 0) return; /* the world has failed */
    char *text = mine ? own->data : xmalloc((size_t)bytes);
    comm_broadcast(world, text, bytes, from);
    if (peers_rank(t->p) == 0) {
        if (from > 0) strbuf_puts(all, ",\n");
        strbuf_append(all, text, (size_t)bytes);
    }
    if (!mine) free(text);
}

static void write_file(const trace *t, strbuf *all) {
    err e = {0};
    strbuf_puts(all, "]\n");
    if (file_write_atomic(t->path, all->data, all->len, &e) != ST_OK)
        log_warn("no trace: %s", e.message);
    else
        log_info("trace of steps %" PRId64 " to %" PRId64 ": %s", t->first, t->step, t->path);
}

/* Of a step: the time from the first pass of any stage to the last, and how much of it this rank was
 * in passes. */
static void measure_step(trace *t, int64_t step, int64_t *all_ns, int64_t *busy_ns) {
    int ranks = peers_ranks(t->p), own = peers_rank(t->p);
    int64_t *at = xcalloc((size_t)ranks * 2, sizeof *at), *begin = at, *end = at + ranks;
    begin[own] = INT64_MAX;
    for (int i = 0; i < t->n; i++) {
        const span *s = &t->spans[i];
        if (!s->is_pass || s->step != step) continue;
        *busy_ns += s->end_ns - s->begin_ns;
        if (s->begin_ns - t->zero_ns < begin[own]) begin[own] = s->begin_ns - t->zero_ns;
        if (s->end_ns - t->zero_ns > end[own]) end[own] = s->end_ns - t->zero_ns;
    }
    peers_share_count(t->p, begin);
    peers_share_count(t->p, end);
    for (int r = 1; r < ranks; r++) {
        if (begin[r] < begin[0]) begin[0] = begin[r];
        if (end[r] > end[0]) end[0] = end[r];
    }
    *all_ns += end[0] - begin[0];
    free(at);
}

/* The bubble of a pipeline, as it was. */
static void tell_idle(trace *t) {
    int ranks = peers_ranks(t->p);
    if (t->p->m.size[MESH_PP] == 1) return;
    int64_t all_ns = 0, *busy = xcalloc((size_t)ranks, sizeof *busy), sum = 0;
    for (int64_t step = t->first; step <= t->step; step++)
        measure_step(t, step, &all_ns, &busy[peers_rank(t->p)]);
    peers_share_count(t->p, busy);
    for (int r = 0; r < ranks; r++) sum += busy[r];
    free(busy);
    if (peers_rank(t->p) == 0 && all_ns > 0)
        log_info("stages waited %.1f %% of the time of these passes (athanor plan schedule: what "
                 "equal stages would)",
                 100 - 100 * (double)sum / (double)ranks / (double)all_ns);
}

void trace_write(trace *t, bool now) {
    if (!t || !t->n || !(t->done || now)) return;
    strbuf own = {0}, all = {0};
    strbuf_puts(&all, "[");
    put_rank(&own, t);
    for (int r = 0; r < peers_ranks(t->p); r++) bring(t, r, &own, &all);
    if (peers_rank(t->p) == 0 && comm_check(t->p->m.world, NULL) == ST_OK) write_file(t, &all);
    tell_idle(t);
    strbuf_free(&own);
    strbuf_free(&all);
    t->n = 0;
    t->done = true;
}
