/* The planner's clock: the roofline, and steps of one rank and of stages whose times can be told beforehand. */
#include "clock_case.h"

static const layout alone = {1, 0, 1, 1, CONTEXT_ALLGATHER};

/* Where memory is endless only products count, and they run at the peak. */
static void test_peak(void **state) {
    (void)state;
    cluster c = plain(1, 1);
    c.memory_bytes_per_s = 1e30;
    clock_time t = step_of(&c, alone);
    assert_true(clock_mfu(&t) > 0.97 && clock_mfu(&t) < 1.1);
    assert_near(parts_of(&t), t.step_s);
    clock_time half = t;
    c.peak_flops[DT_BF16] /= 2;
    t = step_of(&c, alone);
    assert_near(t.step_s, 2 * half.step_s);
    assert_near(t.tokens, 512);
}

/* A step of many micro-batches, of which few are walked: as much more for each. */
static void test_micro_batches(void **state) {
    (void)state;
    cluster c = plain(2, 1);
    for (int zero = 0; zero <= 3; zero++) {
        double t3 = step_of(&c, (layout){2, zero, 3, 1, 0}).step_s,
               t4 = step_of(&c, (layout){2, zero, 4, 1, 0}).step_s;
        clock_time many = step_of(&c, (layout){2, zero, 1003, 1, 0});
        assert_true(fabs(many.step_s - (t3 + 1000 * (t4 - t3))) < 1e-9 * many.step_s);
        assert_near(parts_of(&many), many.step_s);
    }
}

/* A fast network hides behind the backward; a slow one is waited for, as long as it sends. */
static void test_overlap(void **state) {
    (void)state;
    cluster c = plain(8, 1);
    c.node = (cluster_link){1e13, 1e-9, 1};
    clock_time fast = step_of(&c, (layout){8, 0, 1, 1, 0});
    assert_true(fast.exposed_s < 0.01 * fast.step_s);
    c.node.bytes_per_s = 1e7;
    clock_time slow = step_of(&c, (layout){8, 0, 1, 1, 0});
    assert_true(slow.exposed_s > 0.95 * slow.beside_s && slow.exposed_s <= slow.beside_s + 1e-3);
    assert_near(parts_of(&slow), slow.step_s);
    c.contention = 0.5; /* kernels beside a collective take twice as long */
    clock_time crowded = step_of(&c, (layout){8, 0, 1, 1, 0});
    assert_true(crowded.kernels_s > 1.2 * slow.kernels_s && crowded.kernels_s < 2 * slow.kernels_s);
    clock_time zero3 = step_of(&c, (layout){8, 3, 1, 1, 0});
    /* two gathers in bf16 and a reduce-scatter in fp32 instead of an all-reduce in fp32 */
    assert_true(fabs(zero3.beside_s / crowded.beside_s - 1) < 0.25);
}

/* Bytes that a rank sends for the attention of the 8 layers of spec_of, forward and backward, with N ranks: S are the keys
 * and values of a layer, X the queries and outputs of all tokens. As docs/parallelism.md has them. */
static double context_bytes(context_kind kind, double N) {
    double S = 4 * 128 * 2 * (64 + 64) * 2, X = 4 * 128 * 4 * (64 + 64) * 2, f = (N - 1) / N;
    switch (kind) {
        case CONTEXT_ALLGATHER: return 8 * (2 * f * S + f * S);
        case CONTEXT_RING: return 8 * (f * S + f * S + 2 * S);
        default: return 8 * 2 * (f / N * S + f / N * X);
    }
}

/* On a slow link without latency a step is as much longer as what ranks send for attention takes. Of a quick one the ring hides
 * all but the way home of the sums, where a hop's work lasts long enough. */
