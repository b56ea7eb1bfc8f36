#include "train/ranks/peers.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "optim/offload.h"

/* ---- layout ---- */

static mesh_shape shape_of(const config *c) {
    return (mesh_shape){.dp = c->parallel.dp == CONFIG_AUTO ? 0 : (int)c->parallel.dp,
                        .dp_replicate = (int)c->parallel.dp_replicate,
                        .tp = (int)c->parallel.tp,
                        .cp = (int)c->parallel.cp,
                        .pp = (int)c->parallel.pp,
                        .ep = (int)c->parallel.ep};
}

/* The error names a key; this adds the line of the config. */
static status locate(const config *c, status st, err *e) {
    if (st != ST_OK && e && *e->where) config_locate(c, e->where, e);
    return st;
}

/* The axis of the mesh along which ranks are whole copies of each other. */
static mesh_axis axis_of_copies(const config *c) {
    return c->parallel.zero > 0 ? MESH_REPLICATE : MESH_EP_DATA;
}

/* Groups the ranks that together hold one copy of the weights. */
static void open_copy(peers *p, const config *c) {
    const mesh *m = &p->m;
    int n = 0, *ranks = xcalloc((size_t)m->size[MESH_WORLD], sizeof *ranks);
    mesh_axis apart = axis_of_copies(c);
    p->first_copy = m->rank[apart] == 0;
    for (int r = 0; r < m->size[MESH_WORLD]; r++) {
        mesh other;
        mesh_place(&other, &m->shape, r);
        if (other.rank[apart] == m->rank[apart]) ranks[n++] = r;
    }
    p->copy = comm_group(m->world, ranks, n);
    free(ranks);
}

/* Pairs of ranks that pass on what stages compute. */
static void open_stages(peers *p) {
    const mesh *m = &p->m;
    int stages = m->size[MESH_PP], own = m->rank[MESH_PP], rank = m->rank[MESH_WORLD];
    int stride = m->size[MESH_WORLD] / stages;
    if (stages == 1) return;
    p->stage = xcalloc((size_t)stages, sizeof *p->stage);
    for (int i = 0; i < stages; i++) {
        int other = rank + (i - own) * stride, low = i < own ? other : rank;
        if (i != own) p->stage[i] = comm_group(m->world, (int[]){low, other + rank - low}, 2);
    }
}

status peers_open(peers *p, const config *c, comm_world *world, err *e) {
    *p = (peers){.narrow = c->parallel.reduce_dtype == CONFIG_REDUCE_BF16};
    if (!world) world = p->own = comm_open_self();
    mesh_shape shape = shape_of(c);
    status st = mesh_resolve(&shape, comm_world_size(world), e);
    if (st != ST_OK && p->own && e)
        err_hint(e, "athanor launch --ranks N -- train ... starts N ranks; or remove the key");
    TRY(locate(c, st, e));
    comm_at(world, "opening the run", 0);
    mesh_open(&p->m, &shape, world);
    open_copy(p, c);
    open_stages(p);
    p->teller = c->parallel.pp_schedule == CONFIG_PP_ZB_V ? 0 : p->m.size[MESH_PP] - 1;
    return ST_OK;
}

int peers_copy_ranks(const peers *p, const config *c) {
    return peers_ranks(p) / p->m.size[axis_of_copies(c)];
}

status peers_place(peers *p, const config *c, err *e) {
    *p = (peers){.first_copy = true};
    mesh_shape shape = shape_of(c);
    if (shape.dp == 0) shape.dp = 1;
    double all = (double)shape.dp * shape.tp * shape.cp * shape.pp;
    if (all > INT_MAX) {
        config_error(c, e, "parallel.dp",
                     "dp %d x tp %d x cp %d x pp %d are more ranks than are planned", shape.dp,
                     shape.tp, shape.cp, shape.pp);
        return err_hint(e, "a product of %d or less", INT_MAX);
    }
    int ranks = shape.dp * shape.tp * shape.cp * shape.pp;
    TRY(locate(c, mesh_resolve(&shape, ranks, e), e));
    mesh_place(&p->m, &shape, 0);
    return ST_OK;
}

void peers_settle(peers *p) {
    if (p->newest) comm_wait(p->m.world, p->newest);
}

void peers_close(peers *p) {
    free(p->stage);
    p->stage = NULL;
    comm_close(p->own);
}

int peers_rank(const peers *p) {
    return p->m.rank[MESH_WORLD];
}
int peers_ranks(const peers *p) {
    return p->m.size[MESH_WORLD];
}

