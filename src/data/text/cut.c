/* Files into chunks (see reader_int.h): files of records are read through a carry buffer and cut
 * after the last whole record of some megabytes; a text file is one chunk. Read next_records. */
#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "data/text/charset.h"
#include "data/text/reader_int.h"
#include "data/text/stream.h"

enum {
    CHUNK_BYTES = 4 << 20,
    READ_BYTES = 1 << 20,
    SMALL_BYTES = 4096,
    MAX_CSV_RECORD_BYTES = 64 << 20, /* an open quote would else swallow the whole file */
    WHOLE_TEXT_BYTES = 16 << 20,     /* a text file up to here is read at once */
};

/* ---- cutting files of records ---- */

static csv_dialect dialect_of(reader_format format) {
    return format == READER_TSV ? (csv_dialect){'\t', false} : (csv_dialect){',', true};
}

/* Of the JSON lines that Parquet is read as all are whole, and each is a document's. */
static size_t whole_records(reader_format format, const char *s, size_t n, bool final,
                            size_t *open_quote) {
    if (format == READER_CSV || format == READER_TSV)
        return csv_whole_records(s, n, dialect_of(format), final, open_quote);
    *open_quote = n;
    const char *end = n ? memrchr(s, '\n', n) : NULL;
    return final ? n : end ? (size_t)(end + 1 - s) : 0;
}

static status too_long(const reader *r, reader_format format, size_t open_quote, size_t limit,
                       err *e) {
    const char *path = r->inputs.file[r->at].path;
    uint32_t line = r->line + 1;
    bool quote = open_quote < r->carry.len;
    if (quote) line += count_lines(r->carry.data, open_quote);
    err_set(e, ST_FORMAT, "%s:%u %s %zu MiB", path, line,
            quote ? "opens a quote that is not closed within" : "is longer than", limit >> 20);
    err_where(e, "%s:%u", path, line);
    return err_hint(e, "%s",
                    format == READER_JSONL
                        ? "JSONL has one object a line; for plain text use format=text"
                        : "a quote inside a field is doubled and the field quoted; tab-separated "
                          "text without quotes is format=tsv");
}

static status row_too_long(const reader *r, err *e) {
    const char *path = r->inputs.file[r->at].path;
    err_set(e, ST_FORMAT, "row %u of %s is longer than %zu MiB",
            r->line + count_lines(r->carry.data, r->carry.len), path, r->limit >> 20);
    err_where(e, "%s:%u", path, r->line + count_lines(r->carry.data, r->carry.len));
    return err_hint(e, "divide it into several documents, or leave the file out");
}

/* Appends rows to carry as lines of JSON, up to `want` bytes if there are so many. */
static status fill_rows(reader *r, size_t want, err *e) {
    for (bool more = true; more && r->carry.len < want;) {
        size_t before = r->carry.len;
        TRY(parquet_rows_next(r->rows, &r->carry, &more, e));
        if (more) strbuf_putc(&r->carry, '\n');
        if (r->carry.len - before > r->limit) return row_too_long(r, e);
    }
    return ST_OK;
}

/* Fills carry with at least one whole record, some megabytes if there are so many; *whole: how many
 * bytes of it are whole records, 0 only at the end of the file. */
static status fill_carry(reader *r, size_t want, size_t *whole, err *e) {
    reader_format format = r->inputs.file[r->at].format;
    size_t limit = r->limit;
    if (format == READER_PARQUET) {
        TRY(fill_rows(r, want, e));
        *whole = r->carry.len;
        return ST_OK;
    }
    if (format != READER_JSONL && limit > MAX_CSV_RECORD_BYTES) limit = MAX_CSV_RECORD_BYTES;
    for (bool end = false;;) {
        size_t open_quote;
        while (r->carry.len < want && !end) {
            size_t got;
            char *room = strbuf_extend(&r->carry, READ_BYTES);
            status st = source_read(r->source, room, READ_BYTES, &got, e);
            strbuf_truncate(&r->carry, r->carry.len - READ_BYTES + (st == ST_OK ? got : 0));
            TRY(st);
            end = got == 0;
        }
        *whole = whole_records(format, strbuf_cstr(&r->carry), r->carry.len, end, &open_quote);
        if (*whole > 0 || end) return ST_OK;
        if (r->carry.len >= limit) return too_long(r, format, open_quote, limit, e);
        want = r->carry.len < limit / 2 ? r->carry.len * 2 : limit;
    }
}

