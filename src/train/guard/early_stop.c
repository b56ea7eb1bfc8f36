/* Counting validations without improvement; see early_stop.h. */
#include "train/guard/early_stop.h"

#include <math.h>

#include "base/json.h"

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
    if (!whole || !(known || json_is_null(loss)) || known != (json_integer_value(step) >= 0)) {
        err_set(e, ST_FORMAT, "the state of early stopping is damaged");
        return err_where(e, "best_loss, best_step, without");
    }
    *s = (early_stop){.best_loss = known ? json_number_value(loss) : INFINITY,
                      .best_step = json_integer_value(step),
                      .without = json_integer_value(without)};
    return ST_OK;
}
