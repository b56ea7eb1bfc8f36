/* The page: its frame and the sections verdict and figures, curves, samples, memory, next steps,
 * config; alarms and stages are in report_events.c. All text from the run folder passes through
 * svg_put_escaped. Written in one step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "run/metrics.h"
#include "run/report/report.h"
#include "run/report/report_data.h"
#include "run/report/svg.h"

/* ---- verdict and figures ---- */

static bool has_any(const report_data *d, report_column column) {
    for (int64_t i = 0; i < d->steps.n; i++)
        if (isfinite(d->steps.column[column][i])) return true;
    return false;
}

static void put_trained(strbuf *out, const report_data *d) {
    double text_bytes = metrics_num(d->start, "text_bytes"), tokens = (double)d->summary.tokens;
    strbuf_puts(out, "Trained");
    if (d->summary.params > 0) {
        strbuf_putc(out, ' ');
        svg_put_number(out, (double)d->summary.params);
        strbuf_puts(out, " parameters");
    }
    if (isfinite(text_bytes)) {
        strbuf_puts(out, " on ");
        report_put_bytes(out, text_bytes);
        strbuf_puts(out, " of text");
    }
    if (tokens > 0) {
        strbuf_puts(out, isfinite(text_bytes) ? ", " : " on ");
        svg_put_number(out, tokens);
        strbuf_puts(out, isfinite(text_bytes) ? " tokens in all," : " tokens");
    }
    strbuf_puts(out, " for ");
    report_put_seconds(out, d->train_s);
}

/* Losses of preferences and of heads of labels are of samples, and have no unit. */
static const char *unit_of_loss(const report_data *d) {
    const char *objective = metrics_text(json_object_get(d->config, "train"), "objective");
    bool head = strcmp(objective, "classify") == 0 || strcmp(objective, "reward") == 0;
    return head || has_any(d, COLUMN_REWARD_CHOSEN) ? "" : "nats per token";
}

static void put_outcome(strbuf *out, const report_data *d) {
    const run_summary *s = &d->summary;
    const char *unit = unit_of_loss(d), *space = *unit ? " " : "";
    if (isfinite(s->val_loss)) {
        strbuf_printf(out, "; validation loss %.3g%s%s", s->val_loss, space, unit);
        if (isfinite(s->val_bpb)) strbuf_printf(out, " = %.3g bits per byte", s->val_bpb);
    } else if (isfinite(s->last_loss)) {
        strbuf_printf(out, "; training loss %.3g%s%s", s->last_loss, space, unit);
    }
    strbuf_putc(out, '.');
}

static void put_verdict(strbuf *out, const report_data *d) {
    const run_summary *s = &d->summary;
    strbuf_puts(out, "<p class=\"verdict\">");
    if (s->steps == 0) {
        strbuf_puts(out, "No step has been recorded yet.");
    } else {
        put_trained(out, d);
        put_outcome(out, d);
    }
    if (strcmp(s->state, "failed") == 0)
        strbuf_printf(out, " The run stopped after step %lld: see the alarm below.",
                      (long long)s->steps);
    strbuf_puts(out, "</p>\n");
}

