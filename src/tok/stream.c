/* Streaming decode: tokens may end inside a character, what is printed may not. */
#include <string.h>

#include "tok/tok.h"
#include "tok/text/unicode.h"

status tok_stream_push(tok_stream *s, int32_t id, strbuf *out, err *e) {
    strbuf text = {0};
    strbuf_append(&text, s->held, (size_t)s->n_held);
    status st = tok_decode(s->t, &id, 1, s->skip_special, &text, e);
    if (st == ST_OK) {
        size_t open = (size_t)utf8_open_tail(strbuf_cstr(&text), text.len);
        size_t whole = text.len - open;
        strbuf_append(out, strbuf_cstr(&text), whole);
        memcpy(s->held, strbuf_cstr(&text) + whole, open);
        s->n_held = (int)open;
    }
    strbuf_free(&text);
    return st;
}

void tok_stream_flush(tok_stream *s, strbuf *out) {
    strbuf_append(out, s->held, (size_t)s->n_held);
    s->n_held = 0;
}
