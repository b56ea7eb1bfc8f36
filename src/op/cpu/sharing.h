/* How the result of a product is shared out among threads: in blocks of rows, which each pack rows of A; where there
 * are too few rows for that, in groups of columns, too, each of which packs its rows again. No sum depends on it. */
#ifndef OP_CPU_SHARING_H
#define OP_CPU_SHARING_H

#include "op/cpu/ops.h"
#include "op/cpu/simd.h"

V_INLINE int64_t round_up(int64_t x, int64_t to) {
    return (x + to - 1) / to * to;
}

static inline int product_threads(int threads, int64_t m, int64_t n, int64_t k) {
    return (double)m * (double)n * (double)k < SMALL_PRODUCT ? 1 : threads;
}

/* What a thread packs at a time: whole tiles of `tile` rows, at most `most`, and at least `least` rows where there are
 * as many. */
typedef struct row_limits {
    int64_t tile, most, least;
} row_limits;

typedef struct sharing {
    int64_t m, tile, tiles; /* rows; rows of a tile; tiles */
    int64_t blocks;         /* of rows */
    int64_t panels, groups; /* panels of columns; groups of them */
} sharing;

/* Blocks are a multiple of the threads, and differ by a tile at most, so that the threads end together. */
static inline sharing share_out(int64_t m, int64_t panels, const row_limits *by, int threads) {
    int64_t fewest = (m + by->most - 1) / by->most, most = (m + by->least - 1) / by->least;
    int64_t blocks = round_up(fewest, threads);
    if (blocks > most) blocks = most > fewest ? most : fewest;
    sharing s = {.m = m, .tile = by->tile, .tiles = (m + by->tile - 1) / by->tile};
    s.blocks = blocks < s.tiles ? blocks : s.tiles;
    s.panels = panels, s.groups = 1;
    while (s.blocks * s.groups < threads && s.groups < panels) s.groups++;
    return s;
}

static inline int64_t sharing_tasks(const sharing *s) {
    return s->blocks * s->groups;
}

/* Rows of the largest task, in whole tiles. */
static inline int64_t sharing_rows(const sharing *s) {
    return s->blocks ? (s->tiles + s->blocks - 1) / s->blocks * s->tile : 0;
}

/* A part of the result. */
typedef struct task {
    int64_t row, rows;
    int64_t panel, end; /* panels [panel, end) */
} task;

/* Without rows where there is no such task. */
static inline task task_at(const sharing *s, int64_t i) {
    int64_t block = i / s->groups, group = i % s->groups;
    if (block >= s->blocks) return (task){0};
    int64_t end = s->tiles * (block + 1) / s->blocks * s->tile;
    task t = {.row = s->tiles * block / s->blocks * s->tile};
    t.rows = (end < s->m ? end : s->m) - t.row;
    t.panel = s->panels * group / s->groups, t.end = s->panels * (group + 1) / s->groups;
    return t;
}

#endif
