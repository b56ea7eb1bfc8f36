/* Sentences and capital words of English texts, as NLTK counts them. */
#ifndef EVAL_TEXT_UNITS_H
#define EVAL_TEXT_UNITS_H

#include "eval/task.h"

/* Sentences by the rules of Punkt (Kiss & Strunk 2006), with a list of abbreviations instead of what
 * it learns from texts: . ? ! end a sentence where white space or a closing mark follows, but not
 * after an abbreviation, an ellipsis or an initial, or after a number before a small letter. */
int64_t eval_count_sentences(eval_text s);
/* Tokens of the Penn Treebank's kind ("don't" is two) in which all letters are capital ones. */
int64_t eval_count_capitals(eval_text s);
/* Whether there are letters, and all of them are capital ones, or small ones: Python's isupper,
 * islower. */
bool eval_is_upper(eval_text s);
bool eval_is_lower(eval_text s);

#endif
