/* CSV records (RFC 4180) and TSV records, one after the other.
 *
 * CSV: fields are separated by commas, records by LF or CRLF. A field that begins with a quote goes
 * to the next quote that is not doubled, across line ends. A quote elsewhere in a field is itself.
 * TSV: tabs separate, a line is a record, nothing is quoted or escaped (IANA's
 * text/tab-separated-values). In both, empty lines are no records. */
#ifndef DATA_CSV_RECORD_H
#define DATA_CSV_RECORD_H

#include "data/text/fields.h"

typedef struct csv_dialect {
    char separator;
    bool quotes;
} csv_dialect;

/* Which field lies in which column: the header of a file. */
typedef struct csv_columns {
    int n;
    int *field; /* of each column; -1: not wanted */
} csv_columns;

/* How many of the n bytes are whole records; s begins with one. `final`: no more bytes follow, so
 * the last record needs no line end. *open_quote: offset of a quote that is not closed; n: none. */
size_t csv_whole_records(const char *s, size_t n, csv_dialect d, bool final, size_t *open_quote);
/* Takes the first record apart (n > 0) and fills value[0..n_fields). Returns the bytes it takes
 * with its line end; *columns how many it has (0: an empty line); *why is NULL, or what is wrong.
 */
size_t csv_record_scan(const char *s, size_t n, csv_dialect d, const csv_columns *c, int n_fields,
                       field_value *value, int *columns, const char **why);
/* The contents of a quoted field with doubled quotes; `out` has room for n bytes. */
size_t csv_record_unescape(const char *s, size_t n, char *out);
/* Line ends among n bytes: a quoted field may hold some. */
uint32_t count_lines(const char *s, size_t n);
/* The header at s (of n bytes, whole). ST_FORMAT: a wanted column is missing, or it is broken. */
status csv_columns_parse(csv_columns *c, arena *a, const char *path, const char *s, size_t n,
                         csv_dialect d, const record_fields *f, err *e) ATH_MUST_USE;

#endif
