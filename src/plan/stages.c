/* Stages of a pipeline: which chunks of layers a stage has, and what it does in a step.
 *
 * The model is cut where the dearest chunk costs least. What a layer costs are the FLOPs of its ops,
 * as the rules of ops state them for a sequence of the first phase, forward and back; the first chunk
 * has the embedding beside its layers, the last one the head.
 *
 * Reading order: plan_cut_stages, cut, best. */
#include <math.h>
#include <string.h>

#include "plan/plan_int.h"
#include "step/pipeline.h"

int plan_stages_of(const plan_spec *s) {
    return s->ranks ? s->ranks->size[MESH_PP] : 1;
}

int plan_stage_of(const plan_spec *s) {
    return s->ranks ? s->ranks->rank[MESH_PP] : 0;
}

int plan_stages(const plan *p) {
    return plan_stages_of(&p->spec);
}

int plan_stage(const plan *p) {
    return plan_stage_of(&p->spec);
}

static int chunks_of(const plan_spec *s) {
    return s->chunks > 1 ? s->chunks : 1;
}

bool plan_has_chunk(const plan_spec *s, int chunk) {
    int stages = plan_stages_of(s);
    if (chunk >= chunks_of(s)) return false;
    return stages == 1 || pipeline_stage_of(s->pp_schedule, stages, chunk) == plan_stage_of(s);
}

model_layer_range plan_layers_of(const plan_spec *s, int chunk) {
    if (s->cut) return (model_layer_range){s->cut[chunk], s->cut[chunk + 1]};
    return model_chunk(&s->model, chunks_of(s), chunk);
}

model_layer_range plan_layers(const plan *p, int chunk) {
    return plan_layers_of(&p->spec, chunk);
}

/* ---- what layers cost ---- */

/* cost[n]: of each stored layer, with what is outside of the layers. */
static status find_costs(const plan_spec *s, dev *d, const param_store *whole, double *cost,
                         err *e) {
    int n = (int)s->model.num_hidden_layers;
    arena *a = arena_new("what layers cost");
    graph_options opt = {.dev = d, .dt = s->compute, .train = true};
    model_rec r = {.g = graph_new(a, &opt),
                   .mc = &s->model,
                   .params = whole,
                   .adapters = &s->adapters,
                   .task = TASK_LM,
                   .B = 1,
                   .T = s->T,
                   .chunk_rows = s->chunk_rows};
    prog *whole_prog;
    model_record(&r);
    status st = prog_finish(&whole_prog, r.g, e);
    int repeat = (int)s->model.block_repeat;
    /* What is outside of layers, before the first one, is the embedding. */
    bool seen_layer = false;
    for (int i = 0; st == ST_OK && i < prog_get_stats(whole_prog)->ops; i++) {
        prog_op op = prog_get_op(whole_prog, i);
        seen_layer = seen_layer || op.block >= 0;
        bool embeds = !seen_layer || strcmp(op.name, "embedding") == 0;
        int layer = op.block >= 0 ? op.block / repeat : embeds ? 0 : n - 1;
        cost[layer < n ? layer : n - 1] += op.flops; /* modules stand behind the last layer */
    }
    arena_free(a);
    return st;
}

status plan_layer_costs(const plan_spec *s, dev *d, double *cost, err *e) {
    arena *a = arena_new("the whole model");
    param_store *whole;
    status st = plan_declare_whole(a, s, &whole, e);
    if (st == ST_OK) st = find_costs(s, d, whole, cost, e);
    arena_free(a);
    return st;
}

/* ---- cuts ---- */

/* Cuts n layers into chunks: *end is where each ends. Every chunk costs `most` at most, and the sum
 * of their squares is the least: the rest is even, too. squares false: the largest is the least.
 * Returns that sum, or that cost; INFINITY: there is no such cut. */
static double best(arena *a, const double *cost, int n, int chunks, double most, bool squares,
                   int *end) {
    int width = n + 1;
    double *value = ARENA_ARRAY(a, double, (chunks + 1) * width);
    int *from = ARENA_ARRAY(a, int, (chunks + 1) * width);
    for (int i = 1; i < (chunks + 1) * width; i++) value[i] = INFINITY;
    for (int c = 1; c <= chunks; c++)
        for (int i = c; i <= n; i++) {
            double sum = 0;
            for (int j = i - 1; j >= c - 1; j--) {
                double before = value[(c - 1) * width + j];
                sum += cost[j];
                double own = squares ? sum * sum : sum;
                if (sum > most || own >= value[c * width + i]) break; /* more layers cost more */
                double now = squares ? before + own : fmax(before, own);
                if (!(now < value[c * width + i])) continue;
                value[c * width + i] = now;
                from[c * width + i] = j;
            }
        }
    for (int c = chunks, i = n; c > 0; i = from[c-- * width + i]) end[c - 1] = i;
    return value[chunks * width + n];
}

