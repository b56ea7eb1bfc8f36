/* .npy: files that numpy wrote, a round trip, malformed files. */
#include "test.h"

#include "base/strbuf.h"
#include "io/io_test.h"
#include "io/npy.h"

static void test_reads_what_numpy_wrote(void **state) {
    (void)state;
    npy_i32 a;
    err e;
    assert_ok(npy_read_i32(&a, TEST_DIR "/golden/io/ids_i32.npy", &e), e);
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.dims[0], 2);
    assert_int_equal(a.dims[1], 5);
    for (int i = 0; i < 10; i++) assert_int_equal(a.data[i], i);
    npy_i32_free(&a);
    assert_ok(npy_read_i32(&a, TEST_DIR "/golden/io/ids_i64.npy", &e), e);
    assert_int_equal(a.numel, 6);
    for (int i = 0; i < 6; i++) assert_int_equal(a.data[i], i - 3);
    npy_i32_free(&a);
    assert_ok(npy_read_i32(&a, TEST_DIR "/golden/io/ids_v2.npy", &e), e);
    assert_int_equal(a.rank, 1);
    assert_int_equal(a.data[2], 9);
    npy_i32_free(&a);
}

/* version is the first eight bytes; header follows its u16 length. */
static const char *write_npy(test_dir *d, const char *version, const char *header, size_t n_data) {
    strbuf b = {0};
    strbuf_append(&b, version, 8);
    strbuf_putc(&b, (char)strlen(header));
    strbuf_putc(&b, 0);
    strbuf_puts(&b, header);
    for (size_t i = 0; i < n_data; i++) strbuf_putc(&b, (char)0x7f);
    char *path = path_join(d->mem, d->path, "x.npy");
    err e;
    assert_ok(file_write_atomic(path, b.data, b.len, &e), e);
    strbuf_free(&b);
    return path;
}

#define V1 "\x93NUMPY\x01\x00"
#define DICT(descr, order, shape)                                                                  \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

static const struct {
    const char *version, *header;
    size_t n_data;
    const char *expect;
} malformed[] = {
    {"\x93NUMPZ\x01\x00", DICT("<i4", "False", "(1,)"), 4, "no .npy file"},
    {"\x93NUMPY\x09\x00", DICT("<i4", "False", "(1,)"), 4, "version 9"},
    {V1, "", 100, "not understood"},
    {V1, "[]", 100, "not understood"},
    {V1, "{'descr': '<i4'", 100, "not understood"},
    {V1, "{'descr': '<i4'}", 100, "not understood"},
    {V1, "{'descr': '<i4', 'descr': '<i4', 'shape': (1,)}", 4, "not understood"},
    {V1, "{'descr': '<i4", 100, "not understood"},
    {V1, DICT("<i4", "None", "(1,)"), 4, "not understood"},
    {V1, DICT("<i4", "False", "(-1,)"), 4, "not understood"},
    {V1, DICT("<i4", "False", "(99999999999999999999,)"), 4, "not understood"},
    {V1, DICT("<i4", "False", "(1, 1, 1, 1, 1)"), 4, "not understood"},
    {V1, DICT("<i4", "False", "(1,"), 4, "not understood"},
    {V1, DICT("<i4", "False", "(1,)") "x", 4, "not understood"},
    {V1, DICT("<f4", "False", "(1,)"), 4, "it holds '<f4'"},
    {V1, DICT(">i4", "False", "(1,)"), 4, "it holds '>i4'"},
    {V1, DICT("<i4", "True", "(1, 1)"), 4, "Fortran order"},
    {V1, DICT("<i4", "False", "(2,)"), 4, "its shape needs 8 bytes of data, it has 4"},
    {V1, DICT("<i4", "False", "(1,)"), 5, "its shape needs 4 bytes of data, it has 5"},
    {V1, DICT("<i4", "False", "(4611686018427387904, 4)"), 0, "shape overflows"},
    {V1, DICT("<i8", "False", "(2305843009213693952,)"), 0, "shape overflows"},
    {V1, DICT("<i8", "False", "(1,)"), 8, "element 0 is 9187201950435737471, beyond 32 bits"},
};

static void test_malformed_files_are_refused(void **state) {
    test_dir *d = *state;
    for (int i = 0; i < ARRAY_LEN(malformed); i++) {
        const char *path =
            write_npy(d, malformed[i].version, malformed[i].header, malformed[i].n_data);
        npy_i32 a;
        err e = {0};
        assert_int_equal(npy_read_i32(&a, path, &e), ST_FORMAT);
        assert_null(a.data);
        if (!strstr(e.message, malformed[i].expect))
            fail_msg("%s: \"%s\" does not say \"%s\"", malformed[i].header, e.message,
                     malformed[i].expect);
        assert_non_null(strstr(e.message, "x.npy"));
    }
}

static void test_every_prefix_is_refused(void **state) {
    test_dir *d = *state;
    file_map m;
    err e;
    assert_ok(file_map_open(&m, TEST_DIR "/golden/io/ids_v2.npy", &e), e);
    char *path = path_join(d->mem, d->path, "cut.npy");
    for (size_t cut = 0; cut < m.len; cut++) {
        npy_i32 a;
        assert_ok(file_write_atomic(path, m.len ? m.data : NULL, cut, &e), e);
        assert_int_equal(npy_read_i32(&a, path, &e), ST_FORMAT);
    }
    file_map_close(&m);
}

/* The exact bytes that numpy.save writes for the same array, up to spaces in the header. */
static void test_written_file(void **state) {
    test_dir *d = *state;
    float f[6] = {0, 1, -2, 3.5f, 4, 5};
    char *path = path_join(d->mem, d->path, "w.npy"), *text;
    size_t len;
    err e;
    assert_ok(npy_write_f32(path, f, 2, (int64_t[]){2, 3}, &e), e);
    assert_ok(file_read_all(path, &text, &len, &e), e);
    assert_int_equal(len, 128 + sizeof(f));
    assert_memory_equal(text, "\x93NUMPY\x01\x00\x76\x00", 10);
    assert_non_null(strstr(text + 10, "'<f4', 'fortran_order': False, 'shape': (2, 3,), }"));
    assert_int_equal(text[127], '\n');
    assert_memory_equal(text + 128, f, sizeof(f));
    free(text);
    npy_i32 a;
    assert_int_equal(npy_read_i32(&a, path, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "it holds '<f4'"));
    assert_ok(npy_write_f32(path, f, 0, NULL, &e), e);
    assert_int_equal(file_size(path) % 64, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_reads_what_numpy_wrote),
        IO_TEST(test_malformed_files_are_refused),
        IO_TEST(test_every_prefix_is_refused),
        IO_TEST(test_written_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
