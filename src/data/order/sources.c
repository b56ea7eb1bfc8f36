/* Rows with sources: an encoder reads the sources, a decoder is to write the targets. A row is made of pairs: one piece
 * of source and one of target each (packing.h), or one text whose spans are cut out (spans.h). */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "data/order/loader_impl.h"

/* A row that is being made; so much of it is there. */
typedef struct pair_row {
    const loader *l;
    loader_rows at; /* arrays of this row */
    int64_t n_source, n_target;
    int64_t live;
} pair_row;

static loader_rows row_of(const loader *l, const loader_rows *r, int64_t b) {
    int64_t T = l->T, S = l->S;
    return (loader_rows){.ids = r->ids + b * T,
                         .targets = r->targets + b * T,
                         .start = r->start ? r->start + b * T : NULL,
                         .pos = r->pos ? r->pos + b * T : NULL,
                         .info = r->info ? r->info + b : NULL,
                         .source = r->source + b * S,
                         .source_pos = r->source_pos + b * S,
                         .source_start = r->source_start + b * S,
                         .source_end = r->source_end + b * S,
                         .seen_start = r->seen_start + b * T,
                         .seen_end = r->seen_end + b * T};
}

/* The source's ids are in the row, behind those before. */
static void add_source(pair_row *r, int64_t n) {
    for (int64_t i = r->n_source; i < r->n_source + n; i++) {
        r->at.source_pos[i] = (int32_t)(i - r->n_source);
        r->at.source_start[i] = (int32_t)r->n_source;
        r->at.source_end[i] = (int32_t)(r->n_source + n);
    }
}

/* The target's ids are in `targets`, behind those before; it sees the source that add_source has added. */
static void add_target(pair_row *r, int64_t n, int64_t source, bool good) {
    int64_t first = r->n_target;
    for (int64_t i = first; i < first + n; i++) {
        r->at.ids[i] = i == first ? r->l->decoder_start : r->at.targets[i - 1];
        if (r->at.start) r->at.start[i] = (int32_t)first;
        if (r->at.pos) r->at.pos[i] = (int32_t)(i - first);
        r->at.seen_start[i] = (int32_t)r->n_source;
        r->at.seen_end[i] = (int32_t)(r->n_source + source);
    }
    for (int64_t i = first; i < first + n && !good; i++) r->at.targets[i] = LOADER_IGNORE;
    r->live += good ? n : 0;
    r->n_source += source;
    r->n_target += n;
}

static void pad(pair_row *r) {
    for (int64_t i = r->n_source; i < r->l->S; i++)
        r->at.source[i] = r->at.source_pos[i] = r->at.source_start[i] = r->at.source_end[i] = 0;
    for (int64_t i = r->n_target; i < r->l->T; i++) {
        r->at.ids[i] = r->at.seen_start[i] = r->at.seen_end[i] = 0;
        r->at.targets[i] = LOADER_IGNORE;
        if (r->at.start) r->at.start[i] = (int32_t)r->n_target;
        if (r->at.pos) r->at.pos[i] = (int32_t)(i - r->n_target);
    }
}

static status corrupt(err *e) {
    err_set(e, ST_FORMAT, "an index of pairs is corrupt: a row has no room for its pairs");
    return err_hint(e, "delete pack-*.seq in the folder of the set: it is made again");
}

static status add_pairs(pair_row *r, const loader_place *p, err *e) {
    place_walk w;
    packing_piece source, target;
    bool more = true;
    TRY(place_walk_begin(r->l, p, &w, e));
    while (true) {
        TRY(place_walk_next(&w, &source, &more, e));
        if (!more) return ST_OK;
        TRY(place_walk_next(&w, &target, &more, e));
        if (!more || source.n > r->l->S - r->n_source || target.n > r->l->T - r->n_target)
            return corrupt(e);
        const shards *s = w.src->shards;
        bool good = rows_read(r->l, s, source.first_tok, source.n, r->at.source + r->n_source);
        good &= rows_read(r->l, s, target.first_tok, target.n, r->at.targets + r->n_target);
        add_source(r, source.n);
        add_target(r, target.n, source.n, good);
    }
}

static void add_text(pair_row *r, uint64_t sample) {
    const loader *l = r->l;
    int64_t n;
    int32_t *text = xmalloc(sizeof *text * (size_t)(l->seq_len + 1));
    bool good = rows_read_text(l, sample, text, &n);
    if (n > 1) {
        span_sizes z = spans_of(&l->spans, n);
        spans_cut(&l->spans, mix64(l->seed ^ mix64(sample + 1)), text, n, r->at.source,
                  r->at.targets);
        add_source(r, z.source);
        add_target(r, z.target, z.source, good);
    }
    free(text);
}

int64_t sources_fill_row(const loader *l, uint64_t sample, const loader_rows *rows, int64_t b) {
    err e = {0};
    pair_row r = {.l = l, .at = row_of(l, rows, b)};
    loader_place p = place_compute(l, sample);
    if (l->cuts_spans)
        add_text(&r, sample);
    else if (add_pairs(&r, &p, &e) != ST_OK)
        loader_set_fault(l, &e);
    pad(&r);
    if (r.at.info) *r.at.info = (loader_row){.label = 1, .n_inputs = (int32_t)r.n_target};
    return r.live;
}
