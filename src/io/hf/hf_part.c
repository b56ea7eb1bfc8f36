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
    const float *first;
    uint64_t at; /* of the tensor's first byte in the file */
    dtype dt;
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
    const float *src = w->first + r->held;
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

static status write_param(file_patch *out, const held_array *a, int i, uint64_t at, dtype dt,
                          hf_order order, err *e) {
    held_piece h = held_piece_of(a, i);
    writing w = {out, h.first, at, dt};
    for (int k = 0; k < h.spans->n; k++) {
        const vec_span *s = &h.spans->item[k];
        if (s->owner == i && s->counted)
            TRY(held_walk(param_at(a->store, i), s, order, write_run, &w, e));
    }
    return ST_OK;
}

/* `declared` and first_byte are of the array's first tensor. */
static status write_array(file_patch *out, const held_array *a, const st_tensor *declared,
                          const uint64_t *first_byte, hf_order order, err *e) {
    for (int i = 0; i < param_count(a->store); i++) {
        int k = param_number_in_whole(a->store, i);
        TRY(write_param(out, a, i, first_byte[k], declared[k].dt, order, e));
    }
    return ST_OK;
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
