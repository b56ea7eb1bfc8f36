/* model_config to metadata, and the comparison with what a reader will make of them.
 *
 * Reading order: gguf_config_for, gguf_config_write, gguf_config_compare. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/gguf/gguf_config.h"
#include "model/config_keys.h"

/* ---- the model that the file will hold ---- */

static status differs(const model_config *mc, const char *key, err *e) {
    err_set(e, ST_USAGE, "llama.cpp's architecture %s cannot express the model's %s",
            mc->family->gguf_arch, key);
    err_hint(e, "export it as a Hugging Face folder");
    return err_where(e, "model.%s", key);
}

/* What the architecture always has is added, zeros or a copy; what it never has must not be there.
 */
static status resolve(const gguf_arch *arch, const model_config *mc, model_config *out, err *e) {
    bool head;
    const struct {
        const char *key;
        gguf_need need;
        bool own, *out;
    } parts[] = {{"tie_word_embeddings", arch->head, !mc->tie_word_embeddings, &head},
                 {"qkv_bias", arch->qkv_bias, mc->qkv_bias, &out->qkv_bias},
                 {"attention_bias", arch->out_bias, mc->attention_bias, &out->attention_bias},
                 {"mlp_bias", arch->mlp_bias, mc->mlp_bias, &out->mlp_bias},
                 {"head_bias", arch->head_bias, mc->head_bias, &out->head_bias}};
    for (int i = 0; i < ARRAY_LEN(parts); i++) {
        if (parts[i].need == GGUF_NEVER && parts[i].own) return differs(mc, parts[i].key, e);
        *parts[i].out = parts[i].own || parts[i].need == GGUF_MUST;
    }
    out->tie_word_embeddings = !head;
    if (arch->norm_bias == GGUF_MUST) out->norm_weights = NORM_WEIGHTS_WB;
    return ST_OK;
}

/* Architectures that may rotate a part of a head: with a file of another one llama.cpp aborts. */
static const char in_part[] = "qwen qwen3next gemma2 gemma3 openelm phi2 gptneox";

static bool rotated_in_part(const model_config *mc) {
    bool rotary = mc->positions == POSITIONS_ROTARY && mc->kv_lora_rank == 0;
    return rotary && model_rope(mc, false).rotary_dim < mc->head_dim;
}

/* Architectures whose heads are together as wide as the stream, and those of them that have a key and a value for each. */
static const char as_wide[] = "gpt2 gptneox olmo olmo2 olmoe phi2 qwen qwen2";
static const char of_each_head[] = "olmoe qwen";

/* What llama.cpp takes from the first layer for all, but in OpenELM; it opens no file in which that is otherwise. */
static const char *differs_by_layer(const model_config *mc) {
    layer_spec first = model_layer(mc, 0);
    for (int l = 1; l < model_layers(mc); l++) {
        layer_spec k = model_layer(mc, l);
        if (k.attn.H != first.attn.H) return "num_attention_heads";
        if (k.attn.K != first.attn.K) return "num_key_value_heads";
        if (k.mlp.E == 0 && first.mlp.E == 0 && k.mlp.F != first.mlp.F) return "intermediate_size";
    }
    return NULL;
}

/* Shapes of its tensors that llama.cpp works out from others. */
static const char *shapes_lack(const gguf_arch *arch, const model_config *mc) {
    attention_layer k = model_layer(mc, 0).attn;
    if (key_in_words(as_wide, arch->name) && k.H * k.D != mc->hidden_size) return "head_dim";
    if (key_in_words(of_each_head, arch->name) && k.H != k.K) return "num_key_value_heads";
    return strcmp(arch->name, "openelm") == 0 ? NULL : differs_by_layer(mc);
}

