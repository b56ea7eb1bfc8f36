/* Weights of llama2.c and llm.c: made here by their descriptions, read, and damaged. */
#include "test.h"

#include "base/strbuf.h"
#include "io/io_test.h"
#include "io/foreign.h"
#include "io/model_source.h"

static void put_ints(strbuf *b, const int32_t *x, int n) {
    strbuf_append(b, x, sizeof *x * (size_t)n);
}

/* n numbers that count on from *next, so that each tells where it lay. */
static void put_floats(strbuf *b, int64_t n, float *next) {
    for (int64_t i = 0; i < n; i++, *next += 1.0f) strbuf_append(b, next, sizeof *next);
}

enum { C = 8, F = 6, L = 2, H = 2, K = 1, V = 5, T = 3, D = C / H, KD = K * D };

static void make_llama2c(strbuf *b, bool tied) {
    float next = 0;
    put_ints(b, (const int32_t[]){C, F, L, H, K, tied ? V : -V, T}, 7);
    put_floats(b, V * C + L * (C + C * C + 2 * KD * C + C * C + C + 3 * F * C) + C + T * D, &next);
    if (!tied) put_floats(b, V * C, &next);
}

static const st_tensor *find(const foreign_model *m, const char *name) {
    for (int64_t i = 0; i < m->n; i++)
        if (strcmp(m->tensors[i].name, name) == 0) return &m->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static float first_of(const foreign_model *m, const char *name) {
    float x;
    memcpy(&x, find(m, name)->data, sizeof x);
    return x;
}

static void test_llama2c_places(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        strbuf b = {0};
        arena *a = arena_new("test");
        foreign_model m;
        err e;
        make_llama2c(&b, tied);
        assert_true(llama2c_looks_weights(b.data, b.len));
        assert_ok(llama2c_parse(a, b.data, b.len, "x.bin", &m, &e), e);
        assert_int_equal(m.n, 1 + 9 * L + 1 + !tied);
        assert_float_equal(first_of(&m, "model.embed_tokens.weight"), 0, 0);
        assert_float_equal(first_of(&m, "model.layers.0.input_layernorm.weight"), V * C, 0);
        assert_float_equal(first_of(&m, "model.layers.1.input_layernorm.weight"), V * C + C, 0);
        int64_t q = V * C + L * C, k = q + L * C * C,
                up = k + L * (2 * KD * C + C * C + C + 2 * F * C);
        assert_float_equal(first_of(&m, "model.layers.1.self_attn.q_proj.weight"), q + C * C, 0);
        assert_float_equal(first_of(&m, "model.layers.0.self_attn.k_proj.weight"), k, 0);
        assert_float_equal(first_of(&m, "model.layers.0.mlp.up_proj.weight"), up, 0);
        assert_float_equal(first_of(&m, "model.norm.weight"), up + L * F * C, 0);
        assert_int_equal(find(&m, "model.layers.0.mlp.down_proj.weight")->dims[1], F);
        assert_int_equal(json_is_true(json_object_get(m.config, "tie_word_embeddings")), tied);
        json_decref(m.config);
        arena_free(a);
        strbuf_free(&b);
    }
}

/* Every shorter file, and one that is longer. */
static void test_llama2c_wrong_length(void **state) {
    (void)state;
    strbuf b = {0};
    make_llama2c(&b, true);
    strbuf_puts(&b, "more");
    for (size_t n = 0; n <= b.len; n += n < 40 ? 1 : 4) {
        arena *a = arena_new("test");
        foreign_model m = {0};
        err e;
        bool whole = n == b.len - 4;
        assert_int_equal(llama2c_looks_weights(b.data, n), whole);
        status st = llama2c_parse(a, b.data, n, "x.bin", &m, &e);
        assert_int_equal(st, whole ? ST_OK : ST_FORMAT);
        if (whole)
            json_decref(m.config);
        else
            assert_string_equal(e.where, "x.bin");
        arena_free(a);
    }
    strbuf_free(&b);
}

static void test_llama2c_hostile_sizes(void **state) {
    (void)state;
    static const int32_t headers[][7] = {
        {0, 1, 1, 1, 1, 1, 1},
        {C, F, 5000, H, K, V, T},
        {C, F, L, 3, K, V, T},
        {C, F, L, H, 0, V, T},
        {INT32_MAX - 1, INT32_MAX, 4096, 1, 1, INT32_MAX, INT32_MAX},
        {INT32_MAX - 1, INT32_MAX, 4096, 1, 1, INT32_MIN, INT32_MAX},
        {C, F, L, H, K, V, -1},
    };
    for (int i = 0; i < ARRAY_LEN(headers); i++) {
        uint8_t bytes[256] = {0};
        foreign_model m;
        err e;
        memcpy(bytes, headers[i], sizeof headers[i]);
        arena *a = arena_new("test");
        assert_int_equal(llama2c_parse(a, bytes, sizeof bytes, "x.bin", &m, &e), ST_FORMAT);
        arena_free(a);
    }
}

