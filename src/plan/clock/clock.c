/* The walk over a step table under the clock (see clock.h).
 *
 * Reading order: clock_step, walk, and above it what entries take; the report. */
#include "plan/clock/clock.h"

#include <string.h>

#include "base/json.h"
#include "op/collective.h"

/* Seconds of a program's ops up to each: kernels, and collectives among them. */
typedef struct op_sums {
    double *kernels, *among; /* [ops + 1] */
} op_sums;

typedef struct ticking {
    const plan *p;
    const cluster *c;
    const mesh *ranks;
    arena *a;
    step_parts parts;
    op_sums *chunk, *look;
    double now, side; /* when each stream is free */
    double *done;     /* [units] when its transfer ends */
    clock_time t;
} ticking;

static network_group group_of(const ticking *k, mesh_axis axis, int copies) {
    network_group g = network_group_of(k->c, &k->ranks->shape, axis);
    if (copies) g.ranks = copies;
    if (g.per_node > g.ranks) g.per_node = g.ranks;
    return g;
}

static double call_seconds(const ticking *k, mesh_axis axis, int copies, const comm_call *call) {
    network_group g = group_of(k, axis, copies);
    return network_seconds(k->c, g, call->kind, (double)comm_call_sends(call, 0, g.ranks));
}

/* What the calls of an op take, one behind the other. */
static double calls_seconds(const ticking *k, const prog_op *op) {
    double sum = 0;
    for (int i = 0; k->ranks; i++) {
        op_collective c = op_collective_of(op->kind, op->entry == ENTRY_FWD, op->attr, op->in, i);
        if (c.call.kind == COMM_KINDS) break;
        sum += call_seconds(k, c.axis, 0, &c.call);
    }
    return sum;
}

static op_sums sum_ops(ticking *k, const prog *p) {
    int n = prog_get_stats(p)->ops;
    op_sums s = {ARENA_ARRAY(k->a, double, n + 1), ARENA_ARRAY(k->a, double, n + 1)};
    for (int i = 0; i < n; i++) {
        prog_op op = prog_get_op(p, i);
        s.kernels[i + 1] = s.kernels[i] + roofline_seconds(k->c, &op);
        s.among[i + 1] = s.among[i] + calls_seconds(k, &op);
    }
    return s;
}

/* ---- entries ---- */

/* Kernels for d seconds; while the second stream is busy they have a part of the device. */
static void compute(ticking *k, double d) {
    double share = 1 - k->c->contention, beside = k->side - k->now;
    double slow = beside > 0 ? (d < beside * share ? d : beside * share) : 0;
    double all = d - slow + slow / share;
    k->now += all;
    k->t.kernels_s += all;
}

static void run_ops(ticking *k, const step_entry *e) {
    const op_sums *s = e->model ? &k->look[e->model - 1] : &k->chunk[e->chunk];
    double among = s->among[e->end] - s->among[e->first];
    compute(k, s->kernels[e->end] - s->kernels[e->first]);
    k->now += among;
    k->t.among_s += among;
}

static void send(ticking *k, int unit, const step_call *call) {
    double d = call_seconds(k, call->axis, call->copies, &call->call);
    k->side = (k->side > k->now ? k->side : k->now) + d;
    k->done[unit] = k->side;
    k->t.beside_s += d;
}

static void wait_for(ticking *k, int unit) {
    if (k->done[unit] <= k->now) return;
    k->t.exposed_s += k->done[unit] - k->now;
    k->now = k->done[unit];
}

static void host(ticking *k, double d) {
    k->now += d;
    k->t.host_s += d;
}

static double fill_seconds(const ticking *k) {
    const plan_spec *s = &k->p->spec;
    return k->c->micro_s + k->c->token_s * s->train_B * s->T;
}

/* Each number that ranks agree upon is a small all-reduce: targets, loss, norm. */
static void agree(ticking *k) {
    network_group g = group_of(k, MESH_WORLD, 0);
    double d = 3 * network_seconds(k->c, g, COMM_ALL_REDUCE, 8);
    k->now += d;
    k->t.exposed_s += d;
}

/* Gradients are read once for the norm; the update reads them again, and reads and writes weights and states. */
double clock_update_bytes(const plan *p) {
    double grads = (double)(p->region[REGION_GRADS].bytes + p->region[REGION_GRAD_PIECE].bytes);
    if (param_grads_in_slots(p->store))
        grads = (double)p->region[REGION_GRAD_PIECE].bytes;
    else if (p->spec.sharing.zero) /* of flat ones, the piece */
        grads *= (double)param_store_sizes(p->store).piece_elems /
                 (double)param_store_sizes(p->store).flat_elems;
    return 2 * grads +
           2.0 * (double)(p->region[REGION_PARAMS].bytes + p->region[REGION_OPTIM].bytes) +
           (double)p->region[REGION_WORK].bytes;
}

