/* The sections of the page that tell of alarms and stages, and their marks in the curves. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "run/metrics.h"
#include "run/record.h"
#include "run/report/report_data.h"

typedef void (*put_words)(strbuf *out, const json_t *event);

static void put_escaped_words(strbuf *out, put_words put, const json_t *event) {
    strbuf text = {0};
    put(&text, event);
    svg_put_escaped_bytes(out, strbuf_cstr(&text), text.len);
    strbuf_free(&text);
}

static const char *name_of(const json_t *stage) {
    const char *name = metrics_text(stage, "name");
    return *name ? name : "stage";
}

/* ---- marks ---- */

static void add_mark(report_data *d, const json_t *event, const char *label, bool is_alarm) {
    double step = metrics_num(event, "step");
    if (d->n_marks == SVG_MAX_MARKS || !isfinite(step)) return;
    d->marks[d->n_marks++] = (svg_mark){.x = step,
                                        .label = label,
                                        .css = is_alarm ? "alarm" : "stage",
                                        .row = is_alarm && json_array_size(d->stages) > 0 ? 1 : 0};
}

/* Stages first; of more alarms than can be drawn the newest. */
void report_set_marks(report_data *d) {
    size_t n = json_array_size(d->alarms), first = n;
    for (size_t i = 0; i < json_array_size(d->stages); i++) {
        const json_t *stage = json_array_get(d->stages, i);
        add_mark(d, stage, name_of(stage), false);
    }
    d->n_stage_marks = d->n_marks;
    for (int room = SVG_MAX_MARKS - d->n_marks; first > 0 && room > 0; first--)
        room -= record_is_on_curve(json_array_get(d->alarms, first - 1));
    for (size_t i = first; i < n; i++) {
        const json_t *alarm = json_array_get(d->alarms, i);
        strbuf kind = {0};
        if (!record_is_on_curve(alarm)) continue;
        record_put_kind(&kind, alarm);
        add_mark(d, alarm, arena_strdup(d->memory, strbuf_cstr(&kind)), true);
        strbuf_free(&kind);
    }
}

/* ---- alarms ---- */

/* Members of an alarm that other functions show, or that its message contains. */
static bool is_known(const char *key) {
    static const char *const KNOWN[] = {
        "event",     "step",   "kind",      "message",   "action",    "loss",      "loss_z",
        "loss_mean", "norm_z", "grad_norm", "norm_mean", "documents", "from_step", "to_step",
        "left_out",  "source", "passes",    "budget",    "path"};
    for (int i = 0; i < ARRAY_LEN(KNOWN); i++)
        if (strcmp(key, KNOWN[i]) == 0) return true;
    return false;
}

/* "loss 4.9, usually 5.2 (-0.9 sigma)"; false where there is no number. */
static bool put_score(strbuf *out, const json_t *alarm, const char *name, const char *value_key,
                      const char *mean_key, const char *z_key) {
    double value = metrics_num(alarm, value_key), mean = metrics_num(alarm, mean_key);
    double z = metrics_num(alarm, z_key);
    if (!isfinite(value)) return false;
    strbuf_printf(out, "<span>%s ", name);
    svg_put_number(out, value);
    if (isfinite(mean)) {
        strbuf_puts(out, ", usually ");
        svg_put_number(out, mean);
    }
    if (isfinite(z)) strbuf_printf(out, " (%+.1f &sigma;)", z);
    strbuf_puts(out, "</span> ");
    return true;
}

/* The message of a spike would only say the numbers again. */
static void put_message(strbuf *out, const json_t *alarm) {
    bool is_spike = strcmp(metrics_text(alarm, "kind"), "spike") == 0;
    strbuf numbers = {0};
    bool scored = put_score(&numbers, alarm, "gradient norm", "grad_norm", "norm_mean", "norm_z");
    scored |= put_score(&numbers, alarm, "loss", "loss", "loss_mean", "loss_z");
    if (!(scored && is_spike)) {
        svg_put_between(out, "<div>", metrics_text(alarm, "message"), "</div>");
    }
    strbuf_puts(out, strbuf_cstr(&numbers));
    strbuf_free(&numbers);
}

