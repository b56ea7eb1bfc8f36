/* Checks across values, for training, and for what this version can run. */
#include <inttypes.h>

#include "base/divisor.h"
#include "optim/optim.h"
#include "optim/lr_schedule.h"
#include "run/config/config_int.h"

static status check_length(const config *c, err *e) {
    int given = (c->train.steps > 0) + (c->train.tokens > 0) + (c->train.epochs > 0);
    if (given <= 1) return ST_OK;
    const char *path = c->train.epochs > 0 ? "train.epochs" : "train.tokens";
    config_error(c, e, path,
                 "train.steps, train.tokens and train.epochs exclude each other: "
                 "exactly one says how long to train");
    return err_hint(e, "remove all but one, or set the others to null");
}

static status check_batch(const config *c, err *e) {
    int64_t global = c->train.global_batch_size, micro = c->train.micro_batch_size;
    if (micro == CONFIG_AUTO || global % micro == 0) return ST_OK;
    config_error(c, e, "train.micro_batch_size",
                 "train.global_batch_size (%" PRId64 ") is not a multiple of "
                 "train.micro_batch_size (%" PRId64 ")",
                 global, micro);
    while (global % micro) micro--;
    return err_hint(e, "the nearest smaller micro_batch_size that divides it is %" PRId64, micro);
}

static status check_milestones(const config *c, err *e) {
    const config_ints *m = &c->optim.schedule.milestones;
    for (int i = 1; i < m->n; i++)
        if (m->items[i] <= m->items[i - 1])
            return config_error(c, e, "optim.schedule.milestones",
                                "optim.schedule.milestones must increase");
    if (c->optim.schedule.kind == SCHEDULE_MULTISTEP && m->n == 0)
        return config_error(c, e, "optim.schedule.kind",
                            "the multistep schedule needs optim.schedule.milestones: [STEP, ...]");
    return ST_OK;
}

static status check_cycle(const config *c, err *e) {
    const char *path = "optim.schedule.cycle_beta1";
    int n = c->optim.schedule.cycle_beta1.n;
    const double *beta1 = c->optim.schedule.cycle_beta1.items;
    if (n == 0 || (n == 2 && beta1[0] <= beta1[1])) return ST_OK;
    return config_error(c, e, path, "%s wants the least and the most, such as [0.85, 0.95]", path);
}

/* Every batch of a ramp is a whole number of micro-batches. */
static status check_ramp(const config *c, err *e) {
    int64_t start = c->train.batch_ramp.start, by = c->train.batch_ramp.increment;
    int64_t micro = c->train.micro_batch_size;
    if (start == 0) return ST_OK;
    if (start > c->train.global_batch_size)
        return config_error(c, e, "train.batch_ramp.start",
                            "train.batch_ramp.start (%" PRId64
                            ") is above train.global_batch_size (%" PRId64 ")",
                            start, c->train.global_batch_size);
    if (micro == CONFIG_AUTO || (start % micro == 0 && by % micro == 0)) return ST_OK;
    config_error(c, e, "train.batch_ramp.start",
                 "train.batch_ramp.start and .increment must be multiples of "
                 "train.micro_batch_size (%" PRId64 ")",
                 micro);
    return err_hint(e, "leave train.micro_batch_size=auto, or make it a common divisor");
}

status config_check_pairs(const config *c, err *e) {
    TRY(check_length(c, e));
    TRY(check_batch(c, e));
    TRY(check_milestones(c, e));
    TRY(check_ramp(c, e));
    TRY(config_check_stages(c, e));
    if (c->optim.betas.n != 2)
        return config_error(c, e, "optim.betas", "optim.betas must have 2 numbers, not %d",
                            c->optim.betas.n);
    if (c->optim.adafactor.eps.n != 2)
        return config_error(c, e, "optim.adafactor.eps",
                            "optim.adafactor.eps must have 2 numbers, not %d",
                            c->optim.adafactor.eps.n);
    TRY(check_cycle(c, e));
    if (c->train.loss_scale.min_scale > c->train.loss_scale.init_scale)
        return config_error(c, e, "train.loss_scale.min_scale",
                            "train.loss_scale.min_scale (%g) is above init_scale (%g)",
                            c->train.loss_scale.min_scale, c->train.loss_scale.init_scale);
    if (c->optim.schedule.min_lr > c->optim.lr) {
        config_error(c, e, "optim.schedule.min_lr",
                     "optim.schedule.min_lr (%g) is above optim.lr (%g)", c->optim.schedule.min_lr,
                     c->optim.lr);
        return err_hint(e, "min_lr is a learning rate, not a fraction of lr");
    }
    return ST_OK;
}

