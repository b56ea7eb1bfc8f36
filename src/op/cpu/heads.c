/* LATENT_KV and HEADWISE. The first is bound by memory: each number of its operands is read once and
 * written once, but for those that all heads share. The second is a product for each head, 2 N H I O FLOPs,
 * of a few rows of x when a model writes: then weights are read once, and that is what costs. Its
 * sums are in one order, whatever N: by row those of by_row.c, turned those of the rows of w. */
#include <omp.h>
#include <string.h>

#include "op/cpu/ops.h"
#include "op/cpu/parts.h"
#include "op/cpu/rows.h"

/* ---- LATENT_KV ---- */

static void copy_columns(const tensor *to, int64_t n, int64_t at, const tensor *from,
                         int64_t from_at, int64_t cols) {
    int64_t bytes = v_element_bytes(to->dt);
    memcpy((char *)to->data + (n * to->ld + at) * bytes,
           (const char *)from->data + (n * from->ld + from_at) * bytes, (size_t)(cols * bytes));
}

static void latent_kv_fwd(const op_call *c) {
    const tensor *kv = &c->in[0], *rope = &c->in[1], *y = &c->out[0];
    int64_t H = c->attr->heads.heads, D = c->attr->heads.D, Dv = c->attr->heads.Dv, R = rope->cols;
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t n = 0; n < y->rows; n++) {
        for (int64_t h = 0; h < H; h++) {
            copy_columns(y, n, h * (D + R), kv, h * (D + Dv), D);
            copy_columns(y, n, h * (D + R) + D, rope, 0, R);
            copy_columns(y, n, H * (D + R) + h * Dv, kv, h * (D + Dv) + D, Dv);
        }
    }
}

V_INLINE void give_columns(const tensor *to, int64_t n, int64_t at, const tensor *from,
                           int64_t from_at, int64_t cols, bool add, dtype dt) {
    FOR_VECTORS(cols, j, left)
    row_put(to, n, at + j, row_get(from, n, from_at + j, left, dt), left, add, dt);
}

V_INLINE void give_latent(const op_call *c, int64_t n, dtype dt) {
    const tensor *dy = &c->dout[0], *dkv = &c->din[0], *drope = &c->din[1];
    int64_t H = c->attr->heads.heads, D = c->attr->heads.D, Dv = c->attr->heads.Dv;
    int64_t R = dy->cols / H - D - Dv, values = H * (D + R);
    for (int64_t h = 0; dkv->data && h < H; h++) {
        bool add = op_accumulates(c, 0);
        give_columns(dkv, n, h * (D + Dv), dy, h * (D + R), D, add, dt);
        give_columns(dkv, n, h * (D + Dv) + D, dy, values + h * Dv, Dv, add, dt);
    }
    if (!drope->data) return;
    FOR_VECTORS(R, j, left) {
        vf sum = v_zero();
        for (int64_t h = 0; h < H; h++) sum += row_get(dy, n, h * (D + R) + D + j, left, dt);
        row_put(drope, n, j, sum, left, op_accumulates(c, 1), dt);
    }
}

static void latent_kv_bwd(const op_call *c) {
    const tensor *dy = &c->dout[0];
#pragma omp parallel for num_threads(loop_threads(c, dy->rows * dy->cols)) schedule(static)
    for (int64_t n = 0; n < dy->rows; n++) WITH_DTYPE(dy->dt, give_latent, c, n);
}

const op_impl CPU_FN(cpu_latent_kv) = {latent_kv_fwd, latent_kv_bwd, NULL, NULL};

/* ---- HEADWISE ---- */

/* Rows of x, and of w, at a time where w is turned; rows of a tile. */
enum { ROWS = 32, DEPTH = 16, TILE = 4 };

/* Floats from a row to the next: whole pairs of vectors. */
V_INLINE int64_t padded(int64_t out) {
    return (out + 2 * VW - 1) / (2 * VW) * (2 * VW);
}

static const char *weight_row(const op_call *c, int64_t row) {
    const tensor *w = &c->in[1];
    return (const char *)w->data + row * dtype_span_bytes(w->dt, w->ld);
}

static void widen(float *to, const void *row, int64_t n, dtype dt) {
#if CPU_STORED
    if (dt != DT_F32) {
        CPU_FN(stored_read)(to, row, n, dt);
        return;
    }
#endif
    dtype_convert(to, DT_F32, row, dt, n);
}

/* sum[l,:] += x[l,:] w for L rows; w is `depth` rows. */
V_INLINE void add_products(float *sum, const float *x, const float *w, int64_t depth, int64_t ld,
                           int L) {
    for (int64_t j = 0; j < ld; j += 2 * VW) {
        vf acc[TILE][2];
#pragma GCC unroll 4
        for (int l = 0; l < L; l++)
            acc[l][0] = v_load(sum + l * ld + j), acc[l][1] = v_load(sum + l * ld + j + VW);
        for (int64_t d = 0; d < depth; d++) {
            vf first = v_load(w + d * ld + j), second = v_load(w + d * ld + j + VW);
#pragma GCC unroll 4
            for (int l = 0; l < L; l++) {
                vf by = v_set1(x[l * DEPTH + d]);
                acc[l][0] = v_fma(by, first, acc[l][0]);
                acc[l][1] = v_fma(by, second, acc[l][1]);
            }
        }
#pragma GCC unroll 4
        for (int l = 0; l < L; l++)
            v_store(sum + l * ld + j, acc[l][0]), v_store(sum + l * ld + j + VW, acc[l][1]);
    }
}

