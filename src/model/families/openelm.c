/* OpenELM (Mehta et al. 2024): numbers of heads and widths of the feed-forward parts grow with
 * depth; one product for q, k and v, one for gate and up; a norm of each query and key head.
 *
 * Its config.json gives multipliers: a width is model_dim times one, rounded to a divisor (rounded
 * to below by more than a tenth, it goes up by one). A pair is the first and last of evenly spaced
 * ones, rounded to two decimals. */
#include <math.h>
#include <string.h>

#include "model/families/hf.h"

#define MULTIPLIER_MAX 1e6

static void openelm_defaults(model_config *mc) {
    mc->vocab_size = 32000;
    mc->hidden_size = 1280;
    mc->num_hidden_layers = 16;
    mc->num_attention_heads = 20;
    mc->num_key_value_heads = 5;
    mc->head_dim = 64;
    mc->max_position_embeddings = 2048;
    mc->norm_eps = 1e-6; /* not in its config.json */
    mc->qk_norm = QK_NORM_HEAD;
    mc->tie_word_embeddings = true;
    mc->act = ACT_SILU;
    mc->init = INIT_SCHEME_FAN_IN;
}

static int64_t divisible(double width, int64_t divisor) {
    int64_t n = (int64_t)(width + (double)divisor / 2) / divisor * divisor;
    if (n < divisor) n = divisor;
    return (double)n < 0.9 * width ? n + divisor : n;
}

/* Number l of `layers` evenly spaced ones, rounded as the publishers' code does by NumPy:
 * hundredths go to the nearest whole number, and a half to the even one. */
static double between(double a, double b, int64_t l, int64_t layers) {
    double step = layers > 1 ? (b - a) / (double)(layers - 1) : 0;
    if (!(fabs(a) < MULTIPLIER_MAX && fabs(b) < MULTIPLIER_MAX)) return 0;
    return rint((l > 0 && l == layers - 1 ? b : (double)l * step + a) * 100) / 100;
}

/* Multiplier of layer l from a list of one a layer, a pair, or one number. */
static bool multiplier(const json_t *v, int64_t l, int64_t layers, double *out) {
    const json_t *first = json_array_get(v, 0), *last = json_array_get(v, 1);
    if (json_is_number(v))
        *out = json_number_value(v);
    else if (json_array_size(v) == 2)
        *out = between(json_number_value(first), json_number_value(last), l, layers);
    else if ((int64_t)json_array_size(v) == layers)
        *out = json_number_value(json_array_get(v, (size_t)l));
    else
        return false;
    return *out > 0 && *out < MULTIPLIER_MAX;
}

typedef struct elm_sizes {
    int64_t layers, width, head_dim, groups, divisor;
} elm_sizes;

static status elm_read_sizes(const json_t *o, int64_t layers, elm_sizes *s, err *e) {
    *s = (elm_sizes){.layers = layers,
                     .width = hf_get_int(o, "hidden_size", 1280),
                     .head_dim = hf_get_int(o, "head_dim", 64),
                     .groups = hf_get_int(o, "num_gqa_groups", 4),
                     .divisor = hf_get_int(o, "ffn_dim_divisor", 256)};
    const struct {
        const char *key;
        int64_t size;
    } all[] = {{"model_dim", s->width},
               {"head_dim", s->head_dim},
               {"num_gqa_groups", s->groups},
               {"ffn_dim_divisor", s->divisor}};
    for (int i = 0; i < ARRAY_LEN(all); i++)
        if (all[i].size < 1 || all[i].size > 1 << 20)
            return hf_bad_value(e, all[i].key, "a positive whole number up to 1048576");
    return ST_OK;
}

/* A list with one for each layer: width times its multiplier, rounded to the divisor, in units. */
static status spread(json_t *o, const char *from, const char *to, const elm_sizes *s,
                     int64_t divisor, int64_t unit, err *e) {
    const json_t *v = json_object_get(o, from);
    json_t *list = json_array();
    for (int64_t l = 0; l < s->layers; l++) {
        double m;
        if (!multiplier(v, l, s->layers, &m)) {
            json_decref(list);
            return hf_bad_value(e, from, "a number, a pair, or a list with one for each layer");
        }
        json_array_append_new(list, json_integer(divisible((double)s->width * m, divisor) / unit));
    }
    json_object_set_new(o, to, list);
    return ST_OK;
}

static status elm_expect(const json_t *o, const char *key, const json_t *want, err *e) {
    const json_t *v = json_object_get(o, key);
    if (!v || json_equal(v, want)) return ST_OK;
    return hf_bad_value(e, key, json_is_true(want) ? "true" : "rms_norm");
}

static status openelm_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    elm_sizes s;
    json_t *rms = json_string("rms_norm");
    status st = elm_expect(o, "normalization_layer_name", rms, e);
    json_decref(rms);
    TRY(st);
    TRY(elm_expect(o, "ffn_with_glu", json_true(), e));
    TRY(elm_read_sizes(o, layers, &s, e));
    if (json_object_get(o, "ffn_multipliers") && !json_object_get(o, "intermediate_size"))
        TRY(spread(o, "ffn_multipliers", "intermediate_size", &s, s.divisor, 1, e));
    if (json_object_get(o, "qkv_multipliers") && !json_object_get(o, "num_attention_heads")) {
        int64_t unit = s.head_dim * s.groups;
        TRY(spread(o, "qkv_multipliers", "num_attention_heads", &s, unit, s.head_dim, e));
        if (!json_object_get(o, "num_key_value_heads"))
            TRY(spread(o, "qkv_multipliers", "num_key_value_heads", &s, unit, unit, e));
    }
    const json_t *tied;
    TRY(hf_read_word_switch(o, "normalize_qk_projections", "qk_norm", "head", "none", e));
    TRY(hf_read_switch(o, "share_input_output_layers", "tie_word_embeddings", &tied, e));
    if (tied) json_object_set(o, "tie_word_embeddings", (json_t *)tied);
    hf_rename(o, "activation_fn_name", "hidden_act");
    hf_drop(o, "ffn_multipliers qkv_multipliers num_gqa_groups ffn_dim_divisor rope_max_length "
               "normalization_layer_name ffn_with_glu");
    return ST_OK;
}

