/* Positions as biases of attention scores (Raffel et al. 2020, section 2.1): distances fall into buckets, small ones into one each,
 * larger ones into buckets that grow with the logarithm, and each bucket has a learned number for each head. All layers of a stack
 * share them. ATTENTION takes a row for each distance, so the table of buckets is looked up once for a stack. */
#include <math.h>
#include <stdlib.h>

#include "model/parts.h"

/* Distances from -behind (keys behind the query) to `most`. */
typedef struct distances {
    int32_t behind, most, buckets;
} distances;

/* The bucket of a key `d` tokens before the query. Arithmetic in fp32 as in the published code, where a
 * border may be a rounding error away. */
static int32_t bucket_of(const distances *s, int32_t d) {
    int32_t n = s->behind ? s->buckets / 2 : s->buckets, exact = n / 2;
    int32_t base = d < 0 && s->behind ? n : 0;
    d = s->behind ? abs(d) : d > 0 ? d : 0;
    if (d < exact) return base + d;
    float x = logf((float)d / (float)exact) / (float)log((double)s->most / exact);
    int32_t large = exact + (int32_t)(x * (float)(n - exact));
    return base + (large < n ? large : n - 1);
}

static void fill_buckets(void *dst, const void *ctx) {
    const distances *s = ctx;
    for (int32_t d = -s->behind; d <= s->most; d++)
        ((int32_t *)dst)[d + s->behind] = bucket_of(s, d);
}

int model_relative_zero(const model_config *mc, bool encoder) {
    return encoder ? (int)mc->relative_distance : 0;
}

val model_relative(model_rec *r, bool encoder) {
    const model_config *mc = r->mc;
    distances s = {.behind = model_relative_zero(mc, encoder),
                   .most = (int32_t)mc->relative_distance,
                   .buckets = (int32_t)mc->relative_buckets};
    val ids = graph_const(r->g, encoder ? "source_buckets" : "buckets", DT_I32,
                          s.behind + s.most + 1, 1, fill_buckets, &s, sizeof s);
    val table = model_weight(r, encoder ? PART_ENCODER_RELATIVE : PART_RELATIVE, -1);
    val bias = graph_embed(r->g, table, ids, -1);
    graph_name(r->g, bias, encoder ? "encoder.relative_bias" : "relative_bias");
    return bias;
}
