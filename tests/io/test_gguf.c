/* GGUF files: one that gguf-py wrote, with its own numbers and blocks inside
 * (tests/oracle/make_gguf_golden.py); round trips; malformed files; faults while writing. */
#include "test.h"

#include "base/file_fault.h"
#include "base/strbuf.h"
#include "io/gguf/gguf.h"
#include "io/io_test.h"

#define GOLDEN TEST_DIR "/golden/io/formats.gguf"

static gguf_reader *open_ok(const char *path) {
    gguf_reader *r;
    err e;
    assert_ok(gguf_open(&r, path, &e), e);
    return r;
}

static float *read_tensor(const gguf_view *v) {
    err e;
    float *x = xmalloc((size_t)(v->rows * v->cols) * sizeof(*x));
    assert_ok(gguf_read_f32(v, 0, v->rows, x, &e), e);
    return x;
}

/* The tensor "FORMAT.part". */
static const gguf_view *find_part(const gguf_reader *r, const quant_format *f, const char *part) {
    char name[64];
    snprintf(name, sizeof(name), "%s.%s", f->name, part);
    return gguf_find(r, name);
}

/* ---- the golden file ---- */

static void test_numbers_of_every_format(void **state) {
    (void)state;
    gguf_reader *r = open_ok(GOLDEN);
    int formats = 0;
    for (uint32_t type = 0; type < 64; type++) {
        const quant_format *f = quant_by_type(type);
        if (!f || !f->read) continue;
        const gguf_view *v = find_part(r, f, "blocks"), *want = find_part(r, f, "numbers");
        assert_ptr_equal(v->format, f);
        assert_int_equal(v->rows, 2);
        assert_int_equal(v->cols, want->cols);
        float *x = read_tensor(v), *y = read_tensor(want), *second = xmalloc(4 * (size_t)v->cols);
        for (int64_t i = 0; i < 2 * v->cols; i++) {
            if (isnan(x[i]) && isnan(y[i])) continue;
            if (memcmp(&x[i], &y[i], 4) != 0)
                fail_msg("%s, element %d: %a, not %a", f->name, (int)i, (double)x[i], (double)y[i]);
        }
        err e;
        assert_ok(gguf_read_f32(v, 1, 1, second, &e), e);
        assert_memory_equal(second, x + v->cols, 4 * (size_t)v->cols);
        free(x);
        free(y);
        free(second);
        formats++;
    }
    assert_int_equal(formats, 11);
    gguf_close(r);
}

static void test_blocks_of_every_written_format(void **state) {
    (void)state;
    gguf_reader *r = open_ok(GOLDEN);
    const gguf_view *source = gguf_find(r, "source");
    float *x = read_tensor(source);
    int formats = 0;
    for (uint32_t type = 1; type < 64; type++) { /* all but F32 */
        const quant_format *f = quant_by_type(type);
        if (!f || !f->write) continue;
        const gguf_view *want = find_part(r, f, "made");
        uint8_t *made = xmalloc(want->bytes);
        assert_true(quant_from_f32(f, made, x, source->rows * source->cols));
        for (size_t i = 0; i < want->bytes; i++)
            if (made[i] != want->data[i]) fail_msg("%s: byte %zu differs", f->name, i);
        free(made);
        formats++;
    }
    assert_int_equal(formats, 5);
    free(x);
    gguf_close(r);
}

static gguf_pairs copy_pairs(const gguf_reader *r) {
    const gguf_meta *m = gguf_get_meta(r);
    gguf_pairs p = {0};
    for (int64_t i = 0; i < m->n; i++) gguf_put_value(&p, m->pairs[i].key, &m->pairs[i].value);
    return p;
}

static gguf_tensor same_tensor(const gguf_view *v) {
    gguf_tensor t = {.name = v->name, .type = v->format->type, .rank = v->rank, .data = v->data};
    memcpy(t.dims, v->dims, sizeof(t.dims));
    return t;
}

/* Read and written again, the file of gguf-py is the same byte for byte. */
static void test_copy_is_the_same(void **state) {
    test_dir *d = *state;
    gguf_reader *r = open_ok(GOLDEN);
    char *path = path_join(d->mem, d->path, "copy.gguf"), *was, *is;
    gguf_pairs p = copy_pairs(r);
    gguf_tensor t[64];
    int64_t n = gguf_count(r);
    assert_true(n == 28);
    for (int64_t i = 0; i < n; i++) t[i] = same_tensor(gguf_get(r, i));
    size_t len, copied;
    err e;
    assert_ok(gguf_write(path, &p, t, n, &e), e);
    assert_ok(file_read_all(GOLDEN, &was, &len, &e), e);
    assert_ok(file_read_all(path, &is, &copied, &e), e);
    assert_int_equal(copied, len);
    assert_memory_equal(is, was, len);
    free(was);
    free(is);
    gguf_pairs_free(&p);
    gguf_close(r);
}

