/* Which charset bytes are in, and their conversion to UTF-8.
 *
 * Told apart are UTF-8, UTF-16 (either order), GB18030 and Windows-1252 (of which Latin-1 is the
 * printable part), and UTF-32 by its mark. Each has to be explained well by the bytes: a charset
 * that is not among them (KOI8-R, Shift-JIS, ...) is to be "unknown", never a wrong one; it has to
 * be named. Conversion is iconv's. */
#ifndef DATA_CHARSET_H
#define DATA_CHARSET_H

#include <iconv.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

/* Of a sample, and of it before the first byte that is not ASCII. */
enum { CHARSET_SAMPLE_BYTES = 1 << 20, CHARSET_CONTEXT_BYTES = 64 };

/* The name, as iconv knows it; NULL: unknown. The best sample begins a few words before the first
 * byte that is not ASCII, or at the start of the file. */
const char *charset_detect(const char *p, size_t n);
/* ASCII only, and no control below the tab, as UTF-16 has them: every charset told apart above
 * would read the same from this. */
bool charset_is_open(const char *p, size_t n);
size_t charset_open_prefix(const char *p, size_t n); /* how many bytes of it are so */
bool charset_is_utf8(const char *name);
/* ST_USAGE: iconv does not know the name. */
status charset_check(const char *name, err *e) ATH_MUST_USE;

typedef struct charset_converter {
    iconv_t cd;
    size_t unit; /* bytes of the smallest character */
} charset_converter;

void charset_converter_open(charset_converter *c, const char *name); /* a name that was checked */
void charset_converter_close(charset_converter *c);
/* Appends what n bytes mean to `out`; each unit that means nothing becomes the byte 0xFF, so that a
 * record which holds it is seen to be bad. Returns how many bytes were used: fewer than n when the
 * last character is not whole, unless `final`. */
size_t charset_convert(charset_converter *c, const char *p, size_t n, bool final, strbuf *out);
/* Appends p with each sequence that is not UTF-8 as U+FFFD; returns how many there were. */
size_t charset_repair(const char *p, size_t n, strbuf *out);

/* Refuses a file that is clearly binary, as a model would be trained on noise. ST_FORMAT, naming the
 * offset: a NUL, or more than 30 % control characters and bytes that are not UTF-8 in the first
 * MiB. */
status text_check(const char *path, const char *data, size_t len, err *e) ATH_MUST_USE;

#endif
