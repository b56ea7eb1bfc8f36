/* Attention on tensor cores, for 16-bit storage and heads of up to 256 numbers, a multiple of 8
 * (flash attention 2, Dao 2023).
 *
 * A warp has one or two bands of 16 rows: of queries, or of keys for their gradients. Two, where
 * registers allow: then half as much of the columns is read from shared memory, which is what limits
 * these kernels. Tiles of columns come by cp.async, one ahead of the one that is worked on. Scores
 * stay in registers: what mma.sync gives as D [16,8] twice is the A [16,16] of the next product, so P
 * and dS never see memory. For the gradients of keys, scores are made transposed, and so have keys as
 * rows. With one query, the rows are the heads that share a kv head, and blocks share the keys.
 *
 *   forward       S = Q K^T, O += P V
 *   dq            S = Q K^T, dP = dO V^T, dQ += dS K
 *   dk, dv        S^T = K Q^T, dP^T = V dO^T, dV += P^T dO, dK += dS^T Q
 *
 * FLOPs per visible pair: forward 2 (D + Dv), dq 2 (2 D + Dv), dk and dv 2 (2 D + 2 Dv): 7 products
 * where one kernel with atomics would have 5; but then sums had no fixed order. Sums of keys and of
 * values of 256 numbers do not both fit into the registers, and have a kernel each: 2 (D + Dv) more.
 * Shared memory of a block: 16 bits times w + u (half in forward, whose rows are queries alone) for
 * each row, and twice w + u for each column: at most 96 KB. 166 to 254 registers and so 8 warps in a
 * multiprocessor; one query: 3 to 6.
 * Tiles lie as in tile.h. */
#ifndef OP_CUDA_ATTENTION_MMA_H
#define OP_CUDA_ATTENTION_MMA_H

#include "op/cuda/attention_any.h"
#include "op/cuda/tile.h"

enum {
    MMA_ROWS = 16, /* of a band */
    MMA_BANDS = 2, /* of a warp, at most */
    MMA_MOST_W = 256,
    MMA_MOST_COLS = 64,
    MMA_N = MMA_MOST_COLS / 8, /* fragments D of a tile of scores */
    MMA_O = MMA_MOST_W / 8     /* and of a result */
};

/* What a kernel is compiled for: numbers in a row of a tile of queries or keys (w), of values (u),
 * columns of a tile of scores, bands of a warp. */
typedef struct mma_form {
    int32_t w, u, columns, bands;
} mma_form;

/* ---- tiles ---- */

/* Rows x0 .. x0 + n - 1, d numbers each, begin to come; the further ones of `rows`, and columns up to
 * a multiple of 16, are 0. */
GPU_FN void copy_tile(STORE *to, int32_t w, strip s, int32_t x0, int32_t n, int32_t rows,
                      int32_t d) {
    const float zero[4] = {0, 0, 0, 0};
    int32_t pieces = w / 8, c = (int32_t)thread_x() % pieces;
    int32_t step = (int32_t)threads_x() / pieces, first = (int32_t)thread_x() / pieces;
    if (8 * c >= (d + 15) / 16 * 16 || first >= step) return;
    for (int32_t r = first; r < rows; r += step) {
        if (r < n && 8 * c < d)
            copy16_async(tile_piece(to, w, r, c), strip_row(&s, x0 + r) + 8 * c);
        else
            store4(tile_piece(to, w, r, c), zero);
    }
}

GPU_FN void clear_fragments(float (*s)[4], int32_t n) {
    UNROLL
    for (int x = 0; x < 4 * n; x++) s[x / 4][x % 4] = 0;
}

