/* Each format is a list of tensors in the order of its file (see foreign.h). */
#include "io/foreign.h"

#include <stdio.h>
#include <string.h>

/* ---- taking tensors ---- */

/* Where the next tensor begins. */
typedef struct cursor {
    arena *a;
    const uint8_t *at;
    size_t left; /* bytes */
    dtype dt;
    st_tensor *tensors;
    int32_t n, cap;
} cursor;

/* rows x cols elements (cols 0: a vector). A name with %d: one such tensor for every layer; no
 * name: they are passed over. */
typedef struct piece {
    const char *name;
    int64_t rows, cols;
} piece;

/* False: the file ends before, or the sizes overflow. */
static bool take(cursor *c, const char *name, const piece *p) {
    int64_t n;
    if (__builtin_mul_overflow(p->rows, p->cols ? p->cols : 1, &n) ||
        __builtin_mul_overflow(n, (int64_t)dtype_bytes(c->dt), &n) || (uint64_t)n > c->left)
        return false;
    if (name) {
        c->tensors = arena_grow(c->a, c->tensors, c->n, &c->cap, sizeof *c->tensors);
        c->tensors[c->n++] = (st_tensor){.name = arena_strdup(c->a, name),
                                         .dt = c->dt,
                                         .rank = p->cols ? 2 : 1,
                                         .dims = {p->rows, p->cols},
                                         .data = c->at};
    }
    c->at += n;
    c->left -= (size_t)n;
    return true;
}

static bool take_all(cursor *c, const piece *list, int n, int64_t layers) {
    for (int i = 0; i < n; i++) {
        const char *name = list[i].name, *at = name ? strstr(name, "%d") : NULL;
        if (!at && !take(c, name, &list[i])) return false;
        for (int64_t l = 0; at && l < layers; l++) {
            char one[128];
            snprintf(one, sizeof one, "%.*s%lld%s", (int)(at - name), name, (long long)l, at + 2);
            if (!take(c, one, &list[i])) return false;
        }
    }
    return true;
}

/* Once all has been taken: ST_FORMAT where the file is shorter (whole is false) or longer than its
 * header says. */
static status check_end(const cursor *c, bool whole, size_t len, const char *label,
                        const char *hint, err *e) {
    if (whole && c->left == 0) return ST_OK;
    err_at(e, ST_FORMAT, label, "%s has %zu bytes, %s than its header asks for", label, len,
           whole ? "more" : "fewer");
    return err_hint(e, "%s", hint);
}

/* ---- llama2.c ---- */

enum { LLAMA2C_HEADER_BYTES = 4 * 7 };

typedef struct llama2c_sizes {
    int64_t dim, hidden, layers, heads, kv_heads, vocab, context;
    bool tied;
} llama2c_sizes;

static bool llama2c_read_sizes(const uint8_t *bytes, size_t len, llama2c_sizes *z) {
    int32_t h[7];
    if (len < sizeof h) return false;
    memcpy(h, bytes, sizeof h);
    *z = (llama2c_sizes){h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[5] > 0};
    if (z->vocab < 0) z->vocab = -z->vocab;
    if (z->dim <= 0 || z->hidden <= 0 || z->layers <= 0 || z->heads <= 0 || z->kv_heads <= 0 ||
        z->vocab <= 0 || z->context <= 0)
        return false;
    return z->layers <= 4096 && z->dim % z->heads == 0 && z->heads % z->kv_heads == 0 &&
           z->dim / z->heads % 2 == 0;
}

/* False: the file is shorter than its header says. */
static bool llama2c_take(cursor *c, const llama2c_sizes *z) {
    int64_t C = z->dim, F = z->hidden, V = z->vocab, D = C / z->heads, KD = D * z->kv_heads;
    const piece list[] = {{"model.embed_tokens.weight", V, C},
                          {"model.layers.%d.input_layernorm.weight", C, 0},
                          {"model.layers.%d.self_attn.q_proj.weight", C, C},
                          {"model.layers.%d.self_attn.k_proj.weight", KD, C},
                          {"model.layers.%d.self_attn.v_proj.weight", KD, C},
                          {"model.layers.%d.self_attn.o_proj.weight", C, C},
                          {"model.layers.%d.post_attention_layernorm.weight", C, 0},
                          {"model.layers.%d.mlp.gate_proj.weight", F, C},
                          {"model.layers.%d.mlp.down_proj.weight", C, F},
                          {"model.layers.%d.mlp.up_proj.weight", F, C},
                          {"model.norm.weight", C, 0},
                          {NULL, z->context, D}, /* cosines and sines, D/2 each */
                          {"lm_head.weight", V, C}};
    return take_all(c, list, ARRAY_LEN(list) - z->tied, z->layers);
}

static json_t *llama2c_config(const llama2c_sizes *z) {
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
    llama2c_sizes z;
    if (!llama2c_read_sizes(bytes, len, &z)) return false;
    arena *a = arena_new("llama2.c");
    cursor c = {.a = a,
                .at = (const uint8_t *)bytes + LLAMA2C_HEADER_BYTES,
                .left = len - LLAMA2C_HEADER_BYTES};
    bool fits = llama2c_take(&c, &z) && c.left == 0;
    arena_free(a);
    return fits;
}

