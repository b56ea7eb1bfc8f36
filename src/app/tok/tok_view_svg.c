/* The picture of `tok report`: fertility and bytes per token as groups of bars, one bar a
 * tokenizer. The groups are the files and, where there are several, the languages or scripts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/tok/tok_view.h"
#include "base/arena.h"
#include "base/utf8.h"
#include "run/report/svg.h"

enum {
    MAX_BARS = 8, /* tokenizers, each in a colour of its own */
    MAX_GROUPS = 12,
    LEFT = 56,
    RIGHT = 16,
    TOP = 96,
    PANEL = 220, /* height of the bars */
    BETWEEN = 84,
    MIN_WIDTH = 640,
    BAR = 26,
    GAP = 30,
    LEGEND_COLUMN = 220,
    LEGEND_LINE = 20,
};

typedef struct picture {
    const tok_view *v;
    int n_bars;
    int row[MAX_GROUPS], n_groups;
    double width, height, group_width;
    double top; /* of the first panel */
} picture;

/* ---- what is drawn ---- */

static int64_t words_of(const tok_view *v, int row) {
    int64_t most = 0;
    for (int i = 0; i < v->n_toks; i++)
        if (view_tally(v, i, row)->words > most) most = view_tally(v, i, row)->words;
    return most;
}

/* The rows of a kind with the most words, in their order. */
static void choose_rows(picture *p, view_kind kind, int room) {
    const tok_view *v = p->v;
    for (int k = 0; k < v->n_rows && room > 0; k++) {
        int larger = 0;
        for (int o = 0; o < v->n_rows; o++)
            larger += v->row[o].kind == kind && (words_of(v, o) > words_of(v, k) ||
                                                 (words_of(v, o) == words_of(v, k) && o < k));
        if (v->row[k].kind == kind && larger < room && p->n_groups < MAX_GROUPS)
            p->row[p->n_groups++] = k;
    }
}

static picture plan(const tok_view *v) {
    picture p = {.v = v, .n_bars = v->n_toks < MAX_BARS ? v->n_toks : MAX_BARS};
    bool groups = view_count_rows(v, VIEW_GROUP) > 1;
    bool files = view_count_rows(v, VIEW_FILE) > 1 || !groups;
    if (files) choose_rows(&p, VIEW_FILE, groups ? MAX_GROUPS / 2 : MAX_GROUPS);
    if (groups) choose_rows(&p, VIEW_GROUP, MAX_GROUPS - p.n_groups);
    p.group_width = BAR * p.n_bars + GAP;
    if (p.group_width < 110) p.group_width = 110; /* room for a name */
    p.width = LEFT + RIGHT + p.group_width * p.n_groups;
    if (p.width < MIN_WIDTH) {
        p.group_width = (MIN_WIDTH - LEFT - RIGHT) / (double)p.n_groups;
        p.width = MIN_WIDTH;
    }
    int columns = (int)(p.width - LEFT) / LEGEND_COLUMN;
    p.top = TOP + LEGEND_LINE * ((p.n_bars + columns - 1) / columns);
    p.height = p.top + 2 * PANEL + BETWEEN + 40;
    return p;
}

/* ---- parts ---- */

/* A name that fits below a group of bars. */
static void put_name(strbuf *out, double x, double y, double width, const char *name) {
    strbuf_puts(out, "<g><title>");
    svg_put_escaped(out, name);
    strbuf_puts(out, "</title>");
    svg_text_within(out, "s m", x, y, width, name);
    strbuf_puts(out, "</g>\n");
}

static void put_legend(strbuf *out, const picture *p) {
    int columns = (int)(p->width - LEFT) / LEGEND_COLUMN;
    for (int i = 0; i < p->n_bars; i++) {
        double x = LEFT + LEGEND_COLUMN * (i % columns), y = 64 + LEGEND_LINE * (i / columns);
        char label[160], size[32];
        svg_format_number(size, p->v->tok[i].vocab.size);
        snprintf(label, sizeof label, "%.100s (%s tokens)", p->v->tok[i].name, size);
        svg_key(out, i, x, y, label);
    }
}

static double bar_value(const picture *p, view_figure figure, int tok_index, int row) {
    bool counts = view_comparable(view_tally(p->v, tok_index, row));
    return counts ? view_value(p->v, figure, tok_index, row) : NAN;
}

static double highest(const picture *p, view_figure figure) {
    double top = 0;
    for (int k = 0; k < p->n_groups; k++)
        for (int i = 0; i < p->n_bars; i++) {
            double value = bar_value(p, figure, i, p->row[k]);
            if (isfinite(value)) top = fmax(top, value);
        }
    return top > 0 ? top * 1.08 : 1;
}

static void put_axis(strbuf *out, const picture *p, double y, double top) {
    double ticks[SVG_MAX_TICKS];
    int n = svg_ticks(0, top, 5, ticks);
    for (int i = 0; i < n; i++) {
        char label[32];
        double at = y + PANEL * (1 - ticks[i] / top);
        svg_format_number(label, ticks[i]);
        strbuf_printf(out, "<line class=\"%s\" x1=\"%d\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                      i ? "g" : "a", LEFT, p->width - RIGHT, at, at);
        svg_text(out, "s e", LEFT - 8, at + 4, label);
    }
}

static void put_bar(strbuf *out, const picture *p, int tok_index, double x, double bottom,
                    double height, double value) {
    char label[32];
    snprintf(label, sizeof label, "%.2f", value);
    strbuf_printf(out,
                  "<rect class=\"b%d\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\">"
                  "<title>",
                  tok_index, x, bottom - height, BAR - 3, height);
    svg_put_escaped(out, p->v->tok[tok_index].name);
    strbuf_printf(out, " %.4f</title></rect>\n", value);
    svg_text(out, "v s m", x + (BAR - 3) / 2.0, bottom - height - 4, label);
}

static void put_panel(strbuf *out, const picture *p, double y, const char *title,
                      view_figure figure) {
    double top = highest(p, figure);
    svg_text(out, "h", LEFT, y - 14, title);
    put_axis(out, p, y, top);
    for (int k = 0; k < p->n_groups; k++) {
        double from = LEFT + p->group_width * k;
        double first = from + (p->group_width - BAR * p->n_bars) / 2;
        for (int i = 0; i < p->n_bars; i++) {
            double value = bar_value(p, figure, i, p->row[k]), x = first + BAR * i;
            if (isfinite(value))
                put_bar(out, p, i, x, y + PANEL, PANEL * value / top, value);
            else
                svg_text(out, "v s m", x + (BAR - 3) / 2.0, y + PANEL - 4, "unk");
        }
        put_name(out, from + p->group_width / 2, y + PANEL + 18, p->group_width,
                 p->v->row[p->row[k]].name);
    }
}

void tok_view_svg(strbuf *out, const tok_view *v) {
    picture p = plan(v);
    svg_open(out, p.width, p.height, "Tokenizers compared");
    svg_text(out, "t", LEFT, 32, "Tokenizers compared");
    put_legend(out, &p);
    put_panel(out, &p, p.top, "tokens per word (fertility; lower is better)", VIEW_FERTILITY);
    put_panel(out, &p, p.top + PANEL + BETWEEN, "bytes per token (higher is better)",
              VIEW_BYTES_PER_TOKEN);
    svg_close(out);
}
