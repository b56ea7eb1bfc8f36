/* One block. Its threads are fibers that run until they wait; which of the ready ones goes on is
 * drawn. A barrier opens when all live threads wait at it; who waits elsewhere then, or has ended,
 * has gone another way: that is a fault. Lanes of a warp meet in the same manner. */
#include "gpu/emulated/block.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

_Thread_local emu_worker *emu_worker_now;

uint32_t emu_here(emu_index i) {
    return emu_worker_now->now->place[i];
}

emu_worker *emu_worker_new(emu_device *d, uint64_t seed) {
    emu_worker *w = xcalloc(1, sizeof *w);
    w->device = d;
    w->random = seed;
    w->thread = xcalloc(GPU_MOST_THREADS, sizeof *w->thread);
    w->shared = xmalloc(EMU_SHARED_BYTES);
    w->shared_cell = xcalloc(EMU_SHARED_BYTES / 2, sizeof *w->shared_cell);
    w->origin = xcalloc(EMU_SHARED_BYTES / 16, sizeof *w->origin);
    return w;
}

void emu_worker_free(emu_worker *w) {
    if (!w) return;
    for (int i = 0; i < GPU_MOST_THREADS; i++) fiber_free(&w->thread[i].fiber);
    free(w->thread);
    free(w->shared);
    free(w->shared_cell);
    free(w->origin);
    free(w);
}

/* ---- the order of threads ---- */

static uint32_t draw(emu_worker *w, uint32_t n) {
    w->random = mix64(w->random + 0x9e3779b97f4a7c15u);
    return (uint32_t)((w->random >> 32) * n >> 32);
}

static void make_ready(emu_worker *w, emu_thread *t) {
    t->waits = EMU_RUNS;
    w->ready[w->n_ready++] = t->place[EMU_THREAD];
}

static emu_thread *take_ready(emu_worker *w) {
    uint32_t i = draw(w, w->n_ready), t = w->ready[i];
    w->ready[i] = w->ready[--w->n_ready];
    return &w->thread[t];
}

static bool is_one_barrier(const emu_worker *w) {
    uint32_t i = 1;
    while (i < w->grid->threads && w->thread[i].site->line == w->thread[0].site->line) i++;
    return i == w->grid->threads;
}

static void open_block_barrier(emu_worker *w) {
    w->epoch++;
    w->n_at_block = 0;
    for (uint32_t i = 0; i < w->grid->threads; i++) make_ready(w, &w->thread[i]);
}

/* Nobody is ready, but not all have ended or wait at one barrier: names one who waits, and one who is not there. */
static _Noreturn void fail_divergent(emu_worker *w) {
    emu_thread *waits = NULL, *other = NULL;
    for (uint32_t i = 0; i < w->grid->threads && !waits; i++)
        if (w->thread[i].waits != EMU_ENDED) waits = &w->thread[i];
    for (uint32_t i = 0; i < w->grid->threads && !other; i++)
        if (w->thread[i].waits == EMU_ENDED || w->thread[i].site->line != waits->site->line)
            other = &w->thread[i];
    w->now = waits;
    if (other && other->waits == EMU_ENDED)
        emu_fail(NULL, waits->site, "waits at %s, but thread %u has ended", waits->site->what,
                 other->place[EMU_THREAD]);
    emu_fail(NULL, waits->site, "waits at %s, but thread %u waits at line %d", waits->site->what,
             other ? other->place[EMU_THREAD] : 0, other ? other->site->line : 0);
}

static void run_thread(void *arg);

/* The running thread stops here, and another goes on; home when all have ended. */
static void go_on(emu_worker *w) {
    fiber *from = w->now ? &w->now->fiber : &w->home;
    if (w->n_ready == 0 && w->n_live > 0) {
        if (w->n_at_block != w->grid->threads || !is_one_barrier(w)) fail_divergent(w);
        open_block_barrier(w);
    }
    if (w->n_live == 0) {
        w->now = NULL;
        fiber_switch(from, &w->home, NULL, NULL);
        return;
    }
    w->now = take_ready(w);
    if (&w->now->fiber != from) fiber_switch(from, &w->now->fiber, run_thread, w);
}

