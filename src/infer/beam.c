/* Reading order: beam_run, step, collect, put_aside, go_on, place_beams. */
#include "infer/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* A continuation that may become a beam, or be put aside. */
typedef struct candidate {
    float sum; /* log p of its new tokens */
    int parent;
    int32_t id;
    bool ends;
} candidate;

/* A text: a running beam, or one that was put aside. */
typedef struct hypothesis {
    int32_t *ids; /* [n_prompt + max_new], with the prompt */
    int64_t n;
    float score; /* log p; put aside: divided by its length */
    int slot;    /* of the scorer; put aside: 0 */
    bool by_end; /* put aside: an end was picked, which is not in ids */
} hypothesis;

typedef struct search {
    scorer *s; /* NULL: the generator computes */
    generator *g;
    float *logits; /* of the generator: [beams + 1, vocab] */
    const beam_request *rq;
    int32_t vocab, n_ids;
    int64_t max_new;
    hypothesis *beam, *next, *done; /* [beams], best first */
    int n_beams, n_done;
    candidate *best; /* [most], best first */
    int n_best, most;
    float *scores; /* [n_ids] of one beam */
    sampler *sampler;
    bool may_improve;
} search;

/* ---- candidates ---- */

/* Log-probabilities of beam b's next token, as penalties leave them. */
static status score_tokens(const search *q, const hypothesis *h, float *logits, err *e) {
    const generate_request *rq = &q->rq->rq;
    double sum = logits_log_sum(logits, q->vocab);
    if (!isfinite(sum)) return logits_not_finite(h->n, e);
    for (int32_t i = 0; i < q->n_ids; i++) q->scores[i] = (float)((double)logits[i] - sum);
    sampler_penalise(q->sampler, q->scores, h->ids, h->n);
    if (h->n - rq->n_prompt < rq->min_new)
        for (int64_t i = 0; !rq->ignore_end && i < rq->n_end; i++)
            if (rq->end[i] >= 0 && rq->end[i] < q->n_ids) q->scores[rq->end[i]] = -INFINITY;
    return ST_OK;
}

/* Those that came first stay before others that are as good. */
static void add_candidate(search *q, candidate c) {
    if (q->n_best == q->most && c.sum <= q->best[q->most - 1].sum) return;
    int i = q->n_best < q->most ? q->n_best++ : q->most - 1;
    for (; i > 0 && q->best[i - 1].sum < c.sum; i--) q->best[i] = q->best[i - 1];
    q->best[i] = c;
}

static bool is_end(const generate_request *rq, int32_t id) {
    for (int64_t i = 0; !rq->ignore_end && i < rq->n_end; i++)
        if (rq->end[i] == id) return true;
    return false;
}

static status collect(search *q, float *logits, err *e) {
    q->n_best = 0;
    for (int b = 0; b < q->n_beams; b++) {
        const hypothesis *h = &q->beam[b];
        TRY(score_tokens(q, h, logits + (int64_t)h->slot * q->vocab, e));
        for (int32_t i = 0; i < q->n_ids; i++)
            if (q->scores[i] > -INFINITY)
                add_candidate(q, (candidate){h->score + q->scores[i], b, i, false});
    }
    int64_t n_new = q->beam[0].n + 1 - q->rq->rq.n_prompt;
    for (int i = 0; i < q->n_best; i++)
        q->best[i].ends = n_new == q->max_new || is_end(&q->rq->rq, q->best[i].id);
    return ST_OK;
}

/* ---- texts that end ---- */

static float divided(const search *q, float sum, int64_t n_new) {
    return sum / (float)pow((double)n_new, q->rq->length_penalty);
}

static bool is_full(const search *q) {
    return q->n_done == q->rq->beams;
}

static void extend(hypothesis *to, const hypothesis *from, int32_t id) {
    memcpy(to->ids, from->ids, sizeof *to->ids * (size_t)from->n);
    to->ids[from->n] = id;
    to->n = from->n + 1;
}

