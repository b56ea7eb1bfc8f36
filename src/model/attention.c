/* The attention branch of a layer.
 *
 * Reading order: model_attention; project, place, page_attention or sequence_attention; model_cross_attention.
 * latent_attention.c is another kind; context.c attends where ranks share tokens. */
#include <stdio.h>

#include "model/parts.h"

/* Queries, keys and values: columns of one product, or three products. */
typedef struct qkv_vals {
    val all; /* VAL_NONE: q, k and v are values of their own */
    val q, k, v;
    val gate; /* VAL_NONE: there is none */
} qkv_vals;

static void split_qkv(model_rec *r, const attention_layer *a, qkv_vals *p) {
    int64_t HD = a->H * a->D, KD = a->K * a->D;
    int64_t QD = a->gate ? 2 * HD : HD;
    p->q = graph_view(r->g, p->all, 0, HD);
    if (a->gate) p->gate = graph_view(r->g, p->all, HD, HD);
    p->k = graph_view(r->g, p->all, QD, KD);
    p->v = graph_view(r->g, p->all, QD + KD, KD);
}

static qkv_vals project(model_rec *r, const layer_spec *k, val x) {
    char name[MODEL_NAME_BYTES];
    int64_t HD = k->attn.H * k->attn.D;
    qkv_vals p = {.all = model_product(r, PART_QKV, k->stored, x), .gate = VAL_NONE};
    if (p.all == VAL_NONE && !graph_failed(r->g)) {
        model_pack_name(r->mc, PART_Q, k->stored, "qkv_proj", name);
        p.all = model_named_product(r, name, x);
    }
    if (p.all != VAL_NONE) return p;
    p.q = model_product(r, PART_Q, k->stored, x);
    p.k = model_product(r, PART_K, k->stored, x);
    p.v = model_product(r, PART_V, k->stored, x);
    if (!k->attn.gate) return p;
    p.gate = graph_view(r->g, p.q, HD, HD);
    p.q = graph_view(r->g, p.q, 0, HD);
    return p;
}

static val positions_of(const model_rec *r, const attention_layer *a) {
    return a->causal ? r->pos : r->source.pos;
}

static val rotate(model_rec *r, const attention_layer *a, val x, val table, int64_t heads) {
    rope_spec s = model_rope(r->mc, a->local);
    return graph_rope(r->g, x, positions_of(r, a), table, (int)heads, (int)a->D, 0, s.rotary_dim,
                      a->interleaved);
}

/* Norm of each head, and rotation, in one op. */
static val norm_and_rotate(model_rec *r, const layer_spec *k, model_part part, val x, val table) {
    const attention_layer *a = &k->attn;
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, part, k->stored, name);
    val w = *name ? model_named(r, name, ".weight") : VAL_NONE;
    val y = graph_norm_rope(r->g, x, w, (float)r->mc->norm_eps, model_norm_offset(r->mc),
                            positions_of(r, a), table, (int)a->D, 0,
                            model_rope(r->mc, a->local).rotary_dim, a->interleaved);
    graph_name(r->g, y, "%s", name);
    return y;
}

static bool norms_with_rotation(const model_rec *r, const attention_layer *a) {
    return a->qk_norm == QK_NORM_HEAD && r->mc->norm == NORM_RMS && a->rotary && a->clip <= 0;
}

/* Norm of queries or keys, of which `copies` successive ranks have the same. */
static val norm_heads(model_rec *r, const layer_spec *k, model_part part, val x, int copies) {
    const model_config *mc = r->mc;
    if (k->attn.qk_norm == QK_NORM_HEAD) return model_norm(r, part, k->stored, x, k->attn.D);
    if (graph_tp(r->g) == 1) return model_norm(r, part, k->stored, x, 0);
    int64_t all = graph_cols(r->g, x) * graph_tp(r->g) / copies;
    char name[MODEL_NAME_BYTES];
    model_part_name(mc, part, k->stored, name);
    val w = model_named(r, name, ".weight"), b = model_named(r, name, ".bias");
    float eps = (float)mc->norm_eps;
    val y = mc->norm == NORM_RMS
                ? graph_rmsnorm_ranks(r->g, x, w, eps, model_norm_offset(mc), all, copies)
                : graph_layernorm_ranks(r->g, x, w, b, eps, all, copies);
    graph_name(r->g, y, "%s", name);
    return y;
}

/* Norm of q and k, limits of all three, rotary positions of q and k. Where no norm stands between the
 * product and the rotation, all are changed where they lie. */