static void test_lookup(void **state) {
    (void)state;
    gguf_reader *r = open_ok(GOLDEN);
    for (int64_t i = 0; i < gguf_count(r); i++)
        assert_ptr_equal(gguf_find(r, gguf_get(r, i)->name), gguf_get(r, i));
    const gguf_view *v;
    err e;
    assert_int_equal(gguf_require(r, "sourse", &v, &e), ST_FORMAT);
    assert_null(v);
    assert_non_null(strstr(e.message, "formats.gguf has no tensor 'sourse'"));
    assert_string_equal(e.hint, "the nearest name there is 'source'");
    assert_ok(gguf_require(r, "Q6_K.blocks", &v, &e), e);
    assert_int_equal(v->format->type, QUANT_Q6_K);
    gguf_close(r);
}

static void test_every_prefix_is_refused(void **state) {
    (void)state;
    file_map m;
    err e;
    assert_ok(file_map_open(&m, GOLDEN, &e), e);
    gguf_reader *r;
    assert_ok(gguf_open_bytes(&r, m.data, m.len, "whole", &e), e);
    const gguf_view *last = gguf_get(r, gguf_count(r) - 1);
    size_t begin = (size_t)(gguf_get(r, 0)->data - m.data);
    size_t needed = (size_t)(last->data + last->bytes - m.data);
    gguf_close(r);
    for (size_t cut = 0; cut < needed; cut += cut < begin ? 1 : 97) {
        char *exact = xmalloc(cut ? cut : 1);
        memcpy(exact, m.data, cut);
        assert_int_equal(gguf_open_bytes(&r, exact, cut, "cut", &e), ST_FORMAT);
        assert_null(r);
        free(exact);
    }
    assert_ok(gguf_open_bytes(&r, m.data, needed, "no padding", &e), e);
    gguf_close(r);
    file_map_close(&m);
}

/* ---- writing ---- */

typedef struct filler {
    int64_t next, cols;
    int calls;
} filler;

/* Rows of increasing numbers; must be asked for in order. */
static status fill_rows(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    filler *f = ctx;
    (void)e;
    assert_int_equal(first, f->next);
    for (int64_t i = 0; i < n * f->cols; i++) ((float *)dst)[i] = (float)(first * f->cols + i);
    f->next += n;
    f->calls++;
    return ST_OK;
}

static void test_filled_in_pieces(void **state) {
    test_dir *d = *state;
    char *path = path_join(d->mem, d->path, "x.gguf");
    filler wide = {.cols = 300000}, narrow = {.cols = 100};
    float one = 1;
    gguf_tensor t[] = {
        {.name = "one", .rank = 1, .dims = {1}, .data = &one},
        {.name = "wide", .rank = 2, .dims = {300000, 2}, .fill = fill_rows, .ctx = &wide},
        {.name = "narrow", .rank = 3, .dims = {100, 1000, 7}, .fill = fill_rows, .ctx = &narrow},
    };
    gguf_pairs p = {0};
    gguf_put_u32(&p, "general.alignment", 256);
    err e;
    assert_ok(gguf_write(path, &p, t, 3, &e), e);
    assert_int_equal(wide.calls, 2);
    assert_true(narrow.calls == 3 && narrow.next == 7000);
    gguf_reader *r = open_ok(path);
    const gguf_view *v = gguf_find(r, "narrow");
    assert_int_equal((v->data - gguf_get(r, 0)->data) % 256, 0);
    assert_int_equal(v->rows, 7000);
    assert_int_equal(v->dims[3], 1);
    float *x = read_tensor(v);
    for (int64_t i = 0; i < 700000; i++) assert_true(x[i] == (float)i);
    free(x);
    gguf_close(r);
    gguf_pairs_free(&p);
}

/* From each kind of source, and back, within a step of the format. */
/* A fill that fails after its first row. */
static status fill_one(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    (void)ctx, (void)first, (void)n;
    memset(dst, 0, 34);
    return err_set(e, ST_NONFINITE, "row 2 is not finite");
}

