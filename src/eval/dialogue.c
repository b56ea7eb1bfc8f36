/* Reading dialogues (see dialogue.h). */
#include "eval/dialogue.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"

enum { MOST_TURNS = 32, MOST_RULES = 32, MOST_TEXTS = 64 };

/* ---- values ---- */

/* An object of which only these keys are known. */
static status check_keys(const json_t *o, const char *what, const char *const *keys, int n,
                         err *e) {
    const char *key;
    json_t *v;
    if (!json_is_object(o)) return err_set(e, ST_FORMAT, "%s is no mapping", what);
    json_object_foreach((json_t *)o, key, v) {
        bool known = false;
        for (int i = 0; i < n; i++) known |= strcmp(key, keys[i]) == 0;
        if (known) continue;
        err_set(e, ST_FORMAT, "%s has no key %s", what, key);
        int near = text_nearest(key, keys, n);
        return near < 0 ? ST_FORMAT : err_hint(e, "is %s meant?", keys[near]);
    }
    return ST_OK;
}

static status text_of(eval_task *t, const json_t *o, const char *key, const char **out, err *e) {
    const json_t *v = json_object_get(o, key);
    if (v && !json_is_string(v)) return err_set(e, ST_FORMAT, "%s is no text", key);
    *out = v ? arena_strndup(t->a, json_string_value(v), json_string_length(v)) : NULL;
    return ST_OK;
}

/* A text or a list of texts. */
static status texts_of(eval_task *t, const json_t *v, const char *key, eval_rule *r, err *e) {
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n == 0 || n > MOST_TEXTS) return err_set(e, ST_FORMAT, "%s has no texts", key);
    r->text = ARENA_ARRAY(t->a, char *, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(s) || json_string_length(s) == 0)
            return err_set(e, ST_FORMAT, "%s is neither a text nor a list of texts", key);
        r->text[r->n++] = arena_strdup(t->a, json_string_value(s));
    }
    return ST_OK;
}

/* ---- rules ---- */

static status read_call(eval_task *t, const json_t *v, eval_rule *r, err *e) {
    static const char *const keys[] = {"name", "arguments"};
    TRY(check_keys(v, "calls", keys, ARRAY_LEN(keys), e));
    const json_t *name = json_object_get(v, "name"), *arguments = json_object_get(v, "arguments");
    if (!json_is_string(name)) return err_set(e, ST_FORMAT, "calls has no name of a tool");
    if (arguments && !json_is_object(arguments))
        return err_set(e, ST_FORMAT, "the arguments of calls are no mapping");
    r->arguments = arguments;
    return texts_of(t, name, "name", r, e);
}

static status read_rule(eval_task *t, const char *key, const json_t *v, eval_rule *r, err *e) {
    static const char *const names[] = {
        [RULE_CONTAINS] = "contains",   [RULE_LACKS] = "lacks", [RULE_MATCHES] = "matches",
        [RULE_REASONING] = "reasoning", [RULE_ENDS] = "ends",   [RULE_CALLS] = "calls",
        [RULE_SCRIPT] = "script"};
    int kind = 0;
    while (kind < ARRAY_LEN(names) && strcmp(key, names[kind]) != 0) kind++;
    if (kind == ARRAY_LEN(names)) {
        err_set(e, ST_FORMAT, "there is no rule %s", key);
        return err_hint(
            e, "contains, lacks, matches, reasoning, ends, calls and script are rules of expect");
    }
    *r = (eval_rule){.kind = (eval_rule_kind)kind, .wanted = json_is_true(v)};
    if (kind == RULE_CALLS) return read_call(t, v, r, e);
    if (kind == RULE_REASONING || kind == RULE_ENDS)
        return json_is_boolean(v) ? ST_OK
                                  : err_set(e, ST_FORMAT, "%s is neither true nor false", key);
    TRY(texts_of(t, v, key, r, e));
    return eval_rule_check(r, e);
}