/* s = A B^T: the bands of A from row0 on, all columns, over d numbers of rows of w. */
GPU_FN void make_scores(mma_form f, int32_t w, float s[MMA_BANDS][MMA_N][4], STORE *A, int32_t row0,
                        STORE *B, int32_t d) {
    int32_t l = (int32_t)lane();
    UNROLL
    for (int m = 0; m < f.bands; m++) clear_fragments(s[m], f.columns / 8);
    UNROLL
    for (int k = 0; k < w / 16; k++) {
        if (16 * k >= d) break;
        uint32_t x[MMA_BANDS][4], y[4];
        UNROLL
        for (int m = 0; m < f.bands; m++)
            matrix_load4(x[m], tile_piece(A, w, row0 + MMA_ROWS * m + l % 16, 2 * k + l / 16));
        UNROLL
        for (int j = 0; j < f.columns / 8; j += 2) {
            matrix_load4(y, tile_piece(B, w, 8 * j + l % 8 + l / 16 * 8, 2 * k + l / 8 % 2));
            UNROLL
            for (int m = 0; m < f.bands; m++) {
                multiply_add(s[m][j], x[m], y);
                multiply_add(s[m][j + 1], x[m], y + 2);
            }
        }
    }
}

/* o += P B: B has as many rows as P has columns, of w numbers, and d columns. */
GPU_FN void add_rows_of(mma_form f, int32_t w, float o[MMA_BANDS][MMA_O][4],
                        float p[MMA_BANDS][MMA_N][4], STORE *B, int32_t d) {
    int32_t l = (int32_t)lane();
    UNROLL
    for (int k = 0; k < f.columns / 8; k += 2) {
        uint32_t x[MMA_BANDS][4], y[4];
        UNROLL
        for (int i = 0; i < 4 * f.bands; i++) {
            float *two = &p[i / 4][k + i % 4 / 2][i % 2 * 2];
            x[i / 4][i % 4] = pack2(two[0], two[1]);
        }
        UNROLL
        for (int j = 0; j < w / 8; j += 2) {
            if (8 * j >= d) break;
            matrix_load4_turned(y, tile_piece(B, w, 8 * k + l % 16, j + l / 16));
            UNROLL
            for (int m = 0; m < f.bands; m++) {
                multiply_add(o[m][j], x[m], y);
                multiply_add(o[m][j + 1], x[m], y + 2);
            }
        }
    }
}

/* A band of the result, of which n rows exist, times factor[0] (row lane / 4) and factor[1] (8 rows
 * further), to rows x0 .. : through the band's rows of `tile`, to write 16 bytes at a time. */
GPU_FN void put_band(float o[MMA_O][4], const float *factor, STORE *tile, int32_t w, strip to,
                     int32_t x0, int32_t n, int32_t d, bool add) {
    int32_t l = (int32_t)lane(), t = l % 4, pieces = w / 8;
    UNROLL
    for (int x = 0; x < w / 4; x++) {
        int32_t j = x / 2, i = x % 2, r = l / 4 + 8 * i;
        if (8 * j >= d) break;
        float v[2] = {o[j][2 * i] * factor[i], o[j][2 * i + 1] * factor[i]};
        if (add && r < n) {
            const STORE *old = strip_row(&to, x0 + r) + 8 * j + 2 * t;
            v[0] += load(old[0]), v[1] += load(old[1]);
        }
        *(uint32_t *)(tile_piece(tile, w, r, j) + 2 * t) = pack2(v[0], v[1]);
    }
    sync_warp();
    for (int32_t i = l; i < MMA_ROWS * pieces; i += GPU_WARP) {
        int32_t r = i / pieces, c = i % pieces;
        if (r >= n || 8 * c >= d) continue;
        float v[4];
        load4(v, tile_piece(tile, w, r, c));
        store4((STORE *)strip_row(&to, x0 + r) + 8 * c, v);
    }
    sync_warp();
}

/* ---- what rows see ---- */

typedef struct mma_view {
    key_range block, warp;     /* of any row */
    int32_t all_low, all_high; /* of the warp: keys that every row sees */
} mma_view;

/* The warp's first row in the block's tile. */
GPU_FN int32_t mma_row0(mma_form f) {
    return (int32_t)warp() * MMA_ROWS * f.bands;
}
GPU_FN int32_t mma_rows_of(mma_form f) {
    return (int32_t)threads_x() / GPU_WARP * MMA_ROWS * f.bands;
}

