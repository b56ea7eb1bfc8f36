/* Runs a program: a backtracking machine with its own stack.
 *
 * Steps are counted over all searches of one match data: each byte of a text that is looked at anew
 * grants some, up to a limit. Ordinary patterns need a few a byte; one that runs away is stopped
 * after a fraction of a second, at the same place on every machine. */
#include "tok/pretok/regex.h"

#include <stdlib.h>

#include "base/utf8.h"

enum {
    STEPS_AT_FIRST = 64 << 20, /* about a quarter of a second; also the most that is saved up */
    STEPS_PER_BYTE = 64,
    MAX_STACK = 1 << 22, /* entries */
};

typedef enum back_kind {
    BACK_RESUME, /* at pc */
    BACK_SHRINK, /* a loop gives back one character, down to `floor` */
    BACK_GROW,   /* a lazy loop takes one more, up to `floor` of them */
    BACK_SLOT,   /* slot pc was at pos */
} back_kind;

typedef struct back {
    back_kind kind;
    int pc;
    size_t pos, floor;
} back;

/* What one thread needs. */
typedef struct rx_data {
    back *stack;
    int64_t n, cap;
    size_t *slot;
    int n_slots;
    int64_t steps; /* left */
    const char *text;
    size_t len;
} rx_data;

typedef struct machine {
    const rx_program *p;
    rx_data *d;
    const char *s;
    size_t n;
    size_t end; /* no character is taken from here on: n, or where a look behind stands */
} machine;

typedef enum outcome { FAILED, MATCHED, GAVE_UP } outcome;

static void push(machine *m, back_kind kind, int pc, size_t pos, size_t floor) {
    rx_data *d = m->d;
    VEC_PUSH(d->stack, d->n, d->cap, ((back){kind, pc, pos, floor}));
    if (d->n > MAX_STACK) d->steps = 0;
}

/* ---- looking at characters ---- */

/* Length of the character at pos (< n) if the set has it, else 0. */
static inline size_t has_at(const machine *m, const rx_set *set, size_t pos) {
    uint8_t byte = (uint8_t)m->s[pos];
    if (byte < 0x80) return set->low[byte];
    size_t len;
    return rx_set_has(set, utf8_next(m->s + pos, &len)) ? len : 0;
}

/* The same for a character that may be taken. */
static inline size_t in_set(const machine *m, const rx_set *set, size_t pos) {
    return pos < m->end ? has_at(m, set, pos) : 0;
}

static bool word_at(const machine *m, size_t pos) {
    return pos < m->n && has_at(m, m->p->word, pos) > 0;
}

static bool holds(const machine *m, rx_where where, size_t pos) {
    switch (where) {
        case RX_TEXT_BEGIN: return pos == 0;
        case RX_TEXT_END: return pos == m->n;
        case RX_TEXT_END_LINE: return pos == m->n || (pos + 1 == m->n && m->s[pos] == '\n');
        case RX_LINE_BEGIN: return pos == 0 || (m->s[pos - 1] == '\n' && pos < m->n);
        case RX_LINE_END: return pos == m->n || m->s[pos] == '\n';
        default: break;
    }
    bool before = pos > 0 && word_at(m, utf8_before(m->s, pos));
    return (before != word_at(m, pos)) == (where == RX_BOUNDARY);
}

/* ---- running ---- */

static outcome run(machine *m, int pc, size_t pos, size_t must_end, size_t *end);

/* min to max characters at *pos. */
static bool loop(machine *m, int pc, size_t *pos) {
    const rx_code *c = &m->p->code[pc];
    const rx_set *set = &m->p->set[c->a];
    size_t at = *pos, floor = at, len;
    int most = c->mode == RX_LAZY ? c->min : c->max, k = 0;
    for (; k != most && (len = in_set(m, set, at)) > 0; k++) {
        at += len;
        if (k < c->min) floor = at;
    }
    m->d->steps -= k;
    if (k < c->min) return false;
    *pos = at;
    if (c->mode == RX_GREEDY && at > floor) push(m, BACK_SHRINK, pc + 1, at, floor);
    if (c->mode == RX_LAZY && k != c->max) {
        push(m, BACK_GROW, pc, at, c->max < 0 ? SIZE_MAX : (size_t)(c->max - k));
    }
    return true;
}

