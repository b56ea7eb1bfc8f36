/* Opening what a run is made of; see setup.h. */
#include "train/setup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "io/hf/hf_load.h"
#include "io/hf/hf_weights.h"
#include "op/gemm.h"
#include "op/peak.h"
#include "optim/offload.h"
#include "data/order/prefetch.h"
#include "run/folder.h"
#include "train/axes.h"
#include "train/batch.h"
#include "train/context.h"
#include "train/distill.h"
#include "train/lessons.h"
#include "train/routers.h"
#include "train/shares.h"
#include "train/vocabulary.h"

/* ---- model ---- */

bool setup_takes_vocab(const config *c) {
    const json_t *size = json_object_get(c->model, "vocab_size");
    if (size) return json_is_string(size);
    return !json_object_get(c->model, "preset") && !json_object_get(c->model, "from");
}

/* A copy of the config's `model:`; where it does not say the size of the vocabulary, that is the
 * tokenizer's. */
static json_t *model_object(const setup *u, const config *c) {
    json_t *o = json_deep_copy(c->model);
    if (u->tok && !json_object_get(o, "vocab_size") && setup_takes_vocab(c))
        json_object_set_new(o, "vocab_size", json_string("auto"));
    return o;
}

static status check_vocab(const setup *u, const config *c, const model_config *m, err *e) {
    int32_t n = u->tok ? tok_vocab_size(u->tok) : 0;
    if (n <= m->vocab_size) return ST_OK;
    config_error(c, e, "model.vocab_size", "the tokenizer has %d tokens, model.vocab_size is %ld",
                 n, (long)m->vocab_size);
    const char *from = json_string_value(json_object_get(c->model, "from"));
    if (from && gguf_is_file(from))
        return err_hint(e, "a GGUF file gets no new rows: athanor import %s -o FOLDER", from);
    return err_hint(e, "set model.vocab_size=auto");
}

status setup_check_length(const config *c, const model_config *m, err *e) {
    if (c->train.seq_len <= model_max_tokens(m)) return ST_OK;
    config_error(c, e, "train.seq_len", "train.seq_len is %ld, the model's positions end at %ld",
                 (long)c->train.seq_len, (long)model_max_tokens(m));
    return err_hint(e, "set model.max_position_embeddings=%ld", (long)c->train.seq_len);
}

/* What else is auto follows from the compute format; the words are kept in the resolved config. */
static void resolve_precision(setup *u) {
    config *c = u->c;
    if (c->train.precision.params == CONFIG_PRECISION_AUTO)
        c->train.precision.params = c->train.precision.compute;
    if (c->train.precision.grads == CONFIG_PRECISION_AUTO)
        c->train.precision.grads = CONFIG_PRECISION_FP32;
    if (c->train.precision.optim == CONFIG_PRECISION_AUTO)
        c->train.precision.optim = CONFIG_PRECISION_FP32;
}

dtype setup_state_dtype(const config *c) {
    return c->train.precision.optim == CONFIG_PRECISION_BF16 ? DT_BF16 : DT_F32;
}

dtype setup_compute(const config *c) {
    switch (c->train.precision.compute) {
        case CONFIG_PRECISION_BF16: return DT_BF16;
        case CONFIG_PRECISION_FP16: return DT_F16;
        default: return DT_F32;
    }
}

/* An error of the model or the layout names a key; this adds the line of the config. */
static status locate_error(const config *c, status st, err *e) {
    if (st == ST_OK || !e) return st;
    if (strncmp(e->where, "model.", 6) != 0 && strncmp(e->where, "lora.", 5) != 0 &&
        strcmp(e->where, "parallel.tp") != 0)
        return st;
    config_locate(c, e->where, e);
    return st;
}

