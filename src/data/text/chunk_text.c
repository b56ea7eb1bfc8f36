/* The text of a whole file: read, checked, and converted or repaired where it is not UTF-8.
 *
 * Nearly all files are UTF-8 and are taken as they are. A long one gets address space of its size;
 * chunk_need reads into it what is asked for, chunk_forget drops what is done, so a file may be
 * larger than memory. It is read and not mapped: a mapped file that shrinks would end the program
 * with SIGBUS, here it is an error. What has to be converted or repaired is copied, window by
 * window, up to the limit of a document. */
#include "data/text/chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "data/text/charset.h"

enum { WINDOW_BYTES = CHARSET_SAMPLE_BYTES };

/* ---- long files ---- */

status chunk_open_text(chunk *c, err *e) {
    struct stat sb;
    do c->fd = open(c->source, O_RDONLY | O_CLOEXEC);
    while (c->fd < 0 && errno == EINTR);
    if (c->fd < 0) return err_unreadable(e, "open", c->source);
    void *p = MAP_FAILED;
    if (fstat(c->fd, &sb) == 0 && sb.st_size > 0)
        p = mmap(NULL, (size_t)sb.st_size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        status st = err_unreadable(e, "read", c->source);
        close(c->fd);
        return st;
    }
    c->data = c->space = p;
    c->len = (size_t)sb.st_size;
    return ST_OK;
}

status chunk_map_text(chunk *c, err *e) {
    if (!c->space || c->mapped) return ST_OK;
    void *p = mmap(c->space, c->len, PROT_READ, MAP_PRIVATE | MAP_FIXED, c->fd, 0);
    if (p == MAP_FAILED) return err_unreadable(e, "map", c->source);
    c->mapped = true;
    return ST_OK;
}

static status read_at(const chunk *c, size_t at, char *to, size_t n, err *e) {
    ssize_t got = file_read_at(c->fd, to, n, at);
    if (got == (ssize_t)n) return ST_OK;
    if (got < 0) return err_unreadable(e, "read", c->source);
    err_at(e, ST_FORMAT, c->source, "%s became shorter while it was read: it had %zu bytes",
           c->source, c->len);
    return err_hint(e, "start again when nothing writes the file any more");
}

bool chunk_is_partial(const chunk *c) {
    return c->space && !c->mapped;
}

status chunk_need(const chunk *c, const char *from, size_t n, err *e) {
    if (!chunk_is_partial(c) || from < c->space || from > c->space + c->len) return ST_OK;
    size_t at = (size_t)(from - c->space);
    return read_at(c, at, c->space + at, n, e);
}

/* Whole pages only; they are read again if they are needed after all. */
void chunk_forget(const chunk *c, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > c->len) bytes = c->len;
    if (c->space && bytes >= page) madvise(c->space, bytes / page * page, MADV_DONTNEED);
}

/* ---- what it holds ---- */

/* The bytes from `at` on that are looked at next, at most WINDOW_BYTES, and how many; those of a
 * long file are read into a buffer that the next call overwrites. 0: this is the end, or they
 * cannot be read, which c->failure then says. */
static size_t window(chunk *c, size_t at, const char **p) {
    size_t left = c->len - at, n = left < WINDOW_BYTES ? left : WINDOW_BYTES;
    *p = c->data + at;
    if (!chunk_is_partial(c)) return n;
    if (!c->window) c->window = xmalloc(WINDOW_BYTES);
    *p = c->window;
    return read_at(c, at, c->window, n, &c->failure) == ST_OK ? n : 0;
}

/* Bytes up to the first that is a NUL or begins no UTF-8 character. */
static size_t good_prefix(chunk *c) {
    const char *p;
    size_t at = 0;
    for (size_t n; (n = window(c, at, &p)) > 0; at += n) {
        if (at + n < c->len) n -= (size_t)utf8_open_tail(p, n);
        size_t good = utf8_valid_prefix(p, n);
        const char *nul = memchr(p, 0, good);
        if (nul) return at + (size_t)(nul - p);
        if (good < n) return at + good;
    }
    return at;
}

