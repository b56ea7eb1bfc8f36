/* What a router's picks are over all rows: ROUTER_SORT, ROUTER_LOAD, ROUTER_BALANCE, ROUTER_TALLY.
 *
 * ROUTER_SORT is a counting sort without atomics, so that picks of an expert stay in order. Chunks of picks, a warp
 * each, count their experts; one block makes of the counts where each chunk begins; the same warps then place their
 * picks. Picks are read twice, slots and rows written once: 16 bytes a pick, and 12 bytes per expert and chunk.
 *
 * ROUTER_LOAD and ROUTER_TALLY sum over rows: a lane has a column, a warp every eighth row of a slice; a second kernel
 * adds the slices, in their order. k + 2 FLOPs (TALLY k + 4) and 4 bytes per probability; picks come from the cache. */
#include "op/cuda/store.h"

/* ---- sort ---- */

typedef struct sort_args {
    mat picks, slots, rows;          /* i32 [N, k], [N, k], [places, 1] */
    int32_t *starts, *before, *base; /* [E + 1], [E, chunks], [E, sequences] */
    int64_t of_sequence;             /* picks */
    int64_t places;
    int32_t k, E, capacity, sequences, of_chunks; /* of_chunks: chunks of a sequence */
} sort_args;

enum { SORT_PICKS = 256, SORT_THREADS = 1024 };

GPU_FN int32_t pick_of(mat m, int32_t k, int64_t i) {
    return i32_row_of(m, i / k)[i % k];
}

/* Pick i's place: count[e] picks of its expert came before those of this warp's turn. A pick that is dropped, of an
 * expert that has all it takes, has none. */
GPU_FN void place_pick(const sort_args *a, int64_t i, int32_t e, int32_t s, int32_t rank) {
    bool takes = a->capacity == 0 || rank < a->capacity;
    int32_t at = takes ? a->starts[e] + a->base[e * a->sequences + s] + rank : -1;
    ((int32_t *)i32_row_of(a->slots, i / a->k))[i % a->k] = at;
    if (takes) *(int32_t *)i32_row_of(a->rows, at) = (int32_t)(i / a->k);
}

/* The picks of a chunk, a warp's worth at a time; count[E] goes on. */
GPU_FN void walk_chunk(const sort_args *a, int32_t *count, bool places) {
    int32_t s = (int32_t)block_x() / a->of_chunks, c = (int32_t)block_x() % a->of_chunks;
    int64_t origin = s * a->of_sequence, first = (int64_t)c * SORT_PICKS;
    int64_t end = first + SORT_PICKS < a->of_sequence ? first + SORT_PICKS : a->of_sequence;
    for (; first < end; first += GPU_WARP) {
        int64_t i = first + lane();
        int32_t e = i < end ? pick_of(a->picks, a->k, origin + i) : -1, rank = 0;
        uint32_t last = lane();
        kernel_check(i >= end || (e >= 0 && e < a->E), "finds a pick of no expert");
        for (uint32_t j = 0; j < GPU_WARP; j++) {
            if ((int32_t)shuffle_from_u32((uint32_t)e, j) != e) continue;
            rank += j < lane();
            last = j;
        }
        if (e >= 0) rank += count[e];
        sync_warp();
        if (e >= 0 && last == lane()) count[e] = rank + 1;
        if (e >= 0 && places) place_pick(a, origin + i, e, s, rank);
        sync_warp();
    }
}

KERNEL(sort_count, sort_args, GPU_WARP) {
    SHARED_DYNAMIC(int32_t, count);
    int64_t chunks = (int64_t)a->of_chunks * a->sequences;
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP) count[e] = 0;
    sync_warp();
    walk_chunk(a, count, false);
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP)
        a->before[e * chunks + block_x()] = count[e];
}

