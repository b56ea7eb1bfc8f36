/* ATTENTION: which kernels run, with which grids.
 *
 * Reading order: attention.h (what is shared), attention_any.h (plain arithmetic, any head size),
 * attention_mma.h (tensor cores).
 * Nothing of size Tq Tk is stored. Forward reads q once and k, v once per block of queries. Backward
 * has one kernel that passes over the queries for each block of keys (dk, dv), and one that passes
 * over the keys for each block of queries (dq), so that every sum has one order. Tiles of keys that
 * no query of a block sees are not visited. */
#include "op/cuda/attention_any.h"
#ifndef CUDA_STORE_F32
#include "op/cuda/attention_mma.h"
#endif

#ifndef __CUDACC__
#include "op/cuda/host.h"
#include "op/dropout.h"

enum {
    BIAS = 6, /* the input */
    MOST_SPLITS = 64,
    SPLIT_KEYS = 128, /* at least so many keys for each block */
    FEW_QUERIES = 16,
    FULL_GRID = 512 /* blocks that keep the largest devices busy */
};

/* The common arguments. Workspace and grids depend on shapes alone, so that the plan and the bits are
 * those of every device. */
static attention_args shape_of(const op_attr *at) {
    const op_attention *s = &at->attention;
    attention_args a = {
        .B = s->B, .Tq = s->Tq, .Tk = s->Tk, .H = s->H, .K = s->K, .D = s->D, .Dv = s->Dv};
    a.scale = s->scale, a.softcap = s->softcap, a.window = s->window, a.chunk = s->chunk;
    a.causal = s->causal;
    a.by_head = s->by_head;
    a.pack = a.chunks = a.splits = a.tiles = 1;
    return a;
}

/* Rows of a block of plain arithmetic, with 2 threads for each. */
static int32_t any_rows(int64_t rows) {
    return rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}

static gpu_grid any_grid(int64_t blocks, int32_t rows, int64_t shared) {
    return (gpu_grid){(uint32_t)blocks, 1, 1, (uint32_t)rows * 2, (uint32_t)shared};
}

/* Shared memory; decides whether the operands of rows stay. two: dq, dk and dv have two. */
static int64_t any_shared(attention_args *a, int32_t rows, bool two) {
    int64_t floats = 2 * ANY_COLS * ANY_STRIDE + (int64_t)rows * ANY_P_STRIDE;
    int64_t tile = (int64_t)rows * ANY_STRIDE;
    int64_t all =
        (a->D + ANY_CHUNK - 1) / ANY_CHUNK + (two ? (a->Dv + ANY_CHUNK - 1) / ANY_CHUNK : 0);
    a->keep = (floats + all * tile) * (int64_t)sizeof(float) <= GPU_MOST_DYNAMIC_BYTES - 1024;
    return (floats + (a->keep ? all : two ? 2 : 1) * tile) * (int64_t)sizeof(float);
}

/* How forward shares out its work: few queries are packed, and where there are few blocks, several
 * share the keys. */
static void share_forward(attention_args *a) {
    if (a->Tq < FEW_QUERIES) a->pack = a->H / a->K;
    int64_t rows = (int64_t)a->pack * a->Tq, groups = (int64_t)a->B * (a->H / a->pack);
    int64_t blocks = blocks_for(rows, any_rows(rows)) * groups;
    int64_t splits = (FULL_GRID + blocks - 1) / blocks, most_splits = a->Tk / SPLIT_KEYS;
    if (splits > most_splits) splits = most_splits;
    a->splits = (int32_t)(splits < 1 ? 1 : splits > MOST_SPLITS ? MOST_SPLITS : splits);
}

static int64_t part_rows(const attention_args *a) {
    return (int64_t)a->B * a->H * a->Tq * a->splits;
}

static bool heads_are_wide(const tensor *t, int64_t d) {
    return is_wide(t) && d * (int64_t)dtype_bytes(t->dt) % 16 == 0;
}

static attention_args open_call(const op_call *c) {
    attention_args a = shape_of(c->attr);
    const op_attention *s = &c->attr->attention;
    a.q = mat_of(&c->in[0]), a.k = mat_of(&c->in[1]), a.v = mat_of(&c->in[2]);
    a.sinks = c->in[ATTENTION_SINKS].data;
    a.bias = mat_of(&c->in[BIAS]), a.bias_rows = (int32_t)c->in[BIAS].rows;
    a.bias_zero = s->bias_zero;
    a.start = mat_of(&c->in[3]), a.qpos = mat_of(&c->in[4]), a.end = mat_of(&c->in[5]);
    a.o = mat_of(&c->out[0]), a.lse = mat_of(&c->out[1]), a.d_o = mat_of(&c->dout[0]);
    a.dq = mat_of(&c->din[0]), a.dk = mat_of(&c->din[1]), a.dv = mat_of(&c->din[2]);
    a.narrow = c->in[1].dt == DT_F16 && c->in[0].dt == DT_F32;
    a.wide = heads_are_wide(&c->in[0], a.D) && heads_are_wide(&c->in[1], a.D) &&
             heads_are_wide(&c->in[2], a.Dv) && heads_are_wide(&c->dout[0], a.Dv);
    a.all_heads = s->all_heads ? s->all_heads : a.H, a.first_head = s->first_head;
    if (s->dropout <= 0) return a;
    a.draw = draws_of(c, s->dropout, s->stream);
    return a;
}

