/* Presets: the published parameter counts, exactly, and what else tells one model from another. */
#include "test.h"

#include "model/family.h"
#include "model/presets.h"

static const struct {
    const char *name;
    int64_t params;
    int layers, context;
} published[] = {
    {"gpt2", 124439808, 12, 1024},
    {"gpt2-medium", 354823168, 24, 1024},
    {"gpt2-large", 774030080, 36, 1024},
    {"gpt2-xl", 1557611200, 48, 1024},
    {"nanogpt-124m-scratch", 124373760, 12, 1024},
    {"nanogpt-shakespeare.char", 10745088, 6, 256},
    {"rasbt-gpt-124m", 163009536, 12, 1024},
    {"pythia-14m", 14067712, 6, 2048},
    {"pythia-31m", 30494720, 6, 2048},
    {"pythia-70m", 70426624, 6, 2048},
    {"pythia-160m", 162322944, 12, 2048},
    {"pythia-410m", 405334016, 24, 2048},
    {"pythia-1b", 1011781632, 16, 2048},
    {"pythia-1.4b", 1414647808, 24, 2048},
    {"pythia-2.8b", 2775208960, 32, 2048},
    {"pythia-6.9b", 6857302016, 32, 2048},
    {"pythia-12b", 11846072320, 36, 2048},
    {"tinyllama-1.1b", 1100048384, 22, 2048},
    {"microllama-300m", 304636928, 12, 2048},
    {"olmo-1b", 1176764416, 16, 2048},
    {"olmo-7b", 6888095744, 32, 2048},
    {"olmo-2-1b", 1484916736, 16, 4096},
    {"olmo-2-7b", 7298617344, 32, 4096},
    {"olmo-2-13b", 13716198400, 40, 4096},
    {"olmo-2-32b", 32234279936, 64, 4096},
    {"qwen1.5-0.5b", 463987712, 24, 32768},
    {"qwen1.5-1.8b", 1836828672, 24, 32768},
    {"qwen1.5-4b", 3950369280, 40, 32768},
    {"qwen1.5-7b", 7721324544, 32, 32768},
    {"qwen2-0.5b", 494032768, 24, 131072},
    {"qwen2.5-0.5b", 494032768, 24, 32768},
    {"qwen2-1.5b", 1543714304, 28, 131072},
    {"qwen2.5-1.5b", 1543714304, 28, 131072},
    {"qwen2.5-3b", 3085938688, 36, 32768},
    {"qwen2-7b", 7615616512, 28, 131072},
    {"qwen2.5-7b", 7615616512, 28, 131072},
    {"qwen2.5-14b", 14770033664, 48, 131072},
    {"qwen2.5-32b", 32763876352, 64, 131072},
    {"qwen3-0.6b", 596049920, 28, 40960},
    {"qwen3-1.7b", 1720574976, 28, 40960},
    {"qwen3-4b", 4022468096, 36, 40960},
    {"qwen3-8b", 8190735360, 36, 40960},
    {"qwen3-14b", 14768307200, 40, 40960},
    {"qwen3-32b", 32762123264, 64, 40960},
    {"qwen1.5-moe-a2.7b", 14315784192, 24, 8192},
    {"qwen3-30b-a3b", 30532122624, 48, 40960},
    {"qwen3-235b-a22b", 235093634560, 94, 40960},
    {"mixtral-8x7b", 46702792704, 32, 32768},
    {"mixtral-8x22b", 140620634112, 56, 65536},
    {"olmoe-1b-7b", 6919161856, 16, 4096},
    {"deepseek-v2-lite", 15706484224, 27, 163840},
    {"deepseek-v3", 671026419200, 61, 163840},
    {"moonlight-16b-a3b", 15960110208, 27, 8192},
    {"kimi-k2", 1026408232448, 61, 131072},
    {"minicpm3-4b", 4073875968, 62, 32768},
    {"t5-small", 60506624, 12, 512},
    {"t5-base", 222903552, 24, 512},
    {"t5-large", 737668096, 48, 512},
    {"t5-3b", 2851598336, 48, 512},
    {"t5-11b", 11307321344, 48, 512},
    {"t5-v1.1-small", 76961152, 16, 512},
    {"t5-v1.1-base", 247577856, 24, 512},
    {"t5-v1.1-large", 783150080, 48, 512},
    {"t5-v1.1-xl", 2849757184, 48, 512},
    {"t5-v1.1-xxl", 11135332352, 48, 512},
    {"mt5-small", 300176768, 16, 512},
    {"mt5-base", 582401280, 24, 512},
    {"mt5-large", 1229581312, 48, 512},
    {"mt5-xl", 3742619648, 48, 512},
    {"mt5-xxl", 12921057280, 48, 512},
    {"chatlm-mini", 187692288, 20, 512},
    {"phi-1-small", 356794368, 20, 2048},
    {"phi-1", 1418270720, 24, 2048},
    {"phi-1.5", 1418270720, 24, 2048},
    {"phi-2", 2779683840, 32, 2048},
    {"openelm-270m", 271527168, 16, 2048},
    {"openelm-450m", 457179136, 20, 2048},
    {"openelm-1.1b", 1079891456, 28, 2048},
    {"openelm-3b", 3036647424, 36, 2048},
    {"mini.llm-1.4b", 1431996416, 16, 8192},
    {"baby-llama2-zh-92m", 58479616, 8, 512},
    {"baby-llama2-zh-92m-smallvocab", 36124672, 8, 512},
    {"baby-llama2-zh-218m", 218155008, 12, 1024},
    {"llama2.c-stories15m", 15191712, 6, 256},
    {"llama2.c-stories110m", 109529856, 12, 1024},
    {"minicpm-1.2b", 1360246272, 52, 4096},
    {"minicpm-2.4b", 2724880896, 40, 4096},
    {"ct-llm-2b", 2133985280, 32, 4096},
    {"ct-llm-2b-tied", 1876559872, 32, 4096},
    {"pangu-pi-1b-pro", 942737152, 20, 2048},
    {"mobilellm-125m", 124635456, 30, 2048},
    {"mobilellm-350m", 345355200, 32, 2048},
    {"mobilellm-600m", 603188352, 40, 2048},
    {"mobilellm-1b", 1005461760, 54, 2048},
    {"mobilellm-1.5b", 1511188800, 54, 2048},
    {"smollm2-135m", 134515008, 30, 8192},
    {"smollm2-360m", 361821120, 32, 8192},
    {"smollm2-1.7b", 1711376384, 24, 8192},
    {"smollm3-3b", 3075098624, 36, 65536},
    {"llama-2-7b", 6738415616, 32, 4096},
    {"llama-2-13b", 13015864320, 40, 4096},
    {"llama-2-70b", 68976648192, 80, 4096},
    {"llama-3-8b", 8030261248, 32, 8192},
    {"llama-3.1-8b", 8030261248, 32, 131072},
    {"llama-3-70b", 70553706496, 80, 8192},
    {"llama-3.1-70b", 70553706496, 80, 131072},
    {"llama-3.1-405b", 405853388800, 126, 131072},
    {"llama-3.2-1b", 1235814400, 16, 131072},
    {"llama-3.2-3b", 3212749824, 28, 131072},
    {"gemma-3-270m", 268098176, 18, 32768},
    {"gemma-3-1b", 999885952, 26, 32768},
    {"gemma-3-4b", 3880263168, 34, 131072},
    {"gemma-3-12b", 11766034176, 48, 131072},
    {"gemma-3-27b", 27009346304, 62, 131072},
};

