/* Ranks that meet over TCP: the exchange, and everything that may be met instead of a rank. Ranks
 * are forked; each has a port that was free a moment before. */
#include "comm_test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "comm/meet/frame.h"
#include "comm/meet/greeting.h"
#include "comm/world.h"

enum { MOST = 4 };

/* What each rank has come to, in memory that forked ranks share. */
typedef struct result {
    atomic_int welcome; /* rank 0 has let it in */
    err said;           /* code ST_OK: it met the others */
    double seconds;
    int fds;
} result;

typedef struct meeting {
    rendezvous_plan plans[MOST]; /* rank and size as each believes */
    void (*act)(const rendezvous_plan *plan, result *out);
    result *results;
} meeting;

static int listen_on_loopback(int *port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    assert_int_equal(bind(fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static int free_port(void) {
    int port;
    close(listen_on_loopback(&port));
    return port;
}

static rendezvous_plan plan_of(int rank, int size, const char *host, int port) {
    return (rendezvous_plan){.rank = rank,
                             .size = size,
                             .at = {.host = host, .port = port},
                             .timeout_s = 20,
                             .version = "1.0",
                             .token = "a secret"};
}

static int open_files(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void nap(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

static meeting new_meeting(int n, const char *host) {
    int port = free_port();
    meeting m = {0};
    for (int r = 0; r < n; r++) m.plans[r] = plan_of(r, n, host, port);
    m.results = mmap(NULL, sizeof(result) * MOST, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(m.results != MAP_FAILED);
    return m;
}

/* Forks process i of the meeting. */
static pid_t start(const meeting *m, int i) {
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    int before = open_files();
    int64_t begin = clock_now_ns();
    m->act(&m->plans[i], &m->results[i]);
    m->results[i].seconds = clock_since_s(begin);
    m->results[i].fds = open_files() - before;
    _exit(0);
}

static void end(pid_t pid) {
    int state;
    assert_int_equal(waitpid(pid, &state, 0), pid);
    assert_true(WIFEXITED(state) && WEXITSTATUS(state) == 0);
}

static void run_meeting(const meeting *m, int n) {
    pid_t pids[MOST];
    for (int i = 0; i < n; i++) pids[i] = start(m, i);
    for (int i = 0; i < n; i++) end(pids[i]);
}

static void await_welcome(const meeting *m, int i) {
    while (!atomic_load(&m->results[i].welcome)) nap(0.002);
}

static void expect_said(const meeting *m, int i, status code, const char *part) {
    const result *r = &m->results[i];
    if (r->said.code != code || !strstr(r->said.message, part))
        fail_msg("process %d: status %d, %s", i, r->said.code, r->said.message);
    assert_int_equal(r->fds, 0);
}

/* The same for a rank that may have come when it was over. */
static void expect_said_in_time(const meeting *m, int i, status code, const char *part) {
    if (!strstr(m->results[i].said.message, "has not found rank 0")) expect_said(m, i, code, part);
}

/* Somebody who is no rank. */
static int call(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 6000; i++) {
        if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
        nap(0.01);
    }
    fail_msg("nobody listens");
    return -1;
}

/* ---- a meeting that works ---- */

/* Two exchanges of blobs that are made of the rank and the round. */
static void exchange_twice(const rendezvous_plan *plan, result *out) {
    rendezvous *r;
    unsigned char mine[1000], all[MOST * sizeof mine];
    if (rendezvous_open(&r, plan, &out->said) != ST_OK) return;
    atomic_store(&out->welcome, 1);
    status st = ST_OK;
    for (int round = 1; st == ST_OK && round < 3; round++) {
        memset(mine, plan->rank * 16 + round, sizeof mine);
        st = rendezvous_exchange(r, mine, all, sizeof mine, &out->said);
        for (int i = 0; st == ST_OK && i < plan->size * (int)sizeof mine; i++)
            CHECK(all[i] == i / (int)sizeof mine * 16 + round, "byte %d is %d", i, all[i]);
    }
    rendezvous_close(r);
}

static void test_exchange(void **state) {
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "localhost", "::1"};
    for (int i = 0; i < ARRAY_LEN(hosts); i++) {
        meeting m = new_meeting(4 - i, hosts[i]);
        m.act = exchange_twice;
        run_meeting(&m, 4 - i);
        if (strstr(m.results[0].said.message, "it is no address of this machine"))
            continue; /* IPv6 */
        for (int r = 0; r < 4 - i; r++) expect_said(&m, r, ST_OK, "");
    }
}

/* Rank 0 comes last. */
static void test_late(void **state) {
    (void)state;
    meeting m = new_meeting(3, "127.0.0.1");
    m.act = exchange_twice;
    pid_t first = start(&m, 1), second = start(&m, 2);
    nap(0.1);
    pid_t last = start(&m, 0);
    end(first), end(second), end(last);
    for (int r = 0; r < 3; r++) expect_said(&m, r, ST_OK, "");
}

/* ---- those who do not come ---- */

static void test_missing(void **state) {
    (void)state;
    meeting m = new_meeting(4, "127.0.0.1");
    m.act = exchange_twice;
    m.plans[0].timeout_s = 4;
    pid_t zero = start(&m, 0), two = start(&m, 2);
    end(zero), end(two);
    expect_said(&m, 0, ST_RANK, "ranks 1, 3 of 4 have not come to 127.0.0.1, port ");
    expect_said(&m, 2, ST_RANK, "ranks 1, 3 of 4 have not come to 127.0.0.1, port ");
    assert_true(m.results[2].seconds < 16); /* rather than its own 20 */
}

/* A process that may open so many more files. */
static void limit_files(int more) {
    int next = dup(STDERR_FILENO);
    close(next);
    const struct rlimit l = {.rlim_cur = (rlim_t)(next + more), .rlim_max = (rlim_t)(next + more)};
    CHECK(next >= 0 && setrlimit(RLIMIT_NOFILE, &l) == 0, "no limit of open files");
}

static void exchange_with_30_files(const rendezvous_plan *plan, result *out) {
    limit_files(30);
    exchange_twice(plan, out);
}

/* Rank 0 may listen, and have one connection. */
static void exchange_with_2_files(const rendezvous_plan *plan, result *out) {
    if (plan->rank == 0) limit_files(2);
    exchange_twice(plan, out);
}

/* A few open files are enough for a few ranks; where they are not, that is said. */
static void test_few_files(void **state) {
    (void)state;
    meeting m = new_meeting(4, "127.0.0.1");
    m.act = exchange_with_30_files;
    run_meeting(&m, 4);
    for (int r = 0; r < 4; r++) expect_said(&m, r, ST_OK, "");
    m = new_meeting(4, "127.0.0.1");
    m.act = exchange_with_2_files;
    for (int r = 0; r < 4; r++) m.plans[r].timeout_s = 3;
    run_meeting(&m, 4);
    expect_said(&m, 0, ST_RANK, " of 4 have not come to 127.0.0.1, port ");
    assert_non_null(strstr(m.results[0].said.hint, "ulimit -n"));
}

static void test_no_rank_0(void **state) {
    (void)state;
    meeting m = new_meeting(2, "127.0.0.1");
    m.act = exchange_twice;
    m.plans[1].timeout_s = 0.2;
    end(start(&m, 1));
    expect_said(&m, 1, ST_RANK, "rank 1 has not found rank 0 at 127.0.0.1, port ");
    expect_said(&m, 1, ST_RANK, "refused");
}

/* It meets the others and leaves. */
static void leave_at_once(const rendezvous_plan *plan, result *out) {
    rendezvous *r;
    char mine = 0, all[MOST];
    status st = rendezvous_open(&r, plan, &out->said);
    if (st == ST_OK && plan->rank != 1) st = rendezvous_exchange(r, &mine, all, 1, &out->said);
    if (st == ST_OK || plan->rank != 1) rendezvous_close(r);
}

static void test_left(void **state) {
    (void)state;
    meeting m = new_meeting(3, "127.0.0.1");
    m.act = leave_at_once;
    m.plans[2].timeout_s = 1;
    run_meeting(&m, 3);
    expect_said(&m, 0, ST_RANK, "rank 1 has left while the ranks met");
    expect_said_in_time(&m, 2, ST_RANK, "rank 1 has left while the ranks met");
}

/* Rank 1 is killed while rank 2 is still to come. */
static void test_left_early(void **state) {
    (void)state;
    meeting m = new_meeting(3, "127.0.0.1");
    m.act = exchange_twice;
    pid_t zero = start(&m, 0), one = start(&m, 1);
    await_welcome(&m, 1);
    kill(one, SIGKILL);
    waitpid(one, NULL, 0);
    end(zero);
    expect_said(&m, 0, ST_RANK, "rank 1 has left while the ranks met");
}

static void catch_signal(int number) {
    (void)number;
}

/* The handler is inherited. Signals come until one meets the wait. */
static void test_signal(void **state) {
    (void)state;
    struct sigaction ours = {.sa_handler = catch_signal}, before;
    meeting m = new_meeting(3, "127.0.0.1");
    m.act = exchange_twice;
    sigaction(SIGTERM, &ours, &before);
    for (int r = 0; r < 2; r++) {
        int state_of;
        pid_t pid = start(&m, r);
        do {
            nap(0.05);
            kill(pid, SIGTERM);
        } while (waitpid(pid, &state_of, WNOHANG) == 0);
        assert_true(WIFEXITED(state_of) && WEXITSTATUS(state_of) == 0);
        expect_said(&m, r, ST_STOPPED, "a signal came");
        assert_true(m.results[r].seconds < 20);
    }
    sigaction(SIGTERM, &before, NULL);
}

/* ---- those who do not fit ---- */

static void test_misfits(void **state) {
    (void)state;
    static const char *const says[] = {"rank 1 has come twice", "rank 2 is one of 5 ranks",
                                       "version 2.0 of athanor"};
    for (int i = 0; i < ARRAY_LEN(says); i++) {
        meeting m = new_meeting(3, "127.0.0.1");
        m.act = exchange_twice;
        m.plans[2].rank = i == 0 ? 1 : 2;
        if (i == 1) m.plans[2].size = 5;
        if (i == 2) m.plans[2].version = "2.0";
        pid_t zero = start(&m, 0), one = start(&m, 1);
        await_welcome(&m, 1);
        end(start(&m, 2));
        expect_said(&m, 2, ST_USAGE, says[i]);
        m.plans[2] = m.plans[1]; /* the others wait on, for one that fits */
        m.plans[2].rank = 2;
        m.results[2].said = (err){0};
        end(start(&m, 2)), end(one), end(zero);
        for (int r = 0; r < 3; r++) expect_said(&m, r, ST_OK, "");
    }
}

/* A rank with another token finds nobody; those that have the right one meet. */
static void test_tokens(void **state) {
    (void)state;
    meeting m = new_meeting(2, "127.0.0.1");
    m.act = exchange_twice;
    m.plans[2] = m.plans[1];
    m.plans[2].token = "";
    m.plans[2].timeout_s = 0.1;
    pid_t zero = start(&m, 0);
    close(call(m.plans[0].at.port)); /* it listens */
    end(start(&m, 2));
    expect_said(&m, 2, ST_RANK, "does not know the token of this run");
    end(start(&m, 1)), end(zero);
    for (int r = 0; r < 2; r++) expect_said(&m, r, ST_OK, "");
}

static void test_places(void **state) {
    (void)state;
    meeting m = new_meeting(2, "127.0.0.1");
    m.act = exchange_twice;
    int listener = listen_on_loopback(&m.plans[0].at.port);
    end(start(&m, 0));
    expect_said(&m, 0, ST_USAGE, "Address already in use");
    /* What listens there says something else, and rank 1 tries again. */
    m.plans[1].at.port = m.plans[0].at.port;
    m.plans[1].timeout_s = 2;
    pid_t pid = start(&m, 1);
    int guest = accept(listener, NULL, NULL);
    assert_int_equal(send(guest, "HTTP/1.1 400 Bad Request\r\n", 26, MSG_NOSIGNAL), 26);
    end(pid);
    expect_said(&m, 1, ST_RANK, "rank 1 has not found rank 0");
    expect_said(&m, 1, ST_RANK, "does not answer as rank 0 does");
    close(guest);
    close(listener);

    m.plans[0].at.host = "192.0.2.1"; /* of documentation: nobody has it */
    end(start(&m, 0));
    expect_said(&m, 0, ST_USAGE, "listen at 192.0.2.1: it is no address of this machine");
    m.plans[0].at.host = m.plans[1].at.host = "no such host";
    m.plans[1].timeout_s = 0.1;
    run_meeting(&m, 2);
    expect_said(&m, 0, ST_USAGE, "rank 0 cannot listen at no such host: ");
    expect_said(&m, 1, ST_RANK, "rank 1 has not found rank 0 at no such host, port ");
}

/* ---- strangers ---- */

/* Greets rank 0 as a rank does. */
static void greet_as(int fd, int rank, int size, const char *token) {
    unsigned char hello[GREETING_HELLO_BYTES], answer[GREETING_ANSWER_BYTES],
        proof[GREETING_PROOF_BYTES];
    greeting_hello(hello, "1.0", size, rank);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    greeting_prove(proof, answer, hello, token);
    assert_int_equal(send(fd, proof, sizeof proof, MSG_NOSIGNAL), sizeof proof);
}

/* A hundred that say nothing, parts of a hello, or something else hold nobody up. */
static void test_strangers(void **state) {
    (void)state;
    static const char *const words[] = {"",
                                        "ATHRANK2",
                                        "ATHRANK3",
                                        "GET / HTTP/1.1\r\n\r\n",
                                        "\xff\xff\xff\xff",
                                        "POST /what-is-longer-than-a-hello HTTP/1.1\r\n"};
    int fds[100];
    meeting m = new_meeting(2, "127.0.0.1");
    m.act = exchange_twice;
    pid_t zero = start(&m, 0);
    for (int i = 0; i < ARRAY_LEN(fds); i++) {
        const char *word = words[i % ARRAY_LEN(words)];
        fds[i] = call(m.plans[0].at.port);
        send(fds[i], word, strlen(word), MSG_NOSIGNAL);
    }
    pid_t one = start(&m, 1);
    end(zero), end(one);
    expect_said(&m, 0, ST_OK, "");
    expect_said(&m, 1, ST_OK, "");
    for (int i = 0; i < ARRAY_LEN(fds); i++) close(fds[i]);
}

/* A crowd of a thousand: every place of the reception is taken again and again. Each of them says
 * nothing, half a hello, a whole one that claims rank 1 and then nothing, the same with a proof of
 * another token, of another version, or sends without end. The ranks meet all the same, within two
 * seconds of what they would need alone. */
enum { CROWD = 1000, CALLERS = 8 };

typedef struct caller {
    pthread_t thread;
    int port, first;
    atomic_int *stop;
} caller;

static int try_call(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
    close(fd);
    return -1;
}

static void misbehave(int fd, int kind) {
    unsigned char hello[GREETING_HELLO_BYTES] = {0}, proof[4096] = {0};
    greeting_hello(hello, kind == 4 ? "0.1\33[2J" : "1.0", 3, kind == 5 ? 70000 : 1 + kind % 2);
    if (kind == 1) (void)!send(fd, hello, sizeof hello / 2, MSG_NOSIGNAL);
    if (kind >= 2) (void)!send(fd, hello, sizeof hello, MSG_NOSIGNAL);
    if (kind >= 3) (void)!send(fd, proof, GREETING_PROOF_BYTES, MSG_NOSIGNAL);
    for (int i = 0; kind == 6 && i < 20; i++)
        (void)!send(fd, proof, sizeof proof, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void *call_often(void *arg) {
    caller *c = arg;
    int fds[CROWD / CALLERS];
    for (int i = 0; i < CROWD / CALLERS; i++) fds[i] = -1;
    for (int i = 0; !atomic_load(c->stop); i = (i + 1) % (CROWD / CALLERS)) {
        if (fds[i] >= 0) close(fds[i]);
        fds[i] = try_call(c->port);
        if (fds[i] < 0) nap(0.001); /* rank 0 is not there yet, or has closed the door */
        if (fds[i] >= 0) misbehave(fds[i], (c->first + i) % 7);
    }
    for (int i = 0; i < CROWD / CALLERS; i++)
        if (fds[i] >= 0) close(fds[i]);
    return NULL;
}

static void test_crowd(void **state) {
    (void)state;
    meeting m = new_meeting(3, "127.0.0.1");
    m.act = exchange_twice;
    caller callers[CALLERS];
    atomic_int stop = 0;
    pid_t zero = start(&m, 0);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller){.port = m.plans[0].at.port, .first = i, .stop = &stop};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    }
    nap(0.3); /* so that it is there before the ranks */
    pid_t one = start(&m, 1), two = start(&m, 2);
    end(zero), end(one), end(two);
    atomic_store(&stop, 1);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i].thread, NULL);
    for (int r = 0; r < 3; r++) {
        expect_said(&m, r, ST_OK, "");
        if (r > 0 && m.results[r].seconds > 2)
            fail_msg("rank %d needed %.2f s to come in", r, m.results[r].seconds);
    }
}

/* A rank that is let in and then sends frames of nonsense ends the meeting with a sentence. */
static void test_nonsense(void **state) {
    (void)state;
    static const char *const frames[] = {"XXXXXXXXXXXX", "ATF1\0\0\0\0\xff\xff\xff\x7f",
                                         "ATF1\7\0\0\0\xff\xff\xff\xff"};
    for (int i = 0; i < ARRAY_LEN(frames); i++) {
        meeting m = new_meeting(2, "127.0.0.1");
        m.act = exchange_twice;
        pid_t zero = start(&m, 0);
        int fd = call(m.plans[0].at.port);
        greet_as(fd, 1, 2, "a secret");
        assert_int_equal(send(fd, frames[i], 12, MSG_NOSIGNAL), 12);
        shutdown(fd, SHUT_WR);
        end(zero);
        expect_said(&m, 0, ST_RANK, i < 2 ? "rank 1 speaks another language" : "has failed");
        close(fd);
    }
}

/* What listens says it is rank 0, but cannot show it, and sends a failure all the same: it is not
 * believed, and none of its bytes is obeyed. */
static void test_unproven_rank_0(void **state) {
    (void)state;
    unsigned char hello[GREETING_HELLO_BYTES], answer[GREETING_ANSWER_BYTES];
    meeting m = new_meeting(2, "127.0.0.1");
    m.act = exchange_twice;
    m.plans[1].timeout_s = 0.3;
    int listener = listen_on_loopback(&m.plans[1].at.port);
    pid_t one = start(&m, 1);
    int guest = accept(listener, NULL, NULL);
    assert_int_equal(recv(guest, hello, sizeof hello, MSG_WAITALL), sizeof hello);
    greeting_answer(answer, hello, "another secret");
    assert_int_equal(send(guest, answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
    send(guest, "ATF1\2\0\0\0\4\0\0\0\33[2J", 16, MSG_NOSIGNAL);
    close(listener);
    end(one);
    expect_said(&m, 1, ST_RANK, "rank 1 has not found rank 0");
    assert_null(strchr(m.results[1].said.message, '\33'));
    close(guest);
}

/* Words from the network become plain lines. */
static void test_plain_words(void **state) {
    (void)state;
    char words[FRAME_MOST_WORDS + 3] = "rank 2\33]0;x\7\nathanor: all is well\0hi\xc2\x9bnt\0\xff";
    err e = {0};
    assert_int_equal(frame_read_failure(ST_USAGE, words, 44, &e), ST_USAGE);
    assert_string_equal(e.message, "rank 2?]0;x??athanor: all is well");
    assert_string_equal(e.hint, "hi??nt");
    assert_string_equal(e.where, "?");
}

/* What listens is rank 0, and says the worst. */
static void test_false_rank_0(void **state) {
    (void)state;
    static const char welcome[12] = "ATF1";
    static const char *const heads[] = {"ATF1\2\0\0\0\0\6\0\0", "ATF1\6\0\0\0\1\6\0\0",
                                        "ATF1\0\0\0\0\xff\xff\xff\xff", "ATF2\0\0\0\0\0\0\0\0"};
    static const char *const said[] = {"AAAAAAAA", "the meeting of the ranks has failed",
                                       "rank 0 speaks another language",
                                       "rank 0 speaks another language"};
    char words[1600];
    unsigned char hello[GREETING_HELLO_BYTES], answer[GREETING_ANSWER_BYTES],
        proof[GREETING_PROOF_BYTES];
    memset(words, 'A', sizeof words); /* no NUL anywhere */
    for (int i = 0; i < ARRAY_LEN(heads); i++) {
        meeting m = new_meeting(2, "127.0.0.1");
        m.act = exchange_twice;
        int listener = listen_on_loopback(&m.plans[1].at.port);
        pid_t one = start(&m, 1);
        int guest = accept(listener, NULL, NULL);
        assert_int_equal(recv(guest, hello, sizeof hello, MSG_WAITALL), sizeof hello);
        assert_memory_equal(hello,
                            "ATHRANK2"
                            "1.0",
                            12);
        greeting_answer(answer, hello, "a secret");
        assert_int_equal(send(guest, answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
        assert_int_equal(recv(guest, proof, sizeof proof, MSG_WAITALL), sizeof proof);
        assert_true(greeting_is_proof(proof, answer, hello, "a secret"));
        assert_int_equal(send(guest, welcome, sizeof welcome, MSG_NOSIGNAL), sizeof welcome);
        assert_int_equal(send(guest, heads[i], 12, MSG_NOSIGNAL), 12);
        send(guest, words, sizeof words, MSG_NOSIGNAL);
        end(one);
        expect_said(&m, 1, i == 0 ? ST_USAGE : ST_RANK, said[i]);
        close(guest);
        close(listener);
    }
}

/* ---- worlds ---- */

static void open_world(const rendezvous_plan *plan, result *out) {
    comm_world *w;
    if (joined_open(&w, plan, &out->said) != ST_OK) return;
    comm *c = everyone(w);
    comm_set_timeout(w, 60);
    int64_t sum = 1 << comm_world_rank(w);
    comm_sum_i64(c, &sum, 1);
    CHECK(comm_check(w, NULL) != ST_OK || sum == (1 << plan->size) - 1, "the sum is %lld",
          (long long)sum);
    if (plan->at.host[0] == 'l' && plan->rank == 2) raise(SIGKILL); /* the scene of a death */
    for (int i = 0; i < 100 && plan->at.host[0] == 'l'; i++) {
        comm_sum_i64(c, &sum, 1);
        if (comm_check(w, &out->said) != ST_OK) break;
        nap(0.02);
    }
    comm_close(w);
}

static void test_world(void **state) {
    (void)state;
    meeting m = new_meeting(4, "127.0.0.1");
    m.act = open_world;
    run_meeting(&m, 4);
    for (int r = 0; r < 4; r++) expect_said(&m, r, ST_OK, "");
}

static void test_death(void **state) {
    (void)state;
    int state_of_2;
    pid_t pids[4];
    meeting m = new_meeting(4, "localhost");
    m.act = open_world;
    for (int r = 0; r < 4; r++) pids[r] = start(&m, r);
    assert_int_equal(waitpid(pids[2], &state_of_2, 0), pids[2]);
    assert_true(WIFSIGNALED(state_of_2));
    for (int r = 0; r < 4; r++) {
        if (r == 2) continue;
        end(pids[r]);
        expect_said(&m, r, ST_RANK, "rank 2 has died");
        assert_true(m.results[r].seconds < 30);
    }
}

/* Rank 1 is of another user, who may not open what rank 0 has. */
static void open_as_others(const rendezvous_plan *plan, result *out) {
    comm_world *w;
    out->said.code = ST_FAILED;
    if (plan->rank == 1 && setuid(65534) != 0) return;
    if (joined_open(&w, plan, &out->said) == ST_OK) comm_close(w);
}

static void test_users(void **state) {
    (void)state;
    if (getuid() != 0) skip(); /* nobody else may become another */
    meeting m = new_meeting(3, "127.0.0.1");
    m.act = open_as_others;
    run_meeting(&m, 3);
    for (int r = 0; r < 3; r++)
        expect_said(&m, r, ST_USAGE, "rank 1: cannot open the memory that rank 0 shares: Permis");
}

/* Rank 0 is where no collective tells it that rank 1 has died. */
static void be_stuck(const rendezvous_plan *plan, result *out) {
    comm_world *w;
    if (joined_open(&w, plan, &out->said) != ST_OK) return;
    if (plan->rank == 1) raise(SIGKILL);
    nap(60);
}

/* It is started before the other tests, as it takes its time. */
static int start_stuck(void **state) {
    static pid_t pids[2];
    meeting m = new_meeting(2, "127.0.0.1");
    m.act = be_stuck;
    for (int r = 0; r < 2; r++) pids[r] = start(&m, r);
    *state = pids;
    return 0;
}

static void test_stuck(void **state) {
    const pid_t *pids = *state;
    int ended;
    assert_int_equal(waitpid(pids[1], &ended, 0), pids[1]);
    assert_true(WIFSIGNALED(ended));
    assert_int_equal(waitpid(pids[0], &ended, 0), pids[0]);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == ST_RANK);
}

/* ---- several machines ---- */

static bool enter_container(void) {
    int spaces = CLONE_NEWPID | CLONE_NEWUTS;
    return unshare(spaces) == 0 || unshare(spaces | CLONE_NEWUSER) == 0;
}

static bool may_enter_container(void) {
    int state;
    pid_t pid = fork();
    if (pid == 0) _exit(enter_container() ? 0 : 1);
    assert_int_equal(waitpid(pid, &state, 0), pid);
    return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

/* Ranks from 2 on are in a container of another name. */
static void open_elsewhere(const rendezvous_plan *plan, result *out) {
    int state;
    if (plan->rank >= 2) {
        CHECK(enter_container(), "no container");
        CHECK(sethostname("elsewhere", 9) == 0, "no name for the container");
        pid_t pid = fork(); /* the first process of the new space */
        if (pid > 0) {
            waitpid(pid, &state, 0);
            return;
        }
    }
    comm_world *w;
    if (joined_open(&w, plan, &out->said) == ST_OK) comm_close(w);
    if (plan->rank >= 2) _exit(0);
}

static void test_machines(void **state) {
    (void)state;
    char want[256], host[64] = "";
    if (!may_enter_container()) skip(); /* this machine lets nobody make containers */
    meeting m = new_meeting(4, "127.0.0.1");
    m.act = open_elsewhere;
    run_meeting(&m, 4);
    gethostname(host, sizeof host - 1);
    snprintf(want, sizeof want,
             "ranks 0-1 are on %s, rank 2 is on elsewhere, rank 3 is on elsewhere in another "
             "container",
             host); /* each has a container of its own */
    for (int r = 0; r < 4; r++) expect_said(&m, r, ST_USAGE, want);
}

static cpu_set_t processors(int first, int n) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < n; i++) CPU_SET((size_t)(first + i), &set);
    return set;
}

static void expect_share(double share, double want) {
    assert_true(share > want - 1e-9 && share < want + 1e-9);
}

/* Ranks that are bound to processors of their own have all of them. */
static void test_shares(void **state) {
    (void)state;
    const cpu_set_t bound[] = {processors(0, 8), processors(8, 8), processors(16, 4)},
                    free_to_run[] = {processors(0, 8), processors(0, 8), processors(4, 4)};
    expect_share(comm_share_of(bound, 0, 3), 8);
    expect_share(comm_share_of(bound, 2, 3), 4);
    expect_share(comm_share_of(free_to_run, 0, 2), 4);
    expect_share(comm_share_of(free_to_run, 0, 3), 2 + 4. / 3);
    expect_share(comm_share_of(free_to_run, 2, 3), 4. / 3);
}

static void test_rank_list(void **state) {
    (void)state;
    static const bool flags[] = {true, true, true, false, true, false, true, true};
    strbuf text = {0};
    assert_int_equal(rank_list_put(&text, flags, 8), 6);
    strbuf_puts(&text, "; ");
    assert_int_equal(rank_list_put(&text, flags + 3, 2), 1);
    assert_string_equal(text.data, "ranks 0-2, 4, 6-7; rank 1");
    strbuf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),        cmocka_unit_test(test_late),
        cmocka_unit_test(test_missing),         cmocka_unit_test(test_few_files),
        cmocka_unit_test(test_no_rank_0),       cmocka_unit_test(test_left),
        cmocka_unit_test(test_left_early),      cmocka_unit_test(test_users),
        cmocka_unit_test(test_signal),          cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_places),          cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_nonsense),        cmocka_unit_test(test_false_rank_0),
        cmocka_unit_test(test_world),           cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_unproven_rank_0), cmocka_unit_test(test_plain_words),
        cmocka_unit_test(test_crowd),           cmocka_unit_test(test_death),
        cmocka_unit_test(test_machines),        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_rank_list),       cmocka_unit_test(test_stuck),
    };
    return cmocka_run_group_tests(tests, start_stuck, NULL);
}
