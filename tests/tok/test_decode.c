/* Decoders, streams and post-processors equal Hugging Face tokenizers on every committed case
 * (tests/oracle/make_tok_decode_golden.py); what a token stands for; decoders that are wrong. */
#include <time.h>

#include "base/json.h"
#include "base/utf8.h"
#include "sanitizer.h"
#include "tok/tok_test.h"

/* ---- golden cases ---- */

static json_t *golden(void) {
    json_t *root = json_load_file(GOLDEN("decode.json"), 0, NULL);
    assert_non_null(root);
    return root;
}

static tok *load_patched(const json_t *base, json_t *patch) {
    json_t *root = json_deep_copy(base);
    json_object_update(root, patch);
    char *text = json_dumps(root, JSON_COMPACT);
    tok *t = parse_ok(text);
    free(text);
    json_decref(root);
    return t;
}

static tok_ids read_ids(const json_t *list) {
    tok_ids ids = {0};
    const json_t *id;
    size_t i;
    json_array_foreach((json_t *)list, i, id) tok_ids_push(&ids, (int32_t)json_integer_value(id));
    return ids;
}

static strbuf decode_ok(const tok *t, const tok_ids *ids, bool skip) {
    err e = {0};
    strbuf text = {0};
    if (tok_decode(t, ids->id, ids->n, skip, &text, &e) != ST_OK) fail_msg("%s", e.message);
    return text;
}

/* As text, which is how tokenizers gives it. */
static strbuf lossy(const strbuf *b) {
    strbuf out = {0};
    json_t *text = json_text(strbuf_cstr(b), b->len);
    strbuf_append(&out, json_string_value(text), json_string_length(text));
    json_decref(text);
    return out;
}

/* Token by token: whole characters only, and in the end the same text. */
static void check_stream(const tok *t, const tok_ids *ids, bool skip, const strbuf *whole,
                         bool bytes, const char *name) {
    err e = {0};
    tok_stream s = {.t = t, .skip_special = skip};
    for (int again = 0; again < 2; again++) { /* a stream that was flushed is as new */
        strbuf text = {0};
        for (int64_t i = 0; i < ids->n; i++) {
            if (tok_stream_push(&s, ids->id[i], &text, &e) != ST_OK) fail_msg("%s", e.message);
            size_t valid = utf8_valid_prefix(strbuf_cstr(&text), text.len);
            if (!bytes && valid != text.len) fail_msg("%s: part of a character", name);
            assert_int_equal(utf8_open_tail(strbuf_cstr(&text), text.len), 0);
        }
        assert_int_equal(tok_stream_flush(&s, &text, &e), ST_OK);
        if (strcmp(strbuf_cstr(&text), strbuf_cstr(whole)) != 0) {
            fail_msg("%s: stream gave \"%s\", not \"%s\"", name, strbuf_cstr(&text),
                     strbuf_cstr(whole));
        }
        strbuf_free(&text);
    }
    tok_stream_free(&s);
}

static void check_decode(const tok *t, const json_t *one, bool skip, const char *name) {
    tok_ids ids = read_ids(json_object_get(one, "ids"));
    const char *want = json_string_value(json_object_get(one, skip ? "skipped" : "text"));
    strbuf got = decode_ok(t, &ids, skip), as_text = lossy(&got);
    if (strcmp(strbuf_cstr(&as_text), want) != 0) {
        char *list = json_dumps(json_object_get(one, "ids"), JSON_COMPACT);
        fail_msg("%s, %s: \"%s\" expected, not \"%s\"", name, list, want, strbuf_cstr(&as_text));
    }
    bool bytes =
        as_text.len != got.len || memcmp(strbuf_cstr(&got), strbuf_cstr(&as_text), got.len) != 0;
    check_stream(t, &ids, skip, &got, bytes, name);
    strbuf_free(&got);
    strbuf_free(&as_text);
    tok_ids_free(&ids);
}

/* A special token that is matched after normalisation and changed by it is left out here;
 * tokenizers does not know it again. None of the cases has one. */
static void test_golden_decoders(void **state) {
    (void)state;
    json_t *root = golden(), *group, *one;
    size_t i, k, checked = 0;
    json_array_foreach(json_object_get(root, "decoders"), i, group) {
        json_t *patch = json_object_get(group, "patch");
        char *name = json_dumps(patch, JSON_COMPACT);
        tok *t = load_patched(json_object_get(root, "base"), patch);
        json_array_foreach(json_object_get(group, "cases"), k, one) {
            check_decode(t, one, false, name);
            check_decode(t, one, true, name);
            checked++;
        }
        tok_free(t);
        free(name);
    }
    assert_true(checked > 400);
    json_decref(root);
}

