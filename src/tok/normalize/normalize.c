/* Normal form C through utf8proc. */
#include <stdlib.h>
#include <utf8proc.h>

#include "tok/internal.h"
#include "tok/text/unicode.h"

/* No character below U+0300 changes under NFC (the first that combines is U+0300), and most text
 * has none above. */
static bool surely_nfc(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if ((uint8_t)text[i] >= 0xCC) return false;
    }
    return true;
}

status tok_normalize_nfc(const char *text, size_t len, char **out, size_t *out_len, err *e) {
    *out = NULL;
    *out_len = 0;
    if (surely_nfc(text, len)) return ST_OK;
    utf8proc_uint8_t *done = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len, &done,
                                      (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (n < 0) {
        return err_set(e, ST_FORMAT, "Unicode normalisation failed: %s", utf8proc_errmsg(n));
    }
    *out = (char *)done;
    *out_len = (size_t)n;
    return ST_OK;
}
