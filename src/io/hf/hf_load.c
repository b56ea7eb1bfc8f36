#include "io/hf/hf_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows of new tokens ---- */

static int64_t cols_of(const hf_weight *w) {
    if (w->four.bits) return w->four.cols;
    return w->v->rank == 1 ? 1 : w->v->dims[1];
}

/* The mean of the rows of a matrix [rows,cols], or of the elements of a vector (cols 1), summed in
 * double in the order of the file. */
static status read_mean(const hf_weight *w, int64_t cols, float *mean, err *e) {
    double *sum = xcalloc((size_t)cols, sizeof *sum);
    float *row = xmalloc((size_t)cols * sizeof *row);
    int64_t rows = hf_weight_elems(w) / cols;
    status st = ST_OK;
    for (int64_t i = 0; i < rows && st == ST_OK; i++) {
        st = hf_weight_read(w, i * cols, cols, row, DT_F32, e);
        for (int64_t k = 0; k < cols && st == ST_OK; k++) sum[k] += (double)row[k];
    }
    for (int64_t k = 0; k < cols; k++) mean[k] = (float)(sum[k] / (double)rows);
    free(sum);
    free(row);
    return st;
}

status hf_add_means(const param_store *s, hf_weight *list, arena *a, err *e) {
    const param_store *whole = param_store_whole(s);
    for (int i = 0; i < param_count(whole); i++) {
        const param *p = param_at(whole, i);
        if (!hf_is_of_tokens(p) || !list[i].v) continue;
        int64_t cols = p->rank == 1 ? 1 : param_whole_cols(p);
        float *mean = ARENA_ARRAY(a, float, (int)cols);
        TRY(read_mean(&list[i], cols, mean, e));
        list[i].mean = mean;
    }
    return ST_OK;
}

/* As hf_weight_read in fp32, also behind the last element that is stored. */
static status read_grown(const hf_weight *w, int64_t first, int64_t n, float *dst, err *e) {
    int64_t left = hf_weight_elems(w) - first, cols = cols_of(w);
    int64_t stored = !w->mean || n < left ? n : left > 0 ? left : 0;
    for (int64_t i = stored; i < n; i++) dst[i] = w->mean[(first + i) % cols];
    return stored ? hf_weight_read(w, first, stored, dst, DT_F32, e) : ST_OK;
}

/* ---- loading ---- */

typedef struct filling {
    const hf_weight *w;
    float *host; /* element `first` of the array, and those that follow */
    int64_t first;
} filling;

static status fill_run(void *ctx, const held_run *r, err *e) {
    const filling *f = ctx;
    float *dst = f->host + (r->held - f->first);
    if (r->step == 1) return read_grown(f->w, r->file, r->n, dst, e);
    float piece[1024];
    for (int64_t done = 0; done < r->n;) {
        int64_t take = r->n - done < ARRAY_LEN(piece) ? r->n - done : ARRAY_LEN(piece);
        TRY(read_grown(f->w, r->file + done, take, piece, e));
        for (int64_t k = 0; k < take; k++) dst[(done + k) * r->step] = piece[k];
        done += take;
    }
    return ST_OK;
}

status hf_read_span(const hf_weight *w, const param *p, const vec_span *span, hf_order order,
                    float *host, int64_t first, err *e) {
    filling f = {w, host, first};
    return held_walk(p, span, order, fill_run, &f, e);
}

status hf_fill_held(const held_array *a, int i, const hf_weight *w, hf_order order, dev_room *room,
                    err *e) {
    held_piece h = held_piece_of(a, i);
    if (h.n == 0) return ST_OK;
    float *host = held_borrow(a, &h, room);
    for (int k = 0; k < h.n_spans; k++)
        TRY(hf_read_span(w, param_at(a->store, i), &h.span[k], order, host, h.first, e));
    return held_put_back(a, &h, host, e);
}

status hf_fill_masters(const param_store *s, const hf_weight *list, int n, hf_order order, err *e) {
    held_array masters = held_masters(s);
    dev_room room = {0};
    status st = ST_OK;
    for (int i = 0; i < param_count(s) && st == ST_OK; i++) {
        int k = param_number_in_whole(s, i);
        if (k < n && list[k].v) st = hf_fill_held(&masters, i, &list[k], order, &room, e);
    }
    dev_room_free(&room);
    if (st == ST_OK) param_refresh_work(s);
    return st;
}

static status load(const param_store *s, const char *path, hf_differs how, err *e) {
    st_reader *r;
    TRY(st_open(&r, path, e));
    arena *a = arena_new("weights of files");
    int n = param_count(param_store_whole(s));
    hf_weight *list = ARENA_ARRAY(a, hf_weight, n);
    status st = hf_find_weights(s, r, how, list, e);
    if (st == ST_OK && how.vocab) st = hf_add_means(s, list, a, e);
    if (st == ST_OK) st = hf_fill_masters(s, list, n, hf_order_of(path), e);
    arena_free(a);
    st_close(r);
    return st;
}

status hf_load_grown(const param_store *s, const char *path, int64_t rows, err *e) {
    return load(s, path, (hf_differs){.vocab = rows}, e);
}

status hf_load_body(const param_store *s, const char *path, int64_t rows, err *e) {
    return load(s, path, (hf_differs){.vocab = rows, .new_head = true}, e);
}

status hf_load_weights(const param_store *s, const char *path, err *e) {
    return load(s, path, (hf_differs){0}, e);
}
