/* EMBED and TAKE_ROWS: rows of a table, or of an activation, by number. AHEAD: numbers of later rows. Backward: the sum of the rows of
 * dy that took the same row, in order of n, so that the bits do not depend on how blocks run.
 *
 * Forward: a number read and one written. Backward, in five steps (N places, C columns):
 *   zero   the rows of the result, if it is not added to
 *   sort   a warp for each place counts the places with a lower id, and the earlier ones with the same
 *          one: their sum is its rank. N^2 ids are read, from the cache: 14 us at N = 8192 on 132
 *          multiprocessors, 1 ms at N = 65536.
 *   sum    places of one id lie together now. A block adds up to CHUNK of them, for some columns, and
 *          writes the sum: to the result if those are all places of the id, else to the workspace
 *   join   adds the sums of chunks for ids that have more places
 * dy is read once; of each row that was taken 4 bytes per column are written, and of frequent rows 8
 * per chunk go through memory. Which sums are made of a row's places depends on these alone, not on
 * those of other rows: a table of which ranks have parts gets the same bits. */
#include "op/cuda/pieces.h"
#include "op/cuda/stored.h"

enum { CHUNK = 32, SORT_THREADS = 256 };

typedef struct rows_args {
    mat from, ids, to; /* backward: dy, ids, the gradient */
    pieces p;          /* forward: of `to`; zeroing: of the gradient */
    int64_t rows;      /* of the table or of its part */
    int64_t all_rows, first, no_grad;
    int64_t places;
    int32_t *order, *begin;     /* by rank: the place, and the first rank of its id */
    float *part;                /* [2 * places / CHUNK + 2, cols] */
    int32_t cols, wide, across; /* across: blocks for the columns of a row */
    int32_t table_dt;           /* of a table in another format, which has rows of so many bytes */
    int64_t row_bytes;
    int32_t nothing; /* negative ids are fine, and mean no row */
    int32_t is_param, add;
} rows_args;

GPU_FN int32_t id_at(const rows_args *a, int64_t n) {
    return *i32_row_of(a->ids, n);
}

/* The row of place n; negative: none. */
GPU_FN int64_t row_at(const rows_args *a, int64_t n) {
    int64_t id = id_at(a, n);
    kernel_check(id < a->all_rows && (id >= 0 || a->nothing), "finds an id outside the table");
    int64_t row = id < 0 ? -1 : id - a->first;
    return row < a->rows ? row : -1;
}

/* ---- forward ---- */

KERNEL(rows_fwd, rows_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    int64_t row = row_at(a, n);
    for (int k = 0; k < VEC; k++) v[k] = 0;
    if (row >= 0) piece_load(v, row_of(a->from, row) + c, a->p.wide);
    piece_store(row_of(a->to, n) + c, v, a->p.wide);
}

#if defined(CUDA_STORE_F32)
/* A table as files store it, in programs of f32. A piece has STORED_STEP elements. */
KERNEL(rows_stored, rows_args, PIECE_THREADS) {
    int64_t i = (int64_t)block_x() * threads_x() + thread_x();
    if (i >= a->p.n) return;
    int64_t n = i / a->p.in_row, row = row_at(a, n);
    int32_t c = (int32_t)(i - n * a->p.in_row) * STORED_STEP;
    float v[STORED_STEP];
    for (int k = 0; k < STORED_STEP; k++) v[k] = 0;
    const uint8_t *table = (const uint8_t *)a->from.p;
    if (row >= 0) stored_read8(a->table_dt, table + row * a->row_bytes, a->cols, c, v);
    float *y = row_of(a->to, n) + c;
    for (int k = 0; k < STORED_STEP; k++)
        if (c + k < a->cols) y[k] = v[k];
}
#endif

typedef struct ahead_args {
    mat x, start, y;
    int64_t rows, T, by;
    int32_t otherwise;
} ahead_args;

KERNEL(ahead, ahead_args, PIECE_THREADS) {
    int64_t n = (int64_t)block_x() * threads_x() + thread_x();
    if (n >= a->rows) return;
    bool there = n % a->T + a->by < a->T;
    if (there && a->start.p) there = *i32_row_of(a->start, n) == *i32_row_of(a->start, n + a->by);
    ((int32_t *)a->y.p)[n * a->y.ld] = there ? *i32_row_of(a->x, n + a->by) : a->otherwise;
}

/* ---- backward ---- */

GPU_FN void put_row(const rows_args *a, int64_t row, int32_t c, const float v[VEC], bool add) {
    if (a->is_param)
        piece_put_f32(f32_row_of(a->to, row) + c, v, a->wide, add);
    else
        piece_put(row_of(a->to, row) + c, v, a->wide, add);
}

