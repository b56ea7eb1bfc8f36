/* NF4 beside bitsandbytes (tests/oracle/make_nf4_golden.py): the same bits are written, and what they say is read equal to the
 * last bit; zeros stay zeros, and what is no number is refused. So is a folder that lies about its blocks. */
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/nf4.h"
#include "io/hf/bnb.h"
#include "io/io_test.h"
#include "io/model_source.h"

typedef struct lab {
    st_reader *golden;
    int64_t rows, cols, blocks;
    float *weight;
    nf4_matrix *m;
    float *largest;
} lab;

static const void *golden(const lab *l, const char *name) {
    const st_view *v = st_find(l->golden, name);
    assert_non_null(v);
    return v->data;
}

static int open_lab(void **state) {
    lab *l = calloc(1, sizeof *l);
    err e = {0};
    assert_int_equal(st_open(&l->golden, TEST_DIR "/golden/nf4/matrix.safetensors", &e), ST_OK);
    const st_view *v = st_find(l->golden, "weight");
    l->rows = v->dims[0], l->cols = v->dims[1], l->blocks = l->rows * l->cols / NF4_BLOCK;
    l->weight = malloc(sizeof *l->weight * (size_t)v->numel);
    dtype_convert(l->weight, DT_F32, v->data, v->dt, v->numel);
    l->m = calloc(1, (size_t)nf4_bytes(l->rows, l->cols));
    l->largest = malloc(sizeof *l->largest * (size_t)l->blocks);
    nf4_begin(l->m, l->rows, l->cols);
    *state = l;
    return 0;
}

static int close_lab(void **state) {
    lab *l = *state;
    st_close(l->golden);
    free(l->weight);
    free(l->m);
    free(l->largest);
    free(l);
    return 0;
}

static uint8_t *part(const lab *l, int64_t at) {
    return (uint8_t *)l->m + at;
}

/* Number q of element i, as bitsandbytes stores it; where ours is. */
static int their_bits(const uint8_t *bits, int64_t i) {
    return i % 2 ? bits[i / 2] & 15 : bits[i / 2] >> 4;
}
static uint8_t *our_byte(const lab *l, int64_t i) {
    return part(l, l->m->bits_at) + i / 32 * 16 + i % 16;
}

static void test_tables(void **state) {
    const lab *l = *state;
    assert_memory_equal(NF4_LEVEL, golden(l, "level"), sizeof NF4_LEVEL);
    assert_memory_equal(NF4_MAP, golden(l, "map"), sizeof NF4_MAP);
}

static void quantise(const lab *l) {
    for (int64_t r = l->rows - 1; r >= 0; r--) /* in any order */
        assert_true(nf4_put_rows(l->m, r, 1, l->weight + r * l->cols, l->largest));
    nf4_finish(l->m, l->largest);
}

/* bitsandbytes makes of a block of zeros level -1 of whatever its scale becomes; ours stays 0. The mean is summed in
 * another order. On the CPU its search in the map misses the nearest number by up to 3e-5, in one of a thousand. */
static void test_quantises(void **state) {
    const lab *l = *state;
    const uint8_t *bits = golden(l, "bits"), *scale = golden(l, "scale");
    const float *mean = golden(l, "mean"), *nested = golden(l, "nested");
    quantise(l);
    assert_true(fabsf(l->m->mean - *mean) <= 1e-6f * *mean);
    for (int64_t i = 0; i < l->rows * l->cols; i++) {
        int q = i % 32 < 16 ? *our_byte(l, i) & 15 : *our_byte(l, i) >> 4;
        if (q != their_bits(bits, i) && l->largest[i / NF4_BLOCK] > 0)
            fail_msg("element %ld is %d, not %d", (long)i, q, their_bits(bits, i));
    }
    for (int64_t i = 0; i < l->blocks; i++) {
        float x = (l->largest[i] - *mean) / nested[i / NF4_NESTED];
        uint8_t own = part(l, l->m->scale_at)[i];
        float ours = fabsf(x - NF4_MAP[own]), theirs = fabsf(x - NF4_MAP[scale[i]]);
        if (own != scale[i]) assert_true(ours < theirs && theirs - ours < 5e-5f);
    }
    for (int64_t i = 0; i < (l->blocks + NF4_NESTED - 1) / NF4_NESTED; i++) {
        float own;
        memcpy(&own, part(l, l->m->nested_at) + 4 * i, 4);
        assert_true(fabsf(own - nested[i]) <= 1e-5f * nested[i]);
    }
}

