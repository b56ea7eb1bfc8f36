/* The run folder: lock, config file, new or resume, what --fresh removes and what it leaves. */
#include "run/run_test.h"

#include <sys/wait.h>

#include "base/file_fault.h"
#include "base/yaml.h"
#include "run/folder.h"

static config *make_config(const char *text) {
    json_t *root, *origins;
    config *c;
    OK(yaml_parse(&root, &origins, "t.yaml", text, strlen(text), NULL));
    OK(config_from_json(&c, root, origins, "t.yaml", NULL, 0, NULL));
    json_decref(root);
    json_decref(origins);
    return c;
}

static const char BASE[] = "model: {hidden_size: 64}\ntrain: {steps: 10, seed: 1}\n";

static run_folder *open_run(const char *path) {
    run_folder *r;
    OK(run_open(&r, path, NULL));
    return r;
}

static void test_lock_excludes(void **state) {
    err e = {0};
    char want[64];
    run_folder *first = open_run(*state), *second;
    assert_int_equal(run_open(&second, *state, &e), ST_FAILED);
    snprintf(want, sizeof want, "another athanor (pid %ld) is training in ", (long)getpid());
    assert_non_null(strstr(e.message, want));
    assert_non_null(strstr(e.message, *state));
    assert_true(run_is_locked(*state));
    run_close(first);
    assert_false(run_is_locked(*state));
    run_close(open_run(*state));
}

static void test_lock_ends_with_its_process(void **state) {
    pid_t child = fork();
    if (child == 0) {
        open_run(*state);
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    run_close(open_run(*state));
}

static void test_config_round_trip(void **state) {
    run_folder *r = open_run(*state);
    config *c = make_config(BASE);
    json_t *stored, *want = config_to_json(c);
    assert_false(run_is_run(*state));
    OK(run_write_config(r, c, NULL));
    assert_true(run_is_run(*state));
    OK(run_read_config(&stored, *state, NULL));
    assert_true(json_equal(stored, want));
    json_decref(stored);
    json_decref(want);
    config_free(c);
    run_close(r);
}

static void test_other_folders_are_no_runs(void **state) {
    err e = {0};
    json_t *value;
    assert_false(run_is_run(*state));
    assert_false(run_is_run("/nonexistent"));
    put_file(*state, "config.json", "{\"model_type\": \"llama\", \"hidden_size\": 64}");
    assert_false(run_is_run(*state));
    assert_int_equal(run_read_config(&value, *state, &e), ST_FORMAT);
    put_file(*state, "config.json", "{");
    assert_false(run_is_run(*state));
}

/* What a start over a run with BASE decides. */
static status prepare(const char *path, const char *text, bool fresh, run_start *start, err *e) {
    run_folder *r = open_run(path);
    config *base = make_config(BASE), *c = make_config(text);
    if (!run_is_run(path)) OK(run_write_config(r, base, NULL));
    status st = run_prepare(r, c, 0, fresh, start, e);
    config_free(base);
    config_free(c);
    run_close(r);
    return st;
}

static void test_new_and_resume(void **state) {
    run_start start = RUN_START_RESUME;
    config *c = make_config(BASE);
    run_folder *r = open_run(*state);
    OK(run_prepare(r, c, 0, false, &start, NULL));
    assert_int_equal(start, RUN_START_NEW);
    run_close(r);
    config_free(c);
    OK(prepare(*state, BASE, false, &start, NULL));
    assert_int_equal(start, RUN_START_RESUME);
    OK(prepare(*state, "model: {hidden_size: 64}\ntrain: {steps: 99, seed: 1}\n", false, &start,
               NULL));
    assert_int_equal(start, RUN_START_RESUME);
}

static void test_changed_keys_are_listed(void **state) {
    err e = {0};
    run_start start;
    assert_int_equal(prepare(*state,
                             "model: {hidden_size: 128}\n"
                             "train: {steps: 10, seed: 2}\n"
                             "data: {valid: shards/v}\n",
                             false, &start, &e),
                     ST_USAGE);
    assert_non_null(strstr(e.message, "train.seed was 1, is now 2"));
    assert_non_null(strstr(e.message, "model.hidden_size was 64, is now 128"));
    assert_non_null(strstr(e.message, "data.valid was null, is now shards/v"));
    assert_null(strstr(e.message, "train.steps"));
    assert_non_null(strstr(e.hint, "--fresh"));
    assert_non_null(strstr(e.hint, "--fork NEW"));
}

static void test_auto_accepts_what_it_became(void **state) {
    run_folder *r = open_run(*state);
    config *then = make_config("train: {steps: 1, precision: bf16}\n");
    config *now = make_config("train: {steps: 1}\n"), *other;
    run_start start;
    OK(run_write_config(r, then, NULL));
    OK(run_prepare(r, now, 0, false, &start, NULL));
    other = make_config("train: {steps: 1, precision: fp32}\n");
    assert_int_equal(run_prepare(r, other, 0, false, &start, NULL), ST_USAGE);
    config_free(then);
    config_free(now);
    config_free(other);
    run_close(r);
}

/* A run that has lost its config.json, with checkpoints of steps 3 and 5, of which the newer says nothing. */
static void lose_config(const char *dir, const char *ledger) {
    char path[512];
    snprintf(path, sizeof path, "%s/checkpoints/step-5", dir);
    OK(file_make_dirs(path, NULL));
    snprintf(path, sizeof path, "%s/checkpoints/step-3", dir);
    OK(file_make_dirs(path, NULL));
    put_file(dir, "checkpoints/step-3/athanor_ledger.json", ledger);
}

static status prepare_as_it_is(const char *path, const char *text, bool fresh, run_start *start,
                               err *e) {
    run_folder *r = open_run(path);
    config *c = make_config(text);
    err of_check = {0};
    status st = run_prepare(r, c, 0, fresh, start, e);
    assert_int_equal(run_check(path, c, 0, &of_check), st);
    config_free(c);
    run_close(r);
    return st;
}

static void test_lost_config_is_that_of_a_checkpoint(void **state) {
    err e = {0};
    run_start start = RUN_START_NEW;
    config *then;
    lose_config(*state, "{\"run\": {\"config\": {\"model\": {\"hidden_size\": 64}, "
                        "\"train\": {\"steps\": 10, \"seed\": 1}}}}");
    OK(prepare_as_it_is(*state, BASE, false, &start, &e));
    assert_int_equal(start, RUN_START_RESUME);
    static const char other[] = "model: {hidden_size: 64}\ntrain: {steps: 10, seed: 2}\n";
    assert_int_equal(prepare_as_it_is(*state, other, false, &start, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "train.seed was 1, is now 2"));
    assert_non_null(strstr(e.where, "/checkpoints"));
    OK(run_load_begun(&then, *state, &e));
    assert_int_equal(then->train.seed, 1);
    config_free(then);
    OK(prepare_as_it_is(*state, other, true, &start, &e));
    assert_int_equal(start, RUN_START_NEW);
    OK(prepare_as_it_is(*state, other, false, &start, &e)); /* nothing is left of the run */
    assert_int_equal(start, RUN_START_NEW);
}

static void test_config_that_nothing_says(void **state) {
    err e = {0};
    run_start start;
    lose_config(*state, "{\"run\": {\"config\": 1}}");
    assert_int_equal(prepare_as_it_is(*state, BASE, false, &start, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "has checkpoints, but neither a config.json nor"));
    assert_non_null(strstr(e.hint, "--fresh"));
}

static void test_fresh_leaves_the_users_files(void **state) {
    const char *dir = *state;
    char path[512];
    run_start start = RUN_START_RESUME;
    put_file(dir, "corpus.txt", "mine");
    put_file(dir, "metrics.jsonl", "{}\n");
    put_file(dir, "upload.log", "sent\n");
    static const char *const mine[] = {"samples", "traces", "checkpoints/exported"};
    for (int i = 0; i < ARRAY_LEN(mine); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, mine[i]);
        OK(file_make_dirs(path, NULL));
    }
    put_file(dir, "checkpoints/exported/model.safetensors", "mine");
    snprintf(path, sizeof path, "%s/checkpoints/step-1", dir);
    OK(file_make_dirs(path, NULL));
    OK(prepare(dir, "train: {steps: 10, seed: 2}\n", true, &start, NULL));
    assert_int_equal(start, RUN_START_NEW);
    assert_false(file_exists(path));
    assert_false(run_is_run(dir));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_false(file_exists(path));
    snprintf(path, sizeof path, "%s/upload.log", dir);
    assert_false(file_exists(path));
    snprintf(path, sizeof path, "%s/corpus.txt", dir);
    assert_true(file_exists(path));
    for (int i = 0; i < ARRAY_LEN(mine); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, mine[i]);
        assert_true(file_exists(path));
    }
    snprintf(path, sizeof path, "%s/checkpoints/exported/model.safetensors", dir);
    assert_true(file_exists(path));
}

