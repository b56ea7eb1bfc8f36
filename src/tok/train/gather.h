/* Text to words: runs the normalizer and pre-tokenizer of a tokenizer over text on all cores and
 * counts the words that come out.
 *
 * The tokenizer is a shell, with the stages of the one to be trained but no vocabulary yet, so what
 * is counted is what encoding will see. The words counted do not depend on the number of threads.
 */
#ifndef TOK_TRAIN_GATHER_H
#define TOK_TRAIN_GATHER_H

#include "tok/internal.h"
#include "tok/train/words.h"

typedef enum gather_cut {
    CUT_NONE,   /* words as the pre-tokenizer gives them */
    CUT_PIECES, /* cut further where no piece of a SentencePiece vocabulary may cross, see pieces.h
                 */
    CUT_DIGITS, /* the same, and every digit alone */
} gather_cut;

typedef struct gather gather;

gather *gather_new(const tok *shell, gather_cut cut, int64_t ram_bytes,
                   const tok_train_options *opt);
void gather_free(gather *g);
/* Takes a document. ST_FORMAT: a pattern gave up. */
status gather_add(gather *g, const char *text, size_t len, err *e) ATH_MUST_USE;
/* The words of all documents so far; they stay the gather's. */
status gather_words(gather *g, word_set **words, err *e) ATH_MUST_USE;
/* Frees the words, which training no longer needs once it has laid them out. */
void gather_drop_words(gather *g);
/* How often a word was dropped because memory ran short, and the count it had at most. */
int64_t gather_dropped(const gather *g, int64_t *most);

#endif
