#include "app/bench/bench_row.h"

#include <stdlib.h>

#include "base/json.h"

void bench_put_row(json_t *rows, const char *name, double value, const char *unit) {
    json_array_append_new(
        rows, json_pack("{s:s,s:o,s:s}", "name", name, "value", json_f64(value), "unit", unit));
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, int n) {
    qsort(v, (size_t)n, sizeof(*v), compare_doubles);
    return v[n / 2];
}
