/* Reading an index of sequences. If its trailer is not exactly that of this set and this packing,
 * the index is made again. Pieces are checked when they are read. */
#include "data/order/packing_format.h"

#include "base/arena.h"
#include "base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct packing {
    int fd;
    char *path;
    uint64_t n_tok, n_pieces;
    int64_t seq_len, source_len;
    packing_totals totals;
};

/* ---- opening ---- */

uint64_t packing_trailer_hash(const packing_trailer *t) {
    return hash_bytes(t, offsetof(packing_trailer, hash));
}

static status read_at(const packing *p, void *out, size_t n, uint64_t offset, err *e) {
    ssize_t got = file_read_at(p->fd, out, n, offset);
    if (got == (ssize_t)n) return ST_OK;
    if (got < 0) return err_unreadable(e, "read", p->path);
    err_at(e, ST_FORMAT, p->path, "%s became shorter while it was read", p->path);
    return err_hint(e, "delete the file and start again: it is made again from the shards");
}

static bool trailer_fits(const packing_trailer *t, const packing_spec *spec, uint64_t size) {
    uint64_t body = size - sizeof *t, n = t->totals.sequences;
    return memcmp(t->magic, PACKING_MAGIC, sizeof t->magic) == 0 &&
           t->hash == packing_trailer_hash(t) && t->packing == spec->packing &&
           t->order == spec->order && t->seq_len == (uint32_t)spec->seq_len &&
           t->source_len == (uint32_t)spec->source_len && t->firsts == (uint32_t)spec->firsts &&
           t->fingerprint == spec->set->fingerprint && t->n_tok == spec->set->totals.tokens &&
           n > 0 && n <= body / PACKING_ENTRY_BYTES && t->n_pieces <= body / PACKING_PIECE_BYTES &&
           t->n_pieces * PACKING_PIECE_BYTES + n * PACKING_ENTRY_BYTES == body;
}

/* Opens p->path; *fits = false when there is no file, or one of other data. */
static status open_file(packing *p, const packing_spec *spec, bool *fits, err *e) {
    packing_trailer t;
    *fits = false;
    int64_t size;
    p->fd = -1;
    if (!file_exists(p->path) && errno == ENOENT) return ST_OK;
    TRY(file_open_part(p->path, &p->fd, &size, e));
    if (size < (int64_t)sizeof t) return ST_OK;
    TRY(read_at(p, &t, sizeof t, (uint64_t)size - sizeof t, e));
    *fits = trailer_fits(&t, spec, (uint64_t)size);
    p->totals = t.totals;
    p->n_pieces = t.n_pieces;
    return ST_OK;
}

static void close_file(packing *p) {
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
}

/* In the folder of the set; files of others have it beside the first of them. */
static char *file_path(arena *a, const packing_spec *spec) {
    static const char *const packings[] = {LOADER_PACKINGS(LIST_WORD)};
    static const char *const orders[] = {"", "-asc", "-desc"};
    const shards *s = spec->set;
    char *source = spec->source_len ? arena_printf(a, "%dx", spec->source_len) : "";
    char *name =
        arena_printf(a, "pack-%s-%s%d%s.seq", spec->firsts ? "first" : packings[spec->packing],
                     source, spec->seq_len, orders[spec->order]);
    if (file_is_dir(s->dir)) return path_join(a, s->dir, name);
    return arena_printf(a, "%s.%s", s->shard[0].file, name);
}

static status open_or_make(packing *p, const packing_spec *spec, err *e) {
    bool fits;
    TRY(open_file(p, spec, &fits, e));
    if (fits) return ST_OK;
    close_file(p);
    TRY(packing_make(spec, p->path, e));
    TRY(open_file(p, spec, &fits, e));
    if (fits) return ST_OK;
    err_at(e, ST_FAILED, p->path, "%s was just written and is not what was written", p->path);
    return err_hint(e, "another program may have replaced it: start again");
}

