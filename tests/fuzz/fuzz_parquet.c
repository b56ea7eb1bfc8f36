/* libFuzzer target: Parquet files from outside bytes. What is accepted gives rows that are JSON,
 * but where text is not UTF-8; and choosing a column, or passing over rows, changes nothing about
 * them. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/utf8.h"
#include "data/parquet/parquet.h"
#include "data/text/json_record.h"

enum { MAX_ROWS = 2000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const strbuf *row) {
    static const record_fields NONE = {.n = 0};
    field_value value[1];
    json_problem why;
    bool object;
    bool good = json_record_scan(row->data, row->len, &NONE, value, &object, &why);
    CHECK(good ? object : utf8_valid_prefix(row->data, row->len) < row->len,
          "a row that is no JSON");
}

static void read_rows(parquet *p, const char *const *columns, int n, int64_t skip) {
    parquet_rows *r;
    strbuf row = {0};
    err e = {0};
    if (parquet_rows_open(&r, p, columns, n, &e) != ST_OK) return;
    status st = parquet_rows_skip(r, skip, &e);
    bool more = st == ST_OK;
    for (int i = 0; i < MAX_ROWS && more; i++) {
        strbuf_clear(&row);
        st = parquet_rows_next(r, &row, &more, &e);
        more &= st == ST_OK;
        if (more) check_row(&row);
    }
    CHECK(st == ST_OK || (e.code == st && e.message[0]), "an error without words");
    strbuf_free(&row);
    parquet_rows_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[32];
    parquet *p;
    err e = {0};
    int n, fd = memfd_create("parquet", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size, "no memory for a file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (parquet_open(&p, path, &e) == ST_OK) {
        const parquet_node *node = parquet_nodes(p, &n);
        read_rows(p, NULL, 0, 0);
        if (n > 1) read_rows(p, &node[n - 1].name, 1, 1);
        parquet_close(p);
    }
    close(fd);
    return 0;
}
