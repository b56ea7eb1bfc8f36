/* Normalizers: text and places as the oracles give them (tests/oracle/make_tok_norm.py), and
 * hostile parameters. */
#include <time.h>

#include "base/utf8.h"
#include "sanitizer.h"
#include "tok/internal.h"
#include "tok/normalize/charsmap.h"
#include "tok/text/base64.h"
#include "tok/tok_test.h"

/* ---- running a normalizer ---- */

/* A tokenizer with this normalizer and a model that does not matter. */
static status parse_with(tok **t, const json_t *normalizer, err *e) {
    json_t *root =
        json_pack("{s:O, s:{s:s}, s:{s:s, s:{s:i}, s:[]}}", "normalizer", normalizer, "decoder",
                  "type", "Fuse", "model", "type", "BPE", "vocab", "a", 0, "merges");
    char *text = json_dumps(root, 0);
    status st = tok_parse(t, text, strlen(text), "test", e);
    json_decref(root);
    free(text);
    return st;
}

static tok *with(const json_t *normalizer) {
    err e = {0};
    tok *t;
    if (parse_with(&t, normalizer, &e) != ST_OK) fail_msg("%s", e.message);
    return t;
}

static tok_text with_places(const char *s, size_t n) {
    tok_text t = {.tracked = true};
    for (size_t i = 0; i < n;) {
        size_t len = utf8_size(s[i]);
        text_add(&t, s + i, len, (tok_span){(int32_t)i, (int32_t)(i + len)});
        i += len;
    }
    return t;
}

static bool moves_front(const norm_step *steps, int n) {
    for (int i = 0; i < n; i++) {
        if (norm_moves_front(&steps[i])) return true;
    }
    return false;
}

/* One string through steps, with places and without: both give `want`, the first also the places
 * (two numbers a character, or one when only starts are given). */
static void check_case(const norm_step *steps, int n, const json_t *c, int per_char,
                       const char *name) {
    const char *text = json_string_value(json_array_get(c, 0));
    const char *want = json_string_value(json_array_get(c, 1));
    const json_t *places = json_array_get(c, 2);
    size_t len = json_string_length(json_array_get(c, 0)),
           n_want = json_string_length(json_array_get(c, 1));
    err e = {0};
    norm_work work = {0};
    tok_text placed = with_places(text, len);
    tok_piece in = text_piece(&placed, true), bare = {.s = text, .len = len, .first = true}, out;
    if (norm_run(steps, n, &bare, &work, &out, &e) != ST_OK) fail_msg("%s", e.message);
    bool first = out.first;
    if (out.len != n_want || memcmp(out.s, want, n_want) != 0) {
        fail_msg("%s\n'%s' became '%.*s' without places, not '%s'", name, text, (int)out.len, out.s,
                 want);
    }
    if (norm_run(steps, n, &in, &work, &out, &e) != ST_OK) fail_msg("%s", e.message);
    if (out.len != n_want || memcmp(out.s, want, n_want) != 0) {
        fail_msg("%s\n'%s' became '%.*s', not '%s'", name, text, (int)out.len, out.s, want);
    }
    if (out.len > 0) assert_int_equal(out.first, out.from[0].start == 0);
    if (out.len > 0 && !moves_front(steps, n)) assert_int_equal(out.first, first);
    size_t k = 0;
    for (size_t i = 0; i < out.len; i++) {
        if (((uint8_t)out.s[i] & 0xC0) == 0x80) continue;
        json_int_t start = json_integer_value(json_array_get(places, k++));
        json_int_t end =
            per_char == 2 ? json_integer_value(json_array_get(places, k++)) : out.from[i].end;
        if (out.from[i].start != start || out.from[i].end != end) {
            fail_msg("%s\n'%s': byte %zu of '%s' stands for [%d, %d), not [%d, %d)", name, text, i,
                     want, out.from[i].start, out.from[i].end, (int)start, (int)end);
        }
    }
    /* sentencepiece says where the whole ends, too. */
    if (per_char == 1 && out.len > 0) {
        assert_int_equal(out.from[out.len - 1].end, json_integer_value(json_array_get(places, k)));
    }
    text_free(&placed);
    norm_work_free(&work);
}

static json_t *golden(void) {
    size_t len;
    json_error_t je;
    char *text = read_golden(GOLDEN("norm.json"), &len);
    json_t *root = json_loadb(text, len, JSON_ALLOW_NUL, &je);
    if (!root) fail_msg("%s at line %d", je.text, je.line);
    free(text);
    return root;
}

/* ---- against the oracles ---- */

static void test_normalizers(void **state) {
    (void)state;
    json_t *root = golden(), *g, *c;
    size_t i, k;
    json_array_foreach(json_object_get(root, "normalizers"), i, g) {
        const json_t *normalizer = json_object_get(g, "normalizer");
        char *name = json_dumps(normalizer, 0);
        tok *t = with(normalizer);
        json_array_foreach(json_object_get(g, "cases"), k, c) {
            check_case(t->norm, t->n_norm, c, 2, name);
        }
        tok_free(t);
        free(name);
    }
    assert_int_equal(i, 36);
    json_decref(root);
}

