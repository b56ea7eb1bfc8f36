/* What the trainer does to whole flat arrays of parameters and gradients: initial values, optimizer
 * update, norm, digest. Each is bound by memory, and is one parallel region over all tensors.
 *
 * The tensors of a flat array are spans, cut into blocks of fixed size. Threads share the blocks,
 * and the sums of blocks are added in order: the same bits with any number of threads.
 *
 * A rank may hold a part of a tensor (some rows, or some columns of every row), and of that part a
 * range. A span says where its elements lie in the whole tensor, so initial values, updates and
 * digests of all spans of a tensor are those of the whole, however it is cut.
 *
 * All run on the device in the order of calls, and arrays are in its memory. Calls that return a
 * result wait for it. The others may return before they have run: spans and arrays of owners must
 * stay as they are until dev_sync. */
#ifndef OP_VECOPS_H
#define OP_VECOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "dev/dev.h"
#include "op/fixed.h"
#include "op/narrow.h"

enum { VEC_BLOCK = 1 << 14 }; /* elements; the last block of a span is shorter */

typedef struct vec_span {
    int64_t at, n; /* elements at .. at + n - 1 of every flat array */
    int32_t owner; /* its index in arrays of owners: vec_rule, decay */
    uint64_t name; /* for digests: hash of the whole tensor's name */
    /* Element i is element j = skip + i of the part, and vec_whole_index of the whole tensor:
     * index + j / run * stride + j % run. Columns c .. c + run - 1 of a matrix with `stride`
     * columns are a part with index c. run 0: one run, whole index = index + j. */
    int64_t index, run, stride, skip;
    dtype copy_dt;       /* of its rounded copy: bf16 or f16; f32: it has none */
    bool counted;        /* digests and norms count it: false for all but one of several replicas */
    int64_t first_block; /* number of blocks in the spans before it; set by vec_spans_index */
} vec_span;

static inline int64_t vec_whole_index(const vec_span *s, int64_t i) {
    int64_t j = s->skip + i;
    return s->run > 0 ? s->index + j / s->run * s->stride + j % s->run : s->index + j;
}

typedef struct vec_spans {
    vec_span *item;
    int n;
    int64_t elems, blocks; /* set by vec_spans_index */
} vec_spans;

/* Sets the members that follow from n of the items: call it when these are known. */
void vec_spans_index(vec_spans *s);

/* The arithmetic of optimizers that treat each element alone: X(ID, name), whose kernel is
 * op/cpu/update_NAME.c. With g = grad * grad_scale:
 *
 * ADAMW, with decoupled decay (Loshchilov & Hutter 2019); states m, v:
 *   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *   p = p - lr * weight_decay * p - lr * (m / correction1) / (sqrt(v / correction2) + eps)
 * where correction_i = 1 - beta_i^step. 16 bytes read and 12 (16-bit copy: 14) written per element;
 * with narrow states 12 and 8 (10). Parameters move by m and v as they are before these are rounded. */
#define VEC_UPDATES(X) X(ADAMW, adamw)

#define VEC_UPDATE_KIND(ID, name) VEC_##ID,
typedef enum vec_update_kind { VEC_UPDATES(VEC_UPDATE_KIND) VEC_UPDATE_KINDS } vec_update_kind;
#undef VEC_UPDATE_KIND

enum { VEC_MAX_STATES = 4 };

typedef struct vec_update_args {
    vec_update_kind kind;
    float *param, *state[VEC_MAX_STATES];
    uint16_t *narrow[NARROW_STATES]; /* replace the states, unless NULL: bf16 (op/narrow.h) */
    uint64_t draws;                  /* of narrow ones: narrow_draws of the step */
    const float *grad;
    const int64_t *grad_fixed; /* replaces grad (op/fixed.h): each is rounded to float once */
    uint16_t *param_copy; /* new parameters of copied spans, rounded; NULL where none is copied */
    const bool *decay;    /* [owners]: weight_decay applies */
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2;
    float grad_scale;
    const float
        *grad_scale_at; /* replaces it: what vec_norm_end says; a NaN there: nothing changes */
} vec_update_args;

/* One step. digest: the vec_digest of the new parameters, made in the same pass; the call then
 * waits for it. NULL: not wanted. */
void vec_update(dev *d, const vec_spans *s, const vec_update_args *a, uint64_t *digest);
/* Sum of x^2 over counted spans, in double. */
double vec_sum_squares(dev *d, const vec_spans *s, const float *x);
/* The same of many arrays, kept on the device, so that an update can be given before the host knows
 * the sum. end returns where the device has the factor of op/clip.h, until the next begin, or NaN
 * where dev_flag is raised; NULL: it has no memory for it, and has taken note. squares waits, and
 * returns the sum. */
void vec_norm_begin(dev *d);
void vec_norm_add(dev *d, const vec_spans *s, const float *x);
const float *vec_norm_end(dev *d, double clip_norm, double grads_scale);
double vec_norm_squares(dev *d);
/* Raises dev_flag where one of n numbers is not finite. */
void vec_check_finite(dev *d, const float *x, int64_t n);
/* Sum of squares of counted elements of fixed point, exact: sum of limb[i] * 2^(32 i), in units of
 * 2^-2F with F = FIXED_GRAD_BITS. Limbs are below 2^32, so those of many ranks may be added up as
 * they are. Between vec_norm_begin and vec_norm_limbs, which waits, many arrays are summed on the device. */
enum { VEC_LIMBS = 6 };
void vec_norm_add_fixed(dev *d, const vec_spans *s, const int64_t *x);
void vec_norm_limbs(dev *d, int64_t limb[VEC_LIMBS]);
/* Of one array. */
void vec_sum_squares_fixed(dev *d, const vec_spans *s, const int64_t *x, int64_t limb[VEC_LIMBS]);
/* The number that limbs, or sums of limbs, stand for. Equal numbers give equal bits. */
double vec_limbs_value(const int64_t limb[VEC_LIMBS]);
/* Sum over the elements of counted spans of mix64(name ^ mix64(whole index ^ bits << 32)), modulo
 * 2^64. */
uint64_t vec_digest(dev *d, const vec_spans *s, const float *x);

/* Initial values of one span. */
typedef struct vec_rule {
    bool normal; /* whole element i is rng_fill_normal's, std * normal(i) */
    bool
        uniform; /* it is value + bound * (2 rng_uniform(i) - 1); neither of the two: it is value */
    float value;
    float bound;
    double std;
    double cut; /* above 0: rng_cut_normal's */
    rng_key key;
} vec_rule;

/* rule[owners], read before the call returns; copy as param_copy of vec_update_args. */
void vec_draw(dev *d, const vec_spans *s, const vec_rule *rule, float *x, uint16_t *copy);
/* Rounds the copied spans of x into `copy`. */
void vec_round(dev *d, const vec_spans *s, const float *x, uint16_t *copy);
/* to[0..n) += from[0..n), f32 or i64, which wraps. */
void vec_add(dev *d, void *to, const void *from, int64_t n, dtype dt);

#endif
