#include "infer/grammar/acceptor.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "tok/text/map.h"

enum {
    MOST_VISITS = 16 * ACCEPTOR_MOST, /* of one closure */
    MOST_BYTES = 32 << 20,
    HASH_SLOTS = 1 << 14
};

/* All that acceptor_forget drops. */
typedef struct place_memory {
    arena *mem; /* places and rows */
    place_stack *stack;
    int32_t n_stacks, cap_stacks;
    pair_map stacks;
    int32_t slot[HASH_SLOTS]; /* first set by hash */
    /* of one closure */
    pair_map seen;
    place *found, *todo;
    int32_t n_found, cap_found, n_todo, cap_todo;
    bool final;
} place_memory;

/* ---- stacks ---- */

static uint32_t add_far(uint32_t a, uint32_t b) {
    return a >= NET_FAR - b ? NET_FAR : a + b;
}

/* A call at the end of a rule needs no return: so rules may refer to each other for ever. */
static int32_t push(acceptor *m, int32_t state, int32_t below) {
    place_memory *k = m->memory;
    if (state == NET_END) return below;
    uint64_t key = pair_key(state, below);
    int32_t at = pair_map_get(&k->stacks, key);
    if (at >= 0) return at;
    uint32_t dist = add_far(m->net->dist[state], k->stack[below].dist);
    place_stack s = {.state = state, .below = below, .dist = dist};
    VEC_PUSH(k->stack, k->n_stacks, k->cap_stacks, s);
    pair_map_put(&k->stacks, key, k->n_stacks - 1);
    return k->n_stacks - 1;
}

/* ---- sets ---- */

static bool is_same(const place_set *s, const place_memory *k) {
    return s->n == k->n_found && s->final == k->final &&
           memcmp(s->place, k->found, sizeof *k->found * (size_t)s->n) == 0;
}

static uint32_t least_dist(const acceptor *m) {
    const place_memory *k = m->memory;
    uint32_t best = k->final ? 0 : NET_FAR;
    for (int32_t i = 0; i < k->n_found; i++) {
        place p = k->found[i];
        uint32_t d = add_far(m->net->dist[p.state], k->stack[p.stack].dist);
        if (d < best) best = d;
    }
    return best;
}

/* The number of the set that was found. */
static int32_t intern(acceptor *m) {
    place_memory *k = m->memory;
    size_t bytes = sizeof *k->found * (size_t)k->n_found;
    if (k->n_found == 0 && !k->final) return ACCEPTOR_DEAD;
    int32_t *slot = &k->slot[hash_bytes(k->found, bytes) % HASH_SLOTS];
    for (int32_t i = *slot; i; i = m->set[i].next)
        if (is_same(&m->set[i], k)) return i;
    place_set s = {.n = k->n_found, .final = k->final, .next = *slot, .bound = -1};
    s.place = arena_memdup(k->mem, k->found, bytes);
    s.dist = least_dist(m);
    s.to = ARENA_ARRAY(k->mem, int32_t, m->net->n_classes);
    memset(s.to, 0xFF, sizeof *s.to * (size_t)m->net->n_classes);
    VEC_PUSH(m->set, m->n_sets, m->cap_sets, s);
    return *slot = m->n_sets - 1;
}

/* ---- closures ---- */

static void closure_begin(acceptor *m) {
    place_memory *k = m->memory;
    k->n_found = k->n_todo = 0;
    k->final = false;
    if (k->seen.cap > 1024 && k->seen.n < k->seen.cap / 16) pair_map_free(&k->seen);
    if (k->seen.n > 0) memset(k->seen.key, 0, sizeof *k->seen.key * k->seen.cap);
    k->seen.n = 0;
}

static void visit(acceptor *m, int32_t state, int32_t stack) {
    place_memory *k = m->memory;
    uint64_t key = pair_key(state, stack);
    if (m->net->dist[state] == NET_FAR || k->seen.n >= MOST_VISITS ||
        pair_map_get(&k->seen, key) >= 0)
        return;
    pair_map_put(&k->seen, key, 1);
    VEC_PUSH(k->todo, k->n_todo, k->cap_todo, ((place){state, stack}));
}

/* Follows all edges that read nothing, and gathers the places that read a byte. */
static void close_over(acceptor *m) {
    place_memory *k = m->memory;
    while (k->n_todo > 0) {
        place p = k->todo[--k->n_todo];
        const net_state *s = &m->net->state[p.state];
        if (s->kind == NET_BYTE) {
            if (k->n_found < ACCEPTOR_MOST) VEC_PUSH(k->found, k->n_found, k->cap_found, p);
        } else if (s->kind == NET_SPLIT) {
            visit(m, s->b, p.stack);
            visit(m, s->a, p.stack);
        } else if (s->kind == NET_CALL) {
            if (m->net->dist[s->b] != NET_FAR) visit(m, m->net->rule[s->a], push(m, s->b, p.stack));
        } else if (p.stack) {
            visit(m, k->stack[p.stack].state, k->stack[p.stack].below);
        } else {
            k->final = true;
        }
    }
}

