/* Lives of the two runs, and what is compared; see the header. Reading order: resume_runs_do,
 * round_b, live. */
#include "app/verify/resume_runs.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "app/frame/child.h"
#include "app/frame/progress.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "io/checkpoint/checkpoint.h"
#include "run/metrics.h"

enum { START_OPS = 16 }; /* file operations of a start, about */

/* How b is interrupted, in turns. */
typedef enum strike { STRIKE_SAVE, STRIKE_KILL, STRIKE_TERM, N_STRIKES, STRIKE_NONE } strike;

static uint32_t draw(resume_runs *r, uint32_t n) {
    return rng_u32(r->key, r->drawn++) % n;
}

static void show(const resume_runs *r, const char *what, int64_t step) {
    if (!r->live) return;
    strbuf line = {0};
    strbuf_printf(&line, "%s: step %" PRId64 " of %" PRId64, what, step, r->steps);
    if (r->struck) strbuf_printf(&line, ", interruption %d of %d", r->struck, r->kills);
    progress_show(stderr, line.data);
    strbuf_free(&line);
}

/* A lasting line of progress. */
static void tell(const resume_runs *r, const char *line) {
    if (r->live) progress_clear(stderr);
    log_info("%s", line);
}

/* ---- children ---- */

static status start(const resume_runs *r, const char *run, const char *fault, child **out, err *e) {
    const char *args[] = {"athanor", "train", r->config, arena_printf(r->a, "run=%s", run),
                          "--json",  NULL};
    return child_start(out, args, fault, arena_printf(r->a, "%s.log", run), e);
}

/* Makes an err of a child's last line, {"error": {...}}. A child that was killed has none: then
 * its log is kept. */
static status adopt_error(resume_runs *r, const json_t *line, int exit_status, const char *run,
                          err *e) {
    const json_t *o = json_object_get(line, "error");
    if (!o) {
        r->keep = true;
        err_at(e, ST_FAILED, run, "a training process ended with status %d and said nothing",
               exit_status);
        return err_hint(e, "its standard error is in %s.log", run);
    }
    const char *hint = json_string_value(json_object_get(o, "hint"));
    const char *where = json_string_value(json_object_get(o, "where"));
    err_at(e, (status)exit_status, where ? where : "", "%s",
           json_string_value(json_object_get(o, "message")));
    return err_hint(e, "%s", hint ? hint : "");
}

/* ---- a: undisturbed ---- */

static void keep_event(const resume_runs *r, json_t **list, json_t *event) {
    int64_t step = metrics_int(event, "step", 0);
    if (step < 1 || step > r->steps) return;
    json_decref(list[step - 1]);
    list[step - 1] = json_incref(event);
}

static void hear_a(resume_runs *r, json_t *event) {
    if (metrics_is(event, "step")) {
        keep_event(r, r->step, event);
        show(r, "undisturbed", metrics_int(event, "step", 0));
    } else if (metrics_is(event, "valid")) {
        keep_event(r, r->valid, event);
    }
}

/* Reads a child to its end; its last line stays in *last. */
static status hear_all(resume_runs *r, child *c, json_t **last, err *e) {
    json_t *line;
    for (;;) {
        TRY(child_read(c, &line, e));
        if (!line) return ST_OK;
        hear_a(r, line);
        json_decref(*last);
        *last = line;
    }
}

static status finish_a(resume_runs *r, const json_t *last, int exit_status, err *e) {
    if (exit_status != ST_OK) return adopt_error(r, last, exit_status, r->run_a, e);
    for (int64_t i = 0; i < r->steps; i++) {
        if (r->step[i]) continue;
        return err_at(e, ST_FAILED, r->run_a,
                      "the undisturbed run reported no step %" PRId64 " of %" PRId64, i + 1,
                      r->steps);
    }
    return ST_OK;
}

static status run_a(resume_runs *r, err *e) {
    child *c;
    json_t *last = NULL;
    TRY(start(r, r->run_a, NULL, &c, e));
    status st = hear_all(r, c, &last, e);
    if (st == ST_OK)
        st = finish_a(r, last, child_end(c), e);
    else
        child_abandon(c);
    json_decref(last);
    return st;
}

