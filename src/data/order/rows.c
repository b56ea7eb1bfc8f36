/* From a place to a row of ids, targets and starts. There are two kinds of rows: those cut from the
 * stream of tokens (fill_cut) and those made of pieces of documents (fill_packed); fill_row, which
 * is to be read last, chooses and adds the padding. What cannot be read, or is no id of the
 * vocabulary, becomes id 0 without a target, and the loader notes the error. */
#include "data/order/loader_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    int32_t *ids, *targets, *start; /* [T]; start may be NULL */
    loader_row *info;               /* [1]; may be NULL */
} row;

/* Memory of one call. */
typedef struct scratch {
    int32_t *tok;   /* [T + 1] */
    int32_t *ends;  /* [T] */
    uint8_t *marks; /* [T] */
} scratch;

static scratch scratch_new(const loader *l) {
    size_t T = (size_t)l->seq_len;
    scratch s = {.tok = xmalloc((2 * T + 1) * sizeof *s.tok + T)};
    s.ends = s.tok + T + 1;
    s.marks = (uint8_t *)(s.ends + T);
    return s;
}

static void fill_starts(const row *r, int64_t from, int64_t to, int64_t value) {
    if (!r->start) return;
    for (int64_t t = from; t < to; t++) r->start[t] = (int32_t)value;
}

static void ignore_targets(const row *r, int64_t from, int64_t to) {
    for (int64_t t = from; t < to; t++) r->targets[t] = LOADER_IGNORE;
}

/* ---- reading ---- */

static void outside_vocabulary(const loader *l, const shards *s, uint64_t tok) {
    int i = 0;
    while (i + 1 < s->n_shards && s->shard[i + 1].first_tok <= tok) i++;
    const shard *sh = &s->shard[i];
    err e = {0};
    err_at(&e, ST_FORMAT, sh->file,
           "%s: %s is corrupt: token %" PRIu64 " is outside the vocabulary of %u", s->dir, sh->file,
           tok - sh->first_tok, (unsigned)l->vocab_size);
    err_hint(&e, "check the data with `athanor data show --verify %s`", s->dir);
    loader_set_fault(l, &e);
}

bool rows_read(const loader *l, const shards *s, uint64_t first, int64_t n, int32_t *ids) {
    uint32_t largest = 0;
    err e = {0};
    if (shards_copy(s, first, n, ids, &largest, &e) != ST_OK) {
        loader_set_fault(l, &e);
        memset(ids, 0, (size_t)n * sizeof *ids);
        return false;
    }
    if (n == 0 || largest < l->vocab_size) return true;
    for (int64_t i = 0; i < n; i++) {
        if ((uint32_t)ids[i] < l->vocab_size) continue;
        outside_vocabulary(l, s, first + (uint64_t)i);
        ids[i] = 0;
    }
    return false;
}

static bool read_ring(const loader *l, const source_state *src, uint64_t first, int64_t n,
                      int32_t *ids) {
    bool good = true;
    while (n > 0) {
        uint64_t left = src->n_tok - first;
        int64_t take = (uint64_t)n < left ? n : (int64_t)left;
        good &= rows_read(l, src->shards, first, take, ids);
        ids += take;
        n -= take;
        first = 0;
    }
    return good;
}

/* ---- marks ---- */

/* The targets `at` .. `at` + n - 1 of a row are the n tokens of the set from `first` on: those that
 * are not trained become LOADER_IGNORE. False: the marks cannot be read. */
static bool apply_marks(const loader *l, const shards *s, uint64_t first, int64_t n, int64_t at,
                        const row *r, const scratch *mem) {
    err e = {0};
    if (!s->chat.marks || n == 0) return true;
    if (shards_copy_marks(s, first, n, mem->marks, &e) != ST_OK) {
        loader_set_fault(l, &e);
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!(mem->marks[i] & MARK_TRAINED)) r->targets[at + i] = LOADER_IGNORE;
        if ((mem->marks[i] & MARK_REJECTED) && r->info) r->info->label = 0;
    }
    return true;
}

