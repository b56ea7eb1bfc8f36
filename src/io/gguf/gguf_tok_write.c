#include "io/gguf/gguf_config.h"

#include <string.h>

#include "tok/format/gguf_keys.h"

#define KEY(name) "tokenizer.ggml." name

static gguf_text *texts(arena *a, const tok_string *from, int64_t n, int64_t room) {
    gguf_text *to = ARENA_ARRAY(a, gguf_text, room);
    for (int64_t i = 0; i < n; i++) to[i] = (gguf_text){from[i].text, from[i].len};
    return to;
}

/* A list with one item for each row. */
static const void *padded(arena *a, const void *list, int64_t n, int64_t rows, uint32_t filler) {
    if (!list || n == rows) return list;
    uint32_t *all = ARENA_ARRAY(a, uint32_t, rows);
    memcpy(all, list, 4 * (size_t)n);
    for (int64_t i = n; i < rows; i++) all[i] = filler;
    return all;
}

static void put_tokens(arena *a, const gguf_tokenizer *g, int64_t rows, gguf_pairs *p) {
    gguf_text *token = texts(a, g->token, g->n_tokens, rows);
    for (int64_t i = g->n_tokens; i < rows; i++) {
        char *name = arena_printf(a, "[PAD%lld]", (long long)i);
        token[i] = (gguf_text){name, strlen(name)};
    }
    gguf_put_texts(p, KEY("tokens"), token, (uint64_t)rows);
    const void *score = padded(a, g->score, g->n_tokens, rows, 0);
    const void *type = padded(a, g->type, g->n_tokens, rows, GGUF_TOKEN_UNUSED);
    if (score) gguf_put_array(p, KEY("scores"), GGUF_F32, score, (uint64_t)rows);
    if (type) gguf_put_array(p, KEY("token_type"), GGUF_I32, type, (uint64_t)rows);
    if (g->n_merges > 0 || strcmp(g->model, "gpt2") == 0) /* llama.cpp asks for the key */
        gguf_put_texts(p, KEY("merges"), texts(a, g->merge, g->n_merges, g->n_merges),
                       (uint64_t)g->n_merges);
    if (g->charsmap)
        gguf_put_array(p, KEY("precompiled_charsmap"), GGUF_I8, g->charsmap, g->n_charsmap);
}

static void put_ids(const gguf_tokenizer *g, gguf_pairs *p) {
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{KEY("bos_token_id"), g->bos},       {KEY("unknown_token_id"), g->unk},
               {KEY("seperator_token_id"), g->sep}, {KEY("padding_token_id"), g->pad},
               {KEY("cls_token_id"), g->cls},       {KEY("mask_token_id"), g->mask}};
    const struct {
        const char *key;
        gguf_flag flag;
    } flags[] = {{KEY("add_bos_token"), g->add_bos},
                 {KEY("add_eos_token"), g->add_eos},
                 {KEY("add_sep_token"), g->add_sep},
                 {KEY("add_space_prefix"), g->add_space_prefix},
                 {KEY("remove_extra_whitespaces"), g->remove_extra_whitespaces}};
    for (int i = 0; i < ARRAY_LEN(ids); i++)
        if (ids[i].id >= 0) gguf_put_u32(p, ids[i].key, (uint32_t)ids[i].id);
    for (int i = 0; i < ARRAY_LEN(flags); i++)
        if (flags[i].flag != GGUF_ABSENT)
            gguf_put_bool(p, flags[i].key, flags[i].flag == GGUF_TRUE);
}

/* Ids that end a text: there is room for three. The tokenizer's own comes first, unless the model
 * names others only. */
static void put_end_ids(const gguf_model_source *src, int32_t own, gguf_pairs *p) {
    static const char *const keys[] = {KEY("eos_token_id"), KEY("eot_token_id"),
                                       KEY("eom_token_id")};
    bool named = src->end.n == 0;
    for (int64_t i = 0; i < src->end.n; i++) named |= src->end.id[i] == own;
    int n = 0;
    if (named && own >= 0) gguf_put_u32(p, keys[n++], (uint32_t)own);
    for (int64_t i = 0; i < src->end.n && n < ARRAY_LEN(keys); i++)
        if (src->end.id[i] != own) gguf_put_u32(p, keys[n++], (uint32_t)src->end.id[i]);
}

/* No merge makes it, so it can be left out. */
static bool is_added(const gguf_tokenizer *g, int32_t id) {
    int32_t type = g->type ? g->type[id] : GGUF_TOKEN_NORMAL;
    return type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_USER_DEFINED ||
           type == GGUF_TOKEN_UNUSED;
}

status gguf_tok_write(arena *a, const gguf_model_source *src, gguf_pairs *p, err *e) {
    gguf_tokenizer g = gguf_tokenizer_empty();
    int64_t rows = src->config->vocab_size;
    status st = tok_to_gguf(src->tok, a, &g, e);
    if (st != ST_OK) {
        err_hint(e, "llama.cpp has no form for this tokenizer; --to hf keeps it as it is");
        return st;
    }
    while (g.n_tokens > rows && is_added(&g, g.n_tokens - 1)) g.n_tokens--; /* Gemma 3: an image */
    if (g.n_tokens > rows) {
        err_set(e, ST_USAGE, "the tokenizer has %d tokens, the model's embedding %lld rows",
                g.n_tokens, (long long)rows);
        return err_hint(e, "give the model its own tokenizer");
    }
    gguf_put_string(p, KEY("model"), g.model);
    if (g.pre) gguf_put_string(p, KEY("pre"), g.pre);
    put_tokens(a, &g, rows, p);
    put_ids(&g, p);
    put_end_ids(src, g.eos, p);
    const char *template = src->chat_template ? src->chat_template : g.chat_template;
    if (template) gguf_put_string(p, "tokenizer.chat_template", template);
    return ST_OK;
}
