/* NF4 beside bitsandbytes (tests/oracle/make_nf4_golden.py): the same bits are written, and what they say is read equal to the
 * last bit; zeros stay zeros, and what is no number is refused. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "io/hf/bnb.h"

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

/* A folder of transformers: matrices that are quantised twice, and one that is quantised once. */
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
        cmocka_unit_test(test_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
