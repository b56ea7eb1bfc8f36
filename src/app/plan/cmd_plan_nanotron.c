/* athanor plan nanotron: a config of nanotron as one of this program, to be planned, searched and trained.
 *
 * What has a counterpart is taken over, nanotron's defaults included; what has none and would change the run is refused by
 * name; the rest (logging, checkpoints, data, which are places of another machine; how weights are drawn) is told, and so are
 * keys that nanotron does not have: forks of it add many.
 *
 * Reading order: cmd_plan_nanotron, convert; what is read; model, layout, optimizer, schedule. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "app/frame/cli.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
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

typedef enum value_kind { WHOLE, NUMBER, TRUTH, WORD, TABLE } value_kind;

#define MODEL(key) "model.model_config." key
#define MOE(key) MODEL("moe_config.") key
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
    {MODEL("num_hidden_layers"), "model.num_hidden_layers", WHOLE, 1,
     4096}, /* as in a config of ours */
    {MODEL("num_attention_heads"), "model.num_attention_heads", WHOLE, 1, INT32_MAX},
    {MODEL("num_key_value_heads"), "model.num_key_value_heads", WHOLE, 1, INT32_MAX},
    {MODEL("vocab_size"), "model.vocab_size", WHOLE, 1, INT32_MAX},
    {MODEL("max_position_embeddings"), "model.max_position_embeddings", WHOLE, 1, INT32_MAX},
    {MODEL("tie_word_embeddings"), "model.tie_word_embeddings", TRUTH, 0, 0},
    {MODEL("rope_theta"), "model.rope_theta", NUMBER, 0, 0},
    {MODEL("rms_norm_eps"), "model.rms_norm_eps", NUMBER, 0, 0},
    {MODEL("is_qwen2_config"), NULL, TRUTH, 0, 0},
    {MODEL("attention_bias"), NULL, TRUTH, 0, 0},
    {MODEL("rope_interleaved"), "model.rope_interleaved", TRUTH, 0, 0},
    {MODEL("interleaved_rotary"), "model.rope_interleaved", TRUTH, 0, 0}, /* of older versions */
    {MODEL("rope_scaling"), "model.rope_scaling", TABLE, 0, 0},
    {MODEL("no_rope_layer"), NULL, WHOLE, 1, INT32_MAX},
    {MODEL("sliding_window_size"), NULL, WHOLE, 1, INT32_MAX - 1},
    {MODEL("flex_attention_mask"), NULL, WORD, 0, 0},
    {MODEL("_use_doc_masking"), NULL, TRUTH, 0, 0},
    {MODEL("_attn_implementation"), NULL, WORD, 0, 0},
    {MODEL("z_loss_enabled"), NULL, TRUTH, 0, 0},
    {MODEL("z_loss_coefficient"), NULL, NUMBER, 0, 0},
    {MODEL("moe_config"), NULL, TABLE, 0, 0},
    {MOE("num_experts"), NULL, WHOLE, 1, 65536},
    {MOE("top_k"), NULL, WHOLE, 1, 1024},
    {MOE("moe_intermediate_size"), NULL, WHOLE, 1, INT32_MAX},
    {MOE("shared_expert_intermediate_size"), NULL, WHOLE, 1, INT32_MAX},
    {MOE("enable_shared_expert"), NULL, TRUTH, 0, 0},
    {"model.make_vocab_size_divisible_by", NULL, WHOLE, 1, 1 << 20},
    {"model.ddp_bucket_cap_mb", "parallel.bucket_mb", WHOLE, 1, 1 << 20},
    {"model.dtype", NULL, WORD, 0, 0},
    {"parallelism.dp", "parallel.dp", WHOLE, 1, MOST_RANKS},
    {"parallelism.tp", "parallel.tp", WHOLE, 1, MOST_RANKS},
    {"parallelism.pp", "parallel.pp", WHOLE, 1, MOST_RANKS},
    {"parallelism.context_parallel_size", "parallel.cp", WHOLE, 1, MOST_RANKS},
    {"parallelism.expert_parallel_size", NULL, WHOLE, 1, MOST_RANKS},
    {"parallelism.pp_engine", NULL, WORD, 0, 0},
    {"parallelism.tp_mode", NULL, WORD, 0, 0},
    {"parallelism.recompute_layer", NULL, TRUTH, 0, 0},
    {"parallelism.recompute_granularity", NULL, WORD, 0, 0}, /* of older versions */
    {"tokens.sequence_length", "train.seq_len", WHOLE, 1, INT32_MAX},
    {"tokens.micro_batch_size", "train.micro_batch_size", WHOLE, 1, MOST_RANKS},
    {"tokens.batch_accumulation_per_replica", NULL, WHOLE, 1, MOST_RANKS},
    {"tokens.train_steps", "train.steps", WHOLE, 1, MOST_STEPS},
    {"optimizer.zero_stage", "parallel.zero", WHOLE, 0, 3},
    {"optimizer.weight_decay", "optim.weight_decay", NUMBER, 0, 0},
    {"optimizer.clip_grad", NULL, NUMBER, 0, 0},
    {"optimizer.accumulate_grad_in_fp32", NULL, TRUTH, 0, 0},
    {ADAM("name"), NULL, WORD, 0, 0},
    {ADAM("adam_beta1"), NULL, NUMBER, 0, 0},
    {ADAM("adam_beta2"), NULL, NUMBER, 0, 0},
    {ADAM("adam_eps"), "optim.eps", NUMBER, 0, 0},
    {"optimizer.adam_beta1", NULL, NUMBER, 0, 0}, /* where older versions had them */
    {"optimizer.adam_beta2", NULL, NUMBER, 0, 0},
    {"optimizer.adam_eps", "optim.eps", NUMBER, 0, 0},
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
    {MODEL("sliding_window"), "null"},
    {MODEL("is_starcoder2_config"), "false"},
    {"model.init_method.use_mup", "false"},
    {"parallelism.expert_parallel_size", "1"},
    {"parallelism.moe_layer_recompute", "false"},
    {ADAM("name"), "adamW"},
};

