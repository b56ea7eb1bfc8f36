/* Runs of spans (see held.h).
 *
 * Invariant: the runs of a span are disjoint and cover it.
 *
 * Reading order: block, held_walk, the three walks; held_piece_of. */
#include "io/checkpoint/held.h"

#include <stdlib.h>
#include <string.h>

/* A part of a parameter: a matrix of `width` columns whose upper left corner is at row `row`,
 * column `col` of the whole tensor. The rank holds its elements from .. from + n - 1, counted row
 * by row; the first of them is element `held` of the rank's array. */
typedef struct block {
    int64_t row, col, width;
    int64_t from, n, held;
} block;

typedef struct walk {
    const param *p;
    int64_t rows, cols; /* of the whole tensor; a vector is one column */
    held_fn fn;
    void *ctx;
} walk;

bool held_is_reordered(const param *p, hf_order order) {
    return order != HF_MEMORY && p->order != ROWS_SAME &&
           !(p->order == ROWS_PAIRS && order == HF_FILES_PAIRS);
}

bool held_is_transposed(const param *p, hf_order order) {
    return order != HF_MEMORY && p->transposed;
}

int64_t held_rows(const param *p) {
    return p->rank == 1 ? param_whole_cols(p) : param_whole_rows(p);
}

static status give(const walk *w, int64_t file, int64_t held, int64_t step, int64_t n, err *e) {
    return n > 0 ? w->fn(w->ctx, &(held_run){file, held, step, n}, e) : ST_OK;
}

/* Gives the held elements of the block's row `a`, which is row `row` of the file. */
static status give_row(const walk *w, const block *b, int64_t a, int64_t row, err *e) {
    int64_t low = a * b->width, high = low + b->width;
    if (low < b->from) low = b->from;
    if (high > b->from + b->n) high = b->from + b->n;
    int64_t col = b->col + low - a * b->width;
    return give(w, row * w->cols + col, b->held + low - b->from, 1, high - low, e);
}

static status walk_same(const walk *w, const block *b, err *e) {
    if (b->width == w->cols) return give(w, b->row * w->cols + b->from, b->held, 1, b->n, e);
    for (int64_t a = b->from / b->width; a * b->width < b->from + b->n; a++)
        TRY(give_row(w, b, a, b->row + a, e));
    return ST_OK;
}

/* In the order of the file's rows, so that a parameter that is not sharded is written without
 * seeking. */
static status walk_reordered(const walk *w, const block *b, err *e) {
    int64_t *ours = xmalloc(sizeof *ours * (size_t)w->rows);
    for (int64_t i = 0; i < w->rows; i++) ours[param_file_row(w->p, i)] = i;
    int64_t first = b->from / b->width, last = (b->from + b->n - 1) / b->width;
    status st = ST_OK;
    for (int64_t i = 0; i < w->rows && st == ST_OK; i++) {
        int64_t a = ours[i] - b->row;
        if (a >= first && a <= last) st = give_row(w, b, a, i, e);
    }
    free(ours);
    return st;
}

/* First row of the block whose element in column c is the block's element `at` or a later one. */
static int64_t row_from(const block *b, int64_t at, int64_t c) {
    return at > c ? (at - c + b->width - 1) / b->width : 0;
}

/* A column of the block is a piece of one row of the file. */
static status walk_transposed(const walk *w, const block *b, err *e) {
    for (int64_t c = 0; c < b->width; c++) {
        int64_t low = row_from(b, b->from, c), high = row_from(b, b->from + b->n, c);
        TRY(give(w, (b->col + c) * w->rows + b->row + low, b->held + low * b->width + c - b->from,
                 b->width, high - low, e));
    }
    return ST_OK;
}

status held_walk(const param *p, const vec_span *k, hf_order order, held_fn fn, void *ctx, err *e) {
    walk w = {.p = p,
              .rows = held_rows(p),
              .cols = p->rank == 1 ? 1 : param_whole_cols(p),
              .fn = fn,
              .ctx = ctx};
    status (*by)(const walk *, const block *, err *) =
        held_is_transposed(p, order)  ? walk_transposed
        : held_is_reordered(p, order) ? walk_reordered
                                      : walk_same;
    if (k->run > 0 && k->run < w.cols && k->stride == w.cols) { /* columns */
        block b = {k->index / w.cols, k->index % w.cols, k->run, k->skip, k->n, k->at};
        return by(&w, &b, e);
    }
    for (int64_t done = 0, most; done < k->n; done += most) {
        int64_t j = k->skip + done;
        most = k->run > 0 ? k->run - j % k->run : k->n;
        if (most > k->n - done) most = k->n - done;
        block b = {0, 0, w.cols, vec_whole_index(k, done), most, k->at + done};
        TRY(by(&w, &b, e));
    }
    return ST_OK;
}

