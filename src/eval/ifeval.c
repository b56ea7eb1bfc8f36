/* Instructions of IFEval: reading them, strict and loose (see ifeval.h). The checks are in
 * ifeval_checks.c. */
#include "eval/ifeval.h"

#include <string.h>

#include "eval/answer.h"
#include "eval/ifeval_checks.h"
#include "jinja/jinja.h"

/* ---- reading ---- */

static status lacks(const ifeval_check *c, const char *key, err *e) {
    return err_set(e, ST_FORMAT, "the instruction %s lacks its argument %s", c->name, key);
}

static status read_number(const ifeval_check *c, const json_t *o, const char *key, int64_t *out,
                          err *e) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v)) return lacks(c, key, e);
    *out = (int64_t)json_number_value(v);
    return ST_OK;
}

static status read_relation(const ifeval_check *c, const json_t *o, const char *key, bool *less,
                            err *e) {
    const char *s = json_string_value(json_object_get(o, key));
    *less = s && strcmp(s, "less than") == 0;
    if (*less || (s && strcmp(s, "at least") == 0)) return ST_OK;
    return err_set(e, ST_FORMAT, "the argument %s of %s is neither \"less than\" nor \"at least\"",
                   key, c->name);
}

/* A text or a list of texts, white space around each left out. */
static status read_texts(eval_task *t, const ifeval_check *c, const json_t *o, eval_instruction *k,
                         err *e) {
    const json_t *v = json_object_get(o, c->texts);
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n == 0 || n > 64) return lacks(c, c->texts, e);
    k->text = ARENA_ARRAY(t->a, char *, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(s)) return lacks(c, c->texts, e);
        const char *at = json_string_value(s);
        size_t len = strlen(at);
        if (!json_is_array(v)) jinja_strip(&at, &len, true, true);
        k->text[k->n_texts++] = arena_strndup(t->a, at, len);
    }
    return ST_OK;
}

static status read_instruction(eval_task *t, const json_t *id, const json_t *o, eval_instruction *k,
                               err *e) {
    const char *name = json_string_value(id);
    k->check = name ? ifeval_find(name) : -1;
    if (k->check < 0)
        return err_set(e, ST_FORMAT, "there is no instruction %.60s", name ? name : "without name");
    const ifeval_check *c = ifeval_get(k->check);
    if (c->number) TRY(read_number(c, o, c->number, &k->n, e));
    if (c->relation) TRY(read_relation(c, o, c->relation, &k->less, e));
    if (c->nth) TRY(read_number(c, o, c->nth, &k->nth, e));
    if (c->texts) TRY(read_texts(t, c, o, k, e));
    bool ignored;
    return c->follows(k, (eval_text){"", 0}, &ignored, e); /* patterns are patterns */
}

status eval_ifeval_read(eval_task *t, eval_doc *d, const json_t *row, err *e) {
    const json_t *ids = json_object_get(row, "instruction_id_list");
    const json_t *arguments = json_object_get(row, "kwargs");
    size_t n = json_array_size(ids);
    if (n == 0 || n > IFEVAL_MOST || json_array_size(arguments) != n)
        return err_set(e, ST_FORMAT,
                       "instruction_id_list and kwargs are not lists of as many, 1 to %d",
                       IFEVAL_MOST);
    eval_ifeval *f = d->ifeval = ARENA_NEW(t->a, eval_ifeval);
    for (size_t i = 0; i < n; i++) {
        TRY(read_instruction(t, json_array_get(ids, i), json_array_get(arguments, i), &f->item[i],
                             e));
        f->n++;
    }
    return ST_OK;
}

const char *eval_instruction_name(const eval_instruction *k) {
    return ifeval_get(k->check)->name;
}

/* ---- strict and loose ---- */

static eval_text stripped(eval_text s) {
    jinja_strip(&s.s, &s.len, true, true);
    return s;
}

/* The answer without its first or last line. */
static eval_text without_lines(eval_text s, bool first, bool last) {
    const char *end = s.s + s.len, *stop;
    if (first) {
        stop = memchr(s.s, '\n', s.len);
        s.s = stop ? stop + 1 : end;
    }
    if (last) {
        stop = end > s.s ? memrchr(s.s, '\n', (size_t)(end - s.s)) : NULL;
        end = stop ? stop : s.s;
    }
    return stripped((eval_text){s.s, (size_t)(end - s.s)});
}

static status add_followed(const eval_ifeval *f, eval_text s, uint32_t *bits, err *e) {
    if (stripped(s).len == 0) return ST_OK;
    for (int i = 0; i < f->n; i++) {
        bool follows = false;
        if (*bits >> i & 1) continue;
        TRY(ifeval_get(f->item[i].check)->follows(&f->item[i], s, &follows, e));
        *bits |= (uint32_t)follows << i;
    }
    return ST_OK;
}

static status add_without_asterisks(const eval_ifeval *f, eval_text s, uint32_t *bits, err *e) {
    strbuf b = {0};
    for (size_t i = 0; i < s.len; i++)
        if (s.s[i] != '*') strbuf_putc(&b, s.s[i]);
    status st = add_followed(f, (eval_text){strbuf_cstr(&b), b.len}, bits, e);
    strbuf_free(&b);
    return st;
}

status eval_ifeval_judge(const eval_ifeval *f, eval_text answer, uint32_t *strict, uint32_t *loose,
                         err *e) {
    eval_text variants[] = {answer, without_lines(answer, true, false),
                            without_lines(answer, false, true), without_lines(answer, true, true)};
    *strict = 0;
    TRY(add_followed(f, answer, strict, e));
    *loose = *strict;
    for (int i = 0; i < ARRAY_LEN(variants); i++) {
        TRY(add_followed(f, variants[i], loose, e));
        TRY(add_without_asterisks(f, variants[i], loose, e));
    }
    return ST_OK;
}
