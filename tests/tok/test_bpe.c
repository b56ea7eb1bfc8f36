/* BPE over characters gives the ids and offsets of Hugging Face tokenizers
 * (tests/oracle/make_tok_bpe.py); dropout; many threads give what one gives. */
#include <omp.h>
#include <sys/resource.h>

#include "sanitizer.h"
#include "tok/tok_test.h"

static void test_golden(void **state) {
    (void)state;
    json_t *groups = json_load_file(GOLDEN("bpe_chars.json"), JSON_ALLOW_NUL, NULL), *group, *one;
    size_t i, k, checked = 0;
    json_array_foreach(groups, i, group) {
        char *text = json_dumps(json_object_get(group, "tokenizer"), JSON_COMPACT);
        tok *t = parse_ok(text);
        json_array_foreach(json_object_get(group, "cases"), k, one) {
            check_golden(t, one, json_string_value(json_object_get(group, "name")));
            checked++;
        }
        tok_free(t);
        free(text);
    }
    assert_true(checked > 380);
    json_decref(groups);
}

/* ---- dropout ---- */

/* The golden byte-level tokenizer with a share of its merges left out. */
static tok *with_dropout(double share) {
    json_t *root = json_load_file(GOLDEN("bpe_llama3.json"), 0, NULL);
    json_object_set_new(json_object_get(root, "model"), "dropout", json_real(share));
    char *text = json_dumps(root, JSON_COMPACT);
    tok *t = parse_ok(text);
    json_decref(root);
    free(text);
    return t;
}

/* More tokens the more is left out, from those of all merges to one a byte; always the same for the
 * same text, and always the text again. */
static void test_dropout(void **state) {
    (void)state;
    static const double SHARES[] = {0, 0.1, 0.5, 1};
    size_t len;
    char *text = read_golden(GOLDEN("corpus.txt"), &len);
    tok *plain = load_golden(GOLDEN("bpe_llama3.json"));
    tok_ids all = encode_ok(plain, text, len, 0);
    int64_t before = 0;
    for (int i = 0; i < ARRAY_LEN(SHARES); i++) {
        tok *t = with_dropout(SHARES[i]);
        tok_ids ids = encode_ok(t, text, len, 0), again = encode_ok(t, text, len, 0);
        assert_true(ids.n > before);
        assert_int_equal(ids.n, again.n);
        assert_memory_equal(ids.id, again.id, (size_t)ids.n * sizeof(int32_t));
        check_round_trip(t, text, len);
        if (SHARES[i] == 0) assert_int_equal(ids.n, all.n);
        if (SHARES[i] == 1) assert_int_equal(ids.n, len);
        before = ids.n;
        tok_ids_free(&ids);
        tok_ids_free(&again);
        tok_free(t);
    }
    tok_ids_free(&all);
    tok_free(plain);
    free(text);
}

/* ---- threads ---- */

static char *repeated(const char *path, size_t times, size_t *len) {
    size_t one;
    char *text = read_golden(path, &one), *all = malloc(one * times);
    for (size_t i = 0; i < times; i++) memcpy(all + i * one, text, one);
    free(text);
    *len = one * times;
    return all;
}

static tok_ids encode_by(const tok *t, const char *text, size_t len, int threads) {
    int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    tok_ids ids = encode_ok(t, text, len, TOK_ADD_SPECIAL);
    omp_set_num_threads(before);
    return ids;
}

/* A text long enough to be shared, with bytes that are not UTF-8 and added tokens in it. */
static void test_long_text(void **state) {
    (void)state;
    static const char *const FILES[] = {GOLDEN("bpe_llama3.json"), GOLDEN("bpe_gpt2.json")};
    size_t len;
    char *text = repeated(GOLDEN("corpus.txt"), 60, &len);
    for (size_t i = 0; i + 40 < len; i += 40009)
        memcpy(text + i, "<mask>  <left> word <|endoftext|>\xFF ", 35);
    for (int i = 0; i < ARRAY_LEN(FILES); i++) {
        tok *t = load_golden(FILES[i]);
        tok_ids one = encode_by(t, text, len, 1);
        for (int threads = 2; threads <= 5; threads++) {
            tok_ids many = encode_by(t, text, len, threads);
            assert_int_equal(one.n, many.n);
            assert_memory_equal(one.id, many.id, (size_t)one.n * sizeof(int32_t));
            tok_ids_free(&many);
        }
        tok_ids_free(&one);
        tok_free(t);
    }
    free(text);
}

static void test_batch(void **state) {
    (void)state;
    enum { TEXTS = 200 };
    tok *t = load_golden(GOLDEN("bpe_gpt2.json"));
    size_t len;
    char *text = read_golden(GOLDEN("corpus.txt"), &len);
    tok_string list[TEXTS];
    tok_ids out[TEXTS] = {{0}};
    err e = {0};
    for (size_t i = 0; i < TEXTS; i++) list[i] = (tok_string){text + i * 50, i % 90};
    assert_int_equal(tok_encode_batch(t, list, TEXTS, TOK_ADD_SPECIAL, out, NULL, &e), ST_OK);
    for (int i = 0; i < TEXTS; i++) {
        tok_ids one = encode_ok(t, list[i].text, list[i].len, TOK_ADD_SPECIAL);
        assert_int_equal(one.n, out[i].n);
        assert_memory_equal(one.id, out[i].id, (size_t)one.n * sizeof(int32_t));
        tok_ids_free(&one);
    }
    for (int i = 0; i < TEXTS; i++) tok_ids_free(&out[i]);
    tok_free(t);
    free(text);
}