static void keep_done(search *q, const candidate *c, float score) {
    if (is_full(q) && score <= q->done[q->n_done - 1].score) return;
    int i = is_full(q) ? q->n_done - 1 : q->n_done++;
    hypothesis spare = q->done[i];
    for (; i > 0 && q->done[i - 1].score < score; i--) q->done[i] = q->done[i - 1];
    extend(&spare, &q->beam[c->parent], c->id);
    spare.score = score;
    spare.by_end = is_end(&q->rq->rq, c->id);
    if (spare.by_end) spare.n--;
    q->done[i] = spare;
}

/* Only what is among the best may end: the candidates behind them are there so that enough go on. */
static void put_aside(search *q) {
    bool closed = !q->may_improve || (is_full(q) && q->rq->stop == BEAM_STOP_FIRST);
    int64_t n_new = q->beam[0].n + 1 - q->rq->rq.n_prompt;
    for (int i = 0; i < q->n_best && i < q->rq->beams && !closed; i++)
        if (q->best[i].ends) keep_done(q, &q->best[i], divided(q, q->best[i].sum, n_new));
}

/* ---- beams that go on ---- */

static void go_on(search *q) {
    int n = 0;
    for (int i = 0; i < q->n_best && n < q->rq->beams; i++) {
        const candidate *c = &q->best[i];
        if (c->ends) continue;
        extend(&q->next[n], &q->beam[c->parent], c->id);
        q->next[n].score = c->sum;
        q->next[n].slot = -c->parent - 1; /* until place_beams */
        n++;
    }
}

/* The first child of a beam keeps its slot, the others get those that nobody keeps. */
static bool place_beams(search *q, int n) {
    int taken[BEAMS_MOST + 1] = {0}, free_slot = 1;
    for (int i = 0; i < n; i++) {
        int slot = q->beam[-q->next[i].slot - 1].slot;
        q->next[i].slot = taken[slot] ? 0 : slot;
        taken[slot] = 1;
    }
    for (int i = 0; i < n; i++) {
        hypothesis *h = &q->next[i];
        if (h->slot) continue;
        while (taken[free_slot]) free_slot++;
        h->slot = free_slot++;
        if (q->s && !scorer_fill_slot(q->s, h->slot, h->ids, h->n - 1, q->rq->rq.interrupt))
            return false;
    }
    return true;
}

static void update_hope(search *q) {
    int64_t n_new = q->beam[0].n - q->rq->rq.n_prompt, length = n_new;
    if (q->rq->stop == BEAM_STOP_NEVER && q->rq->length_penalty > 0) length = q->max_new;
    if (is_full(q) && !(divided(q, q->beam[0].score, length) > q->done[q->n_done - 1].score))
        q->may_improve = false;
}

/* ---- the search ---- */

/* NULL: interrupted. */
static float *next_in_turn(search *q) {
    for (int b = 0; b < q->n_beams; b++) {
        const hypothesis *h = &q->beam[b];
        const float *now = generator_continue(q->g, h->ids, h->n, q->rq->rq.interrupt, NULL);
        if (!now) return NULL;
        memcpy(q->logits + (int64_t)h->slot * q->vocab, now, sizeof *now * (size_t)q->vocab);
    }
    return q->logits;
}

static float *next_logits(search *q) {
    if (q->g) return next_in_turn(q);
    const int lanes = scorer_get_size(q->s)->writes;
    for (int slot = 0; slot < lanes; slot++) {
        const hypothesis *h = NULL;
        for (int b = 0; b < q->n_beams; b++)
            if (q->beam[b].slot == slot) h = &q->beam[b];
        scorer_set_next(q->s, slot, h ? h->ids[h->n - 1] : -1);
    }
    scorer_write(q->s);
    return scorer_written(q->s);
}

static bool is_interrupted(const search *q) {
    return q->rq->rq.interrupt && *q->rq->rq.interrupt;
}

/* *ended: there is nothing to go on with. */
static status step(search *q, bool *ended, err *e) {
    int n = 0;
    float *logits = next_logits(q);
    *ended = logits == NULL;
    if (*ended) return ST_OK;
    TRY(collect(q, logits, e));
    put_aside(q);
    for (int i = 0; i < q->n_best && n < q->rq->beams; i++) n += !q->best[i].ends;
    *ended = n == 0 || (is_full(q) && q->rq->stop == BEAM_STOP_FIRST);
    if (*ended) return ST_OK;
    go_on(q);
    *ended = !place_beams(q, n);
    hypothesis *old = q->beam;
    q->beam = q->next;
    q->next = old;
    q->n_beams = n;
    update_hope(q);
    *ended = *ended || !q->may_improve;
    return ST_OK;
}

