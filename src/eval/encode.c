/* Encoding for scoring (see encode.h). The rules of HFLM:
 *
 *   - White space at the end of the context goes to the continuation.
 *   - The ids of the continuation are what encode(context + continuation) has after
 *     len(encode(context)) ids: a token may stand for the end of the context and the beginning of
 *     the continuation.
 *   - What the tokenizer adds to a text by itself (BOS) is added, unless the text begins with it.
 *   - An empty context is the token of the beginning, or of the end if there is none.
 *   - What is too long loses its first tokens.
 *   - A text is cut into windows of the context's length, each after one token of what precedes
 *     it.
 *
 * With an encoder context and continuation are encoded each by itself, the context with what the tokenizer adds (the end
 * that sources have), and each may be as long as the model's context. */
#include "eval/encode.h"

#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"

/* One context is encoded once for all its continuations. */
typedef struct encoder {
    const eval_task *task;
    const tok *tok;
    int32_t prefix; /* stands for an empty context; -1: the model has none */
    const char *prefix_text;
    size_t prefix_len;
    int64_t most_tok;
    bool apart; /* the model has an encoder, which reads the context */
    eval_requests *r;
    eval_text last; /* whose length in ids is n_last */
    int64_t n_last;
} encoder;

void eval_requests_free(eval_requests *r) {
    for (int64_t i = 0; i < r->n; i++) free(r->owner[i].ids);
    free(r->item);
    free(r->owner);
    *r = (eval_requests){0};
}

static status encoder_init(encoder *c, const tok *t, const int32_t *eos, err *e) {
    if (!t) {
        err_set(e, ST_USAGE, "the model has no tokenizer, and a task is text");
        return err_hint(e, "put tokenizer.json into the model's folder");
    }
    c->tok = t;
    c->prefix = tok_bos(t) >= 0 ? tok_bos(t) : eos ? *eos : tok_eos(t);
    if (c->prefix >= 0) c->prefix_text = tok_bytes(t, c->prefix, &c->prefix_len);
    return ST_OK;
}

/* Whether the text begins with the token that encoding would add. */
static unsigned flags_for(const encoder *c, const char *s, size_t n) {
    bool has = c->prefix_text && c->prefix_len && n >= c->prefix_len &&
               memcmp(s, c->prefix_text, c->prefix_len) == 0;
    return has ? 0 : TOK_ADD_SPECIAL;
}

static status encode(const encoder *c, const char *s, size_t n, tok_ids *out, err *e) {
    return tok_encode(c->tok, s, n, flags_for(c, s, n), out, e);
}

/* ---- requests ---- */

static status name_doc(const eval_doc *d, err *e) {
    return d->line ? err_where(e, "%s:%ld", d->file, (long)d->line) : err_where(e, "%s", d->file);
}

static void push(eval_requests *r, const score_request *q, const eval_owner *owner) {
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 1024;
        r->item = xrealloc(r->item, (size_t)r->cap * sizeof *r->item);
        r->owner = xrealloc(r->owner, (size_t)r->cap * sizeof *r->owner);
    }
    r->item[r->n] = *q;
    r->owner[r->n++] = *owner;
}

/* The last `scored` of n ids are scored; the ids are the request's from here on. */
static status add_request(encoder *c, eval_doc *d, eval_pair *p, int32_t *ids, int64_t n,
                          int64_t scored, float *nll, err *e) {
    int64_t inputs = n - (c->apart ? scored : 1);
    int64_t skip = inputs > c->most_tok ? inputs - c->most_tok : 0;
    score_request q = {
        .ids = ids + skip, .n = (int32_t)(n - skip), .n_scored = (int32_t)scored, .nll = nll};
    push(c->r, &q, &(eval_owner){d, p, ids});
    if (scored == 0) {
        err_set(e, ST_USAGE, "a continuation has no tokens of its own, so it has no score");
        return name_doc(d, e);
    }
    if (scored > c->most_tok || scored >= n) {
        err_set(e, ST_USAGE, "a continuation of %ld tokens does not fit into the context of %ld",
                (long)scored, (long)c->most_tok);
        err_hint(e, "leave the task out, or take a model with more positions");
        return name_doc(d, e);
    }
    if (inputs - skip > c->r->longest) c->r->longest = inputs - skip;
    if (scored > c->r->longest_scored) c->r->longest_scored = scored;
    return ST_OK;
}

static status without_prefix(err *e) {
    err_set(e, ST_USAGE,
            "the tokenizer has no token for the beginning or end of a text, which is "
            "what stands before a text without a context");
    return err_hint(e, "name one in tokenizer_config.json: {\"eos_token\": \"...\"}");
}

static status no_prefix(const eval_doc *d, err *e) {
    without_prefix(e);
    return name_doc(d, e);
}

/* The context without white space at its end. */
static eval_text strip_context(eval_text s) {
    const char *at = s.s;
    size_t n = s.len;
    jinja_strip(&at, &n, false, true);
    return (eval_text){at, n};
}

/* How many ids a context has by itself. */
static status count_context(encoder *c, eval_text s, err *e) {
    if (c->last.s == s.s && c->last.len == s.len) return ST_OK;
    tok_ids ids = {0};
    status st = encode(c, s.s, s.len, &ids, e);
    c->last = s;
    c->n_last = ids.n;
    tok_ids_free(&ids);
    return st;
}

static status add_after_nothing(encoder *c, eval_doc *d, eval_pair *p, err *e) {
    tok_ids ids = {0};
    if (c->prefix < 0) return no_prefix(d, e);
    tok_ids_push(&ids, c->prefix);
    status st = tok_encode(c->tok, p->continuation.s, p->continuation.len, 0, &ids, e);
    bool twice = st == ST_OK && ids.n > 1 && ids.id[1] == c->prefix;
    if (twice) memmove(ids.id, ids.id + 1, (size_t)--ids.n * sizeof *ids.id);
    if (st == ST_OK) return add_request(c, d, p, ids.id, ids.n, ids.n - 1, NULL, e);
    tok_ids_free(&ids);
    return st;
}

