/* Merging: the arithmetic against mergekit's (tests/oracle/make_merge_golden.py), whole models, recipes and
 * the differences that are refused. Resuming is in tests/cli/test_merge.sh. */
#include "test.h"

#include "base/json.h"
#include "base/yaml.h"
#include "interchange/ledger.h"
#include "interchange/merge/merge.h"
#include "interchange/merge/merge_check.h"
#include "interchange/merge/merge_recipe.h"
#include "io/io_test.h"
#include "io/safetensors/safetensors.h"

#define GOLDEN TEST_DIR "/golden/merge/merge.safetensors"
#define MODEL(name) TEST_DIR "/golden/models/" name
#define TENSOR "model.layers.3.mlp.up_proj.weight"

/* ---- arithmetic ---- */

static float *golden(test_dir *d, const char *name, int64_t *n) {
    st_reader *r;
    const st_view *v;
    err e;
    assert_ok(st_open(&r, GOLDEN, &e), e);
    assert_ok(st_require(r, name, &v, &e), e);
    *n = v->numel;
    float *x = ARENA_ARRAY(d->mem, float, v->numel);
    assert_ok(st_view_read(v, 0, v->numel, x, DT_F32, &e), e);
    st_close(r);
    return x;
}

typedef struct math_case {
    const char *expected;
    merge_method method;
    const char *in[3];
    double weight[3], density[3];
    double t, lambda;
    bool normalize, rescale;
    double tolerance;
} math_case;

static const math_case cases[] = {
    {"linear", MERGE_LINEAR, {"a", "b"}, {0.9, 0.1}, {0}, 0, 1, true, false, 0},
    {"soup", MERGE_SOUP, {"a", "b", "c"}, {1, 1, 1}, {0}, 0, 1, true, false, 0},
    {"slerp", MERGE_SLERP, {"a", "far"}, {0}, {0}, 0.3, 1, false, false, 1e-6},
    {"task_arithmetic",
     MERGE_TASK_ARITHMETIC,
     {"a", "b", "c"},
     {0.5, 0.3, 0.4},
     {1, 1, 1},
     0,
     0.7,
     false,
     false,
     1e-7},
    {"ties",
     MERGE_TIES,
     {"a", "b", "c"},
     {0.5, 0.3, 0.4},
     {0.5, 0.25, 0.8},
     0,
     1,
     true,
     false,
     1e-7},
    {"ties_whole",
     MERGE_TIES,
     {"a", "b", "c"},
     {0.5, 0.3, 0.4},
     {1, 1, 1},
     0,
     1,
     true,
     false,
     1e-7},
    {"dare_linear",
     MERGE_DARE_LINEAR,
     {"a", "b", "c"},
     {0.5, 0.3, 0.4},
     {0.5, 0.25, 0.8},
     0,
     1,
     false,
     true,
     1e-7},
    {"dare_ties",
     MERGE_DARE_TIES,
     {"a", "b", "c"},
     {0.5, 0.3, 0.4},
     {0.5, 0.25, 0.8},
     0,
     1,
     false,
     true,
     1e-7},
};

static void check_case(test_dir *d, const math_case *c) {
    int64_t n;
    merge_input in[3] = {{0}};
    const float *want = golden(d, c->expected, &n);
    merge_tensor m = {.method = c->method,
                      .name = TENSOR,
                      .seed = 7,
                      .elems = n,
                      .in = in,
                      .base = golden(d, "base", &n),
                      .t = c->t,
                      .lambda = c->lambda,
                      .normalize = c->normalize,
                      .rescale = c->rescale,
                      .out = ARENA_ARRAY(d->mem, float, n)};
    for (; m.n < 3 && c->in[m.n]; m.n++)
        in[m.n] = (merge_input){golden(d, c->in[m.n], &n), c->weight[m.n], c->density[m.n]};
    merge_compute(&m);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)m.out[i] - (double)want[i]) <= c->tolerance))
            fail_msg("%s, element %lld: %.9g, not %.9g", c->expected, (long long)i,
                     (double)m.out[i], (double)want[i]);
}

static void test_equals_mergekit(void **state) {
    for (int i = 0; i < ARRAY_LEN(cases); i++) check_case(*state, &cases[i]);
}

