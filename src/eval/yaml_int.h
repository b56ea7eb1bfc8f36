/* What the files that read a task YAML share: task_yaml.c (keys, data, documents), yaml_fields.c
 * (fields and examples), yaml_measures.c (metrics, filters, generation). */
#ifndef EVAL_YAML_INT_H
#define EVAL_YAML_INT_H

#include "eval/python.h"
#include "eval/rows.h"
#include "eval/task.h"
#include "jinja/jinja.h"

/* doc_to_text and its like: the name of a column, a template over the columns, or a value as it
 * is. */
typedef struct yaml_field {
    const char *key;     /* "doc_to_text" */
    const char *where;   /* "task.yaml:7" */
    const json_t *value; /* NULL: the task has none */
    jinja_template *template;
} yaml_field;

typedef struct yaml_task {
    eval_task *t;
    const char *path, *data;    /* of the file; the folder of data */
    const char *known;          /* its text, of a task that is known by name; NULL: it is a file */
    const json_t *column_names; /* of CSV files without a header; NULL: they have one */
    json_t *config, *origins;
    yaml_field text, choice, target, description;
    const char *target_delimiter, *fewshot_delimiter;
    eval_rows docs, examples;
    int64_t n_few;
    bool examples_given; /* by fewshot_config.samples */
    bool first_n;        /* the examples are the first of their split, else drawn */
    bool skips_own;      /* one example more is drawn, and what equals the document is none */
    py_random random;
} yaml_task;

/* A key that the task has and that is not null. */
const json_t *yaml_key(const yaml_task *y, const char *key);
/* ST_USAGE: "KEY WHAT", with file and line. */
status yaml_wrong(const yaml_task *y, const char *key, const char *what, err *e);
status yaml_text(const yaml_task *y, const char *key, const char *fallback, const char **out,
                 err *e) ATH_MUST_USE;
/* Adds the row's place to an error, which may name a place in the task file already. */
status rows_where(const eval_rows *r, int64_t i, err *e);

/* ---- yaml_fields.c ---- */

/* Reads doc_to_text, doc_to_choice, doc_to_target, description, and which examples there are.
 * n_few: instead of num_fewshot; -1: as the task says. */
status eval_yaml_fields(yaml_task *y, int64_t n_few, err *e) ATH_MUST_USE;
void field_free(yaml_field *f);
/* Appends what a field gives for a row, as a text; nothing where there is no such field. */
status field_text(const yaml_field *f, const json_t *row, strbuf *out, err *e) ATH_MUST_USE;
/* Appends the question of a row; or *number, -1 otherwise, says which of the choices it is, and
 * nothing is appended. */
status eval_question_of(const yaml_task *y, const json_t *row, strbuf *out, int64_t *number,
                        err *e) ATH_MUST_USE;
/* Appends a choice of a row. */
status eval_choice_text(const yaml_task *y, const json_t *row, int64_t number, strbuf *out,
                        err *e) ATH_MUST_USE;
/* The list of choices of a row. */
status eval_choices_of(const yaml_task *y, const json_t *row, json_t **out, err *e) ATH_MUST_USE;
/* The target of a row: a number (of a choice), a text, or a list of these. */
status eval_target_of(const yaml_task *y, const json_t *row, json_t **out, err *e) ATH_MUST_USE;
/* Appends the target as the text that stands in an example. */
status eval_answer_text(const yaml_task *y, const json_t *row, strbuf *out, err *e) ATH_MUST_USE;
/* Which choices a target means. */
status eval_gold_of(yaml_task *y, eval_doc *d, const json_t *choices, const json_t *target,
                    err *e) ATH_MUST_USE;
/* The numbers of n_few examples for a document. */
status eval_pick_examples(yaml_task *y, const json_t *row, int64_t *out, err *e) ATH_MUST_USE;

/* ---- yaml_measures.c ---- */

/* Reads output_type, metric_list, filter_list, generation_kwargs. */
status eval_yaml_measures(yaml_task *y, err *e) ATH_MUST_USE;

#endif
