/* Columns to rows (see parquet.h). The schema is walked once for each row, and each column gives
 * its next entry where its leaf stands. An entry's definition level says how deep the value is
 * there: below a node's own level the node is null or, where it is repeated, has no elements. Its
 * repetition level says which list goes on with it; 0 begins a row. Columns of one node have to
 * agree on both, which is checked, as they come from outside. Read put_node. */
#include <stdlib.h>
#include <string.h>

#include "data/parquet/column.h"
#include "data/parquet/scalar.h"

enum { MAX_COLUMNS = 1 << 16 };
static const size_t ROW_MAX_BYTES = (size_t)1 << 30;

/* What of a node is read: its columns among those that are open, by number. first == end:
 * nothing. */
typedef struct part {
    int first, end;
} part;

struct parquet_rows {
    arena *mem;
    parquet *p;
    part *part; /* of each node */
    int *leaf;  /* of each open column */
    column *column;
    int n_columns;
    int group; /* row groups before it are done; columns are open in it when rows were read of it */
    int64_t row; /* of the group */
    int64_t rows_done;
    bool is_open;
    size_t begin, counted; /* in the text: of this row; up to where its bytes are counted */
};

/* ---- which columns ---- */

/* The child of that name; lists in between are passed. 0: none. */
static int find_child(const parquet *p, int i, const char *name, size_t len) {
    while (p->node[i].transparent) i++;
    for (int c = i + 1; c < p->node[i].end; c = p->node[c].end)
        if (strlen(p->node[c].name) == len && memcmp(p->node[c].name, name, len) == 0) return c;
    return 0;
}

static int find_node(const parquet *p, const char *path) {
    int i = 0;
    for (;;) {
        const char *dot = strchrnul(path, '.');
        i = find_child(p, i, path, (size_t)(dot - path));
        if (i == 0 || !*dot) return i;
        path = dot + 1;
    }
}

bool parquet_has_column(const parquet *p, const char *name) {
    return find_node(p, name) > 0;
}

static status no_column(const parquet *p, const char *name, err *e) {
    strbuf names = {0};
    for (int i = 1; i < p->n_nodes && names.len < 200; i = p->node[i].end)
        strbuf_printf(&names, "%s%s", names.len ? ", " : "", p->node[i].name);
    err_at(e, ST_FORMAT, p->path, "%s has no column %s", p->path, name);
    status st = err_hint(e, "name one that it has: %s", strbuf_cstr(&names));
    strbuf_free(&names);
    return st;
}

static status mark_columns(const parquet *p, const char *const *columns, int n, bool *wanted,
                           err *e) {
    for (int i = 0; i < p->n_leaves && !columns; i++) wanted[i] = true;
    for (int i = 0; i < n && columns; i++) {
        int node = find_node(p, columns[i]);
        if (node == 0) return no_column(p, columns[i], e);
        for (int l = p->node[node].first_leaf; l < p->node[node].end_leaf; l++) wanted[l] = true;
    }
    return ST_OK;
}

static status choose_columns(parquet_rows *r, const char *const *columns, int n, err *e) {
    parquet *p = r->p;
    bool *wanted = ARENA_ARRAY(r->mem, bool, p->n_leaves);
    int *before = ARENA_ARRAY(r->mem, int, p->n_leaves + 1); /* wanted columns before each leaf */
    TRY(mark_columns(p, columns, n, wanted, e));
    r->leaf = ARENA_ARRAY(r->mem, int, p->n_leaves);
    for (int l = 0; l < p->n_leaves; l++) {
        before[l] = r->n_columns;
        if (wanted[l]) r->leaf[r->n_columns++] = l;
    }
    before[p->n_leaves] = r->n_columns;
    r->part = ARENA_ARRAY(r->mem, part, p->n_nodes);
    for (int i = 0; i < p->n_nodes; i++)
        r->part[i] = (part){before[p->node[i].first_leaf], before[p->node[i].end_leaf]};
    if (r->n_columns > MAX_COLUMNS) {
        err_at(e, ST_FORMAT, p->path, "%s has %d columns; at most %d are read at once", p->path,
               r->n_columns, MAX_COLUMNS);
        return err_hint(e, "name those that are needed");
    }
    r->column = ARENA_ARRAY(r->mem, column, r->n_columns);
    return ST_OK;
}

