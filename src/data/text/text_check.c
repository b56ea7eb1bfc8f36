/* Is this text? A wrong answer here would train a model on noise, so files that are clearly binary
 * are refused. */
#include "data/text/reader.h"

#include <string.h>

#include "base/utf8.h"

enum { CHECKED_BYTES = 1 << 20, MAX_BAD_PERCENT = 30 };

static bool is_control(uint8_t c) {
    return (c < 0x20 && !(c >= '\t' && c <= '\r') && c != 0x1b) || c == 0x7f;
}

static status not_text(err *e, const char *path, size_t offset, const char *what) {
    err_set(e, ST_FORMAT, "%s is not text: %s at byte %zu", path, what, offset);
    err_where(e, "%s:%zu", path, offset);
    err_hint(e,
             "leave it out (a glob such as 'DIR/*.txt' does), or name its charset: charset=NAME");
    return ST_FORMAT;
}

status text_check(const char *path, const char *data, size_t len, err *e) {
    const char *nul = len ? memchr(data, 0, len) : NULL;
    if (nul) return not_text(e, path, (size_t)(nul - data), "there is a NUL byte");
    const uint8_t *p = (const uint8_t *)data;
    size_t n = len < CHECKED_BYTES ? len : CHECKED_BYTES, bad = 0, first_bad = 0;
    n -= (size_t)utf8_open_tail(data, n); /* what the end of the sample cuts is not bad */
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int step = utf8_decode(data + i, n - i, &cp);
        if (step == 0 || is_control(p[i])) {
            if (bad++ == 0) first_bad = i;
            step = 1;
        }
        i += (size_t)step;
    }
    if (bad * 100 <= n * MAX_BAD_PERCENT) return ST_OK;
    return not_text(e, path, first_bad,
                    "over 30 % of it is control characters or not UTF-8, the first");
}
