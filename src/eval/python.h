/* What tasks of lm-evaluation-harness take from Python: its random numbers, which choose examples,
 * and its literals, as templates print lists. */
#ifndef EVAL_PYTHON_H
#define EVAL_PYTHON_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

/* random.Random(seed): the Mersenne Twister (Matsumoto & Nishimura 1998), seeded by
 * init_by_array. */
typedef struct py_random {
    uint32_t mt[624];
    int index;
} py_random;
void py_random_init(py_random *r, uint64_t seed);
/* random.sample(range(n), k): k different numbers below n, 0 <= k <= n. */
void py_random_sample(py_random *r, int64_t n, int64_t k, int64_t *out);

/* ast.literal_eval of a list or tuple of texts and numbers, or of one of these; the caller owns
 * *out. ST_FORMAT: it is something else. */
status py_literal(const char *s, size_t n, json_t **out, err *e) ATH_MUST_USE;

#endif
