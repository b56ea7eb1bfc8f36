/* athanor bench layouts: the layouts of a config, each run for some steps on real ranks, as rows that `plan fit` reads.
 *
 * Each layout is planned first: what cannot be made is no row, what does not fit is one. The rest runs as `launch -- bench train`
 * in processes of its own, so that a crash is a row, too.
 *
 * Reading order: sweep (the combinations), take (one becomes a case), run_case, the words. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "app/bench/layout_rows.h"
#include "app/frame/child.h"
#include "app/frame/cli.h"
#include "app/frame/model_arg.h"
#include "app/frame/progress.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/comm.h"
#include "run/config/config_device.h"
#include "train/train.h"

enum { MOST_VALUES = 16, AXES = 8, MOST_KEYS = AXES + 2, GRACE_S = 10 };

/* Where neither the option nor the config says which values, `usual` are tried. */
typedef struct axis {
    const char *option, *key, *usual;
} axis;
/* The first ones are numbers of ranks. */
enum { AXIS_TP, AXIS_CP, AXIS_EP, AXIS_PP, AXIS_SCHEDULE, AXIS_ZERO, AXIS_RECOMPUTE, AXIS_MBS };
static const axis axes[AXES] = {
    [AXIS_TP] = {"tp", "parallel.tp", "1,2,4,8"},
    [AXIS_CP] = {"cp", "parallel.cp", "1"},
    [AXIS_EP] = {"ep", "parallel.ep", "1"},
    [AXIS_PP] = {"pp", "parallel.pp", "1,2,4,8"},
    [AXIS_SCHEDULE] = {"schedule", "parallel.pp_schedule", "1f1b"},
    [AXIS_ZERO] = {"zero", "parallel.zero", "0,1,2,3"},
    [AXIS_RECOMPUTE] = {"recompute", "train.recompute", "none,full"},
    [AXIS_MBS] = {"micro-batch", "train.micro_batch_size", "1,2,4,8"},
};

typedef struct values {
    const char *word[MOST_VALUES];
    int n;
    bool given; /* by the config: nothing has to be set */
} values;

typedef struct sweep {
    const cli_args *args;
    arena *a;
    config *c; /* as it is, without a layout */
    values ranks, axis[AXES];
    layout_case *cases;
    int n, cap, impossible, there; /* there: they have a row already */
    err last;                      /* why the last one was impossible */
    layout_rows rows;
    int64_t steps, warmup, share, shares;
    double limit_s, spent_s;
    int run, ok;
    json_t *json;
} sweep;

/* ---- what is tried ---- */

static status split(arena *a, const char *name, const char *list, values *out, err *e) {
    do {
        size_t n = strcspn(list, ",");
        if (n == 0 || out->n == MOST_VALUES)
            return err_at(e, ST_USAGE, "command line", "--%s: a list of at most %d values, 1,2,4",
                          name, MOST_VALUES);
        out->word[out->n++] = arena_strndup(a, list, n);
        list += n + (list[n] == ',');
    } while (*list);
    return ST_OK;
}

/* Words that say how many ranks. */
static status check_numbers(const char *name, const values *v, err *e) {
    int64_t ranks;
    for (int i = 0; i < v->n; i++)
        if (!text_parse_int(v->word[i], &ranks) || ranks < 1 || ranks > COMM_MOST_RANKS)
            return err_at(e, ST_USAGE, "command line", "--%s: '%s' is no number of ranks", name,
                          v->word[i]);
    return ST_OK;
}

/* An option goes before what the file of the config says, but not before a key beside it. */
static status read_axis(sweep *s, const axis *x, values *out, err *e) {
    const char *option = cli_value(s->args, x->option), *key = x->key;
    if (option && cli_override(s->args, key)) {
        err_at(e, ST_USAGE, "command line", "--%s %s and %s=%s both say what is tried", x->option,
               option, key, cli_override(s->args, key));
        return err_hint(e, "leave one of them out");
    }
    if (option) return split(s->a, x->option, option, out, e);
    if (strcmp(config_where(s->c, key), "default") == 0)
        return split(s->a, x->option, x->usual, out, e);
    json_t *v = config_get_json(s->c, key);
    out->given = true;
    out->word[out->n++] = json_is_string(v)
                              ? arena_printf(s->a, "%s", json_string_value(v))
                              : arena_printf(s->a, "%lld", (long long)json_integer_value(v));
    json_decref(v);
    return ST_OK;
}

