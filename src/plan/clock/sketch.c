/* Reading order: sketch_new, what a layer costs; sketch_time, from layers to stages to a step. */
#include "plan/clock/sketch.h"

#include <math.h>

#include "op/collective.h"
#include "optim/offload.h"

/* ---- layers ---- */

const runtime runtime_athanor = {.products = 1,
                                 .attention = 1,
                                 .other = 1,
                                 .experts = 1,
                                 .dp_usable = 1,
                                 .dp_calls = 1,
                                 .kept = 1,
                                 .own = true,
                                 .fill = 1};

static int part_of(op_kind kind) {
    op_profile p = op_classes[kind].profile;
    if (kind == OP_EXPERT_LINEAR || kind == OP_EXPERT_RANKS) return SKETCH_EXPERTS;
    return p == OPP_MATMUL || p == OPP_HEAD ? SKETCH_PRODUCTS
           : p == OPP_ATTENTION             ? SKETCH_ATTENTION
                                            : SKETCH_OTHER;
}

/* Experts that ranks share out. Rows go and come back, in the backward without the second copy of this program's. */
static void add_spread(sketch_layer *to, const prog_op *op, schedule_work w, const op_time *t) {
    const op_expert_ranks *a = &op->attr->expert_ranks;
    const tensor *x = &op->in[0];
    double first = a->gated ? 2 : 1; /* columns of the first product, in those of the second */
    bool back = op->entry != ENTRY_FWD;
    if (back) to->experts_again[w] += t->kernels * first / (3 * first + 2);
    to->rows[w] += 2 * (double)x->rows * (double)x->cols * (double)dtype_bytes(x->dt);
    to->row_sends[w] += 2;
    to->spread[w] += t->among + t->exposed;
    to->spread_hidden[w] += t->beside - t->exposed;
}

/* Numbers that are cast to 8 bits before an op's products: what they read forward, and gradients of what they gave. */
static double numbers_cast(const prog_op *op) {
    bool back = op->entry == ENTRY_BWD_INPUT;
    const tensor *t = back ? &op->out[0] : &op->in[0];
    double rows = (double)t->rows, cols = (double)t->cols;
    if (op_classes[op->kind].profile != OPP_MATMUL || op->entry == ENTRY_BWD_WEIGHT) return 0;
    if (op->kind == OP_EXPERT_RANKS) {
        double F = (double)op->in[2].cols;
        cols += back && op->attr->expert_ranks.gated ? 2 * F : F;
    }
    return rows * cols;
}

static void add_ops(sketch_layer *to, const prog *p, const mesh *ranks, const cluster *c) {
    for (int i = 0; i < prog_get_stats(p)->ops; i++) {
        prog_op op = prog_get_op(p, i);
        op_collective k = op_collective_of(op.kind, op.entry == ENTRY_FWD, op.attr, op.in, 0);
        op_time t = op_time_of(c, &ranks->shape, &op, 0);
        schedule_work w = op.phase == PHASE_F   ? WORK_FORWARD
                          : op.phase == PHASE_B ? WORK_INPUT
                                                : WORK_WEIGHT;
        to->kernels[w][part_of(op.kind)] += t.kernels;
        to->calls[w]++;
        to->casts[w] += roofline_stream(c, 4 * numbers_cast(&op));
        if (part_of(op.kind) == SKETCH_EXPERTS) to->expert_calls[w] += roofline_products(&op);
        if (op.kind == OP_EXPERT_RANKS) add_spread(to, &op, w, &t);
        if (k.call.kind == COMM_KINDS || k.axis == MESH_EP) continue;
        if (k.axis != MESH_TP) {
            to->context[w] += t.among + t.exposed;
            to->hidden[w] += t.beside - t.exposed;
            continue;
        }
        network_group g = network_group_of(c, &ranks->shape, k.axis);
        to->sent[w] += (double)comm_call_sends(&k.call, 0, g.ranks);
        to->sends[w] += k.call.kind == COMM_ALL_REDUCE ? 2 : 1;
    }
}

static sketch_params *params_of(sketch_layer *layer, const param *q) {
    return q->frozen ? &layer->frozen : &layer->trained;
}