KERNEL(rows_zero, rows_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    for (int k = 0; k < VEC; k++) v[k] = 0;
    put_row(a, n, c, v, false);
}

KERNEL(rows_sort, rows_args, SORT_THREADS) {
    int64_t n = (int64_t)block_x() * (threads_x() / GPU_WARP) + warp();
    if (n >= a->places) return;
    int32_t mine = id_at(a, n);
    uint32_t lower = 0, same = 0;
    for (int64_t m = lane(); m < a->places; m += GPU_WARP) {
        int32_t id = id_at(a, m);
        lower += id < mine;
        same += id == mine && m < n;
    }
    for (int m = 16; m > 0; m >>= 1) {
        lower += shuffle_xor_u32(lower, m);
        same += shuffle_xor_u32(same, m);
    }
    if (lane() != 0) return;
    a->order[lower + same] = (int32_t)n;
    a->begin[lower + same] = (int32_t)lower;
}

/* True if rank r exists and has the id that begins at rank `begin`. */
GPU_FN bool is_of(const rows_args *a, int64_t r, int32_t begin) {
    return r < a->places && a->begin[r] == begin;
}

/* Of the chunks that begin in CHUNK successive ranks at most one is the first of an id with several
 * chunks, and at most one is a later chunk. */
GPU_FN float *part_at(const rows_args *a, int64_t r, bool is_first) {
    return a->part + (r / CHUNK * 2 + is_first) * a->cols;
}

/* The row of the gradient for the places from rank r on; negative: none. */
GPU_FN int64_t gradient_row(const rows_args *a, int64_t r) {
    int64_t n = a->order[r];
    return id_at(a, n) == a->no_grad ? -1 : row_at(a, n);
}

KERNEL(rows_sum, rows_args, PIECE_THREADS) {
    int64_t r = block_x() / a->across, row;
    int32_t c = (int32_t)(block_x() % a->across * threads_x() + thread_x()) * (a->wide ? VEC : 1);
    int32_t begin = a->begin[r];
    if (c >= a->cols || (r - begin) % CHUNK != 0) return;
    row = gradient_row(a, r);
    if (row < 0) return;
    float sum[VEC], v[VEC];
    for (int k = 0; k < VEC; k++) sum[k] = 0;
    for (int i = 0; i < CHUNK && is_of(a, r + i, begin); i++) {
        piece_load(v, row_of(a->from, a->order[r + i]) + c, a->wide);
        for (int k = 0; k < VEC; k++) sum[k] += v[k];
    }
    if (r == begin && !is_of(a, r + CHUNK, begin))
        put_row(a, row, c, sum, a->add);
    else
        piece_put_f32(part_at(a, r, r == begin) + c, sum, a->wide, false);
}

/* The rank in which an id with several chunks begins, among CHUNK ranks from r on; else negative. */
GPU_FN int64_t first_of_long(const rows_args *a, int64_t r) {
    int64_t mine = r + lane();
    bool is = mine < a->places && a->begin[mine] == mine && is_of(a, mine + CHUNK, (int32_t)mine);
    uint32_t found = warp_ballot(is), at = 0;
    if (found == 0) return -1;
    while (!(found >> at & 1u)) at++;
    return r + at;
}

KERNEL(rows_join, rows_args, PIECE_THREADS) {
    int64_t first = first_of_long(a, (int64_t)(block_x() / a->across) * CHUNK);
    int32_t c = (int32_t)(block_x() % a->across * threads_x() + thread_x()) * (a->wide ? VEC : 1);
    if (first < 0 || c >= a->cols) return;
    int64_t row = gradient_row(a, first);
    if (row < 0) return;
    float sum[VEC], v[VEC];
    piece_load_f32(sum, part_at(a, first, true) + c, a->wide);
    for (int64_t r = first + CHUNK; is_of(a, r, (int32_t)first); r += CHUNK) {
        piece_load_f32(v, part_at(a, r, false) + c, a->wide);
        for (int k = 0; k < VEC; k++) sum[k] += v[k];
    }
    put_row(a, row, c, sum, a->add);
}

#ifndef __CUDACC__

/* Of a call of either op. */
static rows_args rows_open(const op_call *c) {
    const tensor *table = &c->in[0];
    rows_args a = {.ids = mat_of(&c->in[1]), .places = c->in[1].rows, .rows = table->rows};
    a.all_rows = a.rows, a.no_grad = -1, a.cols = (int32_t)table->cols;
    a.nothing = c->kind == OP_TAKE_ROWS;
    if (c->kind == OP_EMBED) {
        a.first = c->attr->embed.first, a.no_grad = c->attr->embed.no_grad_id;
        if (c->attr->embed.all_rows) a.all_rows = c->attr->embed.all_rows;
    }
    return a;
}