static void check_spans(const tok *t, const json_t *one, bool special, const char *name) {
    err e = {0};
    tok_ids ids = {0};
    tok_spans spans = {0};
    const json_t *text = json_object_get(one, "text");
    const char *s = json_string_value(text);
    size_t len = json_string_length(text);
    const json_t *want_ids = json_object_get(one, special ? "special_ids" : "ids");
    const json_t *want = json_object_get(one, special ? "special_offsets" : "offsets");
    unsigned flags = special ? TOK_ADD_SPECIAL : 0;
    assert_int_equal(tok_encode_spans(t, s, len, flags, &ids, &spans, &e), ST_OK);
    tok_spans_to_chars(&spans, s, len);
    assert_int_equal(ids.n, json_array_size(want_ids));
    assert_int_equal(spans.n, ids.n);
    for (int64_t i = 0; i < ids.n; i++) {
        const json_t *span = json_array_get(want, (size_t)i);
        assert_int_equal(ids.id[i], json_integer_value(json_array_get(want_ids, (size_t)i)));
        if (spans.span[i].start != json_integer_value(json_array_get(span, 0)) ||
            spans.span[i].end != json_integer_value(json_array_get(span, 1))) {
            fail_msg("%s, \"%s\": span %d is [%d, %d]", name, s, (int)i, (int)spans.span[i].start,
                     (int)spans.span[i].end);
        }
    }
    tok_ids_free(&ids);
    tok_spans_free(&spans);
}

static void test_golden_posts(void **state) {
    (void)state;
    json_t *root = golden(), *base = json_load_file(GOLDEN("bpe_gpt2.json"), 0, NULL), *group, *one;
    size_t i, k, checked = 0;
    json_array_foreach(json_object_get(root, "posts"), i, group) {
        json_t *patch = json_object_get(group, "patch");
        char *name = json_dumps(json_object_get(patch, "post_processor"), JSON_COMPACT);
        tok *t = load_patched(base, patch);
        json_array_foreach(json_object_get(group, "cases"), k, one) {
            check_spans(t, one, false, name);
            check_spans(t, one, true, name);
            checked++;
        }
        tok_free(t);
        free(name);
    }
    assert_true(checked > 100);
    json_decref(base);
    json_decref(root);
}

/* ---- a small tokenizer ---- */

#define LLAMA                                                                                      \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"          \
    "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"        \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
#define WORDPIECE "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"

static tok *with_decoder(const char *decoder, const char *more) {
    static const char *const VOCAB =
        "{\"\xE2\x96\x81the\":0,\"<0x0A>\":1,\"##ing\":2,\"<0xE4>\":3,\"<0xBD>\":4,\"<0xA0>\":5,"
        "\"low</w>\":6,\"a\":7,\".\":8,\"\xC4\xA0x\":9,\"\xC3\xA4\":10,\" "
        "\":11,\"\xE2\x96\x81\":12}";
    strbuf json = {0};
    strbuf_printf(&json,
                  "{\"decoder\":%s,%s\"added_tokens\":[{\"id\":13,\"content\":\"<s>\","
                  "\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":%s,"
                  "\"merges\":[]}}",
                  decoder, more, VOCAB);
    tok *t = parse_ok(strbuf_cstr(&json));
    strbuf_free(&json);
    return t;
}

static void check_meaning(const char *decoder, int32_t id, const char *want) {
    tok *t = with_decoder(decoder, "");
    size_t len;
    const char *bytes = tok_bytes(t, id, &len);
    if (len != strlen(want) || memcmp(bytes, want, len) != 0) {
        fail_msg("%s: token %d stands for \"%.*s\", not \"%s\"", decoder, (int)id, (int)len, bytes,
                 want);
    }
    tok_free(t);
}

