#include "infer/generator.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/dtype.h"

void generator_prefill_lengths(int most_T, int T[GENERATOR_PREFILLS]) {
    enum { SHORTEST = 8, RATIO = 4 };
    T[0] = most_T > 1 ? most_T : 0;
    for (int i = 1; i < GENERATOR_PREFILLS; i++)
        T[i] = T[i - 1] / RATIO >= SHORTEST ? T[i - 1] / RATIO : 0;
}

void generator_reset(generator *g) {
    g->cached.n = 0;
}

void generator_free(generator *g) {
    tok_ids_free(&g->cached);
    free(g->inputs);
    free(g->logits);
    g->inputs = NULL;
    g->logits = NULL;
}

generator_pass generator_pass_of(const prog *p) {
    if (!p) return (generator_pass){0};
    prog_port ids = prog_find_port(p, "ids"), source = prog_find_port(p, "source");
    return (generator_pass){.p = p,
                            .T = ids.rows ? ids.rows : source.rows,
                            .source = source,
                            .source_pos = prog_find_port(p, "source_pos"),
                            .source_start = prog_find_port(p, "source_start"),
                            .source_end = prog_find_port(p, "source_end"),
                            .slots_end = prog_find_port(p, "slots_end"),
                            .seen_start = prog_find_port(p, "seen_start"),
                            .seen_end = prog_find_port(p, "seen_end"),
                            .ids = ids,
                            .pos = prog_find_port(p, "pos"),
                            .qpos = prog_find_port(p, "qpos"),
                            .span = prog_find_port(p, "span"),
                            .rows = prog_find_port(p, "rows"),
                            .logits = prog_find_port(p, "logits")};
}

/* ---- cutting into passes ---- */

/* What a pass costs beside its rows, in rows: reading all weights once. */
enum { PASS_COST = 4 };

/* The cost of the cheapest way through n tokens with `room` rows of cache left and the lengths from
 * T[i] on: all in padded passes of T[i] rows, or whole ones and then the rest with shorter ones.
 * *first is the rows of the first pass. */
static int64_t cheapest(const int *T, int i, int64_t n, int64_t room, int64_t *first) {
    *first = 1;
    if (n == 0) return 0;
    while (i < GENERATOR_PREFILLS && (!T[i] || T[i] > room)) i++;
    if (i == GENERATOR_PREFILLS) return n * (1 + PASS_COST);
    int64_t whole = n / T[i], rest = n % T[i], pass = T[i] + PASS_COST, then;
    int64_t cost = whole * pass + cheapest(T, i + 1, rest, room - whole * T[i], &then);
    bool padded = rest && (whole + 1) * T[i] <= room && (whole + 1) * pass <= cost;
    *first = whole || padded ? T[i] : then;
    return padded ? (whole + 1) * pass : cost;
}

int64_t generator_next_rows(const int T[GENERATOR_PREFILLS], int64_t n, int64_t room) {
    int64_t rows;
    cheapest(T, 0, n, room, &rows);
    return rows;
}

/* The program of the next pass. */
static const generator_pass *next_pass(const generator *g, int64_t n, int64_t room) {
    int T[GENERATOR_PREFILLS];
    for (int i = 0; i < GENERATOR_PREFILLS; i++) T[i] = (int)g->prefill[i].T;
    int64_t rows = generator_next_rows(T, n, room);
    for (int i = 0; i < GENERATOR_PREFILLS; i++)
        if (rows > 1 && T[i] == rows) return &g->prefill[i];
    return &g->decode;
}

/* ---- passes ---- */

static void make_room(generator *g) {
    if (g->inputs) return;
    int64_t T = g->prefill[0].T > 1 ? g->prefill[0].T : 1;
    if (g->encode[0].T > T) T = g->encode[0].T;
    g->inputs = xmalloc(sizeof *g->inputs * 4 * (size_t)T);
    g->logits = xmalloc(sizeof *g->logits * (size_t)g->vocab);
}

static void replay(const generator *g, const generator_pass *k) {
    op_run run = {.dev = g->dev, .first_micro = true, .grad_scale = 1.0f};
    if (g->replay)
        g->replay(g->replay_ctx, k->p, &run);
    else
        prog_replay(k->p, PROG_F, &run);
}

/* One pass of n <= T tokens; the rest of it is padding, whose cache rows the next pass overwrites.
 */
