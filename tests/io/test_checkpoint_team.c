/* Several ranks, here threads, write one checkpoint: the files of one rank alone, or a sentence
 * from each and nothing harmed. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file_fault.h"
#include "io/checkpoint/checkpoint_team.h"
#include "io/hf/hf_part.h"
#include "io/store_test.h"

enum { MOST_RANKS = 4 };

typedef struct rank_job {
    const char *run;
    int64_t step;
    checkpoint_team team;
    held_lab lab;
    status result;
    err why;
} rank_job;

typedef struct tensor_lists {
    st_tensor *model, *state;
    held_array masters, states[2];
} tensor_lists;

static tensor_lists declare(arena *a, const held_lab *l) {
    int n = param_count(l->s);
    tensor_lists t = {
        .model = hf_declare(a, l->s, "", DT_BF16, HF_FILES),
        .state = ARENA_ARRAY(a, st_tensor, 2 * n),
        .masters = held_masters(l->s),
        .states = {held_states(l->s, l->state[0], DT_F32), held_states(l->s, l->state[1], DT_F32)}};
    memcpy(t.state, hf_declare(a, l->s, "m.", DT_F32, HF_MEMORY), sizeof *t.state * (size_t)n);
    memcpy(t.state + n, hf_declare(a, l->s, "v.", DT_F32, HF_MEMORY), sizeof *t.state * (size_t)n);
    return t;
}

static const char MODEL[] = "model.safetensors", STATE[] = "state/optimizer.safetensors";

static status write_both(const tensor_lists *t, const char *model, const char *state, err *e) {
    TRY(hf_write_part(model, t->model, &t->masters, 1, HF_FILES, e));
    return hf_write_part(state, t->state, t->states, 2, HF_MEMORY, e);
}

static status fill(checkpoint_writer *w, const tensor_lists *t, int n, err *e) {
    TRY(checkpoint_writer_create_tensors(w, MODEL, t->model, n, e));
    TRY(checkpoint_writer_create_tensors(w, STATE, t->state, 2 * n, e));
    TRY(checkpoint_writer_call_team(w, e));
    TRY(checkpoint_writer_add_blob(w, "config.json", "{}", 2, e));
    TRY(write_both(t, checkpoint_writer_path(w, MODEL), checkpoint_writer_path(w, STATE), e));
    return checkpoint_writer_await_team(w, e);
}

static status save_first(rank_job *j, arena *a, err *e) {
    checkpoint_writer *w;
    tensor_lists t = declare(a, &j->lab);
    TRY(checkpoint_writer_begin_team(&w, j->run, j->step, 0, &j->team, e));
    status st = fill(w, &t, param_count(j->lab.s), e);
    if (st == ST_OK) return checkpoint_writer_commit(w, e);
    checkpoint_writer_abort(w);
    return st;
}

static status save_other(rank_job *j, arena *a, err *e) {
    checkpoint_part *p;
    tensor_lists t = declare(a, &j->lab);
    TRY(checkpoint_part_begin(&p, j->run, j->step, &j->team, e));
    status st = write_both(&t, checkpoint_part_path(p, MODEL), checkpoint_part_path(p, STATE), e);
    return checkpoint_part_end(p, st, e);
}

static void *save(void *arg) {
    rank_job *j = arg;
    arena *a = arena_new("rank");
    j->why = (err){0};
    j->result = j->team.rank ? save_other(j, a, &j->why) : save_first(j, a, &j->why);
    arena_free(a);
    return NULL;
}

/* ---- ranks ---- */

typedef struct crew {
    int n;
    held_lab whole;
    rank_job job[MOST_RANKS];
} crew;

static crew crew_open(test_dir *d, const char *kind, int n, int zero) {
    crew c = {.n = n, .whole = held_lab_open(kind, DT_BF16, NULL, NULL)};
    held_lab_fill(&c.whole);
    for (int r = 0; r < n; r++) {
        param_sharding how = {.shards = n, .rank = r, .zero = zero, .bucket_elems = 3000};
        c.job[r] = (rank_job){.run = d->path,
                              .team = {.rank = r, .ranks = n, .limit_s = 100},
                              .lab = held_lab_open(kind, DT_BF16, NULL, &how)};
        held_lab_copy(&c.job[r].lab, &c.whole);
    }
    return c;
}

static void crew_close(crew *c) {
    for (int r = 0; r < c->n; r++) held_lab_close(&c->job[r].lab);
    held_lab_close(&c->whole);
}

static void crew_save(crew *c, int64_t step, uint64_t attempt) {
    pthread_t thread[MOST_RANKS];
    for (int r = c->n - 1; r >= 0; r--) {
        c->job[r].step = step;
        c->job[r].team.attempt = attempt;
        assert_int_equal(pthread_create(&thread[r], NULL, save, &c->job[r]), 0);
    }
    for (int r = 0; r < c->n; r++) pthread_join(thread[r], NULL);
}

