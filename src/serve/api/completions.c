/* /v1/completions: prompts are texts or ids, one or a list of them. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/arena.h"
#include "serve/api/api.h"
#include "serve/api/limits.h"

/* ---- shared with chats ---- */

static uint64_t random_number(void) {
    uint64_t x = 0;
    if (getrandom(&x, sizeof x, 0) != sizeof x) x = (uint64_t)random();
    return x;
}

answer *api_begin(server *s, const http_request *rq, http_reply *reply, int route, api_fault *f) {
    json_t *body;
    if (api_body_parse(&body, rq->body, rq->body_bytes, &f->e) != ST_OK) return NULL;
    answer *a = answer_new(body, reply, s->metrics);
    a->chat = route == API_CHAT;
    a->number = random_number();
    snprintf(a->id, sizeof a->id, "%s-%016lx", a->chat ? "chatcmpl" : "cmpl", a->number);
    a->params = api_params_default();
    a->params.seed = (int64_t)(random_number() >> 1);
    const json_t *name = json_object_get(body, "model");
    a->model = json_is_string(name) || !name || json_is_null(name)
                   ? served_find(&s->models, name, f)
                   : &s->models.item[0]; /* the table says what is wrong */
    if (a->model && a->chat) api_params_advise(&a->params, &a->model->settings);
    if (a->model && api_params_read(&a->params, body, route, &f->e) == ST_OK) return a;
    answer_free(a);
    return NULL;
}

static status no_place(const server *s, const answer *a, api_fault *f) {
    int share = worker_share(s->most_texts);
    if (a->n_texts > share) {
        err_set(&f->e, ST_FAILED, "a request of more than %d texts has to be the only one", share);
        err_hint(&f->e, "ask for fewer at a time");
    } else {
        err_set(
            &f->e, ST_FAILED,
            "%d texts may run and wait, with %d MiB for their schemas, and there is no place for "
            "%d more",
            s->most_texts, WORKER_GRAMMAR_BYTES >> 20, a->n_texts);
        err_hint(&f->e, "try again soon");
    }
    return api_fault_as(f, 429, "queue_full");
}

void api_finish(server *s, answer *a, http_reply *reply, status st, api_fault *f) {
    if (st == ST_OK) {
        answer_watch_client(a);
        if (worker_put(s->worker, a)) return;
        metrics_add_refused(s->metrics);
        (void)no_place(s, a, f);
    }
    reply_refuse(reply, f);
    answer_free(a);
}

/* ---- prompts ---- */

static status wrong_prompt(err *e) {
    return err_at(e, ST_USAGE, "prompt",
                  "\"prompt\" must be a string, a list of strings, a list of token ids, or a list "
                  "of such lists");
}

/* A prompt of no tokens begins with the token that begins a text, or else the one that ends it. */
static void begin_empty(const tok *k, tok_ids *ids) {
    int32_t first = tok_bos(k) >= 0 ? tok_bos(k) : tok_eos(k);
    if (ids->n == 0 && first >= 0) tok_ids_push(ids, first);
}

static status add_prompt(answer *a, const json_t *v, err *e) {
    const tok *k = a->model->model.tok;
    tok_ids *ids = &a->prompts[a->n_prompts];
    strbuf *text = &a->prompt_texts[a->n_prompts];
    a->n_prompts++;
    if (json_is_string(v)) {
        size_t len = json_string_length(v);
        strbuf_append(text, json_string_value(v), len);
        TRY(tok_encode(k, json_string_value(v), len, a->params.add_special ? TOK_ADD_SPECIAL : 0,
                       ids, e));
    } else {
        int32_t vocab = (int32_t)a->model->model.config.vocab_size, known = tok_vocab_size(k);
        TRY(api_read_ids(v, "prompt", vocab < known ? vocab : known, ids, e));
        TRY(tok_decode(k, ids->id, ids->n, a->params.skip_special, text, e));
    }
    begin_empty(k, ids);
    return ST_OK;
}

static status read_prompts(answer *a, const json_t *prompt, err *e) {
    if (!prompt) return err_at(e, ST_USAGE, "prompt", "\"prompt\" is missing");
    const json_t *first = json_array_get(prompt, 0);
    bool many = json_is_string(first) || json_is_array(first);
    size_t n = many ? json_array_size(prompt) : 1;
    if (!json_is_string(prompt) && !many && !json_is_integer(first)) return wrong_prompt(e);
    if (n > API_MAX_TEXTS)
        return err_at(e, ST_USAGE, "prompt", "\"prompt\" has %zu texts, at most %d are possible", n,
                      API_MAX_TEXTS);
    a->prompts = xcalloc(n, sizeof *a->prompts);
    a->prompt_texts = xcalloc(n, sizeof *a->prompt_texts);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = many ? json_array_get(prompt, i) : prompt;
        if (json_typeof(v) != json_typeof(many ? first : prompt)) return wrong_prompt(e);
        TRY(add_prompt(a, v, e));
    }
    return ST_OK;
}

status api_make_completion(answer *a, api_fault *f) {
    TRY(read_prompts(a, a->params.prompt, &f->e));
    TRY(answer_read_limits(a, false, NULL, f));
    return answer_prepare(a, f);
}

void api_completions(void *ctx, const http_request *rq, http_reply *reply) {
    api_fault f = {0};
    answer *a = api_begin(ctx, rq, reply, API_COMPLETIONS, &f);
    http_reply_drop_body(reply); /* its JSON has copies */
    api_finish(ctx, a, reply, a ? api_make_completion(a, &f) : ST_USAGE, &f);
}
