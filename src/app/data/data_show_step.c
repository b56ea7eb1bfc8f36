/* What a training step reads: `data show --run RUN --step N`.
 *
 * One pass over the samples of a step: each is described, and with --render filled as for training.
 * Both forms of output are made from the same walk. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/data/data_view.h"
#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "base/json.h"
#include "data/order/loader.h"
#include "tok/tok.h"
#include "train/course/step_data.h"

typedef struct step_view {
    step_data *d;
    arena *a; /* of one sample */
    const char *run;
    int64_t step;
    int64_t left; /* documents that may still be shown */
    bool render, json, color;
    int32_t *ids, *targets; /* [T], as loader_fill gives them */
    json_t *documents, *samples;
} step_view;

typedef struct sample_view {
    uint64_t sample;
    int row;
    loader_place place;
    const char *set;
    loader_span *spans;
    int n_spans;
} sample_view;

/* ---- the text of a row ---- */

/* One training row, with the loss mask and the borders of documents to be seen.
 *
 * A token is learned when the position before it has it as its target; the first token of a row
 * never is. On a terminal what is not learned is dim, elsewhere it stands in "[[" and "]]"; a
 * document that begins within the row is preceded by a line of its own. Tokens are decoded as a
 * stream, one document after the other, so that characters made of several tokens come out whole; a
 * character belongs to the token that completes it. */
typedef struct row_writer {
    const step_view *v;
    const sample_view *s;
    const char *margin;
    strbuf *out;
    tok_stream stream;
    strbuf piece; /* text of the present token */
    bool masked;  /* the output is within what is not learned */
} row_writer;

