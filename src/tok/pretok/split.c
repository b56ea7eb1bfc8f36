/* Runs the steps of a pre-tokenizer: each cuts the pieces of the one before it.
 *
 * A step yields pieces (matches and the text between them) from left to right; the behaviour
 * decides which become pre-tokens and which are joined. One piece is held back at most, so nothing
 * is stored. A pattern may match nothing, which cuts there. */
#include <string.h>

#include "tok/internal.h"

typedef struct split {
    tok_enc *enc;
    const pretok_step *step;
    int n_steps; /* this one and those after it */
    const tok_piece *text;
    pretok_emit_fn *emit;
    bool holding, held_match;
    size_t start, end; /* the piece held back */
} split;

static status flush(split *s) {
    if (!s->holding || s->start == s->end) return ST_OK;
    tok_piece piece = piece_slice(s->text, s->start, s->end);
    return pretok_run(s->enc, s->step + 1, s->n_steps - 1, &piece, s->emit);
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

/* The space stands for the first character of the piece. */
static status with_prefix(split *s, const tok_piece *text) {
    tok_text *b = &s->enc->step_text[s->step - s->enc->t->step];
    if (text->s[0] == ' ') return pretok_run(s->enc, s->step + 1, s->n_steps - 1, text, s->emit);
    text_reset(b, text->from != NULL);
    text_add(b, " ", 1, piece_from(text, 0));
    text_copy(b, text, 0, text->len);
    tok_piece piece = text_piece(b, text->first);
    return pretok_run(s->enc, s->step + 1, s->n_steps - 1, &piece, s->emit);
}

/* A hand-written matcher covers the text, so `isolated` needs no bookkeeping: the usual case. */
static status run_covering(split *s, const tok_piece *text) {
    const pretok_step *p = s->step;
    for (size_t at = 0; at < text->len;) {
        size_t end = p->kind == PRETOK_GPT2
                         ? pretok_gpt2_end(text->s, text->len, at)
                         : pretok_cl100k_end(text->s, text->len, at, p->max_digits);
        tok_piece piece = piece_slice(text, at, end);
        TRY(pretok_run(s->enc, p + 1, s->n_steps - 1, &piece, s->emit));
        at = end;
    }
    return ST_OK;
}

static size_t char_end(const char *text, size_t len, size_t i) {
    for (i++; i < len && ((uint8_t)text[i] & 0xC0) == 0x80;) i++;
    return i;
}

static bool covers_all(const pretok_step *p) {
    if (p->kind != PRETOK_GPT2 && p->kind != PRETOK_CL100K) return false;
    return p->behavior == PRETOK_ISOLATED || (p->behavior == PRETOK_REMOVED && p->invert);
}

status pretok_run(tok_enc *enc, const pretok_step *steps, int n, const tok_piece *text,
                  pretok_emit_fn *emit) {
    size_t len = text->len;
    if (len == 0) return ST_OK;
    if (n == 0) return emit(enc, text);
    split s = {.enc = enc, .step = steps, .n_steps = n, .text = text, .emit = emit};
    if (steps->kind == PRETOK_PREFIX) return with_prefix(&s, text);
    if (covers_all(steps)) return run_covering(&s, text);
    size_t at = 0;
    for (size_t search = 0; search < len;) {
        size_t start, end;
        TRY(pretok_find(steps, text->s, len, search, &start, &end, &enc->match_data, enc->e));
        if (start == len) break;
        if (end == start && start == at && at > 0) { /* an empty match next to the last one */
            search = char_end(text->s, len, start);
            continue;
        }
        if (start > at) TRY(take(&s, at, start, steps->invert));
        TRY(take(&s, start, end, !steps->invert));
        at = end;
        search = end > start ? end : char_end(text->s, len, start);
    }
    if (at < len) TRY(take(&s, at, len, steps->invert));
    return flush(&s);
}
