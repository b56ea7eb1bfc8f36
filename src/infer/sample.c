/* A pick costs a few passes over the logits and no sort of the vocabulary.
 *
 * All filters keep a beginning of the tokens in falling order, so the shortest of them counts.
 * Where it ends is found with a histogram of the logits: first the bin, then, among the tokens of
 * that bin only, the token. */
#include "infer/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { BINS = 1024 };

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct sampler {
    sample_options opt;
    int32_t vocab;
    candidate *item; /* of one bin */
    bool *is_seen;
    float *weight; /* by id: exp((logit - best) / temperature); 0 out of reach */
    uint16_t *bin; /* by id */
};

uint64_t sample_seed(uint64_t seed, int64_t line) {
    uint32_t bits[4];
    if (line <= 1) return seed;
    rng_block(rng_key_named(seed, "line"), (uint64_t)line, 0, bits);
    return (uint64_t)bits[0] << 32 | bits[1];
}

sampler *sampler_new(const sample_options *opt, int32_t vocab) {
    sampler *s = xcalloc(1, sizeof *s);
    s->opt = *opt;
    s->vocab = vocab;
    s->item = xmalloc(sizeof *s->item * (size_t)vocab);
    s->weight = xmalloc(sizeof *s->weight * (size_t)vocab);
    s->bin = xmalloc(sizeof *s->bin * (size_t)vocab);
    s->is_seen = xcalloc((size_t)vocab, sizeof *s->is_seen);
    return s;
}

void sampler_free(sampler *s) {
    if (!s) return;
    free(s->item);
    free(s->weight);
    free(s->bin);
    free(s->is_seen);
    free(s);
}

static void penalise(sampler *s, float *logits, const int32_t *seen, int64_t n) {
    double r = s->opt.repetition_penalty;
    if (r == 1.0 || r <= 0) return;
    for (int64_t i = 0; i < n; i++) {
        if (seen[i] >= s->vocab || s->is_seen[seen[i]]) continue;
        s->is_seen[seen[i]] = true;
        float *x = &logits[seen[i]];
        *x = (float)(*x > 0 ? *x / r : *x * r);
    }
    for (int64_t i = 0; i < n; i++)
        if (seen[i] < s->vocab) s->is_seen[seen[i]] = false;
}

/* What followed each earlier place with the same last n - 1 tokens. */
static void ban_repeats(const sampler *s, float *logits, const int32_t *seen, int64_t n_seen) {
    int64_t before = s->opt.no_repeat_ngram - 1;
    if (before < 0 || n_seen <= before) return;
    const int32_t *last = seen + n_seen - before;
    for (int64_t i = 0; i + before < n_seen; i++)
        if (seen[i + before] < s->vocab &&
            memcmp(seen + i, last, sizeof *seen * (size_t)before) == 0)
            logits[seen[i + before]] = -INFINITY;
}

void sampler_penalise(sampler *s, float *logits, const int32_t *seen, int64_t n_seen) {
    penalise(s, logits, seen, n_seen);
    ban_repeats(s, logits, seen, n_seen);
}

/* Each time a token came in the answer. The first time is told by is_seen. */
static void penalise_answer(sampler *s, float *logits, const int32_t *answer, int64_t n) {
    double presence = s->opt.presence_penalty, frequency = s->opt.frequency_penalty;
    if (presence == 0 && frequency == 0) return;
    for (int64_t i = 0; i < n; i++) {
        if (answer[i] >= s->vocab) continue;
        bool first = !s->is_seen[answer[i]];
        s->is_seen[answer[i]] = true;
        float *x = &logits[answer[i]];
        *x = (float)(*x - frequency - (first ? presence : 0));
    }
    for (int64_t i = 0; i < n; i++)
        if (answer[i] < s->vocab) s->is_seen[answer[i]] = false;
}

/* Vectors that every machine has; a comparison gives a mask of all bits. */
typedef float floats __attribute__((vector_size(16)));
typedef int32_t masks __attribute__((vector_size(16)));
enum { LANES = 4 };