static void place(model_rec *r, const layer_spec *k, qkv_vals *p) {
    const attention_layer *a = &k->attn;
    float clip = (float)a->clip;
    const val table = r->rope[a->local], of_queries = r->rope_q[a->local];
    bool one_table = !a->rotary || of_queries == table;
    if (a->qk_norm == QK_NORM_NONE && p->all != VAL_NONE && !a->gate && one_table) {
        p->all = graph_clamp(r->g, p->all, clip);
        if (a->rotary) p->all = rotate(r, a, p->all, table, a->H + a->K);
        split_qkv(r, a, p);
        return;
    }
    if (p->all != VAL_NONE) split_qkv(r, a, p);
    if (norms_with_rotation(r, a)) {
        p->q = norm_and_rotate(r, k, PART_Q_NORM, p->q, of_queries);
        p->k = norm_and_rotate(r, k, PART_K_NORM, p->k, table);
        return;
    }
    if (a->qk_norm != QK_NORM_NONE) {
        p->q = norm_heads(r, k, PART_Q_NORM, p->q, 1);
        p->k = norm_heads(r, k, PART_K_NORM, p->k, a->kv_copies);
    }
    p->q = graph_clamp(r->g, p->q, clip);
    p->k = graph_clamp(r->g, p->k, clip);
    p->v = graph_clamp(r->g, p->v, clip);
    if (!a->rotary) return;
    p->q = rotate(r, a, p->q, of_queries, a->H);
    p->k = rotate(r, a, p->k, table, a->K);
}

/* The layer's cache of keys or values: `rows` of it belong to this program, `all` to the layer. */
static val cache_of(model_rec *r, int l, char which, int64_t rows, int64_t all, int64_t D,
                    int64_t *given_bytes) {
    dtype dt = r->cache_f16 ? DT_F16 : graph_get_options(r->g)->dt;
    char name[32];
    snprintf(name, sizeof name, "cache.%d.%c", l, which);
    val cache = graph_state(r->g, name, dt, rows, D, *given_bytes);
    *given_bytes += all * D * (int64_t)dtype_bytes(dt);
    return cache;
}

val model_cached(model_rec *r, int l, char which, int64_t K, int64_t D, val fresh) {
    int64_t slots = r->slots ? r->slots : r->B;
    val cache = cache_of(r, l, which, r->B * K * r->Tmax, slots * K * r->Tmax, D, &r->cache_bytes);
    return graph_kv_store(r->g, cache, fresh, r->qpos, r->B, (int)K, r->T, r->Tmax);
}

val model_page_cached(model_rec *r, int l, char which, int64_t K, int64_t D, val fresh) {
    bool turned = which == 'k';
    int page = r->paged.page;
    int64_t rows = r->paged.pages * K * (turned ? D : page);
    val cache = cache_of(r, l, which, rows, rows, turned ? page : D, &r->cache_bytes);
    return graph_page_store(r->g, cache, fresh, r->at, (int)K, page, turned);
}

val model_sinks(model_rec *r, const layer_spec *k) {
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, PART_SINKS, k->stored, name);
    return k->attn.sinks ? model_named(r, name, "") : VAL_NONE;
}

op_paged model_paged_spec(const model_rec *r, const attention_layer *a) {
    return (op_paged){.page = r->paged.page,
                      .H = (int)a->H,
                      .K = (int)a->K,
                      .D = (int)a->D,
                      .Dv = (int)a->Dv,
                      .window = (int)a->window,
                      .chunk = (int)a->chunk,
                      .scale = (float)a->scale,
                      .softcap = (float)a->softcap};
}

/* Tq queries of each sequence and Tk keys, without limits of what they see. */
static op_attention spec_of(const model_rec *r, const attention_layer *a, int Tq, int Tk,
                            bool from_cache) {
    return (op_attention){.B = r->B,
                          .Tq = Tq,
                          .Tk = Tk,
                          .H = (int)a->H,
                          .K = (int)a->K,
                          .D = (int)a->D,
                          .Dv = (int)a->Dv,
                          .scale = (float)a->scale,
                          .softcap = (float)a->softcap,
                          .dropout = (float)r->mc->attn_pdrop,
                          .by_head = from_cache,
                          .all_heads = (int)a->H * graph_tp(r->g),
                          .first_head = (int)a->H * graph_tp_rank(r->g)};
}

op_attention model_attention_spec(const model_rec *r, const attention_layer *a) {
    op_attention spec = spec_of(r, a, r->T, r->Tmax > 0 ? r->Tmax : r->T, r->Tmax > 0);
    spec.window = (int)a->window;
    spec.chunk = (int)a->chunk;
    spec.causal = true;
    return spec;
}

static val page_attention(model_rec *r, int l, const layer_spec *layer, const qkv_vals *p) {
    const attention_layer *a = &layer->attn;
    op_paged spec = model_paged_spec(r, a);
    val k = model_page_cached(r, l, 'k', a->K, a->D, p->k);
    val v = model_page_cached(r, l, 'v', a->K, a->D, p->v);
    return graph_page_attention(r->g, &spec, p->q, k, v, r->pages, r->place, model_sinks(r, layer));
}

