#include "optim/schedule.h"

#include <math.h>

/* From 1 at progress 0 to 0 at progress 1. */
static double curve(decay_kind kind, double progress) {
    if (kind == DECAY_1_SQRT) return 1.0 - sqrt(progress);
    if (kind == DECAY_COSINE) return 0.5 * (1.0 + cos(M_PI * progress));
    return 1.0 - progress;
}

static double decayed(const schedule *s, decay_kind kind, double progress) {
    if (progress > 1.0) progress = 1.0;
    if (kind == DECAY_EXPONENTIAL)
        return s->lr * pow(s->min_lr > 0 ? s->min_lr / s->lr : 0.01, progress);
    return s->min_lr + (s->lr - s->min_lr) * curve(kind, progress);
}

static double wsd(const schedule *s, int64_t step) {
    int64_t steps = s->decay_steps >= 0 ? s->decay_steps : s->total_steps / 5;
    int64_t start = s->total_steps - steps + 1;
    if (step <= start || steps == 0) return s->lr;
    return decayed(s, s->decay, (double)(step - start) / (double)steps);
}

static double after_warmup(const schedule *s, int64_t step, decay_kind kind) {
    int64_t steps = s->decay_steps >= 0 ? s->decay_steps : s->total_steps - s->warmup_steps;
    return steps > 0 ? decayed(s, kind, (double)(step - s->warmup_steps) / (double)steps)
                     : s->min_lr;
}

static double multistep(const schedule *s, int64_t step) {
    double lr = s->lr;
    for (int i = 0; i < s->n_milestones; i++)
        if (step > s->milestones[i]) lr *= s->gamma;
    return lr;
}

double schedule_lr(const schedule *s, int64_t step) {
    if (step < s->warmup_steps) return s->lr * (double)step / (double)s->warmup_steps;
    switch (s->kind) {
        case SCHEDULE_CONSTANT: return s->lr;
        case SCHEDULE_LINEAR: return after_warmup(s, step, DECAY_LINEAR);
        case SCHEDULE_COSINE: return after_warmup(s, step, DECAY_COSINE);
        case SCHEDULE_WSD: return wsd(s, step);
        case SCHEDULE_MULTISTEP: return multistep(s, step);
    }
    return s->lr;
}
