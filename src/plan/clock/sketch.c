/* Reading order: sketch_new, what a layer costs; sketch_time, from layers to stages to a step. */
#include "plan/clock/sketch.h"

#include "op/collective.h"

/* ---- layers ---- */

static void add_ops(sketch_layer *to, const prog *p, const mesh *ranks, const cluster *c) {
    for (int i = 0; i < prog_get_stats(p)->ops; i++) {
        prog_op op = prog_get_op(p, i);
        op_collective k = op_collective_of(op.kind, op.entry == ENTRY_FWD, op.attr, &op.in[0]);
        schedule_work w = op.phase == PHASE_F   ? WORK_FORWARD
                          : op.phase == PHASE_B ? WORK_INPUT
                                                : WORK_WEIGHT;
        double among = 0;
        if (k.call.kind != COMM_KINDS) {
            network_group g = network_group_of(c, &ranks->shape, k.axis);
            among =
                network_seconds(c, g, k.call.kind, (double)comm_call_sends(&k.call, 0, g.ranks));
        }
        to->work[w] += roofline_seconds(c, &op) + among;
        to->among[w] += among;
    }
    to->work[WORK_BACKWARD] = to->work[WORK_INPUT] + to->work[WORK_WEIGHT];
    to->among[WORK_BACKWARD] = to->among[WORK_INPUT] + to->among[WORK_WEIGHT];
}

static void add_params(sketch *s, const plan *p) {
    int last = s->layers - 1;
    int64_t repeat = p->spec.model.block_repeat;
    bool tied = model_head_is_table(&p->spec.model);
    for (int i = 0; i < param_count(p->store); i++) {
        const param *q = param_at(p->store, i);
        double n = (double)param_elems(q);
        int at = q->layer >= 0 ? (int)(q->layer / repeat) : q->table ? 0 : last;
        s->layer[at < last ? at : last].elems += n;
        if (q->layer < 0 && q->table && tied) s->layer[last].tied_elems += n;
    }
}

status sketch_new(sketch *out, arena *a, dev *meta, const plan_spec *base, sketch_key key,
                  const cluster *c, err *e) {
    mesh ranks;
    plan *p;
    *out = (sketch){.layers = (int)base->model.num_hidden_layers, .spec = *base};
    plan_spec *s = &out->spec;
    mesh_place(&ranks, &(mesh_shape){.dp = 1, .dp_replicate = 1, .tp = key.tp, .cp = 1, .pp = 1},
               0);
    s->chunks = out->layers;
    s->frames = 1;
    s->micro_batches = 1;
    s->train_B = key.micro_batch;
    s->valid_B = s->cache_tok = s->logits_T = 0;
    s->recompute = key.recompute;
    s->ranks = &ranks;
    s->sequence_parallel = key.tp > 1;
    s->snapshot = false;
    s->sharing = (param_sharding){.shards = 1, .bucket_elems = 1 << 22};
    TRY(plan_new(&p, meta, s, e));
    out->layer = ARENA_ARRAY(a, sketch_layer, out->layers);
    for (int i = 0; i < out->layers; i++) {
        const prog *g = plan_prog(p, USE_TRAIN, i);
        const prog_stats *st = prog_get_stats(g);
        add_ops(&out->layer[i], g, &ranks, c);
        out->layer[i].saved_bytes = (double)st->saved_bytes;
        out->layer[i].scratch_bytes = (double)(st->frame_bytes - st->saved_bytes);
    }
    add_params(out, p);
    out->passed_bytes = (double)key.micro_batch * s->T * (double)s->model.hidden_size *
                        (double)dtype_bytes(s->compute) / key.tp;
    out->model_flops = plan_model_flops(p);
    out->hardware_flops = plan_hardware_flops(p);
    plan_free(p);
    s->ranks = NULL;
    return ST_OK;
}

/* ---- stages ---- */

typedef struct stage_sums {
    double elems, saved, scratch, largest; /* largest: elems of the largest layer */
    double work[WORKS], among;
} stage_sums;

