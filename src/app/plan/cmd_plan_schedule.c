/* athanor plan schedule: what each stage of a pipeline does when, drawn; and where it waits.
 *
 * Reading order: cmd_plan_schedule; the table, the drawing in a terminal, as SVG, as a trace. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/progress.h"
#include "app/plan/schedule_picture.h"
#include "base/file.h"
#include "base/text.h"

enum {
    MOST_STAGES = 1024,
    MOST_MICRO_BATCHES = 65536,
    MOST_FORWARDS = 1 << 20, /* each is an item in memory */
    TERMINAL_LETTERS = 120
};

/* ---- what is asked ---- */

static status find_kind(const char *name, schedule_kind *out, err *e) {
    strbuf all = {0};
    for (int k = 0; k < SCHEDULES; k++) {
        strbuf_printf(&all, "%s%s", k ? ", " : "", schedule_name((schedule_kind)k));
        if (strcmp(name, schedule_name((schedule_kind)k)) != 0) continue;
        *out = (schedule_kind)k;
        strbuf_free(&all);
        return ST_OK;
    }
    err_set(e, ST_USAGE, "'%s' is no schedule", name);
    err_hint(e, "there are %s", strbuf_cstr(&all));
    strbuf_free(&all);
    return ST_USAGE;
}

enum { TIMES = 5 };

/* Numbers with commas between them: how many; 0: it is something else. */
static int split_times(const char *text, double v[TIMES]) {
    for (int n = 0; n < TIMES; text++) {
        size_t span = text_number_span(text);
        if (span == 0) return 0;
        v[n++] = strtod(text, NULL);
        text += span;
        if (*text == '\0') return n;
        if (*text != ',') return 0;
    }
    return 0;
}

/* "1,1,1,0.2,2.5": forward, input's and weights' part of a backward; the way to the next stage; a forward and a backward together. */
static status read_times(const cli_args *args, schedule_times *t, err *e) {
    const char *text = cli_value(args, "times");
    double v[TIMES] = {1, 1, 1, 0, 0};
    int n = text ? split_times(text, v) : 0;
    bool positive = v[0] > 0 && v[1] > 0 && v[2] > 0 && v[3] >= 0 && (n < TIMES || v[4] > 0) &&
                    v[0] + v[1] + v[2] + v[3] + v[4] < 1e9;
    if (text && (n < 3 || !positive)) {
        err_at(e, ST_USAGE, "--times",
               "%s are not times of F, I and W above 0, of a transfer, and of F and a backward "
               "together",
               text);
        return err_hint(e, "for example --times 1,1.1,0.9,0.2");
    }
    *t = (schedule_times){.work = {[WORK_FORWARD] = v[0],
                                   [WORK_BACKWARD] = v[1] + v[2],
                                   [WORK_INPUT] = v[1],
                                   [WORK_WEIGHT] = v[2]},
                          .transfer = v[3],
                          .both = v[4]};
    return ST_OK;
}

typedef struct wish {
    int64_t stages, micro_batches, of_stage;
    schedule_times times;
} wish;

/* A schedule that nobody named, and why it is not drawn. */
typedef struct refusal {
    const char *name, *why;
} refusal;

typedef struct drawing {
    schedule schedule[SCHEDULES];
    refusal left_out[SCHEDULES];
    int n, n_left_out;
} drawing;

static status read_wish(const cli_args *args, wish *w, err *e) {
    TRY(cli_int(args, "stages", 4, 1, MOST_STAGES, &w->stages, e));
    TRY(cli_int(args, "micro-batches", 2 * w->stages, 1, MOST_MICRO_BATCHES, &w->micro_batches, e));
    TRY(cli_int(args, "virtual", 2, 2, 64, &w->of_stage, e));
    int64_t forwards = w->stages * w->micro_batches * w->of_stage;
    if (forwards > MOST_FORWARDS) {
        err_at(e, ST_USAGE, "--micro-batches",
               "%lld micro-batches in %lld chunks of layers are more than can be drawn",
               (long long)w->micro_batches, (long long)(w->stages * w->of_stage));
        return err_hint(e, "take fewer of them: a longer step waits as long");
    }
    return read_times(args, &w->times, e);
}

/* Times are those of a stage: a part of its layers takes that part of them. */
static status build(arena *a, const wish *w, schedule_kind kind, schedule *s, err *e) {
    int v = schedule_chunks_of(kind) ? schedule_chunks_of(kind) : (int)w->of_stage;
    schedule_times t = w->times;
    TRY(schedule_build(a, kind, (int)w->stages, (int)w->micro_batches, v, s, e));
    for (int i = 0; i < WORKS; i++) t.work[i] /= v;
    schedule_suit(a, s, &t);
    schedule_time(s, &t);
    return ST_OK;
}