/* What stays in its file takes no memory. */
static void add_params(sketch_layer *layer, int n_layers, const plan *p) {
    int last = n_layers - 1;
    int64_t repeat = p->spec.model.block_repeat;
    bool tied = model_head_is_table(&p->spec.model);
    for (int i = 0; i < param_count(p->store); i++) {
        const param *q = param_at(p->store, i);
        double n = q->mapped ? 0 : (double)param_elems(q);
        int at = q->layer >= 0 ? (int)(q->layer / repeat) : q->table ? 0 : last;
        at = at < last ? at : last;
        if (q->mapped && q->stored == DT_NF4) layer[at].quant_bytes += (double)param_quant_bytes(q);
        sketch_params *to = params_of(&layer[at], q);
        to->elems += n;
        if (q->of_expert) to->experts += n;
        if (!q->of_expert && to->experts > 0 && q->layer >= 0 && q->rank > 1)
            layer[at].experts_between = true;
        if (q->layer < 0) to->outside += n;
        if (q->layer < 0 && q->table && tied) params_of(&layer[last], q)->tied += n;
    }
}

/* The first layer and the last, which have what is outside of the layers, and of those between one of each kind: kind[l] is
 * where layer l is among them. */
static model_config pick_layers(arena *a, const model_config *mc, int *kind) {
    int n = (int)mc->num_hidden_layers, picked = 0, *layers = ARENA_ARRAY(a, int, n);
    for (int l = 0; l < n; l++) {
        kind[l] = picked;
        for (int k = 1; l < n - 1 && k < picked && kind[l] == picked; k++)
            if (model_layers_alike(mc, layers[k], l)) kind[l] = k;
        if (kind[l] == picked) layers[picked++] = l;
    }
    return model_config_pick(a, mc, layers, picked);
}

/* Of the layers that were recorded. */
static sketch_layer *layers_of_plan(arena *a, const plan *p, const mesh *ranks, const cluster *c) {
    int n = (int)p->spec.model.num_hidden_layers;
    sketch_layer *layer = ARENA_ARRAY(a, sketch_layer, n);
    for (int i = 0; i < n; i++) {
        const prog *g = plan_prog(p, USE_TRAIN, i);
        const prog_stats *st = prog_get_stats(g);
        add_ops(&layer[i], g, ranks, c);
        layer[i].saved_bytes = (double)st->saved_bytes;
        layer[i].late_bytes = (double)st->late_bytes;
        layer[i].scratch_bytes = (double)(st->frame_bytes + st->scratch_bytes - st->saved_bytes);
        layer[i].model_flops = st->flops_forward + st->flops_backward;
        layer[i].hardware_flops = layer[i].model_flops + st->flops_recompute;
    }
    add_params(layer, n, p);
    return layer;
}

static void repeat_layers(sketch *out, const sketch_layer *layer, const int *kind) {
    for (int l = 0; l < out->layers; l++) {
        out->layer[l] = layer[kind[l]];
        out->model_flops += out->layer[l].model_flops;
        out->hardware_flops += out->layer[l].hardware_flops;
    }
}

status sketch_new(sketch *out, arena *a, dev *meta, const plan_spec *base, sketch_key key,
                  const cluster *c, err *e) {
    mesh ranks;
    plan *p;
    *out = (sketch){.layers = (int)base->model.num_hidden_layers, .spec = *base};
    plan_spec *s = &out->spec;
    int *kind = ARENA_ARRAY(a, int, out->layers);
    int dp = key.ep > 1 ? key.ep : 1; /* a replica that ep divides */
    mesh_place(&ranks,
               &(mesh_shape){
                   .dp = dp, .dp_replicate = 1, .tp = key.tp, .cp = key.cp, .pp = 1, .ep = key.ep},
               0);
    s->model = pick_layers(a, &base->model, kind);
    s->chunks = (int)s->model.num_hidden_layers;
    s->frames = 1;
    s->micro_batches = 1;
    s->train_B = key.micro_batch;
    s->valid_B = s->cache_tok = s->logits_T = 0;
    s->recompute = key.recompute;
    s->ranks = &ranks;
    s->async_products = false; /* what is sent is that of the plain form, and waited for */
    s->sequence_parallel = key.tp > 1;
    s->context = key.context;
    s->snapshot = false;
    s->reckoned = true;
    s->offload = 0; /* layers have the same programs and parameters */
    s->sharing = (param_sharding){.shards = dp * key.cp, .bucket_elems = 1 << 22};
    TRY(plan_new(&p, meta, s, e));
    out->layer = ARENA_ARRAY(a, sketch_layer, out->layers);
    repeat_layers(out, layers_of_plan(a, p, &ranks, c), kind);
    out->passed_bytes = (double)key.micro_batch * s->T * (double)s->model.hidden_size *
                        (double)dtype_bytes(s->compute) / key.tp / key.cp;
    plan_free(p);
    s->ranks = NULL;
    s->offload = base->offload;
    s->model = base->model;
    return ST_OK;
}

