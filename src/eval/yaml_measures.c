/* What a task file measures: output_type, metric_list, filter_list, generation_kwargs (see
 * yaml_int.h). */
#include <string.h>

#include "base/text.h"
#include "eval/yaml_int.h"
#include "tok/pretok/pretok.h"

enum { MOST_LISTED = 64 };

/* ---- metrics ---- */

static const unsigned metrics_of_kind[] = {
    [EVAL_CHOICES] = 1u << METRIC_ACC | 1u << METRIC_ACC_NORM | 1u << METRIC_ACC_BYTES |
                     1u << METRIC_ACC_TOKENS | 1u << METRIC_ACC_MUTUAL_INFO,
    [EVAL_LIKELIHOOD] = 1u << METRIC_ACC | 1u << METRIC_PERPLEXITY,
    [EVAL_TEXT] =
        1u << METRIC_WORD_PERPLEXITY | 1u << METRIC_BYTE_PERPLEXITY | 1u << METRIC_BITS_PER_BYTE,
    [EVAL_ANSWER] = 1u << METRIC_EXACT_MATCH | EVAL_IFEVAL_METRICS | 1u << METRIC_BLEU |
                    1u << METRIC_ROUGE_1 | 1u << METRIC_ROUGE_2 | 1u << METRIC_ROUGE_L};

static status check_pattern(const yaml_task *y, const char *key, const char *pattern, err *e) {
    void *code;
    if (pretok_regex_compile_python(&code, pattern, e) != ST_OK) {
        err_context(e, "%s", key);
        return err_where(e, "%s", y->path);
    }
    pretok_regex_free(code);
    return ST_OK;
}

static status read_ignored(yaml_task *y, const json_t *list, err *e) {
    eval_match *m = &y->t->match;
    size_t n = json_array_size(list);
    m->ignore = ARENA_ARRAY(y->t->a, char *, n);
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (!s) return yaml_wrong(y, "metric_list", "has regexes_to_ignore that are no texts", e);
        TRY(check_pattern(y, "regexes_to_ignore", s, e));
        m->ignore[m->n_ignore++] = arena_strdup(y->t->a, s);
    }
    return ST_OK;
}

static bool *match_flag(eval_match *m, const char *key) {
    if (strcmp(key, "ignore_case") == 0) return &m->ignore_case;
    if (strcmp(key, "ignore_punctuation") == 0) return &m->ignore_punctuation;
    return strcmp(key, "ignore_numbers") == 0 ? &m->ignore_numbers : NULL;
}

/* The keys of a metric: its name, what exact_match passes over, and how documents are put
 * together. */
static status read_metric_keys(yaml_task *y, const json_t *metric, err *e) {
    static const char *const aggregations[] = {"mean", "weighted_perplexity", "bits_per_byte",
                                               "perplexity", "bleu"};
    eval_match *m = &y->t->match;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)metric, key, v) {
        const char *s = json_string_value(v);
        bool known = strcmp(key, "metric") == 0 || strcmp(key, "higher_is_better") == 0;
        bool *flag = match_flag(m, key);
        if (flag) *flag = json_is_true(v), known = json_is_boolean(v);
        if (strcmp(key, "regexes_to_ignore") == 0) {
            TRY(read_ignored(y, v, e));
            known = true;
        }
        if (strcmp(key, "aggregation") == 0)
            for (int i = 0; i < ARRAY_LEN(aggregations); i++)
                known |= s && strcmp(s, aggregations[i]) == 0;
        if (known) continue;
        yaml_wrong(y, "metric_list", "has a key or a value that is not supported", e);
        return err_hint(e, "take %s out", key);
    }
    return ST_OK;
}

