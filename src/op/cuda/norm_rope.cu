/* NORM_ROPE: of each head n = x rstd w, and y = n whose pairs (i, partner) turn by the angle of the position:
 *   y1 = n1 cos - n2 sin,  y2 = n2 cos + n1 sin
 * Backward: dy turns by the opposite angle and is dn; with g = dn w and xn = x rstd
 *   dx = rstd (g - xn mean(g xn));  dw = sum over rows and heads of dn xn
 *
 * A head is the work of a warp. A lane makes a piece of y from the piece at its place and that of the partners, which
 * comes from the cache: x is read once from memory and y written once, where a norm and a rotation of their own read and
 * write twice. Backward: dy and x are read and dx written; dw reads both once more, in slices as in norm.cu.
 * 7 FLOPs per number forward, 12 backward. */
#include "op/cuda/pieces.h"

typedef struct norm_rope_args {
    mat x, y, dy, dx, rstd, pos;
    const float *w, *table;
    float *sums, *dw; /* sums [slices, width] */
    int64_t n;        /* heads of all rows */
    int64_t table_rows;
    int32_t heads, width, half, begin; /* pairs of a head; with which column they begin */
    int32_t interleaved, wide, slices;
    float eps;
    int32_t unit_offset, add_dx, add_w;
} norm_rope_args;

enum { TURN_THREADS = 256, TURN_WARPS = 8 };

/* A head: its row, and what its pairs turn by. */
typedef struct head_at {
    int64_t row;
    int32_t column, head;
    const float *angles; /* cosines, then sines */
} head_at;

GPU_FN head_at find_head(const norm_rope_args *a, int64_t i) {
    head_at h;
    h.row = i / a->heads, h.head = (int32_t)(i % a->heads), h.column = h.head * a->width;
    int32_t pos = *i32_row_of(a->pos, h.row);
    kernel_check(pos >= 0 && pos < a->table_rows, "finds a position outside the table");
    h.angles = a->table + (int64_t)pos * 2 * a->half;
    return h;
}

GPU_FN int32_t per_piece(const norm_rope_args *a) {
    return a->wide ? VEC : 1;
}

GPU_FN void load_gain(const norm_rope_args *a, int32_t c, float gain[VEC]) {
    for (int k = 0; k < VEC; k++) gain[k] = a->unit_offset && a->w ? 0.0f : 1.0f;
    if (!a->w) return;
    piece_load_f32(gain, a->w + c, a->wide);
    for (int k = 0; k < VEC; k++) gain[k] += a->unit_offset ? 1.0f : 0.0f;
}

/* The piece at column c of a head, times rstd and the weights; rstd 0: as it is. */
GPU_FN void head_piece(const norm_rope_args *a, const STORE *head, int32_t c, float rstd,
                       float v[VEC]) {
    float gain[VEC];
    piece_load(v, head + c, a->wide);
    if (rstd == 0) return;
    load_gain(a, c, gain);
    for (int k = 0; k < VEC; k++) v[k] *= rstd * gain[k];
}

/* Number j of the pairs, its partner, and the angle of the pair. */
GPU_FN float turned(float v, float partner, float co, float si, bool second) {
    return second ? v * co + partner * si : v * co - partner * si;
}

GPU_FN void turn_halves(const norm_rope_args *a, const STORE *head, const head_at *h, int32_t c,
                        float rstd, float sign, float v[VEC]) {
    bool second = c - a->begin >= a->half;
    int32_t i = c - a->begin - (second ? a->half : 0);
    float other[VEC], co[VEC], si[VEC];
    head_piece(a, head, second ? c - a->half : c + a->half, rstd, other);
    piece_load_f32(co, h->angles + i, a->wide);
    piece_load_f32(si, h->angles + a->half + i, a->wide);
    for (int k = 0; k < VEC; k++) v[k] = turned(v[k], other[k], co[k], sign * si[k], second);
}

/* Pairs lie in one piece, or in two of one number each. */
GPU_FN void turn_neighbours(const norm_rope_args *a, const STORE *head, const head_at *h, int32_t c,
                            float rstd, float sign, float v[VEC]) {
    int32_t j = c - a->begin;
    float other[VEC];
    if (a->wide)
        for (int k = 0; k < VEC; k++) other[k] = v[k ^ 1];
    else
        head_piece(a, head, j % 2 ? c - 1 : c + 1, rstd, other);
    for (int k = 0; k < VEC && (a->wide || k == 0); k++) {
        float co = h->angles[(j + k) / 2], si = sign * h->angles[a->half + (j + k) / 2];
        v[k] = turned(v[k], other[k], co, si, (j + k) % 2);
    }
}

