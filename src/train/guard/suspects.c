/* Which documents made a step spike; see suspects.h. Order: repetition, collecting, ranking.
 */
#include "train/guard/suspects.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"

/* ---- repetition ---- */

enum { MAX_PERIOD = 13, MIN_REPEATS = 32 };

/* Marks the ids that lie in runs of `period`: a run is a stretch in which each id equals the one a
 * period before it. */
static void mark_runs(const int32_t *ids, int64_t n, int64_t period, uint8_t *marked) {
    int64_t first = 0; /* of the run that ends before i */
    for (int64_t i = period; i <= n; i++) {
        if (i < n && ids[i] == ids[i - period]) continue;
        if (i - first >= MIN_REPEATS * period) memset(marked + first, 1, (size_t)(i - first));
        first = i - period + 1;
    }
}

int64_t suspects_count_repeated(const int32_t *ids, int64_t n, uint8_t *marked) {
    if (n < MIN_REPEATS) return 0;
    memset(marked, 0, (size_t)n);
    int64_t count = 0;
    for (int64_t period = 1; period <= MAX_PERIOD && period <= n / MIN_REPEATS; period++)
        mark_runs(ids, n, period, marked);
    for (int64_t i = 0; i < n; i++) count += marked[i];
    return count;
}

double suspects_repeated_share(const int32_t *ids, int64_t n) {
    if (n <= 0) return 0;
    uint8_t *marked = xmalloc((size_t)n);
    int64_t count = suspects_count_repeated(ids, n, marked);
    free(marked);
    return (double)count / (double)n;
}

/* ---- collecting ---- */

struct suspects {
    arena *memory; /* of the strings */
    suspect *items;
    int n, cap;
};

suspects *suspects_new(void) {
    suspects *s = xcalloc(1, sizeof *s);
    s->memory = arena_new("suspects");
    return s;
}

void suspects_free(suspects *s) {
    if (!s) return;
    arena_free(s->memory);
    free(s->items);
    free(s);
}

static const char *copy(suspects *s, const char *text) {
    return text ? arena_strdup(s->memory, text) : NULL;
}

static loader_span copy_span(suspects *s, const loader_span *span) {
    loader_span own = *span;
    own.set = copy(s, span->set);
    own.shard = copy(s, span->shard);
    own.place.source = copy(s, span->place.source);
    own.place.id = copy(s, span->place.id);
    return own;
}

/* A span may end one token behind the row: that token is the target of the row's last position. */
static int end_in_row(const loader_span *span, int T) {
    uint64_t left = (uint64_t)(T - span->row_first), n = span->end_tok - span->first_tok;
    return span->row_first + (int)(n < left ? n : left);
}

void suspects_add_row(suspects *s, uint64_t sample, int row, int T, const int32_t *ids,
                      const int32_t *targets, const float *nll, const loader_span *spans,
                      int n_spans) {
    for (int k = 0; k < n_spans; k++) {
        int first = spans[k].row_first;
        if (first < 0 || first >= T) continue;
        int end = end_in_row(&spans[k], T);
        double sum = 0;
        int64_t n = 0;
        for (int t = first; t < end; t++) {
            if (targets[t] < 0) continue;
            sum += nll[t];
            n++;
        }
        suspect item = {.sample = sample,
                        .row = row,
                        .span = copy_span(s, &spans[k]),
                        .loss = n ? sum / (double)n : (double)NAN,
                        .n_targets = n,
                        .repeated = suspects_repeated_share(ids + first, end - first)};
        VEC_PUSH(s->items, s->n, s->cap, item);
    }
}

/* ---- ranking ---- */

/* Median of the documents' losses and of their distances from it; 0 and 0 without any. */
static void spread_of(const suspects *s, double *middle, double *deviation) {
    double *values = xmalloc(sizeof *values * (size_t)(s->n + 1));
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (isfinite(s->items[i].loss)) values[n++] = s->items[i].loss;
    *middle = n ? sort_median(values, n) : 0;
    for (int i = 0; i < n; i++) values[i] = fabs(values[i] - *middle);
    *deviation = n ? sort_median(values, n) : 0;
    free(values);
}

/* The mean of few targets says little: FEW of them count half. A loss that is not finite where
 * there are targets is as suspicious as can be. */
static double score_of(const suspect *item, double middle, double deviation) {
    enum { FEW = 16 };
    static const double REPEATED = 100, HIGHEST = 1000;
    double score = REPEATED * item->repeated;
    if (item->n_targets == 0) return score;
    if (!isfinite(item->loss)) return score + HIGHEST;
    double above = item->loss - middle, least = 1e-3 * fabs(middle) + 1e-9;
    double n = (double)item->n_targets, units = above / fmax(deviation, least);
    return score + fmin(units, HIGHEST) * n / (n + FEW);
}

static int compare_suspects(const void *a, const void *b) {
    const suspect *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    if (x->sample != y->sample) return x->sample < y->sample ? -1 : 1;
    return x->span.row_first - y->span.row_first;
}

const suspect *suspects_ranked(suspects *s, int *n) {
    double middle, deviation;
    *n = s->n;
    spread_of(s, &middle, &deviation);
    for (int i = 0; i < s->n; i++) s->items[i].score = score_of(&s->items[i], middle, deviation);
    if (s->n) qsort(s->items, (size_t)s->n, sizeof *s->items, compare_suspects);
    return s->items;
}
