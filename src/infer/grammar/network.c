#include "infer/grammar/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"

static int32_t add(network *n, net_state s) {
    if (n->n >= NET_MAX_STATES) {
        n->full = true;
        return NET_DEAD;
    }
    VEC_PUSH(n->state, n->n, n->cap, s);
    return n->n - 1;
}

void net_init(network *n) {
    *n = (network){0};
    add(n, (net_state){.kind = NET_BYTE, .lo = 1, .hi = 0});
    add(n, (net_state){.kind = NET_RETURN});
}

void net_free(network *n) {
    free(n->state);
    free(n->rule);
    free(n->dist);
    *n = (network){0};
}

int32_t net_byte(network *n, uint8_t lo, uint8_t hi, int32_t next) {
    if (next == NET_DEAD) return NET_DEAD;
    return add(n, (net_state){.kind = NET_BYTE, .lo = lo, .hi = hi, .a = next});
}

int32_t net_split(network *n, int32_t a, int32_t b) {
    if (a == NET_DEAD || a == b) return b;
    if (b == NET_DEAD) return a;
    return add(n, (net_state){.kind = NET_SPLIT, .a = a, .b = b});
}

int32_t net_call(network *n, int32_t rule, int32_t next) {
    if (next == NET_DEAD || rule == NET_NO_RULE) return NET_DEAD;
    return add(n, (net_state){.kind = NET_CALL, .a = rule, .b = next});
}

int32_t net_reserve(network *n) {
    return add(n, (net_state){.kind = NET_SPLIT});
}

void net_set(network *n, int32_t state, int32_t a, int32_t b) {
    if (state == NET_DEAD) return; /* full */
    n->state[state].a = a;
    n->state[state].b = b;
}

void net_liken(network *n, int32_t state, int32_t alike) {
    if (state == NET_DEAD || state == alike) return;
    n->state[state].alike = alike;
    n->likens = true;
}

int32_t net_new_rule(network *n) {
    if (n->n_rules >= NET_MAX_RULES) n->full = true;
    if (n->full) return NET_NO_RULE;
    VEC_PUSH(n->rule, n->n_rules, n->cap_rules, NET_DEAD);
    return n->n_rules - 1;
}

void net_set_rule(network *n, int32_t rule, int32_t start) {
    if (rule != NET_NO_RULE) n->rule[rule] = start;
}

int32_t net_text(network *n, const char *text, size_t len, bool wrapper, int32_t next) {
    for (size_t i = len; i-- > 0;) {
        uint8_t c = (uint8_t)text[i];
        next = net_byte(n, c, c, next);
        n->state[next].wrapper = wrapper && next != NET_DEAD;
    }
    n->wraps |= wrapper;
    return next;
}

int32_t net_bytes(network *n, uint8_t lo, uint8_t hi, int min, int max, int32_t next) {
    int32_t at = next;
    for (int i = max - 1; i >= 0; i--) {
        int32_t more = net_byte(n, lo, hi, at);
        at = i >= min ? net_split(n, more, next) : more;
    }
    return at;
}

/* ---- UTF-8 ---- */

/* Code points of one length, of which all bytes but one are free or the same. */
static int32_t char_bytes(network *n, uint32_t lo, uint32_t hi, int32_t next) {
    char a[4], b[4];
    int len = utf8_encode(lo, a);
    utf8_encode(hi, b);
    for (int i = len - 1; i >= 0; i--) next = net_byte(n, (uint8_t)a[i], (uint8_t)b[i], next);
    return next;
}

static int32_t halves(network *n, uint32_t lo, uint32_t mid, uint32_t hi, int32_t next) {
    int32_t first = net_char(n, lo, mid, next);
    return net_split(n, first, net_char(n, mid + 1, hi, next));
}

/* A range becomes ranges in which each byte runs freely (as in RE2, Cox 2010). */
int32_t net_char(network *n, uint32_t lo, uint32_t hi, int32_t next) {
    static const uint32_t last[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF};
    if (lo > hi || (lo >= 0xD800 && hi <= 0xDFFF)) return NET_DEAD;
    for (int i = 0; i < 5; i++)
        if (lo <= last[i] && last[i] < hi) return halves(n, lo, last[i], hi, next);
    for (int i = 1; lo >= 0x80 && i < 4; i++) {
        uint32_t low = (1u << 6 * i) - 1;
        if ((lo & ~low) == (hi & ~low)) continue;
        if (lo & low) return halves(n, lo, lo | low, hi, next);
        if ((hi & low) != low) return halves(n, lo, (hi & ~low) - 1, hi, next);
    }
    return char_bytes(n, lo, hi, next);
}

/* ---- when all is built ---- */

static void find_classes(network *n) {
    bool begins[257] = {true};
    for (int32_t i = 0; i < n->n; i++) {
        const net_state *s = &n->state[i];
        if (s->kind != NET_BYTE || s->lo > s->hi) continue;
        begins[s->lo] = begins[s->hi + 1] = true;
    }
    for (int b = 0; b < 256; b++) {
        if (begins[b]) n->byte_of[n->n_classes++] = (uint8_t)b;
        n->class_of[b] = (uint8_t)(n->n_classes - 1);
    }
}

static uint32_t sum(uint32_t a, uint32_t b) {
    return a >= NET_FAR - b ? NET_FAR : a + b;
}

static uint32_t dist_by_next(const network *n, const net_state *s) {
    switch (s->kind) {
        case NET_BYTE: return s->lo > s->hi ? NET_FAR : sum(n->dist[s->a], 1);
        case NET_SPLIT: return n->dist[s->a] < n->dist[s->b] ? n->dist[s->a] : n->dist[s->b];
        case NET_CALL: return sum(n->dist[n->rule[s->a]], n->dist[s->b]);
        default: return 0;
    }
}

/* A split keeps by which side its distance came about first: the other one may come from the split itself. */
static bool relax(network *n, int32_t i) {
    net_state *s = &n->state[i];
    uint32_t d = dist_by_next(n, s);
    if (d >= n->dist[i]) return false;
    n->dist[i] = d;
    s->second = s->kind == NET_SPLIT && n->dist[s->a] != d;
    return true;
}

/* A state is mostly younger than those it leads to, so a sweep by age settles all but what refers
 * to itself. */
bool net_finish(network *n) {
    enum { MOST_WORK = 1 << 27 };
    find_classes(n);
    n->dist = xmalloc(sizeof *n->dist * (size_t)n->n);
    memset(n->dist, 0xFF, sizeof *n->dist * (size_t)n->n);
    int64_t work = 0;
    for (bool changed = true; changed && work < MOST_WORK; work += n->n) {
        changed = false;
        for (int32_t i = 0; i < n->n; i++) changed |= relax(n, i);
    }
    return work < MOST_WORK;
}
