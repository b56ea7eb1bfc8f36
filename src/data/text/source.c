/* See reader_int.h. `ready` holds bytes that can be given; source_read fills it from the stream, at
 * first with enough to judge the charset from. */
#include "data/text/reader_int.h"

#include <stdlib.h>

#include "base/arena.h"
#include "data/text/charset.h"
#include "data/text/stream.h"

#include <string.h>

enum { CONVERT_BYTES = 256 << 10 };

struct source {
    const char *path;
    stream *in;
    const char *charset; /* NULL: open */
    bool end, converting;
    charset_converter converter;
    strbuf ready, raw; /* raw: of a charset to convert, not yet converted */
    size_t at;         /* of ready */
};

static void decide(source *s, const char *name) {
    s->charset = name ? name : "unknown";
    s->converting = name && !charset_is_utf8(name);
    if (s->converting) charset_converter_open(&s->converter, name);
}

status source_open(source **out, const char *path, const char *charset, err *e) {
    *out = NULL;
    stream *in;
    TRY(stream_open(&in, path, e));
    source *s = xcalloc(1, sizeof *s);
    s->path = path;
    s->in = in;
    if (charset) decide(s, charset);
    *out = s;
    return ST_OK;
}

void source_close(source *s) {
    if (!s) return;
    stream_close(s->in);
    if (s->converting) charset_converter_close(&s->converter);
    strbuf_free(&s->ready);
    strbuf_free(&s->raw);
    free(s);
}

/* Appends up to n bytes as they are. */
static status append_raw(source *s, strbuf *to, size_t n, err *e) {
    while (n > 0 && !s->end) {
        size_t got;
        char *room = strbuf_extend(to, n);
        status st = stream_read(s->in, room, n, &got, e);
        strbuf_truncate(to, to->len - n + (st == ST_OK ? got : 0));
        TRY(st);
        s->end = got == 0;
        n -= got;
    }
    return ST_OK;
}

/* A sample that is not all ASCII decides, from a few words before the first other byte on: were that the last
 * byte, nothing would tell the charset. What was read then goes the way of its charset. Bytes that nothing
 * explains go on as they are: their records are bad. */
static status judge(source *s, err *e) {
    TRY(append_raw(s, &s->ready, CHARSET_SAMPLE_BYTES, e));
    size_t from = charset_open_prefix(strbuf_cstr(&s->ready), s->ready.len);
    if (from == s->ready.len) return ST_OK;
    from -= from < CHARSET_CONTEXT_BYTES ? from : CHARSET_CONTEXT_BYTES;
    TRY(append_raw(s, &s->ready, from, e));
    decide(s, charset_detect(s->ready.data + from, s->ready.len - from));
    if (s->converting) {
        strbuf empty = s->raw;
        s->raw = s->ready;
        s->ready = empty;
    }
    return ST_OK;
}

static status convert(source *s, err *e) {
    do { /* half a character gives nothing yet */
        if (s->raw.len < CONVERT_BYTES) TRY(append_raw(s, &s->raw, CONVERT_BYTES, e));
        size_t used =
            charset_convert(&s->converter, strbuf_cstr(&s->raw), s->raw.len, s->end, &s->ready);
        memmove(s->raw.data, s->raw.data + used, s->raw.len - used);
        strbuf_truncate(&s->raw, s->raw.len - used);
    } while (s->ready.len == 0 && !s->end);
    return ST_OK;
}

/* Nothing is ready: makes something so, unless this is the end. */
static status make_ready(source *s, err *e) {
    strbuf_clear(&s->ready);
    s->at = 0;
    if (!s->charset) TRY(judge(s, e));
    return s->converting && s->ready.len == 0 ? convert(s, e) : ST_OK;
}

status source_read(source *s, char *p, size_t n, size_t *got, err *e) {
    if (s->at == s->ready.len && (!s->charset || s->converting)) TRY(make_ready(s, e));
    size_t left = s->ready.len - s->at;
    if (left == 0 && s->charset && !s->converting) {
        TRY(stream_read(s->in, p, n, got, e));
    } else {
        *got = n < left ? n : left;
        memcpy(p, strbuf_cstr(&s->ready) + s->at, *got);
        s->at += *got;
    }
    return ST_OK;
}

status source_skip(source *s, uint64_t bytes, err *e) {
    char *passed = xmalloc(CONVERT_BYTES);
    status st = ST_OK;
    size_t got = 1;
    while (st == ST_OK && bytes > 0 && got > 0) {
        if (s->charset && !s->converting && s->at == s->ready.len) {
            uint64_t skipped;
            st = stream_skip(s->in, bytes, &skipped, e);
            bytes -= st == ST_OK ? skipped : 0;
            break;
        }
        st = source_read(s, passed, bytes < CONVERT_BYTES ? (size_t)bytes : CONVERT_BYTES, &got, e);
        bytes -= st == ST_OK ? got : 0;
    }
    free(passed);
    if (st != ST_OK || bytes == 0) return st;
    err_at(e, ST_FORMAT, s->path, "%s has become shorter since it was read", s->path);
    return err_hint(e, "begin anew");
}

uint64_t source_disk_bytes(const source *s) {
    return stream_disk_bytes(s->in);
}

const char *source_charset(const source *s) {
    return s->charset ? s->charset : "UTF-8";
}