/* A source, and what its decoder writes. */
static status add_apart(encoder *c, eval_doc *d, eval_pair *p, err *e) {
    eval_text context = strip_context(p->context);
    strbuf rest = {0};
    tok_ids ids = {0};
    strbuf_append(&rest, p->context.s + context.len, p->context.len - context.len);
    strbuf_append(&rest, p->continuation.s, p->continuation.len);
    status st = encode(c, context.s, context.len, &ids, e);
    int64_t source = ids.n;
    if (st == ST_OK) st = tok_encode(c->tok, strbuf_cstr(&rest), rest.len, 0, &ids, e);
    strbuf_free(&rest);
    if (st == ST_OK && source > 0)
        return add_request(c, d, p, ids.id, ids.n, ids.n - source, NULL, e);
    tok_ids_free(&ids);
    return st == ST_OK ? no_prefix(d, e) : name_doc(d, e);
}

/* A context of white space alone is scored with all of it as continuation, which leaves no
 * context. */
static status add_pair(encoder *c, eval_doc *d, eval_pair *p, err *e) {
    if (p->context.len == 0) return add_after_nothing(c, d, p, e);
    if (c->apart) return add_apart(c, d, p, e);
    eval_text context = strip_context(p->context);
    strbuf whole = {0};
    tok_ids ids = {0};
    strbuf_append(&whole, p->context.s, p->context.len);
    strbuf_append(&whole, p->continuation.s, p->continuation.len);
    status st = count_context(c, context, e);
    if (st == ST_OK) st = encode(c, strbuf_cstr(&whole), whole.len, &ids, e);
    strbuf_free(&whole);
    if (st == ST_OK && c->n_last > 0) {
        int64_t scored = ids.n > c->n_last ? ids.n - c->n_last : 0;
        return add_request(c, d, p, ids.id, ids.n, scored, NULL, e);
    }
    tok_ids_free(&ids);
    return st == ST_OK ? no_prefix(d, e) : name_doc(d, e);
}

/* ---- texts ---- */

/* Windows of the context's length; only the first is after the prefix token. */
static status add_windows(encoder *c, eval_doc *d, const tok_ids *ids, err *e) {
    for (int64_t done = 1; done < ids->n; done += c->most_tok) {
        int64_t left = ids->n - done, scored = left < c->most_tok ? left : c->most_tok;
        int64_t n = done == 1 ? scored + 1 : c->most_tok + 1, from = done + scored - n;
        int32_t *window = xmalloc(sizeof *window * (size_t)n);
        memcpy(window, ids->id + from, sizeof *window * (size_t)n);
        TRY(add_request(c, d, NULL, window, n, scored, d->token_nll + done - 1, e));
    }
    return ST_OK;
}

static status add_text(encoder *c, eval_doc *d, err *e) {
    tok_ids ids = {0};
    if (c->apart) {
        err_set(e, ST_USAGE,
                "the task %s asks how likely a text is; a model with an encoder answers sources",
                c->task->name);
        return err_hint(e, "leave it out");
    }
    if (c->prefix < 0) return no_prefix(d, e);
    tok_ids_push(&ids, c->prefix);
    status st = encode(c, d->text.s, d->text.len, &ids, e);
    d->n_tokens = ids.n - 1;
    d->token = arena_memdup(c->task->made, ids.id + 1, (size_t)d->n_tokens * sizeof *ids.id);
    d->token_nll = ARENA_ARRAY(c->task->made, float, d->n_tokens);
    if (st == ST_OK) st = add_windows(c, d, &ids, e);
    tok_ids_free(&ids);
    return st;
}

static status add_doc(encoder *c, eval_doc *d, err *e) {
    if (c->task->kind == EVAL_TEXT) return add_text(c, d, e);
    for (int i = 0; i < d->n_choices; i++) TRY(add_pair(c, d, &d->choice[i].pair, e));
    for (int i = 0; i < d->n_choices; i++)
        if (d->choice[i].alone) TRY(add_pair(c, d, d->choice[i].alone, e));
    return ST_OK;
}

status eval_encode(const eval_task *t, const open_model *m, int64_t most_tok, eval_requests *r,
                   err *e) {
    bool apart = m->config.num_encoder_layers > 0;
    encoder c = {.task = t, .most_tok = most_tok, .apart = apart, .r = r};
    TRY(encoder_init(&c, m->tok, m->eos, e));
    for (int32_t i = 0; i < t->n; i++) TRY(add_doc(&c, &t->doc[i], e));
    return ST_OK;
}

status eval_encode_prompt(const tok *t, const int32_t *eos, eval_text prompt, int64_t most,
                          tok_ids *out, err *e) {
    encoder c = {0};
    TRY(encoder_init(&c, t, eos, e));
    TRY(encode(&c, prompt.s, prompt.len, out, e));
    if (out->n == 0 && c.prefix < 0) return without_prefix(e);
    if (out->n == 0) tok_ids_push(out, c.prefix);
    if (out->n <= most) return ST_OK;
    memmove(out->id, out->id + out->n - most, (size_t)most * sizeof *out->id);
    out->n = most;
    return ST_OK;
}

void eval_take_scores(const eval_requests *r) {
    for (int64_t i = 0; i < r->n; i++) {
        eval_pair *p = r->owner[i].pair;
        if (p)
            *p = (eval_pair){p->context, p->continuation, r->item[i].loglik, r->item[i].n_scored};
        else
            r->owner[i].doc->loglik += r->item[i].loglik;
    }
}
