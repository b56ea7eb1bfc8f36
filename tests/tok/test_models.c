/* Unigram, WordPiece and WordLevel: ids and offsets of the libraries they come from
 * (tests/oracle/make_tok_models.py), hostile models, time on texts that never end. */
#include <time.h>

#include "sanitizer.h"
#include "tok/model/unigram.h"
#include "tok/tok_test.h"

/* ---- golden cases ---- */

static tok *load_group(const json_t *group) {
    char *text = json_dumps(json_object_get(group, "tokenizer"), JSON_COMPACT);
    tok *t = parse_ok(text);
    free(text);
    const json_t *types = json_object_get(group, "types");
    if (!types) return t;
    err e = {0};
    uint8_t *type = calloc((size_t)tok_vocab_size(t), 1);
    for (size_t i = 0; i < json_array_size(types); i++) {
        type[i] = (uint8_t)json_integer_value(json_array_get(types, i));
    }
    uint64_t before = tok_hash(t);
    assert_int_equal(unigram_use_sentencepiece(t, type, &e), ST_OK);
    assert_true(tok_hash(t) != before);
    free(type);
    return t;
}

static void test_golden(void **state) {
    (void)state;
    json_t *groups = json_load_file(GOLDEN("models.json"), 0, NULL), *group, *one;
    size_t i, k, checked = 0;
    json_array_foreach(groups, i, group) {
        tok *t = load_group(group);
        json_array_foreach(json_object_get(group, "cases"), k, one) {
            check_golden(t, one, json_string_value(json_object_get(group, "name")));
            checked++;
        }
        tok_free(t);
    }
    assert_true(checked > 700);
    json_decref(groups);
}

/* ---- what the golden cases cannot show ---- */

#define FUSE "{\"decoder\":{\"type\":\"Fuse\"},\"model\":"
#define UNIGRAM(vocab) FUSE "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":" vocab "}}"

static void check_encode(const tok *t, const char *text, size_t len, const char *want) {
    tok_ids ids = encode_ok(t, text, len, 0);
    strbuf got = {0};
    for (int64_t i = 0; i < ids.n; i++) strbuf_printf(&got, " %d", (int)ids.id[i]);
    assert_string_equal(strbuf_cstr(&got), want);
    strbuf_free(&got);
    tok_ids_free(&ids);
}

/* "ab" "c" wins by one unit in the last place, but Hugging Face's reader makes the two scores equal
 * and then takes the first way that it finds (tokenizers 0.23.3 gives these ids). */
static void test_numbers_as_hugging_face_reads_them(void **state) {
    (void)state;
    tok *t = parse_ok(UNIGRAM("[[\"?\",-20.0],[\"ab\",-3.8201843579187997],[\"c\",0.0],"
                              "[\"a\",0.0],[\"bc\",-3.8201843579188],[\"b\",-50.0]]"));
    check_encode(t, "abc", 3, " 3 4");
    tok_free(t);
}

static void test_bytes_that_are_not_text(void **state) {
    (void)state;
    tok *t = parse_ok(FUSE "{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":"
                           "[[\"?\",0],[\"a\",-1],[\"<0xFF>\",-2]]}}");
    check_encode(t,
                 "a\xFF"
                 "a\xFE",
                 4, " 1 2 1 0");
    tok_free(t);
    t = parse_ok(
        FUSE "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":"
             "\"##\",\"max_input_chars_per_word\":9,\"vocab\":{\"?\":0,\"a\":1,\"\u00FF\":2}}}");
    check_encode(t, "a\xFF", 2, " 1 0");
    tok_free(t);
}

/* Models of old files name no type. */
static void test_type_left_out(void **state) {
    (void)state;
    tok *t = parse_ok(FUSE "{\"unk_id\":0,\"vocab\":[[\"?\",0],[\"ab\",-1]]}}");
    check_encode(t, "abx", 3, " 1 0");
    tok_free(t);
    t = parse_ok(FUSE "{\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\","
                      "\"max_input_chars_per_word\":9,\"vocab\":{\"?\":0,\"a\":1,\"##b\":2}}}");
    check_encode(t, "ab", 2, " 1 2");
    tok_free(t);
    t = parse_ok(FUSE "{\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"ab\":1}}}");
    check_encode(t, "ab", 2, " 1");
    tok_free(t);
}

