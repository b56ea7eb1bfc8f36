/* Lifecycle, encode and decode.
 *
 * Reading order: tok_internal.h (the chain of stages), encode here, then the stages in its order;
 * tok_json.c for where a tokenizer comes from. */
#include "tok/tok.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tok/internal.h"
#include "tok/text/unicode.h"

void tok_ids_push(tok_ids *v, int32_t id) {
    VEC_PUSH(v->id, v->n, v->cap, id);
}

void tok_ids_free(tok_ids *v) {
    free(v->id);
    *v = (tok_ids){0};
}

status tok_parse(tok **out, const char *json, size_t len, const char *origin, err *e) {
    *out = NULL;
    tok *t = xcalloc(1, sizeof(*t));
    t->mem = arena_new("tokenizer");
    t->json = xmalloc(len + 1);
    memcpy(t->json, json, len);
    t->json[len] = '\0';
    t->json_len = len;
    status st = tok_read_json(t, origin, e);
    if (st != ST_OK) {
        tok_free(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void tok_free(tok *t) {
    if (!t) return;
    for (int i = 0; i < t->n_steps; i++) pretok_step_free(&t->step[i]);
    tok_trie_free(&t->raw);
    tok_trie_free(&t->normal);
    str_map_free(&t->by_text);
    str_map_free(&t->by_bytes);
    pair_map_free(&t->merge);
    arena_free(t->mem);
    free(t->json);
    free(t);
}

/* ---- encode ---- */

size_t tok_offset(const tok_enc *enc, const char *at) {
    size_t here = (size_t)(at - enc->begin);
    return enc->begin_at + (here > enc->begin_skip ? here - enc->begin_skip : 0);
}

static status encode_pieces(tok_enc *enc, const char *text, size_t len) {
    return pretok_run(enc, enc->t->step, enc->t->n_steps, text, len, bpe_encode_word);
}

static status encode_normalized(tok_enc *enc, const char *text, size_t len) {
    return tok_added_split(enc, &enc->t->normal, text, len, encode_pieces);
}

static status encode_unnormalized(tok_enc *enc, const char *text, size_t len) {
    char *normal = NULL;
    size_t n = 0;
    if (enc->t->nfc) TRY(tok_normalize_nfc(text, len, &normal, &n, enc->e));
    if (!normal) return encode_normalized(enc, text, len);
    /* Offsets in errors count from the start of this piece, in its normal form. */
    const char *begin = enc->begin;
    size_t begin_at = enc->begin_at;
    enc->begin_at = tok_offset(enc, text);
    enc->begin = normal;
    status st = encode_normalized(enc, normal, n);
    enc->begin = begin;
    enc->begin_at = begin_at;
    free(normal);
    return st;
}

/* A byte that is not UTF-8 is its own pre-token: it ends the text before it and becomes the token
 * of that byte, so any bytes survive a round trip. Kinds without byte tokens refuse it. */
static status encode_bad_byte(tok_enc *enc, uint8_t byte, size_t at) {
    const tok *t = enc->t;
    int32_t id = t->byte_level ? t->byte_id[byte] : t->unk;
    if (id < 0) {
        err_set(enc->e, ST_FORMAT, "byte %zu (0x%02x) of the text is not UTF-8", at, byte);
        return err_hint(enc->e, "convert the text to UTF-8, or use a byte-level tokenizer");
    }
    tok_ids_push(enc->out, id);
    return ST_OK;
}

static status encode_text(tok_enc *enc, const char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        size_t valid = utf8_valid_prefix(text + at, len - at);
        enc->begin = text + at;
        enc->begin_at = at;
        if (valid > 0) {
            TRY(tok_added_split(enc, &enc->t->raw, text + at, valid, encode_unnormalized));
        }
        at += valid;
        if (at < len) TRY(encode_bad_byte(enc, (uint8_t)text[at], at));
        at += at < len;
    }
    return ST_OK;
}

status tok_encode(const tok *t, const char *text, size_t len, unsigned flags, tok_ids *out,
                  err *e) {
    if (len > TOK_MAX_TEXT) {
        err_set(e, ST_USAGE, "a text of %zu bytes is more than one encode call takes (2 GiB)", len);
        return err_hint(e, "split it into documents");
    }
    bool special = flags & TOK_ADD_SPECIAL;
    int64_t before = out->n;
    tok_enc enc = {.t = t, .out = out, .e = e, .bpe = bpe_state_new(len)};
    for (int i = 0; special && i < t->n_prefix; i++) tok_ids_push(out, t->prefix[i]);
    status st = encode_text(&enc, text, len);
    for (int i = 0; special && i < t->n_suffix; i++) tok_ids_push(out, t->suffix[i]);
    if (st != ST_OK) out->n = before;
    bpe_state_free(enc.bpe);
    strbuf_free(&enc.prefixed);
    pretok_match_data_free(enc.match_data);
    return st;
}

/* ---- decode ---- */

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

int32_t tok_vocab_size(const tok *t) {
    return t->n_token;
}

int32_t tok_bos(const tok *t) {
    return t->bos;
}

int32_t tok_eos(const tok *t) {
    return t->eos;
}

int32_t tok_id(const tok *t, const char *content) {
    return str_map_get(&t->by_text, content, strlen(content));
}

const char *tok_bytes(const tok *t, int32_t id, size_t *len) {
    *len = 0;
    if (id < 0 || id >= t->n_token || !t->token[id].text) return NULL;
    *len = t->token[id].n_bytes;
    return t->token[id].bytes;
}

uint64_t tok_hash(const tok *t) {
    return t->hash;
}
