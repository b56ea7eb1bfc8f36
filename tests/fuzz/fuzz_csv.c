/* libFuzzer target: CSV (first byte even) and TSV records from outside bytes. Both ways through the
 * bytes have to agree on where records end, wherever the bytes are cut. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "data/text/csv_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_value(const field_value *v, const char *s, size_t size) {
    if (v->kind == VALUE_NONE) return;
    CHECK(v->s >= s && v->len <= size && v->s + v->len <= s + size, "a value outside its record");
    char *out = xmalloc(v->len + 1);
    CHECK(!v->escaped || csv_record_unescape(v->s, v->len, out) < v->len, "nothing was doubled");
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    csv_dialect d = data[0] & 1 ? (csv_dialect){'\t', false} : (csv_dialect){',', true};
    size_t cut = data[1], open_quote, at = 0;
    const char *s = (const char *)data + 2;
    size -= 2;
    cut = cut < size ? cut : size;
    int field[3] = {0, -1, 1};
    csv_columns columns = {3, field};
    size_t whole = csv_whole_records(s, cut, d, false, &open_quote);
    CHECK(whole <= cut && open_quote <= cut, "whole records beyond the end");
    bool met = whole == 0;
    while (at < size) {
        field_value value[2];
        const char *why;
        int count;
        size_t used = csv_record_scan(s + at, size - at, d, &columns, 2, value, &count, &why);
        CHECK(used > 0 && used <= size - at, "a record of %zu bytes", used);
        for (int i = 0; i < 2; i++) use_value(&value[i], s + at, used);
        at += used;
        met |= at == whole;
    }
    CHECK(met, "records do not end at %zu", whole);

    record_fields f = {.n = 1, .field = {{"text", 1, {"text"}, {4}}}};
    err e = {0};
    arena *a = arena_new("fuzz");
    if (csv_columns_parse(&columns, a, "fuzz", s, size, d, &f, &e) != ST_OK)
        CHECK(e.code == ST_FORMAT && e.message[0], "an error without words");
    arena_free(a);
    return 0;
}
