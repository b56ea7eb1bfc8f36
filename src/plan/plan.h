/* The plan of a run: everything it will hold in memory, at which address, and what its programs
 * cost, before any of it exists. The trainer runs the same object: a plan made on the meta device
 * and one made on the cpu differ only in that the second can be committed (memory reserved,
 * programs bound).
 *
 * A plan holds a list of programs, found by what they are for (plan_prog), and a list of models:
 * the one that is trained, and others that only look at what it is trained on.
 *
 * A run in stages has phases: other lengths, batches or rotary bases are other programs over the
 * same arena, of which one phase is in use at a time (plan_select).
 *
 * The arena, low to high: parameters (fp32 masters), compute copies, the other models, optimizer
 * state, pinned memory of each program, KV cache of the sampler, gradients, and the frames of the
 * programs. Micro-batches that are under way together have frames of their own, for each chunk of
 * layers; other programs, which run between steps, share that space. With one micro-batch a step
 * the frame begins where the gradients do: those of a layer lie where activations of later layers
 * were (prog/graph.h, grads_in_frame). The snapshot that is saved in the background is memory of
 * the host, beside the arena.
 *
 * Reading order: this file, programs.c (which programs there are), plan.c (the arena), report.c. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <jansson.h>
#include <limits.h>

#include "infer/generator.h"
#include "model/family.h"
#include "optim/optim.h"
#include "param/units.h"
#include "step/traffic.h"

/* A model beside the one that is trained, with a store of its own, all of it frozen: a reference, a
 * teacher. */
typedef struct plan_other {
    const char *name; /* in reports */
    model_config config;
} plan_other;

enum { PLAN_ALL_FRAMES = INT_MAX };

typedef struct plan_spec {
    model_config model;
    dtype compute; /* DT_F32, DT_BF16 */
    int T;
    int train_B;              /* micro-batch; 0: no training program */
    int64_t micro_batches;    /* of this rank in a step, at most; 0: one */
    int chunks;               /* runs of layers that are training programs of their own; 0: one */
    int frames;               /* micro-batches under way at a time; 0: one, PLAN_ALL_FRAMES: all */
    int sequences;            /* of a sample: a micro-batch has whole samples; 0: one */
    bool deferred_loss;       /* its gradient is given after the forward (TASK_NLL) */
    model_adapters adapters;  /* are trained, and the rest is frozen; rank 0: none */
    const plan_other *others; /* [n_others] each sees what is trained on, forward */
    int n_others;
    int valid_B;    /* 0: no validation program */
    int cache_tok;  /* longest sequence of the sampler; 0: no sampler */
    bool cache_f16; /* its keys and values as f16; compute is DT_F32 */
    int prefill_T;  /* tokens of the longest prefill pass of the sampler */
    int logits_T;   /* one sequence whose logits are all wanted; 0: none */
    const optim_class *optim;
    recompute_policy recompute;
    bool document_mask;
    int64_t chunk_rows; /* rows of logits that the head makes at a time; 0: automatic */
    float z_loss;
    int64_t host_bytes; /* that the caller will hold beside the arena: rows read ahead, say */
    /* Weights that stay in a file (param.h); NULL: none do. */
    param_locate_fn locate;
    void *locate_ctx;
    const void *file; /* where that file is mapped */
    bool fixed_grads; /* gradients are sums of integers: the deterministic mode */
    bool snapshot; /* room for a copy of masters and optimizer state, from which a thread saves */
    const mesh
        *ranks; /* where this one is among others, by whom parameters are shared; NULL: alone */
    param_sharding sharing;
    bool sequence_parallel;
    bool narrow_sums; /* gradients travel as bf16 */
} plan_spec;

typedef enum plan_region_kind {
    REGION_PARAMS,
    REGION_WORK,
    REGION_WORK_PIECE, /* of zero 3: the compute copies of what this rank owns */
    REGION_OTHERS,     /* masters and compute copies of the other models, one after the other */
    REGION_OPTIM,
    REGION_PINNED, /* inputs, outputs and constants */
    REGION_CACHE,
    REGION_GRAD_PIECE, /* of zero 2, 3: the sums of what this rank owns */
    REGION_GRADS,
    REGION_FRAME,    /* without the gradients, where the frame begins with them */
    REGION_SNAPSHOT, /* on the host; laid out as REGION_PARAMS, then REGION_OPTIM */
    REGION_COUNT
} plan_region_kind;

/* What a program is for. A number says which of several. */
typedef enum plan_use {
    USE_TRAIN, /* chunk `number` */
    USE_VALID,
    USE_LOOK,    /* other model `number`: forward over what is trained on */
    USE_PREFILL, /* the longest is number 0 */
    USE_DECODE,
    USE_LOGITS
} plan_use;

/* All that decides what is recorded. Equal signatures are one program: what is added here is
 * compared in is_same (programs.c). */
