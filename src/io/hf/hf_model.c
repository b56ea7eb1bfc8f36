#include "io/hf/hf_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/nf4.h"
#include "io/hf/hf_load.h"
#include "model/family.h"

static status find_all(hf_model *m, const model_config *mc, err *e) {
    arena *a = arena_new("hf check");
    param_store *s = param_store_new(a, DT_F32);
    model_declare(mc, s);
    m->n = param_count(s);
    m->weights = ARENA_ARRAY(m->a, hf_weight, m->n);
    hf_differs how = {.vocab = mc->from_vocab < mc->vocab_size ? mc->from_vocab : 0,
                      .new_head = mc->num_labels && mc->num_labels != mc->from_labels};
    status st = hf_find_weights(s, m->file, how, m->weights, e);
    if (st == ST_OK && how.vocab) st = hf_add_means(s, m->weights, m->a, e);
    arena_free(a);
    return st;
}

/* The lowest address of a tensor in any of the files. */
static const uint8_t *lowest(const st_reader *r) {
    const uint8_t *low = NULL;
    for (int64_t i = 0; i < st_count(r); i++) {
        const uint8_t *at = st_get(r, i)->data;
        if (!low || (uintptr_t)at < (uintptr_t)low) low = at;
    }
    return low;
}

status hf_model_open(hf_model *m, const char *dir, const model_config *mc, err *e) {
    *m = (hf_model){.a = arena_new("hf model"), .order = hf_order_of(dir)};
    TRY(st_open(&m->file, dir, e));
    m->base = lowest(m->file);
    return find_all(m, mc, e);
}

void hf_model_close(hf_model *m) {
    st_close(m->file);
    arena_free(m->a);
    *m = (hf_model){0};
}

/* The rows of a matrix of 8-bit floats. */
static fp8_row *make_rows(arena *a, const hf_weight *w) {
    int64_t rows = w->v->dims[0], cols = w->v->dims[1], shift = FP8_WHOLE;
    const fp8_grid *g = &w->grid;
    int64_t down = (rows + g->rows - 1) / g->rows;
    float *factor = ARENA_ARRAY(a, float, down * g->across);
    fp8_row *list = ARENA_ARRAY(a, fp8_row, rows);
    for (int64_t i = 0; i < down * g->across; i++) factor[i] = fp8_factor(g->scale, g->dt, i);
    if (g->cols < cols)
        for (shift = 0; (int64_t)1 << shift < g->cols;) shift++;
    for (int64_t r = 0; r < rows; r++)
        list[r] = (fp8_row){w->v->data + r * cols, factor + r / g->rows * g->across, shift};
    return list;
}

/* NULL: its factors do not lie as kernels want them. */
static const fp8_row *rows_of(hf_model *m, const st_view *v) {
    hf_weight w = {.v = v};
    err unread;
    if (hf_find_scale(m->file, &w, &unread) != ST_OK || !w.scale) return NULL;
    bool wide = w.grid.cols >= v->dims[1] || w.grid.cols >= (int64_t)1 << FP8_LEAST_SHIFT;
    if (!wide) return NULL;
    if (!m->fp8) m->fp8 = ARENA_ARRAY(m->a, fp8_row *, st_count(m->file));
    fp8_row **rows = &m->fp8[v - st_get(m->file, 0)];
    if (!*rows) *rows = make_rows(m->a, &w);
    return *rows;
}

static bool is_computed_with(const st_view *v) {
    bool known = v->dt == DT_F32 || v->dt == DT_BF16 || v->dt == DT_F16;
    return known && (uintptr_t)v->data % dtype_bytes(v->dt) == 0;
}

/* Files are mapped one by one, so the distance from `base` is one of addresses, not of pointers
 * into the same object. */
bool hf_model_locate(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes) {
    hf_model *m = ctx;
    if (p->rank == 1 || held_is_transposed(p, m->order) || held_is_reordered(p, m->order))
        return false;
    const st_view *v = hf_find_view(m->file, p->name);
    CHECK(v, "tensor %s was checked", p->name);
    if (v->dims[0] != param_whole_rows(p)) return false;
    const fp8_row *rows = m->fp8_stays ? rows_of(m, v) : NULL;
    if (!rows && !is_computed_with(v)) return false;
    const void *at = rows ? (const void *)rows : v->data;
    *stored = rows ? DT_FP8 : v->dt;
    *offset_bytes = (int64_t)((uintptr_t)at - (uintptr_t)m->base);
    return true;
}

status hf_model_load_rest(const hf_model *m, const param_store *s, err *e) {
    int n = param_count(param_store_whole(s));
    CHECK(n >= m->n, "%d parameters, %d were checked", n, m->n);
    status st = hf_fill_masters(s, m->weights, m->n, m->order, e);
    st_release(m->file); /* what was copied is not needed twice */
    return st;
}

/* ---- in 4 bits ---- */

/* Weights that are read at a time. */
enum { QUANT_PIECE = 1 << 18 };

static status quantise_rows(const hf_model *m, const param *p, const hf_weight *w, nf4_matrix *to,
                            float *piece, float *largest, err *e) {
    int64_t most = QUANT_PIECE / p->cols;
    most = most > 0 ? most : 1;
    for (int64_t r = 0; r < p->rows; r += most) {
        int64_t rows = p->rows - r < most ? p->rows - r : most;
        vec_span span = {.n = rows * p->cols, .index = r * p->cols};
        TRY(hf_read_span(w, p, &span, m->order, piece, 0, e));
        if (nf4_put_rows(to, r, rows, piece, largest)) continue;
        err_set(e, ST_FORMAT, "tensor %s has a weight that is no finite number", w->v->name);
        return err_where(e, "%s", w->v->path);
    }
    nf4_finish(to, largest);
    return ST_OK;
}

static status quantise(const hf_model *m, const param_store *s, int i, dev_room *room, err *e) {
    const param *p = param_at(s, i);
    const hf_weight *w = &m->weights[param_number_in_whole(s, i)];
    size_t bytes = (size_t)param_quant_bytes(p);
    size_t piece = (size_t)(p->cols > QUANT_PIECE ? p->cols : QUANT_PIECE);
    size_t blocks = (size_t)(param_elems(p) / NF4_BLOCK);
    float *floats = xmalloc((piece + blocks) * sizeof *floats);
    nf4_matrix *to = dev_borrow(param_device(s), param_quant(s, i), bytes, false, room);
    memset(to, 0, bytes);
    nf4_begin(to, p->rows, p->cols);
    bool as_stored = w->four.bits && !held_is_transposed(p, m->order) &&
                     !held_is_reordered(p, m->order) && bnb_take(&w->four, to);
    status st = as_stored ? ST_OK : quantise_rows(m, p, w, to, floats, floats + piece, e);
    dev_put_back(param_device(s), param_quant(s, i), to, bytes);
    free(floats);
    return st;
}

status hf_model_quantise(const hf_model *m, const param_store *s, err *e) {
    dev_room room = {0};
    status st = ST_OK;
    for (int i = 0; i < param_count(s) && st == ST_OK; i++) {
        if (!param_quant(s, i)) continue;
        st = quantise(m, s, i, &room, e);
        st_release(m->file); /* what was read is not needed twice */
    }
    dev_room_free(&room);
    return st;
}
