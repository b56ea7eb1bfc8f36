/* Sketches of steps beside the clock of what would run, and the search for layouts among them. */
#include "clock_case.h"

static sketch sketch_of(arena *a, const cluster *c, sketch_key key) {
    sketch s;
    err e = {0};
    dev *d = meta_device();
    plan_spec spec = spec_of(a);
    if (sketch_new(&s, a, d, &spec, key, c, &e) != ST_OK) fail_msg("%s", e.message);
    dev_close(d);
    return s;
}

static sketch_layout without_stages(sketch_key key, int dp, int zero, int micro_batches) {
    return (sketch_layout){.key = key,
                           .dp = dp,
                           .pp = 1,
                           .chunks_of_stage = 1,
                           .zero = zero,
                           .micro_batches = micro_batches,
                           .schedule = SCHEDULE_1F1B};
}

/* Without a pipeline a sketch says nearly what the clock says of the plan that would run. */
static void test_sketch(void **state) {
    (void)state;
    for (int k = 0; k < 48; k++) {
        int zero = k % 4, m = k / 4 % 3 + 1, cp = k / 24 + 1;
        context_kind kind = (context_kind)(m - 1);
        cluster c = plain(8, 1);
        c.node = (cluster_link){k / 12 % 2 ? 2e9 / (cp > 1 ? 20 : 1) : 1e12, 1e-6, 1};
        c.contention = 0.2;
        arena *a = arena_new("test");
        sketch_key key = {1, 4, RECOMPUTE_NONE, cp, kind, 1};
        sketch s = sketch_of(a, &c, key);
        sketch_layout l = without_stages(key, 8 / cp, zero, m);
        sketch_result r;
        err e = {0};
        if (sketch_time(&s, &l, &c, &runtime_athanor, &r, &e) != ST_OK) fail_msg("%s", e.message);
        clock_time t = step_of(&c, (layout){8 / cp, zero, m, cp, kind});
        if (fabs(r.time.step_s / t.step_s - 1) > 0.07)
            fail_msg("zero %d, %d micro-batches, cp %d: a sketch of %g s, a step of %g s", zero, m,
                     cp, r.time.step_s, t.step_s);
        assert_int_equal(r.time.ranks, t.ranks);
        assert_near(r.time.tokens, t.tokens);
        assert_near(parts_of(&r.time), r.time.step_s);
        arena_free(a);
    }
}

/* The same of experts that ranks share out; layers of one kind are recorded once. */
static void test_sketch_of_experts(void **state) {
    (void)state;
    for (int k = 0; k < 12; k++) {
        int zero = k % 4, ep = 1 << k / 4;
        cluster c = plain(8, 1);
        arena *a = arena_new("test");
        dev *d = meta_device();
        mesh ranks;
        plan *p;
        err e = {0};
        sketch s;
        sketch_result r;
        plan_spec spec = spec_of_experts(a);
        sketch_key key = {1, 4, RECOMPUTE_NONE, 1, CONTEXT_ALLGATHER, ep};
        sketch_layout l = without_stages(key, 8, zero, 2);
        c.node = (cluster_link){1e10, 1e-6, 1};
        if (sketch_new(&s, a, d, &spec, key, &c, &e) != ST_OK) fail_msg("%s", e.message);
        if (sketch_time(&s, &l, &c, &runtime_athanor, &r, &e) != ST_OK) fail_msg("%s", e.message);
        mesh_place(&ranks,
                   &(mesh_shape){.dp = 8, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = 1, .ep = ep},
                   0);
        spec.ranks = &ranks;
        spec.micro_batches = 2;
        spec.sharing = (param_sharding){.shards = 8, .zero = zero, .bucket_elems = 1 << 18};
        if (plan_new(&p, d, &spec, &e) != ST_OK) fail_msg("%s", e.message);
        clock_time t = clock_step(p, &c);
        if (fabs(r.time.step_s / t.step_s - 1) > 0.1)
            fail_msg("zero %d, ep %d: a sketch of %g s, a step of %g s", zero, ep, r.time.step_s,
                     t.step_s);
        double bytes = (double)p->peak_bytes;
        if (fabs(r.memory_bytes / bytes - 1) > 0.05)
            fail_msg("zero %d, ep %d: a sketch of %g bytes, a plan of %g", zero, ep, r.memory_bytes,
                     bytes);
        assert_near(r.time.model_flops, t.model_flops);
        assert_int_equal(s.layers, 8);
        plan_free(p);
        dev_close(d);
        arena_free(a);
    }
}

