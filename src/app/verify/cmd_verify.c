/* athanor verify checkpoint: whether checkpoints are whole, and what is wrong with those that are
 * not. For a run: all its checkpoints, what a crash left, and which one a resume would take.
 *
 * Reading order: inspect_input, describe_run, print_report, report_json. */
#include <math.h>
#include <stdio.h>

#include "app/frame/cli.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "io/checkpoint/checkpoint.h"
#include "run/folder.h"

enum { SENTENCE_TENSORS = 3 };

typedef struct inspected {
    const char *dir;
    checkpoint_report r;
    bool good;
} inspected;

typedef struct findings {
    const char *path; /* what was asked for */
    bool is_run;
    bool in_use; /* a process is training there */
    inspected *list;
    int n, n_broken;
    int best, resume; /* in list; -1: none */
    char **leftovers;
    int n_leftovers;
} findings;

static void inspect(arena *a, findings *f, const char *dir) {
    inspected *c = &f->list[f->n];
    c->dir = dir;
    checkpoint_inspect(a, dir, &c->r);
    c->good = c->r.n_faults == 0;
    f->n_broken += !c->good;
    if (c->good && c->r.kind == CHECKPOINT_RESUMABLE) f->resume = f->n;
    if (c->good && isfinite(c->r.score) && (f->best < 0 || c->r.score <= f->list[f->best].r.score))
        f->best = f->n;
    f->n++;
}

static status nothing_there(const char *path, err *e) {
    err_at(e, ST_FORMAT, path, "%s is no checkpoint, model folder or run with checkpoints", path);
    return err_hint(e, "checkpoints lie in RUN/checkpoints/step-N");
}

/* A run has a config.json of its own, so its checkpoints come first. */
static status inspect_input(arena *a, const char *path, findings *f, err *e) {
    int64_t *steps = NULL;
    int n = 0;
    *f = (findings){.path = path, .best = -1, .resume = -1};
    TRY(checkpoint_list(a, path, &steps, &n, e));
    f->is_run = n > 0;
    if (f->is_run) {
        TRY(checkpoint_list_leftovers(a, path, &f->leftovers, &f->n_leftovers, e));
        f->in_use = run_is_locked(path);
    } else if (run_is_run(path) || (!file_exists(path_join(a, path, "state")) &&
                                    !file_exists(path_join(a, path, "config.json")))) {
        return nothing_there(path, e);
    }
    f->list = ARENA_ARRAY(a, inspected, n + 1);
    for (int i = 0; i < n; i++) inspect(a, f, checkpoint_path(a, path, steps[i]));
    if (!f->is_run) inspect(a, f, path);
    return ST_OK;
}

/* ---- the verdict: one sentence ---- */

static const char *describe_one(arena *a, const findings *f) {
    const inspected *c = &f->list[0];
    checkpoint_kind kind;
    err why = {0};
    if (!c->good) { /* asked again for the hint at the newest good one of the run */
        if (checkpoint_verify(c->dir, &kind, &why) == ST_OK) why = (err){0};
        return arena_printf(a, "%s: %s%s%s", c->dir,
                            checkpoint_fault_text(a, &c->r.faults[0], SENTENCE_TENSORS),
                            why.hint[0] ? "; " : "", why.hint);
    }
    if (c->r.kind == CHECKPOINT_RESUMABLE)
        return arena_printf(a, "%s: every file matches its checksum", c->dir);
    return arena_printf(a,
                        "%s: a well-formed model without state/; it can be used but not resumed, "
                        "and has no checksums",
                        c->dir);
}

static const char *describe_run(arena *a, const findings *f) {
    if (f->n_broken == 0)
        return arena_printf(a, "%s: all checkpoints are whole (%d, newest %s)", f->path, f->n,
                            path_base(f->list[f->n - 1].dir));
    int newest = f->n - 1;
    while (f->list[newest].good) newest--;
    const inspected *c = &f->list[newest];
    return arena_printf(a, "%s: %d of %d checkpoints broken, the newest of them %s: %s", f->path,
                        f->n_broken, f->n, path_base(c->dir),
                        checkpoint_fault_text(a, &c->r.faults[0], SENTENCE_TENSORS));
}

/* ---- for people ---- */

static const char *size_text(char out[32], uint64_t bytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    double x = (double)bytes / 1e3;
    int unit = 0;
    for (; x >= 999.5 && unit < ARRAY_LEN(units) - 1; unit++) x /= 1e3;
    snprintf(out, 32, "%.*f %s", x < 10 ? 1 : 0, x, units[unit]);
    return out;
}

static void print_faults(const checkpoint_report *r) {
    enum { SHOWN = 20 };
    for (int i = 0; i < r->n_faults; i++) {
        const checkpoint_fault *fault = &r->faults[i];
        printf("    %s: %s\n", fault->file, fault->what);
        int64_t shown = fault->n_tensors < SHOWN ? fault->n_tensors : SHOWN;
        for (int64_t k = 0; k < shown; k++) printf("        tensor %s\n", fault->tensors[k]);
        if (fault->n_tensors > shown)
            printf("        and %lld more tensor%s (all with --json)\n",
                   (long long)(fault->n_tensors - shown), text_s(fault->n_tensors - shown));
    }
}

