/* The emulated device's own state; private to the emulation. */
#ifndef GPU_EMULATED_DEVICE_H
#define GPU_EMULATED_DEVICE_H

#include <pthread.h>

#include "gpu/emulated/block.h"

typedef struct emu_range {
    gpu_range is;
    int64_t bytes, unit_bytes, row_units;
    emu_cell *cell; /* [rows * row_units]; NULL if it is only read, or outside a scope */
} emu_range;

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
    pthread_mutex_t lock; /* guards fault */
    char fault[EMU_FAULT_MAX];
    bool broken;
};

/* Keeps the fault if it is the first. */
void emu_keep_fault(emu_device *d, const char *text);

#endif
