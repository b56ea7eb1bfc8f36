/* The schema (see file.h): a list of elements, depth first, each of which says how many children it
 * has. First each element is read by itself, then place_children finds the tree and the levels. */
#include <string.h>

#include "base/utf8.h"
#include "data/parquet/file.h"

enum { MAX_VALUE_BYTES = 1 << 20, MAX_SCALE = 38 };

/* ---- what a value means ---- */

/* The older word for it, an enum. */
static void set_converted(parquet_node *n, int64_t converted) {
    switch (converted) {
        case 1: /* MAP */
        case 2: /* MAP_KEY_VALUE, which some write for it */
        case 3: n->meaning = PARQUET_LIST; break;
        case 5: n->meaning = PARQUET_DECIMAL; break;
        case 6: n->meaning = PARQUET_DATE; break;
        case 7:
        case 8:
            n->meaning = PARQUET_TIME;
            n->scale = converted == 7 ? 3 : 6;
            break;
        case 9:
        case 10:
            n->meaning = PARQUET_TIMESTAMP;
            n->scale = converted == 9 ? 3 : 6;
            n->utc = true;
            break;
        case 11:
        case 12:
        case 13:
        case 14: n->meaning = PARQUET_UNSIGNED; break;
        default: break;
    }
}

/* A union of empty structs, by whose number the unit is meant: MILLIS, MICROS, NANOS. */
static void read_unit(parquet_node *n, thrift *t, const thrift_field *field) {
    if (!thrift_struct(t, field)) return;
    for (thrift_field f = {0}; thrift_next(t, &f); thrift_skip(t, &f))
        if (f.id >= 1 && f.id <= 3) n->scale = 3 * f.id;
}

static void read_time(parquet_node *n, thrift *t) {
    for (thrift_field f = {0}; thrift_next(t, &f);)
        if (f.id == 1)
            n->utc = thrift_bool(t, &f);
        else if (f.id == 2)
            read_unit(n, t, &f);
        else
            thrift_skip(t, &f);
}

static void read_decimal(parquet_node *n, thrift *t) {
    for (thrift_field f = {0}; thrift_next(t, &f);)
        if (f.id == 1)
            n->scale = (int)thrift_int(t, &f, 0, MAX_SCALE);
        else
            thrift_skip(t, &f);
}

static void read_integer(parquet_node *n, thrift *t) {
    for (thrift_field f = {0}; thrift_next(t, &f);)
        if (f.id == 2)
            n->meaning = thrift_bool(t, &f) ? PARQUET_PLAIN : PARQUET_UNSIGNED;
        else
            thrift_skip(t, &f);
}

/* The newer word, a union of structs. It overrules the older one. */
static void read_logical(parquet_node *n, thrift *t, const thrift_field *field) {
    static const parquet_meaning MEANINGS[] = {
        [2] = PARQUET_LIST, [3] = PARQUET_LIST,      [5] = PARQUET_DECIMAL, [6] = PARQUET_DATE,
        [7] = PARQUET_TIME, [8] = PARQUET_TIMESTAMP, [14] = PARQUET_UUID,   [15] = PARQUET_FLOAT16};
    if (!thrift_struct(t, field)) return;
    for (thrift_field f = {0}; thrift_next(t, &f);) {
        if (f.id > 0 && f.id < ARRAY_LEN(MEANINGS)) n->meaning = MEANINGS[f.id];
        bool known = f.id == 5 || f.id == 7 || f.id == 8 || f.id == 10;
        if (!known)
            thrift_skip(t, &f);
        else if (!thrift_struct(t, &f))
            return;
        else if (f.id == 5)
            read_decimal(n, t);
        else if (f.id == 10)
            read_integer(n, t);
        else
            read_time(n, t);
    }
}

/* ---- one element ---- */

static const char *read_name(thrift *t, const thrift_field *f, arena *a) {
    size_t len;
    const char *name = thrift_binary(t, f, &len);
    if (utf8_valid_prefix(name, len) < len || memchr(name, 0, len))
        thrift_fail(t, "a column has a name that is not UTF-8");
    return t->why ? "" : arena_strndup(a, name, len);
}

/* `end` holds the number of children meanwhile. */
static parquet_node read_element(parquet *p, thrift *t) {
    parquet_node n = {.name = "", .type = PARQUET_GROUP};
    int64_t converted = -1, scale = 0;
    bool logical = false;
    for (thrift_field f = {0}; thrift_next(t, &f);) switch (f.id) {
            case 1: n.type = (parquet_type)thrift_int(t, &f, 0, PARQUET_FIXED_BYTES); break;
            case 2: n.bytes = (int)thrift_int(t, &f, 0, MAX_VALUE_BYTES); break;
            case 3: n.repetition = (parquet_repetition)thrift_int(t, &f, 0, 2); break;
            case 4: n.name = read_name(t, &f, p->mem); break;
            case 5: n.end = (int)thrift_int(t, &f, 0, INT32_MAX); break;
            case 6: converted = thrift_int(t, &f, 0, INT32_MAX); break;
            case 7: scale = thrift_int(t, &f, 0, MAX_SCALE); break;
            case 10:
                read_logical(&n, t, &f);
                logical = true;
                break;
            default: thrift_skip(t, &f);
        }
    if (!logical) set_converted(&n, converted);
    if (!logical && n.meaning == PARQUET_DECIMAL) n.scale = (int)scale;
    return n;
}

static bool is_one_of(parquet_type type, unsigned set) {
    return (set >> type & 1) != 0;
}

/* Bytes of a value, and whether the meaning is one that the type can have: a wrong one is dropped,
 * as other readers do. */
