/* The vocabulary as a model looks for it in text: see piece_trie.h. */
#include "tok/internal.h"
#include "tok/model/piece_trie.h"

bool piece_text_key(const tok *t, const char *text, size_t n, strbuf *out) {
    strbuf_clear(out);
    if (t->byte_level) return byte_alphabet_read(out, text, n);
    strbuf_append(out, text, n);
    return true;
}

piece_key *piece_keys(const tok *t, arena *mem, int32_t *n) {
    piece_key *key = ARENA_ARRAY(mem, piece_key, t->n_token);
    strbuf bytes = {0};
    *n = 0;
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (!k->in_model || !piece_text_key(t, k->text, k->n_text, &bytes) || bytes.len == 0) {
            continue;
        }
        const char *s = t->byte_level ? arena_memdup(mem, bytes.data, bytes.len) : k->text;
        key[(*n)++] = (piece_key){s, (uint32_t)bytes.len, id};
    }
    strbuf_free(&bytes);
    return key;
}
