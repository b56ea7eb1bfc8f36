/* Reading order: context_divide; context_take, and below it the bounds. */
#include "train/context.h"

#include <stdlib.h>
#include <string.h>

/* ---- which tokens ---- */

enum { PIECES_OF_RANK = 16 }; /* at least, where there are documents and tokens enough */

static void zigzag(int T, int cp, int32_t *rank_of) {
    for (int t = 0; t < T; t++) {
        int piece = (int)((int64_t)t * 2 * cp / T);
        rank_of[t] = piece < cp ? piece : 2 * cp - 1 - piece;
    }
}

/* Tokens of a piece: a divisor of a rank's share. */
static int piece_tokens(int share) {
    int most = share / PIECES_OF_RANK, n = most > 0 ? most : 1;
    while (share % n) n--;
    return n;
}

static int heavier_first(const void *a, const void *b) {
    const context_piece *x = a, *y = b;
    if (x->work != y->work) return x->work < y->work ? 1 : -1;
    return x->number < y->number ? -1 : 1;
}

static int lightest(const int64_t *work, const int *left, int cp) {
    int best = -1;
    for (int r = 0; r < cp; r++)
        if (left[r] > 0 && (best < 0 || work[r] < work[best])) best = r;
    return best;
}

static void balance(const int32_t *start, int T, int cp, int32_t *rank_of, context_piece *pieces) {
    int each = piece_tokens(T / cp), n = T / each, left[cp];
    int64_t work[cp];
    for (int r = 0; r < cp; r++) work[r] = 0, left[r] = n / cp;
    for (int i = 0; i < n; i++) {
        pieces[i] = (context_piece){.number = i};
        for (int t = i * each; t < (i + 1) * each; t++) pieces[i].work += t - start[t] + 1;
    }
    qsort(pieces, (size_t)n, sizeof *pieces, heavier_first);
    for (int i = 0; i < n; i++) {
        int r = lightest(work, left, cp), first = pieces[i].number * each;
        work[r] += pieces[i].work;
        left[r]--;
        for (int t = first; t < first + each; t++) rank_of[t] = r;
    }
}

void context_divide(const int32_t *start, int T, int cp, int32_t *rank_of, context_piece *room) {
    CHECK(T % (2 * cp) == 0, "%d tokens for %d ranks", T, cp);
    if (start)
        balance(start, T, cp, rank_of, room);
    else
        zigzag(T, cp, rank_of);
}

/* ---- rooms ---- */

static int shares(const context *x) {
    return x->B * x->T / x->cp;
}

/* Bounds are told to each token once, with ring once for each hop. */
static int bounds(const context *x) {
    return x->kind == CONTEXT_RING ? x->B * x->T : shares(x);
}

static bool has_first(const context *x, int mask) {
    return x->documents || x->mask[mask].window > 0 || x->mask[mask].chunk > 0;
}

void context_new(context *x, arena *a, const mesh *m, context_kind kind, const model_config *mc,
                 const batch_rows *all, batch_rows *own) {
    *own = *all;
    *x = (context){.cp = m->size[MESH_CP],
                   .rank = m->rank[MESH_CP],
                   .B = all->B,
                   .T = all->T,
                   .kind = kind,
                   .documents = all->start != NULL};
    if (x->cp == 1) return;
    int n = shares(x);
    own->T = x->T / x->cp;
    own->ids = ARENA_ARRAY(a, int32_t, n);
    own->targets = ARENA_ARRAY(a, int32_t, n);
    own->pos = ARENA_ARRAY(a, int32_t, n);
    own->nll = ARENA_ARRAY(a, float, n);
    x->n_masks = model_masks(mc, x->mask);
    x->place = ARENA_ARRAY(a, int32_t, n);
    x->order = ARENA_ARRAY(a, int32_t, x->B * x->T);
    x->end = ARENA_ARRAY(a, int32_t, bounds(x));
    for (int i = 0; i < x->n_masks; i++)
        if (has_first(x, i)) x->first[i] = ARENA_ARRAY(a, int32_t, bounds(x));
    x->rank_of = ARENA_ARRAY(a, int32_t, x->T);
    x->before = ARENA_ARRAY(a, int32_t, x->T + 1);
    x->room = ARENA_ARRAY(a, context_piece, x->T);
}

