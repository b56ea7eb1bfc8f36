/* The growing string, and the log lines built on the same formats. */
#include "test.h"

#include "base/log.h"
#include "base/strbuf.h"

static void test_empty(void **state) {
    (void)state;
    strbuf b = {0};
    assert_string_equal(strbuf_cstr(&b), "");
    strbuf_clear(&b);
    strbuf_append(&b, NULL, 0);
    assert_string_equal(strbuf_cstr(&b), "");
    strbuf_free(&b);
    strbuf_free(&b);
}

static void test_grows(void **state) {
    (void)state;
    strbuf b = {0};
    for (int i = 0; i < 10000; i++) {
        strbuf_putc(&b, (char)('a' + i % 26));
        assert_int_equal(b.len, i + 1);
        assert_int_equal(b.data[b.len], 0);
    }
    for (int i = 0; i < 10000; i++) assert_int_equal(b.data[i], 'a' + i % 26);
    strbuf_clear(&b);
    assert_int_equal(b.len, 0);
    strbuf_append(&b, "x\0y", 3);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "x\0y", 4);
    strbuf_free(&b);
    assert_null(b.data);
}

static void test_printf(void **state) {
    (void)state;
    strbuf b = {0};
    strbuf_puts(&b, "n=");
    strbuf_printf(&b, "%d,%s", 42, "z");
    assert_string_equal(b.data, "n=42,z");
    strbuf_printf(&b, "%05000d", 7);
    assert_int_equal(b.len, 5006);
    assert_int_equal(b.data[5005], '7');
    strbuf_free(&b);
}

/* Runs with standard error in a pipe and compares what arrived. */
static void test_log(void **state) {
    (void)state;
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    log_info("step %d", 1);
    log_warn("disk %s", "slow");
    log_set_quiet(true);
    log_info("hidden");
    log_warn("shown");
    log_set_quiet(false);
    dup2(saved, STDERR_FILENO);
    close(ends[1]);
    close(saved);
    char text[512] = {0};
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_string_equal(text, "athanor: step 1\nathanor: warning: disk slow\n"
                              "athanor: warning: shown\n");
}

/* What a terminal would obey. */
static void test_visible(void **state) {
    (void)state;
    strbuf b = {0};
    static const char text[] = "a\x1b[31m\n\tb\r\x7f\xc2\x9b\xc2\xa0\xe4\xbd\xa0";
    strbuf_append_visible(&b, text, sizeof text - 1);
    assert_string_equal(strbuf_cstr(&b), "a^[[31m\n\tb^M^?\\x9b\xc2\xa0\xe4\xbd\xa0");
    strbuf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),   cmocka_unit_test(test_grows), cmocka_unit_test(test_printf),
        cmocka_unit_test(test_visible), cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
