/* The walk over a step table under the clock (see clock.h).
 *
 * Reading order: clock_step, walk, and above it what entries take; stages of a pipeline, which are walked side by side;
 * the report. */
#include "plan/clock/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* What a program's ops take up to each: [ops + 1]. */
typedef op_time *op_sums;

/* Programs whose ops have been summed: stages that are alike, and the walks of two steps, have the same. */
typedef struct summed {
    struct {
        const prog *p;
        op_sums sums;
    } * of;
    int n, cap;
    arena *a;
} summed;

typedef struct ticking {
    const plan *p;
    const cluster *c;
    const mesh *ranks;
    arena *a;
    summed *known;
    step_parts parts;
    op_sums *chunk, *look;
    double now, side,
        disk; /* when each stream is free; the third reads and writes the file of parallel.offload */
    double *done; /* [units] when its transfer ends */
    clock_time t;
    /* of a stage: how far it has come, and what it and the others have sent */
    step_table table;
    int at;
    double line,
        *sent; /* when the way to other stages is free; [entries] when what they began has left */
    double tied, ready; /* when it has come to STEP_TIED and STEP_OPTIMIZER; before that UNKNOWN */
    struct stages *all; /* NULL: it has no others */
} ticking;

/* The stages of a pipeline. arrives: [chunks * micro_batches], of activations and of gradients. */
typedef struct stages {
    ticking *stage;
    int n;
    double *arrives[2];
} stages;

static const double UNKNOWN = -1;

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

static op_sums sum_ops(const ticking *k, const prog *p) {
    int n = prog_get_stats(p)->ops;
    op_sums s = ARENA_ARRAY(k->known->a, op_time, n + 1);
    double update = clock_update_share(k->p);
    for (int i = 0; i < n; i++) {
        prog_op op = prog_get_op(p, i);
        op_time t = op_time_of(k->c, k->ranks ? &k->ranks->shape : NULL, &op, update);
        s[i + 1] = (op_time){s[i].kernels + t.kernels, s[i].among + t.among, s[i].beside + t.beside,
                             s[i].exposed + t.exposed};
    }
    return s;
}

static op_sums sums_of(const ticking *k, const prog *p) {
    summed *all = k->known;
    for (int i = 0; i < all->n; i++)
        if (all->of[i].p == p) return all->of[i].sums;
    all->of = arena_grow(all->a, all->of, all->n, &all->cap, sizeof *all->of);
    all->of[all->n].p = p;
    return all->of[all->n++].sums = sum_ops(k, p);
}

/* ---- entries ---- */

/* Kernels for d seconds; while the second stream is busy they have a part of the device. */
static void compute(ticking *k, double d) {
    double all = op_time_beside(d, k->side - k->now, k->c->contention);
    k->now += all;
    k->t.kernels_s += all;
}

static double later(double a, double b) {
    return a > b ? a : b;
}

static void run_ops(ticking *k, const step_entry *e) {
    const op_sums s = e->model ? k->look[e->model - 1] : k->chunk[e->chunk];
    const op_time *from = &s[e->first], *to = &s[e->end];
    compute(k, to->kernels - from->kernels);
    k->now += to->among - from->among + to->exposed - from->exposed;
    k->t.among_s += to->among - from->among;
    k->t.exposed_s += to->exposed - from->exposed;
    k->t.beside_s += to->beside - from->beside;
}

/* On one rank nothing is sent. */
static void send(ticking *k, int unit, const step_call *call) {
    double d = k->ranks ? call_seconds(k, call->axis, call->copies, &call->call) : 0;
    k->side = later(k->side, k->now) + d;
    k->done[unit] = k->side;
    k->t.beside_s += d;
}

/* To or from the file, when it is free. Returns the seconds that it takes. */
static double move(ticking *k, double bytes) {
    double rate = k->c->disk_bytes_per_s, d = rate > 0 ? bytes / rate : 0;
    k->disk = later(k->disk, k->now) + d;
    k->t.file_s += d;
    return d;
}

/* A piece in a file is read before it is sent. */
static void gather(ticking *k, int unit) {
    step_call call;
    if (!step_gather_call(k->p->store, unit, &call)) return;
    if (param_weights_transfer(k->p->store, unit).from_file) {
        k->t.beside_s += move(k, (double)call.call.n * (double)dtype_bytes(call.call.dt));
        k->side = later(k->side, k->disk);
    }
    send(k, unit, &call);
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
    int64_t masters = p->region[REGION_PARAMS].bytes;
    if (p->away.masters) masters += p->away.elems * (int64_t)sizeof(float);
    return 2 * grads + 2.0 * (double)(masters + plan_state_bytes(p)) +
           (double)p->region[REGION_WORK].bytes;
}

