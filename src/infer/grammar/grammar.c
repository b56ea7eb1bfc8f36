#include "infer/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "infer/grammar/acceptor.h"
#include "infer/grammar/schema.h"

_Static_assert((int)TOKEN_TRIE_DEPTH <= (int)NET_NEAR, "a token is no longer than what is near");

enum {
    MASKS = 128,
    /* Places that one walk looks at: more of them than any but a hostile schema has, in a few
     * hundredths of a second. */
    MOST_WORK = 3 << 16,
    WAY_BYTES = 1 << 12,
    MOST_WAY_BYTES = 1 << 16 /* of all ways from one set */
};

/* What may follow a set, with any number of tokens left. */
typedef struct known_mask {
    int32_t set; /* 0: none is known */
    uint32_t most_dist;
    uint64_t *bits;
} known_mask;

typedef struct text {
    constraint base;
    grammar *grammar;
    int32_t set;
} text;

struct grammar {
    network net;
    acceptor *acceptor;
    const token_trie *vocab;
    known_mask mask[MASKS];
    text **texts; /* that stand somewhere */
    int n_texts, cap_texts;
};

/* ---- the shortest end ---- */

/* Tokens of the shortest way from a place, the longest that fits taken each time. Of a long way only
 * the beginning is looked at. */
static int64_t tokens_to_end(const grammar *g, place p, size_t *spent) {
    char way[WAY_BYTES];
    size_t len = acceptor_shortest(g->acceptor, p, way, sizeof way), n;
    int64_t tokens = 0;
    *spent += len;
    for (size_t at = 0; at < len; at += n, tokens++) {
        if (token_trie_longest(g->vocab, way + at, len - at, &n) < 0) n = 1;
    }
    return len < sizeof way ? tokens : tokens * 4;
}

/* Tokens to the end at most, along the best way from any place of a set. */
static int64_t bound_of(const grammar *g, int32_t set) {
    place_set *s = &g->acceptor->set[set];
    if (s->final) return 0;
    if (s->bound >= 0) return s->bound;
    int64_t best = INT64_MAX / 2;
    size_t spent = 0;
    for (int32_t i = 0; i < s->n && spent < MOST_WAY_BYTES; i++) {
        int64_t n = tokens_to_end(g, s->place[i], &spent);
        if (n < best) best = n;
    }
    return s->bound = best;
}

/* ---- a walk over the vocabulary ---- */

typedef struct walk {
    grammar *g;
    uint64_t *mask;
    bool steered;
    int64_t most_bound; /* if steered: that may be left after a token */
    uint32_t most_dist;
    int64_t began; /* at so much work of the acceptor */
    bool any;
} walk;

static void allow_tokens(walk *w, int32_t id, int32_t set) {
    const place_set *s = &w->g->acceptor->set[set];
    if (w->steered && s->dist > w->most_bound && bound_of(w->g, set) > w->most_bound) return;
    if (s->dist > w->most_dist) w->most_dist = s->dist;
    for (; id >= 0; id = w->g->vocab->same[id]) w->mask[id / 64] |= (uint64_t)1 << id % 64;
    w->any = true;
}

static bool is_long(const walk *w) {
    return w->g->acceptor->work - w->began >= MOST_WORK;
}

static void walk_list(walk *w, int32_t set) {
    const token_trie *v = w->g->vocab;
    int32_t at[TOKEN_TRIE_DEPTH + 1] = {set};
    for (int32_t i = 0; i < v->n && !is_long(w);) {
        const trie_node *k = &v->node[i];
        int32_t to = acceptor_step(w->g->acceptor, at[k->depth - 1], k->byte);
        i = to == ACCEPTOR_DEAD ? k->skip : i + 1;
        if (to == ACCEPTOR_DEAD) continue;
        at[k->depth] = to;
        if (k->id >= 0) allow_tokens(w, k->id, to);
    }
}

/* Tokens that mark things, where the grammar's own texts have them. */
static void walk_added(walk *w, int32_t set) {
    const token_trie *v = w->g->vocab;
    for (int32_t i = 0; w->g->net.wraps && i < v->n_added; i++) {
        size_t n;
        const char *s = tok_bytes(v->tok, v->added[i], &n);
        int32_t to = set;
        for (size_t k = 0; k < n && to != ACCEPTOR_DEAD; k++)
            to = acceptor_step_wrapper(w->g->acceptor, to, (uint8_t)s[k]);
        if (to != ACCEPTOR_DEAD) allow_tokens(w, v->added[i], to);
    }
}

