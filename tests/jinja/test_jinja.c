/* The template engine against renders of jinja2, its limits and its refusals. */
#include "test.h"

#include "base/file.h"
#include "jinja/jinja.h"

#define GOLDEN(name) TEST_DIR "/golden/jinja/" name

static char *read_golden(const char *path, size_t *len) {
    err e = {0};
    char *text;
    if (file_read_all(path, &text, len, &e) != ST_OK) fail_msg("%s", e.message);
    return text;
}

static status render(const char *text, size_t len, const json_t *context,
                     const jinja_limits *limits, strbuf *out, jinja_spans *spans, err *e) {
    jinja_template *t;
    TRY(jinja_parse(&t, text, len, e));
    status st = jinja_render(t, context, limits, out, spans, e);
    jinja_free(t);
    return st;
}

static json_t *read_golden_json(void) {
    size_t len;
    char *text = read_golden(GOLDEN("jinja.json"), &len);
    json_t *j = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    assert_non_null(j);
    free(text);
    return j;
}

/* The text that is wanted; null: the render must fail, with words and a place. */
static void check_text(const char *name, const json_t *want, status st, const strbuf *out,
                       const err *e) {
    if (json_is_null(want)) {
        if (st != ST_FORMAT || !e->message[0] || !e->where[0] || out->len) {
            fail_msg("%s\ngave status %d \"%s\" instead of an error", name, (int)st, e->message);
        }
        return;
    }
    if (st != ST_OK) fail_msg("%s\nfailed: %s (%s)", name, e->message, e->where);
    if (out->len != json_string_length(want) ||
        memcmp(strbuf_cstr(out), json_string_value(want), out->len) != 0) {
        fail_msg("%s\ngave     %s\nnot just %s", name, strbuf_cstr(out), json_string_value(want));
    }
}

static void test_programs(void **state) {
    (void)state;
    json_t *golden = read_golden_json(), *one;
    const json_t *context = json_object_get(golden, "context");
    size_t i;
    json_array_foreach(json_object_get(golden, "programs"), i, one) {
        const json_t *text = json_object_get(one, "template");
        strbuf out = {0};
        err e = {0};
        status st = render(json_string_value(text), json_string_length(text), context, NULL, &out,
                           NULL, &e);
        check_text(json_string_value(text), json_object_get(one, "text"), st, &out, &e);
        strbuf_free(&out);
    }
    assert_true(i > 150);
    json_decref(golden);
}

static void check_spans(const char *name, const json_t *want, const jinja_spans *got) {
    assert_int_equal(got->n, json_array_size(want));
    for (int64_t i = 0; i < got->n; i++) {
        const json_t *pair = json_array_get(want, (size_t)i);
        if ((size_t)json_integer_value(json_array_get(pair, 0)) != got->span[i].start ||
            (size_t)json_integer_value(json_array_get(pair, 1)) != got->span[i].end) {
            fail_msg("%s: span %d is %zu..%zu", name, (int)i, got->span[i].start, got->span[i].end);
        }
    }
}

static const struct tm noon = {
    .tm_year = 126, .tm_mon = 1, .tm_mday = 3, .tm_hour = 4, .tm_min = 5, .tm_sec = 6};

static void test_chats(void **state) {
    (void)state;
    json_t *golden = read_golden_json(), *one;
    size_t i, len;
    json_array_foreach(json_object_get(golden, "chats"), i, one) {
        char path[512], name[256];
        snprintf(path, sizeof(path), "%s/%s", GOLDEN("chat"),
                 json_string_value(json_object_get(one, "file")));
        snprintf(name, sizeof(name), "%s: %s", json_string_value(json_object_get(one, "file")),
                 json_string_value(json_object_get(one, "name")));
        char *text = read_golden(path, &len);
        strbuf out = {0};
        jinja_spans spans = {0};
        err e = {0};
        status st = render(text, len, json_object_get(one, "context"),
                           &(jinja_limits){.now = &noon}, &out, &spans, &e);
        check_text(name, json_object_get(one, "text"), st, &out, &e);
        if (st == ST_OK) check_spans(name, json_object_get(one, "spans"), &spans);
        strbuf_free(&out);
        free(spans.span);
        free(text);
    }
    assert_true(i > 40);
    json_decref(golden);
}

