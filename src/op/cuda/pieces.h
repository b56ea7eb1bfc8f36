/* How threads share the elements of rows: each takes a piece, 16 bytes of a row where all rows that a
 * kernel touches allow that, else one element. */
#ifndef OP_CUDA_PIECES_H
#define OP_CUDA_PIECES_H

#include "op/cuda/store.h"

typedef struct pieces {
    int64_t n; /* in all rows */
    int32_t in_row;
    int32_t wide; /* a piece has VEC elements, else 1 */
} pieces;

enum { PIECE_THREADS = 256 };

/* Piece i begins in this row and column. False: there is no such piece. */
GPU_FN bool piece_at(const pieces *p, int64_t i, int64_t *row, int32_t *col) {
    if (i >= p->n) return false;
    *row = i / p->in_row;
    *col = (int32_t)(i - *row * p->in_row) * (p->wide ? VEC : 1);
    return true;
}

/* The piece of the thread that asks. */
GPU_FN bool my_piece(const pieces *p, int64_t *row, int32_t *col) {
    return piece_at(p, (int64_t)block_x() * threads_x() + thread_x(), row, col);
}

/* The piece that begins at `at`. Of a narrow piece only v[0] counts; the rest is 0. */
GPU_FN void piece_load(float v[VEC], const STORE *at, int32_t wide) {
    if (wide) {
        load_vec(v, at);
        return;
    }
    for (int k = 1; k < VEC; k++) v[k] = 0;
    v[0] = load(*at);
}

GPU_FN void piece_store(STORE *at, const float v[VEC], int32_t wide) {
    if (wide)
        store_vec(at, v);
    else
        *at = store(v[0]);
}

/* Writes the gradient of an activation, or adds it to what is there. */
GPU_FN void piece_put(STORE *at, const float v[VEC], int32_t wide, bool add) {
    float sum[VEC];
    if (!add) {
        piece_store(at, v, wide);
        return;
    }
    piece_load(sum, at, wide);
    for (int k = 0; k < VEC; k++) sum[k] += v[k];
    piece_store(at, sum, wide);
}

/* The same for floats: parameters and their gradients. */
GPU_FN void piece_load_f32(float v[VEC], const float *at, int32_t wide) {
    for (int k = 0; k < VEC; k++) v[k] = 0;
    for (int k = 0; k < VEC && wide; k += 4) load4(v + k, at + k);
    if (!wide) v[0] = *at;
}

GPU_FN void piece_put_f32(float *at, const float v[VEC], int32_t wide, bool add) {
    float sum[VEC];
    for (int k = 0; k < VEC; k++) sum[k] = v[k];
    if (add) {
        float old[VEC];
        piece_load_f32(old, at, wide);
        for (int k = 0; k < VEC; k++) sum[k] += old[k];
    }
    for (int k = 0; k < VEC && wide; k += 4) store4(at + k, sum + k);
    if (!wide) *at = sum[0];
}

#ifndef __CUDACC__
#include "op/cuda/host.h"

static inline pieces pieces_of(int64_t rows, int64_t cols, bool wide) {
    int64_t in_row = wide ? cols / VEC : cols;
    return (pieces){rows * in_row, (int32_t)in_row, wide};
}

/* A thread for each piece. */
static inline gpu_grid grid_of_pieces(const pieces *p) {
    uint32_t threads = threads_for(p->n, PIECE_THREADS);
    return (gpu_grid){blocks_for(p->n, threads), 1, 1, threads, 0};
}

/* As is_wide, for floats beside rows of STORE: they are read 4 VEC bytes at a time. */
static inline bool is_wide_f32(const tensor *t) {
    return is_wide(t) && t->cols % VEC == 0;
}
#endif

#endif
