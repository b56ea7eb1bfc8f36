/* RUN/recipe.html: one page about all stages, in the style of a run's report: alone, without network, light or
 * dark, legible on a telephone. Stages that are not done yet are left out or said to be open. */
#include <math.h>
#include <string.h>

#include "app/recipe/recipe.h"
#include "base/file.h"
#include "base/json.h"
#include "run/metrics.h"
#include "run/report/report_data.h"

static const char page_css[] =
    ".promises{list-style:none;margin:0 0 28px;padding:0;font-size:17px}.promises li{margin:6px 0}"
    ".promises b{display:inline-block;width:1.4em;color:var(--good)}.promises .not "
    "b{color:var(--bad)}"
    ".promises small{color:var(--soft);font-size:14px;display:block;padding-left:1.9em}\n"
    ".cloze{width:100%;max-width:620px;height:auto;display:block}.cloze "
    "text{font-size:13px;fill:var(--ink)}"
    ".cloze .soft{fill:var(--soft)}.cloze .row{fill:var(--m3)}.cloze .best{fill:var(--ember)}"
    ".cloze .err{stroke:var(--ink);stroke-width:1.5}.cloze .chance{stroke:var(--cool);"
    "stroke-width:1.5;stroke-dasharray:4 3}\n"
    ".runs{display:grid;grid-template-columns:repeat(auto-fit,minmax(280px,1fr));gap:16px}\n"
    ".scroll{overflow-x:auto}table.plain{border-collapse:collapse;table-layout:auto;font-size:14px;"
    "width:100%}"
    "table.plain th,table.plain td{text-align:left;padding:6px 12px 6px 0;border-top:1px solid "
    "var(--line);vertical-align:top;font-variant-numeric:tabular-nums}"
    "table.plain code{display:block;overflow-wrap:anywhere;font-size:13px}"
    "table.plain td:nth-child(2){white-space:nowrap}"
    "table.plain th,table.plain td{overflow-wrap:normal}\n"
    ".talk{display:grid;gap:10px;max-width:44em}.talk p{margin:0;padding:8px "
    "14px;border-radius:12px;"
    "overflow-wrap:anywhere}.talk .user{background:var(--line);justify-self:end;max-width:85%}"
    ".talk .answer{background:var(--card);border:1px solid var(--line);justify-self:start;"
    "max-width:85%}.talk small{color:var(--soft);display:block}\n"
    "a{color:var(--cool)}\n";

static double value_at(const json_t *o, const char *a, const char *b) {
    return metrics_num(json_object_get(o, a), b);
}

/* ---- verdict and figures ---- */

static void put_promises(strbuf *out, const recipe *r) {
    json_t *list = recipe_promises(r), *v;
    size_t i;
    strbuf_puts(out, "<ul class=\"promises\">\n");
    json_array_foreach(list, i, v) {
        bool ok = json_is_true(json_object_get(v, "ok"));
        strbuf_printf(out, "<li%s><b>%s</b>", ok ? "" : " class=\"not\"", ok ? "✓" : "✗");
        svg_put_escaped(out, metrics_text(v, "name"));
        svg_put_between(out, "<small>", metrics_text(v, "detail"), "</small></li>\n");
    }
    strbuf_puts(out, "</ul>\n");
    json_decref(list);
}

static void put_figure(strbuf *out, const char *label, const char *value, const char *note) {
    strbuf_printf(out, "<div><dt>%s</dt><dd>%s<small>", label, value);
    svg_put_escaped(out, note);
    strbuf_puts(out, "</small></dd></div>\n");
}

static void put_figures(strbuf *out, const recipe *r) {
    char text[32];
    double seconds = 0;
    const json_t *pretrain = recipe_result(r, "pretrain"), *data = recipe_result(r, "data");
    for (int i = 0; i < r->class->n_stages; i++)
        seconds += recipe_seconds(r, r->class->stages[i].name);
    strbuf_puts(out, "<dl class=\"figures\">\n");
    progress_format_duration(seconds, text);
    put_figure(out, "time", text, "of all stages");
    if (pretrain) {
        svg_format_number(text, metrics_num(pretrain, "params"));
        put_figure(out, "parameters", text, "of the model");
        snprintf(text, sizeof text, "%.3f", metrics_num(pretrain, "val_bpb"));
        put_figure(out, "bits per byte", text, "of held-out text, pretrained");
    }
    if (data) {
        svg_format_number(text, metrics_num(data, "train_tokens"));
        put_figure(out, "tokens", text, metrics_text(recipe_result(r, "text"), "what"));
    }
    strbuf_puts(out, "</dl>\n");
}

/* ---- cloze ---- */

typedef struct bar {
    const char *stage, *model, *label;
} bar;

static const bar bars[] = {{"evaluate", "untrained", "no training"},
                           {"evaluate", "pretrained", "pretrained"},
                           {"evaluate-again", "taught", "taught"},
                           {"evaluate-again", "preferring", "preferring"}};

enum { BAR_LEFT = 90, BAR_WIDTH = 300, BAR_STEP = 34 };

