/* An inspection as a page. All that it says is said without colour, too: who wrote a stretch stands
 * beside it, what is learned is underlined, special tokens have a frame. The script only moves
 * between samples. */
#include <inttypes.h>
#include <string.h>

#include "app/data/inspect.h"
#include "base/text.h"
#include "data/chat/audit.h"
#include "run/report/svg.h"
#include "tok/tok_format.h"

/* ---- tokens ---- */

static void put_glyphs(strbuf *out, const char *s, size_t n) {
    bool in_bytes = false;
    for (size_t at = 0; at < n;) {
        glyph g = glyph_at(s + at, n - at);
        if (in_bytes && g.kind != GLYPH_BYTE) strbuf_puts(out, "</u>");
        switch (g.kind) {
            case GLYPH_TEXT: svg_put_escaped_bytes(out, s + at, (size_t)g.len); break;
            case GLYPH_TAB: strbuf_puts(out, "<u>⇥</u>\t"); break;
            case GLYPH_LINE: strbuf_puts(out, "<u>⏎</u>\n"); break;
            case GLYPH_HIDDEN: strbuf_printf(out, "<u>U+%04X</u>", (unsigned)g.cp); break;
            case GLYPH_BYTE:
                strbuf_printf(out, "%s%02x", in_bytes ? " " : "<u>", (unsigned)g.cp);
                break;
        }
        in_bytes = g.kind == GLYPH_BYTE;
        at += (size_t)g.len;
    }
    if (in_bytes) strbuf_puts(out, "</u>");
}

/* What the pointer finds: place and id; the bytes of each token where several make a character. */
static void put_hint(strbuf *out, const inspection *x, const inspect_row *r, int first, int end) {
    strbuf_printf(out, "<i%s title=\"%d: id %d", end > first + 1 ? " class=\"p\"" : "", first,
                  r->ids[first]);
    for (int i = first; i < end && end > first + 1; i++) {
        size_t n = 0;
        const char *bytes = tok_bytes(x->t, r->ids[i], &n);
        if (i > first) strbuf_printf(out, ", id %d", r->ids[i]);
        for (size_t k = 0; bytes && k < n; k++)
            strbuf_printf(out, "%s%02x", k ? " " : " = ", (unsigned)(unsigned char)bytes[k]);
    }
    strbuf_puts(out, "\">");
}

static void put_stretch(strbuf *out, const inspection *x, const inspect_row *r, int first,
                        int end) {
    bool trained = r->marks[first] & MARK_TRAINED;
    bool special = tok_special(x->t, r->ids[first]) != NULL;
    strbuf bytes = {0};
    strbuf_printf(out, "<span class=\"%s%s\">", trained ? "on" : "off", special ? " sp" : "");
    for (int at = first, next; at < end; at = next) {
        next = inspect_cell(x, r, at, end);
        strbuf_clear(&bytes);
        inspect_bytes(x, r, at, next, &bytes);
        put_hint(out, x, r, at, next);
        put_glyphs(out, strbuf_cstr(&bytes), bytes.len);
        strbuf_puts(out, "</i>");
    }
    strbuf_puts(out, "</span>");
    strbuf_free(&bytes);
}

/* ---- rows ---- */

static void begin_line(strbuf *out, const inspect_row *r, int at) {
    int role = inspect_role(r->marks[at]);
    const inspect_span *span = inspect_span_at(r, at);
    if (at) strbuf_puts(out, "</p></div>\n");
    if (span) svg_put_between(out, "<h4>", span->title, "</h4>\n");
    strbuf_printf(out, "<div class=\"line r%d\"><b>%s</b><p>", role, inspect_role_name(role));
}

static void put_tokens(strbuf *out, const inspection *x, const inspect_row *r) {
    for (int at = 0, end; at < r->n; at = end) {
        end = inspect_stretch(x, r, at);
        if (inspect_begins_line(r, at)) begin_line(out, r, at);
        put_stretch(out, x, r, at, end);
    }
    if (r->n) strbuf_puts(out, "</p></div>\n");
    if (r->more)
        strbuf_printf(out, "<p class=\"soft\">and %" PRIu64 " more token%s</p>\n", r->more,
                      text_s(r->more));
    if (r->n < r->room)
        strbuf_printf(out, "<p class=\"soft\">%d position%s of padding</p>\n", r->room - r->n,
                      text_s(r->room - r->n));
}

