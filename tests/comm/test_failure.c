/* What happens when ranks fail, hang, die or disagree: the others end soon, with a sentence that
 * names the rank, and a report of where everybody is. */
#include "comm_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "comm/board/board.h"

enum { RANKS = 3, SOON_S = 60 }; /* against ranks that wait for ever, or for ten minutes' timeout */

/* ---- scenes ---- */

/* What the ranks have found, in memory that forked ranks share. */
typedef struct findings {
    err said[RANKS]; /* by comm_check; code ST_OK when the world had not failed */
    double seconds[RANKS];
} findings;

typedef struct scene {
    rank_fn play;
    double patience_s; /* of a rank that waits for another; 0: as it is */
    findings *found;
} scene;

static void nap(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

static void reduce_bytes(comm *c, const char *what, int64_t bytes) {
    uint16_t *x = xcalloc((size_t)bytes, 1);
    comm_run(c, &(comm_call){.kind = COMM_ALL_REDUCE,
                             .in = x,
                             .out = x,
                             .n = bytes / 2,
                             .dt = DT_BF16,
                             .what = what});
    free(x);
}

static void reduce(comm *c, const char *what) {
    reduce_bytes(c, what, 20000);
}

/* Plays the scene on one rank, then notes what comm_check says. */
static void play(comm_world *w, void *ctx) {
    const scene *s = ctx;
    int64_t begin = clock_now_ns();
    int r = comm_world_rank(w);
    if (s->patience_s > 0) comm_set_timeout(w, s->patience_s);
    s->play(w, NULL);
    s->found->seconds[r] = clock_since_s(begin);
    s->found->said[r].code = ST_OK;
    (void)!comm_check(w, &s->found->said[r]);
}

/* Where standard error goes meanwhile; the text it got is put in `text`. */
static void with_stderr(char *text, size_t room, void (*run)(int, rank_fn, void *), scene *s) {
    char path[] = "/tmp/athanor-comm-XXXXXX";
    int file = mkstemp(path), before = dup(STDERR_FILENO);
    assert_true(file >= 0 && before >= 0);
    unlink(path);
    fflush(NULL);
    dup2(file, STDERR_FILENO);
    run(RANKS, play, s);
    dup2(before, STDERR_FILENO);
    close(before);
    ssize_t n = pread(file, text, room - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(file);
}

static void expect_text(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("no '%s' in: %s", part, text);
}

/* Each rank named in `mask` must have found `message`, and soon. */
static void expect_found(const findings *f, int mask, const char *message) {
    for (int r = 0; r < RANKS; r++) {
        if (!(mask >> r & 1)) continue;
        assert_int_equal(f->said[r].code, ST_RANK);
        expect_text(f->said[r].message, message);
        assert_true(f->seconds[r] < SOON_S);
    }
}

typedef void run_fn(int n, rank_fn f, void *ctx);
static run_fn *const KINDS[] = {run_threads, run_processes};

static findings *new_findings(void) {
    findings *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(f != MAP_FAILED);
    return f;
}

/* Both kinds of ranks; the report is in `text` (of the last one). */
static void on_both(rank_fn act, int mask, const char *message, char *text, size_t room) {
    scene s = {.play = act, .found = new_findings()};
    for (int k = 0; k < ARRAY_LEN(KINDS); k++) {
        with_stderr(text, room, KINDS[k], &s);
        expect_found(s.found, mask, message);
    }
    munmap(s.found, sizeof *s.found);
}

/* ---- a rank that hangs ---- */

/* What shall be said, and what stand in the report. */
typedef struct stall {
    rank_fn act;
    const char *message, *parts[10];
} stall;

static bool is_told(const stall *want, const findings *f, const char *text) {
    for (int r = 0; r < RANKS; r++)
        if (!strstr(f->said[r].message, want->message)) return false;
    for (int i = 0; want->parts[i]; i++)
        if (!strstr(text, want->parts[i])) return false;
    return true;
}

/* A machine that does other things holds up ranks, too, for a moment: the patience of the ranks is
 * doubled until the one is blamed that hangs in the scene. The report is made once. */
static void on_both_stalled(const stall *want) {
    char text[16384];
    for (int k = 0; k < ARRAY_LEN(KINDS); k++) {
        scene s = {.play = want->act, .patience_s = 0.2, .found = new_findings()};
        do {
            with_stderr(text, sizeof text, KINDS[k], &s);
            s.patience_s *= 2;
        } while (s.patience_s < 10 && !is_told(want, s.found, text));
        expect_found(s.found, 7, want->message);
        for (int i = 0; want->parts[i]; i++) expect_text(text, want->parts[i]);
        assert_null(strstr(strstr(text, want->parts[0]) + 1, want->parts[0]));
        munmap(s.found, sizeof *s.found);
    }
}

/* Computes until the others have given it up. */
static void compute_for_long(comm_world *w) {
    for (int i = 0; i < 6000 && comm_check(w, NULL) == ST_OK; i++) nap(0.01);
}

static void rank_1_computes_for_long(comm_world *w, void *ctx) {
    (void)ctx;
    comm *c = everyone(w);
    reduce(c, "gradients of layers.4");
    comm_at(w, comm_world_rank(w) == 1 ? "the backward of layers.3" : "the loss", 12);
    if (comm_world_rank(w) == 1) compute_for_long(w);
    reduce(c, "gradients of layers.3");
}

static void test_stall(void **state) {
    (void)state;
    on_both_stalled(&(stall){
        rank_1_computes_for_long,
        "rank 1 holds up the others",
        {"where each rank is", "  rank 0 has waited ",
         "s for rank 1 in all-reduce #2 of gradients of layers.3 (20000 bytes, 3 ranks)",
         "  rank 1 finished ", ", in step 12, at the backward of layers.3 for ",
         "    all-reduce #1 of gradients of layers.4 (20000 bytes, 3 ranks)  ", "  unfinished\n"}});
}

/* The side stream hangs, the caller waits for it. */
static void rank_2_starts_nothing(comm_world *w, void *ctx) {
    (void)ctx;
    comm *c = everyone(w);
    float x[2000] = {0};
    comm_call call = {
        .kind = COMM_ALL_REDUCE, .in = x, .out = x, .n = 2000, .dt = DT_F32, .what = "bucket 7"};
    if (comm_world_rank(w) != 2) {
        comm_ticket t = comm_start(c, &call);
        comm_wait(w, t);
    } else {
        compute_for_long(w);
    }
}

/* A board shows the ranks of its host; of the others it knows where they are. */
static void test_stall_of_another_host(void **state) {
    (void)state;
    static const comm_call CALL = {.kind = COMM_BARRIER, .what = "the end"};
    board *b = xcalloc(1, board_bytes(2));
    err e = {0};
    board_set_host(b, 0, "n1");
    board_set_host(b, 1, "n2");
    board_enter(b, 0, 2);
    board_begin(b, 0, false, &CALL, 0, 2);
    board_waits(b, 0, false, 1);
    board_stall(b, 0, false, 1, 3);
    assert_int_equal(board_check(b, &e), ST_RANK);
    assert_non_null(strstr(
        e.message, "rank 1 on n2 holds up the others: rank 0 on n1 has waited 3.0 s in barrier"));
    assert_non_null(strstr(e.message, "rank 1 is on another host"));
    free(b);
}

/* A process that nobody has waited for has ended, and one that left in order has not died. */
static void test_dead(void **state) {
    (void)state;
    board *b = xcalloc(1, board_bytes(2));
    assert_false(board_is_dead(b, 0, 1)); /* it may be on its way */
    assert_true(board_is_dead(b, 0, 60));
    board_enter(b, 0, 2);
    assert_false(board_is_dead(b, 0, 60));
    pid_t child = fork();
    if (child == 0) _exit(0);
    atomic_store(&b->seats[0].process, (int)child);
    for (int i = 0; i < 1000 && !board_is_dead(b, 0, 0); i++) nap(0.01);
    assert_true(board_is_dead(b, 0, 0));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(board_is_dead(b, 0, 0));
    board_leave(b, 0);
    assert_false(board_is_dead(b, 0, 60));
    free(b);
}

static void test_stall_on_the_side(void **state) {
    (void)state;
    on_both_stalled(&(stall){rank_2_starts_nothing,
                             "rank 2 holds up the others",
                             {"where each rank is",
                              "all-reduce #1 of bucket 7 (8000 bytes, 3 ranks, side stream)",
                              "  rank 2 has begun no collective"}});
}

/* ---- a rank that fails, ends, or is elsewhere ---- */

static void rank_0_fails(comm_world *w, void *ctx) {
    (void)ctx;
    err why = {0};
    comm *c = everyone(w);
    reduce(c, "a");
    err_set(&why, ST_FORMAT, "cannot read shard.bin");
    if (comm_world_rank(w) == 0) comm_fail(w, &why);
    for (int i = 0; i < 100; i++) reduce(c, "b"); /* all return at once */
}

static void test_fail(void **state) {
    (void)state;
    char text[16384];
    on_both(rank_0_fails, 7, "rank 0 failed: cannot read shard.bin", text, sizeof text);
}

static void rank_1_ends(comm_world *w, void *ctx) {
    (void)ctx;
    comm *c = everyone(w);
    reduce(c, "a");
    if (comm_world_rank(w) != 1) reduce(c, "weights");
}

static void test_left(void **state) {
    (void)state;
    char text[16384];
    on_both(rank_1_ends, 5, "rank 1 has ended while rank ", text, sizeof text);
    expect_text(text, "all-reduce #2 of weights");
}

static void rank_2_takes_another_bucket(comm_world *w, void *ctx) {
    (void)ctx;
    reduce(everyone(w), comm_world_rank(w) == 2 ? "bucket 1" : "bucket 0");
}

static void rank_2_has_another_size(comm_world *w, void *ctx) {
    (void)ctx;
    reduce_bytes(everyone(w), "bucket 0", comm_world_rank(w) == 2 ? 30000 : 20000);
}

static void test_mixed(void **state) {
    (void)state;
    char text[16384];
    on_both(rank_2_takes_another_bucket, 7, "are in different collectives", text, sizeof text);
    expect_text(text, "bucket 0");
    expect_text(text, "bucket 1");
    on_both(rank_2_has_another_size, 7, "are in different collectives", text, sizeof text);
}

/* ---- a rank that dies ---- */

static void rank_1_is_killed(comm_world *w, void *ctx) {
    (void)ctx;
    comm *c = everyone(w);
    for (int i = 0; i < 1000000; i++) {
        reduce(c, "gradients");
        if (i == 20 && comm_world_rank(w) == 1) raise(SIGKILL);
        err e = {0};
        if (comm_check(w, &e) == ST_OK) continue;
        CHECK(strcmp(e.message, "rank 1 was killed") == 0, "%s", e.message);
        _exit(ST_RANK);
    }
}

static void test_killed(void **state) {
    (void)state;
    int fd, ended;
    pid_t pids[RANKS];
    err e = {0}, why = {0};
    assert_int_equal(comm_segment_new(RANKS, &fd, &e), ST_OK);
    for (int r = 0; r < RANKS; r++) {
        if ((pids[r] = fork()) > 0) continue;
        comm_world *w;
        CHECK(comm_open_segment(&w, fd, r, RANKS, &e) == ST_OK, "%s", e.message);
        rank_1_is_killed(w, NULL);
    }
    assert_int_equal(waitpid(pids[1], &ended, 0), pids[1]);
    assert_true(WIFSIGNALED(ended));
    assert_int_equal(comm_segment_check(fd, RANKS, &e), ST_OK);
    err_set(&why, ST_RANK, "rank 1 was killed");
    assert_int_equal(comm_segment_fail(fd, RANKS, 1, &why, &e), ST_OK);
    int64_t marked = clock_now_ns();
    for (int r = 0; r < RANKS; r += 2) {
        assert_int_equal(waitpid(pids[r], &ended, 0), pids[r]);
        assert_int_equal(WEXITSTATUS(ended), ST_RANK);
    }
    assert_true(clock_since_s(marked) < SOON_S);
    assert_int_equal(comm_segment_check(fd, RANKS, &e), ST_RANK);
    close(fd);
}

/* ---- worlds that cannot be opened ---- */

static void expect_refusal(const char *part) {
    comm_world *w;
    err e = {0};
    assert_int_equal(comm_open_environment(&w, &e), ST_USAGE);
    assert_null(w);
    expect_text(e.message, part);
}

static void test_environment(void **state) {
    (void)state;
    comm_world *w;
    err e = {0};
    int fd, file = open("/dev/null", O_RDWR);
    char text[16];
    assert_int_equal(comm_open_environment(&w, &e), ST_OK);
    assert_string_equal(comm_world_kind(w), "self");
    comm_close(w);
    setenv("RANK", "0", 1), setenv("WORLD_SIZE", "2", 1);
    expect_refusal("RANK is set, but MASTER_PORT is not");
    setenv("MASTER_PORT", "x", 1);
    expect_refusal("MASTER_PORT is \"x\", which is no number from 0 to 65535");
    setenv("MASTER_PORT", "70000", 1);
    expect_refusal("MASTER_PORT is \"70000\"");
    setenv("MASTER_PORT", "0", 1);
    expect_refusal("RANK and WORLD_SIZE are set, but MASTER_ADDR is not");
    setenv("MASTER_ADDR", "::1", 1);
    expect_refusal("MASTER_PORT is 0");
    setenv("RANK", "2", 1);
    expect_refusal("there is no rank 2 among 2 ranks");
    setenv("RANK", "0", 1), setenv("WORLD_SIZE", "1", 1);
    assert_int_equal(comm_open_environment(&w, &e), ST_OK);
    assert_string_equal(comm_world_kind(w), "self");
    assert_null(getenv("RANK"));
    comm_close(w);
    setenv("ATHANOR_RANK", "x", 1);
    expect_refusal("ATHANOR_RANK is \"x\"");
    setenv("ATHANOR_RANK", "1", 1);
    expect_refusal("ATHANOR_WORLD_SIZE is not");
    setenv("ATHANOR_WORLD_SIZE", "2", 1);
    snprintf(text, sizeof text, "%d", file);
    setenv("ATHANOR_SEGMENT_FD", text, 1);
    expect_refusal("not the shared segment");
    assert_int_equal(comm_segment_new(2, &fd, &e), ST_OK);
    snprintf(text, sizeof text, "%d", fd);
    setenv("ATHANOR_SEGMENT_FD", text, 1);
    setenv("ATHANOR_RANK", "2", 1);
    expect_refusal("no rank 2 among 2 ranks");
    setenv("ATHANOR_RANK", "1", 1);
    assert_int_equal(comm_open_environment(&w, &e), ST_OK);
    assert_int_equal(comm_world_rank(w), 1);
    assert_null(getenv("ATHANOR_RANK"));
    comm_close(w);
    close(file);
    close(fd);
    assert_int_equal(comm_segment_new(1000, &fd, &e), ST_USAGE);
    expect_text(e.message, "1 to 256 ranks");
}

/* Numbers that are none, or that no machine has, are refused before anybody is waited for. */
static void test_numbers(void **state) {
    (void)state;
    static const char *const TIMEOUTS[] = {"1e300", "-1", "nan", "inf", "", " 3", "0x10", "1e10"};
    static const char *const SIZES[] = {
        "300", "65535", "-2", "nan", "", "2.5", "99999999999999999999"};
    int64_t began = clock_now_ns();
    for (int i = 0; i < ARRAY_LEN(TIMEOUTS); i++) {
        setenv("ATHANOR_TIMEOUT", TIMEOUTS[i], 1);
        expect_refusal("ATHANOR_TIMEOUT is \"");
        setenv("RANK", "0", 1), setenv("WORLD_SIZE", "2", 1), setenv("MASTER_PORT", "1", 1);
        expect_refusal("ATHANOR_TIMEOUT is \"");
        unsetenv("RANK");
    }
    unsetenv("ATHANOR_TIMEOUT");
    for (int i = 0; i < ARRAY_LEN(SIZES); i++) {
        setenv("RANK", "0", 1), setenv("WORLD_SIZE", SIZES[i], 1);
        expect_refusal("WORLD_SIZE is ");
        setenv("ATHANOR_RANK", "0", 1), setenv("ATHANOR_WORLD_SIZE", SIZES[i], 1);
        expect_refusal("ATHANOR_WORLD_SIZE is ");
        unsetenv("ATHANOR_RANK");
    }
    setenv("WORLD_SIZE", "2", 1), setenv("ATHANOR_TOKEN", "", 1);
    expect_refusal("ATHANOR_TOKEN is empty");
    unsetenv("RANK"), unsetenv("ATHANOR_TOKEN");
    static const char *const LINKS[] = {"", "x,1", "1,x", "5", "1e300,1", "1,-1", "1,1,1", "nan,1"};
    for (int i = 0; i < ARRAY_LEN(LINKS); i++) {
        setenv("ATHANOR_LINK", LINKS[i], 1);
        expect_refusal("ATHANOR_LINK is \"");
    }
    unsetenv("ATHANOR_LINK");
    assert_true(clock_since_s(began) < 2);
}

static void expect_no_segment(int fd, const char *part) {
    comm_world *w;
    err e = {0};
    assert_int_equal(comm_open_segment(&w, fd, 0, 2, &e), ST_USAGE);
    assert_null(w);
    expect_text(e.message, part);
    assert_true(e.hint[0] && e.where[0]);
}

/* What is no segment of this user's ranks is refused before it is mapped: it stays as it was. */
static void test_false_segments(void **state) {
    (void)state;
    enum { PAGE = 4096 };
    static char zeros[PAGE], text[PAGE];
    err e = {0};
    int fd, size = (int)comm_segment_bytes(2);
    FILE *file = tmpfile();
    assert_int_equal(ftruncate(fileno(file), size), 0);
    expect_no_segment(fileno(file), "another kind of file");
    fclose(file);
    fd = memfd_create("not sealed", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, size), 0);
    expect_no_segment(fd, "another kind of file");
    close(fd);
    assert_int_equal(comm_segment_new(3, &fd, &e), ST_OK);
    expect_no_segment(fd, "another length");
    assert_int_not_equal(ftruncate(fd, 0), 0); /* nobody can take the memory away */
    close(fd);
    expect_no_segment(fd, "it is not open");
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    expect_no_segment(ends[0], "another kind of file");
    close(ends[0]), close(ends[1]);
    assert_int_equal(comm_segment_new(2, &fd, &e), ST_OK);
    if (fchown(fd, 65534, 65534) == 0) { /* as root: a segment that another user has made */
        expect_no_segment(fd, "of another user");
        assert_int_equal(pread(fd, text, PAGE, 0), PAGE);
        assert_memory_equal(text, zeros, PAGE);
    }
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_stall_on_the_side),
        cmocka_unit_test(test_stall_of_another_host),
        cmocka_unit_test(test_dead),
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_false_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
