/* Reads a SentencePiece .model, a ModelProto. Field numbers are those of sentencepiece_model.proto;
 * what training alone needs is passed over. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/format/protobuf.h"
#include "tok/format/spm.h"

typedef struct spm_reader {
    spm_model *m;
    arena *mem;
    const char *origin;
    err *e;
    const char *bos, *eos, *pad; /* texts of these pieces */
    int32_t cap;
} spm_reader;

static status bad(const char *origin, err *e, const char *what) {
    return err_set(e, ST_FORMAT, "%s: %s", origin, what);
}

/* ---- pieces ---- */

static status check_text(const spm_reader *r, const pb_field *f) {
    int id = (int)r->m->n;
    if (f->len == 0 || f->len > SPM_MAX_PIECE_BYTES) {
        return err_set(r->e, ST_FORMAT, "%s: piece %d is %s", r->origin, id,
                       f->len ? "longer than 1024 bytes" : "empty");
    }
    if (utf8_valid_prefix(f->bytes, f->len) != f->len || memchr(f->bytes, 0, f->len)) {
        return err_set(r->e, ST_FORMAT, "%s: piece %d is not UTF-8, or holds NUL", r->origin, id);
    }
    return ST_OK;
}

static status read_piece(spm_reader *r, const pb_field *message) {
    spm_model *m = r->m;
    spm_piece p = {.type = SPM_NORMAL};
    pb_reader in = pb_read(message->bytes, message->len);
    pb_field f, text = {0};
    while (pb_next(&in, &f)) {
        if (f.number == 1 && f.type == PB_BYTES) text = f;
        if (f.number == 2 && f.type == PB_FIXED32) p.score = pb_float(&f);
        if (f.number == 3 && f.type == PB_VARINT) p.type = (spm_type)(f.value & 0xFF);
    }
    if (in.bad) return bad(r->origin, r->e, "a piece is cut off");
    TRY(check_text(r, &text));
    p.text = arena_strndup(r->mem, text.bytes, text.len);
    p.len = (uint32_t)text.len;
    if (m->n == r->cap) {
        m->piece = arena_grow(r->mem, m->piece, m->n, &r->cap, sizeof(*m->piece));
    }
    m->piece[m->n++] = p;
    return ST_OK;
}

/* ---- specs ---- */

static const char *text_of(spm_reader *r, const pb_field *f) {
    return arena_strndup(r->mem, f->bytes, f->len);
}

static status read_surface(spm_reader *r, const pb_field *f) {
    if (f->len > SPM_MAX_PIECE_BYTES || utf8_valid_prefix(f->bytes, f->len) < f->len) {
        return bad(r->origin, r->e, "unk_surface is too long or not UTF-8");
    }
    r->m->surface = text_of(r, f);
    return ST_OK;
}

static status read_trainer(spm_reader *r, const pb_field *message) {
    pb_reader in = pb_read(message->bytes, message->len);
    for (pb_field f; pb_next(&in, &f);) {
        bool number = f.type == PB_VARINT, text = f.type == PB_BYTES;
        if (f.number == 3 && number) r->m->kind = (spm_kind)(f.value & 0xFF);
        if (f.number == 24 && number) r->m->whitespace_suffix = f.value != 0;
        if (f.number == 35 && number) r->m->byte_fallback = f.value != 0;
        if (f.number == 44 && text) TRY(read_surface(r, &f));
        if (f.number == 46 && text) r->bos = text_of(r, &f);
        if (f.number == 47 && text) r->eos = text_of(r, &f);
        if (f.number == 48 && text) r->pad = text_of(r, &f);
    }
    return in.bad ? bad(r->origin, r->e, "trainer_spec is cut off") : ST_OK;
}

static status read_normalizer(spm_reader *r, const pb_field *message) {
    spm_model *m = r->m;
    pb_reader in = pb_read(message->bytes, message->len);
    for (pb_field f; pb_next(&in, &f);) {
        bool number = f.type == PB_VARINT, text = f.type == PB_BYTES;
        if (f.number == 1 && text) m->normalizer = text_of(r, &f);
        if (f.number == 2 && text) {
            m->charsmap = arena_memdup(r->mem, f.bytes, f.len);
            m->n_charsmap = f.len;
        }
        if (f.number == 3 && number) m->add_dummy_prefix = f.value != 0;
        if (f.number == 4 && number) m->remove_extra_whitespaces = f.value != 0;
        if (f.number == 5 && number) m->keeps_spaces = f.value == 0;
    }
    return in.bad ? bad(r->origin, r->e, "normalizer_spec is cut off") : ST_OK;
}

static status read_denormalizer(spm_reader *r, const pb_field *message) {
    pb_reader in = pb_read(message->bytes, message->len);
    for (pb_field f; pb_next(&in, &f);) {
        if (f.number == 2 && f.type == PB_BYTES && f.len > 0) r->m->has_denormalizer = true;
    }
    return in.bad ? bad(r->origin, r->e, "denormalizer_spec is cut off") : ST_OK;
}

