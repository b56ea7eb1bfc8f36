/* The table of formats, and conversion by it. */
#include "base/quant.h"

#include <strings.h>

#include "base/quant_blocks.h"
#include "base/status.h"

#define PLAIN(NAME, name, bytes)                                                                   \
    { QUANT_##NAME, #NAME, 1, bytes, quant_read_##name, quant_write_##name, DT_##NAME }
#define BLOCKS(NAME, name, n, write)                                                               \
    { QUANT_##NAME, #NAME, n, sizeof(quant_##name), quant_read_##name, write, DT_##NAME }
static const quant_format FORMATS[] = {
    PLAIN(F32, f32, 4),
    PLAIN(F16, f16, 2),
    PLAIN(BF16, bf16, 2),
    BLOCKS(Q4_0, q4_0, QUANT_SMALL, quant_write_q4_0),
    BLOCKS(Q4_1, q4_1, QUANT_SMALL, quant_write_q4_1),
    BLOCKS(Q5_0, q5_0, QUANT_SMALL, NULL),
    BLOCKS(Q5_1, q5_1, QUANT_SMALL, NULL),
    BLOCKS(Q8_0, q8_0, QUANT_SMALL, quant_write_q8_0),
    BLOCKS(Q4_K, q4_k, QUANT_K, NULL),
    BLOCKS(Q5_K, q5_k, QUANT_K, NULL),
    BLOCKS(Q6_K, q6_k, QUANT_K, NULL),
    /* Only carried: their size says where the next tensor begins. */
    {9, "Q8_1", 32, 40, NULL, NULL, DT_COUNT},
    {10, "Q2_K", 256, 84, NULL, NULL, DT_COUNT},
    {11, "Q3_K", 256, 110, NULL, NULL, DT_COUNT},
    {15, "Q8_K", 256, 292, NULL, NULL, DT_COUNT},
    {16, "IQ2_XXS", 256, 66, NULL, NULL, DT_COUNT},
    {17, "IQ2_XS", 256, 74, NULL, NULL, DT_COUNT},
    {18, "IQ3_XXS", 256, 98, NULL, NULL, DT_COUNT},
    {19, "IQ1_S", 256, 50, NULL, NULL, DT_COUNT},
    {20, "IQ4_NL", 32, 18, NULL, NULL, DT_COUNT},
    {21, "IQ3_S", 256, 110, NULL, NULL, DT_COUNT},
    {22, "IQ2_S", 256, 82, NULL, NULL, DT_COUNT},
    {23, "IQ4_XS", 256, 136, NULL, NULL, DT_COUNT},
    {24, "I8", 1, 1, NULL, NULL, DT_COUNT},
    {25, "I16", 1, 2, NULL, NULL, DT_COUNT},
    {26, "I32", 1, 4, NULL, NULL, DT_COUNT},
    {27, "I64", 1, 8, NULL, NULL, DT_COUNT},
    {28, "F64", 1, 8, NULL, NULL, DT_COUNT},
    {29, "IQ1_M", 256, 56, NULL, NULL, DT_COUNT},
    {34, "TQ1_0", 256, 54, NULL, NULL, DT_COUNT},
    {35, "TQ2_0", 256, 66, NULL, NULL, DT_COUNT},
    {39, "MXFP4", 32, 17, NULL, NULL, DT_COUNT},
    {40, "NVFP4", 64, 36, NULL, NULL, DT_COUNT},
    {41, "Q1_0", 128, 18, NULL, NULL, DT_COUNT},
};

const quant_format *quant_by_type(uint32_t type) {
    for (int i = 0; i < ARRAY_LEN(FORMATS); i++)
        if (FORMATS[i].type == type) return &FORMATS[i];
    return NULL;
}

const quant_format *quant_by_name(const char *name) {
    for (int i = 0; i < ARRAY_LEN(FORMATS); i++)
        if (strcasecmp(FORMATS[i].name, name) == 0) return &FORMATS[i];
    return NULL;
}

const quant_format *quant_by_dtype(dtype dt) {
    for (int i = 0; i < ARRAY_LEN(FORMATS); i++)
        if (FORMATS[i].dt == dt) return &FORMATS[i];
    return NULL;
}

static int64_t count_blocks(const quant_format *f, int64_t n) {
    CHECK(n >= 0 && n % f->block == 0, "%lld elements of %s", (long long)n, f->name);
    return n / f->block;
}

void quant_to_f32(const quant_format *f, float *dst, const void *src, int64_t n) {
    CHECK(f->read, "%s is never read", f->name);
    f->read(dst, src, count_blocks(f, n));
}

static bool all_finite(const float *x, int64_t n) {
    uint32_t top = 0, u;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&u, &x[i], 4);
        u &= 0x7fffffffu;
        top = (int32_t)u > (int32_t)top ? u : top; /* signed, which every machine can do at once */
    }
    return top < 0x7f800000u;
}

/* By pieces that stay in the nearest cache, because each is read again. */
bool quant_from_f32(const quant_format *f, void *dst, const float *src, int64_t n) {
    enum { PIECE = 1024 };
    CHECK(f->write, "%s is never written", f->name);
    CHECK(PIECE % f->block == 0, "%s has blocks of %d", f->name, f->block);
    uint8_t *out = dst;
    float back[PIECE];
    bool holds = true;
    for (int64_t left = n; left > 0; left -= PIECE, src += PIECE) {
        int64_t now = left < PIECE ? left : PIECE, blocks = count_blocks(f, now);
        f->write(out, src, blocks);
        f->read(back, out, blocks);
        if (f->type != QUANT_F32) holds = all_finite(src, now) && all_finite(back, now) && holds;
        out += blocks * f->bytes;
    }
    return holds;
}
