/* The tables, and what a call of an op lets its kernels touch. */
#include "op/cuda/tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/nf4.h"
#include "op/cuda/host.h"
#include "op/dropout.h"

#define X(ID) extern const op_impl op_cuda_##ID##_f32, op_cuda_##ID##_bf16, op_cuda_##ID##_f16;
#include "op/cuda/ops.def"
#undef X

#define X(ID) [OP_##ID] = &op_cuda_##ID##_f32,
const op_impl *const op_cuda_table_f32[OP_COUNT] = {
#include "op/cuda/ops.def"
};
#undef X
#define X(ID) [OP_##ID] = &op_cuda_##ID##_bf16,
const op_impl *const op_cuda_table_bf16[OP_COUNT] = {
#include "op/cuda/ops.def"
};
#undef X
#define X(ID) [OP_##ID] = &op_cuda_##ID##_f16,
const op_impl *const op_cuda_table_f16[OP_COUNT] = {
#include "op/cuda/ops.def"
};
#undef X

/* ---- numbers of the run ---- */

typedef struct numbers_cache {
    dev *d;
    void *at; /* on the device; NULL: it has no room, and has taken note */
    run_numbers there;
} numbers_cache;

static void *numbers_create(dev *d) {
    err e;
    numbers_cache *n = xcalloc(1, sizeof *n);
    n->d = d;
    if (dev_reserve(d, &n->at, sizeof n->there, "numbers of a run", &e) != ST_OK)
        cuda_note_error(d, "numbers of a run", e.message);
    return n;
}

static void numbers_destroy(void *cache) {
    numbers_cache *n = cache;
    dev_release(n->d, n->at, sizeof n->there);
    free(n);
}

static numbers_cache *numbers_of(dev *d) {
    return dev_kernel_cache(d, numbers_create, numbers_destroy);
}

const run_numbers *cuda_numbers(dev *d) {
    return numbers_of(d)->at;
}

void cuda_set_run(dev *d, const op_run *run) {
    numbers_cache *n = numbers_of(d);
    run_numbers now = {.draws = mixed_seed(dropout_seed(run)),
                       .micro_batch = run->micro_batch,
                       .fixed_limit = (double)run->fixed_limit,
                       .grad_scale = run->grad_scale,
                       .fixed_unscale = run->fixed_unscale};
    if (!n->at || memcmp(&now, &n->there, sizeof now) == 0) return;
    n->there = now;
    dev_write(d, n->at, &now, sizeof now);
}

/* ---- what a call may touch ---- */

typedef struct touched {
    gpu_range range[EMU_MOST_RANGES];
    int n;
} touched;

static bool same_memory(const gpu_range *r, const tensor *t) {
    return r->at == t->data && r->rows == t->rows &&
           r->row_bytes == dtype_span_bytes(t->dt, t->cols);
}

/* The list of rows is a part of the matrix. */
static gpu_range nf4_range(const char *name, const void *rows, int64_t bytes) {
    const char *at = (const char *)rows - sizeof(nf4_matrix);
    return (gpu_range){name, at, 1, bytes, bytes, GPU_READ, 1};
}

/* A tensor that is already there, since the op works in place, only gains rights. */
static void allow(touched *all, const char *name, const tensor *t, gpu_access access) {
    if (!t->data || t->rows == 0) return;
    for (int i = 0; i < all->n; i++)
        if (same_memory(&all->range[i], t)) {
            if (access != GPU_READ) all->range[i].access = GPU_UPDATE;
            return;
        }
    if (t->dt == DT_NF4) {
        all->range[all->n++] = nf4_range(name, t->data, nf4_bytes(t->rows, t->cols));
        return;
    }
    int64_t item = dtype_is_blocks(t->dt) ? 1 : (int64_t)dtype_bytes(t->dt);
    all->range[all->n++] = (gpu_range){name,
                                       t->data,
                                       t->rows,
                                       dtype_span_bytes(t->dt, t->cols),
                                       dtype_span_bytes(t->dt, t->ld),
                                       access,
                                       (int32_t)item};
}

