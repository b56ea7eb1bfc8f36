/* Parts of a tokenizer.json; see tree.h. */
#include "tok/format/tree.h"

#include "base/json.h"

static json_t *or_null(json_t *j) {
    return j ? j : json_null();
}

json_t *tree_new(tree_parts p) {
    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", p.added ? p.added : json_array(),
                     "normalizer", or_null(p.normalizer), "pre_tokenizer", or_null(p.pre_tokenizer),
                     "post_processor", or_null(p.post_processor), "decoder", or_null(p.decoder),
                     "model", or_null(p.model));
}

status tree_to_tok(tok **out, json_t *tree, const char *origin, err *e) {
    /* Scores in their shortest digits: from more of them Hugging Face's reader makes other numbers.
     */
    strbuf text = {0};
    json_format(&text, tree, 2);
    json_decref(tree);
    status st = tok_parse(out, text.data, text.len, origin, e);
    strbuf_free(&text);
    return st;
}

json_t *tree_bpe(const tree_bpe_options *o, json_t *vocab, json_t *merges) {
    return json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                     "unk_token", o->unk ? json_string(o->unk) : json_null(),
                     "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", o->fuse_unk,
                     "byte_fallback", o->byte_fallback, "ignore_merges", o->ignore_merges, "vocab",
                     vocab, "merges", merges);
}

json_t *tree_added_token(int32_t id, const char *content, size_t len, bool special) {
    return json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content",
                     json_stringn(content, len), "single_word", 0, "lstrip", 0, "rstrip", 0,
                     "normalized", 0, "special", special);
}

json_t *tree_type(const char *type) {
    return json_pack("{s:s}", "type", type);
}

json_t *tree_sequence(const char *key, json_t *list) {
    if (json_array_size(list) > 1) return json_pack("{s:s, s:o}", "type", "Sequence", key, list);
    json_t *only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

json_t *tree_byte_level(bool add_prefix_space, bool use_regex) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
                     add_prefix_space, "trim_offsets", 1, "use_regex", use_regex);
}

json_t *tree_replace(const char *kind, const char *pattern, const char *content) {
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", kind, pattern, "content",
                     content);
}

/* ---- templates ---- */

static json_t *item(const char *kind, const char *id, int type_id) {
    return json_pack("{s:{s:s, s:i}}", kind, "id", id, "type_id", type_id);
}

static void add_text(json_t *list, const char *before, const char *after, const char *name,
                     int type_id) {
    if (before) json_array_append_new(list, item("SpecialToken", before, type_id));
    json_array_append_new(list, item("Sequence", name, type_id));
    if (after) json_array_append_new(list, item("SpecialToken", after, type_id));
}

static void add_special(json_t *specials, const char *token, int32_t id) {
    if (!token) return;
    json_object_set_new(
        specials, token,
        json_pack("{s:s, s:[i], s:[s]}", "id", token, "ids", (int)id, "tokens", token));
}

json_t *tree_template(const char *before, int32_t before_id, const char *after, int32_t after_id) {
    if (!before && !after) return NULL;
    json_t *single = json_array(), *pair = json_array(), *specials = json_object();
    add_text(single, before, after, "A", 0);
    add_text(pair, before, after, "A", 0);
    add_text(pair, before, after, "B", 1);
    add_special(specials, before, before_id);
    add_special(specials, after, after_id);
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair",
                     pair, "special_tokens", specials);
}
