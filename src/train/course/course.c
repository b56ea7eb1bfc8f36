/* Stages and parts are laid out once, front to back; everything after that is a look-up.
 *
 * Reading order: course_new, lay_out, lay_out_stage (the parts of one stage), pass_origin (forks),
 * place_schedules, then the look-ups. */
#include "train/course/course.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"

/* Ends a stage or the run, whichever is reached first. INT64_MAX, UINT64_MAX: no such limit. */
typedef struct limit {
    int64_t step;
    uint64_t tokens, samples;
} limit;

static const limit NO_LIMIT = {INT64_MAX, UINT64_MAX, UINT64_MAX};

static limit stage_limit(const config_stage *s) {
    limit l = NO_LIMIT;
    if (s->until.steps) l.step = s->until.steps;
    if (s->until.tokens) l.tokens = (uint64_t)s->until.tokens;
    return l;
}

static bool is_open(const limit *l) {
    return l->step == INT64_MAX && l->tokens == UINT64_MAX && l->samples == UINT64_MAX;
}

static bool stage_has_end(const config_stage *s) {
    return s->until.steps || s->until.tokens;
}

static limit run_limit(const config *c, uint64_t epoch_sequences) {
    limit l = NO_LIMIT;
    if (c->train.steps) l.step = c->train.steps;
    if (c->train.tokens) l.tokens = (uint64_t)c->train.tokens;
    if (c->train.epochs > 0 && epoch_sequences > 0)
        l.samples = (uint64_t)(c->train.epochs * (double)epoch_sequences + 0.999999);
    return l;
}

static bool last_stage_ends(const config *c) {
    return c->stages.n && stage_has_end(&c->stages.items[c->stages.n - 1]);
}

static limit nearer(limit a, limit b) {
    if (b.step < a.step) a.step = b.step;
    if (b.tokens < a.tokens) a.tokens = b.tokens;
    if (b.samples < a.samples) a.samples = b.samples;
    return a;
}

/* Steps of `per` units each, from `have` units on, until there are `want`. */
static int64_t steps_until(uint64_t want, uint64_t have, uint64_t per) {
    if (want == UINT64_MAX) return INT64_MAX;
    return want <= have ? 0 : (int64_t)((want - have + per - 1) / per);
}

/* ---- the ramp of the batch ---- */

/* Batch of the n-th step (from 0) after the ramp began, and for how many steps more it stays. */
static int64_t ramp_batch(const config *c, int64_t n, int64_t *stays) {
    int64_t start = c->train.batch_ramp.start, full = c->train.global_batch_size;
    int64_t by = c->train.batch_ramp.increment ? c->train.batch_ramp.increment : start;
    int64_t every = c->train.batch_ramp.every;
    *stays = INT64_MAX;
    if (start == 0 || n / every >= (full - start + by - 1) / by) return full;
    *stays = every - n % every;
    return start + n / every * by;
}

/* ---- laying out ---- */

typedef struct layout {
    course *k;
    int64_t step;     /* finished */
    uint64_t samples; /* of the stage */
    uint64_t all_samples, tokens;
    int64_t ramp_base;    /* steps before the ramp's first */
    course_origin origin; /* of a fork; step 0: it is none */
} layout;

