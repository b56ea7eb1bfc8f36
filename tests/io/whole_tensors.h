/* Tensors of a whole array as files have them, an element at a time: what the writers of src/io are
 * compared with, which write runs. */
#ifndef TESTS_IO_WHOLE_TENSORS_H
#define TESTS_IO_WHOLE_TENSORS_H

#include "io/hf/hf_part.h"

typedef struct whole_tensor {
    const float *data; /* [rows,cols], as in memory */
    const param *p;
    dtype dt;
    hf_order order;
    int64_t *ours; /* row of memory, by row of the file */
} whole_tensor;

static inline status whole_fill(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    const whole_tensor *t = ctx;
    (void)e;
    int64_t rows = held_rows(t->p), cols = t->p->rank == 1 ? 1 : t->p->cols;
    bool flip = held_is_transposed(t->p, t->order);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = first + i;
        int64_t row = flip ? at % rows : at / cols, col = flip ? at / rows : at % cols;
        const float *from = t->data + t->ours[row] * cols + col;
        dtype_convert((char *)dst + (size_t)i * dtype_bytes(t->dt), t->dt, from, DT_F32, 1);
    }
    return ST_OK;
}

/* For st_write, of an array that the store laid out and that has all of the model. In the arena. */
static inline st_tensor *whole_tensors(arena *a, const param_store *s, const float *flat,
                                       const char *prefix, dtype dt, hf_order order) {
    st_tensor *list = hf_declare(a, s, prefix, dt, order);
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        int64_t rows = held_rows(p);
        whole_tensor *t = ARENA_NEW(a, whole_tensor);
        *t = (whole_tensor){flat + p->offset, p, list[i].dt, order, ARENA_ARRAY(a, int64_t, rows)};
        for (int64_t r = 0; r < rows; r++)
            t->ours[held_is_reordered(p, order) ? param_file_row(p, r) : r] = r;
        list[i].fill = whole_fill;
        list[i].ctx = t;
    }
    return list;
}

#endif