/* The piece at column c of a head after it was normed (rstd 0: not) and turned. */
GPU_FN void turned_piece(const norm_rope_args *a, const STORE *head, const head_at *h, int32_t c,
                         float rstd, float sign, float v[VEC]) {
    head_piece(a, head, c, rstd, v);
    if (c < a->begin || c >= a->begin + 2 * a->half) return;
    if (a->interleaved)
        turn_neighbours(a, head, h, c, rstd, sign, v);
    else
        turn_halves(a, head, h, c, rstd, sign, v);
}

GPU_FN int64_t my_head(void) {
    return (int64_t)block_x() * (threads_x() / GPU_WARP) + warp();
}

KERNEL(norm_rope_fwd, norm_rope_args, TURN_THREADS) {
    if (my_head() >= a->n) return;
    head_at h = find_head(a, my_head());
    const STORE *x = row_of(a->x, h.row) + h.column;
    STORE *y = row_of(a->y, h.row) + h.column;
    int32_t per = per_piece(a), step = GPU_WARP * per;
    float v[VEC], sum = 0;
    for (int32_t c = (int32_t)lane() * per; c < a->width; c += step) {
        piece_load(v, x + c, a->wide);
        for (int k = 0; k < VEC; k++) sum += v[k] * v[k];
    }
    float rstd = 1.0f / sqrtf(warp_sum(sum) / (float)a->width + a->eps);
    if (lane() == 0) f32_row_of(a->rstd, h.row)[h.head] = rstd;
    for (int32_t c = (int32_t)lane() * per; c < a->width; c += step) {
        turned_piece(a, x, &h, c, rstd, 1, v);
        piece_store(y + c, v, a->wide);
    }
}

KERNEL(norm_rope_bwd, norm_rope_args, TURN_THREADS) {
    if (my_head() >= a->n) return;
    head_at h = find_head(a, my_head());
    const STORE *x = row_of(a->x, h.row) + h.column, *dy = row_of(a->dy, h.row) + h.column;
    STORE *dx = row_of(a->dx, h.row) + h.column;
    int32_t per = per_piece(a), step = GPU_WARP * per;
    float rstd = f32_row_of(a->rstd, h.row)[h.head], xn[VEC], g[VEC], gain[VEC], sum = 0;
    for (int32_t c = (int32_t)lane() * per; c < a->width; c += step) {
        turned_piece(a, dy, &h, c, 0, -1, g);
        load_gain(a, c, gain);
        piece_load(xn, x + c, a->wide);
        for (int k = 0; k < VEC; k++) sum += g[k] * gain[k] * xn[k] * rstd;
    }
    float mean = warp_sum(sum) / (float)a->width;
    for (int32_t c = (int32_t)lane() * per; c < a->width; c += step) {
        turned_piece(a, dy, &h, c, 0, -1, g);
        load_gain(a, c, gain);
        piece_load(xn, x + c, a->wide);
        for (int k = 0; k < VEC; k++) g[k] = rstd * (g[k] * gain[k] - xn[k] * rstd * mean);
        piece_put(dx + c, g, a->wide, a->add_dx);
    }
}

/* A block takes a piece of columns for each lane, and a slice of the heads. */
KERNEL(norm_rope_sums, norm_rope_args, TURN_THREADS) {
    SHARED(float, room, TURN_WARPS *GPU_WARP *VEC);
    int32_t c = (int32_t)(block_x() * GPU_WARP + lane()) * per_piece(a);
    int32_t threads = (int32_t)threads_x();
    int64_t first = a->n * block_y() / a->slices, end = a->n * (block_y() + 1) / a->slices;
    float sum[VEC], x[VEC], g[VEC];
    for (int k = 0; k < VEC; k++) sum[k] = 0;
    for (int64_t i = first + warp(); i < end && c < a->width; i += threads / GPU_WARP) {
        head_at h = find_head(a, i);
        turned_piece(a, row_of(a->dy, h.row) + h.column, &h, c, 0, -1, g);
        piece_load(x, row_of(a->x, h.row) + h.column + c, a->wide);
        float rstd = f32_row_of(a->rstd, h.row)[h.head];
        for (int k = 0; k < VEC; k++) sum[k] += g[k] * x[k] * rstd;
    }
    for (int k = 0; k < VEC; k++) room[k * threads + (int32_t)thread_x()] = sum[k];
    sync_block();
    if (warp() != 0 || c >= a->width) return;
    for (int32_t w = 1; w < threads / GPU_WARP; w++)
        for (int k = 0; k < VEC; k++) sum[k] += room[k * threads + w * GPU_WARP + (int32_t)lane()];
    piece_put_f32(a->sums + (int64_t)block_y() * a->width + c, sum, a->wide, false);
}

