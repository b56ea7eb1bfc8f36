/* .npy: "\x93NUMPY", major, minor, header length (u16, or u32 from version 2), a Python dict
 * literal with the keys descr, fortran_order and shape, then the data.
 *
 * Reading order: the literal's little parser, parse_header, npy_read_i32, npy_write_f32. */
#include "io/npy_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/strbuf.h"

#define MAX_HEADER_BYTES 65536
#define DATA_ALIGN 64

typedef struct literal {
    const char *p, *end;
} literal;

typedef struct npy_header {
    char descr[16];
    bool fortran;
    int rank;
    int64_t dims[NPY_MAX_RANK];
    int seen; /* one bit for each key */
} npy_header;

enum { KEY_DESCR = 1, KEY_FORTRAN = 2, KEY_SHAPE = 4, KEY_ALL = 7 };

static void skip_space(literal *l) {
    while (l->p < l->end && (*l->p == ' ' || *l->p == '\n' || *l->p == '\t')) l->p++;
}

static bool take(literal *l, const char *word) {
    skip_space(l);
    size_t n = strlen(word);
    if ((size_t)(l->end - l->p) < n || memcmp(l->p, word, n) != 0) return false;
    l->p += n;
    return true;
}

static bool take_string(literal *l, char *out, size_t cap) {
    skip_space(l);
    if (l->p >= l->end || (*l->p != '\'' && *l->p != '"')) return false;
    char quote = *l->p++;
    size_t n = 0;
    for (; l->p < l->end && *l->p != quote && n + 1 < cap; l->p++) out[n++] = *l->p;
    out[n] = '\0';
    return l->p < l->end && *l->p++ == quote;
}

static bool take_int(literal *l, int64_t *out) {
    skip_space(l);
    const char *start = l->p;
    *out = 0;
    for (; l->p < l->end && *l->p >= '0' && *l->p <= '9'; l->p++)
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *l->p - '0', out))
            return false;
    return l->p > start;
}

static bool take_shape(literal *l, npy_header *h) {
    if (!take(l, "(")) return false;
    while (!take(l, ")")) {
        if (h->rank == NPY_MAX_RANK || !take_int(l, &h->dims[h->rank++])) return false;
        if (take(l, ",")) continue;
        return take(l, ")");
    }
    return true;
}

static bool take_entry(literal *l, npy_header *h) {
    char key[16];
    if (!take_string(l, key, sizeof(key)) || !take(l, ":")) return false;
    int bit = strcmp(key, "descr") == 0           ? KEY_DESCR
              : strcmp(key, "fortran_order") == 0 ? KEY_FORTRAN
              : strcmp(key, "shape") == 0         ? KEY_SHAPE
                                                  : 0;
    if (!bit || h->seen & bit) return false;
    h->seen |= bit;
    if (bit == KEY_DESCR) return take_string(l, h->descr, sizeof(h->descr));
    if (bit == KEY_SHAPE) return take_shape(l, h);
    h->fortran = take(l, "True");
    return h->fortran || take(l, "False");
}

static bool take_dict(literal *l, npy_header *h) {
    if (!take(l, "{")) return false;
    while (!take(l, "}")) {
        if (!take_entry(l, h)) return false;
        if (take(l, ",")) continue;
        if (!take(l, "}")) return false;
        break;
    }
    skip_space(l);
    return l->p == l->end && h->seen == KEY_ALL;
}

/* *data is the offset of the array. */
static status parse_header(const file_map *m, npy_header *h, size_t *data, err *e) {
    if (m->len < 12 || memcmp(m->data, "\x93NUMPY", 6) != 0)
        return err_set(e, ST_FORMAT, "it is no .npy file");
    int major = m->data[6];
    if (major < 1 || major > 3)
        return err_set(e, ST_FORMAT, "version %d of .npy is unknown", major);
    size_t len = (size_t)m->data[8] | (size_t)m->data[9] << 8, start = 10;
    if (major > 1) {
        len |= (size_t)m->data[10] << 16 | (size_t)m->data[11] << 24;
        start = 12;
    }
    if (len > MAX_HEADER_BYTES || len > m->len - start)
        return err_set(e, ST_FORMAT, "its header claims %zu bytes, more than there can be", len);
    literal l = {(const char *)m->data + start, (const char *)m->data + start + len};
    if (!take_dict(&l, h))
        return err_set(e, ST_FORMAT,
                       "its header is not understood near byte %zu (known are descr, "
                       "fortran_order and a shape of at most %d dimensions)",
                       (size_t)(l.p - (const char *)m->data), NPY_MAX_RANK);
    *data = start + len;
    return ST_OK;
}

