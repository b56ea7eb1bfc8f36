/* The table of fields, and its reader (see params.h). */
#include "serve/api/params.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"

typedef enum field_kind {
    NUMBER,  /* a double from least to most */
    INTEGER, /* an int64 */
    BOOLEAN,
    STRING, /* these are kept as JSON */
    LIST,
    OBJECT,
    ANY,
    REFUSED, /* it would change what is asked for, and nobody here can do it */
} field_kind;

/* What a field may be, in words, by its kind. */
static const char *const kind_name[] = {
    [NUMBER] = "a number", [INTEGER] = "an integer", [BOOLEAN] = "true or false",
    [STRING] = "a string", [LIST] = "a list",        [OBJECT] = "an object"};

typedef struct field_row {
    const char *name;
    field_kind kind;
    int routes;
    size_t at;          /* in api_params */
    double least, most; /* of numbers */
    const char *hint;   /* of what is refused */
} field_row;

/* A field that is kept as it is, one with bounds, one that is refused. */
#define FIELD(n, k, r, member)                                                                     \
    { .name = n, .kind = k, .routes = r, .at = offsetof(api_params, member) }
#define WITHIN(n, k, r, member, from, to)                                                          \
    {                                                                                              \
        .name = n, .kind = k, .routes = r, .at = offsetof(api_params, member), .least = from,      \
        .most = to                                                                                 \
    }
#define REFUSE(n, r, h)                                                                            \
    { .name = n, .kind = REFUSED, .routes = r, .hint = h }
#define BOTH (API_COMPLETIONS | API_CHAT)
#define TEXTS (API_TOKENIZE | API_DETOKENIZE)
#define MOST_TOK 16777216

