/* T5 1.0 and 1.1 (Raffel et al. 2020; Shazeer 2020), Flan-T5 and ChatLM-mini: an encoder and a decoder that looks at it; biases by
 * distance in place of positions; scores are not scaled. 1.0 has ReLU and a tied head that reads x / sqrt(C); 1.1 a gated GELU and
 * a head of its own, and so has mT5 (Xue et al. 2021), a family of its own because it never scales what its head reads.
 * config.json counts the layers of the encoder (num_layers) and of the decoder. */
#include <stdio.h>
#include <string.h>

#include "model/config_keys.h"
#include "model/families/hf.h"

static void t5_defaults(model_config *mc) {
    mc->vocab_size = 32128;
    mc->hidden_size = 512;
    mc->num_hidden_layers = 12;
    mc->num_encoder_layers = 6;
    mc->num_attention_heads = 8;
    mc->head_dim = 64;
    mc->intermediate_size = 2048;
    mc->max_position_embeddings = 512;
    mc->positions = POSITIONS_RELATIVE;
    mc->query_pre_attn_scalar = 1;
    mc->norm_eps = 1e-6;
    mc->mlp = MLP_PLAIN;
    mc->act = ACT_RELU;
    mc->tie_word_embeddings = true;
    mc->scale_decoder_outputs = true;
    mc->pad_token_id = 0;
    mc->init = INIT_SCHEME_T5;
    mc->initializer_range = 1;
    mc->embd_pdrop = mc->attn_pdrop = mc->resid_pdrop = 0.1;
}

static void mt5_defaults(model_config *mc) {
    t5_defaults(mc);
    mc->vocab_size = 250112;
    mc->num_hidden_layers = 16;
    mc->num_encoder_layers = 8;
    mc->num_attention_heads = 6;
    mc->intermediate_size = 1024;
    mc->mlp = MLP_GATED;
    mc->act = ACT_GELU_TANH;
    mc->tie_word_embeddings = false;
    mc->scale_decoder_outputs = false;
    mc->decoder_start_id = 0; /* whatever pads */
}

/* Layers of both stacks become one number, `usual` of each where none is said; in our own words (num_encoder_layers is said) it is one already. */
static status read_layers(json_t *o, int64_t layers, int64_t usual, err *e) {
    json_t *v = json_object_get(o, "num_decoder_layers");
    int64_t encoder = json_object_get(o, "num_hidden_layers") ? layers : usual;
    int64_t decoder = v && !json_is_null(v) ? json_integer_value(v) : encoder;
    if (decoder < 1 || encoder + decoder > 4096)
        return hf_bad_value(e, "num_decoder_layers", "a whole number from 1 on");
    json_object_del(o, "num_decoder_layers");
    if (json_object_get(o, "num_encoder_layers")) return ST_OK;
    json_object_set_new(o, "num_encoder_layers", json_integer(encoder));
    json_object_set_new(o, "num_hidden_layers", json_integer(encoder + decoder));
    return ST_OK;
}

/* What transformers writes beside feed_forward_proj, and obeys where it says something else. */
static status check_beside(json_t *o, bool gated, const char *act, err *e) {
    static const char wanted[] = "what feed_forward_proj says";
    const json_t *word = json_object_get(o, "dense_act_fn"),
                 *gate = json_object_get(o, "is_gated_act");
    const char *said = json_string_value(word);
    act_kind a, b;
    bool same = said && key_act_find(said, &a) && key_act_find(act, &b) && a == b;
    if (word && !same) return hf_bad_value(e, "dense_act_fn", wanted);
    if (gate && json_is_true(gate) != gated) return hf_bad_value(e, "is_gated_act", wanted);
    hf_drop(o, "dense_act_fn is_gated_act");
    return ST_OK;
}

