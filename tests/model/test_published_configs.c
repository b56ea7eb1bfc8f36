/* config.json files as they are published (tests/golden/configs; NAME.v5.json: the same as
 * transformers 5 writes it): every one is accepted, has the published number of parameters, means
 * the same however it is written, and comes out as it went in. Then keys that must stop, and values
 * that nobody should read on. */
#include "test.h"

#include "base/file.h"
#include "model/family.h"

static const struct {
    const char *name;
    int64_t params;
    const char *windows; /* by layer, repeated: f full, w window; NULL: all full */
    int64_t window;
    double theta;
    int rotary_dim;
    rope_kind rope;
    int64_t pad;
    bool tied;
} published[] = {
    {"deepseek-r1-distill-qwen-1.5b", 1777088000, NULL, 0, 1e4, 128, ROPE_PLAIN, -1, false},
    {"flan-t5-small", 76961152, NULL, 0, 0, 0, ROPE_PLAIN, 0, false},
    {"gemma-2-2b", 2614341888, "wf", 4096, 1e4, 256, ROPE_PLAIN, 0, true},
    {"gemma-2-2b.v5", 2614341888, "wf", 4096, 1e4, 256, ROPE_PLAIN, 0, true},
    {"gemma-2-9b", 9241705984, "wf", 4096, 1e4, 256, ROPE_PLAIN, 0, true},
    {"gemma-3-12b-it", 11766034176, "wwwwwf", 1024, 1e6, 256, ROPE_LINEAR, 0, true},
    {"gemma-3-1b-it", 999885952, "wwwwwf", 512, 1e6, 256, ROPE_PLAIN, 0, true},
    {"gemma-3-270m", 268098176, "wwwwwf", 512, 1e6, 256, ROPE_PLAIN, 0, true},
    {"gemma-3-4b-it", 3880263168, "wwwwwf", 1024, 1e6, 256, ROPE_LINEAR, 0, true},
    {"gemma-3-4b-it.v5", 3880263168, "wwwwwf", 1024, 1e6, 256, ROPE_LINEAR, 0, true},
    {"gpt2", 124439808, NULL, 0, 0, 0, ROPE_PLAIN, -1, true},
    {"llama-2-7b-hf", 6738415616, NULL, 0, 1e4, 128, ROPE_PLAIN, -1, false},
    {"llama-3.2-1b-instruct", 1235814400, NULL, 0, 5e5, 64, ROPE_LLAMA3, -1, true},
    {"llama-3.2-1b-instruct.v5", 1235814400, NULL, 0, 5e5, 64, ROPE_LLAMA3, -1, true},
    {"llama-7b", 6738415616, NULL, 0, 1e4, 128, ROPE_PLAIN, 0, false},
    {"minicpm-1b", 1360246272, NULL, 0, 1e4, 64, ROPE_PLAIN, -1, true},
    {"minicpm-2b", 2724880896, NULL, 0, 1e4, 64, ROPE_PLAIN, -1, true},
    {"mistral-7b-v0.1", 7241732096, "w", 4096, 1e4, 128, ROPE_PLAIN, -1, false},
    {"mistral-7b-v0.3", 7248023552, NULL, 0, 1e6, 128, ROPE_PLAIN, -1, false},
    {"mobilellm-125m", 124635456, NULL, 0, 1e4, 64, ROPE_PLAIN, -1, true},
    {"mt5-small", 300176768, NULL, 0, 0, 0, ROPE_PLAIN, 0, false},
    {"olmo-1b-hf", 1176764416, NULL, 0, 1e4, 128, ROPE_PLAIN, 1, true},
    {"olmo-2-1124-7b", 7298617344, NULL, 0, 5e5, 128, ROPE_PLAIN, 100277, false},
    {"olmo-7b-0424-hf", 6888095744, NULL, 0, 1e4, 128, ROPE_PLAIN, 1, false},
    {"openelm-270m", 271527168, NULL, 0, 1e4, 64, ROPE_PLAIN, -1, true},
    {"phi-1_5", 1418270720, NULL, 0, 1e4, 32, ROPE_PLAIN, -1, false},
    {"phi-2", 2779683840, NULL, 0, 1e4, 32, ROPE_PLAIN, -1, false},
    {"phi-2.v5", 2779683840, NULL, 0, 1e4, 32, ROPE_PLAIN, -1, false},
    {"pythia-160m", 162322944, NULL, 0, 1e4, 16, ROPE_PLAIN, -1, false},
    {"pythia-160m.v5", 162322944, NULL, 0, 1e4, 16, ROPE_PLAIN, -1, false},
    {"qwen-1_8b", 1836828672, NULL, 0, 1e4, 128, ROPE_PLAIN, -1, false},
    {"qwen1.5-0.5b", 463987712, NULL, 0, 1e6, 64, ROPE_PLAIN, -1, true},
    {"qwen2.5-0.5b-instruct", 494032768, NULL, 0, 1e6, 64, ROPE_PLAIN, -1, true},
    {"qwen2.5-7b-instruct-yarn", 7615616512, NULL, 0, 1e6, 128, ROPE_YARN, -1, false},
    {"qwen2.5-7b-instruct-yarn.v5", 7615616512, NULL, 0, 1e6, 128, ROPE_YARN, -1, false},
    {"qwen3-0.6b", 596049920, NULL, 0, 1e6, 128, ROPE_PLAIN, -1, true},
    {"smollm2-135m", 134515008, NULL, 0, 1e5, 64, ROPE_PLAIN, -1, true},
    {"smollm2-135m-instruct", 134515008, NULL, 0, 1e5, 64, ROPE_PLAIN, 2, true},
    {"smollm3-3b", 3075098624, NULL, 0, 5e6, 128, ROPE_PLAIN, 128004, true},
    {"smollm3-3b.v5", 3075098624, NULL, 0, 5e6, 128, ROPE_PLAIN, 128004, true},
    {"t5-small", 60506624, NULL, 0, 0, 0, ROPE_PLAIN, 0, true},
    {"t5-v1_1-base", 247577856, NULL, 0, 0, 0, ROPE_PLAIN, 0, false},
    {"tinyllama-1.1b-chat", 1100048384, NULL, 0, 1e4, 64, ROPE_PLAIN, -1, false},
};

