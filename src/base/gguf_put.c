/* Puts pairs into the bytes of a GGUF file. */
#include <string.h>

#include "base/gguf.h"

static void append_u32(strbuf *b, uint32_t x) {
    strbuf_append(b, &x, 4);
}

static void append_u64(strbuf *b, uint64_t x) {
    strbuf_append(b, &x, 8);
}

void gguf_append_string(strbuf *b, const char *s, size_t len) {
    append_u64(b, len);
    strbuf_append(b, s, len);
}

void gguf_append_header(strbuf *b, uint64_t n_tensors, const gguf_pairs *p) {
    strbuf_puts(b, GGUF_MAGIC);
    append_u32(b, GGUF_VERSION);
    append_u64(b, n_tensors);
    append_u64(b, p->n);
    strbuf_append(b, p->bytes.data, p->bytes.len);
}

static void put_key(gguf_pairs *p, const char *key, gguf_type type) {
    gguf_append_string(&p->bytes, key, strlen(key));
    append_u32(&p->bytes, type);
    p->n++;
}

static void put_array_key(gguf_pairs *p, const char *key, gguf_type item, uint64_t n) {
    put_key(p, key, GGUF_ARRAY);
    append_u32(&p->bytes, item);
    append_u64(&p->bytes, n);
}

void gguf_put_u32(gguf_pairs *p, const char *key, uint32_t x) {
    put_key(p, key, GGUF_U32);
    append_u32(&p->bytes, x);
}

void gguf_put_f32(gguf_pairs *p, const char *key, float x) {
    put_key(p, key, GGUF_F32);
    strbuf_append(&p->bytes, &x, 4);
}

void gguf_put_bool(gguf_pairs *p, const char *key, bool x) {
    put_key(p, key, GGUF_BOOL);
    strbuf_putc(&p->bytes, (char)x);
}

void gguf_put_string(gguf_pairs *p, const char *key, const char *s) {
    put_key(p, key, GGUF_STRING);
    gguf_append_string(&p->bytes, s, strlen(s));
}

void gguf_put_array(gguf_pairs *p, const char *key, gguf_type item, const void *items, uint64_t n) {
    CHECK(gguf_type_bytes(item) > 0, "'%s': items of type %s", key, gguf_type_name(item));
    put_array_key(p, key, item, n);
    strbuf_append(&p->bytes, items, gguf_type_bytes(item) * (size_t)n);
}

void gguf_put_texts(gguf_pairs *p, const char *key, const gguf_text *items, uint64_t n) {
    put_array_key(p, key, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++) gguf_append_string(&p->bytes, items[i].text, items[i].len);
}

void gguf_put_value(gguf_pairs *p, const char *key, const gguf_value *v) {
    if (v->type == GGUF_ARRAY)
        put_array_key(p, key, v->item, v->n);
    else
        put_key(p, key, v->type);
    strbuf_append(&p->bytes, v->bytes, v->len);
}

void gguf_pairs_free(gguf_pairs *p) {
    strbuf_free(&p->bytes);
    *p = (gguf_pairs){0};
}
