/* The attention branch of a layer with the gated delta rule (Yang et al. 2024, "Gated Delta Networks"; Qwen3-Next).
 *
 *   q|k|v|z = x W,  b|a = x W'                 q, k, v = silu(conv(q|k|v)); q and k get length 1
 *   beta, g = gates(b|a)                       o = delta(q, k, v, beta, g)
 *   y = (rmsnorm of each head of o) silu(z) W_out
 *
 * With a cache, a sequence has a state of fixed size: the last rows that went into the convolution, and S of all heads. Where a
 * program takes rows of any sequences (pages), there is one for each of those that run at a time. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "model/parts.h"

/* Added to the square of a length before the root. */
#define LENGTH_EPS 1e-6

static int64_t conv_columns(const linear_layer *a) {
    return 2 * a->Hk * a->Dk + a->Hv * a->Dv;
}

static val weight_of(model_rec *r, model_part part, int l, const char *suffix) {
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, part, l, name);
    return model_named(r, name, suffix);
}

static int sequences(const model_rec *r) {
    return r->paged.page ? r->paged.seqs : r->B;
}

/* The layer's state of one kind: `rows` for each sequence. */
static val state_of(model_rec *r, int l, const char *what, dtype dt, int64_t rows, int64_t cols) {
    int64_t slots = r->slots ? r->slots : sequences(r);
    char name[32];
    snprintf(name, sizeof name, "cache.%d.%s", l, what);
    val state = graph_state(r->g, name, dt, sequences(r) * rows, cols, r->cache_bytes);
    r->cache_bytes += slots * rows * cols * (int64_t)dtype_bytes(dt);
    return state;
}

static val convolve(model_rec *r, int l, const layer_spec *k, val x) {
    const linear_layer *a = &k->linear;
    val w = weight_of(r, PART_LINEAR_CONV, k->stored, ".weight");
    int taps = (int)a->taps;
    if (r->span == VAL_NONE) return graph_conv(r->g, r->B, r->T, taps, x, w, r->start);
    val state = state_of(r, l, "conv", graph_get_options(r->g)->dt, taps - 1, conv_columns(a));
    return graph_conv_state(r->g, sequences(r), r->T, taps, state, x, w, r->span);
}

static val walk(model_rec *r, int l, const linear_layer *a, val qk, val v, val gates) {
    double key_scale = 1 / sqrt((double)a->Dk); /* from mean square 1 to length 1 */
    op_delta d = {.B = sequences(r),
                  .T = r->T,
                  .Hk = (int)a->Hk,
                  .Hv = (int)a->Hv,
                  .Dk = (int)a->Dk,
                  .Dv = (int)a->Dv,
                  .q_scale = (float)(key_scale * key_scale),
                  .k_scale = (float)key_scale};
    if (r->span == VAL_NONE) return graph_delta(r->g, &d, qk, v, gates, r->start);
    dtype dt = graph_get_options(r->g)->dt == DT_F64 ? DT_F64 : DT_F32;
    val state = state_of(r, l, "delta", dt, a->Hv * a->Dk, a->Dv);
    return graph_delta_state(r->g, &d, state, qk, v, gates, r->span);
}

void model_linear_state_parts(const linear_layer *a, dtype dt, int64_t bytes[2]) {
    bytes[0] = (a->taps - 1) * conv_columns(a) * (int64_t)dtype_bytes(dt);
    bytes[1] = a->Hv * a->Dk * a->Dv * (int64_t)dtype_bytes(dt == DT_F64 ? DT_F64 : DT_F32);
}

/* Rows that pad a sequence have o = 0. Without any eps they would be NaN, and attention multiplies the
 * values of keys that nobody sees by 0. */
static float norm_eps(const model_rec *r) {
    return fmaxf((float)r->mc->norm_eps, FLT_MIN);
}

val model_linear_attention(model_rec *r, int l, const layer_spec *k, val x) {
    const linear_layer *a = &k->linear;
    int64_t keys = 2 * a->Hk * a->Dk, values = a->Hv * a->Dv;
    val in = model_product(r, PART_LINEAR_QKVZ, k->stored, x);
    val ba = model_product(r, PART_LINEAR_BA, k->stored, x);
    val mixed = convolve(r, l, k, graph_view(r->g, in, 0, keys + values));
    val qk = graph_rmsnorm(r->g, graph_view(r->g, mixed, 0, keys), VAL_NONE,
                           (float)(LENGTH_EPS / (double)a->Dk), false, (int)a->Dk);
    val gates = graph_delta_gates(r->g, ba, weight_of(r, PART_LINEAR_A_LOG, k->stored, ""),
                                  weight_of(r, PART_LINEAR_DT_BIAS, k->stored, ""));
    val o = walk(r, l, a, qk, graph_view(r->g, mixed, keys, values), gates);
    graph_name(r->g, o, "layers.%d.delta", l);
    o = graph_rmsnorm(r->g, o, weight_of(r, PART_LINEAR_NORM, k->stored, ".weight"), norm_eps(r),
                      false, (int)a->Dv);
    o = graph_gated(r->g, graph_view(r->g, in, keys + values, values), o, ACT_SILU);
    return model_out_product(r, PART_LINEAR_OUT, k->stored, o);
}