/* Experts that lie anywhere in a file: from the first byte of one to the last of another. */
static void allow_experts(touched *all, const op_call *c) {
    const tensor *w = &c->in[1];
    int64_t first = 0, last = 0;
    for (int32_t e = 0; e < c->attr->experts.n; e++) {
        int64_t at = c->attr->experts.at[e];
        first = at < first ? at : first, last = at > last ? at : last;
    }
    int64_t rows = w->rows / c->attr->experts.n;
    if (w->dt == DT_NF4) {
        all->range[all->n++] = nf4_range("experts", (const char *)w->data + first,
                                         last - first + nf4_bytes(rows, w->cols));
        return;
    }
    int64_t bytes = last - first + rows * dtype_span_bytes(w->dt, w->ld);
    all->range[all->n++] =
        (gpu_range){"experts", (const char *)w->data + first, 1, bytes, bytes, GPU_READ, 1};
}

/* Memory that holds something before the call is read, or added to; what is only written must be
 * filled. KV_STORE writes some rows of what is there. */
static touched touched_by(const op_call *c) {
    static const char *const in[OP_MAX_IN] = {"input 0", "input 1", "input 2", "input 3",
                                              "input 4", "input 5", "input 6", "input 7"};
    static const char *const out[] = {"output 0", "output 1", "output 2", "output 3"};
    static const char *const din[OP_MAX_IN] = {
        "gradient of input 0", "gradient of input 1", "gradient of input 2", "gradient of input 3",
        "gradient of input 4", "gradient of input 5", "gradient of input 6", "gradient of input 7"};
    static const char *const dout[] = {"gradient of output 0", "gradient of output 1",
                                       "gradient of output 2", "gradient of output 3"};
    touched all = {.n = 0};
    bool forward = !c->dout[0].data;
    bool spread = c->kind == OP_EXPERT_LINEAR && c->attr->experts.at;
    for (int i = 0; i < OP_MAX_IN; i++)
        if (!spread || i != 1) allow(&all, in[i], &c->in[i], GPU_READ);
    if (spread) allow_experts(&all, c);
    for (int o = 0; o < OP_MAX_OUT; o++) {
        allow(&all, dout[o], &c->dout[o], GPU_READ);
        bool adds = op_classes[c->kind].flags & OPF_SUMS_GRAD && op_accumulates(c, o);
        allow(&all, out[o], &c->out[o], !forward ? GPU_READ : adds ? GPU_UPDATE : GPU_WRITE);
    }
    if (op_classes[c->kind].flags & OPF_GRAD_IN_FWD && !c->attr->head.with_grad) return all;
    for (int i = 0; i < OP_MAX_IN; i++)
        allow(&all, din[i], &c->din[i], op_accumulates(c, i) ? GPU_UPDATE : GPU_WRITE);
    return all;
}

/* The smallest numbers that kernels may put into the workspace. */
static int32_t scratch_item(const op_call *c) {
    return c->in[0].dt == DT_BF16 || c->in[0].dt == DT_F16 ? 2 : 4;
}

void cuda_op_launch(dev *d, op_fn fn, const op_call *c) {
    touched all = {.n = 0};
    cuda_set_run(d, c->run);
    if (cuda_is_emulated(d)) {
        all = touched_by(c);
        const run_numbers *n = cuda_numbers(d);
        all.range[all.n++] =
            (gpu_range){"numbers of the run", n, 1, sizeof *n, sizeof *n, GPU_READ, 4};
        if (c->ws && c->ws_bytes > 0)
            all.range[all.n++] = (gpu_range){
                "workspace", c->ws, 1, c->ws_bytes, c->ws_bytes, GPU_SCRATCH, scratch_item(c)};
        if (c->kind == OP_FIXED_ADD)
            all.range[all.n++] =
                (gpu_range){"the overflow flag", c->run->fixed_overflow, 1, 1, 1, GPU_UPDATE, 1};
    }
    cuda_scope_begin(d, op_classes[c->kind].name, all.range, all.n);
    fn(c);
    cuda_scope_end(d);
}