/* 1, 2, 4, ... up to the cores of this machine, where nothing is said. */
static status read_ranks(sweep *s, err *e) {
    const char *given = cli_value(s->args, "ranks");
    if (given) return split(s->a, "ranks", given, &s->ranks, e);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (int n = 1; n <= cores && n <= 8; n *= 2)
        s->ranks.word[s->ranks.n++] = arena_printf(s->a, "%d", n);
    return ST_OK;
}

/* ---- one of them ---- */

static void add_key(layout_case *k, arena *a, const char **keys, const char *key,
                    const char *value) {
    keys[k->n_keys++] = arena_printf(a, "%s=%s", key, value);
}

/* The keys that make the config this layout. */
static void make_keys(sweep *s, layout_case *k, const char *const *word) {
    const char **keys = ARENA_ARRAY(s->a, const char *, MOST_KEYS);
    char dp[16];
    snprintf(dp, sizeof dp, "%d", k->l.dp);
    add_key(k, s->a, keys, "parallel.dp", dp);
    for (int i = 0; i < AXES; i++)
        if (!s->axis[i].given) add_key(k, s->a, keys, axes[i].key, word[i]);
    if (k->l.key.tp > 1 && strcmp(config_where(s->c, "parallel.sp"), "default") == 0)
        add_key(k, s->a, keys, "parallel.sp", "true");
    k->key = keys;
}

static status load(const sweep *s, const layout_case *k, config **out, err *e) {
    cli_args args = *s->args;
    const char **all = ARENA_ARRAY(s->a, const char *, args.n_overrides + k->n_keys);
    for (int i = 0; i < args.n_overrides; i++) all[i] = args.overrides[i];
    for (int i = 0; i < k->n_keys; i++) all[args.n_overrides + i] = k->key[i];
    args.overrides = all;
    args.n_overrides += k->n_keys;
    return model_arg_load(args.inputs[0], &args, out, e);
}

/* The same values have the same digest, wherever they come from. */
static void digest(const config *c, char out[17]) {
    json_t *o = config_to_json(c);
    char *text = json_dumps(o, JSON_SORT_KEYS | JSON_COMPACT);
    hash_format(hash_bytes(text, strlen(text)), out);
    free(text);
    json_decref(o);
}

/* The plan says what the case is. ST_USAGE: it cannot be made. */
static status plan_case(sweep *s, layout_case *k, config *c, err *e) {
    dev *meta;
    plan *p = NULL;
    cluster on;
    TRY(config_open_meta(c, &meta, e));
    status st = train_plan_trial(c, meta, &p, e);
    if (st == ST_MEMORY && p) {
        snprintf(k->too_large, sizeof k->too_large, "%.191s", e->message);
        st = ST_OK;
    }
    if (st == ST_OK && !p->spec.train_B)
        st = err_at(e, ST_USAGE, c->source, "layouts are measured of a run that trains");
    if (st == ST_OK) {
        digest(c, k->digest);
        k->l.key.micro_batch = p->spec.train_B;
        k->l.key.recompute = p->spec.recompute;
        k->l.schedule = (schedule_kind)c->parallel.pp_schedule;
        k->l.chunks_of_stage = p->spec.chunks > 1 ? p->spec.chunks / k->l.pp : 1;
        k->l.zero = (int)c->parallel.zero;
        k->batch = c->train.global_batch_size;
        k->l.key.context = p->spec.context;
        k->l.micro_batches = k->batch / ((int64_t)k->l.dp * k->l.key.micro_batch);
        bool known = config_find_cluster(c, k->ranks, dev_get_kind(meta), &on);
        layout_case_describe(k, s->a, p, known ? &on : NULL);
    }
    plan_free(p);
    dev_close(meta);
    return st;
}

