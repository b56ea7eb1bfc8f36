/* Files that are wrong: each is refused with ST_FORMAT and a message that names the place. */
#include <time.h>

#include "sanitizer.h"
#include "tok/tok_test.h"

#define LEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"},"
#define MODEL(vocab, merges)                                                                       \
    "\"model\":{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges "}"
#define AB "{\"a\":0,\"b\":1,\"ab\":2}"
#define CHARS "\"decoder\":{\"type\":\"Fuse\"},"

static void test_json(void **state) {
    (void)state;
    refuse_json("", "bad.json");
    refuse_json("[]", "top level");
    refuse_json("{", "bad.json");
    refuse_json("{\"model\":{}}", "model.vocab");
    refuse_json("{\"colour\":1}", "colour");
    refuse_json("{\"model\":null}", "model");
    char deep[5000];
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    refuse_json(deep, "bad.json");
}

static void test_vocabulary(void **state) {
    (void)state;
    refuse_json("{" LEVEL MODEL("{\"a\":0,\"b\":0}", "[]") "}", "id 0");
    refuse_json("{" LEVEL MODEL("{\"a\":0,\"a\":1}", "[]") "}", "duplicate");
    refuse_json("{" LEVEL MODEL("{\"a\":2147483646}", "[]") "}", "out of range");
    refuse_json("{" LEVEL MODEL("{\"a\":-1}", "[]") "}", "out of range");
    refuse_json("{" LEVEL MODEL("{\"a\":1.5}", "[]") "}", "integer");
    refuse_json("{" LEVEL MODEL("{}", "[]") "}", "empty");
    refuse_json("{" LEVEL MODEL("[\"a\"]", "[]") "}", "model.vocab");
    refuse_json("{" LEVEL "\"added_tokens\":{}," MODEL(AB, "[]") "}", "added_tokens");
    refuse_json("{" LEVEL "\"added_tokens\":[1]," MODEL(AB, "[]") "}", "added_tokens");
    refuse_json("{" LEVEL "\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]," MODEL(AB, "[]") "}",
                "added_tokens[0]");
    refuse_json("{" LEVEL "\"added_tokens\":[{\"id\":3,\"content\":\"a\"}]," MODEL(AB, "[]") "}",
                "added_tokens[0]");
    refuse_json("{" LEVEL "\"added_tokens\":[{\"id\":3,\"content\":\"\"}]," MODEL(AB, "[]") "}",
                "content");
    refuse_json("{" LEVEL "\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"special\":1}]," MODEL(
                    AB, "[]") "}",
                "special");
}

static void test_merges(void **state) {
    (void)state;
    refuse_json("{" LEVEL MODEL(AB, "[\"a c\"]") "}", "model.merges[0]");
    refuse_json("{" LEVEL MODEL(AB, "[\"a b\",\"b a\"]") "}", "\"ba\"");
    refuse_json("{" LEVEL MODEL(AB, "[\"ab\"]") "}", "model.merges[0]");
    refuse_json("{" LEVEL MODEL(AB, "[\"a b c\"]") "}", "model.merges[0]");
    refuse_json("{" LEVEL MODEL(AB, "[[\"a\"]]") "}", "model.merges[0]");
    refuse_json("{" LEVEL MODEL(AB, "[7]") "}", "model.merges[0]");
    refuse_json("{" LEVEL MODEL(AB, "{}") "}", "model.merges");
}