/* A fiber that has ended goes on as the same thread of the next block: to begin one costs several
 * system calls. */
static void run_thread(void *arg) {
    emu_worker *w = arg;
    for (;;) {
        w->kernel->emulated(w->args);
        emu_thread *t = w->now;
        if (t->copies > 0) emu_fail(NULL, &t->copy[0].site, "ends before its copies have arrived");
        t->waits = EMU_ENDED;
        w->n_live--;
        go_on(w);
    }
}

/* ---- a block ---- */

static void set_up(emu_worker *w, const uint32_t block[3]) {
    const gpu_grid *g = w->grid;
    w->n_ready = w->n_at_block = 0;
    w->n_live = g->threads;
    w->arrays = 0;
    w->shared_used = w->shared_asked = 0;
    w->now = NULL;
    for (uint32_t i = 0; i < g->threads / GPU_WARP; i++) w->warp[i].arrived = 0;
    for (uint32_t i = 0; i < g->threads; i++) {
        emu_thread *t = &w->thread[i];
        const uint32_t place[EMU_INDICES] = {i, g->threads, block[0], block[1], block[2]};
        memcpy(t->place, place, sizeof place);
        t->copies = t->groups = 0;
        make_ready(w, t);
    }
}

void emu_block_run(emu_worker *w, const uint32_t block[3], uint32_t number) {
    w->block_number = number;
    w->epoch = 1;
    emu_watch_forget_shared(w);
    set_up(w, block);
    emu_worker_now = w;
    go_on(w);
    emu_worker_now = NULL;
}

/* ---- shared memory ---- */

/* Of the dynamic memory counts what the driver was told that launches may ask for: it refuses that, and so more than
 * 48 KB, where it does not fit beside the arrays. */
void *emu_shared(const emu_site *site) {
    emu_worker *w = emu_worker_now;
    for (int i = 0; i < w->arrays; i++)
        if (w->array[i].site == site) return w->shared + w->array[i].at;
    uint32_t bytes = site->bytes ? site->bytes : w->grid->shared_bytes;
    uint32_t at = (w->shared_used + EMU_FENCE_BYTES + 127) / 128 * 128;
    w->shared_asked += site->bytes ? (site->bytes + 15) / 16 * 16 : w->kernel->most_shared_bytes;
    if (w->arrays == EMU_MOST_SHARED || w->shared_asked > GPU_MOST_SHARED_BYTES)
        emu_fail(NULL, site, "makes it %u bytes of shared memory, and there are %d",
                 w->shared_asked, GPU_MOST_SHARED_BYTES);
    w->array[w->arrays++] = (emu_array){site, at, bytes};
    w->shared_used = at + bytes;
    return w->shared + at;
}

/* ---- what threads do together ---- */

void emu_sync_block(const emu_site *site) {
    emu_worker *w = emu_worker_now;
    w->now->waits = EMU_AT_BLOCK;
    w->now->site = site;
    w->n_at_block++;
    go_on(w);
}

const uint32_t *emu_warp_join(const emu_site *site, const uint32_t *in, int n, emu_together do_it) {
    emu_worker *w = emu_worker_now;
    emu_thread *t = w->now;
    emu_warp *warp = &w->warp[t->place[EMU_THREAD] / GPU_WARP];
    uint32_t l = t->place[EMU_THREAD] % GPU_WARP, first = t->place[EMU_THREAD] - l;
    if (n > 0) memcpy(warp->in[l], in, sizeof *in * (size_t)n);
    t->site = site;
    warp->arrived |= 1u << l;
    if (warp->arrived != UINT32_MAX) {
        t->waits = EMU_AT_WARP;
        go_on(w);
        return warp->out[l];
    }
    for (uint32_t i = first; i < first + GPU_WARP; i++) {
        if (w->thread[i].site->line != site->line)
            emu_fail(NULL, site, "does %s, but thread %u waits at line %d", site->what, i,
                     w->thread[i].site->line);
        if (i != first + l) make_ready(w, &w->thread[i]);
    }
    warp->arrived = 0;
    if (do_it) do_it(warp, site);
    return warp->out[l];
}

