/* What all devices have in common: kinds by name, opening; and the way from a
 * call to the kind's function. The choice of instruction set is in isa.c, that of threads in
 * processors.c, what the machine and this process hold in memory.c. */
#include "dev/dev_int.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "gpu/driver.h"

static const dev_class *const classes[DEV_KINDS] = {
    [DEV_CPU] = &dev_class_cpu,
    [DEV_CUDA] = &dev_class_cuda,
    [DEV_TWIN] = &dev_class_twin,
};

/* Without memory, and nothing happens on it. */
static const dev_class class_meta = {.name = "meta"};

/* ---- kinds ---- */

static bool find_kind(const char *name, dev_kind *out) {
    for (int k = 0; k < DEV_KINDS; k++) {
        if (strcmp(classes[k]->name, name) != 0) continue;
        *out = (dev_kind)k;
        return true;
    }
    return false;
}

/* "cpu, twin" */
static const char *kind_names(char out[64]) {
    int n = 0;
    for (int k = 0; k < DEV_KINDS; k++)
        n += snprintf(out + n, 64 - (size_t)n, "%s%s", k ? ", " : "", classes[k]->name);
    return out;
}

/* What ATHANOR_DEVICE names, else the CPU, or with takes_gpu the GPU that is there. */
static status default_kind(dev_kind *out, bool takes_gpu, err *e) {
    const char *words[DEV_KINDS];
    int wish = -1;
    for (int k = 0; k < DEV_KINDS; k++) words[k] = classes[k]->name;
    TRY(env_word("ATHANOR_DEVICE", words, DEV_KINDS, &wish, e));
    *out = wish >= 0 ? (dev_kind)wish : takes_gpu && dev_cuda_is_there() ? DEV_CUDA : DEV_CPU;
    return ST_OK;
}

status dev_find_kind(const char *name, dev_kind *out, err *e) {
    char names[64];
    if (!name || strcmp(name, "auto") == 0) return default_kind(out, name != NULL, e);
    if (find_kind(name, out)) return ST_OK;
    err_set(e, ST_USAGE, "there is no device \"%s\"", name);
    return err_hint(e, "use one of auto, %s", kind_names(names));
}

status dev_check_environment(err *e) {
    dev_kind kind;
    cpu_isa isa;
    bool emulated;
    TRY(default_kind(&kind, false, e));
    TRY(isa_choose(&isa, e));
    return cu_driver_choice(&emulated, e);
}

/* ---- opening ---- */

static status open_on(dev **out, dev_kind kind, const dev_class *class, int threads, int number,
                      err *e) {
    *out = NULL;
    cpu_isa isa;
    TRY(isa_choose(&isa, e));
    dev *d = xcalloc(1, sizeof *d);
    d->kind = kind;
    d->class = class;
    d->flag = &d->own_flag;
    d->number = number;
    d->isa = isa;
    d->threads = threads > 0 ? threads : dev_default_threads();
    status st = class->open ? class->open(d, e) : ST_OK;
    if (st == ST_OK)
        *out = d;
    else
        free(d);
    return st;
}

status dev_open_of_rank(dev **out, dev_kind kind, int rank, int threads, err *e) {
    int gpus = kind == DEV_CUDA && rank > 0 ? dev_gpus() : 0;
    TRY(open_on(out, kind, classes[kind], threads, gpus > 0 ? rank % gpus : 0, e));
    /* Libraries that share the pool ask OpenMP, not the dev. */
    omp_set_num_threads((*out)->threads);
    return ST_OK;
}

status dev_open(dev **out, dev_kind kind, int threads, err *e) {
    return dev_open_of_rank(out, kind, 0, threads, e);
}

status dev_open_gpu(dev **out, int number, err *e) {
    return open_on(out, DEV_CUDA, &dev_class_cuda, 0, number, e);
}

status dev_open_meta(dev **out, dev_kind of, int threads, err *e) {
    return open_on(out, of, &class_meta, threads, 0, e);
}

void dev_limit(dev *d, cpu_isa most, int threads) {
    if (most < d->isa) d->isa = most;
    if (threads > 0) d->threads = threads;
    if (!dev_is_meta(d)) omp_set_num_threads(d->threads);
}

void dev_close(dev *d) {
    if (!d) return;
    dev_sync(d); /* what is cached belongs to work, and to the device */
    for (int i = 0; i < DEV_CACHES; i++)
        if (d->caches[i].at) d->caches[i].destroy(d->caches[i].at);
    if (d->class->close) d->class->close(d);
    free(d);
}

const char *dev_kind_name(dev_kind kind) {
    return classes[kind]->name;
}

dev_kind dev_get_kind(const dev *d) {
    return d->kind;
}

bool dev_is_meta(const dev *d) {
    return d->class == &class_meta;
}

