/* Pattern to tree. Recursion goes as deep as groups and classes are nested, which is limited. */
#include "tok/pretok/regex_parse.h"

#include <stdarg.h>
#include <stdio.h>

status rx_wrong(rx_parser *x, const char *fmt, ...) {
    char what[160];
    int at = 0;
    for (const char *c = x->begin; c < x->p; c += utf8_size(*c)) at++;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return err_set(x->e, ST_FORMAT, "the pattern is not usable at character %d: %s", at, what);
}

/* ---- nodes ---- */

static rx_node *new_node(rx_parser *x, rx_kind kind) {
    rx_node *n = ARENA_NEW(x->t->scratch, rx_node);
    n->kind = kind;
    return n;
}

static void add_child(rx_parser *x, rx_node *n, rx_node *child) {
    n->child = arena_grow(x->t->scratch, n->child, n->n_child, &n->cap_child, sizeof(*n->child));
    n->child[n->n_child++] = child;
}

static rx_node *new_parent(rx_parser *x, rx_kind kind, rx_node *child) {
    rx_node *n = new_node(x, kind);
    add_child(x, n, child);
    return n;
}

static bool same_set(const rx_set *a, const rx_set *b) {
    return memcmp(a->low, b->low, sizeof(a->low)) == 0 && a->mask == b->mask && a->n == b->n &&
           (a->n == 0 || memcmp(a->edge, b->edge, sizeof(*a->edge) * (size_t)a->n) == 0);
}

static status set_node(rx_parser *x, rx_ranges *r, rx_node **out) {
    rx_tree *t = x->t;
    rx_set made;
    rx_sort(r);
    t->n_edges += r->n + 64;
    if (t->n_edges > RX_MAX_EDGES) return rx_wrong(x, "there are too many classes");
    rx_set_make(&made, r, t->mem);
    *out = new_node(x, RX_SET);
    for (int32_t i = 0; i < t->n_set; i++) {
        (*out)->set = i;
        if (same_set(&t->set[i], &made)) return ST_OK;
    }
    t->set = arena_grow(t->mem, t->set, t->n_set, &t->cap_set, sizeof(*t->set));
    (*out)->set = t->n_set;
    t->set[t->n_set++] = made;
    return ST_OK;
}

static status char_node(rx_parser *x, uint32_t cp, rx_node **out) {
    rx_ranges r = rx_new_ranges(x);
    rx_add(&r, cp, cp);
    if (x->fold) rx_fold(&r, &x->t->cases);
    return set_node(x, &r, out);
}

static status assert_node(rx_parser *x, rx_where where, rx_node **out) {
    *out = new_node(x, RX_ASSERT);
    (*out)->where = where;
    return ST_OK;
}

/* ---- atoms ---- */

static status parse_alternatives(rx_parser *x, rx_node **out);

/* \R: a line break, CR LF as one. */
static status line_break(rx_parser *x, rx_node **out) {
    rx_ranges any = rx_new_ranges(x);
    rx_node *cr, *lf, *one;
    rx_add(&any, '\n', '\r');
    rx_add(&any, 0x85, 0x85);
    rx_add(&any, 0x2028, 0x2029);
    TRY(char_node(x, '\r', &cr));
    TRY(char_node(x, '\n', &lf));
    TRY(set_node(x, &any, &one));
    rx_node *both = new_parent(x, RX_CAT, cr), *either = new_parent(x, RX_ALT, both);
    add_child(x, both, lf);
    add_child(x, either, one);
    *out = new_parent(x, RX_ATOMIC, either);
    return ST_OK;
}

/* Everything, or all but the newline. */
static status dot(rx_parser *x, bool all, rx_node **out) {
    rx_ranges r = rx_new_ranges(x);
    if (!all) rx_add(&r, '\n', '\n');
    rx_negate(&r);
    return set_node(x, &r, out);
}

static status escape(rx_parser *x, rx_node **out) {
    rx_ranges r = rx_new_ranges(x);
    bool found;
    uint32_t cp;
    TRY(rx_class_escape(x, &r, false, &found));
    if (found) return set_node(x, &r, out);
    x->p++;
    char c = x->p < x->end ? *x->p++ : '\0';
    switch (c) {
        case 'A': return assert_node(x, RX_TEXT_BEGIN, out);
        case 'z': return assert_node(x, RX_TEXT_END, out);
        case 'Z': return assert_node(x, x->t->python ? RX_TEXT_END : RX_TEXT_END_LINE, out);
        case 'b': return assert_node(x, RX_BOUNDARY, out);
        case 'B': return assert_node(x, RX_NO_BOUNDARY, out);
        case 'R': return line_break(x, out);
        case 'N':
        case 'O': return dot(x, c == 'O', out);
        default: break;
    }
    x->p -= c != '\0';
    TRY(rx_char_escape(x, &cp));
    return char_node(x, cp, out);
}