/* Bytes up to the first that is not ASCII. */
static size_t ascii_prefix(chunk *c) {
    const char *p;
    size_t at = 0;
    for (size_t n; (n = window(c, at, &p)) > 0; at += n)
        for (size_t i = 0; i < n; i++)
            if (p[i] & 0x80) return at + i;
    return at;
}

/* `good`: what good_prefix said. From a few words before the first byte that is not ASCII on, or
 * all of it when there is a NUL or a mark. */
static const char *detect(chunk *c, size_t good) {
    const char *p;
    if (window(c, good, &p) == 0) return NULL;
    size_t from = *p ? ascii_prefix(c) : 0;
    from -= from < CHARSET_CONTEXT_BYTES ? from : CHARSET_CONTEXT_BYTES;
    size_t n = window(c, from, &p);
    return n > 0 ? charset_detect(p, n) : NULL;
}

/* ---- copies ---- */

static bool too_long(chunk *c) {
    err *e = &c->failure;
    err_at(e, ST_FORMAT, c->source,
           "%s holds more than %zu MiB of text that is not UTF-8 throughout", c->source,
           c->limit >> 20);
    err_hint(e, "convert it first, with `iconv -c -f %s -t UTF-8`; UTF-8 may have any length",
             c->charset);
    return false;
}

/* Copies the text into c->text as UTF-8, with U+FFFD for what means nothing: *repaired times in
 * *bytes. */
static bool copy_text(chunk *c, size_t *repaired, size_t *bytes) {
    bool converts = !charset_is_utf8(c->charset);
    charset_converter cv;
    strbuf utf8 = {0}; /* of one window */
    const char *p;
    *repaired = *bytes = 0;
    c->copied = true;
    if (converts) charset_converter_open(&cv, c->charset);
    for (size_t at = 0, n; (n = window(c, at, &p)) > 0; at += n) {
        bool last = at + n == c->len;
        strbuf_clear(&utf8);
        if (converts)
            n = charset_convert(&cv, p, n, last, &utf8);
        else if (!last)
            n -= (size_t)utf8_open_tail(p, n);
        size_t len = converts ? utf8.len : n;
        *bytes += len;
        *repaired += charset_repair(converts ? strbuf_cstr(&utf8) : p, len, &c->text);
        if (c->text.len > c->limit && !too_long(c)) break;
    }
    if (converts) charset_converter_close(&cv);
    strbuf_free(&utf8);
    return c->failure.code == ST_OK;
}

/* Tallies the file as a bad record. */
static bool bad_text(chunk *c, const char *hint, const char *why) {
    const char *start;
    size_t n = window(c, 0, &start);
    if (n > 0) chunk_add_bad(c, start, n, hint, "%s", why);
    return false;
}

static bool prepare(chunk *c) {
    char why[128];
    size_t good = 0;
    if (!c->charset || charset_is_utf8(c->charset)) {
        good = good_prefix(c);
        bool all = good == c->len;
        if (!c->charset && c->failure.code == ST_OK) c->charset = all ? "UTF-8" : detect(c, good);
        if (c->failure.code != ST_OK) return false;
        if (all) return true;
        if (!c->charset) {
            c->charset = "unknown";
            snprintf(why, sizeof why, "is in no charset that is recognised: byte %zu is not UTF-8",
                     good);
            return bad_text(c, "name the charset: charset=NAME", why);
        }
    }
    size_t repaired, bytes;
    if (!copy_text(c, &repaired, &bytes)) return false;
    if (repaired * 20 > bytes) {
        snprintf(why, sizeof why, "is broken: %zu of its characters are not %.40s", repaired,
                 c->charset);
        return bad_text(c, "name the charset: charset=NAME", why);
    }
    const char *nul = c->text.len ? memchr(c->text.data, 0, c->text.len) : NULL;
    c->replaced = repaired;
    c->replaced_at = charset_is_utf8(c->charset) ? (int64_t)good : -1;
    if (!nul) return true;
    snprintf(why, sizeof why, "is not text: there is a NUL byte at byte %zu",
             (size_t)(nul - c->text.data));
    return bad_text(c, NULL, why);
}

bool chunk_prepare_text(chunk *c) {
    strbuf_free(&c->text);
    c->copied = false;
    bool good = prepare(c);
    free(c->window);
    c->window = NULL;
    return good;
}
