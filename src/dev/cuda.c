/* A CUDA device, by the functions of gpu/driver.h: the real one or the emulated one.
 *
 * All work goes to one stream, but what collectives move. Every function sets the context first, since several threads may
 * call; what they share has locks, but for the rooms of cuda.h that are one thread's. What fails is
 * kept as text: the first error is the one that counts, results after it do not, and dev_check tells
 * it at the next border of a step. */
#include "dev/cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "dev/dev_int.h"
#include "dev/keep.h"

enum { EVENTS = 64, ERROR_MAX = 512 };

/* Kernels that have been looked up. */
typedef struct loaded {
    const gpu_kernel *kernel;
    cu_function function;
} loaded;

typedef struct image {
    const gpu_image *of;
    cu_module module;
} image;

/* What a stream was given between capture_begin and capture_end. */
struct dev_graph {
    dev_graph *next; /* of the device */
    cu_graph_exec exec;
};

/* Pinned memory by which the host's bytes go to the GPU, so that the host need not wait until the GPU
 * takes them: two halves, of which one is filled when the GPU has read what was in it before. */
enum { UPLOAD_HALF = 1 << 20 };
typedef struct upload {
    char *at; /* NULL: not needed yet */
    size_t used;
    int half;
    cu_event read[2]; /* the last copy out of each */
} upload;

typedef struct cuda {
    cu_driver api;
    int device, multiprocessors;
    size_t baseline; /* of cuda_baseline_bytes */
    cu_context context;
    cu_stream stream, moves; /* moves: of cuda_fetch and cuda_store */
    cuda_lt lt;
    /* Event number n is event[n % EVENTS]; those that are older have passed when a newer one has. */
    cu_event event[EVENTS];
    dev_event given;
    loaded *kernels;
    int n_kernels, kernels_cap;
    image *images;
    int n_images, images_cap;
    dev_graph *graphs;
    dev_keep keep;
    upload upload;
    /* Held for writing while a thread captures, for reading by others that use the stream. Taken
     * before the other locks. */
    pthread_rwlock_t stream_use;
    _Atomic(bool) capturing;
    pthread_t captor;
    pthread_mutex_t lists;   /* guards kernels, images, and the tables of keep */
    pthread_mutex_t uploads; /* guards upload */
    pthread_mutex_t lock;    /* guards given and error; the last that is taken */
    char error[ERROR_MAX];
} cuda;

static cuda *use(const dev *d) {
    cuda *c = d->own;
    c->api.context_set(c->context);
    return c;
}

/* True on the thread that captures: its work goes into the graph. */
static bool captures_here(cuda *c) {
    return c->capturing && pthread_equal(c->captor, pthread_self());
}

/* Around work for the stream by any thread. */
static cuda *stream_begin(const dev *d) {
    cuda *c = use(d);
    if (!captures_here(c)) pthread_rwlock_rdlock(&c->stream_use);
    return c;
}

static void stream_end(cuda *c) {
    if (!captures_here(c)) pthread_rwlock_unlock(&c->stream_use);
}

/* ---- errors ---- */

void cuda_note_error(dev *d, const char *what, const char *text) {
    cuda *c = d->own;
    pthread_mutex_lock(&c->lock);
    if (!c->error[0]) snprintf(c->error, sizeof c->error, "%.80s: %.400s", what, text);
    pthread_mutex_unlock(&c->lock);
}

const char *cuda_error_text(const dev *d, cu_result r) {
    const cuda *c = d->own;
    const char *text = NULL;
    if (c->api.emulated) text = emu_context_fault(c->context);
    if (!text) c->api.error_text(r, &text);
    return text ? text : "the driver gives no reason";
}

static bool good(dev *d, cu_result r, const char *what) {
    if (r == 0) return true;
    cuda_note_error(d, what, cuda_error_text(d, r));
    return false;
}