static void test_straight_slerp(void **state) {
    test_dir *d = *state;
    int64_t n;
    const float *want = golden(d, "slerp_straight", &n);
    float *a = golden(d, "a", &n), *b = ARENA_ARRAY(d->mem, float, n);
    for (int64_t i = 0; i < n; i++) b[i] = a[i] * 1.5f;
    merge_input in[2] = {{.x = a}, {.x = b}};
    merge_tensor m = {
        .method = MERGE_SLERP, .name = TENSOR, .elems = n, .in = in, .n = 2, .t = 0.3, .out = a};
    merge_compute(&m);
    for (int64_t i = 0; i < n; i++) assert_float_equal(a[i], want[i], 1e-7);
}

/* Of equal magnitudes the first are kept, and exactly as many as asked. */
static void test_trim_of_equals(void **state) {
    (void)state;
    float x[8] = {1, -1, 1, 1, 0.5f, -1, 1, 1}, base[8] = {0}, out[8];
    merge_input in = {.x = x, .weight = 1, .density = 0.5};
    merge_tensor m = {.method = MERGE_TIES,
                      .name = TENSOR,
                      .elems = 8,
                      .in = &in,
                      .n = 1,
                      .base = base,
                      .lambda = 1,
                      .out = out};
    const float want[8] = {1, -1, 1, 1, 0, 0, 0, 0};
    merge_compute(&m);
    assert_memory_equal(out, want, sizeof out);
}

/* ---- whole models ---- */

static status merge_text(test_dir *d, const char *text, const char *name, unsigned allow,
                         merge_report *r, err *e) {
    json_t *config, *origins;
    merge_options opt = {.allow = allow};
    assert_ok(yaml_parse(&config, &origins, "merge.yaml", text, strlen(text), e), *e);
    status st = merge_run(config, origins, "merge.yaml", path_join(d->mem, d->path, name), &opt,
                          NULL, NULL, r, e);
    json_decref(config);
    json_decref(origins);
    return st;
}

static void assert_same_weights(const char *a, const char *b) {
    st_reader *x, *y;
    err e;
    assert_ok(st_open(&x, a, &e), e);
    assert_ok(st_open(&y, b, &e), e);
    assert_int_equal(st_count(x), st_count(y));
    for (int64_t i = 0; i < st_count(x); i++) {
        const st_view *v = st_get(x, i), *w = st_find(y, v->name);
        assert_non_null(w);
        assert_string_equal(v->format, w->format);
        assert_int_equal(v->bytes, w->bytes);
        assert_memory_equal(v->data, w->data, v->bytes);
    }
    st_close(x);
    st_close(y);
}

/* The same model in another folder: by another name of its own folder a base is no model of the list. */
static const char *copy_of(test_dir *d, const char *model, const char *name) {
    char **files, *to = path_join(d->mem, d->path, name);
    int n;
    err e;
    assert_ok(file_make_dirs(to, &e), e);
    assert_ok(file_list_dir(d->mem, model, &files, &n, &e), e);
    for (int i = 0; i < n; i++) {
        char *bytes;
        size_t len;
        assert_ok(file_read_all(path_join(d->mem, model, files[i]), &bytes, &len, &e), e);
        assert_ok(file_write_atomic(path_join(d->mem, to, files[i]), bytes, len, &e), e);
        free(bytes);
    }
    return to;
}

/* merge(A, A) is A, of every method that has such a case, and of a family with transposed matrices. */
static void test_of_one_model_is_that_model(void **state) {
    test_dir *d = *state;
    static const char *const models[] = {MODEL("llama-gqa-tied"), MODEL("gpt2-tanh-tied")};
    static const char *const forms[] = {
        "method: linear\nmodels: [{model: %s, weight: 0.9}, {model: %s, weight: 0.1}]\n",
        "method: soup\nmodels: [%s, %s]\n",
        "method: slerp\nt: 0.37\nmodels: [%s, %s]\n",
        "method: ties\nbase: %s\nmodels: [%s]\n",
        "method: dare_ties\nbase: %s\nmodels: [{model: %s, density: 0.5}]\n",
    };
    for (int k = 0; k < 2 * ARRAY_LEN(forms); k++) {
        const char *m = models[k % 2], *name = arena_printf(d->mem, "same-%d", k);
        const char *copy = copy_of(d, m, arena_printf(d->mem, "copy-%d", k));
        char text[2048];
        merge_report r;
        err e;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, forms[k / 2], m, copy);
#pragma GCC diagnostic pop
        assert_ok(merge_text(d, text, name, 0, &r, &e), e);
        assert_same_weights(m, path_join(d->mem, d->path, name));
        merge_report_free(&r);
    }
}

