#include "infer/token_report.h"

#include <math.h>
#include <string.h>

double logits_log_sum(const float *logits, int32_t vocab) {
    double max = -INFINITY, sum = 0;
    for (int32_t v = 0; v < vocab; v++) max = fmax(max, (double)logits[v]);
    for (int32_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - max);
    return max + log(sum);
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
