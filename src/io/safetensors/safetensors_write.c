/* Writes safetensors files, by one process or several.
 *
 * Invariant: exactly the declared bytes follow the header, or the file of st_write does not stay.
 *
 * Reading order: build_header, st_write, append_tensor; st_create, st_locate, st_hash. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_fault.h"
#include "base/strbuf.h"
#include "io/safetensors/safetensors.h"

enum {
    DATA_ALIGN = 64,
    PIECE_BYTES = 1 << 20, /* written at once */
    HASH_BYTES = 1 << 20   /* hashed twice while it is in the cache */
};

/* ---- the header ---- */

static int64_t tensor_elements(const st_tensor *t) {
    CHECK(t->rank >= 0 && t->rank <= ST_MAX_RANK, "tensor '%s' has rank %d", t->name, t->rank);
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        CHECK(t->dims[i] >= 0 && !__builtin_mul_overflow(n, t->dims[i], &n),
              "tensor '%s': dimension %d is %lld", t->name, i, (long long)t->dims[i]);
    return n;
}

uint64_t st_tensor_bytes(const st_tensor *t) {
    return (uint64_t)tensor_elements(t) * dtype_bytes(t->dt);
}

static json_t *describe(const st_tensor *t, uint64_t begin) {
    json_t *shape = json_array();
    for (int i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer(t->dims[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", st_format_name(t->dt), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + st_tensor_bytes(t)));
}

/* Appends length prefix, JSON and padding: a function of names, shapes and dtypes alone. Returns the
 * bytes of data that must follow. */
static uint64_t build_header(strbuf *b, const st_tensor *tensors, int64_t n) {
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *name = tensors[i].name;
        CHECK(!json_object_get(root, name), "tensor '%s' is declared twice", name);
        int failed = json_object_set_new(root, name, describe(&tensors[i], at));
        CHECK(failed == 0, "tensor name '%s' is not UTF-8", name);
        at += st_tensor_bytes(&tensors[i]);
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

/* ---- by one process ---- */

uint64_t st_file_bytes(const st_tensor *tensors, int64_t n) {
    strbuf header = {0};
    uint64_t bytes = build_header(&header, tensors, n) + header.len;
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
    int64_t n = tensor_elements(t), size = (int64_t)dtype_bytes(t->dt);
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

status st_write(const char *path, const st_tensor *tensors, int64_t n, err *e) {
    strbuf header = {0};
    build_header(&header, tensors, n);
    file_out out;
    status st = file_out_open(&out, path, e);
    if (st == ST_OK) {
        st = file_out_write(&out, header.data, header.len, e);
        for (int64_t i = 0; i < n && st == ST_OK; i++) st = append_tensor(&out, &tensors[i], e);
        if (st == ST_OK)
            st = file_out_close(&out, NULL, e);
        else
            file_out_abandon(&out);
        if (st != ST_OK) file_sys_unlinkat(AT_FDCWD, path, 0); /* no half file stays */
    }
    strbuf_free(&header);
    return st;
}

/* ---- by several ---- */

static status write_header(int fd, const char *path, const strbuf *header, uint64_t total, err *e) {
    for (size_t done = 0; done < header->len;) {
        ssize_t put = file_sys_write(fd, header->data + done, header->len - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return err_errno(e, path, "cannot write %s", path);
        done += (size_t)put;
    }
    if (file_sys_ftruncate(fd, (off_t)total) == 0) return ST_OK;
    return err_errno(e, path, "cannot give %s its length", path);
}

status st_create(const char *path, const st_tensor *tensors, int64_t n, err *e) {
    strbuf header = {0};
    uint64_t data_bytes = build_header(&header, tensors, n);
    int fd;
    status st = file_create(path, &fd, e);
    if (st == ST_OK) st = write_header(fd, path, &header, header.len + data_bytes, e);
    if (fd >= 0 && close(fd) != 0 && st == ST_OK) st = err_errno(e, path, "cannot close %s", path);
    if (fd >= 0 && st != ST_OK) file_sys_unlinkat(AT_FDCWD, path, 0); /* no half file stays */
    strbuf_free(&header);
    return st;
}

void st_locate(const st_tensor *tensors, int64_t n, uint64_t *first_byte) {
    strbuf header = {0};
    build_header(&header, tensors, n);
    uint64_t at = header.len;
    strbuf_free(&header);
    for (int64_t i = 0; i < n; i++) {
        first_byte[i] = at;
        at += st_tensor_bytes(&tensors[i]);
    }
}

static void update(XXH3_state_t *all, XXH3_state_t *one, const uint8_t *p, uint64_t n) {
    for (uint64_t done = 0; done < n;) {
        size_t now = n - done < HASH_BYTES ? (size_t)(n - done) : HASH_BYTES;
        XXH3_64bits_update(all, p + done, now);
        if (one) XXH3_64bits_update(one, p + done, now);
        done += now;
    }
}

static void hash_map(const file_map *m, const uint64_t *first_byte, int64_t n, uint64_t *hash,
                     uint64_t *tensor_hashes) {
    XXH3_state_t *all = XXH3_createState(), *one = XXH3_createState();
    CHECK(all && one, "no memory for hash states");
    XXH3_64bits_reset(all);
    update(all, NULL, m->data, n > 0 ? first_byte[0] : m->len);
    for (int64_t i = 0; i < n; i++) {
        uint64_t end = i + 1 < n ? first_byte[i + 1] : m->len;
        XXH3_64bits_reset(one);
        update(all, one, m->data + first_byte[i], end - first_byte[i]);
        tensor_hashes[i] = XXH3_64bits_digest(one);
    }
    *hash = XXH3_64bits_digest(all);
    XXH3_freeState(all);
    XXH3_freeState(one);
}

status st_hash(const char *path, const st_tensor *tensors, int64_t n, uint64_t *hash,
               uint64_t *tensor_hashes, err *e) {
    file_map m;
    TRY(file_map_open(&m, path, e));
    status st = ST_OK;
    if (m.len != st_file_bytes(tensors, n)) {
        st = err_set(e, ST_FAILED, "%s has changed its length while it was written", path);
        err_where(e, "%s", path);
    } else {
        uint64_t *first_byte = xmalloc(sizeof *first_byte * (size_t)(n + 1));
        st_locate(tensors, n, first_byte);
        hash_map(&m, first_byte, n, hash, tensor_hashes);
        free(first_byte);
    }
    file_map_close(&m);
    return st;
}