static double bar_x(double share) {
    return BAR_LEFT + BAR_WIDTH * share;
}

static void put_bar(strbuf *out, const recipe *r, int i) {
    const json_t *v = recipe_result(r, bars[i].stage);
    double acc = value_at(v, bars[i].model, "acc"), error = value_at(v, bars[i].model, "stderr");
    int y = 12 + i * BAR_STEP;
    if (!isfinite(acc)) return;
    strbuf_printf(
        out,
        "<text x=\"0\" y=\"%d\">%s</text><rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" "
        "height=\"20\" rx=\"3\"/><path class=\"err\" d=\"M%.1f %dH%.1fM%.1f %dv8M%.1f %dv8\"/>",
        y + 15, bars[i].label, i ? "best" : "row", BAR_LEFT, y, BAR_WIDTH * acc,
        bar_x(acc - 1.96 * error), y + 10, bar_x(acc + 1.96 * error), bar_x(acc - 1.96 * error),
        y + 6, bar_x(acc + 1.96 * error), y + 6);
    strbuf_printf(out, "<text x=\"%.1f\" y=\"%d\">%.1f %%</text>\n", bar_x(acc + 1.96 * error) + 8,
                  y + 15, 100 * acc);
}

static void put_cloze(strbuf *out, const recipe *r) {
    const json_t *tasks = recipe_result(r, "tasks");
    if (!recipe_result(r, "evaluate")) return;
    int height = ARRAY_LEN(bars) * BAR_STEP + 30;
    strbuf_printf(
        out,
        "<section>\n<h2>Which beginning goes before this ending?</h2>\n<figure>\n<svg "
        "class=\"cloze\" viewBox=\"0 0 430 %d\" role=\"img\" aria-label=\"Right answers of "
        "four choices\">\n",
        height);
    for (int i = 0; i < ARRAY_LEN(bars); i++) put_bar(out, r, i);
    strbuf_printf(out,
                  "<path class=\"chance\" d=\"M%.1f 4V%d\"/><text class=\"soft\" x=\"%.1f\" "
                  "y=\"%d\">chance, 25 %%</text>\n</svg>\n</figure>\n",
                  bar_x(0.25), height - 20, bar_x(0.25) - 30, height - 4);
    strbuf_printf(
        out,
        "<p class=\"none\">%lld questions from held-out text, four beginnings each; lines are "
        "95 %% intervals. <code>athanor eval MODEL --tasks ",
        (long long)metrics_int(tasks, "cloze", 0));
    report_put_shell_word(out, recipe_path(r, "tasks/cloze.yaml"));
    strbuf_puts(out, "</code></p>\n</section>\n");
}

/* ---- runs ---- */

static void put_curve(strbuf *out, const recipe *r, const char *run, const char *title) {
    report_data d;
    err ignored;
    if (!recipe_result(r, run) ||
        report_data_load(&d, recipe_path(r, run), NULL, &ignored) != ST_OK)
        return;
    const double *x = d.steps.column[COLUMN_STEP];
    svg_chart c = {
        .title = title,
        .x_label = "step",
        .series = {{"each step", "raw", x, d.steps.column[COLUMN_LOSS], d.steps.n, false, NULL},
                   {"smoothed", "smooth", x, d.steps.smooth[COLUMN_LOSS], d.steps.n, false, NULL},
                   {"held out", "valid", d.valid.column[COLUMN_STEP], d.valid.column[COLUMN_LOSS],
                    d.valid.n, true, NULL}},
        .n_series = d.valid.n ? 3 : 2,
        .y_top = NAN};
    strbuf_printf(
        out, "<figure class=\"small\">\n<figcaption>%s</figcaption>\n<p class=\"legend\">", title);
    for (int i = 0; i < c.n_series; i++)
        strbuf_printf(out, "<span class=\"%s\">%s</span>", c.series[i].css, c.series[i].name);
    strbuf_puts(out, "</p>\n<div class=\"frame\">\n");
    svg_chart_write(out, &c);
    strbuf_printf(out,
                  "</div>\n<p class=\"none\"><a href=\"%s/report.html\">its report</a>, "
                  "<a href=\"configs/%s.yaml\">its config</a></p>\n</figure>\n",
                  run, run);
    report_data_free(&d);
}

static void put_runs(strbuf *out, const recipe *r) {
    if (!recipe_result(r, "pretrain")) return;
    strbuf_puts(out, "<section>\n<h2>Learning</h2>\n<div class=\"runs\">\n");
    put_curve(out, r, "pretrain", "Pretraining: loss, nats per token");
    put_curve(out, r, "teach", "Teaching: loss of answers");
    put_curve(out, r, "prefer", "Preferring: loss of pairs (DPO)");
    strbuf_puts(out, "</div>\n</section>\n");
}

/* ---- answers ---- */