/* The letters of (?imsx-imsx; stands behind them afterwards. */
static status read_options(rx_parser *x) {
    bool on = true;
    for (; x->p < x->end && *x->p != ':' && *x->p != ')'; x->p++) {
        char c = *x->p;
        if (c == '-' && on) {
            on = false;
        } else if (c == 'i') {
            x->fold = on;
        } else if (c == 'x') {
            x->extended = on;
        } else if (c == (x->t->python ? 's' : 'm')) {
            x->dotall = on;
        } else if (c == 'm') {
            x->multiline = on;
        } else {
            return rx_wrong(x, "(?%c is not supported", c);
        }
    }
    return ST_OK;
}

/* The inside of a group and its ). Options set inside end with it. */
static status group_body(rx_parser *x, rx_node **out) {
    rx_parser outside = *x;
    if (++x->depth > RX_MAX_DEPTH) return rx_wrong(x, "groups are nested too deep");
    TRY(parse_alternatives(x, out));
    if (!rx_skip(x, ")")) return rx_wrong(x, "a group has no )");
    outside.p = x->p;
    *x = outside;
    return ST_OK;
}

static status look_group(rx_parser *x, bool behind, bool negate, rx_node **out) {
    rx_node *inside;
    if (x->behind) return rx_wrong(x, "looking around inside a look behind is not supported");
    x->behind = behind;
    TRY(group_body(x, &inside));
    x->behind = false;
    *out = new_parent(x, RX_LOOK, inside);
    (*out)->behind = behind;
    (*out)->negate = negate;
    return ST_OK;
}

/* (?i) for the rest of the group, with its alternatives: `a(?i)b|c` is `a(?i:b|c)`. */
static status option_group(rx_parser *x, rx_node **out) {
    rx_parser outside = *x;
    TRY(read_options(x));
    if (rx_skip(x, ")")) {
        if (++x->depth > RX_MAX_DEPTH) return rx_wrong(x, "groups are nested too deep");
        return parse_alternatives(x, out);
    }
    if (!rx_skip(x, ":")) return rx_wrong(x, "a group has no )");
    TRY(group_body(x, out));
    outside.p = x->p;
    *x = outside;
    return ST_OK;
}

/* A group that Python counts. */
static status counted_group(rx_parser *x, rx_node **out) {
    if (!x->t->python) return group_body(x, out);
    int number = x->t->n_groups++;
    rx_node *inside;
    TRY(group_body(x, &inside));
    *out = new_parent(x, RX_GROUP, inside);
    (*out)->set = number;
    return ST_OK;
}

/* A group after its (. */
static status group(rx_parser *x, rx_node **out) {
    if (!rx_skip(x, "?")) return counted_group(x, out);
    if (rx_skip(x, ":")) return group_body(x, out);
    if (rx_skip(x, "=")) return look_group(x, false, false, out);
    if (rx_skip(x, "!")) return look_group(x, false, true, out);
    if (rx_skip(x, "<=")) return look_group(x, true, false, out);
    if (rx_skip(x, "<!")) return look_group(x, true, true, out);
    if (rx_skip(x, ">")) {
        rx_node *inside;
        TRY(group_body(x, &inside));
        *out = new_parent(x, RX_ATOMIC, inside);
        return ST_OK;
    }
    if (rx_skip(x, "#")) {
        const char *close = memchr(x->p, ')', (size_t)(x->end - x->p));
        if (!close) return rx_wrong(x, "a comment has no )");
        x->p = close + 1;
        *out = new_node(x, RX_EMPTY);
        return ST_OK;
    }
    if (rx_skip(x, x->t->python ? "P<" : "<")) {
        const char *close = memchr(x->p, '>', (size_t)(x->end - x->p));
        if (!close) return rx_wrong(x, "the name of a group has no >");
        x->p = close + 1;
        return counted_group(x, out);
    }
    if (x->p < x->end && strchr("~(|&'PR0123456789", *x->p)) {
        return rx_wrong(x, "(?%c is not supported", *x->p);
    }
    return option_group(x, out);
}

static status atom(rx_parser *x, rx_node **out) {
    char c = *x->p;
    bool whole = x->t->python && !x->multiline;
    rx_ranges r = rx_new_ranges(x);
    switch (c) {
        case '(': x->p++; return group(x, out);
        case '\\': return escape(x, out);
        case '.': x->p++; return dot(x, x->dotall, out);
        case '[':
            x->p++;
            TRY(rx_parse_class(x, &r));
            return set_node(x, &r, out);
        case '^': x->p++; return assert_node(x, whole ? RX_TEXT_BEGIN : RX_LINE_BEGIN, out);
        case '$': x->p++; return assert_node(x, whole ? RX_TEXT_END_LINE : RX_LINE_END, out);
        case '*':
        case '+':
        case '?': return rx_wrong(x, "there is nothing for %c to repeat", c);
        default: return char_node(x, rx_next_char(x), out);
    }
}

