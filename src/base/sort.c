#include "base/sort.h"

#include <stdlib.h>

static int rising(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_doubles(double *x, int64_t n) {
    if (n) qsort(x, (size_t)n, sizeof *x, rising);
}

double sort_median(double *x, int64_t n) {
    sort_doubles(x, n);
    return (x[n / 2] + x[(n - 1) / 2]) / 2;
}