static void test_not_finite(void **state) {
    test_dir *d = *state;
    char *path = path_join(d->mem, d->path, "x.gguf");
    gguf_tensor t = {.name = "blk.0.attn_q.weight",
                     .type = QUANT_Q8_0,
                     .rank = 2,
                     .dims = {32, 4},
                     .fill = fill_one};
    gguf_pairs p = {0};
    err e;
    assert_int_equal(gguf_write(path, &p, &t, 1, &e), ST_NONFINITE);
    assert_string_equal(e.message, "row 2 is not finite");
    assert_false(file_exists(path));
}

static void test_faults_leave_nothing(void **state) {
    test_dir *d = *state;
    char *path = path_join(d->mem, d->path, "x.gguf");
    static float x[1 << 20];
    gguf_tensor t = {.name = "x", .rank = 1, .dims = {1 << 20}, .data = x};
    gguf_pairs p = {0};
    static const char *const faults[] = {"create:1", "write:1", "write:2", "fsync:1"};
    for (int i = 0; i < ARRAY_LEN(faults); i++) {
        err e = {0};
        assert_true(file_fault_arm(faults[i]));
        assert_int_equal(gguf_write(path, &p, &t, 1, &e), ST_FAILED);
        assert_true(file_fault_struck());
        file_fault_arm(NULL);
        assert_non_null(strstr(e.message, "x.gguf"));
        assert_false(file_exists(path));
    }
}

/* ---- files that are wrong ---- */

/* A record of a tensor. */
typedef struct record {
    const char *name;
    uint32_t rank;
    uint64_t dims[6];
    uint32_t type;
    uint64_t offset;
} record;

/* A file of records with 1024 bytes of data behind them. */
static strbuf file_of(const record *t, uint64_t n) {
    strbuf b = {0};
    gguf_append_header(&b, n, &(gguf_pairs){0});
    for (uint64_t i = 0; i < n; i++) {
        gguf_append_string(&b, t[i].name, strlen(t[i].name));
        strbuf_append(&b, &t[i].rank, 4);
        strbuf_append(&b, t[i].dims, 8 * (t[i].rank < 6 ? t[i].rank : 6));
        strbuf_append(&b, &t[i].type, 4);
        strbuf_append(&b, &t[i].offset, 8);
    }
    size_t data = (b.len + 31) / 32 * 32 + 1024;
    memset(strbuf_extend(&b, data - b.len), 1, data - b.len);
    return b;
}

#define NAME63 "123456789012345678901234567890123456789012345678901234567890123"
#define BIG (UINT64_C(1) << 62)

static const struct {
    record t[2];
    const char *expect; /* NULL: fine */
} CASES[] = {
    {{{"a", 1, {128}, 0, 0}, {"b", 1, {128}, 0, 512}}, NULL},
    {{{"a", 1, {128}, 0, 512}, {"b", 1, {128}, 0, 0}}, NULL}, /* in any order */
    {{{"a", 1, {8}, 0, 0}, {"b", 1, {8}, 0, 128}}, NULL},     /* with a hole */
    {{{"a", 0, {0}, 0, 0}, {NAME63, 4, {2, 2, 2, 2}, 0, 64}}, NULL},
    {{{"a", 2, {0, 9}, 0, 64}, {"b", 1, {128}, 0, 0}}, NULL}, /* nothing overlaps nothing */
    {{{"a", 2, {BIG, 0}, 0, 64}, {"b", 1, {128}, 0, 0}}, "size of tensor 'a' overflows"},
    {{{"a", 1, {128}, 0, 0}, {"b", 1, {128}, 0, 480}}, "tensors 'a' and 'b' overlap"},
    {{{"a", 1, {128}, 0, 480}, {"b", 1, {128}, 0, 0}}, "tensors 'b' and 'a' overlap"},
    {{{"a", 1, {128}, 0, 0}, {"b", 1, {8}, 0, 0}}, "overlap"},
    {{{"a", 1, {128}, 0, 0}, {"a", 1, {128}, 0, 512}}, "tensor 'a' is there twice"},
    {{{"a", 1, {128}, 0, 0}, {"b", 1, {129}, 0, 512}}, "'b' needs bytes 512 + 516"},
    {{{"a", 1, {128}, 0, 0}, {"b", 1, {1}, 0, 1024}}, "'b' needs bytes 1024 + 4 of the data"},
    {{{"a", 1, {128}, 0, 0}, {"b", 1, {8}, 0, UINT64_MAX - 31}}, "'b' needs bytes 1844674"},
    {{{"a", 1, {128}, 0, 0}, {"b", 1, {8}, 0, 516}}, "'b' begins at byte 516"},
    {{{"a", 5, {1, 1, 1, 1, 1}, 0, 0}, {"b", 1, {8}, 0, 64}}, "'a' has 5 dimensions"},
    {{{"a", 0xffffffff, {1}, 0, 0}, {"b", 1, {8}, 0, 64}}, "'a' has 4294967295 dimensions"},
    {{{"a", 1, {UINT64_MAX}, 0, 0}, {"b", 1, {8}, 0, 64}}, "shape of tensor 'a' overflows"},
    {{{"a", 2, {BIG, 2}, 0, 0}, {"b", 1, {8}, 0, 64}}, "shape of tensor 'a' overflows"},
    {{{"a", 1, {BIG}, 0, 0}, {"b", 1, {8}, 0, 64}}, "size of tensor 'a' overflows"},
    {{{"a", 1, {BIG}, 24, 0}, {"b", 1, {8}, 0, 64}}, "'a' needs bytes 0 + 4611686018427387904"},
    {{{"a", 1, {8}, 4, 0}, {"b", 1, {8}, 0, 64}}, "'a' is in format 4, which is not known"},
    {{{"a", 1, {8}, 12345, 0}, {"b", 1, {8}, 0, 64}}, "'a' is in format 12345"},
    {{{"a", 1, {33}, 8, 0}, {"b", 1, {8}, 0, 64}}, "'a' has rows of 33 elements, not whole blocks"},
    {{{"a", 2, {128, 2}, 14, 0}, {"b", 1, {8}, 0, 64}}, "not whole blocks of 256 as Q6_K needs"},
    {{{"", 1, {8}, 0, 0}, {"b", 1, {8}, 0, 64}}, "the name of a tensor at byte 24 has 0 bytes"},
    {{{NAME63 "4", 1, {8}, 0, 0}, {"b", 1, {8}, 0, 64}}, "has 64 bytes (1 to 63"},
    {{{"a\n", 1, {8}, 0, 0}, {"b", 1, {8}, 0, 64}}, "control character"},
};

