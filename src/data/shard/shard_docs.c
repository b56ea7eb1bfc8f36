/* Documents of a set: where they end and what is known about them. Sets with index are searched by
 * reading single blocks of it; the others' documents are found by the end-of-text token.
 *
 * Nothing of an index is trusted: every bound that leaves this file lies in its shard, and after
 * the one before it. */
#include "data/shard/foreign.h"
#include "data/shard/shard_format.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 64, SEARCH_TOKENS = 1 << 20, SEARCH_BLOCK = 4096 };

status shard_read_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends,
                       float *scores, err *e) {
    if (s->format == SHARDS_OWN) return own_ends(s, number, doc, n, ends, scores, e);
    for (int64_t i = 0; scores && i < n; i++) scores[i] = NAN;
    return foreign_ends(s, number, doc, n, ends, e);
}

static status bad_bounds(const shards *s, int number, uint64_t doc, err *e) {
    return shard_error(s, number, SHARD_DOCUMENTS, e,
                       "is corrupt: document %" PRIu64 " has impossible bounds", doc);
}

status shard_check_end(const shards *s, int number, uint64_t doc, uint64_t last, uint64_t end,
                       err *e) {
    bool empty_is_bad = s->format == SHARDS_OWN;
    if (end < last || (end == last && empty_is_bad) || end > s->shard[number].totals.tokens)
        return bad_bounds(s, number, doc, e);
    return ST_OK;
}

/* The first document that ends behind token `at` of a shard. Guesses by proportion and bisects in
 * turn, so that usual indexes take three or four reads and no index more than 2 log2(documents).
 *
 * The answer lies in [lo, hi); document lo begins at lo_tok <= at, document hi - 1 ends at
 * hi_tok > at. */
static status search(const shards *s, int number, uint64_t at, uint64_t *doc, err *e) {
    uint64_t lo = 0, hi = s->shard[number].totals.documents, ends[BLOCK];
    uint64_t lo_tok = 0, hi_tok = s->shard[number].totals.tokens;
    for (bool guess = true; lo < hi; guess = !guess) {
        uint64_t n = hi - lo, block = n < BLOCK ? n : BLOCK;
        double share = guess ? (double)(at - lo_tok) / (double)(hi_tok - lo_tok) : 0.5;
        uint64_t step = (uint64_t)(share * (double)n);
        step = step < block / 2 ? 0 : step - block / 2;
        uint64_t start = lo + (step < n - block ? step : n - block);
        TRY(shard_read_ends(s, number, start, (int64_t)block, ends, NULL, e));
        if (ends[block - 1] <= at) {
            lo = start + block;
            lo_tok = ends[block - 1];
        } else if (ends[0] > at && start > lo) {
            hi = start + 1;
            hi_tok = ends[0];
        } else {
            uint64_t i = 0;
            while (ends[i] <= at) i++;
            *doc = start + i;
            return ST_OK;
        }
    }
    return bad_bounds(s, number, lo, e);
}

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Ends between tokens `from` and `to` of a shard, as counts from token `base` of the set on. */
static status indexed_ends(const shards *s, int number, uint64_t from, uint64_t to, int64_t base,
                           int32_t *ends, int64_t *n_ends, err *e) {
    const shard *sh = &s->shard[number];
    uint64_t doc, block[BLOCK], last = from;
    TRY(search(s, number, from, &doc, e));
    while (doc < sh->totals.documents) {
        uint64_t n = min_u64(sh->totals.documents - doc, BLOCK);
        TRY(shard_read_ends(s, number, doc, (int64_t)n, block, NULL, e));
        for (uint64_t i = 0; i < n; i++) {
            TRY(shard_check_end(s, number, doc + i, last, block[i], e));
            if (block[i] > to) return ST_OK;
            if (block[i] > last) ends[(*n_ends)++] = (int32_t)(base + (int64_t)(block[i] - from));
            last = block[i];
        }
        doc += n;
    }
    return ST_OK;
}