static void put_ffn(json_t *o, const model_config *mc) {
    int64_t divisor = 256;
    json_t *list = json_array();
    for (int64_t l = 0; l < mc->num_hidden_layers; l++) {
        int64_t F = mc->intermediate_size_of ? mc->intermediate_size_of[l] : mc->intermediate_size;
        if (F % divisor) divisor = 1;
        json_array_append_new(list, json_real((double)F / (double)mc->hidden_size));
    }
    json_object_set_new(o, "ffn_multipliers", list);
    hf_int(o, "ffn_dim_divisor", divisor);
}

static int64_t heads_of(const model_config *mc, int64_t l) {
    return mc->num_attention_heads_of ? mc->num_attention_heads_of[l] : mc->num_attention_heads;
}

/* Whether layer l has the heads that multipliers of a to b hundredths make of it. */
static bool gives_heads(const model_config *mc, int a, int b, int64_t l, int64_t layers,
                        int64_t unit) {
    double m = between(a / 100.0, b / 100.0, l, layers);
    return divisible((double)mc->hidden_size * m, unit) == heads_of(mc, l) * mc->head_dim;
}

/* The publishers' class makes the numbers of heads anew from a pair of multipliers: one that gives
 * those of this model, if there is one. */
static void put_qkv(json_t *o, const model_config *mc) {
    enum { STEPS = 800 }; /* multipliers up to 8 by hundredths */
    int64_t L = mc->num_hidden_layers, K = mc->num_key_value_heads;
    int64_t unit = mc->head_dim * (mc->num_attention_heads / K);
    for (int a = 1; a <= STEPS; a++) {
        if (!gives_heads(mc, a, a, 0, 1, unit)) continue;
        for (int b = 1; b <= STEPS; b++) {
            int64_t l = L - 1;
            while (l >= 0 && gives_heads(mc, a, b, l, L, unit)) l--;
            if (l >= 0) continue;
            json_object_set_new(o, "qkv_multipliers", json_pack("[f,f]", a / 100.0, b / 100.0));
            return;
        }
    }
}

static void openelm_to_hf(const model_config *mc, json_t *o) {
    hf_write(mc, o, "model_dim num_transformer_layers");
    hf_layers(mc, o, "num_query_heads", mc->num_attention_heads, mc->num_attention_heads_of);
    hf_layers(mc, o, "num_kv_heads", mc->num_key_value_heads, mc->num_key_value_heads_of);
    put_qkv(o, mc);
    put_ffn(o, mc);
    hf_write(mc, o, "head_dim");
    hf_int(o, "num_gqa_groups", mc->num_attention_heads / mc->num_key_value_heads);
    hf_write(mc, o, "max_context_length rope_freq_constant");
    hf_int(o, "rope_max_length", 2 * mc->max_position_embeddings);
    hf_word(o, "activation_fn_name", "swish");
    hf_word(o, "normalization_layer_name", "rms_norm");
    hf_bool(o, "normalize_qk_projections", mc->qk_norm == QK_NORM_HEAD);
    hf_bool(o, "ffn_with_glu", true);
    hf_bool(o, "share_input_output_layers", mc->tie_word_embeddings);
}

static bool openelm_can_say(const model_config *mc, const char *option) {
    return strcmp(option, "qk_norm") != 0 || mc->qk_norm != QK_NORM_FULL;
}

const model_family family_openelm = {
    .model_type = "openelm",
    .architecture = "OpenELMForCausalLM",
    .keys = MODEL_KEYS_OF_ALL "num_key_value_heads head_dim intermediate_size rope_theta qk_norm",
    .own_names = "rope_freq_constant",
    .own_keys = "ffn_multipliers qkv_multipliers num_gqa_groups ffn_dim_divisor rope_max_length "
                "normalize_qk_projections normalization_layer_name ffn_with_glu "
                "share_input_output_layers activation_fn_name",
    .inert_keys = "tie_word_embeddings", /* beside share_input_output_layers, which counts */
    .lists = "num_attention_heads num_key_value_heads intermediate_size",
    .no_rope_scaling = true,
    .activations = "swish silu",
    .names =
        {
            [PART_EMBED] = "transformer.token_embeddings",
            [PART_FINAL_NORM] = "transformer.norm",
            [PART_HEAD] = "lm_head",
            [PART_ATTN_NORM] = "transformer.layers.%d.attn_norm",
            [PART_MLP_NORM] = "transformer.layers.%d.ffn_norm",
            [PART_QKV] = "transformer.layers.%d.attn.qkv_proj",
            [PART_Q_NORM] = "transformer.layers.%d.attn.q_norm",
            [PART_K_NORM] = "transformer.layers.%d.attn.k_norm",
            [PART_O] = "transformer.layers.%d.attn.out_proj",
            [PART_GATE_UP] = "transformer.layers.%d.ffn.proj_1",
            [PART_DOWN] = "transformer.layers.%d.ffn.proj_2",
        },
    .gguf_arch = "openelm",
    .defaults = openelm_defaults,
    .from_hf = openelm_from_hf,
    .to_hf = openelm_to_hf,
    .can_say = openelm_can_say,
};
