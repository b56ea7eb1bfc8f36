/* The mesh: coordinates, who is together on each axis, and sizes that do not fit. */
#include "comm_test.h"

static void expect_line(const mesh *m, mesh_axis a, int size, int rank) {
    assert_int_equal(m->size[a], size);
    assert_int_equal(m->rank[a], rank);
}

static void test_coordinates(void **state) {
    (void)state;
    mesh_shape s = {.dp_replicate = 2, .tp = 2, .cp = 3, .pp = 2};
    err e;
    assert_int_equal(mesh_resolve(&s, 48, &e), ST_OK);
    assert_int_equal(s.dp, 4);
    mesh m;
    /* pp 1, d 3 (replicate 1, shard 1), cp 2, t 1: ((1 * 4 + 3) * 3 + 2) * 2 + 1 */
    mesh_place(&m, &s, 47);
    expect_line(&m, MESH_WORLD, 48, 47);
    expect_line(&m, MESH_TP, 2, 1);
    expect_line(&m, MESH_CP, 3, 2);
    expect_line(&m, MESH_DP, 4, 3);
    expect_line(&m, MESH_DATA, 12, 11);
    expect_line(&m, MESH_SHARD, 6, 5);
    expect_line(&m, MESH_REPLICATE, 2, 1);
    expect_line(&m, MESH_PP, 2, 1);
    mesh_place(&m, &s, ((0 * 4 + 2) * 3 + 1) * 2);
    expect_line(&m, MESH_DP, 4, 2);
    expect_line(&m, MESH_DATA, 12, 7);
    expect_line(&m, MESH_SHARD, 6, 1);
    expect_line(&m, MESH_REPLICATE, 2, 1);
    expect_line(&m, MESH_CP, 3, 1);
    assert_null(m.axis[MESH_DP]);
    s.ep = 3;
    mesh_place(&m, &s, 47); /* place 5 of a replica's 6, place 11 of all 12 */
    expect_line(&m, MESH_EP, 3, 2);
    expect_line(&m, MESH_EP_SHARD, 2, 1);
    expect_line(&m, MESH_EP_DATA, 4, 3);
}

/* The sum of a one-hot over an axis says who is on it. */
static void rank_sees_peers(comm_world *w, void *ctx) {
    static const int64_t WANT[MESH_AXES][8] = {
        [MESH_WORLD] = {255, 255, 255, 255, 255, 255, 255, 255},
        [MESH_TP] = {3, 3, 12, 12, 48, 48, 192, 192},
        [MESH_DP] = {0x55, 0xaa, 0x55, 0xaa, 0x55, 0xaa, 0x55, 0xaa},
        [MESH_DATA] = {0x55, 0xaa, 0x55, 0xaa, 0x55, 0xaa, 0x55, 0xaa},
        [MESH_SHARD] = {5, 10, 5, 10, 80, 160, 80, 160},
        [MESH_REPLICATE] = {0x11, 0x22, 0x44, 0x88, 0x11, 0x22, 0x44, 0x88},
        [MESH_CP] = {1, 2, 4, 8, 16, 32, 64, 128},
        [MESH_PP] = {1, 2, 4, 8, 16, 32, 64, 128},
        [MESH_EP] = {5, 10, 5, 10, 80, 160, 80, 160},
        [MESH_EP_SHARD] = {1, 2, 4, 8, 16, 32, 64, 128},
        [MESH_EP_DATA] = {0x11, 0x22, 0x44, 0x88, 0x11, 0x22, 0x44, 0x88},
    };
    mesh m;
    mesh_open(&m, ctx, w);
    for (int a = 0; a < MESH_AXES; a++) {
        int64_t who = (int64_t)1 << comm_world_rank(w);
        comm_sum_i64(m.axis[a], &who, 1);
        CHECK(who == WANT[a][comm_world_rank(w)], "axis %d of rank %d: %llx", a, comm_world_rank(w),
              (long long)who);
        CHECK(comm_rank(m.axis[a]) == m.rank[a] && comm_size(m.axis[a]) == m.size[a], "places");
    }
}

static void test_comms(void **state) {
    (void)state;
    mesh_shape s = {.dp_replicate = 2, .tp = 2, .cp = 1, .pp = 1, .ep = 2};
    err e;
    assert_int_equal(mesh_resolve(&s, 8, &e), ST_OK);
    run_threads(8, rank_sees_peers, &s);
}

static void expect_refusal(mesh_shape s, int ranks, const char *where, const char *hint) {
    err e = {0};
    assert_int_equal(mesh_resolve(&s, ranks, &e), ST_USAGE);
    assert_string_equal(e.where, where);
    assert_non_null(strstr(e.hint, hint));
}

static void test_refusals(void **state) {
    (void)state;
    mesh_shape one = {.dp_replicate = 1, .tp = 1, .cp = 1, .pp = 1}, s = one;
    s.tp = 3;
    expect_refusal(s, 8, "parallel.tp", "parallel.tp=2 divides 8 ranks");
    s.tp = 16;
    expect_refusal(s, 8, "parallel.tp", "parallel.tp=8");
    s = one;
    s.dp = 3;
    expect_refusal(s, 8, "parallel.dp", "parallel.dp=8");
    s = one;
    s.dp_replicate = 3;
    expect_refusal(s, 8, "parallel.dp_replicate", "parallel.dp_replicate=2");
    s = one;
    s.pp = 0;
    expect_refusal(s, 8, "parallel.pp", "");
    s = one;
    s.dp_replicate = 2, s.ep = 8;
    expect_refusal(s, 8, "parallel.ep", "parallel.ep=4");
    s = one;
    s.tp = 2, s.pp = 3;
    expect_refusal(s, 8, "parallel.tp", "a multiple of 6 ranks");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coordinates),
        cmocka_unit_test(test_comms),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
