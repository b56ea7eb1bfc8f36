/* The routes of tokens, as vLLM has them: /tokenize, /detokenize and /tokenizer_info. With them
 * lm-evaluation-harness needs no tokenizer of its own. */
#include "data/chat/sample.h"
#include "serve/api/api.h"

/* Body, model and params; the caller frees *body. */
static served *begin(server *s, const http_request *rq, http_reply *reply, int route, json_t **body,
                     api_params *p, api_fault *f) {
    *p = api_params_default();
    p->skip_special = false;
    if (api_body_parse(body, rq->body, rq->body_bytes, &f->e) != ST_OK) return NULL;
    http_reply_drop_body(reply);
    if (api_params_read(p, *body, route, &f->e) != ST_OK) return NULL;
    return served_find(&s->models, p->model, f);
}

static void end(http_reply *reply, status st, const api_fault *f, json_t *o) {
    if (st == ST_OK)
        reply_object(reply, o);
    else
        reply_refuse(reply, f);
}

static status tokenize(const served *m, const api_params *p, tok_ids *ids, api_fault *f) {
    const json_t *t = p->prompt;
    if (p->messages) {
        strbuf text = {0};
        json_t *tools = NULL;
        status st = chat_read_tools(p->tools, &tools, &f->e);
        if (st == ST_OK) st = api_render(m, p, tools, ids, &text, f);
        json_decref(tools);
        strbuf_free(&text);
        return st;
    }
    if (!json_is_string(t)) return err_at(&f->e, ST_USAGE, "prompt", "\"prompt\" must be a string");
    return tok_encode(m->model.tok, json_string_value(t), json_string_length(t),
                      p->add_special ? TOK_ADD_SPECIAL : 0, ids, &f->e);
}

static status check_count(const tok_ids *ids, err *e) {
    if (ids->n <= API_MAX_VALUES) return ST_OK;
    return err_at(e, ST_USAGE, "prompt", "the text has %ld tokens, at most %d can be told",
                  (long)ids->n, API_MAX_VALUES);
}

void api_tokenize(void *ctx, const http_request *rq, http_reply *reply) {
    api_fault f = {0};
    api_params p;
    tok_ids ids = {0};
    json_t *body = NULL, *o = NULL;
    const served *m = begin(ctx, rq, reply, API_TOKENIZE, &body, &p, &f);
    status st = m ? tokenize(m, &p, &ids, &f) : ST_USAGE;
    if (st == ST_OK) st = check_count(&ids, &f.e);
    if (st == ST_OK) {
        json_t *list = json_array();
        for (int64_t i = 0; i < ids.n; i++) json_array_append_new(list, json_integer(ids.id[i]));
        o = json_pack("{s:I, s:i, s:o}", "count", (json_int_t)ids.n, "max_model_len",
                      m->model.serve.longest, "tokens", list);
    }
    end(reply, st, &f, o);
    tok_ids_free(&ids);
    json_decref(body);
}

void api_detokenize(void *ctx, const http_request *rq, http_reply *reply) {
    api_fault f = {0};
    api_params p;
    tok_ids ids = {0};
    strbuf text = {0};
    json_t *body = NULL, *o = NULL;
    const served *m = begin(ctx, rq, reply, API_DETOKENIZE, &body, &p, &f);
    status st = m ? ST_OK : ST_USAGE;
    if (st == ST_OK && !p.tokens) st = err_at(&f.e, ST_USAGE, "tokens", "\"tokens\" is missing");
    if (st == ST_OK)
        st = api_read_ids(p.tokens, "tokens", tok_vocab_size(m->model.tok), &ids, &f.e);
    if (st == ST_OK) st = tok_decode(m->model.tok, ids.id, ids.n, p.skip_special, &text, &f.e);
    if (st == ST_OK) o = json_pack("{s:o}", "prompt", json_text(strbuf_cstr(&text), text.len));
    end(reply, st, &f, o);
    strbuf_free(&text);
    tok_ids_free(&ids);
    json_decref(body);
}

static json_t *token_name(const tok *k, int32_t id) {
    size_t len = 0;
    const char *bytes = id >= 0 ? tok_bytes(k, id, &len) : NULL;
    return bytes ? json_text(bytes, len) : json_null();
}

/* Of the first model: a GET has no body to name one in. */
void api_tokenizer_info(void *ctx, const http_request *rq, http_reply *reply) {
    const server *s = ctx;
    const served *m = &s->models.item[0];
    const tok *k = m->model.tok;
    (void)rq;
    reply_object(reply, json_pack("{s:s, s:o, s:o, s:n, s:o, s:i, s:i}", "model", m->name,
                                  "bos_token", token_name(k, tok_bos(k)), "eos_token",
                                  token_name(k, tok_eos(k)), "pad_token", "chat_template",
                                  json_cstr(m->template ? chat_template_text(m->template) : NULL),
                                  "vocab_size", tok_vocab_size(k), "max_model_len",
                                  m->model.serve.longest));
}
