/* athanor launch: one command as several ranks on this machine.
 *
 * Ranks are copies of this program: started, heard, signalled, ended together. Rank 0 has the
 * launcher's standard output and error. Of the others only standard error is passed on, line by line
 * with "[rank 2] " before it. They are in the launcher's process group, and a rank whose launcher is
 * gone gets SIGTERM.
 *
 * One loop waits for three things: lines of ranks, signals (of which an ended child is one), and,
 * once a rank has ended badly, the time to press the others: they learn of it from the segment and
 * have GRACE_S seconds to end by themselves; then comes SIGTERM, and SIGKILL.
 *
 * With --restart a training run whose ranks were lost is started again on those that are left
 * (restart.h), or on as many where spares are ready (spares.h). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/frame/cli.h"
#include "app/ranks/restart.h"
#include "app/ranks/spares.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "comm/comm.h"
#include "dev/dev.h"

/* Between the steps that end ranks: marked, SIGTERM, SIGKILL. Longer than a busy machine keeps a
 * rank from saying its last words and leaving with a status of its own. */
static const double GRACE_S = 5;

/* Times in a row that it is started again without a new checkpoint, unless --restart says how many. */
enum { MOST_STARTS = 10 };

typedef struct rank_process {
    pid_t pid;   /* 0: not running */
    int fd;      /* its standard error; -1 for rank 0, and at its end */
    strbuf text; /* of a line that is not complete */
    int state;   /* of waitpid, once it has ended */
} rank_process;

typedef struct launcher {
    const char **command; /* what follows the program's name, n_command words of it */
    int n_command;
    double timeout_s;    /* of a rank that waits for another; below 0: the default */
    int n;               /* ranks */
    rank_process *ranks; /* [n] */
    int segment, signals;
    sigset_t before;        /* the signal mask of this program's start */
    int running, first_bad; /* first_bad: -1, or the rank that ended badly first */
    int64_t since_ns;       /* of the last step that ended ranks */
    int steps;              /* 1: marked, 2: SIGTERM sent, 3: SIGKILL sent */
    bool told;              /* a signal has come that ranks stop at */
    struct {
        restart *run; /* NULL: without --restart */
        spares *spares;
        int64_t most, in_vain; /* times it is started again without a new checkpoint */
        int64_t newest;        /* the step of the newest checkpoint when the ranks were started */
        int least;             /* ranks */
        restart_layout layout; /* of this start; no keys in the first */
        const char *
            *copy; /* [n_copies] folders of the spares that give their copies to the last ranks */
        int n_copies;
        char *why; /* JSON for the ranks: what was lost and what has changed; NULL in the first */
    } again;
} launcher;

/* ---- starting ---- */

static void put_int(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void set_environment(const launcher *l, int rank) {
    put_int("ATHANOR_RANK", rank);
    put_int("ATHANOR_WORLD_SIZE", l->n);
    put_int("ATHANOR_SEGMENT_FD", l->segment);
    if (l->timeout_s >= 0) {
        char text[32];
        snprintf(text, sizeof text, "%g", l->timeout_s);
        setenv("ATHANOR_TIMEOUT", text, 1);
    }
    int spare = rank - (l->n - l->again.n_copies);
    if (l->again.why) setenv("ATHANOR_RESTART", l->again.why, 1);
    if (spare >= 0 && l->again.n_copies) setenv("ATHANOR_COPY", l->again.copy[spare], 1);
    if (!getenv("OMP_NUM_THREADS")) put_int("OMP_NUM_THREADS", comm_core_share(l->n));
    if (l->n == 1) return;
    unsetenv("OMP_PROC_BIND"); /* each rank would bind its threads to the same processors */
    unsetenv("OMP_PLACES");
}

static const char *word_of(const launcher *l, int i) {
    return l->again.run ? restart_word(l->again.run, l->command[i]) : l->command[i];
}

/* The program's name and the command, with the keys of the layout: before a "--", behind which all is
 * an input. */
static char **words_of(const launcher *l) {
    const restart_layout *k = &l->again.layout;
    char **argv = xcalloc((size_t)(l->n_command + k->n_keys) + 2, sizeof *argv);
    int n = 0, word = 0;
    argv[n++] = xstrdup("athanor");
    while (word < l->n_command && strcmp(l->command[word], "--") != 0)
        argv[n++] = xstrdup(word_of(l, word++));
    for (int i = 0; i < k->n_keys; i++) argv[n++] = xstrdup(k->key[i]);
    while (word < l->n_command) argv[n++] = xstrdup(word_of(l, word++));
    return argv;
}

/* In the child: never returns. */
static _Noreturn void become_rank(const launcher *l, int rank, int err_fd, pid_t parent) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char **argv = words_of(l);
    if (rank > 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(err_fd, STDERR_FILENO);
    }
    set_environment(l, rank);
    dev_unbind();
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent) execv("/proc/self/exe", argv);
    _exit(ST_FAILED);
}

