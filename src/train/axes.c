#include "train/axes.h"

#include "train/lora.h"
#include "train/objective/objective.h"

/* What does not run on the ranks of an axis. */
typedef struct refusal {
    bool refused;
    const char *key, *what, *hint;
} refusal;

/* Names the first that is refused. without: the setting under which it runs. */
static status refuse(const config *c, const refusal *all, int n, const char *axis,
                     const char *without, err *e) {
    for (int i = 0; i < n; i++) {
        if (!all[i].refused) continue;
        config_error(c, e, all[i].key, "%s not there with %s", all[i].what, axis);
        return err_hint(e, "%s, or %s", all[i].hint, without);
    }
    return ST_OK;
}

/* A pipeline has no rank with the whole model, which some things run or read. */
status axes_check_stages(const config *c, const model_config *mc, err *e) {
    const objective *o = objective_of(c);
    bool routes = mc->num_experts > 0 && mc->router_aux_loss_coef > 0;
    int balance = c->train.router.balance;
    const char *balance_hint =
        c->parallel.cp > 1 ? "train.router.balance=none" : "train.router.balance=sequence";
    const refusal all[] = {
        {o->head, "train.objective", "heads of labels are", "another train.objective"},
        {o->reference && !c->train.reference_cache, "train.reference_cache",
         "a reference in memory is", "train.reference_cache=true"},
        {c->distill.teacher != NULL, "distill.teacher", "teachers are", "leave distill out"},
        {c->sample.prompts.n > 0, "sample.prompts", "samples are", "leave them out"},
        {c->eval.tasks.n > 0, "eval.tasks", "tasks on the way are",
         "leave them out, and use athanor eval"},
        {mc->num_encoder_layers > 0, "model.num_encoder_layers", "encoders are",
         "a model without one"},
        {mc->positions == POSITIONS_RELATIVE, "model.position_type",
         "positions that all layers share are", "position_type: rotary"},
        {routes && balance == BALANCE_GLOBAL, "train.router.balance",
         "the load of a whole step, which is counted before the first backward, is", balance_hint},
        {routes && balance == BALANCE_MICRO, "train.router.balance",
         "the load of all layers together is", balance_hint},
    };
    return refuse(c, all, ARRAY_LEN(all), "parallel.pp", "parallel.pp=1", e);
}

/* Attention alone knows that a rank has some tokens of a sequence: nothing else may look at its neighbours, or at
 * all of them together. */
status axes_check_context(const config *c, const model_config *mc, err *e) {
    const objective *o = objective_of(c);
    bool routes = mc->num_experts > 0 && mc->router_aux_loss_coef > 0;
    bool heads = c->parallel.cp_kind == CONTEXT_ULYSSES;
    int balance = c->train.router.balance;
    int64_t shared = c->parallel.cp * c->parallel.tp;
    model_mask masks[MODEL_MOST_MASKS];
    bool divides = mc->num_attention_heads % shared == 0 && mc->num_key_value_heads % shared == 0;
    const refusal all[] = {
        {o->loss || o->head, "train.objective",
         "losses of whole samples (all objectives but lm and sft) are",
         "train.objective=lm or sft"},
        {c->distill.teacher != NULL, "distill.teacher", "teachers are", "leave distill out"},
        {mc->num_encoder_layers > 0, "model.num_encoder_layers", "encoders are",
         "a model without one"},
        {mc->positions == POSITIONS_RELATIVE, "model.position_type", "biases by distance are",
         "position_type: rotary"},
        {model_has_states(mc), "model.linear_layers",
         "linear layers, whose state goes from token to token, are", "a model of attention"},
        {mc->num_nextn_predict_layers > 0, "model.num_nextn_predict_layers",
         "modules of further tokens are", "model.num_nextn_predict_layers=0"},
        {mc->resid_pdrop > 0, "model.resid_pdrop",
         "dropout, which is drawn by the place of a row, is", "model.resid_pdrop=0"},
        {mc->embd_pdrop > 0, "model.embd_pdrop",
         "dropout, which is drawn by the place of a row, is", "model.embd_pdrop=0"},
        {config_adapts(c) && c->lora.dropout > 0, "lora.dropout",
         "dropout, which is drawn by the place of a row, is", "lora.dropout=0"},
        {mc->attn_pdrop > 0 && !heads, "model.attn_pdrop",
         "dropout of attention, unless parallel.cp_kind is ulysses, is", "model.attn_pdrop=0"},
        {routes && balance != BALANCE_GLOBAL && balance != BALANCE_NONE, "train.router.balance",
         "the load of a micro-batch or a sequence is",
         c->parallel.pp > 1 ? "train.router.balance=none" : "train.router.balance=global or none"},
        {c->train.router.capacity_factor > 0, "train.router.capacity_factor",
         "a limit on what experts take of a sequence is", "train.router.capacity_factor=0"},
        {heads && !divides, "parallel.cp_kind",
         "ulysses, with heads or key/value heads that cp and tp together do not divide, is",
         "parallel.cp_kind=ring or allgather"},
        {!heads && model_masks(mc, masks) > MODEL_MOST_MASKS, "model.sliding_window",
         "more than four kinds of windows are", "fewer kinds, parallel.cp_kind=ulysses"},
        {heads && mc->attention_sinks, "parallel.cp_kind", "ulysses with sinks is",
         "parallel.cp_kind=ring or allgather"},
    };
    return refuse(c, all, ARRAY_LEN(all), "parallel.cp", "parallel.cp=1", e);
}

