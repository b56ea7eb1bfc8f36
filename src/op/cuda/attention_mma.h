/* Attention on tensor cores, for 16-bit storage and heads of up to 128 numbers, a multiple of 8
 * (flash attention 2, Dao 2023).
 *
 * A warp has 16 rows: of queries, or of keys for their gradients. Tiles of columns come by cp.async,
 * one ahead of the one that is worked on. Scores stay in registers: what mma.sync gives as D [16,8]
 * twice is the A [16,16] of the next product, so P and dS never see memory. For the gradients of
 * keys, scores are made transposed, and so have keys as rows.
 *
 *   forward       S = Q K^T, O += P V
 *   dq            S = Q K^T, dP = dO V^T, dQ += dS K
 *   dk, dv        S^T = K Q^T, dP^T = V dO^T, dV += P^T dO, dK += dS^T Q
 *
 * FLOPs per visible pair: forward 2 (D + Dv), dq 2 (2 D + Dv), dk and dv 2 (2 D + 2 Dv): 7 products
 * where one kernel with atomics would have 5; but then sums had no fixed order. Shared memory of a
 * block: 16 bits times w (2 rows + 4 columns), forward one operand of rows less; w = 64 or 128.
 *
 * Tiles lie in shared memory in rows of w numbers, whose 16-byte pieces are permuted by the row
 * (piece ^ row % 8), so that the 8 rows of an ldmatrix lie in different banks. */
#ifndef OP_CUDA_ATTENTION_MMA_H
#define OP_CUDA_ATTENTION_MMA_H

#include "op/cuda/attention_any.h"

enum {
    MMA_THREADS = 256,
    MMA_ROWS = 16, /* of a warp */
    MMA_MOST_W = 128,
    MMA_MOST_COLS = 64,
    MMA_N = MMA_MOST_COLS / 8, /* fragments D of a tile of scores */
    MMA_O = MMA_MOST_W / 8     /* and of a result */
};

/* ---- tiles ---- */

GPU_FN STORE *piece_at(STORE *tile, int32_t w, int32_t row, int32_t piece) {
    return tile + row * w + ((piece ^ (row & 7)) * 8);
}

/* Rows x0 .. x0 + n - 1, d numbers each, begin to come; the further ones of `rows`, and columns up to
 * a multiple of 16, are 0. */
GPU_FN void copy_tile(STORE *to, int32_t w, strip s, int32_t x0, int32_t n, int32_t rows,
                      int32_t d) {
    const float zero[4] = {0, 0, 0, 0};
    int32_t pieces = w / 8, c = (int32_t)thread_x() % pieces;
    if (8 * c >= (d + 15) / 16 * 16) return;
    for (int32_t r = (int32_t)thread_x() / pieces; r < rows; r += (int32_t)threads_x() / pieces) {
        if (r < n && 8 * c < d)
            copy16_async(piece_at(to, w, r, c), s.p + (x0 + r) * s.ld + 8 * c);
        else
            store4(piece_at(to, w, r, c), zero);
    }
}

/* s = A B^T: 16 rows of A from row0 on, 8 n columns, over d numbers. */
GPU_FN void make_scores(float s[MMA_N][4], STORE *A, int32_t row0, STORE *B, int32_t w, int32_t n,
                        int32_t d) {
    int32_t l = (int32_t)lane();
    UNROLL
    for (int j = 0; j < n; j++) UNROLL
    for (int e = 0; e < 4; e++) s[j][e] = 0;
    UNROLL
    for (int k = 0; k < w / 16; k++) {
        if (16 * k >= d) break;
        uint32_t x[4], y[4];
        matrix_load4(x, piece_at(A, w, row0 + l % 16, 2 * k + l / 16));
        UNROLL
        for (int j = 0; j < n; j += 2) {
            matrix_load4(y, piece_at(B, w, 8 * j + l % 8 + l / 16 * 8, 2 * k + l / 8 % 2));
            multiply_add(s[j], x, y);
            multiply_add(s[j + 1], x, y + 2);
        }
    }
}

