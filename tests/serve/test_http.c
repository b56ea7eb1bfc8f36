/* The HTTP server with clients that keep to the protocol: answers at once, later and in pieces; clients that
 * go; the end of the server. */
#include "http_test.h"

#define HOST "Host: localhost\r\n"
#define LAST HOST "Connection: close\r\n"

static void expect(const scene *s, const char *request, int code, const char *part) {
    strbuf in = {0};
    const char *answer = exchange(s, request, -1, &in);
    if (status_of(answer) != code || !strstr(answer, part))
        fail_msg("%s\n-> %s\nnot %d with %s", request, answer, code, part);
    strbuf_free(&in);
}

static void test_answers(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, (http_options){0});
    expect(&s, "GET /health HTTP/1.1\r\n" LAST "\r\n", 200, "\r\n\r\nGET");
    expect(&s, "GET /health?a=b HTTP/1.1\r\n" LAST "\r\n", 200, "\r\n\r\nGET");
    expect(&s, "GET /health HTTP/1.0\r\n\r\n", 200, "\r\n\r\nGET");
    expect(&s, "GET http://localhost:80/health HTTP/1.1\r\n" LAST "\r\n", 200, "\r\n\r\nGET");
    expect(&s, "GET HTTP://localhost/nothing?a HTTP/1.1\r\n" LAST "\r\n", 404,
           "there is nothing at /nothing");
    expect(&s, "GET http://localhost HTTP/1.1\r\n" LAST "\r\n", 404, "there is nothing at /");
    expect(&s, "GET http://other.example/health HTTP/1.1\r\n" LAST "\r\n", 403, "unknown_host");
    expect(&s, "GET http://localhost/health HTTP/1.1\r\nConnection: close\r\n\r\n", 400, "");
    expect(&s, "HEAD /health HTTP/1.1\r\n" LAST "\r\n", 200, "Content-Length: 3");
    expect(&s, "POST /echo HTTP/1.1\r\n" LAST "Content-Type: a/b\r\nContent-Length: 5\r\n\r\nhello",
           200, "\r\n\r\nhello");
    expect(&s,
           "POST /echo HTTP/1.1\r\n" LAST "Transfer-Encoding: chunked\r\n\r\n"
           "3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n",
           200, "\r\n\r\nhello");
    expect(&s, "POST /echo HTTP/1.1\r\n" LAST "Content-Length: 0\r\n\r\n", 200,
           "Content-Length: 0");
    expect(&s, "GET /nothing HTTP/1.1\r\n" LAST "\r\n", 404, "there is nothing at /nothing");
    expect(&s, "DELETE /echo HTTP/1.1\r\n" LAST "\r\n", 405, "Allow: OPTIONS, POST");
    expect(&s, "OPTIONS /health HTTP/1.1\r\n" LAST "\r\n", 204, "Allow: OPTIONS, GET, HEAD");
    /* Two in one packet, and a third on the same connection. */
    expect(&s,
           "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\none"
           "GET /nothing HTTP/1.1\r\n" HOST "\r\n"
           "POST /echo HTTP/1.1\r\n" LAST "Content-Length: 5\r\n\r\nthree",
           200, "three");
    scene_await(&s, &s.n_logged, 17);
    assert_string_equal(s.last_path, "/echo");
    assert_int_equal(s.last.status, 200);
    assert_int_equal(s.last.bytes, 5);
    http_counters c = scene_count(&s);
    assert_int_equal(c.by_status[200], 10);
    assert_int_equal(c.by_status[404], 4);
    assert_int_equal(c.body_bytes, 5 + 5 + 3 + 5);
    scene_end(&s);
}

/* A body is announced, and the client waits until it may send it. */
static void test_continue(void **state) {
    (void)state;
    scene s;
    strbuf in = {0};
    scene_begin(&s, (http_options){0});
    int fd = client_connect(&s);
    const char *head =
        "POST /echo HTTP/1.1\r\n" LAST "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    client_send(fd, head, strlen(head));
    assert_int_equal(status_of(client_read(fd, &in, "\r\n\r\n")), 100);
    client_send(fd, "ok", 2);
    assert_non_null(strstr(client_read(fd, &in, NULL), "\r\n\r\nok"));
    close(fd);
    strbuf_free(&in);
    scene_end(&s);
}

static int ask_later(const scene *s) {
    int fd = client_connect(s);
    const char *rq = "POST /later HTTP/1.1\r\n" LAST "Content-Length: 2\r\n\r\n{}";
    client_send(fd, rq, strlen(rq));
    return fd;
}

