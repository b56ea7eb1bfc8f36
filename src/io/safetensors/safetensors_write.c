/* Writes safetensors files.
 *
 * Invariant: exactly the declared bytes follow the header, or the file does not stay.
 *
 * Reading order: st_write, append_tensor. */
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
