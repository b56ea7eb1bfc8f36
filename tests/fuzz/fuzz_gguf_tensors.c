/* libFuzzer target: any bytes as a GGUF file. What is accepted must keep its promises, and be the
 * same when it is written and read again. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_value(const gguf_value *v, arena *mem) {
    int64_t whole;
    double number;
    bool truth;
    const gguf_text *s = gguf_value_texts(v, mem);
    for (uint64_t i = 0; i < v->n; i++) {
        if (s)
            hash_bytes(s[i].text, s[i].len); /* reads them */
        else
            CHECK(gguf_value_int(v, i, &whole) || gguf_value_float(v, i, &number) ||
                      gguf_value_bool(v, i, &truth) || v->item == GGUF_U64,
                  "a value that is nothing");
    }
}

static void use_meta(const gguf_meta *m, arena *mem) {
    gguf_pairs again = {0};
    strbuf b = {0};
    gguf_meta back;
    err e = {0};
    for (int64_t i = 0; i < m->n; i++) {
        CHECK(gguf_meta_find(m, m->pairs[i].key) == &m->pairs[i].value, "lookup of a key");
        use_value(&m->pairs[i].value, mem);
        gguf_put_value(&again, m->pairs[i].key, &m->pairs[i].value);
    }
    gguf_append_header(&b, 0, &again);
    CHECK(gguf_meta_read(&back, mem, b.data, b.len, "again", &e) == ST_OK, "%s", e.message);
    CHECK(back.n == m->n && back.end == m->end, "other metadata");
    strbuf_free(&b);
    gguf_pairs_free(&again);
}

/* The first and the last row. */
static void use_view(const gguf_view *v, const uint8_t *data, size_t size) {
    CHECK(v->bytes == 0 || (v->data >= data && v->data + v->bytes <= data + size),
          "a view outside");
    CHECK(v->bytes == v->row_bytes * (size_t)v->rows, "rows that are not the tensor");
    if (v->bytes == 0) return;
    float *row = xmalloc((size_t)v->cols * sizeof(*row));
    err e = {0};
    status st = gguf_read_f32(v, 0, 1, row, &e);
    CHECK(st == ST_OK || e.message[0], "an error without words");
    if (st == ST_OK && v->format->write) {
        uint8_t *blocks = xmalloc(v->row_bytes);
        quant_from_f32(v->format, blocks, row, v->cols);
        free(blocks);
    }
    if (st == ST_OK) st = gguf_read_f32(v, v->rows - 1, 1, row, &e);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gguf_reader *r;
    err e = {0};
    if (gguf_open_bytes(&r, data, size, "fuzz", &e) != ST_OK) {
        CHECK(e.message[0] && !r, "an error without words");
        return 0;
    }
    arena *mem = arena_new("fuzz");
    use_meta(gguf_get_meta(r), mem);
    for (int64_t i = 0; i < gguf_count(r); i++) {
        CHECK(gguf_find(r, gguf_get(r, i)->name) == gguf_get(r, i), "lookup of a tensor");
        use_view(gguf_get(r, i), data, size);
    }
    arena_free(mem);
    gguf_close(r);
    return 0;
}
