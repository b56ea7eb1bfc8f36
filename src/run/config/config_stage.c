/* The config of one stage: the run's own with the changes of all stages up to this one, as changes
 * stay in force. Only optim.restart does not: it is done once, when its stage begins, and
 * config_stage_restarts says so. */
#include "run/config/config_int.h"

#include <string.h>

/* What a stage may not change: what belongs to the whole run. */
static const char *const RUN_WIDE[] = {
    "train.steps",         "train.tokens",
    "train.epochs",        "train.precision",
    "train.seed",          "train.threads",
    "train.deterministic", "train.objective",
    "train.reference",     "train.beta",
    "train.memory_limit",  "train.loss_scale",
    "train.preference",    "train.reference_cache",
    "optim.name",
};

bool config_stage_may_change(const char *path) {
    for (int i = 0; i < ARRAY_LEN(RUN_WIDE); i++)
        if (strcmp(path, RUN_WIDE[i]) == 0 || config_path_below(path, RUN_WIDE[i])) return false;
    return config_path_below(path, "data") || config_path_below(path, "train") ||
           config_path_below(path, "optim");
}

/* Objects are merged, all else is replaced. */
static void merge(json_t *into, const json_t *changes) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)changes, key, value) {
        json_t *old = json_object_get(into, key);
        if (json_is_object(old) && json_is_object(value))
            merge(old, value);
        else
            json_object_set_new(into, key, json_deep_copy(value));
    }
}

/* The changes may have short forms, such as `data: {train: FOLDER}`: config_from_json writes them out
 * after the merge. (A merge into a scalar would lose the short form of train.precision, which no
 * stage may change.) */
static json_t *merged(const config *c, int stage) {
    json_t *root = config_to_json(c);
    json_object_del(root, "stages");
    for (int i = 0; i <= stage; i++) merge(root, c->stages.items[i].changes);
    json_object_del(json_object_get(root, "optim"), "restart");
    return root;
}

/* "data.train.0.weight" of stage 1 was given as "stages.1.data.train.0.weight". */
static json_t *origins_of(const config *c, int stage) {
    json_t *origins = json_deep_copy(c->origins);
    for (int i = 0; i <= stage; i++) {
        const char *prefix = arena_printf(c->memory, "stages.%d", i), *key;
        json_t *where;
        json_object_foreach(c->origins, key, where) {
            const char *rest = config_path_below(key, prefix);
            if (rest) json_object_set(origins, rest, where);
        }
    }
    return origins;
}

status config_of_stage(const config *c, int stage, config **out, err *e) {
    CHECK(stage >= 0 && stage < c->stages.n, "stage %d of %d", stage, c->stages.n);
    json_t *root = merged(c, stage), *origins = origins_of(c, stage);
    status st = config_from_json(out, root, origins, c->source, NULL, 0, e);
    json_decref(root);
    json_decref(origins);
    if (st != ST_OK) err_context(e, "stage %s", c->stages.items[stage].name);
    return st;
}

bool config_stage_restarts(const config *c, int stage) {
    return json_is_true(config_walk(c->stages.items[stage].changes, "optim.restart"));
}

bool config_stage_has_schedule(const config *c, int stage) {
    const json_t *changes = c->stages.items[stage].changes;
    return config_walk(changes, "optim.lr") || config_walk(changes, "optim.schedule");
}

/* ---- checks ---- */

static status check_end(const config *c, int i, err *e) {
    const config_stage *s = &c->stages.items[i], *before = i ? s - 1 : NULL;
    const char *path = arena_printf(c->memory, "stages.%d.until", i);
    bool open = !s->until.steps && !s->until.tokens;
    if (open && i < c->stages.n - 1)
        return config_error(
            c, e, path, "stage %s has no end: only the last stage may leave out `until`", s->name);
    if (s->until.steps && s->until.tokens)
        return config_error(c, e, path, "'%s' must have exactly one of steps and tokens", path);
    bool backwards = before && ((s->until.steps && before->until.steps >= s->until.steps) ||
                                (s->until.tokens && before->until.tokens >= s->until.tokens));
    if (!backwards) return ST_OK;
    config_error(c, e, path, "stage %s would end before it begins", s->name);
    return err_hint(e, "`until` counts from the beginning of the run, not of the stage");
}

status config_check_stages(const config *c, err *e) {
    if (c->stages.n && c->train.epochs > 0) {
        config_error(c, e, "train.epochs", "a run in stages has no train.epochs");
        return err_hint(e, "say train.steps or train.tokens, or let the last stage's `until` end "
                           "the run");
    }
    if (c->optim.restart && c->stages.n == 0)
        return config_error(c, e, "optim.restart", "optim.restart belongs into a stage");
    for (int i = 0; i < c->stages.n; i++) TRY(check_end(c, i, e));
    for (int i = 0; i < c->stages.n; i++) {
        config *stage;
        TRY(config_of_stage(c, i, &stage, e));
        config_free(stage);
    }
    return ST_OK;
}
