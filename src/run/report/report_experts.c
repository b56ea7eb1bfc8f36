/* The load of experts as maps: now, layers by experts; and of each layer, experts by steps. What is even is grey, what
 * is less used cold, what is more used warm, and what no token reaches has the colour of text, so that dead experts
 * are seen at once.
 *
 * A map is a picture whose units are its cells, stretched to the width of the page. Cells of one shade that touch in a row are one
 * rectangle, and all of a shade are one path. */
#include <math.h>

#include "run/metrics.h"
#include "run/report/report_data.h"

/* All maps over time together have no more cells than this, but each has some columns. */
enum { MOST_CELLS = 150000, FEWEST_COLUMNS = 8, MOST_COLUMNS = 96 };

/* Shares of the even load, in percent, up to which a shade goes. */
static const struct {
    double below;
    const char *css, *name;
} SHADES[] = {
    {0.5, "none", "no tokens"},
    {50, "low2", "below half of the mean"},
    {80, "low1", "below 4/5"},
    {125, "even", "near the mean"},
    {200, "high1", "above 5/4"},
    {400, "high2", "above twice the mean"},
    {INFINITY, "high3", "above 4 times"},
};

static int shade_of(double load) {
    int i = 0;
    while (i < ARRAY_LEN(SHADES) - 1 && !(load < SHADES[i].below)) i++;
    return i;
}

/* What the events say, of those whose shape is that of the last. */
typedef struct expert_load {
    const json_t **event; /* [n] */
    size_t n, layers, experts;
} expert_load;

static const json_t *row_of(const json_t *event, size_t layer) {
    return json_array_get(json_object_get(event, "load"), layer);
}

/* The load in percent; NaN: the file does not say it. */
static double load_at(const json_t *event, size_t layer, size_t expert) {
    const json_t *x = json_array_get(row_of(event, layer), expert);
    return json_is_number(x) ? json_number_value(x) : (double)NAN;
}

static expert_load collect(const report_data *d) {
    size_t all = json_array_size(d->experts);
    const json_t *last = json_array_get(d->experts, all - 1);
    expert_load x = {.event = ARENA_ARRAY(d->memory, const json_t *, all),
                     .layers = json_array_size(json_object_get(last, "load")),
                     .experts = json_array_size(row_of(last, 0))};
    for (size_t i = 0; i < all; i++) {
        const json_t *event = json_array_get(d->experts, i);
        bool same = json_array_size(json_object_get(event, "load")) == x.layers;
        for (size_t l = 0; same && l < x.layers; l++)
            same = json_array_size(row_of(event, l)) == x.experts;
        if (same) x.event[x.n++] = event;
    }
    return x;
}

/* At most `most` events, evenly apart, the last among them. */
static void thin_out(expert_load *x, size_t most) {
    size_t every = (x->n + most - 1) / most, n = 0;
    for (size_t i = (x->n - 1) % every; i < x->n; i += every) x->event[n++] = x->event[i];
    x->n = n;
}

/* ---- a map ---- */

/* Load of a cell; NaN: it stays empty. */
typedef double (*cell_fn)(const expert_load *x, size_t layer, size_t row, size_t col);

static double cell_now(const expert_load *x, size_t layer, size_t row, size_t col) {
    (void)layer;
    return load_at(x->event[x->n - 1], row, col);
}

static double cell_then(const expert_load *x, size_t layer, size_t row, size_t col) {
    return load_at(x->event[col], layer, row);
}

static void put_shade(strbuf *out, const expert_load *x, cell_fn cell, size_t layer, size_t rows,
                      size_t cols, int shade) {
    bool any = false;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0, end; c < cols; c = end) {
            double load = cell(x, layer, r, c);
            for (end = c + 1; end < cols; end++) {
                double next = cell(x, layer, r, end);
                if (isnan(next) || isnan(load) || shade_of(next) != shade_of(load)) break;
            }
            if (isnan(load) || shade_of(load) != shade) continue;
            if (!any) strbuf_printf(out, "<path class=\"%s\" d=\"", SHADES[shade].css);
            any = true;
            strbuf_printf(out, "M%zu %zuh%zuv1h-%zuz", c, r, end - c, end - c);
        }
    if (any) strbuf_printf(out, "\"><title>%s</title></path>", SHADES[shade].name);
}

