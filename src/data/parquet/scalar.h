/* One value of Parquet as JSON (see "rows" in parquet.h), and text as a JSON string. */
#ifndef DATA_PARQUET_SCALAR_H
#define DATA_PARQUET_SCALAR_H

#include "data/parquet/parquet.h"

/* A value of a leaf, len bytes as it lies in the file. False: it is none of its type. */
bool scalar_put(strbuf *out, const parquet_node *n, const uint8_t *value, size_t len);
/* In quotes, with what JSON needs escaped; other bytes stay as they are. */
void scalar_put_text(strbuf *out, const char *s, size_t n);

#endif