#if defined(CUDA_STORE_F32)
static void take_stored(const op_call *c, rows_args *a) {
    const tensor *table = &c->in[0];
    a->table_dt = (int32_t)table->dt;
    a->row_bytes = dtype_span_bytes(table->dt, table->ld);
    a->p.in_row = (a->cols + STORED_STEP - 1) / STORED_STEP;
    a->p.n = a->places * a->p.in_row;
    launch(c, &rows_stored, grid_of_pieces(&a->p), a);
}
#endif

static void take(const op_call *c) {
    const tensor *y = &c->out[0];
    rows_args a = rows_open(c);
    a.from = mat_of(&c->in[0]), a.to = mat_of(y);
#if defined(CUDA_STORE_F32)
    if (c->in[0].dt != y->dt) {
        take_stored(c, &a);
        return;
    }
#endif
    a.p = pieces_of(y->rows, y->cols, is_wide(y) && is_wide(&c->in[0]));
    launch(c, &rows_fwd, grid_of_pieces(&a.p), &a);
}

/* Bytes of the workspace; its parts begin at multiples of 64. */
static int64_t ints_bytes(int64_t places) {
    return (places * (int64_t)sizeof(int32_t) + 63) / 64 * 64;
}

static int64_t give_bytes(const op_infer *io) {
    int64_t places = io->in[1].rows, parts = 2 * (places / CHUNK + 1);
    return 2 * ints_bytes(places) + parts * io->in[0].cols * (int64_t)sizeof(float);
}

static void give(const op_call *c, bool is_param) {
    const tensor *dy = &c->dout[0], *to = &c->din[0];
    if (!to->data) return;
    rows_args a = rows_open(c);
    a.from = mat_of(dy), a.to = mat_of(to);
    a.is_param = is_param, a.add = op_accumulates(c, 0);
    a.order = c->ws, a.begin = a.order + ints_bytes(a.places) / (int64_t)sizeof(int32_t);
    a.part = (float *)(void *)(a.begin + ints_bytes(a.places) / (int64_t)sizeof(int32_t));
    a.wide = is_wide(dy) && (is_param ? is_wide_f32(to) : is_wide(to));
    a.p = pieces_of(to->rows, to->cols, a.wide);
    if (!a.add) launch(c, &rows_zero, grid_of_pieces(&a.p), &a);
    uint32_t warps = a.places < 4 ? 1 : SORT_THREADS / GPU_WARP;
    launch(c, &rows_sort, (gpu_grid){blocks_for(a.places, warps), 1, 1, warps * GPU_WARP, 0}, &a);
    uint32_t threads = threads_for(a.p.in_row, PIECE_THREADS);
    a.across = (int32_t)blocks_for(a.p.in_row, threads);
    uint32_t across = (uint32_t)a.across;
    launch(c, &rows_sum, (gpu_grid){(uint32_t)a.places * across, 1, 1, threads, 0}, &a);
    uint32_t windows = blocks_for(a.places, CHUNK);
    launch(c, &rows_join, (gpu_grid){windows * across, 1, 1, threads, 0}, &a);
}

static void embed_bwd_weight(const op_call *c) {
    give(c, true);
}
static void embed_workspace(const op_infer *io, int64_t ws[3]) {
    ws[2] = give_bytes(io);
}
static void take_rows_bwd(const op_call *c) {
    give(c, false);
}
static void take_rows_workspace(const op_infer *io, int64_t ws[3]) {
    ws[1] = give_bytes(io);
}

const op_impl CUDA_IMPL(EMBED) = {take, NULL, embed_bwd_weight, embed_workspace};
const op_impl CUDA_IMPL(TAKE_ROWS) = {take, take_rows_bwd, NULL, take_rows_workspace};

static void ahead_fwd(const op_call *c) {
    ahead_args a = {.x = mat_of(&c->in[1]), .y = mat_of(&c->out[0]), .rows = c->out[0].rows};
    if (c->in[2].data) a.start = mat_of(&c->in[2]);
    a.T = c->attr->ahead.T, a.by = c->attr->ahead.by, a.otherwise = c->attr->ahead.otherwise;
    launch(c, &ahead, (gpu_grid){blocks_for(a.rows, PIECE_THREADS), 1, 1, PIECE_THREADS, 0}, &a);
}

const op_impl CUDA_IMPL(AHEAD) = {ahead_fwd, NULL, NULL, NULL};
#endif
