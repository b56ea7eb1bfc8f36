/* athanor verify: proves a promise. This file: a checkpoint is whole. */
#include <stdio.h>

#include "app/cli.h"
#include "base/file.h"
#include "io/checkpoint.h"

static void report(const cli_args *args, bool ok, const char *detail) {
    if (args->json) {
        cli_print_json(json_pack("{s:b, s:s}", "ok", ok, "detail", detail));
    } else {
        printf("%s: %s\n", ok ? "ok" : "broken", detail);
    }
}

/* A folder that never was a model is an unreadable input (3); damage is a broken promise (1), told
 * on standard output, so err stays empty and nothing more is said about it. */
static status verify_checkpoint(const cli_args *args, err *e) {
    const char *path = args->inputs[0];
    arena *a = arena_new("verify");
    char *dir = NULL;
    bool has_state = file_exists(path_join(a, path, "state"));
    status st = ST_OK;
    if (has_state)
        dir = arena_strdup(a, path);
    else
        st = checkpoint_resolve(a, path, &dir, e);
    if (st == ST_OK) {
        checkpoint_kind kind;
        err why = {0};
        st = checkpoint_verify(dir, &kind, &why);
        const char *detail =
            arena_printf(a, "%s%s%s", why.message, why.hint[0] ? "; " : "", why.hint);
        if (st == ST_OK)
            detail = kind == CHECKPOINT_RESUMABLE
                         ? arena_printf(a, "%s: every file matches its checksum", dir)
                         : arena_printf(a,
                                        "%s: a well-formed model without state/: it can be used, "
                                        "but not resumed, and has no checksums",
                                        dir);
        report(args, st == ST_OK, detail);
        if (st != ST_OK) st = ST_FAILED;
    }
    arena_free(a);
    return st;
}

const cli_command command_verify_checkpoint = {
    .name = "verify checkpoint",
    .summary = "whether every file of a checkpoint is what was written",
    .usage = "DIR",
    .run = verify_checkpoint,
    .min_inputs = 1,
    .max_inputs = 1,
    .details = "DIR is a checkpoint, a model folder, or a run (its newest good checkpoint).\n"
               "Exit status: 0 whole, 1 damaged, 3 not a checkpoint at all.",
};
