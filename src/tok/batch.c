/* Many texts, or one long text, by all threads. The ids do not depend on the number of threads.
 *
 * A long text is cut into parts where a pre-token ends in any case, so that the ids of the parts, one
 * after the other, are those of the whole. With the usual patterns that is between a letter and white
 * space: they take letters to the end of their run, and white space begins another pre-token,
 * whatever stands further on either side. Where each character becomes its ids by itself (kinds char
 * and byte), it is between any two characters that no added token has side by side. Other tokenizers
 * need the whole text. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/internal.h"
#include "tok/model/bpe.h"
#include "tok/text/unicode.h"

enum { CHUNK_BYTES = 32 << 10 };

/* ---- many texts ---- */

status tok_encode_batch(const tok *t, const tok_string *texts, int64_t n, unsigned flags,
                        tok_ids *out, int64_t *failed, err *e) {
    int64_t first_bad = n;
#pragma omp parallel for schedule(dynamic, 1) if (n > 1 && !omp_in_parallel())
    for (int64_t i = 0; i < n; i++) {
        out[i].n = 0;
        if (tok_encode(t, texts[i].text, texts[i].len, flags, &out[i], NULL) == ST_OK) continue;
#pragma omp critical(tok_encode_batch_failed)
        if (i < first_bad) first_bad = i;
    }
    if (first_bad == n) return ST_OK;
    if (failed) *failed = first_bad;
    const tok_string *bad = &texts[first_bad];
    return tok_encode(t, bad->text, bad->len, flags, &out[first_bad], e);
}

/* ---- one long text ---- */

/* Normalizers that look at one character and the marks after it, and leave an ASCII letter and
 * white space what they are. */
static bool is_local(const norm_step *s) {
    switch (s->kind) {
        case NORM_NFC:
        case NORM_NFD:
        case NORM_NFKC:
        case NORM_NFKD:
        case NORM_STRIP_ACCENTS:
        case NORM_STRIP_NONSPACING:
        case NORM_CLEAN:
        case NORM_CHINESE:
        case NORM_LOWERCASE: return true;
        default: return false;
    }
}

/* One step that ends a pre-token at every end of a run of letters; before it only such as look at
 * one character at a time. */
static bool cuts_after_letters(const tok *t) {
    int i = 0;
    while (i < t->n_steps && pretok_is_single(&t->step[i])) i++;
    return i < t->n_steps && pretok_ends_letters(&t->step[i]);
}

/* A normalizer may make marks of other letters, and a mark does not end before a newline. */
static bool letter_before(const char *s, size_t at, bool ascii) {
    size_t i = at;
    if (ascii) return (unsigned)(((uint8_t)s[at - 1] | 0x20) - 'a') < 26;
    do i--;
    while (i > 0 && at - i < 4 && utf8_continues(s[i]));
    uint32_t cp;
    return utf8_decode(s + i, at - i, &cp) == (int)(at - i) && uni_class_of(cp) == UNI_LETTER;
}

static bool is_space_after_letter(const char *s, size_t at, bool ascii) {
    return (s[at] == ' ' || s[at] == '\n' || s[at] == '\t') && letter_before(s, at, ascii);
}

/* A token with such a place inside, or that takes white space after a letter, would be cut. */
static bool is_whole(const tok *t, const tok_added_set *m) {
    for (int32_t k = 0; k < m->n_added; k++) {
        const tok_token *token = &t->token[m->added[k].id];
        if (m->added[k].rstrip && letter_before(token->text, token->n_text, false)) return false;
        for (uint32_t i = 1; i < token->n_text; i++) {
            if (is_space_after_letter(token->text, i, false)) return false;
        }
    }
    return true;
}

static bool can_be_cut_after_letters(const tok *t) {
    for (int i = 0; i < t->n_norm; i++) {
        if (!is_local(&t->norm[i])) return false;
    }
    return cuts_after_letters(t) && is_whole(t, &t->raw) && is_whole(t, &t->normal);
}