/* A walk that was cut short has the first token of a way to the end all the same. */
static void allow_way(walk *w, int32_t set) {
    const place_set *s = &w->g->acceptor->set[set];
    char way[TOKEN_TRIE_DEPTH];
    for (int32_t i = 0; i < s->n && i < 16; i++) {
        size_t len = acceptor_shortest(w->g->acceptor, s->place[i], way, sizeof way), n;
        int32_t id = token_trie_longest(w->g->vocab, way, len, &n), to = set;
        for (size_t k = 0; k < n; k++) to = acceptor_step(w->g->acceptor, to, (uint8_t)way[k]);
        if (id >= 0 && to != ACCEPTOR_DEAD) allow_tokens(w, id, to);
        s = &w->g->acceptor->set[set]; /* it may have moved */
    }
}

static int64_t mask_words(const grammar *g) {
    return ((int64_t)g->vocab->n_ids + 63) / 64;
}

static walk walk_from(grammar *g, int32_t set, uint64_t *mask, bool steered, int64_t most_bound) {
    walk w = {.g = g,
              .mask = mask,
              .steered = steered,
              .most_bound = most_bound,
              .began = g->acceptor->work};
    memset(mask, 0, sizeof *mask * (size_t)mask_words(g));
    walk_list(&w, set);
    walk_added(&w, set);
    if (is_long(&w)) allow_way(&w, set);
    return w;
}

/* ---- the constraint ---- */

static const known_mask *mask_of(grammar *g, int32_t set) {
    set = acceptor_alike(g->acceptor, set);
    known_mask *k = &g->mask[set % MASKS];
    if (k->set == set) return k;
    if (!k->bits) k->bits = xmalloc(sizeof *k->bits * (size_t)(mask_words(g) + 1));
    walk w = walk_from(g, set, k->bits, false, 0);
    k->most_dist = w.any ? w.most_dist : 0;
    k->set = set;
    return k;
}

static bool is_any(const uint64_t *mask, int64_t words) {
    for (int64_t i = 0; i < words; i++)
        if (mask[i]) return true;
    return false;
}

static bool text_allow(constraint *c, int64_t left, uint64_t *mask) {
    text *t = (text *)c;
    grammar *g = t->grammar;
    const known_mask *k = mask_of(g, t->set);
    if (k->most_dist < left) {
        memcpy(mask, k->bits, sizeof *mask * (size_t)mask_words(g));
        return is_any(mask, mask_words(g));
    }
    int64_t bound = bound_of(g, t->set);
    walk w = walk_from(g, t->set, mask, true, (bound > left ? bound : left) - 1);
    /* The bound of a long way is a guess, which a token need not lessen. */
    w.steered &= w.any;
    if (!w.any) allow_way(&w, t->set);
    return w.any;
}

static bool text_may_end(const constraint *c) {
    const text *t = (const text *)c;
    return t->grammar->acceptor->set[t->set].final;
}

static bool text_must_end(const constraint *c) {
    const text *t = (const text *)c;
    return text_may_end(c) && t->grammar->acceptor->set[t->set].n == 0;
}

static void forget(grammar *g) {
    int32_t **keep = xmalloc(sizeof(int32_t *) * (size_t)g->n_texts);
    for (int i = 0; i < g->n_texts; i++) keep[i] = &g->texts[i]->set;
    acceptor_forget(g->acceptor, keep, g->n_texts);
    for (int i = 0; i < MASKS; i++) g->mask[i].set = ACCEPTOR_DEAD;
    free(keep);
}

static void text_take(constraint *c, int32_t id) {
    text *t = (text *)c;
    size_t n;
    const char *s = tok_bytes(t->grammar->vocab->tok, id, &n);
    for (size_t i = 0; i < n; i++)
        t->set = acceptor_step(t->grammar->acceptor, t->set, (uint8_t)s[i]);
    CHECK(t->set != ACCEPTOR_DEAD, "token %d was not allowed", id);
    if (acceptor_is_large(t->grammar->acceptor)) forget(t->grammar);
}

static void text_free(constraint *c) {
    text *t = (text *)c;
    grammar *g = t->grammar;
    int i = 0;
    while (g->texts[i] != t) i++;
    g->texts[i] = g->texts[--g->n_texts];
    free(t);
}