static status cuda_check(dev *d, err *e) {
    cuda *c = d->own;
    pthread_mutex_lock(&c->lock);
    bool failed = c->error[0] != '\0';
    if (failed)
        err_set(e, ST_RANK, "the %s failed: %s", c->api.emulated ? "emulated GPU" : "GPU",
                c->error);
    pthread_mutex_unlock(&c->lock);
    if (!failed) return ST_OK;
    return err_hint(e, c->api.emulated ? "a kernel is wrong: see docs/cuda.md"
                                       : "start it again from its last checkpoint");
}

/* ---- memory ---- */

static void sync_stream(dev *d) {
    cuda *c = stream_begin(d);
    good(d, c->api.stream_sync(c->stream), "waiting for the GPU");
    stream_end(c);
}

static status cuda_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) {
    cuda *c = use(d);
    cu_ptr p = 0;
    size_t available = 0, total = 0;
    c->api.mem_info(&available, &total);
    if (bytes > available || c->api.mem_alloc(&p, bytes ? bytes : 1) != 0)
        return err_at(e, ST_MEMORY, what,
                      "%s needs %.1f MB, but the GPU has %.1f MB available of %.1f MB", what,
                      (double)bytes * 1e-6, (double)available * 1e-6, (double)total * 1e-6);
    *ptr = (void *)(uintptr_t)p;
    dev_fill(d, *ptr, 0, bytes);
    return ST_OK;
}

static size_t cuda_available(const dev *d) {
    size_t available = 0, total = 0;
    use(d)->api.mem_info(&available, &total);
    return available;
}

static void cuda_release(dev *d, void *ptr, size_t bytes) {
    (void)bytes;
    sync_stream(d);
    good(d, use(d)->api.mem_free((cu_ptr)(uintptr_t)ptr), "giving memory back");
}

/* ---- moves ---- */

static cu_ptr at(const void *p) {
    return (cu_ptr)(uintptr_t)p;
}

static bool open_upload(dev *d, cuda *c) {
    upload *u = &c->upload;
    u->at = cuda_pinned(d, 2 * UPLOAD_HALF);
    for (int i = 0; i < 2; i++)
        good(d, c->api.event_create(&u->read[i], CU_EVENT_NO_TIMING), "an event");
    return u->at != NULL;
}

/* Copies bytes, UPLOAD_HALF at most, to where the GPU reads them. NULL: there is no room, which has been noted. */
static const void *upload_bytes(dev *d, cuda *c, const void *host, size_t bytes) {
    upload *u = &c->upload;
    if (!u->at && !open_upload(d, c)) return NULL;
    if (u->used + bytes > UPLOAD_HALF) {
        good(d, c->api.event_record(u->read[u->half], c->stream), "an event");
        u->half ^= 1;
        u->used = 0;
        good(d, c->api.event_sync(u->read[u->half]), "waiting for the GPU");
    }
    void *room = u->at + (size_t)u->half * UPLOAD_HALF + u->used;
    u->used += bytes;
    return memcpy(room, host, bytes);
}

/* Whatever memory the host's bytes lie in: of pageable memory the driver leaves open whether it has taken them when
 * cuMemcpyHtoDAsync returns. */
static void cuda_write(dev *d, void *to, const void *host, size_t bytes) {
    cuda *c = stream_begin(d);
    pthread_mutex_lock(&c->uploads);
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < UPLOAD_HALF ? bytes - done : UPLOAD_HALF;
        const void *pinned = upload_bytes(d, c, (const char *)host + done, n);
        if (!pinned) break;
        good(d, c->api.copy_in(at(to) + done, pinned, n, c->stream), "a copy to the GPU");
    }
    pthread_mutex_unlock(&c->uploads);
    stream_end(c);
}

static void cuda_read_later(dev *d, void *host, const void *from, size_t bytes) {
    cuda *c = stream_begin(d);
    if (bytes) good(d, c->api.copy_out(host, at(from), bytes, c->stream), "a copy from the GPU");
    stream_end(c);
}

static void cuda_read(dev *d, void *host, const void *from, size_t bytes) {
    cuda_read_later(d, host, from, bytes);
    sync_stream(d);
}

static void cuda_copy(dev *d, void *to, const void *from, size_t bytes) {
    if (!bytes) return;
    cuda *c = stream_begin(d);
    good(d, c->api.copy(at(to), at(from), bytes, c->stream), "a copy on the GPU");
    stream_end(c);
}

