/* safetensors: round trips, a file made by Python, hostile headers, sharded folders. */
#include "test.h"

#include "base/strbuf.h"
#include "io/io_test.h"
#include "io/safetensors/safetensors.h"

/* A file from a header in plain text and n bytes of data. */
static void make_file(strbuf *b, const char *header, size_t n_data) {
    size_t len = strlen(header);
    strbuf_clear(b);
    for (int i = 0; i < 8; i++) strbuf_putc(b, (char)(len >> (8 * i)));
    strbuf_append(b, header, len);
    for (size_t i = 0; i < n_data; i++) strbuf_putc(b, (char)i);
}

enum { PLAIN = DT_U8 + 1 }; /* dtypes that are no blocks come first */

static void test_round_trip_of_every_dtype(void **state) {
    test_dir *d = *state;
    uint8_t bytes[6 * 8];
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 37);
    st_tensor t[PLAIN + 2] = {0};
    char names[PLAIN][16];
    for (int i = 0; i < PLAIN; i++) {
        snprintf(names[i], sizeof(names[i]), "t.%s", dtype_name((dtype)i));
        t[i] =
            (st_tensor){.name = names[i], .dt = (dtype)i, .rank = 2, .dims = {2, 3}, .data = bytes};
    }
    t[PLAIN] = (st_tensor){.name = "scalar", .dt = DT_I64, .data = bytes};
    t[PLAIN + 1] = (st_tensor){.name = "empty", .dt = DT_F32, .rank = 2, .dims = {0, 9}};
    char *path = path_join(d->mem, d->path, "all.safetensors");
    err e;
    assert_ok(st_write(path, t, PLAIN + 2, &e), e);
    assert_int_equal(file_size(path), st_file_bytes(t, PLAIN + 2));

    st_reader *r;
    assert_ok(st_open(&r, path, &e), e);
    assert_int_equal(st_count(r), PLAIN + 2);
    for (int i = 0; i < PLAIN; i++) {
        const st_view *v = st_get(r, i);
        assert_string_equal(v->name, names[i]);
        assert_int_equal(v->dt, i);
        assert_int_equal(v->rank, 2);
        assert_int_equal(v->numel, 6);
        assert_int_equal(v->bytes, 6 * dtype_bytes((dtype)i));
        assert_memory_equal(v->data, bytes, v->bytes);
        assert_ptr_equal(st_find(r, names[i]), v);
    }
    assert_int_equal((uintptr_t)st_get(r, 0)->data % 64, 0);
    assert_int_equal(st_find(r, "scalar")->numel, 1);
    assert_int_equal(st_find(r, "empty")->bytes, 0);
    assert_null(st_find(r, "absent"));
    st_close(r);
}

static void test_reads_what_python_wrote(void **state) {
    (void)state;
    st_reader *r;
    err e;
    assert_ok(st_open(&r, TEST_DIR "/golden/io/python.safetensors", &e), e);
    assert_int_equal(st_count(r), 11);
    float f[6];
    assert_ok(st_view_read(st_find(r, "f32"), 0, 6, f, DT_F32, &e), e);
    for (int i = 0; i < 6; i++) assert_true(f[i] == (float)i / 4);
    assert_ok(st_view_read(st_find(r, "f32"), 4, 2, f, DT_F32, &e), e);
    assert_true(f[0] == 1.0f && f[1] == 1.25f);
    assert_ok(st_view_read(st_find(r, "bf16"), 0, 3, f, DT_F32, &e), e);
    assert_true(f[0] == 1.0f && f[1] == -2.5f && f[2] == 3.140625f);
    assert_ok(st_view_read(st_find(r, "f16"), 0, 2, f, DT_F32, &e), e);
    assert_true(f[0] == 0.5f && f[1] == 65504.0f);
    int64_t i64[2];
    assert_ok(st_view_read(st_find(r, "i64"), 0, 2, i64, DT_I64, &e), e);
    assert_true(i64[0] == INT64_MIN && i64[1] == 5);
    assert_int_equal(st_find(r, "bool")->dt, DT_COUNT);
    assert_string_equal(st_find(r, "bool")->format, "BOOL");
    assert_int_equal(st_find(r, "scalar")->rank, 0);
    assert_int_equal(st_find(r, "empty")->dims[1], 4);
    assert_non_null(st_find(r, "naïve.名"));
    assert_int_equal(st_view_read(st_find(r, "i64"), 0, 2, f, DT_F32, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "'i64' is stored as I64"));
    assert_int_equal(st_view_read(st_find(r, "bool"), 0, 3, f, DT_F32, &e), ST_FORMAT);
    const st_view *v;
    assert_int_equal(st_require(r, "bf17", &v, &e), ST_FORMAT);
    assert_string_equal(e.hint, "the nearest name there is 'bf16'");
    st_close(r);
}

