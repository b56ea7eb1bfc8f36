#include "app/ranks/restart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli_int.h"
#include "base/file.h"
#include "io/checkpoint/checkpoint.h"
#include "run/config/config_device.h"
#include "run/folder.h"
#include "train/train.h"

extern const cli_command command_train;

struct restart {
    cli_args args; /* of train */
    config *c;     /* as the user wants it */
    char *text;    /* [bytes] of its file */
    size_t bytes;
    const char *file; /* where the next start reads it */
};

/* ---- the run ---- */

/* Each of these would make the next start something else than going on. */
static status check_options(const cli_args *args, err *e) {
    static const char *const never[] = {"fresh", "fork", "dry-run", "dump-grads"};
    for (int i = 0; i < ARRAY_LEN(never); i++) {
        if (!cli_has(args, never[i])) continue;
        err_at(e, ST_USAGE, "command line", "--restart goes on with a run, and train --%s does not",
               never[i]);
        return err_hint(e, "leave out one of them; run=NEW begins a run in another folder");
    }
    if (strcmp(args->inputs[0], "-") != 0) return ST_OK;
    err_at(e, ST_USAGE, "command line",
           "each start with --restart reads the config, and standard "
           "input can be read once");
    return err_hint(e, "put it into a file");
}

static status read_command(restart *r, const char *const *command, int n, err *e) {
    if (strcmp(command[0], command_train.name) != 0) {
        err_at(e, ST_USAGE, "command line",
               "--restart is for train: '%s' has no checkpoint to go on from", command[0]);
        return err_hint(e, "athanor launch --ranks N --restart -- train CONFIG");
    }
    TRY(cli_parse(&r->args, &command_train, n - 1, (char **)command + 1, e));
    TRY(check_options(&r->args, e));
    r->file = r->args.inputs[0];
    TRY(config_load(&r->c, r->file, r->args.overrides, r->args.n_overrides, e));
    TRY(file_read_all(r->file, &r->text, &r->bytes, e));
    return config_check_train(r->c, e);
}

status restart_open(restart **out, const char *const *command, int n_command, err *e) {
    restart *r = *out = xcalloc(1, sizeof *r);
    status st = read_command(r, command, n_command, e);
    if (st == ST_OK) return st;
    restart_free(r);
    *out = NULL;
    return st;
}

void restart_free(restart *r) {
    if (!r) return;
    config_free(r->c);
    cli_args_free(&r->args);
    free(r->text);
    free(r);
}

const char *restart_run(const restart *r) {
    return r->c->run;
}

double restart_timeout_s(const restart *r) {
    return r->c->parallel.timeout_s;
}

int64_t restart_newest(const restart *r) {
    arena *a = arena_new("restart");
    int64_t *steps, newest = -1;
    int n;
    if (checkpoint_list(a, r->c->run, &steps, &n, NULL) == ST_OK && n > 0) newest = steps[n - 1];
    arena_free(a);
    return newest;
}

/* ---- its config ---- */

static bool is_as_it_was(const restart *r) {
    char *text = NULL;
    size_t bytes;
    bool same = file_read_all(r->file, &text, &bytes, NULL) == ST_OK && bytes == r->bytes &&
                memcmp(text, r->text, bytes) == 0;
    free(text);
    return same;
}

static bool is_kept(const restart *r) {
    return r->file != r->args.inputs[0];
}

void restart_keep_config(restart *r, strbuf *told) {
    if (is_kept(r) || is_as_it_was(r)) return;
    strbuf_printf(told, "%s%s has changed", told->len ? "; " : "", r->file);
    if (run_is_run(r->c->run)) {
        r->file = path_join(r->c->memory, r->c->run, "config.json");
        strbuf_printf(told, ": the run keeps to %s", r->file);
    } else {
        strbuf_puts(told, ", and the run begins with what it says now");
    }
}

const char *restart_word(const restart *r, const char *word) {
    return word == r->args.inputs[0] ? r->file : word;
}

/* ---- layouts ---- */

/* In the order in which sizes are given up: dp first. */
enum { DP, PP, CP, TP, AXES };

static void put_key(restart_layout *k, const char *name, int64_t value) {
    snprintf(k->key[k->n_keys++], RESTART_KEY_BYTES, "parallel.%s=%ld", name, (long)value);
}

static int64_t divisor_of(int64_t size, int64_t of) {
    while (of % size) size--;
    return size;
}

/* What the run keeps has the sizes of its last start, so there all of them are said. */
static void put_changed(const restart *r, restart_layout *out, const char *name, int64_t value,
                        int64_t wanted) {
    if (value != wanted || is_kept(r)) put_key(out, name, value);
}

