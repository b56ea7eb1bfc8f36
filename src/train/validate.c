/* Validation: mean negative log-likelihood per target over the validation set (or eval.batches of
 * it), and bits per byte of its text: nll_sum / ln 2 / bytes. */
#include <math.h>

#include "train/events.h"

/* Sums of batches are added as integers, which have no order: any number of ranks gets the same. */
static const double SUM_SCALE = 1 << 20;

status validate(session *s, err *e) {
    const batch_ports *io = &s->stage.validation;
    uint64_t n = loader_sequences(s->stage.valid),
             batches = (n + (uint64_t)s->stage.B - 1) / (uint64_t)s->stage.B;
    if (s->setup.c->eval.batches > 0 && (uint64_t)s->setup.c->eval.batches < batches)
        batches = (uint64_t)s->setup.c->eval.batches;
    op_run run = {.dev = s->setup.dev, .mesh = &s->setup.peers.m, .first_micro = true};
    uint64_t dp = (uint64_t)s->setup.peers.m.size[MESH_DP],
             own = (uint64_t)s->setup.peers.m.rank[MESH_DP];
    int64_t sum = 0, targets = 0;
    for (uint64_t i = 0; i < batches; i += dp) {
        bool mine = i + own < batches; /* a rank without a batch helps to gather weights */
        if (mine)
            targets += execute_fill(&s->stage, s->stage.valid, (i + own) * (uint64_t)s->stage.B);
        if (mine) batch_put(io, 0, &s->stage.rows);
        execute_pass(&s->setup, &s->stage, io->p, &run);
        if (mine) sum += llrint(batch_take_nll(io, 0, &s->stage.rows) * SUM_SCALE);
    }
    TRY(loader_error(s->stage.valid, e));
    targets = peers_sum_count(&s->setup.peers, targets, "validated targets");
    sum = peers_sum_count(&s->setup.peers, sum, "the validation loss");
    double mean = targets ? (double)sum / SUM_SCALE / (double)targets : 0;
    shard_totals all = loader_totals(s->stage.valid);
    s->at.val_loss = mean;
    early_stop_take(&s->watch.stop, s->at.step, mean);
    /* token files of others do not say how many bytes of text they hold */
    double bits = all.text_bytes ? mean / log(2.0) * (double)all.tokens / (double)all.text_bytes
                                 : (double)NAN;
    return events_valid(s, bits, targets, e);
}
