/* What all devices have in common: kinds by name, opening, the choice of threads and instruction
 * set; and the way from a call to the kind's function. What the machine and this process hold is in
 * memory.c. */
#include "dev/dev_int.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/arena.h"

static const dev_class *const classes[DEV_KINDS] = {
    [DEV_CPU] = &dev_class_cpu,
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

/* What ATHANOR_DEVICE names, else the CPU. */
static status default_kind(dev_kind *out, err *e) {
    const char *wish = getenv("ATHANOR_DEVICE");
    char names[64];
    *out = DEV_CPU;
    if (!wish || !*wish || find_kind(wish, out)) return ST_OK;
    err_at(e, ST_USAGE, "ATHANOR_DEVICE", "ATHANOR_DEVICE is \"%s\", which is not a device", wish);
    return err_hint(e, "use one of %s, or unset it", kind_names(names));
}

status dev_find_kind(const char *name, dev_kind *out, err *e) {
    char names[64];
    if (!name || strcmp(name, "auto") == 0) return default_kind(out, e);
    if (find_kind(name, out)) return ST_OK;
    err_set(e, ST_USAGE, "there is no device \"%s\"", name);
    return err_hint(e, "use one of auto, %s", kind_names(names));
}

/* ---- threads and instruction set ---- */

static const char *const ISA_NAMES[] = {
    [ISA_BASE] = "base",
    [ISA_AVX2] = "avx2",
    [ISA_AVX512] = "avx512",
    [ISA_AVX512_BF16] = "avx512_bf16",
};

const char *cpu_isa_name(cpu_isa isa) {
    return ISA_NAMES[isa];
}

#if defined(__x86_64__)
/* Features for which not every compiler's __builtin_cpu_supports has a name, straight from CPUID.
 */
static bool has_f16c_movbe_lzcnt(void) {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx >> 29 & 1) || !(ecx >> 22 & 1))
        return false;
    return __get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx) && (ecx >> 5 & 1);
}

/* The brand string is 48 bytes in three leaves; family and model are extended as CPUID leaf 1 says.
 */
void dev_machine_name(char out[DEV_NAME_MAX]) {
    unsigned r[12] = {0}, eax = 0, ebx, ecx, edx;
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    char brand[sizeof r + 1] = {0};
    memcpy(brand, r, sizeof r);
    size_t n = strlen(brand);
    while (n > 0 && brand[n - 1] == ' ') brand[--n] = '\0';
    __get_cpuid(1, &eax, &ebx, &ecx, &edx);
    unsigned family = (eax >> 8 & 15) + (eax >> 20 & 255);
    unsigned model = (eax >> 4 & 15) | (eax >> 12 & 0xf0);
    snprintf(out, DEV_NAME_MAX, "%s (family %u model %u)", brand, family, model);
}

static bool has_avx512_bf16(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1);
}

/* Kernels are compiled for the levels x86-64-v3 and v4, so all of a level must be there.
 * __builtin_cpu_supports also asks whether the system saves the wide registers. */
static cpu_isa detect_isa(void) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
        !has_f16c_movbe_lzcnt())
        return ISA_BASE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return ISA_AVX2;
    return has_avx512_bf16() ? ISA_AVX512_BF16 : ISA_AVX512;
}
#else
void dev_machine_name(char out[DEV_NAME_MAX]) {
    struct utsname u;
    snprintf(out, DEV_NAME_MAX, "%s", uname(&u) == 0 ? u.machine : "unknown");
}

static cpu_isa detect_isa(void) {
    return ISA_BASE;
}
#endif

cpu_isa dev_machine_isa(void) {
    return detect_isa();
}

/* The machine's instruction set, lowered to what ATHANOR_ISA names; a higher one is not an error,
 * so that one setting serves machines of several kinds. */
