/* When a loss or gradient norm is not finite, weights have not been updated yet: the step is run
 * again op by op, and the first tensor with a NaN or Inf is named. */
#include <math.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/held.h"
#include "train/events.h"
#include "train/guard/react.h"

typedef struct finding {
    dev *dev;
    dev_room room; /* for tensors that the host cannot reach */
    bool found;
    bool goes_on;         /* other ranks walk, too: all go to the end, for the collectives */
    int64_t at, found_at; /* the entry of the walk, as if one rank did all entries of the step */
    const bool *overflow; /* set by an op when a number does not fit into fixed-point sums */
    double limit;
    char text[512];
} finding;

/* Element `at` of numbers on the host. */
static bool is_finite_at(const void *data, dtype dt, int64_t at) {
    if (dt == DT_F16) return isfinite(f16_to_f32(((const uint16_t *)data)[at]));
    if (dt == DT_BF16) return isfinite(bf16_to_f32(((const uint16_t *)data)[at]));
    if (dt == DT_F64) return isfinite(((const double *)data)[at]);
    return dt != DT_F32 || isfinite(((const float *)data)[at]);
}

static const void *on_host(finding *f, const tensor *t) {
    int64_t elems = (t->rows - 1) * t->ld + t->cols;
    return dev_look(f->dev, t->data, (size_t)dtype_span_bytes(t->dt, elems), &f->room);
}

static bool visit(void *ctx, const prog_event *ev) {
    finding *f = ctx;
    if (f->found) return f->goes_on;
    dev_sync(f->dev); /* kernels set the flag */
    f->found_at = f->at;
    if (*f->overflow) {
        f->found = true;
        snprintf(f->text, sizeof f->text,
                 "a contribution to the gradient of %s is beyond %g, the most that the "
                 "deterministic mode adds up",
                 ev->name, f->limit);
        return f->goes_on;
    }
    const void *data = on_host(f, &ev->t);
    for (int64_t r = 0; r < ev->t.rows; r++)
        for (int64_t c = 0; c < ev->t.cols; c++) {
            if (is_finite_at(data, ev->t.dt, r * ev->t.ld + c)) continue;
            f->found = true;
            snprintf(f->text, sizeof f->text,
                     "op %s (%s) wrote a NaN or Inf into %s at row %ld, column %ld of [%ld,%ld]",
                     ev->op, *ev->name ? ev->name : "unnamed", ev->what, (long)r, (long)c,
                     (long)ev->t.rows, (long)ev->t.cols);
            return f->goes_on;
        }
    return true;
}

static bool has_checkpoint(session *s) {
    int64_t *steps;
    int n = 0;
    if (s->saving.job) return true;     /* it is written while the run ends */
    if (!s->setup.c->run) return false; /* a trial */
    return checkpoint_list(s->setup.a, s->setup.c->run, &steps, &n, NULL) == ST_OK && n > 0;
}

static status not_finite(session *s, const char *text, err *e) {
    int64_t step = s->at.step + 1;
    if (s->setup.plan->spec.compute == DT_F16)
        text = arena_printf(s->setup.a, "at a loss scale of %g, which becomes no smaller, %s",
                            s->scale.scale, text);
    TRY(events_nonfinite(s, text, e));
    err_at(e, ST_NONFINITE, s->setup.c->run, "step %ld: %s", (long)step, text);
    /* A run keeps to its rate, so it is a fork or a fresh one that gets another. */
    bool saved = has_checkpoint(s);
    return err_hint(e, "give %s a lower optim.lr (now %g) or longer optim.schedule.warmup_steps%s",
                    saved ? "--fork NEW" : "--fresh", s->stage.now->optim.lr,
                    saved ? ": it goes on from the newest checkpoint, which is unharmed" : "");
}

/* The first element of a span of p whose number is not finite, by its place in the whole. */
static bool span_is_bad(const vec_span *k, const float *x, const param *p, finding *f) {
    for (int64_t i = 0; i < k->n; i++) {
        if (isfinite(x[i])) continue;
        snprintf(f->text, sizeof f->text, "parameter %s holds a NaN or Inf at element %ld", p->name,
                 (long)vec_whole_index(k, i));
        return true;
    }
    return false;
}

