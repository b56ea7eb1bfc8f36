/* Child processes by posix_spawn, so that a large parent is never copied. */
#include "app/frame/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file_fault.h"
#include "base/strbuf.h"

extern char **environ;

static const char SELF[] = "/proc/self/exe", FAULT[] = "ATHANOR_FAULT=";

struct child {
    pid_t pid;
    int fd;      /* its standard output */
    strbuf text; /* read, not yet given out */
    size_t at;   /* bytes of it that were given out */
};

static char **child_argv(arena *a, const char *const *args) {
    int n = 0;
    while (args[n]) n++;
    char **argv = ARENA_ARRAY(a, char *, n + 2);
    argv[0] = arena_strdup(a, "athanor");
    for (int i = 0; i < n; i++) argv[i + 1] = arena_strdup(a, args[i]);
    return argv;
}

static char **child_environment(arena *a, const char *fault) {
    int n = 0, kept = 0;
    while (environ[n]) n++;
    char **env = ARENA_ARRAY(a, char *, n + 2);
    for (int i = 0; i < n; i++)
        if (strncmp(environ[i], FAULT, sizeof FAULT - 1) != 0) env[kept++] = environ[i];
    if (fault) env[kept] = arena_printf(a, "%s%s", FAULT, fault);
    return env;
}

static int spawn(pid_t *pid, char **argv, char **env, int out, const char *log_path) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_path,
                                     O_WRONLY | O_CREAT | O_APPEND, 0666);
    int failed = posix_spawn(pid, SELF, &actions, NULL, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

status child_start(child **out, const char *const *args, const char *fault, const char *log_path,
                   err *e) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return err_errno(e, SELF, "cannot make a pipe");
    arena *a = arena_new("child");
    child *c = xcalloc(1, sizeof *c);
    strbuf_extend(&c->text, 0); /* never NULL from here on */
    int failed =
        spawn(&c->pid, child_argv(a, args), child_environment(a, fault), ends[1], log_path);
    arena_free(a);
    close(ends[1]);
    c->fd = ends[0];
    if (!failed) {
        *out = c;
        return ST_OK;
    }
    errno = failed;
    status st = err_errno(e, log_path, "cannot start this program with its log in %s", log_path);
    close(c->fd);
    strbuf_free(&c->text);
    free(c);
    return st;
}

/* Whether a whole line lies in `text` from `at` on; *len is its length without the line feed. */
static bool has_line(const child *c, size_t *len) {
    if (c->at == c->text.len) return false;
    const char *from = c->text.data + c->at, *end = memchr(from, '\n', c->text.len - c->at);
    if (end) *len = (size_t)(end - from);
    return end != NULL;
}

/* Reads some more; false at the end. */
static bool read_more(child *c) {
    memmove(c->text.data, c->text.data + c->at, c->text.len - c->at);
    strbuf_truncate(&c->text, c->text.len - c->at);
    c->at = 0;
    char buf[4096];
    ssize_t got;
    do {
        got = file_sys_read(c->fd, buf, sizeof buf);
    } while (got < 0 && errno == EINTR);
    if (got > 0) strbuf_append(&c->text, buf, (size_t)got);
    return got > 0;
}

status child_read(child *c, json_t **line, err *e) {
    size_t len = 0;
    *line = NULL;
    while (!has_line(c, &len))
        if (!read_more(c)) return ST_OK;
    const char *text = c->text.data + c->at;
    c->at += len + 1;
    json_error_t why;
    *line = json_loadb(text, len, 0, &why);
    if (*line) return ST_OK;
    err_set(e, ST_FORMAT, "a child process wrote a line that is no JSON (%s): %.*s", why.text,
            len < 200 ? (int)len : 200, text);
    return err_where(e, "standard output of a child");
}

void child_signal(child *c, int signal_number) {
    kill(c->pid, signal_number); /* not reaped yet, so the id is still its own */
}

int child_end(child *c) {
    int state = 0;
    while (waitpid(c->pid, &state, 0) < 0 && errno == EINTR) continue;
    close(c->fd);
    strbuf_free(&c->text);
    free(c);
    return WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
}

void child_abandon(child *c) {
    if (!c) return;
    child_signal(c, SIGKILL);
    child_end(c);
}
