/* The config: defaults, typing, ranges, errors with line and nearest key, overrides, provenance,
 * differences, schema against table, round trip. */
#include "test.h"

#include "base/yaml.h"
#include "data/order/loader.h"
#include "optim/lr_schedule.h"
#include "run/config/config.h"

/* Loads YAML text with at most two overrides. */
static status load(config **c, const char *text, const char *o1, const char *o2, err *e) {
    const char *overrides[2] = {o1, o2};
    json_t *root, *origins;
    memset(e, 0, sizeof *e);
    *c = NULL;
    TRY(yaml_parse(&root, &origins, "t.yaml", text, strlen(text), e));
    status st = config_from_json(c, root, origins, "t.yaml", overrides, !!o1 + !!o2, e);
    json_decref(root);
    json_decref(origins);
    return st;
}

static config *must_load(const char *text, const char *o1, const char *o2) {
    config *c;
    err e;
    if (load(&c, text, o1, o2, &e) != ST_OK) fail_msg("%s", e.message);
    return c;
}

static const char FULL[] = "run: runs/tiny\n"
                           "model:\n"
                           "  preset: smollm2-135m\n"
                           "  vocab_size: auto\n"
                           "tokenizer: tok.json\n"
                           "data:\n"
                           "  train: [{path: shards/a, weight: 3}, shards/b]\n"
                           "  packing: none\n"
                           "train:\n"
                           "  tokens: 10B\n"
                           "  global_batch_size: 64\n"
                           "  precision: {compute: bf16, optim: fp32}\n"
                           "optim:\n"
                           "  lr: 1e-3\n"
                           "  schedule: {kind: multistep, milestones: [1k, 2k], gamma: 0.5}\n"
                           "stages:\n"
                           "  - {name: warm, until: {tokens: 1B}, optim: {lr: 2e-3}}\n"
                           "  - {name: long, until: {tokens: 10B}, train: {seq_len: 8Ki},\n"
                           "     model: {rope_theta: 500000}}\n"
                           "parallel: {dp: 4}\n"
                           "sample: {prompts: 'Once upon'}\n";

static void test_defaults(void **state) {
    (void)state;
    config *c = must_load("", NULL, NULL);
    assert_null(c->run);
    assert_int_equal(c->train.steps, 0);
    assert_int_equal(c->train.seed, 1337);
    assert_int_equal(c->train.micro_batch_size, CONFIG_AUTO);
    assert_int_equal(c->parallel.dp, CONFIG_AUTO);
    assert_true(c->optim.lr == 3e-4);
    assert_int_equal(c->optim.betas.n, 2);
    assert_true(c->optim.betas.items[1] == 0.95);
    assert_string_equal(c->optim.no_decay.items[0], "*.bias");
    assert_int_equal(c->optim.schedule.kind, SCHEDULE_WSD);
    assert_true(c->data.document_mask);
    assert_int_equal(json_object_size(c->model), 0);
    assert_string_equal(config_where(c, "train.seed"), "default");
    config_free(c);
}

static void test_values(void **state) {
    (void)state;
    config *c = must_load(FULL, NULL, NULL);
    assert_string_equal(c->run, "runs/tiny");
    assert_int_equal(c->data.train.n, 2);
    assert_true(c->data.train.items[0].weight == 3.0);
    assert_string_equal(c->data.train.items[1].path, "shards/b");
    assert_true(c->data.train.items[1].weight == 1.0);
    assert_int_equal(c->data.packing, PACKING_NONE);
    assert_true(c->train.tokens == 10000000000);
    assert_int_equal(c->train.precision.compute, CONFIG_PRECISION_BF16);
    assert_int_equal(c->train.precision.params, CONFIG_PRECISION_AUTO);
    assert_int_equal(c->train.precision.optim, CONFIG_PRECISION_FP32);
    assert_int_equal(c->optim.schedule.milestones.n, 2);
    assert_int_equal(c->optim.schedule.milestones.items[1], 2000);
    assert_int_equal(c->stages.n, 2);
    assert_true(c->stages.items[0].until.tokens == 1000000000);
    assert_non_null(json_object_get(c->stages.items[1].changes, "train"));
    assert_null(json_object_get(c->stages.items[1].changes, "until"));
    assert_int_equal(c->sample.prompts.n, 1);
    assert_string_equal(json_string_value(json_object_get(c->model, "preset")), "smollm2-135m");
    config_free(c);
}