static status missing(const config *c, err *e, const char *path, const char *hint) {
    config_error(c, e, path, "training needs '%s', and the config does not set it", path);
    return err_hint(e, "%s", hint);
}

status config_check_train(const config *c, err *e) {
    if (!c->run) return missing(c, e, "run", "add a line such as `run: runs/first`");
    if (json_object_size(c->model) == 0)
        return missing(c, e, "model", "name a preset: `model: {preset: smollm2-135m}`");
    if (!c->tokenizer)
        return missing(c, e, "tokenizer", "`athanor tok train TEXT -o tok.json` makes one");
    if (c->data.train.n == 0 && c->stages.n == 0)
        return missing(c, e, "data.train", "`athanor data build TEXT -o shards` makes shards");
    const config_stage *last = c->stages.n ? &c->stages.items[c->stages.n - 1] : NULL;
    bool ends = last && (last->until.steps || last->until.tokens);
    if (!ends && !c->train.steps && !c->train.tokens && c->train.epochs <= 0)
        return missing(c, e, "train.steps",
                       "set exactly one of train.steps, train.tokens, train.epochs");
    return ST_OK;
}

/* An optimizer that sums over rows and columns needs them whole, and has few numbers of state. */
static status check_optimizer(const config *c, err *e) {
    const optim_class *o = optim_at(c->optim.name);
    if (c->train.precision.optim == CONFIG_PRECISION_BF16 && !o->narrow) {
        config_error(c, e, "train.precision.optim", "the state of %s is fp32 only", o->name);
        return err_hint(e, "train.precision.optim=fp32, or optim.name=adamw");
    }
    if (o->declare_states && c->parallel.offload) {
        config_error(
            c, e, "parallel.offload",
            "the state of %s is smaller than a thousandth of that of adamw, and updated as a whole",
            o->name);
        return err_hint(e, "parallel.offload=none");
    }
    if (!o->declare_states || (c->parallel.zero == 0 && c->parallel.tp == 1)) return ST_OK;
    const char *path = c->parallel.zero ? "parallel.zero" : "parallel.tp";
    config_error(c, e, path,
                 "optimizer %s sums over whole matrices, and %s %ld divides them among ranks",
                 o->name, path, (long)(c->parallel.zero ? c->parallel.zero : c->parallel.tp));
    return err_hint(e, "set %s=%d, or optim.name=adamw", path, c->parallel.zero ? 0 : 1);
}

const char *config_adapts(const config *c) {
    return c->lora.from ? "lora.from" : c->lora.rank > 0 ? "lora.rank" : NULL;
}

static status check_offload(const config *c, err *e) {
    bool weights = c->parallel.offload >= CONFIG_OFFLOAD_WEIGHTS;
    static const char *const words[] = {CONFIG_SET_OFFLOAD(LIST_WORD)};
    const char *word = words[c->parallel.offload];
    if (weights && c->parallel.zero != 3) {
        config_error(c, e, "parallel.offload",
                     "parallel.offload=%s needs slots to which weights are gathered, which "
                     "parallel.zero=3 has, and it is %ld",
                     word, (long)c->parallel.zero);
        return err_hint(e, "parallel.zero=3, which one rank may have, too; or "
                           "parallel.offload=optimizer");
    }
    if (!weights || !config_adapts(c)) return ST_OK;
    config_error(c, e, "parallel.offload",
                 "parallel.offload=%s is of weights that are trained, and adapters leave those of "
                 "the model as they are: they stay in their own file",
                 word);
    return err_hint(e, "parallel.offload=none");
}

static status check_chunks(const config *c, const char *name, err *e) {
    int kind = c->parallel.pp_schedule;
    int64_t n = c->parallel.virtual;
    if (kind == CONFIG_PP_INTERLEAVED ? n > 1 : n == (kind == CONFIG_PP_ZB_V ? 2 : 1)) return ST_OK;
    if (kind == CONFIG_PP_INTERLEAVED || kind == CONFIG_PP_ZB_V) {
        config_error(c, e, "parallel.virtual",
                     "parallel.pp_schedule=%s has %s chunks of layers on each stage, and "
                     "parallel.virtual is %ld",
                     name, kind == CONFIG_PP_ZB_V ? "two" : "several", (long)n);
        return err_hint(e, "parallel.virtual=2, or parallel.pp_schedule=1f1b");
    }
    config_error(c, e, "parallel.virtual",
                 "stages with several chunks of layers need parallel.pp_schedule=interleaved or, "
                 "with two, zb-v");
    return err_hint(e, "parallel.virtual=1, or parallel.pp_schedule=interleaved");
}

