/* libFuzzer target: bodies of requests. The first byte says what they are: a completion, a chat, or what a
 * model writes, in pieces of a length that the second byte says. Bytes are a tokenizer's tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "serve/api/api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const char template[] =
    "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{{ '<think>\n' if think }}"
    "{% endif %}{# </think> #}</think>";

static served model;
static server house;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const char *const special[] = {"<|im_start|>", "<|im_end|>", "<tool_call>"};
    tok_train_options opt = {.kind = TOK_BYTE, .special = special, .n_special = 3};
    tok_trainer *tr;
    err e;
    (void)argc;
    (void)argv;
    CHECK(tok_trainer_new(&tr, &opt, &e) == ST_OK && tok_trainer_add(tr, "a", 1, &e) == ST_OK &&
              tok_trainer_finish(tr, &model.model.tok, &e) == ST_OK,
          "%s", e.message);
    tok_trainer_free(tr);
    CHECK(chat_template_parse(&model.template, template, sizeof template - 1, NULL, &e) == ST_OK,
          "%s", e.message);
    model.name = xstrdup("m");
    model.model.config.vocab_size = tok_vocab_size(model.model.tok);
    model.model.serve.longest = 2000;
    model.calls = call_form_of(model.template);
    model.thought = thought_marks_of(model.template);
    house.models = (served_list){.item = &model, .n = 1};
    return 0;
}

static void read_body(const http_request *rq, int route) {
    api_fault f = {0};
    answer *a = api_begin(&house, rq, NULL, route, &f);
    status st = !a                    ? ST_USAGE
                : route == API_CHAT   ? api_make_chat(a, &f)
                                      : api_make_completion(a, &f);
    CHECK(st == ST_OK || f.e.message[0], "an error without a message");
    CHECK(st == ST_OK || (api_fault_status(&f) >= 400 && api_fault_status(&f) < 500),
          "status %d: %s", api_fault_status(&f), f.e.message);
    for (int i = 0; st == ST_OK && i < a->n_texts; i++) {
        const generate_request *t = &a->texts[i].rq.rq;
        CHECK(t->n_prompt > 0 && t->n_prompt + t->max_new <= 2000, "%ld tokens and %ld",
              (long)t->n_prompt, (long)t->max_new);
        for (int k = 0; k < t->n_stop; k++) CHECK(t->stop[k][0], "an empty stop");
    }
    json_decref(st == ST_OK ? NULL : api_fault_json(&f));
    answer_free(a);
}

/* ---- what models write ---- */

static size_t told;

static void on_text(void *ctx, const char *text, size_t len) {
    (void)ctx;
    CHECK(len > 0 && text, "nothing is told");
    told += len;
}

static void on_call(void *ctx, const char *name, const json_t *arguments) {
    (void)ctx;
    CHECK(*name && json_is_object(arguments), "a call without a name or arguments");
}

static void read_answer(const char *text, size_t len, size_t piece) {
    static const answer_parts parts = {on_text, on_text, on_call, NULL};
    call_form form = (call_form)(piece % 4);
    answer_reader *r = answer_reader_new(form, piece & 16 ? model.thought : NULL,
                                         (piece & 48) == 48, NULL, &parts);
    told = 0;
    piece = piece / 64 + 1;
    for (size_t i = 0; i < len; i += piece)
        answer_reader_push(r, text + i, len - i < piece ? len - i : piece);
    answer_reader_end(r);
    CHECK(told <= len, "%zu bytes are told of %zu", told, len);
    answer_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    char *body = xmalloc(size);
    memcpy(body, data + 2, size - 2);
    body[size - 2] = '\0';
    http_request rq = {.method = "POST", .path = "/", .body = body, .body_bytes = size - 2};
    if (data[0] == 'c')
        read_body(&rq, API_COMPLETIONS);
    else if (data[0] == 'm')
        read_body(&rq, API_CHAT);
    else
        read_answer(body, size - 2, data[1]);
    free(body);
    return 0;
}