static void test_suffixes(void **state) {
    (void)state;
    config *c =
        must_load("train: {steps: 0.5M, seq_len: 64Ki, memory_limit: 8Gi, seed: 64k}", NULL, NULL);
    assert_int_equal(c->train.steps, 500000);
    assert_int_equal(c->train.seq_len, 65536);
    assert_true(c->train.memory_limit == 8589934592);
    assert_int_equal(c->train.seed, 64000);
    config_free(c);
}

/* Each error names the key, the line and, where there is one, the nearest right word. */
static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *text, *message, *where, *hint;
    } cases[] = {
        {"run: x\ntrain:\n  stps: 3\n", "unknown key 'train.stps' (t.yaml:3); nearest: train.steps",
         "t.yaml:3", "train.steps"},
        {"trian: {steps: 3}\n", "unknown key 'trian' (t.yaml:1); nearest: train", "t.yaml:1", ""},
        {"seq_len: 3\n", "nearest: train.seq_len", "t.yaml:1", "train.seq_len"},
        {"optim: {learning_rate: 1}\n", "unknown key 'optim.learning_rate'", "t.yaml:1", ""},
        {"optim:\n  schedule: {kindd: wsd}\n", "nearest: optim.schedule.kind", "t.yaml:2", ""},
        {"architectures: [LlamaForCausalLM]\n", "unknown key 'architectures' (t.yaml:1)",
         "t.yaml:1", "called config.json"},
        {"model_type: llama\n", "unknown key 'model_type' (t.yaml:1)", "t.yaml:1", "under model:"},
        {"qqqqqqqq: 3\n", "unknown key 'qqqqqqqq' (t.yaml:1)", "t.yaml:1", "schema"},
        {"run: x\ntrain.steps: 3\n", "the key 'train.steps' has a dot", "t.yaml:2",
         "write 'train:', and 'steps: ...' indented"},
        {"optim: {schedule.kind: wsd}\n", "the key 'schedule.kind' has a dot", "t.yaml:1", ""},
        {"stages: [{name: a, optim: {schedule.kind: wsd}}]\n", "the key 'schedule.kind' has a dot",
         "t.yaml:1 (stages.0.optim.schedule.kind)", ""},
        {"train:\n  steps: many\n", "'train.steps' must be an integer of at least 1, not \"many\"",
         "t.yaml:2 (train.steps)", ""},
        {"train: {steps: 1.5}\n", "'train.steps' must be an integer", "t.yaml:1", ""},
        {"train: {steps: [1]}\n", "'train.steps' must be an integer", "t.yaml:1", ""},
        {"train: {deterministic: no}\n", "must be true or false, not \"no\"", "t.yaml:1", ""},
        {"train: 5\n", "'train' must be an object", "t.yaml:1 (train)", ""},
        {"run: 5\n", "'run' must be a text", "t.yaml:1", ""},
        {"\n\nmodel: llama\n", "'model' must be an object", "t.yaml:3", "`model: {preset: ...}`"},
        {"optim: {schedule: cosine}\n", "'optim.schedule' must be an object", "t.yaml:1",
         "`schedule: {kind: ...}`"},
        {"stages: [{name: a, until: {steps: 1}, trian: {seq_len: 8}}]\n",
         "unknown key 'stages.0.trian'", "t.yaml:1", "'stages.0.train'"},
        {"device: gpu\n", "one of auto, cpu, cuda, not \"gpu\"", "t.yaml:1", "it means"},
        {"train: {steps: 0}\n", "of at least 1, not 0", "t.yaml:1", ""},
        {"parallel: {zero: 4}\n", "from 0 to 3, not 4", "t.yaml:1", ""},
        {"optim: {betas: [0.9, 1.5]}\n", "'optim.betas' must be a list of numbers", "t.yaml:1", ""},
        {"optim: {betas: [0.9]}\n", "must have 2 numbers, not 1", "t.yaml:1", ""},
        {"data: {packing: conct}\n", "one of concat, bestfit, none", "t.yaml:1", "'concat'"},
        {"train: {precision: bf15}\n", "not \"bf15\"", "t.yaml:1 (train.precision.compute)",
         "'bf16'"},
        {"data: {train: [{weight: 1}]}\n", "'data.train.0' has no path", "t.yaml:1", ""},
        {"data:\n  train:\n    - {path: a}\n    - {path: b, wieght: 1}\n",
         "unknown key 'data.train.1.wieght'", "t.yaml:4", ""},
        {"train: {steps: 5, tokens: 5}\n", "exclude each other", "t.yaml:1", "all but one"},
        {"train: {micro_batch_size: 5}\n", "not a multiple", "t.yaml:1", "is 4"},
        {"train: {loss_scale: {min_scale: 1e6}}\n", "is above init_scale", "t.yaml:1", ""},
        {"optim: {lr: 0.1, schedule: {min_lr: 0.5}}\n", "is above optim.lr", "t.yaml:1", ""},
        {"optim: {schedule: {kind: multistep}}\n", "needs optim.schedule.milestones", "t.yaml", ""},
        {"stages: [{name: a, until: {steps: 1}, optim: {lrr: 1}}]\n",
         "unknown key 'stages.0.optim.lrr' (t.yaml:1); nearest: stages.0.optim.lr", "t.yaml:1", ""},
        {"stages: [{name: a, until: {steps: 1}, optim: {lr: x}}]\n",
         "'stages.0.optim.lr' must be a number", "t.yaml:1", ""},
        {"stages: [{name: a, until: {steps: 1, tokens: 1}}]\n", "exactly one of steps and tokens",
         "t.yaml:1", ""},
        {"stages: [{name: a}, {name: b}]\n", "stage a has no end", "t.yaml:1", ""},
        {"stages: [{name: a, until: {steps: 2}}, {name: b, until: {steps: 2}}]\n",
         "stage b would end before it begins", "t.yaml:1", "of the run"},
        {"stages: [{name: a, train: {seed: 1}}]\n", "a stage cannot change 'train.seed'",
         "t.yaml:1", "whole run"},
        {"stages: [{name: a, train: {seq_len: 0}}]\n", "stages.0.train.seq_len", "t.yaml:1", ""},
        {"stages: [{name: a, train: {global_batch_size: 6, micro_batch_size: 4}}]\n",
         "stage a: train.global_batch_size (6) is not a multiple", "t.yaml:1", "is 3"},
        {"train: {epochs: 1}\nstages: [{name: a}]\n", "a run in stages has no train.epochs",
         "t.yaml:1", "until"},
        {"optim: {restart: true}\n", "belongs into a stage", "t.yaml:1", ""},
        {"train: {batch_ramp: {start: 64}}\n", "is above train.global_batch_size", "t.yaml:1", ""},
        {"train: {batch_ramp: {start: 6}, micro_batch_size: 4}\n", "must be multiples of",
         "t.yaml:1", "auto"},
        {"stages: [{name: a, until: {steps: 1}, parallel: {tp: 2}}]\n",
         "a stage cannot change 'stages.0.parallel'", "t.yaml:1", ""},
        {"- 1\n", "t.yaml is not a config", "t.yaml", ""},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        config *c;
        err e;
        assert_int_equal(load(&c, cases[i].text, NULL, NULL, &e), ST_USAGE);
        assert_null(c);
        if (!strstr(e.message, cases[i].message)) fail_msg("%s: %s", cases[i].text, e.message);
        if (!strstr(e.where, cases[i].where)) fail_msg("%s: where %s", cases[i].text, e.where);
        if (!strstr(e.hint, cases[i].hint)) fail_msg("%s: hint %s", cases[i].text, e.hint);
    }
}