static void test_malformed(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(CASES); i++) {
        strbuf b = file_of(CASES[i].t, 2);
        gguf_reader *r;
        err e = {0};
        status st = gguf_open_bytes(&r, b.data, b.len, "x.gguf", &e);
        assert_int_equal(st, CASES[i].expect ? ST_FORMAT : ST_OK);
        if (CASES[i].expect && !strstr(e.message, CASES[i].expect))
            fail_msg("row %d: \"%s\" does not say \"%s\"", i, e.message, CASES[i].expect);
        gguf_close(r);
        strbuf_free(&b);
    }
}

static void test_claims_too_many_tensors(void **state) {
    (void)state;
    strbuf b = {0};
    gguf_reader *r;
    err e = {0};
    gguf_append_header(&b, UINT64_MAX, &(gguf_pairs){0});
    assert_int_equal(gguf_open_bytes(&r, b.data, b.len, "x.gguf", &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "claims 18446744073709551615 tensors"));
    strbuf_free(&b);
}

static void test_parts_and_carried_formats(void **state) {
    test_dir *d = *state;
    char *path = path_join(d->mem, d->path, "x.gguf");
    uint8_t block[84] = {0};
    gguf_tensor t = {.name = "x", .type = 10 /* Q2_K */, .rank = 1, .dims = {256}, .data = block};
    gguf_pairs p = {0};
    gguf_reader *r;
    float x[256];
    err e;
    assert_ok(gguf_write(path, &p, &t, 1, &e), e);
    r = open_ok(path);
    assert_int_equal(gguf_get(r, 0)->bytes, 84);
    assert_int_equal(gguf_read_f32(gguf_get(r, 0), 0, 1, x, &e), ST_FORMAT);
    assert_string_equal(e.message, "tensor 'x' is stored as Q2_K, which is not read");
    gguf_close(r);
    gguf_put_u32(&p, "split.count", 3);
    assert_ok(gguf_write(path, &p, &t, 1, &e), e);
    assert_int_equal(gguf_open(&r, path, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "one of 3 parts"));
    assert_non_null(strstr(e.hint, "--merge"));
    gguf_pairs_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_numbers_of_every_format),
        IO_TEST(test_blocks_of_every_written_format),
        IO_TEST(test_copy_is_the_same),
        IO_TEST(test_lookup),
        IO_TEST(test_every_prefix_is_refused),
        IO_TEST(test_filled_in_pieces),
        IO_TEST(test_not_finite),
        IO_TEST(test_faults_leave_nothing),
        IO_TEST(test_malformed),
        IO_TEST(test_claims_too_many_tensors),
        IO_TEST(test_parts_and_carried_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
