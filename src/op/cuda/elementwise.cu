/* ADD, SCALE, COPY and BIAS: y = c x + z + bias, with c = 1, or without z or the bias. CONCAT: two copies. FILL: y = c. DROPOUT: y =
 * x keep / (1-p) + z, by the draws of op/dropout.h. A number read (with z two; FILL: none) and one written, one FLOP
 * (DROPOUT: 11 integer products for four numbers); where the result is added, one more read. */
#include "op/cuda/column_sums.h"
#include "op/cuda/philox.h"

typedef struct scale_args {
    mat x, y, z;
    const float *bias;
    pieces p;
    float by;
    int32_t add;
} scale_args;

/* Adds the piece of z, if there is one. */
GPU_FN void add_piece(mat z, int64_t n, int32_t c, float v[VEC], int32_t wide) {
    float more[VEC];
    if (!z.p) return;
    piece_load(more, row_of(z, n) + c, wide);
    for (int k = 0; k < VEC; k++) v[k] += more[k];
}

KERNEL(scale_rows, scale_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC], more[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    piece_load(v, row_of(a->x, n) + c, a->p.wide);
    for (int k = 0; k < VEC; k++) v[k] *= a->by;
    add_piece(a->z, n, c, v, a->p.wide);
    if (a->bias) {
        piece_load_f32(more, a->bias + c, a->p.wide);
        for (int k = 0; k < VEC; k++) v[k] += more[k];
    }
    piece_put(row_of(a->y, n) + c, v, a->p.wide, a->add);
}

typedef struct fill_args {
    mat y;
    pieces p;
    const run_numbers *run; /* NULL: v is not scaled */
    float v;
} fill_args;

GPU_FN float fill_value(const fill_args *a) {
    return a->run ? a->v * a->run->grad_scale : a->v;
}

KERNEL(fill_rows, fill_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    for (int k = 0; k < VEC; k++) v[k] = fill_value(a);
    piece_store(row_of(a->y, n) + c, v, a->p.wide);
}

/* Of floats: statistics. */
KERNEL(fill_rows_f32, fill_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    for (int k = 0; k < VEC; k++) v[k] = fill_value(a);
    piece_put_f32(f32_row_of(a->y, n) + c, v, a->p.wide, false);
}

typedef struct dropout_args {
    mat x, y, z;
    pieces p;
    drawing draw;
    int64_t first_row, all_rows, cols; /* of a micro-batch, of which this rank may have some rows */
    int32_t add;
} dropout_args;

KERNEL(dropout_rows, dropout_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC], factor[4];
    if (!my_piece(&a->p, &n, &c)) return;
    uint64_t row = a->draw.run->micro_batch * (uint64_t)a->all_rows + (uint64_t)(a->first_row + n);
    uint64_t counter = row * (uint64_t)a->cols + (uint64_t)c;
    rng_key key = draw_key(&a->draw);
    piece_load(v, row_of(a->x, n) + c, a->p.wide);
    if (a->p.wide) {
        for (int k = 0; k < VEC; k += 4) {
            draw_factors(&a->draw, key, (counter + (uint64_t)k) >> 2, factor);
            for (int i = 0; i < 4; i++) v[k + i] = factor[i] > 0 ? v[k + i] * factor[i] : 0.0f;
        }
    } else {
        factor[0] = draw_factor(&a->draw, key, counter);
        v[0] = factor[0] > 0 ? v[0] * factor[0] : 0.0f;
    }
    add_piece(a->z, n, c, v, a->p.wide);
    piece_put(row_of(a->y, n) + c, v, a->p.wide, a->add);
}

#ifndef __CUDACC__

static float factor_of(const op_call *c) {
    return c->kind == OP_SCALE ? c->attr->scale.c : 1.0f;
}

/* y (+)= factor x + z; z may be absent. */
static void scale(const op_call *c, const tensor *x, const tensor *z, const tensor *y, bool add) {
    scale_args a = {.x = mat_of(x), .y = mat_of(y), .by = factor_of(c), .add = add};
    if (z->data) a.z = mat_of(z);
    a.p = pieces_of(y->rows, y->cols, is_wide(x) && is_wide(y) && (!z->data || is_wide(z)));
    launch(c, &scale_rows, grid_of_pieces(&a.p), &a);
}

static void scale_fwd(const op_call *c) {
    scale(c, &c->in[0], &c->in[1], &c->out[0], false);
}

