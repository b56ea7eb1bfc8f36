/* See inherit.h. Reading order: inherit_source, choose_layers, choose_tokens, then the tensors. */
#include "interchange/inherit.h"

#include <string.h>

#include "base/json.h"
#include "model/config_keys.h"
#include "tok/tok_edit.h"
#include "tok/tok_format.h"

/* ---- layers ---- */

/* What differs between layers goes with them. */
static void choose_of_list(arena *a, model_config *mc, const key_row *k,
                           const inherit_options *opt) {
    const int64_t *list;
    char *member = (char *)mc + k->of_offset;
    memcpy(&list, member, sizeof list);
    if (!list) return;
    int64_t *chosen = ARENA_ARRAY(a, int64_t, opt->n_layers);
    for (int i = 0; i < opt->n_layers; i++) chosen[i] = list[opt->layers[i]];
    list = chosen;
    memcpy(member, &list, sizeof list);
}

static status choose_layers(arena *a, const inherit_options *opt, model_config *mc, err *e) {
    if (!opt->layers) return ST_OK;
    if (mc->num_encoder_layers) {
        err_at(e, ST_USAGE, "--layers", "layers of an encoder and a decoder cannot be chosen");
        return err_hint(
            e, "leave --layers out: all layers stay, and --map with --tokenizer chooses tokens");
    }
    for (int i = 0; i < opt->n_layers; i++) {
        if (opt->layers[i] >= 0 && opt->layers[i] < mc->num_hidden_layers) continue;
        err_at(e, ST_USAGE, "--layers", "the model has no layer %lld, its layers are 0 to %lld",
               (long long)opt->layers[i], (long long)mc->num_hidden_layers - 1);
        return err_hint(e, "such as --layers 0,2,4");
    }
    for (int i = 0; i < model_n_keys; i++)
        if (model_keys[i].type == KEY_TYPE_LAYERS) choose_of_list(a, mc, &model_keys[i], opt);
    mc->num_hidden_layers = opt->n_layers;
    return ST_OK;
}

/* ---- tokens ---- */

typedef struct token_rows {
    const int64_t *old; /* [n] the old row of each new id; NULL: as they are */
    int64_t n;
} token_rows;

static status bad_map(const char *path, const char *what, err *e) {
    err_at(e, ST_USAGE, path, "%s %s", path, what);
    return err_hint(e, "athanor tok prune ... --map %s writes it", path);
}

static status read_map(arena *a, const char *path, int64_t vocab, token_rows *out, err *e) {
    json_t *o, *v;
    size_t i;
    TRY(json_read_file(&o, path, JSON_FILE_MAX_BYTES, e));
    const json_t *list = json_object_get(o, "rows");
    out->n = (int64_t)json_array_size(list);
    int64_t *old = ARENA_ARRAY(a, int64_t, (int)out->n + 1);
    bool good = out->n > 0;
    json_array_foreach((json_t *)list, i, v) {
        old[i] = json_is_integer(v) ? json_integer_value(v) : -1;
        good = good && old[i] >= 0 && old[i] < vocab;
    }
    json_decref(o);
    out->old = old;
    return good ? ST_OK : bad_map(path, "is no list of rows of this model", e);
}

static int64_t new_id(const token_rows *t, int64_t old) {
    for (int64_t i = 0; i < t->n; i++)
        if (t->old[i] == old) return i;
    return -1;
}

/* The new ids of an id, or of a list; those that are gone are left out. NULL: none is left. */
static json_t *new_ids(const json_t *v, const token_rows *t) {
    json_t *list = json_array(), *one;
    size_t i;
    if (json_is_integer(v))
        json_array_append_new(list, json_integer(new_id(t, json_integer_value(v))));
    json_array_foreach((json_t *)v, i, one)
        json_array_append_new(list, json_integer(new_id(t, json_integer_value(one))));
    for (i = json_array_size(list); i-- > 0;)
        if (json_integer_value(json_array_get(list, i)) < 0) json_array_remove(list, i);
    json_t *out =
        json_array_size(list) > 1 ? json_incref(list) : json_incref(json_array_get(list, 0));
    json_decref(list);
    return out;
}

