/* A device: where values live and kernels run.
 *
 * Memory of a device has addresses, but the host does not read or write through them: it moves
 * bytes with the calls below. It may compute with addresses, store them and give them to kernels.
 * Kernels, copies and fills ("work") run in the order of calls, maybe after these have returned.
 *
 * Kinds: the CPU, where everything happens at once; a CUDA device (cuda.c), which may be the emulated
 * one; and the CPU's twin, for tests, which computes the same but keeps its memory from the host and
 * runs as late as it may (twin.c).
 *
 * A meta device stands for a device of one kind. It has no memory and runs nothing, but programs
 * recorded on it are planned as they will run on that kind: `athanor plan` needs no more.
 *
 * Several threads may give work to a device and wait for it.
 *
 * A dev owns what its kernels cache (oneDNN primitives, instruction-set choice, thread count): no
 * kernel keeps file-scope state. */
#ifndef DEV_DEV_H
#define DEV_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dev_kind { DEV_CPU, DEV_CUDA, DEV_TWIN, DEV_KINDS } dev_kind;

/* Instruction sets in ascending order; a dev uses the highest that the machine has, or what
 * ATHANOR_ISA names (base, avx2, avx512, avx512_vnni, avx512_bf16, amx), which may only lower it. AMX is for
 * products of bf16; all else is done as with AVX512_BF16. */
typedef enum cpu_isa {
    ISA_BASE,
    ISA_AVX2,
    ISA_AVX512,
    ISA_AVX512_VNNI,
    ISA_AVX512_BF16,
    ISA_AMX
} cpu_isa;

typedef struct dev dev;

/* The kind of that name; "auto" or NULL: the one that ATHANOR_DEVICE names; else "auto" is cuda if
 * this machine has a GPU that can be used, and all else the CPU. ST_USAGE: there is no such kind; the
 * error lists the names. Its `where` is set only if ATHANOR_DEVICE is wrong. */
status dev_find_kind(const char *name, dev_kind *out, err *e) ATH_MUST_USE;

/* ST_USAGE: one of ATHANOR_DEVICE, ATHANOR_ISA and ATHANOR_CUDA has a word that it does not know. */
status dev_check_environment(err *e) ATH_MUST_USE;

/* threads 0: dev_processors, but at most OMP_NUM_THREADS. */
status dev_open(dev **out, dev_kind kind, int threads, err *e) ATH_MUST_USE;
/* One of several GPUs; dev_open takes number 0. */
status dev_open_gpu(dev **out, int number, err *e) ATH_MUST_USE;
/* As dev_open, for one of several ranks of this machine: each takes the next GPU, and where there are
 * fewer GPUs than ranks, some share one. */
status dev_open_of_rank(dev **out, dev_kind kind, int rank, int threads, err *e) ATH_MUST_USE;
int dev_gpus(void); /* how many this machine has, if device=cuda can use one */
status dev_open_meta(dev **out, dev_kind of, int threads, err *e) ATH_MUST_USE;
/* Waits for all work, then frees the device. */
void dev_close(dev *d);
const char *dev_kind_name(dev_kind kind); /* "cpu" */
dev_kind dev_get_kind(const dev *d);      /* of a meta device: the kind for which it stands */
bool dev_is_meta(const dev *d);
int dev_threads(const dev *d);
cpu_isa dev_isa(const dev *d);
cpu_isa dev_machine_isa(void); /* the highest that the machine has, whatever ATHANOR_ISA says */
const char *cpu_isa_name(cpu_isa isa);
/* From now on the device uses no higher instruction set, and so many threads (0: as many as now).
 * Called before a program is recorded on it. */
void dev_limit(dev *d, cpu_isa most, int threads);
/* Cores among the processors on which this process may run: processors that are hyper-threads of
 * one core count once. Where the system does not tell: the processors. */
int dev_cores(void);
/* Threads that this process can keep busy: the processors on which it may run, and no more whole ones
 * than its control groups grant (a container with a limit of CPUs). */
int dev_processors(void);
/* Processors' worth of time that its control groups grant; 0: no limit. */
double dev_quota(void);
/* The numbers of processors on which it may run, at most `room`; returns how many. */
int dev_list_processors(int *cpu, int room);
/* Lets the calling thread run on all of these again, where OpenMP has bound it (OMP_PROC_BIND): before another
 * program takes its place, which would have its one processor. */
void dev_unbind(void);

/* The processor as it names itself, with family and model: "AMD EPYC (family 25 model 17)". */
enum { DEV_NAME_MAX = 96 };
void dev_machine_name(char out[DEV_NAME_MAX]);

/* What the op module keeps for each device, one cache for each `create`; destroyed by dev_close
 * through `destroy`. */
void *dev_kernel_cache(dev *d, void *(*create)(dev *d), void (*destroy)(void *cache));

/* Reserves zero-filled, page-aligned memory; pages are touched only when used. NULL on a meta
 * device (no error). ST_MEMORY names the size and what the machine has. */
status dev_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) ATH_MUST_USE;
/* Says that all of a reservation will be touched. Where it is the host's, large pages take fewer
 * look-ups of addresses: its pages may then be of 2 MB, but for those near its end. NULL is fine. */
