/* Reading data files (see rows.h). */
#include "eval/rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "data/parquet/parquet.h"
#include "data/text/csv_record.h"
#include "eval/task.h"

enum { MOST_COLUMNS = 1024 };

typedef enum rows_form {
    ROWS_UNKNOWN,
    ROWS_JSONL,
    ROWS_JSON,
    ROWS_CSV,
    ROWS_TSV,
    ROWS_PARQUET
} rows_form;

static bool ends(const char *s, size_t n, const char *end) {
    size_t m = strlen(end);
    return n > m && memcmp(s + n - m, end, m) == 0;
}

static rows_form form_of(const char *path) {
    static const struct {
        const char *end;
        rows_form form;
    } forms[] = {{".jsonl", ROWS_JSONL}, {".ndjson", ROWS_JSONL}, {".json", ROWS_JSON},
                 {".csv", ROWS_CSV},     {".tsv", ROWS_TSV},      {".parquet", ROWS_PARQUET}};
    size_t n = strlen(path);
    if (ends(path, n, ".gz")) n -= 3;
    if (ends(path, n, ".zst")) n -= 4;
    for (int i = 0; i < ARRAY_LEN(forms); i++)
        if (ends(path, n, forms[i].end)) return forms[i].form;
    return ROWS_UNKNOWN;
}

bool eval_rows_knows(const char *path) {
    return form_of(path) != ROWS_UNKNOWN;
}

int32_t eval_rows_n(const eval_rows *r) {
    return (int32_t)json_array_size(r->row);
}

typedef struct reading {
    eval_rows *r;
    arena *a;
    const char *path;
    const json_t *column_names;
} reading;

static void add_row(reading *x, const json_t *row, int64_t line) {
    eval_rows *r = x->r;
    int32_t n = eval_rows_n(r);
    r->line = arena_grow(x->a, r->line, n, &r->cap_line, sizeof *r->line);
    r->file = arena_grow(x->a, r->file, n, &r->cap_file, sizeof *r->file);
    r->line[n] = line;
    r->file[n] = x->path;
    json_array_append(r->row, (json_t *)row);
}

/* ---- JSON ---- */

static status take_row(void *ctx, const json_t *row, int64_t line, err *e) {
    (void)e;
    add_row(ctx, row, line);
    return ST_OK;
}

/* A list of objects, or an object that has one such list ({"data": [...]}). */
static const json_t *list_of_rows(const json_t *root) {
    const char *key;
    json_t *value;
    if (json_is_array(root)) return root;
    json_object_foreach((json_t *)root, key, value) {
        if (json_is_array(value) && json_is_object(json_array_get(value, 0))) return value;
    }
    return NULL;
}

static status read_json(reading *x, err *e) {
    strbuf text = {0};
    json_error_t je;
    TRY(eval_read_file(x->path, &text, e));
    json_t *root = json_loadb(strbuf_cstr(&text), text.len, JSON_ALLOW_NUL, &je);
    strbuf_free(&text);
    status st = ST_OK;
    const json_t *list = list_of_rows(root);
    if (!root) {
        err_set(e, ST_FORMAT, "the file is not JSON: %s", je.text);
        return err_where(e, "%s:%d", x->path, je.line);
    }
    if (!list) st = err_at(e, ST_FORMAT, x->path, "the file is no list of objects");
    for (size_t i = 0; st == ST_OK && i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        if (!json_is_object(row))
            st = err_at(e, ST_FORMAT, x->path, "element %zu of the list is no object", i);
        else
            add_row(x, row, 0);
    }
    json_decref(root);
    return st;
}

/* ---- CSV ---- */

typedef struct csv_table {
    csv_dialect dialect;
    int n; /* columns */
    int column[MOST_COLUMNS];
    char *name[MOST_COLUMNS];
    field_value value[MOST_COLUMNS];
} csv_table;

static json_t *text_of(const field_value *v) {
    char *room = xmalloc(v->len + 1);
    size_t n = v->len;
    if (v->escaped)
        n = csv_record_unescape(v->s, v->len, room);
    else if (n)
        memcpy(room, v->s, n);
    json_t *s = json_stringn(room, n);
    free(room);
    return s;
}

/* The next record as a row; the first one names the columns. *used 0: it is no record. */
static status read_record(reading *x, csv_table *t, const char *s, size_t n, int64_t line,
                          size_t *used, err *e) {
    int columns;
    const char *why;
    csv_columns all = {.n = MOST_COLUMNS, .field = t->column};
    *used = csv_record_scan(s, n, t->dialect, &all, MOST_COLUMNS, t->value, &columns, &why);
    if (columns == 0) return ST_OK;
    if (why) return err_set(e, ST_FORMAT, "the record %s", why);
    if (columns > MOST_COLUMNS)
        return err_set(e, ST_FORMAT, "the record has more than %d columns", MOST_COLUMNS);
    if (t->n && columns != t->n)
        return err_set(e, ST_FORMAT, "the record has %d columns, the first one has %d", columns,
                       t->n);
    json_t *row = json_object();
    for (int i = 0; i < columns; i++) {
        json_t *text = text_of(&t->value[i]);
        if (!text) {
            json_decref(row);
            return err_set(e, ST_FORMAT, "column %d of the record is not UTF-8", i + 1);
        }
        if (!t->n) t->name[i] = arena_strdup(x->a, json_string_value(text));
        json_object_set_new(row, t->name[i], text);
    }
    if (t->n) add_row(x, row, line);
    t->n = columns;
    json_decref(row);
    return ST_OK;
}

