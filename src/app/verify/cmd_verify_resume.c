/* athanor verify resume: a run that is interrupted computes what an undisturbed one does.
 *
 * A shortened config (resume_trial.h) is trained twice in RUN-verify by child processes
 * (resume_runs.h); the user's run is not touched. A broken promise is a result (exit 1); what also
 * stops an undisturbed run is that run's error. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/frame/cli.h"
#include "app/verify/resume_runs.h"
#include "app/verify/resume_trial.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "run/folder.h"

enum { DEFAULT_STEPS = 30, DEFAULT_KILLS = 5, SAVES = 10 };

static status write_config(const resume_runs *r, const config *c, const course *whole, err *e) {
    json_t *o = resume_trial_config(c, whole, r->run_a, r->steps, r->save_every);
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
        err_set(e, ST_USAGE, "%s is there already and not from verify resume", r->dir);
        err_where(e, "%s", r->dir);
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
    json_t *o =
        json_pack("{s:b, s:o, s:I, s:i, s:i, s:i, s:i}", "ok", r->broken == NULL, "detail",
                  json_cstr(detail), "steps", (json_int_t)r->steps, "interruptions", r->struck,
                  "inside_saves", r->in_saves, "by_sigterm", r->stops, "rounds", r->rounds);
    json_object_set_new(o, "seconds", json_f64(seconds));
    return o;
}

static void report(const resume_runs *r, const cli_args *args, double seconds) {
    const char *detail = r->broken;
    if (!detail)
        detail = arena_printf(r->a,
                              "%" PRId64 " steps, %d interruptions (%d inside a save, %d by "
                              "SIGTERM): every step and the final state are bit for bit those of "
                              "an undisturbed run",
                              r->steps, r->struck, r->in_saves, r->stops);
    if (r->live) fputs("\r\033[K", stderr);
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
    int64_t least = resume_trial_least_steps(whole);
    TRY(cli_int(args, "kills", DEFAULT_KILLS, 0, 10000, &kills, e));
    TRY(cli_int(args, "seed", 0, 0, INT64_MAX, &seed, e));
    TRY(cli_int(args, "steps", DEFAULT_STEPS > least ? DEFAULT_STEPS : least, least, 1000000000,
                &steps, e));
    size_t len = strlen(run);
    while (len > 1 && run[len - 1] == '/') len--;
    r->dir = arena_printf(r->a, "%.*s-verify", (int)len, run);
    r->run_a = path_join(r->a, r->dir, "a");
    r->run_b = path_join(r->a, r->dir, "b");
    r->config = path_join(r->a, r->dir, "trial.json");
    r->steps = steps < whole->total_steps ? steps : whole->total_steps;
    r->save_every = r->steps > SAVES ? r->steps / SAVES : 1;
    r->kills = (int)kills;
    r->key = rng_key_named((uint64_t)seed, "verify resume");
    r->live = !args->json && isatty(STDERR_FILENO);
    r->step = ARENA_ARRAY(r->a, json_t *, r->steps);
    r->valid = ARENA_ARRAY(r->a, json_t *, r->steps);
    return ST_OK;
}

static status verify_config(const cli_args *args, const config *c, err *e) {
    course *whole;
    TRY(config_check_train(c, e));
    TRY(resume_trial_course(&whole, c, e));
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
    .min_inputs = 1,
    .max_inputs = 1,
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
