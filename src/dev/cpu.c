/* The CPU as a device: its memory is the host's, and everything happens at once. */
#include <string.h>

#include "dev/dev_int.h"

static void cpu_nothing(dev *d) {
    (void)d;
}

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
    memcpy(to, from, bytes);
}

static void cpu_copy(dev *d, void *to, const void *from, size_t bytes) {
    (void)d;
    memmove(to, from, bytes);
}

static void cpu_fill(dev *d, void *at, int byte, size_t bytes) {
    (void)d;
    memset(at, byte, bytes);
}

static void *cpu_borrow(dev *d, void *at, size_t bytes, bool contents, dev_room *room) {
    (void)d, (void)bytes, (void)contents, (void)room;
    return at;
}

static void cpu_put_back(dev *d, void *at, const void *host, size_t bytes) {
    (void)d, (void)at, (void)host, (void)bytes;
}

static void cpu_launch(dev *d, dev_kernel kernel, const void *args, size_t bytes) {
    (void)bytes;
    kernel(d, args);
}

static dev_event cpu_record(dev *d) {
    (void)d;
    return 0;
}

static void cpu_wait(dev *d, dev_event ev) {
    (void)d, (void)ev;
}

const dev_class dev_class_cpu = {
    .name = "cpu",
    .open = cpu_nothing,
    .close = cpu_nothing,
    .reserve = cpu_reserve,
    .release = cpu_release,
    .touched = dev_mapping_touched,
    .write = cpu_move,
    .read = cpu_move,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .borrow = cpu_borrow,
    .put_back = cpu_put_back,
    .launch = cpu_launch,
    .record = cpu_record,
    .wait = cpu_wait,
    .enter = cpu_wait,
    .leave = cpu_nothing,
};
