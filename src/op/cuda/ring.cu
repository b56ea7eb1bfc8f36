/* RING_ATTENTION on the device: the steps of op/ring.h around the kernels of attention. What travels goes by a stream of
 * its own where ranks have NCCL, so that a hop's attention runs beside it.
 *
 * Per number: taking k and v reads and writes one; joining a hop reads its output, and reads and writes a float
 * (one FLOP for each of both, and two exponentials for a head of a token), adding a hop's gradients the same; giving
 * reads a float and writes one number. */
#include "op/cuda/pieces.h"

typedef struct ring_args {
    mat k, v, kv, part, lse, out; /* out: o, or a gradient */
    float *sum;                   /* [N, cols] */
    const float *lse_hop;         /* [B*H, Tq] */
    pieces p;
    int64_t n, cols; /* heads of all tokens; columns of sum */
    int32_t H, Tq, Dv, Wk, hop, last, add;
} ring_args;

enum { RING_WARPS = 8 };

KERNEL(ring_take, ring_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    piece_load(v, c < a->Wk ? row_of(a->k, n) + c : row_of(a->v, n) + (c - a->Wk), a->p.wide);
    piece_store(row_of(a->kv, n) + c, v, a->p.wide);
}

/* The lse of both becomes *lse; the weight of what comes is returned, and *old is that of what was there. */
GPU_FN float weigh(float *lse, float more, int32_t first, float *old) {
    float was = *lse, max = was > more ? was : more;
    *old = first ? 0.0f : 1.0f;
    if (first) *lse = more;
    if (first) return 1;
    if (more == -INFINITY) return 0;
    *lse = max + logf(expf(was - max) + expf(more - max));
    *old = expf(was - *lse);
    return expf(more - *lse);
}

/* A warp takes a head of a token. */
KERNEL(ring_join, ring_args, RING_WARPS *GPU_WARP) {
    int64_t i = (int64_t)block_x() * (threads_x() / GPU_WARP) + warp();
    if (i >= a->n) return;
    int64_t n = i / a->H, head = n / a->Tq * a->H + i % a->H, t = n % a->Tq;
    float *lse = f32_row_of(a->lse, head) + t, both = a->hop ? *lse : 0, old;
    float more = weigh(&both, a->lse_hop[head * a->Tq + t], a->hop == 0, &old);
    for (int32_t c = (int32_t)lane(); c < a->Dv; c += GPU_WARP) {
        int64_t at = i % a->H * a->Dv + c;
        float *sum = a->sum + n * a->cols + at;
        float v = (a->hop ? old * *sum : 0) + more * load(row_of(a->part, n)[at]);
        if (a->last)
            row_of(a->out, n)[at] = store(v);
        else
            *sum = v;
    }
    sync_warp();
    if (lane() == 0) *lse = both;
}

KERNEL(ring_add, ring_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    piece_load(v, row_of(a->part, n) + c, a->p.wide);
    piece_put_f32(a->sum + n * a->cols + c, v, a->p.wide, a->hop > 0);
}

KERNEL(ring_give, ring_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    piece_load_f32(v, a->sum + n * a->cols + c, a->p.wide);
    piece_put(row_of(a->out, n) + c, v, a->p.wide, a->add);
}

#ifndef __CUDACC__
#include "op/cuda/tables.h"
#include "op/ring.h"

static const op_impl *find_attention(const dev *d, dtype dt) {
    return op_find_of_kind(d, OP_ATTENTION, dt);
}

static void run_attention(op_fn fn, const op_call *attention) {
    cuda_op_launch(attention->run->dev, fn, attention);
}

/* A scope for each step: what comes from other ranks in between was written by no kernel. */
static void run_step(const ring *r, const gpu_kernel *k, gpu_grid g, const ring_args *a,
                     const gpu_range *may, int n) {
    cuda_scope_begin(r->c->run->dev, "ring_attention", may, n);
    launch(r->c, k, g, a);
    cuda_scope_end(r->c->run->dev);
}

static tensor stored(const ring *r, void *at, int64_t cols) {
    return (tensor){at, r->c->in[0].dt, r->N, cols, cols};
}

static tensor floats(const ring *r, void *at, int64_t cols) {
    return (tensor){at, DT_F32, r->N, cols, cols};
}

