/* athanor quickstart: the stages in order. See quickstart.h. */
#include <math.h>

#include "app/frame/cli.h"
#include "app/quickstart/quickstart.h"
#include "app/train/train_signals.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "run/folder.h"
#include "run/metrics.h"

enum { DEFAULT_SECONDS = 108 };

/* ---- text to shards ---- */

static status find_text(quick *q, const char *text, err *e) {
    int64_t began = clock_now_ns();
    TRY(quick_find_corpus(q->a, text, q->run, &q->corpus, e));
    if (text)
        quick_stage(q, "text", began, "%s, %.2f MB", q->corpus.what,
                    (double)q->corpus.bytes * 1e-6);
    else
        quick_stage(q, "text", began, "%s: %s", q->corpus.what, q->corpus.why);
    return ST_OK;
}

/* Larger texts can teach more tokens. */
static int32_t vocab_for(uint64_t bytes) {
    return bytes < 300000 ? 512 : bytes < 3000000 ? 1024 : 2048;
}

static status read_into_trainer(const char *path, tok_trainer *tr, err *e) {
    reader *r;
    document doc;
    bool more = true;
    TRY(reader_open(&r, &path, 1, NULL, e));
    status st = ST_OK;
    while (st == ST_OK && more) {
        st = reader_next(r, &doc, &more, e);
        if (st == ST_OK && more) st = tok_trainer_add(tr, doc.text, doc.len, e);
    }
    reader_close(r);
    return st;
}

static status train_tokenizer(quick *q, tok **out, err *e) {
    int64_t began = clock_now_ns();
    tok_train_options opt = {.kind = TOK_BPE, .vocab_size = vocab_for(q->corpus.bytes)};
    tok_trainer *tr;
    TRY(tok_trainer_new(&tr, &opt, e));
    status st = read_into_trainer(q->corpus.path, tr, e);
    if (st == ST_OK) st = tok_trainer_finish(tr, out, e);
    tok_trainer_free(tr);
    TRY(st);
    q->vocab = tok_vocab_size(*out);
    TRY(tok_save_file(*out, path_join(q->a, q->run, "tokenizer.json"), e));
    quick_stage(q, "tokenizer", began, "byte-level BPE, %d tokens", (int)q->vocab);
    return ST_OK;
}

static status build_shards(quick *q, const tok *t, err *e) {
    int64_t began = clock_now_ns();
    data_build_options opt = {.reader = {.max_bad = -1}, .valid_fraction = 0.1};
    const char *inputs[] = {q->corpus.path};
    TRY(data_build(inputs, 1, path_join(q->a, q->run, "shards"), t, &opt, &q->data, e));
    reader_warn_of_broken_text(&q->data.report);
    reader_warn_of_bad_records(&q->data.report);
    const shard_totals *train = &q->data.train;
    quick_stage(q, "shards", began, "%llu tokens to learn from, %llu held out, %.2f bytes each",
                (unsigned long long)train->tokens, (unsigned long long)q->data.valid.tokens,
                (double)train->text_bytes / (double)train->tokens);
    return ST_OK;
}

static status prepare(quick *q, err *e) {
    tok *t = NULL;
    status st = train_tokenizer(q, &t, e);
    if (st == ST_OK) st = build_shards(q, t, e);
    tok_free(t);
    return st;
}

/* ---- training ---- */

static status measure_machine(quick *q, err *e) {
    int64_t began = clock_now_ns();
    TRY(quick_choose_size(q, e));
    const quick_plan *p = &q->plan;
    quick_stage(q, "machine", began, "%.0f tokens/s: %d layers, %d wide, %lld steps, about %.0f s",
                p->size->batch * p->T / p->step_s, p->size->L, p->size->C, (long long)p->steps,
                p->step_s * (double)p->steps);
    return ST_OK;
}

status quick_train(const char *config_path, const char *const *overrides, int n,
                   const train_options *opt, err *e) {
    config *c;
    TRY(config_load(&c, config_path, overrides, n, e));
    status st = train_run(c, opt, e);
    config_free(c);
    return st;
}

static status train_part(const char *config_path, int64_t steps, bool fresh, quick_watch *w,
                         err *e) {
    char override[64];
    const char *overrides[] = {override};
    snprintf(override, sizeof override, "train.steps=%lld", (long long)steps);
    train_options opt = {.fresh = fresh,
                         .stop = &w->stop,
                         .on_event = quick_watch_event,
                         .on_plan = quick_watch_plan,
                         .ctx = w};
    w->stop = 0;
    return quick_train(config_path, overrides, 1, &opt, e);
}

