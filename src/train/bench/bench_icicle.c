/* The picture of a profile; see bench_icicle.h. Order: style, one cell, the levels, the legend. */
#include "train/bench/bench_icicle.h"

#include <stdio.h>
#include <string.h>

#include "run/report/svg.h"

enum { WIDTH = 1200, MARGIN = 12, TOP = 64, LEVEL_HEIGHT = 42, OP_HEIGHT = 60, LEVELS = 3 };

/* The colours of cells are light enough for dark text on either page. */
static const char STYLE[] =
    "<style>"
    "svg{background:#fbfaf7;font:12px system-ui,sans-serif}"
    "text{fill:#1f1b16}.t{font-size:17px;font-weight:600}.s{fill:#5c544b}"
    ".c rect{stroke:#fbfaf7;stroke-width:1}.c text{fill:#1f1b16}.c:hover rect{stroke:#1f1b16}"
    ".frame rect{fill:#e6e0d6}.matmul rect{fill:#8fb8de}.head rect{fill:#7fcdbb}"
    ".attention rect{fill:#fdb462}.norm rect{fill:#b2df8a}.activation rect{fill:#cab2d6}"
    ".rotary rect{fill:#fb9a99}.elementwise rect{fill:#d9c7b0}.optimizer rect{fill:#ffe082}"
    ".between rect{fill:#cfcfcf}"
    "@media (prefers-color-scheme:dark){svg{background:#16130f}text{fill:#efe9df}"
    ".s{fill:#b5aca0}.c rect{stroke:#16130f}.c:hover rect{stroke:#efe9df}"
    ".frame rect{fill:#3a342c}.frame text{fill:#efe9df}}"
    "</style>\n";

typedef struct cell {
    const char *css, *name;
    double at_s, seconds;
    int level; /* 0: the step */
    const bench_row *row;
} cell;

static double x_of(const bench_profile *p, double s) {
    return MARGIN + (WIDTH - 2 * MARGIN) * s / p->step_s;
}

enum { LETTER = 7 }; /* of this font at this size, rather wide */

static int letters_in(double width) {
    return (int)((width - 8) / LETTER);
}

/* The text, cut off where it must be; what would be three letters or fewer is left out. */
static void put_fitting(strbuf *out, double x, double y, double width, const char *text) {
    int fits = letters_in(width), len = (int)strlen(text);
    if (fits < 4 && fits < len) return;
    char kept[128];
    snprintf(kept, sizeof kept, "%.*s%s", fits < len ? fits - 1 : len, text,
             fits < len ? "\xe2\x80\xa6" : "");
    strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">", x + 4, y);
    svg_put_escaped(out, kept);
    strbuf_puts(out, "</text>");
}

/* Of "mlp.down_proj" the last part, where there is no room for the whole. */
static void put_name(strbuf *out, double x, double y, double width, const char *name) {
    const char *last = strrchr(name, '.');
    bool whole = (int)strlen(name) <= letters_in(width);
    put_fitting(out, x, y, width, whole || !last ? name : last + 1);
}

static void put_if_fits(strbuf *out, double x, double y, double width, const char *text) {
    if ((int)strlen(text) <= letters_in(width)) put_fitting(out, x, y, width, text);
}

/* The longer text, or the shorter, or none. */
static void put_either(strbuf *out, double x, double y, double width, const char *longer,
                       const char *shorter) {
    bool fits = (int)strlen(longer) <= letters_in(width);
    put_if_fits(out, x, y, width, fits ? longer : shorter);
}

static void put_numbers(strbuf *out, double x, double y, double width, const bench_profile *p,
                        double seconds) {
    char time[32], all[64];
    double ms = seconds * 1e3;
    snprintf(time, sizeof time, "%.*f ms", ms < 10 ? 2 : ms < 100 ? 1 : 0, ms);
    snprintf(all, sizeof all, "%s, %.1f %%", time, 100 * seconds / p->step_s);
    put_either(out, x, y, width, all, time);
}

/* "for weight, 62 % of limit"; the level above says whether it is forward or backward. */
static void put_details(strbuf *out, double x, double y, double width, const bench_profile *p,
                        const bench_row *r) {
    static const char *const passes[] = {"", "for input, ", "for weight, ", "recompute, ", "", ""};
    char limit[32], all[64];
    if (r->flops <= 0 && r->bytes <= 0) return;
    snprintf(limit, sizeof limit, "%.0f %% of limit", 100 * bench_row_of_limit(p, r));
    snprintf(all, sizeof all, "%s%s", passes[r->pass], limit);
    put_either(out, x, y, width, all, limit);
}

