/* The planner's clock: clusters by name and in files, collectives by their textbook formulas, the roofline, and steps whose
 * times can be told beforehand. */
#include "test.h"

#include "base/yaml.h"
#include "plan/clock/search.h"

/* Round numbers: 1 TFLOP/s, 100 GB/s of memory, links of 10 and 1 GB/s; everything reaches its limit. */
static cluster plain(int per_node, int nodes) {
    cluster c = {.name = "plain",
                 .device_name = "a device",
                 .source = "a test",
                 .kind = DEV_CPU,
                 .peak_flops = {1e12, 2e12, 2e12},
                 .memory_bytes = 1 << 30,
                 .memory_bytes_per_s = 1e11,
                 .per_node = per_node,
                 .nodes = nodes,
                 .node = {1e10, 1e-6, 1},
                 .network = {1e9, 1e-4, 1}};
    cluster_index(&c);
    return c;
}

static void assert_near(double a, double b) {
    if (fabs(a - b) > 1e-9 * fabs(b) + 1e-15) fail_msg("%.17g is not %.17g", a, b);
}

/* ---- clusters ---- */

static void test_names(void **state) {
    (void)state;
    cluster c;
    err e = {0};
    assert_int_equal(cluster_find(&c, "h100-64", &e), ST_OK);
    assert_int_equal(c.nodes, 8);
    assert_int_equal(cluster_devices(&c), 64);
    assert_near(c.peak_flops[DT_BF16], 989.5e12);
    assert_int_equal(cluster_find(&c, "a100-40g-16", &e), ST_OK);
    assert_int_equal(c.nodes, 2);
    assert_int_equal(cluster_find(&c, "h100-4", &e), ST_OK);
    assert_int_equal(c.per_node, 4);
    assert_int_equal(c.nodes, 1);
    assert_int_equal(cluster_find(&c, "h100-12", &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "h100-16"));
    assert_int_equal(cluster_find(&c, "h100-0", &e), ST_USAGE);
    assert_int_equal(cluster_find(&c, "h100-99999999999999999999", &e), ST_USAGE);
    assert_int_equal(cluster_find(&c, "k80-8", &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "b200"));
}

static status read_text(const char *text, cluster *out, err *e) {
    json_t *root, *origins;
    TRY(yaml_parse(&root, &origins, "c.yaml", text, strlen(text), e));
    status st = cluster_read(out, root, origins, "c.yaml", e);
    json_decref(root);
    json_decref(origins);
    return st;
}

/* Every preset reads back to the same texts and numbers. */
static void test_files(void **state) {
    (void)state;
    for (const char *const *name = cluster_preset_names(); *name; name++) {
        cluster c, back;
        err e = {0};
        strbuf first = {0}, second = {0};
        assert_true(cluster_preset(&c, *name));
        cluster_put_yaml(&first, &c);
        if (read_text(strbuf_cstr(&first), &back, &e) != ST_OK) fail_msg("%s", e.message);
        cluster_put_yaml(&second, &back);
        assert_string_equal(strbuf_cstr(&first), strbuf_cstr(&second));
        assert_memory_equal(c.best, back.best, sizeof c.best);
        strbuf_free(&first);
        strbuf_free(&second);
    }
}

/* A file with one line in another's place; the error names `key`. */
static void refuse(const char *line, const char *instead, const char *key) {
    cluster c, back;
    err e = {0};
    strbuf text = {0}, changed = {0};
    assert_true(cluster_preset(&c, "h100"));
    cluster_put_yaml(&text, &c);
    const char *at = strstr(strbuf_cstr(&text), line);
    if (!at) fail_msg("no %s in %s", line, strbuf_cstr(&text));
    strbuf_printf(&changed, "%.*s%s%s", (int)(at - strbuf_cstr(&text)), strbuf_cstr(&text), instead,
                  at + strlen(line));
    if (read_text(strbuf_cstr(&changed), &back, &e) != ST_FORMAT)
        fail_msg("%s: %s", instead, e.message);
    if (!strstr(e.message, key)) fail_msg("'%s' does not name %s", e.message, key);
    strbuf_free(&text);
    strbuf_free(&changed);
}

