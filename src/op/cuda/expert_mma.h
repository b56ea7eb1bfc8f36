/* The products of experts on tensor cores, for 16-bit storage with rows of whole 16-byte pieces.
 *
 * C = A B, where A [m,k] lies in rows of m, or turned in rows of k, and so B [k,n] in rows of n or, turned, of k:
 *
 *   forward       C = y,  A = x, B = w_e             m: rows of the expert
 *   input         C = dx, A = dy, B = w_e turned     m: rows of the expert
 *   weight        C = dw, A = dy turned, B = x turned  k: rows of the expert
 *
 * A warp makes 64 x 32 numbers of C, a block of 8 warps 128 x 128, one of 2 warps 64 x 64. Tiles of 64 in k come by
 * cp.async, one ahead of the one that is worked on; an operand is read once for each tile of C across. The sum of an
 * element goes through k in steps of 16, whatever the form, so that a row's bits depend on that row alone. */
#ifndef OP_CUDA_EXPERT_MMA_H
#define OP_CUDA_EXPERT_MMA_H

#include "op/cuda/tile.h"

enum {
    EXPERT_K = 64,      /* of a tile */
    EXPERT_WARP_M = 64, /* of a warp */
    EXPERT_WARP_N = 32,
    EXPERT_FM = EXPERT_WARP_M / 16, /* fragments of a warp */
    EXPERT_FN = EXPERT_WARP_N / 8
};

/* What a kernel is compiled for. */
typedef struct expert_form {
    int32_t m, n; /* of a block: 64 or 128 */
    bool a_turned, b_turned;
} expert_form;

/* One operand: where it begins, how far its rows are apart, and how many numbers there are in the direction of m or n. */
typedef struct expert_operand {
    const STORE *p;
    int64_t ld;
    int32_t n;
} expert_operand;

/* Numbers k0 .. k0 + 63 of the tile's `across` rows or columns begin to come; those that do not exist are 0. */
GPU_FN void expert_fetch(STORE *to, expert_operand o, bool turned, int32_t across, int32_t k0,
                         int32_t K) {
    const float zero[4] = {0, 0, 0, 0};
    int32_t w = turned ? across : EXPERT_K, rows = turned ? EXPERT_K : across, pieces = w / 8;
    int32_t c = (int32_t)thread_x() % pieces;
    for (int32_t r = (int32_t)thread_x() / pieces; r < rows; r += (int32_t)threads_x() / pieces) {
        int32_t k = k0 + (turned ? r : 8 * c), x = turned ? 8 * c : r;
        if (k < K && x < o.n)
            copy16_async(tile_piece(to, w, r, c), o.p + (turned ? k * o.ld + x : x * o.ld + k));
        else
            store4(tile_piece(to, w, r, c), zero);
    }
}

/* A [16,16] from row m on and B [16,8] twice from column n on, of step k of the tile. */
GPU_FN void expert_load_a(uint32_t f[4], STORE *A, bool turned, int32_t w, int32_t m, int32_t k) {
    int32_t l = (int32_t)lane();
    if (turned)
        matrix_load4_turned(f, tile_piece(A, w, 16 * k + l / 16 * 8 + l % 8, m / 8 + l / 8 % 2));
    else
        matrix_load4(f, tile_piece(A, EXPERT_K, m + l % 16, 2 * k + l / 16));
}
GPU_FN void expert_load_b(uint32_t f[4], STORE *B, bool turned, int32_t w, int32_t n, int32_t k) {
    int32_t l = (int32_t)lane();
    if (turned)
        matrix_load4_turned(f, tile_piece(B, w, 16 * k + l % 16, n / 8 + l / 16));
    else
        matrix_load4(f, tile_piece(B, EXPERT_K, n + l % 8 + l / 16 * 8, 2 * k + l / 8 % 2));
}

/* c += A B of one tile of k. */
GPU_FN void expert_tile(expert_form f, float c[EXPERT_FM][EXPERT_FN][4], STORE *A, STORE *B,
                        int32_t m, int32_t n) {
    UNROLL
    for (int k = 0; k < EXPERT_K / 16; k++) {
        uint32_t x[4], y[EXPERT_FN / 2][4];
        UNROLL
        for (int j = 0; j < EXPERT_FN / 2; j++)
            expert_load_b(y[j], B, f.b_turned, f.n, n + 16 * j, k);
        UNROLL
        for (int i = 0; i < EXPERT_FM; i++) {
            expert_load_a(x, A, f.a_turned, f.m, m + 16 * i, k);
            UNROLL
            for (int j = 0; j < EXPERT_FN; j++) multiply_add(c[i][j], x, y[j / 2] + j % 2 * 2);
        }
    }
}

/* The warp's place in the block's tile. */
GPU_FN int32_t expert_warp_m(expert_form f) {
    return (int32_t)warp() / (f.n / EXPERT_WARP_N) * EXPERT_WARP_M;
}
GPU_FN int32_t expert_warp_n(expert_form f) {
    return (int32_t)warp() % (f.n / EXPERT_WARP_N) * EXPERT_WARP_N;
}

/* c = A B, the block's tile. */
GPU_FN void expert_multiply(expert_form f, float c[EXPERT_FM][EXPERT_FN][4], STORE *room,
                            expert_operand A, expert_operand B, int32_t K) {
    int32_t size_a = f.m * EXPERT_K, size = size_a + f.n * EXPERT_K;
    int32_t m = expert_warp_m(f), n = expert_warp_n(f);
    UNROLL
    for (int x = 0; x < EXPERT_FM * EXPERT_FN * 4; x++)
        c[x / 4 / EXPERT_FN][x / 4 % EXPERT_FN][x % 4] = 0;
    for (int32_t k0 = -EXPERT_K, turn = 1; k0 < K; k0 += EXPERT_K) {
        STORE *mine = room + turn * size, *other = room + (1 - turn) * size;
        int32_t next = k0 + EXPERT_K;
        turn = 1 - turn;
        if (next < K) {
            expert_fetch(other, A, f.a_turned, f.m, next, K);
            expert_fetch(other + size_a, B, f.b_turned, f.n, next, K);
        }
        copies_commit();
        if (next == 0) continue; /* nothing has come yet */
        copies_wait(1);
        sync_block();
        expert_tile(f, c, mine, mine + size_a, m, n);
        sync_block();
    }
    copies_wait(0);
}

/* The warp's numbers of C to a tile of which m rows and n columns exist; f32: C is float. */
GPU_FN void expert_put(expert_form f, float c[EXPERT_FM][EXPERT_FN][4], void *to, int64_t ld,
                       int32_t m, int32_t n, bool f32, bool add) {
    int32_t l = (int32_t)lane(), m0 = expert_warp_m(f) + l / 4, n0 = expert_warp_n(f) + l % 4 * 2;
    UNROLL
    for (int x = 0; x < EXPERT_FM * EXPERT_FN * 2; x++) {
        int i = x / 2 / EXPERT_FN, j = x / 2 % EXPERT_FN, half = x % 2;
        int32_t row = m0 + 16 * i + 8 * half, col = n0 + 8 * j;
        float low = c[i][j][2 * half], high = c[i][j][2 * half + 1];
        if (row >= m || col >= n) continue; /* n is even */
        if (f32) {
            float *p = (float *)to + row * ld + col;
            put_f32(p, low, add);
            put_f32(p + 1, high, add);
        } else {
            STORE *p = (STORE *)to + row * ld + col;
            if (add) low += load(p[0]), high += load(p[1]);
            *(uint32_t *)p = pack2(low, high);
        }
    }
}

#endif
