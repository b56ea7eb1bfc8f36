/* Optimizers. Each declares its state (arrays laid out as the parameters are or as it says); memory
 * plan, checkpoint and sharding follow from the declaration. A new one is a file and a row here. */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H

#include "dev/dev.h"
#include "op/vecops.h"
#include "param/units.h"

enum { OPTIM_MAX_STATES = VEC_MAX_STATES };

typedef struct optim_hyper {
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step;               /* from 1 */
    float grad_scale;           /* gradients are multiplied by this (clipping) */
    const float *grad_scale_at; /* replaces it, unless NULL: what optim_norm says */
    struct {                    /* of Adafactor: op/factored.h */
        double eps, eps_scale, clip, decay_rate;
        bool scale_parameter;
    } factored;
    const param_store *states; /* how states lie, of a class that declares them */
    dtype state_dt;            /* DT_F32, or DT_BF16: rounded by these draws (op/narrow.h) */
    uint64_t draws;
} optim_hyper;

/* What one update is of: the piece that this rank owns of a unit, or some successive elements of it. */
typedef struct optim_part {
    int unit;
    int64_t first;          /* its first element, counted from the beginning of the piece */
    const vec_spans *spans; /* counted from that element */
    float *master;          /* of that element */
    uint16_t *work;         /* its copy; NULL: none */
    /* Of each state, the part's own elements; of a class that declares how states lie, all of it. */
    void *state[OPTIM_MAX_STATES];
} optim_part;

typedef struct optim_class {
    const char *name;
    int n_states;
    const char *state_names[OPTIM_MAX_STATES]; /* in checkpoints: STATE.PARAMETER */
    bool narrow;                               /* its states may be bf16 */
    /* States that are not one number for each element of a parameter: adds those of the parameters
     * of s to an empty store, as vectors. A rank then must have every parameter whole. NULL: each
     * state is laid out as the parameters are. */
    void (*declare_states)(arena *a, const param_store *s, param_store *states);
    /* One update of a part; decay[i]: parameter i is decayed. Masters, compute copies and state are
     * written; gradients are read. digest, unless NULL, gets what param_digest would say of the part
     * afterwards, without another pass over the weights. */
    void (*update)(dev *d, const param_store *s, const optim_part *part, const bool *decay,
                   const optim_hyper *h, uint64_t *digest);
} optim_class;

/* All of them: the object and its name, which is `optim.name` in a config. */
#define OPTIM_CLASSES(W)                                                                           \
    W(optim_adamw, "adamw")                                                                        \
    W(optim_adafactor, "adafactor")
const optim_class *optim_find(const char *name); /* NULL: there is none */
const optim_class *optim_at(int i);              /* by its place in the list */
/* The layout of each state: s itself, or a new store in `a` of what the class declares. Arrays of states
 * are on device d. */
const param_store *optim_states(const optim_class *c, arena *a, dev *d, const param_store *s);

/* Updates all that this rank owns of a unit; state[i]: the arrays of states. */
void optim_update(const optim_class *c, dev *d, const param_store *s, int unit, const bool *decay,
                  void *const *state, const optim_hyper *h, uint64_t *digest);

/* For `update`: what vec_update wants of a part, but for `kind`, and the corrections, which are 1.
 */
vec_update_args optim_update_args(const param_store *s, const optim_part *part, const bool *decay,
                                  const optim_hyper *h);

/* Whether the glob pattern (fnmatch) is of that parameter. */
bool optim_pattern_matches(const char *pattern, const char *name);
/* decay[i] for each parameter: not matched by any of the patterns. */
void optim_decay_mask(const param_store *s, const char *const *no_decay, int n, bool *decay);

/* Sum of squares of the gradients that this rank counts, in double, summed in a fixed order. Its
 * root, summed over ranks, is the global norm. */
double optim_grad_squares(dev *d, const param_store *s);
/* The same, left on the device for vec_norm_squares. Returns where the device has the factor that
 * clips gradients which are grads_scale times too large; nothing waits. NULL: the device has failed. */
const float *optim_norm(dev *d, const param_store *s, double clip_norm, double grads_scale);
/* The same where gradients are in fixed point: exact, in limbs that are summed over ranks one by
 * one (op/vecops.h); vec_limbs_value of the sums is the sum of squares. */
void optim_grad_limbs(dev *d, const param_store *s, int64_t limb[VEC_LIMBS]);
/* The same of one parameter; 0 of a frozen one. */
double optim_grad_squares_of(dev *d, const param_store *s, int index);
void optim_grad_limbs_of(dev *d, const param_store *s, int index, int64_t limb[VEC_LIMBS]);
#endif
