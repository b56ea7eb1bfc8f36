/* Typed access to a tokenizer.json whose every byte may be hostile. A path such as
 * "pre_tokenizer.pretokenizers[1]" names the place in errors. */
#ifndef TOK_FORMAT_JSON_H
#define TOK_FORMAT_JSON_H

#include <jansson.h>

#include "tok/internal.h"

typedef struct tok_reader {
    tok *t;
    const char *origin;
    err *e;
    bool saw_byte_level, byte_level_last; /* in the pre-tokenizer */
} tok_reader;

/* "ORIGIN: PATH: what", ST_FORMAT. */
status tok_bad(tok_reader *r, const char *path, const char *fmt, ...) ATH_PRINTF(3, 4);
/* Every key of obj is one of the words of `known`, with spaces between; obj is an object. */
status tok_json_keys(tok_reader *r, const json_t *obj, const char *path,
                     const char *known) ATH_MUST_USE;
/* The string "type" of a component. */
status tok_json_type(tok_reader *r, const json_t *obj, const char *path,
                     const char **type) ATH_MUST_USE;
/* obj[key] as a boolean; absent or null gives `otherwise`. */
status tok_json_bool(tok_reader *r, const json_t *obj, const char *path, const char *key,
                     bool otherwise, bool *value) ATH_MUST_USE;

static inline bool tok_json_absent(const json_t *j) {
    return !j || json_is_null(j);
}
/* Calls `part` on each member of a Sequence, whose array stands under `key`. */
typedef status tok_part_fn(tok_reader *r, const json_t *j, const char *path, int depth);
status tok_json_each(tok_reader *r, const json_t *j, const char *path, const char *key, int depth,
                     tok_part_fn *part) ATH_MUST_USE;
/* For model_class.hash. */
void tok_hash_number(XXH3_state_t *x, int64_t v);

/* The *_json.c of each stage: fill the tok from its component (NULL or null: there is none). */
status tok_read_normalizer(tok_reader *r, const json_t *j, const char *path,
                           int depth) ATH_MUST_USE;
status tok_read_pre_tokenizer(tok_reader *r, const json_t *j, const char *path,
                              int depth) ATH_MUST_USE;
status tok_read_post_processor(tok_reader *r, const json_t *j, const char *path,
                               int depth) ATH_MUST_USE;
status tok_read_decoder(tok_reader *r, const json_t *j) ATH_MUST_USE;
/* json_vocab.c: the tokens by id, of the vocabulary and of added_tokens. */
status tok_read_vocab(tok_reader *r, const json_t *model, const json_t *added) ATH_MUST_USE;
/* Sets tok.byte_id from the tokens named <0x00> to <0xFF>, for models with byte fallback. */
void tok_index_fallbacks(tok *t);

#endif
