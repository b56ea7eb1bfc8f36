/* The text of a whole file: checked, and converted or repaired where it is not UTF-8.
 *
 * Nearly all files are UTF-8 and stay where they are mapped; pages that were checked are let go, so
 * a file may be larger than memory. Only what has to be converted is copied. */
#include "data/text/chunk.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/utf8.h"
#include "data/text/charset.h"

enum { WINDOW_BYTES = 64 << 20, CONTEXT_BYTES = 64 };

static void let_go(const chunk *c, size_t from, size_t to) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    from = from / page * page;
    to = to / page * page;
    if (c->map.data && to > from)
        madvise((void *)(uintptr_t)(c->map.data + from), to - from, MADV_DONTNEED);
}

/* Bytes up to the first that is a NUL or begins no UTF-8 character. */
static size_t good_prefix(const chunk *c) {
    size_t at = 0;
    while (at < c->len) {
        bool last = c->len - at <= WINDOW_BYTES;
        const char *p = c->data + at;
        size_t n = last ? c->len - at : WINDOW_BYTES;
        if (!last) n -= (size_t)utf8_open_tail(p, n);
        size_t good = utf8_valid_prefix(p, n);
        const char *nul = memchr(p, 0, good);
        let_go(c, at, at + n);
        if (nul) return at + (size_t)(nul - p);
        if (good < n) return at + good;
        at += n;
    }
    return at;
}

/* From a few words before the first byte that is not ASCII on, or all of it when there is a NUL or
 * a mark. */
static const char *detect(const chunk *c, size_t good) {
    size_t from = 0;
    if (good < c->len && c->data[good] != '\0') {
        while (from < good && !(c->data[from] & 0x80)) from++;
        from -= from < CONTEXT_BYTES ? from : CONTEXT_BYTES;
    }
    return charset_detect(c->data + from, c->len - from);
}

static void convert(chunk *c, const char *name) {
    charset_converter cv;
    charset_converter_open(&cv, name);
    charset_convert(&cv, c->data, c->len, true, &c->text);
    charset_converter_close(&cv);
}

/* Puts U+FFFD where something is broken; false when that is more than a slip. */
static bool repair(chunk *c) {
    bool converted = c->text.data != NULL;
    const char *p = converted ? c->text.data : c->data;
    size_t n = converted ? c->text.len : c->len;
    if (utf8_valid_prefix(p, n) == n) return true;
    strbuf whole = {0};
    size_t repaired = charset_repair(p, n, &whole);
    strbuf_free(&c->text);
    c->text = whole;
    if (repaired * 20 <= n) return true;
    chunk_add_bad(c, c->data, c->len, "name the charset: charset=NAME",
                  "is broken: %zu of its characters are not %s", repaired, c->charset);
    return false;
}

bool chunk_prepare_text(chunk *c) {
    strbuf_free(&c->text);
    if (!c->charset) {
        size_t good = good_prefix(c);
        c->charset = good == c->len ? "UTF-8" : detect(c, good);
        if (good == c->len) return true;
        if (!c->charset) {
            chunk_add_bad(c, c->data, c->len, "name the charset: charset=NAME",
                          "is in no charset that is recognised: byte %zu is not UTF-8", good);
            c->charset = "unknown";
            return false;
        }
    }
    if (!charset_is_utf8(c->charset)) convert(c, c->charset);
    if (!repair(c)) return false;
    const char *text = c->text.data ? c->text.data : c->data;
    size_t n = c->text.data ? c->text.len : c->len;
    const char *nul = n ? memchr(text, 0, n) : NULL;
    if (!nul) return true;
    chunk_add_bad(c, c->data, c->len, NULL, "is not text: there is a NUL byte at byte %zu",
                  (size_t)(nul - text));
    return false;
}
