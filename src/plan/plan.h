/* The plan of a run: what it will hold in memory and at which address, what its programs compute
 * and cost, and what its ranks send. All this is known before any memory exists.
 *
 * `athanor plan` and the run make the same plan. `athanor plan` makes it on the meta device, which
 * has no memory, and only reads it. The run also commits it: memory is reserved, and the programs
 * get their addresses.
 *
 *   plan_new            records all programs, lays out the arena
 *   plan_check_fits     refuses what does not fit, and names a config key and a value that fits
 *   plan_commit         reserves memory and binds stores and programs to it
 *   plan_prog, plan_step_parts, plan_generator     what the run then uses
 *   plan_free
 *
 * A plan has a list of models: the one that is trained, and others, which only go forward over the
 * same micro-batches ("look"). It has a list of programs: training (one for each chunk of layers),
 * validation, prefill and decode of the sampler, and so forth. plan_prog finds one by its use.
 *
 * A plan has a phase for each stage of the run. A phase is a spec: another sequence length, batch
 * or rotary base makes other programs, over the same arena. One phase is selected at a time
 * (plan_select).
 *
 * The arena, one piece of device memory:
 *
 *   low                                                                                     high
 *   +------------+--------+--------+-----------+--------+-------+-----------+----------------+
 *   | parameters | work   | other  | optimizer | pinned | KV    | gradients | frames of      |
 *   | fp32       | copies | models | states    | in/out | cache | fp32      | programs       |
 *   +------------+--------+--------+-----------+--------+-------+-----------+----------------+
 *
 * A frame holds the activations of a program while it runs. Programs that run one after the other
 * use the same space. Micro-batches that are under way together have frames of their own, in each
 * chunk, for what they keep from one pass to another; before these lies scratch, in which all passes
 * take turns. If a step is one micro-batch, the frame begins where the gradients do: the gradients of a
 * layer are written where activations of later layers were (prog/graph.h, grads_in_frame). With
 * ZeRO, pieces of work copies and of gradients (param/units.h) have regions of their own.
 *
 * Of a pipeline, a plan is that of one stage: it has the parameters and programs of its own chunks of
 * layers only. Between "pinned" and the cache are the boxes in which arrives what other stages send.
 *
 * The snapshot, from which a checkpoint is written while training goes on, is memory of the host,
 * beside the arena.
 *
 * Sizes are in bytes, and of one rank. Beyond 2^60 bytes a plan is refused when it is made.
 *
 * Reading order: this file, programs.c (which programs there are), stages.c (which stage of a pipeline
 * has which layers), plan.c (the arena), report.c (what is printed). */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <jansson.h>
#include <limits.h>

#include "infer/generator.h"
#include "infer/engine.h"
#include "infer/scorer.h"
#include "model/family.h"
#include "optim/offload.h"
#include "param/units.h"
#include "step/traffic.h"

/* A model beside the one that is trained: a reference, a teacher. It has a store of its own, in
 * which all parameters are frozen. */
typedef struct plan_other {
    const char *name; /* in reports */
    model_config config;
} plan_other;

enum { PLAN_ALL_FRAMES = INT_MAX };

