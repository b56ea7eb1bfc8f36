/* Devices: opening, the choice of threads and instruction set, memory reservations. What the
 * machine and this process hold is in memory.c.
 *
 * A reservation is one private anonymous mapping of exactly the page-rounded length. The kernel
 * gives pages when they are first touched, so the touched part shows what a program really used. */
#include "dev/dev.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/arena.h"

struct dev {
    dev_kind kind;
    int threads;
    cpu_isa isa;
    void *cache;
    void (*destroy_cache)(void *cache);
};

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
    err_set(e, ST_USAGE, "ATHANOR_ISA is \"%s\", which is not an instruction set", wish);
    err_hint(e, "use base, avx2, avx512 or avx512_bf16, or unset it");
    err_where(e, "ATHANOR_ISA");
    return ST_USAGE;
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

status dev_open(dev **out, dev_kind kind, int threads, err *e) {
    *out = NULL;
    cpu_isa isa;
    TRY(choose_isa(&isa, e));
    dev *d = xcalloc(1, sizeof *d);
    d->kind = kind;
    d->isa = isa;
    d->threads = threads > 0 ? threads : default_threads();
    /* Libraries that share the pool ask OpenMP, not the dev. */
    if (kind == DEV_CPU) omp_set_num_threads(d->threads);
    *out = d;
    return ST_OK;
}

void dev_close(dev *d) {
    if (!d) return;
    if (d->cache && d->destroy_cache) d->destroy_cache(d->cache);
    free(d);
}

dev_kind dev_get_kind(const dev *d) {
    return d->kind;
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

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t round_to_page(size_t bytes) {
    size_t page = page_bytes();
    return (bytes + page - 1) / page * page;
}

static status no_memory(size_t bytes, const char *what, err *e) {
    err_set(e, ST_MEMORY, "%s needs %.1f MB, but this machine has %.1f MB available of %.1f MB",
            what, (double)bytes * 1e-6, (double)dev_machine_available_bytes() * 1e-6,
            (double)dev_machine_total_bytes() * 1e-6);
    return err_where(e, "%s", what);
}

status dev_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) {
    *ptr = NULL;
    if (d->kind == DEV_META) return ST_OK;
    if (bytes > SIZE_MAX / 4 || bytes > dev_machine_available_bytes())
        return no_memory(bytes, what, e);
    size_t length = bytes ? round_to_page(bytes) : page_bytes();
    void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return no_memory(bytes, what, e);
    /* Huge pages would be resident beyond what was touched and blur the comparison with the plan.
     * The call fails harmlessly where the kernel has none. */
    (void)madvise(p, length, MADV_NOHUGEPAGE);
    *ptr = p;
    return ST_OK;
}

void dev_release(dev *d, void *ptr, size_t bytes) {
    (void)d;
    if (ptr) munmap(ptr, bytes ? round_to_page(bytes) : page_bytes());
}

enum { SCAN_PAGES = 4096 };

/* One past the highest touched page among n <= SCAN_PAGES pages, 0 for none. The page map also sees
 * pages that were swapped out; where the system has none, mincore answers for resident ones. */
static size_t highest_touched(int pagemap_fd, const char *start, size_t n) {
    size_t page = page_bytes();
    uint64_t entries[SCAN_PAGES];
    off_t at = (off_t)((uintptr_t)start / page * sizeof entries[0]);
    ssize_t want = (ssize_t)(n * sizeof entries[0]);
    if (pagemap_fd >= 0 && pread(pagemap_fd, entries, (size_t)want, at) == want) {
        while (n > 0 && !(entries[n - 1] >> 62)) n--; /* bit 63 present, bit 62 swapped */
        return n;
    }
    unsigned char resident[SCAN_PAGES];
    if (mincore((void *)(uintptr_t)start, n * page, resident) != 0) return n;
    while (n > 0 && !(resident[n - 1] & 1)) n--;
    return n;
}

size_t dev_high_water_bytes(const void *ptr, size_t bytes) {
    if (!ptr) return 0;
    size_t page = page_bytes(), end = round_to_page(bytes) / page, top = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    while (end > 0 && top == 0) {
        size_t begin = end > SCAN_PAGES ? end - SCAN_PAGES : 0;
        size_t found = highest_touched(fd, (const char *)ptr + begin * page, end - begin);
        if (found) top = begin + found;
        end = begin;
    }
    if (fd >= 0) close(fd);
    return top * page;
}

/* ---- what happens on a device ---- */

void dev_write(dev *d, void *to, const void *host, size_t bytes) {
    (void)d;
    memcpy(to, host, bytes);
}

void dev_read(dev *d, void *host, const void *from, size_t bytes) {
    (void)d;
    memcpy(host, from, bytes);
}

void dev_copy(dev *d, void *to, const void *from, size_t bytes) {
    (void)d;
    memmove(to, from, bytes);
}

void dev_fill(dev *d, void *at, int byte, size_t bytes) {
    (void)d;
    memset(at, byte, bytes);
}

void dev_sync(dev *d) {
    (void)d;
}

void *dev_borrow(dev *d, void *at, size_t bytes, bool contents, dev_room *room) {
    (void)d, (void)bytes, (void)contents, (void)room;
    return at;
}

const void *dev_look(dev *d, const void *at, size_t bytes, dev_room *room) {
    return dev_borrow(d, (void *)(uintptr_t)at, bytes, true, room);
}

void dev_put_back(dev *d, void *at, const void *host, size_t bytes) {
    (void)d, (void)at, (void)host, (void)bytes;
}

void dev_room_free(dev_room *r) {
    free(r->host);
    *r = (dev_room){0};
}
