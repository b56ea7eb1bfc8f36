/* libFuzzer target: the encodings of Parquet's values. The first bytes say type, encoding, and how
 * many of the rest are a dictionary; the rest are pages. Every value that is given can be read. */
#include <stdlib.h>

#include "base/file.h"
#include "data/parquet/scalar.h"
#include "data/parquet/values.h"

enum { HEAD_BYTES = 4, MAX_VALUES = 500 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_values(const parquet_node *n, int encoding, const uint8_t *p, size_t len,
                        const dictionary *d) {
    values v = {0};
    strbuf json = {0};
    const uint8_t *value;
    size_t bytes;
    bool open = !values_open(&v, n, encoding, p, len, d);
    for (int i = 0; i < MAX_VALUES && open && values_next(&v, &value, &bytes); i++) {
        CHECK(n->bytes == 0 || bytes == (size_t)n->bytes, "a value of %zu bytes", bytes);
        strbuf_clear(&json);
        scalar_put(&json, n, value, bytes);
    }
    strbuf_free(&json);
    values_free(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int BYTES[] = {1, 4, 8, 12, 4, 8, 0, 5};
    static const parquet_meaning MEANINGS[] = {PARQUET_PLAIN, PARQUET_UNSIGNED, PARQUET_DECIMAL,
                                               PARQUET_TIME, PARQUET_DATE};
    if (size < HEAD_BYTES) return 0;
    parquet_node n = {.type = (parquet_type)(data[0] % 8), .scale = data[0] / 8 % 10};
    n.bytes = BYTES[n.type];
    bool number = n.type == PARQUET_INT32 || n.type == PARQUET_INT64;
    if (number) n.meaning = MEANINGS[data[1] / 16 % ARRAY_LEN(MEANINGS)];
    if (n.meaning == PARQUET_DATE && n.type == PARQUET_INT64) n.meaning = PARQUET_TIMESTAMP;
    if (n.type >= PARQUET_BYTES && data[1] / 16 == 1) n.meaning = PARQUET_DECIMAL;
    size_t room = size - HEAD_BYTES, cut = data[2] < room ? data[2] : room;
    dictionary d = {0};
    const char *why = dictionary_open(&d, &n, data + HEAD_BYTES, cut, data[3]);
    read_values(&n, data[1] % 16, data + HEAD_BYTES + cut, room - cut, why ? NULL : &d);
    free(d.offset);
    return 0;
}
