/* The metrics file: appending, torn lines, the cut on resume, full disk, bad lines, summaries. */
#include "run/run_test.h"

#include "base/file_fault.h"
#include "run/folder.h"
#include "run/metrics.h"
#include "run/summary.h"

#define STEP(n) "{\"event\": \"step\", \"step\": " #n ", \"loss\": " #n ".5}\n"
#define START "{\"event\": \"start\", \"params\": 7}\n"
#define VALID(n) "{\"event\": \"valid\", \"step\": " #n ", \"val_loss\": 2.5, \"val_bpb\": 1.25}\n"
#define CHECKPOINT(n) "{\"event\": \"checkpoint\", \"step\": " #n "}\n"
#define END(n) "{\"event\": \"end\", \"steps\": " #n "}\n"

static void expect_file(const char *dir, const char *want) {
    char *text = get_file(dir, "metrics.jsonl");
    assert_string_equal(text, want);
    free(text);
}

static void write_step(metrics_log *m, int step) {
    json_t *event = json_pack("{s:s, s:i}", "event", "step", "step", step);
    OK(metrics_write(m, event, NULL));
    json_decref(event);
}

static status count_event(void *user, const json_t *event, err *e) {
    (void)e;
    assert_true(json_is_object(event));
    ++*(int *)user;
    return ST_OK;
}

static int count_events(const char *dir, metrics_extent extent) {
    int n = 0;
    OK(metrics_read(dir, extent, count_event, &n, NULL));
    return n;
}

static void test_append(void **state) {
    metrics_log *m;
    OK(metrics_open(&m, *state, NULL));
    write_step(m, 1);
    metrics_close(m);
    OK(metrics_open(&m, *state, NULL));
    write_step(m, 2);
    metrics_close(m);
    expect_file(*state, "{\"event\": \"step\", \"step\": 1}\n{\"event\": \"step\", \"step\": 2}\n");
}

static void test_open_removes_torn_line(void **state) {
    metrics_log *m;
    put_file(*state, "metrics.jsonl", STEP(1) "{\"event\": \"st");
    assert_int_equal(count_events(*state, METRICS_ALL), 1);
    OK(metrics_open(&m, *state, NULL));
    write_step(m, 2);
    metrics_close(m);
    expect_file(*state, STEP(1) "{\"event\": \"step\", \"step\": 2}\n");
}

static void test_full_disk_leaves_whole_lines(void **state) {
    metrics_log *m;
    err e = {0};
    OK(metrics_open(&m, *state, NULL));
    write_step(m, 1);
    assert_true(file_fault_arm("write:1"));
    json_t *event = json_pack("{s:s}", "event", "end");
    assert_int_equal(metrics_write(m, event, &e), ST_FAILED);
    file_fault_arm(NULL);
    assert_non_null(strstr(e.message, "metrics.jsonl"));
    assert_non_null(strstr(e.message, "space"));
    OK(metrics_write(m, event, NULL));
    json_decref(event);
    metrics_close(m);
    expect_file(*state, "{\"event\": \"step\", \"step\": 1}\n{\"event\": \"end\"}\n");
}

static void expect_cut(const char *dir, const char *text, int step, const char *want) {
    put_file(dir, "metrics.jsonl", text);
    OK(metrics_truncate_after(dir, step, NULL));
    expect_file(dir, want);
}

static void test_cut(void **state) {
    const char *dir = *state;
    expect_cut(dir, START STEP(1) STEP(2) VALID(2) STEP(3), 2, START STEP(1) STEP(2) VALID(2));
    expect_cut(dir, START STEP(1) STEP(2), 0, START);
    expect_cut(dir, START STEP(1) STEP(2), 2, START STEP(1) STEP(2));
    expect_cut(dir, START STEP(1) STEP(2) END(2), 5, START STEP(1) STEP(2) END(2));
    expect_cut(dir, START STEP(1) STEP(2) END(2), 1, START STEP(1));
    expect_cut(dir, STEP(1) STEP(2) "{\"event\": \"step\", \"step\": 3", 2, STEP(1) STEP(2));
    expect_cut(dir, "", 3, "");
    expect_cut(dir, "{\"ev", 3, "");
}