/* A weight that is NaN or Inf is the first cause. A rank looks at the shards that it holds. */
static bool weights_are_bad(const param_store *ps, finding *f) {
    held_array masters = held_masters(ps);
    dev_room room = {0};
    bool bad = false;
    for (int i = 0; i < param_count(ps) && !bad; i++) {
        held_piece h = held_piece_of(&masters, i);
        const float *x = NULL;
        if (h.n > 0 && held_look(&masters, &h, &room, &x, NULL) != ST_OK) break;
        for (int k = 0; k < h.n_spans && !bad; k++)
            bad = span_is_bad(&h.span[k], x + (h.span[k].at - h.first), param_at(ps, i), f);
    }
    dev_room_free(&room);
    return bad;
}

/* A micro-batch goes forward through all chunks, then back. */
static int64_t place_of(const step_parts *parts, const step_entry *t) {
    int chunk = t->action == STEP_BACKWARD ? 2 * parts->chunks - 1 - t->chunk : t->chunk;
    return 2 * (int64_t)t->micro_batch * parts->chunks + chunk;
}

/* Executes an entry of the step again, op by op. */
static void walk_entry(session *s, const step_entry *t, uint64_t first_sample, float grad_scale,
                       finding *f) {
    stage *g = &s->stage;
    op_run run = execute_run_of(s, t->micro_batch, grad_scale);
    run.frame = t->frame;
    f->at = place_of(&g->parts, t);
    const batch_ports *io = execute_ports_of(g, t);
    switch (t->action) {
        case STEP_FILL:
            execute_fill(g, g->train, first_sample + (uint64_t)t->micro_batch * (uint64_t)g->B);
            execute_put(s->setup.dev, g, t);
            break;
        case STEP_FORWARD:
        case STEP_BACKWARD: prog_walk(io->p, t->first, t->end, &run, visit, f); break;
        case STEP_PASS_ON:
        case STEP_PASS_BACK: execute_pass_on(s->setup.dev, g, t); break;
        case STEP_RECEIVE:
        case STEP_RECEIVED:
        case STEP_SENT:
        case STEP_SEND: execute_transfer(&s->setup, g, t); break;
        case STEP_LOSS: {
            int64_t unused[SUM_COUNT] = {0};
            execute_loss(s->setup.objective, g, t, grad_scale, unused);
            break;
        }
        default: break;
    }
}

static void walk_step(session *s, uint64_t first_sample, float grad_scale, finding *f) {
    for (int i = 0; i < s->stage.table.n && (f->goes_on || !f->found); i++)
        walk_entry(s, &s->stage.table.entry[i], first_sample, grad_scale, f);
}

/* In the walk gradients are not reduced over ranks; when no rank finds anything, the overflow
 * arose in that sum. */
static void find(session *s, uint64_t first_sample, float grad_scale, finding *f) {
    f->found = weights_are_bad(s->setup.plan->store, f);
    bool known = peers_any(&s->setup.peers, f->found);
    if (known || param_weights_in_slots(s->setup.plan->store)) return;
    f->goes_on = peers_ranks(&s->setup.peers) > 1;
    walk_step(s, first_sample, grad_scale, f);
}

static const char *found_nowhere(const setup *u) {
    return param_weights_in_slots(u->plan->store)
               ? "the loss or a gradient is not finite; under parallel.zero=2 or less, without "
                 "weights in a file, the tensor is named"
               : "the global gradient norm overflowed though every gradient is finite";
}

/* All ranks report what was found first; of ranks that found it at the same place, the lowest. */
status react_to_nonfinite(session *s, uint64_t first_sample, float grad_scale, err *e) {
    bool *overflow = dev_flag(s->setup.dev);
    finding f = {.dev = s->setup.dev, .overflow = overflow, .limit = (double)s->stage.fixed_limit};
    *overflow = false;
    find(s, first_sample, grad_scale, &f);
    dev_room_free(&f.room);
    err named = {0};
    bool first = peers_is_first(&s->setup.peers, f.found ? f.found_at : INT64_MAX);
    status st = f.found && first ? err_set(&named, ST_NONFINITE, "%s", f.text) : ST_OK;
    st = peers_agree(&s->setup.peers, st, &named);
    if (st == ST_RANK) {
        if (e) *e = named;
        return st;
    }
    return not_finite(s, st == ST_OK ? found_nowhere(&s->setup) : named.message, e);
}

status react_explain_pass(const param_store *ps, const prog *p, const op_run *run, err *e) {
    const bool no_overflow = false; /* sums are of floats */
    finding f = {.dev = run->dev, .overflow = &no_overflow};
    f.found = weights_are_bad(ps, &f);
    if (!f.found) prog_walk(p, 0, prog_get_stats(p)->ops, run, visit, &f);
    dev_room_free(&f.room);
    return f.found ? err_set(e, ST_NONFINITE, "%s", f.text) : ST_OK;
}
