/* Frame packing: random instances never overlap, and the presets' frames stay within 5 % of what is
 * live at once, on the meta device, at several batch sizes, lengths and policies. Gradients that
 * travel between ranks have nothing beside them. */
#include "test.h"

#include "sanitizer.h"
#include "base/rng.h"
#include "model/presets.h"
#include "plan/plan.h"
#include "prog/graph_int.h"

static int64_t up(int64_t n) {
    return (n + 63) / 64 * 64;
}

static void check_packing(const pack_item *item, int n, int64_t total) {
    int64_t end = 0;
    for (int i = 0; i < n; i++) {
        assert_true(item[i].offset >= 0 && item[i].offset % 64 == 0);
        if (item[i].offset + up(item[i].bytes) > end) end = item[i].offset + up(item[i].bytes);
        for (int j = 0; j < i; j++) {
            bool together = item[i].first <= item[j].last && item[j].first <= item[i].last;
            bool apart = item[i].offset + item[i].bytes <= item[j].offset ||
                         item[j].offset + item[j].bytes <= item[i].offset;
            if (together && !apart) fail_msg("items %d and %d overlap", i, j);
        }
    }
    assert_true(total == end);
    assert_true(total >= pack_live_peak(item, n));
}

/* The peak by the definition: at every time, the sum of what lives. */
static int64_t slow_live_peak(const pack_item *item, int n, int32_t times) {
    int64_t peak = 0;
    for (int32_t t = 0; t < times; t++) {
        int64_t live = 0;
        for (int i = 0; i < n; i++)
            if (item[i].first <= t && t <= item[i].last) live += up(item[i].bytes);
        if (live > peak) peak = live;
    }
    return peak;
}

/* Some items in a frame, others there or behind, and none over the border. */
static void check_around_kept(pack_item *item, int kept, int n) {
    int64_t border, total = pack_around_kept(item, kept, n, &border);
    check_packing(item, kept, border);
    check_packing(item, n, total);
    for (int i = kept; i < n; i++)
        assert_true(item[i].offset >= border || item[i].offset + up(item[i].bytes) <= border);
}

static void test_random_instances(void **state) {
    (void)state;
    enum { MOST = 400 };
    pack_item item[MOST];
    rng_key key = rng_key_numbered(3, 1);
    uint64_t at = 0;
    for (int trial = 0; trial < (UNDER_ASAN ? 40 : 160); trial++) {
        int32_t times = trial % 7 < 2 ? 1000 : 60; /* slices of many times, or of one */
        int n = (int)(rng_u32(key, at++) % MOST);
        for (int i = 0; i < n; i++) {
            int32_t first = (int32_t)(rng_u32(key, at++) % (uint32_t)times);
            int32_t length = (int32_t)(rng_u32(key, at++) % (trial % 2 ? (uint32_t)times : 5));
            int64_t bytes = rng_u32(key, at++) % (trial % 3 ? 5000 : 100) + (trial % 5 > 0);
            item[i] = (pack_item){.bytes = bytes,
                                  .offset = -1,
                                  .first = first,
                                  .last = first + length < times ? first + length : times - 1};
        }
        int fixed = trial % 4 ? 0 : n / 3;
        int64_t offset = 0;
        for (int i = 0; i < fixed; i++) {
            item[i].fixed = true, item[i].offset = offset;
            offset += up(item[i].bytes) + 64 * (i % 3);
        }
        int64_t total = pack_items(item, n);
        offset = 0;
        for (int i = 0; i < fixed; i++) {
            assert_true(item[i].offset == offset);
            offset += up(item[i].bytes) + 64 * (i % 3);
        }
        assert_true(pack_live_peak(item, n) == slow_live_peak(item, n, times));
        check_packing(item, n, total);
        for (int i = 0; i < n; i++) item[i].fixed = false;
        check_around_kept(item, n / 3, n);
    }
}

