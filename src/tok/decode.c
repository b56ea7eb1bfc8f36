/* Ids to text. */
#include "tok/internal.h"

status tok_decode(const tok *t, const int32_t *ids, int64_t n, bool skip_special, strbuf *out,
                  err *e) {
    for (int64_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tok_bytes(t, ids[i], &len);
        if (!bytes) {
            err_set(e, ST_USAGE, "id %d (number %lld) is not in the vocabulary", (int)ids[i],
                    (long long)i);
            return err_hint(e, "ids of this tokenizer are below %d", (int)t->n_token);
        }
        if (!(skip_special && t->token[ids[i]].special)) strbuf_append(out, bytes, len);
    }
    return ST_OK;
}
