/* A scorer: log-likelihoods of continuations, for evaluation.
 *
 * A request is a text of tokens whose last ones are scored: the sum of log p(token | all before
 * it). Most requests begin alike: a task's examples, a document's question. What requests have in
 * common is computed once.
 *
 *   trunk   what comes before the scored tokens of a group of requests (the choices of a document)
 *   lane    the inputs that are computed for the scored tokens of a request; requests that differ
 *   in their last
 *           token only have one lane
 *
 * The cache has slots, each for one sequence. A pass runs B lanes of T rows each, in slots 0 to
 * B-1. Trunks lie in the slots after these, and are copied to the front for the lanes that need
 * them (scorer.c).
 *
 * A score depends on its request and the model alone, to the bit: not on the other requests, their
 * order, the number of slots or the number of threads. All passes compute a row in the same order,
 * since every product has at least SCORER_LEAST_ROWS rows and so goes through the same kernel.
 *
 * plan_scorer makes one; scorer_free frees what it holds itself. */
#ifndef INFER_SCORER_H
#define INFER_SCORER_H

#include <signal.h>

#include "model/family.h"
#include "op/pick.h"
#include "tok/tok.h"

/* Rows of logits that exist at a time; rows of a pass at least. */
enum { SCORER_HEAD_ROWS = 128, SCORER_LEAST_ROWS = 64 };

typedef struct scorer_size {
    int lanes;   /* sequences of a pass at most */
    int slots;   /* of the cache: lanes and trunks */
    int longest; /* tokens that a sequence may have */
    int tok;     /* tokens of a slot: more, since passes have padding; 0: there is no scorer */
    int writes;  /* sequences that are written at a time, one of them idle (writer.h); 0: none */
} scorer_size;

/* For requests of up to `longest` tokens, with a cache of about `cache_bytes`. */
scorer_size scorer_size_for(const model_config *mc, dtype compute, int64_t longest,
                            int64_t cache_bytes);
/* For beam search (beam.h) over texts of up to `longest` tokens: a slot for each beam. */
scorer_size scorer_size_for_beams(int64_t longest, int beams);
/* Adds what a writer of up to `texts` texts at a time needs. */
void scorer_size_add_writer(scorer_size *size, int64_t texts);

/* A pass: B sequences of T rows. There is a number of shapes; B 0: there is none of that number. */
typedef struct scorer_shape {
    int B, T;
} scorer_shape;
scorer_shape scorer_shape_at(const scorer_size *size, int number);
int scorer_shapes(const scorer_size *size);

typedef struct scorer scorer;
/* Where its keys and values are: the plan's cache on the device. */
typedef struct scorer_cache {
    void *at;
    dtype dt;
    int tp; /* tensor-parallel ranks, which share the heads */
} scorer_cache;
/* The model and the programs must outlive it. */
scorer *scorer_new(dev *d, const model_config *mc, const scorer_size *size,
                   const scorer_cache *cache);
/* Who runs its programs, if not prog_replay. */
void scorer_set_replay(scorer *s, void (*replay)(void *ctx, const prog *p, const op_run *run),
                       void *ctx);
/* The programs (TASK_FILL and TASK_SCORE) of a shape. */
void scorer_set_pass(scorer *s, int number, const prog *fill, const prog *score);
/* The program (TASK_LOGITS, a row of each of `writes` sequences) of a writer. */
void scorer_set_write(scorer *s, const prog *write);
void scorer_free(scorer *s); /* NULL is fine */

typedef struct score_request {
    const int32_t *ids;  /* [n] */
    int32_t n, n_scored; /* 0 < n_scored < n; n - 1 at most as many as scorer_size_for was told */
    double loglik;       /* the result: a sum of natural logarithms */
    float *nll;          /* [n_scored] its terms, each with the other sign; NULL: not wanted */
} score_request;

typedef struct score_options {
    const volatile sig_atomic_t *interrupt; /* nonzero: stop after this pass; may be NULL */
    void (*progress)(void *ctx, int64_t done, int64_t all); /* requests; may be NULL */
    void *ctx;
} score_options;

/* What a run computed, in rows: those that passes had, and those that requests would have had one
 * by one. */
typedef struct score_stats {
    int64_t passes, rows, rows_alone;
} score_stats;

/* Scores all. ST_STOPPED: interrupted; ST_NONFINITE: a score is not a finite number. */
status scorer_run(scorer *s, score_request *requests, int64_t n, const score_options *opt,
                  score_stats *stats, err *e) ATH_MUST_USE;
/* ST_NONFINITE: one of the results is not a finite number. */
status score_check(const score_request *requests, int64_t n, err *e) ATH_MUST_USE;

/* ---- for writer.c ---- */

/* Puts ids[0..n) into slot b, 0 < b < writes; what no slot has of them is computed in slot
 * 0. *interrupt nonzero: false, and it is not whole. */
bool scorer_fill_slot(scorer *s, int b, const int32_t *ids, int64_t n,
                      const volatile sig_atomic_t *interrupt);
/* The token after those that slot b holds; id -1: the lane is idle. */
void scorer_set_next(scorer *s, int b, int32_t id);
/* One pass with what was set for all lanes. Of its logits [writes, vocab] the host gets all, until the next
 * pass, or what the device picks from each row by its rule, where it can (op/pick.h). */
void scorer_write(scorer *s);
float *scorer_written(scorer *s);
bool scorer_picks(const scorer *s);
void scorer_pick(const scorer *s, int32_t vocab, int32_t n_ids, const pick_rule *rule,
                 int32_t *ids);
const scorer_size *scorer_get_size(const scorer *s);

#endif
