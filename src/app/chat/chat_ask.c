#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/chat/chat.h"
#include "base/json.h"

status chat_answer(chat *c, err *e) {
    generate_request options = c->options;
    options.sample.seed += c->retries;
    conversation_answer a;
    status st = conversation_answer_last(&c->talk, &options, &a, e);
    conversation_answer_free(st == ST_OK ? &c->last : &a);
    if (st == ST_OK) c->last = a;
    return st;
}

/* ---- lines ---- */

static json_t *answer_json(const conversation_answer *a) {
    json_t *ids = json_array();
    for (int64_t i = 0; i < a->ids.n; i++) json_array_append_new(ids, json_integer(a->ids.id[i]));
    return json_pack("{s:s, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "role", "assistant",
                     "content", json_text(strbuf_cstr(&a->text), a->text.len), "ids", ids, "finish",
                     generate_finish_name(a->result.finish), "prompt_tokens",
                     (json_int_t)a->n_prompt, "reused_tokens", (json_int_t)a->result.n_reused,
                     "new_tokens", (json_int_t)a->ids.n, "dropped_turns", (json_int_t)a->n_dropped,
                     "prefill_tok_per_s", json_f64(a->result.prefill_rate), "decode_tok_per_s",
                     json_f64(a->result.decode_rate));
}

status chat_answer_one(chat *c, const char *text, size_t len, err *e) {
    conversation_add_user(&c->talk, text, len);
    c->options.on_text = c->json ? NULL : cli_print_piece;
    TRY(chat_answer(c, e));
    if (c->json)
        cli_print_json(answer_json(&c->last));
    else
        putchar('\n');
    fflush(stdout);
    return ST_OK;
}

status chat_answer_lines(chat *c, err *e) {
    char *line = NULL;
    size_t cap = 0;
    status st = ST_OK;
    for (long n = 1; st == ST_OK; n++) {
        ssize_t len = getline(&line, &cap, stdin);
        if (len < 0) break;
        while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r')) len--;
        if (len > (ssize_t)strspn(line, " \t")) st = chat_answer_one(c, line, (size_t)len, e);
        if (st != ST_OK) err_where(e, "line %ld", n);
    }
    if (st == ST_OK && ferror(stdin)) st = err_unreadable(e, "read", "standard input");
    free(line);
    return st;
}
