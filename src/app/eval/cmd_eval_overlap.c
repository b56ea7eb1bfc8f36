/* athanor eval overlap: which documents of tasks stand in training data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "base/file.h"
#include "base/json.h"
#include "eval/overlap.h"

typedef struct search {
    const cli_args *args;
    arena *a;
    shards *shards;
    tok *tok;
    int64_t ngram;
    json_t *out; /* NULL: text */
} search;

static status open_data(search *x, err *e) {
    const char *tokenizer = cli_value(x->args, "tokenizer");
    TRY(shards_open(&x->shards, &(shards_spec){.path = x->args->inputs[0], .eos = -1}, e));
    if (!tokenizer) tokenizer = path_join(x->a, x->shards->dir, "tokenizer.json");
    if (!file_exists(tokenizer)) {
        err_at(e, ST_USAGE, tokenizer, "the tokenizer of %s is not known", x->args->inputs[0]);
        return err_hint(e, "give it as --tokenizer FILE");
    }
    TRY(tok_load(&x->tok, tokenizer, e));
    return shards_check_tokenizer(x->shards, tok_hash(x->tok), e);
}

static status tell_doc(const search *x, const eval_task *t, const overlap_doc *d, json_t *list,
                       err *e) {
    shard_place at;
    TRY(shards_locate(x->shards, d->first_at, x->a, &at, e));
    if (list) {
        json_array_append_new(list,
                              json_pack("{s:O,s:I,s:I,s:I,s:o,s:I}", "doc_id", d->doc->id, "ngrams",
                                        (json_int_t)d->n, "found", (json_int_t)d->found, "token",
                                        (json_int_t)d->first_at, "source", json_cstr(at.source),
                                        "line", (json_int_t)at.line));
        return ST_OK;
    }
    char *id = json_dumps(d->doc->id, JSON_ENCODE_ANY);
    printf("%s, document %s: %ld of %ld n-grams; first at token %lu, of %s:%u\n", t->name, id,
           (long)d->found, (long)d->n, (unsigned long)d->first_at, at.source, at.line);
    free(id);
    return ST_OK;
}

static status tell(const search *x, const eval_task *t, const overlap *o, err *e) {
    json_t *list = x->out ? json_array() : NULL;
    int64_t shorter = 0;
    status st = ST_OK;
    for (int32_t i = 0; st == ST_OK && i < t->n; i++) {
        shorter += o->doc[i].n == 0;
        if (o->doc[i].found) st = tell_doc(x, t, &o->doc[i], list, e);
    }
    if (x->out)
        json_object_set_new(x->out, t->name,
                            json_pack("{s:I,s:I,s:I,s:o}", "documents", (json_int_t)t->n,
                                      "overlapping", (json_int_t)o->n_found, "too_short",
                                      (json_int_t)shorter, "found", list));
    else if (st == ST_OK)
        printf(
            "%s: %ld of %d documents have an n-gram of %ld tokens in the data; %ld are shorter\n",
            t->name, (long)o->n_found, t->n, (long)x->ngram, (long)shorter);
    return st;
}

static status search_task(const search *x, const char *name, err *e) {
    eval_task t;
    overlap o = {0};
    eval_source from = {.data = cli_value(x->args, "data"), .no_alone = true};
    status st = eval_task_open(&t, name, &from, e);
    if (st == ST_OK && json_object_get(x->out, t.name))
        st = err_set(e, ST_USAGE, "two tasks have the name %s", t.name);
    if (st == ST_OK) st = overlap_find(&o, &t, x->tok, x->shards, (int)x->ngram, e);
    if (st == ST_OK) st = tell(x, &t, &o, e);
    overlap_free(&o);
    eval_task_close(&t);
    return st;
}

static status search_all(search *x, err *e) {
    const char *tasks = cli_value(x->args, "tasks");
    if (!tasks) return err_set(e, ST_USAGE, "eval overlap needs --tasks A,B");
    TRY(cli_int(x->args, "ngram", 13, 2, 64, &x->ngram, e));
    TRY(open_data(x, e));
    char *names = arena_strdup(x->a, tasks), *rest;
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        TRY(search_task(x, name, e));
    return ST_OK;
}

static status cmd_eval_overlap(const cli_args *args, err *e) {
    search x = {.args = args, .a = arena_new("overlap"), .out = args->json ? json_object() : NULL};
    status st = search_all(&x, e);
    if (st == ST_OK && x.out) cli_print_json(json_pack("{s:O}", "tasks", x.out));
    json_decref(x.out);
    tok_free(x.tok);
    shards_close(x.shards);
    arena_free(x.a);
    return st;
}

static const cli_option options[] = {
    {"tasks", "A,B", "as for athanor eval"},
    {"data", "FOLDER", "where the data files of tasks are"},
    {"ngram", "N", "tokens of an n-gram (13)"},
    {"tokenizer", "FILE", "of the shards (tokenizer.json in their folder)"},
    {0}};

const cli_command command_eval_overlap = {
    .name = "eval overlap",
    .summary = "which documents of tasks stand in training data",
    .usage = "SHARDS --tasks A,B [--ngram N] [--data FOLDER] [--tokenizer FILE]",
    .run = cmd_eval_overlap,
    .options = options,
    .about = "A document is its question with the right answer, without what all documents of the "
             "task begin with.\n"};
