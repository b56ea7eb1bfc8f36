/* Writes safetensors files.
 *
 * Invariant: exactly the declared bytes follow the header, or the file does not stay.
 *
 * Reading order: build_header, st_writer_*, st_write, st_source_fill. */
#include "io/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "io/safetensors_format.h"

#define DATA_ALIGN 64
#define PIECE_BYTES (1 << 20)

struct st_writer {
    file_out out;
    char *path;
    uint64_t missing; /* declared bytes not yet written */
};

static int64_t count_elements(const st_tensor *t) {
    CHECK(t->rank >= 0 && t->rank <= ST_MAX_RANK, "tensor '%s' has rank %d", t->name, t->rank);
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        CHECK(t->dims[i] >= 0 && !__builtin_mul_overflow(n, t->dims[i], &n),
              "tensor '%s': dimension %d is %lld", t->name, i, (long long)t->dims[i]);
    return n;
}

static uint64_t count_bytes(const st_tensor *t) {
    return (uint64_t)count_elements(t) * dtype_bytes(t->dt);
}

static json_t *describe(const st_tensor *t, uint64_t begin) {
    json_t *shape = json_array();
    for (int i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer(t->dims[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", st_format_by_dtype(t->dt)->name, "shape",
                     shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)(begin + count_bytes(t)));
}

/* Length prefix, JSON and padding. Returns the bytes of data that must follow. */
static uint64_t build_header(strbuf *b, const st_tensor *tensors, int64_t n) {
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *name = tensors[i].name;
        CHECK(!json_object_get(root, name), "tensor '%s' is declared twice", name);
        int failed = json_object_set_new(root, name, describe(&tensors[i], at));
        CHECK(failed == 0, "tensor name '%s' is not UTF-8", name);
        at += count_bytes(&tensors[i]);
    }
    char *text = json_dumps(root, JSON_COMPACT);
    CHECK(text, "the safetensors header of %lld tensors", (long long)n);
    size_t len = strlen(text), padded = (8 + len + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN - 8;
    CHECK(padded <= ST_MAX_HEADER_BYTES, "a safetensors header of %zu bytes", padded);
    for (int i = 0; i < 8; i++) strbuf_putc(b, (char)(padded >> (8 * i)));
    strbuf_append(b, text, len);
    for (; len < padded; len++) strbuf_putc(b, ' ');
    free(text);
    json_decref(root);
    return at;
}

uint64_t st_file_bytes(const st_tensor *tensors, int64_t n) {
    strbuf header = {0};
    uint64_t bytes = build_header(&header, tensors, n) + header.len;
    strbuf_free(&header);
    return bytes;
}

status st_writer_open(st_writer **out, const char *path, const st_tensor *tensors, int64_t n,
                      err *e) {
    strbuf header = {0};
    st_writer *w = xcalloc(1, sizeof(*w));
    w->path = xstrdup(path);
    w->missing = build_header(&header, tensors, n);
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

status st_writer_close(st_writer *w, uint64_t *hash, err *e) {
    if (w->missing) {
        status st = err_set(e, ST_FAILED, "%s: %llu bytes of its tensors were never written",
                            w->path, (unsigned long long)w->missing);
        err_where(e, "%s", w->path);
        st_writer_abandon(w);
        return st;
    }
    status st = file_out_close(&w->out, hash, e);
    if (st != ST_OK) unlink(w->path);
    free(w->path);
    free(w);
    return st;
}

void st_writer_abandon(st_writer *w) {
    if (!w) return;
    file_out_abandon(&w->out);
    unlink(w->path);
    free(w->path);
    free(w);
}

/* Pulls the tensor through its fill function, by whole rows where it has rows. */
static status append_filled(st_writer *w, const st_tensor *t, err *e) {
    int64_t n = count_elements(t), row = t->rank >= 2 ? t->dims[t->rank - 1] : 1;
    if (n == 0) return ST_OK;
    int64_t size = (int64_t)dtype_bytes(t->dt), rows = PIECE_BYTES / size / row;
    int64_t step = (rows > 0 ? rows : 1) * row;
    if (step > n) step = n;
    void *piece = xmalloc((size_t)(step * size));
    status st = ST_OK;
    for (int64_t first = 0; first < n && st == ST_OK; first += step) {
        int64_t now = n - first < step ? n - first : step;
        st = t->fill(t->ctx, first, now, piece, e);
        if (st == ST_OK) st = st_writer_append(w, piece, (size_t)(now * size), e);
    }
    free(piece);
    return st;
}

status st_write(const char *path, const st_tensor *tensors, int64_t n, uint64_t *hash, err *e) {
    st_writer *w;
    TRY(st_writer_open(&w, path, tensors, n, e));
    for (int64_t i = 0; i < n; i++) {
        const st_tensor *t = &tensors[i];
        CHECK(t->data || t->fill || count_elements(t) == 0, "tensor '%s' has no data", t->name);
        status st = t->data ? st_writer_append(w, t->data, (size_t)count_bytes(t), e)
                            : append_filled(w, t, e);
        if (st != ST_OK) {
            st_writer_abandon(w);
            return st;
        }
    }
    return st_writer_close(w, hash, e);
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

status st_source_fill(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    (void)e; /* cannot fail: both formats are ours */
    const st_source *s = ctx;
    if (s->transpose) {
        CHECK(s->cols > 0 && first % s->cols == 0 && n % s->cols == 0, "rows of %lld elements",
              (long long)s->cols);
        fill_transposed(s, first, n, dst);
        return ST_OK;
    }
    const uint8_t *src = (const uint8_t *)s->data + (size_t)first * dtype_bytes(s->dt);
    if (s->dt == s->out_dt)
        memcpy(dst, src, (size_t)n * dtype_bytes(s->dt));
    else
        dtype_convert(dst, s->out_dt, src, s->dt, n);
    return ST_OK;
}
