/* The API over a tiny model: each answer is what the model gives alone, in the forms that clients
 * expect, whole and in pieces. */
#include "api_test.h"

#include "infer/engine.h"
#include "interchange/open_model.h"

/* ---- what the model gives alone ---- */

typedef struct alone {
    char text[256];
    double logprob[64];
    int32_t ids[64];
    int n;
} alone;

/* path: the model, or an adapter of it. */
static void write_alone_by(const house *h, const char *path, const char *prompt, int max_new,
                           alone *out) {
    open_model m = {0};
    err e = {0};
    tok_ids ids = {0}, made = {0};
    strbuf text = {0};
    generate_result result;
    const char *base = path == h->path ? NULL : h->path;
    assert_int_equal(open_model_read_on(&m, path, base, NULL, 1, &e), ST_OK);
    assert_int_equal(open_model_load(&m, HOUSE_CTX, 0, &e), ST_OK);
    generator g = open_model_generator(&m);
    assert_int_equal(tok_encode(m.tok, prompt, strlen(prompt), 0, &ids, &e), ST_OK);
    generate_request rq = {.prompt = ids.id,
                           .n_prompt = ids.n,
                           .max_new = max_new,
                           .sample = {.repetition_penalty = 1, .top_p = 1},
                           .tok = m.tok,
                           .logprobs = out->logprob};
    assert_int_equal(generate_run(&g, &rq, &made, &text, &result, &e), ST_OK);
    snprintf(out->text, sizeof out->text, "%s", strbuf_cstr(&text));
    out->n = (int)made.n;
    memcpy(out->ids, made.id, sizeof *made.id * (size_t)made.n);
    strbuf_free(&text);
    tok_ids_free(&ids);
    tok_ids_free(&made);
    generator_free(&g);
    open_model_close(&m);
}

static void write_alone(const house *h, const char *prompt, int max_new, alone *out) {
    write_alone_by(h, h->path, prompt, max_new, out);
}

#define GREEDY "'temperature': 0, 'ignore_eos': true"

static void test_newer_name_of_max_tokens(void **state) {
    const house *h = *state;
    json_t *o = house_json(h, "/v1/completions",
                           "{'prompt': 'a', 'max_completion_tokens': 3, " GREEDY "}", 200);
    assert_int_equal(int_at(o, "usage.completion_tokens"), 3);
    json_decref(o);
}

static void test_completion(void **state) {
    const house *h = *state;
    alone want;
    write_alone(h, "the fire", 12, &want);
    json_t *o = house_json(
        h, "/v1/completions",
        "{'prompt': 'the fire', 'max_tokens': 12, 'logprobs': 2,"
        " 'return_token_ids': true, 'unknown': [1], 'user': null, 'use_beam_search': false, " GREEDY
        "}",
        200);
    assert_string_equal(text_at(o, "object"), "text_completion");
    assert_string_equal(text_at(o, "model"), "tiny");
    assert_string_equal(text_at(o, "choices.0.text"), want.text);
    assert_string_equal(text_at(o, "choices.0.finish_reason"), "length");
    assert_int_equal(int_at(o, "usage.prompt_tokens"), 8);
    assert_int_equal(int_at(o, "usage.completion_tokens"), 12);
    assert_int_equal(json_array_size(at(o, "choices.0.prompt_token_ids")), 8);
    for (int i = 0; i < 12; i++) {
        const json_t *ids = at(o, "choices.0.token_ids"),
                     *lp = at(o, "choices.0.logprobs.token_logprobs"),
                     *top = json_array_get(at(o, "choices.0.logprobs.top_logprobs"), (size_t)i);
        double is = json_number_value(json_array_get(lp, (size_t)i));
        const char *token =
            json_string_value(json_array_get(at(o, "choices.0.logprobs.tokens"), (size_t)i));
        assert_int_equal(json_integer_value(json_array_get(ids, (size_t)i)), want.ids[i]);
        assert_true(fabs(is - want.logprob[i]) < 1e-4);
        assert_int_equal(json_object_size(top), 2);
        assert_true(json_number_value(json_object_get(top, token)) == is);
    }
    json_decref(o);
}