/* o += P B: P of 16 rows and 8 n columns, B of 8 n rows and d columns. */
GPU_FN void add_rows_of(float o[MMA_O][4], float p[MMA_N][4], STORE *B, int32_t w, int32_t n,
                        int32_t d) {
    int32_t l = (int32_t)lane();
    UNROLL
    for (int k = 0; k < n; k += 2) {
        uint32_t x[4], y[4];
        x[0] = pack2(p[k][0], p[k][1]), x[1] = pack2(p[k][2], p[k][3]);
        x[2] = pack2(p[k + 1][0], p[k + 1][1]), x[3] = pack2(p[k + 1][2], p[k + 1][3]);
        UNROLL
        for (int j = 0; j < w / 8; j += 2) {
            if (8 * j >= d) break;
            matrix_load4_turned(y, piece_at(B, w, 8 * k + l % 16, j + l / 16));
            multiply_add(o[j], x, y);
            multiply_add(o[j + 1], x, y + 2);
        }
    }
}

GPU_FN void clear_result(float o[MMA_O][4]) {
    UNROLL
    for (int j = 0; j < MMA_O; j++) UNROLL
    for (int e = 0; e < 4; e++) o[j][e] = 0;
}

/* The warp's 16 rows of the result, of which n exist, times factor[0] (row lane / 4) and factor[1]
 * (8 rows further), to rows x0 .. : through the warp's rows of `tile`, to write 16 bytes at a
 * time. */
GPU_FN void put_result(float o[MMA_O][4], const float factor[2], STORE *tile, int32_t w, strip to,
                       int32_t x0, int32_t n, int32_t d, bool add) {
    int32_t l = (int32_t)lane(), t = l % 4, pieces = w / 8;
    UNROLL
    for (int j = 0; j < w / 8; j++) {
        if (8 * j >= d) break;
        UNROLL
        for (int i = 0; i < 2; i++) {
            int32_t r = l / 4 + 8 * i;
            float v[2] = {o[j][2 * i] * factor[i], o[j][2 * i + 1] * factor[i]};
            if (add && r < n) {
                const STORE *old = to.p + (x0 + r) * to.ld + 8 * j + 2 * t;
                v[0] += load(old[0]), v[1] += load(old[1]);
            }
            *(uint32_t *)(piece_at(tile, w, r, j) + 2 * t) = pack2(v[0], v[1]);
        }
    }
    sync_warp();
    for (int32_t i = l; i < MMA_ROWS * pieces; i += GPU_WARP) {
        int32_t r = i / pieces, c = i % pieces;
        if (r >= n || 8 * c >= d) continue;
        float v[4];
        load4(v, piece_at(tile, w, r, c));
        store4((STORE *)to.p + (x0 + r) * to.ld + 8 * c, v);
    }
}

/* ---- what rows see ---- */

typedef struct mma_view {
    key_range block, warp;     /* of any row */
    int32_t all_low, all_high; /* of the warp: keys that every row sees */
} mma_view;

GPU_FN mma_view mma_look(const attention_args *a, const any_place *at) {
    mma_view v;
    v.block.low = v.warp.low = INT32_MAX, v.block.high = v.warp.high = 0;
    for (int32_t r = (int32_t)lane(); r < at->n; r += GPU_WARP) {
        key_range s = visible(a, at->b, at->x0 + r);
        if (s.low < s.high)
            v.block.low = least(v.block.low, s.low), v.block.high = most(v.block.high, s.high);
    }
    v.block.low = warp_least(v.block.low), v.block.high = warp_most(v.block.high);
    int32_t first = (int32_t)warp() * MMA_ROWS;
    key_range s = visible(a, at->b, at->x0 + least(first + (int32_t)lane() % MMA_ROWS, at->n - 1));
    v.warp.low = warp_least(s.low < s.high ? s.low : INT32_MAX);
    v.warp.high = warp_most(s.low < s.high ? s.high : 0);
    v.all_low = warp_most(s.low), v.all_high = warp_least(s.high);
    return v;
}

