/* What forward and backward attention share: which keys a block of queries sees, masks, dropout,
 * the exponential, pairs.
 *
 * Scores are kept transposed, S^T [keys, queries]: a block of ATT_Q queries lies in the lanes, so
 * maximum, sum and exponential run down the keys without any horizontal step, and S^T is at once
 * the left operand of O = P V, dQ = dS K (a column of queries at a time) and dV = P^T dO, dK = dS^T
 * Q (a row of keys at a time). Scores are in units of log 2; with softcap the products make its
 * argument s / c, and a pass over the block makes of it the score c tanh(s / c).
 *
 * Where the machine multiplies bf16 pairs, P and dS are rounded to bf16 for the products they
 * enter; scores and sums stay f32. */
#ifndef OP_CPU_ATTENTION_H
#define OP_CPU_ATTENTION_H

#include <math.h>
#include <omp.h>

#include "op/cpu/ahead.h"
#include "op/cpu/attention_amx.h"
#include "op/cpu/attention_bias.h"
#include "op/cpu/draws.h"
#include "op/cpu/vmath.h"

#define ATT_LOG2E 1.4426950409f
#define ATT_LN2 0.6931471806f

/* Of `threads`, those that a call with these attributes uses. */
V_INLINE int att_threads(const op_attr *a, int threads) {
    int64_t pairs = (int64_t)a->attention.B * a->attention.H * a->attention.Tq * a->attention.Tk;
    return pairs * (a->attention.D + a->attention.Dv) < SMALL_PRODUCT ? 1 : threads;
}

/* Where keys and values of a sequence begin for a kv head: a row, and a head in its columns. */
typedef struct att_place {
    int64_t row, head;
} att_place;

V_INLINE att_place att_place_of(const op_attr *at, int64_t b, int64_t kv) {
    int64_t Tk = at->attention.Tk, K = at->attention.K;
    return at->attention.by_head ? (att_place){(b * K + kv) * Tk, 0} : (att_place){b * Tk, kv};
}

/* The keys that each query of a block sees, [low, high) per lane. Lanes without a query see what
 * the last query sees. */
typedef struct att_view {
    int64_t b, q0, rows; /* sequence, first query, queries that exist (<= ATT_Q) */
    int32_t low[ATT_Q], high[ATT_Q];
    int64_t first, end; /* union over the lanes that see any key; first is a multiple of ATT_STEP */
    int64_t all_first, all_end;      /* keys that every lane sees */
    int64_t tile_end[ATT_Q / ATT_R]; /* end of the union over ATT_R queries */
    int64_t vec_end[ATT_NV];         /* the same over a vector */
    int vecs;                        /* vectors that hold queries */
} att_view;

V_INLINE int64_t att_query_position(const op_call *c, int64_t b, int64_t i) {
    const tensor *qpos = &c->in[4];
    return i + (qpos->data ? ((const int32_t *)qpos->data)[b * qpos->ld] : 0);
}

/* Adds lane i, which sees [low, high), to the unions. */
V_INLINE void att_look_lane(att_view *v, int64_t i, int64_t low, int64_t high) {
    if (low < high) {
        v->first = att_min(v->first, low);
        v->end = att_max(v->end, high);
        v->tile_end[i / ATT_R] = att_max(v->tile_end[i / ATT_R], high);
        v->vec_end[i / VW] = att_max(v->vec_end[i / VW], high);
    }
    v->all_first = att_max(v->all_first, low);
    v->all_end = att_min(v->all_end, high);
    v->low[i] = (int32_t)low, v->high[i] = (int32_t)high;
}

