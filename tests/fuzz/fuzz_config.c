/* libFuzzer target: configs from outside bytes. What loads is written as JSON and read back to an
 * equal config; its `model:` is read as a model. */
#include <stdlib.h>

#include "base/yaml.h"
#include "model/config.h"
#include "run/config.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    json_t *root, *origins;
    err e = {0};
    if (yaml_parse(&root, &origins, "fuzz", (const char *)data, len, &e) != ST_OK) return 0;
    config *c;
    if (config_from_json(&c, root, origins, "fuzz", NULL, 0, &e) == ST_OK) {
        check_round_trip(c);
        arena *a = arena_new("fuzz");
        model_config mc;
        if (!json_object_get(c->model, "from") &&
            model_config_read(a, c->model, 100, &mc, &e) == ST_OK)
            json_decref(model_config_json(&mc, 0, 1, DT_F32));
        arena_free(a);
        config_free(c);
    }
    json_decref(root);
    json_decref(origins);
    return 0;
}