/* What runs or reads all experts on one rank, or passes that not all ranks make at the same time. */
status axes_check_experts(const config *c, const model_config *mc, err *e) {
    const objective *o = objective_of(c);
    int64_t E = mc->num_experts;
    const refusal all[] = {
        {E == 0, "parallel.ep", "models without experts are", "model.num_experts"},
        {mc->router == ROUTER_SOFT, "model.router", "soft experts are", "another model.router"},
        {o->head, "train.objective", "heads of labels are", "another train.objective"},
        {o->reference, "train.objective", "objectives with a reference are",
         "train.objective=lm or sft"},
        {c->distill.teacher != NULL, "distill.teacher", "teachers are", "leave distill out"},
        {config_adapts(c) != NULL, config_adapts(c), "adapters are", "leave lora out"},
        {c->parallel.zero > 1 && mc->block_repeat > 1, "parallel.zero",
         "zero 2 and 3 of blocks that run twice are", "parallel.zero=1"},
        {c->sample.prompts.n > 0, "sample.prompts", "samples are", "leave them out"},
        {c->eval.tasks.n > 0, "eval.tasks", "tasks on the way are",
         "leave them out, and use athanor eval"},
    };
    TRY(refuse(c, all, ARRAY_LEN(all), "parallel.ep", "parallel.ep=1", e));
    if (E % c->parallel.ep == 0) return ST_OK;
    config_error(c, e, "parallel.ep", "%ld ranks cannot share out %ld experts of a layer evenly",
                 (long)c->parallel.ep, (long)E);
    int64_t less = c->parallel.ep;
    while (E % less) less--;
    return err_hint(e, "parallel.ep=%ld", (long)less);
}

/* Products beside the transfer of their rows (parallel.tp_async). */
static status check_async(const config *c, err *e) {
    bool splits = c->parallel.pp > 1 && (c->parallel.pp_schedule == CONFIG_PP_ZB_H1 ||
                                         c->parallel.pp_schedule == CONFIG_PP_ZB_V);
    const refusal all[] = {
        {config_adapts(c) != NULL, config_adapts(c),
         "adapters, which add to a product before it is summed, are", "leave lora out"},
        {splits, "parallel.pp_schedule",
         "zb-h1 and zb-v, for which weight gradients are made apart, are",
         "parallel.pp_schedule=1f1b"},
        {c->train.keep_collectives && c->parallel.sp, "train.keep_collectives",
         "with parallel.sp, kept collectives, of which pieces leave no whole one, are",
         "train.keep_collectives=false"},
    };
    return refuse(c, all, ARRAY_LEN(all), "parallel.tp_async", "parallel.tp_async=false", e);
}

status axes_check(const config *c, err *e) {
    TRY(config_check_supported(c, e));
    TRY(lora_check_axes(c, e));
    return c->parallel.tp > 1 && c->parallel.tp_async ? check_async(c, e) : ST_OK;
}

status axes_check_model(const config *c, const model_config *mc, err *e) {
    if (c->parallel.pp > 1) TRY(axes_check_stages(c, mc, e));
    if (c->parallel.cp > 1) TRY(axes_check_context(c, mc, e));
    if (c->parallel.ep > 1) TRY(axes_check_experts(c, mc, e));
    return c->parallel.tp_async ? check_async(c, e) : ST_OK;
}
