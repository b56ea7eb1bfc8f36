/* A regular expression engine for patterns that have no hand-written matcher. They mean what they
 * mean to Oniguruma in its Ruby syntax, which tokenizer.json is written in; the Unicode tables are
 * those of the matchers. Patterns of evaluation tasks mean what they mean to Python's re
 * (rx_tree.python): ^ and $ stand for the whole text unless (?m), (?s) lets the dot match line ends,
 * and groups are noted.
 *
 * A pattern becomes a tree (regex_parse.c) whose leaves are sets of code points (regex_set.c), the
 * tree a program (regex_compile.c), which a backtracking machine runs (regex.c). Every step is
 * counted, and their number is limited in proportion to the text, so that a hostile pattern ends in
 * an error and equal texts give equal results on every machine.
 *
 * Not supported, and refused by name: references to groups, conditions, recursion, \G \K \X and the
 * absent operator. Under (?i) a character matches its simple case variants; Oniguruma's folding of
 * one character to several (ss and ß) is left out. */
#ifndef TOK_PRETOK_REGEX_H
#define TOK_PRETOK_REGEX_H

#include "base/arena.h"
#include "base/status.h"
#include "tok/pretok/pretok.h"

enum {
    RX_MAX_PATTERN = 16 << 10, /* bytes */
    RX_MAX_DEPTH = 32,         /* groups in groups */
    RX_MAX_REPEAT = 1000,      /* in {n,m} */
    RX_MAX_PROGRAM = 1 << 16,  /* instructions */
    RX_MAX_EDGES = 1 << 20,    /* of all sets together */
};

/* ---- sets of code points ---- */

/* In the making: [edge[0], edge[1]), ... in order and apart once rx_sort has run. */
typedef struct rx_ranges {
    arena *mem;
    uint32_t *edge;
    int32_t n, cap; /* edges, two a range */
} rx_ranges;
void rx_add(rx_ranges *r, uint32_t first, uint32_t last);
void rx_add_all(rx_ranges *r, const rx_ranges *more);
void rx_sort(rx_ranges *r);
void rx_negate(rx_ranges *r);
void rx_intersect(rx_ranges *r, const rx_ranges *with);
bool rx_has(const rx_ranges *r, uint32_t cp); /* sorted */
/* Adds a \p{...} by name, without "^"; false: not known. */
bool rx_add_property(rx_ranges *r, const char *name, size_t n);
/* Adds what \d \h \s \w stand for, by itself or in a class. */
void rx_add_escape(rx_ranges *r, char letter, bool in_class);

/* Characters that differ from their folded form. Initialise with {0}. */
typedef struct rx_cases {
    uint32_t (*pair)[2];
    int32_t n, cap;
} rx_cases;
/* Adds the simple case variants of all members. */
void rx_fold(rx_ranges *r, rx_cases *cases);

/* Ready for matching: `low` for code points below 256; above them by class bits if the set is a
 * union of classes, else by search. */
typedef struct rx_set {
    bool low[256];
    unsigned mask; /* of uni_bits, RX_NO_CLASS for none of them; 0 with edges */
    const uint32_t *edge;
    int n; /* edges */
} rx_set;
enum { RX_NO_CLASS = 256 };
bool rx_set_has(const rx_set *s, uint32_t cp);
void rx_set_make(rx_set *s, const rx_ranges *r, arena *mem);

/* ---- the tree ---- */

typedef enum rx_kind {
    RX_EMPTY,
    RX_SET,    /* one character */
    RX_CAT,    /* child[0], child[1], ... */
    RX_ALT,    /* one of the children, in order */
    RX_REPEAT, /* child[0] min to max times */
    RX_ATOMIC,
    RX_GROUP, /* child[0], noted as group `set` */
    RX_LOOK,  /* around, see rx_node.behind and .negate */
    RX_ASSERT,
} rx_kind;
typedef enum rx_mode { RX_GREEDY, RX_LAZY, RX_POSSESSIVE } rx_mode;
typedef enum rx_where {
    RX_TEXT_BEGIN,
    RX_TEXT_END,
    RX_TEXT_END_LINE, /* at the end or before a newline there */
    RX_LINE_BEGIN,
    RX_LINE_END,
    RX_BOUNDARY,
    RX_NO_BOUNDARY,
} rx_where;

typedef struct rx_node rx_node;
struct rx_node {
    rx_kind kind;
    rx_mode mode;
    int set;      /* RX_SET: index into rx_tree.set */
    int min, max; /* RX_REPEAT; max -1: no end */
    bool behind, negate;
    rx_where where;
    rx_node **child;
    int32_t n_child, cap_child;
};

typedef struct rx_tree {
    arena *mem; /* sets, and the program later */
    arena *scratch;
    rx_set *set;
    int32_t n_set, cap_set;
    int64_t n_edges; /* met so far, see RX_MAX_EDGES */
    rx_cases cases;
    rx_node *root;
    bool python;
    int n_groups; /* that are noted */
} rx_tree;
/* ST_FORMAT: wrong or not supported. t->mem and scratch are set before. */
status rx_parse(rx_tree *t, const char *pattern, err *e) ATH_MUST_USE;

/* ---- the program ---- */

typedef enum rx_op {
    RX_OP_MATCH,  /* negate: only if it is where a look behind must end */
    RX_OP_SET,    /* one character of set a */
    RX_OP_LOOP,   /* min to max characters of set a */
    RX_OP_TRY,    /* goes on; on failure to `to`. With `first`: there at once on another byte */
    RX_OP_LATER,  /* the other way round: goes to `to`; on failure goes on */
    RX_OP_JUMP,   /* to `to` */
    RX_OP_MARK,   /* notes the position in slot a */
    RX_OP_MOVED,  /* to `to` if the position is that of slot a: an empty round ends a loop */
    RX_OP_ASSERT, /* where = a */
    RX_OP_ATOMIC, /* runs what follows to its MATCH, goes on at `to` */
    RX_OP_AHEAD,  /* the same without moving; negate */
    RX_OP_BEHIND, /* the same ending here, from min to max characters before */
} rx_op;

typedef struct rx_code {
    rx_op op;
    rx_mode mode;
    bool negate;
    int a, to, min, max; /* max -1: no end */
    const bool *first;   /* [256]: what the next byte may be; NULL: any, or the end */
} rx_code;

typedef struct rx_program {
    arena *mem;
    rx_code *code;
    int32_t n, cap;
    int n_slots, n_groups; /* group i is from slot 2i to slot 2i + 1 */
    const rx_set *set;
    const rx_set *word; /* of \b */
    const bool *first;  /* what a match may begin with; NULL: any, or it may be empty */
} rx_program;
status rx_compile(rx_program *p, rx_tree *t, err *e) ATH_MUST_USE;

#endif
