/* Large worlds without arithmetic: every rank is planned on the meta device, and what the ranks' step tables make
 * them send must fit together. No rank waits for ever, and ranks that meet in a call mean the same one. 64 ranks
 * one by one, 16,384 by class; then 64 ranks as threads, which make the calls of their tables over real comms. */
#include "test.h"

#include <pthread.h>

#include "base/rng.h"
#include "plan/plan.h"
#include "sanitizer.h"
#include "step/pipeline.h"
#include "step/schedule.h"

enum { RANKS = 64, SHAPES = UNDER_ASAN ? 80 : 200, SEED = 23 };

/* ---- what a rank does: calls, and waits for those on its side stream ---- */

typedef struct act {
    bool waits;
    int ticket; /* what is waited for; of a call on the side stream: what it gets, from 1 on */
    step_call k;
    int first;
    mesh_line line; /* who takes part */
} act;

typedef struct rank {
    act *act;
    int n, cap, at;
    int *queue, queued, done; /* the side stream: numbers of acts */
} rank;

typedef struct writer {
    arena *a;
    rank *r;
    const mesh *m;
    int tickets;
} writer;

static void add_act(writer *w, act x) {
    w->r->act = arena_grow(w->a, w->r->act, w->r->n, &w->r->cap, sizeof x);
    w->r->act[w->r->n++] = x;
}

static void add_call(void *ctx, const step_call *k) {
    writer *w = ctx;
    act x = {.k = *k};
    x.line = step_call_ranks(k, w->m, &x.first);
    if (k->call.what) x.k.call.what = arena_strdup(w->a, k->call.what);
    if (k->side) x.ticket = ++w->tickets;
    add_act(w, x);
}

/* As the trainer executes the table (train/execute.c, train/ranks/peers.c). */
static void write_acts(writer *w, const step_table *t, const step_parts *parts) {
    step_caller c = {.parts = parts, .ranks = w->m, .visit = add_call, .ctx = w};
    int *began = ARENA_ARRAY(w->a, int, t->n);
    int *unit = ARENA_ARRAY(w->a, int, 2 * param_units(parts->store));
    for (int i = 0; i < t->n; i++) {
        const step_entry *e = &t->entry[i];
        int *mine = &unit[2 * e->unit + (e->action == STEP_REDUCE || e->action == STEP_REDUCED)];
        if (e->action == STEP_SENT || e->action == STEP_RECEIVED)
            add_act(w, (act){.waits = true, .ticket = began[e->begun]});
        if (e->action == STEP_GATHERED || e->action == STEP_REDUCED)
            add_act(w, (act){.waits = true, .ticket = *mine});
        int before = w->tickets;
        step_visit_calls(&c, e);
        began[i] = w->tickets;
        if (w->tickets > before && (e->action == STEP_GATHER || e->action == STEP_REDUCE))
            *mine = w->tickets;
    }
    add_act(w, (act){.waits = true, .ticket = w->tickets});
    w->r->queue = ARENA_ARRAY(w->a, int, w->tickets + 1);
}

/* ---- layouts ---- */

typedef struct shape {
    mesh_shape mesh;
    int zero, schedule, virtual, micro_batches, recompute, context;
    bool sp, narrow;
    int64_t bucket;
} shape;

static const char LLAMA[] =
    "{\"model_type\":\"llama\",\"vocab_size\":131,\"hidden_size\":32,\"num_hidden_layers\":16,"
    "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"intermediate_size\":32,"
    "\"max_position_embeddings\":128,\"tie_word_embeddings\":true}";
static const char EXPERTS[] =
    "{\"model_type\":\"llama\",\"vocab_size\":131,\"hidden_size\":32,\"num_hidden_layers\":16,"
    "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"intermediate_size\":32,"
    "\"num_experts\":4,\"num_experts_per_tok\":2,\"max_position_embeddings\":128,"
    "\"tie_word_embeddings\":false}";
/* Llama 3.1 405B, as its config says (a vocabulary that 8 ranks divide). */
static const char LARGE[] =
    "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":16384,"
    "\"num_hidden_layers\":126,\"num_attention_heads\":128,\"num_key_value_heads\":8,"
    "\"intermediate_size\":53248,\"max_position_embeddings\":131072}";

static void describe(const shape *s, char out[200]) {
    snprintf(out, 200,
             "dp %d replicate %d zero %d tp %d%s cp %d kind %d pp %d %s %d, %d micro-batches, "
             "recompute %d, bucket %ld",
             s->mesh.dp, s->mesh.dp_replicate, s->zero, s->mesh.tp, s->sp ? " sp" : "", s->mesh.cp,
             s->context, s->mesh.pp, schedule_name((schedule_kind)s->schedule), s->virtual,
             s->micro_batches, s->recompute, (long)s->bucket);
}

