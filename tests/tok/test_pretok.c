/* Pieces equal those of Hugging Face tokenizers and of tiktoken on every committed case
 * (tests/oracle/make_tok_pretok.py): text, places, all types, all patterns. And
 * the hand-written matchers cut as the general engine does with the same pattern. */
#include "base/utf8.h"
#include "tok/internal.h"
#include "tok/tok_test.h"

/* ---- cutting ---- */

typedef struct recorder {
    tok_enc enc; /* first: emit gets this */
    strbuf words;
    tok_spans places;
} recorder;

/* A word as the oracle writes it: with a byte alphabet where the model has one. */
static status record(tok_enc *enc, const tok_piece *word) {
    recorder *r = (recorder *)enc;
    tok_span place = {word->from[0].start, word->from[word->len - 1].end};
    VEC_PUSH(r->places.span, r->places.n, r->places.cap, place);
    if (enc->t->byte_level) {
        byte_alphabet_append(&r->words, word->s, word->len);
    } else {
        strbuf_append(&r->words, word->s, word->len);
    }
    strbuf_append(&r->words, "\x1e", 1);
    return ST_OK;
}

static tok_text places_of(const char *s, size_t len) {
    tok_text t = {.tracked = true};
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_size(s[i]);
        text_add(&t, s + i, n, (tok_span){(int32_t)i, (int32_t)(i + n)});
    }
    return t;
}

static recorder cut(const tok *t, const char *text, size_t len) {
    err e = {0};
    recorder r = {.enc = {.t = t, .e = &e}};
    tok_text places = places_of(text, len);
    tok_piece piece = text_piece(&places, true);
    if (pretok_run(&r.enc, t->step, t->n_steps, &piece, record) != ST_OK) fail_msg("%s", e.message);
    tok_spans_to_chars(&r.places, text, len);
    for (int i = 0; i < TOK_MAX_STEPS; i++) text_free(&r.enc.step_text[i]);
    pretok_match_data_free(r.enc.match_data);
    text_free(&places);
    return r;
}

static tok *with_pre_tokenizer(const json_t *part) {
    json_t *root = json_pack("{s:O, s:{s:s, s:{s:i}, s:s}}", "pre_tokenizer", part, "model", "type",
                             "WordLevel", "vocab", "?", 0, "unk_token", "?");
    char *text = json_dumps(root, JSON_COMPACT);
    tok *t = parse_ok(text);
    free(text);
    json_decref(root);
    return t;
}

/* ---- against the oracle ---- */

static void check_cuts(const recorder *r, const json_t *want, const char *name, const char *text) {
    size_t n = json_array_size(want);
    for (size_t i = 0; i < n || i < 2 * (size_t)r->places.n; i++) {
        bool have = i < 2 * (size_t)r->places.n;
        int at = !have ? -1 : i % 2 ? r->places.span[i / 2].end : r->places.span[i / 2].start;
        if (i < n && have && json_integer_value(json_array_get(want, i)) == at) continue;
        fail_msg("%s, text \"%s\": piece %zu has edge %d, not %d", name, text, i / 2, at,
                 i < n ? (int)json_integer_value(json_array_get(want, i)) : -1);
    }
}

static void check_words(const recorder *r, const json_t *want, const char *name) {
    strbuf all = {0};
    const json_t *word;
    size_t i;
    json_array_foreach(want, i, word) {
        strbuf_append(&all, json_string_value(word), json_string_length(word));
        strbuf_append(&all, "\x1e", 1);
    }
    if (all.len != r->words.len || memcmp(all.data, r->words.data, all.len) != 0) {
        fail_msg("%s: words \"%s\", not \"%s\"", name, strbuf_cstr(&r->words), strbuf_cstr(&all));
    }
    strbuf_free(&all);
}

