/* Task files of lm-evaluation-harness: the keys that plain tasks use. A key that is not supported
 * is refused by name, with file and line, since to pass over it would change what is measured.
 *
 * The task's documents are rows of data files: the test split, or the validation split where there
 * is no test split. The files are those of dataset_kwargs.data_files, or those that split_files.h
 * finds. Each field of a task is the name of a column or a template over the columns
 * (field.h); examples before a document come from a split of their own.
 *
 * Reading order: eval_yaml_open, read_config, open_data, add_docs. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "eval/ifeval.h"
#include "eval/split_files.h"
#include "eval/yaml_int.h"

/* ---- keys ---- */

/* Keys that say nothing about what is measured, or that are read elsewhere. */
static const char *const known_keys[] = {"task",
                                         "task_alias",
                                         "tag",
                                         "group",
                                         "dataset_path",
                                         "dataset_name",
                                         "dataset_kwargs",
                                         "training_split",
                                         "validation_split",
                                         "test_split",
                                         "fewshot_split",
                                         "output_type",
                                         "doc_to_text",
                                         "doc_to_target",
                                         "doc_to_choice",
                                         "description",
                                         "target_delimiter",
                                         "fewshot_delimiter",
                                         "fewshot_config",
                                         "num_fewshot",
                                         "metric_list",
                                         "generation_kwargs",
                                         "filter_list",
                                         "repeats",
                                         "should_decontaminate",
                                         "doc_to_decontamination_query",
                                         "metadata",
                                         "include",
                                         "unsafe_code"};

const json_t *yaml_key(const yaml_task *y, const char *key) {
    const json_t *v = json_object_get(y->config, key);
    return json_is_null(v) ? NULL : v;
}

status yaml_wrong(const yaml_task *y, const char *key, const char *what, err *e) {
    const char *where = yaml_origin(y->origins, key);
    err_set(e, ST_USAGE, "%s %s", key, what);
    return err_where(e, "%s", where ? where : y->path);
}

status yaml_text(const yaml_task *y, const char *key, const char *fallback, const char **out,
                 err *e) {
    const json_t *v = yaml_key(y, key);
    if (v && !json_is_string(v)) return yaml_wrong(y, key, "is not a text", e);
    *out = v ? json_string_value(v) : fallback;
    return ST_OK;
}

static status check_keys(const yaml_task *y, err *e) {
    const char *key;
    json_t *value;
    json_object_foreach(y->config, key, value) {
        bool known = false;
        for (int i = 0; i < ARRAY_LEN(known_keys); i++) known |= strcmp(key, known_keys[i]) == 0;
        if (known || json_is_null(value)) continue;
        yaml_wrong(y, key, "is not supported in task files", e);
        int near = text_nearest(key, known_keys, ARRAY_LEN(known_keys));
        return near < 0 ? e->code : err_hint(e, "is %s meant?", known_keys[near]);
    }
    const json_t *repeats = yaml_key(y, "repeats");
    json_int_t n = json_integer_value(repeats);
    if (repeats && (n < 1 || n > 1024))
        return yaml_wrong(y, "repeats", "is no number of answers from 1 to 1024", e);
    if (repeats) y->t->repeats = (int)n;
    return ST_OK;
}

/* ---- files that include others ---- */

static char *folder_of(arena *a, const char *path) {
    size_t n = (size_t)(path_base(path) - path);
    return n ? arena_strndup(a, path, n) : arena_strdup(a, ".");
}

static status load(yaml_task *y, const char *path, int depth, err *e);

/* What the file includes, then its own keys. */
static status take(yaml_task *y, const char *path, const json_t *root, const json_t *origins,
                   int depth, err *e) {
    const json_t *include = json_object_get(root, "include");
    if (!json_is_object(root)) return err_at(e, ST_FORMAT, path, "the task file is no mapping");
    if (include && !json_is_string(include)) {
        err_set(e, ST_USAGE, "include is not the name of a file");
        return err_where(e, "%s", yaml_origin(origins, "include"));
    }
    if (include)
        TRY(load(y, path_join(y->t->a, folder_of(y->t->a, path), json_string_value(include)),
                 depth + 1, e));
    json_object_update(y->config, (json_t *)root);
    json_object_update(y->origins, (json_t *)origins);
    return ST_OK;
}

/* A file, or the text of a task that is known by name. */
static status load(yaml_task *y, const char *path, int depth, err *e) {
    json_t *root, *origins;
    if (depth > 8) return err_at(e, ST_FORMAT, path, "files include each other without end");
    if (y->known)
        TRY(yaml_parse(&root, &origins, path, y->known, strlen(y->known), e));
    else
        TRY(yaml_load(&root, &origins, path, e));
    status st = take(y, path, root, origins, depth, e);
    json_decref(root);
    json_decref(origins);
    return st;
}

