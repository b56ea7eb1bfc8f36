/* The parameter store: layout of packs, initialisation, digest. */
#include "test.h"

#include "param/units.h"

typedef struct lab {
    arena *a;
    dev *dev;
    param_store *s;
    float *master;
} lab;

static int add(param_store *s, const char *name, int64_t rows, int64_t cols, param_init_kind init,
               double std) {
    return param_add(s, &(param){.name = name,
                                 .rows = rows,
                                 .cols = cols,
                                 .rank = rows == 1 ? 1 : 2,
                                 .init = {.kind = init, .std = std}});
}

static void bind(lab *l, int threads) {
    assert_int_equal(dev_open(&l->dev, DEV_CPU, threads, NULL), ST_OK);
    size_t bytes = (size_t)param_store_sizes(l->s).master_bytes;
    l->master = aligned_alloc(64, bytes);
    memset(l->master, 0xff, bytes);
    param_store_bind(l->s, l->dev, &(param_arrays){.master = l->master});
}

/* A small model; `reversed` declares the same parameters in another order. */
static lab lab_open(bool reversed, int threads) {
    lab l = {.a = arena_new("param")};
    l.s = param_store_new(l.a, DT_F32);
    if (reversed) {
        add(l.s, "norm", 1, 33, INIT_ONES, 0);
        add(l.s, "bias", 1, 7, INIT_ZEROS, 0);
    }
    param_pack_begin(l.s, "qkv");
    add(l.s, "q", 13, 33, INIT_NORMAL, 0.02);
    add(l.s, "k", 5, 33, INIT_NORMAL, 0.02);
    add(l.s, "v", 5, 33, INIT_NORMAL, 0.02);
    param_pack_end(l.s);
    if (!reversed) {
        add(l.s, "norm", 1, 33, INIT_ONES, 0);
        add(l.s, "bias", 1, 7, INIT_ZEROS, 0);
    }
    bind(&l, threads);
    param_init_all(l.s, 42);
    return l;
}

static void lab_close(lab *l) {
    free(l->master);
    dev_close(l->dev);
    arena_free(l->a);
}

static float *weights(const lab *l, const char *name, int64_t *n) {
    int i = param_find(l->s, name);
    assert_true(i >= 0);
    *n = param_elems(param_at(l->s, i));
    return l->master + param_at(l->s, i)->offset;
}

static void test_packs(void **state) {
    (void)state;
    lab l = lab_open(false, 2);
    const param *q = param_at(l.s, 0), *k = param_at(l.s, 1), *v = param_at(l.s, 2);
    assert_true(k->offset == q->offset + param_elems(q));
    assert_true(v->offset == k->offset + param_elems(k));
    graph_param_ref ref;
    assert_true(param_ref(l.s, "qkv", &ref));
    assert_true(ref.rows == 23 && ref.cols == 33);
    assert_true(ref.offset_bytes == q->offset * 4);
    assert_true(param_ref(l.s, "k", &ref));
    assert_true(ref.rows == 5 && ref.offset_bytes == k->offset * 4);
    assert_false(param_ref(l.s, "o", &ref));
    assert_true(param_store_sizes(l.s).elems == 23 * 33 + 33 + 7);
    /* Whole parameters and packs begin on a cache line. */
    for (int i = 3; i < param_count(l.s); i++)
        assert_int_equal(param_at(l.s, i)->offset * 4 % 64, 0);
    lab_close(&l);
}

static void test_init_rules(void **state) {
    (void)state;
    lab l = {.a = arena_new("param")};
    l.s = param_store_new(l.a, DT_F32);
    add(l.s, "big", 1000, 401, INIT_NORMAL, 0.02);
    add(l.s, "ones", 1, 100, INIT_ONES, 0);
    add(l.s, "zeros", 1, 100, INIT_ZEROS, 0);
    bind(&l, 2);
    param_init_all(l.s, 1);
    int64_t n;
    const float *w = weights(&l, "big", &n);
    double mean = 0, square = 0, fourth = 0, next = 0;
    for (int64_t i = 0; i < n; i++) {
        double z = w[i] / 0.02;
        mean += z;
        square += z * z;
        fourth += z * z * z * z;
        if (i) next += z * w[i - 1] / 0.02;
    }
    double sigma = 1 / sqrt((double)n);
    assert_true(fabs(mean / (double)n) < 5 * sigma);
    assert_true(fabs(square / (double)n - 1) < 5 * sigma * sqrt(2));
    assert_true(fabs(fourth / (double)n - 3) < 5 * sigma * sqrt(96));
    assert_true(fabs(next / (double)n) < 5 * sigma);
    const float *one = weights(&l, "ones", &n), *zero = weights(&l, "zeros", &n);
    for (int i = 0; i < 100; i++) assert_true(one[i] == 1.0f && zero[i] == 0.0f);
    lab_close(&l);
}