static status choose_isa(cpu_isa *isa, err *e) {
    *isa = detect_isa();
    const char *wish = getenv("ATHANOR_ISA");
    if (!wish || !*wish) return ST_OK;
    for (int i = 0; i < ARRAY_LEN(ISA_NAMES); i++) {
        if (strcmp(wish, ISA_NAMES[i]) != 0) continue;
        if ((cpu_isa)i < *isa) *isa = (cpu_isa)i;
        return ST_OK;
    }
    err_at(e, ST_USAGE, "ATHANOR_ISA", "ATHANOR_ISA is \"%s\", which is not an instruction set",
           wish);
    return err_hint(e, "use base, avx2, avx512 or avx512_bf16, or unset it");
}

/* Cores this process may run on, at most OMP_NUM_THREADS (its first number, as OpenMP reads it). */
static int default_threads(void) {
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                            : (int)sysconf(_SC_NPROCESSORS_ONLN);
    const char *text = getenv("OMP_NUM_THREADS");
    long limit = text ? strtol(text, NULL, 10) : 0;
    if (limit > 0 && limit < cores) cores = (int)limit;
    return cores > 0 ? cores : 1;
}

/* "0,32" or "0-1": whether the list has an allowed processor below `cpu`. */
static bool has_lower(const char *list, int cpu, const cpu_set_t *allowed) {
    for (char *end; *list; list = *end ? end + 1 : end) {
        long first = strtol(list, &end, 10), last = first;
        if (end == list) return false;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long i = first; i >= 0 && i <= last && i < cpu; i++)
            if (CPU_ISSET((size_t)i, allowed)) return true;
    }
    return false;
}

int dev_count_cores(const char *dir, const cpu_set_t *allowed) {
    int cores = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char path[256], list[256] = "";
        if (!CPU_ISSET((size_t)cpu, allowed)) continue;
        snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", dir, cpu);
        FILE *f = fopen(path, "r");
        if (f && !fgets(list, sizeof list, f)) list[0] = '\0';
        if (f) fclose(f);
        cores += !has_lower(list, cpu, allowed);
    }
    return cores;
}

int dev_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return default_threads();
    return dev_count_cores("/sys/devices/system/cpu", &set);
}

/* ---- opening ---- */

static status open_on(dev **out, dev_kind kind, const dev_class *class, int threads, err *e) {
    *out = NULL;
    cpu_isa isa;
    TRY(choose_isa(&isa, e));
    dev *d = xcalloc(1, sizeof *d);
    d->kind = kind;
    d->class = class;
    d->isa = isa;
    d->threads = threads > 0 ? threads : default_threads();
    if (class->open) class->open(d);
    *out = d;
    return ST_OK;
}

status dev_open(dev **out, dev_kind kind, int threads, err *e) {
    TRY(open_on(out, kind, classes[kind], threads, e));
    /* Libraries that share the pool ask OpenMP, not the dev. */
    omp_set_num_threads((*out)->threads);
    return ST_OK;
}

status dev_open_meta(dev **out, dev_kind of, int threads, err *e) {
    return open_on(out, of, &class_meta, threads, e);
}

void dev_limit(dev *d, cpu_isa most, int threads) {
    if (most < d->isa) d->isa = most;
    if (threads > 0) d->threads = threads;
    if (!dev_is_meta(d)) omp_set_num_threads(d->threads);
}

void dev_close(dev *d) {
    if (!d) return;
    if (d->class->close) d->class->close(d);
    if (d->cache && d->destroy_cache) d->destroy_cache(d->cache);
    free(d);
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
    if (!d->cache) {
        d->cache = create(d);
        d->destroy_cache = destroy;
    }
    return d->cache;
}

/* ---- memory ---- */

status dev_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) {
    *ptr = NULL;
    if (!d->class->reserve) return ST_OK;
    return d->class->reserve(d, ptr, bytes, what, e);
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

void dev_copy(dev *d, void *to, const void *from, size_t bytes) {
    if (d->class->copy) d->class->copy(d, to, from, bytes);
}

void dev_fill(dev *d, void *at, int byte, size_t bytes) {
    if (d->class->fill) d->class->fill(d, at, byte, bytes);
}

void dev_launch(dev *d, dev_kernel kernel, const void *args, size_t bytes) {
    if (d->class->launch) d->class->launch(d, kernel, args, bytes);
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

void dev_room_free(dev_room *r) {
    free(r->host);
    *r = (dev_room){0};
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
