#include "io/foreign/foreign.h"

#include <string.h>

enum { HEADER_INTS = 7, HEADER_BYTES = 4 * HEADER_INTS };

typedef struct sizes {
    int64_t dim, hidden, layers, heads, kv_heads, vocab, context;
    bool tied;
} sizes;

static bool read_sizes(const uint8_t *bytes, size_t len, sizes *z) {
    int32_t h[HEADER_INTS];
    if (len < HEADER_BYTES) return false;
    memcpy(h, bytes, HEADER_BYTES);
    *z = (sizes){h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[5] > 0};
    if (z->vocab < 0) z->vocab = -z->vocab;
    if (z->dim <= 0 || z->hidden <= 0 || z->layers <= 0 || z->heads <= 0 || z->kv_heads <= 0 ||
        z->vocab <= 0 || z->context <= 0)
        return false;
    return z->layers <= 4096 && z->dim % z->heads == 0 && z->heads % z->kv_heads == 0 &&
           z->dim / z->heads % 2 == 0;
}

/* The file's tensors in its order; false: it is shorter than its header says. */
static bool take_all(foreign_cursor *c, const sizes *z) {
    int64_t C = z->dim, L = z->layers, D = C / z->heads, KD = D * z->kv_heads;
    const struct {
        const char *name;
        int64_t rows, cols;
    } layers[] = {{"model.layers.%d.input_layernorm.weight", C, 0},
                  {"model.layers.%d.self_attn.q_proj.weight", C, C},
                  {"model.layers.%d.self_attn.k_proj.weight", KD, C},
                  {"model.layers.%d.self_attn.v_proj.weight", KD, C},
                  {"model.layers.%d.self_attn.o_proj.weight", C, C},
                  {"model.layers.%d.post_attention_layernorm.weight", C, 0},
                  {"model.layers.%d.mlp.gate_proj.weight", z->hidden, C},
                  {"model.layers.%d.mlp.down_proj.weight", C, z->hidden},
                  {"model.layers.%d.mlp.up_proj.weight", z->hidden, C}};
    if (!foreign_take(c, "model.embed_tokens.weight", z->vocab, C)) return false;
    for (int i = 0; i < ARRAY_LEN(layers); i++)
        if (!foreign_take_layers(c, layers[i].name, L, layers[i].rows, layers[i].cols))
            return false;
    if (!foreign_take(c, "model.norm.weight", C, 0)) return false;
    if (!foreign_skip(c, z->context * D)) return false; /* cosines and sines, D/2 each */
    return z->tied || foreign_take(c, "lm_head.weight", z->vocab, C);
}

static json_t *make_config(const sizes *z) {
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:f,s:f,s:b,s:i,s:i}", "model_type",
                     "llama", "vocab_size", (json_int_t)z->vocab, "hidden_size", (json_int_t)z->dim,
                     "intermediate_size", (json_int_t)z->hidden, "num_hidden_layers",
                     (json_int_t)z->layers, "num_attention_heads", (json_int_t)z->heads,
                     "num_key_value_heads", (json_int_t)z->kv_heads, "max_position_embeddings",
                     (json_int_t)z->context, "tie_word_embeddings", z->tied, "rms_norm_eps", 1e-5,
                     "rope_theta", 10000.0, "rope_interleaved", 1, "bos_token_id", 1,
                     "eos_token_id", 2);
}

bool llama2c_looks_weights(const void *bytes, size_t len) {
    sizes z;
    if (!read_sizes(bytes, len, &z)) return false;
    arena *a = arena_new("llama2.c");
    foreign_cursor c = {
        .a = a, .at = (const uint8_t *)bytes + HEADER_BYTES, .left = len - HEADER_BYTES};
    bool fits = take_all(&c, &z) && c.left == 0;
    arena_free(a);
    return fits;
}

status llama2c_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                     err *e) {
    sizes z;
    foreign_cursor c = {.a = a,
                        .at = (const uint8_t *)bytes + HEADER_BYTES,
                        .left = len > HEADER_BYTES ? len - HEADER_BYTES : 0};
    if (!read_sizes(bytes, len, &z)) {
        err_set(e, ST_FORMAT, "%s has no header of llama2.c: seven sizes that fit together", label);
        return err_where(e, "%s", label);
    }
    TRY(foreign_finish(&c, take_all(&c, &z), len, label,
                       "the file is damaged, or of a newer version than the one run.c reads", e));
    *out = (foreign_model){.config = make_config(&z), .tensors = c.tensors, .n = c.n};
    return ST_OK;
}
