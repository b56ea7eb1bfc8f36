/* Vector exp, log, tanh, erf and the logistic function. Maximum errors over all finite inputs, on
 * every instruction set, measured against libm in double by tests/op/test_vmath.c: exp 1.1 ulp,
 * results below FLT_MIN are 0; log 1 ulp for x >= FLT_MIN; logistic 2.5 ulp; tanh 1.5 ulp; erf 1.5
 * ulp. NaN in gives NaN out. */
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
    const float most = 88.7228317f; /* the last number with a finite result */
    vf c = v_min(v_set1(most), x);
    const float magic =
        12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, in the low bits */
    vf shifted = v_fma(c, v_set1(1.44269504f), v_set1(magic));
    vf n = shifted - magic;
    vf r = v_fma(n, v_set1(2.12194440e-4f), v_fma(n, v_set1(-0.693359375f), c));
    /* The polynomial is < 1 where n = 128, so the exponent field never overflows. */
    vf y = (vf)((vi)v_exp_poly(r) + ((vi)shifted << 23));
    y = (vf)((vi)y & ~(x < v_set1(-87.3365447f)));
    /* Beyond `most` the product is infinite, and NaN stays. */
    return y + (vf)((vi)(x * 0x1p127f) & ~(x <= v_set1(most)));
}
#endif

/* For normal positive x = 2^n (1 + f), 1 + f in [sqrt(1/2), sqrt(2)): n ln 2 + log(1 + f), the
 * latter by the polynomial of Cephes. */
V_INLINE vf v_log(vf x) {
    vi n = ((vi)x - 0x3f3504f3) >> 23;
    vf f = (vf)((vi)x - (n << 23)) - 1.0f, z = f * f, e = __builtin_convertvector(n, vf);
    vf p = v_set1(7.0376836292e-2f);
    p = v_fma(p, f, v_set1(-1.1514610310e-1f));
    p = v_fma(p, f, v_set1(1.1676998740e-1f));
    p = v_fma(p, f, v_set1(-1.2420140846e-1f));
    p = v_fma(p, f, v_set1(1.4249322787e-1f));
    p = v_fma(p, f, v_set1(-1.6668057665e-1f));
    p = v_fma(p, f, v_set1(2.0000714765e-1f));
    p = v_fma(p, f, v_set1(-2.4999993993e-1f));
    p = v_fma(p, f, v_set1(3.3333331174e-1f)) * f * z;
    p = v_fma(e, v_set1(-2.12194440e-4f), p) - 0.5f * z;
    vf y = v_fma(e, v_set1(0.693359375f), f + p);
    return v_select(x < v_set1(__builtin_inff()), y, x); /* infinity and NaN stay */
}

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