/* Where two fields have the same place, the later one counts. */
static const field_row fields[] = {
    FIELD("model", STRING, BOTH | TEXTS, model),
    FIELD("prompt", ANY, API_COMPLETIONS | API_TOKENIZE, prompt),
    FIELD("messages", LIST, API_CHAT | API_TOKENIZE, messages),
    FIELD("tools", LIST, API_CHAT | API_TOKENIZE, tools),
    FIELD("tool_choice", ANY, API_CHAT, tool_choice),
    FIELD("parallel_tool_calls", BOOLEAN, API_CHAT, parallel_calls),
    FIELD("chat_template_kwargs", OBJECT, API_CHAT | API_TOKENIZE, template_variables),
    FIELD("documents", LIST, API_CHAT | API_TOKENIZE, documents),
    FIELD("add_generation_prompt", BOOLEAN, API_CHAT | API_TOKENIZE, begin_answer),
    FIELD("continue_final_message", BOOLEAN, API_CHAT | API_TOKENIZE, continue_last),
    FIELD("tokens", LIST, API_DETOKENIZE, tokens),
    FIELD("add_special_tokens", BOOLEAN, API_COMPLETIONS | API_TOKENIZE, add_special),
    WITHIN("truncate_prompt_tokens", INTEGER, BOTH, last_tokens, -1, MOST_TOK),

    WITHIN("temperature", NUMBER, BOTH, temperature, 0, 100),
    WITHIN("top_p", NUMBER, BOTH, top_p, 0, 1),
    WITHIN("min_p", NUMBER, BOTH, min_p, 0, 1),
    WITHIN("top_k", INTEGER, BOTH, top_k, -1, INT32_MAX), /* -1 and 0: all */
    WITHIN("repetition_penalty", NUMBER, BOTH, repetition_penalty, 0.01, 100),
    WITHIN("no_repeat_ngram_size", INTEGER, BOTH, no_repeat_ngram, 0, INT32_MAX),
    WITHIN("presence_penalty", NUMBER, BOTH, presence_penalty, -2, 2),
    WITHIN("frequency_penalty", NUMBER, BOTH, frequency_penalty, -2, 2),
    WITHIN("seed", INTEGER, BOTH, seed, -0x1p63, 0x1p63),
    FIELD("logit_bias", OBJECT, BOTH, logit_bias),

    WITHIN("max_tokens", INTEGER, API_COMPLETIONS, max_tokens, 0, MOST_TOK),
    WITHIN("max_tokens", INTEGER, API_CHAT, max_tokens, 1, MOST_TOK),
    WITHIN("max_completion_tokens", INTEGER, API_COMPLETIONS, max_tokens, 0, MOST_TOK),
    WITHIN("max_completion_tokens", INTEGER, API_CHAT, max_tokens, 1, MOST_TOK),
    WITHIN("min_tokens", INTEGER, BOTH, min_tokens, 0, MOST_TOK),
    FIELD("stop", ANY, BOTH, stop),
    FIELD("stop_token_ids", LIST, BOTH, stop_token_ids),
    FIELD("ignore_eos", BOOLEAN, BOTH, ignore_eos),
    FIELD("response_format", OBJECT, BOTH, response_format),

    WITHIN("n", INTEGER, BOTH, n, 1, 128),
    WITHIN("best_of", INTEGER, API_COMPLETIONS, best_of, 1, 128),
    FIELD("stream", BOOLEAN, BOTH, stream),
    FIELD("echo", BOOLEAN, API_COMPLETIONS, echo),
    FIELD("return_token_ids", BOOLEAN, BOTH, return_token_ids),
    FIELD("skip_special_tokens", BOOLEAN, BOTH | API_DETOKENIZE, skip_special),
    WITHIN("logprobs", INTEGER, API_COMPLETIONS, n_top, 0, 20),

    REFUSE("suffix", API_COMPLETIONS, "leave it out: the models here only write on"),
    REFUSE("functions", API_CHAT, "give tools instead"),
    REFUSE("function_call", API_CHAT, "give tool_choice instead"),
    REFUSE("grammar", BOTH, "give a JSON Schema as response_format instead"),
    REFUSE("json_schema", BOTH, "give the schema as response_format instead"),
    REFUSE("guided_json", BOTH, "give the schema as response_format instead"),
    REFUSE("guided_regex", BOTH, "give a JSON Schema with a pattern as response_format instead"),
    REFUSE("guided_choice", BOTH, "give a JSON Schema with an enum as response_format instead"),
    REFUSE("guided_grammar", BOTH, "give a JSON Schema as response_format instead"),
    REFUSE("structured_outputs", BOTH, "give a JSON Schema as response_format instead"),
    REFUSE("allowed_token_ids", BOTH, "give a logit_bias of 100 to these tokens instead"),
    REFUSE("bad_words", BOTH, "give a logit_bias of -100 to their tokens instead"),
    REFUSE("use_beam_search", BOTH, "leave it out: beams are searched by athanor generate --beams"),
    REFUSE("prompt_logprobs", BOTH, "give echo and logprobs to /v1/completions instead"),
    REFUSE("include_stop_str_in_output", BOTH,
           "leave it out: texts of stop are never in the answer"),
    REFUSE("chat_template", API_CHAT | API_TOKENIZE, "leave it out: the model's own is used"),
};

api_params api_params_default(void) {
    return (api_params){.temperature = 1,
                        .top_p = 1,
                        .repetition_penalty = 1,
                        .max_tokens = -1,
                        .n = 1,
                        .n_top = -1,
                        .skip_special = true,
                        .parallel_calls = true,
                        .begin_answer = true,
                        .add_special = true};
}

void api_params_advise(api_params *p, const generation_settings *settings) {
    if (!settings->samples) return;
    p->temperature = settings->sample.temperature;
    p->top_k = settings->sample.top_k;
    p->top_p = settings->sample.top_p;
    p->min_p = settings->sample.min_p;
    p->repetition_penalty = settings->sample.repetition_penalty;
    p->no_repeat_ngram = settings->sample.no_repeat_ngram;
}

/* ---- one field ---- */

static bool is_kind(const json_t *v, field_kind kind) {
    switch (kind) {
        case NUMBER: return json_is_number(v);
        case INTEGER: return json_is_integer(v);
        case BOOLEAN: return json_is_boolean(v);
        case STRING: return json_is_string(v);
        case LIST: return json_is_array(v);
        case OBJECT: return json_is_object(v);
        default: return true;
    }
}

