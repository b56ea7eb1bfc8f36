/* A model's options that depend on several keys: what is left out is derived, and what does not go together is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_file.h"
#include "model/config_keys.h"

static status not_multiple(const char *key, int64_t a, const char *of, int64_t b, err *e) {
    err_set(e, ST_USAGE, "%s %ld is not a multiple of %s %ld", key, (long)a, of, (long)b);
    err_hint(e, "choose a divisor of %ld", (long)a);
    return config_at_key(e, of);
}

/* Options that do not go with latent attention, since keys are never made one by one in generation. */
static status check_latents(const model_config *mc, err *e) {
    const struct {
        const char *key;
        bool set;
        const char *why;
    } others[] = {
        {"qk_norm", mc->qk_norm != QK_NORM_NONE,
         "keys are not made one by one when a model writes"},
        {"clip_qkv", mc->clip_qkv > 0, "keys are not made one by one when a model writes"},
        {"partial_rotary_factor", mc->partial_rotary_factor != 1,
         "qk_rope_head_dim says how much of a key is rotated"},
        {"attn_output_gate", mc->attn_output_gate, "its queries have no gate beside them"},
        {"num_encoder_layers", mc->num_encoder_layers > 0,
         "an encoder's keys are read by another stack"},
        {"position_type", mc->positions == POSITIONS_RELATIVE,
         "its cache has no place for biases by distance"},
    };
    for (int i = 0; i < ARRAY_LEN(others); i++) {
        if (!others[i].set) continue;
        err_set(e, ST_USAGE, "%s does not go with latent attention (kv_lora_rank): %s",
                others[i].key, others[i].why);
        err_hint(e, "leave %s out", others[i].key);
        return config_at_key(e, others[i].key);
    }
    return ST_OK;
}

/* Widths of latent attention, of which head_dim is the sum. All heads have keys of their own. */
static status derive_latents(model_config *mc, err *e) {
    const char *missing = mc->qk_nope_head_dim == 0   ? "qk_nope_head_dim"
                          : mc->qk_rope_head_dim == 0 ? "qk_rope_head_dim"
                                                      : NULL;
    if (missing) {
        err_set(e, ST_USAGE, "latent attention (kv_lora_rank) needs %s", missing);
        err_hint(e, "published models have qk_nope_head_dim=128 and qk_rope_head_dim=64");
        return config_at_key(e, missing);
    }
    if (mc->kv_lora_rank + mc->qk_rope_head_dim > OP_MAX_HEAD_DIM) {
        err_set(e, ST_USAGE, "kv_lora_rank %ld and qk_rope_head_dim %ld are together more than %d",
                (long)mc->kv_lora_rank, (long)mc->qk_rope_head_dim, OP_MAX_HEAD_DIM);
        return config_at_key(e, "kv_lora_rank");
    }
    if (mc->v_head_dim == 0) mc->v_head_dim = mc->qk_nope_head_dim;
    mc->head_dim = mc->qk_nope_head_dim + mc->qk_rope_head_dim;
    mc->num_key_value_heads = mc->num_attention_heads;
    mc->num_key_value_heads_of = mc->num_attention_heads_of;
    return check_latents(mc, e);
}

static status check_heads(model_config *mc, err *e) {
    if (mc->num_key_value_heads == 0) {
        mc->num_key_value_heads = mc->num_attention_heads;
        mc->num_key_value_heads_of = mc->num_attention_heads_of;
    }
    if (mc->kv_lora_rank > 0) TRY(derive_latents(mc, e));
    if (mc->head_dim == 0 && mc->num_attention_heads_of) {
        err_set(e, ST_USAGE, "numbers of heads differ by layer, so head_dim must be given");
        err_hint(e, "for example model.head_dim=64");
        return config_at_key(e, "head_dim");
    }
    if (mc->head_dim == 0 && mc->hidden_size % mc->num_attention_heads != 0) {
        not_multiple("hidden_size", mc->hidden_size, "num_attention_heads", mc->num_attention_heads,
                     e);
        return err_hint(e, "choose a divisor of %ld, or give head_dim", (long)mc->hidden_size);
    }
    if (mc->head_dim == 0) mc->head_dim = mc->hidden_size / mc->num_attention_heads;
    for (int l = 0; l < mc->num_hidden_layers; l++) {
        attention_layer a = model_layer(mc, l * (int)mc->block_repeat).attn;
        if (a.H % a.K != 0)
            return not_multiple("num_attention_heads", a.H, "num_key_value_heads", a.K, e);
    }
    return ST_OK;
}

