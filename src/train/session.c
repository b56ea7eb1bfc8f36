/* Opening a run: tokenizer, course, models, plan, initial or resumed state. */
#include "train/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "io/hf/hf_weights.h"
#include "op/gemm.h"
#include "op/peak.h"

/* ---- model ---- */

bool session_takes_vocab(const config *c) {
    const json_t *size = json_object_get(c->model, "vocab_size");
    if (size) return json_is_string(size);
    return !json_object_get(c->model, "preset") && !json_object_get(c->model, "from");
}

/* A copy of `model:` in which an unsaid vocabulary is the tokenizer's. */
static json_t *model_object(const session *s, const config *c) {
    json_t *o = json_deep_copy(c->model);
    if (s->tok && !json_object_get(o, "vocab_size") && session_takes_vocab(c))
        json_object_set_new(o, "vocab_size", json_string("auto"));
    return o;
}

static status check_vocab(const session *s, const config *c, const model_config *m, err *e) {
    int32_t n = s->tok ? tok_vocab_size(s->tok) : 0;
    if (n <= m->vocab_size) return ST_OK;
    config_error(c, e, "model.vocab_size", "the tokenizer has %d tokens, model.vocab_size is %ld",
                 n, (long)m->vocab_size);
    return err_hint(e, "set model.vocab_size=auto");
}

