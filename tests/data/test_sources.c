/* Rows with sources: pairs, one or several in a row, and texts whose spans are cut out. What a row says is read back
 * to the documents that it was made of. */
#include "data_test.h"

#include "data/order/prefetch.h"

enum { S = 12, T = 10, START = 900, PAIRS = 40 };

/* ---- span corruption ---- */

static span_rules rules_of(int32_t *sentinels) {
    for (int i = 0; i < 100; i++) sentinels[i] = 32099 - i;
    return (span_rules){
        .density = 0.15, .mean = 3, .sentinels = sentinels, .n_sentinels = 100, .end = 1};
}

/* Puts what was cut back in place of the sentinels. */
static int64_t restore(const span_rules *r, const int32_t *source, const span_sizes *z,
                       const int32_t *target, int32_t *text) {
    int64_t n = 0, t = 0, sentinel = 0;
    assert_true(source[z->source - 1] == 1 && target[z->target - 1] == 1);
    for (int64_t i = 0; i < z->source - 1; i++) {
        if (source[i] < 30000) {
            text[n++] = source[i];
            continue;
        }
        assert_int_equal(source[i], r->sentinels[sentinel]);
        assert_int_equal(target[t++], r->sentinels[sentinel++]);
        for (int64_t before = t; t < z->target - 1 && target[t] < 30000; t++) {
            assert_true(t - before < 100);
            text[n++] = target[t];
        }
    }
    assert_int_equal(t, z->target - 1);
    return n;
}

static void test_cut_spans_restore_the_text(void **state) {
    (void)state;
    int32_t sentinels[100], ids[600], source[900], target[900], text[600];
    span_rules r = rules_of(sentinels);
    for (int i = 0; i < 600; i++) ids[i] = 100 + i;
    for (int64_t n = 2; n < 600; n += 1 + n / 9) {
        span_sizes z = spans_of(&r, n);
        assert_int_equal(z.source + z.target, n + 2 * z.spans + 2);
        spans_cut(&r, (uint64_t)n, ids, n, source, target);
        assert_int_equal(restore(&r, source, &z, target, text), n);
        assert_memory_equal(text, ids, (size_t)n * sizeof *ids);
        assert_true(source[0] == ids[0]);                /* the first span stays */
        assert_true(target[z.target - 2] == ids[n - 1]); /* the last one does not */
    }
}

/* Lengths as those of T5's random_spans_helper: 568 tokens become 512 and 114. */
static void test_lengths_are_those_of_t5(void **state) {
    (void)state;
    int32_t sentinels[100];
    span_rules r = rules_of(sentinels);
    span_sizes z = spans_of(&r, 568);
    assert_true(z.source == 512 && z.target == 114 && z.spans == 28 && z.cut == 85);
    assert_int_equal(spans_longest(&r, 512, 114), 568);
    assert_int_equal(spans_longest(&r, 2000, 114), 569); /* the target alone is the limit */
    assert_int_equal(spans_longest(&r, 2, 114), 0);
    for (int64_t n = 2; n < 2000; n++) {
        span_sizes a = spans_of(&r, n), b = spans_of(&r, n + 1);
        assert_true(a.source <= b.source && a.target <= b.target && a.spans <= a.cut &&
                    a.spans <= n - a.cut);
    }
}

/* Every place is cut about as often, and two seeds cut elsewhere. */
static void test_cuts_are_spread(void **state) {
    (void)state;
    int32_t sentinels[100], ids[100], source[200], target[200], first[200];
    int hits[100] = {0}, differ = 0;
    span_rules r = rules_of(sentinels);
    for (int i = 0; i < 100; i++) ids[i] = i;
    span_sizes z = spans_of(&r, 100);
    for (int k = 0; k < 2000; k++) {
        spans_cut(&r, (uint64_t)k, ids, 100, source, target);
        if (k == 0) memcpy(first, source, sizeof first);
        differ += memcmp(first, source, sizeof *first * (size_t)z.source) != 0;
        for (int64_t i = 0; i < z.target; i++)
            if (target[i] < 100 && target[i] != 1) hits[target[i]]++;
    }
    assert_true(differ > 1900);
    for (int i = 10; i < 85; i++) assert_true(hits[i] > 200 && hits[i] < 450); /* 300 on average */
}

/* ---- pairs ---- */

/* Pair d: source d * 20 .. with 2 + d % 9 tokens (one is longer than S), target d * 20 + 19 downwards. */
static int64_t source_of(int d) {
    return d == 7 ? S + 3 : 2 + d % 9;
}
static int64_t target_of(int d) {
    return d == 11 ? T + 2 : 1 + d % 4;
}

