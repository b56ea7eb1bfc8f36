/* A device: where values live and kernels run. `cpu` computes; `meta` holds no data: programs
 * recorded on it are planned and timed but never executed, which is how `athanor plan` works.
 * `cuda` joins later behind the same calls.
 *
 * A dev owns what its kernels cache (oneDNN primitives, instruction-set choice, thread count): no
 * kernel keeps file-scope state. */
#ifndef DEV_DEV_H
#define DEV_DEV_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dev_kind { DEV_CPU, DEV_META } dev_kind;

/* Instruction sets in ascending order; a dev uses the highest that the machine has, or what
 * ATHANOR_ISA names (base, avx2, avx512, avx512_bf16), which may only lower it. */
typedef enum cpu_isa { ISA_BASE, ISA_AVX2, ISA_AVX512, ISA_AVX512_BF16 } cpu_isa;

typedef struct dev dev;

/* threads 0: all cores that this process may run on. */
status dev_open(dev **out, dev_kind kind, int threads, err *e) ATH_MUST_USE;
void dev_close(dev *d);
dev_kind dev_get_kind(const dev *d);
int dev_threads(const dev *d);
cpu_isa dev_isa(const dev *d);
const char *cpu_isa_name(cpu_isa isa);

/* The processor as it names itself, with family and model: "AMD EPYC (family 25 model 17)". */
enum { DEV_NAME_MAX = 96 };
void dev_machine_name(char out[DEV_NAME_MAX]);

/* A slot in which the op module keeps its per-device cache; destroyed by dev_close through
 * `destroy`. */
void *dev_kernel_cache(dev *d, void *(*create)(dev *d), void (*destroy)(void *cache));

/* Reserves zero-filled, page-aligned memory; pages are touched only when used. NULL on the meta
 * device (no error). ST_MEMORY names the size and what the machine has. */
status dev_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) ATH_MUST_USE;
void dev_release(dev *d, void *ptr, size_t bytes);
/* Bytes from ptr to the end of the highest page that has been touched. */
size_t dev_high_water_bytes(const void *ptr, size_t bytes);

/* Memory of this machine and process, in bytes. */
size_t dev_machine_total_bytes(void);
size_t dev_machine_available_bytes(void); /* honours a cgroup limit */
size_t dev_process_anon_bytes(void);      /* anonymous resident memory now (RssAnon) */
size_t dev_process_peak_bytes(void);      /* peak resident memory (VmHWM) */

#endif
