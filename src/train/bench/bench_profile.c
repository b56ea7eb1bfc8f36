/* From times per op to rows, and rows as table and JSON. */
#include "train/bench/bench_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

const char *bench_class_name(bench_class c) {
    static const char *const names[BENCH_CLASSES] = {
        [OPP_MATMUL] = "matmul",           [OPP_HEAD] = "head",
        [OPP_ATTENTION] = "attention",     [OPP_NORM] = "norm",
        [OPP_ACTIVATION] = "activation",   [OPP_ROTARY] = "rotary",
        [OPP_ELEMENTWISE] = "elementwise", [BENCH_OPTIMIZER] = "optimizer",
        [BENCH_BETWEEN] = "between"};
    return names[c];
}

const char *bench_pass_name(bench_pass p) {
    static const char *const names[] = {"forward",   "backward input", "backward weight",
                                        "recompute", "update",         "-"};
    return names[p];
}

/* ---- what an op is ---- */

static bench_pass pass_of(const prog_op *o) {
    if (o->recomputed) return BENCH_RECOMPUTE;
    if (o->phase == PHASE_F) return BENCH_FORWARD;
    return o->entry == ENTRY_BWD_WEIGHT ? BENCH_BACKWARD_WEIGHT : BENCH_BACKWARD_INPUT;
}

const char *bench_without_layer(const char *name) {
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t digits = strspn(dot + 1, "0123456789");
        if (digits > 0 && dot[1 + digits] == '.') return dot + 2 + digits;
    }
    return name;
}

/* An op that may work in place bears the name of the value that it takes, so its kind says more. */
static void name_op(const prog_op *o, char *out, size_t size) {
    const op_class *k = &op_classes[o->kind];
    bool in_place = (k->flags & (OPF_INPLACE_0 | OPF_INPLACE_1)) != 0;
    bool gradient = o->entry == ENTRY_FWD && o->phase != PHASE_F && !o->recomputed;
    gradient = gradient || (k->flags & OPF_SUMS_GRAD);
    if (gradient)
        snprintf(out, size, "%s of gradients", k->name);
    else if (k->profile == OPP_HEAD && (k->flags & OPF_PRODUCT))
        snprintf(out, size, "head and loss");
    else
        snprintf(out, size, "%s", in_place || !*o->name ? k->name : bench_without_layer(o->name));
}

/* ---- rows ---- */

static bench_row *row_like(bench_profile *p, const bench_row *r) {
    for (int i = 0; i < p->n; i++) {
        bench_row *x = &p->rows[i];
        if (x->class == r->class && x->pass == r->pass && strcmp(x->name, r->name) == 0) return x;
    }
    p->rows[p->n] = *r;
    return &p->rows[p->n++];
}

static void add_op(bench_profile *p, const prog_op *o, int micro_batches, double seconds) {
    bench_row r = {.class = op_classes[o->kind].profile, .pass = pass_of(o)};
    name_op(o, r.name, sizeof r.name);
    bench_row *row = row_like(p, &r);
    row->calls += micro_batches;
    row->seconds += seconds;
    row->flops += o->flops * micro_batches;
    row->bytes += o->bytes * micro_batches;
}

static void add_ops(bench_profile *out, const prog *p, int micro_batches, const int64_t *ns,
                    double steps) {
    for (int i = 0; p && i < prog_get_stats(p)->ops; i++) {
        prog_op o = prog_get_op(p, i);
        add_op(out, &o, micro_batches, (double)ns[i] / steps);
    }
}

static void add_part(bench_profile *p, const char *name, bench_class class, bench_pass pass,
                     double seconds, double bytes) {
    if (seconds <= 0) return; /* it was not measured */
    bench_row r = {.class = class, .pass = pass, .calls = 1, .seconds = seconds, .bytes = bytes};
    snprintf(r.name, sizeof r.name, "%s", name);
    *row_like(p, &r) = r;
}

/* Gradients are read once for the norm; the update reads them again, and reads and writes weights
 * and states. */
static void add_optimizer(bench_profile *p, const plan *pl, const step_times *times) {
    double grads = (double)pl->region[REGION_GRADS].bytes;
    double moved = grads + 2.0 * (double)(pl->region[REGION_PARAMS].bytes + plan_state_bytes(pl)) +
                   (double)pl->region[REGION_WORK].bytes;
    double steps = (double)p->steps * 1e9;
    add_part(p, "gradient norm", BENCH_OPTIMIZER, BENCH_UPDATE, (double)times->norm_ns / steps,
             grads);
    add_part(p, pl->spec.optim->name, BENCH_OPTIMIZER, BENCH_UPDATE,
             (double)times->update_ns / steps, moved);
}

