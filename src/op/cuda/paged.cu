/* Caches of pages: PAGE_STORE and PAGE_ATTENTION (op/ops.def).
 *
 * Store: a number read and one written; keys become columns, values stay rows. In f32 programs the
 * cache may be f16.
 *
 * Attention: a block takes a row, a kv head with up to HEADS of its queries, and KEYS keys. Scores
 * with a thread for each key, as keys lie as columns; a warp makes weights of a query's scores;
 * values are mixed with a thread for each column. A second kernel joins the blocks of a row. Every
 * number is one chain of additions in the order of the keys, or a sum in a warp over all keys of a
 * block: a row's bits are its own. FLOPs 2 (D + Dv) per visible key and query; keys and values are
 * read once for HEADS queries.
 *
 * Workspace: H pieces (Dv + 2) floats per row, of as many rows as fit 8 MiB, or of one; a launch
 * takes so many rows. */
#include "op/cuda/pieces.h"

typedef struct store_args {
    mat cache, src, at, out;
    pieces all;              /* of the cache */
    int64_t places, numbers; /* of the cache; of src */
    int32_t K, W, page;      /* W columns of a head */
    int32_t turned, as_f16;
} store_args;

KERNEL(paged_copy, store_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    if (!my_piece(&a->all, &n, &c)) return;
    if (a->as_f16)
        ((uint16_t *)a->out.p)[n * a->out.ld + c] =
            ((const uint16_t *)a->cache.p)[n * a->cache.ld + c];
    else
        row_of(a->out, n)[c] = row_of(a->cache, n)[c];
}

GPU_FN uint16_t to_f16(float x) {
    float size = fabsf(x);
    bool beyond = size > 65504.0f && size < INFINITY;
    return f16_store(beyond ? copysignf(65504.0f, x) : x);
}

KERNEL(paged_store, store_args, PIECE_THREADS) {
    int64_t i = (int64_t)block_x() * threads_x() + thread_x();
    if (i >= a->numbers) return;
    int64_t in_row = (int64_t)a->K * a->W, n = i / in_row, c = i - n * in_row;
    int64_t at = *i32_row_of(a->at, n), d = c % a->W;
    if (at < 0) return;
    kernel_check(at < a->places, "finds a place outside the cache");
    int64_t block = at / a->page * a->K + c / a->W, slot = at % a->page;
    int64_t to = a->turned ? (block * a->W + d) * a->out.ld + slot
                           : (block * a->page + slot) * a->out.ld + d;
    STORE v = row_of(a->src, n)[c];
    if (a->as_f16)
        ((uint16_t *)a->out.p)[to] = to_f16(load(v));
    else
        ((STORE *)a->out.p)[to] = v;
}

enum { THREADS = 128, HEADS = 4, KEYS = 512, PART_FLOATS = 1 << 21 };

typedef struct paged_args {
    mat q, k, v, pages, place, o;
    int32_t H, K, D, Dv, page, window;
    float scale, softcap;
    int32_t narrow;  /* the caches are f16, whatever STORE is */
    int32_t in_keys; /* there are no values but the first columns of keys */
    int32_t pieces,
        chunks;    /* of the longest sequence; blocks that share the queries of a kv head */
    int64_t first; /* the launch's first row */
    float *part_o,
        *part_m; /* [rows, H, pieces, Dv]; of each a maximum, in units of log 2, and a sum */
} paged_args;

/* What a row sees of its sequence: keys [low, high). */
typedef struct paged_view {
    const int32_t *pages;
    int32_t low, high;
} paged_view;

GPU_FN paged_view paged_look(const paged_args *a, int64_t row) {
    const int32_t *place = i32_row_of(a->place, row);
    paged_view v = {NULL, 0, 0};
    if (place[1] < 0) return v;
    v.pages = i32_row_of(a->pages, place[0]);
    v.high = place[1] + 1;
    v.low = a->window > 0 && v.high > a->window ? v.high - a->window : 0;
    return v;
}

GPU_FN float cached(const paged_args *a, mat m, int64_t i) {
    return a->narrow ? f16_load(((const uint16_t *)m.p)[i]) : load(((const STORE *)m.p)[i]);
}

/* Of position j: the page's blocks of a head that lie before the one of kv. */
GPU_FN int64_t block_of(const paged_args *a, const paged_view *v, int32_t j, int32_t kv) {
    return (int64_t)v->pages[j / a->page] * a->K + kv;
}

/* Column c of a value; without values of their own, of the key. */
GPU_FN float value_of(const paged_args *a, int64_t block, int32_t slot, int32_t c) {
    if (a->in_keys) return cached(a, a->k, (block * a->D + c) * a->k.ld + slot);
    return cached(a, a->v, (block * a->page + slot) * a->v.ld + c);
}

