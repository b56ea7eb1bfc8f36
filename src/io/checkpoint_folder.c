/* The folder RUN/checkpoints: names, listing, removal, what a crash left, and which to keep.
 *
 * Reading order: checkpoint_list, checkpoint_remove, checkpoint_clean, checkpoint_prune. */
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "io/checkpoint_layout.h"

#define STEP_PREFIX "step-"

char *checkpoint_path(arena *a, const char *run_dir, int64_t step) {
    const char *parent = path_join(a, run_dir, CHECKPOINT_DIR);
    return arena_printf(a, "%s/" STEP_PREFIX "%lld", parent, (long long)step);
}

int64_t checkpoint_parse_step(const char *name) {
    size_t n = strlen(STEP_PREFIX);
    if (strncmp(name, STEP_PREFIX, n) != 0) return -1;
    const char *digits = name + n;
    size_t len = strlen(digits);
    if (len == 0 || len > 18 || (digits[0] == '0' && len > 1)) return -1;
    int64_t step = 0;
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '9') return -1;
        step = step * 10 + (*digits - '0');
    }
    return step;
}

static bool has_prefix(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Names are sorted as text; steps are wanted as numbers. */
static void insert_step(int64_t *steps, int n, int64_t step) {
    for (; n > 0 && steps[n - 1] > step; n--) steps[n] = steps[n - 1];
    steps[n] = step;
}

status checkpoint_list(arena *a, const char *run_dir, int64_t **steps, int *n, err *e) {
    const char *parent = path_join(a, run_dir, CHECKPOINT_DIR);
    char **names = NULL;
    int n_names = 0;
    *n = 0;
    *steps = NULL;
    if (!file_exists(parent)) return ST_OK;
    TRY(file_list_dir(a, parent, &names, &n_names, e));
    *steps = ARENA_ARRAY(a, int64_t, n_names + 1);
    for (int i = 0; i < n_names; i++) {
        int64_t step = checkpoint_parse_step(names[i]);
        if (step < 0 || !file_is_dir(path_join(a, parent, names[i]))) continue;
        insert_step(*steps, (*n)++, step);
    }
    return ST_OK;
}

status checkpoint_remove(const char *dir, err *e) {
    arena *a = arena_new("checkpoint name");
    const char *base = path_base(dir);
    const char *trash =
        arena_printf(a, "%.*s" TRASH_PREFIX "%s-%ld", (int)(base - dir), dir, base, (long)getpid());
    status st = file_remove_tree(trash, e); /* of an earlier process with our number */
    if (st == ST_OK) st = file_rename(dir, trash, e);
    if (st == ST_OK) st = file_remove_tree(trash, e);
    arena_free(a);
    return st;
}

static status clean_entry(arena *a, const char *parent, const char *name, err *e) {
    const char *path = path_join(a, parent, name);
    if (has_prefix(name, TMP_PREFIX) || has_prefix(name, TRASH_PREFIX))
        return file_remove_tree(path, e);
    if (!has_prefix(name, OLD_PREFIX) || checkpoint_parse_step(name + strlen(OLD_PREFIX)) < 0)
        return ST_OK;
    const char *successor = path_join(a, parent, name + strlen(OLD_PREFIX));
    if (file_exists(successor)) return checkpoint_remove(path, e);
    TRY(file_rename(path, successor, e));
    return file_sync_dir(parent, e);
}

status checkpoint_clean(const char *run_dir, err *e) {
    arena *a = arena_new("checkpoint clean");
    const char *parent = path_join(a, run_dir, CHECKPOINT_DIR);
    char **names = NULL;
    int n = 0;
    status st = file_exists(parent) ? file_list_dir(a, parent, &names, &n, e) : ST_OK;
    for (int i = 0; i < n && st == ST_OK; i++) st = clean_entry(a, parent, names[i], e);
    arena_free(a);
    return st;
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

/* What is newer than the good one is damaged: it stays, and does not use up a place. */
static status prune(arena *a, const char *run_dir, int keep, int64_t keep_every, int64_t good_step,
                    err *e) {
    int64_t *steps;
    int n;
    TRY(checkpoint_list(a, run_dir, &steps, &n, e));
    if (n <= keep) return ST_OK;
    if (good_step < 0) good_step = find_good(a, run_dir, steps, n);
    int places = keep;
    for (int i = n - 1; i >= 0; i--) {
        if (steps[i] > good_step) continue;
        if (places-- > 0 || (keep_every > 0 && steps[i] % keep_every == 0)) continue;
        TRY(checkpoint_remove(checkpoint_path(a, run_dir, steps[i]), e));
    }
    return ST_OK;
}

status checkpoint_prune(const char *run_dir, int keep, int64_t keep_every, int64_t good_step,
                        err *e) {
    if (keep <= 0) return ST_OK;
    arena *a = arena_new("checkpoint prune");
    status st = prune(a, run_dir, keep, keep_every, good_step, e);
    arena_free(a);
    return st;
}