/* Members that nothing above knows, as name and value. */
static void put_other_members(strbuf *out, const json_t *alarm) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)alarm, key, value) {
        if (is_known(key)) continue;
        strbuf text = {0};
        json_format(&text, value, 0);
        svg_put_between(out, " <span class=\"soft\">", key, ": ");
        svg_put_escaped(out, json_is_string(value) ? json_string_value(value) : text.data);
        strbuf_puts(out, "</span>");
        strbuf_free(&text);
    }
}

/* The most suspicious document; the others behind a fold. */
static void put_documents(strbuf *out, const json_t *documents) {
    size_t n = json_array_size(documents);
    if (n == 0) return;
    strbuf_puts(out, "<div>most suspicious: ");
    put_escaped_words(out, record_put_document, json_array_get(documents, 0));
    strbuf_puts(out, "</div>\n");
    if (n == 1) return;
    strbuf_puts(out, "<details><summary>the next ones</summary><ol start=\"2\">\n");
    for (size_t i = 1; i < n; i++) {
        strbuf_puts(out, "<li>");
        put_escaped_words(out, record_put_document, json_array_get(documents, i));
        strbuf_puts(out, "</li>\n");
    }
    strbuf_puts(out, "</ol></details>\n");
}

static void put_alarm(strbuf *out, const json_t *alarm) {
    strbuf_printf(out, "<tr%s><td>%lld</td><td>", record_is_fatal(alarm) ? " class=\"fatal\"" : "",
                  (long long)metrics_int(alarm, "step", 0));
    put_escaped_words(out, record_put_kind, alarm);
    strbuf_puts(out, "</td><td>");
    put_message(out, alarm);
    put_other_members(out, alarm);
    put_documents(out, json_object_get(alarm, "documents"));
    strbuf_printf(out, "</td><td>%s</td></tr>\n", record_action(alarm));
}

/* The last spike whose step was kept: after a rewind its step was trained on other data. */
static const json_t *last_spike(const report_data *d) {
    for (size_t i = json_array_size(d->alarms); i > 0; i--) {
        const json_t *alarm = json_array_get(d->alarms, i - 1);
        bool is_spike = strcmp(metrics_text(alarm, "kind"), "spike") == 0;
        if (is_spike && !record_is_fatal(alarm)) return alarm;
    }
    return NULL;
}

static void put_look(strbuf *out, const report_data *d) {
    const json_t *alarm = last_spike(d);
    if (!alarm) return;
    strbuf_puts(out, "<p>The data of such a step: <code>athanor data show --run ");
    report_put_shell_word(out, d->summary.path);
    strbuf_printf(out, " --step %lld --render</code></p>\n",
                  (long long)metrics_int(alarm, "step", 0));
}

static void put_alarm_table(strbuf *out, const report_data *d, size_t from, size_t end) {
    strbuf_puts(out, "<table><thead><tr><th>Step</th><th>Alarm</th><th>What happened</th>"
                     "<th>What was done</th></tr></thead><tbody>\n");
    for (size_t i = from; i < end; i++) put_alarm(out, json_array_get(d->alarms, i));
    strbuf_puts(out, "</tbody></table>\n");
}

/* The newest alarms; up to LISTED earlier ones behind a fold. */
void report_put_alarms(strbuf *out, const report_data *d) {
    enum { OPEN = 5, LISTED = 100 };
    size_t n = json_array_size(d->alarms);
    size_t open = n > OPEN ? n - OPEN : 0, listed = n > LISTED ? n - LISTED : 0;
    if (n == 0) return;
    strbuf_printf(out, "<section class=\"alarms%s\">\n<h2>%s</h2>\n",
                  strcmp(d->summary.state, "failed") == 0 ? " failed" : "",
                  n == 1 ? "Alarm" : "Alarms");
    if (open > 0) {
        strbuf_printf(out, "<details><summary>%zu earlier ones</summary>\n", open);
        if (listed > 0)
            strbuf_printf(out, "<p>The first %zu are in <code>metrics.jsonl</code> only.</p>\n",
                          listed);
        put_alarm_table(out, d, listed, open);
        strbuf_puts(out, "</details>\n");
    }
    put_alarm_table(out, d, open, n);
    put_look(out, d);
    strbuf_puts(out, "</section>\n");
}