/* Adapters beside frozen weights: in 16 bits with their masters, in fp32, or in 4 bits. */
typedef enum base_kind { BASE_BF16, BASE_F32, BASE_NF4, BASES } base_kind;

static plan_spec spec_of_adapters(arena *a, base_kind base) {
    plan_spec s = spec_of_width(a, 1024);
    s.compute = base == BASE_BF16 ? DT_BF16 : DT_F32;
    s.nf4_base = base == BASE_NF4;
    s.adapters = (model_adapters){.rank = 8, .alpha = 16};
    return s;
}

static plan *plan_on_8(dev *d, plan_spec spec, mesh *ranks, int zero) {
    plan *p;
    err e = {0};
    mesh_place(ranks, &(mesh_shape){.dp = 8, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = 1}, 0);
    spec.ranks = ranks;
    spec.sharing = (param_sharding){.shards = 8, .zero = zero, .bucket_elems = 1 << 18};
    if (plan_new(&p, d, &spec, &e) != ST_OK) fail_msg("%s", e.message);
    return p;
}

/* What is frozen has no gradients and no states, and travels in ZeRO-3 alone; of 4 bits nothing travels. */
static void test_sketch_of_adapters(void **state) {
    (void)state;
    for (int k = 0; k < 4 * BASES; k++) {
        int zero = k % 4, base = k / 4;
        cluster c = plain(8, 1);
        arena *a = arena_new("test");
        dev *d = meta_device();
        mesh ranks;
        err e = {0};
        sketch s;
        sketch_result r;
        plan_spec spec = spec_of_adapters(a, (base_kind)base);
        sketch_key key = {1, 4, RECOMPUTE_NONE, 1, CONTEXT_ALLGATHER, 1};
        sketch_layout l = without_stages(key, 8, zero, 1);
        if (sketch_new(&s, a, d, &spec, key, &c, &e) != ST_OK) fail_msg("%s", e.message);
        if (sketch_time(&s, &l, &c, &runtime_athanor, &r, &e) != ST_OK) fail_msg("%s", e.message);
        plan *p = plan_on_8(d, spec, &ranks, zero);
        clock_time t = clock_step(p, &c);
        double bytes = (double)p->peak_bytes;
        if (fabs(r.memory_bytes / bytes - 1) > 0.05)
            fail_msg("base %d, zero %d: a sketch of %g bytes, a plan of %g", base, zero,
                     r.memory_bytes, bytes);
        if (fabs(r.time.step_s / t.step_s - 1) > 0.1)
            fail_msg("base %d, zero %d: a sketch of %g s, a step of %g s", base, zero,
                     r.time.step_s, t.step_s);
        plan_free(p);
        dev_close(d);
        arena_free(a);
    }
}

/* Devices that hold what a plan with adapters needs, and no more, are enough. */
static void test_search_of_adapters(void **state) {
    (void)state;
    for (int base = 0; base < BASES; base++) {
        cluster c = plain(8, 1);
        arena *a = arena_new("test");
        dev *d = meta_device();
        mesh ranks;
        err e = {0};
        search_result r;
        search_phase phase = {.base = spec_of_adapters(a, (base_kind)base), .batch = 8};
        search_spec what = {.phase = &phase, .n_phases = 1, .most = 1, .kept = search_all};
        phase.base.train_B = 1;
        what.kept.zero = 0;
        what.kept.dp = 8;
        what.kept.recompute = RECOMPUTE_NONE;
        plan *p = plan_on_8(d, phase.base, &ranks, 0);
        double bytes = clock_step(p, &c).peak_bytes;
        c.memory_bytes = 1.01 * bytes;
        if (search_layouts(&r, a, d, &what, &c, &e) != ST_OK)
            fail_msg("base %d: %s", base, e.message);
        assert_near(r.found[0].result.memory_bytes, bytes);
        plan_free(p);
        dev_close(d);
        arena_free(a);
    }
}

