/* What the readers and writers of formats share. Reading order: load.c (which reader), then one
 * file per format; tree.h for the tokenizer.json they make; shape.h for what writers ask of a
 * tok. */
#ifndef TOK_FORMAT_FORMAT_H
#define TOK_FORMAT_FORMAT_H

#include <jansson.h>

#include "tok/format/spm.h"
#include "tok/internal.h"
#include "tok/tok_format.h"

/* Where a tok came from; in its arena. */
struct tok_source {
    tok_format format;
    const char *bytes; /* the file, for formats other than tokenizer.json that are one file */
    size_t n_bytes;
    const spm_model *spm; /* SentencePiece and llama2.c */
    const char *config;   /* tokenizer_config.json, as read; NULL: none */
    const char *chat_template;
    const char *pad; /* the padding token that a config or a GGUF file names; NULL: none */
};

/* A file on its way in. */
typedef struct tok_input {
    const char *path, *base; /* base: the name without folders */
    const char *dir;
    const char *bytes;
    size_t len;
    bool of_folder; /* named as what stands in a model folder */
    tok_load_options opt;
    const json_t *config; /* of the tokenizer_config.json beside it; NULL: none */
    arena *mem;           /* for the time of reading */
    err *e;
} tok_input;

/* "PATH: what", ST_FORMAT. */
status format_bad(const tok_input *in, const char *fmt, ...) ATH_PRINTF(2, 3);
/* The string under a key of the config, or of the "content" of an object there; NULL: none. */
const char *tok_config_token(const json_t *config, const char *key);
/* Calls `each` for the tokens that the config adds: its added_tokens_decoder. */
typedef status added_token_fn(void *ctx, int64_t id, const char *content, size_t len, bool special);
status tok_config_added(const json_t *config, added_token_fn *each, void *ctx) ATH_MUST_USE;

/* Sets in->config from the file in in->dir; NULL when there is none. */
status tok_config_read(tok_input *in) ATH_MUST_USE;
/* Sets what the config decides in a loaded tok (first and last token), and t->source. */
status tok_config_apply(const tok_input *in, tok_format f, tok *t) ATH_MUST_USE;

/* Gives t, made by changing the vocabulary of `from`, what stands beside that one: the config, with
 * the added tokens of t, and the chat template. */
void tok_config_follow(tok *t, const tok *from);

/* Lines of a text file, without their ends. */
typedef struct line_cursor {
    const char *at, *end;
    int64_t number; /* of the line last read, from 1 */
} line_cursor;
bool format_line(line_cursor *c, const char **line, size_t *len);

status sentencepiece_load(tok_input *in, tok **out) ATH_MUST_USE;
status tiktoken_load(tok_input *in, tok **out) ATH_MUST_USE;
status gpt2_load(tok_input *in, tok **out) ATH_MUST_USE;
/* The same from the two files in memory. */
typedef struct gpt2_texts {
    const char *vocab;
    size_t n_vocab;
    const char *merges;
    size_t n_merges;
} gpt2_texts;
status gpt2_from_texts(tok_input *in, const gpt2_texts *f, tok **out) ATH_MUST_USE;
status bert_load(tok_input *in, tok **out) ATH_MUST_USE;
/* The tokenizer.json of a BERT vocabulary ({token: id}) and a normalizer; takes both over. */
json_t *bert_tree(json_t *vocab, json_t *normalizer);
/* ST_USAGE unless the tok (its tokenizer.json is `root`) has the parts of BERT but for the options
 * of the normalizer. */
status bert_check(const tok *t, const json_t *root, err *e) ATH_MUST_USE;
status llama2c_load(tok_input *in, tok **out) ATH_MUST_USE;
status gguf_load(tok_input *in, tok **out) ATH_MUST_USE;

status sentencepiece_write(const tok *t, const char *path, err *e) ATH_MUST_USE;
status tiktoken_write(const tok *t, const char *path, err *e) ATH_MUST_USE;
status gpt2_write(const tok *t, const char *path, err *e) ATH_MUST_USE;
status bert_write(const tok *t, const char *path, err *e) ATH_MUST_USE;
status llama2c_write(const tok *t, const char *path, err *e) ATH_MUST_USE;

/* Whether a file looks like one: structure only. */
bool sentencepiece_looks(const char *bytes, size_t len);
bool tiktoken_looks(const char *bytes, size_t len);
bool llama2c_looks(const char *bytes, size_t len);

/* Writes tokenizer_config.json and special_tokens_map.json. `extra` (may be NULL, taken over) holds
 * keys that stand in the config too. */
status tok_config_write(const tok *t, const char *dir, int64_t model_max_length, json_t *extra,
                        err *e) ATH_MUST_USE;

#endif