/* This thread's row i of two; the last one in place of one that does not exist. */
GPU_FN int32_t mma_row(const any_place *at, int i) {
    int32_t r = (int32_t)warp() * MMA_ROWS + (int32_t)lane() / 4 + 8 * i;
    return at->x0 + least(r, at->n - 1);
}

/* Scores as mma.sync leaves them become those of score_of. tanh by exp2: its error is that of the
 * 16-bit operands many times over. */
GPU_FN void scale_scores(const attention_args *a, float s[MMA_N][4], int32_t n) {
    float c = a->scale * LOG2E;
    if (a->softcap > 0) {
        float x = 2 * LOG2E * a->scale / a->softcap, cap = a->softcap * LOG2E;
        UNROLL
        for (int j = 0; j < n; j++) UNROLL
        for (int e = 0; e < 4; e++) s[j][e] = cap - 2 * cap / (1 + fast_exp2(x * s[j][e]));
        return;
    }
    UNROLL
    for (int j = 0; j < n; j++) UNROLL
    for (int e = 0; e < 4; e++) s[j][e] *= c;
}

/* Column of element e of fragment j, in the tile. */
GPU_FN int32_t mma_column(int j, int e) {
    return 8 * j + (int32_t)lane() % 4 * 2 + (e & 1);
}

/* Bit 4 j + e: dropout keeps the probability of the tile of keys from `key` on. Or the rows are two
 * keys, and row is the counter of the tile's first query. */
GPU_FN uint32_t keep_bits(const attention_args *a, const any_place *p, int32_t key, int32_t n) {
    uint32_t bits = 0;
    NO_UNROLL
    for (int x = 0; x < 4 * n; x++) {
        uint64_t row = draw_row(a, p->b, p->h, mma_row(p, x / 2 % 2));
        uint64_t at = row + (uint64_t)(key + mma_column(x / 4, x));
        bits |= (uint32_t)(philox_u32(a->key, at) >= a->threshold) << x;
    }
    return bits;
}
GPU_FN uint32_t keep_bits_of_keys(const attention_args *a, uint64_t row, const int32_t key[2],
                                  int32_t n) {
    uint32_t bits = 0;
    NO_UNROLL
    for (int x = 0; x < 4 * n; x++) {
        uint64_t at = row + (uint64_t)mma_column(x / 4, x) * (uint64_t)a->Tk +
                      (uint64_t)(x & 2 ? key[1] : key[0]);
        bits |= (uint32_t)(philox_u32(a->key, at) >= a->threshold) << x;
    }
    return bits;
}

GPU_FN float quad_sum(float v) {
    v += shuffle_xor(v, 1);
    return v + shuffle_xor(v, 2);
}
GPU_FN float quad_max(float v) {
    v = gpu_max(v, shuffle_xor(v, 1));
    return gpu_max(v, shuffle_xor(v, 2));
}

/* ---- forward ---- */

typedef struct mma_soft {
    float max[2], sum[2]; /* of the thread's two rows; sum: of its columns */
} mma_soft;

/* full: every row of the warp sees the whole tile. */
GPU_FN void mma_soften(const attention_args *a, const any_place *at, mma_soft *f, float s[MMA_N][4],
                       float o[MMA_O][4], int32_t w, int32_t j0, bool full) {
    scale_scores(a, s, MMA_N);
    UNROLL
    for (int i = 0; i < 2 && !full; i++) {
        key_range sees = visible(a, at->b, mma_row(at, i));
        UNROLL
        for (int j = 0; j < MMA_N; j++) UNROLL
        for (int e = 2 * i; e < 2 * i + 2; e++) {
            int32_t key = j0 + mma_column(j, e);
            if (key < sees.low || key >= sees.high) s[j][e] = -INFINITY;
        }
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        float max = f->max[i];
        UNROLL
        for (int j = 0; j < MMA_N; j++) max = gpu_max(max, gpu_max(s[j][2 * i], s[j][2 * i + 1]));
        max = quad_max(max);
        float base = max > -INFINITY ? max : 0, shrink = fast_exp2(f->max[i] - base);
        f->max[i] = max;
        f->sum[i] *= shrink;
        UNROLL
        for (int j = 0; j < w / 8; j++) o[j][2 * i] *= shrink, o[j][2 * i + 1] *= shrink;
        UNROLL
        for (int j = 0; j < MMA_N; j++) UNROLL
        for (int e = 2 * i; e < 2 * i + 2; e++) {
            s[j][e] = fast_exp2(s[j][e] - base);
            f->sum[i] += s[j][e];
        }
    }
}

