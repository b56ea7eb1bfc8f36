/* Tokenizers: text to ids and back, trained here or read from a Hugging Face tokenizer.json or
 * another format (tok_format.h).
 *
 * Kinds: BPE over bytes (GPT-2, Llama 3, Qwen, OLMo, ... and our own) or characters (Llama 2),
 * Unigram, WordPiece, raw bytes, characters; ids are those of the library that the file comes from.
 *
 * tok_load reads one, or tok_trainer_new, _add (each document) and _finish make one; tok_encode and
 * tok_decode use it, tok_stream decodes while ids come in; tok_free ends it. A tok never changes after
 * loading and may be used by many threads at once.
 *
 * Text is bytes. Most of it is UTF-8. A byte that is not ends the text before it, is a pre-token of its
 * own and becomes the token of that byte: so byte-level kinds without a normalizer give back any bytes
 * exactly. Where the vocabulary has no such token, the byte becomes the unknown token or an error.
 *
 * Errors: ST_FORMAT when a file or a text is wrong, ST_USAGE when the caller asks for what cannot be.
 *
 * Reading order: internal.h (the stages of encoding), encode.c, format/json.c, train/train.c. */
#ifndef TOK_TOK_H
#define TOK_TOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

typedef struct tok tok;

/* A growing list of ids on the heap; initialise with {0}. */
typedef struct tok_ids {
    int32_t *id;
    int64_t n, cap;
} tok_ids;
void tok_ids_push(tok_ids *v, int32_t id);
void tok_ids_free(tok_ids *v);

/* A stretch of the text, in bytes: [start, end). */
typedef struct tok_span {
    int32_t start, end;
} tok_span;
typedef struct tok_spans {
    tok_span *span;
    int64_t n, cap;
} tok_spans;
void tok_spans_free(tok_spans *v);

/* Reads tokenizer.json (a file, or a folder that holds one; tokenizer_config.json beside it, if
 * any, names the special tokens). Errors: ST_FORMAT unreadable, or naming the key that is
 * wrong or not supported. */
status tok_load(tok **out, const char *path, err *e) ATH_MUST_USE;
status tok_parse(tok **out, const char *json, size_t len, const char *origin, err *e) ATH_MUST_USE;
void tok_free(tok *t);
/* Writes tokenizer.json in Hugging Face form (byte-identical to what was read, for a tokenizer that
 * was read); with `dir` instead of a file also tokenizer_config.json and special_tokens_map.json.
 */
status tok_save_file(const tok *t, const char *path, err *e) ATH_MUST_USE;
status tok_save_dir(const tok *t, const char *dir, int64_t model_max_length, err *e) ATH_MUST_USE;
/* The same for a model that was taught to talk: with another chat template (NULL: its own), and as
 * eos_token the token that ends an answer (-1: its own). */
status tok_save_chat(const tok *t, const char *dir, int64_t model_max_length, const char *template,
                     int32_t stop, err *e) ATH_MUST_USE;

enum { TOK_ADD_SPECIAL = 1 /* what the post-processor adds, e.g. BOS */ };
/* Appends ids to `out`. Added tokens in the text are recognised. Long texts are shared by all
 * threads, unless the caller is one of several. ST_FORMAT: bytes that this kind cannot represent,
 * naming the byte offset. */
status tok_encode(const tok *t, const char *text, size_t len, unsigned flags, tok_ids *out,
                  err *e) ATH_MUST_USE;
/* For texts that are too long for one call: a place where such a text may be cut, so that its parts,
 * each encoded by tok_encode_part, give the ids of the whole. It is the first such place from byte
 * `at` > 0 on; `len` when there is none, as in tokenizers that look at the whole text. */
size_t tok_cut(const tok *t, const char *text, size_t len, size_t at);
/* Appends the ids of one part; `first`: the text begins with it. By the calling thread alone. */
status tok_encode_part(const tok *t, const char *text, size_t len, bool first, tok_ids *out,
                       err *e) ATH_MUST_USE;
/* How many bytes of valid text all calls so far have left out, because a byte-level vocabulary has
 * neither a token for them nor an unknown token. Hugging Face tokenizers and llama.cpp leave them out
 * in silence; the command line warns. */
int64_t tok_lost_bytes(const tok *t);
/* Many texts, by all threads: the ids of texts[i] replace what is in out[i]. On an error *failed
 * (may be NULL) is the first text that cannot be encoded. */
typedef struct tok_string {
    const char *text;
    size_t len;
} tok_string;
status tok_encode_batch(const tok *t, const tok_string *texts, int64_t n, unsigned flags,
                        tok_ids *out, int64_t *failed, err *e) ATH_MUST_USE;
/* As tok_encode, and which bytes of the text each id stands for (whole characters, even where a
 * token has only some of their bytes; what the post-processor adds has {0, 0}). */
status tok_encode_spans(const tok *t, const char *text, size_t len, unsigned flags, tok_ids *out,
                        tok_spans *spans, err *e) ATH_MUST_USE;
/* Spans in bytes to spans in characters, in place; spans in order of start take linear time. A byte
 * that is not UTF-8 counts as one character. */
