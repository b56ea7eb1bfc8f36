/* Tasks: what all sources share (see task.h). */
#include "eval/task.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/text/stream.h"
#include "eval/adapters.h"
#include "eval/dialogue.h"

const char *const eval_metric_names[METRIC_COUNT] = {EVAL_METRICS(LIST_WORD)};

/* ---- documents ---- */

eval_doc *eval_add_doc(eval_task *t, const char *file, int64_t line) {
    t->doc = arena_grow(t->a, t->doc, t->n, &t->cap, sizeof *t->doc);
    eval_doc *d = &t->doc[t->n++];
    *d = (eval_doc){.file = file, .line = line};
    return d;
}

eval_text eval_keep(eval_task *t, const char *s, size_t len) {
    return (eval_text){arena_strndup(t->a, s, len), len};
}

eval_text eval_keep_result(eval_task *t, const char *s, size_t len) {
    return (eval_text){arena_strndup(t->made, s, len), len};
}

bool eval_keep_json(eval_task *t, const json_t *value, eval_text *out) {
    if (json_is_string(value)) {
        *out = eval_keep(t, json_string_value(value), json_string_length(value));
    } else if (json_is_boolean(value)) {
        *out = json_is_true(value) ? eval_keep(t, "True", 4) : eval_keep(t, "False", 5);
    } else if (json_is_number(value)) {
        strbuf b = {0};
        json_format(&b, value, 0);
        *out = eval_keep(t, strbuf_cstr(&b), b.len);
        strbuf_free(&b);
    } else {
        return false;
    }
    return true;
}

static const char *keep_word(eval_task *t, const json_t *v) {
    return json_is_string(v) && json_string_length(v) ? arena_strdup(t->a, json_string_value(v))
                                                      : NULL;
}

void eval_set_origin(eval_task *t, eval_doc *d, const json_t *row) {
    d->source = keep_word(t, json_object_get(row, "source"));
    d->language = keep_word(t, json_object_get(row, "language"));
    if (!d->language) d->language = keep_word(t, json_object_get(row, "lang"));
}

const json_t *eval_keep_value(eval_task *t, const json_t *value) {
    if (!t->kept) t->kept = json_array();
    json_array_append(t->kept, (json_t *)value);
    return value;
}

void eval_set_gold(eval_task *t, eval_doc *d, int32_t gold) {
    d->gold = arena_memdup(t->a, &gold, sizeof gold);
    d->n_gold = 1;
}

/* ---- lines ---- */

/* Editors of Windows begin UTF-8 with a mark, which no parser takes for JSON. */
static void drop_mark(strbuf *text) {
    size_t n = utf8_mark(text->data, text->len);
    if (!n) return;
    memmove(text->data, text->data + n, text->len - n);
    strbuf_truncate(text, text->len - n);
}

status eval_read_file(const char *path, strbuf *out, err *e) {
    stream *s;
    size_t got = 1;
    TRY(stream_open(&s, path, e));
    status st = ST_OK;
    while (st == ST_OK && got > 0) {
        enum { PIECE = 1 << 20 };
        char *to = strbuf_extend(out, PIECE);
        st = stream_read(s, to, PIECE, &got, e);
        strbuf_truncate(out, out->len - PIECE + (st == ST_OK ? got : 0));
        if (st == ST_OK && (int64_t)out->len > FILE_TEXT_MAX_BYTES)
            st = err_at(e, ST_FORMAT, path, "%s unpacks to more than 4 GiB", path);
    }
    stream_close(s);
    if (st != ST_OK) strbuf_free(out);
    if (st == ST_OK) drop_mark(out);
    return st;
}

static status take_line(const char *s, size_t n, eval_take take, void *ctx, int64_t line, err *e) {
    json_error_t je;
    json_t *o = json_loadb(s, n, JSON_ALLOW_NUL, &je);
    status st = json_is_object(o) ? take(ctx, o, line, e)
                                  : err_set(e, ST_FORMAT, "the line is not a JSON object%s%s",
                                            o ? "" : ": ", o ? "" : je.text);
    if (!json_is_object(o))
        err_hint(e, "each line of it has to be one object, such as {\"text\": \"...\"}");
    json_decref(o);
    return st;
}

status eval_read_lines(const char *path, eval_take take, void *ctx, err *e) {
    strbuf text = {0};
    status st = eval_read_file(path, &text, e);
    int64_t line = 0;
    for (size_t at = 0; st == ST_OK && at < text.len;) {
        const char *s = text.data + at, *stop = memchr(s, '\n', text.len - at);
        size_t n = stop ? (size_t)(stop - s) : text.len - at;
        line++;
        if (strspn(s, " \t\r") < n) {
            st = take_line(s, n, take, ctx, line, e);
            if (st != ST_OK && !*e->where) err_where(e, "%s:%ld", path, (long)line);
        }
        at += n + 1;
    }
    strbuf_free(&text);
    return st;
}

