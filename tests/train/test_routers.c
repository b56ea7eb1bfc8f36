/* What is made of the tallies of routers: the numbers of reports, when experts have collapsed, how the bias
 * moves. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "train/routers.h"

enum { E = 8, K = 2, LAYERS = 2 };

static model_config config_of(arena *a) {
    json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:i}", "model_type", "llama",
                          "vocab_size", 11, "hidden_size", 8, "num_hidden_layers", LAYERS,
                          "num_attention_heads", 2, "num_experts", E, "num_experts_per_tok", K,
                          "moe_intermediate_size", 4, "router_bias", 1, "block_repeat", 1);
    model_config mc;
    err e = {0};
    if (model_config_read(a, o, 0, &mc, &e) != ST_OK) fail_msg("%s", e.message);
    json_decref(o);
    return mc;
}

/* A step in which expert e of every layer gets picks[e] tokens, with probs in the same shares; each token is
 * as sure as a softmax of `nats`. */
static void set_step(routers *r, const int64_t picks[E], double nats) {
    int64_t total = 0;
    for (int e = 0; e < E; e++) total += picks[e];
    routers_begin_step(r);
    for (int i = 0; i < r->n; i++) {
        int64_t *sum = r->sum + (int64_t)i * ROUTERS_SUMS * E;
        for (int e = 0; e < E; e++) {
            sum[e] = picks[e];
            sum[ROUTERS_TAKEN * E + e] = picks[e] < 80 ? picks[e] : 80;
            sum[E + e] = picks[e] * (1 << 18) / K;
        }
        sum[2 * E] = llrint(nats * (double)total / K * (1 << 18));
    }
}

static const int64_t even[E] = {50, 50, 50, 50, 50, 50, 50, 50};
static const int64_t collapsed[E] = {0, 200, 0, 0, 0, 200, 0, 0};
static const int64_t uneven[E] = {90, 10, 50, 50, 50, 50, 50, 50};

static void test_view(void **state) {
    (void)state;
    arena *a = arena_new("routers");
    model_config mc = config_of(a);
    routers r;
    routers_init(&r, a, &mc);
    assert_int_equal(r.n, LAYERS);
    set_step(&r, even, log(E));
    routers_watch(&r);
    router_view v = routers_view(&r, 1);
    assert_true(fabs(v.balance / E - 1.0 / E) < 1e-9); /* sum f P = 1/E */
    assert_true(fabs(v.load - 1) < 1e-12 && fabs(v.entropy - 1) < 1e-4);
    assert_true(fabs(v.collapse) < 1e-12 && v.dead == 0);
    set_step(&r, uneven, 1);
    assert_true(fabs(routers_view(&r, 0).load - 1.8) < 1e-12);
    assert_true(fabs(v.dropped) < 1e-12 && fabs(routers_view(&r, 0).dropped - 0.025) < 1e-12);
    assert_true(fabs(routers_view(&r, 0).entropy - 1 / log(E)) < 1e-4);
    arena_free(a);
}

/* Two of eight experts take all: at first the mean still remembers even steps. */
static void test_collapse(void **state) {
    (void)state;
    arena *a = arena_new("routers");
    model_config mc = config_of(a);
    routers r;
    routers_init(&r, a, &mc);
    for (int i = 0; i < 40; i++) set_step(&r, even, 1), routers_watch(&r);
    set_step(&r, collapsed, 0);
    routers_watch(&r);
    double once = routers_view(&r, 0).collapse;
    assert_true(once > 0 && once < 0.1);
    for (int i = 0; i < 150; i++) set_step(&r, collapsed, 0), routers_watch(&r);
    router_view v = routers_view(&r, 0);
    assert_true(v.collapse > 0.95 && v.dead == E - K);
    assert_true(fabs(v.load - (double)E / K) < 1e-12 && fabs(v.balance - (double)E / K) < 1e-9);
    for (int i = 0; i < 100; i++) set_step(&r, even, 1), routers_watch(&r);
    v = routers_view(&r, 0);
    assert_true(v.collapse < 0.1 && v.dead == 0);
    arena_free(a);
}

/* Up where the load is below the mean, down where it is above, and nothing else changes. */
static void test_bias(void **state) {
    (void)state;
    arena *a = arena_new("routers");
    model_config mc = config_of(a);
    routers r;
    routers_init(&r, a, &mc);
    param_store *s = param_store_new(a, DT_F32);
    model_declare(&mc, s);
    int64_t n = param_store_sizes(s).master_bytes / 4;
    float *master = ARENA_ARRAY(a, float, (int)n), *before = ARENA_ARRAY(a, float, (int)n);
    dev *d;
    err e;
    if (dev_open(&d, DEV_CPU, 1, &e) != ST_OK) fail_msg("%s", e.message);
    param_store_bind(s, d, &(param_arrays){.master = master});
    param_init_all(s, 3);
    memcpy(before, master, sizeof *master * (size_t)n);
    set_step(&r, uneven, 1);
    routers_move_bias(&r, s, 0.25);
    int moved = 0, changed = 0;
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        if (p->part != PART_ROUTER_BIAS) continue;
        for (int k = 0; k < E; k++) {
            float want = uneven[k] > 50 ? -0.25f : uneven[k] < 50 ? 0.25f : 0;
            assert_true(master[p->offset + k] == want);
            moved += want != 0;
        }
    }
    for (int64_t i = 0; i < n; i++) changed += master[i] != before[i];
    assert_int_equal(moved, 2 * LAYERS);
    assert_int_equal(changed, moved);
    dev_close(d);
    arena_free(a);
}

/* What was watched comes back from a checkpoint; without it all begins anew. */
static void test_state(void **state) {
    (void)state;
    arena *a = arena_new("routers");
    model_config mc = config_of(a);
    routers r, again;
    routers_init(&r, a, &mc);
    routers_init(&again, a, &mc);
    for (int i = 0; i < ROUTERS_WINDOW + 5; i++) set_step(&r, collapsed, 0), routers_watch(&r);
    r.told[1] = true;
    json_t *o = routers_to_json(&r);
    err e;
    assert_int_equal(routers_from_json(&again, o, &e), ST_OK);
    assert_true(again.told[1] && !again.told[0]);
    set_step(&r, uneven, 1), routers_watch(&r);
    set_step(&again, uneven, 1), routers_watch(&again);
    for (int i = 0; i < LAYERS; i++) {
        router_view v = routers_view(&r, i), w = routers_view(&again, i);
        assert_true(v.dead == w.dead && v.collapse == w.collapse && v.load == w.load);
        for (int k = 0; k < E; k++)
            assert_true(routers_load(&r, i, k) == routers_load(&again, i, k));
    }
    json_array_clear(json_object_get(json_array_get(json_object_get(o, "layers"), 1), "unused"));
    assert_int_equal(routers_from_json(&again, o, &e), ST_FORMAT);
    json_array_remove(json_object_get(o, "layers"), 1);
    assert_int_equal(routers_from_json(&again, o, &e), ST_FORMAT);
    assert_int_equal(routers_from_json(&again, NULL, &e), ST_OK);
    assert_true(again.steps == 0 && !again.told[1] && routers_view(&again, 0).dead == 0);
    json_decref(o);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_collapse),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