/* ---- turns ---- */

static status read_turn(eval_task *t, const json_t *o, eval_turn *turn, err *e) {
    static const char *const keys[] = {"user", "tool", "variables", "expect"};
    TRY(check_keys(o, "a turn", keys, ARRAY_LEN(keys), e));
    const json_t *user = json_object_get(o, "user"), *tool = json_object_get(o, "tool");
    const json_t *said = user ? user : tool, *expect = json_object_get(o, "expect");
    turn->role = user ? "user" : "tool";
    turn->variables = json_object_get(o, "variables");
    turn->failed = -1;
    turn->written = (eval_text){"", 0};
    if (!json_is_string(said) || (user && tool))
        return err_set(e, ST_FORMAT, "a turn has no text of a user or of a tool");
    if (turn->variables && !json_is_object(turn->variables))
        return err_set(e, ST_FORMAT, "the variables of a turn are no mapping");
    if (expect && !json_is_object(expect))
        return err_set(e, ST_FORMAT, "expect is no mapping of rules");
    turn->said = eval_keep(t, json_string_value(said), json_string_length(said));
    turn->rule = ARENA_ARRAY(t->a, eval_rule, MOST_RULES);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)expect, key, v) {
        TRY(read_rule(t, key, v, &turn->rule[turn->n_rules], e));
        turn->n_rules++; /* no more than there are kinds: keys are unique */
    }
    return ST_OK;
}

static status read_turns(eval_task *t, const json_t *list, eval_dialogue *d, err *e) {
    size_t n = json_array_size(list);
    if (n == 0 || n > MOST_TURNS)
        return err_set(e, ST_FORMAT, "turns is no list of 1 to %d turns", MOST_TURNS);
    d->turn = ARENA_ARRAY(t->a, eval_turn, n);
    for (size_t i = 0; i < n; i++) {
        if (read_turn(t, json_array_get(list, i), &d->turn[i], e) != ST_OK)
            return err_context(e, "turn %zu", i + 1);
        d->n_turns++;
    }
    return ST_OK;
}

/* Variables of the template, with the tools among them. */
static status read_variables(eval_task *t, const json_t *o, eval_dialogue *d, err *e) {
    const json_t *given = json_object_get(o, "variables"), *tools = json_object_get(o, "tools");
    if (given && !json_is_object(given)) return err_set(e, ST_FORMAT, "variables is no mapping");
    if (tools && !json_is_array(tools)) return err_set(e, ST_FORMAT, "tools is no list");
    if (!given && !tools) return ST_OK;
    json_t *all = given ? json_copy((json_t *)given) : json_object();
    if (tools) json_object_set(all, "tools", (json_t *)tools);
    d->variables = eval_keep_value(t, all);
    json_decref(all);
    return ST_OK;
}

status eval_dialogue_read(eval_task *t, eval_doc *doc, const json_t *o, err *e) {
    static const char *const keys[] = {"id",        "about", "needs", "system",
                                       "variables", "tools", "turns"};
    eval_dialogue *d = doc->dialogue = ARENA_NEW(t->a, eval_dialogue);
    TRY(check_keys(o, "a dialogue", keys, ARRAY_LEN(keys), e));
    o = eval_keep_value(t, o); /* rules point into it */
    TRY(text_of(t, o, "about", &d->about, e));
    TRY(text_of(t, o, "needs", &d->needs, e));
    TRY(text_of(t, o, "system", &d->system, e));
    if (d->needs && strcmp(d->needs, "thinking") != 0 && strcmp(d->needs, "tools") != 0)
        return err_set(e, ST_FORMAT, "needs is neither thinking nor tools");
    if (!d->about) d->about = "what is asked for";
    TRY(read_variables(t, o, d, e));
    TRY(read_turns(t, json_object_get(o, "turns"), d, e));
    const eval_dialogue *first = t->doc[0].dialogue; /* NULL: a document of another kind */
    if (first && d->n_turns != first->n_turns)
        return err_set(e, ST_FORMAT, "a dialogue has %d turns, and the first one has %d",
                       d->n_turns, first->n_turns);
    return ST_OK;
}

