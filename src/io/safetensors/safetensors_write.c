/* Writes safetensors files.
 *
 * Invariant: exactly the declared bytes follow the header, or the file does not stay.
 *
 * Reading order: st_writer_*, st_write, st_source_fill. */
#include "io/safetensors/safetensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_fault.h"
#include "io/safetensors/safetensors_header.h"

#define PIECE_BYTES (1 << 20)

struct st_writer {
    file_out out;
    char *path;
    uint64_t missing; /* declared bytes not yet written */
};

uint64_t st_file_bytes(const st_tensor *tensors, int64_t n) {
    strbuf header = {0};
    uint64_t bytes = st_build_header(&header, tensors, n) + header.len;
    strbuf_free(&header);
    return bytes;
}

status st_writer_open(st_writer **out, const char *path, const st_tensor *tensors, int64_t n,
                      err *e) {
    strbuf header = {0};
    st_writer *w = xcalloc(1, sizeof(*w));
    w->path = xstrdup(path);
    w->missing = st_build_header(&header, tensors, n);
    *out = NULL;
    status st = file_out_open(&w->out, path, e);
    if (st != ST_OK) {
        free(w->path);
        free(w);
    } else {
        st = file_out_write(&w->out, header.data, header.len, e);
        if (st == ST_OK)
            *out = w;
        else
            st_writer_abandon(w);
    }
    strbuf_free(&header);
    return st;
}

status st_writer_append(st_writer *w, const void *data, size_t bytes, err *e) {
    CHECK(bytes <= w->missing, "%zu bytes more for %s, which has room for %llu", bytes, w->path,
          (unsigned long long)w->missing);
    w->missing -= bytes;
    return bytes ? file_out_write(&w->out, data, bytes, e) : ST_OK;
}

static void remove_file(const st_writer *w) {
    file_sys_unlinkat(AT_FDCWD, w->path, 0); /* what cannot be removed is not named as a result */
}

status st_writer_close(st_writer *w, uint64_t *hash, err *e) {
    if (w->missing) {
        status st = err_set(e, ST_FAILED, "%s: %llu bytes of its tensors were never written",
                            w->path, (unsigned long long)w->missing);
        err_where(e, "%s", w->path);
        st_writer_abandon(w);
        return st;
    }
    status st = file_out_close(&w->out, hash, e);
    if (st != ST_OK) remove_file(w);
    free(w->path);
    free(w);
    return st;
}

void st_writer_abandon(st_writer *w) {
    if (!w) return;
    file_out_abandon(&w->out);
    remove_file(w);
    free(w->path);
    free(w);
}

/* Elements of a tensor that are written at once: about a megabyte, by whole rows where it has rows,
 * so that what was just made is still in the cache when it is copied. */
static int64_t piece_elements(const st_tensor *t, int64_t n) {
    int64_t size = (int64_t)dtype_bytes(t->dt), row = t->rank >= 2 ? t->dims[t->rank - 1] : 1;
    int64_t rows = PIECE_BYTES / size / row, piece = (rows > 0 ? rows : 1) * row;
    return piece < n ? piece : n;
}

static status append_tensor(st_writer *w, const st_tensor *t, err *e) {
    int64_t n = st_tensor_elements(t), size = (int64_t)dtype_bytes(t->dt);
    if (n == 0) return ST_OK;
    CHECK(t->data || t->fill, "tensor '%s' has no data", t->name);
    int64_t step = piece_elements(t, n);
    uint8_t *made = t->data ? NULL : xmalloc((size_t)(step * size));
    status st = ST_OK;
    for (int64_t first = 0; first < n && st == ST_OK; first += step) {
        int64_t now = n - first < step ? n - first : step;
        const uint8_t *piece = made ? made : (const uint8_t *)t->data + first * size;
        if (made) st = t->fill(t->ctx, first, now, made, e);
        if (st == ST_OK) st = st_writer_append(w, piece, (size_t)(now * size), e);
    }
    free(made);
    return st;
}

status st_write(const char *path, const st_tensor *tensors, int64_t n, uint64_t *hash, err *e) {
    st_writer *w;
    TRY(st_writer_open(&w, path, tensors, n, e));
    status st = ST_OK;
    for (int64_t i = 0; i < n && st == ST_OK; i++) st = append_tensor(w, &tensors[i], e);
    if (st == ST_OK) return st_writer_close(w, hash, e);
    st_writer_abandon(w);
    return st;
}

/* One row of the file is one column of the source. */
static void fill_transposed(const st_source *s, int64_t first, int64_t n, uint8_t *dst) {
    size_t in = dtype_bytes(s->dt), out = dtype_bytes(s->out_dt);
    uint8_t *column = xmalloc((size_t)s->cols * in);
    for (int64_t r = first / s->cols; r < (first + n) / s->cols;
         r++, dst += (size_t)s->cols * out) {
        const uint8_t *src = (const uint8_t *)s->data + (size_t)r * in;
        for (int64_t c = 0; c < s->cols; c++)
            memcpy(column + (size_t)c * in, src + (size_t)(c * s->rows) * in, in);
        if (s->dt == s->out_dt)
            memcpy(dst, column, (size_t)s->cols * in);
        else
            dtype_convert(dst, s->out_dt, column, s->dt, s->cols);
    }
    free(column);
}

/* Each row of the file from its place in the source; pieces may begin inside a row. */
static void fill_reordered(const st_source *s, int64_t first, int64_t n, uint8_t *dst) {
    size_t in = dtype_bytes(s->dt), out = dtype_bytes(s->out_dt);
    for (int64_t done = 0; done < n;) {
        int64_t at = first + done, row = at / s->cols, col = at % s->cols;
        int64_t take = s->cols - col < n - done ? s->cols - col : n - done;
        const uint8_t *src =
            (const uint8_t *)s->data + (size_t)(s->row_from[row] * s->cols + col) * in;
        dtype_convert(dst + (size_t)done * out, s->out_dt, src, s->dt, take);
        done += take;
    }
}

status st_source_fill(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    (void)e; /* cannot fail: both formats are ours */
    const st_source *s = ctx;
    if (s->transpose) {
        CHECK(s->cols > 0 && first % s->cols == 0 && n % s->cols == 0, "rows of %lld elements",
              (long long)s->cols);
        fill_transposed(s, first, n, dst);
        return ST_OK;
    }
    if (s->row_from) {
        fill_reordered(s, first, n, dst);
        return ST_OK;
    }
    const uint8_t *src = (const uint8_t *)s->data + (size_t)first * dtype_bytes(s->dt);
    if (s->dt == s->out_dt)
        memcpy(dst, src, (size_t)n * dtype_bytes(s->dt));
    else
        dtype_convert(dst, s->out_dt, src, s->dt, n);
    return ST_OK;
}