static status wrong_kind(const char *name, const char *kind, err *e) {
    return err_at(e, ST_USAGE, name, "\"%s\" must be %s", name, kind);
}

static bool is_in_range(const field_row *f, const json_t *v) {
    if (f->kind != NUMBER && f->kind != INTEGER) return true;
    double x = json_number_value(v);
    return x >= f->least && x <= f->most;
}

static status read_field(api_params *p, const field_row *f, const json_t *v, err *e) {
    void *to = (char *)p + f->at;
    if (f->kind == REFUSED && json_is_false(v)) return ST_OK; /* it is not asked for */
    if (f->kind == REFUSED) {
        err_at(e, ST_USAGE, f->name, "\"%s\" is not supported", f->name);
        return err_hint(e, "%s", f->hint);
    }
    if (!is_kind(v, f->kind)) return wrong_kind(f->name, kind_name[f->kind], e);
    if (!is_in_range(f, v)) {
        return err_at(e, ST_USAGE, f->name, "\"%s\" must be from %.10g to %.10g", f->name, f->least,
                      f->most);
    }
    if (f->kind == NUMBER)
        *(double *)to = json_number_value(v);
    else if (f->kind == INTEGER)
        *(int64_t *)to = json_integer_value(v);
    else if (f->kind == BOOLEAN)
        *(bool *)to = json_is_true(v);
    else
        *(const json_t **)to = v;
    return ST_OK;
}

/* In chats `logprobs` says whether, and `top_logprobs` how many. */
static status read_chat_logprobs(api_params *p, const json_t *body, err *e) {
    const json_t *wanted = json_object_get(body, "logprobs");
    const json_t *top = json_object_get(body, "top_logprobs");
    if (wanted && !json_is_null(wanted) && !json_is_boolean(wanted))
        return wrong_kind("logprobs", "true or false", e);
    if (json_is_true(wanted)) p->n_top = 0;
    if (!top || json_is_null(top)) return ST_OK;
    json_int_t n = json_integer_value(top);
    if (!json_is_integer(top) || n < 0 || n > 20)
        return wrong_kind("top_logprobs", "an integer from 0 to 20", e);
    if (p->n_top < 0 && n > 0) {
        err_at(e, ST_USAGE, "top_logprobs", "\"top_logprobs\" needs \"logprobs\": true");
        return err_hint(e, "add it, or leave \"top_logprobs\" out");
    }
    if (p->n_top >= 0) p->n_top = n;
    return ST_OK;
}

static status read_stream_options(api_params *p, const json_t *body, err *e) {
    const json_t *o = json_object_get(body, "stream_options");
    if (!o || json_is_null(o)) return ST_OK;
    if (!json_is_object(o)) return wrong_kind("stream_options", kind_name[OBJECT], e);
    const json_t *usage = json_object_get(o, "include_usage");
    if (usage && !json_is_null(usage) && !json_is_boolean(usage))
        return wrong_kind("stream_options.include_usage", kind_name[BOOLEAN], e);
    p->include_usage = json_is_true(usage);
    return ST_OK;
}

/* Whoever continues a message begins none, and need not say so. */
static status read_continued(api_params *p, const json_t *body, err *e) {
    if (!p->continue_last) return ST_OK;
    p->begin_answer = false;
    if (!json_is_true(json_object_get(body, "add_generation_prompt"))) return ST_OK;
    return err_at(e, ST_USAGE, "continue_final_message",
                  "\"continue_final_message\" and \"add_generation_prompt\" cannot both be true: "
                  "an answer is either continued or begun");
}

static status check_together(const api_params *p, err *e) {
    if (p->best_of && p->best_of < p->n) {
        return err_at(e, ST_USAGE, "best_of", "\"best_of\" (%ld) must be at least \"n\" (%ld)",
                      (long)p->best_of, (long)p->n);
    }
    if (p->best_of > p->n && p->stream) {
        return err_at(e, ST_USAGE, "best_of",
                      "\"best_of\" cannot be streamed: which answers are the best is known at the "
                      "end");
    }
    return ST_OK;
}