/* A template that fails within limits, with a message that names why. */
static void refuse(const char *text, const jinja_limits *limits, const char *names,
                   const char *where) {
    json_t *context = json_pack("{s:[i,i,i]}", "l", 1, 2, 3);
    strbuf out = {0};
    jinja_spans spans = {0};
    err e = {0};
    strbuf_puts(&out, "before");
    status st = render(text, strlen(text), context, limits, &out, &spans, &e);
    if (st != ST_FORMAT || !strstr(e.message, names) || strcmp(e.where, where) != 0) {
        fail_msg("%s\ngave status %d \"%s\" at %s", text, (int)st, e.message, e.where);
    }
    assert_string_equal(strbuf_cstr(&out), "before");
    assert_int_equal(spans.n, 0);
    strbuf_free(&out);
    free(spans.span);
    json_decref(context);
}

static void test_unsupported(void **state) {
    (void)state;
    refuse("a\n {% include 'x' %}", NULL, "\"include\" is not supported", "line 2, column 2");
    refuse("{% import 'x' as y %}", NULL, "\"import\" is not supported", "line 1, column 1");
    refuse("{% call m() %}{% endcall %}", NULL, "\"call\" is not supported", "line 1, column 1");
    refuse("{% extends 'x' %}", NULL, "\"extends\" is not supported", "line 1, column 1");
    refuse("{{ l |\n  mine }}", NULL, "there is no filter \"mine\"", "line 2, column 3");
    refuse("{{ l is odd_one }}", NULL, "there is no test \"odd_one\"", "line 1, column 9");
    refuse("{% for x in l recursive %}{% endfor %}", NULL, "recursive loops", "line 1, column 15");
    refuse("{% for in l %}{% endfor %}", NULL, "expected an expression", "line 1, column 8");
    refuse("{{ 'x'.encode() }}", NULL, "no attribute 'encode'", "line 1, column 14");
    refuse("{{ '\\N{BULLET}' }}", NULL, "escape", "line 1, column 6");
    refuse("{{ 99999999999999999999 }}", NULL, "64 bits", "line 1, column 4");
    refuse("{{ 9223372036854775807 + 1 }}", NULL, "64 bits", "line 1, column 24");
    refuse("{{ strftime_now('%Y') }}", NULL, "time, which is not given", "line 1, column 16");
    refuse("{{ l.append(4) }}", NULL, "unsafe", "line 1, column 12");
    refuse("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}", NULL,
           "generation block inside a macro", "line 1, column 16");
    refuse("a{% filter length %}x{% endfilter %}", NULL, "must give a text, not int",
           "line 1, column 2");
    refuse("\xFFx", NULL, "not UTF-8", "line 1, column 1");
}

/* Renders in the environment of lm-evaluation-harness; want NULL: 'm' is undefined. */
static void check_strict(const char *text, const char *want) {
    json_t *context = json_pack("{s:[i,i], s:{s:s,s:n}}", "l", 1, 2, "d", "b", "<&'>", "a");
    jinja_template *t;
    strbuf out = {0};
    err e = {0};
    assert_int_equal(jinja_parse_strict(&t, text, strlen(text), &e), ST_OK);
    status st = jinja_render(t, context, NULL, &out, NULL, &e);
    if (st != (want ? ST_OK : ST_FORMAT) || strcmp(strbuf_cstr(&out), want ? want : "") != 0 ||
        (!want && !strstr(e.message, "'m' is undefined")))
        fail_msg("%s\ngave status %d \"%s\" %s", text, (int)st, strbuf_cstr(&out), e.message);
    jinja_free(t);
    strbuf_free(&out);
    json_decref(context);
}