/* As lm-evaluation-harness asks: the tokens of the prompt and exactly one more. */
static void test_loglikelihood(void **state) {
    const house *h = *state;
    json_t *o = house_json(h, "/v1/completions",
                           "{'prompt': [[5, 6, 7, 8], [9, 10, 11]], 'max_tokens': 1, 'logprobs': 1,"
                           " 'echo': true, 'temperature': 0, 'seed': 1234}",
                           200);
    for (int i = 0; i < 2; i++) {
        const json_t *c = json_array_get(at(o, "choices"), (size_t)i);
        const json_t *lp = at(c, "logprobs.token_logprobs"), *top = at(c, "logprobs.top_logprobs");
        size_t n = i ? 3 : 4;
        assert_int_equal(int_at(c, "index"), i);
        assert_int_equal(json_array_size(lp), n + 1);
        assert_int_equal(json_array_size(top), n + 1);
        assert_int_equal(json_array_size(at(c, "logprobs.tokens")), n + 1);
        assert_int_equal(json_array_size(at(c, "logprobs.text_offset")), n + 1);
        assert_true(json_is_null(json_array_get(lp, 0)) && json_is_null(json_array_get(top, 0)));
        for (size_t k = 1; k <= n;
             k++) { /* the token itself, and the most likely if it is another */
            size_t keys = json_object_size(json_array_get(top, k));
            assert_true(json_is_real(json_array_get(lp, k)) && (keys == 1 || keys == 2));
        }
    }
    json_decref(o);
    /* The token that ends the text is the one more: every id is made an end. */
    strbuf rq = {0};
    strbuf_puts(&rq, "{'prompt': 'ab', 'max_tokens': 1, 'echo': true, 'logprobs': 1,"
                     " 'temperature': 0, 'stop_token_ids': [0");
    for (int i = 1; i < 97; i++) strbuf_printf(&rq, ", %d", i);
    strbuf_puts(&rq, "]}");
    o = house_json(h, "/v1/completions", rq.data, 200);
    assert_string_equal(text_at(o, "choices.0.text"), "ab");
    assert_string_equal(text_at(o, "choices.0.finish_reason"), "stop");
    assert_int_equal(json_array_size(at(o, "choices.0.logprobs.token_logprobs")), 3);
    json_decref(o);
    strbuf_free(&rq);
    o = house_json(h, "/v1/completions",
                   "{'prompt': 'ab', 'max_tokens': 0, 'echo': true, 'logprobs': 0}", 200);
    assert_string_equal(text_at(o, "choices.0.text"), "ab");
    assert_int_equal(json_array_size(at(o, "choices.0.logprobs.token_logprobs")), 2);
    assert_int_equal(int_at(o, "usage.completion_tokens"), 0);
    json_decref(o);
}

/* ---- streams ---- */

/* Events of a stream as a list; the last one is [DONE]. */
static json_t *events(const house *h, const char *path, const char *body) {
    strbuf out = {0};
    char *copy = strdup(body);
    json_t *list = json_array();
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    assert_int_equal(house_send(h, path, copy, &out), 200);
    char *s = out.data, *end;
    while ((end = strstr(s, "\n\n"))) {
        *end = '\0';
        assert_int_equal(strncmp(s, "data: ", 6), 0);
        if (strcmp(s, "data: [DONE]") == 0) break;
        json_t *o = json_loads(s + 6, 0, NULL);
        assert_non_null(o);
        json_array_append_new(list, o);
        s = end + 2;
    }
    assert_non_null(end);
    assert_int_equal(end + 2 - out.data, out.len);
    free(copy);
    strbuf_free(&out);
    return list;
}

static void test_stream(void **state) {
    const house *h = *state;
    alone want;
    strbuf text = {0};
    size_t i, tokens = 0;
    json_t *o = NULL;
    write_alone(h, "the fire", 12, &want);
    json_t *list = events(h, "/v1/completions",
                          "{'prompt': 'the fire', 'max_tokens': 12, 'logprobs': 0, 'stream': true,"
                          " 'stream_options': {'include_usage': true}, " GREEDY "}");
    size_t n = json_array_size(list);
    assert_true(n >= 13);
    json_array_foreach(list, i, o) {
        bool last = i + 1 == n;
        assert_int_equal(json_array_size(at(o, "choices")), last ? 0 : 1);
        assert_int_equal(json_is_null(at(o, "usage")), !last);
        if (last) break;
        strbuf_puts(&text, text_at(o, "choices.0.text"));
        tokens += json_array_size(at(o, "choices.0.logprobs.tokens"));
        assert_int_equal(json_is_null(at(o, "choices.0.finish_reason")), i + 2 < n);
    }
    assert_string_equal(strbuf_cstr(&text), want.text);
    assert_int_equal(tokens, 12);
    assert_int_equal(int_at(o, "usage.completion_tokens"), 12);
    json_decref(list);
    strbuf_free(&text);
}

/* ---- chats ---- */