static void test_wrong_files(void **state) {
    (void)state;
    refuse("\"memory_gib\": 80.0", "\"memory_gib\": -1", "device.memory_gib");
    refuse("\"memory_gib\": 80.0", "\"memory_gib\": \"much\"", "device.memory_gib");
    refuse("\"memory_gib\": 80.0", "\"memory_gib\": 1", "device.reserved_gib");
    refuse("\"memory_gib\": 80.0,", "", "device.memory_gib");
    refuse("\"memory_gib\"", "\"memory_gb\"", "device.memory_gb");
    refuse("\"kind\": \"cuda\"", "\"kind\": \"tpu\"", "device.kind");
    refuse("\"per_node\": 8", "\"per_node\": 0", "per_node");
    refuse("\"nodes\": 1", "\"nodes\": 1000000", "nodes");
    refuse("\"of\": \"matmul\"", "\"of\": \"matmull\"", "rates.0");
    refuse("\"pass\": \"forward\"", "\"pass\": \"sideways\"", "rates.2");
    refuse("\"of\": \"matmul\"", "\"off\": \"matmul\"", "rates.0.off");
    refuse("\"of\": \"matmul\"", "\"of\": 5", "rates.0.of");
    refuse("\"of\": \"matmul\"", "\"of\": \"matmul\", \"terms\": [1, 2, 3, 4, 5, 6]", "rates.0");
    refuse("\"of\": \"matmul\"", "\"of\": \"matmul\", \"terms\": [1, 2, 3, 4, 5, 6, -7]",
           "rates.0");
    refuse("\"of\": \"matmul\"", "\"of\": \"matmul\", \"terms\": [0, 0, 0, 0, 0, 0, 0]", "rates.0");
    refuse("\"of\": \"matmul\"", "\"of\": \"matmul\", \"terms\": \"all\"", "rates.0");
    refuse("\"network\": {", "\"network\": {\"by_nodes\": [[4, 0.5], [2, 0.5]], ",
           "network.by_nodes");
    refuse("\"node_link\": {", "\"node_link\": {\"by_mib\": [[4, 0.5], [2, 0.5]], ",
           "node_link.by_mib");
}

/* ---- collectives ---- */

static void test_collectives(void **state) {
    (void)state;
    cluster c = plain(8, 4);
    network_group one = {8, 8}, four = {32, 8}, rails = {4, 1};
    /* a ring of n: n - 1 messages, the slowest link's rate */
    assert_near(network_seconds(&c, one, COMM_ALL_GATHER, 7e9), 7e-6 + 0.7);
    assert_near(network_seconds(&c, four, COMM_ALL_GATHER, 8e9), 4 * 1e-4 + 28 * 1e-6 + 1.0);
    assert_near(network_seconds(&c, rails, COMM_REDUCE_SCATTER, 3e9), 4 * 1e-4 + 3.0);
    /* an all-reduce in trees: log2 of nodes, then of ranks in a node, up and down */
    assert_near(network_seconds(&c, four, COMM_ALL_REDUCE, 0), 2 * (2 * 1e-4 + 3 * 1e-6));
    /* few ranks: the ring is as short */
    assert_near(network_seconds(&c, (network_group){2, 2}, COMM_ALL_REDUCE, 1e10), 2e-6 + 1);
    assert_near(network_seconds(&c, (network_group){1, 1}, COMM_ALL_REDUCE, 1e10), 0);
    /* a shift is one message; over a border it has one adapter */
    assert_near(network_seconds(&c, one, COMM_SHIFT, 1e9), 1e-6 + 0.1);
    assert_near(network_seconds(&c, four, COMM_SHIFT, 1e9), 1e-4 + 1.0);
    /* of 31 parts 24 leave the node */
    assert_near(network_seconds(&c, one, COMM_ALL_TO_ALL, 7e9), 4e-6 + 0.7);
    assert_near(network_seconds(&c, four, COMM_ALL_TO_ALL, 31e9), 12.5 * 1e-4 + 24);
    c.network_by_nodes = (cluster_curve){2, {2, 8}, {1, 0.5}};
    assert_near(network_seconds(&c, rails, COMM_ALL_GATHER, 3e9), 4e-4 + 4.0); /* 0.75 of 1 GB/s */
    c.node_by_mib = (cluster_curve){2, {1, 64}, {1, 0.5}};
    assert_near(network_seconds(&c, one, COMM_ALL_GATHER, 8 << 20), 7e-6 + (8 << 20) / 7.5e9);
}

