/* See values.h. */
#include "data/parquet/values.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "data/parquet/thrift.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are taken as they lie");

/* The numbers of the format. */
enum {
    PLAIN = 0,
    PLAIN_DICTIONARY = 2,
    RLE = 3,
    DELTA_BINARY_PACKED = 5,
    DELTA_LENGTH_BYTE_ARRAY = 6,
    DELTA_BYTE_ARRAY = 7,
    RLE_DICTIONARY = 8,
    BYTE_STREAM_SPLIT = 9,
};

const char values_unread[] = "has an encoding that is not read";
static const char CUT_OFF[] = "a page has fewer bytes than it should";

/* ---- bits, the lowest first ---- */

/* `width` bits (at most 64) from bit `at` on; the caller has seen to it that they are there. */
static uint64_t take_bits(const uint8_t *p, const uint8_t *end, uint64_t at, int width) {
    uint64_t low = 0, high = 0;
    if (width == 0) return 0;
    p += at / 8;
    size_t room = (size_t)(end - p);
    memcpy(&low, p, room < 8 ? room : 8);
    int shift = (int)(at % 8);
    if (shift + width > 64) high = (uint64_t)p[8] << (64 - shift);
    uint64_t bits = low >> shift | high;
    return width == 64 ? bits : bits & ((UINT64_C(1) << width) - 1);
}

static bool has_bits(const uint8_t *p, const uint8_t *end, uint64_t at, int width) {
    return at + (uint64_t)width <= (uint64_t)(end - p) * 8;
}

/* ---- hybrid ---- */

static bool open_run(hybrid *h) {
    uint64_t header;
    size_t bytes = (size_t)(h->width + 7) / 8;
    if (!varint_read(&h->p, h->end, &header) || header >> 1 > UINT32_MAX) return false;
    h->packed = NULL;
    h->left = header >> 1;
    if (header & 1) { /* groups of eight numbers; the last run of a page may be cut short */
        size_t room = (size_t)(h->end - h->p);
        uint64_t n = h->left * (uint64_t)h->width;
        h->packed = h->p;
        h->at = 0;
        h->left *= 8;
        h->p += n < room ? n : room;
        return true;
    }
    if ((size_t)(h->end - h->p) < bytes) return false;
    h->value = 0;
    memcpy(&h->value, h->p, bytes);
    h->p += bytes;
    return h->width == 32 || h->value >> h->width == 0;
}

bool hybrid_next(hybrid *h, uint32_t *value) {
    while (h->left == 0)
        if (!open_run(h)) return false;
    h->left--;
    if (h->packed) {
        if (!has_bits(h->packed, h->end, h->at, h->width)) return false;
        h->value = (uint32_t)take_bits(h->packed, h->end, h->at, h->width);
        h->at += (uint64_t)h->width;
    }
    *value = h->value;
    return true;
}

/* ---- delta ---- */

enum { MINI_MULTIPLE = 32, MAX_BLOCK = 1 << 24 };

bool delta_open(delta *d, const uint8_t *p, const uint8_t *end) {
    uint64_t first;
    *d = (delta){.p = p, .end = end, .first = true};
    bool ok = varint_read(&d->p, end, &d->block) && varint_read(&d->p, end, &d->minis) &&
              varint_read(&d->p, end, &d->left) && varint_read(&d->p, end, &first);
    if (!ok || d->block == 0 || d->block > MAX_BLOCK || d->minis == 0 || d->block % d->minis != 0)
        return false;
    d->value = (uint64_t)zigzag(first);
    return d->block / d->minis % MINI_MULTIPLE == 0;
}

/* Reads the head of a block and finds where it ends. Miniblocks after the last value have no
 * bytes. */
static bool open_block(delta *d, uint64_t differences) {
    uint64_t min, mini = d->block / d->minis;
    if (!varint_read(&d->p, d->end, &min) || d->minis > (uint64_t)(d->end - d->p)) return false;
    d->min_delta = (uint64_t)zigzag(min);
    d->widths = d->p;
    d->p += d->minis;
    d->bits = d->p;
    d->in_block = 0;
    uint64_t used = differences / mini + (differences % mini > 0); /* a sum could overflow */
    for (uint64_t i = 0; i < d->minis && i < used; i++) {
        uint64_t bytes = mini / 8 * d->widths[i];
        if (d->widths[i] > 64 || bytes > (uint64_t)(d->end - d->p)) return false;
        d->p += bytes;
    }
    return true;
}

