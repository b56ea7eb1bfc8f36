/* Adds tokens that are found in the text as a whole; see tok_edit.h. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/edit/edit.h"

static status check_content(const char *s, err *e) {
    size_t len = strlen(s);
    if (len > 0 && len <= TOK_MAX_ADDED_BYTES && utf8_valid_prefix(s, len) == len) return ST_OK;
    err_set(e, ST_USAGE, "a new token must be UTF-8 text of 1 to %d bytes, not \"%.60s\"",
            TOK_MAX_ADDED_BYTES, s);
    return err_where(e, "%.60s", s);
}

/* Some text in which `old` was found has it found no more: the new token begins before it and takes
 * its beginning away, or holds it. */
static bool hides(const char *new_text, const char *old) {
    size_t n = strlen(new_text), m = strlen(old);
    if (n > m && strstr(new_text, old)) return true;
    for (size_t k = 1; k < n && k < m; k++)
        if (memcmp(new_text + n - k, old, k) == 0) return true;
    return false;
}

status edit_check_hidden(const tok *t, const char *content, err *e) {
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (!k->added || !hides(content, k->text)) continue;
        err_set(e, ST_USAGE,
                "\"%.80s\" would hide the added token \"%.80s\" (id %d) in texts where they meet",
                content, k->text, (int)id);
        err_hint(e, "choose another text, or give --allow");
        return err_where(e, "%.80s", content);
    }
    return ST_OK;
}

static status check_new(const tok *t, const tok_add_options *o, const char *content, err *e) {
    TRY(check_content(content, e));
    int32_t id = tok_id(t, content);
    if (id >= 0 && t->token[id].added) {
        err_set(e, ST_USAGE, "\"%.80s\" is an added token already, with id %d", content, (int)id);
        return err_where(e, "%.80s", content);
    }
    if (o->allow) return ST_OK;
    if (id >= 0) {
        err_set(e, ST_USAGE,
                "\"%.80s\" is a token of the model, with id %d: texts that hold it would be cut "
                "differently",
                content, (int)id);
        err_hint(e, "--allow makes it an added token with the same id");
        return err_where(e, "%.80s", content);
    }
    return edit_check_hidden(t, content, e);
}

static void put_token(edit *d, const tok_new_token *n, int32_t *next) {
    int32_t known = tok_id(d->t, n->content);
    json_t *entry = edit_add_entry(d, known >= 0 ? known : (*next)++, n->content, n->special);
    json_object_set_new(entry, "single_word", json_boolean(n->single_word));
    json_object_set_new(entry, "lstrip", json_boolean(n->lstrip));
    json_object_set_new(entry, "rstrip", json_boolean(n->rstrip));
    json_object_set_new(entry, "normalized", json_boolean(n->normalized));
}

static bool is_given(const tok_add_options *o, int n, const char *content) {
    for (int i = 0; i < n; i++)
        if (strcmp(o->token[i].content, content) == 0) return true;
    return false;
}

/* A name that neither the vocabulary nor the new tokens have. */
static void put_reserved(edit *d, const tok_add_options *o, int *number, int32_t *next) {
    char name[40];
    do snprintf(name, sizeof name, "<|reserved_%d|>", (*number)++);
    while (tok_id(d->t, name) >= 0 || is_given(o, o->n, name));
    tok_new_token reserved = {.content = name, .special = true};
    put_token(d, &reserved, next);
}

status tok_edit_add(const tok *t, const tok_add_options *o, tok **out, err *e) {
    edit d;
    int number = 0;
    *out = NULL;
    for (int i = 0; i < o->n; i++) {
        TRY(check_new(t, o, o->token[i].content, e));
        if (is_given(o, i, o->token[i].content))
            return err_set(e, ST_USAGE, "\"%.80s\" is given twice", o->token[i].content);
    }
    TRY(edit_open(&d, t, e));
    int32_t next = t->n_token;
    status st = edit_check_next_id(&d, e);
    if (st != ST_OK) {
        edit_drop(&d);
        return st;
    }
    for (int i = 0; i < o->n; i++) put_token(&d, &o->token[i], &next);
    while (o->multiple > 1 && next % o->multiple) put_reserved(&d, o, &number, &next);
    return edit_finish(&d, out, e);
}
