/* What can be said of a vocabulary once a corpus is counted: what was never used, and what could
 * not be. A token that no text produces is never trained, and misleads a model when it appears
 * (Land and Bartolo, arXiv:2405.05417). */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "tok/internal.h"
#include "tok/report/report.h"

static bool produces(const tok *t, const char *text, size_t len, int32_t id, tok_ids *ids) {
    ids->n = 0;
    if (tok_encode(t, text, len, 0, ids, NULL) != ST_OK) return false;
    for (int64_t i = 0; i < ids->n; i++)
        if (ids->id[i] == id) return true;
    return false;
}

/* The text of a token alone, without the space that some tokenizers put there themselves, and where
 * a word goes on: behind letters and marks that merge with little. Parts of characters are not
 * judged: they are no text. */
static bool is_reachable(const tok *t, int32_t id, tok_ids *ids, strbuf *text) {
    static const char *const BEFORE[] = {"", "a", "q", "z", "0", "\n", "("};
    size_t len;
    const char *bytes = tok_bytes(t, id, &len);
    if (utf8_valid_prefix(bytes, len) < len) return true;
    if (len > 0 && bytes[0] == ' ' && produces(t, bytes + 1, len - 1, id, ids)) return true;
    for (int i = 0; i < ARRAY_LEN(BEFORE); i++) {
        strbuf_clear(text);
        strbuf_puts(text, BEFORE[i]);
        strbuf_append(text, bytes, len);
        if (produces(t, strbuf_cstr(text), text->len, id, ids)) return true;
    }
    return false;
}

static void list_unreachable(const tok *t, tok_vocab_report *out) {
    int64_t n = out->unused.n;
    bool *reachable = xcalloc((size_t)n + 1, sizeof *reachable);
#pragma omp parallel
    {
        tok_ids ids = {0};
        strbuf text = {0};
#pragma omp for schedule(dynamic, 256)
        for (int64_t i = 0; i < n; i++)
            reachable[i] = is_reachable(t, out->unused.id[i], &ids, &text);
        tok_ids_free(&ids);
        strbuf_free(&text);
    }
    for (int64_t i = 0; i < n; i++)
        if (!reachable[i]) tok_ids_push(&out->unreachable, out->unused.id[i]);
    free(reachable);
}

/* Keeps the list of the longest in order; among equals the lower id is first. */
static void offer_longest(const tok *t, tok_ids *list, int32_t id) {
    int64_t at = list->n;
    while (at > 0 && t->token[list->id[at - 1]].n_bytes < t->token[id].n_bytes) at--;
    if (at == TOK_REPORT_LONGEST) return;
    if (list->n < TOK_REPORT_LONGEST) tok_ids_push(list, id);
    memmove(list->id + at + 1, list->id + at, sizeof(int32_t) * (size_t)(list->n - at - 1));
    list->id[at] = id;
}

void tok_report_vocabulary(const tok_report *r, int tok_index, tok_vocab_report *out) {
    const tok *t = r->tok[tok_index].t;
    const int64_t *count = r->tok[tok_index].count;
    *out = (tok_vocab_report){0};
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (!k->text) continue;
        out->size++;
        out->used += count[id] > 0;
        out->special += k->special;
        if (k->special) continue;
        if (count[id] == 0) tok_ids_push(&out->unused, id);
        offer_longest(t, &out->longest, id);
        if (k->n_bytes > 1 && utf8_valid_prefix(k->bytes, k->n_bytes) < k->n_bytes)
            tok_ids_push(&out->partial, id);
    }
    list_unreachable(t, out);
}

void tok_vocab_report_free(tok_vocab_report *v) {
    tok_ids_free(&v->unused);
    tok_ids_free(&v->unreachable);
    tok_ids_free(&v->partial);
    tok_ids_free(&v->longest);
}
