/* Models: how a pre-token becomes ids. One class per kind of tokenizer.json's "model". */
#ifndef TOK_MODEL_MODEL_H
#define TOK_MODEL_MODEL_H

#include <jansson.h>
#include <xxhash.h>

#include "tok/text/piece.h"

struct tok_enc;
struct tok_reader;

typedef struct model_class {
    const char *type; /* in tokenizer.json */
    bool names_unk; /* there is an unk_token; outside the vocabulary it is no error until needed */
    /* Fills tok.model, once the vocabulary is read and tok.byte_level known. `json`: "model". */
    status (*read)(struct tok_reader *r, const json_t *json);
    void (*free)(void *model);
    /* What decides ids beside the vocabulary. */
    void (*hash)(const tok *t, XXH3_state_t *x);
    /* Scratch of one encode call at a time, kept for later calls; may be NULL functions. */
    void *(*state_new)(const tok *t);
    void (*state_free)(void *state);
    /* Appends the ids of one pre-token (not empty, valid UTF-8) with enc_push. ST_FORMAT: a
     * character that the vocabulary cannot represent and no unknown token. */
    status (*encode)(struct tok_enc *enc, const tok_piece *word);
} model_class;

extern const model_class MODEL_BPE, MODEL_UNIGRAM, MODEL_WORDPIECE, MODEL_WORDLEVEL;

#endif
