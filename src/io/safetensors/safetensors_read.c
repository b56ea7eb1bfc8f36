/* Reads safetensors files and folders of them.
 *
 * Invariant: a view enters the reader only after its format, shape, bounds and place in the tiling
 * of the data were checked, so everything behind st_get may trust it.
 *
 * Reading order: parse_entry, check_tiling, parse_file, open_folder, the accessors. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors/safetensors.h"

#define SHOWN_NAME_BYTES 96
#define MAX_SHARDS 10000
#define MAX_TENSORS 1000000

struct st_reader {
    arena *mem;
    const char *folder; /* of shards; NULL: there is one file */
    file_map *maps;
    int64_t n_maps, cap_maps;
    st_view *views;
    int64_t n, cap;
    const st_view **by_name;
};

/* Element formats that a file can name. */
typedef struct st_format {
    const char *name;
    int bits; /* F4 and F6 elements are smaller than a byte */
    dtype dt; /* DT_COUNT: carried, never computed with */
} st_format;

static const st_format formats[] = {
    {"F32", 32, DT_F32},
    {"BF16", 16, DT_BF16},
    {"F16", 16, DT_F16},
    {"F64", 64, DT_F64},
    {"I32", 32, DT_I32},
    {"I64", 64, DT_I64},
    {"U8", 8, DT_U8},
    {"BOOL", 8, DT_COUNT},
    {"I8", 8, DT_COUNT},
    {"I16", 16, DT_COUNT},
    {"U16", 16, DT_COUNT},
    {"U32", 32, DT_COUNT},
    {"U64", 64, DT_COUNT},
    {"C64", 64, DT_COUNT},
    {"F8_E5M2", 8, DT_COUNT},
    {"F8_E4M3", 8, DT_COUNT},
    {"F8_E8M0", 8, DT_COUNT},
    {"F8_E5M2FNUZ", 8, DT_COUNT},
    {"F8_E4M3FNUZ", 8, DT_COUNT},
    {"F6_E2M3", 6, DT_COUNT},
    {"F6_E3M2", 6, DT_COUNT},
    {"F4", 4, DT_COUNT},
};

