/* See merge.h. Reading order: merge_run, open_models, plan_of, merge_all, merge_one, finish. */
#include "interchange/merge/merge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "interchange/card.h"
#include "interchange/ledger.h"
#include "interchange/merge/merge_check.h"
#include "interchange/merge/merge_recipe.h"
#include "interchange/merge/merge_write.h"

typedef struct merging {
    arena *a;
    const merge_options *opt;
    merge_recipe recipe;
    model_source *models; /* [n] the members, then the base where there is one */
    st_tensor **tensors;  /* [n] of each, as fp32 */
    int n;
    model_source *first; /* whose names and formats the result has: the base, or the first member */
    model_source *dress; /* whose tokenizer, template and config */
    json_t *ledger;
    char plan[17];
    st_tensor *out; /* [param_count(first->params)] of the result, without data */
    float **room;   /* [n + 1] of the largest tensor: each model's, and the result */
    void *bytes;    /* of the largest tensor, in its format */
    merge_output to;
    merge_report *r;
} merging;

/* ---- the models ---- */

static const char *path_of_model(const merging *m, int i) {
    return i < m->recipe.n ? m->recipe.member[i].path : m->recipe.base;
}

static status open_models(merging *m, err *e) {
    const merge_recipe *r = &m->recipe;
    m->n = r->n + (merge_uses_base(r->method) ? 1 : 0);
    m->models = ARENA_ARRAY(m->a, model_source, m->n);
    for (int i = 0; i < m->n; i++) {
        status st = model_source_open(&m->models[i], path_of_model(m, i), NULL, 0, e);
        if (st != ST_OK && i < r->n) return err_context(e, "%s", r->member[i].where);
        TRY(st);
        strbuf_append(&m->r->notes, strbuf_cstr(&m->models[i].notes), m->models[i].notes.len);
    }
    m->first = &m->models[m->n > r->n ? r->n : 0];
    for (int i = 0; i < m->n; i++)
        if (&m->models[i] != m->first)
            TRY(merge_check_pair(m->first, &m->models[i], m->opt->allow, &m->r->notes, e));
    return ST_OK;
}

/* The model that the result looks like outside: as the config says, or the first that has a chat template,
 * the base before all. */
static void choose_dress(merging *m) {
    int order[MERGE_MAX_MODELS + 1], n = 0;
    m->dress = m->first;
    order[n++] = (int)(m->first - m->models);
    for (int i = 0; i < m->n; i++)
        if (&m->models[i] != m->first) order[n++] = i;
    for (int k = 0; k < n; k++) {
        model_source *s = &m->models[order[k]];
        const char *asked = m->recipe.dress;
        if (asked ? strcmp(asked, path_of_model(m, order[k])) != 0
                  : !s->tok || !merge_template_of(s, m->a))
            continue;
        m->dress = s;
        break;
    }
    if (m->dress != m->first)
        strbuf_printf(&m->r->notes, "Tokenizer, chat template and config are those of %s.\n",
                      m->dress->path);
}

/* ---- what is made, by its digests ---- */

static status add_parents(merging *m, err *e) {
    m->ledger = ledger_new("merge");
    m->r->models = json_array();
    for (int i = 0; i < m->n; i++) {
        const model_source *s = &m->models[i];
        const json_t *own = i < m->recipe.n ? m->recipe.member[i].own : NULL;
        json_t *parent;
        TRY(ledger_read_parent(i < m->recipe.n ? "model" : "base", s->path,
                               model_source_kind_name(s->kind), &parent, e));
        static const char *const keys[] = {"weight", "density", "parameters"};
        for (int k = 0; k < ARRAY_LEN(keys); k++)
            if (json_object_get(own, keys[k]))
                json_object_set(parent, keys[k], json_object_get(own, keys[k]));
        ledger_add_parent(m->ledger, parent);
        json_array_append_new(m->r->models,
                              json_pack("{s:O, s:O, s:O}", "path", json_object_get(parent, "path"),
                                        "form", json_object_get(parent, "form"), "digest",
                                        json_object_get(parent, "digest")));
    }
    return ST_OK;
}

static void find_plan(merging *m) {
    strbuf text = {0};
    json_format(&text, m->recipe.config, 0);
    json_format(&text, m->r->models, 0);
    strbuf_printf(&text, " %s %s %llu", ATHANOR_VERSION, m->dress->path,
                  (unsigned long long)m->opt->max_shard_bytes);
    hash_format(hash_bytes(text.data, text.len), m->plan);
    strbuf_free(&text);
    json_object_set_new(m->ledger, "merge",
                        json_pack("{s:s, s:s, s:O}", "method", m->r->method, "plan", m->plan,
                                  "config", m->recipe.config));
}

