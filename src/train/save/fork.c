#include "train/save/fork.h"

#include <string.h>

#include "base/json.h"
#include "io/hf/hf_weights.h"

status fork_check_keys(const config *c, const config *before, err *e) {
    static const char *const keys[] = {"optim.name", "lora.rank", "lora.from", "lora.targets",
                                       "lora.train_embeddings"};
    json_t *row, *differences = config_diff(before, c);
    status st = ST_OK;
    size_t i;
    json_array_foreach(differences, i, row) {
        const char *key = json_string_value(json_object_get(row, "key"));
        for (int k = 0; k < ARRAY_LEN(keys) && st == ST_OK; k++) {
            if (strcmp(key, keys[k]) != 0) continue;
            st = config_error(c, e, key,
                              "%s is another one than that of the run, and a fork goes on with its "
                              "weights and the state of its optimizer",
                              key);
            err_hint(e, "leave %s as it was, or start a new run from these weights: model.from=%s",
                     key, before->run ? before->run : "RUN");
        }
    }
    json_decref(differences);
    return st;
}

static status differs(const config *c, const param *p, int64_t elems, const char *dir, err *e) {
    if (elems < 0)
        config_error(c, e, "model", "the fork's model and %s differ: only one of them has %s", dir,
                     p->name);
    else
        config_error(c, e, "model", "%s has %ld elements in the fork's model, and %ld in %s",
                     p->name, (long)param_whole_elems(p), (long)elems, dir);
    return err_hint(e, "a fork goes on with the same weights: leave their sizes as they were");
}

/* Whether b has every parameter of a, and as large. */
static status compare(const config *c, const param_store *a, const param_store *b, const char *dir,
                      err *e) {
    for (int i = 0; i < param_count(a); i++) {
        const param *p = param_at(a, i);
        int at = param_find(b, p->name);
        int64_t elems = at < 0 ? -1 : param_whole_elems(param_at(b, at));
        if (elems != param_whole_elems(p)) return differs(c, p, elems, dir, e);
    }
    return ST_OK;
}

status fork_check_model(const config *c, const model_config *mc, const char *dir, err *e) {
    arena *a = arena_new("fork");
    json_t *o = json_pack("{s:o}", "from", json_string_nocheck(dir));
    model_config was;
    status st = hf_config_read(a, o, 0, &was, e);
    json_decref(o);
    if (st == ST_OK) {
        param_store *now = param_store_new(a, DT_F32), *then = param_store_new(a, DT_F32);
        model_declare(mc, now);
        model_declare(&was, then);
        st = compare(c, now, then, dir, e);
        if (st == ST_OK) st = compare(c, then, now, dir, e);
    }
    arena_free(a);
    return st;
}
