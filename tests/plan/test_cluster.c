/* Clusters by name and in files, and collectives by their textbook formulas. */
#include "clock_case.h"

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
    assert_int_equal(cluster_find(&c, "local-0", &e), ST_USAGE);
    assert_non_null(strstr(e.message, "2 to 256 ranks"));
    assert_int_equal(cluster_find(&c, "local-1", &e), ST_USAGE);
    assert_int_equal(cluster_find(&c, "local-257", &e), ST_USAGE);
    assert_int_equal(cluster_find(&c, "k80-8", &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "b200"));
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
        if (read_cluster(strbuf_cstr(&first), &back, &e) != ST_OK) fail_msg("%s", e.message);
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
    if (read_cluster(strbuf_cstr(&changed), &back, &e) != ST_FORMAT)
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
    refuse("\"nodes\": 1", "\"nodes\": 2000000", "nodes is no whole number from 1 to 1048576");
    refuse("\"nodes\": 1", "\"nodes\": 1.0", "nodes is no whole number");
    refuse("\"per_node\": 8", "\"per_node\": 5000", "per_node is no whole number from 1 to 4096");
    refuse("\"per_node\": 8", "\"device.watts\": 9, \"per_node\": 8", "device.watts is no key");
    refuse("\"per_node\": 8", "\"node_link.gb_per_s\": 9, \"per_node\": 8",
           "node_link.gb_per_s is no key");
    refuse("\"per_node\": 8", "\"\": 9, \"per_node\": 8", "'' is no key");
    refuse("\"network\": {", "\"network\": [], \"rest\": {", "network is no group of keys");
    refuse("\"per_node\": 8", "\"a\\u001b[31m\": 9, \"per_node\": 8", "a?[31m is no key");
    refuse("\"name\": \"h100\"", "\"name\": \"a\\nb\"", "name has control characters");
    refuse("\"name\": \"h100\"", "\"name\": \"\\u001b[31mred\"", "name has control characters");
    refuse("\"name\": \"h100\"", "\"name\": \"\\u009b31mred\"", "name has control characters");
    refuse("\"name\": \"NVIDIA H100 SXM 80GB\"", "\"name\": \"a\\u0007\"",
           "device.name has control characters");
    refuse(
        "\"name\": \"h100\"",
        "\"name\": \"a name that goes on and on and on until nobody reads it to its end any more\"",
        "name is longer than 63 bytes");
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_wrong_files),
                                       cmocka_unit_test(test_collectives),
                                       cmocka_unit_test(test_all_to_all_measured),
                                       cmocka_unit_test(test_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
