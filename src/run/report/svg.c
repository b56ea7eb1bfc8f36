/* See svg.h. Order: numbers and text, pictures that stand alone; of line charts ticks, decimation,
 * ranges, then the picture.
 *
 * The inner picture has the coordinates 0..GRID in both directions; whole numbers are enough for
 * any screen and keep the file small. */
#include "run/report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/sort.h"
#include "base/utf8.h"

/* LABEL_ROOM: the room above the curves, where marks have labels, in units of the usual room. */
enum { GRID = 10000, LABEL_ROOM = 2 };

/* ---- text ---- */

void svg_put_escaped_bytes(strbuf *out, const char *text, size_t len) {
    for (const char *s = text, *end = s + len; s < end;) {
        uint32_t c = 0;
        int n = utf8_decode(s, (size_t)(end - s), &c);
        switch (*s) {
            case '&': strbuf_puts(out, "&amp;"); break;
            case '<': strbuf_puts(out, "&lt;"); break;
            case '>': strbuf_puts(out, "&gt;"); break;
            case '"': strbuf_puts(out, "&quot;"); break;
            case '\'': strbuf_puts(out, "&#39;"); break;
            default:
                if (n == 0 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || c == 0xfffe ||
                    c == 0xffff) /* no XML has these */
                    strbuf_puts(out, "\xef\xbf\xbd");
                else
                    strbuf_append(out, s, (size_t)n);
        }
        s += n ? n : 1;
    }
}

void svg_put_escaped(strbuf *out, const char *text) {
    svg_put_escaped_bytes(out, text, strlen(text));
}

void svg_put_between(strbuf *out, const char *before, const char *text, const char *after) {
    strbuf_puts(out, before);
    svg_put_escaped(out, text);
    strbuf_puts(out, after);
}

/* At most `digits` significant digits, without an exponent or trailing zeros. */
static void format_plain(char out[32], double value, int digits) {
    int whole = value == 0 ? 1 : (int)floor(log10(fabs(value))) + 1;
    int decimals = digits - whole;
    snprintf(out, 32, "%.*f", decimals > 0 ? decimals : 0, value);
    if (!strchr(out, '.')) return;
    size_t n = strlen(out);
    while (out[n - 1] == '0') out[--n] = '\0';
    if (out[n - 1] == '.') out[n - 1] = '\0';
}

void svg_format_number(char out[32], double value) {
    static const char UNITS[] = "kMBT";
    double size = fabs(value);
    if (!isfinite(value)) {
        snprintf(out, 32, "n/a");
    } else if (size != 0 && (size < 1e-2 || size >= 1e15)) {
        char text[32];
        snprintf(text, sizeof text, "%.2e", value);
        char *e = strchr(text, 'e');
        format_plain(out, strtod(text, NULL) / pow(10, (double)strtol(e + 1, NULL, 10)), 3);
        size_t n = strlen(out);
        snprintf(out + n, 32 - n, "e%ld", strtol(e + 1, NULL, 10));
    } else if (size < 9999.5) {
        format_plain(out, value, size >= 1000 ? 4 : 3);
    } else {
        int unit = -1;
        for (; unit < 3 && fabs(value) >= 999.5; unit++) value /= 1000;
        format_plain(out, value, 3);
        size_t n = strlen(out);
        snprintf(out + n, 32 - n, "%c", UNITS[unit]);
    }
}

void svg_put_number(strbuf *out, double value) {
    char text[32];
    svg_format_number(text, value);
    strbuf_puts(out, text);
}

/* ---- pictures that stand alone ---- */

