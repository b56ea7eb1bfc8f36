/* What writers ask of a tokenizer: whether its tokenizer.json has a shape that their format stands
 * for. */
#ifndef TOK_FORMAT_SHAPE_H
#define TOK_FORMAT_SHAPE_H

#include <jansson.h>

#include "tok/internal.h"

/* The tokenizer.json of a tok; json_decref it. */
json_t *shape_root(const tok *t);
bool shape_is_type(const json_t *j, const char *type);
bool shape_is_string(const json_t *obj, const char *key, const char *value);
/* Exactly these ids are put around a text; -1: none. */
bool shape_is_around(const tok *t, int32_t before, int32_t after);
/* A path that names a folder: one that exists, or a name without an ending. */
bool shape_is_folder(const char *path);

/* How a byte-level tokenizer cuts text. */
typedef struct shape_cut {
    bool add_prefix_space;
    int n_parts;
    pretok_part part[PRETOK_MAX_PARTS];
    const pretok_named *named; /* with the same parts; NULL: none is */
} shape_cut;
/* False: not byte-level, or with other members than pretok_part knows. Strings live in `pre`. */
bool shape_read_cut(const json_t *pre, shape_cut *cut);
/* The first of the names of a pre-tokenizer. */
char *shape_first_name(arena *mem, const pretok_named *named);
/* The pre_tokenizer of a named one, with ByteLevel at its end. */
json_t *shape_cut_tree(const pretok_named *named);

/* ST_USAGE unless the tok is byte-level BPE without anything that ranks or merges alone cannot say:
 * normalizer, affixes, dropout, unknown token. `what` names the format in the error. */
status shape_check_byte_bpe(const tok *t, const json_t *root, const char *what,
                            err *e) ATH_MUST_USE;

/* The merges of a BPE model by rank. */
typedef struct shape_merge {
    int32_t left, right, id;
} shape_merge;
shape_merge *shape_merges(const tok *t, int32_t *n); /* on the heap */

#endif
