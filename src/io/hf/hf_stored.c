#include "io/hf/hf_stored.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

static status bad_scale(const st_view *v, const char *what, err *e) {
    err_set(e, ST_FORMAT, "tensor %s is stored as %s %s", v->name, v->format, what);
    err_hint(
        e, "fp8 is read as E4M3 with F32, BF16 or F16 factors of the matrix, of rows or of blocks");
    return err_where(e, "%s", v->path);
}

static status bad_factor(const st_view *s, int64_t i, double x, err *e) {
    err_set(e, ST_FORMAT, "tensor %s has the factor %g in row %lld", s->name, x,
            (long long)(s->rank == 2 ? i / s->dims[1] : i));
    err_hint(e, "a factor is a finite number that is not negative: fetch the file again");
    return err_where(e, "%s", s->path);
}

/* How many of n elements share a factor, where there are so many factors: all of them, or a power of two, of which no two
 * give the same number of blocks unless that is 1. */
static bool find_block(int64_t n, int64_t factors, int64_t *block) {
    *block = n;
    if (factors == 1) return true;
    for (*block = 1; *block < n; *block *= 2)
        if ((n + *block - 1) / *block == factors) return true;
    return false;
}

/* One factor for the matrix, one for each row, or one for each block. */
static bool fit_grid(const st_view *v, const st_view *s, fp8_grid *g) {
    int64_t down = s->rank > 0 ? s->dims[0] : 1, across = s->rank == 2 ? s->dims[1] : 1;
    *g = (fp8_grid){.scale = s->data, .dt = s->dt, .across = across};
    return v->rank == 2 && s->rank <= 2 &&
           (s->dt == DT_F32 || s->dt == DT_BF16 || s->dt == DT_F16) &&
           find_block(v->dims[0], down, &g->rows) && find_block(v->dims[1], across, &g->cols);
}

status hf_find_scale(const st_reader *r, hf_weight *w, err *e) {
    static const char *const ends[] = {"_scale_inv", "_scale"};
    const st_view *v = w->v;
    if (strcmp(v->format, "F8_E4M3") != 0) return ST_OK;
    for (int i = 0; i < ARRAY_LEN(ends) && !w->scale; i++) {
        char name[512];
        snprintf(name, sizeof name, "%s%s", v->name, ends[i]);
        w->scale = st_find(r, name);
    }
    const st_view *s = w->scale;
    if (!s) return bad_scale(v, "without a tensor of factors (_scale_inv or _scale)", e);
    if (!fit_grid(v, s, &w->grid))
        return bad_scale(v, "with factors of another shape or format", e);
    for (int64_t i = 0; i < s->numel; i++) {
        float x = fp8_factor(s->data, s->dt, i);
        if (!(x >= 0 && x <= FLT_MAX)) return bad_factor(s, i, (double)x, e);
    }
    return ST_OK;
}

int64_t hf_weight_elems(const hf_weight *w) {
    return w->four.bits ? w->four.rows * w->four.cols : w->v->numel;
}

status hf_weight_read(const hf_weight *w, int64_t first, int64_t n, void *dst, dtype dt, err *e) {
    int64_t elems = hf_weight_elems(w);
    if (!w->scale && !w->four.bits) return st_view_read(w->v, first, n, dst, dt, e);
    CHECK(first >= 0 && n >= 0 && first <= elems && n <= elems - first,
          "elements %lld + %lld of '%s', which has %lld", (long long)first, (long long)n,
          w->v->name, (long long)elems);
    float piece[1024];
    for (int64_t done = 0; done < n;) {
        int64_t take = n - done < ARRAY_LEN(piece) ? n - done : ARRAY_LEN(piece);
        if (w->four.bits)
            bnb_read(&w->four, first + done, take, piece);
        else
            fp8_blocks_to_f32(piece, w->v->data, &w->grid, w->v->dims[1], first + done, take);
        dtype_convert((char *)dst + (size_t)done * dtype_bytes(dt), dt, piece, DT_F32, take);
        done += take;
    }
    return ST_OK;
}