/* What is undefined may be asked for and passed on, not used. */
static void test_strict(void **state) {
    (void)state;
    static const char *const USES[] = {"{{ m }}",
                                       "{{ m ~ 'x' }}",
                                       "{% if m %}{% endif %}",
                                       "{{ m or 1 }}",
                                       "{{ not m }}",
                                       "{{ 1 if m else 2 }}",
                                       "{{ m == 1 }}",
                                       "{{ 1 in m }}",
                                       "{{ m in l }}",
                                       "{{ m | upper }}",
                                       "{{ m | length }}",
                                       "{{ m | select | list }}",
                                       "{{ '%s' % m }}",
                                       "{% for x in m %}{% endfor %}",
                                       "{{ m | join }}"};
    for (int i = 0; i < ARRAY_LEN(USES); i++) check_strict(USES[i], NULL);
    check_strict("{{ m is defined }}{{ m | default('x') }}{{ [m] }}{{ m is sequence }}",
                 "Falsex[Undefined]False");
    check_strict("{{ 'a' if l[0] == 2 }}{{ 'b' if l[1] == 2 }}", "b");
    check_strict(" {% if l %}\nx\n{% endif %}\n", " \nx\n\n");
    check_strict("{{ d | tojson }}", "{\"a\": null, \"b\": \"\\u003c\\u0026\\u0027\\u003e\"}");
}

static void test_limits(void **state) {
    (void)state;
    const char *spin = "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000)"
                       " %}{% endfor %}{% endfor %}{% endfor %}";
    refuse(spin, &(jinja_limits){.steps = 100000}, "more than 100000 steps", "line 1, column 53");
    refuse("{{ 'x' * 1000 }}", &(jinja_limits){.output_bytes = 999}, "more than 999 bytes",
           "line 1, column 1");
    refuse("{% for i in range(99) %}{{ i }}{% endfor %}", &(jinja_limits){.output_bytes = 50},
           "more than 50 bytes", "line 1, column 25");
    refuse("{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
           "{% endfor %}",
           &(jinja_limits){.memory_bytes = 1 << 20}, "more than 1048576 bytes",
           "line 1, column 79");
    refuse("{{ 'x' * 9000000000 }}", NULL, "steps", "line 1, column 8");
    refuse("{{ ('x' * 1000).replace('x', 'y' * 10000) | length }}",
           &(jinja_limits){.memory_bytes = 1 << 20}, "too long", "line 1, column 24");
    refuse("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL, "inside one another",
           "line 1, column 19");
    refuse("{% set ns = namespace(v=[]) %}{% for i in range(2000) %}{% set ns.v = [ns.v] %}"
           "{% endfor %}{{ ns.v }}",
           NULL, "inside one another", "line 1, column 92");
    refuse("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", NULL, "inside one another",
           "line 1, column 46");
    refuse("{% set ns = namespace(v=[1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}"
           "{% endfor %}{{ ns.v | string | length }}",
           &(jinja_limits){.steps = 1000000}, "steps", "line 1, column 107");
}

