/* Parts of files (see hf_part.h).
 *
 * Parameters are walked in the file's order, so what is whole is written from the beginning to the
 * end. */
#include "io/hf/hf_part.h"

#include <stdlib.h>

#include "base/file_patch.h"

st_tensor *hf_declare(arena *a, const param_store *s, const char *prefix, dtype dt,
                      hf_order order) {
    const param_store *whole = param_store_whole(s);
    st_tensor *list = ARENA_ARRAY(a, st_tensor, param_count(whole));
    for (int i = 0; i < param_count(whole); i++) {
        const param *p = param_at(whole, i);
        bool flip = held_is_transposed(p, order);
        int64_t rows = param_whole_rows(p), cols = param_whole_cols(p);
        list[i] = (st_tensor){.name = *prefix ? arena_printf(a, "%s%s", prefix, p->name) : p->name,
                              .dt = dt,
                              .rank = p->rank,
                              .dims = {p->rank == 1 || flip ? cols : rows, p->rank == 1 ? 0
                                                                           : flip       ? rows
                                                                                        : cols}};
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
    writing w = {out, at, dt, held_look(a, &h, room), h.first};
    for (int k = 0; k < h.n_spans; k++)
        if (h.span[k].counted)
            TRY(held_walk(param_at(a->store, i), &h.span[k], order, write_run, &w, e));
    return ST_OK;
}

/* `declared` and first_byte are of the array's first tensor. */
static status write_array(file_patch *out, const held_array *a, const st_tensor *declared,
                          const uint64_t *first_byte, hf_order order, err *e) {
    dev_room room = {0};
    status st = ST_OK;
    for (int i = 0; i < param_count(a->store) && st == ST_OK; i++) {
        int k = param_number_in_whole(a->store, i);
        st = write_param(out, a, i, first_byte[k], declared[k].dt, order, &room, e);
    }
    dev_room_free(&room);
    return st;
}

static int64_t tensors_of(const held_array *a) {
    return param_count(param_store_whole(a->store));
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
