/* Expectation, maximisation, pruning; the rules are those of SentencePiece's trainer. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "tok/train/unigram.h"

static const double LEAST_EXPECTED = 0.5; /* pieces used less often are dropped */

/* Calls `body` for each run [run, run + len) of a part of the text. */
#define FOR_RUNS(text, start, end, run, len)                                                       \
    for (int64_t run = (start), len; run < (end); run += len + 1)                                  \
        if ((len = run_length((text)->sym, run, (end))) > 0)

static int64_t run_length(const int32_t *sym, int64_t at, int64_t end) {
    int64_t n = 0;
    while (at + n < end && sym[at + n] != SYM_END) n++;
    return n;
}

static int64_t count_at(const bpe_text *t, int64_t at) {
    return t->count[at / BLOCK_PLACES];
}

/* ---- expectation ---- */

static double expect_part(const uni_trainer *u, int part, uni_lattice *l, const double *weight,
                          int64_t *expected) {
    const bpe_text *t = u->model.text;
    double sum = 0;
    FOR_RUNS(t, u->part[part], u->part[part + 1], run, len) {
        int64_t count = count_at(t, run);
        uni_lattice_set(l, &u->trie, t->sym + run, (int32_t)len);
        sum += (double)count * uni_lattice_expect(l, weight, u->boost, count, u->bits, expected);
    }
    return sum;
}

/* Expected uses of each piece, in units of 2^-bits; the new boost through *log_p. */
static int64_t *expect(const uni_trainer *u, double *log_p) {
    const uni_model *m = &u->model;
    int64_t *total = xcalloc((size_t)m->n, sizeof(*total));
    double *weight = xmalloc(sizeof(*weight) * (size_t)m->n), sum[TEXT_PARTS];
    for (int32_t i = 0; i < m->n; i++) {
        weight[i] = exp(m->piece[i].score + u->boost * m->piece[i].len);
    }
#pragma omp parallel num_threads(u->n_threads)
    {
        int64_t *mine = xcalloc((size_t)m->n, sizeof(*mine));
        uni_lattice l = {0};
#pragma omp for schedule(dynamic)
        for (int i = 0; i < TEXT_PARTS; i++) sum[i] = expect_part(u, i, &l, weight, mine);
#pragma omp critical
        for (int32_t i = 0; i < m->n; i++) total[i] += mine[i];
        free(mine);
        uni_lattice_free(&l);
    }
    *log_p = 0;
    for (int i = 0; i < TEXT_PARTS; i++) *log_p += sum[i];
    free(weight);
    return total;
}

/* ---- maximisation ---- */

static double digamma(double x) {
    double shift = 0;
    for (; x < 8; x++) shift -= 1 / x;
    double y = 1 / (x * x);
    return shift + log(x) - 0.5 / x - y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252)));
}

/* Scores from expected uses, under a sparse prior (digamma instead of log); characters stay. */
static void maximise(uni_model *m, const int64_t *expected, int bits) {
    int32_t n = 0;
    double sum = 0;
    for (int32_t i = 0; i < m->n; i++) {
        double uses = ldexp((double)expected[i], -bits);
        if (uses < LEAST_EXPECTED && i >= m->n_chars) continue;
        uses = uses < LEAST_EXPECTED ? LEAST_EXPECTED : uses;
        m->piece[n] = m->piece[i];
        m->piece[n++].score = uses;
        sum += uses;
    }
    m->n = n;
    double log_sum = digamma(sum);
    for (int32_t i = 0; i < n; i++) m->piece[i].score = digamma(m->piece[i].score) - log_sum;
}

static void rebuild_trie(uni_trainer *u) {
    uni_trie_free(&u->trie);
    uni_trie_build(&u->trie, &u->model);
}

static double total_chars(const bpe_text *t) {
    double n = 0;
    for (int32_t i = 0; i < t->n_segments; i++) {
        for (int64_t p = t->segment[i].start; p < t->segment[i].end; p++) {
            if (t->sym[p] >= 0) n += (double)t->segment[i].count;
        }
    }
    return n;
}

void uni_em_step(uni_trainer *u) {
    double log_p;
    if (!u->trie.slot) uni_trie_build(&u->trie, &u->model);
    int64_t *expected = expect(u, &log_p);
    maximise(&u->model, expected, u->bits);
    u->boost = -log_p / total_chars(u->model.text);
    free(expected);
    rebuild_trie(u);
}

/* ---- pruning ---- */

