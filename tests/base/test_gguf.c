/* Metadata of GGUF files: values of all types both ways, and files that are wrong. */
#include "test.h"

#include "base/gguf.h"

/* The bytes of a file without tensors. Reads a copy of exactly that length, so that a sanitizer
 * sees a step beyond the end. */
typedef struct sample {
    char *bytes;
    size_t len;
    arena *mem;
    gguf_meta meta;
    err e;
} sample;

static status sample_read(sample *s, const char *bytes, size_t len) {
    *s = (sample){.bytes = xmalloc(len ? len : 1), .len = len, .mem = arena_new("test")};
    if (len) memcpy(s->bytes, bytes, len);
    return gguf_meta_read(&s->meta, s->mem, s->bytes, len, "x.gguf", &s->e);
}

static void sample_drop(sample *s) {
    arena_free(s->mem);
    free(s->bytes);
}

static strbuf header_of(gguf_pairs *pairs) {
    strbuf b = {0};
    gguf_append_header(&b, 0, pairs);
    gguf_pairs_free(pairs);
    return b;
}

static void read_pairs(sample *s, gguf_pairs *pairs) {
    strbuf b = header_of(pairs);
    if (sample_read(s, b.data, b.len) != ST_OK) fail_msg("%s", s->e.message);
    assert_int_equal(s->meta.end, b.len);
    strbuf_free(&b);
}

static void put_u64(gguf_pairs *p, const char *key, uint64_t x) {
    gguf_value v = {GGUF_U64, GGUF_U64, 1, (const char *)&x, sizeof x};
    gguf_put_value(p, key, &v);
}

static gguf_pairs some_pairs(void) {
    static const gguf_text words[] = {{"one", 3}, {"", 0}, {"t\0wo", 4}};
    gguf_pairs p = {0};
    gguf_put_string(&p, "general.architecture", "llama");
    gguf_put_u32(&p, "a.u32", 4000000000u);
    put_u64(&p, "a.u64", UINT64_MAX);
    gguf_put_f32(&p, "a.f32", 0.1f);
    gguf_put_bool(&p, "a.yes", true);
    gguf_put_bool(&p, "a.no", false);
    gguf_put_texts(&p, "a.words", words, 3);
    gguf_put_array(&p, "a.i32s", GGUF_I32, (int32_t[]){-1, 2, INT32_MIN}, 3);
    gguf_put_array(&p, "a.f64s", GGUF_F64, (double[]){0.1, -2}, 2);
    gguf_put_array(&p, "a.none", GGUF_U8, NULL, 0);
    return p;
}

static void test_values(void **state) {
    (void)state;
    gguf_pairs p = some_pairs();
    sample s;
    read_pairs(&s, &p);
    const gguf_meta *m = &s.meta;
    int64_t i;
    double f;
    bool b;
    gguf_text t;
    assert_int_equal(m->n, 10);
    assert_string_equal(m->pairs[1].key, "a.u32"); /* order kept */
    assert_int_equal(m->alignment, GGUF_DEFAULT_ALIGNMENT);
    assert_int_equal(gguf_meta_text(m, "general.architecture", &t, &s.e), ST_OK);
    assert_int_equal(t.len, 5);
    assert_memory_equal(t.text, "llama", 5);
    assert_int_equal(gguf_meta_int(m, "a.u32", &i, &s.e), ST_OK);
    assert_true(i == 4000000000);
    assert_int_equal(gguf_meta_float(m, "a.f32", &f, &s.e), ST_OK);
    assert_true(f == (double)0.1f);
    assert_int_equal(gguf_meta_bool(m, "a.yes", &b, &s.e), ST_OK);
    assert_true(b);
    assert_int_equal(gguf_meta_bool(m, "a.no", &b, &s.e), ST_OK);
    assert_false(b);
    const gguf_text *words = gguf_value_texts(gguf_meta_find(m, "a.words"), s.mem);
    assert_int_equal(words[1].len, 0);
    assert_memory_equal(words[2].text, "t\0wo", 4);
    const gguf_value *ints = gguf_meta_find(m, "a.i32s");
    assert_int_equal(ints->n, 3);
    assert_true(gguf_value_int(ints, 2, &i) && i == INT32_MIN);
    assert_true(gguf_value_float(gguf_meta_find(m, "a.f64s"), 0, &f) && f == 0.1);
    assert_false(gguf_value_float(ints, 0, &f));
    assert_false(gguf_value_bool(ints, 0, &b));
    assert_null(gguf_value_texts(ints, s.mem));
    assert_int_equal(gguf_meta_find(m, "a.none")->n, 0);
    assert_null(gguf_meta_find(m, "a.nothing"));
    sample_drop(&s);
}

