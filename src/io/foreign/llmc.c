#include "io/foreign/foreign.h"

#include <string.h>

enum { MAGIC = 20240326, VERSION_F32 = 3, VERSION_BF16 = 5, HEADER_BYTES = 1024 };

typedef struct sizes {
    int64_t context, vocab, layers, heads, dim, rows;
} sizes;

static int32_t int_at(const uint8_t *bytes, int i) {
    int32_t x;
    memcpy(&x, bytes + 4 * (size_t)i, 4);
    return x;
}

bool llmc_looks_weights(const void *bytes, size_t len) {
    return len >= HEADER_BYTES && int_at(bytes, 0) == MAGIC;
}

static bool read_sizes(const uint8_t *bytes, sizes *z) {
    *z = (sizes){.context = int_at(bytes, 2),
                 .vocab = int_at(bytes, 3),
                 .layers = int_at(bytes, 4),
                 .heads = int_at(bytes, 5),
                 .dim = int_at(bytes, 6),
                 .rows = int_at(bytes, 7)};
    return z->context > 0 && z->vocab > 0 && z->layers > 0 && z->layers <= 4096 && z->heads > 0 &&
           z->dim > 0 && z->dim % z->heads == 0 && z->rows >= z->vocab;
}

static bool take_all(foreign_cursor *c, const sizes *z) {
    int64_t C = z->dim;
    const struct {
        const char *name;
        int64_t rows, cols;
    } layers[] = {{"transformer.h.%d.ln_1.weight", C, 0},
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
                  {"transformer.h.%d.mlp.c_proj.bias", C, 0}};
    if (!foreign_take(c, "transformer.wte.weight", z->vocab, C)) return false;
    if (!foreign_skip(c, (z->rows - z->vocab) * C)) return false;
    if (!foreign_take(c, "transformer.wpe.weight", z->context, C)) return false;
    for (int i = 0; i < ARRAY_LEN(layers); i++)
        if (!foreign_take_layers(c, layers[i].name, z->layers, layers[i].rows, layers[i].cols))
            return false;
    return foreign_take(c, "transformer.ln_f.weight", C, 0) &&
           foreign_take(c, "transformer.ln_f.bias", C, 0);
}

static json_t *make_config(const sizes *z) {
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:b}", "model_type", "gpt2", "vocab_size",
                     (json_int_t)z->vocab, "n_embd", (json_int_t)z->dim, "n_layer",
                     (json_int_t)z->layers, "n_head", (json_int_t)z->heads, "n_positions",
                     (json_int_t)z->context, "tie_word_embeddings", 1);
}

status llmc_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                  err *e) {
    sizes z;
    int version = len >= HEADER_BYTES ? int_at(bytes, 1) : 0;
    if (!llmc_looks_weights(bytes, len) || (version != VERSION_F32 && version != VERSION_BF16)) {
        err_set(e, ST_FORMAT, "%s is no checkpoint of llm.c of version 3 or 5 (it says %d)", label,
                version);
        err_hint(e, "write it again with a current llm.c");
        return err_where(e, "%s", label);
    }
    if (!read_sizes(bytes, &z)) {
        err_set(e, ST_FORMAT, "%s: the sizes in its header do not fit together", label);
        return err_where(e, "%s", label);
    }
    foreign_cursor c = {.a = a,
                        .at = (const uint8_t *)bytes + HEADER_BYTES,
                        .left = len - HEADER_BYTES,
                        .dt = version == VERSION_F32 ? DT_F32 : DT_BF16};
    TRY(foreign_finish(&c, take_all(&c, &z), len, label, "the file is damaged", e));
    *out = (foreign_model){.config = make_config(&z), .tensors = c.tensors, .n = c.n};
    return ST_OK;
}