static double micro_batches_of(const plan *p) {
    return p->spec.micro_batches > 1 ? (double)p->spec.micro_batches : 1;
}

double clock_update_share(const plan *p) {
    double beside = clock_update_bytes(p) / 2; /* nearly all is read and written */
    for (int i = 0; i < plan_chunks(p); i++) {
        const prog *g = plan_prog(p, USE_TRAIN, i);
        if (g) beside -= prog_get_stats(g)->outside_bytes;
    }
    return beside > 0 ? beside / micro_batches_of(p) : 0;
}

double clock_frame_bytes(const plan *p) {
    double frames = 0, scratch = 0;
    for (int i = 0; i < plan_chunks(p); i++) {
        const prog *g = plan_prog(p, USE_TRAIN, i);
        if (!g) continue;
        frames += (double)prog_get_stats(g)->frame_bytes;
        scratch = fmax(scratch, (double)prog_get_stats(g)->scratch_bytes);
    }
    return frames + scratch;
}

/* The work copies of a unit leave as soon as it is updated. */
static void update(ticking *k) {
    const param_store *s = k->p->store;
    double began = k->now, all = 0, bytes = clock_update_bytes(k->p);
    double took = roofline_update(k->c, bytes, clock_frame_bytes(k->p));
    if (k->ranks) agree(k);
    began = k->now;
    if (param_units(s) == 0) k->now += took; /* one rank alone */
    for (int u = 0; u < param_units(s); u++) all += (double)param_unit_at(s, u)->piece_n;
    for (int u = 0; u < param_units(s); u++) {
        const param_unit *unit = param_unit_at(s, u);
        step_call call;
        if (unit->frozen) continue;
        k->now += took * (double)unit->piece_n / all;
        if (k->ranks && !param_weights_in_slots(s) && step_gather_call(s, u, &call))
            send(k, u, &call);
    }
    offload_counts moved = offload_step_bytes(&k->p->away, s, 0);
    double end = k->now;
    k->now = began; /* windows come and go beside the update */
    if (plan_has_file(k->p)) move(k, (double)(moved.read_bytes + moved.written_bytes));
    k->now = later(end, later(k->side, k->disk));
    k->t.optimizer_s += k->now - began;
    host(k, k->c->step_s);
}

/* ---- other stages ---- */

static double *arrival(const ticking *k, const step_entry *e, int chunk) {
    return &k->all->arrives[e->back][chunk * k->parts.micro_batches + e->micro_batch];
}

static void send_on(ticking *k, const step_entry *e) {
    const prog *p = step_prog_of(&k->parts, e);
    double bytes = (double)prog_find_port(p, e->back ? "grad.x" : "y").bytes;
    k->line = (k->line > k->now ? k->line : k->now) + network_send(k->c, &k->ranks->shape, bytes);
    k->sent[k->at] = k->line;
    *arrival(k, e, e->back ? e->chunk - 1 : e->chunk + 1) = k->line;
}

/* Waits until `when`; false: that is not known yet. */
static bool await(ticking *k, double when) {
    if (when == UNKNOWN) return false;
    if (when > k->now) {
        k->t.bubble_s += when - k->now;
        k->now = when;
    }
    return true;
}

/* First and last stage sum the gradients of the table that both have. */
static bool tie(ticking *k, int unit) {
    const stages *s = k->all;
    const ticking *other = &s->stage[k == s->stage ? s->n - 1 : 0];
    comm_call call = step_tied_call(k->p->store, unit, k->p->spec.narrow_sums);
    network_group far = {2, cluster_devices(k->c) > k->c->per_node ? 1 : 2};
    k->tied = k->now;
    if (!await(k, other->tied)) return false;
    double d = network_seconds(k->c, far, call.kind, (double)comm_call_sends(&call, 0, 2));
    k->now += d;
    k->t.exposed_s += d;
    return true;
}

/* The norm of all gradients is known when the last stage has come so far. */
static bool meet(ticking *k) {
    k->ready = k->now;
    for (int i = 0; k->all && i < k->all->n; i++)
        if (k->all->stage[i].ready == UNKNOWN) return false;
    for (int i = 0; k->all && i < k->all->n; i++) await(k, k->all->stage[i].ready);
    return true;
}

/* ---- the walk ---- */

