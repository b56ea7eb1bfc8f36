/* athanor plan nanotron: a config of nanotron as one of this program, to be planned, searched and trained.
 *
 * What has a counterpart is taken over, nanotron's defaults included; what has none and would change the run is refused by
 * name; the rest (logging, checkpoints, data, which are places of another machine; how weights are drawn) is told. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "app/frame/cli.h"
#include "base/file.h"
#include "base/json.h"
#include "base/yaml.h"

typedef struct reading {
    const json_t *root, *origins;
    const char *file;
    json_t *out;
    err *e;
} reading;

static const json_t *find(const json_t *o, const char *path) {
    char copy[128], *at = NULL;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *word = strtok_r(copy, ".", &at); word && o; word = strtok_r(NULL, ".", &at))
        o = json_object_get(o, word);
    return json_is_null(o) ? NULL : o;
}

static void put(json_t *o, const char *path, json_t *value) {
    char copy[128], *at = NULL;
    snprintf(copy, sizeof copy, "%s", path);
    char *word = strtok_r(copy, ".", &at), *next;
    while ((next = strtok_r(NULL, ".", &at))) {
        if (!json_object_get(o, word)) json_object_set_new(o, word, json_object());
        o = json_object_get(o, word);
        word = next;
    }
    json_object_set_new(o, word, value);
}

/* ---- values ---- */

static status wrong(const reading *r, const char *path, const char *want) {
    const char *at = yaml_origin(r->origins, path);
    err_at(r->e, ST_USAGE, at ? at : r->file, "%s is not %s", path, want);
    return err_hint(r->e, "a number without quotes, a name or a truth value, as nanotron has it");
}

static status refuse(const reading *r, const char *path, const char *why) {
    const char *at = yaml_origin(r->origins, path);
    err_at(r->e, ST_USAGE, at ? at : r->file, "%s: %s %s", r->file, path, why);
    return err_hint(r->e, "take it out, to plan the run without it");
}

/* Of a key that is checked (same[], counts[]). */
static int64_t count(const reading *r, const char *path, int64_t without) {
    const json_t *v = find(r->root, path);
    return v ? (int64_t)json_integer_value(v) : without;
}

static const char *word(const reading *r, const char *path, const char *without) {
    const char *s = json_string_value(find(r->root, path));
    return s ? s : without;
}

static double number(const reading *r, const char *path, double without) {
    const json_t *v = find(r->root, path);
    return v ? json_number_value(v) : without;
}

/* ---- what is read ---- */

typedef enum value_kind { WHOLE, NUMBER, TRUTH, WORD } value_kind;

#define MODEL(key) "model.model_config." key
#define RATE(key) "optimizer.learning_rate_scheduler." key
#define ADAM(key) "optimizer.optimizer_factory." key
enum { MOST_RANKS = 1 << 20, MOST_STEPS = 1000000000 };

