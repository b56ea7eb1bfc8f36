/* Attention by plain arithmetic, in tiles: for f32, and for head sizes that the kernels on tensor
 * cores do not take.
 *
 * A block has tiles of R rows (queries; keys for their gradients) and passes over tiles of COLS
 * columns (keys; queries). Operands lie in shared memory as float, CHUNK columns of a head at a
 * time, so that any head size will do. Threads stand 8 in a row: thread (ty, tx) has the scores of
 * rows ty, ty + R/4, .. (4) and columns tx, tx + 8, .. (4), and of the result the same rows. The
 * 8 threads of a row are in one warp, so a row's maximum is 3 shuffles, and P, which goes through
 * shared memory, never leaves its warp. A result has at most CHUNK columns; other blocks make the
 * next ones, and the scores again.
 *
 * FLOPs per visible pair: forward 2 (D + Dv), backward 2 (5 D + 4 Dv) in two kernels; for each
 * further chunk the scores again. A bias by distance has kernels of its own, with a read of it for each pair; its gradient makes
 * scores and dp of each pair once more, 2 (D + Dv). Shared memory per multiply-add: 1/8 access of 16 bytes. Blocks of 64
 * rows have up to 254 registers per thread and 44 KB (forward) or 62 KB at D = 64: 2 of them, or 8
 * warps, in a multiprocessor. */
#ifndef OP_CUDA_ATTENTION_ANY_H
#define OP_CUDA_ATTENTION_ANY_H

#include "op/cuda/attention.h"

enum {
    ANY_THREADS = 128, /* at most; 32 for few rows */
    ANY_CHUNK = 64,
    ANY_STRIDE = ANY_CHUNK + 4, /* of a tile's rows: 8 rows lie in different banks */
    ANY_COLS = 32,
    ANY_P_STRIDE = ANY_COLS + 4
};

/* Where a block's threads and buffers are. Tiles of rows: one for each chunk if the operands stay. */
typedef struct any_block {
    int32_t ty, tx, step, rows; /* rows of a tile; step: from one of a thread's rows to the next */
    float *row_a, *row_b;       /* [chunks][rows][ANY_STRIDE] */
    float *col_a, *col_b;       /* [ANY_COLS][ANY_STRIDE] */
    float *p;                   /* [rows][ANY_P_STRIDE] */
} any_block;

GPU_FN int32_t any_chunks(int32_t d) {
    return (d + ANY_CHUNK - 1) / ANY_CHUNK;
}

/* two: the rows have two operands. */
GPU_FN any_block any_open(const attention_args *a, float *room, bool two) {
    any_block t;
    t.tx = (int32_t)thread_x() % 8, t.ty = (int32_t)thread_x() / 8;
    t.step = (int32_t)threads_x() / 8, t.rows = 4 * t.step;
    int32_t tile = t.rows * ANY_STRIDE;
    t.row_a = room;
    t.row_b = t.row_a + tile * (a->keep ? any_chunks(a->D) : 1);
    t.col_a = t.row_b + (two ? tile * (a->keep ? any_chunks(a->Dv) : 1) : 0);
    t.col_b = t.col_a + ANY_COLS * ANY_STRIDE;
    t.p = t.col_b + ANY_COLS * ANY_STRIDE;
    return t;
}

/* ---- tiles ---- */

/* Numbers c .. c+3 of row x, as far as `cols` goes. */
GPU_FN void load_piece(float v[4], const strip *s, int32_t x, int32_t c, int32_t cols) {
    if (s->narrow) {
        const uint16_t *h = (const uint16_t *)s->p + x * s->ld;
        for (int k = 0; k < 4; k++) v[k] = c + k < cols ? f16_load(h[c + k]) : 0;
        return;
    }
    const STORE *row = strip_row(s, x);
    for (int k = 0; k < 4; k++) v[k] = c + k < cols ? load(row[c + k]) : 0;
}

/* Columns from c0 on (`cols` of them, to a multiple of 4 filled up with 0) of rows x0 .. x0 + n - 1;
 * the further ones of `rows` are 0. */