status parquet_rows_open(parquet_rows **out, parquet *p, const char *const *columns, int n,
                         err *e) {
    arena *a = arena_new("parquet rows");
    parquet_rows *r = ARENA_NEW(a, parquet_rows);
    *r = (parquet_rows){.mem = a, .p = p};
    p->made = 0;
    *out = NULL;
    status st = choose_columns(r, columns, n, e);
    if (st == ST_OK)
        *out = r;
    else
        parquet_rows_close(r);
    return st;
}

void parquet_rows_close(parquet_rows *r) {
    if (!r) return;
    for (int i = 0; i < r->n_columns && r->column; i++) column_close(&r->column[i]);
    arena_free(r->mem);
}

/* ---- entries ---- */

static status disagree(const parquet_rows *r, err *e) {
    return parquet_broken(r->p, e, "row %lld: its columns do not fit together",
                          (long long)r->rows_done + 1);
}

/* All columns of a node go to their next entry. What the row has become is counted. */
static status step(parquet_rows *r, part c, const strbuf *out, err *e) {
    TRY(parquet_count_made(r->p, out->len - r->counted, e));
    r->counted = out->len;
    for (int i = c.first; i < c.end; i++) TRY(column_next(&r->column[i], e));
    return ST_OK;
}

/* Whether the node is there (not null, not an empty list) in the current entries of its columns. */
static status is_there(const parquet_rows *r, part c, int max_def, bool *there, err *e) {
    *there = r->column[c.first].def >= (uint32_t)max_def;
    for (int i = c.first; i < c.end; i++) {
        const column *at = &r->column[i];
        if (at->ended || (at->def >= (uint32_t)max_def) != *there) return disagree(r, e);
    }
    return ST_OK;
}

/* Whether the list of that level goes on. */
static status goes_on(const parquet_rows *r, part c, int max_rep, bool *on, err *e) {
    const column *first = &r->column[c.first];
    *on = !first->ended && first->rep == (uint32_t)max_rep;
    for (int i = c.first; i < c.end; i++) {
        const column *at = &r->column[i];
        bool same = !at->ended && at->rep == (uint32_t)max_rep;
        if (same != *on || (!at->ended && at->rep > (uint32_t)max_rep)) return disagree(r, e);
    }
    return ST_OK;
}

/* ---- a row ---- */

static status put_node(parquet_rows *r, int i, strbuf *out, err *e);

static status put_leaf(parquet_rows *r, int i, strbuf *out, err *e) {
    const column *c = &r->column[r->part[i].first];
    if (c->ended || !c->value) return disagree(r, e);
    if (c->len > ROW_MAX_BYTES || out->len - r->begin + c->len > ROW_MAX_BYTES) {
        err_at(e, ST_FORMAT, r->p->path, "row %lld of %s has more than %zu MiB",
               (long long)r->rows_done + 1, r->p->path, ROW_MAX_BYTES >> 20);
        return err_hint(e, "read fewer columns, or divide it");
    }
    if (!scalar_put(out, c->node, c->value, c->len)) return disagree(r, e);
    return step(r, r->part[i], out, e);
}

static status put_struct(parquet_rows *r, int i, strbuf *out, err *e) {
    const parquet_node *node = r->p->node;
    char before = '{';
    for (int c = i + 1; c < node[i].end; c = node[c].end) {
        if (r->part[c].first == r->part[c].end) continue;
        strbuf_putc(out, before);
        before = ',';
        scalar_put_text(out, node[c].name, strlen(node[c].name));
        strbuf_putc(out, ':');
        TRY(put_node(r, c, out, e));
    }
    if (before == '{') strbuf_putc(out, '{'); /* a file without columns */
    strbuf_putc(out, '}');
    return ST_OK;
}

static status put_content(parquet_rows *r, int i, strbuf *out, err *e) {
    const parquet_node *n = &r->p->node[i];
    if (n->type != PARQUET_GROUP) return put_leaf(r, i, out, e);
    return n->transparent ? put_node(r, i + 1, out, e) : put_struct(r, i, out, e);
}