static void scale_bwd(const op_call *c) {
    const tensor none = {0};
    if (c->din[0].data) scale(c, &c->dout[0], &none, &c->din[0], op_accumulates(c, 0));
}

const op_impl CUDA_IMPL(ADD) = {scale_fwd, NULL, NULL, NULL};
const op_impl CUDA_IMPL(SCALE) = {scale_fwd, scale_bwd, NULL, NULL};
const op_impl CUDA_IMPL(COPY) = {scale_fwd, scale_bwd, NULL, NULL};

static tensor columns(const tensor *t, int64_t first, int64_t n) {
    tensor part = *t;
    part.data = (STORE *)t->data + first;
    part.cols = n;
    return part;
}

static void concat_fwd(const op_call *c) {
    const tensor none = {0};
    for (int i = 0; i < 2; i++) {
        tensor part = columns(&c->out[0], i ? c->in[0].cols : 0, c->in[i].cols);
        scale(c, &c->in[i], &none, &part, false);
    }
}

static void concat_bwd(const op_call *c) {
    const tensor none = {0}, *dy = &c->dout[0];
    for (int i = 0; i < 2; i++) {
        const tensor *dx = &c->din[i];
        if (!dx->data) continue;
        tensor part = columns(dy, i ? dy->cols - dx->cols : 0, dx->cols);
        scale(c, &part, &none, dx, op_accumulates(c, i));
    }
}

const op_impl CUDA_IMPL(CONCAT) = {concat_fwd, concat_bwd, NULL, NULL};

static void bias_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *bias = &c->in[1], *y = &c->out[0];
    scale_args a = {.x = mat_of(x), .y = mat_of(y), .bias = bias->data, .by = 1};
    a.p = pieces_of(y->rows, y->cols, is_wide(x) && is_wide(y) && is_wide_f32(bias));
    launch(c, &scale_rows, grid_of_pieces(&a.p), &a);
}

static void bias_bwd_weight(const op_call *c) {
    if (!c->din[1].data) return;
    column_sums(c, &c->dout[0], &c->din[1], op_accumulates(c, 1), c->ws);
}

static void bias_workspace(const op_infer *io, int64_t ws[3]) {
    ws[2] = column_sums_bytes(io->in[0].rows, io->in[0].cols);
}

const op_impl CUDA_IMPL(BIAS) = {bias_fwd, NULL, bias_bwd_weight, bias_workspace};

static void fill_fwd(const op_call *c) {
    const tensor *y = &c->out[0];
    fill_args a = {.y = mat_of(y), .v = c->attr->fill.c};
    if (c->attr->fill.scaled) a.run = cuda_numbers(c->run->dev);
    bool stored = dtype_bytes(y->dt) == sizeof(STORE);
    a.p = pieces_of(y->rows, y->cols, stored ? is_wide(y) : is_wide_f32(y));
    launch(c, stored ? &fill_rows : &fill_rows_f32, grid_of_pieces(&a.p), &a);
}

const op_impl CUDA_IMPL(FILL) = {fill_fwd, NULL, NULL, NULL};

static void dropout(const op_call *c, const tensor *x, const tensor *z, const tensor *y, bool add) {
    dropout_args a = {.x = mat_of(x), .y = mat_of(y), .cols = y->cols, .add = add};
    a.first_row = c->attr->dropout.first_row;
    a.all_rows = c->attr->dropout.all_rows ? c->attr->dropout.all_rows : y->rows;
    /* Rows that are wide have a multiple of 4 elements, and so begin with such a counter. */
    if (z->data) a.z = mat_of(z);
    a.p = pieces_of(y->rows, y->cols, is_wide(x) && is_wide(y) && (!z->data || is_wide(z)));
    a.draw = draws_of(c, c->attr->dropout.p, c->attr->dropout.stream);
    launch(c, &dropout_rows, grid_of_pieces(&a.p), &a);
}

static void dropout_fwd(const op_call *c) {
    dropout(c, &c->in[0], &c->in[1], &c->out[0], false);
}

static void dropout_bwd(const op_call *c) {
    const tensor none = {0};
    if (c->din[0].data) dropout(c, &c->dout[0], &none, &c->din[0], op_accumulates(c, 0));
}

const op_impl CUDA_IMPL(DROPOUT) = {dropout_fwd, dropout_bwd, NULL, NULL};
#endif