static status read_metric(yaml_task *y, const json_t *metric, err *e) {
    const char *name = json_string_value(json_object_get(metric, "metric"));
    if (!name) return yaml_wrong(y, "metric_list", "has an entry without the name of a metric", e);
    for (int i = 0; i < METRIC_COUNT; i++) {
        if (strcmp(name, eval_metric_names[i]) != 0) continue;
        if (!(metrics_of_kind[y->t->kind] >> i & 1)) break;
        y->t->metrics |= 1u << i;
        return read_metric_keys(y, metric, e);
    }
    yaml_wrong(y, "metric_list", "has a metric that is not supported for this output_type", e);
    return err_hint(e, "it is %s", name);
}

static status read_metrics(yaml_task *y, err *e) {
    static const unsigned usual[] = {[EVAL_CHOICES] = 1u << METRIC_ACC | 1u << METRIC_ACC_NORM,
                                     [EVAL_LIKELIHOOD] = 1u << METRIC_ACC | 1u << METRIC_PERPLEXITY,
                                     [EVAL_TEXT] = 1u << METRIC_WORD_PERPLEXITY |
                                                   1u << METRIC_BYTE_PERPLEXITY |
                                                   1u << METRIC_BITS_PER_BYTE,
                                     [EVAL_ANSWER] = 1u << METRIC_EXACT_MATCH};
    const json_t *list = yaml_key(y, "metric_list");
    if (!list) y->t->metrics = usual[y->t->kind];
    if (list && (!json_is_array(list) || json_array_size(list) == 0))
        return yaml_wrong(y, "metric_list", "is no list of metrics", e);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(read_metric(y, json_array_get(list, i), e));
    return ST_OK;
}

/* ---- filters ---- */

static status read_step(yaml_task *y, const json_t *o, eval_step *step, err *e) {
    static const struct {
        const char *name;
        eval_step_kind kind;
    } steps[] = {{"take_first", STEP_TAKE_FIRST},
                 {"regex", STEP_REGEX},
                 {"remove_whitespace", STEP_STRIP},
                 {"lowercase", STEP_LOWERCASE},
                 {"uppercase", STEP_UPPERCASE}};
    const char *name = json_string_value(json_object_get(o, "function"));
    const json_t *pattern = json_object_get(o, "regex_pattern");
    const json_t *fallback = json_object_get(o, "fallback");
    int kind = -1;
    for (int i = 0; name && i < ARRAY_LEN(steps); i++)
        if (strcmp(name, steps[i].name) == 0) kind = i;
    if (kind < 0) {
        yaml_wrong(y, "filter_list", "has a function that is not supported", e);
        return err_hint(e,
                        "take_first, regex, remove_whitespace, lowercase and uppercase are; not %s",
                        name ? name : "one without a name");
    }
    step->kind = steps[kind].kind;
    if (step->kind != STEP_REGEX) return ST_OK;
    const char *s =
        json_is_string(pattern) ? json_string_value(pattern) : "#### (\\-?[0-9\\.\\,]+)";
    TRY(check_pattern(y, "regex_pattern", s, e));
    step->pattern = arena_strdup(y->t->a, s);
    json_int_t group = json_integer_value(json_object_get(o, "group_select"));
    if (group < -1 || group > 1000)
        return yaml_wrong(y, "filter_list", "has a group_select that is not -1, 0, 1, ...", e);
    step->group = (int)group;
    step->fallback =
        arena_strdup(y->t->a, json_is_string(fallback) ? json_string_value(fallback) : "[invalid]");
    return ST_OK;
}

static status read_filters(yaml_task *y, err *e) {
    const json_t *list = yaml_key(y, "filter_list");
    size_t n = json_array_size(list);
    if (list && (n == 0 || n > MOST_LISTED))
        return yaml_wrong(y, "filter_list", "is no list of filters", e);
    y->t->filter = ARENA_ARRAY(y->t->a, eval_filter, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i), *steps = json_object_get(o, "filter");
        const char *name = json_string_value(json_object_get(o, "name"));
        eval_filter *f = &y->t->filter[y->t->n_filters++];
        if (!name || !json_is_array(steps) || json_array_size(steps) > MOST_LISTED)
            return yaml_wrong(y, "filter_list", "has an entry without name or filter", e);
        *f = (eval_filter){.name = arena_strdup(y->t->a, name)};
        f->step = ARENA_ARRAY(y->t->a, eval_step, json_array_size(steps));
        for (size_t k = 0; k < json_array_size(steps); k++)
            TRY(read_step(y, json_array_get(steps, k), &f->step[f->n_steps++], e));
    }
    return ST_OK;
}

