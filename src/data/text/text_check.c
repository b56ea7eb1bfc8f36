/* Is this text? A wrong answer here would train a model on noise, so files that are clearly binary
 * are refused. */
#include "data/text/reader.h"

#include <string.h>

enum { CHECKED_BYTES = 1 << 20, MAX_BAD_PERCENT = 30 };

/* Length of a well-formed UTF-8 sequence (RFC 3629), 0 if it is not one. A sequence that the end
 * of the data cuts counts as good: the caller checks only a prefix. */
static int utf8_length(const uint8_t *p, size_t left) {
    static const uint8_t first_min[] = {0, 0x80, 0xa0, 0x90};
    if (*p < 0x80) return 1;
    int n = *p >= 0xc2 && *p < 0xe0   ? 2
            : *p >= 0xe0 && *p < 0xf0 ? 3
            : *p >= 0xf0 && *p < 0xf5 ? 4
                                      : 0;
    for (int i = 1; i < n && (size_t)i < left; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (n > 2 && left > 1) {
        if ((*p == 0xe0 || *p == 0xf0) && p[1] < first_min[n - 1]) return 0;
        if ((*p == 0xed && p[1] > 0x9f) || (*p == 0xf4 && p[1] > 0x8f)) return 0;
    }
    return n;
}

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
    for (size_t i = 0; i < n;) {
        int step = utf8_length(p + i, n - i);
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