V_INLINE att_view att_look(const op_call *c, int64_t b, int64_t q0) {
    const op_attr *at = c->attr;
    const tensor *start = &c->in[3], *end = &c->in[5];
    int64_t Tq = at->attention.Tq, Tk = at->attention.Tk, window = at->attention.window;
    int64_t chunk = at->attention.chunk;
    att_view v = {.b = b, .q0 = q0, .first = Tk, .all_end = Tk};
    v.rows = att_min(Tq - q0, ATT_Q);
    v.vecs = att_vectors(v.rows);
    int64_t low = 0, high = 0;
    for (int64_t i = 0; i < ATT_Q; i++) {
        if (i < v.rows) {
            int64_t p = att_query_position(c, b, q0 + i);
            low = start->data ? ((const int32_t *)start->data)[(b * Tq + q0 + i) * start->ld] : 0;
            if (low < 0) low = 0;
            if (chunk > 0) low = att_max(low, p - (p - low) % chunk);
            if (window > 0) low = att_max(low, p - window + 1);
            high = at->attention.causal ? att_min(p + 1, Tk) : Tk;
            if (end->data)
                high = att_min(high, ((const int32_t *)end->data)[(b * Tq + q0 + i) * end->ld]);
            high = att_max(high, low);
        }
        att_look_lane(&v, i, low, high);
    }
    v.first = v.first / ATT_STEP * ATT_STEP;
    return v;
}

/* What a task computes: query heads [h0, h1) of a kv head of sequence b, queries [q0, q1). */
typedef struct att_task {
    int64_t b, kv, h0, h1, q0, q1;
} att_task;

/* Takes a task of those that are left; beyond the last: none is. */
V_INLINE int64_t att_take(int64_t *taken) {
    int64_t t;
#pragma omp atomic capture
    t = (*taken)++;
    return t;
}

/* Takes the next task while one is computed, so that it can be fetched. The last ones are left to whoever is
 * free first: INT64_MAX then. */
V_INLINE int64_t att_take_early(int64_t *taken, int64_t tasks) {
    int64_t t;
#pragma omp atomic read
    t = *taken;
    return t + omp_get_num_threads() < tasks ? att_take(taken) : INT64_MAX;
}

V_INLINE int64_t att_task_blocks(const att_task *t) {
    return (t->q1 - t->q0 + ATT_Q - 1) / ATT_Q * (t->h1 - t->h0);
}

/* The number of the block at q0 for head h. */
V_INLINE int64_t att_task_block(const att_task *t, int64_t q0, int64_t h) {
    return (q0 - t->q0) / ATT_Q * (t->h1 - t->h0) + h - t->h0;
}

/* The block of queries and the head after head h of the block at q0; no rows: there is none. */
typedef struct att_block {
    int64_t row, rows, h;
} att_block;

V_INLINE att_block att_next(const op_call *c, const att_task *task, const att_task *next,
                            int64_t q0, int64_t h) {
    int64_t Tq = c->attr->attention.Tq;
    const att_task *t = task;
    if (h + 1 < t->h1) {
        h++;
    } else if (q0 + ATT_Q < t->q1) {
        q0 += ATT_Q, h = t->h0;
    } else {
        t = next, q0 = t->q0, h = t->h0;
    }
    return (att_block){t->b * Tq + q0, att_min(t->q1 - q0, ATT_Q), h};
}

/* What is fetched while a block is computed, a few lines with each tile: all at once they would wait for each
 * other. Heads lie far apart, so that the machine does not foresee their rows. */
enum { ATT_FETCHES = 8 };
typedef struct att_fetch {
    ahead of[ATT_FETCHES];
    int n, now;    /* one after the other */
    int64_t lines; /* of all */
    int64_t each;  /* lines at a time */
} att_fetch;

/* Rows that are soon packed or written. */
V_INLINE void att_fetch_rows(att_fetch *f, const tensor *t, int64_t row, int64_t col, int64_t rows,
                             int64_t cols) {
    int64_t bytes = v_element_bytes(t->dt);
    if (!t->data || rows <= 0) return;
    f->of[f->n] = ahead_of(att_at(t, row, col), rows, cols * bytes, t->ld * bytes, 1);
    f->lines += f->of[f->n++].each;
}