/* Latents are in all layers, or in none, and so are experts. */
static status check_layers(const gguf_arch *arch, const model_config *mc, err *e) {
    int with = 0;
    bool latents = arch->experts & GGUF_LATENTS, encoder = arch->experts & GGUF_ENCODER;
    const char *lacks = encoder                       ? gguf_encoder_lacks(mc)
                        : arch->experts & GGUF_LINEAR ? gguf_linear_lacks(mc)
                                                      : NULL;
    if (lacks) return differs(mc, lacks, e);
    if (!encoder && mc->num_encoder_layers) return differs(mc, "num_encoder_layers", e);
    if (latents != (mc->kv_lora_rank > 0)) return differs(mc, "kv_lora_rank", e);
    if (latents && mc->positions != POSITIONS_ROTARY) return differs(mc, "position_type", e);
    if (latents && mc->rope_interleaved != arch->pairs) return differs(mc, "rope_interleaved", e);
    if (strcmp(arch->name, "minicpm3") == 0 && mc->q_lora_rank == 0)
        return differs(mc, "q_lora_rank", e);
    if (rotated_in_part(mc) && !key_in_words(in_part, arch->name))
        return differs(mc, "partial_rotary_factor", e);
    if ((lacks = shapes_lack(arch, mc)) != NULL) return differs(mc, lacks, e);
    if (arch->experts & GGUF_EXPERTS_DEEPSEEK) {
        const char *key = gguf_deepseek_lacks(mc);
        return key ? differs(mc, key, e) : ST_OK;
    }
    for (int l = 0; l < model_layers(mc); l++) with += model_layer(mc, l).mlp.E > 0;
    if (with > 0 && !arch->experts) return differs(mc, "num_experts", e);
    if (with == 0 && arch->experts & ~(GGUF_EXPERTS_MAY | GGUF_LATENTS | GGUF_ENCODER))
        return differs(mc, "num_experts", e);
    return with > 0 && with < model_layers(mc) ? differs(mc, "expert_layers", e) : ST_OK;
}

/* llama.cpp has no scaling of Qwen 1: its files end where that begins. */
static void end_at_trained_length(model_config *mc) {
    mc->max_position_embeddings = model_plain_tokens(mc);
    if (mc->rope.kind == ROPE_DOUBLING) mc->rope = (rope_scaling){0};
    mc->logn_length = 0;
}

status gguf_config_for(const model_config *mc, model_config *out, err *e) {
    const gguf_arch *arch = gguf_arch_find(mc->family->gguf_arch);
    if (!arch) {
        err_set(e, ST_USAGE, "no GGUF file, for llama.cpp, is written of model_type %s",
                mc->family->model_type);
        return err_hint(e, "export it as a Hugging Face folder");
    }
    TRY(check_layers(arch, mc, e));
    *out = *mc;
    gguf_name_parts(arch, arch->fused, out);
    out->gguf_order = true;
    out->rope_interleaved = arch->pairs;
    end_at_trained_length(out);
    return resolve(arch, mc, out, e);
}

/* ---- keys ---- */

typedef struct writing {
    const model_config *mc;
    const gguf_arch *arch;
    gguf_pairs *p;
    char key[128];
} writing;

static const char *full_key(writing *w, const char *key) {
    snprintf(w->key, sizeof w->key, "%s.%s", w->arch->name, key);
    return w->key;
}

static void put_int(writing *w, const char *key, int64_t x) {
    gguf_put_u32(w->p, full_key(w, key), (uint32_t)x);
}

static void put_num(writing *w, const char *key, double x) {
    gguf_put_f32(w->p, full_key(w, key), (float)x);
}

static void put_layers(writing *w, const char *key, int64_t all, const int64_t *of, int64_t times) {
    if (!of) {
        put_int(w, key, all * times);
        return;
    }
    int64_t n = w->mc->num_hidden_layers;
    int32_t list[4096];
    for (int64_t l = 0; l < n; l++) list[l] = (int32_t)(of[l] * times);
    gguf_put_array(w->p, full_key(w, key), GGUF_I32, list, (uint64_t)n);
}

static void put_widths(writing *w) {
    const model_config *mc = w->mc;
    mlp_layer m = model_layer(mc, model_layers(mc) - 1).mlp; /* the first may be dense */
    if (m.E == 0) {
        put_layers(w, "feed_forward_length", mc->intermediate_size, mc->intermediate_size_of,
                   w->arch->ffn_parts);
        return;
    }
    bool own = w->arch->experts & GGUF_EXPERTS_OWN_WIDTH;
    put_int(w, "feed_forward_length", own ? mc->intermediate_size : m.F);
    if (own) put_int(w, "expert_feed_forward_length", m.F);
    put_int(w, "expert_count", m.E);
    put_int(w, "expert_used_count", m.k);
}