static int32_t step(acceptor *m, int32_t set, uint8_t byte, bool wrapper) {
    closure_begin(m);
    for (int32_t i = m->set[set].n - 1; i >= 0; i--) {
        place p = m->set[set].place[i];
        const net_state *s = &m->net->state[p.state];
        if (byte < s->lo || byte > s->hi || (wrapper && !s->wrapper)) continue;
        visit(m, s->a, p.stack);
    }
    close_over(m);
    m->work += m->set[set].n + m->memory->seen.n + 1;
    return intern(m);
}

int32_t acceptor_step(acceptor *m, int32_t set, uint8_t byte) {
    uint8_t class = m->net->class_of[byte];
    int32_t to = m->set[set].to[class];
    if (to >= 0) return to;
    to = step(m, set, byte, false);
    m->set[set].to[class] = to;
    return to;
}

int32_t acceptor_step_wrapper(acceptor *m, int32_t set, uint8_t byte) {
    return step(m, set, byte, true);
}

int32_t acceptor_alike(acceptor *m, int32_t set) {
    place_memory *k = m->memory;
    closure_begin(m);
    for (int32_t i = 0; m->net->likens && i < m->set[set].n; i++) {
        place p = m->set[set].place[i];
        place_stack top = k->stack[p.stack];
        int32_t alike = p.stack ? m->net->state[top.state].alike : 0;
        if (alike) p.stack = push(m, alike, top.below);
        VEC_PUSH(k->found, k->n_found, k->cap_found, p);
    }
    k->final = m->set[set].final;
    return m->net->likens ? intern(m) : set;
}

/* ---- the way to the end ---- */

size_t acceptor_shortest(const acceptor *m, place p, char *out, size_t n) {
    const place_memory *k = m->memory;
    /* Calls that stand above p.stack: a text of n bytes opens no more of them that cost a byte. */
    int32_t *above = NULL;
    int32_t n_above = 0, cap_above = 0;
    size_t len = 0;
    while (len < n) {
        const net_state *s = &m->net->state[p.state];
        if (s->kind == NET_BYTE) {
            out[len++] = (char)s->lo;
            p.state = s->a;
        } else if (s->kind == NET_SPLIT) {
            p.state = s->second ? s->b : s->a;
        } else if (s->kind == NET_CALL) {
            if (s->b != NET_END) VEC_PUSH(above, n_above, cap_above, s->b);
            p.state = m->net->rule[s->a];
        } else if (n_above > 0) {
            p.state = above[--n_above];
        } else if (p.stack) {
            p = (place){k->stack[p.stack].state, k->stack[p.stack].below};
        } else {
            break;
        }
    }
    free(above);
    return len;
}

/* ---- memory ---- */

static void memory_begin(acceptor *m) {
    place_memory *k = xcalloc(1, sizeof *k);
    m->memory = k;
    k->mem = arena_new("grammar");
    VEC_PUSH(k->stack, k->n_stacks, k->cap_stacks, ((place_stack){0}));
    m->n_sets = 0;
    int32_t *row = ARENA_ARRAY(k->mem, int32_t, m->net->n_classes); /* dead for ever */
    VEC_PUSH(m->set, m->n_sets, m->cap_sets, ((place_set){.to = row, .dist = NET_FAR}));
    closure_begin(m);
    visit(m, m->net->rule[0], 0);
    close_over(m);
    m->start = intern(m);
}

static void memory_end(place_memory *k) {
    arena_free(k->mem);
    free(k->stack);
    pair_map_free(&k->stacks);
    pair_map_free(&k->seen);
    free(k->found);
    free(k->todo);
    free(k);
}

acceptor *acceptor_new(const network *net) {
    acceptor *m = xcalloc(1, sizeof *m);
    m->net = net;
    memory_begin(m);
    return m;
}

void acceptor_free(acceptor *m) {
    if (!m) return;
    memory_end(m->memory);
    free(m->set);
    free(m);
}

bool acceptor_is_large(const acceptor *m) {
    const place_memory *k = m->memory;
    return arena_bytes_used(k->mem) + sizeof *k->stack * (size_t)k->n_stacks +
               sizeof *m->set * (size_t)m->n_sets >
           MOST_BYTES;
}

/* A stack of the old memory in the new one, from the bottom up. */
static int32_t copy_stack(acceptor *m, const place_memory *old, int32_t stack) {
    int32_t *states = NULL, n = 0, cap = 0, copy = 0;
    for (; stack; stack = old->stack[stack].below)
        VEC_PUSH(states, n, cap, old->stack[stack].state);
    while (n > 0) copy = push(m, states[--n], copy);
    free(states);
    return copy;
}

static int32_t copy_set(acceptor *m, const place_memory *old, place_set s) {
    place_memory *k = m->memory;
    closure_begin(m);
    for (int32_t i = 0; i < s.n; i++) {
        place p = {s.place[i].state, copy_stack(m, old, s.place[i].stack)};
        VEC_PUSH(k->found, k->n_found, k->cap_found, p);
    }
    k->final = s.final;
    return intern(m);
}

void acceptor_forget(acceptor *m, int32_t *const *keep, int n) {
    place_memory *old = m->memory;
    place_set *sets = xmalloc(sizeof *sets * (size_t)(n + 1));
    for (int i = 0; i < n; i++) sets[i] = m->set[*keep[i]];
    memory_begin(m);
    for (int i = 0; i < n; i++) *keep[i] = copy_set(m, old, sets[i]);
    free(sets);
    memory_end(old);
}
