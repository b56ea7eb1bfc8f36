/* Tokenizers in other formats than tokenizer.json: reading and writing.
 *
 *   tokenizer.json   everything; what the other formats are turned into
 *   SentencePiece    a .model file: BPE, Unigram or characters, with its normaliser
 *   tiktoken         ranks of byte strings; the pattern and the special tokens are not in the file:
 *                    they are known for published files by name, given, or in the
 *                    tokenizer_config.json beside it
 *   GPT-2            a folder with vocab.json and merges.txt: byte-level BPE, the pattern of GPT-2
 *   BERT             vocab.txt, one WordPiece token a line
 *   llama2.c         tokenizer.bin: pieces with scores, as SentencePiece's BPE with byte fallback
 *   GGUF             the tokenizer inside a model file of llama.cpp
 *
 * Reading gives the ids of the program that the format belongs to; the tokenizer.json made from it
 * gives those of Hugging Face tokenizers, and src/tok/format/spm.h says where these can differ.
 * Writing refuses, by name, whatever the format cannot express. */
#ifndef TOK_TOK_FORMAT_H
#define TOK_TOK_FORMAT_H

#include <jansson.h>

#include "base/arena.h"
#include "tok/tok.h"

typedef enum tok_format {
    TOK_FORMAT_JSON,
    TOK_FORMAT_SENTENCEPIECE,
    TOK_FORMAT_TIKTOKEN,
    TOK_FORMAT_GPT2,
    TOK_FORMAT_BERT,
    TOK_FORMAT_LLAMA2C,
    TOK_FORMAT_GGUF, /* read only: it is written with a model */
    TOK_FORMATS
} tok_format;

/* Names as --to takes them: json, sentencepiece, tiktoken, gpt2, bert, llama2c, gguf. */
const char *tok_format_name(tok_format f);
/* ST_USAGE: not a name. */
status tok_format_parse(const char *name, tok_format *f, err *e) ATH_MUST_USE;
/* The format that a path to be written asks for: by the ending of a file (.json, .model, .tiktoken,
 * .txt, .bin), otherwise a folder with tokenizer.json. */
tok_format tok_format_of_path(const char *path);

/* What a file does not say; all may be NULL. */
typedef struct tok_load_options {
    const char *pattern;        /* how text is cut (tiktoken), by name */
    const char *const *special; /* special tokens: tiktoken, after the last rank; else in the
                                   vocabulary already */
    int n_special;
} tok_load_options;

/* Where a run is given for a tokenizer, says where its tokenizer and chat template lie; false: it is no run. */
bool tok_hint_run(const char *path, err *e);

/* As tok_load. The format is recognised by content and name. */
status tok_load_with(tok **out, const char *path, const tok_load_options *opt, err *e) ATH_MUST_USE;
/* Whether a folder holds a file that tok_load_with reads for it. */
bool tok_is_in_folder(const char *dir);
/* The format that a tok was read from. */
tok_format tok_format_of(const tok *t);

/* Writes a file, or a folder where the format is one (JSON too, if the path is a folder). A tok
 * that was read from this format gives the same bytes. ST_USAGE: names the part of the tokenizer
 * that the format cannot express. */
status tok_export(const tok *t, const char *path, tok_format f, err *e) ATH_MUST_USE;
/* What a reader of the file must be told beside it, in words ("" if nothing). */
void tok_export_notes(const tok *t, tok_format f, strbuf *out);
/* The name of the published pattern by which a byte-level tokenizer cuts text, in the arena; NULL
 * when it is another. */
const char *tok_pattern_name(const tok *t, arena *mem);
/* Whether it normalizes and cuts text as Qwen 2's does: transformers reads every tokenizer of that family so. */
bool tok_cuts_as_qwen2(const tok *t);
/* The JSON object in a tokenizer_config.json; integers beyond 64 bits (a model_max_length of 10^30)
 * become the largest one. */
status tok_config_load(const char *path, json_t **out, err *e) ATH_MUST_USE;
/* The content of a special token; NULL for any other id. */
const char *tok_special(const tok *t, int32_t id);

#endif