static void test_context(void **state) {
    (void)state;
    cluster c = plain(8, 1);
    for (context_kind kind = CONTEXT_ALLGATHER; kind <= CONTEXT_ULYSSES; kind++)
        for (int cp = 2; cp <= 4; cp *= 2) {
            layout l = {1, 0, 1, kind == CONTEXT_ULYSSES ? 2 : cp, kind};
            c.node = (cluster_link){1e3, 0, 1};
            clock_time slow = step_of(&c, l);
            double all = kind == CONTEXT_RING ? slow.beside_s : slow.among_s;
            double other =
                kind == CONTEXT_RING ? step_of(&c, (layout){l.cp, 0, 1, 1, 0}).beside_s : 0;
            assert_near(all - other, context_bytes(kind, l.cp) / 1e3);
            assert_near(parts_of(&slow), slow.step_s);
            if (kind != CONTEXT_RING) continue;
            c.call_s = 1; /* each op lasts a second, and so a hop of attention a cp-th of it */
            c.node.bytes_per_s = 1e9;
            double waits =
                step_of(&c, l).exposed_s - step_of(&c, (layout){1, 0, 1, l.cp, 0}).exposed_s;
            assert_near(waits, 8 * (4 * 128 * 2 * (64 + 64) * 4) / 1e9 / l.cp);
            c.call_s = 0;
        }
}

/* Rows of experts that two ranks share, in four rounds: a slow link is waited for as a whole, of a quick one all but the first
 * rows and the last results hide. */
static void test_experts(void **state) {
    (void)state;
    cluster c = plain(2, 1);
    mesh_shape shape = {.dp = 2, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = 1, .ep = 2};
    op_attr attr = {.expert_ranks = {.experts = 8, .ranks = 2, .rows = 16, .what = "rows"}};
    for (int back = 0; back < 2; back++) {
        prog_op op = {.kind = OP_EXPERT_RANKS,
                      .entry = back ? ENTRY_BWD_INPUT : ENTRY_FWD,
                      .attr = &attr,
                      .in = {{NULL, DT_BF16, 128, 64, 64}}};
        double sent = 2 + back, bytes = 64 * 64 * 2;
        c.node = (cluster_link){1e3, 0, 1};
        op_time slow = op_time_of(&c, &shape, &op, 0);
        assert_near(slow.among, back ? 0 : 9 * 4 / 1e3);
        assert_near(slow.beside, sent * bytes / 1e3);
        assert_true(slow.exposed > 0.99 * slow.beside);
        c.call_s = 400; /* 100 s a round, in which its 2 or 3 KB travel */
        op_time quick = op_time_of(&c, &shape, &op, 0);
        assert_near(quick.kernels, 400);
        assert_near(quick.exposed, sent * bytes / 4 / 1e3);
        shape.pp = 2;
        assert_near(op_time_of(&c, &shape, &op, 0).among, sent * bytes / 1e3 + slow.among);
        shape.pp = 1, c.call_s = 0;
    }
}

/* Two picks among eight ranks on two nodes: a row is wanted by 7 (1 - (7/8)^2) others and leaves its node for 1 - (1/2)^2 others. */
static void test_rows(void **state) {
    (void)state;
    cluster c = plain(4, 2);
    c.node.latency_s = c.network.latency_s = 0;
    network_group two = {8, 4}, one = {4, 4};
    double bytes = 2e6, each = bytes / 2;
    assert_near(network_rows(&c, one, bytes, 2), each * 3 * (1 - 9.0 / 16) / 1e10);
    assert_near(network_rows(&c, two, bytes, 2), each * (1 - 1.0 / 4) / 1e9);
    c.network.bytes_per_s = 1e12;
    assert_near(network_rows(&c, two, bytes, 2), each * 7 * (1 - 49.0 / 64) / 1e10);
    assert_near(network_rows(&c, (network_group){1, 1}, bytes, 2), 0);
}

/* A class's rate is of single products, an op's of the call: 16 experts reach what a 32nd of the call does, and what is between and
 * beside the products is read and written on its own. */
static void test_products_of_experts(void **state) {
    (void)state;
    cluster c = plain(1, 1);
    op_attr attr = {.expert_ranks = {.experts = 16, .ranks = 1, .gated = true}};
    prog_op op = {.kind = OP_EXPERT_RANKS,
                  .entry = ENTRY_FWD,
                  .attr = &attr,
                  .in = {{NULL, DT_BF16, 100, 64, 64}, {0}, {NULL, DT_BF16, 16 * 64, 32, 32}},
                  .flops = 2e12 * 320e-6};
    cluster_rate rate = {.of = "matmul", .share = {2, {10, 320}, {0.25, 1}}};
    cluster_add_rate(&c, &rate);
    cluster_index(&c);
    double beside = 100 * (4 * 64 + 3 * 32) * 2 / 1e11;
    assert_near(roofline_products(&op), 32);
    assert_near(roofline_seconds(&c, &op, 0), 320e-6 / 0.25 + beside);
    strcpy(rate.of, "expert_ranks");
    cluster_add_rate(&c, &rate);
    cluster_index(&c);
    assert_near(roofline_seconds(&c, &op, 0), 320e-6);
}

