/* See planted.h. The lines of which the fault must name one end with "fault: NAME". */
#include "gpu/planted.h"

#include <string.h>

#include "gpu/kernel.h"

GPU_FN int64_t here(void) {
    return (int64_t)block_x() * PLANTED_THREADS + thread_x();
}

/* Thread i gets the number of its neighbour. */
KERNEL(good, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    tile[thread_x()] = a->x[here()];
    sync_block();
    float v = tile[(thread_x() + 1) % PLANTED_THREADS];
    sync_block();
    tile[thread_x()] = v;
    sync_block();
    a->y[here()] = tile[thread_x() ^ 1u];
}

KERNEL(missing_barrier, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    tile[thread_x()] = 0;
    sync_block();
    tile[thread_x()] = a->x[here()];                         /* fault: missing_barrier */
    a->y[here()] = tile[(thread_x() + 1) % PLANTED_THREADS]; /* fault: missing_barrier */
}

KERNEL(missing_second_barrier, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    tile[thread_x()] = a->x[here()];
    sync_block();
    float v = tile[(thread_x() + 1) % PLANTED_THREADS]; /* fault: missing_second_barrier */
    tile[thread_x()] = v;                               /* fault: missing_second_barrier */
    sync_block();
    a->y[here()] = tile[thread_x()];
}

KERNEL(divergent_barrier, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    tile[thread_x()] = a->x[here()];
    if (thread_x() < 40) sync_block(); /* fault: divergent_barrier */
    a->y[here()] = tile[thread_x()];
}

KERNEL(other_barrier, planted_args, PLANTED_THREADS) {
    if (thread_x() < 32)
        sync_block(); /* fault: other_barrier */
    else
        sync_block(); /* fault: other_barrier */
    a->y[here()] = a->x[here()];
}

KERNEL(divergent_shuffle, planted_args, PLANTED_THREADS) {
    float v = a->x[here()];
    if (lane() != 7) v = shuffle_xor(v, 1); /* fault: divergent_shuffle */
    a->y[here()] = v;
}

KERNEL(one_too_far, planted_args, PLANTED_THREADS) {
    a->y[here()] = a->x[here() + 1]; /* fault: one_too_far */
}

KERNEL(one_too_early, planted_args, PLANTED_THREADS) {
    a->y[here() - 1] = a->x[here()]; /* fault: one_too_early */
}

KERNEL(shared_too_small, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS - 1);
    tile[thread_x()] = a->x[here()]; /* fault: shared_too_small */
    sync_block();
    a->y[here()] = tile[0];
}

KERNEL(shared_unwritten, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    if (thread_x() != 5) tile[thread_x()] = a->x[here()];
    sync_block();
    a->y[here()] = tile[thread_x()]; /* fault: shared_unwritten */
}

KERNEL(shared_atomics, planted_args, PLANTED_THREADS) {
    SHARED(uint64_t, sums, 4);
    if (thread_x() < 4) sums[thread_x()] = 0;
    sync_block();
    atomic_add_u64(&sums[thread_x() % 4], 1);
    sync_block();
    a->y[here()] = (float)sums[thread_x() % 4];
}

KERNEL(shared_atomic_too_far, planted_args, PLANTED_THREADS) {
    SHARED(uint64_t, sums, 4);
    if (thread_x() < 4) sums[thread_x()] = 0;
    sync_block();
    atomic_add_u64(&sums[thread_x() % 5], 1); /* fault: shared_atomic_too_far */
    a->y[here()] = 0;
}

KERNEL(atomic_beside_plain, planted_args, PLANTED_THREADS) {
    SHARED(uint64_t, sums, 4);
    if (thread_x() < 4) sums[thread_x()] = 0; /* fault: atomic_beside_plain */
    sync_warp();
    atomic_add_u64(&sums[thread_x() % 4], 1); /* fault: atomic_beside_plain */
    sync_block();
    a->y[here()] = (float)sums[thread_x() % 4];
}

KERNEL(atomic_on_unwritten, planted_args, PLANTED_THREADS) {
    SHARED(uint64_t, sums, 4);
    atomic_add_u64(&sums[thread_x() % 4], 1); /* fault: atomic_on_unwritten */
    a->y[here()] = 0;
}