/* ---- stages ---- */

/* A number for each source, by its path, so that it has the same colour in all stages. */
static json_t *number_sources(const report_data *d) {
    json_t *numbers = json_object(), *stage, *source;
    size_t i, k;
    json_array_foreach(d->stages, i, stage) {
        json_array_foreach(json_object_get(stage, "sources"), k, source) {
            const char *path = metrics_text(source, "path");
            if (!json_object_get(numbers, path))
                json_object_set_new(numbers, path,
                                    json_integer((json_int_t)json_object_size(numbers)));
        }
    }
    return numbers;
}

static int colour_of(const json_t *numbers, const json_t *source) {
    enum { COLOURS = 6 };
    return 1 + (int)(metrics_int(numbers, metrics_text(source, "path"), 0) % COLOURS);
}

static void put_source(strbuf *out, const json_t *source, int colour) {
    double share = metrics_num(source, "share");
    strbuf_puts(out, "<li title=\"");
    svg_put_escaped(out, metrics_text(source, "path"));
    strbuf_printf(out, "\"><i class=\"m%d\"></i>", colour);
    put_escaped_words(out, record_put_source, source);
    if (isfinite(share)) strbuf_printf(out, " <b>%.3g %%</b>", 100 * share);
    strbuf_puts(out, "</li>\n");
}

/* A bar of the shares, and what they are. */
static void put_mixture(strbuf *out, const json_t *stage, const json_t *numbers) {
    json_t *sources = json_object_get(stage, "sources"), *source;
    size_t i;
    strbuf_puts(out, "<div class=\"mix\">");
    json_array_foreach(sources, i, source) {
        double share = metrics_num(source, "share");
        if (share > 0 && share <= 1)
            strbuf_printf(out, "<i class=\"m%d\" style=\"width:%.2f%%\"></i>",
                          colour_of(numbers, source), 100 * share);
    }
    strbuf_puts(out, "</div><ul class=\"classes\">\n");
    json_array_foreach(sources, i, source) put_source(out, source, colour_of(numbers, source));
    strbuf_puts(out, "</ul>");
}

/* The last step of stage i, or -1 while it is not known. */
static int64_t last_step_of(const report_data *d, size_t i) {
    int64_t last = metrics_int(json_array_get(d->stages, i), "last_step", -1);
    if (last >= 0 || i + 1 >= json_array_size(d->stages)) return last;
    return metrics_int(json_array_get(d->stages, i + 1), "step", 0) - 1;
}

static void put_stage(strbuf *out, const report_data *d, size_t i, const json_t *numbers) {
    const json_t *stage = json_array_get(d->stages, i);
    int64_t last = last_step_of(d, i);
    strbuf_puts(out, "<tr><td><b>");
    svg_put_escaped(out, name_of(stage));
    strbuf_printf(out, "</b></td><td>%lld", (long long)metrics_int(stage, "step", 0));
    if (last >= 0)
        strbuf_printf(out, " to %lld", (long long)last);
    else
        strbuf_puts(out, " on");
    strbuf_puts(out, "</td><td>");
    put_escaped_words(out, record_put_stage_shape, stage);
    strbuf_puts(out, "</td><td>");
    put_mixture(out, stage, numbers);
    strbuf_puts(out, "</td></tr>\n");
}

void report_put_stages(strbuf *out, const report_data *d) {
    size_t n = json_array_size(d->stages);
    if (n == 0) return;
    strbuf_puts(out, "<section class=\"stages\">\n<h2>Stages</h2>\n<table><thead><tr><th>Stage</th>"
                     "<th>Steps</th><th>Shape</th><th>Mixture</th></tr></thead><tbody>\n");
    json_t *numbers = number_sources(d);
    for (size_t i = 0; i < n; i++) put_stage(out, d, i, numbers);
    json_decref(numbers);
    strbuf_puts(out, "</tbody></table>\n</section>\n");
}