/* ---- stages ---- */

typedef struct stage_params {
    double elems, experts, outside;
    /* elems of the largest unit of a layer: its experts, where ranks share them, or the rest */
    double largest;
} stage_params;

typedef struct stage_sums {
    stage_params trained, frozen;
    double quant_bytes, saved, late, scratch; /* scratch: of the layer that needs most */
    double passed_of_chunks; /* activations that lie between layers, and in ports */
    bool has_head;
    double work[WORKS], among;
    double travel;                                /* of among: rows of experts */
    double experts[WORKS], beside_experts[WORKS]; /* kernels of forward and backward */
    bool experts_between;                         /* sketch_layer */
} stage_sums;

/* A layout under way. */
typedef struct timing {
    const sketch *s;
    const sketch_layout *l;
    const cluster *c;
    const runtime *r;
    schedule drawn;
    stage_sums *stage;
    double end; /* when the last stage has done its last micro-batch */
} timing;

/* Groups of ranks that each have the whole state of ZeRO. */
static int replicas_of(const sketch_layout *l) {
    return l->replicas > 1 ? l->replicas : 1;
}

static mesh_shape shape_of(const sketch_layout *l) {
    return (mesh_shape){.dp = l->dp,
                        .dp_replicate = replicas_of(l),
                        .tp = l->key.tp,
                        .cp = l->key.cp,
                        .pp = l->pp,
                        .ep = l->key.ep};
}

/* Ranks that see other tokens: their gradients are summed, and ZeRO shares over them. */
static int data_ranks(const sketch_layout *l) {
    return l->dp * l->key.cp;
}

/* What a rank owns of a stage's parameters: all of them, or a part where ZeRO shares them. */
static double piece_elems(const sketch_layout *l, const stage_params *g) {
    if (!l->zero) return g->elems;
    double ep = l->key.ep > 1 ? l->key.ep : 1;
    return (g->elems + (ep - 1) * g->experts) * replicas_of(l) / data_ranks(l);
}

/* Seconds in which nothing runs since rows of experts travel. */
static double spread_of(const timing *t, const sketch_layer *x, schedule_work w) {
    int tp = t->l->key.tp;
    if (!t->r->dispatches) return x->spread[w] + (t->l->pp > 1 ? x->spread_hidden[w] : 0);
    if (x->row_sends[w] <= 0) return 0;
    mesh_shape shape = shape_of(t->l);
    network_group g = network_group_of(t->c, &shape, MESH_EP);
    g = (network_group){g.ranks * tp, g.per_node * tp};
    return (1 - t->r->rows_hidden) * x->row_sends[w] *
           network_rows(t->c, g, x->rows[w] / x->row_sends[w] / tp,
                        (int)t->s->spec.model.num_experts_per_tok);
}

static double experts_of(const runtime *r, const sketch_layer *x, schedule_work w) {
    double again = r->dispatches ? x->experts_again[w] : 0;
    return r->experts * (x->kernels[w][SKETCH_EXPERTS] - again);
}

/* Of collectives of tensor parallelism those that a layer has: half of them are around the feed-forward part, and whole experts need
 * none. */
static double shared_by_tp(const runtime *r, const sketch_layer *x) {
    return r->dispatches && x->expert_calls[WORK_FORWARD] > 0 ? 0.5 : 1;
}