GPU_FN mma_view mma_look(mma_form f, const attention_args *a, const any_place *at) {
    mma_view v;
    v.block.low = v.warp.low = INT32_MAX, v.block.high = v.warp.high = 0;
    for (int32_t r = (int32_t)lane(); r < at->n; r += GPU_WARP) {
        key_range s = visible(a, at->b, query_of(a, at->x0 + r));
        if (s.low < s.high)
            v.block.low = least(v.block.low, s.low), v.block.high = most(v.block.high, s.high);
    }
    v.block.low = warp_least(v.block.low), v.block.high = warp_most(v.block.high);
    int32_t r = mma_row0(f) + (int32_t)lane() % (MMA_ROWS * f.bands);
    key_range s = visible(a, at->b, query_of(a, at->x0 + least(r, at->n - 1)));
    v.warp.low = warp_least(s.low < s.high ? s.low : INT32_MAX);
    v.warp.high = warp_most(s.low < s.high ? s.high : 0);
    v.all_low = warp_most(s.low), v.all_high = warp_least(s.high);
    return v;
}

/* This thread's row i, of two in each band; the last one in place of one that does not exist. */
GPU_FN int32_t mma_row(mma_form f, const any_place *at, int i) {
    int32_t r = mma_row0(f) + (int32_t)lane() / 4 + 8 * i;
    return at->x0 + least(r, at->n - 1);
}

/* Scores as mma.sync leaves them become those of score_of. tanh by exp2: its error is that of the
 * 16-bit operands many times over. */
GPU_FN void scale_scores(mma_form f, const attention_args *a, float s[MMA_N][4]) {
    float c = a->scale * LOG2E;
    if (a->softcap > 0) {
        float x = 2 * LOG2E * a->scale / a->softcap, cap = a->softcap * LOG2E;
        UNROLL
        for (int i = 0; i < f.columns / 2; i++)
            s[i / 4][i % 4] = cap - 2 * cap / (1 + fast_exp2(x * s[i / 4][i % 4]));
        return;
    }
    UNROLL
    for (int i = 0; i < f.columns / 2; i++) s[i / 4][i % 4] *= c;
}

/* Column of element e of fragment j, in the tile. */
GPU_FN int32_t mma_column(int j, int e) {
    return 8 * j + (int32_t)lane() % 4 * 2 + (e & 1);
}

/* Bit 4 j + e: dropout keeps the probability, in band m, of the tile of keys from `key` on. */
GPU_FN uint32_t keep_bits(mma_form f, const attention_args *a, const any_place *p, int m,
                          int32_t key) {
    uint32_t bits = 0;
    rng_key key_of_draws = draw_key(&a->draw);
    NO_UNROLL
    for (int x = 0; x < f.columns / 2; x++) {
        int32_t r = mma_row(f, p, 2 * m + x / 2 % 2);
        uint64_t row = draw_row(a, p->b, head_of(a, p->h, r), query_of(a, r));
        uint64_t at = row + (uint64_t)(key + mma_column(x / 4, x));
        bits |= (uint32_t)(philox_u32(key_of_draws, at) >= a->draw.threshold) << x;
    }
    return bits;
}
/* The same where rows are keys, from `key` on each eighth; row is the counter of the tile's first query. */
GPU_FN uint32_t keep_bits_of_keys(mma_form f, const attention_args *a, uint64_t row, int32_t key) {
    uint32_t bits = 0;
    rng_key key_of_draws = draw_key(&a->draw);
    NO_UNROLL
    for (int x = 0; x < f.columns / 2; x++) {
        uint64_t at = row + (uint64_t)mma_column(x / 4, x) * (uint64_t)a->Tk +
                      (uint64_t)(key + x / 2 % 2 * 8);
        bits |= (uint32_t)(philox_u32(key_of_draws, at) >= a->draw.threshold) << x;
    }
    return bits;
}