int64_t context_bytes(int B, int T, int cp) {
    int64_t tokens = (int64_t)B * T, of_row = 2 * (int64_t)sizeof(int32_t) + sizeof(context_piece);
    int64_t numbers = tokens * (2 + MODEL_MOST_MASKS) + tokens / cp * 5;
    return cp == 1 ? 0 : numbers * (int64_t)sizeof(int32_t) + T * of_row;
}

/* ---- a micro-batch ---- */

/* The first key that the token in place t may see. */
static int32_t first_of(const context *x, int mask, int32_t t, int32_t start) {
    int32_t window = (int32_t)x->mask[mask].window, chunk = (int32_t)x->mask[mask].chunk;
    int32_t first = start;
    if (chunk > 0) first = t - (t - start) % chunk;
    if (window > 0 && t - window + 1 > first) first = t - window + 1;
    return first;
}

/* Bounds of row b among keys of which before[t] are in places before t; they begin at `at`. */
static void bound(const context *x, const batch_rows *all, int b, int64_t at) {
    int own = x->T / x->cp;
    for (int i = 0; i < own; i++) {
        int32_t t = x->place[(int64_t)b * own + i];
        int32_t start = all->start ? all->start[(int64_t)b * x->T + t] : 0;
        x->end[at + i] = x->before[t + 1];
        for (int k = 0; k < x->n_masks; k++)
            if (x->first[k]) x->first[k][at + i] = x->before[first_of(x, k, t, start)];
    }
}

/* before[t]: places before t, or those of `rank` among them. */
static void count_before(const context *x, int rank) {
    x->before[0] = 0;
    for (int t = 0; t < x->T; t++)
        x->before[t + 1] = x->before[t] + (rank < 0 || x->rank_of[t] == rank);
}

static void bound_row(const context *x, const batch_rows *all, int b) {
    int64_t own = x->T / x->cp;
    if (x->kind != CONTEXT_RING) {
        count_before(x, -1);
        bound(x, all, b, b * own);
        return;
    }
    for (int hop = 0; hop < x->cp; hop++) {
        count_before(x, (x->rank - hop + x->cp) % x->cp);
        bound(x, all, b, (hop * x->B + b) * own);
    }
}

/* order of row b, and its places on this rank. */
static void place_row(const context *x, int b) {
    int own = x->T / x->cp;
    int32_t *n = x->before; /* tokens of each rank so far */
    memset(n, 0, sizeof *n * (size_t)x->cp);
    for (int t = 0; t < x->T; t++) {
        int r = x->rank_of[t], i = b * own + n[r]++;
        x->order[(int64_t)b * x->T + t] = r * shares(x) + i;
        if (r == x->rank) x->place[i] = t;
    }
}

void context_take(const context *x, const batch_rows *all, const batch_rows *own) {
    for (int b = 0; x->cp > 1 && b < x->B; b++) {
        const int32_t *start = all->start ? all->start + (int64_t)b * x->T : NULL;
        context_divide(start, x->T, x->cp, x->rank_of, x->room);
        place_row(x, b);
        bound_row(x, all, b);
    }
    for (int i = 0; x->cp > 1 && i < shares(x); i++) {
        int64_t from = (int64_t)(i / own->T) * x->T + x->place[i];
        own->ids[i] = all->ids[from];
        own->targets[i] = all->targets[from];
        own->pos[i] = all->pos[from];
    }
}

void context_put(const context *x, const batch_ports *io, int frame) {
    if (x->cp == 1) return;
    prog_put(io->p, frame, io->order, x->order);
    prog_put(io->p, frame, io->end, x->end);
    for (int i = 0; i < x->n_masks; i++) prog_put(io->p, frame, io->first[i], x->first[i]);
}

void context_spread(const context *x, const batch_rows *own, const batch_rows *all) {
    if (x->cp == 1) return;
    memset(all->nll, 0, sizeof *all->nll * (size_t)(x->B * x->T));
    for (int i = 0; i < shares(x); i++)
        all->nll[(int64_t)(i / own->T) * x->T + x->place[i]] = own->nll[i];
}
