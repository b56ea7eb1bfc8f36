/* Parts of parameters on tensor-parallel ranks: what each rank holds, what counts once, initial
 * values and digests of all ranks together. */
#include "test.h"

#include "param/param.h"

enum { C = 6, D = 4, H = 8, K = 2, F = 12, V = 11, MATRICES = 6 };

static void add(param_store *s, const char *name, int64_t rows, int64_t cols, int rank,
                param_split split) {
    param p = {.name = name, .rows = rows, .cols = cols, .rank = rank, .split = split};
    p.init = (param_init){.kind = INIT_NORMAL, .std = 0.02};
    param_add(s, &p);
}

/* q|k|v in one tensor, its bias, gate|up, an output, a vocabulary, a norm. */
static param_store *declare(arena *a, const param_ranks *ranks) {
    param_store *s = param_store_new(a, DT_F32);
    if (ranks) param_store_split(s, ranks);
    param_split qkv = param_split_rows(H * D, H), both = param_split_rows(F, 0);
    for (int i = 0; i < 2; i++) param_split_append(&qkv, K * D, K);
    param_split_append(&both, F, 0);
    add(s, "qkv.weight", (H + 2 * K) * D, C, 2, qkv);
    add(s, "qkv.bias", 1, (H + 2 * K) * D, 1, qkv);
    add(s, "gate_up.weight", 2 * F, C, 2, both);
    add(s, "down.weight", C, F, 2, param_split_cols());
    add(s, "embed.weight", V, C, 2, param_split_rows(V, 0));
    add(s, "norm.weight", 1, C, 1, (param_split){0});
    return s;
}

typedef struct filled {
    dev *dev;
    float *x;
} filled;

static filled fill(param_store *s) {
    filled f;
    assert_int_equal(dev_open(&f.dev, DEV_CPU, 1, NULL), ST_OK);
    f.x = aligned_alloc(64, (size_t)param_store_sizes(s).master_bytes);
    param_store_bind(s, f.dev, &(param_arrays){.master = f.x});
    param_init_all(s, 42);
    return f;
}

static void drop(filled *f) {
    dev_close(f->dev);
    free(f->x);
}

static int64_t in_whole(const param_range *g, int64_t i) {
    return g->index + i / g->run * g->stride + i % g->run;
}

/* Every element of a whole parameter counts on one rank, and has the same value on all. */
static void check_elements(const param *p, const float *mine, const param *whole, const float *all,
                           int *counts) {
    int64_t n = 0;
    for (int k = 0; k < p->split.runs; k++) {
        param_range g = param_range_at(p, k);
        assert_int_equal(g.first, n);
        n += g.n;
        for (int64_t i = 0; i < g.n; i++) {
            int64_t at = in_whole(&g, i);
            assert_in_range(at, 0, param_elems(whole) - 1);
            assert_true(mine[p->offset + g.first + i] == all[whole->offset + at]);
            counts[at] += g.counted;
        }
    }
    assert_int_equal(n, param_elems(p));
    assert_int_equal(param_whole_elems(p), param_elems(whole));
}

static void test_parts_make_the_whole(void **state) {
    (void)state;
    arena *a = arena_new("whole");
    param_store *one = declare(a, NULL);
    filled all = fill(one);
    for (int tp = 1; tp <= 4; tp *= 2) {
        int counts[MATRICES][512] = {0};
        uint64_t digest = 0;
        for (int r = 0; r < tp; r++) {
            param_store *s = declare(a, &(param_ranks){.n = tp, .rank = r});
            filled f = fill(s);
            digest += param_digest(s);
            assert_int_equal(param_store_sizes(s).elems, param_store_sizes(one).elems);
            for (int i = 0; i < param_count(s); i++)
                check_elements(param_at(s, i), f.x, param_at(one, i), all.x, counts[i]);
            drop(&f);
        }
        assert_true(digest == param_digest(one));
        for (int i = 0; i < MATRICES; i++)
            for (int64_t k = 0; k < param_elems(param_at(one, i)); k++)
                assert_int_equal(counts[i][k], 1);
    }
    drop(&all);
    arena_free(a);
}

/* What a rank has whole is one run for each of the model's own: files are written by runs. */
static void test_whole_is_one_run(void **state) {
    (void)state;
    arena *a = arena_new("runs");
    param_store *s = declare(a, &(param_ranks){.n = 1});
    for (int i = 0; i < MATRICES; i++) {
        for (int k = 0; k < param_at(s, i)->split.runs; k++) {
            param_range g = param_range_at(param_at(s, i), k);
            assert_int_equal(g.run, g.n);
        }
    }
    arena_free(a);
}

/* Rank 1 of 4: heads 2 and 3, and the key head that it shares with rank 0. */
static void test_shared_heads(void **state) {
    (void)state;
    arena *a = arena_new("heads");
    param_store *s = declare(a, &(param_ranks){.n = 4, .rank = 1});
    const param_run *q = &param_at(s, 0)->split.run[0], *k = q + 1, *v = q + 2;
    assert_int_equal(q->first, 2 * D);
    assert_int_equal(q->n, 2 * D);
    assert_true(q->counted && !q->partial && q->copies == 1);
    assert_int_equal(k->first, H * D);
    assert_int_equal(k->n, D);
    assert_true(!k->counted && k->partial && k->copies == 2);
    assert_int_equal(v->first, (H + K) * D);
    assert_int_equal(param_at(s, 0)->rows, 4 * D);
    assert_int_equal(param_at(s, 1)->cols, 4 * D);
    s = declare(a, &(param_ranks){.n = 4, .rank = 2});
    k = &param_at(s, 0)->split.run[1];
    assert_int_equal(k->first, (H + 1) * D);
    assert_true(k->counted && k->partial);
    arena_free(a);
}

/* What all ranks hold: summands with sequence parallelism, and where each uses it for its heads. */
static void test_replicas(void **state) {
    (void)state;
    arena *a = arena_new("replicas");
    for (int i = 0; i < 4; i++) {
        param_store *s = param_store_new(a, DT_F32);
        param_ranks ranks = {.n = 2, .rank = i % 2, .sequence_parallel = i / 2};
        param_store_split(s, &ranks);
        add(s, "norm", 1, C, 1, (param_split){0});
        add(s, "head_norm", 1, D, 1, (param_split){.per_head = true});
        param_range norm = param_range_at(param_at(s, 0), 0);
        param_range head = param_range_at(param_at(s, 1), 0);
        assert_int_equal(norm.n, C);
        assert_true(norm.copies == 2 && norm.counted == (i % 2 == 0) && norm.partial == (i / 2));
        assert_true(head.copies == 2 && head.partial);
    }
    arena_free(a);
}

static void test_what_divides(void **state) {
    (void)state;
    assert_true(param_run_divides(32, 8, 4));
    assert_true(param_run_divides(8, 2, 4)); /* two ranks each */
    assert_false(param_run_divides(24, 6, 4));
    assert_false(param_run_divides(12, 3, 2));
    assert_true(param_run_divides(11, 0, 4));
    assert_false(param_run_divides(3, 0, 4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_make_the_whole), cmocka_unit_test(test_whole_is_one_run),
        cmocka_unit_test(test_shared_heads), cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_what_divides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
