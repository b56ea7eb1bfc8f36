/* The emulated device's own state; private to the emulation. */
#ifndef GPU_EMULATED_DEVICE_H
#define GPU_EMULATED_DEVICE_H

#include <pthread.h>

#include "gpu/emulated/block.h"

/* ---- order.c ---- */

enum { EMU_MOST_STREAMS = 8 };

/* How much of the work of each stream has come before. */
typedef struct emu_clock {
    uint64_t seen[EMU_MOST_STREAMS];
} emu_clock;
void emu_clock_join(emu_clock *c, const emu_clock *with);

/* A piece of work of a stream, which is its number clock.seen[stream]. */
typedef struct emu_work {
    int stream;
    emu_clock clock;
} emu_work;

typedef struct emu_use {
    const char *who; /* with static storage; NULL: nobody */
    uint64_t number;
    int64_t stream;
} emu_use;

typedef struct emu_span {
    const char *from, *end;
    emu_use writer, reader[EMU_MOST_STREAMS]; /* since the writer, the last of each stream */
} emu_span;

typedef struct emu_history {
    emu_span *span;
    int n, cap;
} emu_history;

/* Memory that is used by work that has no order with an earlier use by `who`, who wrote or read it. NULL: there is none. */
typedef struct emu_clash {
    const char *from, *end, *who;
    bool wrote;
} emu_clash;
emu_clash emu_history_use(emu_history *h, const emu_work *now, const char *who, const void *at,
                          int64_t bytes, bool write);
void emu_history_forget(emu_history *h, const void *at, int64_t bytes);

/* ---- the device ---- */

typedef struct emu_range {
    gpu_range is;
    emu_clash clash; /* whose memory kernels must not touch */
    int64_t bytes, unit_bytes, row_units;
    bool is_written_beneath; /* only read, but another range, which is written, has bytes of it */
    emu_cell *cell;          /* [rows * row_units]; NULL if it is only read, or outside a scope */
} emu_range;

typedef struct emu_grid {
    const gpu_kernel *kernel;
    uint32_t threads, shared_bytes;
} emu_grid;

struct emu_device {
    uint64_t seed;
    int threads;
    emu_worker **worker; /* [threads] */
    uint32_t launches;
    emu_range range[EMU_MOST_RANGES]; /* of the scope */
    int ranges;
    bool in_scope;
    const char *what;  /* of the scope */
    emu_range *memory; /* outside a scope */
    int memories, memory_cap;
    emu_grid *grid; /* the largest of each kernel */
    int grids, grids_cap;
    const emu_work *now; /* that runs; NULL: there is only one stream */
    emu_history history;
    pthread_mutex_t lock; /* guards fault */
    char fault[EMU_FAULT_MAX];
    bool broken;
};

/* Keeps the fault if it is the first. */
void emu_keep_fault(emu_device *d, const char *text);
/* What runs now uses these bytes, if they are memory of the device. */
emu_clash emu_use_memory(emu_device *d, const char *who, const void *at, int64_t bytes, bool write);
/* The same for who is no kernel: a clash is a fault. */
void emu_move_memory(emu_device *d, const char *who, const void *at, int64_t bytes, bool write);

#endif
