/* athanor verify resume: a run that is interrupted computes what an undisturbed one does.
 *
 * A shortened config, the trial, is trained twice in RUN-verify by child processes (resume_runs.h);
 * the user's run is not touched. A broken promise is a result (exit 1); what also stops an
 * undisturbed run is that run's error.
 *
 * The trial has the same model, data, optimizer and precision, in few steps. It goes through
 * everything the run would: where the run is longer, the steps at which something happens (ends of
 * stages, warm-up, decay, milestones, growth of the batch) are scaled by its length / that of the
 * run, so that every stage gets steps of its own. Each step has a digest, and checkpoints come every
 * few steps. What does not decide weights is left out or made rare: samples, uploads, most
 * validation, early stopping. A guard that would rewind only logs, since how far it goes back depends
 * on where checkpoints lie, and a stopped run has one more. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/progress.h"
#include "app/verify/resume_runs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "data/shard/shards.h"
#include "run/folder.h"
#include "train/course/course.h"

enum { DEFAULT_STEPS = 30, DEFAULT_KILLS = 5, SAVES = 10 };
enum { LEAST_STAGE_STEPS = 2, VALID_BATCHES = 2 };

/* ---- the trial's config ---- */

static int64_t max_int(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* About how many sequences the data have; packings other than concat make another number. */
static status count_sequences(const config *c, uint64_t *n, err *e) {
    *n = 0;
    for (int i = 0; i < c->data.train.n; i++) {
        const config_source *from = &c->data.train.items[i];
        shards_spec spec = {.path = from->path, .format = (shards_format)from->format, .eos = -1};
        shards *s;
        TRY(shards_open(&s, &spec, e));
        *n += s->totals.tokens / (uint64_t)c->train.seq_len;
        shards_close(s);
    }
    return ST_OK;
}

/* The course of the whole run; with train.epochs its length is about right for packings other than
 * concat. */
static status open_course(course **out, const config *c, err *e) {
    uint64_t sequences = 0;
    if (c->train.epochs > 0) TRY(count_sequences(c, &sequences, e));
    return course_new(out, c, sequences, NULL, e);
}

/* ---- scaling ---- */

typedef struct trial_scale {
    int64_t steps, length; /* of the trial and of the run */
} trial_scale;

/* A number of steps, scaled to the length of the trial; it stays above zero unless it is zero. */
static int64_t scale_steps(const trial_scale *sc, int64_t steps) {
    if (steps <= 0 || sc->steps >= sc->length) return steps;
    return max_int((int64_t)((double)steps * (double)sc->steps / (double)sc->length + 0.5), 1);
}

static void scale_member(const trial_scale *sc, json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value))
        json_object_set_new(object, key, json_integer(scale_steps(sc, json_integer_value(value))));
}

/* Milestones must increase, also where scaling brings two together. */
static void scale_milestones(const trial_scale *sc, json_t *list) {
    int64_t last = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t step = scale_steps(sc, json_integer_value(json_array_get(list, i)));
        last = max_int(step, last + (i > 0));
        json_array_set_new(list, i, json_integer(last));
    }
}

/* The steps of a config or of a stage's changes. */
static void scale_keys(const trial_scale *sc, const json_t *object) {
    json_t *rate = json_object_get(json_object_get(object, "optim"), "schedule");
    scale_member(sc, rate, "warmup_steps");
    scale_member(sc, rate, "decay_steps");
    scale_milestones(sc, json_object_get(rate, "milestones"));
    scale_member(sc, json_object_get(json_object_get(object, "train"), "batch_ramp"), "every");
}

/* Each stage ends at its scaled last step, but leaves some steps to each stage that follows; the
 * last one ends with the run. Stages that the run does not reach are removed. */
static void scale_stages(const trial_scale *sc, const course *whole, json_t *list) {
    int64_t n = whole->n_stages, last = 0;
    while (json_array_size(list) > (size_t)n) json_array_remove(list, (size_t)n);
    for (int64_t i = 0; i < (int64_t)json_array_size(list); i++) {
        json_t *stage = json_array_get(list, (size_t)i);
        scale_keys(sc, stage);
        int64_t end = scale_steps(sc, whole->stage[i].last_step);
        int64_t most = sc->steps - LEAST_STAGE_STEPS * (n - 1 - i);
        if (sc->steps < sc->length) end = max_int(end, last + LEAST_STAGE_STEPS);
        if (sc->steps < sc->length && end > most) end = most;
        json_object_set_new(stage, "until", json_pack("{s:I}", "steps", (json_int_t)end));
        last = end;
    }
}

/* ---- what decides no weights ---- */

