/* YAML to JSON: typing rules, origins, limits, errors with lines; JSON numbers that read back. */
#include "test.h"

#include "base/json.h"
#include "base/yaml.h"

static json_t *parse(const char *text, json_t **origins) {
    json_t *root;
    err e = {0};
    status st = yaml_parse(&root, origins, "t.yaml", text, strlen(text), &e);
    if (st != ST_OK) fail_msg("%s", e.message);
    return root;
}

static void expect_json(const char *text, const char *json) {
    json_t *root = parse(text, NULL);
    strbuf out = {0};
    json_format(&out, root, 0);
    assert_string_equal(strbuf_cstr(&out), json);
    strbuf_free(&out);
    json_decref(root);
}

static void expect_error(const char *text, size_t len, const char *part, const char *where) {
    json_t *root, *origins;
    err e = {0};
    assert_int_equal(yaml_parse(&root, &origins, "t.yaml", text, len, &e), ST_USAGE);
    assert_null(root);
    assert_null(origins);
    if (!strstr(e.message, part)) fail_msg("'%s' is not in: %s", part, e.message);
    assert_string_equal(e.where, where);
}

static void test_typing(void **state) {
    (void)state;
    expect_json("[1, -7, +5, 0x1f, 0o17, 007]", "[1, -7, 5, 31, 15, 7]");
    expect_json("[3e-4, 3.0e-4, .5, 1., -1E3]", "[0.0003, 0.0003, 0.5, 1.0, -1000.0]");
    expect_json("[9223372036854775807, 9223372036854775808]",
                "[9223372036854775807, 9.223372036854776e+18]");
    expect_json("[0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0x0x5]",
                "[9223372036854775807, 9.223372036854776e+18, 1.8446744073709552e+19, "
                "\"0x0x5\"]");
    expect_json("[true, False, TRUE]", "[true, false, true]");
    expect_json("[null, ~, Null]", "[null, null, null]");
    expect_json("a:\nb: ~", "{\"a\": null, \"b\": null}");
    expect_json("[no, yes, on, off, y, N]", "[\"no\", \"yes\", \"on\", \"off\", \"y\", \"N\"]");
    expect_json("['1', \"true\", '', !!str 5]", "[\"1\", \"true\", \"\", \"5\"]");
    expect_json("[10B, 1e, -, +, ., .inf, .nan, 1e999, 0x, 1_000, 1.2.3]",
                "[\"10B\", \"1e\", \"-\", \"+\", \".\", \".inf\", \".nan\", \"1e999\", \"0x\", "
                "\"1_000\", \"1.2.3\"]");
    expect_json("a: |\n  12\n", "{\"a\": \"12\\n\"}");
    expect_json("", "null");
    expect_json("# nothing\n", "null");
}

static void test_json_is_yaml(void **state) {
    (void)state;
    expect_json("{\n\t\"a\": [1, 2.5, null, true, \"no\"],\n\t\"b\": {\"c\": \"x\\/y\"}}",
                "{\"a\": [1, 2.5, null, true, \"no\"], \"b\": {\"c\": \"x/y\"}}");
    expect_json("{\"a\": \"\\ud83d\\ude00\"}", "{\"a\": \"\xf0\x9f\x98\x80\"}");
}

static void test_aliases(void **state) {
    (void)state;
    expect_json("a: &x {k: [1, 2]}\nb: *x\n", "{\"a\": {\"k\": [1, 2]}, \"b\": {\"k\": [1, 2]}}");
    const char *unknown = "a: 1\nb: *x\n", *self = "a: &x [*x]\n";
    expect_error(unknown, strlen(unknown), "unknown alias 'x'", "t.yaml:2");
    expect_error(self, strlen(self), "unknown alias 'x'", "t.yaml:1");
}

