/* N-gram overlap (see overlap.h): a table of the task's n-grams, and one pass over the data with a
 * rolling hash. */
#include "eval/overlap.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "eval/dialogue.h"

/* An n-gram of a document; those with the same hash follow each other in `next`. */
typedef struct gram {
    uint64_t hash;
    int32_t doc, next; /* next -1: the last one */
    bool found;
} gram;

typedef struct gram_table {
    gram *gram;
    int32_t *slot; /* [mask + 1]: a gram, or -1 */
    int64_t n, cap;
    uint64_t mask;
} gram_table;

/* ---- hashing: sum of mix(id) * B^k, which can be moved on by a token ---- */

#define BASE 0x9E3779B97F4A7C15u

static uint64_t letter(int32_t id) {
    return mix64((uint64_t)(uint32_t)id + 1);
}

static uint64_t power_of_base(int n) {
    uint64_t p = 1;
    for (int i = 0; i < n; i++) p *= BASE;
    return p;
}

/* ---- the task ---- */

static size_t common_start(const eval_task *t) {
    if (t->n < 2) return 0;
    bool answers = t->kind == EVAL_ANSWER;
    if (t->kind == EVAL_TEXT || t->kind == EVAL_DIALOGUE) return 0;
    const eval_text first = answers ? t->doc[0].prompt : t->doc[0].choice[0].pair.context;
    size_t n = first.len;
    for (int32_t i = 1; i < t->n; i++) {
        const eval_text s = answers ? t->doc[i].prompt : t->doc[i].choice[0].pair.context;
        size_t k = 0;
        while (k < n && k < s.len && s.s[k] == first.s[k]) k++;
        n = k;
    }
    while (n > 0 && first.s[n - 1] != '\n') n--; /* whole lines, not half a question */
    return n;
}

static void text_of(const eval_task *t, const eval_doc *d, size_t skip, strbuf *out) {
    if (t->kind == EVAL_TEXT) {
        strbuf_append(out, d->text.s, d->text.len);
    } else if (t->kind == EVAL_DIALOGUE) {
        for (int i = 0; i < d->dialogue->n_turns; i++) {
            const eval_text said = d->dialogue->turn[i].said;
            strbuf_append(out, said.s, said.len);
            strbuf_putc(out, '\n');
        }
    } else if (t->kind == EVAL_ANSWER) {
        strbuf_append(out, d->prompt.s + skip, d->prompt.len - skip);
        strbuf_printf(out, " %s", d->target[0].s);
    } else {
        const eval_pair *p = &d->choice[d->n_gold ? d->gold[0] : 0].pair;
        strbuf_append(out, p->context.s + skip, p->context.len - skip);
        strbuf_append(out, p->continuation.s, p->continuation.len);
    }
}

static void add_grams(gram_table *g, const tok_ids *ids, int ngram, int32_t doc) {
    uint64_t h = 0, top = power_of_base(ngram);
    for (int64_t i = 0; i < ids->n; i++) {
        h = h * BASE + letter(ids->id[i]);
        if (i >= ngram) h -= letter(ids->id[i - ngram]) * top;
        if (i >= ngram - 1)
            VEC_PUSH(g->gram, g->n, g->cap, ((gram){.hash = h, .doc = doc, .next = -1}));
    }
}

static void index_grams(gram_table *g) {
    uint64_t size = 1024;
    while (size < 2 * (uint64_t)g->n) size *= 2;
    g->mask = size - 1;
    g->slot = xmalloc(sizeof *g->slot * size);
    memset(g->slot, 0xFF, sizeof *g->slot * size);
    for (int32_t i = 0; i < g->n; i++) {
        uint64_t at = mix64(g->gram[i].hash) & g->mask;
        while (g->slot[at] >= 0 && g->gram[g->slot[at]].hash != g->gram[i].hash)
            at = (at + 1) & g->mask;
        g->gram[i].next = g->slot[at];
        g->slot[at] = i;
    }
}

static status collect(overlap *o, gram_table *g, const eval_task *task, const tok *t, int ngram,
                      err *e) {
    size_t skip = common_start(task);
    status st = ST_OK;
    for (int32_t i = 0; st == ST_OK && i < task->n; i++) {
        strbuf text = {0};
        tok_ids ids = {0};
        text_of(task, &task->doc[i], skip, &text);
        st = tok_encode(t, strbuf_cstr(&text), text.len, 0, &ids, e);
        if (st == ST_OK) add_grams(g, &ids, ngram, i);
        o->doc[i] =
            (overlap_doc){.doc = &task->doc[i], .n = ids.n >= ngram ? ids.n - ngram + 1 : 0};
        tok_ids_free(&ids);
        strbuf_free(&text);
    }
    if (g->n > INT32_MAX / 2) return err_set(e, ST_MEMORY, "the task has too many n-grams");
    index_grams(g);
    return st;
}

/* ---- the data ---- */

static void note(overlap *o, gram_table *g, uint64_t hash, uint64_t first_tok) {
    uint64_t at = mix64(hash) & g->mask;
    while (g->slot[at] >= 0 && g->gram[g->slot[at]].hash != hash) at = (at + 1) & g->mask;
    for (int32_t i = g->slot[at]; i >= 0 && !g->gram[i].found; i = g->gram[i].next) {
        overlap_doc *d = &o->doc[g->gram[i].doc];
        if (d->found++ == 0) d->first_at = first_tok, o->n_found++;
        g->gram[i].found = true;
    }
}

static status scan(overlap *o, gram_table *g, const shards *s, int ngram, err *e) {
    enum { PIECE = 1 << 20 };
    int32_t *ids = xmalloc(sizeof *ids * PIECE), last[64] = {0};
    uint64_t h = 0, top = power_of_base(ngram), all = s->totals.tokens;
    status st = ST_OK;
    for (uint64_t at = 0; st == ST_OK && at < all; at += PIECE) {
        int64_t n = all - at < PIECE ? (int64_t)(all - at) : PIECE;
        st = shards_copy(s, at, n, ids, NULL, e);
        for (int64_t i = 0; st == ST_OK && i < n; i++) {
            uint64_t place = at + (uint64_t)i;
            int32_t *old = &last[place % (uint64_t)ngram];
            h = h * BASE + letter(ids[i]);
            if (place >= (uint64_t)ngram) h -= letter(*old) * top;
            *old = ids[i];
            if (place + 1 >= (uint64_t)ngram) note(o, g, h, place + 1 - (uint64_t)ngram);
        }
    }
    free(ids);
    return st;
}

status overlap_find(overlap *o, const eval_task *task, const tok *t, const shards *s, int ngram,
                    err *e) {
    CHECK(ngram >= 2 && ngram <= 64, "n-grams of %d", ngram);
    gram_table g = {0};
    *o = (overlap){.doc = xcalloc((size_t)task->n + 1, sizeof *o->doc)};
    status st = collect(o, &g, task, t, ngram, e);
    if (st == ST_OK) st = scan(o, &g, s, ngram, e);
    free(g.gram);
    free(g.slot);
    return st;
}

void overlap_free(overlap *o) {
    free(o->doc);
    *o = (overlap){0};
}