/* The sum over lanes up to this one. */
GPU_FN int32_t warp_prefix(int32_t v) {
    for (uint32_t d = 1; d < GPU_WARP; d *= 2) {
        int32_t other = (int32_t)shuffle_from_u32((uint32_t)v, (lane() - d) % GPU_WARP);
        if (lane() >= d) v += other;
    }
    return v;
}

/* Numbers become the sums of those before them; returns the sum of all. */
GPU_FN int32_t sums_before(int32_t *x, int32_t n) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i += GPU_WARP) {
        int32_t at = i + (int32_t)lane(), v = at < n ? x[at] : 0, upto = warp_prefix(v);
        if (at < n) x[at] = sum + upto - v;
        sum += (int32_t)shuffle_from_u32((uint32_t)upto, GPU_WARP - 1);
    }
    return sum;
}

/* One block. before: picks of the same sequence in earlier chunks; base: places of earlier sequences. */
KERNEL(sort_scan, sort_args, SORT_THREADS) {
    for (int32_t e = (int32_t)warp(); e < a->E; e += (int32_t)threads_x() / GPU_WARP) {
        int32_t *before = a->before + (int64_t)e * a->sequences * a->of_chunks, all = 0;
        for (int32_t s = 0; s < a->sequences; s++) {
            int32_t n = sums_before(before + (int64_t)s * a->of_chunks, a->of_chunks);
            if (lane() == 0) a->base[e * a->sequences + s] = all;
            all += a->capacity > 0 && n > a->capacity ? a->capacity : n;
        }
        if (lane() == 0) a->starts[e] = all;
    }
    sync_block();
    if (warp() != 0) return;
    int32_t all = sums_before(a->starts, a->E);
    if (lane() == 0) a->starts[a->E] = all;
}

KERNEL(sort_place, sort_args, GPU_WARP) {
    SHARED_DYNAMIC(int32_t, count);
    int64_t chunks = (int64_t)a->of_chunks * a->sequences;
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP)
        count[e] = a->before[e * chunks + block_x()];
    sync_warp();
    walk_chunk(a, count, true);
    int64_t at = a->starts[a->E] + (int64_t)block_x() * GPU_WARP + lane();
    for (; at < a->places; at += chunks * GPU_WARP) *(int32_t *)i32_row_of(a->rows, at) = -1;
}

/* ---- load ---- */

typedef struct load_args {
    mat probs, picks, dprobs, out, before, dload; /* out [2 sequences, E], or [4, E] */
    const int32_t *starts;
    float *share; /* [rows] what probs of a row are divided by; NULL: 1 */
    float *parts; /* [LOAD_SUMS, sequences, slices, E] */
    int64_t rows, of_sequence;
    int32_t E, k, sequences, slices, add;
} load_args;

enum { LOAD_WARPS = 8, LOAD_SUMS = 3 };

#define LOAD_TINY 1e-20f /* as op/router.h has it */

GPU_FN int64_t load_row(void) {
    return (int64_t)block_x() * (threads_x() / GPU_WARP) + warp();
}

GPU_FN float row_share(const load_args *a, int64_t n) {
    const float *p = f32_row_of(a->probs, n);
    float sum = 0;
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP) sum += p[e];
    return warp_sum(sum) + LOAD_TINY;
}

KERNEL(load_shares, load_args, LOAD_WARPS *GPU_WARP) {
    int64_t n = load_row();
    if (n >= a->rows) return;
    float share = row_share(a, n);
    if (lane() == 0) a->share[n] = share;
}

GPU_FN float *load_part(const load_args *a, int32_t sum, int32_t s, int32_t slice) {
    return a->parts + (((int64_t)sum * a->sequences + s) * a->slices + slice) * a->E;
}

