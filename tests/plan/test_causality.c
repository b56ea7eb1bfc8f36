/* A token cannot be seen from before it, nor from another document: for random shapes of every
 * family, with random options of others mixed in, changing one token leaves all earlier logits, and
 * the losses of other documents, the same to the bit, and changes later ones. In an engine's programs a
 * row does not depend on the rows of other texts that it is computed with, nor on how many there are. */
#include "test.h"

#include "base/rng.h"
#include "plan/plan.h"
#include "prog_memory.h"

enum { T = 33, V = 61 };
enum {
    SEQS = 3,
    PAGE = 4,
    TEXT = 22,
    OF_SEQ = (TEXT + PAGE - 1) / PAGE,
    PAGES = 2 * SEQS * OF_SEQ
};
enum { TRIALS = 120, SERVED = 30 }; /* models, and those that an engine has, too */

typedef struct lab {
    arena *a;
    dev *dev;
    plan *p;
    plan_spec spec;
    char what[640];
    uint64_t at; /* of the random choices */
    rng_key key;
} lab;

static int64_t choose(lab *l, int64_t n) {
    return rng_u32(l->key, l->at++) % n;
}

static json_t *list_of(lab *l, int64_t n, int64_t lowest, int64_t highest) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(lowest + choose(l, highest - lowest + 1)));
    return list;
}

static void set_int(json_t *o, const char *key, int64_t x) {
    json_object_set_new(o, key, json_integer(x));
}

/* Heads and widths: one number for all layers, or by layer; those of a family with learned
 * positions or with queries, keys and values in one tensor by head are equal. */
static void random_sizes(lab *l, json_t *o, const model_family *f) {
    static const int heads[][2] = {{1, 1}, {2, 1}, {4, 2}, {6, 3}, {4, 4}, {8, 2}};
    const int *h = heads[choose(l, 6)];
    int64_t layers = 1 + choose(l, 4), D = 8 * (1 + choose(l, 3));
    set_int(o, "num_hidden_layers", layers);
    set_int(o, "num_attention_heads", h[0]);
    set_int(o, "num_key_value_heads", f->qkv_by_head ? h[0] : h[1]);
    set_int(o, "head_dim", D);
    set_int(o, "hidden_size", choose(l, 2) ? h[0] * D : 8 + choose(l, 60));
    set_int(o, "intermediate_size", 5 + choose(l, 90));
    set_int(o, "linear_num_key_heads", 2);
    set_int(o, "linear_num_value_heads", 2 + 2 * choose(l, 2));
    set_int(o, "linear_key_head_dim", 3 + choose(l, 9));
    set_int(o, "linear_value_head_dim", 3 + choose(l, 9));
    if (choose(l, 4)) return;
    json_object_set_new(o, "intermediate_size", list_of(l, layers, 5, 60));
    json_t *kv = list_of(l, layers, 1, 3), *q = json_array(), *x;
    size_t i;
    json_array_foreach(kv, i, x) json_array_append_new(q, json_integer(2 * json_integer_value(x)));
    json_object_set_new(o, "num_attention_heads", q);
    json_object_set_new(o, "num_key_value_heads", f->qkv_by_head ? json_copy(q) : json_copy(kv));
    json_decref(kv);
}

/* These have no biases. */
static bool has_experts(const json_t *o) {
    const char *type = json_string_value(json_object_get(o, "model_type"));
    return strcmp(type, "mixtral") == 0 || strcmp(type, "olmoe") == 0 ||
           strcmp(type, "qwen2_moe") == 0 || strcmp(type, "qwen3_moe") == 0 ||
           strcmp(type, "qwen3_next") == 0 || strncmp(type, "deepseek", 8) == 0;
}

/* Takes away what does not go with latent attention, where the family has that. */
static void spare_latents(json_t *o) {
    static const char *const others[] = {"attn_output_gate", "clip_qkv", "partial_rotary_factor",
                                         "qk_norm"};
    const char *type = json_string_value(json_object_get(o, "model_type"));
    if (strncmp(type, "deepseek", 8) != 0 && strcmp(type, "minicpm3") != 0) return;
    for (int i = 0; i < ARRAY_LEN(others); i++) json_object_del(o, others[i]);
}

/* Latent attention has its own ways for these. */
static void drop_refused(json_t *o) {
    static const char *const refused[] = {"qk_norm", "clip_qkv", "partial_rotary_factor"};
    const char *type = json_string_value(json_object_get(o, "model_type"));
    if (strncmp(type, "deepseek", 8) != 0 && strcmp(type, "minicpm3") != 0) return;
    for (int i = 0; i < ARRAY_LEN(refused); i++) json_object_del(o, refused[i]);
}