/* Takes n bytes off the front of carry. */
static void advance(reader *r, size_t n) {
    r->line += count_lines(strbuf_cstr(&r->carry), n);
    r->offset += n;
    memmove(r->carry.data, r->carry.data + n, r->carry.len - n);
    strbuf_truncate(&r->carry, r->carry.len - n);
}

/* The first record that is not empty names the columns. */
static status read_header(reader *r, err *e) {
    const input_file *f = &r->inputs.file[r->at];
    csv_dialect d = dialect_of(f->format);
    field_value value[FIELDS_MAX];
    int columns = 0;
    r->columns = ARENA_NEW(r->mem, csv_columns);
    for (;;) {
        size_t whole;
        const char *why;
        TRY(fill_carry(r, READ_BYTES, &whole, e));
        if (whole == 0) return ST_OK;
        size_t n = csv_record_scan(r->carry.data, whole, d, r->columns, 0, value, &columns, &why);
        if (columns > 0)
            TRY(csv_columns_parse(r->columns, r->mem, f->path, r->carry.data, n, d, &r->fields, e));
        advance(r, n);
        if (columns > 0) return ST_OK;
    }
}

static void skip_mark(reader *r) {
    size_t n = utf8_mark(r->carry.data, r->carry.len);
    if (n) advance(r, n);
}

/* Only the columns that are asked for are read. */
static status open_parquet(reader *r, const char *path, err *e) {
    const char *column[FIELDS_MAX];
    int n = 0;
    if (strcmp(path, "-") == 0) {
        err_at(e, ST_USAGE, path,
               "Parquet cannot be read from standard input: its index is at the end of the file");
        return err_hint(e, "give the file by its name");
    }
    TRY(parquet_open(&r->parquet, path, e));
    for (int i = 0; i < r->fields.n; i++) {
        const char *name = r->fields.field[i].name;
        if (r->fields.needed & 1u << i || parquet_has_column(r->parquet, name)) column[n++] = name;
    }
    if (parquet_n_rows(r->parquet) > UINT32_MAX) { /* as many as a document can have numbers */
        err_at(e, ST_FORMAT, path, "%s has %" PRId64 " rows, more than are read of one file", path,
               parquet_n_rows(r->parquet));
        return err_hint(e, "divide it");
    }
    return parquet_rows_open(&r->rows, r->parquet, column, n, e);
}

static status open_records(reader *r, err *e) {
    const input_file *f = &r->inputs.file[r->at];
    size_t whole;
    if (f->format == READER_PARQUET) return open_parquet(r, f->path, e);
    TRY(source_open(&r->source, f->path, r->charset, e));
    TRY(fill_carry(r, READ_BYTES, &whole, e));
    skip_mark(r);
    return f->format == READER_JSONL ? ST_OK : read_header(r, e);
}

void reader_close_file(reader *r) {
    if (r->source) r->disk_bytes += source_disk_bytes(r->source);
    source_close(r->source);
    r->source = NULL;
    if (r->parquet) r->disk_bytes += r->inputs.file[r->at].bytes;
    parquet_rows_close(r->rows);
    parquet_close(r->parquet);
    r->rows = NULL;
    r->parquet = NULL;
    strbuf_clear(&r->carry);
    r->offset = r->line = 0;
}

status reader_skip_to(reader *r, uint64_t offset, uint32_t line, err *e) {
    TRY(open_records(r, e));
    uint64_t ahead = offset > r->offset ? offset - r->offset : 0;
    if (r->rows) {
        TRY(parquet_rows_skip(r->rows, line, e));
    } else if (ahead <= r->carry.len) {
        advance(r, (size_t)ahead);
    } else {
        TRY(source_skip(r->source, ahead - r->carry.len, e));
        strbuf_clear(&r->carry);
    }
    r->offset = offset;
    r->line = line;
    return ST_OK;
}

static chunk *new_chunk(const reader *r) {
    const input_file *f = &r->inputs.file[r->at];
    chunk *c = xcalloc(1, sizeof *c);
    c->format = f->format;
    c->fields = &r->fields;
    c->dialect = dialect_of(f->format);
    c->columns = r->columns;
    c->source = f->path;
    c->limit = r->limit;
    c->file = (uint32_t)r->at;
    return c;
}

