/* Extends one tokenizer with the tokens of another; see tok_edit.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tok/edit/edit.h"
#include "tok/model/bpe.h"

typedef struct extend {
    edit a, b;
    int32_t *id_in_a; /* [b]: the id that a token of b has in the result, -1: none */
    int32_t next;
    bool allow;
    tok_extend_result *r;
    err *e;
} extend;

/* ---- do they go together ---- */

/* Options that change offsets only. */
static void drop_offset_options(json_t *part) {
    json_t *member;
    size_t i;
    json_object_del(part, "trim_offsets");
    json_array_foreach(json_object_get(part, "pretokenizers"), i, member)
        drop_offset_options(member);
}

static bool same_part(const extend *x, const char *key) {
    json_t *a = json_deep_copy(json_object_get(x->a.root, key));
    json_t *b = json_deep_copy(json_object_get(x->b.root, key));
    drop_offset_options(a);
    drop_offset_options(b);
    bool same = json_equal(a, b) || ((!a || json_is_null(a)) && (!b || json_is_null(b)));
    json_decref(a);
    json_decref(b);
    return same;
}

static status refuse(const extend *x, const char *what, const char *hint) {
    err_set(x->e, ST_USAGE, "the two tokenizers do not go together: %s", what);
    if (hint) err_hint(x->e, "%s", hint);
    return ST_USAGE;
}

