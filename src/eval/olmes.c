/* Request files of OLMES (Gu et al. 2024): a folder with requests.jsonl.gz, and with config.json,
 * which names the task.
 *
 * A line is one request: {"request_type", "doc_id", "idx", "label", "request": {"context",
 * "continuation"}, "doc"}. The texts are those that are scored, few-shot examples and all. Requests
 * of a document follow each other, in the order of its choices. The same continuations come again
 * after a context that says nothing ("Answer:"), under the id of the document plus
 * uncond_docid_offset: for pointwise mutual information. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "eval/task.h"

typedef struct olmes {
    eval_task *t;
    const char *path;
    bool no_alone;
    int64_t limit, offset; /* offset: of the ids of unconditional requests */
    eval_text last;        /* a context that several requests share is kept once */
    int cap_choices;
    int32_t alone_at; /* the document of the last unconditional request */
} olmes;

/* ---- config.json ---- */

static status read_config(olmes *o, const char *dir, err *e) {
    const char *path = path_join(o->t->a, dir, "config.json"), *name;
    json_t *config = NULL;
    if (file_exists(path)) TRY(json_read_file(&config, path, JSON_FILE_MAX_BYTES, e));
    name = json_string_value(json_object_get(config, "task_name"));
    o->t->name = arena_strdup(o->t->a, name ? name : path_base(dir));
    const json_t *task = json_object_get(config, "task_config");
    const json_t *kwargs = json_object_get(task, "metric_kwargs");
    json_int_t offset = json_integer_value(json_object_get(kwargs, "uncond_docid_offset"));
    o->offset = offset > 0 ? offset : 1000000;
    const char *split = json_string_value(json_object_get(task, "split"));
    o->t->test_split = split && strcmp(split, "test") == 0;
    json_decref(config);
    return ST_OK;
}

/* ---- requests ---- */

static status lacks(const char *key, const char *what, err *e) {
    return err_set(e, ST_FORMAT, "the request has no \"%s\" that is %s", key, what);
}

static eval_text keep_context(olmes *o, const json_t *context) {
    size_t n = json_string_length(context);
    if (!o->last.s || n != o->last.len || memcmp(o->last.s, json_string_value(context), n) != 0)
        o->last = eval_keep(o->t, json_string_value(context), n);
    return o->last;
}

/* The text of a choice: as the document lists it, else the continuation without the space before
 * it. */
static eval_text label_of(olmes *o, const json_t *line, json_int_t idx, eval_text continuation) {
    const json_t *choices = json_object_get(json_object_get(line, "doc"), "choices"), *c;
    c = idx >= 0 ? json_array_get(choices, (size_t)idx) : NULL;
    if (json_is_string(c)) return eval_keep(o->t, json_string_value(c), json_string_length(c));
    size_t skip = continuation.len > 0 && continuation.s[0] == ' ';
    return (eval_text){continuation.s + skip, continuation.len - skip};
}

/* The choice of a document that is already there and has this continuation as number idx. */
static status add_alone(olmes *o, json_int_t doc_id, json_int_t idx, const eval_pair *pair,
                        err *e) {
    for (int32_t i = 0; i < o->t->n; i++) {
        int32_t at = (o->alone_at + i) % o->t->n;
        eval_doc *d = &o->t->doc[at];
        if (json_integer_value(d->id) != doc_id - o->offset) continue;
        o->alone_at = at;
        if (idx < 0 || idx >= d->n_choices) break;
        d->choice[idx].alone = arena_memdup(o->t->a, pair, sizeof *pair);
        return ST_OK;
    }
    if (o->limit && o->t->n >= o->limit) return ST_OK; /* of a document that is not wanted */
    return err_set(e, ST_FORMAT,
                   "the unconditional request %ld of document %ld belongs to no choice", (long)idx,
                   (long)(doc_id - o->offset));
}