static void run_pass(generator *g, const generator_pass *k, const int32_t *ids, int64_t n) {
    int32_t *in = g->inputs, *pos = in + k->T, start = (int32_t)g->cached.n, last = (int32_t)n - 1;
    int32_t *from = pos + k->T, *to = from + k->T;
    for (int64_t i = 0; i < k->T; i++) {
        in[i] = i < n ? ids[i] : 0;
        pos[i] = start + (int32_t)i;
        from[i] = 0;
        to[i] = (int32_t)g->n_source;
    }
    prog_put(k->p, 0, k->seen_start, from);
    prog_put(k->p, 0, k->seen_end, to);
    prog_put(k->p, 0, k->ids, in);
    prog_put(k->p, 0, k->pos, pos);
    prog_put(k->p, 0, k->qpos, &start);
    prog_put(k->p, 0, k->rows, &last);
    int32_t span[2] = {start, (int32_t)n};
    prog_put(k->p, 0, k->span, span);
    replay(g, k);
    for (int64_t i = 0; i < n; i++) tok_ids_push(&g->cached, ids[i]);
}

void generator_put_slots(const generator_pass *k, int64_t n) {
    if (!k->slots_end.bytes) return;
    int32_t *all = xmalloc((size_t)k->slots_end.bytes);
    for (int64_t i = 0; i < k->slots_end.rows; i++) all[i] = (int32_t)n;
    prog_put(k->p, 0, k->slots_end, all);
    free(all);
}

void generator_set_source(generator *g, const int32_t *ids, int64_t n) {
    CHECK(n > 0 && n <= g->Smax, "a source of %ld tokens, and room for %d", (long)n, g->Smax);
    int i = GENERATOR_PREFILLS - 1;
    while (i > 0 && g->encode[i].T < n) i--;
    const generator_pass *k = &g->encode[i];
    make_room(g);
    int32_t *in = g->inputs, *pos = in + k->T, *from = pos + k->T, *to = from + k->T, first = 0;
    for (int64_t t = 0; t < k->T; t++) {
        in[t] = t < n ? ids[t] : 0;
        pos[t] = (int32_t)t;
        from[t] = 0;
        to[t] = t < n ? (int32_t)n : 0;
    }
    prog_put(k->p, 0, k->source, in);
    prog_put(k->p, 0, k->source_pos, pos);
    prog_put(k->p, 0, k->source_start, from);
    prog_put(k->p, 0, k->source_end, to);
    generator_put_slots(k, n);
    prog_put(k->p, 0, k->qpos, &first);
    replay(g, k);
    g->n_source = n;
    generator_reset(g);
}

float *generator_logits(generator *g) {
    prog_get(g->last->p, 0, g->last->logits, g->logits);
    return g->logits;
}

int32_t generator_pick(generator *g, const pick_rule *rule) {
    int32_t id;
    pick_rows(g->dev, prog_port_at(g->last->p, 0, g->last->logits), g->vocab, 1, g->n_ids, rule,
              &id);
    return id;
}

static int64_t common_prefix(const tok_ids *a, const int32_t *ids, int64_t n) {
    int64_t most = a->n < n ? a->n : n, i = 0;
    while (i < most && a->id[i] == ids[i]) i++;
    return i;
}

bool generator_advance(generator *g, const int32_t *ids, int64_t n,
                       const volatile sig_atomic_t *stop, int64_t *reused) {
    CHECK(n > 0 && n <= g->Tmax, "%ld tokens in a cache of %d", (long)n, g->Tmax);
    int64_t same = common_prefix(&g->cached, ids, n);
    if (same == n) same--; /* its logits are wanted */
    if (g->decode.span.rows && same < g->cached.n) same = 0;
    if (reused) *reused = same;
    g->cached.n = same;
    make_room(g);
    while (g->cached.n < n) {
        if (stop && *stop) return false;
        int64_t done = g->cached.n, left = n - done;
        g->last = next_pass(g, left, g->Tmax - done);
        run_pass(g, g->last, ids + done, left < g->last->T ? left : g->last->T);
    }
    return true;
}

float *generator_continue(generator *g, const int32_t *ids, int64_t n,
                          const volatile sig_atomic_t *stop, int64_t *reused) {
    return generator_advance(g, ids, n, stop, reused) ? generator_logits(g) : NULL;
}
