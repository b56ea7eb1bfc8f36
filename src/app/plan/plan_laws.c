#include "app/plan/plan_laws.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/shard/shards.h"
#include "train/course/course.h"

/* Of all stages and a growing batch; 0: not known. */
static double tokens_of(const config *c) {
    course *k;
    err none = {0};
    if (!(c->train.steps || c->train.tokens) || course_new(&k, c, 0, NULL, &none) != ST_OK)
        return 0;
    double tokens = (double)course_tokens_after(k, k->total_steps);
    course_free(k);
    return tokens;
}

bool plan_laws_run(const config *c, const plan *p, laws_run *out) {
    const param_store *whole = param_store_whole(p->store);
    bool begins = !json_object_get(c->model, "from") && c->train.objective == CONFIG_OBJECTIVE_LM;
    double params = (double)model_active_params(&p->spec.model, whole);
    *out =
        (laws_run){.params = params,
                   .body = params - (double)model_embedding_params(&p->spec.model, whole),
                   .stored = p->spec.model.num_experts ? (double)param_store_sizes(whole).elems : 0,
                   .tokens = tokens_of(c),
                   .batch = (double)c->train.global_batch_size * p->spec.T,
                   .lr = c->optim.lr};
    return begins && p->spec.train_B && out->tokens > 0;
}

/* Tokens of a source; 0: it is not there yet, or it is no set of shards. */
static double tokens_of_source(const config_source *s) {
    shards *set;
    err none = {0};
    shards_spec spec = {.path = s->path, .format = (shards_format)s->format, .eos = -1};
    spec.width_bytes = s->dtype == CONFIG_TOKEN_DTYPE_U16   ? 2
                       : s->dtype == CONFIG_TOKEN_DTYPE_U32 ? 4
                                                            : 0;
    if (shards_open(&set, &spec, &none) != ST_OK) return 0;
    double tokens = (double)set->totals.tokens;
    shards_close(set);
    return tokens;
}

json_t *plan_epochs_json(const config *c, double tokens) {
    double weights = 0;
    json_t *list = json_array();
    if (c->stages.n) return list; /* each may have sources of its own */
    for (int i = 0; i < c->data.train.n; i++) weights += c->data.train.items[i].weight;
    for (int i = 0; i < c->data.train.n; i++) {
        const config_source *s = &c->data.train.items[i];
        double has = tokens_of_source(s), epochs = has > 0 ? tokens * s->weight / weights / has : 0;
        if (epochs <= 0) continue;
        json_array_append_new(list, json_pack("{s:o,s:f,s:f,s:f,s:b}", "path", json_cstr(s->path),
                                              "tokens", has, "epochs", epochs, "worth",
                                              laws_worth_of_epochs(epochs), "too_often",
                                              epochs > LAWS_MOST_EPOCHS));
    }
    return list;
}

void plan_epochs_describe(const json_t *epochs, strbuf *out) {
    const json_t *x;
    size_t i;
    json_array_foreach((json_t *)epochs, i, x) {
        const char *path = json_string_value(json_object_get(x, "path"));
        double e = json_number_value(json_object_get(x, "epochs"));
        strbuf_printf(out, "  %-22.22s %.3g epochs", path_base(path), e);
        if (e > 1)
            strbuf_printf(out, ", worth %.3g of new tokens (Muennighoff et al. 2023)",
                          json_number_value(json_object_get(x, "worth")));
        strbuf_puts(out,
                    e > LAWS_MOST_EPOCHS ? ": more than four, which repeat too often\n" : "\n");
    }
}
