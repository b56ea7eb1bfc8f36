/* The bias of attention scores by distance, and its gradient.
 *
 * A row of scores has one key and queries in the lanes, so the rows of the bias that a vector needs follow each other.
 * Of each head these rows are a line [W + 2 VW]: in front the first row VW times, at the end the last one, so that
 * lanes beyond the rows read these. A line of the same form takes the gradient: one for each sequence and head, so
 * that one task adds to it, in its order of blocks; its ends are folded at last. */
#ifndef OP_CPU_ATTENTION_BIAS_H
#define OP_CPU_ATTENTION_BIAS_H

#include "op/cpu/attention_tile.h"

enum { BIAS = 6 }; /* the input of ATTENTION */

V_INLINE int64_t att_line_floats(int64_t rows) {
    return rows ? att_round(rows + 2 * VW, 16) : 0;
}

/* Where the lanes begin of which the first has a query at that position, for key j. */
V_INLINE int64_t att_line_at(const op_call *c, int64_t position, int64_t j) {
    int64_t x = position - j + c->attr->attention.bias_zero;
    return att_min(att_max(x, -VW), c->in[BIAS].rows) + VW;
}

/* The lines of all heads, times scale. */
static inline void att_make_lines(const op_call *c, float *lines, float scale) {
    const tensor *t = &c->in[BIAS];
    int64_t W = t->rows, floats = att_line_floats(W);
    float row[VW];
    for (int64_t w = 0; w < W; w++) FOR_VECTORS(t->cols, h, n) {
            v_store(row, scale * row_get(t, w, h, n, t->dt));
            for (int64_t i = 0; i < n && i < VW; i++) lines[(h + i) * floats + VW + w] = row[i];
        }
    for (int64_t h = 0; h < t->cols; h++) {
        float *line = lines + h * floats;
        for (int64_t i = 0; i < VW; i++) line[i] = line[VW], line[VW + W + i] = line[VW + W - 1];
    }
}

/* Gradient of rows [first, end) of the bias: lines of all sequences, in their order. */
static inline void att_store_line_rows(const op_call *c, const float *lines, int64_t first,
                                       int64_t end) {
    const tensor *t = &c->din[BIAS];
    int64_t W = c->in[BIAS].rows, H = c->in[BIAS].cols, floats = att_line_floats(W);
    float row[VW];
    for (int64_t w = first; w < end; w++) FOR_VECTORS(H, h, n) {
            for (int64_t i = 0; i < VW; i++) row[i] = 0.0f;
            for (int64_t b = 0; b < c->attr->attention.B; b++)
                for (int64_t i = 0; i < n && i < VW; i++) {
                    const float *line = lines + (b * H + h + i) * floats;
                    row[i] += line[VW + w];
                    for (int64_t k = 0; k < VW && w == 0; k++) row[i] += line[k];
                    for (int64_t k = 0; k < VW && w == W - 1; k++) row[i] += line[VW + W + k];
                }
            row_put(t, w, h, v_load(row), n, op_accumulates(c, BIAS), t->dt);
        }
}

#endif