#define T(name, dt, shape, offsets)                                                                \
    "\"" name "\":{\"dtype\":\"" dt "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t n_data;
    const char *expect;
} hostile[] = {
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {"{", 0, "does not begin with '{'"},
    {"{ ", 0, "no valid JSON"},
    {"{}x", 0, "no valid JSON"},
    {"{" T("a", "U8", "[1]", "[0,1]"), 1, "no valid JSON"},
    {"{\"a\\u0000b\":1}", 0, "no valid JSON"},
    {"{\"\xff\":1}", 0, "no valid JSON"},
    {"{}", 4, "4 bytes after the last tensor"},
    {"{\"a\":7}", 0, "entry of tensor 'a' is no object"},
    {"{\"a\":{}}", 0, "tensor 'a' has no 'dtype'"},
    {"{" T("", "U8", "[1]", "[0,1]") "}", 1, "empty name"},
    {"{" T("a", "Q9", "[1]", "[0,1]") "}", 1, "unknown dtype 'Q9'"},
    {"{" T("a", "U8", "1", "[0,1]") "}", 1, "no list 'shape'"},
    {"{" T("a", "U8", "[-1]", "[0,1]") "}", 1, "dimension 0 is not a whole number"},
    {"{" T("a", "U8", "[1.0]", "[0,1]") "}", 1, "dimension 0 is not a whole number"},
    {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "9 dimensions"},
    {"{" T("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0, "shape overflows"},
    {"{" T("a", "F32", "[4611686018427387905]", "[0,4]") "}", 4, "size overflows"},
    {"{" T("a", "U8", "[99999999999999999999]", "[0,1]") "}", 1, "no valid JSON"},
    {"{" T("a", "F4", "[3]", "[0,1]") "}", 1, "no whole number of bytes"},
    {"{" T("a", "U8", "[1]", "[0]") "}", 1, "not two whole numbers"},
    {"{" T("a", "U8", "[1]", "[0,1,2]") "}", 1, "not two whole numbers"},
    {"{" T("a", "U8", "[1]", "[-1,0]") "}", 1, "not two whole numbers"},
    {"{" T("a", "U8", "[1]", "[1,0]") "}", 1, "ends before it begins"},
    {"{" T("a", "U8", "[9]", "[0,9]") "}", 1, "ends at byte 9 of the data, but there are only 1"},
    {"{" T("a", "U8", "[2]", "[0,1]") "}", 1, "its shape needs 2 bytes, its offsets span 1"},
    {"{" T("a", "U8", "[1]", "[1,2]") "}", 2, "there is a hole"},
    {"{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[2,3]") "}", 3, "there is a hole"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3, "overlap"},
    {"{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[0,1]") "}", 1, "overlap"},
    {"{" T("a", "U8", "[1]", "[0,1]") "}", 2, "1 bytes after the last tensor"},
    {"{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", 2, "twice"},
    {"{\"__metadata__\":[]}", 0, "'__metadata__' is no object"},
    {"{\"__metadata__\":{\"n\":1}}", 0, "'__metadata__': the value of 'n' is no string"},
    {"{\"a\\u001b[2J\":1}", 0, "tensor 'a?[2J'"},
};

static void test_hostile_headers_are_refused(void **state) {
    (void)state;
    strbuf b = {0};
    for (int i = 0; i < ARRAY_LEN(hostile); i++) {
        make_file(&b, hostile[i].header, hostile[i].n_data);
        st_reader *r;
        err e = {0};
        assert_int_equal(st_open_bytes(&r, b.data, b.len, "x.safetensors", &e), ST_FORMAT);
        assert_null(r);
        if (!strstr(e.message, hostile[i].expect))
            fail_msg("header %s: \"%s\" does not say \"%s\"", hostile[i].header, e.message,
                     hostile[i].expect);
        assert_int_equal(strncmp(e.message, "x.safetensors: ", 15), 0);
        assert_string_equal(e.where, "x.safetensors");
    }
    strbuf_free(&b);
}

