/* The guard of a run: judges each step before its update, counts validations without improvement,
 * and remembers which samples are left out after rewinds.
 *
 * execute_step calls watch_judge between the gradient norm and the update; react.h acts on the
 * verdict. Each checkpoint has all of it but `rewinds` (state/guard.json), so that a resumed run
 * decides as one that was not interrupted. */
#ifndef TRAIN_WATCH_H
#define TRAIN_WATCH_H

#include "run/config/config.h"
#include "train/guard/rewards.h"
#include "train/guard/spike.h"

/* Early stop: for how many validations the loss has not become lower (eval.patience). */
typedef struct early_stop {
    double best_loss;  /* infinite: none yet */
    int64_t best_step; /* -1: none yet */
    int64_t without;   /* validations since the best one */
} early_stop;

void early_stop_init(early_stop *s);
/* Takes a validation; true when it is the best so far. An equal loss is no improvement, one that is
 * not finite never is. */
bool early_stop_take(early_stop *s, int64_t step, double loss);
/* True after `patience` validations in a row without a lower loss; patience 0: never. */
bool early_stop_is_due(const early_stop *s, int64_t patience);

/* {"best_loss", "best_step", "without"}; null and -1 where there is none yet. */
json_t *early_stop_to_json(const early_stop *s);
status early_stop_from_json(early_stop *s, const json_t *o, err *e) ATH_MUST_USE;

/* So many spikes in a row are no spikes but a new level of the loss: the window is emptied. */
enum { WATCH_LEVEL_SHIFT = 8 };

typedef enum watch_verdict {
    WATCH_FINE,
    WATCH_LOG,    /* a spike; the update is made */
    WATCH_LOWER,  /* a spike; this step and the next ones have a lower learning rate */
    WATCH_SKIP,   /* a spike; no update */
    WATCH_REWIND, /* a spike; no update, back to the last checkpoint, without these samples */
} watch_verdict;

/* Samples first .. first + n - 1 of a stage that are left out. */
typedef struct watch_gap {
    int stage;
    uint64_t first, n;
} watch_gap;

typedef struct watch {
    spike_window window;
    int64_t lower_until; /* last step with a lowered learning rate (guard.action=lower) */
    int in_row;          /* spikes in successive steps, up to the last step */
    early_stop stop;
    rewards_guard rewards; /* of objectives that learn from preferences */
    watch_gap *gap;        /* ascending */
    int n_gaps, cap;
    int rewinds; /* since the last checkpoint was written; not part of the state */
} watch;

void watch_init(watch *w, const config *c);
void watch_free(watch *w);
/* What a step is judged by. */
typedef struct watch_step {
    int64_t step;
    double loss, norm;
    double repeated; /* share of its tokens in repeated runs (suspects.h) */
} watch_step;
/* Judges a step by its z-scores against the window, and enters it into the window unless its update
 * is left out. A loss or norm that is NaN or Inf counts as a spike where the action leaves the
 * update out (skip, rewind). With any other action, and after WATCH_LEVEL_SHIFT spikes in a row,
 * the verdict on it is WATCH_FINE: the caller then stops the run, since nothing is learned any
 * more. */
watch_verdict watch_judge(watch *w, const config *c, const watch_step *s, spike_score *score);
bool watch_is_repetitive(const config *c, double repeated);
/* Empties the window: in a new stage the loss has another level. */
void watch_forget(watch *w);
/* Sets the state before the first step, but keeps the gaps: for a rewind to the beginning. */
void watch_restart(watch *w);
/* The factor of a step's learning rate: guard.lower_factor after a spike, else 1. */
double watch_rate(const watch *w, const config *c, int64_t step);

/* Leaves these samples out from now on. */
void watch_add_gap(watch *w, watch_gap gap);
/* The course numbers samples as if none were left out. Returns the loader's number of such a
 * sample: larger by the number of samples that are left out before it. */
uint64_t watch_move(const watch *w, int stage, uint64_t sample);

/* Everything but `rewinds`. watch_from_json keeps gaps that the object does not have: in a rewind,
 * those that are newer than the checkpoint. */
json_t *watch_to_json(const watch *w);
status watch_from_json(watch *w, const json_t *o, err *e) ATH_MUST_USE;

#endif