/* What does not change the run, or says how nanotron does it; "*": and all below. */
static const char *const inert[] = {
    MODEL("is_llama_config"),
    MODEL("bos_token_id"),
    MODEL("eos_token_id"),
    MODEL("pad_token_id"),
    MODEL("pretraining_tp"),
    MODEL("use_cache"),
    MODEL("initializer_range"),
    MODEL("_fused_rms_norm"),
    MODEL("_fused_rotary_emb"),
    MODEL("_use_qkv_packed"),
    MODEL("rope_scaling.*"), /* taken over as a whole */
    MOE("layers"),
    MOE("token_dispatcher_type"),
    "model.init_method.*",
    "parallelism.tp_linear_async_communication",
    "parallelism.tp_recompute_allgather",
    "tokens.val_check_interval",
    "tokens.limit_val_batches",
    "tokens.limit_test_batches",
    "optimizer.weight_decay_exclude_named_params",
    "optimizer.torch_adam_is_fused",
    ADAM("torch_adam_is_fused"),
};

/* nanotron's own, where its file says nothing. */
static const struct {
    const char *ours;
    double value;
} usual[] = {{"model.intermediate_size", 11008},
             {"model.num_hidden_layers", 32},
             {"model.num_attention_heads", 32},
             {"model.vocab_size", 32000},
             {"model.max_position_embeddings", 2048},
             {"model.rms_norm_eps", 1e-6},
             {"model.rope_theta", 10000}};

