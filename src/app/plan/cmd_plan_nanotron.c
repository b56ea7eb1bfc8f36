/* athanor plan nanotron: a config of nanotron as one of this program, to be planned, searched and trained.
 *
 * What has a counterpart is taken over; what has none and would change the run is refused by name; the rest (logging,
 * checkpoints, data, which are places of another machine) is told. */
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "base/file.h"
#include "base/json.h"
#include "base/yaml.h"

typedef struct reading {
    const json_t *root;
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

static int64_t count(const reading *r, const char *path, int64_t without) {
    const json_t *v = find(r->root, path);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : without;
}

/* ---- what is taken over ---- */

static const struct {
    const char *theirs, *ours;
} same[] = {
    {"model.model_config.hidden_size", "model.hidden_size"},
    {"model.model_config.intermediate_size", "model.intermediate_size"},
    {"model.model_config.num_hidden_layers", "model.num_hidden_layers"},
    {"model.model_config.num_attention_heads", "model.num_attention_heads"},
    {"model.model_config.num_key_value_heads", "model.num_key_value_heads"},
    {"model.model_config.vocab_size", "model.vocab_size"},
    {"model.model_config.max_position_embeddings", "model.max_position_embeddings"},
    {"model.model_config.tie_word_embeddings", "model.tie_word_embeddings"},
    {"model.model_config.rope_theta", "model.rope_theta"},
    {"model.model_config.rms_norm_eps", "model.rms_norm_eps"},
    {"parallelism.dp", "parallel.dp"},
    {"parallelism.tp", "parallel.tp"},
    {"parallelism.pp", "parallel.pp"},
    {"optimizer.zero_stage", "parallel.zero"},
    {"tokens.sequence_length", "train.seq_len"},
    {"tokens.micro_batch_size", "train.micro_batch_size"},
    {"tokens.train_steps", "train.steps"},
    {"optimizer.learning_rate_scheduler.learning_rate", "optim.lr"},
    {"optimizer.weight_decay", "optim.weight_decay"},
};

static status refuse(const reading *r, const char *key, const char *why) {
    err_at(r->e, ST_USAGE, r->file, "%s: %s %s", r->file, key, why);
    return err_hint(r->e, "take it out, to plan the run without it");
}

/* What would make another run of it. */
static status check(const reading *r) {
    const char *needed[] = {"model.model_config.hidden_size", "tokens.sequence_length",
                            "tokens.micro_batch_size", "parallelism.dp"};
    for (int i = 0; i < ARRAY_LEN(needed); i++)
        if (!json_is_integer(find(r->root, needed[i]))) {
            err_at(r->e, ST_FORMAT, r->file, "%s: there is no %s: it is no config of nanotron",
                   r->file, needed[i]);
            return err_hint(r->e, "a config of this program goes to athanor plan CONFIG");
        }
    if (count(r, "parallelism.expert_parallel_size", 1) > 1)
        return refuse(r, "parallelism.expert_parallel_size", "has no counterpart yet");
    if (find(r->root, "model.model_config.moe_config"))
        return refuse(r, "model.model_config.moe_config", "is not read yet");
    const char *engine = json_string_value(find(r->root, "parallelism.pp_engine"));
    if (engine && strcmp(engine, "1f1b") != 0 && strcmp(engine, "afab") != 0)
        return refuse(r, "parallelism.pp_engine", "is neither 1f1b nor afab");
    return ST_OK;
}

static status convert(reading *r) {
    TRY(check(r));
    put(r->out, "model.model_type", json_string("llama"));
    for (int i = 0; i < ARRAY_LEN(same); i++) {
        const json_t *v = find(r->root, same[i].theirs);
        if (v) put(r->out, same[i].ours, json_deep_copy(v));
    }
    int64_t batch = count(r, "tokens.micro_batch_size", 1) * count(r, "parallelism.dp", 1) *
                    count(r, "tokens.batch_accumulation_per_replica", 1);
    put(r->out, "train.global_batch_size", json_integer(batch));
    put(r->out, "train.precision", json_string("bf16"));
    const char *mode = json_string_value(find(r->root, "parallelism.tp_mode"));
    const char *engine = json_string_value(find(r->root, "parallelism.pp_engine"));
    if (mode && strcmp(mode, "REDUCE_SCATTER") == 0 && count(r, "parallelism.tp", 1) > 1)
        put(r->out, "parallel.sp", json_true());
    if (engine && count(r, "parallelism.pp", 1) > 1)
        put(r->out, "parallel.pp_schedule", json_string(engine));
    if (count(r, "parallelism.context_parallel_size", 1) > 1)
        put(r->out, "parallel.cp", json_integer(count(r, "parallelism.context_parallel_size", 1)));
    if (json_is_true(find(r->root, "parallelism.recompute_layer")))
        put(r->out, "train.recompute", json_string("full"));
    return ST_OK;
}

static status cmd_plan_nanotron(const cli_args *args, err *e) {
    json_t *root;
    strbuf text = {0};
    TRY(yaml_load(&root, NULL, args->inputs[0], e));
    reading r = {root, args->inputs[0], json_object(), e};
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
        printf("%s has its model, layout, batch and rate; data, logging and checkpoints are not "
               "taken over.\n",
               args->output);
    strbuf_free(&text);
    json_decref(r.out);
    json_decref(root);
    return st;
}

const cli_command command_plan_nanotron = {
    .name = "plan nanotron",
    .summary = "a config of nanotron as one of this program",
    .usage = "NANOTRON.yaml [-o CONFIG.yaml]",
    .run = cmd_plan_nanotron,
    .takes_output = true,
    .about = "Model, layout, batch and rate are taken over: athanor plan CONFIG.yaml "
             "cluster=h100-64 then plans it.\n"};