static void put_row(strbuf *out, const inspection *x, const inspect_row *r) {
    inspect_counts c = {0};
    inspect_count(&c, r->marks, r->n);
    strbuf_puts(out, "<div class=\"row\"><h3>");
    if (r->label)
        strbuf_printf(out, "<span class=\"label %s\">%s</span> ", inspect_label_name(r->label),
                      inspect_label_name(r->label));
    svg_put_escaped(out, r->title);
    strbuf_printf(out, "</h3><p class=\"soft\">%" PRIu64 " token%s", c.tokens + r->more,
                  text_s(c.tokens + r->more));
    if (x->marks || x->step)
        strbuf_printf(out, ", <b>%" PRIu64 " trained</b> (%.1f&nbsp;%%)", c.trained,
                      inspect_percent(c.trained, c.tokens));
    for (int k = 0; k < INSPECT_ROLES && x->marks; k++)
        if (c.role_tokens[k])
            strbuf_printf(out, " · %s %" PRIu64, inspect_role_name(k), c.role_tokens[k]);
    strbuf_puts(out, "</p>\n");
    put_tokens(out, x, r);
    strbuf_puts(out, "</div>\n");
}

static void put_sample(strbuf *out, const inspection *x, int i) {
    const inspect_sample *s = &x->sample[i];
    strbuf_printf(out,
                  "<article id=\"s%d\"%s><h2><a href=\"#s%d\">%s %" PRIu64 "</a>%s%s%s</h2>\n"
                  "<div class=\"rows n%d\">\n",
                  i, i == 0 ? " class=\"now\"" : "", i, x->step ? "row" : "sample", s->number,
                  s->stop ? " <span class=\"label rejected\">" : "", s->stop ? s->stop->name : "",
                  s->stop ? "</span>" : "", s->n_rows);
    for (int k = 0; k < s->n_rows; k++) put_row(out, x, &s->row[k]);
    strbuf_puts(out, "</div></article>\n");
}

/* ---- what comes before them ---- */

static void put_legend(strbuf *out, const inspection *x) {
    strbuf_puts(out, "<section class=\"legend\"><p><span class=\"on\">learned</span> "
                     "<span class=\"off\">not learned</span> "
                     "<span class=\"sp\">special token</span> <span><u>⏎</u> line feed</span> "
                     "<span><u>U+200B</u> cannot be seen</span> "
                     "<span><u>e2 80</u> bytes that are no character</span> "
                     "<span><i class=\"p\">字</i> several tokens make it</span></p>\n<p>");
    for (int k = 0; k < MARK_ROLES && x->marks; k++)
        strbuf_printf(out, "<span class=\"key r%d\">%s</span> ", k, inspect_role_name(k));
    strbuf_puts(out, "</p></section>\n");
}

static int shown_for(const inspection *x, const inspect_stop *s) {
    for (int i = 0; i < x->n; i++)
        if (x->sample[i].stop == s) return i;
    return -1;
}

static void put_stops(strbuf *out, const inspection *x) {
    strbuf text = {0};
    if (x->n_stops == 0) return;
    strbuf_printf(out, "<section class=\"bad\"><h2>%s</h2><ul>\n",
                  x->built ? "Hard stops that were accepted" : "A build stops here");
    for (int i = 0; i < x->n_stops; i++) {
        int at = shown_for(x, &x->stop[i]);
        strbuf_clear(&text);
        inspect_put_stop(&text, &x->stop[i]);
        svg_put_between(out, "<li>", strbuf_cstr(&text), "");
        if (at >= 0) strbuf_printf(out, " (<a href=\"#s%d\">shown below</a>)", at);
        strbuf_puts(out, "</li>\n");
    }
    strbuf_puts(out, "</ul></section>\n");
    strbuf_free(&text);
}

static void put_source(strbuf *out, const inspection *x, const inspect_source *s, uint64_t all) {
    svg_put_between(out, "<tr><th scope=\"row\">", *s->name ? s->name : "(not known)", "</th>");
    strbuf_printf(out,
                  "<td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%.1f&nbsp;%%</td>"
                  "<td>%.1f&nbsp;%%</td></tr>\n",
                  s->c.documents, s->c.tokens, inspect_percent(s->c.tokens, all),
                  inspect_percent(s->c.trained, s->c.tokens));
    if (!x->marks) return;
    strbuf_puts(out, "<tr class=\"roles\"><td colspan=\"5\"><div class=\"mix\">");
    for (int k = 0; k < INSPECT_ROLES; k++)
        if (s->c.role_tokens[k])
            strbuf_printf(out, "<i class=\"r%d\" style=\"width:%.3f%%\" title=\"%s\"></i>", k,
                          inspect_percent(s->c.role_tokens[k], s->c.tokens), inspect_role_name(k));
    strbuf_puts(out, "</div><p class=\"soft\">");
    for (int k = 0; k < INSPECT_ROLES; k++)
        strbuf_printf(
            out,
            "<span class=\"key r%d\">%s</span> %.1f&nbsp;%% of tokens, in %.1f&nbsp;%% of "
            "documents<br>",
            k, inspect_role_name(k), inspect_percent(s->c.role_tokens[k], s->c.tokens),
            inspect_percent(s->c.role_documents[k], s->c.documents));
    strbuf_puts(out, "</p></td></tr>\n");
}