static status check_rotary(const model_config *mc, err *e) {
    bool whole = mc->positions == POSITIONS_ROTARY && mc->partial_rotary_factor >= 1 &&
                 mc->kv_lora_rank == 0;
    if (mc->logn_length > 0 && !whole) {
        err_set(e, ST_USAGE, "logn_attn_length is of queries that are rotated as a whole");
        err_hint(e, "use position_type: rotary, partial_rotary_factor: 1 and no kv_lora_rank, or "
                    "leave it out");
        return config_at_key(e, "logn_attn_length");
    }
    if (mc->logn_length == 1) {
        err_set(e, ST_USAGE, "logn_attn_length is 1, whose logarithm divides nothing");
        err_hint(e, "use the length that the model was trained on");
        return config_at_key(e, "logn_attn_length");
    }
    if (mc->positions != POSITIONS_ROTARY) return ST_OK;
    rope_spec s = model_rope(mc, false);
    if (mc->kv_lora_rank > 0 && mc->qk_rope_head_dim % 2 != 0) {
        err_set(e, ST_USAGE, "qk_rope_head_dim %ld is odd, rotary positions need pairs",
                (long)mc->qk_rope_head_dim);
        err_hint(e, "use %ld", (long)mc->qk_rope_head_dim + 1);
        return config_at_key(e, "qk_rope_head_dim");
    }
    if (mc->kv_lora_rank == 0 && mc->partial_rotary_factor >= 1 && mc->head_dim % 2 != 0) {
        err_set(e, ST_USAGE, "head_dim %ld is odd, rotary positions need pairs",
                (long)mc->head_dim);
        err_hint(e, "use %ld", (long)mc->head_dim + 1);
        return config_at_key(e, "head_dim");
    }
    if (s.rotary_dim < 2) {
        err_set(e, ST_USAGE, "partial_rotary_factor %g leaves no pair of head_dim %ld to rotate",
                mc->partial_rotary_factor, (long)mc->head_dim);
        err_hint(e, "use at least %g", 2.0 / (double)mc->head_dim);
        return config_at_key(e, "partial_rotary_factor");
    }
    if (mc->rope_local_theta > 0 && mc->rope_local_theta < 1) {
        err_set(e, ST_USAGE, "rope_local_base_freq is %g, and bases begin at 1",
                mc->rope_local_theta);
        err_hint(e, "0 means the base of the other layers");
        return config_at_key(e, "rope_local_base_freq");
    }
    return rope_check(&s, e);
}

/* RMSNorm has no bias, LayerNorm no (1 + w): what the user said of one decides the other. */
static status check_norm(const json_t *all, model_config *mc, err *e) {
    int misfit = mc->norm == NORM_RMS ? NORM_WEIGHTS_WB : NORM_WEIGHTS_OFFSET;
    if (mc->norm_weights != misfit) return ST_OK;
    if (!json_object_get(all, "norm_weights")) {
        mc->norm_weights = NORM_WEIGHTS_W;
        return ST_OK;
    }
    err_set(e, ST_USAGE, "norm_weights %s does not go with norm_type %s",
            mc->norm == NORM_RMS ? "bias" : "offset", mc->norm == NORM_RMS ? "rms" : "layer");
    err_hint(e, "use norm_weights: weight");
    return config_at_key(e, "norm_weights");
}

static status check_groups(const model_config *mc, err *e) {
    int64_t groups = mc->router_groups, of_group = groups ? mc->num_experts / groups : 0;
    if (groups <= 1) return ST_OK;
    if (mc->num_experts % groups)
        return not_multiple("num_experts", mc->num_experts, "router_groups", groups, e);
    if (mc->router_group_best > of_group) {
        err_set(e, ST_USAGE, "a group of %ld experts has no %ld best ones", (long)of_group,
                (long)mc->router_group_best);
        err_hint(e, "use at most %ld", (long)of_group);
        return config_at_key(e, "router_group_best");
    }
    if (mc->router_groups_kept > groups ||
        mc->router_groups_kept * of_group < mc->num_experts_per_tok) {
        err_set(e, ST_USAGE, "%ld of %ld groups have no %ld experts of a token",
                (long)mc->router_groups_kept, (long)groups, (long)mc->num_experts_per_tok);
        int64_t least = (mc->num_experts_per_tok + of_group - 1) / of_group;
        err_hint(e, "use %ld to %ld", (long)least, (long)groups);
        return config_at_key(e, "router_groups_kept");
    }
    return ST_OK;
}

