/* Encodings of Parquet by hand, with the examples of Encodings.md where it has any, at their edges:
 * numbers of 63 bits, an entry that the dictionary lacks, pieces that are cut off; and packings. */
#include "test.h"

#include <snappy-c.h>
#include <zlib.h>

#include "data/parquet/column.h"

enum { PLAIN, DICTIONARY = 8, RLE = 3, DELTA = 5, LENGTHS = 6, FRONT = 7, SPLIT = 9 };

static const parquet_node TRUTH = {.type = PARQUET_BOOLEAN, .bytes = 1},
                          INT64 = {.type = PARQUET_INT64, .bytes = 8},
                          FLOAT = {.type = PARQUET_FLOAT, .bytes = 4},
                          BYTES = {.type = PARQUET_BYTES},
                          FIXED = {.type = PARQUET_FIXED_BYTES, .bytes = 2};

/* All values, with a '|' behind each; then "!" if there is something wrong at the beginning. */
static const char *give(const parquet_node *n, int encoding, const void *page, size_t len,
                        const dictionary *d) {
    static char out[256];
    values v = {0};
    const uint8_t *value;
    size_t bytes, at = 0;
    uint8_t *copy = malloc(len + 1); /* so that sanitizers see its end */
    memcpy(copy, page, len);
    bool open = !values_open(&v, n, encoding, copy, len, d);
    while (open && values_next(&v, &value, &bytes))
        at += (size_t)snprintf(out + at, sizeof out - at, "%.*s|", (int)bytes, (const char *)value);
    snprintf(out + at, sizeof out - at, "%s", open ? "" : "!");
    values_free(&v);
    free(copy);
    return out;
}

static void test_hybrid(void **state) {
    static const uint8_t PACKED[] = {3,    0x88, 0xc6,
                                     0xfa, 6,    7}; /* 0 to 7, then 7 three times; Encodings.md */
    (void)state;
    hybrid h = {.p = PACKED, .end = PACKED + sizeof PACKED, .width = 3};
    uint32_t v;
    for (uint32_t i = 0; i < 8; i++) assert_true(hybrid_next(&h, &v) && v == i);
    for (uint32_t i = 0; i < 3; i++) assert_true(hybrid_next(&h, &v) && v == 7);
    assert_false(hybrid_next(&h, &v));
    h = (hybrid){.p = PACKED, .end = PACKED + 3, .width = 3}; /* cut off after 16 bits */
    for (uint32_t i = 0; i < 5; i++) assert_true(hybrid_next(&h, &v) && v == i);
    assert_false(hybrid_next(&h, &v));
    static const uint8_t WIDE[] = {6, 8};
    h = (hybrid){.p = WIDE, .end = WIDE + 2, .width = 3};
    assert_false(hybrid_next(&h, &v)); /* 8 has four bits */
}

/* ---- differences ---- */

static uint8_t *put_varint(uint8_t *p, uint64_t v) {
    for (; v > 127; v >>= 7) *p++ = (uint8_t)(v | 128);
    *p++ = (uint8_t)v;
    return p;
}