static bool apply_ring_marks(const loader *l, const source_state *src, uint64_t first, int64_t n,
                             const row *r, const scratch *mem) {
    bool good = true;
    for (int64_t at = 0; at < n;) {
        uint64_t left = src->n_tok - first;
        int64_t take = (uint64_t)(n - at) < left ? n - at : (int64_t)left;
        good &= apply_marks(l, src->shards, first, take, at, r, mem);
        at += take;
        first = 0;
    }
    return good;
}

/* ---- rows cut by arithmetic ---- */

/* Starts and ignored targets of the inputs `at` .. `at` + n - 1 of a row, a piece of the set. */
static status mask_piece(const row *r, const shards *s, const packing_piece *piece, int64_t at,
                         const scratch *mem, err *e) {
    int64_t n_ends = 0, from = at;
    TRY(shards_ends(s, piece->first_tok, piece->n, mem->tok + at, mem->ends, &n_ends, e));
    for (int64_t i = 0; i < n_ends; i++) {
        int64_t end = at + mem->ends[i];
        fill_starts(r, from, end, from);
        r->targets[end - 1] = LOADER_IGNORE;
        from = end;
    }
    fill_starts(r, from, at + piece->n, from);
    return ST_OK;
}

static status mask_documents(const loader *l, const loader_place *p, const row *r,
                             const scratch *mem, err *e) {
    place_walk w;
    packing_piece piece;
    bool more;
    TRY(place_walk_begin(l, p, &w, e));
    for (int64_t at = 0;; at += piece.n) {
        TRY(place_walk_next(&w, &piece, &more, e));
        if (!more) return ST_OK;
        TRY(mask_piece(r, w.src->shards, &piece, at, mem, e));
    }
}

bool rows_read_text(const loader *l, uint64_t sample, int32_t *ids, int64_t *n) {
    err e = {0};
    loader_place p = place_compute(l, sample);
    if (place_look_up(l, &p, &e) != ST_OK) loader_set_fault(l, &e);
    *n = p.n_inputs;
    return read_ring(l, &l->source[p.source], p.first_tok, p.n_inputs, ids);
}

static int64_t fill_cut(const loader *l, loader_place *p, const row *r, const scratch *mem,
                        err *e) {
    if (place_look_up(l, p, e) != ST_OK) loader_set_fault(l, e);
    const source_state *src = &l->source[p->source];
    int64_t n = p->n_inputs;
    if (n == 0) return 0;
    bool good = read_ring(l, src, p->first_tok, n + 1, mem->tok);
    memcpy(r->ids, mem->tok, (size_t)n * sizeof *r->ids);
    memcpy(r->targets, mem->tok + 1, (size_t)n * sizeof *r->targets);
    good &= apply_ring_marks(l, src, (p->first_tok + 1) % src->n_tok, n, r, mem);
    fill_starts(r, 0, n, 0);
    if (l->document_mask && mask_documents(l, p, r, mem, e) != ST_OK) {
        loader_set_fault(l, e);
        fill_starts(r, 0, n, 0);
        good = false;
    }
    if (!good) ignore_targets(r, 0, n);
    return n;
}

/* ---- rows of pieces ---- */

static void fill_piece(const loader *l, const shards *s, const packing_piece *piece, int64_t at,
                       const row *r, const scratch *mem) {
    int64_t n = piece->n, targets = piece->goes_on ? n : n - 1;
    bool good = rows_read(l, s, piece->first_tok, targets + 1, mem->tok);
    memcpy(r->ids + at, mem->tok, (size_t)n * sizeof *r->ids);
    memcpy(r->targets + at, mem->tok + 1, (size_t)targets * sizeof *r->targets);
    good &= apply_marks(l, s, piece->first_tok + 1, targets, at, r, mem);
    ignore_targets(r, at + (good ? targets : 0), at + n);
    fill_starts(r, at, at + n, l->document_mask ? at : 0);
}

