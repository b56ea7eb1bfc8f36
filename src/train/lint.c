#include "train/lint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "io/checkpoint/checkpoint.h"
#include "optim/optim.h"
#include "plan/clock/clock.h"
#include "run/config/config_device.h"
#include "run/metrics.h"
#include "train/events.h"
#include "train/save/state.h"

/* What the run's folder holds already. */
typedef struct present {
    int64_t checkpoints, step; /* how many, and the newest; -1: none */
} present;

static present look_at_run(const lint_run *k) {
    arena *a = arena_new("lint");
    present at = {.step = -1};
    int64_t *steps;
    int n = 0;
    if (checkpoint_list(a, k->c->run, &steps, &n, NULL) == ST_OK && n > 0) at.step = steps[n - 1];
    at.checkpoints = n;
    arena_free(a);
    return at;
}

/* ---- time ---- */

static status take_step_ms(void *out, const json_t *event, err *e) {
    (void)e;
    if (metrics_is(event, "step")) *(double *)out = metrics_num(event, "step_ms");
    return ST_OK;
}

/* As its last step took, else by the planner's clock; 0: not known. */
static double step_seconds(const lint_run *k, const present *at) {
    cluster on;
    double ms = 0;
    if (at->step > 0 && !k->fresh &&
        metrics_read(k->c->run, METRICS_LAST_STEP, take_step_ms, &ms, NULL) == ST_OK && ms > 0)
        return ms / 1e3;
    if (!config_find_cluster(k->c, k->ranks, k->kind, &on)) return 0;
    return clock_step(k->plan, &on).step_s;
}

static void format_time(double s, char out[32]) {
    bool minutes = s < 7200, hours = s < 48 * 3600;
    snprintf(out, 32, "%.3g %s",
             s / (minutes ? 60
                  : hours ? 3600
                          : 86400),
             minutes ? "minutes"
             : hours ? "hours"
                     : "days");
}

/* Slurm says when the job will be ended, be it by its time limit or by the end of its reservation. */
static status check_time(const lint_run *k, const present *at, err *e) {
    int64_t end = 0, done = k->fresh || at->step < 0 ? k->forked_at : at->step;
    char needs[32], has[32];
    TRY(env_int("SLURM_JOB_END_TIME", 0, INT64_MAX / 2, &end, e));
    double step_s = end ? step_seconds(k, at) : 0, left = (double)(end - (int64_t)time(NULL));
    double all = step_s * (double)(k->course->total_steps - done);
    if (step_s == 0 || all <= left) return ST_OK;
    format_time(all, needs);
    format_time(left > 0 ? left : 0, has);
    log_warn("the run needs about %s, and its job ends in %s, near step %" PRId64
             ": a longer --time, or a script that queues it again (docs/slurm)",
             needs, has, done + (left > 0 ? (int64_t)(left / step_s) : 0));
    return ST_OK;
}

/* ---- disk ---- */

