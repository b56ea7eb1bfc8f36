/* Spikes of loss and gradient norm: a step is one when a z-score against the last steps is above a
 * bound (llm.c's outlier detector and OLMo 2's SkipStep, Section 3.3: 6 sigma of the last 128).
 *
 * Only values above the mean count. The loss is compared as it is. While it falls, the values in
 * the window differ much, so in early training only large spikes count. The norm is compared by its
 * logarithm: norms are skewed, and on ordinary text their plain values exceed 6 sigma twice as
 * often.
 *
 * Every step that is trained on enters the window, but cut at SPIKE_CUT sigma above the mean. So
 * one spike hardly widens the window, and a loss that stays 10 sigma higher (other data, other
 * lengths) counts as normal after 13 alarms.
 *
 * Each checkpoint has the exact state: a resumed run decides as one that was not interrupted. */
#ifndef TRAIN_SPIKE_H
#define TRAIN_SPIKE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { SPIKE_MAX_WINDOW = 1024, SPIKE_MIN_STEPS = 16, SPIKE_CUT = 3 };

typedef struct spike_window {
    int cap;   /* length of the window in steps, at most SPIKE_MAX_WINDOW */
    int n, at; /* how many steps it holds; the index of the next one */
    double loss[SPIKE_MAX_WINDOW];
    double log_norm[SPIKE_MAX_WINDOW];
} spike_window;

typedef struct spike_score {
    double loss_z, norm_z; /* 0 while fewer than SPIKE_MIN_STEPS are known */
    double loss_mean, loss_sd;
    double norm_mean; /* geometric */
    double norm_sd;   /* of the logarithm: 0.1 is a tenth of the norm */
} spike_score;

/* cap in SPIKE_MIN_STEPS..SPIKE_MAX_WINDOW (CHECK). */
void spike_init(spike_window *w, int cap);
/* Scores one step against the window, without entering it. Values that are not finite score
 * infinity. A spread below a thousandth counts as a thousandth: of the mean, or in the logarithm.
 * A norm of 0 scores 0. */
spike_score spike_measure(const spike_window *w, double loss, double norm);
/* Enters a step into the window; not called for steps that were skipped or rewound. Values that are
 * not finite, and norms that are not positive, are left out. */
void spike_enter(spike_window *w, double loss, double norm);
/* Changes the length and keeps the newest steps: a run may resume with another guard.window. */
void spike_resize(spike_window *w, int cap);

/* {"cap", "loss": [...], "log_norm": [...]}, oldest first, numbers that read back to the same bits.
 */
json_t *spike_to_json(const spike_window *w);
/* ST_FORMAT leaves the window as it was. */
status spike_from_json(spike_window *w, const json_t *o, err *e) ATH_MUST_USE;

#endif
