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
    text_state t = {
        .rq = rq, .stream = {.t = rq->tok, .skip_special = true}, .text = text, .shown = text->len};
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

/* Adds a token's text. *stopped: a stop string is complete; the text ends before it. */
static status add_text(text_state *t, int32_t id, bool *stopped, err *e) {
    *stopped = false;
    if (!t->rq->tok) return ST_OK;
    TRY(tok_stream_push(&t->stream, id, t->text, e));
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

/* ---- the loop ---- */

typedef struct run {
    generator *g;
    const generate_request *rq;
    tok_ids seq; /* prompt and what followed */
    sampler *sampler;
    float *logits; /* [vocab] as the model gave them, if log-probabilities are wanted */
    text_state text;
    generate_result *result;
} run;

static status check_request(const generator *g, const generate_request *rq, err *e) {
    if (rq->n_prompt == 0) {
        err_set(e, ST_USAGE, "the prompt is empty");
        return err_hint(e, "give at least one token, for example --prompt \"Once upon a time\"");
    }
    for (int64_t i = 0; i < rq->n_prompt; i++) {
        if (rq->prompt[i] >= 0 && rq->prompt[i] < g->vocab) continue;
        err_set(e, ST_USAGE, "the prompt has the token id %d, the model knows ids below %d",
                rq->prompt[i], g->vocab);
        return err_hint(e, "give the model its own tokenizer");
    }
    if (rq->n_prompt < g->Tmax) return ST_OK;
    err_set(e, ST_USAGE, "the prompt has %ld tokens, the context holds %d", (long)rq->n_prompt,
            g->Tmax);
    return err_hint(e, "shorten the prompt");
}

static bool is_end(const generate_request *rq, int32_t id) {
    for (int64_t i = 0; i < rq->n_end; i++)
        if (rq->end[i] == id) return true;
    return false;
}

static status not_finite(const run *r, err *e) {
    err_set(e, ST_NONFINITE, "the logits after token %ld are not finite", (long)r->seq.n);
    return err_hint(e, "the weights may be damaged, or have diverged in training");
}

/* Whether the text ends with the token just added, and why. */
static bool has_ended(const run *r, bool stopped, generate_finish *why) {
    if (stopped)
        *why = FINISH_STOP;
    else if (r->seq.n > r->g->Tmax)
        *why = FINISH_CONTEXT;
    else if (r->result->n_new == r->rq->max_new)
        *why = FINISH_LENGTH;
    else
        return false;
    return true;
}

/* In double, as the scoring programs' sums are not asked for here: the two agree to fp32. */
static double logprob_of(const float *logits, int32_t vocab, int32_t id) {
    double max = -INFINITY, sum = 0;
    for (int32_t v = 0; v < vocab; v++) max = fmax(max, (double)logits[v]);
    for (int32_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - max);
    return (double)logits[id] - max - log(sum);
}

/* A pick overwrites the logits, which are kept before where their probabilities are wanted. */
static int32_t pick(const run *r, float *logits) {
    if (r->logits) memcpy(r->logits, logits, sizeof *logits * (size_t)r->g->vocab);
    return sampler_pick(r->sampler, logits, (uint64_t)r->seq.n, r->seq.id, r->seq.n);
}

/* Picks tokens, the first from the logits after the prompt. */
static status decode(run *r, float *logits, tok_ids *out, int64_t *passes, err *e) {
    generate_result *res = r->result;
    for (bool ended = false; !ended;) {
        int32_t id = pick(r, logits);
        if (id < 0) return not_finite(r, e);
        res->finish = FINISH_END;
        if (is_end(r->rq, id)) return ST_OK;
        bool stopped;
        if (r->logits) r->rq->logprobs[res->n_new] = logprob_of(r->logits, r->g->vocab, id);
        tok_ids_push(out, id);
        tok_ids_push(&r->seq, id);
        res->n_new++;
        TRY(add_text(&r->text, id, &stopped, e));
        ended = has_ended(r, stopped, &res->finish);
        if (ended) break;
        res->finish = FINISH_INTERRUPT;
        logits = generator_continue(r->g, r->seq.id, r->seq.n, r->rq->interrupt, NULL);
        ended = !logits;
        if (logits) ++*passes;
    }
    return ST_OK;
}

static status prefill_and_decode(run *r, tok_ids *out, err *e) {
    const generate_request *rq = r->rq;
    generate_result *res = r->result;
    int64_t began = clock_now_ns(), passes = 0;
    float *logits =
        generator_continue(r->g, rq->prompt, rq->n_prompt, rq->interrupt, &res->n_reused);
    res->prefill_rate = per_second(rq->n_prompt - res->n_reused, began);
    res->finish = FINISH_INTERRUPT;
    if (!logits) return ST_OK;
    began = clock_now_ns();
    TRY(decode(r, logits, out, &passes, e));
    res->decode_rate = per_second(passes, began);
    return end_text(&r->text, &res->finish, e);
}

status generate_run(generator *g, const generate_request *rq, tok_ids *out, strbuf *text,
                    generate_result *result, err *e) {
    TRY(check_request(g, rq, e));
    *result = (generate_result){0};
    run r = {.g = g, .rq = rq, .result = result, .text = text_begin(rq, text)};
    for (int64_t i = 0; i < rq->n_prompt; i++) tok_ids_push(&r.seq, rq->prompt[i]);
    r.sampler = sampler_new(&rq->sample, g->n_ids);
    if (rq->logprobs) r.logits = xcalloc((size_t)g->vocab, sizeof *r.logits);
    status st = prefill_and_decode(&r, out, e);
    tok_stream_free(&r.text.stream);
    sampler_free(r.sampler);
    free(r.logits);
    tok_ids_free(&r.seq);
    return st;
}
