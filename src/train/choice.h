/* What `auto` stands for on this machine: precision, the arithmetic of products, who computes them, and
 * the number of threads.
 *
 * It is decided once, when a run is created, by what is remembered of the machine (op/machine.h), or
 * was measured just before (op/probe.h). Precision and arithmetic go into the run's config, the rest
 * into RUN/machine.json; a run that goes on takes both from there, on another machine, too. Rank 0
 * decides for all ranks. On a GPU, also on one that is only planned, `auto` is bf16: nothing of the CPU beside it counts.
 *
 * RUN/machine.json: {machine, isa, threads, of_threads, asked: {compute, arithmetic, gemm}, rule: {f32, bf16},
 * products}. threads: those that the run had, of so many that it could have; gemm: ATHANOR_GEMM; rule: words for
 * the layouts (gemm_layout); products: gemm_choices_json. */
#ifndef TRAIN_CHOICE_H
#define TRAIN_CHOICE_H

#include "model/family.h"
#include "op/machine.h"
#include "run/config/config.h"
#include "train/ranks/peers.h"

typedef struct choice {
    bool measures;       /* set by the caller: this machine may be measured */
    bool goes_on;        /* set by the caller: the run has begun earlier */
    json_t *record;      /* the run's machine.json: set by the caller if it goes on and has one */
    machine_choice made; /* of this start */
    gemm_policy policy;  /* likewise */
    double probe_s;      /* how long it was measured; 0: it was not */
    char began_on[160];  /* another machine or instruction set, where the run began; "": the same */
    char
        otherwise[1024]; /* what another choice would be now, or what cannot be kept; "": nothing */
} choice;

/* Decides, sets the config's precision and arithmetic, and prepares the device, on which nothing was
 * recorded yet. m: the model, whose shapes are measured. */
status choice_make(choice *k, config *c, const peers *p, const model_config *m, dev *d,
                   err *e) ATH_MUST_USE;
/* RUN/machine.json of a run that goes on; leaves NULL where there is none. */
status choice_read(choice *k, const char *run, err *e) ATH_MUST_USE;
void choice_free(choice *k);

#endif