static void put_sizes(writing *w) {
    const model_config *mc = w->mc;
    if (w->arch->experts & GGUF_ENCODER)
        gguf_encoder_write(mc, w->arch, w->p);
    else
        put_int(w, "block_count", mc->num_hidden_layers);
    put_int(w, "context_length", mc->max_position_embeddings);
    put_int(w, "embedding_length", mc->hidden_size);
    put_int(w, "vocab_size", mc->vocab_size);
    put_widths(w);
    put_layers(w, "attention.head_count", mc->num_attention_heads, mc->num_attention_heads_of, 1);
    if (mc->kv_lora_rank > 0) {
        gguf_latents_write(mc, w->arch, w->p);
    } else {
        put_layers(w, "attention.head_count_kv", mc->num_key_value_heads,
                   mc->num_key_value_heads_of, 1);
        put_int(w, "attention.key_length", mc->head_dim);
        put_int(w, "attention.value_length", mc->head_dim);
    }
    put_num(w,
            w->arch->layer_norm ? "attention.layer_norm_epsilon"
                                : "attention.layer_norm_rms_epsilon",
            mc->norm_eps);
}

/* llama.cpp takes beta_fast and beta_slow from files of few architectures; here it computes with 32
 * and 1, so others are left out, and are found to differ. */
static void put_yarn(writing *w, const rope_spec *s) {
    const rope_scaling *c = &s->scaling;
    double unused[512], usual = c->factor <= 1 ? 1 : 0.1 * log(c->factor) + 1;
    double amplitude = rope_frequencies(s, 1, unused);
    if (fabs(amplitude / usual - 1) > 1e-9)
        put_num(w, "rope.scaling.attn_factor", amplitude / usual);
}

static void put_scaling(writing *w, const rope_spec *s) {
    static const char *const types[] = {
        [ROPE_LINEAR] = "linear", [ROPE_YARN] = "yarn", [ROPE_LONGROPE] = "longrope"};
    const rope_scaling *c = &s->scaling;
    int64_t original = c->original_max_position_embeddings > 0 ? c->original_max_position_embeddings
                                                               : s->max_positions;
    if (c->kind != ROPE_LINEAR && c->kind != ROPE_YARN && c->kind != ROPE_LONGROPE) return;
    gguf_put_string(w->p, full_key(w, "rope.scaling.type"), types[c->kind]);
    if (c->kind == ROPE_LINEAR) {
        put_num(w, "rope.scaling.factor", c->factor);
        return;
    }
    put_int(w, "rope.scaling.original_context_length", original);
    if (c->kind == ROPE_YARN) {
        rope_spec own = *s;
        if (own.scaling.factor <= 0)
            own.scaling.factor = (double)s->max_positions / (double)original;
        put_num(w, "rope.scaling.factor", own.scaling.factor);
        if (!(w->arch->experts & GGUF_EXPERTS_DEEPSEEK)) put_yarn(w, &own);
        return;
    }
    double unused[512];
    put_num(w, "rope.scaling.attn_factor", rope_frequencies(s, 1, unused));
}

static void put_rotary(writing *w) {
    rope_spec s = model_rope(w->mc, false);
    if (w->mc->positions != POSITIONS_ROTARY) return;
    put_int(w, "rope.dimension_count", s.rotary_dim);
    put_num(w, "rope.freq_base", s.theta);
    put_scaling(w, &s);
}

static void put_windows(writing *w) {
    const model_config *mc = w->mc;
    int64_t n = mc->num_hidden_layers;
    bool local[4096];
    if (!w->arch->window_every || mc->sliding_window <= 0) return;
    for (int64_t l = 0; l < n; l++)
        local[l] = !mc->sliding_window_of || mc->sliding_window_of[l] > 0;
    put_int(w, "attention.sliding_window", mc->sliding_window);
    gguf_put_array(w->p, full_key(w, "attention.sliding_window_pattern"), GGUF_BOOL, local,
                   (uint64_t)n);
    put_num(w, "rope.freq_base_swa",
            mc->rope_local_theta > 0 ? mc->rope_local_theta : mc->rope_theta);
}

/* What one architecture has alone. */
static void put_own(writing *w) {
    const model_config *mc = w->mc;
    const char *name = w->arch->name;
    if (w->arch->experts & GGUF_EXPERTS_DEEPSEEK) gguf_deepseek_write(mc, w->arch, w->p);
    if (w->arch->experts & GGUF_LINEAR) gguf_linear_write(mc, w->arch, w->p);
    /* Gemma 2 without a cap cannot be said: a missing key means the published one. */
    if (strcmp(name, "gemma2") == 0 && mc->attn_softcap > 0)
        put_num(w, "attn_logit_softcapping", mc->attn_softcap);
    if (mc->final_softcap > 0) put_num(w, "final_logit_softcapping", mc->final_softcap);
    if (strcmp(name, "olmo") == 0 && mc->clip_qkv > 0)
        put_num(w, "attention.clamp_kqv", mc->clip_qkv);
    if (strcmp(name, "gptneox") == 0)
        gguf_put_bool(w->p, full_key(w, "use_parallel_residual"),
                      mc->residual != RESIDUAL_SEQUENTIAL);
    if (strcmp(name, "minicpm") != 0) return;
    put_num(w, "embedding_scale", mc->scale_emb);
    put_num(w, "residual_scale", model_layer(mc, 0).branch_scale);
    put_num(w, "logit_scale",
            mc->dim_model_base > 0 ? (double)mc->hidden_size / (double)mc->dim_model_base : 1.0);
}

