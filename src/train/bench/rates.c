/* Reading order: rates_add_to; the rate of calls that are alike (add_rate): terms, then the curve by size. */
#include "train/bench/rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "plan/clock/roofline.h"

/* ---- samples ---- */

void rates_begin_round(rate_samples *s) {
    s->next = 0;
}

void rates_add_sample(rate_samples *s, rate_sample x, double seconds) {
    if (s->next == s->n) VEC_PUSH(s->item, s->n, s->cap, x);
    rate_sample *to = &s->item[s->next++];
    to->round[to->rounds++] = seconds;
    double of[RATES_ROUNDS];
    memcpy(of, to->round, sizeof of);
    to->seconds = sort_median(of, to->rounds);
}

void rates_free(rate_samples *s) {
    free(s->item);
    *s = (rate_samples){0};
}

/* ---- which are alike ---- */

typedef bool (*chooses)(const rate_sample *x, const rate_sample *like);

static bool same_call(const rate_sample *x, const rate_sample *like) {
    return x->kind == like->kind && x->pass == like->pass && x->format == like->format;
}
static op_profile profile_of(const rate_sample *x) {
    return op_classes[x->kind].profile;
}
static bool same_class(const rate_sample *x, const rate_sample *like) {
    if (x->kind == OP_COUNT || like->kind == OP_COUNT) return false;
    return profile_of(x) == profile_of(like) && x->format == like->format;
}
static bool any_small(const rate_sample *x, const rate_sample *like) {
    if (x->kind == OP_COUNT || like->kind == OP_COUNT) return false;
    return profile_of(x) != OPP_MATMUL && profile_of(x) != OPP_HEAD &&
           profile_of(x) != OPP_ATTENTION;
}

/* ---- terms ---- */

/* Sums over samples, each of which counts by its relative error: of products of terms and of terms, both in parts of its time. */
typedef struct normal {
    double product[CLUSTER_TERMS][CLUSTER_TERMS], sum[CLUSTER_TERMS];
} normal;

static void add_equation(normal *to, const rate_sample *x, const double *scale, double weight) {
    for (int i = 0; i < CLUSTER_TERMS; i++) {
        double a = scale[i] * x->count[i] / x->seconds;
        to->sum[i] += weight * a;
        for (int k = 0; k < CLUSTER_TERMS; k++)
            to->product[i][k] += weight * a * scale[k] * x->count[k] / x->seconds;
    }
}

/* Least squares with no term below 0 or above the most, one term at a time (coordinate descent; the problem is convex). A term
 * that no call has stays 0. */
static void solve(const normal *s, const double *most, double *term) {
    enum { SWEEPS = 3000 };
    memset(term, 0, CLUSTER_TERMS * sizeof *term);
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int i = 0; i < CLUSTER_TERMS; i++) {
            double slope = -s->sum[i];
            for (int k = 0; k < CLUSTER_TERMS; k++) slope += s->product[i][k] * term[k];
            if (s->product[i][i] > 0)
                term[i] = fmin(most[i], fmax(0, term[i] - slope / s->product[i][i]));
        }
    }
}

static bool same_counts(const rate_sample *a, const rate_sample *b) {
    return memcmp(a->count, b->count, sizeof a->count) == 0;
}

/* How many samples of calls like that one have counts that none before has. */
static int different_counts(const rate_samples *s, const rate_sample *like) {
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        bool is_new = same_call(&s->item[i], like) && s->item[i].seconds > 0;
        for (int k = 0; k < i && is_new; k++)
            is_new = !same_call(&s->item[k], like) || !same_counts(&s->item[i], &s->item[k]);
        n += is_new;
    }
    return n;
}

/* Of the squares of terms, in parts of the samples' squares (Hoerl & Kennard 1970). */
static const double RIDGE = 0.003;
/* What a byte that is not near takes at most, in parts of its time from memory: where few bytes of a call are, chance would
 * make it more. */
static const double MOST_OF_MEMORY = 4;

/* How much a sample counts whose time is far from what terms say: others in its model had to do with it (Huber 1964). */
static double trust(const rate_sample *x, const double *term) {
    const double usual = 0.2;
    double off = fabs(roofline_sum(term, x->count) / x->seconds - 1);
    return off > usual ? usual / off : 1;
}

/* The terms whose sums are nearest to what was measured of calls like that one; all 0: fewer different ones were measured than there
 * are terms. */