static void test_wrong_kinds(void **state) {
    (void)state;
    gguf_pairs p = some_pairs();
    sample s;
    read_pairs(&s, &p);
    const gguf_meta *m = &s.meta;
    int64_t i;
    double f;
    bool b;
    gguf_text t;
    assert_int_equal(gguf_meta_int(m, "a.gone", &i, &s.e), ST_FORMAT);
    assert_string_equal(s.e.message, "x.gguf: the key 'a.gone' is missing");
    assert_string_equal(s.e.where, "a.gone");
    assert_int_equal(gguf_meta_int(m, "a.u64", &i, &s.e), ST_FORMAT);
    assert_string_equal(s.e.message, "x.gguf: the key 'a.u64' is a u64 that is no 63-bit integer");
    assert_int_equal(gguf_meta_int(m, "a.f32", &i, &s.e), ST_FORMAT);
    assert_int_equal(gguf_meta_int(m, "a.yes", &i, &s.e), ST_FORMAT);
    assert_int_equal(gguf_meta_float(m, "a.u32", &f, &s.e), ST_FORMAT);
    assert_int_equal(gguf_meta_bool(m, "a.u32", &b, &s.e), ST_FORMAT);
    assert_int_equal(gguf_meta_text(m, "a.words", &t, &s.e), ST_FORMAT);
    assert_string_equal(s.e.message, "x.gguf: the key 'a.words' is an array, not one value");
    assert_int_equal(gguf_meta_int(m, "a.none", &i, &s.e), ST_FORMAT);
    sample_drop(&s);
}

static void test_copied_values_are_the_same_bytes(void **state) {
    (void)state;
    gguf_pairs first = some_pairs(), again = {0};
    sample s;
    strbuf was = {0};
    gguf_append_header(&was, 0, &first);
    read_pairs(&s, &first);
    for (int64_t i = 0; i < s.meta.n; i++)
        gguf_put_value(&again, s.meta.pairs[i].key, &s.meta.pairs[i].value);
    strbuf b = header_of(&again);
    assert_int_equal(b.len, was.len);
    assert_memory_equal(b.data, was.data, b.len);
    strbuf_free(&b);
    strbuf_free(&was);
    sample_drop(&s);
}

static void test_every_prefix_is_refused(void **state) {
    (void)state;
    gguf_pairs p = some_pairs();
    strbuf b = header_of(&p);
    for (size_t cut = 0; cut < b.len; cut++) {
        sample s;
        assert_int_equal(sample_read(&s, b.data, cut), ST_FORMAT);
        assert_non_null(strstr(s.e.message, "x.gguf: "));
        assert_true(s.e.hint[0] != 0);
        sample_drop(&s);
    }
    strbuf_free(&b);
}

/* ---- files that are wrong: the header, then pairs ---- */

#define HEAD(pairs) "GGUF\3\0\0\0" ZERO8 pairs "\0\0\0\0\0\0\0"
#define ZERO8 "\0\0\0\0\0\0\0\0"
#define LEN(c) c "\0\0\0\0\0\0\0"
#define ROW(bytes, expect)                                                                         \
    { bytes, sizeof(bytes) - 1, expect }

