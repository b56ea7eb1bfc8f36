/* Measured rows of published tables, and how near the clock comes to them: `athanor plan validate` and `plan fit`.
 *
 * A row is a layout of a model with its tokens a second, or with the bubble of its schedule alone. Columns are found by name: those of the playbook's benchmarks, of
 * tables of throughput, of the zero-bubble paper. Rows that cannot be reckoned are counted, not guessed: schedules that there
 * are not, models without sizes.
 *
 * Rows are predicted by sketches (sketch.h) of a cluster and a runtime. Fitting changes the numbers of these two, of which
 * there are a dozen for a whole file, and none for a row. */
#ifndef PLAN_MEASURED_H
#define PLAN_MEASURED_H

#include "plan/clock/sketch.h"

typedef struct measured_row {
    int sketch; /* number in rows.sketch */
    sketch_layout layout;
    int nodes, gpus, line;
    bool fp8;  /* products of 8 bits */
    bool fp32; /* else 16 bits */
    /* No tokens are told: tok_per_s_gpu and predicted are the share of the time in which stages work. */
    bool only_bubble;
    int device;
    int whose;             /* run it was, as its source says */
    bool flash;            /* of 2023 or later: with FlashAttention */
    double batch;          /* sequences of a step, as published */
    int cell;              /* model and nodes: what is held out, and in which a layout is chosen */
    bool ok;               /* else it has failed */
    bool stalls;           /* ZeRO-0 beside a pipeline over nodes: never fitted, reported apart */
    double tok_per_s_gpu;  /* measured; 0: none */
    double measured_bytes; /* 0: unknown */
    double predicted, memory_bytes;
    double fill; /* of a device's memory, that its runtime can use */
} measured_row;

/* Rows that cannot be reckoned, for the same reason. */
typedef struct measured_refusal {
    int line, rows; /* the first of them, and how many */
    const char *why;
} measured_refusal;

struct measured_model;

typedef struct measured_rows {
    arena *a;
    measured_row *row;
    int n, cap;
    int all; /* rows of the file */
    sketch *sketch;
    int n_sketches, cap_sketches;
    json_t *sketch_key; /* model and key -> number */
    json_t *cell_key;
    json_t *refused_key; /* why -> number */
    measured_refusal *refused;
    int n_refused, cap_refused;
    char unknown[64]; /* the first device of which nothing is known; its rows are not used */
    cluster c;        /* one node of the devices of the first row, and of most files */
    cluster *device;  /* [n_devices] of all rows */
    int n_devices;
} measured_rows;

/* Reads a file. c: the devices; NULL: those that the rows name, h100 where they name none. ST_FORMAT: no column says what was
 * measured. */
status measured_read(measured_rows *out, const char *path, const cluster *c, err *e) ATH_MUST_USE;
/* The same from its text. Also after a failure: measured_free. */
status measured_parse(measured_rows *out, const char *path, const char *text, size_t n,
                      const cluster *c, err *e) ATH_MUST_USE;
void measured_free(measured_rows *r);

/* Fills predicted and memory_bytes of all rows. The model's cluster is that of the first row's devices. */
void measured_predict(measured_rows *r, const struct measured_model *m);

/* The same, each row by the runtime of the program that its source names. */
void measured_predict_published(measured_rows *r);

/* Of a cell: the layout that is predicted to be the fastest, the one that was, and what the first loses, as a share. */
typedef struct measured_regret {
    const measured_row *chosen, *best;
    double lost;
} measured_regret;

typedef struct measured_score {
    int rows, used;
    double median, median_stalls; /* absolute relative error of tokens a second */
    double spearman;              /* of the bests for each (tp, pp, zero) of a cell, the median */
    measured_regret *regret;      /* [cells], as long as the rows */
    int cells, regret_5,
        regret_10; /* cells, and those in which the layout that is chosen loses at most 5 or 10 % */
    double kept_success, rejected_fail;
    /* Of successful rows that tell their memory: squared correlation (NaN: it is the same in all), and predicted over measured. */
    int memory_rows;
    double memory_r2, memory_ratio;
} measured_score;
measured_score measured_judge(const measured_rows *r);

/* A cluster and a runtime: what rows are predicted by, and what is fitted. */
typedef struct measured_model {
    cluster c;
    runtime t;
} measured_model;
/* This program's runtime on the cluster. */
measured_model measured_plain(const cluster *c);
/* "athanor", or the runtime of another program as it was fitted to published rows: "nanotron-0.5", "megatron", "torchtitan", "megatron-core". ST_USAGE:
 * there is no such runtime. */
status measured_as(measured_model *out, const char *name, const cluster *c, err *e) ATH_MUST_USE;
/* Changes m so that the error of the rows becomes smaller, without those of cell `without` (-1: with all). */
void measured_fit(measured_rows *r, measured_model *m, int without);
/* Where a fit begins. */
measured_model measured_start(const cluster *c);

/* The file of a fit. ST_FORMAT: it is none. */
json_t *measured_json(const measured_model *m);
status measured_load(measured_model *out, const char *path, err *e) ATH_MUST_USE;

#endif