param_sharding peers_sharding(const peers *p, const config *c) {
    return (param_sharding){.shards = p->m.size[MESH_SHARD],
                            .rank = p->m.rank[MESH_SHARD],
                            .zero = (int)c->parallel.zero,
                            .bucket_elems = (int64_t)(c->parallel.bucket_mb * 1e6 / 4)};
}

/* The tensor-parallel ranks that hold the same heads as this one, where each head is on `copies`
 * ranks. */
static comm *open_sharers(const peers *p, int copies) {
    int tp = p->m.rank[MESH_TP], first = peers_rank(p) - tp + tp / copies * copies;
    int *ranks = xcalloc((size_t)copies, sizeof *ranks);
    for (int i = 0; i < copies; i++) ranks[i] = first + i;
    comm *group = comm_group(p->m.world, ranks, copies);
    free(ranks);
    return group;
}

static comm *sharers_of(const peers *p, int copies) {
    for (int i = 0; i < p->n_sharers; i++)
        if (p->sharer[i].copies == copies) return p->sharer[i].group;
    return NULL;
}

static void find_sharers(peers *p, arena *a, const param_store *s) {
    p->sharer = arena_alloc(a, sizeof *p->sharer * (size_t)(p->m.size[MESH_TP] + 1));
    for (int u = 0; u < param_units(s); u++) {
        const param_unit *k = param_unit_at(s, u);
        for (int i = 0; i < k->n_partial; i++) {
            int copies = k->partial[i].copies;
            if (sharers_of(p, copies)) continue;
            p->sharer[p->n_sharers].copies = copies;
            p->sharer[p->n_sharers++].group = open_sharers(p, copies);
        }
    }
}

/* "model.layers.3.self_attn.q_proj.weight and 6 more". */
static const char *unit_name(arena *a, const param_store *s, int u) {
    const char *first = "nothing";
    int n = 0;
    for (int i = 0; i < param_count(s); i++)
        if (param_at(s, i)->unit == u && n++ == 0) first = param_at(s, i)->name;
    return n > 1 ? arena_printf(a, "%s and %d more", first, n - 1) : first;
}

void peers_bind(peers *p, arena *a, const param_store *s, offload *file) {
    p->store = s;
    p->file = file;
    find_sharers(p, a, s);
    p->unit = ARENA_ARRAY(a, peers_unit, param_units(s));
    for (int u = 0; u < param_units(s); u++) {
        const char *name = unit_name(a, s, u);
        p->unit[u].weights = arena_printf(a, "weights of %s", name);
        p->unit[u].grads = arena_printf(a, "gradients of %s", name);
    }
}

/* ---- weights and gradients ---- */

static comm_ticket begin(peers *p, step_call *k, const char *what) {
    k->call.what = what;
    comm *group = k->copies ? sharers_of(p, k->copies) : p->m.axis[k->axis];
    return p->newest = comm_start(group, &k->call);
}

/* A piece in a file is read first, beside the computation. Where nobody has another piece it is the unit. */
void peers_gather(peers *p, int u) {
    step_call k;
    if (!step_gather_call(p->store, u, &k)) return;
    if (param_weights_transfer(p->store, u).from_file) {
        p->unit[u].piece = k.call.ready_ctx = offload_begin_piece(p->file, u);
        k.call.ready = offload_await_piece;
        if (comm_size(p->m.axis[k.axis]) == 1) return;
    }
    p->unit[u].gather = begin(p, &k, p->unit[u].weights);
}

void peers_gathered(peers *p, int u) {
    comm_wait(p->m.world, p->unit[u].gather); /* ticket 0 where nothing travels */
    if (p->unit[u].piece) offload_await_piece(p->unit[u].piece);
}

void peers_gather_all(peers *p) {
    if (param_weights_in_slots(p->store)) return;
    for (int u = 0; u < param_units(p->store); u++) peers_gather(p, u);
    for (int u = 0; u < param_units(p->store); u++) peers_gathered(p, u);
}

/* Where comm adds nothing to what a GPU has. */
static bool adds_before(const peers *p, const step_call *k) {
    bool alone = peers_ranks(p) == 1 && !dev_host_enters(k->call.dev);
    return alone || comm_by_nccl(p->m.world);
}

/* What is there becomes part of this rank's contribution; both come of calls that may be under way. */
static void add_before(const peers *p, const peers_unit *unit, step_call *k) {
    const comm_call *c = &k->call;
    if (unit->reduce) comm_wait(p->m.world, unit->reduce);
    int64_t own = comm_rank(p->m.axis[k->axis]) * c->n * (int64_t)dtype_bytes(c->dt);
    vec_add(c->dev, (char *)(uintptr_t)c->in + own, c->out, c->n, c->dt);
    k->call.add = false;
}