static json_t *load(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/golden/configs/%s.json", TEST_DIR, name);
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!o) fail_msg("%s cannot be read", path);
    return o;
}

static void read_published(arena *a, const char *name, model_config *mc) {
    json_t *o = load(name);
    err e = {0};
    if (model_config_read_file(a, o, mc, &e) != ST_OK) fail_msg("%s: %s", name, e.message);
    json_decref(o);
}

static int64_t count(arena *a, const model_config *mc) {
    param_store *s = param_store_new(a, DT_F32);
    model_declare(mc, s);
    return param_store_sizes(s).elems;
}

static void test_meaning(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(published); i++) {
        arena *a = arena_new("published");
        model_config mc;
        read_published(a, published[i].name, &mc);
        if (count(a, &mc) != published[i].params)
            fail_msg("%s has %ld parameters", published[i].name, (long)count(a, &mc));
        const char *w = published[i].windows ? published[i].windows : "f";
        for (int l = 0; l < mc.num_hidden_layers; l++) {
            bool local = w[(size_t)l % strlen(w)] == 'w';
            assert_int_equal(model_layer(&mc, l).attn.window, local ? published[i].window : 0);
        }
        if (published[i].rotary_dim > 0) {
            rope_spec s = model_rope(&mc, false);
            assert_true(s.theta == published[i].theta);
            assert_int_equal(s.rotary_dim, published[i].rotary_dim);
            assert_int_equal(s.scaling.kind, published[i].rope);
        }
        assert_int_equal(mc.pad_token_id, published[i].pad);
        assert_int_equal(mc.tie_word_embeddings, published[i].tied);
        arena_free(a);
    }
}

/* Given by whoever writes the file; the text model's own type; a flag that MobileLLM does not mean;
 * of windows, where there are none. */
static bool may_differ(const char *key) {
    static const char *const keys[] = {"torch_dtype",      "use_cache",  "bos_token_id",
                                       "eos_token_id",     "model_type", "tie_word_embeddings",
                                       "max_window_layers"};
    for (int i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

/* Words, numbers and switches that both say are the same: other readers ask for theirs. */
static void check_values(const char *name, const json_t *ours) {
    json_t *theirs = load(name), *v;
    const char *key;
    json_object_foreach((json_t *)ours, key, v) {
        const json_t *was = json_object_get(theirs, key);
        bool number = json_is_number(v) && json_is_number(was);
        bool same = number ? json_number_value(v) == json_number_value(was) : json_equal(v, was);
        bool compared = number || (json_is_string(v) && json_is_string(was)) ||
                        (json_is_boolean(v) && json_is_boolean(was));
        if (compared && !same && !may_differ(key)) fail_msg("%s: another %s", name, key);
    }
    json_decref(theirs);
}

/* What we write says the same, without an extension of ours. */
static void test_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(published); i++) {
        arena *a = arena_new("published");
        model_config mc, again;
        err e = {0};
        read_published(a, published[i].name, &mc);
        json_t *once = model_config_json(&mc, 1, 2, DT_F32);
        json_t *more = json_object_get(once, "athanor");
        check_values(published[i].name, once);
        if (more)
            fail_msg("%s: %s is said to be an extension", published[i].name,
                     json_object_iter_key(json_object_iter(more)));
        if (model_config_read_file(a, once, &again, &e) != ST_OK)
            fail_msg("%s: %s", published[i].name, e.message);
        json_t *twice = model_config_json(&again, 1, 2, DT_F32);
        assert_true(json_equal(once, twice));
        json_decref(once);
        json_decref(twice);
        arena_free(a);
    }
}

/* Both ways of writing mean one model. */
static void test_versions(void **state) {
    (void)state;
    int n = 0;
    for (int i = 0; i < ARRAY_LEN(published); i++) {
        char old[64];
        const char *dot = strstr(published[i].name, ".v5");
        if (!dot) continue;
        snprintf(old, sizeof old, "%.*s", (int)(dot - published[i].name), published[i].name);
        arena *a = arena_new("published");
        model_config x, y;
        read_published(a, published[i].name, &x);
        read_published(a, old, &y);
        json_t *a5 = model_config_json(&x, 1, 2, DT_F32), *a4 = model_config_json(&y, 1, 2, DT_F32);
        if (!json_equal(a5, a4)) fail_msg("%s differs", old);
        json_decref(a5);
        json_decref(a4);
        arena_free(a);
        n++;
    }
    assert_int_equal(n, 7);
}

