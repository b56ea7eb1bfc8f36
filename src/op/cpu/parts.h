/* What the files of a variant give each other and its table (tables.c). */
#ifndef OP_CPU_PARTS_H
#define OP_CPU_PARTS_H

#include "op/cpu/variant.h"
#include "op/gemm.h"
#include "op/op.h"
#include "op/vecops.h"

/* ---- gemm_tile.c, with AMX gemm_amx.c: the packed product; op/gemm.c chooses it ---- */

int64_t CPU_FN(gemm_ws)(int threads, const gemm_args *g);
void CPU_FN(gemm_packed)(int threads, const gemm_args *g, void *ws);
/* The same, never by gemv: the bits of a row of C do not depend on how many there are. */
void CPU_FN(gemm_tiles)(int threads, const gemm_args *g, void *ws);

/* What gemm_amx.c leaves to others. */
int64_t gemm_ws_avx512_bf16(int threads, const gemm_args *g);
void gemm_packed_avx512_bf16(int threads, const gemm_args *g, void *ws);

/* Whether gemv runs the product instead (gemm_packed asks). */
bool CPU_FN(gemv_fits)(const gemm_args *g);
void CPU_FN(gemv)(int threads, const gemm_args *g);

/* ---- by_row.c: C = A B^T, a row of C of its own row of A alone, to the bit ---- */

/* Rows from which workspace depends on n, too. */
enum { BY_ROW_MANY = 128 };
/* The gemv functions have the same order of sums. a, b: formats of the operands, of which b may be one of files; integers multiply
 * some of these (stored_dot.c), where rows of A may be rounded to 16 bits and the machine d is good at it. */
int64_t CPU_FN(product_by_row_ws)(const dev *d, bool rounds, int threads, int64_t m, int64_t n,
                                  int64_t k, dtype a, dtype b);
void CPU_FN(product_by_row)(const dev *d, bool rounds, int threads, const gemm_args *g, void *ws);

/* ---- rows of weights as files store them, for kernels in f32: stored.c, gemv_stored.c ---- */

/* The first n elements of a row as floats; dt is none of f32. */
void CPU_FN(stored_read)(float *dst, const void *row, int64_t n, dtype dt);
/* Elements [k0, k0 + k) of `rows` rows of f16 or bf16 as panels of B (pack.h); k0 is a multiple of 32. */
void CPU_FN(stored_pack)(float *dst, const void *src, int64_t row_bytes, int64_t rows, int64_t k0,
                         int64_t k, dtype dt);
/* Columns [j0, j0 + cols) of rows [k0, k0 + k) as panels of B, where rows are k and have `all`
 * columns; cols is at most 64. */
void CPU_FN(stored_pack_columns)(float *dst, const void *src, int64_t row_bytes, int64_t all,
                                 int64_t j0, int64_t cols, int64_t k0, int64_t k, dtype dt);
/* The product of at most GEMV_STORED_ROWS rows: B is decoded once, in registers, as it passes. */
enum { GEMV_STORED_ROWS = 4 };
void CPU_FN(gemv_stored)(int threads, const gemm_args *g);
/* The first GEMV_STORED_ROWS rows of C, columns [j, j + columns), at most 4. What was decoded stays as floats in
 * keep: 4 rows of B, ld apart, each up to the next whole vector. */
void CPU_FN(gemv_stored_first)(const gemm_args *g, int64_t j, int64_t columns, float *keep,
                               int64_t ld);

/* ---- attention (`one`: forward of a single query), which attention_fwd.c joins into the op ---- */

void CPU_FN(attention_one)(const op_call *c);
void CPU_FN(attention_bwd)(const op_call *c);
int64_t CPU_FN(attention_one_floats)(const op_attr *at);
int64_t CPU_FN(attention_bwd_floats)(const op_attr *at, int threads);

/* ---- the gated delta rule, which delta.c joins ---- */

void CPU_FN(delta_bwd)(const op_call *c);
int64_t CPU_FN(delta_bwd_floats)(const op_attr *at, int threads);

/* ---- whole arrays: what a step does (vecops.c), the same in the deterministic mode (vecfixed.c), what
 * the start does (vecinit.c); op/vecops.c chooses ---- */

/* x[0..n) * 2^-FIXED_GRAD_BITS, each rounded once. */
void CPU_FN(vec_unfix)(const int64_t *x, float *out, int64_t n);
void CPU_FN(vec_update)(int threads, const vec_spans *s, const vec_update_args *a,
                        uint64_t *digest);
double CPU_FN(vec_sum_squares)(int threads, const vec_spans *s, const float *x);
void CPU_FN(vec_sum_squares_fixed)(int threads, const vec_spans *s, const int64_t *x,
                                   int64_t limb[VEC_LIMBS]);
uint64_t CPU_FN(vec_digest)(int threads, const vec_spans *s, const float *x);
void CPU_FN(vec_draw)(int threads, const vec_spans *s, const vec_rule *rule, float *x,
                      uint16_t *copy);
void CPU_FN(vec_round)(int threads, const vec_spans *s, const float *x, uint16_t *copy);

/* ---- register-only loops for op/peak.h, which return the FLOPs they did ---- */

double CPU_FN(peak_fma_loop)(int threads, int64_t rounds);
double CPU_FN(peak_dot_loop)(int threads, int64_t rounds);

#endif