/* One option that some family has, on any family. */
static void random_option(lab *l, json_t *o) {
    static const char *const numbers[] = {"attn_logit_softcapping",
                                          "final_logit_softcapping",
                                          "clip_qkv",
                                          "query_pre_attn_scalar",
                                          "scale_depth",
                                          "scale_emb"};
    static const char *const switches[] = {"rope_interleaved", "attention_bias",
                                           "mlp_bias",         "head_bias",
                                           "attn_output_gate", "tie_word_embeddings"};
    static const char *const words[][4] = {
        {"qk_norm", "none", "head", "full"},
        {"norm_placement", "pre", "post", "sandwich"},
        {"norm_weights", "none", "weight", "weight"},
        {"norm_type", "rms", "layer", "layer"},
        {"residual_type", "sequential", "parallel", "sequential"},
        {"mlp_type", "gated", "plain", "gated"}};
    int64_t layers = json_integer_value(json_object_get(o, "num_hidden_layers"));
    const char *const *w = words[choose(l, 6)];
    switch (choose(l, 10)) {
        case 0:
            json_object_set_new(o, numbers[choose(l, 6)], json_real(0.5 + (double)choose(l, 4)));
            break;
        case 1:
            json_object_set_new(o, switches[choose(l, 6)], json_boolean(choose(l, 2)));
            if (has_experts(o)) json_object_set_new(o, "mlp_bias", json_false());
            break;
        case 2: json_object_set_new(o, w[0], json_string(w[1 + choose(l, 3)])); break;
        case 3: json_object_set_new(o, "sliding_window", list_of(l, layers, 0, 9)); break;
        case 4: json_object_set_new(o, "no_rope_layers", list_of(l, layers, 0, 1)); break;
        case 5: json_object_set_new(o, "partial_rotary_factor", json_real(0.5)); break;
        case 6: json_object_set_new(o, "attention_chunk_size", list_of(l, layers, 0, 9)); break;
        case 7: json_object_set_new(o, "attention_sinks", json_true()); break;
        case 8: json_object_set_new(o, "linear_layers", list_of(l, layers, 0, 1)); break;
        default: set_int(o, "block_repeat", 1 + choose(l, 2)); break;
    }
    spare_latents(o);
}

static void lab_open(lab *l, dev *d, int trial) {
    *l = (lab){.a = arena_new("causality"), .dev = d, .key = rng_key_numbered(17, (uint64_t)trial)};
    int n_families = 0;
    while (model_family_at(n_families)) n_families++;
    const model_family *f = model_family_at(trial % n_families);
    if (f->encoder_names[PART_Q])
        f = model_family_find("llama"); /* train/test_encoder.c has these */
    json_t *o = json_pack("{s:s,s:i,s:i,s:f}", "model_type", f->model_type, "vocab_size", V,
                          "max_position_embeddings", 64, "initializer_range",
                          0.3); /* so that every path matters */
    random_sizes(l, o, f);
    for (int64_t n = choose(l, 4); n > 0; n--) random_option(l, o);
    drop_refused(o);
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
    if (trial < SERVED)
        l->spec.serve = (engine_size){
            .rows = 24, .logits = 8, .longest = TEXT, .seqs = SEQS, .page = PAGE, .pages = PAGES};
    assert_int_equal(plan_new(&l->p, d, &l->spec, &e), ST_OK);
    assert_int_equal(plan_commit(l->p, &e), ST_OK);
    param_init_all(l->p->store, (uint64_t)trial);
}

static void lab_close(lab *l) {
    plan_free(l->p);
    arena_free(l->a);
}

static int32_t *ints(const prog *p, const char *name) {
    return prog_at(p, name);
}

/* The rows of output `name` as bytes. */
static uint8_t *run(lab *l, const prog *p, const char *name, size_t *row_bytes) {
    prog_replay(p, PROG_F, &(op_run){.dev = l->dev, .first_micro = true});
    tensor t = prog_named(p, name);
    *row_bytes = (size_t)t.cols * dtype_bytes(t.dt);
    uint8_t *copy = malloc(*row_bytes * (size_t)t.rows);
    memcpy(copy, t.data, *row_bytes * (size_t)t.rows);
    return copy;
}