/* ---- opening ---- */

/* A published set; its data are in a folder that has to be named. */
static status open_known(eval_task *t, const char *name, const eval_source *from, err *e) {
    strbuf text = {0};
    const char *suite = eval_suite(name);
    if (suite) return eval_dialogues_open(t, name, suite, from, e);
    if (!eval_adapter_text(name, &text)) {
        strbuf_free(&text);
        const char *near = eval_adapter_nearest(name);
        err_at(e, ST_USAGE, name, "there is no task %s", name);
        if (near)
            return err_hint(e, "did you mean %s%s?", near,
                            near[strlen(near) - 1] == '_' ? "SUBJECT" : "");
        return err_hint(e, "give a folder with requests.jsonl.gz, a task YAML, a JSONL file, or a "
                           "name that athanor eval --help lists");
    }
    status st = from->data ? eval_yaml_open(t, name, strbuf_cstr(&text), from, e)
                           : err_at(e, ST_USAGE, name, "the task %s has no data", name);
    if (!from->data)
        err_hint(e, "say where its public files are: --data FOLDER, in a config eval.data, under "
                    "decide --task-data");
    strbuf_free(&text);
    return st;
}

/* A folder of requests. One that only has the name of a set, such as its data, is none. */
static bool is_olmes(eval_task *t, const char *path) {
    strbuf text = {0};
    bool known = eval_adapter_text(path, &text);
    strbuf_free(&text);
    bool has = file_exists(path_join(t->a, path, "requests.jsonl.gz")) ||
               file_exists(path_join(t->a, path, "requests.jsonl"));
    return file_is_dir(path) && (has || !known);
}

static status open_path(eval_task *t, const char *path, const eval_source *from, err *e) {
    if (is_olmes(t, path)) return eval_olmes_open(t, path, from, e);
    if (file_is_dir(path) || !file_exists(path)) return open_known(t, path, from, e);
    const char *dot = strrchr(path_base(path), '.');
    bool yaml = dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
    if (yaml && eval_has_dialogues(path)) return eval_dialogues_open(t, path, NULL, from, e);
    return yaml ? eval_yaml_open(t, path, NULL, from, e) : eval_jsonl_open(t, path, from, e);
}

/* How answers are written, where the caller knows better than the task. */
static status set_sampling(eval_task *t, const eval_source *from, err *e) {
    t->keep_reasoning = from->keep_reasoning;
    if (from->repeats) t->repeats = (int)from->repeats;
    if (from->temperature) t->sample.temperature = *from->temperature;
    if (t->kind != EVAL_ANSWER) t->repeats = 1;
    if (t->repeats == 1 || t->sample.temperature > 0) return ST_OK;
    err_at(e, ST_USAGE, t->name, "%d answers of temperature 0 are all the same", t->repeats);
    return err_hint(e, "give a --temperature above 0");
}

static status check_examples(const eval_task *t, const eval_source *from, err *e) {
    if (from->n_few <= 0 || t->takes_examples) return ST_OK;
    err_at(e, ST_USAGE, "--num-fewshot",
           "--num-fewshot does nothing with the task %s: its documents stand as they are written",
           t->name);
    return err_hint(e, "leave it out, or evaluate that task apart");
}

status eval_task_open(eval_task *t, const char *path, const eval_source *from, err *e) {
    *t = (eval_task){.a = arena_new("task"), .made = arena_new("results"), .repeats = 1};
    t->sample = (sample_options){.top_p = 1, .repetition_penalty = 1};
    TRY(open_path(t, path, from, e));
    TRY(check_examples(t, from, e));
    TRY(set_sampling(t, from, e));
    if (t->n == 0)
        return err_at(e, ST_FORMAT, path, "the task %s has no documents", t->name ? t->name : path);
    if (t->n_filters == 0) {
        t->filter = ARENA_NEW(t->a, eval_filter);
        t->filter[0].name = arena_strdup(t->a, "none");
        t->n_filters = 1;
    }
    return ST_OK;
}

static void forget_turns(eval_dialogue *d) {
    for (int i = 0; i < d->n_turns; i++) d->turn[i].seen = d->turn[i].written = (eval_text){"", 0};
}

void eval_task_reset(eval_task *t) {
    for (int32_t i = 0; i < t->n; i++) {
        eval_doc *d = &t->doc[i];
        d->loglik = 0; /* the sum of its windows */
        d->token = NULL;
        d->token_nll = NULL;
        d->seen = (eval_text){0};
        d->attempt = NULL;
        if (d->dialogue) forget_turns(d->dialogue);
    }
    arena_reset(t->made);
}

void eval_task_close(eval_task *t) {
    json_decref(t->kept);
    arena_free(t->a);
    arena_free(t->made);
    *t = (eval_task){0};
}
