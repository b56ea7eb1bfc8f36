/* What is learned: one objective for each value of train.objective.
 *
 * An objective says what a sample is, whether a reference model computes the same sequences, and
 * what the loss is. For `lm` and `sft` that is the mean nll of all targets: the model's head computes
 * it and its gradient in the forward pass. Any other loss is a mean over samples, each a function of
 * the log-probabilities of its sequences. It is computed on the host after the forward pass
 * (execute_loss). So is its gradient by each log-probability, with which the backward pass begins.
 *
 * One objective a file; what they share is here and in objective.c. Formulas and normalisations are
 * TRL's, whose values tests/train/test_objectives.c has. */
#ifndef TRAIN_OBJECTIVE_H
#define TRAIN_OBJECTIVE_H

#include <math.h>

#include "model/config.h"
#include "run/config/config.h"

/* A sequence of a micro-batch, as a loss sees it. */
typedef struct objective_row {
    double logp;     /* log p of its targets, summed, by the model */
    double ref_logp; /* by the reference; 0 where there is none */
    int64_t targets; /* how many they are */
    bool desirable;  /* its label: not of a rejected or undesirable answer */
    /* Of objectives of a head of labels: what it says, and d loss / d score. */
    int labels;
    problem_kind problem;
    const float *score; /* [labels] */
    float *d_score;
    float label; /* class or number */
} objective_row;

/* log of p / p_reference */
static inline double objective_ratio(const objective_row *r) {
    return r->logp - r->ref_logp;
}

/* A mean over targets; 0 where there are none. */
static inline double objective_mean(double sum, const objective_row *r) {
    return r->targets > 0 ? sum / (double)r->targets : 0;
}

static inline double objective_sigmoid(double x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static inline double objective_log_sigmoid(double x) {
    return x > 0 ? -log1p(exp(-x)) : x - log1p(exp(x));
}

typedef struct objective {
    const char *name; /* of train.objective */
    int sequences;    /* of one sample in the data: they follow each other in a micro-batch */
    int learned;      /* so many of them, the first ones, have a loss */
    bool marks;       /* the data must say which tokens are targets */
    bool labels;      /* and which samples are desirable; otherwise the first sequence is */
    bool reference;   /* a frozen model looks at each micro-batch, too (train.reference) */
    /* The loss needs an estimate of KL(model, reference) over all samples of the step: the mean log
     * ratio of those sequences that are not learned, which are prompts with answers of others. */
    bool kl;
    bool head;          /* of a model with a head of labels; else of one without */
    bool values;        /* samples are labelled texts */
    bool lowers_chosen; /* it makes chosen answers less likely, too: no alarm says so */
    /* The loss of one sample; puts d loss / d logp of its learned sequences into d_logp[learned].
     * Of a head of labels: into d_score of each.
     * NULL: the loss is the mean nll of all targets, whose gradients the head makes. */
    double (*loss)(const config *c, const objective_row *rows, double kl, double *d_logp);
    /* What the loss makes larger in a chosen answer and smaller in a rejected one, for metrics. */
    double (*reward)(const config *c, const objective_row *r);
    /* Of labelled texts: whether the head is right. */
    bool (*is_right)(const objective_row *r);
} objective;

/* Of train.objective. */
const objective *objective_of(const config *c);

/* beta times the log ratio: the reward of objectives with a reference (Rafailov et al. 2023,
 * equation 5). */
double objective_implicit_reward(const config *c, const objective_row *r);

/* Sums over samples for metrics. They are integers, x times OBJECTIVE_ONE but for counts, so that
 * ranks and micro-batches may be added in any order. */
typedef enum objective_sum {
    SUM_CHOSEN, /* sequences; of kto: desirable ones */
    SUM_REJECTED,
    SUM_REWARD_CHOSEN,
    SUM_REWARD_REJECTED,
    SUM_LOGP_CHOSEN,
    SUM_LOGP_REJECTED,
    SUM_TARGETS,
    SUM_WINS, /* pairs in which the chosen answer has the larger reward; labelled texts of which the head is right */
    SUM_LOSS,
    SUM_COUNT
} objective_sum;
static const double OBJECTIVE_ONE = 1 << 20;

/* Returns the sum of the losses of n samples, whose learned rows follow each other; puts gradients
 * into d_logp [n * learned], and adds to sums. */
double objective_loss(const objective *o, const config *c, const objective_row *rows, int n,
                      double kl, double *d_logp, int64_t sums[SUM_COUNT]);
/* x times OBJECTIVE_ONE; 0 where x is not finite, which the loss says. */
int64_t objective_fixed(double x);
/* sum / count, as a number again; NaN where count is 0. */
double objective_average(int64_t sum, int64_t count);

#endif
