/* See mixture.h. The fill works on integers only, so every machine deals the same way. Read cycle
 * first (one table), then mixture_count (two of them). */
#include "data/order/mixture.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

enum { SLOTS = 16384 };
#define LEAST_SHARE 1e-7

/* Slots dealt to n participants; a number of slots each, SLOTS in all. */
typedef struct cycle {
    int n;
    int32_t *slots;   /* [n] c[k] */
    int32_t *first;   /* [n] where the places of k begin in `place` */
    uint16_t *source; /* [SLOTS] */
    uint16_t *place;  /* [SLOTS] the slots of 0, ascending, then those of 1, ... */
} cycle;

struct mixture {
    int n;
    int *order;     /* [n] the source that is the k-th participant */
    int *rank;      /* [n] and the other way round */
    cycle whole;    /* n + 1 participants: the last one stands for the second cycle */
    cycle fraction; /* n participants; unused when the last one above has no slots */
};

/* ---- one cycle ---- */

static void cycle_new(cycle *c, int n) {
    c->n = n;
    c->slots = xcalloc((size_t)n, sizeof *c->slots);
    c->first = xcalloc((size_t)n, sizeof *c->first);
    c->source = xcalloc(SLOTS, sizeof *c->source);
    c->place = xcalloc(SLOTS, sizeof *c->place);
}

static void cycle_free(cycle *c) {
    free(c->slots);
    free(c->first);
    free(c->source);
    free(c->place);
}

/* Tijdeman's rule as a queue. With K participants, M slots, x slots of k already dealt: k may get a
 * slot once it is far enough behind its share, from slot (M x + M / (2K-2)) / c[k] on; among those
 * who may, the one gets it whose share will run out of bounds first, at (M x + M - M / (2K-2)) /
 * c[k]. Both are known when x is, so everybody waits in the list of the slot where he may begin,
 * and then in a heap by when he must have been. */
typedef struct dealing {
    const cycle *c;
    int64_t K2;     /* 2K - 2 */
    int32_t *dealt; /* [n] x[k] */
    int32_t *waits; /* [SLOTS + 1] the first who may begin with that slot; -1: nobody */
    int32_t *next;  /* [n] the next one in the same list */
    int32_t *heap;  /* those who may now, the most pressing first */
    int n_heap;
} dealing;

/* Whether a must have its slot before b: times c[a] c[b] K2, so that all is whole. */
static bool presses(const dealing *d, int32_t a, int32_t b) {
    int64_t of_a = (d->K2 - 1 + d->K2 * d->dealt[a]) * d->c->slots[b];
    int64_t of_b = (d->K2 - 1 + d->K2 * d->dealt[b]) * d->c->slots[a];
    return of_a < of_b || (of_a == of_b && a < b);
}

static void heap_push(dealing *d, int32_t k) {
    int at = d->n_heap++;
    while (at > 0 && presses(d, k, d->heap[(at - 1) / 2])) {
        d->heap[at] = d->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    d->heap[at] = k;
}

static int32_t heap_pop(dealing *d) {
    int32_t top = d->heap[0], last = d->heap[--d->n_heap];
    int at = 0;
    for (int child; (child = 2 * at + 1) < d->n_heap; at = child) {
        if (child + 1 < d->n_heap && presses(d, d->heap[child + 1], d->heap[child])) child++;
        if (!presses(d, d->heap[child], last)) break;
        d->heap[at] = d->heap[child];
    }
    d->heap[at] = last;
    return top;
}

/* Slots count from 1 here; the ones before `from` are dealt. */
static void wait_for_turn(dealing *d, int32_t k, int64_t from) {
    int64_t c = d->c->slots[k], c2 = c * d->K2;
    if (d->dealt[k] == c) return;
    int64_t slot = (SLOTS + SLOTS * d->dealt[k] * d->K2 + c2 - 1) / c2;
    if (slot < from) slot = from;
    d->next[k] = d->waits[slot];
    d->waits[slot] = k;
}

static void deal_slots(cycle *c, dealing *d) {
    for (int32_t s = 0; s <= SLOTS; s++) d->waits[s] = -1;
    for (int32_t k = 0; k < c->n; k++) wait_for_turn(d, k, 1);
    for (int32_t s = 0; s < SLOTS; s++) {
        for (int32_t k = d->waits[s + 1]; k >= 0; k = d->next[k]) heap_push(d, k);
        CHECK(d->n_heap > 0, "no source for slot %d", s);
        int32_t k = heap_pop(d);
        c->source[s] = (uint16_t)k;
        c->place[c->first[k] + d->dealt[k]++] = (uint16_t)s;
        if (s + 1 < SLOTS) wait_for_turn(d, k, s + 2);
    }
}

static void cycle_deal(cycle *c) {
    int64_t taking_part = 0;
    for (int k = 0; k < c->n; k++) {
        if (k) c->first[k] = c->first[k - 1] + c->slots[k - 1];
        taking_part += c->slots[k] > 0;
    }
    size_t n = (size_t)c->n;
    dealing d = {.c = c,
                 .K2 = taking_part > 1 ? 2 * taking_part - 2 : 2,
                 .dealt = xcalloc(n, sizeof *d.dealt),
                 .waits = xcalloc(SLOTS + 1, sizeof *d.waits),
                 .next = xcalloc(n, sizeof *d.next),
                 .heap = xcalloc(n, sizeof *d.heap)};
    deal_slots(c, &d);
    free(d.dealt);
    free(d.waits);
    free(d.next);
    free(d.heap);
}

/* How many of the first n slots, over all rounds, are k's. Within a round the count is within one
 * of the exact share, so the search is a step or two. */
static uint64_t cycle_count(const cycle *c, int k, uint64_t n) {
    int32_t slot = (int32_t)(n % SLOTS);
    const uint16_t *place = c->place + c->first[k];
    int32_t x = (int32_t)((int64_t)slot * c->slots[k] / SLOTS);
    if (x < c->slots[k] && place[x] < slot) x++;
    return n / SLOTS * (uint64_t)c->slots[k] + (uint64_t)x;
}

/* ---- from weights to slots ---- */

static status weight_error(err *e, int i, double weight, const char *what, const char *hint) {
    err_set(e, ST_USAGE, "the weight %g of data source %d %s", weight, i + 1, what);
    err_where(e, "data.train[%d].weight", i);
    return err_hint(e, "%s", hint);
}

static status check_weights(const double *weights, int n, err *e) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (!(weights[i] > 0 && isfinite(weights[i])))
            return weight_error(e, i, weights[i], "is not a positive number",
                                "leave the source out, or give it a positive weight");
        sum += weights[i];
    }
    for (int i = 0; i < n; i++)
        if (!(weights[i] / sum >= LEAST_SHARE))
            return weight_error(e, i, weights[i], "is less than a ten-millionth of all weights",
                                "leave the source out, or raise its weight");
    return ST_OK;
}