/* The layers have values of their own, and filters choose tensors. */
static void test_settings_by_place_and_name(void **state) {
    test_dir *d = *state;
    static const char text[] =
        "method: linear\n"
        "models:\n"
        "  - {model: a, weight: [0, 1]}\n"
        "  - {model: b, parameters: {weight: [{filter: mlp, value: 0.25}, {value: 2}]}}\n";
    json_t *config, *origins;
    merge_recipe r;
    merge_input in[2];
    err e;
    assert_ok(yaml_parse(&config, &origins, "m.yaml", text, strlen(text), &e), e);
    assert_ok(merge_recipe_read(&r, d->mem, config, origins, "m.yaml", &e), e);
    merge_tensor m = {.name = "model.layers.1.mlp.up_proj.weight", .in = in};
    merge_recipe_fill(&r, 0.25, &m);
    assert_float_equal(in[0].weight, 0.25, 1e-12);
    assert_float_equal(in[1].weight, 0.25, 0);
    m.name = "model.layers.1.self_attn.q_proj.weight";
    merge_recipe_fill(&r, 1, &m);
    assert_float_equal(in[0].weight, 1, 0);
    assert_float_equal(in[1].weight, 2, 0);
    assert_true(m.normalize);
    json_decref(config);
    json_decref(origins);
}

/* ---- refusals ---- */

typedef struct refusal {
    const char *text, *message, *where;
} refusal;

static const refusal refusals[] = {
    {"method: linnear\nmodels: [a, b]\n", "no method of merging linnear", "merge.yaml:1"},
    {"method: linear\n", "models must be a list", "merge.yaml"},
    {"method: linear\nmodels: [a]\n", "models must be two at least", "merge.yaml:2"},
    {"method: linear\nmodels: [a, b]\ndensity: 0.5\n", "density does nothing", "merge.yaml:3"},
    {"method: ties\nmodels: [a, b]\n", "needs a base", "merge.yaml:1"},
    {"method: ties\nbase: a\nmodels: [{model: b, density: 0}]\n", "number above 0 to 1",
     "merge.yaml:3"},
    {"method: slerp\nmodels: [a, b]\n", "t is missing", "merge.yaml"},
    {"method: slerp\nt: 0.5\nmodels: [a, b, c]\n", "two for slerp", "merge.yaml:3"},
    {"method: slerp\nt: [{filter: mlp, value: 0.5}]\nmodels: [a, b]\n", "no filter",
     "merge.yaml:2"},
    {"method: linear\nmodels: [a, b]\nweigth: 1\n", "no key weigth", "merge.yaml:3"},
    {"method: linear\nmodels:\n  - {model: a, weight: [1, x]}\n  - b\n", "models.0.weight.1",
     "merge.yaml:3"},
    {"method: linear\nslices: []\nmodels: [a, b]\n", "slices of others", "merge.yaml:2"},
    {"method: soup\nmodels: [a, b]\ndtype: int8\n", "must be f32, f16 or bf16", "merge.yaml:3"},
    {"method: soup\nmodels: [a, b]\nseed: -1\n", "whole number", "merge.yaml:3"},
    {"[]\n", "holds no config", "merge.yaml"},
};

static void test_wrong_recipes_are_refused(void **state) {
    for (int i = 0; i < ARRAY_LEN(refusals); i++) {
        merge_report r;
        err e = {0};
        assert_int_equal(merge_text(*state, refusals[i].text, "never", 0, &r, &e), ST_USAGE);
        if (!strstr(e.message, refusals[i].message) || strcmp(e.where, refusals[i].where) != 0)
            fail_msg("%s: '%s' at %s", refusals[i].text, e.message, e.where);
        merge_report_free(&r);
    }
}

static void refuse_pair(test_dir *d, const char *a, const char *b, const char *message) {
    merge_report r;
    err e = {0};
    const char *text = arena_printf(d->mem, "method: soup\nmodels: [%s, %s]\n", a, b);
    assert_int_equal(merge_text(d, text, "never", 0, &r, &e), ST_USAGE);
    if (!strstr(e.message, message)) fail_msg("'%s' does not say '%s'", e.message, message);
    merge_report_free(&r);
    assert_false(file_exists(path_join(d->mem, d->path, "never")));
}