/* What a token stands for in the middle of a text. */
static void test_meanings(void **state) {
    (void)state;
    const char *metaspace = "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\"}";
    const char *bpe = "{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}";
    const char *trailing = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
                           "\"Strip\",\"content\":\" \",\"start\":1,\"stop\":1}]}";
    check_meaning(LLAMA, 0, " the");
    check_meaning(LLAMA, 1, "\n");
    check_meaning(LLAMA, 3, "\xE4");
    check_meaning(LLAMA, 11, " ");
    check_meaning(LLAMA, 13, "<s>");
    check_meaning(metaspace, 0, " the");
    check_meaning(WORDPIECE, 2, "ing");
    check_meaning(WORDPIECE, 7, " a");
    check_meaning(WORDPIECE, 8, ".");
    check_meaning(bpe, 6, "low ");
    check_meaning(trailing, 11, " ");
    check_meaning("null", 7, " a");
    check_meaning("{\"type\":\"Fuse\"}", 9, "\xC4\xA0x");
    check_meaning("{\"type\":\"ByteLevel\"}", 9, " x");
    check_meaning("{\"type\":\"ByteLevel\"}", 10, "\xE4");
}

/* ---- streams ---- */

static void push_all(const char *decoder, const int32_t *ids, const char *const *shown, int n,
                     const char *end) {
    err e = {0};
    tok *t = with_decoder(decoder, "");
    tok_stream s = {.t = t, .skip_special = true};
    strbuf out = {0};
    for (int i = 0; i < n; i++) {
        strbuf_clear(&out);
        assert_int_equal(tok_stream_push(&s, ids[i], &out, &e), ST_OK);
        assert_string_equal(strbuf_cstr(&out), shown[i]);
    }
    strbuf_clear(&out);
    assert_int_equal(tok_stream_flush(&s, &out, &e), ST_OK);
    assert_string_equal(strbuf_cstr(&out), end);
    strbuf_free(&out);
    tok_free(t);
}

/* Held back as long as needed and no longer. */
static void test_stream_is_prompt(void **state) {
    (void)state;
    push_all(LLAMA, (const int32_t[]){13, 0, 0, 3, 4, 5, 7, 3, 7},
             (const char *const[]){"", "the", " the", "", "", "",
                                   "\xE4\xBD\xA0"
                                   "a",
                                   "",
                                   "\xEF\xBF\xBD"
                                   "a"},
             9, "");
    push_all(LLAMA, (const int32_t[]){7, 5, 3, 4},
             (const char *const[]){"a", "\xEF\xBF\xBD", "\xEF\xBF\xBD", "\xEF\xBF\xBD"}, 4, "");
    push_all(LLAMA, (const int32_t[]){3, 4, 5}, (const char *const[]){"", "", ""}, 3,
             "\xE4\xBD\xA0");
    push_all(WORDPIECE, (const int32_t[]){7, 2, 7, 8}, (const char *const[]){"a", "ing", " a", "."},
             4, "");
    push_all("{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}", (const int32_t[]){6, 7, 6},
             (const char *const[]){"low", " a", "low"}, 3, "");
    push_all("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Strip\","
             "\"content\":\" \",\"start\":0,\"stop\":1}]}",
             (const int32_t[]){7, 11, 11, 7, 11}, (const char *const[]){"a", "", " ", " a", ""}, 5,
             "");
}

/* Freed in the middle of a text (leak checkers see it), and after an id that is none. */
static void test_stream_ends_early(void **state) {
    (void)state;
    err e = {0};
    tok *t = with_decoder(LLAMA, "");
    tok_stream s = {.t = t};
    strbuf out = {0};
    assert_int_equal(tok_stream_push(&s, 3, &out, &e), ST_OK);
    assert_int_equal(tok_stream_push(&s, 99, &out, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "id 99 (number 1)"));
    tok_stream_free(&s);
    assert_int_equal(out.len, 0);
    strbuf_free(&out);
    tok_free(t);
}

/* A token costs the same however long the text is; so does a run of bytes. */
static void test_stream_is_linear(void **state) {
    (void)state;
    err e = {0};
    clock_t start = clock();
    for (int32_t id = 0; id < 4; id++) {
        tok *t = with_decoder(LLAMA, "");
        tok_stream s = {.t = t};
        strbuf out = {0};
        for (int i = 0; i < 300000; i++) {
            assert_int_equal(tok_stream_push(&s, id, &out, &e), ST_OK);
        }
        assert_int_equal(tok_stream_flush(&s, &out, &e), ST_OK);
        strbuf_free(&out);
        tok_free(t);
    }
    assert_true(clock() - start < PATIENCE_S(5) * CLOCKS_PER_SEC);
}

