#include "optim/lr_schedule.h"

#include <math.h>

/* From 1 at progress 0 to 0 at progress 1. */
static double curve(decay_kind kind, double progress) {
    if (kind == DECAY_1_SQRT) return 1.0 - sqrt(progress);
    if (kind == DECAY_COSINE) return 0.5 * (1.0 + cos(M_PI * progress));
    return 1.0 - progress;
}

static double decayed(const lr_schedule *s, decay_kind kind, double progress) {
    if (progress > 1.0) progress = 1.0;
    if (kind == DECAY_EXPONENTIAL)
        return s->lr * pow(s->min_lr > 0 ? s->min_lr / s->lr : 0.01, progress);
    return s->min_lr + (s->lr - s->min_lr) * curve(kind, progress);
}

static double wsd(const lr_schedule *s, int64_t step) {
    int64_t steps = s->decay_steps >= 0 ? s->decay_steps : s->total_steps / 5;
    int64_t start = s->total_steps - steps + 1;
    if (step <= start || steps == 0) return s->lr;
    return decayed(s, s->decay, (double)(step - start) / (double)steps);
}

static double after_warmup(const lr_schedule *s, int64_t step, decay_kind kind) {
    int64_t steps = s->decay_steps >= 0 ? s->decay_steps : s->total_steps - s->warmup_steps;
    if (step == s->warmup_steps) return s->lr; /* also where nothing is left for the decay */
    return steps > 0 ? decayed(s, kind, (double)(step - s->warmup_steps) / (double)steps)
                     : s->min_lr;
}

static double multistep(const lr_schedule *s, int64_t step) {
    double lr = s->lr;
    for (int i = 0; i < s->n_milestones; i++)
        if (step > s->milestones[i]) lr *= s->gamma;
    return lr;
}

static double inverse_sqrt(const lr_schedule *s, int64_t step) {
    int64_t flat = s->timescale >= 0 ? s->timescale : s->warmup_steps ? s->warmup_steps : 10000;
    return step > flat ? s->lr * sqrt((double)flat / (double)step) : s->lr;
}

/* ---- one cycle ---- */

/* Where a step is: in phase `number`, of which `part` is over. Phases end at steps that are no whole numbers. */
typedef struct phase {
    int number;
    double part;
} phase;

static phase phase_of(const lr_schedule *s, int64_t step) {
    double at = (double)(step - 1), total = (double)s->total_steps;
    double rise = s->cycle.pct_start * total, begin = 0;
    double ends[] = {rise - 1, s->cycle.three_phase ? 2 * rise - 2 : total - 1, total - 1};
    int last = s->cycle.three_phase ? 2 : 1, i = 0;
    for (; i < last && at > ends[i]; i++) begin = ends[i];
    double part = ends[i] > begin ? (at - begin) / (ends[i] - begin) : 1;
    return (phase){i, part < 1 ? part : 1};
}

/* values[i] to values[i + 1] in phase i. */
static double annealed(const lr_schedule *s, int64_t step, const double values[4]) {
    phase p = phase_of(s, step);
    double from = values[p.number], to = values[p.number + 1];
    if (s->cycle.anneal == ANNEAL_LINEAR) return from + (to - from) * p.part;
    return to + (from - to) * curve(DECAY_COSINE, p.part);
}

static double one_cycle_lr(const lr_schedule *s, int64_t step) {
    double first = s->lr / s->cycle.div_factor, last = first / s->cycle.final_div_factor;
    return annealed(s, step, (double[]){first, s->lr, s->cycle.three_phase ? first : last, last});
}

double lr_schedule_beta1(const lr_schedule *s, int64_t step, double usual) {
    double least = s->cycle.least_beta1, most = s->cycle.most_beta1;
    if (s->kind != SCHEDULE_ONE_CYCLE || most == 0) return usual;
    return annealed(s, step, (double[]){most, least, most, most});
}

/* ---- all ---- */

double lr_schedule_at(const lr_schedule *s, int64_t step) {
    if (s->kind == SCHEDULE_ONE_CYCLE) return one_cycle_lr(s, step);
    if (step < s->warmup_steps) return s->lr * (double)step / (double)s->warmup_steps;
    switch (s->kind) {
        case SCHEDULE_CONSTANT: return s->lr;
        case SCHEDULE_LINEAR: return after_warmup(s, step, DECAY_LINEAR);
        case SCHEDULE_COSINE: return after_warmup(s, step, DECAY_COSINE);
        case SCHEDULE_WSD: return wsd(s, step);
        case SCHEDULE_MULTISTEP: return multistep(s, step);
        case SCHEDULE_INVERSE_SQRT: return inverse_sqrt(s, step);
        case SCHEDULE_ONE_CYCLE: break;
    }
    return s->lr;
}