GPU_FN void load_tile(float *to, strip s, int32_t x0, int32_t n, int32_t rows, int32_t c0,
                      int32_t cols) {
    if (s.wide) {
        int32_t c = (int32_t)thread_x() % (ANY_CHUNK / VEC) * VEC;
        int32_t step = (int32_t)threads_x() / (ANY_CHUNK / VEC);
        for (int32_t r = (int32_t)thread_x() / (ANY_CHUNK / VEC); r < rows && c < cols; r += step) {
            float v[VEC];
            UNROLL
            for (int k = 0; k < VEC; k++) v[k] = 0;
            if (r < n) load_vec(v, strip_row(&s, x0 + r) + c0 + c);
            UNROLL
            for (int k = 0; k < VEC; k += 4) store4(to + r * ANY_STRIDE + c + k, v + k);
        }
        return;
    }
    int32_t c = (int32_t)thread_x() % 16 * 4;
    for (int32_t r = (int32_t)thread_x() / 16; r < rows && c < cols;
         r += (int32_t)threads_x() / 16) {
        float v[4] = {0, 0, 0, 0};
        if (r < n) load_piece(v, &s, x0 + r, c0 + c, c0 + cols);
        store4(to + r * ANY_STRIDE + c, v);
    }
}

/* s += A B^T over w columns of both tiles. */
GPU_FN void add_dots(const any_block *t, float s[4][4], const float *A, const float *B, int32_t w) {
    for (int32_t d = 0; d < w; d += 4) {
        float x[4][4], y[4][4];
        UNROLL
        for (int i = 0; i < 4; i++) load4(x[i], A + (t->ty + i * t->step) * ANY_STRIDE + d);
        UNROLL
        for (int j = 0; j < 4; j++) load4(y[j], B + (t->tx + 8 * j) * ANY_STRIDE + d);
        UNROLL
        for (int i = 0; i < 4; i++) UNROLL
        for (int j = 0; j < 4; j++) UNROLL
        for (int k = 0; k < 4; k++) s[i][j] += x[i][k] * y[j][k];
    }
}

/* s = A B^T of the rows x0 .. (n of them) of `rows` and the columns j0 .. (m) of `cols`, over d
 * numbers. The last chunk of B stays in col_tile. */
GPU_FN void tile_scores(const attention_args *a, const any_block *t, float s[4][4], strip rows,
                        int32_t x0, int32_t n, float *row_tile, strip cols, int32_t j0, int32_t m,
                        float *col_tile, int32_t d) {
    UNROLL
    for (int i = 0; i < 4; i++) UNROLL
    for (int j = 0; j < 4; j++) s[i][j] = 0;
    for (int32_t c = 0; c < d; c += ANY_CHUNK) {
        int32_t w = least(d - c, ANY_CHUNK);
        float *mine = a->keep ? row_tile + c / ANY_CHUNK * t->rows * ANY_STRIDE : row_tile;
        sync_block();
        if (!a->keep) load_tile(mine, rows, x0, n, t->rows, c, w);
        load_tile(col_tile, cols, j0, m, ANY_COLS, c, w);
        sync_block();
        add_dots(t, s, mine, col_tile, w);
    }
}

/* The row operands stay: all chunks, before the first tile. */
GPU_FN void keep_rows(const attention_args *a, const any_block *t, strip rows, int32_t x0,
                      int32_t n, float *row_tile, int32_t d) {
    for (int32_t c = 0; c < d && a->keep; c += ANY_CHUNK)
        load_tile(row_tile + c / ANY_CHUNK * t->rows * ANY_STRIDE, rows, x0, n, t->rows, c,
                  least(d - c, ANY_CHUNK));
}

/* Chunk c0 of `cols` into the tile, unless tile_scores has left it there. All of the block. */
GPU_FN void result_tile(strip cols, int32_t j0, int32_t m, float *tile, int32_t c0, int32_t d) {
    if (d <= ANY_CHUNK) return;
    sync_block();
    load_tile(tile, cols, j0, m, ANY_COLS, c0, least(d - c0, ANY_CHUNK));
    sync_block();
}

GPU_FN void put_p(const any_block *t, const float p[4][4]) {
    UNROLL
    for (int i = 0; i < 4; i++) UNROLL
    for (int j = 0; j < 4; j++)
        t->p[(t->ty + i * t->step) * ANY_P_STRIDE + t->tx + 8 * j] = p[i][j];
    sync_warp();
}

/* o += P V: m rows of V, w columns. Of each 32 columns, a thread has 4: o[i][4 g + k] is column
 * 32 g + 4 tx + k. */
