/* DROPOUT: y = x keep / (1-p) + res; the gradient draws the same keeps again. Bound by the draws. */
#include "op/cpu/draws.h"
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

enum { CHUNK = 512 }; /* elements drawn at a time; a multiple of every vector width */

V_INLINE void drop_row(const dropout_draw *draw, uint64_t counter, const tensor *from,
                       const tensor *res, const tensor *to, int64_t i, float scale, bool add,
                       dtype dt) {
    for (int64_t j0 = 0; j0 < to->cols; j0 += CHUNK) {
        float factors[CHUNK];
        int64_t cols = to->cols - j0 < CHUNK ? to->cols - j0 : CHUNK;
        draw_factors(draw, scale, counter + (uint64_t)j0, cols, factors);
        FOR_VECTORS(cols, j, n) {
            vf v = row_get(from, i, j0 + j, n, dt), f = get_upto(factors, j, n, DT_F32);
            /* A dropped infinity or NaN leaves no trace. */
            v = v_select(f == v_zero(), v_zero(), v * f);
            if (res) v += row_get(res, i, j0 + j, n, dt);
            row_put(to, i, j0 + j, v, n, add, dt);
        }
    }
}

/* res may be NULL. */
static void drop_rows(const op_call *c, const tensor *from, const tensor *res, const tensor *to,
                      bool add) {
    float p = c->attr->dropout.p, scale = dropout_scale(p);
    dropout_draw draw = dropout_open(c->run, p, c->attr->dropout.stream);
#pragma omp parallel for num_threads(loop_threads(c, to->rows * to->cols)) schedule(static)
    for (int64_t i = 0; i < to->rows; i++)
        WITH_DTYPE(to->dt, drop_row, &draw, dropout_row_counter(c, to, i), from, res, to, i, scale,
                   add);
}

static void dropout_fwd(const op_call *c) {
    const tensor *res = c->in[1].data ? &c->in[1] : NULL;
    drop_rows(c, &c->in[0], res, &c->out[0], false);
}
static void dropout_bwd(const op_call *c) {
    if (c->din[0].data) drop_rows(c, &c->dout[0], NULL, &c->din[0], op_accumulates(c, 0));
}

const op_impl CPU_FN(cpu_dropout) = {dropout_fwd, dropout_bwd, NULL, NULL};