static status read_model(setup *u, const config *c, model_config *out, err *e) {
    if (u->lora.gguf.a) {
        *out = u->lora.gguf.config;
        TRY(check_vocab(u, c, out, e));
        return setup_check_length(c, out, e);
    }
    json_t *o = model_object(u, c);
    status st = hf_config_read(u->a, o, u->tok ? tok_vocab_size(u->tok) : 0, out, e);
    json_decref(o);
    TRY(locate_error(c, st, e));
    /* modules are not adapted, and predict no labels */
    if (config_adapts(c) || out->num_labels) out->num_nextn_predict_layers = 0;
    bool said = json_object_get(c->model, "num_nextn_predict_layers");
    if (out->from && !said) TRY(hf_settle_ahead(out, out->from, e));
    TRY(vocabulary_settle(c, u->tok, out, e));
    TRY(check_vocab(u, c, out, e));
    return setup_check_length(c, out, e);
}

/* Which labels texts may have. */
static text_labels labels_of(const model_config *m) {
    bool numbers = model_problem(m) == PROBLEM_REGRESSION;
    return (text_labels){.are_wanted = m->num_labels > 0,
                         .classes = numbers ? 0 : m->num_labels,
                         .names = numbers ? NULL : m->labels};
}

static status refuse_head(const setup *u, const char *key, const char *what, const char *hint,
                          err *e) {
    config_error(u->c, e, key, "%s", what);
    return err_hint(e, "%s", hint);
}

/* Whether the head is one that the objective trains, and what does not run with a head of labels. */
static status check_head(const setup *u, const model_config *m, err *e) {
    const objective *o = u->objective;
    if (!o->head && m->num_labels) {
        config_error(
            u->c, e, "train.objective",
            "the model has a head of %ld label%s, and train.objective=%s trains a language model",
            (long)m->num_labels, text_s(m->num_labels), o->name);
        return err_hint(e, "train.objective=%s, or model.num_labels=0",
                        m->num_labels == 1 ? "reward" : "classify");
    }
    if (!o->head) return ST_OK;
    if (!m->num_labels)
        return refuse_head(
            u, "train.objective",
            "the model has a language model's head, and the objective needs one of labels",
            o->values ? "model.labels=[A,B], or model.num_labels=1 for numbers"
                      : "model.num_labels=1",
            e);
    if (!o->values && m->num_labels != 1)
        return refuse_head(u, "model.num_labels", "a reward is one number", "model.num_labels=1",
                           e);
    if (o->values && model_problem(m) == PROBLEM_MULTI_LABEL)
        return refuse_head(
            u, "model.problem_type", "texts with several labels each are not trained on",
            "problem_type: single_label_classification, with a class for each text", e);
    if (o->values && model_problem(m) == PROBLEM_REGRESSION && m->num_labels > 1)
        return refuse_head(u, "model.num_labels", "a text has one number as its label",
                           "model.num_labels=1", e);
    if (u->lora.adapters.rank)
        return refuse_head(u, "lora.rank", "adapters are not trained beside a head of labels",
                           "lora.rank=0", e);
    if (u->c->parallel.sp)
        return refuse_head(u, "parallel.sp",
                           "a head of labels looks at one token of a text, which sequence-parallel "
                           "ranks do not share",
                           "parallel.sp=false", e);
    if (u->c->sample.prompts.n || u->c->eval.tasks.n)
        return refuse_head(u, u->c->eval.tasks.n ? "eval.tasks" : "sample.prompts",
                           "a model with a head of labels writes no text", "leave it out", e);
    return ST_OK;
}

/* An encoder reads sources, which other samples have not. */
static status check_encoder(const setup *u, const model_config *m, err *e) {
    const config *c = u->c;
    if (m->num_encoder_layers == 0 && c->train.source_len != CONFIG_AUTO) {
        config_error(c, e, "train.source_len",
                     "the model has no encoder, which would read sources");
        return err_hint(e, "leave train.source_len out");
    }
    if (m->num_encoder_layers == 0) return ST_OK;
    if (u->objective->loss) {
        config_error(c, e, "train.objective", "train.objective=%s does not go with an encoder",
                     u->objective->name);
        return err_hint(e, "train.objective=lm learns from pairs");
    }
    int64_t S = stage_source_len(c, true), most = model_max_tokens(m);
    if (S <= most) return ST_OK;
    config_error(c, e, "train.source_len",
                 "sources have %ld tokens, the model's positions end at %ld", (long)S, (long)most);
    return err_hint(e, "train.source_len=%ld", (long)most);
}

