/* The key table as data, for reading and writing. */
#ifndef MODEL_CONFIG_KEYS_H
#define MODEL_CONFIG_KEYS_H

#include "model/family.h"

typedef enum key_type {
    KEY_TYPE_INT,
    KEY_TYPE_NUM,
    KEY_TYPE_LAYERS,
    KEY_TYPE_BOOL,
    KEY_TYPE_WORD
} key_type;

typedef struct key_row {
    const char *name, *aliases, *help;
    key_type type;
    size_t offset;    /* of the member in model_config */
    size_t of_offset; /* KEY_TYPE_LAYERS: of the list */
    double lo, hi;
    const char *words; /* KEY_TYPE_WORD */
} key_row;

extern const key_row model_keys[];
extern const int model_n_keys;

/* Whether `word` is among the space-separated `words` (NULL: none). */
bool key_in_words(const char *words, const char *word);
/* Index of a word; -1: not there. */
int key_word_index(const char *words, const char *word);
/* Word number i; its length. */
const char *key_word_at(const char *words, int i, int *len);
/* The next of the words, and *words passes it; false: there is none. */
bool key_next_word(const char **words, char out[64]);
/* A key's own name, from an alias. */
const char *key_canonical(const char *key);
const key_row *key_find(const char *name); /* NULL: no option */

/* Activations by the words of hidden_act: the first such word of `among` (NULL: of all). NULL, or
 * false: no such. */
const char *key_act_word(act_kind act, const char *among);
bool key_act_find(const char *word, act_kind *act);

/* Every option as an omitted key leaves it, before the family's defaults. */
void model_config_defaults(model_config *mc, const model_family *f);

#endif