/* Whether the code at pc has a match that ends at pos. */
static outcome look_behind(machine *m, int pc, size_t pos) {
    const rx_code *c = &m->p->code[pc];
    size_t start = pos, end, end_before = m->end;
    outcome o = FAILED;
    m->end = pos;
    for (int k = 0; c->max < 0 || k <= c->max; k++) {
        if (k >= c->min) o = run(m, pc + 1, start, pos, &end);
        if (o != FAILED || start == 0) break;
        start = utf8_before(m->s, start);
    }
    m->end = end_before;
    return o;
}

/* The code behind an instruction that encloses other code. */
static outcome enclosed(machine *m, int pc, size_t *pos) {
    const rx_code *c = &m->p->code[pc];
    size_t end = *pos;
    outcome o =
        c->op == RX_OP_BEHIND ? look_behind(m, pc, *pos) : run(m, pc + 1, *pos, SIZE_MAX, &end);
    if (c->op == RX_OP_ATOMIC && o == MATCHED) *pos = end;
    if (o == GAVE_UP || !c->negate) return o;
    return o == MATCHED ? FAILED : MATCHED;
}

/* Goes back to the last choice above `base`; false: there is none. */
static bool go_back(machine *m, int64_t base, int *pc, size_t *pos) {
    rx_data *d = m->d;
    while (d->n > base) {
        back b = d->stack[--d->n];
        *pc = b.pc;
        *pos = b.pos;
        if (b.kind == BACK_RESUME) return true;
        if (b.kind == BACK_SLOT) {
            d->slot[b.pc] = b.pos;
        } else if (b.kind == BACK_SHRINK) {
            *pos = utf8_before(m->s, b.pos);
            if (*pos > b.floor) push(m, BACK_SHRINK, b.pc, *pos, b.floor);
            return true;
        } else {
            size_t len = in_set(m, &m->p->set[m->p->code[b.pc].a], b.pos);
            if (len == 0) continue;
            *pos += len;
            if (b.floor > 1) push(m, BACK_GROW, b.pc, *pos, b.floor - 1);
            (*pc)++;
            return true;
        }
    }
    return false;
}

static bool excluded(const machine *m, const rx_code *c, size_t pos) {
    return c->first && (pos >= m->n || !c->first[(uint8_t)m->s[pos]]);
}

/* One instruction that is no MATCH; moves pc and pos. */
static outcome step(machine *m, int *pc, size_t *pos) {
    const rx_code *c = &m->p->code[*pc];
    outcome o = MATCHED;
    size_t len;
    int next = *pc + 1;
    switch (c->op) {
        case RX_OP_SET:
            len = in_set(m, &m->p->set[c->a], *pos);
            if (len == 0) return FAILED;
            *pos += len;
            break;
        case RX_OP_LOOP:
            if (!loop(m, *pc, pos)) return FAILED;
            break;
        case RX_OP_TRY:
            if (excluded(m, c, *pos)) {
                next = c->to;
            } else {
                push(m, BACK_RESUME, c->to, *pos, 0);
            }
            break;
        case RX_OP_LATER:
            push(m, BACK_RESUME, next, *pos, 0);
            next = c->to;
            break;
        case RX_OP_JUMP: next = c->to; break;
        case RX_OP_MARK:
            push(m, BACK_SLOT, c->a, m->d->slot[c->a], 0);
            m->d->slot[c->a] = *pos;
            break;
        case RX_OP_MOVED:
            if (m->d->slot[c->a] == *pos) next = c->to;
            break;
        case RX_OP_ASSERT:
            if (!holds(m, (rx_where)c->a, *pos)) return FAILED;
            break;
        default: next = c->to; o = enclosed(m, *pc, pos);
    }
    *pc = next;
    return o;
}

/* Runs from pc to its MATCH, which must be at must_end where a look behind asks for that. */
static outcome run(machine *m, int pc, size_t pos, size_t must_end, size_t *end) {
    int64_t base = m->d->n;
    for (;;) {
        const rx_code *c = &m->p->code[pc];
        if (--m->d->steps < 0) return GAVE_UP;
        outcome o;
        if (c->op != RX_OP_MATCH) {
            o = step(m, &pc, &pos);
            if (o == MATCHED) continue;
            if (o == GAVE_UP) return o;
        } else if (!c->negate || pos == must_end) {
            m->d->n = base;
            *end = pos;
            return MATCHED;
        }
        if (!go_back(m, base, &pc, &pos)) return FAILED;
    }
}