GPU_FN void drop_some(const attention_args *a, float s[MMA_N][4], uint32_t bits, int32_t n) {
    UNROLL
    for (int j = 0; j < n; j++) UNROLL
    for (int e = 0; e < 4; e++) s[j][e] = bits >> (4 * j + e) & 1 ? s[j][e] * a->dropout_scale : 0;
}

GPU_FN void mma_forward(const attention_args *a, STORE *room, int32_t w) {
    any_place at = any_place_of(a, (int32_t)threads_x() / GPU_WARP * MMA_ROWS);
    mma_view v = mma_look(a, &at);
    mma_soft f = {{-INFINITY, -INFINITY}, {0, 0}};
    int32_t kv = at.h / (a->H / a->K), row0 = (int32_t)warp() * MMA_ROWS, tile = MMA_MOST_COLS * w;
    STORE *q = room, *cols = q + (int32_t)threads_x() / GPU_WARP * MMA_ROWS * w;
    strip k = key_strip(a, a->k, at.b, kv, a->D), u = key_strip(a, a->v, at.b, kv, a->Dv);
    float o[MMA_O][4], s[MMA_N][4];
    clear_result(o);
    copy_tile(q, w, query_strip(a, a->q, at.b, at.h, a->D), at.x0, at.n, (int32_t)threads_x() / 2,
              a->D);
    for (int32_t j0 = v.block.low - MMA_MOST_COLS, turn = 1; j0 < v.block.high;
         j0 += MMA_MOST_COLS) {
        int32_t next = j0 + MMA_MOST_COLS;
        STORE *mine = cols + turn * 2 * tile, *other = cols + (1 - turn) * 2 * tile;
        turn = 1 - turn;
        if (next < v.block.high) {
            copy_tile(other, w, k, next, a->Tk - next, MMA_MOST_COLS, a->D);
            copy_tile(other + tile, w, u, next, a->Tk - next, MMA_MOST_COLS, a->Dv);
        }
        copies_commit();
        if (next == v.block.low) continue; /* nothing has come yet */
        copies_wait(1);
        sync_block();
        if (j0 < v.warp.high && next > v.warp.low) {
            make_scores(s, q, row0, mine, w, MMA_N, a->D);
            mma_soften(a, &at, &f, s, o, w, j0, v.all_low <= j0 && next <= v.all_high);
            if (a->dropout_scale > 0) drop_some(a, s, keep_bits(a, &at, j0, MMA_N), MMA_N);
            add_rows_of(o, s, mine + tile, w, MMA_N, a->Dv);
        }
        sync_block();
    }
    copies_wait(0);
    sync_block();
    float scale[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        float sum = quad_sum(f.sum[i]);
        scale[i] = sum > 0 ? 1 / sum : 0;
        if (row0 + (int32_t)lane() / 4 + 8 * i < at.n && lane() % 4 == 0)
            put_lse(a, at.b, at.h, mma_row(&at, i), f.max[i], sum);
    }
    put_result(o, scale, q + row0 * w, w, query_strip(a, a->o, at.b, at.h, a->Dv), at.x0 + row0,
               at.n - row0, a->Dv, false);
}

KERNEL(attention_mma_fwd_64, attention_args, MMA_THREADS) {
    SHARED_DYNAMIC(STORE, room);
    mma_forward(a, room, 64);
}
KERNEL(attention_mma_fwd_128, attention_args, MMA_THREADS) {
    SHARED_DYNAMIC(STORE, room);
    mma_forward(a, room, 128);
}

