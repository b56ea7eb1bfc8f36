/* What the reference model says of the sequences of a run's data, computed once, before training, so
 * that the reference is not in memory while the model is trained (train.reference_cache).
 *
 * The sum of the log-probabilities of a sequence's targets is all that objectives need. It is computed
 * by the program that would compute it in each step, in sequences of the same shape: the bits are the
 * same. The values of a set of data are kept in RUN/reference/, one file for each set and length: a
 * line of JSON that says of what they are, then the values as doubles of this machine's order. A run
 * that was killed goes on with the values that its file has. */
#ifndef TRAIN_REFERENCE_H
#define TRAIN_REFERENCE_H

#include "train/sequence_index.h"

typedef struct reference_set {
    sequence_index index;
    double *logp; /* [index.n] */
} reference_set;

typedef struct reference_sets {
    reference_set train, valid; /* of a stage */
} reference_sets;

/* Of a sample of a loader over the same data; 0 of padding behind the last sequence. */
double reference_logp(const reference_set *set, const loader *l, uint64_t sample);

/* ST_FAILED: the loader, NULL for none, has other data than the values are of: they have changed since. */
status reference_check(const reference_set *set, const loader *l, err *e) ATH_MUST_USE;

struct session;
struct setup;
/* Of the files of weights in a folder, or of a file: another one in the same place has another. What rank 0 sees holds. */
uint64_t reference_identity(const struct setup *u, const char *path);
/* Whether what the reference says is to be computed before training. */
bool reference_is_kept(const struct setup *u);
/* Fills setup.references for all stages, if that is to be. Before it: the course, and the run folder.
 * The memory that it takes is free again. All ranks call it. ST_STOPPED: a signal came; what there is
 * so far is kept. */
status reference_prepare(struct session *s, err *e) ATH_MUST_USE;

#endif