static void print_row(const findings *f, int i, int width) {
    const inspected *c = &f->list[i];
    char size[32], loss[32] = "-";
    if (isfinite(c->r.score)) snprintf(loss, sizeof loss, "%.4f", c->r.score);
    printf("  %-*s  %8s  %8s  %s%s%s%s%s\n", width, path_base(c->dir), size_text(size, c->r.bytes),
           loss, c->good ? "ok" : "BROKEN",
           c->good && c->r.kind == CHECKPOINT_MODEL ? ", model only" : "",
           i == f->n - 1 ? ", newest" : "", i == f->best ? ", best" : "",
           c->r.uploaded ? ", uploaded" : "");
    print_faults(&c->r);
}

static void print_report(const findings *f, const char *verdict) {
    const checkpoint_report *first = &f->list[0].r;
    if (f->is_run && f->n_broken) /* the table says the rest */
        printf("broken: %s: %d of %d checkpoints\n", f->path, f->n_broken, f->n);
    else
        printf("%s: %s\n", f->n_broken ? "broken" : "ok", verdict);
    if (!f->is_run) {
        if (first->n_faults > 1 || (f->n_broken && first->faults[0].n_tensors > SENTENCE_TENSORS))
            print_faults(first);
        return;
    }
    int width = (int)snprintf(NULL, 0, "%s", path_base(f->list[f->n - 1].dir));
    printf("\n  %-*s  %8s  %8s  state\n", width, "", "size", "val loss");
    for (int i = 0; i < f->n; i++) print_row(f, i, width);
    for (int i = 0; i < f->n_leftovers; i++)
        printf("  %s: %s\n", f->leftovers[i],
               f->in_use ? "of the process that is training there"
                         : "left by a crash; the next start of the run clears it");
    if (f->resume >= 0)
        printf("\na resume takes %s\n", path_base(f->list[f->resume].dir));
    else
        printf("\nnone of them can be resumed\n");
}

/* ---- for programs ---- */

static json_t *faults_json(const checkpoint_report *r) {
    json_t *list = json_array();
    for (int i = 0; i < r->n_faults; i++) {
        json_t *tensors = json_array();
        for (int64_t k = 0; k < r->faults[i].n_tensors; k++)
            json_array_append_new(tensors, json_cstr(r->faults[i].tensors[k]));
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:o}", "file", json_cstr(r->faults[i].file),
                                        "what", json_cstr(r->faults[i].what), "tensors", tensors));
    }
    return list;
}

static json_t *checkpoint_json(const findings *f, int i) {
    const inspected *c = &f->list[i];
    json_t *step = c->r.step >= 0 ? json_integer(c->r.step) : json_null();
    return json_pack("{s:o, s:o, s:b, s:b, s:I, s:o, s:b, s:b, s:b, s:o}", "path",
                     json_cstr(c->dir), "step", step, "ok", c->good, "resumable",
                     c->good && c->r.kind == CHECKPOINT_RESUMABLE, "bytes", (json_int_t)c->r.bytes,
                     "val_loss", json_f64(c->r.score), "newest", i == f->n - 1, "best",
                     i == f->best, "uploaded", c->r.uploaded, "broken", faults_json(&c->r));
}

static json_t *report_json(const findings *f, const char *verdict) {
    json_t *list = json_array(), *leftovers = json_array();
    for (int i = 0; i < f->n; i++) json_array_append_new(list, checkpoint_json(f, i));
    for (int i = 0; i < f->n_leftovers; i++)
        json_array_append_new(leftovers, json_cstr(f->leftovers[i]));
    return json_pack("{s:b, s:o, s:o, s:o, s:o}", "ok", f->n_broken == 0, "detail",
                     json_cstr(verdict), "checkpoints", list, "leftovers", leftovers, "resume",
                     json_cstr(f->resume >= 0 ? f->list[f->resume].dir : NULL));
}

/* A broken promise is a result, told on standard output; err stays empty for it, so that nothing
 * more is said. */
static status verify_checkpoint(const cli_args *args, err *e) {
    arena *a = arena_new("verify");
    findings f;
    status st = inspect_input(a, args->inputs[0], &f, e);
    if (st == ST_OK) {
        const char *verdict = f.is_run ? describe_run(a, &f) : describe_one(a, &f);
        if (args->json)
            cli_print_json(report_json(&f, verdict));
        else
            print_report(&f, verdict);
        if (f.n_broken) st = ST_FAILED;
    }
    arena_free(a);
    return st;
}

const cli_command command_verify_checkpoint = {
    .name = "verify checkpoint",
    .summary = "whether every file of a checkpoint is what was written",
    .usage = "DIR|RUN",
    .run = verify_checkpoint,
    .about = "DIR is a checkpoint, a model folder, or a run (all its checkpoints). Every\n"
             "file is read; what differs from its checksum is named, down to the tensor.\n"
             "Exit status: 0 whole, 1 damaged, 3 nothing of that kind.\n",
};
