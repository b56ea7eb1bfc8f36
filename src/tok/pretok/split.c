/* Runs the steps of a pre-tokenizer: each cuts the pieces of the one before it.
 *
 * A step yields pieces (matches and the text between them) from left to right; the behaviour
 * decides which become pre-tokens and which are joined. One piece is held back at most, so nothing
 * is stored. A pattern may match nothing, which cuts there. */
#include <string.h>

#include "base/utf8.h"
#include "tok/internal.h"
#include "tok/text/unicode.h"
#include "tok/text/unicode_sets.h"

typedef struct split {
    tok_enc *enc;
    const pretok_step *step;
    int n_steps; /* this one and those after it */
    const tok_piece *text;
    pretok_emit_fn *emit;
    bool holding, held_match;
    size_t start, end; /* the piece held back */
} split;

/* Hands text[start, end) to the steps after this one. */
static inline status pass_on(const split *s, size_t start, size_t end) {
    tok_piece piece = piece_slice(s->text, start, end);
    if (s->n_steps == 1) return s->emit(s->enc, &piece);
    return pretok_run(s->enc, s->step + 1, s->n_steps - 1, &piece, s->emit);
}

/* ---- matches and what becomes of them ---- */

static status flush(split *s) {
    if (!s->holding || s->start == s->end) return ST_OK;
    return pass_on(s, s->start, s->end);
}

static status hold(split *s, size_t start, size_t end, bool match) {
    TRY(flush(s));
    s->holding = true;
    s->held_match = match;
    s->start = start;
    s->end = end;
    return ST_OK;
}

/* Takes the next piece, in order. */
static status take(split *s, size_t start, size_t end, bool match) {
    bool before = s->holding && s->held_match;
    switch (s->step->behavior) {
        case PRETOK_ISOLATED: break;
        case PRETOK_REMOVED:
            if (match) return ST_OK;
            break;
        case PRETOK_CONTIGUOUS:
            if (s->holding && s->held_match == match) {
                s->end = end;
                return ST_OK;
            }
            break;
        case PRETOK_WITH_PREVIOUS:
            if (s->holding && match && !before) {
                s->end = end;
                s->held_match = true;
                return ST_OK;
            }
            break;
        case PRETOK_WITH_NEXT:
            if (before && !match) {
                s->end = end;
                s->held_match = false;
                return ST_OK;
            }
            break;
    }
    return hold(s, start, end, match);
}

/* A literal is a few bytes, mostly the mark of Metaspace: preparing a search would cost more. */
static size_t find_literal(const pretok_step *p, const char *text, size_t len, size_t from) {
    while (len - from >= p->n_literal) {
        const char *hit = memchr(text + from, p->literal[0], len - from - p->n_literal + 1);
        if (!hit) break;
        if (memcmp(hit, p->literal, p->n_literal) == 0) return (size_t)(hit - text);
        from = (size_t)(hit - text) + 1;
    }
    return len;
}

/* The next match at or after `from`; *start == len and *end > len: none. */
static status find(split *s, size_t from, size_t *start, size_t *end) {
    const pretok_step *p = s->step;
    const char *text = s->text->s;
    size_t len = s->text->len;
    switch (p->kind) {
        case PRETOK_COVER:
            *start = from;
            *end = p->end(text, len, from);
            return ST_OK;
        case PRETOK_FIND: p->find(text, len, from, start, end); break;
        case PRETOK_LITERAL:
            *start = find_literal(p, text, len, from);
            *end = *start + p->n_literal;
            break;
        default:
            return pretok_regex_find(p->regex, text, len, from, start, end, &s->enc->match_data,
                                     s->enc->e);
    }
    if (*start == len) *end = len + 1;
    return ST_OK;
}

static status run_matches(split *s) {
    size_t len = s->text->len, at = 0;
    bool invert = s->step->invert;
    for (size_t search = 0; search < len;) {
        size_t start, end;
        TRY(find(s, search, &start, &end));
        if (start == len && end > len) break;
        if (end == start && start == at && at > 0) { /* an empty match next to the last one */
            search = start + utf8_size(s->text->s[start]);
            continue;
        }
        if (start > at) TRY(take(s, at, start, invert));
        TRY(take(s, start, end, !invert));
        at = end;
        search = end > start || end == len ? end : start + utf8_size(s->text->s[start]);
    }
    if (at < len) TRY(take(s, at, len, invert));
    return flush(s);
}

