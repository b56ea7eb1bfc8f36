/* What the files of this module share: the loaded tokenizer and the state of one encode call.
 *
 * Encoding is a chain; each stage cuts the text finer and hands pieces on:
 *   tok.c           cuts out bytes that are not UTF-8
 *   tok_added.c     cuts out added tokens, before and after normalisation
 *   tok_normalize.c NFC
 *   tok_pretok.c    pre-tokens, by hand-written matcher or tok_regex.c
 *   tok_bpe.c       merges inside one pre-token
 * A later model kind (Unigram, WordPiece) replaces the last stage only. */
#ifndef TOK_INTERNAL_H
#define TOK_INTERNAL_H

#include "base/arena.h"
#include "tok/tok.h"
#include "tok/text/map.h"
#include "tok/pretok/pretok.h"

/* Limits that keep hostile files bounded; far above any published tokenizer. */
enum {
    TOK_MAX_JSON_BYTES = 512 << 20,
    TOK_MAX_TOKEN_BYTES = 1 << 16,
    TOK_MAX_ADDED_BYTES = 1024,
    TOK_MAX_STEPS = 32,      /* pre-tokenizer steps */
    TOK_MAX_TEMPLATE = 256,  /* ids that a post-processor adds on one side */
    TOK_MAX_TEXT = INT32_MAX /* bytes in one encode call: positions are int32 */
};

/* One id. text NULL: unused. `text` is the content in tokenizer.json, `bytes` what it stands for.
 */
typedef struct tok_token {
    const char *text, *bytes;
    uint32_t n_text, n_bytes;
    bool in_model, added, special;
} tok_token;

/* Added tokens that are looked for in the text, as a trie over bytes: (node, byte) -> node. */
typedef struct tok_added {
    int32_t id;
    bool single_word, lstrip, rstrip;
} tok_added;
typedef struct tok_trie {
    pair_map edge;
    int32_t *token; /* by node: index into `added`, -1 inside */
    int32_t n_nodes, cap_nodes;
    tok_added *added;
    int32_t n_added, cap_added;
    bool first[256]; /* some token begins with this byte */
} tok_trie;

struct tok {
    arena *mem;
    char *json; /* as read, or as made by training */
    size_t json_len;
    uint64_t hash;

    tok_token *token;
    int32_t n_token;  /* highest id + 1 */
    str_map by_text;  /* content -> id */
    str_map by_bytes; /* model tokens only; filled for characters and for ignore_merges */
    bool byte_level;  /* the model works on the 256-character byte alphabet */
    int32_t byte_id[256];
    pair_map merge;  /* pair of ids -> rank */
    int32_t *merged; /* rank -> id */
    int32_t n_merges;
    bool ignore_merges, fuse_unk;
    int32_t unk; /* -1: none */

    bool nfc;
    tok_trie raw, normal; /* added tokens matched before and after normalisation */
    pretok_step step[TOK_MAX_STEPS];
    int n_steps;
    int32_t *prefix, *suffix; /* what the post-processor puts around a text */
    int n_prefix, n_suffix;
    int32_t bos, eos;
};

/* State of one encode call. */
typedef struct bpe_state bpe_state;
typedef struct tok_enc {
    const tok *t;
    tok_ids *out;
    err *e;
    bpe_state *bpe;
    strbuf prefixed;   /* a piece with the space that add_prefix_space puts before it */
    void *match_data;  /* PCRE2, made on first use */
    const char *begin; /* text whose offsets errors name, where it lies in the caller's text, */
    size_t begin_at;   /* and how many bytes at its start are not the caller's */
    size_t begin_skip;
} tok_enc;

/* Where a byte of the text at hand lies in the caller's text (near there, after normalisation). */
size_t tok_offset(const tok_enc *enc, const char *at);

/* tok_json.c: fills a zeroed tok from its JSON. */
status tok_read_json(tok *t, const char *origin, err *e) ATH_MUST_USE;

/* tok_added.c */
void tok_trie_add(tok_trie *m, const char *text, size_t len, tok_added a);
void tok_trie_free(tok_trie *m);
/* Splits text at added tokens: appends their ids and calls `rest` on what lies between. */
typedef status tok_rest_fn(tok_enc *enc, const char *text, size_t len);
status tok_added_split(tok_enc *enc, const tok_trie *m, const char *text, size_t len,
                       tok_rest_fn *rest) ATH_MUST_USE;

/* tok_normalize.c: NFC of valid UTF-8. When nothing changes, *out stays NULL; else free() it. */
status tok_normalize_nfc(const char *text, size_t len, char **out, size_t *out_len,
                         err *e) ATH_MUST_USE;

/* tok_alphabet.c: the printable character that stands for each byte in byte-level tokenizers. */
uint32_t byte_alphabet_char(uint8_t byte);
/* Byte for a character of the alphabet, -1 for any other character. */
int byte_alphabet_byte(uint32_t cp);
void byte_alphabet_append(strbuf *b, const char *bytes, size_t n);

/* tok_bpe.c */
bpe_state *bpe_state_new(size_t text_len);
void bpe_state_free(bpe_state *s);
status bpe_encode_word(tok_enc *enc, const char *word, size_t len) ATH_MUST_USE;

#endif
