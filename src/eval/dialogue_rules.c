/* Rules on what a model answered (see dialogue.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "eval/answer.h"
#include "eval/dialogue.h"

/* ---- texts ---- */

/* Whether s has the text, letters of ASCII in any case. */
static bool has_text(eval_text s, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= s.len; i++)
        if (strncasecmp(s.s + i, word, n) == 0) return true;
    return false;
}

static bool has_any(eval_text s, const eval_rule *r) {
    for (int i = 0; i < r->n; i++)
        if (has_text(s, r->text[i])) return true;
    return false;
}

/* Any of its patterns. */
static status matches(eval_text s, const eval_rule *r, bool *out, err *e) {
    int64_t n = 0;
    for (int i = 0; i < r->n && n == 0; i++) TRY(eval_count_matches(r->text[i], s, &n, e));
    *out = n > 0;
    return ST_OK;
}

/* ---- scripts ---- */

static status check_script(const char *name, err *e) {
    char pattern[64];
    int64_t n;
    size_t good = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
    if (name[good] || good > 32) return err_set(e, ST_FORMAT, "there is no script %.40s", name);
    snprintf(pattern, sizeof pattern, "\\p{%s}", name);
    if (eval_count_matches(pattern, (eval_text){"", 0}, &n, NULL) == ST_OK) return ST_OK;
    err_set(e, ST_FORMAT, "there is no script %s", name);
    return err_hint(e, "Unicode's names are meant: Latin, Cyrillic, Han, Arabic, Devanagari, ...");
}

static status count_script(const char *name, eval_text s, int64_t *n, err *e) {
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\\p{%s}", name);
    return eval_count_matches(pattern, s, n, e);
}

static status is_script(eval_text s, const eval_rule *r, bool *out, err *e) {
    int64_t letters, of = 0, n;
    TRY(count_script("L", s, &letters, e));
    for (int i = 0; i < r->n; i++) {
        TRY(count_script(r->text[i], s, &n, e));
        of += n;
    }
    *out = 2 * of > letters;
    return ST_OK;
}

status eval_rule_check(const eval_rule *r, err *e) {
    int64_t n;
    for (int i = 0; i < r->n; i++) {
        if (r->kind == RULE_MATCHES) TRY(eval_count_matches(r->text[i], (eval_text){"", 0}, &n, e));
        if (r->kind == RULE_SCRIPT) TRY(check_script(r->text[i], e));
    }
    return ST_OK;
}

/* ---- calls of tools ---- */

static bool same_value(const json_t *want, const json_t *is) {
    if (json_is_number(want) && json_is_number(is))
        return fabs(json_number_value(want) - json_number_value(is)) < 1e-9;
    if (json_is_string(want) && json_is_string(is))
        return strcasecmp(json_string_value(want), json_string_value(is)) == 0;
    return json_equal(want, is);
}

/* The arguments, which may also be a text of JSON. */
static json_t *arguments_of(const json_t *call) {
    json_t *a = json_object_get(call, "arguments");
    if (!a) a = json_object_get(call, "parameters");
    if (json_is_string(a)) return json_loads(json_string_value(a), 0, NULL);
    return a ? json_incref(a) : NULL;
}

static bool is_call(const json_t *o, const eval_rule *r) {
    const json_t *inner = json_object_get(o, "function"), *call = json_is_object(inner) ? inner : o;
    const char *name = json_string_value(json_object_get(call, "name")), *key;
    if (!name || strcmp(name, r->text[0]) != 0) return false;
    json_t *given = arguments_of(call), *v;
    bool all = json_is_object(given);
    json_object_foreach((json_t *)r->arguments, key, v) {
        const json_t *is = json_object_get(given, key);
        all = all && is && same_value(v, is);
    }
    json_decref(given);
    return all;
}

/* Models write calls in marks of their own, but all as an object of JSON with name and
 * arguments. */
static bool calls(eval_text s, const eval_rule *r) {
    for (size_t at = 0; at < s.len; at++) {
        json_error_t je;
        if (s.s[at] != '{') continue;
        json_t *o = json_loadb(s.s + at, s.len - at, JSON_DISABLE_EOF_CHECK, &je);
        bool found = o && is_call(o, r);
        if (o) at += (size_t)je.position - 1; /* what is inside of it is no call */
        json_decref(o);
        if (found) return true;
    }
    return false;
}

/* ---- the whole ---- */

static status keeps(const eval_turn *turn, const eval_thought *thought, const eval_rule *r,
                    bool *out, err *e) {
    switch (r->kind) {
        case RULE_CONTAINS: *out = has_any(thought->answer, r); return ST_OK;
        case RULE_LACKS: *out = !has_any(thought->answer, r); return ST_OK;
        case RULE_MATCHES: return matches(thought->answer, r, out, e);
        case RULE_REASONING: *out = !eval_is_blank(thought->reasoning) == r->wanted; return ST_OK;
        case RULE_ENDS: *out = turn->ended == r->wanted; return ST_OK;
        case RULE_CALLS: *out = calls(thought->answer, r); return ST_OK;
        case RULE_SCRIPT: return is_script(thought->answer, r, out, e);
        case RULE_FITS: break;
    }
    return ST_OK;
}

status eval_judge(eval_turn *turn, err *e) {
    eval_thought thought = eval_split_thought(turn->seen, turn->written);
    turn->failed = -1;
    for (int i = 0; i < turn->n_rules && turn->failed < 0; i++) {
        bool kept = false;
        TRY(keeps(turn, &thought, &turn->rule[i], &kept, e));
        if (!kept) turn->failed = i;
    }
    return ST_OK;
}

void eval_rule_words(const eval_rule *r, strbuf *out) {
    static const char *const words[] = {
        [RULE_CONTAINS] = "contains", [RULE_LACKS] = "lacks",
        [RULE_MATCHES] = "matches",   [RULE_REASONING] = "reasoning",
        [RULE_ENDS] = "ends",         [RULE_CALLS] = "calls",
        [RULE_SCRIPT] = "script",     [RULE_FITS] = "fits into the context"};
    strbuf_puts(out, words[r->kind]);
    if (r->kind == RULE_REASONING || r->kind == RULE_ENDS)
        strbuf_puts(out, r->wanted ? ": true" : ": false");
    for (int i = 0; i < r->n; i++) strbuf_printf(out, "%s \"%s\"", i ? " or" : "", r->text[i]);
    if (!r->arguments) return;
    strbuf_puts(out, " with ");
    json_format(out, r->arguments, 0);
}
