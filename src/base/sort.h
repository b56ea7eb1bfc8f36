/* Numbers in rising order. */
#ifndef BASE_SORT_H
#define BASE_SORT_H

#include <stdint.h>

void sort_doubles(double *x, int64_t n);
/* Sorts, and returns the middle one, or what lies between the two in the middle. n: 1 at least. */
double sort_median(double *x, int64_t n);

#endif