/* All schedules, but those that cannot be of so many stages and micro-batches. */
static void build_possible(arena *a, const wish *w, drawing *d) {
    for (int i = 0; i < SCHEDULES; i++) {
        schedule_kind kind = (schedule_kind)i;
        err why = {0};
        if (build(a, w, kind, &d->schedule[d->n], &why) == ST_OK)
            d->n++;
        else
            d->left_out[d->n_left_out++] =
                (refusal){schedule_name(kind), arena_strdup(a, why.message)};
    }
}

static bool is_drawn(const cli_args *args, schedule_kind kind) {
    bool drawn = args->n_inputs == 0;
    for (int i = 0; i < args->n_inputs; i++)
        drawn |= strcmp(args->inputs[i], schedule_name(kind)) == 0;
    return drawn;
}

/* Chunks are chosen of one schedule alone, the time of F and a backward together is of another. */
static status check_special(const cli_args *args, const wish *w, err *e) {
    if (cli_has(args, "virtual") && !is_drawn(args, SCHEDULE_INTERLEAVED)) {
        err_at(e, ST_USAGE, "--virtual", "--virtual is of interleaved, which is not drawn");
        return err_hint(e, "leave it out, or draw interleaved, too");
    }
    if (w->times.both > 0 && !is_drawn(args, SCHEDULE_DUALPIPE)) {
        err_at(e, ST_USAGE, "--times",
               "a fifth time, of F and a backward together, is of dualpipe, which is not drawn");
        return err_hint(e, "leave it out, or draw dualpipe, too");
    }
    return ST_OK;
}

static status build_all(arena *a, const cli_args *args, const wish *w, drawing *d, err *e) {
    if (args->n_inputs == 0) build_possible(a, w, d);
    for (; d->n < args->n_inputs; d->n++) {
        schedule_kind kind;
        TRY(find_kind(args->inputs[d->n], &kind, e));
        TRY(build(a, w, kind, &d->schedule[d->n], e));
    }
    return ST_OK;
}

/* ---- what is said ---- */

/* Most that a stage keeps, in micro-batches of a whole stage. */
static double most_kept(const schedule *s) {
    return (double)schedule_most_kept(s) / schedule_parts(s);
}

/* What stages wait as a share of what they work: (P - 1) / M of 1F1B. */
static double of_work(const schedule *s) {
    return s->bubble / (1 - s->bubble);
}

static json_t *schedule_json(const schedule *s) {
    static const char *const words[WORKS] = {"F", "B", "I", "W"};
    json_t *stages = json_array();
    for (int i = 0; i < s->stages; i++) {
        json_t *items = json_array();
        for (int k = 0; k < s->stage[i].n; k++) {
            const schedule_item *it = &s->stage[i].item[k];
            json_array_append_new(items, json_pack("{s:s,s:i,s:i,s:f,s:f}", "work", words[it->work],
                                                   "micro_batch", it->micro_batch, "chunk",
                                                   it->chunk, "begin", it->begin, "end", it->end));
        }
        json_array_append_new(stages, json_pack("{s:i,s:f,s:o}", "kept", s->stage[i].kept, "busy",
                                                s->stage[i].busy, "items", items));
    }
    return json_pack("{s:s,s:i,s:i,s:i,s:i,s:f,s:f,s:f,s:f,s:o}", "schedule",
                     schedule_name(s->kind), "stages", s->stages, "micro_batches", s->micro_batches,
                     "chunks", s->chunks, "copies", s->copies, "time", s->step, "bubble", s->bubble,
                     "bubble_of_work", of_work(s), "kept", most_kept(s), "stage", stages);
}

static void put_table(strbuf *out, const drawing *d) {
    const schedule *s = d->schedule;
    strbuf_printf(out, "%d stage%s, %d micro-batch%s\n\n%-12s %14s %8s %8s %11s %18s\n", s->stages,
                  text_s(s->stages), s->micro_batches, s->micro_batches == 1 ? "" : "es",
                  "schedule", "chunks a stage", "time", "waiting", "of the work",
                  "micro-batches kept");
    for (int i = 0; i < d->n; i++)
        strbuf_printf(out, "%-12s %14d %8.4g %7.1f%% %10.1f%% %18.4g%s\n", schedule_name(s[i].kind),
                      s[i].chunks / s[i].stages, s[i].step, 100 * s[i].bubble, 100 * of_work(&s[i]),
                      most_kept(&s[i]), s[i].copies > 1 ? "  two copies of the model" : "");
    for (int i = 0; i < d->n_left_out; i++)
        strbuf_printf(out, "%-12s not drawn: %s\n", d->left_out[i].name, d->left_out[i].why);
}

static bool fit(const schedule *s, int n, double unit, int each) {
    for (int i = 0; i < n; i++)
        if (schedule_letters(&s[i], unit, each) > TERMINAL_LETTERS) return false;
    return true;
}