static int32_t control_piece(const spm_model *m, const char *text) {
    for (int32_t i = 0; i < m->n; i++) {
        if (m->piece[i].type == SPM_CONTROL && strcmp(m->piece[i].text, text) == 0) return i;
    }
    return -1;
}

static status read_fields(spm_reader *r, const char *bytes, size_t len) {
    pb_reader in = pb_read(bytes, len);
    for (pb_field f; pb_next(&in, &f);) {
        if (f.type != PB_BYTES) continue;
        if (f.number == 1) TRY(read_piece(r, &f));
        if (f.number == 2) TRY(read_trainer(r, &f));
        if (f.number == 3) TRY(read_normalizer(r, &f));
        if (f.number == 5) TRY(read_denormalizer(r, &f));
    }
    return in.bad ? bad(r->origin, r->e, "is not a SentencePiece model, or cut off") : ST_OK;
}

status spm_read(spm_model *m, arena *mem, const char *bytes, size_t len, const char *origin,
                err *e) {
    *m = (spm_model){.kind = SPM_UNIGRAM,
                     .normalizer = "",
                     .add_dummy_prefix = true,
                     .remove_extra_whitespaces = true};
    spm_reader r = {m, mem, origin, e, "<s>", "</s>", "<pad>", 0};
    TRY(read_fields(&r, bytes, len));
    if (m->n == 0) return bad(origin, e, "is not a SentencePiece model: it has no pieces");
    m->bos = control_piece(m, r.bos);
    m->eos = control_piece(m, r.eos);
    m->pad = control_piece(m, r.pad);
    return spm_check(m, origin, e);
}

/* ---- what must hold ---- */

int spm_byte(const char *text, size_t len) {
    static const char HEX[] = "0123456789ABCDEF";
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    const char *high = memchr(HEX, text[3], 16), *low = memchr(HEX, text[4], 16);
    return high && low ? (int)(16 * (high - HEX) + (low - HEX)) : -1;
}

static status check_piece(spm_model *m, int32_t id, str_map *seen, const char *origin, err *e) {
    const spm_piece *p = &m->piece[id];
    int i = (int)id;
    if (p->type < SPM_NORMAL || p->type > SPM_BYTE) {
        return err_set(e, ST_FORMAT, "%s: piece %d has type %d", origin, i, (int)p->type);
    }
    if (!isfinite(p->score)) {
        return err_set(e, ST_FORMAT, "%s: the score of piece %d is not a number", origin, i);
    }
    if (str_map_get(seen, p->text, p->len) >= 0) {
        return err_set(e, ST_FORMAT, "%s: \"%.60s\" is there twice", origin, p->text);
    }
    str_map_add(seen, p->text, p->len, id);
    if (p->type == SPM_UNKNOWN) {
        if (m->unk >= 0) return bad(origin, e, "has two unknown pieces");
        m->unk = id;
    }
    if (p->type == SPM_BYTE && (!m->byte_fallback || spm_byte(p->text, p->len) < 0)) {
        return err_set(e, ST_FORMAT, "%s: \"%.60s\" is marked as a byte, %s", origin, p->text,
                       m->byte_fallback ? "but is none" : "but there is no byte_fallback");
    }
    return ST_OK;
}

/* Texts differ, so 256 byte pieces are all the bytes. */
static status check_bytes(const spm_model *m, const char *origin, err *e) {
    int n = 0;
    for (int32_t i = 0; i < m->n; i++) n += m->piece[i].type == SPM_BYTE;
    if (!m->byte_fallback || n == 256) return ST_OK;
    return err_set(e, ST_FORMAT, "%s: has byte_fallback, but %d of 256 byte pieces", origin, n);
}

static status check_pieces(spm_model *m, const char *origin, err *e) {
    str_map seen = {0};
    status st = ST_OK;
    m->unk = -1;
    str_map_reserve(&seen, (uint32_t)m->n);
    for (int32_t i = 0; st == ST_OK && i < m->n; i++) st = check_piece(m, i, &seen, origin, e);
    str_map_free(&seen);
    return st;
}

status spm_check(spm_model *m, const char *origin, err *e) {
    TRY(check_pieces(m, origin, e));
    TRY(check_bytes(m, origin, e));
    if (m->unk < 0) return bad(origin, e, "has no unknown piece");
    if (m->kind != SPM_UNIGRAM && m->kind != SPM_BPE && m->kind != SPM_CHAR) {
        return bad(origin, e, "models of kind \"word\" are not supported");
    }
    if (m->whitespace_suffix) {
        return bad(origin, e, "treat_whitespace_as_suffix is set, which is not supported");
    }
    if (m->keeps_spaces) {
        return bad(origin, e, "escape_whitespaces is off, which is not supported");
    }
    if (m->has_denormalizer) return bad(origin, e, "has a denormalizer, which is not supported");
    return ST_OK;
}
