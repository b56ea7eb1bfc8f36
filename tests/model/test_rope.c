/* Rotary positions: frequencies against published numbers and against what transformers computes
 * (golden/rope.json), the table, and the keys both ways. */
#include "test.h"

#include "model/rope.h"
#include "prog/prog.h"

enum { HALF_MAX = 64 };

static void assert_near(double got, double want, double relative, const char *what) {
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%s: %.12g, not %.12g", what, got, want);
}

/* ---- frequencies ---- */

typedef struct known {
    int index;
    double value;
} known;

static void check_known(const rope_spec *s, const known *k, int n) {
    double freq[HALF_MAX];
    rope_frequencies(s, 4096, freq);
    for (int i = 0; i < n; i++) assert_near(freq[k[i].index], k[i].value, 1e-9, "frequency");
}

static void test_llama3(void **state) {
    (void)state;
    rope_spec s = {.theta = 5e5, .rotary_dim = 128, .max_positions = 131072};
    s.scaling = (rope_scaling){.kind = ROPE_LLAMA3,
                               .factor = 8,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_max_position_embeddings = 8192};
    static const known llama31[] = {{29, 2.166570764e-3},
                                    {32, 5.248461610e-4},
                                    {34, 1.785078128e-4},
                                    {35, 9.556212354e-5},
                                    {63, 3.068925989e-7}};
    check_known(&s, llama31, ARRAY_LEN(llama31));
    s.rotary_dim = 64;
    s.scaling.factor = 32;
    static const known llama32[] = {{15, 1.290547928e-3},
                                    {16, 4.295567966e-4},
                                    {17, 9.708287803e-5},
                                    {18, 1.946163818e-5},
                                    {31, 9.418306725e-8}};
    check_known(&s, llama32, ARRAY_LEN(llama32));
}

static void test_yarn(void **state) {
    (void)state;
    rope_spec s = {.theta = 1e4, .rotary_dim = 64, .max_positions = 163840};
    s.scaling = (rope_scaling){.kind = ROPE_YARN,
                               .factor = 40,
                               .beta_fast = 32,
                               .beta_slow = 1,
                               .original_max_position_embeddings = 4096};
    static const known deepseek[] = {{10, 5.623413252e-2},
                                     {11, 3.900692657e-2},
                                     {16, 5.5e-3},
                                     {22, 1.778279410e-4},
                                     {23, 3.333803580e-5}};
    check_known(&s, deepseek, ARRAY_LEN(deepseek));
    double freq[HALF_MAX], mscale = 0.1 * log(40) + 1;
    assert_near(rope_frequencies(&s, 1, freq), mscale, 1e-12, "amplitude");
    s.scaling.mscale = s.scaling.mscale_all_dim = 1;
    assert_near(rope_frequencies(&s, 1, freq), 1, 1e-12, "amplitude with both mscales");
    /* Kimi K2: the ramp is a step between indices 19 and 20. */
    s.theta = 5e4;
    s.scaling.factor = 32;
    s.scaling.beta_fast = 1;
    rope_frequencies(&s, 1, freq);
    assert_near(freq[19], pow(5e4, -38.0 / 64), 1e-12, "before the step");
    assert_near(freq[20], pow(5e4, -40.0 / 64) / 32, 1e-12, "after the step");
}

static json_t *load_golden(void) {
    json_t *rows = json_load_file(TEST_DIR "/golden/rope.json", 0, NULL);
    assert_true(json_array_size(rows) > 40);
    return rows;
}

static rope_spec read_row(arena *a, const json_t *row, const json_t *given) {
    rope_spec s = {.rotary_dim = (int)json_integer_value(json_object_get(row, "dim")),
                   .max_positions = json_integer_value(json_object_get(row, "max"))};
    double partial = 1;
    err e = {0};
    if (rope_read(a, given, "rope_parameters", &s.scaling, &s.theta, &partial, &e) != ST_OK ||
        rope_check(&s, &e) != ST_OK)
        fail_msg("%s", e.message);
    return s;
}

static void check_row(const json_t *row, const rope_spec *s) {
    const json_t *want = json_object_get(row, "freq");
    double freq[HALF_MAX];
    double amplitude =
        rope_frequencies(s, (int64_t)json_integer_value(json_object_get(row, "length")), freq);
    char *what = json_dumps(json_object_get(row, "given"), 0);
    assert_int_equal(json_array_size(want), s->rotary_dim / 2);
    assert_near(amplitude, json_real_value(json_object_get(row, "amplitude")), 1e-12, what);
    for (int i = 0; i < s->rotary_dim / 2; i++)
        assert_near(freq[i], json_real_value(json_array_get(want, (size_t)i)), 1e-12, what);
    free(what);
}