static status start_rank(launcher *l, int rank, err *e) {
    int ends[2] = {-1, -1};
    pid_t parent = getpid();
    rank_process *r = &l->ranks[rank];
    if (rank > 0 && pipe2(ends, O_CLOEXEC) != 0)
        return err_errno(e, "launch", "cannot make a pipe for rank %d", rank);
    pid_t pid = fork();
    if (pid == 0) become_rank(l, rank, ends[1], parent);
    if (ends[1] >= 0) close(ends[1]);
    r->fd = ends[0];
    if (pid < 0) return err_errno(e, "launch", "cannot start rank %d", rank);
    r->pid = pid;
    l->running++;
    return ST_OK;
}

/* Signals that are passed on, and that of ended children, come as a file to read. Where nobody reads any more what is
 * said, that is for the ranks to notice: the launcher still has to see to them. */
static status catch_signals(launcher *l, err *e) {
    static const int CAUGHT[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < ARRAY_LEN(CAUGHT); i++) sigaddset(&set, CAUGHT[i]);
    sigprocmask(SIG_BLOCK, &set, &l->before);
    signal(SIGPIPE, SIG_IGN);
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signals >= 0 ? ST_OK : err_errno(e, "launch", "cannot listen to signals");
}

static void signal_all(const launcher *l, int number) {
    for (int r = 0; r < l->n; r++)
        if (l->ranks[r].pid > 0) kill(l->ranks[r].pid, number);
}

/* ---- what ranks say ---- */

static void print_line(int rank, const char *line, size_t len) {
    strbuf out = {0};
    strbuf_printf(&out, "[rank %d] ", rank);
    strbuf_append(&out, line, len);
    strbuf_putc(&out, '\n');
    fwrite(out.data, 1, out.len, stderr);
    fflush(stderr);
    strbuf_free(&out);
}

static void print_lines(rank_process *r, int rank, bool all) {
    size_t at = 0;
    const char *end;
    while (at < r->text.len && (end = memchr(r->text.data + at, '\n', r->text.len - at))) {
        print_line(rank, r->text.data + at, (size_t)(end - r->text.data) - at);
        at = (size_t)(end - r->text.data) + 1;
    }
    if (all && at < r->text.len) {
        print_line(rank, r->text.data + at, r->text.len - at);
        at = r->text.len;
    }
    if (at == 0) return;
    memmove(r->text.data, r->text.data + at, r->text.len - at);
    strbuf_truncate(&r->text, r->text.len - at);
}

static void hear(rank_process *r, int rank) {
    char buf[4096];
    ssize_t got = read(r->fd, buf, sizeof buf);
    if (got < 0 && errno == EINTR) return;
    if (got > 0) {
        strbuf_append(&r->text, buf, (size_t)got);
        print_lines(r, rank, false);
        return;
    }
    print_lines(r, rank, true);
    close(r->fd);
    r->fd = -1;
}

/* ---- how ranks end ---- */

static void put_end(strbuf *out, int rank, int state) {
    if (WIFSIGNALED(state))
        strbuf_printf(out, "rank %d was killed by signal %d (%s)", rank, WTERMSIG(state),
                      strsignal(WTERMSIG(state)));
    else
        strbuf_printf(out, "rank %d ended with status %d", rank, WEXITSTATUS(state));
}

/* The others stop waiting for it. A rank that failed in order has told them more already, and the
 * first word counts. */
