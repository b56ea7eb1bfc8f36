#include "data/order/spans.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/status.h"

static int64_t between(int64_t x, int64_t least, int64_t most) {
    return x < least ? least : x > most ? most : x;
}

span_sizes spans_of(const span_rules *r, int64_t n) {
    int64_t cut = between(llrint((double)n * r->density), 1, n - 1), stays = n - cut;
    int64_t spans = between(llrint((double)cut / r->mean), 1, cut < stays ? cut : stays);
    int64_t end = r->end >= 0;
    return (span_sizes){cut, spans, stays + spans + end, cut + spans + end};
}

int64_t spans_longest(const span_rules *r, int64_t source, int64_t target) {
    int64_t low = 1, high = source + target + 1; /* low fits, high does not */
    while (high - low > 1) {
        int64_t n = low + (high - low) / 2;
        span_sizes z = spans_of(r, n);
        if (z.source <= source && z.target <= target)
            low = n;
        else
            high = n;
    }
    return low > 1 ? low : 0;
}

/* A division of `all` tokens into `parts` parts of at least one token, each division as likely as any other:
 * of the all - 1 places between tokens it ends a part at parts - 1. They are drawn place by place, from the first on. */
typedef struct division {
    rng_key key;
    uint64_t drawn;
    int64_t places, ends; /* that are left */
} division;

static division divide(rng_key key, int64_t all, int64_t parts) {
    return (division){.key = key, .places = all - 1, .ends = parts - 1};
}

static int64_t next_part(division *d) {
    int64_t n = 1;
    while (d->places > 0) {
        uint64_t draw = (uint64_t)rng_u32(d->key, d->drawn++) * (uint64_t)d->places >> 32;
        bool ends = draw < (uint64_t)d->ends;
        d->places--;
        if (ends) {
            d->ends--;
            return n;
        }
        n++;
    }
    return n;
}

void spans_cut(const span_rules *r, uint64_t seed, const int32_t *ids, int64_t n, int32_t *source,
               int32_t *target) {
    span_sizes z = spans_of(r, n);
    division kept = divide(rng_key_named(seed, "spans that stay"), n - z.cut, z.spans);
    division gone = divide(rng_key_named(seed, "spans that are cut"), z.cut, z.spans);
    CHECK(z.spans <= r->n_sentinels, "%ld spans, %d sentinels", (long)z.spans, r->n_sentinels);
    for (int64_t i = 0; i < z.spans; i++) {
        int64_t stay = next_part(&kept), cut = next_part(&gone);
        memcpy(source, ids, sizeof *ids * (size_t)stay);
        source += stay, ids += stay;
        *source++ = *target++ = r->sentinels[i];
        memcpy(target, ids, sizeof *ids * (size_t)cut);
        target += cut, ids += cut;
    }
    if (r->end >= 0) *source = *target = r->end;
}