/* About how many file operations a save takes, from the files of a's last checkpoint: each is
 * created, written by the megabyte, and synced; to these come folders, the manifest, the rename,
 * and the removal of an older checkpoint. */
static status count_operations(resume_runs *r, const char *dir, int *count, err *e) {
    char **names;
    int n;
    TRY(file_list_dir(r->a, dir, &names, &n, e));
    for (int i = 0; i < n; i++) {
        const char *path = path_join(r->a, dir, names[i]);
        if (file_is_dir(path))
            TRY(count_operations(r, path, count, e));
        else
            *count += 4 + (int)(file_size(path) >> 20);
    }
    *count += 4;
    return ST_OK;
}

static status learn_from_a(resume_runs *r, err *e) {
    double ms = 0;
    for (int64_t i = 0; i < r->steps; i++) ms += metrics_num(r->step[i], "step_ms");
    r->step_s = ms / 1e3 / (double)r->steps;
    return count_operations(r, checkpoint_path(r->a, r->run_a, r->steps), &r->save_ops, e);
}

/* ---- b: what must hold ---- */

static const char *as_text(const resume_runs *r, const json_t *event, const char *key) {
    strbuf text = {0};
    const json_t *value = json_object_get(event, key);
    if (value) json_format(&text, value, 0);
    const char *copy = arena_strdup(r->a, value ? strbuf_cstr(&text) : "nothing");
    strbuf_free(&text);
    return copy;
}

/* The first difference of an event from a's. */
static void compare(resume_runs *r, const json_t *a, const json_t *b, const char *const *keys) {
    for (int i = 0; keys[i] && !r->broken; i++) {
        if (json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))) continue;
        r->broken = arena_printf(r->a,
                                 "step %" PRId64 " differs: %s is %s in the undisturbed run and %s "
                                 "in the interrupted one (last interruption: %s)",
                                 metrics_int(b, "step", 0), keys[i], as_text(r, a, keys[i]),
                                 as_text(r, b, keys[i]), r->story[0] ? r->story : "none yet");
    }
}

static void check_start(resume_runs *r, const json_t *event) {
    int64_t step = metrics_int(event, "step", 0);
    if (step < r->saved_step)
        r->broken = arena_printf(r->a,
                                 "the checkpoint of step %" PRId64 " was lost: after %s the run "
                                 "went on from step %" PRId64,
                                 r->saved_step, r->story, step);
    r->last_step = step;
}

static void check_step(resume_runs *r, const json_t *event) {
    static const char *const keys[] = {"digest", "loss", "grad_norm", "lr", "tokens", NULL};
    int64_t step = metrics_int(event, "step", 0);
    if (step != r->last_step + 1 || step > r->steps)
        r->broken = arena_printf(r->a, "step %" PRId64 " follows step %" PRId64 " (after %s)", step,
                                 r->last_step, r->story);
    else
        compare(r, r->step[step - 1], event, keys);
    r->last_step = step;
}

static void check_valid(resume_runs *r, const json_t *event) {
    static const char *const keys[] = {"val_loss", NULL};
    int64_t step = metrics_int(event, "step", 0);
    if (step >= 1 && step <= r->steps && r->valid[step - 1])
        compare(r, r->valid[step - 1], event, keys);
}

static void hear_b(resume_runs *r, const json_t *event) {
    if (r->broken) return;
    if (metrics_is(event, "start")) check_start(r, event);
    if (metrics_is(event, "step")) check_step(r, event);
    if (metrics_is(event, "valid")) check_valid(r, event);
    if (metrics_is(event, "checkpoint")) r->saved_step = metrics_int(event, "step", r->saved_step);
    show(r, "interrupted", r->last_step);
}

/* ---- b: lives ---- */

/* One start of b and how it is to end. */
typedef struct life {
    strike how;
    const char *fault; /* STRIKE_SAVE */
    int64_t target;    /* the signal comes when this step is done */
    double delay_s;    /* and this later */
    bool started, signalled;
    json_t *last;
} life;

/* The file operation, counted from the start of the process, in whose place b is killed: one of
 * the save near the target step, or, one time in four, one of the start. */
static int64_t plan_fault(resume_runs *r, int64_t target) {
    if (draw(r, 4) == 0) return 1 + draw(r, START_OPS);
    int64_t saves = target > r->saved_step ? (target - r->saved_step) / r->save_every : 0;
    return saves * r->save_ops + START_OPS + draw(r, (uint32_t)r->save_ops);
}

