/* athanor verify: proves a promise. This file: checkpoints are whole. */
#include <stdio.h>

#include "app/cli.h"
#include "base/arena.h"
#include "base/file.h"
#include "io/checkpoint.h"

/* Whether one folder is whole, and a sentence about it. */
static bool verify_folder(arena *a, const char *dir, const char **detail) {
    checkpoint_kind kind;
    err why = {0};
    if (checkpoint_verify(dir, &kind, &why) != ST_OK) {
        *detail =
            arena_printf(a, "%s: %s%s%s", dir, why.message, why.hint[0] ? "; " : "", why.hint);
        return false;
    }
    *detail = kind == CHECKPOINT_RESUMABLE
                  ? arena_printf(a, "%s: every file matches its checksum", dir)
                  : arena_printf(a,
                                 "%s: a well-formed model without state/; it can be used but not "
                                 "resumed, and has no checksums",
                                 dir);
    return true;
}

/* All checkpoints of a run; the sentence is about the newest bad one. */
static bool verify_run(arena *a, const char *run_dir, const int64_t *steps, int n,
                       const char **detail) {
    for (int i = n - 1; i >= 0; i--)
        if (!verify_folder(a, checkpoint_path(a, run_dir, steps[i]), detail)) return false;
    *detail = arena_printf(a, "%s: all checkpoints are whole (%d, newest step-%lld)", run_dir, n,
                           (long long)steps[n - 1]);
    return true;
}

static status verify_input(arena *a, const char *path, bool *ok, const char **detail, err *e) {
    int64_t *steps = NULL;
    int n = 0;
    TRY(checkpoint_list(a, path, &steps, &n, e));
    if (n > 0) { /* a run has a config.json of its own, so this comes first */
        *ok = verify_run(a, path, steps, n, detail);
        return ST_OK;
    }
    if (file_exists(path_join(a, path, "state")) ||
        file_exists(path_join(a, path, "config.json"))) {
        *ok = verify_folder(a, path, detail);
        return ST_OK;
    }
    err_set(e, ST_FORMAT, "%s is no checkpoint, model folder or run with checkpoints", path);
    err_where(e, "%s", path);
    err_hint(e, "checkpoints lie in RUN/checkpoints/step-N");
    return ST_FORMAT;
}

/* A broken promise is a result, told on standard output; err stays empty for it, so that nothing
 * more is said. */
static status verify_checkpoint(const cli_args *args, err *e) {
    arena *a = arena_new("verify");
    bool ok = false;
    const char *detail = "";
    status st = verify_input(a, args->inputs[0], &ok, &detail, e);
    if (st == ST_OK) {
        if (args->json)
            cli_print_json(json_pack("{s:b, s:s}", "ok", ok, "detail", detail));
        else
            printf("%s: %s\n", ok ? "ok" : "broken", detail);
        if (!ok) st = ST_FAILED;
    }
    arena_free(a);
    return st;
}

static char *verify_help(void) {
    return xstrdup("DIR is a checkpoint, a model folder, or a run (all its checkpoints).\n"
                   "Exit status: 0 whole, 1 damaged, 3 nothing of that kind.\n");
}

const cli_command command_verify_checkpoint = {
    .name = "verify checkpoint",
    .summary = "whether every file of a checkpoint is what was written",
    .usage = "DIR",
    .run = verify_checkpoint,
    .min_inputs = 1,
    .max_inputs = 1,
    .details = verify_help,
};