/* The work copies of a unit leave as soon as it is updated. */
static void update(ticking *k) {
    const param_store *s = k->p->store;
    double began = k->now, all = 0, bytes = clock_update_bytes(k->p);
    if (k->ranks) agree(k);
    began = k->now;
    if (param_units(s) == 0) k->now += roofline_stream(k->c, bytes); /* one rank alone */
    for (int u = 0; u < param_units(s); u++) all += (double)param_unit_at(s, u)->piece_n;
    for (int u = 0; u < param_units(s); u++) {
        const param_unit *unit = param_unit_at(s, u);
        step_call call;
        if (unit->frozen) continue;
        k->now += roofline_stream(k->c, bytes) * (double)unit->piece_n / all;
        if (k->ranks && !param_weights_in_slots(s) && step_gather_call(s, u, &call))
            send(k, u, &call);
    }
    if (k->side > k->now) k->now = k->side;
    k->t.optimizer_s += k->now - began;
    host(k, k->c->step_s);
}

static void walk(ticking *k, const step_table *t) {
    step_call call;
    for (int i = 0; i < t->n; i++) {
        const step_entry *e = &t->entry[i];
        switch (e->action) {
            case STEP_FILL:
                if (!e->model && !e->counting && e->chunk == 0) host(k, fill_seconds(k));
                break;
            case STEP_FORWARD:
            case STEP_BACKWARD: run_ops(k, e); break;
            case STEP_GATHER:
                if (step_gather_call(k->p->store, e->unit, &call)) send(k, e->unit, &call);
                break;
            case STEP_REDUCE:
                for (int n = 0; step_reduce_call(k->p->store, e, k->p->spec.narrow_sums, n, &call);
                     n++)
                    send(k, e->unit, &call);
                break;
            case STEP_GATHERED:
            case STEP_REDUCED: wait_for(k, e->unit); break;
            case STEP_OPTIMIZER: update(k); break;
            default: break; /* what takes no time that counts */
        }
    }
}

/* ---- steps ---- */

static clock_time time_of(const plan *p, const cluster *c, int n, int frames) {
    ticking k = {.p = p, .c = c, .ranks = p->spec.ranks, .a = arena_new("clock")};
    k.parts = plan_step_parts(p, k.a, n, p->spec.ranks && p->spec.ranks->size[MESH_DATA] > 1);
    k.parts.frames = frames;
    k.chunk = ARENA_ARRAY(k.a, op_sums, k.parts.chunks);
    k.look = ARENA_ARRAY(k.a, op_sums, k.parts.looks);
    for (int i = 0; i < k.parts.chunks; i++) k.chunk[i] = sum_ops(&k, k.parts.chunk[i]);
    for (int i = 0; i < k.parts.looks; i++) k.look[i] = sum_ops(&k, k.parts.look[i]);
    k.done = ARENA_ARRAY(k.a, double, param_units(p->store));
    step_table t = step_build(k.a, &k.parts);
    walk(&k, &t);
    k.t.step_s = k.now;
    arena_free(k.a);
    return k.t;
}

/* a + times * (b - a), of all members that are times of a step */
static clock_time extend(clock_time a, const clock_time *b, double times) {
    double *x[] = {&a.step_s,      &a.kernels_s, &a.among_s, &a.exposed_s,
                   &a.optimizer_s, &a.host_s,    &a.beside_s};
    const double y[] = {b->step_s,      b->kernels_s, b->among_s, b->exposed_s,
                        b->optimizer_s, b->host_s,    b->beside_s};
    for (int i = 0; i < ARRAY_LEN(x); i++) *x[i] += times * (y[i] - *x[i]);
    return a;
}

static void sum_classes(const plan *p, const cluster *c, double micro, clock_time *t) {
    for (int i = 0; i < plan_chunks(p); i++) {
        const prog *g = plan_prog(p, USE_TRAIN, i);
        for (int k = 0; k < prog_get_stats(g)->ops; k++) {
            prog_op op = prog_get_op(g, k);
            t->by_class[op_classes[op.kind].profile] += micro * roofline_seconds(c, &op);
        }
    }
}

