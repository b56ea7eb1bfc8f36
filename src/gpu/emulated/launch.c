/* Grids, and what kernels may touch meanwhile. Blocks are shared out over the host's threads in an
 * order that the seed draws. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "gpu/emulated/device.h"

emu_device *emu_device_new(uint64_t seed, int threads) {
    emu_device *d = xcalloc(1, sizeof *d);
    d->seed = seed;
    d->threads = threads;
    d->worker = xcalloc((size_t)threads, sizeof(emu_worker *));
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

static void drop_scope(emu_device *d) {
    for (int i = 0; i < d->ranges; i++) free(d->range[i].cell);
    d->ranges = 0;
    d->in_scope = false;
}

/* ATHANOR_CUDA_GRIDS=FILE gets a line for each kernel, for tools/cuda_registers.sh. */
static void write_grids(const emu_device *d) {
    const char *path = getenv("ATHANOR_CUDA_GRIDS");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    for (int i = 0; i < d->grids; i++)
        fprintf(f, "%s %u %u\n", d->grid[i].kernel->name, d->grid[i].threads,
                d->grid[i].shared_bytes);
    fclose(f);
}

static void note_grid(emu_device *d, const gpu_kernel *k, const gpu_grid *g) {
    int i = 0;
    while (i < d->grids && d->grid[i].kernel != k) i++;
    if (i == d->grids) VEC_PUSH(d->grid, d->grids, d->grids_cap, (emu_grid){.kernel = k});
    emu_grid *most = &d->grid[i];
    if (most->threads < g->threads) most->threads = g->threads;
    if (most->shared_bytes < g->shared_bytes) most->shared_bytes = g->shared_bytes;
}