static void find_terms(const cluster *c, const rate_samples *s, const rate_sample *like,
                       double *term) {
    enum { AGAIN = 4 };
    double scale[CLUSTER_TERMS] = {0}, most[CLUSTER_TERMS], seconds = 0;
    int samples = 0;
    if (!like->has_terms || different_counts(s, like) < CLUSTER_TERMS) return;
    for (int i = 0; i < s->n; i++) {
        const rate_sample *x = &s->item[i];
        if (!same_call(x, like) || x->seconds <= 0) continue;
        for (int k = 0; k < CLUSTER_TERMS; k++) scale[k] += x->count[k];
        seconds += x->seconds;
        samples++;
    }
    for (int k = 0; k < CLUSTER_TERMS; k++) {
        bool far = k == TERM_FAR || k == TERM_FARTHER;
        scale[k] = scale[k] > 0 ? seconds / scale[k] : 0;
        most[k] =
            far && scale[k] > 0 ? MOST_OF_MEMORY / c->memory_bytes_per_s / scale[k] : INFINITY;
    }
    /* Where counts grow alike, each of their terms gets a part of the time: else one would have all of it, and what has few of that
     * one would take nothing. */
    double unit[CLUSTER_TERMS];
    for (int k = 0; k < AGAIN; k++) {
        normal sums = {.sum = {0}};
        for (int i = 0; i < s->n; i++)
            if (same_call(&s->item[i], like) && s->item[i].seconds > 0)
                add_equation(&sums, &s->item[i], scale, k ? trust(&s->item[i], term) : 1);
        for (int i = 0; i < CLUSTER_TERMS; i++) sums.product[i][i] += RIDGE * samples;
        solve(&sums, most, unit);
        for (int i = 0; i < CLUSTER_TERMS; i++) term[i] = unit[i] * scale[i];
    }
}

/* ---- shares by size ---- */

/* Logarithms of an ideal time in microseconds, and of the share of it that was reached. */
typedef struct point {
    double ideal, share;
} point;

static int by_ideal(const void *a, const void *b) {
    const point *x = a, *y = b;
    return (x->ideal > y->ideal) - (x->ideal < y->ideal);
}

/* The first of the points, of rising size, that are more than half an octave larger than the first one. */
static int next_size(const point *p, int n) {
    int k = 1;
    while (k < n && p[k].ideal - p[0].ideal < 0.5 * log(2)) k++;
    return k;
}

static int count_sizes(const point *p, int n) {
    int sizes = 0;
    for (int i = 0; i < n; i += next_size(p + i, n - i)) sizes++;
    return sizes;
}

/* The median share: what happens before one op of one model must not count for all others of its size. */
static void add_to_curve(cluster_curve *c, const point *p, int n) {
    double sum = 0, *share = xcalloc((size_t)n, sizeof *share);
    for (int i = 0; i < n; i++) sum += p[i].ideal, share[i] = p[i].share;
    c->x[c->n] = exp(sum / n);
    /* some ops do nothing */
    c->y[c->n++] = fmin(exp(sort_median(share, n)), CLUSTER_MOST_IN_CACHE);
    free(share);
}

/* All samples that are chosen, those of about one size together. Where terms say what size and shape do, at least some calls make a
 * point. */
static cluster_curve curve_of(const rate_samples *s, const rate_sample *like, chooses f,
                              const double *term) {
    enum { FEWEST = 8 };
    point *p = xcalloc((size_t)s->n + 1, sizeof *p);
    cluster_curve c = {0};
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        const rate_sample *x = &s->item[i];
        double ideal = roofline_limit(term, x->count, x->ideal);
        if (f(x, like) && x->seconds > 0)
            p[n++] = (point){log(ideal * 1e6), log(ideal / x->seconds)};
    }
    qsort(p, (size_t)n, sizeof *p, by_ideal);
    int least = roofline_sum(term, like->count) > 0 ? FEWEST : 1;
    int per = (count_sizes(p, n) + CLUSTER_POINTS - 1) / CLUSTER_POINTS;
    for (int i = 0, k; i < n; i += k) {
        k = 0;
        for (int size = 0; (size < per || k < least) && i + k < n; size++)
            k += next_size(p + i + k, n - i - k);
        add_to_curve(&c, p + i, k);
    }
    free(p);
    return c;
}

/* ---- rates ---- */

static void add_rate(cluster *c, const rate_samples *s, const rate_sample *like, const char *of,
                     bool with_pass, bool with_format, chooses f) {
    cluster_rate r = {.term = {0}};
    if (f == same_call) find_terms(c, s, like, r.term);
    r.share = curve_of(s, like, f, r.term);
    snprintf(r.of, sizeof r.of, "%s", of);
    if (with_pass) snprintf(r.pass, sizeof r.pass, "%s", cluster_pass_name(like->pass));
    if (with_format) snprintf(r.format, sizeof r.format, "%s", dtype_name(like->format));
    if (r.share.n == 0) return;
    cluster_add_rate(c, &r);
}

void rates_add_to(cluster *c, const rate_samples *s) {
    for (int i = 0; i < s->n; i++) {
        const rate_sample *x = &s->item[i];
        bool first_call = true, first_class = true;
        for (int k = 0; k < i; k++) {
            first_call &= !same_call(&s->item[k], x);
            first_class &= !same_class(&s->item[k], x);
        }
        bool op = x->kind != OP_COUNT;
        if (first_call)
            add_rate(c, s, x, op ? op_classes[x->kind].name : "optimizer", op, op, same_call);
        if (first_class && op)
            add_rate(c, s, x, cluster_class_name(profile_of(x)), false, true, same_class);
    }
    add_rate(c, s, &s->item[0], "", false, false, any_small);
    cluster_index(c);
}
