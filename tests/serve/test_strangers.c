/* The HTTP server with clients that mean it harm, or do not know better: each is refused or bounded, and
 * others are answered meanwhile. */
#include "http_test.h"

#define LAST "Host: localhost\r\nConnection: close\r\n"

static void expect_health(const scene *s) {
    strbuf in = {0};
    assert_int_equal(status_of(exchange(s, "GET /health HTTP/1.1\r\n" LAST "\r\n", -1, &in)), 200);
    strbuf_free(&in);
}

/* The request is answered with the status, or with none for 0. */
static void expect_n(const scene *s, const char *request, size_t n, int code) {
    strbuf in = {0};
    const char *answer = exchange(s, request, (long)n, &in);
    const char *body = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "Content-Length: ");
    if (status_of(answer) != code) fail_msg("%.300s\n-> %s\nnot %d", request, answer, code);
    if (strstr(answer, " Refused\r\n")) { /* by call_cut */
        assert_int_equal(atoi(length + 16), strlen(body + 4));
        assert_int_equal(strstr(body, "server_error") != NULL, code >= 500);
    }
    strbuf_free(&in);
}

static void expect(const scene *s, const char *request, int code) {
    expect_n(s, request, strlen(request), code);
}

static void test_malformed(void **state) {
    (void)state;
    static const struct {
        const char *request;
        int code;
    } cases[] = {
        {"\r\n\r\nGET /health HTTP/1.1\r\n" LAST "\r\n",
         200}, /* RFC 9112, 2.2: empty lines before */
        {"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 400}, /* no Host */
        {"GET /health HTTP/1.1\r\nHost: localhost\r\n" LAST "\r\n", 400},
        {"GET /health HTTP/2.0\r\n" LAST "\r\n", 505},
        {"POST /echo HTTP/1.1\r\n" LAST "Content-Length: -1\r\n\r\n", 400},
        {"POST /echo HTTP/1.1\r\n" LAST "Content-Length: 3x\r\n\r\nabc", 400},
        {"POST /echo HTTP/1.1\r\n" LAST "Content-Length: 3, 3\r\n\r\nabc", 400},
        {"POST /echo HTTP/1.1\r\n" LAST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
        {"POST /echo HTTP/1.1\r\n" LAST
         "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         400},
        {"POST /echo HTTP/1.1\r\n" LAST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
        {"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {"POST /echo HTTP/1.1\r\n" LAST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" LAST "X(Y: z\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n: z\r\n" LAST "\r\n", 400},
        {"GET /health HTTP/1.1\r\n" LAST "no colon\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" LAST "X: y\rZ: z\r\n\r\n", 400},
        {"GET /health HTTP/1.1\nHost: localhost\nConnection: close\n\n", 200},
        {"\x16\x03\x01\x02\x01\x01", 0}, /* a TLS client */
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    };
    scene s;
    scene_begin(&s, (http_options){.header_s = 0.3, .idle_s = 0.3, .body_s = 0.3});
    for (int i = 0; i < ARRAY_LEN(cases); i++) expect(&s, cases[i].request, cases[i].code);
    /* A text ends at a NUL, for those who check it and those who use it. */
    const char nul[] =
        "GET /nothing HTTP/1.1\r\nHost: evil\0localhost\r\nConnection: close\r\n\r\n";
    expect_n(&s, nul, sizeof nul - 1, 403);
    expect_health(&s);
    scene_end(&s);
}

/* White space before a colon (RFC 9112, 5.1), or a length that goes on in the next line (5.2): what
 * follows may be a body or a request, and is neither. */
static void test_smuggling(void **state) {
    (void)state;
    static const char *const headers[] = {"Content-Length : 42",
                                          "Content-Length\t: 42",
                                          "Transfer-Encoding : chunked",
                                          "X Y: z",
                                          "Content-Length: 4\r\n 2",
                                          "Content-Length:\r\n\t42",
                                          "Transfer-Encoding: chun\r\n ked",
                                          "X: y\r\n Content-Length:42"};
    scene s;
    strbuf in = {0};
    char text[256];
    scene_begin(&s, (http_options){.idle_s = 5});
    for (int i = 0; i < ARRAY_LEN(headers); i++) {
        snprintf(text, sizeof text,
                 "POST /echo HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n"
                 "GET /health HTTP/1.1\r\n" LAST "\r\n",
                 headers[i]);
        const char *answer = exchange(&s, text, -1, &in);
        assert_int_equal(status_of(answer), 400);
        assert_null(strstr(answer + 1, "HTTP/1.1 "));
    }
    assert_int_equal(scene_count(&s).by_status[200], 0);
    assert_int_equal(scene_count(&s).timed_out, 0);
    strbuf_free(&in);
    scene_end(&s);
}

static void test_paths(void **state) {
    (void)state;
    static const char *const paths[] = {
        "/",
        "//health",
        "/health/",
        "/./health",
        "/x/../health",
        "/%68ealth",
        "/health%00",
        "/health\\",
        "/HEALTH",
        "/../../etc/passwd",
        "/health;x=y",
        "/%2e%2e/health",
        "/health%2f",
        "/\x1b[2Jhealth",
        "/\xff\xfe",
        "health",
        "*",
    };
    scene s;
    char text[256];
    scene_begin(&s, (http_options){0});
    for (int i = 0; i < ARRAY_LEN(paths); i++) {
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\n" LAST "\r\n", paths[i]);
        expect(&s, text, 404);
        scene_await(&s, &s.n_logged, i + 1);
        for (const char *p = s.last_path; *p; p++) assert_true(*p >= ' ' && *p != 0x7f);
    }
    const char nul[] = "GET /nothing\0/../health HTTP/1.1\r\n" LAST "\r\n";
    expect_n(&s, nul, sizeof nul - 1, 404);
    scene_end(&s);
}

/* Lines and headers of any length: refused, and little of them is kept. */
static void test_long_heads(void **state) {
    (void)state;
    scene s;
    strbuf rq = {0};
    scene_begin(&s, (http_options){.header_s = 5});
    strbuf_puts(&rq, "GET /");
    for (int i = 0; i < 100000; i++) strbuf_putc(&rq, 'a');
    strbuf_puts(&rq, " HTTP/1.1\r\n" LAST "\r\n");
    expect(&s, rq.data, 414);
    strbuf_clear(&rq);
    strbuf_puts(&rq, "GET /health HTTP/1.1\r\n" LAST);
    for (int i = 0; i < 20000; i++) strbuf_printf(&rq, "X-%d: %d\r\n", i, i);
    strbuf_puts(&rq, "\r\n");
    expect(&s, rq.data, 431);
    strbuf_free(&rq);
    expect_health(&s);
    scene_end(&s);
}

static void test_hosts(void **state) {
    (void)state;
    static const struct {
        const char *host;
        int code;
    } cases[] = {
        {"localhost", 200},
        {"LocalHost:9", 200},
        {"127.0.0.1", 200},
        {"127.0.0.1:8080", 200},
        {"[::1]:8080", 200},
        {"localhost.", 200},
        {"models.lan:80", 200},
        {"evil.example", 403},
        {"localhost.evil.example", 403},
        {"10.0.0.7", 403},
        {"localhost:80@evil", 403},
        {"localhost:x", 403},
        {"[::1", 403},
        {"evil.example:8080", 403},
        {"127.0.0.1.nip.io", 403},
        {"", 403},
        {"localhost/", 403},
    };
    static const char *const allowed[] = {"models.lan"};
    scene s;
    char text[256];
    scene_begin(&s, (http_options){.allow_hosts = allowed, .n_allow_hosts = 1});
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(text, sizeof text, "GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                 cases[i].host);
        expect(&s, text, cases[i].code);
    }
    scene_end(&s);
}

static void test_origins(void **state) {
    (void)state;
    static const char *const allowed[] = {"https://app.example"};
    static const struct {
        const char *origin;
        int code;
    } cases[] = {
        {"http://localhost:8080", 200},
        {"https://app.example", 200},
        {"http://app.example", 403},
        {"https://evil.example", 403},
        {"null", 403},
        {"http://localhost:8081", 403},
        {"file://", 403},
        {"http://localhost:8080.evil.example", 403},
    };
    scene s;
    strbuf in = {0};
    char text[512];
    scene_begin(&s, (http_options){.allow_origins = allowed, .n_allow_origins = 1});
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(text, sizeof text,
                 "POST /echo HTTP/1.1\r\nHost: localhost:8080\r\nConnection: close\r\nOrigin: "
                 "%s\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
                 cases[i].origin);
        const char *answer = exchange(&s, text, -1, &in);
        assert_int_equal(status_of(answer), cases[i].code);
        assert_int_equal(strstr(answer, "Access-Control-Allow-Origin") != NULL,
                         cases[i].code == 200);
    }
    const char *preflight = "OPTIONS /echo HTTP/1.1\r\n" LAST "Origin: https://app.example\r\n"
                            "Access-Control-Request-Method: POST\r\n"
                            "Access-Control-Request-Headers: authorization,content-type\r\n\r\n";
    const char *answer = exchange(&s, preflight, -1, &in);
    assert_int_equal(status_of(answer), 204);
    assert_non_null(strstr(answer, "Access-Control-Allow-Origin: https://app.example\r\n"));
    assert_non_null(strstr(answer, "Access-Control-Allow-Headers: authorization,content-type\r\n"));
    assert_non_null(strstr(answer, "Vary: Origin"));
    strbuf_free(&in);
    scene_end(&s);
}

static void test_keys(void **state) {
    (void)state;
    static const char *const keys[] = {"first key", "second"};
    static const struct {
        const char *header;
        int code;
    } cases[] = {
        {"", 401},
        {"Authorization: Bearer second\r\n", 200},
        {"Authorization: bearer first key\r\n", 200},
        {"Authorization: Bearer secon\r\n", 401},
        {"Authorization: Bearer second2\r\n", 401},
        {"Authorization: Bearer \r\n", 401},
        {"Authorization: Basic second\r\n", 401},
        {"Authorization: second\r\n", 401},
        {"Authorization: Bearer wrong\r\nAuthorization: Bearer second\r\n", 400},
    };
    scene s;
    char text[512];
    scene_begin(&s, (http_options){.keys = keys, .n_keys = 2});
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(text, sizeof text, "POST /echo HTTP/1.1\r\n" LAST "%sContent-Length: 2\r\n\r\n{}",
                 cases[i].header);
        expect(&s, text, cases[i].code);
    }
    expect(&s, "GET /secret HTTP/1.1\r\n" LAST "\r\n", 401); /* nor does it tell what there is */
    expect_health(&s);
    scene_end(&s);
    err e;
    http_server *refused;
    http_options bare = {.host = "0.0.0.0"};
    assert_int_equal(http_server_open(&refused, &bare, routes, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "API key"));
}

/* Too large a body is refused from its length alone, or when so much has come. */
static void test_large_bodies(void **state) {
    (void)state;
    scene s;
    strbuf rq = {0};
    scene_begin(&s, (http_options){.body_bytes = 100000, .bodies_bytes = 150000});
    expect(&s, "POST /echo HTTP/1.1\r\n" LAST "Content-Length: 1073741824\r\n\r\n", 413);
    expect(&s, "POST /echo HTTP/1.1\r\n" LAST "Content-Length: 18446744073709551617\r\n\r\n", 413);
    expect(&s, "GET /health HTTP/1.1\r\n" LAST "Content-Length: 100001\r\n\r\n", 413);
    strbuf_puts(&rq, "POST /echo HTTP/1.1\r\n" LAST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3000; i++) strbuf_printf(&rq, "400\r\n%1024d\r\n", i);
    expect(&s, rq.data, 413); /* 3 MB are sent: the answer comes all the same */
    strbuf_clear(&rq);
    strbuf_puts(&rq, "POST /echo HTTP/1.1\r\n" LAST "Content-Length: 3000000\r\n\r\n");
    for (int i = 0; i < 3000; i++) strbuf_printf(&rq, "%1000d", i);
    expect(&s, rq.data, 413);
    /* Two that are not too large, but are together. */
    int held = client_connect(&s);
    strbuf in = {0};
    strbuf_clear(&rq);
    strbuf_puts(&rq, "POST /later HTTP/1.1\r\n" LAST "Content-Length: 100000\r\n\r\n");
    for (int i = 0; i < 100; i++) strbuf_printf(&rq, "%1000d", i);
    client_send(held, rq.data, rq.len);
    http_reply *r = scene_take(&s);
    expect(&s, rq.data, 503);
    /* The first is running and needs its body no more: there is room. */
    http_reply_drop_body(r);
    strbuf_clear(&rq);
    strbuf_puts(&rq, "POST /echo HTTP/1.1\r\n" LAST "Content-Length: 100000\r\n\r\n");
    for (int i = 0; i < 100; i++) strbuf_printf(&rq, "%1000d", i);
    expect(&s, rq.data, 200);
    http_reply_send(r, 200, "text/plain", "ok", 2);
    assert_int_equal(status_of(client_read(held, &in, NULL)), 200);
    close(held);
    strbuf_free(&in);
    strbuf_free(&rq);
    scene_end(&s);
}

/* Heads and bodies that come a byte at a time are cut off in time, whatever the client goes on to send. */
static void trickle(const scene *s, const char *begin, const char *more, int code) {
    strbuf in = {0};
    int fd = client_connect(s);
    client_send(fd, begin, strlen(begin));
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
    while (poll(&p, 1, 5) == 0) client_send(fd, more, strlen(more));
    assert_int_equal(status_of(client_read(fd, &in, NULL)), code);
    close(fd);
    strbuf_free(&in);
}

static void test_slow(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, (http_options){.header_s = 0.1, .idle_s = 0.1, .body_s = 0.1});
    trickle(&s, "", "", 0);
    trickle(&s, "GET /health HTTP/1.1\r\nHost: localhost\r\n", "X: y\r\n", 0);
    trickle(&s, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", "x", 408);
    trickle(&s, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", "", 200); /* and then idles */
    assert_int_equal(scene_count(&s).timed_out, 4);
    expect_health(&s);
    scene_end(&s);
}

/* More connections than there are places: those that idle make place, and requests are answered. */
static void test_idle_crowd(void **state) {
    (void)state;
    enum { CROWD = 300 };
    scene s;
    int fds[CROWD];
    scene_begin(&s, (http_options){.connections = 20});
    for (int i = 0; i < CROWD; i++) {
        fds[i] = client_connect(&s);
        if (i % 2) client_send(fds[i], "GET /hea", 8);
        if (i % 50 == 0) expect_health(&s);
    }
    expect_health(&s);
    scene_await_connections(&s, 20);
    http_counters c = scene_count(&s);
    assert_true(c.evicted >= CROWD - 21);
    for (int i = 0; i < CROWD; i++) close(fds[i]);
    scene_end(&s);
}

/* Where it listens to others, no address has more than its part of the places, and no key is no way in. */
static void test_one_address(void **state) {
    (void)state;
    enum { EACH = 5 };
    static const char *const keys[] = {"key"};
    scene s;
    strbuf in = {0};
    int fds[EACH];
    scene_begin(&s,
                (http_options){.host = "0.0.0.0", .keys = keys, .n_keys = 1, .per_address = EACH});
    expect(&s, "GET /health HTTP/1.1\r\nHost: 10.1.2.3:80\r\nConnection: close\r\n\r\n", 200);
    expect(&s, "GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403);
    scene_await_connections(&s, 0);
    for (int i = 0; i < EACH; i++) fds[i] = client_connect(&s);
    while (scene_count(&s).connections < EACH) usleep(1000);
    int more = client_connect(&s);
    assert_string_equal(client_read(more, &in, NULL), "");
    close(more);
    for (int i = 0; i < EACH; i++) close(fds[i]);
    scene_await_connections(&s, 0);
    expect_health(&s);
    strbuf_free(&in);
    scene_end(&s);
}

static void test_ipv6(void **state) {
    (void)state;
    http_server *server;
    http_options options = {.host = "::1"};
    err e;
    if (http_server_open(&server, &options, routes, &e) != ST_OK) {
        print_message("skipped: there is no IPv6 here\n");
        return;
    }
    char url[64];
    snprintf(url, sizeof url, "http://[::1]:%d", http_server_port(server));
    assert_string_equal(http_server_url(server), url);
    http_server_close(server);
}

/* A client that does not take the end of its answer does not stay for ever. */
static void test_answer_not_read(void **state) {
    (void)state;
    static char large[8 << 20];
    scene s;
    scene_begin(&s, (http_options){.write_s = 0.1});
    int fd = client_connect(&s);
    const char *rq = "POST /later HTTP/1.1\r\n" LAST "Content-Length: 2\r\n\r\n{}";
    client_send(fd, rq, strlen(rq));
    http_reply_send(scene_take(&s), 200, "text/plain", large, sizeof large);
    scene_await(&s, &s.n_logged, 1);
    assert_true(s.last.cut);
    assert_int_equal(scene_count(&s).timed_out, 1);
    close(fd);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_smuggling),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_long_heads),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_one_address),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_idle_crowd),
        cmocka_unit_test(test_answer_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
