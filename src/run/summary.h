/* A run in one line: the numbers of `athanor runs`. */
#ifndef RUN_SUMMARY_H
#define RUN_SUMMARY_H

#include <jansson.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct run_summary {
    const char *name, *path;
    const char *state;      /* new, training, stopped, finished, failed */
    int64_t params;         /* -1: not known */
    int64_t steps;          /* done */
    int64_t planned_steps;  /* -1: not known */
    int64_t tokens;         /* seen in training, -1: not known */
    double last_loss;       /* NaN: none */
    double best_val_loss;   /* NaN: none */
    int64_t best_val_step;  /* -1: none */
    double val_loss;        /* the last one; NaN: none */
    double val_bpb;         /* the last one; NaN: none */
    double tok_per_s;       /* of the last step; NaN: none */
    int64_t peak_rss_bytes; /* -1: not known */
    int64_t alarms;         /* how many */
} run_summary;

/* Reads config and metrics of one run. The strings live in the arena. */
status run_summarize(arena *a, const char *path, run_summary *out, err *e) ATH_MUST_USE;
/* {"name", "path", "state", ...}; what is not known is null. */
json_t *run_summary_json(const run_summary *s);
/* Sets "alarms" and "stages" of an object: the events of these kinds, in order. */
status run_add_record(json_t *record, const char *path, err *e) ATH_MUST_USE;
/* The runs that are direct children of a folder, by name. */
status run_find_all(arena *a, const char *folder, run_summary **out, int *n, err *e) ATH_MUST_USE;

#endif
