/* The loop of merges; see bpe.h for what the parts are.
 *
 * With a list of the places of every pair a merge touches just those. The lists take as much memory
 * again as the text; while they do not fit, each merge searches the whole text instead, on all
 * cores, which is affordable because the first merges shorten the text most. Lists never hold all
 * that was ever true: a place that no longer has the pair is skipped when its list is used.
 *
 * A pair that was in the heap can be gained again, when a token is made a second time from other
 * parts ("aa" + "a", "a" + "aa"). Then it has a second list and heap entry. As in BpeTrainer, the
 * entry that comes up first replaces the pair in the words of its own list, the other one later,
 * and the rank of the pair is that of the last time. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/train/bpe.h"

enum {
    MAX_THREADS = 16,          /* each has arrays by symbol */
    PARALLEL_PLACES = 1 << 14, /* shorter lists are not worth waking threads for */
    LARGE_TEXT = 1 << 24,      /* symbols from which pairs too rare to merge are not kept */
    PAIR_BYTES = 80            /* that a pair takes in the table, in the heap and in its list */
};
#define FILL_NONE UINT64_MAX

typedef struct merger {
    const bpe_job *job;
    bpe_text *text;
    tok_draft *draft;
    int64_t n_ends; /* places of the text that hold no symbol */
    bpe_pairs pairs;
    bpe_heap heap;
    bpe_lists lists;
    bpe_gains gains[MAX_THREADS];
    int n_threads;
    str_map strings; /* token -> id */
    uint32_t *expanded;
    uint32_t n_expanded, cap_expanded;
    int64_t n_dead; /* merges whose rank a later one took */
    bool keep_rare;
} merger;

/* ---- memory ---- */

/* Room for places beside the text and beside pairs and heap, of which a merge adds some 200. */
static uint64_t pool_capacity(const merger *m) {
    uint64_t wanted = 4 * (uint64_t)m->text->live + 1024;
    int64_t ram_bytes = m->job->ram_bytes, expected = 200 * (int64_t)m->job->n_tokens;
    int64_t text_bytes = (m->text->live + m->n_ends) * 17 / 4;
    int64_t pair_bytes =
        PAIR_BYTES * expected < ram_bytes / 3 ? PAIR_BYTES * expected : ram_bytes / 3;
    if (pair_bytes < PAIR_BYTES * (int64_t)m->pairs.n) pair_bytes = PAIR_BYTES * m->pairs.n;
    if (ram_bytes <= 0) return wanted;
    int64_t room = ram_bytes - text_bytes - pair_bytes;
    if (room <= 0) return 0;
    uint64_t fits = (uint64_t)room / sizeof(uint32_t);
    return fits < wanted ? fits : wanted;
}

static bool lists_fit(const merger *m) {
    return pool_capacity(m) / 5 * 4 >= (uint64_t)m->text->live;
}

static void fill_heap_without_lists(merger *m) {
    for (uint32_t i = 0; i < m->pairs.n; i++) {
        const bpe_pair *p = &m->pairs.pair[i];
        bpe_heap_push(&m->heap, (bpe_entry){.count = p->count, .pair = p->pair, .list = LIST_NONE});
    }
}

static bool searching(const merger *m) {
    return m->lists.cap_pool == 0;
}

/* Makes the lists as soon as they fit; until then keeps the text dense. */
static void adapt_to_memory(merger *m) {
    if (!searching(m)) return;
    int64_t dense = m->text->live + m->n_ends;
    bool fit = lists_fit(m);
    if (dense < m->text->n / 4 * 3 || (fit && dense < m->text->n)) bpe_text_compact(m->text);
    if (!fit) return;
    bpe_lists_build(&m->lists, &m->heap, &m->pairs, m->text, pool_capacity(m), m->n_threads);
}

/* Places that merging the entry may add: two for each pair replaced. A second list can bring in
 * more than the entry's own, but no more than the pair has in all. */
static uint64_t room_for(const merger *m, const bpe_entry *e) {
    const bpe_list *l = &m->lists.list[e->list];
    if (m->pairs.pair[l->pair].n_lists <= 1) return 2 * (uint64_t)l->n;
    return 2 * (uint64_t)(e->count < m->text->live ? e->count : m->text->live);
}

