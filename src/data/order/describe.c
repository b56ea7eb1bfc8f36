/* From a sample to the documents it reads: for people who ask what was in a step. */
#include "data/order/loader_impl.h"

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
    for (int64_t at = 0;; at += piece.n) {
        TRY(place_walk_next(&w, &piece, &more, e));
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
