/* WordLevel: a word is a token or unknown. */
#include <stdlib.h>

#include "tok/format/json.h"
#include "tok/model/piece_trie.h"

typedef struct wordlevel_model {
    str_map by_key; /* what a token looks like in the text at hand -> id */
    arena *mem;
} wordlevel_model;

static status wordlevel_encode(tok_enc *enc, const tok_piece *word) {
    const wordlevel_model *m = enc->t->model;
    int32_t id = str_map_get(&m->by_key, word->s, word->len);
    if (id < 0) id = enc->t->unk;
    if (id < 0) return enc_unknown_word(enc, word);
    enc_push(enc, id, word, 0, word->len);
    return ST_OK;
}

static status wordlevel_read(tok_reader *r, const json_t *model) {
    wordlevel_model *m = r->t->model = xcalloc(1, sizeof(*m));
    m->mem = arena_new("wordlevel words");
    TRY(tok_json_keys(r, model, "model", "type unk_token vocab"));
    int32_t n;
    piece_key *key = piece_keys(r->t, m->mem, &n);
    str_map_reserve(&m->by_key, (uint32_t)n);
    for (int32_t i = 0; i < n; i++) str_map_add(&m->by_key, key[i].s, key[i].n, key[i].value);
    return ST_OK;
}

static void wordlevel_hash(const tok *t, XXH3_state_t *x) {
    tok_hash_number(x, t->unk);
}

static void wordlevel_free(void *model) {
    wordlevel_model *m = model;
    if (!m) return;
    str_map_free(&m->by_key);
    arena_free(m->mem);
    free(m);
}

const model_class MODEL_WORDLEVEL = {
    .type = "WordLevel",
    .names_unk = true,
    .read = wordlevel_read,
    .free = wordlevel_free,
    .hash = wordlevel_hash,
    .encode = wordlevel_encode,
};