/* Makes room for what merging the top entry will add.
 * What is gone is dropped, and the text gives back what merges have freed. */
static void make_room(merger *m, bpe_entry *top) {
    if (searching(m)) return;
    uint64_t room = room_for(m, top);
    if (m->lists.n_pool + room <= m->lists.cap_pool) return;
    bpe_heap_push(&m->heap, *top);
    int64_t dense = m->text->live + m->n_ends;
    bpe_lists_collect(&m->lists, &m->heap, &m->pairs, m->text, dense < m->text->n / 4 * 3);
    *top = bpe_heap_pop(&m->heap);
    room = room_for(m, top);
    uint64_t least = m->lists.n_pool + room, cap = pool_capacity(m);
    bpe_lists_resize(&m->lists, cap > least + least / 4 ? cap : least + least / 4);
}

/* ---- one merge: the text ---- */

/* Shares of a list that threads can work on at once: between two shares lies a symbol at least, so
 * that no place is written by one thread and read by another. */
static void cut_list(const merger *m, const uint32_t *place, uint32_t n, uint32_t *cut) {
    const int32_t *sym = m->text->sym;
    cut[0] = 0;
    for (int i = 1; i < m->n_threads; i++) {
        uint32_t k = (uint32_t)((uint64_t)n * (uint64_t)i / (uint64_t)m->n_threads);
        if (k < cut[i - 1]) k = cut[i - 1];
        for (; k > 0 && k < n; k++) {
            int64_t p = place[k - 1], q = p + sym_length(sym, p);
            if (sym[p] < 0 || sym[q] < 0 || place[k] > q + sym_length(sym, q)) break;
        }
        cut[i] = k;
    }
    cut[m->n_threads] = n;
}

static void apply_list(merger *m, const uint32_t *place, uint32_t n, const int32_t abc[3]) {
    if (m->n_threads == 1 || n < PARALLEL_PLACES) {
        bpe_apply_list(&m->gains[0], m->text, place, n, abc[0], abc[1], abc[2]);
        return;
    }
    uint32_t cut[MAX_THREADS + 1];
    cut_list(m, place, n, cut);
#pragma omp parallel for schedule(static, 1) num_threads(m->n_threads)
    for (int i = 0; i < m->n_threads; i++) {
        bpe_apply_list(&m->gains[i], m->text, place + cut[i], cut[i + 1] - cut[i], abc[0], abc[1],
                       abc[2]);
    }
}

static void apply_everywhere(merger *m, const int32_t abc[3]) {
    int64_t cut[MAX_THREADS + 1];
    int n_threads = m->text->n < PARALLEL_PLACES ? 1 : m->n_threads;
    bpe_text_cut(m->text, n_threads, cut);
#pragma omp parallel for schedule(static, 1) num_threads(n_threads)
    for (int i = 0; i < n_threads; i++) {
        bpe_apply_range(&m->gains[i], m->text, cut[i], cut[i + 1], abc[0], abc[1], abc[2]);
    }
}

/* All places of the pair in the words that a list touches. */
static void expand_to_words(merger *m, const uint32_t *place, uint32_t n, int32_t a, int32_t b) {
    const int32_t *sym = m->text->sym;
    int64_t done = 0;
    m->n_expanded = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t p = place[i];
        if (p < done) continue;
        while (sym[p - 1] != SYM_END) p--;
        for (; sym[p] != SYM_END; p += sym_length(sym, p)) {
            if (!sym_is_pair(sym, p, a, b)) continue;
            VEC_PUSH(m->expanded, m->n_expanded, m->cap_expanded, (uint32_t)p);
        }
        done = p;
    }
}