/* Cut normals: nothing beyond, inside as before, and the deviation of a normal cut at 3 sigma,
 * which is 0.98658 of the normal's (what torch's trunc_normal_ draws). */
static void test_init_cut(void **state) {
    (void)state;
    enum { ROWS = 1500, COLS = 1001 };
    lab l = {.a = arena_new("param")};
    l.s = param_store_new(l.a, DT_F32);
    param p = {.name = "cut", .rows = ROWS, .cols = COLS, .rank = 2};
    p.init = (param_init){.kind = INIT_NORMAL, .std = 0.02, .cut = 3};
    param_add(l.s, &p);
    bind(&l, 2);
    param_init_all(l.s, 1);
    int64_t n, moved = 0;
    const float *w = weights(&l, "cut", &n);
    float *whole = malloc((size_t)n * sizeof *whole);
    rng_fill_normal(rng_key_named(1, "cut"), 0, whole, n, 0.02);
    double square = 0, beyond_2 = 0;
    for (int64_t i = 0; i < n; i++) {
        assert_true(w[i] >= -0.06f && w[i] <= 0.06f);
        moved += w[i] != whole[i];
        if (w[i] != whole[i]) assert_true(whole[i] > 0.06f || whole[i] < -0.06f);
        square += w[i] / 0.02 * (w[i] / 0.02);
        beyond_2 += w[i] > 0.04f || w[i] < -0.04f;
    }
    double N = (double)n, share = 0.0026998, tail = (0.0455003 - share) / (1 - share);
    assert_true(fabs((double)moved / N - share) < 5 * sqrt(share / N));
    assert_true(fabs(square / N - 0.973344) < 5 * sqrt(1.8 / N));
    assert_true(fabs(beyond_2 / N - tail) < 5 * sqrt(tail / N));
    free(whole);
    lab_close(&l);
}

/* An element depends on seed, name and index: not on threads, nor on what else is declared. */
static void test_init_is_independent(void **state) {
    (void)state;
    lab alone = {.a = arena_new("param")}, many = {.a = arena_new("param")};
    alone.s = param_store_new(alone.a, DT_F32);
    many.s = param_store_new(many.a, DT_F32);
    add(alone.s, "w", 300, 211, INIT_NORMAL, 1.0);
    add(many.s, "other", 17, 3, INIT_NORMAL, 1.0);
    add(many.s, "w", 300, 211, INIT_NORMAL, 1.0);
    add(many.s, "w2", 300, 211, INIT_NORMAL, 1.0);
    bind(&alone, 1);
    bind(&many, 3);
    int64_t n;
    param_init_all(alone.s, 9);
    param_init_all(many.s, 9);
    float *a = weights(&alone, "w", &n), *b = weights(&many, "w", &n);
    assert_memory_equal(a, b, (size_t)n * 4);
    assert_memory_not_equal(b, weights(&many, "w2", &n), (size_t)n * 4);
    param_init_all(many.s, 10);
    assert_memory_not_equal(a, b, (size_t)n * 4);
    lab_close(&alone);
    lab_close(&many);
}

/* Every row has a place in the file, and no two the same. */
static void check_rows(const param *p, const int64_t *want) {
    bool taken[64] = {false};
    for (int64_t i = 0; i < p->rows; i++) {
        int64_t at = param_file_row(p, i);
        assert_true(at >= 0 && at < p->rows && !taken[at]);
        taken[at] = true;
        assert_int_equal(at, want[i]);
    }
}

static void test_file_rows(void **state) {
    (void)state;
    /* q, k, v of two heads of two rows; files: q, k, v of head 0, then of head 1 */
    param by_head = {.rows = 12, .order = ROWS_BY_HEAD, .heads = 2, .part_rows = {2, 2, 2}};
    check_rows(&by_head, (const int64_t[]){0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11});
    /* two heads of five rows, of which four are rotated */
    param pairs = {.rows = 10, .order = ROWS_PAIRS, .heads = 2, .head_dim = 5, .rotary = 4};
    check_rows(&pairs, (const int64_t[]){0, 2, 1, 3, 4, 5, 7, 6, 8, 9});
    param same = {.rows = 3, .order = ROWS_SAME};
    check_rows(&same, (const int64_t[]){0, 1, 2});
}

static bool locate_matrices(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes) {
    *stored = DT_F16;
    *offset_bytes = 1000 + *(int *)ctx;
    return p->rank == 2;
}

