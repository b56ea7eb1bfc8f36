/* What each access of a kernel may touch.
 *
 * Files with kernels are compiled with the compiler's thread sanitizer, but without its library: its
 * calls, one for each access of memory, come here. An access must lie in the thread's own stack, in
 * the arguments, in an array of shared memory, or in a range that the launch was given.
 *
 * For shared memory, and for ranges that are written, a cell for each unit of 1 to 4 bytes tells who
 * wrote it last, who read it last, and when. "When" is the launch, the block, and how many barriers
 * the block, and how many sync_warp the warp, had passed. Two accesses of different threads, of
 * which one writes, must be in different launches, or in the same block with a barrier between
 * them, or in the same warp with a sync_warp between them. That does not depend on the order in which
 * threads happened to run: a missing barrier is found in every order.
 *
 * The counters of a stamp are short and begin again: 255 launches in one scope, or 4096 barriers in
 * one block, between two accesses of a unit that nobody touched meanwhile look like none. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "gpu/emulated/device.h"

/* ---- time ---- */

/* launch 8 bits, block 21, thread 11, barriers 12, meetings 12. 0: never. */
typedef uint64_t stamp;

/* Instead of a thread, for readers: several of a warp (this + warp), any that added by atomics, several of several
 * warps. */
enum { WARP_THREADS = 1024, BY_ATOMICS = 2046, ALL_THREADS = 2047 };

static stamp make_stamp(const emu_worker *w, uint32_t thread) {
    uint64_t launch = w->device->launches % 255 + 1, block = w->block_number & 0x1fffff;
    uint64_t barriers = w->epoch & 0xfff, meetings = w->warp[thread / GPU_WARP].epoch & 0xfff;
    return launch << 56 | block << 35 | (uint64_t)thread << 24 | barriers << 12 | meetings;
}

static uint32_t stamp_thread(stamp s) {
    return (uint32_t)(s >> 24) & 2047;
}
static uint32_t stamp_block(stamp s) {
    return (uint32_t)(s >> 35) & 0x1fffff;
}
/* -1: of several. */
static int stamp_warp(stamp s) {
    uint32_t t = stamp_thread(s);
    return t >= BY_ATOMICS ? -1 : (int)(t < WARP_THREADS ? t / GPU_WARP : t - WARP_THREADS);
}
static stamp with_thread(stamp s, uint64_t thread) {
    return (s & ~((uint64_t)ALL_THREADS << 24)) | thread << 24;
}

static bool same_block(stamp a, stamp b) {
    return a >> 35 == b >> 35;
}

/* True if nothing orders the two, both by threads of one launch. */
static bool collide(stamp before, stamp now) {
    if (before == 0 || before >> 56 != now >> 56) return false;
    if (!same_block(before, now)) return true;
    if (stamp_thread(before) == stamp_thread(now)) return false;
    if ((before >> 12 & 0xfff) != (now >> 12 & 0xfff)) return false;
    return !(stamp_warp(before) == stamp_warp(now) && (before & 0xfff) != (now & 0xfff));
}

/* ---- faults ---- */

void emu_keep_fault(emu_device *d, const char *text) {
    pthread_mutex_lock(&d->lock);
    if (!d->broken) snprintf(d->fault, sizeof d->fault, "%s", text);
    __atomic_store_n(&d->broken, true, __ATOMIC_RELEASE); /* emu_fault takes no lock */
    pthread_mutex_unlock(&d->lock);
}

/* "norm.cu:45", by the tool that comes with every compiler; else the address: there is no such tool,
 * or the program has no debug information. */
static void find_line(const void *pc, char *out, size_t bytes) {
    Dl_info info;
    char command[512];
    snprintf(out, bytes, "%p", pc);
    if (!dladdr(pc, &info) || !info.dli_fname) return;
    size_t at = (size_t)((const char *)pc - (const char *)info.dli_fbase) - 1;
    snprintf(command, sizeof command, "addr2line -i -e /proc/%d/exe 0x%zx 2>/dev/null", getpid(),
             at);
    FILE *f = popen(command, "r");
    char line[200];
    /* Of functions inlined into each other: the first that is not one of the thin ones. */
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, " \n")] = '\0';
        if (strstr(line, "src/gpu/") || strstr(line, "/store.h:")) continue;
        const char *file = strrchr(line, ':');
        if (!file || line[0] == '?') continue;
        while (file > line && file[-1] != '/') file--;
        snprintf(out, bytes, "%s", file);
        break;
    }
    if (f) pclose(f);
}

