/* A writer: the texts that follow many prompts, several at a time.
 *
 * It works in the slots of a scorer: each text that is being written has one. A pass computes the
 * next token of all of them, so the weights are read once for as many tokens. When a text ends, the
 * next prompt takes its slot; what the prompts begin with in common (a task's examples) is computed
 * once.
 *
 * A text depends on its request and the model alone, to the bit: not on the other texts, their
 * order, how many are written at a time or the number of threads. */
#ifndef INFER_WRITER_H
#define INFER_WRITER_H

#include "infer/generate.h"
#include "infer/scorer.h"

typedef struct write_item {
    generate_request rq; /* prompt and answer have at most as many tokens as the scorer was told */
    tok_ids ids;         /* results, as those of generate_run */
    strbuf text;
    generate_result result;
} write_item;

/* Writes all. done (may be NULL) is called with the number of each text when it is whole; what it
 * returns, other than ST_OK, ends the call. limits: of the model; its Tmax is that of the scorer at
 * most. ST_STOPPED: the interrupt of an item. Else as generate_run, for any of them. */
typedef status (*write_done)(void *ctx, int64_t item, err *e);
status writer_run(scorer *s, const generate_limits *limits, write_item *items, int64_t n,
                  write_done done, void *ctx, err *e) ATH_MUST_USE;
void write_items_free(write_item *items, int64_t n); /* the results, and the list itself */

#endif