/* A matcher that leaves no gaps needs no bookkeeping: the usual case. */
static status run_covering(const split *s) {
    pretok_end_fn *match = s->step->end;
    for (size_t at = 0; at < s->text->len;) {
        size_t end = match(s->text->s, s->text->len, at);
        TRY(pass_on(s, at, end));
        at = end;
    }
    return ST_OK;
}

/* The same where gaps are dropped and matches kept. */
static status run_kept(const split *s) {
    pretok_find_fn *next = s->step->find;
    size_t len = s->text->len, start, end = 0;
    for (;;) {
        next(s->text->s, len, end, &start, &end);
        if (start == len) return ST_OK;
        TRY(pass_on(s, start, end));
        if (end == len) return ST_OK;
    }
}

static bool keeps_matches(const pretok_step *p) {
    return p->kind == PRETOK_FIND && p->behavior == PRETOK_REMOVED && p->invert;
}

static bool covers_all(const pretok_step *p) {
    if (p->kind != PRETOK_COVER) return false;
    return p->behavior == PRETOK_ISOLATED || (p->behavior == PRETOK_REMOVED && p->invert);
}

bool pretok_ends_letters(const pretok_step *s) {
    return covers_all(s);
}

bool pretok_is_single(const pretok_step *s) {
    return s->kind == PRETOK_FIND && s->find == pretok_find_number;
}

/* ---- other ways to cut ---- */

static status run_fixed(const split *s) {
    size_t len = s->text->len;
    for (size_t start = 0, at = 0; at < len; start = at) {
        for (size_t k = 0; k < s->step->length && at < len; k++) at += utf8_size(s->text->s[at]);
        TRY(pass_on(s, start, at));
    }
    return ST_OK;
}

/* Letters of ASCII are one script. */
static bool is_near(uint32_t a, uint32_t b) {
    return a < 0x80 && b < 0x80 && (uni_byte[a] & uni_byte[b] & (UNI_UPPER | UNI_LOWER));
}

/* Cuts where the script changes; a character that goes with any script changes nothing, but those
 * before the first script are lost, as they are in the library whose rule this is. */
static status run_scripts(const split *s) {
    const char *text = s->text->s;
    size_t len = s->text->len, start = len, n;
    int script = 0;
    uint32_t before = 0; /* of the script at hand, to save a look-up */
    for (size_t at = 0; at < len; at += n) {
        uint32_t cp = utf8_next(text + at, &n);
        if (cp == ' ' || (script != 0 && is_near(cp, before))) continue;
        int next = uni_spm_script_of(cp);
        if (next == 0) continue;
        before = cp;
        if (next == script) continue;
        if (script != 0) TRY(pass_on(s, start, at));
        script = next;
        start = at;
    }
    return start < len ? pass_on(s, start, len) : ST_OK;
}

status pretok_run(tok_enc *enc, const pretok_step *steps, int n, const tok_piece *text,
                  pretok_emit_fn *emit) {
    if (text->len == 0) return ST_OK;
    if (n == 0) return emit(enc, text);
    split s = {.enc = enc, .step = steps, .n_steps = n, .text = text, .emit = emit};
    switch (steps->kind) {
        case PRETOK_COVER: return covers_all(steps) ? run_covering(&s) : run_matches(&s);
        case PRETOK_FIND: return keeps_matches(steps) ? run_kept(&s) : run_matches(&s);
        case PRETOK_LITERAL:
        case PRETOK_REGEX: return run_matches(&s);
        case PRETOK_FIXED: return run_fixed(&s);
        case PRETOK_SCRIPTS: return run_scripts(&s);
        default: break;
    }
    tok_piece changed;
    pretok_change(enc, steps, text, &changed);
    return pretok_run(enc, steps + 1, n - 1, &changed, emit);
}