/* "gated-gelu", "relu": the kind of feed-forward part and its activation. */
static status read_projection(json_t *o, const char *usual, err *e) {
    static const char key[] = "feed_forward_proj", gate[] = "gated-";
    const json_t *v = json_object_get(o, key);
    const char *word = v ? json_string_value(v) : usual;
    if (!word) return hf_bad_value(e, key, "a word like gated-gelu or relu");
    bool gated = strncmp(word, gate, strlen(gate)) == 0;
    const char *act = gated ? word + strlen(gate) : word;
    if (gated && strcmp(act, "gelu") == 0) act = "gelu_new";
    TRY(check_beside(o, gated, act, e));
    if (!v) return ST_OK;
    if (!json_object_get(o, "mlp_type"))
        json_object_set_new(o, "mlp_type", json_string(gated ? "gated" : "plain"));
    if (!json_object_get(o, "hidden_act")) json_object_set_new(o, "hidden_act", json_string(act));
    json_object_del(o, key);
    return ST_OK;
}

static void read_dropout(json_t *o) {
    static const char *const parts[] = {"embd_pdrop", "attn_pdrop", "resid_pdrop"};
    json_t *rate = json_object_get(o, "dropout_rate");
    if (!rate) return;
    for (int i = 0; i < ARRAY_LEN(parts); i++)
        if (!json_object_get(o, parts[i])) json_object_set(o, parts[i], rate);
    json_object_del(o, "dropout_rate");
}

static status read_keys(json_t *o, int64_t layers, int64_t usual, const char *projection, err *e) {
    TRY(read_layers(o, layers, usual, e));
    TRY(read_projection(o, projection, e));
    read_dropout(o);
    hf_rename(o, "initializer_factor", "initializer_range");
    hf_rename(o, "decoder_start_token_id", "decoder_start_id");
    if (json_is_false(json_object_get(o, "is_encoder_decoder"))) /* other masks there */
        return hf_bad_value(e, "is_encoder_decoder", "true");
    hf_drop(o, "is_encoder_decoder");
    return ST_OK;
}

static status t5_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    TRY(read_keys(o, layers, 6, "relu", e));
    /* version 1.1 says so by its head */
    const json_t *tied = json_object_get(o, "tie_word_embeddings");
    if (tied && !json_object_get(o, "scale_decoder_outputs"))
        json_object_set_new(o, "scale_decoder_outputs", json_boolean(!json_is_false(tied)));
    return ST_OK;
}

static status mt5_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    return read_keys(o, layers, 8, "gated-gelu", e);
}

static const char *projection_of(const model_config *mc, char out[64]) {
    const char *act = key_act_word(mc->act, NULL);
    bool gated = mc->mlp == MLP_GATED;
    if (gated && mc->act == ACT_GELU_TANH) return "gated-gelu";
    if (gated && mc->act == ACT_GELU_EXACT) return "gated-gelu_python";
    snprintf(out, 64, "%s%s", gated ? "gated-" : "", act);
    return out;
}

static void mt5_to_hf(const model_config *mc, json_t *o) {
    char projection[64];
    int64_t start = mc->decoder_start_id >= 0 ? mc->decoder_start_id : mc->pad_token_id;
    hf_write(mc, o,
             "d_model d_kv d_ff num_heads n_positions relative_attention_num_buckets "
             "relative_attention_max_distance layer_norm_epsilon");
    hf_int(o, "num_layers", mc->num_encoder_layers);
    hf_int(o, "num_decoder_layers", mc->num_hidden_layers - mc->num_encoder_layers);
    hf_num(o, "dropout_rate", mc->resid_pdrop);
    hf_num(o, "initializer_factor", mc->initializer_range);
    hf_word(o, "feed_forward_proj", projection_of(mc, projection));
    hf_bool(o, "is_encoder_decoder", true);
    hf_int(o, "decoder_start_token_id", start > 0 ? start : 0);
}

static void t5_to_hf(const model_config *mc, json_t *o) {
    mt5_to_hf(mc, o);
    hf_write(mc, o, "scale_decoder_outputs");
}

/* One rate of dropout for all places. */
static bool t5_can_say(const model_config *mc, const char *option) {
    if (strcmp(option, "embd_pdrop") == 0) return mc->embd_pdrop == mc->resid_pdrop;
    return strcmp(option, "attn_pdrop") != 0 || mc->attn_pdrop == mc->resid_pdrop;
}

#define STACK(name) name ".block.%d.layer."

