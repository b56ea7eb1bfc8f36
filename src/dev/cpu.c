/* The CPU as a device: its memory is the host's, and everything happens at once. */
#include <string.h>

#include "dev/dev_int.h"

static status cpu_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) {
    (void)d;
    return dev_reserve_host(ptr, bytes, what, e);
}

static void cpu_release(dev *d, void *ptr, size_t bytes) {
    (void)d;
    dev_release_host(ptr, bytes);
}

static void cpu_move(dev *d, void *to, const void *from, size_t bytes) {
    (void)d;
    memmove(to, from, bytes);
}

static void cpu_fill(dev *d, void *at, int byte, size_t bytes) {
    (void)d;
    memset(at, byte, bytes);
}

static void cpu_launch(dev *d, dev_kernel kernel, const void *args, size_t bytes) {
    (void)bytes;
    kernel(d, args);
}

const dev_class dev_class_cpu = {
    .name = "cpu",
    .reserve = cpu_reserve,
    .expect_whole = dev_use_large_pages,
    .release = cpu_release,
    .write = cpu_move,
    .read = cpu_move,
    .read_later = cpu_move,
    .copy = cpu_move,
    .fill = cpu_fill,
    .launch = cpu_launch,
};