static void put_title(strbuf *out, const bench_profile *p, const cell *c) {
    const bench_row *r = c->row;
    strbuf_puts(out, "<title>");
    svg_put_escaped(out, c->name);
    if (r && r->pass != BENCH_NO_PASS) strbuf_printf(out, ", %s", bench_pass_name(r->pass));
    strbuf_printf(out, "\n%.3f ms, %.1f %% of the step", c->seconds * 1e3,
                  100 * c->seconds / p->step_s);
    if (r && r->flops > 0) strbuf_printf(out, "\n%.1f GFLOP/s", r->flops / r->seconds / 1e9);
    if (r && r->bytes > 0) strbuf_printf(out, "\n%.1f GB/s", r->bytes / r->seconds / 1e9);
    if (r && (r->flops > 0 || r->bytes > 0))
        strbuf_printf(out, "\n%.0f %% of the nearer limit", 100 * bench_row_of_limit(p, r));
    strbuf_puts(out, "</title>");
}

static void put_cell(strbuf *out, const bench_profile *p, const cell *c) {
    double x = x_of(p, c->at_s), width = x_of(p, c->at_s + c->seconds) - x;
    double y = TOP + c->level * LEVEL_HEIGHT, height = c->row ? OP_HEIGHT : LEVEL_HEIGHT;
    if (!(width > 0.05)) return;
    strbuf_printf(out, "<g class=\"c %s\">", c->css);
    put_title(out, p, c);
    strbuf_printf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"/>", x, y, width,
                  height);
    put_name(out, x, y + 17, width, c->name);
    put_numbers(out, x, y + 33, width, p, c->seconds);
    if (c->row) put_details(out, x, y + 50, width, p, c->row);
    strbuf_puts(out, "</g>\n");
}

/* ---- levels ---- */

typedef enum part { PART_FORWARD, PART_BACKWARD, PART_UPDATE, PART_BETWEEN, PARTS } part;

static part part_of(const bench_row *r) {
    switch (r->pass) {
        case BENCH_FORWARD: return PART_FORWARD;
        case BENCH_UPDATE: return PART_UPDATE;
        case BENCH_NO_PASS: return PART_BETWEEN;
        default: return PART_BACKWARD;
    }
}

/* The ops of one class in one part; returns where they end. */
static double put_ops(strbuf *out, const bench_profile *p, part in, bench_class class,
                      double at_s) {
    for (int i = 0; i < p->n; i++) {
        const bench_row *r = &p->rows[i];
        if (part_of(r) != in || r->class != class) continue;
        cell c = {bench_class_name(class), r->name, at_s, r->seconds, LEVELS, r};
        put_cell(out, p, &c);
        at_s += r->seconds;
    }
    return at_s;
}

/* Classes in the order of their longest op. */
static double put_part(strbuf *out, const bench_profile *p, part in, double at_s) {
    static const char *const names[] = {"forward", "backward", "update", "between ops"};
    bool done[BENCH_CLASSES] = {false};
    double began = at_s;
    for (int i = 0; i < p->n; i++) {
        const bench_row *r = &p->rows[i];
        if (part_of(r) != in || done[r->class]) continue;
        done[r->class] = true;
        double end = put_ops(out, p, in, r->class, at_s);
        const char *name = bench_class_name(r->class);
        cell c = {name, name, at_s, end - at_s, LEVELS - 1, NULL};
        put_cell(out, p, &c);
        at_s = end;
    }
    cell c = {"frame", names[in], began, at_s - began, LEVELS - 2, NULL};
    put_cell(out, p, &c);
    return at_s;
}

/* ---- the document ---- */

static void put_legend(strbuf *out, int y) {
    int x = MARGIN;
    for (int i = 0; i < BENCH_CLASSES; i++) {
        const char *name = bench_class_name(i);
        strbuf_printf(out,
                      "<g class=\"%s\"><rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\"/></g>"
                      "<text x=\"%d\" y=\"%d\">%s</text>\n",
                      name, x, y, x + 17, y + 10, name);
        x += 36 + 7 * (int)strlen(name);
    }
}

void bench_icicle_write(strbuf *out, const bench_profile *p, const char *title,
                        const char *subtitle) {
    int bottom = TOP + LEVELS * LEVEL_HEIGHT + OP_HEIGHT + 18, height = bottom + 24;
    strbuf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n",
                  WIDTH, height);
    strbuf_puts(out, STYLE);
    strbuf_printf(out, "<text class=\"t\" x=\"%d\" y=\"26\">", MARGIN);
    svg_put_escaped(out, title);
    strbuf_printf(out, "</text>\n<text class=\"s\" x=\"%d\" y=\"48\">", MARGIN);
    svg_put_escaped(out, subtitle);
    strbuf_puts(out, "</text>\n");
    cell whole = {"frame", "one step", 0, p->step_s, 0, NULL};
    put_cell(out, p, &whole);
    double at_s = 0;
    for (int i = 0; i < PARTS; i++) at_s = put_part(out, p, (part)i, at_s);
    put_legend(out, bottom);
    strbuf_puts(out, "</svg>\n");
}