/* Only this orders accesses of memory; shuffles, votes and matrix instructions do not (CUDA programming guide). */
static void do_meet(emu_warp *w, const emu_site *site) {
    (void)site;
    w->epoch++;
}

void emu_sync_warp(const emu_site *site) {
    emu_warp_join(site, NULL, 0, do_meet);
}

static void do_shuffle(emu_warp *w, const emu_site *site) {
    (void)site;
    for (int i = 0; i < GPU_WARP; i++) w->out[i][0] = w->in[w->in[i][1] % GPU_WARP][0];
}

uint32_t emu_shuffle(const emu_site *site, uint32_t v, uint32_t from) {
    uint32_t in[2] = {v, from};
    return emu_warp_join(site, in, 2, do_shuffle)[0];
}

static void do_ballot(emu_warp *w, const emu_site *site) {
    (void)site;
    uint32_t bits = 0;
    for (int i = 0; i < GPU_WARP; i++) bits |= (w->in[i][0] & 1u) << i;
    for (int i = 0; i < GPU_WARP; i++) w->out[i][0] = bits;
}

uint32_t emu_ballot(const emu_site *site, bool bit) {
    uint32_t in = bit;
    return emu_warp_join(site, &in, 1, do_ballot)[0];
}

/* ---- memory ---- */

emu_4 emu_load16(const emu_site *site, const void *p) {
    emu_4 v;
    emu_watch(p, 16, false, NULL, site);
    memcpy(&v, p, sizeof v);
    return v;
}

uint64_t emu_load8(const emu_site *site, const void *p) {
    uint64_t v;
    emu_watch(p, 8, false, NULL, site);
    memcpy(&v, p, sizeof v);
    return v;
}

void emu_store8(const emu_site *site, void *p, uint64_t v) {
    emu_watch(p, 8, true, NULL, site);
    memcpy(p, &v, 8);
}

void emu_store16(const emu_site *site, void *p, emu_4 in) {
    emu_watch(p, 16, true, NULL, site);
    memcpy(p, &in, sizeof in);
}

/* The bytes move when they are waited for, as late as they may; until then there is NaN. */
void emu_copy16_async(const emu_site *site, void *to_shared, const void *from) {
    emu_thread *t = emu_worker_now->now;
    if (t->copies == EMU_MOST_COPIES) emu_fail(NULL, site, "has too many copies under way");
    emu_watch(to_shared, 16, true, NULL, site);
    memset(to_shared, 0xff, 16);
    t->copy[t->copies++] = (emu_pending){to_shared, from, *site, -1};
}

void emu_copies_commit(void) {
    emu_thread *t = emu_worker_now->now;
    for (int i = 0; i < t->copies; i++)
        if (t->copy[i].group < 0) t->copy[i].group = t->groups;
    t->groups++;
}

const char *emu_origin(const void *p) {
    const emu_worker *w = emu_worker_now;
    uintptr_t at = (uintptr_t)p - (uintptr_t)w->shared;
    return at < EMU_SHARED_BYTES ? w->origin[at / 16] : NULL;
}

static void do_copy(const emu_pending *c) {
    emu_watch(c->from, 16, false, NULL, &c->site);
    emu_watch(c->to, 16, true, NULL, &c->site);
    memcpy(c->to, c->from, 16);
    emu_worker *w = emu_worker_now;
    uintptr_t at = (uintptr_t)c->to - (uintptr_t)w->shared;
    if (at < EMU_SHARED_BYTES) w->origin[at / 16] = c->from;
}

void emu_copies_wait(int most) {
    emu_thread *t = emu_worker_now->now;
    int done = t->groups > most ? t->groups - most : 0, kept = 0;
    for (int i = 0; i < t->copies; i++) {
        emu_pending c = t->copy[i];
        if (c.group >= 0 && c.group < done) {
            do_copy(&c);
            continue;
        }
        if (c.group >= 0) c.group -= done;
        t->copy[kept++] = c;
    }
    t->copies = kept;
    t->groups -= done;
}
