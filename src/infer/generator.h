/* A model that goes on with a sequence: its programs and the KV cache that they share.
 *
 * Tokens go through the prefill programs in pieces, or one at a time through the decode program.
 * All are ordinary programs over the same cache, so any cutting equals one full forward.
 *
 * The generator remembers which tokens its cache holds. A sequence that begins as the one before
 * did costs only what is new, so the turns of a conversation are simply given whole each time. */
#ifndef INFER_GENERATOR_H
#define INFER_GENERATOR_H

#include <signal.h>

#include "prog/prog.h"
#include "tok/tok.h"

enum { GENERATOR_PREFILLS = 3 };

/* A program (TASK_LOGITS, B = 1) and its inputs and outputs. p NULL: none. */
typedef struct generator_pass {
    const prog *p;
    int64_t T; /* rows of a pass */
    prog_port ids, pos, qpos, rows, logits;
} generator_pass;

typedef struct generator {
    generator_pass prefill[GENERATOR_PREFILLS], decode; /* one row of logits; prefill: by falling
                                                           length */
    dev *dev;
    int Tmax;
    int32_t vocab;   /* columns of the logits */
    int32_t n_ids;   /* ids below this may be picked: rows that pad the vocabulary never are */
    tok_ids cached;  /* the tokens whose keys and values are in the cache */
    int32_t *inputs; /* ids and positions of the longest pass */
    void *raw;       /* logits as the programs give them */
    float *logits;   /* the same as fp32 */
    /* Runs a program; NULL: prog_replay does. */
    void (*replay)(void *ctx, const prog *p, const op_run *run);
    void *replay_ctx;
} generator;

/* The pass of a program; p may be NULL. */
generator_pass generator_pass_of(const prog *p);
/* Lengths of the prefill programs that serve passes of up to most_T rows, falling; 0: none. */
void generator_prefill_lengths(int most_T, int T[GENERATOR_PREFILLS]);
/* Rows of the next pass when n tokens are to go and the cache has room for `room`: one of T, with
 * padding where that is cheaper than several passes, or 1. */
int64_t generator_next_rows(const int T[GENERATOR_PREFILLS], int64_t n, int64_t room);
/* Forgets the cache. */
void generator_reset(generator *g);
/* Frees what the generator itself holds. */
void generator_free(generator *g);
/* Makes ids[0..n), 0 < n <= Tmax, the sequence and returns the logits [V] after the last one, which
 * stay until the next call and may be overwritten. What the cache holds of the sequence is not
 * computed again; *reused (may be NULL) says how much. NULL: *stop (may be NULL) became nonzero
 * between two passes; the cache keeps what was computed. */
float *generator_continue(generator *g, const int32_t *ids, int64_t n,
                          const volatile sig_atomic_t *stop, int64_t *reused);

#endif