static void test_chat(void **state) {
    const house *h = *state;
    alone want;
    write_alone(h, "s:be;u:hi\nyou;a:", 9, &want);
    json_t *o = house_json(
        h, "/v1/chat/completions",
        "{'messages': [{'role': 'developer', 'content': 'be'}, {'role': 'user', 'content':"
        " [{'type': 'text', 'text': 'hi'}, {'type': 'text', 'text': 'you'}]}],"
        " 'max_completion_tokens': 9, 'logprobs': true, 'top_logprobs': 3, " GREEDY "}",
        200);
    assert_string_equal(text_at(o, "object"), "chat.completion");
    assert_string_equal(text_at(o, "choices.0.message.role"), "assistant");
    assert_string_equal(text_at(o, "choices.0.message.content"), want.text);
    const json_t *content = at(o, "choices.0.logprobs.content");
    assert_int_equal(json_array_size(content), 9);
    for (size_t i = 0; i < 9; i++) {
        const json_t *t = json_array_get(content, i);
        assert_true(fabs(json_number_value(at(t, "logprob")) - want.logprob[i]) < 1e-4);
        assert_int_equal(json_array_size(at(t, "top_logprobs")), 3);
        assert_int_equal(int_at(t, "bytes.0"), text_at(t, "token")[0]);
        assert_string_equal(text_at(t, "top_logprobs.0.token"), text_at(t, "token"));
    }
    json_decref(o);
    json_t *list =
        events(h, "/v1/chat/completions",
               "{'messages': [{'role': 'user', 'content': 'hi'}], 'stream': true,"
               " 'max_tokens': 4, 'chat_template_kwargs': {'mood': 'good'}, " GREEDY "}");
    assert_string_equal(text_at(list, "0.choices.0.delta.role"), "assistant");
    assert_string_equal(text_at(list, "0.object"), "chat.completion.chunk");
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    assert_string_equal(text_at(last, "choices.0.finish_reason"), "length");
    json_decref(list);
}

#define OPEN                                                                                       \
    "'messages': [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'you a'}]"

static int tokens_of(const house *h, const char *rq) {
    json_t *o = house_json(h, "/tokenize", rq, 200);
    int n = (int)int_at(o, "count");
    json_decref(o);
    return n;
}

/* What vLLM's clients say of the end of a conversation. */
static void test_continued_message(void **state) {
    const house *h = *state;
    alone want;
    write_alone(h, "u:hi;a:you a", 9, &want);
    json_t *o =
        house_json(h, "/v1/chat/completions",
                   "{" OPEN ", 'continue_final_message': true, 'add_generation_prompt': false,"
                   " 'max_tokens': 9, " GREEDY "}",
                   200);
    assert_string_equal(text_at(o, "choices.0.message.content"), want.text);
    assert_int_equal(int_at(o, "usage.prompt_tokens"), 12);
    json_decref(o);
    assert_int_equal(tokens_of(h, "{" OPEN ", 'continue_final_message': true}"), 12);
    assert_int_equal(tokens_of(h, "{" OPEN ", 'add_generation_prompt': false}"), 14);
    assert_int_equal(tokens_of(h, "{" OPEN "}"), 16);
}

/* A thought that the client begins is a thought. */
static void test_continued_thought(void **state) {
    (void)state;
    house h = {0};
    house_begin(&h, "{% set marks = '<think></think>' %}{% for m in messages %}{{ m.role[0] }}:"
                    "{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}");
    static const char *const begun[] = {"<think>you", "<think>so</think>you"};
    for (int i = 0; i < 2; i++) {
        strbuf rq = {0};
        strbuf_printf(&rq,
                      "{'messages': [{'role': 'user', 'content': 'hi'}, {'role': 'assistant',"
                      " 'content': '%s'}], 'continue_final_message': true, 'max_tokens': 6, " GREEDY
                      "}",
                      begun[i]);
        json_t *o = house_json(&h, "/v1/chat/completions", rq.data, 200);
        const json_t *m = at(o, "choices.0.message"), *thought = at(m, "reasoning_content");
        assert_int_equal(json_string_length(i ? at(m, "content") : thought), 6);
        assert_int_equal(json_string_length(i ? thought : at(m, "content")), 0);
        json_decref(o);
        strbuf_free(&rq);
    }
    house_end(&h);
}

static void test_truncated_prompt(void **state) {
    const house *h = *state;
    alone want;
    write_alone(h, "fire", 6, &want);
    json_t *o = house_json(h, "/v1/completions",
                           "{'prompt': 'the fire', 'truncate_prompt_tokens': 4, 'echo': true,"
                           " 'logprobs': 0, 'max_tokens': 6, " GREEDY "}",
                           200);
    assert_int_equal(int_at(o, "usage.prompt_tokens"), 4);
    assert_int_equal(json_array_size(at(o, "choices.0.logprobs.tokens")), 10);
    assert_memory_equal(text_at(o, "choices.0.text"), "fire", 4);
    assert_string_equal(text_at(o, "choices.0.text") + 4, want.text);
    json_decref(o);
    strbuf rq = {0};
    strbuf_puts(&rq, "{'truncate_prompt_tokens': -1, 'max_tokens': 5, 'ignore_eos': true,"
                     " 'messages': [{'role': 'user', 'content': '");
    for (int i = 0; i < HOUSE_CTX; i++) strbuf_putc(&rq, 'a');
    strbuf_puts(&rq, "'}]}");
    o = house_json(h, "/v1/chat/completions", rq.data, 200);
    assert_int_equal(int_at(o, "usage.prompt_tokens"), HOUSE_CTX - 5);
    assert_int_equal(int_at(o, "usage.completion_tokens"), 5);
    json_decref(o);
    strbuf_free(&rq);
}