enum { ROWS = 8 };

static void make_llmc(strbuf *b) {
    int32_t header[256] = {20240326, 3, T, V, L, H, C, ROWS};
    float next = 0;
    put_ints(b, header, 256);
    put_floats(b, ROWS * C + T * C + L * (4 * C + 12 * C * C + 9 * C) + 2 * C, &next);
}

static void test_llmc_places(void **state) {
    (void)state;
    strbuf b = {0};
    arena *a = arena_new("test");
    foreign_model m;
    err e;
    make_llmc(&b);
    assert_true(llmc_looks_weights(b.data, b.len));
    assert_ok(llmc_parse(a, b.data, b.len, "x.bin", &m, &e), e);
    assert_int_equal(find(&m, "transformer.wte.weight")->dims[0], V); /* not the padded rows */
    assert_float_equal(first_of(&m, "transformer.wpe.weight"), ROWS * C, 0);
    int64_t ln = (ROWS + T) * C, attn = ln + 2 * L * C;
    assert_float_equal(first_of(&m, "transformer.h.1.ln_1.weight"), ln + C, 0);
    assert_float_equal(first_of(&m, "transformer.h.1.attn.c_attn.weight"), attn + 3 * C * C, 0);
    assert_float_equal(first_of(&m, "transformer.h.0.attn.c_attn.bias"), attn + L * 3 * C * C, 0);
    assert_int_equal(find(&m, "transformer.h.0.mlp.c_fc.weight")->dims[0], 4 * C);
    json_decref(m.config);
    arena_free(a);
    strbuf_free(&b);
}

static void test_llmc_refusals(void **state) {
    (void)state;
    strbuf b = {0};
    make_llmc(&b);
    const struct {
        int word, value;
        size_t cut;
    } damage[] = {{0, 20240327, 0},  {1, 4, 0},         {5, 3, 0}, {7, V - 1, 0}, {4, 4097, 0},
                  {4, INT32_MAX, 0}, {3, INT32_MAX, 0}, {1, 3, 1}, {1, 3, 800}};
    for (int i = 0; i < ARRAY_LEN(damage); i++) {
        char *bytes = xmalloc(b.len);
        foreign_model m;
        err e;
        memcpy(bytes, b.data, b.len);
        memcpy(bytes + 4 * damage[i].word, &damage[i].value, 4);
        arena *a = arena_new("test");
        assert_int_equal(llmc_parse(a, bytes, b.len - damage[i].cut, "x.bin", &m, &e), ST_FORMAT);
        assert_string_equal(e.where, "x.bin");
        arena_free(a);
        free(bytes);
    }
    strbuf_free(&b);
}

/* Pairs of neighbours become halves: rows 0 2 1 3 of each head of four. */
static void test_rotary_rows_become_halves(void **state) {
    test_dir *d = *state;
    strbuf b = {0};
    err e;
    make_llama2c(&b, true);
    char *path = path_join(d->mem, d->path, "model.bin");
    assert_ok(file_write_atomic(path, b.data, b.len, &e), e);
    model_source s;
    assert_ok(model_source_open(&s, path, NULL, 0, &e), e);
    assert_int_equal(s.kind, MODEL_SOURCE_LLAMA2C);
    assert_false(model_source_folder_config(&s).rope_interleaved);
    st_tensor *list = model_source_folder_tensors(&s, d->mem, DT_COUNT);
    for (int i = 0; i < param_count(s.params); i++) {
        if (strcmp(list[i].name, "model.layers.0.self_attn.q_proj.weight") != 0) continue;
        float rows[C * C];
        static const int from[C] = {0, 2, 1, 3, 4, 6, 5, 7};
        assert_ok(list[i].fill(list[i].ctx, 0, C * C, rows, &e), e);
        for (int r = 0; r < C; r++)
            assert_float_equal(rows[r * C], (float)(V * C + L * C + from[r] * C), 0);
    }
    model_source_close(&s);
    strbuf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama2c_places),        cmocka_unit_test(test_llama2c_wrong_length),
        cmocka_unit_test(test_llama2c_hostile_sizes), cmocka_unit_test(test_llmc_places),
        cmocka_unit_test(test_llmc_refusals),         IO_TEST(test_rotary_rows_become_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
