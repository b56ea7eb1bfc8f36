/* PAGE_STORE. A number is read and one written; a key becomes a column of its page, so that each of its
 * numbers goes to a line of its own. Rows go to different places, so threads share them out. */
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

/* A number that goes to a line of its own takes as long as this many numbers that are read in order. */
enum { LINE = 16 };

/* The numbers of a head as the cache has them: beyond the range of f16 the largest, but for infinity. */
V_INLINE void narrow_head(const tensor *src, int64_t n, int64_t first, int64_t W, uint16_t *to) {
    const vf most = v_set1(65504.0f), infinite = v_set1(__builtin_inff());
    FOR_VECTORS(W, j, left) {
        vf v = get_upto(src->data, n * src->ld + first + j, left, DT_F32), size = v_abs(v);
        vi too_large = (size > most) & (size < infinite);
        v = v_select(too_large, v_select(v > v_zero(), most, -most), v);
        put_upto(to, j, v, left, DT_F16);
    }
}

/* W numbers of `bytes` each become the rows [row, row + W) of a column, or columns of one row. */
V_INLINE void place_head(const tensor *to, int64_t row, int64_t col, const void *from, int64_t W,
                         bool turned, size_t bytes) {
    char *at = (char *)to->data + (size_t)(row * to->ld + col) * bytes;
    if (!turned) {
        memcpy(at, from, (size_t)W * bytes);
        return;
    }
    for (int64_t d = 0; d < W; d++)
        memcpy(at + (size_t)(d * to->ld) * bytes, (const char *)from + (size_t)d * bytes, bytes);
}

static void store_head(const op_call *c, int64_t n, int64_t h, int64_t place) {
    const tensor *src = &c->in[1], *out = &c->out[0];
    const op_paged *p = &c->attr->paged;
    int64_t W = src->cols / p->K, block = place / p->page * p->K + h, slot = place % p->page;
    int64_t row = p->turned ? block * W : block * p->page + slot, col = p->turned ? slot : 0;
    uint16_t narrow[OP_MAX_HEAD_DIM];
    const char *from = (const char *)src->data + (n * src->ld + h * W) * v_element_bytes(src->dt);
    if (src->dt == DT_F32 && out->dt == DT_F16) {
        narrow_head(src, n, h * W, W, narrow);
        from = (const char *)narrow;
    }
    if (out->dt == DT_F32)
        place_head(out, row, col, from, W, p->turned, sizeof(float));
    else
        place_head(out, row, col, from, W, p->turned, sizeof(uint16_t));
}

static void page_store_fwd(const op_call *c) {
    const tensor *src = &c->in[1], *out = &c->out[0];
    const op_paged *p = &c->attr->paged;
    int64_t W = src->cols / p->K, places = out->rows / p->K / (p->turned ? W : p->page) * p->page;
    if (out->data != c->in[0].data || W > OP_MAX_HEAD_DIM) {
        op_find_reference(OP_PAGE_STORE, src->dt)->fwd(c);
        return;
    }
    int64_t work = src->rows * src->cols * (p->turned ? LINE : 1);
#pragma omp parallel for num_threads(loop_threads(c, work)) schedule(static)
    for (int64_t n = 0; n < src->rows; n++) {
        int64_t place = ((const int32_t *)c->in[2].data)[n * c->in[2].ld];
        CHECK(place < places, "page_store: place %lld is outside the cache of %lld",
              (long long)place, (long long)places);
        for (int64_t h = 0; place >= 0 && h < p->K; h++) store_head(c, n, h, place);
    }
}

const op_impl CPU_FN(cpu_page_store) = {page_store_fwd, NULL, NULL, NULL};
