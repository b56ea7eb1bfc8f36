/* The steps of a pre-tokenizer that change text and cut nothing: a space before the text, the mark
 * of Metaspace for each space, the byte alphabet.
 *
 * What is put before a text stands for its first character, what replaces a character for that one:
 * the rules of Hugging Face tokenizers. */
#include <string.h>

#include "base/utf8.h"
#include "tok/internal.h"

static tok_text *buffer_of(tok_enc *enc, const pretok_step *step, const tok_piece *text) {
    tok_text *b = &enc->step_text[step - enc->t->step];
    text_reset(b, text->from != NULL);
    return b;
}

static void add_prefix(tok_text *b, const tok_piece *text) {
    if (text->s[0] != ' ') text_add(b, " ", 1, piece_from(text, 0));
    text_copy(b, text, 0, text->len);
}

static bool wants_mark(const pretok_step *p, const tok_piece *text) {
    if (p->prepend == PRETOK_NEVER || (p->prepend == PRETOK_FIRST && !text->first)) return false;
    if (text->s[0] == ' ') return false; /* becomes the mark itself */
    return text->len < p->n_literal || memcmp(text->s, p->literal, p->n_literal) != 0;
}

/* Without places: in one go, into room for a text of spaces. */
static void put_marks(strbuf *b, const pretok_step *p, const tok_piece *text, bool first) {
    size_t n = p->n_literal, start = b->len;
    char *to = strbuf_extend(b, (text->len + 1) * n), *at = to;
    if (first) at = mempcpy(at, p->literal, n);
    for (size_t i = 0; i < text->len; i++) {
        if (text->s[i] == ' ') {
            at = mempcpy(at, p->literal, n);
        } else {
            *at++ = text->s[i];
        }
    }
    strbuf_truncate(b, start + (size_t)(at - to));
}

static void add_marks(tok_text *b, const pretok_step *p, const tok_piece *text) {
    if (!text->from) {
        put_marks(&b->s, p, text, wants_mark(p, text));
        return;
    }
    if (wants_mark(p, text)) text_add(b, p->literal, p->n_literal, piece_from(text, 0));
    for (size_t at = 0; at < text->len;) {
        const char *space = memchr(text->s + at, ' ', text->len - at);
        size_t end = space ? (size_t)(space - text->s) : text->len;
        text_copy(b, text, at, end);
        if (space) text_add(b, p->literal, p->n_literal, piece_from(text, end));
        at = end + 1;
    }
}

static void add_alphabet(tok_text *b, const tok_piece *text) {
    for (size_t i = 0; i < text->len; i++) {
        char c[4];
        int n = utf8_encode(byte_alphabet_char((uint8_t)text->s[i]), c);
        text_add(b, c, (size_t)n, piece_from(text, i));
    }
}

/* Every character is of the alphabet: nothing but cuts stands between the two steps. */
static void add_bytes(tok_text *b, const tok_piece *text) {
    size_t len;
    for (size_t at = 0; at < text->len; at += len) {
        char c = (char)byte_alphabet_byte(utf8_next(text->s + at, &len));
        text_add(b, &c, 1, piece_from(text, at));
    }
}

void pretok_change(tok_enc *enc, const pretok_step *p, const tok_piece *text, tok_piece *out) {
    tok_text *b = buffer_of(enc, p, text);
    switch (p->kind) {
        case PRETOK_PREFIX: add_prefix(b, text); break;
        case PRETOK_METASPACE: add_marks(b, p, text); break;
        case PRETOK_ALPHABET: add_alphabet(b, text); break;
        case PRETOK_BYTES: add_bytes(b, text); break;
        default: break;
    }
    *out = text_piece(b, text->first);
}
