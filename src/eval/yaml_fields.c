/* Fields of a task file, and the examples that stand before a document (see yaml_int.h). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/yaml.h"
#include "eval/yaml_int.h"

enum { MOST_EXAMPLES = 1024 };

/* ---- fields ---- */

static bool is_template(const char *s) {
    return strstr(s, "{{") || strstr(s, "{%") || strstr(s, "{#");
}

/* A word such as a column has; where the data have none of that name, it is a mistake and no
 * text. */
static bool is_word(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    return n > 0 && s[n] == 0 && !(s[0] >= '0' && s[0] <= '9');
}

static status field_read(const yaml_task *y, const char *key, yaml_field *f, err *e) {
    const char *where = yaml_origin(y->origins, key);
    *f = (yaml_field){.key = key, .value = yaml_key(y, key)};
    f->where = arena_strdup(y->t->a, where ? where : y->path);
    const char *s = json_string_value(f->value);
    if (!s || !is_template(s)) return ST_OK;
    if (jinja_parse_strict(&f->template, s, strlen(s), e) == ST_OK) return ST_OK;
    err_context(e, "%s", key);
    return err_where(e, "%s", f->where);
}

void field_free(yaml_field *f) {
    jinja_free(f->template);
    *f = (yaml_field){0};
}

static status render(const yaml_field *f, const json_t *row, strbuf *out, err *e) {
    static const jinja_limits limits = {
        .steps = 1000000, .output_bytes = 16 << 20, .memory_bytes = 64 << 20};
    if (jinja_render(f->template, row, &limits, out, NULL, e) == ST_OK) return ST_OK;
    err_context(e, "%s", f->key);
    return err_where(e, "%s", f->where);
}

/* What a field gives: the value of a column, a rendered text, or the field's own value. */
static status field_value_of(const yaml_field *f, const json_t *row, json_t **out, err *e) {
    const char *s = json_string_value(f->value);
    json_t *column = s ? json_object_get(row, s) : NULL;
    *out = NULL;
    if (column) {
        *out = json_incref(column);
    } else if (f->template) {
        strbuf text = {0};
        status st = render(f, row, &text, e);
        if (st == ST_OK) *out = json_text(strbuf_cstr(&text), text.len);
        strbuf_free(&text);
        return st;
    } else if (s && is_word(s)) {
        err_set(e, ST_FORMAT, "%s names the column %s, which the data do not have", f->key, s);
        return err_where(e, "%s", f->where);
    } else {
        *out = json_incref((json_t *)f->value);
    }
    return ST_OK;
}

static status append_json(const yaml_field *f, const json_t *v, strbuf *out, err *e) {
    if (json_is_string(v))
        strbuf_append(out, json_string_value(v), json_string_length(v));
    else if (json_is_number(v))
        json_format(out, v, 0);
    else if (json_is_boolean(v))
        strbuf_puts(out, json_is_true(v) ? "True" : "False");
    else {
        err_set(e, ST_FORMAT, "%s gives what is no text", f->key);
        return err_where(e, "%s", f->where);
    }
    return ST_OK;
}

status field_text(const yaml_field *f, const json_t *row, strbuf *out, err *e) {
    json_t *v;
    if (!f->value) return ST_OK;
    if (f->template) return render(f, row, out, e);
    TRY(field_value_of(f, row, &v, e));
    status st = append_json(f, v, out, e);
    json_decref(v);
    return st;
}

/* ---- choices and targets ---- */

/* A list that a template has printed. */
static status parse_list(const yaml_field *f, json_t **v, err *e) {
    json_t *text = *v;
    *v = NULL;
    status st = py_literal(json_string_value(text), json_string_length(text), v, e);
    json_decref(text);
    if (st == ST_OK) return ST_OK;
    err_context(e, "%s", f->key);
    return err_where(e, "%s", f->where);
}

status eval_choices_of(const yaml_task *y, const json_t *row, json_t **out, err *e) {
    const yaml_field *f = &y->choice;
    if (json_is_object(f->value)) { /* the values of a mapping */
        const char *key;
        json_t *value;
        *out = json_array();
        json_object_foreach((json_t *)f->value, key, value) json_array_append(*out, value);
        return ST_OK;
    }
    TRY(field_value_of(f, row, out, e));
    if (json_is_string(*out)) TRY(parse_list(f, out, e));
    if (json_is_array(*out)) return ST_OK;
    json_decref(*out);
    *out = NULL;
    err_set(e, ST_FORMAT, "%s gives no list", f->key);
    return err_where(e, "%s", f->where);
}