static bool names_ids(const char *key) {
    size_t n = strlen(key);
    return n >= 9 && strcmp(key + n - 9, "_token_id") == 0;
}

/* Ids that config.json names (bos_token_id, ...) are others now. */
static json_t *new_keys(const json_t *keys, const token_rows *t) {
    json_t *out = json_object(), *v;
    const char *key;
    json_object_foreach((json_t *)keys, key, v) {
        json_t *ids = names_ids(key) ? new_ids(v, t) : NULL;
        if (ids) json_object_set_new(out, key, ids);
    }
    return out;
}

/* How the larger model writes (where texts end, temperature) holds for the smaller one, too; lists of ids that are
 * suppressed or wanted are of the old vocabulary. NULL: nothing is known of it. */
static json_t *new_generation(const model_source *larger, const token_rows *t) {
    static const char *const lists[] = {"suppress_tokens", "begin_suppress_tokens",
                                        "bad_words_ids",   "force_words_ids",
                                        "sequence_bias",   "forced_decoder_ids"};
    json_t *out;
    void *next;
    const char *key;
    json_t *v;
    char *path = path_join(larger->a, larger->path, "generation_config.json");
    if (json_read_file(&out, path, JSON_FILE_MAX_BYTES, NULL) != ST_OK) return NULL;
    if (!json_is_object(out)) {
        json_decref(out);
        return NULL;
    }
    for (int i = 0; i < ARRAY_LEN(lists); i++) json_object_del(out, lists[i]);
    json_object_foreach_safe(out, next, key, v) {
        json_t *ids = names_ids(key) ? new_ids(v, t) : json_incref(v);
        if (ids)
            json_object_set_new(out, key, ids);
        else
            json_object_del(out, key);
    }
    return out;
}

static status choose_tokens(const model_source *larger, const inherit_options *opt,
                            model_source *out, token_rows *t, err *e) {
    model_config *mc = &out->config;
    if (!opt->map) return ST_OK;
    TRY(read_map(out->a, opt->map, mc->vocab_size, t, e));
    TRY(tok_load(&out->tok, opt->tokenizer, e));
    if (tok_vocab_size(out->tok) != t->n) {
        int32_t has = tok_vocab_size(out->tok);
        tok_free(out->tok);
        err_at(e, ST_USAGE, "--tokenizer", "%s has %d tokens, the map has %lld", opt->tokenizer,
               has, (long long)t->n);
        return err_hint(e, "both are of the same athanor tok prune");
    }
    if (mc->num_encoder_layers && new_id(t, model_decoder_start(mc)) < 0) {
        err_at(e, ST_USAGE, "--map",
               "the token %d, with which the decoder begins, is not among those that stay",
               model_decoder_start(mc));
        return err_hint(e, "prune the tokenizer with a corpus or --keep that leaves it");
    }
    mc->vocab_size = t->n;
    if (mc->pad_token_id >= 0) mc->pad_token_id = new_id(t, mc->pad_token_id);
    if (mc->decoder_start_id >= 0) mc->decoder_start_id = new_id(t, mc->decoder_start_id);
    if (out->kind == MODEL_SOURCE_HF || out->kind == MODEL_SOURCE_ADAPTER)
        out->generation = new_generation(larger, t);
    if (larger->tok) tok_edit_follow(out->tok, larger->tok);
    out->keys = new_keys(out->keys, t);
    out->kind =
        MODEL_SOURCE_LLAMA2C; /* the files of a tokenizer that lie beside it are another's */
    return ST_OK;
}

/* ---- tensors ---- */

/* Rows of a tensor of the larger model, each of `cols` elements. */
typedef struct chosen_rows {
    const st_tensor *in;
    const int64_t *old;
    int64_t cols;
} chosen_rows;