/* ---- backward ---- */

/* Where a block of backward has its tiles: two operands of rows, two of columns, these twice. */
typedef struct mma_room {
    STORE *row_1, *row_2, *cols;
    int32_t rows, tile, row0; /* row0: the warp's first one */
} mma_room;

GPU_FN mma_room mma_open(STORE *room, int32_t w, int32_t columns) {
    mma_room m;
    m.rows = (int32_t)threads_x() / GPU_WARP * MMA_ROWS;
    m.row_1 = room, m.row_2 = room + m.rows * w, m.cols = room + 2 * m.rows * w;
    m.tile = columns * w, m.row0 = (int32_t)warp() * MMA_ROWS;
    return m;
}

GPU_FN void mma_queries(const attention_args *a, STORE *room, int32_t w, int32_t columns) {
    mma_room m = mma_open(room, w, columns);
    any_place at = any_place_of(a, m.rows);
    mma_view v = mma_look(a, &at);
    int32_t kv = at.h / (a->H / a->K), n = columns / 8;
    int64_t head = (int64_t)at.b * a->H + at.h;
    strip k = key_strip(a, a->k, at.b, kv, a->D), u = key_strip(a, a->v, at.b, kv, a->Dv);
    key_range sees[2];
    float o[MMA_O][4], s[MMA_N][4], dp[MMA_N][4], lse[2], delta[2];
    clear_result(o);
    UNROLL
    for (int i = 0; i < 2; i++) {
        int32_t row = mma_row(&at, i);
        sees[i] = visible(a, at.b, row);
        lse[i] = f32_row_of(a->lse, head)[row] * LOG2E;
        delta[i] = a->delta[head * a->Tq + row];
    }
    copy_tile(m.row_1, w, query_strip(a, a->q, at.b, at.h, a->D), at.x0, at.n, m.rows, a->D);
    copy_tile(m.row_2, w, query_strip(a, a->d_o, at.b, at.h, a->Dv), at.x0, at.n, m.rows, a->Dv);
    for (int32_t j0 = v.block.low - columns, turn = 1; j0 < v.block.high; j0 += columns) {
        int32_t next = j0 + columns;
        STORE *mine = m.cols + turn * 2 * m.tile, *other = m.cols + (1 - turn) * 2 * m.tile;
        turn = 1 - turn;
        if (next < v.block.high) {
            copy_tile(other, w, k, next, a->Tk - next, columns, a->D);
            copy_tile(other + m.tile, w, u, next, a->Tk - next, columns, a->Dv);
        }
        copies_commit();
        if (next == v.block.low) continue;
        copies_wait(1);
        sync_block();
        if (j0 < v.warp.high && next > v.warp.low) {
            make_scores(s, m.row_1, m.row0, mine, w, n, a->D);
            make_scores(dp, m.row_2, m.row0, mine + m.tile, w, n, a->Dv);
            scale_scores(a, s, n);
            if (a->dropout_scale > 0) drop_some(a, dp, keep_bits(a, &at, j0, n), n);
            UNROLL
            for (int j = 0; j < n; j++) UNROLL
            for (int e = 0; e < 4; e++) {
                int32_t key = j0 + mma_column(j, e);
                bool seen = key >= sees[e / 2].low && key < sees[e / 2].high;
                float p = seen ? fast_exp2(s[j][e] - lse[e / 2]) : 0;
                dp[j][e] = p * (dp[j][e] - delta[e / 2]) * score_slope(a, s[j][e]);
            }
            add_rows_of(o, dp, mine, w, n, a->D);
        }
        sync_block();
    }
    copies_wait(0);
    sync_block();
    float scale[2] = {a->scale, a->scale};
    put_result(o, scale, m.row_1 + m.row0 * w, w, query_strip(a, a->dq, at.b, at.h, a->D),
               at.x0 + m.row0, at.n - m.row0, a->D, a->add_dq);
}

/* The tiles of queries that a block of keys visits: number i is tile i % tiles of head
 * first_head + i / tiles. */
