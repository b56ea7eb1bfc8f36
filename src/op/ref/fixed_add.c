/* sum += round(x * fixed_unscale * 2^FIXED_GRAD_BITS), or is that, on the first use in a step. */
#include "op/fixed.h"
#include "op/ref/ref.h"

/* Not within the limit, and not a number: what the tuned kernels make of it. */
static double limited(double x, double limit) {
    double low = x > -limit ? x : -limit;
    return low < limit ? low : limit;
}

static void fixed_add_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *sum = &c->out[0];
    bool add = op_accumulates(c, 0), beyond = false;
    double limit = (double)c->run->fixed_limit;
    REAL unscale = (REAL)c->run->fixed_unscale;
#pragma omp parallel for schedule(static) num_threads(ref_threads(c)) reduction(|| : beyond)
    for (int64_t n = 0; n < x->rows; n++) {
        for (int64_t i = 0; i < x->cols; i++) {
            double v = (double)(real_row_of(x, n)[i] * unscale);
            int64_t *to = (int64_t *)sum->data + n * sum->ld + i;
            int64_t f = (int64_t)rint(limited(v, limit) * (double)(INT64_C(1) << FIXED_GRAD_BITS));
            *to = add ? (int64_t)((uint64_t)*to + (uint64_t)f) : f;
            beyond |= !(fabs(v) <= limit);
        }
    }
    if (beyond) *c->run->fixed_overflow = true;
}

const op_impl REF_IMPL(FIXED_ADD) = {fixed_add_fwd, NULL, NULL, NULL};