/* Without an unknown token, a text that needs one is an error that names the place. */
static void test_no_unknown_token(void **state) {
    (void)state;
    static const struct {
        const char *json, *text, *names;
    } CASES[] = {
        {FUSE "{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"a\",-1],[\"b\",-1]]}}", "abxa",
         "byte 2, U+0078"},
        {FUSE "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"a\":0}}}", "abc",
         "\"abc\""},
        {FUSE "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\","
              "\"max_input_chars_per_word\":9,\"vocab\":{\"a\":0}}}",
         "abc", "\"abc\""},
    };
    for (int i = 0; i < ARRAY_LEN(CASES); i++) {
        err e = {0};
        tok_ids ids = {0};
        tok *t = parse_ok(CASES[i].json);
        assert_int_equal(tok_encode(t, CASES[i].text, strlen(CASES[i].text), 0, &ids, &e),
                         ST_FORMAT);
        assert_int_equal(ids.n, 0);
        if (!strstr(e.message, CASES[i].names)) fail_msg("%s", e.message);
        check_encode(t, "a", 1, " 0"); /* the state of the failed call does no harm */
        tok_ids_free(&ids);
        tok_free(t);
    }
}

/* ---- hostile models ---- */

static void test_hostile_unigram(void **state) {
    (void)state;
    refuse_json(UNIGRAM("[[\"a\",\"-1\"]]"), "model.vocab[0]");
    refuse_json(UNIGRAM("[[\"a\",null]]"), "model.vocab[0]");
    refuse_json(UNIGRAM("[[\"?\",0],[\"a\"]]"), "model.vocab[1]");
    refuse_json(UNIGRAM("[[\"?\",0],[\"a\",1,2]]"), "model.vocab[1]");
    refuse_json(UNIGRAM("[[\"?\",0],[1,2]]"), "model.vocab");
    refuse_json(UNIGRAM("[\"a\"]"), "model.vocab");
    refuse_json(UNIGRAM("{\"a\":0}"), "model.vocab");
    refuse_json(UNIGRAM("[]"), "empty");
    refuse_json(UNIGRAM("[[\"?\",0],[\"\",-1]]"), "the piece is empty");
    refuse_json(UNIGRAM("[[\"?\",0],[\"a\",-1],[\"a\",-2]]"), "twice");
    refuse_json(UNIGRAM("[[\"?\",0],[\"a\",1e300]]"), "out of range");
    refuse_json(UNIGRAM("[[\"?\",0],[\"a\",-1e999]]"), "bad.json");
    refuse_json(UNIGRAM("[[\"?\",0],[\"a\",NaN]]"), "bad.json");
    refuse_json(FUSE "{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}", "unk_id");
    refuse_json(FUSE "{\"type\":\"Unigram\",\"unk_id\":-1,\"vocab\":[[\"a\",0]]}}", "unk_id");
    refuse_json(FUSE "{\"type\":\"Unigram\",\"unk_id\":\"0\",\"vocab\":[[\"a\",0]]}}", "unk_id");
    refuse_json(FUSE "{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"alpha\":1}}", "alpha");
    refuse_json(FUSE "{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"byte_fallback\":1}}",
                "byte_fallback");
    char long_piece[9000];
    memset(long_piece, 'a', sizeof(long_piece));
    strbuf b = {0};
    strbuf_printf(&b, UNIGRAM("[[\"?\",0],[\"%.*s\",-1]]"), (int)sizeof(long_piece), long_piece);
    refuse_json(strbuf_cstr(&b), "9000 bytes");
    strbuf_free(&b);
}

static void test_hostile_words(void **state) {
    (void)state;
#define WORDPIECE(rest) FUSE "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}," rest "}}"
#define LIMITS "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":9"
    refuse_json(WORDPIECE(LIMITS), "unk_token");
    refuse_json(WORDPIECE(LIMITS ",\"unk_token\":3"), "unk_token");
    refuse_json(WORDPIECE(LIMITS ",\"unk_token\":\"a\",\"max\":1"), "\"max\"");
    refuse_json(WORDPIECE("\"unk_token\":\"a\",\"continuing_subword_prefix\":\"##\""),
                "max_input_chars_per_word");
    refuse_json(WORDPIECE("\"unk_token\":\"a\",\"continuing_subword_prefix\":\"##\","
                          "\"max_input_chars_per_word\":-1"),
                "max_input_chars_per_word");
    refuse_json(WORDPIECE("\"unk_token\":\"a\",\"max_input_chars_per_word\":1"), "prefix");
    refuse_json(FUSE "{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}}", "unk_token");
    refuse_json(FUSE "{\"type\":\"WordLevel\",\"vocab\":[\"a\"],\"unk_token\":\"a\"}}", "vocab");
    refuse_json(FUSE
                "{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},\"unk_token\":\"a\",\"merges\":[]}}",
                "merges");
}