static void cuda_fill(dev *d, void *to, int byte, size_t bytes) {
    if (!bytes) return;
    cuda *c = stream_begin(d);
    good(d, c->api.fill(at(to), (unsigned char)byte, bytes, c->stream), "a fill on the GPU");
    stream_end(c);
}

static void *cuda_borrow(dev *d, void *from, size_t bytes, bool contents, dev_room *room) {
    void *host = dev_room_of(room, bytes);
    if (contents)
        cuda_read(d, host, from, bytes);
    else
        sync_stream(d);
    return host;
}

/* ---- kernels ---- */

static cu_module module_of(dev *d, cuda *c, const gpu_image *of) {
    for (int i = 0; i < c->n_images; i++)
        if (c->images[i].of == of) return c->images[i].module;
    image new = {of, NULL};
    good(d, c->api.module_load(&new.module, of->data), of->name);
    VEC_PUSH(c->images, c->n_images, c->images_cap, new);
    return new.module;
}

/* NULL: the driver does not find it, which has been noted. With `lists` held. */
static cu_function look_up(dev *d, cuda *c, const gpu_kernel *k) {
    for (int i = 0; i < c->n_kernels; i++)
        if (c->kernels[i].kernel == k) return c->kernels[i].function;
    loaded new = {k, (cu_function)(uintptr_t)k};
    if (!c->api.emulated) {
        new.function = NULL;
        cu_module m = module_of(d, c, k->image);
        if (m && good(d, c->api.module_function(&new.function, m, k->name), k->name))
            c->api.function_set(new.function, CU_DYNAMIC_SHARED_BYTES, (int)k->most_shared_bytes);
    }
    VEC_PUSH(c->kernels, c->n_kernels, c->kernels_cap, new);
    return new.function;
}

static cu_function function_of(dev *d, cuda *c, const gpu_kernel *k) {
    pthread_mutex_lock(&c->lists);
    cu_function f = look_up(d, c, k);
    pthread_mutex_unlock(&c->lists);
    return f;
}

void cuda_launch(dev *d, const gpu_kernel *k, gpu_grid g, const void *args) {
    cuda *c = use(d);
    void *params[] = {(void *)(uintptr_t)args};
    cu_function f = function_of(d, c, k);
    if (!f || g.x == 0 || g.y == 0 || g.z == 0) return;
    good(d,
         c->api.launch(f, g.x, g.y, g.z, g.threads, 1, 1, g.shared_bytes, c->stream, params, NULL),
         k->name);
}

/* A function of the host that gives kernels to the device. */
static void cuda_run(dev *d, dev_kernel kernel, const void *args, size_t bytes) {
    (void)bytes;
    kernel(d, args);
}

/* ---- graphs; of one thread, the one that gives the kernels ---- */

static void cuda_graph_begin(dev *d) {
    cuda *c = use(d);
    pthread_rwlock_wrlock(&c->stream_use);
    c->captor = pthread_self();
    c->capturing = true;
    good(d, c->api.capture_begin(c->stream, CU_CAPTURE_THREAD_LOCAL), "a CUDA graph");
}

static dev_graph *cuda_graph_end(dev *d) {
    cuda *c = use(d);
    cu_graph captured = NULL;
    cu_graph_exec exec = NULL;
    bool made = good(d, c->api.capture_end(c->stream, &captured), "a CUDA graph") &&
                good(d, c->api.graph_make(&exec, captured, 0), "a CUDA graph");
    if (captured) c->api.graph_destroy(captured);
    c->capturing = false;
    pthread_rwlock_unlock(&c->stream_use);
    if (!made) return NULL;
    dev_graph *g = xmalloc(sizeof *g);
    *g = (dev_graph){c->graphs, exec};
    return c->graphs = g;
}

static void cuda_graph_launch(dev *d, dev_graph *g) {
    cuda *c = stream_begin(d);
    good(d, c->api.graph_launch(g->exec, c->stream), "a CUDA graph");
    stream_end(c);
}