GPU_FN float score_of(const paged_args *a, float qk) {
    float s = qk * a->scale;
    if (a->softcap > 0) s = a->softcap * tanhf(s / a->softcap);
    return s * 1.4426950408889634f;
}

/* s[h][j - from] of all queries and keys [from, to). */
GPU_FN void score_keys(const paged_args *a, const paged_view *v, int32_t kv, int32_t heads,
                       const float *q, int32_t from, int32_t to, float *s) {
    for (int32_t j = from + (int32_t)thread_x(); j < to; j += (int32_t)threads_x()) {
        int64_t at = block_of(a, v, j, kv) * a->D * a->k.ld + j % a->page;
        float sum[HEADS] = {0};
        for (int32_t d = 0; d < a->D; d++, at += a->k.ld) {
            float key = cached(a, a->k, at);
            UNROLL
            for (int h = 0; h < HEADS; h++)
                if (h < heads) sum[h] += q[h * a->D + d] * key;
        }
        UNROLL
        for (int h = 0; h < HEADS; h++)
            if (h < heads) s[h * KEYS + j - from] = score_of(a, sum[h]);
    }
}

/* The scores of n keys become weights; max_sum has the maximum and the sum of each query. */
GPU_FN void weigh_keys(int32_t heads, int32_t n, float *s, float *max_sum) {
    for (int32_t h = (int32_t)warp(); h < heads; h += (int32_t)(threads_x() / GPU_WARP)) {
        float max = -INFINITY, sum = 0, *row = s + h * KEYS;
        for (int32_t j = (int32_t)lane(); j < n; j += GPU_WARP) max = gpu_max(max, row[j]);
        max = warp_max(max);
        float base = max > -INFINITY ? max : 0;
        for (int32_t j = (int32_t)lane(); j < n; j += GPU_WARP) {
            row[j] = fast_exp2(row[j] - base);
            sum += row[j];
        }
        sum = warp_sum(sum);
        if (lane() == 0) max_sum[2 * h] = max, max_sum[2 * h + 1] = sum;
    }
}

KERNEL(paged_attend, paged_args, THREADS) {
    SHARED_DYNAMIC(float, room);
    SHARED(float, max_sum, 2 * HEADS);
    int32_t piece = (int32_t)block_y(), chunk = (int32_t)(block_x() % (uint32_t)a->chunks);
    int64_t n = block_x() / (uint32_t)a->chunks, row = a->first + n / a->K;
    int32_t kv = (int32_t)(n % a->K), group = a->H / a->K, first = kv * group + chunk * HEADS;
    int32_t heads = group - chunk * HEADS < HEADS ? group - chunk * HEADS : HEADS;
    paged_view v = paged_look(a, row);
    int32_t from = piece * KEYS > v.low ? piece * KEYS : v.low;
    int32_t to = (piece + 1) * KEYS < v.high ? (piece + 1) * KEYS : v.high;
    if (from >= to) return;
    float *q = room, *s = room + HEADS * a->D;
    for (int32_t i = (int32_t)thread_x(); i < heads * a->D; i += (int32_t)threads_x())
        q[i] = load(row_of(a->q, row)[(int64_t)first * a->D + i]);
    sync_block();
    score_keys(a, &v, kv, heads, q, from, to, s);
    sync_block();
    weigh_keys(heads, to - from, s, max_sum);
    sync_block();
    int64_t part = ((n / a->K) * a->H + first) * a->pieces + piece;
    for (int32_t c = (int32_t)thread_x(); c < a->Dv; c += (int32_t)threads_x()) {
        float sum[HEADS] = {0};
        for (int32_t j = from; j < to; j++) {
            float value = value_of(a, block_of(a, &v, j, kv), j % a->page, c);
            UNROLL
            for (int h = 0; h < HEADS; h++)
                if (h < heads) sum[h] += s[h * KEYS + j - from] * value;
        }
        for (int h = 0; h < heads; h++)
            a->part_o[(part + (int64_t)h * a->pieces) * a->Dv + c] = sum[h];
    }
    for (int32_t h = (int32_t)thread_x(); h < heads; h += (int32_t)threads_x()) {
        float *m = a->part_m + 2 * (part + (int64_t)h * a->pieces);
        m[0] = max_sum[2 * h], m[1] = max_sum[2 * h + 1];
    }
}

