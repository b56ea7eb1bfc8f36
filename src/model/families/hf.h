/* Keys of config.json that several families write the same way. */
#ifndef MODEL_FAMILIES_HF_H
#define MODEL_FAMILIES_HF_H

#include "model/family.h"

/* Names of tensors in the Llama lineage, for model_family.names: all but the norms of layers, and
 * these where they stand before both branches. */
#define HF_LLAMA_PRODUCTS                                                                          \
    [PART_EMBED] = "model.embed_tokens", [PART_FINAL_NORM] = "model.norm",                         \
    [PART_HEAD] = "lm_head", [PART_Q] = "model.layers.%d.self_attn.q_proj",                        \
    [PART_K] = "model.layers.%d.self_attn.k_proj", [PART_V] = "model.layers.%d.self_attn.v_proj",  \
    [PART_O] = "model.layers.%d.self_attn.o_proj", [PART_GATE] = "model.layers.%d.mlp.gate_proj",  \
    [PART_UP] = "model.layers.%d.mlp.up_proj", [PART_DOWN] = "model.layers.%d.mlp.down_proj"
#define HF_LLAMA_NAMES                                                                             \
    HF_LLAMA_PRODUCTS, [PART_ATTN_NORM] = "model.layers.%d.input_layernorm",                       \
                       [PART_MLP_NORM] = "model.layers.%d.post_attention_layernorm"
/* Norms of query and key heads. */
#define HF_QK_NORMS                                                                                \
    [PART_Q_NORM] = "model.layers.%d.self_attn.q_norm", [PART_K_NORM] =                            \
                                                            "model.layers.%d.self_attn.k_norm"

/* Options that the Llama lineage's config.json says. */
#define HF_LLAMA_KEYS                                                                              \
    MODEL_KEYS_OF_ALL                                                                              \
    "num_key_value_heads head_dim intermediate_size rms_norm_eps rope_theta attn_pdrop "

/* Words of hidden_act in transformers; a family puts its own in front, which is then written. */
#define HF_ACTIVATIONS " silu swish gelu gelu_new gelu_pytorch_tanh gelu_fast relu relu2"

static inline void hf_int(json_t *o, const char *key, int64_t x) {
    json_object_set_new(o, key, json_integer(x));
}
static inline void hf_num(json_t *o, const char *key, double x) {
    json_object_set_new(o, key, json_real(x));
}
static inline void hf_bool(json_t *o, const char *key, bool x) {
    json_object_set_new(o, key, json_boolean(x));
}
static inline void hf_word(json_t *o, const char *key, const char *x) {
    json_object_set_new(o, key, json_string(x));
}
/* Writes options under the names of config.json that `names` lists: an option's own or an alias
 * (keys.def). Where layers differ, the value of an option is the largest. */
void hf_write(const model_config *mc, json_t *o, const char *names);
/* A list with one for each layer: of[l], or `all` where of is NULL. */
void hf_layers(const model_config *mc, json_t *o, const char *key, int64_t all, const int64_t *of);
/* x, or null when it is 0: the "off" of most keys. */
void hf_num_or_null(json_t *o, const char *key, double x);

/* The options of transformers' LlamaConfig, with which most families begin. */
void hf_llama_defaults(model_config *mc);
/* LayerNorms with bias, biases in all products of layers, and a plain feed-forward part. */
void hf_gpt_defaults(model_config *mc);
/* hidden_size ... rms_norm_eps, hidden_act, attention_dropout of the Llama lineage; no biases. */
void hf_llama_sizes(const model_config *mc, json_t *o);
/* rope_theta and rope_scaling for transformers 4, rope_parameters for 5. */
void hf_rope(const model_config *mc, json_t *o);
/* The same for classes that in transformers 4 know the two first kinds of scaling, by "type". */
void hf_rope_by_type(const model_config *mc, json_t *o);
/* sliding_window as one number or null, and layer_types. */
void hf_windows(const model_config *mc, json_t *o);

/* Moves a key of config.json to an option's name. */
void hf_rename(json_t *o, const char *from, const char *to);
/* A switch of config.json that stands for an option: its value, unless the option is said, and NULL
 * where neither is. */
status hf_read_switch(json_t *o, const char *key, const char *option, const json_t **value,
                      err *e) ATH_MUST_USE;
/* The same for an option that is one word or the other. */
status hf_read_word_switch(json_t *o, const char *key, const char *option, const char *if_true,
                           const char *if_false, err *e) ATH_MUST_USE;
/* A list for sliding_window: its width in layers where is_local(l) is true. */
typedef bool (*hf_is_local)(int64_t l, int64_t every);
void hf_set_windows(json_t *o, int64_t layers, hf_is_local is_local, int64_t every);
/* The from_hf of Qwen 2 and 3: with use_sliding_window, windows from layer max_window_layers on where
 * there is no layer_types. */
status hf_read_switched_windows(json_t *o, int64_t layers, bool file, err *e) ATH_MUST_USE;
void hf_write_switched_windows(const model_config *mc, json_t *o);
/* The can_say of families whose classes always have experts. */
bool hf_can_say_experts(const model_config *mc, const char *option);
/* Layers with experts as the classes of Qwen say them: each decoder_sparse_step-th, but for those of
 * mlp_only_layers. */
status hf_read_expert_steps(json_t *o, int64_t layers, err *e) ATH_MUST_USE;
void hf_write_expert_steps(const model_config *mc, json_t *o);
int64_t hf_get_int(const json_t *o, const char *key, int64_t fallback);
/* Takes an own key out that is a whole number from `least` on; ST_USAGE: it is another value. */
status hf_take_int(json_t *o, const char *key, int64_t fallback, int64_t least, int64_t *out,
                   err *e) ATH_MUST_USE;
/* Removes keys, space-separated. */
void hf_drop(json_t *o, const char *keys);
/* An own key with a wrong value: ST_USAGE at that key. */
status hf_bad_value(err *e, const char *key, const char *wanted);

#endif