/* Seconds of one layer's work; *among: of its collectives. */
static double work_of(const timing *t, const sketch_layer *x, schedule_work w, double *among) {
    const runtime *r = t->r;
    mesh_shape shape = shape_of(t->l);
    double device = r->products * x->kernels[w][SKETCH_PRODUCTS] +
                    r->attention * x->kernels[w][SKETCH_ATTENTION] +
                    r->other * x->kernels[w][SKETCH_OTHER] + experts_of(r, x, w) +
                    r->casts * x->casts[w];
    *among = x->context[w] + (t->l->pp > 1 ? x->hidden[w] : 0) + spread_of(t, x, w);
    if (x->sends[w] > 0) {
        network_group g = network_group_of(t->c, &shape, MESH_TP);
        *among += (1 - r->tp_hidden) * shared_by_tp(r, x) * x->sends[w] *
                  network_seconds(t->c, g, COMM_ALL_GATHER, x->sent[w] / x->sends[w]);
    }
    double experts = x->expert_calls[w] / (r->dispatches ? t->l->key.tp : 1);
    double host = r->launch_s * x->calls[w] + r->expert_launch_s * experts - *among;
    if (t->l->pp > 1 && t->c->nodes > 1) host += r->pipe_rank_s * t->l->key.tp * x->sends[w];
    return (device > host ? device : host) + *among;
}

static double kernels_of(const sketch_layer *x) {
    double sum = 0;
    for (int w = 0; w < WORKS; w++)
        for (int k = 0; k < SKETCH_PARTS; k++) sum += x->kernels[w][k];
    return sum;
}

/* The layers of a chunk: those that were given, or as many as in each other, or as long as each other, at least one. */
static op_part layers_of(const timing *t, int chunk) {
    const sketch *s = t->s;
    const int *at = t->l->cut, repeat = (int)s->spec.model.block_repeat;
    int chunks = t->l->pp * t->l->chunks_of_stage, border[2] = {0, 0};
    if (at) return (op_part){at[chunk] / repeat, (at[chunk + 1] - at[chunk]) / repeat};
    if (!t->r->balanced) return op_part_of(s->layers, chunks, chunk);
    double all = 0;
    for (int i = 0; i < s->layers; i++) all += kernels_of(&s->layer[i]);
    for (int b = 0; b < 2; b++) {
        double upto = 0, want = all * (chunk + b) / chunks;
        int i = 0;
        while (i < s->layers && upto + kernels_of(&s->layer[i]) / 2 < want)
            upto += kernels_of(&s->layer[i++]);
        if (i < chunk + b) i = chunk + b;
        if (i > s->layers - (chunks - chunk - b)) i = s->layers - (chunks - chunk - b);
        border[b] = i;
    }
    return (op_part){border[0], border[1] - border[0]};
}

static void add_layer(stage_params *to, const sketch_params *x) {
    double rest = x->elems - x->outside - x->experts;
    double unit = rest > x->experts ? rest : x->experts;
    to->elems += x->elems;
    to->experts += x->experts;
    to->outside += x->outside;
    if (unit > to->largest) to->largest = unit;
}

static void add_tied(stage_params *to, double elems) {
    to->elems += elems;
    to->outside += elems;
}

/* Sums the layers of a chunk. */
static void add_chunk(const timing *t, int chunk, stage_sums *to, double work[WORKS]) {
    int chunks = t->l->pp * t->l->chunks_of_stage;
    op_part part = layers_of(t, chunk);
    to->has_head |= chunk == chunks - 1;
    for (int64_t i = part.first; i < part.first + part.n; i++) {
        const sketch_layer *x = &t->s->layer[i];
        add_layer(&to->trained, &x->trained);
        add_layer(&to->frozen, &x->frozen);
        to->quant_bytes += x->quant_bytes;
        to->experts_between |= x->experts_between;
        to->saved += x->saved_bytes;
        to->late += x->late_bytes;
        if (x->scratch_bytes > to->scratch) to->scratch = x->scratch_bytes;
        for (int w = 0; w < WORKS; w++) {
            double among, all;
            if (w == WORK_BACKWARD) continue; /* which is the sum of two */
            all = work_of(t, x, (schedule_work)w, &among);
            to->among += among;
            to->travel += spread_of(t, x, (schedule_work)w);
            work[w] += all;
            to->work[w] += all;
            if (w != WORK_FORWARD) work[WORK_BACKWARD] += all;
            if (w != WORK_FORWARD) to->work[WORK_BACKWARD] += all;
            int pass = w == WORK_FORWARD ? WORK_FORWARD : WORK_BACKWARD;
            double experts = experts_of(t->r, x, (schedule_work)w);
            to->experts[pass] += experts;
            to->beside_experts[pass] += all - among - experts;
        }
    }
    int ports = t->l->pp > 1 ? (chunk > 0 ? 2 : 0) + (chunk < chunks - 1) : 0;
    to->passed_of_chunks += t->s->passed_bytes * (double)(part.n - 1 + ports);
    const sketch_layer *last = &t->s->layer[t->s->layers - 1];
    if (chunk != chunks - 1 || t->l->pp == 1) return;
    add_tied(&to->trained, last->trained.tied);
    add_tied(&to->frozen, last->frozen.tied);
}