static floats choose(masks which, floats yes, floats no) {
    return (floats)(((masks)yes & which) | ((masks)no & ~which));
}

/* Least and greatest logit that are numbers (a NaN is neither); least > greatest when there is none. */
static void find_range(const float *logits, int32_t vocab, float *least, float *greatest) {
    enum { CHAINS = 4 }; /* that do not wait for each other */
    const floats none = {0};
    floats lo[CHAINS], hi[CHAINS];
    for (int c = 0; c < CHAINS; c++) {
        lo[c] = none + INFINITY;
        hi[c] = none - INFINITY;
    }
    int32_t i = 0;
    for (; i + CHAINS * LANES <= vocab; i += CHAINS * LANES) {
#pragma GCC unroll 4
        for (int c = 0; c < CHAINS; c++) {
            floats x;
            memcpy(&x, logits + i + c * LANES, sizeof x);
            lo[c] = choose(x < lo[c], x, lo[c]);
            hi[c] = choose(x > hi[c], x, hi[c]);
        }
    }
    *least = INFINITY;
    *greatest = -INFINITY;
    for (int j = 0; j < CHAINS * LANES; j++) {
        *least = fminf(*least, lo[j / LANES][j % LANES]);
        *greatest = fmaxf(*greatest, hi[j / LANES][j % LANES]);
    }
    for (; i < vocab; i++) {
        if (logits[i] < *least) *least = logits[i];
        if (logits[i] > *greatest) *greatest = logits[i];
    }
}

static int32_t first_with(const float *logits, int32_t vocab, float value) {
    enum { BLOCK = 64 };
    int32_t i = 0;
    for (; i + BLOCK < vocab; i += BLOCK) { /* the block with it, in vectors */
        int found = 0;
        for (int j = 0; j < BLOCK; j++) found |= logits[i + j] == value;
        if (found) break;
    }
    while (i + 1 < vocab && logits[i] != value) i++;
    return i;
}

/* ---- where the kept tokens end ---- */

