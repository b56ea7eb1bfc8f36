/* The tokenizer inside a GGUF file: the keys under tokenizer. of its metadata (base/gguf.h) as a
 * table of gguf_keys.h. What the tensors are is not looked at. */
#include <string.h>

#include "base/gguf.h"
#include "tok/format/format.h"
#include "tok/format/gguf_keys.h"

/* The metadata, and the file for errors. */
typedef struct gguf_input {
    tok_input *in;
    gguf_meta meta;
} gguf_input;

#define KEY(name) "tokenizer.ggml." name

static status wrong_type(const gguf_input *s, const char *key) {
    return format_bad(s->in, "%s has a value of the wrong type", key);
}

static status read_id(const gguf_input *s, const char *key, int32_t *id) {
    const gguf_value *v = gguf_meta_find(&s->meta, key);
    int64_t x;
    if (!v) return ST_OK;
    if ((v->type != GGUF_U32 && v->type != GGUF_I32) || !gguf_value_int(v, 0, &x))
        return wrong_type(s, key);
    *id = (int32_t)x; /* 2^32 - 1 stands for -1 */
    return ST_OK;
}

static status read_flag(const gguf_input *s, const char *key, gguf_flag *flag) {
    const gguf_value *v = gguf_meta_find(&s->meta, key);
    bool x;
    if (!v) return ST_OK;
    if (v->type != GGUF_BOOL || !gguf_value_bool(v, 0, &x)) return wrong_type(s, key);
    *flag = x ? GGUF_TRUE : GGUF_FALSE;
    return ST_OK;
}

static status read_text(const gguf_input *s, const char *key, const char **text) {
    gguf_text t;
    if (!gguf_meta_find(&s->meta, key)) return ST_OK;
    if (gguf_meta_text(&s->meta, key, &t, NULL) != ST_OK) return wrong_type(s, key);
    *text = arena_strndup(s->in->mem, t.text, t.len);
    return ST_OK;
}

/* The array of a key; NULL: absent. */
static status find_array(const gguf_input *s, const char *key, const gguf_value **v) {
    *v = gguf_meta_find(&s->meta, key);
    return *v && (*v)->type != GGUF_ARRAY ? wrong_type(s, key) : ST_OK;
}

static status read_strings(const gguf_input *s, const char *key, const tok_string **list,
                           uint64_t *n) {
    const gguf_value *v;
    TRY(find_array(s, key, &v));
    if (!v) return ST_OK;
    const gguf_text *texts = gguf_value_texts(v, s->in->mem);
    if (!texts) return wrong_type(s, key);
    tok_string *own = ARENA_ARRAY(s->in->mem, tok_string, v->n);
    for (uint64_t i = 0; i < v->n; i++) own[i] = (tok_string){texts[i].text, texts[i].len};
    *list = own;
    *n = v->n;
    return ST_OK;
}

/* 4-byte numbers, which need not be aligned in the file. */
static status read_numbers(const gguf_input *s, const char *key, gguf_type item, const void **list,
                           uint64_t *n) {
    const gguf_value *v;
    TRY(find_array(s, key, &v));
    if (!v) return ST_OK;
    bool same = v->item == item || (item == GGUF_I32 && v->item == GGUF_U32);
    if (!same) return wrong_type(s, key);
    *list = arena_memdup(s->in->mem, v->bytes, v->len);
    *n = v->n;
    return ST_OK;
}

static status read_charsmap(const gguf_input *s, const char *key, gguf_tokenizer *g) {
    const gguf_value *v;
    TRY(find_array(s, key, &v));
    if (!v) return ST_OK;
    if (gguf_type_bytes(v->item) != 1) return wrong_type(s, key);
    g->charsmap = v->bytes;
    g->n_charsmap = v->len;
    return ST_OK;
}

static status read_lists(const gguf_input *s, gguf_tokenizer *g) {
    const void *scores = NULL, *types = NULL;
    uint64_t tokens = 0, merges = 0, n_scores = 0, n_types = 0;
    TRY(read_strings(s, KEY("tokens"), &g->token, &tokens));
    TRY(read_strings(s, KEY("merges"), &g->merge, &merges));
    TRY(read_numbers(s, KEY("scores"), GGUF_F32, &scores, &n_scores));
    TRY(read_numbers(s, KEY("token_type"), GGUF_I32, &types, &n_types));
    TRY(read_charsmap(s, KEY("precompiled_charsmap"), g));
    if (!g->model || !g->token)
        return format_bad(s->in, "this GGUF file holds no tokenizer (tokenizer.ggml.tokens)");
    if (strcmp(g->model, "gpt2") == 0 && !g->merge)
        return format_bad(s->in, "the key 'tokenizer.ggml.merges' is missing");
    bool even = (!scores || n_scores == tokens) && (!types || n_types == tokens);
    if (!even || tokens >= INT32_MAX)
        return format_bad(s->in, "%llu tokens, but %llu scores and %llu types",
                          (unsigned long long)tokens, (unsigned long long)n_scores,
                          (unsigned long long)n_types);
    g->n_tokens = (int32_t)tokens;
    g->n_merges = (int64_t)merges;
    g->score = scores;
    g->type = types;
    return ST_OK;
}

static status read_keys(const gguf_input *s, gguf_tokenizer *g) {
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {{KEY("bos_token_id"), &g->bos},       {KEY("eos_token_id"), &g->eos},
               {KEY("unknown_token_id"), &g->unk},   {KEY("seperator_token_id"), &g->sep},
               {KEY("separator_token_id"), &g->sep}, {KEY("padding_token_id"), &g->pad},
               {KEY("cls_token_id"), &g->cls},       {KEY("mask_token_id"), &g->mask},
               {KEY("eot_token_id"), &g->eot}};
    const struct {
        const char *key;
        gguf_flag *flag;
    } flags[] = {{KEY("add_bos_token"), &g->add_bos},
                 {KEY("add_eos_token"), &g->add_eos},
                 {KEY("add_sep_token"), &g->add_sep},
                 {KEY("add_space_prefix"), &g->add_space_prefix},
                 {KEY("remove_extra_whitespaces"), &g->remove_extra_whitespaces}};
    for (int i = 0; i < ARRAY_LEN(ids); i++) TRY(read_id(s, ids[i].key, ids[i].id));
    for (int i = 0; i < ARRAY_LEN(flags); i++) TRY(read_flag(s, flags[i].key, flags[i].flag));
    TRY(read_text(s, KEY("model"), &g->model));
    TRY(read_text(s, KEY("pre"), &g->pre));
    return read_text(s, "tokenizer.chat_template", &g->chat_template);
}

status gguf_load(tok_input *in, tok **out) {
    gguf_input s = {.in = in};
    gguf_tokenizer g = gguf_tokenizer_empty();
    TRY(gguf_meta_read(&s.meta, in->mem, in->bytes, in->len, in->path, in->e));
    TRY(read_keys(&s, &g));
    TRY(read_lists(&s, &g));
    return tok_from_gguf(out, &g, in->path, in->e);
}
