/* Which checkpoints can be trusted.
 *
 * Reading order: checkpoint_check, checkpoint_verify, checkpoint_find_newest, checkpoint_resolve.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/checkpoint_layout.h"
#include "io/checkpoint_manifest.h"

static status check_file(const char *path, const manifest_file *f, err *e) {
    int64_t bytes = file_size(path);
    if (bytes < 0) return err_set(e, ST_FORMAT, "%s: the file is missing", f->name);
    if ((uint64_t)bytes != f->bytes)
        return err_set(e, ST_FORMAT, "%s: %lld bytes instead of %llu (file %s)", f->name,
                       (long long)bytes, (unsigned long long)f->bytes,
                       (uint64_t)bytes < f->bytes ? "truncated" : "changed");
    uint64_t hash = 0;
    if (hash_file(path, &hash, e) != ST_OK) {
        err_context(e, "%s", f->name);
        return ST_FORMAT;
    }
    if (hash != f->hash)
        return err_set(e, ST_FORMAT, "%s: checksum differs (file damaged)", f->name);
    return ST_OK;
}

static status check_manifest(arena *a, const char *dir, err *e) {
    const char *path = path_join(a, dir, MANIFEST_NAME);
    if (!file_exists(path)) {
        err_set(e, ST_FORMAT, MANIFEST_NAME ": the file is missing");
        err_where(e, "%s", path);
        return ST_FORMAT;
    }
    char *text;
    size_t len;
    manifest m;
    TRY(file_read_all(path, &text, &len, e));
    status st = manifest_decode(a, &m, text, len, e);
    free(text);
    if (st != ST_OK) {
        err_context(e, MANIFEST_NAME);
        err_where(e, "%s", path);
        return st;
    }
    for (int i = 0; i < m.n && st == ST_OK; i++) {
        path = path_join(a, dir, m.files[i].name);
        st = check_file(path, &m.files[i], e);
        if (st != ST_OK) err_where(e, "%s", path);
    }
    return st;
}

/* A folder that someone else made: its weights must at least be well formed. */
static status check_model(arena *a, const char *dir, err *e) {
    if (!file_exists(path_join(a, dir, "config.json"))) {
        err_set(e, ST_FORMAT, "config.json: the file is missing");
        err_where(e, "%s", dir);
        return ST_FORMAT;
    }
    st_reader *r;
    TRY(st_open(&r, dir, e));
    st_close(r);
    return ST_OK;
}

status checkpoint_check(const char *dir, checkpoint_kind *kind, err *e) {
    arena *a = arena_new("checkpoint check");
    status st;
    *kind = CHECKPOINT_RESUMABLE;
    if (!file_is_dir(dir)) {
        st = err_set(e, ST_FORMAT, "%s is no folder", dir);
        err_where(e, "%s", dir);
    } else if (file_exists(path_join(a, dir, STATE_DIR))) {
        st = check_manifest(a, dir, e);
    } else {
        *kind = CHECKPOINT_MODEL;
        st = check_model(a, dir, e);
    }
    arena_free(a);
    return st;
}

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
    err_set(e, ST_FORMAT, "none of the %d checkpoints of %s is good", n, run_dir);
    err_where(e, "%s", run_dir);
    err_hint(e, "see `athanor verify checkpoint` for each, or start anew with --fresh");
    return ST_FORMAT;
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
    if (file_exists(path_join(a, path, "config.json"))) {
        *dir = arena_strdup(a, path);
        return ST_OK;
    }
    err_set(e, ST_FORMAT,
            "%s is neither a model folder (no config.json) nor a run with checkpoints", path);
    err_where(e, "%s", path);
    err_hint(e, "give a folder with config.json and model.safetensors, or a run folder");
    return ST_FORMAT;
}