/* Work that grows with bytes counts as steps: each of these does what takes few expressions and much time. */
static void test_bytes_are_steps(void **state) {
    (void)state;
    static const char *const hostile[] = {"s == t",
                                          "s < t",
                                          "s in [t, t]",
                                          "'zz' in s",
                                          "('a' * 250 ~ 'b') in s",
                                          "s.find('b')",
                                          "s.rfind('b')",
                                          "s.rfind('b' ~ 'a' * 1000)",
                                          "s.index('a', 400000)",
                                          "s.count('b')",
                                          "s.replace('b', 'c')",
                                          "s.split('b')",
                                          "s.rsplit('b')",
                                          "s.rsplit('b' ~ 'a' * 1000)",
                                          "(' ' * 500000) | trim",
                                          "s.strip('zyxwvutsrqponmlkjihgfedcba')",
                                          "s.startswith(t)",
                                          "s.endswith(s[1:])",
                                          "s.removeprefix(t)",
                                          "s[400000:]",
                                          "s[400000]",
                                          "s | length",
                                          "s.isalpha()",
                                          "s.islower()",
                                          "s.upper()",
                                          "s | title",
                                          "s | wordcount",
                                          "s | truncate(400000)",
                                          "s | e",
                                          "s.splitlines()",
                                          "s | indent",
                                          "s.center(3)",
                                          "'x'.center(500000)",
                                          "'1'.zfill(500000)",
                                          "'x' * 500000",
                                          "s ~ t",
                                          "s + t",
                                          "'%s' % s",
                                          "'%.300f' % 1e308",
                                          "'{}'.format(s)",
                                          "1e308 | string",
                                          "[1e-300] | tojson",
                                          "1e-5 | round(300)",
                                          "'1.7976931348623157e308' | float",
                                          "(' ' * 500000) | int",
                                          "s | tojson",
                                          "[s] | string",
                                          "k | sort",
                                          "k | unique | list",
                                          "k | min",
                                          "dict([(s, 1)])[t]",
                                          "k | join(',')",
                                          "s | reverse",
                                          "n | map('string') | list",
                                          "n | select('odd') | list",
                                          "n | sum",
                                          "n.v | map(attribute='v.v.v.v.v.v.v.v') | list",
                                          "s is sameas t",
                                          "strftime_now('%c' * 250)",
                                          "s | list"};
    for (int i = 0; i < ARRAY_LEN(hostile); i++) {
        char text[1000];
        snprintf(text, sizeof(text),
                 "{%% set s = 'a' * 500000 %%}{%% set t = 'a' * 499999 ~ 'b' %%}{%% set k = [s, t, "
                 "s ~ '', t ~ ''] %%}"
                 "{%% set n = range(1000) | list %%}{%% for i in range(800) %%}{%% set x = %s "
                 "%%}{%% endfor %%}",
                 hostile[i]);
        json_t *context = json_object();
        strbuf out = {0};
        err e = {0};
        status st = render(text, strlen(text), context,
                           &(jinja_limits){.steps = 40000, .now = &noon}, &out, NULL, &e);
        if (st != ST_FORMAT || !strstr(e.message, "steps"))
            fail_msg("%s: status %d %s", hostile[i], (int)st, e.message);
        strbuf_free(&out);
        json_decref(context);
    }
}

/* Names are looked for one after the other, through all the blocks around. */
static void test_names_are_steps(void **state) {
    (void)state;
    strbuf b = {0};
    err e = {0};
    strbuf out = {0};
    jinja_limits limits = {.steps = 1000000};
    strbuf_puts(&b, "{% with ");
    for (int i = 0; i < 10000; i++) strbuf_printf(&b, "%sa%d = 1", i ? ", " : "", i);
    strbuf_puts(&b, " %}{% for i in range(10000) %}{% if m %}{% endif %}{% endfor %}{% endwith %}");
    assert_int_equal(render(b.data, b.len, NULL, &limits, &out, NULL, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "steps"));
    strbuf_free(&b);
    strbuf_free(&out);
}

