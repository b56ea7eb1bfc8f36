/* Span corruption (Raffel et al. 2020, section 3.1.4): some spans of a text are cut out. The source has a sentinel
 * in place of each, the target each sentinel with what it stands for; both end with the end of text.
 *
 *   text      a b c d e f g h i        the cut spans: c d, g
 *   source    a b <0> e f <1> h i </s>
 *   target    <0> c d <1> g </s>
 *
 * As in T5 a text begins with a span that stays and ends with one that was cut; there are
 * round(n * density) cut tokens in round(cut / mean) spans, and both kinds are divided at random places. Where the cuts
 * are follows from a seed, so a sample is the same whenever it is asked for. */
#ifndef DATA_SPANS_H
#define DATA_SPANS_H

#include <stdint.h>

typedef struct span_rules {
    double density;           /* of cut tokens, above 0 and below 1 */
    double mean;              /* tokens of a cut span, 1 or more */
    const int32_t *sentinels; /* [n_sentinels] in the order in which they are used */
    int n_sentinels;
    int32_t end; /* end of text; -1: none */
} span_rules;

/* Tokens of source and target that n tokens of text become, and how many spans are cut. n >= 2. */
typedef struct span_sizes {
    int64_t cut, spans, source, target;
} span_sizes;
span_sizes spans_of(const span_rules *r, int64_t n);
/* The longest text whose source and target fit; 0: none does. */
int64_t spans_longest(const span_rules *r, int64_t source, int64_t target);
/* ids[n] to source and target, with room for what spans_of says. There are enough sentinels. */
void spans_cut(const span_rules *r, uint64_t seed, const int32_t *ids, int64_t n, int32_t *source,
               int32_t *target);

#endif
