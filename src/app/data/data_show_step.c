/* What a training step reads: `data show --run RUN --step N`.
 *
 * One pass over the samples of a step: each is described, and with --render filled as for training.
 * All forms of output are made from the same walk. Rows of conversations, pages and single tokens
 * are drawn by the inspector (inspect.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/data/data_view.h"
#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "base/json.h"
#include "base/text.h"
#include "data/order/loader.h"
#include "tok/tok.h"
#include "train/course/step_data.h"

typedef struct step_view {
    step_data *d;
    arena *a; /* of one sample */
    const char *run;
    int64_t step;
    const data_look *look;
    int64_t left;           /* documents that may still be shown */
    int32_t *ids, *targets; /* [T], as loader_fill gives them */
    loader_rows rows;       /* the same with the sources, where the run has an encoder */
    json_t *documents, *samples;
    inspection x;
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
    strbuf_puts(w->out, marks[w->v->look->style.color][masked]);
    w->masked = masked;
}

static void append_clean(row_writer *w, const char *text, size_t len) {
    for (const char *end = text + len, *line_end; text < end; text = line_end) {
        line_end = memchr(text, '\n', (size_t)(end - text));
        if (line_end == text) {
            strbuf_printf(w->out, "\n%s", w->margin);
            line_end++;
            continue;
        }
        if (!line_end) line_end = end;
        strbuf_append_visible(w->out, text, (size_t)(line_end - text));
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
    strbuf_printf(w->out, "--- %s", data_title(w->v->a, &span->place, span->shard));
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
    if (n < T)
        strbuf_printf(w->out, "\n%s--- %d position%s of padding ---", w->margin, T - n,
                      text_s(T - n));
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

/* ---- sources and targets ---- */

static status put_part(const step_view *v, const char *name, const int32_t *ids, int64_t n,
                       strbuf *out, err *e) {
    row_writer w = {.v = v, .margin = "              ", .out = out};
    TRY(tok_decode(v->d->tok, ids, n, false, &w.piece, e));
    strbuf_printf(out, "      %-8s", name);
    append_clean(&w, strbuf_cstr(&w.piece), w.piece.len);
    strbuf_putc(out, '\n');
    strbuf_free(&w.piece);
    return ST_OK;
}

/* Each pair of a row: what the encoder reads, and what the decoder is to write. */
static status append_pairs(const step_view *v, strbuf *out, err *e) {
    const loader_rows *r = &v->rows;
    int T = v->d->T, end;
    for (int t = 0; t < T && r->targets[t] >= 0; t = end) {
        for (end = t; end < T && r->targets[end] >= 0 && r->start[end] == t;) end++;
        int first = r->seen_start[t];
        TRY(put_part(v, "source", r->source + first, r->seen_end[t] - first, out, e));
        TRY(put_part(v, "target", r->targets + t, end - t, out, e));
    }
    return ST_OK;
}

/* ---- the inspector's row ---- */

static const shards *set_of(const step_view *v, const sample_view *s) {
    return loader_source_shards(v->d->loader, s->place.source);
}

/* Roles of a document's part, and of the token behind it where the row has that as a target. */
static status read_marks(const step_view *v, const sample_view *s, const loader_span *span, int n,
                         uint8_t *marks, err *e) {
    int64_t left = n - span->row_first, part = (int64_t)(span->place.end_tok - span->first_tok);
    if (span->row_first + (int64_t)(span->end_tok - span->first_tok) < v->d->T)
        part = (int64_t)(span->end_tok - span->first_tok);
    return shards_copy_marks(set_of(v, s), span->first_tok, part < left ? part : left,
                             marks + span->row_first, e);
}

static void put_spans(const step_view *v, const sample_view *s, inspect_row *r) {
    arena *a = v->x.a;
    r->spans = ARENA_ARRAY(a, inspect_span, s->n_spans);
    r->n_spans = s->n_spans;
    for (int i = 0; i < s->n_spans; i++) {
        const loader_span *p = &s->spans[i];
        int end = p->row_first + (int)(p->end_tok - p->first_tok);
        r->spans[i] = (inspect_span){p->row_first, end < v->d->T ? end : v->d->T,
                                     data_title(a, &p->place, p->shard)};
    }
}

static status make_row(const step_view *v, const sample_view *s, inspect_row *r, err *e) {
    arena *a = v->x.a;
    int T = v->d->T, n = used_positions(s, T);
    bool last = n == T && v->targets[T - 1] >= 0;
    *r = (inspect_row){.title = arena_printf(a, "%s, epoch %" PRIu64, s->set, s->place.epoch),
                       .ids = ARENA_ARRAY(a, int32_t, n + 1),
                       .marks = ARENA_ARRAY(a, uint8_t, n + 1),
                       .n = n + last,
                       .room = T};
    memcpy(r->ids, v->ids, sizeof *r->ids * (size_t)n);
    if (last) r->ids[n] = v->targets[T - 1];
    memset(r->marks, mark_of((mark_role)INSPECT_TEXT, false), (size_t)n + 1);
    for (int i = 0; i < s->n_spans && set_of(v, s)->chat.marks; i++)
        TRY(read_marks(v, s, &s->spans[i], r->n, r->marks, e));
    r->label = data_label(set_of(v, s), (int)(s->place.sequence % 2), r->marks, r->n);
    for (int t = 0; t < r->n; t++) {
        bool trained = t > 0 && v->targets[t - 1] >= 0;
        r->marks[t] = (uint8_t)((r->marks[t] & ~MARK_TRAINED) | (trained ? MARK_TRAINED : 0));
    }
    put_spans(v, s, r);
    return ST_OK;
}

/* Rows of a pair stand beside each other. */
static status keep_row(step_view *v, const sample_view *s, err *e) {
    inspection *x = &v->x;
    const shards *set = set_of(v, s);
    inspect_row row, *r = &row;
    TRY(make_row(v, s, r, e));
    bool second = set->chat.sequences == 2 && s->place.sequence % 2 && x->n &&
                  x->sample[x->n - 1].n_rows == 1;
    for (int i = 0; i < r->n_spans; i++) {
        const inspect_span *p = &r->spans[i];
        int end = i + 1 < r->n_spans ? p->end : r->n; /* with the last target */
        inspect_count(inspect_source_of(x, s->set), r->marks + p->first, end - p->first);
    }
    if (second) {
        x->sample[x->n - 1].row[x->sample[x->n - 1].n_rows++] = *r;
        return ST_OK;
    }
    x->sample = arena_grow(x->a, x->sample, x->n, &x->cap, sizeof *x->sample);
    x->sample[x->n++] = (inspect_sample){.number = (uint64_t)s->row, .n_rows = 1, .row = {*r}};
    return ST_OK;
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
    int S = loader_source_len(v->d->loader);
    int64_t n = S ? 0 : s->place.n_inputs;
    while (S && n < v->d->T && v->targets[n] >= 0) n++;
    status st = tok_decode(v->d->tok, S ? v->targets : v->ids, n, false, &text, e);
    if (st == ST_OK)
        *out = json_pack(
            "{s:I,s:i,s:o,s:I,s:I,s:o,s:o,s:o}", "sample", (json_int_t)s->sample, "row", s->row,
            "set", json_cstr(s->set), "epoch", (json_int_t)s->place.epoch, "sequence",
            (json_int_t)s->place.sequence, "ids", cli_id_list(v->ids, v->d->T), "targets",
            cli_id_list(v->targets, v->d->T), "text", json_text(strbuf_cstr(&text), text.len));
    if (st == ST_OK && S) json_object_set_new(*out, "source_ids", cli_id_list(v->rows.source, S));
    strbuf_free(&text);
    return st;
}

/* Who wrote the tokens, and the text of each. */
static status add_tokens(step_view *v, const sample_view *s, json_t *o, err *e) {
    inspect_row r;
    TRY(make_row(v, s, &r, e));
    json_t *tokens = inspect_row_json(&v->x, &r);
    json_object_del(tokens, "ids"); /* those of the row may be padded */
    json_object_update_new(o, tokens);
    return ST_OK;
}

static json_t *step_json(const step_view *v) {
    const step_data *d = v->d;
    json_t *o = json_pack("{s:o,s:I,s:I,s:i,s:o,s:i,s:I,s:I,s:O}", "run", json_cstr(v->run), "step",
                          (json_int_t)v->step, "steps", (json_int_t)d->total_steps, "stage",
                          d->stage, "stage_name", json_cstr(d->stage_name), "seq_len", d->T,
                          "first_sample", (json_int_t)d->first_sample, "sequences",
                          (json_int_t)d->n_samples, "documents", v->documents);
    if (v->look->render) json_object_set(o, "samples", v->samples);
    return o;
}

/* ---- text ---- */

static void print_head(const step_view *v) {
    const step_data *d = v->d;
    printf("step %" PRId64 " of %" PRId64, v->step, d->total_steps);
    if (d->stage_name[0]) printf(", stage %s", d->stage_name);
    printf(": %" PRId64 " sequence%s of %d tokens, samples %" PRIu64 " to %" PRIu64 "\n",
           d->n_samples, text_s(d->n_samples), d->T, d->first_sample,
           d->first_sample + (uint64_t)d->n_samples - 1);
}

static void print_document(const step_view *v, const loader_span *span) {
    const shard_place *p = &span->place;
    int64_t n = (int64_t)(span->end_tok - span->first_tok);
    printf("  %5d..%-5" PRId64, span->row_first, span->row_first + n);
    if (p->source[0]) printf("  %s", inspect_visible(v->a, p->source));
    if (p->line) printf(":%" PRIu32, p->line);
    printf("  %s", span->shard);
    if (p->document != UINT64_MAX) printf(" #%" PRIu64, p->document);
    printf("  tokens %" PRIu64 "..%" PRIu64, span->first_tok, span->end_tok);
    if (span->first_tok > p->first_tok || span->end_tok < p->end_tok)
        printf(" of %" PRIu64 "..%" PRIu64, p->first_tok, p->end_tok);
    if (p->id) printf("  id %s", inspect_visible(v->a, p->id));
    if (!isnan(p->score)) printf("  score %g", (double)p->score);
    putchar('\n');
}

/* Whether the inspector draws the row. */
static bool is_inspected(const step_view *v, const sample_view *s) {
    return !v->rows.source && (set_of(v, s)->chat.marks || v->look->style.tokens);
}

static status print_inspected(step_view *v, const sample_view *s, err *e) {
    strbuf text = {0};
    inspect_row r;
    TRY(make_row(v, s, &r, e));
    inspect_text_row(&text, &v->x, &r, &v->look->style);
    if (r.label) printf("  %s\n", inspect_label_name(r.label));
    fwrite(text.data, 1, text.len, stdout);
    strbuf_free(&text);
    return ST_OK;
}

static status print_row(step_view *v, const sample_view *s, int n, err *e) {
    printf("\nrow %d  sample %" PRIu64 "  %s  epoch %" PRIu64 "\n", s->row, s->sample, s->set,
           s->place.epoch);
    for (int i = 0; i < n; i++) print_document(v, &s->spans[i]);
    if (!v->look->render) return ST_OK;
    if (is_inspected(v, s)) return print_inspected(v, s, e);
    strbuf text = {0};
    status st = v->rows.source ? append_pairs(v, &text, e) : append_text(v, s, "    ", &text, e);
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
    if (!v->look->render) return ST_OK;
    loader_fill_rows(l, s->sample, 1, &v->rows);
    return loader_error(l, e);
}

static status show_sample(step_view *v, int row, err *e) {
    sample_view s;
    TRY(read_sample(v, row, &s, e));
    int n = s.n_spans < v->left ? s.n_spans : (int)v->left;
    v->left -= n;
    if (v->look->html) TRY(keep_row(v, &s, e));
    if (v->look->html && !v->look->json) return ST_OK;
    if (!v->look->json) return print_row(v, &s, n, e);
    for (int i = 0; i < n; i++) json_array_append_new(v->documents, document_json(&s, &s.spans[i]));
    if (!v->look->render) return ST_OK;
    json_t *o;
    TRY(sample_json(v, &s, &o, e));
    json_array_append_new(v->samples, o);
    return is_inspected(v, &s) ? add_tokens(v, &s, o, e) : ST_OK;
}

static void print_legend(const step_view *v) {
    strbuf out = {0};
    if (v->x.marks || v->look->style.tokens) inspect_text_legend(&out, &v->x, &v->look->style);
    inspect_text_stops(&out, &v->x, &v->look->style);
    fputs(strbuf_cstr(&out), stdout);
    strbuf_free(&out);
}

/* What is known of the sets that the step may read. */
static status read_sets(step_view *v, err *e) {
    for (int i = 0; i < loader_n_sources(v->d->loader); i++) {
        const shards *s = loader_source_shards(v->d->loader, i);
        v->x.marks |= s->chat.marks;
        if (s->chat.marks) TRY(inspect_read_stops(&v->x, s->dir, e));
    }
    return ST_OK;
}

/* The head line of the page, as print_head. */
static const char *about(const step_view *v) {
    const step_data *d = v->d;
    return arena_printf(v->x.a,
                        "step %" PRId64 " of %" PRId64 ": %" PRId64
                        " sequence%s of %d tokens, samples %" PRIu64 " to %" PRIu64,
                        v->step, d->total_steps, d->n_samples, text_s(d->n_samples), d->T,
                        d->first_sample, d->first_sample + (uint64_t)d->n_samples - 1);
}

static status write_page(step_view *v, int64_t left_out, err *e) {
    v->x.title = v->run;
    v->x.about = about(v);
    v->x.step = true;
    v->x.left_out = (uint64_t)left_out;
    return data_write_page(&v->x, v->look, e);
}

static status make_rows(step_view *v, err *e) {
    int S = loader_source_len(v->d->loader);
    size_t T = (size_t)v->d->T;
    v->ids = xcalloc(T, sizeof *v->ids);
    v->targets = xcalloc(T, sizeof *v->targets);
    v->rows = (loader_rows){.ids = v->ids, .targets = v->targets};
    if (!S) return ST_OK;
    if (v->look->html)
        return err_at(e, ST_USAGE, "--html", "rows with sources are shown as text or with --json");
    int32_t *at = xcalloc(4 * (size_t)S + 3 * T, sizeof *at);
    v->rows.source = at, v->rows.source_pos = at + S;
    v->rows.source_start = at + 2 * S, v->rows.source_end = at + 3 * S;
    v->rows.start = at + 4 * S, v->rows.seen_start = v->rows.start + T;
    v->rows.seen_end = v->rows.seen_start + T;
    return ST_OK;
}

static status show_samples(step_view *v, err *e) {
    int64_t row = 0;
    bool text = !v->look->json && !v->look->html;
    TRY(read_sets(v, e));
    if (text) print_head(v);
    if (text && v->look->render) print_legend(v);
    for (; row < v->d->n_samples && v->left > 0; row++) {
        TRY(show_sample(v, (int)row, e));
        arena_reset(v->a);
    }
    if (v->look->html) TRY(write_page(v, v->d->n_samples - row, e));
    if (v->look->json) cli_print_json(step_json(v));
    if (text && row < v->d->n_samples)
        printf("\n... and %" PRId64 " more row%s (--limit N shows N documents)\n",
               v->d->n_samples - row, text_s(v->d->n_samples - row));
    return ST_OK;
}

status data_show_step(const char *run, int64_t step, const data_look *look, err *e) {
    step_view v = {.run = run, .step = step, .look = look, .left = look->limit};
    TRY(step_data_open(&v.d, run, step, e));
    v.a = arena_new("data show");
    v.x = (inspection){.a = arena_new("inspector"), .t = v.d->tok, .built = true};
    v.documents = json_array();
    v.samples = json_array();
    status st = make_rows(&v, e);
    if (st == ST_OK) st = show_samples(&v, e);
    json_decref(v.documents);
    json_decref(v.samples);
    free(v.ids);
    free(v.targets);
    free(v.rows.source); /* of all arrays of sources the first */
    arena_free(v.x.a);
    arena_free(v.a);
    step_data_close(v.d);
    return st;
}
