/* The transformer that every family's options describe: its parameters, and one forward pass.
 *
 * Reading order: model_declare (parameters layer by layer), model_record (inputs, embedding,
 * blocks, head), block (the order of norms and residuals), attention, feed_forward. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"
#include "model/init.h"

enum { NAME_BYTES = 256 };

/* ---- names ---- */

/* For options that a family's published models do not have. Fused products have none: they are a
 * property of files. */
static const char *const other_names[PART_COUNT] = {
    [PART_POSITIONS] = "model.embed_positions",
    [PART_ATTN_NORM] = "model.layers.%d.pre_attention_layernorm",
    [PART_ATTN_OUT_NORM] = "model.layers.%d.attention_out_layernorm",
    [PART_MLP_NORM] = "model.layers.%d.pre_feedforward_layernorm",
    [PART_MLP_OUT_NORM] = "model.layers.%d.post_feedforward_layernorm",
    [PART_Q_NORM] = "model.layers.%d.self_attn.q_norm",
    [PART_K_NORM] = "model.layers.%d.self_attn.k_norm",
    [PART_GATE] = "model.layers.%d.mlp.gate_proj",
    [PART_UP] = "model.layers.%d.mlp.up_proj",
};

static const char *part_pattern(const model_config *mc, model_part part) {
    return mc->names ? mc->names[part] : mc->family->names[part];
}

/* Name of a part in layer l, without ".weight"; empty when there is no such tensor. */
static void part_name(const model_config *mc, model_part part, int l, char out[NAME_BYTES]) {
    const char *pattern = part_pattern(mc, part);
    if (!pattern) pattern = other_names[part];
    const char *at = pattern ? strstr(pattern, "%d") : NULL;
    if (at)
        snprintf(out, NAME_BYTES, "%.*s%d%s", (int)(at - pattern), pattern, l, at + 2);
    else
        snprintf(out, NAME_BYTES, "%s", pattern ? pattern : "");
}

/* Name under which parts of one input are multiplied as one: the first one's with another end. */
static void pack_name(const model_config *mc, model_part first, int l, const char *end,
                      char out[NAME_BYTES]) {
    char name[NAME_BYTES];
    part_name(mc, first, l, name);
    const char *dot = strrchr(name, '.');
    snprintf(out, NAME_BYTES, "%.*s.%s", dot ? (int)(dot - name) : 0, name, end);
}

/* ---- parameters ---- */

typedef struct declaring {
    const model_config *mc;
    param_store *s;
    int stored; /* layer; -1: outside */
} declaring;

static void add(declaring *d, model_part part, const char *suffix, param p) {
    char name[NAME_BYTES + 16];
    part_name(d->mc, part, d->stored, name);
    CHECK(*name, "%s has no name for part %d", d->mc->family->model_type, (int)part);
    strcat(name, suffix);
    p.name = name;
    p.part = (int)part;
    p.layer = d->stored;
    param_add(d->s, &p);
}

static void add_norm(declaring *d, model_part part, int64_t width, param order) {
    int weights = d->mc->norm_weights;
    if (weights == NORM_WEIGHTS_NONE) return;
    param_init_kind first = weights == NORM_WEIGHTS_OFFSET ? INIT_ZEROS : INIT_ONES;
    param p = order;
    p.rows = 1, p.cols = width, p.rank = 1, p.init = (param_init){.kind = first};
    add(d, part, ".weight", p);
    p.init.kind = INIT_ZEROS;
    if (weights == NORM_WEIGHTS_WB) add(d, part, ".bias", p);
}

static void add_bias(declaring *d, model_part part, int64_t out, param order) {
    order.rows = 1, order.cols = out, order.rank = 1, order.init.kind = INIT_ZEROS;
    add(d, part, ".bias", order);
}

static void add_matrix(declaring *d, model_part part, int64_t out, int64_t in, init_role role,
                       param order) {
    order.rows = out, order.cols = in, order.rank = 2;
    order.transposed = d->stored >= 0 && d->mc->family->transposed;
    order.table = role == INIT_ROLE_EMBED || role == INIT_ROLE_POSITIONS;
    order.init = init_of(d->mc, role, d->stored < 0 ? 0 : d->stored, in);
    add(d, part, ".weight", order);
}