static void replace_pair(merger *m, const bpe_entry *top, bpe_pair *pair, const int32_t abc[3]) {
    for (int i = 0; i < m->n_threads; i++) m->gains[i].keep_events = !searching(m);
    if (searching(m)) {
        apply_everywhere(m, abc);
    } else {
        const bpe_list *l = &m->lists.list[top->list];
        const uint32_t *place = m->lists.pool + l->at;
        uint32_t n = l->n;
        if (pair->n_lists > 1) {
            expand_to_words(m, place, n, abc[0], abc[1]);
            place = m->expanded;
            n = m->n_expanded;
        }
        pair->n_lists--;
        apply_list(m, place, n, abc);
    }
    for (int i = 1; i < m->n_threads; i++) bpe_gains_merge(&m->gains[0], &m->gains[i]);
    m->text->live -= m->gains[0].n;
}

/* ---- one merge: the pairs ---- */

static void lose(merger *m, int32_t a, int32_t b, int64_t count) {
    int64_t at = bpe_pairs_find(&m->pairs, pair_key(a, b));
    if (at >= 0) m->pairs.pair[at].count -= count;
}

/* Adds to a pair's count and remembers the pair in `fill`. */
static void win(merger *m, uint64_t pair, int64_t count, uint64_t *fill) {
    *fill = FILL_NONE;
    if (!m->keep_rare && count < m->job->min_frequency && bpe_pairs_find(&m->pairs, pair) < 0) {
        return;
    }
    uint32_t at = bpe_pairs_add(&m->pairs, pair);
    m->pairs.pair[at].count += count;
    *fill = at;
}

static void count_gains(merger *m, const bpe_gains *g, const int32_t abc[3]) {
    for (int32_t i = 0; i < g->left.n_seen; i++) {
        int32_t x = g->left.seen[i];
        lose(m, x, abc[0], g->left.count[x]);
        win(m, pair_key(x, abc[2]), g->left.count[x], &g->left.fill[x]);
    }
    for (int32_t i = 0; i < g->right.n_seen; i++) {
        int32_t y = g->right.seen[i];
        lose(m, abc[1], y, g->right.count[y]);
        int64_t own = y == abc[2] ? g->own : 0;
        win(m, pair_key(abc[2], y), g->right.count[y] + own, &g->right.fill[y]);
    }
    if (g->undo > 0) lose(m, abc[2], abc[0], g->undo);
}

/* Puts the pairs of one side into the heap, with their places. */
static void queue_gains(merger *m, const bpe_side *s) {
    for (int32_t i = 0; i < s->n_seen; i++) {
        int32_t x = s->seen[i];
        if (s->fill[x] == FILL_NONE) continue;
        uint32_t at = (uint32_t)s->fill[x];
        bpe_pair *p = &m->pairs.pair[at];
        s->fill[x] = FILL_NONE;
        if (p->count <= 0) continue;
        uint32_t list = LIST_NONE;
        if (!searching(m)) {
            s->fill[x] = m->lists.n_pool;
            bpe_lists_add(&m->lists, at, s->n[x]);
            list = m->lists.n - 1;
            p->n_lists++;
        }
        bpe_heap_push(&m->heap, (bpe_entry){.count = p->count, .pair = p->pair, .list = list});
    }
    for (uint32_t i = 0; i < s->n_events; i++) {
        uint64_t *fill = &s->fill[s->event[i].neighbour];
        if (*fill != FILL_NONE) m->lists.pool[(*fill)++] = s->event[i].place;
    }
}

static void take_gains(merger *m, const int32_t abc[3]) {
    bpe_gains *g = &m->gains[0];
    count_gains(m, g, abc);
    queue_gains(m, &g->left);
    queue_gains(m, &g->right);
    bpe_gains_clear(g);
}

/* ---- one merge: tokens and ranks ---- */

/* A token without the prefix. */
static const char *bare(const merger *m, int32_t id) {
    const char *s = m->draft->token[id], *prefix = m->job->prefix;
    return prefix && strncmp(s, prefix, strlen(prefix)) == 0 ? s + strlen(prefix) : s;
}

static int32_t n_chars(const char *s) {
    int32_t n = 0;
    for (; *s; s++) n += !utf8_continues(*s);
    return n;
}

static bool too_long(const merger *m, uint64_t pair) {
    return n_chars(bare(m, (int32_t)(pair >> 32))) + n_chars(bare(m, (int32_t)(uint32_t)pair)) >
           m->job->longest;
}

