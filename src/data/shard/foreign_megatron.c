/* Megatron's data sets: NAME.bin holds the ids of all sequences end to end, NAME.idx says
 *
 *   0  "MMIDIDX\0\0"   9  u64 version 1   17  u8 type of an id
 *  18  u64 sequences   26  u64 entries of the document list
 *  34  i32 length of each sequence, i64 byte where it begins, i64 document list
 *      (the sequences before each document: 0 first, the number of all last), and for multimodal
 *      sets an i8 for each sequence, which is not read
 *
 * Where the list does not span all sequences, each sequence is taken as a document. */
#include "data/shard/foreign.h"

#include <inttypes.h>
#include <string.h>

enum { HEAD_BYTES = 34, WINDOW = 64 };

/* Places in the .idx. */
static uint64_t length_at(uint64_t sequence) {
    return HEAD_BYTES + 4 * sequence;
}
static uint64_t pointer_at(const shard *sh, uint64_t sequence) {
    return HEAD_BYTES + 4 * sh->sequences + 8 * sequence;
}
static uint64_t document_at(const shard *sh, uint64_t i) {
    return HEAD_BYTES + 12 * sh->sequences + 8 * i;
}

static status read_idx(const shards *s, int number, uint64_t offset, void *buf, size_t n, err *e) {
    return shard_read(s, number, SHARD_DOCUMENTS, offset, buf, n, e);
}

static status idx_error(const shards *s, int number, const char *what, err *e) {
    return shard_error(s, number, SHARD_DOCUMENTS, e, "%s", what);
}

/* ---- opening ---- */

static status parse_type(const shards *s, int number, uint8_t code, shard_item *item, err *e) {
    static const struct {
        uint8_t code;
        shard_item item;
    } TYPES[] = {{1, ITEM_U8},  {2, ITEM_I8},  {3, ITEM_I16},
                 {4, ITEM_I32}, {5, ITEM_I64}, {8, ITEM_U16}};
    for (int i = 0; i < ARRAY_LEN(TYPES); i++)
        if (TYPES[i].code == code) {
            *item = TYPES[i].item;
            return ST_OK;
        }
    return shard_error(s, number, SHARD_DOCUMENTS, e, "says that ids are of type %u: no integers",
                       code);
}

/* The sections must fill the file; this bounds both counts. */
static status check_sizes(shards *s, int number, uint64_t bytes, uint64_t sequences,
                          uint64_t entries, err *e) {
    uint64_t rest = bytes - HEAD_BYTES;
    if (sequences > rest / 12) return idx_error(s, number, "is truncated", e);
    rest -= sequences * 12;
    if (entries > rest / 8) return idx_error(s, number, "is truncated", e);
    rest -= entries * 8;
    if (rest != 0 && rest != sequences) return idx_error(s, number, "is too long", e);
    s->shard[number].sequences = sequences;
    return ST_OK;
}

/* The sequences must fill the .bin. */
static status check_pointers(const shards *s, int number, uint64_t bin_bytes, err *e) {
    const shard *sh = &s->shard[number];
    uint64_t width = (uint64_t)shard_item_bytes(sh->item);
    int64_t first, last;
    int32_t length;
    TRY(read_idx(s, number, pointer_at(sh, 0), &first, sizeof first, e));
    TRY(read_idx(s, number, pointer_at(sh, sh->sequences - 1), &last, sizeof last, e));
    TRY(read_idx(s, number, length_at(sh->sequences - 1), &length, sizeof length, e));
    if (first != 0) return idx_error(s, number, "says that the first sequence is not first", e);
    if (length < 0 || last < 0 || (uint64_t)last > bin_bytes ||
        (uint64_t)length * width != bin_bytes - (uint64_t)last)
        return shard_error(s, number, SHARD_DOCUMENTS, e,
                           "does not fit its .bin of %" PRIu64 " bytes", bin_bytes);
    return ST_OK;
}

static status count_documents(shards *s, int number, uint64_t entries, err *e) {
    shard *sh = &s->shard[number];
    int64_t first = 0, last = 0;
    if (entries >= 2) {
        TRY(read_idx(s, number, document_at(sh, 0), &first, sizeof first, e));
        TRY(read_idx(s, number, document_at(sh, entries - 1), &last, sizeof last, e));
    }
    sh->by_sequence = entries < 2 || first != 0 || (uint64_t)last != sh->sequences;
    sh->totals.documents = sh->by_sequence ? sh->sequences : entries - 1;
    return ST_OK;
}