/* What would stand in for a piece that is gone; none for characters. */
typedef struct substitute {
    int32_t n, piece[PIECE_MAX_CHARS];
    bool useless; /* it is better than the piece already */
} substitute;

static substitute *find_substitutes(const uni_trainer *u) {
    const uni_model *m = &u->model;
    substitute *sub = xcalloc((size_t)m->n, sizeof(*sub));
#pragma omp parallel num_threads(u->n_threads)
    {
        uni_lattice l = {0};
#pragma omp for schedule(static)
        for (int32_t i = m->n_chars; i < m->n; i++) {
            double score;
            uni_lattice_set(&l, &u->trie, m->text->sym + m->piece[i].at, m->piece[i].len);
            sub[i].n = uni_lattice_best(&l, m->piece, i, sub[i].piece, &score);
            sub[i].useless = score > m->piece[i].score;
        }
        uni_lattice_free(&l);
    }
    return sub;
}

static void segment_part(const uni_trainer *u, int part, uni_lattice *l, tok_ids *out,
                         int64_t *uses) {
    const bpe_text *t = u->model.text;
    FOR_RUNS(t, u->part[part], u->part[part + 1], run, len) {
        double score;
        if (out->cap < len) {
            out->cap = 2 * len;
            out->id = xrealloc(out->id, sizeof(*out->id) * (size_t)out->cap);
        }
        uni_lattice_set(l, &u->trie, t->sym + run, (int32_t)len);
        int32_t n = uni_lattice_best(l, u->model.piece, -1, out->id, &score);
        for (int32_t i = 0; i < n; i++) uses[out->id[i]] += count_at(t, run);
    }
}

/* How often each piece stands in the best segmentation of the text. */
static int64_t *count_uses(const uni_trainer *u) {
    const uni_model *m = &u->model;
    int64_t *total = xcalloc((size_t)m->n, sizeof(*total));
#pragma omp parallel num_threads(u->n_threads)
    {
        int64_t *mine = xcalloc((size_t)m->n, sizeof(*mine));
        uni_lattice l = {0};
        tok_ids out = {0};
#pragma omp for schedule(dynamic)
        for (int i = 0; i < TEXT_PARTS; i++) segment_part(u, i, &l, &out, mine);
#pragma omp critical
        for (int32_t i = 0; i < m->n; i++) total[i] += mine[i];
        free(mine);
        tok_ids_free(&out);
        uni_lattice_free(&l);
    }
    return total;
}

typedef struct candidate {
    int32_t piece;
    double loss;
} candidate;

static int by_loss(const void *x, const void *y) {
    const candidate *a = x, *b = y;
    if (a->loss != b->loss) return a->loss > b->loss ? -1 : 1;
    return a->piece < b->piece ? -1 : a->piece > b->piece;
}

static int by_piece(const void *x, const void *y) {
    const candidate *a = x, *b = y;
    return a->piece < b->piece ? -1 : a->piece > b->piece;
}

/* How much less likely the text becomes without a piece: all its uses go to what stands in for it,
 * whose uses grow by as many. */
static double loss_of(const int64_t *uses, int32_t i, const substitute *s, double sum) {
    double own = log((double)uses[i]) - log(sum), instead = 0;
    double log_sum = log(sum + (double)uses[i] * (s->n - 1));
    for (int32_t k = 0; k < s->n; k++) {
        instead += log((double)(uses[s->piece[k]] + uses[i])) - log_sum;
    }
    return (double)uses[i] * (own - instead);
}

void uni_prune(uni_trainer *u, int32_t keep) {
    uni_model *m = &u->model;
    substitute *sub = find_substitutes(u);
    int64_t *uses = count_uses(u);
    candidate *c = xmalloc(sizeof(*c) * (size_t)(m->n + 1));
    int32_t n = 0, kept = m->n_chars;
    double sum = 0;
    for (int32_t i = 0; i < m->n; i++) sum += (double)uses[i];
    for (int32_t i = m->n_chars; i < m->n; i++) {
        if (uses[i] == 0 || sub[i].useless) continue;
        c[n++] = (candidate){i, loss_of(uses, i, &sub[i], sum)};
    }
    qsort(c, (size_t)n, sizeof(*c), by_loss);
    if (n > keep - kept) n = keep > kept ? keep - kept : 0;
    qsort(c, (size_t)n, sizeof(*c), by_piece);
    for (int32_t i = 0; i < n; i++) m->piece[kept++] = m->piece[c[i].piece];
    m->n = kept;
    free(c);
    free(uses);
    free(sub);
    rebuild_trie(u);
}
