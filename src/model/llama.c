/* Llama (Touvron et al. 2023): pre-norm RMSNorm, rotary positions in halves, grouped-query
 * attention, SwiGLU. Covers Llama 2 and 3.x, TinyLlama, MicroLlama, SmolLM2 and every other
 * checkpoint of model_type "llama". */
#include "model/blocks.h"

#include <stdio.h>
#include <string.h>

static void llama_defaults(model_config *mc) {
    mc->vocab_size = 32000;
    mc->hidden_size = 4096;
    mc->num_hidden_layers = 32;
    mc->num_attention_heads = 32;
    mc->intermediate_size = 11008;
    mc->max_position_embeddings = 2048;
    mc->norm_eps = 1e-6;
    mc->rope_theta = 1e4;
    mc->initializer_range = 0.02;
    mc->act = ACT_SILU;
}

static status llama_check(model_config *mc, err *e) {
    if (mc->num_key_value_heads == 0) mc->num_key_value_heads = mc->num_attention_heads;
    if (mc->head_dim == 0 && mc->hidden_size % mc->num_attention_heads != 0) {
        err_set(e, ST_USAGE, "hidden_size %ld is not a multiple of num_attention_heads %ld",
                (long)mc->hidden_size, (long)mc->num_attention_heads);
        err_where(e, "model.num_attention_heads");
        return err_hint(e, "choose a divisor of %ld, or give head_dim", (long)mc->hidden_size);
    }
    if (mc->head_dim == 0) mc->head_dim = mc->hidden_size / mc->num_attention_heads;
    if (mc->num_attention_heads % mc->num_key_value_heads != 0) {
        err_set(e, ST_USAGE, "num_attention_heads %ld is not a multiple of num_key_value_heads %ld",
                (long)mc->num_attention_heads, (long)mc->num_key_value_heads);
        err_where(e, "model.num_key_value_heads");
        return err_hint(e, "choose a divisor of %ld", (long)mc->num_attention_heads);
    }
    if (mc->head_dim % 2 != 0) {
        err_set(e, ST_USAGE, "head_dim %ld is odd, rotary positions need pairs",
                (long)mc->head_dim);
        err_where(e, "model.head_dim");
        return err_hint(e, "use %ld", (long)mc->head_dim + 1);
    }
    return ST_OK;
}

static void declare_layer(const model_config *mc, param_store *s, int l) {
    int64_t C = mc->hidden_size, F = mc->intermediate_size, D = mc->head_dim;
    int64_t HD = mc->num_attention_heads * D, KD = mc->num_key_value_heads * D;
    double std = mc->initializer_range;
    const block_part qkv[] = {{"q", HD}, {"k", KD}, {"v", KD}};
    const block_part gate_up[] = {{"gate", F}, {"up", F}};
    char name[128];
    snprintf(name, sizeof name, "model.layers.%d.input_layernorm", l);
    block_declare_norm(s, name, C, false);
    snprintf(name, sizeof name, "model.layers.%d.self_attn", l);
    block_declare_packed(s, name, "qkv_proj", qkv, 3, C, mc->attention_bias, std);
    snprintf(name, sizeof name, "model.layers.%d.self_attn.o_proj", l);
    block_declare_linear(s, name, C, HD, mc->attention_bias, std, false);
    snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm", l);
    block_declare_norm(s, name, C, false);
    snprintf(name, sizeof name, "model.layers.%d.mlp", l);
    block_declare_packed(s, name, "gate_up_proj", gate_up, 2, C, mc->mlp_bias, std);
    snprintf(name, sizeof name, "model.layers.%d.mlp.down_proj", l);
    block_declare_linear(s, name, C, F, mc->mlp_bias, std, false);
}

static void llama_declare(const model_config *mc, param_store *s) {
    block_declare_table(s, "model.embed_tokens", mc->vocab_size, mc->hidden_size,
                        mc->initializer_range);
    for (int l = 0; l < mc->num_hidden_layers; l++) declare_layer(mc, s, l);
    block_declare_norm(s, "model.norm", mc->hidden_size, false);
    if (!mc->tie_word_embeddings)
        block_declare_linear(s, "lm_head", mc->vocab_size, mc->hidden_size, false,
                             mc->initializer_range, false);
}

static val llama_embed(model_rec *r) {
    val x = graph_embed(r->g, model_param(r, "model.embed_tokens.weight"), r->ids);
    graph_name(r->g, x, "model.embed_tokens");
    return x;
}

static val norm(model_rec *r, const char *prefix, val x) {
    val w = model_param(r, "%s.weight", prefix);
    val y = graph_rmsnorm(r->g, x, w, (float)r->mc->norm_eps, false);
    graph_name(r->g, y, "%s", prefix);
    return y;
}

