/* athanor verify layouts: the layout never changes the mathematics, and a digest proves it.
 *
 * The config's model, cut to its first layers, takes the same steps on one rank and under every
 * layout of up to --ranks ranks, which are threads; under `launch` or `mpirun` under every layout
 * of exactly those ranks. A difference is a result (exit 1). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/ranks/ranks.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "train/layouts/matrix.h"

enum {
    DEFAULT_RANKS = 8,
    DEFAULT_STEPS = 20,
    DEFAULT_DEPTH = 4,
    LEAST_BATCH = 8,
    MOST_RANKS = 64,
    MOST_RANDOM = 100000
};
/* Steps with ordinary sums: few, since rounding errors grow from step to step, and a mistake shows
 * at once. */
enum { ORDINARY_STEPS = 3 };

typedef struct verification {
    const cli_args *args;
    layout_trial *t;
    comm_world *world;
    bool speaks;
    int steps, n, broken, exact_precision;
    layout_result *one, *one_fp32;
    layout *layouts;
    json_t *rows;
    char first[768]; /* what was found first */
    double loss_error;
    int64_t began_ns;
} verification;

/* ---- running ---- */

static status run_one(verification *v, int precision, layout_result **out, err *e) {
    layout alone = {.dp = 1, .dp_replicate = 1, .tp = 1};
    layout_way way = {.precision = precision, .steps = v->steps};
    *out = layout_result_new(v->t, &way);
    return layout_run_rank(v->t, &alone, &way, NULL, *out, e);
}

static status run_references(verification *v, err *e) {
    TRY(run_one(v, v->exact_precision, &v->one, e));
    v->one_fp32 = v->one;
    bool shares = false;
    for (int i = 0; i < v->n; i++) shares |= !layout_is_exact(&v->layouts[i]);
    if (v->exact_precision == CONFIG_PRECISION_FP32 || !shares) return ST_OK;
    return run_one(v, CONFIG_PRECISION_FP32, &v->one_fp32, e);
}

static status run_way(verification *v, const layout *l, const layout_way *way, layout_result **r,
                      err *e) {
    bool apart = comm_world_size(v->world) > 1;
    *r = layout_result_new(v->t, way);
    return apart ? layout_run_rank(v->t, l, way, v->world, *r, e) : layout_run(v->t, l, way, *r, e);
}

/* With exact sums, then with ordinary ones; *r is the result of the former. */
static status run_layout(verification *v, const layout *l, layout_result **r, layout_verdict *k,
                         err *e) {
    const layout_result *one = layout_is_exact(l) ? v->one : v->one_fp32;
    layout_way exact = {.precision = one->way.precision, .steps = v->steps};
    layout_way ordinary = {.precision = one->way.precision,
                           .steps = v->steps < ORDINARY_STEPS ? v->steps : ORDINARY_STEPS,
                           .ordinary = true};
    layout_result *other;
    *k = (layout_verdict){.exact = layout_is_exact(l)};
    TRY(run_way(v, l, &exact, r, e));
    *k = layout_compare(v->t, l, one, *r);
    if (!k->ok) return ST_OK;
    TRY(run_way(v, l, &ordinary, &other, e));
    layout_verdict more = layout_compare(v->t, l, one, other);
    if (!more.ok) {
        k->ok = false;
        snprintf(k->why, sizeof k->why, "with ordinary sums, %.450s", more.why);
    }
    k->loss_error = fmax(k->loss_error, more.loss_error);
    k->norm_error = fmax(k->norm_error, more.norm_error);
    return ST_OK;
}

/* ---- telling ---- */

static void print_head(const verification *v) {
    printf("%d layout%s of %s; %d step%s, %d layer%s, batch %ld x %ld tokens\n", v->n, text_s(v->n),
           v->args->inputs[0], v->steps, text_s(v->steps), v->t->depth, text_s(v->t->depth),
           (long)v->t->c->train.global_batch_size, (long)v->t->c->train.seq_len);
    printf("  %-50s %-17s %10s  %s\n", "layout", "last digest", "arena MiB", "against one rank");
}

static void print_row(const char *name, const layout_verdict *k, const layout_result *r) {
    char verdict[600];
    if (!k->ok)
        snprintf(verdict, sizeof verdict, "DIFFERS: %s", k->why);
    else if (k->exact)
        snprintf(verdict, sizeof verdict, "the same bits; ordinary sums: losses within %.1e",
                 k->loss_error);
    else
        snprintf(verdict, sizeof verdict, "losses within %.1e, gradients within %.1e",
                 k->loss_error, k->norm_error);
    printf("  %-50s %016" PRIx64 "  %10.2f  %s\n", name,
           r->n_steps ? r->steps[r->n_steps - 1].digest : r->initial,
           (double)r->peak_bytes / (1 << 20), verdict);
    fflush(stdout);
}

