/* Pre-tokenizers: how a text is cut into the pieces inside which merges happen.
 *
 * The published patterns have hand-written matchers that cover every byte of a text; any other
 * pattern goes through PCRE2. Text here is valid UTF-8. */
#ifndef TOK_PRETOK_PRETOK_H
#define TOK_PRETOK_PRETOK_H

#include "base/arena.h"
#include "base/status.h"
#include "tok/text/piece.h"

typedef enum pretok_kind {
    PRETOK_GPT2,    /* hand-written matchers: */
    PRETOK_CL100K,  /* numbers in groups of up to max_digits; Llama 3 has 3, Qwen 1 */
    PRETOK_DIGITS,  /* \p{N}, or runs of it when max_digits is 0 */
    PRETOK_LITERAL, /* a fixed string */
    PRETOK_REGEX,   /* PCRE2 */
    PRETOK_PREFIX,  /* cuts nothing, puts a space before a piece that has none */
} pretok_kind;

/* What becomes of the pieces that match and of those between. */
typedef enum pretok_behavior {
    PRETOK_ISOLATED,
    PRETOK_REMOVED,
    PRETOK_CONTIGUOUS,
    PRETOK_WITH_PREVIOUS,
    PRETOK_WITH_NEXT,
} pretok_behavior;

typedef struct pretok_step {
    pretok_kind kind;
    int max_digits;
    pretok_behavior behavior;
    bool invert;
    const char *literal;
    size_t n_literal;
    void *regex; /* pcre2_code */
} pretok_step;

/* The regular expressions of the named patterns, as they stand in tokenizer.json. */
extern const char *const PRETOK_GPT2_REGEX;
extern const char *const PRETOK_LLAMA3_REGEX;
/* A step for a regular expression: a hand-written matcher if it is a published one, else PCRE2.
 * ST_FORMAT: does not compile. */
status pretok_step_regex(pretok_step *s, const char *regex, err *e) ATH_MUST_USE;
void pretok_step_free(pretok_step *s);

/* Finds the next match at or after `from`: [*start, *end), empty only for PRETOK_REGEX (look-ahead
 * alone); *start == len when there is none. match_data: see pretok_regex_find. */
status pretok_find(const pretok_step *s, const char *text, size_t len, size_t from, size_t *start,
                   size_t *end, void **match_data, err *e) ATH_MUST_USE;
/* End of the pre-token that starts at `from`, for the matchers that cover the text. */
size_t pretok_gpt2_end(const char *text, size_t len, size_t from);
size_t pretok_cl100k_end(const char *text, size_t len, size_t from, int max_digits);

/* regex.c */
status pretok_regex_compile(void **code, const char *regex, err *e) ATH_MUST_USE;
void pretok_regex_free(void *code);
/* *match_data is made on first use and freed by pretok_match_data_free: one per thread. ST_FORMAT:
 * the match took more than the limit of steps. */
status pretok_regex_find(void *code, const char *text, size_t len, size_t from, size_t *start,
                         size_t *end, void **match_data, err *e) ATH_MUST_USE;
void pretok_match_data_free(void *match_data);

/* Cuts a piece by steps[0..n) and calls `emit` on the results, in order. */
struct tok_enc;
typedef status pretok_emit_fn(struct tok_enc *enc, const tok_piece *word);
status pretok_run(struct tok_enc *enc, const pretok_step *steps, int n, const tok_piece *text,
                  pretok_emit_fn *emit) ATH_MUST_USE;

#endif
