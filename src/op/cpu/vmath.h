/* Vector exp, tanh, erf and the logistic function. Maximum errors over all finite inputs, measured
 * against libm in double by tests/op/test_vmath.c (with fused multiply-add; without it in
 * brackets): exp 1 (2) ulp, results below FLT_MIN are 0; logistic 2.5 (3) ulp; tanh 1.5 (3) ulp;
 * erf 1.5 (3) ulp. NaN in gives NaN out. */
#ifndef OP_CPU_VMATH_H
#define OP_CPU_VMATH_H

#include "op/cpu/simd.h"

/* exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2)/2; ln 2 is split in two parts so that
 * n * high is exact. */
V_INLINE vf v_exp_poly(vf r) {
    vf p = v_set1(1.9875691500e-4f);
    p = v_fma(p, r, v_set1(1.3981999507e-3f));
    p = v_fma(p, r, v_set1(8.3334519073e-3f));
    p = v_fma(p, r, v_set1(4.1665795894e-2f));
    p = v_fma(p, r, v_set1(1.6666665459e-1f));
    p = v_fma(p, r, v_set1(5.0000001201e-1f));
    return v_fma(p, r * r, r) + 1.0f;
}

#if V_AVX512
/* Scaling by 2^n overflows as it should; NaN passes minimum, comparison and scaling. */
V_INLINE vf v_exp(vf x) {
    vf c = v_min(v_set1(89.0f), x);
    vf n = _mm512_roundscale_ps(c * 1.44269504f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = v_fma(n, v_set1(2.12194440e-4f), v_fma(n, v_set1(-0.693359375f), c));
    __mmask16 normal = _mm512_cmp_ps_mask(x, v_set1(-87.3365447f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(normal, v_exp_poly(r), n);
}
#else
V_INLINE vf v_exp(vf x) {
    vf c = v_min(v_set1(89.0f), v_max(v_set1(-88.0f), x));
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vf shifted = v_fma(c, v_set1(1.44269504f), v_set1(magic));
    vf n = shifted - magic;
    vf r = v_fma(n, v_set1(2.12194440e-4f), v_fma(n, v_set1(-0.693359375f), c));
    /* The polynomial is < 1 where n = 128, so the exponent field never overflows below the cut. */
    vf y = (vf)((vi)v_exp_poly(r) + (((vi)shifted - 0x4b400000) << 23));
    y = v_select(x < v_set1(-87.3365447f), v_zero(), y);
    y = v_select(x > v_set1(88.7228394f), v_set1(__builtin_inff()), y);
    return v_select(x != x, x, y);
}
#endif

/* 1 / (1 + exp(-x)) */
V_INLINE vf v_logistic(vf x) {
    return 1.0f / (1.0f + v_exp(-x));
}

/* Near 0 the odd polynomial of Cephes, elsewhere 1 - 2 / (exp(2|x|) + 1). */
V_INLINE vf v_tanh(vf x) {
    vf a = v_abs(x), z = x * x;
    vf p = v_set1(-5.70498872745e-3f);
    p = v_fma(p, z, v_set1(2.06390887954e-2f));
    p = v_fma(p, z, v_set1(-5.37397155531e-2f));
    p = v_fma(p, z, v_set1(1.33314422036e-1f));
    p = v_fma(p, z, v_set1(-3.33332819422e-1f));
    vf small = v_fma(p * z, x, x);
    vf big = 1.0f - 2.0f / (v_exp(a + a) + 1.0f);
    big = (vf)((vi)big | ((vi)x & (vi)v_set1(-0.0f)));
    return v_select(a < v_set1(0.625f), small, big);
}

/* Two minimax polynomials (N. Juffa, "erff", public posting 2015): odd near 0, the exponent of
 * 1 - exp(.) elsewhere. */
V_INLINE vf v_erf(vf x) {
    vf t = v_abs(x), s = x * x;
    vf r = v_fma(v_set1(-1.72853470e-5f), t, v_set1(3.83197126e-4f));
    vf u = v_fma(v_set1(-3.88396438e-3f), t, v_set1(2.42546219e-2f));
    r = v_fma(r, s, u);
    r = v_fma(r, t, v_set1(-1.06777877e-1f));
    r = v_fma(r, t, v_set1(-6.34846687e-1f));
    r = v_fma(r, t, v_set1(-1.28717512e-1f));
    r = v_fma(r, t, -t);
    /* Beyond 4 the result is 1; there the polynomial is not trusted. */
    vf big = v_select(t > v_set1(4.0f), v_set1(1.0f), 1.0f - v_exp(r));
    big = (vf)((vi)big | ((vi)x & (vi)v_set1(-0.0f)));
    vf p = v_set1(-5.96761703e-4f);
    p = v_fma(p, s, v_set1(4.99119423e-3f));
    p = v_fma(p, s, v_set1(-2.67681349e-2f));
    p = v_fma(p, s, v_set1(1.12819925e-1f));
    p = v_fma(p, s, v_set1(-3.76125336e-1f));
    p = v_fma(p, s, v_set1(1.28379166e-1f));
    vf small = v_fma(p, x, x);
    vf y = v_select(t > v_set1(0.927734375f), big, small);
    return v_select(x != x, x, y);
}

#endif
