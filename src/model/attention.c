/* The attention branch of a layer.
 *
 * Reading order: model_attention at the end; project, place, page_attention or sequence_attention. */
#include <stdio.h>

#include "model/parts.h"

/* Queries, keys and values: columns of one product, or three products. */
typedef struct qkv_vals {
    val all; /* VAL_NONE: q, k and v are values of their own */
    val q, k, v;
} qkv_vals;

static void split_qkv(model_rec *r, const attention_layer *a, qkv_vals *p) {
    int64_t HD = a->H * a->D, KD = a->K * a->D;
    p->q = graph_view(r->g, p->all, 0, HD);
    p->k = graph_view(r->g, p->all, HD, KD);
    p->v = graph_view(r->g, p->all, HD + KD, KD);
}

static qkv_vals project(model_rec *r, const layer_spec *k, val x) {
    char name[MODEL_NAME_BYTES];
    qkv_vals p = {.all = model_product(r, PART_QKV, k->stored, x)};
    if (p.all == VAL_NONE && !graph_failed(r->g)) {
        model_pack_name(r->mc, PART_Q, k->stored, "qkv_proj", name);
        p.all = model_named_product(r, name, x);
    }
    if (p.all != VAL_NONE) return p;
    p.q = model_product(r, PART_Q, k->stored, x);
    p.k = model_product(r, PART_K, k->stored, x);
    p.v = model_product(r, PART_V, k->stored, x);
    return p;
}

static val rotate(model_rec *r, const attention_layer *a, val x, val table, int64_t heads) {
    rope_spec s = model_rope(r->mc, a->local);
    return graph_rope(r->g, x, r->pos, table, (int)heads, (int)a->D, s.rotary_dim, a->interleaved);
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
    val table = r->rope[a->local], of_queries = r->rope_q[a->local];
    if (a->qk_norm == QK_NORM_NONE && p->all != VAL_NONE && !(a->rotary && of_queries != table)) {
        p->all = graph_clamp(r->g, p->all, clip);
        if (a->rotary) p->all = rotate(r, a, p->all, table, a->H + a->K);
        split_qkv(r, a, p);
        return;
    }
    if (p->all != VAL_NONE) split_qkv(r, a, p);
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
static val cache_of(model_rec *r, int l, char which, int64_t rows, int64_t all, int64_t D) {
    dtype dt = r->cache_f16 ? DT_F16 : graph_get_options(r->g)->dt;
    char name[32];
    snprintf(name, sizeof name, "cache.%d.%c", l, which);
    val cache = graph_state(r->g, name, dt, rows, D, r->cache_bytes);
    r->cache_bytes += all * D * (int64_t)dtype_bytes(dt);
    return cache;
}

/* Appends fresh rows [B*T, K*D] to the layer's cache of keys or values, a head after the other. */
static val cached(model_rec *r, int l, char which, int64_t K, int64_t D, val fresh) {
    int64_t slots = r->slots ? r->slots : r->B;
    val cache = cache_of(r, l, which, r->B * K * r->Tmax, slots * K * r->Tmax, D);
    return graph_kv_store(r->g, cache, fresh, r->qpos, r->B, (int)K, r->T, r->Tmax);
}

static val page_cached(model_rec *r, int l, char which, int64_t K, int64_t D, val fresh) {
    bool turned = which == 'k';
    int page = r->paged.page;
    int64_t rows = r->paged.pages * K * (turned ? D : page);
    val cache = cache_of(r, l, which, rows, rows, turned ? page : D);
    return graph_page_store(r->g, cache, fresh, r->at, (int)K, page, turned);
}

static val page_attention(model_rec *r, int l, const attention_layer *a, const qkv_vals *p) {
    op_paged spec = {.page = r->paged.page,
                     .H = (int)a->H,
                     .K = (int)a->K,
                     .D = (int)a->D,
                     .Dv = (int)a->D,
                     .window = (int)a->window,
                     .scale = (float)a->scale,
                     .softcap = (float)a->softcap};
    val k = page_cached(r, l, 'k', a->K, a->D, p->k);
    val v = page_cached(r, l, 'v', a->K, a->D, p->v);
    return graph_page_attention(r->g, &spec, p->q, k, v, r->pages, r->place);
}

static val sequence_attention(model_rec *r, int l, const attention_layer *a, qkv_vals p) {
    if (r->Tmax > 0) {
        p.k = cached(r, l, 'k', a->K, a->D, p.k);
        p.v = cached(r, l, 'v', a->K, a->D, p.v);
    }
    op_attention spec = {.B = r->B,
                         .Tq = r->T,
                         .Tk = r->Tmax > 0 ? r->Tmax : r->T,
                         .H = (int)a->H,
                         .K = (int)a->K,
                         .D = (int)a->D,
                         .Dv = (int)a->D,
                         .scale = (float)a->scale,
                         .softcap = (float)a->softcap,
                         .dropout = (float)r->mc->attn_pdrop,
                         .window = (int)a->window,
                         .causal = true,
                         .by_head = r->Tmax > 0,
                         .all_heads = (int)a->H * graph_tp(r->g),
                         .first_head = (int)a->H * graph_tp_rank(r->g)};
    return graph_attention(r->g, &spec, p.q, p.k, p.v, r->start, r->qpos);
}

val model_attention(model_rec *r, int l, const layer_spec *k, val x) {
    const attention_layer *a = &k->attn;
    qkv_vals p = project(r, k, x);
    place(r, k, &p);
    val o = r->paged.page ? page_attention(r, l, a, &p) : sequence_attention(r, l, a, p);
    graph_name(r->g, o, "layers.%d.attention", l);
    return model_out_product(r, PART_O, k->stored, o);
}
