/* Shared by the tests of io: a fresh folder for each test, and short ways to make files in it. */
#ifndef TESTS_IO_IO_TEST_H
#define TESTS_IO_IO_TEST_H

#include "base/file.h"

typedef struct test_dir {
    arena *mem;
    char *path;
} test_dir;

#define assert_ok(call, e)                                                                         \
    do {                                                                                           \
        if ((call) != ST_OK) fail_msg("%s failed: %s", #call, (e).message);                        \
    } while (0)

#define IO_TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_make, test_dir_drop)

static inline int test_dir_make(void **state) {
    arena *mem = arena_new("test");
    test_dir *d = ARENA_NEW(mem, test_dir);
    const char *root = getenv("TMPDIR");
    if (!root) root = file_is_dir("/dev/shm") ? "/dev/shm" : "/tmp"; /* fsync is quick in memory */
    *d = (test_dir){mem, arena_printf(mem, "%s/athanor-io-XXXXXX", root)};
    *state = d;
    return mkdtemp(d->path) ? 0 : -1;
}

static inline int test_dir_drop(void **state) {
    test_dir *d = *state;
    status st = file_remove_tree(d->path, NULL);
    arena_free(d->mem);
    return st == ST_OK ? 0 : -1;
}

static inline void test_write(test_dir *d, const char *name, const char *text) {
    err e;
    assert_ok(file_write_atomic(path_join(d->mem, d->path, name), text, strlen(text), &e), e);
}

#endif
