/* An inspection as text. With colours a stretch has that of who wrote it, what is learned is
 * underlined, and special tokens are reversed. Without, what is not learned stands in [[ ]], and
 * special tokens in « ». Each stretch begins a line that says who wrote it. */
#include <inttypes.h>
#include <string.h>

#include "app/data/inspect.h"
#include "base/text.h"
#include "data/chat/audit.h"
#include "tok/tok_format.h"

enum { LABEL_WIDTH = 11 };
static const char MARGIN[] = "             "; /* two and LABEL_WIDTH */

static const char *const ROLE_COLOR[INSPECT_ROLES] = {
    [ROLE_TEMPLATE] = "2", [ROLE_SYSTEM] = "35",    [ROLE_USER] = "34",   [ROLE_ASSISTANT] = "32",
    [ROLE_TOOL] = "33",    [ROLE_REASONING] = "36", [INSPECT_TEXT] = "39"};

/* ---- bytes ---- */

typedef struct pen {
    strbuf *out;
    const inspect_style *st;
    bool in_bytes;
    bool at_line; /* behind a line feed: what follows in this line of the table begins a new one */
} pen;

static void begin_text(pen *p) {
    if (p->at_line) strbuf_printf(p->out, "\n%s", MARGIN);
    p->at_line = false;
}

static void end_bytes(pen *p) {
    if (p->in_bytes) strbuf_puts(p->out, "›");
    p->in_bytes = false;
}

static void put_glyph(pen *p, const char *s, glyph g) {
    if (g.kind != GLYPH_BYTE) end_bytes(p);
    begin_text(p);
    switch (g.kind) {
        case GLYPH_TEXT: strbuf_append(p->out, s, (size_t)g.len); break;
        case GLYPH_TAB: strbuf_puts(p->out, "⇥"); break;
        case GLYPH_LINE:
            strbuf_puts(p->out, "⏎");
            p->at_line = true;
            break;
        case GLYPH_HIDDEN: strbuf_printf(p->out, "‹U+%04X›", (unsigned)g.cp); break;
        case GLYPH_BYTE:
            strbuf_printf(p->out, "%s%02x", p->in_bytes ? " " : "‹", (unsigned)g.cp);
            p->in_bytes = true;
            break;
    }
}

static void put_bytes(pen *p, const char *s, size_t n) {
    for (size_t at = 0; at < n;) {
        glyph g = glyph_at(s + at, n - at);
        put_glyph(p, s + at, g);
        at += (size_t)g.len;
    }
    end_bytes(p);
}

/* ---- stretches ---- */

static void put_tokens(pen *p, const inspection *x, const inspect_row *r, int first, int end) {
    strbuf bytes = {0};
    for (int at = first; at < end;) {
        int next = p->st->tokens ? at + 1 : end;
        strbuf_clear(&bytes);
        inspect_bytes(x, r, at, next, &bytes);
        if (at > first) {
            begin_text(p);
            strbuf_puts(p->out, "│");
        }
        put_bytes(p, strbuf_cstr(&bytes), bytes.len);
        at = next;
    }
    strbuf_free(&bytes);
}

static bool is_trained(const inspect_row *r, int at) {
    return r->marks[at] & MARK_TRAINED;
}

static void put_colored(pen *p, const inspection *x, const inspect_row *r, int first, int end) {
    int role = inspect_role(r->marks[first]);
    begin_text(p);
    strbuf_printf(p->out, "\033[0;%s%s%sm", ROLE_COLOR[role], is_trained(r, first) ? ";4" : "",
                  tok_special(x->t, r->ids[first]) ? ";7" : "");
    put_tokens(p, x, r, first, end);
    strbuf_puts(p->out, "\033[0m");
}

/* Brackets stand around all that is not learned on a line. */
static void put_marked(pen *p, const inspection *x, const inspect_row *r, int first, int end) {
    bool special = tok_special(x->t, r->ids[first]) != NULL, masked = !is_trained(r, first);
    bool opens = masked && (inspect_begins_line(r, first) || is_trained(r, first - 1));
    bool closes = masked && (end == r->n || inspect_begins_line(r, end) || is_trained(r, end));
    begin_text(p);
    strbuf_printf(p->out, "%s%s", opens ? "[[" : "", special ? "«" : "");
    put_tokens(p, x, r, first, end);
    strbuf_printf(p->out, "%s%s", special ? "»" : "", closes ? "]]" : "");
}

