/* Regular expressions of strings.
 *
 * The parser is that of tokenizers (tok/pretok/regex.h). Its tree becomes an automaton over characters, and that,
 * with a count of the characters so far, states of the network; sets of characters become rules.
 *
 * Patterns are those of JavaScript, and validators of other languages read them in their own way. Where
 * these differ the sense is taken that all share: \d, \w and \s are ASCII, and what is none of them has no
 * Unicode digits, letters or spaces either. */
#include <stdlib.h>
#include <string.h>

#include "infer/grammar/schema_int.h"
#include "tok/pretok/regex.h"

enum {
    MOST_STATES = 1 << 15,
    UNASSIGNED = 0x378,
    MOST_PATTERNS = 512, /* of a schema */
    MOST_SEARCHES = 100  /* over all of Unicode, of a schema; a few milliseconds each */
};

typedef enum edge_kind { EDGE_SET, EDGE_SPLIT, EDGE_ACCEPT } edge_kind;

/* A state of the automaton over characters. */
typedef struct char_state {
    edge_kind kind;
    int set; /* EDGE_SET: of the tree; -1: any character */
    int32_t a, b;
} char_state;

typedef struct pattern {
    schema *c;
    rx_tree *tree;
    char_state *state;
    int32_t n, cap;
    int32_t *rule; /* [n_set] of each set; -1: not made yet */
    bool ascii;    /* the pattern names no character beyond ASCII */
    /* the product with counts */
    int64_t min, max;
    int64_t counts; /* that are told apart: 0 .. counts - 1 */
    int32_t *at;    /* [n][counts] states of the network; 0: not asked for */
    int64_t *queue; /* of those that were asked for and are not filled in */
    int64_t n_queue, cap_queue;
    err *e;
} pattern;

static int32_t add(pattern *p, char_state s) {
    if (p->n < MOST_STATES) VEC_PUSH(p->state, p->n, p->cap, s);
    return p->n - 1;
}

static status refuse(pattern *p, const char *what) {
    return err_set(p->e, ST_USAGE, "%s", what);
}

/* ---- tree to automaton, from the end ---- */

static status build(pattern *p, const rx_node *t, int32_t next, int32_t *start);

/* Perhaps a character from each of the rest; *loop is a state that comes back to itself. */
static int32_t any_number(pattern *p, int32_t next) {
    int32_t loop = add(p, (char_state){.kind = EDGE_SPLIT, .b = next});
    int32_t any = add(p, (char_state){.kind = EDGE_SET, .set = -1, .a = loop});
    p->state[loop].a = any;
    return loop;
}

static status build_repeat(pattern *p, const rx_node *t, int32_t next, int32_t *start) {
    int32_t at = next;
    if (t->mode == RX_POSSESSIVE) return refuse(p, "possessive repetition is not supported");
    if (t->max < 0) {
        at = add(p, (char_state){.kind = EDGE_SPLIT, .b = next});
        int32_t body;
        TRY(build(p, t->child[0], at, &body));
        p->state[at].a = body;
    }
    for (int i = (t->max < 0 ? t->min : t->max) - 1; i >= 0 && p->n < MOST_STATES; i--) {
        int32_t more;
        TRY(build(p, t->child[0], at, &more));
        at = i >= t->min ? add(p, (char_state){.kind = EDGE_SPLIT, .a = more, .b = next}) : more;
    }
    *start = at;
    return ST_OK;
}

static status build_choice(pattern *p, const rx_node *t, int32_t next, int32_t *start) {
    TRY(build(p, t->child[t->n_child - 1], next, start));
    for (int32_t i = t->n_child - 2; i >= 0; i--) {
        int32_t other;
        TRY(build(p, t->child[i], next, &other));
        *start = add(p, (char_state){.kind = EDGE_SPLIT, .a = other, .b = *start});
    }
    return ST_OK;
}

static status build(pattern *p, const rx_node *t, int32_t next, int32_t *start) {
    *start = next;
    switch (t->kind) {
        case RX_EMPTY: return ST_OK;
        case RX_SET:
            *start = add(p, (char_state){.kind = EDGE_SET, .set = t->set, .a = next});
            return ST_OK;
        case RX_CAT:
            for (int32_t i = t->n_child - 1; i >= 0; i--) TRY(build(p, t->child[i], *start, start));
            return ST_OK;
        case RX_ALT: return build_choice(p, t, next, start);
        case RX_REPEAT: return build_repeat(p, t, next, start);
        case RX_GROUP: return build(p, t->child[0], next, start);
        case RX_ATOMIC: return refuse(p, "atomic groups are not supported");
        case RX_LOOK: return refuse(p, "looking ahead or behind is not supported");
        default: return refuse(p, "only ^ at the beginning and $ at the end are supported");
    }
}