GPU_FN void add_product(const any_block *t, float o[4][8], const float *V, int32_t m, int32_t w) {
    for (int32_t j = 0; j < m; j += 4) {
        float p[4][4];
        UNROLL
        for (int i = 0; i < 4; i++) load4(p[i], t->p + (t->ty + i * t->step) * ANY_P_STRIDE + j);
        UNROLL
        for (int g = 0; g < 2; g++) {
            int32_t c = 32 * g + 4 * t->tx;
            if (c >= w) continue;
            UNROLL
            for (int k = 0; k < 4; k++) {
                float v[4];
                load4(v, V + (j + k) * ANY_STRIDE + c);
                UNROLL
                for (int i = 0; i < 4; i++) UNROLL
                for (int e = 0; e < 4; e++) o[i][4 * g + e] += p[i][k] * v[e];
            }
        }
    }
    sync_warp();
}

/* Columns c0 .. of the rows that a thread has, times factor[i]. */
GPU_FN void put_rows(const any_block *t, const float o[4][8], const float factor[4], strip to,
                     int32_t x0, int32_t n, int32_t c0, int32_t w, bool add) {
    for (int i = 0; i < 4; i++) {
        int32_t r = t->ty + i * t->step;
        if (r >= n) continue;
        STORE *row = (STORE *)strip_row(&to, x0 + r) + c0;
        for (int g = 0; g < 8; g++) {
            int32_t c = 32 * (g / 4) + 4 * t->tx + g % 4;
            if (c < w) put(&row[c], o[i][g] * factor[i], add);
        }
    }
}

GPU_FN void clear(float o[4][8]) {
    UNROLL
    for (int i = 0; i < 4; i++) UNROLL
    for (int g = 0; g < 8; g++) o[i][g] = 0;
}

GPU_FN float row_sum(float v) {
    for (int m = 4; m > 0; m >>= 1) v += shuffle_xor(v, m);
    return v;
}
GPU_FN float row_max(float v) {
    for (int m = 4; m > 0; m >>= 1) v = gpu_max(v, shuffle_xor(v, m));
    return v;
}

/* ---- forward ---- */

/* The running softmax of the rows of a thread. */
typedef struct any_soft {
    float max[4], sum[4]; /* sum: of this thread's columns */
    key_range sees[4];
    uint64_t draws[4];
} any_soft;

/* Where a block of forward works. */
typedef struct any_place {
    int32_t b, h, x0, n; /* the first head; the first row, and how many there are */
    int32_t split, chunk;
    int64_t group; /* b and head together */
} any_place;

/* Scores become probabilities, and o and the sums are brought to the new maximum. */
GPU_FN void soften(const attention_args *a, const any_block *t, const any_place *w, any_soft *f,
                   bool biased, float s[4][4], float o[4][8], int32_t j0) {
    UNROLL
    for (int i = 0; i < 4; i++) {
        float max = f->max[i];
        int32_t x = w->x0 + least(t->ty + i * t->step, w->n - 1), h = w->h + x / a->Tq;
        int32_t at = biased ? bias_at(a, w->b, x % a->Tq) : 0;
        UNROLL
        for (int j = 0; j < 4; j++) {
            int32_t key = j0 + t->tx + 8 * j;
            bool seen = key >= f->sees[i].low && key < f->sees[i].high;
            float bias = biased ? bias_of(a, at, key, h) : 0;
            s[i][j] = seen ? score_of(a, s[i][j], bias) : -INFINITY;
            max = gpu_max(max, s[i][j]);
        }
        max = row_max(max);
        float base = max > -INFINITY ? max : 0, shrink = fast_exp2(f->max[i] - base);
        f->max[i] = max;
        f->sum[i] *= shrink;
        UNROLL
        for (int g = 0; g < 8; g++) o[i][g] *= shrink;
        UNROLL
        for (int j = 0; j < 4; j++) {
            float p = fast_exp2(s[i][j] - base);
            f->sum[i] += p;
            if (a->draw.scale > 0) p *= keep_factor(a, f->draws[i], j0 + t->tx + 8 * j);
            s[i][j] = p;
        }
    }
}

/* The last rows, which see the most keys, come first. */
GPU_FN any_place any_place_of(const attention_args *a, int32_t rows) {
    any_place w;
    int32_t groups = a->H / a->pack, n = (int32_t)block_x();
    w.chunk = n % a->chunks, n /= a->chunks;
    w.split = n % a->splits, n /= a->splits;
    w.group = n % (a->B * groups);
    w.b = (int32_t)w.group / groups, w.h = (int32_t)w.group % groups * a->pack;
    w.x0 = (a->tiles - 1 - n / (a->B * groups)) * rows;
    w.n = least(a->pack * a->Tq - w.x0, rows);
    return w;
}