void dev_expect_whole(dev *d, void *ptr, size_t bytes);
/* Waits for all work, then gives the memory back. NULL is fine. */
void dev_release(dev *d, void *ptr, size_t bytes);
/* The same for the host's own memory, which belongs to no device. */
status dev_reserve_host(void **ptr, size_t bytes, const char *what, err *e) ATH_MUST_USE;
void dev_release_host(void *ptr, size_t bytes);
/* Bytes of a reservation up to the end of the highest page that has been touched. Both kinds map the
 * host's memory. NULL is fine. */
size_t dev_touched_bytes(const void *ptr, size_t bytes);

/* ---- what happens on a device, in order ---- */

/* Copies bytes of the host to the device. When the call returns, `host` may be used again. */
void dev_write(dev *d, void *to, const void *host, size_t bytes);
/* Copies bytes of the device to the host, after all earlier work. */
void dev_read(dev *d, void *host, const void *from, size_t bytes);
/* Memory of the host for dev_read_later. NULL: a GPU has none, which dev_check tells. */
void *dev_pinned(dev *d, size_t bytes);
void dev_pinned_free(dev *d, void *p); /* after all work that fills it; NULL is fine */
/* As dev_read, but the host goes on: the bytes are in pinned memory when it has next waited for the
 * device's work. */
void dev_read_later(dev *d, void *pinned, const void *from, size_t bytes);
/* Copies within the device. */
void dev_copy(dev *d, void *to, const void *from, size_t bytes);
void dev_fill(dev *d, void *at, int byte, size_t bytes);
/* A kernel is a function of this program that runs on the device, in the order of calls. dev_launch
 * copies its arguments. It may read and write the device's memory, but calls nothing of dev. */
typedef void (*dev_kernel)(dev *d, const void *args);
void dev_launch(dev *d, dev_kernel kernel, const void *args, size_t bytes);
/* Launches that come again and again as one piece of work, which costs the host one call (a CUDA
 * graph). Between begin and end this thread's kernels, copies and fills on the device are kept instead
 * of done, with their arguments; nothing may wait, and nothing go between host and device. The graph
 * belongs to the device; dev_graph_launch gives its work, in order. end returns NULL when it failed,
 * which dev_check tells. */
typedef struct dev_graph dev_graph;
bool dev_has_graphs(const dev *d); /* those whose launches cost the host more than a call */
void dev_graph_begin(dev *d);
dev_graph *dev_graph_end(dev *d);
void dev_graph_launch(dev *d, dev_graph *g);
void dev_graph_free(dev *d, dev_graph *g); /* after all its work; NULL is fine */
/* A flag, false at first, that kernels may raise and read, and that the host reads and clears. Each
 * device has one. The host touches it only after dev_sync. */
bool *dev_flag(dev *d);
/* Waits for all work. */
void dev_sync(dev *d);
/* ST_RANK: the device has failed since it was opened, and what it has computed since then is wrong.
 * The sentence says what failed. Who must know of all work calls dev_sync first. */
status dev_check(dev *d, err *e) ATH_MUST_USE;
/* A point in the order: after all work so far. dev_wait returns when the device has come there. */
typedef uint64_t dev_event;
dev_event dev_record(dev *d);
void dev_wait(dev *d, dev_event ev);

/* Large arrays, without a second copy if the host can reach the device's memory. dev_borrow waits
 * for all work and returns host memory for the bytes at `at`; with `contents` it holds what the
 * device has there. It is `at` itself, or else lies in the room, which grows as needed; the caller
 * owns the room and frees it with dev_room_free. dev_put_back copies what the host wrote to the
 * device. The caller puts it back, or drops it, before its next call to the device. */
typedef struct dev_room {
    void *host;
    size_t bytes;
} dev_room;
void *dev_borrow(dev *d, void *at, size_t bytes, bool contents, dev_room *room);
const void *dev_look(dev *d, const void *at, size_t bytes, dev_room *room); /* only to be read */
void dev_put_back(dev *d, void *at, const void *host, size_t bytes);
void dev_room_free(dev_room *r);

/* False: a GPU, whose memory the host does not reach, so that nobody may enter. Of the emulated one
 * tests may. */
bool dev_host_enters(const dev *d);
/* Between enter and leave the host may read and write the device's memory by its addresses: for
 * collectives, which run on the host. dev_enter waits for all work, dev_enter_after only for the
 * work before `ev`: another thread calls it while the first one gives more work. Calls may be
 * nested, also by several threads. d NULL: the memory is the host's, and both do nothing. */
void dev_enter(dev *d);
void dev_enter_after(dev *d, dev_event ev);
void dev_leave(dev *d);

/* Memory of this machine and process, in bytes. */
size_t dev_available_bytes(const dev *d); /* where its arrays lie */
size_t dev_machine_total_bytes(void);
size_t dev_machine_available_bytes(void); /* honours a cgroup limit */
size_t dev_process_anon_bytes(void);      /* anonymous resident memory now (RssAnon) */
size_t dev_process_peak_bytes(void);      /* peak resident memory (VmHWM) */

#endif