/* How many steps there is time for at the speed of the last part; the schedule then ends there. */
static int64_t corrected_steps(const quick_watch *w) {
    double part_s = clock_since_s(w->view.began_ns), all_s = clock_since_s(w->began_ns);
    double step_s = part_s / (double)(w->at_step - w->view.first_step);
    double more = (0.92 * w->limit_s - all_s) / step_s;
    return w->at_step + (more > 1 ? (int64_t)more : 1);
}

/* A part ends early when a signal came, or when the machine has become too slow for the time. */
static status train_parts(quick *q, const char *config_path, quick_watch *w, err *e) {
    int64_t steps = q->plan.steps;
    for (;;) {
        status st = train_part(config_path, steps, w->corrections == 0, w, e);
        if (st != ST_STOPPED) return st;
        if (w->by_signal) {
            err_hint(e, "athanor train %s goes on from there", config_path);
            return st;
        }
        steps = corrected_steps(w);
        progress_end(&w->view);
        fprintf(q->out, "  the machine is slower than measured: %lld steps instead of %lld\n",
                (long long)steps, (long long)q->plan.steps);
        q->plan.steps = steps;
        w->corrections++;
        TRY(quick_write_config(q, &config_path, e));
    }
}

static status train_model(quick *q, quick_watch *w, err *e) {
    const char *path;
    TRY(quick_write_config(q, &path, e));
    progress_init(&w->view, q->out);
    train_catch_signals();
    w->began_ns = clock_now_ns();
    status st = train_parts(q, path, w, e);
    progress_end(&w->view);
    if (st == ST_OK)
        quick_stage(q, "trained", w->began_ns, "%lld steps; memory planned %.1f MiB, used %.1f MiB",
                    (long long)w->at_step, w->planned_mib, w->used_mib);
    return st;
}

/* ---- the command ---- */

static void print_json(const quick *q, const quick_watch *w, double train_s) {
    const char *sample =
        arena_printf(q->a, "%s%s", q->corpus.prompts[0], metrics_text(w->sample[0], "text"));
    cli_print_json(json_pack("{s:o, s:o, s:o, s:o, s:o}", "run", json_cstr(q->run), "train_s",
                             json_f64(train_s), "val_loss", json_f64(w->val_loss), "val_bpb",
                             json_f64(w->val_bpb), "sample", json_cstr(sample)));
}

/* The text is looked at before a folder is made for it. */
static status prepare_and_train(const cli_args *args, quick *q, quick_watch *w, err *e) {
    TRY(find_text(q, args->n_inputs ? args->inputs[0] : NULL, e));
    TRY(file_make_dirs(q->run, e));
    if (run_is_run(q->run))
        fprintf(q->out, "%s holds a run: it is replaced by a new one\n", q->run);
    TRY(prepare(q, e));
    TRY(measure_machine(q, e));
    return train_model(q, w, e);
}

/* Where nothing was and nothing came to be trained, nothing is left. */
static status run_stages(const cli_args *args, quick *q, err *e) {
    quick_watch w = {.q = q, .limit_s = q->budget_s * 1.25, .val_loss = NAN, .val_bpb = NAN};
    bool was_there = file_exists(q->run);
    status st = prepare_and_train(args, q, &w, e);
    double train_s = clock_since_s(w.began_ns);
    if (st != ST_OK && !was_there && !run_is_run(q->run) && file_remove_tree(q->run, NULL) != ST_OK)
        log_warn("%s was made and could not be removed", q->run);
    if (st == ST_OK) {
        quick_print_result(q, &w);
        if (args->json) print_json(q, &w, train_s);
    }
    quick_watch_free(&w);
    return st;
}

static status cmd_quickstart(const cli_args *args, err *e) {
    quick q = {.out = args->json ? stderr : stdout,
               .run = args->output ? args->output : "runs/quickstart"};
    TRY(cli_num(args, "seconds", DEFAULT_SECONDS, 1, 1e6, &q.budget_s, e));
    if (args->json) log_set_quiet(true);
    q.a = arena_new("quickstart");
    status st = run_stages(args, &q, e);
    arena_free(q.a);
    return st;
}

static const cli_option options[] = {{"seconds", "N", "time for the training steps (default 108)"},
                                     {0}};

const cli_command command_quickstart = {
    .name = "quickstart",
    .summary = "from text to a model that writes, in minutes",
    .usage = "[TEXT] [-o RUN] [--seconds N]",
    .run = cmd_quickstart,
    .options = options,
    .min_inputs = 0,
    .max_inputs = 1,
    .takes_output = true,
    .about =
        "TEXT is a text file, a .jsonl file, a folder of them, or - for standard input. Without\n"
        "it tinyshakespeare is fetched, or without internet the King James Bible is printed by\n"
        "`bible`. RUN (default runs/quickstart) gets tokenizer.json, shards/, checkpoints/,\n"
        "metrics.jsonl, report.html and quickstart.yaml, the config of the run.\n"};
