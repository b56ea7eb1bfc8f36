/* The other ranks of a run, as a step needs them: weights gathered, gradients reduced, sums agreed
 * upon. Alone, everything is a copy or nothing.
 *
 * Which calls move a unit says step/unit_calls.h; they run on the side stream of the world while
 * forward and backward go on. */
#ifndef TRAIN_PEERS_H
#define TRAIN_PEERS_H

#include "op/vecops.h"
#include "run/config/config.h"
#include "step/unit_calls.h"

typedef struct peers_unit {
    const char *weights, *grads; /* how traces and reports call the transfers */
    comm_ticket gather, reduce;
    bool add_when_reduced; /* the sum lies where the next micro-batch's gradients will */
} peers_unit;

typedef struct peers {
    mesh m;
    comm *copy;      /* ranks that hold one copy of the weights between them */
    bool first_copy; /* rank 0 is one of them */
    comm_world *own; /* the world, where nobody gave one */
    const param_store *store;
    peers_unit *unit;
    bool narrow;        /* parallel.reduce_dtype is bf16 */
    comm_ticket newest; /* transfer; 0: there was none */
    struct {
        int copies;
        comm *group;
    } * sharer; /* tensor-parallel ranks that hold the same heads (param_partial) */
    int n_sharers;
} peers;

/* world NULL: one rank alone. ST_USAGE when the layout does not make the world's ranks. */
status peers_open(peers *p, const config *c, comm_world *world, err *e) ATH_MUST_USE;
/* The layout as the first of its ranks sees it, without peers: for plans. */
status peers_place(peers *p, const config *c, err *e) ATH_MUST_USE;
/* Ranks that hold one copy of the weights between them. */
int peers_copy_ranks(const peers *p, const config *c);
/* Waits for every transfer that was begun: then their memory may go. */
void peers_settle(peers *p);
void peers_close(peers *p);
/* Once the store has its arrays. */
void peers_bind(peers *p, arena *a, const param_store *s);

int peers_rank(const peers *p); /* of the world */
int peers_ranks(const peers *p);
/* How the store is to be laid out. */
param_sharding peers_sharding(const peers *p, const config *c);

/* Weights of unit u: begin, wait. */
void peers_gather(peers *p, int u);
void peers_gathered(peers *p, int u);
/* Of all units that are whole on every rank: after what a rank owns was loaded or drawn. */
void peers_gather_all(peers *p);
/* Gradients of a unit, as a STEP_REDUCE says: begin, wait. */
void peers_reduce(peers *p, const step_entry *e);
void peers_reduced(peers *p, int u);

/* Sums over the ranks that see other samples. */
int64_t peers_sum_count(const peers *p, int64_t x, const char *what);
double peers_sum_samples(const peers *p, double x);
/* x[n * ranks], of which this rank has filled its n: all of it. */
void peers_share_rows(const peers *p, float *x, int64_t n);
/* x[ranks], of which this rank has filled x[rank]: all of it, from zeros. */
void peers_share_count(const peers *p, int64_t *x);
/* Over the ranks of one copy. */
double peers_sum_copy(const peers *p, double x);
void peers_sum_limbs(const peers *p, int64_t limb[VEC_LIMBS]);
/* Of one parameter of the whole model: its digest, and the norm of its gradient. */
uint64_t peers_param_digest(const peers *p, int index);
double peers_grad_norm(const peers *p, dev *d, int index);
/* The digest of the weights, from this rank's share. ST_RANK when replicas differ, naming the
 * parameter. */
status peers_digest(peers *p, uint64_t *digest, err *e) ATH_MUST_USE;
/* Whether any rank says so. */
bool peers_any(const peers *p, bool x);
/* What rank 0 says. */
int64_t peers_first(const peers *p, int64_t x);
/* ST_OK on all ranks, or on each the failure of the first that failed. */
status peers_agree(const peers *p, status st, err *e) ATH_MUST_USE;

#endif
