/* Bytes between the host and the emulated GPU, whose copies run as late as they may. */
#include "test.h"

#include "dev/cuda.h"

static dev *open_gpu(void) {
    dev *d;
    err e = {0};
    if (dev_open(&d, DEV_CUDA, 1, &e) != ST_OK) fail_msg("%s", e.message);
    return d;
}

static void check(dev *d) {
    err e = {0};
    if (dev_check(d, &e) != ST_OK) fail_msg("%s", e.message);
}

/* The host's bytes may change when dev_write returns, although the copies are late, and together they are more than the memory by which
 * they go has room for. */
static void test_writes(void **state) {
    (void)state;
    enum { PIECE = 300000, PIECES = 20 };
    static uint8_t piece[PIECE], back[PIECES * PIECE];
    dev *d = open_gpu();
    void *there;
    assert_int_equal(dev_reserve(d, &there, sizeof back, "bytes", NULL), ST_OK);
    for (int i = 0; i < PIECES; i++) {
        memset(piece, i + 1, sizeof piece);
        dev_write(d, (char *)there + i * PIECE, piece, sizeof piece);
    }
    memset(piece, 0, sizeof piece);
    dev_read(d, back, there, sizeof back);
    for (int i = 0; i < (int)sizeof back; i++) assert_int_equal(back[i], i / PIECE + 1);
    dev_write(d, there, back, sizeof back); /* at once: larger than the room */
    memset(back, 0, sizeof back);
    dev_read(d, back, there, sizeof back);
    assert_int_equal(back[sizeof back - 1], PIECES);
    check(d);
    dev_release(d, there, sizeof back);
    dev_close(d);
}

/* Of what is read later the host has nothing before it waits. */
static void test_read_later(void **state) {
    (void)state;
    dev *d = open_gpu();
    void *there;
    uint32_t *pinned = dev_pinned(d, sizeof *pinned);
    assert_int_equal(dev_reserve(d, &there, sizeof *pinned, "a number", NULL), ST_OK);
    *pinned = 7;
    dev_fill(d, there, 1, sizeof *pinned);
    dev_read_later(d, pinned, there, sizeof *pinned);
    dev_fill(d, there, 2, sizeof *pinned);
    assert_int_equal(*pinned, 7);
    dev_sync(d);
    assert_int_equal(*pinned, 0x01010101);
    check(d);
    dev_release(d, there, sizeof *pinned);
    dev_pinned_free(d, pinned);
    dev_close(d);
}

int main(void) {
    setenv("ATHANOR_CUDA", "emulated", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_read_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