static void open_preset(arena *a, const char *name, const char *more, json_t *value,
                        model_config *mc) {
    json_t *o = json_pack("{s:s}", "preset", name);
    if (more) json_object_set_new(o, more, value);
    err e = {0};
    if (model_config_read(a, o, 0, mc, &e) != ST_OK) fail_msg("%s: %s", name, e.message);
    json_decref(o);
}

static int64_t count(arena *a, const model_config *mc, int64_t *embedding) {
    param_store *s = param_store_new(a, DT_F32);
    model_declare(mc, s);
    *embedding = model_embedding_params(mc, s);
    return param_store_sizes(s).elems;
}

static void test_counts(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(published); i++) {
        arena *a = arena_new("presets");
        model_config mc;
        int64_t embedding;
        open_preset(a, published[i].name, NULL, NULL, &mc);
        assert_int_equal(mc.num_hidden_layers, published[i].layers);
        assert_int_equal(mc.max_position_embeddings, published[i].context);
        int64_t n = count(a, &mc, &embedding);
        if (n != published[i].params)
            fail_msg("%s: %ld instead of %ld", published[i].name, (long)n,
                     (long)published[i].params);
        int64_t positions = mc.positions == POSITIONS_LEARNED ? mc.max_position_embeddings : 0;
        int64_t tables = mc.vocab_size * (mc.tie_word_embeddings ? 1 : 2) + positions;
        if (mc.head_bias) embedding -= mc.vocab_size;
        assert_true(embedding == tables * mc.hidden_size);
        arena_free(a);
    }
}

