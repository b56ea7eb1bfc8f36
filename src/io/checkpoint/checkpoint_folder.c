/* The folder RUN/checkpoints: names, listing, removal, what a crash left.
 *
 * Reading order: checkpoint_list, checkpoint_remove, checkpoint_clean, checkpoint_remove_all. */
#include <string.h>
#include <unistd.h>

#include "io/checkpoint/checkpoint_layout.h"

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

static bool is_leftover(const char *name) {
    return has_prefix(name, TMP_PREFIX) || has_prefix(name, TRASH_PREFIX) ||
           (has_prefix(name, OLD_PREFIX) && checkpoint_parse_step(name + strlen(OLD_PREFIX)) >= 0);
}

status checkpoint_list_leftovers(arena *a, const char *run_dir, char ***names, int *n, err *e) {
    const char *parent = path_join(a, run_dir, CHECKPOINT_DIR);
    char **all = NULL;
    int n_all = 0;
    *n = 0;
    if (file_exists(parent)) TRY(file_list_dir(a, parent, &all, &n_all, e));
    for (int i = 0; i < n_all; i++)
        if (is_leftover(all[i])) all[(*n)++] = all[i];
    *names = all;
    return ST_OK;
}

static status clean_entry(arena *a, const char *parent, const char *name, err *e) {
    const char *path = path_join(a, parent, name);
    if (!has_prefix(name, OLD_PREFIX)) return file_remove_tree(path, e);
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
    status st = checkpoint_list_leftovers(a, run_dir, &names, &n, e);
    for (int i = 0; i < n && st == ST_OK; i++) st = clean_entry(a, parent, names[i], e);
    arena_free(a);
    return st;
}

status checkpoint_remove_all(const char *run_dir, err *e) {
    arena *a = arena_new("checkpoints");
    int64_t *steps = NULL;
    int n = 0;
    status st = checkpoint_clean(run_dir, e);
    if (st == ST_OK) st = checkpoint_list(a, run_dir, &steps, &n, e);
    for (int i = 0; i < n && st == ST_OK; i++)
        st = checkpoint_remove(checkpoint_path(a, run_dir, steps[i]), e);
    if (st == ST_OK) rmdir(path_join(a, run_dir, CHECKPOINT_DIR)); /* unless the user's are in it */
    arena_free(a);
    return st;
}