int dev_threads(const dev *d) {
    return d->threads;
}

cpu_isa dev_isa(const dev *d) {
    return d->isa;
}

void *dev_kernel_cache(dev *d, void *(*create)(dev *d), void (*destroy)(void *cache)) {
    for (int i = 0; i < DEV_CACHES; i++) {
        dev_cache *c = &d->caches[i];
        if (!c->at) *c = (dev_cache){create, destroy, create(d)};
        if (c->create == create) return c->at;
    }
    CHECK(false, "a device has room for %d caches", DEV_CACHES);
    return NULL;
}

/* ---- memory ---- */

status dev_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) {
    *ptr = NULL;
    if (!d->class->reserve) return ST_OK;
    return d->class->reserve(d, ptr, bytes, what, e);
}

void dev_expect_whole(dev *d, void *ptr, size_t bytes) {
    if (ptr && d->class->expect_whole) d->class->expect_whole(ptr, bytes);
}

void dev_release(dev *d, void *ptr, size_t bytes) {
    if (ptr && d->class->release) d->class->release(d, ptr, bytes);
}

/* ---- what happens on a device ---- */

void dev_write(dev *d, void *to, const void *host, size_t bytes) {
    if (d->class->write) d->class->write(d, to, host, bytes);
}

void dev_read(dev *d, void *host, const void *from, size_t bytes) {
    if (d->class->read) d->class->read(d, host, from, bytes);
}

void *dev_pinned(dev *d, size_t bytes) {
    return d->class->pinned ? d->class->pinned(d, bytes) : xmalloc(bytes);
}

void dev_pinned_free(dev *d, void *p) {
    if (d->class->pinned_free)
        d->class->pinned_free(d, p);
    else
        free(p);
}

void dev_read_later(dev *d, void *pinned, const void *from, size_t bytes) {
    if (pinned && d->class->read_later) d->class->read_later(d, pinned, from, bytes);
}

void dev_copy(dev *d, void *to, const void *from, size_t bytes) {
    if (d->class->copy) d->class->copy(d, to, from, bytes);
}

void dev_fill(dev *d, void *at, int byte, size_t bytes) {
    if (d->class->fill) d->class->fill(d, at, byte, bytes);
}

void dev_launch(dev *d, dev_kernel kernel, const void *args, size_t bytes) {
    if (d->class->launch) d->class->launch(d, kernel, args, bytes);
}

bool dev_has_graphs(const dev *d) {
    return d->class->graph_begin != NULL;
}

void dev_graph_begin(dev *d) {
    d->class->graph_begin(d);
}

dev_graph *dev_graph_end(dev *d) {
    return d->class->graph_end(d);
}

void dev_graph_launch(dev *d, dev_graph *g) {
    d->class->graph_launch(d, g);
}

void dev_graph_free(dev *d, dev_graph *g) {
    if (g) d->class->graph_free(d, g);
}

dev_event dev_record(dev *d) {
    return d->class->record ? d->class->record(d) : 0;
}

void dev_wait(dev *d, dev_event ev) {
    if (d->class->wait) d->class->wait(d, ev);
}

void dev_sync(dev *d) {
    dev_wait(d, dev_record(d));
}

bool *dev_flag(dev *d) {
    return d->flag;
}

status dev_check(dev *d, err *e) {
    return d->class->check ? d->class->check(d, e) : ST_OK;
}

size_t dev_available_bytes(const dev *d) {
    return d->class->available ? d->class->available(d) : dev_machine_available_bytes();
}

/* ---- what the host does with a device's memory ---- */

void *dev_borrow(dev *d, void *at, size_t bytes, bool contents, dev_room *room) {
    return d->class->borrow ? d->class->borrow(d, at, bytes, contents, room) : at;
}

const void *dev_look(dev *d, const void *at, size_t bytes, dev_room *room) {
    return dev_borrow(d, (void *)(uintptr_t)at, bytes, true, room);
}

void dev_put_back(dev *d, void *at, const void *host, size_t bytes) {
    if (d->class->put_back) d->class->put_back(d, at, host, bytes);
}

void *dev_room_of(dev_room *r, size_t bytes) {
    if (r->bytes < bytes) {
        dev_room_free(r);
        *r = (dev_room){xmalloc(bytes), bytes};
    }
    return r->host;
}

void dev_room_free(dev_room *r) {
    free(r->host);
    *r = (dev_room){0};
}

bool dev_host_enters(const dev *d) {
    return !d->class->is_closed || !d->class->is_closed(d);
}

void dev_enter(dev *d) {
    if (d) dev_enter_after(d, dev_record(d));
}

void dev_enter_after(dev *d, dev_event ev) {
    if (d && d->class->enter) d->class->enter(d, ev);
}

void dev_leave(dev *d) {
    if (d && d->class->leave) d->class->leave(d);
}
