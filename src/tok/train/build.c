/* The tokenizer.json of a freshly trained vocabulary. It is written, then read like any other, so a
 * trained tokenizer and a loaded one cannot differ.
 *
 *   bpe   byte alphabet and merges, ByteLevel around it
 *   byte  byte alphabet without merges, ByteLevel without a pattern
 *   char  characters without merges, nothing around them: BPE cuts a text into its characters */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tok/train/train.h"

static json_t *byte_level(bool use_regex) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", use_regex);
}

static json_t *pre_tokenizer(const tok_train_options *o) {
    if (o->kind == TOK_CHAR) return json_null();
    if (o->kind == TOK_BYTE) return byte_level(false);
    if (strcmp(o->pattern, "gpt2") == 0) return byte_level(true);
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", PRETOK_LLAMA3_REGEX, "behavior",
                     "Isolated", "invert", 0, byte_level(false));
}

static json_t *added_tokens(const tok_train_options *o) {
    json_t *list = json_array();
    for (int i = 0; i < o->n_special; i++) {
        json_array_append_new(list, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", i,
                                              "content", o->special[i], "single_word", 0, "lstrip",
                                              0, "rstrip", 0, "normalized", 0, "special", 1));
    }
    return list;
}

static json_t *vocabulary(const tok_draft *d) {
    json_t *vocab = json_object();
    for (int32_t i = 0; i < d->n_token; i++) {
        json_object_set_new(vocab, d->token[i], json_integer(i));
    }
    return vocab;
}

static json_t *merge_list(const tok_draft *d) {
    json_t *list = json_array();
    for (int32_t i = 0; i < d->n_merges; i++) {
        json_array_append_new(
            list, json_pack("[s, s]", d->token[d->merge[i][0]], d->token[d->merge[i][1]]));
    }
    return list;
}

static json_t *model(const tok_train_options *o, const tok_draft *d) {
    json_t *unk = json_null();
    for (int i = 0; i < o->n_special; i++) {
        if (strcmp(o->special[i], "<unk>") == 0) unk = json_string("<unk>");
    }
    return json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                     "unk_token", unk, "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab", vocabulary(d),
                     "merges", merge_list(d));
}

status tok_build(const tok_trainer *tr, const tok_draft *d, tok **out, err *e) {
    const tok_train_options *o = &tr->opt;
    json_t *decoder = o->kind == TOK_CHAR ? json_pack("{s:s}", "type", "Fuse") : byte_level(true);
    json_t *root =
        json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation",
                  "padding", "added_tokens", added_tokens(o), "normalizer", "pre_tokenizer",
                  pre_tokenizer(o), "post_processor", "decoder", decoder, "model", model(o, d));
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    CHECK(text, "a trained vocabulary does not make JSON");
    json_decref(root);
    status st = tok_parse(out, text, strlen(text), "trained tokenizer", e);
    free(text);
    return st;
}
