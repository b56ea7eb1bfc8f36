/* Number formats in blocks: every element against the layouts of quant_blocks.h said in another
 * way, one element at a time; rounding at the edges; input that no block can hold. The golden files
 * of another program are in tests/io/test_gguf.c. */
#include "test.h"

#include "base/quant_blocks.h"
#include "base/rng.h"
#include "base/status.h"

static float half_at(const uint8_t *b) {
    return f16_to_f32((uint16_t)(b[0] | b[1] << 8));
}

static int bits(const uint8_t *b, int first, int n) { /* bit k is bit k % 8 of byte k / 8 */
    int v = 0;
    for (int k = n - 1; k >= 0; k--) v = v << 1 | (b[(first + k) / 8] >> (first + k) % 8 & 1);
    return v;
}

/* ---- element i of a block, by its definition ---- */

static int small_nibble(const uint8_t *qs, int i) {
    return bits(qs, 8 * (i % 16) + 4 * (i / 16), 4);
}

static float element_q8_0(const uint8_t *b, int i) {
    return half_at(b) * (float)(int8_t)b[2 + i];
}
static float element_q4_0(const uint8_t *b, int i) {
    return half_at(b) * (float)(small_nibble(b + 2, i) - 8);
}
static float element_q4_1(const uint8_t *b, int i) {
    return half_at(b) * (float)small_nibble(b + 4, i) + half_at(b + 2);
}
static float element_q5_0(const uint8_t *b, int i) {
    return half_at(b) * (float)(small_nibble(b + 6, i) + 16 * bits(b + 2, i, 1) - 16);
}
static float element_q5_1(const uint8_t *b, int i) {
    return half_at(b) * (float)(small_nibble(b + 8, i) + 16 * bits(b + 4, i, 1)) + half_at(b + 2);
}

/* Of eight 6-bit scales and minima: group j < 4 in the lower bits of bytes j and 4 + j; of group
 * 4 + j the lower four bits are in byte 8 + j, the upper two where those left room. */
static int k_scale(const uint8_t *s, int j) {
    return j < 4 ? bits(s + j, 0, 6) : bits(s + 4 + j, 0, 4) + 16 * bits(s + j - 4, 6, 2);
}
static int k_min(const uint8_t *s, int j) {
    return j < 4 ? bits(s + 4 + j, 0, 6) : bits(s + 4 + j, 4, 4) + 16 * bits(s + j, 6, 2);
}
static int k_nibble(const uint8_t *qs, int i) {
    return bits(qs, 8 * (32 * (i / 64) + i % 32) + 4 * (i / 32 % 2), 4);
}
static float element_q4_k(const uint8_t *b, int i) {
    float d = half_at(b) * (float)k_scale(b + 4, i / 32);
    float m = half_at(b + 2) * (float)k_min(b + 4, i / 32);
    return d * (float)k_nibble(b + 16, i) - m;
}
static float element_q5_k(const uint8_t *b, int i) {
    float d = half_at(b) * (float)k_scale(b + 4, i / 32);
    float m = half_at(b + 2) * (float)k_min(b + 4, i / 32);
    int fifth = bits(b + 16 + i % 32, i / 32, 1);
    return d * (float)(k_nibble(b + 48, i) + 16 * fifth) - m;
}
static float element_q6_k(const uint8_t *b, int i) {
    int run = i / 128, quarter = i / 32 % 4, l = i % 32;
    int low = bits(b + 64 * run + 32 * (quarter % 2) + l, 4 * (quarter / 2), 4);
    int high = bits(b + 128 + 32 * run + l, 2 * quarter, 2);
    float d = half_at(b + 208) * (float)(int8_t)b[192 + i / 16];
    return d * (float)(low + 16 * high - 32);
}

static const struct {
    quant_type type;
    float (*element)(const uint8_t *, int);
} BLOCKS[] = {
    {QUANT_Q8_0, element_q8_0}, {QUANT_Q4_0, element_q4_0}, {QUANT_Q4_1, element_q4_1},
    {QUANT_Q5_0, element_q5_0}, {QUANT_Q5_1, element_q5_1}, {QUANT_Q4_K, element_q4_k},
    {QUANT_Q5_K, element_q5_k}, {QUANT_Q6_K, element_q6_k},
};

