/* Opening a Parquet file (see parquet.h): "PAR1", pages, the footer (a struct FileMetaData), its
 * length in 4 bytes, "PAR1". */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/parquet/column.h"
#include "data/text/stream.h"

enum { MAGIC_BYTES = 4, TAIL_BYTES = 8 };

status parquet_broken(const parquet *p, err *e, const char *fmt, ...) {
    char why[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    err_at(e, ST_FORMAT, p->path, "%s is a broken Parquet file: %s", p->path, why);
    return err_hint(e, "fetch it again, or restore it from a copy");
}

/* ---- bytes and memory ---- */

status parquet_read_at(const parquet *p, void *to, size_t n, uint64_t at, err *e) {
    ssize_t got = file_read_at(p->fd, to, n, at);
    if (got < 0) return err_unreadable(e, "read", p->path);
    return (size_t)got == n ? ST_OK : parquet_broken(p, e, "it has become shorter");
}

status parquet_hold(parquet *p, parquet_buffer *b, size_t n, err *e) {
    if (n <= b->cap) return ST_OK;
    parquet_release(p, b);
    if ((int64_t)n > PARQUET_HELD_MAX_BYTES - p->held) {
        err_at(e, ST_FORMAT, p->path, "pages of %s need more than %d MiB of memory at once",
               p->path, (int)(PARQUET_HELD_MAX_BYTES >> 20));
        return err_hint(e, "write it anew with smaller pages, or read fewer of its columns");
    }
    b->p = xmalloc(n);
    b->cap = n;
    p->held += (int64_t)n;
    return ST_OK;
}

void parquet_release(parquet *p, parquet_buffer *b) {
    p->held -= (int64_t)b->cap;
    free(b->p);
    *b = (parquet_buffer){0};
}

status parquet_count_made(parquet *p, uint64_t bytes, err *e) {
    p->made += bytes;
    if (p->made <= STREAM_FREE_BYTES || p->made / STREAM_MAX_RATIO <= p->bytes) return ST_OK;
    err_at(e, ST_FORMAT, p->path,
           "%s unpacks to more than %d times its size: %" PRIu64 " KiB gave %" PRIu64 " MiB so far",
           p->path, STREAM_MAX_RATIO, p->bytes >> 10, p->made >> 20);
    return err_hint(e, "if it is meant to be so, write it anew without packing and dictionaries");
}

/* ---- the footer ---- */

static void read_chunk_data(parquet *p, thrift *t, column_chunk *c, parquet_type expect) {
    int64_t entries = 0, data = 0, end = (int64_t)p->end;
    for (thrift_field f = {0}; thrift_next(t, &f);) switch (f.id) {
            case 1:
                if ((parquet_type)thrift_int(t, &f, 0, INT32_MAX) != expect)
                    thrift_fail(t, "a row group has a column of another type than the schema");
                break;
            case 4: c->codec = (int)thrift_int(t, &f, 0, INT32_MAX); break;
            case 5: c->entries = thrift_int(t, &f, 0, INT64_MAX); break;
            case 9: data = thrift_int(t, &f, 0, end); break;
            case 11: entries = thrift_int(t, &f, 0, end); break;
            default: thrift_skip(t, &f);
        }
    /* Some writers say 0 where there is no dictionary; no page begins there. */
    c->offset = (uint64_t)(entries > 0 && entries < data ? entries : data);
}

static void read_chunk(parquet *p, thrift *t, column_chunk *c, parquet_type expect) {
    bool found = false;
    size_t path_len = 0;
    for (thrift_field f = {0}; thrift_next(t, &f);) switch (f.id) {
            case 1:
                thrift_binary(t, &f, &path_len);
                c->elsewhere |= path_len > 0;
                break;
            case 3:
                found = thrift_struct(t, &f);
                read_chunk_data(p, t, c, expect);
                break;
            case 8:
                c->elsewhere = true;
                thrift_skip(t, &f);
                break;
            default: thrift_skip(t, &f);
        }
    c->elsewhere |= !found;
}

static void read_chunks(parquet *p, thrift *t, const thrift_field *f, row_group *g) {
    if (thrift_structs(t, f) != p->n_leaves)
        thrift_fail(t, "a row group has another number of columns than the schema");
    if (t->why) return;
    g->chunk = ARENA_ARRAY(p->mem, column_chunk, p->n_leaves);
    for (int i = 0; i < p->n_leaves && !t->why; i++)
        read_chunk(p, t, &g->chunk[i], p->node[p->leaf[i]].type);
}

static row_group read_group(parquet *p, thrift *t) {
    row_group g = {0};
    for (thrift_field f = {0}; thrift_next(t, &f);)
        if (f.id == 1)
            read_chunks(p, t, &f, &g);
        else if (f.id == 3)
            g.rows = thrift_int(t, &f, 0, INT64_MAX);
        else
            thrift_skip(t, &f);
    if (!g.chunk) thrift_fail(t, "a row group has no columns");
    return g;
}

static void read_groups(parquet *p, thrift *t, const thrift_field *f) {
    int cap = 0;
    int64_t n = thrift_structs(t, f);
    if (!p->leaf) thrift_fail(t, "its row groups stand before its schema");
    for (int64_t i = 0; i < n && !t->why; i++) {
        row_group g = read_group(p, t);
        if (__builtin_add_overflow(p->rows, g.rows, &p->rows))
            thrift_fail(t, "it has too many rows");
        p->group = arena_grow(p->mem, p->group, p->n_groups, &cap, sizeof *p->group);
        p->group[p->n_groups++] = g;
    }
}

static status encrypted(const parquet *p, err *e) {
    err_at(e, ST_FORMAT, p->path, "%s is an encrypted Parquet file", p->path);
    return err_hint(e, "decrypt it first: no keys are known here");
}

static status parse_footer(parquet *p, const char *data, size_t n, err *e) {
    thrift t = {.p = (const uint8_t *)data, .end = (const uint8_t *)data + n};
    bool schema = false;
    for (thrift_field f = {0}; thrift_next(&t, &f);) switch (f.id) {
            case 2:
                if (schema) thrift_fail(&t, "it has two schemas");
                schema_read(p, &t, &f);
                schema = true;
                break;
            case 4: read_groups(p, &t, &f); break;
            case 8: return encrypted(p, e);
            default: thrift_skip(&t, &f);
        }
    if (!schema) thrift_fail(&t, "it has no schema");
    return t.why ? parquet_broken(p, e, "in its footer %s", t.why) : ST_OK;
}

/* ---- opening ---- */

static status no_parquet(const parquet *p, err *e, const char *why) {
    err_at(e, ST_FORMAT, p->path, "%s is no Parquet file: %s", p->path, why);
    return err_hint(
        e, "a download may have been cut off: fetch it again; a packed file is unpacked first");
}

/* The tail tells where the footer begins, and "PARE" in place of "PAR1" that it is encrypted. */
static status check_ends(parquet *p, err *e) {
    char magic[MAGIC_BYTES], tail[TAIL_BYTES];
    uint32_t footer;
    if (p->bytes < MAGIC_BYTES + TAIL_BYTES) return no_parquet(p, e, "it is too short");
    TRY(parquet_read_at(p, magic, sizeof magic, 0, e));
    TRY(parquet_read_at(p, tail, sizeof tail, p->bytes - TAIL_BYTES, e));
    if (memcmp(tail + 4, "PARE", MAGIC_BYTES) == 0) return encrypted(p, e);
    if (memcmp(magic, "PAR1", MAGIC_BYTES) != 0)
        return no_parquet(p, e, "it does not begin with PAR1");
    if (memcmp(tail + 4, "PAR1", MAGIC_BYTES) != 0)
        return no_parquet(p, e, "it does not end with PAR1");
    memcpy(&footer, tail, sizeof footer);
    if (footer > p->bytes - MAGIC_BYTES - TAIL_BYTES)
        return parquet_broken(p, e, "its footer would be larger than the file");
    if (footer > PARQUET_FOOTER_MAX_BYTES)
        return parquet_broken(p, e, "its footer has more than %d MiB",
                              (int)(PARQUET_FOOTER_MAX_BYTES >> 20));
    p->end = p->bytes - TAIL_BYTES - footer;
    return ST_OK;
}

static status read_footer(parquet *p, err *e) {
    TRY(check_ends(p, e));
    size_t n = (size_t)(p->bytes - TAIL_BYTES - p->end);
    char *data = xmalloc(n + 1);
    status st = parquet_read_at(p, data, n, p->end, e);
    if (st == ST_OK) st = parse_footer(p, data, n, e);
    free(data);
    return st;
}

status parquet_open(parquet **out, const char *path, err *e) {
    int64_t bytes;
    int fd;
    *out = NULL;
    TRY(file_open_part(path, &fd, &bytes, e));
    arena *a = arena_new("parquet");
    parquet *p = ARENA_NEW(a, parquet);
    *p = (parquet){.mem = a, .fd = fd, .bytes = (uint64_t)bytes};
    p->path = arena_strdup(a, path);
    status st = read_footer(p, e);
    if (st == ST_OK)
        *out = p;
    else
        parquet_close(p);
    return st;
}

void parquet_close(parquet *p) {
    if (!p) return;
    close(p->fd);
    parquet_release(p, &p->packed);
    unpack_end(p);
    arena_free(p->mem);
}

int64_t parquet_n_rows(const parquet *p) {
    return p->rows;
}
