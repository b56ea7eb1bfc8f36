/* The parameters that a model's options describe: names, shapes, initial values, and how
 * tensor-parallel ranks share them. Reading order: model_declare, layer by layer, at the end. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/init.h"
#include "model/parts.h"

/* ---- names ---- */

/* For options that a family's published models do not have. Fused products have none: they are a
 * property of files. */
static const char *const other_names[PART_COUNT] = {
    [PART_POSITIONS] = "model.embed_positions",
    [PART_RELATIVE] = "model.relative_attention_bias",
    [PART_ENCODER_RELATIVE] = "model.encoder_relative_attention_bias",
    [PART_ENCODER_NORM] = "model.encoder_norm",
    [PART_CROSS_OUT_NORM] = "model.layers.%d.cross_attention_out_layernorm",
    [PART_SCORE] = "score",
    [PART_ATTN_NORM] = "model.layers.%d.pre_attention_layernorm",
    [PART_ATTN_OUT_NORM] = "model.layers.%d.attention_out_layernorm",
    [PART_MLP_NORM] = "model.layers.%d.pre_feedforward_layernorm",
    [PART_MLP_OUT_NORM] = "model.layers.%d.post_feedforward_layernorm",
    [PART_Q] = "model.layers.%d.self_attn.q_proj",
    [PART_Q_A] = "model.layers.%d.self_attn.q_a_proj",
    [PART_Q_A_NORM] = "model.layers.%d.self_attn.q_a_layernorm",
    [PART_Q_B] = "model.layers.%d.self_attn.q_b_proj",
    [PART_KV_A] = "model.layers.%d.self_attn.kv_a_proj_with_mqa",
    [PART_KV_A_NORM] = "model.layers.%d.self_attn.kv_a_layernorm",
    [PART_KV_B] = "model.layers.%d.self_attn.kv_b_proj",
    [PART_Q_NORM] = "model.layers.%d.self_attn.q_norm",
    [PART_K_NORM] = "model.layers.%d.self_attn.k_norm",
    [PART_LINEAR_QKVZ] = "model.layers.%d.linear_attn.in_proj_qkvz",
    [PART_LINEAR_BA] = "model.layers.%d.linear_attn.in_proj_ba",
    [PART_LINEAR_CONV] = "model.layers.%d.linear_attn.conv1d",
    [PART_LINEAR_A_LOG] = "model.layers.%d.linear_attn.A_log",
    [PART_LINEAR_DT_BIAS] = "model.layers.%d.linear_attn.dt_bias",
    [PART_LINEAR_NORM] = "model.layers.%d.linear_attn.norm",
    [PART_LINEAR_OUT] = "model.layers.%d.linear_attn.out_proj",
    [PART_SINKS] = "model.layers.%d.self_attn.sinks",
    [PART_GATE] = "model.layers.%d.mlp.gate_proj",
    [PART_UP] = "model.layers.%d.mlp.up_proj",
    [PART_ROUTER] = "model.layers.%d.mlp.gate",
    [PART_EXPERT_GATE] = "model.layers.%d.mlp.experts.%d.gate_proj",
    [PART_EXPERT_UP] = "model.layers.%d.mlp.experts.%d.up_proj",
    [PART_EXPERT_DOWN] = "model.layers.%d.mlp.experts.%d.down_proj",
    [PART_ROUTER_BIAS] = "model.layers.%d.mlp.gate.e_score_correction_bias",
    [PART_SHARED_GATE] = "model.layers.%d.mlp.shared_expert.gate_proj",
    [PART_SHARED_UP] = "model.layers.%d.mlp.shared_expert.up_proj",
    [PART_SHARED_DOWN] = "model.layers.%d.mlp.shared_expert.down_proj",
    [PART_SHARED_SCALE] = "model.layers.%d.mlp.shared_expert_gate",
    /* as in DeepSeek-V3's files */
    [PART_AHEAD_EMBED_NORM] = "model.layers.%d.enorm",
    [PART_AHEAD_NORM] = "model.layers.%d.hnorm",
    [PART_AHEAD_JOIN] = "model.layers.%d.eh_proj",
    [PART_AHEAD_HEAD_NORM] = "model.layers.%d.shared_head.norm",
};

