#include "serve/api/models.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { DEFAULT_CTX = 8192, DEFAULT_STREAMS = 16 };

/* ---- names ---- */

/* What clients see and send is UTF-8, whatever bytes a path or an argument has. */
static char *clean_name(const char *bytes, size_t len) {
    json_t *clean = json_text(bytes, len);
    char *name = xstrdup(json_string_value(clean));
    json_decref(clean);
    return name;
}

static char *name_of(const serve_model *m) {
    if (m->name) return clean_name(m->name, strlen(m->name));
    size_t end = strlen(m->path), from;
    while (end > 1 && m->path[end - 1] == '/') end--;
    for (from = end; from > 0 && m->path[from - 1] != '/'; from--) continue;
    if (end - from > 5 && strncmp(m->path + end - 5, ".gguf", 5) == 0) end -= 5;
    return clean_name(m->path + from, end - from);
}

static status check_names(const served_list *list, err *e) {
    for (int i = 0; i < list->n; i++) {
        if (!*list->item[i].name) return err_at(e, ST_USAGE, "--name", "a model needs a name");
        for (int k = 0; k < i; k++) {
            if (strcmp(list->item[i].name, list->item[k].name) != 0) continue;
            err_at(e, ST_USAGE, "--model", "two models have the name %s", list->item[i].name);
            return err_hint(e, "name one of them: --model NAME=PATH");
        }
    }
    return ST_OK;
}

/* ---- opening ---- */

static status check_tokenizer(const open_model *m, const char *path, err *e) {
    if (m->tok) return ST_OK;
    err_at(e, ST_USAGE, path, "%s has no tokenizer, so it cannot be served", path);
    return err_hint(e, "put its tokenizer.json into the folder");
}

static status choose_ctx(const served *s, const serve_options *opt, int *ctx, err *e) {
    int64_t most = model_max_tokens(&s->model.config);
    *ctx = opt->ctx ? opt->ctx : (int)(most < DEFAULT_CTX ? most : DEFAULT_CTX);
    if (*ctx <= most) return ST_OK;
    err_at(e, ST_USAGE, "--ctx", "--ctx %d is more than the %ld tokens that %s was made for", *ctx,
           (long)most, s->name);
    return err_hint(e, "leave it out, or give at most %ld", (long)most);
}

/* A model without a template continues texts only. */
static status read_template(served *s, const serve_model *m, err *e) {
    const char *dir = open_model_text_dir(&s->model);
    const tok *open = s->model.gguf ? s->model.tok : NULL;
    TRY(chat_template_find(&s->template, dir ? dir : m->path, open, m->template, e));
    TRY(chat_template_check(m->template, s->model.tok, m->path, e));
    if (!s->template) return ST_OK;
    struct tm now;
    time_t seconds = (time_t)clock_wall_s();
    localtime_r(&seconds, &now);
    for (int64_t i = 0; i < s->settings.end.n; i++)
        generation_add_end(&s->chat_end, s->settings.end.id[i]);
    generation_add_end(&s->chat_end, chat_find_stop(s->template, s->model.tok, &now));
    s->calls = call_form_of(s->template);
    s->thought = thought_marks_of(s->template);
    return ST_OK;
}

