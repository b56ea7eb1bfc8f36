#include "infer/token_report.h"

#include <math.h>
#include <string.h>

#include "op/exp_below.h"

/* Eight at a time, so that the compiler can use vectors. */
enum { LANES = 8 };

static float greatest(const float *x, int32_t n) {
    float most[LANES], all = -INFINITY;
    int32_t i = 0;
    for (int j = 0; j < LANES; j++) most[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
    for (; i < n; i++) most[0] = x[i] > most[0] ? x[i] : most[0];
    for (int j = 0; j < LANES; j++) all = most[j] > all ? most[j] : all;
    return all;
}

/* e^(x - max); what is further below than this is less than a double can tell of the sum. */
static inline double weight_of(float x, float max) {
    const float REACH = 80;
    float below = max - x, reached = below <= REACH ? below : REACH;
    return (double)(below <= REACH ? exp_below(-reached) : 0.0f);
}

static bool any_nan(const float *x, int32_t n) {
    int found = 0;
    for (int32_t i = 0; i < n; i++) found |= x[i] != x[i];
    return found;
}

double logits_log_sum(const float *logits, int32_t vocab) {
    float max = greatest(logits, vocab);
    if (any_nan(logits, vocab)) return NAN;
    double sum[LANES] = {0}, all = 0;
    int32_t i = 0;
    for (; i + LANES <= vocab; i += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += weight_of(logits[i + j], max);
    for (; i < vocab; i++) sum[0] += weight_of(logits[i], max);
    for (int j = 0; j < LANES; j++) all += sum[j];
    return (double)max + log(all);
}

status logits_not_finite(int64_t tokens, err *e) {
    err_set(e, ST_NONFINITE, "the logits after token %ld are not finite", (long)tokens);
    return err_hint(e, "the weights may be damaged, or have diverged in training");
}

status logits_check(const float *logits, int64_t n, int64_t vocab, int64_t tokens, err *e) {
    for (int64_t i = 0; i < n * vocab; i++)
        if (!isfinite(logits[i])) return logits_not_finite(tokens + i / vocab, e);
    return ST_OK;
}

/* A list in falling order takes each id that is better than its last: hardly any is. */
int most_likely(const float *logits, int32_t n_ids, double log_sum, int n, int32_t *ids,
                double *logprobs) {
    int have = 0;
    for (int32_t v = 0; v < n_ids; v++) {
        if (isnan(logits[v]) || (have == n && !(have && logits[v] > logits[ids[have - 1]])))
            continue;
        int at = have < n ? have++ : have - 1;
        for (; at > 0 && logits[ids[at - 1]] < logits[v]; at--) ids[at] = ids[at - 1];
        ids[at] = v;
    }
    for (int i = 0; i < have; i++) logprobs[i] = (double)logits[ids[i]] - log_sum;
    return have;
}
