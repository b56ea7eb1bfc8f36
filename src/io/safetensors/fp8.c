#include "io/safetensors/fp8.h"

#include <string.h>

float fp8_factor(const uint8_t *scale, dtype dt, int64_t block) {
    uint16_t half;
    float whole;
    if (dt == DT_BF16 || dt == DT_F16) {
        memcpy(&half, scale + 2 * block, sizeof half);
        return dt == DT_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
    }
    memcpy(&whole, scale + 4 * block, sizeof whole);
    return whole;
}

void fp8_blocks_to_f32(float *dst, const uint8_t *bits, const fp8_grid *g, int64_t cols,
                       int64_t first, int64_t n) {
    float table[256];
    for (int i = 0; i < 256; i++) table[i] = fp8_e4m3((uint8_t)i);
    for (int64_t done = 0; done < n;) {
        int64_t row = (first + done) / cols, col = (first + done) % cols;
        int64_t end = (col / g->cols + 1) * g->cols;
        int64_t take = (end < cols ? end : cols) - col;
        if (take > n - done) take = n - done;
        float factor = fp8_factor(g->scale, g->dt, row / g->rows * g->across + col / g->cols);
        for (int64_t i = 0; i < take; i++) dst[done + i] = table[bits[first + done + i]] * factor;
        done += take;
    }
}