static void test_overrides(void **state) {
    (void)state;
    config *c = must_load(FULL, "data.train.1.weight=2", "train.precision=fp32");
    assert_true(c->data.train.items[1].weight == 2.0);
    assert_int_equal(c->train.precision.compute, CONFIG_PRECISION_FP32);
    assert_int_equal(c->train.precision.optim, CONFIG_PRECISION_AUTO);
    assert_string_equal(config_where(c, "data.train.1.weight"), "command line");
    assert_string_equal(config_where(c, "data.train.0.weight"), "t.yaml:7");
    config_free(c);
    c = must_load("", "sample.prompts.0=Once: upon", "optim.betas.1=0.99");
    assert_string_equal(c->sample.prompts.items[0], "Once: upon");
    assert_true(c->optim.betas.items[0] == 0.9 && c->optim.betas.items[1] == 0.99);
    config_free(c);
    c = must_load("run: a\n", "run=2024", "model.rope_scaling.factor=8");
    assert_string_equal(c->run, "2024");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(c->model, "rope_scaling"), "factor")),
        8);
    assert_string_equal(config_where(c, "model.rope_scaling.factor"), "command line");
    config_free(c);
    c = must_load("run: a\ntrain: {seed: 5}\n", "train.seed=null", "data.train=shards/x");
    assert_int_equal(c->train.seed, 1337);
    assert_string_equal(config_where(c, "train.seed"), "default");
    assert_string_equal(c->data.train.items[0].path, "shards/x");
    config_free(c);
}