static void give(const search *q, const hypothesis *h, generate_finish finish, beam_text *out) {
    *out = (beam_text){.score = (double)h->score, .finish = finish};
    for (int64_t i = q->rq->rq.n_prompt; i < h->n; i++) tok_ids_push(&out->ids, h->ids[i]);
}

/* Without a text that has ended, the best that is there. */
static int give_all(const search *q, beam_text *texts) {
    for (int i = 0; i < q->n_done; i++)
        give(q, &q->done[i], q->done[i].by_end ? FINISH_END : FINISH_LENGTH, &texts[i]);
    if (q->n_done == 0) give(q, &q->beam[0], FINISH_INTERRUPT, &texts[0]);
    return q->n_done ? q->n_done : 1;
}

static status run(search *q, beam_text *texts, int *n, err *e) {
    const generate_request *rq = &q->rq->rq;
    hypothesis *h = &q->beam[0];
    bool ended = q->s && !scorer_fill_slot(q->s, 1, rq->prompt, rq->n_prompt - 1, rq->interrupt);
    memcpy(h->ids, rq->prompt, sizeof *rq->prompt * (size_t)rq->n_prompt);
    h->n = rq->n_prompt;
    h->slot = 1;
    q->n_beams = 1;
    while (!ended && !is_interrupted(q)) TRY(step(q, &ended, e));
    *n = give_all(q, texts);
    return ST_OK;
}

static status search_with(scorer *s, generator *g, const generate_limits *limits,
                          const beam_request *rq, beam_text *texts, int *n, err *e) {
    *n = 0;
    TRY(generation_check(&rq->rq, limits, e));
    CHECK(rq->beams >= 1 && rq->beams <= BEAMS_MOST, "%d beams", rq->beams);
    arena *a = arena_new("beams");
    int64_t room = limits->Tmax - rq->rq.n_prompt;
    search q = {.s = s,
                .g = g,
                .rq = rq,
                .vocab = limits->vocab,
                .n_ids = limits->n_ids,
                .may_improve = true};
    q.max_new = rq->rq.max_new < room ? rq->rq.max_new : room;
    q.most = (rq->rq.n_end > 1 ? 1 + (int)rq->rq.n_end : 2) * rq->beams;
    q.best = ARENA_ARRAY(a, candidate, q.most);
    q.scores = ARENA_ARRAY(a, float, q.n_ids);
    if (g) q.logits = ARENA_ARRAY(a, float, (int64_t)(rq->beams + 1) * q.vocab);
    hypothesis *all = ARENA_ARRAY(a, hypothesis, 3 * rq->beams);
    for (int i = 0; i < 3 * rq->beams; i++)
        all[i].ids = ARENA_ARRAY(a, int32_t, rq->rq.n_prompt + q.max_new + 1);
    q.beam = all;
    q.next = all + rq->beams;
    q.done = all + 2 * rq->beams;
    q.sampler = sampler_new(&rq->rq.sample, q.n_ids);
    status st = run(&q, texts, n, e);
    sampler_free(q.sampler);
    arena_free(a);
    return st;
}

status beam_run(scorer *s, const generate_limits *limits, const beam_request *rq, beam_text *texts,
                int *n, err *e) {
    CHECK(rq->beams < scorer_get_size(s)->writes, "%d beams", rq->beams);
    return search_with(s, NULL, limits, rq, texts, n, e);
}

status beam_run_in_turn(generator *g, const beam_request *rq, beam_text *texts, int *n, err *e) {
    beam_request answer = *rq;
    generate_limits limits = {.Tmax = g->Tmax, .vocab = g->vocab, .n_ids = g->n_ids};
    TRY(generate_read_source(g, &rq->rq, &answer.rq, e));
    return search_with(NULL, g, &limits, &answer, texts, n, e);
}