static int longest_first(const void *a, const void *b) {
    const bench_row *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

void bench_profile_fill(bench_profile *out, arena *a, const plan *p, int micro_batches,
                        const step_times *times, int64_t total_ns) {
    double steps = (double)out->steps * 1e9;
    int ops = 0;
    for (int c = 0; c < plan_chunks(p); c++) {
        const prog *own = plan_prog(p, USE_TRAIN, c);
        ops += own ? prog_get_stats(own)->ops : 0;
    }
    out->rows = ARENA_ARRAY(a, bench_row, ops + 5);
    out->step_s = (double)total_ns / steps;
    for (int c = 0; c < plan_chunks(p); c++)
        add_ops(out, plan_prog(p, USE_TRAIN, c), micro_batches, times->op_ns[c], steps);
    add_optimizer(out, p, times);
    add_part(out, "samples", BENCH_BETWEEN, BENCH_NO_PASS, (double)times->fill_ns / steps, 0);
    add_part(out, "meeting ranks", BENCH_BETWEEN, BENCH_NO_PASS, (double)times->meet_ns / steps, 0);
    double known = 0;
    for (int i = 0; i < out->n; i++) known += out->rows[i].seconds;
    add_part(out, "between ops", BENCH_BETWEEN, BENCH_NO_PASS, out->step_s - known, 0);
    qsort(out->rows, (size_t)out->n, sizeof *out->rows, longest_first);
}

double bench_row_of_limit(const bench_profile *p, const bench_row *r) {
    if (r->seconds <= 0) return 0;
    double arithmetic = r->flops / r->seconds / p->peak_flops;
    double memory = r->bytes / r->seconds / p->peak_bandwidth;
    return arithmetic > memory ? arithmetic : memory;
}

bench_shares bench_profile_shares(const bench_profile *p) {
    double sum[BENCH_CLASSES] = {0}, all = 0;
    for (int i = 0; i < p->n; i++) {
        sum[p->rows[i].class] += p->rows[i].seconds;
        all += p->rows[i].seconds;
    }
    bench_shares s = {.matmul = (sum[OPP_MATMUL] + sum[OPP_HEAD]) / all,
                      .attention = sum[OPP_ATTENTION] / all,
                      .head = sum[OPP_HEAD] / all};
    s.other = 1.0 - s.matmul - s.attention;
    return s;
}

/* ---- JSON and text ---- */

static json_t *row_json(const bench_profile *p, const bench_row *r) {
    return json_pack("{s:s,s:s,s:s,s:I,s:o,s:o,s:o,s:o,s:o}", "name", r->name, "pass",
                     bench_pass_name(r->pass), "class", bench_class_name(r->class), "calls",
                     (json_int_t)r->calls, "ms", json_f64(r->seconds * 1e3), "share",
                     json_f64(r->seconds / p->step_s), "flops", json_f64(r->flops), "bytes",
                     json_f64(r->bytes), "of_limit", json_f64(bench_row_of_limit(p, r)));
}

json_t *bench_profile_json(const bench_profile *p) {
    json_t *list = json_array();
    for (int i = 0; i < p->n; i++) json_array_append_new(list, row_json(p, &p->rows[i]));
    return list;
}

/* A rate, or a dash for work that has no such thing. */
static void put_rate(strbuf *out, double work, double seconds) {
    if (work > 0 && seconds > 0)
        strbuf_printf(out, " %8.1f", work / seconds / 1e9);
    else
        strbuf_printf(out, " %8s", "-");
}

static void put_row(strbuf *out, const bench_profile *p, const bench_row *r) {
    strbuf_printf(out, "%9.3f %6.1f %% %6ld", r->seconds * 1e3, 100 * r->seconds / p->step_s,
                  (long)r->calls);
    put_rate(out, r->flops, r->seconds);
    put_rate(out, r->bytes, r->seconds);
    double share = 100 * bench_row_of_limit(p, r);
    if (share > 0)
        strbuf_printf(out, " %5.0f %%", share);
    else
        strbuf_printf(out, " %7s", "-");
    strbuf_printf(out, "  %-28s %s\n", r->name, bench_pass_name(r->pass));
}

void bench_profile_describe(const bench_profile *p, strbuf *out) {
    bench_shares s = bench_profile_shares(p);
    bench_row total = {.name = "one step", .pass = BENCH_NO_PASS, .seconds = p->step_s};
    strbuf_printf(out, "%9s %8s %6s %8s %8s %7s  %-28s %s\n", "ms", "share", "calls", "GFLOP/s",
                  "GB/s", "limit", "op", "pass");
    for (int i = 0; i < p->n; i++) {
        put_row(out, p, &p->rows[i]);
        total.calls += p->rows[i].calls;
        total.flops += p->rows[i].flops;
        total.bytes += p->rows[i].bytes;
    }
    put_row(out, p, &total);
    strbuf_printf(out,
                  "matrix products %.1f %% (the head with its loss %.1f %%), attention %.1f %%, "
                  "everything else %.1f %%\n",
                  100 * s.matmul, 100 * s.head, 100 * s.attention, 100 * s.other);
    strbuf_printf(out,
                  "times: mean of %ld steps; limit: share of the nearer of %.1f GFLOP/s and "
                  "%.1f GB/s, measured\n",
                  (long)p->steps, p->peak_flops / 1e9, p->peak_bandwidth / 1e9);
}
