/* A queue of steps and at most one running command; see checkpoint_upload.h.
 *
 * Invariant: a step is in the queue once, running, or neither; `failed` ones wait there for the
 * next upload_add. The mark is written only for the folder that the command was started for: a step
 * that is saved anew meanwhile is uploaded anew.
 *
 * Reading order: upload_new, take_in, start, finish, upload_poll. */
#include "io/checkpoint/checkpoint_upload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/checkpoint/checkpoint_layout.h"
#include "io/checkpoint/checkpoint_manifest.h"

extern char **environ;

typedef struct waiting {
    int64_t step;
    bool failed; /* to be tried again after the next upload_add */
} waiting;

struct upload {
    char *run, *command, *log; /* run and log are absolute */
    waiting *queue;            /* ascending by step */
    int n, cap;
    pid_t pid; /* of the running command; 0: none */
    int64_t running;
    bool again;  /* the running step was saved anew */
    err failure; /* the last one */
};

static void take_in(upload *u, int64_t step, bool failed) {
    int at = u->n;
    while (at > 0 && u->queue[at - 1].step > step) at--;
    if (at > 0 && u->queue[at - 1].step == step) {
        u->queue[at - 1].failed = failed;
        return;
    }
    waiting last = {0};
    VEC_PUSH(u->queue, u->n, u->cap, last);
    memmove(u->queue + at + 1, u->queue + at, sizeof *u->queue * (size_t)(u->n - 1 - at));
    u->queue[at] = (waiting){step, failed};
}

static void drop(upload *u, int at) {
    u->n--;
    memmove(u->queue + at, u->queue + at + 1, sizeof *u->queue * (size_t)(u->n - at));
}

/* The next one to upload, or -1. Steps that were pruned meanwhile are forgotten. */
static int next_waiting(upload *u) {
    arena *a = arena_new("upload");
    int at = 0;
    while (at < u->n &&
           (u->queue[at].failed || !file_is_dir(checkpoint_path(a, u->run, u->queue[at].step)))) {
        if (u->queue[at].failed)
            at++;
        else
            drop(u, at);
    }
    arena_free(a);
    return at < u->n ? at : -1;
}

static char *absolute(const char *path) {
    char real[PATH_MAX];
    return xstrdup(realpath(path, real) ? real : path);
}

static void take_in_unmarked(upload *u) {
    arena *a = arena_new("upload");
    int64_t *steps;
    int n;
    if (checkpoint_list(a, u->run, &steps, &n, NULL) == ST_OK)
        for (int i = 0; i < n; i++)
            if (!file_exists(path_join(a, checkpoint_path(a, u->run, steps[i]), UPLOAD_MARK)))
                take_in(u, steps[i], false);
    arena_free(a);
}

upload *upload_new(const char *run_dir, const char *command) {
    upload *u = xcalloc(1, sizeof *u);
    u->run = absolute(run_dir);
    u->command = xstrdup(command);
    arena *a = arena_new("upload");
    u->log = xstrdup(path_join(a, u->run, "upload.log"));
    arena_free(a);
    take_in_unmarked(u);
    return u;
}

void upload_free(upload *u) {
    if (!u) return;
    free(u->queue);
    free(u->log);
    free(u->command);
    free(u->run);
    free(u);
}

void upload_add(upload *u, int64_t step) {
    for (int i = 0; i < u->n; i++) u->queue[i].failed = false;
    if (u->pid && u->running == step)
        u->again = true;
    else
        take_in(u, step, false);
}

/* ---- the command ---- */

static bool is_ours(const char *entry) {
    static const char *const names[] = {"ATHANOR_CHECKPOINT=", "ATHANOR_RUN=", "ATHANOR_STEP="};
    for (int i = 0; i < ARRAY_LEN(names); i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static char **make_environment(arena *a, const upload *u, int64_t step) {
    int n = 0, used = 3;
    while (environ[n]) n++;
    char **env = ARENA_ARRAY(a, char *, n + 4);
    env[0] = arena_printf(a, "ATHANOR_CHECKPOINT=%s", checkpoint_path(a, u->run, step));
    env[1] = arena_printf(a, "ATHANOR_RUN=%s", u->run);
    env[2] = arena_printf(a, "ATHANOR_STEP=%lld", (long long)step);
    for (int i = 0; i < n; i++)
        if (!is_ours(environ[i])) env[used++] = environ[i];
    return env;
}

/* No signal is blocked or ignored in the command, whatever this thread does. */
static void set_attributes(posix_spawnattr_t *attr) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(attr, &none);
    posix_spawnattr_setsigdefault(attr, &all);
    posix_spawnattr_setpgroup(attr, 0);
    posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                       POSIX_SPAWN_SETPGROUP);
}

