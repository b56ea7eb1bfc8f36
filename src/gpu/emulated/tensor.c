/* Tensor cores: ldmatrix and mma.sync for a warp, with the fragments of the PTX manual (section
 * "Matrix fragments for mma.m16n8k16 with floating point type"; "ldmatrix"). With g = lane / 4 and
 * t = lane % 4, a register holds two neighbours of a row of A, or of a column of B:
 *
 *   A [16,16]  a0: row g, columns 2t, 2t+1     a1: row g+8     a2: row g, columns 2t+8, 2t+9
 *              a3: row g+8, columns 2t+8, 2t+9
 *   B [16,8]   b0: rows 2t, 2t+1 of column g   b1: rows 2t+8, 2t+9 of column g
 *   D [16,8]   d0, d1: row g, columns 2t, 2t+1   d2, d3: row g+8, the same columns */
#include <string.h>

#include "base/dtype.h"
#include "gpu/emulated/block.h"

static float half_of(uint32_t word, int upper, bool bf16) {
    uint16_t h = (uint16_t)(upper ? word >> 16 : word);
    return bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

static void take_a(const emu_warp *w, float a[16][16], bool bf16) {
    for (int l = 0; l < GPU_WARP; l++)
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 2; i++)
                a[l / 4 + r % 2 * 8][l % 4 * 2 + r / 2 * 8 + i] = half_of(w->in[l][r], i, bf16);
}

static void take_b(const emu_warp *w, float b[16][8], bool bf16) {
    for (int l = 0; l < GPU_WARP; l++)
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 2; i++)
                b[l % 4 * 2 + r * 8 + i][l / 4] = half_of(w->in[l][4 + r], i, bf16);
}

static void do_multiply(emu_warp *w, bool bf16) {
    float a[16][16], b[16][8];
    take_a(w, a, bf16);
    take_b(w, b, bf16);
    for (int l = 0; l < GPU_WARP; l++)
        for (int r = 0; r < 4; r++) {
            float d;
            memcpy(&d, &w->in[l][6 + r], sizeof d);
            const float *row = a[l / 4 + r / 2 * 8];
            int col = l % 4 * 2 + r % 2;
            for (int k = 0; k < 16; k++) d += row[k] * b[k][col];
            memcpy(&w->out[l][r], &d, sizeof d);
        }
}

static void do_multiply_bf16(emu_warp *w, const emu_site *site) {
    (void)site;
    do_multiply(w, true);
}
static void do_multiply_f16(emu_warp *w, const emu_site *site) {
    (void)site;
    do_multiply(w, false);
}

void emu_multiply_add(const emu_site *site, float d[4], const uint32_t a[4], const uint32_t b[2],
                      bool bf16) {
    uint32_t in[10];
    memcpy(in, a, 4 * sizeof *in);
    memcpy(in + 4, b, 2 * sizeof *in);
    memcpy(in + 6, d, 4 * sizeof *in);
    const uint32_t *out = emu_warp_join(site, in, 10, bf16 ? do_multiply_bf16 : do_multiply_f16);
    memcpy(d, out, 4 * sizeof *out);
}

/* Lane 8m + i gives the address of row i of matrix m. Of each matrix, lane l gets elements 2t and
 * 2t+1 of row g; turned: of column g. Every lane has read its own row before they meet. */
static void do_load(emu_warp *w, bool turned) {
    for (int l = 0; l < GPU_WARP; l++)
        for (int m = 0; m < 4; m++) {
            uint16_t pair[2];
            for (int i = 0; i < 2; i++) {
                int row = turned ? l % 4 * 2 + i : l / 4, col = turned ? l / 4 : l % 4 * 2 + i;
                memcpy(&pair[i], (const char *)w->in[8 * m + row] + 2 * col, 2);
            }
            memcpy(&w->out[l][m], pair, 4);
        }
}

static void do_load_plain(emu_warp *w, const emu_site *site) {
    (void)site;
    do_load(w, false);
}
static void do_load_turned(emu_warp *w, const emu_site *site) {
    (void)site;
    do_load(w, true);
}

void emu_matrix_load4(const emu_site *site, uint32_t r[4], const void *row, bool turned) {
    uint32_t in[4];
    emu_watch(row, 16, false, NULL, site);
    memcpy(in, row, 16);
    memcpy(r, emu_warp_join(site, in, 4, turned ? do_load_turned : do_load_plain), 16);
}
