/* Training: options, reading text, and the kinds whose vocabulary is just a list. BPE merges are in
 * tok_bpe_train.c, the file that comes out in tok_build.c. */
#include "tok/train/train.h"

#include <stdlib.h>
#include <string.h>

#include "tok/text/unicode.h"

static status bad_option(err *e, const char *key, const char *message, const char *hint) {
    err_set(e, ST_USAGE, "%s", message);
    err_hint(e, "%s", hint);
    return err_where(e, "%s", key);
}

static status check_special(const char *const *special, int n, err *e) {
    for (int i = 0; i < n; i++) {
        size_t len = strlen(special[i]);
        uint32_t cp;
        if (utf8_valid_prefix(special[i], len) != len || len > TOK_MAX_ADDED_BYTES || len == 0 ||
            (size_t)utf8_decode(special[i], len, &cp) == len) {
            return bad_option(e, "special",
                              "a special token must be UTF-8 text of two or more "
                              "characters",
                              "write it like <|endoftext|>");
        }
        for (int j = 0; j < i; j++) {
            if (strcmp(special[i], special[j]) == 0) {
                return bad_option(e, "special", "a special token is given twice", "drop one");
            }
        }
    }
    return ST_OK;
}

static status check_options(const tok_train_options *o, err *e) {
    TRY(check_special(o->special, o->n_special, e));
    if (strcmp(o->pattern, "gpt2") != 0 && strcmp(o->pattern, "llama3") != 0) {
        err_set(e, ST_USAGE, "pre-tokenizer pattern \"%.60s\" is not known", o->pattern);
        err_hint(e, "use gpt2 or llama3");
        return err_where(e, "pattern");
    }
    if (o->kind == TOK_BPE && o->vocab_size < 256 + o->n_special) {
        err_set(e, ST_USAGE, "a vocabulary of %d cannot hold 256 bytes and %d special tokens",
                (int)o->vocab_size, o->n_special);
        err_hint(e, "ask for %d or more, or use kind byte", 256 + o->n_special);
        return err_where(e, "vocab_size");
    }
    return ST_OK;
}

static void copy_options(tok_trainer *tr, const tok_train_options *opt) {
    static const char *const DEFAULT_SPECIAL[] = {"<|endoftext|>"};
    tok_train_options *o = &tr->opt;
    *o = *opt;
    const char *const *special = opt->special ? opt->special : DEFAULT_SPECIAL;
    o->n_special = opt->special ? opt->n_special : 1;
    const char **copy = ARENA_ARRAY(tr->mem, const char *, o->n_special);
    for (int i = 0; i < o->n_special; i++) copy[i] = arena_strdup(tr->mem, special[i]);
    o->special = copy;
    o->pattern = arena_strdup(tr->mem, opt->pattern ? opt->pattern : "llama3");
    if (o->min_frequency == 0) o->min_frequency = 2;
}

status tok_trainer_new(tok_trainer **out, const tok_train_options *opt, err *e) {
    *out = NULL;
    tok_trainer *tr = xcalloc(1, sizeof(*tr));
    tr->mem = arena_new("tokenizer training");
    copy_options(tr, opt);
    status st = check_options(&tr->opt, e);
    if (st != ST_OK) {
        tok_trainer_free(tr);
        return st;
    }
    if (opt->kind == TOK_BPE) tr->bpe = bpe_trainer_new(strcmp(tr->opt.pattern, "gpt2") == 0);
    if (opt->kind == TOK_CHAR) tr->seen = arena_alloc(tr->mem, 0x110000 / 8);
    *out = tr;
    return ST_OK;
}

void tok_trainer_free(tok_trainer *tr) {
    if (!tr) return;
    bpe_trainer_free(tr->bpe);
    arena_free(tr->mem);
    free(tr);
}

static status see_characters(tok_trainer *tr, const char *text, size_t len, err *e) {
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int n = utf8_decode(text + i, len - i, &cp);
        if (n == 0 || cp == 0) {
            err_set(e, ST_FORMAT, "byte %zu of the text (0x%02x) is %s", i, (uint8_t)text[i],
                    n == 0 ? "not UTF-8" : "a NUL, which a character vocabulary cannot hold");
            return err_hint(e, "clean the text, or use kind bpe or byte, which take any bytes");
        }
        tr->seen[cp >> 3] |= (uint8_t)(1u << (cp & 7));
        i += (size_t)n;
    }
    return ST_OK;
}

status tok_trainer_add(tok_trainer *tr, const char *text, size_t len, err *e) {
    if (tr->opt.kind == TOK_CHAR) TRY(see_characters(tr, text, len, e));
    if (tr->opt.kind == TOK_BPE) bpe_trainer_add(tr->bpe, text, len);
    tr->n_bytes += (int64_t)len;
    return ST_OK;
}

void tok_draft_add(tok_draft *d, const char *token) {
    VEC_PUSH(d->token, d->n_token, d->cap_token, token);
}

static void add_characters(const tok_trainer *tr, tok_draft *d) {
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (!(tr->seen[cp >> 3] >> (cp & 7) & 1)) continue;
        char c[4];
        int n = utf8_encode(cp, c);
        tok_draft_add(d, arena_strndup(d->mem, c, (size_t)n));
    }
}

/* Bytes in their own order: id = number of special tokens + byte. */
static void add_bytes(tok_draft *d) {
    for (int b = 0; b < 256; b++) {
        char c[4];
        int n = utf8_encode(byte_alphabet_char((uint8_t)b), c);
        tok_draft_add(d, arena_strndup(d->mem, c, (size_t)n));
    }
}

status tok_trainer_finish(tok_trainer *tr, tok **out, err *e) {
    *out = NULL;
    if (tr->n_bytes == 0) {
        err_set(e, ST_USAGE, "the corpus is empty: there is no text to train a tokenizer on");
        return err_hint(e, "give files that hold text");
    }
    tok_draft d = {.mem = tr->mem};
    for (int i = 0; i < tr->opt.n_special; i++) tok_draft_add(&d, tr->opt.special[i]);
    switch (tr->opt.kind) {
        case TOK_BPE: bpe_trainer_merge(tr->bpe, &tr->opt, &d); break;
        case TOK_CHAR: add_characters(tr, &d); break;
        case TOK_BYTE: add_bytes(&d); break;
    }
    status st = tok_build(tr, &d, out, e);
    free(d.token);
    free(d.merge);
    return st;
}
