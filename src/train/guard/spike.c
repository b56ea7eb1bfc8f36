/* Spikes of loss and gradient norm; see spike.h. The sums run over the steps from the oldest on,
 * wherever the ring begins, so that a window read back from JSON scores with the same bits. */
#include "train/guard/spike.h"

#include <math.h>
#include <string.h>

/* A smaller standard deviation comes from rounding, or from data without variety; it says nothing
 * about what is usual. */
static const double LEAST_SPREAD = 1e-3;

typedef struct spread {
    double mean, sd;
} spread;

void spike_init(spike_window *w, int cap) {
    CHECK(cap >= SPIKE_MIN_STEPS && cap <= SPIKE_MAX_WINDOW, "a window of %d steps", cap);
    memset(w, 0, sizeof *w);
    w->cap = cap;
}

/* Slot of the i-th step, the oldest being 0. */
static int slot_of(const spike_window *w, int i) {
    return (w->at - w->n + i + w->cap) % w->cap;
}

/* Two passes: the one-pass formula loses all digits of a small spread beside a large mean. */
static spread spread_of(const spike_window *w, const double *values) {
    double sum = 0, squares = 0;
    for (int i = 0; i < w->n; i++) sum += values[slot_of(w, i)];
    double mean = sum / w->n;
    for (int i = 0; i < w->n; i++) {
        double d = values[slot_of(w, i)] - mean;
        squares += d * d;
    }
    return (spread){mean, sqrt(squares / (w->n - 1))};
}

static spread loss_spread(const spike_window *w) {
    spread s = spread_of(w, w->loss);
    s.sd = fmax(s.sd, LEAST_SPREAD * fabs(s.mean));
    return s;
}

static spread log_norm_spread(const spike_window *w) {
    spread s = spread_of(w, w->log_norm);
    s.sd = fmax(s.sd, LEAST_SPREAD);
    return s;
}

/* Losses that were all 0 have no spread at all. */
static double z_of(double value, spread s) {
    if (s.sd > 0) return (value - s.mean) / s.sd;
    return value > s.mean ? INFINITY : 0;
}

spike_score spike_measure(const spike_window *w, double loss, double norm) {
    spike_score s = {0};
    if (w->n >= SPIKE_MIN_STEPS) {
        spread l = loss_spread(w), g = log_norm_spread(w);
        s = (spike_score){.loss_mean = l.mean,
                          .loss_sd = l.sd,
                          .norm_mean = exp(g.mean),
                          .norm_sd = g.sd,
                          .loss_z = z_of(loss, l),
                          .norm_z = norm > 0 ? z_of(log(norm), g) : 0};
    }
    if (!isfinite(loss)) s.loss_z = INFINITY;
    if (!isfinite(norm)) s.norm_z = INFINITY;
    return s;
}

static void push(spike_window *w, double loss, double log_norm) {
    w->loss[w->at] = loss;
    w->log_norm[w->at] = log_norm;
    w->at = (w->at + 1) % w->cap;
    if (w->n < w->cap) w->n++;
}

static double cut(double value, spread s) {
    return fmin(value, s.mean + SPIKE_CUT * s.sd);
}

void spike_enter(spike_window *w, double loss, double norm) {
    if (!isfinite(loss) || !isfinite(norm) || norm <= 0) return;
    double log_norm = log(norm);
    if (w->n >= SPIKE_MIN_STEPS) {
        loss = cut(loss, loss_spread(w));
        log_norm = cut(log_norm, log_norm_spread(w));
    }
    push(w, loss, log_norm);
}

void spike_resize(spike_window *w, int cap) {
    spike_window old = *w;
    spike_init(w, cap);
    for (int i = 0; i < old.n; i++) {
        int slot = slot_of(&old, i);
        push(w, old.loss[slot], old.log_norm[slot]);
    }
}

/* ---- JSON ---- */

static json_t *list_of(const spike_window *w, const double *values) {
    json_t *list = json_array();
    for (int i = 0; i < w->n; i++) json_array_append_new(list, json_real(values[slot_of(w, i)]));
    return list;
}

json_t *spike_to_json(const spike_window *w) {
    return json_pack("{s:i, s:o, s:o}", "cap", w->cap, "loss", list_of(w, w->loss), "log_norm",
                     list_of(w, w->log_norm));
}

static status damaged(err *e, const char *key, const char *what) {
    return err_at(e, ST_FORMAT, key, "the window of the spike guard is damaged: %s %s", key, what);
}

static status check_list(const json_t *list, const char *key, size_t most, err *e) {
    if (!json_is_array(list)) return damaged(e, key, "is not a list");
    if (json_array_size(list) > most) return damaged(e, key, "is longer than the window");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_number(json_array_get(list, i)))
            return damaged(e, key, "holds what is not a number");
    return ST_OK;
}

status spike_from_json(spike_window *w, const json_t *o, err *e) {
    const json_t *cap = json_object_get(o, "cap"), *loss = json_object_get(o, "loss");
    const json_t *norm = json_object_get(o, "log_norm");
    json_int_t steps = json_integer_value(cap);
    if (!json_is_integer(cap) || steps < SPIKE_MIN_STEPS || steps > SPIKE_MAX_WINDOW)
        return damaged(e, "cap", "is not the length of a window");
    TRY(check_list(loss, "loss", (size_t)steps, e));
    TRY(check_list(norm, "log_norm", (size_t)steps, e));
    if (json_array_size(loss) != json_array_size(norm))
        return damaged(e, "log_norm", "has another length than loss");
    spike_init(w, (int)steps);
    for (size_t i = 0; i < json_array_size(loss); i++)
        push(w, json_number_value(json_array_get(loss, i)),
             json_number_value(json_array_get(norm, i)));
    return ST_OK;
}