static void check_part(const json_t *one, const json_t *texts) {
    const json_t *part = json_object_get(one, "pre_tokenizer"), *text;
    const json_t *words = json_object_get(one, "words");
    char *name = json_dumps(part, JSON_COMPACT);
    tok *t = with_pre_tokenizer(part);
    size_t i;
    json_array_foreach(texts, i, text) {
        recorder r = cut(t, json_string_value(text), json_string_length(text));
        check_cuts(&r, json_array_get(json_object_get(one, "cuts"), i), name,
                   json_string_value(text));
        if (words) check_words(&r, json_array_get(words, i), name);
        strbuf_free(&r.words);
        tok_spans_free(&r.places);
    }
    tok_free(t);
    free(name);
}

static void test_tokenizers(void **state) {
    const json_t *one, *list = json_object_get(*state, "onig");
    size_t i;
    json_array_foreach(list, i, one) check_part(one, json_object_get(*state, "texts"));
    assert_true(i > 200);
}

static void find(const pretok_step *s, const char *text, size_t len, size_t from, size_t *start,
                 size_t *end, void **match_data) {
    err e = {0};
    *start = from;
    switch (s->kind) {
        case PRETOK_COVER: *end = s->end(text, len, from); break;
        case PRETOK_FIND: s->find(text, len, from, start, end); break;
        default:
            if (pretok_regex_find(s->regex, text, len, from, start, end, match_data, &e) != ST_OK) {
                fail_msg("%s", e.message);
            }
    }
}

static void check_matches(const pretok_step *s, const json_t *text, const json_t *want,
                          const char *name) {
    const char *p = json_string_value(text);
    size_t len = json_string_length(text), at = 0, start, end, k = 0;
    void *match_data = NULL;
    for (; at < len; at = end, k++) {
        find(s, p, len, at, &start, &end, &match_data);
        if (start == len) break;
        const json_t *word = json_array_get(want, k);
        if (json_string_length(word) == end - start &&
            memcmp(json_string_value(word), p + start, end - start) == 0) {
            continue;
        }
        fail_msg("%s, text \"%s\": match %zu is \"%.*s\"", name, p, k, (int)(end - start),
                 p + start);
    }
    if (k != json_array_size(want)) fail_msg("%s, text \"%s\": %zu matches", name, p, k);
    pretok_match_data_free(match_data);
}

static void test_tiktoken(void **state) {
    const json_t *one, *text, *list = json_object_get(*state, "tiktoken");
    size_t i, k;
    json_array_foreach(list, i, one) {
        const char *pattern = json_string_value(json_object_get(one, "pattern"));
        err e = {0};
        pretok_step s;
        if (pretok_step_regex(&s, pattern, &e) != ST_OK) {
            fail_msg("%s: %s", pattern, e.message);
        }
        json_array_foreach(json_object_get(*state, "short"), k, text) {
            check_matches(&s, text, json_array_get(json_object_get(one, "matches"), k), pattern);
        }
        pretok_step_free(&s);
    }
    assert_true(i > 15);
}

/* ---- matchers against the engine ---- */

static size_t random_text(uint32_t *seed, char *text, size_t most) {
    static const char *const BITS[] = {
        "a",  "B",  "'",        "'s",     "'LL",      "'\xC5\xBF", " ",    "  ", "\n",
        "\r", "\t", "1",        "23",     "!",        "/",         ".",    "$",  "_",
        "é",  "É",  "\xCC\x81", "中",     "々",       "〇",        "⺀",   "ひ", "Ⅷ",
        "²",  "ǅ",  "\u00a0",   "\u2003", "\xC2\x85", "\u200d",    "\x01", "(",  "|",
        "，", "。", "👍",        "\u0903", "\ue000",   "ⓐ",         "ж",    "Ж",  "ʰ",
        "한", "ー", "'Ve",      "word",   "HTTP",     "\r\n",      "'d",   "x",  "ß"};
    size_t n = 0;
    for (;;) {
        *seed = *seed * 1664525u + 1013904223u;
        const char *bit = BITS[(*seed >> 16) % ARRAY_LEN(BITS)];
        if (n + strlen(bit) > most) return n;
        memcpy(text + n, bit, strlen(bit));
        n += strlen(bit);
    }
}