#define ADDED(id, text, left, right)                                                               \
    "{\"id\":" id ",\"content\":\"" text "\",\"single_word\":false,\"lstrip\":" left               \
    ",\"rstrip\":" right ",\"normalized\":false,\"special\":false}"
#define MORE(id, text, left, right) "," ADDED(id, text, left, right)
#define WORDLEVEL(vocab)                                                                           \
    "\"decoder\":{\"type\":\"Fuse\"},"                                                             \
    "\"model\":{\"type\":\"WordLevel\",\"vocab\":{" vocab "},\"unk_token\":\"?\"}"

static void check_all(const char *json, const char *const *cases, int n) {
    tok *t = parse_ok(json);
    for (int i = 0; i < n; i++) {
        json_t *one = json_loads(cases[i], 0, NULL);
        check_golden(t, one, "added tokens");
        json_decref(one);
    }
    tok_free(t);
}

/* Added tokens of white space behind one that has taken the white space on its right: an lstrip token
 * begins where that ended, and is not there if nothing is left (ids and offsets of tokenizers). */
static void test_white_space_is_taken_once(void **state) {
    (void)state;
    static const char JSON[] = "{\"added_tokens\":[" ADDED("2", "<t>", "false", "true")
        MORE("3", "  ", "true", "false") MORE("4", "\\t", "true", "true")
            MORE("5", " \\tx", "true", "false") "]," WORDLEVEL("\"?\":0,\"b\":1") "}";
    static const char *const cases[] = {
        "{\"text\":\"<t>  \",\"ids\":[2],\"offsets\":[[0,5]]}",
        "{\"text\":\"<t>\\t \\t \\tb\",\"ids\":[2,1],\"offsets\":[[0,8],[8,9]]}",
        "{\"text\":\"\\t\\t\\tb\",\"ids\":[4,1],\"offsets\":[[0,3],[3,4]]}",
        "{\"text\":\"<t> \\tx\",\"ids\":[2,5],\"offsets\":[[0,5],[5,6]]}",
        ("{\"text\":\"b    b  \",\"ids\":[1,3,3,1,3],"
         "\"offsets\":[[0,1],[1,3],[3,5],[5,6],[6,8]]}"),
    };
    check_all(JSON, cases, ARRAY_LEN(cases));
}

/* RoBERTa's <mask> is a token of the model, too: the white space that it takes is trimmed off all the same
 * (offsets of tokenizers). */
static void test_trimmed_mask(void **state) {
    (void)state;
    static const char JSON[] = "{\"added_tokens\":[" ADDED("2", "<mask>", "true", "false") MORE(
        "3", "<end>", "false",
        "true") "],\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"?\",0],"
                "\"cls\":[\"?\",0],\"trim_offsets\":true,\"add_prefix_space\":false}," WORDLEVEL(
                    "\"?\":0,\"b\":1,\"<mask>\":2,\"<end>\":3") "}";
    static const char *const cases[] = {
        "{\"text\":\"b  <mask>b\",\"ids\":[1,2,1],\"offsets\":[[0,1],[3,9],[9,10]]}",
        "{\"text\":\"b<end>  b\",\"ids\":[1,3,1],\"offsets\":[[0,1],[1,6],[8,9]]}",
    };
    check_all(JSON, cases, ARRAY_LEN(cases));
}

/* No spaces, every place has several pieces: time and memory grow with the text, no faster. */
static void test_endless_word(void **state) {
    (void)state;
    enum { LEN = 4 << 20 };
    tok *t =
        parse_ok(UNIGRAM("[[\"?\",0],[\"a\",-2.5],[\"aa\",-3],[\"aaaaaaaa\",-5],[\"ab\",-4]]"));
    char *text = malloc(LEN);
    memset(text, 'a', LEN);
    clock_t start = clock();
    tok_ids ids = encode_ok(t, text, LEN, 0);
    assert_true(clock() - start < PATIENCE_S(20) * CLOCKS_PER_SEC);
    assert_int_equal(ids.n, LEN / 8);
    tok_ids_free(&ids);
    tok_free(t);
    free(text);
}

