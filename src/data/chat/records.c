/* See records.h. A file of JSON is read through a buffer that holds one object and what was read
 * behind it. Between objects there may be spaces, commas and the brackets of one list, so that a list
 * and a file of lines are read alike; what else stands there is an error. */
#include "data/chat/records.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/utf8.h"
#include "data/chat/sample.h"
#include "data/parquet/parquet.h"
#include "data/text/reader_int.h"
#include "data/text/stream.h"

enum { BLOCK_BYTES = 1 << 16 };

struct records {
    arena *mem;
    input_list inputs;
    int file; /* the open one, or the next to open */
    stream *stream;
    parquet *parquet;
    parquet_rows *rows;
    strbuf row; /* of Parquet, as JSON */
    char *buf;
    size_t at, n, cap; /* what is not used yet is buf[at..n) */
    uint64_t offset;   /* of buf[at] in the file */
    uint32_t line;     /* of buf[at]; rows read */
    bool ended;        /* the file has no more bytes than buf */
    bool in_list;
};

/* ---- files ---- */

static status check_kind(const input_file *f, err *e) {
    if (f->format == READER_JSONL || f->format == READER_PARQUET) return ST_OK;
    err_at(e, ST_USAGE, f->path,
           "%s holds no conversations: these are read from .json, .jsonl and .parquet", f->path);
    return err_hint(e, "build it as text: --chat no");
}

status records_open(records **out, const char *const *inputs, int n, err *e) {
    records *r = xcalloc(1, sizeof *r);
    *out = NULL;
    r->mem = arena_new("records");
    status st = input_list_find(&r->inputs, r->mem, inputs, n, READER_AUTO, e);
    for (int i = 0; st == ST_OK && i < r->inputs.n; i++) st = check_kind(&r->inputs.file[i], e);
    if (st == ST_OK)
        *out = r;
    else
        records_close(r);
    return st;
}

static void close_file(records *r) {
    stream_close(r->stream);
    parquet_rows_close(r->rows);
    parquet_close(r->parquet);
    r->stream = NULL;
    r->rows = NULL;
    r->parquet = NULL;
}

void records_close(records *r) {
    if (!r) return;
    close_file(r);
    input_list_free(&r->inputs);
    arena_free(r->mem);
    strbuf_free(&r->row);
    free(r->buf);
    free(r);
}

static status open_file(records *r, err *e) {
    const input_file *f = &r->inputs.file[r->file];
    r->at = r->n = 0;
    r->offset = 0;
    r->ended = r->in_list = false;
    r->line = 1;
    if (f->format != READER_PARQUET) return stream_open(&r->stream, f->path, e);
    r->line = 0;
    TRY(parquet_open(&r->parquet, f->path, e));
    return parquet_rows_open(&r->rows, r->parquet, NULL, 0, e);
}

const char *records_file(const records *r, int i) {
    return r->inputs.file[i].path;
}

uint64_t records_fingerprint(const records *r) {
    uint64_t hash = 0;
    for (int i = 0; i < r->inputs.n; i++) {
        const input_file *f = &r->inputs.file[i];
        const uint64_t one[] = {hash, hash_bytes(f->path, strlen(f->path)), f->bytes,
                                (uint64_t)f->modified_ns};
        if (!f->regular) return 0;
        hash = hash_bytes(one, sizeof one);
    }
    return hash;
}

/* ---- the buffer ---- */

static status fill(records *r, err *e) {
    if (r->at > 0) {
        memmove(r->buf, r->buf + r->at, r->n - r->at);
        r->n -= r->at;
        r->at = 0;
    }
    if (r->cap - r->n < BLOCK_BYTES) {
        r->cap = 2 * r->cap + BLOCK_BYTES;
        r->buf = xrealloc(r->buf, r->cap);
    }
    size_t got;
    TRY(stream_read(r->stream, r->buf + r->n, r->cap - r->n, &got, e));
    r->n += got;
    r->ended = got == 0;
    return ST_OK;
}

/* Passes over n bytes of the buffer. */
static void pass(records *r, size_t n) {
    for (size_t i = 0; i < n; i++) r->line += r->buf[r->at + i] == '\n';
    r->at += n;
    r->offset += n;
}

static status not_a_record(const records *r, const char *what, err *e) {
    const char *path = r->inputs.file[r->file].path;
    err_set(e, ST_FORMAT, "%s:%u %s", path, (unsigned)r->line, what);
    err_where(e, "%s:%u", path, (unsigned)r->line);
    return err_hint(e, "a file of conversations is a list of objects, or an object a line");
}

