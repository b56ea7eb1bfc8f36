/* The functions of the CUDA driver that this program uses, as a table: the driver's own, opened at
 * run time, or the emulated device's. Names and meanings are those of the CUDA driver API
 * (cuMemAlloc is mem_alloc); handles are opaque. All return 0, or the driver's error number. */
#ifndef GPU_DRIVER_H
#define GPU_DRIVER_H

#include <stddef.h>

#include "base/status.h"
#include "gpu/emulated/emulated.h"
#include "gpu/gpu.h"

typedef int cu_result;   /* CUresult */
typedef uint64_t cu_ptr; /* CUdeviceptr */
typedef struct cu_stream_handle *cu_stream;
typedef struct cu_event_handle *cu_event;
typedef struct cu_function_handle *cu_function;
typedef struct cu_module_handle *cu_module;
typedef struct cu_context_handle *cu_context;
typedef struct cu_graph_handle *cu_graph;
typedef struct cu_graph_exec_handle *cu_graph_exec;

enum {
    CU_OUT_OF_MEMORY = 2,
    CU_NO_DEVICE = 100,
    CU_NOT_READY = 600,
    CU_LAUNCH_FAILED = 719,
    CU_NOT_IN_CAPTURE = 900
};
enum { CU_UUID_BYTES = 16 };
enum { /* CUdevice_attribute */
       CU_CLOCK_KHZ = 13,
       CU_MULTIPROCESSORS = 16,
       CU_COMPUTE_MAJOR = 75,
       CU_COMPUTE_MINOR = 76,
       CU_MOST_SHARED_BYTES = 97 /* of a block that asks for it */
};
enum { CU_LEAST_MAJOR = 8 };          /* compute capability that our kernels need */
enum { CU_PEER_ATOMICS = 3 };         /* CUdevice_P2PAttribute: native atomics */
enum { CU_DYNAMIC_SHARED_BYTES = 8 }; /* CUfunction_attribute */
enum { CU_HOST_DEVICE_MAP = 2 };      /* kernels reach the host's memory by the host's addresses */
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_NO_TIMING = 2 };
enum { CU_CAPTURE_THREAD_LOCAL = 1 }; /* other threads may call what a capture forbids */