/* Slots mix all tokens of a text. */
static status check_soft(const model_config *mc, err *e) {
    if (mc->router_bias || mc->router_groups > 1) {
        err_set(e, ST_USAGE, "router soft picks no experts: it has no bias and no groups");
        return config_at_key(e, mc->router_bias ? "router_bias" : "router_groups");
    }
    if (mc->num_shared_experts > 0 || mc->shared_expert_intermediate_size > 0) {
        err_set(e, ST_USAGE, "beside router soft there are no shared experts");
        err_hint(e, "every expert works on tokens of all texts; leave the key out");
        return config_at_key(e, mc->num_shared_experts > 0 ? "num_shared_experts"
                                                           : "shared_expert_intermediate_size");
    }
    for (int64_t l = mc->num_encoder_layers; l < mc->num_hidden_layers; l++) {
        if (!model_layer(mc, (int)(l * mc->block_repeat)).mlp.E) continue;
        err_set(e, ST_USAGE,
                "layer %ld is a decoder's, whose tokens would see later ones through router soft",
                (long)l);
        err_hint(e, "soft experts belong into the layers of an encoder (t5): expert_layers with 1 "
                    "for these and 0 for the others");
        return config_at_key(e, "router");
    }
    return ST_OK;
}

static status check_experts(const model_config *mc, err *e) {
    if (mc->num_experts == 0) return ST_OK;
    if (mc->router != ROUTER_SOFT && mc->num_experts_per_tok > mc->num_experts) {
        err_set(e, ST_USAGE, "a token goes through %ld experts, and there are %ld",
                (long)mc->num_experts_per_tok, (long)mc->num_experts);
        err_hint(e, "use at most %ld", (long)mc->num_experts);
        return config_at_key(e, "num_experts_per_tok");
    }
    if (mc->mlp_bias) {
        err_set(e, ST_USAGE, "experts have no biases");
        return config_at_key(e, "mlp_bias");
    }
    if (mc->router == ROUTER_SOFT) return check_soft(mc, e);
    return check_groups(mc, e);
}

static status check_relative(const model_config *mc, err *e) {
    if (mc->positions != POSITIONS_RELATIVE) return ST_OK;
    if (mc->num_attention_heads_of) {
        err_set(e, ST_USAGE,
                "biases by distance are shared by all layers, whose numbers of heads differ");
        err_hint(e, "give all layers as many heads, or another position_type");
        return config_at_key(e, "position_type");
    }
    int64_t of_side = mc->num_encoder_layers ? mc->relative_buckets / 2 : mc->relative_buckets;
    if (of_side < 2) {
        err_set(e, ST_USAGE, "%ld buckets are too few for distances to both sides",
                (long)mc->relative_buckets);
        err_hint(e, "use at least 4");
        return config_at_key(e, "relative_attention_num_buckets");
    }
    int64_t most = mc->relative_buckets / 2;
    if (mc->relative_distance > most) return ST_OK;
    err_set(
        e, ST_USAGE,
        "relative_attention_max_distance %ld is below the %ld distances that have a bucket each",
        (long)mc->relative_distance, (long)most);
    err_hint(e, "use at least %ld", (long)most + 1);
    return config_at_key(e, "relative_attention_max_distance");
}