KERNEL(norm_rope_join, norm_rope_args, TURN_THREADS) {
    int32_t c = (int32_t)(block_x() * threads_x() + thread_x());
    if (c >= a->width) return;
    float sum = 0;
    for (int32_t s = 0; s < a->slices; s++) sum += a->sums[(int64_t)s * a->width + c];
    put_f32(&a->dw[c], sum, a->add_w);
}

#ifndef __CUDACC__

/* Whether all pieces of 16 bytes lie in one part of a head. */
static bool is_turn_wide(const op_call *c, const norm_rope_args *a) {
    int32_t apart = a->interleaved ? 2 * a->half : a->half;
    const tensor *rows[] = {&c->in[0], &c->out[0], &c->dout[0], &c->din[0], &c->in[3]};
    for (int i = 0; i < 5; i++)
        if (!is_wide(rows[i])) return false;
    return apart % VEC == 0 && a->width % VEC == 0 && a->begin % VEC == 0 &&
           (!c->in[1].data || is_wide_f32(&c->in[1]));
}

static norm_rope_args open_call(const op_call *c) {
    const op_attr *at = c->attr;
    norm_rope_args a = {
        .x = mat_of(&c->in[0]), .y = mat_of(&c->out[0]), .rstd = mat_of(&c->out[1])};
    a.dy = mat_of(&c->dout[0]), a.dx = mat_of(&c->din[0]), a.pos = mat_of(&c->in[2]);
    a.w = c->in[1].data, a.table = c->in[3].data, a.table_rows = c->in[3].rows;
    a.width = at->norm_rope.head_dim, a.heads = (int32_t)(c->in[0].cols / a.width);
    a.half = at->norm_rope.rotary_dim / 2, a.begin = at->norm_rope.first;
    a.interleaved = at->norm_rope.interleaved;
    a.n = c->in[0].rows * a.heads;
    a.eps = at->norm_rope.eps, a.unit_offset = at->norm_rope.unit_offset;
    a.wide = is_turn_wide(c, &a);
    return a;
}

static void launch_heads(const op_call *c, const gpu_kernel *k, const norm_rope_args *a) {
    uint32_t threads = threads_for(a->n * GPU_WARP, TURN_THREADS);
    launch(c, k, (gpu_grid){blocks_for(a->n, threads / GPU_WARP), 1, 1, threads, 0}, a);
}

static void norm_rope_forward(const op_call *c) {
    norm_rope_args a = open_call(c);
    launch_heads(c, &norm_rope_fwd, &a);
}

/* As in norm.cu. */
static int32_t slices_for(int64_t n) {
    int64_t s = n / 64;
    return (int32_t)(s < 1 ? 1 : s > 128 ? 128 : s);
}

static void norm_rope_backward(const op_call *c) {
    norm_rope_args a = open_call(c);
    a.add_dx = op_accumulates(c, 0);
    if (a.dx.p) launch_heads(c, &norm_rope_bwd, &a);
    if (!c->din[1].data) return;
    a.slices = slices_for(a.n);
    a.sums = c->ws, a.dw = c->din[1].data, a.add_w = op_accumulates(c, 1);
    uint32_t across = blocks_for(a.width, (int64_t)GPU_WARP * per_piece(&a));
    uint32_t threads = threads_for(a.n / a.slices * GPU_WARP, TURN_WARPS * GPU_WARP);
    launch(c, &norm_rope_sums, (gpu_grid){across, (uint32_t)a.slices, 1, threads, 0}, &a);
    threads = threads_for(a.width, TURN_THREADS);
    launch(c, &norm_rope_join, (gpu_grid){blocks_for(a.width, threads), 1, 1, threads, 0}, &a);
}

static void norm_rope_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t width = io->attr->norm_rope.head_dim, heads = io->in[0].cols / width;
    ws[1] = (int64_t)sizeof(float) * slices_for(io->in[0].rows * heads) * width;
}

const op_impl CUDA_IMPL(NORM_ROPE) = {norm_rope_forward, norm_rope_backward, NULL,
                                      norm_rope_workspace};
#endif