static void mark_bad(launcher *l, int rank) {
    strbuf text = {0};
    err why = {0};
    put_end(&text, rank, l->ranks[rank].state);
    err_set(&why, ST_RANK, "%s", text.data);
    if (comm_segment_fail(l->segment, l->n, rank, &why, NULL) != ST_OK)
        log_warn("the other ranks cannot be told that %s", text.data);
    strbuf_free(&text);
    if (l->first_bad >= 0) return;
    l->first_bad = rank;
    l->steps = 1;
    l->since_ns = clock_now_ns();
}

static void note_end(launcher *l, int rank, int state) {
    rank_process *r = &l->ranks[rank];
    r->pid = 0;
    r->state = state;
    l->running--;
    bool good = WIFEXITED(state) && WEXITSTATUS(state) == ST_OK;
    bool stopped = WIFEXITED(state) && WEXITSTATUS(state) == ST_STOPPED;
    if (!good && !stopped) mark_bad(l, rank);
}

static void reap(launcher *l) {
    for (int rank = 0; rank < l->n; rank++) {
        int state;
        pid_t pid = l->ranks[rank].pid;
        if (pid > 0 && waitpid(pid, &state, WNOHANG) == pid) note_end(l, rank, state);
    }
}

/* Takes the others down, step by step. */
static void press(launcher *l) {
    if (l->steps == 0 || l->steps > 2 || clock_since_s(l->since_ns) < GRACE_S) return;
    signal_all(l, l->steps == 1 ? SIGTERM : SIGKILL);
    l->steps++;
    l->since_ns = clock_now_ns();
}

static void take_signals(launcher *l) {
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) continue;
        l->told = true;
        signal_all(l, (int)info.ssi_signo);
    }
    reap(l);
}

/* ---- the loop ---- */

static void wait_for_something(launcher *l, struct pollfd *fds) {
    int n = l->n;
    for (int r = 0; r < n; r++) fds[r] = (struct pollfd){.fd = l->ranks[r].fd, .events = POLLIN};
    fds[n] = (struct pollfd){.fd = l->signals, .events = POLLIN};
    int patience_ms = l->steps > 0 ? 100 : -1;
    if (file_poll(fds, n + 1, patience_ms) < 0) return;
    for (int r = 0; r < n; r++)
        if (fds[r].revents) hear(&l->ranks[r], r);
    if (fds[n].revents) take_signals(l);
}

/* Until all have ended and all was heard; a grandchild that holds a pipe open is not waited for. */
static void watch(launcher *l) {
    struct pollfd *fds = xcalloc((size_t)l->n + 1, sizeof *fds);
    while (l->running > 0) {
        wait_for_something(l, fds);
        press(l);
    }
    for (int r = 0; r < l->n; r++)
        if (l->ranks[r].fd >= 0) fcntl(l->ranks[r].fd, F_SETFL, O_NONBLOCK);
    for (int r = 0; r < l->n; r++)
        while (l->ranks[r].fd >= 0) hear(&l->ranks[r], r);
    free(fds);
}

/* ---- the result ---- */

/* A rank that did not end as rank 0 did; 0 when all did, with a status. */
static int find_other(const launcher *l) {
    if (!WIFEXITED(l->ranks[0].state)) return 0;
    for (int r = 1; r < l->n; r++)
        if (l->ranks[r].state != l->ranks[0].state) return r;
    return 0;
}

/* The first failure that a rank told the others of, or that was marked for it. */
static status name_failure(const launcher *l, err *e) {
    err first = {0};
    (void)!comm_segment_check(l->segment, l->n, &first);
    err_set(e, ST_RANK, "%s; all ranks have ended", first.message);
    if (first.where[0]) err_where(e, "%s", first.where);
    return err_hint(e, "what that rank said stands above; a run goes on from its last checkpoint");
}

static status judge(const launcher *l, err *e) {
    int other = find_other(l), state = l->ranks[0].state;
    if (other == 0 && WIFEXITED(state) && WEXITSTATUS(state) != ST_RANK)
        return (status)WEXITSTATUS(state);
    if (l->first_bad >= 0) return name_failure(l, e);
    strbuf text = {0};
    put_end(&text, 0, state);
    strbuf_puts(&text, ", but ");
    put_end(&text, other, l->ranks[other].state);
    err_set(e, ST_RANK, "%s", text.data);
    strbuf_free(&text);
    return err_hint(e, "a run goes on from its last checkpoint");
}