static void set_masked(row_writer *w, bool masked) {
    if (masked == w->masked) return;
    static const char *const marks[2][2] = {{"]]", "[["}, {"\033[0m", "\033[2m"}};
    strbuf_puts(w->out, marks[w->v->color][masked]);
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
static bool token_at(const step_view *v, int t, int32_t *id, bool *masked) {
    int T = v->d->T;
    *masked = t == 0 || v->targets[t - 1] < 0;
    *id = t < T ? v->ids[t] : v->targets[T - 1];
    return t < T || !*masked;
}

/* Positions behind the last document are padding. */
static int used_positions(const sample_view *s, int T) {
    if (s->n_spans == 0) return 0;
    const loader_span *last = &s->spans[s->n_spans - 1];
    int64_t end = last->row_first + (int64_t)(last->end_tok - last->first_tok);
    return end < T ? (int)end : T;
}

static status append_row(row_writer *w, err *e) {
    const sample_view *s = w->s;
    int T = w->v->d->T, span = 0, n = used_positions(s, T);
    bool masked = true;
    for (int t = 0; t < n + (n == T); t++) {
        int32_t id;
        if (span < s->n_spans && s->spans[span].row_first == t) {
            TRY(end_document(w, masked, e));
            begin_document(w, &s->spans[span++], t == 0);
        }
        if (!token_at(w->v, t, &id, &masked)) break;
        TRY(tok_stream_push(&w->stream, id, &w->piece, e));
        flush_piece(w, masked);
    }
    TRY(end_document(w, masked, e));
    set_masked(w, false);
    if (n < T) strbuf_printf(w->out, "\n%s--- %d positions of padding ---", w->margin, T - n);
    return ST_OK;
}

/* Appends it, each line after `margin`; control characters other than line feeds become "." so that
 * a corpus cannot command a terminal. */
static status append_text(const step_view *v, const sample_view *s, const char *margin, strbuf *out,
                          err *e) {
    row_writer w = {.v = v, .s = s, .margin = margin, .out = out, .stream = {.t = v->d->tok}};
    strbuf_puts(out, margin);
    status st = append_row(&w, e);
    strbuf_putc(out, '\n');
    tok_stream_free(&w.stream);
    strbuf_free(&w.piece);
    return st;
}

/* ---- JSON ---- */

static json_t *document_json(const sample_view *s, const loader_span *span) {
    const shard_place *p = &span->place;
    int64_t n = (int64_t)(span->end_tok - span->first_tok);
    bool numbered = p->document != UINT64_MAX;
    json_t *o = json_pack("{s:I,s:i,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:I}", "sample",
                          (json_int_t)s->sample, "row", s->row, "set", json_cstr(span->set),
                          "shard", json_cstr(span->shard), "document",
                          numbered ? json_integer((json_int_t)p->document) : json_null(), "id",
                          json_cstr(p->id), "source", json_cstr(p->source), "line",
                          (json_int_t)p->line, "text_offset", (json_int_t)p->text_offset,
                          "first_tok", (json_int_t)span->first_tok, "end_tok",
                          (json_int_t)span->end_tok, "document_first_tok", (json_int_t)p->first_tok,
                          "document_end_tok", (json_int_t)p->end_tok, "row_first", span->row_first,
                          "row_end", (json_int_t)(span->row_first + n));
    json_object_set_new(o, "score", json_f32(p->score)); /* null: none */
    return o;
}

static status sample_json(const step_view *v, const sample_view *s, json_t **out, err *e) {
    strbuf text = {0};
    status st = tok_decode(v->d->tok, v->ids, s->place.n_inputs, false, &text, e);
    if (st == ST_OK)
        *out = json_pack(
            "{s:I,s:i,s:o,s:I,s:I,s:o,s:o,s:o}", "sample", (json_int_t)s->sample, "row", s->row,
            "set", json_cstr(s->set), "epoch", (json_int_t)s->place.epoch, "sequence",
            (json_int_t)s->place.sequence, "ids", cli_id_list(v->ids, v->d->T), "targets",
            cli_id_list(v->targets, v->d->T), "text", json_text(strbuf_cstr(&text), text.len));
    strbuf_free(&text);
    return st;
}

static json_t *step_json(const step_view *v) {
    const step_data *d = v->d;
    json_t *o = json_pack("{s:o,s:I,s:I,s:i,s:o,s:i,s:I,s:I,s:O}", "run", json_cstr(v->run), "step",
                          (json_int_t)v->step, "steps", (json_int_t)d->total_steps, "stage",
                          d->stage, "stage_name", json_cstr(d->stage_name), "seq_len", d->T,
                          "first_sample", (json_int_t)d->first_sample, "sequences",
                          (json_int_t)d->n_samples, "documents", v->documents);
    if (v->render) json_object_set(o, "samples", v->samples);
    return o;
}

/* ---- text ---- */

static void print_head(const step_view *v) {
    const step_data *d = v->d;
    printf("step %" PRId64 " of %" PRId64, v->step, d->total_steps);
    if (d->stage_name[0]) printf(", stage %s", d->stage_name);
    printf(": %" PRId64 " sequences of %d tokens, samples %" PRIu64 " to %" PRIu64 "\n",
           d->n_samples, d->T, d->first_sample, d->first_sample + (uint64_t)d->n_samples - 1);
}

static void print_document(const loader_span *span) {
    const shard_place *p = &span->place;
    int64_t n = (int64_t)(span->end_tok - span->first_tok);
    printf("  %5d..%-5" PRId64, span->row_first, span->row_first + n);
    if (p->source[0]) printf("  %s", p->source);
    if (p->line) printf(":%" PRIu32, p->line);
    printf("  %s", span->shard);
    if (p->document != UINT64_MAX) printf(" #%" PRIu64, p->document);
    printf("  tokens %" PRIu64 "..%" PRIu64, span->first_tok, span->end_tok);
    if (span->first_tok > p->first_tok || span->end_tok < p->end_tok)
        printf(" of %" PRIu64 "..%" PRIu64, p->first_tok, p->end_tok);
    if (p->id) printf("  id %s", p->id);
    if (!isnan(p->score)) printf("  score %g", (double)p->score);
    putchar('\n');
}

static status print_row(const step_view *v, const sample_view *s, int n, err *e) {
    printf("\nrow %d  sample %" PRIu64 "  %s  epoch %" PRIu64 "\n", s->row, s->sample, s->set,
           s->place.epoch);
    for (int i = 0; i < n; i++) print_document(&s->spans[i]);
    if (!v->render) return ST_OK;
    strbuf text = {0};
    status st = append_text(v, s, "    ", &text, e);
    if (st == ST_OK) fputs(strbuf_cstr(&text), stdout);
    strbuf_free(&text);
    return st;
}

/* ---- the walk ---- */

static status read_sample(const step_view *v, int row, sample_view *s, err *e) {
    const step_data *d = v->d;
    loader *l = d->loader;
    *s = (sample_view){.sample = d->first_sample + (uint64_t)row, .row = row};
    s->place = loader_place_of(l, s->sample);
    s->set = loader_source_shards(l, s->place.source)->dir;
    TRY(loader_describe(l, s->sample, v->a, &s->spans, &s->n_spans, e));
    if (!v->render) return ST_OK;
    loader_fill(l, s->sample, 1, v->ids, v->targets, NULL, NULL, NULL);
    return loader_error(l, e);
}

static status show_sample(step_view *v, int row, err *e) {
    sample_view s;
    TRY(read_sample(v, row, &s, e));
    int n = s.n_spans < v->left ? s.n_spans : (int)v->left;
    v->left -= n;
    if (!v->json) return print_row(v, &s, n, e);
    for (int i = 0; i < n; i++) json_array_append_new(v->documents, document_json(&s, &s.spans[i]));
    if (!v->render) return ST_OK;
    json_t *o;
    TRY(sample_json(v, &s, &o, e));
    json_array_append_new(v->samples, o);
    return ST_OK;
}

static status show_samples(step_view *v, err *e) {
    int64_t row = 0;
    if (!v->json) print_head(v);
    for (; row < v->d->n_samples && v->left > 0; row++) {
        TRY(show_sample(v, (int)row, e));
        arena_reset(v->a);
    }
    if (v->json)
        cli_print_json(step_json(v));
    else if (row < v->d->n_samples)
        printf("\n... and %" PRId64 " more rows (--limit N shows N documents)\n",
               v->d->n_samples - row);
    return ST_OK;
}

status data_show_step(const char *run, int64_t step, int64_t limit, bool render, bool json,
                      err *e) {
    step_view v = {.run = run, .step = step, .left = limit, .render = render, .json = json};
    TRY(step_data_open(&v.d, run, step, e));
    v.a = arena_new("data show");
    v.color = isatty(STDOUT_FILENO);
    v.ids = xcalloc((size_t)v.d->T, sizeof *v.ids);
    v.targets = xcalloc((size_t)v.d->T, sizeof *v.targets);
    v.documents = json_array();
    v.samples = json_array();
    status st = show_samples(&v, e);
    json_decref(v.documents);
    json_decref(v.samples);
    free(v.ids);
    free(v.targets);
    arena_free(v.a);
    step_data_close(v.d);
    return st;
}
