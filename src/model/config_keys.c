#include "model/config_keys.h"

#include <stdio.h>
#include <string.h>

const key_row model_keys[] = {
#define KEY_INT(member, name, aliases, lo, hi, help)                                               \
    {name, aliases, help, KEY_TYPE_INT, offsetof(model_config, member), 0, lo, hi, NULL},
#define KEY_NUM(member, name, aliases, lo, hi, help)                                               \
    {name, aliases, help, KEY_TYPE_NUM, offsetof(model_config, member), 0, lo, hi, NULL},
#define KEY_LAYERS(member, name, aliases, lo, hi, help)                                            \
    {name,                                                                                         \
     aliases,                                                                                      \
     help,                                                                                         \
     KEY_TYPE_LAYERS,                                                                              \
     offsetof(model_config, member),                                                               \
     offsetof(model_config, member##_of),                                                          \
     lo,                                                                                           \
     hi,                                                                                           \
     NULL},
#define KEY_BOOL(member, name, aliases, help)                                                      \
    {name, aliases, help, KEY_TYPE_BOOL, offsetof(model_config, member), 0, 0, 1, NULL},
#define KEY_WORD(member, name, aliases, words, help)                                               \
    {name, aliases, help, KEY_TYPE_WORD, offsetof(model_config, member), 0, 0, 0, words},
#include "model/keys.def"
};
const int model_n_keys = ARRAY_LEN(model_keys);

const char *key_word_at(const char *words, int i, int *len) {
    for (; i > 0 && *words; i--) {
        words += strcspn(words, " ");
        words += *words == ' ';
    }
    *len = (int)strcspn(words, " ");
    return words;
}

bool key_next_word(const char **words, char out[64]) {
    int len;
    const char *word = key_word_at(*words, 0, &len);
    snprintf(out, 64, "%.*s", len, word);
    *words = word + len + (word[len] == ' ');
    return len > 0;
}

int key_word_index(const char *words, const char *word) {
    int n = 0, len;
    for (const char *s = words; s && *s; n++) {
        len = (int)strcspn(s, " ");
        if ((size_t)len == strlen(word) && memcmp(s, word, (size_t)len) == 0) return n;
        s += len;
        s += *s == ' ';
    }
    return -1;
}

bool key_in_words(const char *words, const char *word) {
    return key_word_index(words, word) >= 0;
}

const char *key_canonical(const char *key) {
    if (strcmp(key, "activation_function") == 0 || strcmp(key, "hidden_activation") == 0)
        return "hidden_act";
    for (int i = 0; i < model_n_keys; i++)
        if (key_in_words(model_keys[i].aliases, key)) return model_keys[i].name;
    return key;
}

const key_row *key_find(const char *name) {
    for (int i = 0; i < model_n_keys; i++)
        if (strcmp(model_keys[i].name, name) == 0) return &model_keys[i];
    return NULL;
}

static const struct {
    const char *word;
    act_kind act;
} acts[] = {{"silu", ACT_SILU},
            {"swish", ACT_SILU},
            {"gelu_new", ACT_GELU_TANH},
            {"gelu_pytorch_tanh", ACT_GELU_TANH},
            {"gelu_fast", ACT_GELU_TANH},
            {"gelu", ACT_GELU_EXACT},
            {"relu", ACT_RELU},
            {"relu2", ACT_RELU2},
            {"gelu_python", ACT_GELU_EXACT}};

const char *key_act_word(act_kind act, const char *among) {
    const char *best = NULL;
    int first = 0;
    for (int i = 0; i < ARRAY_LEN(acts); i++) {
        int at = among ? key_word_index(among, acts[i].word) : i;
        if (acts[i].act != act || at < 0 || (best && at > first)) continue;
        best = acts[i].word;
        first = at;
    }
    return best;
}

bool key_act_find(const char *word, act_kind *act) {
    for (int i = 0; i < ARRAY_LEN(acts); i++) {
        if (strcmp(acts[i].word, word) != 0) continue;
        *act = acts[i].act;
        return true;
    }
    return false;
}

void model_config_defaults(model_config *mc, const model_family *f) {
    *mc = (model_config){.family = f,
                         .block_repeat = 1,
                         .partial_rotary_factor = 1.0,
                         .rope_theta = 1e4,
                         .rope_layers = 1,
                         .scale_attn_weights = true,
                         .num_experts_per_tok = 2,
                         .expert_layers = 1,
                         .linear_num_key_heads = 16,
                         .linear_num_value_heads = 32,
                         .linear_key_head_dim = 128,
                         .linear_value_head_dim = 128,
                         .linear_conv_kernel_dim = 4,
                         .slots_per_expert = 1,
                         .router_group_best = 1,
                         .routed_scaling_factor = 1.0,
                         .mtp_loss_weight = 0.3,
                         .norm_weights = NORM_WEIGHTS_W,
                         .scale_emb = 1.0,
                         .pad_token_id = -1,
                         .decoder_start_id = -1,
                         .relative_buckets = 32,
                         .relative_distance = 128,
                         .initializer_range = 0.02};
    f->defaults(mc);
}

static void copy_list(arena *a, model_config *mc, size_t offset, size_t bytes) {
    const void *list;
    char *member = (char *)mc + offset;
    memcpy(&list, member, sizeof list);
    if (list) list = arena_memdup(a, list, bytes);
    memcpy(member, &list, sizeof list);
}

model_config model_config_copy(arena *a, const model_config *mc) {
    model_config copy = *mc;
    size_t L = (size_t)mc->num_hidden_layers, n = (size_t)mc->rope.n_factors;
    for (int i = 0; i < model_n_keys; i++)
        if (model_keys[i].type == KEY_TYPE_LAYERS)
            copy_list(a, &copy, model_keys[i].of_offset, L * sizeof(int64_t));
    const char **labels = mc->labels ? ARENA_ARRAY(a, const char *, (int)mc->num_labels) : NULL;
    for (int64_t i = 0; labels && i < mc->num_labels; i++)
        labels[i] = arena_strdup(a, mc->labels[i]);
    copy.labels = labels;
    copy_list(a, &copy, offsetof(model_config, rope.short_factor), n * sizeof(double));
    copy_list(a, &copy, offsetof(model_config, rope.long_factor), n * sizeof(double));
    return copy;
}

/* NULL: all layers have one value, or option i is none of layers. */
static const int64_t *list_of(const model_config *mc, int i) {
    if (model_keys[i].type != KEY_TYPE_LAYERS) return NULL;
    return *(const int64_t *const *)((const char *)mc + model_keys[i].of_offset);
}

bool model_layers_alike(const model_config *mc, int a, int b) {
    for (int i = 0; i < model_n_keys; i++) {
        const int64_t *list = list_of(mc, i);
        if (list && list[a] != list[b]) return false;
    }
    return true;
}

model_config model_config_pick(arena *a, const model_config *mc, const int *layers, int n) {
    model_config picked = *mc;
    picked.num_hidden_layers = n;
    for (int i = 0; i < model_n_keys; i++) {
        const int64_t *list = list_of(mc, i);
        if (!list) continue;
        int64_t *own = ARENA_ARRAY(a, int64_t, n);
        for (int k = 0; k < n; k++) own[k] = list[layers[k]];
        *(const int64_t **)((char *)&picked + model_keys[i].of_offset) = own;
    }
    return picked;
}