/* Notes what added tokens have side by side; false: some look at the text around them. */
static bool note_added(const tok *t, const tok_added_set *m, joined_bytes *joined) {
    for (int32_t k = 0; k < m->n_added; k++) {
        const tok_added *a = &m->added[k];
        if (a->single_word || a->lstrip || a->rstrip) return false;
        joined_add_token(joined, t->token[a->id].text, t->token[a->id].n_text);
    }
    return true;
}

/* Where the texts of a tokenizer can be cut. */
typedef enum cut_rule {
    CUT_NOWHERE,
    CUT_AFTER_LETTERS, /* between a letter and white space */
    CUT_APART,         /* between any characters that no added token has side by side */
} cut_rule;
typedef struct cutter {
    cut_rule rule;
    bool ascii;          /* CUT_AFTER_LETTERS: only ASCII letters count */
    joined_bytes joined; /* CUT_APART */
} cutter;

static cutter cutter_of(const tok *t) {
    cutter c = {.ascii = t->n_norm > 0};
    if (encode_needs_places(t)) return c;
    if (can_be_cut_after_letters(t)) {
        c.rule = CUT_AFTER_LETTERS;
    } else if (t->n_norm == 0 && t->n_steps == 0 && bpe_is_apart(t)) {
        joined_add_characters(&c.joined);
        bool apart = note_added(t, &t->raw, &c.joined) && note_added(t, &t->normal, &c.joined);
        c.rule = apart ? CUT_APART : CUT_NOWHERE;
    }
    return c;
}

static inline bool is_cut(const cutter *c, const char *s, size_t at) {
    if (c->rule == CUT_AFTER_LETTERS) return is_space_after_letter(s, at, c->ascii);
    return !joined_has(&c->joined, (uint8_t)s[at - 1], (uint8_t)s[at]);
}

/* The first cut at or after `at`, `len` if there is none. */
static size_t cut_from(const cutter *c, const char *s, size_t len, size_t at) {
    if (c->rule == CUT_NOWHERE) return len;
    while (at < len && !is_cut(c, s, at)) at++;
    return at < len ? at : len;
}

size_t tok_cut(const tok *t, const char *text, size_t len, size_t at) {
    CHECK(at > 0, "a cut at the beginning");
    if (at >= len) return len;
    cutter c = cutter_of(t);
    return cut_from(&c, text, len, at);
}

/* Cuts a text into parts of about CHUNK_BYTES; the caller frees them. */
static int64_t cut(const tok *t, const char *s, size_t len, tok_string **parts) {
    int64_t n = 0, cap = 0;
    cutter c = cutter_of(t);
    *parts = NULL;
    for (size_t from = 0, to; from < len; from = to) {
        to = cut_from(&c, s, len, from + CHUNK_BYTES);
        VEC_PUSH(*parts, n, cap, ((tok_string){s + from, to - from}));
    }
    return n;
}

bool encode_parallel_pays(const tok *t, size_t len) {
    return len >= 4 * CHUNK_BYTES && omp_get_max_threads() > 1 && !omp_in_parallel() &&
           cutter_of(t).rule == CUT_AFTER_LETTERS;
}

status encode_parallel(const tok *t, const char *text, size_t len, tok_ids *out) {
    tok_string *part;
    int64_t n = cut(t, text, len, &part), total = out->n;
    tok_ids *ids = xcalloc((size_t)n, sizeof(*ids));
    status st = ST_OK;
#pragma omp parallel for schedule(dynamic, 1) reduction(max : st)
    for (int64_t i = 0; i < n; i++) {
        status mine = encode_part(t, part[i].text, part[i].len, i == 0, &ids[i]);
        if (mine > st) st = mine;
    }
    int64_t *at = xmalloc(sizeof(int64_t) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        at[i] = total;
        total += ids[i].n;
    }
    tok_ids_room(out, total - out->n);
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        memcpy(out->id + at[i], ids[i].id, sizeof(int32_t) * (size_t)ids[i].n);
        tok_ids_free(&ids[i]);
    }
    if (st == ST_OK) out->n = total;
    free(at);
    free(ids);
    free(part);
    return st;
}
