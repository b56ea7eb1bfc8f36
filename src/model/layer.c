#include "model/layer.h"

#include <math.h>

int model_layers(const model_config *mc) {
    return (int)(mc->num_hidden_layers * mc->block_repeat);
}

int model_blocks(const model_config *mc) {
    return model_layers(mc) + (int)mc->num_nextn_predict_layers;
}

int model_encoder_layers(const model_config *mc) {
    return (int)(mc->num_encoder_layers * mc->block_repeat);
}

static int64_t of_layer(const int64_t *of, int64_t all, int l) {
    return of ? of[l] : all;
}

/* What the scores of stored layer l are multiplied by. YaRN of DeepSeek: by the square of a factor of its own, too
 * (DeepseekV3Attention of transformers). */
static double score_scale(const model_config *mc, int l) {
    double width = mc->query_pre_attn_scalar > 0 ? mc->query_pre_attn_scalar : (double)mc->head_dim;
    double scale = mc->scale_attn_weights ? 1.0 / sqrt(width) : 1.0, factor = 1;
    if (mc->kv_lora_rank > 0) {
        rope_spec s = model_rope(mc, false);
        factor = rope_score_factor(&s);
    }
    scale *= factor * factor;
    return mc->scale_attn_by_layer ? scale / (l + 1) : scale;
}

static void add_latents(const model_config *mc, attention_layer *a) {
    a->K = a->H;
    a->kv_rank = mc->kv_lora_rank;
    a->q_rank = mc->q_lora_rank;
    a->shared = mc->qk_rope_head_dim;
    a->Dv = mc->v_head_dim;
}

static attention_layer attention_of(const model_config *mc, int l) {
    int64_t window = of_layer(mc->sliding_window_of, mc->sliding_window, l);
    attention_layer a = {
        .H = of_layer(mc->num_attention_heads_of, mc->num_attention_heads, l),
        .K = of_layer(mc->num_key_value_heads_of, mc->num_key_value_heads, l),
        .kv_copies = 1,
        .D = mc->head_dim,
        .qkv_bias = mc->qkv_bias,
        .out_bias = mc->attention_bias,
        .qk_norm = (qk_norm_kind)mc->qk_norm,
        .causal = l >= mc->num_encoder_layers,
        .relative = mc->positions == POSITIONS_RELATIVE,
        .rotary = mc->positions == POSITIONS_ROTARY &&
                  of_layer(mc->rope_layers_of, mc->rope_layers, l) != 0,
        .interleaved = mc->rope_interleaved,
        .local = window > 0 && mc->rope_local_theta > 0,
        .scale = score_scale(mc, l),
        .softcap = mc->attn_softcap,
        .clip = mc->clip_qkv,
        .window = window,
        .chunk = of_layer(mc->attention_chunk_size_of, mc->attention_chunk_size, l),
        .gate = mc->attn_output_gate,
        .sinks = mc->attention_sinks,
        .Dv = mc->head_dim,
    };
    if (mc->kv_lora_rank > 0) add_latents(mc, &a);
    return a;
}

int64_t model_cache_cols(const attention_layer *a, int tp) {
    if (a->kv_rank > 0) return a->kv_rank + a->shared;
    return model_local_kv_heads(a, tp) * (a->D + a->Dv);
}

static linear_layer linear_of(const model_config *mc, int l) {
    if (of_layer(mc->linear_layers_of, mc->linear_layers, l) == 0) return (linear_layer){0};
    return (linear_layer){.Hk = mc->linear_num_key_heads,
                          .Hv = mc->linear_num_value_heads,
                          .Dk = mc->linear_key_head_dim,
                          .Dv = mc->linear_value_head_dim,
                          .taps = mc->linear_conv_kernel_dim};
}

bool model_has_states(const model_config *mc) {
    for (int l = 0; l < mc->num_hidden_layers; l++)
        if (of_layer(mc->linear_layers_of, mc->linear_layers, l) != 0) return true;
    return false;
}

static op_router router_of(const model_config *mc) {
    bool groups = mc->router_groups > 1;
    return (op_router){.experts = (int32_t)mc->num_experts,
                       .k = (int32_t)mc->num_experts_per_tok,
                       .groups = groups ? (int32_t)mc->router_groups : 0,
                       .kept = groups ? (int32_t)mc->router_groups_kept : 0,
                       .best = groups ? (int32_t)mc->router_group_best : 0,
                       .scale = (float)mc->routed_scaling_factor,
                       .sigmoid = mc->router == ROUTER_SIGMOID,
                       .renormalise = mc->norm_topk_prob};
}