/* The sum of terms stands in place of the roofline, and comes back from a file. */
static void test_terms(void **state) {
    (void)state;
    cluster c = plain(1, 1), back;
    err e = {0};
    strbuf text = {0};
    prog_op op = {.kind = OP_LINEAR,
                  .entry = ENTRY_FWD,
                  .in = {{NULL, DT_BF16, 100, 64, 64}, {NULL, DT_BF16, 32, 64, 64}},
                  .flops = 2.0 * 100 * 64 * 32};
    cluster_rate rate = {
        .of = "linear", .share = {1, {1}, {0.5}}, .term = {1e-6, 1e-12, 2e-12, 3e-12, 4e-12}};
    double sum = 1e-6 + op.flops * 1e-12 + 6400 * 2e-12 + 2048 * 3e-12 + 3200 * 4e-12;
    cluster_add_rate(&c, &rate);
    cluster_index(&c);
    assert_near(roofline_seconds(&c, &op, 0), sum / 0.5);
    cluster_put_yaml(&text, &c);
    if (read_cluster(strbuf_cstr(&text), &back, &e) != ST_OK) fail_msg("%s", e.message);
    assert_near(roofline_seconds(&back, &op, 0), sum / 0.5);
    strbuf_free(&text);
    /* bytes that caches have lost; those of the replay before after the update of the step */
    prog_touch touch[] = {
        {1000, 1e4, false}, {500, 2.5e6, false}, {200, 1e4, true}, {100, 2e6, false}};
    back.near_bytes = 1e5, back.cache_bytes = 2e6;
    back.rate[0].term[TERM_FAR] = 1e-9, back.rate[0].term[TERM_FARTHER] = 7e-9;
    op.touch = touch, op.touches = ARRAY_LEN(touch);
    assert_near(roofline_seconds(&back, &op, 0),
                (sum + 600 * 1e-9 + (500 * (log2(1.25) + 1) / 2 + 50) * 7e-9) / 0.5);
    assert_near(roofline_seconds(&back, &op, 1e8),
                (sum + 800 * 1e-9 + (500 * (log2(1.25) + 1) / 2 + 250) * 7e-9) / 0.5);
    /* of another op, which has none, the roofline counts */
    op.kind = OP_RMSNORM;
    op.bytes = 1e5;
    assert_near(roofline_seconds(&c, &op, 0), 1e-6);
}

/* ---- stages that are walked side by side ---- */

/* Where only products take time and the vocabulary is tiny, all layers are alike. */
static clock_time clock_stages(schedule_kind kind, int stages, int chunks, int micro_batches,
                               cluster_link link) {
    err e = {0};
    mesh ranks;
    plan *p;
    arena *a = arena_new("test");
    dev *d = meta_device();
    cluster c = plain(8, 1);
    c.memory_bytes_per_s = 1e30;
    c.node = link;
    plan_spec spec = spec_of(a);
    spec.model.vocab_size = 2;
    spec.micro_batches = micro_batches;
    spec.chunks = stages * chunks;
    spec.pp_schedule = (int)kind;
    if (kind == SCHEDULE_AFAB) spec.frames = PLAN_ALL_FRAMES;
    spec.sharing = (param_sharding){.shards = 1, .bucket_elems = 1 << 18};
    spec.ranks = &ranks;
    mesh_place(&ranks, &(mesh_shape){.dp = 1, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = stages},
               1);
    if (plan_new(&p, d, &spec, &e) != ST_OK) fail_msg("%s", e.message);
    clock_time t = clock_step(p, &c);
    plan_free(p);
    dev_close(d);
    arena_free(a);
    return t;
}