status setup_open_tokenizer(setup *u, stage_data *data, err *e) {
    u->objective = objective_of(u->c);
    TRY(lora_open(&u->lora, u->a, u->c, e));
    if (u->c->tokenizer) TRY(tok_load(&u->tok, u->c->tokenizer, e));
    model_config first;
    TRY(read_model(u, u->c, &first, e));
    if (first.from_unties && setup_leads(u))
        log_warn("%s stores a head that differs from the embedding: both are trained, although "
                 "config.json says that they are tied",
                 first.from);
    u->added_tokens = vocabulary_added(u->c, u->tok, &first);
    TRY(lora_learn_tokens(&u->lora, u->c, &first, u->added_tokens, e));
    bool known; /* what the adapter has learned of tokens is of those of its own tokenizer */
    if (u->lora.from.a && u->tok)
        TRY(vocabulary_extends(u->c, u->tok, u->lora.from.dir, &known, e));
    const char *from = json_string_value(json_object_get(u->c->model, "from"));
    if (u->lora.gguf.a && u->tok) TRY(vocabulary_extends(u->c, u->tok, from, &known, e));
    TRY(check_head(u, &first, e));
    data->tok = u->tok;
    data->vocab_size = (int32_t)first.vocab_size;
    data->labels = labels_of(&first);
    data->has_encoder = first.num_encoder_layers > 0;
    data->texts_alone = model_slots(&first) > 0;
    if (data->has_encoder) data->decoder_start = model_decoder_start(&first);
    TRY(check_encoder(u, &first, e));
    TRY(choice_make(&u->choice, u->c, &u->peers, &first, u->dev, e));
    resolve_precision(u);
    return ST_OK;
}

/* Sequences of whole samples: more than n, and as few as possible. */
static int samples_up(int n, int sequences) {
    return (n / sequences + 1) * sequences;
}

int setup_sequences_of_sample(const config *c) {
    return objective_of(c)->sequences;
}

/* NCCL would sum in 16 bits what ranks send in 16 bits. */
static status check_sums(const setup *u, err *e) {
    bool narrow = u->c->parallel.reduce_dtype == CONFIG_REDUCE_BF16;
    if (!narrow || !u->peers.m.world || !comm_by_nccl(u->peers.m.world)) return ST_OK;
    config_error(u->c, e, "parallel.reduce_dtype",
                 "NCCL, by which these ranks send, has no sums in fp32 of numbers in bf16");
    return err_hint(e, "parallel.reduce_dtype=fp32, or ATHANOR_NCCL=off");
}

/* Of an objective with its own loss. */
static status check_loss(const setup *u, const config *c, const model_config *mc, err *e) {
    if (!u->objective->loss) return ST_OK;
    if (c->optim.z_loss > 0) {
        config_error(c, e, "optim.z_loss", "train.objective=%s has no z_loss", u->objective->name);
        return err_hint(e, "leave optim.z_loss out");
    }
    if (mc->num_nextn_predict_layers == 0) return ST_OK;
    config_error(c, e, "train.objective",
                 "train.objective=%s does not train the modules of model.num_nextn_predict_layers",
                 u->objective->name);
    return err_hint(e, "model.num_nextn_predict_layers=0 leaves them out");
}

static status check_chunks(const config *c, const model_config *mc, err *e) {
    int64_t layers = mc->num_hidden_layers;
    if (c->parallel.virtual > layers) {
        config_error(c, e, "parallel.virtual", "%ld layers do not make %ld chunks", (long)layers,
                     (long)c->parallel.virtual);
        return err_hint(e, "parallel.virtual=%ld or less", (long)layers);
    }
    if (c->parallel.virtual == 1 || mc->num_experts == 0 || mc->router_aux_loss_coef == 0 ||
        c->train.router.balance != BALANCE_MICRO)
        return ST_OK;
    config_error(c, e, "parallel.virtual",
                 "train.router.balance=micro keeps the load of all layers together even, and "
                 "chunks do not see each other's");
    return err_hint(e, "use parallel.virtual=1, or train.router.balance=global or sequence");
}