static void test_simple_instances(void **state) {
    (void)state;
    assert_true(pack_items(NULL, 0) == 0);
    /* One after the other: they share the place. */
    pack_item chain[] = {{100, 0, 0, 1, false}, {100, 0, 2, 3, false}, {128, 0, 4, 4, false}};
    assert_true(pack_items(chain, 3) == 128);
    /* Closed intervals: one is read while the next is written. */
    pack_item touching[] = {{64, 0, 0, 1, false}, {64, 0, 1, 2, false}};
    assert_true(pack_items(touching, 2) == 128);
    /* A stack packs without loss. */
    pack_item stack[20];
    for (int i = 0; i < 20; i++) stack[i] = (pack_item){64 * (i + 1), 0, i, 40 - i, false};
    assert_true(pack_items(stack, 20) == pack_live_peak(stack, 20));
    /* What is kept becomes free from above: the gradients of a backward find room in one piece. */
    pack_item back[] = {{64, 0, 0, 9, false},
                        {64, 0, 1, 7, false},
                        {64, 0, 2, 5, false},
                        {128, 0, 8, 8, false},
                        {128, 0, 5, 6, false}};
    int64_t border;
    assert_true(pack_around_kept(back, 3, 5, &border) == 192 + 128 && border == 192);
    assert_true(back[3].offset == 64 && back[4].offset == 192);
}

/* What lives between many others finds the only hole among these, wherever that is, and the places of what lives later. */
static void test_a_hole_among_many(void **state) {
    (void)state;
    enum { MANY = 200 };
    for (int hole = 0; hole <= MANY; hole++) {
        pack_item item[MANY + 1];
        for (int i = 0; i < MANY; i++)
            item[i] = (pack_item){64, 64 * (i + (i < hole ? 0 : 2)), 0, 9, true};
        item[MANY] = (pack_item){128, -1, 5, 5, false};
        assert_true(pack_items(item, MANY + 1) == 64 * (MANY + 2));
        assert_true(item[MANY].offset == 64 * hole);
        for (int i = hole; i < MANY; i++) item[i].first = 6;
        item[MANY].bytes = 64 * MANY;
        pack_items(item, MANY + 1);
        assert_true(item[MANY].offset == 64 * hole);
    }
}

typedef struct shape {
    int B, T;
    recompute_policy recompute;
    dtype compute;
} shape;

static double arena_ratio(dev *d, const char *preset, shape s) {
    arena *a = arena_new("preset");
    json_t *o = json_pack("{s:s}", "preset", preset);
    plan_spec spec = {.compute = s.compute,
                      .T = s.T,
                      .train_B = s.B,
                      .valid_B = s.B,
                      .optim = optim_find("adamw"),
                      .recompute = s.recompute,
                      .document_mask = true};
    err e = {0};
    plan *p;
    assert_int_equal(model_config_read(a, o, 0, &spec.model, &e), ST_OK);
    if (plan_new(&p, d, &spec, &e) != ST_OK) fail_msg("%s: %s", preset, e.message);
    const prog_stats *st = prog_get_stats(plan_prog(p, USE_TRAIN, 0));
    assert_true(st->frame_bytes >= st->live_peak_bytes && st->live_peak_bytes > 0);
    int64_t *live = xcalloc((size_t)st->ops, sizeof *live), most = 0;
    prog_get_live_bytes(plan_prog(p, USE_TRAIN, 0), live);
    for (int i = 0; i < st->ops; i++) most = live[i] > most ? live[i] : most;
    assert_int_equal(most, st->live_peak_bytes);
    assert_true(live[0] < most / 2);
    free(live);
    /* Everything outside the frame is live throughout. */
    double rest = (double)(p->peak_bytes - p->region[REGION_FRAME].bytes);
    double ratio = (double)st->frame_bytes / (double)st->live_peak_bytes;
    assert_true((double)p->peak_bytes <= 1.05 * (rest + (double)st->live_peak_bytes));
    plan_free(p);
    json_decref(o);
    arena_free(a);
    return ratio;
}

