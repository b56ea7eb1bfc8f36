/* Which of a run's checkpoints can be trusted.
 *
 * Reading order: checkpoint_verify, checkpoint_find_newest, checkpoint_resolve.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/checkpoint/checkpoint_layout.h"

/* Points at the newest other checkpoint of the same run that is good. */
static void hint_sibling(arena *a, const char *dir, err *e) {
    char real[PATH_MAX];
    if (!e || !realpath(dir, real)) return;
    int64_t self = checkpoint_parse_step(path_base(real));
    const char *parent = arena_strndup(a, real, (size_t)(path_base(real) - real) - 1);
    if (self < 0 || strcmp(path_base(parent), CHECKPOINT_DIR) != 0) return;
    const char *run = arena_printf(a, "%.*s.", (int)(path_base(parent) - parent), parent);
    int64_t *steps;
    int n;
    if (checkpoint_list(a, run, &steps, &n, NULL) != ST_OK) return;
    for (int i = n - 1; i >= 0; i--) {
        checkpoint_kind kind;
        if (steps[i] == self ||
            checkpoint_check(checkpoint_path(a, run, steps[i]), &kind, NULL) != ST_OK)
            continue;
        err_hint(e, "use step-%lld, the newest good one of this run", (long long)steps[i]);
        return;
    }
    err_hint(e, "no other checkpoint of this run is good");
}

status checkpoint_verify(const char *dir, checkpoint_kind *kind, err *e) {
    status st = checkpoint_check(dir, kind, e);
    if (st == ST_OK) return ST_OK;
    arena *a = arena_new("checkpoint hint");
    hint_sibling(a, dir, e);
    arena_free(a);
    return st;
}

static void skip_loudly(const char *dir, const err *why, checkpoint_skip_fn on_skip, void *ctx) {
    if (on_skip)
        on_skip(ctx, dir, why);
    else
        log_warn("%s is passed over: %s", dir, why->message);
}

/* need_state: a model folder without state/ does not count. */
static status find_newest(arena *a, const char *run_dir, bool need_state, char **dir, int64_t *step,
                          checkpoint_skip_fn on_skip, void *ctx, err *e) {
    int64_t *steps;
    int n;
    *dir = NULL;
    *step = -1;
    TRY(checkpoint_list(a, run_dir, &steps, &n, e));
    for (int i = n - 1; i >= 0; i--) {
        char *candidate = checkpoint_path(a, run_dir, steps[i]);
        checkpoint_kind kind;
        err why = {0};
        status st = checkpoint_check(candidate, &kind, &why);
        if (st == ST_OK && need_state && kind != CHECKPOINT_RESUMABLE)
            st = err_set(&why, ST_FORMAT, "it has no state/, so it cannot be resumed");
        if (st == ST_OK) {
            *dir = candidate;
            *step = steps[i];
            return ST_OK;
        }
        skip_loudly(candidate, &why, on_skip, ctx);
    }
    if (n == 0) return ST_OK;
    err_at(e, ST_FORMAT, run_dir, "none of the %d checkpoints of %s is good", n, run_dir);
    return err_hint(e, "see `athanor verify checkpoint` for each, or start anew with --fresh");
}

status checkpoint_find_newest(arena *a, const char *run_dir, char **dir, int64_t *step,
                              checkpoint_skip_fn on_skip, void *ctx, err *e) {
    return find_newest(a, run_dir, true, dir, step, on_skip, ctx, e);
}

status checkpoint_resolve(arena *a, const char *path, char **dir, err *e) {
    int64_t step;
    *dir = NULL;
    /* A run has a config.json of its own: its checkpoints come first. */
    TRY(find_newest(a, path, false, dir, &step, NULL, NULL, e));
    if (*dir) return ST_OK;
    if (file_exists(path_join(a, path, "metrics.jsonl"))) {
        err_at(e, ST_FORMAT, path, "%s is a run that has no checkpoint yet", path);
        return err_hint(e, "train it on; checkpoint.every says how often it saves");
    }
    if (file_exists(path_join(a, path, "config.json")) ||
        file_exists(path_join(a, path, "adapter_config.json"))) {
        *dir = arena_strdup(a, path);
        return ST_OK;
    }
    err_at(e, ST_FORMAT, path,
           "%s is neither a model folder (no config.json) nor a run with checkpoints", path);
    return err_hint(e, "give a folder with config.json and model.safetensors, or a run folder");
}
