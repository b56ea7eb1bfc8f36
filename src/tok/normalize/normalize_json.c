/* Reads the "normalizer" of a tokenizer.json. */
#include <string.h>

#include "tok/format/json.h"

status tok_read_normalizer(tok_reader *r, const json_t *j, const char *path, int depth) {
    static const char *const KNOWN[] = {"type", NULL};
    const char *type;
    if (tok_json_absent(j)) return ST_OK;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return tok_json_each(r, j, path, "normalizers", depth, tok_read_normalizer);
    }
    if (strcmp(type, "NFC") != 0) {
        return tok_bad(r, path, "type \"%.80s\" is not supported (NFC is)", type);
    }
    tok *t = r->t;
    if (t->n_norm == TOK_MAX_STEPS) return tok_bad(r, path, "there are too many steps");
    t->norm[t->n_norm++] = (norm_step){.kind = NORM_NFC};
    return tok_json_keys(r, j, path, KNOWN);
}