static void print_all(const drawing *d, const wish *w) {
    const schedule *s = d->schedule;
    int n = d->n;
    strbuf text = {0};
    put_table(&text, d);
    progress_put_rows(stdout, strbuf_cstr(&text));
    strbuf_clear(&text);
    double unit = fmin(fmin(w->times.work[WORK_FORWARD], w->times.work[WORK_INPUT]),
                       w->times.work[WORK_WEIGHT]);
    int each = 1 + snprintf(NULL, 0, "%d", s->micro_batches - 1);
    if (!fit(s, n, unit, each)) each = 1;
    bool fits = fit(s, n, unit, each);
    for (int i = 0; i < n && fits; i++) {
        strbuf_printf(&text, "\n%s\n", schedule_name(s[i].kind));
        schedule_draw(&text, &s[i], unit, each);
    }
    fputs(strbuf_cstr(&text), stdout); /* a picture is not broken at its spaces */
    strbuf_clear(&text);
    if (fits)
        strbuf_printf(
            &text,
            "\nF forward, B backward: I the gradient of a chunk's input, W of its weights; "
            "small letters: a stage's further "
            "chunks, or those of a second copy.%s\n",
            each > 1 ? "" : "\nMicro-batches have no room for their numbers: -o OUT.svg has them.");
    else
        strbuf_printf(
            &text, "\nToo long to be drawn here: -o OUT.svg draws it, -o OUT.json is a trace for "
                   "Perfetto.\n");
    progress_put_rows(stdout, strbuf_cstr(&text));
    strbuf_free(&text);
}

static status write_picture(const cli_args *args, const schedule *s, int n, err *e) {
    const char *dot = strrchr(args->output, '.');
    bool is_svg = dot && strcmp(dot, ".svg") == 0;
    if (!is_svg && (!dot || strcmp(dot, ".json") != 0)) {
        err_at(e, ST_USAGE, args->output, "%s is neither .svg nor .json", args->output);
        return err_hint(e, "an SVG is a picture, a JSON a trace for Perfetto");
    }
    if (dot == path_base(args->output)) {
        err_at(e, ST_USAGE, args->output, "%s is an ending, and no name of a file", args->output);
        return err_hint(e, "-o schedule%s", dot);
    }
    strbuf out = {0};
    if (is_svg)
        schedule_put_svg(&out, s, n);
    else
        schedule_put_trace(&out, s, n);
    status st = file_write_atomic(args->output, out.data, out.len, e);
    strbuf_free(&out);
    return st;
}

static void print_json(const drawing *d) {
    json_t *all = json_array(), *left_out = json_array();
    for (int i = 0; i < d->n; i++) json_array_append_new(all, schedule_json(&d->schedule[i]));
    for (int i = 0; i < d->n_left_out; i++)
        json_array_append_new(left_out, json_pack("{s:s,s:s}", "schedule", d->left_out[i].name,
                                                  "why", d->left_out[i].why));
    cli_print_json(json_pack("{s:o,s:o}", "schedules", all, "left_out", left_out));
}

static status cmd_plan_schedule(const cli_args *args, err *e) {
    wish w;
    drawing d = {.n = 0};
    TRY(read_wish(args, &w, e));
    arena *a = arena_new("schedule");
    status st = check_special(args, &w, e);
    if (st == ST_OK) st = build_all(a, args, &w, &d, e);
    if (st == ST_OK && args->output) st = write_picture(args, d.schedule, d.n, e);
    if (st == ST_OK && args->json)
        print_json(&d);
    else if (st == ST_OK)
        print_all(&d, &w);
    arena_free(a);
    return st;
}

static const cli_option options[] = {
    {"stages", "P", "stages of the pipeline (4)"},
    {"micro-batches", "M", "micro-batches of a step (2 P)"},
    {"virtual", "V", "chunks of layers on each stage, of interleaved (2)"},
    {"times", "F,I,W[,SEND[,BOTH]]",
     "of a stage: forward, and a backward's two parts; of a transfer; of a forward and a backward "
     "together, with dualpipe (1,1,1,0,F+I+W)"},
    {0}};

const cli_command command_plan_schedule = {
    .name = "plan schedule",
    .summary = "pipeline schedules drawn: what each stage does when, and where it waits",
    .usage = "[afab|1f1b|interleaved|zb-h1|zb-v|zb-h2|zb-2p|dualpipe ...] [--stages P] "
             "[--micro-batches M] "
             "[--virtual V] [--times F,I,W[,SEND[,BOTH]]] "
             "[-o OUT.svg|OUT.json]",
    .run = cmd_plan_schedule,
    .options = options,
    .min_inputs = 0,
    .max_inputs = SCHEDULES,
    .takes_output = true,
    .about = "Without a name all are drawn; zb-h2, zb-2p and dualpipe are not run by this program. "
             "An SVG is "
             "a picture; a JSON a trace that "
             "ui.perfetto.dev shows.\n"};