/* Layers of a chunk, as even as they can be. */
static void add_chunk(const sketch *s, const sketch_layout *l, int chunk, stage_sums *to,
                      double work[WORKS]) {
    int chunks = l->pp * l->chunks_of_stage;
    op_part part = op_part_of(s->layers, chunks, chunk);
    for (int64_t i = part.first; i < part.first + part.n; i++) {
        const sketch_layer *x = &s->layer[i];
        to->elems += x->elems;
        to->saved += x->saved_bytes;
        to->among += x->among[WORK_FORWARD] + x->among[WORK_BACKWARD];
        if (x->scratch_bytes > to->scratch) to->scratch = x->scratch_bytes;
        if (x->elems > to->largest) to->largest = x->elems;
        for (int w = 0; w < WORKS; w++) {
            work[w] += x->work[w];
            to->work[w] += x->work[w];
        }
    }
    if (chunk == chunks - 1 && l->pp > 1) to->elems += s->layer[s->layers - 1].tied_elems;
}

/* What lies where under each stage of ZeRO: param/units.h. */
static double stage_bytes(const sketch *s, const sketch_layout *l, const stage_sums *g, int kept) {
    bool narrow = s->spec.compute != DT_F32;
    double shards = l->zero ? l->dp : 1, slots = 3 * g->largest;
    double masters = 4 * g->elems / (narrow || l->zero == 3 ? shards : 1);
    double work = !narrow ? 0 : l->zero == 3 ? 2 * (g->elems / shards + slots) : 2 * g->elems;
    double grads = 4 * (l->zero >= 2 ? g->elems / shards + slots : g->elems);
    double states = 4.0 * (s->spec.optim ? s->spec.optim->n_states : 0) * g->elems / shards;
    return masters + work + grads + states + g->saved / l->chunks_of_stage * kept + g->scratch;
}

/* What collectives of d seconds in all add to `work` seconds of kernels of n layers: each layer's begins when the layer is
 * through (or a layer ahead, of weights), and kernels beside them have less of the device. */
static double stick_out(double d, double work, int n, double contention) {
    double begin = work / n, room = (work - begin) / (1 - contention), beside = d < room ? d : room;
    double kernels = work + beside * contention + d / n, last = begin + d;
    return (kernels > last ? kernels : last) - work;
}

static mesh_shape shape_of(const sketch_layout *l) {
    return (mesh_shape){.dp = l->dp, .dp_replicate = 1, .tp = l->key.tp, .cp = 1, .pp = l->pp};
}

typedef struct tail {
    double exposed, beside, optimizer;
} tail;

/* Of a stage: its gradients, its gathers, its update. */
static tail tail_of(const sketch *s, const sketch_layout *l, const stage_sums *g,
                    const cluster *c) {
    tail t = {0};
    mesh_shape shape = shape_of(l);
    network_group dp = network_group_of(c, &shape, MESH_DP);
    double share = (l->dp - 1.0) / l->dp, m = (double)l->micro_batches;
    double width = s->spec.compute == DT_F32 ? 4 : 2, owned = g->elems / (l->zero ? l->dp : 1);
    double scatter = network_seconds(c, dp, COMM_REDUCE_SCATTER, 4 * g->elems * share);
    double gather = network_seconds(c, dp, COMM_ALL_GATHER, width * g->elems * share);
    double update = roofline_stream(c, owned * (8 + 2.0 * (4 + 4 * s->spec.optim->n_states) + 2));
    double back = g->work[WORK_BACKWARD];
    int n = s->layers / l->pp;
    if (l->zero == 0) {
        t.beside = network_seconds(c, dp, COMM_ALL_REDUCE, 8 * g->elems * share);
        t.exposed = stick_out(t.beside, back, n, c->contention);
    } else if (l->zero == 1) {
        t.beside = scatter;
        t.exposed = stick_out(scatter, back, n, c->contention);
    } else {
        /* the slots still hold two layers when the backward begins */
        double gathers = l->zero == 3 ? gather : 0, again = n > 2 ? gathers * (n - 2) / n : 0;
        t.beside = m * (scatter + gathers + again);
        t.exposed = m * (stick_out(scatter + again, back, n, c->contention) +
                         stick_out(gathers, g->work[WORK_FORWARD], n, c->contention));
    }
    t.optimizer = update;
    bool gathers_once = l->zero == 1 || l->zero == 2;
    if (gathers_once && gather > update) t.optimizer = gather;
    if (gathers_once) t.beside += gather;
    network_group all = network_group_of(c, &shape, MESH_WORLD);
    t.exposed += 3 * network_seconds(c, all, COMM_ALL_REDUCE, 8);
    return t;
}

/* ---- the pipeline ---- */

