/* See documents.h. Documents are fetched by blocks: of the index, or of tokens in which the ends
 * are looked for. */
#include "data/order/documents.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { BLOCK_DOCUMENTS = 4096, BLOCK_TOKENS = 1 << 16 };

struct documents {
    const shards *s;
    uint64_t next_doc; /* to fetch, with an index */
    uint64_t next_tok; /* to look at, without */
    uint64_t at_tok;   /* where the next document begins */
    uint64_t *end_tok; /* [BLOCK_TOKENS] the block */
    float *score;      /* [BLOCK_TOKENS] */
    int32_t *ends;     /* [BLOCK_TOKENS] in the block of tokens */
    int64_t at, n;     /* in the block */
};

documents *documents_new(const shards *s) {
    documents *d = xcalloc(1, sizeof *d);
    size_t n = s->has_index ? BLOCK_DOCUMENTS : BLOCK_TOKENS;
    d->s = s;
    d->end_tok = xcalloc(n, sizeof *d->end_tok);
    d->score = xcalloc(n, sizeof *d->score);
    d->ends = xcalloc(n, sizeof *d->ends);
    return d;
}

void documents_free(documents *d) {
    if (!d) return;
    free(d->end_tok);
    free(d->score);
    free(d->ends);
    free(d);
}

static status fetch_indexed(documents *d, err *e) {
    uint64_t left = d->s->totals.documents - d->next_doc;
    d->n = left < BLOCK_DOCUMENTS ? (int64_t)left : BLOCK_DOCUMENTS;
    if (d->n == 0) return ST_OK;
    TRY(shards_bounds(d->s, d->next_doc, d->n, d->end_tok, d->score, e));
    d->next_doc += (uint64_t)d->n;
    return ST_OK;
}

static status fetch_found(documents *d, err *e) {
    uint64_t left = d->s->totals.tokens - d->next_tok;
    int64_t n = left < BLOCK_TOKENS ? (int64_t)left : BLOCK_TOKENS;
    d->n = 0;
    if (n == 0) return ST_OK;
    TRY(shards_ends(d->s, d->next_tok, n, NULL, d->ends, &d->n, e));
    for (int64_t i = 0; i < d->n; i++) {
        d->end_tok[i] = d->next_tok + (uint64_t)d->ends[i];
        d->score[i] = NAN;
    }
    d->next_tok += (uint64_t)n;
    return ST_OK;
}

/* A block of tokens may hold no end at all. */
static status fetch(documents *d, err *e) {
    d->at = 0;
    if (d->s->has_index) return fetch_indexed(d, e);
    do TRY(fetch_found(d, e));
    while (d->n == 0 && d->next_tok < d->s->totals.tokens);
    return ST_OK;
}

status documents_next(documents *d, document_bounds *out, bool *more, err *e) {
    do { /* sets of others may hold empty documents: they are passed over */
        if (d->at == d->n) TRY(fetch(d, e));
        *more = d->n > 0;
        if (!*more) return ST_OK;
        *out = (document_bounds){d->at_tok, d->end_tok[d->at], d->score[d->at]};
        d->at++;
    } while (out->end_tok == out->first_tok);
    if (out->end_tok < out->first_tok || out->end_tok > d->s->totals.tokens) {
        err_set(e, ST_FORMAT, "%s: impossible document bounds at token %" PRIu64, d->s->dir,
                out->first_tok);
        err_where(e, "%s", d->s->dir);
        err_hint(e, "check the data with `athanor data show --verify %s`", d->s->dir);
        return ST_FORMAT;
    }
    d->at_tok = out->end_tok;
    return ST_OK;
}
