#include "interchange/drafting.h"

#include <string.h>

/* Rows of a pass up to which a draft model is asked, where the engine has no measure of its own. */
enum { DRAFT_ROWS = 8 };

static status open_smaller(drafting *d, open_model *m, const char *path, int threads, err *e) {
    engine_size *size = &m->serve;
    if (!size->draft) size->draft = DRAFT_ROWS;
    TRY(open_model_read_on(&d->model, path, NULL, dev_kind_name(dev_get_kind(m->dev)), threads, e));
    TRY(draft_check(m->tok, d->model.tok, e));
    int64_t most = model_max_tokens(&d->model.config);
    TRY(open_model_load(&d->model, size->longest < most ? size->longest : (int)most, 0, e));
    d->gen = open_model_generator(&d->model);
    return ST_OK;
}

static status use_module(open_model *m, err *e) {
    if (!m->serve.ahead) {
        err_at(e, ST_USAGE, "--draft",
               "the model has no module of multi-token prediction (num_nextn_predict_layers)");
        return err_hint(e, "give --draft ngram, or a smaller model");
    }
    m->serve.from_text = m->serve.timed = false;
    return ST_OK;
}

status drafting_open(drafting *d, open_model *m, const char *word, int threads, err *e) {
    *d = (drafting){0};
    if (!word || strcmp(word, "auto") == 0) return ST_OK;
    if (m->serve.states && strcmp(word, "none") != 0) {
        err_at(e, ST_USAGE, "--draft",
               "the model has linear layers (linear_layers), from whose states no token that was "
               "tried can be taken back");
        return err_hint(e, "give --draft none");
    }
    if (strcmp(word, "mtp") == 0) return use_module(m, e);
    if (strcmp(word, "none") == 0) m->serve.draft = 0;
    if (strcmp(word, "none") == 0 || strcmp(word, "ngram") == 0) {
        m->serve.ahead = false;
        return ST_OK;
    }
    status st = open_smaller(d, m, word, threads, e);
    return st == ST_OK ? st : err_context(e, "the model that drafts");
}

void drafting_begin(drafting *d, engine *en) {
    if (d->model.plan) engine_set_draft_model(en, &d->gen);
}

json_t *drafting_json(const engine *en, const generate_result *result) {
    engine_cost cost = engine_get_cost(en);
    json_t *o = json_pack("{s:I,s:I}", "tried", (json_int_t)result->n_tried, "right",
                          (json_int_t)result->n_right);
    if (cost.plain_ms > 0)
        json_object_set_new(o, "module",
                            json_pack("{s:o,s:o,s:o,s:o,s:b}", "plain_ms", json_f64(cost.plain_ms),
                                      "tried_ms", json_f64(cost.tried_ms), "module_ms",
                                      json_f64(cost.module_ms), "right", json_f64(cost.right),
                                      "pays", cost.pays));
    return o;
}

void drafting_close(drafting *d) {
    generator_free(&d->gen);
    if (d->model.a) open_model_close(&d->model);
}