void inspect_text_row(strbuf *out, const inspection *x, const inspect_row *r,
                      const inspect_style *st) {
    pen p = {.out = out, .st = st};
    for (int at = 0, end; at < r->n; at = end) {
        end = inspect_stretch(x, r, at);
        if (inspect_begins_line(r, at)) {
            const inspect_span *span = inspect_span_at(r, at);
            if (at) strbuf_putc(out, '\n');
            p.at_line = false;
            if (span) strbuf_printf(out, "  --- %s ---\n", span->title);
            int role = inspect_role(r->marks[at]);
            strbuf_printf(out, "  %-*s", LABEL_WIDTH, inspect_role_name(role));
        }
        (st->color ? put_colored : put_marked)(&p, x, r, at, end);
    }
    if (r->n) strbuf_putc(out, '\n');
    if (r->more)
        strbuf_printf(out, "  ... and %" PRIu64 " more token%s\n", r->more, text_s(r->more));
    if (r->n < r->room)
        strbuf_printf(out, "  --- %d position%s of padding ---\n", r->room - r->n,
                      text_s(r->room - r->n));
}

/* ---- samples ---- */

static void put_counts(strbuf *out, const inspection *x, const inspect_row *r) {
    inspect_counts c = {0};
    inspect_count(&c, r->marks, r->n);
    strbuf_printf(out, "%" PRIu64 " token%s", c.tokens + r->more, text_s(c.tokens + r->more));
    if (x->marks || x->step)
        strbuf_printf(out, ", %" PRIu64 " trained (%.1f %%)", c.trained,
                      inspect_percent(c.trained, c.tokens));
    const char *between = ": ";
    for (int k = 0; k < INSPECT_ROLES && x->marks; k++) {
        if (c.role_tokens[k] == 0) continue;
        strbuf_printf(out, "%s%s %" PRIu64, between, inspect_role_name(k), c.role_tokens[k]);
        between = ", ";
    }
    strbuf_putc(out, '\n');
}

static const char *in_red(const inspect_style *st, bool on) {
    return !st->color ? "" : on ? "\033[1;31m" : "\033[0m";
}

void inspect_text_sample(strbuf *out, const inspection *x, const inspect_sample *s,
                         const inspect_style *st) {
    if (s->stop) strbuf_printf(out, "\n%s%s%s", in_red(st, true), s->stop->name, in_red(st, false));
    for (int i = 0; i < s->n_rows; i++) {
        const inspect_row *r = &s->row[i];
        strbuf_printf(out, "\n#%" PRIu64 "  %s  ", s->number, r->title);
        if (r->label) strbuf_printf(out, "%s  ", inspect_label_name(r->label));
        put_counts(out, x, r);
        inspect_text_row(out, x, r, st);
    }
}

/* ---- around them ---- */

void inspect_text_legend(strbuf *out, const inspection *x, const inspect_style *st) {
    if (!st->color) {
        strbuf_puts(out, "[[not learned]]  «special token»  ⏎ line feed  ‹e2 80› bytes that are no "
                         "character\n");
        return;
    }
    strbuf_puts(out, "\033[4mlearned\033[0m  not learned  \033[7mspecial token\033[0m ");
    for (int k = 0; k < MARK_ROLES && x->marks; k++)
        strbuf_printf(out, " \033[%sm%s\033[0m", ROLE_COLOR[k], inspect_role_name(k));
    strbuf_putc(out, '\n');
}

void inspect_text_head(strbuf *out, const inspection *x, const inspect_style *st) {
    strbuf_printf(out, "%s: %s\n", x->title, x->about);
    inspect_text_legend(out, x, st);
    inspect_text_stops(out, x, st);
}

void inspect_text_stops(strbuf *out, const inspection *x, const inspect_style *st) {
    for (int i = 0; i < x->n_stops; i++) {
        strbuf_printf(out, "%s%s ", in_red(st, true), x->built ? "accepted:" : "a build stops at");
        inspect_put_stop(out, &x->stop[i]);
        strbuf_printf(out, "%s\n", in_red(st, false));
    }
}

static void put_source(strbuf *out, const inspect_source *s, uint64_t all) {
    strbuf_printf(out,
                  "%s: %" PRIu64 " document%s, %" PRIu64
                  " token%s (%.1f %% of all), %.1f %% of them "
                  "trained\n",
                  *s->name ? s->name : "(source not known)", s->c.documents, text_s(s->c.documents),
                  s->c.tokens, text_s(s->c.tokens), inspect_percent(s->c.tokens, all),
                  inspect_percent(s->c.trained, s->c.tokens));
    for (int k = 0; k < INSPECT_ROLES; k++)
        if (s->c.role_tokens[k])
            strbuf_printf(out, "  %-*s%5.1f %% of tokens, in %.1f %% of documents\n", LABEL_WIDTH,
                          inspect_role_name(k), inspect_percent(s->c.role_tokens[k], s->c.tokens),
                          inspect_percent(s->c.role_documents[k], s->c.documents));
}

void inspect_text_audit(strbuf *out, const inspection *x) {
    uint64_t all = 0;
    if (!x->marks) return;
    for (int i = 0; i < x->n_sources; i++) all += x->source[i].c.tokens;
    for (int i = 0; i < x->n_sources; i++) put_source(out, &x->source[i], all);
}
