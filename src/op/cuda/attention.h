/* What all attention kernels share: arguments, which keys a query sees, dropout, scores.
 *
 * Scores are kept in units of log 2, so that exp is exp2: with s = scale q.k (or the capped score)
 * t = s log2(e), p = 2^(t - m) while the maximum m is not final, and p = 2^(t - lse log2(e)) in
 * backward.
 *
 * Forward: a block takes some queries of one head, or, where there are few queries, those of all
 * heads that share a kv head, which are then "packed": row x is query x % Tq of head x / Tq. */
#ifndef OP_CUDA_ATTENTION_H
#define OP_CUDA_ATTENTION_H

#include "op/cuda/philox.h"
#include "op/cuda/store.h"

typedef struct attention_args {
    mat q, k, v, o, lse, d_o, dq, dk, dv;
    mat start, end, qpos;
    int32_t B, Tq, Tk, H, K, D, Dv;
    float scale, softcap;
    const float *sinks; /* of heads; NULL: none */
    mat bias;           /* [bias_rows, H], by distance; absent: none */
    mat d_bias;
    int32_t bias_rows, bias_zero;
    int32_t window, chunk, causal, by_head;
    int32_t narrow; /* keys and values are f16, whatever STORE is */
    int32_t wide;   /* all rows and heads begin at 16 bytes */
    drawing draw;
    int32_t all_heads, first_head;
    int32_t pack;   /* heads of a row of blocks: 1, or H / K */
    int32_t tiles;  /* blocks of rows; backward of keys: of keys */
    int32_t chunks; /* blocks that share the columns of the result */
    int32_t splits; /* blocks that share the keys */
    int32_t keep;   /* the rows' operands stay in shared memory */
    int32_t add_dq, add_dk, add_dv, add_sinks, add_bias;
    float *d_sinks;
    float *part_o, *part_m; /* splits > 1: [B*H/pack, splits, pack*Tq, Dv], and 2 numbers per row */
    float *part_bias;       /* [slices of queries, bias_rows, H] */
    float *delta;           /* [B*H, Tq]: do . o */
    int32_t *seen;          /* [B, blocks of SEEN queries, 2]: the keys that any of these sees */
} attention_args;

enum { SEEN = 32 };

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

