/* Validation: mean negative log-likelihood per target over the validation set (or eval.batches of
 * it), and bits per byte of its text: nll_sum / ln 2 / bytes. */
#include <math.h>

#include "base/json.h"
#include "train/events.h"

/* Sums of batches are added as integers, which have no order: any number of ranks gets the same. */
static const double SUM_SCALE = 1 << 20;

status validate(session *s, err *e) {
    const batch_ports *io = &s->validation;
    uint64_t n = loader_sequences(s->valid), batches = (n + (uint64_t)s->B - 1) / (uint64_t)s->B;
    if (s->c->eval.batches > 0 && (uint64_t)s->c->eval.batches < batches)
        batches = (uint64_t)s->c->eval.batches;
    op_run run = {.dev = s->dev, .mesh = &s->peers.m, .first_micro = true};
    uint64_t dp = (uint64_t)s->peers.m.size[MESH_DP], own = (uint64_t)s->peers.m.rank[MESH_DP];
    int64_t sum = 0, targets = 0;
    for (uint64_t i = 0; i < batches; i += dp) {
        bool mine = i + own < batches; /* a rank without a batch helps to gather weights */
        if (mine) targets += execute_fill(s, s->valid, (i + own) * (uint64_t)s->B);
        if (mine) batch_put(io, 0, &s->rows);
        execute_pass(s, io->p, &run);
        if (mine) sum += llrint(batch_take_nll(io, 0, &s->rows) * SUM_SCALE);
    }
    TRY(loader_error(s->valid, e));
    targets = peers_sum_count(&s->peers, targets, "validated targets");
    sum = peers_sum_count(&s->peers, sum, "the validation loss");
    double mean = targets ? (double)sum / SUM_SCALE / (double)targets : 0;
    shard_totals all = loader_totals(s->valid);
    s->val_loss = mean;
    early_stop_take(&s->watch.stop, s->at.step, mean);
    json_t *o = events_new("valid", s->at.step);
    json_object_set_new(o, "val_loss", json_f64(mean));
    json_object_set_new(o, "val_bpb",
                        json_f64(all.text_bytes
                                     ? mean / log(2.0) * (double)all.tokens / (double)all.text_bytes
                                     : (double)NAN)); /* token files of others do not say */
    json_object_set_new(o, "targets", json_integer(targets));
    return events_emit(s, o, e);
}
