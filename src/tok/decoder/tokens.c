/* What each token stands for, and whether decoding is no more than putting that together. */
#include <string.h>

#include "base/utf8.h"
#include "tok/internal.h"

static void set_bytes(tok *t, tok_token *k, const char *bytes, size_t n) {
    if (k->n_bytes == n && memcmp(k->bytes, bytes, n) == 0) return;
    k->bytes = arena_memdup(t->mem, bytes, n);
    k->n_bytes = (uint32_t)n;
}

/* Content written in the byte alphabet throughout stands for bytes. That an added token happens to
 * be so written ("é" is) shows when they are no text: then it is what it says. */
static void set_alphabet_bytes(tok *t, tok_token *k, strbuf *bytes) {
    strbuf_clear(bytes);
    bool ok = byte_alphabet_read(bytes, k->shown, k->n_shown) &&
              (k->in_model || utf8_valid_prefix(strbuf_cstr(bytes), bytes->len) == bytes->len);
    if (ok) set_bytes(t, k, strbuf_cstr(bytes), bytes->len);
    if (!ok) set_bytes(t, k, k->shown, k->n_shown);
}

static status set_decoded(tok *t, tok_token *k, dec_run *run, strbuf *text, err *e) {
    strbuf_clear(text);
    TRY(dec_run_token(run, k->shown, k->n_shown, text, e));
    TRY(dec_run_end(run, text, e));
    set_bytes(t, k, strbuf_cstr(text), text->len);
    return ST_OK;
}

/* The last steps may fuse what would be put together anyway. */
static int steps_that_count(const tok *t) {
    int n = t->n_dec;
    while (n > 0 && t->dec[n - 1].kind == DEC_FUSE) n--;
    return n;
}

status dec_fill_tokens(tok *t, err *e) {
    int n = steps_that_count(t);
    bool alphabet = n == 1 && t->dec[0].kind == DEC_BYTE_LEVEL;
    t->plain = n == 0 || alphabet;
    dec_run *run = t->plain ? NULL : dec_run_new(t->dec, t->n_dec, DEC_MIDDLE);
    strbuf text = {0};
    status st = ST_OK;
    for (int32_t id = 0; st == ST_OK && id < t->n_token; id++) {
        tok_token *k = &t->token[id];
        if (!k->text) continue;
        if (alphabet) {
            set_alphabet_bytes(t, k, &text);
        } else if (n == 0 || k->special) {
            set_bytes(t, k, k->shown, k->n_shown);
        } else {
            st = set_decoded(t, k, run, &text, e);
        }
    }
    strbuf_free(&text);
    dec_run_free(run);
    return st;
}
