/* Initial weights: every scheme against the numbers of the project that published it. */
#include "test.h"

#include "model/family.h"
#include "model/init.h"

static const param *find(const param_store *s, const char *name) {
    int i = param_find(s, name);
    if (i < 0) fail_msg("there is no %s", name);
    return param_at(s, i);
}

static param_store *declare(arena *a, const char *preset) {
    json_t *o = json_pack("{s:s}", "preset", preset);
    model_config *mc = ARENA_NEW(a, model_config);
    err e = {0};
    if (model_config_read(a, o, 0, mc, &e) != ST_OK) fail_msg("%s: %s", preset, e.message);
    json_decref(o);
    param_store *s = param_store_new(a, DT_F32);
    model_declare(mc, s);
    return s;
}

typedef struct expected {
    const char *name;
    double std, cut;
} expected;

static void check(const char *preset, const expected *want, int n) {
    arena *a = arena_new("init");
    const param_store *s = declare(a, preset);
    for (int i = 0; i < n; i++) {
        const param *p = find(s, want[i].name);
        assert_int_equal(p->init.kind, INIT_NORMAL);
        if (fabs(p->init.std - want[i].std) > 1e-12 * want[i].std || p->init.cut != want[i].cut)
            fail_msg("%s: %s is N(0, %g) cut at %g, not N(0, %g) at %g", preset, want[i].name,
                     p->init.std, p->init.cut, want[i].std, want[i].cut);
    }
    arena_free(a);
}
#define CHECK_SCHEME(preset, ...)                                                                  \
    check(preset, (const expected[]){__VA_ARGS__},                                                 \
          (int)(sizeof((const expected[]){__VA_ARGS__}) / sizeof(expected)))

static void test_schemes(void **state) {
    (void)state;
    CHECK_SCHEME("llama-3.2-1b", {"model.embed_tokens.weight", 0.02, 0},
                 {"model.layers.3.self_attn.o_proj.weight", 0.02, 0});
    /* nanoGPT: 12 layers write 24 times */
    CHECK_SCHEME("gpt2", {"transformer.wte.weight", 0.02, 0}, {"transformer.wpe.weight", 0.02, 0},
                 {"transformer.h.0.attn.c_attn.weight", 0.02, 0},
                 {"transformer.h.11.attn.c_proj.weight", 0.02 / sqrt(24), 0},
                 {"transformer.h.5.mlp.c_proj.weight", 0.02 / sqrt(24), 0});
    /* GPT-NeoX's small_init and wang_init */
    CHECK_SCHEME("pythia-160m", {"gpt_neox.embed_in.weight", sqrt(2.0 / (5 * 768)), 0},
                 {"embed_out.weight", sqrt(2.0 / (5 * 768)), 0},
                 {"gpt_neox.layers.2.mlp.dense_h_to_4h.weight", sqrt(2.0 / (5 * 768)), 0},
                 {"gpt_neox.layers.2.mlp.dense_4h_to_h.weight", 2 / 12.0 / sqrt(768), 0},
                 {"gpt_neox.layers.9.attention.dense.weight", 2 / 12.0 / sqrt(768), 0});
    /* OLMo's "mitchell": layers count from 0, in the formula from 1 */
    CHECK_SCHEME("olmo-7b", {"model.embed_tokens.weight", 1 / sqrt(4096), 3},
                 {"lm_head.weight", 1 / sqrt(4096), 3},
                 {"model.layers.0.self_attn.q_proj.weight", 1 / sqrt(4096), 3},
                 {"model.layers.6.mlp.up_proj.weight", 1 / sqrt(4096), 3},
                 {"model.layers.0.self_attn.o_proj.weight", 1 / sqrt(2 * 4096), 3},
                 {"model.layers.6.self_attn.o_proj.weight", 1 / sqrt(2 * 4096 * 7), 3},
                 {"model.layers.6.mlp.down_proj.weight", 1 / sqrt(2 * 11008 * 7), 3});
    CHECK_SCHEME("olmo-2-1b", {"model.embed_tokens.weight", 0.02, 3},
                 {"model.layers.6.mlp.down_proj.weight", 0.02, 3});
    /* OpenELM: layer 0 has 12 heads of 64 */
    CHECK_SCHEME("openelm-270m", {"transformer.token_embeddings.weight", 1 / sqrt(1280), 0},
                 {"transformer.layers.0.attn.qkv_proj.weight", 1 / sqrt(1280), 0},
                 {"transformer.layers.0.attn.out_proj.weight", 1 / sqrt(1280 * 32), 0},
                 {"transformer.layers.9.ffn.proj_2.weight", 1 / sqrt(1280 * 32), 0});
    /* nanotron, of SmolLM2 */
    CHECK_SCHEME("smollm2-135m", {"model.embed_tokens.weight", 1 / sqrt(576), 0},
                 {"model.layers.0.self_attn.k_proj.weight", 1 / sqrt(576), 0},
                 {"model.layers.7.mlp.down_proj.weight", 1 / sqrt(576) / sqrt(60), 0});
}

static void test_vectors(void **state) {
    (void)state;
    arena *a = arena_new("init");
    const param_store *s = declare(a, "gpt2");
    assert_int_equal(find(s, "transformer.h.0.ln_1.weight")->init.kind, INIT_ONES);
    assert_int_equal(find(s, "transformer.h.0.ln_1.bias")->init.kind, INIT_ZEROS);
    assert_int_equal(find(s, "transformer.h.0.attn.c_proj.bias")->init.kind, INIT_ZEROS);
    /* 1 + w */
    s = declare(a, "gemma-3-270m");
    assert_int_equal(find(s, "model.norm.weight")->init.kind, INIT_ZEROS);
    arena_free(a);
}

/* A stored block that runs twice writes twice. */
static void test_repeats(void **state) {
    (void)state;
    model_config mc = {.hidden_size = 64, .num_hidden_layers = 3, .block_repeat = 2};
    mc.init = INIT_SCHEME_GPT2;
    mc.initializer_range = 0.5;
    double std = init_of(&mc, INIT_ROLE_MLP_OUT, 2, 256).std;
    assert_true(fabs(std - 0.5 / sqrt(12)) < 1e-15);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schemes),
                                       cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_repeats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