typedef struct dice {
    rng_key key;
    uint64_t n;
} dice;

static int roll(dice *d, int sides) {
    return (int)(rng_u32(d->key, d->n++) % (uint32_t)sides);
}

static void draw_schedule(dice *d, shape *s) {
    int stages = s->mesh.pp;
    do s->schedule = roll(d, SCHEDULES);
    while (!schedule_runs((schedule_kind)s->schedule));
    bool alone = stages == 1 && s->schedule > SCHEDULE_1F1B;
    if (alone || stages > 8) s->schedule = SCHEDULE_1F1B;
    int needs = schedule_chunks_of((schedule_kind)s->schedule);
    s->virtual = needs ? needs : 16 / stages < 3 ? 2 : 2 + roll(d, 2);
    s->micro_batches = 1 + roll(d, 2 * stages + 2);
    if (s->schedule == SCHEDULE_INTERLEAVED) s->micro_batches = stages * (1 + roll(d, 3));
}

/* A layout of so many ranks that the models allow: 16 heads, 8 key/value heads, 16 layers. */
static shape draw(dice *d, int ranks) {
    shape s = {.mesh = {.tp = 1 << roll(d, 5), .cp = 1 << roll(d, 4), .pp = 1 << roll(d, 5)}};
    while (s.mesh.tp * s.mesh.cp * s.mesh.pp > ranks) s = draw(d, ranks);
    s.mesh.dp = ranks / (s.mesh.tp * s.mesh.cp * s.mesh.pp);
    s.mesh.dp_replicate = 1 << roll(d, 7);
    while (s.mesh.dp % s.mesh.dp_replicate) s.mesh.dp_replicate /= 2;
    s.zero = roll(d, 4);
    s.sp = s.mesh.tp > 1 && roll(d, 2);
    s.recompute = roll(d, 3);
    s.bucket = roll(d, 2) ? 1 : 4000;
    s.narrow = roll(d, 2);
    s.context = roll(d, s.mesh.cp * s.mesh.tp <= 8 ? 3 : 2);
    draw_schedule(d, &s);
    return s;
}

/* ---- plans ---- */

typedef struct world {
    arena *a;
    dev *meta;
    const shape *s;
    model_config model;
    char why[400];
    int T, n; /* ranks */
    rank *
        rank; /* [n] those that are planned; by class, one for each stage and tensor-parallel rank */
    bool by_class;
} world;

/* The rank that is planned for another: a rank's place along the other axes changes nothing. */
static int planned_of(const world *w, int r) {
    int stride = w->n / w->s->mesh.pp, tp = w->s->mesh.tp;
    return w->by_class ? r / stride * tp + r % tp : r;
}

static int planned(const world *w) {
    return w->by_class ? w->s->mesh.pp * w->s->mesh.tp : w->n;
}

/* Of planned rank i. */
static int number_of(const world *w, int i) {
    int stride = w->n / w->s->mesh.pp, tp = w->s->mesh.tp;
    return w->by_class ? i / tp * stride + i % tp : i;
}

static plan *plan_of(const world *w, mesh *m) {
    const shape *s = w->s;
    plan_spec spec = {.model = w->model,
                      .compute = DT_F32,
                      .T = w->T,
                      .train_B = 1,
                      .micro_batches = s->micro_batches,
                      .frames = s->schedule == SCHEDULE_AFAB && s->zero < 2 ? PLAN_ALL_FRAMES : 1,
                      .chunks = s->virtual * s->mesh.pp,
                      .pp_schedule = s->schedule,
                      .optim = optim_find("adamw"),
                      .recompute = (recompute_policy)s->recompute,
                      .sequence_parallel = s->sp,
                      .context = (context_kind)s->context,
                      .expert_load = 1.5,
                      .narrow_sums = s->narrow,
                      .routing = {.tallies = true},
                      .ranks = m,
                      .sharing = {.shards = m->size[MESH_SHARD],
                                  .rank = m->rank[MESH_SHARD],
                                  .zero = s->zero,
                                  .bucket_elems = s->bucket}};
    plan *p;
    err e = {0};
    char name[200];
    describe(s, name);
    if (plan_new(&p, w->meta, &spec, &e) != ST_OK) fail_msg("%s: %s", name, e.message);
    return p;
}