static void add_rows(float *sum, const float *x, const float *w, int64_t rows, int64_t depth,
                     int64_t ld) {
    for (; rows >= TILE; rows -= TILE, sum += TILE * ld, x += TILE * DEPTH)
        add_products(sum, x, w, depth, ld, TILE);
    switch (rows) {
        case 3: add_products(sum, x, w, depth, ld, 3); break;
        case 2: add_products(sum, x, w, depth, ld, 2); break;
        case 1: add_products(sum, x, w, depth, ld, 1); break;
        default: break;
    }
}

static void put_tail(const op_call *c, int64_t n, int64_t h) {
    const op_heads *at = &c->attr->heads;
    const tensor *y = &c->out[0];
    int64_t to = h * (at->out + at->tail) + at->out, bytes = v_element_bytes(y->dt);
    if (at->zero)
        memset((char *)y->data + (n * y->ld + to) * bytes, 0, (size_t)(at->tail * bytes));
    else
        copy_columns(y, n, to, &c->in[0], h * (at->in + at->tail) + at->in, at->tail);
}

/* x[n0 ...][d0 ...] of a head as floats [rows, DEPTH]; sums as numbers of y. */
V_INLINE void read_block(const op_call *c, int64_t h, int64_t n0, int64_t d0, int64_t rows,
                         int64_t depth, float *to, dtype dt) {
    int64_t at = h * (c->attr->heads.in + c->attr->heads.tail) + d0;
    for (int64_t n = 0; n < rows; n++) FOR_VECTORS(depth, j, left)
    put_upto(to, n * DEPTH + j, row_get(&c->in[0], n0 + n, at + j, left, dt), left, DT_F32);
}

V_INLINE void put_sums(const op_call *c, int64_t h, int64_t n0, int64_t rows, const float *sum,
                       int64_t ld, dtype dt) {
    int64_t out = c->attr->heads.out, at = h * (out + c->attr->heads.tail);
    for (int64_t n = 0; n < rows; n++) FOR_VECTORS(out, j, left)
    row_put(&c->out[0], n0 + n, at + j, get_upto(sum, n * ld + j, left, DT_F32), left, false, dt);
}

/* Rows [n0, n0 + rows) of a head; room: ROWS + DEPTH rows of y's width. */
static void turned_block(const op_call *c, int64_t h, int64_t n0, int64_t rows, float *room) {
    const op_heads *at = &c->attr->heads;
    dtype dt = c->in[0].dt;
    int64_t ld = padded(at->out), first = h * at->step + at->first;
    float *sum = room, *w = room + ROWS * ld, x[ROWS * DEPTH];
    memset(sum, 0, (size_t)(rows * ld) * sizeof *sum);
    for (int64_t d = 0; d < at->in; d += DEPTH) {
        int64_t depth = at->in - d < DEPTH ? at->in - d : DEPTH;
        for (int64_t i = 0; i < depth; i++)
            widen(w + i * ld, weight_row(c, first + d + i), at->out, c->in[1].dt);
        WITH_DTYPE(dt, read_block, c, h, n0, d, rows, depth, x);
        add_rows(sum, x, w, rows, depth, ld);
    }
    WITH_DTYPE(dt, put_sums, c, h, n0, rows, sum, ld);
    for (int64_t n = 0; at->tail > 0 && n < rows; n++) put_tail(c, n0 + n, h);
}

static void plain_head(const op_call *c, int64_t h, void *ws) {
    const op_heads *at = &c->attr->heads;
    const tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    int64_t x_bytes = v_element_bytes(x->dt);
    gemm_args g = {.m = x->rows, .n = at->out, .k = at->in, .lda = x->ld, .ldc = y->ld};
    g.a = (const char *)x->data + h * (at->in + at->tail) * x_bytes, g.ab_dt = x->dt;
    g.b = weight_row(c, h * at->step + at->first), g.ldb = w->ld, g.b_trans = true;
    g.c = (char *)y->data + h * (at->out + at->tail) * x_bytes, g.c_dt = y->dt;
    if (w->dt != x->dt) g.b_stored = w->dt;
    CPU_FN(product_by_row)(c->run->dev, false, 1, &g, ws);
    for (int64_t n = 0; at->tail > 0 && n < x->rows; n++) put_tail(c, n, h);
}

/* Bytes of a thread. */
static int64_t room_bytes(const dev *d, const op_attr *attr, int64_t rows, dtype x, dtype w) {
    const op_heads *at = &attr->heads;
    int64_t bytes = (ROWS + DEPTH) * padded(at->out) * (int64_t)sizeof(float);
    if (!at->turned) bytes = CPU_FN(product_by_row_ws)(d, false, 1, rows, at->out, at->in, x, w);
    return (bytes + 63) / 64 * 64;
}

static void headwise_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = dev_threads(io->dev) *
            room_bytes(io->dev, io->attr, io->in[0].rows, io->in[0].dt, io->in[1].dt);
}

static void headwise_fwd(const op_call *c) {
    const op_heads *at = &c->attr->heads;
    const tensor *x = &c->in[0];
    int64_t blocks = at->turned ? (x->rows + ROWS - 1) / ROWS : 1, H = at->heads;
    int64_t room = room_bytes(c->run->dev, c->attr, x->rows, x->dt, c->in[1].dt);
    int threads = x->rows * H * at->in * at->out < SMALL_LOOP ? 1 : call_threads(c);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < H * blocks; t++) {
        int64_t n0 = t % blocks * ROWS, rows = x->rows - n0 < ROWS ? x->rows - n0 : ROWS;
        char *mine = (char *)c->ws + omp_get_thread_num() * room;
        if (at->turned)
            turned_block(c, t / blocks, n0, rows, (float *)(void *)mine);
        else
            plain_head(c, t, mine);
    }
}

const op_impl CPU_FN(cpu_headwise) = {headwise_fwd, NULL, NULL, headwise_workspace};