typedef struct plan_spec {
    model_config model;
    dtype compute;         /* of activations and products: DT_F32, DT_BF16, DT_F16 */
    int T;                 /* tokens of a sequence, in training and validation */
    int source_T;          /* tokens of a source, for an encoder; 0: as T */
    int train_B;           /* sequences of a micro-batch; 0: no training program */
    int64_t micro_batches; /* of this rank in a step, at most; 0: one */
    int chunks;            /* how many training programs share the layers; 0: one */
    int pp_schedule; /* of several stages (ranks->size[MESH_PP]), which have chunks / stages each: a
                        schedule_kind (step/schedule.h) */
    int frames;      /* micro-batches under way at a time; 0: one, PLAN_ALL_FRAMES: all */
    int sequences;   /* of one sample; 0: one. A micro-batch has whole samples only */
    int learned;     /* so many of them are trained, and run in a pass; 0: all */
    bool deferred_loss;       /* the loss is computed outside of the program (TASK_NLL) */
    model_adapters adapters;  /* these are trained, and the model is frozen; rank 0: none */
    bool nf4_base;            /* with adapters: matrices of its layers are in 4 bits (base/nf4.h) */
    const plan_other *others; /* [n_others] */
    int n_others;
    int valid_B;   /* 0: no validation program */
    int cache_tok; /* longest sequence of the sampler, in tokens; 0: no sampler */
    bool
        cache_f16; /* keys and values are f16 in its cache and the engine's; only if compute is DT_F32 */
    int prefill_T;  /* tokens of the longest prefill pass of the sampler */
    int source_tok; /* longest source of the sampler, for an encoder */
    int logits_T; /* length of sequences of which all logits are wanted; 0: no such program. A head of labels also has
                          programs of T/2, T/4, ... */
    scorer_size score;        /* of the scorer (infer/scorer.h); tok 0: none */
    engine_size serve;        /* of the engine (infer/engine.h); rows 0: none */
    const optim_class *optim; /* of training programs */
    dtype state_dt;           /* of its states: DT_F32, DT_BF16 */
    recompute_policy recompute;
    bool keep_collectives; /* of training programs */
    bool document_mask;
    int64_t chunk_rows; /* rows of logits that the head makes at a time; 0: automatic */
    float z_loss;
    model_routing routing; /* of training programs */
    model_lesson lesson;   /* of training programs; the first of the others is the teacher */
    bool teaches;          /* USE_VALID gives the logits of all rows, fp32 (TASK_TEACH) */
    int64_t host_bytes;    /* what the caller will hold outside the arena (rows read ahead, ...) */
    /* Weights that stay in a file (param_store_map); NULL: none do. */
    param_locate_fn locate;
    void *locate_ctx;
    const void *file; /* the address at which that file is mapped: offsets count from it */
    bool
        exact_products; /* activations are never rounded (graph_options.rounds): for comparing models */
    bool fixed_grads;  /* gradients are sums of integers: the deterministic mode */
    unsigned offload;  /* what lies in a file, with slots in memory: the words of optim/offload.h */
    bool snapshot;     /* a copy of masters and optimizer state, which a thread writes to files */
    const mesh *ranks; /* this rank's place among all; NULL: it is alone */
    param_sharding sharing; /* how data-parallel ranks share parameters */
    bool sequence_parallel, async_products;
    context_kind context; /* where context-parallel ranks share tokens */
    bool reckoned;      /* no files are read or written by it: it has no store of the whole model */
    double expert_load; /* rows that one rank sends another at a time: parallel.ep_load */
    bool narrow_sums;   /* gradients are sent as bf16 (parallel.reduce_dtype) */
    /* Set by plan_new, where there are several stages: at which layer each chunk begins [chunks + 1] (one that is
     * given stays), and what this stage does in a long step. */
    const int *cut;
    const struct pipeline *pipe;
} plan_spec;

typedef enum plan_region_kind {
    REGION_PARAMS,     /* masters */
    REGION_WORK,       /* work copies */
    REGION_WORK_PIECE, /* zero 3: work copies of what this rank owns */
    REGION_QUANT,      /* frozen matrices in 4 bits */
    REGION_OTHERS,     /* the other models, one after the other: masters, then work copies */
    REGION_OPTIM,      /* the states, one array after the other */
    REGION_OFFLOAD,    /* slots for what lies in a file */
    REGION_PINNED,     /* inputs, outputs and constants of all programs */
    REGION_BOXES,      /* what other stages of a pipeline send lies here until it is read */
    REGION_CACHE,      /* the KV cache of the sampler, of the scorer, or of the engine */
    REGION_GRAD_PIECE, /* zero 2, 3: gradients of what this rank owns, summed */
    REGION_GRADS,
    REGION_FRAME, /* scratch, then frames; if these begin in REGION_GRADS, only what they need behind it */
    REGION_SNAPSHOT, /* on the host; laid out as REGION_PARAMS, then REGION_OPTIM */
    REGION_COUNT
} plan_region_kind;

/* What a program is for. If a use has several programs, `number` says which. */
typedef enum plan_use {
    USE_TRAIN,   /* chunk `number` */
    USE_VALID,   /* of several stages: chunk `number` */
    USE_LOOK,    /* other model `number`: its forward pass over what is trained on */
    USE_PREFILL, /* the longest is number 0 */
    USE_DECODE,
    USE_ENCODE, /* sources of the sampler; the longest is number 0 */
    USE_LOGITS, /* of logits_T >> number tokens */
    USE_FILL,   /* of the scorer, of its shape `number` (scorer_shape_at) */
    USE_SCORE,
    USE_WRITE, /* of the scorer's writer */
    USE_BODY,  /* of the engine, with the rows of engine_rows_at */
    USE_HEAD,
    USE_AHEAD_BODY, /* the same of its module of multi-token prediction */
    USE_AHEAD_HEAD
} plan_use;