static void plan_one(const world *w, int i) {
    mesh m;
    mesh_place(&m, &w->s->mesh, number_of(w, i));
    plan *p = plan_of(w, &m);
    step_parts parts = plan_step_parts(p, w->a, w->s->micro_batches, w->n > 1);
    step_table t = step_build(w->a, &parts);
    write_acts(&(writer){.a = w->a, .r = &w->rank[i], .m = &m}, &t, &parts);
    plan_free(p);
}

static world *open_world(const shape *s, const char *model, int T, bool by_class) {
    arena *a = arena_new("world");
    world *w = ARENA_NEW(a, world);
    err e = {0};
    json_t *o = json_loads(model, 0, NULL);
    *w = (world){.a = a, .s = s, .T = T, .by_class = by_class};
    w->n = mesh_line_of(&s->mesh, MESH_WORLD).size;
    if (model_config_read(a, o, 0, &w->model, &e) != ST_OK) fail_msg("%s", e.message);
    json_decref(o);
    assert_int_equal(dev_open_meta(&w->meta, DEV_CPU, 1, &e), ST_OK);
    w->rank = ARENA_ARRAY(a, rank, planned(w));
    for (int i = 0; i < planned(w); i++) plan_one(w, i);
    return w;
}

static void close_world(world *w) {
    dev_close(w->meta);
    arena_free(w->a);
}

/* ---- ranks that meet ---- */

/* The call that a rank is in: of its own thread, or of its side stream. NULL: none. */
static const act *front(const rank *r, bool side) {
    if (side) return r->done < r->queued ? &r->act[r->queue[r->done]] : NULL;
    const act *x = &r->act[r->at];
    return r->at < r->n && !x->waits && !x->k.side ? x : NULL;
}

/* As far as it can go without another. */
static bool go_on(rank *r) {
    int began = r->at;
    for (; r->at < r->n; r->at++) {
        const act *x = &r->act[r->at];
        if (x->waits ? r->done < x->ticket : !x->k.side) break;
        if (!x->waits) r->queue[r->queued++] = r->at;
    }
    return r->at > began;
}

static bool same_group(const world *w, const act *x, const act *y) {
    return planned_of(w, x->first) == planned_of(w, y->first) && x->line.size == y->line.size &&
           x->line.stride == y->line.stride;
}

static bool same_call(const comm_call *x, const comm_call *y) {
    return x->kind == y->kind && x->n == y->n && x->dt == y->dt && x->narrow == y->narrow &&
           x->root == y->root && x->sum == y->sum &&
           (!x->what || !y->what || strcmp(x->what, y->what) == 0);
}

static void explain(world *w, int i, const act *x, int j, const act *y) {
    const comm_call *a = &x->k.call, *b = &y->k.call;
    snprintf(w->why, sizeof w->why,
             "rank %d is in %s of %ld (%s), rank %d in %s of %ld (%s): two ranks mean other calls",
             number_of(w, i), comm_kind_name(a->kind), (long)a->n, a->what ? a->what : "",
             number_of(w, j), comm_kind_name(b->kind), (long)b->n, b->what ? b->what : "");
}

/* All ranks of the call have come to it: they do it. */
static bool meet(world *w, int i, bool side) {
    const act *x = front(&w->rank[i], side);
    if (!x) return false;
    for (int k = 0; k < x->line.size; k++) {
        int other = planned_of(w, x->first + k * x->line.stride);
        const act *y = front(&w->rank[other], side);
        if (!y || !same_group(w, x, y)) return false;
        if (!same_call(&x->k.call, &y->k.call)) explain(w, i, x, other, y);
    }
    int last = -1;
    for (int k = 0; k < x->line.size; k++) {
        int other = planned_of(w, x->first + k * x->line.stride);
        if (other == last) continue; /* ranks of one class */
        last = other;
        int *passed = side ? &w->rank[other].done : &w->rank[other].at;
        ++*passed;
    }
    return true;
}

/* Runs a step. False, and w->why: it does not end. */
static bool run_step(world *w) {
    for (bool moves = true; moves && !*w->why;) {
        moves = false;
        for (int i = 0; i < planned(w); i++) {
            moves = go_on(&w->rank[i]) || moves;
            for (int side = 0; side < 2; side++)
                while (!*w->why && meet(w, i, side)) {
                    go_on(&w->rank[i]);
                    moves = true;
                }
        }
    }
    for (int i = 0; i < planned(w) && !*w->why; i++)
        if (w->rank[i].at < w->rank[i].n)
            snprintf(w->why, sizeof w->why, "rank %d waits for ever", number_of(w, i));
    return !*w->why;
}

static void check(const shape *s, const char *model, int T, bool by_class) {
    char name[200];
    describe(s, name);
    world *w = open_world(s, model, T, by_class);
    if (!run_step(w)) fail_msg("%s: %s", name, w->why);
    close_world(w);
}