static status check_scores(const packing_spec *spec, err *e) {
    if (spec->order == ORDER_SHUFFLE || spec->set->has_scores) return ST_OK;
    err_at(e, ST_USAGE, "data.order",
           "an order by score needs a score for each document, %s has none", spec->set->dir);
    return err_hint(e,
                    "build the set with `athanor data build ... score=FIELD`, or set data.order to "
                    "shuffle");
}

status packing_open(packing **out, const packing_spec *spec, err *e) {
    *out = NULL;
    TRY(check_scores(spec, e));
    arena *a = arena_new("packing");
    packing *p = xcalloc(1, sizeof *p);
    p->fd = -1;
    p->path = xstrdup(file_path(a, spec));
    p->n_tok = spec->set->totals.tokens;
    p->seq_len = spec->seq_len;
    p->source_len = spec->source_len;
    arena_free(a);
    status st = open_or_make(p, spec, e);
    if (st == ST_OK)
        *out = p;
    else
        packing_close(p);
    return st;
}

void packing_close(packing *p) {
    if (!p) return;
    close_file(p);
    free(p->path);
    free(p);
}

packing_totals packing_get_totals(const packing *p) {
    return p->totals;
}

/* ---- sequences and pieces ---- */

static status impossible(const packing *p, const char *what, uint64_t number, err *e) {
    err_at(e, ST_FORMAT, p->path, "%s is corrupt: %s %" PRIu64 " cannot be", p->path, what, number);
    return err_hint(e, "delete the file: it is made again from the shards");
}

static status read_entry(const packing *p, uint64_t place, uint64_t limit, uint64_t *value,
                         err *e) {
    CHECK(place < p->totals.sequences, "sequence %" PRIu64, place);
    uint64_t offset = p->n_pieces * PACKING_PIECE_BYTES + place * PACKING_ENTRY_BYTES;
    TRY(read_at(p, value, sizeof *value, offset, e));
    return *value < limit ? ST_OK : impossible(p, "sequence", place, e);
}

status packing_sequence(const packing *p, uint64_t place, uint64_t *sequence, err *e) {
    return read_entry(p, place, p->n_tok / (uint64_t)p->seq_len, sequence, e);
}

status packing_walk_begin(const packing *p, uint64_t place, packing_walk *w, err *e) {
    w->p = p;
    w->room = p->seq_len + p->source_len;
    w->at = w->n = 0;
    w->last = false;
    return read_entry(p, place, p->n_pieces, &w->next, e);
}

/* Pieces ahead; a row of one piece costs no more than its bytes do. */
static status read_ahead(packing_walk *w, err *e) {
    enum { AHEAD = sizeof w->buffer / PACKING_PIECE_BYTES };
    uint64_t left = w->p->n_pieces - w->next;
    if (left == 0) return impossible(w->p, "the end of piece", w->next, e);
    w->n = left < AHEAD ? (int)left : AHEAD;
    w->at = 0;
    return read_at(w->p, w->buffer, (size_t)w->n * PACKING_PIECE_BYTES,
                   w->next * PACKING_PIECE_BYTES, e);
}

status packing_walk_next(packing_walk *w, packing_piece *piece, bool *more, err *e) {
    *more = !w->last;
    if (w->last) return ST_OK;
    if (w->at == w->n) TRY(read_ahead(w, e));
    const uint8_t *bytes = w->buffer + w->at++ * PACKING_PIECE_BYTES;
    uint64_t number = w->next++;
    uint32_t bits;
    memcpy(&piece->first_tok, bytes, 8);
    memcpy(&bits, bytes + 8, 4);
    piece->n = bits & PACKING_N_TOK_MASK;
    piece->goes_on = bits & PACKING_GOES_ON;
    w->last = bits & PACKING_LAST;
    uint64_t need = (uint64_t)piece->n + piece->goes_on;
    if (piece->n < 1 || piece->n > w->room || need > w->p->n_tok ||
        piece->first_tok > w->p->n_tok - need)
        return impossible(w->p, "piece", number, e);
    w->room -= piece->n;
    return ST_OK;
}
