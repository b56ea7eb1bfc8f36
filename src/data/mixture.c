/* See mixture.h. The fill works on integers only, so every machine deals the same way. */
#include "data/mixture.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

struct mixture {
    int n;
    int32_t *slots;    /* [n] c[k] */
    uint16_t *source;  /* [MIXTURE_SLOTS]; NULL with one source */
    uint16_t *ordinal; /* [MIXTURE_SLOTS] slots of the same source before this one in the cycle */
};

static status weight_error(err *e, int i, double weight, const char *what, const char *hint) {
    err_set(e, ST_USAGE, "the weight %g of data source %d %s", weight, i + 1, what);
    err_where(e, "data.train[%d].weight", i);
    err_hint(e, "%s", hint);
    return ST_USAGE;
}

static status check_weights(const double *weights, int n, double *sum, err *e) {
    for (int i = 0; i < n; i++) {
        if (!(weights[i] > 0 && isfinite(weights[i])))
            return weight_error(e, i, weights[i], "is not a positive number",
                                "leave the source out, or give it a positive weight");
        *sum += weights[i];
    }
    for (int i = 0; i < n; i++)
        if (!(weights[i] / *sum * MIXTURE_SLOTS >= 0.5))
            return weight_error(e, i, weights[i], "is less than 1/131,072 of all weights",
                                "leave the source out, or raise its weight");
    return ST_OK;
}

/* Whole slots first, the left-over ones to the largest fractions (ties: the earlier source). Every
 * source keeps at least one. */
static void apportion(mixture *m, const double *weights, double sum) {
    double *rest = xcalloc((size_t)m->n, sizeof *rest);
    int left = MIXTURE_SLOTS;
    for (int k = 0; k < m->n; k++) {
        double exact = weights[k] / sum * MIXTURE_SLOTS;
        m->slots[k] = exact < 1 ? 1 : (int32_t)exact;
        rest[k] = exact - m->slots[k];
        left -= m->slots[k];
    }
    for (; left != 0; left += left < 0 ? 1 : -1) {
        int best = -1;
        double sign = left > 0 ? 1 : -1;
        for (int k = 0; k < m->n; k++)
            if ((left > 0 || m->slots[k] > 1) && (best < 0 || sign * rest[k] > sign * rest[best]))
                best = k;
        m->slots[best] += left > 0 ? 1 : -1;
        rest[best] -= sign;
    }
    free(rest);
}

/* Tijdeman's rule, all multiplied out: with d = s c[k] - M x[k] (how far source k is behind before
 * slot s is dealt, s from 1), only sources with d >= M / (2K-2) may get the slot, and among them
 * the one whose share will next run out of bounds: least ((2K-3) M - (2K-2) d) / c[k]. */
static int choose(const mixture *m, const int32_t *dealt, int64_t s) {
    const int64_t M = MIXTURE_SLOTS, K2 = 2 * (int64_t)m->n - 2;
    int best = -1;
    int64_t best_num = 0;
    for (int k = 0; k < m->n; k++) {
        int64_t d = s * m->slots[k] - M * dealt[k];
        if (d * K2 < M) continue;
        int64_t num = (K2 - 1) * M - K2 * d;
        if (best < 0 || num * m->slots[best] < best_num * m->slots[k]) {
            best = k;
            best_num = num;
        }
    }
    return best;
}

static void fill_cycle(mixture *m) {
    m->source = xcalloc(MIXTURE_SLOTS, sizeof *m->source);
    m->ordinal = xcalloc(MIXTURE_SLOTS, sizeof *m->ordinal);
    int32_t *dealt = xcalloc((size_t)m->n, sizeof *dealt);
    for (int s = 0; s < MIXTURE_SLOTS; s++) {
        int k = choose(m, dealt, s + 1);
        CHECK(k >= 0, "no source for slot %d", s);
        m->source[s] = (uint16_t)k;
        m->ordinal[s] = (uint16_t)dealt[k]++;
    }
    free(dealt);
}

status mixture_new(mixture **out, const double *weights, int n, err *e) {
    *out = NULL;
    double sum = 0;
    TRY(check_weights(weights, n, &sum, e));
    mixture *m = xcalloc(1, sizeof *m);
    m->n = n;
    m->slots = xcalloc((size_t)n, sizeof *m->slots);
    apportion(m, weights, sum);
    if (n > 1) fill_cycle(m);
    *out = m;
    return ST_OK;
}

void mixture_free(mixture *m) {
    if (!m) return;
    free(m->slots);
    free(m->source);
    free(m->ordinal);
    free(m);
}

int mixture_source(const mixture *m, uint64_t sample, uint64_t *ordinal) {
    if (m->n == 1) {
        *ordinal = sample;
        return 0;
    }
    uint64_t cycle = sample / MIXTURE_SLOTS, slot = sample % MIXTURE_SLOTS;
    int k = m->source[slot];
    *ordinal = cycle * (uint64_t)m->slots[k] + m->ordinal[slot];
    return k;
}

double mixture_share(const mixture *m, int source) {
    return (double)m->slots[source] / MIXTURE_SLOTS;
}
