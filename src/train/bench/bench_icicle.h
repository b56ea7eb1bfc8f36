/* A profile as a picture: the step over its passes over classes of ops over ops, width = time. */
#ifndef TRAIN_BENCH_ICICLE_H
#define TRAIN_BENCH_ICICLE_H

#include "train/bench/bench_profile.h"

/* One SVG document that needs nothing else, for light and dark pages; the pointer shows details.
 * `title` and `subtitle` stand above it. */
void bench_icicle_write(strbuf *out, const bench_profile *p, const char *title,
                        const char *subtitle);

#endif