/* What is read has such values. ours: the key that takes it as it is; NULL: it is converted below. */
static const struct {
    const char *theirs, *ours;
    value_kind kind;
    int64_t least, most; /* of WHOLE */
} known[] = {
    {MODEL("hidden_size"), "model.hidden_size", WHOLE, 1, INT32_MAX},
    {MODEL("intermediate_size"), "model.intermediate_size", WHOLE, 1, INT32_MAX},
    {MODEL("num_hidden_layers"), "model.num_hidden_layers", WHOLE, 1, INT32_MAX},
    {MODEL("num_attention_heads"), "model.num_attention_heads", WHOLE, 1, INT32_MAX},
    {MODEL("num_key_value_heads"), "model.num_key_value_heads", WHOLE, 1, INT32_MAX},
    {MODEL("vocab_size"), "model.vocab_size", WHOLE, 1, INT32_MAX},
    {MODEL("max_position_embeddings"), "model.max_position_embeddings", WHOLE, 1, INT32_MAX},
    {MODEL("tie_word_embeddings"), "model.tie_word_embeddings", TRUTH, 0, 0},
    {MODEL("rope_theta"), "model.rope_theta", NUMBER, 0, 0},
    {MODEL("rms_norm_eps"), "model.rms_norm_eps", NUMBER, 0, 0},
    {MODEL("is_qwen2_config"), NULL, TRUTH, 0, 0},
    {MODEL("attention_bias"), NULL, TRUTH, 0, 0},
    {"model.dtype", NULL, WORD, 0, 0},
    {"parallelism.dp", "parallel.dp", WHOLE, 1, MOST_RANKS},
    {"parallelism.tp", "parallel.tp", WHOLE, 1, MOST_RANKS},
    {"parallelism.pp", "parallel.pp", WHOLE, 1, MOST_RANKS},
    {"parallelism.context_parallel_size", "parallel.cp", WHOLE, 1, MOST_RANKS},
    {"parallelism.expert_parallel_size", NULL, WHOLE, 1, MOST_RANKS},
    {"parallelism.pp_engine", NULL, WORD, 0, 0},
    {"parallelism.tp_mode", NULL, WORD, 0, 0},
    {"parallelism.recompute_layer", NULL, TRUTH, 0, 0},
    {"tokens.sequence_length", "train.seq_len", WHOLE, 1, INT32_MAX},
    {"tokens.micro_batch_size", "train.micro_batch_size", WHOLE, 1, MOST_RANKS},
    {"tokens.batch_accumulation_per_replica", NULL, WHOLE, 1, MOST_RANKS},
    {"tokens.train_steps", "train.steps", WHOLE, 1, MOST_STEPS},
    {"optimizer.zero_stage", "parallel.zero", WHOLE, 0, 3},
    {"optimizer.weight_decay", "optim.weight_decay", NUMBER, 0, 0},
    {"optimizer.clip_grad", NULL, NUMBER, 0, 0},
    {ADAM("name"), NULL, WORD, 0, 0},
    {ADAM("adam_beta1"), NULL, NUMBER, 0, 0},
    {ADAM("adam_beta2"), NULL, NUMBER, 0, 0},
    {ADAM("adam_eps"), "optim.eps", NUMBER, 0, 0},
    {RATE("learning_rate"), "optim.lr", NUMBER, 0, 0},
    {RATE("min_decay_lr"), NULL, NUMBER, 0, 0},
    {RATE("lr_warmup_style"), NULL, WORD, 0, 0},
    {RATE("lr_decay_style"), NULL, WORD, 0, 0},
    {RATE("lr_warmup_steps"), NULL, WHOLE, 0, MOST_STEPS},
    {RATE("lr_decay_steps"), NULL, WHOLE, 0, MOST_STEPS},
    {RATE("lr_decay_starting_step"), NULL, WHOLE, 0, MOST_STEPS},
};

/* What would make another run of it, but for one value, which is nanotron's own default. */
static const struct {
    const char *path, *allowed;
} refused[] = {
    {MODEL("hidden_act"), "silu"},
    {MODEL("moe_config"), "null"},
    {MODEL("rope_scaling"), "null"},
    {MODEL("rope_interleaved"), "false"},
    {MODEL("sliding_window"), "null"},
    {MODEL("sliding_window_size"), "null"},
    {MODEL("flex_attention_mask"), "null"},
    {MODEL("no_rope_layer"), "null"},
    {MODEL("z_loss_enabled"), "false"},
    {MODEL("is_starcoder2_config"), "false"},
    {"model.make_vocab_size_divisible_by", "1"},
    {"model.init_method.use_mup", "false"},
    {"model.init_method.path", "null"},
    {"parallelism.expert_parallel_size", "1"},
    {"optimizer.accumulate_grad_in_fp32", "true"},
    {ADAM("name"), "adamW"},
    {"optimizer.adam_beta1", "null"}, /* where older versions had them */
    {"optimizer.adam_beta2", "null"},
    {"optimizer.adam_eps", "null"},
};

static status check_value(const reading *r, int i) {
    const json_t *v = find(r->root, known[i].theirs);
    char want[96] = "a whole number";
    if (!v) return ST_OK;
    switch (known[i].kind) {
        case WORD: return json_is_string(v) ? ST_OK : wrong(r, known[i].theirs, "a name");
        case TRUTH: return json_is_boolean(v) ? ST_OK : wrong(r, known[i].theirs, "true or false");
        case NUMBER:
            return json_is_number(v) && json_number_value(v) >= 0
                       ? ST_OK
                       : wrong(r, known[i].theirs, "a number that is not negative");
        case WHOLE: break;
    }
    json_int_t n = json_integer_value(v);
    if (json_is_integer(v) && n >= known[i].least && n <= known[i].most) return ST_OK;
    snprintf(want, sizeof want, "a whole number from %ld to %ld", (long)known[i].least,
             (long)known[i].most);
    return wrong(r, known[i].theirs, want);
}

static bool is_allowed(const json_t *v, const char *allowed) {
    char digits[32];
    if (json_is_boolean(v)) return strcmp(json_is_true(v) ? "true" : "false", allowed) == 0;
    snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(v));
    const char *is = json_is_string(v) ? json_string_value(v) : digits;
    return (json_is_string(v) || json_is_integer(v)) && strcmp(is, allowed) == 0;
}