static void add_part(layout *l, int stage, int64_t batch, int64_t steps) {
    course_part p = {.stage = stage,
                     .first_step = l->step + 1,
                     .last_step = l->step + steps,
                     .batch = batch,
                     .first_sample = l->samples,
                     .tokens = l->tokens};
    uint64_t samples = (uint64_t)batch * (uint64_t)steps;
    course *k = l->k;
    VEC_PUSH(k->part, k->n_parts, k->cap, p);
    l->step += steps;
    l->samples += samples;
    l->all_samples += samples;
    l->tokens += samples * (uint64_t)k->stage[stage].T;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- forks ---- */

/* Steps that are still of the course before the fork. */
static int64_t steps_before_origin(const layout *l) {
    return l->step < l->origin.step ? l->origin.step - l->step : 0;
}

/* How far that course had come in its last stage says its checkpoint, not this config: what would
 * have been counted with this one ends nothing there. */
static bool is_counted(const layout *l, int stage) {
    return steps_before_origin(l) == 0 || stage < l->origin.stage;
}

/* From here on what is counted is what was used, whatever this course has counted until here.
 * Unsigned arithmetic wraps where it has counted more. */
static void pass_origin(layout *l, int stage) {
    const course_origin *o = &l->origin;
    course *k = l->k;
    uint64_t samples = stage == o->stage ? o->samples - l->samples : 0;
    uint64_t tokens = o->tokens - l->tokens;
    for (int i = 0; i < k->n_parts; i++) {
        if (k->part[i].stage == stage) k->part[i].first_sample += samples;
        k->part[i].tokens += tokens;
    }
    l->samples += samples;
    l->all_samples += samples;
    l->tokens += tokens;
}

/* ---- stages and their parts ---- */

/* Steps of `batch` sequences until the limit; 0 or less: it is reached. */
static int64_t steps_left(const layout *l, int i, const limit *end, int64_t batch) {
    uint64_t per = (uint64_t)batch * (uint64_t)l->k->stage[i].T;
    int64_t left = end->step == INT64_MAX ? INT64_MAX : end->step - l->step;
    if (!is_counted(l, i)) return left;
    left = least(left, steps_until(end->tokens, l->tokens, per));
    return least(left, steps_until(end->samples, l->all_samples, (uint64_t)batch));
}

/* Adds the parts of one stage until a step reaches its limit. */
static void lay_out_stage(layout *l, int i, const limit *end) {
    course_stage *s = &l->k->stage[i];
    s->first_step = l->step + 1;
    l->samples = 0;
    for (;;) {
        int64_t stays, batch = ramp_batch(s->c, l->step - l->ramp_base, &stays);
        int64_t left = steps_left(l, i, end, batch), before = steps_before_origin(l);
        if (left <= 0) break;
        if (batch > s->max_batch) s->max_batch = batch;
        left = least(stays, left);
        add_part(l, i, batch, before > 0 ? least(left, before) : left);
        if (l->step == l->origin.step) pass_origin(l, i);
    }
    s->last_step = l->step;
}

static status empty_stage(const config *c, int i, err *e) {
    const char *path = arena_printf(c->memory, "stages.%d.until", i);
    config_error(c, e, path, "stage %s would have no step: it ends before it begins",
                 c->stages.items[i].name);
    return err_hint(e, "`until` counts from the beginning of the run, not of the stage");
}

/* Stages that begin after the run's end are left out: a shorter run has fewer. */
static status lay_out(course *k, const config *c, uint64_t epoch_sequences,
                      const course_origin *origin, err *e) {
    limit run = run_limit(c, epoch_sequences);
    k->knows_length = !is_open(&run) || last_stage_ends(c);
    if (!k->knows_length) run.step = 1;
    layout l = {.k = k, .origin = origin ? *origin : (course_origin){0}};
    int n = k->n_stages;
    for (int i = 0; i < n; i++) {
        const config_stage *given = c->stages.n ? &c->stages.items[i] : NULL;
        limit end = given ? nearer(run, stage_limit(given)) : run;
        CHECK(!is_open(&end), "a course without an end");
        if (given && json_object_get(json_object_get(given->changes, "train"), "batch_ramp"))
            l.ramp_base = l.step;
        lay_out_stage(&l, i, &end);
        if (k->stage[i].last_step >= k->stage[i].first_step) continue;
        limit own = given ? stage_limit(given) : run;
        bool cut = l.step >= run.step || l.tokens >= run.tokens || l.all_samples >= run.samples;
        if (!cut && !is_open(&own)) return empty_stage(c, i, e);
        k->n_stages = i;
        break;
    }
    k->total_steps = l.step;
    bool short_of = (run.step != INT64_MAX && l.step < run.step) ||
                    (run.tokens != UINT64_MAX && l.tokens < run.tokens);
    if (!short_of) return ST_OK;
    const char *path = arena_printf(c->memory, "stages.%d.until", c->stages.n - 1);
    config_error(c, e, path, "the last stage, %s, ends at step %" PRId64 ", before the run does",
                 c->stages.items[c->stages.n - 1].name, l.step);
    return err_hint(e, "leave out its `until`, or leave out train.steps and train.tokens");
}

/* ---- stages ---- */

static void fill_stage(course_stage *s, config *c) {
    s->c = c;
    s->T = (int)c->train.seq_len;
    s->B = (int)config_micro_batch(c, 1);
}

static status make_stages(course *k, const config *c, err *e) {
    k->n_stages = c->stages.n ? c->stages.n : 1;
    k->stage = xcalloc((size_t)k->n_stages, sizeof *k->stage);
    if (c->stages.n == 0) {
        k->stage[0].name = "";
        fill_stage(&k->stage[0], (config *)c);
        return ST_OK;
    }
    for (int i = 0; i < c->stages.n; i++) {
        config *own;
        TRY(config_of_stage(c, i, &own, e));
        k->n_configs++;
        k->stage[i].name = c->stages.items[i].name;
        fill_stage(&k->stage[i], own);
    }
    return ST_OK;
}

static one_cycle cycle_of(const config *c) {
    bool cycles = c->optim.schedule.cycle_beta1.n == 2;
    const double *beta1 = c->optim.schedule.cycle_beta1.items;
    return (one_cycle){.pct_start = c->optim.schedule.pct_start,
                       .div_factor = c->optim.schedule.div_factor,
                       .final_div_factor = c->optim.schedule.final_div_factor,
                       .anneal = (anneal_kind)c->optim.schedule.anneal,
                       .three_phase = c->optim.schedule.three_phase,
                       .least_beta1 = cycles ? beta1[0] : 0,
                       .most_beta1 = cycles ? beta1[1] : 0};
}

/* A schedule begins with the stage that sets optim.schedule (the run's own: with step 1) and lasts
 * until the end of the last stage that does not set another. */
static void place_schedules(course *k, const config *c) {
    int64_t base = 0, optim_base = 0;
    for (int i = 0; i < k->n_stages; i++) {
        course_stage *s = &k->stage[i];
        if (i && config_stage_has_schedule(c, i)) base = s->first_step - 1;
        if (i && config_stage_restarts(c, i)) optim_base = s->first_step - 1;
        s->schedule_base = base;
        s->optim_base = optim_base;
    }
    for (int i = k->n_stages - 1; i >= 0; i--) {
        course_stage *s = &k->stage[i];
        bool shared = i < k->n_stages - 1 && s[1].schedule_base == s->schedule_base;
        int64_t total = shared ? s[1].schedule.total_steps : s->last_step - s->schedule_base;
        const config *sc = s->c;
        s->schedule = (lr_schedule){.kind = (lr_schedule_kind)sc->optim.schedule.kind,
                                    .decay = (decay_kind)sc->optim.schedule.decay,
                                    .lr = sc->optim.lr,
                                    .min_lr = sc->optim.schedule.min_lr,
                                    .gamma = sc->optim.schedule.gamma,
                                    .warmup_steps = sc->optim.schedule.warmup_steps,
                                    .decay_steps = sc->optim.schedule.decay_steps,
                                    .total_steps = total,
                                    .milestones = sc->optim.schedule.milestones.items,
                                    .n_milestones = sc->optim.schedule.milestones.n,
                                    .timescale = sc->optim.schedule.timescale,
                                    .cycle = cycle_of(sc)};
    }
}

status course_new(course **out, const config *c, uint64_t epoch_sequences,
                  const course_origin *origin, err *e) {
    course *k = xcalloc(1, sizeof *k);
    status st = make_stages(k, c, e);
    if (st == ST_OK) st = lay_out(k, c, epoch_sequences, origin, e);
    if (st != ST_OK) {
        course_free(k);
        return st;
    }
    place_schedules(k, c);
    *out = k;
    return ST_OK;
}

void course_free(course *k) {
    if (!k) return;
    for (int i = 0; i < k->n_configs; i++) config_free(k->stage[i].c);
    free(k->stage);
    free(k->part);
    free(k);
}

static bool decays(const lr_schedule *s) {
    bool has_decay =
        s->kind == SCHEDULE_LINEAR || s->kind == SCHEDULE_COSINE || s->kind == SCHEDULE_WSD;
    return has_decay && s->decay_steps > 0;
}

/* Steps at the end in which the rate is 0. wsd decays at its end. */
static int64_t idle_steps(const lr_schedule *s) {
    bool stays = s->kind == SCHEDULE_LINEAR || s->kind == SCHEDULE_COSINE;
    int64_t left = s->total_steps - s->warmup_steps - s->decay_steps;
    return stays && decays(s) && s->min_lr == 0 && left > 0 ? left : 0;
}

void course_warn(const course *k) {
    for (int i = 0; i < k->n_stages; i++) {
        const course_stage *s = &k->stage[i];
        const lr_schedule *sc = &s->schedule;
        int64_t decay = decays(sc) ? sc->decay_steps : 0;
        if (i && s->schedule_base == s[-1].schedule_base) continue; /* told already */
        if (sc->kind == SCHEDULE_ONE_CYCLE) continue;
        if (sc->warmup_steps > sc->total_steps)
            log_warn("optim.schedule.warmup_steps (%" PRId64 ", %s) are more than the %" PRId64
                     " steps of the schedule: optim.lr is never reached",
                     sc->warmup_steps, config_where(s->c, "optim.schedule.warmup_steps"),
                     sc->total_steps);
        else if (decay > sc->total_steps - sc->warmup_steps)
            log_warn("optim.schedule.decay_steps (%" PRId64 ", %s) do not fit into the %" PRId64
                     " steps of the schedule after a warm-up of %" PRId64 ": %s",
                     decay, config_where(s->c, "optim.schedule.decay_steps"), sc->total_steps,
                     sc->warmup_steps,
                     sc->kind == SCHEDULE_WSD ? "the decay begins before optim.lr is reached"
                                              : "optim.schedule.min_lr is not reached");
        else if (idle_steps(sc) > 0)
            log_warn("optim.schedule.decay_steps (%" PRId64 ", %s) end %" PRId64
                     " steps before the schedule: optim.lr is 0 in these, and nothing is learned",
                     decay, config_where(s->c, "optim.schedule.decay_steps"), idle_steps(sc));
    }
}

/* ---- questions ---- */

const course_part *course_part_of(const course *k, int64_t step) {
    int lo = 0, hi = k->n_parts - 1;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (step > k->part[mid].last_step)
            lo = mid + 1;
        else
            hi = mid;
    }
    return &k->part[lo];
}

