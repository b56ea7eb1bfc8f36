/* A spare is a fork of the launcher that looks for new checkpoints now and then. Launcher and spare
 * share a socket: a byte asks the spare whether it is ready, its answer is one line, and then it
 * ends. When nobody is at the other end any more, the spare removes its copy and ends.
 *
 * A disk that is dead or slow holds up the spare alone: the launcher waits for it so long and leaves it
 * to itself then, with its folder. */
#include "app/ranks/spares.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "io/checkpoint/checkpoint.h"

static const char READY[] = "ready";
static const double END_S = 10; /* for the removal of a copy when the launcher ends */
enum { LOOK_MS = 200 };

typedef struct spare {
    pid_t pid;
    int orders; /* the launcher's end of the socket; -1: the spare has ended, or was left to itself */
    char *dir; /* NULL: a spare that was left to itself removes it */
} spare;

struct spares {
    const char *run;
    spares_patience patience;
    int n, asked; /* those before `asked` were asked */
    spare *all;   /* [n] */
};

/* ---- in the spare ---- */

/* The newest checkpoint is copied; the manifest must expect each byte of it. */
static status follow(arena *a, const char *run, const char *dir, int64_t *held, err *e) {
    int64_t *steps;
    int n;
    TRY(checkpoint_list(a, run, &steps, &n, e));
    if (n == 0 || steps[n - 1] == *held) return ST_OK;
    TRY(checkpoint_copy(checkpoint_path(a, run, steps[n - 1]), dir, e));
    *held = steps[n - 1];
    return checkpoint_prune(dir, &(checkpoint_keep){.newest = 1}, *held, e);
}

static status same_manifest(arena *a, const char *x, const char *y, err *e) {
    static const char MANIFEST[] = "state/manifest.json";
    char *text[2] = {0};
    size_t len[2];
    status st = file_read_all(path_join(a, x, MANIFEST), &text[0], &len[0], e);
    if (st == ST_OK) st = file_read_all(path_join(a, y, MANIFEST), &text[1], &len[1], e);
    if (st == ST_OK && (len[0] != len[1] || memcmp(text[0], text[1], len[0]) != 0))
        st = err_at(e, ST_FORMAT, x, "its copy is of another checkpoint than %s", y);
    free(text[0]);
    free(text[1]);
    return st;
}

static status check_copy(arena *a, const char *run, const char *dir, int64_t *held, err *e) {
    checkpoint_kind kind;
    TRY(follow(a, run, dir, held, e));
    if (*held < 0) return ST_OK; /* the run has no checkpoint yet */
    const char *copy = checkpoint_path(a, dir, *held);
    TRY(checkpoint_verify(copy, &kind, e));
    return same_manifest(a, copy, checkpoint_path(a, run, *held), e);
}

/* Whether somebody hears it. */
static bool answer(const char *run, const char *dir, int64_t held, int orders) {
    arena *a = arena_new("spare");
    err why = {0};
    int said;
    if (check_copy(a, run, dir, &held, &why) != ST_OK)
        said = dprintf(orders, "%s\n", why.message);
    else if (held < 0)
        said = dprintf(orders, "%s; there is no checkpoint yet\n", READY);
    else
        said = dprintf(orders, "%s; its copy of step %ld matches\n", READY, (long)held);
    arena_free(a);
    return said > 0;
}

/* Who reads what the launcher says is not to wait for a spare that outlives it. */
static void fall_silent(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) dup2(null, fd);
    signal(SIGPIPE, SIG_IGN);
}

/* Until it is asked, or the launcher is gone. A copy that fails is tried again at the next look: the
 * checkpoint may have been deleted meanwhile. */
static _Noreturn void wait_beside(const char *run, const char *dir, int orders) {
    struct pollfd fd = {.fd = orders, .events = POLLIN};
    int64_t held = -1;
    char byte;
    fall_silent();
    while (poll(&fd, 1, LOOK_MS) == 0) {
        arena *a = arena_new("spare");
        (void)!follow(a, run, dir, &held, NULL);
        arena_free(a);
    }
    bool is_asked = read(orders, &byte, 1) == 1;
    if (!is_asked || !answer(run, dir, held, orders)) (void)!file_remove_tree(dir, NULL);
    _exit(0);
}

/* ---- in the launcher ---- */

