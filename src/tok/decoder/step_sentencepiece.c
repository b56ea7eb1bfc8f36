/* The decoder of the sentencepiece library, for toks that were read from its models
 * (SentencePieceProcessor::Decode).
 *
 * A mark at the start of the text is the prefix that encoding put there and goes away: one of them,
 * or, where encoding removes extra white space (`clean`), one of each piece until there is text.
 * Bytes become characters; each that belongs to none is U+FFFD. Pieces are what the tok shows: for
 * control symbols nothing, for the unknown piece its surface. */
#include <string.h>

#include "base/utf8.h"
#include "tok/decoder/chain.h"

static const dec_string MARK = {"\xE2\x96\x81", 3}, SPACE = {" ", 1};
static const dec_string REPLACEMENT = {"\xEF\xBF\xBD", 3};

/* State: `kept` is the beginning of a character in bytes, `flag`: the start of the text is over. */

static status pass_text(dec_run *r, int i, const char *s, size_t n) {
    if (n > 0) r->state[i].flag = true;
    return n > 0 ? dec_pass(r, i, s, n, true, true) : ST_OK;
}

/* The first n kept bytes are settled. */
static void drop_kept(strbuf *kept, size_t n) {
    memmove(kept->data, kept->data + n, kept->len - n);
    strbuf_truncate(kept, kept->len - n);
}

/* Passes on whole characters and bytes that begin none; all that is left if the run of bytes ends.
 */
static status settle_bytes(dec_run *r, int i, bool ends) {
    strbuf *kept = &r->state[i].kept;
    while (kept->len > 0) {
        uint32_t cp;
        int n = utf8_decode(kept->data, kept->len, &cp);
        if (n == 0 && !ends && utf8_open_tail(kept->data, kept->len) == (int)kept->len) break;
        bool raw = n > 0 || r->middle;
        TRY(pass_text(r, i, raw ? kept->data : REPLACEMENT.s,
                      n > 0       ? (size_t)n
                      : r->middle ? 1
                                  : REPLACEMENT.n));
        drop_kept(kept, n > 0 ? (size_t)n : 1);
    }
    return ST_OK;
}

static status take_piece(dec_run *r, int i, const char *s, size_t n) {
    const dec_step *step = &r->step[i];
    dec_state *st = &r->state[i];
    bool at_start = step->drop_first && !st->flag && !r->behind;
    if (at_start && n >= MARK.n && memcmp(s, MARK.s, MARK.n) == 0) {
        s += MARK.n;
        n -= MARK.n;
        if (!step->clean) st->flag = true;
    }
    strbuf_clear(&st->work);
    dec_replace_all(&st->work, s, n, MARK, SPACE);
    return pass_text(r, i, strbuf_cstr(&st->work), st->work.len);
}

static status sentencepiece_take(dec_run *r, int i, const dec_part *p) {
    int byte = dec_fallback_byte(p->s, p->n);
    if (byte >= 0 && r->step[i].bytes) {
        strbuf_putc(&r->state[i].kept, (char)byte);
        return settle_bytes(r, i, false);
    }
    TRY(settle_bytes(r, i, true));
    return take_piece(r, i, p->s, p->n);
}

static status sentencepiece_end(dec_run *r, int i) {
    return settle_bytes(r, i, true);
}

const dec_class DEC_CLASS_SENTENCEPIECE = {true, sentencepiece_take, sentencepiece_end};