constraint *grammar_constrain(grammar *g) {
    static const constraint_class class = {.allow = text_allow,
                                           .take = text_take,
                                           .may_end = text_may_end,
                                           .must_end = text_must_end,
                                           .free = text_free};
    text *t = xcalloc(1, sizeof *t);
    *t = (text){.base.class = &class, .grammar = g, .set = g->acceptor->start};
    VEC_PUSH(g->texts, g->n_texts, g->cap_texts, t);
    return &t->base;
}

/* ---- making one ---- */

static status refuse_size(err *e) {
    err_set(e, ST_USAGE, "the schema is too large: its automaton has more than %d states",
            NET_MAX_STATES);
    return err_hint(e, "smaller lengths, counts or patterns, or fewer combinations");
}

/* One form, whose parts lead to `next`. */
static status build_form(network *net, json_rules *json, const grammar_form *f, int32_t next,
                         int32_t *start, err *e) {
    for (int i = f->n_parts - 1; i >= 0; i--) {
        const grammar_part *p = &f->part[i];
        int32_t rule;
        if (p->text) {
            next = net_text(net, p->text, strlen(p->text), true, next);
        } else if (p->object) {
            next = json_call(json, RULE_OBJECT, next);
        } else {
            TRY(schema_compile(json, p->schema, &rule, e));
            next = net_call(net, rule, next);
        }
    }
    *start = next;
    return ST_OK;
}

/* The forms in one rule, and that rule so often as may be. */
static status build(network *net, const grammar_spec *spec, err *e) {
    json_rules json = {.net = net, .comparisons = 20000000};
    int32_t whole = net_new_rule(net), forms = net_new_rule(net), all = NET_DEAD;
    for (int i = spec->n_forms - 1; i >= 0; i--) {
        int32_t start;
        TRY(build_form(net, &json, &spec->form[i], NET_END, &start, e));
        all = net_split(net, start, all);
    }
    net_set_rule(net, forms, all);
    const char *between = spec->between ? spec->between : "";
    int32_t at = NET_END;
    for (int i = 1; i < spec->most; i++) {
        int32_t more = net_text(net, between, strlen(between), true, net_call(net, forms, at));
        at = net_split(net, NET_END, more);
    }
    net_set_rule(net, whole, net_call(net, forms, at));
    if (net->full || !net_finish(net)) return refuse_size(e);
    if (net->dist[net->rule[whole]] != NET_FAR) return ST_OK;
    err_set(e, ST_USAGE, "no value is valid by this schema that can be written");
    return err_hint(
        e,
        "required properties must be allowed, and limits must leave a value; a schema that needs "
        "itself has no end");
}

/* The characters of JSON, one by one: then a text that has begun can be ended. */
static status check_vocabulary(const token_trie *v, err *e) {
    for (char c = ' '; c <= '~'; c++) {
        size_t n;
        if (token_trie_longest(v, &c, 1, &n) >= 0) continue;
        err_set(e, ST_USAGE, "the vocabulary has no token for the character '%c'", c);
        return err_hint(e, "only a model whose tokenizer knows all of ASCII can be held to JSON");
    }
    return ST_OK;
}

status grammar_new(grammar **out, const token_trie *vocab, const grammar_spec *spec, err *e) {
    *out = NULL;
    TRY(check_vocabulary(vocab, e));
    grammar *g = xcalloc(1, sizeof *g);
    g->vocab = vocab;
    net_init(&g->net);
    status st = build(&g->net, spec, e);
    if (st != ST_OK) {
        grammar_free(g);
        return st;
    }
    g->acceptor = acceptor_new(&g->net);
    *out = g;
    return ST_OK;
}

status grammar_of_schema(grammar **out, const token_trie *vocab, const json_t *schema, err *e) {
    grammar_part part = {.schema = schema, .object = schema == NULL};
    grammar_form form = {&part, 1};
    return grammar_new(out, vocab, &(grammar_spec){.form = &form, .n_forms = 1}, e);
}

size_t grammar_bytes(const grammar *g) {
    return (size_t)g->net.cap * sizeof *g->net.state + (size_t)g->net.n * sizeof *g->net.dist;
}

void grammar_free(grammar *g) {
    if (!g) return;
    CHECK(g->n_texts == 0, "%d constraints are left", g->n_texts);
    for (int i = 0; i < MASKS; i++) free(g->mask[i].bits);
    acceptor_free(g->acceptor);
    net_free(&g->net);
    free(g->texts);
    free(g);
}
