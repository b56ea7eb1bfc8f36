/* Writes new ids everywhere in a tokenizer.json. */
#include <string.h>

#include "tok/edit/edit.h"

/* ---- ids beside the vocabulary ---- */

/* A template may list ids that it does not use, which nobody has checked. */
static void map_id(const edit *d, json_t *id, edit_id_fn *fn, void *ctx) {
    json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
    if (v >= 0 && v < d->t->n_token && d->t->token[v].text)
        json_integer_set(id, fn(ctx, (int32_t)v));
}

/* TemplateProcessing lists ids by name, the BERT and RoBERTa processors have [content, id]. */
static void map_processor(const edit *d, json_t *p, edit_id_fn *fn, void *ctx) {
    static const char *const PAIRS[] = {"sep", "cls"};
    const char *name;
    json_t *special, *id, *part;
    size_t i;
    json_object_foreach(json_object_get(p, "special_tokens"), name, special)
        json_array_foreach(json_object_get(special, "ids"), i, id) map_id(d, id, fn, ctx);
    for (int k = 0; k < ARRAY_LEN(PAIRS); k++)
        map_id(d, json_array_get(json_object_get(p, PAIRS[k]), 1), fn, ctx);
    /* As deep as the reader let it be. */
    json_array_foreach(json_object_get(p, "processors"), i, part) map_processor(d, part, fn, ctx);
}

void edit_map_other_ids(edit *d, edit_id_fn *fn, void *ctx) {
    map_processor(d, json_object_get(d->root, "post_processor"), fn, ctx);
    map_id(d, json_object_get(json_object_get(d->root, "padding"), "pad_id"), fn, ctx);
}

/* ---- the vocabulary ---- */

static void renumber_object(edit *d, const int32_t *new_id) {
    json_t *vocab = json_object();
    for (int32_t id = 0; id < d->t->n_token; id++) {
        const tok_token *k = &d->t->token[id];
        if (k->in_model && new_id[id] >= 0)
            json_object_set_new(vocab, k->text, json_integer(new_id[id]));
    }
    json_object_set_new(d->model, "vocab", vocab);
    d->vocab = vocab;
}

static void renumber_list(edit *d, const int32_t *new_id) {
    json_t *vocab = json_array(), *piece, *unk = json_object_get(d->model, "unk_id");
    size_t i;
    json_array_foreach(d->vocab, i, piece) if (new_id[i] >= 0) json_array_append(vocab, piece);
    json_object_set_new(d->model, "vocab", vocab);
    d->vocab = vocab;
    if (json_is_integer(unk)) json_integer_set(unk, new_id[json_integer_value(unk)]);
}

static void drop_merges(edit *d, const int32_t *new_id) {
    json_t *merges = json_array(), *merge;
    size_t i;
    json_array_foreach(d->merges, i, merge) {
        int32_t left, right, result;
        if (edit_merge_ids(d, merge, &left, &right, &result) && new_id[left] >= 0 &&
            new_id[right] >= 0 && new_id[result] >= 0)
            json_array_append(merges, merge);
    }
    json_object_set_new(d->model, "merges", merges);
    d->merges = merges;
}

static int32_t look_up(void *ctx, int32_t id) {
    const int32_t *new_id = ctx;
    return new_id[id];
}

void edit_renumber(edit *d, const int32_t *new_id) {
    json_t *entry;
    size_t i;
    if (d->merges) drop_merges(d, new_id);
    if (json_is_array(d->vocab))
        renumber_list(d, new_id);
    else
        renumber_object(d, new_id);
    json_array_foreach(d->added, i, entry)
        map_id(d, json_object_get(entry, "id"), look_up, (void *)new_id);
    edit_map_other_ids(d, look_up, (void *)new_id);
}
