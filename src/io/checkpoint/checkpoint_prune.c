/* Which checkpoints of a run are kept.
 *
 * Invariant: what is deleted is older than a checkpoint known to be good, and as many good ones as
 * were asked for stay, wherever the deleting is cut short. To be good here is to have every file in
 * its size: reading all bytes of all checkpoints after each save would cost more than the save.
 *
 * Reading order: look_at, mark_newest, mark_best, prune. */
#include <math.h>
#include <stdlib.h>

#include "io/checkpoint/checkpoint_layout.h"
#include "io/checkpoint/checkpoint_manifest.h"

typedef struct candidate {
    int64_t step;
    const char *dir;
    bool whole; /* every file is there in its size */
    bool keep;
    double score; /* NaN: none, or not whole */
} candidate;

static void look_at(arena *a, candidate *c) {
    manifest m;
    c->score = (double)NAN;
    if (manifest_read(a, &m, c->dir, NULL) != ST_OK) return;
    for (int i = 0; i < m.n; i++)
        if (file_size(path_join(a, c->dir, m.files[i].name)) != (int64_t)m.files[i].bytes) return;
    c->whole = true;
    c->score = m.score;
}

/* The newest step that verifies as resumable, or -1. */
static int64_t find_good(arena *a, const char *run_dir, const int64_t *steps, int n) {
    for (int i = n - 1; i >= 0; i--) {
        checkpoint_kind kind;
        if (checkpoint_check(checkpoint_path(a, run_dir, steps[i]), &kind, NULL) == ST_OK &&
            kind == CHECKPOINT_RESUMABLE)
            return steps[i];
    }
    return -1;
}

/* Checkpoints newer than the good one are damaged: they stay, and do not count as one of the
 * newest. */
static void mark_newest(candidate *c, int n, int64_t good_step, int places) {
    for (int i = n - 1; i >= 0; i--) {
        bool newer = c[i].step > good_step;
        c[i].keep = newer || places > 0;
        if (!newer && c[i].whole) places--;
    }
}

static void mark_best(candidate *c, int n, int64_t good_step, int places) {
    bool *taken = xcalloc((size_t)n, sizeof *taken);
    for (; places > 0; places--) {
        int best = -1;
        for (int i = n - 1; i >= 0; i--)
            if (!taken[i] && c[i].step <= good_step && isfinite(c[i].score) &&
                (best < 0 || c[i].score < c[best].score))
                best = i;
        if (best < 0) break;
        taken[best] = c[best].keep = true;
    }
    free(taken);
}

static status prune(arena *a, const char *run_dir, const checkpoint_keep *k, int64_t good_step,
                    err *e) {
    int64_t *steps;
    int n;
    TRY(checkpoint_list(a, run_dir, &steps, &n, e));
    if (n <= k->newest) return ST_OK;
    if (good_step < 0 && (good_step = find_good(a, run_dir, steps, n)) < 0) return ST_OK;
    candidate *c = ARENA_ARRAY(a, candidate, n);
    for (int i = 0; i < n; i++) {
        c[i] = (candidate){.step = steps[i], .dir = checkpoint_path(a, run_dir, steps[i])};
        look_at(a, &c[i]);
    }
    mark_newest(c, n, good_step, k->newest);
    mark_best(c, n, good_step, k->best);
    for (int i = 0; i < n; i++) {
        if (c[i].keep || (k->every > 0 && c[i].step % k->every == 0)) continue;
        if (k->only_uploaded && !file_exists(path_join(a, c[i].dir, UPLOAD_MARK))) continue;
        TRY(checkpoint_remove(c[i].dir, e));
    }
    return ST_OK;
}

status checkpoint_prune(const char *run_dir, const checkpoint_keep *k, int64_t good_step, err *e) {
    if (k->newest <= 0) return ST_OK;
    arena *a = arena_new("checkpoint prune");
    status st = prune(a, run_dir, k, good_step, e);
    arena_free(a);
    return st;
}