/* ---- arrays ---- */

held_array held_masters(const param_store *s) {
    return (held_array){.store = s,
                        .first = param_master(s),
                        .dev = param_device(s),
                        .file = param_file(s),
                        .number = OFFLOAD_MASTERS};
}

held_array held_states(const param_store *s, void *first, dtype dt) {
    return (held_array){
        .store = s, .first = first, .dt = dt, .is_state = true, .dev = param_device(s)};
}

held_piece held_piece_of(const held_array *a, int i) {
    param_piece k = param_piece_of(a->store, param_at(a->store, i)->unit);
    held_piece h = {0};
    for (int j = 0; j < k.spans->n; j++) {
        const vec_span *s = &k.spans->item[j];
        if (s->owner != i) continue;
        if (!h.n_spans++) h.span = s, h.first = s->at;
        CHECK(s == h.span + h.n_spans - 1 && s->at == h.first + h.n, "%s lies scattered",
              param_at(a->store, i)->name);
        h.n += s->n;
    }
    /* of the first element of the piece of the parameter's unit, and of the parameter */
    if (h.n > 0) h.index = (a->is_state ? k.state : k.at) + h.first;
    h.in_file = a->file && (a->is_state || k.away);
    return h;
}

static size_t bytes_of(const held_array *a, const held_piece *h) {
    return dtype_bytes(a->dt) * (size_t)h->n;
}

static char *place_of(const held_array *a, const held_piece *h) {
    return (char *)a->first + (size_t)h->index * dtype_bytes(a->dt);
}

/* Memory of the host for the piece, in floats. */
static float *room_for(const held_piece *h, dev_room *room) {
    size_t bytes = sizeof(float) * (size_t)h->n;
    if (room->bytes < bytes) {
        dev_room_free(room);
        *room = (dev_room){xmalloc(bytes), bytes};
    }
    return room->host;
}

/* Whether what the host sees lies in the room, whatever the device. */
static bool needs_room(const held_array *a, const held_piece *h) {
    return h->in_file || a->dt != DT_F32;
}

/* From the last on, since `from` may be where `to` is. */
static void widen(float *to, const void *from, int64_t n) {
    for (int64_t i = n - 1; i >= 0; i--) {
        uint16_t x;
        memcpy(&x, (const char *)from + 2 * i, sizeof x);
        float v = bf16_to_f32(x);
        memcpy(to + i, &v, sizeof v);
    }
}

status held_look(const held_array *a, const held_piece *h, dev_room *room, const float **host,
                 err *e) {
    float *to = needs_room(a, h) ? room_for(h, room) : NULL;
    const void *from = to;
    if (h->in_file)
        TRY(offload_read(a->file, a->number, h->index, to, h->n, e));
    else
        from = a->dev ? dev_look(a->dev, place_of(a, h), bytes_of(a, h), room) : place_of(a, h);
    if (a->dt != DT_F32) widen(to, from, h->n);
    *host = a->dt != DT_F32 ? to : from;
    return ST_OK;
}

float *held_borrow(const held_array *a, const held_piece *h, dev_room *room) {
    if (needs_room(a, h)) return room_for(h, room);
    void *at = place_of(a, h);
    return a->dev ? dev_borrow(a->dev, at, bytes_of(a, h), false, room) : at;
}

/* To the nearest: what was stored in bf16 comes back as it was. */
static status put_narrow(const held_array *a, const held_piece *h, const float *host, err *e) {
    uint16_t *stored = xmalloc(bytes_of(a, h));
    status st = ST_OK;
    dtype_convert(stored, a->dt, host, DT_F32, h->n);
    if (h->in_file)
        st = offload_write(a->file, a->number, h->index, stored, h->n, e);
    else
        dev_write(a->dev, place_of(a, h), stored, bytes_of(a, h));
    free(stored);
    return st;
}

status held_put_back(const held_array *a, const held_piece *h, const float *host, err *e) {
    if (a->dt != DT_F32) return put_narrow(a, h, host, e);
    if (h->in_file) return offload_write(a->file, a->number, h->index, host, h->n, e);
    if (a->dev) dev_put_back(a->dev, place_of(a, h), host, bytes_of(a, h));
    return ST_OK;
}
