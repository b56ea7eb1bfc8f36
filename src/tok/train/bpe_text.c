/* The words as symbols; see bpe.h. */
#include <stdlib.h>
#include <string.h>

#include "tok/train/bpe.h"

static int64_t next_block(int64_t at) {
    return (at + BLOCK_PLACES - 1) / BLOCK_PLACES * BLOCK_PLACES;
}

/* Fills up with END to the next block, where the next segment begins. */
static void open_segment(bpe_text *t, int64_t count) {
    int64_t start = next_block(t->n + 1);
    while (t->n < start) t->sym[t->n++] = SYM_END;
    bpe_segment s = {.start = start, .count = count};
    VEC_PUSH(t->segment, t->n_segments, t->cap_segments, s);
}

static void close_segment(bpe_text *t) {
    t->segment[t->n_segments - 1].end = t->n;
}

/* After the last word: END for whoever looks one symbol ahead. */
static void finish(bpe_text *t) {
    int64_t end = next_block(t->n + 1);
    while (t->n < end) t->sym[t->n++] = SYM_END;
    t->sym = xrealloc(t->sym, sizeof(*t->sym) * (size_t)t->n);
    t->count = xrealloc(t->count, sizeof(*t->count) * (size_t)(t->n / BLOCK_PLACES));
    for (int32_t i = 0; i < t->n_segments; i++) {
        const bpe_segment *s = &t->segment[i];
        for (int64_t b = s->start / BLOCK_PLACES; b * BLOCK_PLACES < s->end; b++) {
            t->count[b] = s->count;
        }
    }
}

static int64_t places_at_most(const word_ref *words, int64_t n) {
    int64_t places = 2 * BLOCK_PLACES;
    for (int64_t i = 0; i < n; i++) {
        places += words[i].len + 1;
        if (i == 0 || words[i].count != words[i - 1].count) places += 2 * BLOCK_PLACES;
    }
    return places;
}

void bpe_text_build(bpe_text *t, const word_ref *words, int64_t n, bpe_spell_fn *spell,
                    const void *ctx) {
    *t = (bpe_text){0};
    t->sym = xmalloc(sizeof(*t->sym) * (size_t)places_at_most(words, n));
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || words[i].count != words[i - 1].count) {
            if (i > 0) close_segment(t);
            open_segment(t, words[i].count);
        }
        int32_t symbols = spell(ctx, words[i].s, words[i].len, t->sym + t->n);
        for (int32_t k = 0; k < symbols; k++) t->live += t->sym[t->n + k] >= 0;
        t->n += symbols;
        t->sym[t->n++] = SYM_END;
    }
    if (n > 0) close_segment(t);
    finish(t);
    CHECK(t->n < UINT32_MAX, "the distinct words have more than 2^32 symbols");
}

static bool stays(int32_t v) {
    return v >= SYM_END;
}

/* The same walk as bpe_text_compact, without moving anything. */
uint32_t *bpe_text_plan(const bpe_text *t) {
    uint32_t *plan = xcalloc((size_t)(t->n / BLOCK_PLACES) + 1, sizeof(*plan));
    int64_t to = 0;
    for (int32_t i = 0; i < t->n_segments; i++) {
        const bpe_segment *s = &t->segment[i];
        to = next_block(to + 1);
        for (int64_t p = s->start; p < s->end; p++) {
            if (p % BLOCK_PLACES == 0) plan[p / BLOCK_PLACES] = (uint32_t)to;
            to += stays(t->sym[p]);
        }
    }
    return plan;
}

uint32_t bpe_text_new_place(const bpe_text *t, const uint32_t *plan, int64_t p) {
    uint32_t to = plan[p / BLOCK_PLACES];
    for (int64_t k = p / BLOCK_PLACES * BLOCK_PLACES; k < p; k++) to += stays(t->sym[k]);
    return to;
}

/* Works to the left of where it reads: a segment never begins later than it did. */
void bpe_text_compact(bpe_text *t) {
    int64_t to = 0;
    for (int32_t i = 0; i < t->n_segments; i++) {
        bpe_segment *s = &t->segment[i];
        int64_t from = s->start, end = s->end, start = next_block(to + 1);
        while (to < start) t->sym[to++] = SYM_END;
        for (; from < end; from++) {
            if (stays(t->sym[from])) t->sym[to++] = t->sym[from];
        }
        s->start = start;
        s->end = to;
    }
    t->n = to;
    finish(t);
}

void bpe_text_free(bpe_text *t) {
    free(t->sym);
    free(t->count);
    free(t->segment);
    *t = (bpe_text){0};
}

void bpe_text_cut(const bpe_text *t, int n, int64_t *cut) {
    cut[0] = 1; /* place 0 is an END */
    for (int i = 1; i < n; i++) {
        int64_t at = t->n / n * i;
        if (at < cut[i - 1]) at = cut[i - 1];
        while (at < t->n && t->sym[at - 1] != SYM_END) at++;
        cut[i] = at;
    }
    cut[n] = t->n;
}