KERNEL(unwritten_output, planted_args, PLANTED_THREADS) {
    if (here() != 70) a->y[here()] = a->x[here()];
}

KERNEL(reads_output, planted_args, PLANTED_THREADS) {
    a->y[here()] += a->x[here()]; /* fault: reads_output */
}

KERNEL(writes_input, planted_args, PLANTED_THREADS) {
    a->y[here()] = 1;
    ((float *)(uintptr_t)a->x)[here()] = 1; /* fault: writes_input */
}

KERNEL(misaligned, planted_args, PLANTED_THREADS) {
    float v[4] = {0};
    a->y[here()] = 0;
    if (here() < a->n - 4) load4(v, a->x + here()); /* fault: misaligned */
    if (v[0] > 1e30f) a->y[here()] = v[1];
}

KERNEL(blocks_collide, planted_args, PLANTED_THREADS) {
    a->y[here()] = a->x[here()];                        /* fault: blocks_collide */
    if (block_x() == 1 && thread_x() == 0) a->y[3] = 0; /* fault: blocks_collide */
}

KERNEL(copy_not_waited_for, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    if (thread_x() % 4 == 0)
        copy16_async(&tile[thread_x()], &a->x[here()]); /* fault: copy_not_waited_for */
    copies_commit();
    sync_block();
    a->y[here()] = 0;
}

/* Lanes of a warp meet by sync_warp, and see what the others wrote; warps are not held up. */
KERNEL(warp_meets, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    tile[thread_x()] = a->x[here()];
    sync_warp();
    float v = tile[thread_x() ^ 1u];
    sync_warp();
    tile[thread_x()] = v;
    sync_warp();
    a->y[here()] = tile[thread_x() ^ 1u];
}

KERNEL(missing_sync_warp, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    tile[thread_x()] = a->x[here()];
    sync_warp();
    float v = tile[thread_x() ^ 1u]; /* fault: missing_sync_warp */
    tile[thread_x()] = v;            /* fault: missing_sync_warp */
    sync_warp();
    a->y[here()] = tile[thread_x() ^ 1u];
}

/* Lanes wait for each other there, but that does not order what they read and write. */
KERNEL(shuffle_for_sync_warp, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    tile[thread_x()] = a->x[here()]; /* fault: shuffle_for_sync_warp */
    float v = shuffle_xor(1, 1);
    a->y[here()] = v * tile[thread_x() ^ 1u]; /* fault: shuffle_for_sync_warp */
}

/* Lane 31 reads what the next warp wrote. */
KERNEL(sync_warp_for_a_block, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, PLANTED_THREADS);
    tile[thread_x()] = 0;
    sync_block();
    tile[thread_x()] = a->x[here()]; /* fault: sync_warp_for_a_block */
    sync_warp();
    a->y[here()] = tile[(thread_x() + 1) % PLANTED_THREADS]; /* fault: sync_warp_for_a_block */
}

/* Numbers become narrower where they lie: those of a block are read before any is written. Blocks stand apart. */
KERNEL(narrow_in_place, planted_args, PLANTED_THREADS) {
    uint16_t *to = (uint16_t *)a->y + (int64_t)block_x() * 2 * PLANTED_THREADS;
    float v = a->x[here()];
    sync_block();
    to[thread_x()] = bf16_store(v);
}

KERNEL(narrow_too_early, planted_args, PLANTED_THREADS) {
    uint16_t *to = (uint16_t *)a->y + (int64_t)block_x() * 2 * PLANTED_THREADS;
    float v = a->x[here()];         /* fault: narrow_too_early */
    to[thread_x()] = bf16_store(v); /* fault: narrow_too_early */
}

/* 4 KB beside the dynamic memory. */
KERNEL(shared_and_dynamic, planted_args, PLANTED_THREADS) {
    SHARED(float, tile, 1024);
    SHARED_DYNAMIC(float, room);
    tile[thread_x()] = room[thread_x()] = a->x[here()];
    a->y[here()] = tile[thread_x()];
}

/* Right by itself. One writes what another reads, in two streams. */
KERNEL(missing_event, planted_args, PLANTED_THREADS) {
    a->y[here()] = a->x[here()]; /* fault: missing_event */
}

#define DEFINE(name) const gpu_kernel *const planted_##name = &name;
PLANTED(DEFINE)
