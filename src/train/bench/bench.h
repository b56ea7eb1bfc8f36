/* Measures training steps: the plan, step table and programs of `train` on random ids. No data, run
 * folder or weights are opened; a tokenizer only if it gives the size of the vocabulary.
 *
 * Reading order: this file, bench.c (one step), bench_profile.h (where its time goes, also
 * as a picture). bench_gemm.h measures matrix products alone. */
#ifndef TRAIN_BENCH_H
#define TRAIN_BENCH_H

#include "comm/comm.h"
#include "dev/dev.h"
#include "run/config/config.h"
#include "train/bench/bench_profile.h"

typedef struct bench bench;

/* What is known before the first step. */
typedef struct bench_facts {
    const char *isa, *precision;
    const char *device;     /* "cpu" */
    char gpu[DEV_NAME_MAX]; /* "": none */
    bool emulated;
    int threads;
    int64_t params, tok_per_step;
    int micro_batches;
    int64_t planned_peak_bytes, activation_bytes; /* kept for backward */
    double model_flops, hardware_flops;           /* of a step */
    double peak_flops; /* FLOP/s of the machine in this precision: op/peak.h */
} bench_facts;

typedef struct bench_step {
    int64_t step; /* from 1 */
    int64_t ns;
    double tok_per_s, mfu, hfu, loss;
} bench_step;

/* Trims the config, plans, reserves memory and initialises weights from the seed. `c` must outlive
 * the bench. The learning rate stays at optim.lr. world: the ranks that train together; NULL:
 * alone.
 */
status bench_open(bench **out, config *c, comm_world *world, err *e) ATH_MUST_USE;
/* The x of rank 0, on all ranks. */
bool bench_agree(const bench *b, bool x);
void bench_close(bench *b);
const bench_facts *bench_get_facts(const bench *b);

/* One optimizer step. ST_NONFINITE when there was no update. */
status bench_run_step(bench *b, bench_step *out, err *e) ATH_MUST_USE;

/* Summary of n > 0 steps; mfu and hfu are those of the median step. */
typedef struct bench_summary {
    double tok_per_s, tok_per_s_min, tok_per_s_max, step_ms, mfu, hfu, loss; /* loss: the last */
    int64_t peak_rss_bytes;                                                  /* now */
} bench_summary;
bench_summary bench_summarize(const bench *b, const bench_step *steps, int n);

/* From here on the time of every op is measured. */
void bench_start_profile(bench *b);
/* Or: the time of every op alone, run again and again, after a step. For one rank. */
void bench_time_ops(bench *b);
/* The profile of the steps since bench_start_profile. It also measures the bandwidth of memory,
 * with an array of its own. The rows live as long as the bench. */
status bench_get_profile(bench *b, bench_profile *out, err *e) ATH_MUST_USE;

#endif
