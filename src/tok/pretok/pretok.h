/* Pre-tokenizers: how a text is cut into the pieces inside which merges happen.
 *
 * A pre-tokenizer is a chain of steps; each cuts the pieces of the one before it (split.c) or
 * changes their text (change.c). The published patterns have hand-written matchers (match*.c,
 * listed in patterns.c); any other goes through a general engine (regex.h). Text here is valid
 * UTF-8.
 *
 * Reading order: this header, scan.h and match.c, patterns.c, split.c, pretok_json.c. */
#ifndef TOK_PRETOK_PRETOK_H
#define TOK_PRETOK_PRETOK_H

#include "base/arena.h"
#include "base/status.h"
#include "tok/text/piece.h"

typedef enum pretok_kind {
    PRETOK_COVER,     /* a matcher whose matches leave no gap: step.end */
    PRETOK_FIND,      /* a matcher whose matches leave gaps: step.find */
    PRETOK_LITERAL,   /* a fixed string */
    PRETOK_REGEX,     /* any pattern */
    PRETOK_FIXED,     /* pieces of step.length characters */
    PRETOK_SCRIPTS,   /* cuts where the script changes */
    PRETOK_PREFIX,    /* cuts nothing, puts a space before a piece that has none */
    PRETOK_METASPACE, /* cuts nothing, puts step.literal for each space */
    PRETOK_ALPHABET,  /* cuts nothing, puts the printable character for each byte */
    PRETOK_BYTES,     /* takes that back */
} pretok_kind;

/* What becomes of the pieces that match and of those between. */
typedef enum pretok_behavior {
    PRETOK_ISOLATED,
    PRETOK_REMOVED,
    PRETOK_CONTIGUOUS,
    PRETOK_WITH_PREVIOUS,
    PRETOK_WITH_NEXT,
} pretok_behavior;

/* When PRETOK_METASPACE puts its mark before a piece that does not begin with it. */
typedef enum pretok_prepend { PRETOK_ALWAYS, PRETOK_FIRST, PRETOK_NEVER } pretok_prepend;

/* End of the match that starts at `from` (< n). */
typedef size_t pretok_end_fn(const char *s, size_t n, size_t from);
/* The next match at or after `from`, not empty; *start == n when there is none. */
typedef void pretok_find_fn(const char *s, size_t n, size_t from, size_t *start, size_t *end);

typedef struct pretok_step {
    pretok_kind kind;
    pretok_behavior behavior;
    bool invert;
    pretok_prepend prepend;
    pretok_end_fn *end;
    pretok_find_fn *find;
    const char *literal;
    size_t n_literal;
    size_t length;
    void *regex;
} pretok_step;

/* ---- matchers ---- */

pretok_end_fn pretok_gpt2_end, pretok_cl100k_end;
/* One character each: Rust's numbers, punctuation as BERT has it. */
pretok_find_fn pretok_find_number, pretok_find_punct;
/* Words: what lies between white space; `\w+|[^\w\s]+` by Rust's tables; BERT's, that is
 * punctuation or what lies between it and white space. */
pretok_find_fn pretok_find_unspaced, pretok_find_words, pretok_find_bert_words;

/* ---- published patterns ---- */

/* One member of a pre-tokenizer: a pattern to split by, or all numbers or all punctuation. */
typedef enum pretok_part_kind {
    PRETOK_PART_REGEX,  /* isolated */
    PRETOK_PART_DIGITS, /* each number by itself */
    PRETOK_PART_DIGIT_RUNS,
    PRETOK_PART_PUNCT_RUNS,
} pretok_part_kind;
typedef struct pretok_part {
    pretok_part_kind kind;
    const char *regex;
} pretok_part;

enum { PRETOK_MAX_PARTS = 6 };
/* A published pre-tokenizer by its names: ours first, then those of GGUF's tokenizer.ggml.pre.
 */
typedef struct pretok_named {
    const char *names; /* separated by spaces */
    int n_parts;
    pretok_part part[PRETOK_MAX_PARTS];
} pretok_named;
extern const pretok_named PRETOK_NAMED[];
extern const int PRETOK_NAMED_N;
/* NULL: no such name. */
const pretok_named *pretok_by_name(const char *name);
/* The step of one part. */
status pretok_step_part(pretok_step *s, const pretok_part *part, err *e) ATH_MUST_USE;

/* The pattern of gpt2, as it stands in tokenizer.json. */
extern const char *const PRETOK_GPT2_REGEX;
/* A step that isolates the matches of a pattern: a hand-written matcher if it is a published one,
 * else the general engine. ST_FORMAT: the pattern is wrong or has something not supported. */
status pretok_step_regex(pretok_step *s, const char *regex, err *e) ATH_MUST_USE;
void pretok_step_free(pretok_step *s);
/* Whether a pre-token ends between any letter and white space after it, whatever else the text
 * holds: there a long text can be cut. */
bool pretok_ends_letters(const pretok_step *s);
/* Whether the step looks at single characters only, so that a cut next to a letter or white space
 * changes nothing. */
bool pretok_is_single(const pretok_step *s);

/* ---- any pattern: regex.h ---- */

/* ST_FORMAT: wrong or not supported, saying at which character. */
status pretok_regex_compile(void **code, const char *regex, err *e) ATH_MUST_USE;
/* The same of a pattern of Python's re. Its groups, 0 to pretok_regex_groups - 1, lie where
 * pretok_regex_group says after a match; false: the match went by another way. */
status pretok_regex_compile_python(void **code, const char *regex, err *e) ATH_MUST_USE;
int pretok_regex_groups(const void *code);
bool pretok_regex_group(const void *match_data, int i, size_t *start, size_t *end);
void pretok_regex_free(void *code);
/* The next match at or after `from` (at most len); it may be empty, also at the end. *match_data is
 * made on first use and freed by pretok_match_data_free: one per thread. ST_FORMAT: the match took
 * more steps than are granted for a text of this length. */
status pretok_regex_search(void *code, const char *text, size_t len, size_t from, size_t *start,
                           size_t *end, bool *found, void **match_data, err *e) ATH_MUST_USE;
/* The same; no match is *start == len and *end > len. */
status pretok_regex_find(void *code, const char *text, size_t len, size_t from, size_t *start,
                         size_t *end, void **match_data, err *e) ATH_MUST_USE;
/* Before a text that has nothing to do with the one before: as if made anew. NULL is fine. */
void pretok_match_data_begin(void *match_data);
void pretok_match_data_free(void *match_data);

/* ---- running ---- */

/* Cuts a piece by steps[0..n) and calls `emit` on the results, in order. */
struct tok_enc;
typedef status pretok_emit_fn(struct tok_enc *enc, const tok_piece *word);
status pretok_run(struct tok_enc *enc, const pretok_step *steps, int n, const tok_piece *text,
                  pretok_emit_fn *emit) ATH_MUST_USE;
/* change.c: one step that changes text; *out is `text` itself or lives in the step's buffer. */
void pretok_change(struct tok_enc *enc, const pretok_step *step, const tok_piece *text,
                   tok_piece *out);

#endif