/* GB/s and microseconds of all-to-alls on AWS p5, as the Smol Training Playbook has them. */
static void test_all_to_all_measured(void **state) {
    (void)state;
    static const struct {
        int nodes;
        double low, high, us;
    } rows[] = {{1, 344, 344, 7.6}, {2, 81, 81, 60}, {16, 45, 58, 621}};
    cluster c;
    assert_true(cluster_preset(&c, "h100"));
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        network_group g = {8 * rows[i].nodes, 8};
        double rate = 4 / network_seconds(&c, g, COMM_ALL_TO_ALL, 4e9);
        double us = 1e6 * network_seconds(&c, g, COMM_ALL_TO_ALL, 0);
        if (rate < 0.85 * rows[i].low || rate > 1.15 * rows[i].high) fail_msg("%g GB/s", rate);
        if (fabs(us / rows[i].us - 1) > 0.2) fail_msg("%g us, not %g", us, rows[i].us);
    }
}

static void test_groups(void **state) {
    (void)state;
    cluster c = plain(8, 4);
    mesh_shape s = {.dp = 8, .dp_replicate = 2, .tp = 4, .cp = 1, .pp = 1};
    network_group g = network_group_of(&c, &s, MESH_TP);
    assert_int_equal(g.ranks, 4);
    assert_int_equal(g.per_node, 4);
    g = network_group_of(&c, &s, MESH_DP);
    assert_int_equal(g.ranks, 8);
    assert_int_equal(g.per_node, 2);
    g = network_group_of(&c, &s, MESH_REPLICATE); /* 16 ranks apart: on other nodes */
    assert_int_equal(g.ranks, 2);
    assert_int_equal(g.per_node, 1);
}

/* ---- steps ---- */

typedef struct layout {
    int dp, zero, micro_batches, cp; /* cp 0: one */
    context_kind context;
} layout;

static const layout alone = {1, 0, 1, 1, CONTEXT_ALLGATHER};

static plan_spec spec_of_width(arena *a, int width) {
    err e = {0};
    json_t *o =
        json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i}", "model_type", "llama", "hidden_size", width,
                  "num_hidden_layers", 8, "num_attention_heads", 4, "num_key_value_heads", 2,
                  "intermediate_size", width * 11 / 4, "vocab_size", 2 * width);
    plan_spec spec = {.compute = DT_BF16,
                      .T = 128,
                      .train_B = 4,
                      .micro_batches = 1,
                      .optim = optim_find("adamw")};
    if (model_config_read(a, o, 0, &spec.model, &e) != ST_OK) fail_msg("%s", e.message);
    json_decref(o);
    return spec;
}

static plan_spec spec_of(arena *a) {
    return spec_of_width(a, 256);
}

static dev *meta_device(void) {
    dev *d;
    err e = {0};
    if (dev_open_meta(&d, DEV_CPU, 1, &e) != ST_OK) fail_msg("%s", e.message);
    return d;
}

static clock_time step_of(const cluster *c, layout l) {
    plan *p;
    mesh ranks;
    err e = {0};
    arena *a = arena_new("test");
    dev *d = meta_device();
    plan_spec spec = spec_of(a);
    spec.micro_batches = l.micro_batches;
    int cp = l.cp ? l.cp : 1;
    spec.sharing = (param_sharding){.shards = l.dp * cp, .zero = l.zero, .bucket_elems = 1 << 18};
    spec.ranks = &ranks;
    spec.context = l.context;
    mesh_place(&ranks, &(mesh_shape){.dp = l.dp, .dp_replicate = 1, .tp = 1, .cp = cp, .pp = 1}, 0);
    if (plan_new(&p, d, &spec, &e) != ST_OK) fail_msg("%s", e.message);
    clock_time t = clock_step(p, c);
    plan_free(p);
    dev_close(d);
    arena_free(a);
    return t;
}

static double parts_of(const clock_time *t) {
    return t->kernels_s + t->among_s + t->exposed_s + t->optimizer_s + t->host_s;
}

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
    if (read_text(strbuf_cstr(&text), &back, &e) != ST_OK) fail_msg("%s", e.message);
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

/* ---- sketches and the search ---- */