/* How many picks each expert has, the sum of its shares p, and that of -p log p. */
KERNEL(load_parts, load_args, LOAD_WARPS *GPU_WARP) {
    SHARED(float, room, LOAD_WARPS *GPU_WARP *LOAD_SUMS);
    int32_t e = (int32_t)(block_x() * GPU_WARP + lane()), warps = (int32_t)(threads_x() / GPU_WARP);
    int32_t slice = (int32_t)block_y(), s = (int32_t)block_z();
    int64_t first = s * a->of_sequence + a->of_sequence * slice / a->slices;
    int64_t end = s * a->of_sequence + a->of_sequence * (slice + 1) / a->slices;
    float sum[LOAD_SUMS] = {0, 0, 0};
    for (int64_t n = first + warp(); n < end && e < a->E; n += warps) {
        const int32_t *picks = i32_row_of(a->picks, n);
        float p = f32_row_of(a->probs, n)[e] / (a->share ? a->share[n] : 1);
        for (int32_t j = 0; j < a->k; j++) sum[0] += picks[j] == e;
        sum[1] += p;
        sum[2] -= p > 0 ? p * logf(p) : 0;
    }
    for (int i = 0; i < LOAD_SUMS; i++)
        room[i * (int32_t)threads_x() + (int32_t)thread_x()] = sum[i];
    sync_block();
    if (warp() != 0 || e >= a->E) return;
    for (int i = 0; i < LOAD_SUMS; i++) {
        for (int32_t w = 1; w < warps; w++)
            sum[i] += room[i * (int32_t)threads_x() + w * GPU_WARP + (int32_t)lane()];
        load_part(a, i, s, slice)[e] = sum[i];
    }
}

GPU_FN float join_slices(const load_args *a, int32_t which, int32_t s, int32_t e) {
    float sum = 0;
    for (int32_t i = 0; i < a->slices; i++) sum += load_part(a, which, s, i)[e];
    return sum;
}

KERNEL(load_join, load_args, LOAD_WARPS *GPU_WARP) {
    int32_t e = (int32_t)(block_x() * threads_x() + thread_x()), s = (int32_t)block_y();
    if (e >= a->E) return;
    float count = join_slices(a, 0, s, e), sum = join_slices(a, 1, s, e);
    if (a->starts) {
        f32_row_of(a->out, 0)[e] = count;
        f32_row_of(a->out, 1)[e] = sum;
        f32_row_of(a->out, 2)[e] = join_slices(a, 2, s, e);
        f32_row_of(a->out, 3)[e] = (float)(a->starts[e + 1] - a->starts[e]);
        return;
    }
    if (a->before.p) {
        count += f32_row_of(a->before, s)[e];
        sum += f32_row_of(a->before, a->sequences + s)[e];
    }
    f32_row_of(a->out, s)[e] = count;
    f32_row_of(a->out, a->sequences + s)[e] = sum;
}

/* Of q = p / sum of p: dp_e = (dq_e - sum_i dq_i q_i) / sum of p. */
KERNEL(load_bwd, load_args, LOAD_WARPS *GPU_WARP) {
    int64_t n = load_row();
    if (n >= a->rows) return;
    const float *dq = f32_row_of(a->dload, a->sequences + n / a->of_sequence);
    float by = 1, mean = 0;
    if (a->share) {
        by = row_share(a, n);
        for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP)
            mean += dq[e] * f32_row_of(a->probs, n)[e] / by;
        mean = warp_sum(mean);
    }
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP)
        put_f32(f32_row_of(a->dprobs, n) + e, (dq[e] - mean) / by, a->add);
}

/* ---- balance ---- */

typedef struct balance_args {
    mat load, dload, counts;
    float *loss;
    const float *dloss;
    int32_t E, k, layers, sequences, add;
} balance_args;

/* k E counts[e] / sum of counts / layers is what the sum of probs of an expert is multiplied by; the factor. */
GPU_FN float balance_factor(const balance_args *a, const float *count) {
    float sum = 0;
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP) sum += count[e];
    sum = warp_sum(sum);
    return sum > 0 ? (float)a->E * (float)a->k / sum / (float)a->layers : 0;
}