static void test_other_models_are_refused(void **state) {
    test_dir *d = *state;
    refuse_pair(d, MODEL("llama-gqa-tied"), MODEL("gpt2-tanh-tied"), "is a llama model");
    refuse_pair(d, MODEL("llama-linear"), MODEL("llama-yarn"), "has the shape");
    refuse_pair(d, MODEL("llama-gqa-tied"), MODEL("nothing"), "there is no model");
}

/* Copies of one model of which the files in `name` differ. */
static char *copy_model(test_dir *d, const char *to, const char *name, const char *text) {
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    char *dir = path_join(d->mem, d->path, to);
    err e;
    assert_ok(file_make_dirs(dir, &e), e);
    for (int i = 0; i < ARRAY_LEN(files); i++) {
        char *data;
        size_t len;
        assert_ok(
            file_read_all(path_join(d->mem, MODEL("llama-gqa-tied"), files[i]), &data, &len, &e),
            e);
        assert_ok(file_write_atomic(path_join(d->mem, dir, files[i]), data, len, &e), e);
        free(data);
    }
    if (name) assert_ok(file_write_atomic(path_join(d->mem, dir, name), text, strlen(text), &e), e);
    return dir;
}

static void test_templates_must_agree(void **state) {
    test_dir *d = *state;
    merge_report r;
    err e = {0};
    char *a = copy_model(d, "a", "chat_template.jinja", "{{ messages }}");
    char *b = copy_model(d, "b", "chat_template.jinja", "{{ messages[0] }}");
    char *c = copy_model(d, "c", "chat_template.jinja", "{{ messages }}\n");
    refuse_pair(d, a, b, "chat templates");
    const char *text = arena_printf(d->mem, "method: soup\nmodels: [%s, %s]\n", a, c);
    assert_ok(merge_text(d, text, "same", 0, &r, &e), e);
    merge_report_free(&r);
    text = arena_printf(d->mem, "method: soup\nmodels: [%s, %s]\n", a, b);
    assert_ok(merge_text(d, text, "allowed", 1u << MERGE_ALLOW_TEMPLATE, &r, &e), e);
    assert_non_null(strstr(strbuf_cstr(&r.notes), "Allowed"));
    merge_report_free(&r);
}

static void test_ledger_names_the_parents(void **state) {
    test_dir *d = *state;
    merge_report r;
    err e = {0};
    char *a = copy_model(d, "a", "README.md", "---\nlicense: mit\n---\n");
    char *b = copy_model(d, "b", "README.md", "---\nlicense: mit\n---\n");
    const char *text =
        arena_printf(d->mem, "method: linear\nmodels: [{model: %s, weight: 3}, %s]\n", a, b);
    assert_ok(merge_text(d, text, "out", 0, &r, &e), e);
    char *card, *dir = path_join(d->mem, d->path, "out");
    size_t len;
    assert_ok(file_read_all(path_join(d->mem, dir, "README.md"), &card, &len, &e), e);
    assert_non_null(strstr(card, "license: \"mit\""));
    free(card);
    json_t *ledger = ledger_read(dir);
    const json_t *parents = json_object_get(ledger, "parents"), *first = json_array_get(parents, 0);
    assert_int_equal(json_array_size(parents), 2);
    assert_string_equal(json_string_value(json_object_get(first, "path")), a);
    assert_int_equal(json_integer_value(json_object_get(first, "weight")), 3);
    uint64_t hash, want;
    const json_t *file = json_array_get(json_object_get(first, "files"), 0);
    assert_ok(hash_file(path_join(d->mem, a, "model.safetensors"), &want, &e), e);
    assert_true(hash_parse(json_string_value(json_object_get(file, "xxh3")), &hash));
    assert_true(hash == want);
    json_decref(ledger);
    merge_report_free(&r);
    assert_ok(merge_text(d, text, "out", 0, &r, &e), e); /* it is there already */
    assert_true(r.was_done);
    merge_report_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_equals_mergekit),
        IO_TEST(test_straight_slerp),
        cmocka_unit_test(test_trim_of_equals),
        IO_TEST(test_of_one_model_is_that_model),
        IO_TEST(test_settings_by_place_and_name),
        IO_TEST(test_wrong_recipes_are_refused),
        IO_TEST(test_other_models_are_refused),
        IO_TEST(test_templates_must_agree),
        IO_TEST(test_ledger_names_the_parents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
