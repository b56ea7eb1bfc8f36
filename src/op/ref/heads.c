/* What latent attention has beside attention.
 *
 *   LATENT_KV  y = k | v; k[n,h] = kv[n,h,:D] | rope[n], v[n,h] = kv[n,h,D:]
 *              dkv[n,h] = dk[n,h,:D] | dv[n,h]; drope[n] = sum_h dk[n,h,D:]
 *   HEADWISE   y[n,h] = x[n,h] w_h^T or x[n,h] w_h, then the tail of x[n,h] or zeros */
#include "op/ref/ref.h"
#include "op/ref/stored.h"

static void latent_kv_fwd(const op_call *c) {
    const tensor *kv = &c->in[0], *rope = &c->in[1], *y = &c->out[0];
    int64_t H = c->attr->heads.heads, D = c->attr->heads.D, Dv = c->attr->heads.Dv, R = rope->cols;
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++) {
        for (int64_t h = 0; h < H; h++) {
            const STORE *from = row_of(kv, n) + h * (D + Dv);
            STORE *k = row_of(y, n) + h * (D + R), *v = row_of(y, n) + H * (D + R) + h * Dv;
            for (int64_t i = 0; i < D; i++) k[i] = from[i];
            for (int64_t i = 0; i < R; i++) k[D + i] = row_of(rope, n)[i];
            for (int64_t i = 0; i < Dv; i++) v[i] = from[D + i];
        }
    }
}

static void latent_kv_bwd(const op_call *c) {
    const tensor *dy = &c->dout[0], *dkv = &c->din[0], *drope = &c->din[1];
    int64_t H = c->attr->heads.heads, D = c->attr->heads.D, Dv = c->attr->heads.Dv;
    int64_t R = dy->cols / H - D - Dv;
    PARALLEL_FOR
    for (int64_t n = 0; n < dy->rows; n++) {
        const STORE *dk = row_of(dy, n), *dv = dk + H * (D + R);
        for (int64_t h = 0; dkv->data && h < H; h++) {
            STORE *to = row_of(dkv, n) + h * (D + Dv);
            for (int64_t i = 0; i < D; i++)
                put(to + i, load(dk[h * (D + R) + i]), op_accumulates(c, 0));
            for (int64_t i = 0; i < Dv; i++)
                put(to + D + i, load(dv[h * Dv + i]), op_accumulates(c, 0));
        }
        for (int64_t i = 0; drope->data && i < R; i++) {
            ACC sum = 0;
            for (int64_t h = 0; h < H; h++) sum += (ACC)load(dk[h * (D + R) + D + i]);
            put(row_of(drope, n) + i, sum, op_accumulates(c, 1));
        }
    }
}

const op_impl REF_IMPL(LATENT_KV) = {latent_kv_fwd, latent_kv_bwd, NULL, NULL};

/* Element i of row r of w. */
static ACC weight_at(const op_call *c, int64_t r, int64_t i) {
    const tensor *w = &c->in[1];
    if (w->dt == c->in[0].dt) return load(row_of(w, r)[i]);
    float piece[PIECE];
    int64_t block = dtype_is_listed(w->dt) ? 1 : quant_by_dtype(w->dt)->block,
            first = i / block * block;
    stored_read(w, r, first, block, piece);
    return (ACC)piece[i - first];
}

static void head_of_row(const op_call *c, int64_t n, int64_t h) {
    const op_heads *at = &c->attr->heads;
    const STORE *x = row_of(&c->in[0], n) + h * (at->in + at->tail);
    STORE *y = row_of(&c->out[0], n) + h * (at->out + at->tail);
    int64_t first = h * at->step + at->first;
    for (int64_t o = 0; o < at->out; o++) {
        ACC sum = 0;
        for (int64_t i = 0; i < at->in; i++)
            sum += (ACC)load(x[i]) *
                   (at->turned ? weight_at(c, first + i, o) : weight_at(c, first + o, i));
        y[o] = store(sum);
    }
    for (int64_t i = 0; i < at->tail; i++) y[at->out + i] = at->zero ? store(0) : x[at->in + i];
}

static void headwise_fwd(const op_call *c) {
    PARALLEL_FOR_2
    for (int64_t n = 0; n < c->in[0].rows; n++)
        for (int64_t h = 0; h < c->attr->heads.heads; h++) head_of_row(c, n, h);
}

const op_impl REF_IMPL(HEADWISE) = {headwise_fwd, NULL, NULL, NULL};