static void test_override_errors(void **state) {
    (void)state;
    static const char *const bad[] = {
        "train.stps=3",   "train",          "=3",     "train.steps.x=3", "data.train.7.weight=2",
        "train..steps=2", "train.steps=[1", "a.b.c=1"};
    for (int i = 0; i < ARRAY_LEN(bad); i++) {
        config *c;
        err e;
        assert_int_equal(load(&c, "run: a\ntrain: {steps: 1}\n", bad[i], NULL, &e), ST_USAGE);
        if (!strstr(e.where, "command line")) fail_msg("%s: where %s", bad[i], e.where);
    }
}

static void test_length_of_the_run(void **state) {
    (void)state;
    config *c = must_load("train: {steps: 5}\n", "train.tokens=1M", NULL);
    assert_int_equal(c->train.steps, 0); /* the command line's length replaces the file's */
    assert_int_equal(c->train.tokens, 1000000);
    config_free(c);
    err e;
    assert_int_equal(load(&c, "", "train.tokens=1M", "train.steps=5", &e), ST_USAGE);
    c = must_load(FULL, "train.tokens=null", "stages=[]");
    assert_int_equal(config_check_train(c, &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "exactly one"));
    config_free(c);
    c = must_load(FULL, "train.tokens=null", NULL); /* its last stage ends it */
    assert_int_equal(config_check_train(c, &e), ST_OK);
    config_free(c);
    c = must_load(FULL, NULL, NULL);
    assert_int_equal(config_check_train(c, &e), ST_OK);
    config_free(c);
}

static void test_where(void **state) {
    (void)state;
    config *c = must_load(FULL, "optim.lr=1", NULL);
    assert_string_equal(config_where(c, "run"), "t.yaml:1");
    assert_string_equal(config_where(c, "model.vocab_size"), "t.yaml:4");
    assert_string_equal(config_where(c, "model.hidden_size"), "t.yaml:2");
    assert_string_equal(config_where(c, "optim.lr"), "command line");
    assert_string_equal(config_where(c, "optim.eps"), "default");
    assert_string_equal(config_where(c, "train.precision.compute"), "t.yaml:12");
    config_free(c);
}

static void test_round_trip(void **state) {
    (void)state;
    err e;
    config *a = must_load(FULL, "optim.eps=1.2345678901234567e-7", NULL), *b;
    json_t *json = config_to_json(a);
    char *yaml = config_to_yaml(a);
    assert_int_equal(config_from_json(&b, json, NULL, "resolved", NULL, 0, &e), ST_OK);
    json_t *again = config_to_json(b), *diff = config_diff(a, b);
    assert_true(json_equal(json, again));
    assert_int_equal(json_array_size(diff), 0);
    assert_string_equal(config_where(b, "optim.eps"), "resolved");
    config *c = must_load(yaml, NULL, NULL);
    json_t *third = config_to_json(c);
    assert_true(json_equal(json, third));
    json_t *all[] = {json, again, diff, third};
    for (int i = 0; i < ARRAY_LEN(all); i++) json_decref(all[i]);
    config *configs[] = {a, b, c};
    for (int i = 0; i < ARRAY_LEN(configs); i++) config_free(configs[i]);
    free(yaml);
}

/* Other readers of YAML end a line at U+2028, refuse DEL, and take Yes for true and 1e-08 for a text. */
static void test_yaml_for_other_readers(void **state) {
    (void)state;
    config *c = must_load("run: \"a\\u2028\\x7f\\u0085\\ufeff\\u00fc\"\ntokenizer: \"Yes\"\n"
                          "optim: {eps: 1e-8, betas: [0.9, 1e-7]}\n",
                          NULL, NULL);
    char *yaml = config_to_yaml(c);
    assert_non_null(strstr(yaml, "run: \"a\\u2028\\u007F\\u0085\\uFEFF\xc3\xbc\" "));
    assert_non_null(strstr(yaml, "tokenizer: \"Yes\" "));
    assert_non_null(strstr(yaml, "eps: 1.0e-08 "));
    assert_non_null(strstr(yaml, "betas: [0.9, 1.0e-07] "));
    free(yaml);
    config_free(c);
}