/* Rows of a matrix that bitsandbytes has made. */
static void test_reads(void **state) {
    const lab *l = *state;
    const uint8_t *bits = golden(l, "bits");
    const float *back = golden(l, "back"), *mean = golden(l, "mean");
    float row[1024];
    l->m->mean = *mean;
    memcpy(part(l, l->m->scale_at), golden(l, "scale"), (size_t)l->blocks);
    memcpy(part(l, l->m->nested_at), golden(l, "nested"),
           4 * (size_t)((l->blocks + NF4_NESTED - 1) / NF4_NESTED));
    memset(part(l, l->m->bits_at), 0, (size_t)(l->rows * l->cols / 2));
    for (int64_t i = 0; i < l->rows * l->cols; i++)
        *our_byte(l, i) |= (uint8_t)(their_bits(bits, i) << (i % 32 < 16 ? 0 : 4));
    for (int64_t i = 0; i < 16; i++) {
        int64_t r = i < 8 ? i : l->rows - 16 + i;
        nf4_row_read((int32_t *)nf4_rows(l->m) + r, 0, l->cols, row);
        assert_memory_equal(row, back + i * l->cols, sizeof *row * (size_t)l->cols);
    }
}

/* A folder with the names of transformers: matrices that are quantised twice, and one that is quantised once. */
static void test_folder(void **state) {
    (void)state;
    err e = {0};
    st_reader *model, *rows;
    int read = 0, taken = 0;
    assert_int_equal(st_open(&model, TEST_DIR "/golden/nf4/model", &e), ST_OK);
    assert_int_equal(st_open(&rows, TEST_DIR "/golden/nf4/rows.safetensors", &e), ST_OK);
    for (int64_t i = 0; i < st_count(model); i++) {
        const st_view *want = st_find(rows, st_get(model, i)->name);
        bnb_matrix b;
        float two[2 * 64];
        assert_int_equal(bnb_find(model, st_get(model, i), &b, &e), ST_OK);
        assert_int_equal(b.bits != NULL, want != NULL);
        if (!want) continue;
        bnb_read(&b, 0, ARRAY_LEN(two), two);
        assert_memory_equal(two, want->data, sizeof two);
        nf4_matrix *m = calloc(1, (size_t)nf4_bytes(b.rows, b.cols));
        nf4_begin(m, b.rows, b.cols);
        if (bnb_take(&b, m)) {
            nf4_row_read(nf4_rows(m), 0, 64, two);
            nf4_row_read((int32_t *)nf4_rows(m) + 1, 0, 64, two + 64);
            assert_memory_equal(two, want->data, sizeof two);
            taken++;
        }
        free(m);
        read++;
    }
    assert_int_equal(read, 7);
    assert_int_equal(taken, 6);
    st_close(model);
    st_close(rows);
}

/* ---- folders that somebody has changed ---- */

static const char MODEL[] = TEST_DIR "/golden/nf4/model", WEIGHTS[] = "model.safetensors";

/* t: a tensor of the golden folder, which may become another. */
typedef void (*change_fn)(st_tensor *t, const void *how);

