/* A device: where values live and kernels run.
 *
 * Memory of a device has addresses, but the host does not read or write through them: it moves
 * bytes with the calls below. Addresses may be added to, stored and given to kernels. Kernels,
 * copies and fills run in the order in which they were given, maybe later than the call returns.
 *
 * Two kinds: the CPU, where everything happens at once; and its twin, for tests, which computes the
 * same but keeps its memory from the host and runs as late as it may (twin.c).
 *
 * A `meta` device is of a kind: it holds no data and runs nothing, and programs recorded on it are
 * planned as they will run on that kind. This is how `athanor plan` works.
 *
 * Several threads may give things to a device and wait for them.
 *
 * A dev owns what its kernels cache (oneDNN primitives, instruction-set choice, thread count): no
 * kernel keeps file-scope state. */
#ifndef DEV_DEV_H
#define DEV_DEV_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dev_kind { DEV_CPU, DEV_TWIN, DEV_KINDS } dev_kind;

/* Instruction sets in ascending order; a dev uses the highest that the machine has, or what
 * ATHANOR_ISA names (base, avx2, avx512, avx512_bf16), which may only lower it. */
typedef enum cpu_isa { ISA_BASE, ISA_AVX2, ISA_AVX512, ISA_AVX512_BF16 } cpu_isa;

typedef struct dev dev;

/* The kind of that name; "auto" or NULL: the one that ATHANOR_DEVICE names, else the CPU. ST_USAGE
 * with the names there are; `where` is set only where ATHANOR_DEVICE is wrong. */
status dev_find_kind(const char *name, dev_kind *out, err *e) ATH_MUST_USE;

/* threads 0: all cores that this process may run on. */
status dev_open(dev **out, dev_kind kind, int threads, err *e) ATH_MUST_USE;
status dev_open_meta(dev **out, dev_kind of, int threads, err *e) ATH_MUST_USE;
/* Waits for what was given. */
void dev_close(dev *d);
dev_kind dev_get_kind(const dev *d); /* of a meta device: what it is of */
bool dev_is_meta(const dev *d);
int dev_threads(const dev *d);
cpu_isa dev_isa(const dev *d);
const char *cpu_isa_name(cpu_isa isa);

/* The processor as it names itself, with family and model: "AMD EPYC (family 25 model 17)". */
enum { DEV_NAME_MAX = 96 };
void dev_machine_name(char out[DEV_NAME_MAX]);

/* A slot in which the op module keeps its per-device cache; destroyed by dev_close through
 * `destroy`. */
void *dev_kernel_cache(dev *d, void *(*create)(dev *d), void (*destroy)(void *cache));

/* Reserves zero-filled, page-aligned memory; pages are touched only when used. NULL on a meta
 * device (no error). ST_MEMORY names the size and what the machine has. */
status dev_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) ATH_MUST_USE;
/* Waits for what was given. NULL is fine. */
void dev_release(dev *d, void *ptr, size_t bytes);
/* The same of the host's own memory, whatever the devices. */
status dev_reserve_host(void **ptr, size_t bytes, const char *what, err *e) ATH_MUST_USE;
void dev_release_host(void *ptr, size_t bytes);
/* Bytes of a reservation up to the end of the highest page that has been touched. Both kinds map the
 * host's memory. NULL is fine. */
size_t dev_touched_bytes(const void *ptr, size_t bytes);

/* ---- what happens on a device, in order ---- */

/* The host's bytes to the device; they may change when the call returns. */
void dev_write(dev *d, void *to, const void *host, size_t bytes);
/* The device's bytes to the host. Waits for all that was given before. */
void dev_read(dev *d, void *host, const void *from, size_t bytes);
/* Within the device. */
void dev_copy(dev *d, void *to, const void *from, size_t bytes);
void dev_fill(dev *d, void *at, int byte, size_t bytes);
/* A function of the host's program that runs on the device, in its turn; its arguments are copied
 * when it is given. It may reach the device's memory, and gives the device nothing itself. */
typedef void (*dev_kernel)(dev *d, const void *args);
void dev_launch(dev *d, dev_kernel kernel, const void *args, size_t bytes);
/* Waits for all that was given. */
void dev_sync(dev *d);
/* A point in the order: what was given so far. dev_wait returns when the device has come there. */
typedef uint64_t dev_event;
dev_event dev_record(dev *d);
void dev_wait(dev *d, dev_event ev);

/* Large things, without a second copy where the host can reach the device's memory: dev_borrow
 * waits for what was given before and returns a place where the host finds the device's bytes
 * (`contents`) or may put new ones. It is `at` itself, or else lies in the room, which grows and is
 * the caller's, to be freed with dev_room_free. dev_put_back makes what the host wrote there the
 * device's. What is borrowed is put back, or forgotten, before the device's next call. */
typedef struct dev_room {
    void *host;
    size_t bytes;
} dev_room;
void *dev_borrow(dev *d, void *at, size_t bytes, bool contents, dev_room *room);
const void *dev_look(dev *d, const void *at, size_t bytes, dev_room *room); /* only to be read */
void dev_put_back(dev *d, void *at, const void *host, size_t bytes);
void dev_room_free(dev_room *r);

/* Between these the host itself works on the device's memory, by its addresses: for collectives,
 * which run on the host. dev_enter waits for all that was given, dev_enter_after only for what
 * `ev` says: on a thread beside the one that gives, to which it must leave what came later. May be
 * nested, also by several threads. d NULL: memory of the host, nothing to do. */
void dev_enter(dev *d);
void dev_enter_after(dev *d, dev_event ev);
void dev_leave(dev *d);

/* Memory of this machine and process, in bytes. */
size_t dev_machine_total_bytes(void);
size_t dev_machine_available_bytes(void); /* honours a cgroup limit */
size_t dev_process_anon_bytes(void);      /* anonymous resident memory now (RssAnon) */
size_t dev_process_peak_bytes(void);      /* peak resident memory (VmHWM) */

#endif