/* What lies in the file of parallel.offload. */
static offload_content away_of(const timing *t, const stage_sums *g) {
    const plan_spec *s = &t->s->spec;
    double owned = piece_elems(t->l, &g->trained);
    int n_states = s->optim ? s->optim->n_states : 0;
    return offload_content_of(s->offload, s->compute, s->adapters.rank > 0, (int64_t)owned,
                              n_states, s->state_dt);
}

static double file_seconds(const timing *t, double bytes) {
    double rate = t->c->disk_bytes_per_s;
    return rate > 0 ? bytes / rate : 0;
}

/* Bytes of the optimizer's state for a parameter. */
static double each_state(const plan_spec *s) {
    return s->optim ? (double)s->optim->n_states * (double)dtype_bytes(s->state_dt) : 0;
}

/* Room for whole units while they are in use. */
static double slot_elems(const stage_params *g) {
    return g->outside + 2 * g->largest;
}

/* Whether gradients leave and weights come with every micro-batch: not in others' pipelines, which keep both until the last one
 * (torchtitan's reshard_after_forward "default"; section 3.3.2 of Llama 3, arXiv:2407.21783). */
static bool takes_slots(const timing *t) {
    return t->l->zero >= 2 && (t->r->own || t->l->pp == 1);
}

/* Masters and work copies of what is trained, or of what is frozen. */
static double weights_bytes(const timing *t, const stage_params *g, const offload_content *away) {
    bool narrow = t->s->spec.compute != DT_F32, slots = t->l->zero == 3 && takes_slots(t);
    double piece = piece_elems(t->l, g), width = narrow ? 2 : 4;
    double masters = away->masters ? 0 : 4 * (narrow || slots ? piece : g->elems);
    double copies = narrow && !away->copy_bytes ? 2 * (slots ? piece : g->elems) : 0;
    return masters + copies + (slots ? width * slot_elems(g) : 0);
}

/* Whether gradients come where activations were: plan_grads_in_frame. */
static bool grads_replace(const timing *t) {
    const sketch_layout *l = t->l;
    return t->r->own && l->pp == 1 && l->micro_batches == 1 && l->zero < 2 &&
           !t->s->spec.fixed_grads;
}

static double logits_bytes(const timing *t) {
    const sketch_key *k = &t->l->key;
    double tokens = (double)k->micro_batch * t->s->spec.T / (k->cp > 1 ? k->cp : 1);
    return t->r->logit_bytes * tokens * (double)t->s->spec.model.vocab_size / k->tp;
}

/* What lies where under each stage of ZeRO: param/units.h. What is frozen has neither gradients nor states. */
static double stage_bytes(const timing *t, const stage_sums *g, int kept) {
    const sketch *s = t->s;
    const sketch_layout *l = t->l;
    const stage_params *trained = &g->trained;
    offload_content away = away_of(t, g);
    double piece = piece_elems(l, trained);
    double grads = 4 * (takes_slots(t) ? piece + slot_elems(trained) : trained->elems);
    double states = s->spec.offload & OFFLOAD_OPTIMIZER ? 0 : each_state(&s->spec) * piece;
    double weights = weights_bytes(t, trained, &away) + weights_bytes(t, &g->frozen, &away);
    states += (double)offload_slot_bytes(&away);
    /* Between the parts of a split backward a micro-batch keeps what the second one reads. */
    bool late = t->r->own && schedule_splits(l->schedule) && g->late > g->saved;
    double each = (late ? g->late : g->saved) / l->chunks_of_stage / t->drawn.copies;
    double saved = t->r->kept * (each * kept), scratch = g->scratch;
    if (g->has_head) scratch += logits_bytes(t);
    if (t->r->own) scratch += g->passed_of_chunks / l->chunks_of_stage * kept;
    if (grads_replace(t)) saved = saved > grads ? saved - grads : 0; /* or up to all of it */
    return weights + g->quant_bytes + grads + states + saved + scratch + t->r->extra_bytes;
}

