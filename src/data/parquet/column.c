/* See column.h. Page after page: its header, its bytes, unpacked; then levels and values begin. */
#include "data/parquet/column.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 };
enum { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3 }; /* encodings */
enum { HEADER_BYTES = 1 << 10, HEADER_MAX_BYTES = 16 << 20 };

typedef struct page_header {
    int type;
    size_t unpacked, packed; /* bytes of the page */
    bool has_crc, plain;     /* plain: the values of this page are not packed */
    uint32_t crc;
    int64_t entries;
    int encoding, def_encoding, rep_encoding;
    size_t def_bytes, rep_bytes; /* version 2: of the levels, which are never packed */
} page_header;

/* What may be right, but is not read here. */
static status refused(const column *c, err *e, const char *what, const char *hint) {
    const parquet *p = c->file;
    arena *a = arena_new("path");
    err_at(e, ST_FORMAT, p->path, "column %s of %s %s", schema_path(p, p->leaf[c->number], a),
           p->path, what);
    arena_free(a);
    return err_hint(e, "%s", hint);
}

/* What is wrong, or what values_open said. */
static status broken(const column *c, err *e, const char *why) {
    if (why == values_unread) return refused(c, e, why, "write it anew with usual encodings");
    arena *a = arena_new("path");
    const char *path = schema_path(c->file, c->file->leaf[c->number], a);
    status st = parquet_broken(c->file, e, "column %s, row group %d: %s", path, c->group + 1, why);
    arena_free(a);
    return st;
}

/* ---- headers ---- */

/* Version 1 has its encodings in this order; the header of a dictionary page begins as this one. */
static void read_data_header(thrift *t, page_header *h) {
    for (thrift_field f = {0}; thrift_next(t, &f);) switch (f.id) {
            case 1: h->entries = thrift_int(t, &f, 0, INT32_MAX); break;
            case 2: h->encoding = (int)thrift_int(t, &f, 0, INT32_MAX); break;
            case 3:
                if (h->type == DATA_PAGE)
                    h->def_encoding = (int)thrift_int(t, &f, 0, INT32_MAX);
                else
                    thrift_skip(t, &f);
                break;
            case 4: h->rep_encoding = (int)thrift_int(t, &f, 0, INT32_MAX); break;
            default: thrift_skip(t, &f);
        }
}

static void read_data_header_v2(thrift *t, page_header *h) {
    for (thrift_field f = {0}; thrift_next(t, &f);) switch (f.id) {
            case 1: h->entries = thrift_int(t, &f, 0, INT32_MAX); break;
            case 4: h->encoding = (int)thrift_int(t, &f, 0, INT32_MAX); break;
            case 5: h->def_bytes = (size_t)thrift_int(t, &f, 0, INT32_MAX); break;
            case 6: h->rep_bytes = (size_t)thrift_int(t, &f, 0, INT32_MAX); break;
            case 7: h->plain = !thrift_bool(t, &f); break;
            default: thrift_skip(t, &f);
        }
}

static void read_page_header(thrift *t, page_header *h) {
    *h = (page_header){.type = -1, .encoding = -1, .def_encoding = RLE, .rep_encoding = RLE};
    for (thrift_field f = {0}; thrift_next(t, &f);) switch (f.id) {
            case 1: h->type = (int)thrift_int(t, &f, 0, INT32_MAX); break;
            case 2: h->unpacked = (size_t)thrift_int(t, &f, 0, INT32_MAX); break;
            case 3: h->packed = (size_t)thrift_int(t, &f, 0, INT32_MAX); break;
            case 4:
                h->crc = (uint32_t)thrift_int(t, &f, INT32_MIN, INT32_MAX);
                h->has_crc = true;
                break;
            case 5:
            case 7:
                if (thrift_struct(t, &f)) read_data_header(t, h);
                break;
            case 8:
                if (thrift_struct(t, &f)) read_data_header_v2(t, h);
                break;
            default: thrift_skip(t, &f);
        }
}

/* How long a header is, is known at its end: what is looked at grows until it is there. */
static status next_header(column *c, page_header *h, err *e) {
    parquet *p = c->file;
    uint64_t left = p->end - c->at;
    for (size_t n = HEADER_BYTES;; n *= 4) {
        if (n > left) n = (size_t)left;
        TRY(parquet_hold(p, &p->packed, n + 1, e));
        TRY(parquet_read_at(p, p->packed.p, n, c->at, e));
        thrift t = {.p = p->packed.p, .end = p->packed.p + n};
        read_page_header(&t, h);
        bool cut_off = t.why && strcmp(t.why, THRIFT_ENDS_TOO_EARLY) == 0;
        if (cut_off && n < left && n < HEADER_MAX_BYTES) continue;
        if (t.why) return broken(c, e, cut_off ? "the header of a page ends too early" : t.why);
        c->at += (uint64_t)(t.p - p->packed.p);
        return ST_OK;
    }
}

/* ---- pages ---- */

/* The page's bytes, unpacked but for the first `plain` ones, which are copied. */
static status load_page(column *c, const page_header *h, size_t plain, parquet_buffer *to, err *e) {
    parquet *p = c->file;
    int codec = h->plain ? 0 : c->codec;
    if (h->packed > p->end - c->at) return broken(c, e, "a page ends beyond the end of the pages");
    if (plain > h->packed || plain > h->unpacked)
        return broken(c, e, "levels are longer than their page");
    TRY(parquet_count_made(p, h->unpacked, e));
    TRY(parquet_hold(p, &p->packed, h->packed + 1, e));
    TRY(parquet_read_at(p, p->packed.p, h->packed, c->at, e));
    if (h->has_crc && crc32(0, p->packed.p, (uInt)h->packed) != h->crc)
        return broken(c, e, "a page does not have the checksum that it should have");
    TRY(parquet_hold(p, to, h->unpacked + 1, e));
    memcpy(to->p, p->packed.p, plain);
    const char *why = unpack_page(p, codec, p->packed.p + plain, h->packed - plain, to->p + plain,
                                  h->unpacked - plain);
    return why ? broken(c, e, why) : ST_OK;
}

