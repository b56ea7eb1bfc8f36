/* libFuzzer target: configs from outside bytes. What loads is written as JSON and read back to an
 * equal config; its `model:` is read as a model, by the user's rules and as somebody's config.json,
 * and its config.json is read back to an equal model. */
#include <stdlib.h>

#include "base/yaml.h"
#include "model/family.h"
#include "run/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_round_trip(const config *c) {
    json_t *once = config_to_json(c);
    config *again;
    err e = {0};
    CHECK(config_from_json(&again, once, NULL, "again", NULL, 0, &e) == ST_OK, "%s", e.message);
    json_t *twice = config_to_json(again);
    CHECK(json_equal(once, twice), "a config changes when it is written and read");
    json_decref(once);
    json_decref(twice);
    config_free(again);
}

static void check_model(arena *a, const model_config *mc) {
    enum { LAYERS_DECLARED = 8 }; /* more are slow and say nothing new */
    model_config again;
    err e = {0};
    json_t *once = model_config_json(mc, 0, 1, DT_F32);
    CHECK(model_config_read_file(a, once, &again, &e) == ST_OK, "%s", e.message);
    json_t *twice = model_config_json(&again, 0, 1, DT_F32);
    CHECK(json_equal(once, twice), "a model changes when it is written and read");
    json_decref(once);
    json_decref(twice);
    if (mc->num_hidden_layers <= LAYERS_DECLARED) model_declare(mc, param_store_new(a, DT_F32));
}

static void read_model(const json_t *o) {
    arena *a = arena_new("fuzz");
    model_config mc;
    err e = {0};
    if (!json_object_get(o, "from") && model_config_read(a, o, 100, &mc, &e) == ST_OK)
        check_model(a, &mc);
    if (model_config_read_file(a, o, &mc, &e) == ST_OK) check_model(a, &mc);
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    json_t *root, *origins;
    err e = {0};
    if (yaml_parse(&root, &origins, "fuzz", (const char *)data, len, &e) != ST_OK) return 0;
    config *c;
    if (config_from_json(&c, root, origins, "fuzz", NULL, 0, &e) == ST_OK) {
        check_round_trip(c);
        read_model(c->model);
        config_free(c);
    }
    json_decref(root);
    json_decref(origins);
    return 0;
}
