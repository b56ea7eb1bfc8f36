#include "infer/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"

const char *generate_finish_name(generate_finish f) {
    static const char *const names[] = {[FINISH_LENGTH] = "length",
                                        [FINISH_CONTEXT] = "length",
                                        [FINISH_END] = "eos",
                                        [FINISH_STOP] = "stop",
                                        [FINISH_INTERRUPT] = "interrupt"};
    return names[f];
}

static double per_second(int64_t tokens, int64_t began_ns) {
    double s = clock_since_s(began_ns);
    return s > 0 ? (double)tokens / s : 0;
}

/* ---- text and stop strings ---- */

typedef struct text_state {
    const generate_request *rq;
    tok_stream stream;
    strbuf *text;        /* all text so far */
    size_t shown;        /* bytes already given to on_text */
    size_t longest_stop; /* bytes */
} text_state;

static text_state text_begin(const generate_request *rq, strbuf *text) {
    bool behind = rq->tok && rq->goes_on &&
                  tok_has_text(rq->tok, rq->prompt, rq->n_prompt, !rq->keep_special);
    text_state t = {.rq = rq,
                    .stream = {.t = rq->tok, .skip_special = !rq->keep_special, .behind = behind},
                    .text = text,
                    .shown = text->len};
    for (int i = 0; i < rq->n_stop; i++) {
        size_t n = strlen(rq->stop[i]);
        if (n > t.longest_stop) t.longest_stop = n;
    }
    return t;
}

static void show_until(text_state *t, size_t end) {
    if (end <= t->shown) return;
    if (t->rq->on_text) t->rq->on_text(t->rq->ctx, t->text->data + t->shown, end - t->shown);
    t->shown = end;
}

/* Where the earliest stop string begins, or the text's length. What was shown cannot begin one. */
static size_t find_stop(const text_state *t) {
    size_t best = t->text->len;
    const char *from = strbuf_cstr(t->text) + t->shown;
    for (int i = 0; i < t->rq->n_stop; i++) {
        const char *stop = t->rq->stop[i];
        const char *at = memmem(from, t->text->len - t->shown, stop, strlen(stop));
        if (at && (size_t)(at - t->text->data) < best) best = (size_t)(at - t->text->data);
    }
    return best;
}

/* The end of what may be shown: not what may begin a stop string, and whole characters. */
static size_t safe_end(const text_state *t) {
    size_t held = t->longest_stop ? t->longest_stop - 1 : 0, end = t->text->len;
    if (held == 0) return end;
    end = end > held ? end - held : 0;
    while (end > t->shown && utf8_continues(t->text->data[end])) end--;
    return end;
}

/* Adds a token's text. *stopped: a stop string is complete; the text ends before it. stops: such
 * strings are looked for. */
static status add_text(text_state *t, int32_t id, bool stops, bool *stopped, err *e) {
    *stopped = false;
    if (!t->rq->tok) return ST_OK;
    TRY(tok_stream_push(&t->stream, id, t->text, e));
    if (!stops) {
        show_until(t, t->text->len);
        return ST_OK;
    }
    size_t stop = find_stop(t);
    *stopped = stop < t->text->len;
    if (*stopped) strbuf_truncate(t->text, stop);
    show_until(t, *stopped ? stop : safe_end(t));
    return ST_OK;
}

static status end_text(text_state *t, generate_finish *finish, err *e) {
    if (!t->rq->tok || *finish == FINISH_STOP) return ST_OK;
    TRY(tok_stream_flush(&t->stream, t->text, e));
    size_t stop = find_stop(t);
    if (stop < t->text->len) {
        strbuf_truncate(t->text, stop);
        *finish = FINISH_STOP;
    }
    show_until(t, t->text->len);
    return ST_OK;
}

/* ---- one text ---- */

