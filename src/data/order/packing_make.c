/* Making an index of sequences: documents are cut into pieces, pieces become sequences (of one
 * piece, or by best fit, a window at a time), sequences are written as they come, then put in order
 * by their scores where that is asked for. Read make_index last. */
#include "data/order/packing_format.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/file_fault.h"
#include "base/rng.h"
#include "data/order/bestfit.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW_PIECES = 1 << 20, BLOCK_DOCUMENTS = 4096, BLOCK_TOKENS = 1 << 16 };

/* ---- all documents of a set, one after the other ---- */

typedef struct document_bounds {
    uint64_t first_tok, end_tok;
    float score; /* NaN: none */
} document_bounds;

/* They are fetched by blocks: of the index, or of tokens in which the ends are looked for. */
typedef struct documents {
    const shards *s;
    uint64_t next_doc; /* to fetch, with an index */
    uint64_t next_tok; /* to look at, without */
    uint64_t at_tok;   /* where the next document begins */
    uint64_t *end_tok; /* [BLOCK_TOKENS] the block */
    float *score;      /* [BLOCK_TOKENS] */
    int32_t *ends;     /* [BLOCK_TOKENS] in the block of tokens */
    int64_t at, n;     /* in the block */
} documents;

static documents *documents_new(const shards *s) {
    documents *d = xcalloc(1, sizeof *d);
    size_t n = s->has_index ? BLOCK_DOCUMENTS : BLOCK_TOKENS;
    d->s = s;
    d->end_tok = xcalloc(n, sizeof *d->end_tok);
    d->score = xcalloc(n, sizeof *d->score);
    d->ends = xcalloc(n, sizeof *d->ends);
    return d;
}