/* What a token goes through: the layers with the experts that it picks, the embedding and the head. In each family something
 * else does not count: positions and last norm of GPT-2, the head's bias of Phi, biases that choose experts in DeepSeek-V3. */
static void test_active(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t active;
    } rows[] = {
        {"gpt2", 123651840},
        {"pythia-160m", 162321408},
        {"phi-2", 2779627520},
        {"qwen3-8b", 8190731264},
        {"mixtral-8x7b", 12879925248 - 4096},
        {"olmoe-1b-7b", 1282017280 - 2048},
        {"qwen3-30b-a3b", 3353030656},
        {"qwen3-235b-a22b", 22190759424},
        {"deepseek-v2-lite", 2661148160},
        {"deepseek-v3", 37552275456},
        {"moonlight-16b-a3b", 2914772480},
        {"kimi-k2", 32861470720},
        {"minicpm3-4b", 4073875968 - 2560},
    };
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        arena *a = arena_new("presets");
        model_config mc;
        open_preset(a, rows[i].name, NULL, NULL, &mc);
        param_store *s = param_store_new(a, DT_F32);
        model_declare(&mc, s);
        int64_t n = model_active_params(&mc, s);
        if (n != rows[i].active)
            fail_msg("%s: %ld of a token instead of %ld", rows[i].name, (long)n,
                     (long)rows[i].active);
        arena_free(a);
    }
}

/* No preset goes unchecked, none has two rows. */
static void test_all_are_listed(void **state) {
    (void)state;
    int n = 0;
    for (; preset_name(n); n++) {
        int found = 0;
        for (int i = 0; i < ARRAY_LEN(published); i++)
            found += strcmp(published[i].name, preset_name(n)) == 0;
        if (found != 1) fail_msg("%s is listed %d times here", preset_name(n), found);
    }
    assert_int_equal(n, ARRAY_LEN(published));
    assert_null(preset_json("gpt3"));
    assert_null(preset_json("gpt2-"));
    assert_null(preset_json("gpt"));
    assert_non_null(preset_json("rasbt gpt-124m"));
}

/* Names of a table of counts that are not listed: with the size, or written in another way. */
static void test_other_names(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t params;
    } rows[] = {
        {"deepseek-v2-lite-16b", 15706484224},
        {"deepseek-v3-671b", 671026419200},
        {"kimi-k2-1t", 1026408232448},
        {"t5v1.1-small", 76961152},
        {"t5v1.1-base", 247577856},
        {"t5v1.1-large", 783150080},
        {"chatlm-0.2b", 187692288},
    };
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        arena *a = arena_new("presets");
        model_config mc;
        int64_t embedding;
        open_preset(a, rows[i].name, NULL, NULL, &mc);
        assert_int_equal(count(a, &mc, &embedding), rows[i].params);
        assert_string_not_equal(preset_listed_name(rows[i].name), rows[i].name);
        arena_free(a);
    }
    assert_string_equal(preset_listed_name("kimi k2 1t"), "kimi-k2");
    assert_string_equal(preset_listed_name("gpt2"), "gpt2");
}

/* An untied head is one table more. */
static void test_untied(void **state) {
    (void)state;
    arena *a = arena_new("presets");
    model_config tied, untied;
    int64_t e1, e2;
    open_preset(a, "smollm2-135m", NULL, NULL, &tied);
    open_preset(a, "smollm2-135m", "tie_word_embeddings", json_false(), &untied);
    int64_t table = 49152 * 576;
    assert_true(count(a, &untied, &e2) == count(a, &tied, &e1) + table);
    assert_true(e1 == table && e2 == 2 * table);
    arena_free(a);
}

/* The cache of latent attention: 4.5 numbers for each column of a head, in each layer and on each rank. */
static void test_latent_cache(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t numbers, layers;
    } models[] = {{"deepseek-v2-lite", 9 * 128 / 2, 27},
                  {"deepseek-v3", 9 * 128 / 2, 61},
                  {"kimi-k2", 9 * 128 / 2, 61},
                  {"minicpm3-4b", 256 + 32, 62}};
    for (int i = 0; i < ARRAY_LEN(models); i++) {
        arena *a = arena_new("presets");
        model_config mc;
        open_preset(a, models[i].name, NULL, NULL, &mc);
        for (int tp = 1; tp <= 8; tp *= 2)
            assert_int_equal(model_cache_bytes(&mc, tp, 3, 100, DT_BF16, DT_BF16),
                             models[i].numbers * models[i].layers * 3 * 100 * 2);
        arena_free(a);
    }
}