/* Makes numbers of a column if all its fields are numbers; integers, each of which is what it says, if
 * all are. */
static void type_column(const reading *x, const char *name, size_t first) {
    bool whole = true;
    double v;
    int64_t i;
    size_t n = json_array_size(x->r->row);
    for (size_t k = first; k < n; k++) {
        const char *s = json_string_value(json_object_get(json_array_get(x->r->row, k), name));
        size_t span = s ? text_number_span(s) : 0;
        if (span == 0 || s[span] || !text_parse_number(s, &v)) return;
        whole &= strspn(s, "-+0123456789") == span && text_parse_int(s, &i);
    }
    for (size_t k = first; k < n; k++) {
        json_t *row = json_array_get(x->r->row, k);
        const char *s = json_string_value(json_object_get(row, name));
        if (text_parse_number(s, &v))
            json_object_set_new(row, name,
                                whole && text_parse_int(s, &i) ? json_integer((json_int_t)i)
                                                               : json_real(v));
    }
}

static status read_table(reading *x, csv_table *t, const char *s, size_t n, err *e) {
    size_t quote, first = json_array_size(x->r->row);
    int64_t line = 1;
    size_t whole = csv_whole_records(s, n, t->dialect, true, &quote);
    if (quote < n)
        return err_at(e, ST_FORMAT, x->path, "a quote is opened at byte %zu and never closed",
                      quote);
    for (size_t at = 0, used; at < whole; at += used) {
        status st = read_record(x, t, s + at, whole - at, line, &used, e);
        if (st != ST_OK) return err_where(e, "%s:%ld", x->path, (long)line);
        if (used == 0) break;
        line += count_lines(s + at, used);
    }
    for (int i = 0; i < t->n; i++) type_column(x, t->name[i], first);
    return ST_OK;
}

static status read_csv(reading *x, char separator, bool quotes, err *e) {
    strbuf text = {0};
    TRY(eval_read_file(x->path, &text, e));
    csv_table *t = xcalloc(1, sizeof *t);
    t->dialect = (csv_dialect){.separator = separator, .quotes = quotes};
    for (int i = 0; i < MOST_COLUMNS; i++) t->column[i] = i;
    for (size_t i = 0; i < json_array_size(x->column_names) && i < MOST_COLUMNS; i++) {
        const char *name = json_string_value(json_array_get(x->column_names, i));
        t->name[t->n++] = arena_strdup(x->a, name ? name : "");
    }
    size_t bom = text.len >= 3 && memcmp(text.data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    status st = read_table(x, t, strbuf_cstr(&text) + bom, text.len - bom, e);
    free(t);
    strbuf_free(&text);
    return st;
}

/* ---- Parquet ---- */

static status add_parquet_rows(reading *x, parquet_rows *rows, err *e) {
    for (int64_t number = 1;; number++) {
        json_t *row;
        status st = parquet_rows_next_json(rows, &row, e);
        if (st != ST_OK) return err_where(e, "%s:%ld", x->path, (long)number);
        if (!row) return ST_OK;
        add_row(x, row, number);
        json_decref(row);
    }
}

static status read_parquet(reading *x, err *e) {
    parquet *p;
    parquet_rows *rows;
    TRY(parquet_open(&p, x->path, e));
    status st = parquet_rows_open(&rows, p, NULL, 0, e);
    if (st == ST_OK) {
        st = add_parquet_rows(x, rows, e);
        parquet_rows_close(rows);
    }
    parquet_close(p);
    return st;
}

/* ---- the whole ---- */

status eval_rows_read(eval_rows *r, arena *a, const char *path, const json_t *column_names,
                      err *e) {
    reading x = {.r = r, .a = a, .path = arena_strdup(a, path), .column_names = column_names};
    if (!r->row) r->row = json_array();
    switch (form_of(path)) {
        case ROWS_JSONL: return eval_read_lines(x.path, take_row, &x, e);
        case ROWS_JSON: return read_json(&x, e);
        case ROWS_CSV: return read_csv(&x, ',', true, e);
        case ROWS_TSV: return read_csv(&x, '\t', false, e);
        case ROWS_PARQUET: return read_parquet(&x, e);
        case ROWS_UNKNOWN: break;
    }
    err_at(e, ST_USAGE, path, "data in the form of %s are not supported", path_base(path));
    return err_hint(
        e, "give .jsonl, .json, .csv or .tsv, plain or packed with gzip or zstd, or .parquet");
}

void eval_rows_free(eval_rows *r) {
    json_decref(r->row);
    *r = (eval_rows){0};
}
