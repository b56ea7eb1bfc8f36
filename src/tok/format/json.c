/* Reads tokenizer.json: the whole, its options, its hash.
 *
 * What this module does not implement is refused by name, because a tokenizer that differs a little
 * spoils a model silently. `truncation` and `padding` are settings of a call in the library they
 * come from and are ignored. Reading order: tok_read_json here, json_vocab.c for the ids,
 * the *_json.c beside each stage for the rest. */
#include "tok/format/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { MAX_DEPTH = 4 }; /* Sequences inside Sequences */

status tok_bad(tok_reader *r, const char *path, const char *fmt, ...) {
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return err_at(r->e, ST_FORMAT, path, "%s: %s: %s", r->origin, path, what);
}

status tok_json_keys(tok_reader *r, const json_t *obj, const char *path, const char *known) {
    const char *key;
    json_t *value;
    if (!json_is_object(obj)) return tok_bad(r, path, "is not an object");
    json_object_foreach((json_t *)obj, key, value) {
        if (!tok_words_have(known, key))
            return tok_bad(r, path, "key \"%.80s\" is not supported", key);
    }
    return ST_OK;
}

status tok_json_type(tok_reader *r, const json_t *obj, const char *path, const char **type) {
    const char *s = json_string_value(json_object_get(obj, "type"));
    if (!s) return tok_bad(r, path, "has no \"type\"");
    *type = s;
    return ST_OK;
}

status tok_json_bool(tok_reader *r, const json_t *obj, const char *path, const char *key,
                     bool otherwise, bool *value) {
    const json_t *j = json_object_get(obj, key);
    *value = otherwise;
    if (!j || json_is_null(j)) return ST_OK;
    if (!json_is_boolean(j)) return tok_bad(r, path, "\"%s\" is not true or false", key);
    *value = json_is_true(j);
    return ST_OK;
}

status tok_json_each(tok_reader *r, const json_t *j, const char *path, const char *key, int depth,
                     tok_part_fn *part) {
    char known[64];
    const json_t *list = json_object_get(j, key), *member;
    size_t i;
    snprintf(known, sizeof(known), "type %s", key);
    TRY(tok_json_keys(r, j, path, known));
    if (!json_is_array(list)) return tok_bad(r, path, "\"%s\" is not an array", key);
    if (depth >= MAX_DEPTH) return tok_bad(r, path, "sequences are nested too deep");
    json_array_foreach((json_t *)list, i, member) {
        char sub[256];
        snprintf(sub, sizeof(sub), "%.200s.%s[%zu]", path, key, i);
        TRY(part(r, member, sub, depth + 1));
    }
    return ST_OK;
}

/* ---- the model ---- */

/* Old files name no type. */
static const char *kind_by_keys(const json_t *model) {
    if (json_is_array(json_object_get(model, "vocab"))) return "Unigram";
    if (json_object_get(model, "max_input_chars_per_word")) return "WordPiece";
    return json_object_get(model, "merges") ? "BPE" : "WordLevel";
}

static status read_class(tok_reader *r, const json_t *model) {
    static const model_class *const CLASSES[] = {&MODEL_BPE, &MODEL_UNIGRAM, &MODEL_WORDPIECE,
                                                 &MODEL_WORDLEVEL};
    const json_t *type = json_object_get(model, "type");
    const char *name = type ? json_string_value(type) : kind_by_keys(model);
    if (!json_is_object(model)) return tok_bad(r, "model", "is missing or not an object");
    for (int i = 0; name && i < ARRAY_LEN(CLASSES); i++) {
        if (strcmp(CLASSES[i]->type, name) != 0) continue;
        r->t->class = CLASSES[i];
        return ST_OK;
    }
    return tok_bad(r, "model.type", "\"%.80s\" is not supported", name ? name : "?");
}

