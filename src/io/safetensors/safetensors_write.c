/* Writes safetensors files.
 *
 * Invariant: exactly the declared bytes follow the header, or the file does not stay.
 *
 * Reading order: st_write, append_tensor, st_source_fill. */
#include "io/safetensors/safetensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_fault.h"
#include "io/safetensors/safetensors_int.h"

#define PIECE_BYTES (1 << 20)

uint64_t st_file_bytes(const st_tensor *tensors, int64_t n) {
    strbuf header = {0};
    uint64_t bytes = st_build_header(&header, tensors, n) + header.len;
    strbuf_free(&header);
    return bytes;
}

/* Elements of a tensor that are written at once: about a megabyte, by whole rows where it has rows,
 * so that what was just made is still in the cache when it is copied. */
static int64_t piece_elements(const st_tensor *t, int64_t n) {
    int64_t size = (int64_t)dtype_bytes(t->dt), row = t->rank >= 2 ? t->dims[t->rank - 1] : 1;
    int64_t rows = PIECE_BYTES / size / row, piece = (rows > 0 ? rows : 1) * row;
    return piece < n ? piece : n;
}

static status append_tensor(file_out *out, const st_tensor *t, err *e) {
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
        if (st == ST_OK) st = file_out_write(out, piece, (size_t)(now * size), e);
    }
    free(made);
    return st;
}

status st_write(const char *path, const st_tensor *tensors, int64_t n, uint64_t *hash, err *e) {
    strbuf header = {0};
    st_build_header(&header, tensors, n);
    file_out out;
    status st = file_out_open(&out, path, e);
    if (st == ST_OK) {
        st = file_out_write(&out, header.data, header.len, e);
        for (int64_t i = 0; i < n && st == ST_OK; i++) st = append_tensor(&out, &tensors[i], e);
        if (st == ST_OK)
            st = file_out_close(&out, hash, e);
        else
            file_out_abandon(&out);
        if (st != ST_OK) file_sys_unlinkat(AT_FDCWD, path, 0); /* no half file stays */
    }
    strbuf_free(&header);
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
