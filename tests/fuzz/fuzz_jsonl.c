/* libFuzzer target: JSON records from outside bytes. Besides crashes and time it looks at promises:
 * what is found lies in the record, unescaping stays in its room and gives UTF-8. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "data/text/json_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_value(const field_value *v, const char *s, size_t size) {
    if (v->kind == VALUE_NONE) return;
    CHECK(v->s >= s && v->len <= size && v->s + v->len <= s + size, "a value outside its record");
    if (v->kind != VALUE_TEXT) return;
    char *out = xmalloc(v->len + 1);
    size_t n = v->len;
    if (v->escaped)
        n = json_record_unescape(v->s, n, out);
    else
        memcpy(out, v->s, n);
    CHECK(n <= v->len && utf8_valid_prefix(out, n) == n, "text that is not UTF-8");
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const record_fields FIELDS = {.n = 4,
                                         .field = {{"text", 1, {"text"}, {4}},
                                                   {"meta.body", 2, {"meta", "body"}, {4, 4}},
                                                   {"meta", 1, {"meta"}, {4}},
                                                   {"a.a.a", 3, {"a", "a", "a"}, {1, 1, 1}}}};
    field_value value[FIELDS_MAX];
    json_problem problem = {0};
    bool is_object;
    size_t len;
    const char *s = (const char *)data;
    if (json_record_scan(s, size, &FIELDS, value, &is_object, &problem)) {
        for (int i = 0; i < FIELDS.n; i++) use_value(&value[i], s, size);
        if (is_object) json_record_first_key(s, size, &len);
    } else {
        CHECK(problem.why && problem.at <= size, "no reason why this is not JSON");
    }
    return 0;
}
