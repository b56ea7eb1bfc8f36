/* Reads and checks every byte of a set: what is common to all formats. */
#include "data/shard/foreign.h"
#include "data/shard/shard_format.h"

#include <inttypes.h>

static status verify_ids(const shards *s, int number, err *e) {
    const shard *sh = &s->shard[number];
    int32_t ids[4096];
    for (uint64_t at = 0; at < sh->totals.tokens;) {
        uint64_t left = sh->totals.tokens - at;
        int64_t n = left < ARRAY_LEN(ids) ? (int64_t)left : ARRAY_LEN(ids);
        uint32_t max;
        TRY(shards_copy(s, sh->first_tok + at, n, ids, &max, e));
        if (max >= (uint32_t)s->vocab_size) {
            int64_t i = 0;
            while ((uint32_t)ids[i] < (uint32_t)s->vocab_size) i++;
            return shard_error(s, number, SHARD_TOKENS, e,
                               "is corrupt: token %" PRIu64 " is %u, the vocabulary has %d",
                               at + (uint64_t)i, (unsigned)ids[i], s->vocab_size);
        }
        at += (uint64_t)n;
    }
    return ST_OK;
}

static status verify_bounds(const shards *s, int number, err *e) {
    uint64_t ends[512], last = 0, documents = s->shard[number].totals.documents;
    for (uint64_t doc = 0; doc < documents;) {
        uint64_t left = documents - doc;
        int64_t n = left < (uint64_t)ARRAY_LEN(ends) ? (int64_t)left : ARRAY_LEN(ends);
        TRY(shard_read_ends(s, number, doc, n, ends, NULL, e));
        for (int64_t i = 0; i < n; i++) {
            TRY(shard_check_end(s, number, doc + (uint64_t)i, last, ends[i], e));
            last = ends[i];
        }
        doc += (uint64_t)n;
    }
    if (last == s->shard[number].totals.tokens) return ST_OK;
    return shard_error(s, number, SHARD_DOCUMENTS, e,
                       "is corrupt: the last document does not end the file");
}

status shards_verify(const shards *s, err *e) {
    for (int i = 0; i < s->n_shards; i++) {
        TRY(s->format == SHARDS_OWN ? own_verify(s, i, e) : foreign_verify(s, i, e));
        TRY(verify_ids(s, i, e));
        if (s->has_index) TRY(verify_bounds(s, i, e));
    }
    return ST_OK;
}