/* Pieces longer than a walk through the trie takes: the best ones are found all the same. */
static void test_long_pieces(void **state) {
    (void)state;
    static const char JSON[] =
        UNIGRAM("[[\"?\",0],[\"a\",-1],[\"%s\",-2],[\"%s\",-2.5],[\"%sb\",-3]]");
    static const char WORDS[] =
        FUSE "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\","
             "\"max_input_chars_per_word\":900,\"vocab\":{\"?\":0,\"a\":1,\"##a\":2,\"%s\":3,"
             "\"##%s\":4,\"##%sb\":5}}}";
    char a[401], json[2000];
    memset(a, 'a', 400);
    a[400] = '\0';
    const char *a65 = a + 400 - 65, *a100 = a + 300, *a70 = a + 330;
    snprintf(json, sizeof json, JSON, a65, a100, a70);
    tok *t = parse_ok(json);
    check_encode(t, a, 64,
                 " 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"
                 " 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1");
    check_encode(t, a, 65, " 2");
    check_encode(t, a, 100, " 3");
    check_encode(t, a, 165, " 2 3"); /* of equal ways the one whose last piece begins first */
    a[170] = 'b';
    check_encode(t, a, 172, " 3 4 1");
    tok_free(t);
    a[170] = 'a';
    snprintf(json, sizeof json, WORDS, a65, a70, a100);
    t = parse_ok(json);
    a[135] = 'b';
    check_encode(t, a, 135, " 3 4");
    check_encode(t, a, 136, " 0");
    a[135] = 'a';
    a[165] = 'b';
    check_encode(t, a, 166, " 3 5");
    tok_free(t);
}

/* Takes a tokenizer with "%s" where `piece_bytes` of a text of 'a' stand. */
static double seconds_with_piece(const char *json, int piece_bytes, const char *text, size_t len) {
    strbuf b = {0};
    const char *at = strstr(json, "%s");
    strbuf_append(&b, json, (size_t)(at - json));
    strbuf_append(&b, text, (size_t)piece_bytes);
    strbuf_puts(&b, at + 2);
    tok *t = parse_ok(strbuf_cstr(&b));
    clock_t start = clock();
    tok_ids ids = encode_ok(t, text, len, 0);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    tok_ids_free(&ids);
    tok_free(t);
    strbuf_free(&b);
    return seconds;
}

/* From every place of a text a long piece may begin: that takes no time in proportion to its
 * length. Many long pieces that begin alike would, and are refused. */
static void test_time_of_long_pieces(void **state) {
    (void)state;
    enum { LEN = 1 << 18 };
    static const struct {
        const char *json;
        int bytes;
    } KINDS[] = {
        {UNIGRAM("[[\"?\",0],[\"a\",-1],[\"%s\",-2]]"), 7900},
        {FUSE "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\","
              "\"max_input_chars_per_word\":1000000,\"vocab\":{\"?\":0,\"a\":1,\"##a\":2,"
              "\"##%sb\":3}}}",
         30000},
        {"{\"decoder\":{\"type\":\"Fuse\"},\"added_tokens\":[{\"id\":1,\"content\":\"%sb\"}],"
         "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
         1000},
    };
    char *text = malloc(LEN);
    memset(text, 'a', LEN);
    for (int i = 0; i < ARRAY_LEN(KINDS); i++) {
        double usual = seconds_with_piece(KINDS[i].json, 50, text, LEN);
        double largest = seconds_with_piece(KINDS[i].json, KINDS[i].bytes, text, LEN);
        if (largest > 30 * usual + 0.1) fail_msg("%d: %.3f s and %.3f s", i, usual, largest);
    }
    strbuf b = {0};
    strbuf_puts(&b, FUSE "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0]");
    for (int n = 7900; n > 7895; n--) strbuf_printf(&b, ",[\"%.*s\",-1]", n, text);
    strbuf_puts(&b, "]}}");
    refuse_json(strbuf_cstr(&b), "begin alike");
    strbuf_free(&b);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_numbers_as_hugging_face_reads_them),
        cmocka_unit_test(test_bytes_that_are_not_text),
        cmocka_unit_test(test_type_left_out),
        cmocka_unit_test(test_no_unknown_token),
        cmocka_unit_test(test_hostile_unigram),
        cmocka_unit_test(test_hostile_words),
        cmocka_unit_test(test_white_space_is_taken_once),
        cmocka_unit_test(test_trimmed_mask),
        cmocka_unit_test(test_endless_word),
        cmocka_unit_test(test_long_pieces),
        cmocka_unit_test(test_time_of_long_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