struct generation {
    const generate_request *rq;
    generate_limits limits;
    tok_ids seq; /* prompt and what followed */
    sampler *sampler;
    float *logits;    /* [vocab] as the model gave them, if log-probabilities are wanted */
    int32_t *top_ids; /* [n_top] */
    double *top;      /* [n_top] their log-probabilities */
    uint64_t *mask;   /* of n_ids: what the constraint allows; NULL: there is none */
    text_state text;
    tok_ids *out;
    generate_result *result;
};

status generation_check(const generate_request *rq, const generate_limits *k, err *e) {
    if (rq->n_prompt == 0) {
        err_set(e, ST_USAGE, "the prompt is empty");
        return err_hint(e, "give at least one token, for example --prompt \"Once upon a time\"");
    }
    for (int64_t i = 0; i < rq->n_prompt; i++) {
        if (rq->prompt[i] >= 0 && rq->prompt[i] < k->vocab) continue;
        err_set(e, ST_USAGE, "the prompt has the token id %d, the model knows ids below %d",
                rq->prompt[i], k->vocab);
        return err_hint(e, "give the model its own tokenizer");
    }
    for (int64_t i = 0; i < rq->n_bias; i++)
        if (rq->bias_ids[i] < 0 || rq->bias_ids[i] >= k->n_ids)
            return err_set(e, ST_USAGE, "a bias is given to the token id %d, ids are below %d",
                           rq->bias_ids[i], k->n_ids);
    if (rq->n_prompt < k->Tmax) return ST_OK;
    err_set(e, ST_USAGE, "the prompt has %ld tokens, the context holds %d", (long)rq->n_prompt,
            k->Tmax);
    return err_hint(e, "shorten the prompt");
}

static int64_t mask_words(const generation *w) {
    return ((int64_t)w->limits.n_ids + 63) / 64;
}

status generation_begin(generation **out, const generate_request *rq, const generate_limits *limits,
                        tok_ids *ids, strbuf *text, generate_result *result, err *e) {
    *out = NULL;
    TRY(generation_check(rq, limits, e));
    *result = (generate_result){.finish = FINISH_INTERRUPT};
    generation *w = xcalloc(1, sizeof *w);
    *w = (generation){.rq = rq, .limits = *limits, .out = ids, .result = result};
    w->text = text_begin(rq, text);
    for (int64_t i = 0; i < rq->n_prompt; i++) tok_ids_push(&w->seq, rq->prompt[i]);
    w->sampler = sampler_new(&rq->sample, limits->n_ids);
    if (rq->logprobs || (rq->on_token && rq->n_top >= 0))
        w->logits = xcalloc((size_t)limits->vocab, sizeof *w->logits);
    if (rq->on_token && rq->n_top > 0) {
        w->top_ids = xcalloc((size_t)rq->n_top, sizeof *w->top_ids);
        w->top = xcalloc((size_t)rq->n_top, sizeof *w->top);
    }
    if (rq->limit) w->mask = xcalloc((size_t)mask_words(w), sizeof *w->mask);
    *out = w;
    return ST_OK;
}

void generation_free(generation *w) {
    if (!w) return;
    tok_stream_free(&w->text.stream);
    sampler_free(w->sampler);
    free(w->logits);
    free(w->top_ids);
    free(w->top);
    free(w->mask);
    tok_ids_free(&w->seq);
    free(w);
}

const tok_ids *generation_ids(const generation *w) {
    return &w->seq;
}

static bool is_end(const generate_request *rq, int32_t id) {
    for (int64_t i = 0; !rq->ignore_end && i < rq->n_end; i++)
        if (rq->end[i] == id) return true;
    return false;
}

/* Whether the text ends with the token just added, and why. */
static bool has_ended(const generation *w, bool stopped, generate_finish *why) {
    if (stopped)
        *why = FINISH_STOP;
    else if (w->rq->limit && w->rq->limit->class->must_end(w->rq->limit))
        *why = FINISH_END;
    else if (w->seq.n > w->limits.Tmax)
        *why = FINISH_CONTEXT;
    else if (w->result->n_new == w->rq->max_new)
        *why = FINISH_LENGTH;
    else
        return false;
    return true;
}

/* ---- a pick ---- */