/* Order of the rows of a projection with `heads` rotated heads in files. */
static param pairs_order(const model_config *mc, const attention_layer *a, int64_t heads) {
    if (!mc->rope_interleaved || mc->gguf_order || !a->rotary) return (param){0};
    return (param){.order = ROWS_PAIRS,
                   .heads = heads,
                   .head_dim = a->D,
                   .rotary = model_rope(mc, a->local).rotary_dim};
}

/* Of tensor-parallel ranks: single rows each; columns each. */
static param rows_shared(int64_t rows) {
    return (param){.split = param_split_rows(rows, 0)};
}
static param inputs_shared(void) {
    return (param){.split = param_split_cols()};
}

static void declare_qkv(declaring *d, const attention_layer *a) {
    const model_config *mc = d->mc;
    int64_t C = mc->hidden_size, HD = a->H * a->D, KD = a->K * a->D;
    struct {
        model_part part;
        int64_t width, heads;
        param order;
    } parts[] = {{PART_Q, HD, a->H, pairs_order(mc, a, a->H)},
                 {PART_K, KD, a->K, pairs_order(mc, a, a->K)},
                 {PART_V, KD, a->K, {0}}};
    for (int i = 0; i < 3; i++)
        parts[i].order.split = param_split_rows(parts[i].width, parts[i].heads);
    if (part_pattern(mc, PART_QKV)) {
        param order = {.heads = a->H, .head_dim = a->D, .split = param_split_rows(HD, a->H)};
        for (int i = 0; i < 2; i++) param_split_append(&order.split, KD, a->K);
        if (mc->family->qkv_by_head && a->H == a->K && !mc->gguf_order) order.order = ROWS_BY_HEAD;
        add_matrix(d, PART_QKV, HD + 2 * KD, C, INIT_ROLE_IN, order);
        if (a->qkv_bias) add_bias(d, PART_QKV, HD + 2 * KD, order);
        return;
    }
    char name[NAME_BYTES];
    pack_name(mc, PART_Q, d->stored, "qkv_proj.weight", name);
    param_pack_begin(d->s, name);
    for (int i = 0; i < 3; i++)
        add_matrix(d, parts[i].part, parts[i].width, C, INIT_ROLE_IN, parts[i].order);
    param_pack_end(d->s);
    if (!a->qkv_bias) return;
    pack_name(mc, PART_Q, d->stored, "qkv_proj.bias", name);
    param_pack_begin(d->s, name);
    for (int i = 0; i < 3; i++) add_bias(d, parts[i].part, parts[i].width, parts[i].order);
    param_pack_end(d->s);
}

static void declare_qk_norm(declaring *d, model_part part, const attention_layer *a,
                            int64_t heads) {
    bool full = a->qk_norm == QK_NORM_FULL;
    param order = pairs_order(d->mc, a, full ? heads : 1);
    if (full)
        order.split = param_split_rows(heads * a->D, heads);
    else
        order.split.per_head = true;
    add_norm(d, part, full ? heads * a->D : a->D, order);
}

static void declare_attention(declaring *d, const attention_layer *a) {
    declare_qkv(d, a);
    if (a->qk_norm != QK_NORM_NONE) {
        declare_qk_norm(d, PART_Q_NORM, a, a->H);
        declare_qk_norm(d, PART_K_NORM, a, a->K);
    }
    add_matrix(d, PART_O, d->mc->hidden_size, a->H * a->D, INIT_ROLE_ATTN_OUT, inputs_shared());
    if (a->out_bias) add_bias(d, PART_O, d->mc->hidden_size, (param){0});
}

static void declare_gate_up(declaring *d, const mlp_layer *m) {
    const model_config *mc = d->mc;
    int64_t C = mc->hidden_size;
    param half = rows_shared(m->F), both = half;
    param_split_append(&both.split, m->F, 0);
    if (part_pattern(mc, PART_GATE_UP)) {
        add_matrix(d, PART_GATE_UP, 2 * m->F, C, INIT_ROLE_IN, both);
        if (m->bias) add_bias(d, PART_GATE_UP, 2 * m->F, both);
        return;
    }
    char name[NAME_BYTES];
    pack_name(mc, PART_GATE, d->stored, "gate_up_proj.weight", name);
    param_pack_begin(d->s, name);
    add_matrix(d, PART_GATE, m->F, C, INIT_ROLE_IN, half);
    add_matrix(d, PART_UP, m->F, C, INIT_ROLE_IN, half);
    param_pack_end(d->s);
    if (!m->bias) return;
    pack_name(mc, PART_GATE, d->stored, "gate_up_proj.bias", name);
    param_pack_begin(d->s, name);
    add_bias(d, PART_GATE, m->F, half);
    add_bias(d, PART_UP, m->F, half);
    param_pack_end(d->s);
}

