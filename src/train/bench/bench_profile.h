/* Where the time of a step goes: the ops of the program, grouped by the name of their value without
 * its layer ("mlp.down_proj"), and by pass. Times are means over the measured steps, so that they
 * add up to the step. */
#ifndef TRAIN_BENCH_PROFILE_H
#define TRAIN_BENCH_PROFILE_H

#include <jansson.h>

#include "plan/plan.h"
#include "train/execute.h"

/* An op_profile, or one of the classes below, which are no ops. */
typedef int bench_class;
enum {
    BENCH_OPTIMIZER = OP_PROFILES,
    BENCH_BETWEEN, /* samples, and all time outside of ops */
    BENCH_CLASSES
};

typedef enum bench_pass {
    BENCH_FORWARD,
    BENCH_BACKWARD_INPUT, /* also of ops that make all their gradients at once (OPF_FUSED_BWD) */
    BENCH_BACKWARD_WEIGHT,
    BENCH_RECOMPUTE,
    BENCH_UPDATE,
    BENCH_NO_PASS,
    BENCH_PASSES
} bench_pass;

typedef struct bench_row {
    char name[96];
    bench_class class;
    bench_pass pass;
    int64_t calls; /* in one step; so are the members below */
    double seconds, flops, bytes;
} bench_row;

typedef struct bench_profile {
    bench_row *rows; /* longest first */
    int n;
    int64_t steps;
    double step_s;
    double peak_flops, peak_bandwidth; /* op/peak.h */
} bench_profile;

/* Fills rows from the times of `steps` steps that took total_ns; they live in `a`. */
void bench_profile_fill(bench_profile *out, arena *a, const plan *p, int micro_batches,
                        const step_times *times, int64_t total_ns);

/* What follows the layer's number: "model.layers.3.mlp.down_proj" is "mlp.down_proj"; without one
 * the whole name. */
const char *bench_without_layer(const char *name);
const char *bench_class_name(bench_class c);
const char *bench_pass_name(bench_pass p);
/* How near a row is to a limit of the machine: the larger of FLOP/s / peak_flops and bytes/s /
 * peak_bandwidth. The latter can exceed 1 for data that is in the caches. */
double bench_row_of_limit(const bench_profile *p, const bench_row *r);

/* Shares of the step. matmul, attention and other add up to 1; the head is counted as matmul. */
typedef struct bench_shares {
    double matmul, attention, other;
    double head; /* part of matmul */
} bench_shares;
bench_shares bench_profile_shares(const bench_profile *p);

json_t *bench_profile_json(const bench_profile *p);
/* A table with a line per row, a total, and the shares. */
void bench_profile_describe(const bench_profile *p, strbuf *out);

/* ---- bench_icicle.c ---- */

/* A profile as a picture and as a timeline: the step over its parts (forward, backward, update)
 * over classes of ops over ops, width = time. All calls of an op are drawn as one: the picture
 * shows how much time ops take, not when they run. */

/* One SVG document that needs nothing else, for light and dark pages; the pointer shows details.
 * `title` and `subtitle` stand above it. */
void bench_icicle_write(strbuf *out, const bench_profile *p, const char *title,
                        const char *subtitle);

/* The same as a JSON list of trace events, for https://ui.perfetto.dev or chrome://tracing. */
void bench_timeline_write(strbuf *out, const bench_profile *p, const char *title);

#endif
