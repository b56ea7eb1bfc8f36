/* The functions of NCCL that this program uses, as a table: the library's own, opened at run time, or
 * those of the emulated device (emulated/nccl.c). Names and meanings are those of NCCL 2
 * (ncclAllReduce is all_reduce); handles are opaque. All return 0 or an ncclResult_t.
 * tests/gpu/nccl_facts.c compares the numbers with NVIDIA's header. */
#ifndef GPU_NCCL_H
#define GPU_NCCL_H

#include "base/dtype.h"
#include "base/status.h"
#include "gpu/driver.h"

typedef int nccl_result; /* ncclResult_t */
typedef struct nccl_comm_handle *nccl_comm;
typedef struct nccl_id { /* ncclUniqueId */
    char bytes[128];
} nccl_id;

enum { /* ncclResult_t */
       NCCL_SYSTEM_ERROR = 2,
       NCCL_INTERNAL_ERROR = 3,
       NCCL_INVALID_ARGUMENT = 4,
       NCCL_INVALID_USAGE = 5,
       NCCL_REMOTE_ERROR = 6,
       NCCL_IN_PROGRESS = 7
};
enum { NCCL_SUM = 0, NCCL_MAX = 2 }; /* ncclRedOp_t */
enum {                               /* ncclDataType_t */
       NCCL_U8 = 1,
       NCCL_I32 = 2,
       NCCL_I64 = 4,
       NCCL_F16 = 6,
       NCCL_F32 = 7,
       NCCL_F64 = 8,
       NCCL_BF16 = 9
};

/* ncclConfig_t as of 2.18, to which later versions have only appended; they take it by its size and version. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, least_ctas, most_ctas;
    const char *net_name;
    int split_share;
} nccl_config;
enum { NCCL_CONFIG_VERSION = 21800, NCCL_CONFIG_UNDEFINED = INT32_MIN };
#define NCCL_CONFIG_MAGIC 0xcafebeefu

/* X(name, symbol in the library, arguments). n counts elements: of reduce_scatter those that come, of
 * all_gather those that go. */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(get_version, "ncclGetVersion", (int *version))                                               \
    X(get_id, "ncclGetUniqueId", (nccl_id * id))                                                   \
    X(init, "ncclCommInitRankConfig",                                                              \
      (nccl_comm * c, int ranks, nccl_id id, int rank, nccl_config *config))                       \
    X(destroy, "ncclCommDestroy", (nccl_comm c))                                                   \
    X(abort, "ncclCommAbort", (nccl_comm c))                                                       \
    X(async_error, "ncclCommGetAsyncError", (nccl_comm c, nccl_result * r))                        \
    X(all_reduce, "ncclAllReduce",                                                                 \
      (const void *in, void *out, size_t n, int type, int op, nccl_comm c, cu_stream s))           \
    X(reduce_scatter, "ncclReduceScatter",                                                         \
      (const void *in, void *out, size_t n, int type, int op, nccl_comm c, cu_stream s))           \
    X(all_gather, "ncclAllGather",                                                                 \
      (const void *in, void *out, size_t n, int type, nccl_comm c, cu_stream s))                   \
    X(broadcast, "ncclBroadcast",                                                                  \
      (const void *in, void *out, size_t n, int type, int root, nccl_comm c, cu_stream s))         \
    X(send, "ncclSend", (const void *in, size_t n, int type, int peer, nccl_comm c, cu_stream s))  \
    X(recv, "ncclRecv", (void *out, size_t n, int type, int peer, nccl_comm c, cu_stream s))       \
    X(group_start, "ncclGroupStart", (void))                                                       \
    X(group_end, "ncclGroupEnd", (void))

typedef struct nccl_library {
#define NCCL_MEMBER(name, symbol, arguments) nccl_result(*name) arguments;
    NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
    const char *(*error_text)(nccl_result r); /* ncclGetErrorString */
    void *library;                            /* of dlopen; NULL: emulated */
} nccl_library;

/* The emulated device's, or else libnccl.so.2, looked for as cuBLASLt is (lt.h). ST_USAGE: it is not
 * there, or too old. */
status nccl_open(nccl_library *n, bool emulated, err *e) ATH_MUST_USE;
void nccl_close(nccl_library *n);
/* The number of a type; -1: NCCL has none. */
int nccl_type_of(dtype dt);

void emu_nccl_fill(nccl_library *n);

#endif
