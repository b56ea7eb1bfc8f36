/* Tensor and sequence parallelism against one rank: losses, every gradient, initial weights. In
 * double, where an error cannot hide in rounding. */
#include "layouts.h"

static const char *const names[] = {"gpt2-tanh-tied",
                                    "gpt2-erf-untied",
                                    "llama-gqa-tied",
                                    "llama-bias-untied",
                                    "llama-rope3-mqa",
                                    "mistral",
                                    "neox-parallel",
                                    "neox-sequential",
                                    "phi",
                                    "phi-qknorm",
                                    "olmo-clip-tied",
                                    "olmo2",
                                    "smollm3",
                                    "qwen1",
                                    "qwen2-tied",
                                    "qwen3-tied",
                                    "gemma2",
                                    "gemma3",
                                    "openelm",
                                    "mobilellm-shared",
                                    "minicpm"};

static double distance_of(const char *name, const model_config *mc, const outcome *want,
                          const layout *l) {
    outcome got = layout_run(mc, l);
    const char *where;
    double d = outcome_distance(&got, want, &where);
    print_message("%s %s tp %d sp %d recompute %d: %.2e (%s)\n", name, dtype_name(l->dt), l->tp,
                  l->sequence_parallel, (int)l->recompute, d, where);
    assert_true(got.digest == want->digest);
    arena_free(got.a);
    return d;
}

static void test_families(void **state) {
    (void)state;
    arena *a = arena_new("families");
    for (int m = 0; m < ARRAY_LEN(names); m++) {
        model_config mc = layout_config(a, names[m]);
        layout one = {.dt = DT_F64, .tp = 1};
        outcome want = layout_run(&mc, &one);
        for (int tp = 2; tp <= 4; tp *= 2)
            for (int sp = 0; sp < 2; sp++) {
                layout l = {.dt = DT_F64, .tp = tp, .sequence_parallel = sp, .chunk_rows = 5};
                err e = {0};
                if (model_check_ranks(&mc, tp, &e) != ST_OK) {
                    print_message("%s: %s\n", names[m], e.message);
                    continue;
                }
                assert_true(distance_of(names[m], &mc, &want, &l) < 1e-12);
            }
        arena_free(want.a);
    }
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
