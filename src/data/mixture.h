/* Deals samples to weighted sources by arithmetic: which source sample i comes from, and how many
 * of its samples came before, are O(1) functions of i.
 *
 * Weights become slot counts c[k] out of 65,536 (largest remainder). The cycle of slots is filled
 * by Tijdeman's rule ("The chairman assignment problem", Discrete Mathematics 32, 1980), which
 * keeps every prefix n within 1 - 1/(2K-2) of n * c[k] / 65,536 for each of K sources. */
#ifndef DATA_MIXTURE_H
#define DATA_MIXTURE_H

#include <stdint.h>

#include "base/status.h"

enum { MIXTURE_SLOTS = 65536 };

typedef struct mixture mixture;

/* ST_USAGE: a weight that is not positive and finite, or a share below half a slot. */
status mixture_new(mixture **out, const double *weights, int n, err *e) ATH_MUST_USE;
void mixture_free(mixture *m);
/* The source of sample i; *ordinal is the number of that source's samples before it. */
int mixture_source(const mixture *m, uint64_t sample, uint64_t *ordinal);
double mixture_share(const mixture *m, int source);

#endif
