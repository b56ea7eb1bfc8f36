#include "train/objective/objective.h"

#include <string.h>

extern const objective objective_lm, objective_dpo;

static const objective *const objectives[] = {&objective_lm, &objective_dpo};

static const objective *find(const char *name) {
    for (int i = 0; i < ARRAY_LEN(objectives); i++)
        if (strcmp(objectives[i]->name, name) == 0) return objectives[i];
    return NULL;
}

const objective *objective_of(const config *c) {
    json_t *name = config_get_json(c, "train.objective");
    const objective *o = find(json_string_value(name));
    CHECK(o, "objective %s is an option but has no row", json_string_value(name));
    json_decref(name);
    return o;
}