static status check_samples(const setup *u, const course_stage *k, err *e) {
    if (u->objective->reference && k->c->train.beta <= 0) {
        config_error(k->c, e, "train.beta", "with train.beta 0 the loss of %s has no gradient",
                     u->objective->name);
        return err_hint(e, "the default is train.beta=0.1");
    }
    if (k->B % u->objective->sequences == 0) return ST_OK;
    config_error(k->c, e, "train.micro_batch_size",
                 "a micro-batch of %d sequences is not of whole samples, which have %d", k->B,
                 u->objective->sequences);
    bool whole = k->c->train.global_batch_size % u->objective->sequences == 0;
    return err_hint(e, "train.%s_batch_size=%d", whole ? "micro" : "global",
                    samples_up(k->B, u->objective->sequences));
}

/* Refuses what does not work together in a stage: an objective with its own loss, and z_loss or modules; a layout, and what
 * it has no place for; more chunks than layers; micro-batches that are not whole samples. */
static status check_parts(const setup *u, const course_stage *k, const model_config *mc, err *e) {
    const config *c = k->c;
    TRY(check_loss(u, c, mc, e));
    TRY(axes_check_model(c, mc, e));
    TRY(check_chunks(c, mc, e));
    return check_samples(u, k, e);
}

/* Every batch is a whole number of micro-batches on every rank. */
static status share_batches(setup *u, err *e) {
    int64_t dp = u->peers.m.size[MESH_DP];
    for (int i = 0; i < u->course->n_stages; i++) {
        course_stage *k = &u->course->stage[i];
        k->B = (int)config_micro_batch(k->c, dp);
        TRY(shares_check_sequences(k->c, k->B, k->T, e));
    }
    for (int i = 0; i < u->course->n_parts; i++) {
        const course_part *p = &u->course->part[i];
        const course_stage *k = &u->course->stage[p->stage];
        TRY(shares_check_batch(k->c, p->batch, dp, k->B, e));
    }
    return ST_OK;
}

static status in_stage(const setup *u, int i, status st, err *e) {
    if (st != ST_OK && u->c->stages.n) err_context(e, "stage %s", u->course->stage[i].name);
    return st;
}

status setup_open_course(setup *u, uint64_t epoch_sequences, const course_origin *origin, err *e) {
    TRY(course_new(&u->course, u->c, epoch_sequences, origin, e));
    u->models = ARENA_ARRAY(u->a, model_config, u->course->n_stages);
    for (int i = 0; i < u->course->n_stages; i++)
        TRY(in_stage(u, i, read_model(u, u->course->stage[i].c, &u->models[i], e), e));
    TRY(share_batches(u, e));
    TRY(check_sums(u, e));
    TRY(check_parts(u, &u->course->stage[0], &u->models[0], e)); /* most keys are of the run */
    for (int i = 1; i < u->course->n_stages; i++)
        TRY(in_stage(u, i, check_parts(u, &u->course->stage[i], &u->models[i], e), e));
    return ST_OK;
}

/* ---- memory ---- */

enum { PREFILL_T = 16 };

/* Longest sample or answer: prompt and continuation, rounded up to whole prefill passes. */
static int cache_tok(const setup *u) {
    int64_t most = 0;
    for (int i = 0; u->prompts && i < u->c->sample.prompts.n; i++)
        if (u->prompts[i].n > most) most = u->prompts[i].n;
    if (most > 0) most += u->c->sample.max_new;
    if (u->tasks.cache_tok > most) most = u->tasks.cache_tok;
    int64_t rounded = (most + PREFILL_T - 1) / PREFILL_T * PREFILL_T;
    int64_t most_tok = model_max_tokens(&u->models[0]);
    return (int)(rounded < most_tok ? rounded : most_tok);
}

int64_t setup_host_bytes(const course_stage *k, int64_t dp, int cp, const model_config *mc) {
    int64_t share = k->max_batch / dp;
    int S = stage_source_len(k->c, mc->num_encoder_layers > 0);
    return (int64_t)prefetch_bytes(k->B, k->T, S, share, k->c->data.document_mask) +
           batch_rows_bytes(k->B, k->T, S, mc->num_labels) + context_bytes(k->B, k->T, cp) +
           lessons_host_bytes(k->c, mc->vocab_size, k->B, k->T) +
           k->max_batch * k->T * (int64_t)sizeof(float) + k->T +
           share * k->T * (1 + mc->num_nextn_predict_layers) * (int64_t)sizeof(float) +
           routing_bytes(mc, share / k->B);
}