/* A published config with other keys, as JSON. */
static status read_changed(const char *name, const char *change, model_config *mc, arena *a,
                           err *e) {
    json_t *o = load(name), *more = json_loads(change, 0, NULL);
    assert_non_null(more);
    json_object_update(o, more);
    status st = model_config_read_file(a, o, mc, e);
    json_decref(o);
    json_decref(more);
    return st;
}

/* Key that is named in the refusal. */
static const struct {
    const char *name, *change, *where;
} refused[] = {
    /* what changes the function in a way that is not computed */
    {"smollm2-135m", "{\"scale_attn_by_inverse_layer_idx\": true}",
     "scale_attn_by_inverse_layer_idx"},
    {"gpt2", "{\"add_cross_attention\": true}", "add_cross_attention"},
    {"gpt2", "{\"pruned_heads\": {\"0\": [1]}}", "pruned_heads"},
    {"gemma-3-270m", "{\"use_bidirectional_attention\": true}", "use_bidirectional_attention"},
    {"smollm2-135m", "{\"sliding_window\": 128}", "sliding_window"},
    {"smollm2-135m", "{\"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
    {"smollm2-135m", "{\"rope_parameters\": {\"partial_rotary_factor\": 0.5}}",
     "rope_parameters.partial_rotary_factor"},
    {"phi-2", "{\"head_dim\": 64}", "head_dim"},
    {"qwen2.5-0.5b-instruct", "{\"FFN_type\": \"softmoe_v3\"}", "FFN_type"},
    {"qwen2.5-0.5b-instruct", "{\"use_mrope\": true}", "use_mrope"},
    {"llama-7b", "{\"use_sliding_window\": true}", "use_sliding_window"},
    {"qwen-1_8b", "{\"no_bias\": false}", "no_bias"},
    {"openelm-270m", "{\"ffn_with_glu\": false}", "ffn_with_glu"},
    {"llama-2-7b-hf", "{\"quantization_config\": {\"quant_method\": \"awq\"}}",
     "quantization_config"},
    {"llama-2-7b-hf", "{\"hidden_act\": \"quick_gelu\"}", "hidden_act"},
    {"llama-2-7b-hf", "{\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 2}}",
     "rope_scaling.type"},
    {"gemma-2-2b", "{\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e4}}}",
     "rope_parameters"},
    {"qwen3-0.6b", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"attn_factor\": 0.9}}",
     "rope_scaling.attn_factor"},
    {"gemma-3-270m",
     "{\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"linear\", \"factor\": 2}}}",
     "rope_parameters.sliding_attention.rope_type"},
    /* what is said twice and differs: transformers 4 and 5 read different ones */
    {"llama-3.2-1b-instruct", "{\"rope_parameters\": {\"rope_theta\": 1e4}}",
     "rope_parameters.rope_theta"},
    {"gemma-3-270m", "{\"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 1e5}}}",
     "rope_parameters.rope_theta"},
    {"pythia-160m", "{\"rope_theta\": 500}", "rope_theta"},
    {"llama-3.2-1b-instruct",
     "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2.0, \"rope_theta\": 5e5}}",
     "rope_parameters"},
    {"qwen2.5-0.5b-instruct",
     "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e6},"
     " \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0}}",
     "rope_parameters"},
    /* beside rope_scaling nobody reads rope_parameters: all take the default as the base */
    {"llama-3.2-1b-instruct", "{\"rope_theta\": null, \"rope_parameters\": {\"rope_theta\": 5e5}}",
     "rope_parameters.rope_theta"},
    /* transformers convolves with hidden_act in linear layers */
    {"llama-2-7b-hf", "{\"model_type\": \"qwen3_next\", \"hidden_act\": \"gelu\"}", "hidden_act"},
    /* one window for all layers, whatever is listed */
    {"mistral-7b-v0.1",
     "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2,"
     " \"layer_types\": [\"sliding_attention\", \"full_attention\"]}",
     "layer_types"},
    {"mistral-7b-v0.1",
     "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 1, \"use_sliding_window\": true,"
     " \"layer_types\": [\"full_attention\"]}",
     "layer_types"},
    {"t5-small", "{\"is_encoder_decoder\": false}", "is_encoder_decoder"},
    {"flan-t5-small", "{\"dense_act_fn\": \"relu\"}", "dense_act_fn"},
    {"flan-t5-small", "{\"is_gated_act\": false}", "is_gated_act"},
    {"t5-small", "{\"dense_act_fn\": \"gelu\"}", "dense_act_fn"},
    /* other families' names: this family's readers take the default */
    {"pythia-160m", "{\"rotary_emb_base\": null, \"rope_theta\": 500}", "rope_theta"},
    {"pythia-160m", "{\"rotary_pct\": 0.3}", "partial_rotary_factor"}, /* 19 of 64 */
    {"phi-2", "{\"partial_rotary_factor\": null, \"rotary_pct\": 0.25}", "rotary_pct"},
    {"llama-2-7b-hf", "{\"rms_norm_eps\": null, \"layer_norm_eps\": 1e-3}", "layer_norm_eps"},
    {"gpt2", "{\"activation_function\": null, \"hidden_act\": \"relu\"}", "hidden_act"},
    {"llama-2-7b-hf", "{\"hidden_act\": null, \"activation_function\": \"gelu\"}",
     "activation_function"},
    {"t5-small", "{\"hidden_act\": \"gelu\"}", "hidden_act"},
    {"openelm-270m", "{\"hidden_act\": \"silu\"}", "hidden_act"},
    {"gemma-3-270m", "{\"rope_parameters\": {\"rope_theta\": 777, \"rope_type\": \"default\"}}",
     "rope_parameters"},
    {"qwen2.5-0.5b-instruct",
     "{\"num_hidden_layers\": 1, \"layer_types\": [\"sliding_attention\"]}", "use_sliding_window"},
    /* what only the user of a file may say */
    {"gpt2", "{\"ignore_keys\": [\"x\"], \"x\": 1}", "ignore_keys"},
    {"gpt2", "{\"preset\": \"gpt2-xl\"}", "preset"},
    /* no family */
    {"llama-7b", "{\"model_type\": null}", "model_type"},
    {"llama-7b", "{\"model_type\": 7}", "model_type"},
    {"llama-7b", "{\"athanor\": [\"qk_norm\"]}", "athanor"},
    /* values */
    {"gpt2", "{\"n_embd\": 0}", "hidden_size"},
    {"gpt2", "{\"n_embd\": -768}", "hidden_size"},
    {"gpt2", "{\"n_layer\": 9223372036854775807}", "num_hidden_layers"},
    {"gpt2", "{\"n_layer\": 1e300}", "num_hidden_layers"},
    {"gpt2", "{\"n_head\": 7}", "num_attention_heads"},
    {"t5-small", "{\"decoder_start_token_id\": 32128}", "decoder_start_id"},
    {"t5-small", "{\"decoder_start_token_id\": null, \"pad_token_id\": 32128}", "pad_token_id"},
    {"smollm2-135m", "{\"num_key_value_heads\": 4}", "num_key_value_heads"},
    {"smollm2-135m", "{\"num_key_value_heads\": 0}", "num_key_value_heads"},
    {"smollm2-135m", "{\"head_dim\": 63}", "head_dim"},
    {"smollm2-135m", "{\"rope_theta\": 0}", "rope_theta"},
    {"smollm2-135m",
     "{\"vocab_size\": 16777216, \"hidden_size\": 1048576, \"head_dim\": 1024,"
     " \"num_attention_heads\": 65536, \"num_key_value_heads\": 65536,"
     " \"num_hidden_layers\": 4096, \"intermediate_size\": 4194304}",
     "hidden_size"},
    {"gemma-2-2b", "{\"num_hidden_layers\": 1000000000000}", "num_hidden_layers"},
    {"gemma-3-270m", "{\"layer_types\": [\"full_attention\"]}", "layer_types"},
    {"gemma-3-270m", "{\"layer_types\": \"full_attention\"}", "layer_types"},
    {"gemma-3-1b-it", "{\"sliding_window_pattern\": 0}", "sliding_window_pattern"},
    {"gemma-3-270m", "{\"rope_local_base_freq\": 1e-300}", "rope_local_base_freq"},
    {"gemma-3-1b-it", "{\"sliding_window_pattern\": \"six\"}", "sliding_window_pattern"},
    {"qwen2.5-0.5b-instruct", "{\"use_sliding_window\": true, \"max_window_layers\": 2.5}",
     "max_window_layers"},
    {"smollm3-3b", "{\"no_rope_layers\": null, \"no_rope_layer_interval\": [4]}",
     "no_rope_layer_interval"},
    {"smollm3-3b", "{\"no_rope_layers\": [1, 0]}", "no_rope_layers"},
    {"smollm3-3b", "{\"use_sliding_window\": \"yes\"}", "use_sliding_window"},
    {"openelm-270m", "{\"ffn_multipliers\": 1e300}", "ffn_multipliers"},
    {"openelm-270m", "{\"ffn_multipliers\": [1, 2, 3]}", "ffn_multipliers"},
    {"openelm-270m", "{\"ffn_dim_divisor\": 0}", "ffn_dim_divisor"},
    {"llama-3.2-1b-instruct", "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}",
     "rope_scaling.low_freq_factor"},
};

static void test_refusals(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(refused); i++) {
        arena *a = arena_new("published");
        model_config mc;
        err e = {0};
        char where[128];
        if (read_changed(refused[i].name, refused[i].change, &mc, a, &e) == ST_OK)
            fail_msg("%s with %s is accepted", refused[i].name, refused[i].change);
        snprintf(where, sizeof where, "model.%s", refused[i].where);
        if (strcmp(e.where, where) != 0)
            fail_msg("%s: at %s: %s", refused[i].change, e.where, e.message);
        arena_free(a);
    }
}

