/* Pictures as SVG, the same bytes for the same numbers: line charts for the report's page, and what
 * pictures that stand alone have in common (a comparison of tokenizers, a profile). The colours are
 * the same everywhere. */
#ifndef RUN_SVG_H
#define RUN_SVG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"

/* ---- colours ---- */

/* Paper, text, text of less weight, and lines, on light and dark pages. */
#define SVG_PAPER "#fbfaf7"
#define SVG_INK "#1f1b16"
#define SVG_SOFT "#6d655b"
#define SVG_LINE "#e6e0d6"
#define SVG_DARK_PAPER "#161311"
#define SVG_DARK_INK "#f1ebe3"
#define SVG_DARK_SOFT "#a79d91"
#define SVG_DARK_LINE "#38312b"

/* ---- line charts ---- */

/* The curves lie in an inner picture that stretches with the page while strokes and text keep their
 * size, so a chart is as legible on a telephone as on paper. Colours come from the page's style by
 * class. */
enum { SVG_MAX_SERIES = 4, SVG_MAX_MARKS = 100, SVG_MAX_POINTS = 2000, SVG_MAX_TICKS = 12 };

typedef struct svg_series {
    const char *name;    /* for the pointer's label; NULL: none */
    const char *css;     /* class of its strokes */
    const double *x, *y; /* x ascending; a y that is not finite is a gap */
    int64_t n;
    bool dots;           /* a dot at each point beside the line */
    const double *error; /* [n] half the length of a bar at each point, or NULL */
} svg_series;

/* A vertical line at a step: where a stage begins, or an alarm. */
typedef struct svg_mark {
    double x;
    const char *label; /* beside the line, and for the pointer; NULL: none */
    const char *css;   /* class of line and label */
    int row;           /* of its label, 0 or 1: where two would overlap, the second is left out */
} svg_mark;

typedef struct svg_chart {
    const char *title;   /* also what a screen reader says */
    const char *x_label; /* NULL: none */
    svg_series series[SVG_MAX_SERIES];
    int n_series;
    bool log_x;            /* only with x > 0 */
    bool from_zero;        /* the y axis starts at 0 */
    bool cut_outliers;     /* the top 0.5 % of the values may lie above the picture */
    double y_top;          /* what exceeds it lies above the picture; NaN: no bound */
    const svg_mark *marks; /* ascending x; those left of the picture are not drawn */
    int n_marks;
    int label_pixels; /* usual width of the chart, to place labels by; 0: marks have none */
} svg_chart;

/* Appends one <svg> element, or a short <p> when there is no finite value. */
void svg_chart_write(strbuf *out, const svg_chart *c);

/* At most max_points of the n points, such that the picture stays the same: of each of
 * max_points / 2 columns the lowest and the highest, in order; of one without a finite value one
 * point. Writes indices to `out` and returns how many. */
int64_t svg_decimate(const double *x, const double *y, int64_t n, double x0, double x1, bool log_x,
                     int64_t max_points, int64_t *out);
/* Multiples of 1, 2 or 5 times a power of ten that lie in [lo, hi], about `want` of them. */
int svg_ticks(double lo, double hi, int want, double *out);
/* A number for an axis or a label: 1.5k, 2M, 3e-4, 0.25. */
void svg_format_number(char out[32], double value);
void svg_put_number(strbuf *out, double value);

/* ---- pictures that stand alone ---- */

/* Classes of their style:
 *   t h s v     text: title, heading, of less weight, small
 *   m e         text around x, text that ends at x; without them it begins there
 *   g a         lines: of a grid, of an axis
 *   b0 .. b8    surfaces in colours that can be told apart, on which ink is legible in light and dark
 *   f           a surface of no colour
 *   c           a group whose surface is outlined under the pointer */
enum { SVG_COLORS = 9 };
/* Appends the head, the style and the paper; svg_close ends the picture. Both sides in pixels. */
void svg_open(strbuf *out, double width, double height, const char *title);
void svg_close(strbuf *out);
/* `css`: classes, or "". */
void svg_text(strbuf *out, const char *css, double x, double y, const char *text);
/* How many letters of usual text have room, rather too few. */
int svg_letters(double width);
/* Text cut off where it must be; what would be three letters or fewer is left out. */
void svg_text_within(strbuf *out, const char *css, double x, double y, double width,
                     const char *text);
/* A small square of colour b0 .. b8 and what it stands for; y is the text's. */
void svg_key(strbuf *out, int color, double x, double y, const char *text);

/* ---- text ---- */

/* Appends text for HTML content or a quoted attribute: & < > " ' are escaped, control characters
 * shown as U+FFFD. */
void svg_put_escaped(strbuf *out, const char *text);
/* The same between two pieces of markup. */
void svg_put_between(strbuf *out, const char *before, const char *text, const char *after);
/* The same for n bytes with a NUL after them; there may be more NULs among them. */
void svg_put_escaped_bytes(strbuf *out, const char *text, size_t n);

#endif
