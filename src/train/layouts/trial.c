#include "train/layouts/trial.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "run/config/config_device.h"

/* ---- opening ---- */

void trial_trim_config(config *c) {
    /* A tokenizer of its own beside model.from may make the vocabulary larger. */
    bool may_grow = json_object_get(c->model, "from") &&
                    strcmp(config_where(c, "tokenizer"), "model.from") != 0;
    if (!setup_takes_vocab(c) && !may_grow) c->tokenizer = NULL;
    c->data.valid = NULL;
    c->sample.prompts.n = 0;
}

status train_plan_trial(config *c, dev *meta, plan **out, err *e) {
    trial_trim_config(c);
    return train_plan(c, meta, out, e);
}

static status open_model(session *s, comm_world *world, err *e) {
    setup *u = &s->setup;
    TRY(config_check_supported(u->c, e));
    TRY(peers_open(&u->peers, u->c, world, e));
    TRY(config_open_device(u->c, u->peers.m.world, &u->dev, e));
    TRY(session_open(s, e));
    TRY(session_open_course(s, 0, NULL, e));
    u->knows_reference = reference_is_kept(u);
    return setup_make_plan(u, e);
}

static status open_memory(session *s, err *e) {
    setup *u = &s->setup;
    course_stage *first = &u->course->stage[0];
    first->schedule = (lr_schedule){.kind = SCHEDULE_CONSTANT, .lr = u->c->optim.lr};
    TRY(setup_commit(u, e));
    stage_enter_shape(&s->stage, u, 0, first->max_batch);
    TRY(setup_make_weights(u, u->plan->store, NULL, e));
    TRY(setup_load_reference(u, NULL, e));
    peers_gather_all(&u->peers);
    return comm_check(u->peers.m.world, e);
}

status trial_open(session *s, arena *a, config *c, comm_world *world, bool measures, err *e) {
    static const train_options none = {0};
    trial_trim_config(c);
    *s = (session){.opt = &none, .setup = {.c = c, .a = a, .choice = {.measures = measures}}};
    TRY(open_model(s, world, e));
    return open_memory(s, e);
}

void trial_close(session *s, comm_world *world, status st, const err *why) {
    if (world && st != ST_OK && st != ST_NONFINITE) comm_fail(world, why);
    session_close(s);
}

/* ---- steps ---- */

static int64_t count_targets(session *s) {
    return s->stage.share * s->stage.T;
}

/* What an encoder reads: as many random ids as there is room for. */
static void fill_sources(session *s, int b, uint64_t sample) {
    batch_rows *r = &s->stage.rows;
    rng_key key = rng_key_named((uint64_t)s->setup.c->train.seed, "bench.sources");
    for (int t = 0; t < r->S; t++)
        r->source[(int64_t)b * r->S + t] =
            (int32_t)(rng_u32(key, sample * (uint64_t)r->S + (uint64_t)t) %
                      (uint32_t)s->setup.models[0].vocab_size);
    batch_rows_see_source(r, b, r->S);
}

/* With a document mask: what a layout does with documents is to be compared, too. */
static void cut_documents(batch_rows *r, int b, rng_key key, uint64_t first) {
    enum { MEAN_TOKENS = 12 };
    int32_t start = 0;
    for (int t = 0; t < r->T; t++) {
        int64_t at = (int64_t)b * r->T + t;
        if (rng_u32(key, ~(first + (uint64_t)t)) % MEAN_TOKENS == 0) start = t;
        r->start[at] = start;
        r->pos[at] = t - start;
    }
}

/* Sequences of T + 1 random ids; in measurements all of one document, so attention costs what it can cost. A
 * reference that is not in memory says of them what a model says that knows nothing, nearly. */
static status fill(session *s, int micro_batch, err *e) {
    stage *g = &s->stage;
    (void)e;
    batch_rows *r = &g->rows;
    rng_key key = rng_key_named((uint64_t)s->setup.c->train.seed, "bench.ids");
    uint64_t own = (uint64_t)(s->at.step * g->batch + s->setup.peers.m.rank[MESH_DP] * g->share);
    uint32_t vocab = (uint32_t)s->setup.models[0].vocab_size;
    for (int b = 0; b < g->B; b++) {
        uint64_t sample = own + (uint64_t)micro_batch * (uint64_t)g->B + (uint64_t)b;
        uint64_t first = sample * ((uint64_t)g->T + 1);
        for (int t = 0; t < g->T; t++) {
            int64_t at = (int64_t)b * g->T + t;
            r->ids[at] = (int32_t)(rng_u32(key, first + (uint64_t)t) % vocab);
            r->targets[at] = (int32_t)(rng_u32(key, first + (uint64_t)t + 1) % vocab);
            r->pos[at] = t;
            if (r->start) r->start[at] = 0;
        }
        if (r->start && !s->setup.choice.measures) cut_documents(r, b, key, first);
        if (r->S) fill_sources(s, b, sample);
        r->info[b] = (loader_row){.label = (float)(sample / 2 % 2), .n_inputs = g->T};
        r->ref_logp[b] = -(1 + 0.1 * rng_uniform(key, first)) * log(vocab) * g->T;
    }
    execute_complete(g, NULL, 0);
    return ST_OK;
}

status trial_step(session *s, step_times *times, void (*reduced)(session *s, void *ctx), void *ctx,
                  step_result *r, err *e) {
    step_source random = {
        .count_targets = count_targets, .fill = fill, .reduced = reduced, .ctx = ctx};
    TRY(execute_step(s, &random, times, r, e));
    while (r->overflow) /* the same step with a smaller loss scale: none is left out */
        TRY(execute_step(s, &random, times, r, e));
    if (!r->finite) {
        err_set(e, ST_NONFINITE, "the loss or gradient norm of step %ld is not finite",
                (long)s->at.step + 1);
        config_locate(s->setup.c, "optim.lr", e);
        return err_hint(e, "lower optim.lr (now %g)", s->setup.c->optim.lr);
    }
    execute_advance(s, r);
    return ST_OK;
}
