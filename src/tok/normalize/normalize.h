/* Normalizers: what is done to a text before it is cut. Each step maps a piece of valid UTF-8 to
 * another, with the place of every byte when the piece has places.
 *
 * Text and places are those of Hugging Face tokenizers 0.23 (their Unicode versions included, see
 * props.h), and for NORM_SENTENCEPIECE those of sentencepiece's own normalizer.
 *
 * Reading order: job.h (how a step writes), normalize.c (the table of kinds), props.h (what is known
 * of a character), then one file a concept: filter.c, letters.c, forms.c, replace.c, charsmap.c with
 * precompiled.c and sentencepiece.c. */
#ifndef TOK_NORMALIZE_NORMALIZE_H
#define TOK_NORMALIZE_NORMALIZE_H

#include "base/arena.h"
#include "tok/text/piece.h"

typedef enum norm_kind {
    NORM_NFC, /* normal forms, of the characters of Unicode 9 */
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_NMT,              /* control characters away, other white space to ' ' */
    NORM_STRIP_ACCENTS,    /* combining marks away */
    NORM_STRIP_NONSPACING, /* BERT: those of category Mn only */
    NORM_CLEAN,            /* BERT: control characters away, white space to ' ' */
    NORM_CHINESE,          /* BERT: spaces around each Chinese character */
    NORM_LOWERCASE,
    NORM_STRIP, /* white space at the ends away */
    NORM_BYTE_LEVEL,
    NORM_PREPEND,
    NORM_REPLACE_LITERAL,
    NORM_REPLACE_REGEX,
    NORM_PRECOMPILED, /* the rules of a sentencepiece model, as tokenizers applies them */
    NORM_SENTENCEPIECE
} norm_kind;

struct norm_charsmap;
struct norm_spiece;

typedef struct norm_step {
    norm_kind kind;
    bool left, right;                 /* STRIP: which ends */
    const char *pattern, *content;    /* REPLACE_LITERAL; PREPEND has content only */
    size_t n_pattern, n_content;      /* pattern may be empty: matches between all characters */
    void *regex;                      /* REPLACE_REGEX: of pretok_regex_compile, owned */
    const struct norm_charsmap *map;  /* PRECOMPILED, SENTENCEPIECE (NULL: no rules) */
    const struct norm_spiece *spiece; /* SENTENCEPIECE */
} norm_step;

/* How a sentencepiece model normalizes: its NormalizerSpec, treat_whitespace_as_suffix of its
 * TrainerSpec and its USER_DEFINED pieces, which are never changed. */
typedef struct norm_spiece_spec {
    const void *charsmap; /* precompiled_charsmap, may be empty */
    size_t n_charsmap;
    bool add_dummy_prefix, remove_extra_whitespaces, treat_whitespace_as_suffix;
    const char *const *symbol; /* [n_symbols], with lengths in n_symbol */
    const size_t *n_symbol;
    int32_t n_symbols;
} norm_spiece_spec;

/* The steps that hold data copy it to `mem`. ST_FORMAT: the rules are corrupt, a symbol is not
 * UTF-8. */
status norm_step_precompiled(norm_step *s, arena *mem, const void *charsmap, size_t n,
                             err *e) ATH_MUST_USE;
status norm_step_sentencepiece(norm_step *s, arena *mem, const norm_spiece_spec *spec,
                               err *e) ATH_MUST_USE;
void norm_step_free(norm_step *s);
/* Whether a step can take characters away at the front, so that `first` of the result is only known
 * with places. */
bool norm_moves_front(const norm_step *s);

/* A character on its way through a normal form, see job.h for `change`. */
typedef struct norm_char {
    uint32_t cp;
    int16_t change;
    uint8_t ccc; /* combining class */
} norm_char;

/* Scratch of one encode call: the text before and after a step. Initialise with {0}. */
typedef struct norm_work {
    tok_text text[2];
    norm_char *chars, *sorted;
    size_t cap_chars, cap_sorted;
    void *match_data; /* of pretok_regex_search */
} norm_work;
void norm_work_free(norm_work *w);

/* Runs steps[0..n) on `in`. *out points into `w` (valid until its next use) or into `in` when
 * nothing changed. ST_FORMAT: a pattern gave up, rules are corrupt, or the text grows out of all
 * proportion. */
status norm_run(const norm_step *steps, int n, const tok_piece *in, norm_work *w, tok_piece *out,
                err *e) ATH_MUST_USE;

#endif