static const struct {
    const char *bytes;
    size_t len;
    const char *expect;
} WRONG[] = {
    ROW("", "ends too early"),
    ROW("GGML\3\0\0\0" ZERO8 ZERO8, "no GGUF file"),
    ROW("GGUF\1\0\0\0" ZERO8 ZERO8, "version 1 is not supported"),
    ROW("GGUF\4\0\0\0" ZERO8 ZERO8, "version 4 is not supported"),
    ROW("GGUF\0\0\0\3" ZERO8 ZERO8, "big-endian"),
    ROW("GGUF\3\0\0\0" ZERO8 "\1\0\0\0\0\0\0\x80", "claims 9223372036854775809 keys"),
    ROW(HEAD("\2") LEN("\1") "a" LEN("\7") "\1\0\0\0", "claims 2 keys"),
    ROW(HEAD("\1") LEN("\0") "\7\0\0\0\1\0", "0 bytes (1 to 65535"),
    ROW(HEAD("\1") LEN("\2") "a\n\7\0\0\0\1", "control character"),
    ROW(HEAD("\1") "\377\377\377\377\377\377\377\377"
                   "a\7\0\0\0\1",
        "a length in it is wrong"),
    ROW(HEAD("\1") LEN("\1") "a"
                             "\15\0\0\0\1",
        "value type 13 is not known"),
    ROW(HEAD("\1") LEN("\1") "a"
                             "\x0c\0\0\0\1\2\3\4",
        "ends too early"),
    ROW(HEAD("\1") LEN("\1") "a"
                             "\x08\0\0\0" LEN("\2") "x",
        "ends too early"),
    ROW(HEAD("\1") LEN("\1") "a"
                             "\x09\0\0\0\x09\0\0\0" ZERO8,
        "arrays of arrays"),
    ROW(HEAD("\1") LEN("\1") "a"
                             "\x09\0\0\0\4\0\0\0" LEN("\2") "1234123",
        "ends too early"),
    ROW(HEAD("\1") LEN("\1") "a"
                             "\x09\0\0\0\4\0\0\0"
                             "\1\0\0\0\0\0\0\x40"
                             "1234",
        "ends too early"),
    ROW(HEAD("\1") LEN("\1") "a"
                             "\x09\0\0\0\x08\0\0\0" LEN("\2") LEN("\0") LEN("\1"),
        "ends too early"),
    ROW(HEAD("\1") LEN("\1") "a"
                             "\x09\0\0\0\x20\0\0\0" ZERO8,
        "value type 32"),
    ROW(HEAD("\2") LEN("\1") "a"
                             "\7\0\0\0\1" LEN("\1") "a"
                                                    "\7\0\0\0\1",
        "'a' is there twice"),
};

static void test_malformed(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(WRONG); i++) {
        sample s;
        assert_int_equal(sample_read(&s, WRONG[i].bytes, WRONG[i].len), ST_FORMAT);
        if (!strstr(s.e.message, WRONG[i].expect))
            fail_msg("row %d: \"%s\" does not say \"%s\"", i, s.e.message, WRONG[i].expect);
        sample_drop(&s);
    }
}

static void test_alignment(void **state) {
    (void)state;
    static const uint32_t good[] = {1, 8, 64, 1 << 20}, bad[] = {0, 24, 1u << 21, 0xffffffff};
    for (int i = 0; i < 4; i++) {
        gguf_pairs p = {0};
        sample s;
        gguf_put_u32(&p, "general.alignment", good[i]);
        read_pairs(&s, &p);
        assert_int_equal(s.meta.alignment, good[i]);
        sample_drop(&s);
        gguf_put_u32(&p, "general.alignment", bad[i]);
        strbuf b = header_of(&p);
        assert_int_equal(sample_read(&s, b.data, b.len), ST_FORMAT);
        assert_non_null(strstr(s.e.message, "not a power of two"));
        strbuf_free(&b);
        sample_drop(&s);
    }
    gguf_pairs p = {0};
    sample s;
    put_u64(&p, "general.alignment", 32);
    strbuf b = header_of(&p);
    assert_int_equal(sample_read(&s, b.data, b.len), ST_FORMAT);
    assert_non_null(strstr(s.e.message, "no u32"));
    strbuf_free(&b);
    sample_drop(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_wrong_kinds),
        cmocka_unit_test(test_copied_values_are_the_same_bytes),
        cmocka_unit_test(test_every_prefix_is_refused),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
