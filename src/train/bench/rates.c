/* Reading order: rates_add_to; the rate of calls that are alike (add_rate): terms, then the curve by size. */
#include "train/bench/rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/clock/roofline.h"

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double rates_median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return (x[n / 2] + x[(n - 1) / 2]) / 2;
}

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
    to->seconds = rates_median(of, to->rounds);
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
    int n;
} normal;

static void add_equation(normal *to, const rate_sample *x, const double *scale) {
    for (int i = 0; i < CLUSTER_TERMS; i++) {
        double a = scale[i] * x->count[i] / x->seconds;
        to->sum[i] += a;
        for (int k = 0; k < CLUSTER_TERMS; k++)
            to->product[i][k] += a * scale[k] * x->count[k] / x->seconds;
    }
    to->n++;
}

/* Least squares with no term below 0, one term at a time (coordinate descent; the problem is convex). */
static void solve(const normal *s, double *term) {
    enum { SWEEPS = 3000 };
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int i = 0; i < CLUSTER_TERMS; i++) {
            double slope = -s->sum[i];
            for (int k = 0; k < CLUSTER_TERMS; k++) slope += s->product[i][k] * term[k];
            term[i] = fmax(0, term[i] - slope / s->product[i][i]);
        }
    }
}

/* The terms whose sums are nearest to what was measured of calls like that one; all 0: fewer were measured than there are terms. */
static void find_terms(const rate_samples *s, const rate_sample *like, double *term) {
    double scale[CLUSTER_TERMS] = {0};
    normal sums = {.n = 0};
    if (!like->has_terms || like->seconds <= 0) return;
    for (int i = 0; i < CLUSTER_TERMS; i++) scale[i] = like->seconds / like->count[i];
    for (int i = 0; i < s->n; i++)
        if (same_call(&s->item[i], like) && s->item[i].seconds > 0)
            add_equation(&sums, &s->item[i], scale);
    if (sums.n < CLUSTER_TERMS) return;
    solve(&sums, term);
    for (int i = 0; i < CLUSTER_TERMS; i++) term[i] *= scale[i];
}

/* ---- shares by size ---- */

enum { HALVES = 128 }; /* of octaves of the ideal time, from 2^-16 microseconds on */

typedef struct sizes {
    int n;
    double ideal, share; /* sums of logarithms: small calls count as much as large ones */
} sizes;

static void add_size(sizes *to, sizes x) {
    *to = (sizes){to->n + x.n, to->ideal + x.ideal, to->share + x.share};
}

static double ideal_of(const rate_sample *x, const double *term) {
    double sum = x->has_terms ? roofline_sum(term, x->count) : 0;
    return sum > 0 ? sum : x->ideal;
}

/* All samples that are chosen, those of about one size together. */
static cluster_curve curve_of(const rate_samples *s, const rate_sample *like, chooses f,
                              const double *term) {
    sizes half[HALVES] = {0}, have[HALVES], sum = {0};
    cluster_curve c = {0};
    int used = 0;
    for (int i = 0; i < s->n; i++) {
        const rate_sample *x = &s->item[i];
        if (!f(x, like) || x->seconds <= 0) continue;
        double ideal = ideal_of(x, term);
        int at = (int)floor(2 * (log2(ideal * 1e6) + 16));
        at = at < 0 ? 0 : at >= HALVES ? HALVES - 1 : at;
        add_size(&half[at], (sizes){1, log(ideal * 1e6), log(ideal / x->seconds)});
    }
    for (int k = 0; k < HALVES; k++)
        if (half[k].n) have[used++] = half[k];
    int per = (used + CLUSTER_POINTS - 1) / CLUSTER_POINTS;
    for (int k = 0; k < used; k++) {
        add_size(&sum, have[k]);
        if ((k + 1) % per && k + 1 < used) continue;
        c.x[c.n] = exp(sum.ideal / sum.n);
        c.y[c.n++] = fmin(exp(sum.share / sum.n), CLUSTER_MOST_IN_CACHE); /* some ops do nothing */
        sum = (sizes){0};
    }
    return c;
}

/* ---- rates ---- */

static void add_rate(cluster *c, const rate_samples *s, const rate_sample *like, const char *of,
                     bool with_pass, bool with_format, chooses f) {
    cluster_rate r = {.term = {0}};
    if (f == same_call) find_terms(s, like, r.term);
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