/* As lm-evaluation-harness takes it: digits of a template are a number where there are choices, and
 * what is in square brackets is a list if it can be read as one. */
status eval_target_of(const yaml_task *y, const json_t *row, json_t **out, err *e) {
    const yaml_field *f = &y->target;
    TRY(field_value_of(f, row, out, e));
    if (!f->template) return ST_OK;
    const char *s = json_string_value(*out);
    size_t n = json_string_length(*out);
    bool digits = n > 0 && n < 10 && strspn(s, "0123456789") == n;
    if (digits && y->choice.value) {
        json_t *number = json_integer(atol(s));
        json_decref(*out);
        *out = number;
        return ST_OK;
    }
    json_t *list;
    if (n < 2 || s[0] != '[' || s[n - 1] != ']' || py_literal(s, n, &list, NULL) != ST_OK)
        return ST_OK;
    json_decref(*out);
    *out = list;
    return ST_OK;
}

/* As lm-evaluation-harness: a number where there are choices stands for one of them. */
status eval_question_of(const yaml_task *y, const json_t *row, strbuf *out, int64_t *number,
                        err *e) {
    json_t *v;
    *number = -1;
    TRY(field_value_of(&y->text, row, &v, e));
    const char *s = y->text.template ? json_string_value(v) : NULL;
    size_t n = s ? strlen(s) : 0;
    bool digits = n > 0 && n < 10 && strspn(s, "0123456789") == n;
    status st = ST_OK;
    if (y->choice.value && (digits || json_is_integer(v)))
        *number = digits ? atol(s) : json_integer_value(v);
    else
        st = append_json(&y->text, v, out, e);
    json_decref(v);
    return st;
}

status eval_choice_text(const yaml_task *y, const json_t *row, int64_t number, strbuf *out,
                        err *e) {
    json_t *choices;
    TRY(eval_choices_of(y, row, &choices, e));
    status st = append_json(&y->choice, json_array_get(choices, (size_t)number), out, e);
    json_decref(choices);
    return st;
}

status eval_answer_text(const yaml_task *y, const json_t *row, strbuf *out, err *e) {
    json_t *target, *choices = NULL;
    TRY(eval_target_of(y, row, &target, e));
    const json_t *v = json_is_array(target) ? json_array_get(target, 0) : target;
    status st = ST_OK;
    if (y->choice.value && json_is_integer(v)) {
        st = eval_choices_of(y, row, &choices, e);
        if (st == ST_OK) v = json_array_get(choices, (size_t)json_integer_value(v));
    }
    if (st == ST_OK) st = append_json(&y->target, v, out, e);
    json_decref(choices);
    json_decref(target);
    return st;
}

static int32_t choice_of(const json_t *choices, const json_t *target) {
    json_int_t n = (json_int_t)json_array_size(choices), at = json_integer_value(target);
    if (json_is_integer(target)) return at >= 0 && at < n ? (int32_t)at : -1;
    for (json_int_t i = 0; i < n; i++)
        if (json_equal(json_array_get(choices, (size_t)i), (json_t *)target)) return (int32_t)i;
    return -1;
}

status eval_gold_of(yaml_task *y, eval_doc *d, const json_t *choices, const json_t *target,
                    err *e) {
    size_t n = json_is_array(target) ? json_array_size(target) : 1;
    int32_t *gold = ARENA_ARRAY(y->t->a, int32_t, n);
    d->gold = gold;
    d->n_gold = (int)n;
    for (size_t i = 0; i < n; i++) {
        gold[i] = choice_of(choices, json_is_array(target) ? json_array_get(target, i) : target);
        if (gold[i] >= 0) continue;
        err_set(e, ST_FORMAT, "doc_to_target gives none of the %zu choices",
                json_array_size(choices));
        return err_where(e, "%s", y->target.where);
    }
    return n ? ST_OK : err_set(e, ST_FORMAT, "doc_to_target gives no choice");
}

/* ---- examples ---- */

static status too_few(const yaml_task *y, int32_t have, err *e) {
    err_at(e, ST_USAGE, y->path, "the task %s wants %ld examples, and there are %d", y->t->name,
           (long)y->n_few, have);
    return err_hint(e, "give more examples, or lower num_fewshot");
}

static bool may_precede(const yaml_task *y, int64_t i, const json_t *row) {
    return !y->skips_own || !json_equal(json_array_get(y->examples.row, (size_t)i), (json_t *)row);
}

