/* The client's reading of answers: forms of bodies, in one piece and byte by byte; what is no HTTP; ends too early. */
#include "app/bench/http_call.h"
#include "test.h"

#include <sys/socket.h>
#include <unistd.h>

typedef struct row {
    const char *answer;
    const char *body; /* NULL: the answer is broken, whatever else there is */
    int code;
    bool needs_end; /* only the end of the connection ends it */
} row;

#define OK "HTTP/1.1 200 OK\r\n"
static const row rows[] = {
    {OK "Content-Length: 5\r\n\r\nhello", "hello", 200, false},
    {OK "content-length:5\r\nX: y\r\n\r\nhelloworld", "hello", 200, false},
    {OK "Content-Length: 0\r\n\r\n", "", 200, false},
    {OK "\r\nto the end", "to the end", 200, true},
    {"HTTP/1.0 404 No\r\n\r\n", "", 404, true},
    {"HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 2\r\n\r\nok", "ok", 200, false},
    {OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
     "hello world", 200, false},
    {OK "Transfer-Encoding: CHUNKED\r\n\r\n1\r\na\r\n00\r\nTrailer: x\r\n\r\n", "a", 200, false},
    {OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n", NULL, 200, false},
    {OK "Transfer-Encoding: chunked\r\n\r\n-2\r\nhe\r\n", NULL, 200, false},
    {OK "Transfer-Encoding: chunked\r\n\r\n\r\nhe\r\n", NULL, 200, false},
    {OK "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nhe\r\n", NULL, 200, false},
    {OK "Content-Length: many\r\n\r\nhello", NULL, 200, false},
    {OK "Content-Length: -1\r\n\r\nhello", NULL, 200, false},
    {"SSH-2.0-OpenSSH\r\n\r\n", NULL, 0, false},
    {"HTTP/1.1 99 x\r\n\r\n", NULL, 99, false},
};

static void keep(void *ctx, const char *bytes, size_t n) {
    strbuf_append(ctx, bytes, n);
}

static void read_row(const row *r, size_t piece) {
    strbuf body = {0};
    http_call c = {.fd = -1, .on_body = keep, .ctx = &body, .state = HTTP_HEAD};
    size_t n = strlen(r->answer);
    bool open = true;
    for (size_t at = 0; at < n && open; at += piece)
        open = http_call_take(&c, r->answer + at, at + piece < n ? piece : n - at);
    if (r->body) {
        assert_string_equal(strbuf_cstr(&body), r->body);
        assert_int_equal(c.state, r->needs_end ? HTTP_BODY : HTTP_ENDED);
    } else {
        assert_int_equal(c.state, HTTP_BROKEN);
        assert_non_null(c.why);
    }
    assert_int_equal(open, r->body && r->needs_end);
    assert_int_equal(c.code, r->code);
    http_call_close(&c);
    strbuf_free(&body);
}

static void test_answers(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        read_row(&rows[i], 1);
        read_row(&rows[i], 7);
        read_row(&rows[i], 1 << 12);
    }
}

static void test_endless_head(void **state) {
    (void)state;
    http_call c = {.fd = -1, .state = HTTP_HEAD};
    static char line[1 << 15];
    memset(line, 'x', sizeof line);
    assert_true(http_call_take(&c, line, sizeof line));
    assert_true(http_call_take(&c, line, sizeof line));
    assert_false(http_call_take(&c, line, sizeof line));
    http_call_close(&c);
}

/* A connection that ends: after the first n bytes of an answer. */
static http_state end_after(const char *answer, size_t n) {
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    assert_int_equal(send(ends[1], answer, n, 0), n);
    close(ends[1]);
    http_call c = {.fd = ends[0]};
    while (http_call_step(&c)) continue;
    http_state state = c.state;
    assert_int_equal(state == HTTP_BROKEN, c.why != NULL);
    http_call_close(&c);
    return state;
}

static void test_cut(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        if (!rows[i].body || i == 1) continue; /* which has bytes after its end */
        size_t n = strlen(rows[i].answer);
        assert_int_equal(end_after(rows[i].answer, n), HTTP_ENDED);
        if (n > 0 && !rows[i].needs_end)
            for (size_t k = 1; k < n; k++)
                assert_int_equal(end_after(rows[i].answer, k), HTTP_BROKEN);
    }
    assert_int_equal(end_after("", 0), HTTP_BROKEN);
}

static void test_places(void **state) {
    (void)state;
    http_place p;
    err e = {0};
    assert_int_equal(http_place_read(&p, "http://127.0.0.1:81/base/", &e), ST_OK);
    assert_string_equal(p.host, "127.0.0.1:81");
    assert_string_equal(p.base, "/base");
    assert_int_equal(http_place_read(&p, "http://[::1]:8080", &e), ST_OK);
    assert_string_equal(p.host, "[::1]:8080");
    assert_string_equal(p.base, "");
    static const char *const wrong[] = {"https://127.0.0.1",    "http://",
                                        "http://127.0.0.1/a b", "http://127.0.0.1:99999x",
                                        "http://a@127.0.0.1",   "http://127.0.0.1/\r\nX: y"};
    for (int i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(http_place_read(&p, wrong[i], &e), ST_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers),
                                       cmocka_unit_test(test_endless_head),
                                       cmocka_unit_test(test_cut), cmocka_unit_test(test_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