/* Fills in what the thread's rows see, and gives what all rows of the block see together. */
GPU_FN key_range any_look(const attention_args *a, const any_block *t, const any_place *w,
                          any_soft *f) {
    key_range all = {INT32_MAX, 0};
    for (int32_t r = (int32_t)lane(); r < w->n; r += GPU_WARP) {
        key_range v = visible(a, w->b, (w->x0 + r) % a->Tq);
        if (v.low < v.high) all.low = least(all.low, v.low), all.high = most(all.high, v.high);
    }
    all.low = warp_least(all.low), all.high = warp_most(all.high);
    UNROLL
    for (int i = 0; i < 4; i++) {
        int32_t r = t->ty + i * t->step, x = w->x0 + least(r, w->n - 1);
        f->sees[i] = visible(a, w->b, x % a->Tq);
        if (r >= w->n) f->sees[i].high = f->sees[i].low;
        f->draws[i] = draw_row(a, w->b, w->h + x / a->Tq, x % a->Tq);
        f->max[i] = -INFINITY, f->sum[i] = 0;
    }
    return all;
}

/* The row of part_o and part_m for row r of the block. */
GPU_FN int64_t part_row(const attention_args *a, const any_place *w, int32_t r) {
    return (w->group * a->splits + w->split) * a->pack * a->Tq + w->x0 + r;
}

/* Of the keys that a block's rows see, those of one split; it begins after whole tiles. */
GPU_FN key_range part_of(const attention_args *a, key_range all, int32_t columns, int32_t split) {
    key_range part = {0, 0};
    if (all.low >= all.high) return part;
    int64_t n = (all.high - all.low + columns - 1) / columns;
    part.low = all.low + (int32_t)(n * split / a->splits) * columns;
    part.high = least(all.low + (int32_t)(n * (split + 1) / a->splits) * columns, all.high);
    return part;
}

/* The part of a block that has some of the keys only. */
GPU_FN void put_part(const attention_args *a, const any_block *t, const any_place *w,
                     const any_soft *f, const float o[4][8], const float sum[4]) {
    int32_t c0 = w->chunk * ANY_CHUNK, cols = least(a->Dv - c0, ANY_CHUNK);
    for (int i = 0; i < 4; i++) {
        int32_t r = t->ty + i * t->step;
        if (r >= w->n) continue;
        int64_t at = part_row(a, w, r);
        for (int g = 0; g < 8; g++) {
            int32_t c = 32 * (g / 4) + 4 * t->tx + g % 4;
            if (c < cols) a->part_o[at * a->Dv + c0 + c] = o[i][g];
        }
        if (w->chunk == 0 && t->tx == 0)
            a->part_m[2 * at] = f->max[i], a->part_m[2 * at + 1] = sum[i];
    }
}

GPU_FN void put_lse(const attention_args *a, int32_t b, int32_t h, int32_t i, float max,
                    float sum) {
    float *row = f32_row_of(a->lse, (int64_t)b * a->H + h);
    row[i] = sum > 0 ? max * LN2 + logf(sum) : -INFINITY;
}

GPU_FN void any_forward(const attention_args *a, float *room, bool biased) {
    any_block t = any_open(a, room, false);
    any_place w = any_place_of(a, t.rows);
    any_soft f;
    key_range all = any_look(a, &t, &w, &f);
    int32_t kv = w.h / (a->H / a->K), c0 = w.chunk * ANY_CHUNK;
    int32_t cols = least(a->Dv - c0, ANY_CHUNK);
    strip q = query_strip(a, a->q, w.b, w.h, a->D);
    strip k = key_strip(a, a->k, w.b, kv, a->D), v = key_strip(a, a->v, w.b, kv, a->Dv);
    keep_rows(a, &t, q, w.x0, w.n, t.row_a, a->D);
    float o[4][8], s[4][4];
    clear(o);
    all = part_of(a, all, ANY_COLS, w.split);
    for (int32_t j0 = all.low; j0 < all.high; j0 += ANY_COLS) {
        int32_t m = least(all.high - j0, ANY_COLS);
        tile_scores(a, &t, s, q, w.x0, w.n, t.row_a, k, j0, m, t.col_a, a->D);
        load_tile(t.col_b, v, j0, m, ANY_COLS, c0, cols);
        soften(a, &t, &w, &f, biased, s, o, j0);
        put_p(&t, s);
        sync_block();
        add_product(&t, o, t.col_b, m, cols);
    }
    float sum[4], scale[4];
    for (int i = 0; i < 4; i++) {
        sum[i] = row_sum(f.sum[i]);
        int32_t x = w.x0 + least(t.ty + i * t.step, w.n - 1);
        scale[i] = a->splits > 1 ? 0 : join_sink(a, w.h + x / a->Tq, &f.max[i], &sum[i]);
    }
    if (a->splits > 1) {
        put_part(a, &t, &w, &f, o, sum);
        return;
    }
    put_rows(&t, o, scale, query_strip(a, a->o, w.b, w.h, a->Dv), w.x0, w.n, c0, cols, false);
    for (int i = 0; i < 4; i++) {
        int32_t r = t.ty + i * t.step, x = w.x0 + r;
        if (r < w.n && w.chunk == 0 && t.tx == 0)
            put_lse(a, w.b, w.h + x / a->Tq, x % a->Tq, f.max[i], sum[i]);
    }
}