/* ---- choices, seeds, bias, stops ---- */

static void test_choices(void **state) {
    const house *h = *state;
    const char *rq =
        "{'prompt': ['ab', 'cd'], 'n': 3, 'max_tokens': 6, 'seed': 5, 'temperature': 2}";
    json_t *a = house_json(h, "/v1/completions", rq, 200);
    json_t *b = house_json(h, "/v1/completions", rq, 200);
    assert_int_equal(json_array_size(at(a, "choices")), 6);
    assert_true(json_equal(at(a, "choices"), at(b, "choices")));
    assert_string_not_equal(text_at(a, "choices.0.text"), text_at(a, "choices.1.text"));
    for (int i = 0; i < 6; i++)
        assert_int_equal(int_at(json_array_get(at(a, "choices"), (size_t)i), "index"), i);
    json_decref(a);
    json_decref(b);
    a = house_json(h, "/v1/completions",
                   "{'prompt': 'ab', 'best_of': 4, 'max_tokens': 6, 'seed': 5, 'temperature': 2}",
                   200);
    assert_int_equal(json_array_size(at(a, "choices")), 1);
    assert_int_equal(int_at(a, "usage.completion_tokens"), 24);
    json_decref(a);
}

static void test_bias_and_stop(void **state) {
    const house *h = *state;
    json_t *o =
        house_json(h, "/v1/completions",
                   "{'prompt': 'ab', 'logit_bias': {'40': 100}, 'max_tokens': 5, " GREEDY "}", 200);
    const char *text = text_at(o, "choices.0.text");
    assert_true(strlen(text) == 5 && text[0] == text[4]);
    strbuf rq = {0}; /* a text of two such characters stops it before them, if it may */
    strbuf_printf(&rq,
                  "{\"prompt\": \"ab\", \"logit_bias\": {\"40\": 100}, \"max_tokens\": 9, "
                  "\"temperature\": 0, \"stop\": [\"%c%c\"], \"min_tokens\": 3}",
                  text[0] == '"' || text[0] == '\\' ? 'x' : text[0], text[0]);
    strbuf out = {0};
    assert_int_equal(house_send(h, "/v1/completions", rq.data, &out), 200);
    json_t *stopped = json_loads(out.data, 0, NULL);
    assert_string_equal(text_at(stopped, "choices.0.finish_reason"), "stop");
    json_decref(stopped);
    json_decref(o);
    strbuf_free(&rq);
    strbuf_free(&out);
}

/* ---- tokens, models ---- */

static void test_page(void **state) {
    strbuf out = {0};
    assert_int_equal(house_send(*state, "/", NULL, &out), 200);
    assert_non_null(strstr(out.data, "<html"));
    strbuf_free(&out);
}

static void test_tokens(void **state) {
    const house *h = *state;
    json_t *o =
        house_json(h, "/tokenize", "{'prompt': 'a<end>b', 'add_special_tokens': false}", 200);
    assert_int_equal(int_at(o, "count"), 3);
    assert_int_equal(int_at(o, "tokens.1"), 0);
    char *ids = json_dumps(at(o, "tokens"), 0);
    strbuf rq = {0}, out = {0};
    strbuf_printf(&rq, "{\"tokens\": %s}", ids);
    assert_int_equal(house_send(h, "/detokenize", rq.data, &out), 200);
    assert_non_null(strstr(out.data, "\"a<end>b\""));
    free(ids);
    strbuf_free(&rq);
    strbuf_free(&out);
    json_decref(o);
    o = house_json(h, "/tokenize", "{'messages': [{'role': 'user', 'content': 'x'}]}", 200);
    assert_int_equal(int_at(o, "count"), 6); /* u:x;a: */
    json_decref(o);
    o = house_json(h, "/tokenizer_info", NULL, 200);
    assert_string_equal(text_at(o, "chat_template"), HOUSE_TEMPLATE);
    json_decref(o);
    o = house_json(h, "/v1/models", NULL, 200);
    assert_string_equal(text_at(o, "data.0.id"), "tiny");
    json_t *one = house_json(h, "/v1/models/tiny", NULL, 200);
    assert_true(json_equal(one, at(o, "data.0")));
    json_decref(one);
    assert_true(json_is_true(at(o, "data.0.meta.chat")) &&
                json_is_true(at(o, "data.0.meta.tools")));
    json_decref(o);
}

/* ---- what an answer may be ---- */

#define SCHEMA                                                                                     \
    "{'type': 'object', 'properties': {'a': {'type': 'integer', 'minimum': 0, 'maximum': 99},"     \
    " 'b': {'enum': ['x', 'y']}}, 'required': ['a', 'b'], 'additionalProperties': false}"
#define TOOLS                                                                                      \
    "'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': " SCHEMA "}},"         \
    " {'type': 'function', 'function': {'name': 'now'}}]"
#define ASK "'messages': [{'role': 'user', 'content': 'x'}]"

