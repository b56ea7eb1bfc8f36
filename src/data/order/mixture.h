/* Deals samples to weighted sources by arithmetic: which source sample i comes from, and how many
 * of any source's samples come before it, are O(1) functions of i.
 *
 * A cycle of 16,384 slots is dealt by whole counts (the integer part of each source's share) with
 * Tijdeman's rule ("The chairman assignment problem", Discrete Mathematics 32, 1980), which keeps
 * every prefix within one of the exact share. Slots left over by rounding are dealt by a second
 * cycle, from the fractions. So shares are right to 1e-6 of all samples in the long run, rare
 * sources included, and after any n samples each source is less than three away from its exact
 * share. */
#ifndef DATA_MIXTURE_H
#define DATA_MIXTURE_H

#include <stdint.h>

#include "base/status.h"

typedef struct mixture mixture;

/* When two sources might have a slot with equal right, the one that comes first in `order` has it:
 * all sources, each once; NULL: as they are listed. ST_USAGE: a weight that is not positive and
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
