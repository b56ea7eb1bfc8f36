/* Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1; MLA). Keys and values of a token are made of
 * one short vector, the latent c [R]; positions are in a part of the key that all heads share.
 *
 *   q_h = [q_h^C | rope(q_h^R)]       of x, or of a latent of its own
 *   c = norm(x W_A), k^R = rope(x W_R)        W_A and W_R are one matrix, PART_KV_A
 *   k_h = [c W_UK,h | k^R], v_h = c W_UV,h    W_UK and W_UV are one matrix, PART_KV_B, head by head
 *
 * Two forms of one function:
 *   expanded   as written, with H keys and values of a token; where programs have no cache
 *   absorbed   where they have one: q_h . k_h = [q_h^C W_UK,h^T | q_h^R] . [c | k^R], and the weighted sum of
 *              values is that of latents times W_UV,h. So the cache has [c | k^R] alone, R + 64 numbers of a
 *              token in the published models, as keys of one head, and values are their first R columns.
 *
 * Reading order: model_latent_attention at the end. */
#include "model/parts.h"

/* The norms of latents have weights and this epsilon, whatever the model's norms have: as in
 * transformers (DeepseekV3RMSNorm, MiniCPM3RMSNorm). */
static const float LATENT_EPS = 1e-6f;

static val latent_norm(model_rec *r, const layer_spec *k, model_part part, val x) {
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, part, k->stored, name);
    val y = graph_rmsnorm(r->g, x, model_named(r, name, ".weight"), LATENT_EPS, false, 0);
    graph_name(r->g, y, "%s", name);
    return y;
}

/* The last columns of each head of `width`. */
static val rotate(model_rec *r, const attention_layer *a, val x, int64_t heads, int64_t width) {
    if (!a->rotary) return x;
    return graph_rope(r->g, x, r->pos, r->rope[a->local], (int)heads, (int)width,
                      (int)(width - a->shared), (int)a->shared, a->interleaved);
}

static val queries(model_rec *r, const layer_spec *k, val x) {
    const attention_layer *a = &k->attn;
    if (!a->q_rank) return rotate(r, a, model_product(r, PART_Q, k->stored, x), a->H, a->D);
    val latent = latent_norm(r, k, PART_Q_A_NORM, model_product(r, PART_Q_A, k->stored, x));
    return rotate(r, a, model_product(r, PART_Q_B, k->stored, latent), a->H, a->D);
}

static val expanded(model_rec *r, const layer_spec *k, val q, val latent, val shared) {
    const attention_layer *a = &k->attn;
    op_heads heads = {.heads = (int)a->H, .D = (int)(a->D - a->shared), .Dv = (int)a->Dv};
    val kv = model_product(r, PART_KV_B, k->stored, latent);
    val both = graph_latent_kv(r->g, &heads, kv, shared);
    val keys = graph_view(r->g, both, 0, a->H * a->D);
    val values = graph_view(r->g, both, a->H * a->D, a->H * a->Dv);
    return model_attend(r, k, q, keys, values);
}

/* ---- absorbed ---- */

/* x times W_UK or W_UV of each head, and what adapters of PART_KV_B add to these: two products by
 * their narrow matrices. */
static val absorb(model_rec *r, const layer_spec *k, op_heads spec, val x) {
    op_heads narrow = spec, wide = spec;
    val a, b, y = graph_headwise(r->g, &spec, x, model_weight(r, PART_KV_B, k->stored));
    if (!model_adapters_of(r, PART_KV_B, k->stored, &a, &b)) return y;
    narrow.out = wide.in = r->adapters->rank;
    narrow.zero = true; /* the tail is in y */
    op_heads *by_a = spec.turned ? &wide : &narrow;
    by_a->step = by_a->first = 0;
    val more = graph_headwise(r->g, &narrow, x, spec.turned ? b : a);
    more = graph_headwise(r->g, &wide, more, spec.turned ? a : b);
    return graph_add(r->g, y, graph_scale(r->g, more, (float)model_adapters_scale(r->adapters)));
}

static val page_attention(model_rec *r, int l, const attention_layer *one, val q, val key,
                          val sinks) {
    op_paged spec = model_paged_spec(r, one);
    key = model_page_cached(r, l, 'k', 1, one->D, key);
    return graph_page_attention(r->g, &spec, q, key, VAL_NONE, r->pages, r->place, sinks);
}

static val sequence_attention(model_rec *r, int l, const attention_layer *one, val q, val key,
                              val sinks) {
    op_attention spec = model_attention_spec(r, one);
    key = model_cached(r, l, 'k', 1, one->D, key);
    val values = graph_view(r->g, key, 0, one->Dv);
    graph_seen seen = GRAPH_SEES_ALL;
    seen.start = r->start, seen.qpos = r->qpos, seen.sinks = sinks;
    return graph_attention(r->g, &spec, q, key, values, &seen);
}

static val absorbed(model_rec *r, int l, const layer_spec *k, val q, val latent, val shared) {
    const attention_layer *a = &k->attn;
    int own = (int)(a->D - a->shared), R = (int)a->kv_rank;
    op_heads up = {.heads = (int)a->H, .step = own + (int)a->Dv};
    op_heads to_latent = up, of_latent = up, join = {.heads = 1, .D = R};
    to_latent.in = own, to_latent.out = R, to_latent.tail = (int)a->shared, to_latent.turned = true;
    of_latent.in = R, of_latent.out = (int)a->Dv, of_latent.first = own;
    attention_layer one = *a; /* one key for all heads: the latent and what they share */
    one.K = 1, one.D = R + a->shared, one.Dv = R;
    q = absorb(r, k, to_latent, q);
    val key = graph_latent_kv(r->g, &join, latent, shared);
    val sinks = model_sinks(r, k);
    val o = r->paged.page ? page_attention(r, l, &one, q, key, sinks)
                          : sequence_attention(r, l, &one, q, key, sinks);
    return absorb(r, k, of_latent, o);
}

val model_latent_attention(model_rec *r, int l, const layer_spec *k, val x) {
    const attention_layer *a = &k->attn;
    val q = queries(r, k, x);
    val both = model_product(r, PART_KV_A, k->stored, x);
    both = rotate(r, a, both, 1, a->kv_rank + a->shared);
    val latent = latent_norm(r, k, PART_KV_A_NORM, graph_view(r->g, both, 0, a->kv_rank));
    val shared = graph_view(r->g, both, a->kv_rank, a->shared);
    bool cached = r->Tmax > 0 || r->paged.page;
    return cached ? absorbed(r, l, k, q, latent, shared) : expanded(r, k, q, latent, shared);
}