/* llama.cpp has one GELU for both; which one the model was trained with is a key of ours. */
static void put_act(const model_config *mc, gguf_pairs *p) {
    model_config usual;
    model_config_defaults(&usual, mc->family);
    const char *word = key_act_word(mc->act, mc->family->activations);
    if (mc->act != usual.act && word) gguf_put_string(p, GGUF_KEY_ACT, word);
}

void gguf_config_write(const model_config *mc, gguf_pairs *p) {
    writing w = {.mc = mc, .arch = gguf_arch_find(mc->family->gguf_arch), .p = p};
    put_sizes(&w);
    put_rotary(&w);
    put_windows(&w);
    put_own(&w);
    put_act(mc, p);
}

/* ---- what a reader will compute ---- */

/* The first field of a layer that differs; NULL: none. Numbers are those of floats. */
static const char *layer_difference(const layer_spec *a, const layer_spec *b) {
    const struct {
        const char *key;
        double a, b;
    } fields[] = {
        {"num_attention_heads", (double)a->attn.H, (double)b->attn.H},
        {"num_key_value_heads", (double)a->attn.K, (double)b->attn.K},
        {"head_dim", (double)a->attn.D, (double)b->attn.D},
        {"kv_lora_rank", (double)a->attn.kv_rank, (double)b->attn.kv_rank},
        {"q_lora_rank", (double)a->attn.q_rank, (double)b->attn.q_rank},
        {"qk_rope_head_dim", (double)a->attn.shared, (double)b->attn.shared},
        {"v_head_dim", (double)a->attn.Dv, (double)b->attn.Dv},
        {"qkv_bias", a->attn.qkv_bias, b->attn.qkv_bias},
        {"attention_bias", a->attn.out_bias, b->attn.out_bias},
        {"qk_norm", a->attn.qk_norm, b->attn.qk_norm},
        {"no_rope_layers", a->attn.rotary, b->attn.rotary},
        {"query_pre_attn_scalar", a->attn.scale, b->attn.scale},
        {"attn_logit_softcapping", a->attn.softcap, b->attn.softcap},
        {"clip_qkv", a->attn.clip, b->attn.clip},
        {"sliding_window", (double)a->attn.window, (double)b->attn.window},
        {"attention_chunk_size", (double)a->attn.chunk, (double)b->attn.chunk},
        {"attention_sinks", a->attn.sinks, b->attn.sinks},
        {"attn_output_gate", a->attn.gate, b->attn.gate},
        {"linear_layers", (double)a->linear.Hv, (double)b->linear.Hv},
        {"norm_placement", a->norm_in + 2 * a->norm_out, b->norm_in + 2 * b->norm_out},
        {"residual_type", a->parallel + 2 * a->norm_shared, b->parallel + 2 * b->norm_shared},
        {"scale_depth", a->branch_scale, b->branch_scale},
        {"mlp_type", a->mlp.kind, b->mlp.kind},
        {a->mlp.E ? "moe_intermediate_size" : "intermediate_size", (double)a->mlp.F,
         (double)b->mlp.F},
        {"num_experts", (double)a->mlp.E, (double)b->mlp.E},
        {"num_experts_per_tok", (double)a->mlp.k, (double)b->mlp.k},
        {"norm_topk_prob", a->mlp.router.renormalise, b->mlp.router.renormalise},
        {"router", a->mlp.router.sigmoid, b->mlp.router.sigmoid},
        {"router_bias", a->mlp.router_bias, b->mlp.router_bias},
        {"router_groups", a->mlp.router.groups, b->mlp.router.groups},
        {"router_groups_kept", a->mlp.router.kept, b->mlp.router.kept},
        {"router_group_best", a->mlp.router.best, b->mlp.router.best},
        {"routed_scaling_factor", (double)a->mlp.router.scale, (double)b->mlp.router.scale},
        {"shared_expert_intermediate_size", (double)a->mlp.shared, (double)b->mlp.shared},
        {"shared_expert_gate", a->mlp.shared_gate, b->mlp.shared_gate},
        {"mlp_bias", a->mlp.bias, b->mlp.bias},
    };
    for (int i = 0; i < ARRAY_LEN(fields); i++)
        if (fabs(fields[i].a - fields[i].b) > 1e-6 * fabs(fields[i].a)) return fields[i].key;
    return NULL;
}