/* ---- data ---- */

static status read_rows(const yaml_task *y, const split_files *files, eval_rows *rows, err *e) {
    for (int i = 0; i < files->n; i++)
        TRY(eval_rows_read(rows, y->t->a, files->path[i], y->column_names, e));
    return ST_OK;
}

/* What data_files has for a split: a text or a list of texts, which may be patterns. */
static status read_named(yaml_task *y, const json_t *files, eval_rows *rows, err *e) {
    size_t n = json_is_array(files) ? json_array_size(files) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_is_array(files) ? json_array_get(files, i) : files;
        if (!json_is_string(f))
            return yaml_wrong(y, "dataset_kwargs.data_files", "has what is no name of a file", e);
        char *path = path_join(y->t->a, y->data, json_string_value(f));
        split_files found = {.path = &path, .n = 1};
        if (!file_exists(path)) TRY(eval_match_files(&found, y->t->a, path, e));
        if (found.n == 0) {
            yaml_wrong(y, "dataset_kwargs.data_files", "names a file that is not there", e);
            return err_hint(e, "%s is looked for; --data FOLDER says where data are", path);
        }
        TRY(read_rows(y, &found, rows, e));
    }
    return ST_OK;
}

/* A set that is known by name may be as the hub has it, where its files are not there. */
static bool is_named(const yaml_task *y, const json_t *named) {
    const char *file = json_string_value(named);
    if (!y->known || !file || !yaml_key(y, "dataset_name")) return named != NULL;
    return file_exists(path_join(y->t->a, y->data, file));
}

static status read_split(yaml_task *y, const char *split, eval_rows *rows, err *e) {
    const json_t *kwargs = yaml_key(y, "dataset_kwargs");
    const json_t *named = json_object_get(kwargs, "data_files");
    const char *part = json_string_value(yaml_key(y, "dataset_name"));
    split_files found = {0};
    if (json_is_object(named)) named = json_object_get(named, split);
    if (!is_named(y, named))
        TRY(eval_split_files(&found, y->t->a, y->data, y->t->name, part, split, e));
    if (found.n) return read_rows(y, &found, rows, e);
    if (named) return read_named(y, named, rows, e);
    err_at(e, ST_USAGE, y->path, "the task %s has no data for its split %s", y->t->name, split);
    return err_hint(e,
                    "put %s/%s.jsonl (or .json, .csv, .parquet) into a folder and give it as "
                    "--data FOLDER (in a config: eval.data)",
                    y->t->name, split);
}

static status open_data(yaml_task *y, err *e) {
    const char *test = NULL, *valid = NULL, *train = NULL, *few = NULL;
    TRY(yaml_text(y, "test_split", NULL, &test, e));
    TRY(yaml_text(y, "validation_split", NULL, &valid, e));
    TRY(yaml_text(y, "training_split", NULL, &train, e));
    TRY(yaml_text(y, "fewshot_split", NULL, &few, e));
    const char *split = test ? test : valid;
    if (!split) {
        err_at(e, ST_USAGE, y->path, "the task %s has neither test_split nor validation_split",
               y->t->name);
        return err_hint(e, "say which split its documents are");
    }
    y->t->test_split = test != NULL;
    TRY(read_split(y, split, &y->docs, e));
    y->skips_own = !few && !test; /* as lm-evaluation-harness, which compares the two keys */
    if (y->n_few == 0 || y->examples_given) return ST_OK;
    if (!few) few = train ? train : valid ? valid : test;
    y->skips_own |= test && strcmp(few, test) == 0;
    return read_split(y, few, &y->examples, e);
}

/* ---- documents ---- */

/* The answer of an example between its delimiters, of which an empty one has neither. */
static status add_answer(yaml_task *y, const json_t *example, strbuf *out, err *e) {
    json_t *target;
    TRY(eval_target_of(y, example, &target, e));
    bool is_empty = json_is_string(target) && json_string_length(target) == 0;
    json_decref(target);
    if (is_empty) return ST_OK;
    strbuf_puts(out, y->target_delimiter);
    TRY(eval_answer_text(y, example, out, e));
    strbuf_puts(out, y->fewshot_delimiter);
    return ST_OK;
}