static const char STYLE[] =
    "<style>"
    "svg{font:12px system-ui,sans-serif}.paper{fill:" SVG_PAPER "}text{fill:" SVG_INK "}"
    ".t{font-size:17px;font-weight:600}.h{font-size:14px;font-weight:600}.v{font-size:10px}"
    ".s{fill:" SVG_SOFT "}.m{text-anchor:middle}.e{text-anchor:end}"
    ".g{stroke:" SVG_LINE "}.a{stroke:" SVG_SOFT "}.f{fill:" SVG_LINE "}"
    ".b0{fill:#4e8fc7}.b1{fill:#e08a3c}.b2{fill:#5aa469}.b3{fill:#b07cc6}.b4{fill:#d1655d}"
    ".b5{fill:#b09a74}.b6{fill:#5bb5b5}.b7{fill:#c9a227}.b8{fill:#a8a29a}"
    ".p{fill-opacity:.55}.c rect{stroke:" SVG_PAPER "}.c:hover rect{stroke:" SVG_INK "}"
    "@media (prefers-color-scheme:dark){"
    ".paper{fill:" SVG_DARK_PAPER "}text{fill:" SVG_DARK_INK "}.s{fill:" SVG_DARK_SOFT "}"
    ".g{stroke:" SVG_DARK_LINE "}.a{stroke:" SVG_DARK_SOFT "}.f{fill:" SVG_DARK_LINE "}"
    ".c rect{stroke:" SVG_DARK_PAPER "}.c:hover rect{stroke:" SVG_DARK_INK "}"
    ".c [class^=b]~text{fill:" SVG_INK "}.c .p~text{fill:" SVG_DARK_INK "}}"
    "</style>\n";

void svg_open(strbuf *out, double width, double height, const char *title) {
    strbuf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                  "width=\"%.0f\" height=\"%.0f\" role=\"img\">\n<title>",
                  width, height, width, height);
    svg_put_escaped(out, title);
    strbuf_printf(out, "</title>\n%s<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n",
                  STYLE);
}

void svg_close(strbuf *out) {
    strbuf_puts(out, "</svg>\n");
}

static void put_text(strbuf *out, const char *css, double x, double y, const char *text, size_t n) {
    strbuf_puts(out, "<text");
    if (*css) strbuf_printf(out, " class=\"%s\"", css);
    strbuf_printf(out, " x=\"%.1f\" y=\"%.1f\">", x, y);
    svg_put_escaped_bytes(out, text, n);
    strbuf_puts(out, text[n] ? "\xe2\x80\xa6</text>\n" : "</text>\n");
}

void svg_text(strbuf *out, const char *css, double x, double y, const char *text) {
    put_text(out, css, x, y, text, strlen(text));
}

int svg_letters(double width) {
    enum { LETTER = 7 }; /* of this font at this size, rather wide */
    return (int)(width / LETTER);
}

void svg_text_within(strbuf *out, const char *css, double x, double y, double width,
                     const char *text) {
    int fits = svg_letters(width), n = (int)strlen(text);
    if (n > fits) {
        if (fits < 4) return;
        n = (int)utf8_cut(text, (size_t)fits - 1);
    }
    put_text(out, css, x, y, text, (size_t)n);
}

void svg_key(strbuf *out, int color, double x, double y, const char *text) {
    strbuf_printf(out, "<rect class=\"b%d\" x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\"/>\n",
                  color, x, y - 10);
    svg_text(out, "s", x + 18, y, text);
}

/* ---- ticks ---- */

int svg_ticks(double lo, double hi, int want, double *out) {
    if (!(hi > lo) || want < 1) return 0;
    double raw = (hi - lo) / want, power = pow(10, floor(log10(raw))), ratio = raw / power;
    double step = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
    int n = 0;
    for (double i = ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++)
        if (n < SVG_MAX_TICKS) out[n++] = i == 0 ? 0 : i * step;
    return n;
}

/* Powers of ten, with 2 and 5 between them where there are few. */
static int log_ticks(double lo, double hi, double *out) {
    static const double WITHIN[] = {1, 2, 5};
    int n = 0, all = log10(hi / lo) < 2.5 ? 3 : 1;
    double power = pow(10, floor(log10(lo)));
    for (; power <= hi; power *= 10)
        for (int i = 0; i < all; i++) {
            double tick = power * WITHIN[i];
            if (tick >= lo * 0.999999 && tick <= hi * 1.000001 && n < SVG_MAX_TICKS)
                out[n++] = tick;
        }
    return n;
}

/* ---- decimation ---- */