/* Of equal stages the bubble is (p - 1) / (v m) of the work: the published table for p = 8. */
static void test_bubble(void **state) {
    (void)state;
    arena *a = arena_new("test");
    cluster c = plain(8, 1);
    c.node = (cluster_link){1e30, 0, 1};
    sketch s = sketch_of(a, &c, (sketch_key){1, 4, RECOMPUTE_NONE, 1, 0, 1});
    for (int i = 1; i < s.layers; i++) s.layer[i] = s.layer[1];
    s.layer[0] = s.layer[1];
    for (int v = 1; v <= 4; v *= 2)
        for (int m = 8; m <= 2048; m *= 2) {
            sketch_layout l = {.key = {1, 4, RECOMPUTE_NONE, 1, 0, 1},
                               .dp = 1,
                               .pp = 8 / v,
                               .chunks_of_stage = v,
                               .micro_batches = m,
                               .schedule = v > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B};
            sketch_result r;
            err e = {0};
            if (sketch_time(&s, &l, &c, &runtime_athanor, &r, &e) != ST_OK)
                fail_msg("%s", e.message);
            double busy = r.time.kernels_s + r.time.among_s;
            if (fabs(r.time.bubble_s / busy - (l.pp - 1.0) / (v * m)) > 1e-9)
                fail_msg("pp %d, %d chunks, %d micro-batches: %g", l.pp, v, m,
                         r.time.bubble_s / busy);
        }
    arena_free(a);
}

/* The memory of a pipeline's stages, by a sketch, is nearly that of its plans, and hardly ever more: what a sketch says does not fit is not
 * planned. */
static void test_sketch_of_stages(void **state) {
    (void)state;
    static const struct {
        schedule_kind kind;
        int chunks;
    } all[] = {{SCHEDULE_1F1B, 1}, {SCHEDULE_INTERLEAVED, 2}, {SCHEDULE_ZB_H1, 1}};
    for (int k = 0; k < ARRAY_LEN(all) * 9; k++) {
        int chunks = all[k / 9].chunks, zero = k % 3;
        arena *a = arena_new("test");
        dev *d = meta_device();
        cluster c = plain(8, 2);
        mesh ranks;
        plan *p;
        err e = {0};
        sketch sk;
        sketch_result r;
        plan_spec s = spec_of_stage(a, &ranks, 8, chunks, 0), base = s;
        s.pp_schedule = (int)all[k / 9].kind;
        s.recompute = (recompute_policy)(k / 3 % 3);
        s.sharing.zero = zero;
        base.ranks = NULL;
        base.chunks = 1;
        double *cost = ARENA_ARRAY(a, double, base.model.num_hidden_layers);
        if (plan_layer_costs(&base, d, cost, &e) != ST_OK) fail_msg("%s", e.message);
        sketch_key key = {1, s.train_B, s.recompute, 1, CONTEXT_ALLGATHER, 1};
        sketch_layout l = {.key = key,
                           .dp = 2,
                           .pp = 8,
                           .chunks_of_stage = chunks,
                           .zero = zero,
                           .micro_batches = s.micro_batches,
                           .schedule = all[k / 9].kind,
                           .cut = plan_cut_layers(a, &base, cost, 8 * chunks)};
        if (sketch_new(&sk, a, d, &base, key, &c, &e) != ST_OK) fail_msg("%s", e.message);
        if (sketch_time(&sk, &l, &c, &runtime_athanor, &r, &e) != ST_OK) fail_msg("%s", e.message);
        if (plan_new(&p, d, &s, &e) != ST_OK) fail_msg("%s", e.message);
        clock_time t = clock_step(p, &c);
        double bytes = t.peak_bytes - (double)plan_baseline_bytes(p);
        if (r.memory_bytes > 1.02 * bytes || r.memory_bytes < 0.8 * bytes)
            fail_msg("%s, ZeRO %d, recompute %d: a sketch of %g bytes, plans of %g",
                     schedule_name(l.schedule), zero, (int)s.recompute, r.memory_bytes, bytes);
        if (fabs(r.time.step_s / t.step_s - 1) > 0.1)
            fail_msg("%s, ZeRO %d, recompute %d: a sketch of %g s, a step of %g s",
                     schedule_name(l.schedule), zero, (int)s.recompute, r.time.step_s, t.step_s);
        plan_free(p);
        dev_close(d);
        arena_free(a);
    }
}

