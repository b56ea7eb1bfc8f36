/* SentencePiece .model files: recognised, loaded and written; spm_read.c reads the message.
 *
 * The fields that are written are those that decide ids and text, and vocab_size and the ids and texts
 * of special pieces, which other programs look at. */
#include <string.h>

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

/* ---- writing ---- */

static void put_piece(strbuf *out, strbuf *scratch, const spm_piece *p) {
    strbuf_clear(scratch);
    pb_put_bytes(scratch, 1, p->text, p->len);
    pb_put_float(scratch, 2, p->score);
    if (p->type != SPM_NORMAL) pb_put_varint(scratch, 3, p->type);
    pb_put_bytes(out, 1, scratch->data, scratch->len);
}

/* An id and its text; -1 is a negative int32, ten bytes on the wire. */
static void put_special(strbuf *b, const spm_model *m, int32_t id, uint32_t id_field,
                        uint32_t text_field) {
    pb_put_varint(b, id_field, (uint64_t)(int64_t)id);
    if (id >= 0) pb_put_bytes(b, text_field, m->piece[id].text, m->piece[id].len);
}

static void put_trainer(strbuf *out, strbuf *scratch, const spm_model *m) {
    strbuf_clear(scratch);
    pb_put_varint(scratch, 3, m->kind);
    pb_put_varint(scratch, 4, (uint64_t)m->n);
    if (m->byte_fallback) pb_put_varint(scratch, 35, 1);
    put_special(scratch, m, m->unk, 40, 45);
    if (m->surface) pb_put_bytes(scratch, 44, m->surface, strlen(m->surface));
    put_special(scratch, m, m->bos, 41, 46);
    put_special(scratch, m, m->eos, 42, 47);
    put_special(scratch, m, m->pad, 43, 48);
    pb_put_bytes(out, 2, scratch->data, scratch->len);
}

static void put_normalizer(strbuf *out, strbuf *scratch, const spm_model *m) {
    strbuf_clear(scratch);
    pb_put_bytes(scratch, 1, m->normalizer, strlen(m->normalizer));
    pb_put_bytes(scratch, 2, m->charsmap, m->n_charsmap);
    pb_put_varint(scratch, 3, m->add_dummy_prefix);
    pb_put_varint(scratch, 4, m->remove_extra_whitespaces);
    pb_put_varint(scratch, 5, 1); /* escape_whitespaces */
    pb_put_bytes(out, 3, scratch->data, scratch->len);
}

void spm_write(const spm_model *m, strbuf *out) {
    strbuf scratch = {0};
    for (int32_t i = 0; i < m->n; i++) put_piece(out, &scratch, &m->piece[i]);
    put_trainer(out, &scratch, m);
    put_normalizer(out, &scratch, m);
    strbuf_free(&scratch);
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