static status add_choice(olmes *o, const json_t *line, int64_t number, const eval_pair *pair,
                         err *e) {
    eval_task *t = o->t;
    const json_t *id = json_object_get(line, "doc_id"), *gold = json_object_get(line, "label");
    json_int_t idx = json_integer_value(json_object_get(line, "idx"));
    eval_doc *d = t->n ? &t->doc[t->n - 1] : NULL;
    if (!d || !json_equal((json_t *)d->id, (json_t *)id)) {
        if (o->limit && t->n >= o->limit) return ST_OK;
        d = eval_add_doc(t, o->path, number);
        d->id = eval_keep_value(t, id);
        o->cap_choices = 0;
        if (!json_is_integer(gold) || json_integer_value(gold) < 0 ||
            json_integer_value(gold) > INT32_MAX)
            return lacks("label", "the number of a choice", e);
        eval_set_gold(t, d, (int32_t)json_integer_value(gold));
    }
    if (idx != d->n_choices)
        return err_set(e, ST_FORMAT, "request %ld of document %ld comes as number %d", (long)idx,
                       (long)json_integer_value(id), d->n_choices);
    d->choice = arena_grow(t->a, d->choice, d->n_choices, &o->cap_choices, sizeof *d->choice);
    d->choice[d->n_choices++] =
        (eval_choice){.pair = *pair, .label = label_of(o, line, idx, pair->continuation)};
    return ST_OK;
}

static status take_request(void *ctx, const json_t *line, int64_t number, err *e) {
    olmes *o = ctx;
    const char *type = json_string_value(json_object_get(line, "request_type"));
    const json_t *request = json_object_get(line, "request");
    const json_t *context = json_object_get(request, "context");
    const json_t *continuation = json_object_get(request, "continuation");
    const json_t *id = json_object_get(line, "doc_id");
    if (!type) return lacks("request_type", "a text", e);
    if (strcmp(type, "loglikelihood") != 0) {
        err_set(e, ST_USAGE, "requests of the type %s are not supported", type);
        return err_hint(e, "files of loglikelihood requests are");
    }
    if (!json_is_integer(id)) return lacks("doc_id", "a whole number", e);
    if (!json_is_string(context)) return lacks("request.context", "a text", e);
    if (!json_is_string(continuation)) return lacks("request.continuation", "a text", e);
    json_int_t doc_id = json_integer_value(id);
    if (o->limit && o->t->n >= o->limit && doc_id < o->offset &&
        !json_equal((json_t *)o->t->doc[o->t->n - 1].id, (json_t *)id))
        return ST_OK;
    eval_pair pair = {.context = keep_context(o, context),
                      .continuation = eval_keep(o->t, json_string_value(continuation),
                                                json_string_length(continuation))};
    if (o->no_alone && doc_id >= o->offset) return ST_OK;
    if (doc_id < o->offset) return add_choice(o, line, number, &pair, e);
    return add_alone(o, doc_id, json_integer_value(json_object_get(line, "idx")), &pair, e);
}

/* ---- the whole ---- */

static status check_docs(const olmes *o, err *e) {
    for (int32_t i = 0; i < o->t->n; i++) {
        const eval_doc *d = &o->t->doc[i];
        if (d->gold[0] < d->n_choices) continue;
        err_set(e, ST_FORMAT, "the label of document %ld is %d, and it has %d choices",
                (long)json_integer_value(d->id), d->gold[0], d->n_choices);
        return err_where(e, "%s:%ld", d->file, (long)d->line);
    }
    return ST_OK;
}

static bool has_alone(const eval_task *t) {
    for (int32_t i = 0; i < t->n; i++)
        for (int c = 0; c < t->doc[i].n_choices; c++)
            if (!t->doc[i].choice[c].alone) return false;
    return true;
}

status eval_olmes_open(eval_task *t, const char *dir, const eval_source *from, err *e) {
    olmes o = {.t = t, .limit = from->limit, .no_alone = from->no_alone};
    o.path = path_join(t->a, dir, "requests.jsonl.gz");
    if (!file_exists(o.path)) o.path = path_join(t->a, dir, "requests.jsonl");
    if (!file_exists(o.path)) {
        err_at(e, ST_USAGE, dir, "the folder %s has no requests.jsonl.gz", dir);
        return err_hint(e, "give a folder of OLMES requests, a task YAML or a JSONL file");
    }
    TRY(read_config(&o, dir, e));
    TRY(eval_read_lines(o.path, take_request, &o, e));
    TRY(check_docs(&o, e));
    t->metrics =
        1u << METRIC_ACC | 1u << METRIC_ACC_NORM | 1u << METRIC_ACC_BYTES | 1u << METRIC_ACC_TOKENS;
    if (has_alone(t)) t->metrics |= 1u << METRIC_ACC_MUTUAL_INFO;
    return ST_OK;
}