/* An encoder and a decoder. */
static status check_encoder(const model_config *mc, err *e) {
    if (mc->num_encoder_layers == 0) return ST_OK;
    if (!mc->family->encoder_names[PART_Q]) {
        err_set(e, ST_USAGE, "%s models have no encoder", mc->family->model_type);
        err_hint(e, "model_type: t5 has one, and takes every option");
        return config_at_key(e, "num_encoder_layers");
    }
    if (mc->num_encoder_layers >= mc->num_hidden_layers) {
        err_set(e, ST_USAGE, "all %ld layers are the encoder's, and none the decoder's",
                (long)mc->num_hidden_layers);
        return config_at_key(e, "num_encoder_layers");
    }
    if (mc->residual != RESIDUAL_SEQUENTIAL) {
        err_set(e, ST_USAGE,
                "a decoder that looks at an encoder has its branches one after the other");
        err_hint(e, "use residual_type: sequential");
        return config_at_key(e, "residual_type");
    }
    if (mc->num_nextn_predict_layers > 0) {
        err_set(e, ST_USAGE, "modules that predict further tokens do not go with an encoder");
        err_hint(e, "leave num_nextn_predict_layers out");
        return config_at_key(e, "num_nextn_predict_layers");
    }
    if (mc->num_experts > 0 && mc->router_aux_loss_coef > 0) {
        err_set(e, ST_USAGE,
                "the loss that keeps the load of experts even does not go with an encoder");
        err_hint(e, "use router_aux_loss_coef: 0");
        return config_at_key(e, "router_aux_loss_coef");
    }
    bool pad = mc->decoder_start_id < 0;
    int64_t start = pad ? mc->pad_token_id : mc->decoder_start_id;
    if (start >= mc->vocab_size) {
        err_set(e, ST_USAGE, "the decoder begins with the token %lld, ids are below %lld",
                (long long)start, (long long)mc->vocab_size);
        err_hint(e, pad ? "give pad_token_id or decoder_start_id" : "give one of the vocabulary");
        return config_at_key(e, pad ? "pad_token_id" : "decoder_start_id");
    }
    if (model_has_states(mc)) {
        err_set(e, ST_USAGE, "a model with an encoder has no linear layers");
        err_hint(e, "leave linear_layers out");
        return config_at_key(e, "linear_layers");
    }
    for (int64_t l = 0; l < mc->num_encoder_layers; l++) {
        attention_layer a = model_layer(mc, (int)(l * mc->block_repeat)).attn;
        if (a.window == 0 && a.chunk == 0) continue;
        err_set(e, ST_USAGE, "layer %ld of the encoder has a %s, which looks back only", (long)l,
                a.window > 0 ? "window" : "chunk");
        err_hint(e, "give %ss by layer, 0 in the encoder", a.window > 0 ? "window" : "chunk");
        return config_at_key(e, a.window > 0 ? "sliding_window" : "attention_chunk_size");
    }
    return ST_OK;
}

/* Beyond this, bytes of weights, their gradients and moments would not be counted in 64 bits. */
#define PARAMS_MAX 1e15

static status check_size(const model_config *mc, err *e) {
    double C = (double)mc->hidden_size, n = 0;
    for (int l = 0; l < mc->num_hidden_layers; l++) {
        layer_spec k = model_layer(mc, l * (int)mc->block_repeat);
        double heads = 2.0 * (double)((k.attn.H + k.attn.K) * k.attn.D);
        if (k.linear.Hv)
            heads = 3.0 * (double)(k.linear.Hk * k.linear.Dk + k.linear.Hv * k.linear.Dv);
        double F = (double)k.mlp.F * (double)(k.mlp.E ? k.mlp.E : 1) + (double)k.mlp.shared;
        n += C * (heads + 3.0 * F);
    }
    n += C * (2.0 * (double)mc->vocab_size + (double)mc->max_position_embeddings);
    if (n <= PARAMS_MAX) return ST_OK;
    err_set(e, ST_USAGE, "these sizes make about %.1e parameters, more than %.0e", n, PARAMS_MAX);
    err_hint(e, "check hidden_size, intermediate_size, the heads and the number of layers");
    return config_at_key(e, "hidden_size");
}

static status check_linear(const model_config *mc, err *e) {
    if (!model_has_states(mc)) return ST_OK;
    if (mc->linear_num_value_heads % mc->linear_num_key_heads != 0)
        return not_multiple("linear_num_value_heads", mc->linear_num_value_heads,
                            "linear_num_key_heads", mc->linear_num_key_heads, e);
    return ST_OK;
}

/* A config.json that has a width of experts has no word for "as wide as other parts". */
static void settle_expert_width(model_config *mc) {
    bool said = key_in_words(mc->family->keys, "moe_intermediate_size");
    if (said && mc->num_experts > 0 && mc->moe_intermediate_size == 0 && !mc->intermediate_size_of)
        mc->moe_intermediate_size = mc->intermediate_size;
}

status config_settle(const json_t *all, model_config *mc, err *e) {
    TRY(check_norm(all, mc, e));
    if (json_object_get(all, "attention_bias") && !json_object_get(all, "qkv_bias"))
        mc->qkv_bias = mc->attention_bias;
    if (mc->family->derive) mc->family->derive(mc);
    if (mc->intermediate_size == 0) mc->intermediate_size = 4 * mc->hidden_size;
    settle_expert_width(mc);
    TRY(check_heads(mc, e));
    TRY(check_experts(mc, e));
    TRY(check_relative(mc, e));
    TRY(check_encoder(mc, e));
    TRY(check_linear(mc, e));
    TRY(check_size(mc, e));
    return check_rotary(mc, e);
}