/* Widths, counts and places at the ends of 64 bits. */
static void test_extremes(void **state) {
    (void)state;
    static const struct {
        const char *expression, *text; /* NULL: an error */
    } cases[] = {
        {"'abc'.center(low)", "abc"},
        {"'-1'.zfill(low)", "-1"},
        {"'abc' | center(low)", "abc"},
        {"'%*d' % (low, 1)", NULL},
        {"'%*d|' % (-3, 1)", "1  |"},
        {"'%.*f' % (low, 1.5)", "2"},
        {"'%-----------+++++d' % 1", "+1"},
        {"'a,b,c'.split(',', low)", "['a', 'b', 'c']"},
        {"'a,b,c'.rsplit(',', low)", "['a', 'b', 'c']"},
        {"'aaa'.replace('a', 'b', low)", "bbb"},
        {"'aaa'.replace('', 'b', low)", "bababab"},
        {"range(0, high, 4611686018427387904)[::low]", NULL},
        {"range(0, high, 4611686018427387904)[::-1] | list", "[4611686018427387904, 0]"},
        {"'abc'[low:high]", "abc"},
        {"'abc'[low]", ""},
        {"'a' * low", ""},
        {"low // -1", NULL},
        {"high | round(-1)", NULL},
        {"(high - 7) | round(-2)", "9223372036854775800"},
        {"high | round(-19)", "0"},
        {"25 | round(-1)", "20"},
        {"-35 | round(-1)", "-40"},
        {"1.5 | round(400)", "1.5"},
        {"1.5 | round(-400)", "0.0"},
        {"1.5 | round(400, 'ceil')", NULL},
        {"'9223372036854775807' | int", "9223372036854775807"},
        {"'9223372036854775808' | int", NULL},
        {"1e19 | int", NULL},
        {"'' | int(5)", "5"},
        {"(0 - 8) ** 0.5", NULL},
        {"10.0 ** 400", NULL},
    };
    json_t *context =
        json_pack("{s:I, s:I}", "low", (json_int_t)INT64_MIN, "high", (json_int_t)INT64_MAX);
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        char text[200];
        strbuf out = {0};
        err e = {0};
        snprintf(text, sizeof(text), "{{ %s }}", cases[i].expression);
        status st = render(text, strlen(text), context, NULL, &out, NULL, &e);
        bool same = cases[i].text ? st == ST_OK && strcmp(strbuf_cstr(&out), cases[i].text) == 0
                                  : st == ST_FORMAT;
        if (!same)
            fail_msg("%s: status %d, \"%s\" %s", text, (int)st, strbuf_cstr(&out), e.message);
        strbuf_free(&out);
    }
    json_decref(context);
}

/* n times a text, between a beginning and an end. */
static char *nested(const char *open, int n, const char *close) {
    strbuf b = {0};
    strbuf_puts(&b, "{{ ");
    for (int i = 0; i < n; i++) strbuf_puts(&b, open);
    strbuf_puts(&b, "1");
    for (int i = 0; i < n; i++) strbuf_puts(&b, close);
    strbuf_puts(&b, " }}");
    return b.data;
}

static void test_nesting(void **state) {
    (void)state;
    static const char *const parts[][2] = {{"(", ")"},          {"[", "]"},    {"not ", ""},
                                           {"- ", ""},          {"{1: ", "}"}, {"m(", ")"},
                                           {"1 if 1 else ", ""}};
    for (int i = 0; i < ARRAY_LEN(parts); i++) {
        char *text = nested(parts[i][0], 100000, parts[i][1]);
        jinja_template *t;
        err e = {0};
        assert_int_equal(jinja_parse(&t, text, strlen(text), &e), ST_FORMAT);
        assert_non_null(strstr(e.message, "nested") ? e.message : strstr(e.message, "inside"));
        free(text);
    }
    strbuf b = {0};
    err e = {0};
    strbuf out = {0};
    strbuf_puts(&b, "{{ 1");
    for (int i = 0; i < 100000; i++) strbuf_puts(&b, " + 1");
    strbuf_puts(&b, " }}");
    assert_int_equal(render(b.data, b.len, NULL, NULL, &out, NULL, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "inside one another"));
    strbuf_free(&b);
    strbuf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),        cmocka_unit_test(test_chats),
        cmocka_unit_test(test_unsupported),     cmocka_unit_test(test_strict),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_bytes_are_steps), cmocka_unit_test(test_names_are_steps),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