static val llama_block(model_rec *r, int l, val x) {
    const model_config *mc = r->mc;
    int D = (int)mc->head_dim, rotated = (int)(mc->num_attention_heads + mc->num_key_value_heads);
    int64_t F = mc->intermediate_size;
    char name[128];
    snprintf(name, sizeof name, "model.layers.%d.input_layernorm", l);
    val h = norm(r, name, x);
    snprintf(name, sizeof name, "model.layers.%d.self_attn.qkv_proj", l);
    val qkv = block_linear(r, name, h);
    qkv = graph_rope(r->g, qkv, r->pos, r->rope, rotated, D, D, false);
    val o = block_attention(r, l, qkv, (float)mc->attn_pdrop);
    snprintf(name, sizeof name, "model.layers.%d.self_attn.o_proj", l);
    x = graph_add(r->g, x, block_linear(r, name, o));
    snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm", l);
    h = norm(r, name, x);
    snprintf(name, sizeof name, "model.layers.%d.mlp.gate_up_proj", l);
    val gu = block_linear(r, name, h);
    val a = graph_gated(r->g, graph_view(r->g, gu, 0, F), graph_view(r->g, gu, F, F), mc->act);
    graph_name(r->g, a, "model.layers.%d.mlp.act", l);
    snprintf(name, sizeof name, "model.layers.%d.mlp.down_proj", l);
    return graph_add(r->g, x, block_linear(r, name, a));
}

static val llama_head(model_rec *r, val x) {
    return norm(r, "model.norm", x);
}

static const char *llama_head_weight(const model_config *mc) {
    return mc->tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
}

static json_t *rope_json(const model_config *mc, bool with_theta) {
    json_t *o = json_object();
    static const char *const kinds[] = {"default", "linear", "llama3"};
    json_object_set_new(o, "rope_type", json_string(kinds[mc->rope.kind]));
    if (with_theta) json_object_set_new(o, "rope_theta", json_real(mc->rope_theta));
    if (mc->rope.kind != ROPE_PLAIN) json_object_set_new(o, "factor", json_real(mc->rope.factor));
    if (mc->rope.kind == ROPE_LLAMA3) {
        json_object_set_new(o, "low_freq_factor", json_real(mc->rope.low_freq_factor));
        json_object_set_new(o, "high_freq_factor", json_real(mc->rope.high_freq_factor));
        json_object_set_new(o, "original_max_position_embeddings",
                            json_integer(mc->rope.original_max_position_embeddings));
    }
    return o;
}

static void llama_write_config(const model_config *mc, json_t *o) {
    json_object_set_new(o, "hidden_size", json_integer(mc->hidden_size));
    json_object_set_new(o, "intermediate_size", json_integer(mc->intermediate_size));
    json_object_set_new(o, "num_hidden_layers", json_integer(mc->num_hidden_layers));
    json_object_set_new(o, "num_attention_heads", json_integer(mc->num_attention_heads));
    json_object_set_new(o, "num_key_value_heads", json_integer(mc->num_key_value_heads));
    json_object_set_new(o, "head_dim", json_integer(mc->head_dim));
    json_object_set_new(o, "hidden_act", json_string("silu"));
    json_object_set_new(o, "max_position_embeddings", json_integer(mc->max_position_embeddings));
    json_object_set_new(o, "rms_norm_eps", json_real(mc->norm_eps));
    /* transformers 4 reads rope_theta and rope_scaling, transformers 5 rope_parameters: both are
     * written */
    json_object_set_new(o, "rope_theta", json_real(mc->rope_theta));
    json_object_set_new(o, "rope_scaling",
                        mc->rope.kind == ROPE_PLAIN ? json_null() : rope_json(mc, false));
    json_object_set_new(o, "rope_parameters", rope_json(mc, true));
    json_object_set_new(o, "attention_bias", json_boolean(mc->attention_bias));
    json_object_set_new(o, "attention_dropout", json_real(mc->attn_pdrop));
    json_object_set_new(o, "mlp_bias", json_boolean(mc->mlp_bias));
}

const model_family family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .keys = "vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads "
            "head_dim intermediate_size max_position_embeddings rms_norm_eps rope_theta "
            "initializer_range tie_word_embeddings attention_bias mlp_bias attn_pdrop",
    .activations = "silu swish",
    .defaults = llama_defaults,
    .check = llama_check,
    .declare = llama_declare,
    .embed = llama_embed,
    .block = llama_block,
    .head = llama_head,
    .head_weight = llama_head_weight,
    .write_config = llama_write_config,
    .rotary = true,
};
