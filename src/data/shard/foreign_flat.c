/* Files of ids without an index.
 *
 * nanoGPT's .bin, and OLMo's .npy, which has no NumPy header despite its name: ids and nothing else.
 * The .npy of NumPy itself: its header, then ids. In these documents end with the end-of-text token.
 *
 * llm.c: 256 i32 of header (magic, version, number of ids), then u16 (magic 20240520, version 1) or
 * u32 (20240801, version 7). Each document begins with the end-of-text token, and may go on in the
 * next file. */
#include "data/shard/foreign.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NPY_MAX_HEADER = 4096, LOOK_BYTES = 8192, LOOK_SURE = 32 };

/* ---- NumPy's header: a Python dict as text ---- */

/* The text after 'key': in the dict, NULL when there is none. */
static const char *npy_value(const char *dict, const char *key) {
    const char *at = strstr(dict, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ') at++;
    return at;
}

static bool npy_item(const char *descr, shard_item *item) {
    static const struct {
        const char *name;
        shard_item item;
    } TYPES[] = {{"'|u1'", ITEM_U8},  {"'<u2'", ITEM_U16}, {"'<i2'", ITEM_I16},
                 {"'<u4'", ITEM_U32}, {"'<i4'", ITEM_I32}, {"'<i8'", ITEM_I64}};
    for (int i = 0; i < ARRAY_LEN(TYPES); i++)
        if (strncmp(descr, TYPES[i].name, strlen(TYPES[i].name)) == 0) {
            *item = TYPES[i].item;
            return true;
        }
    return false;
}

/* "(123,)" */
static bool npy_count(const char *shape, uint64_t *count) {
    if (*shape++ != '(' || !isdigit((unsigned char)*shape)) return false;
    char *end;
    *count = strtoull(shape, &end, 10);
    while (*end == ' ') end++;
    if (*end++ != ',') return false;
    while (*end == ' ') end++;
    return *end == ')';
}

static status npy_error(const shards *s, int number, const char *what, err *e) {
    shard_error(s, number, SHARD_TOKENS, e, "is an array of NumPy, but %s", what);
    err_hint(e, "save a one-dimensional array of uint16, uint32 or int32");
    return ST_FORMAT;
}

static status npy_open(shards *s, int number, uint64_t bytes, const uint8_t head[12], err *e) {
    shard *sh = &s->shard[number];
    bool wide = head[6] >= 2; /* versions 2 and 3 have a longer length */
    uint32_t length = (uint32_t)head[8] | (uint32_t)head[9] << 8;
    if (wide) length |= (uint32_t)head[10] << 16 | (uint32_t)head[11] << 24;
    uint32_t begin = wide ? 12 : 10;
    char dict[NPY_MAX_HEADER + 1];
    if (length > NPY_MAX_HEADER || begin + (uint64_t)length > bytes)
        return npy_error(s, number, "its header is too long", e);
    TRY(shard_read(s, number, SHARD_TOKENS, begin, dict, length, e));
    dict[length] = '\0';
    const char *descr = npy_value(dict, "'descr':"), *shape = npy_value(dict, "'shape':");
    uint64_t count;
    if (!descr || !npy_item(descr, &sh->item))
        return npy_error(s, number, "not of integers that can be ids", e);
    if (!shape || !npy_count(shape, &count)) return npy_error(s, number, "not of one dimension", e);
    sh->data_offset = begin + length;
    TRY(foreign_count_tokens(s, number, bytes, e));
    if (count != sh->totals.tokens)
        return npy_error(s, number, "it is not as long as its header says", e);
    return ST_OK;
}

/* ---- without header ---- */

/* Whether the first ids, read as u16, are pairs whose second half is always zero: ids of 32 bits.
 * A few pairs prove nothing. */
static status looks_wide(const shards *s, int number, uint64_t bytes, bool *wide, err *e) {
    uint16_t look[LOOK_BYTES / 2];
    size_t n = bytes < LOOK_BYTES ? (size_t)bytes / 4 * 4 : LOOK_BYTES;
    TRY(shard_read(s, number, SHARD_TOKENS, 0, look, n, e));
    int64_t low = 0, high = 0;
    for (size_t i = 0; i < n / 2; i += 2) {
        low += look[i] != 0;
        high += look[i + 1] != 0;
    }
    *wide = low >= LOOK_SURE && high == 0 && bytes % 4 == 0;
    return ST_OK;
}

status flat_open(shards *s, int number, const shards_spec *spec, err *e) {
    shard *sh = &s->shard[number];
    uint64_t bytes;
    uint8_t head[12] = {0};
    TRY(foreign_size(s, number, SHARD_TOKENS, &bytes, e));
    if (bytes >= sizeof head) TRY(shard_read(s, number, SHARD_TOKENS, 0, head, sizeof head, e));
    if (memcmp(head, "\x93NUMPY", 6) == 0) return npy_open(s, number, bytes, head, e);
    sh->item = foreign_width(spec);
    if (!spec->width_bytes && sh->item == ITEM_U16) {
        bool wide;
        TRY(looks_wide(s, number, bytes, &wide, e));
        if (wide) sh->item = ITEM_U32;
    }
    return foreign_count_tokens(s, number, bytes, e);
}

/* ---- llm.c ---- */

enum { TOKENS_U16 = 20240520, TOKENS_U32 = 20240801 };

const char *llmc_contents(int32_t magic) {
    switch (magic) {
        case TOKENS_U16:
        case TOKENS_U32: return "tokens";
        case 20240522: return "questions with choices (HellaSwag, MMLU)";
        case 20240326: return "a model";
        case 20240328: return "a tokenizer";
        case 20240527: return "the state of a run";
        default: return NULL;
    }
}

static status no_tokens(const shards *s, int number, int32_t magic, err *e) {
    const char *other = llmc_contents(magic);
    if (other) {
        shard_error(s, number, SHARD_TOKENS, e, "is a file of llm.c with %s, not tokens", other);
        err_hint(e, "give the token files, such as fineweb_train_*.bin");
    } else {
        shard_error(s, number, SHARD_TOKENS, e,
                    "is no token file of llm.c: it begins with %" PRId32, magic);
        foreign_hint_keys(e);
    }
    return ST_FORMAT;
}

status llmc_open(shards *s, int number, const shards_spec *spec, err *e) {
    (void)spec; /* the header tells all */
    shard *sh = &s->shard[number];
    uint64_t bytes;
    int32_t head[3];
    TRY(foreign_size(s, number, SHARD_TOKENS, &bytes, e));
    if (bytes < LLMC_HEADER_BYTES)
        return shard_error(s, number, SHARD_TOKENS, e, "is shorter than llm.c's header");
    TRY(shard_read(s, number, SHARD_TOKENS, 0, head, sizeof head, e));
    if (head[0] != TOKENS_U16 && head[0] != TOKENS_U32) return no_tokens(s, number, head[0], e);
    int32_t version = head[0] == TOKENS_U16 ? 1 : 7;
    if (head[1] != version)
        return shard_error(s, number, SHARD_TOKENS, e,
                           "has version %" PRId32 " in its header, not %" PRId32, head[1], version);
    sh->item = head[0] == TOKENS_U16 ? ITEM_U16 : ITEM_U32;
    sh->data_offset = LLMC_HEADER_BYTES;
    TRY(foreign_count_tokens(s, number, bytes, e));
    if (head[2] >= 0 && (uint64_t)head[2] == sh->totals.tokens) return ST_OK;
    return shard_error(s, number, SHARD_TOKENS, e,
                       "holds %" PRIu64 " ids, its header says %" PRId32, sh->totals.tokens,
                       head[2]);
}
