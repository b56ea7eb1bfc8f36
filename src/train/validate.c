/* Validation: mean negative log-likelihood per target over the validation set (or eval.batches of
 * it), and bits per byte of its text: nll_sum / ln 2 / bytes. */
#include <math.h>

#include "base/json.h"
#include "train/session.h"

status validate(session *s, err *e) {
    const prog *p = s->plan->prog[PLAN_VALID];
    uint64_t n = loader_sequences(s->valid), batches = (n + (uint64_t)s->B - 1) / (uint64_t)s->B;
    if (s->c->eval.batches > 0 && (uint64_t)s->c->eval.batches < batches)
        batches = (uint64_t)s->c->eval.batches;
    op_run run = {.dev = s->dev, .first_micro = true};
    double sum = 0;
    int64_t targets = 0;
    for (uint64_t i = 0; i < batches; i++) {
        targets += loop_fill(s->valid, p, i * (uint64_t)s->B, s->B, s->now->data.document_mask);
        prog_replay(p, PROG_F, &run);
        sum += execute_sum_nll(p);
    }
    TRY(loader_error(s->valid, e));
    double mean = targets ? sum / (double)targets : 0;
    shard_totals all = loader_totals(s->valid);
    s->val_loss = mean;
    early_stop_take(&s->watch.stop, s->at.step, mean);
    json_t *o = session_event("valid", s->at.step);
    json_object_set_new(o, "val_loss", json_f64(mean));
    json_object_set_new(o, "val_bpb",
                        json_f64(all.text_bytes
                                     ? mean / log(2.0) * (double)all.tokens / (double)all.text_bytes
                                     : (double)NAN)); /* token files of others do not say */
    json_object_set_new(o, "targets", json_integer(targets));
    return session_emit(s, o, e);
}