static void assert_value(const char *text) {
    json_t *v = json_loads(text, 0, NULL);
    if (!v) fail_msg("no JSON: %s", text);
    assert_int_equal(json_object_size(v), 2);
    assert_in_range(int_at(v, "a"), 0, 99);
    assert_int_equal(strlen(text_at(v, "b")), 1);
    json_decref(v);
}

static void test_schema(void **state) {
    const house *h = *state;
    json_t *o = house_json(h, "/v1/chat/completions",
                           "{" ASK ", 'n': 4, 'max_tokens': 100, 'response_format': {'type': "
                           "'json_schema', 'json_schema': {'name': 'v', 'schema': " SCHEMA "}}}",
                           200);
    for (size_t i = 0; i < 4; i++)
        assert_value(text_at(json_array_get(at(o, "choices"), i), "message.content"));
    json_decref(o);
    o = house_json(h, "/v1/completions",
                   "{'prompt': 'x', 'max_tokens': 150, 'response_format': {'type': 'json_object'}}",
                   200);
    json_t *v = json_loads(text_at(o, "choices.0.text"), 0, NULL);
    assert_true(json_is_object(v));
    json_decref(v);
    json_decref(o);
    o = house_json(h, "/v1/completions",
                   "{'prompt': 'x', 'response_format': {'type': 'json_schema', 'json_schema':"
                   " {'schema': {'type': 'string', 'contentEncoding': 'base64'}}}}",
                   400);
    assert_non_null(strstr(text_at(o, "error.message"), "contentEncoding"));
    json_decref(o);
    o = house_json(h, "/v1/completions", "{'prompt': 'x', 'response_format': {'type': 'xml'}}",
                   400);
    assert_string_equal(text_at(o, "error.param"), "response_format");
    json_decref(o);
}

/* One call of f or of now; whole, or the only one of a stream. */
static void assert_call(const json_t *call, bool only_f) {
    const char *name = text_at(call, "function.name");
    assert_int_equal(strlen(text_at(call, "id")), 9);
    assert_true(strcmp(name, "f") == 0 || (!only_f && strcmp(name, "now") == 0));
    if (strcmp(name, "f") == 0)
        assert_value(text_at(call, "function.arguments"));
    else
        assert_string_equal(text_at(call, "function.arguments"), "{}");
}

static void test_calls(void **state) {
    const house *h = *state;
    size_t i, calls = 0;
    json_t *o = house_json(h, "/v1/chat/completions",
                           "{" ASK ", " TOOLS ", 'tool_choice': {'type': 'function', 'function':"
                           " {'name': 'f'}}, 'max_tokens': 150}",
                           200);
    assert_string_equal(text_at(o, "choices.0.finish_reason"), "tool_calls");
    assert_true(json_is_null(at(o, "choices.0.message.content")));
    assert_int_equal(json_array_size(at(o, "choices.0.message.tool_calls")), 1);
    assert_call(at(o, "choices.0.message.tool_calls.0"), true);
    json_decref(o);
    json_t *list = events(h, "/v1/chat/completions",
                          "{" ASK ", " TOOLS ", 'tool_choice': 'required', 'stream': true,"
                          " 'parallel_tool_calls': false, 'max_tokens': 150}");
    json_array_foreach(list, i, o) {
        json_t *call = at(o, "choices.0.delta.tool_calls.0");
        if (!call) continue;
        calls++;
        assert_int_equal(int_at(call, "index"), 0);
        assert_call(call, false);
    }
    assert_int_equal(calls, 1);
    json_decref(list);
    /* Cut within a further one: who reads that all has been said would not ask on. */
    o = house_json(h, "/v1/chat/completions",
                   "{" ASK ", " TOOLS ", 'tool_choice': 'required', 'ignore_eos': true,"
                   " 'max_tokens': 150}",
                   200);
    assert_string_equal(text_at(o, "choices.0.finish_reason"), "length");
    assert_call(at(o, "choices.0.message.tool_calls.0"), false);
    json_decref(o);
    /* A call or a value. */
    o = house_json(h, "/v1/chat/completions",
                   "{" ASK ", " TOOLS ", 'n': 8, 'max_tokens': 150, 'response_format': {'type':"
                   " 'json_schema', 'json_schema': {'schema': " SCHEMA "}}}",
                   200);
    json_t *c;
    json_array_foreach(at(o, "choices"), i, c) {
        if (at(c, "message.tool_calls.0"))
            assert_call(at(c, "message.tool_calls.0"), false);
        else
            assert_value(text_at(c, "message.content"));
    }
    json_decref(o);
    o = house_json(h, "/v1/chat/completions",
                   "{" ASK ", " TOOLS ", 'tool_choice': {'type': 'function', 'function': {'name':"
                   " 'g'}}}",
                   400);
    assert_string_equal(text_at(o, "error.param"), "tool_choice");
    json_decref(o);
    o = house_json(h, "/v1/chat/completions", "{" ASK ", 'tool_choice': 'required'}", 400);
    json_decref(o);
}

