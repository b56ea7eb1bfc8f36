/* Rows of stored weights as floats: for looking up, and packed for the product of many rows. */
#include "op/cpu/parts.h"

#include "op/cpu/pack.h"
#include "op/cpu/stored.h"

/* `chunks` chunks of a row from chunk `first` on. */
V_INLINE void read_chunks(float *dst, const uint8_t *row, int64_t first, int64_t chunks, dtype dt) {
    int64_t per = stored_block(dt) / CHUNK, bytes = stored_block_bytes(dt);
    stored_scales s;
    for (int64_t c = first; c < first + chunks; c++, dst += CHUNK) {
        const uint8_t *block = stored_blocks(row, dt) + c / per * bytes;
        vf w[CHUNK_V];
        if (c == first || c % per == 0) stored_open(&s, block, dt);
        stored_factor(&s, row, c * CHUNK, dt);
        stored_chunk(block, &s, (int)(c % per), w, dt);
#pragma GCC unroll 8
        for (int v = 0; v < CHUNK_V; v++) v_store(dst + v * VW, w[v]);
    }
}

/* What plain numbers leave over behind the last chunk of a row. */
V_INLINE void read_rest(float *dst, const uint8_t *row, int64_t first, int64_t n, dtype dt) {
    if (dt == DT_FP8) fp8_row_read((const void *)row, first, n, dst);
    if (dt != DT_F16 && dt != DT_BF16) return;
    uint16_t h[CHUNK];
    memcpy(h, row + 2 * first, (size_t)n * sizeof(*h));
    dtype_convert(dst, DT_F32, h, dt, n);
}

V_INLINE void read_row(float *dst, const uint8_t *row, int64_t n, dtype dt) {
    int64_t whole = n / CHUNK * CHUNK;
    read_chunks(dst, row, 0, whole / CHUNK, dt);
    read_rest(dst + whole, row, whole, n - whole, dt);
}

/* Panels of TILE_N rows, a chunk of k at a time: decoded rows wait in the nearest cache to be
 * transposed. */
V_INLINE void pack_rows(float *dst, const uint8_t *src, int64_t row_bytes, int64_t rows, int64_t k0,
                        int64_t k, dtype dt) {
    float chunk[TILE_N * CHUNK] __attribute__((aligned(64)));
    for (int64_t r0 = 0; r0 < rows; r0 += TILE_N, dst += TILE_N * k) {
        int64_t now = rows - r0 < TILE_N ? rows - r0 : TILE_N;
        for (int64_t at = 0; at < k; at += CHUNK) {
            int64_t n = k - at < CHUNK ? k - at : CHUNK;
            for (int64_t r = 0; r < now; r++) {
                const uint8_t *row = src + (r0 + r) * row_bytes;
                if (n == CHUNK)
                    read_chunks(chunk + r * CHUNK, row, (k0 + at) / CHUNK, 1, dt);
                else
                    read_rest(chunk + r * CHUNK, row, k0 + at, n, dt);
            }
            pack_transposed(dst + at * TILE_N, TILE_N, chunk, CHUNK, now, n, DT_F32);
        }
    }
}

/* Columns [j0, j0 + cols) of a row, from the chunk on in which they begin; returns where they are. */
V_INLINE const float *read_columns(float *line, const uint8_t *row, int64_t all, int64_t j0,
                                   int64_t cols, dtype dt) {
    int64_t first = j0 / CHUNK, end = (j0 + cols + CHUNK - 1) / CHUNK, whole = all / CHUNK;
    int64_t chunks = (end < whole ? end : whole) - first;
    if (chunks > 0) read_chunks(line, row, first, chunks, dt);
    if (end > whole)
        read_rest(line + (whole - first) * CHUNK, row, whole * CHUNK, all - whole * CHUNK, dt);
    return line + (j0 - first * CHUNK);
}

V_INLINE void pack_columns(float *dst, const uint8_t *src, int64_t row_bytes, int64_t all,
                           int64_t j0, int64_t cols, int64_t k0, int64_t k, dtype dt) {
    float line[4 * CHUNK + TILE_N] __attribute__((aligned(64)));
    for (int64_t u = 0; u < k; u++) {
        const float *row = read_columns(line, src + (k0 + u) * row_bytes, all, j0, cols, dt);
        for (int64_t r0 = 0; r0 < cols; r0 += TILE_N) {
            int64_t now = cols - r0 < TILE_N ? cols - r0 : TILE_N;
            float *to = dst + r0 * k + u * TILE_N;
            for (int64_t r = 0; r < TILE_N; r++) to[r] = r < now ? row[r0 + r] : 0.0f;
        }
    }
}

#define DEFINE(F)                                                                                  \
    static void read_##F(float *dst, const uint8_t *row, int64_t n) {                              \
        read_row(dst, row, n, DT_##F);                                                             \
    }                                                                                              \
    static void columns_##F(float *dst, const uint8_t *src, int64_t row_bytes, int64_t all,        \
                            int64_t j0, int64_t cols, int64_t k0, int64_t k) {                     \
        pack_columns(dst, src, row_bytes, all, j0, cols, k0, k, DT_##F);                           \
    }
STORED_FORMATS(DEFINE)

void CPU_FN(stored_read)(float *dst, const void *row, int64_t n, dtype dt) {
#define CASE(F)                                                                                    \
    case DT_##F: read_##F(dst, row, n); return;
    switch (dt) {
        STORED_FORMATS(CASE)
        default: return;
    }
#undef CASE
}

void CPU_FN(stored_pack)(float *dst, const void *src, int64_t row_bytes, int64_t rows, int64_t k0,
                         int64_t k, dtype dt) {
    if (dt == DT_F16)
        pack_rows(dst, src, row_bytes, rows, k0, k, DT_F16);
    else if (dt == DT_FP8)
        pack_rows(dst, src, row_bytes, rows, k0, k, DT_FP8);
    else if (dt == DT_NF4)
        pack_rows(dst, src, row_bytes, rows, k0, k, DT_NF4);
    else
        pack_rows(dst, src, row_bytes, rows, k0, k, DT_BF16);
}

void CPU_FN(stored_pack_columns)(float *dst, const void *src, int64_t row_bytes, int64_t all,
                                 int64_t j0, int64_t cols, int64_t k0, int64_t k, dtype dt) {
#define CASE(F)                                                                                    \
    case DT_##F: columns_##F(dst, src, row_bytes, all, j0, cols, k0, k); return;
    switch (dt) {
        STORED_FORMATS(CASE)
        default: return;
    }
#undef CASE
}
