/* A timeline of a few steps, for https://ui.perfetto.dev or chrome://tracing: what every rank
 * computes, what it waits for, and the collectives beside that (docs/tracing.md).
 *
 * Without --trace, the trace is NULL, and every call returns at once. Between trace_step_begin and
 * trace_step_end of a wanted step, each rank notes spans in memory. After the last wanted step,
 * rank 0 collects the spans of all ranks and writes the file. */
#ifndef TRAIN_TRACE_H
#define TRAIN_TRACE_H

#include "prog/prog.h"
#include "train/ranks/peers.h"

typedef struct trace trace;

/* Steps first .. last of the run go to the file `path`, which rank 0 makes at once: if it
 * cannot be written, the error comes before the first step. All ranks call this. `path` must stay
 * alive. */
status trace_open(trace **out, const char *path, int64_t first, int64_t last, peers *p,
                  err *e) ATH_MUST_USE;
void trace_free(trace *t);

void trace_step_begin(trace *t, int64_t step);
void trace_step_end(trace *t);

/* The time now, for the beginning of a span; 0 if nothing is noted now. */
int64_t trace_now(const trace *t);
/* A span of this rank's computation, from `began` until now: "wait for weights of lm_head". The
 * words must stay alive; name may be NULL. */
void trace_span(trace *t, int64_t began, const char *verb, const char *name);
/* Micro-batch m begins, and the one before it ends; -1: none begins. */
void trace_micro_batch(trace *t, int m);

/* Ops first .. end - 1 of a program are cut into stretches: each is of one layer, or of one part
 * outside of the layers, and of one direction. Returns the end of the first stretch. */
int trace_stretch(trace *t, const prog *p, int first, int end);
/* Notes the span of a stretch, from `began` until now, with a name made from its first op. */
void trace_ops(trace *t, const prog *p, int64_t began, int first);

/* ---- the form of the file, also for other timelines ---- */

typedef struct trace_event {
    const char *name, *category;
    int process, thread;
    double at_us, us; /* begin and length */
} trace_event;
/* Appends ",\n" and an event up to the inside of its "args": the caller adds members and "}}". */
void trace_put_event(strbuf *b, const trace_event *ev);
/* Appends the name of a process ("process_name") or a thread ("thread_name"), without a comma. */
void trace_put_name(strbuf *b, const char *what, int process, int thread, const char *name);

/* Joins what the ranks have noted and writes the file, if the last wanted step is over; with `now`
 * even if not. Nothing is noted afterwards. All ranks call this. If it fails, rank 0 only warns: a
 * trace must not end a run. */
void trace_write(trace *t, bool now);

#endif