static status put_list(parquet_rows *r, int i, strbuf *out, err *e) {
    bool on = true;
    for (char before = '['; on; before = ',') {
        strbuf_putc(out, before);
        TRY(put_content(r, i, out, e));
        TRY(goes_on(r, r->part[i], r->p->node[i].max_rep, &on, e));
    }
    strbuf_putc(out, ']');
    return ST_OK;
}

static status put_node(parquet_rows *r, int i, strbuf *out, err *e) {
    const parquet_node *n = &r->p->node[i];
    bool there, list = n->repetition == PARQUET_REPEATED;
    TRY(is_there(r, r->part[i], n->max_def, &there, e));
    if (there) return list ? put_list(r, i, out, e) : put_content(r, i, out, e);
    if (n->repetition == PARQUET_REQUIRED) return disagree(r, e);
    strbuf_puts(out, list ? "[]" : "null");
    return step(r, r->part[i], out, e);
}

static status put_row(parquet_rows *r, strbuf *out, err *e) {
    for (int i = 0; i < r->n_columns; i++)
        if (r->column[i].ended || r->column[i].rep != 0) return disagree(r, e);
    r->begin = r->counted = out->len;
    TRY(put_struct(r, 0, out, e));
    r->row++;
    r->rows_done++;
    return parquet_count_made(r->p, out->len - r->counted, e);
}

/* ---- row groups ---- */

static status open_group(parquet_rows *r, err *e) {
    r->is_open = true;
    for (int i = 0; i < r->n_columns; i++) {
        TRY(column_open(&r->column[i], r->p, r->group, r->leaf[i], e));
        TRY(column_next(&r->column[i], e));
    }
    return ST_OK;
}

/* Leaves the current row group, which must have no more entries if its rows were all read. */
static status next_group(parquet_rows *r, err *e) {
    for (int i = 0; i < r->n_columns && r->is_open; i++)
        if (!r->column[i].ended) return disagree(r, e);
    r->group++;
    r->row = 0;
    r->is_open = false;
    return ST_OK;
}

status parquet_rows_next(parquet_rows *r, strbuf *out, bool *more, err *e) {
    const parquet *p = r->p;
    *more = false;
    while (r->group < p->n_groups && r->row == p->group[r->group].rows) TRY(next_group(r, e));
    if (r->group == p->n_groups) return ST_OK;
    if (!r->is_open) TRY(open_group(r, e));
    *more = true;
    return put_row(r, out, e);
}

status parquet_rows_next_json(parquet_rows *r, json_t **out, err *e) {
    json_error_t why;
    strbuf line = {0};
    bool more;
    *out = NULL;
    status st = parquet_rows_next(r, &line, &more, e);
    if (st == ST_OK && more) {
        *out = json_loadb(line.data, line.len, JSON_ALLOW_NUL, &why);
        if (!*out)
            st = err_at(e, ST_FORMAT, r->p->path, "row %lld of %s cannot be read: %s",
                        (long long)r->rows_done, r->p->path, why.text);
    }
    strbuf_free(&line);
    return st;
}

status parquet_rows_skip(parquet_rows *r, int64_t rows, err *e) {
    const parquet *p = r->p;
    strbuf line = {0};
    bool more = true;
    while (!r->is_open && r->group < p->n_groups && r->row == 0 &&
           rows >= p->group[r->group].rows) {
        rows -= p->group[r->group].rows;
        r->rows_done += p->group[r->group++].rows;
    }
    status st = ST_OK;
    for (; st == ST_OK && more && rows > 0; rows--) {
        strbuf_clear(&line);
        st = parquet_rows_next(r, &line, &more, e);
    }
    strbuf_free(&line);
    if (st != ST_OK || more) return st;
    err_at(e, ST_FORMAT, p->path, "%s has become shorter since it was read", p->path);
    return err_hint(e, "begin anew");
}

uint64_t parquet_rows_bytes_done(const parquet_rows *r) {
    double share = r->p->rows ? (double)r->rows_done / (double)r->p->rows : 1;
    return (uint64_t)(share * (double)r->p->bytes);
}
