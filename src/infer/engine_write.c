/* One text on an engine that serves nobody else (engine_write, see engine.h). */
#include "infer/engine.h"

/* What an engine tells by its calls, gathered as generate_run gives it. */
typedef struct listener {
    const generate_request *rq;
    tok_ids *out;
    strbuf *text;
    generate_result *result;
    err *e;
    status st;
    bool ended;
} listener;

static void hear_token(void *ctx, const engine_token *t) {
    listener *l = ctx;
    if (!t->ends) {
        if (l->rq->logprobs) l->rq->logprobs[l->out->n] = t->logprob;
        tok_ids_push(l->out, t->id);
    }
    if (l->rq->on_token) l->rq->on_token(l->rq->ctx, t);
}

static void hear_text(void *ctx, const char *text, size_t len) {
    listener *l = ctx;
    strbuf_append(l->text, text, len);
    if (l->rq->on_text) l->rq->on_text(l->rq->ctx, text, len);
}

static void hear_end(void *ctx, status st, const generate_result *result, const err *e) {
    listener *l = ctx;
    *l->result = *result;
    l->st = st;
    l->ended = true;
    if (st != ST_OK) *l->e = *e;
}

status engine_write(engine *en, const generate_request *rq, tok_ids *out, strbuf *text,
                    generate_result *result, err *e) {
    listener l = {.rq = rq, .out = out, .text = text, .result = result, .e = e};
    engine_request asked = {.rq = *rq, .on_end = hear_end};
    bool told = rq->logprobs || rq->on_token;
    uint64_t id;
    CHECK(out->n == 0, "%ld ids of another text", (long)out->n);
    asked.rq.ctx = &l;
    asked.rq.on_token = hear_token;
    asked.rq.on_text = hear_text;
    asked.rq.logprobs = NULL;
    if (!told) asked.rq.n_top = -1; /* no probability is wanted */
    TRY(engine_submit(en, &asked, &id, e));
    while (!l.ended) {
        if (rq->interrupt && *rq->interrupt) {
            engine_cancel(en, id);
            return ST_OK;
        }
        engine_step(en);
    }
    return l.st;
}