static sketch sketch_of(arena *a, const cluster *c, sketch_key key) {
    sketch s;
    err e = {0};
    dev *d = meta_device();
    plan_spec spec = spec_of(a);
    if (sketch_new(&s, a, d, &spec, key, c, &e) != ST_OK) fail_msg("%s", e.message);
    dev_close(d);
    return s;
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

/* A stage of a pipeline of `stages`; some of the first layers have a window. */
static plan_spec spec_of_stage(arena *a, mesh *ranks, int stages, int chunks, int stage) {
    static const int64_t windows[32] = {[3] = 64, [5] = 64};
    plan_spec s = spec_of(a);
    s.model.num_hidden_layers = ARRAY_LEN(windows);
    s.model.sliding_window_of = windows;
    s.micro_batches = 4 * stages;
    s.chunks = stages * chunks;
    s.pp_schedule = chunks > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    s.reckoned = true;
    s.sharing = (param_sharding){.shards = 2, .zero = 2, .bucket_elems = 1 << 18};
    mesh_place(ranks,
               &(mesh_shape){.dp = 2, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = stages, .ep = 1},
               2 * stage);
    s.ranks = ranks;
    return s;
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
        sketch_layout l = {.key = key,
                           .dp = 8 / cp,
                           .pp = 1,
                           .chunks_of_stage = 1,
                           .zero = zero,
                           .micro_batches = m,
                           .schedule = SCHEDULE_1F1B};
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

/* A mixture of experts in some layers. */
static plan_spec spec_of_experts(arena *a) {
    static const int64_t has[] = {0, 0, 1, 1, 0, 1, 1, 1};
    plan_spec s = spec_of(a);
    s.model.num_hidden_layers = ARRAY_LEN(has);
    s.model.num_experts = 8;
    s.model.num_experts_per_tok = 2;
    s.model.moe_intermediate_size = 256;
    s.model.expert_layers = 1;
    s.model.expert_layers_of = has;
    s.expert_load = 0.5;
    s.chunks = 1;
    return s;
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
        sketch_layout l = {.key = key,
                           .dp = 8,
                           .pp = 1,
                           .chunks_of_stage = 1,
                           .zero = zero,
                           .micro_batches = 2,
                           .schedule = SCHEDULE_1F1B};
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
        sketch_layout l = {.key = key,
                           .dp = 8,
                           .pp = 1,
                           .chunks_of_stage = 1,
                           .zero = zero,
                           .micro_batches = 1,
                           .schedule = SCHEDULE_1F1B};
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
        search_spec what = {.base = spec_of_adapters(a, (base_kind)base),
                            .global_batch = 8,
                            .most = 1,
                            .kept = search_all};
        what.base.train_B = 1;
        what.kept.zero = 0;
        what.kept.dp = 8;
        what.kept.recompute = RECOMPUTE_NONE;
        plan *p = plan_on_8(d, what.base, &ranks, 0);
        double bytes = clock_step(p, &c).peak_bytes;
        c.memory_bytes = 1.01 * bytes;
        if (search_layouts(&r, a, d, &what, &c, &e) != ST_OK)
            fail_msg("base %d: %s", base, e.message);
        assert_true(r.found[0].exact);
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
    search_spec what = {
        .base = spec_of(a), .global_batch = 256, .most = 5, .pipelines = true, .kept = search_all};
    what.base.model.num_hidden_layers = layers;
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
    for (int i = 0; i < r.n; i++) assert_true(r.found[i].exact);
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
    search_spec what = {
        .base = spec_of(a), .global_batch = 64, .most = 5, .pipelines = true, .kept = search_all};
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
    what.global_batch = 63; /* which 16 devices share in no way */
    what.pipelines = false;
    assert_int_equal(search_layouts(&r, a, d, &what, &c, &e), ST_USAGE);
    what.global_batch = 64;
    c.memory_bytes = 1 << 20;
    assert_int_equal(search_layouts(&r, a, d, &what, &c, &e), ST_MEMORY);
    dev_close(d);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_wrong_files),
                                       cmocka_unit_test(test_collectives),
                                       cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_peak),
                                       cmocka_unit_test(test_micro_batches),
                                       cmocka_unit_test(test_overlap),
                                       cmocka_unit_test(test_stages),
                                       cmocka_unit_test(test_messages),
                                       cmocka_unit_test(test_stages_alike),
                                       cmocka_unit_test(test_sketch_of_stages),
                                       cmocka_unit_test(test_work_of_search),
                                       cmocka_unit_test(test_sketch_of_experts),
                                       cmocka_unit_test(test_sketch_of_adapters),
                                       cmocka_unit_test(test_sketch),
                                       cmocka_unit_test(test_bubble),
                                       cmocka_unit_test(test_search),
                                       cmocka_unit_test(test_search_of_adapters),
                                       cmocka_unit_test(test_context),
                                       cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_products_of_experts),
                                       cmocka_unit_test(test_terms),
                                       cmocka_unit_test(test_all_to_all_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
