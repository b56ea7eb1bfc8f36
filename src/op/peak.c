#include "op/peak.h"

#include <math.h>
#include <unistd.h>

#include "base/clock.h"
#include "dev/cuda.h"
#include "op/cpu/tables.h"

/* Dense products in tensor cores, and fp32 outside them, of one multiprocessor and clock, as NVIDIA's
 * pages on each architecture give them. */
static double flops_per_clock(int major, int minor, bool matrix) {
    if (!matrix) return major == 8 && minor == 0 ? 128 : 256;
    switch (major) {
        case 8: return minor == 0 ? 2048 : 1024;
        case 9: return 4096;
        case 10: return 8192;
        default: return 1024;
    }
}

static double peak_of_gpu(const dev *d, dtype dt) {
    int major = cuda_attribute(d, CU_COMPUTE_MAJOR), minor = cuda_attribute(d, CU_COMPUTE_MINOR);
    double clock = 1e3 * (double)cuda_attribute(d, CU_CLOCK_KHZ);
    return flops_per_clock(major, minor, dt != DT_F32) * clock * cuda_multiprocessors(d);
}

double peak_flops(const dev *d, dtype dt) {
    if (dev_get_kind(d) == DEV_CUDA && !cuda_is_emulated(d)) return peak_of_gpu(d, dt);
    const cpu_kernels *k = cpu_kernels_of(dev_isa(d), dt == DT_BF16 ? DT_BF16 : DT_F32);
    double (*loop)(int threads, int64_t rounds) = dt == DT_BF16 ? k->dot_loop : k->fma_loop;
    enum { ROUNDS = 1 << 14, RUNS = 16 };
    double best = 0;
    for (int i = 0; i < RUNS; i++) {
        int64_t began = clock_now_ns();
        double flops = loop(1, ROUNDS), rate = flops / clock_since_s(began);
        if (rate > best) best = rate;
    }
    return best * dev_threads(d);
}

/* ---- memory ---- */

/* Far above the caches that these threads can reach. Virtual machines report the caches of the
 * whole host, so there is an upper bound. */
static int64_t array_bytes(void) {
    const int64_t least = 64 << 20, most = 256 << 20;
#ifdef _SC_LEVEL3_CACHE_SIZE
    int64_t bytes = 4 * (int64_t)sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
    int64_t bytes = 0;
#endif
    return bytes < least ? least : bytes > most ? most : bytes;
}

/* As much is written as read, and nothing is read only because it will be written. */
static void scale_all(int threads, uint64_t *a, int64_t n) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) a[i] = 3 * a[i];
}

static uint64_t sum_all(int threads, const uint64_t *a, int64_t n) {
    uint64_t sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += a[i];
    return sum;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

typedef struct gpu_copy {
    dev *d;
    char *memory;
    size_t bytes; /* of each half */
} gpu_copy;

static void copy_half(const void *args) {
    const gpu_copy *c = args;
    dev_copy(c->d, c->memory, c->memory + c->bytes, c->bytes);
}

/* Each byte is read and written. */
static status bandwidth_of_gpu(dev *d, double *bytes_per_s, err *e) {
    enum { RUNS = 10 };
    void *memory;
    gpu_copy c = {d, NULL, (size_t)512 << 20};
    TRY(dev_reserve(d, &memory, 2 * c.bytes, "measuring the memory's bandwidth", e));
    c.memory = memory;
    double took = cuda_seconds(d, RUNS, copy_half, &c);
    *bytes_per_s = took > 0 ? 2.0 * (double)c.bytes / took : 0;
    dev_release(d, memory, 2 * c.bytes);
    return dev_check(d, e);
}

status peak_bandwidth(dev *d, double seconds, double *bytes_per_s, err *e) {
    if (dev_get_kind(d) == DEV_CUDA && !cuda_is_emulated(d))
        return bandwidth_of_gpu(d, bytes_per_s, e);
    enum { LEAST_RUNS = 2, MOST_RUNS = 10 };
    int64_t bytes = array_bytes(), n = bytes / (int64_t)sizeof(uint64_t);
    void *memory;
    TRY(dev_reserve(d, &memory, (size_t)bytes, "measuring the memory's bandwidth", e));
    dev_enter(d);
    int threads = dev_threads(d);
    scale_all(threads, memory, n); /* pages exist, and lie near the threads that use them */
    *bytes_per_s = 0;
    int64_t first = clock_now_ns();
    for (int i = 0; i < MOST_RUNS && (i < LEAST_RUNS || clock_since_s(first) < seconds); i++) {
        int64_t began = clock_now_ns();
        scale_all(threads, memory, n);
        *bytes_per_s = larger(*bytes_per_s, 2.0 * (double)bytes / clock_since_s(began));
        began = clock_now_ns();
        volatile uint64_t kept = sum_all(threads, memory, n);
        (void)kept; /* a sum that nobody wants would not be made */
        *bytes_per_s = larger(*bytes_per_s, (double)bytes / clock_since_s(began));
    }
    dev_leave(d);
    dev_release(d, memory, (size_t)bytes);
    return ST_OK;
}

/* ---- caches ---- */

double peak_near_bytes(const dev *d) {
#ifdef _SC_LEVEL2_CACHE_SIZE
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
    long bytes = 0;
#endif
    return (double)(bytes > 0 ? bytes : 1 << 20) * dev_threads(d);
}

/* Bytes per second of reading the first `bytes` again and again: the best of some times. */
static double reading_rate(int threads, const uint64_t *memory, int64_t bytes) {
    enum { TIMES = 5 };
    double best = 0;
    for (int i = 0; i <= TIMES; i++) { /* the first one fetches */
        int64_t began = clock_now_ns();
        volatile uint64_t kept = sum_all(threads, memory, bytes / (int64_t)sizeof *memory);
        (void)kept;
        if (i) best = larger(best, (double)bytes / clock_since_s(began));
    }
    return best;
}

status peak_cache_bytes(dev *d, double *bytes, err *e) {
    enum { SIZES = 32 };
    int64_t all = array_bytes(), at = all;
    double rate[SIZES];
    int n = 0, k = 1, threads = dev_threads(d);
    void *memory;
    *bytes = peak_near_bytes(d);
    TRY(dev_reserve(d, &memory, (size_t)all, "measuring caches", e));
    dev_enter(d);
    scale_all(threads, memory, all / (int64_t)sizeof(uint64_t));
    for (; (double)at > *bytes && n < SIZES; at /= 2) rate[n++] = reading_rate(threads, memory, at);
    dev_leave(d);
    dev_release(d, memory, (size_t)all);
    /* Where the rate is in the middle of that of the smallest and that of all, between two sizes by logarithms. */
    double middle = n ? sqrt(rate[0] * rate[n - 1]) : 0;
    while (k < n && rate[k] < middle) k++;
    if (k >= n || rate[k] <= rate[k - 1]) return ST_OK;
    *bytes = (double)(all >> k) * exp2(log(rate[k] / middle) / log(rate[k] / rate[k - 1]));
    return ST_OK;
}
