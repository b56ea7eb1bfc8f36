/* What forward and backward attention share: which keys a block of queries sees, masks, dropout,
 * the exponential, pairs.
 *
 * Scores are kept transposed, S^T [keys, queries]: a block of ATT_Q queries lies in the lanes, so
 * maximum, sum and exponential run down the keys without any horizontal step, and S^T is at once
 * the left operand of O = P V, dQ = dS K (a column of queries at a time) and dV = P^T dO, dK = dS^T
 * Q (a row of keys at a time). Tiles do not scale scores: what reads them multiplies them, which
 * makes them units of log 2. With softcap c, or with a bias, a pass over the block does it first,
 * and makes c tanh(s / c) of them.
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
 * the last query sees; vectors without one see nothing. */
typedef struct att_view {
    int64_t b, q0, rows; /* sequence, first query, queries that exist (<= ATT_Q) */
    int vecs;            /* vectors that hold queries */
    int32_t low[ATT_Q], high[ATT_Q];
    /* Union over the lanes that see any key; first is a multiple of ATT_PANEL. */
    int64_t first, end;
    int64_t reach[ATT_NV]; /* end of the union over the lanes of a vector and of those before it */
    int64_t all_first[ATT_NV], all_end[ATT_NV]; /* keys that every lane of a vector sees */
} att_view;

typedef struct att_span {
    int64_t low, high;
} att_span;

V_INLINE int64_t att_query_position(const op_call *c, int64_t b, int64_t i) {
    const tensor *qpos = &c->in[4];
    return i + (qpos->data ? ((const int32_t *)qpos->data)[b * qpos->ld] : 0);
}

/* The keys that query i of sequence b sees. */
V_INLINE att_span att_seen(const op_call *c, int64_t b, int64_t i) {
    const op_attr *at = c->attr;
    const tensor *start = &c->in[3], *end = &c->in[5];
    int64_t Tq = at->attention.Tq, Tk = at->attention.Tk, window = at->attention.window;
    int64_t chunk = at->attention.chunk, p = att_query_position(c, b, i);
    int64_t low = start->data ? ((const int32_t *)start->data)[(b * Tq + i) * start->ld] : 0;
    int64_t high = at->attention.causal ? att_min(p + 1, Tk) : Tk;
    low = att_max(low, 0);
    if (chunk > 0) low = att_max(low, p - (p - low) % chunk);
    if (window > 0) low = att_max(low, p - window + 1);
    if (end->data) high = att_min(high, ((const int32_t *)end->data)[(b * Tq + i) * end->ld]);
    return (att_span){low, att_max(high, low)};
}

/* What the lanes of vector q see. */
V_INLINE void att_look_vector(att_view *v, int q) {
    int64_t low = 0, high = INT32_MAX, reach = q > 0 ? v->reach[q - 1] : 0;
    for (int i = q * VW; i < (q + 1) * VW; i++) {
        low = att_max(low, v->low[i]), high = att_min(high, v->high[i]);
        if (v->low[i] >= v->high[i]) continue;
        v->first = att_min(v->first, v->low[i]);
        reach = att_max(reach, v->high[i]);
    }
    v->all_first[q] = low, v->all_end[q] = high, v->reach[q] = reach;
    v->end = reach;
}

V_INLINE att_view att_look(const op_call *c, int64_t b, int64_t q0) {
    int64_t Tq = c->attr->attention.Tq;
    att_view v = {.b = b, .q0 = q0, .first = c->attr->attention.Tk};
    v.rows = att_min(Tq - q0, ATT_Q);
    v.vecs = att_vectors(v.rows);
    att_span s = {0};
    for (int64_t i = 0; i < v.vecs * VW; i++) {
        if (i < v.rows) s = att_seen(c, b, q0 + i);
        v.low[i] = (int32_t)s.low, v.high[i] = (int32_t)s.high;
    }
    for (int q = 0; q < v.vecs; q++) att_look_vector(&v, q);
    v.first = v.first / ATT_PANEL * ATT_PANEL;
    return v;
}

/* End of the union over n queries from lane i on. */
V_INLINE int64_t att_end(const att_view *v, int64_t i, int64_t n) {
    int64_t end = 0;
    for (n += i; i < n; i++)
        if (v->low[i] < v->high[i]) end = att_max(end, v->high[i]);
    return end;
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
    while (q < v->vecs - 1 && v->reach[q] <= j) q++;
    return q;
}

/* Of n keys, the first `keys` are those that some vectors take part in: whole panels, and with tiles all. They are
 * hidden from some lane of these before number `from`, and from number `to` on. */
typedef struct att_border {
    int64_t keys, from, to;
} att_border;

