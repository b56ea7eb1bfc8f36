/* Merges from ranks; see tiktoken.h. */
#include <stdlib.h>
#include <string.h>

#include "tok/format/tiktoken.h"
#include "tok/model/bpe.h"

typedef struct deriver {
    const rank_table *t;
    int32_t byte[256]; /* index of the token of a byte */
    bpe_model model;   /* the merges so far */
    bpe_work work;
} deriver;

static status find_bytes(deriver *d, const char *origin, err *e) {
    memset(d->byte, 0xFF, sizeof(d->byte));
    for (int32_t i = 0; i < d->t->n; i++) {
        const rank_token *k = &d->t->token[i];
        if (k->len == 1) d->byte[(uint8_t)k->bytes[0]] = i;
    }
    for (int b = 0; b < 256; b++) {
        if (d->byte[b] >= 0) continue;
        return err_set(e, ST_FORMAT, "%s: byte 0x%02x has no rank", origin, (unsigned)b);
    }
    return ST_OK;
}

static void reserve(deriver *d) {
    uint32_t slots = 16, longest = 1;
    for (int32_t i = 0; i < d->t->n; i++) {
        if (d->t->token[i].len > longest) longest = d->t->token[i].len;
    }
    while (slots / 2 < (uint32_t)d->t->n) slots *= 2;
    d->model.slot = xcalloc(slots, sizeof(*d->model.slot));
    d->model.mask = slots - 1;
    d->work.cap_symbols = longest;
    d->work.symbol = xmalloc(longest * sizeof(*d->work.symbol));
}

static void put(bpe_model *m, const shape_merge *merge) {
    uint64_t pair = pair_key(merge->left, merge->right) + 1;
    uint32_t i = (uint32_t)mix64(pair) & m->mask;
    while (m->slot[i].pair != 0) i = (i + 1) & m->mask;
    m->slot[i] = (bpe_merge){pair, m->n_merges++, merge->id};
}

/* How many parts lower ranks leave of a token. */
static int32_t parts_of(deriver *d, const rank_token *k) {
    for (uint32_t i = 0; i < k->len; i++) {
        int32_t id = d->byte[(uint8_t)k->bytes[i]];
        d->work.symbol[i] = (bpe_symbol){id, (int32_t)i, (int32_t)i + 1};
    }
    return bpe_merge_all(&d->model, &d->work, (int32_t)k->len, NULL);
}

status rank_merges(const rank_table *t, shape_merge **merge, int32_t *n, int32_t *n_whole,
                   const char *origin, err *e) {
    deriver d = {.t = t};
    *n = *n_whole = 0;
    TRY(find_bytes(&d, origin, e));
    reserve(&d);
    *merge = xmalloc(sizeof(**merge) * ((size_t)t->n + 1));
    for (int32_t i = 0; i < t->n; i++) {
        if (t->token[i].len == 1) continue;
        if (parts_of(&d, &t->token[i]) != 2) {
            ++*n_whole;
            continue;
        }
        shape_merge m = {d.work.symbol[0].id, d.work.symbol[1].id, i};
        put(&d.model, &m);
        (*merge)[(*n)++] = m;
    }
    free(d.model.slot);
    bpe_work_free(&d.work);
    return ST_OK;
}