/* Whether a save can come before the last step. The save after the last step is always waited for,
 * and needs no snapshot. */
bool setup_saves_on_the_way(const setup *u) {
    const config *c = u->c;
    bool by_steps = c->checkpoint.every > 0 && c->checkpoint.every < u->course->total_steps;
    return c->checkpoint.async && !c->parallel.offload &&
           (by_steps || c->checkpoint.every_minutes > 0);
}

model_routing setup_routing(const config *c) {
    return (model_routing){.balance = (router_balance)c->train.router.balance,
                           .z_loss = (float)c->train.router.z_loss,
                           .tallies = true,
                           .capacity_factor = c->train.router.capacity_factor};
}

_Static_assert((int)CONFIG_OFFLOAD_OPTIMIZER == OFFLOAD_OPTIMIZER &&
                   (int)CONFIG_OFFLOAD_WEIGHTS == OFFLOAD_WEIGHTS &&
                   (int)CONFIG_OFFLOAD_ALL == (OFFLOAD_OPTIMIZER | OFFLOAD_WEIGHTS),
               "the words of parallel.offload are sets");

/* Whether the plan has a second model: a reference or a teacher. */
static bool has_other(const setup *u) {
    bool live = u->c->distill.teacher && !u->c->distill.store;
    return live || (u->objective->reference && !u->knows_reference);
}

static plan_spec spec_of(const setup *u, int stage) {
    const course_stage *k = &u->course->stage[stage];
    const config *c = k->c;
    int64_t dp = u->peers.m.size[MESH_DP];
    return (plan_spec){.model = u->models[stage],
                       .compute = setup_compute(u->c),
                       .T = k->T,
                       .source_T = stage_source_len(c, u->models[stage].num_encoder_layers > 0),
                       .train_B = k->B,
                       .micro_batches = k->max_batch / dp / k->B,
                       .chunks = (int)(c->parallel.virtual * c->parallel.pp),
                       .pp_schedule = c->parallel.pp_schedule,
                       /* on one pipeline rank 1f1b is one forward, one backward */
                       .frames = c->parallel.pp_schedule == CONFIG_PP_AFAB ? PLAN_ALL_FRAMES : 1,
                       .sequences = u->objective->sequences,
                       .learned = u->objective->learned,
                       .deferred_loss = u->objective->loss != NULL,
                       .others = &u->reference,
                       .n_others = has_other(u),
                       .lesson = distill_lesson(c, u->models[stage].vocab_size),
                       .valid_B = c->data.valid || u->objective->kl ? k->B : 0,
                       .cache_tok = cache_tok(u),
                       .source_tok = cache_tok(u),
                       .prefill_T = PREFILL_T,
                       .score = u->tasks.score,
                       .optim = u->optim,
                       .state_dt = setup_state_dtype(u->c),
                       .recompute = (recompute_policy)c->train.recompute,
                       .keep_collectives = c->train.keep_collectives,
                       .document_mask = c->data.document_mask,
                       .chunk_rows = c->train.head_chunk_rows,
                       .z_loss = (float)c->optim.z_loss,
                       .routing = setup_routing(c),
                       .host_bytes =
                           setup_host_bytes(k, dp, u->peers.m.size[MESH_CP], &u->models[stage]) +
                           u->tasks.host_bytes,
                       .fixed_grads = u->c->train.deterministic,
                       .offload = (unsigned)u->c->parallel.offload,
                       .snapshot = setup_saves_on_the_way(u) && u->peers.first_copy,
                       .ranks = peers_ranks(&u->peers) > 1 ? &u->peers.m : NULL,
                       .sequence_parallel = u->c->parallel.sp,
                       .async_products = u->c->parallel.tp_async,
                       .context = (context_kind)u->c->parallel.cp_kind,
                       .expert_load = u->c->parallel.ep_load,
                       .narrow_sums = u->c->parallel.reduce_dtype == CONFIG_REDUCE_BF16,
                       .cut = u->cut,
                       .sharing = peers_sharding(&u->peers, u->c)};
}

