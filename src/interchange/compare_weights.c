#include "interchange/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_ELEMS = 1 << 18 };

/* How far the numbers of a row may be from what they were: a share of their size (both as root mean
 * squares), and what fp16, in which numbers or the factors of blocks are stored, cannot tell from
 * zero. The bounds hold for the worst numbers: one of a block is large, and all others lose as much
 * as they can. That of F32 is for sums such as 1 + weight. */
typedef struct bound {
    double share, least;
} bound;

static bound bound_of(dtype dt) {
    switch (dt) {
        case DT_F32:
        case DT_F64: return (bound){1e-6, 2e-7};
        case DT_F16: return (bound){1e-3, 6e-8};
        case DT_BF16: return (bound){4e-3, 2e-7};
        case DT_Q8_0: return (bound){0.025, 8e-6};
        default: return (bound){0.4, 8e-6};
    }
}

typedef struct sums {
    double size2, error2;
    int64_t n;
} sums;

static void add_up(sums *s, const float *x, const float *y, int64_t n) {
    s->n += n;
    if (memcmp(x, y, sizeof *x * (size_t)n) == 0) return; /* their size is not needed */
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - y[i];
        s->size2 += (double)x[i] * x[i];
        s->error2 += d * d;
    }
}

static status judge(const sums *s, bound b, const char *name, int64_t row, err *e) {
    double size = sqrt(s->size2 / (double)s->n), error = sqrt(s->error2 / (double)s->n);
    if (error <= b.share * size + b.least) return ST_OK;
    char where[32] = "";
    if (row >= 0) snprintf(where, sizeof where, "row %lld of ", (long long)row);
    err_set(e, ST_FAILED,
            "the result has other weights: the numbers of %stensor '%s' are about %.3g and differ "
            "by about %.3g",
            where, name, size, error);
    return err_where(e, "%s", name);
}

/* Blocks run along rows in memory: where a folder holds those as columns, only the whole matrix has
 * a bound. */
static status compare_tensor(const st_tensor *a, const st_tensor *b, bool whole, bound limit,
                             float *x, float *y, err *e) {
    int64_t rows = a->rank == 2 ? a->dims[0] : 1, cols = a->dims[a->rank - 1];
    sums s = {0};
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t done = 0, n; done < cols; done += n) {
            n = cols - done < BUFFER_ELEMS ? cols - done : BUFFER_ELEMS;
            TRY(a->fill(a->ctx, row * cols + done, n, x, e));
            TRY(b->fill(b->ctx, row * cols + done, n, y, e));
            add_up(&s, x, y, n);
        }
        if (whole) continue;
        TRY(judge(&s, limit, a->name, rows > 1 ? row : -1, e));
        s = (sums){0};
    }
    return whole ? judge(&s, limit, a->name, -1, e) : ST_OK;
}

static status fill_zeros(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    (void)ctx, (void)first, (void)e;
    memset(dst, 0, sizeof(float) * (size_t)n);
    return ST_OK;
}

static int embedding(const param_store *store) {
    int i = 0;
    while (param_at(store, i)->part != PART_EMBED) i++;
    return i;
}

/* What the source says of tensor r of the result. A format may want what the source leaves out: a
 * bias of zeros, or the embedding once more as the head. */
static bool counterpart(const model_source *source, const st_tensor *tensors, const param *r,
                        st_tensor *out) {
    int same = param_find(source->params, r->name);
    if (same < 0 && r->part == PART_HEAD && r->rank == 2 && source->config.tie_word_embeddings)
        same = embedding(source->params);
    if (same >= 0) *out = tensors[same], out->name = r->name;
    if (same >= 0 || !param_is_bias(r)) return same >= 0;
    *out = (st_tensor){.name = r->name, .rank = 1, .dims = {param_elems(r)}, .fill = fill_zeros};
    return true;
}

/* Every tensor of the source has one in the result, so that as many are left over as are extra. */
static status compare_names(const param_store *source, const param_store *result, err *e) {
    for (int i = 0; i < param_count(source); i++) {
        const char *name = param_at(source, i)->name;
        if (param_find(result, name) >= 0) continue;
        return err_set(e, ST_FAILED, "the result has no tensor '%s'", name);
    }
    return ST_OK;
}

static status compare_all(const model_source *source, const model_source *result, dtype dt,
                          err *e) {
    TRY(compare_names(source->params, result->params, e));
    arena *mem = arena_new("weights");
    st_tensor *a = model_source_folder_tensors(source, mem, DT_F32), from;
    st_tensor *b = model_source_folder_tensors(result, mem, DT_F32);
    float *x = xmalloc(sizeof *x * BUFFER_ELEMS), *y = xmalloc(sizeof *y * BUFFER_ELEMS);
    status st = ST_OK;
    for (int i = 0; i < param_count(result->params) && st == ST_OK; i++) {
        const param *p = param_at(result->params, i);
        bool whole = p->transposed && dtype_is_blocks(dt);
        if (!counterpart(source, a, p, &from)) {
            st = err_set(e, ST_FAILED, "the source has no tensor '%s'", p->name);
            break;
        }
        CHECK(from.rank == b[i].rank && from.dims[0] == b[i].dims[0] &&
                  (from.rank == 1 || from.dims[1] == b[i].dims[1]),
              "%s has two shapes", p->name);
        st = compare_tensor(&from, &b[i], whole, bound_of(dt), x, y, e);
    }
    free(x);
    free(y);
    arena_free(mem);
    return st;
}

status compare_weights(const model_source *source, const char *result, dtype dt, err *e) {
    model_source r;
    status st = model_source_open(&r, result, NULL, 0, e);
    if (st == ST_OK) st = compare_all(source, &r, dt, e);
    model_source_close(&r);
    return st;
}
