/* Runs the steps of a normalizer. */
#include "tok/normalize/normalize.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "tok/text/unicode.h"

void norm_work_free(norm_work *w) {
    text_free(&w->text[0]);
    text_free(&w->text[1]);
}

/* No character below U+0300 changes under NFC (the first that combines is U+0300), and most text
 * has none above. */
static bool surely_nfc(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if ((uint8_t)text[i] >= 0xCC) return false;
    }
    return true;
}

static status nfc(const tok_piece *in, tok_text *out, err *e) {
    utf8proc_uint8_t *done = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)in->s, (utf8proc_ssize_t)in->len,
                                      &done, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0) {
        return err_set(e, ST_FORMAT, "Unicode normalisation failed: %s", utf8proc_errmsg(n));
    }
    text_add(out, (const char *)done, (size_t)n, piece_from(in, 0));
    free(done);
    return ST_OK;
}

status norm_run(const norm_step *steps, int n, const tok_piece *in, norm_work *w, tok_piece *out,
                err *e) {
    *out = *in;
    for (int i = 0; i < n && out->len > 0; i++) {
        tok_text *to = &w->text[i & 1];
        if (steps[i].kind == NORM_NFC && surely_nfc(out->s, out->len)) continue;
        text_reset(to, in->from != NULL);
        TRY(nfc(out, to, e));
        *out = text_piece(to, in->first);
    }
    return ST_OK;
}

void norm_step_free(norm_step *s) {
    (void)s;
}