static status read_unk(tok_reader *r, const json_t *model) {
    const json_t *j = json_object_get(model, "unk_token");
    r->t->unk = -1;
    if (tok_json_absent(j) && !r->t->class->names_unk) return ST_OK;
    if (!json_is_string(j)) return tok_bad(r, "model.unk_token", "is not a string");
    int32_t id = str_map_get(&r->t->by_text, json_string_value(j), json_string_length(j));
    bool found = id >= 0 && r->t->token[id].in_model;
    if (!found && r->t->class->names_unk) return ST_OK;
    if (!found) {
        return tok_bad(r, "model.unk_token", "\"%.80s\" is not in the vocabulary",
                       json_string_value(j));
    }
    r->t->unk = id;
    return ST_OK;
}

/* ---- hash ---- */

static int hash_chunk(const char *bytes, size_t n, void *state) {
    return XXH3_64bits_update(state, bytes, n) == XXH_OK ? 0 : -1;
}

void tok_hash_number(XXH3_state_t *x, int64_t v) {
    XXH3_64bits_update(x, &v, sizeof(v));
}

/* Over what decides ids and text, in one canonical form: spacing, key order and the two spellings
 * of merges do not count. */
static uint64_t hash_all(const tok *t, const json_t *root) {
    static const char *const PARTS[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder",
                                        "added_tokens"};
    XXH3_state_t *x = XXH3_createState();
    CHECK(x, "no memory for a hash state");
    XXH3_64bits_reset(x);
    for (int i = 0; i < ARRAY_LEN(PARTS); i++) {
        const json_t *part = json_object_get(root, PARTS[i]);
        if (part) {
            json_dump_callback(part, hash_chunk, x,
                               JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        }
        tok_hash_number(x, i);
    }
    tok_hash_number(x, t->unk);
    for (int32_t id = 0; id < t->n_token; id++) {
        tok_hash_number(x, t->token[id].text ? (int64_t)t->token[id].n_text : -1);
        if (t->token[id].text) XXH3_64bits_update(x, t->token[id].text, t->token[id].n_text);
    }
    t->class->hash(t, x);
    uint64_t hash = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    return hash;
}

/* ---- the whole ---- */

static int32_t first_known(const tok *t, const char *const *names, int n) {
    for (int i = 0; i < n; i++) {
        int32_t id = tok_id(t, names[i]);
        if (id >= 0) return id;
    }
    return -1;
}

static void guess_bos_eos(tok *t) {
    static const char *const EOS[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"};
    static const char *const BOS[] = {"<|begin_of_text|>", "<s>", "<bos>"};
    t->eos = first_known(t, EOS, ARRAY_LEN(EOS));
    t->bos = t->post.n_prefix > 0 ? t->post.prefix[0] : first_known(t, BOS, ARRAY_LEN(BOS));
}

static status read_root(tok_reader *r, const json_t *root) {
    TRY(tok_json_keys(r, root, "top level",
                      "version truncation padding added_tokens normalizer "
                      "pre_tokenizer post_processor decoder model"));
    const json_t *model = json_object_get(root, "model");
    TRY(read_class(r, model));
    TRY(tok_read_normalizer(r, json_object_get(root, "normalizer"), "normalizer", 0));
    TRY(tok_read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", 0));
    r->t->byte_level = r->saw_byte_level;
    TRY(tok_read_vocab(r, model, json_object_get(root, "added_tokens")));
    TRY(read_unk(r, model));
    TRY(r->t->class->read(r, model));
    TRY(tok_read_post_processor(r, json_object_get(root, "post_processor"), "post_processor", 0));
    TRY(tok_read_decoder(r, json_object_get(root, "decoder")));
    guess_bos_eos(r->t);
    r->t->hash = hash_all(r->t, root);
    return ST_OK;
}

status tok_read_json(tok *t, const char *origin, err *e) {
    tok_reader r = {.t = t, .origin = origin, .e = e};
    if (t->json_len > TOK_MAX_JSON_BYTES) {
        return tok_bad(&r, "top level", "%zu bytes is more than any tokenizer has", t->json_len);
    }
    json_error_t je;
    json_t *root = json_loadb(t->json, t->json_len, JSON_REJECT_DUPLICATES, &je);
    if (!root) {
        err_set(e, ST_FORMAT, "%s: not a tokenizer.json: %s", origin, je.text);
        return err_where(e, "%s:%d:%d", origin, je.line, je.column);
    }
    status st = read_root(&r, root);
    json_decref(root);
    return st;
}