static void test_parts(void **state) {
    (void)state;
    refuse_json("{\"decoder\":{\"type\":\"Spell\"}," MODEL(AB, "[]") "}", "Spell");
    refuse_json("{" CHARS "\"normalizer\":{\"type\":\"NFQ\"}," MODEL(AB, "[]") "}", "NFQ");
    refuse_json("{" CHARS "\"pre_tokenizer\":{\"type\":\"Metaspace\"}," MODEL(AB, "[]") "}",
                "replacement");
    refuse_json("{" CHARS "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
                "\"behavior\":\"Isolated\"}," MODEL(AB, "[]") "}",
                "pattern");
    refuse_json("{" CHARS "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
                "\"behavior\":\"Sometimes\"}," MODEL(AB, "[]") "}",
                "Sometimes");
    refuse_json("{" CHARS "\"post_processor\":{\"type\":\"BertProcessing\"}," MODEL(AB, "[]") "}",
                "\"cls\"");
    refuse_json(
        "{" CHARS "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
        "{\"SpecialToken\":{\"id\":\"q\"}}],\"special_tokens\":{\"q\":{\"ids\":[99]}}}," MODEL(
            AB, "[]") "}",
        "post_processor");
    refuse_json("{" CHARS "\"model\":{\"type\":\"Trigram\"}}", "Trigram");
    refuse_json("{" CHARS "\"model\":{\"byte_fallback\":7,\"vocab\":{\"a\":0},\"merges\":[]}}",
                "byte_fallback");
    refuse_json("{" CHARS "\"model\":{\"dropout\":1.5,\"vocab\":{\"a\":0},\"merges\":[]}}",
                "dropout");
    refuse_json("{" CHARS
                "\"model\":{\"end_of_word_suffix\":[],\"vocab\":{\"a\":0},\"merges\":[]}}",
                "end_of_word_suffix");
    refuse_json("{" CHARS
                "\"model\":{\"continuing_subword_prefix\":\"##\",\"vocab\":{\"a\":0,\"b\":1,"
                "\"ab\":2},\"merges\":[\"a b\"]}}",
                "prefix");
    refuse_json("{" LEVEL
                "\"model\":{\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},\"merges\":[]}}",
                "affixes");
    refuse_json("{" CHARS "\"model\":{\"unk_token\":\"?\",\"vocab\":{\"a\":0},\"merges\":[]}}",
                "unk_token");
}

/* A pattern that backtracks without end gives up with an error, soon. */
static void test_runaway_pattern(void **state) {
    (void)state;
    tok *t = parse_ok("{" CHARS "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                      "\"(a+)+(?:b|c)\"},\"behavior\":\"Isolated\"}," MODEL(AB, "[]") "}");
    char text[4000];
    memset(text, 'a', sizeof(text));
    err e = {0};
    tok_ids ids = {0};
    clock_t start = clock();
    assert_int_equal(tok_encode(t, text, sizeof(text), 0, &ids, &e), ST_FORMAT);
    assert_true(clock() - start < PATIENCE_S(10) * CLOCKS_PER_SEC);
    tok_ids_free(&ids);
    tok_free(t);
}

/* Text that a loaded vocabulary cannot write: the offset is that of the caller's text. */
static void test_gaps_in_vocabulary(void **state) {
    (void)state;
    static const struct {
        const char *json, *text, *names;
    } CASES[] = {
        {"{" CHARS "\"normalizer\":{\"type\":\"NFC\"}," MODEL(AB, "[]") "}", "ab\xC3\xA9",
         "byte 2, U+00E9"},
    };
    for (int i = 0; i < ARRAY_LEN(CASES); i++) {
        err e = {0};
        tok_ids ids = {0};
        tok *t = parse_ok(CASES[i].json);
        assert_int_equal(tok_encode(t, CASES[i].text, strlen(CASES[i].text), 0, &ids, &e),
                         ST_FORMAT);
        if (!strstr(e.message, CASES[i].names)) fail_msg("%s", e.message);
        tok_ids_free(&ids);
        tok_free(t);
    }
}

/* A good file cut anywhere is refused, never read beyond its end. */
static void test_truncation(void **state) {
    (void)state;
    size_t len;
    char *text = read_golden(GOLDEN("char.json"), &len);
    for (size_t n = 0; n < len; n++) {
        err e = {0};
        tok *t;
        char *cut = malloc(n + 1);
        memcpy(cut, text, n);
        assert_int_equal(tok_parse(&t, cut, n, "cut.json", &e), ST_FORMAT);
        free(cut);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_runaway_pattern),
        cmocka_unit_test(test_gaps_in_vocabulary),
        cmocka_unit_test(test_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