static status start(spares *s, int i, err *e) {
    int ends[2];
    spare *k = &s->all[i];
    arena *a = arena_new("spare");
    k->dir = xstrdup(arena_printf(a, "%s/athanor-spare-XXXXXX", file_temp_dir()));
    arena_free(a);
    if (!mkdtemp(k->dir)) return err_errno(e, k->dir, "cannot make a folder for a spare");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return err_errno(e, "launch", "cannot make a socket for a spare");
    k->orders = ends[0];
    k->pid = fork();
    if (k->pid == 0) {
        for (int other = 0; other <= i; other++) close(s->all[other].orders);
        wait_beside(s->run, k->dir, ends[1]);
    }
    close(ends[1]);
    return k->pid > 0 ? ST_OK : err_errno(e, "launch", "cannot start a spare");
}

status spares_open(spares **out, int n, const char *run, const spares_patience *patience, err *e) {
    spares *s = *out = xcalloc(1, sizeof *s);
    *s = (spares){.run = run, .patience = *patience, .all = xcalloc((size_t)n, sizeof *s->all)};
    for (; s->n < n; s->n++) {
        status st = start(s, s->n, e);
        if (st == ST_OK) continue;
        s->n++;
        spares_free(s);
        *out = NULL;
        return st;
    }
    return ST_OK;
}

/* Until it has said something, or has ended. False: it took longer than the limit (0: there is none), or the
 * caller wants to hear no more. */
static bool await(const spare *k, double limit_s, const spares_patience *p) {
    struct pollfd fd = {.fd = k->orders, .events = POLLIN};
    clock_wait wait = clock_begin_wait();
    while (poll(&fd, 1, LOOK_MS) <= 0)
        if ((limit_s > 0 && clock_waited_s(&wait) >= limit_s) || (p && p->ends(p->ctx)))
            return false;
    return true;
}

static void end(spare *k) {
    close(k->orders);
    if (k->pid > 0) waitpid(k->pid, NULL, 0);
    *k = (spare){.orders = -1, .dir = k->dir};
}

/* It notices at its own pace that nobody listens. */
static void leave(spare *k) {
    close(k->orders);
    free(k->dir);
    *k = (spare){.orders = -1};
}

/* What it says; "" where it ends without a word. */
static void ask(spare *k, const spares_patience *p, char *text, size_t size) {
    size_t len = 0;
    ssize_t got = 1;
    bool speaks = send(k->orders, "?", 1, MSG_NOSIGNAL) == 1;
    while (speaks && len + 1 < size && got > 0) {
        if (!await(k, p->limit_s, p)) {
            leave(k);
            snprintf(text, size, "it has not answered in %g s", p->limit_s);
            return;
        }
        got = read(k->orders, text + len, size - 1 - len);
        if (got > 0) len += (size_t)got;
    }
    text[len] = '\0';
    text[strcspn(text, "\n")] = '\0';
    end(k);
}

int spares_take(spares *s, int want, const char **dir, strbuf *told) {
    int n = 0;
    for (; s && n < want && s->asked < s->n; s->asked++) {
        spare *k = &s->all[s->asked];
        char text[2048];
        ask(k, &s->patience, text, sizeof text);
        bool ready = strncmp(text, READY, sizeof READY - 1) == 0;
        if (told->len) strbuf_puts(told, "; ");
        strbuf_printf(told, "spare %d is %s%s", s->asked,
                      ready ? "" : "not ready: ", *text ? text : "it has ended");
        if (ready) dir[n++] = k->dir;
    }
    return n;
}

/* One that waits removes its copy itself, so that a disk which does not answer holds up nobody else. */
static void dismiss(spare *k, int i) {
    if (k->orders > 0) {
        shutdown(k->orders, SHUT_WR);
        if (!await(k, END_S, NULL)) {
            log_warn("spare %d has not ended in %g s; it removes %s when its disk lets it", i,
                     END_S, k->dir);
            leave(k);
            return;
        }
        end(k);
    }
    if (k->dir) (void)!file_remove_tree(k->dir, NULL);
    free(k->dir);
}

void spares_free(spares *s) {
    if (!s) return;
    for (int i = 0; i < s->n; i++) dismiss(&s->all[i], i);
    free(s->all);
    free(s);
}
