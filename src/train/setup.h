/* What a run is made of: config, ranks, device, tokenizer, course, models, plan, optimizer,
 * objective.
 *
 * It is opened in the order of cost, so that every error that can be found without data is found
 * before data is opened: setup_open_tokenizer, setup_open_course (for which train.epochs needs to
 * know how much data there is), setup_make_plan, setup_commit. From then on it is only read. What
 * changes while the run trains is the memory that the plan laid out, and the other parts of a
 * session (session.h). */
#ifndef TRAIN_SETUP_H
#define TRAIN_SETUP_H

#include "data/build/labels.h"
#include "eval/task.h"
#include "plan/plan.h"
#include "tok/tok.h"
#include "train/choice.h"
#include "train/course/stage_data.h"
#include "train/lora.h"
#include "train/objective/objective.h"
#include "train/ranks/peers.h"

/* Tasks on which checkpoints are evaluated. */
typedef struct setup_tasks {
    eval_task *list; /* [n]; their results are those of the last evaluation */
    int n;
    struct chat_template *template; /* of the model, for dialogues; NULL: not needed */
    scorer_size score;              /* what they need of the plan */
    int64_t cache_tok;              /* the generator's longest sequence; 0: none */
    int64_t host_bytes;             /* of their texts */
} setup_tasks;

typedef struct setup {
    config *c; /* of the run; a stage has its own (course_stage) */
    arena *a;  /* as long as the run */
    peers peers;
    uint64_t attempt; /* a number of this start of the run: the same on all ranks, new each time */
    dev *dev;
    choice choice;        /* what `auto` stands for; its first members are set before opening */
    tok *tok;             /* NULL: the config names none, and none is needed */
    int32_t added_tokens; /* tokens that the weights it starts from lack (vocabulary.h) */
    course *course;
    model_config *models; /* one a stage: rotary bases differ */
    lora lora;            /* what a run of adapters has beside */
    plan *plan;
    const int *
        cut; /* where stages begin, once one has been planned: the same for all (plan_spec); NULL: not known */
    const optim_class *optim;
    struct offload *offload; /* what lies in a file; NULL: nothing */
    const objective *objective;
    plan_other reference; /* the reference model, if the objective has one */
    bool knows_reference; /* what it says is computed before training: it is not in the plan */
    struct reference_sets *references; /* [stages] that, when it is known; NULL (reference.h) */
    struct lesson_set *lessons;        /* [stages] what a stored teacher says; NULL (lessons.h) */
    tok_ids *prompts;                  /* of the samples */
    setup_tasks tasks;                 /* evaluate.c opens them */
    double peak_flops;                 /* of this machine, for MFU */
} setup;

/* Needs c, a, peers and dev. Reads the model's config once, so that an error in it is found before
 * data is opened; `data` gets the tokenizer and what is known of the model. */
status setup_open_tokenizer(setup *u, stage_data *data, err *e) ATH_MUST_USE;
/* epoch_sequences and origin: as in course_new. */
status setup_open_course(setup *u, uint64_t epoch_sequences, const course_origin *origin,
                         err *e) ATH_MUST_USE;
/* Plans the memory, without reserving it. ST_MEMORY: it does not fit. */
status setup_make_plan(setup *u, err *e) ATH_MUST_USE;
/* Reserves the memory. Its contents are set later. */
status setup_commit(setup *u, err *e) ATH_MUST_USE;
void setup_close(setup *u);
void evaluation_close(setup *u); /* evaluate.c */

/* Gives the store of model m its first weights: those of the folder m->from, with rows for new
 * tokens where the model has more than the folder (vocabulary.h). If it has no such folder, or m is
 * NULL, by the rules of param_init. The trained model of a run of adapters: those of its base model,
 * whatever m says. */
status setup_make_weights(const setup *u, param_store *store, const model_config *m,
                          err *e) ATH_MUST_USE;
/* Gives a store the weights of the reference model: those of train.reference. If that is not set,
 * those with which the model begins, as `initial` says. */
status setup_make_reference(const setup *u, param_store *store, const model_config *initial,
                            err *e) ATH_MUST_USE;
/* The same for the reference of the plan, if that has one. */
status setup_load_reference(const setup *u, const model_config *initial, err *e) ATH_MUST_USE;
/* Sets the optimizer's state to that before the first step. */
status setup_clear_optimizer(const setup *u, err *e) ATH_MUST_USE;
/* The weights' digest, the same on all ranks. */
status setup_digest(setup *u, uint64_t *digest, err *e) ATH_MUST_USE;

/* Whether this is rank 0, which prints and writes for all. */
static inline bool setup_leads(const setup *u) {
    return peers_rank(&u->peers) == 0;
}
/* Whether checkpoints are written while training goes on, from a snapshot. */
bool setup_saves_on_the_way(const setup *u);
/* The format of activations and products: DT_BF16, DT_F16 or DT_F32; precision `auto` has been
 * resolved. */
dtype setup_compute(const config *c);
dtype setup_state_dtype(const config *c); /* of the optimizer's state: DT_F32, DT_BF16 */
/* How routers of experts are trained. */
model_routing setup_routing(const config *c);
/* Of which a micro-batch has whole samples only: 2 of pairs. */
int setup_sequences_of_sample(const config *c);
/* What a rank holds outside the arena for a stage (stage.c allocates it), of dp and cp ranks. */
int64_t setup_host_bytes(const course_stage *k, int64_t dp, int cp, const model_config *mc);
/* ST_USAGE: train.seq_len is more than model m has positions for. */
status setup_check_length(const config *c, const model_config *m, err *e) ATH_MUST_USE;
/* Whether the size of the vocabulary is the tokenizer's: it is `auto`, or nothing sets it. */
bool setup_takes_vocab(const config *c);

#endif