static void test_sentencepiece(void **state) {
    (void)state;
    json_t *root = golden(), *g, *c;
    const json_t *list = json_object_get(root, "symbols"),
                 *text = json_object_get(root, "charsmap");
    const char *symbol[16];
    size_t n_symbol[16], i, k;
    uint8_t *charsmap = malloc(json_string_length(text));
    int64_t n_charsmap = base64_decode(json_string_value(text), json_string_length(text), charsmap);
    assert_true(n_charsmap > 0);
    for (i = 0; i < json_array_size(list); i++) {
        symbol[i] = json_string_value(json_array_get(list, i));
        n_symbol[i] = json_string_length(json_array_get(list, i));
    }
    json_array_foreach(json_object_get(root, "sentencepiece"), i, g) {
        bool ruled = json_is_true(json_object_get(g, "ruled"));
        norm_spiece_spec spec = {
            .charsmap = charsmap,
            .n_charsmap = ruled ? (size_t)n_charsmap : 0,
            .add_dummy_prefix = json_is_true(json_object_get(g, "add_dummy_prefix")),
            .remove_extra_whitespaces =
                json_is_true(json_object_get(g, "remove_extra_whitespaces")),
            .treat_whitespace_as_suffix =
                json_is_true(json_object_get(g, "treat_whitespace_as_suffix")),
            .symbol = symbol,
            .n_symbol = n_symbol,
            .n_symbols = ruled ? (int32_t)json_array_size(list) : 0,
        };
        err e = {0};
        norm_step step;
        arena *mem = arena_new("test");
        if (norm_step_sentencepiece(&step, mem, &spec, &e) != ST_OK) fail_msg("%s", e.message);
        json_array_foreach(json_object_get(g, "cases"), k, c) {
            check_case(&step, 1, c, 1, "sentencepiece");
        }
        arena_free(mem);
    }
    assert_int_equal(i, 16);
    free(charsmap);
    json_decref(root);
}

static uint32_t crc32_of(uint32_t crc, const char *s, size_t n) {
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= (uint8_t)s[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
    }
    return ~crc;
}

/* Every code point: alone, before and after marks, before a Hangul vowel. */
static void test_code_points(void **state) {
    (void)state;
    json_t *root = golden(), *g;
    size_t i;
    json_array_foreach(json_object_get(root, "code_points"), i, g) {
        tok *t = with(json_object_get(g, "normalizer"));
        norm_work work = {0};
        uint32_t crc = 0;
        for (uint32_t cp = 1; cp < 0xE0200; cp++) {
            if (cp == 0xD800) cp = 0xE000;
            if (cp == 0x32000) cp = 0xE0000;
            char text[32] = {0}, c[4];
            size_t n = (size_t)utf8_encode(cp, c);
            snprintf(text, sizeof(text), "%.*sa%.*s\u0323b\u0345%.*s\u1161", (int)n, c, (int)n, c,
                     (int)n, c);
            tok_piece in = {.s = text, .len = strlen(text)}, out;
            assert_int_equal(norm_run(t->norm, t->n_norm, &in, &work, &out, NULL), ST_OK);
            crc = crc32_of(crc, out.s, out.len);
        }
        if (crc != json_integer_value(json_object_get(g, "crc32"))) {
            fail_msg("%s", json_dumps(json_object_get(g, "normalizer"), 0));
        }
        norm_work_free(&work);
        tok_free(t);
    }
    assert_int_equal(i, 9);
    json_decref(root);
}

/* ---- hostile ---- */

static void refuse(const char *normalizer, const char *names) {
    err e = {0};
    tok *t = NULL;
    json_error_t je;
    json_t *j = json_loads(normalizer, 0, &je);
    if (!j) fail_msg("%s: %s", normalizer, je.text);
    if (parse_with(&t, j, &e) != ST_FORMAT || !strstr(e.message, names)) {
        fail_msg("%s\ngave \"%s\", expected %s", normalizer, e.message, names);
    }
    json_decref(j);
}

static void test_parameters(void **state) {
    (void)state;
    refuse("{\"type\":\"NFQ\"}", "NFQ");
    refuse("{\"type\":\"SentencePiece\"}", "SentencePiece");
    refuse("{\"type\":\"NFC\",\"x\":1}", "\"x\"");
    refuse("{\"type\":\"Strip\",\"strip_left\":1}", "strip_left");
    refuse("{\"type\":\"Prepend\"}", "prepend");
    refuse("{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}", "content");
    refuse("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}", "pattern");
    refuse("{\"type\":\"Replace\",\"pattern\":{\"Glob\":\"a\"},\"content\":\"\"}", "pattern");
    refuse("{\"type\":\"BertNormalizer\",\"strip_accents\":\"yes\"}", "strip_accents");
    refuse("{\"type\":\"Precompiled\",\"precompiled_charsmap\":7}", "precompiled_charsmap");
    refuse("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"}", "base64");
    refuse("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}", "trie");
    refuse("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Sequence\",\"normalizers\":[{"
           "\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Sequence\",\"normalizers\":[{"
           "\"type\":\"Sequence\",\"normalizers\":[]}]}]}]}]}",
           "deep");
    json_t *list = json_array();
    for (int i = 0; i < 1000; i++) json_array_append_new(list, json_pack("{s:s}", "type", "NFC"));
    json_t *many = json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", list);
    char *text = json_dumps(many, 0);
    refuse(text, "steps");
    free(text);
    json_decref(many);
}

