/* Caches of pages.
 *
 *   PAGE_STORE      cache[(at[n] / page * K + h) * page + at[n] % page, :] = head h of src[n, :]
 *   PAGE_ATTENTION  s_j = scale q . k_j over the visible keys, with softcap c: c tanh(s_j / c);
 *                   o = sum_j exp(s_j - lse) v_j, by the online softmax (Milakov & Gimelshein 2018) */
#include "op/ref/ref.h"
#include "op/ref/store_row.h"

static void page_store_fwd(const op_call *c) {
    const tensor *src = &c->in[1], *out = &c->out[0];
    int64_t page = c->attr->paged.page, K = c->attr->paged.K;
    if (out->data != c->in[0].data) copy_cache(out, &c->in[0]);
    for (int64_t n = 0; n < src->rows; n++) {
        int64_t at = int_at(&c->in[2], n);
        CHECK(at < out->rows / K, "page_store: place %lld is outside the cache of %lld",
              (long long)at, (long long)(out->rows / K));
        for (int64_t h = 0; at >= 0 && h < K; h++)
            store_row(out, (at / page * K + h) * page + at % page, row_of(src, n) + h * out->cols);
    }
}

const op_impl REF_IMPL(PAGE_STORE) = {page_store_fwd, NULL, NULL, NULL};

/* Key or value of position j of a sequence for kv head k, in `piece` when the cache is narrower. */
static const STORE *paged_head(const op_call *c, const tensor *t, int64_t sequence, int64_t j,
                               int64_t k, STORE *piece) {
    int64_t page = c->attr->paged.page;
    const int32_t *pages = c->in[3].data;
    int64_t number = pages[sequence * c->in[3].ld + j / page];
    int64_t row = (number * c->attr->paged.K + k) * page + j % page;
    if (t->dt == c->in[0].dt) return row_of(t, row);
    const uint16_t *narrow = (const uint16_t *)t->data + row * t->ld;
    for (int64_t i = 0; i < t->cols; i++) piece[i] = store(f16_to_f32(narrow[i]));
    return piece;
}

static void attend_row(const op_call *c, int64_t n, int64_t h) {
    const op_attr *at = c->attr;
    const int32_t *place = (const int32_t *)c->in[4].data + n * c->in[4].ld;
    int64_t D = at->paged.D, Dv = at->paged.Dv, k = h * at->paged.K / at->paged.H;
    int64_t pos = place[1], first = at->paged.window > 0 ? pos - at->paged.window + 1 : 0;
    const STORE *q = row_of(&c->in[0], n) + h * D;
    STORE *o = row_of(&c->out[0], n) + h * Dv, piece[OP_MAX_HEAD_DIM];
    ACC acc[OP_MAX_HEAD_DIM] = {0}, sum = 0, cap = at->paged.softcap;
    REAL max = -INFINITY;
    for (int64_t j = first > 0 ? first : 0; j <= pos; j++) {
        ACC qk = (ACC)at->paged.scale * dot(q, paged_head(c, &c->in[1], place[0], j, k, piece), D);
        REAL s = (REAL)(cap > 0 ? cap * tanh(qk / cap) : qk);
        if (s > max) {
            ACC shrink = r_exp(max - s);
            sum *= shrink;
            for (int64_t d = 0; d < Dv; d++) acc[d] *= shrink;
            max = s;
        }
        ACC p = r_exp(s - max);
        sum += p;
        axpy(acc, p, paged_head(c, &c->in[2], place[0], j, k, piece), Dv);
    }
    for (int64_t d = 0; d < Dv; d++) o[d] = store(sum == 0 ? 0 : acc[d] / sum);
}

static void page_attention_fwd(const op_call *c) {
    PARALLEL_FOR_2
    for (int64_t n = 0; n < c->in[0].rows; n++)
        for (int64_t h = 0; h < c->attr->paged.H; h++) attend_row(c, n, h);
}

const op_impl REF_IMPL(PAGE_ATTENTION) = {page_attention_fwd, NULL, NULL, NULL};
