/* A profile as a picture and as a timeline (bench_profile.h). Order: cells and their places, one cell drawn, the picture, the timeline. */
#include "train/bench/bench_profile.h"

#include <stdio.h>
#include <string.h>

#include "run/report/svg.h"
#include "train/ranks/trace.h"

enum { WIDTH = 1200, MARGIN = 12, TOP = 64, LEVEL_HEIGHT = 42, OP_HEIGHT = 60, LEVELS = 3 };

/* ---- cells ---- */

/* A stretch of the step: the step itself (level 0), a part of it, a class of ops, an op. */
typedef struct cell {
    const char *name;
    bench_class class; /* -1 above classes */
    double at_s, seconds;
    int level;
    const bench_row *row; /* of an op */
} cell;
typedef void cell_fn(strbuf *out, const bench_profile *p, const cell *c);

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
static double walk_ops(strbuf *out, const bench_profile *p, part in, bench_class class, double at_s,
                       cell_fn *each) {
    for (int i = 0; i < p->n; i++) {
        const bench_row *r = &p->rows[i];
        if (part_of(r) != in || r->class != class) continue;
        cell c = {r->name, class, at_s, r->seconds, LEVELS, r};
        each(out, p, &c);
        at_s += r->seconds;
    }
    return at_s;
}

/* Classes in the order of their longest op. */
static double walk_part(strbuf *out, const bench_profile *p, part in, double at_s, cell_fn *each) {
    static const char *const names[] = {"forward", "backward", "update", "between ops"};
    bool done[BENCH_CLASSES] = {false};
    double began = at_s;
    for (int i = 0; i < p->n; i++) {
        const bench_row *r = &p->rows[i];
        if (part_of(r) != in || done[r->class]) continue;
        done[r->class] = true;
        double end = walk_ops(out, p, in, r->class, at_s, each);
        cell c = {bench_class_name(r->class), r->class, at_s, end - at_s, LEVELS - 1, NULL};
        each(out, p, &c);
        at_s = end;
    }
    cell c = {names[in], -1, began, at_s - began, LEVELS - 2, NULL};
    each(out, p, &c);
    return at_s;
}

/* All cells, those inside before the one around them. */
static void walk(strbuf *out, const bench_profile *p, cell_fn *each) {
    double at_s = 0;
    for (int i = 0; i < PARTS; i++) at_s = walk_part(out, p, (part)i, at_s, each);
    cell whole = {"one step", -1, 0, p->step_s, 0, NULL};
    each(out, p, &whole);
}

/* ---- one cell drawn ---- */

static double x_of(const bench_profile *p, double s) {
    return MARGIN + (WIDTH - 2 * MARGIN) * s / p->step_s;
}

/* Text has a little room on both sides. */
static int letters_in(double width) {
    return svg_letters(width - 8);
}

static void put_fitting(strbuf *out, double x, double y, double width, const char *text) {
    svg_text_within(out, "", x + 4, y, width - 8, text);
}

/* Of "mlp.down_proj" the last part, where there is no room for the whole. */
static void put_name(strbuf *out, double x, double y, double width, const char *name) {
    const char *last = strrchr(name, '.');
    bool whole = (int)strlen(name) <= letters_in(width);
    put_fitting(out, x, y, width, whole || !last ? name : last + 1);
}

/* The longer text if it fits, else the shorter, or none. */
static void put_either(strbuf *out, double x, double y, double width, const char *longer,
                       const char *shorter) {
    const char *text = (int)strlen(longer) <= letters_in(width) ? longer : shorter;
    if ((int)strlen(text) <= letters_in(width)) put_fitting(out, x, y, width, text);
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

/* Each class has a colour of its own. */
_Static_assert((int)BENCH_CLASSES <= (int)SVG_COLORS, "colours for classes of ops");
static int color_of(bench_class c) {
    return c;
}

static void put_cell(strbuf *out, const bench_profile *p, const cell *c) {
    double x = x_of(p, c->at_s), width = x_of(p, c->at_s + c->seconds) - x;
    double y = TOP + c->level * LEVEL_HEIGHT, height = c->row ? OP_HEIGHT : LEVEL_HEIGHT;
    if (!(width > 0.05)) return;
    char css[16] = "f";
    if (c->class >= 0) snprintf(css, sizeof css, "b%d", color_of(c->class));
    strbuf_printf(out, "<g class=\"c %s\">", c->class >= 0 ? bench_class_name(c->class) : "frame");
    put_title(out, p, c);
    strbuf_printf(out,
                  "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"/>\n",
                  css, x, y, width, height);
    put_name(out, x, y + 17, width, c->name);
    put_numbers(out, x, y + 33, width, p, c->seconds);
    if (c->row) put_details(out, x, y + 50, width, p, c->row);
    strbuf_puts(out, "</g>\n");
}

/* ---- the picture ---- */

static void put_legend(strbuf *out, int y) {
    int x = MARGIN;
    for (int i = 0; i < BENCH_CLASSES; i++) {
        const char *name = bench_class_name(i);
        svg_key(out, color_of(i), x, y + 10, name);
        x += 36 + 7 * (int)strlen(name);
    }
}

void bench_icicle_write(strbuf *out, const bench_profile *p, const char *title,
                        const char *subtitle) {
    int bottom = TOP + LEVELS * LEVEL_HEIGHT + OP_HEIGHT + 18, height = bottom + 24;
    svg_open(out, WIDTH, height, title);
    svg_text(out, "t", MARGIN, 26, title);
    svg_text(out, "s", MARGIN, 48, subtitle);
    walk(out, p, put_cell);
    put_legend(out, bottom);
    svg_close(out);
}

/* ---- the timeline ---- */

static void put_event(strbuf *out, const bench_profile *p, const cell *c) {
    trace_event ev = {.name = c->name,
                      .category = c->row          ? bench_pass_name(c->row->pass)
                                  : c->class >= 0 ? "class"
                                                  : "step",
                      .at_us = c->at_s * 1e6,
                      .us = c->seconds * 1e6};
    if (!(c->seconds > 0)) return;
    trace_put_event(out, &ev);
    strbuf_printf(out, "\"share\": %.6f", c->seconds / p->step_s);
    if (c->row)
        strbuf_printf(out, ", \"calls\": %lld, \"gflop\": %.6f, \"gb\": %.6f",
                      (long long)c->row->calls, c->row->flops / 1e9, c->row->bytes / 1e9);
    strbuf_puts(out, "}}");
}

void bench_timeline_write(strbuf *out, const bench_profile *p, const char *title) {
    strbuf_puts(out, "[");
    trace_put_name(out, "process_name", 0, 0, title);
    strbuf_puts(out, ",\n");
    trace_put_name(out, "thread_name", 0, 0, "where the time of a step goes");
    walk(out, p, put_event);
    strbuf_puts(out, "]\n");
}