/* Of very many micro-batches some are drawn, and the rest is what the slowest stage takes for each more. */
static int drawn(const sketch_layout *l) {
    int few = 6 * l->pp;
    if (l->micro_batches <= few + l->pp) return (int)l->micro_batches;
    return few + (int)(l->micro_batches % l->pp);
}

static double host_of(const sketch *s, const cluster *c) {
    return c->micro_s + c->token_s * s->spec.train_B * s->spec.T;
}

/* A layout under way. */
typedef struct timing {
    const sketch *s;
    const sketch_layout *l;
    const cluster *c;
    schedule drawn;
    stage_sums *stage;
    double end; /* when the last stage has done its last micro-batch */
} timing;

typedef double chunk_work[WORKS];

static status draw(timing *t, arena *a, err *e) {
    const sketch_layout *l = t->l;
    int chunks = l->pp * l->chunks_of_stage, m = drawn(l);
    TRY(schedule_build(a, l->schedule, l->pp, m, l->chunks_of_stage, &t->drawn, e));
    t->stage = ARENA_ARRAY(a, stage_sums, l->pp);
    chunk_work *work = ARENA_ARRAY(a, chunk_work, chunks);
    for (int i = 0; i < chunks; i++)
        add_chunk(t->s, l, i, &t->stage[schedule_stage_of(&t->drawn, i)], work[i]);
    work[0][WORK_FORWARD] += host_of(t->s, t->c);
    mesh_shape shape = shape_of(l);
    schedule_times times = {.transfer = network_send(t->c, &shape, t->s->passed_bytes),
                            .of_chunk = (const chunk_work *)work};
    schedule_time(&t->drawn, &times);
    double slowest = 0;
    for (int i = 0; i < l->pp; i++) {
        double one = t->stage[i].work[WORK_FORWARD] + t->stage[i].work[WORK_BACKWARD];
        if (one > slowest) slowest = one;
    }
    t->end = t->drawn.end + (double)(l->micro_batches - m) * slowest;
    return ST_OK;
}

/* The step as one stage has it: it begins with the first and ends with the last micro-batch of the pipeline. */
static clock_time time_of(const timing *t, int stage) {
    const stage_sums *g = &t->stage[stage];
    tail k = tail_of(t->s, t->l, g, t->c);
    double n = (double)t->l->micro_batches, host = stage == 0 ? n * host_of(t->s, t->c) : 0;
    double busy = n * (g->work[WORK_FORWARD] + g->work[WORK_BACKWARD]);
    return (clock_time){.step_s = t->end + k.exposed + k.optimizer + t->c->step_s,
                        .kernels_s = busy - n * g->among,
                        .among_s = n * g->among,
                        .exposed_s = k.exposed,
                        .optimizer_s = k.optimizer,
                        .host_s = host + t->c->step_s,
                        .beside_s = k.beside,
                        .bubble_s = t->l->pp > 1 ? t->end - busy - host : 0};
}

static void complete(const timing *k, clock_time *t) {
    const sketch_layout *l = k->l;
    t->ranks = l->dp * l->key.tp * l->pp;
    double straggle = t->ranks > 1 ? k->c->straggle * t->kernels_s : 0;
    t->kernels_s += straggle;
    t->step_s += straggle;
    t->tokens = (double)l->micro_batches * l->key.micro_batch * k->s->spec.T * l->dp;
    t->model_flops = (double)l->micro_batches * k->s->model_flops / l->pp;
    t->hardware_flops = (double)l->micro_batches * k->s->hardware_flops / l->pp;
    t->peak_flops = k->c->peak_flops[k->s->spec.compute];
}

status sketch_time(const sketch *s, const sketch_layout *l, const cluster *c, sketch_result *out,
                   err *e) {
    arena *a = arena_new("sketch");
    timing t = {.s = s, .l = l, .c = c};
    status st = draw(&t, a, e);
    *out = (sketch_result){.memory_bytes = 0};
    for (int i = 0; st == ST_OK && i < l->pp; i++) {
        clock_time of_stage = time_of(&t, i);
        double bytes = stage_bytes(s, l, &t.stage[i], t.drawn.stage[i].kept);
        if (bytes > out->memory_bytes) out->memory_bytes = bytes;
        if (of_stage.step_s > out->time.step_s) out->time = of_stage;
    }
    if (st == ST_OK) complete(&t, &out->time);
    arena_free(a);
    return st;
}