/* Targets ascend, one in each K-th part of the run, so that all of it is interrupted. */
static life plan_life(resume_runs *r) {
    life l = {.how = STRIKE_NONE};
    if (r->struck >= r->kills) return l;
    l.how = (strike)(r->struck % N_STRIKES);
    l.target = (r->struck * r->steps + draw(r, (uint32_t)r->steps)) / r->kills;
    l.delay_s = r->step_s * draw(r, 1000) / 1000;
    if (l.how == STRIKE_SAVE)
        l.fault = arena_printf(r->a, "kill:%" PRId64, plan_fault(r, l.target));
    return l;
}

static void sleep_s(double s) {
    struct timespec ts = {(time_t)s, (long)((s - floor(s)) * 1e9)};
    nanosleep(&ts, NULL);
}

static void strike_now(const resume_runs *r, life *l, child *c) {
    bool by_signal = l->how == STRIKE_KILL || l->how == STRIKE_TERM;
    if (!by_signal || !l->started || l->signalled || r->last_step < l->target) return;
    sleep_s(l->delay_s);
    child_signal(c, l->how == STRIKE_KILL ? SIGKILL : SIGTERM);
    l->signalled = true;
}

static status hear_life(resume_runs *r, life *l, child *c, err *e) {
    while (!r->broken) {
        json_t *line;
        TRY(child_read(c, &line, e));
        if (!line) break;
        hear_b(r, line);
        l->started = l->started || metrics_is(line, "start");
        strike_now(r, l, c);
        json_decref(l->last);
        l->last = line;
    }
    return ST_OK;
}

/* Whether a crash left a checkpoint half made or half removed. */
static bool died_in_save(const resume_runs *r) {
    char **names;
    int n;
    if (file_list_dir(r->a, path_join(r->a, r->run_b, "checkpoints"), &names, &n, NULL) != ST_OK)
        return false;
    for (int i = 0; i < n; i++)
        if (names[i][0] == '.') return true;
    return false;
}

static void count_strike(resume_runs *r, const life *l, int exit_status) {
    bool in_save = exit_status != ST_STOPPED && died_in_save(r);
    r->struck++;
    r->in_saves += in_save;
    r->stops += exit_status == ST_STOPPED;
    snprintf(r->story, sizeof r->story, "%s %s step %" PRId64,
             l->how == STRIKE_TERM ? "SIGTERM" : "SIGKILL",
             in_save ? "inside a save, after" : "after", r->last_step);
    tell(r, arena_printf(r->a, "interruption %d of %d: %s", r->struck, r->kills, r->story));
}

/* b has ended: interrupted as planned, finished, or with an error. An error breaks the promise,
 * since the undisturbed run had none. */
static void judge_end(resume_runs *r, const life *l, int exit_status, bool *finished) {
    bool killed = exit_status == 128 + SIGKILL &&
                  (l->how == STRIKE_SAVE || (l->how == STRIKE_KILL && l->signalled));
    bool termed = l->how == STRIKE_TERM && l->signalled &&
                  (exit_status == ST_STOPPED || exit_status == 128 + SIGTERM);
    if (r->broken) return;
    *finished = exit_status == ST_OK;
    if (killed || termed) {
        count_strike(r, l, exit_status);
        if (exit_status == ST_STOPPED && r->saved_step != r->last_step)
            r->broken = arena_printf(
                r->a, "stopped by SIGTERM after step %" PRId64 ", the run saved step %" PRId64,
                r->last_step, r->saved_step);
    } else if (*finished && r->last_step != r->steps) {
        r->broken = arena_printf(r->a, "the run ended after step %" PRId64 " of %" PRId64,
                                 r->last_step, r->steps);
    } else if (!*finished) {
        err why = {0};
        adopt_error(r, l->last, exit_status, r->run_b, &why);
        r->broken = arena_printf(r->a, "the run does not go on after %s: exit %d, %s",
                                 r->story[0] ? r->story : "its start", exit_status, why.message);
    }
}