_Noreturn void emu_fail(const void *pc, const emu_site *site, const char *fmt, ...) {
    emu_worker *w = emu_worker_now;
    const uint32_t *p = w->now->place;
    char text[EMU_FAULT_MAX], what[256], line[256] = "";
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (site) {
        snprintf(line, sizeof line, "%s:%d", path_base(site->file), site->line);
    } else {
        find_line(pc, line, sizeof line);
    }
    snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread %u, %s: %s", w->kernel->name,
             p[EMU_BLOCK_X], p[EMU_BLOCK_Y], p[EMU_BLOCK_Z], p[EMU_THREAD], line, what);
    emu_keep_fault(w->device, text);
    fiber_switch(&w->now->fiber, &w->home, NULL, NULL);
    abort(); /* who failed never goes on */
}

_Noreturn void emu_refuse(const emu_site *site) {
    emu_fail(NULL, site, "%s", site->what);
}

/* An access, for messages. */
typedef struct touching {
    size_t bytes;
    bool write, atomic;
    const void *pc;
    const emu_site *site;
} touching;

static const char *verb(const touching *a) {
    return a->write ? "writes" : "reads";
}

static _Noreturn void fail_race(const touching *a, const char *where, int64_t at, stamp before,
                                stamp now, bool before_writes) {
    const char *did = before_writes ? "written" : "read";
    if (!same_block(before, now))
        emu_fail(a->pc, a->site,
                 "%s byte %lld of %s, which block number %u has %s in the same launch", verb(a),
                 (long long)at, where, stamp_block(before), did);
    if (stamp_thread(before) >= WARP_THREADS)
        emu_fail(a->pc, a->site,
                 "%s byte %lld of %s, which several threads have %s since the last barrier",
                 verb(a), (long long)at, where, did);
    emu_fail(a->pc, a->site, "%s byte %lld of %s, which thread %u has %s since the last barrier",
             verb(a), (long long)at, where, stamp_thread(before), did);
}

/* ---- cells ---- */

