/* Steps that make bytes: ByteLevel and ByteFallback. */
#include <string.h>

#include "base/utf8.h"
#include "tok/decoder/chain.h"
#include "tok/internal.h"

static const dec_string REPLACEMENT = {"\xEF\xBF\xBD", 3};

/* ---- ByteLevel: `kept` holds the bytes that are not yet whole characters ---- */

/* Bytes at s, which are no character, that one U+FFFD stands for: the longest beginning of one. */
static size_t bad_length(const char *s, size_t n) {
    for (size_t k = n < 3 ? n : 3; k > 1; k--) {
        if (utf8_open_tail(s, k) == (int)k) return k;
    }
    return 1;
}

static void append_lossy(strbuf *out, const char *s, size_t n) {
    while (n > 0) {
        size_t good = utf8_valid_prefix(s, n), bad = 0;
        strbuf_append(out, s, good);
        if (good < n) {
            bad = bad_length(s + good, n - good);
            strbuf_append(out, REPLACEMENT.s, REPLACEMENT.n);
        }
        s += good + bad;
        n -= good + bad;
    }
}

static status pass_bytes(dec_run *r, int i, bool last) {
    dec_state *st = &r->state[i];
    bool begins = st->seen == (last ? 0 : 1);
    strbuf_clear(&st->work);
    if (r->middle) {
        strbuf_append(&st->work, strbuf_cstr(&st->kept), st->kept.len);
        strbuf_clear(&st->kept);
        return dec_pass_work(r, i, false, false);
    }
    const char *s = strbuf_cstr(&st->kept);
    size_t open = last ? 0 : (size_t)utf8_open_tail(s, st->kept.len), done = st->kept.len - open;
    append_lossy(&st->work, s, done);
    if (open > 0) memmove(st->kept.data, s + done, open);
    strbuf_truncate(&st->kept, open);
    return dec_pass_work(r, i, begins, last);
}

static status byte_level_take(dec_run *r, int i, const dec_part *p) {
    strbuf *kept = &r->state[i].kept;
    if (!byte_alphabet_read(kept, p->s, p->n)) strbuf_append(kept, p->s, p->n);
    return pass_bytes(r, i, false);
}

static status byte_level_end(dec_run *r, int i) {
    return pass_bytes(r, i, true);
}

const dec_class DEC_CLASS_BYTE_LEVEL = {true, byte_level_take, byte_level_end};

/* ---- ByteFallback: `kept` is a run of bytes, `count` of them are whole characters. A run that
 * cannot become text (`flag`) keeps nothing: every byte of it is U+FFFD ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A plus sign counts as a leading zero, as it does to the parser of numbers that tokenizers uses.
 */
int dec_fallback_byte(const char *s, size_t n) {
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int high = s[3] == '+' ? 0 : hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static status pass_replacements(dec_run *r, int i, size_t n) {
    for (; n > 0; n--) TRY(dec_pass(r, i, REPLACEMENT.s, REPLACEMENT.n, true, true));
    return ST_OK;
}

static status add_to_run(dec_run *r, int i, char byte) {
    dec_state *st = &r->state[i];
    if (st->flag) return pass_replacements(r, i, 1);
    strbuf_putc(&st->kept, byte);
    const char *tail = st->kept.data + st->count;
    size_t n = st->kept.len - st->count;
    uint32_t cp;
    if (utf8_decode(tail, n, &cp) == (int)n) {
        st->count += n;
    } else if (!r->middle && utf8_open_tail(tail, n) != (int)n) {
        st->flag = true;
        n = st->kept.len;
        strbuf_clear(&st->kept);
        return pass_replacements(r, i, n);
    }
    return ST_OK;
}

static status end_of_run(dec_run *r, int i) {
    dec_state *st = &r->state[i];
    size_t n = st->kept.len;
    bool text = st->count == n || r->middle;
    status s = n == 0 ? ST_OK
               : text ? dec_pass(r, i, st->kept.data, n, true, true)
                      : pass_replacements(r, i, n);
    strbuf_clear(&st->kept);
    st->count = 0;
    st->flag = false;
    return s;
}

static status byte_fallback_take(dec_run *r, int i, const dec_part *p) {
    int byte = dec_fallback_byte(p->s, p->n);
    if (byte >= 0) return add_to_run(r, i, (char)byte);
    TRY(end_of_run(r, i));
    return dec_pass(r, i, p->s, p->n, true, true);
}

const dec_class DEC_CLASS_BYTE_FALLBACK = {true, byte_fallback_take, end_of_run};
