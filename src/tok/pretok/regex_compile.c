/* Tree to program. Bounded repeats of more than one character are written out. */
#include <string.h>

#include "tok/pretok/regex.h"

typedef struct compiler {
    rx_program *p;
    rx_tree *t;
    err *e;
} compiler;

/* ---- what a node may begin with, and how long it is ---- */

/* Adds the bytes a match of the node may begin with; true: it may be empty, so that what follows
 * counts too. */
static bool add_first(const rx_tree *t, const rx_node *n, bool first[256]) {
    bool empty;
    switch (n->kind) {
        case RX_SET:
            for (int b = 0; b < 0x80; b++) first[b] |= t->set[n->set].low[b];
            memset(first + 0x80, true, 0x80); /* any other character: rarely worth more */
            return false;
        case RX_CAT:
            for (int32_t i = 0; i < n->n_child; i++) {
                if (!add_first(t, n->child[i], first)) return false;
            }
            return true;
        case RX_ALT:
            empty = false;
            for (int32_t i = 0; i < n->n_child; i++) empty |= add_first(t, n->child[i], first);
            return empty;
        case RX_REPEAT:
            if (n->max == 0) return true;
            return add_first(t, n->child[0], first) || n->min == 0;
        case RX_GROUP:
        case RX_ATOMIC: return add_first(t, n->child[0], first);
        default: return true; /* consumes nothing */
    }
}

static const bool *first_of(compiler *c, const rx_node *n) {
    bool first[256] = {false};
    if (add_first(c->t, n, first)) return NULL;
    return arena_memdup(c->p->mem, first, sizeof(first));
}

static bool may_be_empty(compiler *c, const rx_node *n) {
    bool unused[256] = {false};
    return add_first(c->t, n, unused);
}

enum { ENDLESS = -1 };

/* Shortest and longest match in characters. */
static void length_of(const rx_node *n, int64_t *min, int64_t *max) {
    int64_t lo, hi;
    *min = *max = n->kind == RX_SET;
    if (n->kind != RX_CAT && n->kind != RX_ALT && n->kind != RX_REPEAT && n->kind != RX_ATOMIC &&
        n->kind != RX_GROUP) {
        return;
    }
    for (int32_t i = 0; i < n->n_child; i++) {
        length_of(n->child[i], &lo, &hi);
        if (n->kind == RX_REPEAT) {
            lo *= n->min;
            hi = hi == 0 || n->max == 0 ? 0 : hi < 0 || n->max < 0 ? ENDLESS : hi * n->max;
        }
        if (n->kind == RX_ALT && i > 0) {
            *min = lo < *min ? lo : *min;
            *max = *max < 0 || hi < 0 ? ENDLESS : hi > *max ? hi : *max;
        } else {
            *min += lo;
            *max = *max < 0 || hi < 0 ? ENDLESS : *max + hi;
        }
        if (*min > RX_MAX_PATTERN) *min = RX_MAX_PATTERN;
        if (*max > RX_MAX_PATTERN) *max = ENDLESS;
    }
}

/* ---- writing ---- */

static status emit(compiler *c, rx_code code) {
    rx_program *p = c->p;
    if (p->n == RX_MAX_PROGRAM) {
        return err_set(c->e, ST_FORMAT,
                       "the pattern is too large when its repeats are written out");
    }
    p->code = arena_grow(p->mem, p->code, p->n, &p->cap, sizeof(*p->code));
    p->code[p->n++] = code;
    return ST_OK;
}

static status write_node(compiler *c, const rx_node *n);

static status write_alternatives(compiler *c, const rx_node *n) {
    int32_t *jump = ARENA_ARRAY(c->t->scratch, int32_t, n->n_child);
    for (int32_t i = 0; i < n->n_child; i++) {
        bool last = i == n->n_child - 1;
        int32_t start = c->p->n;
        if (!last) {
            TRY(emit(c, (rx_code){.op = RX_OP_TRY, .first = first_of(c, n->child[i])}));
        }
        TRY(write_node(c, n->child[i]));
        if (last) break;
        jump[i] = c->p->n;
        TRY(emit(c, (rx_code){.op = RX_OP_JUMP}));
        c->p->code[start].to = c->p->n;
    }
    for (int32_t i = 0; i < n->n_child - 1; i++) c->p->code[jump[i]].to = c->p->n;
    return ST_OK;
}

/* Code that runs by itself up to its MATCH; `open` is its first instruction. */
static status write_inner(compiler *c, rx_code open, const rx_node *inside) {
    int32_t start = c->p->n;
    bool behind = open.op == RX_OP_BEHIND;
    TRY(emit(c, open));
    TRY(write_node(c, inside));
    TRY(emit(c, (rx_code){.op = RX_OP_MATCH, .negate = behind}));
    c->p->code[start].to = c->p->n;
    return ST_OK;
}

static status write_look(compiler *c, const rx_node *n) {
    rx_code open = {.op = RX_OP_AHEAD, .negate = n->negate};
    if (n->behind) {
        int64_t min, max;
        length_of(n->child[0], &min, &max);
        open.op = RX_OP_BEHIND;
        open.min = (int)min;
        open.max = (int)max;
    }
    return write_inner(c, open, n->child[0]);
}

