/* Task quality (see quality.h). */
#include "eval/quality.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/arena.h"

static double rank_of(const double *x, int n, int i) {
    double rank = 1;
    for (int k = 0; k < n; k++) rank += x[k] < x[i] ? 1 : x[k] == x[i] && k != i ? 0.5 : 0;
    return rank;
}

double eval_spearman(const double *a, const double *b, int n) {
    double mean = (n + 1) / 2.0, ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        double x = rank_of(a, n, i) - mean, y = rank_of(b, n, i) - mean;
        ab += x * y, aa += x * x, bb += y * y;
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

eval_quality eval_quality_of(const double *score, int n, double stderr_, double chance) {
    double *place = xmalloc(sizeof *place * (size_t)n), squares = 0;
    double step = (score[n - 1] - score[0]) / (n - 1);
    for (int i = 0; i < n; i++) place[i] = i;
    for (int i = 0; i + 1 < n; i++) squares += pow(score[i + 1] - score[i] - step, 2);
    eval_quality q = {.monotonicity = eval_spearman(score, place, n),
                      .signal = score[n - 1] - score[0],
                      .noise = sqrt(squares / (n - 1) / 2),
                      .above_chance = (score[n - 1] - chance) / stderr_};
    free(place);
    return q;
}

static int sign(double x) {
    return (x > 0) - (x < 0);
}

double eval_rank_stability(const double *score, int runs, int n) {
    int same = 0, all = 0;
    for (int i = 0; i + 1 < n; i++)
        for (int a = 0; a < runs; a++)
            for (int b = 0; b < a; b++, all++) {
                const double *x = score + (ptrdiff_t)a * n + i, *y = score + (ptrdiff_t)b * n + i;
                same += sign(x[0] - y[0]) * sign(x[1] - y[1]);
            }
    return (double)same / all;
}

const char *eval_quality_flaw(const eval_quality *q) {
    if (q->above_chance < 2) return "at chance";
    if (fabs(q->monotonicity) < 0.5) return "no order";
    if (fabs(q->signal) < 2 * q->noise) return "noise";
    return NULL;
}