static const st_format *format_by_name(const char *name) {
    for (int i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

const char *st_format_name(dtype dt) {
    for (int i = 0; i < ARRAY_LEN(formats); i++)
        if (formats[i].dt == dt && dt < DT_COUNT) return formats[i].name;
    CHECK(false, "dtype %d has no safetensors name", (int)dt);
    return NULL;
}

/* A name from an untrusted file, made safe and short enough for a message. */
static const char *show_name(const char *name, char out[SHOWN_NAME_BYTES]) {
    size_t n = 0;
    for (; name[n] && n < SHOWN_NAME_BYTES - 4; n++) {
        unsigned char c = (unsigned char)name[n];
        out[n] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    memcpy(out + n, name[n] ? "..." : "", name[n] ? 4 : 1);
    return out;
}

/* Gives the error its place. Used as `return at(label, err_set(...), e)`. */
static status at(const char *label, status st, err *e) {
    err_context(e, "%s", label);
    err_where(e, "%s", label);
    err_hint(e, "the file is damaged or not a safetensors file; fetch or export it again");
    return st;
}

static bool read_u64(const json_t *j, uint64_t *out) {
    if (!json_is_integer(j) || json_integer_value(j) < 0) return false;
    *out = (uint64_t)json_integer_value(j);
    return true;
}

static status parse_shape(st_view *v, const json_t *shape, const char *shown, err *e) {
    if (!json_is_array(shape))
        return err_set(e, ST_FORMAT, "tensor '%s' has no list 'shape'", shown);
    size_t rank = json_array_size(shape);
    if (rank > ST_MAX_RANK)
        return err_set(e, ST_FORMAT, "tensor '%s' has %zu dimensions (at most %d are read)", shown,
                       rank, ST_MAX_RANK);
    v->rank = (int)rank;
    v->numel = 1;
    for (size_t i = 0; i < rank; i++) {
        uint64_t d;
        if (!read_u64(json_array_get(shape, i), &d))
            return err_set(e, ST_FORMAT, "tensor '%s': dimension %zu is not a whole number >= 0",
                           shown, i);
        v->dims[i] = (int64_t)d;
        if (__builtin_mul_overflow(v->numel, v->dims[i], &v->numel))
            return err_set(e, ST_FORMAT, "tensor '%s': its shape overflows", shown);
    }
    return ST_OK;
}

static status parse_format(st_view *v, const json_t *format, int *bits, const char *shown, err *e) {
    if (!json_is_string(format)) return err_set(e, ST_FORMAT, "tensor '%s' has no 'dtype'", shown);
    const st_format *f = format_by_name(json_string_value(format));
    if (!f) {
        char word[SHOWN_NAME_BYTES];
        return err_set(e, ST_FORMAT, "tensor '%s' has the unknown dtype '%s'", shown,
                       show_name(json_string_value(format), word));
    }
    v->format = f->name;
    v->dt = f->dt;
    *bits = f->bits;
    return ST_OK;
}

/* Offsets are checked against the data area and against the shape. */
static status parse_offsets(st_view *v, const json_t *offsets, int bits, const uint8_t *data,
                            size_t data_bytes, const char *shown, err *e) {
    uint64_t begin, end;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !read_u64(json_array_get(offsets, 0), &begin) ||
        !read_u64(json_array_get(offsets, 1), &end))
        return err_set(e, ST_FORMAT, "tensor '%s': 'data_offsets' is not two whole numbers >= 0",
                       shown);
    if (begin > end)
        return err_set(e, ST_FORMAT, "tensor '%s': its data ends before it begins", shown);
    if (end > data_bytes)
        return err_set(e, ST_FORMAT,
                       "tensor '%s' ends at byte %llu of the data, but there are only %zu (file "
                       "truncated?)",
                       shown, (unsigned long long)end, data_bytes);
    int64_t n_bits;
    if (__builtin_mul_overflow(v->numel, (int64_t)bits, &n_bits))
        return err_set(e, ST_FORMAT, "tensor '%s': its size overflows", shown);
    if (n_bits % 8 != 0)
        return err_set(e, ST_FORMAT, "tensor '%s': its size is no whole number of bytes", shown);
    if ((uint64_t)(n_bits / 8) != end - begin)
        return err_set(e, ST_FORMAT,
                       "tensor '%s': its shape needs %lld bytes, its offsets span %llu", shown,
                       (long long)(n_bits / 8), (unsigned long long)(end - begin));
    v->data = data + begin;
    v->bytes = (size_t)(end - begin);
    return ST_OK;
}

static status parse_entry(st_view *v, const char *name, const json_t *entry, const uint8_t *data,
                          size_t data_bytes, err *e) {
    char shown[SHOWN_NAME_BYTES];
    show_name(name, shown);
    if (!name[0]) return err_set(e, ST_FORMAT, "a tensor has an empty name");
    if (!json_is_object(entry))
        return err_set(e, ST_FORMAT, "the entry of tensor '%s' is no object", shown);
    int bits = 0;
    TRY(parse_format(v, json_object_get(entry, "dtype"), &bits, shown, e));
    TRY(parse_shape(v, json_object_get(entry, "shape"), shown, e));
    return parse_offsets(v, json_object_get(entry, "data_offsets"), bits, data, data_bytes, shown,
                         e);
}

static status check_metadata(const json_t *meta, err *e) {
    if (!json_is_object(meta)) return err_set(e, ST_FORMAT, "'__metadata__' is no object");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)meta, key, value) {
        char shown[SHOWN_NAME_BYTES];
        if (!json_is_string(value))
            return err_set(e, ST_FORMAT, "'__metadata__': the value of '%s' is no string",
                           show_name(key, shown));
    }
    return ST_OK;
}