/* Whether its files of weights are those that the ledger names. */
static bool has_weights(const char *result, const json_t *ledger) {
    const json_t *files = json_object_get(json_object_get(ledger, "model"), "files");
    json_t *there;
    if (ledger_read_files(result, &there, NULL) != ST_OK) return false;
    bool has = json_equal(files, there);
    json_decref(there);
    return has;
}

/* Whether this very merge stands at the result's place. Its report is then that of its ledger. */
static bool is_done(merging *m, const char *result) {
    json_t *old = ledger_read(result);
    const json_t *merge = json_object_get(old, "merge");
    const char *plan = json_string_value(json_object_get(merge, "plan"));
    bool done = plan && strcmp(plan, m->plan) == 0 && !m->opt->force && has_weights(result, old);
    if (done) {
        merge_output_tidy(m->a, result);
        m->r->was_done = true;
        m->r->layers = json_incref(json_object_get(merge, "layers"));
    }
    json_decref(old);
    return done;
}

/* ---- one tensor ---- */

static int64_t elements(const st_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    return n;
}

static status read_input(const merging *m, int k, int i, err *e) {
    const char *name = param_at(m->first->params, i)->name;
    const st_tensor *t = &m->tensors[k][param_find(m->models[k].params, name)];
    int64_t n = elements(t);
    TRY(t->fill(t->ctx, 0, n, m->room[k], e));
    for (int64_t j = 0; j < n; j++) {
        if (isfinite(m->room[k][j])) continue;
        err_at(e, ST_NONFINITE, m->models[k].path, "%s of %s holds %g", name, m->models[k].path,
               (double)m->room[k][j]);
        return err_hint(e, "a model with such weights cannot be merged");
    }
    return ST_OK;
}

static status read_inputs(const merging *m, int i, err *e) {
    for (int k = 0; k < m->n; k++) TRY(read_input(m, k, i, e));
    return ST_OK;
}

/* Into the format of the result. An overflow of F16 is no infinity but an error, and so are weights
 * that cancel out before they divide. */
static status convert(const merging *m, int i, int64_t n, err *e) {
    const float *x = m->room[m->n];
    dtype_convert(m->bytes, m->out[i].dt, x, DT_F32, n);
    float most = m->out[i].dt == DT_F16 ? 65520.0f : INFINITY;
    for (int64_t j = 0; j < n; j++) {
        if (fabsf(x[j]) < most) continue;
        if (!isfinite(x[j])) {
            err_at(e, ST_NONFINITE, m->out[i].name, "%s of the result holds %g", m->out[i].name,
                   (double)x[j]);
            return err_hint(e, "give weights whose sum is not 0, or add `normalize: false`");
        }
        err_at(e, ST_NONFINITE, m->out[i].name, "%s of the result holds %g, which is beyond F16",
               m->out[i].name, (double)x[j]);
        return err_hint(e, "add `dtype: bf16` or `dtype: f32` to the config");
    }
    return ST_OK;
}

/* Squares of |model| and |result - model| for each model. The inputs are read again: methods with a base
 * use their memory. */
static status measure(const merging *m, int i, json_t **out, err *e) {
    int64_t n = elements(&m->out[i]);
    json_t *own = json_array(), *apart = json_array();
    status st = read_inputs(m, i, e);
    for (int k = 0; k < m->n && st == ST_OK; k++) {
        double size = merge_distance(m->room[k], NULL, n);
        double distance = merge_distance(m->room[m->n], m->room[k], n);
        json_array_append_new(own, json_f64(size * size));
        json_array_append_new(apart, json_f64(distance * distance));
    }
    *out = json_pack("{s:o, s:o}", "own", own, "apart", apart);
    return st;
}

/* Where a layer lies among all, for parameters that change over the layers. */
static double place_of(const merging *m, const param *p) {
    int64_t layers = m->first->config.num_hidden_layers;
    if (p->layer >= layers) return 1; /* a module behind the last */
    return p->layer < 0 || layers < 2 ? 0 : (double)p->layer / (double)(layers - 1);
}

