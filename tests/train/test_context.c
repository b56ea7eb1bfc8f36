/* Which tokens context-parallel ranks have, what programs are told of them, and that their work is equal. */
#include "test.h"

#include "base/rng.h"
#include "train/context.h"

enum { MOST_T = 4096, MOST_CP = 8 };

typedef struct row {
    int T, cp;
    bool documents;
    int32_t start[MOST_T], rank_of[MOST_T];
    context_piece room[MOST_T];
} row;

/* Documents of very unequal lengths: 1, 2, 4, ... tokens, as dice say. */
static void draw_documents(row *r, int seed) {
    rng_key key = rng_key_numbered(7, (uint32_t)seed);
    for (int t = 0, n = 0; t < r->T; n++) {
        int length = 1 << (rng_u32(key, (uint64_t)n) % 12), first = t;
        for (; t < r->T && t < first + length; t++) r->start[t] = first;
    }
}

/* Keys that the slowest rank's tokens see, over the mean. */
static double divide(row *r) {
    int64_t work[MOST_CP] = {0}, all = 0, slowest = 0;
    int tokens[MOST_CP] = {0};
    context_divide(r->documents ? r->start : NULL, r->T, r->cp, r->rank_of, r->room);
    for (int t = 0; t < r->T; t++) {
        int64_t keys = t + 1 - (r->documents ? r->start[t] : 0);
        assert_in_range(r->rank_of[t], 0, r->cp - 1);
        work[r->rank_of[t]] += keys;
        tokens[r->rank_of[t]]++;
        all += keys;
    }
    for (int i = 0; i < r->cp; i++) {
        assert_int_equal(tokens[i], r->T / r->cp);
        if (work[i] > slowest) slowest = work[i];
    }
    return (double)slowest * r->cp / (double)all;
}

static void test_zigzag(void **state) {
    (void)state;
    static const int32_t want[] = {0, 0, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0};
    row r = {.T = 12, .cp = 3};
    divide(&r);
    assert_memory_equal(r.rank_of, want, sizeof want);
    r.T = 4096, r.cp = 8;
    assert_true(divide(&r) < 1.001);
}

static void test_balance(void **state) {
    (void)state;
    static row r;
    double worst = 0;
    for (int cp = 2; cp <= MOST_CP; cp *= 2)
        for (int seed = 0; seed < 50; seed++) {
            r = (row){.T = MOST_T, .cp = cp, .documents = true};
            draw_documents(&r, seed);
            double over = divide(&r);
            if (over > worst) worst = over;
        }
    if (worst > 1.1) fail_msg("the slowest rank has %.3f times the mean", worst);
    r = (row){
        .T = 66, .cp = 3, .documents = true}; /* shares of 22 tokens do not divide into 16 pieces */
    draw_documents(&r, 1);
    divide(&r);
}

/* ---- what programs are told ---- */

enum { B = 2, T = 16, CP = 2, OWN = T / CP };

static model_config two_masks(arena *a) {
    model_config mc;
    err e = {0};
    json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:i,s:i}", "model_type", "qwen2",
                          "hidden_size", 8, "num_hidden_layers", 2, "num_attention_heads", 2,
                          "num_key_value_heads", 1, "intermediate_size", 8, "vocab_size", 16,
                          "use_sliding_window", 1, "sliding_window", 3, "max_window_layers", 1);
    if (model_config_read(a, o, 0, &mc, &e) != ST_OK) fail_msg("%s", e.message);
    json_decref(o);
    return mc;
}

/* Every key that a token may see, and no other one, is in its bounds of some hop. */
static void check_seen(const context *x, const context *ranks, const batch_rows *all, int mask,
                       int window) {
    int hops = x->kind == CONTEXT_RING ? CP : 1;
    for (int n = 0; n < B * OWN; n++) {
        int b = n / OWN, t = x->place[n], start = all->start[b * T + t], seen[T] = {0};
        for (int hop = 0; hop < hops; hop++) {
            const context *of = &ranks[(x->rank - hop + CP) % CP];
            int at = hop * B * OWN + n;
            for (int j = x->first[mask][at]; j < x->end[at]; j++)
                seen[x->kind == CONTEXT_RING ? of->place[b * OWN + j] : j]++;
        }
        for (int j = 0; j < T; j++) {
            bool want = j <= t && j >= start && (!window || t - j < window);
            if (seen[j] != want) fail_msg("row %d, token %d, key %d: %d", b, t, j, seen[j]);
        }
    }
}

static void check_kind(context_kind kind) {
    arena *a = arena_new("rows");
    model_config mc = two_masks(a);
    batch_rows all = batch_rows_new(a, B, T, true, &mc), own[CP];
    context x[CP];
    for (int i = 0; i < B * T; i++) {
        all.start[i] = i % T < 5 ? 0 : i % T < 6 + i / T ? 5 : 6 + i / T;
        all.ids[i] = 100 + i, all.targets[i] = 200 + i, all.pos[i] = i % T - all.start[i];
    }
    for (int r = 0; r < CP; r++) {
        mesh m;
        mesh_place(&m, &(mesh_shape){.dp = 1, .dp_replicate = 1, .tp = 1, .cp = CP, .pp = 1}, r);
        context_new(&x[r], a, &m, kind, &mc, &all, &own[r]);
        context_take(&x[r], &all, &own[r]);
    }
    assert_int_equal(x[0].n_masks, 2);
    for (int i = 0; i < B * T; i++) { /* order names the row that has this token */
        int r = x[0].order[i] / (B * OWN), n = x[0].order[i] % (B * OWN);
        assert_int_equal(own[r].ids[n], 100 + i);
        assert_int_equal(own[r].targets[n], 200 + i);
        assert_int_equal(own[r].pos[n], all.pos[i]);
        own[r].nll[n] = (float)i;
    }
    for (int r = 0; r < CP && kind != CONTEXT_ULYSSES; r++)
        for (int k = 0; k < 2; k++) check_seen(&x[r], x, &all, k, (int)x[r].mask[k].window);
    float sum[B * T] = {0};
    for (int r = 0; r < CP; r++) {
        context_spread(&x[r], &own[r], &all);
        for (int i = 0; i < B * T; i++) sum[i] += all.nll[i];
    }
    for (int i = 0; i < B * T; i++) assert_true(sum[i] == (float)i);
    arena_free(a);
}

static void test_bounds(void **state) {
    (void)state;
    check_kind(CONTEXT_ALLGATHER);
    check_kind(CONTEXT_RING);
    check_kind(CONTEXT_ULYSSES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_zigzag),
                                       cmocka_unit_test(test_balance),
                                       cmocka_unit_test(test_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
