#include "train/guard/loss_scale.h"

#include <float.h>

#include "base/json.h"

static bool is_dynamic(const config *c) {
    return c->train.precision.compute == CONFIG_PRECISION_FP16;
}

void loss_scale_init(loss_scale *l, const config *c) {
    *l = (loss_scale){.scale = is_dynamic(c) ? c->train.loss_scale.init_scale : 1.0};
}

bool loss_scale_may_shrink(const loss_scale *l, const config *c) {
    return is_dynamic(c) && l->scale > c->train.loss_scale.min_scale;
}

static void set_scale(loss_scale *l, double scale) {
    l->scale = scale;
    l->since = 0;
}

void loss_scale_step(loss_scale *l, const config *c, bool overflow) {
    double least = c->train.loss_scale.min_scale;
    if (!is_dynamic(c)) return;
    if (overflow) {
        double next = l->scale * c->train.loss_scale.backoff_factor;
        set_scale(l, next > least ? next : least);
    } else if (++l->since >= c->train.loss_scale.growth_interval) {
        double next = l->scale * c->train.loss_scale.growth_factor;
        set_scale(l, next < (double)FLT_MAX ? next : l->scale);
    }
}

json_t *loss_scale_to_json(const loss_scale *l) {
    return json_pack("{s:o,s:I}", "scale", json_f64(l->scale), "since", (json_int_t)l->since);
}

bool loss_scale_from_json(loss_scale *l, const json_t *o) {
    json_int_t since = 0;
    *l = (loss_scale){0};
    if (!o) return true;
    bool read = json_unpack((json_t *)o, "{s:F,s:I}", "scale", &l->scale, "since", &since) == 0;
    l->since = since;
    return read && l->scale > 0 && l->scale < (double)FLT_MAX && since >= 0;
}

void loss_scale_resume(loss_scale *l, const config *c, const loss_scale *stored) {
    loss_scale_init(l, c);
    if (is_dynamic(c) && stored->scale > 0) *l = *stored;
}
