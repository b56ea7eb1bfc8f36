/* See merge_check.h. */
#include "interchange/merge/merge_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tok/tok_format.h"

const char *const merge_allow_words[] = {MERGE_ALLOWED(LIST_WORD) NULL};

/* A difference that may be allowed: a note then, otherwise the error's hint names the word. */
static status allow_or_fail(unsigned allow, int word, strbuf *notes, err *e) {
    if (allow & 1u << word) {
        strbuf_printf(notes, "Allowed: %s.\n", e->message);
        return ST_OK;
    }
    return err_hint(e, "if that is right, --allow %s merges them all the same",
                    merge_allow_words[word]);
}

/* ---- tensors ---- */

static void put_shape(const param *p, strbuf *out) {
    if (p->rank == 1)
        strbuf_printf(out, "[%lld]", (long long)p->cols);
    else
        strbuf_printf(out, "[%lld, %lld]", (long long)p->rows, (long long)p->cols);
}

static status differing_shape(const model_source *a, const param *p, const model_source *b,
                              const param *q, err *e) {
    strbuf text = {0};
    put_shape(p, &text);
    strbuf_printf(&text, " in %s and ", a->path);
    put_shape(q, &text);
    err_at(e, ST_USAGE, b->path, "%s has the shape %s in %s", p->name, strbuf_cstr(&text), b->path);
    strbuf_free(&text);
    return err_hint(e, "only models of one shape can be merged");
}

static status missing_tensor(const char *name, const model_source *in, const model_source *not_in,
                             err *e) {
    err_at(e, ST_USAGE, not_in->path, "%s has a tensor %s and %s has none", in->path, name,
           not_in->path);
    return err_hint(e, "only models of one shape can be merged");
}

static status check_tensors(const model_source *a, const model_source *b, err *e) {
    for (int i = 0; i < param_count(a->params); i++) {
        const param *p = param_at(a->params, i);
        int at = param_find(b->params, p->name);
        if (at < 0) return missing_tensor(p->name, a, b, e);
        const param *q = param_at(b->params, at);
        if (p->rank != q->rank || p->rows != q->rows || p->cols != q->cols)
            return differing_shape(a, p, b, q, e);
    }
    for (int i = 0; i < param_count(b->params); i++) {
        const param *q = param_at(b->params, i);
        if (param_find(a->params, q->name) < 0) return missing_tensor(q->name, b, a, e);
    }
    return ST_OK;
}

/* ---- config ---- */

/* Keys that change nothing of what trained weights compute. */
static bool is_inert(const char *key) {
    static const char *const keys[] = {
        "torch_dtype",  "dtype",        "transformers_version", "max_position_embeddings",
        "n_positions",  "n_ctx",        "initializer_range",    "bos_token_id",
        "eos_token_id", "pad_token_id", "attention_dropout",    "hidden_dropout",
        "attn_pdrop",   "embd_pdrop",   "resid_pdrop",          "use_cache",
        "vocab_size",
    };
    for (int i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static json_t *config_of(const model_source *s) {
    model_config mc = model_source_folder_config(s);
    return model_config_json(&mc, -1, -1, DT_F32);
}

static const char *differing_key(const json_t *a, const json_t *b) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)a, key,
                        v) if (!is_inert(key) &&
                               !json_equal(v, json_object_get(b, key))) return key;
    json_object_foreach((json_t *)b, key,
                        v) if (!is_inert(key) && !json_object_get(a, key)) return key;
    return NULL;
}

static void put_value(strbuf *out, const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    if (v)
        json_format(out, v, 0);
    else
        strbuf_puts(out, "nothing");
}

static status check_config(const model_source *a, const model_source *b, unsigned allow,
                           strbuf *notes, err *e) {
    json_t *ca = config_of(a), *cb = config_of(b);
    const char *key = differing_key(ca, cb);
    status st = ST_OK;
    if (key) {
        strbuf va = {0}, vb = {0};
        put_value(&va, ca, key);
        put_value(&vb, cb, key);
        err_at(e, ST_USAGE, b->path, "%s is %s in %s and %s in %s", key, strbuf_cstr(&va), a->path,
               strbuf_cstr(&vb), b->path);
        strbuf_free(&va);
        strbuf_free(&vb);
        st = allow_or_fail(allow, MERGE_ALLOW_CONFIG, notes, e);
    }
    json_decref(ca);
    json_decref(cb);
    return st;
}

/* ---- tokenizers ---- */

static bool same_token(const tok *a, const tok *b, int32_t id) {
    size_t la = 0, lb = 0;
    const char *x = tok_bytes(a, id, &la), *y = tok_bytes(b, id, &lb);
    return (!x && !y) || (x && y && la == lb && memcmp(x, y, la) == 0);
}