static status fill_rows(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    const chosen_rows *c = ctx;
    size_t size = dtype_bytes(c->in->dt);
    for (int64_t done = 0, take; done < n; done += take) {
        int64_t row = (first + done) / c->cols, col = (first + done) % c->cols;
        take = c->cols - col < n - done ? c->cols - col : n - done;
        TRY(c->in->fill(c->in->ctx, c->old[row] * c->cols + col, take,
                        (char *)dst + (size_t)done * size, e));
    }
    return ST_OK;
}

static st_tensor rows_of(arena *a, const st_tensor *in, const token_rows *t) {
    chosen_rows c = {.in = in, .old = t->old, .cols = in->rank > 1 ? in->dims[1] : 1};
    st_tensor out = *in;
    out.dims[0] = t->n;
    out.fill = fill_rows;
    out.ctx = arena_memdup(a, &c, sizeof c);
    return out;
}

/* The larger model's layer that a layer is; modules behind the last layer stay behind it. */
static int larger_layer(const model_source *larger, int layer, const inherit_options *opt) {
    if (layer < 0 || !opt->layers) return layer;
    if (layer < opt->n_layers) return (int)opt->layers[layer];
    return layer - opt->n_layers + (int)larger->config.num_hidden_layers;
}

/* The larger model's tensor of the same name in the chosen layer. */
static int find_larger(const model_source *larger, const param *p, const inherit_options *opt) {
    int layer = larger_layer(larger, p->layer, opt);
    for (int i = 0; i < param_count(larger->params); i++) {
        const param *q = param_at(larger->params, i);
        if (q->part != p->part || q->layer != layer) continue;
        const char *a = strrchr(p->name, '.'), *b = strrchr(q->name, '.');
        if (strcmp(a ? a : p->name, b ? b : q->name) != 0) continue;
        if (!model_part_of_expert(p->part)) return i;
        char prefix[32],
            want[32]; /* of experts also the number, which is behind that of the layer */
        snprintf(prefix, sizeof prefix, ".%d.", p->layer);
        snprintf(want, sizeof want, ".%d.", layer);
        const char *tail = strstr(p->name, prefix), *theirs = strstr(q->name, want);
        if (tail && theirs && strcmp(tail + strlen(prefix), theirs + strlen(want)) == 0) return i;
    }
    return -1;
}

static void make_tensors(const model_source *larger, const inherit_options *opt,
                         const token_rows *t, model_source *out) {
    const st_tensor *list = model_source_folder_tensors(larger, out->a, DT_COUNT);
    int n = param_count(out->params);
    out->tensors = ARENA_ARRAY(out->a, st_tensor, n);
    out->formats = ARENA_ARRAY(out->a, dtype, n);
    for (int i = 0; i < n; i++) {
        const param *p = param_at(out->params, i);
        int from = find_larger(larger, p, opt);
        CHECK(from >= 0, "the larger model has no %s", p->name);
        bool of_tokens = p->part == PART_EMBED || p->part == PART_HEAD;
        out->tensors[i] = t->old && of_tokens ? rows_of(out->a, &list[from], t) : list[from];
        out->tensors[i].name = p->name;
        out->formats[i] = list[from].dt;
    }
}

status inherit_source(model_source *larger, const inherit_options *opt, model_source *out, err *e) {
    token_rows t = {0};
    *out = *larger;
    out->config = model_source_folder_config(larger);
    out->order = HF_FILES;
    TRY(choose_layers(out->a, opt, &out->config, e));
    TRY(choose_tokens(larger, opt, out, &t, e));
    out->params = param_store_new(out->a, DT_F32);
    model_declare(&out->config, out->params);
    make_tensors(larger, opt, &t, out);
    if (t.old) { /* the source owns both, and closes them */
        tok_free(larger->tok);
        json_decref(larger->keys);
        larger->tok = out->tok;
        larger->keys = out->keys;
        larger->generation = out->generation;
    }
    return ST_OK;
}