/* False: it waits for what another stage has not done yet. */
static bool do_entry(ticking *k, const step_entry *e) {
    step_call call;
    switch (e->action) {
        case STEP_FILL:
            if (!e->model && !e->counting && e->chunk == 0) host(k, fill_seconds(k));
            return true;
        case STEP_FORWARD:
        case STEP_BACKWARD: run_ops(k, e); return true;
        case STEP_GATHER: gather(k, e->unit); return true;
        case STEP_REDUCE:
            for (int n = 0; step_reduce_call(k->p->store, e, k->p->spec.narrow_sums, n, &call); n++)
                send(k, e->unit, &call);
            return true;
        case STEP_GATHERED:
        case STEP_REDUCED: wait_for(k, e->unit); return true;
        case STEP_SEND: send_on(k, e); return true;
        case STEP_SENT: return await(k, k->sent[e->begun]);
        case STEP_RECEIVED: return await(k, *arrival(k, e, e->chunk));
        case STEP_TIED: return tie(k, e->unit);
        case STEP_OPTIMIZER:
            if (!meet(k)) return false;
            update(k);
            return true;
        default: return true; /* what takes no time that counts */
    }
}

/* As far as it comes; whether it came any further. */
static bool walk(ticking *k) {
    int from = k->at;
    while (k->at < k->table.n && do_entry(k, &k->table.entry[k->at])) k->at++;
    return k->at > from;
}

/* ---- steps ---- */

static void begin(ticking *k, const plan *p, const cluster *c, arena *a, summed *known, int n,
                  int frames) {
    *k = (ticking){.p = p,
                   .c = c,
                   .ranks = p->spec.ranks,
                   .a = a,
                   .known = known,
                   .tied = UNKNOWN,
                   .ready = UNKNOWN};
    k->parts = plan_step_parts(p, a, n, p->spec.ranks && p->spec.ranks->size[MESH_DATA] > 1);
    k->parts.frames = frames;
    k->chunk = ARENA_ARRAY(a, op_sums, k->parts.chunks);
    k->look = ARENA_ARRAY(a, op_sums, k->parts.looks);
    for (int i = 0; i < k->parts.chunks; i++)
        if (k->parts.chunk[i]) k->chunk[i] = sums_of(k, k->parts.chunk[i]);
    for (int i = 0; i < k->parts.looks; i++) k->look[i] = sums_of(k, k->parts.look[i]);
    k->done = ARENA_ARRAY(a, double, param_units(p->store));
    k->table = step_build(a, &k->parts);
    k->sent = ARENA_ARRAY(a, double, k->table.n);
}

/* Of the stage that computes longest; the others' update may end later. */
static clock_time time_of_longest(const stages *s) {
    const ticking *k = &s->stage[0];
    double end = 0;
    for (int i = 0; i < s->n; i++) {
        const ticking *x = &s->stage[i];
        if (x->now > end) end = x->now;
        if (x->t.kernels_s + x->t.among_s > k->t.kernels_s + k->t.among_s) k = x;
    }
    clock_time t = k->t;
    t.bubble_s += end - k->now;
    t.step_s = end;
    t.stage = (int)(k - s->stage);
    return t;
}

/* plans: [n] of the stages. */
static clock_time time_of(plan *const *plans, int n, const cluster *c, summed *known,
                          int micro_batches, int frames) {
    arena *a = arena_new("clock");
    stages s = {ARENA_ARRAY(a, ticking, n), n, {NULL, NULL}};
    int boxes = plan_chunks(plans[0]) * micro_batches;
    for (int b = 0; b < 2; b++) {
        s.arrives[b] = ARENA_ARRAY(a, double, boxes);
        for (int i = 0; i < boxes; i++) s.arrives[b][i] = UNKNOWN;
    }
    for (int i = 0; i < n; i++) {
        begin(&s.stage[i], plans[i], c, a, known, micro_batches, frames);
        if (n > 1) s.stage[i].all = &s;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) moved |= walk(&s.stage[i]);
    }
    for (int i = 0; i < n; i++)
        CHECK(s.stage[i].at == s.stage[i].table.n, "stage %d waits for ever", i);
    clock_time t = time_of_longest(&s);
    arena_free(a);
    return t;
}