static int compare_place(const void *a, const void *b) {
    const st_view *x = *(const st_view *const *)a, *y = *(const st_view *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors, sorted by place, must cover the data exactly. */
static status check_tiling(const st_view *views, int64_t n, const uint8_t *data, size_t data_bytes,
                           err *e) {
    const st_view **sorted = xmalloc(sizeof(*sorted) * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) sorted[i] = &views[i];
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_place);
    status st = ST_OK;
    char shown[SHOWN_NAME_BYTES];
    const uint8_t *next = data;
    for (int64_t i = 0; i < n && st == ST_OK; i++) {
        if (sorted[i]->data != next)
            st = err_set(e, ST_FORMAT,
                         "tensor '%s' begins at byte %lld of the data, not at %lld (%s)",
                         show_name(sorted[i]->name, shown), (long long)(sorted[i]->data - data),
                         (long long)(next - data),
                         sorted[i]->data < next ? "two tensors overlap" : "there is a hole");
        next = sorted[i]->data + sorted[i]->bytes;
    }
    if (st == ST_OK && next != data + data_bytes)
        st = err_set(e, ST_FORMAT, "%lld bytes after the last tensor belong to none",
                     (long long)(data + data_bytes - next));
    free(sorted);
    return st;
}

/* Parsed JSON takes many times its text. This bounds it by the tree that tensors can need, before a
 * hundred megabytes of "{},{}," or "0,0," become gigabytes. */
static status check_extent(const char *text, size_t len, err *e) {
    size_t objects = 0, commas = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string) {
            objects += text[i] == '{';
            commas += text[i] == ',';
        }
    }
    if (objects <= MAX_TENSORS && commas <= 65536 + objects * (ST_MAX_RANK + 8)) return ST_OK;
    return err_set(e, ST_FORMAT,
                   "the header holds more than tensors need (%zu objects, %zu commas)", objects,
                   commas);
}

/* The JSON header; *data is the byte after it. */
static status parse_header(const uint8_t *bytes, size_t len, json_t **root, size_t *data, err *e) {
    if (len < 8) return err_set(e, ST_FORMAT, "%zu bytes are too few for a safetensors file", len);
    static const char pointer[] = "version https://git-lfs";
    uint64_t n = 0;
    if (len >= sizeof pointer && memcmp(bytes, pointer, sizeof pointer - 1) == 0)
        return err_set(
            e, ST_FORMAT,
            "this is a pointer of Git LFS, not the weights; `git lfs pull` fetches them");
    for (int i = 0; i < 8; i++) n |= (uint64_t)bytes[i] << (8 * i);
    if (n > ST_MAX_HEADER_BYTES)
        return err_set(e, ST_FORMAT, "the header claims %llu bytes (at most %u are allowed)",
                       (unsigned long long)n, ST_MAX_HEADER_BYTES);
    if (n > len - 8)
        return err_set(e, ST_FORMAT, "the header claims %llu bytes, but only %zu follow",
                       (unsigned long long)n, len - 8);
    if (n < 2 || bytes[8] != '{')
        return err_set(e, ST_FORMAT, "the header does not begin with '{'");
    TRY(check_extent((const char *)bytes + 8, (size_t)n, e));
    json_error_t je;
    *root = json_loadb((const char *)bytes + 8, (size_t)n, JSON_REJECT_DUPLICATES, &je);
    if (!*root && json_error_code(&je) == json_error_duplicate_key)
        return err_set(e, ST_FORMAT, "the header names a tensor or key twice (header byte %d)",
                       je.position);
    if (!*root)
        return err_set(e, ST_FORMAT, "the header is no valid JSON (header byte %d)", je.position);
    *data = 8 + (size_t)n;
    return ST_OK;
}

