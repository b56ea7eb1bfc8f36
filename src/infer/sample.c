#include "infer/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct sampler {
    sample_options opt;
    int32_t vocab;
    candidate *item;
    bool *is_seen;
    double *prob;
};

sampler *sampler_new(const sample_options *opt, int32_t vocab) {
    sampler *s = xcalloc(1, sizeof *s);
    s->opt = *opt;
    s->vocab = vocab;
    s->item = xmalloc(sizeof *s->item * (size_t)vocab);
    s->prob = xmalloc(sizeof *s->prob * (size_t)vocab);
    s->is_seen = xcalloc((size_t)vocab, sizeof *s->is_seen);
    return s;
}

void sampler_free(sampler *s) {
    if (!s) return;
    free(s->item);
    free(s->prob);
    free(s->is_seen);
    free(s);
}

static void penalise(sampler *s, float *logits, const int32_t *seen, int64_t n) {
    double r = s->opt.repetition_penalty;
    if (r == 1.0 || r <= 0) return;
    for (int64_t i = 0; i < n; i++) {
        if (s->is_seen[seen[i]]) continue;
        s->is_seen[seen[i]] = true;
        float *x = &logits[seen[i]];
        *x = (float)(*x > 0 ? *x / r : *x * r);
    }
    for (int64_t i = 0; i < n; i++) s->is_seen[seen[i]] = false;
}

static int32_t most_likely(const float *logits, int32_t vocab) {
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static int by_logit(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id - y->id;
}

/* Fills prob[0..n) from the sorted candidates; returns how many survive the filters. */
static int32_t filter(sampler *s, int32_t n) {
    const sample_options *o = &s->opt;
    if (o->top_k > 0 && o->top_k < n) n = o->top_k;
    double sum = 0, top = s->item[0].logit;
    for (int32_t i = 0; i < n; i++)
        sum += s->prob[i] = exp(((double)s->item[i].logit - top) / o->temperature);
    if (o->top_p > 0 && o->top_p < 1) {
        double mass = 0;
        int32_t kept = 0;
        while (kept < n && mass < o->top_p * sum) mass += s->prob[kept++];
        n = kept;
    }
    while (n > 1 && o->min_p > 0 && s->prob[n - 1] < o->min_p * s->prob[0]) n--;
    return n;
}

int32_t sampler_pick(sampler *s, float *logits, uint64_t index, const int32_t *seen,
                     int64_t n_seen) {
    penalise(s, logits, seen, n_seen);
    if (s->opt.temperature <= 0) return most_likely(logits, s->vocab);
    for (int32_t i = 0; i < s->vocab; i++) s->item[i] = (candidate){logits[i], i};
    qsort(s->item, (size_t)s->vocab, sizeof *s->item, by_logit);
    int32_t n = filter(s, s->vocab);
    double sum = 0, at;
    for (int32_t i = 0; i < n; i++) sum += s->prob[i];
    uint32_t bits[4];
    rng_block(rng_key_named(s->opt.seed, "sample"), index, 0, bits);
    at = ((double)bits[0] + (double)bits[1] / 4294967296.0) / 4294967296.0 * sum;
    for (int32_t i = 0; i < n - 1; i++) {
        if (at < s->prob[i]) return s->item[i].id;
        at -= s->prob[i];
    }
    return s->item[n - 1].id;
}