/* A reference that lacks the run's new tokens grows as the model does. */
static status grow_reference(const setup *u, model_config *ref, err *e) {
    bool known;
    int64_t vocab = u->models[0].vocab_size;
    if (!u->tok) return ST_OK;
    TRY(vocabulary_extends(u->c, u->tok, ref->from, &known, e));
    if (known && ref->vocab_size < vocab) ref->vocab_size = vocab;
    return ST_OK;
}

/* The reference computes the same sequences as the model: its vocabulary and length must
 * suffice. */
static status check_reference(const setup *u, model_config *ref, err *e) {
    int64_t vocab = u->models[0].vocab_size, longest = 0;
    if (ref->num_labels || ref->num_encoder_layers) {
        config_error(u->c, e, "train.reference", "the reference has %s, and is no language model",
                     ref->num_labels ? "a head of labels" : "an encoder");
        return err_hint(e, "train.reference=FOLDER of a model such as the one that is trained");
    }
    TRY(grow_reference(u, ref, e));
    for (int i = 0; i < u->course->n_stages; i++)
        if (u->course->stage[i].T > longest) longest = u->course->stage[i].T;
    if (ref->vocab_size != vocab) {
        config_error(u->c, e, "train.reference", "the reference has %ld tokens, the model %ld",
                     (long)ref->vocab_size, (long)vocab);
        return err_hint(e, "compare with a model of the same tokenizer");
    }
    if (longest <= model_max_tokens(ref)) return ST_OK;
    config_error(u->c, e, "train.reference",
                 "the reference's positions end at %ld, sequences have %ld tokens",
                 (long)model_max_tokens(ref), (long)longest);
    return err_hint(e, "train.seq_len=%ld", (long)model_max_tokens(ref));
}

/* A reference is a folder with all weights. */
static status check_reference_folder(const config *c, const char *dir, err *e) {
    if (run_is_run(dir)) {
        config_error(c, e, "train.reference", "%s is a run, which may go on; a reference stays",
                     dir);
        return err_hint(e, "name one of its checkpoints: train.reference=%s/checkpoints/step-N",
                        dir);
    }
    if (peft_is_folder(dir)) {
        config_error(c, e, "train.reference", "%s is an adapter, not a whole model", dir);
        return err_hint(e, "merge it: athanor export %s -o FOLDER --to hf", dir);
    }
    if (!gguf_is_file(dir)) return ST_OK;
    config_error(c, e, "train.reference", "%s is a GGUF file, and a reference is a folder", dir);
    return err_hint(e, "make one of it: athanor import %s -o FOLDER", dir);
}

/* Reads the config of the reference, since memory is planned for it; its weights are loaded with
 * the state. */
static status open_reference(setup *u, err *e) {
    const char *dir = u->c->train.reference;
    u->reference = (plan_other){.name = "reference", .config = u->models[0]};
    if (!u->objective->reference || !dir) return ST_OK;
    TRY(check_reference_folder(u->c, dir, e));
    json_t *o = json_object();
    json_object_set_new(o, "from", json_string_nocheck(dir));
    status st = hf_config_read(u->a, o, 0, &u->reference.config, e);
    json_decref(o);
    if (st != ST_OK) return err_context(e, "train.reference");
    u->reference.config.num_nextn_predict_layers = 0; /* it only says log-probabilities */
    return check_reference(u, &u->reference.config, e);
}

status setup_make_plan(setup *u, err *e) {
    TRY(u->c->distill.teacher ? distill_open(u, e) : open_reference(u, e));
    u->optim = optim_at(u->c->optim.name);
    int n = u->course->n_stages;
    plan_spec *specs = ARENA_ARRAY(u->a, plan_spec, n);
    for (int i = 0; i < n; i++) specs[i] = spec_of(u, i);
    TRY(lora_plan(&u->lora, u->dev, &u->models[0], specs, n, e));
    TRY(locate_error(u->c, plan_new_phases(&u->plan, u->dev, specs, n, e), e));
    return plan_check_fits(u->plan, u->c->train.memory_limit, e);
}