status megatron_open(shards *s, int number, const shards_spec *spec, err *e) {
    (void)spec; /* the index tells all */
    shard *sh = &s->shard[number];
    uint8_t head[HEAD_BYTES];
    uint64_t idx_bytes, bin_bytes, version, sequences, entries;
    TRY(foreign_size(s, number, SHARD_DOCUMENTS, &idx_bytes, e));
    TRY(foreign_size(s, number, SHARD_TOKENS, &bin_bytes, e));
    if (idx_bytes < HEAD_BYTES) return idx_error(s, number, "is truncated", e);
    TRY(read_idx(s, number, 0, head, sizeof head, e));
    memcpy(&version, head + 9, 8);
    memcpy(&sequences, head + 18, 8);
    memcpy(&entries, head + 26, 8);
    if (memcmp(head, "MMIDIDX\0\0", 9) != 0)
        return idx_error(s, number, "is no index of Megatron: it does not begin with MMIDIDX", e);
    if (version != 1) return idx_error(s, number, "has a version that is not 1", e);
    TRY(parse_type(s, number, head[17], &sh->item, e));
    TRY(check_sizes(s, number, idx_bytes, sequences, entries, e));
    TRY(foreign_count_tokens(s, number, bin_bytes, e));
    if (sequences == 0)
        return bin_bytes == 0 ? ST_OK : idx_error(s, number, "names no sequences", e);
    TRY(check_pointers(s, number, bin_bytes, e));
    return count_documents(s, number, entries, e);
}

/* ---- documents ---- */

/* A stretch of pointers read last; documents ask for them in ascending order. */
typedef struct pointers {
    const shards *s;
    int number;
    uint64_t first, n;
    int64_t value[WINDOW];
} pointers;

/* Tokens before a sequence; `sequence` may be one past the last. */
static status tokens_before(pointers *p, int64_t sequence, uint64_t *tokens, err *e) {
    const shard *sh = &p->s->shard[p->number];
    uint64_t at = (uint64_t)sequence, width = (uint64_t)shard_item_bytes(sh->item);
    *tokens = sh->totals.tokens;
    if (at == sh->sequences) return ST_OK;
    if (at > sh->sequences) return idx_error(p->s, p->number, "names a sequence past its end", e);
    if (at < p->first || at - p->first >= p->n) {
        p->first = at;
        p->n = sh->sequences - at < WINDOW ? sh->sequences - at : WINDOW;
        TRY(read_idx(p->s, p->number, pointer_at(sh, at), p->value, (size_t)p->n * 8, e));
    }
    uint64_t byte = (uint64_t)p->value[at - p->first];
    if (byte % width != 0) return idx_error(p->s, p->number, "points into the middle of an id", e);
    *tokens = byte / width;
    return ST_OK;
}

status megatron_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends, err *e) {
    const shard *sh = &s->shard[number];
    pointers p = {.s = s, .number = number};
    int64_t upto[WINDOW]; /* sequences up to the end of each document */
    while (n > 0) {
        int64_t take = n < WINDOW ? n : WINDOW;
        if (!sh->by_sequence)
            TRY(read_idx(s, number, document_at(sh, doc + 1), upto, (size_t)take * 8, e));
        for (int64_t i = 0; i < take; i++) {
            int64_t sequence = sh->by_sequence ? (int64_t)doc + i + 1 : upto[i];
            TRY(tokens_before(&p, sequence, &ends[i], e));
        }
        ends += take;
        doc += (uint64_t)take;
        n -= take;
    }
    return ST_OK;
}

/* Sequences must lie end to end: each begins where the one before it ends. */
status megatron_verify(const shards *s, int number, err *e) {
    const shard *sh = &s->shard[number];
    int64_t width = shard_item_bytes(sh->item), expected = 0, pointer[WINDOW];
    int32_t length[WINDOW];
    for (uint64_t at = 0; at < sh->sequences; at += WINDOW) {
        uint64_t n = sh->sequences - at < WINDOW ? sh->sequences - at : WINDOW;
        TRY(read_idx(s, number, length_at(at), length, (size_t)n * 4, e));
        TRY(read_idx(s, number, pointer_at(sh, at), pointer, (size_t)n * 8, e));
        for (uint64_t i = 0; i < n; i++) {
            if (pointer[i] != expected || length[i] < 0)
                return shard_error(s, number, SHARD_DOCUMENTS, e,
                                   "is corrupt: sequence %" PRIu64 " is not behind the one before",
                                   at + i);
            expected += length[i] * width;
        }
    }
    return ST_OK;
}