static status other_token(const model_source *a, const model_source *b, int32_t id, err *e) {
    size_t la = 0, lb = 0;
    const char *x = tok_bytes(a->tok, id, &la), *y = tok_bytes(b->tok, id, &lb);
    strbuf va = {0}, vb = {0};
    strbuf_append_visible(&va, x ? x : "", x ? la : 0);
    strbuf_append_visible(&vb, y ? y : "", y ? lb : 0);
    err_at(e, ST_USAGE, b->path, "id %d is '%s' in the tokenizer of %s and '%s' in that of %s",
           (int)id, strbuf_cstr(&va), a->path, strbuf_cstr(&vb), b->path);
    strbuf_free(&va);
    strbuf_free(&vb);
    return err_hint(e, "rows of the embedding with different meanings cannot be merged");
}

static status check_tokenizer(const model_source *a, const model_source *b, unsigned allow,
                              strbuf *notes, err *e) {
    if (!a->tok || !b->tok) {
        if (!a->tok != !b->tok)
            strbuf_printf(notes,
                          "%s has no tokenizer: that its ids mean the same is not checked.\n",
                          a->tok ? b->path : a->path);
        return ST_OK;
    }
    if (tok_hash(a->tok) == tok_hash(b->tok)) return ST_OK;
    int32_t na = tok_vocab_size(a->tok), nb = tok_vocab_size(b->tok), n = na < nb ? na : nb;
    for (int32_t id = 0; id < n; id++)
        if (!same_token(a->tok, b->tok, id)) return other_token(a, b, id, e);
    if (na != nb)
        err_at(e, ST_USAGE, b->path, "the tokenizer of %s has %d tokens and that of %s %d", a->path,
               (int)na, b->path, (int)nb);
    else
        err_at(e, ST_USAGE, b->path,
               "the tokenizers of %s and %s have the same tokens and split texts in other ways",
               a->path, b->path);
    return allow_or_fail(allow, MERGE_ALLOW_TOKENIZER, notes, e);
}

/* ---- templates ---- */

static const char *gguf_template(const model_source *s, arena *a) {
    gguf_text text;
    const gguf_meta *meta = gguf_get_meta(s->gguf.file);
    if (!gguf_meta_find(meta, "tokenizer.chat_template")) return NULL;
    if (gguf_meta_text(meta, "tokenizer.chat_template", &text, NULL) != ST_OK) return NULL;
    return arena_strndup(a, text.text, text.len);
}

static const char *folder_template(const model_source *s, arena *a) {
    char *path = path_join(a, s->path, "chat_template.jinja"), *text = NULL;
    size_t len;
    if (file_read_part(path, FILE_PART_MAX_BYTES, &text, &len, NULL) == ST_OK) {
        const char *copy = arena_strndup(a, text, len);
        free(text);
        return copy;
    }
    json_t *config;
    if (tok_config_load(path_join(a, s->path, "tokenizer_config.json"), &config, NULL) != ST_OK)
        return NULL;
    const json_t *v = json_object_get(config, "chat_template");
    strbuf list = {0};
    if (json_is_array(v)) json_format(&list, v, 0);
    const char *found = json_is_string(v) ? arena_strdup(a, json_string_value(v))
                        : list.len        ? arena_strdup(a, list.data)
                                          : NULL;
    strbuf_free(&list);
    json_decref(config);
    return found;
}

const char *merge_template_of(const model_source *s, arena *a) {
    if (s->kind == MODEL_SOURCE_GGUF) return gguf_template(s, a);
    return s->kind == MODEL_SOURCE_HF ? folder_template(s, a) : NULL;
}

/* Line feeds at the end come and go with the place where a template is kept. */
static size_t template_len(const char *s) {
    size_t n = strlen(s);
    while (n > 0 && s[n - 1] == '\n') n--;
    return n;
}

static status check_template(const model_source *a, const model_source *b, unsigned allow,
                             strbuf *notes, err *e) {
    arena *mem = arena_new("templates");
    const char *x = merge_template_of(a, mem), *y = merge_template_of(b, mem);
    status st = ST_OK;
    if (x && y) {
        size_t n = template_len(x);
        if (n != template_len(y) || memcmp(x, y, n) != 0) {
            err_at(e, ST_USAGE, b->path, "the chat templates of %s and %s differ", a->path,
                   b->path);
            st = allow_or_fail(allow, MERGE_ALLOW_TEMPLATE, notes, e);
        }
    }
    arena_free(mem);
    return st;
}

static status check_family(const model_source *a, const model_source *b, err *e) {
    const char *x = a->config.family->model_type, *y = b->config.family->model_type;
    if (strcmp(x, y) == 0) return ST_OK;
    err_at(e, ST_USAGE, b->path, "%s is a %s model and %s a %s model", a->path, x, b->path, y);
    return err_hint(e, "only models of one shape can be merged");
}

status merge_check_pair(const model_source *a, const model_source *b, unsigned allow, strbuf *notes,
                        err *e) {
    TRY(check_family(a, b, e));
    TRY(check_tensors(a, b, e));
    TRY(check_config(a, b, allow, notes, e));
    TRY(check_tokenizer(a, b, allow, notes, e));
    return check_template(a, b, allow, notes, e);
}