/* Keys that other readers do not read, and nulls. */
static const struct {
    const char *name, *change;
} harmless[] = {
    {"gpt2", "{\"n_ctx\": 512, \"pruned_heads\": {}, \"top_k\": 50, \"torchscript\": false}"},
    {"gpt2", "{\"n_inner\": null, \"some_new_key\": null}"},
    {"gemma-2-2b", "{\"hidden_act\": \"gelu\"}"},
    {"gemma-3-270m", "{\"attn_logit_softcapping\": 50.0}"},
    {"smollm2-135m", "{\"head_dim\": null, \"rope_parameters\": {\"rope_theta\": 100000.0}}"},
    {"qwen2.5-0.5b-instruct", "{\"layer_types\": null, \"sliding_window\": null}"},
    {"smollm3-3b", "{\"no_rope_layers\": null, \"layer_types\": null}"},
    {"mobilellm-125m", "{\"tie_word_embeddings\": true}"},
    {"llama-7b", "{\"use_sliding_window\": false}"},
    {"llama-7b", "{\"norm_topk_prob\": null}"},
};

static void test_harmless(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(harmless); i++) {
        arena *a = arena_new("published");
        model_config mc, changed;
        err e = {0};
        read_published(a, harmless[i].name, &mc);
        if (read_changed(harmless[i].name, harmless[i].change, &changed, a, &e) != ST_OK)
            fail_msg("%s: %s", harmless[i].change, e.message);
        json_t *x = model_config_json(&mc, 1, 2, DT_F32);
        json_t *y = model_config_json(&changed, 1, 2, DT_F32);
        if (!json_equal(x, y)) fail_msg("%s changes the model", harmless[i].change);
        json_decref(x);
        json_decref(y);
        arena_free(a);
    }
}