/* ---- refusals ---- */

#define C "/v1/completions"
#define M "/v1/chat/completions"
#define U "'messages': [{'role': 'user', 'content': 'x'}]"

static void test_refusals(void **state) {
    static const struct {
        const char *path, *body;
        int code;
        const char *param, *part; /* of the message */
    } rows[] = {
        {C, "", 400, NULL, "empty"},
        {C, "\xef\xbb\xbf", 400, NULL, "empty"},
        {C, "\xef\xbb\xbf[]", 400, NULL, "no JSON object"},
        {C, "\xef\xbb\xbf{'max_tokens': 4}", 400, "prompt", "missing"},
        {C, "[]", 400, NULL, "no JSON object"},
        {C, "{'prompt': 'a'", 400, NULL, "no JSON"},
        {C, "{'prompt': '\xff'}", 400, NULL, "no JSON"},
        {C, "{'max_tokens': 4}", 400, "prompt", "missing"},
        {C, "{'prompt': []}", 400, "prompt", "must be"},
        {C, "{'prompt': ['a', 1]}", 400, "prompt", "must be"},
        {C, "{'prompt': [1.5]}", 400, "prompt", "must be"},
        {C, "{'prompt': [1, 'a']}", 400, "prompt", "no token id"},
        {C, "{'prompt': [1, 97]}", 400, "prompt", "not below 97"},
        {C, "{'prompt': [-1]}", 400, "prompt", "not below"},
        {C, "{'prompt': {'a': 1}}", 400, "prompt", "must be"},
        {C, "{'prompt': 'a', 'temperature': '1'}", 400, "temperature", "a number"},
        {C, "{'prompt': 'a', 'temperature': -1}", 400, "temperature", "from 0 to 100"},
        {C, "{'prompt': 'a', 'temperature': 1e999}", 400, NULL, "no JSON"},
        {C, "{'prompt': 'a', 'top_p': 1.1}", 400, "top_p", "from 0 to 1"},
        {C, "{'prompt': 'a', 'top_k': -2}", 400, "top_k", "from -1 to 2147483647"},
        {C, "{'prompt': 'a', 'max_completion_tokens': -1}", 400, "max_completion_tokens", "from 0"},
        {C, "{'prompt': 'a', 'n': 0}", 400, "n", "from 1 to 128"},
        {C, "{'prompt': 'a', 'n': 1.5}", 400, "n", "an integer"},
        {C, "{'prompt': 'a', 'n': 99999999999999999999}", 400, NULL, "no JSON"},
        {C, "{'prompt': 'a', 'n': 4, 'best_of': 2}", 400, "best_of", "at least"},
        {C, "{'prompt': 'a', 'best_of': 2, 'stream': true}", 400, "best_of", "streamed"},
        {C, "{'prompt': 'a', 'logprobs': 21}", 400, "logprobs", "from 0 to 20"},
        {C, "{'prompt': 'a', 'logprobs': true}", 400, "logprobs", "an integer"},
        {C, "{'prompt': 'a', 'stop': ['']}", 400, "stop", "1 to"},
        {C, "{'prompt': 'a', 'stop': ['a\\u0000b']}", 400, "stop", "zero"},
        {C, "{'prompt': 'a', 'stop': 5}", 400, "stop", "string"},
        {C, "{'prompt': 'a', 'stop_token_ids': [97]}", 400, "stop_token_ids", "not below"},
        {C, "{'prompt': 'a', 'logit_bias': {'x': 1}}", 400, "logit_bias", "token id"},
        {C, "{'prompt': 'a', 'logit_bias': {'1': 101}}", 400, "logit_bias", "-100 to 100"},
        {C, "{'prompt': 'a', 'suffix': 'b'}", 400, "suffix", "not supported"},
        {C, "{'prompt': 'a', 'guided_choice': ['b']}", 400, "guided_choice", "with an enum"},
        {C, "{'prompt': 'a', 'structured_outputs': {'regex': 'b'}}", 400, "structured_outputs",
         "response_format"},
        {C, "{'prompt': 'a', 'use_beam_search': true}", 400, "use_beam_search", "not supported"},
        {C, "{'prompt': 'a', 'bad_words': ['b']}", 400, "bad_words", "logit_bias"},
        {C, "{'prompt': 'a', 'prompt_logprobs': 1}", 400, "prompt_logprobs", "echo"},
        {C, "{'prompt': 'a', 'truncate_prompt_tokens': -2}", 400, "truncate_prompt_tokens",
         "from -1"},
        {M, "{" U ", 'chat_template': '{{ 1 }}'}", 400, "chat_template", "the model's own"},
        {M, "{" U ", 'continue_final_message': true, 'add_generation_prompt': true}", 400,
         "continue_final_message", "cannot both"},
        {C, "{'prompt': 'a', 'stream': 1}", 400, "stream", "true or false"},
        {C, "{'prompt': 'a', 'stream_options': 1}", 400, "stream_options", "an object"},
        {C, "{'prompt': 'a', 'model': 'none'}", 404, "model", "there is: tiny"},
        {C, "{'prompt': 'a', 'model': 7}", 400, "model", "a string"},
        {C, "{'prompt': ['a','a','a','a','a','a','a','a','a'], 'n': 128}", 400, "n",
         "at most 1024"},
        {C,
         "{'prompt': ['a','a','a','a','a','a','a','a'], 'n': 128, 'max_tokens': 100,"
         " 'logprobs': 20}",
         400, "logprobs", "2150400 log-probabilities"},
        {M, "{}", 400, "messages", "one at least"},
        {M, "{'messages': 'x'}", 400, "messages", "a list"},
        {M, "{'messages': ['x']}", 400, "messages", "not an object"},
        {M, "{'messages': [{'content': 'x'}]}", 400, "messages", "no role"},
        {M, "{'messages': [{'role': 'x', 'content': 'x'}]}", 400, "messages", "the role"},
        {M, "{'messages': [{'role': 'user'}]}", 400, "messages", "content"},
        {M, "{'messages': [{'role': 'user', 'content': [{'type': 'image_url'}]}]}", 400, "messages",
         "image_url"},
        {M, "{'messages': [{'role': 'user', 'content': [{'type': 'text'}]}]}", 400, "messages",
         "part 0"},
        {M, "{'messages': [{'role': 'user', 'content': ['x']}]}", 400, "messages", "part 0"},
        {M, "{" U ", 'chat_template_kwargs': {'messages': 5}}", 400, "messages",
         "look at line 1, column"},
        {M, "{" U ", 'max_tokens': 0}", 400, "max_tokens", "from 1"},
        {M, "{" U ", 'logprobs': 1}", 400, "logprobs", "true or false"},
        {M, "{" U ", 'top_logprobs': 2}", 400, "top_logprobs", "needs"},
        {M, "{" U ", 'tools': [{}]}", 400, "tools", "tool 0"},
        {M, "{" U ", 'tool_choice': 'any'}", 400, "tool_choice", "must be"},
        {M, "{" U ", 'functions': []}", 400, "functions", "tools"},
        {"/tokenize", "{}", 400, "prompt", "string"},
        {"/detokenize", "{'tokens': [97]}", 400, "tokens", "not below"},
        {"/detokenize", "{}", 400, "tokens", "missing"},
    };
    const house *h = *state;
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *o = house_json(h, rows[i].path, rows[i].body, rows[i].code);
        const char *name = json_string_value(at(o, "error.param"));
        bool same =
            name && rows[i].param ? strcmp(name, rows[i].param) == 0 : name == rows[i].param;
        if (!same || !strstr(text_at(o, "error.message"), rows[i].part))
            fail_msg("%s -> param %s, %s", rows[i].body, name ? name : "none",
                     text_at(o, "error.message"));
        text_at(o, "error.type");
        json_decref(o);
    }
}

