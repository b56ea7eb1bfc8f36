/* Reading order: answer_prepare, the texts' callbacks, start and end. */
#include "serve/api/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"

/* ---- making ---- */

answer *answer_new(json_t *body, http_reply *reply, metrics *m) {
    answer *a = xcalloc(1, sizeof *a);
    a->body = body;
    a->reply = reply;
    a->metrics = m;
    a->created = clock_wall_s();
    a->began_ns = clock_now_ns();
    return a;
}

static void free_text(answer_text *t) {
    answer_reader_free(t->reader);
    constraint_free(t->limit);
    strbuf_free(&t->text);
    strbuf_free(&t->thought);
    json_decref(t->calls);
    json_decref(t->logprobs);
    json_decref(t->ids);
}

void answer_free(answer *a) {
    if (!a) return;
    for (int i = 0; i < a->n_texts; i++) free_text(&a->texts[i]);
    for (int i = 0; i < a->n_prompts; i++) {
        tok_ids_free(&a->prompts[i]);
        if (a->prompt_texts) strbuf_free(&a->prompt_texts[i]);
    }
    free(a->texts);
    free(a->prompts);
    free(a->prompt_texts);
    free(a->stops);
    free(a->bias_ids);
    free(a->bias);
    tok_ids_free(&a->end);
    grammar_free(a->grammar);
    json_decref(a->tools);
    json_decref(a->body);
    free(a);
}

static status check_prompt(const answer *a, const tok_ids *prompt, api_fault *f) {
    int longest = a->model->model.serve.longest;
    if (prompt->n == 0) return err_set(&f->e, ST_USAGE, "the prompt has no tokens");
    if (prompt->n < longest) return ST_OK;
    err_at(&f->e, ST_USAGE, a->chat ? "messages" : "prompt",
           "the prompt has %ld tokens, and the context of %s holds %d with the answer",
           (long)prompt->n, a->model->name, longest);
    err_hint(&f->e, "shorten it; nothing is cut off in silence");
    return api_fault_as(f, 400, "context_length_exceeded");
}

/* The first tokens of what is longer than it may be go, where the request wants that. -1: so that the answer has the room
 * that it asks for. */
static status truncate_prompt(answer *a, int i, err *e) {
    const api_params *p = &a->params;
    tok_ids *ids = &a->prompts[i];
    int64_t room = a->model->model.serve.longest - (p->max_tokens > 0 ? p->max_tokens : 1);
    int64_t keep = p->last_tokens == -1 ? (room > 0 ? room : 1) : p->last_tokens;
    if (keep == 0 || ids->n <= keep) return ST_OK;
    memmove(ids->id, ids->id + ids->n - keep, sizeof *ids->id * (size_t)keep);
    ids->n = keep;
    if (!p->echo) return ST_OK;
    strbuf_clear(&a->prompt_texts[i]); /* what is told is what was read */
    return tok_decode(a->model->model.tok, ids->id, ids->n, p->skip_special, &a->prompt_texts[i],
                      e);
}

/* Ids that end a text: those of the model, and those that the request adds. */
static status read_ends(answer *a, err *e) {
    const tok_ids *own = a->chat ? &a->model->chat_end : &a->model->settings.end;
    for (int64_t i = 0; i < own->n && !a->params.ignore_eos; i++) tok_ids_push(&a->end, own->id[i]);
    return api_read_ids(a->params.stop_token_ids, "stop_token_ids",
                        (int32_t)a->model->model.config.vocab_size, &a->end, e);
}

static sample_options sampling_of(const api_params *p, int index) {
    return (sample_options){.temperature = p->temperature,
                            .top_k = (int)p->top_k,
                            .top_p = p->top_p,
                            .min_p = p->min_p,
                            .repetition_penalty = p->repetition_penalty,
                            .no_repeat_ngram = (int)p->no_repeat_ngram,
                            .presence_penalty = p->presence_penalty,
                            .frequency_penalty = p->frequency_penalty,
                            .seed = sample_seed((uint64_t)p->seed, index + 1)};
}

static void on_prompt(void *ctx, int64_t index, const engine_token *token);
static void on_token(void *ctx, const engine_token *token);
static void on_text(void *ctx, const char *text, size_t len);
static void on_end(void *ctx, status st, const generate_result *result, const err *e);

/* How many tokens a text behind the prompt may have. */
static int64_t most_new(const answer *a, const tok_ids *prompt) {
    int64_t room = a->model->model.serve.longest - prompt->n, most = a->params.max_tokens;
    return most >= 0 && most < room ? most : room;
}

/* A whole reply is kept until its end, with all its log-probabilities. each: texts of a prompt. */
static status check_logprobs(const answer *a, int64_t each, err *e) {
    const api_params *p = &a->params;
    int64_t told = 0;
    if (p->n_top < 0 || p->stream) return ST_OK;
    for (int i = 0; i < a->n_prompts; i++)
        told += each * (most_new(a, &a->prompts[i]) + (p->echo ? a->prompts[i].n : 0));
    told *= p->n_top + 1;
    if (told <= API_MAX_VALUES) return ST_OK;
    err_at(e, ST_USAGE, "logprobs",
           "the answer may have %ld log-probabilities, and one that is no stream %d at most",
           (long)told, API_MAX_VALUES);
    return err_hint(e, "set max_tokens, or stream");
}

