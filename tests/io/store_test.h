/* Small parameter stores of every kind of file, whole or as one rank of several has them. */
#ifndef TESTS_IO_STORE_TEST_H
#define TESTS_IO_STORE_TEST_H

#include "io/checkpoint/held.h"
#include "io/io_test.h"
#include "model/family.h"

typedef struct held_lab {
    arena *a;
    dev *dev;
    param_store *s;
    param_arrays at;
    float *state[2];
} held_lab;

static inline model_config *held_lab_config(const char *kind, arena *a) {
    bool pairs = strcmp(kind, "pairs") == 0;
    const char *type = strncmp(kind, "llama", 5) == 0 || pairs ? "llama" : kind;
    json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", type, "hidden_size", 32,
                          "num_hidden_layers", 3, "num_attention_heads", 4, "vocab_size", 61,
                          "max_position_embeddings", 16);
    json_object_set_new(o, "intermediate_size", json_integer(40));
    if (strncmp(kind, "llama", 5) == 0 || pairs)
        json_object_set_new(o, "tie_word_embeddings", json_boolean(strcmp(kind, "llama") == 0));
    if (strcmp(type, "llama") == 0)
        json_object_set_new(o, "num_key_value_heads", json_integer(pairs ? 4 : 2));
    if (pairs) json_object_set_new(o, "rope_interleaved", json_true());
    model_config *mc = ARENA_NEW(a, model_config);
    err e = {0};
    assert_ok(model_config_read(a, o, 0, mc, &e), e);
    json_decref(o);
    return mc;
}

static inline void held_lab_declare(param_store *s, const char *kind, arena *a) {
    model_declare(held_lab_config(kind, a), s);
}

static inline void *held_lab_array(int64_t bytes) {
    void *p = bytes ? aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64) : NULL;
    if (p) memset(p, 0, (size_t)bytes);
    return p;
}

/* Layers first .. end - 1 of a model, as a rank of a pipeline has them; the first has what comes
 * before the layers, the last what comes after. */
typedef struct held_layers {
    const param_store *whole;
    int first, end;
} held_layers;

static inline void held_lab_declare_layers(param_store *s, const held_layers *l) {
    int last = 0, n = param_count(l->whole);
    for (int i = 0; i < n; i++)
        if (param_at(l->whole, i)->layer > last) last = param_at(l->whole, i)->layer;
    bool before = true;
    for (int i = 0; i < n; i++) {
        const param *p = param_at(l->whole, i);
        before = before && p->layer < 0;
        int layer = p->layer >= 0 ? p->layer : before ? 0 : last;
        if (layer >= l->first && layer < l->end) param_add(s, p);
    }
    param_store_set_whole(s, l->whole);
}

/* A rank: of those that share weights by rows and columns, and of those that share what such a rank
 * has. NULL: nobody shares; every layer. */
static inline held_lab held_lab_open_layers(const char *kind, dtype compute, const param_ranks *tp,
                                            const param_sharding *how, const held_layers *layers) {
    held_lab l = {.a = arena_new("store")};
    err e = {0};
    assert_ok(dev_open(&l.dev, DEV_CPU, 1, &e), e);
    l.s = param_store_new(l.a, compute);
    if (tp) param_store_split(l.s, tp);
    if (layers)
        held_lab_declare_layers(l.s, layers);
    else
        held_lab_declare(l.s, kind, l.a);
    if (how) param_store_shard(l.s, how);
    param_sizes z = param_store_sizes(l.s);
    l.at = (param_arrays){.master = held_lab_array(z.master_bytes),
                          .work = held_lab_array(z.work_bytes),
                          .work_piece = held_lab_array(z.work_piece_bytes)};
    for (int k = 0; k < 2; k++) l.state[k] = held_lab_array(z.state_bytes);
    param_store_bind(l.s, l.dev, &l.at);
    return l;
}

static inline held_lab held_lab_open(const char *kind, dtype compute, const param_ranks *tp,
                                     const param_sharding *how) {
    return held_lab_open_layers(kind, compute, tp, how, NULL);
}

static inline void held_lab_close(held_lab *l) {
    free(l->at.master);
    free(l->at.work);
    free(l->at.work_piece);
    for (int k = 0; k < 2; k++) free(l->state[k]);
    dev_close(l->dev);
    arena_free(l->a);
}

/* Values that all differ, also from each other's neighbours in the arrays; the padding stays 0. */
static inline void held_lab_fill(held_lab *l) {
    uint32_t x = 1;
    for (int i = 0; i < param_count(l->s); i++) {
        const param *p = param_at(l->s, i);
        for (int64_t k = 0; k < param_elems(p); k++) {
            x = x * 1664525u + 1013904223u;
            l->at.master[p->offset + k] = (float)(int32_t)x * 0x1p-31f;
            l->state[0][p->offset + k] = (float)i + (float)k * 0x1p-12f;
            l->state[1][p->offset + k] = (float)(int32_t)(x ^ 0x5a5a5a5a) * 0x1p-40f;
        }
    }
}

/* What this rank holds, from a store that has everything: by spans, element by element. */
static inline void held_lab_copy(held_lab *l, const held_lab *whole) {
    for (int u = 0; u < param_units(l->s); u++) {
        param_piece k = param_piece_of(l->s, u);
        for (int i = 0; i < k.spans->n; i++) {
            const vec_span *s = &k.spans->item[i];
            int64_t from = param_at(whole->s, param_number_in_whole(l->s, s->owner))->offset;
            for (int64_t j = 0; j < s->n; j++) {
                int64_t w = from + vec_whole_index(s, j);
                k.master[s->at + j] = whole->at.master[w];
                for (int m = 0; m < 2; m++) l->state[m][k.state + s->at + j] = whole->state[m][w];
            }
        }
    }
}

#endif
