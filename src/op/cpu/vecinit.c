/* What the start does to whole arrays: initial values and the rounded copies of parameters. */
#include "op/cpu/parts.h"

#include "op/cpu/normal.h"
#include "op/cpu/spans.h"

/* rng_fill_normal. */
static void fill_normal(rng_key key, int64_t first, float *x, int64_t n, double std) {
    int64_t i = 0;
#if V_NORMALS
    double scale = std * 0x1p-24;
    if (n > 0 && (first & 1)) {
        rng_fill_normal(key, (uint64_t)first, x, 1, std);
        i = 1;
    }
    for (; i + NORMALS <= n; i += NORMALS) normals_store(key, (uint64_t)(first + i), scale, x + i);
#endif
    rng_fill_normal(key, (uint64_t)(first + i), x + i, n - i, std);
}

V_INLINE void round_as(const float *x, uint16_t *out, int64_t n, dtype dt) {
    int64_t i = 0;
    for (; i + VW <= n; i += VW) v_store_16(out + i, v_load(x + i), dt);
    if (i < n) v_put_n(out, i, v_get_n(x, i, n - i, DT_F32), n - i, dt);
}

static void round_some(const float *x, uint16_t *out, int64_t n, dtype dt) {
    dt == DT_F16 ? round_as(x, out, n, DT_F16) : round_as(x, out, n, DT_BF16);
}

/* x[0..n), of which the first has index `first` in the whole tensor. */
static void draw_piece(const vec_rule *r, int64_t first, float *x, int64_t n) {
    for (int64_t i = 0; r->uniform && i < n; i++)
        x[i] = r->value + r->bound * (2.0f * rng_uniform(r->key, (uint64_t)(first + i)) - 1.0f);
    if (r->uniform) return;
    fill_normal(r->key, first, x, n, r->std);
    if (r->cut > 0) rng_cut_normal(r->key, (uint64_t)first, x, n, r->std, r->cut);
}

static void draw_block(const vec_rule *r, span_block b, float *x) {
    int64_t end = b.first + b.n;
    if (!r->normal && !r->uniform) {
        for (int64_t i = 0; i < b.n; i++) x[b.span->at + b.first + i] = r->value;
        return;
    }
    for (int64_t i = b.first; i < end;) {
        span_piece p = span_piece_at(b.span, i, end);
        draw_piece(r, p.whole, x + b.span->at + i, p.n);
        i += p.n;
    }
}

void CPU_FN(vec_draw)(int threads, const vec_spans *s, const vec_rule *rule, float *x,
                      uint16_t *copy) {
#pragma omp parallel for num_threads(span_share(s, threads)) schedule(static)
    for (int64_t b = 0; b < s->blocks; b++) {
        span_block k = span_find_block(s, b);
        int64_t at = k.span->at + k.first;
        draw_block(&rule[k.span->owner], k, x);
        if (copy && k.span->copy_dt != DT_F32) round_some(x + at, copy + at, k.n, k.span->copy_dt);
    }
}

void CPU_FN(vec_round)(int threads, const vec_spans *s, const float *x, uint16_t *copy) {
#pragma omp parallel for num_threads(span_share(s, threads)) schedule(static)
    for (int64_t b = 0; b < s->blocks; b++) {
        span_block k = span_find_block(s, b);
        int64_t at = k.span->at + k.first;
        if (k.span->copy_dt != DT_F32) round_some(x + at, copy + at, k.n, k.span->copy_dt);
    }
}