bool delta_next(delta *d, int64_t *value) {
    if (d->left == 0) return false;
    if (d->first) {
        d->first = false;
    } else {
        if ((!d->widths || d->in_block == d->block) && !open_block(d, d->left)) return false;
        uint64_t mini = d->block / d->minis, in_mini = d->in_block % mini;
        int width = d->widths[d->in_block / mini];
        d->value += d->min_delta + take_bits(d->bits, d->end, in_mini * (uint64_t)width, width);
        d->in_block++;
        if (in_mini + 1 == mini) d->bits += mini / 8 * (uint64_t)width;
    }
    d->left--;
    *value = (int64_t)d->value;
    return true;
}

const uint8_t *delta_end(const delta *opened) {
    delta d = *opened;
    uint64_t differences = d.left > 0 ? d.left - 1 : 0;
    while (differences > 0) {
        if (!open_block(&d, differences)) return NULL;
        differences -= differences < d.block ? differences : d.block;
    }
    return d.p;
}

/* ---- dictionary ---- */

static bool take_length(const uint8_t **p, const uint8_t *end, uint32_t *len) {
    if (end - *p < 4) return false;
    memcpy(len, *p, 4);
    *p += 4;
    return *len <= (size_t)(end - *p);
}

const char *dictionary_open(dictionary *d, const parquet_node *n, const uint8_t *p, size_t len,
                            uint32_t entries) {
    const uint8_t *at = p, *end = p + len;
    free(d->offset);
    *d = (dictionary){.p = p, .n = entries};
    if (n->type == PARQUET_BOOLEAN) return "truth values have a dictionary";
    if (n->type != PARQUET_BYTES) return entries <= len / (size_t)n->bytes ? NULL : CUT_OFF;
    if (entries > len / 4) return CUT_OFF;
    d->offset = xmalloc(((size_t)entries + 1) * sizeof *d->offset);
    for (uint32_t i = 0; i < entries; i++) {
        uint32_t bytes;
        if (!take_length(&at, end, &bytes)) return CUT_OFF;
        d->offset[i] = (uint32_t)(at - p);
        at += bytes;
    }
    d->offset[entries] = (uint32_t)(at + 4 - p);
    return NULL;
}

static bool next_in_dictionary(values *v, const uint8_t **value, size_t *len) {
    const dictionary *d = v->dictionary;
    uint32_t i;
    if (!hybrid_next(&v->index, &i) || i >= d->n) return false;
    *value = d->p + (d->offset ? d->offset[i] : (size_t)i * (size_t)v->bytes);
    *len = d->offset ? d->offset[i + 1] - 4 - d->offset[i] : (size_t)v->bytes;
    return true;
}

/* ---- the other encodings ---- */

static bool next_plain(values *v, const uint8_t **value, size_t *len) {
    uint32_t n = (uint32_t)v->bytes;
    if (v->type == PARQUET_BOOLEAN) {
        if (!has_bits(v->p, v->end, v->at, 1)) return false;
        v->scalar[0] = (uint8_t)take_bits(v->p, v->end, v->at++, 1);
        *value = v->scalar;
        *len = 1;
        return true;
    }
    if (v->type == PARQUET_BYTES && !take_length(&v->p, v->end, &n)) return false;
    if (n > (size_t)(v->end - v->p)) return false;
    *value = v->p;
    *len = n;
    v->p += n;
    return true;
}

static bool next_truth(values *v, const uint8_t **value, size_t *len) {
    uint32_t truth;
    if (!hybrid_next(&v->index, &truth)) return false;
    v->scalar[0] = (uint8_t)truth;
    *value = v->scalar;
    *len = 1;
    return true;
}

static bool next_number(values *v, const uint8_t **value, size_t *len) {
    int64_t number;
    if (!delta_next(&v->numbers, &number)) return false;
    memcpy(v->scalar, &number, 8); /* of a shorter one the lower bytes */
    *value = v->scalar;
    *len = (size_t)v->bytes;
    return true;
}

static bool next_piece(values *v, const uint8_t **value, size_t *len) {
    int64_t n;
    if (!delta_next(&v->numbers, &n) || n < 0 || n > v->end - v->p) return false;
    *value = v->p;
    *len = (size_t)n;
    v->p += n;
    return true;
}

/* The beginning of the value before it, and a piece. */
static bool next_front_coded(values *v, const uint8_t **value, size_t *len) {
    int64_t same;
    const uint8_t *piece;
    size_t n;
    if (!delta_next(&v->prefix, &same) || !next_piece(v, &piece, &n)) return false;
    if (same < 0 || (uint64_t)same > v->text.len) return false;
    strbuf_truncate(&v->text, (size_t)same);
    strbuf_append(&v->text, piece, n);
    *value = (const uint8_t *)strbuf_cstr(&v->text);
    *len = v->text.len;
    return v->type == PARQUET_BYTES || *len == (size_t)v->bytes;
}