static double scaled(double x, double x0, double x1, bool log_x) {
    if (!(x1 > x0)) return 0.5;
    return log_x ? log(x / x0) / log(x1 / x0) : (x - x0) / (x1 - x0);
}

typedef struct column {
    int64_t number, low, high, gap; /* indices of points; -1: none */
} column;

static int64_t put_column(const column *c, int64_t *out) {
    int64_t n = 0;
    if (c->low >= 0) {
        out[n++] = c->low < c->high ? c->low : c->high;
        if (c->low != c->high) out[n++] = c->low < c->high ? c->high : c->low;
    } else if (c->gap >= 0) {
        out[n++] = c->gap;
    }
    return n;
}

int64_t svg_decimate(const double *x, const double *y, int64_t n, double x0, double x1, bool log_x,
                     int64_t max_points, int64_t *out) {
    int64_t kept = 0, columns = max_points / 2;
    column c = {-1, -1, -1, -1};
    for (int64_t i = 0; i < n; i++) {
        int64_t number =
            n <= max_points ? i : (int64_t)(scaled(x[i], x0, x1, log_x) * (double)columns);
        if (n > max_points && number >= columns) number = columns - 1;
        if (number != c.number) {
            kept += put_column(&c, out + kept);
            c = (column){number, -1, -1, -1};
        }
        if (!isfinite(y[i])) {
            c.gap = i;
        } else {
            if (c.low < 0 || y[i] < y[c.low]) c.low = i;
            if (c.high < 0 || y[i] > y[c.high]) c.high = i;
        }
    }
    return kept + put_column(&c, out + kept);
}

/* ---- ranges ---- */

typedef struct range {
    double x0, x1, y0, y1;
    bool log_x;
} range;

/* The value that 99.5 % of the finite ones do not exceed; for a million of them a sample does. */
static double high_quantile(const svg_series *s) {
    int64_t stride = s->n / 20000 + 1, n = 0;
    double *values = xmalloc(sizeof *values * (size_t)(s->n / stride + 1));
    for (int64_t i = 0; i < s->n; i += stride)
        if (isfinite(s->y[i])) values[n++] = s->y[i];
    sort_doubles(values, n);
    double result = n ? values[(int64_t)((double)(n - 1) * 0.995)] : -INFINITY;
    free(values);
    return result;
}

static void widen(const svg_chart *c, const svg_series *s, range *r) {
    double high = c->cut_outliers ? high_quantile(s) : INFINITY;
    if (isfinite(c->y_top)) high = c->y_top;
    for (int64_t i = 0; i < s->n; i++) {
        r->x0 = fmin(r->x0, s->x[i]);
        r->x1 = fmax(r->x1, s->x[i]);
        if (!isfinite(s->y[i])) continue;
        double bar = s->error && isfinite(s->error[i]) ? s->error[i] : 0;
        r->y0 = fmin(r->y0, s->y[i] - bar);
        r->y1 = fmax(r->y1, fmin(s->y[i] + bar, high));
    }
}

/* False when there is nothing to draw. */
static bool find_range(const svg_chart *c, range *r) {
    *r = (range){INFINITY, -INFINITY, INFINITY, -INFINITY, c->log_x};
    for (int i = 0; i < c->n_series; i++) widen(c, &c->series[i], r);
    if (!isfinite(r->y0)) return false;
    for (int i = 0; i < c->n_marks; i++) r->x1 = fmax(r->x1, c->marks[i].x);
    if (c->from_zero) r->y0 = fmin(r->y0, 0);
    double pad = (r->y1 - r->y0) * 0.06;
    if (pad <= fabs(r->y1) * 1e-6) pad = r->y1 == 0 ? 1 : fabs(r->y1) * 0.1;
    if (!c->from_zero) r->y0 -= pad;
    r->y1 += c->n_marks > 0 && c->label_pixels > 0 ? LABEL_ROOM * pad : pad;
    if (r->log_x && (r->x0 <= 0 || r->x1 <= r->x0)) r->log_x = false;
    return true;
}

static double place_x(const range *r, double x) {
    return scaled(x, r->x0, r->x1, r->log_x);
}

static double place_y(const range *r, double y) {
    return 1 - (y - r->y0) / (r->y1 - r->y0);
}

