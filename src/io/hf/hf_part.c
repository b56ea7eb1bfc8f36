#include "io/hf/hf_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_patch.h"
#include "io/hf/hf_load.h"
#include "model/family.h"

dtype hf_file_dtype(const param *p, dtype dt) {
    bool narrow = dt == DT_F16 || dt == DT_BF16;
    return narrow && p->part == PART_ROUTER_BIAS ? DT_F32 : dt;
}

void hf_shape_taps(const param *p, st_tensor *t) {
    if (!p->taps) return;
    t->rank = 3;
    t->dims[0] /= p->taps, t->dims[1] = 1, t->dims[2] = p->taps;
}

const int64_t *hf_file_rows(arena *a, const param *p, hf_order order) {
    if (!held_is_reordered(p, order)) return NULL;
    int64_t n = held_rows(p), *from = ARENA_ARRAY(a, int64_t, (int)n);
    for (int64_t i = 0; i < n; i++) from[param_file_row(p, i)] = i;
    return from;
}

int hf_declared(const param_store *s) {
    const param_store *whole = param_store_whole(s);
    int n = 0;
    for (int i = 0; i < param_count(whole); i++) n += !param_at(whole, i)->frozen;
    return n;
}

st_tensor *hf_declare(arena *a, const param_store *s, const char *prefix, dtype dt,
                      hf_order order) {
    const param_store *whole = param_store_whole(s);
    st_tensor *list = ARENA_ARRAY(a, st_tensor, hf_declared(s)), *t = list;
    for (int i = 0; i < param_count(whole); i++) {
        const param *p = param_at(whole, i);
        if (p->frozen) continue;
        bool flip = held_is_transposed(p, order);
        int64_t rows = param_whole_rows(p), cols = param_whole_cols(p);
        *t++ = (st_tensor){.name = *prefix ? arena_printf(a, "%s%s", prefix, p->name) : p->name,
                           .dt = hf_file_dtype(p, dt),
                           .rank = p->rank,
                           .dims = {p->rank == 1 || flip ? cols : rows, p->rank == 1 ? 0
                                                                        : flip       ? rows
                                                                                     : cols}};
        hf_shape_taps(p, &t[-1]);
    }
    return list;
}

typedef struct writing {
    file_patch *out;
    uint64_t at; /* of the tensor's first byte in the file */
    dtype dt;
    const float *host; /* element `first` of the array, and those that follow */
    int64_t first;
} writing;

static void convert(const writing *w, const float *src, int64_t step, int64_t n, void *dst) {
    if (step == 1) {
        dtype_convert(dst, w->dt, src, DT_F32, n);
        return;
    }
    float line[512];
    for (int64_t done = 0; done < n;) {
        int64_t take = n - done < ARRAY_LEN(line) ? n - done : ARRAY_LEN(line);
        for (int64_t k = 0; k < take; k++) line[k] = src[(done + k) * step];
        dtype_convert((char *)dst + (size_t)done * dtype_bytes(w->dt), w->dt, line, DT_F32, take);
        done += take;
    }
}

static status write_run(void *ctx, const held_run *r, err *e) {
    const writing *w = ctx;
    const float *src = w->host + (r->held - w->first);
    int64_t size = (int64_t)dtype_bytes(w->dt), most = FILE_PATCH_BYTES / size;
    uint64_t at = w->at + (uint64_t)(r->file * size);
    if (w->dt == DT_F32 && r->step == 1)
        return file_patch_write(w->out, at, src, (size_t)(r->n * size), e);
    for (int64_t done = 0; done < r->n;) {
        int64_t take = r->n - done < most ? r->n - done : most;
        void *room;
        TRY(file_patch_room(w->out, at + (uint64_t)(done * size), (size_t)(take * size), &room, e));
        convert(w, src + done * r->step, r->step, take, room);
        done += take;
    }
    return ST_OK;
}

static bool counts_any(const held_piece *h) {
    bool any = false;
    for (int k = 0; k < h->n_spans; k++) any = any || h->span[k].counted;
    return any;
}

