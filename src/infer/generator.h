/* A generator: the recorded programs of a model for one sequence (batch 1), and the KV cache that they share.
 *
 * A pass is one run of a program: T rows of ids go in, their keys and values go into the cache, and the logits [V]
 * of the last row come out. A prefill program has many rows and reads a prompt; the decode program has one row and
 * reads the token that was picked. All work on the same cache at the positions they are given, so the logits do not
 * depend on how a sequence is cut into passes.
 *
 * The generator remembers which tokens the cache holds. Give it the whole sequence each time: what it has in common
 * with the one before, from the start on, is not computed again. So a conversation costs only its new tokens.
 *
 * A linear layer has no keys but a state, which is that of the last token: of such a model the sequence before is used only
 * where it goes on.
 * A model with an encoder is told a source first (generator_set_source), which it reads at once; the sequence is then what
 * its decoder writes.
 *
 * plan_generator makes one: the plan records the programs and owns the memory on the device;
 * generator_free frees what the generator itself holds. */
#ifndef INFER_GENERATOR_H
#define INFER_GENERATOR_H

#include <signal.h>

#include "op/pick.h"
#include "prog/prog.h"
#include "tok/tok.h"

enum { GENERATOR_PREFILLS = 3 };

/* A program (TASK_LOGITS, B = 1) with its inputs and its output. p NULL: there is none. */
typedef struct generator_pass {
    const prog *p;
    int64_t T;                                              /* rows of a pass */
    prog_port source, source_pos, source_start, source_end; /* [T] of an encoder */
    prog_port slots_end;                                    /* [P] of one with soft experts */
    prog_port seen_start, seen_end; /* [T] of a decoder: which tokens of the source each row sees */
    prog_port ids;                  /* [T] */
    prog_port pos;                  /* [T]: positions in the sequence */
    prog_port qpos;                 /* [1]: the position of row 0, where the cache is written */
    prog_port
        span; /* [1,2]: qpos, and how many rows are no padding; of models with states (linear layers) */
    prog_port rows;   /* [1]: the row whose logits are wanted */
    prog_port logits; /* [V], fp32 */
} generator_pass;

typedef struct generator {
    /* Given by who makes it. */
    generator_pass prefill[GENERATOR_PREFILLS]; /* longest first; p NULL at the end */
    generator_pass decode;                      /* T = 1 */
    generator_pass encode[GENERATOR_PREFILLS];  /* of an encoder (TASK_ENCODE), longest first */
    dev *dev;
    int Smax;      /* longest source; 0: there is no encoder */
    int32_t begin; /* the id with which the decoder begins, after a source */
    int Tmax;      /* tokens that the cache has room for */
    int32_t vocab; /* V: columns of the logits */
    int32_t n_ids; /* ids below this may be picked; those from here on only pad the vocabulary */
    /* Runs a program; NULL: prog_replay does. */
    void (*replay)(void *ctx, const prog *p, const op_run *run);
    void *replay_ctx;

    /* Its own; zero at first. */
    int64_t n_source;           /* tokens of the source */
    tok_ids cached;             /* the tokens whose keys and values are in the cache */
    int32_t *inputs;            /* ids and positions of the longest pass */
    const generator_pass *last; /* pass */
    float *logits;              /* of it */
} generator;

/* The ports of a program, found by name; p may be NULL. */
generator_pass generator_pass_of(const prog *p);
/* Tells soft experts that the source has n tokens; nothing in a program without such. */
void generator_put_slots(const generator_pass *k, int64_t n);
/* Which lengths the prefill programs should have when passes may have up to most_T rows: falling, each a quarter of
 * the one before; 0: no such program. */
void generator_prefill_lengths(int most_T, int T[GENERATOR_PREFILLS]);
/* Rows of the next pass when n tokens are to go and the cache has room for `room` rows: one of T, or 1 for the decode
 * program. It may be more than n: one padded pass can be cheaper than several. */
int64_t generator_next_rows(const int T[GENERATOR_PREFILLS], int64_t n, int64_t room);
/* Forgets what the cache holds: the next sequence is computed from its first token. */
void generator_reset(generator *g);
/* The source of what is generated from now on: 0 < n <= Smax ids. */
void generator_set_source(generator *g, const int32_t *ids, int64_t n);
/* Frees what the generator itself holds. */
void generator_free(generator *g);
/* Makes ids[0..n), 0 < n <= Tmax, the sequence, and returns the logits [V] for the token after it. They stay until
 * the next call and may be overwritten. *reused (may be NULL) gets the number of tokens that were in the cache.
 * `stop` (may be NULL) is looked at before each pass, for signals: when it is not 0 the call returns NULL, and the
 * cache keeps what was computed. */
float *generator_continue(generator *g, const int32_t *ids, int64_t n,
                          const volatile sig_atomic_t *stop, int64_t *reused);
/* The same, but the logits stay where they were computed; false for NULL. Then one of the others brings
 * them to the host, or what the device picks from them: -1: they are no distribution. */
bool generator_advance(generator *g, const int32_t *ids, int64_t n,
                       const volatile sig_atomic_t *stop, int64_t *reused);
float *generator_logits(generator *g);
int32_t generator_pick(generator *g, const pick_rule *rule);

#endif