static status check_models(const extend *x) {
    static const char *const OPTIONS[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type_a = edit_option(&x->a, "type"), *type_b = edit_option(&x->b, "type");
    char what[256];
    if (strcmp(*type_a ? type_a : "BPE", *type_b ? type_b : "BPE") != 0) {
        snprintf(what, sizeof what, "one is %s and the other %s", type_a, type_b);
        return refuse(x, what, NULL);
    }
    if (x->a.t->byte_level != x->b.t->byte_level)
        return refuse(x, "only one of them works on bytes", NULL);
    if (edit_flag(&x->a, "byte_fallback") != edit_flag(&x->b, "byte_fallback"))
        return refuse(x, "only one of them has byte fallback", NULL);
    for (int i = 0; i < ARRAY_LEN(OPTIONS); i++) {
        if (strcmp(edit_option(&x->a, OPTIONS[i]), edit_option(&x->b, OPTIONS[i])) == 0) continue;
        snprintf(what, sizeof what, "they differ in model.%s", OPTIONS[i]);
        return refuse(x, what, NULL);
    }
    return ST_OK;
}

static status check_parts(const extend *x) {
    static const char *const PARTS[] = {"normalizer", "pre_tokenizer", "decoder"};
    /* A byte-level decoder has only options without effect. */
    int n = x->a.t->byte_level ? 2 : 3;
    for (int i = 0; i < n && !x->allow; i++) {
        char what[64];
        if (same_part(x, PARTS[i])) continue;
        snprintf(what, sizeof what, "they differ in %s", PARTS[i]);
        return refuse(x, what,
                      "--allow keeps that of the first, for which some tokens of the second may be "
                      "out of reach");
    }
    return ST_OK;
}

/* ---- tokens ---- */

/* Added tokens that the model lacks have ids that follow the model's; it is about to grow over
 * them, so they become entries of the model, which leaves them their ids. Only BPE can have entries
 * that no text reaches. */
static status settle_added(extend *x) {
    json_t *entry;
    size_t i;
    json_array_foreach(x->a.added, i, entry) {
        const char *content = json_string_value(json_object_get(entry, "content"));
        int32_t id = content ? tok_id(x->a.t, content) : -1;
        if (id < 0 || x->a.t->token[id].in_model) continue;
        if (!edit_is(&x->a, "BPE") || json_is_true(json_object_get(entry, "single_word"))) {
            err_set(x->e, ST_USAGE, "the added token \"%.80s\" (id %d) is outside the model",
                    content, (int)id);
            return err_hint(x->e, "extend first, then add tokens");
        }
        json_object_set_new(x->a.vocab, content, json_integer(id));
    }
    return ST_OK;
}

static void append_to_model(extend *x, int32_t id) {
    const char *content = x->b.t->token[id].text;
    if (json_is_array(x->a.vocab))
        json_array_append(x->a.vocab, json_array_get(x->b.vocab, (size_t)id));
    else
        json_object_set_new(x->a.vocab, content, json_integer(x->next));
    x->id_in_a[id] = x->next++;
}

/* The unknown token stands for no text: that of b is of no use beside a's own. */
static void append_ordinary(extend *x) {
    const tok *b = x->b.t;
    for (int32_t id = 0; id < b->n_token; id++) {
        const tok_token *k = &b->token[id];
        x->id_in_a[id] = k->text ? tok_id(x->a.t, k->text) : -1;
        if (!k->text || k->added || id == b->unk) continue;
        if (x->id_in_a[id] >= 0)
            x->r->n_known++;
        else
            append_to_model(x, id);
    }
}

static status append_added_token(extend *x, const json_t *entry) {
    const tok *a = x->a.t;
    const char *content = json_string_value(json_object_get(entry, "content"));
    int32_t id = tok_id(x->b.t, content), known = x->id_in_a[id];
    x->r->n_known += known >= 0 && a->token[known].added;
    x->r->n_left += known >= 0 && !a->token[known].added;
    if (known >= 0 || id == x->b.t->unk) return ST_OK;
    if (!x->allow) TRY(edit_check_hidden(a, content, x->e));
    json_t *copy = json_deep_copy(entry);
    json_object_set_new(copy, "id", json_integer(x->next));
    json_array_append_new(x->a.added, copy);
    if (edit_is(&x->a, "BPE"))
        append_to_model(x, id);
    else
        x->id_in_a[id] = x->next++;
    x->r->n_added++;
    return ST_OK;
}

/* ---- merges ---- */

static void put_merge(json_t *list, const json_t *merge, bool pairs) {
    const char *a, *b;
    size_t n_a, n_b;
    if (!bpe_merge_sides(merge, &a, &n_a, &b, &n_b)) return;
    if (pairs) {
        json_t *pair = json_array();
        json_array_append_new(pair, json_stringn(a, n_a));
        json_array_append_new(pair, json_stringn(b, n_b));
        json_array_append_new(list, pair);
        return;
    }
    strbuf text = {0};
    strbuf_append(&text, a, n_a);
    strbuf_putc(&text, ' ');
    strbuf_append(&text, b, n_b);
    json_array_append_new(list, json_stringn(text.data, text.len));
    strbuf_free(&text);
}

/* No merge makes a special token, or anything of one, out of plain text. */
static bool is_special(const extend *x, int32_t id_b, int32_t id_a) {
    const tok *a = x->a.t;
    return id_a < 0 || x->b.t->token[id_b].special || (id_a < a->n_token && a->token[id_a].special);
}

/* Whether a merge of b is new to a. */
static bool is_new_merge(const extend *x, pair_map *seen, const json_t *merge) {
    int32_t l, r, whole;
    if (!edit_merge_ids(&x->b, merge, &l, &r, &whole)) return false;
    int32_t left = x->id_in_a[l], right = x->id_in_a[r];
    if (is_special(x, l, left) || is_special(x, r, right)) return false;
    if (is_special(x, whole, x->id_in_a[whole])) return false;
    uint64_t key = pair_key(left, right);
    if (pair_map_get(seen, key) >= 0) return false;
    pair_map_put(seen, key, 0);
    return true;
}

/* All merges of a list are written in one form: pairs, unless all were "a b" before. */
static void append_merges(extend *x) {
    pair_map seen = {0};
    size_t i;
    const json_t *merge;
    json_t *list = json_array();
    bool pairs = json_is_array(json_array_get(x->a.merges, 0)) ||
                 json_is_array(json_array_get(x->b.merges, 0));
    json_array_foreach(x->a.merges, i, merge) {
        int32_t left, right, whole;
        put_merge(list, merge, pairs);
        if (edit_merge_ids(&x->a, merge, &left, &right, &whole))
            pair_map_put(&seen, pair_key(left, right), 0);
    }
    json_array_foreach(x->b.merges, i, merge) {
        if (!is_new_merge(x, &seen, merge)) continue;
        put_merge(list, merge, pairs);
        x->r->n_merges++;
    }
    json_object_set_new(x->a.model, "merges", list);
    pair_map_free(&seen);
}

/* ---- the whole ---- */

static status run(extend *x, tok **out) {
    const json_t *entry;
    size_t i;
    TRY(check_models(x));
    TRY(check_parts(x));
    if (!edit_is(&x->a, "BPE")) TRY(edit_check_next_id(&x->a, x->e));
    TRY(settle_added(x));
    append_ordinary(x);
    json_array_foreach(x->b.added, i, entry) TRY(append_added_token(x, entry));
    if (x->a.merges) append_merges(x);
    x->r->n_tokens = x->next - x->a.t->n_token;
    return edit_finish(&x->a, out, x->e);
}

status tok_edit_extend(const tok *a, const tok *b, bool allow, tok **out, tok_extend_result *r,
                       err *e) {
    extend x = {.next = a->n_token, .allow = allow, .r = r, .e = e};
    *out = NULL;
    *r = (tok_extend_result){0};
    TRY(edit_open(&x.a, a, e));
    status st = edit_open(&x.b, b, e);
    if (st == ST_OK) {
        x.id_in_a = xmalloc(sizeof(int32_t) * (size_t)b->n_token);
        st = run(&x, out);
    }
    edit_drop(&x.a);
    edit_drop(&x.b);
    free(x.id_in_a);
    return st;
}