/* All first bytes, all second bytes, and so on. */
static bool next_split(values *v, const uint8_t **value, size_t *len) {
    if (v->at == v->n) return false;
    for (int i = 0; i < v->bytes; i++) v->text.data[i] = (char)v->p[(uint64_t)i * v->n + v->at];
    v->at++;
    *value = (const uint8_t *)v->text.data;
    *len = (size_t)v->bytes;
    return true;
}

/* ---- all ---- */

static const char *open_index(values *v) {
    if (!v->dictionary) return "a page needs a dictionary, and there is none";
    if (v->p == v->end) return NULL;
    v->index.width = *v->p;
    v->index.p = v->p + 1;
    return v->index.width <= 32 ? NULL : "numbers of dictionary entries have more than 32 bits";
}

static const char *open_truths(values *v) {
    uint32_t n;
    if (!take_length(&v->p, v->end, &n)) return CUT_OFF;
    v->index = (hybrid){.p = v->p, .end = v->p + n, .width = 1};
    return NULL;
}

static const char *open_pieces(values *v, const uint8_t *p) {
    if (!delta_open(&v->numbers, p, v->end)) return "lengths in a page are broken";
    v->p = delta_end(&v->numbers);
    return v->p ? NULL : CUT_OFF;
}

static const char *open_front_coded(values *v) {
    const uint8_t *after = delta_open(&v->prefix, v->p, v->end) ? delta_end(&v->prefix) : NULL;
    return after ? open_pieces(v, after) : "lengths in a page are broken";
}

static const char *open_split(values *v) {
    size_t bytes = (size_t)(v->end - v->p);
    v->n = bytes / (size_t)v->bytes;
    strbuf_extend(&v->text, (size_t)v->bytes);
    return bytes % (size_t)v->bytes ? CUT_OFF : NULL;
}

static bool fits(parquet_type type, int encoding) {
    bool bytes = type == PARQUET_BYTES, fixed = type == PARQUET_FIXED_BYTES;
    switch (encoding) {
        case RLE: return type == PARQUET_BOOLEAN;
        case DELTA_BINARY_PACKED: return type == PARQUET_INT32 || type == PARQUET_INT64;
        case DELTA_LENGTH_BYTE_ARRAY: return bytes;
        case DELTA_BYTE_ARRAY: return bytes || fixed;
        case BYTE_STREAM_SPLIT: return !bytes && type != PARQUET_BOOLEAN;
        default:
            return encoding == PLAIN || encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY;
    }
}

const char *values_open(values *v, const parquet_node *n, int encoding, const uint8_t *p,
                        size_t len, const dictionary *d) {
    strbuf text = v->text;
    strbuf_clear(&text);
    *v = (values){.type = n->type,
                  .bytes = n->bytes,
                  .encoding = encoding,
                  .p = p,
                  .end = p + len,
                  .dictionary = d,
                  .index = {.p = p, .end = p + len},
                  .text = text};
    if (!fits(n->type, encoding)) return values_unread;
    switch (encoding) {
        case PLAIN_DICTIONARY:
        case RLE_DICTIONARY: return open_index(v);
        case RLE: return open_truths(v);
        case DELTA_BINARY_PACKED:
            return delta_open(&v->numbers, p, v->end) ? NULL : "differences in a page are broken";
        case DELTA_LENGTH_BYTE_ARRAY: return open_pieces(v, p);
        case DELTA_BYTE_ARRAY: return open_front_coded(v);
        case BYTE_STREAM_SPLIT: return open_split(v);
        default: return NULL;
    }
}

bool values_next(values *v, const uint8_t **value, size_t *len) {
    switch (v->encoding) {
        case PLAIN_DICTIONARY:
        case RLE_DICTIONARY: return next_in_dictionary(v, value, len);
        case RLE: return next_truth(v, value, len);
        case DELTA_BINARY_PACKED: return next_number(v, value, len);
        case DELTA_LENGTH_BYTE_ARRAY: return next_piece(v, value, len);
        case DELTA_BYTE_ARRAY: return next_front_coded(v, value, len);
        case BYTE_STREAM_SPLIT: return next_split(v, value, len);
        default: return next_plain(v, value, len);
    }
}

void values_free(values *v) {
    strbuf_free(&v->text);
}
