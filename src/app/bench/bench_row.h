/* What the bench commands share: the rows of their JSON, and medians. */
#ifndef APP_BENCH_ROW_H
#define APP_BENCH_ROW_H

#include <jansson.h>

#include "train/bench/bench.h"

/* Appends {"name", "value", "unit"}. */
void bench_put_row(json_t *rows, const char *name, double value, const char *unit);
/* Device, threads, precision and sizes: as members of o, and as a line of text. */
void bench_put_facts(json_t *o, const bench_facts *f);
void bench_describe_facts(const bench_facts *f, char out[256]);
void bench_print_profile(const bench_profile *p);

#endif
