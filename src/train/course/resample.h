/* Rounds of training (Tang et al. 2024, arXiv 2402.02791, "multiple-round training"): one round notes the loss of each
 * sequence, and an epoch of a later round has only a share of the sequences, drawn by them.
 *
 * Their rule: of N samples N0 = r N are drawn without replacement, sample i with probability exp(l_i) / sum_j exp(l_j).
 * The N0 largest of l_i - log(-log u_i), u_i uniform in (0, 1), are drawn so (Kool et al. 2019, Gumbel top-k). They draw within
 * each batch; here N is all sequences of a source, which is their rule for a large batch. The draw is a function of the losses,
 * data.seed and the stage, so a sample's number still says which sequence it is.
 *
 * RUN/losses/NAME-S.f32 has a float for each sequence of the data of stage S, in the order of sequence_index.h: the mean loss of
 * its targets when it was trained last, 0 before. NAME is made of the data and how they are cut. A step that is done again after
 * a crash writes the same numbers in the same places. */
#ifndef TRAIN_RESAMPLE_H
#define TRAIN_RESAMPLE_H

#include "train/course/stage_data.h"
#include "train/sequence_index.h"

/* Where a stage's losses are noted. */
typedef struct resample_losses {
    int fd; /* -1: they are not */
    const char *path;
    sequence_index index;
    err fault; /* the first error of resample_note */
} resample_losses;

/* Whether every epoch of these data has the same sequences. */
bool resample_cuts_once(const config *c);
/* Opens the file of a stage, if its config wants that; `begins` empties it. */
status resample_open(resample_losses *r, arena *a, const char *run, const config *c, int stage,
                     const loader *l, bool begins, err *e) ATH_MUST_USE;
void resample_close(resample_losses *r);
/* Notes the mean loss of a sample of that loader. */
void resample_note(resample_losses *r, const loader *l, uint64_t sample, double loss);

/* Draws the sequences of stage `stage` of a run, if its config wants that, and gives them to its loader. *hash is of what was
 * drawn; 0: nothing was. ST_USAGE: no earlier stage has noted losses of these data. */
status resample_draw(const char *run, const config *c, int stage, loader *l, uint64_t *hash,
                     err *e) ATH_MUST_USE;
/* The n sequences to draw of all, in order; loss 0 or not finite: not known, the mean is taken. For tests. */
void resample_choose(const float *loss, uint64_t all, uint64_t n, uint64_t seed, int stage,
                     uint32_t *chosen);

#endif