static status check_layout(const npy_header *h, size_t data_bytes, int *width, int64_t *numel,
                           err *e) {
    *width = strcmp(h->descr, "<i4") == 0 ? 4 : strcmp(h->descr, "<i8") == 0 ? 8 : 0;
    if (!*width)
        return err_set(e, ST_FORMAT, "it holds '%.15s', not int32 or int64 in little-endian order",
                       h->descr);
    if (h->fortran && h->rank > 1)
        return err_set(e, ST_FORMAT, "it is in Fortran order (only C order is read)");
    *numel = 1;
    int64_t bytes = 0;
    for (int i = 0; i < h->rank; i++)
        if (__builtin_mul_overflow(*numel, h->dims[i], numel))
            return err_set(e, ST_FORMAT, "its shape overflows");
    if (__builtin_mul_overflow(*numel, (int64_t)*width, &bytes))
        return err_set(e, ST_FORMAT, "its shape overflows");
    if ((uint64_t)bytes != data_bytes)
        return err_set(e, ST_FORMAT, "its shape needs %lld bytes of data, it has %zu",
                       (long long)bytes, data_bytes);
    return ST_OK;
}

static status copy_ids(npy_i32 *out, const uint8_t *src, int width, err *e) {
    out->data = xmalloc((size_t)out->numel * sizeof(*out->data) + 1);
    if (width == 4) {
        memcpy(out->data, src, (size_t)out->numel * 4);
        return ST_OK;
    }
    for (int64_t i = 0; i < out->numel; i++) {
        int64_t v;
        memcpy(&v, src + 8 * i, 8);
        if (v < INT32_MIN || v > INT32_MAX)
            return err_set(e, ST_FORMAT, "element %lld is %lld, beyond 32 bits", (long long)i,
                           (long long)v);
        out->data[i] = (int32_t)v;
    }
    return ST_OK;
}

status npy_parse_i32(npy_i32 *out, const uint8_t *bytes, size_t len, err *e) {
    npy_header h = {0};
    file_map m = {.data = bytes, .len = len};
    size_t data = 0;
    int width = 0;
    TRY(parse_header(&m, &h, &data, e));
    TRY(check_layout(&h, len - data, &width, &out->numel, e));
    out->rank = h.rank;
    memcpy(out->dims, h.dims, sizeof(h.dims));
    return copy_ids(out, bytes + data, width, e);
}

status npy_read_i32(npy_i32 *out, const char *path, err *e) {
    *out = (npy_i32){0};
    file_map m;
    TRY(file_map_open(&m, path, e));
    status st = npy_parse_i32(out, m.data, m.len, e);
    file_map_close(&m);
    if (st == ST_OK) return st;
    npy_i32_free(out);
    err_context(e, "%s", path);
    err_where(e, "%s", path);
    err_hint(e, "make it with numpy.save(F, ids.astype('int32'))");
    return st;
}

void npy_i32_free(npy_i32 *a) {
    free(a->data);
    *a = (npy_i32){0};
}

status npy_write_f32(const char *path, const float *data, int rank, const int64_t *dims, err *e) {
    CHECK(rank >= 0 && rank <= NPY_MAX_RANK, "an array of rank %d", rank);
    strbuf dict = {0}, file = {0};
    size_t numel = 1;
    strbuf_puts(&dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < rank; i++) {
        strbuf_printf(&dict, i ? " %lld," : "%lld,", (long long)dims[i]);
        numel *= (size_t)dims[i];
    }
    strbuf_puts(&dict, "), }");
    while ((10 + dict.len + 1) % DATA_ALIGN) strbuf_putc(&dict, ' ');
    strbuf_putc(&dict, '\n');
    strbuf_append(&file, "\x93NUMPY\x01\x00", 8);
    strbuf_putc(&file, (char)(dict.len & 255));
    strbuf_putc(&file, (char)(dict.len >> 8));
    strbuf_append(&file, dict.data, dict.len);
    if (numel) strbuf_append(&file, data, numel * sizeof(*data));
    status st = file_write_atomic(path, file.data, file.len, e);
    strbuf_free(&dict);
    strbuf_free(&file);
    return st;
}
