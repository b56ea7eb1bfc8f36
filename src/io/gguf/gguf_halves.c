/* Matrices that a file has as two tensors: keys and values of latents (PART_KV_B), and what linear layers make of a token
 * (PART_LINEAR_QKVZ). */
#include <stdio.h>

#include "io/gguf/gguf_config.h"

/* [H (n + v), R]: of each head n rows of keys, then v of values. Those of keys are turned in a file. */
static gguf_halves latent_halves(const attention_layer *a, const param *p) {
    gguf_halves s = {.turned = true, .rank = 3, .cols = a->kv_rank};
    int64_t n = a->D - a->shared;
    s.rows[0] = n, s.rows[1] = a->Dv;
    s.dims[0][0] = n, s.dims[0][1] = a->kv_rank, s.dims[0][2] = a->H;
    s.dims[1][0] = a->kv_rank, s.dims[1][1] = a->Dv, s.dims[1][2] = a->H;
    snprintf(s.name[0], sizeof s.name[0], "blk.%d.attn_k_b.weight", p->layer);
    snprintf(s.name[1], sizeof s.name[1], "blk.%d.attn_v_b.weight", p->layer);
    return s;
}

/* q|k|v of all heads, then z of all heads. */
static gguf_halves linear_halves(const linear_layer *a, const param *p) {
    gguf_halves s = {.rank = 2, .cols = p->cols};
    s.rows[0] = 2 * a->Hk * a->Dk + a->Hv * a->Dv, s.rows[1] = a->Hv * a->Dv;
    for (int i = 0; i < 2; i++) s.dims[i][0] = p->cols, s.dims[i][1] = s.rows[i], s.dims[i][2] = 1;
    snprintf(s.name[0], sizeof s.name[0], "blk.%d.attn_qkv.weight", p->layer);
    snprintf(s.name[1], sizeof s.name[1], "blk.%d.attn_gate.weight", p->layer);
    return s;
}

gguf_halves gguf_halves_of(const model_config *mc, const param *p) {
    layer_spec k = model_layer(mc, p->layer * (int)mc->block_repeat);
    return p->part == PART_KV_B ? latent_halves(&k.attn, p) : linear_halves(&k.linear, p);
}

bool gguf_halves_written(const gguf_arch *arch, const param *p) {
    if (p->part == PART_KV_B) return arch->experts & GGUF_EXPERTS_DEEPSEEK;
    return p->part == PART_LINEAR_QKVZ;
}

void gguf_halves_place(const gguf_halves *s, int which, int64_t i, int64_t j, int64_t *row,
                       int64_t *col) {
    bool turned = s->turned && which == 0;
    int64_t head = i / s->dims[which][1], in = i % s->dims[which][1];
    *row = head * (s->rows[0] + s->rows[1]) + (which ? s->rows[0] : 0) + (turned ? j : in);
    *col = turned ? in : j;
}