/* ---- the picture ---- */

static void put_y_axis(strbuf *out, const range *r) {
    double ticks[SVG_MAX_TICKS];
    int n = svg_ticks(r->y0, r->y1, 4, ticks);
    for (int i = 0; i < n; i++) {
        char text[32];
        double at = 100 * place_y(r, ticks[i]);
        svg_format_number(text, ticks[i]);
        strbuf_printf(out,
                      "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>"
                      "<text x=\"-8\" y=\"%.2f%%\" dy=\"4\" text-anchor=\"end\">%s</text>\n",
                      at, at, at, text);
    }
}

static void put_x_axis(strbuf *out, const svg_chart *c, const range *r) {
    double ticks[SVG_MAX_TICKS];
    int n = r->log_x ? log_ticks(r->x0, r->x1, ticks) : svg_ticks(r->x0, r->x1, 5, ticks);
    if (!(r->x1 > r->x0)) ticks[0] = r->x0, n = 1;
    for (int i = 0; i < n; i++) {
        char text[32];
        if (ticks[i] != floor(ticks[i])) continue; /* there is no half step */
        double at = 100 * place_x(r, ticks[i]);
        svg_format_number(text, ticks[i]);
        strbuf_printf(out,
                      "<text x=\"%.2f%%\" y=\"100%%\" dy=\"18\" "
                      "text-anchor=\"%s\">%s</text>\n",
                      at,
                      at > 96  ? "end"
                      : at < 4 ? "start"
                               : "middle",
                      text);
    }
    if (!c->x_label) return;
    svg_put_between(out,
                    "<text class=\"axis\" x=\"100%\" y=\"100%\" dy=\"34\" text-anchor=\"end\">",
                    c->x_label, "</text>\n");
}

static int grid_point(double place) {
    return (int)lrint(fmax(0, fmin(1, place)) * GRID);
}

/* What lies above the picture touches its upper edge, but is not drawn along it. */
static void put_path(strbuf *out, const svg_series *s, const range *r, const int64_t *points,
                     int64_t n, const char *kind) {
    bool dots = strcmp(kind, "dots") == 0, pen_down = false, was_above = false;
    strbuf_printf(out, "<path class=\"%s %s\"", kind, s->css);
    if (!dots && s->name) {
        svg_put_between(out, " data-name=\"", s->name, "\"");
    }
    strbuf_puts(out, " d=\"");
    for (int64_t i = 0; i < n; i++) {
        double x = s->x[points[i]], y = s->y[points[i]];
        bool above = y > r->y1;
        if (isfinite(y) && !(dots && above))
            strbuf_printf(out, "%c%d %d%s", pen_down && !dots && !(above && was_above) ? 'L' : 'M',
                          grid_point(place_x(r, x)), grid_point(place_y(r, y)),
                          dots || n == 1 ? "h0" : "");
        pen_down = isfinite(y);
        was_above = above;
    }
    strbuf_puts(out, "\"/>\n");
}

static void put_bars(strbuf *out, const svg_series *s, const range *r) {
    strbuf_printf(out, "<path class=\"bars %s\" d=\"", s->css);
    for (int64_t i = 0; i < s->n; i++) {
        if (!isfinite(s->y[i]) || !isfinite(s->error[i])) continue;
        strbuf_printf(out, "M%d %dV%d", grid_point(place_x(r, s->x[i])),
                      grid_point(place_y(r, s->y[i] - s->error[i])),
                      grid_point(place_y(r, s->y[i] + s->error[i])));
    }
    strbuf_puts(out, "\"/>\n");
}

static void put_series(strbuf *out, const svg_series *s, const range *r) {
    enum { MAX_DOTS = 120 };
    int64_t *points = xmalloc(sizeof *points * (SVG_MAX_POINTS + 2));
    int64_t n = svg_decimate(s->x, s->y, s->n, r->x0, r->x1, r->log_x, SVG_MAX_POINTS, points);
    put_path(out, s, r, points, n, n == 1 && !s->dots ? "line dots" : "line");
    if (s->dots && n <= MAX_DOTS) put_path(out, s, r, points, n, "dots");
    if (s->error && n <= MAX_DOTS) put_bars(out, s, r);
    free(points);
}