/* Ranks in the mesh as these words say; false: they do not share out, or the layout is another one's twin. */
static bool shape_case(const sweep *s, layout_case *k, int ranks, const char *const *word,
                       const int *at) {
    k->ranks = ranks;
    k->l.key.tp = atoi(word[AXIS_TP]);
    k->l.pp = atoi(word[AXIS_PP]);
    k->l.key.cp = atoi(word[AXIS_CP]);
    k->l.key.ep = atoi(word[AXIS_EP]);
    int64_t each = (int64_t)k->l.key.tp * k->l.pp * k->l.key.cp;
    if (ranks % each) return false;
    k->l.dp = (int)(ranks / each);
    if (s->c->parallel.dp != CONFIG_AUTO && s->c->parallel.dp != k->l.dp) return false;
    bool alone = k->l.dp * k->l.key.cp == 1 && at[AXIS_ZERO] > 0;
    return !alone && (k->l.pp > 1 || at[AXIS_SCHEDULE] == 0);
}

static status take(sweep *s, int ranks, const int *at, err *e) {
    layout_case k = {.ranks = 0};
    const char *word[AXES];
    config *c = NULL;
    for (int i = 0; i < AXES; i++) word[i] = s->axis[i].word[at[i]];
    if (!shape_case(s, &k, ranks, word, at)) return ST_OK;
    make_keys(s, &k, word);
    err why = {0};
    status st = load(s, &k, &c, &why);
    if (st == ST_OK) st = plan_case(s, &k, c, &why);
    config_free(c);
    if (st == ST_USAGE || st == ST_MEMORY) {
        s->impossible++;
        s->last = why;
        return ST_OK;
    }
    if (st != ST_OK) {
        if (e) *e = why;
        return st;
    }
    s->cases = arena_grow(s->a, s->cases, s->n, &s->cap, sizeof k);
    s->cases[s->n++] = k;
    return ST_OK;
}

/* The next combination; false: that was the last. */
static bool next(const sweep *s, int *at) {
    for (int i = AXES - 1; i >= 0; i--) {
        if (++at[i] < s->axis[i].n) return true;
        at[i] = 0;
    }
    return false;
}

static status take_all(sweep *s, int ranks, err *e) {
    int at[AXES] = {0};
    do TRY(take(s, ranks, at, e));
    while (next(s, at));
    return ST_OK;
}

static status find_cases(sweep *s, err *e) {
    TRY(read_ranks(s, e));
    TRY(check_numbers("ranks", &s->ranks, e));
    for (int i = 0; i < AXES; i++) {
        TRY(read_axis(s, &axes[i], &s->axis[i], e));
        if (i <= AXIS_PP) TRY(check_numbers(axes[i].option, &s->axis[i], e));
    }
    for (int i = 0; i < s->ranks.n; i++) TRY(take_all(s, atoi(s->ranks.word[i]), e));
    if (s->n > 0) return ST_OK;
    if (s->impossible) {
        if (e) *e = s->last;
        return err_context(e, "none of %d layouts can be made", s->impossible);
    }
    err_at(e, ST_USAGE, "command line", "no layout of so many ranks is left");
    return err_hint(e, "--ranks, --tp, --pp and the config's parallel.* leave none together");
}

/* ---- one run ---- */

static void tick(int signal_number) {
    (void)signal_number; /* it only ends a read, so that the clock is looked at */
}

