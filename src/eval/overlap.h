/* Which documents of a task stand in training data: n-grams of tokens that both have (Brown et al.
 * 2020, appendix C, with tokens for words).
 *
 * A document is its question and right answer, or what is said in the turns of a dialogue: what all
 * contexts of the task begin with (description, examples) is left out. N-grams are compared by 64-bit hashes: a million of a task
 * and a trillion of data have one in common by chance in one of twenty searches. */
#ifndef EVAL_OVERLAP_H
#define EVAL_OVERLAP_H

#include "data/shard/shards.h"
#include "eval/task.h"
#include "tok/tok.h"

typedef struct overlap_doc {
    const eval_doc *doc;
    int64_t n;         /* n-grams; 0: it is shorter than one */
    int64_t found;     /* of these, in the data */
    uint64_t first_at; /* token of the data where the first one that was found begins */
} overlap_doc;

typedef struct overlap {
    overlap_doc *doc; /* [task->n] */
    int64_t n_found;  /* documents with at least one */
} overlap;

/* Reads all tokens of the shards once. t: the tokenizer with which they were made. ngram: 2 to 64.
 * Free with overlap_free, also after a failure. */
status overlap_find(overlap *o, const eval_task *task, const tok *t, const shards *s, int ngram,
                    err *e) ATH_MUST_USE;
void overlap_free(overlap *o);

#endif