/* A single stage has no schedule of several, nor several parts of one. */
static void put_single_stage(const restart *r, restart_layout *out) {
    int kind = r->c->parallel.pp_schedule;
    put_changed(r, out, "virtual", 1, r->c->parallel.virtual);
    if (kind != CONFIG_PP_AFAB && kind != CONFIG_PP_1F1B)
        snprintf(out->key[out->n_keys++], RESTART_KEY_BYTES, "parallel.pp_schedule=1f1b");
}

static void put_layout(const restart *r, const int64_t size[AXES], restart_layout *out) {
    const config *c = r->c;
    *out = (restart_layout){.ranks = (int)(size[DP] * size[PP] * size[CP] * size[TP])};
    put_key(out, "dp", size[DP]);
    put_changed(r, out, "pp", size[PP], c->parallel.pp);
    put_changed(r, out, "cp", size[CP], c->parallel.cp);
    put_changed(r, out, "tp", size[TP], c->parallel.tp);
    int64_t replicas = divisor_of(c->parallel.dp_replicate, size[DP]);
    put_changed(r, out, "dp_replicate", replicas, c->parallel.dp_replicate);
    int64_t share = size[DP] / replicas * size[CP], ep = divisor_of(c->parallel.ep, share);
    while (c->parallel.ep % ep) ep = divisor_of(ep - 1, share); /* experts divide over these */
    put_changed(r, out, "ep", ep, c->parallel.ep);
    if (size[PP] == 1 && c->parallel.pp > 1) put_single_stage(r, out);
}

/* What the run looked up when it began still holds (train.c). */
static status keep_resolved(config *c, err *e) {
    config *before;
    TRY(run_load_begun(&before, c->run, e));
    if (before) config_keep_resolved(c, before);
    config_free(before);
    return ST_OK;
}

static status plan_it(config *c, err *e) {
    plan *p = NULL;
    dev *meta;
    TRY(keep_resolved(c, e));
    TRY(config_open_meta(c, &meta, e));
    status st = train_plan(c, meta, &p, e);
    plan_free(p);
    dev_close(meta);
    return st;
}

static status try_layout(const restart *r, const restart_layout *k, err *e) {
    int n = r->args.n_overrides;
    const char **keys = xcalloc((size_t)(n + k->n_keys), sizeof *keys);
    config *c = NULL;
    for (int i = 0; i < n; i++) keys[i] = r->args.overrides[i];
    for (int i = 0; i < k->n_keys; i++) keys[n + i] = k->key[i];
    status st = config_load(&c, r->file, keys, n + k->n_keys, e);
    if (st == ST_OK) st = plan_it(c, e);
    config_free(c);
    free(keys);
    return st;
}

typedef struct search {
    const restart *r;
    int most, least; /* ranks */
    restart_layout *out;
    err first; /* why the first layout was passed over */
} search;

/* Sizes of the axes from `axis` down, the largest first. */
static bool find(search *s, int axis, int64_t size[AXES]) {
    const int64_t wanted[AXES] = {0, s->r->c->parallel.pp, s->r->c->parallel.cp,
                                  s->r->c->parallel.tp};
    int64_t model = 1;
    for (int i = axis + 1; i < AXES; i++) model *= size[i];
    for (int64_t n = axis == DP ? s->most / model : wanted[axis]; n >= 1; n--) {
        err why = {0};
        if (axis == DP && n * model < s->least) return false;
        if (axis != DP && wanted[axis] % n) continue;
        size[axis] = n;
        if (axis != DP) {
            if (find(s, axis - 1, size)) return true;
            continue;
        }
        put_layout(s->r, size, s->out);
        if (try_layout(s->r, s->out, &why) == ST_OK) return true;
        if (!s->first.message[0]) s->first = why;
    }
    return false;
}

status restart_fit(restart *r, int most, int least, restart_layout *out, err *e) {
    int64_t size[AXES];
    search s = {.r = r, .most = most, .least = least, .out = out};
    if (find(&s, TP, size)) return ST_OK;
    if (most < least)
        err_set(e, ST_USAGE, "%d %s left, and --min-ranks is %d", most,
                most == 1 ? "rank is" : "ranks are", least);
    else
        err_set(e, ST_USAGE, "no layout of %d to %d ranks trains this run: %s", least, most,
                s.first.message);
    return err_hint(
        e, "the run goes on from its last checkpoint when it is started with ranks enough");
}