int *plan_cut_layers(arena *a, const plan_spec *s, const double *cost, int chunks) {
    int n = (int)s->model.num_hidden_layers, repeat = (int)s->model.block_repeat;
    int *at = ARENA_ARRAY(a, int, chunks + 1);
    arena *room = arena_new("cuts");
    double most = best(room, cost, n, chunks, INFINITY, false, at + 1);
    best(room, cost, n, chunks, most, true, at + 1);
    arena_free(room);
    for (int c = 1; c <= chunks; c++) at[c] *= repeat;
    return at;
}

/* Micro-batches after which a longer step needs no more frames and boxes, unless all are forward
 * before the first goes back. */
static int enough_micro_batches(const plan_spec *s) {
    int64_t n = s->micro_batches > 1 ? s->micro_batches : 1, enough = 4 * plan_stages_of(s);
    return (int)(n < enough ? n : enough);
}

status plan_cut_stages(plan *p, const param_store *whole, err *e) {
    const plan_spec *first = &p->phase[0];
    int chunks = chunks_of(first), n = (int)first->model.num_hidden_layers;
    if (chunks > n) {
        err_at(e, ST_USAGE, "parallel.pp", "%d layers do not make %d chunks", n, chunks);
        return err_hint(e, "parallel.pp times parallel.virtual is %d or less", n);
    }
    const int *at = first->cut;
    if (!at) {
        double *cost = ARENA_ARRAY(p->memory, double, n);
        TRY(find_costs(first, p->dev, whole, cost, e));
        at = plan_cut_layers(p->memory, first, cost, chunks);
    }
    p->shares = ARENA_ARRAY(p->memory, bool, chunks);
    for (int i = 0; i < p->n_phases; i++) {
        plan_spec *s = &p->phase[i];
        pipeline *pipe = ARENA_NEW(p->memory, pipeline);
        s->cut = at;
        TRY(pipeline_build(p->memory, s->pp_schedule, plan_stages_of(s), enough_micro_batches(s),
                           chunks / plan_stages_of(s), plan_stage_of(s), pipe, e));
        pipe->shares = p->shares;
        s->pipe = pipe;
    }
    p->spec = p->phase[0];
    return ST_OK;
}

const int *plan_layer_cuts(const plan *p) {
    const plan_spec *s = p->phase;
    if (!s->cut) return NULL;
    int *at = ARENA_ARRAY(p->memory, int, s->chunks);
    for (int c = 0; c < s->chunks; c++) at[c] = s->cut[c] / (int)s->model.block_repeat;
    return at;
}

/* ---- stages that are alike ---- */

/* A chunk of stage `to` that has the place of `chunk` among those of stage `from`. */
static int chunk_in_place_of(const plan_spec *s, int chunk, int from, int to) {
    int stages = plan_stages_of(s), place = 0, at = 0;
    for (int c = 0; c < chunk; c++) place += pipeline_stage_of(s->pp_schedule, stages, c) == from;
    for (; at < chunks_of(s); at++)
        if (pipeline_stage_of(s->pp_schedule, stages, at) == to && place-- == 0) break;
    return at;
}

int plan_chunk_like(const plan_spec *s, int chunk, int stage) {
    return chunk_in_place_of(s, chunk, plan_stage_of(s), stage);
}

/* Both are within the model, and have layers of the same kinds in the same order. */
static bool chunks_alike(const plan_spec *s, int a, int b) {
    int last = chunks_of(s) - 1, repeat = (int)s->model.block_repeat;
    if (a == b) return true;
    if (a == 0 || b == 0 || a == last || b == last || a > last || b > last) return false;
    int n = s->cut[a + 1] - s->cut[a];
    if (s->cut[b + 1] - s->cut[b] != n) return false;
    for (int i = 0; i < n; i++)
        if (!model_layers_alike(&s->model, (s->cut[a] + i) / repeat, (s->cut[b] + i) / repeat))
            return false;
    return true;
}

bool plan_stages_alike(const plan *p, int a, int b) {
    const plan_spec *s = p->phase;
    for (int c = 0; c < chunks_of(s); c++)
        if (pipeline_stage_of(s->pp_schedule, plan_stages_of(s), c) == a &&
            !chunks_alike(s, c, chunk_in_place_of(s, c, a, b)))
            return false;
    return true;
}

/* ---- steps ---- */