static void test_strange_config_is_kept(void **state) {
    err e = {0};
    run_folder *r;
    char lock[512];
    put_file(*state, "config.json", "{\"model_type\": \"llama\"}");
    assert_int_equal(run_open(&r, *state, &e), ST_USAGE);
    snprintf(lock, sizeof lock, "%s/.lock", (const char *)*state);
    assert_false(file_exists(lock));
    char *text = get_file(*state, "config.json");
    assert_string_equal(text, "{\"model_type\": \"llama\"}");
    free(text);
}

/* A crash of the machine must not lose the folder's name: its parent is synced, also of a folder
 * that an earlier process made. */
static void test_the_folder_is_synced(void **state) {
    for (int there = 0; there < 2; there++) {
        err e = {0};
        run_folder *r;
        char path[512];
        snprintf(path, sizeof path, "%s/runs/a", (const char *)*state);
        assert_true(file_fault_arm("fsync:1"));
        assert_int_equal(run_open(&r, path, &e), ST_FAILED);
        assert_non_null(strstr(e.message, "cannot sync folder"));
        file_fault_arm(NULL);
        OK(run_open(&r, path, &e));
        run_close(r);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, make_scratch, remove_scratch)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_lock_excludes),
        T(test_lock_ends_with_its_process),
        T(test_config_round_trip),
        T(test_other_folders_are_no_runs),
        T(test_new_and_resume),
        T(test_changed_keys_are_listed),
        T(test_auto_accepts_what_it_became),
        T(test_lost_config_is_that_of_a_checkpoint),
        T(test_config_that_nothing_says),
        T(test_lost_config_is_that_of_a_checkpoint),
        T(test_config_that_nothing_says),
        T(test_fresh_leaves_the_users_files),
        T(test_strange_config_is_kept),
        T(test_the_folder_is_synced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