static const char *make_pairs(scene *s) {
    const char *dir = in_scene(s, "pairs");
    shard_writer_options opt = {.tok_hash = 0x1234,
                                .vocab_size = 1000,
                                .eos = -1,
                                .shard_tokens = 100,
                                .chat = {.marks = true, .sequences = 1}};
    shard_writer *w;
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    for (int d = 0; d < PAIRS; d++) {
        int32_t ids[64];
        uint8_t marks[64];
        int64_t n = 0;
        for (int64_t i = 0; i < source_of(d); i++, n++) {
            ids[n] = (int32_t)(d * 20 + i);
            marks[n] = mark_of(ROLE_USER, false);
        }
        for (int64_t i = 0; i < target_of(d); i++, n++) {
            ids[n] = (int32_t)(d * 20 + 19 - i);
            marks[n] = mark_of(ROLE_ASSISTANT, true);
        }
        shard_record r = {
            .ids = ids, .marks = marks, .n = n, .source = "p.jsonl", .line = (uint32_t)d + 1};
        assert_ok(shard_writer_add(w, &r, e));
    }
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    return dir;
}

typedef struct arrays {
    loader_row info[1];
    int32_t ids[T], targets[T], start[T], pos[T], seen_start[T], seen_end[T];
    int32_t source[S], source_pos[S], source_start[S], source_end[S];
} arrays;

static loader_rows rows_of(arrays *a) {
    memset(a, 0x55, sizeof *a);
    return (loader_rows){a->ids,        a->targets,    a->start,      a->pos,
                         a->info,       a->source,     a->source_pos, a->source_start,
                         a->source_end, a->seen_start, a->seen_end};
}

static loader *open_pairs(const char *dir, loader_packing packing, bool mask, bool shuffle) {
    loader *l;
    loader_source source = {.path = dir, .weight = 1};
    loader_config cfg = {.sources = &source,
                         .n_sources = 1,
                         .seq_len = T,
                         .source_len = S,
                         .decoder_start = START,
                         .document_mask = mask,
                         .shuffle = shuffle,
                         .packing = packing,
                         .seed = 5,
                         .tok_hash = 0x1234};
    assert_ok(loader_open(&l, &cfg, e));
    return l;
}

/* The pair whose target begins at position t; returns where it ends. */
static int check_pair(const arrays *a, int t, bool *met) {
    int d = a->targets[t] / 20;
    int64_t n = source_of(d) < S ? source_of(d) : S, m = target_of(d) < T ? target_of(d) : T;
    int s = a->seen_start[t];
    assert_true(!met[d]);
    met[d] = true;
    for (int i = 0; i < n; i++) {
        assert_int_equal(a->source[s + i], d * 20 + i);
        assert_int_equal(a->source_pos[s + i], i);
        assert_int_equal(a->source_start[s + i], s);
        assert_int_equal(a->source_end[s + i], s + n);
    }
    for (int i = 0; i < m; i++) {
        assert_int_equal(a->targets[t + i], d * 20 + 19 - i);
        assert_int_equal(a->ids[t + i], i == 0 ? START : d * 20 + 20 - i);
        assert_int_equal(a->start[t + i], t);
        assert_int_equal(a->pos[t + i], i);
        assert_int_equal(a->seen_start[t + i], s);
        assert_int_equal(a->seen_end[t + i], s + n);
    }
    return t + (int)m;
}

/* Returns how many pairs the row has. */
static int check_row(const arrays *a, int64_t live, bool *met) {
    int t = 0, pairs = 0, s = 0;
    for (; t < T && a->targets[t] != LOADER_IGNORE; pairs++) t = check_pair(a, t, met);
    assert_int_equal(t, live);
    for (int i = t; i < T; i++)
        assert_true(a->targets[i] == LOADER_IGNORE && a->ids[i] == 0 && a->seen_end[i] == 0 &&
                    a->start[i] == t);
    while (s < S && a->source_end[s] > s) s = a->source_end[s];
    for (; s < S; s++)
        assert_true(a->source[s] == 0 && a->source_end[s] == 0 && a->source_start[s] == 0);
    assert_true(a->info->label == 1 && a->info->n_inputs == live);
    return pairs;
}