/* One more round that may be left out; *at is the instruction that decides. */
static status write_choice(compiler *c, const rx_node *n, int32_t *at) {
    *at = c->p->n;
    if (n->mode == RX_LAZY) return emit(c, (rx_code){.op = RX_OP_LATER});
    return emit(c, (rx_code){.op = RX_OP_TRY, .first = first_of(c, n->child[0])});
}

static status write_endless(compiler *c, const rx_node *n) {
    int32_t loop, moved;
    bool empty = may_be_empty(c, n->child[0]);
    int slot = empty ? c->p->n_slots++ : 0;
    TRY(write_choice(c, n, &loop));
    if (empty) TRY(emit(c, (rx_code){.op = RX_OP_MARK, .a = slot}));
    TRY(write_node(c, n->child[0]));
    moved = c->p->n;
    if (empty) TRY(emit(c, (rx_code){.op = RX_OP_MOVED, .a = slot}));
    TRY(emit(c, (rx_code){.op = RX_OP_JUMP, .to = loop}));
    c->p->code[loop].to = c->p->n;
    if (empty) c->p->code[moved].to = c->p->n;
    return ST_OK;
}

static status write_rounds(compiler *c, const rx_node *n) {
    for (int i = 0; i < n->min; i++) TRY(write_node(c, n->child[0]));
    if (n->max < 0) return write_endless(c, n);
    int more = n->max - n->min;
    int32_t *choice = ARENA_ARRAY(c->t->scratch, int32_t, more);
    for (int i = 0; i < more; i++) {
        TRY(write_choice(c, n, &choice[i]));
        TRY(write_node(c, n->child[0]));
    }
    for (int i = 0; i < more; i++) c->p->code[choice[i]].to = c->p->n;
    return ST_OK;
}

static status write_repeat(compiler *c, const rx_node *n) {
    const rx_node *inside = n->child[0];
    if (inside->kind == RX_SET) {
        return emit(
            c,
            (rx_code){
                .op = RX_OP_LOOP, .mode = n->mode, .a = inside->set, .min = n->min, .max = n->max});
    }
    if (n->mode != RX_POSSESSIVE) return write_rounds(c, n);
    rx_node greedy = *n;
    greedy.mode = RX_GREEDY;
    return write_inner(c, (rx_code){.op = RX_OP_ATOMIC}, &greedy);
}

static status write_node(compiler *c, const rx_node *n) {
    switch (n->kind) {
        case RX_EMPTY: return ST_OK;
        case RX_SET: return emit(c, (rx_code){.op = RX_OP_SET, .a = n->set});
        case RX_CAT:
            for (int32_t i = 0; i < n->n_child; i++) TRY(write_node(c, n->child[i]));
            return ST_OK;
        case RX_ALT: return write_alternatives(c, n);
        case RX_REPEAT: return write_repeat(c, n);
        case RX_ATOMIC: return write_inner(c, (rx_code){.op = RX_OP_ATOMIC}, n->child[0]);
        case RX_GROUP:
            TRY(emit(c, (rx_code){.op = RX_OP_MARK, .a = 2 * n->set}));
            TRY(write_node(c, n->child[0]));
            return emit(c, (rx_code){.op = RX_OP_MARK, .a = 2 * n->set + 1});
        case RX_LOOK: return write_look(c, n);
        case RX_ASSERT: return emit(c, (rx_code){.op = RX_OP_ASSERT, .a = (int)n->where});
    }
    return ST_OK;
}

/* A loop behind which nothing can fail need not be able to give back. */
static void drop_needless_returns(rx_program *p) {
    for (int32_t i = 0; i < p->n; i++) {
        if (p->code[i].op != RX_OP_LOOP || p->code[i].mode != RX_GREEDY) continue;
        int32_t next = i + 1;
        while (p->code[next].op == RX_OP_JUMP && p->code[next].to > next) next = p->code[next].to;
        const rx_code *then = &p->code[next];
        if (then->op == RX_OP_MATCH && !then->negate) p->code[i].mode = RX_POSSESSIVE;
    }
}

static const rx_set *word_set(rx_tree *t) {
    rx_ranges r = {.mem = t->scratch};
    rx_set *s = ARENA_NEW(t->mem, rx_set);
    rx_add_escape(&r, 'w', false);
    rx_sort(&r);
    rx_set_make(s, &r, t->mem);
    return s;
}

status rx_compile(rx_program *p, rx_tree *t, err *e) {
    compiler c = {.p = p, .t = t, .e = e};
    p->mem = t->mem;
    p->n_groups = t->n_groups;
    p->n_slots = 2 * t->n_groups;
    TRY(write_node(&c, t->root));
    TRY(emit(&c, (rx_code){.op = RX_OP_MATCH}));
    drop_needless_returns(p);
    p->set = t->set;
    p->word = word_set(t);
    p->first = first_of(&c, t->root);
    return ST_OK;
}
