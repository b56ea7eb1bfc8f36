/* What a load asks: prompts of random words or from a file, and requests that are wrong on purpose. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/serve_load.h"
#include "base/json.h"
#include "base/rng.h"

/* Short and frequent: nearly every tokenizer has each as one token. */
static const char *const words[] = {
    "the",   "of",     "and",   "to",    "in",    "for",   "that",  "is",     "with",   "on",
    "as",    "by",     "at",    "from",  "this",  "was",   "are",   "have",   "not",    "which",
    "can",   "other",  "has",   "more",  "their", "all",   "one",   "about",  "when",   "time",
    "first", "people", "new",   "after", "two",   "world", "year",  "work",   "water",  "life",
    "found", "small",  "large", "house", "name",  "city",  "place", "school", "little", "between",
    "under", "light",  "night", "power", "three", "state", "story", "number", "best",   "group"};

/* Independent draws for one request. */
enum { DRAW_KIND, DRAW_WORDS, DRAW_NEW, DRAW_PATIENCE, DRAW_FAULT, DRAW_TEXT };

static rng_key key_of(const load_wish *w, int64_t number) {
    return rng_key_numbered(w->seed, (uint64_t)number);
}

static int64_t draw(rng_key key, uint64_t what, load_range r) {
    return r.lo + (int64_t)(rng_u32(key, what) % (uint64_t)(r.hi - r.lo + 1));
}

load_kind load_kind_of(const load_wish *w, int64_t number) {
    double u = rng_uniform(key_of(w, number), DRAW_KIND);
    return u < w->malformed               ? LOAD_MALFORMED
           : u < w->malformed + w->cancel ? LOAD_CANCEL
                                          : LOAD_WHOLE;
}

static int64_t new_tokens(const load_wish *w, int64_t number) {
    return draw(key_of(w, number), DRAW_NEW, w->news);
}

int64_t load_patience(const load_wish *w, int64_t number) {
    load_range most = {0, new_tokens(w, number) / 2};
    return draw(key_of(w, number), DRAW_PATIENCE, most);
}

/* ---- prompts ---- */

static void put_words(strbuf *out, rng_key key, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (out->len) strbuf_putc(out, ' ');
        strbuf_puts(out, words[rng_u32(key, DRAW_TEXT + (uint64_t)i) % ARRAY_LEN(words)]);
    }
}

static json_t *draw_text(const load_wish *w, int64_t number) {
    strbuf text = {0};
    rng_key key = key_of(w, number);
    int64_t n = draw(key, DRAW_WORDS, w->words);
    int64_t shared = n < w->shared_words ? n : w->shared_words;
    put_words(&text, rng_key_named(w->seed, "shared"), shared);
    put_words(&text, key, n - shared);
    json_t *s = json_text(strbuf_cstr(&text), text.len);
    strbuf_free(&text);
    return s;
}

/* Where the API has it: a text, or a list of messages. */
static void put_prompt(json_t *body, const load_wish *w, int64_t number) {
    json_t *p;
    if (w->prompts)
        p = json_incref(json_array_get(w->prompts, (size_t)number % json_array_size(w->prompts)));
    else
        p = draw_text(w, number);
    if (!w->chat) {
        json_object_set_new(body, "prompt", p);
        return;
    }
    if (json_is_string(p)) p = json_pack("[{s:s,s:o}]", "role", "user", "content", p);
    json_object_set_new(body, "messages", p);
}

static json_t *body_of(const load_wish *w, const char *model, int64_t number) {
    json_t *body = json_object();
    if (model) json_object_set_new(body, "model", json_cstr(model));
    put_prompt(body, w, number);
    json_object_set_new(body, "max_tokens", json_integer(new_tokens(w, number)));
    json_object_set_new(body, "temperature", json_f64(w->temperature));
    json_object_set_new(body, "seed", json_integer(number));
    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    if (!w->until_end) json_object_set_new(body, "ignore_eos", json_true());
    return body;
}

/* ---- wrong on purpose ---- */

typedef enum load_fault {
    FAULT_HALF_JSON,   /* a body that ends in the middle */
    FAULT_NO_UTF8,     /* a body of other bytes */
    FAULT_LENGTH,      /* max_tokens: -1 */
    FAULT_TEMPERATURE, /* "temperature": "hot" */
    FAULT_NO_PROMPT,   /* neither prompt nor messages */
    FAULT_PATH,        /* there is no such route */
    FAULT_METHOD,      /* DELETE of a route that is posted to */
    FAULT_SHORT_BODY,  /* fewer bytes than Content-Length says, and hangs up */
    FAULT_JUNK,        /* no HTTP */
    FAULTS,
} load_fault;

static void spoil_body(strbuf *text, json_t *body, load_fault f) {
    if (f == FAULT_LENGTH) json_object_set_new(body, "max_tokens", json_integer(-1));
    if (f == FAULT_TEMPERATURE) json_object_set_new(body, "temperature", json_string("hot"));
    if (f == FAULT_NO_PROMPT) json_object_del(body, "prompt");
    if (f == FAULT_NO_PROMPT) json_object_del(body, "messages");
    json_format(text, body, 0);
    if (f == FAULT_HALF_JSON) strbuf_truncate(text, text->len / 2);
    if (f == FAULT_NO_UTF8) memset(text->data + 2, 0xC0, 3);
}

void load_put_request(strbuf *out, const load_wish *w, const http_place *p, const char *model,
                      int64_t number, bool *hang_up) {
    const char *path = w->chat ? "/v1/chat/completions" : "/v1/completions";
    load_fault f = FAULTS;
    if (load_kind_of(w, number) == LOAD_MALFORMED)
        f = (load_fault)(rng_u32(key_of(w, number), DRAW_FAULT) % FAULTS);
    *hang_up = f == FAULT_SHORT_BODY;
    if (f == FAULT_JUNK) {
        strbuf_append(out, "\x16\x03\x01 hello\r\n\r\n\r\n", 14);
        return;
    }
    json_t *body = body_of(w, model, number);
    strbuf text = {0};
    spoil_body(&text, body, f);
    http_put_request(out, p, f == FAULT_METHOD ? "DELETE" : "POST",
                     f == FAULT_PATH ? "/v1/../nothing" : path, w->key, strbuf_cstr(&text),
                     text.len);
    if (f == FAULT_SHORT_BODY) strbuf_truncate(out, out->len - text.len / 2);
    strbuf_free(&text);
    json_decref(body);
}