/* Joins the parts of a query, and writes zeros where a row sees nothing. */
KERNEL(paged_join, paged_args, THREADS) {
    int64_t n = block_x() / (uint32_t)a->H, h = block_x() % (uint32_t)a->H, row = a->first + n;
    paged_view v = paged_look(a, row);
    int32_t low = v.low / KEYS, high = (v.high + KEYS - 1) / KEYS;
    int64_t part = (n * a->H + h) * a->pieces;
    float max = -INFINITY, sum = 0;
    for (int32_t i = low; i < high; i++) max = gpu_max(max, a->part_m[2 * (part + i)]);
    float base = max > -INFINITY ? max : 0;
    for (int32_t i = low; i < high; i++)
        sum += fast_exp2(a->part_m[2 * (part + i)] - base) * a->part_m[2 * (part + i) + 1];
    for (int32_t c = (int32_t)thread_x(); c < a->Dv; c += (int32_t)threads_x()) {
        float o = 0;
        for (int32_t i = low; i < high; i++)
            o += fast_exp2(a->part_m[2 * (part + i)] - base) * a->part_o[(part + i) * a->Dv + c];
        row_of(a->o, row)[h * a->Dv + c] = store(sum > 0 ? o / sum : 0);
    }
}

#ifndef __CUDACC__

static void page_store_fwd(const op_call *c) {
    const tensor *cache = &c->in[0], *src = &c->in[1], *out = &c->out[0];
    const op_paged *at = &c->attr->paged;
    store_args a = {.cache = mat_of(cache), .src = mat_of(src), .at = mat_of(&c->in[2])};
    a.out = mat_of(out);
    a.K = at->K, a.page = at->page, a.turned = at->turned, a.W = (int32_t)(src->cols / at->K);
    a.places = out->rows / at->K / (at->turned ? a.W : at->page) * at->page;
    a.numbers = src->rows * src->cols;
    a.as_f16 = out->dt == DT_F16 && sizeof(STORE) > sizeof(uint16_t);
    a.all = pieces_of(out->rows, out->cols, false);
    if (out->data != cache->data) launch(c, &paged_copy, grid_of_pieces(&a.all), &a);
    uint32_t threads = threads_for(a.numbers, PIECE_THREADS);
    launch(c, &paged_store, (gpu_grid){blocks_for(a.numbers, threads), 1, 1, threads, 0}, &a);
}

const op_impl CUDA_IMPL(PAGE_STORE) = {page_store_fwd, NULL, NULL, NULL};

static int32_t pieces_of_longest(const op_attr *at, int64_t columns) {
    return (int32_t)((columns * at->paged.page + KEYS - 1) / KEYS);
}

/* Rows of a launch. */
static int64_t rows_at_once(const op_attr *at, int64_t rows, int64_t columns) {
    int64_t one = (int64_t)at->paged.H * pieces_of_longest(at, columns) * (at->paged.Dv + 2);
    int64_t fit = one > PART_FLOATS ? 1 : PART_FLOATS / one;
    return rows < fit ? rows : fit;
}

static void page_attention_workspace(const op_infer *io, int64_t ws[3]) {
    const op_attr *at = io->attr;
    int64_t parts = rows_at_once(at, io->in[0].rows, io->in[3].cols) * at->paged.H *
                    pieces_of_longest(at, io->in[3].cols);
    ws[0] = parts * (at->paged.Dv + 2) * (int64_t)sizeof(float);
}

static void page_attention_fwd(const op_call *c) {
    const op_paged *at = &c->attr->paged;
    int64_t N = c->in[0].rows, step = rows_at_once(c->attr, N, c->in[3].cols);
    paged_args a = {.q = mat_of(&c->in[0]), .k = mat_of(&c->in[1]), .v = mat_of(&c->in[2])};
    a.pages = mat_of(&c->in[3]), a.place = mat_of(&c->in[4]), a.o = mat_of(&c->out[0]);
    a.H = at->H, a.K = at->K, a.D = at->D, a.Dv = at->Dv, a.page = at->page;
    a.window = at->window, a.scale = at->scale, a.softcap = at->softcap;
    a.narrow = c->in[1].dt == DT_F16 && sizeof(STORE) > sizeof(uint16_t);
    a.in_keys = !c->in[2].data;
    a.pieces = pieces_of_longest(c->attr, c->in[3].cols);
    a.chunks = (at->H / at->K + HEADS - 1) / HEADS;
    a.part_o = c->ws;
    a.part_m = a.part_o + step * at->H * a.pieces * at->Dv;
    uint32_t shared = (uint32_t)(HEADS * (at->D + KEYS) * (int32_t)sizeof(float));
    uint32_t threads = threads_for(at->D > at->Dv ? at->D : at->Dv, THREADS);
    for (a.first = 0; a.first < N; a.first += step) {
        int64_t rows = N - a.first < step ? N - a.first : step;
        uint32_t blocks = (uint32_t)(rows * at->K * a.chunks);
        launch(c, &paged_attend, (gpu_grid){blocks, (uint32_t)a.pieces, 1, threads, shared}, &a);
        launch(c, &paged_join, (gpu_grid){(uint32_t)(rows * at->H), 1, 1, threads, 0}, &a);
    }
}

const op_impl CUDA_IMPL(PAGE_ATTENTION) = {page_attention_fwd, NULL, NULL,
                                           page_attention_workspace};
#endif