typedef struct plan_signature {
    int model; /* 0: the one that is trained; 1 + i: others[i] */
    model_task task;
    model_layer_range layers;
    int B, T, Tmax, n_logits;
    bool train, cache_f16, document_mask;
    recompute_policy recompute;
    int64_t chunk_rows;
    float z_loss;
    double rope_theta; /* of the stage */
    bool grads_in_frame;
} plan_signature;

typedef struct plan_program {
    plan_signature of;
    prog *prog;
    int frames;            /* it runs in */
    int64_t const_offset;  /* in REGION_PINNED */
    int64_t pinned_offset; /* in REGION_PINNED, of its first frame; the others follow */
    int64_t frame_offset;  /* the same, in REGION_FRAME, or from REGION_GRADS on: grads_in_frame */
} plan_program;

/* A model of the plan and its store. */
typedef struct plan_model {
    const char *name;
    param_store *store;
    int64_t offset; /* of other models: in REGION_OTHERS */
} plan_model;

/* Ranks that need equally much. */
typedef struct plan_class {
    int ranks;
    int64_t peak_bytes;
} plan_class;

typedef struct plan {
    plan_spec spec; /* of the selected phase */
    dev *dev;
    arena *memory;      /* of the plan itself: graphs, stores */
    param_store *store; /* of the model that is trained */
    plan_model *model;  /* [1 + others]; the first one is trained */
    int n_models;
    plan_program *program; /* of all phases */
    int n_programs, cap_programs;
    plan_spec *phase;
    int n_phases;
    struct {
        int64_t offset, bytes;
    } region[REGION_COUNT];
    int64_t arena_bytes; /* on the device */
    int64_t peak_bytes;  /* with the snapshot */
    plan_class *classes; /* of all ranks, largest first */
    int n_classes;
    void *base;     /* after plan_commit */
    void *snapshot; /* NULL: none */
    float *optim_state[OPTIM_MAX_STATES];
    float *snapshot_params;
    float *snapshot_state[OPTIM_MAX_STATES];
} plan;

/* Records all programs on `d` and lays out the arena. The specs are copied; they differ in what a
 * stage may change only: T, batches and frames, rotary base, masks, recompute, how the head's loss
 * is made. What they have in common is taken from the first, which is selected. */
status plan_new_phases(plan **out, dev *d, const plan_spec *specs, int n, err *e) ATH_MUST_USE;
/* The same for one. */
status plan_new(plan **out, dev *d, const plan_spec *spec, err *e) ATH_MUST_USE;
/* Tells a plan of what all ranks need, in any order, and equal needs may be several. Before, all
 * are taken to need what this one does. */
void plan_set_classes(plan *p, const plan_class *needs, int n);
/* Makes `spec` that of phase i. */
void plan_select(plan *p, int i);
/* The program of the selected phase; NULL: it has none for that use. */
prog *plan_prog(const plan *p, plan_use use, int number);
/* What a step of the selected phase is made of: tables of pointers in the arena a. */
step_parts plan_step_parts(const plan *p, arena *a, int micro_batches, bool reduces);
/* Chunks of layers, and micro-batches under way together, of the selected phase. */
int plan_chunks(const plan *p);
int plan_frames(const plan *p);
/* ST_MEMORY when the arena and the process do not fit into `limit_bytes` (0: what the machine has
 * free); the hint names the key to change and a value that fits. */
status plan_check_fits(const plan *p, int64_t limit_bytes, err *e) ATH_MUST_USE;
/* Reserves the arena and binds stores and programs. Nothing is initialised. */
status plan_commit(plan *p, err *e) ATH_MUST_USE;
void plan_free(plan *p);
/* Activations that all micro-batches under way keep for their backward, inside the frames. */
int64_t plan_saved_bytes(const plan *p);
/* Bytes of the arena and the snapshot up to the highest page that was touched. */
int64_t plan_touched_bytes(const plan *p);

/* Bytes that the process holds beside the arena: code caches of the kernels, thread stacks, tables,
 * and the segment through which the ranks of a machine exchange. */
int64_t plan_baseline_bytes(const plan *p);
/* What this rank sends in the largest step of the selected phase. */
comm_counts plan_traffic(const plan *p);
/* Bytes by kind of collective, as plans and `end` events have them. */
json_t *plan_traffic_json(const comm_counts *sent);
/* params{}, memory{}, layout{} of `athanor plan --json`. */
json_t *plan_json(const plan *p, int64_t limit_bytes);
/* The table that is printed before step 0. */
void plan_describe(const plan *p, strbuf *out);
/* The same on standard output. */
void plan_print(const plan *p);

/* FLOPs of one training micro-batch: what the model's mathematics needs (MFU), and with recompute
 * (HFU). */
double plan_model_flops(const plan *p);
double plan_hardware_flops(const plan *p);

#endif
