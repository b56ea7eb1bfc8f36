/* Shared by the tests of the run store: a scratch folder and small files in it. */
#ifndef TESTS_RUN_TEST_H
#define TESTS_RUN_TEST_H
#include "test.h"

#include "base/arena.h"
#include "base/file.h"

#define OK(expr)                                                                                   \
    do {                                                                                           \
        status ok_status_ = (expr);                                                                \
        if (ok_status_ != ST_OK) fail_msg("%s: status %d", #expr, ok_status_);                     \
    } while (0)

/* *state becomes the path of a new folder. */
static inline int make_scratch(void **state) {
    char name[] = "/tmp/athanor-test-XXXXXX";
    if (!mkdtemp(name)) return -1;
    *state = xstrdup(name);
    return 0;
}

static inline int remove_scratch(void **state) {
    status st = file_remove_tree(*state, NULL);
    free(*state);
    return st == ST_OK ? 0 : -1;
}

static inline void put_file(const char *dir, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(file_write_atomic(path, text, strlen(text), NULL));
}

/* The text of a file; free() it. */
static inline char *get_file(const char *dir, const char *name) {
    char path[512], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(file_read_all(path, &text, &len, NULL));
    return text;
}

#endif
