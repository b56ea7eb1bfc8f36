/* How far a task tells models apart: what its scores do over the checkpoints of a run (the criteria
 * of FineTasks: monotonicity, low noise, above chance, and the same order of models at all
 * times). */
#ifndef EVAL_QUALITY_H
#define EVAL_QUALITY_H

#include <stdbool.h>

typedef struct eval_quality {
    double monotonicity;  /* Spearman's rank correlation of score and place in the run, -1 to 1 */
    double signal, noise; /* last score minus the first; deviation of a score from its neighbours */
    double above_chance;  /* (last score - chance) in standard errors; NaN: chance is not known */
} eval_quality;

/* Scores of n >= 2 checkpoints in the order of training; stderr_ of the last one; chance NaN: not
 * known.
 *   noise = sqrt(mean (s[i+1] - s[i] - mean step)^2 / 2): of a straight line none, of white noise
 *   its deviation */
eval_quality eval_quality_of(const double *score, int n, double stderr_, double chance);
/* What is wrong with it, in words; NULL: nothing. Below 0.5 the order of checkpoints is hardly
 * seen, a signal below twice the noise may be none, and below two standard errors the model may be
 * guessing. */
const char *eval_quality_flaw(const eval_quality *q);

/* How far the order of several runs stays the same while they are trained, -1 to 1: the mean of
 * Kendall's tau (tau-a: pairs in the same order less pairs in another, by all pairs) over pairs of
 * neighbouring checkpoints. score [runs,n]: each run's n >= 2 checkpoints; runs >= 2. */
double eval_rank_stability(const double *score, int runs, int n);

/* Spearman's correlation of two rows of numbers; equal ones have the mean of their ranks. 0 when
 * all are equal. */
double eval_spearman(const double *a, const double *b, int n);

#endif
