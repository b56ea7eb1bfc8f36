/* SentencePiece .model files: loading and writing. */
#include "base/file.h"
#include "tok/format/format.h"
#include "tok/format/protobuf.h"

/* A message whose every field makes sense, with at least one piece. */
bool sentencepiece_looks(const char *bytes, size_t len) {
    pb_reader in = pb_read(bytes, len);
    bool pieces = false;
    for (pb_field f; pb_next(&in, &f);) {
        if (f.number == 1 && f.type != PB_BYTES) return false;
        pieces |= f.number == 1 && f.len > 0;
    }
    return pieces && !in.bad;
}

status sentencepiece_load(tok_input *in, tok **out) {
    spm_model m;
    TRY(spm_read(&m, in->mem, in->bytes, in->len, in->path, in->e));
    TRY(spm_to_tok(out, &m, in->path, in->e));
    tok *t = *out;
    t->source->bytes = arena_memdup(t->mem, in->bytes, in->len);
    t->source->n_bytes = in->len;
    return ST_OK;
}

status sentencepiece_write(const tok *t, const char *path, err *e) {
    if (tok_format_of(t) == TOK_FORMAT_SENTENCEPIECE) {
        return file_write_atomic(path, t->source->bytes, t->source->n_bytes, e);
    }
    arena *mem = arena_new("sentencepiece model");
    spm_model m;
    strbuf bytes = {0};
    status st = spm_from_tok(&m, mem, t, e);
    if (st == ST_OK) {
        spm_write(&m, &bytes);
        st = file_write_atomic(path, bytes.data, bytes.len, e);
    }
    strbuf_free(&bytes);
    arena_free(mem);
    return st;
}
