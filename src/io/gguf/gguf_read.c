/* Reads the tensors of GGUF files.
 *
 * Invariant: a view enters the reader only after its name, format, shape, bounds and place among
 * the others were checked, so everything behind gguf_get may trust it.
 *
 * Reading order: take_shape, place_data, take_tensor, check_overlap, parse, the accessors. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/gguf_read.h"
#include "base/text.h"
#include "io/gguf/gguf.h"

enum {
    MAX_TENSORS = 1 << 20,
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8, /* name, rank, format, offset */
    MAX_LIKENESSES = 4096                 /* names that a wrong one is compared with */
};

struct gguf_reader {
    arena *mem;
    file_map map;
    gguf_meta meta;
    gguf_view *views;
    int64_t n;
    const gguf_view **by_name;
};

/* ---- one record ---- */

static status take_shape(gguf_cursor *c, gguf_view *v) {
    uint32_t rank;
    TRY(gguf_take_u32(c, &rank));
    if (rank > GGUF_MAX_RANK)
        return gguf_bad(c, "tensor '%s' has %u dimensions (at most %d are known)", v->name, rank,
                        GGUF_MAX_RANK);
    v->rank = (int)rank;
    int64_t numel = 1;
    for (int i = 0; i < GGUF_MAX_RANK; i++) {
        uint64_t dim = 1;
        if (i < v->rank) TRY(gguf_take_u64(c, &dim));
        v->dims[i] = (int64_t)dim;
        if (dim > INT64_MAX || __builtin_mul_overflow(numel, v->dims[i], &numel))
            return gguf_bad(c, "the shape of tensor '%s' overflows", v->name);
    }
    v->cols = v->dims[0];
    v->rows = v->dims[0] ? numel / v->dims[0] : 0;
    return ST_OK;
}

static status take_format(gguf_cursor *c, gguf_view *v) {
    uint32_t type;
    TRY(gguf_take_u32(c, &type));
    v->format = quant_by_type(type);
    if (!v->format) {
        gguf_bad(c, "tensor '%s' is in format %u, which is not known", v->name, type);
        return err_hint(c->e, "the file may be newer than this program, or damaged");
    }
    if (v->cols % v->format->block == 0) return ST_OK;
    return gguf_bad(c, "tensor '%s' has rows of %lld elements, not whole blocks of %d as %s needs",
                    v->name, (long long)v->cols, v->format->block, v->format->name);
}

/* Where the data of all tensors begin, and how many bytes there are. */
typedef struct data_span {
    const uint8_t *data;
    uint64_t bytes, alignment;
} data_span;

/* The offset is kept until all records are read: only then it is known where the data begin. */
static status take_tensor(gguf_cursor *c, arena *mem, gguf_view *v, uint64_t *offset) {
    TRY(gguf_take_name(c, mem, "tensor", GGUF_MAX_NAME_BYTES, &v->name));
    TRY(take_shape(c, v));
    TRY(take_format(c, v));
    return gguf_take_u64(c, offset);
}

static status place_data(const gguf_cursor *c, gguf_view *v, uint64_t offset,
                         const data_span *span) {
    int64_t row, bytes;
    if (__builtin_mul_overflow(v->cols / v->format->block, v->format->bytes, &row) ||
        __builtin_mul_overflow(row, v->rows, &bytes))
        return gguf_bad(c, "the size of tensor '%s' overflows", v->name);
    if (offset % span->alignment != 0)
        return gguf_bad(c, "tensor '%s' begins at byte %llu of the data, no multiple of %llu",
                        v->name, (unsigned long long)offset, (unsigned long long)span->alignment);
    if (offset > span->bytes || (uint64_t)bytes > span->bytes - offset)
        return gguf_bad(c, "tensor '%s' needs bytes %llu + %lld of the data, which has %llu",
                        v->name, (unsigned long long)offset, (long long)bytes,
                        (unsigned long long)span->bytes);
    v->data = span->data + offset;
    v->bytes = (size_t)bytes;
    v->row_bytes = (size_t)row;
    return ST_OK;
}

/* ---- all of them ---- */

static int compare_place(const void *a, const void *b) {
    const gguf_view *x = *(const gguf_view *const *)a, *y = *(const gguf_view *const *)b;
    return x->data != y->data ? (x->data < y->data ? -1 : 1) : 0;
}

static int compare_name(const void *a, const void *b) {
    return strcmp((*(const gguf_view *const *)a)->name, (*(const gguf_view *const *)b)->name);
}

static status check_overlap(const gguf_cursor *c, const gguf_reader *r) {
    const gguf_view **sorted = r->by_name, *last = NULL;
    qsort(sorted, (size_t)r->n, sizeof(*sorted), compare_place);
    for (int64_t i = 0; i < r->n; i++) {
        if (sorted[i]->bytes == 0) continue;
        if (last && sorted[i]->data < last->data + last->bytes)
            return gguf_bad(c, "tensors '%s' and '%s' overlap", last->name, sorted[i]->name);
        last = sorted[i];
    }
    return ST_OK;
}

/* Sorts the views by name. */
static status check_names(const gguf_cursor *c, const gguf_reader *r) {
    const gguf_view **sorted = r->by_name;
    qsort(sorted, (size_t)r->n, sizeof(*sorted), compare_name);
    for (int64_t i = 1; i < r->n; i++)
        if (strcmp(sorted[i]->name, sorted[i - 1]->name) == 0)
            return gguf_bad(c, "tensor '%s' is there twice", sorted[i]->name);
    return ST_OK;
}

