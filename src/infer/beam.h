/* Beam search: of all continuations that it looks at, those of greatest log-probability.
 *
 * Each step gives every beam its most likely next tokens and keeps the best continuations of all beams. One that
 * ends is put aside with its score, log p divided by length^length_penalty, and the best that were put aside are the
 * result. The order of work is that of transformers' generate, so tokens and scores are the same.
 *
 * Beams live in slots 1 .. beams of a scorer, made by scorer_size_for_beams. A beam that goes on keeps its parent's
 * slot; where a parent has several children, the others take slots of beams that died, and only the rows by
 * which these differ are copied (scorer.c). */
#ifndef INFER_BEAM_H
#define INFER_BEAM_H

#include "infer/generate.h"
#include "infer/scorer.h"

enum { BEAMS_MOST = 64 };

/* When the search ends, once as many texts as there are beams were put aside. */
typedef enum beam_stop {
    BEAM_STOP_UNLIKELY, /* no beam is better than the worst of these, were it to end now ("false") */
    BEAM_STOP_FIRST,    /* at once ("true") */
    BEAM_STOP_NEVER     /* no beam can become better than the worst, at any length ("never") */
} beam_stop;

typedef struct beam_request {
    /* Of this: prompt, max_new, min_new, end, ignore_end, interrupt, and of `sample` what needs no draw:
     * repetition_penalty, no_repeat_ngram. */
    generate_request rq;
    int beams; /* 1 .. BEAMS_MOST */
    double length_penalty;
    beam_stop stop;
} beam_request;

typedef struct beam_text {
    tok_ids ids; /* new tokens, without the one that ends the text */
    double score;
    generate_finish finish;
} beam_text;

/* The best first: texts[rq->beams], each freed with tok_ids_free; *n: how many there are, fewer only where the
 * search was interrupted, or the vocabulary has no more. ST_USAGE, ST_NONFINITE: as generate_run. */
status beam_run(scorer *s, const generate_limits *limits, const beam_request *rq, beam_text *texts,
                int *n, err *e) ATH_MUST_USE;
/* The same on a generator, also for models with an encoder, which reads the prompt: beams take turns in its one
 * cache, and each computes again what it does not share with the one before. */
status beam_run_in_turn(generator *g, const beam_request *rq, beam_text *texts, int *n,
                        err *e) ATH_MUST_USE;

#endif
