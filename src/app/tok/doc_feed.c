/* See doc_feed.h. doc_feed_next fills a batch with slices of the document at hand. */
#include "app/tok/doc_feed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/data/data_view.h"
#include "app/frame/progress.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include "base/utf8.h"

enum { BATCH_BYTES = 8 << 20, BATCH_DOCS = 4096, NEAR_BYTES = 64 << 10 };
static const double SHOW_EVERY_S = 0.25;

struct doc_feed {
    reader **reader; /* one an input */
    int n_inputs, at;
    document doc; /* at hand */
    size_t done;  /* bytes of it that were given */
    bool show, line_open;
    int64_t start_ns, shown_ns;
    uint64_t n_docs;
    arena *mem; /* of the batch */
    feed_doc *batch;
    int n, cap;
};

status doc_feed_options(const cli_args *args, arena *a, reader_options *opt, err *e) {
    static const char *const KEYS[] = {DATA_TEXT_KEYS, NULL};
    const char *field = cli_value(args, "field");
    TRY(cli_check_overrides(args, KEYS, e));
    TRY(data_text_options(args, a, opt, e));
    if (field) opt->field = field;
    return ST_OK;
}

status doc_feed_open(doc_feed **out, const char *const *inputs, int n, const reader_options *opt,
                     bool show, err *e) {
    doc_feed *f = xcalloc(1, sizeof *f);
    *out = NULL;
    f->reader = xcalloc((size_t)n, sizeof *f->reader);
    f->n_inputs = n;
    f->show = show;
    f->start_ns = f->shown_ns = clock_now_ns();
    f->mem = arena_new("documents");
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < n; i++)
        st = reader_open(&f->reader[i], &inputs[i], 1, opt, e);
    if (st == ST_OK)
        *out = f;
    else
        doc_feed_close(f);
    return st;
}

static void clear_line(doc_feed *f) {
    if (f->line_open) progress_clear(stderr);
    f->line_open = false;
}

void doc_feed_close(doc_feed *f) {
    if (!f) return;
    clear_line(f);
    for (int i = 0; i < f->n_inputs; i++) reader_close(f->reader[i]);
    free(f->reader);
    free(f->batch);
    arena_free(f->mem);
    free(f);
}

static void show_progress(doc_feed *f) {
    int64_t now = clock_now_ns();
    uint64_t done = 0, total = 0;
    if (!f->show || (double)(now - f->shown_ns) * 1e-9 < SHOW_EVERY_S) return;
    f->shown_ns = now;
    for (int i = 0; i < f->n_inputs; i++) {
        done += reader_bytes_done(f->reader[i]);
        total += reader_bytes_total(f->reader[i]);
    }
    strbuf line = {0};
    strbuf_printf(&line, "%.1f MB", (double)done * 1e-6);
    if (total) strbuf_printf(&line, " (%.0f %%)", 100.0 * (double)done / (double)total);
    strbuf_printf(&line, "  %" PRIu64 " documents  %.1f MB/s", f->n_docs,
                  (double)done * 1e-6 / clock_since_s(f->start_ns));
    progress_show(stderr, line.data);
    strbuf_free(&line);
    f->line_open = true;
}

/* The next document of any input; doc.len 0 at the end. */
static status next_document(doc_feed *f, err *e) {
    bool more = false;
    f->done = 0;
    while (f->at < f->n_inputs && !more) {
        TRY(reader_next(f->reader[f->at], &f->doc, &more, e));
        if (more) break;
        clear_line(f);
        reader_warn_of_broken_text(reader_get_report(f->reader[f->at]));
        reader_warn_of_bad_records(reader_get_report(f->reader[f->at++]));
    }
    if (!more) f->doc = (document){0};
    f->n_docs += more;
    return ST_OK;
}

/* How much of a long text makes a part: to the last line end, else to the last whole character. */
static size_t part_length(const char *text, size_t left, size_t room) {
    if (left <= room) return left;
    const char *line = memrchr(text + room - NEAR_BYTES, '\n', NEAR_BYTES);
    if (line) return (size_t)(line + 1 - text);
    return utf8_cut(text, room);
}

static void put_part(doc_feed *f, size_t n) {
    feed_doc d = {.text = arena_memdup(f->mem, f->doc.text + f->done, n),
                  .len = n,
                  .input = f->at,
                  .label = f->doc.label ? arena_strdup(f->mem, f->doc.label) : NULL};
    VEC_PUSH(f->batch, f->n, f->cap, d);
    f->done += n;
    if (f->done > BATCH_BYTES) reader_forget(f->reader[f->at], f->done);
}

status doc_feed_next(doc_feed *f, const feed_doc **docs, int *n, err *e) {
    size_t bytes = 0;
    arena_reset(f->mem);
    f->n = 0;
    while (bytes < BATCH_BYTES && f->n < BATCH_DOCS) {
        if (f->done == f->doc.len) TRY(next_document(f, e));
        if (f->doc.len == 0) break;
        size_t left = f->doc.len - f->done;
        size_t part = part_length(f->doc.text + f->done, left, BATCH_BYTES);
        put_part(f, part);
        bytes += part;
    }
    show_progress(f);
    *docs = f->batch;
    *n = f->n;
    return ST_OK;
}