static void put(json_t *root, const char *group, const char *key, json_t *value) {
    json_object_set_new(json_object_get(root, group), key, value);
}

static void set_length(json_t *root, int64_t steps) {
    put(root, "train", "steps", json_integer(steps));
    put(root, "train", "tokens", json_null());
    put(root, "train", "epochs", json_null());
    put(root, "train", "digest_every", json_integer(1));
    put(root, "train", "log_every", json_integer(1));
}

static void set_checkpoints(json_t *root, int64_t save_every) {
    put(root, "checkpoint", "every", json_integer(save_every));
    put(root, "checkpoint", "every_minutes", json_integer(0));
    put(root, "checkpoint", "keep", json_integer(2));
    put(root, "checkpoint", "keep_every", json_integer(0));
    put(root, "checkpoint", "keep_best", json_integer(0));
    put(root, "checkpoint", "upload", json_null());
}

static void quieten(json_t *root, const config *c, int64_t save_every) {
    bool few = c->eval.batches > 0 && c->eval.batches < VALID_BATCHES;
    put(root, "eval", "every", json_integer(2 * save_every));
    put(root, "eval", "batches", json_integer(few ? c->eval.batches : VALID_BATCHES));
    put(root, "eval", "patience", json_integer(0));
    put(root, "sample", "prompts", json_array());
    if (c->guard.action == CONFIG_GUARD_REWIND) put(root, "guard", "action", json_string("log"));
}

/* The config of the trial, for training in `run`; `steps` at most those of the run. Made of the JSON
 * form, where a stage's changes look like the config itself. */
static json_t *trial_config(const config *c, const course *whole, const char *run, int64_t steps,
                            int64_t save_every) {
    trial_scale sc = {steps, whole->total_steps};
    json_t *root = config_to_json(c);
    json_object_set_new(root, "run", json_string(run));
    scale_keys(&sc, root);
    scale_stages(&sc, whole, json_object_get(root, "stages"));
    set_length(root, steps);
    set_checkpoints(root, save_every);
    quieten(root, c, save_every);
    return root;
}

/* ---- its folder ---- */