static void read_user(arena *a, const char *text, model_config *mc) {
    json_t *o = json_loads(text, 0, NULL);
    err e = {0};
    assert_non_null(o);
    if (model_config_read(a, o, 0, mc, &e) != ST_OK) fail_msg("%s: %s", text, e.message);
    json_decref(o);
}

/* One number for all layers overrules layer_types, as a list does. */
static void check_linear(arena *a) {
    static const char *const chosen[] = {"", ", \"linear_layers\": 0", ", \"linear_layers\": 1",
                                         ", \"linear_layers\": [0, 1]"};
    static const bool want[][2] = {{true, false}, {false, false}, {true, true}, {false, true}};
    for (int i = 0; i < ARRAY_LEN(chosen); i++) {
        model_config mc;
        read_user(a,
                  arena_printf(a,
                               "{\"model_type\": \"qwen3_next\", \"num_hidden_layers\": 2, "
                               "\"layer_types\": [\"linear_attention\", \"full_attention\"]%s}",
                               chosen[i]),
                  &mc);
        for (int l = 0; l < 2; l++) assert_int_equal(model_layer(&mc, l).linear.Hv > 0, want[i][l]);
    }
}

/* What the user says counts, whatever the base says it with. */
static void test_user_keys(void **state) {
    (void)state;
    arena *a = arena_new("published");
    model_config mc;
    read_user(a, "{\"preset\": \"pythia-14m\", \"residual_type\": \"sequential\"}", &mc);
    assert_int_equal(mc.residual, RESIDUAL_SEQUENTIAL);
    read_user(a, "{\"preset\": \"mobilellm-125m\", \"tie_word_embeddings\": false}", &mc);
    assert_false(mc.tie_word_embeddings);
    read_user(a, "{\"preset\": \"qwen2.5-0.5b\", \"sliding_window\": 128}", &mc);
    assert_int_equal(model_layer(&mc, 3).attn.window, 128);
    read_user(a, "{\"preset\": \"llama-3.2-1b\", \"rope_scaling\": null}", &mc);
    assert_int_equal(mc.rope.kind, ROPE_PLAIN);
    assert_true(mc.rope_theta == 5e5);
    read_user(a,
              "{\"preset\": \"llama-3.2-1b\", \"rope_parameters\": {\"rope_type\": \"linear\","
              " \"factor\": 2.0}}",
              &mc);
    assert_true(mc.rope.kind == ROPE_LINEAR && mc.rope.factor == 2 && mc.rope_theta == 5e5);
    read_user(a, "{\"preset\": \"mini.llm-1.4b\", \"max_position_embeddings\": 512}", &mc);
    assert_int_equal(mc.max_position_embeddings, 512);
    check_linear(a);
    arena_free(a);
}

/* A family under another publisher's name is written under its own. */
static void test_names(void **state) {
    (void)state;
    arena *a = arena_new("published");
    model_config mc;
    read_user(a, "{\"model_type\": \"kimi_k2\"}", &mc);
    assert_string_equal(mc.family->model_type, "deepseek_v3");
    read_user(a, "{\"model_type\": \"ministral\"}", &mc);
    assert_string_equal(mc.family->model_type, "mistral");
    arena_free(a);
}

/* A key inside of another is ignored by its path. */
static void test_ignored_inside(void **state) {
    (void)state;
    arena *a = arena_new("published");
    char dir[] = "/tmp/athanor-ignored-XXXXXX";
    assert_non_null(mkdtemp(dir));
    static const char text[] =
        "{\"model_type\": \"qwen3\", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0,"
        " \"original_max_position_embeddings\": 32768, \"attn_factor\": 0.9}}";
    char *path = path_join(a, dir, "config.json");
    model_config mc;
    err e;
    assert_int_equal(file_write_atomic(path, text, strlen(text), &e), ST_OK);
    read_user(
        a,
        arena_printf(a, "{\"from\": \"%s\", \"ignore_keys\": [\"rope_scaling.attn_factor\"]}", dir),
        &mc);
    assert_true(mc.rope.kind == ROPE_YARN && mc.rope.factor == 4);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    arena_free(a);
}

