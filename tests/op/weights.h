/* Devices and operands for tests of products: every instruction set of this machine, the emulated GPU, and
 * weights as files store them. */
#ifndef TESTS_OP_WEIGHTS_H
#define TESTS_OP_WEIGHTS_H

#include "test.h"

#include "base/arena.h"
#include "base/fp8.h"
#include "base/nf4.h"
#include "base/quant.h"
#include "op/op.h"

/* Thousands of tiny parallel loops: waiting threads must sleep, not spin. */
static inline void restart_with_sleeping_threads(char **argv) {
    if (getenv("OMP_WAIT_POLICY")) return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
}

static const char *const ISAS[] = {"base", "avx2", "avx512", "avx512_vnni", "avx512_bf16"};
static const dtype FORMATS[] = {DT_F16,  DT_BF16, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,
                                DT_Q8_0, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_NF4,  DT_FP8};
enum { GPU_FORMATS = ARRAY_LEN(FORMATS) - 1 }; /* all but fp8 */

/* Elements of which rows have a multiple. */
static inline int64_t block_of(dtype dt) {
    if (dtype_is_listed(dt)) return dt == DT_NF4 ? NF4_BLOCK : 1;
    return quant_by_dtype(dt)->block;
}

static inline dev *open_dev(const char *isa, int threads) {
    dev *d;
    err e = {0};
    setenv("ATHANOR_ISA", isa, 1);
    assert_int_equal(dev_open(&d, DEV_CPU, threads, &e), ST_OK);
    unsetenv("ATHANOR_ISA");
    return d;
}

/* Whether the machine has it: else dev_open takes the next lower one. */
static inline bool has_isa(int i) {
    dev *d = open_dev(ISAS[i], 1);
    bool same = strcmp(cpu_isa_name(dev_isa(d)), ISAS[i]) == 0;
    dev_close(d);
    return same;
}

static inline dev *open_gpu(void) {
    dev *d;
    err e = {0};
    setenv("ATHANOR_CUDA", "emulated", 1);
    assert_int_equal(dev_open(&d, DEV_CUDA, 2, &e), ST_OK);
    unsetenv("ATHANOR_CUDA");
    return d;
}

/* ---- weights ---- */

static inline uint32_t next_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static inline float random_unit(uint32_t *seed) {
    return (float)next_random(seed) * 0x1p-23f - 1.0f;
}

static inline void put_f16(uint8_t *at, float v) {
    uint16_t h = f32_to_f16(v);
    memcpy(at, &h, 2);
}

/* Any bytes are a block, but scales shall be tame. */
static inline void fill_block(uint8_t *p, const quant_format *f, uint32_t *seed) {
    for (int i = 0; i < f->bytes; i++) p[i] = (uint8_t)next_random(seed);
    uint16_t h;
    switch (f->type) {
        case QUANT_F16: put_f16(p, random_unit(seed)); break;
        case QUANT_BF16:
            h = f32_to_bf16(random_unit(seed));
            memcpy(p, &h, 2);
            break;
        case QUANT_Q6_K: put_f16(p + 208, 1e-4f * random_unit(seed)); break;
        case QUANT_Q4_K:
        case QUANT_Q5_K:
            put_f16(p, 1e-3f * random_unit(seed));
            put_f16(p + 2, 1e-3f * random_unit(seed));
            break;
        case QUANT_Q4_1:
        case QUANT_Q5_1: put_f16(p + 2, random_unit(seed)); /* fall through */
        default: put_f16(p, 0.1f * random_unit(seed));
    }
}

typedef struct weights {
    tensor t;
    float *value; /* [rows, cols] */
} weights;

