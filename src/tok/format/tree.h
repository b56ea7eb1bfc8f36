/* Parts of a tokenizer.json in the making, in the order and spelling of Hugging Face tokenizers. */
#ifndef TOK_FORMAT_TREE_H
#define TOK_FORMAT_TREE_H

#include <jansson.h>

#include "tok/tok.h"

/* Every json_t argument is taken over; NULL stands for null. */
typedef struct tree_parts {
    json_t *added, *normalizer, *pre_tokenizer, *post_processor, *decoder, *model;
} tree_parts;
json_t *tree_new(tree_parts p);
/* The tok of a whole tree, which is taken over; `origin` names the file it was made from. */
status tree_to_tok(tok **out, json_t *tree, const char *origin, err *e) ATH_MUST_USE;

typedef struct tree_bpe_options {
    const char *unk; /* NULL: none */
    bool fuse_unk, byte_fallback, ignore_merges;
} tree_bpe_options;
json_t *tree_bpe(const tree_bpe_options *o, json_t *vocab, json_t *merges);
json_t *tree_added_token(int32_t id, const char *content, size_t len, bool special);
/* A member without options, e.g. {"type": "Fuse"}. */
json_t *tree_type(const char *type);
/* {"type": "Sequence", KEY: list}; a list of one is that one, an empty one null. */
json_t *tree_sequence(const char *key, json_t *list);
json_t *tree_byte_level(bool add_prefix_space, bool use_regex);
json_t *tree_replace(const char *kind, const char *pattern, const char *content);
/* TemplateProcessing that puts tokens before and after a text; NULL: none. */
json_t *tree_template(const char *before, int32_t before_id, const char *after, int32_t after_id);

#endif
