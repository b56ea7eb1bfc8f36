/* Tokens are decoded as a stream, one document after the other, so that characters made of several
 * tokens come out whole; a character belongs to the token that completes it. */
#include "app/data/row_text.h"

#include <string.h>

typedef struct row_writer {
    const row_text *r;
    const char *margin;
    strbuf *out;
    tok_stream stream;
    strbuf piece; /* text of the present token */
    bool masked;  /* the output is within what is not learned */
} row_writer;

static void set_masked(row_writer *w, bool masked) {
    if (masked == w->masked) return;
    static const char *const marks[2][2] = {{"]]", "[["}, {"\033[0m", "\033[2m"}};
    strbuf_puts(w->out, marks[w->r->color][masked]);
    w->masked = masked;
}

static void append_clean(row_writer *w, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n')
            strbuf_printf(w->out, "\n%s", w->margin);
        else
            strbuf_putc(w->out, (c < ' ' && c != '\t') || c == 0x7f ? '.' : text[i]);
    }
}

static void flush_piece(row_writer *w, bool masked) {
    if (w->piece.len == 0) return;
    set_masked(w, masked);
    append_clean(w, w->piece.data, w->piece.len);
    strbuf_clear(&w->piece);
}

static void begin_document(row_writer *w, const loader_span *span, bool first) {
    set_masked(w, false);
    if (!first) strbuf_printf(w->out, "\n%s", w->margin);
    strbuf_printf(w->out, "--- %s", span->place.source[0] ? span->place.source : span->shard);
    if (span->place.line) strbuf_printf(w->out, ":%u", span->place.line);
    strbuf_printf(w->out, " ---\n%s", w->margin);
}

static status end_document(row_writer *w, bool masked, err *e) {
    TRY(tok_stream_flush(&w->stream, &w->piece, e));
    flush_piece(w, masked);
    return ST_OK;
}

/* Token t of the row: its input t, and behind the last input the last target. */
static bool token_at(const row_text *r, int t, int32_t *id, bool *masked) {
    *masked = t == 0 || r->targets[t - 1] < 0;
    *id = t < r->T ? r->ids[t] : r->targets[r->T - 1];
    return t < r->T || !*masked;
}

/* Positions behind the last document are padding. */
static int used_positions(const row_text *r) {
    if (r->n_spans == 0) return 0;
    const loader_span *last = &r->spans[r->n_spans - 1];
    int64_t end = last->row_first + (int64_t)(last->end_tok - last->first_tok);
    return end < r->T ? (int)end : r->T;
}

static status append_row(row_writer *w, err *e) {
    const row_text *r = w->r;
    int span = 0, n = used_positions(r);
    bool masked = true;
    for (int t = 0; t < n + (n == r->T); t++) {
        int32_t id;
        if (span < r->n_spans && r->spans[span].row_first == t) {
            TRY(end_document(w, masked, e));
            begin_document(w, &r->spans[span++], t == 0);
        }
        if (!token_at(r, t, &id, &masked)) break;
        TRY(tok_stream_push(&w->stream, id, &w->piece, e));
        flush_piece(w, masked);
    }
    TRY(end_document(w, masked, e));
    set_masked(w, false);
    if (n < r->T) strbuf_printf(w->out, "\n%s--- %d positions of padding ---", w->margin, r->T - n);
    return ST_OK;
}

status row_text_append(const row_text *r, const char *margin, strbuf *out, err *e) {
    row_writer w = {.r = r, .margin = margin, .out = out, .stream = {.t = r->tok}};
    strbuf_puts(out, margin);
    status st = append_row(&w, e);
    strbuf_putc(out, '\n');
    tok_stream_free(&w.stream);
    strbuf_free(&w.piece);
    return st;
}