static bool same(float a, float b) {
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

static void test_every_element(void **state) {
    (void)state;
    enum { N = 7, ODD = 1 };
    for (int k = 0; k < ARRAY_LEN(BLOCKS); k++) {
        const quant_format *f = quant_by_type(BLOCKS[k].type);
        uint8_t raw[ODD + N * sizeof(quant_q6_k)], *b = raw + ODD;
        float x[N * QUANT_K];
        for (int i = 0; i < ARRAY_LEN(raw); i++)
            raw[i] = (uint8_t)rng_u32(rng_key_numbered(3, (uint64_t)k), (uint64_t)i);
        memset(b, 0xff, (size_t)f->bytes); /* scales that are NaN */
        memset(b + f->bytes, 0x7c, (size_t)f->bytes);
        quant_to_f32(f, x, b, N * f->block);
        for (int i = 0; i < N * f->block; i++) {
            float want = BLOCKS[k].element(b + i / f->block * f->bytes, i % f->block);
            if (!same(x[i], want))
                fail_msg("%s, element %d: %a, not %a", f->name, i, (double)x[i], (double)want);
        }
    }
}

static void test_table(void **state) {
    (void)state;
    assert_null(quant_by_type(4)); /* Q4_2, gone long ago */
    assert_null(quant_by_type(1000));
    assert_null(quant_by_name("Q4_2"));
    assert_ptr_equal(quant_by_name("q6_k"), quant_by_type(QUANT_Q6_K));
    for (uint32_t type = 0; type < 64; type++) {
        const quant_format *f = quant_by_type(type);
        if (!f) continue;
        assert_int_equal(f->type, type);
        assert_ptr_equal(quant_by_name(f->name), f);
        assert_true(f->block > 0 && f->bytes > 0 && 2048 % f->block == 0);
        assert_true(!f->write || f->read);
    }
}

/* ---- writing ---- */

static void write_block(quant_type type, uint8_t *dst, const float *src, bool holds) {
    assert_int_equal(quant_from_f32(quant_by_type(type), dst, src, QUANT_SMALL), holds);
}

static void test_rounding(void **state) {
    (void)state;
    /* 127 sets the scale to 1: halves go away from zero, and the number just below one half, which
     * x + 0.5 would round up to 1, does not. */
    float x[QUANT_SMALL] = {127, 0.5f, -0.5f, 1.5f, -2.5f, 0.49999997f, -0.49999997f, -127, 126.5f};
    static const int8_t want[9] = {127, 1, -1, 2, -3, 0, 0, -127, 127};
    quant_q8_0 q8;
    write_block(QUANT_Q8_0, (uint8_t *)&q8, x, true);
    assert_true(quant_get_f16(q8.d) == 1.0f);
    assert_memory_equal(q8.qs, want, sizeof(want));
    /* The first of the farthest becomes element 0, with its sign; its mirror image would be 16. */
    float y[QUANT_SMALL] = {4, -8, 8, 3.5f, -3.5f, 0, 7.49f};
    quant_q4_0 q4;
    write_block(QUANT_Q4_0, (uint8_t *)&q4, y, true);
    assert_true(quant_get_f16(q4.d) == 1.0f);
    static const uint8_t low[7] = {12, 0, 15, 12, 5, 8, 15};
    for (int i = 0; i < 7; i++) assert_int_equal(q4.qs[i] & 15, low[i]);
    /* Least value -3, steps of 1. */
    float z[QUANT_SMALL] = {[0] = -3, [1] = 12, [2] = 0.49f, [3] = 0.5f, [16] = -2, [17] = 11.5f};
    quant_q4_1 q41;
    write_block(QUANT_Q4_1, (uint8_t *)&q41, z, true);
    assert_true(quant_get_f16(q41.d) == 1.0f && quant_get_f16(q41.m) == -3.0f);
    static const uint8_t both[4] = {0x10, 0xff, 0x33, 0x34};
    assert_memory_equal(q41.qs, both, sizeof(both));
}

static void test_zeros_and_constants(void **state) {
    (void)state;
    float zero[QUANT_SMALL] = {0}, five[QUANT_SMALL], back[QUANT_SMALL];
    for (int i = 0; i < QUANT_SMALL; i++) five[i] = 5;
    uint8_t b[64];
    static const quant_type types[] = {QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_1};
    for (int k = 0; k < ARRAY_LEN(types); k++) {
        write_block(types[k], b, zero, true);
        quant_to_f32(quant_by_type(types[k]), back, b, QUANT_SMALL);
        for (int i = 0; i < QUANT_SMALL; i++) assert_true(back[i] == 0);
        write_block(types[k], b, five, true);
        quant_to_f32(quant_by_type(types[k]), back, b, QUANT_SMALL);
        for (int i = 0; i < QUANT_SMALL; i++) assert_true(fabsf(back[i] - 5) < 0.002f);
    }
}

/* Each is written without harm, and reported. */
static void test_what_no_block_holds(void **state) {
    (void)state;
    static const struct {
        float x;
        bool f16, bf16, blocks;
    } cases[] = {{NAN, false, false, false},       {INFINITY, false, false, false},
                 {-INFINITY, false, false, false}, {65519, true, true, true},
                 {65520, false, true, true},       {3.4e38f, false, false, false},
                 {1e-45f, true, true, true},       {-1e-39f, true, true, true}};
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        float x[QUANT_SMALL] = {1, cases[i].x, -1};
        uint8_t b[QUANT_SMALL * 4];
        write_block(QUANT_F32, b, x, true);
        assert_memory_equal(b, x, sizeof(x));
        write_block(QUANT_F16, b, x, cases[i].f16);
        write_block(QUANT_BF16, b, x, cases[i].bf16);
        write_block(QUANT_Q8_0, b, x, cases[i].blocks);
        write_block(QUANT_Q4_0, b, x, cases[i].blocks);
    }
    float tiny[QUANT_SMALL] = {1e-45f, -1e-45f}; /* the inverse of the scale is infinite */
    float wide[QUANT_SMALL] = {-3e38f, 3e38f};   /* the range overflows */
    uint8_t b[64];
    write_block(QUANT_Q8_0, b, tiny, true);
    write_block(QUANT_Q4_0, b, tiny, true);
    write_block(QUANT_Q4_1, b, tiny, true);
    write_block(QUANT_Q4_1, b, wide, false);
}

/* One bad number anywhere in a long row, the piece-wise conversion included. */
static void test_bad_number_anywhere(void **state) {
    (void)state;
    enum { N = 2080 };
    static float x[N];
    static uint8_t b[N * 2];
    const quant_format *f = quant_by_type(QUANT_Q8_0);
    assert_true(quant_from_f32(f, b, x, N));
    for (int at = 0; at < N; at += 13) {
        x[at] = NAN;
        assert_false(quant_from_f32(f, b, x, N));
        x[at] = 1;
    }
    float back[N];
    assert_true(quant_from_f32(f, b, x, N));
    quant_to_f32(f, back, b, N);
    for (int i = 0; i < N; i++) assert_true(fabsf(back[i] - x[i]) < 0.001f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_element),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_zeros_and_constants),
        cmocka_unit_test(test_what_no_block_holds),
        cmocka_unit_test(test_bad_number_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
