/* EMBED: rows of a table. The gradient is partitioned by columns: a thread owns some columns of the
 * whole table and walks all rows in order, so every sum has the order of n. */
#include "op/embed.h"

#include "op/cpu/ops.h"
#include "op/cpu/rows.h"
#include "op/cpu/parts.h"

static void embed_fwd(const op_call *c) {
    const tensor *table = &c->in[0], *y = &c->out[0];
    int64_t bytes = v_element_bytes(y->dt), row_bytes = dtype_span_bytes(table->dt, table->ld);
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t n = 0; n < y->rows; n++) {
        int64_t id = embed_row(c, n);
        const char *row = (const char *)table->data + (id < 0 ? 0 : id * row_bytes);
        char *to = (char *)y->data + n * y->ld * bytes;
        if (id < 0) memset(to, 0, (size_t)(y->cols * bytes));
#if CPU_STORED
        else if (table->dt != y->dt)
            CPU_FN(stored_read)((float *)y->data + n * y->ld, row, y->cols, table->dt);
#endif
        else
            memcpy(to, row, (size_t)(y->cols * bytes));
    }
}

V_INLINE void add_columns(const op_call *c, int64_t j0, int64_t j1, dtype dt) {
    const tensor *dy = &c->dout[0], *dt_table = &c->din[0];
    float *to = dt_table->data;
    if (!op_accumulates(c, 0))
        for (int64_t v = 0; v < dt_table->rows; v++)
            memset(to + v * dt_table->ld + j0, 0, (size_t)(j1 - j0) * sizeof(float));
    for (int64_t n = 0; n < dy->rows; n++) {
        int64_t id = embed_grad_row(c, n);
        if (id < 0) continue;
        FOR_VECTORS(j1 - j0, j, left) {
            vf v = row_get(dy, n, j0 + j, left, dt);
            row_put(dt_table, id, j0 + j, v, left, true, DT_F32);
        }
    }
}

static void embed_bwd_weight(const op_call *c) {
    enum { GRAIN = 32 }; /* columns: two cache lines of f32 */
    int64_t grains = (c->dout[0].cols + GRAIN - 1) / GRAIN, cols = c->dout[0].cols;
    int threads = loop_threads(c, cols * (c->dout[0].rows + c->din[0].rows));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < threads; t++) {
        int64_t j0 = grains * t / threads * GRAIN, j1 = grains * (t + 1) / threads * GRAIN;
        j1 = j1 < cols ? j1 : cols;
        if (j0 >= j1) continue;
        WITH_DTYPE(c->dout[0].dt, add_columns, c, j0, j1);
    }
}

const op_impl CPU_FN(cpu_embed) = {embed_fwd, NULL, embed_bwd_weight, NULL};