static uint64_t get(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
static void set(uint64_t *p, uint64_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/* A reader's stamp for two that nothing orders: their warp, if they are of one block and warp. */
static stamp of_both(stamp before, stamp now) {
    bool one_warp = same_block(before, now) && stamp_warp(before) == stamp_warp(now);
    uint64_t who = one_warp ? WARP_THREADS + (uint64_t)stamp_warp(now) : ALL_THREADS;
    return with_thread(now, who);
}

/* One unit; `at` is its byte in what is called `where`. fresh: it must have been written before it
 * is read. Atomic accesses read and write, and do not collide with each other: they are kept as those of readers, so that
 * a plain write before them is not forgotten. */
static void touch(emu_cell *c, const touching *a, stamp now, const char *where, int64_t at,
                  bool fresh) {
    stamp writer = get(&c->writer), reader = get(&c->reader);
    if ((!a->write || a->atomic) && writer == 0 && fresh)
        emu_fail(a->pc, a->site, "reads byte %lld of %s, which nobody has written", (long long)at,
                 where);
    bool added = stamp_thread(reader) == BY_ATOMICS;
    bool alike = a->atomic ? added : !a->write && !added;
    if (collide(writer, now)) fail_race(a, where, at, writer, now, true);
    if (!alike && collide(reader, now)) fail_race(a, where, at, reader, now, added);
    if (a->atomic)
        set(&c->reader, with_thread(now, BY_ATOMICS));
    else if (a->write)
        set(&c->writer, now);
    else
        set(&c->reader, collide(reader, now) ? of_both(reader, now) : now);
}

/* n units. What a wide read finds is mostly the same in all of its units, and is judged once. */
static void touch_units(emu_cell *c, size_t n, size_t unit, const touching *a, stamp now,
                        const char *where, int64_t at, bool fresh) {
    emu_cell judged = {0, 0};
    uint64_t then = 0;
    for (size_t i = 0; i < n; i++) {
        const emu_cell is = {get(&c[i].writer), get(&c[i].reader)};
        if (!a->write && i > 0 && is.writer == judged.writer && is.reader == judged.reader) {
            set(&c[i].reader, then);
            continue;
        }
        touch(&c[i], a, now, where, at + (int64_t)(i * unit), fresh);
        judged = is;
        then = get(&c[i].reader);
    }
}

/* ---- shared memory ---- */

void emu_watch_forget_shared(emu_worker *w) {
    memset(w->shared_cell, 0, sizeof *w->shared_cell * ((size_t)w->shared_used / 2 + 1));
    memset(w->origin, 0, sizeof *w->origin * ((size_t)w->shared_used / 16 + 1));
}

static bool is_shared(const emu_worker *w, const void *p) {
    return (uintptr_t)p - (uintptr_t)w->shared < EMU_SHARED_BYTES;
}

static uint32_t shared_at(const emu_worker *w, const void *p) {
    return (uint32_t)((uintptr_t)p - (uintptr_t)w->shared);
}

/* The array that an access lies in. */
static const emu_array *shared_array(const emu_worker *w, uint32_t at, const touching *a) {
    const emu_array *hit = NULL;
    for (int i = 0; i < w->arrays; i++)
        if (at >= w->array[i].at && at + a->bytes <= w->array[i].at + w->array[i].bytes)
            hit = &w->array[i];
    if (!hit) { /* the one before it is the one that was meant */
        for (int i = 0; i < w->arrays; i++)
            if (at >= w->array[i].at) hit = &w->array[i];
        if (!hit)
            emu_fail(a->pc, a->site, "%s %zu bytes of shared memory before its first array",
                     verb(a), a->bytes);
        emu_fail(a->pc, a->site, "%s %zu bytes at byte %u of the shared array %s, which has %u",
                 verb(a), a->bytes, at - hit->at, hit->site->what, hit->bytes);
    }
    return hit;
}

static void watch_shared(emu_worker *w, uint32_t at, const touching *a, stamp now) {
    const emu_array *hit = shared_array(w, at, a);
    if (a->write) w->origin[at / 16] = NULL;
    touch_units(&w->shared_cell[at / 2], (a->bytes + 1) / 2, 2, a, now, hit->site->what,
                (int64_t)(at - hit->at), true);
}

/* ---- ranges ---- */

/* The byte of the range at which the access begins; -1: it is not inside. */
static int64_t inside(const emu_range *r, const void *p, size_t bytes) {
    int64_t at = (const char *)p - (const char *)r->is.at;
    if (at < 0 || at + (int64_t)bytes > r->bytes) return -1;
    if (r->is.stride != r->is.row_bytes && at % r->is.stride + (int64_t)bytes > r->is.row_bytes)
        return -1;
    return at;
}

static emu_cell *cell_at(const emu_range *r, int64_t at) {
    return &r->cell[at / r->is.stride * r->row_units + at % r->is.stride / r->unit_bytes];
}

static bool allows(const emu_range *r, bool write) {
    return !write || r->is.access != GPU_READ;
}

/* The range in which the bytes lie and may be touched so, and the byte at which they begin; or
 * NULL. */
static const emu_range *range_around(const emu_device *d, const void *p, size_t bytes, bool write,
                                     int64_t *at) {
    const emu_range *r = d->in_scope ? d->range : d->memory;
    for (int i = 0, n = d->in_scope ? d->ranges : d->memories; i < n; i++) {
        *at = allows(&r[i], write) ? inside(&r[i], p, bytes) : -1;
        if (*at >= 0) return &r[i];
    }
    return NULL;
}

static void touch_cells(const emu_range *r, int64_t at, const touching *a, stamp now, bool fresh) {
    for (int64_t i = at; i < at + (int64_t)a->bytes; i += r->unit_bytes)
        touch(cell_at(r, i), a, now, r->is.name, i, fresh);
}

static void touch_range(const emu_range *r, int64_t at, const touching *a, stamp now) {
    const char *p = (const char *)r->is.at + at;
    if (r->clash.who && p < r->clash.end && p + a->bytes > r->clash.from)
        emu_fail(
            a->pc, a->site,
            "%s byte %lld of %s, which %s has %s in another stream, and no event orders the two",
            verb(a), (long long)at, r->is.name, r->clash.who, r->clash.wrote ? "written" : "read");
    if (r->cell)
        touch_cells(r, at, a, now, r->is.access == GPU_WRITE || r->is.access == GPU_SCRATCH);
}

/* What is only read by its own name may be written by another's: in place, with numbers of another width. */
static void touch_beneath(const emu_device *d, const void *p, const touching *a, stamp now) {
    for (int i = 0; i < d->ranges; i++) {
        int64_t at = d->range[i].cell ? inside(&d->range[i], p, a->bytes) : -1;
        if (at >= 0) touch_cells(&d->range[i], at, a, now, false);
    }
}

/* Constants of this program, which lie in it wherever it was loaded. */
static bool in_program(const void *p) {
    extern const char __executable_start[], end[];
    return (const char *)p >= __executable_start && (const char *)p < end;
}

static _Noreturn void fail_outside(const emu_device *d, const void *p, const touching *a) {
    const emu_range *best = NULL;
    int64_t least = INT64_MAX, where = 0;
    for (int i = 0; i < d->ranges; i++) {
        const emu_range *r = &d->range[i];
        int64_t at = (const char *)p - (const char *)r->is.at;
        int64_t far = at < 0 ? -at : at > r->bytes ? at - r->bytes : 0;
        /* The gaps of one range may hold the rows of another. */
        if (inside(r, p, a->bytes) >= 0) far = -1;
        if (far < least) best = r, least = far, where = at;
    }
    if (best && inside(best, p, a->bytes) >= 0)
        emu_fail(a->pc, a->site, "writes byte %lld of %s, which is only to be read",
                 (long long)where, best->is.name);
    if (best)
        emu_fail(a->pc, a->site,
                 "%s %zu bytes at byte %lld of %s, which has %lld rows of %lld bytes, %lld apart",
                 verb(a), a->bytes, (long long)where, best->is.name, (long long)best->is.rows,
                 (long long)best->is.row_bytes, (long long)best->is.stride);
    emu_fail(a->pc, a->site, "%s %zu bytes at %p, which is not the device's", verb(a), a->bytes, p);
}

static void watch_ranges(const emu_worker *w, const void *p, const touching *a, stamp now) {
    int64_t at;
    const emu_range *r = range_around(w->device, p, a->bytes, a->write, &at);
    if (r) touch_range(r, at, a, now);
    if (r && r->is_written_beneath) touch_beneath(w->device, p, a, now);
    if (!r && (a->write || !in_program(p))) fail_outside(w->device, p, a);
}

/* ---- libraries ---- */

void emu_library_fault(emu_device *d, const char *who, const char *what) {
    char text[EMU_FAULT_MAX];
    snprintf(text, sizeof text, "%s, called by %s: %s", who, d->in_scope ? d->what : "nobody",
             what);
    emu_keep_fault(d, text);
}

/* Row n of what a library names; false: there was a fault. */
static bool library_row(emu_device *d, const char *who, const gpu_range *is, int64_t n, stamp now) {
    bool write = is->access != GPU_READ;
    char what[256];
    int64_t at;
    emu_move_memory(d, who, (const char *)is->at + n * is->stride, is->row_bytes, write);
    const emu_range *r =
        range_around(d, (const char *)is->at + n * is->stride, (size_t)is->row_bytes, write, &at);
    if (!r) {
        snprintf(what, sizeof what,
                 "row %lld of %s, %lld bytes, is not all in memory that it may %s", (long long)n,
                 is->name, (long long)is->row_bytes, write ? "write" : "read");
        emu_library_fault(d, who, what);
        return false;
    }
    if (!r->cell) return true;
    bool fresh = r->is.access == GPU_WRITE || r->is.access == GPU_SCRATCH;
    for (int64_t i = at; i < at + is->row_bytes; i += r->unit_bytes) {
        emu_cell *c = cell_at(r, i);
        if (write) set(&c->writer, now);
        if (get(&c->writer) != 0 || !fresh) continue;
        snprintf(what, sizeof what, "%s has byte %lld of %s, which nobody has written", is->name,
                 (long long)i, r->is.name);
        emu_library_fault(d, who, what);
        return false;
    }
    return true;
}

/* A launch of its own. */
bool emu_library_access(emu_device *d, const char *who, const gpu_range *ranges, int n) {
    stamp now = (uint64_t)(++d->launches % 255 + 1) << 56;
    for (int i = 0; i < n; i++)
        for (int64_t row = 0; row < ranges[i].rows; row++)
            if (!library_row(d, who, &ranges[i], row, now)) return false;
    return true;
}

/* ---- an access ---- */

static void watch(const void *p, const touching *a) {
    emu_worker *w = emu_worker_now;
    if (!w) return;
    const emu_thread *t = w->now;
    if ((uintptr_t)p - (uintptr_t)t->fiber.stack < FIBER_STACK_BYTES) return;
    if (!a->write && (uintptr_t)p - (uintptr_t)w->args < w->kernel->args_bytes) return;
    if ((uintptr_t)p % a->bytes != 0)
        emu_fail(a->pc, a->site, "%s %zu bytes at an address that is no multiple of %zu", verb(a),
                 a->bytes, a->bytes);
    stamp now = make_stamp(w, t->place[EMU_THREAD]);
    if (is_shared(w, p))
        watch_shared(w, shared_at(w, p), a, now);
    else
        watch_ranges(w, p, a, now);
}

void emu_watch(const void *p, size_t bytes, bool write, const void *pc, const emu_site *site) {
    watch(p, &(touching){bytes, write, false, pc, site});
}

void emu_atomic_add_u64(const emu_site *site, uint64_t *p, uint64_t v) {
    watch(p, &(touching){sizeof *p, true, true, NULL, site});
    __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

/* Whatever was there: all write the same. */
void emu_raise_flag(const emu_site *site, bool *flag) {
    watch(flag, &(touching){sizeof *flag, true, true, NULL, site});
    __atomic_store_n(flag, true, __ATOMIC_RELAXED);
}

/* ---- the compiler's calls ---- */

#if defined(__SANITIZE_THREAD__)
#define HAS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#define HAS_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define HAS_THREAD_SANITIZER 0
#endif

#if !HAS_THREAD_SANITIZER /* whose library has them: the program is watched then, not the kernels */

#define HOOK(bytes)                                                                                \
    void __tsan_read##bytes(void *p);                                                              \
    void __tsan_read##bytes(void *p) {                                                             \
        emu_watch(p, bytes, false, __builtin_return_address(0), NULL);                             \
    }                                                                                              \
    void __tsan_write##bytes(void *p);                                                             \
    void __tsan_write##bytes(void *p) {                                                            \
        emu_watch(p, bytes, true, __builtin_return_address(0), NULL);                              \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *p);                                                    \
    void __tsan_unaligned_read##bytes(void *p) {                                                   \
        emu_watch(p, bytes, false, __builtin_return_address(0), NULL);                             \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *p);                                                   \
    void __tsan_unaligned_write##bytes(void *p) {                                                  \
        emu_watch(p, bytes, true, __builtin_return_address(0), NULL);                              \
    }
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)

static void watch_span(const void *p, size_t bytes, bool write, const void *pc) {
    for (size_t i = 0; i < bytes; i++) emu_watch((const char *)p + i, 1, write, pc, NULL);
}

void __tsan_read_range(void *p, size_t bytes);
void __tsan_read_range(void *p, size_t bytes) {
    watch_span(p, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes) {
    watch_span(p, bytes, true, __builtin_return_address(0));
}
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    watch_span(from, bytes, false, __builtin_return_address(0));
    watch_span(to, bytes, true, __builtin_return_address(0));
    return memcpy(to, from, bytes);
}
void *__tsan_memset(void *to, int byte, size_t bytes);
void *__tsan_memset(void *to, int byte, size_t bytes) {
    watch_span(to, bytes, true, __builtin_return_address(0));
    return memset(to, byte, bytes);
}
void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc) {
    (void)pc;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
#endif
