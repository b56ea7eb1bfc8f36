/* What a client sees of an answer, in the forms of OpenAI's API.
 *
 * Two readers decide details. The public openai client checks types: a stream of a chat begins with the
 * role, a message that only calls tools has content null. lm-evaluation-harness compares the
 * log-probability of a token with the largest of its alternatives, as decimal texts read back: both
 * come from one number here, and no two alternatives share a key. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "serve/api/answer.h"

#define EVENTS "text/event-stream; charset=utf-8"
#define JSON "application/json"

/* ---- tokens ---- */

/* JSON has no infinities; OpenAI says this of what cannot be. */
static json_t *logprob_json(double logprob) {
    return json_f64(fmax(logprob, -9999));
}

/* Half a character has no text of its own: its bytes are named, as OpenAI's older models did. */
static json_t *token_text(const tok *k, int32_t id) {
    size_t len = 0;
    const char *bytes = tok_bytes(k, id, &len);
    if (utf8_valid_prefix(bytes ? bytes : "", len) == len)
        return json_stringn(bytes ? bytes : "", len);
    strbuf name = {0};
    strbuf_puts(&name, "bytes:");
    for (size_t i = 0; i < len; i++) strbuf_printf(&name, "\\x%02x", (uint8_t)bytes[i]);
    json_t *s = json_string(strbuf_cstr(&name));
    strbuf_free(&name);
    return s;
}

/* Sets a token of a dictionary; tokens of equal text are told apart by their ids. */
static void set_top(json_t *top, const tok *k, int32_t id, double logprob) {
    json_t *text = token_text(k, id);
    const char *key = json_string_value(text);
    char other[32];
    if (json_object_getn(top, key, json_string_length(text)) ||
        strlen(key) != json_string_length(text)) {
        snprintf(other, sizeof other, "token_id:%d", id);
        key = other;
    }
    json_object_set_new(top, key, logprob_json(logprob));
    json_decref(text);
}

/* The number of a token among its alternatives; n_top: it is not there. */
static int rank_of(const token_report *r) {
    int i = 0;
    while (i < r->n_top && r->top_ids[i] != r->id) i++;
    return i;
}

static double logprob_of(const token_report *r) {
    int rank = rank_of(r);
    return rank < r->n_top ? r->top_logprobs[rank] : r->logprob;
}

static json_t *top_dictionary(const tok *k, const token_report *r) {
    json_t *top = json_object();
    for (int i = 0; i < r->n_top; i++) set_top(top, k, r->top_ids[i], r->top_logprobs[i]);
    if (rank_of(r) == r->n_top) set_top(top, k, r->id, r->logprob);
    return top;
}

static int64_t characters(const char *bytes, size_t len) {
    int64_t n = 0;
    for (size_t i = 0; i < len; i++) n += !utf8_continues(bytes[i]);
    return n;
}

static void add_to_text(answer_text *t, const tok *k, int32_t id, const token_report *r) {
    json_t *lp = t->logprobs;
    size_t len = 0;
    const char *bytes = tok_bytes(k, id, &len);
    json_array_append_new(json_object_get(lp, "tokens"), token_text(k, id));
    json_array_append_new(json_object_get(lp, "token_logprobs"),
                          r ? logprob_json(logprob_of(r)) : json_null());
    json_array_append_new(json_object_get(lp, "top_logprobs"),
                          r ? top_dictionary(k, r) : json_null());
    json_array_append_new(json_object_get(lp, "text_offset"), json_integer(t->offset));
    t->offset += characters(bytes, bytes ? len : 0);
}

static json_t *token_object(const tok *k, int32_t id, double logprob) {
    size_t len = 0;
    const char *bytes = tok_bytes(k, id, &len);
    json_t *list = json_array();
    for (size_t i = 0; i < (bytes ? len : 0); i++)
        json_array_append_new(list, json_integer((uint8_t)bytes[i]));
    return json_pack("{s:o, s:o, s:o}", "token", json_text(bytes ? bytes : "", bytes ? len : 0),
                     "logprob", logprob_json(logprob), "bytes", list);
}

static void add_to_chat(answer_text *t, const tok *k, const token_report *r) {
    json_t *o = token_object(k, r->id, logprob_of(r)), *top = json_array();
    for (int i = 0; i < r->n_top; i++)
        json_array_append_new(top, token_object(k, r->top_ids[i], r->top_logprobs[i]));
    json_object_set_new(o, "top_logprobs", top);
    json_array_append_new(json_object_get(t->logprobs, "content"), o);
}