typedef struct mma_walk {
    int32_t b, first_head, tiles, end; /* end: tiles of all heads */
    int32_t j0, n, columns;            /* the keys */
} mma_walk;

/* The next one after i that sees any of the keys. */
GPU_FN int32_t next_tile(const attention_args *a, const mma_walk *k, int32_t i) {
    int32_t all = (a->Tq + SEEN - 1) / SEEN, per = k->columns / SEEN;
    for (i++; i < k->end; i++) {
        int32_t first = i % k->tiles * per;
        for (int32_t x = first; x < least(first + per, all); x++) {
            const int32_t *seen = &a->seen[2 * (k->b * all + x)];
            if (seen[0] < k->j0 + k->n && seen[1] > k->j0) return i;
        }
    }
    return i;
}

/* Columns of queries: which keys they see, and their statistics. */
GPU_FN void mma_columns(const attention_args *a, const mma_walk *k, any_columns q, int32_t i) {
    int32_t h = k->first_head + i / k->tiles, i0 = i % k->tiles * k->columns;
    for (int32_t c = (int32_t)thread_x(); c < k->columns; c += (int32_t)threads_x()) {
        key_range v = {0, 0};
        int64_t row = ((int64_t)k->b * a->H + h);
        if (i0 + c < a->Tq) v = visible(a, k->b, i0 + c);
        q.low[c] = v.low, q.high[c] = v.high;
        q.lse[c] = i0 + c < a->Tq ? f32_row_of(a->lse, row)[i0 + c] * LOG2E : 0;
        q.delta[c] = i0 + c < a->Tq ? a->delta[row * a->Tq + i0 + c] : 0;
    }
}

GPU_FN void mma_fetch(const attention_args *a, const mma_walk *k, STORE *to, int32_t w,
                      any_columns q, int32_t i) {
    int32_t h = k->first_head + i / k->tiles, i0 = i % k->tiles * k->columns;
    copy_tile(to, w, query_strip(a, a->q, k->b, h, a->D), i0, a->Tq - i0, k->columns, a->D);
    copy_tile(to + k->columns * w, w, query_strip(a, a->d_o, k->b, h, a->Dv), i0, a->Tq - i0,
              k->columns, a->Dv);
    mma_columns(a, k, q, i);
}

/* From scores s and dp: s = P with what dropout kept, dp = dS. */
GPU_FN void mma_pairs(const attention_args *a, const mma_walk *k, const any_columns *q,
                      float s[MMA_N][4], float dp[MMA_N][4], const int32_t key[2], int32_t i) {
    int32_t n = k->columns / 8;
    uint32_t bits = UINT32_MAX;
    float kept = 1;
    if (a->dropout_scale > 0) {
        uint64_t row = draw_row(a, k->b, k->first_head + i / k->tiles, i % k->tiles * k->columns);
        bits = keep_bits_of_keys(a, row, key, n), kept = a->dropout_scale;
    }
    scale_scores(a, s, n);
    UNROLL
    for (int j = 0; j < n; j++) UNROLL
    for (int e = 0; e < 4; e++) {
        int32_t c = mma_column(j, e);
        bool seen = key[e / 2] >= q->low[c] && key[e / 2] < q->high[c];
        float p = seen ? fast_exp2(s[j][e] - q->lse[c]) : 0, m = bits >> (4 * j + e) & 1 ? kept : 0;
        dp[j][e] = p * (m * dp[j][e] - q->delta[c]) * score_slope(a, s[j][e]);
        s[j][e] = m * p;
    }
}

/* Static shared memory of mma_keys: the columns' statistics, twice. */
typedef struct mma_stats {
    int32_t low[2][MMA_MOST_COLS], high[2][MMA_MOST_COLS];
    float lse[2][MMA_MOST_COLS], delta[2][MMA_MOST_COLS];
} mma_stats;

GPU_FN any_columns columns_of(mma_stats *s, int32_t turn) {
    any_columns q = {s->low[turn], s->high[turn], s->lse[turn], s->delta[turn]};
    return q;
}