void peers_reduce(peers *p, const step_entry *e) {
    peers_unit *unit = &p->unit[e->unit];
    param_transfer t = param_grads_transfer(p->store, e->unit);
    unit->add_when_reduced = param_unit_at(p->store, e->unit)->whole && t.out != t.in;
    if (unit->add_when_reduced && !e->add)
        dev_fill(param_device(p->store), t.out, 0, (size_t)t.n * dtype_bytes(t.dt));
    step_call k;
    for (int i = 0; step_reduce_call(p->store, e, p->narrow, i, &k); i++) {
        if (k.call.add && adds_before(p, &k)) add_before(p, unit, &k);
        if (k.axis != MESH_REPLICATE || p->m.size[MESH_REPLICATE] > 1) /* there are replicas */
            unit->reduce = begin(p, &k, unit->grads);
    }
}

void peers_reduced(peers *p, int u) {
    peers_unit *k = &p->unit[u];
    comm_wait(p->m.world, k->reduce);
    if (!k->add_when_reduced) return;
    param_transfer t = param_grads_transfer(p->store, u);
    vec_add(param_device(p->store), t.out, t.in, t.n, t.dt);
}

/* ---- stages ---- */

comm_ticket peers_pass(peers *p, const peers_parcel *k) {
    int own = p->m.rank[MESH_PP];
    comm_call call = {.kind = COMM_SEND,
                      .dev = k->dev,
                      .out = k->data,
                      .n = k->bytes,
                      .dt = DT_U8,
                      .root = k->sends == (own > k->stage),
                      .what = k->what};
    return p->newest = comm_start(p->stage[k->stage], &call);
}

void peers_tie(peers *p, int u) {
    int last = p->m.size[MESH_PP] - 1;
    comm_call call = step_tied_call(p->store, u, p->narrow);
    call.what = "gradients of the table of embedding and head";
    comm_run(p->stage[p->m.rank[MESH_PP] ? 0 : last], &call);
}

void peers_tell_stages(const peers *p, void *x, int64_t bytes) {
    comm_call call = {.kind = COMM_BROADCAST,
                      .out = x,
                      .n = bytes,
                      .dt = DT_U8,
                      .root = p->teller,
                      .what = "what the last stage knows"};
    if (p->m.size[MESH_PP] > 1) comm_run(p->m.axis[MESH_PP], &call);
}

/* ---- sums and agreements ---- */

static void sum(comm *c, void *x, int64_t n, dtype dt, const char *what) {
    comm_call call = {.kind = COMM_ALL_REDUCE, .in = x, .out = x, .n = n, .dt = dt, .what = what};
    comm_run(c, &call);
}

int64_t peers_sum_count(const peers *p, int64_t x, const char *what) {
    peers_sum_counts(p, &x, 1, what);
    return x;
}
void peers_sum_counts(const peers *p, int64_t *x, int n, const char *what) {
    sum(p->m.axis[MESH_DP], x, n, DT_I64, what);
}

void peers_sum_stages(const peers *p, int64_t *x, int n, const char *what) {
    sum(p->m.axis[MESH_PP], x, n, DT_I64, what);
}

void peers_share_count(const peers *p, int64_t *x) {
    comm_sum_i64(p->m.axis[MESH_WORLD], x, peers_ranks(p));
}

double peers_sum_loss(const peers *p, double x) {
    sum(p->m.axis[MESH_DATA], &x, 1, DT_F64, "the loss");
    return x;
}

void peers_sum_tokens(const peers *p, int64_t *x, int n, const char *what) {
    sum(p->m.axis[MESH_DATA], x, n, DT_I64, what);
}

double peers_sum_copy(const peers *p, double x) {
    sum(p->copy, &x, 1, DT_F64, "squares of gradients");
    return x;
}

void peers_sum_limbs(const peers *p, int64_t limb[VEC_LIMBS]) {
    sum(p->copy, limb, VEC_LIMBS, DT_I64, "squares of gradients");
}

void peers_share_rows(const peers *p, float *x, int64_t n) {
    float *own = x + p->m.rank[MESH_DP] * n;
    if (p->m.size[MESH_CP] > 1)
        sum(p->m.axis[MESH_CP], own, n, DT_F32, "losses of a sequence's parts");
    comm_call call = {.kind = COMM_ALL_GATHER,
                      .in = own,
                      .out = x,
                      .n = n,
                      .dt = DT_F32,
                      .what = "losses of the step's tokens"};
    comm_run(p->m.axis[MESH_DP], &call);
    peers_tell_stages(p, x, n * p->m.size[MESH_DP] * (int64_t)sizeof *x);
}