/* a + times * (b - a), of all members that are times of a step */
static clock_time extend(clock_time a, const clock_time *b, double times) {
    double *x[] = {&a.step_s, &a.kernels_s, &a.among_s,  &a.exposed_s, &a.optimizer_s,
                   &a.host_s, &a.beside_s,  &a.bubble_s, &a.file_s};
    const double y[] = {b->step_s, b->kernels_s, b->among_s,  b->exposed_s, b->optimizer_s,
                        b->host_s, b->beside_s,  b->bubble_s, b->file_s};
    for (int i = 0; i < ARRAY_LEN(x); i++) *x[i] += times * (y[i] - *x[i]);
    return a;
}

/* As a profile measures ops: with the collectives that they make. */
static void sum_classes(const plan *p, const cluster *c, double micro, clock_time *t) {
    const mesh_shape *shape = p->spec.ranks ? &p->spec.ranks->shape : NULL;
    double update = clock_update_share(p);
    for (int i = 0; i < plan_chunks(p); i++) {
        const prog *g = plan_prog(p, USE_TRAIN, i);
        for (int k = 0; g && k < prog_get_stats(g)->ops; k++) {
            prog_op op = prog_get_op(g, k);
            op_time took = op_time_of(c, shape, &op, update);
            t->by_class[op_classes[op.kind].profile] +=
                micro * (took.kernels + took.among + took.exposed);
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

/* Of a long step of n micro-batches only short ones are walked. frames: of a step that has fewer. */
static clock_time walk_step(plan *const *plans, int n_plans, const cluster *c, summed *known,
                            int n) {
    enum { FEW = 3 };
    int frames = plan_frames(plans[0]);
    int group = n_plans > 1 ? 2 * n_plans : frames < n ? frames : 1;
    if (n / group <= FEW) return time_of(plans, n_plans, c, known, n, frames);
    int few = FEW * group + n % group, more = few + group;
    clock_time longer = time_of(plans, n_plans, c, known, more, frames < n ? frames : more);
    clock_time t = time_of(plans, n_plans, c, known, few, frames < n ? frames : few);
    return extend(t, &longer, n / group - FEW);
}

static clock_time time_of_step(plan *const *plans, int n_plans, const cluster *c, int n) {
    summed known = {.a = arena_new("sums of ops")};
    clock_time t = walk_step(plans, n_plans, c, &known, n);
    arena_free(known.a);
    return t;
}

/* One of those planned already which stage i is like; NULL: there is none. */
static const plan *like_stage(const plan *p, plan *const *planned, int i) {
    for (int k = 0; k < i; k++)
        if (!planned[k]->like && plan_stages_alike(p, k, i)) return planned[k];
    return NULL;
}

/* Whether p itself is the plan of stage i: others may read files, and hold more than is reckoned. */
static bool is_own(const plan *p, int i) {
    return p->spec.reckoned && i == plan_stage(p);
}

/* The plans of a pipeline's stages beside rank p; it was planned together with them, so none fails. */
static void plan_stages_beside(const plan *p, mesh *ranks, plan **out) {
    int n = plan_stages(p);
    const mesh *own = p->spec.ranks;
    int stride = own->shape.tp * own->shape.cp * own->shape.dp;
    for (int i = 0; i < n; i++) {
        plan_spec spec = p->spec;
        err why = {0};
        if (is_own(p, i)) {
            out[i] = (plan *)(uintptr_t)p;
            continue;
        }
        mesh_place(&ranks[i], &own->shape, own->rank[MESH_WORLD] + (i - plan_stage(p)) * stride);
        spec.ranks = &ranks[i];
        spec.reckoned = true;
        spec.pipe = NULL;
        const plan *like = like_stage(p, out, i);
        status st = like ? plan_new_like(&out[i], like, &ranks[i], &why)
                         : plan_new(&out[i], p->dev, &spec, &why);
        CHECK(st == ST_OK, "stage %d: %s", i, why.message);
    }
}

static void add_sums(clock_time *t, plan *const *plans, int n, double micro) {
    for (int i = 0; i < n; i++) {
        t->model_flops += micro * plan_model_flops(plans[i]) / n;
        t->hardware_flops += micro * plan_hardware_flops(plans[i]) / n;
        double bytes = (double)plan_needed_bytes(plans[i]);
        if (bytes > t->peak_bytes) t->peak_bytes = bytes;
    }
}

static clock_time step_of_stages(const plan *p, const cluster *c, int micro) {
    int n = plan_stages(p);
    mesh *ranks = xcalloc((size_t)n, sizeof *ranks);
    plan **plans = xcalloc((size_t)n, sizeof *plans);
    plan_stages_beside(p, ranks, plans);
    clock_time t = time_of_step(plans, n, c, micro);
    sum_classes(plans[t.stage], c, micro, &t);
    add_sums(&t, plans, n, micro);
    while (n--) /* later ones are like earlier ones */
        if (!is_own(p, n)) plan_free(plans[n]);
    free(plans);
    free(ranks);
    return t;
}

clock_time clock_step(const plan *p, const cluster *c) {
    return clock_step_of(p, c, (int)micro_batches_of(p));
}

clock_time clock_step_of(const plan *p, const cluster *c, int n) {
    const plan_spec *s = &p->spec;
    CHECK(s->train_B > 0, "a plan that does not train has no step");
    clock_time t;
    if (plan_stages(p) > 1) {
        t = step_of_stages(p, c, n);
    } else {
        plan *own = (plan *)(uintptr_t)p;
        t = time_of_step(&own, 1, c, n);
        sum_classes(p, c, n, &t);
        add_sums(&t, &own, 1, n);
    }
    t.stages = plan_stages(p);
    t.has_file = plan_has_file(p);
    t.ranks = s->ranks ? s->ranks->size[MESH_WORLD] : 1;
    t.tokens = (double)n * s->train_B * s->T * (s->ranks ? s->ranks->size[MESH_DP] : 1);
    t.peak_flops = c->peak_flops[s->compute];
    straggle(&t, c);
    return t;
}

double clock_bubble(const clock_time *t) {
    double work = t->kernels_s + t->among_s;
    return work > 0 ? t->bubble_s / work : 0;
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
    return json_pack("{s:o,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:o}", "cluster",
                     json_cstr(c->name), "devices", t->ranks, "step_ms", t->step_s * 1e3,
                     "tok_per_s", rate, "tok_per_s_per_device", rate / t->ranks, "mfu",
                     clock_mfu(t), "hfu", clock_hfu(t), "bubble", clock_bubble(t), "kernels_ms",
                     t->kernels_s * 1e3, "collectives_among_ops_ms", t->among_s * 1e3, "exposed_ms",
                     t->exposed_s * 1e3, "hidden_ms",
                     (t->beside_s > t->exposed_s ? t->beside_s - t->exposed_s : 0) * 1e3,
                     "optimizer_ms", t->optimizer_s * 1e3, "file_ms", t->file_s * 1e3, "host_ms",
                     t->host_s * 1e3, "classes", classes);
}

static void part(strbuf *out, const clock_time *t, const char *name, double seconds,
                 const char *note) {
    strbuf_printf(out, "  %-22s %10.2f ms   %5.1f %%  %s\n", name, seconds * 1e3,
                  100 * seconds / t->step_s, note);
}

void clock_describe(const clock_time *t, const cluster *c, strbuf *out) {
    double rate = t->tokens / t->step_s;
    strbuf_printf(out, "time on %s: %d x %s (predicted%s%s)\n", c->name, t->ranks, c->device_name,
                  *c->source ? " from: " : "", c->source);
    part(out, t, "a step", t->step_s, "");
    part(out, t, "kernels", t->kernels_s, "of forward and backward");
    if (t->among_s > 0)
        part(out, t, "collectives among them", t->among_s,
             "of axes that share sequences and layers: exposed");
    if (t->ranks > 1 || t->exposed_s > 0) {
        char note[64];
        snprintf(note, sizeof note, "of %.2f ms beside kernels", t->beside_s * 1e3);
        part(out, t, t->ranks > 1 ? "waits for others" : "waits for weights", t->exposed_s, note);
    }
    if (t->bubble_s > 0) {
        char note[64];
        snprintf(note, sizeof note, "%.4f of the work of a stage", clock_bubble(t));
        part(out, t, "bubble", t->bubble_s, note);
    }
    part(out, t, "optimizer", t->optimizer_s, "");
    if (t->file_s > 0) part(out, t, "file of offload", t->file_s, "beside all that");
    if (t->has_file && c->disk_bytes_per_s <= 0)
        strbuf_puts(out, "  the file of parallel.offload is not counted: the cluster has no "
                         "device.disk_gb_per_s\n");
    part(out, t, "host", t->host_s, "");
    strbuf_printf(out, "  %-22s %10.0f      %.0f of each device\n", "tokens a second", rate,
                  rate / t->ranks);
    strbuf_printf(
        out,
        "  MFU %.1f %% (the model's products and visible pairs of attention), HFU %.1f %% "
        "(all that is computed), of %.1f TFLOP/s\n",
        100 * clock_mfu(t), 100 * clock_hfu(t), t->peak_flops / 1e12);
}
