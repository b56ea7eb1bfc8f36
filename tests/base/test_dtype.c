/* Number formats against definitions written with ldexp and nextafter: every 16-bit pattern, and
 * rounding at and beside every midpoint between neighbours. */
#include "test.h"

#include "base/dtype.h"
#include "base/quant.h"

static double decode(uint16_t h, int exp_bits, int man_bits) {
    int bias = (1 << (exp_bits - 1)) - 1, max = (1 << exp_bits) - 1;
    int exp = (h >> man_bits) & max, man = h & ((1 << man_bits) - 1);
    double v;
    if (exp == max)
        v = man ? NAN : INFINITY;
    else if (exp == 0)
        v = ldexp(man, 1 - bias - man_bits);
    else
        v = ldexp(man + (1 << man_bits), exp - bias - man_bits);
    return h >> 15 ? -v : v;
}

/* bits of a format, its two conversions */
typedef struct format {
    int exp_bits, man_bits;
    float (*to)(uint16_t);
    uint16_t (*from)(float);
} format;

static float from_bf16(uint16_t h) {
    return bf16_to_f32(h);
}
static uint16_t to_bf16(float f) {
    return f32_to_bf16(f);
}

static const format BF16 = {8, 7, from_bf16, to_bf16};
static const format F16 = {5, 10, f16_to_f32, f32_to_f16};

static void check_all_patterns(const format *f) {
    for (uint32_t h = 0; h < 65536; h++) {
        double want = decode((uint16_t)h, f->exp_bits, f->man_bits);
        float got = f->to((uint16_t)h);
        if (isnan(want)) {
            assert_true(isnan(got));
            assert_true(isnan(f->to(f->from(got))));
            continue;
        }
        assert_true((double)got == want && !signbit(got) == !signbit(want));
        assert_int_equal(f->from(got), h);
    }
}

/* Between neighbours lo and lo+1 (finite, or the first above being infinity). */
static void check_midpoints(const format *f) {
    uint32_t inf = ((1u << f->exp_bits) - 1) << f->man_bits;
    for (uint32_t lo = 0; lo < inf; lo++) {
        double a = decode((uint16_t)lo, f->exp_bits, f->man_bits);
        double below = lo ? decode((uint16_t)(lo - 1), f->exp_bits, f->man_bits) : 0;
        double b = lo + 1 < inf ? decode((uint16_t)(lo + 1), f->exp_bits, f->man_bits)
                                : a + (a - below); /* where the next number would be */
        float mid = (float)((a + b) / 2);
        assert_true((double)mid == (a + b) / 2);
        uint32_t even = lo & 1 ? lo + 1 : lo;
        for (int negative = 0; negative < 2; negative++) {
            uint32_t sign = negative ? 0x8000u : 0;
            float s = negative ? -1.0f : 1.0f;
            assert_int_equal(f->from(s * mid), sign | even);
            assert_int_equal(f->from(s * nextafterf(mid, 0)), sign | lo);
            assert_int_equal(f->from(s * nextafterf(mid, INFINITY)), sign | (lo + 1));
        }
    }
}

static void test_patterns(void **state) {
    (void)state;
    check_all_patterns(&BF16);
    check_all_patterns(&F16);
}

static void test_ties(void **state) {
    (void)state;
    check_midpoints(&BF16);
    check_midpoints(&F16);
}

