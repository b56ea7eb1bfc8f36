/* Child processes by posix_spawn, so that a large parent is never copied. */
#include "app/frame/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/strbuf.h"

extern char **environ;

static const char SELF[] = "/proc/self/exe",
                  FAULT[] = "ATHANOR_FAULT=", PARENT[] = "ATHANOR_PARENT=";

struct child {
    pid_t pid;
    int out;     /* its standard output */
    strbuf text; /* what it has said beyond the last line that was read */
};

static char **child_environment(arena *a, const char *fault) {
    int n = 0, kept = 0;
    while (environ[n]) n++;
    char **env = ARENA_ARRAY(a, char *, n + 3);
    for (int i = 0; i < n; i++)
        if (strncmp(environ[i], FAULT, sizeof FAULT - 1) != 0 &&
            strncmp(environ[i], PARENT, sizeof PARENT - 1) != 0)
            env[kept++] = environ[i];
    env[kept++] = arena_printf(a, "%s%ld", PARENT, (long)getpid());
    if (fault) env[kept] = arena_printf(a, "%s%s", FAULT, fault);
    return env;
}

static int spawn(pid_t *pid, const char *const *args, char **env, int out, const char *log_path) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_path,
                                     O_WRONLY | O_CREAT | O_APPEND, 0666);
    int failed = posix_spawn(pid, SELF, &actions, NULL, (char *const *)args, env);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

status child_start(child **out, const char *const *args, const char *fault, const char *log_path,
                   err *e) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return err_errno(e, SELF, "cannot make a pipe");
    arena *a = arena_new("child");
    child *c = xcalloc(1, sizeof *c);
    int failed = spawn(&c->pid, args, child_environment(a, fault), ends[1], log_path);
    arena_free(a);
    close(ends[1]);
    c->out = ends[0];
    if (!failed) {
        *out = c;
        return ST_OK;
    }
    errno = failed;
    status st = err_errno(e, log_path, "cannot start this program with its log in %s", log_path);
    close(c->out);
    free(c);
    return st;
}

/* The bytes of the next line, with its end; 0: the output ends. A signal may come within a line, whose beginning is kept. */
static status await_line(child *c, size_t *len, err *e) {
    const char *end;
    char piece[4096];
    *len = 0;
    while (c->text.len == 0 || !(end = memchr(c->text.data, '\n', c->text.len))) {
        ssize_t got = read(c->out, piece, sizeof piece);
        if (got < 0 && errno == EINTR) return err_set(e, ST_STOPPED, "a signal came");
        if (got <= 0) return ST_OK;
        strbuf_append(&c->text, piece, (size_t)got);
    }
    *len = (size_t)(end - c->text.data) + 1;
    return ST_OK;
}

status child_read(child *c, json_t **line, err *e) {
    size_t len;
    json_error_t why;
    *line = NULL;
    TRY(await_line(c, &len, e));
    if (len == 0) return ST_OK;
    *line = json_loadb(c->text.data, len, 0, &why);
    status st = *line ? ST_OK
                      : err_at(e, ST_FORMAT, "standard output of a child",
                               "a child process wrote a line that is no JSON (%s): %.*s", why.text,
                               len < 200 ? (int)len - 1 : 200, c->text.data);
    memmove(c->text.data, c->text.data + len, c->text.len - len);
    strbuf_truncate(&c->text, c->text.len - len);
    return st;
}

void child_follow_parent(void) {
    const char *parent = getenv("ATHANOR_PARENT");
    if (!parent) return;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != atol(parent)) raise(SIGTERM); /* it died before */
    unsetenv("ATHANOR_PARENT");                    /* that of this process, not of its children */
}

void child_signal(child *c, int signal_number) {
    kill(c->pid, signal_number); /* not reaped yet, so the id is still its own */
}

int child_end(child *c) {
    int state = 0;
    while (waitpid(c->pid, &state, 0) < 0 && errno == EINTR) continue;
    close(c->out);
    strbuf_free(&c->text);
    free(c);
    return WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
}

void child_abandon(child *c) {
    if (!c) return;
    child_signal(c, SIGKILL);
    child_end(c);
}