void emu_device_free(emu_device *d) {
    if (!d) return;
    write_grids(d);
    free(d->grid);
    drop_scope(d);
    for (int i = 0; i < d->threads; i++) emu_worker_free(d->worker[i]);
    free(d->worker);
    free(d->memory);
    free(d->history.span);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

const char *emu_fault(const emu_device *d) {
    return __atomic_load_n(&d->broken, __ATOMIC_ACQUIRE) ? d->fault : NULL;
}

/* ---- what may be touched ---- */

static emu_range range_of(const gpu_range *is) {
    emu_range r = {.is = *is};
    r.unit_bytes = is->item_bytes < 4 ? is->item_bytes : 4;
    r.row_units = is->row_bytes / r.unit_bytes;
    r.bytes = is->rows > 0 ? (is->rows - 1) * is->stride + is->row_bytes : 0;
    return r;
}

void emu_memory_add(emu_device *d, const void *at, size_t bytes) {
    gpu_range all = {"memory", at, 1, (int64_t)bytes, (int64_t)bytes, GPU_UPDATE, 1};
    VEC_PUSH(d->memory, d->memories, d->memory_cap, range_of(&all));
}

void emu_memory_remove(emu_device *d, const void *at) {
    for (int i = 0; i < d->memories; i++) {
        if (d->memory[i].is.at != at) continue;
        emu_history_forget(&d->history, at, d->memory[i].bytes);
        d->memory[i] = d->memory[--d->memories];
    }
}

static bool is_memory(const emu_device *d, const char *at) {
    for (int i = 0; i < d->memories; i++)
        if (at >= (const char *)d->memory[i].is.at &&
            at < (const char *)d->memory[i].is.at + d->memory[i].bytes)
            return true;
    return false;
}

emu_clash emu_use_memory(emu_device *d, const char *who, const void *at, int64_t bytes,
                         bool write) {
    if (!d->now || bytes <= 0 || !is_memory(d, at)) return (emu_clash){0};
    return emu_history_use(&d->history, d->now, who, at, bytes, write);
}

void emu_move_memory(emu_device *d, const char *who, const void *at, int64_t bytes, bool write) {
    char text[EMU_FAULT_MAX];
    emu_clash c = emu_use_memory(d, who, at, bytes, write);
    if (!c.who) return;
    snprintf(
        text, sizeof text,
        "%s %s byte %lld of %lld, which %s has %s in another stream, and no event orders the two",
        who, write ? "writes" : "reads", (long long)(c.from - (const char *)at), (long long)bytes,
        c.who, c.wrote ? "written" : "read");
    emu_keep_fault(d, text);
}

static bool is_written_beneath(const emu_device *d, const emu_range *r) {
    const char *at = r->is.at;
    for (int i = 0; i < d->ranges && !r->cell; i++) {
        const emu_range *q = &d->range[i];
        const char *from = q->is.at;
        if (q->cell && from < at + r->bytes && at < from + q->bytes) return true;
    }
    return false;
}

void emu_scope_begin(emu_device *d, const char *what, const gpu_range *ranges, int n) {
    CHECK(n <= EMU_MOST_RANGES, "a scope of %d ranges", n);
    drop_scope(d);
    d->in_scope = true;
    d->what = what;
    for (int i = 0; i < n; i++) {
        emu_range r = range_of(&ranges[i]);
        r.clash = emu_use_memory(d, what, r.is.at, r.bytes, r.is.access != GPU_READ);
        if (r.is.access != GPU_READ)
            r.cell = xcalloc((size_t)(r.is.rows * r.row_units) + 1, sizeof *r.cell);
        d->range[d->ranges++] = r;
    }
    for (int i = 0; i < n; i++)
        d->range[i].is_written_beneath = is_written_beneath(d, &d->range[i]);
}

static void look_at_written(emu_device *d, const emu_range *r) {
    char text[EMU_FAULT_MAX];
    for (int64_t i = 0; i < r->is.rows * r->row_units; i++) {
        if (r->cell[i].writer != 0) continue;
        snprintf(text, sizeof text, "%s: row %lld, number %lld of %s was never written", d->what,
                 (long long)(i / r->row_units),
                 (long long)(i % r->row_units * r->unit_bytes / r->is.item_bytes), r->is.name);
        emu_keep_fault(d, text);
        return;
    }
}

void emu_scope_end(emu_device *d) {
    for (int i = 0; i < d->ranges && !d->broken; i++)
        if (d->range[i].is.access == GPU_WRITE) look_at_written(d, &d->range[i]);
    drop_scope(d);
}

/* ---- a grid ---- */

static bool grid_is_legal(emu_device *d, const gpu_kernel *k, const gpu_grid *g) {
    char text[EMU_FAULT_MAX];
    if (g->threads > 0 && g->threads <= k->most_threads && g->threads % GPU_WARP == 0 && g->x > 0 &&
        g->y > 0 && g->z > 0 && g->x <= INT32_MAX && g->y <= GPU_MOST_GRID_YZ &&
        g->z <= GPU_MOST_GRID_YZ && g->shared_bytes <= k->most_shared_bytes)
        return true;
    snprintf(
        text, sizeof text,
        "kernel %s cannot have a grid of %u x %u x %u blocks with %u threads (most: %u) and %u "
        "bytes of shared memory",
        k->name, g->x, g->y, g->z, g->threads, k->most_threads, g->shared_bytes);
    emu_keep_fault(d, text);
    return false;
}

static void run_block(emu_device *d, const gpu_kernel *k, const gpu_grid *g, const void *args,
                      uint64_t number) {
    int me = omp_get_thread_num();
    if (!d->worker[me]) d->worker[me] = emu_worker_new(d, d->seed + (uint64_t)me);
    emu_worker *w = d->worker[me];
    uint64_t per_z = (uint64_t)g->x * g->y;
    uint32_t at[3] = {(uint32_t)(number % g->x), (uint32_t)(number % per_z / g->x),
                      (uint32_t)(number / per_z)};
    w->kernel = k, w->grid = g, w->args = args;
    emu_block_run(w, at, (uint32_t)number);
}

void emu_launch(emu_device *d, const gpu_kernel *k, const gpu_grid *g, const void *args) {
    if (d->broken || !grid_is_legal(d, k, g)) return;
    note_grid(d, k, g);
    uint64_t blocks = (uint64_t)g->x * g->y * g->z;
    rng_key key = rng_key_numbered(d->seed, d->launches++);
    int threads = blocks < (uint64_t)d->threads ? (int)blocks : d->threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (uint64_t i = 0; i < blocks; i++)
        if (!emu_fault(d)) run_block(d, k, g, args, rng_permute(key, blocks, i));
}