KERNEL(attention_any_fwd, attention_args, ANY_THREADS) {
    SHARED_DYNAMIC(float, room);
    any_forward(a, room, false);
}
KERNEL(attention_biased_fwd, attention_args, ANY_THREADS) {
    SHARED_DYNAMIC(float, room);
    any_forward(a, room, true);
}

/* Joins the parts of the keys, for a row in each block. */
KERNEL(attention_join, attention_args, ANY_THREADS) {
    int32_t rows = a->pack * a->Tq, groups = a->H / a->pack,
            x = (int32_t)(block_x() % (uint32_t)rows);
    int64_t group = block_x() / (uint32_t)rows, first = group * a->splits * rows + x;
    float max = -INFINITY, sum = 0;
    for (int32_t s = 0; s < a->splits; s++)
        max = gpu_max(max, a->part_m[2 * (first + (int64_t)s * rows)]);
    float base = max > -INFINITY ? max : 0;
    for (int32_t s = 0; s < a->splits; s++) {
        const float *part = &a->part_m[2 * (first + (int64_t)s * rows)];
        sum += fast_exp2(part[0] - base) * part[1];
    }
    int32_t b = (int32_t)group / groups, h = (int32_t)group % groups * a->pack + x / a->Tq,
            i = x % a->Tq;
    float scale = join_sink(a, h, &max, &sum);
    STORE *o = row_of(a->o, (int64_t)b * a->Tq + i) + (int64_t)h * a->Dv;
    for (int32_t c = (int32_t)thread_x(); c < a->Dv; c += (int32_t)threads_x()) {
        float v = 0;
        for (int32_t s = 0; s < a->splits; s++) {
            int64_t at = first + (int64_t)s * rows;
            v += fast_exp2(a->part_m[2 * at] - base) * a->part_o[at * a->Dv + c];
        }
        o[c] = store(v * scale);
    }
    if (thread_x() == 0) put_lse(a, b, h, i, max, sum);
}

/* ---- backward ---- */

/* Of the sink of head h, for which there is a block: - sum exp(sink - lse) delta. A warp takes every so
 * many rows. */
KERNEL(attention_sinks, attention_args, ANY_THREADS) {
    SHARED(float, parts, ANY_THREADS / GPU_WARP);
    int32_t h = (int32_t)block_x(), warps = (int32_t)(threads_x() / GPU_WARP);
    float sum = 0;
    for (int64_t n = warp(); n < (int64_t)a->B * a->Tq; n += warps) {
        const STORE *o = row_of(a->o, n) + (int64_t)h * a->Dv;
        const STORE *d_o = row_of(a->d_o, n) + (int64_t)h * a->Dv;
        float delta = 0;
        for (int32_t c = (int32_t)lane(); c < a->Dv; c += GPU_WARP)
            delta += load(o[c]) * load(d_o[c]);
        float lse = f32_row_of(a->lse, n / a->Tq * a->H + h)[n % a->Tq];
        sum -= fast_exp2((a->sinks[h] - lse) * LOG2E) * warp_sum(delta);
    }
    if (lane() == 0) parts[warp()] = sum;
    sync_block();
    if (thread_x() != 0) return;
    for (int32_t w = 1; w < warps; w++) sum += parts[w];
    put_f32(&a->d_sinks[h], sum, a->add_sinks);
}