static status start_all(launcher *l, err *e) {
    for (int r = 0; r < l->n; r++) {
        status st = start_rank(l, r, e);
        if (st == ST_OK) continue;
        signal_all(l, SIGKILL);
        watch(l);
        return st;
    }
    return ST_OK;
}

/* Runs them to their end. The status that all ranks ended with; ST_RANK with a sentence in *e when
 * one was killed, or they differ; *e stays empty when the ranks have said it themselves. */
static status launch_ranks(launcher *l, err *e) {
    l->ranks = xcalloc((size_t)l->n, sizeof *l->ranks);
    l->steps = 0;
    l->first_bad = -1;
    for (int r = 0; r < l->n; r++) l->ranks[r].fd = -1;
    TRY(comm_segment_new(l->n, &l->segment, e));
    status st = start_all(l, e);
    if (st == ST_OK) {
        watch(l);
        st = judge(l, e);
    }
    for (int r = 0; r < l->n; r++) strbuf_free(&l->ranks[r].text);
    close(l->segment);
    return st;
}

/* ---- starting again ---- */

/* Killed by somebody else, or only to be ended by SIGKILL. */
static bool is_lost(const launcher *l, int rank) {
    int state = l->ranks[rank].state;
    if (!WIFSIGNALED(state)) return false;
    return l->steps < 2 || WTERMSIG(state) == SIGKILL || rank == l->first_bad;
}

/* What a program that errs ends with. */
static bool is_mistake(int sig) {
    return sig == SIGABRT || sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE;
}

/* Whether another start may do better: one that meets the same error, of a config or a file say, does
 * not, nor one that meets a mistake of the program. */
static bool may_help(const launcher *l) {
    for (int r = 0; r < l->n; r++) {
        int state = l->ranks[r].state, code = WIFEXITED(state) ? WEXITSTATUS(state) : ST_RANK;
        if (WIFSIGNALED(state) && is_mistake(WTERMSIG(state))) return false;
        if (code != ST_OK && code != ST_RANK && code != ST_STOPPED) return false;
    }
    return true;
}

static bool counts_on(launcher *l) {
    int64_t newest = restart_newest(l->again.run);
    l->again.in_vain = newest > l->again.newest ? 1 : l->again.in_vain + 1;
    l->again.newest = newest;
    return l->again.in_vain <= l->again.most;
}

/* For people and for the run's metrics. */
static void tell_again(launcher *l, int before, int lost, const char *more, const err *cause) {
    const restart_layout *k = &l->again.layout;
    strbuf text = {0};
    strbuf_printf(&text, "%.*s%s; starting again with %d rank%s", (int)strcspn(cause->message, ";"),
                  cause->message, lost == before && lost > 1 ? ", as were the others" : "",
                  k->ranks, text_s(k->ranks));
    if (k->ranks != before) strbuf_printf(&text, " of %d", before);
    for (int i = 0; i < k->n_keys && k->ranks != before; i++)
        strbuf_printf(&text, "%s %s", i ? "," : ":", k->key[i]);
    if (*more) strbuf_printf(&text, "; %s", more);
    json_t *o = json_pack("{s:o,s:i,s:i,s:i,s:i,s:[]}", "message", json_cstr(strbuf_cstr(&text)),
                          "ranks", k->ranks, "ranks_before", before, "lost", lost, "spares",
                          l->again.n_copies, "layout");
    for (int i = 0; i < k->n_keys; i++)
        json_array_append_new(json_object_get(o, "layout"), json_string(k->key[i]));
    free(l->again.why);
    l->again.why = json_dumps(o, JSON_COMPACT);
    log_warn("%s", strbuf_cstr(&text));
    json_decref(o);
    strbuf_free(&text);
}

/* Where all of several were lost at once, that was no matter of one rank's place: all begin again. */
static int ranks_left(launcher *l, int lost, strbuf *told) {
    bool all = lost == l->n;
    l->again.n_copies =
        all && lost > 1 ? 0 : spares_take(l->again.spares, lost, l->again.copy, told);
    return all ? l->n : l->n - lost + l->again.n_copies;
}

