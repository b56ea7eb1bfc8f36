#include "model/blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void block_declare_linear(param_store *s, const char *prefix, int64_t out, int64_t in, bool bias,
                          double std, bool transposed) {
    char name[320];
    snprintf(name, sizeof name, "%s.weight", prefix);
    param_add(s, &(param){.name = name,
                          .rows = out,
                          .cols = in,
                          .rank = 2,
                          .transposed = transposed,
                          .init = INIT_NORMAL,
                          .init_std = std});
    if (!bias) return;
    snprintf(name, sizeof name, "%s.bias", prefix);
    param_add(s, &(param){.name = name, .rows = 1, .cols = out, .rank = 1, .init = INIT_ZEROS});
}

void block_declare_table(param_store *s, const char *prefix, int64_t rows, int64_t width,
                         double std) {
    char name[320];
    snprintf(name, sizeof name, "%s.weight", prefix);
    param_add(s, &(param){.name = name,
                          .rows = rows,
                          .cols = width,
                          .rank = 2,
                          .table = true,
                          .init = INIT_NORMAL,
                          .init_std = std});
}

void block_declare_norm(param_store *s, const char *prefix, int64_t width, bool bias) {
    char name[320];
    snprintf(name, sizeof name, "%s.weight", prefix);
    param_add(s, &(param){.name = name, .rows = 1, .cols = width, .rank = 1, .init = INIT_ONES});
    if (!bias) return;
    snprintf(name, sizeof name, "%s.bias", prefix);
    param_add(s, &(param){.name = name, .rows = 1, .cols = width, .rank = 1, .init = INIT_ZEROS});
}

void block_declare_packed(param_store *s, const char *prefix, const char *pack,
                          const block_part *parts, int n, int64_t in, bool bias, double std) {
    char name[256];
    snprintf(name, sizeof name, "%s.%s.weight", prefix, pack);
    param_pack_begin(s, name);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s.%s_proj", prefix, parts[i].name);
        block_declare_linear(s, name, parts[i].width, in, false, std, false);
    }
    param_pack_end(s);
    if (!bias) return;
    snprintf(name, sizeof name, "%s.%s.bias", prefix, pack);
    param_pack_begin(s, name);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s.%s_proj.bias", prefix, parts[i].name);
        param_add(
            s, &(param){
                   .name = name, .rows = 1, .cols = parts[i].width, .rank = 1, .init = INIT_ZEROS});
    }
    param_pack_end(s);
}

val block_linear(model_rec *r, const char *prefix, val x) {
    val w = model_param(r, "%s.weight", prefix), b = model_param(r, "%s.bias", prefix);
    val y = graph_linear(r->g, x, w, b);
    graph_name(r->g, y, "%s", prefix);
    return y;
}

/* Keys, then values, of each layer: [B*Tmax, K*D] each. */
static val cached(model_rec *r, int layer, int which, val fresh) {
    const model_config *mc = r->mc;
    dtype dt = graph_get_options(r->g)->dt;
    int64_t rows = (int64_t)r->B * r->Tmax, cols = mc->num_key_value_heads * mc->head_dim;
    int64_t bytes = rows * cols * (int64_t)dtype_bytes(dt);
    char name[32];
    snprintf(name, sizeof name, "cache.%d.%c", layer, which ? 'v' : 'k');
    val cache = graph_state(r->g, name, dt, rows, cols, (2 * layer + which) * bytes);
    return graph_kv_store(r->g, cache, fresh, r->qpos, r->B, r->T, r->Tmax);
}

val block_attention(model_rec *r, int layer, val qkv, float dropout) {
    const model_config *mc = r->mc;
    int64_t D = mc->head_dim, H = mc->num_attention_heads, K = mc->num_key_value_heads;
    val q = graph_view(r->g, qkv, 0, H * D);
    val k = graph_view(r->g, qkv, H * D, K * D);
    val v = graph_view(r->g, qkv, (H + K) * D, K * D);
    int Tk = r->T;
    if (r->Tmax > 0) {
        k = cached(r, layer, 0, k);
        v = cached(r, layer, 1, v);
        Tk = r->Tmax;
    }
    graph_attention_spec spec = {.B = r->B,
                                 .Tq = r->T,
                                 .Tk = Tk,
                                 .H = (int)H,
                                 .K = (int)K,
                                 .D = (int)D,
                                 .Dv = (int)D,
                                 .scale = (float)(1.0 / sqrt((double)D)),
                                 .dropout = dropout,
                                 .causal = true};
    val o = graph_attention(r->g, &spec, q, k, v, r->start, r->qpos);
    graph_name(r->g, o, "layers.%d.attention", layer);
    return o;
}

/* Blend of a frequency and its scaled value (Llama 3.1: wavelengths longer than the original
 * context are divided by factor, short ones kept, between them a linear ramp). */
static double llama3_frequency(const rope_scaling *s, double freq) {
    double wavelength = 2.0 * M_PI / freq, ctx = (double)s->original_max_position_embeddings;
    if (wavelength < ctx / s->high_freq_factor) return freq;
    if (wavelength > ctx / s->low_freq_factor) return freq / s->factor;
    double smooth =
        (ctx / wavelength - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1.0 - smooth) * freq / s->factor + smooth * freq;
}

void block_rope_frequencies(const model_config *mc, int rotary_dim, double *out) {
    for (int i = 0; i < rotary_dim / 2; i++) {
        double freq = pow(mc->rope_theta, -2.0 * i / rotary_dim);
        if (mc->rope.kind == ROPE_LINEAR) freq /= mc->rope.factor;
        if (mc->rope.kind == ROPE_LLAMA3) freq = llama3_frequency(&mc->rope, freq);
        out[i] = freq;
    }
}

typedef struct rope_fill {
    int64_t rows;
    int rotary_dim;
    dtype dt;
    double freq[512];
} rope_fill;

static void fill_rope_table(void *dst, const void *ctx) {
    const rope_fill *f = ctx;
    int half = f->rotary_dim / 2;
    for (int64_t p = 0; p < f->rows; p++)
        for (int i = 0; i < half; i++) {
            double angle = (double)p * f->freq[i], c = cos(angle), s = sin(angle);
            int64_t at = p * f->rotary_dim + i;
            if (f->dt == DT_F64) {
                ((double *)dst)[at] = c;
                ((double *)dst)[at + half] = s;
            } else {
                ((float *)dst)[at] = (float)c;
                ((float *)dst)[at + half] = (float)s;
            }
        }
}

val block_rope_table(model_rec *r, int64_t rows) {
    dtype dt = graph_get_options(r->g)->dt == DT_F64 ? DT_F64 : DT_F32;
    rope_fill f = {.rows = rows, .rotary_dim = (int)r->mc->head_dim, .dt = dt};
    block_rope_frequencies(r->mc, f.rotary_dim, f.freq);
    return graph_const(r->g, "rope_table", dt, rows, f.rotary_dim, fill_rope_table, &f, sizeof f);
}
