/* Parameter counts of the presets: the published ones, exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "model/family.h"
#include "model/presets.h"

static const struct {
    const char *name;
    int64_t params;
    int layers;
} published[] = {
    {"gpt2", 124439808, 12},
    {"gpt2-medium", 354823168, 24},
    {"gpt2-large", 774030080, 36},
    {"gpt2-xl", 1557611200, 48},
    {"smollm2-135m", 134515008, 30},
    {"smollm2-360m", 361821120, 32},
    {"smollm2-1.7b", 1711376384, 24},
    {"tinyllama-1.1b", 1100048384, 22},
    {"microllama-300m", 304636928, 12},
    {"llama-3.2-1b", 1235814400, 16},
};

static void open_preset(arena *a, const char *name, const char *more, model_config *mc) {
    json_t *o = json_pack("{s:s}", "preset", name);
    if (more) json_object_set_new(o, more, json_false());
    err e = {0};
    if (model_config_read(a, o, 0, mc, &e) != ST_OK) fail_msg("%s: %s", name, e.message);
    json_decref(o);
}

static int64_t count(arena *a, const model_config *mc, int64_t *embedding) {
    param_store *s = param_store_new(a, DT_F32);
    mc->family->declare(mc, s);
    *embedding = model_embedding_params(mc, s);
    return param_store_sizes(s).elems;
}

static void test_counts(void **state) {
    (void)state;
    arena *a = arena_new("presets");
    for (int i = 0; i < ARRAY_LEN(published); i++) {
        model_config mc;
        int64_t embedding;
        open_preset(a, published[i].name, NULL, &mc);
        assert_int_equal(mc.num_hidden_layers, published[i].layers);
        int64_t n = count(a, &mc, &embedding);
        if (n != published[i].params)
            fail_msg("%s: %ld instead of %ld", published[i].name, (long)n,
                     (long)published[i].params);
    }
    arena_free(a);
}

/* No preset goes unchecked. */
static void test_all_are_listed(void **state) {
    (void)state;
    int n = 0;
    for (; preset_name(n); n++) {
        bool found = false;
        for (int i = 0; i < ARRAY_LEN(published); i++)
            found = found || strcmp(published[i].name, preset_name(n)) == 0;
        if (!found) fail_msg("%s has no published count here", preset_name(n));
    }
    assert_int_equal(n, ARRAY_LEN(published));
    assert_null(preset_json("gpt3"));
}

/* An untied head is one table more. */
static void test_untied(void **state) {
    (void)state;
    arena *a = arena_new("presets");
    model_config tied, untied;
    int64_t e1, e2;
    open_preset(a, "smollm2-135m", NULL, &tied);
    open_preset(a, "smollm2-135m", "tie_word_embeddings", &untied);
    int64_t table = 49152 * 576;
    assert_true(count(a, &untied, &e2) == count(a, &tied, &e1) + table);
    assert_true(e1 == table && e2 == 2 * table);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_all_are_listed),
                                       cmocka_unit_test(test_untied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