static int64_t most(const peers *p, int64_t x) {
    comm_call call = {.kind = COMM_ALL_REDUCE,
                      .sum = COMM_MAX,
                      .in = &x,
                      .out = &x,
                      .n = 1,
                      .dt = DT_I64,
                      .what = "what the ranks agree upon"};
    comm_run(p->m.axis[MESH_WORLD], &call);
    return x;
}

static void broadcast(const peers *p, void *data, int64_t bytes, int root, const char *what) {
    comm_call call = {
        .kind = COMM_BROADCAST, .out = data, .n = bytes, .dt = DT_U8, .root = root, .what = what};
    comm_run(p->m.axis[MESH_WORLD], &call);
}

bool peers_any(const peers *p, bool x) {
    return most(p, x) > 0;
}

int64_t peers_least(const peers *p, int64_t x) {
    return ~most(p, ~x);
}

bool peers_is_first(const peers *p, int64_t x) {
    return peers_least(p, x) == x;
}

void peers_tell(const peers *p, void *x, int64_t bytes) {
    broadcast(p, x, bytes, 0, "what rank 0 decides");
}

int64_t peers_first(const peers *p, int64_t x) {
    peers_tell(p, &x, sizeof x);
    return x;
}

/* The same on all ranks? */
static bool agreed(const peers *p, uint64_t x) {
    int64_t high = most(p, (int64_t)x), low = ~most(p, (int64_t)~x);
    return high == low;
}

static uint64_t sum_over_copy(const peers *p, uint64_t x) {
    int64_t all = (int64_t)x;
    sum(p->copy, &all, 1, DT_I64, "the digest of weights");
    return (uint64_t)all;
}

/* The number of a parameter of the whole model in this rank's store; -1: another stage has it. */
static int own_number(const peers *p, int index) {
    int i = 0;
    while (i < param_count(p->store) && param_number_in_whole(p->store, i) != index) i++;
    return i < param_count(p->store) ? i : -1;
}

uint64_t peers_param_digest(const peers *p, int index) {
    int own = own_number(p, index);
    return sum_over_copy(p, own < 0 ? 0 : param_digest_of(p->store, own));
}

double peers_grad_norm(const peers *p, dev *d, int index) {
    int own = own_number(p, index);
    if (!param_grads_are_fixed(p->store))
        return sqrt(peers_sum_copy(p, own < 0 ? 0 : optim_grad_squares_of(d, p->store, own)));
    int64_t limb[VEC_LIMBS] = {0};
    if (own >= 0) optim_grad_limbs_of(d, p->store, own, limb);
    peers_sum_limbs(p, limb);
    return sqrt(vec_limbs_value(limb));
}

/* Every rank compares every parameter, so that all find the same one. */
static status name_difference(const peers *p, err *e) {
    int worst = -1;
    const param_store *whole = param_store_whole(p->store);
    for (int i = 0; i < param_count(whole); i++)
        if (!agreed(p, peers_param_digest(p, i)) && worst < 0) worst = i;
    err_set(e, ST_RANK, "the replicas of the weights differ: %s is not the same on all ranks",
            worst < 0 ? "a parameter" : param_at(whole, worst)->name);
    return err_hint(e, "a rank computed or sent something else; the newest checkpoint is from "
                       "before the difference was noticed: check the machine, then start again");
}

status peers_digest(peers *p, uint64_t *digest, err *e) {
    *digest = sum_over_copy(p, *digest);
    if (agreed(p, *digest)) return comm_check(p->m.world, e);
    return name_difference(p, e);
}

status peers_agree(const peers *p, status st, err *e) {
    if (peers_ranks(p) == 1) return st;
    int failed = (int)-most(p, st == ST_OK ? -peers_ranks(p) : -peers_rank(p));
    bool knows = st != ST_OK && st != ST_RANK; /* more than that the world has failed */
    if (comm_check(p->m.world, knows ? NULL : e) != ST_OK) return knows ? st : ST_RANK;
    if (failed == peers_ranks(p)) return ST_OK;
    err none, *text = e ? e : &none;
    text->code = st;
    if (failed > 0 && failed == peers_rank(p)) err_context(text, "rank %d", failed);
    broadcast(p, text, sizeof *text, failed, "what has failed");
    return text->code;
}
