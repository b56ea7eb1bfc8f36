/* What the user of quickstart sees: a line per stage, the training, the result, what is next. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "app/frame/progress.h"
#include "app/quickstart/quickstart.h"
#include "app/train/train_signals.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "run/metrics.h"
#include "run/report/report.h"
#include "run/report/report_data.h"

void quick_stage(const quick *q, const char *name, int64_t began_ns, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    bool color = progress_has_colours(q->out);
    fprintf(q->out, "%s✓%s %-9s  %s  %s%.1f s%s\n", color ? "\033[32m" : "", color ? "\033[0m" : "",
            name, text, color ? "\033[2m" : "", clock_since_s(began_ns), color ? "\033[0m" : "");
    fflush(q->out);
}

/* ---- while it trains ---- */

/* The machine may become slower than it was when it was measured: other programs, heat. A short
 * disturbance is waited out; after the last correction the run goes on to its end. */
static bool too_slow(const quick_watch *w) {
    double part_s = clock_since_s(w->view.began_ns), all_s = clock_since_s(w->began_ns);
    int64_t done = w->at_step - w->view.first_step;
    if (w->corrections == QUICK_CORRECTIONS || all_s < 0.3 * w->limit_s) return false;
    if (done < 2 || part_s < 0.05 * w->limit_s) return false;
    double left_s = part_s / (double)done * (double)(w->view.total_steps - w->at_step);
    return left_s > 0.05 * w->limit_s && all_s + left_s > w->limit_s;
}

static void on_step(quick_watch *w, const json_t *o) {
    VEC_PUSH(w->loss, w->n_loss, w->cap_loss, metrics_num(o, "loss"));
    w->at_step = metrics_int(o, "step", 0);
    if (*train_stop_flag()) w->by_signal = true;
    if (w->by_signal || too_slow(w)) w->stop = 1;
}

static int prompt_index(const quick *q, const char *prompt) {
    for (int i = 0; i < QUICK_PROMPTS; i++)
        if (strcmp(prompt, q->corpus.prompts[i]) == 0) return i;
    return -1;
}

static void on_sample(quick_watch *w, const json_t *o) {
    int i = prompt_index(w->q, metrics_text(o, "prompt"));
    if (i < 0) return;
    json_decref(w->sample[i]);
    w->sample[i] = json_incref((json_t *)o);
}

/* Samples and memory are told at the end; a corrected part goes on where the line was; a file or
 * pipe gets about twenty steps. */
static bool is_shown(const quick_watch *w, const json_t *event) {
    if (metrics_is(event, "sample") || metrics_is(event, "checkpoint") || metrics_is(event, "end"))
        return false;
    if (metrics_is(event, "start")) return w->corrections == 0;
    if (!metrics_is(event, "step") || w->view.live) return true;
    int64_t step = metrics_int(event, "step", 0), every = (w->view.total_steps + 19) / 20;
    return step % every == 0 || step == w->view.total_steps;
}

void quick_watch_event(void *ctx, const json_t *event) {
    quick_watch *w = ctx;
    if (metrics_is(event, "start")) {
        w->view.total_steps = metrics_int(event, "steps", 0);
        w->at_step = w->view.first_step = metrics_int(event, "step", 0);
        w->view.began_ns = clock_now_ns();
    }
    if (metrics_is(event, "end")) {
        w->planned_mib = metrics_num(event, "planned_peak_bytes") / (1 << 20);
        w->used_mib = metrics_num(event, "touched_peak_bytes") / (1 << 20);
    }
    if (metrics_is(event, "valid")) {
        w->val_loss = metrics_num(event, "val_loss");
        w->val_bpb = metrics_num(event, "val_bpb");
    }
    if (metrics_is(event, "sample")) on_sample(w, event);
    if (is_shown(w, event)) progress_event(&w->view, event);
    if (metrics_is(event, "step")) on_step(w, event);
}