/* The chunk takes carry over, all but what follows its whole records. */
static void give_carry(reader *r, chunk *c, size_t whole) {
    strbuf rest = {0};
    if (whole >= CHUNK_BYTES / 2) { /* as much will come: growing to it would copy it twice */
        strbuf_extend(&rest, CHUNK_BYTES + 2 * READ_BYTES);
        strbuf_clear(&rest);
    }
    strbuf_append(&rest, r->carry.data + whole, r->carry.len - whole);
    r->line += count_lines(r->carry.data, whole);
    r->offset += whole;
    c->data = c->own = r->carry.data;
    c->len = whole;
    r->carry = rest;
}

/* The next records of the file; *out NULL at its end. */
static status next_records(reader *r, chunk **out, err *e) {
    size_t whole;
    *out = NULL;
    if (!r->source && !r->rows) TRY(open_records(r, e));
    TRY(fill_carry(r, CHUNK_BYTES, &whole, e));
    if (whole == 0) return ST_OK;
    chunk *c = new_chunk(r);
    c->offset = r->offset;
    c->line = c->first_line = r->line + 1;
    c->charset = r->source ? source_charset(r->source) : NULL;
    give_carry(r, c, whole);
    c->n_lines = r->line + 1 - c->first_line;
    *out = c;
    return ST_OK;
}

/* ---- text files ---- */

/* The whole stream into memory; `expect` bytes if that is known. */
static status read_all(const reader *r, stream *s, chunk *c, uint64_t expect, err *e) {
    strbuf b = {0};
    size_t got = 1;
    status st = ST_OK;
    while (st == ST_OK && got > 0 && b.len <= r->limit) {
        size_t room = b.len < READ_BYTES ? READ_BYTES : b.len / 2;
        if (expect > 0) room = expect > b.len ? (size_t)expect - b.len : SMALL_BYTES;
        char *p = strbuf_extend(&b, room);
        st = stream_read(s, p, room, &got, e);
        strbuf_truncate(&b, b.len - room + (st == ST_OK ? got : 0));
    }
    if (st == ST_OK && got > 0) {
        err_at(e, ST_FORMAT, c->source, "%s holds more than %zu MiB of text in one document",
               c->source, r->limit >> 20);
        st = err_hint(e, "unpack it into a file (plain text may have any length), split it, or use "
                         "JSONL");
    }
    c->data = c->own = b.data;
    c->len = b.len;
    return st;
}

/* Refuses what is clearly binary. Later parts of the file are looked at with the document. */
static status check_start(chunk *c, err *e) {
    size_t n = c->len < CHARSET_SAMPLE_BYTES ? c->len : CHARSET_SAMPLE_BYTES;
    TRY(chunk_need(c, c->data, n, e));
    const char *name = charset_is_open(c->data, n) ? "UTF-8" : charset_detect(c->data, n);
    return name && !charset_is_utf8(name) ? ST_OK : text_check(c->source, c->data, n, e);
}

static status load_text(reader *r, chunk *c, err *e) {
    const input_file *f = &r->inputs.file[r->at];
    stream *s;
    TRY(stream_open(&s, f->path, e));
    size_t at_once = r->limit < WHOLE_TEXT_BYTES ? r->limit : WHOLE_TEXT_BYTES;
    bool whole = !f->regular || f->bytes <= at_once || stream_is_packed(s);
    bool known = f->regular && !stream_is_packed(s);
    status st = whole ? read_all(r, s, c, known ? f->bytes + 1 : 0, e) : chunk_open_text(c, e);
    r->disk_bytes += whole ? stream_disk_bytes(s) : c->len;
    stream_close(s);
    c->charset = r->charset;
    return st == ST_OK && !r->charset ? check_start(c, e) : st;
}

static status next_text_file(reader *r, chunk **out, err *e) {
    chunk *c = new_chunk(r);
    status st = load_text(r, c, e);
    if (st == ST_OK)
        *out = c;
    else
        chunk_free(c);
    return st;
}

/* ---- chunks ---- */

status reader_next_chunk(reader *r, chunk **out, err *e) {
    *out = NULL;
    while (!*out && r->at < r->inputs.n) {
        bool text = r->inputs.file[r->at].format == READER_TEXT;
        TRY(text ? next_text_file(r, out, e) : next_records(r, out, e));
        if (*out && !text) break;
        reader_close_file(r);
        r->at++;
    }
    return ST_OK;
}