/* All that decides what a program computes. Uses with equal signatures share one program. A member
 * that is added here must also be compared in is_same (programs.c). */
typedef struct plan_signature {
    int model; /* 0: the one that is trained; 1 + i: others[i] */
    model_task task;
    model_layer_range layers;
    int B, T, S, Tmax, Smax, slots, positions, n_logits;
    model_pages paged;
    bool train, cache_f16, document_mask;
    recompute_policy recompute;
    int64_t chunk_rows;
    float z_loss;
    model_routing routing;
    model_lesson lesson;
    double rope_theta; /* of the phase */
    bool grads_in_frame, shares_scratch;
    bool head_elsewhere; /* on another stage */
} plan_signature;

typedef struct plan_program {
    plan_signature of;
    prog *prog;
    int frames;            /* how many frames it has, one after the other in memory */
    int ports;             /* how many sets of inputs and outputs: frame f has set f % ports */
    int64_t frame_step;    /* from one frame to the next */
    int64_t const_offset;  /* its constants, in REGION_PINNED */
    int64_t pinned_offset; /* inputs and outputs of its first frame, in REGION_PINNED */
    int64_t frame_offset;  /* its first frame, in REGION_FRAME; grads_in_frame: in REGION_GRADS */
} plan_program;

/* A model of the plan and its store. */
typedef struct plan_model {
    const char *name;
    param_store *store;
    int64_t offset; /* of other models: in REGION_OTHERS */
} plan_model;

/* Ranks that need the same memory: how many there are, and how much each needs. */
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
    const struct plan *like; /* of another stage, whose programs and store it has; NULL: own ones */
    int64_t quant_bytes;     /* of REGION_QUANT, while parameters are declared */
    bool *
        shares; /* [chunks] which of a pipeline's chunks share places with their mates; NULL: there is one stage */
    struct {
        int64_t offset, bytes;
    } region[REGION_COUNT];
    int64_t arena_bytes; /* on the device */
    int64_t peak_bytes;  /* arena and snapshot */
    plan_class *classes; /* of all ranks of the run, the largest peak_bytes first */
    int n_classes;
    void *base;                /* after plan_commit */
    void *snapshot;            /* NULL: none */
    const param_store *states; /* how each state of the optimizer lies; NULL: nothing is trained */
    void *optim_state[OPTIM_MAX_STATES];
    offload_content away; /* what lies in a file; all 0: nothing */
    void *snapshot_params;
    void *snapshot_state[OPTIM_MAX_STATES];
} plan;

/* Makes a plan for device d. specs[n]: one for each phase; they are copied. Phases may differ only
 * in what a stage may change: T, batches and frames, rotary base, masks, recompute, how the loss is
 * made. All else is taken from the first phase, which is selected. ST_MEMORY: no machine has so
 * much memory. */
status plan_new_phases(plan **out, dev *d, const plan_spec *specs, int n, err *e) ATH_MUST_USE;
/* The same for one phase. */
status plan_new(plan **out, dev *d, const plan_spec *spec, err *e) ATH_MUST_USE;
/* The same for a rank of another stage, which is alike: it has programs and store of `like`, and must be freed before it. */
status plan_new_like(plan **out, const plan *like, const mesh *ranks, err *e) ATH_MUST_USE;
/* Whether two stages have layers of the same kinds: their programs and parameters differ in names only. */
bool plan_stages_alike(const plan *p, int a, int b);
/* What each layer costs, by which a pipeline is cut: cost[num_hidden_layers]. It does not depend on the layout. */
status plan_layer_costs(const plan_spec *s, dev *d, double *cost, err *e) ATH_MUST_USE;
/* [chunks + 1] spec.cut: where plan_new would cut so many chunks. */
int *plan_cut_layers(arena *a, const plan_spec *s, const double *cost, int chunks);
/* Says how much memory all ranks of the run need, in any order; classes with the same need are
 * joined. Before this call, the plan assumes that every rank needs as much as this one. */
