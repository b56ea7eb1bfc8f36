/* What a call of HEAD_CE, HEAD_NLL or HEAD_DISTILL asks of the one pass over the rows that a device has for them,
 * besides nll and lse, which may be absent themselves. */
#ifndef OP_HEAD_H
#define OP_HEAD_H

#include "op/op.h"

typedef struct head {
    const op_call *c;
    tensor dx, dw, dbias; /* data NULL: not wanted */
    bool add_dx;
    const tensor *dnll;    /* NULL: run->grad_scale * weight for every row */
    const tensor *teacher; /* NULL: there is none */
    /* Workspace, for which the device looks itself. */
    float *logits, *parts; /* of a chunk; parts of dx, or of dbias */
    float *whole;          /* the teacher's rows of a chunk, where it names its tokens */
    void *product;         /* of the products */
    int64_t ld;            /* of the logits */
} head;

static inline head head_forward(const op_call *c) {
    head h = {.c = c, .teacher = c->kind == OP_HEAD_DISTILL ? &c->in[4] : NULL};
    if (c->kind != OP_HEAD_NLL && c->attr->head.with_grad)
        h.dx = c->out[2], h.dw = c->din[1], h.dbias = c->din[3];
    return h;
}

/* Only HEAD_NLL has a backward. */
static inline head head_backward(const op_call *c) {
    return (head){.c = c,
                  .dx = c->din[0],
                  .dw = c->din[1],
                  .dbias = c->din[3],
                  .add_dx = op_accumulates(c, 0),
                  .dnll = &c->dout[0]};
}

static inline bool head_makes_gradients(const head *h) {
    return h->dx.data || h->dw.data || h->dbias.data;
}

/* Whether the teacher names its tokens. */
static inline bool head_names_tokens(const head *h) {
    return h->teacher && h->c->in[5].data;
}

#endif