GPU_FN const float *counts_of(const balance_args *a, int32_t s) {
    return a->counts.p ? f32_row_of(a->counts, 0) : f32_row_of(a->load, s);
}

KERNEL(balance_fwd, balance_args, LOAD_WARPS *GPU_WARP) {
    SHARED(float, room, 32);
    float sum = 0;
    for (int32_t s = (int32_t)warp(); s < a->sequences; s += (int32_t)threads_x() / GPU_WARP) {
        const float *count = counts_of(a, s), *p = f32_row_of(a->load, a->sequences + s);
        float factor = balance_factor(a, count);
        for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP) sum += factor * count[e] * p[e];
    }
    sum = block_sum(sum, room);
    if (thread_x() == 0) *a->loss = sum;
}

/* A warp for each sequence. */
KERNEL(balance_bwd, balance_args, GPU_WARP) {
    int32_t s = (int32_t)block_x();
    const float *count = counts_of(a, s);
    float by = *a->dloss * balance_factor(a, count);
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP) {
        put_f32(f32_row_of(a->dload, s) + e, 0, a->add);
        put_f32(f32_row_of(a->dload, a->sequences + s) + e, by * count[e], a->add);
    }
}

#ifndef __CUDACC__
#include "op/cuda/host.h"
#include "op/router.h"

/* ---- sort ---- */

static int64_t sort_chunks(int64_t of_sequence) {
    return (of_sequence + SORT_PICKS - 1) / SORT_PICKS;
}

static void sort_fwd(const op_call *c) {
    const tensor *picks = &c->in[1];
    const op_router *r = &c->attr->router;
    sort_args a = {.picks = mat_of(picks), .slots = mat_of(&c->out[1]), .rows = mat_of(&c->out[0])};
    a.starts = c->out[2].data, a.places = c->out[0].rows, a.k = (int32_t)picks->cols;
    a.E = r->experts, a.capacity = r->capacity, a.sequences = (int32_t)router_sequences(r);
    a.of_sequence = picks->rows * picks->cols / a.sequences;
    a.of_chunks = (int32_t)sort_chunks(a.of_sequence);
    a.before = c->ws, a.base = a.before + (int64_t)a.E * a.sequences * a.of_chunks;
    gpu_grid chunks = {(uint32_t)(a.of_chunks * a.sequences), 1, 1, GPU_WARP,
                       (uint32_t)(a.E * (int)sizeof(int32_t))};
    launch(c, &sort_count, chunks, &a);
    uint32_t threads = threads_for((int64_t)a.E * GPU_WARP, SORT_THREADS);
    launch(c, &sort_scan, (gpu_grid){1, 1, 1, threads, 0}, &a);
    launch(c, &sort_place, chunks, &a);
}

static void sort_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t S = router_sequences(&io->attr->router), M = io->in[0].rows * io->in[0].cols;
    ws[0] = io->attr->router.experts * S * (sort_chunks(M / S) + 1) * (int64_t)sizeof(int32_t);
}

const op_impl CUDA_IMPL(ROUTER_SORT) = {sort_fwd, NULL, NULL, sort_workspace};

/* ---- load ---- */

static int32_t load_slices(int64_t of_sequence) {
    int64_t s = of_sequence / 64;
    return (int32_t)(s < 1 ? 1 : s > 128 ? 128 : s);
}

static load_args load_open(const op_call *c, const tensor *probs, int64_t sequences) {
    load_args a = {.probs = mat_of(probs), .rows = probs->rows, .E = (int32_t)probs->cols};
    a.sequences = (int32_t)sequences, a.of_sequence = a.rows / sequences;
    a.slices = load_slices(a.of_sequence);
    a.parts = c->ws;
    if (c->attr->router.sigmoid)
        a.share = a.parts + (int64_t)LOAD_SUMS * a.sequences * a.slices * a.E;
    return a;
}

