/* Validation of objectives with a loss of their own: that loss over the validation set, and the rewards
 * behind it. What a batch says of its sequences is kept until the end, since an estimate of the
 * divergence needs all of them. Sums are of integers: any number of ranks gets the same. */
#include <stdlib.h>
#include <string.h>

#include "train/events.h"

typedef struct tally {
    uint64_t first, n;   /* the first sequence of the set of a batch; sequences of the set */
    objective_row *rows; /* learned ones of whole samples */
    int samples;         /* so far, of this rank */
    int64_t kl;          /* sum of log ratios of the sequences that are not learned */
    int64_t most;        /* rows that there is room for */
    int labels;          /* of a head of rewards, else 0 */
    float *
        scores; /* [rows, labels] and their gradients behind them: the stage's own are those of the last batch */
} tally;

/* The next n rows keep their scores beyond the batch. */
static void keep_scores(const tally *t, objective_row *row, int n) {
    for (int i = 0; i < n; i++) {
        float *own = t->scores + (row + i - t->rows) * t->labels;
        memcpy(own, row[i].score, sizeof *own * (size_t)t->labels);
        row[i].score = own;
        row[i].d_score = own + t->most * t->labels;
    }
}

/* A batch that is not this rank's needs only its help with gathering weights. */
static void look(session *s, bool mine, tally *t) {
    stage *g = &s->stage;
    const objective *o = s->setup.objective;
    int rows = execute_pass_rows(g), whole = g->B / o->sequences;
    uint64_t left = mine ? (t->n - t->first) / (uint64_t)o->sequences : 0;
    int samples = left < (uint64_t)whole ? (int)left : whole;
    if (mine) execute_fill(g, g->valid, t->first);
    objective_row *next = t->rows + t->samples * o->learned;
    execute_look(&s->setup, g, 0, mine ? next : NULL);
    if (mine && t->labels) keep_scores(t, next, samples * o->learned);
    t->samples += samples;
    if (!o->kl) return;
    execute_look(&s->setup, g, rows, mine ? g->learned : NULL);
    for (int i = 0; i < samples && execute_knows_losses(g); i++)
        t->kl += objective_fixed(objective_ratio(&g->learned[i]));
}

static void sum(session *s, tally *t, int64_t sums[SUM_COUNT], int64_t *samples) {
    const objective *o = s->setup.objective;
    const peers *p = &s->setup.peers;
    double *unused = xcalloc((size_t)(t->samples * o->learned + 1), sizeof *unused);
    *samples = peers_sum_count(p, t->samples, "validated samples");
    t->kl = peers_sum_count(p, t->kl, "the divergence");
    peers_tell_stages(p, &t->kl, sizeof t->kl);
    s->stage.kl = o->kl ? fmax(0, objective_average(t->kl, *samples)) : 0;
    if (execute_knows_losses(&s->stage))
        objective_loss(o, s->stage.now, t->rows, t->samples, s->stage.kl, unused, sums);
    peers_sum_counts(p, sums, SUM_COUNT, "rewards");
    peers_tell_stages(p, sums, sizeof *sums * SUM_COUNT);
    free(unused);
}

status validate_rewards(session *s, uint64_t batches, err *e) {
    const stage *g = &s->stage;
    const mesh *m = &s->setup.peers.m;
    uint64_t dp = (uint64_t)m->size[MESH_DP], own = (uint64_t)m->rank[MESH_DP];
    tally t = {.n = loader_sequences(g->valid),
               .most = (int64_t)(batches / dp + 1) * g->B,
               .labels = g->rows.labels};
    int64_t sums[SUM_COUNT] = {0}, samples;
    t.rows = xcalloc((size_t)t.most, sizeof *t.rows);
    if (t.labels) t.scores = xcalloc((size_t)t.most * 2, sizeof *t.scores * (size_t)t.labels);
    for (uint64_t i = 0; i < batches; i += dp) {
        t.first = (i + own) * (uint64_t)g->B;
        look(s, i + own < batches, &t);
    }
    status st = loader_error(g->valid, e);
    if (st == ST_OK) {
        sum(s, &t, sums, &samples);
        s->at.val_loss = objective_average(sums[SUM_LOSS], samples);
    }
    free(t.rows);
    free(t.scores);
    return st == ST_OK ? events_valid_rewards(s, sums, e) : st;
}