status llama2c_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                     err *e) {
    llama2c_sizes z;
    if (!llama2c_read_sizes(bytes, len, &z)) {
        return err_at(e, ST_FORMAT, label,
                      "%s has no header of llama2.c: seven sizes that fit together", label);
    }
    cursor c = {.a = a,
                .at = (const uint8_t *)bytes + LLAMA2C_HEADER_BYTES,
                .left = len - LLAMA2C_HEADER_BYTES};
    TRY(check_end(&c, llama2c_take(&c, &z), len, label,
                  "the file is damaged, or of a newer version than the one run.c reads", e));
    *out = (foreign_model){.config = llama2c_config(&z), .tensors = c.tensors, .n = c.n};
    return ST_OK;
}

/* ---- llm.c ---- */

enum { LLMC_MAGIC = 20240326, LLMC_F32 = 3, LLMC_BF16 = 5, LLMC_HEADER_BYTES = 1024 };

typedef struct llmc_sizes {
    int64_t context, vocab, layers, heads, dim, rows;
} llmc_sizes;

static int32_t int_at(const uint8_t *bytes, int i) {
    int32_t x;
    memcpy(&x, bytes + 4 * (size_t)i, 4);
    return x;
}

bool llmc_looks_weights(const void *bytes, size_t len) {
    return len >= LLMC_HEADER_BYTES && int_at(bytes, 0) == LLMC_MAGIC;
}

static bool llmc_read_sizes(const uint8_t *bytes, llmc_sizes *z) {
    *z = (llmc_sizes){.context = int_at(bytes, 2),
                      .vocab = int_at(bytes, 3),
                      .layers = int_at(bytes, 4),
                      .heads = int_at(bytes, 5),
                      .dim = int_at(bytes, 6),
                      .rows = int_at(bytes, 7)};
    return z->context > 0 && z->vocab > 0 && z->layers > 0 && z->layers <= 4096 && z->heads > 0 &&
           z->dim > 0 && z->dim % z->heads == 0 && z->rows >= z->vocab;
}

static bool llmc_take(cursor *c, const llmc_sizes *z) {
    int64_t C = z->dim;
    const piece list[] = {{"transformer.wte.weight", z->vocab, C},
                          {NULL, z->rows - z->vocab, C},
                          {"transformer.wpe.weight", z->context, C},
                          {"transformer.h.%d.ln_1.weight", C, 0},
                          {"transformer.h.%d.ln_1.bias", C, 0},
                          {"transformer.h.%d.attn.c_attn.weight", 3 * C, C},
                          {"transformer.h.%d.attn.c_attn.bias", 3 * C, 0},
                          {"transformer.h.%d.attn.c_proj.weight", C, C},
                          {"transformer.h.%d.attn.c_proj.bias", C, 0},
                          {"transformer.h.%d.ln_2.weight", C, 0},
                          {"transformer.h.%d.ln_2.bias", C, 0},
                          {"transformer.h.%d.mlp.c_fc.weight", 4 * C, C},
                          {"transformer.h.%d.mlp.c_fc.bias", 4 * C, 0},
                          {"transformer.h.%d.mlp.c_proj.weight", C, 4 * C},
                          {"transformer.h.%d.mlp.c_proj.bias", C, 0},
                          {"transformer.ln_f.weight", C, 0},
                          {"transformer.ln_f.bias", C, 0}};
    return take_all(c, list, ARRAY_LEN(list), z->layers);
}

static json_t *llmc_config(const llmc_sizes *z) {
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:b}", "model_type", "gpt2", "vocab_size",
                     (json_int_t)z->vocab, "n_embd", (json_int_t)z->dim, "n_layer",
                     (json_int_t)z->layers, "n_head", (json_int_t)z->heads, "n_positions",
                     (json_int_t)z->context, "tie_word_embeddings", 1);
}

status llmc_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                  err *e) {
    llmc_sizes z;
    int version = len >= LLMC_HEADER_BYTES ? int_at(bytes, 1) : 0;
    if (!llmc_looks_weights(bytes, len) || (version != LLMC_F32 && version != LLMC_BF16)) {
        err_at(e, ST_FORMAT, label, "%s is no checkpoint of llm.c of version 3 or 5 (it says %d)",
               label, version);
        return err_hint(e, "write it again with a current llm.c");
    }
    if (!llmc_read_sizes(bytes, &z)) {
        return err_at(e, ST_FORMAT, label, "%s: the sizes in its header do not fit together",
                      label);
    }
    cursor c = {.a = a,
                .at = (const uint8_t *)bytes + LLMC_HEADER_BYTES,
                .left = len - LLMC_HEADER_BYTES,
                .dt = version == LLMC_F32 ? DT_F32 : DT_BF16};
    TRY(check_end(&c, llmc_take(&c, &z), len, label, "the file is damaged", e));
    *out = (foreign_model){.config = llmc_config(&z), .tensors = c.tensors, .n = c.n};
    return ST_OK;
}