/* An id that is none leaves `out` as it was. */
static void test_unknown_id(void **state) {
    (void)state;
    err e = {0};
    tok *t = with_decoder(WORDPIECE, "");
    strbuf out = {0};
    strbuf_puts(&out, "before");
    assert_int_equal(tok_decode(t, (const int32_t[]){7, 7, -1}, 3, false, &out, &e), ST_USAGE);
    assert_string_equal(out.data, "before");
    strbuf_free(&out);
    tok_free(t);
}

/* ---- files that are wrong ---- */

static void refuse(const char *decoder, const char *more, const char *names) {
    err e = {0};
    tok *t = NULL;
    strbuf json = {0};
    strbuf_printf(&json,
                  "{\"decoder\":%s,%s\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},"
                  "\"merges\":[]}}",
                  decoder, more);
    status st = tok_parse(&t, strbuf_cstr(&json), json.len, "bad.json", &e);
    if (st != ST_FORMAT || !strstr(e.message, names) || !e.where[0]) {
        fail_msg("%s gave status %d, \"%s\"; expected %s", strbuf_cstr(&json), (int)st, e.message,
                 names);
    }
    strbuf_free(&json);
}

static void test_wrong_decoders(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        {"{\"type\":\"Magic\"}", "Magic"},
        {"{}", "type"},
        {"7", "type"},
        {"{\"type\":\"Fuse\",\"x\":1}", "\"x\""},
        {"{\"type\":\"Sequence\"}", "decoders"},
        {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Magic\"}]}",
         "decoder.decoders[1]"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", "not one character"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"\"}", "not one character"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"often\"}",
         "prepend_scheme"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\","
         "\"add_prefix_space\":false}",
         "contradicts"},
        {"{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}", "start"},
        {"{\"type\":\"Strip\",\"content\":\" \",\"start\":1}", "stop"},
        {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}", "pattern"},
        {"{\"type\":\"Replace\",\"pattern\":{\"Glob\":\"a\"},\"content\":\"\"}", "pattern"},
        {"{\"type\":\"Replace\",\"pattern\":\"a\",\"content\":\"\"}", "pattern"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}", "content"},
        {"{\"type\":\"WordPiece\",\"prefix\":1,\"cleanup\":true}", "prefix"},
        {"{\"type\":\"WordPiece\",\"prefix\":\"\",\"cleanup\":2}", "cleanup"},
        {"{\"type\":\"BPEDecoder\"}", "suffix"},
        {"{\"type\":\"CTC\",\"pad_token\":\"\"}", "word_delimiter_token"},
    };
    for (int i = 0; i < ARRAY_LEN(CASES); i++) refuse(CASES[i][0], "", CASES[i][1]);
}

static void test_long_decoders(void **state) {
    (void)state;
    strbuf many = {0}, deep = {0}, wide = {0};
    strbuf_puts(&many, "{\"type\":\"Sequence\",\"decoders\":[");
    for (int i = 0; i < 40; i++)
        strbuf_puts(&many, i ? ",{\"type\":\"Fuse\"}" : "{\"type\":\"Fuse\"}");
    strbuf_puts(&many, "]}");
    refuse(strbuf_cstr(&many), "", "too many steps");
    for (int i = 0; i < 8; i++) strbuf_puts(&deep, "{\"type\":\"Sequence\",\"decoders\":[");
    strbuf_puts(&deep, "{\"type\":\"Fuse\"}");
    for (int i = 0; i < 8; i++) strbuf_puts(&deep, "]}");
    refuse(strbuf_cstr(&deep), "", "too deep");
    strbuf_puts(&wide, "{\"type\":\"BPEDecoder\",\"suffix\":\"");
    for (int i = 0; i < 300; i++) strbuf_putc(&wide, 'x');
    strbuf_puts(&wide, "\"}");
    refuse(strbuf_cstr(&wide), "", "suffix");
    strbuf_free(&many);
    strbuf_free(&deep);
    strbuf_free(&wide);
}

/* Each step doubles the text: refused, not obeyed. */
static void test_growth(void **state) {
    (void)state;
    strbuf bomb = {0};
    strbuf_puts(&bomb, "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}");
    for (int i = 0; i < 30; i++) {
        strbuf_puts(&bomb, ",{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
                           "\"content\":\"aa\"}");
    }
    strbuf_puts(&bomb, "]}");
    refuse(strbuf_cstr(&bomb), "", "grow");
    strbuf_free(&bomb);
}