static void check_leaf(parquet_node *n, thrift *t) {
    static const int BYTES[] = {1, 4, 8, 12, 4, 8, 0};
    static const unsigned INTS = 1u << PARQUET_INT32 | 1u << PARQUET_INT64,
                          FIXED = 1u << PARQUET_FIXED_BYTES, ANY_BYTES = 1u << PARQUET_BYTES;
    static const unsigned TYPES[] = {[PARQUET_PLAIN] = ~0u,
                                     [PARQUET_UNSIGNED] = INTS,
                                     [PARQUET_DECIMAL] = INTS | FIXED | ANY_BYTES,
                                     [PARQUET_DATE] = 1u << PARQUET_INT32,
                                     [PARQUET_TIME] = INTS,
                                     [PARQUET_TIMESTAMP] = 1u << PARQUET_INT64,
                                     [PARQUET_FLOAT16] = FIXED,
                                     [PARQUET_UUID] = FIXED,
                                     [PARQUET_LIST] = 0};
    if (n->end > 0) thrift_fail(t, "a column has columns below it");
    if (n->type != PARQUET_FIXED_BYTES)
        n->bytes = BYTES[n->type];
    else if (n->bytes == 0)
        thrift_fail(t, "a column has values of no length");
    bool odd = (n->meaning == PARQUET_FLOAT16 && n->bytes != 2) ||
               (n->meaning == PARQUET_UUID && n->bytes != 16);
    if (odd || !is_one_of(n->type, TYPES[n->meaning])) n->meaning = PARQUET_PLAIN;
}

/* ---- the tree ---- */

/* The group between a list and its elements has no name in JSON, unless it is the element itself,
 * as in files of older writers (LogicalTypes.md, "Backward-compatibility rules"). A map's pairs are
 * such elements. */
static bool is_wrapper(const parquet *p, int list, bool map) {
    const parquet_node *outer = &p->node[list], *inner = outer + 1;
    if (map || inner->type != PARQUET_GROUP || outer[2].end != inner->end) return false;
    size_t n = strlen(outer->name);
    bool tuple =
        strncmp(inner->name, outer->name, n) == 0 && strcmp(inner->name + n, "_tuple") == 0;
    return strcmp(inner->name, "array") != 0 && !tuple && outer[2].repetition != PARQUET_REPEATED;
}

static void find_list(parquet *p, int i) {
    parquet_node *n = &p->node[i];
    bool one_child = i + 1 < n->end && n[1].end == n->end;
    n->transparent =
        i > 0 && n->meaning == PARQUET_LIST && one_child && n[1].repetition == PARQUET_REPEATED;
    if (!n->transparent) return;
    bool map = n[1].type == PARQUET_GROUP && strcmp(n[1].name, "key_value") == 0;
    n[1].transparent |= is_wrapper(p, i, map); /* or a list itself */
}

static void add_leaf(parquet *p, thrift *t, int i) {
    check_leaf(&p->node[i], t);
    p->leaf[p->n_leaves++] = i;
    p->node[i].end = i + 1;
}

/* Sets levels, `end` and columns of node i and all below it. Returns its `end`. */
static int place(parquet *p, thrift *t, int i, int max_def, int max_rep, int depth) {
    parquet_node *n = &p->node[i];
    int children = n->end, next = i + 1;
    if (depth == PARQUET_MAX_DEPTH) thrift_fail(t, "columns are nested too deep");
    n->max_def = max_def + (i > 0 && n->repetition != PARQUET_REQUIRED);
    n->max_rep = max_rep + (i > 0 && n->repetition == PARQUET_REPEATED);
    n->first_leaf = p->n_leaves;
    if (n->type != PARQUET_GROUP) add_leaf(p, t, i);
    if (n->type == PARQUET_GROUP && children == 0 && i > 0)
        thrift_fail(t, "a group holds no columns");
    for (int c = 0; n->type == PARQUET_GROUP && c < children && !t->why; c++) {
        if (next >= p->n_nodes) thrift_fail(t, "the schema ends too early");
        if (!t->why) next = place(p, t, next, n->max_def, n->max_rep, depth + 1);
    }
    n->end = next;
    n->end_leaf = p->n_leaves;
    if (n->type == PARQUET_GROUP && !t->why) find_list(p, i);
    return next;
}

void schema_read(parquet *p, thrift *t, const thrift_field *f) {
    int cap = 0;
    int64_t n = thrift_structs(t, f);
    p->n_nodes = p->n_leaves = 0;
    for (int64_t i = 0; i < n && !t->why; i++) {
        p->node = arena_grow(p->mem, p->node, p->n_nodes, &cap, sizeof *p->node);
        p->node[p->n_nodes++] = read_element(p, t);
    }
    if (p->n_nodes == 0 || p->node[0].type != PARQUET_GROUP) thrift_fail(t, "it has no schema");
    if (t->why) return;
    p->leaf = ARENA_ARRAY(p->mem, int, p->n_nodes);
    int end = place(p, t, 0, 0, 0, 0);
    if (end != p->n_nodes) thrift_fail(t, "the schema holds columns that belong nowhere");
}

const char *schema_path(const parquet *p, int node, arena *a) {
    const char *path = "";
    for (int i = 1; i <= node;) {
        bool above = node < p->node[i].end;
        if (above) path = *path ? arena_printf(a, "%s.%s", path, p->node[i].name) : p->node[i].name;
        i = above ? i + 1 : p->node[i].end;
    }
    return path;
}

const parquet_node *parquet_nodes(const parquet *p, int *n) {
    *n = p->n_nodes;
    return p->node;
}
