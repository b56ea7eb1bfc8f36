/* athanor doctor burnin: products, memory and copies with known results, on every core and every GPU.
 * A core or a GPU fails where a result is wrong, where it ends slower than it began, and where it is
 * slower than the best of its kind. */
#include <stdio.h>
#include <stdlib.h>

#include "app/doctor.h"
#include "base/arena.h"
#include "op/burnin.h"

/* What is between runs of one healthy device is a few percent, and clocks that settle take up to ten. */
static const double LEAST_SHARE = 0.85;
enum { MOST_CPUS = 1024, MOST_GPUS = 64 };

static double fastest(const burnin_result *r) {
    return r->first_flops > r->last_flops ? r->first_flops : r->last_flops;
}

/* What is wrong with the speed, for a detail; false: nothing. best: of its kind. */
static bool is_slow(const burnin_result *r, double best, char *text, size_t size) {
    double of_first = r->first_flops > 0 ? r->last_flops / r->first_flops : 1;
    double of_best = best > 0 ? fastest(r) / best : 1;
    text[0] = '\0';
    if (of_first < LEAST_SHARE)
        snprintf(text, size, "; in the last second it has %.0f %% of the speed of its first",
                 100 * of_first);
    else if (of_best < LEAST_SHARE)
        snprintf(text, size, "; it has %.0f %% of the speed of the best one", 100 * of_best);
    return text[0] != '\0';
}

static double best_of(const burnin_result *r, int n) {
    double best = 0;
    for (int i = 0; i < n; i++)
        if (fastest(&r[i]) > best) best = fastest(&r[i]);
    return best;
}

/* ---- cores ---- */

static void check_core(doctor_checks *c, int cpu, const burnin_result *r, double best) {
    char name[32], slow[128];
    snprintf(name, sizeof name, "core %d", cpu);
    if (r->wrong[0])
        doctor_check(c, name, false, "%s", r->wrong);
    else if (is_slow(r, best, slow, sizeof slow))
        doctor_check(c, name, false, "%.1f GFLOP/s%s", r->last_flops * 1e-9, slow);
}

/* Those that are well are one line. */
static status check_cores(double seconds, doctor_checks *c, err *e) {
    int *cpu = xcalloc(MOST_CPUS, sizeof *cpu), n = dev_list_processors(cpu, MOST_CPUS);
    burnin_result *r = xcalloc((size_t)n, sizeof *r);
    status st = burnin_cores(seconds, cpu, n, r, e);
    if (st == ST_OK) {
        int failed = c->failed;
        int64_t products = 0;
        double best = best_of(r, n);
        for (int i = 0; i < n; i++) {
            check_core(c, cpu[i], &r[i], best);
            products += r[i].products;
        }
        doctor_check(c, "cores", c->failed == failed,
                     "%ld products on %d, the best with %.1f GFLOP/s", (long)products, n,
                     best * 1e-9);
    }
    free(r);
    free(cpu);
    return st;
}

static void check_filled(doctor_checks *c, const char *name, const burnin_result *r) {
    if (r->wrong[0])
        doctor_check(c, name, false, "%s", r->wrong);
    else
        doctor_check(c, name, true, "%.1f MiB filled and read back", r->memory_bytes / (1 << 20));
}

static status check_memory(double seconds, doctor_checks *c, err *e) {
    dev *d;
    burnin_result r = {0};
    TRY(dev_open(&d, DEV_CPU, 0, e));
    status st = burnin_memory(d, seconds, &r, e);
    if (st == ST_OK) check_filled(c, "memory", &r);
    dev_close(d);
    return st;
}

/* ---- GPUs ---- */

typedef struct gpu_burn {
    burnin_result products, memory, copies;
} gpu_burn;

static status burn_gpu(int number, double seconds, gpu_burn *g, err *e) {
    dev *d;
    TRY(dev_open_gpu(&d, number, e));
    status st = burnin_products(d, seconds, &g->products, e);
    if (st == ST_OK) st = burnin_memory(d, seconds, &g->memory, e);
    if (st == ST_OK) st = burnin_copies(d, &g->copies, e);
    dev_close(d);
    return st;
}

static void check_products(doctor_checks *c, int number, const burnin_result *r, double best) {
    char name[32], slow[128];
    snprintf(name, sizeof name, "GPU %d products", number);
    if (r->wrong[0])
        doctor_check(c, name, false, "%s", r->wrong);
    else if (r->first_flops <= 0)
        doctor_check(c, name, true, "%ld; the emulated GPU has no speed", (long)r->products);
    else
        doctor_check(c, name, !is_slow(r, best, slow, sizeof slow), "%ld, %.1f TFLOP/s%s",
                     (long)r->products, r->last_flops * 1e-12, slow);
}

static void check_copies(doctor_checks *c, int number, const burnin_result *r) {
    char name[32];
    snprintf(name, sizeof name, "GPU %d copies", number);
    if (r->wrong[0])
        doctor_check(c, name, false, "%s", r->wrong);
    else if (r->in_bytes_per_s <= 0)
        doctor_check(c, name, true, "to it, within it, and back");
    else
        doctor_check(c, name, true, "GB/s: to it %.1f, from it %.1f, within it %.1f",
                     r->in_bytes_per_s * 1e-9, r->out_bytes_per_s * 1e-9,
                     r->within_bytes_per_s * 1e-9);
}

/* One after the other: they may share their power and the host's memory. A card that is lost fails,
 * and the others go on. */
static void check_gpus(double seconds, doctor_checks *c) {
    int n = dev_gpus();
    n = n < MOST_GPUS ? n : MOST_GPUS;
    gpu_burn *g = xcalloc((size_t)(n + 1), sizeof *g);
    burnin_result *products = xcalloc((size_t)(n + 1), sizeof *products);
    err *lost = xcalloc((size_t)(n + 1), sizeof *lost);
    for (int i = 0; i < n; i++) {
        if (burn_gpu(i, seconds, &g[i], &lost[i]) == ST_OK) lost[i].message[0] = '\0';
        products[i] = g[i].products;
    }
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "GPU %d", i);
        if (lost[i].message[0]) doctor_check(c, name, false, "%s", lost[i].message);
        if (lost[i].message[0]) continue;
        check_products(c, i, &products[i], best_of(products, n));
        snprintf(name, sizeof name, "GPU %d memory", i);
        check_filled(c, name, &g[i].memory);
        check_copies(c, i, &g[i].copies);
    }
    free(lost);
    free(products);
    free(g);
}

status doctor_burnin(double seconds, doctor_checks *c, err *e) {
    TRY(check_cores(seconds, c, e));
    TRY(check_memory(seconds, c, e));
    check_gpus(seconds, c);
    return ST_OK;
}