/* As the family writes it for stored layer l, with %d for the layer; NULL: it has none. */
static const char *pattern_of(const model_config *mc, model_part part, int l) {
    bool of_encoder = l >= 0 && l < mc->num_encoder_layers;
    const char *const *names = mc->names ? mc->names : mc->family->names;
    if (of_encoder) names = mc->encoder_names ? mc->encoder_names : mc->family->encoder_names;
    bool plain = part == PART_UP && mc->mlp == MLP_PLAIN && names[PART_PLAIN_UP];
    return names[plain ? PART_PLAIN_UP : part];
}

/* The first %d of a pattern becomes a number. */
static void put_number(const char *pattern, int number, char out[MODEL_NAME_BYTES]) {
    const char *at = pattern ? strstr(pattern, "%d") : NULL;
    if (at)
        snprintf(out, MODEL_NAME_BYTES, "%.*s%d%s", (int)(at - pattern), pattern, number, at + 2);
    else
        snprintf(out, MODEL_NAME_BYTES, "%s", pattern ? pattern : "");
}

void model_part_name(const model_config *mc, model_part part, int l, char out[MODEL_NAME_BYTES]) {
    const char *pattern = pattern_of(mc, part, l);
    int of_stack = l < mc->num_encoder_layers ? l : l - (int)mc->num_encoder_layers;
    put_number(pattern ? pattern : other_names[part], pattern ? of_stack : l, out);
}

void model_expert_name(const model_config *mc, model_part part, int l, int expert,
                       char out[MODEL_NAME_BYTES]) {
    char of_layer[MODEL_NAME_BYTES];
    model_part_name(mc, part, l, of_layer);
    put_number(of_layer, expert, out);
}

void model_experts_name(const model_config *mc, int l, const char *end,
                        char out[MODEL_NAME_BYTES]) {
    char of_layer[MODEL_NAME_BYTES];
    model_part_name(mc, PART_EXPERT_GATE, l, of_layer);
    const char *at = strstr(of_layer, ".%d");
    int len = at ? (int)(at - of_layer) : (int)strlen(of_layer);
    snprintf(out, MODEL_NAME_BYTES, "%.*s.%s", len, of_layer, end);
}

void model_pack_name(const model_config *mc, model_part first, int l, const char *end,
                     char out[MODEL_NAME_BYTES]) {
    char name[MODEL_NAME_BYTES];
    model_part_name(mc, first, l, name);
    const char *dot = strrchr(name, '.');
    snprintf(out, MODEL_NAME_BYTES, "%.*s.%s", dot ? (int)(dot - name) : 0, name, end);
}

/* ---- parameters ---- */

typedef struct declaring {
    const model_config *mc;
    param_store *s;
    int stored; /* layer; -1: outside */
    int expert; /* of which the next parts are */
} declaring;

