/* A tokenizer's life, and what can be asked about its vocabulary.
 *
 * Reading order: internal.h (the chain of stages), encode.c, then the stages in its order;
 * format/json.c for where a tokenizer comes from. */
#include "tok/tok.h"

#include <stdlib.h>
#include <string.h>

#include "tok/internal.h"

void tok_spans_free(tok_spans *v) {
    free(v->span);
    *v = (tok_spans){0};
}

void tok_ids_push(tok_ids *v, int32_t id) {
    VEC_PUSH(v->id, v->n, v->cap, id);
}

void tok_ids_free(tok_ids *v) {
    free(v->id);
    *v = (tok_ids){0};
}

status tok_parse(tok **out, const char *json, size_t len, const char *origin, err *e) {
    *out = NULL;
    tok *t = xcalloc(1, sizeof(*t));
    t->mem = arena_new("tokenizer");
    t->json = xmalloc(len + 1);
    memcpy(t->json, json, len);
    t->json[len] = '\0';
    t->json_len = len;
    status st = tok_read_json(t, origin, e);
    if (st != ST_OK) {
        tok_free(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void tok_free(tok *t) {
    if (!t) return;
    for (int i = 0; i < TOK_IDLE; i++) enc_free(t->idle[i]);
    for (int i = 0; i < t->n_norm; i++) norm_step_free(&t->norm[i]);
    for (int i = 0; i < t->n_steps; i++) pretok_step_free(&t->step[i]);
    for (int i = 0; i < t->n_dec; i++) dec_step_free(&t->dec[i]);
    if (t->class) t->class->free(t->model);
    tok_added_free(&t->raw);
    tok_added_free(&t->normal);
    str_map_free(&t->by_text);
    arena_free(t->mem);
    free(t->json);
    free(t);
}

int64_t tok_lost_bytes(const tok *t) {
    return t->lost_bytes;
}

int32_t tok_vocab_size(const tok *t) {
    return t->n_token;
}

int32_t tok_bos(const tok *t) {
    return t->bos;
}

int32_t tok_eos(const tok *t) {
    return t->eos;
}

int32_t tok_id(const tok *t, const char *content) {
    return str_map_get(&t->by_text, content, strlen(content));
}

int32_t tok_model_id(const tok *t, const char *s, size_t n) {
    int32_t id = str_map_get(&t->by_text, s, n);
    return id >= 0 && t->token[id].in_model ? id : -1;
}

const char *tok_bytes(const tok *t, int32_t id, size_t *len) {
    *len = 0;
    if (id < 0 || id >= t->n_token || !t->token[id].text) return NULL;
    *len = t->token[id].n_bytes;
    return t->token[id].bytes;
}

bool tok_is_added(const tok *t, int32_t id) {
    return id >= 0 && id < t->n_token && t->token[id].text && t->token[id].added;
}

uint64_t tok_hash(const tok *t) {
    return t->hash;
}

bool tok_words_have(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *p = words; n > 0 && *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, word, n) == 0) return true;
        p += len;
    }
    return false;
}