static void take_own(const ring *r) {
    const tensor *k = &r->c->in[1], *v = &r->c->in[2], kv = stored(r, r->kv[0], r->W);
    bool wide = is_wide(k) && is_wide(v) && is_wide(&kv) && r->Wk % VEC == 0;
    ring_args a = {.k = mat_of(k), .v = mat_of(v), .kv = mat_of(&kv), .Wk = (int32_t)r->Wk};
    a.p = pieces_of(r->N, r->W, wide);
    gpu_range may[] = {rows_range("keys", k, GPU_READ), rows_range("values", v, GPU_READ),
                       rows_range("both", &kv, GPU_WRITE)};
    run_step(r, &ring_take, grid_of_pieces(&a.p), &a, may, 3);
}

static void join(const ring *r, int hop) {
    const op_attention *at = &r->c->attr->attention;
    const tensor *o = &r->c->out[0], *lse = &r->c->out[1];
    tensor part = stored(r, r->part, o->cols), sum = floats(r, r->sum[0], o->cols);
    tensor lse_hop = {r->lse, DT_F32, lse->rows, lse->cols, lse->cols};
    bool last = hop == r->ranks - 1;
    ring_args a = {.part = mat_of(&part),
                   .lse = mat_of(lse),
                   .out = mat_of(o),
                   .sum = sum.data,
                   .lse_hop = lse_hop.data,
                   .n = r->N * at->H,
                   .cols = o->cols,
                   .H = at->H,
                   .Tq = at->Tq,
                   .Dv = at->Dv,
                   .hop = hop,
                   .last = last};
    gpu_range may[] = {rows_range("a hop's output", &part, GPU_READ),
                       rows_range("a hop's lse", &lse_hop, GPU_READ),
                       rows_range("lse", lse, hop ? GPU_UPDATE : GPU_WRITE),
                       rows_range("sum", &sum,
                                  !hop   ? GPU_WRITE
                                  : last ? GPU_READ
                                         : GPU_UPDATE),
                       rows_range("output", o, GPU_WRITE)};
    uint32_t threads = threads_for(a.n * GPU_WARP, RING_WARPS * GPU_WARP);
    run_step(r, &ring_join, (gpu_grid){blocks_for(a.n, threads / GPU_WARP), 1, 1, threads, 0}, &a,
             may, last ? 5 : 4);
}

static void add_hop(const ring *r, int hop) {
    tensor part = stored(r, r->part, r->W), sum = floats(r, r->sum[hop % 2], r->W);
    ring_args a = {.part = mat_of(&part), .sum = sum.data, .cols = r->W, .hop = hop};
    a.p = pieces_of(r->N, r->W, is_wide(&part) && is_wide_f32(&sum));
    gpu_range may[] = {rows_range("a hop's gradients", &part, GPU_READ),
                       rows_range("sum", &sum, hop ? GPU_UPDATE : GPU_WRITE)};
    run_step(r, &ring_add, grid_of_pieces(&a.p), &a, may, 2);
}

static void give(const ring *r, int input, int64_t first) {
    const tensor *t = &r->c->din[input];
    tensor sum = floats(r, (float *)r->sum[r->ranks % 2] + first, r->W);
    sum.cols = t->cols;
    bool add = op_accumulates(r->c, input);
    ring_args a = {.out = mat_of(t), .sum = sum.data, .cols = r->W, .add = add};
    a.p = pieces_of(r->N, t->cols, is_wide(t) && is_wide_f32(&sum));
    gpu_range may[] = {rows_range("sum", &sum, GPU_READ),
                       rows_range("gradient", t, add ? GPU_UPDATE : GPU_WRITE)};
    run_step(r, &ring_give, grid_of_pieces(&a.p), &a, may, 2);
}

static const ring_steps steps = {find_attention, run_attention, take_own, join, add_hop, give};

static void ring_fwd(const op_call *c) {
    ring_forward(c, &steps);
}
static void ring_bwd(const op_call *c) {
    ring_backward(c, &steps);
}
static void workspace(const op_infer *io, int64_t ws[3]) {
    ring_workspace(io, &steps, ws);
}

const op_impl CUDA_IMPL(RING_ATTENTION) = {ring_fwd, ring_bwd, NULL, workspace};
#endif
