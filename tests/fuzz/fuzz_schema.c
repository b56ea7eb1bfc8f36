/* libFuzzer target: a JSON Schema from outside bytes, over a vocabulary of bytes. What it is made into is bounded, and
 * a text under it ends as JSON within the tokens that the shortest value needs, whatever is picked. The input is
 *   schema | NUL | bytes that say what is picked */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "infer/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 400 };

static token_trie *bytes_of_all(void) {
    static token_trie *v;
    tok_train_options o = {.kind = TOK_BYTE};
    tok_trainer *tr;
    tok *t;
    err e = {0};
    if (v) return v;
    CHECK(tok_trainer_new(&tr, &o, &e) == ST_OK && tok_trainer_add(tr, "a", 1, &e) == ST_OK &&
              tok_trainer_finish(tr, &t, &e) == ST_OK,
          "%s", e.message);
    tok_trainer_free(tr);
    return v = token_trie_new(t, tok_vocab_size(t));
}

/* The id that is allowed and comes first from `from` on; -1: none is. */
static int32_t allowed_from(const uint64_t *mask, int32_t n, int32_t from) {
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (from + i) % n;
        if (mask[id / 64] >> id % 64 & 1) return id;
    }
    return -1;
}

static void write_text(grammar *g, const token_trie *v, const uint8_t *pick, size_t n) {
    constraint *c = grammar_constrain(g);
    strbuf text = {0};
    uint64_t mask[8];
    for (int64_t left = MOST; left > 0 && !c->class->must_end(c); left--) {
        size_t len;
        memset(mask, 0, sizeof mask);
        bool any = c->class->allow(c, left, mask);
        int32_t id = allowed_from(mask, v->n_ids, n ? pick[(size_t)left % n] : 0);
        CHECK(any == (id >= 0) && (any || c->class->may_end(c)), "a dead end");
        if (!any) break;
        const char *s = tok_bytes(v->tok, id, &len);
        strbuf_append(&text, s, len);
        c->class->take(c, id);
    }
    if (c->class->may_end(c)) {
        json_t *j =
            json_loadb(strbuf_cstr(&text), text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        CHECK(j, "not JSON: %s", strbuf_cstr(&text));
        json_decref(j);
    }
    strbuf_free(&text);
    constraint_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const token_trie *v = bytes_of_all();
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    json_t *schema = json_loadb((const char *)data, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    err e = {0};
    grammar *g;
    if (!schema) return 0;
    status st = grammar_of_schema(&g, v, schema, &e);
    CHECK(st == ST_OK || (st == ST_USAGE && e.message[0]), "an error without words");
    json_decref(schema);
    if (st != ST_OK) return 0;
    write_text(g, v, end ? end + 1 : data, end ? size - n - 1 : n);
    grammar_free(g);
    return 0;
}
