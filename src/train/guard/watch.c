#include "train/guard/watch.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"

void watch_init(watch *w, const config *c) {
    *w = (watch){0};
    spike_init(&w->window, (int)c->guard.window);
    early_stop_init(&w->stop);
}

void watch_free(watch *w) {
    free(w->gap);
}

void watch_forget(watch *w) {
    spike_init(&w->window, w->window.cap);
    w->in_row = 0;
}

void watch_restart(watch *w) {
    watch_forget(w);
    w->lower_until = 0;
    w->rewards = (rewards_guard){0};
    early_stop_init(&w->stop);
}

static bool is_spike(const config *c, const spike_score *z) {
    return (c->guard.loss_z > 0 && z->loss_z > c->guard.loss_z) ||
           (c->guard.norm_z > 0 && z->norm_z > c->guard.norm_z);
}

bool watch_is_repetitive(const config *c, double repeated) {
    return c->guard.repeated > 0 && repeated > c->guard.repeated;
}

static watch_verdict verdict_of(watch *w, const config *c, const watch_step *s) {
    switch (c->guard.action) {
        case CONFIG_GUARD_SKIP: return WATCH_SKIP;
        case CONFIG_GUARD_REWIND: return WATCH_REWIND;
        case CONFIG_GUARD_LOWER: w->lower_until = s->step + c->guard.lower_steps - 1;
    }
    spike_enter(&w->window, s->loss, s->norm); /* it stands */
    return c->guard.action == CONFIG_GUARD_LOWER ? WATCH_LOWER : WATCH_LOG;
}

watch_verdict watch_judge(watch *w, const config *c, const watch_step *s, spike_score *score) {
    bool finite = isfinite(s->loss) && isfinite(s->norm);
    bool undoes = c->guard.action == CONFIG_GUARD_SKIP || c->guard.action == CONFIG_GUARD_REWIND;
    *score = spike_measure(&w->window, s->loss, s->norm);
    if (!finite && (!undoes || w->in_row + 1 >= WATCH_LEVEL_SHIFT)) return WATCH_FINE;
    bool spike = !finite || is_spike(c, score);
    w->in_row = spike ? w->in_row + 1 : 0;
    if (w->in_row >= WATCH_LEVEL_SHIFT) watch_forget(w);
    if (spike || watch_is_repetitive(c, s->repeated)) return verdict_of(w, c, s);
    spike_enter(&w->window, s->loss, s->norm);
    return WATCH_FINE;
}

double watch_rate(const watch *w, const config *c, int64_t step) {
    return step <= w->lower_until ? c->guard.lower_factor : 1.0;
}

/* ---- early stop ---- */

void early_stop_init(early_stop *s) {
    *s = (early_stop){.best_loss = INFINITY, .best_step = -1};
}

bool early_stop_take(early_stop *s, int64_t step, double loss) {
    if (!isfinite(loss) || loss >= s->best_loss) {
        s->without++;
        return false;
    }
    *s = (early_stop){.best_loss = loss, .best_step = step};
    return true;
}

bool early_stop_is_due(const early_stop *s, int64_t patience) {
    return patience > 0 && s->without >= patience;
}

json_t *early_stop_to_json(const early_stop *s) {
    return json_pack("{s:o, s:I, s:I}", "best_loss", json_f64(s->best_loss), "best_step",
                     (json_int_t)s->best_step, "without", (json_int_t)s->without);
}

status early_stop_from_json(early_stop *s, const json_t *o, err *e) {
    const json_t *loss = json_object_get(o, "best_loss"), *step = json_object_get(o, "best_step");
    const json_t *without = json_object_get(o, "without");
    bool whole = json_is_integer(step) && json_is_integer(without) &&
                 json_integer_value(step) >= -1 && json_integer_value(without) >= 0;
    bool known = json_is_number(loss);
    if (!whole || !(known || json_is_null(loss)) || known != (json_integer_value(step) >= 0))
        return err_at(e, ST_FORMAT, "best_loss, best_step, without",
                      "the state of early stopping is damaged");
    *s = (early_stop){.best_loss = known ? json_number_value(loss) : INFINITY,
                      .best_step = json_integer_value(step),
                      .without = json_integer_value(without)};
    return ST_OK;
}

/* ---- gaps ---- */

static bool before(const watch_gap *a, const watch_gap *b) {
    return a->stage < b->stage || (a->stage == b->stage && a->first < b->first);
}

void watch_add_gap(watch *w, watch_gap gap) {
    VEC_PUSH(w->gap, w->n_gaps, w->cap, gap);
    for (int i = w->n_gaps - 1; i > 0 && before(&w->gap[i], &w->gap[i - 1]); i--) {
        watch_gap t = w->gap[i];
        w->gap[i] = w->gap[i - 1];
        w->gap[i - 1] = t;
    }
}

uint64_t watch_move(const watch *w, int stage, uint64_t sample) {
    for (int i = 0; i < w->n_gaps; i++)
        if (w->gap[i].stage == stage && sample >= w->gap[i].first) sample += w->gap[i].n;
    return sample;
}

/* ---- JSON ---- */

json_t *watch_to_json(const watch *w) {
    json_t *gaps = json_array();
    for (int i = 0; i < w->n_gaps; i++)
        json_array_append_new(gaps,
                              json_pack("{s:i,s:I,s:I}", "stage", w->gap[i].stage, "first",
                                        (json_int_t)w->gap[i].first, "n", (json_int_t)w->gap[i].n));
    return json_pack("{s:o,s:I,s:i,s:o,s:o,s:o}", "window", spike_to_json(&w->window),
                     "lower_until", (json_int_t)w->lower_until, "in_row", w->in_row, "early_stop",
                     early_stop_to_json(&w->stop), "rewards", rewards_to_json(&w->rewards),
                     "left_out", gaps);
}

static bool has_gap(const watch *w, const watch_gap *g) {
    for (int i = 0; i < w->n_gaps; i++)
        if (w->gap[i].stage == g->stage && w->gap[i].first == g->first) return true;
    return false;
}

static status read_gaps(watch *w, const json_t *list, err *e) {
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o) {
        json_int_t first, n;
        watch_gap g = {0};
        if (json_unpack(o, "{s:i,s:I,s:I}", "stage", &g.stage, "first", &first, "n", &n) ||
            g.stage < 0 || first < 0 || n < 0)
            return err_set(e, ST_FORMAT, "the samples that are left out are not listed properly");
        g.first = (uint64_t)first;
        g.n = (uint64_t)n;
        if (!has_gap(w, &g)) watch_add_gap(w, g);
    }
    return ST_OK;
}

status watch_from_json(watch *w, const json_t *o, err *e) {
    json_t *window, *stop, *gaps;
    json_int_t lower;
    int cap = w->window.cap;
    if (json_unpack((json_t *)o, "{s:o,s:I,s:i,s:o,s:o}", "window", &window, "lower_until", &lower,
                    "in_row", &w->in_row, "early_stop", &stop, "left_out", &gaps))
        return err_set(e, ST_FORMAT, "it is not the state of a guard");
    w->lower_until = lower;
    TRY(spike_from_json(&w->window, window, e));
    if (w->window.cap != cap) spike_resize(&w->window, cap); /* guard.window was changed */
    TRY(early_stop_from_json(&w->stop, stop, e));
    TRY(rewards_from_json(&w->rewards, json_object_get(o, "rewards"), e));
    return read_gaps(w, gaps, e);
}