static status load_dictionary(column *c, const page_header *h, err *e) {
    if (c->has_dictionary) return broken(c, e, "there are two dictionaries");
    if (h->encoding != PLAIN && h->encoding != PLAIN_DICTIONARY) return broken(c, e, values_unread);
    TRY(load_page(c, h, 0, &c->dictionary_page, e));
    const char *why = dictionary_open(&c->dictionary, c->node, c->dictionary_page.p, h->unpacked,
                                      (uint32_t)h->entries);
    c->has_dictionary = true;
    return why ? broken(c, e, why) : ST_OK;
}

static int bits_of(int max_level) {
    return max_level ? 32 - __builtin_clz((unsigned)max_level) : 0;
}

/* Levels of version 1: their length, then they. None where they could only be 0. */
static const char *open_levels(hybrid *levels, const uint8_t **p, const uint8_t *end, int max_level,
                               int encoding) {
    uint32_t n;
    if (max_level == 0) return NULL;
    if (encoding != RLE) return values_unread;
    if (end - *p < 4) return "levels are cut off";
    memcpy(&n, *p, 4);
    *p += 4;
    if (n > (size_t)(end - *p)) return "levels are longer than their page";
    *levels = (hybrid){.p = *p, .end = *p + n, .width = bits_of(max_level)};
    *p += n;
    return NULL;
}

static status load_data(column *c, const page_header *h, err *e) {
    bool v2 = h->type == DATA_PAGE_V2;
    size_t levels = v2 ? h->rep_bytes + h->def_bytes : 0;
    if (h->entries > c->left) return broken(c, e, "its pages hold more values than it should have");
    TRY(load_page(c, h, levels, &c->page, e));
    const uint8_t *p = c->page.p, *end = p + h->unpacked;
    const char *why = NULL;
    if (v2) {
        c->rep_levels =
            (hybrid){.p = p, .end = p + h->rep_bytes, .width = bits_of(c->node->max_rep)};
        p += h->rep_bytes;
        c->def_levels =
            (hybrid){.p = p, .end = p + h->def_bytes, .width = bits_of(c->node->max_def)};
        p += h->def_bytes;
    } else {
        why = open_levels(&c->rep_levels, &p, end, c->node->max_rep, h->rep_encoding);
        if (!why) why = open_levels(&c->def_levels, &p, end, c->node->max_def, h->def_encoding);
    }
    /* A page of nulls may have no values at all, not even the beginning of some. */
    bool no_values = !why && p == end;
    if (!why)
        why = values_open(&c->values, c->node, no_values ? PLAIN : h->encoding, p,
                          (size_t)(end - p), c->has_dictionary ? &c->dictionary : NULL);
    c->left -= h->entries;
    c->in_page = h->entries;
    return why ? broken(c, e, why) : ST_OK;
}

/* Pages of other types, indexes say, are passed over. */
static status next_page(column *c, err *e) {
    page_header h;
    TRY(next_header(c, &h, e));
    if (h.type == DICTIONARY_PAGE)
        TRY(load_dictionary(c, &h, e));
    else if (h.type == DATA_PAGE || h.type == DATA_PAGE_V2)
        TRY(load_data(c, &h, e));
    if (h.packed > c->file->end - c->at)
        return broken(c, e, "a page ends beyond the end of the pages");
    c->at += h.packed;
    return ST_OK;
}

/* ---- entries ---- */

status column_open(column *c, parquet *p, int group, int leaf, err *e) {
    const column_chunk *chunk = &p->group[group].chunk[leaf];
    c->file = p;
    c->node = &p->node[p->leaf[leaf]];
    c->number = leaf;
    c->group = group;
    c->codec = chunk->codec;
    c->at = chunk->offset;
    c->left = chunk->entries;
    c->in_page = 0;
    c->has_dictionary = c->ended = false;
    c->rep = c->def = 0;
    c->value = NULL;
    if (chunk->elsewhere)
        return refused(c, e, "is encrypted, or in another file",
                       "write the data anew into one file that is not encrypted");
    const char *packing = unpack_refused(c->codec);
    if (!packing) return ST_OK;
    char what[64];
    snprintf(what, sizeof what, "is packed with %s, which is not read", packing);
    return refused(c, e, what, "write it anew with zstd, snappy or gzip");
}

void column_close(column *c) {
    if (!c->file) return;
    parquet_release(c->file, &c->page);
    parquet_release(c->file, &c->dictionary_page);
    free(c->dictionary.offset);
    values_free(&c->values);
    *c = (column){0};
}

static bool next_level(hybrid *levels, int max, uint32_t *level) {
    return max == 0 || (hybrid_next(levels, level) && *level <= (uint32_t)max);
}

status column_next(column *c, err *e) {
    const parquet_node *n = c->node;
    c->value = NULL;
    while (c->in_page == 0 && c->left > 0) TRY(next_page(c, e));
    c->ended = c->in_page == 0;
    if (c->ended) return ST_OK;
    c->in_page--;
    if (!next_level(&c->rep_levels, n->max_rep, &c->rep) ||
        !next_level(&c->def_levels, n->max_def, &c->def))
        return broken(c, e, "the levels of a page are damaged, or too few");
    if (c->def < (uint32_t)n->max_def) return ST_OK;
    if (!values_next(&c->values, &c->value, &c->len))
        return broken(c, e, "the values of a page are damaged, or too few");
    return ST_OK;
}