static status open_one(served *s, const serve_model *m, const serve_options *opt, err *e) {
    int ctx;
    strbuf route = {0};
    s->name = name_of(m);
    strbuf_printf(&route, "/v1/models/%s", s->name);
    s->route = route.data;
    TRY(open_model_read_on(&s->model, m->path, m->base, opt->device, opt->threads, e));
    TRY(check_tokenizer(&s->model, m->path, e));
    TRY(open_model_settings(&s->model, &s->settings, e));
    TRY(read_template(s, m, e));
    TRY(open_model_set_cache(&s->model, opt->cache, e));
    TRY(open_model_set_precision(&s->model, opt->precision, e));
    TRY(choose_ctx(s, opt, &ctx, e));
    int64_t bytes = opt->cache_bytes;
    if (!bytes) bytes = (int64_t)dev_machine_available_bytes() / 4 / opt->n_models;
    open_model_set_engine(&s->model, ctx, opt->streams ? opt->streams : DEFAULT_STREAMS, bytes);
    TRY(drafting_open(&s->draft, &s->model, m->draft, opt->threads, e));
    TRY(open_model_load(&s->model, 0, 0, e));
    s->engine = open_model_engine(&s->model);
    drafting_begin(&s->draft, s->engine);
    int64_t vocab = s->model.config.vocab_size, known = tok_vocab_size(s->model.tok);
    s->words = token_trie_new(s->model.tok, (int32_t)(vocab < known ? vocab : known));
    return ST_OK;
}

status served_open_all(served_list *list, const serve_options *opt, err *e) {
    CHECK(opt->n_models > 0, "no model to serve");
    list->item = xcalloc((size_t)opt->n_models, sizeof *list->item);
    list->began = (int64_t)clock_wall_s();
    for (; list->n < opt->n_models; list->n++) {
        served *s = &list->item[list->n];
        status st = open_one(s, &opt->models[list->n], opt, e);
        if (st == ST_OK) continue;
        list->n++;
        if (opt->n_models > 1) err_context(e, "the model %s", s->name);
        return st;
    }
    return check_names(list, e);
}

void served_close_all(served_list *list) {
    for (int i = 0; i < list->n; i++) {
        served *s = &list->item[i];
        engine_free(s->engine);
        drafting_close(&s->draft);
        token_trie_free(s->words);
        generation_settings_free(&s->settings);
        tok_ids_free(&s->chat_end);
        chat_template_free(s->template);
        open_model_close(&s->model);
        free(s->name);
        free(s->route);
    }
    free(list->item);
    *list = (served_list){0};
}

/* ---- finding ---- */

static void say_names(const served_list *list, err *e) {
    strbuf names = {0};
    for (int i = 0; i < list->n; i++)
        strbuf_printf(&names, "%s%s", i ? ", " : "", list->item[i].name);
    err_hint(e, "there is: %s", strbuf_cstr(&names));
    strbuf_free(&names);
}

served *served_find(const served_list *list, const json_t *name, api_fault *f) {
    const char *wanted = json_string_value(name);
    if (!wanted || !*wanted) return &list->item[0];
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->item[i].name, wanted) == 0) return &list->item[i];
    err_at(&f->e, ST_USAGE, "model", "there is no model %.200s", wanted);
    say_names(list, &f->e);
    api_fault_as(f, 404, "model_not_found");
    return NULL;
}

/* ---- the list ---- */

static json_t *sampling_json(const served *s) {
    sample_options o = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    if (s->settings.samples) o = s->settings.sample;
    return json_pack("{s:o, s:o, s:i, s:o, s:o}", "temperature", json_f64(o.temperature), "top_p",
                     json_f64(o.top_p), "top_k", o.top_k, "min_p", json_f64(o.min_p),
                     "repetition_penalty", json_f64(o.repetition_penalty));
}

json_t *served_one_json(const served *s, int64_t began) {
    json_t *meta = json_pack("{s:b, s:b, s:b, s:o}", "chat", s->template != NULL, "tools",
                             s->calls != CALLS_NONE, "reasoning", s->thought != NULL, "sampling",
                             sampling_json(s));
    return json_pack("{s:s, s:s, s:I, s:s, s:i, s:o}", "id", s->name, "object", "model", "created",
                     (json_int_t)began, "owned_by", "athanor", "max_model_len",
                     s->model.serve.longest, "meta", meta);
}

json_t *served_json(const served_list *list) {
    json_t *data = json_array();
    for (int i = 0; i < list->n; i++)
        json_array_append_new(data, served_one_json(&list->item[i], list->began));
    return json_pack("{s:s, s:o}", "object", "list", "data", data);
}