/* delta = do . o: a warp takes a row of a head. */
KERNEL(attention_delta, attention_args, ANY_THREADS) {
    int64_t n = (int64_t)block_x() * (threads_x() / GPU_WARP) + warp();
    if (n >= (int64_t)a->B * a->H * a->Tq) return;
    int64_t row = n / a->H, h = n % a->H;
    const STORE *o = row_of(a->o, row) + h * a->Dv, *d_o = row_of(a->d_o, row) + h * a->Dv;
    float sum = 0;
    for (int32_t c = (int32_t)lane(); c < a->Dv; c += GPU_WARP) sum += load(o[c]) * load(d_o[c]);
    sum = warp_sum(sum);
    if (lane() == 0) a->delta[(row / a->Tq * a->H + h) * a->Tq + row % a->Tq] = sum;
}

/* The keys that SEEN queries see together: a warp takes SEEN queries. */
KERNEL(attention_seen, attention_args, GPU_WARP) {
    int32_t tiles = (a->Tq + SEEN - 1) / SEEN;
    int32_t b = (int32_t)block_x() / tiles, i = (int32_t)block_x() % tiles * SEEN + (int32_t)lane();
    key_range v = {INT32_MAX, 0};
    if (i < a->Tq) v = visible(a, b, i);
    if (v.low >= v.high) v.low = INT32_MAX, v.high = 0;
    v.low = warp_least(v.low), v.high = warp_most(v.high);
    if (lane() == 0) a->seen[2 * block_x()] = v.low, a->seen[2 * block_x() + 1] = v.high;
}

/* s and dp of a pair become the probability (with what dropout kept) and ds. */
GPU_FN void pair_gradient(const attention_args *a, float *s, float *dp, float bias, bool seen,
                          float lse, float delta, uint64_t draws, int32_t key) {
    float t = score_of(a, *s, bias), p = seen ? fast_exp2(t - lse) : 0, m = 1;
    if (a->draw.scale > 0) m = keep_factor(a, draws, key);
    *dp = p * (m * *dp - delta) * score_slope(a, t);
    *s = m * p;
}

GPU_FN void any_queries(const attention_args *a, float *room, bool biased) {
    any_block t = any_open(a, room, true);
    any_place w = any_place_of(a, t.rows);
    any_soft f;
    key_range all = any_look(a, &t, &w, &f);
    int32_t kv = w.h / (a->H / a->K), c0 = w.chunk * ANY_CHUNK;
    int64_t head = (int64_t)w.b * a->H + w.h;
    strip q = query_strip(a, a->q, w.b, w.h, a->D), d_o = query_strip(a, a->d_o, w.b, w.h, a->Dv);
    strip k = key_strip(a, a->k, w.b, kv, a->D), v = key_strip(a, a->v, w.b, kv, a->Dv);
    keep_rows(a, &t, q, w.x0, w.n, t.row_a, a->D);
    keep_rows(a, &t, d_o, w.x0, w.n, t.row_b, a->Dv);
    float o[4][8], s[4][4], dp[4][4], lse[4], delta[4], scale[4];
    clear(o);
    for (int i = 0; i < 4; i++) {
        int32_t x = w.x0 + least(t.ty + i * t.step, w.n - 1);
        lse[i] = f32_row_of(a->lse, head)[x] * LOG2E, delta[i] = a->delta[head * a->Tq + x];
        scale[i] = a->scale;
    }
    for (int32_t j0 = all.low; j0 < all.high; j0 += ANY_COLS) {
        int32_t m = least(all.high - j0, ANY_COLS);
        tile_scores(a, &t, dp, d_o, w.x0, w.n, t.row_b, v, j0, m, t.col_b, a->Dv);
        tile_scores(a, &t, s, q, w.x0, w.n, t.row_a, k, j0, m, t.col_a, a->D);
        UNROLL
        for (int i = 0; i < 4; i++) UNROLL
        for (int j = 0; j < 4; j++) {
            int32_t key = j0 + t.tx + 8 * j, x = w.x0 + least(t.ty + i * t.step, w.n - 1);
            bool seen = key >= f.sees[i].low && key < f.sees[i].high;
            float bias = biased ? bias_of(a, bias_at(a, w.b, x), key, w.h) : 0;
            pair_gradient(a, &s[i][j], &dp[i][j], bias, seen, lse[i], delta[i], f.draws[i], key);
        }
        put_p(&t, dp);
        result_tile(k, j0, m, t.col_a, c0, a->D);
        add_product(&t, o, t.col_a, m, least(a->D - c0, ANY_CHUNK));
    }
    put_rows(&t, o, scale, query_strip(a, a->dq, w.b, w.h, a->D), w.x0, w.n, c0,
             least(a->D - c0, ANY_CHUNK), a->add_dq);
}