static void test_too_long(void **state) {
    const house *h = *state;
    strbuf rq = {0};
    strbuf_puts(&rq, "{'prompt': '");
    for (int i = 0; i < HOUSE_CTX; i++) strbuf_putc(&rq, 'a');
    strbuf_puts(&rq, "'}");
    json_t *o = house_json(h, C, rq.data, 400);
    assert_string_equal(text_at(o, "error.code"), "context_length_exceeded");
    json_decref(o);
    /* One token less leaves room for one, however many are asked for. */
    strbuf_truncate(&rq, rq.len - 3);
    strbuf_puts(&rq, "', 'max_tokens': 50, 'ignore_eos': true}");
    o = house_json(h, C, rq.data, 200);
    assert_int_equal(int_at(o, "usage.completion_tokens"), 1);
    assert_string_equal(text_at(o, "choices.0.finish_reason"), "length");
    json_decref(o);
    strbuf_clear(&rq);
    strbuf_puts(&rq, "{'prompt': ");
    for (int i = 0; i < 5000; i++) strbuf_putc(&rq, '[');
    o = house_json(h, C, rq.data, 400);
    assert_non_null(strstr(text_at(o, "error.message"), "within each other"));
    json_decref(o);
    strbuf_free(&rq);
}

/* ---- the house ---- */

static void test_base_model(void **state) {
    (void)state;
    house h = {0};
    house_begin(&h, NULL);
    json_t *o = house_json(&h, M, "{" U "}", 400);
    assert_string_equal(text_at(o, "error.code"), "no_chat_template");
    json_decref(o);
    o = house_json(&h, C, "{'prompt': ''}", 400); /* it knows no token that begins a text */
    assert_string_equal(text_at(o, "error.message"), "the prompt has no tokens");
    json_decref(o);
    house_end(&h);
}