/* Share `part` of `parts` of the rows. */
V_INLINE void att_fetch_share(att_fetch *f, const tensor *t, int64_t row, int64_t col, int64_t rows,
                              int64_t cols, int64_t part, int64_t parts) {
    int64_t from = rows * part / parts, to = rows * (part + 1) / parts;
    att_fetch_rows(f, t, row + from, col, to - from, cols);
}

/* From now on all of it in `times` steps. */
V_INLINE void att_fetch_in(att_fetch *f, int64_t times) {
    f->each = (f->lines + times - 1) / att_max(times, 1);
    for (int i = 0; i < f->n; i++) f->of[i].each = f->each;
}

V_INLINE void att_fetch_step(att_fetch *f) {
    if (f->now < f->n && !ahead_fetch(&f->of[f->now])) f->now++;
}

/* Vectors before the first that sees key j or a later one. */
V_INLINE int att_skip(const att_view *v, int64_t j) {
    int q = 0;
    while (q < v->vecs - 1 && v->vec_end[q] <= j) q++;
    return q;
}

/* Keys [j0, j0 + n) are hidden from some lane before the first and from the second number on. */
V_INLINE void att_border(const att_view *v, int64_t j0, int64_t n, int64_t border[2]) {
    border[0] = att_min(att_max(v->all_first - j0, 0), n);
    border[1] = att_min(att_max(v->all_end - j0, border[0]), n);
}

V_INLINE vi att_sees(const att_view *v, int q, int64_t key) {
    vi j = v_set1_i((int32_t)key);
    return (j >= v_load_i(v->low + q * VW)) & (j < v_load_i(v->high + q * VW));
}

/* Keys that a block of scores has room for: fewer than ATT_KEYS where sequences are short. */
static inline int64_t att_block_keys(const op_attr *at) {
    return att_min(att_round(at->attention.Tk, ATT_STEP), ATT_KEYS);
}

/* What products of queries and keys are scaled with. */
V_INLINE float att_score_scale(const op_attr *at) {
    float cap = at->attention.softcap;
    return cap > 0.0f ? at->attention.scale / cap : at->attention.scale * ATT_LOG2E;
}

/* What the bias is scaled with, to be added to such products. */
V_INLINE float att_bias_scale(const op_attr *at) {
    return at->attention.softcap > 0.0f ? 1.0f / at->attention.softcap : ATT_LOG2E;
}

/* s = s scale + the bias of a head, of keys [j0, j0 + n). */
V_INLINE void att_add_bias(const op_call *c, const att_view *v, const float *line, float *s,
                           int64_t j0, int64_t n, float scale) {
    int64_t first = att_query_position(c, v->b, v->q0);
    for (int64_t j = 0; j < n; j++)
        for (int q = 0; q < ATT_NV; q++, s += VW)
            v_store(s, v_load(s) * scale + v_load(line + att_line_at(c, first + q * VW, j0 + j)));
}

/* Bias (line: of the head, or NULL) and softcap of the scores of keys [j0, j0 + n); those of vectors that
 * were skipped do not matter. Tiles do not scale what they multiply: returns what is left to be multiplied
 * with, 1 or a positive number. */
V_INLINE float att_cap_scores(const op_call *c, const att_view *v, const float *line, float *s,
                              int64_t j0, int64_t n) {
    const op_attr *at = c->attr;
    float cap = at->attention.softcap * ATT_LOG2E, scale = V_AMX ? att_score_scale(at) : 1.0f;
    if (line) {
        att_add_bias(c, v, line, s, j0, n, scale);
        scale = 1.0f;
    }
    if (cap > 0.0f)
        for (int64_t i = 0; i < n * ATT_Q; i += VW)
            v_store(s + i, cap * v_tanh(V_AMX ? scale * v_load(s + i) : v_load(s + i)));
    else if (scale > 0.0f)
        return scale;
    else
        for (int64_t i = 0; i < n * ATT_Q; i += VW) v_store(s + i, scale * v_load(s + i));
    return 1.0f;
}

/* s * scale - shift; only behind tiles is there another scale than 1. */
V_INLINE vf att_shift_score(const float *s, float scale, vf shift) {
    return V_AMX ? v_fma(v_load(s), v_set1(scale), -shift) : v_load(s) - shift;
}

