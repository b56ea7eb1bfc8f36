/* Validation on labelled texts: the mean loss over the set (or eval.batches of it), and how well the head knows the labels
 * (infer/labels.h). Sums are of integers: any number of ranks gets the same. */
#include "train/events.h"

/* A batch that is not this rank's needs only its help with gathering weights. */
static void look(session *s, bool mine, uint64_t first, label_tally *t, int64_t sums[SUM_COUNT]) {
    stage *g = &s->stage;
    uint64_t left = mine ? loader_sequences(g->valid) - first : 0;
    int n = left < (uint64_t)g->B ? (int)left : g->B;
    if (mine) execute_fill(g, g->valid, first);
    execute_look(&s->setup, g, 0, mine ? g->learned : NULL);
    for (int i = 0; i < n; i++) label_tally_add(t, g->learned[i].score, g->learned[i].label);
    objective_loss(s->setup.objective, g->now, g->learned, n, 0, g->d_logp, sums);
}

status validate_labels(session *s, uint64_t batches, err *e) {
    const stage *g = &s->stage;
    const peers *p = &s->setup.peers;
    uint64_t dp = (uint64_t)p->m.size[MESH_DP], own = (uint64_t)p->m.rank[MESH_DP];
    arena *a = arena_new("validation");
    label_tally t = label_tally_new(a, &s->setup.models[g->number]);
    int64_t sums[SUM_COUNT] = {0};
    for (uint64_t i = 0; i < batches; i += dp)
        look(s, i + own < batches, (i + own) * (uint64_t)g->B, &t, sums);
    status st = loader_error(g->valid, e);
    if (st == ST_OK) {
        peers_sum_counts(p, sums, SUM_COUNT, "losses of labelled texts");
        peers_sum_counts(p, t.count, t.n, "labels of texts");
        s->at.val_loss = objective_average(sums[SUM_LOSS], label_tally_texts(&t));
        st = events_valid_labels(s, &t, e);
    }
    arena_free(a);
    return st;
}