/* Passes over what stands between objects; *more = false at the end of the file. */
static status pass_between(records *r, bool *more, err *e) {
    for (;;) {
        if (r->at == r->n && r->ended) {
            *more = false;
            return r->in_list ? not_a_record(r, "ends inside a list", e) : ST_OK;
        }
        if (r->at == r->n) {
            TRY(fill(r, e));
            size_t mark = r->offset == 0 ? utf8_mark(r->buf, r->n) : 0;
            if (mark) pass(r, mark);
            continue;
        }
        char c = r->buf[r->at];
        *more = c == '{';
        if (*more) return ST_OK;
        bool begins = c == '[' && !r->in_list, ends = c == ']' && r->in_list;
        if (begins || ends)
            r->in_list = begins;
        else if ((c == '\0' || !strchr(" \t\r\n", c)) && !(c == ',' && r->in_list))
            return not_a_record(r, "is not an object of JSON", e);
        pass(r, 1);
    }
}

/* Counts brackets outside of strings. */
size_t records_object_length(const char *s, size_t n) {
    int64_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (in_string) {
            if (c == '\\') i++;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth <= 0) {
            return i + 1;
        }
    }
    return 0;
}

/* Has the object that begins at buf[at] wholly in the buffer. */
static status load_object(records *r, size_t *len, err *e) {
    while ((*len = records_object_length(r->buf + r->at, r->n - r->at)) == 0) {
        if (r->ended) return not_a_record(r, "begins an object that does not end", e);
        if (r->n - r->at > CHAT_MAX_RECORD_BYTES)
            return not_a_record(r, "begins an object of more than 64 MiB", e);
        TRY(fill(r, e));
    }
    return ST_OK;
}

/* ---- records ---- */

/* Whether a number is a whole one that may be beyond 64 bits with a sign; *n: its length. */
static bool is_large(const char *s, const char *end, size_t *n) {
    const char *p = s + (*s == '-');
    size_t digits = 0;
    while (p + digits < end && p[digits] >= '0' && p[digits] <= '9') digits++;
    *n = (size_t)(p - s) + digits;
    return digits > 18 && (p + digits == end || !strchr(".eE", p[digits]));
}

/* Ids of 64 bits without a sign, which jansson does not take: in columns that nobody reads they become 0. */
static void clear_large_integers(char *text, size_t len) {
    char key[64] = "";
    size_t n, depth = 0;
    for (size_t i = 0; i < len; i += n) {
        n = 1;
        if (text[i] == '"') {
            while (i + n < len && text[i + n] != '"') n += text[i + n] == '\\' ? 2 : 1;
            n += i + n < len;
            bool fits = depth == 1 && n - 1 < sizeof key;
            if (depth == 1) snprintf(key, sizeof key, "%.*s", fits ? (int)n - 2 : 0, text + i + 1);
        } else if (text[i] == '{' || text[i] == '[') {
            depth++;
        } else if (text[i] == '}' || text[i] == ']') {
            depth--;
        } else if (depth == 1 && (text[i] == '-' || (text[i] >= '0' && text[i] <= '9'))) {
            if (!is_large(text + i, text + len, &n) || chat_column_is_read(key)) continue;
            memset(text + i, ' ', n);
            text[i] = '0';
        }
    }
}

static json_t *parse(char *text, size_t len, json_error_t *why) {
    json_t *value = json_loadb(text, len, JSON_ALLOW_NUL, why);
    if (value || json_error_code(why) != json_error_numeric_overflow) return value;
    clear_large_integers(text, len);
    return json_loadb(text, len, JSON_ALLOW_NUL, why);
}

static status next_json(records *r, chat_record *out, err *e) {
    bool more;
    size_t len;
    json_error_t je;
    TRY(pass_between(r, &more, e));
    if (!more) return ST_OK;
    TRY(load_object(r, &len, e));
    out->line = r->line;
    out->offset = r->offset;
    out->bytes = len;
    out->value = parse(r->buf + r->at, len, &je);
    if (!out->value) {
        r->line += (uint32_t)(je.line > 0 ? je.line - 1 : 0);
        char what[256];
        snprintf(what, sizeof what, "is not JSON: %.200s", je.text);
        return not_a_record(r, what, e);
    }
    pass(r, len);
    return ST_OK;
}

static status next_row(records *r, chat_record *out, err *e) {
    bool more;
    json_error_t why;
    strbuf_clear(&r->row);
    TRY(parquet_rows_next(r->rows, &r->row, &more, e));
    if (!more) return ST_OK;
    out->line = ++r->line;
    out->value = parse(r->row.data, r->row.len, &why);
    if (out->value) return ST_OK;
    const char *path = r->inputs.file[r->file].path;
    return err_at(e, ST_FORMAT, path, "row %u of %s cannot be read: %s", (unsigned)r->line, path,
                  why.text);
}

status records_next(records *r, chat_record *out, err *e) {
    for (; r->file < r->inputs.n; r->file++) {
        *out = (chat_record){.source = r->inputs.file[r->file].path};
        if (!r->stream && !r->parquet) TRY(open_file(r, e));
        TRY((r->parquet ? next_row : next_json)(r, out, e));
        if (out->value) return ST_OK;
        close_file(r);
    }
    out->value = NULL;
    return ST_OK;
}
