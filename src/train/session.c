/* Opening a run: model, tokenizer, data, plan, initial or resumed state. */
#include "train/session.h"

#include <stdlib.h>
#include <string.h>

#include "io/checkpoint.h"
#include "io/hf_weights.h"
#include "op/peak.h"

/* ---- model ---- */

/* A copy of `model:` in which an unsaid vocabulary is the tokenizer's. */
static json_t *model_object(const session *s) {
    json_t *o = json_deep_copy(s->c->model);
    bool based = json_object_get(o, "preset") || json_object_get(o, "from");
    if (s->tok && !based && !json_object_get(o, "vocab_size"))
        json_object_set_new(o, "vocab_size", json_string("auto"));
    return o;
}

static status check_vocab(const session *s, err *e) {
    int32_t n = s->tok ? tok_vocab_size(s->tok) : 0;
    if (n <= s->model.vocab_size) return ST_OK;
    config_error(s->c, e, "model.vocab_size",
                 "the tokenizer has %d tokens, model.vocab_size is %ld", n,
                 (long)s->model.vocab_size);
    return err_hint(e, "set model.vocab_size=auto");
}

static status check_length(const session *s, err *e) {
    if (s->T <= s->model.max_position_embeddings) return ST_OK;
    config_error(s->c, e, "train.seq_len", "train.seq_len is %d, the model's positions end at %ld",
                 s->T, (long)s->model.max_position_embeddings);
    return err_hint(e, "set model.max_position_embeddings=%d", s->T);
}

/* auto becomes bf16 where the machine multiplies bf16, else fp32; the word is kept in the resolved
 * config. */
static void resolve_precision(session *s) {
    config *c = s->c;
    if (c->train.precision.compute == CONFIG_PRECISION_AUTO)
        c->train.precision.compute =
            dev_isa(s->dev) >= ISA_AVX512_BF16 ? CONFIG_PRECISION_BF16 : CONFIG_PRECISION_FP32;
    if (c->train.precision.params == CONFIG_PRECISION_AUTO)
        c->train.precision.params = c->train.precision.compute;
    if (c->train.precision.grads == CONFIG_PRECISION_AUTO)
        c->train.precision.grads = CONFIG_PRECISION_FP32;
    if (c->train.precision.optim == CONFIG_PRECISION_AUTO)
        c->train.precision.optim = CONFIG_PRECISION_FP32;
}

dtype session_compute(const config *c) {
    return c->train.precision.compute == CONFIG_PRECISION_BF16 ? DT_BF16 : DT_F32;
}

/* The key of a model error gets its line: "model.hidden_size" becomes "model.hidden_size
 * (tiny.yaml:7)". */
static status locate_model_error(const session *s, status st, err *e) {
    if (st == ST_OK || !e || strncmp(e->where, "model.", 6) != 0) return st;
    char key[sizeof e->where];
    memcpy(key, e->where, sizeof key);
    err_where(e, "%s (%s)", key, config_where(s->c, key));
    return st;
}

status session_open_model(session *s, err *e) {
    const config *c = s->c;
    if (c->tokenizer) TRY(tok_load(&s->tok, c->tokenizer, e));
    json_t *o = model_object(s);
    status st = model_config_read(s->a, o, s->tok ? tok_vocab_size(s->tok) : 0, &s->model, e);
    json_decref(o);
    TRY(locate_model_error(s, st, e));
    s->T = (int)c->train.seq_len;
    s->B = (int)config_micro_batch(c, 1);
    s->batch = c->train.global_batch_size;
    resolve_precision(s);
    TRY(check_vocab(s, e));
    return check_length(s, e);
}

/* ---- data ---- */

static status open_loader(session *s, const loader_source *sources, int n, bool shuffle,
                          loader **out, err *e) {
    loader_config lc = {.sources = sources,
                        .n_sources = n,
                        .seq_len = s->T,
                        .document_mask = s->c->data.document_mask,
                        .shuffle = shuffle,
                        .seed = (uint64_t)s->c->data.seed,
                        .tok_hash = tok_hash(s->tok),
                        .vocab_size = (int32_t)s->model.vocab_size};
    return loader_open(out, &lc, e);
}

static int64_t steps_of(const session *s) {
    const config *c = s->c;
    double per_step = (double)s->batch, steps = (double)c->train.steps;
    if (c->train.tokens > 0) steps = (double)c->train.tokens / (per_step * s->T);
    if (c->train.epochs > 0)
        steps = c->train.epochs * (double)loader_sequences(s->train) / per_step;
    int64_t whole = (int64_t)steps;
    return (double)whole < steps ? whole + 1 : whole;
}