static void put_figure(strbuf *out, const char *label, const char *value, const char *note) {
    strbuf_printf(out, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", label, value, note);
}

static void put_number_figure(strbuf *out, const char *label, double value, const char *note) {
    char text[32];
    if (!isfinite(value) || value < 0) return;
    svg_format_number(text, value);
    put_figure(out, label, text, note);
}

static void put_steps_figure(strbuf *out, const run_summary *s) {
    char steps[32], of[48] = "", planned[32];
    svg_format_number(steps, (double)s->steps);
    if (s->planned_steps > 0) {
        svg_format_number(planned, (double)s->planned_steps);
        snprintf(of, sizeof of, "of %s", planned);
    }
    put_figure(out, "Steps", steps, of);
}

static void put_memory_figure(strbuf *out, const run_summary *s) {
    if (s->peak_rss_bytes <= 0) return;
    strbuf text = {0};
    report_put_bytes(&text, (double)s->peak_rss_bytes);
    put_figure(out, "Peak memory", text.data, "");
    strbuf_free(&text);
}

static void put_figures(strbuf *out, const report_data *d) {
    const run_summary *s = &d->summary;
    int64_t n = d->steps.n;
    double mfu = n ? d->steps.column[COLUMN_MFU][n - 1] : (double)NAN;
    strbuf_puts(out, "<dl class=\"figures\">\n");
    put_number_figure(out, "Validation loss", s->val_loss, unit_of_loss(d));
    put_number_figure(out, "Bits per byte", s->val_bpb, "on held-out text");
    put_number_figure(out, "Training loss", s->last_loss, "last step");
    put_steps_figure(out, s);
    put_number_figure(out, "Parameters", (double)s->params, "");
    put_number_figure(out, "Speed", d->mean_tok_per_s, "tokens per second");
    put_number_figure(out, "MFU", mfu, "% of peak FLOPs");
    put_memory_figure(out, s);
    strbuf_puts(out, "</dl>\n");
}

static void put_header(strbuf *out, const report_data *d) {
    const run_summary *s = &d->summary;
    strbuf_puts(out, "<header>\n<p class=\"kind\">Training report</p>\n<h1>");
    svg_put_escaped(out, s->name);
    strbuf_printf(out, " <span class=\"state %s\">%s</span></h1>\n", s->state, s->state);
    put_verdict(out, d);
    put_figures(out, d);
    strbuf_puts(out, "</header>\n");
}

/* ---- curves ---- */

static svg_series series_of(const report_data *d, const double *y, const char *name,
                            const char *css) {
    return (svg_series){
        .name = name, .css = css, .x = d->steps.column[COLUMN_STEP], .y = y, .n = d->steps.n};
}

static void put_key(strbuf *out, const svg_series *s) {
    strbuf_printf(out, "<span class=\"%s\">", s->css);
    svg_put_between(out, "", s->name, "</span>");
}

/* Series without a name are the faint background of another. */
static void put_legend(strbuf *out, const svg_chart *c) {
    int alarms = 0, n = 0;
    for (int i = 0; i < c->n_marks; i++) alarms += strcmp(c->marks[i].css, "alarm") == 0;
    for (int i = 0; i < c->n_series; i++) n += c->series[i].name != NULL;
    if (n + alarms < 2) return;
    strbuf_puts(out, "<p class=\"legend\">");
    for (int i = 0; i < c->n_series; i++)
        if (c->series[i].name) put_key(out, &c->series[i]);
    if (alarms > 0)
        strbuf_printf(out, "<span class=\"alarm\">%s</span>", alarms == 1 ? "alarm" : "alarms");
    strbuf_puts(out, "</p>\n");
}

void report_put_chart(strbuf *out, const svg_chart *c, const char *css) {
    strbuf_printf(out, "<figure class=\"%s\">\n", css);
    svg_put_between(out, "<figcaption>", c->title, "</figcaption>\n");
    put_legend(out, c);
    strbuf_puts(out, "<div class=\"frame\">\n");
    svg_chart_write(out, c);
    strbuf_puts(out, "</div>\n</figure>\n");
}

/* The first twentieth of a run falls so far that it would flatten the rest: over linear steps it
 * may lie above the picture, and so may single steps far above the curve. */
static double usual_loss(const report_data *d) {
    const double *smooth = d->steps.smooth[COLUMN_LOSS], *raw = d->steps.column[COLUMN_LOSS];
    int64_t n = d->steps.n, first = n / 20;
    double low = INFINITY, top = -INFINITY, highest = -INFINITY;
    if (n < 100) return NAN;
    for (int64_t i = first; i < n; i++) {
        low = fmin(low, smooth[i]);
        top = fmax(top, smooth[i]);
        highest = fmax(highest, raw[i]);
    }
    for (int64_t i = 0; i < d->valid.n; i++)
        if (d->valid.column[COLUMN_STEP][i] > d->steps.column[COLUMN_STEP][first])
            highest = fmax(highest, d->valid.column[COLUMN_LOSS][i]);
    return fmin(highest, top + 0.5 * (top - low));
}

/* The same curves over steps and over their logarithm; the reader picks with two radio buttons. */
static void put_loss(strbuf *out, const report_data *d) {
    svg_series valid = {"validation",
                        "valid",
                        d->valid.column[COLUMN_STEP],
                        d->valid.column[COLUMN_LOSS],
                        d->valid.n,
                        true,
                        NULL};
    svg_chart c = {
        .title = *unit_of_loss(d) ? "Loss, nats per token" : "Loss",
        .x_label = "step",
        .series = {series_of(d, d->steps.column[COLUMN_LOSS], "training, each step", "raw"),
                   series_of(d, d->steps.smooth[COLUMN_LOSS], "training, smoothed", "smooth"),
                   valid},
        .n_series = d->valid.n ? 3 : 2,
        .y_top = usual_loss(d),
        .marks = d->marks,
        .n_marks = d->n_marks,
        .label_pixels = 950};
    bool both = d->steps.n >= 10 && d->steps.column[COLUMN_STEP][0] > 0 &&
                !(d->valid.n && d->valid.column[COLUMN_STEP][0] <= 0);
    strbuf_puts(out, "<div class=\"loss\">\n");
    if (both)
        strbuf_puts(out, "<input type=\"radio\" name=\"scale\" id=\"linear\" checked>"
                         "<label for=\"linear\">steps</label>"
                         "<input type=\"radio\" name=\"scale\" id=\"log\">"
                         "<label for=\"log\">log steps</label>\n");
    report_put_chart(out, &c, "wide linear");
    if (both) {
        c.log_x = true;
        c.y_top = NAN;
        c.x_label = "step, logarithmic";
        report_put_chart(out, &c, "wide log");
    }
    strbuf_puts(out, "</div>\n");
}

/* One column: every step faint, their running mean over it. A column without noise is its own
 * mean. */
static void put_small(strbuf *out, const report_data *d, const char *title, report_column column,
                      bool noisy) {
    const double *raw = d->steps.column[column], *mean = d->steps.smooth[column];
    svg_chart c = {.title = title,
                   .series = {series_of(d, raw, NULL, "raw"),
                              series_of(d, noisy ? mean : raw, title, "smooth")},
                   .n_series = 2,
                   .from_zero = true,
                   .cut_outliers = noisy,
                   .y_top = NAN,
                   .marks = d->marks,
                   .n_marks = column == COLUMN_LR ? d->n_stage_marks : d->n_marks,
                   .label_pixels = column == COLUMN_TOK_PER_S ? 0 : 430};
    report_put_chart(out, &c, "small");
}

/* HFU is shown only where it differs, that is where something is computed again. */
static void put_mfu(strbuf *out, const report_data *d) {
    const double *mfu = d->steps.smooth[COLUMN_MFU], *hfu = d->steps.smooth[COLUMN_HFU];
    bool differ = false;
    for (int64_t i = 0; i < d->steps.n; i++) differ |= fabs(hfu[i] - mfu[i]) > 0.02 * mfu[i];
    svg_chart c = {.title = "Utilisation, % of peak FLOPs",
                   .series = {series_of(d, d->steps.column[COLUMN_MFU], NULL, "raw"),
                              series_of(d, mfu, "MFU", "smooth"),
                              series_of(d, hfu, "HFU", "valid")},
                   .n_series = differ ? 3 : 2,
                   .from_zero = true,
                   .cut_outliers = true,
                   .y_top = NAN,
                   .marks = d->marks,
                   .n_marks = d->n_marks};
    report_put_chart(out, &c, "small");
}

/* Of the chosen answers and of the rejected ones. */
static void put_two(strbuf *out, const report_data *d, const char *title, report_column chosen,
                    report_column rejected) {
    svg_chart c = {.title = title,
                   .series = {series_of(d, d->steps.column[chosen], NULL, "raw"),
                              series_of(d, d->steps.smooth[chosen], "chosen", "smooth"),
                              series_of(d, d->steps.smooth[rejected], "rejected", "valid")},
                   .n_series = 3,
                   .y_top = NAN,
                   .marks = d->marks,
                   .n_marks = d->n_marks};
    report_put_chart(out, &c, "small");
}

/* One column over the steps, with its values on the validation set. */
static void put_validated(strbuf *out, const report_data *d, const char *title,
                          report_column column) {
    svg_chart c = {.title = title,
                   .series = {series_of(d, d->steps.column[column], NULL, "raw"),
                              series_of(d, d->steps.smooth[column], "training", "smooth"),
                              {"validation", "valid", d->valid.column[COLUMN_STEP],
                               d->valid.column[column], d->valid.n, true, NULL}},
                   .n_series = d->valid.n ? 3 : 2,
                   .y_top = NAN,
                   .marks = d->marks,
                   .n_marks = d->n_marks};
    report_put_chart(out, &c, "small");
}

/* Of objectives that learn from preferences. */
static void put_rewards(strbuf *out, const report_data *d) {
    if (!has_any(d, COLUMN_REWARD_CHOSEN)) return;
    strbuf_puts(out, "<div class=\"grid4\">\n");
    put_two(out, d, "Rewards", COLUMN_REWARD_CHOSEN, COLUMN_REWARD_REJECTED);
    put_validated(out, d, "Margin: reward of chosen less that of rejected", COLUMN_MARGIN);
    if (has_any(d, COLUMN_ACCURACY))
        put_validated(out, d, "Pairs with a positive margin, %", COLUMN_ACCURACY);
    put_two(out, d, "Log-probability of an answer, nats", COLUMN_LOGP_CHOSEN, COLUMN_LOGP_REJECTED);
    if (has_any(d, COLUMN_KL)) put_small(out, d, "KL to the reference, nats", COLUMN_KL, true);
    strbuf_puts(out, "</div>\n");
}

static void put_curves(strbuf *out, const report_data *d) {
    strbuf_puts(out, "<section>\n<h2>How it went</h2>\n");
    if (d->steps.n == 0) {
        strbuf_puts(out, "<p class=\"none\">The curves appear with the first step.</p>\n");
    } else {
        put_loss(out, d);
        strbuf_puts(out, "<div class=\"grid4\">\n");
        put_small(out, d, "Learning rate", COLUMN_LR, false);
        put_small(out, d, "Gradient norm, before clipping", COLUMN_GRAD_NORM, true);
        put_small(out, d, "Tokens per second", COLUMN_TOK_PER_S, true);
        put_mfu(out, d);
        strbuf_puts(out, "</div>\n");
        put_rewards(out, d);
    }
    strbuf_puts(out, "</section>\n");
}

/* ---- samples ---- */

/* The prompt, set off, and what follows it; a text that repeats its prompt says it once. */
static void put_sample(strbuf *out, const json_t *event) {
    const json_t *prompt = json_object_get(event, "prompt"), *text = json_object_get(event, "text");
    const char *head = json_is_string(prompt) ? json_string_value(prompt) : "";
    const char *tail = json_is_string(text) ? json_string_value(text) : "";
    size_t n_head = json_string_length(prompt), n_tail = json_string_length(text);
    if (n_tail >= n_head && memcmp(tail, head, n_head) == 0) {
        tail += n_head;
        n_tail -= n_head;
    }
    strbuf_puts(out, "<blockquote>");
    if (n_head > 0) {
        strbuf_puts(out, "<b>");
        svg_put_escaped_bytes(out, head, n_head);
        strbuf_puts(out, "</b>");
    }
    svg_put_escaped_bytes(out, tail, n_tail);
    strbuf_puts(out, "</blockquote>\n");
}

static int64_t sample_step(const report_data *d, size_t i) {
    return metrics_int(json_array_get(d->samples, i), "step", 0);
}

/* All samples of the step of sample `i`; returns the index behind them. */
static size_t put_milestone(strbuf *out, const report_data *d, size_t i) {
    size_t n = json_array_size(d->samples);
    int64_t step = sample_step(d, i);
    strbuf_puts(out, "<article><h3>step <b>");
    svg_put_number(out, (double)step);
    strbuf_puts(out, "</b></h3><div>\n");
    for (; i < n && sample_step(d, i) == step; i++) put_sample(out, json_array_get(d->samples, i));
    strbuf_puts(out, "</div></article>\n");
    return i;
}

static size_t skip_milestone(const report_data *d, size_t i) {
    size_t n = json_array_size(d->samples);
    int64_t step = sample_step(d, i);
    while (i < n && sample_step(d, i) == step) i++;
    return i;
}

static int64_t count_milestones(const report_data *d) {
    int64_t n = 0;
    for (size_t i = 0; i < json_array_size(d->samples); n++) i = skip_milestone(d, i);
    return n;
}

/* At most SHOWN milestones, spread over the run, the first and the last among them. */
static void put_samples(strbuf *out, const report_data *d) {
    enum { SHOWN = 6 };
    int64_t n = count_milestones(d), shown = 0;
    if (n == 0) return;
    strbuf_puts(out, "<section class=\"samples\">\n<h2>What it writes</h2>\n");
    size_t i = 0;
    for (int64_t k = 0; k < n; k++) {
        bool show = n <= SHOWN || k == (shown * (n - 1) + (SHOWN - 1) / 2) / (SHOWN - 1);
        if (show) shown++;
        i = show ? put_milestone(out, d, i) : skip_milestone(d, i);
    }
    if (shown < n)
        strbuf_printf(out,
                      "<p class=\"none\">%lld of %lld milestones; all are in "
                      "<code>metrics.jsonl</code>.</p>\n",
                      (long long)shown, (long long)n);
    strbuf_puts(out, "</section>\n");
}

/* ---- memory ---- */

typedef struct memory_class {
    const char *key, *name, *css;
} memory_class;

static const memory_class CLASSES[] = {
    {"param_bytes", "parameters", "m1"},    {"grad_bytes", "gradients", "m2"},
    {"optimizer_bytes", "optimizer", "m3"}, {"activation_peak_bytes", "activations", "m4"},
    {"workspace_bytes", "workspace", "m5"}, {"baseline_bytes", "the program itself", "m6"},
};

static double planned_bytes(const report_data *d, const json_t *memory) {
    double held = metrics_num(memory, "peak_bytes");
    double base = metrics_num(memory, "baseline_bytes");
    if (isfinite(held)) return held + (isfinite(base) ? base : 0);
    return metrics_num(d->end, "planned_peak_bytes");
}

/* What the plan promises is anonymous memory; resident memory also counts the pages of mapped
 * shards. */
static double used_bytes(const report_data *d) {
    double anonymous = metrics_num(d->end, "peak_anon_bytes");
    return isfinite(anonymous) ? anonymous : metrics_num(d->end, "peak_rss_bytes");
}

static void put_classes(strbuf *out, const json_t *memory, double scale) {
    for (int i = 0; i < ARRAY_LEN(CLASSES); i++) {
        double bytes = metrics_num(memory, CLASSES[i].key);
        if (!(bytes > 0)) continue;
        strbuf_printf(out, "<i class=\"%s\" style=\"width:%.2f%%\"></i>", CLASSES[i].css,
                      100 * bytes / scale);
    }
}

static void put_class_legend(strbuf *out, const json_t *memory) {
    strbuf_puts(out, "<ul class=\"classes\">\n");
    for (int i = 0; i < ARRAY_LEN(CLASSES); i++) {
        double bytes = metrics_num(memory, CLASSES[i].key);
        if (!(bytes > 0)) continue;
        strbuf_printf(out, "<li><i class=\"%s\"></i>%s <b>", CLASSES[i].css, CLASSES[i].name);
        report_put_bytes(out, bytes);
        strbuf_puts(out, "</b></li>\n");
    }
    strbuf_puts(out, "</ul>\n");
}

static void put_bar_start(strbuf *out, const char *name, double bytes) {
    strbuf_printf(out, "<div class=\"bar\"><span>%s</span><b>", name);
    report_put_bytes(out, bytes);
    strbuf_puts(out, "</b><div>");
}

/* What the program itself takes is a bound, of which small runs leave most. So where the run has told what it touched of
 * the memory that was planned for it, that is compared. */
static void put_memory_verdict(strbuf *out, const report_data *d, double planned, double actual) {
    double said = metrics_num(d->end, "planned_peak_bytes");
    double touched = metrics_num(d->end, "touched_peak_bytes");
    if (said > 0 && touched > 0) {
        strbuf_puts(out, "<p>Without the program itself ");
        report_put_bytes(out, said);
        strbuf_puts(out, " were planned, and ");
        report_put_bytes(out, touched);
        strbuf_puts(out, " used.</p>\n");
        return;
    }
    if (!(planned > 0 && actual > 0)) return;
    double difference = 100 * (actual - planned) / planned;
    strbuf_printf(out, "<p>The process used %.1f %% %s than planned.</p>\n", fabs(difference),
                  difference > 0 ? "more" : "less");
}

static void put_memory(strbuf *out, const report_data *d) {
    const json_t *memory = json_object_get(d->plan, "memory");
    double planned = planned_bytes(d, memory);
    double actual = used_bytes(d);
    double scale = fmax(isfinite(planned) ? planned : 0, isfinite(actual) ? actual : 0);
    if (!(scale > 0)) return;
    strbuf_puts(out, "<section class=\"memory\">\n<h2>Memory, planned and used</h2>\n");
    if (planned > 0) {
        put_bar_start(out, "planned", planned);
        if (memory)
            put_classes(out, memory, scale);
        else
            strbuf_printf(out, "<i class=\"m4\" style=\"width:%.2f%%\"></i>",
                          100 * planned / scale);
        strbuf_puts(out, "</div></div>\n");
    }
    if (actual > 0) {
        put_bar_start(out, "used at most", actual);
        strbuf_printf(out, "<i class=\"m0\" style=\"width:%.2f%%\"></i></div></div>\n",
                      100 * actual / scale);
    }
    if (memory) put_class_legend(out, memory);
    put_memory_verdict(out, d, planned, actual);
    strbuf_puts(out, "</section>\n");
}

/* ---- how to go on ---- */

void report_put_shell_word(strbuf *out, const char *word) {
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._-/+,:@%";
    strbuf text = {0};
    bool quote = word[0] == '\0' || word[strspn(word, PLAIN)] != '\0';
    if (quote) strbuf_putc(&text, '\'');
    for (const char *p = word; *p; p++)
        if (*p == '\'')
            strbuf_puts(&text, "'\\''");
        else
            strbuf_putc(&text, *p);
    if (quote) strbuf_putc(&text, '\'');
    svg_put_escaped(out, strbuf_cstr(&text));
    strbuf_free(&text);
}

static void put_command(strbuf *out, const char *why, const char *before, const char *path,
                        const char *after) {
    strbuf_printf(out, "<dt>%s</dt><dd><code>%s", why, before);
    report_put_shell_word(out, path);
    strbuf_printf(out, "%s</code></dd>\n", after);
}

/* What the model was taught to do. */
static void put_use(strbuf *out, const report_data *d) {
    const json_t *train = json_object_get(d->config, "train");
    const char *objective = metrics_text(train, "objective"), *path = d->summary.path;
    if (strcmp(objective, "classify") == 0 || strcmp(objective, "reward") == 0)
        put_command(out, "Let it judge", "athanor classify ", path, " --text &quot;...&quot;");
    else if (*objective && strcmp(objective, "lm") != 0)
        put_command(out, "Talk with it", "athanor chat ", path, "");
    else
        put_command(out, "Let it write", "athanor generate ", path,
                    " --prompt &quot;Once upon a time&quot;");
}

/* Keys for twice the length: where the last stage has an end, that is moved, and the run has no other. */
static void put_longer(strbuf *out, const report_data *d) {
    const run_summary *s = &d->summary;
    static const char *const units[] = {"steps", "tokens"};
    const json_t *train = json_object_get(d->config, "train"),
                 *stages = json_object_get(d->config, "stages");
    size_t n = json_array_size(stages);
    const json_t *until = json_object_get(json_array_get(stages, n ? n - 1 : 0), "until");
    bool has_end = false;
    for (int i = 0; i < ARRAY_LEN(units); i++) {
        int64_t end = metrics_int(until, units[i], 0);
        if (end <= 0) continue;
        has_end = true;
        strbuf_printf(out, " stages.%zu.until.%s=%lld", n - 1, units[i], (long long)end * 2);
    }
    for (int i = 0; has_end && i < ARRAY_LEN(units); i++)
        if (metrics_int(train, units[i], 0) > 0) strbuf_printf(out, " train.%s=null", units[i]);
    int64_t done = s->planned_steps > s->steps ? s->planned_steps : s->steps;
    if (!has_end) strbuf_printf(out, " train.steps=%lld", (long long)done * 2);
}

/* Without a checkpoint there is nothing to be used, and the run begins anew. */
static void put_next(strbuf *out, const report_data *d) {
    const run_summary *s = &d->summary;
    bool is_saved = d->last_checkpoint >= 0;
    strbuf more = {0};
    strbuf_puts(&more, "/config.json");
    if (strcmp(s->state, "finished") == 0) put_longer(&more, d);
    strbuf_puts(out, "<section class=\"next\">\n<h2>How to go on</h2>\n<dl>\n");
    if (is_saved) put_use(out, d);
    put_command(out, is_saved ? "Train further from the newest checkpoint" : "Train it",
                "athanor train ", s->path, strbuf_cstr(&more));
    strbuf_free(&more);
    put_command(out, "See its numbers again", "athanor runs show ", s->path, "");
    put_command(out, "Renew this page", "athanor runs report ", s->path, "");
    strbuf_puts(out, "</dl>\n");
    if (is_saved)
        strbuf_printf(out,
                      "<p>The newest checkpoint, <code>checkpoints/step-%lld</code>, is a Hugging "
                      "Face folder: other tools open it as it is.</p>\n",
                      (long long)d->last_checkpoint);
    strbuf_puts(out, "</section>\n");
}

/* ---- config ---- */

static void put_config_rows(strbuf *out, const char *path, const json_t *value) {
    const char *key;
    json_t *item;
    if (json_is_object(value) && json_object_size(value) > 0) {
        json_object_foreach((json_t *)value, key, item) {
            strbuf below = {0};
            strbuf_printf(&below, "%s%s%s", path, *path ? "." : "", key);
            put_config_rows(out, below.data, item);
            strbuf_free(&below);
        }
        return;
    }
    strbuf text = {0};
    if (json_is_null(value))
        strbuf_puts(&text, "not set");
    else
        json_format(&text, value, 0);
    svg_put_between(out, "<tr><th>", path, "</th><td>");
    svg_put_escaped(out, json_is_string(value) ? json_string_value(value) : text.data);
    strbuf_puts(out, "</td></tr>\n");
    strbuf_free(&text);
}

static void put_config_group(strbuf *out, const char *key, const json_t *value) {
    svg_put_between(out, "<table><caption>", key, "</caption><tbody>\n");
    put_config_rows(out, "", value);
    strbuf_puts(out, "</tbody></table>\n");
}

static void put_config(strbuf *out, const report_data *d) {
    const char *key;
    json_t *value, *plain = json_object();
    strbuf_puts(out, "<section class=\"config\">\n<h2>The config, resolved</h2>\n"
                     "<div class=\"tables\">\n");
    json_object_foreach(d->config, key, value) {
        if (!json_is_object(value)) json_object_set(plain, key, value);
    }
    if (json_object_size(plain) > 0) put_config_group(out, "run", plain);
    json_object_foreach(d->config, key, value) {
        if (json_is_object(value)) put_config_group(out, key, value);
    }
    strbuf_puts(out, "</div>\n</section>\n");
    json_decref(plain);
}

/* ---- the page ---- */

static void put_page(strbuf *out, const report_data *d) {
    svg_put_between(out,
                    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                    "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
                    d->summary.name, " - athanor</title>\n<style>\n");
    strbuf_puts(out, report_css);
    strbuf_puts(out, "</style>\n</head>\n<body>\n<main>\n");
    put_header(out, d);
    report_put_alarms(out, d);
    put_curves(out, d);
    report_put_experts(out, d);
    report_put_tasks(out, d);
    report_put_stages(out, d);
    put_samples(out, d);
    put_memory(out, d);
    put_next(out, d);
    put_config(out, d);
    strbuf_puts(out, "<footer>Written by athanor " ATHANOR_VERSION " from the files of ");
    svg_put_escaped(out, d->summary.path);
    strbuf_puts(out, "</footer>\n</main>\n<script>\n");
    strbuf_puts(out, report_js);
    strbuf_puts(out, "</script>\n</body>\n</html>\n");
}

status report_write(const char *run_dir, const char *reference, err *e) {
    report_data d;
    TRY(report_data_load(&d, run_dir, reference, e));
    strbuf page = {0};
    put_page(&page, &d);
    char *path = path_join(d.memory, run_dir, "report.html");
    status st = file_write_atomic(path, page.data, page.len, e);
    strbuf_free(&page);
    report_data_free(&d);
    return st;
}
