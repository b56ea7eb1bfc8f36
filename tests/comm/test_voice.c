/* Who tells people why ranks end. */
#include "comm_test.h"

#include <time.h>

#include "comm/board/board.h"

enum { RANKS = 3 };

typedef struct scene {
    const char *text[RANKS]; /* why each ends; NULL: by what the world says */
    bool speaks[RANKS];
    status world[RANKS]; /* comm_check's */
    double patience_s;   /* of a rank that waits for another */
} scene;

static void await_failure(comm_world *w, err *why) {
    while (comm_check(w, why) == ST_OK) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* As a command does it: what it found, the failure told to the others, the question. */
static void end(comm_world *w, void *ctx) {
    scene *s = ctx;
    int r = comm_world_rank(w);
    err why = {0};
    if (s->text[r]) {
        err_set(&why, ST_USAGE, "%s", s->text[r]);
        comm_fail(w, &why);
    } else
        await_failure(w, &why);
    s->speaks[r] = comm_speaks(w, &why);
    s->world[r] = comm_check(w, NULL);
}

static void expect(const char *a, const char *b, const char *c, bool x, bool y, bool z) {
    scene s = {.text = {a, b, c}};
    run_threads(RANKS, end, &s);
    assert_int_equal(s.speaks[0], x);
    assert_int_equal(s.speaks[1], y);
    assert_int_equal(s.speaks[2], z);
    for (int r = 0; r < RANKS; r++) assert_int_equal(s.world[r], ST_RANK);
}

static void test_all_found_the_same(void **state) {
    (void)state;
    expect("no such key", "no such key", "no such key", true, false, false);
}

static void test_one_failed(void **state) {
    (void)state;
    expect(NULL, "no such file", NULL, false, true, false);
    expect("no such file", NULL, NULL, true, false, false);
}

static void test_two_failed(void **state) {
    (void)state;
    expect("no such file", "no such file", NULL, true, false, false);
    expect(NULL, "disk full", "no memory", false, true, true);
}

/* A rank that cannot speak: another names it. */
static void lose_rank_0(comm_world *w, void *ctx) {
    scene *s = ctx;
    err why = {0};
    comm_set_timeout(w, s->patience_s);
    if (comm_world_rank(w) == 0) {
        await_failure(w, &why);
        return;
    }
    int all[RANKS] = {0, 1, 2};
    comm_barrier(comm_group(w, all, RANKS));
    CHECK(comm_check(w, &why) == ST_RANK, "rank 0 is not missed");
    s->speaks[comm_world_rank(w)] = comm_speaks(w, &why);
}

static void test_one_is_gone(void **state) {
    (void)state;
    scene s = {.patience_s = 0.2};
    do { /* where another rank does not come to run in time, that one is missed */
        run_threads(RANKS, lose_rank_0, &s);
        s.patience_s *= 2;
    } while (s.patience_s < 10 && !s.speaks[1]);
    assert_false(s.speaks[0]);
    assert_true(s.speaks[1]);
    assert_false(s.speaks[2]);
}

/* The last words on a host that has only the first two of the ranks. */
static void expect_last_words(status first, status second, status want) {
    board *b = xcalloc(1, board_bytes(RANKS));
    const status ended[] = {first, second};
    for (int r = 0; r < 2; r++) {
        err why = {0};
        board_enter(b, r, RANKS);
        err_set(&why, ended[r], "it ends");
        voice_mark(b, r, &why);
    }
    for (int r = 0; r < RANKS; r++) board_leave(b, r);
    assert_int_equal(voice_last_words(b, 0), want);
    free(b);
}

static void test_other_hosts(void **state) {
    (void)state;
    expect_last_words(ST_FORMAT, ST_FORMAT, ST_FORMAT);
    expect_last_words(ST_FORMAT, ST_RANK, ST_RANK);
}

static void test_alone(void **state) {
    (void)state;
    comm_world *w = comm_open_self();
    err why = {0};
    (void)!err_set(&why, ST_USAGE, "no such key");
    assert_true(comm_speaks(w, &why));
    comm_close(w);
    assert_true(comm_speaks(NULL, &why));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_found_the_same), cmocka_unit_test(test_one_failed),
        cmocka_unit_test(test_two_failed),         cmocka_unit_test(test_one_is_gone),
        cmocka_unit_test(test_other_hosts),        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
