/* The token that ends an answer. */
#include <string.h>

#include "tok/chat/template.h"
#include "tok/tok_format.h"

/* The first id of `text`, where it is a special token. */
static int32_t leading_special(const tok *k, const char *text) {
    tok_ids ids = {0};
    int32_t found = -1;
    err ignored;
    if (tok_encode(k, text, strlen(text), 0, &ids, &ignored) == ST_OK && ids.n > 0)
        found = tok_special(k, ids.id[0]) ? ids.id[0] : -1;
    tok_ids_free(&ids);
    return found;
}

int32_t chat_find_stop(const chat_template *t, const tok *k, const struct tm *now) {
    static const char said[] = "ATHANOR ANSWERS";
    json_t *messages = json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "user", "content", "question",
                                 "role", "assistant", "content", said);
    chat_request q = {.messages = messages, .now = now};
    strbuf text = {0};
    int32_t found = -1;
    err ignored;
    if (chat_render(t, &q, &text, NULL, &ignored) == ST_OK) {
        const char *after = strstr(strbuf_cstr(&text), said);
        if (after) after += strlen(said);
        if (after) found = leading_special(k, after + strspn(after, " \n"));
    }
    json_decref(messages);
    strbuf_free(&text);
    return found;
}