/* ---- tensor cores ---- */

#ifndef CUDA_STORE_F32
/* Whether they take the call: all rows and heads aligned, heads of up to 256 numbers. */
static bool takes_mma(const op_call *c, const attention_args *a) {
    const tensor *result[] = {&c->out[0], &c->din[0], &c->din[1], &c->din[2]};
    for (int i = 0; i < 4; i++)
        if (!is_wide(result[i])) return false;
    return a->wide && a->D <= MMA_MOST_W && a->Dv <= MMA_MOST_W && !a->bias.p;
}

/* A kernel and its form; most: its threads. */
typedef struct mma_kernel {
    const gpu_kernel *kernel;
    int32_t most, w, u, columns, bands;
} mma_kernel;
#define X(name, threads, w, u, columns, bands, ...) {&name, threads, w, u, columns, bands},
static const mma_kernel FORWARD_KERNELS[] = {MMA_FORWARD(X)};
static const mma_kernel ONE_KERNELS[] = {MMA_ONE(X)};
static const mma_kernel QUERY_KERNELS[] = {MMA_QUERIES(X)};
static const mma_kernel KEY_KERNELS[] = {MMA_KEYS(X)};
#undef X

/* Which form takes these heads: its place in the lists. */
static int mma_form_of(const attention_args *a) {
    int32_t d = a->D > a->Dv ? a->D : a->Dv;
    if (d <= 128) return d > 64;
    return a->D <= 192 && a->Dv <= 128 ? 2 : 3;
}

/* Runs a kernel with as few warps as the rows need: `rows` in each of `heads` heads; two: there are two
 * operands of rows in shared memory, beside four of columns. */
static void launch_mma(const op_call *c, attention_args *a, const mma_kernel *k, int64_t rows,
                       int64_t heads, bool two) {
    int32_t warps = 1, band = MMA_ROWS * k->bands;
    while (warps * band < rows && warps * GPU_WARP < k->most) warps *= 2;
    a->tiles = (int32_t)blocks_for(rows, warps * band);
    int64_t numbers = (int64_t)warps * band * (k->w + (two ? k->u : 0));
    numbers += 2 * (int64_t)k->columns * (k->w + k->u);
    gpu_grid g = {(uint32_t)(heads * a->tiles), 1, 1, (uint32_t)warps * GPU_WARP, 0};
    g.shared_bytes = (uint32_t)(numbers * (int64_t)sizeof(STORE));
    launch(c, k->kernel, g, a);
}

/* Large heads have a kernel for keys and one for values: the last two of the list. */
static void launch_mma_keys(const op_call *c, attention_args *a) {
    const mma_kernel *k = &KEY_KERNELS[mma_form_of(a)];
    int64_t heads = (int64_t)a->B * a->K;
    bool apart = mma_form_of(a) == 3;
    if (!apart || a->dk.p) launch_mma(c, a, k, a->Tk, heads, true);
    if (apart && a->dv.p) launch_mma(c, a, k + 1, a->Tk, heads, true);
}
#endif

/* ---- the op ---- */

/* Plain arithmetic: `rows` in each of `heads` heads, results of `width` columns; two: any_shared. */
static void launch_any(const op_call *c, attention_args *a, const gpu_kernel *k, int64_t rows,
                       int64_t heads, int32_t width, bool two) {
    int32_t block_rows = any_rows(rows);
    a->tiles = (int32_t)blocks_for(rows, block_rows);
    a->chunks = (width + ANY_CHUNK - 1) / ANY_CHUNK;
    int64_t shared = any_shared(a, block_rows, two);
    launch(c, k, any_grid(heads * a->tiles * a->chunks, block_rows, shared), a);
}

static void forward_parts(const op_call *c, attention_args *a) {
    int64_t rows = (int64_t)a->pack * a->Tq, heads = (int64_t)a->B * (a->H / a->pack) * a->splits;
#ifndef CUDA_STORE_F32
    if (takes_mma(c, a) && (a->Tq == 1 || a->Tq >= FEW_QUERIES)) {
        const mma_kernel *of = a->Tq == 1 ? ONE_KERNELS : FORWARD_KERNELS;
        launch_mma(c, a, &of[mma_form_of(a)], rows, heads, false);
        return;
    }
#endif
    launch_any(c, a, a->bias.p ? &attention_biased_fwd : &attention_any_fwd, rows, heads, a->Dv,
               false);
}