/* ---- generation ---- */

static status read_until(yaml_task *y, const json_t *until, err *e) {
    size_t n = json_is_array(until) ? json_array_size(until) : 1;
    if (n > MOST_LISTED) return yaml_wrong(y, "generation_kwargs.until", "has too many texts", e);
    y->t->until = ARENA_ARRAY(y->t->a, char *, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_is_array(until) ? json_array_get(until, i) : until;
        const char *s = json_string_value(v);
        if (!s || !*s) return yaml_wrong(y, "generation_kwargs.until", "has what is no text", e);
        y->t->until[y->t->n_until++] = arena_strdup(y->t->a, s);
    }
    return ST_OK;
}

/* Where an answer is sampled; false: the key is none of these, or its value is out of range. */
static bool read_sampling(eval_task *t, const char *key, const json_t *v) {
    double x = json_number_value(v);
    if (!json_is_number(v)) return false;
    if (strcmp(key, "temperature") == 0 && x >= 0 && x <= 100)
        return t->sample.temperature = x, true;
    if (strcmp(key, "top_p") == 0 && x >= 0 && x <= 1) return t->sample.top_p = x, true;
    bool top_k = strcmp(key, "top_k") == 0 && json_is_integer(v) && x >= 0 && x < INT32_MAX;
    if (top_k) t->sample.top_k = (int)x;
    return top_k;
}

/* What is not sampled is the most likely answer, whatever else is said. */
static status read_generation(yaml_task *y, err *e) {
    const json_t *c = yaml_key(y, "generation_kwargs");
    const char *key;
    json_t *v;
    bool samples = true;
    y->t->max_new = 256;
    json_object_foreach((json_t *)c, key, v) {
        json_int_t n = json_integer_value(v);
        if (strcmp(key, "until") == 0) {
            TRY(read_until(y, v, e));
        } else if (strcmp(key, "max_gen_toks") == 0 && json_is_integer(v) && n > 0 && n < 1 << 20) {
            y->t->max_new = n;
        } else if (strcmp(key, "do_sample") == 0 && json_is_boolean(v)) {
            samples = json_is_true(v);
        } else if (!read_sampling(y->t, key, v)) {
            yaml_wrong(y, "generation_kwargs", "has a key or a value that is not supported", e);
            return err_hint(
                e, "until, max_gen_toks, do_sample, temperature, top_p and top_k are; not %s", key);
        }
    }
    if (!samples) y->t->sample.temperature = 0;
    json_t *end = json_string(y->fewshot_delimiter);
    status st = json_object_get(c, "until") ? ST_OK : read_until(y, end, e);
    json_decref(end);
    return st;
}

status eval_yaml_measures(yaml_task *y, err *e) {
    static const char *const types[] = {[EVAL_CHOICES] = "multiple_choice",
                                        [EVAL_LIKELIHOOD] = "loglikelihood",
                                        [EVAL_TEXT] = "loglikelihood_rolling",
                                        [EVAL_ANSWER] = "generate_until"};
    const char *type;
    int kind = -1;
    TRY(yaml_text(y, "output_type", "generate_until", &type, e));
    for (int i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(type, types[i]) == 0) kind = i;
    if (kind < 0) {
        yaml_wrong(y, "output_type", "is not supported", e);
        return err_hint(e,
                        "multiple_choice, loglikelihood, loglikelihood_rolling and generate_until "
                        "are; not %s",
                        type);
    }
    y->t->kind = (eval_kind)kind;
    TRY(read_metrics(y, e));
    if (y->t->kind != EVAL_ANSWER) return ST_OK;
    TRY(read_filters(y, e));
    return read_generation(y, e);
}