const pipeline *plan_pipeline(const plan_spec *s, arena *a, int micro_batches) {
    if (!s->pipe) return NULL;
    pipeline *pipe = ARENA_NEW(a, pipeline);
    int stages = plan_stages_of(s);
    err why;
    status st = pipeline_build(a, s->pp_schedule, stages, micro_batches, chunks_of(s) / stages,
                               plan_stage_of(s), pipe, &why);
    CHECK(st == ST_OK, "%s", why.message);
    pipe->shares = s->pipe->shares;
    return pipe;
}

int plan_stage_frames(const plan_spec *s, int chunk) {
    int most = 0;
    bool all = s->frames == PLAN_ALL_FRAMES;
    int n = s->micro_batches > 1 ? (int)s->micro_batches : 1;
    for (int c = 0; c < s->pipe->chunks; c++) {
        int own = all && s->pipe->frames[c] ? n : s->pipe->frames[c];
        if ((chunk < 0 || chunk == c) && own > most) most = own;
    }
    return most;
}

/* ---- places ---- */

plan_program *plan_mate(const plan *p, int chunk) {
    const pipeline *pipe = p->spec.pipe;
    return p->shares && p->shares[chunk] ? plan_find(p, USE_TRAIN, pipe->mate[chunk]) : NULL;
}

static int larger_int(int a, int b) {
    return a > b ? a : b;
}

static int64_t larger_frame(const plan_program *a, const plan_program *b) {
    return a->frame_step > b->frame_step ? a->frame_step : b->frame_step;
}

/* Bytes that places shared by two chunks save in the selected phase. A short step does not come to use them all. */
static int64_t saved_by_sharing(const plan *p, int chunk, int mate) {
    const pipeline *pipe = p->spec.pipe;
    int own[2] = {chunk, mate}, P = pipe->stages;
    const plan_program *g[2] = {plan_find(p, USE_TRAIN, chunk), plan_find(p, USE_TRAIN, mate)};
    int64_t saved = -2 * P * larger_frame(g[0], g[1]);
    for (int i = 0; i < 2; i++) {
        int frames = pipe->frames[own[i]], ports = frames > P ? 2 * P : P;
        int64_t pinned = prog_get_stats(g[i]->prog)->pinned_bytes;
        saved += frames * g[i]->frame_step - (ports - frames) * pinned;
    }
    return p->spec.micro_batches >= 2 * P ? saved : 0;
}

static void share(plan *p, int chunk, int mate) {
    plan_program *a = plan_find(p, USE_TRAIN, chunk), *b = plan_find(p, USE_TRAIN, mate);
    a->frames = b->frames = 2 * p->spec.pipe->stages;
    a->frame_step = b->frame_step = larger_frame(a, b);
    a->ports = larger_int(a->ports, pipeline_ports(p->spec.pipe, chunk));
    b->ports = larger_int(b->ports, pipeline_ports(p->spec.pipe, mate));
}

void plan_share_places(plan *p) {
    const pipeline *pipe = p->spec.pipe;
    for (int c = 0; p->shares && p->spec.train_B && c < pipe->chunks; c++) {
        int mate = pipe->mate[c];
        bool saves = mate > c;
        for (int i = 0; saves && i < p->n_phases; i++) {
            plan_select(p, i);
            saves = saved_by_sharing(p, c, mate) > 0;
        }
        if (saves) p->shares[c] = p->shares[mate] = true;
        for (int i = 0; saves && i < p->n_phases; i++) {
            plan_select(p, i);
            share(p, c, mate);
        }
        plan_select(p, 0);
    }
}

/* ---- boxes ---- */

/* Those of a chunk, in bytes: activations, then gradients. */
static int64_t box_bytes(const plan *p, int chunk, bool back) {
    const prog *own = plan_prog(p, USE_TRAIN, chunk);
    return own ? prog_find_port(own, back ? "grad.y" : "x").bytes : 0;
}

/* Where boxes of a chunk and direction begin; of all chunks: where the last ones end. */
static int64_t boxes_before(const plan *p, int chunk, bool back) {
    const pipeline *pipe = p->spec.pipe;
    int64_t at = 0;
    for (int c = 0; pipe && c < pipe->chunks; c++)
        for (int b = 0; b < 2; b++) {
            if (c == chunk && b == back) return at;
            at += pipe->boxes[b][c] * box_bytes(p, c, b);
        }
    return at;
}

int64_t plan_boxes_bytes(const plan *p) {
    return boxes_before(p, -1, false);
}

void *plan_box(const plan *p, int chunk, bool back, int box) {
    CHECK(box < p->spec.pipe->boxes[back][chunk], "box %d of chunk %d", box, chunk);
    return (char *)plan_region(p, REGION_BOXES) + boxes_before(p, chunk, back) +
           box * box_bytes(p, chunk, back);
}
