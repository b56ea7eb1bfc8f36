/* Collectives: the calls of comm that the ops are. What comes out has the same bits on every rank.
 */
#include <string.h>

#include "op/collective.h"
#include "op/ref/ref.h"

static void forward(const op_call *c) {
    op_collect(c, true, &c->in[0], c->in[0].data, c->out[0].data);
}
static void backward(const op_call *c) {
    op_collect(c, false, &c->din[0], c->dout[0].data, c->din[0].data);
}
static void same_memory(const op_call *c) {
    (void)c;
}

/* Pieces of equal size go through the workspace, a piece per rank. */
static void gather_cols_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    int64_t N = x->rows, W = op_piece_cols(c->attr);
    STORE *piece = (STORE *)c->ws + c->attr->comm.rank * N * W;
    memset(piece, 0, (size_t)(N * W) * sizeof *piece);
    for (int64_t n = 0; n < N; n++)
        memcpy(piece + n * W, row_of(x, n), (size_t)x->cols * sizeof *piece);
    op_collect(c, true, x, piece, c->ws);
    for (int r = 0; r < c->attr->comm.ranks; r++) {
        op_part part = op_part_of(y->cols, c->attr->comm.ranks, r);
        for (int64_t n = 0; n < N; n++)
            memcpy(row_of(y, n) + part.first, (const STORE *)c->ws + (r * N + n) * W,
                   (size_t)part.n * sizeof *piece);
    }
}

static void gather_cols_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] =
        io->attr->comm.ranks * io->in[0].rows * op_piece_cols(io->attr) * (int64_t)sizeof(STORE);
}

const op_impl REF_IMPL(FAN_OUT) = {same_memory, backward, NULL, NULL};
const op_impl REF_IMPL(ALL_REDUCE) = {forward, NULL, NULL, NULL};
const op_impl REF_IMPL(GATHER_ROWS) = {forward, backward, NULL, NULL};
const op_impl REF_IMPL(SCATTER_SUM) = {forward, backward, NULL, NULL};
const op_impl REF_IMPL(GATHER_COLS) = {gather_cols_fwd, NULL, NULL, gather_cols_workspace};