/* Vectors [q, q + vectors) and keys [j0, j0 + n). */
V_INLINE att_border att_border_of(const att_view *v, int q, int vectors, int64_t j0, int64_t n) {
    int64_t reach = 0, first = 0, end = INT64_MAX;
    for (int i = q; i < q + vectors; i++) {
        reach = att_max(reach, v->reach[i]);
        first = att_max(first, v->all_first[i]);
        end = att_min(end, v->all_end[i]);
    }
    int64_t keys = V_AMX ? n : att_min(n, att_round(att_max(reach - j0, 0), ATT_PANEL));
    int64_t from = att_min(att_max(first - j0, 0), keys);
    return (att_border){keys, from, att_min(att_max(end - j0, from), keys)};
}

V_INLINE vi att_sees(const att_view *v, int q, int64_t key) {
    vi j = v_set1_i((int32_t)key);
    return (j >= v_load_i(v->low + q * VW)) & (j < v_load_i(v->high + q * VW));
}

/* s [ATT_PANEL keys, ATT_Q] of the keys from row j of a packed left operand on; key is the number of the first. */
V_INLINE void att_score_panel(const att_view *v, att_fetch *f, const float *left, int64_t width,
                              int64_t j, const float *right, float *s, int64_t key) {
#if V_AMX
    (void)v, (void)key;
    att_fetch_step(f);
    amx_scores(left, j, width, right, s, ATT_PANEL);
#else
    int64_t units = att_units(width);
    int skip = att_skip(v, key), nv = v->vecs - skip;
    for (int r = 0, rows; r < ATT_PANEL; r += rows) {
        rows = att_rows(r, nv);
        att_fetch_step(f);
        att_scores(units, left + j * units + r, right + skip * VW, s + r * ATT_Q + skip * VW, rows,
                   nv);
    }
#endif
}

#if !V_AMX
/* x [ATT_Q queries, nv vectors of the width] (+)= A B over keys [j0, j0 + n), each tile of queries as far as it sees:
 * A [keys, ATT_Q], B a panel of the rows of these keys. */
V_INLINE void att_mix_panel(const att_view *v, int64_t j0, int64_t n, const float *a,
                            const float *b, float *x, int64_t ldx, bool add, int nv) {
    for (int64_t i = 0; i < v->rows; i += ATT_PANEL) {
        for (int r = 0, rows; r < ATT_PANEL; r += rows) {
            rows = att_rows(r, nv);
            int64_t keys = att_min(att_max(att_end(v, i + r, rows) - j0, 0), n);
            if (keys > 0 || !add)
                att_mix(att_units(keys), a + i + r, b, x + (i + r) * ldx, ldx, add, rows, nv);
        }
    }
}
#endif

/* Keys that a block of scores has room for: fewer than ATT_KEYS where sequences are short. */
static inline int64_t att_block_keys(const op_attr *at) {
    return att_min(att_round(at->attention.Tk, ATT_PANEL), ATT_KEYS);
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
    for (int64_t j = 0; j < n; j++, s += ATT_Q)
        for (int q = 0; q < v->vecs; q++)
            v_store(s + q * VW, v_load(s + q * VW) * scale +
                                    v_load(line + att_line_at(c, first + q * VW, j0 + j)));
}

/* Bias (line: of the head, or NULL) and softcap of the scores of keys [j0, j0 + n); those of vectors that
 * were skipped do not matter. Tiles do not scale what they multiply: returns what is left to be multiplied
 * with, 1 or a positive number. */
V_INLINE float att_cap_scores(const op_call *c, const att_view *v, const float *line, float *s,
                              int64_t j0, int64_t n) {
    const op_attr *at = c->attr;
    float cap = at->attention.softcap * ATT_LOG2E, scale = att_score_scale(at);
    if (line) {
        att_add_bias(c, v, line, s, j0, n, scale);
        scale = 1.0f;
    }
    if (cap > 0.0f)
        for (int64_t j = 0; j < n; j++, s += ATT_Q)
            for (int i = 0; i < v->vecs * VW; i += VW)
                v_store(s + i, cap * v_tanh(scale * v_load(s + i)));
    else if (scale > 0.0f)
        return scale;
    else
        for (int64_t i = 0; i < n * ATT_Q; i += VW) v_store(s + i, scale * v_load(s + i));
    return 1.0f;
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
/* Two vectors rounded to bf16, one behind the other. */
V_INLINE __m512i att_round_two(vf first, vf second) {
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}
/* A vector of two keys rounded to bf16, as pairs of keys. */
V_INLINE __m512i att_pair(vf key, vf next) {
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), att_round_two(key, next));
}
#endif

#endif