void reply_add_logprobs(answer_text *t, int32_t id, const token_report *report) {
    const tok *k = t->of->model->model.tok;
    if (t->of->chat)
        add_to_chat(t, k, report);
    else
        add_to_text(t, k, id, report);
}

json_t *reply_new_logprobs(const answer *a) {
    if (a->chat) return json_pack("{s:[], s:n}", "content", "refusal");
    return json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs",
                     "text_offset");
}

/* ---- choices ---- */

/* What is pending becomes the caller's. */
static json_t *take_text(strbuf *b) {
    json_t *s = json_text(strbuf_cstr(b), b->len);
    strbuf_clear(b);
    return s;
}

static json_t *take_logprobs(answer_text *t) {
    if (!t->logprobs) return json_null();
    json_t *lp = t->logprobs;
    t->logprobs = reply_new_logprobs(t->of);
    return lp;
}

static void take_calls(answer_text *t, json_t *to) {
    if (!t->calls) return;
    json_object_set_new(to, "tool_calls", t->calls);
    t->calls = NULL;
}

/* A whole message; `index` of calls is for streams only. */
static json_t *take_message(answer_text *t) {
    bool only_calls = t->n_calls > 0 && t->text.len == 0;
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          only_calls ? json_null() : take_text(&t->text)),
           *call;
    size_t i;
    if (t->thought.len) json_object_set_new(m, "reasoning_content", take_text(&t->thought));
    json_array_foreach(t->calls, i, call) json_object_del(call, "index");
    take_calls(t, m);
    return m;
}

static json_t *take_delta(answer_text *t) {
    json_t *d = json_object();
    if (!t->began) json_object_set_new(d, "role", json_string("assistant"));
    if (t->thought.len) json_object_set_new(d, "reasoning_content", take_text(&t->thought));
    bool empty_first = !t->began && json_object_size(d) == 1 && !t->calls;
    if (t->text.len || empty_first) json_object_set_new(d, "content", take_text(&t->text));
    take_calls(t, d);
    return d;
}

/* finish NULL: it goes on. */
static json_t *take_choice(answer_text *t, int index, const char *finish, bool is_piece) {
    json_t *c = json_pack("{s:i}", "index", index);
    if (!t->of->chat)
        json_object_set_new(c, "text", take_text(&t->text));
    else if (is_piece)
        json_object_set_new(c, "delta", take_delta(t));
    else
        json_object_set_new(c, "message", take_message(t));
    json_object_set_new(c, "logprobs", take_logprobs(t));
    json_object_set_new(c, "finish_reason", json_cstr(finish));
    if (t->ids) {
        json_object_set_new(c, "token_ids", t->ids);
        t->ids = json_array();
    }
    return c;
}

/* ---- whole objects ---- */

static json_t *usage_json(const answer *a) {
    json_int_t prompt = 0, made = 0, reused = 0;
    int each = a->n_texts / a->n_prompts;
    for (int i = 0; i < a->n_prompts; i++) {
        prompt += a->prompts[i].n;
        reused += a->texts[i * each].result.n_reused;
    }
    for (int i = 0; i < a->n_texts; i++) made += a->texts[i].result.n_new;
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens", made,
                     "total_tokens", prompt + made, "prompt_tokens_details", "cached_tokens",
                     reused);
}

/* Takes the choices over. */
static json_t *frame(const answer *a, json_t *choices, bool is_piece) {
    const char *object = !a->chat   ? "text_completion"
                         : is_piece ? "chat.completion.chunk"
                                    : "chat.completion";
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", a->id, "object", object, "created",
                     (json_int_t)a->created, "model", a->model->name, "choices", choices);
}

static bool put_event(answer *a, json_t *o) {
    strbuf line = {0};
    strbuf_puts(&line, "data: ");
    api_put_json(&line, o);
    strbuf_puts(&line, "\n\n");
    if (!a->streams) {
        http_reply_header(a->reply, "Cache-Control", "no-cache");
        http_reply_begin(a->reply, 200, EVENTS);
    }
    a->streams = true;
    bool ok = http_reply_piece(a->reply, line.data, line.len);
    strbuf_free(&line);
    return ok;
}

