/* The transformer that every family's options describe: one forward pass.
 *
 * Reading order: model_record (inputs, embedding, blocks, head), block (the order of norms and
 * residuals), attention, feed_forward. Parameters: declare.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/parts.h"

val model_named(model_rec *r, const char *name, const char *suffix) {
    char whole[MODEL_NAME_BYTES + 16];
    snprintf(whole, sizeof whole, "%s%s", name, suffix);
    graph_param_ref ref;
    if (!param_ref(r->params, whole, &ref)) return VAL_NONE;
    if (graph_get_options(r->g)->dt == DT_F64) param_ref_widen(&ref);
    return graph_param(r->g, &ref);
}

static val weight(model_rec *r, model_part part, int l) {
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, part, l, name);
    return *name ? model_named(r, name, ".weight") : VAL_NONE;
}

/* x W^T + b under that name; VAL_NONE when there is no such matrix. */
static val product(model_rec *r, const char *name, val x) {
    val w = model_named(r, name, ".weight");
    if (w == VAL_NONE) return VAL_NONE;
    val y = graph_linear(r->g, x, w, model_named(r, name, ".bias"));
    graph_name(r->g, y, "%s", name);
    return y;
}

static val part_product(model_rec *r, model_part part, int l, val x) {
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, part, l, name);
    val y = product(r, name, x);
    return y == VAL_NONE ? y : model_adapt(r, part, l, x, y);
}

/* The product whose outputs are summed over tensor-parallel ranks: its bias is added to the sum. */
static val out_product(model_rec *r, model_part part, int l, val x) {
    if (graph_tp(r->g) == 1) return part_product(r, part, l, x);
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, part, l, name);
    val y = graph_linear(r->g, x, model_named(r, name, ".weight"), VAL_NONE);
    graph_name(r->g, y, "%s", name);
    y = model_adapt(r, part, l, x, y);
    y = graph_bias(r->g, graph_tp_out(r->g, y), model_named(r, name, ".bias"));
    graph_name(r->g, y, "%s", name);
    return y;
}

static bool norm_offset(const model_config *mc) {
    return mc->norm_weights == NORM_WEIGHTS_OFFSET && !mc->gguf_order;
}

/* width: of one group, 0 for whole rows. */
static val norm(model_rec *r, model_part part, int l, val x, int64_t width) {
    const model_config *mc = r->mc;
    char name[MODEL_NAME_BYTES];
    model_part_name(mc, part, l, name);
    val w = *name ? model_named(r, name, ".weight") : VAL_NONE;
    val b = *name ? model_named(r, name, ".bias") : VAL_NONE;
    val y = mc->norm == NORM_RMS
                ? graph_rmsnorm(r->g, x, w, (float)mc->norm_eps, norm_offset(mc), (int)width)
                : graph_layernorm(r->g, x, w, b, (float)mc->norm_eps, (int)width);
    graph_name(r->g, y, "%s", name);
    return y;
}

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
    qkv_vals p = {.all = part_product(r, PART_QKV, k->stored, x)};
    if (p.all == VAL_NONE && !graph_failed(r->g)) {
        model_pack_name(r->mc, PART_Q, k->stored, "qkv_proj", name);
        p.all = product(r, name, x);
    }
    if (p.all != VAL_NONE) return p;
    p.q = part_product(r, PART_Q, k->stored, x);
    p.k = part_product(r, PART_K, k->stored, x);
    p.v = part_product(r, PART_V, k->stored, x);
    return p;
}

static val rotate(model_rec *r, const attention_layer *a, val x, int64_t heads) {
    rope_spec s = model_rope(r->mc, a->local);
    return graph_rope(r->g, x, r->pos, r->rope[a->local], (int)heads, (int)a->D, s.rotary_dim,
                      a->interleaved);
}

/* Norm of queries or keys, of which `copies` successive ranks have the same. */
static val norm_heads(model_rec *r, const layer_spec *k, model_part part, val x, int copies) {
    const model_config *mc = r->mc;
    if (k->attn.qk_norm == QK_NORM_HEAD) return norm(r, part, k->stored, x, k->attn.D);
    if (graph_tp(r->g) == 1) return norm(r, part, k->stored, x, 0);
    int64_t all = graph_cols(r->g, x) * graph_tp(r->g) / copies;
    char name[MODEL_NAME_BYTES];
    model_part_name(mc, part, k->stored, name);
    val w = model_named(r, name, ".weight"), b = model_named(r, name, ".bias");
    float eps = (float)mc->norm_eps;
    val y = mc->norm == NORM_RMS
                ? graph_rmsnorm_ranks(r->g, x, w, eps, norm_offset(mc), all, copies)
                : graph_layernorm_ranks(r->g, x, w, b, eps, all, copies);
    graph_name(r->g, y, "%s", name);
    return y;
}