void quick_watch_plan(void *ctx, const char *table) {
    quick_watch *w = ctx;
    if (w->n_loss == 0) progress_plan(&w->view, table);
}

void quick_watch_free(quick_watch *w) {
    for (int i = 0; i < QUICK_PROMPTS; i++) json_decref(w->sample[i]);
    free(w->loss);
}

/* ---- the result ---- */

static int columns(FILE *out) {
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
        return size.ws_col < 100 ? size.ws_col : 100;
    return 80;
}

/* The text with its lines indented, at most `lines` of them, each at most `width` characters. */
static void print_lines(FILE *out, const char *text, int lines, int width) {
    int column = 0;
    for (const char *p = text; *p; p++) {
        bool continues = utf8_continues(*p);
        if (!continues && column == width && *p != '\n') {
            fputs("\n    ", out);
            lines--;
            column = 0;
        }
        if (lines <= 0) break;
        if (*p == '\n') {
            if (--lines <= 0) break;
            fputs("\n    ", out);
            column = 0;
            continue;
        }
        fputc(*p, out);
        column += !continues;
    }
    fputc('\n', out);
}

static void print_samples(const quick *q, const quick_watch *w) {
    bool color = progress_has_colours(q->out);
    fputs("\nIt writes (the prompt, then its own words):\n", q->out);
    for (int i = 0; i < QUICK_PROMPTS; i++) {
        const char *text = json_string_value(json_object_get(w->sample[i], "text"));
        if (!text) continue;
        strbuf whole = {0};
        strbuf_puts(&whole, q->corpus.prompts[i]);
        if (color)
            strbuf_append_visible(&whole, text, strlen(text));
        else
            strbuf_puts(&whole, text);
        fputs(color ? "\n    \033[36m" : "\n    ", q->out);
        print_lines(q->out, strbuf_cstr(&whole), 7, columns(q->out) - 5);
        if (color) fputs("\033[0m", q->out);
        strbuf_free(&whole);
    }
}

static void print_curve(const quick *q, const quick_watch *w) {
    if (w->n_loss < 2) return;
    strbuf curve = {0};
    report_terminal_curve(&curve, w->loss, w->n_loss, columns(q->out) - 4, 8);
    fprintf(q->out, "\nTraining loss, step 1 to %lld:\n%s", (long long)w->n_loss,
            strbuf_cstr(&curve));
    strbuf_free(&curve);
}

/* Commands as this user can type them: the program under the name it was started by. */
static void print_next(const quick *q, const quick_watch *w) {
    const char *program = program_invocation_name, *prompt = q->corpus.prompts[0];
    int first_line = (int)strcspn(prompt, "\n\"$`\\");
    strbuf word = {0};
    report_put_shell_word(&word, q->run);
    const char *run = word.data;
    fprintf(q->out, "\nThe report: %s/report.html\n\nWhat to try next:\n", q->run);
    fprintf(q->out, "  let it write        %s generate %s --prompt \"%.*s\"\n", program, run,
            first_line, prompt);
    fprintf(q->out, "  train it longer     %s train %s/quickstart.yaml train.steps=%lld\n", program,
            run, (long long)q->plan.steps * 3 / 2);
    fprintf(q->out, "  check every byte    %s verify checkpoint %s/checkpoints/step-%lld\n",
            program, run, (long long)w->at_step);
    fprintf(q->out, "  plan a larger one   %s plan smollm2-135m\n", program);
    if (*q->corpus.why) fprintf(q->out, "  use your own text   make quickstart TEXT=my.txt\n");
    strbuf_free(&word);
}

void quick_print_result(const quick *q, const quick_watch *w) {
    fprintf(q->out, "\nValidation: %.3f bits per byte on %s of the text (loss %.4f).\n", w->val_bpb,
            quick_eval_batches(q) ? "a part of the held-out tenth" : "the held-out tenth",
            w->val_loss);
    print_samples(q, w);
    print_curve(q, w);
    print_next(q, w);
    fflush(q->out);
}