/* Numbers of the first `most` examples that may stand before the document. */
static int64_t list_others(const yaml_task *y, const json_t *row, int64_t most, int64_t *out) {
    int64_t got = 0;
    for (int32_t i = 0; i < eval_rows_n(&y->examples) && got < most; i++)
        if (may_precede(y, i, row)) out[got++] = i;
    return got;
}

static status pick_first(yaml_task *y, const json_t *row, int64_t *out, err *e) {
    bool enough = list_others(y, row, y->n_few, out) == y->n_few;
    return enough ? ST_OK : too_few(y, eval_rows_n(&y->examples), e);
}

/* Of those that differ from the document, where it stands among the examples several times and was drawn too often. */
static status draw_again(yaml_task *y, const json_t *row, int64_t *out, err *e) {
    int32_t n = eval_rows_n(&y->examples);
    int64_t *others = xmalloc(sizeof *others * (size_t)n), have = list_others(y, row, n, others);
    if (have >= y->n_few) py_random_sample(&y->random, have, y->n_few, out);
    for (int64_t i = 0; i < y->n_few && have >= y->n_few; i++) out[i] = others[out[i]];
    free(others);
    return have >= y->n_few ? ST_OK : too_few(y, n, e);
}

status eval_pick_examples(yaml_task *y, const json_t *row, int64_t *out, err *e) {
    int64_t got = 0, drawn[MOST_EXAMPLES + 1];
    int32_t n = eval_rows_n(&y->examples);
    if (y->n_few > n) return too_few(y, n, e);
    if (y->first_n) return pick_first(y, row, out, e);
    int64_t want = y->n_few + (y->skips_own && y->n_few < n);
    py_random_sample(&y->random, n, want, drawn);
    for (int64_t i = 0; i < want && got < y->n_few; i++)
        if (may_precede(y, drawn[i], row)) out[got++] = drawn[i];
    return got == y->n_few ? ST_OK : draw_again(y, row, out, e);
}

static status read_few_config(yaml_task *y, err *e) {
    const json_t *c = yaml_key(y, "fewshot_config");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)c, key, v) {
        const char *s = json_string_value(v);
        if (strcmp(key, "sampler") == 0 && s && strcmp(s, "first_n") == 0) {
            y->first_n = true;
        } else if (strcmp(key, "samples") == 0 && json_is_array(v)) {
            y->examples_given = true;
            for (size_t i = 0; i < json_array_size(v); i++)
                json_array_append(y->examples.row, json_array_get(v, i));
        } else if (strcmp(key, "sampler") != 0 || !s || strcmp(s, "default") != 0) {
            return yaml_wrong(y, "fewshot_config", "has a key or a value that is not supported", e);
        }
    }
    int32_t n = eval_rows_n(&y->examples);
    y->examples.file = ARENA_ARRAY(y->t->a, const char *, n);
    y->examples.line = ARENA_ARRAY(y->t->a, int64_t, n);
    for (int32_t i = 0; i < n; i++) y->examples.file[i] = y->path;
    y->examples.cap_file = y->examples.cap_line = n;
    return ST_OK;
}

status eval_yaml_fields(yaml_task *y, int64_t n_few, err *e) {
    enum { SEED = 1234 };
    const json_t *n = yaml_key(y, "num_fewshot");
    if (n &&
        (!json_is_integer(n) || json_integer_value(n) < 0 || json_integer_value(n) > MOST_EXAMPLES))
        return yaml_wrong(y, "num_fewshot", "is no number from 0 to 1024", e);
    y->n_few = n_few >= 0 ? n_few : json_integer_value(n);
    y->t->takes_examples = y->t->kind != EVAL_TEXT;
    if (!y->t->takes_examples) y->n_few = 0;
    py_random_init(&y->random, SEED);
    TRY(read_few_config(y, e));
    TRY(field_read(y, "doc_to_text", &y->text, e));
    TRY(field_read(y, "doc_to_choice", &y->choice, e));
    TRY(field_read(y, "doc_to_target", &y->target, e));
    TRY(field_read(y, "description", &y->description, e));
    if (!y->text.value && y->t->kind != EVAL_TEXT)
        return yaml_wrong(y, "doc_to_text", "is missing", e);
    if (!y->target.value) return yaml_wrong(y, "doc_to_target", "is missing", e);
    if (!y->choice.value && y->t->kind == EVAL_CHOICES)
        return yaml_wrong(y, "doc_to_choice", "is missing", e);
    return ST_OK;
}