/* The activation that llama.cpp computes is the one that the family is known for. */
static bool act_is_known(const model_config *mc) {
    model_config usual;
    model_config_defaults(&usual, mc->family);
    if (mc->num_encoder_layers) return true; /* gguf_encoder_lacks has looked */
    bool gelu = mc->act == ACT_GELU_EXACT || mc->act == ACT_GELU_TANH;
    return mc->act == usual.act ||
           (gelu && (usual.act == ACT_GELU_EXACT || usual.act == ACT_GELU_TANH));
}

static bool same_rope(const model_config *a, const model_config *b, bool local) {
    rope_spec x = model_rope(a, local), y = model_rope(b, local);
    double p[512], q[512];
    if (x.rotary_dim != y.rotary_dim) return false;
    for (int i = 0; i < 2; i++) {
        int64_t length = i ? a->max_position_embeddings : 1;
        double one = rope_frequencies(&x, length, p), two = rope_frequencies(&y, length, q);
        if (fabs(one / two - 1) > 1e-5) return false;
        for (int k = 0; k < x.rotary_dim / 2; k++)
            if (fabs(p[k] / q[k] - 1) > 1e-5) return false;
    }
    return true;
}

static const char *model_difference(const model_config *a, const model_config *b) {
    const struct {
        const char *key;
        double a, b;
    } fields[] = {
        {"vocab_size", (double)a->vocab_size, (double)b->vocab_size},
        {"hidden_size", (double)a->hidden_size, (double)b->hidden_size},
        {"num_hidden_layers", (double)a->num_hidden_layers, (double)b->num_hidden_layers},
        {"num_encoder_layers", (double)a->num_encoder_layers, (double)b->num_encoder_layers},
        {"relative_attention_num_buckets", (double)a->relative_buckets,
         (double)b->relative_buckets},
        {"scale_decoder_outputs", a->scale_decoder_outputs, b->scale_decoder_outputs},
        {"block_repeat", (double)a->block_repeat, (double)b->block_repeat},
        {"max_position_embeddings", (double)a->max_position_embeddings,
         (double)b->max_position_embeddings},
        {"position_type", a->positions, b->positions},
        {"norm_type", a->norm, b->norm},
        {"norm_weights", a->norm_weights, b->norm_weights},
        {"rms_norm_eps", a->norm_eps, b->norm_eps},
        {"tie_word_embeddings", a->tie_word_embeddings, b->tie_word_embeddings},
        {"head_bias", a->head_bias, b->head_bias},
        {"scale_attn_weights", a->scale_attn_weights, b->scale_attn_weights},
        {"scale_attn_by_inverse_layer_idx", a->scale_attn_by_layer, b->scale_attn_by_layer},
        {"scale_emb", a->scale_emb, b->scale_emb},
        {"dim_model_base", (double)a->dim_model_base, (double)b->dim_model_base},
        {"final_logit_softcapping", a->final_softcap, b->final_softcap}};
    for (int i = 0; i < ARRAY_LEN(fields); i++)
        if (fabs(fields[i].a - fields[i].b) > 1e-6 * fabs(fields[i].a)) return fields[i].key;
    return a->act == b->act && act_is_known(a) ? NULL : "hidden_act";
}

status gguf_config_compare(const model_config *mc, const model_config *read, err *e) {
    const char *key = model_difference(mc, read);
    bool rotary[2] = {false, false};
    for (int l = 0; l < model_layers(mc) && !key; l++) {
        layer_spec a = model_layer(mc, l), b = model_layer(read, l);
        key = layer_difference(&a, &b);
        if (a.attn.rotary) rotary[a.attn.local] = true;
        if (!key && a.attn.local != b.attn.local && a.attn.rotary) key = "rope_local_base_freq";
    }
    for (int i = 0; i < 2 && !key; i++)
        if (rotary[i] && !same_rope(mc, read, i)) key = i ? "rope_local_base_freq" : "rope_scaling";
    return key ? differs(mc, key, e) : ST_OK;
}