static void attention_fwd(const op_call *c) {
    attention_args a = open_call(c);
    share_forward(&a);
    if (a.splits > 1) {
        a.part_o = c->ws;
        a.part_m = a.part_o + part_rows(&a) * a.Dv;
    }
    forward_parts(c, &a);
    if (a.splits == 1) return;
    uint32_t threads = a.Dv <= 32 ? 32 : a.Dv <= 64 ? 64 : ANY_THREADS;
    launch(c, &attention_join,
           (gpu_grid){blocks_for((int64_t)a.B * a.H * a.Tq, 1), 1, 1, threads, 0}, &a);
}

static int64_t delta_bytes(const attention_args *a) {
    return ((int64_t)a->B * a->H * a->Tq * 4 + 63) / 64 * 64;
}

static void query_gradients(const op_call *c, attention_args a) {
#ifndef CUDA_STORE_F32
    if (takes_mma(c, &a)) {
        launch_mma(c, &a, &QUERY_KERNELS[mma_form_of(&a)], a.Tq, (int64_t)a.B * a.H, true);
        return;
    }
#endif
    launch_any(c, &a, a.bias.p ? &attention_biased_dq : &attention_any_dq, a.Tq, (int64_t)a.B * a.H,
               a.D, true);
}

static void key_gradients(const op_call *c, attention_args a) {
#ifndef CUDA_STORE_F32
    if (takes_mma(c, &a)) {
        launch_mma_keys(c, &a);
        return;
    }
#endif
    int32_t width = a.D > a.Dv ? a.D : a.Dv;
    launch_any(c, &a, a.bias.p ? &attention_biased_dkv : &attention_any_dkv, a.Tk,
               (int64_t)a.B * a.K, width, true);
}

static void sink_gradients(const op_call *c) {
    attention_args a = open_call(c);
    a.d_sinks = c->din[ATTENTION_SINKS].data, a.add_sinks = op_accumulates(c, ATTENTION_SINKS);
    uint32_t threads = threads_for((int64_t)a.B * a.Tq * GPU_WARP, ANY_THREADS);
    launch(c, &attention_sinks, (gpu_grid){(uint32_t)a.H, 1, 1, threads, 0}, &a);
}

static int64_t seen_bytes(const attention_args *a) {
    return ((int64_t)a->B * blocks_for(a->Tq, SEEN) * 8 + 63) / 64 * 64;
}

/* Queries of a block that makes a part of the gradient of the bias. */
static uint32_t bias_queries(const attention_args *a) {
    return threads_for((int64_t)a->B * a->Tq, ANY_THREADS);
}
static int32_t bias_slices(const attention_args *a) {
    return (int32_t)blocks_for((int64_t)a->B * a->Tq, bias_queries(a));
}

static void bias_gradients(const op_call *c, attention_args a) {
    a.d_bias = mat_of(&c->din[BIAS]), a.add_bias = op_accumulates(c, BIAS);
    a.tiles = bias_slices(&a);
    a.part_bias = (float *)((char *)c->ws + delta_bytes(&a) + seen_bytes(&a));
    uint32_t threads = bias_queries(&a), rows = (uint32_t)a.bias_rows;
    launch(c, &attention_bias_parts,
           (gpu_grid){rows * (uint32_t)a.tiles, (uint32_t)a.H, 1, threads, 0}, &a);
    threads = threads_for((int64_t)a.bias_rows * a.H, ANY_THREADS);
    launch(c, &attention_bias_join,
           (gpu_grid){blocks_for((int64_t)a.bias_rows * a.H, threads), 1, 1, threads, 0}, &a);
}

static void attention_bwd(const op_call *c) {
    attention_args a = open_call(c);
    if (c->din[ATTENTION_SINKS].data) sink_gradients(c);
    a.delta = c->ws;
    a.seen = (int32_t *)((char *)c->ws + delta_bytes(&a));
    a.add_dq = op_accumulates(c, 0), a.add_dk = op_accumulates(c, 1),
    a.add_dv = op_accumulates(c, 2);
    int64_t rows = (int64_t)a.B * a.H * a.Tq;
    uint32_t warps = rows < 64 ? 1 : 4;
    launch(c, &attention_delta, (gpu_grid){blocks_for(rows, warps), 1, 1, warps * GPU_WARP, 0}, &a);
    if (c->din[BIAS].data) bias_gradients(c, a);
    if (a.dq.p) query_gradients(c, a);
    if (!a.dk.p && !a.dv.p) return;
    uint32_t tiles = blocks_for(a.Tq, SEEN);
    launch(c, &attention_seen, (gpu_grid){(uint32_t)a.B * tiles, 1, 1, GPU_WARP, 0}, &a);
    key_gradients(c, a);
}

static void attention_workspace(const op_infer *io, int64_t ws[3]) {
    attention_args a = shape_of(io->attr);
    share_forward(&a);
    if (a.splits > 1) ws[0] = part_rows(&a) * (a.Dv + 2) * (int64_t)sizeof(float);
    ws[1] = delta_bytes(&a) + seen_bytes(&a);
    ws[1] += bias_slices(&a) * io->in[BIAS].rows * a.H * (int64_t)sizeof(float);
}

const op_impl CUDA_IMPL(ATTENTION) = {attention_fwd, attention_bwd, NULL, attention_workspace};
#endif