/* clang-format off */
#define T5_KEYS \
    MODEL_KEYS_OF_ALL \
    "num_encoder_layers head_dim intermediate_size relative_attention_num_buckets " \
    "relative_attention_max_distance rms_norm_eps mlp_type decoder_start_id embd_pdrop " \
    "attn_pdrop resid_pdrop "

#define T5_NAMES \
    { \
        [PART_EMBED] = "shared", \
        [PART_HEAD] = "lm_head", \
        [PART_RELATIVE] = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias", \
        [PART_ENCODER_RELATIVE] = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias", \
        [PART_FINAL_NORM] = "decoder.final_layer_norm", \
        [PART_ENCODER_NORM] = "encoder.final_layer_norm", \
        [PART_ATTN_NORM] = STACK("decoder") "0.layer_norm", \
        [PART_Q] = STACK("decoder") "0.SelfAttention.q", \
        [PART_K] = STACK("decoder") "0.SelfAttention.k", \
        [PART_V] = STACK("decoder") "0.SelfAttention.v", \
        [PART_O] = STACK("decoder") "0.SelfAttention.o", \
        [PART_CROSS_NORM] = STACK("decoder") "1.layer_norm", \
        [PART_CROSS_Q] = STACK("decoder") "1.EncDecAttention.q", \
        [PART_CROSS_K] = STACK("decoder") "1.EncDecAttention.k", \
        [PART_CROSS_V] = STACK("decoder") "1.EncDecAttention.v", \
        [PART_CROSS_O] = STACK("decoder") "1.EncDecAttention.o", \
        [PART_MLP_NORM] = STACK("decoder") "2.layer_norm", \
        [PART_GATE] = STACK("decoder") "2.DenseReluDense.wi_0", \
        [PART_UP] = STACK("decoder") "2.DenseReluDense.wi_1", \
        [PART_PLAIN_UP] = STACK("decoder") "2.DenseReluDense.wi", \
        [PART_DOWN] = STACK("decoder") "2.DenseReluDense.wo", \
    }

#define T5_ENCODER_NAMES \
    { \
        [PART_ATTN_NORM] = STACK("encoder") "0.layer_norm", \
        [PART_Q] = STACK("encoder") "0.SelfAttention.q", \
        [PART_K] = STACK("encoder") "0.SelfAttention.k", \
        [PART_V] = STACK("encoder") "0.SelfAttention.v", \
        [PART_O] = STACK("encoder") "0.SelfAttention.o", \
        [PART_MLP_NORM] = STACK("encoder") "1.layer_norm", \
        [PART_GATE] = STACK("encoder") "1.DenseReluDense.wi_0", \
        [PART_UP] = STACK("encoder") "1.DenseReluDense.wi_1", \
        [PART_PLAIN_UP] = STACK("encoder") "1.DenseReluDense.wi", \
        [PART_DOWN] = STACK("encoder") "1.DenseReluDense.wo", \
    }

/* All but what the two families are called and begin with. */
#define T5_MEMBERS \
    .own_names = "layer_norm_epsilon", \
    .own_keys = "num_decoder_layers feed_forward_proj dropout_rate initializer_factor " \
                "decoder_start_token_id is_encoder_decoder dense_act_fn is_gated_act", \
    .inert_keys = "output_past", .no_rope_scaling = true, \
    .activations = "relu silu swish gelu gelu_new gelu_pytorch_tanh gelu_fast gelu_python relu2", \
    .names = T5_NAMES, .encoder_names = T5_ENCODER_NAMES, \
    .gguf_arch = "t5", .loaded_by = BY_TRANSFORMERS, \
    .can_say = t5_can_say
/* clang-format on */

const model_family family_t5 = {
    .model_type = "t5",
    .architecture = "T5ForConditionalGeneration",
    .keys = T5_KEYS "scale_decoder_outputs",
    .defaults = t5_defaults,
    .from_hf = t5_from_hf,
    .to_hf = t5_to_hf,
    T5_MEMBERS,
};

const model_family family_mt5 = {
    .model_type = "mt5",
    .architecture = "MT5ForConditionalGeneration",
    .keys = T5_KEYS,
    .defaults = mt5_defaults,
    .from_hf = mt5_from_hf,
    .to_hf = mt5_to_hf,
    T5_MEMBERS,
};