GPU_FN void mma_keys(const attention_args *a, STORE *room, mma_stats *stats, int32_t w,
                     int32_t columns) {
    mma_room m = mma_open(room, w, columns);
    int32_t number = (int32_t)block_x(), heads = a->H / a->K, n = columns / 8;
    int32_t kv = number % a->K, b = number / a->K % a->B;
    mma_walk k = {b, kv * heads, (a->Tq + columns - 1) / columns, 0, number / a->K / a->B * m.rows,
                  0, columns};
    k.end = heads * k.tiles, k.n = least(a->Tk - k.j0, m.rows);
    int32_t key[2] = {k.j0 + m.row0 + (int32_t)lane() / 4, k.j0 + m.row0 + (int32_t)lane() / 4 + 8};
    float dk[MMA_O][4], dv[MMA_O][4], s[MMA_N][4], dp[MMA_N][4];
    clear_result(dk);
    clear_result(dv);
    copy_tile(m.row_1, w, key_strip(a, a->k, b, kv, a->D), k.j0, k.n, m.rows, a->D);
    copy_tile(m.row_2, w, key_strip(a, a->v, b, kv, a->Dv), k.j0, k.n, m.rows, a->Dv);
    int32_t i = next_tile(a, &k, -1), turn = 0;
    if (i < k.end) mma_fetch(a, &k, m.cols, w, columns_of(stats, 0), i);
    copies_commit();
    while (i < k.end) {
        int32_t next = next_tile(a, &k, i);
        STORE *mine = m.cols + turn * 2 * m.tile, *other = m.cols + (1 - turn) * 2 * m.tile;
        if (next < k.end) mma_fetch(a, &k, other, w, columns_of(stats, 1 - turn), next);
        copies_commit();
        copies_wait(1);
        sync_block();
        any_columns q = columns_of(stats, turn);
        make_scores(s, m.row_1, m.row0, mine, w, n, a->D);
        make_scores(dp, m.row_2, m.row0, mine + m.tile, w, n, a->Dv);
        mma_pairs(a, &k, &q, s, dp, key, i);
        add_rows_of(dv, s, mine + m.tile, w, n, a->Dv);
        add_rows_of(dk, dp, mine, w, n, a->D);
        sync_block();
        i = next, turn = 1 - turn;
    }
    copies_wait(0);
    sync_block();
    float scale[2] = {a->scale, a->scale}, one[2] = {1, 1};
    STORE *tile = m.row_1 + m.row0 * w;
    if (a->dk.p)
        put_result(dk, scale, tile, w, key_strip(a, a->dk, b, kv, a->D), k.j0 + m.row0,
                   k.n - m.row0, a->D, a->add_dk);
    sync_warp();
    if (a->dv.p)
        put_result(dv, one, tile, w, key_strip(a, a->dv, b, kv, a->Dv), k.j0 + m.row0, k.n - m.row0,
                   a->Dv, a->add_dv);
}

enum { MMA_COLS_64 = 64, MMA_COLS_128 = 32 }; /* of backward, for w = 64 and 128 */

KERNEL(attention_mma_dq_64, attention_args, MMA_THREADS) {
    SHARED_DYNAMIC(STORE, room);
    mma_queries(a, room, 64, MMA_COLS_64);
}
KERNEL(attention_mma_dq_128, attention_args, MMA_THREADS) {
    SHARED_DYNAMIC(STORE, room);
    mma_queries(a, room, 128, MMA_COLS_128);
}
KERNEL(attention_mma_dkv_64, attention_args, MMA_THREADS) {
    SHARED_DYNAMIC(STORE, room);
    SHARED(mma_stats, stats, 1);
    mma_keys(a, room, stats, 64, MMA_COLS_64);
}
KERNEL(attention_mma_dkv_128, attention_args, MMA_THREADS) {
    SHARED_DYNAMIC(STORE, room);
    SHARED(mma_stats, stats, 1);
    mma_keys(a, room, stats, 128, MMA_COLS_128);
}

#endif