/* ---- repetition ---- */

static int number(rx_parser *x) {
    int v = -1;
    for (; x->p < x->end && *x->p >= '0' && *x->p <= '9'; x->p++) {
        v = (v < 0 ? 0 : v) * 10 + (*x->p - '0');
        if (v > RX_MAX_REPEAT) v = RX_MAX_REPEAT + 1;
    }
    return v;
}

/* {n} {n,} {n,m} {,m}; false, and nothing read: it is none. */
static bool interval(rx_parser *x, int *min, int *max) {
    const char *start = x->p++;
    *min = *max = number(x);
    bool comma = rx_skip(x, ",");
    if (comma) *max = number(x);
    bool any = *min >= 0 || (comma && *max >= 0);
    if (!any || !rx_skip(x, "}")) {
        x->p = start;
        return false;
    }
    if (*min < 0) *min = 0;
    return true;
}

/* Behind an interval the signs mean something else: {n}? may be left out as a whole, {n,m}+ is
 * repeated as a whole; both are left to the next round. */
static void read_mode(rx_parser *x, rx_node *n, bool braces) {
    if (!(braces && n->min == n->max) && rx_skip(x, "?")) {
        n->mode = RX_LAZY;
    } else if (!braces && rx_skip(x, "+")) {
        n->mode = RX_POSSESSIVE;
    }
}

/* One quantifier, if there is one. */
static status quantifier(rx_parser *x, rx_node **node, bool *found) {
    int min = 0, max = -1;
    char c = x->p < x->end ? *x->p : '\0';
    *found = c == '*' || c == '+' || c == '?' || (c == '{' && interval(x, &min, &max));
    if (!*found) return ST_OK;
    if (c != '{') x->p++;
    if (c == '+') min = 1;
    if (c == '?') max = 1;
    if (min > RX_MAX_REPEAT || max > RX_MAX_REPEAT) {
        return rx_wrong(x, "it repeats more than %d times", RX_MAX_REPEAT);
    }
    if (max >= 0 && max < min) return rx_wrong(x, "{%d,%d} runs backwards", min, max);
    if ((*node)->kind == RX_ASSERT || (*node)->kind == RX_LOOK) {
        return rx_wrong(x, "what looks around cannot be repeated");
    }
    if ((*node)->kind == RX_EMPTY) return rx_wrong(x, "there is nothing for %c to repeat", c);
    rx_node *n = new_parent(x, RX_REPEAT, *node);
    n->min = min;
    n->max = max;
    read_mode(x, n, c == '{');
    *node = n;
    return ST_OK;
}

static void skip_comments(rx_parser *x) {
    while (x->extended && x->p < x->end) {
        if (*x->p == '#') {
            while (x->p < x->end && *x->p != '\n') x->p++;
        } else if (strchr(" \t\n\v\f\r", *x->p)) {
            x->p++;
        } else {
            return;
        }
    }
}

/* ---- sequences ---- */

static status parse_sequence(rx_parser *x, rx_node **out) {
    enum { MAX_QUANTIFIERS = 8 };
    rx_node *all = new_node(x, RX_CAT);
    for (skip_comments(x); x->p < x->end && *x->p != '|' && *x->p != ')'; skip_comments(x)) {
        rx_node *one;
        bool more = true;
        int depth = 0;
        TRY(atom(x, &one));
        skip_comments(x);
        while (more) {
            TRY(quantifier(x, &one, &more));
            if (++depth > MAX_QUANTIFIERS) return rx_wrong(x, "there are too many quantifiers");
        }
        add_child(x, all, one);
    }
    *out = all;
    return ST_OK;
}

static status parse_alternatives(rx_parser *x, rx_node **out) {
    rx_node *all = NULL;
    TRY(parse_sequence(x, out));
    while (rx_skip(x, "|")) {
        rx_node *next;
        if (!all) all = new_parent(x, RX_ALT, *out);
        TRY(parse_sequence(x, &next));
        add_child(x, all, next);
    }
    if (all) *out = all;
    return ST_OK;
}

status rx_parse(rx_tree *t, const char *pattern, err *e) {
    size_t len = strlen(pattern);
    rx_parser x = {.t = t, .begin = pattern, .p = pattern, .end = pattern + len, .e = e};
    if (utf8_valid_prefix(pattern, len) != len) return rx_wrong(&x, "it is not UTF-8");
    if (len > RX_MAX_PATTERN) return rx_wrong(&x, "it has more than %d bytes", RX_MAX_PATTERN);
    TRY(parse_alternatives(&x, &t->root));
    if (x.p < x.end) return rx_wrong(&x, "a ) has no group");
    return ST_OK;
}
