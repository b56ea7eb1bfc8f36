#include "infer/labels.h"

#include <math.h>

#include "base/json.h"

/* The sums: texts; squared and absolute errors, times ONE; then three for each class. */
enum { TEXTS, SQUARES, ERRORS, CLASSES };
enum { FOUND, SAID, ARE, OF_CLASS }; /* rightly said, said at all, its texts */
static const double ONE = 1 << 20;

label_tally label_tally_new(arena *a, const model_config *mc) {
    label_tally t = {.labels = (int)mc->num_labels,
                     .numbers = model_problem(mc) == PROBLEM_REGRESSION};
    t.n = CLASSES + OF_CLASS * t.labels;
    t.count = ARENA_ARRAY(a, int64_t, t.n);
    return t;
}

int label_best(const float *score, int labels) {
    int best = 0;
    for (int k = 1; k < labels; k++)
        if (score[k] > score[best]) best = k;
    return best;
}

static int64_t *of_class(const label_tally *t, int k) {
    return t->count + CLASSES + OF_CLASS * k;
}

void label_tally_add(label_tally *t, const float *score, float label) {
    t->count[TEXTS]++;
    if (t->numbers) {
        double error = (double)score[0] - (double)label;
        if (!isfinite(error)) return; /* the loss says it */
        t->count[SQUARES] += llrint(error * error * ONE);
        t->count[ERRORS] += llrint(fabs(error) * ONE);
        return;
    }
    int said = label_best(score, t->labels), is = (int)label;
    of_class(t, said)[SAID]++;
    of_class(t, is)[ARE]++;
    of_class(t, said)[FOUND] += said == is;
}

int64_t label_tally_texts(const label_tally *t) {
    return t->count[TEXTS];
}

static double mean(const label_tally *t, double sum) {
    return t->count[TEXTS] ? sum / (double)t->count[TEXTS] : NAN;
}

double label_tally_accuracy(const label_tally *t) {
    double right = 0;
    for (int k = 0; k < t->labels; k++) right += (double)of_class(t, k)[FOUND];
    return mean(t, right);
}

/* 2 found / (said + are): the harmonic mean of precision and recall. NaN: the class is neither said nor there. */
static double f1(const int64_t *c) {
    return c[SAID] + c[ARE] ? 2 * (double)c[FOUND] / (double)(c[SAID] + c[ARE]) : NAN;
}

double label_tally_f1(const label_tally *t) {
    if (t->labels == 2) return isnan(f1(of_class(t, 1))) ? 0 : f1(of_class(t, 1));
    double sum = 0;
    int n = 0;
    for (int k = 0; k < t->labels; k++) {
        double x = f1(of_class(t, k));
        if (isnan(x)) continue;
        sum += x;
        n++;
    }
    return n ? sum / n : NAN;
}

double label_tally_mse(const label_tally *t) {
    return mean(t, (double)t->count[SQUARES] / ONE);
}

double label_tally_mae(const label_tally *t) {
    return mean(t, (double)t->count[ERRORS] / ONE);
}

json_t *label_tally_json(const label_tally *t) {
    if (t->numbers)
        return json_pack("{s:o,s:o}", "mse", json_f64(label_tally_mse(t)), "mae",
                         json_f64(label_tally_mae(t)));
    return json_pack("{s:o,s:o}", "accuracy", json_f64(label_tally_accuracy(t)), "f1",
                     json_f64(label_tally_f1(t)));
}