/* What collectives of d seconds in all add to `work` seconds of kernels of n layers: each layer's begins when the layer is
 * through (or a layer ahead, of weights), and kernels beside them have less of the device. */
static double stick_out(double d, double work, int n, double contention) {
    double begin = work / n, room = (work - begin) / (1 - contention), beside = d < room ? d : room;
    double kernels = work + beside * contention + d / n, last = begin + d;
    return (kernels > last ? kernels : last) - work;
}

/* n parameters or gradients of `width` bytes among the ranks of an axis, in some calls. */
static double calls_seconds(const timing *t, mesh_axis axis, comm_kind kind, double width,
                            double n) {
    mesh_shape shape = shape_of(t->l);
    network_group g = network_group_of(t->c, &shape, axis);
    double bytes = width * n * (g.ranks - 1) / g.ranks;
    double calls = t->r->dp_calls * t->s->layers / t->l->pp + t->r->dp_calls_of_gb * bytes / 1e9;
    if (calls < 1) calls = 1;
    return calls * network_seconds(t->c, g, kind, bytes / calls);
}

/* A stage's parameters or gradients: those of experts go among the ranks that have the same ones. What is shared goes among the ranks
 * of a replica, and the sums of these among the replicas. */
static double dp_seconds(const timing *t, const stage_params *g, comm_kind kind, double width) {
    if (g->elems <= 0) return 0;
    bool shared = kind != COMM_ALL_REDUCE, reduces = kind == COMM_REDUCE_SCATTER;
    double dense = g->elems - g->experts, replicas = replicas_of(t->l);
    double d = calls_seconds(t, shared ? MESH_SHARD : MESH_DATA, kind, width, dense);
    if (replicas > 1 && reduces)
        d += calls_seconds(t, MESH_REPLICATE, COMM_ALL_REDUCE, 2 * width,
                           dense * replicas / data_ranks(t->l));
    if (g->experts > 0) d += calls_seconds(t, MESH_EP_DATA, kind, width, g->experts);
    return d;
}

typedef struct tail {
    double exposed, beside, optimizer;
} tail;

static stage_params without_ends(const stage_params *g) {
    stage_params layers = *g;
    layers.elems -= g->outside;
    return layers;
}

/* Seconds of all units of a kind; those outside of layers have slots of their own, and travel once a step. */
typedef struct slot_traffic {
    double sums, sums_once, gathers, gathers_once;
    double gathers_of_rest; /* of the gathers, what is no experts' */
} slot_traffic;

static slot_traffic slot_traffic_of(const timing *k, const stage_sums *g, double width) {
    stage_params layers = without_ends(&g->trained), ends = {.elems = g->trained.outside};
    slot_traffic t = {.sums = dp_seconds(k, &layers, COMM_REDUCE_SCATTER, 4),
                      .sums_once = dp_seconds(k, &ends, COMM_REDUCE_SCATTER, 4)};
    const stage_params *weights[] = {&g->trained, &g->frozen}; /* units of their own */
    for (int i = 0; k->l->zero == 3 && i < ARRAY_LEN(weights); i++) {
        layers = without_ends(weights[i]);
        ends.elems = weights[i]->outside;
        t.gathers += dp_seconds(k, &layers, COMM_ALL_GATHER, width);
        t.gathers_once += dp_seconds(k, &ends, COMM_ALL_GATHER, width);
        layers = (stage_params){.elems = layers.elems - layers.experts};
        t.gathers_of_rest += dp_seconds(k, &layers, COMM_ALL_GATHER, width);
    }
    return t;
}

static double beyond(double d, double hidden) {
    return d > hidden ? d - hidden : 0;
}

/* Waits for weights in one pass over the layers. Experts come while ops use the rest of their layer, and the rest of the next layer while
 * ops use the experts; but in a layer of three units the two slots are never free before they are needed. */
static double waits_of_pass(const stage_sums *g, const slot_traffic *t, schedule_work w) {
    if (g->experts_between) return t->gathers;
    return beyond(t->gathers - t->gathers_of_rest, g->beside_experts[w]) +
           beyond(t->gathers_of_rest, g->experts[w]);
}

