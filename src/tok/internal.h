/* What the files of this module share: the loaded tokenizer and the state of one encode call.
 *
 * Encoding is a chain; each stage cuts the text finer and hands pieces on:
 *   encode.c    cuts out bytes that are not UTF-8
 *   added.c     cuts out added tokens, before and after normalisation
 *   normalize/  changes characters
 *   pretok/     cuts pre-tokens
 *   model/      ids of one pre-token
 *   post/       what stands around the ids of a text
 * Decoding is tokens through the steps of decoder/. format/ reads all this from files and writes
 * it. */
#ifndef TOK_INTERNAL_H
#define TOK_INTERNAL_H

#include "base/arena.h"
#include "tok/decoder/decoder.h"
#include "tok/model/model.h"
#include "tok/model/piece_trie.h"
#include "tok/normalize/normalize.h"
#include "tok/post/post.h"
#include "tok/pretok/pretok.h"
#include "tok/text/map.h"
#include "tok/text/piece.h"
#include "tok/tok.h"

/* Limits that keep hostile files bounded; far above any published tokenizer. */
enum {
    TOK_MAX_JSON_BYTES = 512 << 20,
    TOK_MAX_TOKEN_BYTES = 1 << 16,
    TOK_MAX_ADDED_BYTES = 1024,
    TOK_MAX_STEPS = 32,       /* of a normalizer, pre-tokenizer or decoder */
    TOK_MAX_TEMPLATE = 256,   /* ids that a post-processor adds on one side */
    TOK_MAX_TEXT = INT32_MAX, /* bytes in one encode call: positions are int32 */
    TOK_IDLE = 16             /* states of finished encode calls, kept for the next calls */
};

/* One id.
 *   text    its content in tokenizer.json; NULL: the id is not used
 *   shown   what the decoder gets: the content; for an added token that is looked for after
 *           normalisation, what the normalizer makes of the content
 *   bytes   what it stands for in the middle of a text (while a file is read, before the decoder is
 *           known: what the model works on) */
typedef struct tok_token {
    const char *text, *shown, *bytes;
    uint32_t n_text, n_shown, n_bytes;
    bool in_model, added, special;
} tok_token;

/* Added tokens that are looked for in the text: tok_added_add for each, then tok_added_build. */
typedef struct tok_added {
    int32_t id;
    bool single_word, lstrip, rstrip;
} tok_added;
typedef struct tok_added_set {
    str_map by_text; /* -> index into `added` */
    tok_added *added;
    int32_t n_added, cap_added;
    piece_trie trie; /* of by_text */
    bool first[256]; /* some token begins with this byte: nearly always not, so it is asked first */
} tok_added_set;

typedef struct tok_enc tok_enc;

struct tok {
    arena *mem;
    char *json; /* as read, or as made by training */
    size_t json_len;
    uint64_t hash;

    tok_token *token;
    int32_t n_token;      /* highest id + 1 */
    str_map by_text;      /* content -> id */
    bool byte_level;      /* the model works on the 256-character byte alphabet */
    int32_t byte_id[256]; /* the token of a byte, -1: none */
    int32_t unk;          /* -1: none */

    tok_added_set raw, normal; /* added tokens matched before and after normalisation */
    norm_step norm[TOK_MAX_STEPS];
    int n_norm;
    pretok_step step[TOK_MAX_STEPS];
    int n_steps;
    const model_class *class;
    void *model;
    tok_post post;
    dec_step dec[TOK_MAX_STEPS];
    int n_dec;
    bool plain; /* decoding puts the `bytes` of tokens together */
    int32_t bos, eos;
    struct tok_source *source; /* format/format.h; NULL: made here, or from a string */

    _Atomic(int64_t) lost_bytes;       /* left out in all calls, see tok_lost_bytes */
    _Atomic(tok_enc *) idle[TOK_IDLE]; /* states of earlier calls, with what they remember */
};

