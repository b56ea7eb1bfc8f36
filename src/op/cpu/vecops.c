/* Whole-buffer operations. Work is cut into blocks of fixed size, so sums do not depend on the
 * number of threads: a block is summed lane by lane, blocks are added in order. */
#include "op/cpu/vecops_impl.h"

#include "op/cpu/simd.h"

enum { BLOCK = 1 << 14, SMALL = 4 * BLOCK };

/* Waking threads costs more than they save on few elements. */
static int loop_share(int threads, int64_t n) {
    return n < SMALL ? 1 : threads;
}

typedef struct adamw_consts {
    vf keep1, keep2, add1, add2, grad_scale, decay, step, root, eps;
} adamw_consts;

V_INLINE vf update_adamw(const adamw_consts *k, vf p, vf *m, vf *v, vf g) {
    g *= k->grad_scale;
    *m = v_fma(k->keep1, *m, k->add1 * g);
    *v = v_fma(k->keep2, *v, k->add2 * g * g);
    return p * k->decay - k->step * *m / (v_sqrt(*v) * k->root + k->eps);
}

static void update_block(const adamw_args *a, const adamw_consts *k, int64_t i, int64_t end) {
    for (; i + VW <= end; i += VW) {
        vf m = v_load(a->m + i), v = v_load(a->v + i);
        vf p = update_adamw(k, v_load(a->param + i), &m, &v, v_load(a->grad + i));
        v_store(a->m + i, m);
        v_store(a->v + i, v);
        v_store(a->param + i, p);
        if (a->param_bf16) v_store_bf16(a->param_bf16 + i, p);
    }
    if (i >= end) return;
    int64_t n = end - i;
    vf m = v_get_n(a->m, i, n, DT_F32), v = v_get_n(a->v, i, n, DT_F32);
    vf p = v_get_n(a->param, i, n, DT_F32), g = v_get_n(a->grad, i, n, DT_F32);
    p = update_adamw(k, p, &m, &v, g);
    v_put_n(a->m, i, m, n, DT_F32);
    v_put_n(a->v, i, v, n, DT_F32);
    v_put_n(a->param, i, p, n, DT_F32);
    if (a->param_bf16) v_put_n(a->param_bf16, i, p, n, DT_BF16);
}

void CPU_FN(vec_adamw)(int threads, const adamw_args *a) {
    double root = 1.0 / __builtin_sqrt((double)a->correction2);
    adamw_consts k = {
        .keep1 = v_set1(a->beta1),
        .keep2 = v_set1(a->beta2),
        .add1 = v_set1(1.0f - a->beta1),
        .add2 = v_set1(1.0f - a->beta2),
        .grad_scale = v_set1(a->grad_scale),
        .decay = v_set1(1.0f - a->lr * a->weight_decay),
        .step = v_set1(a->lr / a->correction1),
        .root = v_set1((float)root),
        .eps = v_set1(a->eps),
    };
#pragma omp parallel for num_threads(loop_share(threads, a->n)) schedule(static)
    for (int64_t i = 0; i < a->n; i += BLOCK)
        update_block(a, &k, i, i + BLOCK < a->n ? i + BLOCK : a->n);
}

/* In double, with 16 running sums whatever the vector width. */
static double block_squares(const float *x, int64_t n) {
    double s[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) s[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i + j < n; j++) s[j] += (double)x[i + j] * (double)x[i + j];
    for (int w = 8; w > 0; w /= 2)
        for (int j = 0; j < w; j++) s[j] += s[j + w];
    return s[0];
}

double CPU_FN(vec_sum_squares)(int threads, const float *x, int64_t n) {
    enum { AT_ONCE = 1024 }; /* block sums that exist at a time */
    double total = 0.0, sums[AT_ONCE];
    for (int64_t i0 = 0; i0 < n; i0 += (int64_t)AT_ONCE * BLOCK) {
        int64_t left = n - i0, blocks = (left + BLOCK - 1) / BLOCK;
        if (blocks > AT_ONCE) blocks = AT_ONCE;
#pragma omp parallel for num_threads(loop_share(threads, blocks *BLOCK)) schedule(static)
        for (int64_t b = 0; b < blocks; b++) {
            int64_t at = i0 + b * BLOCK;
            sums[b] = block_squares(x + at, n - at < BLOCK ? n - at : BLOCK);
        }
        for (int64_t b = 0; b < blocks; b++) total += sums[b];
    }
    return total;
}

bool CPU_FN(vec_all_finite)(int threads, const float *x, int64_t n) {
    uint32_t bad = 0;
#pragma omp parallel for num_threads(loop_share(threads, n)) schedule(static) reduction(| : bad)
    for (int64_t i0 = 0; i0 < n; i0 += BLOCK) {
        int64_t end = i0 + BLOCK < n ? i0 + BLOCK : n;
        uint32_t seen = 0;
        for (int64_t i = i0; i < end; i++) {
            uint32_t u;
            memcpy(&u, x + i, 4);
            seen |= (u & 0x7f800000u) == 0x7f800000u;
        }
        bad |= seen;
    }
    return !bad;
}

void CPU_FN(vec_scale)(int threads, float *x, int64_t n, float by) {
#pragma omp parallel for num_threads(loop_share(threads, n)) schedule(static)
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}