static void test_later(void **state) {
    (void)state;
    scene s;
    strbuf in = {0};
    scene_begin(&s, (http_options){0});
    int fd = ask_later(&s);
    http_reply *r = scene_take(&s);
    http_reply_header(r, "Retry-After", "7");
    http_reply_header(r, "Cache-Control", "no-cache");
    http_reply_error(r, 429, "rate_limit_error", "n", NULL, "too \"many\"");
    const char *answer = client_read(fd, &in, NULL);
    assert_int_equal(status_of(answer), 429);
    assert_non_null(strstr(answer, "Retry-After: 7"));
    assert_non_null(strstr(answer, "Cache-Control: no-cache"));
    assert_null(strstr(answer, "no-store"));
    assert_non_null(strstr(answer, "{\"error\": {\"message\": \"too \\\"many\\\"\", \"type\": "
                                   "\"rate_limit_error\", \"param\": \"n\", \"code\": null}}"));
    close(fd);
    strbuf_free(&in);
    scene_end(&s);
}

static void test_pieces(void **state) {
    (void)state;
    scene s;
    strbuf in = {0};
    char piece[64];
    scene_begin(&s, (http_options){0});
    int fd = ask_later(&s);
    http_reply *r = scene_take(&s);
    http_reply_begin(r, 200, "text/event-stream");
    assert_non_null(strstr(client_read(fd, &in, "\r\n\r\n"), "chunked"));
    for (int i = 0; i < 200; i++) { /* each comes before the next is given */
        snprintf(piece, sizeof piece, "data: %d\n\n", i);
        assert_true(http_reply_piece(r, piece, strlen(piece)));
        if (i % 10 == 0) assert_non_null(strstr(client_read(fd, &in, piece), piece));
    }
    http_reply_end(r);
    assert_non_null(strstr(client_read(fd, &in, NULL), "data: 199\n\n"));
    close(fd);
    strbuf_free(&in);
    scene_end(&s);
}

/* Clients that go while they wait, before and within an answer in pieces: the handler is told. */
static void test_gone(void **state) {
    (void)state;
    scene s;
    strbuf in = {0};
    scene_begin(&s, (http_options){0});
    for (int how = 0; how < 3; how++) {
        int fd = ask_later(&s);
        http_reply *r = scene_take(&s);
        if (how == 1) {
            http_reply_begin(r, 200, "text/event-stream");
            assert_true(http_reply_piece(r, "data: 1\n\n", 9));
            client_read(fd, &in, "data: 1");
        }
        assert_false(http_reply_gone(r));
        how == 2 ? shutdown(fd, SHUT_WR) : close(fd);
        scene_await(&s, &s.n_gone, how + 1);
        assert_true(http_reply_gone(r));
        if (how == 1) {
            assert_false(http_reply_piece(r, "x", 1));
            http_reply_end(r);
        } else {
            http_reply_send(r, 200, "text/plain", "late", 4);
        }
        if (how == 2) {
            assert_string_equal(client_read(fd, &in, NULL), "");
            close(fd);
        }
        scene_await(&s, &s.n_logged, how + 1);
        assert_true(s.last.cut);
    }
    assert_int_equal(scene_count(&s).gone, 3);
    strbuf_free(&in);
    scene_end(&s);
}

/* A client that sends no more but waits is answered, if that can be done at once. */
static void test_half_closed(void **state) {
    (void)state;
    scene s;
    strbuf in = {0};
    scene_begin(&s, (http_options){0});
    const char *rq = "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nok";
    int fd = client_connect(&s);
    client_send(fd, rq, strlen(rq));
    shutdown(fd, SHUT_WR);
    assert_non_null(strstr(client_read(fd, &in, NULL), "\r\n\r\nok"));
    close(fd);
    strbuf_free(&in);
    scene_end(&s);
}

/* The places of clients that have gone are free at once, whatever older ones do. */
static void test_places(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, (http_options){.header_s = 1000, .body_s = 1000});
    int old = client_connect(&s);
    client_send(old, "GET ", 4);
    const char *cut = "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 90\r\n\r\nthe beginning";
    for (int i = 0; i < 20; i++) {
        int fd = i % 2 ? ask_later(&s) : client_connect(&s);
        http_reply *r = i % 2 ? scene_take(&s) : NULL;
        if (!r) client_send(fd, cut, strlen(cut));
        if (i % 4 == 1) http_reply_begin(r, 200, "text/event-stream");
        close(fd);
        if (r) scene_await(&s, &s.n_gone, (i + 1) / 2);
        if (i % 4 == 1) http_reply_end(r);
        if (i % 4 == 3) http_reply_send(r, 200, "text/plain", "late", 4);
    }
    scene_await_connections(&s, 1);
    http_counters c = scene_count(&s);
    assert_int_equal(c.requests_now, 0);
    assert_int_equal(c.timed_out, 0);
    close(old);
    scene_end(&s);
}