static void test_diff(void **state) {
    (void)state;
    config *a = must_load(FULL, NULL, NULL), *b = must_load(FULL, "optim.lr=2", "model.x=1");
    json_t *diff = config_diff(a, b);
    assert_int_equal(json_array_size(diff), 2);
    const char *keys[2];
    for (size_t i = 0; i < 2; i++)
        keys[i] = json_string_value(json_object_get(json_array_get(diff, i), "key"));
    assert_string_equal(keys[0], "model.x");
    assert_string_equal(keys[1], "optim.lr");
    assert_true(json_is_null(json_object_get(json_array_get(diff, 0), "a")));
    json_decref(diff);
    config_free(a);
    config_free(b);
}

/* A stage's values are compared as what they mean, as those of the run are. */
static void test_diff_of_stages(void **state) {
    (void)state;
    static const char A[] = "stages: [{name: a, train: {global_batch_size: 1Ki}, optim: {lr: 1}, "
                            "data: {train: x}}]\n";
    static const char B[] =
        "stages: [{name: a, train: {global_batch_size: 1024}, optim: {lr: 1.0}, "
        "data: {train: [{path: x, weight: 1}]}}]\n";
    config *a = must_load(A, NULL, NULL), *b = must_load(B, NULL, NULL);
    json_t *diff = config_diff(a, b);
    assert_int_equal(json_array_size(diff), 0);
    json_decref(diff);
    config_free(a);
    config_free(b);
}

static void test_free_keys(void **state) {
    (void)state;
    static const char *const may[] = {"run",
                                      "device",
                                      "train.steps",
                                      "train.tokens",
                                      "parallel.dp",
                                      "checkpoint.every",
                                      "sample.prompts",
                                      "eval.every",
                                      "train.threads",
                                      "train.memory_limit",
                                      "sample.prompts.0"};
    static const char *const may_not[] = {"optim.lr",   "train.seed",        "model.hidden_size",
                                          "data.train", "data.train.0.path", "train.precision",
                                          "nonsense"};
    for (int i = 0; i < ARRAY_LEN(may); i++) assert_true(config_key_is_free_in(may[i], 0));
    for (int i = 0; i < ARRAY_LEN(may_not); i++) assert_false(config_key_is_free_in(may_not[i], 0));
    /* A run in stage 1: the stages to come are free, and where this one ends. */
    assert_true(config_key_is_free_in("stages.2.optim.lr", 1));
    assert_true(config_key_is_free_in("stages.2", 1));
    assert_true(config_key_is_free_in("stages.1.until.steps", 1));
    assert_false(config_key_is_free_in("stages.1.optim.lr", 1));
    assert_false(config_key_is_free_in("stages.0.until.steps", 1));
    assert_false(config_key_is_free_in("optim.lr", 1));
    assert_true(config_key_is_free_in("train.steps", 1));
}

/* Changes stay in force from stage to stage, and a stage's config names the lines they come from.
 */
static void test_stages(void **state) {
    (void)state;
    config *c = must_load("train: {seq_len: 32}\n"
                          "data: {train: [{path: a}, {path: b}]}\n"
                          "stages:\n"
                          "- {name: one, until: {steps: 5}, optim: {restart: true, lr: 0.5}}\n"
                          "- name: two\n"
                          "  data: {train: c}\n"
                          "  model: {rope_theta: 5.0e4}\n",
                          NULL, NULL);
    config *one, *two;
    err e;
    assert_int_equal(config_of_stage(c, 0, &one, &e), ST_OK);
    assert_int_equal(config_of_stage(c, 1, &two, &e), ST_OK);
    assert_int_equal(one->data.train.n, 2);
    assert_int_equal(two->data.train.n, 1);
    assert_string_equal(two->data.train.items[0].path, "c");
    assert_true(one->optim.lr == 0.5 && two->optim.lr == 0.5);
    assert_int_equal(two->train.seq_len, 32);
    assert_null(json_object_get(one->model, "rope_theta"));
    assert_non_null(json_object_get(two->model, "rope_theta"));
    assert_string_equal(config_where(two, "data.train"), "t.yaml:6");
    assert_true(config_stage_restarts(c, 0) && !config_stage_restarts(c, 1));
    assert_true(config_stage_has_schedule(c, 0) && !config_stage_has_schedule(c, 1));
    config_free(one);
    config_free(two);
    config_free(c);
}