static status check_whole(const gguf_cursor *c, const gguf_meta *m) {
    const gguf_value *split = gguf_meta_find(m, "split.count");
    int64_t parts = 0;
    if (!split || split->type == GGUF_ARRAY || !gguf_value_int(split, 0, &parts) || parts <= 1)
        return ST_OK;
    gguf_bad(c, "this is one of %lld parts of a model, and parts are not read", (long long)parts);
    return err_hint(c->e, "join them with `llama-gguf-split --merge FIRST_PART OUT.gguf`");
}

static status take_tensors(gguf_cursor *c, gguf_reader *r, uint64_t *offsets) {
    for (int64_t i = 0; i < r->n; i++) TRY(take_tensor(c, r->mem, &r->views[i], &offsets[i]));
    size_t align = r->meta.alignment, begin = (c->at + align - 1) / align * align;
    if (begin > c->len) begin = c->len; /* nothing follows the records: for tensors without bytes */
    data_span span = {(const uint8_t *)c->bytes + begin, c->len - begin, align};
    for (int64_t i = 0; i < r->n; i++) TRY(place_data(c, &r->views[i], offsets[i], &span));
    TRY(check_overlap(c, r));
    return check_names(c, r);
}

static status parse(gguf_reader *r, const void *bytes, size_t len, const char *label, err *e) {
    TRY(gguf_meta_read(&r->meta, r->mem, bytes, len, label, e));
    gguf_cursor c = {bytes, len, r->meta.end, label, e};
    if (check_whole(&c, &r->meta) != ST_OK) return ST_FORMAT;
    uint64_t n = r->meta.n_tensors;
    if (n > MAX_TENSORS || n > (len - c.at) / MIN_TENSOR_BYTES)
        return gguf_bad(&c, "the GGUF header claims %llu tensors, more than there is room for",
                        (unsigned long long)n);
    r->n = (int64_t)n;
    r->views = ARENA_ARRAY(r->mem, gguf_view, n);
    r->by_name = ARENA_ARRAY(r->mem, const gguf_view *, n);
    for (int64_t i = 0; i < r->n; i++) r->by_name[i] = &r->views[i];
    uint64_t *offsets = xcalloc((size_t)n + 1, sizeof(*offsets));
    status st = take_tensors(&c, r, offsets);
    free(offsets);
    return st;
}

/* ---- the reader ---- */

static gguf_reader *reader_new(void) {
    gguf_reader *r = xcalloc(1, sizeof(*r));
    r->mem = arena_new("gguf");
    return r;
}

static status reader_finish(gguf_reader **out, gguf_reader *r, status st) {
    if (st != ST_OK) gguf_close(r);
    *out = st == ST_OK ? r : NULL;
    return st;
}

bool gguf_is_file(const char *path) {
    file_map map;
    err ignored;
    if (file_is_dir(path) || file_map_open(&map, path, &ignored) != ST_OK) return false;
    bool is = map.len >= 4 && memcmp(map.data, "GGUF", 4) == 0;
    file_map_close(&map);
    return is;
}

status gguf_open(gguf_reader **out, const char *path, err *e) {
    gguf_reader *r = reader_new();
    status st = file_map_open(&r->map, path, e);
    if (st == ST_OK) st = parse(r, r->map.data, r->map.len, arena_strdup(r->mem, path), e);
    return reader_finish(out, r, st);
}

status gguf_open_bytes(gguf_reader **out, const void *bytes, size_t len, const char *label,
                       err *e) {
    gguf_reader *r = reader_new();
    return reader_finish(out, r, parse(r, bytes, len, arena_strdup(r->mem, label), e));
}

void gguf_close(gguf_reader *r) {
    if (!r) return;
    file_map_close(&r->map);
    arena_free(r->mem);
    free(r);
}

const gguf_meta *gguf_get_meta(const gguf_reader *r) {
    return &r->meta;
}

int64_t gguf_count(const gguf_reader *r) {
    return r->n;
}

const gguf_view *gguf_get(const gguf_reader *r, int64_t i) {
    CHECK(i >= 0 && i < r->n, "tensor %lld of %lld", (long long)i, (long long)r->n);
    return &r->views[i];
}

const gguf_view *gguf_find(const gguf_reader *r, const char *name) {
    const gguf_view named = {.name = name}, *key = &named;
    const gguf_view *const *found =
        bsearch(&key, r->by_name, (size_t)r->n, sizeof *r->by_name, compare_name);
    return found ? *found : NULL;
}

status gguf_require(const gguf_reader *r, const char *name, const gguf_view **v, err *e) {
    *v = gguf_find(r, name);
    if (*v) return ST_OK;
    err_at(e, ST_FORMAT, name, "%s has no tensor '%s'", r->meta.label, name);
    int n = r->n < MAX_LIKENESSES ? (int)r->n : MAX_LIKENESSES;
    const char **names = xmalloc(sizeof(*names) * (size_t)(n + 1));
    for (int i = 0; i < n; i++) names[i] = r->views[i].name;
    int near = text_nearest(name, names, n);
    if (near >= 0) err_hint(e, "the nearest name there is '%s'", names[near]);
    free(names);
    return ST_FORMAT;
}

status gguf_read_f32(const gguf_view *v, int64_t first, int64_t n, float *dst, err *e) {
    CHECK(first >= 0 && n >= 0 && first <= v->rows && n <= v->rows - first,
          "rows %lld + %lld of '%s', which has %lld", (long long)first, (long long)n, v->name,
          (long long)v->rows);
    if (!v->format->read) {
        err_at(e, ST_FORMAT, v->name, "tensor '%s' is stored as %s, which is not read", v->name,
               v->format->name);
        return err_hint(
            e, "read are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K; "
               "fetch or make the model in one of these");
    }
    quant_to_f32(v->format, dst, v->data + (size_t)first * v->row_bytes, n * v->cols);
    return ST_OK;
}
