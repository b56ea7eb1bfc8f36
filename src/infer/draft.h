/* Drafts: tokens that are tried in advance. A pass computes them as further rows of a text, after
 * its last token, and costs hardly more than with one row. What the sampler picks after each row
 * decides whether the next one was right; from the first wrong one on they are dropped. So the text
 * is the same to the bit as without drafts, greedy or not (Leviathan et al. 2023 draw differently:
 * there only the distribution stays).
 *
 * They come from the text itself, where its last tokens came before (prompt lookup, Saxena 2023),
 * from the model's own module of multi-token prediction (engine_ahead.c), or from a smaller model with
 * the same tokenizer. */
#ifndef INFER_DRAFT_H
#define INFER_DRAFT_H

#include "infer/generator.h"

enum { DRAFT_MOST = 16 }; /* tokens at a time */

/* What followed the longest of the earlier places that ended as ids[n] does, the latest of equal
 * ones; a repeated end goes on repeating. Returns how many, `most` or none. */
int draft_from_text(const int32_t *ids, int64_t n, int most, int32_t *out);

/* What the model finds most likely after ids[n], which has room for `most` more; ids from `below`
 * on end it. It reads a limited part of a long text at a time, and has nothing until it has read
 * all. */
int draft_from_model(generator *g, int32_t *ids, int64_t n, int most, int32_t below, int32_t *out);

/* The first of the largest of logits[n_ids]. */
int32_t draft_most_likely(const float *logits, int32_t n_ids);

/* The two tokenizers are the same. ST_USAGE: they are not. */
status draft_check(const tok *t, const tok *draft, err *e) ATH_MUST_USE;

/* How many to try next: more after those that were right, fewer and more rarely after others. */
typedef struct draft_pace {
    int length; /* 0: at the beginning */
    int misses, pause;
    int patience; /* misses in a row after which it does not wait yet */
} draft_pace;
int draft_next_length(draft_pace *p);
void draft_learn(draft_pace *p, int tried, int right);

#endif