static status check_refused(const reading *r, int i) {
    const json_t *v = find(r->root, refused[i].path);
    const char *allowed = refused[i].allowed;
    char why[128] = "has no counterpart here";
    if (!v || is_allowed(v, allowed)) return ST_OK;
    if (strcmp(allowed, "null") != 0)
        snprintf(why, sizeof why, "has no counterpart here but for %s", allowed);
    return refuse(r, refused[i].path, why);
}

static status check(const reading *r) {
    static const char *const needed[] = {MODEL("hidden_size"), "tokens.sequence_length",
                                         "tokens.micro_batch_size", "parallelism.dp"};
    for (int i = 0; i < ARRAY_LEN(needed); i++)
        if (!find(r->root, needed[i])) {
            err_at(r->e, ST_FORMAT, r->file, "%s: there is no %s: it is no config of nanotron",
                   r->file, needed[i]);
            return err_hint(r->e, "a config of this program goes to athanor plan CONFIG");
        }
    for (int i = 0; i < ARRAY_LEN(known); i++) TRY(check_value(r, i));
    for (int i = 0; i < ARRAY_LEN(refused); i++) TRY(check_refused(r, i));
    return ST_OK;
}

/* ---- what is converted ---- */

/* The word of ours for theirs; NULL: there is none. */
typedef struct pair {
    const char *theirs, *ours;
} pair;

static status put_word(reading *r, const char *path, const char *without, const pair *of, int n,
                       const char *ours) {
    const char *theirs = word(r, path, without);
    for (int i = 0; i < n; i++) {
        if (strcasecmp(theirs, of[i].theirs) != 0) continue;
        put(r->out, ours, json_string(of[i].ours));
        return ST_OK;
    }
    char why[256];
    snprintf(why, sizeof why, "is %.100s, which has no counterpart here", theirs);
    return refuse(r, path, why);
}

/* nanotron's Qwen 2 is a Llama whose queries, keys and values may have biases; its Llama has none. */
static status put_model(reading *r) {
    static const pair formats[] = {{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}};
    bool qwen = json_is_true(find(r->root, MODEL("is_qwen2_config")));
    bool biases = json_is_true(find(r->root, MODEL("attention_bias")));
    if (biases && !qwen)
        return refuse(r, MODEL("attention_bias"), "has no counterpart here but in a Qwen 2");
    put(r->out, "model.model_type", json_string(biases ? "qwen2" : "llama"));
    return put_word(r, "model.dtype", "bfloat16", formats, ARRAY_LEN(formats), "train.precision");
}

static status put_layout(reading *r) {
    static const pair engines[] = {{"afab", "afab"}, {"1f1b", "1f1b"}};
    const char *mode = word(r, "parallelism.tp_mode", "ALL_REDUCE");
    bool shared = strcasecmp(mode, "REDUCE_SCATTER") == 0;
    if (!shared && strcasecmp(mode, "ALL_REDUCE") != 0)
        return refuse(r, "parallelism.tp_mode", "is neither ALL_REDUCE nor REDUCE_SCATTER");
    if (shared && count(r, "parallelism.tp", 1) > 1) put(r->out, "parallel.sp", json_true());
    if (json_is_true(find(r->root, "parallelism.recompute_layer")))
        put(r->out, "train.recompute", json_string("full"));
    int64_t batch = count(r, "tokens.micro_batch_size", 1) * count(r, "parallelism.dp", 1) *
                    count(r, "tokens.batch_accumulation_per_replica", 1);
    put(r->out, "train.global_batch_size", json_integer(batch));
    if (count(r, "parallelism.pp", 1) == 1) return ST_OK;
    return put_word(r, "parallelism.pp_engine", "afab", engines, ARRAY_LEN(engines),
                    "parallel.pp_schedule");
}

/* Names of nanotron's parameters, as regular expressions. It decays all others, norms too. */
static status put_decay(reading *r) {
    static const char path[] = "optimizer.weight_decay_exclude_named_params";
    const json_t *list = find(r->root, path), *v;
    json_t *names = json_array();
    size_t i;
    put(r->out, "optim.no_decay", names);
    if (list && !json_is_array(list)) return wrong(r, path, "a list");
    json_array_foreach(list, i, v) {
        const char *s = json_string_value(v);
        if (!s || strcmp(s, ".*token_embedding.*") != 0)
            return refuse(r, path, "has a pattern other than .*token_embedding.*");
        json_array_append_new(names, json_string("*embed_tokens*"));
    }
    return ST_OK;
}