static void test_presets(void **state) {
    (void)state;
    static const shape shapes[] = {{1, 64, RECOMPUTE_NONE, DT_F32},
                                   {8, 256, RECOMPUTE_NONE, DT_BF16},
                                   {3, 500, RECOMPUTE_SELECTIVE, DT_BF16},
                                   {4, 1024, RECOMPUTE_FULL, DT_F32},
                                   {32, 1024, RECOMPUTE_FULL, DT_BF16}};
    dev *d;
    assert_int_equal(dev_open_meta(&d, DEV_CPU, 4, NULL), ST_OK);
    double worst = 0;
    for (int i = 0; preset_name(i); i++)
        for (int k = 0; k < ARRAY_LEN(shapes); k++) {
            /* Packing a large model takes long: under the sanitizer every third one, in one shape.
             */
            if (UNDER_ASAN && (i % 3 || k != i / 3 % ARRAY_LEN(shapes))) continue;
            double r = arena_ratio(d, preset_name(i), shapes[k]);
            if (r > 1.05) fail_msg("%s, shape %d: frame %.3f x live bytes", preset_name(i), k, r);
            if (r > worst) worst = r;
        }
    print_message("largest frame / live bytes: %.4f\n", worst);
    dev_close(d);
}

/* Where ranks sum gradients that lie in the frame, whole units travel while the backward goes on:
 * nothing else may lie in one from when its last gradient is there. */
static void check_units(const plan *p, int *seen) {
    const graph *g = plan_prog(p, USE_TRAIN, 0)->g;
    for (int u = 0; u < param_units(p->store); u++) {
        const param_unit *k = param_unit_at(p->store, u);
        int64_t begin = k->at * 4, end = begin + k->n * 4;
        int32_t made = 0;
        for (int32_t b = 0; b < g->n_bufs; b++)
            if (g->buf[b].where == SPACE_GRAD && g->buf[b].unit == u && g->buf[b].first > made)
                made = g->buf[b].first;
        for (int32_t b = 0; b < g->n_bufs; b++) {
            const buffer *x = &g->buf[b];
            if (x->where != SPACE_FRAME || x->last <= made) continue;
            if (x->offset < end && begin < x->offset + x->bytes)
                fail_msg("buffer %d at %ld lies in unit %d (%ld to %ld)", b, (long)x->offset, u,
                         (long)begin, (long)end);
            ++*seen;
        }
    }
}

static void test_units_in_the_frame(void **state) {
    (void)state;
    arena *a = arena_new("odd widths");
    dev *d;
    int seen = 0;
    json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i}", "model_type", "llama", "hidden_size", 20,
                          "num_hidden_layers", 4, "num_attention_heads", 2, "intermediate_size", 33,
                          "vocab_size", 29, "max_position_embeddings", 64);
    assert_int_equal(dev_open_meta(&d, DEV_CPU, 1, NULL), ST_OK);
    for (int T = 8; T < 24; T++) {
        int zero = T % 2;
        mesh_shape four = {.dp = 4, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = 1};
        mesh m;
        mesh_place(&m, &four, 0);
        plan_spec spec = {.compute = DT_F32,
                          .T = T,
                          .document_mask = true,
                          .train_B = 2,
                          .micro_batches = 1,
                          .optim = optim_find("adamw"),
                          .ranks = &m,
                          .sharing = {.shards = zero ? 4 : 1, .zero = zero, .bucket_elems = 1}};
        plan *p;
        assert_int_equal(model_config_read(a, o, 0, &spec.model, NULL), ST_OK);
        assert_int_equal(plan_new(&p, d, &spec, NULL), ST_OK);
        check_units(p, &seen);
        plan_free(p);
    }
    assert_true(seen > 100);
    dev_close(d);
    json_decref(o);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_instances), cmocka_unit_test(test_simple_instances),
        cmocka_unit_test(test_a_hole_among_many), cmocka_unit_test(test_units_in_the_frame),
        cmocka_unit_test(test_presets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
