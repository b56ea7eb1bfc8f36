/* Reads the "decoder" of a tokenizer.json. */
#include <string.h>

#include "tok/format/json.h"

static status read_decoder_part(tok_reader *r, const json_t *j, const char *path, int depth) {
    const char *type;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return tok_json_each(r, j, path, "decoders", depth, read_decoder_part);
    }
    if (strcmp(type, "Fuse") == 0) return ST_OK;
    if (strcmp(type, "ByteLevel") == 0 && r->t->byte_level) return ST_OK;
    return tok_bad(r, path, "type \"%.80s\" does not go with this pre-tokenizer", type);
}

/* Decoding is concatenation of what the tokens stand for; a decoder that would do anything else is
 * refused, and so is none at all, which means spaces between tokens. */
status tok_read_decoder(tok_reader *r, const json_t *j) {
    if (tok_json_absent(j))
        return tok_bad(r, "decoder", "is missing (ByteLevel or Fuse is needed)");
    const char *type;
    TRY(tok_json_type(r, j, "decoder", &type));
    if (r->t->byte_level && strcmp(type, "Fuse") == 0) {
        return tok_bad(r, "decoder", "Fuse does not undo the ByteLevel pre-tokenizer");
    }
    return read_decoder_part(r, j, "decoder", 0);
}