static void put_map(strbuf *out, const expert_load *x, cell_fn cell, size_t layer, size_t rows,
                    size_t cols, const char *title) {
    double height = fmin(fmax(9.0 * (double)rows, 60), 240);
    strbuf_printf(out,
                  "<svg class=\"map\" role=\"img\" aria-label=\"%s\" viewBox=\"0 0 %zu %zu\" "
                  "style=\"height:%.0fpx\" preserveAspectRatio=\"none\">",
                  title, cols, rows, height);
    for (int shade = 0; shade < ARRAY_LEN(SHADES); shade++)
        put_shade(out, x, cell, layer, rows, cols, shade);
    strbuf_puts(out, "</svg>\n");
}

static void put_ends(strbuf *out, const char *what, double first, double last) {
    strbuf_printf(out, "<p class=\"ends\"><span>%s ", what);
    svg_put_number(out, first);
    strbuf_puts(out, "</span><span>");
    svg_put_number(out, last);
    strbuf_puts(out, "</span></p>\n");
}

/* ---- the section ---- */

static void put_shades(strbuf *out) {
    strbuf_puts(out, "<p class=\"shades\">");
    for (int i = 0; i < ARRAY_LEN(SHADES); i++)
        strbuf_printf(out, "<span><i class=\"%s\"></i>%s</span>", SHADES[i].css, SHADES[i].name);
    strbuf_puts(out, "</p>\n");
}

static long long number_of(const expert_load *x, size_t layer) {
    const json_t *event = x->event[x->n - 1];
    return json_integer_value(json_array_get(json_object_get(event, "layers"), layer));
}

static int unused(const expert_load *x, size_t layer) {
    int n = 0;
    for (size_t e = 0; e < x->experts; e++)
        n += shade_of(load_at(x->event[x->n - 1], layer, e)) == 0;
    return n;
}

static void put_now(strbuf *out, const expert_load *x) {
    double step = metrics_num(x->event[x->n - 1], "step");
    strbuf_puts(out, "<figure class=\"wide\">\n<figcaption>At step ");
    svg_put_number(out, step);
    strbuf_puts(out, ": a row for each layer, a column for each expert</figcaption>\n");
    put_shades(out);
    put_map(out, x, cell_now, 0, x->layers, x->experts, "Load of experts now, by layer");
    put_ends(out, "expert", 0, (double)x->experts - 1);
    strbuf_puts(out, "</figure>\n");
}

static void put_layer(strbuf *out, const expert_load *x, size_t layer) {
    char title[64];
    snprintf(title, sizeof title, "Layer %lld", number_of(x, layer));
    strbuf_printf(out, "<figure>\n<figcaption>%s", title);
    int none = unused(x, layer);
    if (none) strbuf_printf(out, " <small>%d without tokens</small>", none);
    strbuf_puts(out, "</figcaption>\n");
    put_map(out, x, cell_then, layer, x->experts, x->n, title);
    put_ends(out, "step", metrics_num(x->event[0], "step"),
             metrics_num(x->event[x->n - 1], "step"));
    strbuf_puts(out, "</figure>\n");
}

void report_put_experts(strbuf *out, const report_data *d) {
    enum { OPEN_LAYERS = 12 }; /* more of them are folded */
    if (json_array_size(d->experts) == 0) return;
    expert_load x = collect(d);
    if (x.layers == 0 || x.experts == 0 || x.n == 0) return;
    size_t columns = MOST_CELLS / (x.layers * x.experts);
    columns = columns < FEWEST_COLUMNS ? FEWEST_COLUMNS : columns;
    thin_out(&x, columns < MOST_COLUMNS ? columns : MOST_COLUMNS);
    strbuf_puts(out, "<section class=\"experts\">\n<h2>Load of experts</h2>\n");
    put_now(out, &x);
    bool folds = x.layers > OPEN_LAYERS;
    if (folds) strbuf_puts(out, "<details><summary>All layers over the steps</summary>\n");
    strbuf_puts(out, "<p class=\"none\">Each layer over the steps, a row for each expert, the "
                     "first above.</p>\n<div class=\"maps\">\n");
    for (size_t l = 0; l < x.layers; l++) put_layer(out, &x, l);
    strbuf_puts(out, "</div>\n");
    if (folds) strbuf_puts(out, "</details>\n");
    strbuf_puts(out, "</section>\n");
}
