/* Arenas and heap wrappers: zeroed, aligned, disjoint, reusable; running out ends with status 4. */
#include "test.h"

#include <sys/wait.h>

#include "base/arena.h"

static void test_zeroed_aligned_disjoint(void **state) {
    (void)state;
    static const size_t SIZES[] = {0,    1,    3,     15,    16,    17,    100,
                                   4095, 4096, 65535, 65536, 70000, 300000};
    arena *a = arena_new("test");
    uint8_t *p[200];
    size_t size[200];
    for (int i = 0; i < 200; i++) {
        size[i] = SIZES[i % ARRAY_LEN(SIZES)];
        p[i] = arena_alloc(a, size[i]);
        assert_int_equal((uintptr_t)p[i] % (size[i] >= 4096 ? 64 : 16), 0);
        for (size_t k = 0; k < size[i]; k++) assert_int_equal(p[i][k], 0);
        memset(p[i], i, size[i]);
    }
    for (int i = 0; i < 200; i++)
        for (size_t k = 0; k < size[i]; k++) assert_int_equal(p[i][k], (uint8_t)i);
    arena_free(a);
}

static void test_zero_bytes_are_distinct(void **state) {
    (void)state;
    arena *a = arena_new("test");
    assert_ptr_not_equal(arena_alloc(a, 0), arena_alloc(a, 0));
    arena_free(a);
    arena_free(NULL);
}

static void test_reset_gives_zeros_again(void **state) {
    (void)state;
    arena *a = arena_new("test");
    for (int round = 0; round < 3; round++) {
        assert_int_equal(arena_bytes_used(a), 0);
        for (int i = 0; i < 50; i++) {
            uint8_t *p = arena_alloc(a, 5000);
            for (int k = 0; k < 5000; k++) assert_int_equal(p[k], 0);
            memset(p, 0xff, 5000);
        }
        assert_true(arena_bytes_used(a) >= 250000);
        arena_reset(a);
    }
    arena_free(a);
}

static void test_strings(void **state) {
    (void)state;
    arena *a = arena_new("test");
    assert_string_equal(arena_strdup(a, "abc"), "abc");
    assert_string_equal(arena_strndup(a, "abcdef", 3), "abc");
    assert_string_equal(arena_strndup(a, "ab", 9), "ab");
    assert_string_equal(arena_printf(a, "%d-%s", 7, "x"), "7-x");
    char *longer = arena_printf(a, "%0100000d", 1);
    assert_int_equal(strlen(longer), 100000);
    assert_memory_equal(arena_memdup(a, "a\0b", 3), "a\0b", 3);
    assert_non_null(arena_memdup(a, NULL, 0));
    int *xs = ARENA_ARRAY(a, int, 3);
    assert_int_equal(xs[2], 0);
    arena_free(a);
}

static void test_vec_push(void **state) {
    (void)state;
    int *items = NULL, n = 0, cap = 0;
    for (int i = 0; i < 1000; i++) VEC_PUSH(items, n, cap, i * i);
    assert_int_equal(n, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(items[i], i * i);
    free(items);
}

static int exit_status_of(void (*f)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        close(STDERR_FILENO);
        f();
        _exit(0);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

static void exhaust_arena(void) {
    arena_alloc(arena_new("test"), SIZE_MAX - 100);
}
static void exhaust_heap(void) {
    free(xmalloc((size_t)1 << 60));
}
static void overflow_heap(void) {
    free(xcalloc((size_t)1 << 40, (size_t)1 << 40));
}

static void test_out_of_memory_exits_4(void **state) {
    (void)state;
#if defined(__has_feature) /* how clang says it; gcc defines a macro */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* the sanitizer ends the process itself */
#endif
    assert_int_equal(exit_status_of(exhaust_arena), ST_MEMORY);
    assert_int_equal(exit_status_of(exhaust_heap), ST_MEMORY);
    assert_int_equal(exit_status_of(overflow_heap), ST_MEMORY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed_aligned_disjoint),
        cmocka_unit_test(test_zero_bytes_are_distinct),
        cmocka_unit_test(test_reset_gives_zeros_again),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_vec_push),
        cmocka_unit_test(test_out_of_memory_exits_4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