/* An encoder's tokens see each other, wherever they are. */
static val source_attention(model_rec *r, const layer_spec *k, qkv_vals p) {
    const attention_layer *a = &k->attn;
    op_attention spec = spec_of(r, a, r->S, r->S, false);
    spec.bias_zero = a->relative ? model_relative_zero(r->mc, true) : 0;
    graph_seen seen = {.start = r->source.start,
                       .end = r->source.end,
                       .qpos = VAL_NONE,
                       .bias = a->relative ? r->relative[0] : VAL_NONE,
                       .sinks = model_sinks(r, k)};
    return graph_attention(r->g, &spec, p.q, p.k, p.v, &seen);
}

static val sequence_attention(model_rec *r, int l, const layer_spec *k, qkv_vals p) {
    const attention_layer *a = &k->attn;
    if (!a->causal) return source_attention(r, k, p);
    if (r->Tmax > 0) {
        p.k = model_cached(r, l, 'k', a->K, a->D, p.k);
        p.v = model_cached(r, l, 'v', a->K, a->D, p.v);
    }
    return model_attend(r, k, p.q, p.k, p.v);
}

static val heads_attention(model_rec *r, int l, const layer_spec *k, val x) {
    qkv_vals p = project(r, k, x);
    place(r, k, &p);
    val o = r->paged.page ? page_attention(r, l, k, &p) : sequence_attention(r, l, k, p);
    return k->attn.gate ? graph_gated(r->g, p.gate, o, ACT_SIGMOID) : o;
}

val model_attention(model_rec *r, int l, const layer_spec *k, val x) {
    val o = k->attn.kv_rank ? model_latent_attention(r, l, k, x) : heads_attention(r, l, k, x);
    graph_name(r->g, o, "layers.%d.attention", l);
    return model_out_product(r, PART_O, k->stored, o);
}

/* ---- attention to an encoder: no positions, no norms of heads ---- */

typedef struct source_vals {
    val k, v;
} source_vals;

/* Keys and values of this layer for what the encoder made. */
static source_vals project_source(model_rec *r, const layer_spec *k) {
    int64_t KD = k->attn.K * k->attn.D;
    char name[MODEL_NAME_BYTES];
    model_pack_name(r->mc, PART_CROSS_K, k->stored, "kv_proj", name);
    val both = model_named_product(r, name, r->source.made);
    source_vals s;
    if (both != VAL_NONE) {
        both = graph_clamp(r->g, both, (float)k->attn.clip);
        return (source_vals){graph_view(r->g, both, 0, KD), graph_view(r->g, both, KD, KD)};
    }
    s.k = model_product(r, PART_CROSS_K, k->stored, r->source.made);
    s.v = model_product(r, PART_CROSS_V, k->stored, r->source.made);
    return (source_vals){graph_clamp(r->g, s.k, (float)k->attn.clip),
                         graph_clamp(r->g, s.v, (float)k->attn.clip)};
}

/* The layer's cache of keys or values of sources. */
static val source_cache(model_rec *r, int l, bool values, const attention_layer *a) {
    int64_t slots = r->slots ? r->slots : r->B, rows = a->K * r->Smax;
    return cache_of(r, l, values ? 'V' : 'K', r->B * rows, slots * rows, a->D, &r->cross_bytes);
}

void model_cache_source(model_rec *r, int l, const layer_spec *k) {
    int K = (int)k->attn.K;
    source_vals s = project_source(r, k);
    val keys = source_cache(r, l, false, &k->attn), values = source_cache(r, l, true, &k->attn);
    graph_kv_store(r->g, keys, s.k, r->qpos, r->B, K, r->S, r->Smax);
    graph_kv_store(r->g, values, s.v, r->qpos, r->B, K, r->S, r->Smax);
}

val model_cross_attention(model_rec *r, int l, const layer_spec *k, val x) {
    const attention_layer *a = &k->attn;
    bool from_cache = r->Tmax > 0;
    val q = graph_clamp(r->g, model_product(r, PART_CROSS_Q, k->stored, x), (float)a->clip);
    source_vals s;
    if (from_cache) {
        s.k = source_cache(r, l, false, a);
        s.v = source_cache(r, l, true, a);
    } else {
        s = project_source(r, k);
    }
    op_attention spec = spec_of(r, a, r->T, from_cache ? r->Smax : r->S, from_cache);
    graph_seen seen = {.start = r->source.seen_start,
                       .end = r->source.seen_end,
                       .qpos = VAL_NONE,
                       .bias = VAL_NONE,
                       .sinks = VAL_NONE};
    val o = graph_attention(r->g, &spec, q, s.k, s.v, &seen);
    graph_name(r->g, o, "layers.%d.cross_attention", l);
    return model_out_product(r, PART_CROSS_O, k->stored, o);
}
