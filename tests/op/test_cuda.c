/* The op matrix on the emulated CUDA device: values against the double reference, and every access of
 * every kernel watched (gpu/emulated/watch.c). */
#include "op/matrix.h"

/* The emulated device, with two orders of threads and blocks. Its kernels may touch only what a call
 * names, wherever that lies, so the buffers are the host's. */
static void cuda_open(backend *b) {
    static const char *const seeds[DEVS] = {"1", "2"};
    err e;
    setenv("ATHANOR_CUDA", "emulated", 1);
    for (int k = 0; k < DEVS; k++) {
        setenv("ATHANOR_CUDA_SEED", seeds[k], 1);
        if (dev_open(&b->devs[k], DEV_CUDA, k + 1, &e) != ST_OK) fail_msg("%s", e.message);
    }
    unsetenv("ATHANOR_CUDA");
    unsetenv("ATHANOR_CUDA_SEED");
    if (dev_open(&b->host, DEV_CPU, 2, &e) != ST_OK) fail_msg("%s", e.message);
    snprintf(b->name, sizeof b->name, "emulated GPU");
}

/* ATHANOR_TEST_OP: only this op, for who works on its kernels. */
static bool is_wanted(op_kind kind) {
    const char *only = getenv("ATHANOR_TEST_OP");
    return !only || strcmp(only, op_classes[kind].name) == 0;
}

static void test_ops(void **state) {
    (void)state;
    static const dtype dts[] = {DT_F32, DT_BF16, DT_F16};
    backend b = {.reference = false, .slow = true};
    cuda_open(&b);
    for (int kind = 0; kind < OP_COUNT; kind++)
        for (int k = 0; k < ARRAY_LEN(dts) && is_wanted((op_kind)kind); k++)
            if (op_find(b.devs[0], (op_kind)kind, dts[k])) check_op(&b, (op_kind)kind, dts[k]);
    backend_close(&b);
    dev_close(b.host);
}

int main(int argc, char **argv) {
    (void)argc;
    restart_with_sleeping_threads(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