/* Mistral's config.json says which layers have the window, where not all have it. */
static void test_some_windows(void **state) {
    (void)state;
    arena *a = arena_new("published");
    model_config mc, again;
    err e = {0};
    status st = read_changed("mistral-7b-v0.1",
                             "{\"num_hidden_layers\": 2,"
                             " \"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
                             &mc, a, &e);
    if (st != ST_OK) fail_msg("%s", e.message);
    json_t *o = model_config_json(&mc, 1, 2, DT_F32);
    assert_null(json_object_get(o, "athanor"));
    assert_int_equal(json_array_size(json_object_get(o, "layer_types")), 2);
    if (model_config_read_file(a, o, &again, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(model_layer(&again, 0).attn.window, 0);
    assert_int_equal(model_layer(&again, 1).attn.window, 4096);
    json_decref(o);
    arena_free(a);
}

/* Experts as wide as other parts: config.json says how wide that is. */
static void test_expert_width(void **state) {
    (void)state;
    static const char *const types[] = {"qwen2_moe", "qwen3_moe", "qwen3_next", "deepseek_v3"};
    for (int i = 0; i < ARRAY_LEN(types); i++) {
        arena *a = arena_new("published");
        model_config mc;
        read_user(a,
                  arena_printf(a,
                               "{\"model_type\": \"%s\", \"moe_intermediate_size\": 0, "
                               "\"intermediate_size\": 48}",
                               types[i]),
                  &mc);
        json_t *o = model_config_json(&mc, 1, 2, DT_F32);
        assert_int_equal(json_integer_value(json_object_get(o, "moe_intermediate_size")), 48);
        json_decref(o);
        arena_free(a);
    }
}

/* A number is the same however it is written, also where a family makes a pattern of it. */
static void test_numbers(void **state) {
    (void)state;
    static const char *const models[][2] = {
        {"\"model_type\": \"gemma2\", \"sliding_window\": 2000",
         "\"model_type\": \"gemma2\", \"sliding_window\": \"2k\""},
        {"\"model_type\": \"gemma3_text\", \"sliding_window\": 20, \"sliding_window_pattern\": 2",
         "\"model_type\": \"gemma3_text\", \"sliding_window\": 20.0, \"sliding_window_pattern\": "
         "\"2\""},
        {"\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": 64, "
         "\"max_window_layers\": 1",
         "\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": \"64\", "
         "\"max_window_layers\": 1.0"},
        {"\"model_type\": \"qwen3\", \"use_sliding_window\": true, \"sliding_window\": 64, "
         "\"layer_types\": "
         "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"full_attention\"]",
         "\"model_type\": \"qwen3\", \"use_sliding_window\": true, \"sliding_window\": 64.0, "
         "\"layer_types\": "
         "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"full_attention\"]"},
        {"\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 0, 1, 1], \"use_sliding_window\": "
         "true, \"sliding_window\": 9",
         "\"model_type\": \"smollm3\", \"no_rope_layers\": [1.0, 0.0, 1.0, 1.0], "
         "\"use_sliding_window\": true, \"sliding_window\": \"9\""},
        {"\"model_type\": \"qwen3_moe\", \"decoder_sparse_step\": 2",
         "\"model_type\": \"qwen3_moe\", \"decoder_sparse_step\": 2.0"},
        {"\"model_type\": \"deepseek_v3\", \"first_k_dense_replace\": 1",
         "\"model_type\": \"deepseek_v3\", \"first_k_dense_replace\": \"1\""},
    };
    for (int i = 0; i < ARRAY_LEN(models); i++) {
        arena *a = arena_new("published");
        json_t *said[2];
        for (int k = 0; k < 2; k++) {
            model_config mc;
            read_user(a, arena_printf(a, "{\"num_hidden_layers\": 4, %s}", models[i][k]), &mc);
            said[k] = model_config_json(&mc, 1, 2, DT_F32);
        }
        if (!json_equal(said[0], said[1])) fail_msg("%s is another model", models[i][1]);
        json_decref(said[0]);
        json_decref(said[1]);
        arena_free(a);
    }
}

/* A rule or a width of the user overrules the list of a base. */
static void test_overruled_lists(void **state) {
    (void)state;
    static const struct {
        const char *name, *change, *user;
        int windows, no_rope, linear, experts; /* layers, of eight */
    } cases[] = {
        {"qwen2", "\"use_sliding_window\": true, \"sliding_window\": 4, \"max_window_layers\": 6",
         "\"max_window_layers\": 3", 5, 0, 0, 0},
        {"qwen2", "\"use_sliding_window\": true, \"sliding_window\": 4, \"max_window_layers\": 6",
         "\"sliding_window\": 0", 0, 0, 0, 0},
        {"gemma3_text", "\"sliding_window\": 4", "\"sliding_window_pattern\": 2", 4, 0, 0, 0},
        {"gemma3_text", "\"sliding_window\": 4", "\"sliding_window\": null", 0, 0, 0, 0},
        {"gemma3_text", "\"sliding_window\": 4", "\"sliding_window\": 5", 7, 0, 0, 0},
        {"smollm3", "\"no_rope_layer_interval\": 4", "\"no_rope_layer_interval\": 2", 0, 4, 0, 0},
        {"qwen3_next", "\"full_attention_interval\": 4", "\"full_attention_interval\": 2", 0, 0, 4,
         8},
        {"deepseek_v3", "\"first_k_dense_replace\": 3", "\"first_k_dense_replace\": 1", 0, 0, 0, 7},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        arena *a = arena_new("published");
        char dir[] = "/tmp/athanor-lists-XXXXXX";
        assert_non_null(mkdtemp(dir));
        model_config mc;
        err e;
        read_user(a,
                  arena_printf(a, "{\"model_type\": \"%s\", \"num_hidden_layers\": 8, %s}",
                               cases[i].name, cases[i].change),
                  &mc);
        json_t *o = model_config_json(&mc, 1, 2, DT_F32); /* as the base lists its layers */
        char *path = path_join(a, dir, "config.json"), *text = json_dumps(o, 0);
        assert_int_equal(file_write_atomic(path, text, strlen(text), &e), ST_OK);
        read_user(a, arena_printf(a, "{\"from\": \"%s\", %s}", dir, cases[i].user), &mc);
        int windows = 0, no_rope = 0, linear = 0, experts = 0;
        for (int l = 0; l < 8; l++) {
            layer_spec k = model_layer(&mc, l);
            windows += k.attn.window > 0;
            no_rope += mc.rope_layers_of && !mc.rope_layers_of[l];
            linear += k.linear.Hv > 0;
            experts += k.mlp.E > 0;
        }
        if (windows != cases[i].windows || no_rope != cases[i].no_rope ||
            linear != cases[i].linear || experts != cases[i].experts)
            fail_msg("%s with %s: %d, %d, %d, %d", cases[i].name, cases[i].user, windows, no_rope,
                     linear, experts);
        free(text);
        json_decref(o);
        assert_int_equal(file_remove_tree(dir, &e), ST_OK);
        arena_free(a);
    }
}

/* What null means in classes of transformers where it is not their default; and a default of its own. */
static void test_nulls(void **state) {
    (void)state;
    arena *a = arena_new("published");
    model_config mc;
    read_user(a, "{\"model_type\": \"minicpm3\", \"scale_depth\": null, \"dim_model_base\": null}",
              &mc);
    assert_true(mc.scale_depth == 0 && mc.dim_model_base == 0);
    read_user(
        a, "{\"model_type\": \"deepseek_v3\", \"norm_topk_prob\": null, \"rope_interleave\": null}",
        &mc);
    assert_false(mc.norm_topk_prob || mc.rope_interleaved);
    read_user(a, "{\"model_type\": \"t5\", \"scale_decoder_outputs\": null}", &mc);
    assert_false(mc.scale_decoder_outputs);
    json_t *o = json_loads("{\"model_type\": \"mixtral\", \"norm_topk_prob\": null}", 0, NULL);
    err e = {0};
    assert_int_equal(model_config_read_file(a, o, &mc, &e), ST_OK);
    assert_true(mc.norm_topk_prob); /* no key of its own */
    json_decref(o);
    read_user(a, "{\"model_type\": \"mt5\", \"pad_token_id\": 3}", &mc);
    assert_int_equal(mc.decoder_start_id, 0);
    arena_free(a);
}

/* Rotary bases of a file: each kind of layer has its own default, and what stands inside an object
 * counts where the key on top is null. */
static void test_rope_bases(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double theta, local;
    } files[] = {
        {"{\"model_type\": \"gemma3_text\", \"rope_parameters\": {\"full_attention\":"
         " {\"rope_type\": \"default\"}, \"sliding_attention\": {\"rope_type\": \"default\"}}}",
         1e6, 1e4},
        {"{\"model_type\": \"gemma3_text\", \"rope_local_base_freq\": null, \"rope_parameters\":"
         " {\"full_attention\": {\"rope_theta\": 5e5}, \"sliding_attention\": {\"rope_theta\":"
         " 300}}}",
         5e5, 300},
        {"{\"model_type\": \"llama\", \"rope_theta\": null, \"rope_parameters\": {\"rope_type\":"
         " \"default\", \"rope_theta\": 700}}",
         700, 0},
    };
    for (int i = 0; i < ARRAY_LEN(files); i++) {
        arena *a = arena_new("published");
        model_config mc;
        err e = {0};
        json_t *o = json_loads(files[i].text, 0, NULL);
        if (model_config_read_file(a, o, &mc, &e) != ST_OK) fail_msg("%d: %s", i, e.message);
        assert_true(mc.rope_theta == files[i].theta);
        assert_true(mc.rope_local_theta == files[i].local);
        json_decref(o);
        arena_free(a);
    }
}

/* Values that a family's config.json cannot say come back all the same. */
static void test_extensions(void **state) {
    (void)state;
    static const struct {
        const char *model, *extension; /* NULL: config.json says it */
    } cases[] = {
        {"{\"preset\": \"pythia-14m\", \"residual_type\": \"parallel_shared\"}", "residual_type"},
        {"{\"preset\": \"phi-1\", \"qk_norm\": \"full\"}", "qk_norm"},
        {"{\"preset\": \"phi-1\", \"qk_norm\": \"head\"}", NULL},
        {"{\"preset\": \"mobilellm-125m\", \"block_repeat\": 3}", "block_repeat"},
        {"{\"preset\": \"mobilellm-125m\", \"block_repeat\": 2}", NULL},
        {"{\"preset\": \"gemma-3-4b\", \"rope_local_base_freq\": 0}", "rope_local_base_freq"},
        {"{\"preset\": \"gemma-3-4b\", \"query_pre_attn_scalar\": 11.5}", "query_pre_attn_scalar"},
        {"{\"preset\": \"gemma-3-4b\", \"query_pre_attn_scalar\": 144}", NULL},
        {"{\"preset\": \"smollm2-135m\", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
        {"{\"model_type\": \"qwen3\", \"vocab_size\": 99, \"num_hidden_layers\": 3,"
         " \"sliding_window\": [4, 0, 8]}",
         "sliding_window"},
        {"{\"model_type\": \"qwen3\", \"vocab_size\": 99, \"num_hidden_layers\": 3,"
         " \"sliding_window\": [0, 8, 8]}",
         NULL},
        {"{\"model_type\": \"minicpm\", \"vocab_size\": 99, \"scale_depth\": 0,"
         " \"dim_model_base\": 0}",
         NULL},
        {"{\"model_type\": \"mixtral\", \"num_experts\": 0}", "num_experts"},
        {"{\"model_type\": \"olmoe\", \"num_experts\": 0}", "num_experts"},
        {"{\"model_type\": \"qwen2_moe\", \"num_experts\": 0}", NULL},
        {"{\"preset\": \"openelm-270m\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
         "rope_scaling"},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        arena *a = arena_new("published");
        model_config mc, again;
        err e = {0};
        read_user(a, cases[i].model, &mc);
        json_t *once = model_config_json(&mc, 1, 2, DT_F32);
        const char *key = json_object_iter_key(json_object_iter(json_object_get(once, "athanor")));
        bool as_wanted =
            cases[i].extension ? key && strcmp(key, cases[i].extension) == 0 : key == NULL;
        if (!as_wanted) fail_msg("%s: extension %s", cases[i].model, key ? key : "none");
        if (model_config_read_file(a, once, &again, &e) != ST_OK)
            fail_msg("%s: %s", cases[i].model, e.message);
        json_t *twice = model_config_json(&again, 1, 2, DT_F32);
        if (!json_equal(once, twice)) fail_msg("%s comes back otherwise", cases[i].model);
        json_decref(once);
        json_decref(twice);
        arena_free(a);
    }
}

/* The publishers' class makes OpenELM's heads of multipliers: those that we write give them. */
static void test_openelm_multipliers(void **state) {
    (void)state;
    arena *a = arena_new("published");
    model_config mc, again;
    err e = {0};
    read_published(a, "openelm-270m", &mc);
    json_t *o = model_config_json(&mc, 1, 2, DT_F32);
    assert_non_null(json_object_get(o, "qkv_multipliers"));
    json_object_del(o, "num_query_heads");
    json_object_del(o, "num_kv_heads");
    assert_int_equal(model_config_read_file(a, o, &again, &e), ST_OK);
    for (int l = 0; l < 16; l++) {
        assert_int_equal(model_layer(&again, l).attn.H, model_layer(&mc, l).attn.H);
        assert_int_equal(model_layer(&again, l).attn.K, model_layer(&mc, l).attn.K);
    }
    json_decref(o);
    arena_free(a);
}

/* Beyond seq_length the publishers' code scales queries and frequencies, unless both are off. */
static void test_qwen_lengths(void **state) {
    (void)state;
    static const struct {
        const char *change;
        int64_t ntk, logn;
    } cases[] = {
        {"{\"seq_length\": 2048}", 2048, 2048},
        {"{\"seq_length\": 2048, \"use_dynamic_ntk\": false}", 0, 2048},
        {"{\"seq_length\": 2048, \"use_logn_attn\": false}", 2048, 0},
        {"{\"seq_length\": 2048, \"use_dynamic_ntk\": null, \"use_logn_attn\": null}", 2048, 2048},
        {"{\"seq_length\": 2048, \"use_dynamic_ntk\": false, \"use_logn_attn\": false}", 0, 0},
        {"{\"seq_length\": 32768}", 0, 0},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        arena *a = arena_new("lengths");
        model_config mc;
        err e = {0};
        if (read_changed("qwen-1_8b", cases[i].change, &mc, a, &e) != ST_OK)
            fail_msg("%s: %s", cases[i].change, e.message);
        assert_int_equal(mc.max_position_embeddings, 8192);
        assert_int_equal(mc.rope.kind, cases[i].ntk ? ROPE_DOUBLING : ROPE_PLAIN);
        assert_int_equal(mc.rope.original_max_position_embeddings, cases[i].ntk);
        assert_int_equal(mc.logn_length, cases[i].logn);
        arena_free(a);
    }
}

/* Widths as the publishers' code has them: NumPy rounds 1.575 to 1.58, Python to 1.57. */
static void test_openelm_rounding(void **state) {
    (void)state;
    static const char *const text =
        "{\"model_type\": \"openelm\", \"model_dim\": 96, \"head_dim\": 8, \"vocab_size\": 64,"
        " \"num_transformer_layers\": 3, \"qkv_multipliers\": 1.0, \"num_gqa_groups\": 3,"
        " \"ffn_multipliers\": [1.918, 1.575], \"ffn_dim_divisor\": 2}";
    static const int64_t want[] = {184, 168, 152};
    arena *a = arena_new("rounding");
    json_t *o = json_loads(text, 0, NULL);
    model_config mc;
    err e = {0};
    assert_non_null(o);
    if (model_config_read_file(a, o, &mc, &e) != ST_OK) fail_msg("%s", e.message);
    for (int l = 0; l < 3; l++) assert_int_equal(model_layer(&mc, l).mlp.F, want[l]);
    json_decref(o);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_harmless),
        cmocka_unit_test(test_user_keys),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_ignored_inside),
        cmocka_unit_test(test_some_windows),
        cmocka_unit_test(test_expert_width),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_overruled_lists),
        cmocka_unit_test(test_nulls),
        cmocka_unit_test(test_rope_bases),
        cmocka_unit_test(test_extensions),
        cmocka_unit_test(test_openelm_multipliers),
        cmocka_unit_test(test_openelm_rounding),
        cmocka_unit_test(test_qwen_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