void eval_dialogues_end(eval_task *t) {
    int turns = t->n ? t->doc[0].dialogue->n_turns : 0;
    t->kind = EVAL_DIALOGUE;
    t->metrics = 1u << METRIC_PASS;
    t->filter = ARENA_ARRAY(t->a, eval_filter, turns + 1);
    t->n_filters = turns + 1;
    for (int i = 0; i < turns; i++)
        t->filter[i] = (eval_filter){.name = arena_printf(t->a, "turn_%d", i + 1)};
    t->filter[turns] = (eval_filter){.name = arena_strdup(t->a, "all")};
}

/* ---- files ---- */

static status add_dialogue(eval_task *t, const char *path, const json_t *o, const json_t *origins,
                           size_t i, err *e) {
    char key[64];
    long line = 0;
    snprintf(key, sizeof key, "dialogues.%zu", i);
    const char *where = yaml_origin(origins, key), *colon = where ? strrchr(where, ':') : NULL;
    if (colon) sscanf(colon + 1, "%ld", &line);
    eval_doc *d = eval_add_doc(t, path, line);
    const json_t *id = json_object_get(o, "id");
    json_t *number = json_integer((json_int_t)i);
    d->id = eval_keep_value(t, json_is_string(id) || json_is_integer(id) ? id : number);
    json_decref(number);
    if (eval_dialogue_read(t, d, o, e) == ST_OK) return ST_OK;
    return err_where(e, "%s", where ? where : path);
}

static status read_dialogues(eval_task *t, const char *path, const json_t *root,
                             const json_t *origins, int64_t limit, err *e) {
    static const char *const keys[] = {"task", "max_gen_toks", "dialogues", "metadata"};
    const json_t *list = json_object_get(root, "dialogues");
    const json_t *max_new = json_object_get(root, "max_gen_toks");
    const char *name = NULL;
    if (check_keys(root, "a file of dialogues", keys, ARRAY_LEN(keys), e) != ST_OK)
        return err_where(e, "%s", path);
    TRY(text_of(t, root, "task", &name, e));
    const char *base = path_base(path), *dot = strrchr(base, '.');
    t->name = name ? (char *)name
                   : arena_strndup(t->a, base, dot > base ? (size_t)(dot - base) : strlen(base));
    if (!json_is_array(list)) return err_at(e, ST_FORMAT, path, "dialogues is no list");
    t->max_new = max_new ? json_integer_value(max_new) : 256;
    if (t->max_new < 1 || t->max_new > 1 << 20)
        return err_at(e, ST_FORMAT, path, "max_gen_toks is no number of tokens");
    for (size_t i = 0; i < json_array_size(list) && (!limit || t->n < limit); i++)
        TRY(add_dialogue(t, path, json_array_get(list, i), origins, i, e));
    if (t->n) eval_dialogues_end(t);
    return ST_OK;
}

status eval_dialogues_open(eval_task *t, const char *path, const char *text,
                           const eval_source *from, err *e) {
    json_t *root, *origins;
    path = arena_strdup(t->a, path);
    if (text)
        TRY(yaml_parse(&root, &origins, path, text, strlen(text), e));
    else
        TRY(yaml_load(&root, &origins, path, e));
    status st = read_dialogues(t, path, root, origins, from->limit, e);
    json_decref(root);
    json_decref(origins);
    return st;
}

bool eval_has_dialogues(const char *path) {
    json_t *root;
    err ignored = {0};
    if (yaml_load(&root, NULL, path, &ignored) != ST_OK) return false;
    bool has = json_object_get(root, "dialogues") != NULL;
    json_decref(root);
    return has;
}