/* 0, or the errno of what failed. */
static int spawn(upload *u, char **env) {
    char *const argv[] = {"sh", "-c", u->command, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    if (posix_spawn_file_actions_init(&files) != 0) return ENOMEM;
    if (posix_spawnattr_init(&attr) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return ENOMEM;
    }
    set_attributes(&attr);
    int failed = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&files, 1, u->log, O_WRONLY | O_CREAT | O_APPEND,
                                                  0666);
    if (!failed) failed = posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (!failed) failed = posix_spawn(&u->pid, "/bin/sh", &files, &attr, argv, env);
    if (failed) u->pid = 0;
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return failed;
}

static void fail(upload *u, upload_event *event, int exit_status, const char *how) {
    event->ok = false;
    event->exit_status = exit_status;
    err_at(&event->why, ST_FAILED, "checkpoint.upload", "the upload command of step %lld %s",
           (long long)event->step, how);
    err_hint(&event->why, "its output is in %s; it is run again after the next checkpoint", u->log);
    u->failure = event->why;
}

/* Starts the next one; false with *event when it cannot be started. */
static bool start(upload *u, int at, upload_event *event) {
    int64_t step = u->queue[at].step;
    arena *a = arena_new("upload");
    int failed = spawn(u, make_environment(a, u, step));
    *event = (upload_event){.step = step, .ok = true};
    if (failed) {
        fail(u, event, -1, arena_printf(a, "could not be started: %s", strerror(failed)));
        u->queue[at].failed = true;
    } else {
        u->running = step;
        u->again = false;
        drop(u, at);
    }
    arena_free(a);
    return !failed;
}

/* ---- its end ---- */

static status write_mark(const upload *u, int64_t step, err *e) {
    arena *a = arena_new("upload");
    char text[32];
    time_t now = time(NULL);
    struct tm utc;
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ\n", gmtime_r(&now, &utc));
    const char *dir = checkpoint_path(a, u->run, step);
    status st = file_write_atomic(path_join(a, dir, UPLOAD_MARK), text, n, e);
    if (st != ST_OK && !file_is_dir(dir)) st = ST_OK; /* pruned meanwhile: it needs no mark */
    arena_free(a);
    return st;
}

static void finish(upload *u, int how, upload_event *event) {
    char words[64];
    *event = (upload_event){.step = u->running, .ok = true};
    u->pid = 0;
    if (WIFSIGNALED(how)) {
        snprintf(words, sizeof words, "was killed by signal %d", WTERMSIG(how));
        fail(u, event, 128 + WTERMSIG(how), words);
    } else if (WEXITSTATUS(how) != 0) {
        snprintf(words, sizeof words, "ended with status %d", WEXITSTATUS(how));
        fail(u, event, WEXITSTATUS(how), words);
    } else if (!u->again && write_mark(u, u->running, &event->why) != ST_OK) {
        event->ok = false;
        event->exit_status = -1;
        err_context(&event->why, "the upload of step %lld could not be marked",
                    (long long)u->running);
        u->failure = event->why;
    }
    if (u->again || !event->ok) take_in(u, u->running, !u->again);
}

/* Whether a command ended, or could not be started. */
static bool look(upload *u, upload_event *event, int wait_flags) {
    int at, how = 0;
    if (!u->pid && (at = next_waiting(u)) >= 0 && !start(u, at, event)) return true;
    if (!u->pid) return false;
    pid_t got = waitpid(u->pid, &how, wait_flags);
    if (got == 0 || (got < 0 && errno == EINTR)) return false;
    if (got < 0) how = 127 << 8; /* no child of ours any more: how it ended is not known */
    finish(u, how, event);
    return true;
}

bool upload_poll(upload *u, upload_event *event) {
    return look(u, event, WNOHANG);
}

bool upload_wait(upload *u, upload_event *event, const volatile sig_atomic_t *stop) {
    while (!(stop && *stop)) {
        if (look(u, event, stop ? WNOHANG : 0)) return true;
        if (!u->pid && next_waiting(u) < 0) return false;
        if (stop) nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    return false;
}

status upload_result(const upload *u, err *e) {
    for (int i = 0; i < u->n; i++) {
        if (!u->queue[i].failed) continue;
        if (e) *e = u->failure;
        return err_hint(e, "its output is in %s; starting the run again tries it again", u->log);
    }
    return ST_OK;
}
