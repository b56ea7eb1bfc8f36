/* Shapes of tokenizers; see shape.h. */
#include "tok/format/shape.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tok/format/tree.h"
#include "tok/model/bpe.h"

json_t *shape_root(const tok *t) {
    json_t *root = json_loadb(t->json, t->json_len, 0, NULL);
    CHECK(root, "a tokenizer that was read does not parse");
    return root;
}

bool shape_is_string(const json_t *obj, const char *key, const char *value) {
    const char *s = json_string_value(json_object_get(obj, key));
    return s && strcmp(s, value) == 0;
}

bool shape_is_type(const json_t *j, const char *type) {
    return shape_is_string(j, "type", type);
}

static bool is_one(const int32_t *ids, int n, int32_t id) {
    return id < 0 ? n == 0 : n == 1 && ids[0] == id;
}

bool shape_is_around(const tok *t, int32_t before, int32_t after) {
    const tok_post *p = &t->post;
    return is_one(p->prefix, p->n_prefix, before) && is_one(p->suffix, p->n_suffix, after);
}

bool shape_is_folder(const char *path) {
    return file_is_dir(path) || !strchr(path_base(path), '.');
}

/* ---- cuts ---- */

static bool add_part(shape_cut *cut, pretok_part_kind kind, const char *regex) {
    if (cut->n_parts == PRETOK_MAX_PARTS) return false;
    cut->part[cut->n_parts++] = (pretok_part){kind, regex};
    return true;
}

static bool add_split(shape_cut *cut, const json_t *j) {
    bool invert = json_is_true(json_object_get(j, "invert"));
    const char *regex = json_string_value(json_object_get(json_object_get(j, "pattern"), "Regex"));
    bool isolates = shape_is_string(j, "behavior", "Isolated") && !invert;
    bool removes_rest = shape_is_string(j, "behavior", "Removed") && invert;
    return regex && (isolates || removes_rest) && add_part(cut, PRETOK_PART_REGEX, regex);
}

static bool add_member(shape_cut *cut, const json_t *j, bool *byte_level) {
    if (*byte_level) return false; /* nothing may follow */
    if (shape_is_type(j, "Split")) return add_split(cut, j);
    if (shape_is_type(j, "Digits")) {
        bool each = json_is_true(json_object_get(j, "individual_digits"));
        return add_part(cut, each ? PRETOK_PART_DIGITS : PRETOK_PART_DIGIT_RUNS, NULL);
    }
    if (shape_is_type(j, "Punctuation") && shape_is_string(j, "behavior", "Contiguous")) {
        return add_part(cut, PRETOK_PART_PUNCT_RUNS, NULL);
    }
    if (!shape_is_type(j, "ByteLevel")) return false;
    const json_t *regex = json_object_get(j, "use_regex");
    cut->add_prefix_space = !json_is_false(json_object_get(j, "add_prefix_space"));
    *byte_level = true;
    return json_is_false(regex) || add_part(cut, PRETOK_PART_REGEX, PRETOK_GPT2_REGEX);
}

/* Two spellings of one pattern have the same matcher. */
static bool same_regex(const char *a, const char *b) {
    pretok_step x = {0}, y = {0};
    if (strcmp(a, b) == 0) return true;
    bool same = pretok_step_regex(&x, a, NULL) == ST_OK &&
                pretok_step_regex(&y, b, NULL) == ST_OK && !x.regex && !y.regex &&
                x.kind == y.kind && x.end == y.end && x.find == y.find;
    pretok_step_free(&x);
    pretok_step_free(&y);
    return same;
}

static bool same_parts(const shape_cut *cut, const pretok_named *named) {
    if (cut->n_parts != named->n_parts) return false;
    for (int i = 0; i < cut->n_parts; i++) {
        const pretok_part *a = &cut->part[i], *b = &named->part[i];
        if (a->kind != b->kind) return false;
        if (a->kind == PRETOK_PART_REGEX && !same_regex(a->regex, b->regex)) return false;
    }
    return true;
}