static void test_header_length_is_checked(void **state) {
    (void)state;
    static const struct {
        uint64_t claim;
        size_t len;
        const char *expect;
    } cases[] = {
        {0, 0, "0 bytes are too few"},
        {2, 7, "7 bytes are too few"},
        {3, 10, "claims 3 bytes, but only 2 follow"},
        {100000001, 10, "at most 100000000"},
        {UINT64_MAX, 10, "at most 100000000"},
        {UINT64_MAX - 7, 10, "at most 100000000"},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t *file = xcalloc(1, 16); /* exact sizes on the heap: ASan sees a read beyond */
        for (int k = 0; k < 8; k++) file[k] = (uint8_t)(cases[i].claim >> (8 * k));
        memcpy(file + 8, "{}", 2);
        file = xrealloc(file, cases[i].len + 1);
        st_reader *r;
        err e = {0};
        assert_int_equal(st_open_bytes(&r, file, cases[i].len, "x", &e), ST_FORMAT);
        assert_non_null(strstr(e.message, cases[i].expect));
        free(file);
    }
}

/* "{"a":[unit unit unit ... ]}" with n units. */
static status open_repeated(strbuf *text, const char *unit, int n, err *e) {
    strbuf file = {0};
    strbuf_clear(text);
    strbuf_puts(text, "{\"a\":[");
    for (int i = 0; i < n; i++) strbuf_puts(text, unit);
    strbuf_puts(text, "0]}");
    make_file(&file, text->data, 0);
    st_reader *r;
    status st = st_open_bytes(&r, file.data, file.len, "x", e);
    strbuf_free(&file);
    return st;
}

static void test_headers_that_swell_are_refused(void **state) {
    (void)state;
    strbuf text = {0};
    err e;
    assert_int_equal(open_repeated(&text, "0,", 100000, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "more than tensors need (1 objects, 100000 commas)"));
    assert_int_equal(open_repeated(&text, "{},", 1000000, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "(1000001 objects, 1000000 commas)"));
    assert_int_equal(open_repeated(&text, "\",\\\",{\",", 30000, &e), ST_FORMAT);
    assert_non_null(
        strstr(e.message, "entry of tensor 'a' is no object")); /* strings count as one */
    strbuf_free(&text);
}

/* What an accepted file promises: every view inside the data, of the size of its shape. */
static void touch_all(st_reader *r, const uint8_t *file, size_t len) {
    unsigned sum = 0;
    for (int64_t i = 0; i < st_count(r); i++) {
        const st_view *v = st_get(r, i);
        assert_true(v->data >= file && v->data + v->bytes <= file + len);
        for (size_t k = 0; k < v->bytes; k++) sum += v->data[k];
        assert_ptr_equal(st_find(r, v->name), v);
    }
    (void)sum;
}

