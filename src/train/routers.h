/* What the routers of a model with experts do in a step: how many tokens each expert gets, the sums of
 * its probs, and their entropy. They are summed over micro-batches and data-parallel ranks as integers, so every layout
 * and every division into micro-batches comes to the same numbers.
 *
 * Uses of them, in the order of a step:
 *   train.router.balance=global  the counts of the whole step go to the programs before the first backward
 *   model.router_bias            the bias of each expert moves by train.router.bias_rate: up where its load is below the
 *                                mean, down where it is above (DeepSeek-V3, section 2.1.2; Wang et al. 2024)
 *   metrics, alarms              routers_view */
#ifndef TRAIN_ROUTERS_H
#define TRAIN_ROUTERS_H

#include <jansson.h>

#include "plan/plan.h"
#include "step/step.h"
#include "train/ranks/peers.h"

/* One layer with experts, or module of multi-token prediction. */
typedef struct router_ports {
    int layer, chunk;
    const prog *p;
    prog_port tally, counts; /* counts: 0 bytes where the program takes none */
    prog_port rounds;        /* 0 bytes where ranks do not share out experts */
} router_ports;

/* The ports of all layers with experts in the training programs, and room for what they give. The
 * device copies tallies while it goes on; the host reads them when those of all micro-batches are
 * wanted, or there is no room for more. */
typedef struct routing_ports {
    router_ports *item;
    int n;
    float *row;      /* [E] */
    dev *dev;        /* whose memory this is: */
    void *tallies;   /* pinned: [most] of router_tally_bytes */
    int *of;         /* [most] the item of each */
    int most, taken; /* that there is room for; that were taken and not added */
} routing_ports;
/* micro_batches: of a step. */
routing_ports routing_ports_of(arena *a, const plan *p, int micro_batches);
void routing_ports_free(routing_ports *io);
/* Of the host's memory, that one of a model has. */
int64_t routing_bytes(const model_config *mc, int64_t micro_batches);

enum { ROUTERS_PICKS, ROUTERS_PROBS, ROUTERS_ENTROPY, ROUTERS_TAKEN, ROUTERS_SUMS };

/* Of a run. n 0: the model has no experts. */
typedef struct routers {
    int n, E, k;
    int *layer;      /* [n] */
    int *stored;     /* [n] whose bias it has: layers that run one block share it */
    int64_t *sum;    /* [n][ROUTERS_SUMS][E] of the step; probs and entropy in fixed point */
    int64_t *rounds; /* [n] behind sum: of the exchange of rows, in all micro-batches of the step */
    int64_t *passes; /* [n] behind these: how many micro-batches that were */
    double *share;   /* [n][E] share of the picks, as a mean that forgets steps long ago */
    int64_t *unused; /* [n][E] steps since a token picked it last */
    int64_t steps;   /* that the mean is of */
    bool *told;      /* [n] there was an alarm, and the layer has not recovered */
} routers;
void routers_init(routers *r, arena *a, const model_config *mc);

void routers_begin_step(routers *r);
/* STEP_TALLY of a chunk: has copied what a micro-batch gave. */
void routers_take(routers *r, routing_ports *io, const step_entry *t);
/* Waits, and adds what was taken. */
void routers_settle(routers *r, routing_ports *io);
/* STEP_COUNTED, after that. */
void routers_sum(routers *r, const peers *p);
/* Gives the counts of the step to a chunk's program, as the backward needs them. */
void routers_give(const routers *r, const routing_ports *io, int chunk, int frame);
/* Moves the biases of routers in the weights; not those that are frozen. */
void routers_move_bias(const routers *r, const param_store *s, double rate);
bool routers_have_bias(const model_config *mc);
/* After a step whose update was done: what alarms look at. */
void routers_watch(routers *r);
/* What was watched so far, for state/guard.json: a resumed run tells and warns as one that was not
 * interrupted. NULL: the model has no experts. */
json_t *routers_to_json(const routers *r);
/* NULL: nothing was watched yet, or the checkpoint is from before it was kept. */
status routers_from_json(routers *r, const json_t *o, err *e) ATH_MUST_USE;

/* Of one layer in the step. Experts are dead if no token picked them for ROUTERS_WINDOW steps. */
enum { ROUTERS_WINDOW = 100 };
typedef struct router_view {
    double load;    /* picks of the busiest expert, as a multiple of the mean */
    double entropy; /* mean of -sum p log p over tokens, as a share of log E */
    double
        balance; /* E sum f P: 1 where all are used alike, E / k where k experts have all tokens */
    double dropped; /* share of the picks that no expert took (train.router.capacity_factor) */
    double rounds;  /* mean number of rounds in which rows were exchanged; 0: none were */
    int dead;
    /* How far the k busiest experts have taken over: 0 where all are used alike, 1 where they have all
     * tokens; by the mean of the last steps. */
    double collapse;
} router_view;
router_view routers_view(const routers *r, int i);
/* The load of an expert as a multiple of the mean, over the last steps. */
double routers_load(const routers *r, int i, int expert);

#endif