static status ends_by_index(const shards *s, uint64_t first, int64_t n, int32_t *ends,
                            int64_t *n_ends, err *e) {
    int64_t done = 0;
    for (int i = shard_find(s, first, false); done < n; i++) {
        const shard *sh = &s->shard[i];
        uint64_t from = first + (uint64_t)done - sh->first_tok;
        uint64_t to = min_u64(from + (uint64_t)(n - done), sh->totals.tokens);
        TRY(indexed_ends(s, i, from, to, done, ends, n_ends, e));
        done += (int64_t)(to - from);
    }
    return ST_OK;
}

/* llm.c puts the end-of-text token before a document, the others behind it. */
static bool eos_begins(const shards *s) {
    return s->format == SHARDS_LLMC;
}

/* Ends among tokens that the caller has; `done` of the range came before them. */
static void ends_in_ids(const shards *s, const int32_t *ids, int64_t n, int64_t done, int32_t *ends,
                        int64_t *n_ends) {
    int64_t shift = done + !eos_begins(s);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] == s->eos && i + shift > 0) ends[(*n_ends)++] = (int32_t)(i + shift);
}

/* Whether a document ends between the last token of a range and the one at `tok`. */
static status begins_at(const shards *s, uint64_t tok, bool *begins, err *e) {
    int32_t id;
    TRY(shards_copy(s, tok, 1, &id, NULL, e));
    *begins = id == s->eos;
    return ST_OK;
}

static status ends_by_eos(const shards *s, uint64_t first, int64_t n, const int32_t *ids,
                          int32_t *ends, int64_t *n_ends, err *e) {
    if (s->eos < 0) return ST_OK;
    if (ids) ends_in_ids(s, ids, n, 0, ends, n_ends);
    int32_t block[SEARCH_BLOCK];
    for (int64_t done = 0; !ids && done < n; done += SEARCH_BLOCK) {
        int64_t take = n - done < SEARCH_BLOCK ? n - done : SEARCH_BLOCK;
        TRY(shards_copy(s, first + (uint64_t)done, take, block, NULL, e));
        ends_in_ids(s, block, take, done, ends, n_ends);
    }
    if (!eos_begins(s) || first + (uint64_t)n == s->totals.tokens) return ST_OK;
    bool begins;
    TRY(begins_at(s, first + (uint64_t)n, &begins, e));
    if (begins) ends[(*n_ends)++] = (int32_t)n;
    return ST_OK;
}

status shards_ends(const shards *s, uint64_t first, int64_t n, const int32_t *ids, int32_t *ends,
                   int64_t *n_ends, err *e) {
    CHECK(n >= 0 && n <= INT32_MAX && first <= s->totals.tokens &&
              (uint64_t)n <= s->totals.tokens - first,
          "tokens %" PRIu64 " + %" PRId64 " of %" PRIu64, first, n, s->totals.tokens);
    *n_ends = 0;
    if (n == 0) return ST_OK;
    if (s->has_index) return ends_by_index(s, first, n, ends, n_ends, e);
    TRY(ends_by_eos(s, first, n, ids, ends, n_ends, e));
    bool last = *n_ends > 0 && ends[*n_ends - 1] == n;
    if (first + (uint64_t)n == s->totals.tokens && !last) ends[(*n_ends)++] = (int32_t)n;
    return ST_OK;
}

/* ---- single documents ---- */

static void place_in_shard(const shards *s, int number, uint64_t from, uint64_t to,
                           shard_place *out) {
    uint64_t base = s->shard[number].first_tok;
    *out = (shard_place){.document = UINT64_MAX,
                         .first_tok = base + from,
                         .end_tok = base + to,
                         .shard = number,
                         .source = "",
                         .score = NAN};
}

static status indexed_place(const shards *s, int number, uint64_t doc, arena *a, shard_place *out,
                            err *e) {
    uint64_t ends[2] = {0, 0};
    if (doc == 0)
        TRY(shard_read_ends(s, number, 0, 1, ends + 1, NULL, e));
    else
        TRY(shard_read_ends(s, number, doc - 1, 2, ends, NULL, e));
    TRY(shard_check_end(s, number, doc, ends[0], ends[1], e));
    place_in_shard(s, number, ends[0], ends[1], out);
    out->document = s->shard[number].first_doc + doc;
    return s->format == SHARDS_OWN ? own_place(s, number, doc, a, out, e) : ST_OK;
}

