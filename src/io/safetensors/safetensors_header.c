/* Element formats, and headers of safetensors files that are written: a function of names, shapes
 * and dtypes alone. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors/safetensors_int.h"

#define DATA_ALIGN 64

static const st_format formats[] = {
    {"F32", 32, DT_F32},
    {"BF16", 16, DT_BF16},
    {"F16", 16, DT_F16},
    {"F64", 64, DT_F64},
    {"I32", 32, DT_I32},
    {"I64", 64, DT_I64},
    {"U8", 8, DT_U8},
    {"BOOL", 8, DT_COUNT},
    {"I8", 8, DT_COUNT},
    {"I16", 16, DT_COUNT},
    {"U16", 16, DT_COUNT},
    {"U32", 32, DT_COUNT},
    {"U64", 64, DT_COUNT},
    {"C64", 64, DT_COUNT},
    {"F8_E5M2", 8, DT_COUNT},
    {"F8_E4M3", 8, DT_COUNT},
    {"F8_E8M0", 8, DT_COUNT},
    {"F8_E5M2FNUZ", 8, DT_COUNT},
    {"F8_E4M3FNUZ", 8, DT_COUNT},
    {"F6_E2M3", 6, DT_COUNT},
    {"F6_E3M2", 6, DT_COUNT},
    {"F4", 4, DT_COUNT},
};

const st_format *st_format_by_name(const char *name) {
    for (int i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

const st_format *st_format_by_dtype(dtype dt) {
    CHECK(dt < DT_COUNT, "no such dtype: %d", (int)dt);
    for (int i = 0; i < ARRAY_LEN(formats); i++)
        if (formats[i].dt == dt) return &formats[i];
    CHECK(false, "dtype %d has no safetensors name", (int)dt);
    return NULL;
}

int64_t st_tensor_elements(const st_tensor *t) {
    CHECK(t->rank >= 0 && t->rank <= ST_MAX_RANK, "tensor '%s' has rank %d", t->name, t->rank);
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        CHECK(t->dims[i] >= 0 && !__builtin_mul_overflow(n, t->dims[i], &n),
              "tensor '%s': dimension %d is %lld", t->name, i, (long long)t->dims[i]);
    return n;
}

uint64_t st_tensor_bytes(const st_tensor *t) {
    return (uint64_t)st_tensor_elements(t) * dtype_bytes(t->dt);
}

static json_t *describe(const st_tensor *t, uint64_t begin) {
    json_t *shape = json_array();
    for (int i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer(t->dims[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", st_format_by_dtype(t->dt)->name, "shape",
                     shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)(begin + st_tensor_bytes(t)));
}

uint64_t st_build_header(strbuf *b, const st_tensor *tensors, int64_t n) {
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *name = tensors[i].name;
        CHECK(!json_object_get(root, name), "tensor '%s' is declared twice", name);
        int failed = json_object_set_new(root, name, describe(&tensors[i], at));
        CHECK(failed == 0, "tensor name '%s' is not UTF-8", name);
        at += st_tensor_bytes(&tensors[i]);
    }
    char *text = json_dumps(root, JSON_COMPACT);
    CHECK(text, "the safetensors header of %lld tensors", (long long)n);
    size_t len = strlen(text), padded = (8 + len + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN - 8;
    CHECK(padded <= ST_MAX_HEADER_BYTES, "a safetensors header of %zu bytes", padded);
    for (int i = 0; i < 8; i++) strbuf_putc(b, (char)(padded >> (8 * i)));
    strbuf_append(b, text, len);
    for (; len < padded; len++) strbuf_putc(b, ' ');
    free(text);
    json_decref(root);
    return at;
}