static json_t *row_json(const char *name, const layout *l, const layout_verdict *k,
                        const layout_result *r) {
    char initial[17], last[17];
    hash_format(r->initial, initial);
    hash_format(r->n_steps ? r->steps[r->n_steps - 1].digest : r->initial, last);
    json_t *o =
        json_pack("{s:s,s:i,s:b,s:b,s:s,s:s,s:I,s:o,s:o}", "layout", name, "ranks", layout_ranks(l),
                  "ok", k->ok, "exact", k->exact, "initial_digest", initial, "digest", last,
                  "peak_bytes", (json_int_t)r->peak_bytes, "max_rel_loss_diff",
                  json_f64(k->loss_error), "max_rel_grad_diff", json_f64(k->norm_error));
    if (!k->ok) json_object_set_new(o, "why", json_cstr(k->why));
    return o;
}

static void take_row(verification *v, const layout *l, const layout_verdict *k,
                     const layout_result *r) {
    char name[LAYOUT_NAME_MAX];
    layout_name(l, name);
    if (!k->ok && v->broken++ == 0) snprintf(v->first, sizeof v->first, "%s: %s", name, k->why);
    if (k->loss_error > v->loss_error) v->loss_error = k->loss_error;
    if (!v->speaks) return;
    json_array_append_new(v->rows, row_json(name, l, k, r));
    if (!v->args->json) print_row(name, k, r);
}

static status tell(verification *v, err *e) {
    char detail[900], digest[17];
    int exact = 0;
    for (int i = 0; i < v->n; i++) exact += layout_is_exact(&v->layouts[i]);
    hash_format(v->one->steps[v->steps - 1].digest, digest);
    if (v->broken)
        snprintf(detail, sizeof detail, "%d of %d layouts differ from one rank; first %s",
                 v->broken, v->n, v->first);
    else
        snprintf(detail, sizeof detail,
                 "%d layout%s, %d of them with one rank's digest: %s after %d step%s; tp, sp, cp, "
                 "several "
                 "rounds of experts and ordinary sums: losses within %.1e",
                 v->n, text_s(v->n), exact, digest, v->steps, text_s(v->steps), v->loss_error);
    if (v->speaks && v->args->json) {
        cli_print_json(json_pack("{s:b,s:o,s:s,s:i,s:i,s:O,s:o}", "ok", v->broken == 0, "detail",
                                 json_cstr(detail), "digest", digest, "steps", v->steps, "layers",
                                 v->t->depth, "rows", v->rows, "seconds",
                                 json_f64(clock_since_s(v->began_ns))));
    } else if (v->speaks)
        printf("%s: %s\n", v->broken ? "broken" : "ok", detail);
    if (!v->broken) return ST_OK;
    err_set(e, ST_FAILED, "%s", detail);
    return ST_FAILED;
}

/* ---- the command ---- */

static void add_layouts(verification *v, int ranks) {
    int n;
    layout *more = layout_matrix_of(v->t, ranks, &n);
    v->layouts = xrealloc(v->layouts, sizeof *v->layouts * (size_t)(v->n + n + 1));
    memcpy(v->layouts + v->n, more, sizeof *more * (size_t)n);
    v->n += n;
    free(more);
}

static status run_all(verification *v, err *e) {
    TRY(run_references(v, e));
    for (int i = 0; i < v->n; i++) {
        const layout *l = &v->layouts[i];
        layout_result *r;
        layout_verdict k;
        err why = {0};
        status st = run_layout(v, l, &r, &k, &why);
        if (st != ST_OK) {
            k.ok = false;
            snprintf(k.why, sizeof k.why, "%.500s", why.message);
        }
        take_row(v, l, &k, r);
        if (st == ST_OK || comm_world_size(v->world) == 1) continue;
        if (e) *e = why;
        return st; /* a world that has failed cannot go on */
    }
    return tell(v, e);
}

