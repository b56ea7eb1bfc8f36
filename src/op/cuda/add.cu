/* ADD: y = a + b. Two numbers read, one written; a thread takes 16 bytes of each where rows allow. */
#include "op/cuda/store.h"

typedef struct add_args {
    mat a, b, y;
    int64_t rows;
    int32_t cols, wide;
} add_args;

enum { ADD_THREADS = 256 };

KERNEL(add_rows, add_args, ADD_THREADS) {
    int32_t per = a->wide ? VEC : 1, pieces = a->cols / per;
    int64_t i = (int64_t)block_x() * ADD_THREADS + thread_x();
    if (i >= a->rows * pieces) return;
    int64_t n = i / pieces, c = i % pieces * per;
    const STORE *x = row_of(a->a, n) + c, *z = row_of(a->b, n) + c;
    STORE *y = row_of(a->y, n) + c;
    if (!a->wide) {
        *y = store(load(*x) + load(*z));
        return;
    }
    float p[VEC], q[VEC];
    load_vec(p, x);
    load_vec(q, z);
    for (int k = 0; k < VEC; k++) p[k] += q[k];
    store_vec(y, p);
}

#ifndef __CUDACC__
#include "op/cuda/host.h"

static void add_fwd(const op_call *c) {
    const tensor *y = &c->out[0];
    bool wide = is_wide(y) && is_wide(&c->in[0]) && is_wide(&c->in[1]);
    add_args a = {mat_of(&c->in[0]), mat_of(&c->in[1]), mat_of(y), y->rows, (int32_t)y->cols, wide};
    int64_t n = y->rows * (y->cols / (wide ? VEC : 1));
    launch(c, &add_rows, (gpu_grid){blocks_for(n, ADD_THREADS), 1, 1, ADD_THREADS, 0}, &a);
}

const op_impl CUDA_IMPL(ADD) = {add_fwd, NULL, NULL, NULL};
#endif
