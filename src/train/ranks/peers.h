/* The other ranks of a run, as a step needs them: gathering weights, reducing gradients, sums over
 * ranks, agreement on errors. With one rank every function returns at once or copies.
 *
 * Weights and gradients travel in units of parameters (param/units.h). step/traffic.h says which
 * collectives move a unit; they run on the side stream of the world, while forward and backward go
 * on. So each transfer has two functions, one that begins it and one that waits for it.
 *
 * Stages of a pipeline have other parameters and programs, and see the same samples. Only the one with
 * the last layers knows the losses, and tells the others.
 *
 * A copy of the weights is a set of ranks that together hold each parameter once. Without ZeRO,
 * every data-parallel rank has a copy (with its tensor-parallel partners); with ZeRO, every replica
 * has one.
 *
 * Order: peers_open (or peers_place, for a plan alone), peers_sharding for the store, peers_bind
 * when the store has memory, then the calls of steps; peers_settle before memory goes, peers_close.
 * All ranks make the same calls in the same order. When a rank is lost, the calls of the others
 * return at once, with results that mean nothing; comm_check then returns the error. */
#ifndef TRAIN_PEERS_H
#define TRAIN_PEERS_H

#include "op/vecops.h"
#include "run/config/config.h"
#include "step/traffic.h"

/* The transfers of one unit of parameters. */
typedef struct peers_unit {
    const char *weights, *grads; /* "weights of lm_head.weight", for traces and reports of hangs */
    comm_ticket gather, reduce;  /* begun last; 0: nothing travels */
    bool add_when_reduced;       /* the sum is in a slot: peers_reduced adds it to those before */
    void *piece; /* of the gather begun last, on its way from a file; NULL: of none */
} peers_unit;

typedef struct peers {
    mesh m;
    comm *copy;      /* the ranks of this rank's copy of the weights */
    bool first_copy; /* rank 0 belongs to that copy: its ranks write checkpoints */
    comm_world *own; /* the world that peers_open made, if it was given none */
    const param_store *store;
    struct offload *file; /* that has pieces of weights; NULL: none */
    peers_unit *unit;     /* [units] */
    bool narrow;          /* parallel.reduce_dtype is bf16 */
    comm_ticket newest;   /* of the transfer begun last; 0: there was none */
    struct {
        int copies;
        comm *group;
    } * sharer; /* tensor-parallel ranks that hold the same key/value heads (param_partial) */
    int n_sharers;
    int teller;   /* the stage that knows the losses */
    comm **stage; /* [stages] this rank and the one at its place in another stage; its own: NULL */
} peers;

/* world NULL: one rank alone. ST_USAGE: the sizes of parallel.* do not multiply to the number of
 * ranks. */
status peers_open(peers *p, const config *c, comm_world *world, err *e) ATH_MUST_USE;
/* The layout as rank 0 sees it, without any other rank: for plans. */
status peers_place(peers *p, const config *c, err *e) ATH_MUST_USE;
/* How many ranks hold one copy of the weights together. */
int peers_copy_ranks(const peers *p, const config *c);
/* Waits for every transfer that was begun; afterwards their memory may be freed. */
void peers_settle(peers *p);
void peers_close(peers *p);
/* Called when the store has its arrays. file: what of it lies in a file; NULL: nothing. */
void peers_bind(peers *p, arena *a, const param_store *s, struct offload *file);

int peers_rank(const peers *p); /* of the world */
int peers_ranks(const peers *p);
/* How the store is to be laid out over these ranks. */
param_sharding peers_sharding(const peers *p, const config *c);

/* Begins to gather the weights of unit u; waits for it. */
void peers_gather(peers *p, int u);
void peers_gathered(peers *p, int u);
/* The same for all units that every rank keeps whole. Called after the weights that a rank owns
 * were loaded or initialised. */
void peers_gather_all(peers *p);
/* Begins to sum the gradients of a unit over ranks, as a STEP_REDUCE entry says; waits for it. */
void peers_reduce(peers *p, const step_entry *e);
void peers_reduced(peers *p, int u);

/* Begins to send `bytes` to a stage, or to receive them from it. what: the same on both ranks, and as
 * long as the transfer. To be waited for by comm_wait. */
typedef struct peers_parcel {
    int stage; /* the other one */
    bool sends;
    dev *dev; /* that has `data` */
    void *data;
    int64_t bytes;
    const char *what;
} peers_parcel;
comm_ticket peers_pass(peers *p, const peers_parcel *parcel);
/* Sums the gradients of unit u over the first and the last stage, which have it both. */
void peers_tie(peers *p, int u);
/* What the stage with the last layers knows comes to all stages. */
void peers_tell_stages(const peers *p, void *x, int64_t bytes);
/* Sums over stages of what each knows of its layers. */
void peers_sum_stages(const peers *p, int64_t *x, int n, const char *what);

/* Sums over data-parallel ranks, which have different samples, of what each knows of whole
 * sequences. what: its name in reports of hangs. */
int64_t peers_sum_count(const peers *p, int64_t x, const char *what);
void peers_sum_counts(const peers *p, int64_t *x, int n, const char *what);
/* Sums over these and context-parallel ranks, of what each knows of its tokens. */
double peers_sum_loss(const peers *p, double x);
void peers_sum_tokens(const peers *p, int64_t *x, int n, const char *what);
/* x[n * dp]: each data-parallel rank has set its own n, a context-parallel rank those of its tokens and the
 * others to 0; afterwards all ranks have all. */
void peers_share_rows(const peers *p, float *x, int64_t n);
/* x[ranks]: each rank has set x[rank], and the others to 0; afterwards all ranks have all. */
void peers_share_count(const peers *p, int64_t *x);
/* Sums over the ranks of one copy of the weights. */
double peers_sum_copy(const peers *p, double x);
void peers_sum_limbs(const peers *p, int64_t limb[VEC_LIMBS]);
/* Digest of a parameter of the whole model (param_store_whole), by its number there, and norm of its
 * gradient. */
uint64_t peers_param_digest(const peers *p, int index);
double peers_grad_norm(const peers *p, dev *d, int index);
/* *digest: in, of what this rank counts; out, of all weights. ST_RANK: copies differ; the error
 * names the first parameter that does. */
status peers_digest(peers *p, uint64_t *digest, err *e) ATH_MUST_USE;
/* Whether x is true on any rank. */
bool peers_any(const peers *p, bool x);
/* The smallest x of all ranks. */
int64_t peers_least(const peers *p, int64_t x);
/* Whether no rank has a smaller x. */
bool peers_is_first(const peers *p, int64_t x);
/* The x of rank 0. */
int64_t peers_first(const peers *p, int64_t x);
/* x[bytes] becomes that of rank 0. */
void peers_tell(const peers *p, void *x, int64_t bytes);
/* Combines the results of a call that each rank made alone. ST_OK: all succeeded. Otherwise all
 * ranks get the status and error of the lowest rank that failed. Where the world has failed, a rank gets
 * its own, or else the world's. */
status peers_agree(const peers *p, status st, err *e) ATH_MUST_USE;

#endif