/* A pattern that backtracks without end is an error, at once and as a stream. */
static void test_runaway_pattern(void **state) {
    (void)state;
    err e = {0};
    strbuf out = {0};
    tok *t =
        with_decoder("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
                     "\"Replace\",\"pattern\":{\"Regex\":\"(a+)+(?:b|c)\"},\"content\":\"\"}]}",
                     "");
    tok_stream s = {.t = t};
    int32_t ids[3000];
    for (int i = 0; i < ARRAY_LEN(ids); i++) {
        ids[i] = 7;
        assert_int_equal(tok_stream_push(&s, 7, &out, &e), ST_OK);
    }
    clock_t start = clock();
    assert_int_equal(tok_stream_flush(&s, &out, &e), ST_FORMAT);
    assert_int_equal(tok_decode(t, ids, ARRAY_LEN(ids), false, &out, &e), ST_FORMAT);
    assert_true(clock() - start < PATIENCE_S(10) * CLOCKS_PER_SEC);
    assert_int_equal(out.len, 0);
    strbuf_free(&out);
    tok_free(t);
}

#define FUSE "{\"type\":\"Fuse\"}"
#define TEMPLATE(single, pair, special)                                                            \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":" single ",\"pair\":" pair     \
    ",\"special_tokens\":" special "},"
#define TEXT_A "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define TEXT_B "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}"
#define SPECIAL_Q "{\"SpecialToken\":{\"id\":\"q\",\"type_id\":0}}"
#define Q_IS_A "{\"q\":{\"id\":\"q\",\"ids\":[0],\"tokens\":[\"a\"]}}"

static void test_wrong_posts(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        {"\"post_processor\":{\"type\":\"Magic\"},", "Magic"},
        {"\"post_processor\":{\"type\":\"ByteLevel\",\"trim\":1},", "trim"},
        {"\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",0]},", "cls"},
        {"\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",0],\"cls\":[\"z\",9]},",
         "\"z\""},
        {"\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"a\"],\"cls\":[\"a\",0]},",
         "sep"},
        {TEMPLATE("[" TEXT_A "]", "[" TEXT_A "]", "{}"), "pair"},
        {TEMPLATE("[" TEXT_B "]", "[]", "{}"), "Sequence A"},
        {TEMPLATE("[" TEXT_A "," TEXT_A "]", "null", "{}"), "once"},
        {TEMPLATE("[" SPECIAL_Q "]", "null", Q_IS_A), "once"},
        {TEMPLATE("[" TEXT_A "," SPECIAL_Q "]", "null", "{}"), "\"q\""},
        {TEMPLATE("[" TEXT_A "]", "[" TEXT_A "," SPECIAL_Q "," TEXT_B "]", "{}"), "pair"},
        {TEMPLATE("[" TEXT_A "," SPECIAL_Q "]", "null", "{\"q\":{\"ids\":[0,1],\"tokens\":[]}}"),
         "as many"},
        {TEMPLATE("[{\"Sequence\":{\"id\":\"C\",\"type_id\":0}}]", "null", "{}"), "\"C\""},
        {TEMPLATE("[{\"Sequence\":{\"id\":\"A\",\"type_id\":-1}}]", "null", "{}"), "type_id"},
        {"\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":"
         "\"TemplateProcessing\",\"single\":[" TEXT_A "],\"special_tokens\":{}},{\"type\":"
         "\"BertProcessing\",\"sep\":[\"a\",0],\"cls\":[\"a\",0]}]},",
         "after a template"},
    };
    for (int i = 0; i < ARRAY_LEN(CASES); i++) refuse(FUSE, CASES[i][0], CASES[i][1]);
}