/* The id of a + b, which may exist already by another way of cutting it. */
static int32_t merged_id(merger *m, int32_t a, int32_t b) {
    char *text = arena_printf(m->draft->mem, "%s%s", m->draft->token[a], bare(m, b));
    int32_t id = str_map_get(&m->strings, text, strlen(text));
    if (id >= 0) return id;
    tok_draft_add(m->draft, text);
    str_map_add(&m->strings, text, strlen(text), m->draft->n_token - 1);
    return m->draft->n_token - 1;
}

static void record_merge(merger *m, bpe_pair *pair, const int32_t abc[3]) {
    tok_draft *d = m->draft;
    if (pair->rank >= 0) {
        d->merge[pair->rank].left = -1;
        m->n_dead++;
    }
    pair->rank = d->n_merges;
    VEC_PUSH(d->merge, d->n_merges, d->cap_merges, ((tok_merge){abc[0], abc[1], abc[2]}));
}

static void drop_dead_merges(tok_draft *d) {
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_merges; i++) {
        if (d->merge[i].left >= 0) d->merge[n++] = d->merge[i];
    }
    d->n_merges = n;
}

static void merge_top(merger *m, bpe_entry *top) {
    make_room(m, top);
    bpe_pair *pair = &m->pairs.pair[bpe_pairs_find(&m->pairs, top->pair)];
    int32_t a = (int32_t)(top->pair >> 32), b = (int32_t)(uint32_t)top->pair;
    const int32_t abc[3] = {a, b, merged_id(m, a, b)};
    replace_pair(m, top, pair, abc);
    if (m->gains[0].n > 0 || !searching(m)) record_merge(m, pair, abc);
    take_gains(m, abc);
    adapt_to_memory(m);
}

/* ---- the loop ---- */

static void merge_until_full(merger *m) {
    const tok_draft *d = m->draft;
    int32_t start = d->n_token, total = m->job->n_tokens - start;
    int64_t least = m->job->min_frequency > 1 ? m->job->min_frequency : 1;
    while (d->n_token < m->job->n_tokens && m->heap.n > 0) {
        bpe_entry top = bpe_heap_pop(&m->heap);
        int64_t now = m->pairs.pair[bpe_pairs_find(&m->pairs, top.pair)].count;
        if (top.count != now) { /* back with its count of today */
            top.count = now;
            if (now > 0) bpe_heap_push(&m->heap, top);
            continue;
        }
        if (now < least) break;
        if (too_long(m, top.pair)) continue;
        merge_top(m, &top);
        if (d->n_merges % 64 == 0) {
            tok_train_report(m->job->opt, (double)(d->n_token - start) / total, "merges");
        }
    }
}

static void merger_init(merger *m, bpe_text *t, const bpe_job *job) {
    *m = (merger){.job = job, .text = t, .draft = job->draft};
    m->n_threads = omp_get_max_threads();
    if (m->n_threads > MAX_THREADS) m->n_threads = MAX_THREADS;
    m->n_ends = t->n - t->live;
    m->keep_rare = t->live < LARGE_TEXT;
    for (int i = 0; i < m->n_threads; i++) bpe_gains_init(&m->gains[i], job->n_tokens);
    for (int32_t i = 0; i < m->draft->n_token; i++) {
        const char *s = m->draft->token[i];
        str_map_add(&m->strings, s, strlen(s), i);
    }
}

static void merger_free(merger *m) {
    for (int i = 0; i < m->n_threads; i++) bpe_gains_free(&m->gains[i]);
    bpe_pairs_free(&m->pairs);
    bpe_lists_free(&m->lists);
    free(m->heap.entry);
    free(m->expanded);
    str_map_free(&m->strings);
}

void bpe_merge(bpe_text *t, const bpe_job *job) {
    merger m;
    merger_init(&m, t, job);
    bpe_pairs_count(&m.pairs, t, m.n_threads);
    if (lists_fit(&m)) {
        bpe_lists_build(&m.lists, &m.heap, &m.pairs, t, pool_capacity(&m), m.n_threads);
    } else {
        fill_heap_without_lists(&m);
    }
    merge_until_full(&m);
    drop_dead_merges(m.draft);
    merger_free(&m);
    bpe_text_free(t);
}