/* A checkpoint that was written while training went on stands behind later steps, and stays. */
static void test_cut_keeps_late_lines(void **state) {
    expect_cut(*state, START STEP(1) STEP(2) STEP(3) CHECKPOINT(2) STEP(4) START, 2,
               START STEP(1) STEP(2) CHECKPOINT(2) START);
    expect_cut(*state, STEP(1) STEP(2) CHECKPOINT(2) STEP(3), 2, STEP(1) STEP(2) CHECKPOINT(2));
}

static void test_cut_fails_whole(void **state) {
    static const char TEXT[] = STEP(1) STEP(2) CHECKPOINT(1);
    put_file(*state, "metrics.jsonl", TEXT);
    assert_true(file_fault_arm("rename:1"));
    assert_int_equal(metrics_truncate_after(*state, 1, NULL), ST_FAILED);
    file_fault_arm(NULL);
    expect_file(*state, TEXT);
}

static void test_absent_file(void **state) {
    OK(metrics_truncate_after(*state, 3, NULL));
    assert_int_equal(count_events(*state, METRICS_ALL), 0);
}

static void test_last_step_only(void **state) {
    put_file(*state, "metrics.jsonl", START STEP(1) VALID(1) STEP(2) STEP(3) END(3));
    assert_int_equal(count_events(*state, METRICS_ALL), 6);
    assert_int_equal(count_events(*state, METRICS_LAST_STEP), 4);
}

static void test_bad_line_is_named(void **state) {
    err e = {0};
    int n = 0;
    put_file(*state, "metrics.jsonl", START "nonsense\n" STEP(1));
    assert_int_equal(metrics_read(*state, METRICS_ALL, count_event, &n, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "line 2"));
    assert_non_null(strstr(e.where, "metrics.jsonl:2"));
    assert_int_equal(n, 1);
}

static run_summary summarize(arena *a, const char *dir, const char *text) {
    run_summary s;
    put_file(dir, "metrics.jsonl", text);
    OK(run_summarize(a, dir, &s, NULL));
    return s;
}

static void test_summary(void **state) {
    arena *a = arena_new("test");
    put_file(*state, "config.json", "{\"model\": {}, \"train\": {\"steps\": 3}}");
    run_summary s = summarize(a, *state, START STEP(1) VALID(1) STEP(2));
    assert_string_equal(s.state, "stopped");
    assert_int_equal(s.params, 7);
    assert_int_equal(s.steps, 2);
    assert_true(s.last_loss == 2.5 && s.best_val_loss == 2.5 && s.val_bpb == 1.25);
    assert_int_equal(s.best_val_step, 1);
    assert_string_equal(summarize(a, *state, "").state, "new");
    assert_string_equal(summarize(a, *state, START STEP(1) STEP(2) STEP(3) END(3)).state,
                        "finished");
    /* Steps without an event of their own (train.log_every), and a fork that has nothing to do. */
    assert_int_equal(summarize(a, *state, START STEP(1) CHECKPOINT(2)).steps, 2);
    s = summarize(a, *state, START STEP(1) END(2));
    assert_int_equal(s.steps, 2);
    assert_string_equal(s.state, "stopped");
    s = summarize(a, *state, "{\"event\": \"start\", \"params\": 7, \"step\": 3}\n" END(3));
    assert_string_equal(s.state, "finished");
    s = summarize(a, *state, START STEP(1) VALID(1) STEP(2));
    static const char ALARM[] = START STEP(1) "{\"event\": \"alarm\", \"step\": 1}\n" END(1);
    static const char RECOVERED[] = START STEP(1) "{\"event\": \"alarm\", \"step\": 1}\n" STEP(2);
    assert_string_equal(summarize(a, *state, ALARM).state, "failed");
    assert_string_equal(summarize(a, *state, RECOVERED).state, "stopped");
    run_folder *lock;
    OK(run_open(&lock, *state, NULL));
    assert_string_equal(summarize(a, *state, START STEP(1)).state, "training");
    assert_string_equal(summarize(a, *state, START STEP(1) END(1)).state, "stopped");
    run_close(lock);
    json_t *object = run_summary_json(&s);
    assert_true(json_is_null(json_object_get(object, "peak_rss_bytes")));
    assert_int_equal(json_integer_value(json_object_get(object, "planned_steps")), 3);
    json_decref(object);
    arena_free(a);
}

