#include "train/guard/rewards.h"

#include <math.h>

#include "base/json.h"

/* Of a step's weight after one more; the sum of weights tends to 1 / (1 - DECAY). */
static const double DECAY = 0.9, ENOUGH = 6.5; /* the weight of ten steps */

double rewards_mean_chosen(const rewards_guard *g) {
    return g->chosen / g->weight;
}

double rewards_mean_margin(const rewards_guard *g) {
    return g->margin / g->weight;
}

rewards_alarm rewards_take(rewards_guard *g, double chosen, double margin) {
    if (!isfinite(chosen) || !isfinite(margin)) return REWARDS_FINE;
    g->chosen = DECAY * g->chosen + chosen;
    g->margin = DECAY * g->margin + margin;
    g->weight = DECAY * g->weight + 1;
    if (g->weight < ENOUGH) return REWARDS_FINE;
    if (!g->told_fall && rewards_mean_chosen(g) < REWARDS_LEAST_CHOSEN) {
        g->told_fall = true;
        return REWARDS_FALL;
    }
    if (g->told_margin || rewards_mean_margin(g) < REWARDS_MOST_MARGIN) return REWARDS_FINE;
    g->told_margin = true;
    return REWARDS_MARGIN;
}

json_t *rewards_to_json(const rewards_guard *g) {
    return json_pack("{s:o,s:o,s:o,s:b,s:b}", "chosen", json_f64(g->chosen), "margin",
                     json_f64(g->margin), "weight", json_f64(g->weight), "told_fall",
                     (int)g->told_fall, "told_margin", (int)g->told_margin);
}

status rewards_from_json(rewards_guard *g, const json_t *o, err *e) {
    int fall, margin;
    *g = (rewards_guard){0};
    if (!o) return ST_OK;
    if (json_unpack((json_t *)o, "{s:F,s:F,s:F,s:b,s:b}", "chosen", &g->chosen, "margin",
                    &g->margin, "weight", &g->weight, "told_fall", &fall, "told_margin", &margin))
        return err_set(e, ST_FORMAT, "it is not the state of rewards");
    g->told_fall = fall;
    g->told_margin = margin;
    return ST_OK;
}