static status merge_one(merging *m, int i, err *e) {
    const param *p = param_at(m->first->params, i);
    merge_input in[MERGE_MAX_MODELS];
    int64_t n = elements(&m->out[i]);
    json_t *part;
    TRY(read_inputs(m, i, e));
    for (int k = 0; k < m->recipe.n; k++) in[k].x = m->room[k];
    merge_tensor t = {.name = p->name, .elems = n, .in = in, .out = m->room[m->n]};
    if (m->n > m->recipe.n) t.base = m->room[m->recipe.n];
    merge_recipe_fill(&m->recipe, place_of(m, p), &t);
    merge_compute(&t);
    TRY(convert(m, i, n, e));
    status st = measure(m, i, &part, e);
    if (st == ST_OK) return merge_output_put(&m->to, i, m->bytes, part, e);
    json_decref(part);
    return st;
}

/* ---- all tensors ---- */

static void prepare(merging *m) {
    int count = param_count(m->first->params);
    int64_t most = 0;
    m->tensors = ARENA_ARRAY(m->a, st_tensor *, m->n);
    for (int k = 0; k < m->n; k++)
        m->tensors[k] = model_source_folder_tensors(&m->models[k], m->a, DT_F32);
    m->out = model_source_folder_tensors(m->first, m->a, m->recipe.dt);
    for (int i = 0; i < count; i++) {
        m->out[i].fill = NULL;
        m->out[i].ctx = NULL;
        if (elements(&m->out[i]) > most) most = elements(&m->out[i]);
    }
    m->room = ARENA_ARRAY(m->a, float *, m->n + 1);
    for (int k = 0; k <= m->n; k++) m->room[k] = xmalloc((size_t)most * sizeof(float) + 1);
    m->bytes = xmalloc((size_t)most * sizeof(float) + 1);
}

static status merge_all(merging *m, merge_progress_fn progress, void *ctx, err *e) {
    m->r->tensors = m->to.n;
    for (int i = 0; i < m->to.n; i++) m->r->taken_up += m->to.part[i] != NULL;
    for (int i = 0; i < m->to.n; i++) {
        if (!m->to.part[i]) TRY(merge_one(m, i, e));
        if (progress) progress(ctx, i + 1, m->to.n);
    }
    return ST_OK;
}

/* ---- what is said of it ---- */

static double at(const json_t *part, const char *key, int k) {
    return json_number_value(json_array_get(json_object_get(part, key), (size_t)k));
}

/* The row of a layer in the report. */
static void add_layer(merging *m, int layer) {
    json_t *list = json_array();
    bool any = false;
    for (int k = 0; k < m->n; k++) {
        double own = 0, apart = 0;
        for (int i = 0; i < m->to.n; i++) {
            if (param_at(m->first->params, i)->layer != layer) continue;
            any = true;
            own += at(m->to.part[i], "own", k);
            apart += at(m->to.part[i], "apart", k);
        }
        json_array_append_new(list, own > 0 ? json_f64(sqrt(apart / own)) : json_null());
    }
    if (any)
        json_array_append_new(m->r->layers, json_pack("{s:o, s:o}", "layer",
                                                      layer < 0 ? json_null() : json_integer(layer),
                                                      "distance", list));
    else
        json_decref(list);
}

static void describe(merging *m) {
    int64_t of[DT_COUNT] = {0}, most = 0;
    m->r->params = 0;
    for (int i = 0; i < param_count(m->first->params); i++) {
        int64_t n = elements(&m->out[i]);
        m->r->params += n;
        of[m->out[i].dt] += n;
        if (of[m->out[i].dt] <= most) continue;
        most = of[m->out[i].dt];
        snprintf(m->r->format, sizeof m->r->format, "%s", st_format_name(m->out[i].dt));
    }
}

static void put_sections(const merging *m, strbuf *out) {
    size_t i, k;
    json_t *v, *d;
    strbuf_printf(out,
                  "## Merged\n\nMethod: %s. How far the result lies from each model, as |result - "
                  "model| / |model|:\n\n| layer |",
                  m->r->method);
    json_array_foreach(m->r->models, i, v)
        strbuf_printf(out, " %s |", path_base(json_string_value(json_object_get(v, "path"))));
    strbuf_puts(out, "\n|---|");
    for (int j = 0; j < m->n; j++) strbuf_puts(out, "---|");
    json_array_foreach(m->r->layers, i, v) {
        const json_t *layer = json_object_get(v, "layer");
        if (json_is_null(layer))
            strbuf_puts(out, "\n| outside |");
        else
            strbuf_printf(out, "\n| %lld |", (long long)json_integer_value(layer));
        json_array_foreach(json_object_get(v, "distance"), k, d)
            strbuf_printf(out, " %.4g |", json_number_value(d));
    }
    strbuf_puts(out, "\n");
    if (m->r->notes.len) strbuf_printf(out, "\n%s", strbuf_cstr(&m->r->notes));
}

