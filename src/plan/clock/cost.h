/* What a run costs: GPU-hours, days, energy, money; with preemptions, and with the work around the main run.
 *
 *   hours of the run      those that are known (its steps were clocked, say), or 6 N D / (peak x MFU): C = 6 N D (Kaplan et al.
 *                         2020)
 *   MFU                   of 6 N D, without attention, unless another convention is named beside it
 *   devices for a date    C / (peak x MFU x time), rounded up: where all work is shared
 *   Amdahl                n devices with a serial share s are 1 / (s + (1 - s) / n) times as fast as one (1967); days, hours and
 *                         money have it
 *   energy                hours x watts of a device with its share of the machine x PUE, the share of a data centre that is not
 *                         the machines' (cooling, conversion)
 *   preemptions           they come at a rate of r an hour, of the whole group. Each loses half of what is between two
 *                         checkpoints, and the time to start again: with writing w every t hours, the run takes
 *                         1 / (1 - r (t / 2 + restart) - w / t) times as long. The best t is sqrt(2 w / r) (Young 1974)
 *
 *   spot                  devices at a lower price that may be taken away: the main run on them has the preemptions, at their
 *                         price; on devices that stay it has none. With that writing they cost the same at a rate r of
 *                         (1 - w / t) (1 - spot / price) / (t / 2 + restart)
 *
 * The ledger is what a run's budget holds beside the main run: ablations, evaluation, debugging. A budget without a buffer for
 * these is told of: in a published run of 3B they took 58 % of the main run's hours. */
#ifndef PLAN_COST_H
#define PLAN_COST_H

#include "plan/clock/cluster.h"

typedef struct cost_wish {
    double params, tokens; /* N and D; active parameters of a mixture of experts */
    int devices;
    double known_s;              /* of the main run, where that is known; 0: unknown, then */
    double mfu;                  /* counts */
    double peak_flops;           /* of a device */
    double deadline_s;           /* 0: none */
    double serial;               /* share of the work that more devices do not make shorter */
    double preemptions_per_hour; /* of the whole group */
    double checkpoint_every_s, checkpoint_s, restart_s;
    double ablation_hours, evaluation_hours, debug_hours; /* device-hours beside the main run */
    double dollars_per_hour, watts;                       /* of a device; 0: unknown */
    double spot_per_hour; /* dollars of a device that may be taken away; 0: there are none */
    double pue;
    char device[DEV_NAME_MAX];
} cost_wish;

typedef struct cost_sum {
    double flops;        /* C */
    double ideal_s;      /* of the main run, undisturbed */
    double run_s;        /* with what preemptions cost */
    double mfu;          /* while it is undisturbed; 0: N and D are not known */
    double device_hours; /* of the main run */
    double overhead_hours, all_hours;
    double kwh, dollars, tokens_per_param;
    /* with spot devices: what the same costs on devices that stay, and the preemptions an hour at which spot is no cheaper */
    double staying_dollars, even_per_hour;
    int devices_needed; /* for the deadline; 0: none was given */
    double best_checkpoint_s;
    double speed_up,
        speed_limit; /* Amdahl, at `devices` and at endlessly many; 0: no serial share */
} cost_sum;

/* ST_USAGE: neither its time nor an MFU is known; checkpoints take all the time; no cluster has the devices for the date.
 * ST_FAILED: preemptions never let it end. */
status cost_reckon(const cost_wish *w, cost_sum *out, err *e) ATH_MUST_USE;

#endif