/* Appends the views of one file. keep: when not NULL, only names that it maps to file. */
static status add_file(st_reader *r, const uint8_t *bytes, size_t len, const char *label,
                       const json_t *keep, const char *file, err *e) {
    json_t *root = NULL;
    size_t data = 0;
    st_view *views = NULL;
    int64_t n = 0;
    status st = ST_OK;
    TRY_GOTO(st, parse_header(bytes, len, &root, &data, e), out);
    views = xcalloc(json_object_size(root) + 1, sizeof(*views));
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry) {
        if (strcmp(name, "__metadata__") == 0) {
            TRY_GOTO(st, check_metadata(entry, e), out);
            continue;
        }
        TRY_GOTO(st, parse_entry(&views[n], name, entry, bytes + data, len - data, e), out);
        views[n].name = arena_strdup(r->mem, name);
        views[n].path = label;
        n++;
    }
    TRY_GOTO(st, check_tiling(views, n, bytes + data, len - data, e), out);
    for (int64_t i = 0; i < n; i++) {
        const char *home = keep ? json_string_value(json_object_get(keep, views[i].name)) : file;
        char shown[SHOWN_NAME_BYTES];
        if (home && strcmp(home, file) != 0) {
            st = err_set(e, ST_FORMAT, "tensor '%s' is here too, but the index has it in %s",
                         show_name(views[i].name, shown), home);
            goto out;
        }
        if (home) VEC_PUSH(r->views, r->n, r->cap, views[i]);
    }
out:
    free(views);
    json_decref(root);
    return st == ST_OK ? st : at(label, st, e);
}

static status map_file(st_reader *r, const char *path, const json_t *keep, err *e) {
    file_map m;
    TRY(file_map_open(&m, path, e));
    VEC_PUSH(r->maps, r->n_maps, r->cap_maps, m);
    const char *label = arena_strdup(r->mem, path);
    return add_file(r, m.data, m.len, label, keep, path_base(label), e);
}

static int compare_string(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool plain_file_name(const char *s) {
    if (!s[0] || s[0] == '.' || strlen(s) > 255) return false;
    for (; *s; s++)
        if (*s == '/' || *s == '\\' || (unsigned char)*s < 0x20) return false;
    return true;
}

/* The distinct shard names of a weight map, sorted. */
static status list_shards(arena *a, const json_t *map, const char ***files, int *n, err *e) {
    size_t total = json_object_size(map), used = 0;
    const char **all = ARENA_ARRAY(a, const char *, total + 1);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value) {
        char shown[SHOWN_NAME_BYTES], shown_file[SHOWN_NAME_BYTES];
        show_name(name, shown);
        if (!json_is_string(value))
            return err_set(e, ST_FORMAT, "'weight_map': the file of '%s' is no string", shown);
        if (!plain_file_name(json_string_value(value)))
            return err_set(e, ST_FORMAT,
                           "'weight_map': '%s' is to lie in '%s', which is no plain file name",
                           shown, show_name(json_string_value(value), shown_file));
        all[used++] = json_string_value(value);
    }
    qsort(all, used, sizeof(*all), compare_string);
    *n = 0;
    for (size_t i = 0; i < used; i++)
        if (i == 0 || strcmp(all[i], all[i - 1]) != 0) all[(*n)++] = all[i];
    *files = all;
    if (*n == 0) return err_set(e, ST_FORMAT, "'weight_map' is empty");
    if (*n > MAX_SHARDS) return err_set(e, ST_FORMAT, "'weight_map' names %d files", *n);
    return ST_OK;
}

static int compare_name(const void *a, const void *b) {
    return strcmp((*(const st_view *const *)a)->name, (*(const st_view *const *)b)->name);
}

static void build_lookup(st_reader *r) {
    r->by_name = ARENA_ARRAY(r->mem, const st_view *, r->n + 1);
    for (int64_t i = 0; i < r->n; i++) r->by_name[i] = &r->views[i];
    qsort(r->by_name, (size_t)r->n, sizeof(*r->by_name), compare_name);
}

