/* For files of this folder: the rule of an op says whether its operands fit, declares its outputs and counts its FLOPs. It checks what
 * is special to its op; presence, gaps between rows, bytes and workspace are the same for all ops (op/infer.c). A rule is
 * called infer_ID. */
#ifndef OP_RULES_RULES_H
#define OP_RULES_RULES_H

#include "op/op.h"

#define OP(ID, ...) status infer_##ID(op_infer *io, err *e) ATH_MUST_USE;
#include "op/ops.def"
#undef OP

/* ---- what rules are made of; ST_USAGE names the op and the operand ---- */

const char *op_name(const op_infer *io);
bool given(const op_infer *io, int i);
status expect_cols(const op_infer *io, int i, int64_t cols, const char *why, err *e) ATH_MUST_USE;
status expect_rows(const op_infer *io, int i, int64_t rows, const char *why, err *e) ATH_MUST_USE;
status same_cols(const op_infer *io, int i, int j, err *e) ATH_MUST_USE;
status same_rows(const op_infer *io, int i, int j, err *e) ATH_MUST_USE;
status expect_dtype(const op_infer *io, int i, dtype want, err *e) ATH_MUST_USE;
/* Input i: an int32 for each row; `what` it is. */
status expect_numbers(const op_infer *io, int i, const char *what, err *e) ATH_MUST_USE;
status expect_positive(const op_infer *io, const char *what, int64_t n, err *e) ATH_MUST_USE;
status expect_softcap(const op_infer *io, float cap, err *e) ATH_MUST_USE;
status expect_dropout(const op_infer *io, float p, err *e) ATH_MUST_USE;
dtype act_dt(const op_infer *io);
/* Keys and values that were computed before. */
status expect_cache_dtype(const op_infer *io, int i, err *e) ATH_MUST_USE;
/* Norm weights, biases, statistics and gradients of parameters. */
dtype real_dt(const op_infer *io);
void set_out(op_infer *io, int i, dtype dt, int64_t rows, int64_t cols);
void out_like(op_infer *io, int i, int in);
double elements(const tensor *t);
/* Input i, which is added to what becomes of input 0. */
status expect_summand(const op_infer *io, int i, err *e) ATH_MUST_USE;
/* FLOPs of an op that does `fwd` and `bwd` operations per element of input 0. */
void count_elementwise(op_infer *io, double fwd, double bwd);
/* Input i, a matrix of rows of weights: in the format of the activations, or as a file stores it
 * where nothing asks for its gradient. */
status expect_matrix(const op_infer *io, int i, err *e) ATH_MUST_USE;

#endif
