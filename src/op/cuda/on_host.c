/* Ops that the host computes for a GPU: those that send more than once, or arrange what they send. All
 * that the call names is copied to the host, the kernel of the CPU runs on the copies, and what it
 * writes is copied back. Tensors may be views of one matrix, so what overlaps is copied as one. */
#include <stdlib.h>

#include "base/arena.h"
#include "op/cuda/host.h"
#include "op/cuda/tables.h"

bool cuda_op_is_on_host(op_kind kind) {
    bool plain = kind == OP_FAN_OUT || kind == OP_ALL_REDUCE || kind == OP_GATHER_ROWS ||
                 kind == OP_SCATTER_SUM;
    return op_classes[kind].flags & OPF_COMMUNICATES && !plain && !op_cuda_table_f32[kind];
}

enum { MOST_REGIONS = 2 * (OP_MAX_IN + OP_MAX_OUT), ALIGN = 64 };

/* Bytes [from, to) of the device, and their copy. */
typedef struct region {
    const char *from, *to;
    bool written;
    char *copy;
} region;

typedef struct regions {
    region item[MOST_REGIONS];
    int n;
} regions;

static void add_tensor(regions *all, const tensor *t, bool written) {
    if (!t->data || t->rows == 0) return;
    const char *from = t->data;
    int64_t bytes =
        (t->rows - 1) * dtype_span_bytes(t->dt, t->ld) + dtype_span_bytes(t->dt, t->cols);
    all->item[all->n++] = (region){from, from + bytes, written, NULL};
}

static int by_address(const void *a, const void *b) {
    const region *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static void merge(regions *all) {
    int n = 0;
    qsort(all->item, (size_t)all->n, sizeof *all->item, by_address);
    for (int i = 0; i < all->n; i++) {
        region *last = n ? &all->item[n - 1] : NULL, *r = &all->item[i];
        if (!last || r->from >= last->to) {
            all->item[n++] = *r;
            continue;
        }
        if (r->to > last->to) last->to = r->to;
        last->written |= r->written;
    }
    all->n = n;
}

static regions regions_of(const op_call *c) {
    regions all = {.n = 0};
    for (int i = 0; i < OP_MAX_IN; i++) {
        add_tensor(&all, &c->in[i], false);
        add_tensor(&all, &c->din[i], true);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        add_tensor(&all, &c->out[o], true);
        add_tensor(&all, &c->dout[o], false);
    }
    merge(&all);
    return all;
}

static size_t rounded(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t bytes_of(const region *r) {
    return (size_t)(r->to - r->from);
}

/* The copies, then the workspace, where it returns. */
static char *fetch(dev *d, regions *all, int64_t ws_bytes) {
    size_t bytes = ALIGN + (size_t)ws_bytes;
    for (int i = 0; i < all->n; i++) bytes += rounded(bytes_of(&all->item[i]));
    uintptr_t room = (uintptr_t)cuda_host_room(d, bytes);
    char *at = (char *)rounded(room);
    for (int i = 0; i < all->n; i++) {
        region *r = &all->item[i];
        r->copy = at;
        dev_read(d, at, r->from, bytes_of(r));
        at += rounded(bytes_of(r));
    }
    return at;
}

static void point_to_copy(const regions *all, tensor *t) {
    const char *at = t->data;
    if (!at || t->rows == 0) return;
    const region *r = all->item;
    while (at < r->from || at >= r->to) r++;
    t->data = r->copy + (at - r->from);
}

void cuda_op_on_host(dev *d, op_fn fn, const op_call *c) {
    regions all = regions_of(c);
    op_call call = *c;
    op_run run = *c->run;
    run.on_host = true;
    call.run = &run;
    call.ws = fetch(d, &all, c->ws_bytes);
    for (int i = 0; i < OP_MAX_IN; i++) {
        point_to_copy(&all, &call.in[i]);
        point_to_copy(&all, &call.din[i]);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        point_to_copy(&all, &call.out[o]);
        point_to_copy(&all, &call.dout[o]);
    }
    fn(&call);
    for (int i = 0; i < all.n; i++)
        if (all.item[i].written)
            dev_write(d, (void *)(uintptr_t)all.item[i].from, all.item[i].copy,
                      bytes_of(&all.item[i]));
}