static status write_config(const resume_runs *r, const config *c, const course *whole, err *e) {
    json_t *o = trial_config(c, whole, r->run_a, r->steps, r->save_every);
    strbuf text = {0};
    json_format(&text, o, 2);
    json_decref(o);
    status st = file_write_atomic(r->config, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

/* RUN-verify may be there from an earlier trial; anything else is the user's. */
static status check_folder(const resume_runs *r, err *e) {
    char **names;
    int n = 0;
    if (!file_exists(r->dir) || file_exists(r->config)) return ST_OK;
    TRY(file_list_dir(r->a, r->dir, &names, &n, e));
    for (int i = 0; i < n; i++) {
        if (names[i][0] == '.') continue;
        err_at(e, ST_USAGE, r->dir, "%s is there already and not from verify resume", r->dir);
        return err_hint(e, "the trial runs go there: move it, or give another run=FOLDER");
    }
    return ST_OK;
}

static status prepare_folder(const resume_runs *r, const config *c, const course *whole, err *e) {
    const char *const old[] = {r->run_a, r->run_b, arena_printf(r->a, "%s.log", r->run_a),
                               arena_printf(r->a, "%s.log", r->run_b)};
    for (int i = 0; i < ARRAY_LEN(old); i++) TRY(file_remove_tree(old[i], e));
    return write_config(r, c, whole, e);
}

static json_t *result_json(const resume_runs *r, const char *detail, double seconds) {
    return json_pack("{s:b, s:o, s:I, s:i, s:i, s:i, s:i, s:o}", "ok", r->broken == NULL, "detail",
                     json_cstr(detail), "steps", (json_int_t)r->steps, "interruptions", r->struck,
                     "inside_saves", r->in_saves, "by_sigterm", r->stops, "rounds", r->rounds,
                     "seconds", json_f64(seconds));
}

static void report(const resume_runs *r, const cli_args *args, double seconds) {
    const char *detail = r->broken;
    if (!detail)
        detail = arena_printf(r->a,
                              "%" PRId64 " step%s, %d interruption%s (%d inside a save, %d by "
                              "SIGTERM): every step and the final state are bit for bit those of "
                              "an undisturbed run",
                              r->steps, text_s(r->steps), r->struck, text_s(r->struck), r->in_saves,
                              r->stops);
    if (r->live) progress_clear(stderr);
    if (args->json)
        cli_print_json(result_json(r, detail, seconds));
    else
        printf("%s: %s\n", r->broken ? "broken" : "ok", detail);
}

/* "RUN-verify/trial.json:7 (model.hidden_size)" says where the user wrote it instead. */
static void locate_error(const resume_runs *r, const config *c, err *e) {
    char *key = strstr(e->where, " ("), *end = strchr(e->where, ')');
    if (!strstr(e->where, r->config) || !key || !end) return;
    *end = '\0';
    config_locate(c, key + 2, e);
}

static status run_trial(resume_runs *r, const cli_args *args, const config *c, const course *whole,
                        err *e) {
    int64_t began = clock_now_ns();
    run_folder *lock;
    TRY(check_folder(r, e));
    TRY(run_open(&lock, r->dir, e)); /* two trials of one run would meet in this folder */
    status st = prepare_folder(r, c, whole, e);
    if (st == ST_OK) st = resume_runs_do(r, e);
    if (st == ST_OK)
        report(r, args, clock_since_s(began));
    else
        locate_error(r, c, e);
    if (r->keep || r->broken || cli_has(args, "keep"))
        log_info("the two runs are in %s", r->dir);
    else if (file_remove_tree(r->dir, NULL) != ST_OK)
        log_warn("%s could not be removed", r->dir);
    run_close(lock);
    return st == ST_OK && r->broken ? ST_FAILED : st;
}

static status init_trial(resume_runs *r, const cli_args *args, const char *run, const course *whole,
                         err *e) {
    int64_t kills, seed, steps;
    int64_t least = LEAST_STAGE_STEPS * whole->n_stages;             /* some for every stage */
    TRY(cli_int(args, "kills", DEFAULT_KILLS, 1, 10000, &kills, e)); /* none would prove nothing */
    TRY(cli_int(args, "seed", 0, 0, INT64_MAX, &seed, e));
    TRY(cli_int(args, "steps", DEFAULT_STEPS > least ? DEFAULT_STEPS : least, least, 1000000000,
                &steps, e));
    r->dir = arena_printf(r->a, "%s-verify", path_plain(r->a, run));
    r->run_a = path_join(r->a, r->dir, "a");
    r->run_b = path_join(r->a, r->dir, "b");
    r->config = path_join(r->a, r->dir, "trial.json");
    r->steps = steps < whole->total_steps ? steps : whole->total_steps;
    r->save_every = r->steps > SAVES ? r->steps / SAVES : 1;
    r->kills = (int)kills;
    r->key = rng_key_named((uint64_t)seed, "verify resume");
    r->live = !args->json && progress_is_live(stderr);
    r->step = ARENA_ARRAY(r->a, json_t *, r->steps);
    r->valid = ARENA_ARRAY(r->a, json_t *, r->steps);
    return ST_OK;
}

static status verify_config(const cli_args *args, const config *c, err *e) {
    course *whole;
    TRY(config_check_train(c, e));
    TRY(open_course(&whole, c, e));
    resume_runs r = {.a = arena_new("verify")};
    status st = init_trial(&r, args, c->run, whole, e);
    if (st == ST_OK) st = run_trial(&r, args, c, whole, e);
    resume_runs_free(&r);
    arena_free(r.a);
    course_free(whole);
    return st;
}

static status verify_resume(const cli_args *args, err *e) {
    if (args->json) log_set_quiet(true);
    config *c;
    TRY(config_load(&c, args->inputs[0], args->overrides, args->n_overrides, e));
    status st = verify_config(args, c, e);
    config_free(c);
    return st;
}

static const cli_option options[] = {
    {"steps", "N", "steps of each run, at most those of CONFIG (default 30)"},
    {"kills", "K", "interruptions (default 5)"},
    {"seed", "S", "which random moments (default 0)"},
    {"keep", NULL, "leave RUN-verify/ there; it also stays when the promise is broken"},
    {0}};

const cli_command command_verify_resume = {
    .name = "verify resume",
    .summary = "whether an interrupted run computes what an undisturbed one does",
    .usage = "CONFIG [key=value...] [--steps N] [--kills K] [--seed S] [--keep]",
    .run = verify_resume,
    .options = options,
    .takes_keys = true,
    .about =
        "Trains CONFIG twice in RUN-verify/, once undisturbed and once killed (at random\n"
        "moments, inside saves) and stopped (SIGTERM) again and again, and compares every step\n"
        "and the final weights bit for bit. Longer runs are shortened: the steps at which stages,\n"
        "warm-up, decay, milestones and batch ramp begin and end are scaled to --steps. The run\n"
        "itself is not touched.\n"
        "\n"
        "Exit status: 0 the promise holds, 1 it does not (the first difference is named).\n",
};
