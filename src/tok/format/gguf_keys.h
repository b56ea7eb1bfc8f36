/* The tokenizer keys of a GGUF file as a table, and a tok from and to it. The reader and writer of
 * the file itself are elsewhere; this is what stands under tokenizer.ggml.*.
 *
 *   model "gpt2"   byte-level BPE; `pre` names how text is cut (pretok_by_name). llama.cpp has no
 *                  normalizer there: one that is NFC is left out, as its own converter does.
 *   model "llama"  SentencePiece BPE with scores
 *   model "t5"     SentencePiece Unigram
 *   model "bert"   WordPiece; a token that begins a word has "▁" before it, others lose their "##"
 *
 * Reading a table that was written gives the ids of the tok. What llama.cpp cannot do is refused
 * with the reason, above all a pattern that it has no name for. */
#ifndef TOK_FORMAT_GGUF_KEYS_H
#define TOK_FORMAT_GGUF_KEYS_H

#include "base/arena.h"
#include "tok/tok.h"

/* tokenizer.ggml.token_type */
typedef enum gguf_token_type {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN = 2,
    GGUF_TOKEN_CONTROL = 3,
    GGUF_TOKEN_USER_DEFINED = 4,
    GGUF_TOKEN_UNUSED = 5,
    GGUF_TOKEN_BYTE = 6,
} gguf_token_type;

/* A key that may be absent; then the default of llama.cpp for the model holds. */
typedef enum gguf_flag { GGUF_FALSE, GGUF_TRUE, GGUF_ABSENT } gguf_flag;

typedef struct gguf_tokenizer {
    const char *model, *pre; /* pre NULL: absent */
    int32_t n_tokens;
    const tok_string *token;
    const float *score;  /* NULL: absent */
    const int32_t *type; /* NULL: absent, all are normal */
    int64_t n_merges;
    const tok_string *merge;                         /* "left right" */
    int32_t bos, eos, unk, sep, pad, cls, mask, eot; /* ids; -1: absent */
    gguf_flag add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
    gguf_flag lowercase, strip_accents; /* normalizer.* of bert */
    const char *charsmap;               /* precompiled_charsmap */
    size_t n_charsmap;
    const char *chat_template; /* NULL: absent */
} gguf_tokenizer;

/* A table of which everything is absent. */
gguf_tokenizer gguf_tokenizer_empty(void);

/* `origin` names the file in errors. ST_FORMAT: the table is wrong, or asks for something that is
 * not supported. */
status tok_from_gguf(tok **out, const gguf_tokenizer *g, const char *origin, err *e) ATH_MUST_USE;
/* The strings and arrays live in the arena or in the tok. ST_USAGE: names the part of the tokenizer
 * that llama.cpp cannot express. */
status tok_to_gguf(const tok *t, arena *mem, gguf_tokenizer *g, err *e) ATH_MUST_USE;

/* gguf_pre.c: llama.cpp's names of pre-tokenizers that take a pre-token whole when it is a token, and those
 * that put a first token before a text unless told otherwise. */
bool gguf_pre_ignores_merges(const char *pre);
bool gguf_pre_adds_bos(const char *pre);
/* The name to write for one of pretok.h's; NULL: llama.cpp has none. */
const char *gguf_pre_of(const char *ours);

#endif