static bool is_at(const rx_node *t, bool end) {
    if (t->kind != RX_ASSERT) return false;
    return end ? t->where == RX_TEXT_END || t->where == RX_TEXT_END_LINE
               : t->where == RX_TEXT_BEGIN;
}

/* One of the alternatives of the whole: what is not anchored may stand anywhere. */
static status build_search(pattern *p, const rx_node *t, int32_t accept, int32_t *start) {
    rx_node inner = *t,
            whole = {.kind = RX_CAT, .child = (rx_node *[]){(rx_node *)t}, .n_child = 1};
    if (t->kind != RX_CAT) inner = whole;
    bool from_start = inner.n_child > 0 && is_at(inner.child[0], false);
    if (from_start) inner.child++; /* an empty pattern has none */
    inner.n_child -= from_start;
    bool to_end = inner.n_child > 0 && is_at(inner.child[inner.n_child - 1], true);
    inner.n_child -= to_end;
    int32_t next = to_end ? accept : any_number(p, accept);
    TRY(build(p, &inner, next, start));
    if (!from_start) *start = any_number(p, *start);
    return ST_OK;
}

static status build_whole(pattern *p, int32_t *start) {
    int32_t accept = add(p, (char_state){.kind = EDGE_ACCEPT});
    const rx_node *t = p->tree->root;
    if (t->kind != RX_ALT) return build_search(p, t, accept, start);
    TRY(build_search(p, t->child[0], accept, start));
    for (int32_t i = 1; i < t->n_child; i++) {
        int32_t other;
        TRY(build_search(p, t->child[i], accept, &other));
        *start = add(p, (char_state){.kind = EDGE_SPLIT, .a = *start, .b = other});
    }
    return ST_OK;
}

/* ---- sets of characters ---- */

/* The members below `end` as ranges. */
static int32_t by_edges(network *n, const rx_set *s, uint32_t end) {
    int32_t at = NET_DEAD;
    for (int i = 0; i + 1 < s->n && s->edge[i] < end; i += 2) {
        uint32_t hi = s->edge[i + 1] < end ? s->edge[i + 1] : end;
        at = net_split(n, json_char(n, s->edge[i], hi - 1, NET_END), at);
    }
    return at;
}

/* The same where a set is a union of Unicode's classes. */
static int32_t by_search(network *n, const rx_set *s, uint32_t end) {
    int32_t at = NET_DEAD;
    for (uint32_t lo = 0, hi; lo < end; lo = hi) {
        while (lo < end && !rx_set_has(s, lo)) lo++;
        for (hi = lo; hi < end && rx_set_has(s, hi);) hi++;
        if (lo < hi) at = net_split(n, json_char(n, lo, hi - 1, NET_END), at);
    }
    return at;
}

static bool are_same(const rx_set *a, const rx_set *b) {
    return a->mask && a->mask == b->mask && memcmp(a->low, b->low, sizeof a->low) == 0;
}

/* A set that has a code point of no character is the rest of another: it keeps what is beyond ASCII.
 * Others have that only by \d, \w and \s, if the pattern names no such character. */
static int32_t rule_of_set(pattern *p, int set) {
    network *n = p->c->net;
    if (set < 0) return json_rule_of(p->c->json, RULE_CHAR);
    const rx_set *s = &p->tree->set[set];
    for (int i = 0; p->rule[set] < 0 && i < p->tree->n_set; i++)
        if (p->rule[i] >= 0 && are_same(&p->tree->set[i], s)) p->rule[set] = p->rule[i];
    if (p->rule[set] >= 0) return p->rule[set];
    uint32_t end = p->ascii && !rx_set_has(s, UNASSIGNED) ? 0x80 : 0x110000;
    if (s->mask && end > 0x80 && ++p->c->searches > MOST_SEARCHES) n->full = true;
    int32_t rule = net_new_rule(n);
    if (!n->full) net_set_rule(n, rule, s->mask ? by_search(n, s, end) : by_edges(n, s, end));
    return p->rule[set] = rule;
}

/* ---- with counts, as states of the network ---- */

static int32_t state_at(pattern *p, int32_t state, int64_t count) {
    int64_t i = state * p->counts + count;
    if (p->at[i] == 0 && !p->c->net->full) {
        p->at[i] = net_reserve(p->c->net);
        VEC_PUSH(p->queue, p->n_queue, p->cap_queue, i);
    }
    return p->at[i];
}

