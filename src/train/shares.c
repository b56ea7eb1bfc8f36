#include "train/shares.h"

#include "base/text.h"
#include "train/objective/objective.h"

/* The multiple of `unit` next to n, but not 0. */
static int64_t nearest_multiple(int64_t n, int64_t unit) {
    int64_t below = n / unit * unit;
    return below > 0 && n - below < below + unit - n ? below : below + unit;
}

/* Context-parallel ranks share the tokens of each sequence, two pieces each at least. */
static status share_tokens(const config *c, int64_t T, err *e) {
    int64_t cp = c->parallel.cp, unit = 2 * cp;
    if (cp > 1 && c->data.resample.keep_losses) {
        config_error(c, e, "data.resample.keep_losses",
                     "losses of whole sequences, of which a rank has some tokens, are not there "
                     "with parallel.cp");
        return err_hint(e, "data.resample.keep_losses=false, or parallel.cp=1");
    }
    if (cp == 1 || T % unit == 0) return ST_OK;
    config_error(c, e, "train.seq_len",
                 "sequences of %ld tokens do not divide into %ld pieces, two for each of %ld "
                 "context-parallel ranks",
                 (long)T, (long)unit, (long)cp);
    return err_hint(e, "train.seq_len=%ld", (long)nearest_multiple(T, unit));
}

/* Sequence-parallel ranks share the rows of a micro-batch. */
static status share_rows(const config *c, int64_t B, int64_t T, err *e) {
    const objective *o = objective_of(c);
    int64_t tp = c->parallel.tp, cp = c->parallel.cp;
    int64_t rows = B / o->sequences * o->learned * T / cp;
    if (!c->parallel.sp || rows % tp == 0) return ST_OK;
    config_error(c, e, "parallel.sp",
                 "a micro-batch of %ld sequence%s of %ld tokens does not divide over %ld "
                 "sequence-parallel ranks",
                 (long)B, text_s(B), (long)T, (long)tp);
    int64_t unit = cp > 1 ? 2 * cp * tp : tp;
    return err_hint(e, "parallel.sp=false, or train.seq_len=%ld",
                    (long)(T > unit ? T / unit * unit : unit));
}

status shares_check_sequences(const config *c, int64_t B, int64_t T, err *e) {
    TRY(share_tokens(c, T, e));
    return share_rows(c, B, T, e);
}

/* Where the batch is one of a ramp, its keys are what must change. unit: sequences that a batch is a multiple of. */
static status blame_ramp(const config *c, int64_t batch, int64_t unit, err *e) {
    if (batch == c->train.global_batch_size) return ST_USAGE;
    if (e) config_locate(c, "train.batch_ramp.start", e);
    err_hint(e, "train.batch_ramp.start and .increment that are multiples of %ld", (long)unit);
    return ST_USAGE;
}

/* Stages with several chunks take micro-batches in groups. */
static status check_groups(const config *c, int64_t batch, int64_t each, err *e) {
    int64_t pp = c->parallel.pp;
    bool grouped = c->parallel.pp_schedule == CONFIG_PP_INTERLEAVED;
    if (!grouped || batch / each % pp == 0) return ST_OK;
    config_error(c, e, "train.global_batch_size",
                 "interleaved stages take micro-batches in groups of %ld, and a batch of %ld "
                 "sequences has %ld for each rank",
                 (long)pp, (long)batch, (long)(batch / each));
    err_hint(e, "train.global_batch_size=%ld", (long)nearest_multiple(batch, each * pp));
    return blame_ramp(c, batch, each * pp, e);
}

status shares_check_batch(const config *c, int64_t batch, int64_t dp, int64_t B, err *e) {
    if (batch % (dp * B) == 0) return check_groups(c, batch, dp * B, e);
    config_error(c, e, "train.global_batch_size",
                 "a batch of %ld sequence%s cannot be shared by dp %ld rank%s in micro-batches "
                 "of %ld",
                 (long)batch, text_s(batch), (long)dp, text_s(dp), (long)B);
    err_hint(e, "the nearest batch that can is %ld", (long)nearest_multiple(batch, dp * B));
    return blame_ramp(c, batch, dp * B, e);
}