static void declare_mlp(declaring *d, const mlp_layer *m) {
    if (m->kind == MLP_GATED)
        declare_gate_up(d, m);
    else {
        add_matrix(d, PART_UP, m->F, d->mc->hidden_size, INIT_ROLE_IN, rows_shared(m->F));
        if (m->bias) add_bias(d, PART_UP, m->F, rows_shared(m->F));
    }
    add_matrix(d, PART_DOWN, d->mc->hidden_size, m->F, INIT_ROLE_MLP_OUT, inputs_shared());
    if (m->bias) add_bias(d, PART_DOWN, d->mc->hidden_size, (param){0});
}

static void declare_layer(declaring *d, const layer_spec *k) {
    int64_t C = d->mc->hidden_size;
    if (k->norm_in) add_norm(d, PART_ATTN_NORM, C, (param){0});
    declare_attention(d, &k->attn);
    if (k->norm_out) add_norm(d, PART_ATTN_OUT_NORM, C, (param){0});
    if (k->norm_in && !k->norm_shared) add_norm(d, PART_MLP_NORM, C, (param){0});
    declare_mlp(d, &k->mlp);
    if (k->norm_out) add_norm(d, PART_MLP_OUT_NORM, C, (param){0});
}

static void declare_head(declaring *d) {
    const model_config *mc = d->mc;
    int64_t V = mc->vocab_size;
    if (!mc->tie_word_embeddings)
        add_matrix(d, PART_HEAD, V, mc->hidden_size, INIT_ROLE_HEAD, rows_shared(V));
    if (mc->head_bias) add_bias(d, PART_HEAD, V, rows_shared(V));
}

static void declare_embed(declaring *d) {
    const model_config *mc = d->mc;
    add_matrix(d, PART_EMBED, mc->vocab_size, mc->hidden_size, INIT_ROLE_EMBED,
               rows_shared(mc->vocab_size));
}

/* In the order in which the backward writes their gradients, what the head multiplies first: so
 * gradients fill their place from its beginning, and the rest of the frame has the space above them
 * in one piece (prog/graph.h, grads_in_frame). */
void model_declare(const model_config *mc, param_store *s) {
    declaring d = {.mc = mc, .s = s, .stored = -1};
    declare_head(&d);
    if (mc->tie_word_embeddings) declare_embed(&d);
    add_norm(&d, PART_FINAL_NORM, mc->hidden_size, (param){0});
    for (int l = (int)mc->num_hidden_layers - 1; l >= 0; l--) {
        layer_spec k = model_layer(mc, l * (int)mc->block_repeat);
        d.stored = l;
        declare_layer(&d, &k);
    }
    d.stored = -1;
    if (mc->positions == POSITIONS_LEARNED)
        add_matrix(&d, PART_POSITIONS, mc->max_position_embeddings, mc->hidden_size,
                   INIT_ROLE_POSITIONS, rows_shared(mc->max_position_embeddings));
    if (!mc->tie_word_embeddings) declare_embed(&d);
}

/* ---- tensor parallelism ---- */

/* Where there are fewer than ranks, each rank has one that others have too. */
static int64_t local_kv_heads(const attention_layer *a, int tp) {
    return a->K > tp ? a->K / tp : 1;
}