static void check_same(const char *regex, const pretok_step *matcher, const pretok_step *engine) {
    uint32_t seed = 17;
    void *match_data = NULL;
    for (int round = 0; round < 300; round++) {
        char text[80];
        size_t len = random_text(&seed, text, sizeof(text)), at = 0, s1, e1, s2, e2;
        for (; at < len; at = e1) {
            find(matcher, text, len, at, &s1, &e1, NULL);
            find(engine, text, len, at, &s2, &e2, &match_data);
            if (s1 == len && s2 == len) break;
            if (s1 != s2 || e1 != e2) {
                fail_msg("%s on \"%.*s\" at %zu: [%zu, %zu), but [%zu, %zu) by the engine", regex,
                         (int)len, text, at, s1, e1, s2, e2);
            }
        }
    }
    pretok_match_data_free(match_data);
}

static void test_matchers_are_patterns(void **state) {
    (void)state;
    int checked = 0;
    for (int i = 0; i < PRETOK_NAMED_N; i++) {
        for (int k = 0; k < PRETOK_NAMED[i].n_parts; k++) {
            const pretok_part *part = &PRETOK_NAMED[i].part[k];
            pretok_step matcher, engine = {.kind = PRETOK_REGEX};
            err e = {0};
            if (pretok_step_part(&matcher, part, &e) != ST_OK) fail_msg("%s", e.message);
            if (part->regex && matcher.kind != PRETOK_REGEX) {
                assert_int_equal(pretok_regex_compile(&engine.regex, part->regex, &e), ST_OK);
                check_same(part->regex, &matcher, &engine);
                pretok_step_free(&engine);
                checked++;
            }
            pretok_step_free(&matcher);
        }
    }
    assert_true(checked > 20);
}

static void test_names(void **state) {
    (void)state;
    assert_ptr_equal(pretok_by_name("gpt2"), pretok_by_name("olmo"));
    assert_ptr_equal(pretok_by_name("llama-bpe"), pretok_by_name("dolma2"));
    assert_ptr_equal(pretok_by_name("gpt-4o"), pretok_by_name("o200k"));
    assert_int_equal(pretok_by_name("deepseek-v3")->n_parts, 3);
    assert_null(pretok_by_name("gpt"));
    assert_null(pretok_by_name(""));
    assert_null(pretok_by_name("gpt2 gpt-2"));
}

static void test_refused(void **state) {
    (void)state;
    static const char *const BAD[] = {
        "{\"type\":\"Magic\"}",
        "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}",
        "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"often\"}",
        "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\","
        "\"add_prefix_space\":false}",
        "{\"type\":\"FixedLength\",\"length\":0}",
        "{\"type\":\"CharDelimiterSplit\"}",
        "{\"type\":\"Whitespace\",\"size\":1}",
        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}",
        "{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Isolated\"}",
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
        "{\"type\":\"Metaspace\",\"replacement\":\"_\"}]}",
    };
    for (int i = 0; i < ARRAY_LEN(BAD); i++) {
        char json[512];
        err e = {0};
        tok *t;
        snprintf(json, sizeof(json),
                 "{\"pre_tokenizer\":%s,\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"?\":0},"
                 "\"unk_token\":\"?\"}}",
                 BAD[i]);
        if (tok_parse(&t, json, strlen(json), "test", &e) == ST_OK) fail_msg("accepted %s", BAD[i]);
        assert_non_null(strstr(e.message, "pre_tokenizer"));
    }
}

static int load(void **state) {
    *state = json_load_file(GOLDEN("pretok.json"), JSON_ALLOW_NUL, NULL);
    return *state ? 0 : -1;
}

static int unload(void **state) {
    json_decref(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_tiktoken),
        cmocka_unit_test(test_matchers_are_patterns),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
