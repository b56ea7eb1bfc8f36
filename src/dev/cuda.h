/* What kernels and libraries on a CUDA device need beyond dev.h. `d` is of kind DEV_CUDA and not
 * meta. */
#ifndef DEV_CUDA_H
#define DEV_CUDA_H

#include "dev/dev.h"
#include "gpu/driver.h"
#include "gpu/lt.h"

/* Runs a kernel after all earlier work. The arguments are copied. */
void cuda_launch(dev *d, const gpu_kernel *k, gpu_grid g, const void *args);

bool cuda_is_emulated(const dev *d);
/* The stream that all work goes to; for libraries. The device's context becomes the thread's. */
cu_stream cuda_stream(dev *d);
/* cuBLASLt, for this device, whose context becomes the thread's: the library asks for it. */
typedef struct cuda_lt {
    lt_library api;
    lt_handle handle;
} cuda_lt;
const cuda_lt *cuda_get_lt(const dev *d);
int cuda_multiprocessors(const dev *d);
/* Bytes of the GPU's memory that were taken when it had been opened: by its driver and cuBLASLt, and by other
 * programs; or, later, at the last cuda_note_baseline: by what libraries have opened meanwhile, too. */
size_t cuda_baseline_bytes(const dev *d);
void cuda_note_baseline(dev *d);
/* What cuDeviceGetAttribute says of one of gpu/driver.h. */
int cuda_attribute(const dev *d, int attribute);
const cu_driver *cuda_driver(const dev *d);
/* What tells this GPU from any other. */
void cuda_uuid(const dev *d, char out[CU_UUID_BYTES]);
/* The GPU as its driver names it. */
void cuda_name(const dev *d, char out[DEV_NAME_MAX]);
/* Memory of the host that the GPU copies from and to at full speed. NULL: there is none, and the
 * device has taken note. */
void *cuda_pinned(dev *d, size_t bytes);
void cuda_pinned_free(dev *d, void *p);
/* Bytes between the device and pinned memory, by a stream of their own and on any thread: for
 * collectives, which go on beside kernels. cuda_fetch comes after the work before `after`, whatever
 * came later. Both return at once; cuda_moved waits for all of them. */
void cuda_fetch(dev *d, dev_event after, void *host, const void *from, size_t bytes);
void cuda_store(dev *d, void *to, const void *host, size_t bytes);
void cuda_moved(dev *d);
/* Seconds that one of `runs` calls takes on the device; 0 on the emulated one, unless
 * ATHANOR_CUDA_FAULT makes it a slow one. `work` gives work to
 * the device, once more than that. */
double cuda_seconds(dev *d, int runs, void (*work)(const void *args), const void *args);
/* Between these, kernels may touch only the ranges, and must fill what is GPU_WRITE. On a real device
 * they do nothing. `what` has static storage. */
void cuda_scope_begin(dev *d, const char *what, const gpu_range *ranges, int n);
void cuda_scope_end(dev *d);
/* A copy of these bytes on the device that stays until it is closed; the same bytes give the same
 * address, so that nothing is allocated when a step comes again. Scratch memory for kernels that
 * follow each other at once, and a room of the host; each grows and is the same in every call. NULL:
 * the device's memory is full, and it has taken note. Scratch memory and the room are for one thread
 * at a time: the one that gives the kernels. */
const void *cuda_keep(dev *d, const void *bytes, size_t n);
void *cuda_scratch(dev *d, size_t bytes);
void *cuda_host_room(dev *d, size_t bytes);

/* What an error of the driver means: on the emulated device the first fault, with kernel, thread and line. */
const char *cuda_error_text(const dev *d, cu_result r);
/* The device takes note of an error of a library, if it is the first. */
void cuda_note_error(dev *d, const char *what, const char *text);

#endif