static void test_huge_template(void **state) {
    (void)state;
    strbuf post = {0};
    strbuf_puts(&post, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" TEXT_A);
    for (int i = 0; i < 300; i++) strbuf_puts(&post, "," SPECIAL_Q);
    strbuf_puts(&post, "],\"special_tokens\":" Q_IS_A "},");
    refuse(FUSE, strbuf_cstr(&post), "too many");
    strbuf_free(&post);
}

/* ---- behind another text ---- */

static strbuf decode_behind(const tok *t, const int32_t *ids, int64_t n) {
    err e = {0};
    tok_stream s = {.t = t, .behind = true};
    strbuf text = {0};
    for (int64_t i = 0; i < n; i++) assert_int_equal(tok_stream_push(&s, ids[i], &text, &e), ST_OK);
    assert_int_equal(tok_stream_flush(&s, &text, &e), ST_OK);
    tok_stream_free(&s);
    return text;
}

/* What goes on a text is what all ids give without what the first ones give: the space of its first word is there. */
static void test_behind(void **state) {
    (void)state;
    static const char *const decoders[] = {
        "null",
        "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}",
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
        "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
        "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}",
        "{\"type\":\"ByteLevel\"}",
    };
    for (int i = 0; i < ARRAY_LEN(decoders); i++) {
        strbuf json = {0};
        strbuf_printf(
            &json,
            "{\"decoder\":%s,\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}],"
            "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,"
            "\"\xE2\x96\x81one\":1,\"##two\":2,\"three\":3}}}",
            decoders[i]);
        tok *t = parse_ok(strbuf_cstr(&json));
        tok_ids all = {0};
        for (int32_t id = 1; id <= 9; id++) tok_ids_push(&all, 1 + id * id % 3);
        strbuf whole = decode_ok(t, &all, false);
        for (int64_t n = 1; n < all.n; n++) {
            tok_ids first = {.id = all.id, .n = n};
            strbuf text = decode_ok(t, &first, false),
                   rest = decode_behind(t, all.id + n, all.n - n);
            strbuf_append(&text, strbuf_cstr(&rest), rest.len);
            assert_string_equal(strbuf_cstr(&text), strbuf_cstr(&whole));
            strbuf_free(&text);
            strbuf_free(&rest);
        }
        assert_true(tok_has_text(t, (int32_t[]){4, 1}, 2, true));
        assert_false(tok_has_text(t, (int32_t[]){4}, 1, true));
        assert_true(tok_has_text(t, (int32_t[]){4}, 1, false));
        strbuf_free(&whole);
        strbuf_free(&json);
        tok_ids_free(&all);
        tok_free(t);
    }
}

/* ---- added tokens ---- */

/* tokenizers decodes an added token that is matched after normalisation in its normal form; a
 * special one is then not known as special there, but is here. */
static void test_normalized_special(void **state) {
    (void)state;
    tok *t = with_decoder("null", "\"normalizer\":{\"type\":\"NFC\"},");
    tok_free(t);
    t = parse_ok("{\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\":[{\"id\":1,\"content\":"
                 "\"<e\xCC\x81>\",\"special\":true,\"normalized\":true}],"
                 "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    tok_ids ids = {0};
    tok_ids_push(&ids, 0);
    tok_ids_push(&ids, 1);
    strbuf shown = decode_ok(t, &ids, false), skipped = decode_ok(t, &ids, true);
    assert_string_equal(strbuf_cstr(&shown), "a <\xC3\xA9>");
    assert_string_equal(strbuf_cstr(&skipped), "a");
    strbuf_free(&shown);
    strbuf_free(&skipped);
    tok_ids_free(&ids);
    tok_free(t);
}

/* Content that happens to be written in the byte alphabet: bytes if they are text, as tokenizers
 * has it, else what it says (where tokenizers shows U+FFFD). */
static void test_added_in_alphabet(void **state) {
    (void)state;
    tok *t = parse_ok("{\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"id\":1,"
                      "\"content\":\"\xC4\xA0word\"},{\"id\":2,\"content\":\"\xC3\xA9\"}],"
                      "\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xC3\x83\":0},\"merges\":[]}}");
    size_t len;
    assert_memory_equal(tok_bytes(t, 0, &len), "\xC3", 1);
    assert_int_equal(len, 1);
    assert_memory_equal(tok_bytes(t, 1, &len), " word", 5);
    assert_int_equal(len, 5);
    assert_memory_equal(tok_bytes(t, 2, &len), "\xC3\xA9", 2);
    assert_int_equal(len, 2);
    tok_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_decoders),   cmocka_unit_test(test_golden_posts),
        cmocka_unit_test(test_meanings),          cmocka_unit_test(test_stream_is_prompt),
        cmocka_unit_test(test_stream_ends_early), cmocka_unit_test(test_stream_is_linear),
        cmocka_unit_test(test_unknown_id),        cmocka_unit_test(test_wrong_decoders),
        cmocka_unit_test(test_long_decoders),     cmocka_unit_test(test_growth),
        cmocka_unit_test(test_runaway_pattern),   cmocka_unit_test(test_wrong_posts),
        cmocka_unit_test(test_huge_template),     cmocka_unit_test(test_normalized_special),
        cmocka_unit_test(test_added_in_alphabet), cmocka_unit_test(test_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