static status check_layer_ranks(const layer_spec *k, int l, int tp, err *e) {
    int64_t H = k->attn.H, K = k->attn.K, F = k->mlp.F;
    if (H % tp || !param_run_divides(K * k->attn.D, K, tp))
        return err_set(e, ST_USAGE,
                       "%lld heads and %lld key/value heads of layer %d do not divide over %d "
                       "tensor-parallel ranks",
                       (long long)H, (long long)K, l, tp);
    if (F % tp)
        return err_set(e, ST_USAGE,
                       "the feed-forward width %lld of layer %d does not divide over %d "
                       "tensor-parallel ranks",
                       (long long)F, l, tp);
    if (k->attn.qk_norm == QK_NORM_FULL)
        return err_set(e, ST_USAGE,
                       "tensor parallelism has no norm over all query heads (layer %d)", l);
    return ST_OK;
}

status model_check_ranks(const model_config *mc, int tp, err *e) {
    for (int l = 0; l < model_layers(mc) && tp > 1; l++) {
        layer_spec k = model_layer(mc, l);
        TRY(check_layer_ranks(&k, l, tp, e));
    }
    return ST_OK;
}

/* ---- the forward pass ---- */

/* A parameter or pack by name; VAL_NONE when the model does not have it. */
static val named(model_rec *r, const char *name, const char *suffix) {
    char whole[NAME_BYTES + 16];
    snprintf(whole, sizeof whole, "%s%s", name, suffix);
    graph_param_ref ref;
    if (!param_ref(r->params, whole, &ref)) return VAL_NONE;
    if (graph_get_options(r->g)->dt == DT_F64) param_ref_widen(&ref);
    return graph_param(r->g, &ref);
}

static val weight(model_rec *r, model_part part, int l) {
    char name[NAME_BYTES];
    part_name(r->mc, part, l, name);
    return *name ? named(r, name, ".weight") : VAL_NONE;
}

/* x W^T + b under that name; VAL_NONE when there is no such matrix. */
static val product(model_rec *r, const char *name, val x) {
    val w = named(r, name, ".weight");
    if (w == VAL_NONE) return VAL_NONE;
    val y = graph_linear(r->g, x, w, named(r, name, ".bias"));
    graph_name(r->g, y, "%s", name);
    return y;
}

static val part_product(model_rec *r, model_part part, int l, val x) {
    char name[NAME_BYTES];
    part_name(r->mc, part, l, name);
    return product(r, name, x);
}

/* The product whose outputs are summed over tensor-parallel ranks: its bias is added to the sum. */
static val out_product(model_rec *r, model_part part, int l, val x) {
    if (graph_tp(r->g) == 1) return part_product(r, part, l, x);
    char name[NAME_BYTES];
    part_name(r->mc, part, l, name);
    val y = graph_linear(r->g, x, named(r, name, ".weight"), VAL_NONE);
    graph_name(r->g, y, "%s", name);
    y = graph_bias(r->g, graph_tp_out(r->g, y), named(r, name, ".bias"));
    graph_name(r->g, y, "%s", name);
    return y;
}

/* width: of one group, 0 for whole rows. */
static val norm(model_rec *r, model_part part, int l, val x, int64_t width) {
    const model_config *mc = r->mc;
    char name[NAME_BYTES];
    part_name(mc, part, l, name);
    val w = *name ? named(r, name, ".weight") : VAL_NONE;
    val b = *name ? named(r, name, ".bias") : VAL_NONE;
    bool offset = mc->norm_weights == NORM_WEIGHTS_OFFSET && !mc->gguf_order;
    val y = mc->norm == NORM_RMS
                ? graph_rmsnorm(r->g, x, w, (float)mc->norm_eps, offset, (int)width)
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
    char name[NAME_BYTES];
    qkv_vals p = {.all = part_product(r, PART_QKV, k->stored, x)};
    if (p.all == VAL_NONE && !graph_failed(r->g)) {
        pack_name(r->mc, PART_Q, k->stored, "qkv_proj", name);
        p.all = product(r, name, x);
    }
    if (p.all != VAL_NONE) {
        p.all = graph_clamp(r->g, p.all, (float)k->attn.clip);
        return p;
    }
    float clip = (float)k->attn.clip;
    p.q = graph_clamp(r->g, part_product(r, PART_Q, k->stored, x), clip);
    p.k = graph_clamp(r->g, part_product(r, PART_K, k->stored, x), clip);
    p.v = graph_clamp(r->g, part_product(r, PART_V, k->stored, x), clip);
    return p;
}