/* X(name, symbol in the driver's library, arguments) */
#define CU_FUNCTIONS(X)                                                                            \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(driver_version, "cuDriverGetVersion", (int *version))                                        \
    X(device_count, "cuDeviceGetCount", (int *count))                                              \
    X(device_get, "cuDeviceGet", (int *device, int ordinal))                                       \
    X(device_name, "cuDeviceGetName", (char *name, int bytes, int device))                         \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))           \
    X(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                          \
    X(device_uuid, "cuDeviceGetUuid_v2", (char *uuid, int device))                                 \
    X(device_bus_id, "cuDeviceGetPCIBusId", (char *id, int bytes, int device))                     \
    X(can_access_peer, "cuDeviceCanAccessPeer", (int *can, int device, int peer))                  \
    X(peer_attribute, "cuDeviceGetP2PAttribute", (int *value, int attribute, int from, int to))    \
    X(context_retain, "cuDevicePrimaryCtxRetain", (cu_context * c, int device))                    \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                               \
    X(context_set, "cuCtxSetCurrent", (cu_context c))                                              \
    X(mem_info, "cuMemGetInfo_v2", (size_t * available, size_t * total))                           \
    X(mem_alloc, "cuMemAlloc_v2", (cu_ptr * p, size_t bytes))                                      \
    X(mem_free, "cuMemFree_v2", (cu_ptr p))                                                        \
    X(mem_host_alloc, "cuMemHostAlloc", (void **p, size_t bytes, unsigned flags))                  \
    X(mem_host_free, "cuMemFreeHost", (void *p))                                                   \
    X(copy_in, "cuMemcpyHtoDAsync_v2", (cu_ptr to, const void *from, size_t bytes, cu_stream s))   \
    X(copy_out, "cuMemcpyDtoHAsync_v2", (void *to, cu_ptr from, size_t bytes, cu_stream s))        \
    X(copy, "cuMemcpyDtoDAsync_v2", (cu_ptr to, cu_ptr from, size_t bytes, cu_stream s))           \
    X(fill, "cuMemsetD8Async", (cu_ptr to, unsigned char byte, size_t bytes, cu_stream s))         \
    X(stream_create, "cuStreamCreate", (cu_stream * s, unsigned flags))                            \
    X(stream_destroy, "cuStreamDestroy_v2", (cu_stream s))                                         \
    X(stream_sync, "cuStreamSynchronize", (cu_stream s))                                           \
    X(stream_wait, "cuStreamWaitEvent", (cu_stream s, cu_event e, unsigned flags))                 \
    X(capture_begin, "cuStreamBeginCapture_v2", (cu_stream s, int mode))                           \
    X(capture_end, "cuStreamEndCapture", (cu_stream s, cu_graph * g))                              \
    X(graph_make, "cuGraphInstantiateWithFlags",                                                   \
      (cu_graph_exec * x, cu_graph g, unsigned long long flags))                                   \
    X(graph_launch, "cuGraphLaunch", (cu_graph_exec x, cu_stream s))                               \
    X(graph_destroy, "cuGraphDestroy", (cu_graph g))                                               \
    X(graph_exec_destroy, "cuGraphExecDestroy", (cu_graph_exec x))                                 \
    X(event_create, "cuEventCreate", (cu_event * e, unsigned flags))                               \
    X(event_destroy, "cuEventDestroy_v2", (cu_event e))                                            \
    X(event_record, "cuEventRecord", (cu_event e, cu_stream s))                                    \
    X(event_sync, "cuEventSynchronize", (cu_event e))                                              \
    X(event_query, "cuEventQuery", (cu_event e))                                                   \
    X(event_elapsed, "cuEventElapsedTime", (float *ms, cu_event from, cu_event to))                \
    X(module_load, "cuModuleLoadData", (cu_module * m, const void *image))                         \
    X(module_unload, "cuModuleUnload", (cu_module m))                                              \
    X(module_function, "cuModuleGetFunction", (cu_function * f, cu_module m, const char *name))    \
    X(function_set, "cuFuncSetAttribute", (cu_function f, int attribute, int value))               \
    X(launch, "cuLaunchKernel",                                                                    \
      (cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,             \
       unsigned bz, unsigned shared, cu_stream s, void **params, void **extra))                    \
    X(error_text, "cuGetErrorString", (cu_result r, const char **text))

typedef struct cu_driver {
#define CU_MEMBER(name, symbol, arguments) cu_result(*name) arguments;
    CU_FUNCTIONS(CU_MEMBER)
#undef CU_MEMBER
    void *library; /* of dlopen; NULL: emulated */
    bool emulated;
} cu_driver;

/* Whether ATHANOR_CUDA asks for the emulated device. ST_USAGE: it, or a number for that device, is wrong. */
status cu_driver_choice(bool *emulated, err *e) ATH_MUST_USE;
/* ATHANOR_CUDA=emulated: the emulated device. Unset: the driver's library; ST_USAGE: there is none,
 * it is too old, or the variable has another value; the sentence says which. */
status cu_driver_open(cu_driver *d, err *e) ATH_MUST_USE;
void cu_driver_close(cu_driver *d);
/* Whether kernels for these, as in GPU_ARCHS, run on a GPU of this compute capability: those of the same major number and
 * no higher minor one; with "a", as in 90a, only the same. */
bool gpu_arch_serves(const char *archs, int major, int minor);
/* Whether there is a driver to open, be it one that does not start. */
bool cu_driver_is_there(void);

/* ---- what only the emulated device does (emulated/stream.c) ---- */

void emu_driver_fill(cu_driver *d);
/* Instead of context_release: every context is a device of its own. */
void emu_context_free(cu_context c);
const char *emu_context_fault(cu_context c);
/* Between these the host may reach the device's memory. */
void emu_context_open(cu_context c);
void emu_context_close(cu_context c);
/* Waits for all work of the context that is this thread's. */
void emu_context_sync(void);
/* emu_scope_begin and emu_scope_end, in the order of the stream's work. `what` has static storage. */
void emu_stream_scope(cu_stream s, const char *what, const gpu_range *ranges, int n);
void emu_stream_scope_end(cu_stream s);
/* Runs a function of the host in the stream's order, with a copy of its arguments: for the stand-ins
 * of libraries. out: the first byte that it writes, or NULL. */
emu_device *emu_stream_device(cu_stream s);
void emu_stream_call(cu_stream s, void (*fn)(const void *args), void *out, const void *args,
                     size_t bytes);
/* The same for what waits for other ranks: fn runs when poll, called when the stream has come there and
 * then again and again, returns true; on a device with a fault, too. It holds up this stream alone. */
void emu_stream_poll(cu_stream s, bool (*poll)(const void *args), void (*fn)(const void *args),
                     const void *args, size_t bytes);
/* `who`, which runs in the stream, reads or writes these bytes. False: they are not memory of the stream's device. `who` has static
 * storage. */
bool emu_stream_use(cu_stream s, const char *who, const void *at, size_t bytes, bool write);

#endif
