/* What readers and writers of safetensors share; private to them. */
#ifndef IO_SAFETENSORS_INT_H
#define IO_SAFETENSORS_INT_H

#include "base/strbuf.h"
#include "io/safetensors/safetensors.h"

/* An element format that a file can name. */
typedef struct st_format {
    const char *name;
    int bits; /* F4 and F6 elements are smaller than a byte */
    dtype dt; /* DT_COUNT: carried, never computed with */
} st_format;

const st_format *st_format_by_name(const char *name); /* NULL when unknown */
const st_format *st_format_by_dtype(dtype dt);

int64_t st_tensor_elements(const st_tensor *t);
/* Appends length prefix, JSON and padding. Returns the bytes of data that must follow. */
uint64_t st_build_header(strbuf *b, const st_tensor *tensors, int64_t n);

#endif
