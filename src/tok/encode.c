/* Text to ids: runs the chain of internal.h. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/internal.h"

/* ---- the chain ---- */

static status encode_word(tok_enc *enc, const tok_piece *word) {
    return enc->t->class->encode(enc, word);
}

static status encode_pieces(tok_enc *enc, const tok_piece *text) {
    return pretok_run(enc, enc->t->step, enc->t->n_steps, text, encode_word);
}

static status encode_normalized(tok_enc *enc, const tok_piece *text) {
    return tok_added_split(enc, &enc->t->normal, text, encode_pieces);
}

static status encode_unnormalized(tok_enc *enc, const tok_piece *text) {
    tok_piece normal;
    TRY(norm_run(enc->t->norm, enc->t->n_norm, text, &enc->norm, &normal, enc->e));
    return encode_normalized(enc, &normal);
}

/* A byte that is not UTF-8 is its own pre-token: it ends the text before it and becomes the token
 * of that byte, so any bytes survive a round trip. Kinds without byte tokens refuse it. */
static status encode_bad_byte(tok_enc *enc, const tok_piece *text, size_t at) {
    const tok *t = enc->t;
    uint8_t byte = (uint8_t)text->s[at];
    int32_t id = t->byte_id[byte] >= 0 ? t->byte_id[byte] : t->unk;
    if (id < 0) {
        err_set(enc->e, ST_FORMAT,
                "byte %d (0x%02x) of the text is not UTF-8, and the vocabulary has no token for it",
                piece_from(text, at).start, byte);
        return err_hint(enc->e, "convert the text to UTF-8, or use a byte-level tokenizer");
    }
    enc_push(enc, id, text, at, at + 1);
    return ST_OK;
}

static status encode_text(tok_enc *enc, const tok_piece *text) {
    for (size_t at = 0; at < text->len;) {
        size_t valid = utf8_valid_prefix(text->s + at, text->len - at);
        tok_piece part = piece_slice(text, at, at + valid);
        if (valid > 0) TRY(tok_added_split(enc, &enc->t->raw, &part, encode_unnormalized));
        at += valid;
        if (at < text->len) TRY(encode_bad_byte(enc, text, at));
        at += at < text->len;
    }
    return ST_OK;
}

/* ---- one call ---- */

void enc_free(tok_enc *enc) {
    if (!enc) return;
    if (enc->model) enc->t->class->state_free(enc->model);
    norm_work_free(&enc->norm);
    for (int i = 0; i < TOK_MAX_STEPS; i++) text_free(&enc->step_text[i]);
    pretok_match_data_free(enc->match_data);
    free(enc);
}

/* A state that no other call uses: one of an earlier call, with the words it has met, or a new one.
 * The tok is immutable but for this shelf, which many threads may use at once. */
static tok_enc *enc_take(const tok *t) {
    tok *shelf = (tok *)t;
    for (int i = 0; i < TOK_IDLE; i++) {
        tok_enc *enc = atomic_exchange(&shelf->idle[i], NULL);
        if (enc) return enc;
    }
    tok_enc *enc = xcalloc(1, sizeof(*enc));
    enc->t = t;
    if (t->class->state_new) enc->model = t->class->state_new(t);
    return enc;
}

static void enc_give_back(tok_enc *enc) {
    tok *shelf = (tok *)enc->t;
    for (int i = 0; enc && i < TOK_IDLE; i++) {
        tok_enc *none = NULL;
        if (atomic_compare_exchange_strong(&shelf->idle[i], &none, enc)) return;
    }
    enc_free(enc);
}

static status encode_piece(const tok *t, const tok_piece *text, tok_ids *out, tok_spans *spans,
                           err *e) {
    int64_t ids_before = out->n, spans_before = spans ? spans->n : 0;
    tok_enc *enc = enc_take(t);
    enc->out = out;
    enc->spans = spans;
    enc->e = e;
    pretok_match_data_begin(enc->match_data);
    pretok_match_data_begin(enc->norm.match_data);
    enc->lost_bytes = 0;
    status st = encode_text(enc, text);
    if (enc->lost_bytes > 0) atomic_fetch_add(&((tok *)t)->lost_bytes, enc->lost_bytes);
    if (st != ST_OK) out->n = ids_before;
    if (st != ST_OK && spans) spans->n = spans_before;
    enc_give_back(enc);
    return st;
}

status encode_part(const tok *t, const char *text, size_t len, bool first, tok_ids *out) {
    tok_piece piece = {.s = text, .len = len, .first = first};
    return encode_piece(t, &piece, out, NULL, NULL);
}

/* The text from byte `from` on. Each byte stands for its whole character; one that is not UTF-8 for
 * itself. */
static tok_text places_of(const char *s, size_t len, size_t from) {
    tok_text t = {.tracked = true};
    for (size_t i = from; i < len;) {
        uint32_t cp;
        int n = utf8_decode(s + i, len - i, &cp);
        if (n == 0) n = 1;
        text_add(&t, s + i, (size_t)n, (tok_span){(int32_t)i, (int32_t)i + n});
        i += (size_t)n;
    }
    return t;
}

static status check_size(size_t len, err *e) {
    if (len <= TOK_MAX_TEXT) return ST_OK;
    err_set(e, ST_USAGE, "a text of %zu bytes is more than one encode call takes (2 GiB)", len);
    return err_hint(e, "split it into documents");
}

