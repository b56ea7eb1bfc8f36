/* Twelve independent accumulators hide the latency of the multiply-add on every current core. */
#include "op/cpu/parts.h"

#include "op/cpu/amx.h"

enum { CHAINS = 12 };

/* Without a use the compiler would drop the whole loop. */
V_INLINE void consume(vf *acc) {
    __asm__ volatile("" : : "r"(acc) : "memory");
}

/* Makes the compiler believe that the results are wanted. */
static void use(const vf acc[CHAINS]) {
    volatile float sink = 0;
    for (int i = 0; i < CHAINS; i++) sink = sink + acc[i][0];
}

double CPU_FN(peak_fma_loop)(int threads, int64_t rounds) {
#pragma omp parallel num_threads(threads)
    {
        vf acc[CHAINS], a = v_keep(v_set1(0.5f)), b = v_keep(v_set1(1.0f));
        for (int i = 0; i < CHAINS; i++) acc[i] = v_set1((float)i);
        for (int64_t r = 0; r < rounds; r++)
            for (int i = 0; i < CHAINS; i++) acc[i] = v_keep(v_fma(acc[i], a, b));
        use(acc);
    }
    return 2.0 * CHAINS * VW * (double)rounds * threads;
}

#if V_AMX
/* Four tiles of results, as many as kernels keep, of 2 x 2 operands. */
double CPU_FN(peak_dot_loop)(int threads, int64_t rounds) {
    static const uint16_t zeros[AMX_ROWS * AMX_K]; /* numbers do not change how long it takes */
#pragma omp parallel num_threads(threads)
    {
        amx_begin();
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        _tile_loadd(4, zeros, AMX_ROW_BYTES);
        _tile_loadd(5, zeros, AMX_ROW_BYTES);
        _tile_loadd(6, zeros, AMX_ROW_BYTES);
        _tile_loadd(7, zeros, AMX_ROW_BYTES);
        for (int64_t r = 0; r < rounds; r++) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        amx_end();
    }
    return 4.0 * 2 * AMX_ROWS * AMX_ROWS * AMX_K * (double)rounds * threads;
}
#elif defined(__AVX512BF16__)
double CPU_FN(peak_dot_loop)(int threads, int64_t rounds) {
#pragma omp parallel num_threads(threads)
    {
        vf acc[CHAINS];
        __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f00), b = (__m512bh)_mm512_set1_epi16(0x3f80);
        for (int i = 0; i < CHAINS; i++) acc[i] = v_zero();
        for (int64_t r = 0; r < rounds; r++)
            for (int i = 0; i < CHAINS; i++) acc[i] = v_keep(_mm512_dpbf16_ps(acc[i], a, b));
        use(acc);
    }
    return 4.0 * CHAINS * VW * (double)rounds * threads;
}
#else
/* Without bf16 instructions operands are widened: the limit is that of fp32. */
double CPU_FN(peak_dot_loop)(int threads, int64_t rounds) {
    return CPU_FN(peak_fma_loop)(threads, rounds);
}
#endif
