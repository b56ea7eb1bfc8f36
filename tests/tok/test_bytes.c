/* What holds for any bytes: byte-level kinds give them back exactly, valid UTF-8 or not; characters
 * are refused with an offset; streaming never prints part of a character. */
#include "base/rng.h"
#include "base/utf8.h"
#include "tok/tok_test.h"

static tok *golden_bpe(void) {
    return load_golden(GOLDEN("bpe_llama3.json"));
}

static tok *byte_kind(void) {
    return train_on((tok_train_options){.kind = TOK_BYTE}, "x", 1);
}

static void check_all_bytes(const tok *t) {
    char text[512];
    for (int b = 0; b < 256; b++) {
        text[b] = (char)b;
        text[511 - b] = (char)b;
        check_round_trip(t, &text[b], 1);
    }
    check_round_trip(t, text, sizeof(text));
}

static void check_random_bytes(const tok *t) {
    rng_key key = rng_key_named(5, "bytes");
    for (uint64_t i = 0; i < 300; i++) {
        char text[400];
        size_t len = rng_u32(key, 1000 * i) % sizeof(text);
        bool mostly_text = i % 2;
        for (size_t k = 0; k < len; k++) {
            uint32_t r = rng_u32(key, 1000 * i + 1 + k);
            text[k] = (char)(mostly_text && r % 8 ? 'a' + (r >> 8) % 4 : r >> 8);
        }
        check_round_trip(t, text, len);
    }
}

static void test_round_trip(void **state) {
    (void)state;
    tok *kinds[] = {golden_bpe(), byte_kind()};
    for (int i = 0; i < ARRAY_LEN(kinds); i++) {
        check_all_bytes(kinds[i]);
        check_random_bytes(kinds[i]);
        tok_free(kinds[i]);
    }
}

static void test_byte_ids(void **state) {
    (void)state;
    tok *t = byte_kind();
    assert_int_equal(tok_vocab_size(t), 257);
    assert_int_equal(tok_eos(t), 0);
    tok_ids ids = encode_ok(t, "A\xFF<|endoftext|>\n", 16, 0);
    const int32_t want[] = {1 + 'A', 1 + 0xFF, 0, 1 + '\n'};
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.id, want, sizeof(want));
    tok_ids_free(&ids);
    tok_free(t);
}

static void test_invalid_bytes_stand_alone(void **state) {
    (void)state;
    tok *t = golden_bpe();
    tok_ids whole = encode_ok(t, "the \x80the", 8, 0);
    tok_ids left = encode_ok(t, "the ", 4, 0), bad = encode_ok(t, "\x80", 1, 0),
            right = encode_ok(t, "the", 3, 0);
    assert_int_equal(bad.n, 1);
    assert_int_equal(whole.n, left.n + 1 + right.n);
    assert_memory_equal(whole.id, left.id, (size_t)left.n * sizeof(int32_t));
    assert_int_equal(whole.id[left.n], bad.id[0]);
    tok_ids_free(&whole);
    tok_ids_free(&left);
    tok_ids_free(&bad);
    tok_ids_free(&right);
    tok_free(t);
}

/* Pieces as long as a whole text: cost must stay near linear. */
static void test_long_words(void **state) {
    (void)state;
    tok *t = golden_bpe();
    size_t len = 1 << 20;
    char *text = malloc(len);
    memset(text, 'a', len);
    check_round_trip(t, text, len);
    memset(text, ' ', len);
    check_round_trip(t, text, len);
    for (size_t i = 0; i < len; i++) text[i] = "the"[i % 3];
    check_round_trip(t, text, len);
    free(text);
    tok_free(t);
}

static void check_stream(const tok *t, const char *text, size_t len) {
    err e = {0};
    tok_ids ids = encode_ok(t, text, len, 0);
    tok_stream s = {.t = t};
    strbuf out = {0};
    for (int64_t i = 0; i < ids.n; i++) {
        size_t before = out.len;
        assert_int_equal(tok_stream_push(&s, ids.id[i], &out, &e), ST_OK);
        /* Each printed piece is whole characters, as the text is. */
        size_t piece = out.len - before;
        assert_int_equal(utf8_valid_prefix(out.data ? out.data + before : "", piece), piece);
    }
    assert_int_equal(s.n_held, 0);
    assert_int_equal(out.len, len);
    assert_memory_equal(strbuf_cstr(&out), text, len);
    strbuf_free(&out);
    tok_ids_free(&ids);
}

static void test_stream(void **state) {
    (void)state;
    const char *text = "Stra\xC3\x9F"
                       "e \xE9\x87\x91\xE5\xB1\x9E \xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD."
                       " \xF4\x8F\xBF\xBF\xEE\x80\x80 end";
    tok *kinds[] = {golden_bpe(), byte_kind()};
    for (int i = 0; i < ARRAY_LEN(kinds); i++) {
        check_stream(kinds[i], text, strlen(text));
        tok_free(kinds[i]);
    }
}

/* Bytes that cannot become a character are printed at once, an open one at the flush. */
static void test_stream_broken(void **state) {
    (void)state;
    err e = {0};
    tok *t = byte_kind();
    tok_stream s = {.t = t};
    strbuf out = {0};
    const uint8_t bytes[] = {0xE9, 0x87, 'x', 0xFF, 0xF0, 0x9F};
    const size_t printed[] = {0, 0, 3, 4, 4, 4};
    for (int i = 0; i < ARRAY_LEN(bytes); i++) {
        assert_int_equal(tok_stream_push(&s, 1 + bytes[i], &out, &e), ST_OK);
        assert_int_equal(out.len, printed[i]);
    }
    assert_int_equal(tok_stream_flush(&s, &out, &e), ST_OK);
    assert_int_equal(out.len, sizeof(bytes));
    assert_memory_equal(out.data, bytes, sizeof(bytes));
    assert_int_equal(tok_stream_push(&s, 999, &out, &e), ST_USAGE);
    strbuf_free(&out);
    tok_free(t);
}

static void test_characters(void **state) {
    (void)state;
    err e = {0};
    tok_ids ids = {0};
    const char *none[] = {NULL};
    tok *t =
        train_on((tok_train_options){.kind = TOK_CHAR, .special = none}, "hello w\xC3\xB6rld", 12);
    assert_int_equal(tok_vocab_size(t), 9);
    assert_int_equal(tok_eos(t), -1);
    assert_int_equal(tok_id(t, " "), 0);
    assert_int_equal(tok_id(t, "\xC3\xB6"), 8);
    check_round_trip(t, "h\xC3\xB6 led", 7);
    assert_int_equal(tok_encode(t, "hello you", 9, 0, &ids, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "byte 6"));
    assert_int_equal(ids.n, 0);
    assert_int_equal(tok_encode(t, "hel\xFF", 4, 0, &ids, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "byte 3"));
    tok_ids_free(&ids);
    tok_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_byte_ids),
        cmocka_unit_test(test_invalid_bytes_stand_alone),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_broken),
        cmocka_unit_test(test_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