static status load_index(const char *path, json_t **root, const json_t **map, err *e) {
    char *text;
    size_t len;
    TRY(file_read_part(path, ST_MAX_HEADER_BYTES, &text, &len, e));
    json_error_t je;
    *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    free(text);
    if (!*root) return err_set(e, ST_FORMAT, "line %d: no valid JSON", je.line);
    *map = json_object_get(*root, "weight_map");
    if (!json_is_object(*map)) return err_set(e, ST_FORMAT, "it has no object 'weight_map'");
    return ST_OK;
}

static status open_sharded(st_reader *r, const char *dir, const char *index, err *e) {
    json_t *root = NULL;
    const json_t *map = NULL;
    const char **files = NULL;
    int n = 0;
    status st = load_index(index, &root, &map, e);
    if (st == ST_OK) st = list_shards(r->mem, map, &files, &n, e);
    if (st != ST_OK) {
        at(index, st, e);
        goto out;
    }
    r->folder = arena_strdup(r->mem, dir);
    for (int i = 0; i < n; i++)
        TRY_GOTO(st, map_file(r, path_join(r->mem, dir, files[i]), map, e), out);
    build_lookup(r);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value) {
        if (st_find(r, name)) continue;
        char shown[SHOWN_NAME_BYTES];
        st = err_set(e, ST_FORMAT, "tensor '%s' is missing from %s", show_name(name, shown),
                     json_string_value(value));
        at(index, st, e);
        goto out;
    }
out:
    json_decref(root);
    return st;
}

static status open_folder(st_reader *r, const char *dir, err *e) {
    const char *single = path_join(r->mem, dir, "model.safetensors");
    const char *index = path_join(r->mem, dir, "model.safetensors.index.json");
    if (file_exists(single)) return map_file(r, single, NULL, e);
    if (file_exists(index)) return open_sharded(r, dir, index, e);
    status st = err_set(e, ST_FORMAT,
                        "%s holds neither model.safetensors nor model.safetensors.index.json", dir);
    err_where(e, "%s", dir);
    err_hint(e, "give a folder with safetensors weights");
    return st;
}

static st_reader *reader_new(void) {
    st_reader *r = xcalloc(1, sizeof(*r));
    r->mem = arena_new("safetensors");
    return r;
}

static status reader_finish(st_reader **out, st_reader *r, status st) {
    if (st == ST_OK)
        build_lookup(r);
    else
        st_close(r);
    *out = st == ST_OK ? r : NULL;
    return st;
}

status st_open(st_reader **out, const char *path, err *e) {
    st_reader *r = reader_new();
    status st = file_is_dir(path) ? open_folder(r, path, e) : map_file(r, path, NULL, e);
    return reader_finish(out, r, st);
}

status st_open_bytes(st_reader **out, const void *bytes, size_t len, const char *label, err *e) {
    st_reader *r = reader_new();
    const char *kept = arena_strdup(r->mem, label);
    return reader_finish(out, r, add_file(r, bytes, len, kept, NULL, kept, e));
}

void st_release(const st_reader *r) {
    for (int64_t i = 0; i < r->n_maps; i++) file_map_release(&r->maps[i]);
}

void st_close(st_reader *r) {
    if (!r) return;
    for (int64_t i = 0; i < r->n_maps; i++) file_map_close(&r->maps[i]);
    free(r->maps);
    free(r->views);
    arena_free(r->mem);
    free(r);
}

int64_t st_count(const st_reader *r) {
    return r->n;
}

const st_view *st_get(const st_reader *r, int64_t i) {
    CHECK(i >= 0 && i < r->n, "tensor %lld of %lld", (long long)i, (long long)r->n);
    return &r->views[i];
}

const st_view *st_find(const st_reader *r, const char *name) {
    const st_view named = {.name = name}, *key = &named;
    const st_view *const *found =
        bsearch(&key, r->by_name, (size_t)r->n, sizeof *r->by_name, compare_name);
    return found ? *found : NULL;
}

/* ---- parts of tensors ---- */