static void forbid_ends(const generation *w, float *logits) {
    const generate_request *rq = w->rq;
    for (int64_t i = 0; !rq->ignore_end && i < rq->n_end; i++)
        if (rq->end[i] >= 0 && rq->end[i] < w->limits.vocab) logits[rq->end[i]] = -INFINITY;
}

/* How many tokens can be picked yet, the next one included. */
static int64_t picks_left(const generation *w) {
    int64_t asked = w->rq->max_new - w->result->n_new, room = w->limits.Tmax - w->seq.n + 1;
    return asked < room ? asked : room;
}

static void allow_end(const generation *w, int32_t id) {
    if (id >= 0 && id < w->limits.n_ids) w->mask[id / 64] |= (uint64_t)1 << id % 64;
}

/* What the constraint does not allow cannot come. Ends are no text: they may come where the text is
 * complete. */
static status obey_limit(const generation *w, float *logits, err *e) {
    const generate_request *rq = w->rq;
    constraint *limit = rq->limit;
    if (!limit) return ST_OK;
    memset(w->mask, 0, sizeof *w->mask * (size_t)mask_words(w));
    bool may_go_on = limit->class->allow(limit, picks_left(w), w->mask);
    bool may_end = !rq->ignore_end && rq->n_end > 0 && limit->class->may_end(limit);
    if (!may_go_on && !may_end) {
        err_set(e, ST_USAGE, "no token of the vocabulary can follow as the grammar asks");
        return err_hint(e, "the tokenizer lacks characters that the schema needs");
    }
    for (int64_t i = 0; may_end && i < rq->n_end; i++) allow_end(w, rq->end[i]);
    for (int32_t i = 0; i < w->limits.n_ids; i++)
        if (!(w->mask[i / 64] >> i % 64 & 1)) logits[i] = -INFINITY;
    return ST_OK;
}

/* Whether each token is one that the request forbids: a NaN is none of these. */
static bool all_forbidden(const generation *w, const float *logits) {
    int32_t i = 0;
    while (i < w->limits.n_ids && logits[i] == -INFINITY) i++;
    return w->rq->sample.no_repeat_ngram > 0 && i == w->limits.n_ids;
}

/* A pick overwrites the logits, which are kept before where their probabilities are wanted. */
static status pick(const generation *w, float *logits, int32_t *id, err *e) {
    const generate_request *rq = w->rq;
    if (w->logits) memcpy(w->logits, logits, sizeof *logits * (size_t)w->limits.vocab);
    for (int64_t i = 0; i < rq->n_bias; i++)
        logits[rq->bias_ids[i]] = (float)(logits[rq->bias_ids[i]] + rq->bias[i]);
    TRY(obey_limit(w, logits, e));
    if (w->result->n_new < rq->min_new && !rq->limit) forbid_ends(w, logits);
    *id = sampler_pick(w->sampler, logits, (uint64_t)w->seq.n, w->seq.id, w->seq.n, rq->n_prompt);
    if (*id >= 0 || !all_forbidden(w, logits)) return ST_OK;
    err_set(e, ST_USAGE, "after %ld tokens each that could follow would repeat %d of them in a row",
            (long)w->seq.n, rq->sample.no_repeat_ngram);
    return err_hint(e, "raise no_repeat_ngram, or ask for fewer tokens");
}

bool generation_rule(const generation *w, int64_t n, pick_rule *rule) {
    const generate_request *rq = w->rq;
    bool wanted = w->logits || rq->n_bias || rq->limit || n - rq->n_prompt < rq->min_new;
    return !wanted && sampler_rule(w->sampler, (uint64_t)n, rule);
}