/* What stands before a document: description and examples. */
static status add_examples(yaml_task *y, const json_t *row, strbuf *out, err *e) {
    TRY(field_text(&y->description, row, out, e));
    if (y->n_few == 0) return ST_OK;
    int64_t *pick = ARENA_ARRAY(y->t->a, int64_t, y->n_few);
    TRY(eval_pick_examples(y, row, pick, e));
    for (int64_t i = 0; i < y->n_few; i++) {
        const json_t *example = json_array_get(y->examples.row, (size_t)pick[i]);
        int64_t number;
        status st = eval_question_of(y, example, out, &number, e);
        if (st == ST_OK && number >= 0) st = eval_choice_text(y, example, number, out, e);
        if (st == ST_OK) st = add_answer(y, example, out, e);
        if (st != ST_OK) return rows_where(&y->examples, pick[i], e);
    }
    return ST_OK;
}

/* Choices that are contexts: what follows is the same for all (WinoGrande). */
static status add_contexts(yaml_task *y, eval_doc *d, const json_t *row, eval_text before,
                           int64_t gold, err *e) {
    strbuf follows = {0};
    strbuf_puts(&follows, y->target_delimiter);
    status st = field_text(&y->target, row, &follows, e);
    eval_text kept = eval_keep(y->t, strbuf_cstr(&follows), follows.len);
    strbuf_free(&follows);
    if (st != ST_OK) return st;
    for (int i = 0; i < d->n_choices; i++) {
        eval_choice *c = &d->choice[i];
        const char *s = arena_printf(y->t->a, "%s%s", before.s, c->label.s);
        c->pair = (eval_pair){.context = {s, strlen(s)}, .continuation = kept};
        c->alone = NULL;
    }
    if (y->t->metrics >> METRIC_ACC_MUTUAL_INFO & 1)
        return err_set(e, ST_USAGE, "acc_mutual_info needs choices that are continuations");
    if (gold >= d->n_choices) return err_set(e, ST_FORMAT, "doc_to_text gives none of the choices");
    eval_set_gold(y->t, d, (int32_t)gold);
    return ST_OK;
}

static status add_choices(yaml_task *y, eval_doc *d, const json_t *row, eval_text context,
                          int64_t number, err *e) {
    json_t *choices, *gold;
    TRY(eval_choices_of(y, row, &choices, e));
    int n = (int)json_array_size(choices);
    bool alone = y->t->metrics >> METRIC_ACC_MUTUAL_INFO & 1;
    d->choice = ARENA_ARRAY(y->t->a, eval_choice, n);
    d->n_choices = n;
    status st = n ? ST_OK : err_set(e, ST_FORMAT, "doc_to_choice gives no choices");
    for (int i = 0; st == ST_OK && i < n; i++) {
        eval_choice *c = &d->choice[i];
        if (!eval_keep_json(y->t, json_array_get(choices, (size_t)i), &c->label))
            st = err_set(e, ST_FORMAT, "choice %d is no text", i);
        const char *s = arena_printf(y->t->a, "%s%s", y->target_delimiter, c->label.s);
        c->pair = (eval_pair){.context = context, .continuation = {s, strlen(s)}};
        if (!alone) continue;
        c->alone = ARENA_NEW(y->t->a, eval_pair);
        *c->alone = (eval_pair){.context = {"", 0}, .continuation = c->pair.continuation};
    }
    if (st == ST_OK && number >= 0) {
        st = add_contexts(y, d, row, context, number, e);
    } else if (st == ST_OK && (st = eval_target_of(y, row, &gold, e)) == ST_OK) {
        st = eval_gold_of(y, d, choices, gold, e);
        json_decref(gold);
    }
    json_decref(choices);
    return st;
}

/* As lm-evaluation-harness: no delimiter stands before the continuation. */
static status add_continuation(yaml_task *y, eval_doc *d, const json_t *row, eval_text context,
                               err *e) {
    strbuf s = {0};
    status st = eval_answer_text(y, row, &s, e);
    eval_text kept = eval_keep(y->t, strbuf_cstr(&s), s.len);
    strbuf_free(&s);
    d->choice = ARENA_NEW(y->t->a, eval_choice);
    d->n_choices = 1;
    *d->choice = (eval_choice){.pair = {.context = context, .continuation = kept}, .label = kept};
    return st;
}

/* The right answers of a document that is written. */
static status add_targets(yaml_task *y, eval_doc *d, const json_t *row, err *e) {
    json_t *target, *choices;
    TRY(eval_target_of(y, row, &target, e));
    if (y->choice.value && json_is_integer(target)) {
        status st = eval_choices_of(y, row, &choices, e);
        if (st == ST_OK) {
            json_t *right = json_array_get(choices, (size_t)json_integer_value(target));
            json_decref(target);
            target = right ? json_incref(right) : json_null();
            json_decref(choices);
        }
        if (st != ST_OK) return json_decref(target), st;
    }
    size_t n = json_is_array(target) ? json_array_size(target) : 1;
    d->target = ARENA_ARRAY(y->t->a, eval_text, n);
    d->n_targets = (int)n;
    status st = n ? ST_OK : err_set(e, ST_FORMAT, "doc_to_target gives no answer");
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        const json_t *one = json_is_array(target) ? json_array_get(target, i) : target;
        if (!eval_keep_json(y->t, one, &d->target[i]))
            st = err_set(e, ST_FORMAT, "doc_to_target gives what is no text");
    }
    json_decref(target);
    return st;
}

