/* Kernels for CUDA devices, as the host sees them: a name, and how to launch it.
 *
 * A kernel's source is a .cu file in a subset that is C and CUDA C++ at once. nvcc compiles its
 * device code to a fat binary, which the driver loads by `image` and `name`; the C compiler compiles
 * the same file for the emulated device, which calls `emulated`. Host code is C in both cases.
 *
 * Reading order: this file, kernel.h (what kernels are written in), driver.h (what the host asks of
 * a device), emulated/emulated.h. */
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include <stdbool.h>
#include <stdint.h>

/* One source's device code, for all kinds of devices that it was compiled for. data NULL: this
 * program was built without. */
typedef struct gpu_image {
    const char *name;
    const void *data;
} gpu_image;

typedef struct gpu_kernel {
    const char *name; /* its symbol in the image */
    const gpu_image *image;
    void (*emulated)(const void *args);
    uint32_t args_bytes;
    uint32_t most_threads;      /* of a block */
    uint32_t most_shared_bytes; /* dynamic shared memory of a block */
} gpu_kernel;

/* Whether images have data. */
#ifndef GPU_HAS_KERNELS
#define GPU_HAS_KERNELS 0
#endif
/* The CUDA of the nvcc that made them: drivers of an earlier one do not load them. Else the oldest that serves. */
#ifndef GPU_CUDA_MAJOR
#define GPU_CUDA_MAJOR 12
#endif
/* For which compute capabilities, as "80 90a 100". */
#ifndef GPU_ARCHS
#define GPU_ARCHS ""
#endif

/* Blocks in x, y and z; threads of each block; bytes of dynamic shared memory of each block. */
typedef struct gpu_grid {
    uint32_t x, y, z;
    uint32_t threads;
    uint32_t shared_bytes;
} gpu_grid;

/* What every device since sm_80 has of shared memory for a block: dynamic, and with its arrays. */
enum { GPU_MOST_DYNAMIC_BYTES = 96 << 10, GPU_MOST_SHARED_BYTES = 99 << 10 };
enum { GPU_MOST_ARGS_BYTES = 4096 };
enum { GPU_WARP = 32, GPU_MOST_THREADS = 1024, GPU_MOST_GRID_YZ = 65535 };

/* What work on a device may touch, for the emulated device, which checks each access. `rows` rows of
 * `row_bytes`, `stride` bytes apart. */
typedef enum gpu_access {
    GPU_READ,   /* only read */
    GPU_UPDATE, /* holds values; read and written */
    GPU_WRITE,  /* holds nothing: every byte must be written, and none read before */
    GPU_SCRATCH /* holds nothing, and nothing in it is a result */
} gpu_access;

typedef struct gpu_range {
    const char *name; /* "dx", with static storage */
    const void *at;
    int64_t rows, row_bytes, stride;
    gpu_access access;
    int32_t item_bytes; /* of one number; accesses are followed in units of it, up to 4 */
} gpu_range;

#endif