/* ---- marks ---- */

/* Where the labels of each row at the upper edge end so far, in percent of a chart of usual width.
 */
typedef struct label_rows {
    double end[2];
} label_rows;

static void put_label(strbuf *out, const svg_chart *c, const svg_mark *mark, double at,
                      label_rows *rows) {
    enum {
        ROW_PIXELS = 16,
        LETTER_PIXELS = 7,
        MOST_LETTERS = 28
    }; /* its line has the whole of it */
    size_t n = strlen(mark->label);
    bool whole = n <= MOST_LETTERS;
    if (!whole) n = utf8_cut(mark->label, MOST_LETTERS - 1);
    double letters = (double)n + 2 + !whole;
    double width = 100 * letters * LETTER_PIXELS / c->label_pixels;
    bool flip = at + width > 100; /* to the left of its line */
    double first = flip ? at - width : at;
    if (first < rows->end[mark->row]) return;
    rows->end[mark->row] = first + width;
    strbuf_printf(out,
                  "<text class=\"label %s\" x=\"%.2f%%\" y=\"0\" dx=\"%d\" dy=\"%d\" "
                  "text-anchor=\"%s\">",
                  mark->css, at, flip ? -5 : 5, 11 + ROW_PIXELS * mark->row,
                  flip ? "end" : "start");
    svg_put_escaped_bytes(out, mark->label, n);
    strbuf_puts(out, whole ? "</text>\n" : "\xe2\x80\xa6</text>\n");
}

static void put_mark_line(strbuf *out, const svg_mark *mark, double at) {
    strbuf_printf(out,
                  "<line class=\"mark %s\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" "
                  "y2=\"100%%\">",
                  mark->css, at, at);
    if (mark->label) {
        svg_put_between(out, "<title>", mark->label, "</title>");
    }
    strbuf_puts(out, "</line>\n");
}

static bool is_in_picture(const svg_mark *mark, const range *r) {
    return isfinite(mark->x) && mark->x >= r->x0;
}

static void put_marks(strbuf *out, const svg_chart *c, const range *r) {
    for (int i = 0; i < c->n_marks; i++)
        if (is_in_picture(&c->marks[i], r))
            put_mark_line(out, &c->marks[i], 100 * place_x(r, c->marks[i].x));
}

/* After the curves, so that they can be read. */
static void put_labels(strbuf *out, const svg_chart *c, const range *r) {
    label_rows rows = {0};
    for (int i = 0; i < c->n_marks && c->label_pixels > 0; i++)
        if (c->marks[i].label && is_in_picture(&c->marks[i], r))
            put_label(out, c, &c->marks[i], 100 * place_x(r, c->marks[i].x), &rows);
}

void svg_chart_write(strbuf *out, const svg_chart *c) {
    range r;
    if (!find_range(c, &r)) {
        strbuf_puts(out, "<p class=\"none\">Nothing recorded yet.</p>\n");
        return;
    }
    strbuf_printf(out,
                  "<svg class=\"chart\" role=\"img\" data-x0=\"%.9g\" data-x1=\"%.9g\" "
                  "data-y0=\"%.9g\" data-y1=\"%.9g\" data-log=\"%d\" aria-label=\"",
                  r.x0, r.x1, r.y0, r.y1, r.log_x);
    svg_put_escaped(out, c->title);
    strbuf_puts(out, "\">\n");
    put_y_axis(out, &r);
    put_x_axis(out, c, &r);
    put_marks(out, c, &r);
    strbuf_printf(out,
                  "<svg class=\"plot\" width=\"100%%\" height=\"100%%\" viewBox=\"0 0 %d %d\" "
                  "preserveAspectRatio=\"none\">\n",
                  GRID, GRID);
    for (int i = 0; i < c->n_series; i++) put_series(out, &c->series[i], &r);
    strbuf_puts(out, "</svg>\n");
    put_labels(out, c, &r);
    strbuf_puts(out, "</svg>\n");
}