/* As read, and as read from what is written. */
static void test_transformers(void **state) {
    (void)state;
    arena *a = arena_new("rope");
    json_t *rows = load_golden(), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        rope_spec s = read_row(a, row, json_object_get(row, "given"));
        check_row(row, &s);
        json_t *written = rope_json(&s, true);
        rope_spec again = read_row(a, row, written);
        assert_true(again.theta == s.theta);
        check_row(row, &again);
        json_decref(written);
        written = rope_json(&s, false);
        assert_true(json_is_null(written) == (s.scaling.kind == ROPE_PLAIN));
        assert_null(json_object_get(written, "rope_theta"));
        json_decref(written);
    }
    json_decref(rows);
    arena_free(a);
}

/* ---- the table ---- */

typedef struct lab {
    arena *a;
    dev *dev;
    prog *p;
    void *constants;
} lab;

static const void *open_table(lab *l, const rope_spec *s, int64_t rows, dtype dt) {
    *l = (lab){.a = arena_new("rope")};
    assert_int_equal(dev_open(&l->dev, DEV_CPU, 1, NULL), ST_OK);
    graph *g = graph_new(l->a, &(graph_options){.dev = l->dev, .dt = dt});
    val table = rope_table(g, "rope", s, rows, false);
    assert_int_equal(graph_rows(g, table), rows);
    assert_int_equal(graph_cols(g, table), s->rotary_dim);
    err e = {0};
    if (prog_finish(&l->p, g, &e) != ST_OK) fail_msg("%s", e.message);
    l->constants = aligned_alloc(64, (size_t)prog_get_stats(l->p)->const_bytes / 64 * 64 + 64);
    prog_bind(l->p, &(prog_frame){{[SPACE_CONST] = l->constants}}, 1);
    return l->constants; /* the table is the only one */
}

static void close_table(lab *l) {
    free(l->constants);
    dev_close(l->dev);
    arena_free(l->a);
}

/* Cosines, then sines, times the amplitude; frequencies of as many tokens as there are rows. */
static void test_table(void **state) {
    (void)state;
    static const double narrow[] = {1, 2}, wide[] = {3, 5};
    rope_spec s = {.theta = 100, .rotary_dim = 4, .max_positions = 64};
    s.scaling = (rope_scaling){.kind = ROPE_LONGROPE,
                               .short_factor = narrow,
                               .long_factor = wide,
                               .n_factors = 2,
                               .original_max_position_embeddings = 16};
    double amplitude = sqrt(1 + log(4) / log(16));
    for (int64_t rows = 16; rows <= 17; rows++) {
        const double *factor = rows > 16 ? wide : narrow;
        lab l, l64;
        const float *t = open_table(&l, &s, rows, DT_F32);
        const double *t64 = open_table(&l64, &s, rows, DT_F64);
        for (int64_t p = 0; p < rows; p++)
            for (int i = 0; i < 2; i++) {
                double angle = (double)p * pow(100, -i / 2.0) / factor[i];
                double c = amplitude * cos(angle), n = amplitude * sin(angle);
                assert_true(fabs(t64[p * 4 + i] - c) < 1e-14);
                assert_true(fabs(t64[p * 4 + 2 + i] - n) < 1e-14);
                assert_true(t[p * 4 + i] == (float)t64[p * 4 + i]);
                assert_true(t[p * 4 + 2 + i] == (float)t64[p * 4 + 2 + i]);
            }
        close_table(&l);
        close_table(&l64);
    }
}

/* ---- keys ---- */

static status read_text(arena *a, const char *text, rope_spec *s, err *e) {
    json_t *o = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(o);
    *e = (err){0};
    double partial = 1;
    s->theta = 1e4;
    status st = rope_read(a, o, "rope_scaling", &s->scaling, &s->theta, &partial, e);
    if (st == ST_OK) st = rope_check(s, e);
    json_decref(o);
    return st;
}