void tok_spans_to_chars(tok_spans *v, const char *text, size_t len);
/* Appends the text of ids; skip_special leaves special tokens out. It is what Hugging Face
 * tokenizers gives, except that byte-level kinds give bytes back as they are (U+FFFD there, where
 * they are not UTF-8) and that special tokens are left out even if normalisation changes them.
 * ST_USAGE: an id outside the vocabulary; ST_FORMAT: a decoder's pattern gave up. */
status tok_decode(const tok *t, const int32_t *ids, int64_t n, bool skip_special, strbuf *out,
                  err *e) ATH_MUST_USE;

/* Decoding while ids come in: what all calls append is, together, what tok_decode gives for all ids.
 * Text is held back while it is not whole characters or later ids may change it, and no longer.
 * Initialise with {.t = ..., .skip_special = ...}. behind: another text stands before, so that the space
 * of a first word is kept. */
typedef struct tok_stream {
    const tok *t;
    bool skip_special, behind;
    uint8_t held[8];
    int n_held;
    int64_t n_ids;
    struct dec_run *run;
} tok_stream;
/* Whether the ids have text for another to go on: one of them is not left out. */
bool tok_has_text(const tok *t, const int32_t *ids, int64_t n, bool skip_special);
status tok_stream_push(tok_stream *s, int32_t id, strbuf *out, err *e) ATH_MUST_USE;
/* Ends the text: appends what is held back. The stream is as new and needs no tok_stream_free. */
status tok_stream_flush(tok_stream *s, strbuf *out, err *e) ATH_MUST_USE;
void tok_stream_free(tok_stream *s);

int32_t tok_vocab_size(const tok *t); /* highest id + 1 */
int32_t tok_bos(const tok *t);        /* -1: none */
/* -1: none; the id put after each document. From tokenizer_config.json, else the first there is of
 * <|endoftext|>, </s>, <|end_of_text|>, <eos>. */
int32_t tok_eos(const tok *t);
/* The id of a token by its content, -1 if absent. */
int32_t tok_id(const tok *t, const char *content);
/* The bytes that one token stands for (not NUL-terminated); NULL for an unused id. Special tokens:
 * their content. */
const char *tok_bytes(const tok *t, int32_t id, size_t *len);
/* Whether an id is an added token, as those are that end turns; the model makes no such token of text. */
bool tok_is_added(const tok *t, int32_t id);
/* XXH3 over what decides ids and text (not over spacing or key order): written into shards and
 * checkpoints, compared on load. */
uint64_t tok_hash(const tok *t);

/* BPE: byte-level over the alphabet of all 256 bytes, so nothing is ever unknown; with pattern
 * "sentencepiece" over characters, with a token for every byte of those that are not in the
 * vocabulary. Its merges, and the tokens of WordPiece, are those of Hugging Face's BpeTrainer and
 * WordPieceTrainer (highest count, then smallest pair of ids), but that no token becomes longer than
 * a file may hold, and none of WordPiece longer than the words that it looks at. Unigram: Kudo 2018
 * (arXiv:1804.10959). Characters: sorted, after the special tokens; others are an error in
 * encoding, unless "<unk>" is among the special tokens. */
typedef enum tok_kind { TOK_BPE, TOK_UNIGRAM, TOK_WORDPIECE, TOK_CHAR, TOK_BYTE } tok_kind;
/* Zero or NULL is the default throughout. The result depends on the text and on these, never on the
 * number of threads. */
typedef struct tok_train_options {
    tok_kind kind;
    int32_t vocab_size;         /* target, specials included (ignored for char and byte) */
    const char *pattern;        /* bpe: "llama3", any name of pretok.h, "sentencepiece" */
    const char *const *special; /* special tokens, first ids; NULL: those usual for the kind */
    int n_special;              /* 0 with special != NULL: none at all, and tok_eos is -1 */
    int64_t min_frequency;      /* pairs rarer than this are not merged; 0 = 2 */
    double coverage;            /* share of the text whose characters get a token: 1, and 0.9995
                                 * with pattern sentencepiece and for unigram */
    bool byte_fallback;         /* unigram: tokens for bytes, too */
    int64_t ram_bytes; /* resident memory to stay below, 192 MiB at least; 0: a quarter of the
                        * machine's, at most 2 GiB. When words no longer fit, the rarest go, with a
                        * warning */
    void (*progress)(void *ctx, double fraction, const char *what);
    void *progress_ctx;
} tok_train_options;

/* Training reads text piece by piece (a piece ends at a document end; pieces are independent). */
typedef struct tok_trainer tok_trainer;
status tok_trainer_new(tok_trainer **out, const tok_train_options *opt, err *e) ATH_MUST_USE;
status tok_trainer_add(tok_trainer *tr, const char *text, size_t len, err *e) ATH_MUST_USE;
/* The tokenizer, independent of the trainer; the same again when called again. No text may follow.
 * ST_USAGE: an empty corpus, or a vocabulary too small for its characters. */
status tok_trainer_finish(tok_trainer *tr, tok **out, err *e) ATH_MUST_USE;
void tok_trainer_free(tok_trainer *tr);

#endif