/* The slowest of many ranks is waited for. */
static void straggle(clock_time *t, const cluster *c) {
    if (t->ranks == 1) return;
    double more = c->straggle * t->kernels_s;
    t->kernels_s += more;
    t->step_s += more;
}

clock_time clock_step(const plan *p, const cluster *c) {
    enum { FEW = 3 };
    const plan_spec *s = &p->spec;
    CHECK(s->train_B > 0, "a plan that does not train has no step");
    int n = s->micro_batches > 1 ? (int)s->micro_batches : 1, frames = plan_frames(p);
    int group = frames < n ? frames : 1;
    clock_time t;
    if (n / group <= FEW) {
        t = time_of(p, c, n, frames);
    } else {
        int few = FEW * group + n % group, more = few + group;
        clock_time longer = time_of(p, c, more, frames < n ? frames : more);
        t = time_of(p, c, few, frames < n ? frames : few);
        t = extend(t, &longer, n / group - FEW);
    }
    sum_classes(p, c, n, &t);
    t.ranks = s->ranks ? s->ranks->size[MESH_WORLD] : 1;
    t.tokens = (double)n * s->train_B * s->T * (s->ranks ? s->ranks->size[MESH_DP] : 1);
    t.model_flops = n * plan_model_flops(p);
    t.hardware_flops = n * plan_hardware_flops(p);
    t.peak_flops = c->peak_flops[s->compute];
    straggle(&t, c);
    return t;
}

double clock_mfu(const clock_time *t) {
    return t->model_flops / t->step_s / t->peak_flops;
}

double clock_hfu(const clock_time *t) {
    return t->hardware_flops / t->step_s / t->peak_flops;
}

/* ---- the report ---- */

json_t *clock_json(const clock_time *t, const cluster *c) {
    double rate = t->tokens / t->step_s;
    json_t *classes = json_object();
    for (int i = 0; i < OP_PROFILES; i++)
        json_object_set_new(classes, cluster_class_name((op_profile)i),
                            json_f64(t->by_class[i] * 1e3));
    json_object_set_new(classes, "optimizer", json_f64(t->optimizer_s * 1e3));
    return json_pack(
        "{s:o,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:o}", "cluster",
        json_cstr(c->name), "devices", t->ranks, "step_ms", t->step_s * 1e3, "tok_per_s", rate,
        "tok_per_s_per_device", rate / t->ranks, "mfu", clock_mfu(t), "hfu", clock_hfu(t), "bubble",
        0.0, "kernels_ms", t->kernels_s * 1e3, "collectives_among_ops_ms", t->among_s * 1e3,
        "exposed_ms", t->exposed_s * 1e3, "hidden_ms",
        (t->beside_s > t->exposed_s ? t->beside_s - t->exposed_s : 0) * 1e3, "optimizer_ms",
        t->optimizer_s * 1e3, "host_ms", t->host_s * 1e3, "classes", classes);
}

static void part(strbuf *out, const clock_time *t, const char *name, double seconds,
                 const char *note) {
    strbuf_printf(out, "  %-22s %10.2f ms   %5.1f %%  %s\n", name, seconds * 1e3,
                  100 * seconds / t->step_s, note);
}

void clock_describe(const clock_time *t, const cluster *c, strbuf *out) {
    double rate = t->tokens / t->step_s;
    strbuf_printf(out, "time on %s: %d x %s (predicted)\n", c->name, t->ranks, c->device_name);
    part(out, t, "a step", t->step_s, "");
    part(out, t, "kernels", t->kernels_s, "of forward and backward");
    if (t->among_s > 0)
        part(out, t, "collectives among them", t->among_s, "of tensor parallelism: exposed");
    if (t->ranks > 1) {
        char note[64];
        snprintf(note, sizeof note, "of %.2f ms beside kernels", t->beside_s * 1e3);
        part(out, t, "waits for others", t->exposed_s, note);
    }
    if (t->bubble_s > 0) part(out, t, "bubble", t->bubble_s, "of the pipeline");
    part(out, t, "optimizer", t->optimizer_s, "");
    part(out, t, "host", t->host_s, "");
    strbuf_printf(out, "  %-22s %10.0f      %.0f of each device\n", "tokens a second", rate,
                  rate / t->ranks);
    strbuf_printf(
        out,
        "  MFU %.1f %% (the model's products and visible pairs of attention), HFU %.1f %% "
        "(all that is computed), of %.1f TFLOP/s\n",
        100 * clock_mfu(t), 100 * clock_hfu(t), t->peak_flops / 1e12);
}