/* Rows of 8-bit floats, a factor for every 32 columns, or one for a row; at an odd address, with subnormals and both zeros. */
static inline weights make_fp8(arena *a, int64_t rows, int64_t cols, uint32_t seed) {
    weights w = {.t = {.dt = DT_FP8, .rows = rows, .cols = cols, .ld = cols}};
    fp8_row *list = arena_alloc(a, sizeof *list * (size_t)rows);
    uint8_t *bits = (uint8_t *)arena_alloc(a, (size_t)(rows * cols) + 1) + 1;
    int64_t blocks = (cols + 31) / 32;
    float *factor = arena_alloc(a, sizeof *factor * (size_t)(rows * blocks));
    for (int64_t i = 0; i < rows * cols; i++) {
        bits[i] = (uint8_t)next_random(&seed);
        if ((bits[i] & 127) == 127) bits[i] ^= 1; /* no number */
    }
    for (int64_t i = 0; i < rows * blocks; i++) factor[i] = 1e-2f * random_unit(&seed);
    w.value = arena_alloc(a, (size_t)(rows * cols) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        list[r] =
            (fp8_row){bits + r * cols, factor + r * blocks, r % 3 ? FP8_LEAST_SHIFT : FP8_WHOLE};
        for (int64_t i = 0; i < cols; i++)
            w.value[r * cols + i] =
                fp8_e4m3(bits[r * cols + i]) * factor[r * blocks + (r % 3 ? i / 32 : 0)];
    }
    w.t.data = list;
    return w;
}

/* Blocks of very different sizes, zeros among them. */
static inline weights make_nf4(arena *a, int64_t rows, int64_t cols, uint32_t seed) {
    weights w = {.t = {.dt = DT_NF4, .rows = rows, .cols = cols, .ld = cols}};
    nf4_matrix *m = arena_alloc(a, (size_t)nf4_bytes(rows, cols));
    float *largest = ARENA_ARRAY(a, float, rows *cols / NF4_BLOCK);
    w.value = ARENA_ARRAY(a, float, rows *cols);
    for (int64_t i = 0; i < rows * cols; i++)
        w.value[i] = random_unit(&seed) * (float)(i / NF4_BLOCK % 7) * 0.01f;
    nf4_begin(m, rows, cols);
    assert_true(nf4_put_rows(m, 0, rows, w.value, largest));
    nf4_finish(m, largest);
    w.t.data = nf4_rows(m);
    for (int64_t r = 0; r < rows; r++)
        nf4_row_read((const int32_t *)w.t.data + r, 0, cols, w.value + r * cols);
    return w;
}

/* At an odd address, rows one block apart more than they need. */
static inline weights make_weights(arena *a, dtype dt, int64_t rows, int64_t cols, uint32_t seed) {
    if (dt == DT_FP8) return make_fp8(a, rows, cols, seed);
    if (dt == DT_NF4) return make_nf4(a, rows, cols, seed);
    const quant_format *f = quant_by_dtype(dt);
    weights w = {.t = {.dt = dt, .rows = rows, .cols = cols, .ld = cols + f->block}};
    int64_t row = dtype_span_bytes(dt, w.t.ld);
    uint8_t *p = (uint8_t *)arena_alloc(a, (size_t)(rows * row) + 1) + 1;
    for (int64_t i = 0; i < rows * row; i += f->bytes) fill_block(p + i, f, &seed);
    w.t.data = p;
    w.value = arena_alloc(a, (size_t)(rows * cols) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) quant_to_f32(f, w.value + r * cols, p + r * row, cols);
    return w;
}

static inline tensor make_floats(arena *a, int64_t rows, int64_t cols, int64_t gap, uint32_t seed) {
    tensor t = {.dt = DT_F32, .rows = rows, .cols = cols, .ld = cols + gap};
    float *p = arena_alloc(a, (size_t)(rows * t.ld) * sizeof(float));
    for (int64_t i = 0; i < rows * t.ld; i++) p[i] = random_unit(&seed);
    t.data = p;
    return t;
}

static inline float at(const tensor *t, int64_t i, int64_t j) {
    return ((const float *)t->data)[i * t->ld + j];
}

#endif
