/* Blocks of a few thousand bytes pass through accumulators on the stack, which stay in the first
 * cache: memory is read once per row and written once. The loops are plain, for the compiler to
 * vectorise. */
#include "comm/sum.h"

enum { BLOCK = 1024 };

static int64_t block_at(int64_t i, int64_t n) {
    return n - i < BLOCK ? n - i : BLOCK;
}

static const void *at(const void *data, int64_t i, size_t bytes) {
    return (const char *)data + (size_t)i * bytes;
}

/* ---- one type throughout ---- */

#define MORE(a, b) ((b) > (a) ? (b) : (a))

/* `type` is what is stored, `sum_type` what sums are formed in: integers wrap as unsigned ones. */
#define DEFINE_SUM(name, type, sum_type)                                                           \
    static void join_##name(type *restrict acc, const type *restrict x, int64_t n, comm_sum op) {  \
        if (op == COMM_MAX)                                                                        \
            for (int64_t i = 0; i < n; i++) acc[i] = MORE(acc[i], x[i]);                           \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) acc[i] = (type)((sum_type)acc[i] + (sum_type)x[i]);    \
    }                                                                                              \
    static void sum_##name(type *dst, const sum_row *rows, int n_rows, int64_t n,                  \
                           const sum_rule *rule) {                                                 \
        type acc[BLOCK];                                                                           \
        for (int64_t i = 0; i < n; i += BLOCK) {                                                   \
            int64_t m = block_at(i, n);                                                            \
            memcpy(acc, (const type *)rows[0].data + i, (size_t)m * sizeof(type));                 \
            for (int r = 1; r < n_rows; r++)                                                       \
                join_##name(acc, (const type *)rows[r].data + i, m, rule->op);                     \
            if (rule->add)                                                                         \
                join_##name(dst + i, acc, m, rule->op);                                            \
            else                                                                                   \
                memcpy(dst + i, acc, (size_t)m * sizeof(type));                                    \
        }                                                                                          \
    }
DEFINE_SUM(f64, double, double)
DEFINE_SUM(i32, int32_t, uint32_t)
DEFINE_SUM(i64, int64_t, uint64_t)

/* ---- fp32, and bf16 and f16 summed in it ---- */

static void join_f32(float *restrict acc, const float *restrict x, int64_t n, comm_sum op) {
    if (op == COMM_MAX)
        for (int64_t i = 0; i < n; i++) acc[i] = MORE(acc[i], x[i]);
    else
        for (int64_t i = 0; i < n; i++) acc[i] += x[i];
}

void sum_widen(float *restrict dst, const uint16_t *restrict src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = bf16_to_f32(src[i]);
}

static void round_through_bf16(float *restrict dst, const float *restrict src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = bf16_to_f32(f32_to_bf16(src[i]));
}

void sum_narrow(uint16_t *restrict dst, const float *restrict src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = f32_to_bf16(src[i]);
}

/* Elements [i, i + m) of a row as floats: in place, or in `room`. */
static const float *floats_of(float *room, sum_row row, int64_t i, int64_t m,
                              const sum_rule *rule) {
    dtype stored = row.is_bf16 ? DT_BF16 : rule->dt;
    if (stored != DT_F32) {
        dtype_convert(room, DT_F32, at(row.data, i, 2), stored, m);
        return room;
    }
    const float *x = at(row.data, i, 4);
    if (!rule->narrow_rows) return x;
    round_through_bf16(room, x, m);
    return room;
}

static void store_floats(void *dst, int64_t i, float *acc, int64_t m, const sum_rule *rule) {
    float room[BLOCK];
    if (rule->narrow_result) {
        round_through_bf16(room, acc, m);
        memcpy(acc, room, (size_t)m * sizeof *acc);
    }
    if (rule->dt != DT_F32) {
        uint16_t *to = (uint16_t *)dst + i;
        if (rule->add) {
            dtype_convert(room, DT_F32, to, rule->dt, m);
            join_f32(acc, room, m, rule->op);
        }
        dtype_convert(to, rule->dt, acc, DT_F32, m);
    } else if (rule->add) {
        join_f32((float *)dst + i, acc, m, rule->op);
    } else {
        memcpy((float *)dst + i, acc, (size_t)m * sizeof *acc);
    }
}

static void sum_floats(void *dst, const sum_row *rows, int n_rows, int64_t n,
                       const sum_rule *rule) {
    float acc[BLOCK], room[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = block_at(i, n);
        const float *first = floats_of(acc, rows[0], i, m, rule);
        if (first != acc) memcpy(acc, first, (size_t)m * sizeof *acc);
        for (int r = 1; r < n_rows; r++)
            join_f32(acc, floats_of(room, rows[r], i, m, rule), m, rule->op);
        store_floats(dst, i, acc, m, rule);
    }
}

void sum_rows(void *dst, const sum_row *rows, int n_rows, int64_t n, const sum_rule *rule) {
    switch (rule->dt) {
        case DT_F32:
        case DT_BF16:
        case DT_F16: sum_floats(dst, rows, n_rows, n, rule); return;
        case DT_F64: sum_f64(dst, rows, n_rows, n, rule); return;
        case DT_I32: sum_i32(dst, rows, n_rows, n, rule); return;
        case DT_I64: sum_i64(dst, rows, n_rows, n, rule); return;
        default: CHECK(false, "no sums of %s", dtype_name(rule->dt));
    }
}