static void test_special(void **state) {
    (void)state;
    uint32_t quiet_payload = 0x7f800001u; /* a NaN whose upper bits alone would read as infinity */
    float nan;
    memcpy(&nan, &quiet_payload, 4);
    assert_true(isnan(bf16_to_f32(f32_to_bf16(nan))));
    assert_true(isnan(f16_to_f32(f32_to_f16(nan))));
    assert_int_equal(f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(f32_to_f16(1e-30f), 0);
    assert_int_equal(f32_to_f16(-1e-30f), 0x8000);
    assert_int_equal(f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(f32_to_bf16(3.4028235e38f), 0x7f80); /* above the largest bf16's midpoint */
}

static void test_names(void **state) {
    (void)state;
    static const char *const UPPER[DT_COUNT] = {
        "F32",  "BF16", "F16",  "F64",  "I32",  "I64",  "U8",       "Q4_0",    "Q4_1",
        "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "FP8_ROWS", "NF4_ROWS"};
    for (int i = 0; i < DT_COUNT; i++) {
        dtype dt = DT_COUNT;
        assert_true(dtype_parse(dtype_name((dtype)i), &dt));
        assert_int_equal(dt, i);
        assert_true(dtype_parse(UPPER[i], &dt));
        assert_int_equal(dt, i);
    }
    dtype dt;
    assert_false(dtype_parse("f8", &dt));
    assert_false(dtype_parse("", &dt));
    assert_int_equal(dtype_bytes(DT_BF16), 2);
    assert_int_equal(dtype_bytes(DT_F64), 8);
    assert_int_equal(dtype_bytes(DT_U8), 1);
}

static void test_blocks(void **state) {
    (void)state;
    assert_false(dtype_is_blocks(DT_F64));
    assert_int_equal(dtype_span_bytes(DT_BF16, 7), 14);
    assert_int_equal(dtype_span_bytes(DT_Q4_0, 64), 36);
    assert_int_equal(dtype_span_bytes(DT_Q4_1, 576), 360);
    assert_int_equal(dtype_span_bytes(DT_Q6_K, 512), 420);
    assert_int_equal(dtype_span_bytes(DT_FP8, 0), 0);
    assert_int_equal(dtype_row_bytes(DT_FP8, 100), 100);
    assert_int_equal(dtype_span_bytes(DT_NF4, 640), 4);
    assert_int_equal(dtype_row_bytes(DT_NF4, 640), 330);
    assert_int_equal(dtype_row_bytes(DT_Q6_K, 512), 420);
    for (int i = 0; i < DT_COUNT; i++) { /* what can be read and only that, both ways */
        const quant_format *f = quant_by_dtype((dtype)i);
        assert_int_equal(f || !dtype_is_blocks((dtype)i), !dtype_is_listed((dtype)i));
        if (!f) continue;
        assert_non_null(f->read);
        assert_int_equal(dtype_is_blocks((dtype)i), f->block > 1);
        assert_int_equal(strcasecmp(f->name, dtype_name((dtype)i)), 0);
        assert_int_equal(f->dt, i);
        assert_int_equal(dtype_span_bytes(f->dt, 2 * f->block), 2 * f->bytes);
    }
    assert_int_equal(quant_by_type(10)->dt, DT_COUNT); /* Q2_K */
}

static void test_convert_arrays(void **state) {
    (void)state;
    static const dtype FLOATS[] = {DT_F32, DT_BF16, DT_F16, DT_F64};
    const double values[] = {0, -0.0, 1, -2.5, 0.09375, 240, 6.103515625e-05};
    enum { N = 7 };
    uint8_t a[8 * N], b[8 * N];
    double back[N];
    for (int from = 0; from < 4; from++) {
        for (int to = 0; to < 4; to++) { /* values that all formats hold go through unchanged */
            dtype_convert(a, FLOATS[from], values, DT_F64, N);
            dtype_convert(b, FLOATS[to], a, FLOATS[from], N);
            dtype_convert(back, DT_F64, b, FLOATS[to], N);
            assert_memory_equal(back, values, sizeof values);
        }
    }
}

/* 1 + 2^-8 is the midpoint of two bf16 numbers. A double a hair above it must go up, though
 * rounding to float first would land on the midpoint and then go to even, down. */
static void test_double_rounds_once(void **state) {
    (void)state;
    const double x[4] = {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8, -(1 + 0x1p-8 + 0x1p-40),
                         1 + 3 * 0x1p-8 - 0x1p-40};
    uint16_t got[4];
    dtype_convert(got, DT_BF16, x, DT_F64, 4);
    assert_int_equal(got[0], 0x3f81);
    assert_int_equal(got[1], 0x3f80);
    assert_int_equal(got[2], 0xbf81);
    assert_int_equal(got[3], 0x3f81);
    const double y[2] = {1 + 0x1p-11 + 0x1p-40, 1e300};
    dtype_convert(got, DT_F16, y, DT_F64, 2);
    assert_int_equal(got[0], 0x3c01);
    assert_int_equal(got[1], 0x7c00);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_convert_arrays),
        cmocka_unit_test(test_double_rounds_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
