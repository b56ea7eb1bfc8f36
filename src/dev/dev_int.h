/* A kind of device as a table of functions, and what the kinds share; private to the module.
 *
 * Reading order: cpu.c (the plainest), twin.c, dev.c; isa.c and processors.c for themselves. */
#ifndef DEV_DEV_INT_H
#define DEV_DEV_INT_H

#include <sched.h>

#include "dev/dev.h"

/* What dev.h says of the calls of these names; `enter` is dev_enter_after. NULL: there is nothing to
 * do, as on a device where everything happens at once, and on a meta device, which has only NULLs.
 * Without borrow the host reaches the memory itself. */
typedef struct dev_class {
    const char *name; /* its word in ATHANOR_DEVICE */
    /* Sets d->own, if the kind needs memory for itself; after an error close is not called. */
    status (*open)(dev *d, err *e);
    void (*close)(dev *d); /* frees d->own */
    status (*reserve)(dev *d, void **ptr, size_t bytes, const char *what, err *e);
    void (*expect_whole)(void *ptr, size_t bytes);
    void (*release)(dev *d, void *ptr, size_t bytes); /* ptr is not NULL */
    void (*write)(dev *d, void *to, const void *host, size_t bytes);
    void (*read)(dev *d, void *host, const void *from, size_t bytes);
    void *(*pinned)(dev *d, size_t bytes); /* NULL: any memory of the host will do */
    void (*pinned_free)(dev *d, void *p);
    void (*read_later)(dev *d, void *pinned, const void *from, size_t bytes);
    void (*copy)(dev *d, void *to, const void *from, size_t bytes);
    void (*fill)(dev *d, void *at, int byte, size_t bytes);
    void *(*borrow)(dev *d, void *at, size_t bytes, bool contents, dev_room *room);
    void (*put_back)(dev *d, void *at, const void *host, size_t bytes);
    void (*launch)(dev *d, dev_kernel kernel, const void *args, size_t bytes);
    void (*graph_begin)(dev *d); /* NULL: there are no graphs */
    dev_graph *(*graph_end)(dev *d);
    void (*graph_launch)(dev *d, dev_graph *g);
    void (*graph_free)(dev *d, dev_graph *g);
    dev_event (*record)(dev *d);
    void (*wait)(dev *d, dev_event ev);
    void (*enter)(dev *d, dev_event ev);
    void (*leave)(dev *d);
    bool (*is_closed)(const dev *d); /* nobody may enter */
    status (*check)(dev *d, err *e);
    size_t (*available)(const dev *d); /* NULL: the machine's memory */
} dev_class;

enum { DEV_CACHES = 4 };
typedef struct dev_cache { /* of dev_kernel_cache */
    void *(*create)(dev *d);
    void (*destroy)(void *cache);
    void *at; /* NULL: this one is free */
} dev_cache;

struct dev {
    dev_kind kind;
    const dev_class *class; /* that of its kind, or dev_class_meta */
    int threads, number;    /* number: which GPU */
    cpu_isa isa;
    dev_cache caches[DEV_CACHES];
    void *own;            /* for the functions of the class */
    bool *flag, own_flag; /* of dev_flag: own_flag, unless open sets another */
};

/* isa.c: what CPUID and XGETBV say, and whether the system lets this process use tiles. */
typedef struct cpu_id {
    uint32_t basic_ecx;                               /* leaf 1 */
    uint32_t more_ebx, more_ecx, more_edx, more1_eax; /* leaf 7, subleaves 0 and 1 */
    uint32_t extended_ecx;                            /* leaf 0x80000001 */
    uint64_t xcr0;
    bool tiles_granted;
} cpu_id;
cpu_isa isa_of(const cpu_id *id);
/* The machine's instruction set, lowered to what ATHANOR_ISA names; a higher one is not an error, so
 * that one setting serves machines of several kinds. */
status isa_choose(cpu_isa *isa, err *e) ATH_MUST_USE;

extern const dev_class dev_class_cpu, dev_class_cuda, dev_class_twin;

/* cuda.c: this machine has a GPU that can be used, not an emulated one. */
bool dev_cuda_is_there(void);

/* processors.c: dev_cores for these processors, by DIR/cpuN/topology/thread_siblings_list. */
int dev_count_cores(const char *dir, const cpu_set_t *set);
/* dev_quota by these two: a file like /proc/self/cgroup, and where control groups are mounted. */
double dev_read_quota(const char *groups, const char *root);
/* dev_processors, but at most OMP_NUM_THREADS: by its first number, as OpenMP reads it. */
int dev_default_threads(void);

/* dev.c: host memory for so many bytes; what the room held is lost when it grows. */
void *dev_room_of(dev_room *r, size_t bytes);

/* mapping.c: length of the mapping for a reservation of so many bytes. */
size_t dev_mapping_bytes(size_t bytes);
/* dev_expect_whole for memory of the host. */
void dev_use_large_pages(void *ptr, size_t bytes);
#endif
