/* Validation: mean negative log-likelihood per target over the validation set (or eval.batches of
 * it), and bits per byte: the bits of all targets over the bytes of text that these stand for.
 *
 * Not every token is a target: nothing predicts the first one of a document behind a mask. Its bytes
 * must not count either, which matters where documents are short. A target stands for as large a
 * share of the set's text as its token is long, and the end-of-text token for none. */
#include <math.h>

#include "base/json.h"
#include "train/events.h"

/* Sums of batches are added as integers, which have no order: any number of ranks gets the same. */
static const double SUM_SCALE = 1 << 20;

/* What was validated. */
typedef struct tally {
    int64_t nll;                   /* sum over the targets, times SUM_SCALE */
    int64_t targets, tokens;       /* tokens: those that are no targets, too */
    int64_t target_length, length; /* of the texts of these, in bytes */
} tally;

static int64_t length_of(const session *s, int32_t id) {
    size_t n = 1; /* without a tokenizer tokens count alike */
    if (!s->tok) return 1;
    if (id == tok_eos(s->tok)) return 0;
    return tok_bytes(s->tok, id, &n) ? (int64_t)n : 0;
}

/* Each token of a source but its last one is an input of one row; that one ends the last row. */
static void tally_row(const session *s, uint64_t sample, const int32_t *ids, const int32_t *targets,
                      tally *t) {
    loader_place p = loader_place_of(s->valid, sample);
    bool last = p.n_inputs > 0 && p.sequence + 1 == loader_source_sequences(s->valid, p.source);
    t->tokens += p.n_inputs + last;
    for (int64_t i = 0; i < p.n_inputs; i++) {
        t->length += length_of(s, ids[i]);
        if (targets[i] != LOADER_IGNORE) t->target_length += length_of(s, targets[i]);
    }
    if (last && targets[p.n_inputs - 1] != LOADER_IGNORE)
        t->length += length_of(s, targets[p.n_inputs - 1]);
}

static void validate_batch(session *s, uint64_t batch, bool mine, tally *t) {
    const batch_ports *io = &s->validation;
    op_run run = {.dev = s->dev, .mesh = &s->peers.m, .first_micro = true};
    uint64_t first = batch * (uint64_t)s->B;
    if (mine) {
        t->targets += execute_fill(s, s->valid, first);
        batch_put(io, 0, &s->rows);
        for (int b = 0; b < s->B; b++)
            tally_row(s, first + (uint64_t)b, s->rows.ids + (size_t)b * (size_t)s->T,
                      s->rows.targets + (size_t)b * (size_t)s->T, t);
    }
    execute_pass(s, io->p, &run);
    if (mine) t->nll += llrint(batch_take_nll(io, 0, &s->rows) * SUM_SCALE);
}

static void sum_over_ranks(session *s, tally *t) {
    t->nll = peers_sum_count(&s->peers, t->nll, "the validation loss");
    t->targets = peers_sum_count(&s->peers, t->targets, "validated targets");
    t->tokens = peers_sum_count(&s->peers, t->tokens, "validated tokens");
    t->length = peers_sum_count(&s->peers, t->length, "bytes of validated tokens");
    t->target_length = peers_sum_count(&s->peers, t->target_length, "bytes of validated targets");
}

/* NaN where the bytes are not known (token files of others do not say), or there are none. */
static double bits_per_byte(const session *s, const tally *t) {
    shard_totals all = loader_totals(s->valid);
    if (all.text_bytes == 0 || t->target_length == 0) return NAN;
    double validated = (double)all.text_bytes * ((double)t->tokens / (double)all.tokens);
    double bytes = validated * ((double)t->target_length / (double)t->length);
    return (double)t->nll / SUM_SCALE / log(2.0) / bytes;
}

status validate(session *s, err *e) {
    uint64_t n = loader_sequences(s->valid), batches = (n + (uint64_t)s->B - 1) / (uint64_t)s->B;
    if (s->c->eval.batches > 0 && (uint64_t)s->c->eval.batches < batches)
        batches = (uint64_t)s->c->eval.batches;
    uint64_t dp = (uint64_t)s->peers.m.size[MESH_DP], own = (uint64_t)s->peers.m.rank[MESH_DP];
    tally t = {0};
    for (uint64_t i = 0; i < batches; i += dp) /* a rank without a batch helps to gather weights */
        validate_batch(s, i + own, i + own < batches, &t);
    TRY(loader_error(s->valid, e));
    sum_over_ranks(s, &t);
    double mean = t.targets ? (double)t.nll / SUM_SCALE / (double)t.targets : 0;
    s->val_loss = mean;
    early_stop_take(&s->watch.stop, s->at.step, mean);
    json_t *o = events_new("valid", s->at.step);
    json_object_set_new(o, "val_loss", json_f64(mean));
    json_object_set_new(o, "val_bpb", json_f64(bits_per_byte(s, &t)));
    json_object_set_new(o, "targets", json_integer(t.targets));
    return events_emit(s, o, e);
}
