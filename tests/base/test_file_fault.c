/* Injected faults: which operation each spec strikes, and allocations that fail. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/file_fault.h"

/* A file of its own for each test. */
static int make_file(void **state) {
    char *path = strdup("/tmp/athanor-fault-XXXXXX");
    int fd = mkstemp(path);
    *state = path;
    return fd >= 0 && write(fd, "text", 4) == 4 ? close(fd) : -1;
}

/* With the unfinished ones beside it, of children that were killed while they wrote. */
static int drop_file(void **state) {
    glob_t left;
    char pattern[64];
    snprintf(pattern, sizeof pattern, "%s.tmp-*", (char *)*state);
    if (glob(pattern, 0, NULL, &left) == 0) {
        for (size_t i = 0; i < left.gl_pathc; i++) unlink(left.gl_pathv[i]);
        globfree(&left);
    }
    unlink(*state);
    free(*state);
    file_fault_arm(NULL);
    return 0;
}

static void test_only_the_nth_fails(void **state) {
    const char *path = *state;
    char *data, c;
    size_t len;
    err e = {0};
    assert_true(file_fault_arm("read:2"));
    int fd = open(path, O_RDONLY);
    assert_int_equal(file_sys_read(fd, &c, 1), 1);
    assert_false(file_fault_struck());
    assert_int_equal(file_sys_pread(fd, &c, 1, 0), -1);
    assert_int_equal(errno, EIO);
    assert_true(file_fault_struck());
    assert_int_equal(file_sys_read(fd, &c, 1), 1);
    close(fd);
    assert_int_equal(file_read_all(path, &data, &len, &e), ST_OK);
    free(data);

    assert_true(file_fault_arm("write:1")); /* reads are not counted as writes */
    assert_int_equal(file_read_all(path, &data, &len, &e), ST_OK);
    free(data);
    assert_int_equal(file_write_atomic(path, "other", 5, &e), ST_FAILED);
    assert_non_null(strstr(e.message, "No space left"));
    assert_int_equal(file_read_all(path, &data, &len, &e), ST_OK);
    assert_string_equal(data, "text");
    free(data);
}

static void test_mappings_and_hashes_are_reads(void **state) {
    const char *path = *state;
    file_map m;
    uint64_t hash;
    err e = {0};
    assert_true(file_fault_arm("read:1"));
    assert_int_equal(file_map_open(&m, path, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "cannot map"));
    assert_non_null(strstr(e.message, "Input/output error"));
    assert_int_equal(file_map_open(&m, path, &e), ST_OK);
    assert_memory_equal(m.data, "text", 4);
    file_map_close(&m);
    for (int n = 1; n <= 2; n++) { /* the text and the end of the file */
        assert_true(file_fault_arm(n == 1 ? "read:1" : "read:2"));
        assert_int_equal(hash_file(path, &hash, &e), ST_FORMAT);
    }
}

static int end_of(void (*child)(const char *path), const char *path, const char *spec) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr) || !file_fault_arm(spec)) _exit(99);
        child(path);
        _exit(0);
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFSIGNALED(how) ? -WTERMSIG(how) : WEXITSTATUS(how);
}

static void allocate(const char *path) {
    (void)path;
    free(xmalloc(10)); /* 1 */
    free(xcalloc(2, 5));
    free(xrealloc(NULL, 8));
    free(xstrdup("four"));        /* 4 */
    arena *a = arena_new("five"); /* itself, its tag, its first block */
    arena_alloc(a, 100);
    arena_alloc(a, 100000); /* 8: a block of its own */
    arena_free(a);
}

static void test_each_allocation_fails(void **state) {
    for (int n = 1; n <= 9; n++) {
        char spec[16];
        snprintf(spec, sizeof spec, "alloc:%d", n);
        assert_int_equal(end_of(allocate, *state, spec), n <= 8 ? ST_MEMORY : 0);
    }
}

static void change(const char *path) {
    char *data;
    size_t len;
    err e;
    if (file_read_all(path, &data, &len, &e) != ST_OK) _exit(1); /* not counted */
    if (file_write_atomic(path, "other", 5, &e) != ST_OK) _exit(1);
    free(data);
}

static void test_kill_counts_all_changes(void **state) {
    int n = 1;
    for (int how = -9; how == -9; n++) {
        char spec[16];
        snprintf(spec, sizeof spec, "kill:%d", n);
        how = end_of(change, *state, spec);
        assert_true(how == -9 || how == 0);
    }
    assert_int_equal(n, 7); /* create, write, fsync, rename, fsync of the folder; then none */
    char *data;
    size_t len;
    err e = {0};
    assert_int_equal(file_read_all(*state, &data, &len, &e), ST_OK);
    assert_string_equal(data, "other");
    free(data);
}

static void test_specs(void **state) {
    (void)state;
    static const char *const bad[] = {"",         "write",    "write:",  "write:0", "count:1",
                                      "write:-1", "write:2x", "wrote:2", ":2",      "alloc"};
    for (int i = 0; i < ARRAY_LEN(bad); i++) assert_false(file_fault_arm(bad[i]));
    assert_false(file_fault_struck());
    assert_true(file_fault_arm(NULL));
}

#define FAULT_TEST(f) cmocka_unit_test_setup_teardown(f, make_file, drop_file)

int main(void) {
    const struct CMUnitTest tests[] = {
        FAULT_TEST(test_only_the_nth_fails),    FAULT_TEST(test_mappings_and_hashes_are_reads),
        FAULT_TEST(test_each_allocation_fails), FAULT_TEST(test_kill_counts_all_changes),
        cmocka_unit_test(test_specs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