static status live(resume_runs *r, bool *finished, err *e) {
    life l = plan_life(r);
    child *c;
    TRY(start(r, r->run_b, l.fault, &c, e));
    status st = hear_life(r, &l, c, e);
    if (st == ST_OK && !r->broken)
        judge_end(r, &l, child_end(c), finished);
    else
        child_abandon(c);
    json_decref(l.last);
    return st;
}

/* ---- b: the end ---- */

/* The files of weights and optimizer in two checkpoints. */
static status compare_files(resume_runs *r, const char *a, const char *b, err *e) {
    char **names;
    int n;
    TRY(file_list_dir(r->a, a, &names, &n, e));
    for (int i = 0; i < n && !r->broken; i++) {
        const char *x = path_join(r->a, a, names[i]), *y = path_join(r->a, b, names[i]);
        size_t len = strlen(names[i]);
        uint64_t hash_x, hash_y;
        if (len < 12 || strcmp(names[i] + len - 12, ".safetensors") != 0) continue;
        TRY(hash_file(x, &hash_x, e));
        TRY(hash_file(y, &hash_y, e));
        if (hash_x != hash_y) r->broken = arena_printf(r->a, "%s and %s differ", x, y);
    }
    return ST_OK;
}

static status check_end(resume_runs *r, err *e) {
    const char *a = checkpoint_path(r->a, r->run_a, r->steps);
    const char *b = checkpoint_path(r->a, r->run_b, r->steps);
    checkpoint_kind kind;
    err why = {0};
    if (checkpoint_verify(b, &kind, &why) != ST_OK) {
        r->broken = arena_strdup(r->a, why.message);
        return ST_OK;
    }
    TRY(compare_files(r, a, b, e));
    return compare_files(r, path_join(r->a, a, "state"), path_join(r->a, b, "state"), e);
}

/* What was seen of b's metrics, which must hold each step once, in order. */
typedef struct record {
    resume_runs *runs;
    int64_t last_step;
} record;

static status visit_record(void *user, const json_t *event, err *e) {
    record *seen = user;
    resume_runs *r = seen->runs;
    (void)e;
    if (!metrics_is(event, "step") || r->broken) return ST_OK;
    int64_t step = metrics_int(event, "step", 0);
    if (step != seen->last_step + 1)
        r->broken =
            arena_printf(r->a, "step %" PRId64 " follows step %" PRId64 " in %s/metrics.jsonl",
                         step, seen->last_step, r->run_b);
    seen->last_step = step;
    return ST_OK;
}

static status check_record(resume_runs *r, err *e) {
    record seen = {r, 0};
    TRY(metrics_read(r->run_b, METRICS_ALL, visit_record, &seen, e));
    if (!r->broken && seen.last_step != r->steps)
        r->broken = arena_printf(r->a, "%s/metrics.jsonl ends with step %" PRId64 " of %" PRId64,
                                 r->run_b, seen.last_step, r->steps);
    return ST_OK;
}

/* ---- the whole ---- */

/* Trains b to its end once; it may end before all interruptions have met it. */
static status round_b(resume_runs *r, err *e) {
    bool finished = false;
    TRY(file_remove_tree(r->run_b, e));
    r->saved_step = r->last_step = 0;
    r->story[0] = '\0';
    r->rounds++;
    while (!finished && !r->broken) TRY(live(r, &finished, e));
    if (!r->broken) TRY(check_end(r, e));
    if (!r->broken) TRY(check_record(r, e));
    return ST_OK;
}

status resume_runs_do(resume_runs *r, err *e) {
    TRY(run_a(r, e));
    TRY(learn_from_a(r, e));
    tell(r, arena_printf(r->a, "undisturbed: %" PRId64 " step%s", r->steps, text_s(r->steps)));
    do {
        TRY(round_b(r, e));
    } while (!r->broken && r->struck < r->kills && r->rounds <= r->kills + 2);
    if (r->broken || r->struck > 0) return ST_OK;
    err_set(e, ST_FAILED, "no interruption met the run: its %" PRId64 " steps are too short",
            r->steps);
    return err_hint(e, "give more steps: --steps %" PRId64, 10 * r->steps);
}

void resume_runs_free(resume_runs *r) {
    for (int64_t i = 0; r->step && r->valid && i < r->steps; i++) {
        json_decref(r->step[i]);
        json_decref(r->valid[i]);
    }
}
