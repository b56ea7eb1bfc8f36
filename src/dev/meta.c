/* A device without memory, on which nothing happens. */
#include "dev/dev_int.h"

static void meta_nothing(dev *d) {
    (void)d;
}

static status meta_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) {
    (void)d, (void)ptr, (void)bytes, (void)what, (void)e;
    return ST_OK;
}

static void meta_release(dev *d, void *ptr, size_t bytes) {
    (void)d, (void)ptr, (void)bytes;
}

static void meta_move(dev *d, void *to, const void *from, size_t bytes) {
    (void)d, (void)to, (void)from, (void)bytes;
}

static void meta_fill(dev *d, void *at, int byte, size_t bytes) {
    (void)d, (void)at, (void)byte, (void)bytes;
}

static void *meta_borrow(dev *d, void *at, size_t bytes, bool contents, dev_room *room) {
    (void)d, (void)bytes, (void)contents, (void)room;
    return at;
}

static void meta_launch(dev *d, dev_kernel kernel, const void *args, size_t bytes) {
    (void)d, (void)kernel, (void)args, (void)bytes;
}

static dev_event meta_record(dev *d) {
    (void)d;
    return 0;
}

static void meta_wait(dev *d, dev_event ev) {
    (void)d, (void)ev;
}

const dev_class dev_class_meta = {
    .name = "meta",
    .open = meta_nothing,
    .close = meta_nothing,
    .reserve = meta_reserve,
    .release = meta_release,
    .touched = dev_mapping_touched, /* never asked: there is no memory */
    .write = meta_move,
    .read = meta_move,
    .copy = meta_move,
    .fill = meta_fill,
    .borrow = meta_borrow,
    .put_back = meta_move,
    .launch = meta_launch,
    .record = meta_record,
    .wait = meta_wait,
    .enter = meta_wait,
    .leave = meta_nothing,
};