/* `random` layouts of `most` ranks; where ranks are threads, of all numbers of ranks that can share the batch. */
static void draw_layouts(verification *v, int64_t random, int64_t seed, int most) {
    layout_dice d = {.key = rng_key_named((uint64_t)seed, "layouts")};
    int64_t batch = v->t->c->train.global_batch_size / v->t->c->train.micro_batch_size;
    bool apart = comm_world_size(v->world) > 1;
    v->layouts = xrealloc(v->layouts, sizeof *v->layouts * (size_t)(v->n + random + 1));
    for (int64_t i = 0; i < random; i++) {
        int ranks = apart || most == 1 ? most : 2 + (int)(i % (most - 1));
        while (batch % ranks) ranks--;
        v->layouts[v->n++] = layout_draw(v->t, &d, ranks);
    }
}

/* The largest power of two below n, or 1. */
static int64_t power_below(int64_t n) {
    int64_t p = 1;
    while (2 * p < n) p *= 2;
    return p;
}

/* Sequences of a step that 1, 2, 4, ... and `ranks` ranks can share. */
static int64_t batch_for(int64_t ranks) {
    int64_t unit = ranks;
    while (unit % power_below(ranks) != 0) unit += ranks;
    return (LEAST_BATCH + unit - 1) / unit * unit;
}

static status open_trial(verification *v, const config *c, err *e) {
    int64_t ranks, steps, depth, random, seed, size = comm_world_size(v->world);
    TRY(cli_int(v->args, "ranks", DEFAULT_RANKS, 1, MOST_RANKS, &ranks, e));
    TRY(cli_int(v->args, "steps", DEFAULT_STEPS, 1, 100000, &steps, e));
    TRY(cli_int(v->args, "depth", DEFAULT_DEPTH, 0, 100000, &depth, e));
    TRY(cli_int(v->args, "random", 0, 0, MOST_RANDOM, &random, e));
    TRY(cli_int(v->args, "seed", 1, 0, INT32_MAX, &seed, e));
    int64_t most = size > 1 ? size : ranks;
    v->steps = (int)steps;
    v->exact_precision = layout_precision(c);
    TRY(layout_trial_new(&v->t, c, (int)depth, (int)batch_for(most), e));
    if (random) {
        draw_layouts(v, random, seed, (int)most);
        return ST_OK;
    }
    for (int n = 1; size == 1 && n < most; n *= 2) add_layouts(v, n);
    add_layouts(v, (int)most);
    return ST_OK;
}

static status verify_config(verification *v, const config *c, err *e) {
    TRY(config_check_supported(c, e));
    ranks_set_timeout(v->world, c);
    v->speaks = comm_world_rank(v->world) == 0;
    v->rows = json_array();
    status st = open_trial(v, c, e);
    if (st == ST_OK && v->speaks && !v->args->json) print_head(v);
    if (st == ST_OK) st = run_all(v, e);
    if (st != ST_OK && st != ST_FAILED) comm_fail(v->world, e);
    json_decref(v->rows);
    free(v->layouts);
    layout_trial_free(v->t);
    return st;
}

static status verify_layouts(const cli_args *args, err *e) {
    if (args->json) log_set_quiet(true);
    config *c;
    verification v = {.args = args, .began_ns = clock_now_ns()};
    TRY(comm_open_environment(&v.world, e));
    status st = config_load(&c, args->inputs[0], args->overrides, args->n_overrides, e);
    if (st == ST_OK) {
        st = verify_config(&v, c, e);
        config_free(c);
    }
    ranks_end(v.world, st, e, args->json);
    comm_close(v.world);
    return st;
}

static const cli_option options[] = {
    {"ranks", "N", "layouts of up to so many ranks (8)"},
    {"steps", "N", "training steps of each (20)"},
    {"depth", "N", "layers of the model that are kept; 0: all (4)"},
    {"random", "N", "instead of all layouts, N that are drawn at random"},
    {"seed", "N", "of the drawing (1)"},
    {0}};

const cli_command command_verify_layouts = {
    .name = "verify layouts",
    .summary = "whether every parallel layout computes what one rank does",
    .usage = "CONFIG [key=value...] [--ranks N] [--steps N] [--depth N] [--random N [--seed N]]",
    .run = verify_layouts,
    .options = options,
    .takes_keys = true,
    .about =
        "Trains the config's model, cut to its first layers, on random tokens: on one rank, and\n"
        "under every layout of 1, 2, 4, ... and N ranks of data parallelism, ZeRO 1-3, replicas,\n"
        "tensor, sequence and context parallelism, pipelines, accumulation and recompute.\n"
        "Data-parallel layouts and pipelines must give the same bits in every step; those of\n"
        "tensor and context parallelism the same initial weights, and losses within 1e-5 in fp32. "
        "Ranks are threads; under `athanor "
        "launch --ranks N --`,\n"
        "mpirun or torchrun they are processes, and the layouts are those of N ranks.\n"};
