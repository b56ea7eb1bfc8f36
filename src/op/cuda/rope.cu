/* ROPE: a pair (x1, x2) of a head turns by the angle of its position:
 *   y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin
 * Backward is the rotation by the opposite angle. Columns that do not turn are copied; where y is x
 * they stay as they are. A number read and one written, 3 FLOPs; angles (two floats per pair) come
 * from the cache. A thread has read both elements of its pairs before it writes either, so x and y may
 * be the same memory. */
#include "op/cuda/pieces.h"

typedef struct rope_args {
    mat x, y, pos;
    const float *table;
    int64_t rows, table_rows;
    int32_t heads, head_dim, half; /* pairs of a head */
    int32_t begin;                 /* column of a head with which they begin */
    int32_t interleaved, wide, add;
    int32_t turns,
        units; /* of a row: units that turn, and all; of VEC numbers, or one, or a pair */
    float sign;
} rope_args;

/* Pairs i to i + VEC - 1 of the head at x: (i, i + half). One pair if not wide. */
GPU_FN void turn_halves(const rope_args *a, const float *cs, const STORE *x, STORE *y, int32_t i) {
    float x1[VEC], x2[VEC], co[VEC], si[VEC];
    piece_load(x1, x + i, a->wide);
    piece_load(x2, x + i + a->half, a->wide);
    piece_load_f32(co, cs + i, a->wide);
    piece_load_f32(si, cs + a->half + i, a->wide);
    for (int k = 0; k < VEC; k++) {
        float s = a->sign * si[k], first = x1[k];
        x1[k] = first * co[k] - x2[k] * s;
        x2[k] = x2[k] * co[k] + first * s;
    }
    piece_put(y + i, x1, a->wide, a->add);
    piece_put(y + i + a->half, x2, a->wide, a->add);
}

/* Pairs (2 i, 2 i + 1), from i on, VEC numbers of them. One pair if not wide. */
GPU_FN void turn_neighbours(const rope_args *a, const float *cs, const STORE *x, STORE *y,
                            int32_t i) {
    float v[VEC];
    for (int k = 0; k < VEC; k++) v[k] = 0;
    if (a->wide)
        load_vec(v, x + 2 * i);
    else
        v[0] = load(x[2 * i]), v[1] = load(x[2 * i + 1]);
    for (int k = 0; k < VEC / 2 && (a->wide || k == 0); k++) {
        float co = cs[i + k], s = a->sign * cs[a->half + i + k], first = v[2 * k];
        v[2 * k] = first * co - v[2 * k + 1] * s;
        v[2 * k + 1] = v[2 * k + 1] * co + first * s;
    }
    if (a->wide) {
        piece_put(y + 2 * i, v, true, a->add);
        return;
    }
    put(&y[2 * i], v[0], a->add);
    put(&y[2 * i + 1], v[1], a->add);
}

/* The column of number i of those that do not turn: ends of heads, then what lies behind the heads. */
GPU_FN int32_t still_column(const rope_args *a, int32_t i) {
    int32_t rest = a->head_dim - 2 * a->half;
    if (i >= a->heads * rest) return a->heads * a->head_dim + i - a->heads * rest;
    int32_t c = i % rest;
    return i / rest * a->head_dim + (c < a->begin ? c : c + 2 * a->half);
}

KERNEL(rope_rows, rope_args, PIECE_THREADS) {
    int64_t i = (int64_t)block_x() * threads_x() + thread_x(), n = i / a->units;
    if (n >= a->rows) return;
    int32_t u = (int32_t)(i - n * a->units), per = a->wide ? VEC : 1;
    const STORE *x = row_of(a->x, n);
    STORE *y = row_of(a->y, n);
    if (u >= a->turns) {
        float v[VEC];
        int32_t c = still_column(a, (u - a->turns) * per);
        piece_load(v, x + c, a->wide);
        piece_put(y + c, v, a->wide, a->add);
        return;
    }
    int32_t pos = *i32_row_of(a->pos, n), in_head = a->turns / a->heads;
    kernel_check(pos >= 0 && pos < a->table_rows, "finds a position outside the table");
    const float *cs = a->table + (int64_t)pos * 2 * a->half;
    int32_t head = u / in_head * a->head_dim + a->begin, j = u % in_head;
    if (a->interleaved)
        turn_neighbours(a, cs, x + head, y + head, j * (a->wide ? VEC / 2 : 1));
    else
        turn_halves(a, cs, x + head, y + head, j * per);
}

#ifndef __CUDACC__

/* Whether all pieces of 16 bytes lie in one part of a row. */
static bool is_rope_wide(const op_call *c, const tensor *x, const tensor *y, int32_t half) {
    const op_attr *at = c->attr;
    int32_t apart = at->rope.interleaved ? 2 * half : half;
    return is_wide(x) && is_wide(y) && is_wide(&c->in[2]) && apart % VEC == 0 &&
           at->rope.head_dim % VEC == 0 && at->rope.first % VEC == 0;
}

static void rotate(const op_call *c, const tensor *x, const tensor *y, float sign, bool add) {
    const op_attr *at = c->attr;
    rope_args a = {.x = mat_of(x), .y = mat_of(y), .pos = mat_of(&c->in[1])};
    a.table = c->in[2].data, a.table_rows = c->in[2].rows;
    a.rows = x->rows;
    a.heads = at->rope.heads, a.head_dim = at->rope.head_dim, a.half = at->rope.rotary_dim / 2;
    a.begin = at->rope.first, a.interleaved = at->rope.interleaved, a.add = add, a.sign = sign;
    a.wide = is_rope_wide(c, x, y, a.half);
    int32_t per = a.wide ? VEC : 1, still = (int32_t)x->cols - a.heads * 2 * a.half;
    a.turns = a.heads * (a.wide && a.interleaved ? 2 * a.half / VEC : a.half / per);
    a.units = a.turns + (x->data == y->data && !add ? 0 : still / per);
    int64_t n = a.rows * a.units;
    uint32_t threads = threads_for(n, PIECE_THREADS);
    launch(c, &rope_rows, (gpu_grid){blocks_for(n, threads), 1, 1, threads, 0}, &a);
}

static void rope_fwd(const op_call *c) {
    rotate(c, &c->in[0], &c->out[0], 1, false);
}

static void rope_bwd(const op_call *c) {
    if (c->din[0].data) rotate(c, &c->dout[0], &c->din[0], -1, op_accumulates(c, 0));
}

const op_impl CUDA_IMPL(ROPE) = {rope_fwd, rope_bwd, NULL, NULL};
#endif