/* Whole numbers with the sum `total` near share[k] (largest remainder; ties: the earlier one). What
 * has a share keeps at least one. */
static void apportion(int32_t *out, const double *share, int n, int32_t total) {
    double *rest = xcalloc((size_t)n, sizeof *rest);
    int32_t left = total;
    for (int k = 0; k < n; k++) {
        out[k] = share[k] > 0 && share[k] < 1 ? 1 : (int32_t)share[k];
        rest[k] = share[k] - out[k];
        left -= out[k];
    }
    for (; left != 0; left += left < 0 ? 1 : -1) {
        int best = -1;
        double sign = left > 0 ? 1 : -1;
        for (int k = 0; k < n; k++)
            if ((left > 0 ? share[k] > 0 : out[k] > 1) &&
                (best < 0 || sign * rest[k] > sign * rest[best]))
                best = k;
        out[best] += left > 0 ? 1 : -1;
        rest[best] -= sign;
    }
    free(rest);
}

/* The integer parts of the shares go to `whole`, the fractions to `fraction`. Summed in the order
 * of the participants: rounding does not depend on how sources are listed either. */
static void split(mixture *m, const double *weights) {
    double sum = 0;
    for (int k = 0; k < m->n; k++) sum += weights[m->order[k]];
    double *rest = xcalloc((size_t)m->n, sizeof *rest);
    int32_t left = SLOTS;
    for (int k = 0; k < m->n; k++) {
        double exact = weights[m->order[k]] / sum * SLOTS;
        m->whole.slots[k] = (int32_t)exact;
        rest[k] = exact - m->whole.slots[k];
        left -= m->whole.slots[k];
    }
    m->whole.slots[m->n] = left;
    for (int k = 0; left > 0 && k < m->n; k++) rest[k] *= SLOTS / (double)left;
    if (left > 0) apportion(m->fraction.slots, rest, m->n, SLOTS);
    free(rest);
}

static void set_order(mixture *m, const int *order) {
    m->order = xcalloc((size_t)m->n, sizeof *m->order);
    m->rank = xcalloc((size_t)m->n, sizeof *m->rank);
    for (int k = 0; k < m->n; k++) {
        m->order[k] = order ? order[k] : k;
        m->rank[m->order[k]] = k;
    }
}

status mixture_new(mixture **out, const double *weights, const int *order, int n, err *e) {
    *out = NULL;
    TRY(check_weights(weights, n, e));
    mixture *m = xcalloc(1, sizeof *m);
    m->n = n;
    *out = m;
    if (n == 1) return ST_OK; /* needs no tables */
    set_order(m, order);
    cycle_new(&m->whole, n + 1);
    cycle_new(&m->fraction, n);
    split(m, weights);
    cycle_deal(&m->whole);
    if (m->whole.slots[n] > 0) cycle_deal(&m->fraction);
    return ST_OK;
}

void mixture_free(mixture *m) {
    if (!m) return;
    cycle_free(&m->whole);
    cycle_free(&m->fraction);
    free(m->order);
    free(m->rank);
    free(m);
}

/* ---- questions ---- */

static uint64_t count(const mixture *m, int k, uint64_t n) {
    uint64_t whole = cycle_count(&m->whole, k, n);
    if (m->whole.slots[m->n] == 0) return whole;
    return whole + cycle_count(&m->fraction, k, cycle_count(&m->whole, m->n, n));
}

uint64_t mixture_count(const mixture *m, int source, uint64_t n) {
    return m->n == 1 ? n : count(m, m->rank[source], n);
}

int mixture_source(const mixture *m, uint64_t sample, uint64_t *ordinal) {
    *ordinal = sample;
    if (m->n == 1) return 0;
    int k = m->whole.source[sample % SLOTS];
    if (k == m->n) k = m->fraction.source[cycle_count(&m->whole, k, sample) % SLOTS];
    *ordinal = count(m, k, sample);
    return m->order[k];
}

double mixture_share(const mixture *m, int source) {
    if (m->n == 1) return 1;
    int k = m->rank[source];
    double left = (double)m->whole.slots[m->n] / SLOTS;
    return (m->whole.slots[k] + left * m->fraction.slots[k]) / SLOTS;
}