static void fill_in(pattern *p, int64_t i, int32_t close) {
    const char_state *s = &p->state[i / p->counts];
    int64_t count = i % p->counts, more = count + 1 < p->counts ? count + 1 : count;
    int32_t a = NET_DEAD, b = NET_DEAD;
    if (s->kind == EDGE_ACCEPT) {
        if (count >= p->min) a = close;
    } else if (s->kind == EDGE_SPLIT) {
        a = state_at(p, s->a, count);
        b = state_at(p, s->b, count);
    } else if (p->max < 0 || count < p->max) {
        a = net_call(p->c->net, rule_of_set(p, s->set), state_at(p, s->a, more));
    }
    net_set(p->c->net, p->at[i], a, b);
}

static status to_network(pattern *p, int32_t *start) {
    int32_t first, close = net_byte(p->c->net, '"', '"', NET_END);
    TRY(build_whole(p, &first));
    p->counts = (p->max < 0 ? p->min : p->max) + 1;
    if (p->n >= MOST_STATES || p->n * p->counts > NET_MAX_STATES)
        return refuse(p, "the pattern, with its lengths, is too large");
    p->at = xcalloc((size_t)(p->n * p->counts), sizeof *p->at);
    *start = net_byte(p->c->net, '"', '"', state_at(p, first, 0));
    while (p->n_queue > 0) fill_in(p, p->queue[--p->n_queue], close);
    return ST_OK;
}

static bool is_ascii(const char *s) {
    if (strstr(s, "\\u") || strstr(s, "\\x") || strstr(s, "\\p") || strstr(s, "\\P")) return false;
    while (*s > 0) s++;
    return *s == '\0';
}

status pattern_string(schema *c, const char *text, int64_t min, int64_t max, int32_t *start,
                      err *e) {
    arena *mem = arena_new("pattern");
    rx_tree tree = {.mem = mem, .scratch = mem, .python = true};
    pattern p = {.c = c, .tree = &tree, .min = min, .max = max, .e = e, .ascii = is_ascii(text)};
    *start = NET_DEAD;
    if (++c->patterns > MOST_PATTERNS) c->net->full = true;
    status st = c->net->full ? ST_OK : rx_parse(&tree, text, e);
    p.rule = xmalloc(sizeof *p.rule * (size_t)(tree.n_set + 1));
    for (int32_t i = 0; i < tree.n_set; i++) p.rule[i] = -1;
    if (st == ST_OK && !c->net->full) st = to_network(&p, start);
    arena_free(mem);
    free(p.rule);
    free(p.state);
    free(p.at);
    free(p.queue);
    return st;
}

/* ---- formats ---- */

/* RFC 3339, without leap seconds and the year 0. */
#define YEAR "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define FOURTH "(?:0[48]|[2468][048]|[13579][26])"
#define LEAP_YEAR "(?:[0-9]{2}" FOURTH "|" FOURTH "00)"
#define DAY                                                                                        \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"      \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define DATE "(?:" YEAR "-" DAY "|" LEAP_YEAR "-02-29)"
#define HOUR "(?:[01][0-9]|2[0-3])"
#define TIME HOUR ":[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-]" HOUR ":[0-5][0-9])"
/* Its appendix A. */
#define SPAN_TIME                                                                                  \
    "(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)"
#define SPAN_DATE                                                                                  \
    "(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
#define WORDS "[A-Za-z0-9_+-]{1,20}"

const char *pattern_of_format(const char *format) {
    static const struct {
        const char *name, *pattern;
    } known[] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "T" TIME "$"},
        {"duration", "^P(?:" SPAN_DATE "(?:T" SPAN_TIME ")?|T" SPAN_TIME "|[0-9]{1,4}W)$"},
        {"uuid", "^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        {"ipv4", "^" OCTET "(?:\\." OCTET "){3}$"},
        {"ipv6", "^(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
        {"hostname", "^" LABEL "(?:\\." LABEL "){0,4}$"},
        {"email", "^" WORDS "(?:\\." WORDS "){0,2}@" LABEL "(?:\\." LABEL "){1,3}$"},
        {"uri", "^[a-z][a-z0-9+.-]{1,10}://" LABEL "(?:\\." LABEL "){0,4}(?::[1-9][0-9]{0,3})?"
                "(?:/[A-Za-z0-9._~-]*)*(?:\\?[A-Za-z0-9._~=&-]*)?(?:#[A-Za-z0-9._~-]*)?$"},
    };
    for (int i = 0; i < (int)(sizeof known / sizeof *known); i++)
        if (strcmp(known[i].name, format) == 0) return known[i].pattern;
    return NULL;
}
