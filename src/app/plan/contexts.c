#include "app/plan/contexts.h"

#include "prog/graph.h"
#include "train/axes.h"

static status try_kinds(config *c, const model_config *mc, int cp, int context, unsigned *out,
                        err *e) {
    *out = 0;
    for (int i = CONTEXT_ALLGATHER; i <= CONTEXT_ULYSSES; i++) {
        bool asked = cp > 1 && context == i;
        err why = {0};
        c->parallel.cp = asked ? cp : 2;
        c->parallel.cp_kind = i;
        if (axes_check_context(c, mc, &why) == ST_OK)
            *out |= 1u << i;
        else if (asked)
            return axes_check_context(c, mc, e);
    }
    return cp > 1 && !*out ? axes_check_context(c, mc, e) : ST_OK;
}

status contexts_find(config *c, const model_config *mc, int cp, int context, unsigned *out,
                     err *e) {
    int64_t was = c->parallel.cp, T = c->train.seq_len;
    int kind = c->parallel.cp_kind;
    status st = try_kinds(c, mc, cp, context, out, e);
    c->parallel.cp = was, c->parallel.cp_kind = kind;
    if (st != ST_OK || cp <= 1 || T % (2 * cp) == 0) return st;
    config_error(c, e, "parallel.cp", "%d ranks cannot share %ld tokens: each has two equal pieces",
                 cp, (long)T);
    return err_hint(e, "train.seq_len must be a multiple of %d", 2 * cp);
}

status experts_find(config *c, const model_config *mc, int ep, int zero, bool *out, err *e) {
    err why = {0};
    *out = false;
    if (ep == 1 || (ep == 0 && mc->num_experts < 2)) return ST_OK;
    c->parallel.ep = ep ? ep : 1;
    c->parallel.zero = zero >= 0 ? zero : 3; /* with each of them */
    *out = axes_check_experts(c, mc, &why) == ST_OK;
    return ep && !*out ? axes_check_experts(c, mc, e) : ST_OK;
}

status stages_find(const config *c, const model_config *mc, int pp, bool *out, err *e) {
    err why = {0};
    *out = pp != 1 && axes_check_stages(c, mc, &why) == ST_OK;
    return pp > 1 && !*out ? axes_check_stages(c, mc, e) : ST_OK;
}