/* The license that all models have in their cards. */
static const char *common_license(const merging *m) {
    const char *license = card_license_of(m->a, m->models[0].path);
    for (int i = 1; i < m->n && license; i++) {
        const char *other = card_license_of(m->a, m->models[i].path);
        if (!other || strcmp(other, license) != 0) license = NULL;
    }
    return license;
}

static status write_card(const merging *m, err *e) {
    strbuf text = {0};
    model_config mc = model_source_folder_config(m->dress);
    put_sections(m, &text);
    card c = {.name = path_base(m->to.to.path),
              .config = &mc,
              .params = m->r->params,
              .format = m->r->format,
              .bytes = m->r->bytes,
              .files = m->r->files,
              .made = arena_printf(m->a, "merged (%s)", m->r->method),
              .license = m->opt->license ? m->opt->license : common_license(m),
              .tags = "merge",
              .ledger = m->ledger,
              .sections = strbuf_cstr(&text),
              .where = &m->r->where};
    status st = card_write(&c, m->to.to.temp, m->to.to.replace ? m->to.to.path : NULL, e);
    strbuf_free(&text);
    return st;
}

static status finish(merging *m, err *e) {
    const char *dir = m->to.to.temp;
    json_t *files;
    TRY(model_folder_write_rest(m->dress, dir, m->out[0].dt, e));
    TRY(shards_write_index(dir, m->out, &m->to.cut, e));
    for (int k = 0; k < m->to.cut.n; k++)
        TRY(file_sync(path_join(m->a, dir, m->to.cut.name[k]), e));
    m->r->bytes = m->to.cut.bytes;
    m->r->files = m->to.cut.n;
    m->r->layers = json_array();
    for (int layer = -1; layer < m->first->config.num_hidden_layers; layer++) add_layer(m, layer);
    TRY(ledger_read_files(dir, &files, e));
    json_object_set_new(m->ledger, "model",
                        json_pack("{s:s, s:I, s:s, s:o}", "model_type", m->r->model_type, "params",
                                  (json_int_t)m->r->params, "format", m->r->format, "files",
                                  files));
    json_object_set(json_object_get(m->ledger, "merge"), "layers", m->r->layers);
    TRY(ledger_write(dir, m->ledger, e));
    TRY(write_card(m, e));
    return merge_output_commit(&m->to, e);
}

/* ---- the whole ---- */

static status run(merging *m, const char *result, merge_progress_fn progress, void *ctx, err *e) {
    TRY(open_models(m, e));
    choose_dress(m);
    m->r->method = merge_method_words[m->recipe.method];
    m->r->model_type = m->first->config.family->model_type;
    model_config mc = model_source_folder_config(m->dress);
    m->r->where = where_runs_of(&mc, m->dress->tok);
    TRY(add_parents(m, e));
    find_plan(m);
    prepare(m);
    describe(m);
    if (is_done(m, result)) return ST_OK;
    TRY(merge_output_open(&m->to, m->a, result, m->opt->force, m->plan, m->out,
                          param_count(m->first->params), m->opt->max_shard_bytes, e));
    status st = merge_all(m, progress, ctx, e);
    if (st == ST_NONFINITE)
        TRY(merge_output_discard(&m->to, NULL)); /* another start would come no further */
    return st == ST_OK ? finish(m, e) : st;
}

status merge_run(const json_t *config, const json_t *origins, const char *file, const char *result,
                 const merge_options *opt, merge_progress_fn progress, void *ctx, merge_report *r,
                 err *e) {
    arena *a = arena_new("merge");
    merging m = {.a = a, .opt = opt, .r = r, .to = {.journal_fd = -1}};
    *r = (merge_report){0};
    status st = merge_recipe_read(&m.recipe, a, config, origins, file, e);
    if (st == ST_OK) st = run(&m, result, progress, ctx, e);
    merge_output_close(&m.to);
    for (int k = 0; m.room && k <= m.n; k++) free(m.room[k]);
    free(m.bytes);
    for (int i = 0; m.models && i < m.n; i++) model_source_close(&m.models[i]);
    json_decref(m.ledger);
    arena_free(a);
    return st;
}

void merge_report_free(merge_report *r) {
    json_decref(r->models);
    json_decref(r->layers);
    strbuf_free(&r->notes);
    *r = (merge_report){0};
}
