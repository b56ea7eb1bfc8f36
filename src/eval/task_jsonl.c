/* Tasks from JSONL files, or tables with such columns (Parquet, CSV): a line is a document, of one of
 * four forms.
 *
 *   {"context": "Q: 1 + 1?\nA:", "choices": [" 2", " 3"], "gold": 0}
 *       choices, scored as they are after the context
 *   {"prompt": "Q: 1 + 1?\nA:", "answer": "2"}
 *       an answer (a text or a list), which ends at a blank line
 *   {"text": "...", "source": "web", "language": "en"}
 *       a text; where it comes from may be left out
 *   {"turns": [...]}
 *       a dialogue (dialogue.h)
 *
 * "id" is the document's id, else its number from 0. All documents of a file have the same form. */
#include <string.h>

#include "base/file.h"
#include "eval/dialogue.h"
#include "eval/rows.h"

enum { MOST_CHOICES = 1024 };

typedef struct jsonl {
    eval_task *t;
    const char *path;
    int64_t limit;
} jsonl;

static status wrong(const char *key, const char *want, err *e) {
    return err_set(e, ST_FORMAT, "\"%s\" of the document is not %s", key, want);
}

static eval_text keep(eval_task *t, const json_t *s) {
    return eval_keep(t, json_string_value(s), json_string_length(s));
}

static status add_choices(jsonl *j, eval_doc *d, const json_t *o, err *e) {
    const json_t *context = json_object_get(o, "context"), *gold = json_object_get(o, "gold");
    const json_t *choices = json_object_get(o, "choices");
    size_t n = json_array_size(choices);
    if (!json_is_string(context)) return wrong("context", "a text", e);
    if (n == 0 || n > MOST_CHOICES) return wrong("choices", "a list of 1 to 1024 texts", e);
    if (!json_is_integer(gold) || json_integer_value(gold) < 0 ||
        json_integer_value(gold) >= (json_int_t)n)
        return wrong("gold", "the number of a choice, from 0", e);
    eval_text shared = keep(j->t, context);
    d->choice = ARENA_ARRAY(j->t->a, eval_choice, n);
    d->n_choices = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *c = json_array_get(choices, i);
        if (!json_is_string(c)) return wrong("choices", "a list of texts", e);
        eval_text s = keep(j->t, c);
        size_t skip = s.len > 0 && s.s[0] == ' ';
        d->choice[i] = (eval_choice){.pair = {.context = shared, .continuation = s},
                                     .label = {s.s + skip, s.len - skip}};
    }
    eval_set_gold(j->t, d, (int32_t)json_integer_value(gold));
    return ST_OK;
}

static status add_answer(jsonl *j, eval_doc *d, const json_t *o, err *e) {
    const json_t *answer = json_object_get(o, "answer");
    size_t n = json_is_array(answer) ? json_array_size(answer) : 1;
    d->prompt = keep(j->t, json_object_get(o, "prompt"));
    d->target = ARENA_ARRAY(j->t->a, eval_text, n);
    d->n_targets = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *a = json_is_array(answer) ? json_array_get(answer, i) : answer;
        if (!eval_keep_json(j->t, a, &d->target[i])) return wrong("answer", "a text", e);
    }
    return n ? ST_OK : wrong("answer", "a text or a list of texts", e);
}

static status add(jsonl *j, eval_doc *d, const json_t *o, eval_kind *kind, err *e) {
    if (json_object_get(o, "choices")) {
        *kind = EVAL_CHOICES;
        return add_choices(j, d, o, e);
    }
    if (json_is_string(json_object_get(o, "prompt"))) {
        *kind = EVAL_ANSWER;
        return add_answer(j, d, o, e);
    }
    if (json_object_get(o, "turns")) {
        *kind = EVAL_DIALOGUE;
        return eval_dialogue_read(j->t, d, o, e);
    }
    *kind = EVAL_TEXT;
    const json_t *text = json_object_get(o, "text");
    if (json_is_string(text)) {
        d->text = keep(j->t, text);
        eval_set_origin(j->t, d, o);
        return ST_OK;
    }
    err_set(e, ST_FORMAT,
            "the document has none of \"choices\", \"prompt\", \"turns\" and \"text\"");
    return err_hint(
        e, "for example {\"context\": \"1 + 1 =\", \"choices\": [\" 2\", \" 3\"], \"gold\": 0}");
}

static status take(void *ctx, const json_t *o, int64_t line, err *e) {
    jsonl *j = ctx;
    eval_kind kind;
    if (j->limit && j->t->n >= j->limit) return ST_OK;
    const json_t *id = json_object_get(o, "id");
    json_t *number = json_integer(j->t->n);
    eval_doc *d = eval_add_doc(j->t, j->path, line);
    d->id = eval_keep_value(j->t, json_is_string(id) || json_is_integer(id) ? id : number);
    json_decref(number);
    TRY(add(j, d, o, &kind, e));
    if (j->t->n > 1 && kind != j->t->kind)
        return err_set(e, ST_FORMAT, "the document is of another kind than those before it");
    j->t->kind = kind;
    return ST_OK;
}

/* The rows of a table. */
static status take_rows(jsonl *j, const char *path, err *e) {
    eval_rows rows = {0};
    status st = eval_rows_read(&rows, j->t->a, path, NULL, e);
    for (int32_t i = 0; st == ST_OK && i < eval_rows_n(&rows); i++) {
        st = take(j, json_array_get(rows.row, (size_t)i), rows.line[i], e);
        if (st != ST_OK && !*e->where) err_where(e, "%s:%ld", path, (long)rows.line[i]);
    }
    eval_rows_free(&rows);
    return st;
}

static bool is_table(const char *path) {
    static const char *const ends[] = {".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz"};
    size_t n = strlen(path);
    for (int i = 0; i < ARRAY_LEN(ends); i++) {
        size_t m = strlen(ends[i]);
        if (n > m && strcmp(path + n - m, ends[i]) == 0) return true;
    }
    return false;
}

status eval_jsonl_open(eval_task *t, const char *path, const eval_source *from, err *e) {
    static const unsigned metrics[] = {
        [EVAL_CHOICES] = 1u << METRIC_ACC | 1u << METRIC_ACC_NORM | 1u << METRIC_ACC_BYTES |
                         1u << METRIC_ACC_TOKENS,
        [EVAL_TEXT] = 1u << METRIC_WORD_PERPLEXITY | 1u << METRIC_BYTE_PERPLEXITY |
                      1u << METRIC_BITS_PER_BYTE,
        [EVAL_ANSWER] = 1u << METRIC_EXACT_MATCH,
        [EVAL_DIALOGUE] = 1u << METRIC_PASS};
    jsonl j = {.t = t, .path = arena_strdup(t->a, path), .limit = from->limit};
    const char *base = path_base(path), *dot = strchr(base, '.');
    t->name = arena_strndup(t->a, base, dot && dot > base ? (size_t)(dot - base) : strlen(base));
    static const char *blank_line[] = {"\n\n"};
    t->until = (char **)blank_line;
    t->n_until = 1;
    t->max_new = 256;
    TRY(is_table(path) ? take_rows(&j, j.path, e) : eval_read_lines(path, take, &j, e));
    t->metrics = metrics[t->kind];
    if (t->n && t->kind == EVAL_DIALOGUE) eval_dialogues_end(t);
    return ST_OK;
}