static void prepare_request(answer *a, answer_text *t) {
    const api_params *p = &a->params;
    const tok_ids *prompt = &a->prompts[t->prompt];
    bool wants = p->n_top >= 0;
    t->rq = (engine_request){
        .rq = {.prompt = prompt->id,
               .n_prompt = prompt->n,
               .max_new = most_new(a, prompt), /* as many as it asks for, or as there is room for */
               .sample = sampling_of(p, t->index),
               .end = a->end.id,
               .n_end = a->end.n,
               .min_new = p->min_tokens,
               .tok = a->model->model.tok,
               .keep_special = !p->skip_special,
               .goes_on = !a->chat || p->continue_last,
               .stop = a->stops,
               .n_stop = a->n_stops,
               .bias_ids = a->bias_ids,
               .bias = a->bias,
               .n_bias = a->n_bias,
               .limit = t->limit,
               .on_token = on_token,
               .n_top = wants               ? (int)p->n_top
                        : p->best_of > p->n ? 0
                                            : -1,
               .on_text = on_text,
               .ctx = t},
        .prompt_logprobs = p->echo && wants,
        .on_prompt = on_prompt,
        .on_end = on_end};
}

static void on_thought(void *ctx, const char *text, size_t len);
static void on_says(void *ctx, const char *text, size_t len);
static void on_call(void *ctx, const char *name, const json_t *arguments);

/* The prompt is part of what is told. */
static void echo(const answer *a, answer_text *t) {
    const tok_ids *prompt = &a->prompts[t->prompt];
    const strbuf *text = &a->prompt_texts[t->prompt];
    strbuf_append(&t->text, strbuf_cstr(text), text->len);
    if (t->logprobs) reply_add_logprobs(t, prompt->id[0], NULL);
}

static void prepare_text(answer *a, answer_text *t, int index) {
    int each = a->n_texts / a->n_prompts;
    *t = (answer_text){.of = a, .index = index, .prompt = index / each};
    if (a->params.n_top >= 0) t->logprobs = reply_new_logprobs(a);
    if (a->params.return_token_ids) t->ids = json_array();
    if (a->calls != CALLS_NONE || a->thought) {
        answer_parts parts = {on_thought, on_says, on_call, t};
        t->reader = answer_reader_new(a->calls, a->thought, a->thinks, a->tools, &parts);
    }
    if (a->grammar) t->limit = grammar_constrain(a->grammar);
    if (a->params.echo) echo(a, t);
}

/* An answer may wait long: of its body it keeps what is still pointed to. */
static void drop_body(answer *a) {
    json_t *stop = json_incref((json_t *)a->params.stop);
    json_decref(a->body);
    a->body = stop;
    for (int i = 0; a->prompt_texts && i < a->n_prompts; i++) strbuf_free(&a->prompt_texts[i]);
    free(a->prompt_texts);
    a->prompt_texts = NULL;
}

status answer_prepare(answer *a, api_fault *f) {
    const api_params *p = &a->params;
    int64_t each = p->best_of > p->n ? p->best_of : p->n;
    int32_t vocab = (int32_t)a->model->model.config.vocab_size;
    if (each * a->n_prompts > API_MAX_TEXTS)
        return err_at(&f->e, ST_USAGE, "n",
                      "the request asks for %ld texts, at most %d are possible",
                      (long)(each * a->n_prompts), API_MAX_TEXTS);
    for (int i = 0; i < a->n_prompts; i++) {
        TRY(truncate_prompt(a, i, &f->e));
        TRY(check_prompt(a, &a->prompts[i], f));
    }
    TRY(check_logprobs(a, each, &f->e));
    TRY(api_read_stops(p->stop, &a->stops, &a->n_stops, &f->e));
    TRY(api_read_bias(p->logit_bias, vocab, &a->bias_ids, &a->bias, &a->n_bias, &f->e));
    TRY(read_ends(a, &f->e));
    a->n_texts = (int)each * a->n_prompts;
    a->texts = xcalloc((size_t)a->n_texts, sizeof *a->texts);
    for (int i = 0; i < a->n_texts; i++) {
        prepare_text(a, &a->texts[i], i);
        prepare_request(a, &a->texts[i]);
    }
    drop_body(a);
    return ST_OK;
}

static void note_gone(void *ctx) {
    atomic_store(&((answer *)ctx)->client_gone, true);
}

/* The reply calls no more once it has ended, and only then is the answer freed. */
void answer_watch_client(answer *a) {
    http_reply_on_gone(a->reply, note_gone, a);
}

bool answer_client_gone(const answer *a) {
    return atomic_load(&a->client_gone);
}

/* ---- what the engine tells ---- */

static void cancel_texts(answer *a) {
    for (int i = 0; i < a->n_texts; i++)
        if (a->texts[i].id && !a->texts[i].ended) engine_cancel(a->model->engine, a->texts[i].id);
}