static void start_ticks(void) {
    struct sigaction action = {.sa_handler = tick};
    struct itimerval often = {{0, 200000}, {0, 200000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

static void stop_ticks(void) {
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
}

/* How many processes the kernel has killed for memory since it began; -1: not known. */
static long kills_for_memory(void) {
    char *text, *at;
    size_t n;
    err none = {0};
    if (file_read_input("/proc/vmstat", 1 << 20, &text, &n, &none) != ST_OK) return -1;
    at = strstr(text, "\noom_kill ");
    long kills = at ? atol(at + 10) : -1;
    free(text);
    return kills;
}

static double row_of(const json_t *answer, const char *name) {
    json_t *rows = json_object_get(answer, "rows"), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        const char *is = json_string_value(json_object_get(row, "name"));
        if (is && strcmp(is, name) == 0) return json_number_value(json_object_get(row, "value"));
    }
    return 0;
}

static void take_answer(layout_outcome *o, const json_t *answer) {
    const char *gpu = json_string_value(json_object_get(answer, "gpu")), *device = gpu;
    if (!device) device = json_string_value(json_object_get(answer, "device"));
    if (device) snprintf(o->device, sizeof o->device, "%s", device);
    o->step_s = row_of(answer, "step_ms") / 1e3;
    o->tok_per_s = row_of(answer, "tok_per_s");
    o->mfu = row_of(answer, "mfu");
    o->hfu = row_of(answer, "hfu");
    /* of a GPU the arena is the memory: the process is on the host */
    o->peak_bytes = row_of(answer, gpu ? "planned_peak_bytes" : "peak_rss_bytes");
    o->peak_flops = row_of(answer, "peak_gflops") * 1e9;
}

/* killed: for memory, by the kernel; slow: it was told to end. */
static void judge(layout_outcome *o, const json_t *answer, int code, bool killed, bool slow) {
    const json_t *error = json_object_get(answer, "error");
    const char *why = json_string_value(json_object_get(error, "message"));
    o->state = slow                                               ? "timeout"
               : code == ST_OK && row_of(answer, "tok_per_s") > 0 ? "ok"
               : code == ST_MEMORY || killed                      ? "oom"
               : code == ST_NONFINITE                             ? "diverged"
                                                                  : "crash";
    if (strcmp(o->state, "ok") == 0)
        take_answer(o, answer);
    else if (why && !slow)
        snprintf(o->note, sizeof o->note, "%s", why);
    else if (!slow)
        snprintf(o->note, sizeof o->note, "it ended with status %d and said nothing", code);
}

/* "athanor launch --ranks 2 --json -- bench train CONFIG key=value ... --steps 5 --warmup 2" */
static const char *const *words_of(const sweep *s, const layout_case *k) {
    const cli_args *args = s->args;
    const char **w = ARENA_ARRAY(s->a, const char *, args->n_overrides + k->n_keys + 16);
    int n = 0;
    w[n++] = "athanor";
    w[n++] = "launch";
    w[n++] = "--ranks";
    w[n++] = arena_printf(s->a, "%d", k->ranks);
    w[n++] = "--json";
    w[n++] = "--";
    w[n++] = "bench";
    w[n++] = "train";
    w[n++] = args->inputs[0];
    for (int i = 0; i < args->n_overrides; i++) w[n++] = args->overrides[i];
    for (int i = 0; i < k->n_keys; i++) w[n++] = k->key[i];
    w[n++] = "--steps";
    w[n++] = arena_printf(s->a, "%lld", (long long)s->steps);
    w[n++] = "--warmup";
    w[n++] = arena_printf(s->a, "%lld", (long long)s->warmup);
    w[n] = NULL;
    return w;
}

/* Reads its last line to its end, or to the end of its time. */
static status hear(const sweep *s, child *c, json_t **answer, bool *slow, err *e) {
    int64_t began = clock_now_ns();
    bool killed = false;
    for (;;) {
        json_t *line = NULL;
        status st = child_read(c, &line, e);
        double spent = clock_since_s(began);
        if (spent > s->limit_s && !*slow) {
            child_signal(c, SIGTERM);
            *slow = true;
        }
        if (spent > s->limit_s + GRACE_S && !killed) {
            child_signal(c, SIGKILL);
            killed = true;
        }
        if (st == ST_STOPPED || (st == ST_FORMAT && *slow)) continue;
        TRY(st);
        if (!line) return ST_OK;
        json_decref(*answer);
        *answer = line;
    }
}

static status run_case(sweep *s, const layout_case *k, layout_outcome *o, err *e) {
    child *c;
    json_t *answer = NULL;
    bool slow = false;
    long before = kills_for_memory();
    char *log = arena_printf(s->a, "%s.log", s->rows.path);
    TRY(child_start(&c, words_of(s, k), NULL, log, e));
    status st = hear(s, c, &answer, &slow, e);
    if (st != ST_OK) {
        child_abandon(c);
        json_decref(answer);
        return st;
    }
    int code = child_end(c);
    judge(o, answer, code, kills_for_memory() > before, slow);
    if (slow) snprintf(o->note, sizeof o->note, "not done after %.4g s", s->limit_s);
    json_decref(answer);
    return ST_OK;
}

/* ---- what is said ---- */

static void put_json(sweep *s, const layout_case *k, const layout_outcome *o) {
    bool ok = strcmp(o->state, "ok") == 0;
    json_t *row = json_pack("{s:s,s:o,s:s,s:i,s:s}", "name", k->name, "value",
                            ok ? json_f64(o->tok_per_s) : json_null(), "unit", "tok/s", "ranks",
                            k->ranks, "status", o->state);
    if (k->predicted > 0) json_object_set_new(row, "predicted", json_f64(k->predicted));
    if (*o->note) json_object_set_new(row, "why", json_cstr(o->note));
    json_array_append_new(s->json, row);
}

static void print_row(const sweep *s, int number, int all, const layout_case *k,
                      const layout_outcome *o, int runs_left) {
    char left[24] = "";
    bool ok = strcmp(o->state, "ok") == 0;
    printf("[%*d/%d] %2d rank%s %-44s ", all > 99 ? 3 : 2, number, all, k->ranks,
           k->ranks == 1 ? " " : "s", k->name);
    if (ok)
        printf("%10.1f tok/s", o->tok_per_s);
    else
        printf("%s: %.100s", o->state, o->note);
    if (ok && k->predicted > 0) printf(" (predicted %.1f)", k->predicted);
    if (runs_left && s->run) {
        progress_format_duration(s->spent_s / s->run * runs_left, left);
        printf("  %s left", left);
    }
    printf("\n");
    fflush(stdout);
}

/* By what `plan validate` is to reckon: the cluster of the config, or this machine with as many ranks as were run. Rows of
 * GPUs name theirs. */
static const char *cluster_key(const sweep *s) {
    int ranks = 1;
    if (s->c->cluster) return arena_printf(s->a, " cluster=%s", s->c->cluster);
    if (s->c->device == CONFIG_DEVICE_CUDA) return "";
    for (int i = 0; i < s->n; i++)
        if (s->cases[i].ranks > ranks) ranks = s->cases[i].ranks;
    return ranks > 1 ? arena_printf(s->a, " cluster=local-%d", ranks) : " cluster=local";
}

static void tell(const sweep *s) {
    const char *path = s->rows.path;
    if (s->args->json)
        cli_print_json(json_pack("{s:O,s:s,s:i,s:i,s:i,s:i}", "rows", s->json, "file", path,
                                 "layouts", s->n, "ok", s->ok, "there", s->there, "impossible",
                                 s->impossible));
    else
        printf("\n%s has them. Next: athanor plan validate %s%s\n", path, path, cluster_key(s));
}

/* ---- the command ---- */

static bool is_ours(const sweep *s, int i) {
    return i % s->shares == s->share - 1;
}

static int count_left(const sweep *s, int from) {
    int left = 0;
    for (int i = from; i < s->n; i++)
        left +=
            is_ours(s, i) && !*s->cases[i].too_large && !layout_rows_have(&s->rows, &s->cases[i]);
    return left;
}

static status make_row(sweep *s, int i, err *e) {
    const layout_case *k = &s->cases[i];
    layout_outcome o = {.state = "oom"};
    snprintf(o.device, sizeof o.device, "%s", s->c->device == CONFIG_DEVICE_CUDA ? "cuda" : "cpu");
    if (*k->too_large) {
        snprintf(o.note, sizeof o.note, "%s", k->too_large);
    } else {
        int64_t began = clock_now_ns();
        TRY(run_case(s, k, &o, e));
        s->spent_s += clock_since_s(began);
        s->run++;
    }
    s->ok += strcmp(o.state, "ok") == 0;
    TRY(layout_rows_add(&s->rows, k, &o, e));
    put_json(s, k, &o);
    if (!s->args->json) print_row(s, i + 1, s->n, k, &o, count_left(s, i + 1));
    return ST_OK;
}

static void print_head(const sweep *s) {
    printf("%d layout%s of %s; %d in %s already, %d to run\n", s->n, text_s(s->n),
           s->args->inputs[0], s->there, s->rows.path, count_left(s, 0));
    if (s->impossible)
        printf("%d more cannot be made; the last: %s\n", s->impossible, s->last.message);
    fflush(stdout);
}

static status run_all(sweep *s, err *e) {
    TRY(layout_rows_write(&s->rows, e));
    for (int i = 0; i < s->n; i++)
        s->there += is_ours(s, i) && layout_rows_have(&s->rows, &s->cases[i]);
    if (!s->args->json) print_head(s);
    start_ticks();
    status st = ST_OK;
    for (int i = 0; i < s->n && st == ST_OK; i++)
        if (is_ours(s, i) && !layout_rows_have(&s->rows, &s->cases[i])) st = make_row(s, i, e);
    stop_ticks();
    if (st == ST_OK) tell(s);
    return st;
}

static status read_share(sweep *s, err *e) {
    const char *text = cli_value(s->args, "share");
    char *end;
    s->share = s->shares = 1;
    if (!text) return ST_OK;
    s->share = strtol(text, &end, 10);
    s->shares = *end == '/' ? strtol(end + 1, &end, 10) : 0;
    if (!*end && s->share >= 1 && s->share <= s->shares && s->shares <= 100000) return ST_OK;
    return err_at(e, ST_USAGE, "command line", "--share: '%s' is not K/N with K from 1 to N", text);
}

/* "tiny.yaml" has its rows in "tiny.rows.csv". */
static const char *path_of(const sweep *s) {
    const char *in = path_base(s->args->inputs[0]);
    size_t n = strlen(in);
    if (s->args->output) return s->args->output;
    if (n > 5 && strcmp(in + n - 5, ".yaml") == 0) n -= 5;
    return arena_printf(s->a, "%.*s.rows.csv", (int)n, in);
}

static status sweep_config(sweep *s, err *e) {
    const cli_args *args = s->args;
    TRY(cli_int(args, "steps", 5, 1, 100000, &s->steps, e));
    TRY(cli_int(args, "warmup", 2, 0, 100000, &s->warmup, e));
    TRY(cli_num(args, "limit", 600, 0.01, 1e9, &s->limit_s, e));
    TRY(read_share(s, e));
    TRY(model_arg_load(args->inputs[0], args, &s->c, e));
    TRY(layout_rows_open(&s->rows, path_of(s), path_base(args->inputs[0]), e));
    TRY(find_cases(s, e));
    return run_all(s, e);
}

static status cmd_bench_layouts(const cli_args *args, err *e) {
    sweep s = {.args = args, .a = arena_new("layouts"), .json = json_array()};
    if (args->json) log_set_quiet(true);
    status st = sweep_config(&s, e);
    layout_rows_close(&s.rows);
    json_decref(s.json);
    config_free(s.c);
    arena_free(s.a);
    return st;
}

static const cli_option options[] = {
    {"ranks", "N,N", "numbers of ranks (1, 2, 4, ... up to the cores of this machine)"},
    {"tp", "N,N", "tensor-parallel ranks (1,2,4,8)"},
    {"cp", "N,N", "context-parallel ranks (1)"},
    {"ep", "N,N", "ranks that share out experts (1)"},
    {"pp", "N,N", "stages of a pipeline (1,2,4,8)"},
    {"schedule", "S,S", "schedules of pipelines (1f1b)"},
    {"zero", "N,N", "ZeRO (0,1,2,3)"},
    {"recompute", "R,R", "recompute (none,full)"},
    {"micro-batch", "N,N", "sequences of a micro-batch (1,2,4,8)"},
    {"steps", "N", "measured steps of each (5)"},
    {"warmup", "N", "steps before them (2)"},
    {"limit", "S", "seconds after which one is given up (600)"},
    {"share", "K/N", "only every Nth, from the Kth: for arrays of jobs, each with its own -o"},
    {0}};

const cli_command command_bench_layouts = {
    .name = "bench layouts",
    .summary = "measure the layouts of a config, as rows for plan fit",
    .usage = "CONFIG [key=value...] [-o ROWS.csv] [--ranks 1,2] [--tp 1,2] ... [--share K/N]",
    .run = cmd_bench_layouts,
    .options = options,
    .takes_output = true,
    .takes_keys = true,
    .about =
        "Runs every combination of the axes for some steps, each in processes of its own, and "
        "writes a\n"
        "row for each: tokens a second beside what the plan predicted, or how it failed (oom, "
        "timeout,\n"
        "crash, diverged). What the config says of an axis is kept where no option says more. "
        "Started "
        "again it\n"
        "goes on with the layouts that have no row yet; delete a row to measure it again. What the "
        "ranks said is "
        "in\n"
        "ROWS.csv.log. `athanor plan fit ROWS.csv` and `plan validate ROWS.csv` read the rows.\n"};
