/* See reader.h. Here: opening, reader_next, seeking, questions. Files are cut into chunks in cut.c,
 * chunk.c takes these apart, tally.c adds up what was found. */
#include "data/text/reader.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "data/text/charset.h"
#include "data/text/reader_int.h"

enum { DEFAULT_DOCUMENT_BYTES = 1 << 30 };
static const double DEFAULT_MAX_BAD = 0.01;

/* ---- opening ---- */

static uint64_t hash_options(arena *a, const reader_options *o) {
    const char *text =
        arena_printf(a, "%d|%s|%s|%s|%s|%s|%s", (int)o->format, o->field ? o->field : "text",
                     o->template ? o->template : "", o->label ? o->label : "", o->id ? o->id : "",
                     o->score ? o->score : "", o->charset ? o->charset : "");
    return hash_bytes(text, strlen(text));
}

static status setup(reader *r, const char *const *inputs, int n, const reader_options *opt,
                    err *e) {
    r->limit = opt->max_document_bytes ? opt->max_document_bytes : DEFAULT_DOCUMENT_BYTES;
    r->max_bad = opt->max_bad >= 0 ? opt->max_bad : DEFAULT_MAX_BAD;
    r->options_hash = hash_options(r->mem, opt);
    TRY(record_fields_parse(&r->fields, r->mem, opt, e));
    if (opt->charset && strcasecmp(opt->charset, "auto") != 0) {
        r->charset = arena_strdup(r->mem, opt->charset);
        TRY(charset_check(r->charset, e));
    }
    return input_list_find(&r->inputs, r->mem, inputs, n, opt->format, e);
}

status reader_open(reader **out, const char *const *inputs, int n, const reader_options *opt,
                   err *e) {
    static const reader_options DEFAULTS = {.max_bad = -1};
    *out = NULL;
    reader *r = xcalloc(1, sizeof *r);
    r->mem = arena_new("reader");
    r->tally.whole = true;
    status st = setup(r, inputs, n, opt ? opt : &DEFAULTS, e);
    if (st == ST_OK)
        *out = r;
    else
        reader_close(r);
    return st;
}

void reader_close(reader *r) {
    if (!r) return;
    chunk_free(r->current);
    reader_close_file(r);
    strbuf_free(&r->carry);
    input_list_free(&r->inputs);
    arena_free(r->mem);
    free(r);
}

/* ---- document by document ---- */

static status finish_current(reader *r, err *e) {
    status st = reader_done(r, r->current, NULL, e);
    chunk_free(r->current);
    r->current = NULL;
    return st;
}

status reader_next(reader *r, document *doc, bool *more, err *e) {
    *doc = (document){0};
    *more = false;
    for (;;) {
        if (!r->current) TRY(reader_next_chunk(r, &r->current, e));
        if (!r->current) return reader_finish(r, e);
        *more = chunk_next(r->current, doc);
        if (*more) TRY(chunk_map_text(r->current, e));
        bool strict = r->max_bad == 0 && r->current->bad > 0;
        if (*more && !strict) return ST_OK;
        TRY(finish_current(r, e));
    }
}

void reader_forget(const reader *r, size_t bytes) {
    if (r->current) chunk_forget(r->current, bytes);
}

status reader_seek(reader *r, const reader_position *at, const reader_report *found, err *e) {
    chunk_free(r->current);
    r->current = NULL;
    reader_close_file(r);
    if (at->file > (uint32_t)r->inputs.n) {
        err_set(e, ST_FORMAT, "file %u of %d files is where reading should go on", at->file + 1,
                r->inputs.n);
        return err_hint(e, "the inputs have changed: begin anew");
    }
    r->at = (int)at->file;
    r->report = found ? *found : (reader_report){0};
    r->report.documents = at->documents;
    r->report.records = at->records;
    r->report.bad = at->bad;
    r->disk_bytes = 0;
    for (int i = 0; i < r->at; i++) r->disk_bytes += r->inputs.file[i].bytes;
    r->tally.file = at->file;
    r->tally.records = r->tally.bad = 0;
    r->tally.whole = at->offset == 0;
    bool inside = r->at < r->inputs.n && at->offset > 0;
    r->tally.charset = NULL;
    if (inside) TRY(reader_skip_to(r, at->offset, at->line, e));
    if (r->source) r->tally.charset = source_charset(r->source);
    return ST_OK;
}

/* ---- questions ---- */

int reader_n_files(const reader *r) {
    return r->inputs.n;
}

const char *reader_file(const reader *r, int i) {
    return r->inputs.file[i].path;
}

uint64_t reader_fingerprint(const reader *r) {
    uint64_t hash = r->options_hash;
    for (int i = 0; i < r->inputs.n; i++) {
        const input_file *f = &r->inputs.file[i];
        if (!f->regular) return 0;
        uint64_t parts[] = {hash, hash_bytes(f->path, strlen(f->path)), f->bytes,
                            (uint64_t)f->modified_ns, (uint64_t)f->format};
        hash = hash_bytes(parts, sizeof parts);
    }
    return hash;
}

bool reader_is_text_only(const reader *r) {
    for (int i = 0; i < r->inputs.n; i++)
        if (r->inputs.file[i].format != READER_TEXT) return false;
    return true;
}

size_t reader_document_limit(const reader *r) {
    return r->limit;
}

uint64_t reader_bytes_done(const reader *r) {
    return r->disk_bytes + (r->source ? source_disk_bytes(r->source) : 0) +
           (r->rows ? parquet_rows_bytes_done(r->rows) : 0);
}

uint64_t reader_bytes_total(const reader *r) {
    uint64_t total = 0;
    for (int i = 0; i < r->inputs.n; i++) {
        if (!r->inputs.file[i].regular) return 0;
        total += r->inputs.file[i].bytes;
    }
    return total;
}
