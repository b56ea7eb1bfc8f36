/* Rows of data files: JSONL, a JSON list, CSV, plain or packed; Parquet. */
#ifndef EVAL_ROWS_H
#define EVAL_ROWS_H

#include <jansson.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct eval_rows {
    json_t *row;       /* list of objects, by column */
    int64_t *line;     /* [rows]: where each begins, from 1; of Parquet its number, from 1 */
    const char **file; /* [rows] */
    int32_t cap_line, cap_file;
} eval_rows;

/* Appends the rows of a file; its name tells the form (.jsonl, .ndjson, .json, .csv, .tsv; .gz or
 * .zst after that; .parquet). column_names: of CSV without a header, a list
 * of texts; NULL: the first record names the columns. Columns whose fields are all whole numbers,
 * or all numbers, are numbers, as pandas reads them. Paths live in the arena. ST_FORMAT with file
 * and line. Free with eval_rows_free, also after a failure. */
status eval_rows_read(eval_rows *r, arena *a, const char *path, const json_t *column_names,
                      err *e) ATH_MUST_USE;
void eval_rows_free(eval_rows *r);
/* Whether a file of that name can be read. */
bool eval_rows_knows(const char *path);
int32_t eval_rows_n(const eval_rows *r);

#endif
