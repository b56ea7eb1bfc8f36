/* A profile as a picture and as a timeline: the step over its parts (forward, backward, update)
 * over classes of ops over ops, width = time. All calls of an op are drawn as one: the picture
 * shows how much time ops take, not when they run. */
#ifndef TRAIN_BENCH_ICICLE_H
#define TRAIN_BENCH_ICICLE_H

#include "train/bench/bench_profile.h"

/* One SVG document that needs nothing else, for light and dark pages; the pointer shows details.
 * `title` and `subtitle` stand above it. */
void bench_icicle_write(strbuf *out, const bench_profile *p, const char *title,
                        const char *subtitle);

/* The same as a JSON list of trace events, for https://ui.perfetto.dev or chrome://tracing. */
void bench_timeline_write(strbuf *out, const bench_profile *p, const char *title);

#endif
