/* Writes GGUF files.
 *
 * Invariant: a file that stays is one that gguf_open takes. What only a mistake in the program can
 * break (names, shapes, keys put twice) is CHECKed before anything is written, the pairs by reading
 * them back.
 *
 * Reading order: layout_new, append_tensor, gguf_write. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/file_fault.h"
#include "io/gguf/gguf.h"

#define PIECE_BYTES (1 << 20)

/* A tensor, measured. */
typedef struct tensor_place {
    const gguf_tensor *t;
    int64_t rows, row_bytes;
    uint64_t bytes, offset;
} tensor_place;

typedef struct layout {
    strbuf header; /* up to the data */
    tensor_place *places;
    int64_t n;
    uint64_t data_bytes; /* with padding after each tensor */
    uint32_t alignment;
} layout;

static uint64_t pad_up(uint64_t bytes, uint64_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

static tensor_place measure(const gguf_tensor *t) {
    const quant_format *f = quant_by_type(t->type);
    size_t name = strlen(t->name);
    CHECK(f && (f->write || t->data || t->fill), "tensor '%s' has no format", t->name);
    CHECK(name >= 1 && name <= GGUF_MAX_NAME_BYTES, "tensor name '%s'", t->name);
    CHECK(t->rank >= 1 && t->rank <= GGUF_MAX_RANK, "tensor '%s' has rank %d", t->name, t->rank);
    CHECK(t->dims[0] % f->block == 0, "tensor '%s': rows of %lld are no whole blocks of %s",
          t->name, (long long)t->dims[0], f->name);
    tensor_place p = {.t = t, .rows = 1, .row_bytes = t->dims[0] / f->block * f->bytes};
    int64_t bytes;
    for (int i = 1; i < t->rank; i++)
        CHECK(t->dims[i] > 0 && !__builtin_mul_overflow(p.rows, t->dims[i], &p.rows),
              "tensor '%s': dimension %d is %lld", t->name, i, (long long)t->dims[i]);
    CHECK(t->dims[0] > 0 && !__builtin_mul_overflow(p.rows, p.row_bytes, &bytes),
          "tensor '%s' is empty or too large", t->name);
    p.bytes = (uint64_t)bytes;
    return p;
}

static void append_record(strbuf *b, const tensor_place *p) {
    const gguf_tensor *t = p->t;
    uint32_t rank = (uint32_t)t->rank, type = t->type;
    gguf_append_string(b, t->name, strlen(t->name));
    strbuf_append(b, &rank, 4);
    strbuf_append(b, t->dims, 8 * (size_t)t->rank);
    strbuf_append(b, &type, 4);
    strbuf_append(b, &p->offset, 8);
}

/* The pairs as a reader will see them. */
static uint32_t read_back_alignment(const strbuf *header) {
    arena *mem = arena_new("gguf header");
    gguf_meta m;
    err e = {0};
    CHECK(gguf_meta_read(&m, mem, header->data, header->len, "the GGUF header", &e) == ST_OK, "%s",
          e.message);
    arena_free(mem);
    return m.alignment;
}

static void append_padding(strbuf *b, uint64_t alignment) {
    size_t n = (size_t)(pad_up(b->len, alignment) - b->len);
    memset(strbuf_extend(b, n), 0, n);
}

static int compare_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void check_names_differ(const gguf_tensor *tensors, int64_t n) {
    const char **names = xmalloc(sizeof(*names) * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) names[i] = tensors[i].name;
    qsort(names, (size_t)n, sizeof(*names), compare_name);
    for (int64_t i = 1; i < n; i++)
        CHECK(strcmp(names[i], names[i - 1]) != 0, "tensor '%s' is declared twice", names[i]);
    free(names);
}

static layout layout_new(const gguf_pairs *pairs, const gguf_tensor *tensors, int64_t n) {
    layout l = {.n = n, .places = xcalloc((size_t)n + 1, sizeof(*l.places))};
    check_names_differ(tensors, n);
    gguf_append_header(&l.header, (uint64_t)n, pairs);
    l.alignment = read_back_alignment(&l.header);
    for (int64_t i = 0; i < n; i++) {
        l.places[i] = measure(&tensors[i]);
        l.places[i].offset = l.data_bytes;
        l.data_bytes += pad_up(l.places[i].bytes, l.alignment);
        append_record(&l.header, &l.places[i]);
    }
    append_padding(&l.header, l.alignment);
    return l;
}

static void layout_free(layout *l) {
    strbuf_free(&l->header);
    free(l->places);
}

/* By pieces of whole rows, so that what was just made is still in the cache when it is hashed. */
static status append_rows(file_out *out, const tensor_place *p, err *e) {
    int64_t step = PIECE_BYTES / p->row_bytes > 0 ? PIECE_BYTES / p->row_bytes : 1;
    if (step > p->rows) step = p->rows;
    uint8_t *piece = xmalloc((size_t)(step * p->row_bytes));
    status st = ST_OK;
    for (int64_t first = 0; first < p->rows && st == ST_OK; first += step) {
        int64_t now = p->rows - first < step ? p->rows - first : step;
        st = p->t->fill(p->t->ctx, first, now, piece, e);
        if (st == ST_OK) st = file_out_write(out, piece, (size_t)(now * p->row_bytes), e);
    }
    free(piece);
    return st;
}

static status append_tensor(file_out *out, const tensor_place *p, uint32_t alignment, err *e) {
    static const uint8_t ZEROS[64] = {0};
    CHECK(p->t->data || p->t->fill, "tensor '%s' has no data", p->t->name);
    TRY(p->t->data ? file_out_write(out, p->t->data, (size_t)p->bytes, e) : append_rows(out, p, e));
    for (uint64_t left = pad_up(p->bytes, alignment) - p->bytes; left > 0;) {
        size_t now = left < sizeof(ZEROS) ? (size_t)left : sizeof(ZEROS);
        TRY(file_out_write(out, ZEROS, now, e));
        left -= now;
    }
    return ST_OK;
}

static status append_all(file_out *out, const layout *l, err *e) {
    TRY(file_out_write(out, l->header.data, l->header.len, e));
    for (int64_t i = 0; i < l->n; i++) TRY(append_tensor(out, &l->places[i], l->alignment, e));
    return ST_OK;
}

status gguf_write(const char *path, const gguf_pairs *pairs, const gguf_tensor *tensors, int64_t n,
                  err *e) {
    layout l = layout_new(pairs, tensors, n);
    file_out out;
    status st = file_out_open(&out, path, e);
    if (st == ST_OK) {
        st = append_all(&out, &l, e);
        if (st == ST_OK)
            st = file_out_close(&out, NULL, e);
        else
            file_out_abandon(&out);
        if (st != ST_OK) file_sys_unlinkat(AT_FDCWD, path, 0); /* no half file stays */
    }
    layout_free(&l);
    return st;
}
