/* Validation: mean negative log-likelihood per target over the validation set (or eval.batches of
 * it), and bits per byte: the bits of all targets over the bytes of text that these stand for.
 *
 * Not every token is a target: nothing predicts the first one of a document behind a mask. Its bytes
 * must not count either, which matters where documents are short. A target stands for as large a
 * share of the set's text as its token is long, and the end-of-text token for none. */
#include <math.h>

#include "train/events.h"

/* Sums of batches are added as integers, which have no order: any number of ranks gets the same. */
static const double SUM_SCALE = 1 << 20;

/* What was validated. */
typedef struct tally {
    int64_t nll;                   /* sum over the targets, times SUM_SCALE */
    int64_t targets, tokens;       /* tokens: those that are no targets, too */
    int64_t target_length, length; /* of the texts of these, in bytes */
} tally;

static int64_t length_of(const setup *u, int32_t id) {
    size_t n = 1; /* without a tokenizer tokens count alike */
    if (!u->tok) return 1;
    if (id == tok_eos(u->tok)) return 0;
    return tok_bytes(u->tok, id, &n) ? (int64_t)n : 0;
}

/* Each token of a source is an input of one row, but that concat leaves the last one of the source,
 * which ends the last row. */
static void tally_row(const session *s, uint64_t sample, const int32_t *ids, const int32_t *targets,
                      tally *t) {
    loader_place p = loader_place_of(s->stage.valid, sample);
    bool cut = loader_get_packing(s->stage.valid) == PACKING_CONCAT;
    bool last = cut && p.n_inputs > 0 &&
                p.sequence + 1 == loader_source_sequences(s->stage.valid, p.source);
    t->tokens += p.n_inputs + last;
    for (int64_t i = 0; i < p.n_inputs; i++) {
        t->length += length_of(&s->setup, ids[i]);
        if (targets[i] != LOADER_IGNORE) t->target_length += length_of(&s->setup, targets[i]);
    }
    if (last && targets[p.n_inputs - 1] != LOADER_IGNORE)
        t->length += length_of(&s->setup, targets[p.n_inputs - 1]);
}

static void validate_batch(session *s, uint64_t batch, bool mine, tally *t) {
    stage *g = &s->stage;
    uint64_t first = batch * (uint64_t)g->B;
    if (mine) {
        t->targets += execute_fill(g, g->valid, first);
        for (int b = 0; b < g->B; b++)
            tally_row(s, first + (uint64_t)b, g->rows.ids + (size_t)b * (size_t)g->T,
                      g->rows.targets + (size_t)b * (size_t)g->T, t);
    }
    double sum = execute_validation(&s->setup, g, mine);
    if (mine) t->nll += llrint(sum * SUM_SCALE);
}

static void sum_over_ranks(session *s, tally *t) {
    peers *p = &s->setup.peers;
    peers_sum_tokens(p, &t->nll, 1, "the validation loss");
    peers_tell_stages(p, &t->nll, sizeof t->nll);
    t->targets = peers_sum_count(p, t->targets, "validated targets");
    t->tokens = peers_sum_count(p, t->tokens, "validated tokens");
    t->length = peers_sum_count(p, t->length, "bytes of validated tokens");
    t->target_length = peers_sum_count(p, t->target_length, "bytes of validated targets");
}

/* NaN where the bytes are not known (token files of others do not say), or there are none, or where an encoder reads most of
 * them. */
static double bits_per_byte(const session *s, const tally *t) {
    shard_totals all = loader_totals(s->stage.valid);
    bool reads = loader_source_len(s->stage.valid) > 0;
    if (all.text_bytes == 0 || t->target_length == 0 || reads) return NAN;
    double validated = (double)all.text_bytes * ((double)t->tokens / (double)all.tokens);
    double bytes = validated * ((double)t->target_length / (double)t->length);
    return (double)t->nll / SUM_SCALE / log(2.0) / bytes;
}

status validate(session *s, err *e) {
    const loader *set = s->stage.valid;
    const mesh *m = &s->setup.peers.m;
    uint64_t B = (uint64_t)s->stage.B, n = loader_sequences(set), batches = (n + B - 1) / B;
    if (s->setup.c->eval.batches > 0 && (uint64_t)s->setup.c->eval.batches < batches)
        batches = (uint64_t)s->setup.c->eval.batches;
    if (s->setup.objective->values) {
        TRY(validate_labels(s, batches, e));
        early_stop_take(&s->watch.stop, s->at.step, s->at.val_loss);
        return ST_OK;
    }
    if (s->setup.objective->loss) {
        TRY(validate_rewards(s, batches, e));
        early_stop_take(&s->watch.stop, s->at.step, s->at.val_loss);
        return ST_OK;
    }
    uint64_t dp = (uint64_t)m->size[MESH_DP], own = (uint64_t)m->rank[MESH_DP];
    tally t = {0};
    for (uint64_t i = 0; i < batches; i += dp) /* a rank without a batch helps to gather weights */
        validate_batch(s, i + own, i + own < batches, &t);
    TRY(loader_error(set, e));
    TRY(offload_check(s->setup.offload, e));
    sum_over_ranks(s, &t);
    double mean = t.targets ? (double)t.nll / SUM_SCALE / (double)t.targets : 0;
    s->at.val_loss = mean;
    early_stop_take(&s->watch.stop, s->at.step, mean);
    return events_valid(s, bits_per_byte(s, &t), t.targets, e);
}
