/* Deals samples to weighted sources. Which source sample i comes from, and how many samples of that
 * source come before it, are looked up in tables that are made once. There is no state and no
 * random number, and sample 10^12 costs what sample 0 costs.
 *
 * How: a cycle of 16,384 slots is dealt to the sources; sample i has slot i % 16,384. A source with
 * share w gets floor(16,384 w) slots, evenly spread by Tijdeman's rule ("The chairman assignment
 * problem", Discrete Mathematics 32, 1980): among the first n slots it has n times its share, off
 * by less than one. Rounding down leaves a few slots over. Their samples are dealt by a second
 * cycle of 16,384 slots, with shares in proportion to the fractions that were rounded off.
 *
 * So the shares are right to 1e-6 in the long run, those of rare sources too, and after any n
 * samples each source is less than three samples away from its exact share. */
#ifndef DATA_MIXTURE_H
#define DATA_MIXTURE_H

#include <stdint.h>

#include "base/status.h"

typedef struct mixture mixture;

/* `order` lists all n sources, each once (NULL: 0, 1, 2, ...): if two have an equal right to a
 * slot, the one that comes first in `order` gets it. ST_USAGE: a weight that is not positive and
 * finite, or below a ten-millionth of all. */
status mixture_new(mixture **out, const double *weights, const int *order, int n,
                   err *e) ATH_MUST_USE;
void mixture_free(mixture *m); /* NULL is fine */
/* The source of sample i; *ordinal is the number of that source's samples before it. */
int mixture_source(const mixture *m, uint64_t sample, uint64_t *ordinal);
/* How many of the first n samples are the source's. */
uint64_t mixture_count(const mixture *m, int source, uint64_t n);
double mixture_share(const mixture *m, int source);

#endif