static void test_bit_flips_never_crash(void **state) {
    (void)state;
    file_map m;
    err e;
    assert_ok(file_map_open(&m, TEST_DIR "/golden/io/python.safetensors", &e), e);
    uint8_t *file = xmalloc(m.len);
    size_t header = 8 + (size_t)m.data[0] + ((size_t)m.data[1] << 8);
    int accepted = 0, refused = 0;
    for (size_t bit = 0; bit < header * 8; bit++) {
        memcpy(file, m.data, m.len);
        file[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        st_reader *r;
        if (st_open_bytes(&r, file, m.len, "flipped", &e) == ST_OK) {
            touch_all(r, file, m.len);
            accepted++;
        } else {
            assert_int_equal(e.code, ST_FORMAT);
            refused++;
        }
        st_close(r);
    }
    for (size_t cut = 0; cut < m.len; cut++) {
        st_reader *r;
        assert_int_equal(st_open_bytes(&r, m.data, cut, "cut", &e), ST_FORMAT);
    }
    assert_true(refused > accepted); /* a flip in a name or in the metadata stays a good file */
    free(file);
    file_map_close(&m);
}

static void write_one(test_dir *d, const char *file, const char *name, float value) {
    st_tensor t = {.name = name, .dt = DT_F32, .rank = 1, .dims = {1}, .data = &value};
    err e;
    assert_ok(st_write(path_join(d->mem, d->path, file), &t, 1, &e), e);
}

static status open_index(test_dir *d, const char *index, st_reader **r, err *e) {
    test_write(d, "model.safetensors.index.json", index);
    return st_open(r, d->path, e);
}

static void test_sharded_folder(void **state) {
    test_dir *d = *state;
    write_one(d, "model-1.safetensors", "a", 1);
    write_one(d, "model-2.safetensors", "b", 2);
    st_reader *r;
    err e;
    assert_ok(
        open_index(d,
                   "{\"weight_map\":{\"b\":\"model-2.safetensors\",\"a\":\"model-1.safetensors\"}}",
                   &r, &e),
        e);
    assert_int_equal(st_count(r), 2);
    float f = 0;
    assert_ok(st_view_read(st_find(r, "b"), 0, 1, &f, DT_F32, &e), e);
    assert_true(f == 2);
    assert_non_null(strstr(st_find(r, "a")->path, "model-1.safetensors"));
    st_close(r);
}

static void test_hostile_index_is_refused(void **state) {
    test_dir *d = *state;
    write_one(d, "m1.safetensors", "a", 1);
    static const char *const cases[][2] = {
        {"{", "no valid JSON"},
        {"{}", "no object 'weight_map'"},
        {"{\"weight_map\":{}}", "'weight_map' is empty"},
        {"{\"weight_map\":{\"a\":1}}", "the file of 'a' is no string"},
        {"{\"weight_map\":{\"a\":\"../m1.safetensors\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", "no plain file name"},
        {"{\"weight_map\":{\"z\":\"m1.safetensors\"}}",
         "tensor 'z' is missing from m1.safetensors"},
        {"{\"weight_map\":{\"a\":\"m9.safetensors\"}}", "m9.safetensors"},
        {"{\"weight_map\":{\"a\":\"m1.safetensors\",\"a\":\"m1.safetensors\"}}", "no valid JSON"},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        st_reader *r;
        err e = {0};
        assert_int_not_equal(open_index(d, cases[i][0], &r, &e), ST_OK);
        if (!strstr(e.message, cases[i][1]))
            fail_msg("index %s: \"%s\" does not say \"%s\"", cases[i][0], e.message, cases[i][1]);
    }
}

static void test_pointer_of_git_lfs(void **state) {
    (void)state;
    const char *text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123\n";
    st_reader *r;
    err e = {0};
    assert_int_equal(st_open_bytes(&r, text, strlen(text), "x", &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "git lfs pull"));
}

static void test_tensor_in_two_shards_is_refused(void **state) {
    test_dir *d = *state;
    write_one(d, "m1.safetensors", "a", 1);
    st_tensor two[2] = {{.name = "a", .dt = DT_F32, .rank = 1, .dims = {1}, .data = &(float){2}},
                        {.name = "b", .dt = DT_F32, .rank = 1, .dims = {1}, .data = &(float){3}}};
    err e = {0};
    assert_ok(st_write(path_join(d->mem, d->path, "m2.safetensors"), two, 2, &e), e);
    st_reader *r;
    const char *index = "{\"weight_map\":{\"a\":\"m1.safetensors\",\"b\":\"m2.safetensors\"}}";
    assert_int_equal(open_index(d, index, &r, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "tensor 'a' is here too, but the index has it in m1"));
}

static void test_folder_without_weights(void **state) {
    test_dir *d = *state;
    st_reader *r;
    err e;
    assert_int_equal(st_open(&r, d->path, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "holds neither model.safetensors nor"));
    assert_int_not_equal(st_open(&r, path_join(d->mem, d->path, "none.safetensors"), &e), ST_OK);
    assert_non_null(strstr(e.message, "none.safetensors"));
}

static status fill_numbers(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    (void)e;
    int64_t row = *(const int64_t *)ctx;
    assert_true(first % row == 0 && n % row == 0);
    for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = (float)((first + i) % 251);
    return ST_OK;
}

/* A tensor that is larger than one piece of the writer is made by whole rows. */
static void test_filled_in_pieces(void **state) {
    test_dir *d = *state;
    int64_t rows = 700, cols = 900;
    st_tensor t = {"t", DT_F32, 2, {rows, cols}, NULL, fill_numbers, &cols};
    char *path = path_join(d->mem, d->path, "t.safetensors");
    err e;
    assert_ok(st_write(path, &t, 1, &e), e);
    st_reader *r;
    assert_ok(st_open(&r, path, &e), e);
    const float *back = (const float *)(const void *)st_get(r, 0)->data;
    for (int64_t i = 0; i < rows * cols; i++) assert_true(back[i] == (float)(i % 251));
    st_close(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_round_trip_of_every_dtype),
        IO_TEST(test_reads_what_python_wrote),
        IO_TEST(test_hostile_headers_are_refused),
        IO_TEST(test_header_length_is_checked),
        IO_TEST(test_headers_that_swell_are_refused),
        IO_TEST(test_bit_flips_never_crash),
        IO_TEST(test_sharded_folder),
        IO_TEST(test_hostile_index_is_refused),
        IO_TEST(test_tensor_in_two_shards_is_refused),
        cmocka_unit_test(test_pointer_of_git_lfs),
        IO_TEST(test_folder_without_weights),
        IO_TEST(test_filled_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
