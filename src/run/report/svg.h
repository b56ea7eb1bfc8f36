/* Line charts as inline SVG: nice ticks, few points, the same bytes for the same numbers.
 *
 * The curves lie in an inner picture that stretches with the page while strokes and text keep their
 * size, so a chart is as legible on a telephone as on paper. Colours come from the page's style by
 * class. */
#ifndef RUN_SVG_H
#define RUN_SVG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"

enum { SVG_MAX_SERIES = 4, SVG_MAX_MARKS = 100, SVG_MAX_POINTS = 2000, SVG_MAX_TICKS = 12 };

typedef struct svg_series {
    const char *name;    /* for the pointer's label; NULL: none */
    const char *css;     /* class of its strokes */
    const double *x, *y; /* x ascending; a y that is not finite is a gap */
    int64_t n;
    bool dots; /* a dot at each point beside the line */
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
/* Appends text for HTML content or a quoted attribute: & < > " ' are escaped, control characters
 * shown as U+FFFD. */
void svg_put_escaped(strbuf *out, const char *text);
/* The same for n bytes with a NUL after them; there may be more NULs among them. */
void svg_put_escaped_bytes(strbuf *out, const char *text, size_t n);

#endif