static void check_epoch(const char *dir, loader_packing packing, bool shuffle, int64_t most_rows) {
    loader *l = open_pairs(dir, packing, true, shuffle);
    prefetch *ahead = prefetch_new(l, 1, 2, true);
    bool met[PAIRS] = {0};
    int pairs = 0;
    int64_t n = (int64_t)loader_sequences(l);
    assert_true(n <= most_rows && loader_source_len(l) == S && loader_seq_len(l) == T);
    for (int64_t i = 0; i < n; i++) {
        arrays a, b;
        loader_rows rows = rows_of(&a), again = rows_of(&b);
        pairs += check_row(&a, loader_fill_rows(l, (uint64_t)i, 1, &rows), met);
        prefetch_begin(ahead, (uint64_t)i, 1);
        prefetch_take(ahead, 0, &again);
        assert_memory_equal(&a, &b, sizeof a);
    }
    assert_int_equal(pairs, PAIRS);
    packing_totals k = loader_packing_totals(l);
    assert_true((int)k.documents == PAIRS && k.documents_cut == 2 && (int64_t)k.sequences == n);
    prefetch_free(ahead);
    assert_ok(loader_error(l, e));
    loader_close(l);
}

static void test_pairs(void **state) {
    const char *dir = make_pairs(*state);
    check_epoch(dir, PACKING_NONE, true, PAIRS);
    check_epoch(dir, PACKING_NONE, false, PAIRS);
    check_epoch(dir, PACKING_BESTFIT, true, PAIRS * 2 / 3); /* several in a row */
    check_epoch(dir, PACKING_AUTO, true, PAIRS * 2 / 3);
    loader *l = open_pairs(dir, PACKING_AUTO, false, true); /* without masks one in a row */
    assert_true(loader_get_packing(l) == PACKING_NONE);
    loader_close(l);
}

static void test_refusals(void **state) {
    err why = {0};
    loader *l;
    loader_source source = {.path = make_pairs(*state), .weight = 1};
    loader_config cfg = {
        .sources = &source, .n_sources = 1, .seq_len = T, .source_len = S, .shuffle = true};
    cfg.packing = PACKING_CONCAT;
    assert_int_equal(loader_open(&l, &cfg, &why), ST_USAGE);
    assert_non_null(strstr(why.message, "pairs are not cut"));
    cfg.packing = PACKING_BESTFIT;
    assert_int_equal(loader_open(&l, &cfg, &why), ST_USAGE);
    assert_non_null(strstr(why.message, "must not see each other"));
}

/* ---- texts ---- */

static void test_texts(void **state) {
    int32_t sentinels[100];
    const char *dir = in_scene(*state, "texts");
    shard_writer_options opt = {.tok_hash = 0x1234, .vocab_size = 40000, .eos = 1};
    shard_writer *w;
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    int32_t ids[300];
    for (int i = 0; i < 300; i++) ids[i] = 100 + i;
    shard_record r = {.ids = ids, .n = 300, .source = "t.txt", .line = 1};
    assert_ok(shard_writer_add(w, &r, e));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    loader_source source = {.path = dir, .weight = 1};
    loader_config cfg = {.sources = &source,
                         .n_sources = 1,
                         .seq_len = T,
                         .source_len = S,
                         .decoder_start = START,
                         .spans = rules_of(sentinels)};
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        loader *l;
        cfg.shuffle = shuffle;
        assert_ok(loader_open(&l, &cfg, e));
        int64_t L = spans_longest(&cfg.spans, S, T), cut = spans_of(&cfg.spans, L).cut, seen = 0;
        assert_int_equal(loader_sequences(l), shuffle ? 300 / L : (299 + L - 1) / L);
        for (uint64_t k = 0; k < loader_sequences(l); k++) {
            arrays a, b;
            loader_rows rows = rows_of(&a), again = rows_of(&b);
            int64_t live = loader_fill_rows(l, k, 1, &rows);
            loader_fill_rows(l, k, 1, &again);
            assert_memory_equal(&a, &b, sizeof a);
            assert_true(a.ids[0] == START && a.source_end[0] > 0 &&
                        a.seen_end[0] == a.source_end[0]);
            for (int64_t i = 1; i < live; i++) assert_int_equal(a.ids[i], a.targets[i - 1]);
            for (int64_t i = 0; i < live; i++) seen += a.targets[i] < 30000 && a.targets[i] > 1;
        }
        if (shuffle) assert_int_equal(seen, cut * (int64_t)loader_sequences(l));
        loader_close(l);
    }
    err why = {0};
    loader *l;
    cfg.spans.n_sentinels = 0;
    assert_int_equal(loader_open(&l, &cfg, &why), ST_USAGE);
    assert_non_null(strstr(why.message, "sentinels, the tokenizer has 0"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_spans_restore_the_text),
        cmocka_unit_test(test_lengths_are_those_of_t5),
        cmocka_unit_test(test_cuts_are_spread),
        cmocka_unit_test_setup_teardown(test_pairs, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_refusals, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_texts, scene_open, scene_close)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
