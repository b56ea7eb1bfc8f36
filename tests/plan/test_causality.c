/* A token cannot be seen from before it, nor from another document: for random shapes of both
 * families, changing one token leaves all earlier logits, and the losses of other documents, the
 * same to the bit, and changes later ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "base/rng.h"
#include "plan/plan.h"

enum { T = 33, V = 61 };

typedef struct lab {
    arena *a;
    dev *dev;
    plan *p;
    plan_spec spec;
    char what[256];
    uint64_t at; /* of the random choices */
    rng_key key;
} lab;

static int64_t choose(lab *l, int64_t n) {
    return rng_u32(l->key, l->at++) % n;
}

static json_t *random_llama(lab *l) {
    static const int heads[][2] = {{1, 1}, {2, 1}, {4, 2}, {6, 3}, {4, 4}, {8, 2}};
    const int *h = heads[choose(l, 6)];
    int64_t D = 2 * (1 + choose(l, 12));
    return json_pack("{s:s,s:I,s:i,s:i,s:I,s:I,s:b,s:b,s:b,s:f}", "model_type", "llama",
                     "hidden_size", (json_int_t)(8 + choose(l, 60)), "num_attention_heads", h[0],
                     "num_key_value_heads", h[1], "head_dim", (json_int_t)D, "intermediate_size",
                     (json_int_t)(5 + choose(l, 90)), "tie_word_embeddings", (int)choose(l, 2),
                     "attention_bias", (int)choose(l, 2), "mlp_bias", (int)choose(l, 2),
                     "rope_theta", 100.0 + (double)choose(l, 10000));
}

static json_t *random_gpt2(lab *l) {
    int64_t H = 1 + choose(l, 5), D = 1 + choose(l, 20);
    return json_pack("{s:s,s:I,s:I,s:I,s:b}", "model_type", "gpt2", "hidden_size",
                     (json_int_t)(H * D), "num_attention_heads", (json_int_t)H, "intermediate_size",
                     (json_int_t)(5 + choose(l, 90)), "tie_word_embeddings", (int)choose(l, 2));
}

static void lab_open(lab *l, dev *d, int trial) {
    *l = (lab){.a = arena_new("causality"), .dev = d, .key = rng_key_numbered(17, (uint64_t)trial)};
    json_t *o = trial % 2 ? random_llama(l) : random_gpt2(l);
    json_object_set_new(o, "num_hidden_layers", json_integer(1 + choose(l, 3)));
    json_object_set_new(o, "vocab_size", json_integer(V));
    json_object_set_new(o, "max_position_embeddings", json_integer(64));
    json_object_set_new(o, "initializer_range", json_real(0.3)); /* so that every path matters */
    char *text = json_dumps(o, JSON_COMPACT);
    snprintf(l->what, sizeof l->what, "%s", text);
    free(text);
    l->spec = (plan_spec){.compute = choose(l, 3) ? DT_F32 : DT_BF16,
                          .T = T,
                          .valid_B = 2,
                          .document_mask = true,
                          .logits_T = T};
    err e = {0};
    if (model_config_read(l->a, o, 0, &l->spec.model, &e) != ST_OK)
        fail_msg("%s: %s", l->what, e.message);
    json_decref(o);
    assert_int_equal(plan_new(&l->p, d, &l->spec, &e), ST_OK);
    assert_int_equal(plan_commit(l->p, &e), ST_OK);
    param_init_all(l->p->store, (uint64_t)trial);
}

static void lab_close(lab *l) {
    plan_free(l->p);
    arena_free(l->a);
}

static int32_t *ints(const prog *p, const char *name) {
    return prog_tensor(p, name)->data;
}

/* The rows of output `name` as bytes. */
static uint8_t *run(lab *l, const prog *p, const char *name, size_t *row_bytes) {
    prog_replay(p, PROG_F, &(op_run){.dev = l->dev, .first_micro = true});
    const tensor *t = prog_tensor(p, name);
    *row_bytes = (size_t)t->cols * dtype_bytes(t->dt);
    uint8_t *copy = malloc(*row_bytes * (size_t)t->rows);
    memcpy(copy, t->data, *row_bytes * (size_t)t->rows);
    return copy;
}

static void check_logits(lab *l) {
    const prog *p = l->p->prog[PLAN_LOGITS];
    for (int i = 0; i < T; i++) {
        ints(p, "ids")[i] = (int32_t)choose(l, V);
        ints(p, "pos")[i] = ints(p, "rows")[i] = i;
    }
    size_t bytes;
    uint8_t *before = run(l, p, "logits", &bytes);
    for (int k = 0; k < 4; k++) {
        int t = k == 0 ? T - 1 : (int)choose(l, T);
        int32_t old = ints(p, "ids")[t];
        ints(p, "ids")[t] = (old + 1 + (int32_t)choose(l, V - 1)) % V;
        uint8_t *after = run(l, p, "logits", &bytes);
        if (memcmp(before, after, bytes * (size_t)t) != 0)
            fail_msg("token %d is seen from before it: %s", t, l->what);
        if (memcmp(before + bytes * (size_t)t, after + bytes * (size_t)t, bytes) == 0)
            fail_msg("token %d does not matter: %s", t, l->what);
        free(after);
        ints(p, "ids")[t] = old;
    }
    free(before);
}

/* Sequence 1 holds documents [0,c) and [c,T); sequence 0 is one document. */
static void check_documents(lab *l) {
    const prog *p = l->p->prog[PLAN_VALID];
    int c = 5 + (int)choose(l, T - 10);
    for (int i = 0; i < 2 * T; i++) {
        int t = i % T;
        bool second = i >= T && t >= c;
        ints(p, "ids")[i] = (int32_t)choose(l, V);
        ints(p, "targets")[i] = (int32_t)choose(l, V);
        ints(p, "start")[i] = second ? c : 0;
        ints(p, "pos")[i] = second ? t - c : t;
    }
    size_t bytes;
    uint8_t *before = run(l, p, "nll", &bytes);
    int t = (int)choose(l, c);
    ints(p, "ids")[T + t] = (ints(p, "ids")[T + t] + 1) % V;
    uint8_t *after = run(l, p, "nll", &bytes);
    if (memcmp(before, after, bytes * (size_t)(T + t)) != 0)
        fail_msg("another sequence or an earlier token changed: %s", l->what);
    if (memcmp(before + bytes * (size_t)(T + c), after + bytes * (size_t)(T + c),
               bytes * (size_t)(T - c)) != 0)
        fail_msg("a document sees the one before it: %s", l->what);
    if (memcmp(before + bytes * (size_t)(T + t), after + bytes * (size_t)(T + t),
               bytes * (size_t)(c - t)) == 0)
        fail_msg("a token of the document does not matter: %s", l->what);
    free(before);
    free(after);
}

static void test_random_models(void **state) {
    (void)state;
    dev *d;
    assert_int_equal(dev_open(&d, DEV_CPU, 2, NULL), ST_OK);
    for (int trial = 0; trial < 40; trial++) {
        lab l;
        lab_open(&l, d, trial);
        check_logits(&l);
        check_documents(&l);
        lab_close(&l);
    }
    dev_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