/* Weights that stay in a file are not in the flat arrays; the others are as ever. */
static void test_mapped(void **state) {
    (void)state;
    int more = 24;
    lab l = {.a = arena_new("param")};
    l.s = param_store_new(l.a, DT_F32);
    param_store_map(l.s, locate_matrices, &more);
    param_pack_begin(l.s, "qkv");
    add(l.s, "q", 300, 211, INIT_NORMAL, 1.0);
    add(l.s, "k", 100, 211, INIT_NORMAL, 1.0);
    param_pack_end(l.s);
    add(l.s, "norm", 1, 211, INIT_ONES, 0);
    param_sizes z = param_store_sizes(l.s);
    assert_true(z.elems == 401 * 211 && z.flat_elems == 256);
    graph_param_ref ref;
    assert_false(param_ref(l.s, "qkv", &ref));
    assert_true(param_ref(l.s, "k", &ref));
    assert_true(ref.where == SPACE_FILE && ref.dt == DT_F16 && !ref.trainable);
    assert_true(ref.rows == 100 && ref.cols == 211 && ref.offset_bytes == 1024);
    assert_true(param_ref(l.s, "norm", &ref));
    assert_true(ref.where == SPACE_MASTER && ref.offset_bytes == 0);
    bind(&l, 2);
    assert_int_equal(param_unit_at(l.s, 0)->spans.n, 1);
    param_init_all(l.s, 1);
    for (int i = 0; i < 211; i++) assert_true(l.master[i] == 1.0f);
    lab_close(&l);
}

/* Matrices have copies in bf16, vectors have none. */
static void test_copies(void **state) {
    (void)state;
    lab l = {.a = arena_new("param")};
    l.s = param_store_new(l.a, DT_BF16);
    add(l.s, "w", 300, 211, INIT_NORMAL, 1.0);
    add(l.s, "norm", 1, 100, INIT_ONES, 0);
    bind(&l, 2);
    size_t elems = (size_t)param_store_sizes(l.s).flat_elems;
    uint16_t *copy = calloc(elems, sizeof *copy);
    param_store_bind(l.s, l.dev, &(param_arrays){.master = l.master, .work = copy});
    for (int again = 0; again < 2; again++) {
        if (again)
            param_refresh_work(l.s);
        else
            param_init_all(l.s, 3);
        for (int i = 0; i < 300 * 211; i++) assert_int_equal(copy[i], f32_to_bf16(l.master[i]));
        for (size_t i = 300 * 211; i < elems; i++) assert_int_equal(copy[i], 0);
        memset(copy, 0, elems * sizeof *copy);
    }
    free(copy);
    lab_close(&l);
}

static void test_digest_sees_every_bit(void **state) {
    (void)state;
    lab l = lab_open(false, 2);
    uint64_t before = param_digest(l.s), seen[4096];
    int n_seen = 0;
    for (int i = 0; i < param_count(l.s); i++) {
        const param *p = param_at(l.s, i);
        int64_t at[] = {p->offset, p->offset + param_elems(p) / 2, p->offset + param_elems(p) - 1};
        for (int k = 0; k < 3; k++)
            for (int bit = 0; bit < 32; bit++) {
                uint32_t x;
                memcpy(&x, &l.master[at[k]], 4);
                x ^= 1u << bit;
                memcpy(&l.master[at[k]], &x, 4);
                uint64_t d = param_digest(l.s);
                assert_true(d != before);
                for (int j = 0; j < n_seen; j++) assert_true(d != seen[j]);
                seen[n_seen++] = d;
                x ^= 1u << bit;
                memcpy(&l.master[at[k]], &x, 4);
            }
    }
    assert_true(param_digest(l.s) == before);
    /* Values that change places change it, inside a parameter and between two. */
    int64_t n;
    float *q = weights(&l, "q", &n), *k = weights(&l, "k", &n), t = q[0];
    q[0] = q[1];
    q[1] = t;
    assert_true(param_digest(l.s) != before);
    q[1] = q[0];
    q[0] = k[0];
    k[0] = t;
    assert_true(param_digest(l.s) != before);
    lab_close(&l);
}

static void test_digest_ignores_layout(void **state) {
    (void)state;
    lab a = lab_open(false, 1), b = lab_open(true, 4);
    assert_true(param_at(a.s, 0)->offset != param_at(b.s, 2)->offset);
    uint64_t one = param_digest(a.s);
    assert_true(one == 0xada76bb8e9b33cdcu); /* as every earlier version said */
    assert_true(param_digest(b.s) == one);
    memset(a.master + 23 * 33, 0x5a, 4); /* a gap: no parameter's */
    assert_true(param_digest(a.s) == one);
    lab_close(&a);
    lab_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packs),
                                       cmocka_unit_test(test_init_rules),
                                       cmocka_unit_test(test_init_cut),
                                       cmocka_unit_test(test_init_is_independent),
                                       cmocka_unit_test(test_file_rows),
                                       cmocka_unit_test(test_mapped),
                                       cmocka_unit_test(test_copies),
                                       cmocka_unit_test(test_digest_sees_every_bit),
                                       cmocka_unit_test(test_digest_ignores_layout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