static gpu_grid grid_of_rows(const load_args *a) {
    uint32_t threads = threads_for(a->rows * GPU_WARP, LOAD_WARPS * GPU_WARP);
    return (gpu_grid){blocks_for(a->rows, threads / GPU_WARP), 1, 1, threads, 0};
}

static void sum_rows(const op_call *c, load_args *a) {
    a->picks = mat_of(&c->in[1]), a->k = (int32_t)c->in[1].cols, a->out = mat_of(&c->out[0]);
    if (a->share) launch(c, &load_shares, grid_of_rows(a), a);
    uint32_t threads = threads_for(a->of_sequence / a->slices * GPU_WARP, LOAD_WARPS * GPU_WARP);
    uint32_t across = blocks_for(a->E, GPU_WARP), S = (uint32_t)a->sequences;
    launch(c, &load_parts, (gpu_grid){across, (uint32_t)a->slices, S, threads, 0}, a);
    threads = threads_for(a->E, LOAD_WARPS * GPU_WARP);
    launch(c, &load_join, (gpu_grid){blocks_for(a->E, threads), S, 1, threads, 0}, a);
}

static void load_fwd(const op_call *c) {
    load_args a = load_open(c, &c->in[0], router_sequences(&c->attr->router));
    if (c->in[2].data) a.before = mat_of(&c->in[2]);
    sum_rows(c, &a);
}

static void load_bwd_input(const op_call *c) {
    load_args a = load_open(c, &c->in[0], router_sequences(&c->attr->router));
    if (!c->din[0].data) return;
    a.dload = mat_of(&c->dout[0]), a.dprobs = mat_of(&c->din[0]), a.add = op_accumulates(c, 0);
    launch(c, &load_bwd, grid_of_rows(&a), &a);
}

static void load_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t S = io->kind == OP_ROUTER_LOAD ? router_sequences(&io->attr->router) : 1;
    int64_t rows = io->in[0].rows, parts = LOAD_SUMS * S * load_slices(rows / S) * io->in[0].cols;
    ws[0] = (parts + (io->attr->router.sigmoid ? rows : 0)) * (int64_t)sizeof(float);
}

const op_impl CUDA_IMPL(ROUTER_LOAD) = {load_fwd, load_bwd_input, NULL, load_workspace};

static void tally_fwd(const op_call *c) {
    load_args a = load_open(c, &c->in[0], 1);
    a.starts = c->in[2].data;
    sum_rows(c, &a);
}

const op_impl CUDA_IMPL(ROUTER_TALLY) = {tally_fwd, NULL, NULL, load_workspace};

/* ---- balance ---- */

static balance_args balance_open(const op_call *c) {
    const tensor *load = &c->in[0];
    balance_args a = {.load = mat_of(load), .E = (int32_t)load->cols, .k = c->attr->router.k};
    if (c->in[1].data) a.counts = mat_of(&c->in[1]);
    a.layers = c->attr->router.layers, a.sequences = (int32_t)(load->rows / 2);
    return a;
}

static void balance_forward(const op_call *c) {
    balance_args a = balance_open(c);
    a.loss = c->out[0].data;
    uint32_t threads = threads_for((int64_t)a.sequences * GPU_WARP, LOAD_WARPS * GPU_WARP);
    launch(c, &balance_fwd, (gpu_grid){1, 1, 1, threads, 0}, &a);
}

static void balance_backward(const op_call *c) {
    balance_args a = balance_open(c);
    if (!c->din[0].data) return;
    a.dloss = c->dout[0].data, a.dload = mat_of(&c->din[0]), a.add = op_accumulates(c, 0);
    launch(c, &balance_bwd, (gpu_grid){(uint32_t)a.sequences, 1, 1, GPU_WARP, 0}, &a);
}

const op_impl CUDA_IMPL(ROUTER_BALANCE) = {balance_forward, balance_backward, NULL, NULL};
#endif
