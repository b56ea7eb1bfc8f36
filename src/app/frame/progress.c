#include "app/frame/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "app/frame/cli.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "run/metrics.h"
#include "run/record.h"
#include "run/scores.h"

/* ---- a live line ---- */

bool progress_is_live(FILE *out) {
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && term && strcmp(term, "dumb") != 0;
}

bool progress_has_colours(FILE *out) {
    const char *no = getenv("NO_COLOR");
    return progress_is_live(out) && !(no && *no);
}

/* Of a terminal; 0: nothing says. The planner's page claims to be one, but has no TERM. */
static int columns_of(FILE *out) {
    struct winsize size;
    return getenv("TERM") && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* The bytes of the characters that fit; the last column stays free, since some terminals wrap there. */
static int fitting_bytes(const char *line, int columns) {
    int at = 0;
    for (int n = 0; line[at]; at++) {
        bool begins = ((unsigned char)line[at] & 0xc0) != 0x80;
        if (begins && ++n >= columns && columns > 0) break;
    }
    return at;
}

void progress_show(FILE *out, const char *line) {
    strbuf visible = {0};
    strbuf_append_visible(&visible, line, strlen(line));
    line = strbuf_cstr(&visible);
    fprintf(out, "\r\033[K%.*s", fitting_bytes(line, columns_of(out)), line);
    fflush(out);
    strbuf_free(&visible);
}

void progress_clear(FILE *out) {
    fputs("\r\033[K", out);
    fflush(out);
}

/* ---- rows ---- */

/* Where a broken row goes on: below the last of its columns that begins early enough, or where it begins itself. */
static int column_of(const char *row, int len, int most) {
    int at = (int)strspn(row, " ");
    for (int i = at; i + 2 < len && i + 2 <= most; i++)
        if (row[i] == ' ' && row[i + 1] == ' ' && row[i + 2] != ' ') at = i + 2;
    return at;
}

static void put_row(FILE *out, const char *row, int len, int columns) {
    int indent = column_of(row, len, columns * 6 / 10), from = 0;
    while (from + len >= columns) {
        int n = columns - 1 - from, least = from ? 0 : indent;
        while (n > least && row[n] != ' ') n--;
        if (n <= least) break; /* a word that is longer */
        fprintf(out, "%.*s\n%*s", n, row, indent, "");
        row += n + 1;
        len -= n + 1;
        from = indent;
    }
    fprintf(out, "%.*s\n", len, row);
}

void progress_put_rows(FILE *out, const char *text) {
    enum { NARROWEST = 40 };
    int columns = columns_of(out);
    if (columns < NARROWEST) fputs(text, out);
    while (columns >= NARROWEST && *text) {
        size_t n = strcspn(text, "\n");
        put_row(out, text, (int)n, columns);
        text += n + (text[n] == '\n');
    }
}

/* ---- the events of a run ---- */

void progress_init(progress *p, FILE *out) {
    *p = (progress){.out = out,
                    .live = progress_is_live(out),
                    .colours = progress_has_colours(out),
                    .began_ns = clock_now_ns()};
}

void progress_format_duration(double seconds, char out[24]) {
    long s = (long)(seconds + 0.5);
    if (s < 60)
        snprintf(out, 24, "%lds", s);
    else if (s < 3600)
        snprintf(out, 24, "%ldm%02lds", s / 60, s % 60);
    else
        snprintf(out, 24, "%ldh%02ldm", s / 3600, s / 60 % 60);
}

/* An escape sequence, where there may be colours. */
static const char *style(const progress *p, const char *code) {
    return p->colours ? code : "";
}

/* Clears the live line, so that a lasting one can be printed. */
static void settle(progress *p) {
    if (p->line_open) progress_clear(p->out);
    p->line_open = false;
}

/* The width of the bar: below 120 columns the line has its short form, below 60 no bar. */
static int bar_width(const progress *p) {
    int columns = columns_of(p->out);
    return !p->live ? 0 : columns == 0 || columns >= 120 ? 20 : columns >= 60 ? 12 : 0;
}

static void put_bar(strbuf *line, double share, int width) {
    int full = (int)(share * width);
    for (int i = 0; i < width; i++) strbuf_puts(line, i < full ? "━" : i == full ? "╸" : " ");
}

/* Of preferences. */
static void put_margin(strbuf *line, const json_t *o) {
    double margin = metrics_num(o, "margin"), accuracy = metrics_num(o, "accuracy");
    if (isfinite(margin)) strbuf_printf(line, "  margin %.3f", margin);
    if (isfinite(accuracy)) strbuf_printf(line, "  %.0f%% right", 100 * accuracy);
}

/* The load of the busiest expert, as a multiple of the mean. */
static void put_experts(strbuf *line, const json_t *o) {
    double load = metrics_num(o, "expert_load");
    int64_t dead = metrics_int(o, "dead_experts", 0);
    if (isfinite(load)) strbuf_printf(line, "  load %.1fx", load);
    if (dead > 0) strbuf_printf(line, " (%ld dead)", (long)dead);
}

static void put_step(const progress *p, const json_t *o, bool narrow, strbuf *line) {
    int64_t step = metrics_int(o, "step", 0);
    double done = (double)(step - p->first_step), left = (double)(p->total_steps - step);
    double norm = metrics_num(o, "grad_norm"), scale = metrics_num(o, "loss_scale");
    char eta[24];
    progress_format_duration(done > 0 ? clock_since_s(p->began_ns) / done * left : 0, eta);
    strbuf_printf(line, " step %ld/%ld  loss %.4f", (long)step, (long)p->total_steps,
                  metrics_num(o, "loss"));
    if (!isfinite(norm) && isfinite(scale))
        strbuf_printf(line, "  overflow at loss scale %g: left out", scale);
    else if (!narrow)
        strbuf_printf(line, "  norm %.2f  lr %.2e", norm, metrics_num(o, "lr"));
    put_margin(line, o);
    put_experts(line, o);
    strbuf_printf(line, "  %.0f tok/s", metrics_num(o, "tok_per_s"));
    double ms = metrics_num(o, "step_ms");
    if (!narrow)
        strbuf_printf(line, "  mfu %.0f%%  %.*f ms", 100 * metrics_num(o, "mfu"), ms < 10, ms);
    strbuf_printf(line, "  eta %s", eta);
}

static void on_step(progress *p, const json_t *o) {
    int64_t step = metrics_int(o, "step", 0), now = clock_now_ns();
    bool last = step == p->total_steps;
    int bar = bar_width(p);
    if (p->live && !last && now - p->shown_ns < 100000000) return; /* ten times a second */
    p->shown_ns = now;
    strbuf line = {0};
    put_bar(&line, (double)step / (double)p->total_steps, bar);
    put_step(p, o, p->live && bar < 20, &line);
    if (p->live)
        progress_show(p->out, line.data);
    else
        fprintf(p->out, "%s\n", line.data);
    p->line_open = p->live;
    strbuf_free(&line);
}

/* A text that comes from a model, from the data or from a config. */
static void put_text(const progress *p, const json_t *o, const char *key) {
    const char *text = metrics_text(o, key);
    cli_print_text(p->out, text, strlen(text));
}

/* The same in a row, which put_line ends. */
static void add_text(const progress *p, strbuf *row, const char *text) {
    if (isatty(fileno(p->out)))
        strbuf_append_visible(row, text, strlen(text));
    else
        strbuf_puts(row, text);
}

static void put_line(const progress *p, strbuf *row) {
    strbuf_putc(row, '\n');
    progress_put_rows(p->out, row->data);
    strbuf_free(row);
}

/* What was chosen for this machine, when it was measured just now. */
static void put_choice(const progress *p, const json_t *o) {
    double seconds = metrics_num(o, "probe_s");
    const char *chosen = metrics_text(o, "chosen"); /* "": the run goes on */
    strbuf row = {0};
    if (!(seconds > 0)) return;
    strbuf_printf(&row, "measured this machine in %.2f s%s%s", seconds, *chosen ? ": " : "",
                  chosen);
    put_line(p, &row);
}

static void on_start(progress *p, const json_t *o) {
    bool widened = strcmp(metrics_text(o, "precision"), "bf16") == 0 &&
                   strcmp(metrics_text(o, "arithmetic"), "fp32") == 0;
    bool on_gpu = strcmp(metrics_text(o, "device"), "cuda") == 0;
    p->total_steps = metrics_int(o, "steps", 0);
    p->first_step = metrics_int(o, "step", 0);
    p->began_ns = clock_now_ns();
    put_choice(p, o);
    strbuf row = {0};
    strbuf_puts(&row, "run ");
    add_text(p, &row, metrics_text(o, "run"));
    strbuf_printf(&row, ": %.2fM parameters, %s%s on %s, %ld thread%s, peak %.0f GFLOP/s",
                  metrics_num(o, "params") / 1e6, metrics_text(o, "precision"),
                  widened ? " (multiplied in fp32)" : "", metrics_text(o, on_gpu ? "gpu" : "isa"),
                  (long)metrics_int(o, "threads", 0), text_s(metrics_int(o, "threads", 0)),
                  metrics_num(o, "peak_gflops"));
    put_line(p, &row);
    if (*metrics_text(o, "began_on"))
        fprintf(p->out, "it began on %s\n", metrics_text(o, "began_on"));
    if (p->first_step > 0) fprintf(p->out, "resuming after step %ld\n", (long)p->first_step);
}

static void on_sample(progress *p, const json_t *o) {
    fprintf(p->out, "  sample at step %ld: %s", (long)metrics_int(o, "step", 0),
            style(p, "\033[2m"));
    put_text(p, o, "prompt");
    fputs(style(p, "\033[0m"), p->out);
    put_text(p, o, "text");
    fputc('\n', p->out);
}

/* Red is for what may end the run. */
static void on_alarm(progress *p, const json_t *o) {
    strbuf row = {0};
    strbuf_printf(&row, "  %s", style(p, record_is_fatal(o) ? "\033[1;31m" : "\033[1;33m"));
    record_put_kind(&row, o);
    strbuf_printf(&row, "%s at step %ld: ", style(p, "\033[0m"), (long)metrics_int(o, "step", 0));
    add_text(p, &row, metrics_text(o, "message"));
    put_line(p, &row);
}

static void on_stage(progress *p, const json_t *o) {
    strbuf what = {0}, row = {0};
    record_put_stage_shape(&what, o);
    strbuf_puts(&what, "; ");
    record_put_mixture(&what, o);
    strbuf_printf(&row, "  stage %s", style(p, "\033[1m"));
    add_text(p, &row, metrics_text(o, "name"));
    strbuf_printf(&row, "%s from step %ld: ", style(p, "\033[0m"), (long)metrics_int(o, "step", 0));
    add_text(p, &row, strbuf_cstr(&what));
    put_line(p, &row);
    strbuf_free(&what);
}

static void on_valid(progress *p, const json_t *o) {
    fprintf(p->out, "  step %ld  validation loss %.4f", (long)metrics_int(o, "step", 0),
            metrics_num(o, "val_loss"));
    double bpb = metrics_num(o, "val_bpb");
    if (isfinite(bpb)) fprintf(p->out, "  %.3f bits per byte", bpb);
    strbuf margin = {0};
    put_margin(&margin, o);
    fprintf(p->out, "%s\n", strbuf_cstr(&margin));
    strbuf_free(&margin);
}

/* The main score of the task, with its standard error. */
static void on_eval(progress *p, const json_t *o) {
    const json_t *scores = json_object_get(o, "metrics");
    const char *key = score_main_key(scores);
    char name[SCORE_NAME_BYTES];
    if (!key) return;
    score_name(key, name);
    double error = score_error(scores, key), chance = score_chance(scores);
    fprintf(p->out, "  step %ld  ", (long)metrics_int(o, "step", 0));
    put_text(p, o, "task");
    fprintf(p->out, ": %s %.4f", name, score_value(scores, key));
    if (isfinite(error)) fprintf(p->out, " +- %.4f", error);
    if (isfinite(chance)) fprintf(p->out, "  (chance %.4f)", chance);
    fputc('\n', p->out);
}

void progress_event(void *ctx, const json_t *o) {
    progress *p = ctx;
    const char *kind = metrics_text(o, "event");
    if (strcmp(kind, "step") == 0) {
        on_step(p, o);
        fflush(p->out);
        return;
    }
    settle(p);
    if (strcmp(kind, "start") == 0) on_start(p, o);
    if (strcmp(kind, "valid") == 0) on_valid(p, o);
    if (strcmp(kind, "eval") == 0) on_eval(p, o);
    if (strcmp(kind, "sample") == 0) on_sample(p, o);
    if (strcmp(kind, "checkpoint") == 0) {
        fputs("  saved ", p->out);
        put_text(p, o, "path");
        fputc('\n', p->out);
    }
    if (strcmp(kind, "alarm") == 0) on_alarm(p, o);
    if (strcmp(kind, "stage") == 0) on_stage(p, o);
    if (strcmp(kind, "end") == 0)
        fprintf(p->out, "trained %ld step%s; memory: planned %.1f MiB, used %.1f MiB\n",
                (long)metrics_int(o, "steps", 0), text_s(metrics_int(o, "steps", 0)),
                metrics_num(o, "planned_peak_bytes") / (1 << 20),
                metrics_num(o, "touched_peak_bytes") / (1 << 20));
    fflush(p->out);
}

void progress_plan(void *ctx, const char *table) {
    progress *p = ctx;
    progress_put_rows(p->out, table);
    fflush(p->out);
}

void progress_task(void *ctx, const char *task, int64_t done, int64_t all) {
    progress *p = ctx;
    int64_t now = clock_now_ns();
    if (!p->live || now - p->shown_ns < 100000000) return;
    p->shown_ns = now;
    strbuf line = {0};
    strbuf_printf(&line, " evaluating %s: %ld of %ld", task, (long)done, (long)all);
    progress_show(p->out, line.data);
    p->line_open = true;
    strbuf_free(&line);
}

void progress_end(progress *p) {
    settle(p);
    fflush(p->out);
}