static void cuda_graph_free(dev *d, dev_graph *g) {
    cuda *c = use(d);
    dev_graph **at = &c->graphs;
    while (*at && *at != g) at = &(*at)->next;
    CHECK(*at, "a graph is freed that the device does not have");
    *at = g->next;
    sync_stream(d);
    good(d, c->api.graph_exec_destroy(g->exec), "a CUDA graph");
    free(g);
}

bool cuda_is_emulated(const dev *d) {
    return ((const cuda *)d->own)->api.emulated;
}

cu_stream cuda_stream(dev *d) {
    return use(d)->stream;
}

const cuda_lt *cuda_get_lt(const dev *d) {
    return &use(d)->lt;
}

int cuda_multiprocessors(const dev *d) {
    return ((const cuda *)d->own)->multiprocessors;
}

size_t cuda_baseline_bytes(const dev *d) {
    return ((const cuda *)d->own)->baseline;
}

void cuda_note_baseline(dev *d) {
    cuda *c = use(d);
    size_t available = 0, total = 0;
    if (c->api.mem_info(&available, &total) == 0) c->baseline = total - available;
}

int cuda_attribute(const dev *d, int attribute) {
    const cuda *c = use(d);
    int value = 0;
    c->api.device_attribute(&value, attribute, c->device);
    return value;
}

void cuda_name(const dev *d, char out[DEV_NAME_MAX]) {
    const cuda *c = d->own;
    out[0] = '\0';
    c->api.device_name(out, DEV_NAME_MAX, c->device);
}

const cu_driver *cuda_driver(const dev *d) {
    return &use(d)->api;
}

void cuda_uuid(const dev *d, char out[CU_UUID_BYTES]) {
    const cuda *c = use(d);
    memset(out, 0, CU_UUID_BYTES);
    c->api.device_uuid(out, c->device);
}

double cuda_seconds(dev *d, int runs, void (*work)(const void *args), const void *args) {
    cuda *c = use(d);
    cu_event from = NULL, to = NULL;
    float ms = 0;
    bool there = good(d, c->api.event_create(&from, 0), "an event") &&
                 good(d, c->api.event_create(&to, 0), "an event");
    if (there) {
        work(args);
        good(d, c->api.event_record(from, c->stream), "an event");
        for (int i = 0; i < runs; i++) work(args);
        good(d, c->api.event_record(to, c->stream), "an event");
        good(d, c->api.event_sync(to), "waiting for the GPU");
        good(d, c->api.event_elapsed(&ms, from, to), "an event");
    }
    if (from) c->api.event_destroy(from);
    if (to) c->api.event_destroy(to);
    return (double)ms * 1e-3 / runs;
}

void *cuda_pinned(dev *d, size_t bytes) {
    void *p = NULL;
    cuda *c = use(d);
    return good(d, c->api.mem_host_alloc(&p, bytes, 0), "pinned memory") ? p : NULL;
}

void cuda_pinned_free(dev *d, void *p) {
    if (p) good(d, use(d)->api.mem_host_free(p), "pinned memory");
}

/* A later event that has taken the place of `after` only makes the wait longer. */
void cuda_fetch(dev *d, dev_event after, void *host, const void *from, size_t bytes) {
    cuda *c = use(d);
    if (after > 0) good(d, c->api.stream_wait(c->moves, c->event[after % EVENTS], 0), "an event");
    if (bytes) good(d, c->api.copy_out(host, at(from), bytes, c->moves), "a copy from the GPU");
}

void cuda_store(dev *d, void *to, const void *host, size_t bytes) {
    cuda *c = use(d);
    if (bytes) good(d, c->api.copy_in(at(to), host, bytes, c->moves), "a copy to the GPU");
}

void cuda_moved(dev *d) {
    cuda *c = use(d);
    good(d, c->api.stream_sync(c->moves), "waiting for the GPU");
}

void cuda_scope_begin(dev *d, const char *what, const gpu_range *ranges, int n) {
    if (cuda_is_emulated(d)) emu_stream_scope(cuda_stream(d), what, ranges, n);
}

void cuda_scope_end(dev *d) {
    if (cuda_is_emulated(d)) emu_stream_scope_end(cuda_stream(d));
}

