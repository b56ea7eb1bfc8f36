#include "train/vocabulary.h"

#include <string.h>

#include "base/file.h"
#include "io/gguf/gguf.h"

/* The tokenizer in a folder of weights; NULL: there is none, or it is the run's own file. */
static status load_beside(const config *c, const char *dir, bool *own, tok **out, err *e) {
    arena *a = arena_new("tokenizer path");
    const char *path = gguf_is_file(dir) ? dir : path_join(a, dir, "tokenizer.json");
    *own = c->tokenizer && strcmp(path, c->tokenizer) == 0;
    *out = NULL;
    status st = !*own && file_exists(path) ? tok_load(out, path, e) : ST_OK;
    arena_free(a);
    return st;
}

static bool is_called(const tok *t, int32_t id, const char *name, size_t n) {
    char text[256];
    if (n == 0 || n >= sizeof text) return false;
    memcpy(text, name, n);
    text[n] = '\0';
    return tok_id(t, text) == id;
}

/* By its bytes; or by its name, as files of SentencePiece have no bytes for tokens such as </s>. */
static bool same_token(const tok *a, const tok *b, int32_t id) {
    size_t n = 0, m = 0;
    const char *x = tok_bytes(a, id, &n), *y = tok_bytes(b, id, &m);
    if (!x || !y) return !x; /* an id without use may get one */
    return (n == m && memcmp(x, y, n) == 0) || is_called(b, id, x, n) || is_called(a, id, y, m);
}

static status refuse_other(const config *c, const char *dir, int32_t id, err *e) {
    config_error(c, e, "tokenizer",
                 "%s is no extension of the tokenizer of %s: id %d is another token", c->tokenizer,
                 dir, id);
    return err_hint(e, "add tokens to that one: athanor tok add %s --special A,B -o tok/", dir);
}

status vocabulary_extends(const config *c, const tok *t, const char *dir, bool *known, err *e) {
    bool own;
    tok *old;
    TRY(load_beside(c, dir, &own, &old, e));
    *known = own || old;
    int32_t id = 0, had = old ? tok_vocab_size(old) : 0, has = tok_vocab_size(t);
    int32_t n = had < has ? had : has; /* with fewer tokens those that are left mean the same */
    while (id < n && same_token(old, t, id)) id++;
    tok_free(old);
    return id < n ? refuse_other(c, dir, id, e) : ST_OK;
}

/* Several words of a config may say the size: a number, `auto`, or nothing. */
static bool says_size(const config *c) {
    return json_object_get(c->model, "vocab_size") != NULL;
}

static status refuse_fewer(const config *c, const model_config *m, err *e) {
    config_error(c, e, "model.vocab_size",
                 "model.vocab_size is %ld, but %s has weights for %ld tokens", (long)m->vocab_size,
                 m->from, (long)m->from_vocab);
    return err_hint(e, "leave model.vocab_size out: weights are not cut");
}

status vocabulary_settle(const config *c, const tok *t, model_config *m, err *e) {
    int32_t n = t ? tok_vocab_size(t) : 0;
    bool is_auto = json_is_string(json_object_get(c->model, "vocab_size")), known = false;
    if (!m->from) return ST_OK;
    if (is_auto && m->vocab_size < m->from_vocab) m->vocab_size = m->from_vocab;
    if (m->vocab_size < m->from_vocab) return refuse_fewer(c, m, e);
    if (n > 0) TRY(vocabulary_extends(c, t, m->from, &known, e));
    if (n > m->from_vocab && known && !says_size(c)) m->vocab_size = n;
    return ST_OK;
}

int32_t vocabulary_added(const config *c, const tok *t, const model_config *m) {
    bool own;
    tok *old = NULL;
    err unread;
    if (!t || !m->from) return 0;
    if (load_beside(c, m->from, &own, &old, &unread) != ST_OK) old = NULL;
    int64_t had = own ? tok_vocab_size(t) : old ? tok_vocab_size(old) : m->from_vocab;
    tok_free(old);
    return tok_vocab_size(t) > had ? (int32_t)(tok_vocab_size(t) - had) : 0;
}