/* Tells of a token before its text is known. */
static status report(const generation *w, int32_t id, bool ends, err *e) {
    const generate_request *rq = w->rq;
    token_report t = {.id = id, .top_ids = w->top_ids, .top_logprobs = w->top, .ends = ends};
    if (w->logits) {
        double sum = logits_log_sum(w->logits, w->limits.vocab);
        if (!isfinite(sum)) return logits_not_finite(w->seq.n, e);
        t.logprob = (double)w->logits[id] - sum;
        if (rq->logprobs && !ends) rq->logprobs[w->result->n_new] = t.logprob;
        if (w->top)
            t.n_top = most_likely(w->logits, w->limits.n_ids, sum, rq->n_top, w->top_ids, w->top);
    }
    if (rq->on_token) rq->on_token(rq->ctx, &t);
    return ST_OK;
}

status generation_take(generation *w, float *logits, bool *ended, err *e) {
    int32_t id;
    TRY(pick(w, logits, &id, e));
    return generation_take_id(w, id, ended, e);
}

status generation_take_id(generation *w, int32_t id, bool *ended, err *e) {
    generate_result *res = w->result;
    const generate_request *rq = w->rq;
    if (id < 0) return logits_not_finite(w->seq.n, e);
    *ended = is_end(rq, id);
    TRY(report(w, id, *ended, e));
    if (*ended) {
        res->finish = FINISH_END;
        return ST_OK;
    }
    bool stopped;
    tok_ids_push(w->out, id);
    tok_ids_push(&w->seq, id);
    res->n_new++;
    if (rq->limit) rq->limit->class->take(rq->limit, id);
    TRY(add_text(&w->text, id, res->n_new > rq->min_new, &stopped, e));
    *ended = has_ended(w, stopped, &res->finish);
    return ST_OK;
}

status generation_end(generation *w, err *e) {
    return end_text(&w->text, &w->result->finish, e);
}

/* ---- the loop ---- */

/* The token after what the generator has computed. */
static status take(generator *g, generation *w, bool *ended, err *e) {
    pick_rule rule;
    if (pick_is_on_device(g->dev) && generation_rule(w, w->seq.n, &rule))
        return generation_take_id(w, generator_pick(g, &rule), ended, e);
    return generation_take(w, generator_logits(g), ended, e);
}

/* Picks tokens, the first of them after the prompt. */
static status decode(generator *g, generation *w, int64_t *passes, err *e) {
    for (bool ended, goes_on = true; goes_on;) {
        TRY(take(g, w, &ended, e));
        if (ended) break;
        goes_on = generator_advance(g, w->seq.id, w->seq.n, w->rq->interrupt, NULL);
        *passes += goes_on;
    }
    return ST_OK;
}

static status prefill_and_decode(generator *g, generation *w, err *e) {
    const generate_request *rq = w->rq;
    generate_result *res = w->result;
    int64_t began = clock_now_ns(), passes = 0;
    bool read = generator_advance(g, rq->prompt, rq->n_prompt, rq->interrupt, &res->n_reused);
    res->prefill_rate = per_second(rq->n_prompt - res->n_reused, began);
    if (!read) return ST_OK;
    began = clock_now_ns();
    TRY(decode(g, w, &passes, e));
    res->decode_rate = per_second(passes, began);
    return generation_end(w, e);
}

status generate_read_source(generator *g, const generate_request *rq, generate_request *answer,
                            err *e) {
    *answer = *rq;
    if (!g->Smax) return ST_OK;
    generate_limits limits = {.Tmax = g->Smax + 1, .vocab = g->vocab, .n_ids = g->n_ids};
    TRY(generation_check(rq, &limits, e));
    generator_set_source(g, rq->prompt, rq->n_prompt);
    answer->prompt = &g->begin;
    answer->n_prompt = 1;
    answer->goes_on = false; /* on the source */
    return ST_OK;
}

status generate_run(generator *g, const generate_request *rq, tok_ids *out, strbuf *text,
                    generate_result *result, err *e) {
    generation *w;
    generate_request answer;
    TRY(generate_read_source(g, rq, &answer, e));
    generate_limits limits = {.Tmax = g->Tmax, .vocab = g->vocab, .n_ids = g->n_ids};
    TRY(generation_begin(&w, &answer, &limits, out, text, result, e));
    status st = prefill_and_decode(g, w, e);
    generation_free(w);
    return st;
}