GPU_FN int32_t least(int32_t a, int32_t b) {
    return a < b ? a : b;
}
GPU_FN int32_t most(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* Keys [low, high). */
typedef struct key_range {
    int32_t low, high;
} key_range;

/* What query i of sequence b sees. */
GPU_FN key_range visible(const attention_args *a, int32_t b, int32_t i) {
    key_range r;
    int32_t at = i + (a->qpos.p ? *i32_row_of(a->qpos, b) : 0);
    r.low = a->start.p ? most(*i32_row_of(a->start, (int64_t)b * a->Tq + i), 0) : 0;
    r.high = a->causal ? least(at + 1, a->Tk) : a->Tk;
    if (a->chunk > 0) r.low = most(r.low, at - (at - r.low) % a->chunk);
    if (a->end.p) r.high = least(r.high, *i32_row_of(a->end, (int64_t)b * a->Tq + i));
    if (a->window > 0) r.low = most(r.low, at - a->window + 1);
    r.high = most(r.low, r.high);
    return r;
}

/* A row of head h has met all its keys: the sink, if there is one, joins the maximum and the sum. Returns
 * the factor of what was mixed so far. */
GPU_FN float join_sink(const attention_args *a, int32_t h, float *max, float *sum) {
    if (!a->sinks) return *sum > 0 ? 1 / *sum : 0;
    float sink = a->sinks[h] * LOG2E, to = gpu_max(*max, sink), shrink = fast_exp2(*max - to);
    *sum = *sum * shrink + fast_exp2(sink - to);
    *max = to;
    return shrink / *sum;
}

GPU_FN int32_t warp_least(int32_t v) {
    for (int m = 16; m > 0; m >>= 1) v = least(v, (int32_t)shuffle_xor_u32((uint32_t)v, m));
    return v;
}
GPU_FN int32_t warp_most(int32_t v) {
    for (int m = 16; m > 0; m >>= 1) v = most(v, (int32_t)shuffle_xor_u32((uint32_t)v, m));
    return v;
}

/* The position of query i of sequence b in front of the rows of the bias: key j has row at - j, limited to those. */
GPU_FN int32_t bias_at(const attention_args *a, int32_t b, int32_t i) {
    return i + a->bias_zero + (a->qpos.p ? *i32_row_of(a->qpos, b) : 0);
}
GPU_FN float bias_of(const attention_args *a, int32_t at, int32_t j, int32_t h) {
    return load(row_of(a->bias, most(0, least(at - j, a->bias_rows - 1)))[h]);
}

/* From the score in units of 1, or of the cap, to units of log 2. */
GPU_FN float score_of(const attention_args *a, float qk, float bias) {
    float s = qk * a->scale + bias;
    if (a->softcap > 0) s = a->softcap * tanhf(s / a->softcap);
    return s * LOG2E;
}
/* d score / d (scale q.k), from the score in units of log 2. */
GPU_FN float score_slope(const attention_args *a, float t) {
    if (a->softcap <= 0) return 1;
    float c = t * LN2 / a->softcap;
    return 1 - c * c;
}

/* The number of the row of probabilities of query i and head h, for dropout. */
GPU_FN uint64_t draw_row(const attention_args *a, int32_t b, int32_t h, int32_t i) {
    if (a->draw.scale <= 0) return 0;
    uint64_t sequence = a->draw.run->micro_batch * (uint64_t)a->B + (uint64_t)b;
    uint64_t head = sequence * (uint64_t)a->all_heads + (uint64_t)(a->first_head + h);
    return (head * (uint64_t)a->Tq + (uint64_t)i) * (uint64_t)a->Tk;
}
/* 0, or the factor of what is kept. */
GPU_FN float keep_factor(const attention_args *a, uint64_t row, int32_t j) {
    return draw_factor(&a->draw, draw_key(&a->draw), row + (uint64_t)j);
}

/* Of row x of a block, whose first head is h. */
GPU_FN int32_t query_of(const attention_args *a, int32_t x) {
    return a->pack > 1 ? x % a->Tq : x;
}
GPU_FN int32_t head_of(const attention_args *a, int32_t h, int32_t x) {
    return a->pack > 1 ? h + x / a->Tq : h;
}

/* A head's rows in memory: row x lies at p + x ld. Packed: rows of the next head begin step further on
 * after each `wrap` rows. */
typedef struct strip {
    const STORE *p;
    int64_t ld, step;
    int32_t wrap; /* 0: there is one head */
    int32_t wide, narrow;
} strip;

GPU_FN const STORE *strip_row(const strip *s, int32_t x) {
    if (s->wrap == 0) return s->p + x * s->ld;
    return s->p + x % s->wrap * s->ld + x / s->wrap * s->step;
}

/* Of q, o and do and their gradients, with heads of d columns. */
GPU_FN strip query_strip(const attention_args *a, mat m, int32_t b, int32_t h, int32_t d) {
    strip s = {row_of(m, (int64_t)b * a->Tq) + (int64_t)h * d,
               m.ld,
               d,
               a->pack > 1 ? a->Tq : 0,
               a->wide,
               0};
    return s;
}
/* Of k and v and their gradients. */
GPU_FN strip key_strip(const attention_args *a, mat m, int32_t b, int32_t kv, int32_t d) {
    int64_t row = a->by_head ? ((int64_t)b * a->K + kv) * a->Tk : (int64_t)b * a->Tk;
    int64_t column = a->by_head ? 0 : (int64_t)kv * d;
    int64_t at = row * m.ld + column;
    strip s = {(const STORE *)m.p, m.ld, 0, 0, a->wide && !a->narrow, a->narrow};
    s.p = a->narrow ? (const STORE *)((const uint16_t *)m.p + at) : s.p + at;
    return s;
}

#endif