static uint8_t *put_zigzag(uint8_t *p, int64_t v) {
    return put_varint(p, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

/* One block of 128, of which the first miniblock of 32 is used. */
static uint8_t *put_delta(uint8_t *p, const int64_t *v, int n, int64_t min, int width) {
    p = put_zigzag(put_varint(put_varint(put_varint(p, 128), 4), (uint64_t)n), v[0]);
    if (n == 1) return p;
    p = put_zigzag(p, min);
    memcpy(p, (uint8_t[]){(uint8_t)width, 99, 99, 99},
           4); /* of miniblocks that are not there any number may stand */
    p += 4;
    memset(p, 0, (size_t)width * 4);
    for (int i = 1; i < n; i++) {
        uint64_t d = (uint64_t)v[i] - (uint64_t)v[i - 1] - (uint64_t)min;
        for (int b = 0; b < width; b++)
            if (d >> b & 1)
                p[((i - 1) * width + b) / 8] |= (uint8_t)(1 << ((i - 1) * width + b) % 8);
    }
    return p + (size_t)width * 4;
}

static void expect_delta(const int64_t *v, int n, int64_t min, int width) {
    uint8_t page[1024] = {0}, *end = put_delta(page, v, n, min, width);
    delta d;
    int64_t got;
    assert_true(delta_open(&d, page, end));
    assert_ptr_equal(delta_end(&d), end);
    for (int i = 0; i < n; i++) {
        assert_true(delta_next(&d, &got));
        assert_int_equal(got, v[i]);
    }
    assert_false(delta_next(&d, &got));
    if (width == 0) return;
    assert_true(delta_open(&d, page, end - 1));
    assert_null(delta_end(&d));
    assert_true(delta_next(&d, &got));
    assert_false(delta_next(&d, &got));
}

static void test_delta(void **state) {
    (void)state;
    expect_delta((int64_t[]){7, 5, 3, 1, 2, 3, 4, 5}, 8, -2, 2); /* Encodings.md */
    expect_delta((int64_t[]){1, 2, 3, 4, 5}, 5, 1, 0);
    expect_delta((int64_t[]){-42}, 1, 0, 0);
    expect_delta((int64_t[]){0, INT64_MAX, 1, INT64_MAX - 5, 0}, 5, -INT64_MAX, 64);
    expect_delta((int64_t[]){0, INT64_C(1) << 61, 3, INT64_C(1) << 60, 77}, 5, -(INT64_C(1) << 61),
                 63);
    expect_delta((int64_t[]){INT64_MIN, INT64_MAX, INT64_MIN}, 3, -1, 2); /* the sums go round */
}

static void test_delta_refused(void **state) {
    static const uint8_t HEADS[][4] = {{0, 4, 1, 2}, {100, 3, 1, 2}, {64, 4, 1, 2}, {64, 0, 1, 2}};
    (void)state;
    delta d;
    for (int i = 0; i < ARRAY_LEN(HEADS); i++) assert_false(delta_open(&d, HEADS[i], HEADS[i] + 4));
}

/* More numbers than a page can have: those in it are given, and none of what lies behind it. */
static void test_delta_of_too_many(void **state) {
    (void)state;
    uint8_t page[32] = {0}, *p = put_varint(put_varint(put_varint(page, 32), 1), UINT64_MAX);
    int64_t got;
    delta d;
    p = put_zigzag(put_zigzag(p, 7), 0);
    *p++ = 64; /* bits of each difference, none of which is there */
    assert_true(delta_open(&d, page, p));
    assert_true(delta_next(&d, &got) && got == 7);
    assert_false(delta_next(&d, &got));
    assert_true(delta_open(&d, page, p));
    assert_null(delta_end(&d));
}

/* ---- values ---- */

static void test_pieces(void **state) {
    (void)state;
    uint8_t page[256], *p = put_delta(page, (int64_t[]){5, 5, 6, 6}, 4, 0, 1);
    memcpy(p, "HelloWorldFoobarABCDEF", 22); /* Encodings.md */
    size_t len = (size_t)(p + 22 - page);
    assert_string_equal(give(&BYTES, LENGTHS, page, len, NULL), "Hello|World|Foobar|ABCDEF|");
    assert_string_equal(give(&BYTES, LENGTHS, page, len - 1, NULL), "Hello|World|Foobar|");
    p = put_delta(page, (int64_t[]){1, -1}, 2, -2, 0);
    assert_string_equal(give(&BYTES, LENGTHS, page, (size_t)(p - page), NULL), "");
}

static void test_front_coded(void **state) {
    (void)state;
    uint8_t page[256], *p = put_delta(page, (int64_t[]){0, 2, 0, 3}, 4, -2, 3);
    p = put_delta(p, (int64_t[]){4, 2, 6, 5}, 4, -2, 3);
    memcpy(p, "axislebabbleyhood", 17); /* Encodings.md */
    size_t len = (size_t)(p + 17 - page);
    assert_string_equal(give(&BYTES, FRONT, page, len, NULL), "axis|axle|babble|babyhood|");
    assert_string_equal(give(&FIXED, FRONT, page, len, NULL), ""); /* they have no two bytes */
    p = put_delta(page, (int64_t[]){1}, 1, 0, 0);                  /* of nothing before it */
    p = put_delta(p, (int64_t[]){1}, 1, 0, 0);
    *p++ = 'a';
    assert_string_equal(give(&BYTES, FRONT, page, (size_t)(p - page), NULL), "");
}

static void test_split(void **state) {
    (void)state; /* Encodings.md, in letters */
    assert_string_equal(give(&FLOAT, SPLIT, "AaxBbyCczDdw", 12, NULL), "ABCD|abcd|xyzw|");
    assert_string_equal(give(&FLOAT, SPLIT, "AaxBbyCczDd", 11, NULL), "!");
    assert_string_equal(give(&BYTES, SPLIT, "AaxB", 4, NULL), "!");
}

static void test_dictionary(void **state) {
    (void)state;
    static const char ENTRIES[] = "\1\0\0\0a\0\0\0\0\3\0\0\0ccc";
    dictionary d = {0};
    assert_null(dictionary_open(&d, &BYTES, (const uint8_t *)ENTRIES, 16, 3));
    assert_string_equal(give(&BYTES, DICTIONARY, "\2\4\2\2\0\2\1", 7, &d), "ccc|ccc|a||");
    assert_string_equal(give(&BYTES, DICTIONARY, "\2\2\1\2\3\2\0", 7, &d),
                        "|"); /* there is no fourth entry */
    assert_string_equal(give(&BYTES, DICTIONARY, "\41", 1, &d), "!");
    assert_string_equal(give(&BYTES, DICTIONARY, "\0\4", 2, NULL), "!");
    assert_non_null(dictionary_open(&d, &BYTES, (const uint8_t *)ENTRIES, 15, 3));
    assert_non_null(dictionary_open(&d, &BYTES, (const uint8_t *)ENTRIES, 16, 4));
    assert_non_null(dictionary_open(&d, &BYTES, (const uint8_t *)ENTRIES, 16, UINT32_MAX));
    free(d.offset);
    d.offset = NULL;
    assert_non_null(dictionary_open(&d, &FIXED, (const uint8_t *)"abcde", 5, 3));
    assert_null(dictionary_open(&d, &FIXED, (const uint8_t *)"abcdef", 6, 3));
    assert_string_equal(give(&FIXED, DICTIONARY, "\2\2\2\2\1", 5, &d), "ef|cd|");
}

static void test_plain(void **state) {
    (void)state;
    assert_string_equal(give(&BYTES, PLAIN, "\2\0\0\0hi\0\0\0\0\5\0\0\0four", 18, NULL), "hi||");
    assert_string_equal(give(&FIXED, PLAIN, "abcde", 5, NULL), "ab|cd|");
    assert_string_equal(give(&INT64, RLE, "\0\0\0\0", 4, NULL), "!");
    values v = {0};
    const uint8_t *value;
    size_t len;
    assert_null(values_open(&v, &TRUTH, PLAIN, (const uint8_t *)"\5", 1, NULL));
    for (int i = 0; i < 8; i++)
        assert_true(values_next(&v, &value, &len) && *value == (5 >> i & 1));
    assert_false(values_next(&v, &value, &len));
}

/* ---- packings ---- */

static size_t pack_member(uint8_t *to, size_t room, int window_bits, const char *text) {
    z_stream z = {.next_in = (Bytef *)text,
                  .avail_in = (uInt)strlen(text),
                  .next_out = to,
                  .avail_out = (uInt)room};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static void test_packings(void **state) {
    enum { SNAPPY = 1, GZIP };
    (void)state;
    uint8_t packed[256], out[16];
    parquet p = {0};
    size_t n = pack_member(packed, 128, 15 + 16, "two ");
    n += pack_member(packed + n, 128, 15 + 16, "members");
    assert_null(unpack_page(&p, GZIP, packed, n, out, 11));
    assert_memory_equal(out, "two members", 11);
    assert_non_null(unpack_page(&p, GZIP, packed, n, out, 12));
    assert_non_null(unpack_page(&p, GZIP, packed, n, out, 10));
    assert_non_null(unpack_page(&p, GZIP, packed, n - 1, out, 11));
    n = pack_member(packed, 128, 15, "zlib");
    assert_null(unpack_page(&p, GZIP, packed, n, out, 4));
    n = sizeof packed;
    assert_int_equal(snappy_compress("snappy", 6, (char *)packed, &n), SNAPPY_OK);
    assert_null(unpack_page(&p, SNAPPY, packed, n, out, 6));
    assert_non_null(unpack_page(&p, SNAPPY, packed, n, out, 5));
    assert_non_null(unpack_page(&p, SNAPPY, packed, n, out, 7));
    assert_null(unpack_page(&p, SNAPPY, packed, 0, out, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hybrid),        cmocka_unit_test(test_delta),
        cmocka_unit_test(test_delta_refused), cmocka_unit_test(test_delta_of_too_many),
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_front_coded),
        cmocka_unit_test(test_split),         cmocka_unit_test(test_dictionary),
        cmocka_unit_test(test_plain),         cmocka_unit_test(test_packings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