/* The nearest place at or before `tok` where a document begins, no further than SEARCH_TOKENS. */
static status begin_before(const shards *s, uint64_t tok, uint64_t *begin, err *e) {
    uint64_t floor = tok > SEARCH_TOKENS ? tok - SEARCH_TOKENS : 0, at = tok;
    int32_t block[SEARCH_BLOCK];
    if (eos_begins(s)) at++; /* the token itself may begin it */
    while (at > floor) {
        uint64_t n = min_u64(at - floor, SEARCH_BLOCK);
        TRY(shards_copy(s, at - n, (int64_t)n, block, NULL, e));
        for (uint64_t i = n; i-- > 0;)
            if (block[i] == s->eos) {
                *begin = at - n + i + !eos_begins(s);
                return ST_OK;
            }
        at -= n;
    }
    *begin = floor;
    return ST_OK;
}

/* The nearest place behind `tok` where a document ends. */
static status end_after(const shards *s, uint64_t tok, uint64_t *end, err *e) {
    uint64_t at = eos_begins(s) ? tok + 1 : tok;
    uint64_t top = min_u64(s->totals.tokens, tok + SEARCH_TOKENS);
    int32_t block[SEARCH_BLOCK];
    while (at < top) {
        uint64_t n = min_u64(top - at, SEARCH_BLOCK);
        TRY(shards_copy(s, at, (int64_t)n, block, NULL, e));
        for (uint64_t i = 0; i < n; i++)
            if (block[i] == s->eos) {
                *end = at + i + !eos_begins(s);
                return ST_OK;
            }
        at += n;
    }
    *end = top;
    return ST_OK;
}

status shards_locate(const shards *s, uint64_t tok, arena *a, shard_place *out, err *e) {
    CHECK(tok < s->totals.tokens, "token %" PRIu64 " of %" PRIu64, tok, s->totals.tokens);
    int number = shard_find(s, tok, false);
    const shard *sh = &s->shard[number];
    if (s->has_index) {
        uint64_t doc;
        TRY(search(s, number, tok - sh->first_tok, &doc, e));
        TRY(indexed_place(s, number, doc, a, out, e));
        if (out->first_tok <= tok && tok < out->end_tok) return ST_OK;
        return bad_bounds(s, number, doc, e);
    }
    uint64_t begin, end;
    TRY(begin_before(s, tok, &begin, e));
    TRY(end_after(s, tok, &end, e));
    place_in_shard(s, number, 0, 0, out);
    out->first_tok = begin; /* a document may go on in the next file */
    out->end_tok = end;
    return ST_OK;
}

status shards_bounds(const shards *s, uint64_t doc, int64_t n, uint64_t *end_tok, float *score,
                     err *e) {
    CHECK(s->has_index && n >= 0 && doc <= s->totals.documents &&
              (uint64_t)n <= s->totals.documents - doc,
          "documents %" PRIu64 " + %" PRId64 " of %" PRIu64, doc, n, s->totals.documents);
    for (int i = shard_find(s, doc, true); n > 0; i++) {
        const shard *sh = &s->shard[i];
        uint64_t at = doc - sh->first_doc, last = 0;
        int64_t take = (int64_t)min_u64(sh->totals.documents - at, (uint64_t)n);
        if (at > 0) TRY(shard_read_ends(s, i, at - 1, 1, &last, NULL, e));
        TRY(shard_read_ends(s, i, at, take, end_tok, score, e));
        for (int64_t k = 0; k < take; k++) {
            TRY(shard_check_end(s, i, at + (uint64_t)k, last, end_tok[k], e));
            last = end_tok[k];
            end_tok[k] += sh->first_tok;
        }
        end_tok += take;
        if (score) score += take;
        doc += (uint64_t)take;
        n -= take;
    }
    return ST_OK;
}