/* What a count does not see. */
static void test_options(void **state) {
    (void)state;
    arena *a = arena_new("presets");
    model_config mc;
    open_preset(a, "gemma-3-4b", NULL, NULL, &mc);
    assert_int_equal(model_layer(&mc, 4).attn.window, 1024);
    assert_int_equal(model_layer(&mc, 5).attn.window, 0);
    rope_spec local = model_rope(&mc, true), global = model_rope(&mc, false);
    assert_true(local.theta == 1e4 && local.scaling.kind == ROPE_PLAIN);
    assert_true(global.theta == 1e6 && global.scaling.factor == 8);
    assert_true(mc.scale_emb * mc.scale_emb > 2559.9 && mc.scale_emb * mc.scale_emb < 2560.1);
    open_preset(a, "smollm3-3b", NULL, NULL, &mc);
    for (int l = 0; l < 36; l++) assert_true(model_layer(&mc, l).attn.rotary == (l % 4 != 3));
    open_preset(a, "openelm-3b", NULL, NULL, &mc);
    assert_int_equal(model_layer(&mc, 0).attn.H, 12);
    assert_int_equal(model_layer(&mc, 18).attn.K, 5);
    assert_int_equal(model_layer(&mc, 3).mlp.F, 2560);
    assert_int_equal(model_layer(&mc, 35).mlp.F, 12288);
    open_preset(a, "phi-2", NULL, NULL, &mc);
    assert_int_equal(model_rope(&mc, false).rotary_dim, 32);
    open_preset(a, "llama-3.2-1b", NULL, NULL, &mc);
    assert_true(mc.rope.kind == ROPE_LLAMA3 && mc.rope.factor == 32 && mc.rope_theta == 5e5);
    open_preset(a, "minicpm-1.2b", NULL, NULL, &mc);
    assert_true(mc.scale_emb == 12 && mc.scale_depth == 1.4 && mc.dim_model_base == 256);
    open_preset(a, "pythia-6.9b", NULL, NULL, &mc);
    assert_true(mc.init == INIT_SCHEME_NORMAL && mc.partial_rotary_factor == 0.25);
    open_preset(a, "nanogpt-shakespeare.char", NULL, NULL, &mc);
    assert_true(mc.act == ACT_GELU_EXACT && mc.resid_pdrop == 0.2 && !mc.mlp_bias);
    open_preset(a, "mini.llm-1.4b", NULL, NULL, &mc);
    assert_true(mc.intermediate_size == 5504 && mc.qkv_bias && !mc.attention_bias);
    arena_free(a);
}

/* The config.json that is written reads back, strictly, to the same model. */
static void test_written(void **state) {
    (void)state;
    for (int i = 0; preset_name(i); i++) {
        arena *a = arena_new("presets");
        model_config mc, again;
        int64_t e1, e2;
        open_preset(a, preset_name(i), NULL, NULL, &mc);
        json_t *once = model_config_json(&mc, 0, 1, DT_F32);
        err e = {0};
        if (model_config_read_file(a, once, &again, &e) != ST_OK)
            fail_msg("%s: %s", preset_name(i), e.message);
        json_t *twice = model_config_json(&again, 0, 1, DT_F32);
        if (!json_equal(once, twice)) fail_msg("%s changes when it is read", preset_name(i));
        assert_true(count(a, &mc, &e1) == count(a, &again, &e2) && e1 == e2);
        json_decref(once);
        json_decref(twice);
        arena_free(a);
    }
}

/* Patterns of layers follow another number of layers. */
static void test_fewer_layers(void **state) {
    (void)state;
    arena *a = arena_new("presets");
    for (int i = 0; preset_name(i); i++) {
        model_config mc;
        open_preset(a, preset_name(i), "num_hidden_layers", json_integer(3), &mc);
        assert_int_equal(mc.num_hidden_layers, mc.num_encoder_layers ? 6 : 3); /* 3 of each stack */
    }
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),       cmocka_unit_test(test_active),
        cmocka_unit_test(test_latent_cache), cmocka_unit_test(test_all_are_listed),
        cmocka_unit_test(test_other_names),  cmocka_unit_test(test_untied),
        cmocka_unit_test(test_options),      cmocka_unit_test(test_fewer_layers),
        cmocka_unit_test(test_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