KERNEL(attention_any_dq, attention_args, ANY_THREADS) {
    SHARED_DYNAMIC(float, room);
    any_queries(a, room, false);
}
KERNEL(attention_biased_dq, attention_args, ANY_THREADS) {
    SHARED_DYNAMIC(float, room);
    any_queries(a, room, true);
}

/* What a tile of queries has, as columns. */
typedef struct any_columns {
    int32_t *low, *high; /* [ANY_COLS] */
    float *lse, *delta;
} any_columns;

GPU_FN void load_columns(const attention_args *a, const any_columns *q, int32_t b, int32_t h,
                         int32_t i0) {
    int32_t c = (int32_t)thread_x(), i = i0 + c;
    if (c >= ANY_COLS) return;
    key_range v = {0, 0};
    if (i < a->Tq) v = visible(a, b, i);
    int64_t head = (int64_t)b * a->H + h;
    q->low[c] = v.low, q->high[c] = v.high;
    q->lse[c] = i < a->Tq ? f32_row_of(a->lse, head)[i] * LOG2E : 0;
    q->delta[c] = i < a->Tq ? a->delta[head * a->Tq + i] : 0;
}

/* Gradients of a tile of keys from the queries i0 .. (m of them) of head h. */
GPU_FN void key_tile(const attention_args *a, const any_block *t, const any_columns *at,
                     bool biased, int32_t b, int32_t h, int32_t j0, int32_t n, int32_t i0,
                     int32_t c0, float dk[4][8], float dv[4][8]) {
    int32_t kv = h / (a->H / a->K), m = least(a->Tq - i0, ANY_COLS);
    strip q = query_strip(a, a->q, b, h, a->D), d_o = query_strip(a, a->d_o, b, h, a->Dv);
    strip k = key_strip(a, a->k, b, kv, a->D), v = key_strip(a, a->v, b, kv, a->Dv);
    float s[4][4], dp[4][4];
    sync_block();
    load_columns(a, at, b, h, i0);
    tile_scores(a, t, dp, v, j0, n, t->row_b, d_o, i0, m, t->col_b, a->Dv);
    tile_scores(a, t, s, k, j0, n, t->row_a, q, i0, m, t->col_a, a->D);
    UNROLL
    for (int i = 0; i < 4; i++) UNROLL
    for (int j = 0; j < 4; j++) {
        int32_t key = j0 + t->ty + i * t->step, c = t->tx + 8 * j;
        bool seen = key >= at->low[c] && key < at->high[c];
        float bias = biased ? bias_of(a, bias_at(a, b, i0 + c), key, h) : 0;
        pair_gradient(a, &s[i][j], &dp[i][j], bias, seen, at->lse[c], at->delta[c],
                      draw_row(a, b, h, i0 + c), key);
    }
    put_p(t, s);
    result_tile(d_o, i0, m, t->col_b, c0, a->Dv);
    add_product(t, dv, t->col_b, m, a->Dv - c0);
    put_p(t, dp);
    result_tile(q, i0, m, t->col_a, c0, a->D);
    add_product(t, dk, t->col_a, m, a->D - c0);
}

GPU_FN void any_keys(const attention_args *a, float *room, any_columns at, bool biased) {
    any_block t = any_open(a, room, true);
    int32_t number = (int32_t)block_x(), c0 = number % a->chunks * ANY_CHUNK, heads = a->H / a->K;
    int32_t kv = number / a->chunks % a->K, b = number / a->chunks / a->K % a->B;
    int32_t j0 = number / a->chunks / a->K / a->B * t.rows, n = least(a->Tk - j0, t.rows);
    strip k = key_strip(a, a->k, b, kv, a->D), v = key_strip(a, a->v, b, kv, a->Dv);
    keep_rows(a, &t, k, j0, n, t.row_a, a->D);
    keep_rows(a, &t, v, j0, n, t.row_b, a->Dv);
    float dk[4][8], dv[4][8], scale[4], one[4];
    clear(dk);
    clear(dv);
    for (int i = 0; i < 4; i++) scale[i] = a->scale, one[i] = 1;
    int32_t tiles = (a->Tq + SEEN - 1) / SEEN;
    for (int32_t h = kv * heads; h < (kv + 1) * heads; h++)
        for (int32_t i = 0; i < tiles; i++) {
            const int32_t *seen = &a->seen[2 * (b * tiles + i)];
            if (seen[0] < j0 + n && seen[1] > j0)
                key_tile(a, &t, &at, biased, b, h, j0, n, i * SEEN, c0, dk, dv);
        }
    if (a->dk.p)
        put_rows(&t, dk, scale, key_strip(a, a->dk, b, kv, a->D), j0, n, c0,
                 least(a->D - c0, ANY_CHUNK), a->add_dk);
    if (a->dv.p)
        put_rows(&t, dv, one, key_strip(a, a->dv, b, kv, a->Dv), j0, n, c0,
                 least(a->Dv - c0, ANY_CHUNK), a->add_dv);
}