static void put_endings(strbuf *out, const recipe *r) {
    static const char *const rows[][2] = {
        {"pretrain", "pretrained"}, {"teach", "taught"}, {"prefer", "preferring"}};
    const json_t *v = json_object_get(recipe_result(r, "evaluate-again"), "endings");
    if (!v) return;
    strbuf_puts(out,
                "<section>\n<h2>Do answers end?</h2>\n<div class=\"scroll\"><table class=\"plain\">"
                "<tr><th>model</th><th>held-out questions</th><th>answers that end by the stop "
                "token</th></tr>\n");
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        double n = value_at(v, rows[i][0], "answers"), ended = value_at(v, rows[i][0], "ended");
        strbuf_printf(out, "<tr><td>%s</td><td>%.0f</td><td>%.0f (%.1f %%)</td></tr>\n", rows[i][1],
                      n, ended, n > 0 ? 100 * ended / n : 0);
    }
    strbuf_puts(out, "</table></div>\n</section>\n");
}

static void put_talk(strbuf *out, const recipe *r) {
    const json_t *turns = json_object_get(recipe_result(r, "chat"), "turns");
    size_t i;
    json_t *v;
    if (!turns) return;
    strbuf_puts(out, "<section>\n<h2>Talking</h2>\n<div class=\"talk\">\n");
    json_array_foreach((json_t *)turns, i, v) {
        svg_put_between(out, "<p class=\"user\">", metrics_text(v, "user"), "</p>\n");
        svg_put_between(out, "<p class=\"answer\">", metrics_text(v, "assistant"), "");
        svg_put_between(out, "<small>the text has: ", metrics_text(v, "text"), "</small></p>\n");
    }
    strbuf_puts(
        out, "</div>\n<p class=\"none\">Questions from held-out text, the most likely tokens.</p>\n"
             "</section>\n");
}

/* ---- what it gave, and how ---- */

static void put_exports(strbuf *out, const recipe *r) {
    const json_t *v = recipe_result(r, "export");
    const char *key;
    json_t *o;
    if (!v) return;
    strbuf_puts(
        out, "<section>\n<h2>For other programs</h2>\n<div class=\"scroll\"><table class=\"plain\">"
             "<tr><th>form</th><th>where</th><th>size</th><th>largest difference of a "
             "logit</th></tr>\n");
    json_object_foreach((json_t *)v, key, o) {
        strbuf_printf(out, "<tr><td>%s</td><td><code>", key);
        svg_put_escaped(out, metrics_text(o, "path"));
        strbuf_puts(out, "</code></td><td>");
        report_put_bytes(out, metrics_num(o, "bytes"));
        strbuf_printf(out, "</td><td>%.3g, %s</td></tr>\n", metrics_num(o, "max_abs_logit_diff"),
                      json_is_true(json_object_get(o, "verified")) ? "verified" : "not verified");
    }
    strbuf_puts(
        out, "</table></div>\n<p class=\"none\">Where the model comes from, with digests of all: "
             "<code>export/hf/athanor_ledger.json</code>.</p>\n</section>\n");
}

static void put_stages(strbuf *out, const recipe *r) {
    size_t j;
    json_t *c;
    strbuf_puts(out, "<section>\n<h2>Stages</h2>\n<div class=\"scroll\"><table class=\"plain\">"
                     "<tr><th>stage</th><th>time</th><th>what was run</th></tr>\n");
    for (int i = 0; i < r->class->n_stages; i++) {
        const recipe_stage *k = &r->class->stages[i];
        const json_t *o = json_object_get(json_object_get(r->state, "stages"), k->name);
        char time[24] = "open";
        if (o) progress_format_duration(recipe_seconds(r, k->name), time);
        strbuf_printf(out, "<tr><td><b>%s</b><br>%s</td><td>%s</td><td>", k->name, k->what, time);
        json_array_foreach(json_object_get(o, "commands"), j, c)
            svg_put_between(out, "<code>", json_string_value(c), "</code>");
        strbuf_puts(out, "</td></tr>\n");
    }
    strbuf_printf(
        out,
        "</table></div>\n<p class=\"none\">Change a config and do its stage and all after it "
        "again: <code>athanor recipe %s -o ",
        r->class->name);
    report_put_shell_word(out, r->run);
    strbuf_puts(out, " --from STAGE</code></p>\n</section>\n");
}

status recipe_write_page(const recipe *r, err *e) {
    strbuf out = {0};
    strbuf_puts(&out, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta name=\"color-scheme\" content=\"light dark\">\n");
    strbuf_printf(&out, "<title>%s</title>\n<style>\n%s%s</style>\n<main>\n", r->class->name,
                  report_css, page_css);
    strbuf_printf(&out, "<p class=\"kind\">Recipe</p>\n<h1>%s</h1>\n<p class=\"verdict\">%s.</p>\n",
                  r->class->name, r->class->summary);
    put_promises(&out, r);
    put_figures(&out, r);
    put_cloze(&out, r);
    put_runs(&out, r);
    put_endings(&out, r);
    put_talk(&out, r);
    put_exports(&out, r);
    put_stages(&out, r);
    strbuf_puts(&out, "</main>\n</html>\n");
    status st = file_write_atomic(recipe_path(r, "recipe.html"), out.data, out.len, e);
    strbuf_free(&out);
    return st;
}