/* State of one encode call. Kept for later calls: buffers and the model's cache of words. */
struct tok_enc {
    const tok *t;
    tok_ids *out;
    tok_spans *spans; /* beside `out`; NULL: not asked for */
    err *e;
    int64_t lost_bytes; /* of this call */
    norm_work norm;
    tok_text step_text[TOK_MAX_STEPS]; /* of the pre-tokenizer steps that change text */
    void *match_data;                  /* of patterns, made on first use */
    void *model;                       /* of model_class.state_new */
};
void enc_free(tok_enc *enc);

/* Room for n more ids at the end of a list, of which the caller may use some. */
static inline int32_t *tok_ids_room(tok_ids *v, int64_t n) {
    if (v->n + n > v->cap) {
        v->cap = 2 * (v->n + n);
        v->id = xrealloc(v->id, sizeof(*v->id) * (size_t)v->cap);
    }
    return v->id + v->n;
}
/* Appends an id that stands for word[start, end). */
static inline void enc_push(tok_enc *enc, int32_t id, const tok_piece *word, size_t start,
                            size_t end) {
    VEC_PUSH(enc->out->id, enc->out->n, enc->out->cap, id);
    if (!enc->spans) return;
    tok_span span = end > start ? (tok_span){word->from[start].start, word->from[end - 1].end}
                                : (tok_span){0, 0};
    VEC_PUSH(enc->spans->span, enc->spans->n, enc->spans->cap, span);
}
/* Sets the error "the vocabulary has no token for ... at byte N" for the character at word[at]. */
status enc_unknown(tok_enc *enc, const tok_piece *word, size_t at) ATH_MUST_USE;
/* The same for a word as a whole. */
status enc_unknown_word(tok_enc *enc, const tok_piece *word) ATH_MUST_USE;

/* encode.c: appends the ids of a part of a text, without places or error. `first`: the text begins
 * here. */
status encode_part(const tok *t, const char *text, size_t len, bool first,
                   tok_ids *out) ATH_MUST_USE;
/* Whether encoding has to know where each byte came from: then a text cannot be cut. */
bool encode_needs_places(const tok *t);
/* batch.c: whether a text of this length is worth cutting for many threads, and doing it. */
bool encode_parallel_pays(const tok *t, size_t len);
status encode_parallel(const tok *t, const char *text, size_t len, tok_ids *out) ATH_MUST_USE;

/* The id of a token that the model can give, -1 if none has this content. */
int32_t tok_model_id(const tok *t, const char *s, size_t n);
/* Whether `word`, which is not empty, is one of some words with spaces between. */
bool tok_words_have(const char *words, const char *word);

/* format/json.c: fills a zeroed tok from its JSON. */
status tok_read_json(tok *t, const char *origin, err *e) ATH_MUST_USE;

/* decoder/tokens.c: fills tok.plain and what tokens stand for, once the decoder is read. */
status dec_fill_tokens(tok *t, err *e) ATH_MUST_USE;

/* added.c */
/* The text must outlive the set; of two tokens with the same text the later one counts. */
void tok_added_add(tok_added_set *m, const char *text, size_t len, tok_added a);
/* False: PIECE_TRIE_LIMITS. */
bool tok_added_build(tok_added_set *m) ATH_MUST_USE;
void tok_added_free(tok_added_set *m);
/* Splits text at added tokens: appends their ids and calls `rest` on what lies between. */
typedef status tok_rest_fn(tok_enc *enc, const tok_piece *text);
status tok_added_split(tok_enc *enc, const tok_added_set *m, const tok_piece *text,
                       tok_rest_fn *rest) ATH_MUST_USE;

/* text/alphabet.c: the printable character that stands for each byte in byte-level tokenizers. */
uint32_t byte_alphabet_char(uint8_t byte);
/* Byte for a character of the alphabet, -1 for any other character. */
int byte_alphabet_byte(uint32_t cp);
void byte_alphabet_append(strbuf *b, const char *bytes, size_t n);
/* Appends the bytes that s stands for; false, with nothing appended, if not all of it does. */
bool byte_alphabet_read(strbuf *bytes, const char *s, size_t n);

#endif
