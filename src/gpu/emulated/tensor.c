/* Tensor cores: ldmatrix and mma.sync for a warp, with the fragments of the PTX manual (section
 * "Matrix fragments for mma.m16n8k16 with floating point type"; "ldmatrix"). With g = lane / 4 and
 * t = lane % 4, a register holds two neighbours of a row of A, or of a column of B:
 *
 *   A [16,16]  a0: row g, columns 2t, 2t+1     a1: row g+8     a2: row g, columns 2t+8, 2t+9
 *              a3: row g+8, columns 2t+8, 2t+9
 *   B [16,8]   b0: rows 2t, 2t+1 of column g   b1: rows 2t+8, 2t+9 of column g
 *   D [16,8]   d0, d1: row g, columns 2t, 2t+1   d2, d3: row g+8, the same columns
 *
 * A wrong lane gives a wrong number only, so the emulation remembers where numbers come from: from
 * global memory by copy16_async, from there by matrix_load4 to registers. The numbers of A, and of
 * B, must then be a tile of a matrix: rows of neighbours, all equally far apart. What a kernel wrote
 * into shared memory or registers itself comes from nowhere, and is not judged. */
#include <stddef.h>
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

/* ---- where numbers come from ---- */

typedef struct tile {
    const char *at[16][16]; /* [row][column]; NULL: unknown */
    int rows, cols;
} tile;

static tile tile_of_a(const emu_warp *w) {
    tile t = {.rows = 16, .cols = 16};
    for (int l = 0; l < GPU_WARP; l++)
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 2; i++)
                t.at[l / 4 + r % 2 * 8][l % 4 * 2 + r / 2 * 8 + i] = w->from[l][2 * r + i];
    return t;
}

/* Turned, so that a column of B is a row. */
static tile tile_of_b(const emu_warp *w) {
    tile t = {.rows = 8, .cols = 16};
    for (int l = 0; l < GPU_WARP; l++)
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 2; i++)
                t.at[l / 4][l % 4 * 2 + r * 8 + i] = w->from[l][8 + 2 * r + i];
    return t;
}

static tile turned_tile(const tile *t) {
    tile u = {.rows = t->cols, .cols = t->rows};
    for (int i = 0; i < u.rows; i++)
        for (int j = 0; j < u.cols; j++) u.at[i][j] = t->at[j][i];
    return u;
}

/* The row at which it is no tile of a matrix with neighbours in a row; -1: it is one. */
static int bad_row(const tile *t) {
    const char *before = NULL;
    ptrdiff_t step = 0;
    for (int i = 0; i < t->rows; i++) {
        const char *first = NULL;
        for (int j = 0; j < t->cols; j++) {
            if (!t->at[i][j]) continue;
            if (first && t->at[i][j] - 2 * j != first) return i;
            first = t->at[i][j] - 2 * j;
        }
        if (before && first) {
            if (first == before || (step != 0 && first - before != step)) return i;
            step = first - before;
        }
        before = first;
    }
    return -1;
}

static void check_tile(const tile *t, const char *name, const emu_site *site) {
    tile other = turned_tile(t);
    int row = bad_row(t);
    if (row < 0 || bad_row(&other) < 0) return;
    emu_fail(NULL, site,
             "%s: the numbers in %s, %s %d are no tile of a matrix with those before them",
             site->what, name, name[0] == 'a' ? "row" : "column", row);
}

static const emu_fragment *fragment_at(const uint32_t *r) {
    static const emu_fragment unknown;
    const emu_fragment *f = &emu_worker_now->now->fragment[(uintptr_t)r / 4 % EMU_FRAGMENTS];
    return f->at == r && f->value == *r ? f : &unknown;
}

static void keep_fragment(const uint32_t *r, const char *const from[2]) {
    emu_fragment *f = &emu_worker_now->now->fragment[(uintptr_t)r / 4 % EMU_FRAGMENTS];
    *f = (emu_fragment){r, *r, {from[0], from[1]}};
}

/* The warp that the running thread is in, and its place there. */
static emu_warp *warp_here(int *l) {
    uint32_t t = emu_worker_now->now->place[EMU_THREAD];
    *l = (int)(t % GPU_WARP);
    return &emu_worker_now->warp[t / GPU_WARP];
}

/* ---- mma.sync ---- */

static void do_multiply(emu_warp *w, const emu_site *site, bool bf16) {
    float a[16][16], b[16][8];
    tile ta = tile_of_a(w), tb = tile_of_b(w);
    check_tile(&ta, "a", site);
    check_tile(&tb, "b", site);
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
    do_multiply(w, site, true);
}
static void do_multiply_f16(emu_warp *w, const emu_site *site) {
    do_multiply(w, site, false);
}

emu_4 emu_multiply_add(const emu_site *site, emu_4 d, const uint32_t a[4], const uint32_t b[2],
                       bool bf16) {
    uint32_t in[10];
    memcpy(in, a, 4 * sizeof *in);
    memcpy(in + 4, b, 2 * sizeof *in);
    memcpy(in + 6, &d, sizeof d);
    int l;
    emu_warp *w = warp_here(&l);
    for (int r = 0; r < 6; r++)
        memcpy(&w->from[l][2 * r], fragment_at(r < 4 ? &a[r] : &b[r - 4])->from,
               sizeof w->to[0][0] * 2);
    const uint32_t *out = emu_warp_join(site, in, 10, bf16 ? do_multiply_bf16 : do_multiply_f16);
    memcpy(&d, out, sizeof d);
    return d;
}

/* ---- ldmatrix ---- */

/* Lane 8m + i gives the address of row i of matrix m. Of each matrix, lane l gets elements 2t and
 * 2t+1 of row g; turned: of column g. Every lane has read its own row before they meet. */
static void do_load(emu_warp *w, bool turned) {
    for (int l = 0; l < GPU_WARP; l++)
        for (int m = 0; m < 4; m++) {
            uint16_t pair[2];
            for (int i = 0; i < 2; i++) {
                int row = turned ? l % 4 * 2 + i : l / 4, col = turned ? l / 4 : l % 4 * 2 + i;
                memcpy(&pair[i], (const char *)w->in[8 * m + row] + 2 * col, 2);
                const char *from = w->from[8 * m + row][0];
                w->to[l][2 * m + i] = from ? from + 2 * col : NULL;
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
    int l;
    emu_watch(row, 16, false, NULL, site);
    memcpy(in, row, 16);
    emu_warp *w = warp_here(&l);
    w->from[l][0] = emu_origin(row);
    memcpy(r, emu_warp_join(site, in, 4, turned ? do_load_turned : do_load_plain), 16);
    for (int m = 0; m < 4; m++) keep_fragment(&r[m], &w->to[l][2 * m]);
}
