/* The table of formats, and conversion by it. */
#include "base/quant.h"

#include <strings.h>

#include "base/quant_blocks.h"
#include "base/status.h"

static const quant_format FORMATS[] = {
    {QUANT_F32, "F32", 1, 4, quant_read_f32, quant_write_f32},
    {QUANT_F16, "F16", 1, 2, quant_read_f16, quant_write_f16},
    {QUANT_Q4_0, "Q4_0", QUANT_SMALL, sizeof(quant_q4_0), quant_read_q4_0, quant_write_q4_0},
    {QUANT_Q4_1, "Q4_1", QUANT_SMALL, sizeof(quant_q4_1), quant_read_q4_1, quant_write_q4_1},
    {QUANT_Q5_0, "Q5_0", QUANT_SMALL, sizeof(quant_q5_0), quant_read_q5_0, NULL},
    {QUANT_Q5_1, "Q5_1", QUANT_SMALL, sizeof(quant_q5_1), quant_read_q5_1, NULL},
    {QUANT_Q8_0, "Q8_0", QUANT_SMALL, sizeof(quant_q8_0), quant_read_q8_0, quant_write_q8_0},
    {QUANT_Q4_K, "Q4_K", QUANT_K, sizeof(quant_q4_k), quant_read_q4_k, NULL},
    {QUANT_Q5_K, "Q5_K", QUANT_K, sizeof(quant_q5_k), quant_read_q5_k, NULL},
    {QUANT_Q6_K, "Q6_K", QUANT_K, sizeof(quant_q6_k), quant_read_q6_k, NULL},
    {QUANT_BF16, "BF16", 1, 2, quant_read_bf16, quant_write_bf16},
    /* Only carried: their size says where the next tensor begins. */
    {9, "Q8_1", 32, 40, NULL, NULL},
    {10, "Q2_K", 256, 84, NULL, NULL},
    {11, "Q3_K", 256, 110, NULL, NULL},
    {15, "Q8_K", 256, 292, NULL, NULL},
    {16, "IQ2_XXS", 256, 66, NULL, NULL},
    {17, "IQ2_XS", 256, 74, NULL, NULL},
    {18, "IQ3_XXS", 256, 98, NULL, NULL},
    {19, "IQ1_S", 256, 50, NULL, NULL},
    {20, "IQ4_NL", 32, 18, NULL, NULL},
    {21, "IQ3_S", 256, 110, NULL, NULL},
    {22, "IQ2_S", 256, 82, NULL, NULL},
    {23, "IQ4_XS", 256, 136, NULL, NULL},
    {24, "I8", 1, 1, NULL, NULL},
    {25, "I16", 1, 2, NULL, NULL},
    {26, "I32", 1, 4, NULL, NULL},
    {27, "I64", 1, 8, NULL, NULL},
    {28, "F64", 1, 8, NULL, NULL},
    {29, "IQ1_M", 256, 56, NULL, NULL},
    {34, "TQ1_0", 256, 54, NULL, NULL},
    {35, "TQ2_0", 256, 66, NULL, NULL},
    {39, "MXFP4", 32, 17, NULL, NULL},
    {40, "NVFP4", 64, 36, NULL, NULL},
    {41, "Q1_0", 128, 18, NULL, NULL},
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

static const struct {
    dtype dt;
    quant_type type;
} AS_DTYPE[] = {
    {DT_F32, QUANT_F32},   {DT_BF16, QUANT_BF16}, {DT_F16, QUANT_F16},   {DT_Q4_0, QUANT_Q4_0},
    {DT_Q4_1, QUANT_Q4_1}, {DT_Q5_0, QUANT_Q5_0}, {DT_Q5_1, QUANT_Q5_1}, {DT_Q8_0, QUANT_Q8_0},
    {DT_Q4_K, QUANT_Q4_K}, {DT_Q5_K, QUANT_Q5_K}, {DT_Q6_K, QUANT_Q6_K},
};

const quant_format *quant_by_dtype(dtype dt) {
    for (int i = 0; i < ARRAY_LEN(AS_DTYPE); i++)
        if (AS_DTYPE[i].dt == dt) return quant_by_type(AS_DTYPE[i].type);
    return NULL;
}

bool quant_to_dtype(uint32_t type, dtype *dt) {
    for (int i = 0; i < ARRAY_LEN(AS_DTYPE); i++) {
        if (AS_DTYPE[i].type != type) continue;
        *dt = AS_DTYPE[i].dt;
        return true;
    }
    return false;
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
