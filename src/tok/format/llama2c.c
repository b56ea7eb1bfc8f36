/* tokenizer.bin of llama2.c:
 *   u32 length of the longest token | for each token: f32 score, u32 length, bytes
 * little-endian. Spaces stand for U+2581, and ids 1 and 2 are "\n<s>\n" and "\n</s>\n". It is
 * sentencepiece's BPE with the bytes at ids 3 to 258, a "▁" before each text and nothing else done
 * to it: what llama2.c has built in. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "tok/format/format.h"

enum { FIRST_BYTE = 3, AFTER_BYTES = FIRST_BYTE + 256 };

static uint32_t u32_at(const char *s) {
    const uint8_t *u = (const uint8_t *)s;
    return u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

typedef struct bin_token {
    float score;
    const char *text;
    uint32_t len;
} bin_token;

/* The token at *at, which moves on; false when the file ends inside it. */
static bool next_token(const char *bytes, size_t len, size_t *at, bin_token *k) {
    if (*at > len || len - *at < 8) return false;
    uint32_t bits = u32_at(bytes + *at);
    memcpy(&k->score, &bits, sizeof(bits));
    k->len = u32_at(bytes + *at + 4);
    k->text = bytes + *at + 8;
    if (k->len > len - *at - 8) return false;
    *at += 8 + (size_t)k->len;
    return true;
}

bool llama2c_looks(const char *bytes, size_t len) {
    size_t at = 4;
    uint32_t longest = 0;
    bin_token k;
    if (len < 12) return false;
    while (at < len) {
        if (!next_token(bytes, len, &at, &k)) return false;
        if (k.len > longest) longest = k.len;
    }
    return longest <= u32_at(bytes) && u32_at(bytes) <= SPM_MAX_PIECE_BYTES;
}

/* ---- reading ---- */

static status check_text(const tok_input *in, const bin_token *k, int32_t id) {
    bool utf8 = utf8_valid_prefix(k->text, k->len) == k->len && !memchr(k->text, 0, k->len);
    if (utf8 && k->len > 0 && k->len <= SPM_MAX_PIECE_BYTES && isfinite(k->score)) return ST_OK;
    return format_bad(in, "token %d is empty, too long, not UTF-8 or has no proper score", (int)id);
}

static const char *piece_text(arena *mem, const bin_token *k, int32_t id) {
    if (id == 1) return "<s>";
    if (id == 2) return "</s>";
    strbuf text = {0};
    for (uint32_t i = 0; i < k->len; i++) {
        if (k->text[i] == ' ') {
            strbuf_puts(&text, SPM_SPACE);
        } else {
            strbuf_putc(&text, k->text[i]);
        }
    }
    const char *copy = arena_strndup(mem, strbuf_cstr(&text), text.len);
    strbuf_free(&text);
    return copy;
}

static spm_type piece_type(int32_t id) {
    return id == 0            ? SPM_UNKNOWN
           : id < FIRST_BYTE  ? SPM_CONTROL
           : id < AFTER_BYTES ? SPM_BYTE
                              : SPM_NORMAL;
}

static status read_tokens(tok_input *in, spm_model *m) {
    int32_t cap = 0;
    bin_token k;
    for (size_t at = 4; next_token(in->bytes, in->len, &at, &k);) {
        TRY(check_text(in, &k, m->n));
        if (m->n == cap) m->piece = arena_grow(in->mem, m->piece, m->n, &cap, sizeof(*m->piece));
        const char *text = piece_text(in->mem, &k, m->n);
        m->piece[m->n] = (spm_piece){text, (uint32_t)strlen(text), k.score, piece_type(m->n)};
        m->n++;
    }
    return m->n >= AFTER_BYTES ? ST_OK : format_bad(in, "has no tokens for all bytes");
}

status llama2c_load(tok_input *in, tok **out) {
    spm_model m = {.kind = SPM_BPE,
                   .bos = 1,
                   .eos = 2,
                   .pad = -1,
                   .byte_fallback = true,
                   .normalizer = "identity",
                   .add_dummy_prefix = true};
    TRY(read_tokens(in, &m));
    TRY(spm_check(&m, in->path, in->e));
    return spm_to_tok(out, &m, in->path, in->e);
}

/* ---- writing ---- */

static status refuse(err *e, const char *what) {
    err_set(e, ST_USAGE, "llama2.c's tokenizer.bin cannot express the tokenizer: %s", what);
    return err_hint(e, "use --to sentencepiece or json");
}

static status check_piece(const spm_model *m, int32_t id, err *e) {
    const spm_piece *p = &m->piece[id];
    spm_type type = piece_type(id);
    bool byte = type == SPM_BYTE && spm_byte(p->text, p->len) == id - FIRST_BYTE;
    if (p->type == type && (type != SPM_BYTE || byte) && !strchr(p->text, ' ')) return ST_OK;
    return err_set(
        e, ST_USAGE,
        "llama2.c's tokenizer.bin cannot express token %d, \"%.60s\": it has the unknown "
        "token, two special ones, 256 bytes, and then ordinary pieces",
        (int)id, p->text);
}

static status check_model(const spm_model *m, err *e) {
    if (m->kind != SPM_BPE) return refuse(e, "the model is not BPE");
    if (m->n_charsmap > 0) return refuse(e, "the normalizer changes characters");
    if (m->remove_extra_whitespaces) return refuse(e, "the normalizer removes spaces");
    if (!m->add_dummy_prefix) return refuse(e, "no space is put before a text");
    if (m->n < AFTER_BYTES || m->bos != 1 || m->eos != 2) {
        return refuse(e, "ids 0 to 258 are not <unk>, the two special tokens and the bytes");
    }
    for (int32_t id = 0; id < m->n; id++) TRY(check_piece(m, id, e));
    return ST_OK;
}

static void put_u32(strbuf *b, uint32_t v) {
    for (int i = 0; i < 4; i++) strbuf_putc(b, (char)(v >> 8 * i));
}

/* The bytes of a token in the file. */
static void token_bytes(const spm_piece *p, int32_t id, strbuf *text) {
    strbuf_clear(text);
    if (id == 1 || id == 2) {
        strbuf_printf(text, "\n%s\n", p->text);
        return;
    }
    for (const char *s = p->text; *s;) {
        bool space = strncmp(s, SPM_SPACE, 3) == 0;
        strbuf_putc(text, space ? ' ' : *s);
        s += space ? 3 : 1;
    }
}

static void put_tokens(const spm_model *m, strbuf *out) {
    strbuf text = {0}, tokens = {0};
    size_t longest = 0;
    for (int32_t id = 0; id < m->n; id++) {
        uint32_t bits;
        token_bytes(&m->piece[id], id, &text);
        memcpy(&bits, &m->piece[id].score, sizeof(bits));
        put_u32(&tokens, bits);
        put_u32(&tokens, (uint32_t)text.len);
        strbuf_append(&tokens, text.data, text.len);
        if (text.len > longest) longest = text.len;
    }
    put_u32(out, (uint32_t)longest);
    strbuf_append(out, tokens.data, tokens.len);
    strbuf_free(&text);
    strbuf_free(&tokens);
}

status llama2c_write(const tok *t, const char *path, err *e) {
    arena *mem = arena_new("tokenizer.bin");
    spm_model m;
    strbuf bytes = {0};
    status st = spm_from_tok(&m, mem, t, e);
    if (st == ST_OK) st = check_model(&m, e);
    if (st == ST_OK) {
        put_tokens(&m, &bytes);
        st = file_write_atomic(path, bytes.data, bytes.len, e);
    }
    strbuf_free(&bytes);
    arena_free(mem);
    return st;
}
