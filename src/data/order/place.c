/* From a sample to its place: by arithmetic, or with one look into an index of sequences. From a
 * place to ranges of tokens and to documents. */
#include "data/order/loader_impl.h"

#include "base/rng.h"

/* The token at which an epoch begins to cut. */
static uint64_t first_cut(const loader *l, const source_state *src, uint64_t epoch) {
    uint32_t bits[4];
    if (l->cut_once) return 0;
    rng_block(rng_key_named(src->seed, "data.phase"), epoch, 0, bits);
    return ((uint64_t)bits[0] << 32 | bits[1]) % src->n_tok;
}

/* What is dealt and shuffled are whole samples: the parts of one stay together. */
static loader_place place_shuffled(const loader *l, uint64_t sample) {
    loader_place p = {0};
    uint64_t parts = (uint64_t)l->parts, part = sample % parts, whole;
    p.source = mixture_source(l->mix, sample / parts, &whole);
    const source_state *src = &l->source[p.source];
    uint64_t of_epoch = src->chosen ? src->n_chosen : src->sequences / parts;
    p.ordinal = (whole + src->consumed / parts) * parts + part;
    if (!src->chosen) whole += src->consumed / parts;
    p.epoch = whole / of_epoch;
    p.sequence = whole % of_epoch * parts + part;
    if (src->chosen) p.sequence = src->chosen[p.sequence];
    if (l->order != ORDER_SHUFFLE) return p;
    whole = rng_permute(rng_key_numbered(src->seed, p.epoch), of_epoch, whole % of_epoch);
    p.sequence = src->chosen ? src->chosen[whole] : whole * parts + part;
    if (src->packing) return p;
    p.first_tok = (first_cut(l, src, p.epoch) + p.sequence * (uint64_t)l->seq_len) % src->n_tok;
    p.n_inputs = l->seq_len;
    return p;
}

/* What is behind the last one has no inputs. */
static loader_place place_in_turn(const loader *l, uint64_t sample) {
    int k = 0;
    while (k < l->n_sources - 1 && sample >= l->source[k].sequences)
        sample -= l->source[k++].sequences;
    const source_state *src = &l->source[k];
    loader_place p = {.source = k, .ordinal = sample, .sequence = sample};
    if (src->packing || sample >= src->sequences) return p;
    p.first_tok = sample * (uint64_t)l->seq_len;
    p.n_inputs = l->seq_len;
    return p;
}

static loader_place place_in_order(const loader *l, uint64_t sample) {
    int k = 0;
    while (k < l->n_sources && sample >= l->source[k].sequences) sample -= l->source[k++].sequences;
    loader_place p = {.source = k, .ordinal = sample, .sequence = sample};
    if (k == l->n_sources) {
        p.source = k - 1;
        p.sequence = l->source[k - 1].sequences;
        return p;
    }
    if (loader_is_packed(l)) return p;
    uint64_t T = (uint64_t)l->seq_len, left = l->source[k].n_tok - 1 - sample * T;
    p.first_tok = sample * T;
    p.n_inputs = left < T ? (int64_t)left : (int64_t)T;
    return p;
}

loader_place place_compute(const loader *l, uint64_t sample) {
    if (l->in_turn) return place_in_turn(l, sample);
    return l->shuffle ? place_shuffled(l, sample) : place_in_order(l, sample);
}

status place_look_up(const loader *l, loader_place *p, err *e) {
    const source_state *src = &l->source[p->source];
    if (!src->packing || loader_is_packed(l) || p->sequence >= src->sequences) return ST_OK;
    uint64_t sequence;
    TRY(packing_sequence(src->packing, p->sequence, &sequence, e));
    p->first_tok = sequence * (uint64_t)l->seq_len;
    p->n_inputs = l->seq_len;
    return ST_OK;
}