const void *cuda_keep(dev *d, const void *bytes, size_t n) {
    err e;
    cuda *c = d->own;
    pthread_mutex_lock(&c->lists);
    const void *at = keep_bytes(&c->keep, d, bytes, n, &e);
    pthread_mutex_unlock(&c->lists);
    if (!at) cuda_note_error(d, "a table", e.message);
    return at;
}

void *cuda_scratch(dev *d, size_t bytes) {
    err e;
    void *at = keep_scratch(&((cuda *)d->own)->keep, d, bytes, &e);
    if (!at) cuda_note_error(d, "scratch memory", e.message);
    return at;
}

void *cuda_host_room(dev *d, size_t bytes) {
    return dev_room_of(&((cuda *)d->own)->keep.room, bytes);
}

/* ---- points in the order ---- */

static dev_event cuda_record(dev *d) {
    cuda *c = stream_begin(d);
    pthread_mutex_lock(&c->lock);
    dev_event ev = ++c->given;
    cu_result r = c->api.event_record(c->event[ev % EVENTS], c->stream);
    pthread_mutex_unlock(&c->lock);
    stream_end(c);
    good(d, r, "an event");
    return ev;
}

/* An event whose place has been taken by a later one waits for that. */
static void cuda_wait(dev *d, dev_event ev) {
    cuda *c = use(d);
    if (ev > 0) good(d, c->api.event_sync(c->event[ev % EVENTS]), "waiting for the GPU");
}

static void cuda_enter(dev *d, dev_event ev) {
    cuda *c = use(d);
    cuda_wait(d, ev);
    CHECK(c->api.emulated, "the host cannot reach the memory of a GPU");
    emu_context_open(c->context);
}

static bool cuda_is_closed(const dev *d) {
    (void)d;
    return true;
}

static void cuda_leave(dev *d) {
    emu_context_close(use(d)->context);
}

/* ---- opening ---- */

bool dev_cuda_is_there(void) {
    cu_driver api;
    int count = 0, device = 0, major = 0;
    bool emulated;
    err why = {0};
    if (!GPU_HAS_KERNELS || cu_driver_choice(&emulated, NULL) != ST_OK || emulated) return false;
    if (cu_driver_open(&api, &why) != ST_OK) {
        if (cu_driver_is_there()) log_warn("%s, so the CPU is taken", why.message);
        return false;
    }
    bool there = api.device_count(&count) == 0 && count > 0 && api.device_get(&device, 0) == 0 &&
                 api.device_attribute(&major, CU_COMPUTE_MAJOR, device) == 0 &&
                 major >= CU_LEAST_MAJOR;
    cu_driver_close(&api);
    return there;
}

int dev_gpus(void) {
    cu_driver api;
    int count = 0;
    if (cu_driver_open(&api, NULL) != ST_OK) return 0;
    bool usable = api.emulated || GPU_HAS_KERNELS;
    if (api.device_count(&count) != 0 || !usable) count = 0;
    cu_driver_close(&api);
    return count;
}

static status find_device(cuda *c, int number, err *e) {
    int count = 0, major = 0, minor = 0;
    char name[DEV_NAME_MAX] = "";
    if (c->api.device_count(&count) != 0 || number >= count) {
        err_set(e, ST_USAGE, "the NVIDIA driver is there, but no GPU");
        return err_hint(e, "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use device=cpu");
    }
    c->api.device_get(&c->device, number);
    c->api.device_attribute(&major, CU_COMPUTE_MAJOR, c->device);
    c->api.device_attribute(&minor, CU_COMPUTE_MINOR, c->device);
    c->api.device_attribute(&c->multiprocessors, CU_MULTIPROCESSORS, c->device);
    c->api.device_name(name, sizeof name, c->device);
    if (major < CU_LEAST_MAJOR) {
        err_set(e, ST_USAGE, "the GPU %s has compute capability %d, and %d is the least", name,
                major, CU_LEAST_MAJOR);
        return err_hint(e, "use device=cpu");
    }
    if (!c->api.emulated && !gpu_arch_serves(GPU_ARCHS, major, minor)) {
        err_set(e, ST_USAGE,
                "the GPU %s has compute capability %d.%d, and this program has kernels for sm_%s",
                name, major, minor, GPU_ARCHS);
        return err_hint(e, "name it in make cuda CUDA_ARCHS=..., or use device=cpu");
    }
    return ST_OK;
}