/* Stages of one chunk each, or of several. */
static status check_pipeline(const config *c, err *e) {
    static const char *const names[] = {CONFIG_SET_PP_SCHEDULE(LIST_WORD)};
    int kind = c->parallel.pp_schedule;
    bool staged = kind != CONFIG_PP_AFAB && kind != CONFIG_PP_1F1B;
    if (staged && c->parallel.pp == 1) {
        config_error(c, e, "parallel.pp",
                     "parallel.pp_schedule=%s has several stages, and parallel.pp is 1",
                     names[kind]);
        return err_hint(e, "parallel.pp_schedule=1f1b, or parallel.pp=2 and twice the ranks");
    }
    return c->parallel.pp > 1 ? check_chunks(c, names[kind], e) : ST_OK;
}

/* Masters and gradients are fp32, the state of some optimizers may be bf16; matrices are read in the compute format. */
status config_check_supported(const config *c, err *e) {
    enum { FP16 = CONFIG_PRECISION_FP16, FP8 = CONFIG_PRECISION_FP8, BF16 = CONFIG_PRECISION_BF16 };
    static const char FLOATS[] = "write fp16, bf16 or fp32", FP32[] = "write fp32",
                      STATES[] = "write bf16 or fp32";
    int compute = c->train.precision.compute, params = c->train.precision.params;
    int grads = c->train.precision.grads, optim = c->train.precision.optim;
    const struct {
        bool refused;
        const char *path, *what, *hint;
    } all[] = {
        {compute == FP8, "train.precision.compute", "fp8", FLOATS},
        {params == FP8, "train.precision.params", "fp8", FLOATS},
        {grads == FP8, "train.precision.grads", "fp8", FP32},
        {optim == FP8, "train.precision.optim", "fp8", STATES},
        {grads == FP16, "train.precision.grads", "gradients in fp16", FP32},
        {grads == BF16, "train.precision.grads", "gradients in bf16", FP32},
        {optim == FP16, "train.precision.optim", "optimizer state in fp16", STATES},
        {params != CONFIG_PRECISION_AUTO && params != compute, "train.precision.params",
         "another format than that of compute", "leave it out"},
    };
    for (int i = 0; i < ARRAY_LEN(all); i++) {
        if (!all[i].refused) continue;
        config_error(c, e, all[i].path, "%s is not available in this version", all[i].what);
        return err_hint(e, "%s", all[i].hint);
    }
    TRY(check_optimizer(c, e));
    TRY(check_offload(c, e));
    return check_pipeline(c, e);
}

/* With four micro-batches for each stage a pipeline waits less than a quarter of the time in which it
 * works. Interleaved stages take them in groups. */
static bool suits_stages(const config *c, int64_t micro_batches) {
    int64_t pp = c->parallel.pp;
    bool grouped = c->parallel.pp_schedule == CONFIG_PP_INTERLEAVED;
    return pp == 1 || (micro_batches >= 4 * pp && (!grouped || micro_batches % pp == 0));
}

int64_t config_micro_batch(const config *c, int64_t dp) {
    if (c->train.micro_batch_size != CONFIG_AUTO) return c->train.micro_batch_size;
    int64_t batch = common_divisor(c->train.global_batch_size, c->train.batch_ramp.start);
    batch = common_divisor(batch, c->train.batch_ramp.increment);
    int64_t share = dp > 0 && batch >= dp ? batch / dp : 1;
    bool single = c->train.objective == CONFIG_OBJECTIVE_LM ||
                  c->train.objective == CONFIG_OBJECTIVE_SFT ||
                  c->train.objective == CONFIG_OBJECTIVE_CLASSIFY;
    int64_t least = single || share % 2 ? 1 : 2; /* other samples are pairs */
    int64_t micro = share < 8 ? share : 8;
    while (share % micro || (micro > least && !suits_stages(c, share / micro))) micro--;
    return micro;
}
