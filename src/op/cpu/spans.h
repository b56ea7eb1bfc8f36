/* Blocks of the spans of op/vecops.h: which span a block is of, and for how many threads; pieces of
 * a block that lie together in the whole tensor. */
#ifndef OP_CPU_SPANS_H
#define OP_CPU_SPANS_H

#include "op/cpu/simd.h"
#include "op/vecops.h"

typedef struct span_block {
    const vec_span *span;
    int64_t first; /* element of the span */
    int64_t n;
} span_block;

/* By bisection: the last span that begins at or before block b and is not empty. */
static inline span_block span_find_block(const vec_spans *s, int64_t b) {
    int lo = 0, hi = s->n;
    while (hi - lo > 1) {
        int middle = lo + (hi - lo) / 2;
        if (s->item[middle].first_block <= b)
            lo = middle;
        else
            hi = middle;
    }
    const vec_span *p = &s->item[lo];
    int64_t first = (b - p->first_block) * VEC_BLOCK, left = p->n - first;
    return (span_block){p, first, left < VEC_BLOCK ? left : VEC_BLOCK};
}

/* Elements from i on, before end, whose whole indices follow each other. */
typedef struct span_piece {
    int64_t whole; /* index of the first in the whole tensor */
    int64_t n;
} span_piece;

static inline span_piece span_piece_at(const vec_span *s, int64_t i, int64_t end) {
    int64_t left = end - i;
    if (s->run > 0) {
        int64_t in_run = s->run - (s->skip + i) % s->run;
        if (in_run < left) left = in_run;
    }
    return (span_piece){vec_whole_index(s, i), left};
}

/* Waking threads costs more than they save on few elements. */
static inline int span_share(const vec_spans *s, int threads) {
    return s->elems < 4 * VEC_BLOCK ? 1 : threads;
}

#endif