static mlp_layer mlp_of(const model_config *mc, int l) {
    bool experts = mc->num_experts > 0 && of_layer(mc->expert_layers_of, mc->expert_layers, l) != 0;
    mlp_layer m = {.kind = (mlp_kind)mc->mlp,
                   .act = mc->act,
                   .F = of_layer(mc->intermediate_size_of, mc->intermediate_size, l),
                   .bias = mc->mlp_bias,
                   .dropout = mc->num_encoder_layers ? mc->resid_pdrop : 0};
    if (!experts) return m;
    m.E = mc->num_experts;
    m.k = mc->num_experts_per_tok;
    m.router = router_of(mc);
    m.slots = mc->router == ROUTER_SOFT ? mc->slots_per_expert : 0;
    m.router_bias = mc->router_bias;
    if (mc->moe_intermediate_size > 0) m.F = mc->moe_intermediate_size;
    m.shared = mc->shared_expert_intermediate_size;
    if (m.shared == 0) m.shared = mc->num_shared_experts * m.F;
    m.shared_gate = m.shared > 0 && mc->shared_expert_gate;
    return m;
}

layer_spec model_layer(const model_config *mc, int l) {
    int stored = l / (int)mc->block_repeat, like = stored, layers = model_layers(mc);
    if (l >= layers) {
        stored = (int)mc->num_hidden_layers + l - layers;
        like = (int)mc->num_hidden_layers - 1;
    }
    double branch = 1.0;
    if (mc->scale_depth > 0) branch = mc->scale_depth / sqrt((double)mc->num_hidden_layers);
    return (layer_spec){
        .stored = stored,
        .cross = mc->num_encoder_layers > 0 && stored >= mc->num_encoder_layers,
        .norm_in = mc->norm_place != NORM_POST,
        .norm_out = mc->norm_place != NORM_PRE,
        .norm_shared = mc->residual == RESIDUAL_PARALLEL_SHARED,
        .parallel = mc->residual != RESIDUAL_SEQUENTIAL,
        .branch_scale = branch,
        .attn = attention_of(mc, like),
        .linear = linear_of(mc, like),
        .mlp = mlp_of(mc, like),
    };
}

int64_t model_slots(const model_config *mc) {
    for (int l = 0; l < model_encoder_layers(mc); l++) {
        mlp_layer m = model_layer(mc, l).mlp;
        if (m.slots) return m.E * m.slots;
    }
    return 0;
}

int32_t model_decoder_start(const model_config *mc) {
    int64_t id = mc->decoder_start_id >= 0 ? mc->decoder_start_id : mc->pad_token_id;
    return id > 0 && id < mc->vocab_size ? (int32_t)id : 0;
}

int64_t model_max_tokens(const model_config *mc) {
    int64_t most = mc->max_position_embeddings, from = mc->rope.original_max_position_embeddings;
    bool stretches = mc->rope.kind == ROPE_DYNAMIC || mc->rope.kind == ROPE_YARN;
    if (mc->positions != POSITIONS_ROTARY || !stretches) return most;
    double reach = mc->rope.factor * (double)(from > 0 ? from : most);
    return reach > (double)most && reach < 1e9 ? (int64_t)reach : most;
}

int64_t model_plain_tokens(const model_config *mc) {
    int64_t most = mc->max_position_embeddings, from = mc->rope.original_max_position_embeddings;
    if (mc->rope.kind == ROPE_DOUBLING && from < most) most = from;
    return mc->logn_length > 0 && mc->logn_length < most ? mc->logn_length : most;
}

rope_spec model_rope(const model_config *mc, bool local) {
    double share = (double)mc->head_dim * mc->partial_rotary_factor;
    return (rope_spec){.theta = local ? mc->rope_local_theta : mc->rope_theta,
                       .rotary_dim =
                           (int)(mc->kv_lora_rank ? mc->qk_rope_head_dim : (int64_t)share),
                       .max_positions = mc->max_position_embeddings,
                       .logn_length = mc->logn_length,
                       .scaling = local ? (rope_scaling){0} : mc->rope};
}