/* A layer whose experts ranks share out has units of its own for them. With three units what is beside the experts comes once more where
 * all is computed again. The sums of experts' gradients are over before those of the rest are written. */
static tail tail_of_expert_slots(const timing *k, const stage_sums *g, const slot_traffic *t,
                                 double m) {
    bool again = g->experts_between && k->l->key.recompute == RECOMPUTE_FULL;
    double gathers = 2 * t->gathers + (again ? t->gathers_of_rest : 0);
    double waits = waits_of_pass(g, t, WORK_FORWARD) + waits_of_pass(g, t, WORK_BACKWARD) +
                   (again ? t->gathers_of_rest : 0);
    double sums = stick_out(t->sums, g->beside_experts[WORK_BACKWARD], k->s->layers / k->l->pp,
                            k->c->contention);
    double once = t->sums_once + t->gathers_once;
    return (tail){.beside = (double)k->l->micro_batches * (t->sums + gathers) + once,
                  .exposed = m * (sums + waits) + once};
}

/* Under ZeRO 2 and 3 slots of layers take turns: gradients leave after every micro-batch, and weights come for it; here other stages of a
 * pipeline wait for these waits, too. read: seconds in which a file gives the pieces. */
static tail tail_of_slots(const timing *k, const stage_sums *g, double back, double forth,
                          double width, double read) {
    double n_micro = (double)k->l->micro_batches, share = k->c->contention;
    double busy = n_micro * (g->work[WORK_FORWARD] + g->work[WORK_BACKWARD]);
    double m = k->r->own && k->l->pp > 1 && k->end > busy ? n_micro * k->end / busy : n_micro;
    int n = k->s->layers / k->l->pp;
    slot_traffic t = slot_traffic_of(k, g, width);
    bool apart = k->r->own && g->trained.experts > 0 && k->l->key.ep > 1;
    if (apart) return tail_of_expert_slots(k, g, &t, m);
    if (read > t.gathers) t.gathers = read;
    double again = n > 2 ? t.gathers * (n - 2) / n : 0; /* the slots still hold two layers */
    return (tail){.beside = n_micro * (t.sums + t.gathers + again) + t.sums_once + t.gathers_once,
                  .exposed = (m - 1) * (stick_out(t.sums + again, back, n, share) +
                                        stick_out(t.gathers, forth, n, share)) +
                             stick_out(t.sums + again + t.sums_once, back, n, share) +
                             stick_out(t.gathers + t.gathers_once, forth, n, share)};
}