/* With return_token_ids, where vLLM has them: in the choices of texts, beside those of chats. */
static void add_prompt_ids(const answer_text *t, json_t *whole, json_t *choice) {
    const tok_ids *prompt = &t->of->prompts[t->prompt];
    json_t *list = json_array();
    for (int64_t i = 0; i < prompt->n; i++)
        json_array_append_new(list, json_integer(prompt->id[i]));
    json_object_set_new(t->of->chat ? whole : choice, "prompt_token_ids", list);
}

bool reply_piece(answer_text *t, const char *finish) {
    answer *a = t->of;
    bool first = !t->began;
    json_t *choice = take_choice(t, t->index, finish, true);
    json_t *o = frame(a, json_pack("[o]", choice), true);
    t->began = true;
    if (first && t->ids) add_prompt_ids(t, o, choice);
    if (a->params.include_usage) json_object_set_new(o, "usage", json_null());
    return put_event(a, o);
}

static void note_tokens(const answer *a) {
    int64_t prompt = 0, made = 0;
    char note[64];
    for (int i = 0; i < a->n_prompts; i++) prompt += a->prompts[i].n;
    for (int i = 0; i < a->n_texts; i++) made += a->texts[i].result.n_new;
    snprintf(note, sizeof note, "%ld+%ld tokens", (long)prompt, (long)made);
    http_reply_note(a->reply, note);
}

static void end_stream(answer *a, bool whole) {
    static const char done[] = "data: [DONE]\n\n";
    bool ok = !a->gone;
    if (ok && whole && a->params.include_usage) {
        json_t *o = frame(a, json_array(), true);
        json_object_set_new(o, "usage", usage_json(a));
        ok = put_event(a, o);
    }
    if (ok) (void)!http_reply_piece(a->reply, done, sizeof done - 1);
    http_reply_end(a->reply);
}

/* ---- ends ---- */

/* Log-probability per token: of the texts of a prompt, those with the most are the best. */
static double goodness(const answer_text *t) {
    int64_t n = t->result.n_new;
    return n ? t->sum_logprob / (double)n : 0;
}

/* How many texts of the same prompt are better; of equal ones the first is. */
static int place_of(const answer *a, const answer_text *t) {
    int better = 0;
    for (int i = 0; i < a->n_texts; i++) {
        const answer_text *o = &a->texts[i];
        if (o == t || o->prompt != t->prompt) continue;
        double more = goodness(o) - goodness(t);
        better += more > 0 || (more == 0 && i < t->index);
    }
    return better;
}

static void end_whole(answer *a) {
    int n = (int)a->params.n;
    bool choose = a->params.best_of > a->params.n;
    json_t *choices = json_array(), *o = frame(a, choices, false);
    for (int place = 0; place < a->n_texts; place++) json_array_append_new(choices, json_null());
    for (int i = 0; i < a->n_texts; i++) {
        answer_text *t = &a->texts[i];
        int place = choose ? place_of(a, t) : i % n;
        if (place >= n) continue;
        int index = t->prompt * n + place;
        json_t *choice = take_choice(t, index, answer_finish(t), false);
        if (t->ids) add_prompt_ids(t, o, choice);
        json_array_set_new(choices, (size_t)index, choice);
    }
    while (json_array_size(choices) > (size_t)(n * a->n_prompts))
        json_array_remove(choices, json_array_size(choices) - 1);
    json_object_set_new(o, "usage", usage_json(a));
    reply_object(a->reply, o);
}

void reply_end(answer *a) {
    note_tokens(a);
    if (a->streams)
        end_stream(a, true);
    else if (a->gone)
        http_reply_send(a->reply, 499, JSON, "", 0); /* nobody reads it; logs know the number */
    else
        end_whole(a);
}

void reply_fault(answer *a) {
    note_tokens(a);
    if (!a->streams) {
        reply_refuse(a->reply, &a->fault);
        return;
    }
    bool ok = !a->gone && put_event(a, api_fault_json(&a->fault));
    a->gone = !ok;
    end_stream(a, false);
}

void reply_refuse(http_reply *r, const api_fault *f) {
    strbuf text = {0};
    if (api_fault_status(f) == 429) http_reply_header(r, "Retry-After", "1");
    api_put_json(&text, api_fault_json(f));
    http_reply_send(r, api_fault_status(f), JSON, text.data, text.len);
    strbuf_free(&text);
}

void reply_object(http_reply *r, json_t *o) {
    strbuf text = {0};
    api_put_json(&text, o);
    http_reply_send(r, 200, JSON, text.data, text.len);
    strbuf_free(&text);
}