status session_open_data(session *s, err *e) {
    const config *c = s->c;
    int n = c->data.train.n;
    loader_source *sources = ARENA_ARRAY(s->a, loader_source, n);
    for (int i = 0; i < n; i++)
        sources[i] = (loader_source){c->data.train.items[i].path, c->data.train.items[i].weight};
    TRY(open_loader(s, sources, n, true, &s->train, e));
    loader_source valid = {c->data.valid, 1.0};
    if (c->data.valid) TRY(open_loader(s, &valid, 1, false, &s->valid, e));
    s->total_steps = steps_of(s);
    s->schedule = (schedule){.kind = (schedule_kind)c->optim.schedule.kind,
                             .decay = (decay_kind)c->optim.schedule.decay,
                             .lr = c->optim.lr,
                             .min_lr = c->optim.schedule.min_lr,
                             .gamma = c->optim.schedule.gamma,
                             .warmup_steps = c->optim.schedule.warmup_steps,
                             .decay_steps = c->optim.schedule.decay_steps,
                             .total_steps = s->total_steps,
                             .milestones = c->optim.schedule.milestones.items,
                             .n_milestones = c->optim.schedule.milestones.n};
    return samples_encode(s, e);
}

/* The config's words and ours are listed in the same order. */
_Static_assert((int)SCHEDULE_MULTISTEP == (int)CONFIG_SCHEDULE_MULTISTEP, "schedule kinds");
_Static_assert((int)DECAY_COSINE == (int)CONFIG_DECAY_COSINE, "decay kinds");
_Static_assert((int)RECOMPUTE_FULL == (int)CONFIG_RECOMPUTE_FULL, "recompute policies");

/* ---- memory ---- */

/* Longest sample: prompt and continuation, rounded up to whole prefill passes. */
static int cache_tok(const session *s, int prefill_T) {
    int64_t most = 0;
    for (int i = 0; i < s->c->sample.prompts.n; i++)
        if (s->prompts[i].n > most) most = s->prompts[i].n;
    if (most == 0) return 0;
    int64_t rounded = (most + s->c->sample.max_new + prefill_T - 1) / prefill_T * prefill_T;
    return (int)(rounded < s->model.max_position_embeddings ? rounded
                                                            : s->model.max_position_embeddings);
}

status session_make_plan(session *s, err *e) {
    enum { PREFILL_T = 16 };
    const config *c = s->c;
    json_t *name = config_get_json(c, "optim.name");
    s->optim = optim_find(json_string_value(name));
    CHECK(s->optim, "optimizer %s is an option but has no class", json_string_value(name));
    json_decref(name);
    plan_spec spec = {.model = s->model,
                      .compute = session_compute(c),
                      .T = s->T,
                      .train_B = s->B,
                      .accumulates = s->batch > s->B,
                      .valid_B = c->data.valid ? s->B : 0,
                      .cache_tok = cache_tok(s, PREFILL_T),
                      .prefill_T = PREFILL_T,
                      .optim = s->optim,
                      .recompute = (recompute_policy)c->train.recompute,
                      .document_mask = c->data.document_mask,
                      .chunk_rows = c->train.head_chunk_rows,
                      .z_loss = (float)c->optim.z_loss};
    TRY(plan_new(&s->plan, s->dev, &spec, e));
    return plan_check_fits(s->plan, c->train.memory_limit, e);
}

/* ---- state ---- */

status session_commit(session *s, err *e) {
    const config *c = s->c;
    param_store *store = s->plan->store;
    TRY(plan_commit(s->plan, e));
    s->decay = ARENA_ARRAY(s->a, bool, param_count(store));
    optim_decay_mask(store, c->optim.no_decay.items, c->optim.no_decay.n, s->decay);
    s->table = step_build_accumulation(s->a, (int)(s->batch / s->B));
    s->peak_flops = peak_flops(s->dev, s->plan->spec.compute);
    return ST_OK;
}

status session_start_state(session *s, err *e) {
    const config *c = s->c;
    param_store *store = s->plan->store;
    TRY(session_commit(s, e));
    char *newest = NULL;
    int64_t step;
    TRY(checkpoint_clean(c->run, e));
    TRY(checkpoint_find_newest(s->a, c->run, &newest, &step, NULL, NULL, e));
    if (newest) return state_load(s, newest, e);
    if (s->model.from) return hf_load_weights(store, s->model.from, e);
    param_init_all(store, (uint64_t)c->train.seed);
    return ST_OK;
}

void session_close(session *s) {
    if (!s) return;
    for (int i = 0; s->prompts && i < s->c->sample.prompts.n; i++) tok_ids_free(&s->prompts[i]);
    metrics_close(s->metrics);
    run_close(s->folder);
    plan_free(s->plan);
    loader_close(s->train);
    loader_close(s->valid);
    tok_free(s->tok);
    dev_close(s->dev);
    arena_free(s->a);
}
