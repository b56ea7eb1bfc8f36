#include "train/same_weights.h"

#include <stdio.h>
#include <string.h>

#include "model/family.h"
#include "param/param.h"

/* The folder's model; key: with this key of the config beside `from`, or NULL. */
static status read_with(arena *a, const config *c, const model_config *m, const char *key,
                        model_config *out, err *e) {
    json_t *o = json_object();
    json_object_set_new(o, "from", json_string_nocheck(m->from));
    json_object_set(o, "ignore_keys", json_object_get(c->model, "ignore_keys"));
    if (key) json_object_set(o, key, json_object_get(c->model, key));
    status st = model_config_read(a, o, m->from_vocab, out, e);
    json_decref(o);
    if (st != ST_OK) return st;
    out->vocab_size = m->vocab_size;
    out->num_labels = m->num_labels;
    if (m->num_nextn_predict_layers < out->num_nextn_predict_layers)
        out->num_nextn_predict_layers = m->num_nextn_predict_layers;
    if (m->from_unties) out->tie_word_embeddings = false;
    if (m->tie_word_embeddings)
        out->tie_word_embeddings = true; /* a head that is stored may equal the embedding */
    return ST_OK;
}

static param_store *declare(arena *a, const model_config *mc) {
    param_store *s = param_store_new(a, DT_F32);
    model_declare(mc, s);
    return s;
}

/* The first weight that one has otherwise; NULL: none. */
static const char *first_difference(const param_store *a, const param_store *b) {
    int n = param_count(a), m = param_count(b);
    for (int i = 0; i < n || i < m; i++) {
        if (i >= n || i >= m) return param_at(i < n ? a : b, i)->name;
        const param *p = param_at(a, i), *q = param_at(b, i);
        if (strcmp(p->name, q->name) != 0 || p->rank != q->rank ||
            param_whole_rows(p) != param_whole_rows(q) ||
            param_whole_cols(p) != param_whole_cols(q))
            return p->name;
    }
    return NULL;
}

/* The key that alone makes other weights of the folder's model; NULL: none does alone. */
static const char *key_to_blame(arena *a, const config *c, const model_config *m,
                                const param_store *stored) {
    const char *key;
    json_t *v;
    json_object_foreach(c->model, key, v) {
        model_config one;
        err unread;
        if (strcmp(key, "from") == 0 || strcmp(key, "ignore_keys") == 0) continue;
        if (read_with(a, c, m, key, &one, &unread) != ST_OK) continue;
        if (first_difference(declare(a, &one), stored)) return key;
    }
    return NULL;
}

static status refuse(const config *c, const model_config *m, const char *key, const char *name,
                     err *e) {
    if (!key) {
        config_error(c, e, "model",
                     "the keys beside model.from make other weights than those of %s: %s differs",
                     m->from, name);
        return err_hint(e, "leave them out: weights that are there keep their sizes");
    }
    char path[160];
    snprintf(path, sizeof path, "model.%.140s", key);
    config_error(c, e, path, "%s makes other weights than those of %s: %s differs", path, m->from,
                 name);
    return err_hint(e, "leave %s out: weights that are there keep their sizes", path);
}

status same_weights_check(const config *c, const model_config *m, err *e) {
    model_config base;
    if (!m->from) return ST_OK;
    arena *a = arena_new("stored weights");
    status st = read_with(a, c, m, NULL, &base, e);
    if (st == ST_OK) {
        const param_store *stored = declare(a, &base);
        const char *name = first_difference(declare(a, m), stored);
        if (name) st = refuse(c, m, key_to_blame(a, c, m, stored), name, e);
    }
    arena_free(a);
    return st;
}