void plan_set_classes(plan *p, const plan_class *needs, int n);
/* Selects phase i: p->spec becomes its spec. */
void plan_select(plan *p, int i);
/* A program of the selected phase; NULL: it has none for that use. */
prog *plan_prog(const plan *p, plan_use use, int number);
/* The programs of a step of the selected phase, for step_build; the lists are in the arena a. reduces: several ranks have
 * gradients to sum. micro_batches: as many as the schedule of a pipeline can have. */
step_parts plan_step_parts(const plan *p, arena *a, int micro_batches, bool reduces);
/* Of texts of up to `longest` tokens: ids that tokenizer t has; t NULL: any id. */
generate_limits plan_limits(const plan *p, const tok *t, int longest);
/* The sampler's programs and cache, of a committed plan. It picks only ids that tokenizer t has; t
 * NULL: any id. To be freed with generator_free. */
generator plan_generator(const plan *p, const tok *t);
/* The scorer's programs and cache, of a committed plan. To be freed with scorer_free. */
scorer *plan_scorer(const plan *p);
/* The engine's programs and cache, of a committed plan; t as above. To be freed with engine_free. */
engine *plan_engine(const plan *p, const tok *t);
/* Of the selected phase: how many chunks the model has, and how many micro-batches are under way
 * together, at most. */
int plan_chunks(const plan *p);
int plan_frames(const plan *p);
/* The layers of a chunk. */
model_layer_range plan_layers(const plan *p, int chunk);
/* How many stages share the layers, and which of them this rank is. */
int plan_stages(const plan *p);
int plan_stage(const plan *p);
/* Of a committed plan: where an input of a chunk lies that another stage has sent, activations or
 * (back) gradients, until STEP_RECEIVED. */
void *plan_box(const plan *p, int chunk, bool back, int box);
/* ST_MEMORY: plan_needed_bytes are more than `limit_bytes` (0: what the machine or the GPU has
 * free). The hint names the key to change and a value that fits, which was planned to find out. */
status plan_check_fits(const plan *p, int64_t limit_bytes, err *e) ATH_MUST_USE;
/* Reserves the arena and tells stores and programs where they are in it. Nothing is written to it.
 */
status plan_commit(plan *p, err *e) ATH_MUST_USE;
void plan_free(plan *p);
/* Bytes of the frames that hold what the backward reads of the forward. */
int64_t plan_saved_bytes(const plan *p);
/* Bytes of arena and snapshot that were used: in each, up to the last page that was touched. */
int64_t plan_touched_bytes(const plan *p);

/* Bytes of one array of the optimizer's state; of all of them, in memory or in a file. */
int64_t plan_state_array_bytes(const plan *p);
int64_t plan_state_bytes(const plan *p);
/* Whether something lies in a file; how many bytes; what a step reads from it and writes to it. */
bool plan_has_file(const plan *p);
int64_t plan_file_bytes(const plan *p);
offload_counts plan_file_traffic(const plan *p);
/* Opens the file, of a committed plan. */
status plan_open_offload(plan *p, offload **out, const char *path, err *e) ATH_MUST_USE;

/* Bytes that the process holds beside the arena: code caches of the kernels, thread stacks, tables,
 * and the segment through which the ranks of a machine exchange. */
int64_t plan_baseline_bytes(const plan *p);
/* What a limit is compared with: on a GPU its arena, as snapshot and process are the host's; else arena, snapshot and
 * process. */
int64_t plan_needed_bytes(const plan *p);
/* What this rank sends in the largest step of the selected phase. That step may have millions of
 * micro-batches: the tables of two short steps are made, and the rest follows from these. */
comm_counts plan_traffic(const plan *p);
/* Bytes by kind of collective, in the form of `athanor plan --json` and of `end` events. */
json_t *plan_traffic_json(const comm_counts *sent);
/* params{}, memory{}, layout{} of `athanor plan --json`. */
json_t *plan_json(const plan *p, int64_t limit_bytes);
/* live{}: how many bytes of activations are in use while each op of a micro-batch runs (of the first chunk of layers that the
 * rank has), in at most 240 points of equally many ops, each with its largest. NULL: the plan trains nothing. */
json_t *plan_live_json(const plan *p);
/* The table that is printed before step 0. */
void plan_describe(const plan *p, strbuf *out);

/* FLOPs of one training micro-batch: what the model's mathematics needs, for MFU; and all that is
 * computed, with recompute and other models, for HFU. */
double plan_model_flops(const plan *p);
double plan_hardware_flops(const plan *p);

#endif