static void check_logits(lab *l) {
    const prog *p = plan_prog(l->p, USE_LOGITS, 0);
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
    const prog *p = plan_prog(l->p, USE_VALID, 0);
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

/* ---- an engine's programs ---- */

/* Row n of a pass is token `pos` of text `seq`; seq -1: it is nobody's. */
static void put_row(const prog *p, int n, int seq, int pos) {
    int32_t *pages = ints(p, "pages");
    ints(p, "ids")[n] = seq < 0 ? 0 : (7 * seq + 5 * pos + pos * pos) % V;
    ints(p, "pos")[n] = seq < 0 ? 0 : pos;
    ints(p, "place")[2 * n] = seq < 0 ? 0 : seq;
    ints(p, "place")[2 * n + 1] = seq < 0 ? -1 : pos;
    ints(p, "at")[n] = seq < 0 ? -1 : pages[seq * OF_SEQ + pos / PAGE] * PAGE + pos % PAGE;
}

/* Rows of the program's pass: what is left of all texts in random pieces, or one row. */
static int fill_pass(lab *l, const prog *p, int rows, int done[SEQS], int of[][2]) {
    int n = 0;
    int32_t *span = model_has_states(&l->spec.model) ? ints(p, "span") : NULL;
    for (int s = 0; s < SEQS; s++) {
        int first = n;
        if (span) span[3 * s] = done[s], span[3 * s + 2] = n;
        for (int k = (int)choose(l, rows + 1); k > 0 && n < rows && done[s] < TEXT; k--, n++) {
            of[n][0] = s, of[n][1] = done[s]++;
            put_row(p, n, s, of[n][1]);
        }
        if (span) span[3 * s + 1] = n - first;
    }
    for (int i = n; i < rows; i++) put_row(p, i, -1, 0);
    return n;
}

/* All texts in passes of random shapes (of one row, if `alone`) with pages first, first + step, ...; y
 * [SEQS,TEXT] of `bytes` a row. */
static uint8_t *serve(lab *l, bool alone, int first, int step, size_t *bytes) {
    int done[SEQS] = {0}, of[24][2], left = SEQS * TEXT, n_shapes = 0;
    uint8_t *y = NULL;
    while (engine_rows_at(&l->spec.serve, n_shapes, true)) n_shapes++;
    while (left > 0) {
        int number = alone ? 0 : (int)choose(l, n_shapes);
        const prog *p = plan_prog(l->p, USE_BODY, number);
        for (int i = 0; i < SEQS * OF_SEQ; i++) ints(p, "pages")[i] = first + step * i;
        int n = fill_pass(l, p, engine_rows_at(&l->spec.serve, number, true), done, of);
        uint8_t *rows = run(l, p, "y", bytes);
        if (!y) y = malloc(*bytes * SEQS * TEXT);
        for (int i = 0; i < n; i++)
            memcpy(y + *bytes * (size_t)(of[i][0] * TEXT + of[i][1]), rows + *bytes * (size_t)i,
                   *bytes);
        free(rows);
        left -= n;
    }
    return y;
}

/* The logits of a row do not depend on the others either. */
static void check_heads(lab *l, const uint8_t *y, size_t bytes) {
    size_t of_logits;
    const prog *one = plan_prog(l->p, USE_HEAD, 0);
    for (int number = 1, rows; (rows = engine_rows_at(&l->spec.serve, number, false)); number++) {
        const prog *p = plan_prog(l->p, USE_HEAD, number);
        memcpy(prog_at(p, "x"), y, bytes * (size_t)rows);
        uint8_t *all = run(l, p, "logits", &of_logits);
        assert_true(of_logits == V * sizeof(float));
        for (int i = 0; i < rows; i++) {
            memcpy(prog_at(one, "x"), y + bytes * (size_t)i, bytes);
            uint8_t *alone = run(l, one, "logits", &of_logits);
            if (memcmp(alone, all + of_logits * (size_t)i, of_logits) != 0)
                fail_msg("logits of row %d depend on %d rows: %s", i, rows, l->what);
            free(alone);
        }
        free(all);
    }
}

static void check_serving(lab *l) {
    size_t bytes;
    uint8_t *alone = serve(l, true, 0, 1, &bytes), *among = serve(l, false, PAGES - 1, -1, &bytes);
    for (int i = 0; i < SEQS * TEXT; i++)
        if (memcmp(alone + bytes * (size_t)i, among + bytes * (size_t)i, bytes) != 0)
            fail_msg("token %d of text %d depends on other texts: %s", i % TEXT, i / TEXT, l->what);
    check_heads(l, alone, bytes);
    free(alone);
    free(among);
}

static void test_random_models(void **state) {
    (void)state;
    dev *d;
    assert_int_equal(dev_open(&d, DEV_CPU, 2, NULL), ST_OK);
    for (int trial = 0; trial < TRIALS; trial++) {
        lab l;
        lab_open(&l, d, trial);
        check_logits(&l);
        check_documents(&l);
        if (l.spec.serve.rows) check_serving(&l);
        lab_close(&l);
    }
    dev_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