/* ---- tests ---- */

static void test_shapes_of_64(void **state) {
    (void)state;
    dice d = {.key = rng_key_named(SEED, "layouts of 64 ranks")};
    for (int i = 0; i < SHAPES; i++) {
        shape s = draw(&d, RANKS);
        int replica = s.mesh.dp / s.mesh.dp_replicate * s.mesh.cp;
        if (i % 4 == 3) s.mesh.ep = replica % 4 == 0 ? 4 : replica % 2 == 0 ? 2 : 1;
        check(&s, i % 4 == 3 ? EXPERTS : LLAMA, 128, i % 8 != 0);
    }
}

/* The ranks of a class do the same, each with its own partners: by class nothing is overlooked. */
static void test_classes(void **state) {
    (void)state;
    dice d = {.key = rng_key_named(SEED, "classes")};
    for (int i = 0; i < 6; i++) {
        shape s = draw(&d, RANKS);
        world *all = open_world(&s, LLAMA, 128, false), *few = open_world(&s, LLAMA, 128, true);
        for (int r = 0; r < all->n; r++) {
            const rank *x = &all->rank[r], *y = &few->rank[planned_of(few, r)];
            assert_int_equal(x->n, y->n);
            for (int k = 0; k < x->n; k++) {
                assert_int_equal(x->act[k].waits, y->act[k].waits);
                assert_int_equal(x->act[k].ticket, y->act[k].ticket);
                assert_int_equal(x->act[k].line.size, y->act[k].line.size);
                assert_true(same_call(&x->act[k].k.call, &y->act[k].k.call));
            }
        }
        close_world(few);
        close_world(all);
    }
}

static void test_16384_ranks(void **state) {
    (void)state;
    static const shape some[] = {
        {.mesh = {.dp = 128, .dp_replicate = 1, .tp = 8, .cp = 1, .pp = 16},
         .zero = 1,
         .sp = true,
         .schedule = SCHEDULE_1F1B,
         .virtual = 1,
         .micro_batches = 16,
         .bucket = 1 << 28},
        {.mesh = {.dp = 16, .dp_replicate = 4, .tp = 8, .cp = 16, .pp = 8},
         .zero = 1,
         .sp = true,
         .schedule = SCHEDULE_INTERLEAVED,
         .virtual = 2,
         .micro_batches = 16,
         .bucket = 1 << 28}};
    for (int i = 0; i < ARRAY_LEN(some); i++) check(&some[i], LARGE, 8192, true);
    dice d = {.key = rng_key_named(SEED, "layouts of 16384 ranks")};
    for (int i = 0; i < 20; i++) {
        shape s = draw(&d, 16384);
        check(&s, LLAMA, 128, true);
    }
}

/* ---- ranks as threads: real groups, tags and queues; nobody computes ---- */

typedef struct walker {
    pthread_t thread;
    const rank *r;
    comm_world *world;
    int64_t most; /* bytes of the longest array of a call */
    bool failed;
} walker;

static int64_t bytes_of(const act *x) {
    return x->k.call.n * x->line.size * (int64_t)dtype_bytes(x->k.call.dt);
}

static comm *group_of(comm_world *w, const act *x) {
    int ranks[RANKS];
    for (int i = 0; i < x->line.size; i++) ranks[i] = x->first + i * x->line.stride;
    return comm_group(w, ranks, x->line.size);
}

/* The arrays hold nothing that matters: all calls of a stream have the same. */
static void *walk_acts(void *arg) {
    walker *k = arg;
    char *at[2][2];
    comm_ticket *ticket = xcalloc((size_t)k->r->n + 1, sizeof *ticket);
    for (int i = 0; i < 4; i++) at[i / 2][i % 2] = xcalloc(1, (size_t)k->most + 64);
    for (int i = 0; i < k->r->n; i++) {
        const act *x = &k->r->act[i];
        if (x->waits) {
            comm_wait(k->world, ticket[x->ticket]);
            continue;
        }
        comm_call call = x->k.call;
        call.dev = NULL;
        call.in = at[x->k.side][0], call.out = at[x->k.side][1];
        if (!call.what) call.what = "a unit of parameters";
        if (x->k.side)
            ticket[x->ticket] = comm_start(group_of(k->world, x), &call);
        else
            comm_run(group_of(k->world, x), &call);
    }
    err e = {0};
    k->failed = comm_check(k->world, &e) != ST_OK;
    if (k->failed) fprintf(stderr, "%s\n", e.message);
    comm_close(k->world);
    for (int i = 0; i < 4; i++) free(at[i / 2][i % 2]);
    free(ticket);
    return NULL;
}