static status told_to_stop(err *e) {
    return err_hint(e, "it was told to stop; the run goes on from its last checkpoint");
}

/* Chooses ranks and layout of the next start. */
static status prepare_again(launcher *l, const err *cause, strbuf *told, err *e) {
    int lost = 0, before = l->n;
    for (int r = 0; r < l->n; r++) lost += is_lost(l, r);
    int left = ranks_left(l, lost, told);
    if (l->told) {
        *e = *cause;
        return told_to_stop(e);
    }
    restart_keep_config(l->again.run, told);
    status st = ST_OK;
    if (left == before)
        l->again.layout.ranks = left;
    else
        st = restart_fit(l->again.run, left, l->again.least, &l->again.layout, e);
    if (st != ST_OK) {
        err_context(e, "%s", cause->message);
        return ST_RANK;
    }
    tell_again(l, before, lost, strbuf_cstr(told), cause);
    l->n = l->again.layout.ranks;
    if (l->again.n_copies > l->n) l->again.n_copies = l->n;
    return ST_OK;
}

static status launch_until_done(launcher *l, err *e) {
    for (;;) {
        err why = {0};
        status st = launch_ranks(l, &why);
        *e = why;
        take_signals(l); /* that came since: no rank is left to get them */
        if (st != ST_RANK || !l->again.run || !may_help(l)) return st;
        if (l->told) return told_to_stop(e);
        if (!counts_on(l))
            return err_hint(
                e,
                "it was started again %ld times in a row without a new checkpoint: that "
                "is where --restart ends",
                (long)l->again.most);
        *e = (err){0};
        strbuf told = {0};
        st = prepare_again(l, &why, &told, e);
        strbuf_free(&told);
        TRY(st);
        free(l->ranks);
        l->ranks = NULL;
    }
}

/* ---- the command ---- */

static status check_nesting(const cli_args *args, err *e) {
    if (getenv("ATHANOR_RANK")) {
        return err_at(e, ST_USAGE, "ATHANOR_RANK", "this process is rank %s of a launch already",
                      getenv("ATHANOR_RANK"));
    }
    if (strcmp(args->inputs[0], "launch") != 0) return ST_OK;
    err_set(e, ST_USAGE, "'athanor launch' does not launch itself");
    return err_hint(e, "name the command of the ranks: athanor launch --ranks 2 -- train CONFIG");
}

/* The command, with the --json of launch: before a "--", behind which nothing is an option. */
static const char **command_of(const cli_args *args, int *n) {
    const char **out = xcalloc((size_t)args->n_inputs + 2, sizeof *out);
    bool pending = args->json;
    *n = 0;
    for (int i = 0; i < args->n_inputs; i++) {
        if (pending && strcmp(args->inputs[i], "--") == 0) {
            out[(*n)++] = "--json";
            pending = false;
        }
        out[(*n)++] = args->inputs[i];
    }
    if (pending) out[(*n)++] = "--json";
    return out;
}

static bool gives_json(const launcher *l) {
    for (int i = 0; i < l->n_command && strcmp(l->command[i], "--") != 0; i++)
        if (strcmp(l->command[i], "--json") == 0) return true;
    return false;
}

/* Rank 0 has ended with an error that it has told itself. */
static bool has_told(const launcher *l) {
    int state = l->ranks ? l->ranks[0].state : 0;
    return WIFEXITED(state) && WEXITSTATUS(state) != ST_OK && WEXITSTATUS(state) != ST_RANK;
}

/* Where the command gives JSON, a failure is one object. Elsewhere the program's end tells it. */
static void tell_end(const launcher *l, status st, err *e) {
    if (st == ST_OK || !gives_json(l)) return;
    e->code = st;
    cli_report(e, !has_told(l));
    *e = (err){0};
}

static bool is_told(void *ctx) {
    launcher *l = ctx;
    take_signals(l);
    return l->told;
}

/* A spare may take as long as a rank may. */
static status open_spares(launcher *l, int n, err *e) {
    spares_patience p = {.limit_s = l->timeout_s, .ends = is_told, .ctx = l};
    if (p.limit_s < 0) {
        p.limit_s = restart_timeout_s(l->again.run);
        TRY(env_num("ATHANOR_TIMEOUT", 0, 1e9, &p.limit_s, e));
    }
    return spares_open(&l->again.spares, n, restart_run(l->again.run), &p, e);
}