/* An adapter and its base at a time, in one answer each. */
static void test_adapter(void **state) {
    (void)state;
    house h = {0};
    alone want[2];
    house_begin_with(&h, HOUSE_TEMPLATE, (serve_options){.n_models = 2});
    write_alone(&h, "the fire", 8, &want[0]);
    write_alone_by(&h, ADAPTER, "the fire", 8, &want[1]);
    assert_string_not_equal(want[0].text, want[1].text);
    static const char *const names[] = {"tiny", "other"};
    for (int i = 0; i < 2; i++) {
        char rq[160];
        snprintf(rq, sizeof rq,
                 "{'prompt': 'the fire', 'model': '%s', 'max_tokens': 8, " GREEDY "}", names[i]);
        json_t *o = house_json(&h, C, rq, 200);
        assert_string_equal(text_at(o, "model"), names[i]);
        assert_string_equal(text_at(o, "choices.0.text"), want[i].text);
        json_decref(o);
    }
    house_end(&h);
}

/* What a model tries for itself is right, and changes nothing. */
static void test_draft(void **state) {
    (void)state;
    house h = {.drafts = true};
    alone want;
    house_begin(&h, NULL);
    write_alone(&h, "the fire", 30, &want);
    json_t *o = house_json(&h, C, "{'prompt': 'the fire', 'max_tokens': 30, " GREEDY "}", 200);
    assert_string_equal(text_at(o, "choices.0.text"), want.text);
    assert_true(metric(&h, "athanor_accepted_tokens_total{model=\"tiny\"}") > 0);
    json_decref(o);
    house_end(&h);
}

/* Those who go leave their places at once, running or waiting; the others' answers stay the same. */
static void test_gone(void **state) {
    (void)state;
    house h = {0};
    strbuf in = {0};
    enum { CLIENTS = 6 };
    int fd[CLIENTS];
    static const char *const rq[] = {
        "{\"prompt\": \"the fire\", \"max_tokens\": 180, \"ignore_eos\": true, \"n\": 9}",
        "{\"prompt\": \"the fire\", \"max_tokens\": 180, \"ignore_eos\": true, \"n\": 9, "
        "\"stream\": true}"};
    house_begin_with(&h, NULL, (serve_options){.streams = 2});
    json_t *before = house_json(&h, C, "{'prompt': 'and', 'max_tokens': 20, " GREEDY "}", 200);
    for (int i = 0; i < CLIENTS; i++) fd[i] = house_ask(&h, C, rq[i % 2]);
    for (int i = 0; i < CLIENTS; i++) close(fd[i]);
    json_t *after = house_json(&h, C, "{'prompt': 'and', 'max_tokens': 20, " GREEDY "}", 200);
    assert_string_equal(text_at(before, "choices.0.text"), text_at(after, "choices.0.text"));
    while (metric(&h, "athanor_answers_total{route=\"completions\",end=\"gone\"}") < CLIENTS)
        usleep(1000);
    while (metric(&h, "athanor_texts_running{model=\"tiny\"}") > 0) usleep(1000);
    assert_int_equal(metric(&h, "athanor_cache_pages_used{model=\"tiny\"}"), 0);
    assert_true(metric(&h, "athanor_new_tokens_total") < CLIENTS * 9 * 180);
    json_decref(before);
    json_decref(after);
    strbuf_free(&in);
    house_end(&h);
}

static void test_full(void **state) {
    (void)state;
    house h = {0};
    house_begin_with(&h, NULL, (serve_options){.streams = 1, .waiting = 1});
    /* Taken, as it is alone; it would take long. */
    int fd = house_ask(&h, C,
                       "{\"prompt\": [\"a\", \"b\", \"c\", \"d\"], \"n\": 128, "
                       "\"max_tokens\": 190, \"ignore_eos\": true}");
    while (metric(&h, "athanor_texts_running{model=\"tiny\"}") == 0) usleep(1000);
    json_t *o = house_json(&h, C, "{'prompt': 'a', 'n': 2}", 429);
    assert_string_equal(text_at(o, "error.code"), "queue_full");
    json_decref(o);
    int one = house_ask(&h, C, "{\"prompt\": \"a\"}"),
        two = house_ask(&h, C, "{\"prompt\": \"a\"}");
    while (metric(&h, "athanor_answers_refused_total") < 2) usleep(1000);
    usleep(20000); /* there was a place for one of them */
    assert_int_equal(metric(&h, "athanor_answers_refused_total"), 2);
    close(two);
    close(one);
    close(fd);
    house_end(&h);
}

static int begin(void **state) {
    static house h;
    house_begin(&h, HOUSE_TEMPLATE);
    *state = &h;
    return 0;
}

static int end(void **state) {
    house_end(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_loglikelihood),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_continued_message),
        cmocka_unit_test(test_continued_thought),
        cmocka_unit_test(test_truncated_prompt),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_bias_and_stop),
        cmocka_unit_test(test_schema),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_newer_name_of_max_tokens),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_base_model),
        cmocka_unit_test(test_adapter),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_draft),
        cmocka_unit_test(test_page),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
