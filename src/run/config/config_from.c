/* `model.from`: the folder whose weights training starts from, or the GGUF file beside which
 * adapters are trained.
 *
 * A run's folder stands for its newest good checkpoint, which is looked up when the config is read.
 * The other run may go on: a run that has begun keeps to the checkpoint it began with
 * (config_keep_resolved), and where that was pruned since, only its shapes are asked for. A config
 * without a tokenizer takes the folder's. */
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "data/order/loader.h"
#include "io/checkpoint/checkpoint.h"
#include "io/gguf/gguf.h"
#include "io/hf/peft.h"
#include "run/config/config_int.h"
#include "run/folder.h"

static const char *model_from(const config *c) {
    return json_string_value(json_object_get(c->model, "from"));
}

static void set_from(config *c, const char *dir) {
    json_object_set_new(c->model, "from", json_string_nocheck(dir)); /* a path may be any bytes */
}

static void set_tokenizer(config *c, const char *path) {
    c->tokenizer = arena_strdup(c->memory, path);
    json_object_set_new(c->origins, "tokenizer", json_string("model.from"));
}

static status find_checkpoint(config *c, const char *given, err *e) {
    char *dir, *run = arena_strdup(c->memory, given);
    int64_t step;
    for (size_t n = strlen(run); n > 1 && run[n - 1] == '/'; n--) run[n - 1] = '\0';
    TRY(checkpoint_find_newest(c->memory, run, &dir, &step, NULL, NULL, e));
    if (!dir) {
        config_error(c, e, "model.from", "%s is a run without a checkpoint", run);
        return err_hint(e, "train it first, or name a folder with config.json and weights");
    }
    c->from_run = run;
    set_from(c, dir);
    return ST_OK;
}

/* An adapter is no model by itself. */
static status refuse_adapter(const config *c, err *e) {
    const char *from = model_from(c);
    if (!peft_is_folder(from)) return ST_OK;
    config_error(c, e, "model.from", "%s is an adapter, not a whole model", from);
    return err_hint(e,
                    "go on with it by lora.from=%s and its base model as model.from, or merge "
                    "it: athanor export %s -o FOLDER --to hf",
                    c->from_run ? c->from_run : from, c->from_run ? c->from_run : from);
}

static status resolve_gguf(config *c, bool take_tokenizer, err *e) {
    if (!config_adapts(c)) {
        config_error(c, e, "model.from", "%s is a GGUF file, whose weights are not trained",
                     model_from(c));
        return err_hint(e,
                        "make a folder of it: athanor import %s -o FOLDER; or train adapters "
                        "beside it: lora.rank=16",
                        model_from(c));
    }
    if (take_tokenizer && !c->tokenizer) set_tokenizer(c, model_from(c));
    return ST_OK;
}

status config_resolve_from(config *c, bool take_tokenizer, err *e) {
    const char *from = model_from(c);
    if (!from) return ST_OK;
    if (run_is_run(from)) TRY(find_checkpoint(c, from, e));
    TRY(refuse_adapter(c, e));
    if (gguf_is_file(model_from(c))) return resolve_gguf(c, take_tokenizer, e);
    const char *tokenizer = path_join(c->memory, model_from(c), "tokenizer.json");
    if (!take_tokenizer || c->tokenizer || !file_exists(tokenizer)) return ST_OK;
    set_tokenizer(c, tokenizer);
    return ST_OK;
}

/* Whether a value that was stored lies in a checkpoint of the run that `model.from` names now. */
static bool is_of_same_run(const config *c, const char *stored) {
    const char *list = c->from_run ? path_join(c->memory, c->from_run, "checkpoints/") : NULL;
    return list && stored && strncmp(stored, list, strlen(list)) == 0;
}

void config_keep_resolved(config *c, const config *stored) {
    const char *from = model_from(stored);
    if (c->train.precision.compute == CONFIG_PRECISION_AUTO)
        c->train.precision.compute = stored->train.precision.compute;
    if (c->train.precision.arithmetic == CONFIG_ARITHMETIC_AUTO)
        c->train.precision.arithmetic = stored->train.precision.arithmetic;
    if (c->data.packing == PACKING_AUTO) c->data.packing = stored->data.packing;
    if (!is_of_same_run(c, from) || !file_is_dir(from)) return;
    set_from(c, from);
    if (strcmp(config_where(c, "tokenizer"), "model.from") == 0 && stored->tokenizer)
        set_tokenizer(c, stored->tokenizer);
}

bool config_is_resolved(const config *c, const char *key, const json_t *stored) {
    bool one = strcmp(key, "model.from") == 0 ||
               (strcmp(key, "tokenizer") == 0 && strcmp(config_where(c, key), "model.from") == 0);
    return one && is_of_same_run(c, json_string_value(stored));
}

void config_tell_from(const config *c) {
    if (c->from_run) log_info("model.from: the checkpoint %s", model_from(c));
    if (c->tokenizer && strcmp(config_where(c, "tokenizer"), "model.from") == 0)
        log_info("tokenizer: that of model.from, %s", c->tokenizer);
}