/* factors [n keys, ATT_Q]: keep/(1-p). */
static inline void att_draw(const op_call *c, const att_view *v, int64_t h, float *factors,
                            int64_t j0, int64_t n) {
    const op_attr *at = c->attr;
    float scale = dropout_scale(at->attention.dropout), drawn[ATT_KEYS];
    dropout_draw draw = dropout_open(c->run, at->attention.dropout, at->attention.stream);
    for (int64_t i = 0; i < v->rows; i++) {
        uint64_t counter = dropout_query_counter(c, v->b, h, v->q0 + i) + (uint64_t)j0;
        draw_factors(&draw, scale, counter, n, drawn);
        for (int64_t j = 0; j < n; j++) factors[j * ATT_Q + i] = drawn[j];
    }
    for (int64_t i = v->rows; i < ATT_Q; i++)
        for (int64_t j = 0; j < n; j++) factors[j * ATT_Q + i] = 0.0f;
}

/* 2^r with a relative error of 2e-7, or 3e-6 where the result is rounded to bf16 anyway; r in
 * [0, 1) with AVX-512, else in [-1/2, 1/2]. */
V_INLINE vf att_exp2_poly(vf r, bool rough) {
#if V_AVX512
    vf p = v_set1(rough ? 1.342668441e-2f : 1.867130208e-3f);
    if (!rough) p = v_fma(p, r, v_set1(9.017029981e-3f));
    p = rough ? p : v_fma(p, r, v_set1(5.57999134e-2f));
    p = v_fma(p, r, v_set1(rough ? 5.224247391e-2f : 2.401644501e-1f));
    p = v_fma(p, r, v_set1(rough ? 2.41280205e-1f : 6.931513118e-1f));
    if (rough) p = v_fma(p, r, v_set1(6.930448449e-1f));
#else
    vf p = v_set1(rough ? 9.582852994e-3f : 1.326472708e-3f);
    if (!rough) p = v_fma(p, r, v_set1(9.671512649e-3f));
    p = rough ? p : v_fma(p, r, v_set1(5.550733744e-2f));
    p = v_fma(p, r, v_set1(rough ? 5.590642474e-2f : 2.402224209e-1f));
    p = v_fma(p, r, v_set1(rough ? 2.402409861e-1f : 6.931469776e-1f));
    if (rough) p = v_fma(p, r, v_set1(6.931241934e-1f));
#endif
    return v_fma(p, r, v_set1(1.0f));
}

/* 2^x for x <= 0 (or hardly more); 0 below 2^-126 and at -inf; NaN stays NaN. */
V_INLINE vf att_exp2(vf x, bool rough) {
#if V_AVX512
    vf r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __mmask16 normal = _mm512_cmp_ps_mask(x, v_set1(-126.0f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(normal, att_exp2_poly(r, rough), x);
#else
    const float magic = 12583039.0f; /* 1.5 * 2^23 + 127: the sum ends in the exponent of 2^n */
    vf shifted = x + magic, r = x - (shifted - magic);
    vf y = att_exp2_poly(r, rough) * (vf)((vi)shifted << 23);
    return (vf)((vi)y & ~(x < v_set1(-126.0f)));
#endif
}

#if V_DOT_BF16
/* Two rows of ATT_Q queries, each rounded to bf16 in the order of the queries. */
V_INLINE __m512i att_round_row(vf first, vf second) {
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}
/* What att_round_row made of two keys, as pairs of keys. */
V_INLINE void att_pair_keys(float *pairs, __m512i key, __m512i next) {
    static const uint16_t order[64] = {
        0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
        11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
        22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
    __m512i low = _mm512_loadu_si512(order), high = _mm512_loadu_si512(order + 32);
    _mm512_storeu_si512(pairs, _mm512_permutex2var_epi16(key, low, next));
    _mm512_storeu_si512(pairs + VW, _mm512_permutex2var_epi16(key, high, next));
}
#endif

#endif
