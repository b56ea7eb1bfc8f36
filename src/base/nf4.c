/* Quantising to NF4 (see nf4.h). */
#include "base/nf4.h"

#include <math.h>

#include "base/status.h"

static int64_t blocks_of(int64_t rows, int64_t cols) {
    return rows * cols / NF4_BLOCK;
}

static int64_t nested_of(int64_t rows, int64_t cols) {
    return (blocks_of(rows, cols) + NF4_NESTED - 1) / NF4_NESTED;
}

static int64_t aligned(int64_t bytes) {
    return (bytes + NF4_ALIGN - 1) / NF4_ALIGN * NF4_ALIGN;
}

static nf4_matrix layout_of(int64_t rows, int64_t cols) {
    CHECK(cols % NF4_BLOCK == 0, "rows of %lld in NF4", (long long)cols);
    nf4_matrix m = {.rows = rows, .cols = cols};
    m.nested_at = (int64_t)sizeof m + rows * (int64_t)sizeof(int32_t);
    m.scale_at = m.nested_at + nested_of(rows, cols) * (int64_t)sizeof(float);
    m.bits_at = aligned(m.scale_at + blocks_of(rows, cols));
    return m;
}

int64_t nf4_bytes(int64_t rows, int64_t cols) {
    return aligned(layout_of(rows, cols).bits_at + rows * cols / 2);
}

void nf4_begin(nf4_matrix *m, int64_t rows, int64_t cols) {
    *m = layout_of(rows, cols);
    int32_t *row = nf4_rows(m);
    for (int64_t r = 0; r < rows; r++) row[r] = (int32_t)r;
}

static float largest_of(const float *x, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        most = size > most || size != size ? size : most;
    }
    return most;
}

/* The nearest level: how many of the middles between two levels are below x. */
static inline uint8_t nearest_level(float x) {
    int q = 0;
    for (int i = 0; i < 15; i++) q += x > (NF4_LEVEL[i] + NF4_LEVEL[i + 1]) / 2;
    return (uint8_t)q;
}

static void put_block(uint8_t *bits, const float *x, float largest) {
    uint8_t q[NF4_BLOCK];
    float by = largest > 0 ? 1.0f / largest : 0; /* zeros become the level 0 */
    for (int i = 0; i < NF4_BLOCK; i++) q[i] = nearest_level(x[i] * by);
    for (int i = 0; i < NF4_BLOCK; i += 32, bits += 16)
        for (int j = 0; j < 16; j++) bits[j] = (uint8_t)(q[i + j] | q[i + j + 16] << 4);
}

bool nf4_put_rows(nf4_matrix *m, int64_t first, int64_t n, const float *x, float *largest) {
    int64_t block = blocks_of(first, m->cols), end = blocks_of(first + n, m->cols);
    uint8_t *bits = (uint8_t *)m + m->bits_at;
    for (; block < end; block++, x += NF4_BLOCK) {
        largest[block] = largest_of(x, NF4_BLOCK);
        if (!isfinite(largest[block])) return false;
        put_block(bits + block * (NF4_BLOCK / 2), x, largest[block]);
    }
    return true;
}

static uint8_t nearest_in_map(float x) {
    int low = 0, high = 255;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        *(NF4_MAP[middle] <= x ? &low : &high) = middle;
    }
    return (uint8_t)(x - NF4_MAP[low] <= NF4_MAP[high] - x ? low : high);
}

static void put_scales(uint8_t *scale, float *nested, const float *largest, int64_t n, float mean) {
    float less[NF4_NESTED];
    for (int64_t i = 0; i < n; i++) less[i] = largest[i] - mean;
    *nested = largest_of(less, n);
    float by = *nested > 0 ? 1.0f / *nested : 0;
    for (int64_t i = 0; i < n; i++) scale[i] = nearest_in_map(less[i] * by);
}

void nf4_finish(nf4_matrix *m, const float *largest) {
    int64_t n = blocks_of(m->rows, m->cols);
    uint8_t *at = (uint8_t *)m;
    float *nested = (float *)(void *)(at + m->nested_at);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)largest[i];
    m->mean = (float)(sum / (double)n);
    for (int64_t i = 0; i < n; i += NF4_NESTED)
        put_scales(at + m->scale_at + i, nested++, largest + i,
                   n - i < NF4_NESTED ? n - i : NF4_NESTED, m->mean);
}