/* (P - 1) / M of a stage's work; with v chunks a stage a v-th of it (Narayanan et al. 2021, section 2.2). */
static void test_stages(void **state) {
    (void)state;
    static const struct {
        schedule_kind kind;
        int stages, chunks, micro_batches;
        double bubble;
    } all[] = {{SCHEDULE_1F1B, 2, 1, 8, 1.0 / 8},
               {SCHEDULE_1F1B, 4, 1, 8, 3.0 / 8},
               {SCHEDULE_1F1B, 4, 1, 64, 3.0 / 64},
               {SCHEDULE_1F1B, 8, 1, 300, 7.0 / 300},
               {SCHEDULE_1F1B, 8, 1, 1, 7},
               {SCHEDULE_AFAB, 4, 1, 8, 3.0 / 8},
               {SCHEDULE_AFAB, 4, 1, 100, 3.0 / 100},
               {SCHEDULE_INTERLEAVED, 4, 2, 8, 3.0 / 16},
               {SCHEDULE_INTERLEAVED, 2, 4, 64, 1.0 / 256},
               {SCHEDULE_INTERLEAVED, 2, 2, 64, 1.0 / 128}};
    for (int i = 0; i < ARRAY_LEN(all); i++) {
        clock_time t = clock_stages(all[i].kind, all[i].stages, all[i].chunks, all[i].micro_batches,
                                    (cluster_link){1e30, 0, 1});
        if (fabs(clock_bubble(&t) / all[i].bubble - 1) > 0.02)
            fail_msg("%s, %d stages, %d chunks, %d micro-batches: %g, not %g",
                     schedule_name(all[i].kind), all[i].stages, all[i].chunks, all[i].micro_batches,
                     clock_bubble(&t), all[i].bubble);
        assert_near(parts_of(&t) + t.bubble_s, t.step_s);
        assert_int_equal(t.stages, all[i].stages);
    }
}

/* A stage that is planned like another one needs, sends and takes what it does when it is planned for itself. */
static void test_stages_alike(void **state) {
    (void)state;
    int alike = 0;
    for (int k = 0; k < 16; k++) {
        int chunks = 1 + k / 8, stage = k % 8;
        arena *a = arena_new("test");
        dev *d = meta_device();
        mesh of_one, of_other;
        plan *one, *other, *like;
        err e = {0};
        plan_spec s = spec_of_stage(a, &of_one, 8, chunks, 4);
        if (plan_new(&one, d, &s, &e) != ST_OK) fail_msg("%s", e.message);
        s = spec_of_stage(a, &of_other, 8, chunks, stage);
        if (plan_new(&other, d, &s, &e) != ST_OK) fail_msg("%s", e.message);
        if (plan_stages_alike(one, 4, stage)) {
            if (plan_new_like(&like, one, &of_other, &e) != ST_OK) fail_msg("%s", e.message);
            alike += stage != 4;
            assert_int_equal(like->peak_bytes, other->peak_bytes);
            for (int i = 0; i < REGION_COUNT; i++)
                assert_int_equal(like->region[i].bytes, other->region[i].bytes);
            assert_near(plan_model_flops(like), plan_model_flops(other));
            comm_counts x = plan_traffic(like), y = plan_traffic(other);
            assert_memory_equal(&x, &y, sizeof x);
            plan_free(like);
        }
        plan_free(other);
        plan_free(one);
        dev_close(d);
        arena_free(a);
    }
    if (alike < 4) fail_msg("only %d stages are alike", alike);
}

/* One micro-batch through two stages: each waits for the other's work, and for a message there and one back. */
static void test_messages(void **state) {
    (void)state;
    static const double BYTES = 4 * 128 * 256 * 2;
    clock_time none = clock_stages(SCHEDULE_1F1B, 2, 1, 1, (cluster_link){1e30, 0, 1});
    clock_time slow = clock_stages(SCHEDULE_1F1B, 2, 1, 1, (cluster_link){1e8, 3e-3, 1});
    assert_near(slow.bubble_s - none.bubble_s, 2 * (3e-3 + BYTES / 1e8));
    assert_near(slow.model_flops, none.model_flops);
    assert_near(slow.kernels_s, none.kernels_s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peak),
                                       cmocka_unit_test(test_micro_batches),
                                       cmocka_unit_test(test_overlap),
                                       cmocka_unit_test(test_context),
                                       cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_products_of_experts),
                                       cmocka_unit_test(test_terms),
                                       cmocka_unit_test(test_stages),
                                       cmocka_unit_test(test_stages_alike),
                                       cmocka_unit_test(test_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