status tok_encode_spans(const tok *t, const char *text, size_t len, unsigned flags, tok_ids *out,
                        tok_spans *spans, err *e) {
    bool special = flags & TOK_ADD_SPECIAL;
    TRY(check_size(len, e));
    tok_text places = places_of(text, len, 0);
    tok_piece piece = text_piece(&places, true);
    int64_t ids_before = out->n, spans_before = spans->n;
    if (special) post_before(&t->post, out, spans);
    int64_t first = out->n, first_span = spans->n;
    status st = encode_piece(t, &piece, out, spans, e);
    if (st == ST_OK && out->n > first) {
        post_trim_spans(t, special, text, out->id + first, spans->span + first_span,
                        out->n - first);
    }
    if (st == ST_OK && special) post_after(&t->post, out, spans);
    if (st != ST_OK) {
        out->n = ids_before;
        spans->n = spans_before;
    }
    text_free(&places);
    return st;
}

/* As tok_encode, slowly. */
static status encode_with_places(const tok *t, const char *text, size_t len, unsigned flags,
                                 tok_ids *out, err *e) {
    tok_spans spans = {0};
    status st = tok_encode_spans(t, text, len, flags, out, &spans, e);
    tok_spans_free(&spans);
    return st;
}

/* Fails as the text does, with the error. It names the place, which only an encoding with places
 * knows, and that takes dozens of bytes for one of text: so it is done for the part that fails.
 * What fails only as a whole (a pattern that takes too many steps) fails again as a whole. */
static status explain(const tok *t, const char *text, size_t len, bool first, err *e) {
    enum { PART_BYTES = 1 << 20 };
    tok_ids ids = {0};
    size_t from = 0, to = 0;
    bool failed = false;
    while (!failed && to < len) {
        from = to;
        to += tok_cut(t, text + from, len - from, PART_BYTES);
        ids.n = 0;
        failed = encode_part(t, text + from, to - from, first && from == 0, &ids) != ST_OK;
    }
    if (!failed) from = 0;
    tok_text places = places_of(text, to, from);
    tok_piece piece = text_piece(&places, first && from == 0);
    tok_spans spans = {0};
    status st = encode_piece(t, &piece, &ids, &spans, e);
    text_free(&places);
    tok_spans_free(&spans);
    tok_ids_free(&ids);
    return st != ST_OK ? st : err_set(e, ST_FORMAT, "the text cannot be encoded");
}

/* Metaspace puts a mark before what begins where the text begins, and a normalizer may have taken
 * that away. */
bool encode_needs_places(const tok *t) {
    bool asks = false, moves = false;
    for (int i = 0; i < t->n_steps; i++) asks |= t->step[i].prepend == PRETOK_FIRST;
    for (int i = 0; i < t->n_norm; i++) moves |= norm_moves_front(&t->norm[i]);
    return asks && moves;
}

status tok_encode(const tok *t, const char *text, size_t len, unsigned flags, tok_ids *out,
                  err *e) {
    if (encode_needs_places(t)) return encode_with_places(t, text, len, flags, out, e);
    bool special = flags & TOK_ADD_SPECIAL;
    int64_t before = out->n;
    TRY(check_size(len, e));
    if (special) post_before(&t->post, out, NULL);
    status st = encode_parallel_pays(t, len) ? encode_parallel(t, text, len, out)
                                             : encode_part(t, text, len, true, out);
    if (special) post_after(&t->post, out, NULL);
    if (st == ST_OK) return ST_OK;
    out->n = before;
    return e ? explain(t, text, len, true, e) : st;
}

status tok_encode_part(const tok *t, const char *text, size_t len, bool first, tok_ids *out,
                       err *e) {
    TRY(check_size(len, e));
    status st = encode_part(t, text, len, first, out);
    return st != ST_OK && e ? explain(t, text, len, first, e) : st;
}

status enc_unknown(tok_enc *enc, const tok_piece *word, size_t at) {
    int place = piece_from(word, at).start;
    uint32_t cp = 0;
    int len = utf8_decode(word->s + at, word->len - at, &cp);
    if (enc->t->byte_level) {
        err_set(enc->e, ST_FORMAT, "the vocabulary has no token for byte 0x%02x (at byte %d)",
                (uint8_t)word->s[at], place);
        return err_hint(enc->e, "a byte-level tokenizer needs all 256 bytes");
    }
    bool seen = cp >= 0x20 && cp != 0x7f;
    err_set(enc->e, ST_FORMAT, "the character at byte %d, U+%04X%s%.*s%s, is not in the vocabulary",
            place, (unsigned)cp, seen ? " '" : "", seen ? len : 0, word->s + at, seen ? "'" : "");
    return err_hint(enc->e, "train on text that has it, or use kind bpe or byte");
}

status enc_unknown_word(tok_enc *enc, const tok_piece *word) {
    int len = word->len < 60 ? (int)word->len : 60;
    err_set(enc->e, ST_FORMAT, "the word at byte %d, \"%.*s\", is not in the vocabulary",
            piece_from(word, 0).start, len, word->s);
    return err_hint(enc->e, "the vocabulary has no unknown token; use one that has");
}

/* ---- spans ---- */

void tok_spans_to_chars(tok_spans *v, const char *text, size_t len) {
    size_t at = 0, chars = 0;
    for (int64_t i = 0; i < 2 * v->n; i++) {
        tok_span *s = &v->span[i / 2];
        int32_t *edge = i % 2 ? &s->end : &s->start;
        if ((size_t)*edge < at) at = chars = 0; /* rare: overlapping spans go back a little */
        for (uint32_t cp; at < (size_t)*edge && at < len; chars++) {
            int n = utf8_decode(text + at, len - at, &cp);
            at += n > 0 ? (size_t)n : 1;
        }
        *edge = (int32_t)chars;
    }
}
