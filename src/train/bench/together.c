/* Reading order: together_fit; the guesses. */
#include "train/bench/together.h"

#include <math.h>

#include "op/collective.h"
#include "plan/clock/clock.h"

enum { CONTENTIONS = 10 };
static const double CONTENTION_STEP = 0.1;
static const double links[] = {1, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2};
static const double straggles[] = {0, 0.01, 0.02, 0.03, 0.05};
static const double latencies_s[] = {1e-6,  2e-6,  3e-6,  4e-6,  6e-6,  8e-6,  11e-6, 16e-6,
                                     20e-6, 25e-6, 32e-6, 40e-6, 50e-6, 64e-6, 90e-6, 128e-6};

_Static_assert(ARRAY_LEN(links) * ARRAY_LEN(straggles) * CONTENTIONS <= TOGETHER_GUESSES &&
                   ARRAY_LEN(latencies_s) <= TOGETHER_GUESSES,
               "a pair has no room for so many guesses");

static void guess_batch(cluster *c, int i) {
    c->contention = CONTENTION_STEP * (i % CONTENTIONS);
    i /= CONTENTIONS;
    c->straggle = straggles[i % (int)ARRAY_LEN(straggles)];
    c->node.reached = c->network.reached = links[i / (int)ARRAY_LEN(straggles)];
}
static void guess_layers(cluster *c, int i) {
    c->node.latency_s = c->network.latency_s = latencies_s[i];
}

static const struct {
    int n;
    void (*set)(cluster *c, int i);
} guesses[TOGETHER_KINDS] = {
    [TOGETHER_BATCH] = {ARRAY_LEN(links) * ARRAY_LEN(straggles) * CONTENTIONS, guess_batch},
    [TOGETHER_LAYERS] = {ARRAY_LEN(latencies_s), guess_layers},
};

bool together_meets(const prog_op *op) {
    op_collective k = op_collective_of(op->kind, op->entry == ENTRY_FWD, op->attr, op->in, 0);
    return k.call.kind != COMM_KINDS;
}

/* Of the ops of a micro-batch in which ranks meet. */
static double say_meetings(const plan *p, const cluster *c) {
    const prog *g = plan_prog(p, USE_TRAIN, 0);
    double sum = 0, update = clock_update_share(p);
    for (int i = 0; i < prog_get_stats(g)->ops; i++) {
        prog_op op = prog_get_op(g, i);
        if (!together_meets(&op)) continue;
        op_time t = op_time_of(c, &p->spec.ranks->shape, &op, update);
        sum += t.kernels + t.among + t.exposed;
    }
    return sum;
}

together_time together_step(const plan *p, const cluster *c) {
    clock_time t = clock_step(p, c);
    /* A run waits for the slowest rank where they meet, not in kernels. */
    double kernels = t.kernels_s / (1 + c->straggle);
    return (together_time){kernels, t.step_s - kernels};
}

void together_say(together_pair *p, const plan *of_all, const cluster *c) {
    for (int i = 0; i < guesses[p->kind].n; i++) {
        cluster with = *c;
        guesses[p->kind].set(&with, i);
        p->said[i] = p->kind == TOGETHER_LAYERS ? (together_time){say_meetings(of_all, &with), 0}
                                                : together_step(of_all, &with);
    }
}

/* Kernels become slower by a factor, the rest longer by a time. */
static double distance_of(const together_pair *p, const together_time *said) {
    double kernels = p->alone.kernels * said->kernels / p->said_alone.kernels;
    double rest = p->alone.rest + said->rest - p->said_alone.rest;
    double off = fabs(kernels - p->together.kernels) + fabs(rest - p->together.rest);
    return off / (p->together.kernels + p->together.rest);
}

static double distance(const together_pair *pairs, int n, together_kind kind, int guess) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (pairs[i].kind == kind) sum += distance_of(&pairs[i], &pairs[i].said[guess]);
    return sum;
}

static bool has_kind(const together_pair *pairs, int n, together_kind kind) {
    for (int i = 0; i < n; i++)
        if (pairs[i].kind == kind) return true;
    return false;
}

static int best_guess(const together_pair *pairs, int n, together_kind kind) {
    double least = INFINITY;
    int best = 0;
    for (int i = 0; i < guesses[kind].n; i++) {
        double d = distance(pairs, n, kind, i);
        if (d >= least) continue;
        least = d;
        best = i;
    }
    return best;
}

void together_fit(cluster *c, const together_pair *pairs, int n) {
    for (int kind = 0; kind < TOGETHER_KINDS; kind++)
        if (has_kind(pairs, n, kind)) guesses[kind].set(c, best_guess(pairs, n, kind));
}