GPU_FN void drop_some(mma_form f, const attention_args *a, float s[MMA_N][4], uint32_t bits) {
    UNROLL
    for (int x = 0; x < f.columns / 2; x++)
        s[x / 4][x % 4] = bits >> x & 1 ? s[x / 4][x % 4] * a->draw.scale : 0;
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

/* What row i of the thread does not see becomes -inf. */
GPU_FN void mask_row(mma_form f, const attention_args *a, const any_place *at, float s[MMA_N][4],
                     int i, int32_t j0) {
    key_range sees = visible(a, at->b, query_of(a, mma_row(f, at, i)));
    UNROLL
    for (int x = 0; x < f.columns / 4; x++) {
        int32_t j = x / 2, e = i % 2 * 2 + x % 2, key = j0 + mma_column(j, e);
        if (key < sees.low || key >= sees.high) s[j][e] = -INFINITY;
    }
}

/* Row i % 2 of a band: scores become probabilities; the result and the sum of this thread's columns
 * are brought to the new maximum. */
GPU_FN void mma_soften(mma_form f, float s[MMA_N][4], float o[MMA_O][4], int i, float *running_max,
                       float *sum) {
    float max = *running_max;
    UNROLL
    for (int j = 0; j < f.columns / 8; j++)
        max = gpu_max(max, gpu_max(s[j][2 * i], s[j][2 * i + 1]));
    max = quad_max(max);
    float base = max > -INFINITY ? max : 0, shrink = fast_exp2(*running_max - base);
    *running_max = max;
    *sum *= shrink;
    UNROLL
    for (int j = 0; j < f.u / 8; j++) o[j][2 * i] *= shrink, o[j][2 * i + 1] *= shrink;
    UNROLL
    for (int j = 0; j < f.columns / 8; j++) {
        s[j][2 * i] = fast_exp2(s[j][2 * i] - base);
        s[j][2 * i + 1] = fast_exp2(s[j][2 * i + 1] - base);
        *sum += s[j][2 * i] + s[j][2 * i + 1];
    }
}

/* What a block that has some of the keys only leaves for attention_join. */
GPU_FN void mma_put_part(mma_form f, const attention_args *a, const any_place *at,
                         float o[MMA_BANDS][MMA_O][4], const float *max, const float *sum) {
    UNROLL
    for (int i = 0; i < 2 * f.bands; i++) {
        int32_t r = mma_row0(f) + (int32_t)lane() / 4 + 8 * i;
        if (r >= at->n) continue;
        int64_t to = part_row(a, at, r);
        UNROLL
        for (int j = 0; j < f.u / 8; j++) {
            int32_t c = mma_column(j, 0);
            if (8 * j >= a->Dv) break;
            a->part_o[to * a->Dv + c] = o[i / 2][j][i % 2 * 2];
            a->part_o[to * a->Dv + c + 1] = o[i / 2][j][i % 2 * 2 + 1];
        }
        if (lane() % 4 == 0) a->part_m[2 * to] = max[i], a->part_m[2 * to + 1] = sum[i];
    }
}

GPU_FN void mma_forward(mma_form f, const attention_args *a, STORE *room) {
    any_place at = any_place_of(a, mma_rows_of(f));
    mma_view v = mma_look(f, a, &at);
    int32_t kv = at.h / (a->H / a->K), row0 = mma_row0(f), tile = f.columns * f.w;
    int32_t stage = tile + f.columns * f.u;
    STORE *q = room, *cols = q + mma_rows_of(f) * f.w;
    strip k = key_strip(a, a->k, at.b, kv, a->D), u = key_strip(a, a->v, at.b, kv, a->Dv);
    float o[MMA_BANDS][MMA_O][4], s[MMA_BANDS][MMA_N][4], max[2 * MMA_BANDS], sum[2 * MMA_BANDS];
    UNROLL
    for (int i = 0; i < 2 * f.bands; i++) max[i] = -INFINITY, sum[i] = 0;
    UNROLL
    for (int m = 0; m < f.bands; m++) clear_fragments(o[m], f.u / 8);
    copy_tile(q, f.w, query_strip(a, a->q, at.b, at.h, a->D), at.x0, at.n, mma_rows_of(f), a->D);
    key_range part = part_of(a, v.block, f.columns, at.split);
    for (int32_t j0 = part.low - f.columns, turn = 1; j0 < part.high; j0 += f.columns) {
        int32_t next = j0 + f.columns;
        STORE *mine = cols + turn * stage, *other = cols + (1 - turn) * stage;
        turn = 1 - turn;
        if (next < part.high) {
            copy_tile(other, f.w, k, next, a->Tk - next, f.columns, a->D);
            copy_tile(other + tile, f.u, u, next, a->Tk - next, f.columns, a->Dv);
        }
        copies_commit();
        if (next == part.low) continue; /* nothing has come yet */
        copies_wait(1);
        sync_block();
        if (j0 < v.warp.high && next > v.warp.low) {
            bool full = v.all_low <= j0 && next <= v.all_high;
            make_scores(f, f.w, s, q, row0, mine, a->D);
            UNROLL
            for (int m = 0; m < f.bands; m++) scale_scores(f, a, s[m]);
            UNROLL
            for (int i = 0; i < 2 * f.bands; i++) {
                if (!full) mask_row(f, a, &at, s[i / 2], i, j0);
                mma_soften(f, s[i / 2], o[i / 2], i % 2, &max[i], &sum[i]);
            }
            UNROLL
            for (int m = 0; m < f.bands && a->draw.scale > 0; m++)
                drop_some(f, a, s[m], keep_bits(f, a, &at, m, j0));
            add_rows_of(f, f.u, o, s, mine + tile, a->Dv);
        }
        sync_block();
    }
    copies_wait(0);
    sync_block();
    UNROLL
    for (int i = 0; i < 2 * f.bands; i++) sum[i] = quad_sum(sum[i]);
    if (a->splits > 1) {
        mma_put_part(f, a, &at, o, max, sum);
        return;
    }
    UNROLL
    for (int i = 0; i < 2 * f.bands; i++) {
        int32_t x = mma_row(f, &at, i);
        float scale = join_sink(a, head_of(a, at.h, x), &max[i], &sum[i]);
        if (row0 + (int32_t)lane() / 4 + 8 * i < at.n && lane() % 4 == 0)
            put_lse(a, at.b, head_of(a, at.h, x), query_of(a, x), max[i], sum[i]);
        sum[i] = scale;
    }
    strip to = query_strip(a, a->o, at.b, at.h, a->Dv);
    UNROLL
    for (int m = 0; m < f.bands; m++) {
        int32_t r = row0 + MMA_ROWS * m;
        put_band(o[m], &sum[2 * m], q + r * f.w, f.u, to, at.x0 + r, at.n - r, a->Dv, false);
    }
}

/* ---- backward ---- */

/* Where a block of backward has its tiles: two operands of rows, two of columns, these twice. The
 * first of the two has rows of w numbers, the second one of u. */
typedef struct mma_room {
    STORE *row_1, *row_2, *cols;
    int32_t rows, row0;  /* row0: the warp's first one */
    int32_t tile, stage; /* the first operand of columns; both */
} mma_room;

GPU_FN mma_room mma_open(mma_form f, STORE *room) {
    mma_room m;
    m.rows = mma_rows_of(f), m.row0 = mma_row0(f);
    m.tile = f.columns * f.w, m.stage = m.tile + f.columns * f.u;
    m.row_1 = room, m.row_2 = room + m.rows * f.w, m.cols = m.row_2 + m.rows * f.u;
    return m;
}

GPU_FN void mma_queries(mma_form f, const attention_args *a, STORE *room) {
    mma_room at_room = mma_open(f, room);
    const mma_room *r = &at_room;
    any_place at = any_place_of(a, r->rows);
    mma_view v = mma_look(f, a, &at);
    int32_t kv = at.h / (a->H / a->K);
    int64_t head = (int64_t)at.b * a->H + at.h;
    strip k = key_strip(a, a->k, at.b, kv, a->D), u = key_strip(a, a->v, at.b, kv, a->Dv);
    key_range sees[2 * MMA_BANDS];
    float o[MMA_BANDS][MMA_O][4], s[MMA_BANDS][MMA_N][4], dp[MMA_BANDS][MMA_N][4];
    float lse[2 * MMA_BANDS], delta[2 * MMA_BANDS];
    UNROLL
    for (int m = 0; m < f.bands; m++) clear_fragments(o[m], f.w / 8);
    UNROLL
    for (int i = 0; i < 2 * f.bands; i++) {
        int32_t row = mma_row(f, &at, i);
        sees[i] = visible(a, at.b, row);
        lse[i] = f32_row_of(a->lse, head)[row] * LOG2E;
        delta[i] = a->delta[head * a->Tq + row];
    }
    copy_tile(r->row_1, f.w, query_strip(a, a->q, at.b, at.h, a->D), at.x0, at.n, r->rows, a->D);
    copy_tile(r->row_2, f.u, query_strip(a, a->d_o, at.b, at.h, a->Dv), at.x0, at.n, r->rows,
              a->Dv);
    copies_commit(); /* the loop does nothing where no row sees a key, and results go where these lie */
    for (int32_t j0 = v.block.low - f.columns, turn = 1; j0 < v.block.high; j0 += f.columns) {
        int32_t next = j0 + f.columns;
        STORE *mine = r->cols + turn * r->stage, *other = r->cols + (1 - turn) * r->stage;
        turn = 1 - turn;
        if (next < v.block.high) {
            copy_tile(other, f.w, k, next, a->Tk - next, f.columns, a->D);
            copy_tile(other + r->tile, f.u, u, next, a->Tk - next, f.columns, a->Dv);
        }
        copies_commit();
        if (next == v.block.low) continue; /* nothing has come yet */
        copies_wait(1);
        sync_block();
        if (j0 < v.warp.high && next > v.warp.low) {
            make_scores(f, f.w, s, r->row_1, r->row0, mine, a->D);
            make_scores(f, f.u, dp, r->row_2, r->row0, mine + r->tile, a->Dv);
            UNROLL
            for (int m = 0; m < f.bands; m++) {
                scale_scores(f, a, s[m]);
                if (a->draw.scale > 0) drop_some(f, a, dp[m], keep_bits(f, a, &at, m, j0));
                UNROLL
                for (int x = 0; x < f.columns / 2; x++) {
                    int32_t i = 2 * m + x / 2 % 2, key = j0 + mma_column(x / 4, x);
                    float t = s[m][x / 4][x % 4];
                    bool seen = key >= sees[i].low && key < sees[i].high;
                    float p = seen ? fast_exp2(t - lse[i]) : 0;
                    dp[m][x / 4][x % 4] = p * (dp[m][x / 4][x % 4] - delta[i]) * score_slope(a, t);
                }
            }
            add_rows_of(f, f.w, o, dp, mine, a->D);
        }
        sync_block();
    }
    copies_wait(0);
    sync_block();
    strip to = query_strip(a, a->dq, at.b, at.h, a->D);
    const float scale[2] = {a->scale, a->scale};
    UNROLL
    for (int m = 0; m < f.bands; m++) {
        int32_t row = r->row0 + MMA_ROWS * m;
        put_band(o[m], scale, r->row_1 + row * f.w, f.w, to, at.x0 + row, at.n - row, a->D,
                 a->add_dq);
    }
}

/* The tiles of queries that a block of keys visits: number i is tile i % tiles of head
 * first_head + i / tiles. */
typedef struct mma_walk {
    int32_t b, first_head, tiles, end; /* end: tiles of all heads */
    int32_t j0, n, columns;            /* the keys */
} mma_walk;

/* The next one after i that sees any of the keys. */
GPU_FN int32_t next_tile(const attention_args *a, const mma_walk *k, int32_t i) {
    int32_t all = (a->Tq + SEEN - 1) / SEEN, per = most(k->columns / SEEN, 1);
    for (i++; i < k->end; i++) {
        int32_t first = i % k->tiles * k->columns / SEEN;
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

GPU_FN void mma_fetch(mma_form f, const attention_args *a, const mma_walk *k, STORE *to,
                      any_columns q, int32_t i) {
    int32_t h = k->first_head + i / k->tiles, i0 = i % k->tiles * k->columns;
    copy_tile(to, f.w, query_strip(a, a->q, k->b, h, a->D), i0, a->Tq - i0, f.columns, a->D);
    copy_tile(to + f.columns * f.w, f.u, query_strip(a, a->d_o, k->b, h, a->Dv), i0, a->Tq - i0,
              f.columns, a->Dv);
    mma_columns(a, k, q, i);
}

/* From a band's scores s and dp: s = P with what dropout kept, dp = dS. key: of the thread's first row;
 * the other one is 8 further. */
GPU_FN void mma_pairs(mma_form f, const attention_args *a, const mma_walk *k, const any_columns *q,
                      float s[MMA_N][4], float dp[MMA_N][4], int32_t key, int32_t i) {
    uint32_t bits = UINT32_MAX;
    float kept = 1;
    if (a->draw.scale > 0) {
        uint64_t row = draw_row(a, k->b, k->first_head + i / k->tiles, i % k->tiles * k->columns);
        bits = keep_bits_of_keys(f, a, row, key), kept = a->draw.scale;
    }
    scale_scores(f, a, s);
    UNROLL
    for (int x = 0; x < f.columns / 2; x++) {
        int32_t c = mma_column(x / 4, x), mine = key + x / 2 % 2 * 8;
        float t = s[x / 4][x % 4], m = bits >> x & 1 ? kept : 0;
        bool seen = mine >= q->low[c] && mine < q->high[c];
        float p = seen ? fast_exp2(t - q->lse[c]) : 0;
        dp[x / 4][x % 4] = p * (m * dp[x / 4][x % 4] - q->delta[c]) * score_slope(a, t);
        s[x / 4][x % 4] = m * p;
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

/* One of the two results, through the rows of `tile`, of w numbers. */
GPU_FN void put_keys(mma_form f, float o[MMA_BANDS][MMA_O][4], float scale, const mma_room *r,
                     STORE *tile, int32_t w, strip to, const mma_walk *k, int32_t d, bool add) {
    const float factor[2] = {scale, scale};
    UNROLL
    for (int m = 0; m < f.bands; m++) {
        int32_t row = r->row0 + MMA_ROWS * m;
        put_band(o[m], factor, tile + row * w, w, to, k->j0 + row, k->n - row, d, add);
    }
}

/* makes: MMA_DK, MMA_DV, or both. */
enum { MMA_DK = 1, MMA_DV = 2 };

GPU_FN void mma_keys(mma_form f, int32_t makes, const attention_args *a, STORE *room,
                     mma_stats *stats) {
    mma_room at_room = mma_open(f, room);
    const mma_room *r = &at_room;
    int32_t number = (int32_t)block_x(), heads = a->H / a->K;
    int32_t kv = number % a->K, b = number / a->K % a->B, j0 = number / a->K / a->B * r->rows;
    mma_walk k = {b,        kv * heads, (a->Tq + f.columns - 1) / f.columns,
                  0,        j0,         least(a->Tk - j0, r->rows),
                  f.columns};
    k.end = heads * k.tiles;
    float dk[MMA_BANDS][MMA_O][4], dv[MMA_BANDS][MMA_O][4], s[MMA_BANDS][MMA_N][4],
        dp[MMA_BANDS][MMA_N][4];
    UNROLL
    for (int m = 0; m < f.bands; m++) {
        clear_fragments(dk[m], f.w / 8), clear_fragments(dv[m], f.u / 8);
        clear_fragments(dp[m], f.columns / 8);
    }
    copy_tile(r->row_1, f.w, key_strip(a, a->k, b, kv, a->D), j0, k.n, r->rows, a->D);
    if (makes & MMA_DK)
        copy_tile(r->row_2, f.u, key_strip(a, a->v, b, kv, a->Dv), j0, k.n, r->rows, a->Dv);
    int32_t i = next_tile(a, &k, -1), turn = 0;
    if (i < k.end) mma_fetch(f, a, &k, r->cols, columns_of(stats, 0), i);
    copies_commit();
    while (i < k.end) {
        int32_t next = next_tile(a, &k, i);
        STORE *mine = r->cols + turn * r->stage, *other = r->cols + (1 - turn) * r->stage;
        if (next < k.end) mma_fetch(f, a, &k, other, columns_of(stats, 1 - turn), next);
        copies_commit();
        copies_wait(1);
        sync_block();
        any_columns q = columns_of(stats, turn);
        make_scores(f, f.w, s, r->row_1, r->row0, mine, a->D);
        if (makes & MMA_DK) make_scores(f, f.u, dp, r->row_2, r->row0, mine + r->tile, a->Dv);
        UNROLL
        for (int m = 0; m < f.bands; m++)
            mma_pairs(f, a, &k, &q, s[m], dp[m], j0 + r->row0 + MMA_ROWS * m + (int32_t)lane() / 4,
                      i);
        if (makes & MMA_DV) add_rows_of(f, f.u, dv, s, mine + r->tile, a->Dv);
        if (makes & MMA_DK) add_rows_of(f, f.w, dk, dp, mine, a->D);
        sync_block();
        i = next, turn = 1 - turn;
    }
    copies_wait(0);
    sync_block();
    if (makes & MMA_DK && a->dk.p)
        put_keys(f, dk, a->scale, r, r->row_1, f.w, key_strip(a, a->dk, b, kv, a->D), &k, a->D,
                 a->add_dk);
    if (makes & MMA_DV && a->dv.p)
        put_keys(f, dv, 1, r, r->row_2, f.u, key_strip(a, a->dv, b, kv, a->Dv), &k, a->Dv,
                 a->add_dv);
}

/* ---- kernels: for heads of up to 64, 128, 192 (values 128) and 256 numbers ---- */

/* X(name, threads at most, w, u, columns, bands), for the keys with what they make. ONE: one query, the
 * heads that share keys as rows. */
#define MMA_FORWARD(X)                                                                             \
    X(attention_mma_fwd_64, 128, 64, 64, 64, 2)                                                    \
    X(attention_mma_fwd_128, 128, 128, 128, 32, 2)                                                 \
    X(attention_mma_fwd_192, 128, 192, 128, 32, 2)                                                 \
    X(attention_mma_fwd_256, 128, 256, 256, 32, 1)
#define MMA_ONE(X)                                                                                 \
    X(attention_mma_one_64, 32, 64, 64, 64, 1)                                                     \
    X(attention_mma_one_128, 32, 128, 128, 64, 1)                                                  \
    X(attention_mma_one_192, 32, 192, 128, 32, 1)                                                  \
    X(attention_mma_one_256, 32, 256, 256, 16, 1)
#define MMA_QUERIES(X)                                                                             \
    X(attention_mma_dq_64, 128, 64, 64, 32, 2)                                                     \
    X(attention_mma_dq_128, 256, 128, 128, 32, 1)                                                  \
    X(attention_mma_dq_192, 128, 192, 128, 32, 1)                                                  \
    X(attention_mma_dq_256, 128, 256, 256, 16, 1)
#define MMA_KEYS(X)                                                                                \
    X(attention_mma_dkv_64, 128, 64, 64, 32, 2, MMA_DK | MMA_DV)                                   \
    X(attention_mma_dkv_128, 256, 128, 128, 32, 1, MMA_DK | MMA_DV)                                \
    X(attention_mma_dkv_192, 128, 192, 128, 32, 1, MMA_DK | MMA_DV)                                \
    X(attention_mma_dk_256, 128, 256, 256, 16, 1, MMA_DK)                                          \
    X(attention_mma_dv_256, 128, 256, 256, 16, 1, MMA_DV)

#define X(name, threads, w, u, columns, bands)                                                     \
    KERNEL(name, attention_args, threads) {                                                        \
        SHARED_DYNAMIC(STORE, room);                                                               \
        const mma_form f = {w, u, columns, bands};                                                 \
        mma_forward(f, a, room);                                                                   \
    }
MMA_FORWARD(X)
MMA_ONE(X)
#undef X
#define X(name, threads, w, u, columns, bands)                                                     \
    KERNEL(name, attention_args, threads) {                                                        \
        SHARED_DYNAMIC(STORE, room);                                                               \
        const mma_form f = {w, u, columns, bands};                                                 \
        mma_queries(f, a, room);                                                                   \
    }
MMA_QUERIES(X)
#undef X
#define X(name, threads, w, u, columns, bands, makes)                                              \
    KERNEL(name, attention_args, threads) {                                                        \
        SHARED_DYNAMIC(STORE, room);                                                               \
        SHARED(mma_stats, stats, 1);                                                               \
        const mma_form f = {w, u, columns, bands};                                                 \
        mma_keys(f, makes, a, room, stats);                                                        \
    }
MMA_KEYS(X)
#undef X

#endif
