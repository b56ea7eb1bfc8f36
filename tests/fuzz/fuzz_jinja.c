/* libFuzzer target: a chat template from outside bytes. The input is
 *   template | NUL | JSON of the variables
 * Whatever parses is rendered within small limits, twice: both renders agree, spans lie in the
 * output, and the output is UTF-8. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jinja/jinja.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct result {
    status st;
    strbuf out;
    jinja_spans spans;
} result;

static result render(const jinja_template *t, const json_t *context, bool marks) {
    static const struct tm noon = {.tm_year = 126, .tm_mon = 1, .tm_mday = 3, .tm_hour = 12};
    jinja_limits limits = {.steps = 100000,
                           .output_bytes = 1 << 20,
                           .memory_bytes = 32 << 20,
                           .depth = 150,
                           .now = &noon};
    err e = {0};
    result r = {0};
    r.st = jinja_render(t, context, &limits, &r.out, marks ? &r.spans : NULL, &e);
    CHECK(r.st == ST_OK || (r.st == ST_FORMAT && e.message[0]), "an error without words");
    CHECK(utf8_valid_prefix(strbuf_cstr(&r.out), r.out.len) == r.out.len, "not UTF-8");
    for (int64_t i = 0; i < r.spans.n; i++) {
        CHECK(r.spans.span[i].start <= r.spans.span[i].end && r.spans.span[i].end <= r.out.len,
              "a span outside the output");
    }
    return r;
}

static void result_free(result *r) {
    strbuf_free(&r->out);
    free(r->spans.span);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    jinja_template *t;
    err e = {0};
    const char *text = (const char *)data, *end = size ? memchr(text, 0, size) : NULL;
    size_t n = end ? (size_t)(end - text) : size;
    if (jinja_parse(&t, text, n, &e) != ST_OK) {
        CHECK(e.code == ST_FORMAT && e.message[0], "an error without words");
        return 0;
    }
    json_t *context = end ? json_loadb(end + 1, size - n - 1, JSON_ALLOW_NUL, NULL) : NULL;
    result a = render(t, context, false), b = render(t, context, true);
    if (a.st == ST_OK && b.st == ST_OK) {
        CHECK(a.out.len == b.out.len &&
                  memcmp(strbuf_cstr(&a.out), strbuf_cstr(&b.out), a.out.len) == 0,
              "two renders differ");
    }
    result_free(&a);
    result_free(&b);
    json_decref(context);
    jinja_free(t);
    return 0;
}