/* Tells what is pending, if it is told piece by piece. */
static void tell(answer_text *t, const char *finish) {
    answer *a = t->of;
    bool some = t->text.len || t->thought.len || json_array_size(t->calls) || finish;
    if (!a->params.stream || a->gone || a->fault.e.code || !some) return;
    if (reply_piece(t, finish)) return;
    a->gone = true;
    cancel_texts(a);
}

static void on_prompt(void *ctx, int64_t index, const engine_token *token) {
    answer_text *t = ctx;
    (void)index;
    reply_add_logprobs(t, token->id, token);
}

static void on_token(void *ctx, const engine_token *token) {
    answer_text *t = ctx;
    answer *a = t->of;
    if (!t->first_ns) {
        t->first_ns = clock_now_ns();
        metrics_add_first(a->metrics, (double)(t->first_ns - a->began_ns) * 1e-9);
    }
    /* Of an end, lm-evaluation-harness wants the log-probability behind those of the prompt. */
    bool told = !token->ends || a->params.echo;
    if (t->logprobs && told) reply_add_logprobs(t, token->id, token);
    if (t->ids && !token->ends) json_array_append_new(t->ids, json_integer(token->id));
    if (a->params.best_of > a->params.n) t->sum_logprob += token->logprob;
}

static void on_text(void *ctx, const char *text, size_t len) {
    answer_text *t = ctx;
    if (t->reader)
        answer_reader_push(t->reader, text, len);
    else
        strbuf_append(&t->text, text, len);
    tell(t, NULL);
}

static void on_thought(void *ctx, const char *text, size_t len) {
    strbuf_append(&((answer_text *)ctx)->thought, text, len);
}

static void on_says(void *ctx, const char *text, size_t len) {
    strbuf_append(&((answer_text *)ctx)->text, text, len);
}

/* Nine letters and digits: Mistral's templates refuse any other id. */
static void call_id(const answer_text *t, char id[10]) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t x =
        sample_seed(t->of->number * 0x9E3779B97F4A7C15u + (uint64_t)t->index, t->n_calls + 2);
    for (int i = 0; i < 9; i++, x /= 36) id[i] = digits[x % 36];
    id[9] = '\0';
}

static void on_call(void *ctx, const char *name, const json_t *arguments) {
    answer_text *t = ctx;
    if (t->n_calls > 0 && !t->of->params.parallel_calls) return;
    char id[10];
    strbuf text = {0};
    json_format(&text, arguments, 0);
    call_id(t, id);
    if (!t->calls) t->calls = json_array();
    json_array_append_new(t->calls,
                          json_pack("{s:i, s:s, s:s, s:{s:s, s:o}}", "index", t->n_calls, "id", id,
                                    "type", "function", "function", "name", name, "arguments",
                                    json_text(strbuf_cstr(&text), text.len)));
    t->n_calls++;
    strbuf_free(&text);
}

/* ---- ends ---- */

const char *answer_finish(const answer_text *t) {
    bool whole = t->result.finish == FINISH_END || t->result.finish == FINISH_STOP;
    return !whole ? "length" : t->n_calls > 0 ? "tool_calls" : "stop";
}

static void count(const answer_text *t) {
    const answer *a = t->of;
    double s = t->first_ns ? clock_since_s(t->first_ns) : 0;
    metrics_add_text(a->metrics, a->prompts[t->prompt].n, &t->result, s);
}

/* The reply ends with the last text. */
static void end_if_last(answer *a) {
    if (a->n_running > 0 || !a->reply) return;
    const char *why = a->gone ? "gone" : a->fault.e.code ? "failed" : "done";
    metrics_add_answer(a->metrics, a->chat, why, clock_since_s(a->began_ns));
    if (a->fault.e.code)
        reply_fault(a);
    else
        reply_end(a);
    a->reply = NULL;
}

static void on_end(void *ctx, status st, const generate_result *result, const err *e) {
    answer_text *t = ctx;
    answer *a = t->of;
    t->ended = true;
    a->n_running--;
    if (result) t->result = *result;
    count(t);
    if (st == ST_OK) {
        if (t->reader) answer_reader_end(t->reader);
        tell(t, answer_finish(t));
    } else if (st != ST_STOPPED && a->fault.e.code == ST_OK) {
        a->fault = (api_fault){.http = st == ST_USAGE ? 400 : 500, .e = *e};
        cancel_texts(a);
    }
    end_if_last(a);
}

/* The engine may have ended a text before this returns, so all are counted before the first. */
void answer_start(answer *a) {
    a->n_running = a->n_texts;
    for (int i = 0; i < a->n_texts; i++) {
        answer_text *t = &a->texts[i];
        status st = a->gone || a->fault.e.code
                        ? ST_STOPPED
                        : engine_submit(a->model->engine, &t->rq, &t->id, &a->fault.e);
        if (st == ST_OK) continue;
        t->ended = true;
        a->n_running--;
    }
    if (a->fault.e.code) cancel_texts(a);
    end_if_last(a);
}

void answer_cancel(answer *a) {
    a->gone = true;
    cancel_texts(a);
    end_if_last(a);
}

bool answer_is_over(const answer *a) {
    return !a->reply;
}
