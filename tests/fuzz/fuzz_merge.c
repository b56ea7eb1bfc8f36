/* libFuzzer target: configs of merges from outside bytes. What is read has a finite value of every parameter
 * for every tensor, inside its range. */
#include <math.h>

#include "base/yaml.h"
#include "interchange/merge/merge_recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_values(const merge_recipe *r) {
    static const char *const names[] = {"model.embed_tokens.weight",
                                        "model.layers.3.mlp.up_proj.weight"};
    merge_input in[MERGE_MAX_MODELS];
    for (int i = 0; i < 6; i++) {
        merge_tensor m = {.name = names[i % 2], .in = in};
        merge_recipe_fill(r, i / 5.0, &m);
        CHECK(m.n == r->n && m.n >= 1, "%d models", m.n);
        for (int k = 0; k < m.n; k++)
            CHECK(isfinite(in[k].weight) && in[k].density > 0 && in[k].density <= 1, "model %d", k);
        CHECK(isfinite(m.lambda), "lambda %g", m.lambda);
        CHECK(m.method != MERGE_SLERP || (m.n == 2 && m.t >= 0 && m.t <= 1), "t %g", m.t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    json_t *root, *origins;
    merge_recipe r;
    err e = {0};
    if (yaml_parse(&root, &origins, "fuzz", (const char *)data, len, &e) != ST_OK) return 0;
    arena *a = arena_new("fuzz");
    if (merge_recipe_read(&r, a, root, origins, "fuzz", &e) == ST_OK) check_values(&r);
    arena_free(a);
    json_decref(root);
    json_decref(origins);
    return 0;
}