static status open_again(launcher *l, const cli_args *args, err *e) {
    int64_t least, waiting;
    const char *most = cli_value(args, "restart");
    TRY(cli_int(args, "min-ranks", 1, 1, l->n, &least, e));
    TRY(cli_int(args, "spares", 0, 0, COMM_MOST_RANKS, &waiting, e));
    l->again.most = MOST_STARTS;
    if (!most) return ST_OK;
    if (*most) TRY(cli_int(args, "restart", MOST_STARTS, 1, 1000000, &l->again.most, e));
    l->again.least = (int)least;
    TRY(restart_open(&l->again.run, l->command, l->n_command, e));
    l->again.newest = restart_newest(l->again.run);
    l->again.copy = xcalloc((size_t)waiting + 1, sizeof *l->again.copy);
    return waiting ? open_spares(l, (int)waiting, e) : ST_OK;
}

static void close_launcher(launcher *l) {
    spares_free(l->again.spares);
    restart_free(l->again.run);
    free(l->again.copy);
    free(l->again.why);
    if (l->signals >= 0) close(l->signals);
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    free(l->ranks);
    free(l->command);
}

static status launch(const cli_args *args, err *e) {
    int64_t ranks;
    launcher l = {.signals = -1, .first_bad = -1};
    TRY(check_nesting(args, e));
    if (!cli_has(args, "ranks")) {
        err_at(e, ST_USAGE, "command line", "how many ranks?");
        return err_hint(e, "athanor launch --ranks 2 -- %s ...", args->inputs[0]);
    }
    TRY(cli_int(args, "ranks", 1, 1, COMM_MOST_RANKS, &ranks, e));
    TRY(cli_num(args, "timeout", -1, 0, 1e9, &l.timeout_s, e));
    l.n = (int)ranks;
    TRY(catch_signals(&l, e));
    l.command = command_of(args, &l.n_command);
    status st =
        open_again(&l, args, e); /* spares have the signals blocked: they end with the launcher */
    if (st == ST_OK) st = launch_until_done(&l, e);
    tell_end(&l, st, e);
    close_launcher(&l);
    return st;
}

static const cli_option options[] = {
    {"ranks", "N", "how many processes"},
    {"timeout", "S",
     "seconds that a rank may wait for another, and the launcher for a spare; 0: for ever (default "
     "600)"},
    {"restart", "[K]",
     "train goes on with the ranks that are left when one was killed or hung, up to K times in a "
     "row "
     "without a new checkpoint (default 10)"},
    {"min-ranks", "M", "go on with no fewer ranks than that (default 1)"},
    {"spares", "S",
     "so many processes wait with a copy of the newest checkpoint to take a lost rank's place"},
    {0}};

static const cli_rule rules[] = {{"min-ranks", CLI_NEEDS, "restart", "add --restart"},
                                 {"spares", CLI_NEEDS, "restart", "add --restart"},
                                 {0}};

const cli_command command_launch = {
    .name = "launch",
    .summary = "one command as several ranks on this machine",
    .usage = "--ranks N [--timeout S] [--restart [K] [--min-ranks M] [--spares S]] -- COMMAND ...",
    .run = launch,
    .options = options,
    .rules = rules,
    .min_inputs = 1,
    .max_inputs = -1,
    .about =
        "Starts COMMAND as N processes that train together; what follows -- is what would follow\n"
        "athanor alone. Each rank gets its share of the cores, unless OMP_NUM_THREADS is set.\n"
        "Rank 0 speaks; of the others only standard error is passed on, with [rank R] before each\n"
        "line. SIGINT, SIGTERM, SIGHUP and SIGUSR1 go to all ranks. When one dies, the others end\n"
        "within seconds. A rank that waits for another longer than --timeout fails with a report\n"
        "of where each rank is. --json gives what the command gives with it. Ranks may also be\n"
        "started by mpirun, srun or torchrun: see docs/launching.md.\n"
        "\n"
        "Exit status: that of the ranks when they agree; 6 when one was killed, hung or "
        "differs.\n",
};