#define ANY_KEYS(name, biased)                                                                     \
    KERNEL(name, attention_args, ANY_THREADS) {                                                    \
        SHARED_DYNAMIC(float, room);                                                               \
        SHARED(int32_t, low, ANY_COLS);                                                            \
        SHARED(int32_t, high, ANY_COLS);                                                           \
        SHARED(float, lse, ANY_COLS);                                                              \
        SHARED(float, delta, ANY_COLS);                                                            \
        any_columns at = {low, high, lse, delta};                                                  \
        any_keys(a, room, at, biased);                                                             \
    }
ANY_KEYS(attention_any_dkv, false)
ANY_KEYS(attention_biased_dkv, true)

/* ---- the gradient of the bias ---- */

/* The keys of a query whose scores have row w of the bias: one, but for the first and the last row. */
GPU_FN key_range keys_of_bias(const attention_args *a, int32_t w, int32_t b, int32_t i) {
    key_range r = visible(a, b, i);
    int32_t at = bias_at(a, b, i);
    if (w > 0) r.high = least(r.high, at - w + 1);
    if (w < a->bias_rows - 1) r.low = most(r.low, at - w);
    return r;
}

/* ds of a pair of query n = b Tq + i and key j. */
GPU_FN float bias_pair(const attention_args *a, int64_t n, int32_t j, int32_t h) {
    int32_t b = (int32_t)(n / a->Tq), i = (int32_t)(n % a->Tq), kv = h / (a->H / a->K);
    const STORE *q = row_of(a->q, n) + (int64_t)h * a->D;
    const STORE *d_o = row_of(a->d_o, n) + (int64_t)h * a->Dv;
    const STORE *k = row_of(a->k, (int64_t)b * a->Tk + j) + (int64_t)kv * a->D;
    const STORE *v = row_of(a->v, (int64_t)b * a->Tk + j) + (int64_t)kv * a->Dv;
    int64_t row = ((int64_t)b * a->H + h) * a->Tq + i;
    float s = 0, dp = 0, lse = f32_row_of(a->lse, (int64_t)b * a->H + h)[i] * LOG2E;
    for (int32_t c = 0; c < a->D; c++) s += load(q[c]) * load(k[c]);
    for (int32_t c = 0; c < a->Dv; c++) dp += load(d_o[c]) * load(v[c]);
    float bias = bias_of(a, bias_at(a, b, i), j, h);
    pair_gradient(a, &s, &dp, bias, true, lse, a->delta[row], draw_row(a, b, h, i), j);
    return dp;
}

/* Row w and head h of the bias, a thread for each query of a slice. */
KERNEL(attention_bias_parts, attention_args, ANY_THREADS) {
    SHARED(float, room, 32);
    int32_t w = (int32_t)(block_x() % (uint32_t)a->bias_rows), h = (int32_t)block_y();
    int64_t slice = block_x() / (uint32_t)a->bias_rows, n = slice * threads_x() + thread_x();
    float sum = 0;
    if (n < (int64_t)a->B * a->Tq) {
        key_range r = keys_of_bias(a, w, (int32_t)(n / a->Tq), (int32_t)(n % a->Tq));
        for (int32_t j = r.low; j < r.high; j++) sum += bias_pair(a, n, j, h);
    }
    sum = block_sum(sum, room);
    if (thread_x() == 0) a->part_bias[(slice * a->bias_rows + w) * a->H + h] = sum;
}

KERNEL(attention_bias_join, attention_args, ANY_THREADS) {
    int64_t i = (int64_t)block_x() * threads_x() + thread_x(), all = (int64_t)a->bias_rows * a->H;
    float sum = 0;
    if (i >= all) return;
    for (int32_t s = 0; s < a->tiles; s++) sum += a->part_bias[s * all + i];
    put(row_of(a->d_bias, i / a->H) + i % a->H, sum, a->add_bias);
}

#endif
