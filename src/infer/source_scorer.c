#include "infer/source_scorer.h"

#include <string.h>

#include "infer/token_report.h"

void source_scorer_free(source_scorer *s) {
    tok_ids_free(&s->source);
    tok_ids_free(&s->seq);
}

static void copy_ids(tok_ids *to, const int32_t *ids, int64_t n) {
    to->n = 0;
    for (int64_t i = 0; i < n; i++) tok_ids_push(to, ids[i]);
}

void source_scorer_read(source_scorer *s, const score_request *r) {
    int64_t n = r->n - r->n_scored;
    bool read = s->source.n == n && memcmp(s->source.id, r->ids, sizeof *r->ids * (size_t)n) == 0;
    if (!read) {
        generator_set_source(s->g, r->ids, n);
        copy_ids(&s->source, r->ids, n);
    }
    copy_ids(&s->seq, &s->g->begin, 1);
    for (int32_t i = 0; i < r->n_scored; i++) tok_ids_push(&s->seq, r->ids[n + i]);
}

float *source_scorer_logits(const source_scorer *s, int32_t k,
                            const volatile sig_atomic_t *interrupt) {
    return generator_continue(s->g, s->seq.id, 1 + k, interrupt, NULL);
}

static status score(source_scorer *s, score_request *r, const score_options *opt, err *e) {
    source_scorer_read(s, r);
    r->loglik = 0;
    for (int32_t k = 0; k < r->n_scored; k++) {
        const float *logits = source_scorer_logits(s, k, opt->interrupt);
        if (!logits) return err_set(e, ST_STOPPED, "stopped by a signal");
        double p = (double)logits[s->seq.id[1 + k]] - logits_log_sum(logits, s->g->vocab);
        if (r->nll) r->nll[k] = (float)-p;
        r->loglik += r->nll ? -(double)r->nll[k] : p;
    }
    return ST_OK;
}

status source_scorer_run(source_scorer *s, score_request *requests, int64_t n,
                         const score_options *opt, score_stats *stats, err *e) {
    *stats = (score_stats){0};
    for (int64_t i = 0; i < n; i++) {
        TRY(score(s, &requests[i], opt, e));
        stats->passes += requests[i].n_scored;
        stats->rows += requests[i].n_scored;
        stats->rows_alone += requests[i].n_scored;
        if (opt->progress) opt->progress(opt->ctx, i + 1, n);
    }
    return score_check(requests, n, e);
}