/* Runs and expects an error, soon and without much memory. */
static void gives_up(const char *normalizer, const char *text, size_t len, const char *names) {
    err e = {0};
    json_t *j = json_loads(normalizer, 0, NULL);
    tok *t = with(j);
    norm_work work = {0};
    tok_piece in = {.s = text, .len = len}, out;
    clock_t start = clock();
    assert_int_equal(norm_run(t->norm, t->n_norm, &in, &work, &out, &e), ST_FORMAT);
    if (!strstr(e.message, names)) fail_msg("%s", e.message);
    assert_true(clock() - start < PATIENCE_S(10) * CLOCKS_PER_SEC);
    norm_work_free(&work);
    tok_free(t);
    json_decref(j);
}

static void test_explosions(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    char *text = malloc(N), content[4001] = {0}, normalizer[20000];
    memset(text, 'a', N);
    memset(content, 'a', sizeof(content) - 1);
    gives_up("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a+)+(?:b|c)\"},\"content\":\"\"}",
             text, N, "normalizer");
    static const char *const PATTERNS[] = {"{\"String\":\"a\"}", "{\"String\":\"aa\"}",
                                           "{\"Regex\":\"a\"}"};
    for (int i = 0; i < ARRAY_LEN(PATTERNS); i++) {
        snprintf(normalizer, sizeof(normalizer),
                 "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":%s,"
                 "\"content\":\"%s\"},{\"type\":\"Replace\",\"pattern\":%s,\"content\":\"%s\"}]}",
                 PATTERNS[i], content, PATTERNS[i], content);
        gives_up(normalizer, text, N, "as long");
    }
    free(text);
}

/* Marks without end are one stretch of a normal form, and one cluster. */
static void test_long_clusters(void **state) {
    (void)state;
    static const char *const TYPES[] = {"NFC", "NFD", "NFKC", "NFKD"};
    enum { N = 1 << 20 };
    char *text = malloc(N);
    memcpy(text, "aa", 2);
    for (int i = 2; i + 1 < N; i += 2) memcpy(text + i, i % 4 ? "\u0345" : "\u0301", 2);
    clock_t start = clock();
    for (int i = 0; i < ARRAY_LEN(TYPES); i++) {
        json_t *j = json_pack("{s:s}", "type", TYPES[i]);
        tok *t = with(j);
        norm_work work = {0};
        tok_text placed = with_places(text, N);
        tok_piece in = text_piece(&placed, true), out;
        assert_int_equal(norm_run(t->norm, t->n_norm, &in, &work, &out, NULL), ST_OK);
        assert_true(out.len == N || out.len == N - 1); /* a and an accent are one byte less */
        assert_memory_equal(out.s + out.len - 4, "\u0345\u0345", 4);
        text_free(&placed);
        norm_work_free(&work);
        tok_free(t);
        json_decref(j);
    }
    assert_true(clock() - start < PATIENCE_S(20) * CLOCKS_PER_SEC);
    free(text);
}

/* Rules that are cut or have any bit changed are refused or harmless. */
static void test_charsmap(void **state) {
    (void)state;
    json_t *root = golden();
    const json_t *text = json_object_get(root, "charsmap");
    uint8_t *bytes = malloc(json_string_length(text));
    size_t n = (size_t)base64_decode(json_string_value(text), json_string_length(text), bytes);
    const char *probe = "aab \u00e9A\u0301\r\n\u3000\u00a8\u4e00 \U0001f468 \u0915\u094db";
    for (size_t k = 0; k < 8 * n + n; k++) {
        uint8_t *copy = malloc(n);
        size_t len = k < 8 * n ? n : k - 8 * n;
        memcpy(copy, bytes, n);
        if (k < 8 * n) copy[k / 8] ^= (uint8_t)(1 << k % 8);
        arena *mem = arena_new("test");
        norm_work work = {0};
        err e = {0};
        norm_step step[2];
        norm_spiece_spec spec = {.charsmap = copy, .n_charsmap = len};
        tok_piece in = {.s = probe, .len = strlen(probe)}, out;
        if (norm_step_precompiled(&step[0], mem, copy, len, &e) == ST_OK) {
            assert_int_equal(norm_step_sentencepiece(&step[1], mem, &spec, &e),
                             len > 0 ? ST_OK : ST_FORMAT);
            for (int i = 0; i < 2; i++) {
                if (norm_run(&step[i], 1, &in, &work, &out, &e) != ST_OK) continue;
                assert_int_equal(utf8_valid_prefix(out.s, out.len), out.len);
            }
        }
        norm_work_free(&work);
        arena_free(mem);
        free(copy);
    }
    free(bytes);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normalizers), cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_code_points), cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_explosions),  cmocka_unit_test(test_long_clusters),
        cmocka_unit_test(test_charsmap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
