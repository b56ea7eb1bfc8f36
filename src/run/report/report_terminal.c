/* The loss curve in a terminal: braille dots, two columns and four rows a character. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "run/report/report.h"
#include "run/report/svg.h"

enum { DOTS_X = 2, DOTS_Y = 4, LABEL = 7, MAX_SIDE = 400 };

/* Braille cells, row by row; each byte holds the dots of one character. */
typedef struct canvas {
    unsigned char *cells;
    int columns, rows;
} canvas;

static void set_dot(canvas *c, int x, int y) {
    static const unsigned char BITS[DOTS_Y][DOTS_X] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    c->cells[y / DOTS_Y * c->columns + x / DOTS_X] |= BITS[y % DOTS_Y][x % DOTS_X];
}

/* The mean of the finite values that fall into a column of dots; NaN when none does. Where there
 * are no more values than columns the line between them is followed. */
static double column_mean(const double *values, int64_t n, int column, int columns) {
    int64_t from = (int64_t)((double)column * (double)n / columns);
    int64_t to = (int64_t)((double)(column + 1) * (double)n / columns);
    double sum = 0;
    int64_t count = 0;
    if (n <= columns) {
        double at = columns > 1 ? (double)column * (double)(n - 1) / (columns - 1) : 0;
        int64_t i = (int64_t)at < n - 1 ? (int64_t)at : n - 1;
        if (at == (double)i || i == n - 1) return values[i]; /* the next one may be no number */
        return values[i] + (at - (double)i) * (values[i + 1] - values[i]);
    }
    for (int64_t i = from; i < to; i++) {
        if (!isfinite(values[i])) continue;
        sum += values[i];
        count++;
    }
    return count ? sum / (double)count : (double)NAN;
}

static int dot_row(const canvas *c, double value, double low, double high) {
    double place = high > low ? (high - value) / (high - low) : 0.5;
    return (int)lrint(place * (c->rows * DOTS_Y - 1));
}

static void draw(canvas *c, const double *means, int columns, double low, double high) {
    int before = -1;
    for (int x = 0; x < columns; x++) {
        if (!isfinite(means[x])) {
            before = -1;
            continue;
        }
        int y = dot_row(c, means[x], low, high), from = before < 0 ? y : before;
        for (int k = from < y ? from : y; k <= (from < y ? y : from); k++) set_dot(c, x, k);
        before = y;
    }
}

static void put_row(strbuf *out, const canvas *c, int row, double low, double high) {
    char text[32] = "";
    if (row == 0) svg_format_number(text, high);
    if (row == c->rows - 1 && row > 0) svg_format_number(text, low);
    strbuf_printf(out, "%*s \xe2\x94\x82", LABEL - 1, text); /* a vertical bar */
    for (int x = 0; x < c->columns; x++) {
        unsigned char dots = c->cells[row * c->columns + x];
        const char braille[] = {(char)0xe2, (char)(0xa0 | dots >> 6), (char)(0x80 | (dots & 0x3f))};
        strbuf_append(out, braille, sizeof braille);
    }
    strbuf_putc(out, '\n');
}

void report_terminal_curve(strbuf *out, const double *values, int64_t n, int width, int height) {
    width = width < LABEL + 3 ? LABEL + 3 : width > MAX_SIDE ? MAX_SIDE : width;
    height = height < 1 ? 1 : height > MAX_SIDE ? MAX_SIDE : height;
    canvas c = {.columns = width - LABEL - 1, .rows = height};
    int columns = c.columns * DOTS_X;
    double *means = xmalloc(sizeof *means * (size_t)columns), low = INFINITY, high = -INFINITY;
    for (int x = 0; x < columns && n > 0; x++) {
        means[x] = column_mean(values, n, x, columns);
        if (!isfinite(means[x])) continue;
        low = fmin(low, means[x]);
        high = fmax(high, means[x]);
    }
    if (isfinite(low)) {
        c.cells = xcalloc((size_t)c.columns * (size_t)c.rows, 1);
        draw(&c, means, columns, low, high);
        for (int row = 0; row < c.rows; row++) put_row(out, &c, row, low, high);
        free(c.cells);
    }
    free(means);
}