static int64_t common_multiple(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Checkpoints that are there at most: kept ones and the one that is being written. */
static int64_t most_checkpoints(const lint_run *k) {
    int64_t steps = k->course->total_steps - k->forked_at, every = k->c->checkpoint.every;
    int64_t always = k->c->checkpoint.keep_every, saves = every ? (steps + every - 1) / every : 1;
    int64_t kept = k->c->checkpoint.keep + k->c->checkpoint.keep_best;
    if (always && every) kept += steps / common_multiple(always, every);
    return (kept < saves ? kept : saves) + 1;
}

static double free_bytes_of(const struct statvfs *disk) {
    return (double)disk->f_bavail * (double)disk->f_frsize;
}

/* Each rank has a file beside its memory (parallel.offload); ranks of other machines may have another disk.
 * *taken: what the files take of the disk that has the folder of the run. */
static status check_offload(const lint_run *k, const char *folder, double *taken, err *e) {
    struct statvfs disk, own;
    const char *to = k->c->parallel.offload_to;
    double each = (double)plan_file_bytes(k->plan), all = each * (k->ranks > 1 ? k->ranks : 1);
    arena *a = arena_new("lint");
    const char *at = to ? file_nearest_dir(a, to) : folder;
    bool known = each > 0 && statvfs(at, &disk) == 0 && statvfs(folder, &own) == 0;
    arena_free(a);
    *taken = known && disk.f_fsid == own.f_fsid ? all : 0;
    if (!known || all <= free_bytes_of(&disk)) return ST_OK;
    if (each > free_bytes_of(&disk)) {
        err_at(e, ST_FAILED, to ? to : k->c->run,
               "there is no space for the file of parallel.offload: it takes %.3g GB, and %.3g GB "
               "are free",
               each / 1e9, free_bytes_of(&disk) / 1e9);
        return err_hint(e, "make room, or set parallel.offload_to=FOLDER on another disk");
    }
    log_warn("the files of parallel.offload take %.3g GB for %d ranks and %.3g GB are free: on one "
             "machine they do not fit",
             all / 1e9, k->ranks, free_bytes_of(&disk) / 1e9);
    return ST_OK;
}

static status check_disk(const lint_run *k, const present *at, const char *folder, err *e) {
    struct statvfs disk;
    double taken;
    bool done = !k->fresh && at->step >= k->course->total_steps;
    if (done || statvfs(folder, &disk) != 0) return ST_OK; /* taking the folder will say why */
    TRY(check_offload(k, folder, &taken, e));
    double each = (double)state_expected_bytes(k->plan, optim_at(k->c->optim.name));
    double free_bytes = free_bytes_of(&disk) - taken;
    if (free_bytes < 0) free_bytes = 0;
    double removed =
        k->fresh ? each * (double)at->checkpoints : 0; /* by --fresh, before it trains */
    int64_t most = most_checkpoints(k), more = most - at->checkpoints;
    if (more < 1) more = 1;
    if (each > free_bytes + removed) {
        err_at(e, ST_FAILED, k->c->run,
               "there is no space for a checkpoint of %s: it takes %.3g GB, and %.3g GB are free",
               k->c->run, each / 1e9, free_bytes / 1e9);
        return err_hint(e, "make room, or set run=FOLDER on another disk");
    }
    if (each * (double)more > free_bytes)
        log_warn("%s will hold up to %" PRId64
                 " checkpoints of %.3g GB, with the one that is being written, "
                 "and has room for %" PRId64 ": lower checkpoint.keep (%s) or make room",
                 k->c->run, most, each / 1e9, at->checkpoints + (int64_t)(free_bytes / each),
                 config_where(k->c, "checkpoint.keep"));
    return ST_OK;
}

/* ---- paths ---- */

static bool is_within(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (path[n] == '/' || !path[n]);
}

/* In memory, or where systems clean up; not told when the config lies there, too: then it is known. */
static bool is_fleeting(const char *path) {
    enum { TMPFS = 0x01021994, RAMFS = 0x858458f6u };
    struct statfs fs;
    if (is_within(path, "/tmp") || is_within(path, "/var/tmp")) return true;
    return statfs(path, &fs) == 0 &&
           ((unsigned)fs.f_type == TMPFS || (unsigned)fs.f_type == (unsigned)RAMFS);
}

/* The end of the word at s, which may have quoted parts. */
static const char *word_end(const char *s) {
    char quote = '\0';
    for (; *s && (quote || !strchr(" \t\n;&|()", *s)); s++)
        if (quote ? *s == quote : *s == '\'' || *s == '"') quote = quote ? '\0' : *s;
    return s;
}

/* Whether a shell command runs rm: as the first word of a command, or behind a word that runs another. */
static bool removes_files(const char *s) {
    static const char *const runners[] = {"sudo", "env", "exec",  "xargs", "then", "do",
                                          "else", "if",  "-exec", "!",     "{"};
    bool runs = true;
    while (*s) {
        const char *end = word_end(s);
        size_t n = (size_t)(end - s);
        if (runs && n == 2 && strncmp(s, "rm", 2) == 0) return true;
        if (n > 0) runs = false;
        for (int i = 0; i < ARRAY_LEN(runners); i++)
            runs |= n == strlen(runners[i]) && strncmp(s, runners[i], n) == 0;
        s = end;
        for (; *s && strchr(" \t\n;&|()", *s); s++) runs |= *s != ' ' && *s != '\t';
    }
    return false;
}

static void warn_of_paths(const lint_run *k, const present *at, const char *folder) {
    const char *source = k->c->source, *up = k->c->checkpoint.upload;
    char *own = realpath(folder, NULL), *other = source ? realpath(source, NULL) : NULL;
    if (own && other && is_fleeting(own) && !is_fleeting(other))
        log_warn("%s lies in %s, which is emptied or lost when the machine starts again: set run "
                 "(%s) to a "
                 "folder on a disk",
                 k->c->run, own, config_where(k->c, "run"));
    free(own);
    free(other);
    if (k->fresh && at->step >= 0)
        log_warn("--fresh removes %s with its %" PRId64 " checkpoint%s, up to step %" PRId64
                 ": run=NEW keeps them",
                 k->c->run, at->checkpoints, text_s(at->checkpoints), at->step);
    if (up && removes_files(up))
        log_warn(
            "checkpoint.upload (%s) removes files after every save: checkpoint.keep does that for "
            "checkpoints",
            config_where(k->c, "checkpoint.upload"));
}

/* ---- what never happens ---- */

static bool is_given(const config *c, const char *key) {
    return json_object_get(c->origins, key) != NULL;
}

static bool is_overridden(const config *c, const char *key) {
    return strcmp(config_where(c, key), CONFIG_COMMAND_LINE) == 0;
}

/* The end is always one of them, so that only what was asked for in between is missed. A file whose run
 * was shortened on the command line is not talked about. */
static void warn_of_interval(const lint_run *k, const char *key, int64_t every, const char *what) {
    bool shortened = is_overridden(k->c, "train.steps") && !is_overridden(k->c, key);
    if (every <= k->course->total_steps || !is_given(k->c, key) || shortened) return;
    log_warn("%s (%s) is %" PRId64 " and the run has %" PRId64 " step%s: %s comes only at the end",
             key, config_where(k->c, key), every, k->course->total_steps,
             text_s(k->course->total_steps), what);
}

static void warn_of_intervals(const lint_run *k) {
    const config *c = k->c;
    int64_t every = c->checkpoint.every, always = c->checkpoint.keep_every;
    warn_of_interval(k, "checkpoint.every", every, "a checkpoint");
    if (c->data.valid) warn_of_interval(k, "eval.every", c->eval.every, "a validation");
    if (c->sample.prompts.n) warn_of_interval(k, "sample.every", c->sample.every, "a sample");
    if (c->eval.tasks.n)
        warn_of_interval(k, "eval.tasks_every", c->eval.tasks_every, "an evaluation");
    if (always && every && always % every)
        log_warn("checkpoint.keep_every (%s) is %" PRId64
                 ", no multiple of checkpoint.every (%" PRId64 "): what stays is every %" PRId64
                 " steps",
                 config_where(c, "checkpoint.keep_every"), always, every,
                 common_multiple(always, every));
    if (c->checkpoint.keep_best && c->data.valid && every && c->eval.every && every % c->eval.every)
        log_warn(
            "checkpoint.keep_best (%s) looks at validation losses, and a checkpoint has one where "
            "checkpoint.every (%" PRId64 ") meets eval.every (%" PRId64 "): every %" PRId64
            " steps",
            config_where(c, "checkpoint.keep_best"), every, c->eval.every,
            common_multiple(every, c->eval.every));
}

/* ---- batches ---- */

static void warn_of_batches(const lint_run *k) {
    const course_stage *first = &k->course->stage[0];
    const char *key = "train.global_batch_size";
    if (k->sequences && k->sequences < (uint64_t)first->max_batch)
        log_warn("a step takes %" PRId64 " sequences (%s) and one pass over the data has %" PRIu64
                 ": each step sees the same text more than once; lower %s or build more data",
                 first->max_batch, config_where(first->c, key), k->sequences, key);
    for (int i = 0; i < k->course->n_stages; i++) {
        const course_stage *s = &k->course->stage[i];
        if (s->max_batch >= s->c->train.global_batch_size) continue;
        log_warn("train.batch_ramp (%s) ends at %" PRId64 " sequences a step, and %s is %" PRId64
                 ": a larger increment, or a shorter every",
                 config_where(s->c, "train.batch_ramp.start"), s->max_batch, key,
                 s->c->train.global_batch_size);
    }
}

/* ---- all ---- */

status lint_check(const lint_run *k, err *e) {
    present at = look_at_run(k);
    arena *a = arena_new("lint");
    const char *folder = file_nearest_dir(a, k->c->run);
    status st = check_disk(k, &at, folder, e);
    if (st == ST_OK) st = check_time(k, &at, e);
    if (st == ST_OK) {
        warn_of_paths(k, &at, folder);
        warn_of_intervals(k);
        warn_of_batches(k);
    }
    arena_free(a);
    return st;
}