static bool ends(const char *name, const char *with) {
    size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* The golden folder with other tensors, in a folder of that name. */
static const char *changed_folder(test_dir *d, const char *name, change_fn change,
                                  const void *how) {
    err e = {0};
    st_reader *r;
    char *config, *dir = path_join(d->mem, d->path, name);
    size_t len;
    assert_ok(file_make_dirs(dir, &e), e);
    assert_ok(file_read_part(path_join(d->mem, MODEL, "config.json"), 1 << 20, &config, &len, &e),
              e);
    assert_ok(file_write_atomic(path_join(d->mem, dir, "config.json"), config, len, &e), e);
    assert_ok(st_open(&r, MODEL, &e), e);
    int n = (int)st_count(r);
    st_tensor *list = ARENA_ARRAY(d->mem, st_tensor, n);
    for (int i = 0; i < n; i++) {
        const st_view *v = st_get(r, i);
        list[i] = (st_tensor){.name = v->name, .dt = v->dt, .rank = v->rank, .data = v->data};
        memcpy(list[i].dims, v->dims, sizeof v->dims);
        change(&list[i], how);
    }
    assert_ok(st_write(path_join(d->mem, dir, WEIGHTS), list, n, &e), e);
    st_close(r);
    free(config);
    return dir;
}

/* Bits as a tensor of another rank, with ones before their number. */
static void reshape(st_tensor *t, const void *how) {
    int64_t n = t->dims[0];
    if (t->dt != DT_U8 || !ends(t->name, "_proj.weight")) return;
    t->rank = *(const int *)how;
    for (int i = 0; i < t->rank; i++) t->dims[i] = i < t->rank - 1 ? 1 : n;
}

/* What an import makes of a folder: F32, in memory of the caller. */
static char *imported(test_dir *d, const char *dir, size_t *len) {
    err e = {0};
    char *bytes, *path = path_join(d->mem, dir, "f32.safetensors");
    model_source s;
    assert_ok(model_source_open(&s, dir, NULL, 0, &e), e);
    int n = param_count(s.params);
    st_tensor *list = model_source_folder_tensors(&s, s.a, DT_F32);
    for (int i = 0; i < n; i++) {
        const param *p = param_at(s.params, i);
        assert_int_equal(list[i].rank, p->rank);
        assert_int_equal(list[i].dims[0], p->rank == 1 ? p->cols : p->rows);
    }
    assert_ok(st_write(path, list, n, &e), e);
    model_source_close(&s);
    assert_ok(file_read_part(path, 1 << 20, &bytes, len, &e), e);
    return bytes;
}

/* The shape in which the bits lie says nothing of the matrix: its state does. */
static void test_shapes(void **state) {
    test_dir *d = *state;
    size_t len, want_len;
    int rank = 2;
    char *want = imported(d, changed_folder(d, "2", reshape, &rank), &want_len);
    static const int others[] = {1, 3, 8};
    for (int i = 0; i < ARRAY_LEN(others); i++) {
        const char *name = arena_printf(d->mem, "%d", others[i]);
        char *got = imported(d, changed_folder(d, name, reshape, &others[i]), &len);
        assert_int_equal(len, want_len);
        assert_memory_equal(got, want, len);
        free(got);
    }
    free(want);
}

/* What one matrix has beside it. */
typedef struct beside {
    const char *state;
    float nested;
} beside;

static void replace_beside(st_tensor *t, const void *how) {
    const beside *b = how;
    if (ends(t->name, "q_proj.weight.quant_state.bitsandbytes__nf4"))
        t->data = b->state, t->dims[0] = (int64_t)strlen(b->state);
    if (ends(t->name, "q_proj.weight.nested_absmax")) t->data = &b->nested;
}

static status find_q(test_dir *d, const char *name, const beside *b, err *e) {
    st_reader *r;
    bnb_matrix m;
    assert_ok(st_open(&r, changed_folder(d, name, replace_beside, b), e), *e);
    status st = bnb_find(r, st_find(r, "model.layers.0.self_attn.q_proj.weight"), &m, e);
    st_close(r);
    return st;
}

#define STATE(mean)                                                                                \
    "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [64, 64], \"nested_blocksize\": "     \
    "256, "                                                                                        \
    "\"nested_offset\": " mean "}"

static void test_states(void **state) {
    test_dir *d = *state;
    err e = {0};
    char *longest = arena_printf(d->mem, "%-4096s", STATE("0.5"));
    char *longer = arena_printf(d->mem, "%-4097s", STATE("0.5"));
    assert_ok(find_q(d, "a", &(beside){longest, 1}, &e), e);
    assert_int_equal(find_q(d, "b", &(beside){longer, 1}, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "of another form"));
    assert_ok(find_q(d, "c", &(beside){STATE("-1e38"), 2e38f}, &e), e);
    assert_int_equal(find_q(d, "d", &(beside){STATE("-1e38"), -FLT_MAX}, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "no finite number"));
}

static void test_zeros(void **state) {
    const lab *l = *state;
    float row[1024], zero[NF4_BLOCK] = {0};
    quantise(l);
    nf4_row_read((int32_t *)nf4_rows(l->m) + 3, 0, l->cols, row);
    assert_memory_equal(l->weight + 3 * l->cols + NF4_BLOCK, zero, sizeof zero);
    for (int i = 0; i < NF4_BLOCK; i++) assert_true(row[NF4_BLOCK + i] == 0);
}

static void test_refuses(void **state) {
    const lab *l = *state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    float row[1024];
    for (int i = 0; i < ARRAY_LEN(bad); i++) {
        memcpy(row, l->weight, sizeof *row * (size_t)l->cols);
        row[l->cols - 1 - i] = bad[i];
        assert_false(nf4_put_rows(l->m, 0, 1, row, l->largest));
    }
}

static void test_size(void **state) {
    (void)state;
    double bits = 8.0 * (double)nf4_bytes(4096, 4096) / (4096.0 * 4096);
    assert_true(fabs(bits - 4.127) < 0.01); /* 4 bytes of each row are beyond */
    assert_int_equal(nf4_bytes(3, 64) % NF4_ALIGN, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tables, open_lab, close_lab),
        cmocka_unit_test_setup_teardown(test_quantises, open_lab, close_lab),
        cmocka_unit_test_setup_teardown(test_reads, open_lab, close_lab),
        cmocka_unit_test_setup_teardown(test_zeros, open_lab, close_lab),
        cmocka_unit_test_setup_teardown(test_refuses, open_lab, close_lab),
        cmocka_unit_test(test_folder),
        IO_TEST(test_shapes),
        IO_TEST(test_states),
        cmocka_unit_test(test_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