static val rotate(model_rec *r, const attention_layer *a, val x, int64_t heads) {
    rope_spec s = model_rope(r->mc, a->local);
    return graph_rope(r->g, x, r->pos, r->rope[a->local], (int)heads, (int)a->D, s.rotary_dim,
                      a->interleaved);
}

/* Norm and rotary positions of q and k. Where nothing stands between the product and the rotation,
 * both are rotated where they lie. */
static void place(model_rec *r, const layer_spec *k, qkv_vals *p) {
    const attention_layer *a = &k->attn;
    if (a->qk_norm == QK_NORM_NONE && p->all != VAL_NONE) {
        if (a->rotary) p->all = rotate(r, a, p->all, a->H + a->K);
        split_qkv(r, a, p);
        return;
    }
    if (p->all != VAL_NONE) split_qkv(r, a, p);
    if (a->qk_norm != QK_NORM_NONE) {
        int64_t width = a->qk_norm == QK_NORM_HEAD ? a->D : 0;
        p->q = norm(r, PART_Q_NORM, k->stored, p->q, width);
        p->k = norm(r, PART_K_NORM, k->stored, p->k, width);
    }
    if (!a->rotary) return;
    p->q = rotate(r, a, p->q, a->H);
    p->k = rotate(r, a, p->k, a->K);
}

/* Appends fresh rows [B*T, K*D] to the layer's cache [B*Tmax, K*D] of keys or values. */
static val cached(model_rec *r, int l, char which, val fresh) {
    dtype dt = graph_get_options(r->g)->dt;
    int64_t rows = (int64_t)r->B * r->Tmax, cols = graph_cols(r->g, fresh);
    char name[32];
    snprintf(name, sizeof name, "cache.%d.%c", l, which);
    val cache = graph_state(r->g, name, dt, rows, cols, r->cache_bytes);
    r->cache_bytes += rows * cols * (int64_t)dtype_bytes(dt);
    return graph_kv_store(r->g, cache, fresh, r->qpos, r->B, r->T, r->Tmax);
}

static val attention(model_rec *r, int l, const layer_spec *k, val x) {
    const attention_layer *a = &k->attn;
    qkv_vals p = project(r, k, x);
    place(r, k, &p);
    if (r->Tmax > 0) {
        p.k = cached(r, l, 'k', p.k);
        p.v = cached(r, l, 'v', p.v);
    }
    graph_attention_spec spec = {.B = r->B,
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
                                 .all_heads = (int)a->H * graph_tp(r->g),
                                 .first_head = (int)a->H * graph_tp_rank(r->g)};
    val o = graph_attention(r->g, &spec, p.q, p.k, p.v, r->start, r->qpos);
    graph_name(r->g, o, "layers.%d.attention", l);
    return out_product(r, PART_O, k->stored, o);
}

static val gated(model_rec *r, const layer_spec *k, val x) {
    int64_t F = k->mlp.F;
    char name[NAME_BYTES];
    val both = part_product(r, PART_GATE_UP, k->stored, x);
    if (both == VAL_NONE && !graph_failed(r->g)) {
        pack_name(r->mc, PART_GATE, k->stored, "gate_up_proj", name);
        both = product(r, name, x);
    }
    if (both != VAL_NONE)
        return graph_gated(r->g, graph_view(r->g, both, 0, F), graph_view(r->g, both, F, F),
                           k->mlp.act);
    val gate = part_product(r, PART_GATE, k->stored, x);
    return graph_gated(r->g, gate, part_product(r, PART_UP, k->stored, x), k->mlp.act);
}

static val feed_forward(model_rec *r, int l, const layer_spec *k, val x) {
    val h = k->mlp.kind == MLP_GATED
                ? gated(r, k, x)
                : graph_act(r->g, part_product(r, PART_UP, k->stored, x), k->mlp.act);
    graph_name(r->g, h, "layers.%d.mlp.act", l);
    return out_product(r, PART_DOWN, k->stored, h);
}

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
    k.attn.H /= tp;
    k.attn.K = local_kv_heads(&k.attn, tp);
    k.mlp.F /= tp;
    return k;
}

