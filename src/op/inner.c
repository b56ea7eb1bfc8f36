#include "op/inner.h"

#include <string.h>

#include "dev/cuda.h"

/* The device that has the arrays, where the host does not reach them. */
static dev *away(const op_call *c) {
    return dev_host_enters(c->run->dev) ? NULL : c->run->dev;
}

void inner_run(op_fn fn, const op_call *inner) {
    if (away(inner))
        op_launch(inner->run->dev, fn, inner);
    else
        fn(inner);
}

void inner_copy(const op_call *c, void *to, const void *from, size_t bytes) {
    if (away(c))
        dev_copy(c->run->dev, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

void inner_clear(const op_call *c, void *at, size_t bytes) {
    if (away(c))
        dev_fill(c->run->dev, at, 0, bytes);
    else
        memset(at, 0, bytes);
}

void inner_put(const op_call *c, void *to, const void *host, size_t bytes) {
    if (away(c))
        dev_write(c->run->dev, to, host, bytes);
    else
        memcpy(to, host, bytes);
}

const void *inner_look(const op_call *c, const void *at, size_t bytes) {
    if (!away(c)) return at;
    void *host = cuda_host_room(c->run->dev, bytes);
    dev_read(c->run->dev, host, at, bytes);
    return host;
}

/* Rows of t, as bytes: n of them, `each` long and `apart`. Those that lie one behind the other are one. */
typedef struct row_bytes {
    char *at;
    int64_t n, each, apart;
} row_bytes;

static row_bytes rows_of(const tensor *t, int64_t first, int64_t n) {
    int64_t item = (int64_t)dtype_bytes(t->dt);
    row_bytes r = {(char *)t->data + first * t->ld * item, n, t->cols * item, t->ld * item};
    if (n > 0 && r.each == r.apart) r.each *= n, r.n = 1;
    return r;
}

void inner_copy_rows(const op_call *c, const tensor *t, int64_t first, int64_t n, void *packed,
                     bool pack) {
    row_bytes r = rows_of(t, first, n);
    for (int64_t i = 0; i < r.n; i++) {
        char *row = r.at + i * r.apart, *other = (char *)packed + i * r.each;
        inner_copy(c, pack ? other : row, pack ? row : other, (size_t)r.each);
    }
}

void inner_clear_rows(const op_call *c, const tensor *t, int64_t first, int64_t n) {
    row_bytes r = rows_of(t, first, n);
    for (int64_t i = 0; i < r.n; i++) inner_clear(c, r.at + i * r.apart, (size_t)r.each);
}
