/* The element formats a safetensors file can name. Private to the reader and the writer. */
#ifndef IO_SAFETENSORS_FORMAT_H
#define IO_SAFETENSORS_FORMAT_H

#include "base/dtype.h"

typedef struct st_format {
    const char *name;
    int bits; /* F4 and F6 elements are smaller than a byte */
    dtype dt; /* DT_COUNT: carried, never computed with */
} st_format;

const st_format *st_format_by_name(const char *name); /* NULL when unknown */
const st_format *st_format_by_dtype(dtype dt);

#endif