static void put_audit(strbuf *out, const inspection *x) {
    uint64_t all = 0;
    if (x->n_sources == 0) return;
    for (int i = 0; i < x->n_sources; i++) all += x->source[i].c.tokens;
    strbuf_printf(out,
                  "<section><h2>The mixture%s</h2><div class=\"wide\"><table><thead><tr>"
                  "<th>source</th><th>documents</th><th>tokens</th><th>share</th><th>trained</th>"
                  "</tr></thead><tbody>\n",
                  x->step ? " of this step" : "");
    for (int i = 0; i < x->n_sources; i++) put_source(out, x, &x->source[i], all);
    strbuf_puts(out, "</tbody></table></div></section>\n");
}

static void put_fill(strbuf *out, const inspection *x) {
    uint64_t rows = 0, room = 0, used = 0, documents = 0;
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < x->sample[i].n_rows; k++) {
            const inspect_row *r = &x->sample[i].row[k];
            rows++;
            room += (uint64_t)r->room;
            used += (uint64_t)(r->n < r->room ? r->n : r->room);
            documents += (uint64_t)r->n_spans;
        }
    strbuf_printf(
        out,
        "</div><p class=\"soft\">A bar is a row, a piece of it a document; what is empty is "
        "padding: %" PRIu64 " document%s in %" PRIu64 " row%s, %.1f&nbsp;%% padding.</p>"
        "</section>\n",
        documents, text_s(documents), rows, text_s(rows), inspect_percent(room - used, room));
}

/* How documents lie in the rows of a step: a bar a row, a piece a document. */
static void put_packing(strbuf *out, const inspection *x) {
    if (!x->step) return;
    strbuf_puts(out, "<section><h2>How documents lie in the rows</h2><div class=\"pack\">\n");
    for (int i = 0; i < x->n; i++) {
        for (int k = 0; k < x->sample[i].n_rows; k++) {
            const inspect_row *r = &x->sample[i].row[k];
            strbuf_printf(out, "<a href=\"#s%d\"><span>%" PRIu64 "</span><span class=\"mix\">", i,
                          x->sample[i].number);
            for (int j = 0; j < r->n_spans; j++) {
                const inspect_span *p = &r->spans[j];
                strbuf_printf(out, "<i class=\"d%d\" style=\"width:%.3f%%\"", j % 2,
                              inspect_percent((uint64_t)(p->end - p->first), (uint64_t)r->room));
                svg_put_between(out, " title=\"", p->title, "\"></i>");
            }
            strbuf_puts(out, "</span></a>\n");
        }
    }
    put_fill(out, x);
}

/* ---- the page ---- */

void inspect_page(strbuf *out, const inspection *x) {
    strbuf_puts(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                     "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                     "<meta name=\"color-scheme\" content=\"light dark\">\n");
    svg_put_between(out, "<title>", x->title, "</title>\n<style>\n");
    strbuf_puts(out, inspect_css);
    strbuf_puts(out, "</style></head><body><main>\n<p class=\"kind\">What the model sees</p>\n");
    svg_put_between(out, "<h1>", x->title, "</h1>\n");
    svg_put_between(out, "<p class=\"about\">", x->about, "</p>\n");
    put_stops(out, x);
    put_legend(out, x);
    put_audit(out, x);
    put_packing(out, x);
    strbuf_puts(out, "<section class=\"samples\">\n");
    for (int i = 0; i < x->n; i++) put_sample(out, x, i);
    strbuf_puts(out, "</section>\n");
    if (x->left_out)
        strbuf_printf(out, "<p class=\"soft\">%" PRIu64 " more are not on this page.</p>\n",
                      x->left_out);
    strbuf_puts(out, "</main>\n<nav hidden><button id=\"prev\">‹ previous</button>"
                     "<span id=\"at\"></span><button id=\"next\">next ›</button>"
                     "<button id=\"cut\" aria-pressed=\"false\">token borders</button>"
                     "<span class=\"keys\">keys: ← → or k j, t</span></nav>\n<script>\n");
    strbuf_puts(out, inspect_js);
    strbuf_puts(out, "</script></body></html>\n");
}