status api_params_read(api_params *p, const json_t *body, int route, err *e) {
    for (int i = 0; i < ARRAY_LEN(fields); i++) {
        const json_t *v = json_object_get(body, fields[i].name);
        if (!v || json_is_null(v) || !(fields[i].routes & route)) continue;
        TRY(read_field(p, &fields[i], v, e));
    }
    if (p->top_k < 0) p->top_k = 0;
    if (route & (API_CHAT | API_COMPLETIONS)) TRY(read_stream_options(p, body, e));
    if (route & API_CHAT) TRY(read_chat_logprobs(p, body, e));
    TRY(read_continued(p, body, e));
    return check_together(p, e);
}

/* ---- lists ---- */

static status read_stop(const json_t *v, const char **out, err *e) {
    size_t n = json_string_length(v);
    if (!json_is_string(v)) return wrong_kind("stop", "a string or a list of strings", e);
    if (n == 0 || n > API_MAX_STOP_BYTES || strlen(json_string_value(v)) != n) {
        return err_at(e, ST_USAGE, "stop",
                      "a text of \"stop\" must have 1 to %d bytes, none of zero",
                      API_MAX_STOP_BYTES);
    }
    *out = json_string_value(v);
    return ST_OK;
}

status api_read_stops(const json_t *field, const char ***out, int *n, err *e) {
    *n = 0;
    *out = NULL;
    if (!field) return ST_OK;
    size_t many = json_is_array(field) ? json_array_size(field) : 1;
    if (many > API_MAX_STOPS)
        return err_at(e, ST_USAGE, "stop", "\"stop\" has %zu texts, at most %d are possible", many,
                      API_MAX_STOPS);
    const char **stops = xcalloc(many ? many : 1, sizeof *stops);
    status st = ST_OK;
    for (size_t i = 0; i < many && st == ST_OK; i++)
        st = read_stop(json_is_array(field) ? json_array_get(field, i) : field, &stops[i], e);
    if (st != ST_OK) {
        free(stops);
        return st;
    }
    *out = stops;
    *n = (int)many;
    return ST_OK;
}

status api_read_ids(const json_t *list, const char *name, int32_t vocab, tok_ids *out, err *e) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v))
            return err_at(e, ST_USAGE, name, "element %zu of \"%s\" is no token id", i, name);
        if (id < 0 || id >= vocab)
            return err_at(e, ST_USAGE, name, "the token id %lld of \"%s\" is not below %d",
                          (long long)id, name, vocab);
        tok_ids_push(out, (int32_t)id);
    }
    return ST_OK;
}

static status read_one_bias(const char *key, const json_t *v, int32_t vocab, int32_t *id,
                            double *bias, err *e) {
    int64_t n;
    double x = json_number_value(v);
    if (!text_parse_int(key, &n) || n < 0 || n >= vocab)
        return err_at(e, ST_USAGE, "logit_bias",
                      "a key of \"logit_bias\" must be a token id below %d", vocab);
    if (!json_is_number(v) || !(x >= -100 && x <= 100))
        return err_at(e, ST_USAGE, "logit_bias",
                      "the value of token %ld of \"logit_bias\" must be a number from -100 to 100",
                      (long)n);
    *id = (int32_t)n;
    *bias = x;
    return ST_OK;
}

status api_read_bias(const json_t *field, int32_t vocab, int32_t **ids, double **bias, int *n,
                     err *e) {
    const char *key;
    json_t *v;
    size_t many = json_object_size(field);
    *n = 0;
    *ids = NULL;
    *bias = NULL;
    if (many > (size_t)vocab)
        return err_at(e, ST_USAGE, "logit_bias", "\"logit_bias\" has %zu keys for %d tokens", many,
                      vocab);
    *ids = many ? xcalloc(many, sizeof **ids) : NULL;
    *bias = many ? xcalloc(many, sizeof **bias) : NULL;
    json_object_foreach((json_t *)field, key, v) {
        TRY(read_one_bias(key, v, vocab, &(*ids)[*n], &(*bias)[*n], e));
        ++*n;
    }
    return ST_OK;
}
