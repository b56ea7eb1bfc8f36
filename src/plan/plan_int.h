/* What the files of the module share; private to it. */
#ifndef PLAN_PLAN_INT_H
#define PLAN_PLAN_INT_H

#include "plan/plan.h"

/* programs.c: records what the specs of all phases ask for. */
status plan_record_programs(plan *p, err *e) ATH_MUST_USE;

/* stages.c: where there are several stages, cuts the model into chunks of equal cost, and sets `cut` and
 * `pipe` of all phases. `whole` has the parameters of the whole model. */
status plan_cut_stages(plan *p, const param_store *whole, err *e) ATH_MUST_USE;
/* The parameters of the whole model, of one rank. */
status plan_declare_whole(arena *a, const plan_spec *s, param_store **out, err *e) ATH_MUST_USE;
int plan_stages_of(const plan_spec *s);
int plan_stage_of(const plan_spec *s);
bool plan_has_chunk(const plan_spec *s, int chunk); /* this stage */
/* The chunk of another stage that has the place of `chunk` among those of this one. */
int plan_chunk_like(const plan_spec *s, int chunk, int stage);
/* Frames of a chunk of this stage; -1: of the one that has most. */
int plan_stage_frames(const plan_spec *s, int chunk);
/* [chunks] The stored layer with which each chunk of the first phase begins; NULL: there is one stage. */
const int *plan_layer_cuts(const plan *p);
model_layer_range plan_layers_of(const plan_spec *s, int chunk);
/* Once the programs are recorded: decides which chunks of an interleaved stage share places (pipeline.h), where that takes less. */
void plan_share_places(plan *p);
/* The program with which that of a chunk shares places, in the selected phase; NULL: none. */
plan_program *plan_mate(const plan *p, int chunk);
/* Bytes of all boxes of this stage in the selected phase. */
int64_t plan_boxes_bytes(const plan *p);
/* What this stage does in a step of so many micro-batches; NULL: there is one stage only. */
const struct pipeline *plan_pipeline(const plan_spec *s, arena *a, int micro_batches);

/* The program of the selected phase; NULL: it has none for that use. */
plan_program *plan_find(const plan *p, plan_use use, int number);

/* Whether training frames begin with the gradients: a step is one micro-batch of one chunk, and its
 * gradients are flat fp32 (units.h). */
bool plan_grads_in_frame(const plan_spec *s);
/* "weights": the value of parallel.offload. */
const char *plan_offload_word(unsigned what);
/* After plan_commit: where a region begins, NULL where it has no bytes; the cache. */
void *plan_region(const plan *p, plan_region_kind k);
void *plan_cache(const plan *p);
int plan_tp(const plan_spec *s);
int plan_cp(const plan_spec *s); /* how many tensor-parallel ranks */

#endif