static val block(model_rec *r, int l, val x) {
    layer_spec k = local_layer(r, l);
    val h = k.norm_in ? norm(r, PART_ATTN_NORM, k.stored, x, 0) : x;
    val in = graph_tp_in(r->g, h);
    val a = branch(r, &k, PART_ATTN_OUT_NORM, attention(r, l, &k, in));
    if (!k.parallel) x = graph_add(r->g, x, a);
    val h_attn = h;
    if (k.norm_in && !k.norm_shared)
        h = norm(r, PART_MLP_NORM, k.stored, x, 0);
    else if (!k.norm_shared)
        h = x;
    if (k.parallel) x = graph_add(r->g, x, a);
    if (h != h_attn) in = graph_tp_in(r->g, h);
    return graph_add(r->g, x, branch(r, &k, PART_MLP_OUT_NORM, feed_forward(r, l, &k, in)));
}

static void make_rope(model_rec *r) {
    bool used[2] = {false, false};
    for (int l = 0; l < model_layers(r->mc); l++) {
        attention_layer a = model_layer(r->mc, l).attn;
        if (a.rotary) used[a.local] = true;
    }
    static const char *const names[] = {"rope_table", "rope_table_local"};
    for (int i = 0; i < 2; i++) {
        rope_spec s = model_rope(r->mc, i);
        r->rope[i] =
            used[i] ? rope_table(r->g, names[i], &s, r->Tmax > r->T ? r->Tmax : r->T) : VAL_NONE;
    }
}

static void make_inputs(model_rec *r) {
    int64_t N = (int64_t)r->B * r->T;
    r->ids = graph_input(r->g, "ids", DT_I32, N, 1);
    r->pos = graph_input(r->g, "pos", DT_I32, N, 1);
    r->start = r->document_mask ? graph_input(r->g, "start", DT_I32, N, 1) : VAL_NONE;
    r->qpos = r->Tmax > 0 ? graph_input(r->g, "qpos", DT_I32, r->B, 1) : VAL_NONE;
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

void model_record(model_rec *r) {
    const model_config *mc = r->mc;
    CHECK(r->task == TASK_LM || !graph_get_options(r->g)->sequence_parallel,
          "logits are of whole sequences");
    make_inputs(r);
    val x = embed(r);
    for (int l = 0; l < model_layers(mc); l++) {
        graph_block_begin(r->g, l);
        x = block(r, l, x);
        graph_block_end(r->g);
    }
    x = norm(r, PART_FINAL_NORM, -1, x, 0);
    if (mc->dim_model_base > 0)
        x = graph_scale(r->g, x, (float)((double)mc->dim_model_base / (double)mc->hidden_size));
    val w = weight(r, mc->tie_word_embeddings ? PART_EMBED : PART_HEAD, -1);
    char head[NAME_BYTES];
    part_name(mc, PART_HEAD, -1, head);
    val bias = mc->head_bias ? named(r, head, ".bias") : VAL_NONE;
    if (r->task == TASK_LM) {
        graph_head_spec spec = {.chunk_rows = r->chunk_rows,
                                .z_loss = r->z_loss,
                                .softcap = (float)mc->final_softcap,
                                .vocab = mc->vocab_size};
        val targets = graph_input(r->g, "targets", DT_I32, (int64_t)r->B * r->T, 1);
        graph_output(r->g, graph_head_ce(r->g, &spec, x, w, bias, targets), "nll");
        return;
    }
    val rows = graph_input(r->g, "rows", DT_I32, r->n_logits, 1);
    val logits = graph_linear(r->g, graph_embed(r->g, x, rows, -1), w, bias);
    logits = graph_tp_cols(r->g, logits, mc->vocab_size);
    graph_output(r->g, graph_softcap(r->g, logits, (float)mc->final_softcap), "logits");
}

int64_t model_cache_bytes(const model_config *mc, int tp, int B, int Tmax, dtype dt) {
    int64_t cols = 0;
    for (int l = 0; l < model_layers(mc); l++) {
        attention_layer a = model_layer(mc, l).attn;
        cols += 2 * local_kv_heads(&a, tp) * a.D;
    }
    return (int64_t)B * Tmax * cols * (int64_t)dtype_bytes(dt);
}

int64_t model_embedding_params(const model_config *mc, const param_store *s) {
    (void)mc;
    int64_t n = 0;
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        if (p->table || p->part == PART_HEAD) n += param_whole_elems(p);
    }
    return n;
}