static status fill_doc(yaml_task *y, eval_doc *d, const json_t *row, err *e) {
    strbuf context = {0};
    int64_t number = -1;
    status st = ST_OK;
    if (y->t->kind == EVAL_TEXT) {
        st = eval_answer_text(y, row, &context, e);
        if (st == ST_OK) d->text = eval_keep(y->t, strbuf_cstr(&context), context.len);
        strbuf_free(&context);
        eval_set_origin(y->t, d, row);
        return st;
    }
    st = add_examples(y, row, &context, e);
    if (st == ST_OK) st = eval_question_of(y, row, &context, &number, e);
    eval_text kept = eval_keep(y->t, strbuf_cstr(&context), context.len);
    strbuf_free(&context);
    if (st != ST_OK) return st;
    if (y->t->kind == EVAL_CHOICES) return add_choices(y, d, row, kept, number, e);
    if (y->t->kind == EVAL_LIKELIHOOD) return add_continuation(y, d, row, kept, e);
    d->prompt = kept;
    if (y->t->metrics & EVAL_IFEVAL_METRICS) TRY(eval_ifeval_read(y->t, d, row, e));
    return add_targets(y, d, row, e);
}

static status add_docs(yaml_task *y, int64_t limit, err *e) {
    int32_t n = eval_rows_n(&y->docs);
    if (limit && limit < n) n = (int32_t)limit;
    for (int32_t i = 0; i < n; i++) {
        eval_doc *d = eval_add_doc(y->t, y->docs.file[i], y->docs.line[i]);
        json_t *id = json_integer(i);
        d->id = eval_keep_value(y->t, id);
        json_decref(id);
        status st = fill_doc(y, d, json_array_get(y->docs.row, (size_t)i), e);
        if (st != ST_OK) return rows_where(&y->docs, i, e);
    }
    return ST_OK;
}

status rows_where(const eval_rows *r, int64_t i, err *e) {
    char where[512];
    snprintf(where, sizeof where, "%.480s:%ld", r->file[i], (long)r->line[i]);
    if (!e || strstr(e->where, where)) return e ? e->code : ST_FAILED;
    if (!*e->where) return err_where(e, "%s", where);
    char template[256];
    snprintf(template, sizeof template, "%.250s", e->where);
    return err_where(e, "%.240s, with %.240s", template, where);
}

/* ---- the whole ---- */

static status read_config(yaml_task *y, const eval_source *from, err *e) {
    const char *name = NULL;
    TRY(load(y, y->path, 0, e));
    TRY(check_keys(y, e));
    const char *base = path_base(y->path), *dot = strrchr(base, '.');
    TRY(yaml_text(y, "task", NULL, &name, e));
    y->t->name =
        name ? arena_strdup(y->t->a, name) : arena_strndup(y->t->a, base, (size_t)(dot - base));
    y->data = from->data ? from->data : folder_of(y->t->a, y->path);
    const json_t *names = json_object_get(yaml_key(y, "dataset_kwargs"), "column_names");
    if (names && !json_is_array(names))
        return yaml_wrong(y, "dataset_kwargs.column_names", "is no list of names", e);
    y->column_names = names;
    TRY(yaml_text(y, "target_delimiter", " ", &y->target_delimiter, e));
    TRY(yaml_text(y, "fewshot_delimiter", "\n\n", &y->fewshot_delimiter, e));
    TRY(eval_yaml_measures(y, e));
    return eval_yaml_fields(y, from->n_few, e);
}

status eval_yaml_open(eval_task *t, const char *path, const char *known, const eval_source *from,
                      err *e) {
    yaml_task y = {.t = t, .path = arena_strdup(t->a, path), .known = known};
    y.config = json_object();
    y.origins = json_object();
    y.examples.row = json_array();
    status st = read_config(&y, from, e);
    if (st == ST_OK) st = open_data(&y, e);
    if (st == ST_OK) st = add_docs(&y, from->limit, e);
    field_free(&y.text);
    field_free(&y.choice);
    field_free(&y.target);
    field_free(&y.description);
    eval_rows_free(&y.docs);
    eval_rows_free(&y.examples);
    json_decref(y.config);
    json_decref(y.origins);
    return st;
}