/* Of a stage: its gradients, its gathers, its update. */
static tail tail_of(const timing *k, const stage_sums *g) {
    const sketch *s = k->s;
    const sketch_layout *l = k->l;
    const cluster *c = k->c;
    tail t = {0};
    mesh_shape shape = shape_of(l);
    double width = s->spec.compute == DT_F32 ? 4 : 2, read = 0;
    const stage_params *trained = &g->trained;
    double owned = piece_elems(l, trained);
    double scatter = dp_seconds(k, trained, COMM_REDUCE_SCATTER, 4);
    double gather = dp_seconds(k, trained, COMM_ALL_GATHER, width);
    double update = roofline_stream(c, owned * (8 + 2.0 * (4 + each_state(&s->spec)) + 2));
    double back = g->work[WORK_BACKWARD] * k->r->dp_usable,
           forth = g->work[WORK_FORWARD] * k->r->dp_usable;
    offload_content away = away_of(k, g);
    if (s->spec.offload & OFFLOAD_WEIGHTS)
        read = file_seconds(k, width * owned); /* pieces are read as they are sent */
    double moved = file_seconds(k, 2.0 * (double)offload_file_bytes(&away));
    if (moved > update) update = moved;
    int n = s->layers / l->pp;
    if (l->zero == 0) {
        t.beside = dp_seconds(k, trained, COMM_ALL_REDUCE, 8);
        t.exposed = stick_out(t.beside, back, n, c->contention);
    } else if (!takes_slots(k)) {
        t.beside = scatter;
        t.exposed = stick_out(scatter, back, n, c->contention);
    } else {
        t = tail_of_slots(k, g, back, forth, width, read);
    }
    t.optimizer = update;
    bool gathers_once = l->zero > 0 && !(l->zero == 3 && takes_slots(k));
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

typedef double chunk_work[WORKS];

/* A forward and a backward of a micro-batch on a stage, which takes an equal part of them through each copy of the model. Under dualpipe
 * rows of experts travel while the other of the two computes (DeepSeek-AI 2024). */
static double pair_of(const timing *t, const stage_sums *g) {
    double hidden = t->l->schedule == SCHEDULE_DUALPIPE ? g->travel : 0;
    return (g->work[WORK_FORWARD] + g->work[WORK_BACKWARD] - hidden) / t->drawn.copies;
}

static status draw(timing *t, arena *a, err *e) {
    const sketch_layout *l = t->l;
    int chunks = l->pp * l->chunks_of_stage, m = drawn(l);
    TRY(schedule_build(a, l->schedule, l->pp, m, l->chunks_of_stage, &t->drawn, e));
    t->stage = ARENA_ARRAY(a, stage_sums, l->pp);
    chunk_work *work = ARENA_ARRAY(a, chunk_work, t->drawn.chunks);
    for (int i = 0; i < t->drawn.chunks; i++) {
        add_chunk(t, i % chunks, &t->stage[schedule_stage_of(&t->drawn, i)], work[i]);
        if (i % chunks == 0) work[i][WORK_FORWARD] += host_of(t->s, t->c);
    }
    double slowest = 0;
    for (int i = 0; i < l->pp; i++) slowest = fmax(slowest, pair_of(t, &t->stage[i]));
    mesh_shape shape = shape_of(l);
    double send = cluster_curve_at(&t->r->send_s, t->c->nodes, 0);
    schedule_times times = {.transfer = network_send(t->c, &shape, t->s->passed_bytes) + send,
                            .of_chunk = (const chunk_work *)work,
                            .both = slowest};
    schedule_suit(a, &t->drawn, &times);
    schedule_time(&t->drawn, &times);
    t->end = t->drawn.step + (double)(l->micro_batches - m) * slowest;
    return ST_OK;
}

/* The step as one stage has it: it begins with the first and ends with the last micro-batch of the pipeline. */
static clock_time time_of(const timing *t, int stage) {
    const stage_sums *g = &t->stage[stage];
    tail k = tail_of(t, g);
    double n = (double)t->l->micro_batches, host = stage == 0 ? n * host_of(t->s, t->c) : 0;
    double busy = n * pair_of(t, g), among = n * g->among / t->drawn.copies;
    return (clock_time){.step_s = t->end + k.exposed + k.optimizer + t->c->step_s + t->r->step_s,
                        .kernels_s = busy - among,
                        .among_s = among,
                        .exposed_s = k.exposed,
                        .optimizer_s = k.optimizer,
                        .host_s = host + t->c->step_s + t->r->step_s,
                        .beside_s = k.beside,
                        .bubble_s = t->l->pp > 1 ? t->end - busy - host : 0};
}

static void complete(const timing *k, clock_time *t) {
    const sketch_layout *l = k->l;
    t->ranks = data_ranks(l) * l->key.tp * l->pp;
    double straggle = t->ranks > 1 ? k->c->straggle * t->kernels_s : 0;
    t->kernels_s += straggle;
    t->step_s += straggle;
    t->tokens = (double)l->micro_batches * l->key.micro_batch * k->s->spec.T * l->dp;
    t->model_flops = (double)l->micro_batches * k->s->model_flops / l->pp;
    t->hardware_flops = (double)l->micro_batches * k->s->hardware_flops / l->pp;
    t->peak_flops = k->c->peak_flops[k->s->spec.compute];
}

status sketch_time(const sketch *s, const sketch_layout *l, const cluster *c, const runtime *r,
                   sketch_result *out, err *e) {
    arena *a = arena_new("sketch");
    timing t = {.s = s, .l = l, .c = c, .r = r};
    status st = draw(&t, a, e);
    *out = (sketch_result){.memory_bytes = 0};
    for (int i = 0; st == ST_OK && i < l->pp; i++) {
        clock_time of_stage = time_of(&t, i);
        double bytes = stage_bytes(&t, &t.stage[i], t.drawn.stage[i].kept);
        if (bytes > out->memory_bytes) out->memory_bytes = bytes;
        if (of_stage.step_s > out->time.step_s) out->time = of_stage;
    }
    if (st == ST_OK) complete(&t, &out->time);
    arena_free(a);
    return st;
}
