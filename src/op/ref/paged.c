/* Caches of pages.
 *
 *   PAGE_STORE      cache[(at[n] / page * K + h) * page + at[n] % page, :] = head h of src[n, :];
 *                   turned: cache[(at[n] / page * K + h) * W + :, at[n] % page]
 *   PAGE_ATTENTION  s_j = scale q . k_j over the visible keys, with softcap c: c tanh(s_j / c);
 *                   o = sum_j exp(s_j - lse) v_j, by the online softmax (Milakov & Gimelshein 2018) */
#include "op/ref/ref.h"
#include "op/ref/store_row.h"

/* A key becomes a column of its page. */
static void store_column(const tensor *to, int64_t row, int64_t col, const STORE *src, int64_t W) {
    bool narrow = to->dt == DT_F16 && sizeof(STORE) > sizeof(uint16_t);
    for (int64_t d = 0; d < W; d++) {
        int64_t i = (row + d) * to->ld + col;
        if (narrow)
            ((uint16_t *)to->data)[i] = to_f16((float)load(src[d]));
        else
            ((STORE *)to->data)[i] = src[d];
    }
}

static void page_store_fwd(const op_call *c) {
    const tensor *src = &c->in[1], *out = &c->out[0];
    int64_t page = c->attr->paged.page, K = c->attr->paged.K, W = src->cols / K;
    int64_t places = out->rows / K / (c->attr->paged.turned ? W : page) * page;
    if (out->data != c->in[0].data) copy_cache(out, &c->in[0]);
    for (int64_t n = 0; n < src->rows; n++) {
        int64_t at = int_at(&c->in[2], n), block = at / page * K;
        CHECK(at < places, "page_store: place %lld is outside the cache of %lld", (long long)at,
              (long long)places);
        for (int64_t h = 0; at >= 0 && h < K; h++) {
            const STORE *from = row_of(src, n) + h * W;
            if (c->attr->paged.turned)
                store_column(out, (block + h) * W, at % page, from, W);
            else
                store_row(out, (block + h) * page + at % page, from);
        }
    }
}

const op_impl REF_IMPL(PAGE_STORE) = {page_store_fwd, NULL, NULL, NULL};

/* Number i of a cache as a float, or a double. */
static REAL cached(const op_call *c, const tensor *t, int64_t i) {
    if (t->dt == c->in[0].dt) return load(((const STORE *)t->data)[i]);
    return (REAL)f16_to_f32(((const uint16_t *)t->data)[i]);
}

/* The page of position j of a sequence, and kv head k of it: how many such blocks lie before. */
static int64_t block_of(const op_call *c, int64_t sequence, int64_t j, int64_t k) {
    const int32_t *pages = (const int32_t *)c->in[3].data + sequence * c->in[3].ld;
    return pages[j / c->attr->paged.page] * (int64_t)c->attr->paged.K + k;
}

static ACC score(const op_call *c, const STORE *q, int64_t block, int64_t slot) {
    int64_t D = c->attr->paged.D, ld = c->in[1].ld;
    ACC sum = 0, cap = c->attr->paged.softcap;
    for (int64_t d = 0; d < D; d++)
        sum += (ACC)load(q[d]) * (ACC)cached(c, &c->in[1], (block * D + d) * ld + slot);
    sum *= (ACC)c->attr->paged.scale;
    return cap > 0 ? cap * tanh(sum / cap) : sum;
}

/* Element d of a value; without values of their own, of the key. */
static REAL value(const op_call *c, int64_t block, int64_t slot, int64_t d) {
    const tensor *v = &c->in[2];
    if (v->data) return cached(c, v, (block * c->attr->paged.page + slot) * v->ld + d);
    return cached(c, &c->in[1], (block * c->attr->paged.D + d) * c->in[1].ld + slot);
}

static void attend_row(const op_call *c, int64_t n, int64_t h) {
    const op_attr *at = c->attr;
    const int32_t *place = (const int32_t *)c->in[4].data + n * c->in[4].ld;
    int64_t D = at->paged.D, Dv = at->paged.Dv, page = at->paged.page;
    int64_t pos = place[1], first = at->paged.window > 0 ? pos - at->paged.window + 1 : 0;
    const STORE *q = row_of(&c->in[0], n) + h * D;
    STORE *o = row_of(&c->out[0], n) + h * Dv;
    ACC acc[OP_MAX_HEAD_DIM] = {0}, sum = 0;
    REAL max = -INFINITY;
    for (int64_t j = first > 0 ? first : 0; j <= pos; j++) {
        int64_t block = block_of(c, place[0], j, h * at->paged.K / at->paged.H);
        REAL s = (REAL)score(c, q, block, j % page);
        if (s > max) {
            ACC shrink = r_exp(max - s);
            sum *= shrink;
            for (int64_t d = 0; d < Dv; d++) acc[d] *= shrink;
            max = s;
        }
        ACC p = r_exp(s - max);
        sum += p;
        for (int64_t d = 0; d < Dv; d++) acc[d] += p * (ACC)value(c, block, j % page, d);
    }
    for (int64_t d = 0; d < Dv; d++) o[d] = store(sum == 0 ? 0 : acc[d] / sum);
}

static void page_attention_fwd(const op_call *c) {
    PARALLEL_FOR_2
    for (int64_t n = 0; n < c->in[0].rows; n++)
        for (int64_t h = 0; h < c->attr->paged.H; h++) attend_row(c, n, h);
}

const op_impl REF_IMPL(PAGE_ATTENTION) = {page_attention_fwd, NULL, NULL, NULL};