static status write_param(file_patch *out, const held_array *a, int i, uint64_t at, dtype dt,
                          hf_order order, dev_room *room, err *e) {
    held_piece h = held_piece_of(a, i);
    if (!counts_any(&h)) return ST_OK;
    writing w = {out, at, dt, NULL, h.first};
    TRY(held_look(a, &h, room, &w.host, e));
    for (int k = 0; k < h.n_spans; k++)
        if (h.span[k].counted)
            TRY(held_walk(param_at(a->store, i), &h.span[k], order, write_run, &w, e));
    return ST_OK;
}

/* k: number in the whole model. */
static bool is_written(const held_array *a, int k) {
    return a->only ? k == a->only - 1 : !param_at(param_store_whole(a->store), k)->frozen;
}

/* `declared` and first_byte are of the array's first tensor. */
static status write_array(file_patch *out, const held_array *a, const st_tensor *declared,
                          const uint64_t *first_byte, hf_order order, err *e) {
    dev_room room = {0};
    status st = ST_OK;
    for (int i = 0, k = 0, t = 0; i < param_count(a->store) && st == ST_OK; i++) {
        for (; k < param_number_in_whole(a->store, i); k++) t += is_written(a, k);
        if (is_written(a, k))
            st = write_param(out, a, i, first_byte[t], declared[t].dt, order, &room, e);
    }
    dev_room_free(&room);
    return st;
}

static int64_t tensors_of(const held_array *a) {
    return a->only ? 1 : hf_declared(a->store);
}

static status write_arrays(file_patch *out, const st_tensor *declared, const uint64_t *first_byte,
                           const held_array *arrays, int n, hf_order order, err *e) {
    int64_t before = 0;
    for (int i = 0; i < n; i++) {
        TRY(write_array(out, &arrays[i], declared + before, first_byte + before, order, e));
        before += tensors_of(&arrays[i]);
    }
    return ST_OK;
}

status hf_write_part(const char *path, const st_tensor *declared, const held_array *arrays, int n,
                     hf_order order, err *e) {
    int64_t tensors = 0;
    for (int i = 0; i < n; i++) tensors += tensors_of(&arrays[i]);
    uint64_t *first_byte = xmalloc(sizeof *first_byte * (size_t)(tensors + 1));
    st_locate(declared, tensors, first_byte);
    file_patch out;
    status st = file_patch_open(&out, path, e);
    if (st == ST_OK) {
        st = write_arrays(&out, declared, first_byte, arrays, n, order, e);
        status closed = file_patch_close(&out, st == ST_OK, e);
        if (st == ST_OK) st = closed;
    }
    free(first_byte);
    return st;
}

/* ---- reading ---- */

/* By its name, or without the first word of it: adapters of a model without a head lack that. A head also by the name of
 * its module in transformers, which adapters have (peft.h). */
static status find_in_array(const st_reader *r, const char *prefix, const param *p, hf_weight *w,
                            err *e) {
    int64_t elems = param_whole_elems(p);
    char name[512];
    const char *dot = strchr(p->name, '.');
    snprintf(name, sizeof name, "%s%s", prefix, dot ? dot + 1 : p->name);
    *w = (hf_weight){.v = st_find(r, name)};
    snprintf(name, sizeof name, "%slm_head.weight", prefix);
    if (p->part == PART_HEAD && p->rank == 2 && !w->v) w->v = st_find(r, name);
    snprintf(name, sizeof name, "%s%s", prefix, p->name);
    if (st_find(r, name) || !w->v) TRY(st_require(r, name, &w->v, e));
    if (w->v->numel == elems) return ST_OK;
    err_set(e, ST_FORMAT, "tensor %s has %ld elements, the model has %ld", name, (long)w->v->numel,
            (long)elems);
    return err_where(e, "%s", w->v->path);
}

status hf_read_array(const held_array *a, const st_reader *r, const char *prefix, hf_order order,
                     err *e) {
    const param_store *whole = param_store_whole(a->store);
    dev_room room = {0};
    status st = ST_OK;
    for (int k = 0, own = 0; k < param_count(whole) && st == ST_OK; k++) {
        hf_weight w;
        bool frozen = param_at(whole, k)->frozen;
        if (!frozen) st = find_in_array(r, prefix, param_at(whole, k), &w, e);
        if (own == param_count(a->store) || param_number_in_whole(a->store, own) != k) continue;
        if (st == ST_OK && !frozen) st = hf_fill_held(a, own, &w, order, &room, e);
        own++;
    }
    dev_room_free(&room);
    return st;
}