/* The label of a text is its score. */
static void read_value(const loader *l, const shards *s, uint64_t tok, loader_row *info) {
    arena *a = arena_new("label");
    shard_place at = {0};
    err e = {0};
    status st = shards_locate(s, tok, a, &at, &e);
    if (st == ST_OK && isnan(at.score)) {
        st = err_set(&e, ST_FORMAT, "%s: line %u of %s has no label", s->dir, (unsigned)at.line,
                     at.source);
        err_hint(&e, "a label is a number, or one of the words of model.labels");
    }
    if (st != ST_OK) loader_set_fault(l, &e);
    info->label = st == ST_OK ? at.score : 0;
    arena_free(a);
}

static int64_t fill_packed(const loader *l, const loader_place *p, const row *r, const scratch *mem,
                           err *e) {
    place_walk w;
    packing_piece piece;
    bool more = true;
    int64_t at = 0;
    status st = place_walk_begin(l, p, &w, e);
    while (st == ST_OK && (st = place_walk_next(&w, &piece, &more, e)) == ST_OK && more) {
        if (l->values && r->info) read_value(l, w.src->shards, piece.first_tok, r->info);
        fill_piece(l, w.src->shards, &piece, at, r, mem);
        at += piece.n;
    }
    if (st != ST_OK) loader_set_fault(l, e);
    return at;
}

/* ---- all rows ---- */

static int64_t fill_row(const loader *l, uint64_t sample, const row *r, const scratch *mem) {
    err e = {0};
    loader_place p = place_compute(l, sample);
    int64_t T = l->seq_len, live = 0;
    if (r->info) r->info->label = 1;
    int64_t n = loader_is_packed(l) ? fill_packed(l, &p, r, mem, &e) : fill_cut(l, &p, r, mem, &e);
    if (r->info) r->info->n_inputs = (int32_t)n;
    memset(r->ids + n, 0, (size_t)(T - n) * sizeof *r->ids);
    ignore_targets(r, n, T);
    fill_starts(r, n, T, l->document_mask ? n : 0);
    for (int64_t t = 0; t < n; t++) live += r->targets[t] != LOADER_IGNORE;
    return live;
}

void rows_fill_positions(int32_t *pos, const int32_t *start, int64_t n, int64_t T) {
    for (int64_t b = 0; b < n; b++)
        for (int64_t t = 0; t < T; t++)
            pos[b * T + t] = (int32_t)t - (start ? start[b * T + t] : 0);
}

int64_t loader_fill_rows(loader *l, uint64_t first_sample, int B, const loader_rows *rows) {
    const int64_t T = l->T;
    int64_t live = 0;
    if (l->S) {
        for (int64_t b = 0; b < B; b++)
            live += sources_fill_row(l, first_sample + (uint64_t)b, rows, b);
        return live;
    }
    scratch mem = scratch_new(l);
    for (int64_t b = 0; b < B; b++) {
        row r = {rows->ids + b * T, rows->targets + b * T, rows->start ? rows->start + b * T : NULL,
                 rows->info ? rows->info + b : NULL};
        live += fill_row(l, first_sample + (uint64_t)b, &r, &mem);
    }
    if (rows->pos) rows_fill_positions(rows->pos, rows->start, B, T);
    free(mem.tok);
    return live;
}

int64_t loader_fill(loader *l, uint64_t first_sample, int B, int32_t *ids, int32_t *targets,
                    int32_t *start, int32_t *pos, loader_row *info) {
    CHECK(l->S == 0, "rows with sources are filled by loader_fill_rows");
    loader_rows rows = {.ids = ids, .targets = targets, .start = start, .pos = pos, .info = info};
    return loader_fill_rows(l, first_sample, B, &rows);
}