/* One for each rank. */
static status open_offload(setup *u, err *e) {
    const config *c = u->c;
    const char *dir = c->parallel.offload_to ? c->parallel.offload_to : c->run ? c->run : ".";
    if (!plan_has_file(u->plan)) return ST_OK;
    TRY(file_make_dirs(dir, e));
    char *path = arena_printf(u->a, "%s/.offload-%d-%ld-%016llx", dir, peers_rank(&u->peers),
                              (long)getpid(), (unsigned long long)u->attempt);
    return plan_open_offload(u->plan, &u->offload, path, e);
}

status setup_commit(setup *u, err *e) {
    if (u->c->train.deterministic) gemm_use_own(u->dev);
    TRY(plan_commit(u->plan, e));
    TRY(open_offload(u, e));
    u->peak_flops = peak_flops(u->dev, u->plan->spec.compute);
    peers_bind(&u->peers, u->a, u->plan->store, u->offload);
    return ST_OK;
}

static void tell_growth(const setup *u, const model_config *m) {
    if (setup_leads(u))
        log_info("%s has %ld tokens, the model %ld: the new rows of %s are the mean of the old",
                 m->from, (long)m->from_vocab, (long)m->vocab_size,
                 m->tie_word_embeddings ? "the embedding" : "embedding and head");
}

status setup_make_weights(const setup *u, param_store *store, const model_config *m, err *e) {
    bool grows = m && m->from && m->vocab_size != m->from_vocab;
    if (grows) tell_growth(u, m);
    if (u->lora.adapters.rank && store == u->plan->store)
        return lora_make_weights(&u->lora, store, (uint64_t)u->c->train.seed, e);
    if (m && m->from && m->num_labels && m->num_labels != m->from_labels) {
        param_init_all(store, (uint64_t)u->c->train.seed); /* the head is a new one */
        return hf_load_body(store, m->from, grows ? m->from_vocab : 0, e);
    }
    if (grows) return hf_load_grown(store, m->from, m->from_vocab, e);
    if (m && m->from) return hf_load_weights(store, m->from, e);
    param_init_all(store, (uint64_t)u->c->train.seed);
    return ST_OK;
}

status setup_make_reference(const setup *u, param_store *store, const model_config *initial,
                            err *e) {
    const model_config *own = u->c->train.reference ? &u->reference.config : initial;
    return setup_make_weights(u, store, own, e);
}

status setup_load_reference(const setup *u, const model_config *initial, err *e) {
    if (!has_other(u)) return ST_OK;
    if (u->c->distill.teacher) return distill_load(u, u->plan->model[1].store, e);
    return setup_make_reference(u, u->plan->model[1].store, initial, e);
}

status setup_digest(setup *u, uint64_t *digest, err *e) {
    *digest = param_digest(u->plan->store);
    TRY(offload_check(u->offload, e));
    return peers_digest(&u->peers, digest, e);
}

status setup_clear_optimizer(const setup *u, err *e) {
    if (u->plan->spec.offload & OFFLOAD_OPTIMIZER) return offload_clear(u->offload, e);
    size_t bytes = (size_t)plan_state_array_bytes(u->plan);
    for (int i = 0; i < u->optim->n_states; i++)
        dev_fill(u->dev, u->plan->optim_state[i], 0, bytes);
    return ST_OK;
}

void setup_close(setup *u) {
    peers_settle(&u->peers);
    evaluation_close(u);
    lessons_close(u);
    offload_close(u->offload);
    for (int i = 0; u->prompts && i < u->c->sample.prompts.n; i++) tok_ids_free(&u->prompts[i]);
    plan_free(u->plan);
    lora_close(&u->lora);
    course_free(u->course);
    tok_free(u->tok);
    comm_leave_device(u->peers.m.world, u->dev);
    peers_close(&u->peers);
    choice_free(&u->choice);
    dev_close(u->dev);
    arena_free(u->a);
}