static status check_value(const reading *r, int i) {
    const json_t *v = find(r->root, known[i].theirs);
    char want[96] = "a whole number";
    if (!v) return ST_OK;
    switch (known[i].kind) {
        case WORD: return json_is_string(v) ? ST_OK : wrong(r, known[i].theirs, "a name");
        case TRUTH: return json_is_boolean(v) ? ST_OK : wrong(r, known[i].theirs, "true or false");
        case TABLE: return json_is_object(v) ? ST_OK : wrong(r, known[i].theirs, "a group of keys");
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

/* What nanotron has no default for. */
static status check_needed(const reading *r) {
    static const char *const needed[] = {
        MODEL("hidden_size"),      "tokens.sequence_length",
        "tokens.micro_batch_size", "tokens.batch_accumulation_per_replica",
        "tokens.train_steps",      "parallelism.dp",
        "parallelism.tp",          "parallelism.pp"};
    for (int i = 0; i < ARRAY_LEN(needed); i++) {
        if (find(r->root, needed[i])) continue;
        bool theirs = find(r->root, "model.model_config");
        if (theirs && i > 0) {
            err_at(r->e, ST_FORMAT, r->file, "%s: there is no %s, which has no default in nanotron",
                   r->file, needed[i]);
            return err_hint(r->e, "add it, as nanotron needs it, too");
        }
        err_at(r->e, ST_FORMAT, r->file, "%s: there is no %s: it is no %s", r->file, needed[i],
               theirs ? "Llama or Qwen 2 of nanotron" : "config of nanotron");
        return err_hint(r->e, theirs ? "models of other kinds are not read"
                                     : "a config of this program goes to athanor plan CONFIG");
    }
    return ST_OK;
}

static status check(const reading *r) {
    TRY(check_needed(r));
    for (int i = 0; i < ARRAY_LEN(known); i++) TRY(check_value(r, i));
    for (int i = 0; i < ARRAY_LEN(refused); i++) TRY(check_refused(r, i));
    return ST_OK;
}

static bool is_inert(const char *path) {
    for (int i = 0; i < ARRAY_LEN(inert); i++) {
        size_t n = strlen(inert[i]);
        bool below = inert[i][n - 1] == '*';
        if (below ? strncmp(path, inert[i], n - 1) == 0 : strcmp(path, inert[i]) == 0) return true;
    }
    return false;
}

static bool is_known(const char *path) {
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(path, known[i].theirs) == 0) return true;
    for (int i = 0; i < ARRAY_LEN(refused); i++)
        if (strcmp(path, refused[i].path) == 0) return true;
    return is_inert(path);
}

/* Of the groups that are read: keys that nobody knows are told. */
static void tell_unknown(const char *path, const json_t *v) {
    const char *key;
    json_t *inner;
    if (json_is_null(v)) return;
    if (!json_is_object(v)) {
        if (!is_known(path)) log_warn("%s is no key of nanotron that is known: left out", path);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, inner) {
        char below[256];
        snprintf(below, sizeof below, "%s.%s", path, key);
        tell_unknown(below, inner);
    }
}

/* ---- what is converted ---- */

/* The word of ours for theirs; NULL: there is none. */
typedef struct pair {
    const char *theirs, *ours;
} pair;

/* A number of ours that the file does not have. */
static void put_usual(reading *r, const char *ours, double value) {
    bool whole = value == (double)(int64_t)value;
    if (!find(r->out, ours))
        put(r->out, ours, whole ? json_integer((int64_t)value) : json_real(value));
}

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

/* Each interval-th layer is without positions. */
static void put_no_rope(reading *r) {
    int64_t interval = count(r, MODEL("no_rope_layer"), 0);
    json_t *list = json_array();
    if (interval > 0) put(r->out, "model.no_rope_layers", list);
    for (int64_t l = 1; interval > 0 && l <= count(r, MODEL("num_hidden_layers"), 32); l++)
        json_array_append_new(list, json_integer(l % interval != 0));
    if (interval == 0) json_decref(list);
}

/* A query sees so many keys before its own. */
static status put_masks(reading *r) {
    int64_t width = count(r, MODEL("sliding_window_size"), 0);
    const char *mask = word(r, MODEL("flex_attention_mask"), "");
    bool documents = json_is_true(find(r->root, MODEL("_use_doc_masking")));
    if (*mask && strcmp(mask, "document") != 0 && strcmp(mask, "sliding_window") != 0 &&
        strcmp(mask, "sliding_window_document") != 0)
        return refuse(r, MODEL("flex_attention_mask"), "is no mask that is known");
    if (width > 0) put(r->out, "model.sliding_window", json_integer(width + 1));
    put(r->out, "data.document_mask", json_boolean(documents || strstr(mask, "document")));
    return ST_OK;
}

/* layers: -1 stands for all. Its router does not divide weights by their sum, and balances nothing. */
static status put_experts(reading *r) {
    const json_t *list = find(r->root, MOE("layers")), *v;
    int64_t layers = count(r, MODEL("num_hidden_layers"), 32);
    int64_t width = count(r, MODEL("intermediate_size"), 11008);
    size_t i;
    if (list && !json_is_array(list)) return wrong(r, MOE("layers"), "a list of layers");
    json_t *which = json_array();
    bool all =
        !list || (json_array_size(list) == 1 && json_integer_value(json_array_get(list, 0)) == -1);
    for (int64_t l = 0; l < layers; l++) json_array_append_new(which, json_integer(all));
    put(r->out, "model.expert_layers", which);
    json_array_foreach(list, i, v) {
        json_int_t l = json_integer_value(v);
        if (!all && (!json_is_integer(v) || l < 0 || l >= layers))
            return wrong(r, MOE("layers"), "a list of layers");
        if (!all) json_array_set_new(which, (size_t)l, json_integer(1));
    }
    put(r->out, "model.num_experts", json_integer(count(r, MOE("num_experts"), 8)));
    put(r->out, "model.num_experts_per_tok", json_integer(count(r, MOE("top_k"), 2)));
    put(r->out, "model.moe_intermediate_size",
        json_integer(count(r, MOE("moe_intermediate_size"), width)));
    bool shared = json_is_true(find(r->root, MOE("enable_shared_expert")));
    put(r->out, "model.shared_expert_intermediate_size",
        json_integer(shared ? count(r, MOE("shared_expert_intermediate_size"), width) : 0));
    put(r->out, "model.shared_expert_gate", json_boolean(shared));
    put(r->out, "model.router_aux_loss_coef", json_integer(0));
    return ST_OK;
}

/* Rows are added to the table until each tensor-parallel rank has as many, a multiple of what is asked for. */
static void put_vocabulary(reading *r) {
    int64_t multiple =
        count(r, "model.make_vocab_size_divisible_by", 1) * count(r, "parallelism.tp", 1);
    int64_t rows = count(r, MODEL("vocab_size"), 32000);
    put(r->out, "model.vocab_size", json_integer((rows + multiple - 1) / multiple * multiple));
}

/* nanotron's Qwen 2 is a Llama whose queries, keys and values may have biases, and some of whose layers may have no positions, or
 * experts; its Llama has none of these. */
static status put_model(reading *r) {
    static const pair formats[] = {{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}};
    bool qwen = json_is_true(find(r->root, MODEL("is_qwen2_config")));
    bool biases = json_is_true(find(r->root, MODEL("attention_bias")));
    bool experts = find(r->root, MODEL("moe_config")), nope = find(r->root, MODEL("no_rope_layer"));
    if (biases && !qwen)
        return refuse(r, MODEL("attention_bias"), "has no counterpart here but in a Qwen 2");
    put(r->out, "model.model_type",
        json_string(experts  ? "qwen2_moe"
                    : biases ? "qwen2"
                    : nope   ? "smollm3"
                             : "llama"));
    if (experts) put(r->out, "model.qkv_bias", json_boolean(biases));
    put(r->out, "model.pad_token_id", json_integer(-1)); /* whose row learns like any other */
    for (int i = 0; i < ARRAY_LEN(usual); i++) put_usual(r, usual[i].ours, usual[i].value);
    int64_t heads = count(r, MODEL("num_attention_heads"), 32);
    put_usual(r, "model.num_key_value_heads", (double)heads);
    if (!find(r->root, MODEL("tie_word_embeddings")))
        put(r->out, "model.tie_word_embeddings", json_false());
    int64_t seq = count(r, "tokens.sequence_length", 1); /* positions grow with it */
    if (count(r, MODEL("max_position_embeddings"), 2048) < seq)
        put(r->out, "model.max_position_embeddings", json_integer(seq));
    put_vocabulary(r);
    put_no_rope(r);
    if (json_is_true(find(r->root, MODEL("z_loss_enabled"))))
        put(r->out, "optim.z_loss", json_real(number(r, MODEL("z_loss_coefficient"), 1e-4)));
    TRY(put_masks(r));
    if (experts) TRY(put_experts(r));
    return put_word(r, "model.dtype", "bfloat16", formats, ARRAY_LEN(formats), "train.precision");
}

/* The selective recompute of older versions was that of attention's scores, which nothing stores here. */
static status put_recompute(reading *r) {
    const char *path = "parallelism.recompute_granularity", *old = word(r, path, "selective");
    bool full = strcasecmp(old, "full") == 0;
    if (!full && strcasecmp(old, "selective") != 0)
        return refuse(r, path, "is neither full nor selective");
    if (full || json_is_true(find(r->root, "parallelism.recompute_layer")))
        put(r->out, "train.recompute", json_string("full"));
    return ST_OK;
}

static status put_layout(reading *r) {
    static const pair engines[] = {{"afab", "afab"}, {"1f1b", "1f1b"}};
    const char *mode = word(r, "parallelism.tp_mode", "ALL_REDUCE");
    bool shared = strcasecmp(mode, "REDUCE_SCATTER") == 0;
    if (!shared && strcasecmp(mode, "ALL_REDUCE") != 0)
        return refuse(r, "parallelism.tp_mode", "is neither ALL_REDUCE nor REDUCE_SCATTER");
    if (shared && count(r, "parallelism.tp", 1) > 1) put(r->out, "parallel.sp", json_true());
    TRY(put_recompute(r));
    if (count(r, "parallelism.context_parallel_size", 1) > 1)
        put(r->out, "parallel.cp_kind",
            json_string(strncmp(word(r, MODEL("_attn_implementation"), ""), "ring", 4) == 0
                            ? "ring"
                            : "allgather"));
    int64_t batch = count(r, "tokens.micro_batch_size", 1) * count(r, "parallelism.dp", 1) *
                    count(r, "tokens.batch_accumulation_per_replica", 1);
    put(r->out, "train.global_batch_size", json_integer(batch));
    if (count(r, "parallelism.pp", 1) == 1) return ST_OK;
    return put_word(r, "parallelism.pp_engine", "afab", engines, ARRAY_LEN(engines),
                    "parallel.pp_schedule");
}

/* Names of nanotron's parameters, as regular expressions. It decays all others, norms too. */
static status put_decay(reading *r) {
    static const pair patterns[] = {{".*token_embedding.*", "*embed_tokens*"},
                                    {".*embedding.*", "*embed_tokens*"},
                                    {".*norm.*", "*norm*"},
                                    {".*layernorm.*", "*layernorm*"},
                                    {".*bias.*", "*bias*"},
                                    {".*lm_head.*", "*lm_head*"}};
    static const char path[] = "optimizer.weight_decay_exclude_named_params";
    const json_t *list = find(r->root, path), *v;
    json_t *names = json_array();
    size_t i;
    put(r->out, "optim.no_decay", names);
    if (list && !json_is_array(list)) return wrong(r, path, "a list");
    json_array_foreach(list, i, v) {
        const char *s = json_string_value(v), *ours = NULL;
        for (int k = 0; s && k < ARRAY_LEN(patterns); k++)
            if (strcmp(s, patterns[k].theirs) == 0) ours = patterns[k].ours;
        if (!ours) {
            char why[256];
            snprintf(why, sizeof why, "has the pattern %.100s, which has no counterpart here",
                     s ? s : "that is no text");
            return refuse(r, path, why);
        }
        json_array_append_new(names, json_string(ours));
    }
    return ST_OK;
}

/* Older versions have it beside the optimizer's group. */
static const char *path_of_beta(const reading *r, const char *path, const char *older) {
    return find(r->root, path) ? path : find(r->root, older) ? older : NULL;
}

static status put_optimizer(reading *r) {
    put(r->out, "optim.name", json_string("adamw"));
    put(r->out, "optim.clip_norm", json_real(number(r, "optimizer.clip_grad", 0)));
    const char *first = path_of_beta(r, ADAM("adam_beta1"), "optimizer.adam_beta1");
    const char *second = path_of_beta(r, ADAM("adam_beta2"), "optimizer.adam_beta2");
    if (!first != !second)
        return refuse(r, first ? first : second, "is there without the other one");
    if (first)
        put(r->out, "optim.betas", json_pack("[f,f]", number(r, first, 0), number(r, second, 0)));
    const json_t *wide = find(r->root, "optimizer.accumulate_grad_in_fp32");
    bool fp32 = strcasecmp(word(r, "model.dtype", "bfloat16"), "float32") == 0;
    if (wide && !json_is_true(wide) && !fp32)
        return refuse(
            r, "optimizer.accumulate_grad_in_fp32",
            "has no counterpart here but for true: gradients and weights that are updated "
            "are fp32");
    return put_decay(r);
}

/* A warm-up, perhaps a plateau, a decay, and perhaps the least rate until the last step. */
typedef struct rates {
    int64_t warmup, start, decay, steps; /* start: the first step that decays */
    double most, least;
} rates;

static status read_rates(const reading *r, rates *s) {
    const char *rise = word(r, RATE("lr_warmup_style"), "linear");
    bool flat = strcmp(rise, "constant") == 0;
    if (!flat && strcmp(rise, "linear") != 0)
        return refuse(r, RATE("lr_warmup_style"), "is neither linear nor constant");
    s->warmup = count(r, RATE("lr_warmup_steps"), 0);
    s->steps = count(r, "tokens.train_steps", 0);
    s->start = count(r, RATE("lr_decay_starting_step"), s->warmup);
    s->decay = count(r, RATE("lr_decay_steps"), s->steps - s->warmup);
    s->most = number(r, RATE("learning_rate"), 0);
    s->least = number(r, RATE("min_decay_lr"), s->most);
    if (s->decay < 0) s->decay = 0; /* the run ends while its rate rises */
    if (s->start < s->warmup)
        return refuse(r, RATE("lr_decay_starting_step"), "is before the warm-up ends");
    if (flat) s->warmup = 0;
    return ST_OK;
}

/* A decay that the run does not see the end of: a straight one ends where it is by then, the others have no counterpart. */
static status cut(const reading *r, rates *s, bool straight) {
    if (s->start >= s->steps) {
        s->decay = 0;
        s->least = s->most;
    } else if (straight) {
        double part = (double)(s->steps - s->start) / (double)s->decay;
        s->least = s->most - part * (s->most - s->least);
        s->decay = s->steps - s->start;
    } else {
        return refuse(r, RATE("lr_decay_steps"),
                      "end behind the last step, which has no counterpart here but for a linear "
                      "decay");
    }
    return ST_OK;
}

/* After the decay a stage has the least rate until the last step. */
static void put_rest(reading *r, const rates *s) {
    put(r->out, "stages",
        json_pack("[{s:s,s:{s:I}},{s:s,s:{s:f,s:{s:s,s:i,s:s,s:f}}}]", "name", "decay", "until",
                  "steps", (json_int_t)(s->start + s->decay), "name", "rest", "optim", "lr",
                  s->least, "schedule", "kind", "linear", "warmup_steps", 0, "decay_steps", "auto",
                  "min_lr", s->least));
}

/* Without a warm-up and a decay the rate stays; without a decay alone it falls to the least one at once.
 * nanotron counts the first step of the decay as its first or as its last before it: a step more or less is the same. */
static status put_schedule(reading *r) {
    static const pair curves[] = {{"linear", "linear"}, {"cosine", "cosine"}, {"1-sqrt", "1-sqrt"}};
    rates s = {.steps = 0};
    if (!find(r->root, RATE("learning_rate"))) return ST_OK;
    TRY(read_rates(r, &s));
    const char *curve = word(r, RATE("lr_decay_style"), "linear");
    bool straight = strcasecmp(curve, "linear") == 0, plateau = s.start > s.warmup;
    if (s.start + s.decay > s.steps + 1) TRY(cut(r, &s, straight));
    bool falls = s.decay > 0 || (count(r, RATE("lr_warmup_steps"), 0) > 0 && s.least < s.most);
    if (s.start + s.decay < s.steps && falls) put_rest(r, &s);
    put(r->out, "optim.schedule.warmup_steps", json_integer(s.warmup));
    put(r->out, "optim.schedule.min_lr", json_real(s.least));
    put(r->out, "optim.schedule.decay_steps", json_integer(s.decay));
    if (!plateau && s.decay > 0 && strcmp(curve, "1-sqrt") != 0)
        return put_word(r, RATE("lr_decay_style"), "linear", curves, 2, "optim.schedule.kind");
    put(r->out, "optim.schedule.kind", json_string("wsd"));
    return put_word(r, RATE("lr_decay_style"), "linear", curves, ARRAY_LEN(curves),
                    "optim.schedule.decay");
}

/* 70_000 is a number in their files. */
static void join_digits(json_t *o) {
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v) {
        const char *s = json_string_value(v);
        char digits[24];
        size_t n = 0;
        join_digits(v);
        if (!s || !strchr(s, '_') || s[strspn(s, "0123456789_")] || strlen(s) >= sizeof digits)
            continue;
        for (; *s; s++)
            if (*s != '_') digits[n++] = *s;
        digits[n] = '\0';
        if (n) json_object_set_new(o, key, json_integer(strtoll(digits, NULL, 10)));
    }
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
    TRY(put_schedule(r));
    static const char *const groups[] = {"model", "parallelism", "tokens", "optimizer"};
    for (int i = 0; i < ARRAY_LEN(groups); i++) tell_unknown(groups[i], find(r->root, groups[i]));
    return ST_OK;
}

static status cmd_plan_nanotron(const cli_args *args, err *e) {
    json_t *root, *origins;
    strbuf text = {0};
    TRY(yaml_load(&root, &origins, args->inputs[0], e));
    join_digits(root);
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
    if (st == ST_OK && args->output && args->json)
        cli_print_json(json_pack("{s:o,s:O}", "path", json_cstr(args->output), "config", r.out));
    else if (st == ST_OK && args->output)
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
    .prints_output = true,
    .about = "Model, layout, batch, rate and optimizer are taken over: athanor plan CONFIG.yaml "
             "cluster=h100-64 then plans it.\n"};
