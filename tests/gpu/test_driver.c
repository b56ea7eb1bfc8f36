/* Opening NVIDIA's driver: one that serves, and the sentences about others. The fake one is loaded first, so that the loader
 * takes it for the real one, whose name it has. */
#include "test.h"

#include <dlfcn.h>

#include "gpu/driver.h"

static void expect_refused(const char *how, const char *sentence) {
    cu_driver d;
    err e = {0};
    setenv("FAKE_DRIVER", how, 1);
    assert_int_equal(cu_driver_open(&d, &e), ST_USAGE);
    assert_string_equal(e.message, sentence);
    assert_non_null(strstr(e.hint, "device=cpu"));
    assert_null(d.library);
}

static void test_drivers(void **state) {
    (void)state;
    cu_driver d;
    err e = {0};
    void *fake = dlopen(FAKE_DRIVER "/libcuda.so.1", RTLD_NOW);
    assert_non_null(fake);
    unsetenv("ATHANOR_CUDA");
    assert_true(cu_driver_is_there());
    expect_refused("11080",
                   "the NVIDIA driver is of CUDA 11.8, and 12.0 is the oldest that serves");
    expect_refused("broken", "the NVIDIA driver does not start: unknown error");
    setenv("FAKE_DRIVER", "12000", 1);
    if (cu_driver_open(&d, &e) != ST_OK) fail_msg("%s", e.message);
    cu_driver_close(&d);
    dlclose(fake);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drivers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