/* Norm of q and k, limits of all three, rotary positions of q and k. Where no norm stands between the
 * product and the rotation, all are changed where they lie. */
static void place(model_rec *r, const layer_spec *k, qkv_vals *p) {
    const attention_layer *a = &k->attn;
    float clip = (float)a->clip;
    if (a->qk_norm == QK_NORM_NONE && p->all != VAL_NONE) {
        p->all = graph_clamp(r->g, p->all, clip);
        if (a->rotary) p->all = rotate(r, a, p->all, a->H + a->K);
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
    p->q = rotate(r, a, p->q, a->H);
    p->k = rotate(r, a, p->k, a->K);
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

static val attention(model_rec *r, int l, const layer_spec *k, val x) {
    const attention_layer *a = &k->attn;
    qkv_vals p = project(r, k, x);
    place(r, k, &p);
    val o = r->paged.page ? page_attention(r, l, a, &p) : sequence_attention(r, l, a, p);
    graph_name(r->g, o, "layers.%d.attention", l);
    return out_product(r, PART_O, k->stored, o);
}

static val gated(model_rec *r, const layer_spec *k, val x) {
    int64_t F = k->mlp.F;
    char name[MODEL_NAME_BYTES];
    val both = part_product(r, PART_GATE_UP, k->stored, x);
    if (both == VAL_NONE && !graph_failed(r->g)) {
        model_pack_name(r->mc, PART_GATE, k->stored, "gate_up_proj", name);
        both = product(r, name, x);
    }
    if (both != VAL_NONE)
        return graph_gated(r->g, graph_view(r->g, both, 0, F), graph_view(r->g, both, F, F),
                           k->mlp.act);
    val gate = part_product(r, PART_GATE, k->stored, x);
    return graph_gated(r->g, gate, part_product(r, PART_UP, k->stored, x), k->mlp.act);
}

static val dense(model_rec *r, int l, const layer_spec *k, val x) {
    val h = k->mlp.kind == MLP_GATED
                ? gated(r, k, x)
                : graph_act(r->g, part_product(r, PART_UP, k->stored, x), k->mlp.act);
    graph_name(r->g, h, "layers.%d.mlp.act", l);
    return out_product(r, PART_DOWN, k->stored, h);
}

/* ---- experts ---- */

static op_router router_of(const model_rec *r, const mlp_layer *m) {
    return (op_router){.experts = (int)m->E,
                       .k = (int)m->k,
                       .layers = r->n_routers,
                       .scale = 1.0f,
                       .renormalise = m->renormalise};
}

static bool balances(const model_rec *r) {
    return graph_get_options(r->g)->train && r->mc->router_aux_loss_coef > 0;
}

static val experts_weight(model_rec *r, const layer_spec *k, const char *end) {
    char name[MODEL_NAME_BYTES];
    model_experts_name(r->mc, k->stored, end, name);
    return model_named(r, name, ".weight");
}

static val experts(model_rec *r, int l, const layer_spec *k, val x) {
    const mlp_layer *m = &k->mlp;
    op_router router = router_of(r, m);
    graph_routes to =
        graph_route(r->g, &router, part_product(r, PART_ROUTER, k->stored, x), VAL_NONE);
    if (balances(r)) r->load = graph_router_load(r->g, &to, r->load);
    val in = graph_take_rows(r->g, x, to.rows), w = experts_weight(r, k, "gate_up_proj");
    val h = graph_expert_linear(r->g, &router, in, w, to.starts);
    graph_name(r->g, h, "layers.%d.experts.in", l);
    h = m->kind == MLP_GATED ? graph_gated(r->g, graph_view(r->g, h, 0, m->F),
                                           graph_view(r->g, h, m->F, m->F), m->act)
                             : graph_act(r->g, h, m->act);
    w = experts_weight(r, k, "down_proj");
    h = graph_expert_linear(r->g, &router, h, w, to.starts);
    graph_name(r->g, h, "layers.%d.experts.out", l);
    return graph_expert_sum(r->g, h, &to);
}

/* ---- blocks ---- */

/* What a branch adds to the residual stream. */
static val branch(model_rec *r, const layer_spec *k, model_part out_norm, val y) {
    y = graph_dropout(r->g, y, (float)r->mc->resid_pdrop);
    if (k->norm_out) y = norm(r, out_norm, k->stored, y, 0);
    return graph_scale(r->g, y, (float)k->branch_scale);
}

/* Heads and widths of this tensor-parallel rank. */
static layer_spec local_layer(const model_rec *r, int l) {
    layer_spec k = model_layer(r->mc, l);
    int tp = graph_tp(r->g);
    int64_t K = model_local_kv_heads(&k.attn, tp);
    k.attn.kv_copies = (int)(K * tp / k.attn.K);
    k.attn.K = K;
    k.attn.H /= tp;
    k.mlp.F /= tp;
    return k;
}

static val feed_forward(model_rec *r, int l, const layer_spec *k, val x) {
    return k->mlp.E ? experts(r, l, k, x) : dense(r, l, k, x);
}

static val mlp_input(model_rec *r, const layer_spec *k, val x) {
    return k->norm_in ? norm(r, PART_MLP_NORM, k->stored, x, 0) : x;
}

static val block(model_rec *r, int l, val x) {
    layer_spec k = local_layer(r, l);
    val h = k.norm_in ? norm(r, PART_ATTN_NORM, k.stored, x, 0) : x;
    val in = graph_tp_in(r->g, h), h_attn = h;
    if (k.parallel && !k.norm_shared) h = mlp_input(r, &k, x);
    val a = branch(r, &k, PART_ATTN_OUT_NORM, attention(r, l, &k, in));
    x = graph_add(r->g, x, a);
    if (!k.parallel && !k.norm_shared) h = mlp_input(r, &k, x);
    if (h != h_attn) in = graph_tp_in(r->g, h);
    return graph_add(r->g, x, branch(r, &k, PART_MLP_OUT_NORM, feed_forward(r, l, &k, in)));
}

static void make_rope(model_rec *r) {
    bool used[2] = {false, false};
    for (int l = r->layers.first; l < r->layers.end; l++) {
        attention_layer a = model_layer(r->mc, l).attn;
        if (a.rotary) used[a.local] = true;
    }
    static const char *const names[] = {"rope_table", "rope_table_local"};
    for (int i = 0; i < 2; i++) {
        rope_spec s = model_rope(r->mc, i);
        int64_t positions = r->Tmax > r->T ? r->Tmax : r->T;
        if (r->positions) positions = r->positions;
        r->rope[i] = used[i] ? rope_table(r->g, names[i], &s, positions) : VAL_NONE;
    }
}

static void make_inputs(model_rec *r) {
    int64_t N = (int64_t)r->B * r->T;
    r->ids = r->layers.first == 0 ? graph_input(r->g, "ids", DT_I32, N, 1) : VAL_NONE;
    r->pos = graph_input(r->g, "pos", DT_I32, N, 1);
    r->start = r->document_mask ? graph_input(r->g, "start", DT_I32, N, 1) : VAL_NONE;
    r->qpos = r->Tmax > 0 ? graph_input(r->g, "qpos", DT_I32, r->B, 1) : VAL_NONE;
    if (r->paged.page) {
        r->at = graph_input(r->g, "at", DT_I32, N, 1);
        r->place = graph_input(r->g, "place", DT_I32, N, 2);
        r->pages = graph_input(r->g, "pages", DT_I32, r->paged.seqs, r->paged.of_seq);
    }
    r->cache_bytes = 0;
    make_rope(r);
}

static val embed(model_rec *r) {
    const model_config *mc = r->mc;
    int32_t fixed = mc->family->pad_row_fixed ? (int32_t)mc->pad_token_id : -1;
    val x = graph_embed_part(r->g, weight(r, PART_EMBED, -1), mc->vocab_size, r->ids, fixed);
    x = graph_scale(r->g, x, (float)mc->scale_emb);
    if (mc->positions == POSITIONS_LEARNED) {
        val table = weight(r, PART_POSITIONS, -1);
        val p = graph_embed_part(r->g, table, mc->max_position_embeddings, r->pos, -1);
        x = graph_add(r->g, x, p);
    }
    x = graph_tp_out(r->g, x);
    graph_name(r->g, x, "embedding");
    return graph_dropout(r->g, x, (float)mc->embd_pdrop);
}

/* Dropout of the embedding; of a layer attention, and its two branches. */
enum { RANDOM_OPS_OF_EMBEDDING = 1, RANDOM_OPS_OF_LAYER = 3 };

uint32_t model_random_ops_before(int layer) {
    return layer == 0 ? 0 : (uint32_t)(RANDOM_OPS_OF_EMBEDDING + RANDOM_OPS_OF_LAYER * layer);
}

/* What the layers before this chunk made. */
static val take_over(model_rec *r) {
    const graph_options *opt = graph_get_options(r->g);
    int64_t rows = (int64_t)r->B * r->T / (opt->sequence_parallel ? graph_tp(r->g) : 1);
    val x = graph_input(r->g, "x", opt->dt, rows, r->mc->hidden_size);
    graph_keep_grad(r->g, x, "grad.x");
    return x;
}

static void hand_over(model_rec *r, val y) {
    graph_output(r->g, y, "y");
    graph_root(r->g, y, "grad.y");
    /* the head, in the last chunk, has written its gradient before the embedding adds to it */
    if (r->layers.first == 0 && r->mc->tie_word_embeddings)
        graph_grad_has_begun(r->g, weight(r, PART_EMBED, -1));
}

/* The loss that keeps the load of all routers even. */
static void record_balance(model_rec *r) {
    if (r->load == VAL_NONE) return;
    op_router router = {.k = (int)r->mc->num_experts_per_tok, .layers = r->n_routers};
    double coef = r->mc->router_aux_loss_coef; /* the op gives N times the mean of N rows */
    if (r->task == TASK_NLL && r->sample_rows > 1) coef /= (double)r->sample_rows;
    graph_aux_loss(r->g, graph_router_balance(r->g, &router, r->load), (float)coef, true);
}

static void record_loss(model_rec *r, val x, val w, val bias) {
    graph_head_spec spec = {.chunk_rows = r->chunk_rows,
                            .z_loss = r->z_loss,
                            .softcap = (float)r->mc->final_softcap,
                            .vocab = r->mc->vocab_size};
    int64_t rows = r->task == TASK_SCORE ? r->n_logits : (int64_t)r->B * r->T;
    val targets = graph_input(r->g, "targets", DT_I32, rows, 1);
    bool deferred = r->task == TASK_NLL;
    val nll = deferred ? graph_head_nll(r->g, &spec, x, w, bias, targets)
                       : graph_head_ce(r->g, &spec, x, w, bias, targets);
    graph_name(r->g, nll, "nll");
    graph_output(r->g, nll, "nll");
    record_balance(r);
    if (deferred) graph_root(r->g, nll, "grad.nll");
}

static void record_head(model_rec *r, val x) {
    const model_config *mc = r->mc;
    if (r->task == TASK_SCORE || r->task == TASK_FILL)
        x = graph_take_rows(r->g, x, graph_input(r->g, "rows", DT_I32, r->n_logits, 1));
    if (r->task == TASK_FILL) {
        graph_output(r->g, x, "y");
        return;
    }
    x = norm(r, PART_FINAL_NORM, -1, x, 0);
    if (mc->dim_model_base > 0)
        x = graph_scale(r->g, x, (float)((double)mc->dim_model_base / (double)mc->hidden_size));
    val w = weight(r, mc->tie_word_embeddings ? PART_EMBED : PART_HEAD, -1);
    char head[MODEL_NAME_BYTES];
    model_part_name(mc, PART_HEAD, -1, head);
    val bias = mc->head_bias ? model_named(r, head, ".bias") : VAL_NONE;
    if (r->task != TASK_LOGITS && r->task != TASK_HEAD) {
        record_loss(r, x, w, bias);
        return;
    }
    if (r->task == TASK_LOGITS)
        x = graph_take_rows(r->g, x, graph_input(r->g, "rows", DT_I32, r->n_logits, 1));
    val logits = graph_linear_exact(r->g, x, w, bias);
    logits = graph_tp_cols(r->g, logits, mc->vocab_size);
    graph_output(r->g, graph_softcap(r->g, logits, (float)mc->final_softcap), "logits");
}

void model_record(model_rec *r) {
    bool chosen = r->task != TASK_LM && r->task != TASK_NLL;
    CHECK(!chosen || !graph_get_options(r->g)->sequence_parallel, "rows are of whole sequences");
    if (r->task == TASK_HEAD) {
        record_head(r,
                    graph_input(r->g, "x", graph_get_options(r->g)->dt, r->T, r->mc->hidden_size));
        return;
    }
    if (r->layers.end == 0) r->layers = model_all_layers(r->mc);
    r->load = VAL_NONE;
    for (int l = r->layers.first; l < r->layers.end; l++)
        r->n_routers += model_layer(r->mc, l).mlp.E > 0;
    make_inputs(r);
    val x = r->layers.first == 0 ? embed(r) : take_over(r);
    for (int l = r->layers.first; l < r->layers.end; l++) {
        graph_block_begin(r->g, l);
        x = block(r, l, x);
        graph_block_end(r->g);
    }
    if (r->layers.end < model_layers(r->mc) || r->task == TASK_BODY)
        hand_over(r, x);
    else
        record_head(r, x);
}

int64_t model_cache_bytes(const model_config *mc, int tp, int B, int Tmax, dtype dt) {
    int64_t cols = 0;
    for (int l = 0; l < model_layers(mc); l++) {
        attention_layer a = model_layer(mc, l).attn;
        cols += 2 * model_local_kv_heads(&a, tp) * a.D;
    }
    return (int64_t)B * Tmax * cols * (int64_t)dtype_bytes(dt);
}
