/* What was measured on this machine, and what is chosen by it: the arithmetic of matrix products, who
 * computes them, and the number of threads.
 *
 * probe.h measures; machine_file.c keeps what was measured, machine.c chooses. A choice is a function
 * of the facts alone, so that the same facts give the same bits.
 *
 * Facts belong to a processor (by its name), an instruction set, a number of threads and a version of
 * this program. They lie in one file, for several machines, since a home folder may be shared. */
#ifndef OP_MACHINE_H
#define OP_MACHINE_H

#include "op/gemm_choice.h"

/* How a model is stored and multiplied. */
typedef enum machine_arith {
    ARITH_F32,  /* stored in fp32 */
    ARITH_DOTS, /* stored in bf16, multiplied by bf16 dot products */
    ARITH_WIDE, /* stored in bf16, widened to fp32 and multiplied so */
    ARITHS
} machine_arith;
const char *machine_arith_name(machine_arith how); /* "bf16, by dot products" */

/* A linear layer of `rows` rows: x [rows,in], w [width,in]. ms: the least processor time of one
 * thread; 0: there is no such product (of oneDNN with ARITH_WIDE, never). */
typedef struct machine_layer {
    int64_t rows, in, width;
    double ms[ARITHS][GEMM_LAYOUTS][GEMM_IMPLS];
} machine_layer;

enum { MACHINE_LAYERS_MAX = 64 };

typedef struct machine_facts {
    char name[DEV_NAME_MAX];
    cpu_isa isa;
    int threads;                   /* those that the device had */
    int best_threads;              /* with which products are fastest; 0: not measured */
    double fma_gflops, dot_gflops; /* one thread in registers: fp32; bf16 dots, 0 without them */
    double memory_gb_per_s;        /* of all threads */
    machine_layer layer[MACHINE_LAYERS_MAX];
    int n_layers;
    gemm_choices products; /* of bench gemm --remember */
} machine_facts;

/* The layer with these three sizes; NULL: it was not measured. */
const machine_layer *machine_find(const machine_facts *f, const machine_layer *l);

/* ---- choosing (machine.c) ---- */

/* Bits of the machine_arith that may be taken, and whether only our own products may. */
enum { MACHINE_ANY = (1 << ARITHS) - 1, MACHINE_OWN = 1 << ARITHS };

typedef struct machine_choice {
    bool measured; /* false: by the instruction set alone, as nothing was measured */
    machine_arith how;
    gemm_rule rule;
    double
        ms[ARITHS]; /* of the layers' products by the rule; 0: the machine has no such arithmetic */
} machine_choice;

/* The fastest arithmetic among those in `allowed` for a model of these layers. Where the difference
 * is small the default stands: bf16 before fp32, since half as much passes through memory; dot
 * products before widening; own products before oneDNN's. Layers that were not measured do not count.
 * Without measurements bf16 is taken where there are dot products. */
machine_choice machine_choose(const machine_facts *f, const machine_layer *layers, int n,
                              unsigned allowed);
/* Whether two numbers of threads differ enough to take the smaller one: ms of the same work. */
bool machine_fewer_threads(double all_ms, double fewer_ms);
/* The instruction set with which the device computes so. */
cpu_isa machine_isa(cpu_isa isa, machine_arith how);

/* "fp32 20.1 ms, bf16 by dot products 10.2 ms (the model's products on one thread)", or that nothing
 * was measured. */
void machine_describe(const machine_choice *c, char out[256]);
/* "own", "onednn", or a list by layouts. */
void machine_describe_rule(const gemm_rule *r, bool bf16, char out[128]);

/* ---- the file (machine_file.c) ----
 *
 * {"machines": [{machine, isa, threads, program, best_threads, fma_gflops, dot_gflops,
 *   memory_gb_per_s, layers: [{rows, in, width, ms: [..]}], products}]}
 *
 * ms: 18 numbers in the order of machine_layer.ms. products: gemm_choices_json. */

/* ATHANOR_MACHINE_FILE, else athanor/machine.json in XDG_CACHE_HOME or ~/.cache. False: there is no
 * home, or ATHANOR_MACHINE_FILE is "none". */
bool machine_path(char *out, size_t bytes);
/* Says so; ST_USAGE. */
status machine_no_place(err *e);
/* Whether ATHANOR_MACHINE_FILE is "none": then nothing is measured and nothing remembered. */
bool machine_is_off(void);
/* The facts of this machine with this device's instruction set and threads; with no measurement in
 * them where there is no file, or none of them in it. What was measured on one thread holds for any
 * number of them. ST_FORMAT: the file is damaged. */
status machine_read(machine_facts *f, const dev *d, err *e) ATH_MUST_USE;
/* Puts them into the file, beside those of other machines and what other processes have added to this one's since it was
 * read: they may write at the same time. ST_USAGE: there is no place for it; ST_FORMAT: the file is damaged, and stays. */
status machine_write(const machine_facts *f, err *e) ATH_MUST_USE;
/* The same after all was measured anew: what was measured of this machine with other numbers of threads goes, but the
 * products of bench gemm. */
status machine_write_anew(const machine_facts *f, err *e) ATH_MUST_USE;
void machine_free(machine_facts *f);

#endif