/* A text cut by tok_cut at any distance gives the ids of the whole, whatever kind it is. */
static void test_parts_give_the_whole(void **state) {
    (void)state;
    static const char *const FILES[] = {"bpe_gpt2.json", "bpe_llama3.json"};
    static const size_t STEPS[] = {1, 7, 100, 3000};
    size_t len;
    char *text = read_golden(GOLDEN("corpus.txt"), &len);
    for (int f = 0; f < 2 * ARRAY_LEN(STEPS); f++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", GOLDEN(""), FILES[f % 2]);
        tok *t = load_golden(path);
        tok_ids whole = encode_ok(t, text, len, 0), parts = {0};
        int n = 0;
        for (size_t from = 0, to; from < len; from = to, n++) {
            to = from + tok_cut(t, text + from, len - from, STEPS[f / 2]);
            assert_int_equal(tok_encode_part(t, text + from, to - from, from == 0, &parts, NULL),
                             ST_OK);
        }
        assert_true(n > 2);
        assert_int_equal(parts.n, whole.n);
        assert_memory_equal(parts.id, whole.id, sizeof(int32_t) * (size_t)whole.n);
        tok_ids_free(&whole);
        tok_ids_free(&parts);
        tok_free(t);
    }
    free(text);
}

/* Characters and bytes without merges are cut anywhere but inside an added token. */
static void test_parts_without_merges(void **state) {
    (void)state;
    static const char *const KINDS[] = {
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<ab>\"}],\"decoder\":{\"type\":\"Fuse\"},"
        "\"model\":{\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2},\"merges\":[]}}",
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<ab>\"}],\"pre_tokenizer\":{\"type\":"
        "\"ByteLevel\",\"use_regex\":false,\"add_prefix_space\":false},\"decoder\":{\"type\":"
        "\"ByteLevel\"},"
        "\"model\":{\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2},\"merges\":[]}}"};
    static const char TEXT[] = "aaaa<ab><ab>bba<ab\xC3\xA9\xE4\xB8\xAD\xE4\xB8<a<ab>>\xB8\xFFx";
    size_t len = strlen(TEXT);
    for (int k = 0; k < ARRAY_LEN(KINDS); k++) {
        tok *t = parse_ok(KINDS[k]);
        tok_ids whole = encode_ok(t, TEXT, len, 0);
        for (size_t step = 1; step < 6; step++) {
            tok_ids parts = {0};
            int n = 0;
            for (size_t from = 0, to; from < len; from = to, n++) {
                to = from + tok_cut(t, TEXT + from, len - from, step);
                assert_int_equal(
                    tok_encode_part(t, TEXT + from, to - from, from == 0, &parts, NULL), ST_OK);
            }
            assert_true(n > 3);
            assert_int_equal(parts.n, whole.n);
            assert_memory_equal(parts.id, whole.id, sizeof(int32_t) * (size_t)whole.n);
            tok_ids_free(&parts);
        }
        tok_ids_free(&whole);
        tok_free(t);
    }
}

static int64_t peak_bytes(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (int64_t)use.ru_maxrss << 10;
}

/* A text without words takes no memory beside itself and its ids, also when it cannot be encoded. */
static void test_memory(void **state) {
    (void)state;
    enum { LEN = 8 << 20 };
    if (UNDER_ASAN) skip();
    char *text = malloc(LEN);
    memset(text, 'a', LEN);
    tok *t =
        parse_ok("{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    int64_t before = peak_bytes();
    tok_ids ids = encode_ok(t, text, LEN, 0);
    assert_int_equal(ids.n, LEN);
    assert_true(peak_bytes() - before < (int64_t)10 * LEN);
    tok_ids_free(&ids);
    err e = {0};
    text[LEN - 1] = 'b';
    assert_int_equal(tok_encode(t, text, LEN, 0, &ids, &e), ST_FORMAT);
    if (!strstr(e.message, "byte 8388607, U+0062")) fail_msg("%s", e.message);
    text[LEN - 1] = '\xFF';
    assert_int_equal(tok_encode(t, text, LEN, 0, &ids, &e), ST_FORMAT);
    if (!strstr(e.message, "byte 8388607 (0xff)")) fail_msg("%s", e.message);
    assert_true(peak_bytes() - before < (int64_t)14 * LEN);
    tok_free(t);
    free(text);
}

/* The first text that cannot be encoded is named, whatever thread met it. */
static void test_batch_names_the_first_failure(void **state) {
    (void)state;
    tok *t =
        parse_ok("{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    tok_string list[50];
    tok_ids out[50] = {{0}};
    int64_t failed = -1;
    err e = {0};
    for (int i = 0; i < 50; i++) list[i] = (tok_string){i % 7 == 5 ? "ab" : "aa", 2};
    assert_int_equal(tok_encode_batch(t, list, 50, 0, out, &failed, &e), ST_FORMAT);
    assert_int_equal(failed, 5);
    if (!strstr(e.message, "byte 1, U+0062")) fail_msg("%s", e.message);
    for (int i = 0; i < 50; i++) tok_ids_free(&out[i]);
    tok_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory), /* first: it looks at the peak */
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_parts_give_the_whole),
        cmocka_unit_test(test_parts_without_merges),
        cmocka_unit_test(test_batch_names_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