static status start(dev *d, cuda *c, err *e) {
    TRY(cu_driver_open(&c->api, e));
    if (!c->api.emulated && !GPU_HAS_KERNELS) {
        err_set(e, ST_USAGE, "this program was built without kernels for GPUs");
        return err_hint(e, "build it with make cuda, or use device=cpu");
    }
    TRY(lt_open(&c->lt.api, c->api.emulated, e));
    TRY(find_device(c, d->number, e));
    void *flag = NULL;
    bool there = c->api.context_retain(&c->context, c->device) == 0;
    if (there) c->api.context_set(c->context);
    there = there && c->api.stream_create(&c->stream, CU_STREAM_NON_BLOCKING) == 0;
    there = there && c->api.stream_create(&c->moves, CU_STREAM_NON_BLOCKING) == 0;
    for (int i = 0; i < EVENTS && there; i++)
        there = c->api.event_create(&c->event[i], CU_EVENT_NO_TIMING) == 0;
    there = there && c->lt.api.create(&c->lt.handle) == 0;
    there = there && c->api.mem_host_alloc(&flag, sizeof *d->flag, CU_HOST_DEVICE_MAP) == 0;
    if (flag) d->flag = memset(flag, 0, sizeof *d->flag);
    d->own = c;
    if (there) {
        cuda_note_baseline(d);
        return ST_OK;
    }
    err_set(e, ST_RANK, "the GPU gives no stream, or none for cuBLASLt");
    return err_hint(e, "look whether other programs hold it (nvidia-smi)");
}

static void cuda_close(dev *d) {
    cuda *c = d->own;
    if (!c) return;
    if (c->context) c->api.context_set(c->context);
    while (c->graphs) cuda_graph_free(d, c->graphs);
    keep_free(&c->keep, d);
    for (int i = 0; i < EVENTS; i++)
        if (c->event[i]) c->api.event_destroy(c->event[i]);
    for (int i = 0; i < 2; i++)
        if (c->upload.read[i]) c->api.event_destroy(c->upload.read[i]);
    cuda_pinned_free(d, c->upload.at);
    if (c->lt.handle) c->lt.api.destroy(c->lt.handle);
    if (d->flag != &d->own_flag) c->api.mem_host_free(d->flag);
    d->flag = &d->own_flag;
    if (c->moves) c->api.stream_destroy(c->moves);
    if (c->stream) c->api.stream_destroy(c->stream);
    for (int i = 0; i < c->n_images; i++)
        if (c->images[i].module) c->api.module_unload(c->images[i].module);
    if (c->context && c->api.emulated) emu_context_free(c->context);
    if (c->context && !c->api.emulated) c->api.context_release(c->device);
    lt_close(&c->lt.api);
    cu_driver_close(&c->api);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->lists);
    pthread_mutex_destroy(&c->uploads);
    pthread_rwlock_destroy(&c->stream_use);
    free(c->kernels);
    free(c->images);
    free(c);
    d->own = NULL;
}

static status cuda_open(dev *d, err *e) {
    cuda *c = d->own = xcalloc(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->lists, NULL);
    pthread_mutex_init(&c->uploads, NULL);
    pthread_rwlock_init(&c->stream_use, NULL);
    status st = start(d, c, e);
    if (st != ST_OK) cuda_close(d);
    return st;
}

const dev_class dev_class_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .reserve = cuda_reserve,
    .release = cuda_release,
    .write = cuda_write,
    .read = cuda_read,
    .pinned = cuda_pinned,
    .pinned_free = cuda_pinned_free,
    .read_later = cuda_read_later,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .borrow = cuda_borrow,
    .put_back = cuda_write,
    .launch = cuda_run,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
    .record = cuda_record,
    .wait = cuda_wait,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .is_closed = cuda_is_closed,
    .check = cuda_check,
    .available = cuda_available,
};
