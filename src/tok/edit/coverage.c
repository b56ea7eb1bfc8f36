/* What must stay in a vocabulary so that it represents every text that it did. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/edit/edit.h"

/* ---- the characters of a token ---- */

static const char *continuing_prefix(const edit *d) {
    bool is_default =
        edit_is(d, "WordPiece") && !json_object_get(d->model, "continuing_subword_prefix");
    return is_default ? "##" : edit_option(d, "continuing_subword_prefix");
}

void edit_symbols_of(const edit *d, const tok_token *k, edit_symbols *out) {
    const char *prefix = continuing_prefix(d), *suffix = edit_option(d, "end_of_word_suffix");
    size_t n_prefix = strlen(prefix), n_suffix = strlen(suffix), at = 0, end = k->n_text;
    bool continues = n_prefix > 0 && end > n_prefix && memcmp(k->text, prefix, n_prefix) == 0;
    if (continues) at = n_prefix;
    bool ends = n_suffix > 0 && end - at > n_suffix &&
                memcmp(k->text + end - n_suffix, suffix, n_suffix) == 0;
    if (ends) end -= n_suffix;
    strbuf symbol = {0};
    out->n = 0;
    while (at < end) {
        uint32_t cp;
        int n = utf8_decode(k->text + at, end - at, &cp);
        if (n == 0) n = 1;
        strbuf_clear(&symbol);
        if (continues || out->n > 0) strbuf_puts(&symbol, prefix);
        strbuf_append(&symbol, k->text + at, (size_t)n);
        at += (size_t)n;
        if (at == end && ends) strbuf_puts(&symbol, suffix);
        int32_t id = tok_model_id(d->t, strbuf_cstr(&symbol), symbol.len);
        VEC_PUSH(out->id, out->n, out->cap, id);
    }
    strbuf_free(&symbol);
}

/* ---- what must stay ---- */

static int32_t mark(void *ctx, int32_t id) {
    bool *keep = ctx;
    keep[id] = true;
    return id;
}

static void mark_named(const edit *d, bool *keep) {
    const tok *t = d->t;
    for (int32_t id = 0; id < t->n_token; id++) keep[id] = t->token[id].added;
    const int32_t named[] = {t->unk, t->bos, t->eos};
    for (int i = 0; i < ARRAY_LEN(named); i++)
        if (named[i] >= 0) keep[named[i]] = true;
    edit_map_other_ids((edit *)d, mark, keep);
}

static void mark_bytes(const edit *d, bool *keep) {
    for (int b = 0; b < 256; b++) {
        char name[8];
        int n = snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        int32_t id = tok_model_id(d->t, name, (size_t)n);
        if (id >= 0) keep[id] = true;
    }
}

void edit_mark_required(const edit *d, const int64_t *count, bool *keep) {
    const tok *t = d->t;
    edit_symbols s = {0};
    bool fallback = edit_flag(d, "byte_fallback"), bpe = edit_is(d, "BPE");
    mark_named(d, keep);
    if (fallback) mark_bytes(d, keep);
    for (int32_t id = 0; id < t->n_token; id++) {
        if (!t->token[id].in_model || keep[id]) continue;
        edit_symbols_of(d, &t->token[id], &s);
        if (s.n == 1) keep[id] = !fallback || count[id] > 0;
        /* A piece may be all that represents one of its characters. (The score of an unknown
         * character depends on the lowest of all, but stays below what any such piece has.) */
        for (int32_t i = 0; i < s.n && !bpe && !fallback; i++)
            if (s.id[i] < 0) keep[id] = true;
    }
    free(s.id);
}
