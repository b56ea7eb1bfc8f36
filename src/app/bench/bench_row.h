/* What the bench commands share: the rows of their JSON, and medians. */
#ifndef APP_BENCH_ROW_H
#define APP_BENCH_ROW_H

#include <jansson.h>

/* Appends {"name", "value", "unit"}. */
void bench_put_row(json_t *rows, const char *name, double value, const char *unit);
/* The median of n > 0 values, which are sorted. */
double bench_median(double *v, int n);

#endif
