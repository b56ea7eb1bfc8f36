/* The deterministic mode over ranks (threads of this process): every split of a step into ranks and
 * micro-batches, every ZeRO stage and recompute policy has the digest, loss and norm of one rank,
 * bit for bit, at every step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <jansson.h>

#include "train/layouts.h"

enum { STEPS = 4 };

static const char LLAMA[] =
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"max_position_embeddings\":32,\"tie_word_embeddings\":true}";
static const char GPT2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"max_position_embeddings\":32,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}";

static config *make_config(const char *model, bool deterministic, const char *precision) {
    config *c;
    err e = {0};
    json_t *root = json_object();
    char words[3][64];
    const char *overrides[] = {words[0],
                               words[1],
                               words[2],
                               "train.global_batch_size=8",
                               "train.micro_batch_size=1",
                               "train.seq_len=16",
                               "train.steps=100",
                               "optim.lr=0.01",
                               "optim.clip_norm=0.5",
                               "parallel.bucket_mb=0.001"};
    json_object_set_new(root, "model", json_loads(model, 0, NULL));
    snprintf(words[0], sizeof words[0], "train.deterministic=%s", deterministic ? "true" : "false");
    snprintf(words[1], sizeof words[1], "train.precision=%s", precision);
    snprintf(words[2], sizeof words[2], "train.digest_every=1");
    if (config_from_json(&c, root, NULL, "test", overrides, ARRAY_LEN(overrides), &e) != ST_OK)
        fail_msg("%s", e.message);
    json_decref(root);
    return c;
}

static layout_result run(const config *c, const layout *l, layout_step steps[STEPS]) {
    err e = {0};
    layout_result r = {.steps = steps};
    char name[LAYOUT_NAME_MAX];
    layout_name(l, name);
    if (layout_run(c, l, STEPS, &r, &e) != ST_OK) fail_msg("%s: %s", name, e.message);
    assert_int_equal(r.n_steps, STEPS);
    return r;
}

static const layout LAYOUTS[] = {
    {.dp = 1, .dp_replicate = 1, .tp = 1, .recompute = 2},
    {.dp = 2, .dp_replicate = 1, .tp = 1, .recompute = -1},
    {.dp = 4, .dp_replicate = 1, .tp = 1, .recompute = 1},
    {.dp = 8, .dp_replicate = 2, .tp = 1, .recompute = -1},
    {.dp = 2, .dp_replicate = 1, .tp = 1, .zero = 1, .recompute = 2},
    {.dp = 4, .dp_replicate = 2, .tp = 1, .zero = 1, .recompute = -1},
    {.dp = 2, .dp_replicate = 1, .tp = 1, .zero = 2, .recompute = -1},
    {.dp = 4, .dp_replicate = 2, .tp = 1, .zero = 2, .recompute = 1},
    {.dp = 2, .dp_replicate = 1, .tp = 1, .zero = 3, .recompute = 2},
    {.dp = 4, .dp_replicate = 1, .tp = 1, .zero = 3, .recompute = -1},
    {.dp = 4, .dp_replicate = 2, .tp = 1, .zero = 3, .recompute = -1},
};

static void check_model(const char *model, const char *precision) {
    config *c = make_config(model, true, precision);
    layout_step want[STEPS], got[STEPS];
    uint64_t initial =
        run(c, &(layout){.dp = 1, .dp_replicate = 1, .tp = 1, .recompute = -1}, want).initial;
    for (int i = 0; i < ARRAY_LEN(LAYOUTS); i++) {
        char name[LAYOUT_NAME_MAX];
        layout_name(&LAYOUTS[i], name);
        assert_true(run(c, &LAYOUTS[i], got).initial == initial);
        for (int k = 0; k < STEPS; k++)
            if (got[k].digest != want[k].digest || got[k].loss != want[k].loss ||
                got[k].norm != want[k].norm)
                fail_msg("%s in %s: step %d has other weights, loss or norm", name, precision, k);
    }
    config_free(c);
}

static void test_layouts(void **state) {
    (void)state;
    check_model(LLAMA, "fp32");
    check_model(LLAMA, "bf16");
    check_model(GPT2, "fp32");
}

/* What the fast mode cannot promise, and so what the test above can find. */
static void test_fast_mode_differs(void **state) {
    (void)state;
    config *c = make_config(LLAMA, false, "fp32");
    layout_step one[STEPS], four[STEPS];
    run(c, &(layout){.dp = 1, .dp_replicate = 1, .tp = 1, .recompute = -1}, one);
    run(c, &(layout){.dp = 4, .dp_replicate = 1, .tp = 1, .recompute = -1}, four);
    assert_true(one[STEPS - 1].digest != four[STEPS - 1].digest);
    config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts),
                                       cmocka_unit_test(test_fast_mode_differs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