static void test_spellings(void **state) {
    (void)state;
    arena *a = arena_new("rope");
    rope_spec s = {.rotary_dim = 4, .max_positions = 128};
    err e;
    assert_int_equal(read_text(a, "{\"type\":\"linear\",\"factor\":2}", &s, &e), ST_OK);
    assert_true(s.scaling.kind == ROPE_LINEAR && s.scaling.factor == 2 && s.theta == 1e4);
    assert_int_equal(read_text(a, "{\"rope_type\":null,\"type\":\"dynamic\",\"factor\":2}", &s, &e),
                     ST_OK);
    assert_true(s.scaling.kind == ROPE_DYNAMIC);
    assert_int_equal(
        read_text(a, "{\"rope_theta\":7.5,\"type\":\"x\",\"rope_type\":\"default\"}", &s, &e),
        ST_OK);
    assert_true(s.scaling.kind == ROPE_PLAIN && s.theta == 7.5);
    assert_int_equal(
        read_text(a, "{\"type\":\"su\",\"short_factor\":[1,2],\"long_factor\":[3,4]}", &s, &e),
        ST_OK);
    assert_true(s.scaling.kind == ROPE_LONGROPE && s.scaling.long_factor[1] == 4);
    assert_int_equal(read_text(a,
                               "{\"type\":\"yarn\",\"factor\":16.0,\"finetuned\":true,"
                               "\"mscale\":0,\"attention_factor\":null,"
                               "\"original_max_position_embeddings\":64,\"truncate\":false}",
                               &s, &e),
                     ST_OK);
    assert_true(s.scaling.kind == ROPE_YARN && s.scaling.keep_fractions);
    assert_true(s.scaling.original_max_position_embeddings == 64);
    assert_int_equal(read_text(a, "{}", &s, &e), ST_OK);
    assert_true(s.scaling.kind == ROPE_PLAIN);
    arena_free(a);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *where, *hint;
    } bad[] = {
        {"3", "model.rope_scaling", ""},
        {"{\"type\":\"linaer\",\"factor\":2}", "model.rope_scaling.type", "nearest: linear"},
        {"{\"rope_type\":7}", "model.rope_scaling.rope_type", "use default, linear"},
        {"{\"type\":\"linear\"}", "model.rope_scaling.factor", "add"},
        {"{\"type\":\"linear\",\"factor\":0}", "model.rope_scaling.factor", "8.0"},
        {"{\"type\":\"linear\",\"factor\":\"2\"}", "model.rope_scaling.factor", "8.0"},
        {"{\"type\":\"linear\",\"factor\":2,\"beta_fast\":32}", "model.rope_scaling.beta_fast", ""},
        {"{\"type\":\"yarn\",\"factor\":2,\"beta_fats\":32}", "model.rope_scaling.beta_fats",
         "nearest: beta_fast"},
        {"{\"type\":\"default\",\"mrope_section\":[1,1]}", "model.rope_scaling.mrope_section", ""},
        {"{\"type\":\"yarn\",\"factor\":2,\"truncate\":1}", "model.rope_scaling.truncate", ""},
        {"{\"type\":\"yarn\",\"factor\":2,\"rope_theta\":1}", "model.rope_scaling", ""},
        {"{\"type\":\"yarn\",\"original_max_position_embeddings\":2.5}",
         "model.rope_scaling.original_max_position_embeddings", ""},
        {"{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":1}",
         "model.rope_scaling", ""},
        {"{\"type\":\"llama3\",\"factor\":8}", "model.rope_scaling.low_freq_factor", ""},
        {"{\"type\":\"longrope\",\"short_factor\":[1,2]}", "model.rope_scaling.long_factor", ""},
        {"{\"type\":\"longrope\",\"short_factor\":[1,2],\"long_factor\":[1]}",
         "model.rope_scaling.long_factor", ""},
        {"{\"type\":\"longrope\",\"short_factor\":[1,2,3],\"long_factor\":[1,2,3]}",
         "model.rope_scaling.short_factor", "each pair: 2"},
        {"{\"type\":\"longrope\",\"short_factor\":[1,-2],\"long_factor\":[1,1]}",
         "model.rope_scaling.short_factor", ""},
        {"{\"type\":\"longrope\",\"short_factor\":[],\"long_factor\":[1,1]}",
         "model.rope_scaling.short_factor", ""},
    };
    arena *a = arena_new("rope");
    for (int i = 0; i < ARRAY_LEN(bad); i++) {
        rope_spec s = {.rotary_dim = 4, .max_positions = 128};
        err e;
        if (read_text(a, bad[i].text, &s, &e) != ST_USAGE) fail_msg("%s is taken", bad[i].text);
        assert_string_equal(e.where, bad[i].where);
        assert_true(*e.message);
        if (!strstr(e.hint, bad[i].hint)) fail_msg("%s: hint is '%s'", bad[i].text, e.hint);
    }
    rope_spec odd = {.theta = 1e4, .rotary_dim = 3}, two = {.theta = 1e4, .rotary_dim = 2};
    err e = {0};
    two.scaling = (rope_scaling){.kind = ROPE_DYNAMIC, .factor = 2};
    assert_int_equal(rope_check(&odd, &e), ST_USAGE);
    assert_int_equal(rope_check(&two, &e), ST_USAGE);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama3),       cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_transformers), cmocka_unit_test(test_table),
        cmocka_unit_test(test_spellings),    cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