/* A client that does not read: what waits for it is bounded, then it is dropped. */
static void test_unread(void **state) {
    (void)state;
    scene s;
    char piece[1000];
    int n = 0;
    memset(piece, 'x', sizeof piece);
    scene_begin(&s, (http_options){.unread_bytes = 20000});
    int fd = ask_later(&s);
    http_reply *r = scene_take(&s);
    http_reply_begin(r, 200, "text/event-stream");
    while (http_reply_piece(r, piece, sizeof piece)) n++;
    assert_true(n >= 20); /* more where the system's own buffers have room */
    scene_await(&s, &s.n_gone, 1);
    http_reply_end(r);
    assert_int_equal(scene_count(&s).dropped, 1);
    close(fd);
    scene_end(&s);
}

/* A piece that is larger than what may wait is no sign that the client does not read. */
static void test_large_piece(void **state) {
    (void)state;
    enum { LARGE = 4 << 20 };
    static char piece[LARGE];
    scene s;
    strbuf in = {0};
    memset(piece, 'x', LARGE);
    scene_begin(&s, (http_options){.unread_bytes = 20000});
    int fd = ask_later(&s);
    http_reply *r = scene_take(&s);
    http_reply_begin(r, 200, "text/event-stream");
    assert_true(http_reply_piece(r, "data: 1\n\n", 9));
    assert_true(http_reply_piece(r, piece, LARGE));
    http_reply_end(r);
    client_read(fd, &in, NULL);
    assert_true(in.len > LARGE);
    close(fd);
    strbuf_free(&in);
    scene_end(&s);
}

/* A stop: running answers end, whole; what comes now is refused, and told when to come again. */
static void test_stop(void **state) {
    (void)state;
    scene s;
    strbuf in = {0};
    scene_begin(&s, (http_options){0});
    int a = ask_later(&s);
    http_reply *ra = scene_take(&s);
    int b = ask_later(&s), c = client_connect(&s);
    const char *half = "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 90\r\n\r\nbegin";
    client_send(c, half, strlen(half));
    http_reply *rb = scene_take(&s);
    while (scene_count(&s).body_bytes < 2 + 2 + 5) usleep(1000);
    http_reply_begin(rb, 200, "text/event-stream");
    http_server_stop(s.server);
    expect(&s, "GET /health HTTP/1.1\r\n" LAST "\r\n", 503, "Retry-After");
    assert_int_equal(status_of(client_read(c, &in, NULL)), 503);
    assert_true(http_reply_piece(rb, "data: 1\n\n", 9));
    http_reply_send(ra, 200, "text/plain", "whole", 5);
    assert_non_null(strstr(client_read(a, &in, NULL), "\r\n\r\nwhole"));
    assert_true(http_reply_piece(rb, "data: 2\n\n", 9));
    http_reply_end(rb);
    const char *answer = client_read(b, &in, NULL);
    assert_non_null(strstr(answer, "data: 1"));
    assert_non_null(strstr(answer, "data: 2"));
    assert_non_null(strstr(answer, "\r\n0\r\n"));
    pthread_join(s.thread, NULL);
    http_server_close(s.server);
    close(a);
    close(b);
    close(c);
    strbuf_free(&in);
}

/* The second stop waits for nobody. */
static void test_stop_at_once(void **state) {
    (void)state;
    scene s;
    strbuf in = {0};
    scene_begin(&s, (http_options){0});
    int fd = ask_later(&s), half = client_connect(&s);
    http_reply *r = scene_take(&s);
    client_send(half, "POST /echo", 10);
    http_server_stop(s.server);
    http_server_stop(s.server);
    pthread_join(s.thread, NULL);
    assert_int_equal(s.n_gone, 1);
    assert_string_equal(client_read(fd, &in, NULL), "");
    assert_string_equal(client_read(half, &in, NULL), "");
    http_reply_send(r, 200, "text/plain", "late", 4);
    http_server_close(s.server);
    close(fd);
    close(half);
    strbuf_free(&in);
}

static int before;

static int count_before(void **state) {
    (void)state;
    before = count_files();
    return 0;
}

static int compare_after(void **state) {
    (void)state;
    int after = count_files();
    if (after != before) print_error("%d files were open, now %d\n", before, after);
    return after != before;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, count_before, compare_after)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_answers), TEST(test_continue),     TEST(test_later),       TEST(test_pieces),
        TEST(test_gone),    TEST(test_half_closed),  TEST(test_places),      TEST(test_unread),
        TEST(test_stop),    TEST(test_stop_at_once), TEST(test_large_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
