/* All segmentations of one run.
 *
 * alpha[i] sums the probabilities of all ways to reach character i, beta[i] of all ways on from
 * there; a piece from i to j is used with probability alpha[i] weight beta[j] / alpha[n]. Numbers
 * are kept near 1 instead of as logarithms: pieces weigh exp(boost) more per character, which every
 * segmentation of a run gets n times; and where that does not suffice, alpha and beta are rescaled
 * on the way, the logarithm of the factor being kept beside them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tok/train/unigram.h"

static void reserve(uni_lattice *l, int32_t n) {
    if (n <= l->cap) return;
    l->cap = n < 64 ? 64 : n + n / 2;
    size_t room = (size_t)l->cap + PIECE_MAX_CHARS + 2;
    l->first = xrealloc(l->first, room * sizeof(*l->first));
    l->alpha = xrealloc(l->alpha, room * sizeof(*l->alpha));
    l->beta = xrealloc(l->beta, room * sizeof(*l->beta));
    l->log_alpha = xrealloc(l->log_alpha, room * sizeof(*l->log_alpha));
    l->log_beta = xrealloc(l->log_beta, room * sizeof(*l->log_beta));
    l->node = xrealloc(l->node, room * sizeof(*l->node));
    l->depth = xrealloc(l->depth, room * sizeof(*l->depth));
    l->open = xrealloc(l->open, room * sizeof(*l->open));
    l->grid = xrealloc(l->grid, room * sizeof(*l->grid) * PIECE_MAX_CHARS);
}

void uni_lattice_free(uni_lattice *l) {
    free(l->edge);
    free(l->first);
    free(l->alpha);
    free(l->beta);
    free(l->log_alpha);
    free(l->log_beta);
    free(l->node);
    free(l->depth);
    free(l->open);
    free(l->grid);
    *l = (uni_lattice){0};
}

/* One more character for all places that still have a piece going on, so that look-ups, which
 * mostly wait for memory, wait together. Returns how many such places are left. */
static int32_t go_on(uni_lattice *l, const uni_trie *t, const int32_t *run, int32_t len,
                     int32_t n_open) {
    int32_t left = 0;
    for (int32_t k = 0; k < n_open; k++) {
        int32_t i = l->open[k];
        if (i + len >= l->n) break; /* places are in order */
        const uni_slot *s = uni_trie_step(t, l->node[i], run[i + len]);
        if (!s) continue;
        l->node[i] = s->node;
        l->grid[(int64_t)i * PIECE_MAX_CHARS + len] = s->piece;
        l->depth[i] = len + 1;
        l->open[left++] = i;
    }
    return left;
}

void uni_lattice_set(uni_lattice *l, const uni_trie *t, const int32_t *run, int32_t n) {
    reserve(l, n);
    l->n = n;
    l->n_edges = 0;
    for (int32_t i = 0; i < n; i++) {
        l->open[i] = i;
        l->depth[i] = 1;
        l->node[i] = uni_trie_first(run[i]);
        l->grid[(int64_t)i * PIECE_MAX_CHARS] = run[i];
    }
    int32_t n_open = n;
    for (int32_t len = 1; len < PIECE_MAX_CHARS && n_open > 0; len++) {
        n_open = go_on(l, t, run, len, n_open);
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t *piece = l->grid + (int64_t)i * PIECE_MAX_CHARS;
        l->first[i] = l->n_edges;
        for (int32_t len = 1; len <= l->depth[i]; len++) {
            if (piece[len - 1] < 0) continue;
            VEC_PUSH(l->edge, l->n_edges, l->cap_edges, ((uni_edge){piece[len - 1], len}));
        }
    }
    l->first[n] = l->n_edges;
}

/* ---- sums ---- */

static bool is_extreme(double x) {
    return x < 1e-120 || x > 1e120;
}

static double forward(uni_lattice *l, const double *weight) {
    double log_scale = 0;
    memset(l->alpha, 0, sizeof(double) * (size_t)(l->n + 1));
    l->alpha[0] = 1;
    for (int32_t i = 0; i <= l->n; i++) {
        double a = l->alpha[i];
        if (is_extreme(a)) {
            int32_t end = i + PIECE_MAX_CHARS < l->n ? i + PIECE_MAX_CHARS : l->n;
            for (int32_t k = i; k <= end; k++) l->alpha[k] /= a;
            log_scale += log(a);
            a = 1;
        }
        l->log_alpha[i] = log_scale;
        for (int32_t k = l->first[i]; i < l->n && k < l->first[i + 1]; k++) {
            l->alpha[i + l->edge[k].len] += a * weight[l->edge[k].piece];
        }
    }
    return log_scale;
}

static void backward(uni_lattice *l, const double *weight) {
    double log_scale = 0;
    l->beta[l->n] = 1;
    l->log_beta[l->n] = 0;
    for (int32_t i = l->n - 1; i >= 0; i--) {
        double b = 0;
        for (int32_t k = l->first[i]; k < l->first[i + 1]; k++) {
            b += weight[l->edge[k].piece] * l->beta[i + l->edge[k].len];
        }
        if (is_extreme(b)) {
            int32_t end = i + PIECE_MAX_CHARS < l->n ? i + PIECE_MAX_CHARS : l->n;
            for (int32_t k = i + 1; k <= end; k++) {
                l->beta[k] /= b;
                l->log_beta[k] += log(b);
            }
            log_scale += log(b);
            b = 1;
        }
        l->beta[i] = b;
        l->log_beta[i] = log_scale;
    }
}

double uni_lattice_expect(uni_lattice *l, const double *weight, double boost, int64_t count,
                          int bits, int64_t *expected) {
    double log_all = forward(l, weight);
    backward(l, weight);
    double unit = ldexp((double)count, bits) / l->alpha[l->n];
    for (int32_t i = 0; i < l->n; i++) {
        for (int32_t k = l->first[i]; k < l->first[i + 1]; k++) {
            int32_t j = i + l->edge[k].len;
            double share = l->alpha[i] * weight[l->edge[k].piece] * l->beta[j] * unit;
            double shift = l->log_alpha[i] + l->log_beta[j] - log_all;
            if (shift != 0) share *= exp(shift);
            expected[l->edge[k].piece] += (int64_t)(share + 0.5);
        }
    }
    return log(l->alpha[l->n]) + log_all - boost * l->n;
}

/* ---- the best ---- */

/* log_alpha holds the score of the best way to each place, `first` stays; back[] is the edge. */
int32_t uni_lattice_best(uni_lattice *l, const uni_piece *piece, int32_t without, int32_t *out,
                         double *score) {
    double *best = l->alpha;
    double *back = l->beta; /* the number of an edge is exact in a double */
    for (int32_t i = 1; i <= l->n; i++) best[i] = -HUGE_VAL;
    best[0] = 0;
    for (int32_t i = 0; i < l->n; i++) {
        for (int32_t k = l->first[i]; k < l->first[i + 1]; k++) {
            const uni_edge *e = &l->edge[k];
            double s = best[i] + piece[e->piece].score;
            if (e->piece == without || s <= best[i + e->len]) continue;
            best[i + e->len] = s;
            back[i + e->len] = k;
        }
    }
    int32_t n = 0;
    for (int32_t at = l->n; at > 0; at -= l->edge[(int32_t)back[at]].len) {
        out[n++] = l->edge[(int32_t)back[at]].piece;
    }
    for (int32_t i = 0; i < n / 2; i++) {
        int32_t swap = out[i];
        out[i] = out[n - 1 - i];
        out[n - 1 - i] = swap;
    }
    *score = best[l->n];
    return n;
}