static status check_length(const config *c, const model_config *m, err *e) {
    if (c->train.seq_len <= model_max_tokens(m)) return ST_OK;
    config_error(c, e, "train.seq_len", "train.seq_len is %ld, the model's positions end at %ld",
                 (long)c->train.seq_len, (long)model_max_tokens(m));
    return err_hint(e, "set model.max_position_embeddings=%ld", (long)c->train.seq_len);
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

/* The key of an error of the model or the layout gets its line. */
static status locate_error(const config *c, status st, err *e) {
    if (st == ST_OK || !e) return st;
    if (strncmp(e->where, "model.", 6) != 0 && strcmp(e->where, "parallel.tp") != 0) return st;
    config_locate(c, e->where, e);
    return st;
}

static status read_model(session *s, const config *c, model_config *out, err *e) {
    json_t *o = model_object(s, c);
    status st = model_config_read(s->a, o, s->tok ? tok_vocab_size(s->tok) : 0, out, e);
    json_decref(o);
    TRY(locate_error(c, st, e));
    TRY(check_vocab(s, c, out, e));
    return check_length(c, out, e);
}

status session_open_tokenizer(session *s, err *e) {
    s->stage = -1;
    s->val_loss = NAN;
    s->part_mem = arena_new("part of a run");
    s->late_alarms = json_array();
    s->objective = objective_of(s->c);
    watch_init(&s->watch, s->c);
    if (s->c->tokenizer) TRY(tok_load(&s->tok, s->c->tokenizer, e));
    model_config first;
    TRY(read_model(s, s->c, &first, e)); /* so that a mistake is told before data is opened */
    s->data = (stage_data){.tok = s->tok,
                           .vocab_size = (int32_t)first.vocab_size,
                           .watch = &s->watch,
                           .record = s->data.record};
    resolve_precision(s);
    return ST_OK;
}

/* Sequence-parallel ranks share the rows of a micro-batch. */
static status share_rows(const session *s, const course_stage *k, err *e) {
    int64_t tp = s->peers.m.size[MESH_TP], rows = (int64_t)k->B * k->T;
    if (!s->c->parallel.sp || rows % tp == 0) return ST_OK;
    config_error(s->c, e, "parallel.sp",
                 "a micro-batch of %d sequences of %d tokens does not divide over %ld "
                 "sequence-parallel ranks",
                 k->B, k->T, (long)tp);
    return err_hint(e, "parallel.sp=false, or train.seq_len=%ld",
                    (long)(k->T > tp ? k->T / tp * tp : tp));
}

/* The multiple of `unit` next to n, but not 0. */
static int64_t nearest_multiple(int64_t n, int64_t unit) {
    int64_t below = n / unit * unit;
    return below > 0 && n - below < below + unit - n ? below : below + unit;
}

/* Sequences of whole samples: more than n, and as few as possible. */
static int samples_up(int n, int sequences) {
    return (n / sequences + 1) * sequences;
}

/* Chunks have layers; micro-batches have whole samples; the head's second mode has all of the
 * vocabulary. */
static status check_parts(const session *s, err *e) {
    int64_t layers = s->models[0].num_hidden_layers;
    if (s->objective->loss && s->peers.m.size[MESH_TP] > 1) {
        config_error(s->c, e, "parallel.tp",
                     "train.objective=%s does not run on tensor-parallel ranks yet",
                     s->objective->name);
        return err_hint(e, "parallel.tp=1; dp and zero share it out");
    }
    if (s->objective->loss && s->c->optim.z_loss > 0) {
        config_error(s->c, e, "optim.z_loss", "train.objective=%s has no z_loss",
                     s->objective->name);
        return err_hint(e, "leave optim.z_loss out");
    }
    if (s->c->parallel.virtual > layers) {
        config_error(s->c, e, "parallel.virtual", "%ld layers do not make %ld chunks", (long)layers,
                     (long)s->c->parallel.virtual);
        return err_hint(e, "parallel.virtual=%ld or less", (long)layers);
    }
    for (int i = 0; i < s->course->n_stages; i++) {
        const course_stage *k = &s->course->stage[i];
        if (k->B % s->objective->sequences == 0) continue;
        config_error(k->c, e, "train.micro_batch_size",
                     "a micro-batch of %d sequences is not of whole samples, which have %d", k->B,
                     s->objective->sequences);
        return err_hint(e, "train.micro_batch_size=%d", samples_up(k->B, s->objective->sequences));
    }
    return ST_OK;
}

/* Every batch is a whole number of micro-batches on every rank. */
static status share_batches(session *s, err *e) {
    int64_t dp = s->peers.m.size[MESH_DP];
    for (int i = 0; i < s->course->n_stages; i++) {
        course_stage *k = &s->course->stage[i];
        k->B = (int)config_micro_batch(k->c, dp);
        TRY(share_rows(s, k, e));
    }
    for (int i = 0; i < s->course->n_parts; i++) {
        const course_part *p = &s->course->part[i];
        const course_stage *k = &s->course->stage[p->stage];
        if (p->batch % (dp * k->B) == 0) continue;
        config_error(k->c, e, "train.global_batch_size",
                     "a batch of %ld sequences cannot be shared by dp %ld ranks in micro-batches "
                     "of %d",
                     (long)p->batch, (long)dp, k->B);
        return err_hint(e, "the nearest batch that can is %ld",
                        (long)nearest_multiple(p->batch, dp * k->B));
    }
    return ST_OK;
}

status session_open_course(session *s, uint64_t epoch_sequences, const course_origin *origin,
                           err *e) {
    TRY(course_new(&s->course, s->c, epoch_sequences, origin, e));
    s->data.course = s->course;
    s->models = ARENA_ARRAY(s->a, model_config, s->course->n_stages);
    for (int i = 0; i < s->course->n_stages; i++) {
        status st = read_model(s, s->course->stage[i].c, &s->models[i], e);
        if (st != ST_OK && s->c->stages.n) err_context(e, "stage %s", s->course->stage[i].name);
        TRY(st);
    }
    s->model = s->models[0];
    TRY(share_batches(s, e));
    return check_parts(s, e);
}

/* ---- memory ---- */

enum { PREFILL_T = 16 };

/* Longest sample: prompt and continuation, rounded up to whole prefill passes. */
static int cache_tok(const session *s) {
    int64_t most = 0;
    for (int i = 0; s->prompts && i < s->c->sample.prompts.n; i++)
        if (s->prompts[i].n > most) most = s->prompts[i].n;
    if (most == 0) return 0;
    int64_t rounded = (most + s->c->sample.max_new + PREFILL_T - 1) / PREFILL_T * PREFILL_T;
    int64_t most_tok = model_max_tokens(&s->model);
    return (int)(rounded < most_tok ? rounded : most_tok);
}

/* What enter.c allocates for a stage. */
static int64_t host_bytes(const course_stage *k, int64_t dp) {
    int64_t share = k->max_batch / dp;
    return (int64_t)prefetch_bytes(k->B, k->T, share, k->c->data.document_mask) +
           batch_rows_bytes(k->B, k->T) + k->max_batch * k->T * (int64_t)sizeof(float);
}

/* Whether a save can come before the last step, which is the only one that is waited for. */
bool session_saves_on_the_way(const session *s) {
    const config *c = s->c;
    bool by_steps = c->checkpoint.every > 0 && c->checkpoint.every < s->course->total_steps;
    return c->checkpoint.async && (by_steps || c->checkpoint.every_minutes > 0);
}

static plan_spec spec_of(const session *s, int stage) {
    const course_stage *k = &s->course->stage[stage];
    const config *c = k->c;
    int64_t dp = s->peers.m.size[MESH_DP];
    return (plan_spec){.model = s->models[stage],
                       .compute = session_compute(s->c),
                       .T = k->T,
                       .train_B = k->B,
                       .micro_batches = k->max_batch / dp / k->B,
                       .chunks = (int)c->parallel.virtual,
                       /* on one pipeline rank 1f1b is one forward, one backward */
                       .frames = c->parallel.pp_schedule == CONFIG_PP_AFAB ? PLAN_ALL_FRAMES : 1,
                       .sequences = s->objective->sequences,
                       .deferred_loss = s->objective->loss != NULL,
                       .others = &s->reference,
                       .n_others = s->objective->reference,
                       .valid_B = c->data.valid ? k->B : 0,
                       .cache_tok = cache_tok(s),
                       .prefill_T = PREFILL_T,
                       .optim = s->optim,
                       .recompute = (recompute_policy)c->train.recompute,
                       .document_mask = c->data.document_mask,
                       .chunk_rows = c->train.head_chunk_rows,
                       .z_loss = (float)c->optim.z_loss,
                       .host_bytes = host_bytes(k, dp),
                       .fixed_grads = s->c->train.deterministic,
                       .snapshot = session_saves_on_the_way(s) && s->peers.first_copy,
                       .ranks = peers_ranks(&s->peers) > 1 ? &s->peers.m : NULL,
                       .sequence_parallel = s->c->parallel.sp,
                       .narrow_sums = s->c->parallel.reduce_dtype == CONFIG_REDUCE_BF16,
                       .sharing = peers_sharding(&s->peers, s->c)};
}

/* It sees what is trained on. */
static status check_reference(const session *s, const model_config *ref, err *e) {
    int64_t vocab = s->models[0].vocab_size, longest = 0;
    for (int i = 0; i < s->course->n_stages; i++)
        if (s->course->stage[i].T > longest) longest = s->course->stage[i].T;
    if (ref->vocab_size != vocab) {
        config_error(s->c, e, "train.reference", "the reference has %ld tokens, the model %ld",
                     (long)ref->vocab_size, (long)vocab);
        return err_hint(e, "compare with a model of the same tokenizer");
    }
    if (longest <= model_max_tokens(ref)) return ST_OK;
    config_error(s->c, e, "train.reference",
                 "the reference's positions end at %ld, sequences have %ld tokens",
                 (long)model_max_tokens(ref), (long)longest);
    return err_hint(e, "train.seq_len=%ld", (long)model_max_tokens(ref));
}

/* Its config, before memory is planned; its weights come with the state. */
static status open_reference(session *s, err *e) {
    const char *dir = s->c->train.reference;
    s->reference = (plan_other){.name = "reference", .config = s->models[0]};
    if (!s->objective->reference || !dir) return ST_OK;
    json_t *o = json_object();
    json_object_set_new(o, "from", json_string_nocheck(dir));
    status st = model_config_read(s->a, o, 0, &s->reference.config, e);
    json_decref(o);
    if (st != ST_OK) return err_context(e, "train.reference");
    return check_reference(s, &s->reference.config, e);
}

status session_make_plan(session *s, err *e) {
    TRY(open_reference(s, e));
    s->optim = optim_at(s->c->optim.name);
    int n = s->course->n_stages;
    plan_spec *specs = ARENA_ARRAY(s->a, plan_spec, n);
    for (int i = 0; i < n; i++) specs[i] = spec_of(s, i);
    TRY(locate_error(s->c, plan_new_phases(&s->plan, s->dev, specs, n, e), e));
    return plan_check_fits(s->plan, s->c->train.memory_limit, e);
}

status session_commit(session *s, err *e) {
    if (s->c->train.deterministic) gemm_use_own(s->dev);
    TRY(plan_commit(s->plan, e));
    s->decay = ARENA_ARRAY(s->a, bool, param_count(s->plan->store));
    s->peak_flops = peak_flops(s->dev, s->plan->spec.compute);
    peers_bind(&s->peers, s->a, s->plan->store);
    return ST_OK;
}

status session_make_weights(const session *s, param_store *store, const char *from, err *e) {
    if (from) return hf_load_weights(store, from, e);
    param_init_all(store, (uint64_t)s->c->train.seed);
    return ST_OK;
}

status session_load_reference(const session *s, const char *initial, err *e) {
    if (!s->objective->reference) return ST_OK;
    const char *from = s->c->train.reference;
    return session_make_weights(s, s->plan->model[1].store, from ? from : initial, e);
}

status session_digest(session *s, uint64_t *digest, err *e) {
    *digest = param_digest(s->plan->store);
    return peers_digest(&s->peers, digest, e);
}

/* ---- state ---- */

static status check_begun(const session *s, err *e) {
    int stage = s->at.step > 0 ? course_part_of(s->course, s->at.step)->stage : 0;
    int begun = stage_data_begun(s->data.record);
    bool is_fork = s->at.step == stage_data_origin(s->data.record).step; /* no step of its own */
    if (stage < begun || begun == 0 || is_fork) return ST_OK;
    const char *path = arena_printf(s->a, "stages.%d.until", begun - 1);
    config_error(s->c, e, path, "stage %s ends before step %ld, which was trained in it",
                 s->course->stage[begun - 1].name, (long)s->at.step);
    return err_hint(e, "end it at step %ld or later", (long)s->at.step);
}

status session_start_state(session *s, err *e) {
    TRY(session_commit(s, e));
    status st = session_leads(s) ? checkpoint_clean(s->c->run, e) : ST_OK;
    TRY(peers_agree(&s->peers, st, e));
    TRY(session_load_reference(s, s->models[0].from, e));
    TRY(state_load_newest(s, e));
    peers_gather_all(&s->peers);
    return check_begun(s, e);
}

void session_close(session *s) {
    if (!s) return;
    state_abandon(s);
    peers_settle(&s->peers);
    for (int i = 0; s->prompts && i < s->c->sample.prompts.n; i++) tok_ids_free(&s->prompts[i]);
    upload_free(s->upload);
    trace_free(s->trace);
    metrics_close(s->metrics);
    run_close(s->folder);
    prefetch_free(s->ahead);
    free(s->nll);
    plan_free(s->plan);
    loader_close(s->train);
    loader_close(s->valid);
    json_decref(s->data.record);
    json_decref(s->late_alarms);
    watch_free(&s->watch);
    course_free(s->course);
    tok_free(s->tok);
    peers_close(&s->peers);
    dev_close(s->dev);
    arena_free(s->part_mem);
    arena_free(s->a);
}
