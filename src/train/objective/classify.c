/* Classes and numbers of texts, said by a head of labels: the losses of transformers' ForSequenceClassification. With the scores s
 * of a text and its label y,
 *
 *   one class of several   loss = log sum_k exp(s_k) - s_y,   d loss / d s_k = softmax(s)_k - [k = y]
 *   a number               loss = (s - y)^2,                  d loss / d s = 2 (s - y)
 *
 * A step's loss is the mean over its texts. */
#include "infer/labels.h"
#include "train/objective/objective.h"

static double class_loss(const objective_row *r) {
    int right = (int)r->label;
    double most = (double)r->score[label_best(r->score, r->labels)], sum = 0;
    for (int k = 0; k < r->labels; k++) sum += exp((double)r->score[k] - most);
    for (int k = 0; k < r->labels; k++)
        r->d_score[k] = (float)(exp((double)r->score[k] - most) / sum - (k == right));
    return most + log(sum) - (double)r->score[right];
}

static double loss(const config *c, const objective_row *r, double kl, double *d_logp) {
    (void)c, (void)kl;
    *d_logp = 0;
    if (r->problem != PROBLEM_REGRESSION) return class_loss(r);
    double above = (double)r->score[0] - (double)r->label;
    r->d_score[0] = (float)(2 * above);
    return above * above;
}

static bool is_right(const objective_row *r) {
    return r->problem != PROBLEM_REGRESSION && label_best(r->score, r->labels) == (int)r->label;
}

const objective objective_classify = {.name = "classify",
                                      .sequences = 1,
                                      .learned = 1,
                                      .head = true,
                                      .values = true,
                                      .loss = loss,
                                      .is_right = is_right};