static void documents_free(documents *d) {
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

/* *more = false at the end. ST_FORMAT: bounds that are not ascending, or unreadable files. */
static status documents_next(documents *d, document_bounds *out, bool *more, err *e) {
    do { /* sets of others may hold empty documents: they are passed over */
        if (d->at == d->n) TRY(fetch(d, e));
        *more = d->n > 0;
        if (!*more) return ST_OK;
        *out = (document_bounds){d->at_tok, d->end_tok[d->at], d->score[d->at]};
        d->at++;
    } while (out->end_tok == out->first_tok);
    if (out->end_tok < out->first_tok || out->end_tok > d->s->totals.tokens) {
        err_at(e, ST_FORMAT, d->s->dir, "%s: impossible document bounds at token %" PRIu64,
               d->s->dir, out->first_tok);
        return err_hint(e, "check the data with `athanor data show --verify %s`", d->s->dir);
    }
    d->at_tok = out->end_tok;
    return ST_OK;
}

/* ---- the maker ---- */

/* A mean weighted by tokens. */
typedef struct score_sum {
    double sum, tokens;
} score_sum;

/* What is sorted when there is an order. */
typedef struct scored {
    float score;
    uint32_t tie;
    uint64_t entry;
} scored;

/* Pieces that wait for the window to be packed. */
typedef struct window {
    bestfit *fit;
    uint64_t *first_tok;
    uint32_t *len;
    uint32_t *source,
        *target; /* pairs: where the target begins in the document, and its length; else NULL */
    float *score;
    int32_t n;
} window;

typedef struct maker {
    const packing_spec *spec;
    int64_t seq_len; /* T */
    file_out file;
    uint64_t n_pieces;
    packing_totals totals;
    uint64_t *entries; /* [n] the sequences; with an order they stand in `scored` */
    scored *scored;
    size_t n, cap;
    window win;
    score_sum score; /* concat: of the sequence that is not finished */
} maker;

static void score_add(score_sum *s, float score, int64_t tokens) {
    if (isnan(score)) return;
    s->sum += (double)score * (double)tokens;
    s->tokens += (double)tokens;
}

static float score_mean(const score_sum *s) {
    return s->tokens > 0 ? (float)(s->sum / s->tokens) : NAN;
}

/* ---- sequences ---- */

static void add_sequence(maker *m, uint64_t entry, float score) {
    m->totals.sequences++;
    if (m->spec->order == ORDER_SHUFFLE) {
        VEC_PUSH(m->entries, m->n, m->cap, entry);
        return;
    }
    uint64_t tie = mix64(m->spec->set->fingerprint ^ mix64(entry + 1));
    scored item = {score, (uint32_t)tie, entry};
    VEC_PUSH(m->scored, m->n, m->cap, item);
}

static status write_some(maker *m, const packing_piece *piece, bool last, err *e) {
    uint8_t bytes[PACKING_PIECE_BYTES];
    uint32_t bits =
        (uint32_t)piece->n | (piece->goes_on ? PACKING_GOES_ON : 0) | (last ? PACKING_LAST : 0);
    memcpy(bytes, &piece->first_tok, 8);
    memcpy(bytes + 8, &bits, 4);
    m->n_pieces++;
    m->totals.tokens += (uint64_t)piece->n;
    return file_out_write(&m->file, bytes, sizeof bytes, e);
}

static status write_piece(maker *m, const packing_piece *piece, bool last, err *e) {
    m->totals.targets += (uint64_t)piece->n - !piece->goes_on;
    return write_some(m, piece, last, e);
}

/* Of a document with `source` tokens before its target, as much as a row has room for. */
static status write_pair(maker *m, uint64_t first, uint32_t source, uint32_t target, bool last,
                         err *e) {
    int64_t S = m->spec->source_len;
    packing_piece one = {.first_tok = first, .n = source < S ? source : S};
    packing_piece two = {.first_tok = first + source, .n = target};
    m->totals.targets += target;
    TRY(write_some(m, &one, false, e));
    return write_some(m, &two, last, e);
}

static status write_alone(maker *m, const packing_piece *piece, float score, err *e) {
    add_sequence(m, m->n_pieces, score);
    return write_piece(m, piece, true, e);
}

/* ---- best fit ---- */

static void window_open(window *w, int T, bool pairs) {
    w->fit = bestfit_new(T, WINDOW_PIECES);
    if (pairs) w->source = xmalloc(WINDOW_PIECES * sizeof *w->source);
    if (pairs) w->target = xmalloc(WINDOW_PIECES * sizeof *w->target);
    w->first_tok = xmalloc(WINDOW_PIECES * sizeof *w->first_tok);
    w->len = xmalloc(WINDOW_PIECES * sizeof *w->len);
    w->score = xmalloc(WINDOW_PIECES * sizeof *w->score);
}

static void window_free(window *w) {
    bestfit_free(w->fit);
    free(w->first_tok);
    free(w->len);
    free(w->source);
    free(w->target);
    free(w->score);
}

static status write_bin(maker *m, const int32_t *items, int32_t n, err *e) {
    const window *w = &m->win;
    score_sum score = {0};
    for (int32_t i = 0; i < n; i++) score_add(&score, w->score[items[i]], w->len[items[i]]);
    add_sequence(m, m->n_pieces, score_mean(&score));
    for (int32_t i = 0; i < n; i++) {
        packing_piece piece = {.first_tok = w->first_tok[items[i]], .n = w->len[items[i]]};
        bool last = i + 1 == n;
        TRY(w->source
                ? write_pair(m, piece.first_tok, w->source[items[i]], w->target[items[i]], last, e)
                : write_piece(m, &piece, last, e));
    }
    return ST_OK;
}

static status window_pack(maker *m, err *e) {
    const int32_t *items, *ends;
    int32_t bins = bestfit_pack(m->win.fit, m->win.len, m->win.n, &items, &ends), from = 0;
    for (int32_t k = 0; k < bins; k++) {
        TRY(write_bin(m, items + from, ends[k] - from, e));
        from = ends[k];
    }
    m->win.n = 0;
    return ST_OK;
}

static status window_add(maker *m, const packing_piece *piece, float score, err *e) {
    window *w = &m->win;
    w->first_tok[w->n] = piece->first_tok;
    w->len[w->n] = (uint32_t)piece->n;
    w->score[w->n++] = score;
    return w->n == WINDOW_PIECES ? window_pack(m, e) : ST_OK;
}

/* ---- from documents to pieces ---- */

static status add_document(maker *m, const document_bounds *d, err *e) {
    const int64_t T = m->seq_len;
    const shard_chat *chat = &m->spec->set->chat;
    packing_piece piece = {.first_tok = d->first_tok, .n = T, .goes_on = true};
    int64_t left = (int64_t)(d->end_tok - d->first_tok);
    m->totals.documents++;
    m->totals.documents_cut += left > T + 1;
    for (; left > T; left -= T) {
        TRY(write_alone(m, &piece, d->score, e));
        if (chat->marks || m->spec->firsts) return ST_OK;
        piece.first_tok += (uint64_t)T;
    }
    piece.n = left;
    piece.goes_on = false;
    bool pairs = chat->sequences == 2;
    if (left == 1 && !pairs && !m->spec->firsts) return ST_OK; /* nothing to predict */
    if (m->spec->packing == PACKING_NONE || left == T) return write_alone(m, &piece, d->score, e);
    return window_add(m, &piece, d->score, e);
}

/* How many tokens of a document come before the first that is trained. */
static status source_length(const shards *s, const document_bounds *d, uint64_t *n, err *e) {
    uint8_t marks[4096];
    uint64_t len = d->end_tok - d->first_tok;
    for (*n = 0; *n < len;) {
        uint64_t take = len - *n < sizeof marks ? len - *n : sizeof marks;
        TRY(shards_copy_marks(s, d->first_tok + *n, (int64_t)take, marks, e));
        for (uint64_t i = 0; i < take; i++, ++*n)
            if (marks[i] & MARK_TRAINED) return ST_OK;
    }
    return ST_OK;
}

static status add_pair(maker *m, const document_bounds *d, err *e) {
    uint64_t source, S = (uint64_t)m->spec->source_len, T = (uint64_t)m->seq_len;
    TRY(source_length(m->spec->set, d, &source, e));
    uint64_t target = d->end_tok - d->first_tok - source;
    m->totals.documents++;
    if (source == 0 || target == 0) return ST_OK;
    m->totals.documents_cut += source > S || target > T;
    if (target > T) target = T;
    if (m->spec->packing == PACKING_NONE) {
        add_sequence(m, m->n_pieces, d->score);
        return write_pair(m, d->first_tok, (uint32_t)source, (uint32_t)target, true, e);
    }
    uint64_t share = ((source < S ? source : S) * T + S - 1) / S;
    packing_piece piece = {.first_tok = d->first_tok,
                           .n = (int64_t)(share > target ? share : target)};
    m->win.source[m->win.n] = (uint32_t)source;
    m->win.target[m->win.n] = (uint32_t)target;
    return window_add(m, &piece, d->score, e);
}

static status for_each_document(maker *m, status (*use)(maker *, const document_bounds *, err *),
                                err *e) {
    documents *docs = documents_new(m->spec->set);
    document_bounds d;
    bool more = true;
    status st = ST_OK;
    while (st == ST_OK && (st = documents_next(docs, &d, &more, e)) == ST_OK && more)
        st = use(m, &d, e);
    documents_free(docs);
    return st;
}

static status no_pairs(const maker *m, err *e) {
    err_at(e, ST_USAGE, "data.train", "%s has no document with a source and a target",
           m->spec->set->dir);
    return err_hint(e, "build it from pairs: `athanor data build PAIRS.jsonl template=plain`");
}

static status make_pieces(maker *m, err *e) {
    bool pairs = m->spec->source_len > 0;
    if (m->spec->packing == PACKING_BESTFIT) window_open(&m->win, m->spec->seq_len, pairs);
    status st = for_each_document(m, pairs ? add_pair : add_document, e);
    if (st == ST_OK && m->win.n > 0) st = window_pack(m, e);
    window_free(&m->win);
    TRY(st);
    if (m->n > 0) return ST_OK;
    if (pairs) return no_pairs(m, e);
    err_at(e, ST_USAGE, "data.packing",
           "%s has no document of two tokens: there is nothing to predict", m->spec->set->dir);
    return err_hint(e, "set data.packing to concat, or leave the source out");
}

/* ---- sequences without pieces ---- */

/* Documents come in order, so one sum after the other is finished. */
static status cut_document(maker *m, const document_bounds *d, err *e) {
    (void)e;
    uint64_t T = (uint64_t)m->seq_len, sequences = m->spec->set->totals.tokens / T;
    for (uint64_t tok = d->first_tok; m->n < sequences;) {
        uint64_t border = (m->n + 1) * T, end = d->end_tok < border ? d->end_tok : border;
        score_add(&m->score, d->score, (int64_t)(end - tok));
        tok = end;
        if (tok < border) break;
        add_sequence(m, m->n, score_mean(&m->score));
        m->score = (score_sum){0};
    }
    return ST_OK;
}

/* ---- the order ---- */

/* Those without score come last in both directions. */
static int compare_scored(const scored *a, const scored *b, bool descending) {
    bool a_none = isnan(a->score), b_none = isnan(b->score);
    if (a_none != b_none) return a_none ? 1 : -1;
    if (!a_none && a->score != b->score) return (a->score < b->score) != descending ? -1 : 1;
    if (a->tie != b->tie) return a->tie < b->tie ? -1 : 1;
    return (a->entry > b->entry) - (a->entry < b->entry);
}

static int ascending(const void *a, const void *b) {
    return compare_scored(a, b, false);
}
static int descending(const void *a, const void *b) {
    return compare_scored(a, b, true);
}

static status write_entries(maker *m, err *e) {
    if (m->spec->order == ORDER_SHUFFLE)
        return file_out_write(&m->file, m->entries, m->n * sizeof *m->entries, e);
    qsort(m->scored, m->n, sizeof *m->scored,
          m->spec->order == ORDER_ASCENDING ? ascending : descending);
    for (size_t i = 0; i < m->n; i++)
        TRY(file_out_write(&m->file, &m->scored[i].entry, PACKING_ENTRY_BYTES, e));
    return ST_OK;
}

static status write_trailer(maker *m, err *e) {
    packing_trailer t = {.magic = PACKING_MAGIC,
                         .packing = m->spec->packing,
                         .order = m->spec->order,
                         .seq_len = (uint32_t)m->seq_len,
                         .source_len = (uint32_t)m->spec->source_len,
                         .firsts = m->spec->firsts,
                         .fingerprint = m->spec->set->fingerprint,
                         .n_tok = m->spec->set->totals.tokens,
                         .n_pieces = m->n_pieces,
                         .totals = m->totals};
    t.hash = packing_trailer_hash(&t);
    return file_out_write(&m->file, &t, sizeof t, e);
}

/* ---- the file ---- */

static status make_index(maker *m, const char *temp, err *e) {
    TRY(file_out_open(&m->file, temp, e));
    bool cut = m->spec->packing == PACKING_CONCAT;
    status st = cut ? for_each_document(m, cut_document, e) : make_pieces(m, e);
    if (st == ST_OK) st = write_entries(m, e);
    if (st == ST_OK) st = write_trailer(m, e);
    if (st == ST_OK) return file_out_close(&m->file, NULL, e);
    file_out_abandon(&m->file);
    return st;
}

/* Ranks make the same index at the same time, as threads or on machines where they have the same
 * process id: each writes a file of its own, and the last one to be renamed stays. */
static status make_durable(maker *m, arena *a, const char *path, err *e) {
    uint64_t own = mix64((uint64_t)clock_now_ns() ^ mix64((uintptr_t)m));
    char *temp = arena_printf(a, "%s.tmp-%ld-%" PRIx64, path, (long)getpid(), own);
    status st = make_index(m, temp, e);
    if (st == ST_OK) st = file_rename(temp, path, e);
    if (st != ST_OK) {
        file_sys_unlinkat(AT_FDCWD, temp, 0);
        err_rename(e, temp, path);
        return st;
    }
    return file_sync_parent(path, e);
}

status packing_make(const packing_spec *spec, const char *path, err *e) {
    arena *a = arena_new("packing");
    maker m = {.spec = spec, .seq_len = spec->seq_len};
    status st = make_durable(&m, a, path, e);
    if (st == ST_FAILED)
        err_hint(e, "the index of data.packing and data.order lies beside the tokens: make room "
                    "there and the folder writable, or copy the tokens to such a place");
    free(m.entries);
    free(m.scored);
    arena_free(a);
    return st;
}