/* The first part takes the tensor's place. */
static void cut_up(st_reader *r, int64_t at, const st_cut *c) {
    st_view v = r->views[at];
    int64_t cols = v.rank > 0 ? v.dims[v.rank - 1] : 0;
    if (cols == 0 || v.numel / cols % c->n != 0 || v.bytes % (size_t)c->n != 0) return;
    v.numel /= c->n, v.bytes /= (size_t)c->n;
    v.rank = 2, v.dims[0] = v.numel / cols, v.dims[1] = cols;
    for (int64_t i = 0; i < c->n; i++) {
        v.name = arena_strdup(r->mem, c->names[i]);
        if (i == 0)
            r->views[at] = v;
        else
            VEC_PUSH(r->views, r->n, r->cap, v);
        v.data += v.bytes;
    }
}

void st_cut_up(st_reader *r, const st_cut *cuts, int n) {
    int64_t *at = xmalloc(sizeof *at * (size_t)n); /* views move as their number grows */
    for (int i = 0; i < n; i++) at[i] = cuts[i].v - r->views;
    for (int i = 0; i < n; i++) cut_up(r, at[i], &cuts[i]);
    free(at);
    build_lookup(r);
}

/* Likeness of two names: the length of the common beginning and the common end. */
static size_t likeness(const char *a, const char *b) {
    size_t la = strlen(a), lb = strlen(b), head = 0, tail = 0;
    size_t shorter = la < lb ? la : lb;
    while (head < shorter && a[head] == b[head]) head++;
    while (tail < shorter - head && a[la - 1 - tail] == b[lb - 1 - tail]) tail++;
    return head + tail;
}

status st_require(const st_reader *r, const char *name, const st_view **v, err *e) {
    *v = st_find(r, name);
    if (*v) return ST_OK;
    const st_view *near = NULL;
    size_t best = 0;
    for (int64_t i = 0; i < r->n; i++) {
        size_t like = likeness(name, r->views[i].name);
        if (like <= best) continue;
        best = like;
        near = &r->views[i];
    }
    char shown[SHOWN_NAME_BYTES];
    const char *source = r->folder ? r->folder : r->n ? r->views[0].path : "the file";
    status st = err_at(e, ST_FORMAT, name, "%s has no tensor '%s'", source, name);
    if (near) err_hint(e, "the nearest name there is '%s'", show_name(near->name, shown));
    return st;
}

static bool is_float(dtype dt) {
    return dt == DT_F32 || dt == DT_BF16 || dt == DT_F16 || dt == DT_F64;
}

status st_view_read(const st_view *v, int64_t first, int64_t n, void *dst, dtype dt, err *e) {
    CHECK(first >= 0 && n >= 0 && first <= v->numel && n <= v->numel - first,
          "elements %lld + %lld of '%s', which has %lld", (long long)first, (long long)n, v->name,
          (long long)v->numel);
    if (v->dt != dt && (v->dt == DT_COUNT || !is_float(v->dt) || !is_float(dt))) {
        char shown[SHOWN_NAME_BYTES];
        status st =
            err_at(e, ST_FORMAT, shown, "%s: tensor '%s' is stored as %s and cannot be read as %s",
                   v->path, show_name(v->name, shown), v->format, dtype_name(dt));
        err_hint(e, "weights are read as F32, F16, BF16, F64, or E4M3 in blocks");
        return st;
    }
    size_t size = dtype_bytes(v->dt);
    const uint8_t *src = v->data + (size_t)first * size;
    if (v->dt == dt) {
        if (n) memcpy(dst, src, (size_t)n * size);
        return ST_OK;
    }
    uint64_t piece[512]; /* the mapping may be unaligned; conversion wants aligned elements */
    for (int64_t done = 0; done < n;) {
        int64_t step = n - done < 512 ? n - done : 512;
        memcpy(piece, src + (size_t)done * size, (size_t)step * size);
        dtype_convert((uint8_t *)dst + (size_t)done * dtype_bytes(dt), dt, piece, v->dt, step);
        done += step;
    }
    return ST_OK;
}