static void save_alone(test_dir *d, const held_lab *whole, int64_t step) {
    rank_job j = {.run = d->path, .step = step, .team = {.ranks = 1}, .lab = *whole};
    save(&j);
    assert_ok(j.result, j.why);
}

static void same_file(test_dir *d, int64_t a, int64_t b, const char *name) {
    char *x, *y;
    size_t n, m;
    err e;
    assert_ok(
        file_read_all(path_join(d->mem, checkpoint_path(d->mem, d->path, a), name), &x, &n, &e), e);
    assert_ok(
        file_read_all(path_join(d->mem, checkpoint_path(d->mem, d->path, b), name), &y, &m, &e), e);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* Names in RUN/checkpoints that begin with a dot. */
static int leftovers(test_dir *d) {
    char **names;
    int n;
    err e;
    assert_ok(checkpoint_list_leftovers(d->mem, d->path, &names, &n, &e), e);
    return n;
}

static void expect_good(test_dir *d, int64_t step) {
    checkpoint_kind kind;
    err e;
    assert_ok(checkpoint_verify(checkpoint_path(d->mem, d->path, step), &kind, &e), e);
    assert_int_equal(kind, CHECKPOINT_RESUMABLE);
}

static bool stands(test_dir *d, int64_t step) {
    return file_exists(checkpoint_path(d->mem, d->path, step));
}

static void clean(test_dir *d) {
    err e;
    assert_ok(checkpoint_clean(d->path, &e), e);
    assert_int_equal(leftovers(d), 0);
}

/* ---- tests ---- */

static void test_files_of_one_rank(void **state) {
    test_dir *d = *state;
    static const char *const kinds[] = {"llama", "gpt2", "gpt_neox"};
    for (int k = 0; k < 3; k++) {
        crew c = crew_open(d, kinds[k], 2 + k, 1 + k);
        save_alone(d, &c.whole, 1);
        crew_save(&c, 2, 7);
        for (int r = 0; r < c.n; r++) assert_ok(c.job[r].result, c.job[r].why);
        expect_good(d, 2);
        static const char *const same[] = {MODEL, STATE, "config.json"};
        for (int i = 0; i < 3; i++) same_file(d, 1, 2, same[i]);
        crew_save(&c, 2, 8); /* in its place */
        for (int r = 0; r < c.n; r++) assert_ok(c.job[r].result, c.job[r].why);
        expect_good(d, 2);
        assert_int_equal(leftovers(d), 0);
        char **names;
        int n;
        err e;
        assert_ok(file_list_dir(d->mem, checkpoint_path(d->mem, d->path, 2), &names, &n, &e), e);
        assert_int_equal(n, 3); /* no marks: config.json, model.safetensors, state */
        crew_close(&c);
    }
}

/* The rank alone, with the others missing. */
static err wait_in_vain(crew *c, int rank, uint64_t attempt) {
    rank_job *j = &c->job[rank];
    j->step = 2;
    j->team.attempt = attempt;
    save(j);
    assert_int_equal(j->result, ST_RANK);
    return j->why;
}

static bool always(void *ctx) {
    (void)ctx;
    return true;
}

static void test_missing_ranks(void **state) {
    test_dir *d = *state;
    crew c = crew_open(d, "llama", 2, 2);
    save_alone(d, &c.whole, 1);
    for (int r = 0; r < 2; r++) c.job[r].team.limit_s = 0.05;
    err e = wait_in_vain(&c, 0, 1);
    assert_non_null(strstr(e.message, "in vain for rank 1 to write its part of"));
    assert_non_null(strstr(e.message, "step-2"));
    assert_non_null(strstr(e.hint, "one file system"));
    expect_good(d, 1);
    assert_false(stands(d, 2));
    clean(d);
    e = wait_in_vain(&c, 1, 2);
    assert_non_null(strstr(e.message, "in vain for rank 0 to begin checkpoint"));
    /* a rank that is known to be gone is not waited for */
    for (int r = 0; r < 2; r++) c.job[r].team.limit_s = 1000, c.job[r].team.failed = always;
    for (int r = 0; r < 2; r++)
        assert_non_null(strstr(wait_in_vain(&c, r, 3 + (uint64_t)r).message, "a rank is gone"));
    clean(d);
    expect_good(d, 1);
    crew_close(&c);
}

/* Rank 1 began and is heard of no more; rank 2 hears of it from rank 0. */
static void test_death_in_the_middle(void **state) {
    test_dir *d = *state;
    crew c = crew_open(d, "llama", 3, 1);
    save_alone(d, &c.whole, 1);
    pthread_t first, last;
    for (int r = 0; r < 3; r++) c.job[r].step = 2, c.job[r].team.attempt = 5;
    c.job[0].team.limit_s = 0.2;
    pthread_create(&first, NULL, save, &c.job[0]);
    pthread_create(&last, NULL, save, &c.job[2]);
    pthread_join(first, NULL);
    pthread_join(last, NULL);
    assert_int_equal(c.job[0].result, ST_RANK);
    assert_int_equal(c.job[2].result, ST_FAILED);
    assert_non_null(strstr(c.job[2].why.message, "rank 0 has given up"));
    expect_good(d, 1);
    clean(d);
    crew_close(&c);
}

/* What goes wrong on another rank is said by rank 0. */
static void test_complaint(void **state) {
    test_dir *d = *state;
    crew c = crew_open(d, "llama", 2, 3);
    rank_job *j = &c.job[1];
    j->step = 2;
    checkpoint_part *p;
    pthread_t first;
    c.job[0].step = 2;
    pthread_create(&first, NULL, save, &c.job[0]);
    assert_ok(checkpoint_part_begin(&p, d->path, 2, &j->team, &j->why), j->why);
    err_set(&j->why, ST_FAILED, "the disk is made of cheese");
    assert_int_equal(checkpoint_part_end(p, ST_FAILED, &j->why), ST_FAILED);
    pthread_join(first, NULL);
    assert_int_equal(c.job[0].result, ST_FAILED);
    assert_non_null(strstr(c.job[0].why.message, "rank 1 could not write its part: the disk is"));
    assert_false(stands(d, 2));
    clean(d);
    crew_close(&c);
}

/* What a crashed attempt left does not stand in the way, and is not taken for one's own. */
static void test_stale_folder(void **state) {
    test_dir *d = *state;
    crew c = crew_open(d, "llama", 2, 1);
    err e;
    assert_ok(
        file_make_dirs(
            path_join(d->mem, d->path, "checkpoints/.tmp-step-2-0000000000000001/.begun"), &e),
        e);
    crew_save(&c, 2, 2);
    for (int r = 0; r < 2; r++) assert_ok(c.job[r].result, c.job[r].why);
    expect_good(d, 2);
    assert_int_equal(leftovers(d), 1);
    clean(d);
    crew_close(&c);
}

/* Every operation of both ranks fails once: no rank waits for its limit, and step 1 is good. */
static void test_each_failing_operation(void **state) {
    test_dir *d = *state;
    static const char *const kinds[] = {"create", "write", "fsync", "rename", "mkdir", "remove"};
    crew c = crew_open(d, "llama", 2, 2);
    save_alone(d, &c.whole, 1);
    uint64_t attempt = 100;
    for (int k = 0; k < ARRAY_LEN(kinds); k++)
        for (int n = 1;; n++) {
            char spec[32];
            snprintf(spec, sizeof spec, "%s:%d", kinds[k], n);
            assert_true(file_fault_arm(spec));
            int64_t began = clock_now_ns();
            crew_save(&c, 2, attempt++);
            bool struck = file_fault_struck();
            file_fault_arm(NULL);
            assert_true(clock_since_s(began) < 50);
            bool first = c.job[0].result == ST_OK, other = c.job[1].result == ST_OK;
            assert_true(!first || (other && stands(d, 2)));
            /* the last sync fails after the folder has got its name */
            assert_true(first || !other || strcmp(kinds[k], "fsync") == 0);
            expect_good(d, 1);
            if (stands(d, 2)) expect_good(d, 2);
            clean(d);
            err e;
            assert_ok(file_remove_tree(checkpoint_path(d->mem, d->path, 2), &e), e);
            if (!struck) {
                assert_true(first && n > 1);
                break;
            }
        }
    crew_close(&c);
}

/* Both ranks die, at each operation. */
static void test_killed(void **state) {
    test_dir *d = *state;
    crew c = crew_open(d, "llama", 2, 3);
    save_alone(d, &c.whole, 1);
    for (int n = 1;; n++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            char spec[32];
            snprintf(spec, sizeof spec, "kill:%d", n);
            if (!file_fault_arm(spec)) _exit(2);
            crew_save(&c, 2, 9);
            _exit(c.job[0].result == ST_OK && c.job[1].result == ST_OK ? 0 : 1);
        }
        int how = 0;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        clean(d);
        expect_good(d, 1);
        if (stands(d, 2)) expect_good(d, 2);
        err e;
        assert_ok(file_remove_tree(checkpoint_path(d->mem, d->path, 2), &e), e);
        if (WIFSIGNALED(how)) continue;
        assert_int_equal(WEXITSTATUS(how), 0);
        assert_true(n > 20);
        break;
    }
    crew_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_files_of_one_rank),
        IO_TEST(test_missing_ranks),
        IO_TEST(test_death_in_the_middle),
        IO_TEST(test_complaint),
        IO_TEST(test_stale_folder),
        IO_TEST(test_each_failing_operation),
        IO_TEST(test_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
