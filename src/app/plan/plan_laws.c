#include "app/plan/plan_laws.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/shard/shards.h"

/* Of all stages and a growing batch. */
static double tokens_of(const course *k) {
    return k && k->knows_length ? (double)course_tokens_after(k, k->total_steps) : 0;
}

bool plan_laws_run(const config *c, const plan *p, const course *k, laws_run *out) {
    const param_store *whole = param_store_whole(p->store);
    bool begins = !json_object_get(c->model, "from") && c->train.objective == CONFIG_OBJECTIVE_LM;
    double params = (double)model_active_params(&p->spec.model, whole);
    *out =
        (laws_run){.params = params,
                   .body = params - (double)model_embedding_params(&p->spec.model, whole),
                   .stored = p->spec.model.num_experts ? (double)param_store_sizes(whole).elems : 0,
                   .tokens = tokens_of(k),
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

/* One for each set of shards of data.train that is there: [{path, tokens, epochs, worth}]; none of a run with stages. */
static json_t *epochs_json(const config *c, double tokens) {
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

static void describe_epochs(const json_t *epochs, strbuf *out) {
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

void plan_laws_put(const config *c, const laws_run *r, json_t *o, strbuf *text) {
    json_t *epochs = epochs_json(c, r->tokens);
    if (o) {
        json_object_set_new(o, "laws", laws_json(r));
        if (json_array_size(epochs)) json_object_set(o, "epochs", epochs);
    } else {
        laws_describe(r, text);
        describe_epochs(epochs, text);
    }
    json_decref(epochs);
}