static void test_billion_laughs(void **state) {
    (void)state;
    strbuf nodes = {0}, bytes = {0};
    strbuf_puts(&nodes, "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
    for (int i = 1; i < 12; i++) {
        strbuf_printf(&nodes, "a%d: &a%d [", i, i);
        for (int j = 0; j < 10; j++) strbuf_printf(&nodes, "%s*a%d", j ? ", " : "", i - 1);
        strbuf_puts(&nodes, "]\n");
    }
    expect_error(nodes.data, nodes.len, "too many values", "t.yaml:5");
    strbuf_puts(&bytes, "a: &a '");
    for (int i = 0; i < 100000; i++) strbuf_puts(&bytes, "0123456789");
    strbuf_puts(&bytes, "'\nb: [");
    for (int i = 0; i < 100; i++) strbuf_puts(&bytes, "*a, ");
    strbuf_puts(&bytes, "1]\n");
    expect_error(bytes.data, bytes.len, "too many values", "t.yaml:2");
    strbuf_free(&nodes);
    strbuf_free(&bytes);
}

static void repeat(strbuf *out, const char *s, int n) {
    for (int i = 0; i < n; i++) strbuf_puts(out, s);
}

static void test_limits(void **state) {
    (void)state;
    strbuf ok = {0}, deep = {0}, json = {0}, alias = {0}, large = {0}, path = {0};
    repeat(&ok, "[", YAML_MAX_DEPTH);
    repeat(&ok, "]", YAML_MAX_DEPTH);
    json_decref(parse(ok.data, NULL));
    repeat(&deep, "[", YAML_MAX_DEPTH + 1);
    repeat(&deep, "]", YAML_MAX_DEPTH + 1);
    expect_error(deep.data, deep.len, "nested too deeply", "t.yaml:1");
    strbuf_puts(&json, "{\"s\": \"\\ud83d\\ude00\", \"a\": ");
    strbuf_append(&json, deep.data, deep.len);
    strbuf_puts(&json, "}");
    expect_error(json.data, json.len, "Unicode", "t.yaml:1");
    strbuf_puts(&alias, "- &a ");
    repeat(&alias, "[", 40);
    repeat(&alias, "]", 40);
    strbuf_puts(&alias, "\n- ");
    repeat(&alias, "[", 40);
    strbuf_puts(&alias, "*a");
    repeat(&alias, "]", 40);
    expect_error(alias.data, alias.len, "nested too deeply", "t.yaml:2");
    repeat(&large, "#", YAML_MAX_BYTES + 1);
    expect_error(large.data, large.len, "larger than", "t.yaml");
    for (int i = 0; i < 20; i++) {
        strbuf_printf(&path, "%*s", i, "");
        repeat(&path, "k", 100);
        strbuf_puts(&path, ":\n");
    }
    expect_error(path.data, path.len, "too long", "t.yaml:11");
    strbuf *all[] = {&ok, &deep, &json, &alias, &large, &path};
    for (int i = 0; i < ARRAY_LEN(all); i++) strbuf_free(all[i]);
}

static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *text, *part, *where;
    } cases[] = {
        {"a: 1\nb: 2\na: 3\n", "duplicate key 'a'", "t.yaml:3"},
        {"a: {x: 1, x: 2}\n", "duplicate key 'x'", "t.yaml:1"},
        {"{\"a\": 1,\n \"a\": 2}", "duplicate key 'a'", "t.yaml:2"},
        {"a: 1\n  b: 2\n", "not valid YAML", "t.yaml:2"},
        {"a: [1, 2\nb: 3\n", "not valid YAML", "t.yaml:2"},
        {"a: \"x\\0y\"\n", "NUL byte", "t.yaml:1"},
        {"? [a, b]\n: 1\n", "a key must be", "t.yaml:1"},
        {"a: 1\n---\nb: 2\n", "one document", "t.yaml:2"},
        {"\na: !!binary aGk=\n", "tags are not supported", "t.yaml:2"},
        {"a: \xff\xfe\n", "not valid YAML", "t.yaml:1"},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++)
        expect_error(cases[i].text, strlen(cases[i].text), cases[i].part, cases[i].where);
}

static void test_origins(void **state) {
    (void)state;
    json_t *origins;
    json_t *root = parse("a: 1\nb:\n  c:\n    - x\n    - {d: 2}\n", &origins);
    assert_string_equal(yaml_origin(origins, "a"), "t.yaml:1");
    assert_string_equal(yaml_origin(origins, "b"), "t.yaml:2");
    assert_string_equal(yaml_origin(origins, "b.c"), "t.yaml:3");
    assert_string_equal(yaml_origin(origins, "b.c.1.d"), "t.yaml:5");
    assert_string_equal(yaml_origin(origins, "b.other.deep"), "t.yaml:2");
    assert_null(yaml_origin(origins, "other"));
    json_decref(root);
    json_decref(origins);
}

/* What is written as JSON is read as YAML with the same characters. */
static void test_written_json_is_yaml(void **state) {
    (void)state;
    static const char ODD[] =
        "\"a\\u2028b\\u0085\\u007F\\uFEFF \xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\"";
    expect_json(ODD, ODD);
}

static void expect_f32(float value, const char *text) {
    json_t *real = json_f32(value);
    strbuf out = {0};
    json_format(&out, real, 0);
    assert_string_equal(strbuf_cstr(&out), text);
    assert_true(strtof(strbuf_cstr(&out), NULL) == value);
    strbuf_free(&out);
    json_decref(real);
}

static void test_json_numbers(void **state) {
    (void)state;
    expect_f32(0.1F, "0.1");
    expect_f32(3.0F, "3.0");
    expect_f32(1.0F / 3.0F, "0.33333334");
    expect_f32(1e-45F, "1e-45");
    expect_f32(16777216.0F, "16777216.0");
    assert_true(json_is_null(json_f32(0.0F / (float)(*(volatile int *)&(int){0}))));
    uint32_t bits = 1;
    for (int i = 0; i < 20000; i++) { /* random floats, printed and read back */
        float f;
        bits = bits * 1664525U + 1013904223U;
        memcpy(&f, &bits, sizeof f);
        json_t *real = json_f32(f);
        strbuf out = {0};
        json_format(&out, real, 0);
        if (!json_is_null(real)) assert_true(strtof(strbuf_cstr(&out), NULL) == f);
        strbuf_free(&out);
        json_decref(real);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typing),
        cmocka_unit_test(test_json_is_yaml),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_billion_laughs),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_json_numbers),
        cmocka_unit_test(test_written_json_is_yaml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
