/* GPT-2 (Radford et al. 2019): learned positions, LayerNorm with bias, GELU, biases everywhere,
 * tied head. Files hold the four projection matrices as [in,out] (Conv1D). */
#include "model/blocks.h"

#include <math.h>
#include <stdio.h>

static void gpt2_defaults(model_config *mc) {
    mc->vocab_size = 50257;
    mc->hidden_size = 768;
    mc->num_hidden_layers = 12;
    mc->num_attention_heads = 12;
    mc->max_position_embeddings = 1024;
    mc->norm_eps = 1e-5;
    mc->initializer_range = 0.02;
    mc->tie_word_embeddings = true;
    mc->act = ACT_GELU_TANH;
}

static status gpt2_check(model_config *mc, err *e) {
    if (mc->hidden_size % mc->num_attention_heads != 0) {
        err_set(e, ST_USAGE, "hidden_size %ld is not a multiple of num_attention_heads %ld",
                (long)mc->hidden_size, (long)mc->num_attention_heads);
        err_where(e, "model.num_attention_heads");
        return err_hint(e, "choose a divisor of %ld", (long)mc->hidden_size);
    }
    if (mc->intermediate_size == 0) mc->intermediate_size = 4 * mc->hidden_size;
    mc->head_dim = mc->hidden_size / mc->num_attention_heads;
    mc->num_key_value_heads = mc->num_attention_heads;
    return ST_OK;
}

static void declare_layer(const model_config *mc, param_store *s, int l) {
    int64_t C = mc->hidden_size, F = mc->intermediate_size;
    double std = mc->initializer_range;
    double residual_std = std / sqrt(2.0 * (double)mc->num_hidden_layers);
    char name[128];
    snprintf(name, sizeof name, "transformer.h.%d.ln_1", l);
    block_declare_norm(s, name, C, true);
    snprintf(name, sizeof name, "transformer.h.%d.attn.c_attn", l);
    block_declare_linear(s, name, 3 * C, C, true, std, true);
    snprintf(name, sizeof name, "transformer.h.%d.attn.c_proj", l);
    block_declare_linear(s, name, C, C, true, residual_std, true);
    snprintf(name, sizeof name, "transformer.h.%d.ln_2", l);
    block_declare_norm(s, name, C, true);
    snprintf(name, sizeof name, "transformer.h.%d.mlp.c_fc", l);
    block_declare_linear(s, name, F, C, true, std, true);
    snprintf(name, sizeof name, "transformer.h.%d.mlp.c_proj", l);
    block_declare_linear(s, name, C, F, true, residual_std, true);
}

static void gpt2_declare(const model_config *mc, param_store *s) {
    int64_t C = mc->hidden_size;
    double std = mc->initializer_range;
    block_declare_table(s, "transformer.wte", mc->vocab_size, C, std);
    block_declare_table(s, "transformer.wpe", mc->max_position_embeddings, C, std);
    for (int l = 0; l < mc->num_hidden_layers; l++) declare_layer(mc, s, l);
    block_declare_norm(s, "transformer.ln_f", C, true);
    if (!mc->tie_word_embeddings)
        block_declare_linear(s, "lm_head", mc->vocab_size, C, false, std, false);
}

static val gpt2_embed(model_rec *r) {
    val tok = graph_embed(r->g, model_param(r, "transformer.wte.weight"), r->ids);
    val pos = graph_embed(r->g, model_param(r, "transformer.wpe.weight"), r->pos);
    val x = graph_add(r->g, tok, pos);
    graph_name(r->g, x, "transformer.embedding");
    return graph_dropout(r->g, x, (float)r->mc->embd_pdrop);
}

static val norm(model_rec *r, const char *prefix, val x) {
    val w = model_param(r, "%s.weight", prefix), b = model_param(r, "%s.bias", prefix);
    val y = graph_layernorm(r->g, x, w, b, (float)r->mc->norm_eps);
    graph_name(r->g, y, "%s", prefix);
    return y;
}

static val gpt2_block(model_rec *r, int l, val x) {
    const model_config *mc = r->mc;
    char name[128];
    snprintf(name, sizeof name, "transformer.h.%d.ln_1", l);
    val h = norm(r, name, x);
    snprintf(name, sizeof name, "transformer.h.%d.attn.c_attn", l);
    val qkv = block_linear(r, name, h);
    val o = block_attention(r, l, qkv, (float)mc->attn_pdrop);
    snprintf(name, sizeof name, "transformer.h.%d.attn.c_proj", l);
    val a = graph_dropout(r->g, block_linear(r, name, o), (float)mc->resid_pdrop);
    x = graph_add(r->g, x, a);
    snprintf(name, sizeof name, "transformer.h.%d.ln_2", l);
    h = norm(r, name, x);
    snprintf(name, sizeof name, "transformer.h.%d.mlp.c_fc", l);
    h = graph_act(r->g, block_linear(r, name, h), mc->act);
    snprintf(name, sizeof name, "transformer.h.%d.mlp.c_proj", l);
    a = graph_dropout(r->g, block_linear(r, name, h), (float)mc->resid_pdrop);
    return graph_add(r->g, x, a);
}

static val gpt2_head(model_rec *r, val x) {
    return norm(r, "transformer.ln_f", x);
}

static const char *gpt2_head_weight(const model_config *mc) {
    return mc->tie_word_embeddings ? "transformer.wte.weight" : "lm_head.weight";
}

static void gpt2_write_config(const model_config *mc, json_t *o) {
    json_object_set_new(o, "n_embd", json_integer(mc->hidden_size));
    json_object_set_new(o, "n_layer", json_integer(mc->num_hidden_layers));
    json_object_set_new(o, "n_head", json_integer(mc->num_attention_heads));
    json_object_set_new(o, "n_positions", json_integer(mc->max_position_embeddings));
    json_object_set_new(o, "n_ctx", json_integer(mc->max_position_embeddings));
    json_object_set_new(o, "n_inner", json_integer(mc->intermediate_size));
    json_object_set_new(o, "activation_function",
                        json_string(mc->act == ACT_GELU_EXACT ? "gelu"
                                    : mc->act == ACT_RELU     ? "relu"
                                                              : "gelu_new"));
    json_object_set_new(o, "layer_norm_epsilon", json_real(mc->norm_eps));
    json_object_set_new(o, "embd_pdrop", json_real(mc->embd_pdrop));
    json_object_set_new(o, "attn_pdrop", json_real(mc->attn_pdrop));
    json_object_set_new(o, "resid_pdrop", json_real(mc->resid_pdrop));
}

const model_family family_gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .keys = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
            "max_position_embeddings rms_norm_eps initializer_range tie_word_embeddings "
            "embd_pdrop attn_pdrop resid_pdrop",
    .activations = "gelu_new gelu_pytorch_tanh gelu relu",
    .defaults = gpt2_defaults,
    .check = gpt2_check,
    .declare = gpt2_declare,
    .embed = gpt2_embed,
    .block = gpt2_block,
    .head = gpt2_head,
    .head_weight = gpt2_head_weight,
    .write_config = gpt2_write_config,
};