/* The first piece's first token, and the tokens of all pieces. */
static status sum_pieces(const loader *l, loader_place *p, err *e) {
    place_walk w;
    packing_piece piece;
    bool more;
    TRY(place_walk_begin(l, p, &w, e));
    for (;;) {
        TRY(place_walk_next(&w, &piece, &more, e));
        if (!more) return ST_OK;
        if (p->n_inputs == 0) p->first_tok = piece.first_tok;
        p->n_inputs += piece.n;
    }
}

loader_place loader_place_of(const loader *l, uint64_t sample) {
    loader_place p = place_compute(l, sample);
    if (!l->source[p.source].packing) return p;
    err e = {0};
    status st = loader_is_packed(l) ? sum_pieces(l, &p, &e) : place_look_up(l, &p, &e);
    if (st != ST_OK) loader_set_fault(l, &e);
    return p;
}

status place_walk_begin(const loader *l, const loader_place *p, place_walk *w, err *e) {
    w->src = &l->source[p->source];
    w->packed = loader_is_packed(l);
    w->tok = p->first_tok;
    w->left = (uint64_t)p->n_inputs;
    if (!w->packed) return ST_OK;
    w->pieces.last = true; /* of a sample behind the last one there is no piece */
    if (p->sequence >= w->src->sequences) return ST_OK;
    return packing_walk_begin(w->src->packing, p->sequence, &w->pieces, e);
}

status place_walk_next(place_walk *w, packing_piece *piece, bool *more, err *e) {
    if (w->packed) return packing_walk_next(&w->pieces, piece, more, e);
    *more = w->left > 0;
    if (!*more) return ST_OK;
    uint64_t room = w->src->n_tok - w->tok, n = w->left < room ? w->left : room;
    *piece = (packing_piece){.first_tok = w->tok, .n = (int64_t)n, .goes_on = true};
    w->left -= n;
    w->tok = 0; /* around the ring */
    return ST_OK;
}

/* ---- from a place to its documents: for people who ask what was in a step ---- */

typedef struct span_list {
    arena *a;
    loader_span *items;
    int32_t n, cap;
} span_list;

static void add_span(span_list *list, loader_span span) {
    list->items = arena_grow(list->a, list->items, list->n, &list->cap, sizeof *list->items);
    list->items[list->n++] = span;
}

/* The documents of one contiguous range of tokens, which lies at `at` in the row. */
static status describe_piece(const loader *l, int source, const packing_piece *piece, int64_t at,
                             span_list *list, err *e) {
    const shards *s = l->source[source].shards;
    uint64_t tok = piece->first_tok, end = tok + (uint64_t)piece->n;
    while (tok < end) {
        loader_span span = {.source = source, .set = s->dir, .first_tok = tok};
        TRY(shards_locate(s, tok, list->a, &span.place, e));
        CHECK(span.place.end_tok > tok, "an empty document");
        span.shard = s->shard[span.place.shard].file;
        span.end_tok = span.place.end_tok < end ? span.place.end_tok : end;
        span.row_first = (int)(at + (int64_t)(tok - piece->first_tok));
        tok = span.end_tok;
        add_span(list, span);
    }
    return ST_OK;
}

static status describe(const loader *l, uint64_t sample, span_list *list, err *e) {
    loader_place p = place_compute(l, sample);
    place_walk w;
    packing_piece piece;
    bool more;
    TRY(place_look_up(l, &p, e));
    TRY(place_walk_begin(l, &p, &w, e));
    bool pairs = l->S && !l->cuts_spans;
    for (int64_t at = 0;; at += piece.n) {
        TRY(place_walk_next(&w, &piece, &more, e));
        if (more && pairs)
            TRY(place_walk_next(&w, &piece, &more, e)); /* the target; its source was before it */
        if (!more) return ST_OK;
        TRY(describe_piece(l, p.source, &piece, at, list, e));
    }
}

status loader_describe(const loader *l, uint64_t sample, arena *a, loader_span **spans, int *n,
                       err *e) {
    span_list list = {.a = a};
    status st = describe(l, sample, &list, e);
    *spans = list.items;
    *n = list.n;
    return st;
}
