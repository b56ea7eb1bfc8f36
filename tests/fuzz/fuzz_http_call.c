/* libFuzzer target: the answers of a server, as the client of `bench serve` reads them. The first byte says how the
 * rest is cut; cut or whole, the same comes out. */
#include "app/bench/http_call.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void keep(void *ctx, const char *bytes, size_t n) {
    strbuf_append(ctx, bytes, n);
}

static http_state read_answer(const char *s, size_t n, size_t piece, strbuf *body) {
    http_call c = {.fd = -1, .on_body = keep, .ctx = body, .state = HTTP_HEAD};
    for (size_t at = 0; at < n; at += piece)
        if (!http_call_take(&c, s + at, at + piece < n ? piece : n - at)) break;
    http_state state = c.state;
    http_call_close(&c);
    return state;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strbuf whole = {0}, cut = {0};
    if (size < 2) return 0;
    const char *s = (const char *)data + 1;
    http_state a = read_answer(s, size - 1, size, &whole);
    http_state b = read_answer(s, size - 1, (size_t)data[0] % 32 + 1, &cut);
    CHECK(a == b && whole.len == cut.len, "the cutting of an answer shows");
    strbuf_free(&whole);
    strbuf_free(&cut);
    return 0;
}
