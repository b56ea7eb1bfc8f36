#include "optim/optim.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#define CLASS(name, word) extern const optim_class name;
OPTIM_CLASSES(CLASS)
#undef CLASS

#define CLASS(name, word) &name,
static const optim_class *const classes[] = {OPTIM_CLASSES(CLASS)};
#undef CLASS

const optim_class *optim_at(int i) {
    CHECK(i >= 0 && i < ARRAY_LEN(classes), "optimizer %d", i);
    return classes[i];
}

const optim_class *optim_find(const char *name) {
    for (int i = 0; i < ARRAY_LEN(classes); i++)
        if (strcmp(classes[i]->name, name) == 0) return classes[i];
    return NULL;
}

const param_store *optim_states(const optim_class *c, arena *a, dev *d, const param_store *s) {
    if (!c->declare_states) return s;
    param_store *states = param_store_new(a, DT_F32);
    c->declare_states(a, s, states);
    if (param_store_whole(s) != s) {
        param_store *whole = param_store_new(a, DT_F32);
        c->declare_states(a, param_store_whole(s), whole);
        param_store_set_whole(states, whole);
    }
    param_store_bind(states, d, &(param_arrays){0});
    return states;
}

void optim_update(const optim_class *c, dev *d, const param_store *s, int unit, const bool *decay,
                  void *const *state, const optim_hyper *h, uint64_t *digest) {
    param_piece k = param_piece_of(s, unit);
    optim_part part = {.unit = unit, .spans = k.spans, .master = k.master, .work = k.work};
    int64_t before = c->declare_states ? 0 : k.state * (int64_t)dtype_bytes(h->state_dt);
    for (int i = 0; i < c->n_states; i++) part.state[i] = (char *)state[i] + before;
    c->update(d, s, &part, decay, h, digest);
}

vec_update_args optim_update_args(const param_store *s, const optim_part *part, const bool *decay,
                                  const optim_hyper *h) {
    param_piece k = param_piece_of(s, part->unit);
    bool fixed = param_grads_are_fixed(s);
    vec_update_args a = {.param = part->master,
                         .grad = fixed ? NULL : (float *)k.grad + part->first,
                         .grad_fixed = fixed ? (int64_t *)k.grad + part->first : NULL,
                         .param_copy = part->work,
                         .decay = decay,
                         .lr = (float)h->lr,
                         .beta1 = (float)h->beta1,
                         .beta2 = (float)h->beta2,
                         .eps = (float)h->eps,
                         .weight_decay = (float)h->weight_decay,
                         .correction1 = 1,
                         .correction2 = 1,
                         .grad_scale = h->grad_scale,
                         .grad_scale_at = h->grad_scale_at};
    for (int i = 0; i < OPTIM_MAX_STATES; i++)
        if (h->state_dt == DT_F32)
            a.state[i] = part->state[i];
        else if (i < NARROW_STATES)
            a.narrow[i] = part->state[i];
    a.draws = h->draws;
    return a;
}

bool optim_pattern_matches(const char *pattern, const char *name) {
    return fnmatch(pattern, name, 0) == 0;
}

void optim_decay_mask(const param_store *s, const char *const *no_decay, int n, bool *decay) {
    for (int i = 0; i < param_count(s); i++) {
        decay[i] = !param_at(s, i)->by_rule;
        for (int k = 0; k < n; k++)
            if (optim_pattern_matches(no_decay[k], param_at(s, i)->name)) decay[i] = false;
    }
}

static void add_squares(dev *d, const param_store *s) {
    vec_norm_begin(d);
    for (int u = 0; u < param_units(s); u++) {
        param_piece k = param_piece_of(s, u);
        if (!param_unit_at(s, u)->frozen) vec_norm_add(d, k.spans, k.grad);
    }
}

double optim_grad_squares(dev *d, const param_store *s) {
    add_squares(d, s);
    return vec_norm_squares(d);
}

const float *optim_norm(dev *d, const param_store *s, double clip_norm, double grads_scale) {
    add_squares(d, s);
    return vec_norm_end(d, clip_norm, grads_scale);
}

void optim_grad_limbs(dev *d, const param_store *s, int64_t limb[VEC_LIMBS]) {
    vec_norm_begin(d);
    for (int u = 0; u < param_units(s); u++) {
        param_piece k = param_piece_of(s, u);
        if (!param_unit_at(s, u)->frozen) vec_norm_add_fixed(d, k.spans, k.grad);
    }
    vec_norm_limbs(d, limb);
}

double optim_grad_squares_of(dev *d, const param_store *s, int index) {
    if (param_at(s, index)->frozen) return 0;
    arena *a = arena_new("spans");
    vec_spans spans = param_spans_of(a, s, index);
    double sum = vec_sum_squares(d, &spans, param_piece_of(s, param_at(s, index)->unit).grad);
    arena_free(a);
    return sum;
}

void optim_grad_limbs_of(dev *d, const param_store *s, int index, int64_t limb[VEC_LIMBS]) {
    memset(limb, 0, VEC_LIMBS * sizeof *limb);
    if (param_at(s, index)->frozen) return;
    arena *a = arena_new("spans");
    vec_spans spans = param_spans_of(a, s, index);
    vec_sum_squares_fixed(d, &spans, param_piece_of(s, param_at(s, index)->unit).grad, limb);
    arena_free(a);
}