bool shape_read_cut(const json_t *pre, shape_cut *cut) {
    const json_t *list = json_object_get(pre, "pretokenizers"), *member;
    bool byte_level = false;
    size_t i;
    *cut = (shape_cut){0};
    if (!shape_is_type(pre, "Sequence")) {
        if (!add_member(cut, pre, &byte_level)) return false;
    }
    json_array_foreach((json_t *)list, i, member) {
        if (!add_member(cut, member, &byte_level)) return false;
    }
    for (int k = 0; k < PRETOK_NAMED_N && !cut->named; k++) {
        if (same_parts(cut, &PRETOK_NAMED[k])) cut->named = &PRETOK_NAMED[k];
    }
    return byte_level;
}

char *shape_first_name(arena *mem, const pretok_named *named) {
    return arena_strndup(mem, named->names, strcspn(named->names, " "));
}

static json_t *part_tree(const pretok_part *p) {
    switch (p->kind) {
        case PRETOK_PART_REGEX:
            return json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                             p->regex, "behavior", "Isolated", "invert", 0);
        case PRETOK_PART_DIGITS:
        case PRETOK_PART_DIGIT_RUNS:
            return json_pack("{s:s, s:b}", "type", "Digits", "individual_digits",
                             p->kind == PRETOK_PART_DIGITS);
        case PRETOK_PART_PUNCT_RUNS:
            return json_pack("{s:s, s:s}", "type", "Punctuation", "behavior", "Contiguous");
    }
    return NULL;
}

json_t *shape_cut_tree(const pretok_named *named) {
    const pretok_part *last = &named->part[named->n_parts - 1];
    bool gpt2 = last->kind == PRETOK_PART_REGEX && strcmp(last->regex, PRETOK_GPT2_REGEX) == 0;
    json_t *list = json_array();
    for (int i = 0; i < named->n_parts - gpt2; i++) {
        json_array_append_new(list, part_tree(&named->part[i]));
    }
    json_array_append_new(list, tree_byte_level(false, gpt2));
    return tree_sequence("pretokenizers", list);
}

/* ---- byte-level BPE ---- */

status shape_check_byte_bpe(const tok *t, const json_t *root, const char *what, err *e) {
    const bpe_model *m = t->class == &MODEL_BPE ? t->model : NULL;
    const char *why = !m || !t->byte_level     ? "the model is not byte-level BPE"
                      : t->n_norm > 0          ? "it has a normalizer"
                      : m->prefix || m->suffix ? "its subwords have affixes"
                      : m->dropout > 0         ? "it has dropout"
                      : !shape_is_type(json_object_get(root, "decoder"), "ByteLevel")
                          ? "the decoder is not ByteLevel"
                          : NULL;
    if (!why) return ST_OK;
    err_set(e, ST_USAGE, "%s cannot express the tokenizer: %s", what, why);
    return err_hint(e, "use --to json");
}

static int by_rank(const void *a, const void *b) {
    const bpe_merge *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

shape_merge *shape_merges(const tok *t, int32_t *n) {
    const bpe_model *m = t->model;
    bpe_merge *all = xmalloc(sizeof(*all) * ((size_t)m->mask + 1));
    *n = 0;
    for (uint32_t i = 0; i <= m->mask; i++) {
        if (m->slot[i].pair != 0) all[(*n)++] = m->slot[i];
    }
    qsort(all, (size_t)*n, sizeof(*all), by_rank);
    shape_merge *list = xmalloc(sizeof(*list) * ((size_t)*n + 1));
    for (int32_t i = 0; i < *n; i++) {
        uint64_t pair = all[i].pair - 1;
        list[i] = (shape_merge){(int32_t)(pair >> 32), (int32_t)(uint32_t)pair, all[i].id};
    }
    free(all);
    return list;
}