static status put_optimizer(reading *r) {
    put(r->out, "optim.name", json_string("adamw"));
    put(r->out, "optim.clip_norm", json_real(number(r, "optimizer.clip_grad", 0)));
    bool first = find(r->root, ADAM("adam_beta1")), second = find(r->root, ADAM("adam_beta2"));
    if (first != second)
        return refuse(r, first ? ADAM("adam_beta1") : ADAM("adam_beta2"),
                      "is there without the other one");
    if (first)
        put(r->out, "optim.betas",
            json_pack("[f,f]", number(r, ADAM("adam_beta1"), 0), number(r, ADAM("adam_beta2"), 0)));
    return put_decay(r);
}

/* Warm-up, perhaps a plateau, and a decay to the last step. */
static status put_schedule(reading *r) {
    static const pair curves[] = {{"linear", "linear"}, {"cosine", "cosine"}, {"1-sqrt", "1-sqrt"}};
    const char *rise = word(r, RATE("lr_warmup_style"), "linear");
    bool flat = strcmp(rise, "constant") == 0;
    if (!find(r->root, RATE("learning_rate"))) return ST_OK;
    if (!flat && strcmp(rise, "linear") != 0)
        return refuse(r, RATE("lr_warmup_style"), "is neither linear nor constant");
    int64_t warmup = count(r, RATE("lr_warmup_steps"), 0);
    int64_t steps = count(r, "tokens.train_steps", 0);
    int64_t start = count(r, RATE("lr_decay_starting_step"), warmup);
    int64_t decay = count(r, RATE("lr_decay_steps"), steps - warmup);
    if (steps == 0)
        return refuse(r, "tokens.train_steps", "is not there, and the rate decays to it");
    if (warmup > steps) return refuse(r, RATE("lr_warmup_steps"), "are more than all steps");
    if (start < warmup)
        return refuse(r, RATE("lr_decay_starting_step"), "is before the warm-up ends");
    if (start + decay != steps)
        return refuse(r, RATE("lr_decay_steps"),
                      "after the starting step do not end with the last step");
    if (flat) warmup = 0;
    put(r->out, "optim.schedule.warmup_steps", json_integer(warmup));
    put(r->out, "optim.schedule.min_lr",
        json_real(number(r, RATE("min_decay_lr"), number(r, RATE("learning_rate"), 0))));
    put(r->out, "optim.schedule.decay_steps", json_integer(decay));
    const char *curve = word(r, RATE("lr_decay_style"), "linear");
    if (start == warmup && strcmp(curve, "1-sqrt") != 0)
        return put_word(r, RATE("lr_decay_style"), "linear", curves, 2, "optim.schedule.kind");
    put(r->out, "optim.schedule.kind", json_string("wsd"));
    return put_word(r, RATE("lr_decay_style"), "linear", curves, ARRAY_LEN(curves),
                    "optim.schedule.decay");
}

static status convert(reading *r) {
    TRY(check(r));
    for (int i = 0; i < ARRAY_LEN(known); i++) {
        const json_t *v = find(r->root, known[i].theirs);
        if (v && known[i].ours) put(r->out, known[i].ours, json_deep_copy(v));
    }
    TRY(put_model(r));
    TRY(put_layout(r));
    TRY(put_optimizer(r));
    return put_schedule(r);
}

static status cmd_plan_nanotron(const cli_args *args, err *e) {
    json_t *root, *origins;
    strbuf text = {0};
    TRY(yaml_load(&root, &origins, args->inputs[0], e));
    reading r = {root, origins, args->inputs[0], json_object(), e};
    status st = convert(&r);
    if (st == ST_OK) {
        json_format(&text, r.out, 2);
        strbuf_putc(&text, '\n');
        if (args->output)
            st = file_write_atomic(args->output, text.data, text.len, e);
        else
            printf("%s", strbuf_cstr(&text));
    }
    if (st == ST_OK && args->output && !args->json)
        printf("%s has its model, layout, batch, rate and optimizer; data, initial weights, seeds, "
               "logging and checkpoints are not taken over.\n",
               args->output);
    strbuf_free(&text);
    json_decref(r.out);
    json_decref(origins);
    json_decref(root);
    return st;
}

const cli_command command_plan_nanotron = {
    .name = "plan nanotron",
    .summary = "a config of nanotron as one of this program",
    .usage = "NANOTRON.yaml [-o CONFIG.yaml]",
    .run = cmd_plan_nanotron,
    .takes_output = true,
    .about = "Model, layout, batch, rate and optimizer are taken over: athanor plan CONFIG.yaml "
             "cluster=h100-64 then plans it.\n"};
