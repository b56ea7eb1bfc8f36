/* Opening and closing a tree; see edit.h. */
#include "tok/edit/edit.h"

#include <string.h>

#include "tok/format/format.h"
#include "tok/format/tree.h"
#include "tok/model/bpe.h"

status edit_open(edit *d, const tok *t, err *e) {
    json_error_t je;
    *d = (edit){.t = t, .root = json_loadb(t->json, t->json_len, 0, &je)};
    if (!d->root) return err_set(e, ST_FORMAT, "the tokenizer's JSON is damaged: %s", je.text);
    d->added = json_object_get(d->root, "added_tokens");
    if (!json_is_array(d->added)) {
        d->added = json_array();
        json_object_set_new(d->root, "added_tokens", d->added);
    }
    d->model = json_object_get(d->root, "model");
    d->vocab = json_object_get(d->model, "vocab");
    d->merges = json_object_get(d->model, "merges");
    return ST_OK;
}

void edit_drop(edit *d) {
    json_decref(d->root);
    *d = (edit){0};
}

static int32_t same_token(const tok *now, const tok *before, int32_t id) {
    return id < 0 ? -1 : tok_id(now, before->token[id].text);
}

void tok_edit_follow(tok *t, const tok *from) {
    if (t->source && t->source->config) return;
    t->bos = same_token(t, from, from->bos);
    t->eos = same_token(t, from, from->eos);
    tok_config_follow(t, from);
}

status edit_finish(edit *d, tok **out, err *e) {
    const tok *t = d->t;
    json_t *root = d->root;
    *d = (edit){0};
    TRY(tree_to_tok(out, root, "edited tokenizer", e));
    tok_edit_follow(*out, t);
    return ST_OK;
}

json_t *edit_add_entry(edit *d, int32_t id, const char *content, bool special) {
    json_t *entry = tree_added_token(id, content, strlen(content), special);
    json_array_append_new(d->added, entry);
    return entry;
}

/* Hugging Face readers number an added token that the model lacks by what came before it. */
status edit_check_next_id(const edit *d, err *e) {
    int32_t n = d->t->n_token, size = 0, top = -1;
    for (int32_t id = 0; id < n; id++) {
        size += d->t->token[id].in_model;
        if (d->t->token[id].added) top = id;
    }
    int32_t next = top >= size ? top + 1 : size;
    if (next == n) return ST_OK;
    err_set(e, ST_USAGE,
            "the ids of this tokenizer have gaps: a new token would be %d here and %d elsewhere",
            (int)n, (int)next);
    return err_hint(e, "`athanor tok prune` makes ids dense");
}

const char *edit_option(const edit *d, const char *key) {
    const char *s = json_string_value(json_object_get(d->model, key));
    return s ? s : "";
}

bool edit_is(const edit *d, const char *model_type) {
    const char *type = edit_option(d, "type");
    return strcmp(*type ? type : "BPE", model_type) == 0; /* old files have none */
}

bool edit_flag(const edit *d, const char *key) {
    return json_is_true(json_object_get(d->model, key));
}

bool edit_merge_ids(const edit *d, const json_t *merge, int32_t *left, int32_t *right,
                    int32_t *result) {
    const char *a, *b;
    size_t n_a, n_b, n_prefix = strlen(edit_option(d, "continuing_subword_prefix"));
    if (!bpe_merge_sides(merge, &a, &n_a, &b, &n_b) || n_b < n_prefix) return false;
    *left = tok_model_id(d->t, a, n_a);
    *right = tok_model_id(d->t, b, n_b);
    strbuf whole = {0};
    strbuf_append(&whole, a, n_a);
    strbuf_append(&whole, b + n_prefix, n_b - n_prefix);
    *result = tok_model_id(d->t, strbuf_cstr(&whole), whole.len);
    strbuf_free(&whole);
    return *left >= 0 && *right >= 0 && *result >= 0;
}