static void test_supported(void **state) {
    (void)state;
    static const char *const refused[] = {"train.precision=fp8", "train.precision.grads=fp16"};
    err e;
    config *c = must_load("", NULL, NULL);
    assert_int_equal(config_check_supported(c, &e), ST_OK);
    config_free(c);
    for (int i = 0; i < ARRAY_LEN(refused); i++) {
        c = must_load("", refused[i], NULL);
        assert_int_equal(config_check_supported(c, &e), ST_USAGE);
        assert_non_null(strstr(e.message, "not available in this version"));
        assert_non_null(strstr(e.where, "command line"));
        config_free(c);
    }
    c = must_load("train: {precision: fp16}", NULL, NULL);
    assert_int_equal(config_check_supported(c, &e), ST_OK);
    config_free(c);
    c = must_load("stages: [{name: a}]", "data.packing=bestfit", NULL);
    assert_int_equal(config_check_supported(c, &e), ST_OK);
    config_free(c);
}

static void test_micro_batch(void **state) {
    (void)state;
    config *c = must_load("train: {global_batch_size: 12}\n", NULL, NULL);
    assert_int_equal(config_micro_batch(c, 1), 6);
    assert_int_equal(config_micro_batch(c, 4), 3);
    config_free(c);
    c = must_load("train: {global_batch_size: 64}\n", "parallel.pp=2", NULL);
    assert_int_equal(config_micro_batch(c, 1), 8);
    assert_int_equal(config_micro_batch(c, 2), 4); /* eight micro-batches */
    assert_int_equal(config_micro_batch(c, 16), 1);
    config_free(c);
    c = must_load(
        "train: {global_batch_size: 36}\nparallel: {pp: 2, virtual: 2, pp_schedule: interleaved}\n",
        NULL, NULL);
    assert_int_equal(config_micro_batch(c, 1), 3); /* twelve: 4 would make nine, no multiple of 2 */
    config_free(c);
    c = must_load("train: {global_batch_size: 16, objective: dpo}\n", "parallel.pp=4", NULL);
    assert_int_equal(config_micro_batch(c, 1), 2); /* a pair */
    config_free(c);
}

/* Every key of the resolved config has a schema property, every schema property is a key, and
 * closed objects refuse the rest. */
static void check_against_schema(const json_t *schema, const json_t *value) {
    const char *key;
    json_t *member;
    const json_t *properties = json_object_get(schema, "properties");
    assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
    assert_int_equal(json_object_size(properties), json_object_size(value));
    json_object_foreach((json_t *)value, key, member) {
        const json_t *property = json_object_get(properties, key);
        assert_non_null(property);
        if (json_is_object(member) && strcmp(key, "model") != 0)
            check_against_schema(property, member);
        else
            assert_true(strcmp(key, "model") == 0 || json_object_get(property, "anyOf"));
    }
}

/* The schema of a key. */
static const json_t *schema_at(const json_t *schema, const char *path) {
    for (size_t n; *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        schema = json_object_getn(json_object_get(schema, "properties"), path, n);
    }
    return schema;
}

static void test_schema(void **state) {
    (void)state;
    config *c = must_load("", NULL, NULL);
    json_t *schema = config_schema(), *value = config_to_json(c);
    assert_string_equal(json_string_value(json_object_get(schema, "$schema")),
                        "https://json-schema.org/draft/2020-12/schema");
    check_against_schema(schema, value);
    /* A group without keys is null, as the run takes it. */
    const json_t *precision = schema_at(schema, "train.precision");
    const json_t *full = json_array_get(json_object_get(precision, "anyOf"), 1);
    const json_t *groups[] = {full, schema_at(schema, "train"),
                              schema_at(schema, "optim.schedule")};
    for (int i = 0; i < ARRAY_LEN(groups); i++)
        assert_string_equal(
            json_string_value(json_array_get(json_object_get(groups[i], "type"), 1)), "null");
    config_free(must_load("train:\noptim: {schedule: }\n", NULL, NULL));
    /* Only the last stage may leave out `until`, which a schema cannot say. */
    const json_t *stages = json_object_get(json_object_get(schema, "properties"), "stages");
    const json_t *list = json_array_get(json_object_get(stages, "anyOf"), 0);
    const json_t *required = json_object_get(json_object_get(list, "items"), "required");
    assert_int_equal(json_array_size(required), 1);
    assert_string_equal(json_string_value(json_array_get(required, 0)), "name");
    json_decref(schema);
    json_decref(value);
    config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_suffixes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_override_errors),
        cmocka_unit_test(test_length_of_the_run),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_yaml_for_other_readers),
        cmocka_unit_test(test_diff),
        cmocka_unit_test(test_diff_of_stages),
        cmocka_unit_test(test_free_keys),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_supported),
        cmocka_unit_test(test_micro_batch),
        cmocka_unit_test(test_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