static void walk_threads(const shape *s) {
    static const double timeout_s = 60;
    world *w = open_world(s, LLAMA, 128, false);
    comm_world *worlds[RANKS];
    walker k[RANKS];
    comm_open_threads(w->n, worlds);
    for (int r = 0; r < w->n; r++) {
        k[r] = (walker){.r = &w->rank[r], .world = worlds[r]};
        comm_set_timeout(worlds[r], timeout_s);
        for (int i = 0; i < k[r].r->n; i++)
            if (bytes_of(&k[r].r->act[i]) > k[r].most) k[r].most = bytes_of(&k[r].r->act[i]);
        assert_int_equal(pthread_create(&k[r].thread, NULL, walk_acts, &k[r]), 0);
    }
    char name[200];
    describe(s, name);
    for (int r = 0; r < w->n; r++) pthread_join(k[r].thread, NULL);
    for (int r = 0; r < w->n; r++)
        if (k[r].failed) fail_msg("%s: rank %d failed", name, r);
    close_world(w);
}

static void test_threads(void **state) {
    (void)state;
    static const shape some[] = {{.mesh = {.dp = 2, .dp_replicate = 1, .tp = 4, .cp = 2, .pp = 4},
                                  .zero = 1,
                                  .sp = true,
                                  .context = CONTEXT_RING,
                                  .schedule = SCHEDULE_INTERLEAVED,
                                  .virtual = 2,
                                  .micro_batches = 4,
                                  .bucket = 4000},
                                 {.mesh = {.dp = 8, .dp_replicate = 2, .tp = 4, .cp = 2, .pp = 1},
                                  .zero = 3,
                                  .sp = true,
                                  .context = CONTEXT_ULYSSES,
                                  .schedule = SCHEDULE_1F1B,
                                  .virtual = 1,
                                  .micro_batches = 1,
                                  .recompute = RECOMPUTE_FULL,
                                  .bucket = 1},
                                 {.mesh = {.dp = 4, .dp_replicate = 1, .tp = 1, .cp = 2, .pp = 8},
                                  .zero = 1,
                                  .narrow = true,
                                  .schedule = SCHEDULE_ZB_V,
                                  .virtual = 2,
                                  .micro_batches = 8,
                                  .bucket = 1}};
    for (int i = 0; i < ARRAY_LEN(some); i++) walk_threads(&some[i]);
}

/* ---- mistakes ---- */

static void check_broken(const shape *s, void (*breaks)(rank *r), const char *want) {
    world *w = open_world(s, LLAMA, 128, false);
    breaks(&w->rank[1]); /* of the first stage, which has the embedding, too */
    assert_false(run_step(w));
    if (!strstr(w->why, want)) fail_msg("'%s' does not say '%s'", w->why, want);
    close_world(w);
}

static int find_call(const rank *r, comm_kind kind, int from) {
    while (from < r->n && (r->act[from].waits || r->act[from].k.call.kind != kind)) from++;
    return from;
}

/* Both are on the side stream, so their tickets stay as they are. */
static void swap_units(rank *r) {
    int a = find_call(r, COMM_REDUCE_SCATTER, 0), b = find_call(r, COMM_REDUCE_SCATTER, a + 1);
    while (b < r->n && r->act[b].k.call.n == r->act[a].k.call.n)
        b = find_call(r, COMM_REDUCE_SCATTER, b + 1);
    assert_true(b < r->n);
    step_call k = r->act[a].k;
    r->act[a].k = r->act[b].k;
    r->act[b].k = k;
}

static void forget_transfer(rank *r) {
    int last = r->n;
    for (int k = 0; (k = find_call(r, COMM_SEND, k)) < r->n; k++) last = k;
    assert_true(last < r->n);
    r->act[last] = (act){.waits = true};
}

static void send_less(rank *r) {
    r->act[find_call(r, COMM_SEND, 0)].k.call.n /= 2;
}

static void test_mistakes(void **state) {
    (void)state;
    shape s = {.mesh = {.dp = 4, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = 4},
               .zero = 1,
               .schedule = SCHEDULE_1F1B,
               .virtual = 1,
               .micro_batches = 4,
               .bucket = 1};
    check_broken(&s, swap_units, "two ranks mean other calls");
    check_broken(&s, send_less, "two ranks mean other calls");
    check_broken(&s, forget_transfer, "waits for ever");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_classes),
        cmocka_unit_test(test_16384_ranks), cmocka_unit_test(test_shapes_of_64),
        cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
