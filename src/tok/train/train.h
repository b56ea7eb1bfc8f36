/* What the trainers share.
 *
 * Reading order: train.c (options, documents), gather.c (documents to words), then one of
 * bpe_kinds.c (with bpe.h below it) and unigram.c, and build.c, which writes the tokenizer.json. */
#ifndef TOK_TRAIN_TRAIN_H
#define TOK_TRAIN_TRAIN_H

#include "tok/internal.h"
#include "tok/train/gather.h"

/* What is trained: the kind, and for BPE what its symbols are. */
typedef enum train_form {
    FORM_BYTE_BPE,
    FORM_PIECE_BPE, /* characters, ▁ for spaces, bytes where there is no character */
    FORM_UNIGRAM,
    FORM_WORDPIECE,
    FORM_CHAR,
    FORM_BYTE,
} train_form;

/* Longer words are the unknown token (max_input_chars_per_word), so no token need be longer. */
enum { WORDPIECE_MAX_CHARS = 100 };

struct tok_trainer {
    tok_train_options opt; /* complete; special and pattern point into mem */
    train_form form;
    arena *mem;
    int64_t n_bytes; /* text seen */
    tok *shell;      /* the stages before the model; NULL: nothing is counted in words */
    gather *gather;
    uint8_t *seen; /* FORM_CHAR: one bit per code point */
    char *json;    /* once finished */
};

/* A vocabulary in the making: token strings by id, merges as pairs of ids. */
typedef struct tok_merge {
    int32_t left, right, id;
} tok_merge;
typedef struct tok_draft {
    arena *mem;
    const char **token;
    int32_t n_token, cap_token;
    tok_merge *merge;
    int32_t n_merges, cap_merges;
    double *score; /* by id; NULL for kinds without */
} tok_draft;
void tok_draft_add(tok_draft *d, const char *token);
/* A token of one character. */
void tok_draft_add_char(tok_draft *d, uint32_t cp);
void tok_draft_add_special(tok_draft *d, const tok_train_options *opt);
/* "<0x00>" to "<0xFF>". */
void tok_draft_add_bytes(tok_draft *d);

/* bpe_kinds.c: the tokens and merges of the BPE forms and of WordPiece, in a draft that is empty.
 */
status bpe_train(tok_trainer *tr, tok_draft *d, err *e) ATH_MUST_USE;
/* unigram.c: the same with scores. */
status unigram_train(tok_trainer *tr, tok_draft *d, err *e) ATH_MUST_USE;

/* train.c: the words of all text, sorted; `words` are the trainer's. */
status tok_trainer_words(tok_trainer *tr, word_ref **list, int64_t *n, err *e) ATH_MUST_USE;
/* Of the memory that training may take, what is left for its big structures. */
int64_t tok_trainer_room(const tok_trainer *tr);
void tok_train_report(const tok_train_options *opt, double fraction, const char *what);
/* ST_USAGE: a vocabulary too small for what it must hold. */
status tok_train_too_small(const tok_train_options *opt, int64_t needed, const char *what, err *e);

/* alphabet.c */
typedef struct char_count {
    uint32_t cp;
    int64_t count;
} char_count;
/* The characters that were counted, most frequent first; on the heap. NUL stays out: a token cannot
 * hold it. Frees count, [0x110000]. */
char_count *alphabet_by_count(int64_t *count, int32_t *n);
/* The characters that make up `coverage` of all text, most frequent first. On the heap. */
char_count *alphabet_of_words(const word_ref *words, int64_t n_words, double coverage, int32_t *n);

/* build.c: the tokenizer.json of a draft (free() it), and of the stages alone. */
char *tok_build_json(const tok_train_options *opt, train_form form, const tok_draft *d);
char *tok_build_shell_json(const tok_train_options *opt, train_form form);
/* A pattern that --pattern names; false: no such. */
bool tok_build_knows_pattern(const char *name);
/* "gpt2, llama3, ..." */
const char *tok_build_pattern_names(arena *a);

#endif