static void add(declaring *d, model_part part, const char *suffix, param p) {
    char name[MODEL_NAME_BYTES + 16];
    model_expert_name(d->mc, part, d->stored, d->expert, name);
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

/* The rows of q, then those of the gate: in files a head of each by turns, unless rotary pairs have an order of their own. */
static void gate_order(param *q, const attention_layer *a) {
    param_split_append(&q->split, a->H * a->D, a->H);
    if (q->order != ROWS_SAME) return;
    q->order = ROWS_BY_HEAD, q->heads = a->H;
    q->part_rows[0] = q->part_rows[1] = a->D;
}

static void declare_qkv(declaring *d, const attention_layer *a) {
    const model_config *mc = d->mc;
    int64_t C = mc->hidden_size, HD = a->H * a->D, KD = a->K * a->D;
    int64_t QD = a->gate ? 2 * HD : HD;
    struct {
        model_part part;
        int64_t width, heads;
        param order;
    } parts[] = {{PART_Q, QD, a->H, pairs_order(mc, a, a->H)},
                 {PART_K, KD, a->K, pairs_order(mc, a, a->K)},
                 {PART_V, KD, a->K, {0}}};
    for (int i = 0; i < 3; i++)
        parts[i].order.split = param_split_rows(i ? KD : HD, parts[i].heads);
    if (a->gate) gate_order(&parts[0].order, a);
    if (pattern_of(mc, PART_QKV, d->stored)) {
        param order = {.heads = a->H, .split = param_split_rows(HD, a->H)};
        if (a->gate) param_split_append(&order.split, HD, a->H);
        for (int i = 0; i < 2; i++) param_split_append(&order.split, KD, a->K);
        for (int i = 0; i < (a->gate ? 4 : 3); i++) order.part_rows[i] = a->D;
        if (mc->family->qkv_by_head && a->H == a->K && !mc->gguf_order) order.order = ROWS_BY_HEAD;
        add_matrix(d, PART_QKV, QD + 2 * KD, C, INIT_ROLE_IN, order);
        if (a->qkv_bias) add_bias(d, PART_QKV, QD + 2 * KD, order);
        return;
    }
    char name[MODEL_NAME_BYTES];
    model_pack_name(mc, PART_Q, d->stored, "qkv_proj.weight", name);
    param_pack_begin(d->s, name);
    for (int i = 0; i < 3; i++)
        add_matrix(d, parts[i].part, parts[i].width, C, i ? INIT_ROLE_IN : INIT_ROLE_QUERY,
                   parts[i].order);
    param_pack_end(d->s);
    if (!a->qkv_bias) return;
    model_pack_name(mc, PART_Q, d->stored, "qkv_proj.bias", name);
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

static void declare_sinks(declaring *d, const attention_layer *a) {
    param p = {.rows = 1, .cols = a->H, .rank = 1, .split = param_split_rows(a->H, a->H)};
    p.init = (param_init){.kind = INIT_NORMAL, .std = d->mc->initializer_range};
    add(d, PART_SINKS, "", p);
}

/* A number of each head, which no suffix ends. */
static void add_of_heads(declaring *d, model_part part, int64_t heads, param_init init) {
    param p = {.rows = 1, .cols = heads, .rank = 1, .init = init};
    p.split = param_split_rows(heads, heads);
    add(d, part, "", p);
}

/* Queries and keys of Hk heads, values and perhaps gates of Hv; each row or column is `taps` numbers. Ranks that share a key head
 * have value heads of its group. */
static param_split linear_split(const linear_layer *a, int runs, int64_t taps) {
    param_split s = param_split_rows(a->Hk * a->Dk * taps, a->Hk);
    param_split_append(&s, a->Hk * a->Dk * taps, a->Hk);
    for (int i = 2; i < runs; i++) param_split_append(&s, a->Hv * a->Dv * taps, a->Hv);
    return s;
}

/* transformers draws A between 0 and 16; A_log has the mean and the spread of its logarithm. */
#define A_LOG_MEAN 1.7726
#define A_LOG_BOUND 1.7321

static void declare_linear(declaring *d, const linear_layer *a) {
    int64_t C = d->mc->hidden_size, keys = a->Hk * a->Dk, values = a->Hv * a->Dv;
    int64_t group = a->Hv / a->Hk, columns = 2 * keys + values;
    param qkvz = {.order = ROWS_BY_HEAD, .heads = a->Hk}, ba = qkvz;
    for (int i = 0; i < 4; i++) qkvz.part_rows[i] = i < 2 ? a->Dk : group * a->Dv;
    ba.part_rows[0] = ba.part_rows[1] = group;
    qkvz.split = linear_split(a, 4, 1);
    ba.split = param_split_rows(a->Hv, a->Hv);
    param_split_append(&ba.split, a->Hv, a->Hv);
    add_matrix(d, PART_LINEAR_QKVZ, 2 * (keys + values), C, INIT_ROLE_IN, qkvz);
    add_matrix(d, PART_LINEAR_BA, 2 * a->Hv, C, INIT_ROLE_IN, ba);
    double spread = 1 / sqrt((double)a->taps); /* as PyTorch draws a convolution */
    param conv = {.rows = 1, .cols = columns * a->taps, .rank = 1, .taps = (int)a->taps};
    conv.init = (param_init){.kind = INIT_UNIFORM, .bound = spread};
    conv.split = linear_split(a, 3, a->taps);
    add(d, PART_LINEAR_CONV, ".weight", conv);
    add_of_heads(d, PART_LINEAR_A_LOG, a->Hv,
                 (param_init){.kind = INIT_UNIFORM, .bound = A_LOG_BOUND, .mean = A_LOG_MEAN});
    add_of_heads(d, PART_LINEAR_DT_BIAS, a->Hv, (param_init){.kind = INIT_ONES});
    param norm = {.rows = 1, .cols = a->Dv, .rank = 1, .init = {.kind = INIT_ONES}};
    norm.split.per_head = true;
    add(d, PART_LINEAR_NORM, ".weight", norm);
    add_matrix(d, PART_LINEAR_OUT, C, values, INIT_ROLE_ATTN_OUT, inputs_shared());
}

/* Every tensor-parallel rank makes the latents of x, for its own heads: a summand of the gradient. */
static void declare_latent(declaring *d, const attention_layer *a, model_part down, model_part norm,
                           model_part up, int64_t shared, int64_t up_width) {
    int64_t C = d->mc->hidden_size, R = down == PART_Q_A ? a->q_rank : a->kv_rank;
    param whole = {.split = {.per_head = true}}, weight = whole;
    add_matrix(d, down, R + shared, C, INIT_ROLE_IN, whole);
    if (a->qkv_bias) add_bias(d, down, R + shared, whole);
    weight.rows = 1, weight.cols = R, weight.rank = 1, weight.init.kind = INIT_ONES;
    add(d, norm, ".weight", weight);
    param heads = {.split = param_split_rows(up_width, a->H)};
    add_matrix(d, up, up_width, R, INIT_ROLE_IN, heads);
}

static void declare_latents(declaring *d, const attention_layer *a) {
    int64_t HD = a->H * a->D;
    param heads = {.split = param_split_rows(HD, a->H)};
    if (a->q_rank > 0)
        declare_latent(d, a, PART_Q_A, PART_Q_A_NORM, PART_Q_B, 0, HD);
    else
        add_matrix(d, PART_Q, HD, d->mc->hidden_size, INIT_ROLE_IN, heads);
    declare_latent(d, a, PART_KV_A, PART_KV_A_NORM, PART_KV_B, a->shared,
                   a->H * (a->D - a->shared + a->Dv));
}

static void declare_attention(declaring *d, const attention_layer *a) {
    a->kv_rank > 0 ? declare_latents(d, a) : declare_qkv(d, a);
    if (a->qk_norm != QK_NORM_NONE) {
        declare_qk_norm(d, PART_Q_NORM, a, a->H);
        declare_qk_norm(d, PART_K_NORM, a, a->K);
    }
    if (a->sinks) declare_sinks(d, a);
    add_matrix(d, PART_O, d->mc->hidden_size, a->H * a->Dv, INIT_ROLE_ATTN_OUT, inputs_shared());
    if (a->out_bias) add_bias(d, PART_O, d->mc->hidden_size, (param){0});
}

static void declare_cross_attention(declaring *d, const attention_layer *a) {
    int64_t C = d->mc->hidden_size, HD = a->H * a->D, KD = a->K * a->D;
    param queries = {.split = param_split_rows(HD, a->H)},
          keys = {.split = param_split_rows(KD, a->K)};
    char name[MODEL_NAME_BYTES];
    add_matrix(d, PART_CROSS_Q, HD, C, INIT_ROLE_QUERY, queries);
    if (a->qkv_bias) add_bias(d, PART_CROSS_Q, HD, queries);
    model_pack_name(d->mc, PART_CROSS_K, d->stored, "kv_proj.weight", name);
    param_pack_begin(d->s, name);
    for (int i = 0; i < 2; i++)
        add_matrix(d, i ? PART_CROSS_V : PART_CROSS_K, KD, C, INIT_ROLE_IN, keys);
    param_pack_end(d->s);
    if (a->qkv_bias) {
        model_pack_name(d->mc, PART_CROSS_K, d->stored, "kv_proj.bias", name);
        param_pack_begin(d->s, name);
        for (int i = 0; i < 2; i++) add_bias(d, i ? PART_CROSS_V : PART_CROSS_K, KD, keys);
        param_pack_end(d->s);
    }
    add_matrix(d, PART_CROSS_O, C, HD, INIT_ROLE_ATTN_OUT, inputs_shared());
    if (a->out_bias) add_bias(d, PART_CROSS_O, C, (param){0});
}

static void declare_gate_up(declaring *d, const mlp_layer *m) {
    const model_config *mc = d->mc;
    int64_t C = mc->hidden_size;
    param half = rows_shared(m->F), both = half;
    param_split_append(&both.split, m->F, 0);
    if (pattern_of(mc, PART_GATE_UP, d->stored)) {
        add_matrix(d, PART_GATE_UP, 2 * m->F, C, INIT_ROLE_IN, both);
        if (m->bias) add_bias(d, PART_GATE_UP, 2 * m->F, both);
        return;
    }
    char name[MODEL_NAME_BYTES];
    model_pack_name(mc, PART_GATE, d->stored, "gate_up_proj.weight", name);
    param_pack_begin(d->s, name);
    add_matrix(d, PART_GATE, m->F, C, INIT_ROLE_IN, half);
    add_matrix(d, PART_UP, m->F, C, INIT_ROLE_IN, half);
    param_pack_end(d->s);
    if (!m->bias) return;
    model_pack_name(mc, PART_GATE, d->stored, "gate_up_proj.bias", name);
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

/* What every rank has, and of whose gradient each has a summand, since it multiplies by its part of
 * what experts give. */
static param summand(void) {
    return (param){.split = {.per_head = true}};
}

/* The part beside experts that every token goes through. */
static void declare_shared(declaring *d, const mlp_layer *m) {
    int64_t C = d->mc->hidden_size;
    char name[MODEL_NAME_BYTES];
    if (m->kind == MLP_GATED) {
        model_pack_name(d->mc, PART_SHARED_GATE, d->stored, "gate_up_proj.weight", name);
        param_pack_begin(d->s, name);
        add_matrix(d, PART_SHARED_GATE, m->shared, C, INIT_ROLE_IN, rows_shared(m->shared));
    }
    add_matrix(d, PART_SHARED_UP, m->shared, C, INIT_ROLE_IN, rows_shared(m->shared));
    if (m->kind == MLP_GATED) param_pack_end(d->s);
    add_matrix(d, PART_SHARED_DOWN, C, m->shared, INIT_ROLE_MLP_OUT, inputs_shared());
    if (m->shared_gate) add_matrix(d, PART_SHARED_SCALE, 1, C, INIT_ROLE_IN, summand());
}

/* Experts whose matrices are one tensor in files: one, or all where the name has no number. */
static int64_t experts_of_tensor(const model_config *mc, const mlp_layer *m) {
    char of_layer[MODEL_NAME_BYTES];
    model_part_name(mc, PART_EXPERT_UP, 0, of_layer);
    return strstr(of_layer, "%d") ? 1 : m->E;
}

/* Matrices of all experts are a pack, so that one op multiplies them: gate and up of each expert
 * behind each other, and a pack of what comes after. In a file they are three stacks. */
static void declare_experts(declaring *d, const mlp_layer *m) {
    int64_t C = d->mc->hidden_size, n = experts_of_tensor(d->mc, m);
    op_part own = param_store_experts(d->s, m->E);
    param in = rows_shared(m->F), out = inputs_shared();
    if (n > 1) in = out = (param){.experts = n}; /* of a file for one rank */
    in.of_expert = out.of_expert = own.n < m->E;
    int first = (int)own.first, end = first + (int)own.n;
    char both[MODEL_NAME_BYTES], gate[MODEL_NAME_BYTES], up[MODEL_NAME_BYTES];
    char down[MODEL_NAME_BYTES];
    model_experts_name(d->mc, d->stored, "gate_up_proj.weight", both);
    model_experts_name(d->mc, d->stored, "gate_proj.weight", gate);
    model_experts_name(d->mc, d->stored, "up_proj.weight", up);
    model_experts_name(d->mc, d->stored, "down_proj.weight", down);
    bool gated = m->kind == MLP_GATED;
    add_matrix(d, PART_ROUTER, m->slots ? m->E * m->slots : m->E, C, INIT_ROLE_IN, summand());
    if (m->router_bias)
        add(d, PART_ROUTER_BIAS, "",
            (param){.rows = 1, .cols = m->E, .rank = 1, .init.kind = INIT_ZEROS, .by_rule = true});
    param_experts_begin(d->s, both);
    for (d->expert = first; d->expert < end; d->expert += (int)n) {
        if (gated) add_matrix(d, PART_EXPERT_GATE, n * m->F, C, INIT_ROLE_IN, in);
        add_matrix(d, PART_EXPERT_UP, n * m->F, C, INIT_ROLE_IN, in);
    }
    param_experts_end(d->s, gated ? (const char *[]){gate, up} : (const char *[]){up}, 1 + gated);
    param_experts_begin(d->s, down);
    for (d->expert = first; d->expert < end; d->expert += (int)n)
        add_matrix(d, PART_EXPERT_DOWN, n * C, m->F, INIT_ROLE_MLP_OUT, out);
    param_experts_end(d->s, (const char *[]){down}, 1);
    d->expert = 0;
    if (m->shared) declare_shared(d, m);
}

static void declare_layer(declaring *d, const layer_spec *k) {
    int64_t C = d->mc->hidden_size;
    if (k->norm_in) add_norm(d, PART_ATTN_NORM, C, (param){0});
    k->linear.Hv ? declare_linear(d, &k->linear) : declare_attention(d, &k->attn);
    if (k->norm_out) add_norm(d, PART_ATTN_OUT_NORM, C, (param){0});
    if (k->cross && k->norm_in) add_norm(d, PART_CROSS_NORM, C, (param){0});
    if (k->cross) declare_cross_attention(d, &k->attn);
    if (k->cross && k->norm_out) add_norm(d, PART_CROSS_OUT_NORM, C, (param){0});
    if (k->norm_in && !k->norm_shared) add_norm(d, PART_MLP_NORM, C, (param){0});
    k->mlp.E ? declare_experts(d, &k->mlp) : declare_mlp(d, &k->mlp);
    if (k->norm_out) add_norm(d, PART_MLP_OUT_NORM, C, (param){0});
}

static void declare_join(declaring *d) {
    int64_t C = d->mc->hidden_size;
    add_matrix(d, PART_AHEAD_JOIN, C, 2 * C, INIT_ROLE_IN, (param){0});
}

/* The backward writes the gradient of the join last. Behind a part beside experts it would be of one unit with that, which
 * is complete before attention is (begins_unit): so it stands with attention. */
static void declare_module(declaring *d, const layer_spec *k) {
    int64_t C = d->mc->hidden_size;
    bool with_attention = k->mlp.E && k->mlp.shared;
    add_norm(d, PART_AHEAD_HEAD_NORM, C, (param){0});
    if (with_attention) declare_join(d);
    declare_layer(d, k);
    if (!with_attention) declare_join(d);
    add_norm(d, PART_AHEAD_NORM, C, (param){0});
    add_norm(d, PART_AHEAD_EMBED_NORM, C, (param){0});
}

static void declare_head(declaring *d) {
    const model_config *mc = d->mc;
    int64_t V = mc->vocab_size;
    if (mc->num_labels) {
        add_matrix(d, PART_SCORE, mc->num_labels, mc->hidden_size, INIT_ROLE_HEAD, (param){0});
        return;
    }
    if (!mc->tie_word_embeddings)
        add_matrix(d, PART_HEAD, V, mc->hidden_size, INIT_ROLE_HEAD, rows_shared(V));
    if (mc->head_bias) add_bias(d, PART_HEAD, V, rows_shared(V));
}

/* copy: the stage with the first layer has it, too. */
static void declare_embed(declaring *d, bool copy) {
    const model_config *mc = d->mc;
    param shared = rows_shared(mc->vocab_size);
    shared.copy = copy;
    add_matrix(d, PART_EMBED, mc->vocab_size, mc->hidden_size, INIT_ROLE_EMBED, shared);
}

static void declare_positions(declaring *d) {
    const model_config *mc = d->mc;
    if (mc->positions == POSITIONS_LEARNED)
        add_matrix(d, PART_POSITIONS, mc->max_position_embeddings, mc->hidden_size,
                   INIT_ROLE_POSITIONS, rows_shared(mc->max_position_embeddings));
}

/* The heads of all layers of a stack share it, so they must have as many. */
static void declare_relative(declaring *d, bool encoder) {
    const model_config *mc = d->mc;
    if (mc->positions == POSITIONS_RELATIVE)
        add_matrix(d, encoder ? PART_ENCODER_RELATIVE : PART_RELATIVE, mc->relative_buckets,
                   mc->num_attention_heads, INIT_ROLE_RELATIVE, inputs_shared());
}

model_layer_range model_all_layers(const model_config *mc) {
    return (model_layer_range){0, model_layers(mc)};
}

model_layer_range model_chunk(const model_config *mc, int chunks, int i) {
    int repeat = (int)mc->block_repeat, stored = (int)mc->num_hidden_layers;
    op_part part = op_part_of(stored, chunks, i);
    return (model_layer_range){(int)part.first * repeat, (int)(part.first + part.n) * repeat};
}

static void declare_layers(declaring *d, model_layer_range layers) {
    int repeat = (int)d->mc->block_repeat, encoder = (int)d->mc->num_encoder_layers;
    for (int l = (layers.end - 1) / repeat; l >= layers.first / repeat; l--) {
        layer_spec k = model_layer(d->mc, l * repeat);
        d->stored = l;
        declare_layer(d, &k);
        d->stored = -1;
        if (l == encoder) declare_relative(d, false);
        if (encoder && l == encoder) add_norm(d, PART_ENCODER_NORM, d->mc->hidden_size, (param){0});
        if (encoder && l == 0) declare_relative(d, true);
    }
}

/* In the order in which the backward writes their gradients, what the head multiplies first: so
 * gradients fill their place from its beginning, and the rest of the frame has the space above them
 * in one piece (prog/graph.h, grads_in_frame). */
void model_declare_chunks(const model_config *mc, const model_layer_range *chunk, int n,
                          param_store *s) {
    declaring d = {.mc = mc, .s = s, .stored = -1};
    bool begins = chunk[0].first == 0, ends = chunk[n - 1].end == model_layers(mc);
    bool ahead = ends && mc->num_nextn_predict_layers > 0; /* modules read the embedding, too */
    if (ends) declare_head(&d);
    if (model_head_is_table(mc) && (begins || ends)) declare_embed(&d, !begins);
    for (int l = model_blocks(mc) - 1; ends && l >= model_layers(mc); l--) {
        layer_spec k = model_layer(mc, l);
        d.stored = k.stored;
        declare_module(&d, &k);
    }
    d.stored = -1;
    if (ends) add_norm(&d, PART_FINAL_NORM, mc->hidden_size, (param){0});
    for (int i = n - 1; i >= 0; i--) declare_layers(&d, chunk[i]);
    if (begins) declare_positions(&d);
    if ((begins || ahead) && !model_head_is_table(mc)) declare_embed(&d, !begins);
}

void model_declare(const model_config *mc, param_store *s) {
    model_layer_range all = model_all_layers(mc);
    model_declare_chunks(mc, &all, 1, s);
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

bool model_param_is_ahead(const model_config *mc, const param *p) {
    return p->layer >= mc->num_hidden_layers;
}

int64_t model_ahead_params(const model_config *mc, const param_store *s) {
    int64_t n = 0;
    for (int i = 0; i < param_count(s); i++)
        if (model_param_is_ahead(mc, param_at(s, i))) n += param_whole_elems(param_at(s, i));
    return n;
}

/* Neither of a layer nor a matrix at an end: positions, last norms, biases of heads, and those that only choose experts. */
static bool is_left_out(const param *p) {
    return p->part == PART_POSITIONS || p->part == PART_FINAL_NORM ||
           p->part == PART_ENCODER_NORM || p->part == PART_ROUTER_BIAS ||
           (p->part == PART_HEAD && p->rank == 1);
}

int64_t model_active_params(const model_config *mc, const param_store *s) {
    int64_t n = 0, of_experts = 0;
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        if (model_param_is_ahead(mc, p) || is_left_out(p)) continue;
        *(model_part_of_expert(p->part) ? &of_experts : &n) += param_whole_elems(p);
    }
    if (mc->router == ROUTER_SOFT) return n + of_experts; /* all read something of each token */
    return of_experts ? n + of_experts / mc->num_experts * mc->num_experts_per_tok : n;
}

/* ---- tensor parallelism ---- */

static status check_layer_ranks(const layer_spec *k, int l, int tp, err *e) {
    int64_t H = k->attn.H, K = k->attn.K, F = k->mlp.F;
    const linear_layer *a = &k->linear;
    if (a->Hv && (a->Hv % tp || !param_run_divides(a->Hk * a->Dk, a->Hk, tp)))
        return err_set(e, ST_USAGE,
                       "%lld value heads and %lld key heads of the linear layer %d do not divide "
                       "over %d tensor-parallel ranks",
                       (long long)a->Hv, (long long)a->Hk, l, tp);
    if (a->Hv == 0 && (H % tp || !param_run_divides(K * k->attn.D, K, tp)))
        return err_set(e, ST_USAGE,
                       "%lld heads and %lld key/value heads of layer %d do not divide over %d "
                       "tensor-parallel ranks",
                       (long long)H, (long long)K, l, tp);
    if (k->mlp.slots)
        return err_set(e, ST_USAGE,
                       "layer %d has soft experts, whose slots tensor-parallel ranks do not share",
                       l);
    if (F % tp == 0) F = k->mlp.shared;
    if (F % tp)
        return err_set(e, ST_USAGE,
                       "the feed-forward width %lld of layer %d does not divide over %d "
                       "tensor-parallel ranks",
                       (long long)F, l, tp);
    return ST_OK;
}

static int64_t learned_positions(const model_config *mc) {
    return mc->positions == POSITIONS_LEARNED ? mc->max_position_embeddings : 0;
}

/* Each rank has rows of every table. */
static status check_tables(const model_config *mc, int tp, err *e) {
    int64_t V = mc->vocab_size, positions = learned_positions(mc);
    if (V < tp)
        return err_set(e, ST_USAGE,
                       "a vocabulary of %lld tokens does not reach %d tensor-parallel ranks",
                       (long long)V, tp);
    if (positions > 0 && positions < tp)
        return err_set(e, ST_USAGE, "%lld learned positions do not reach %d tensor-parallel ranks",
                       (long long)positions, tp);
    return ST_OK;
}

bool model_ranks_are_alike(const model_config *mc, int tp) {
    return mc->vocab_size % tp == 0 && learned_positions(mc) % tp == 0;
}

static status check_ranks(const model_config *mc, int tp, err *e) {
    TRY(check_tables(mc, tp, e));
    for (int l = 0; l < model_blocks(mc) && tp > 1; l++) {
        layer_spec k = model_layer(mc, l);
        TRY(check_layer_ranks(&k, l, tp, e));
    }
    return ST_OK;
}

status model_check_ranks(const model_config *mc, int tp, err *e) {
    if (check_ranks(mc, tp, e) == ST_OK) return ST_OK;
    int fits = tp - 1; /* a divisor, since the ranks that there are must divide by it, too */
    while (tp % fits != 0 || check_ranks(mc, fits, NULL) != ST_OK) fits--;
    err_where(e, "parallel.tp");
    return err_hint(e, "parallel.tp=%d divides them", fits);
}
