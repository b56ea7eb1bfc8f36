/* What the start does to whole arrays: initial values and the rounded copies of parameters. */
#include "op/cpu/vecops_impl.h"

#include "op/cpu/normal.h"
#include "op/cpu/spans.h"

/* rng_fill_normal from an even element on. */
static void fill_normal(rng_key key, int64_t first, float *x, int64_t n, double std) {
    int64_t i = 0;
#if V_NORMALS
    double scale = std * 0x1p-24;
    for (; i + NORMALS <= n; i += NORMALS) normals_store(key, (uint64_t)(first + i), scale, x + i);
#endif
    rng_fill_normal(key, (uint64_t)(first + i), x + i, n - i, std);
}

static void round_some(const float *x, uint16_t *out, int64_t n) {
    int64_t i = 0;
    for (; i + VW <= n; i += VW) v_store_bf16(out + i, v_load(x + i));
    for (; i < n; i++) out[i] = f32_to_bf16(x[i]);
}

void CPU_FN(vec_draw)(int threads, const vec_spans *s, const vec_rule *rule, float *x,
                      uint16_t *x_bf16) {
#pragma omp parallel for num_threads(span_share(s, threads)) schedule(static)
    for (int64_t b = 0; b < s->blocks; b++) {
        span_block k = span_find_block(s, b);
        const vec_rule *r = &rule[k.index];
        int64_t at = k.span->at + k.first;
        if (r->normal)
            fill_normal(r->key, k.first, x + at, k.n, r->std);
        else
            for (int64_t i = 0; i < k.n; i++) x[at + i] = r->value;
        if (r->normal && r->cut > 0)
            rng_cut_normal(r->key, (uint64_t)k.first, x + at, k.n, r->std, r->cut);
        if (x_bf16 && k.span->copied) round_some(x + at, x_bf16 + at, k.n);
    }
}

void CPU_FN(vec_round)(int threads, const vec_spans *s, const float *x, uint16_t *x_bf16) {
#pragma omp parallel for num_threads(span_share(s, threads)) schedule(static)
    for (int64_t b = 0; b < s->blocks; b++) {
        span_block k = span_find_block(s, b);
        int64_t at = k.span->at + k.first;
        if (k.span->copied) round_some(x + at, x_bf16 + at, k.n);
    }
}
