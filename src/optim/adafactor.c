/* Adafactor (Shazeer & Stern 2018), as T5 was trained with it. The arithmetic is in op/factored.h. Its
 * relative step size, min(1e-2, 1 / sqrt(t)), is a schedule: inverse_sqrt with lr 0.01 and timescale
 * 10000. */
#include <math.h>

#include "optim/optim.h"
#include "op/factored.h"

static void add_vector(param_store *states, const param *of, const char *name, int64_t n) {
    param v = {.name = name, .part = -1, .layer = -1, .rows = 1, .cols = n, .rank = 1};
    v.copy = of->copy;
    param_add(states, &v);
}

static int states_of(const param *p) {
    return p->frozen ? 0 : p->rank;
}

/* Of a matrix two vectors, row.NAME and col.NAME; of a vector one, NAME. */
static void declare_states(arena *a, const param_store *s, param_store *states) {
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        if (states_of(p) == 0) continue;
        if (p->rank == 2) add_vector(states, p, arena_printf(a, "row.%s", p->name), p->rows);
        add_vector(states, p, p->rank == 2 ? arena_printf(a, "col.%s", p->name) : p->name, p->cols);
    }
}

static factored_args common_args(const vec_update_args *v, const optim_hyper *h,
                                 const vec_span *p) {
    bool copied = v->param_copy && p->copy_dt != DT_F32;
    return (factored_args){.param = v->param + p->at,
                           .grad = v->grad ? v->grad + p->at : NULL,
                           .grad_fixed = v->grad_fixed ? v->grad_fixed + p->at : NULL,
                           .param_copy = copied ? v->param_copy + p->at : NULL,
                           .copy_dt = p->copy_dt,
                           .rule = {.lr = h->lr,
                                    .keep = 1.0 - pow((double)h->step, -h->factored.decay_rate),
                                    .eps = h->factored.eps,
                                    .eps_scale = h->factored.eps_scale,
                                    .clip = h->factored.clip,
                                    .scale_parameter = h->factored.scale_parameter},
                           .grad_scale = h->grad_scale,
                           .grad_scale_at = h->grad_scale_at};
}

/* Spans are in the order of their parameters; a parameter may have several, which follow each other. */
static void adafactor_update(dev *d, const param_store *s, const optim_part *part,
                             const bool *decay, const optim_hyper *h, uint64_t *digest) {
    vec_update_args v = optim_update_args(s, part, decay, h);
    const vec_spans *spans = part->spans;
    float *state = part->state[0];
    int i = -1, k = 0, next = 0; /* the states of parameter i are k .. next - 1 */
    for (const vec_span *p = spans->item; p < spans->item + spans->n; p++) {
        if (p->owner == i) continue;
        while (i < p->owner) k = next, next += states_of(param_at(s, ++i));
        factored_args a = common_args(&v, h, p);
        a.rows = param_at(s, i)->rank == 2 ? param_at(s, i)->rows : 1;
        a.cols = param_at(s, i)->cols;
        a.row = next > k + 1 ? state + param_at(h->states, k)->offset : NULL;
        a.col = state + param_at(h->states, next - 1)->offset;
        a.rule.weight_decay = decay[i] ? h->weight_decay : 0;
        factored_update(d, &a);
    }
    if (digest) *digest = vec_digest(d, spans, v.param);
}

const optim_class optim_adafactor = {.name = "adafactor",
                                     .n_states = 1,
                                     .state_names = {"v"},
                                     .declare_states = declare_states,
                                     .update = adafactor_update};