/* The first match at or after `from`. */
static outcome search(machine *m, size_t from, size_t *start, size_t *end) {
    const bool *first = m->p->first;
    for (size_t at = from; at <= m->n; at += at < m->n ? utf8_size(m->s[at]) : 1) {
        m->d->steps--;
        if (first && (at == m->n || !first[(uint8_t)m->s[at]])) continue;
        m->d->n = 0;
        for (int i = 0; i < 2 * m->p->n_groups; i++) m->d->slot[i] = SIZE_MAX;
        *start = at;
        outcome o = run(m, 0, at, SIZE_MAX, end);
        if (o != FAILED) return o;
    }
    return m->d->steps < 0 ? GAVE_UP : FAILED;
}

/* ---- the interface ---- */

static status compile(void **code, const char *regex, bool python, err *e) {
    rx_tree t = {
        .mem = arena_new("pattern"), .scratch = arena_new("pattern scratch"), .python = python};
    rx_program *p = ARENA_NEW(t.mem, rx_program);
    status st = rx_parse(&t, regex, e);
    if (st == ST_OK) st = rx_compile(p, &t, e);
    arena_free(t.scratch);
    if (st != ST_OK) arena_free(t.mem);
    *code = st == ST_OK ? p : NULL;
    return st;
}

status pretok_regex_compile(void **code, const char *regex, err *e) {
    return compile(code, regex, false, e);
}

status pretok_regex_compile_python(void **code, const char *regex, err *e) {
    return compile(code, regex, true, e);
}

int pretok_regex_groups(const void *code) {
    return ((const rx_program *)code)->n_groups;
}

bool pretok_regex_group(const void *match_data, int i, size_t *start, size_t *end) {
    const rx_data *d = match_data;
    *start = d->slot[2 * i];
    *end = d->slot[2 * i + 1];
    return *start != SIZE_MAX && *end != SIZE_MAX;
}

void pretok_regex_free(void *code) {
    if (code) arena_free(((rx_program *)code)->mem);
}

/* Grants steps for a text that was not looked at before. */
static rx_data *prepare(void **match_data, const rx_program *p, const char *text, size_t len,
                        size_t from) {
    rx_data *d = *match_data;
    if (!d) {
        d = *match_data = xcalloc(1, sizeof(*d));
        d->steps = STEPS_AT_FIRST;
    }
    if (p->n_slots > d->n_slots) {
        d->slot = xrealloc(d->slot, sizeof(*d->slot) * (size_t)p->n_slots);
        d->n_slots = p->n_slots;
    }
    if (from == 0 || d->text != text || d->len != len) {
        d->steps += (int64_t)(len - from + 1) * STEPS_PER_BYTE;
        int64_t most = STEPS_AT_FIRST + (int64_t)len * STEPS_PER_BYTE;
        if (d->steps > most) d->steps = most;
    }
    d->text = text;
    d->len = len;
    return d;
}

status pretok_regex_search(void *code, const char *text, size_t len, size_t from, size_t *start,
                           size_t *end, bool *found, void **match_data, err *e) {
    const rx_program *p = code;
    machine m = {p, prepare(match_data, p, text, len, from), text, len, len};
    outcome o = search(&m, from, start, end);
    *found = o == MATCHED;
    if (o != GAVE_UP) return ST_OK;
    m.d->steps = STEPS_AT_FIRST; /* for the next text */
    return err_set(e, ST_FORMAT, "the pattern takes too many steps near byte %zu of a text", from);
}

status pretok_regex_find(void *code, const char *text, size_t len, size_t from, size_t *start,
                         size_t *end, void **match_data, err *e) {
    bool found;
    TRY(pretok_regex_search(code, text, len, from, start, end, &found, match_data, e));
    if (found) return ST_OK;
    *start = len;
    *end = len + 1;
    return ST_OK;
}

void pretok_match_data_begin(void *match_data) {
    rx_data *d = match_data;
    if (d) d->steps = STEPS_AT_FIRST;
}

void pretok_match_data_free(void *match_data) {
    rx_data *d = match_data;
    if (!d) return;
    free(d->stack);
    free(d->slot);
    free(d);
}