#define ALARM(n, kind, more)                                                                       \
    "{\"event\": \"alarm\", \"step\": " #n ", \"kind\": \"" kind "\"" more "}\n"

static void expect_state(const char *dir, const char *metrics, const char *want) {
    arena *a = arena_new("test");
    run_summary s = summarize(a, dir, metrics);
    if (strcmp(s.state, want) != 0) fail_msg("%s, not %s, after\n%s", s.state, want, metrics);
    arena_free(a);
}

/* Which alarms are the end of a run. */
static void test_alarms_and_the_state(void **state) {
    put_file(*state, "config.json", "{\"model\": {}, \"train\": {\"steps\": 3}}");
    expect_state(*state, START STEP(1) ALARM(2, "nonfinite", ""), "failed");
    expect_state(*state, START STEP(1) ALARM(1, "nonfinite", "") STEP(2), "stopped");
    expect_state(*state, START STEP(1) ALARM(2, "spike", ", \"action\": \"log\""), "stopped");
    expect_state(*state, START STEP(1) ALARM(2, "spike", ", \"action\": \"skip\"") STEP(2) STEP(3),
                 "finished");
    expect_state(*state, START STEP(1) ALARM(2, "spike", ", \"action\": \"rewind\""), "failed");
    expect_state(*state, START STEP(1) ALARM(1, "rewind", ""), "stopped");
    expect_state(*state, START STEP(1) ALARM(1, "save_failed", ""), "stopped");
    expect_state(*state, START STEP(2) ALARM(2, "early_stop", "") END(2), "finished");
    expect_state(*state, START STEP(1) ALARM(1, "early_stop", "") STEP(2) END(2), "stopped");
    /* of a run that ends after so many tokens, say, the events say how long it is */
    put_file(*state, "config.json",
             "{\"model\": {}, \"train\": {\"steps\": null, \"tokens\": 96}}");
    static const char OF_THREE[] = "{\"event\": \"start\", \"steps\": 3}\n" STEP(1) STEP(2) END(2);
    expect_state(*state, OF_THREE, "stopped");
    expect_state(*state, START STEP(1) STEP(2) END(2), "finished");
}

static void test_record(void **state) {
    json_t *record = json_object();
    put_file(*state, "metrics.jsonl",
             START "{\"event\": \"stage\", \"step\": 1, \"name\": \"a\"}\n" STEP(1)
                 ALARM(1, "epochs", "") STEP(2) ALARM(3, "spike", ""));
    OK(run_add_record(record, *state, NULL));
    const json_t *alarms = json_object_get(record, "alarms");
    assert_int_equal(json_array_size(json_object_get(record, "stages")), 1);
    assert_int_equal(json_array_size(alarms), 2);
    assert_string_equal(metrics_text(json_array_get(alarms, 1), "kind"), "spike");
    assert_string_equal(metrics_text(json_array_get(alarms, 1), "step"), "");
    json_decref(record);
}

#define T(f) cmocka_unit_test_setup_teardown(f, make_scratch, remove_scratch)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_append),      T(test_open_removes_torn_line), T(test_full_disk_leaves_whole_lines),
        T(test_cut),         T(test_cut_keeps_late_lines),   T(test_cut_fails_whole),
        T(test_absent_file), T(test_last_step_only),         T(test_bad_line_is_named),
        T(test_summary),     T(test_alarms_and_the_state),   T(test_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