/* Order of likelihood: the higher logit, then the lower id. */
static bool is_before(candidate a, candidate b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

static int by_likelihood(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return is_before(*x, *y) ? -1 : 1;
}

typedef struct histogram {
    int64_t count[BINS + 1]; /* the last bin is what is out of reach */
    uint64_t mass[BINS + 1];
} histogram;

static float temperature_of(const sample_options *o) {
    return o->temperature > 1e-6 ? (float)o->temperature : 1e-6f;
}

/* Weights and bins of all tokens, the best in bin 0. */
static void weigh(sampler *s, const float *logits, float least, float best) {
    float t = temperature_of(&s->opt), per_t = 1 / t;
    float range = best - least < PICK_REACH * t ? best - least : PICK_REACH * t;
    float per_bin = range > 0 ? BINS / (range * 1.0001f) : 0.0f;
    for (int32_t i = 0; i < s->vocab; i++) {
        float below = best - logits[i], reached = below <= range ? below : range;
        float weight = exp_below(-reached * per_t), at = reached * per_bin;
        s->weight[i] = below <= range ? weight : 0.0f; /* a NaN has none */
        s->bin[i] = below <= range ? (uint16_t)(int32_t)at : BINS;
    }
}

static void count_bins(const sampler *s, histogram *h) {
    memset(h, 0, sizeof *h);
    for (int32_t i = 0; i < s->vocab; i++) {
        h->count[s->bin[i]]++;
        h->mass[s->bin[i]] += pick_mass(s->weight[i]);
    }
}

/* Where a beginning of the tokens ends that holds `count` tokens or `mass`, whichever comes first;
 * *reached is its mass. */
static candidate cut(sampler *s, const float *logits, const histogram *h, int64_t count,
                     uint64_t mass, uint64_t *reached) {
    int bin = 0, lowest = BINS - 1; /* bin that is not empty */
    uint64_t sum = 0;
    while (lowest > 0 && !h->count[lowest]) lowest--;
    for (; bin < lowest && h->count[bin] < count && sum + h->mass[bin] < mass; bin++) {
        count -= h->count[bin];
        sum += h->mass[bin];
    }
    int32_t n = 0, i = 0;
    for (int32_t id = 0; id < s->vocab; id++)
        if (s->bin[id] == bin) s->item[n++] = (candidate){logits[id], id};
    qsort(s->item, (size_t)n, sizeof *s->item, by_likelihood);
    for (;; i++) {
        sum += pick_mass(s->weight[s->item[i].id]);
        if (i + 1 >= count || sum >= mass || i + 1 == n) break;
    }
    *reached = sum;
    return s->item[i];
}

/* The last token that top-k and top-p keep. */
static candidate last_kept(sampler *s, const float *logits, const histogram *h) {
    const sample_options *o = &s->opt;
    candidate last = {-INFINITY, s->vocab};
    uint64_t mass = 0;
    if (o->top_k > 0 && o->top_k < s->vocab)
        last = cut(s, logits, h, o->top_k, UINT64_MAX, &mass);
    else
        for (int b = 0; b < BINS; b++) mass += h->mass[b];
    if (o->top_p >= 1) return last;
    candidate by_mass = cut(s, logits, h, s->vocab, pick_share(o->top_p, mass), &mass);
    return is_before(by_mass, last) ? by_mass : last;
}

/* Gathers the tokens that all filters keep; returns how many, and their mass. */
static int32_t gather(sampler *s, const float *logits, uint64_t *sum) {
    histogram h;
    count_bins(s, &h);
    candidate last = last_kept(s, logits, &h);
    int last_bin = last.id < s->vocab ? s->bin[last.id] : BINS - 1;
    float least = (float)s->opt.min_p;
    int32_t n = 0;
    *sum = 0;
    for (int32_t i = 0; i < s->vocab; i++) {
        if (s->bin[i] > last_bin || s->weight[i] < least) continue;
        candidate c = {logits[i], i};
        if (is_before(last, c)) continue;
        s->item[n++] = c;
        *sum += pick_mass(s->weight[i]);
    }
    return n;
}

static uint64_t draw_at(const sampler *s, uint64_t index) {
    uint32_t bits[4];
    rng_block(rng_key_named(s->opt.seed, "sample"), index, 0, bits);
    return (uint64_t)bits[0] << 32 | bits[1];
}

int32_t sampler_pick(sampler *s, float *logits, uint64_t index, const int32_t *seen, int64_t n_seen,
                     int64_t n_prompt) {
    float least, best;
    sampler_penalise(s, logits, seen, n_seen);
    penalise_answer(s, logits, seen + n_prompt, n_seen - n_prompt);
    find_range(logits, s->vocab, &least, &best);
    if (!isfinite(best)) return -1;
    if (s->opt.temperature <= 0) return first_with(logits, s->vocab, best);
    uint64_t sum;
    weigh(s, logits, least, best);
    int32_t n = gather(s, logits, &sum);
    uint64_t at = pick_at(draw_at(s, index), sum);
    for (int32_t i = 0; i < n - 1; i++) {
        uint64_t mass = pick_mass(s->weight[s->item[i].id]);
        if (at < mass) return s->item[i].id;
        at -= mass;
    }
    return s->item[n - 1].id;
}

bool sampler_rule(const sampler *s, uint64_t index, pick_rule *rule) {
    const sample_options *o = &s->opt;
    bool penalises = o->repetition_penalty != 1.0 && o->repetition_penalty > 0;
    *rule = (pick_rule){.temperature = o->temperature > 0 ? temperature_of(o) : 0,
                        .min_p = (float)o->min_p,
                        .top_p = o->top_p,
                        .top_k = o->top_k,
                        .draw = draw_at(s, index)};
    return !penalises && o->no_repeat_ngram <= 0 && o->presence_penalty == 0 &&
           o->frequency_penalty == 0;
}
