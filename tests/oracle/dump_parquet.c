/* Writes the rows of a Parquet file as JSON, for compare_parquet.py:
 *   dump_parquet FILE [COLUMN...]
 * What cannot be read ends with the error on one line of its own, and status 3. */
#include <stdio.h>

#include "data/parquet/parquet.h"

static status dump(parquet *p, const char *const *columns, int n, err *e) {
    parquet_rows *r;
    strbuf line = {0};
    TRY(parquet_rows_open(&r, p, n ? columns : NULL, n, e));
    status st = ST_OK;
    for (bool more = true; st == ST_OK && more;) {
        strbuf_clear(&line);
        st = parquet_rows_next(r, &line, &more, e);
        if (st == ST_OK && more) printf("%s\n", strbuf_cstr(&line));
    }
    strbuf_free(&line);
    parquet_rows_close(r);
    return st;
}

int main(int argc, char **argv) {
    parquet *p;
    err e = {0};
    if (argc < 2) return ST_USAGE;
    status st = parquet_open(&p, argv[1], &e);
    if (st == ST_OK) {
        st = dump(p, (const char *const *)argv + 2, argc - 2, &e);
        parquet_close(p);
    }
    if (st != ST_OK) printf("error: %s (%s)\n", e.message, e.hint);
    return st;
}