/* Counted by the linker's --wrap: programs that are recorded, and parameters that are named. */
static int programs_recorded, params_named;
status __real_prog_finish(prog **out, graph *g, err *e);
int __real_param_add(param_store *s, const param *q);

status __wrap_prog_finish(prog **out, graph *g, err *e);
int __wrap_param_add(param_store *s, const param *q);

status __wrap_prog_finish(prog **out, graph *g, err *e) {
    programs_recorded++;
    return __real_prog_finish(out, g, e);
}

int __wrap_param_add(param_store *s, const param *q) {
    params_named++;
    return __real_param_add(s, q);
}

/* A search among pipelines of so many stages, for a model of 32 alike layers. */
static void search_stages(int stages, int layers, search_result *r, arena *a) {
    cluster c = plain(8, 4);
    dev *d = meta_device();
    err e = {0};
    search_phase phase = {.base = spec_of(a), .batch = 256};
    search_spec what = {
        .phase = &phase, .n_phases = 1, .most = 5, .pipelines = true, .kept = search_all};
    phase.base.model.num_hidden_layers = layers;
    what.kept.pp = stages;
    what.kept.tp = 1;
    what.kept.micro_batch = 1;
    programs_recorded = params_named = 0;
    if (search_layouts(r, a, d, &what, &c, &e) != ST_OK) fail_msg("%s", e.message);
    dev_close(d);
}

/* Stages that are alike are planned once, and what layers cost is found once: a search in twice as many stages, of twice as many layers,
 * records no more programs, and each program names as many parameters. */
static void test_work_of_search(void **state) {
    (void)state;
    arena *a = arena_new("test");
    search_result r;
    search_stages(8, 32, &r, a);
    int programs = programs_recorded, params = params_named, planned = r.n;
    search_stages(16, 64, &r, a);
    assert_int_equal(r.n, planned);
    if (programs_recorded > programs * 5 / 4)
        fail_msg("%d programs in 16 stages, %d in 8", programs_recorded, programs);
    if (params_named > params * 5 / 4)
        fail_msg("%d parameters in 16 stages, %d in 8", params_named, params);
    arena_free(a);
}

static void test_search(void **state) {
    (void)state;
    arena *a = arena_new("test");
    dev *d = meta_device();
    cluster c = plain(8, 2);
    search_phase phase = {.base = spec_of(a), .batch = 64};
    search_spec what = {
        .phase = &phase, .n_phases = 1, .most = 5, .pipelines = true, .kept = search_all};
    search_result r;
    err e = {0};
    if (search_layouts(&r, a, d, &what, &c, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(r.n, 5);
    for (int i = 0; i < r.n; i++) {
        const sketch_layout *l = &r.found[i].layout;
        assert_int_equal(l->dp * l->pp * l->key.tp, 16);
        assert_int_equal(l->dp * l->key.micro_batch * l->micro_batches, 64);
        assert_true(r.found[i].result.memory_bytes <= c.memory_bytes);
        if (i) assert_true(r.found[i].result.time.step_s >= r.found[i - 1].result.time.step_s);
    }
    phase.batch = 63; /* which 16 devices share in no way */
    what.pipelines = false;
    assert_int_equal(search_layouts(&r, a, d, &what, &c, &e), ST_USAGE);
    phase.batch = 64;
    c.memory_bytes = 1 << 20;
    assert_int_equal(search_layouts(&r, a, d, &what, &c, &e), ST_MEMORY);
    dev_close(d);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sketch),
                                       cmocka_unit_test(test_sketch_of_experts),
                                       cmocka_unit_test(test_sketch_of_adapters),
                                       cmocka_unit_test(test_search_of_adapters),
                                       cmocka_unit_test(test_bubble),
                                       cmocka_unit_test(test_sketch_of_stages),
                                       cmocka_unit_test(test_work_of_search),
                                       cmocka_unit_test(test_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