const course_stage *course_stage_of(const course *k, int64_t step) {
    return &k->stage[course_part_of(k, step)->stage];
}

int course_last_stage(const course *k, int64_t step) {
    return step > 0 ? course_part_of(k, step)->stage : 0;
}

uint64_t course_first_sample(const course *k, int64_t step) {
    const course_part *p = course_part_of(k, step);
    return p->first_sample + (uint64_t)(step - p->first_step) * (uint64_t)p->batch;
}

uint64_t course_tokens_after(const course *k, int64_t step) {
    if (step < 1) return 0;
    const course_part *p = course_part_of(k, step);
    uint64_t samples = (uint64_t)(step - p->first_step + 1) * (uint64_t)p->batch;
    return p->tokens + samples * (uint64_t)k->stage[p->stage].T;
}

uint64_t course_stage_samples(const course *k, int stage) {
    int64_t last = k->stage[stage].last_step;
    return course_first_sample(k, last) + (uint64_t)course_part_of(k, last)->batch;
}

double course_lr(const course *k, int64_t step) {
    const course_stage *s = course_stage_of(k, step);
    return lr_schedule_at(&s->schedule, step - s->schedule_base);
}

double course_beta1(const course *k, int64_t step) {
    const course_stage *s = course_stage_of(k, step);
    return lr_schedule_beta1(&s->schedule, step - s->schedule_base, s->c->optim.betas.items[0]);
}
