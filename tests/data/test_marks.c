/* Sets with marks: what is written is read back; targets, pairs and labels of the loader. */
#include "data_test.h"

#include "data/order/prefetch.h"

enum { T = 8, PAIRS = 6, VOCAB = 1000 };

/* Document d is d * 20, d * 20 + 1, ...; its first three tokens are a prompt, the rest an answer. */
static int64_t length_of(int d) {
    return d == 3 ? 14 : d == 4 ? T + 1 : 5 + d % 4;
}

static uint8_t mark_at(int64_t i, bool rejected) {
    if (i < 3) return mark_of(ROLE_USER, false);
    return mark_of(ROLE_ASSISTANT, true) | (rejected ? MARK_REJECTED : 0);
}

typedef bool rejects(int d);
static bool second(int d) {
    return d % 2 == 1;
}
static bool no_one(int d) {
    (void)d;
    return false;
}
static bool third_pair(int d) {
    return d / 2 % 3 == 2;
}

static shard_writer_options options_of(int sequences, bool labels) {
    return (shard_writer_options){.tok_hash = 0x1234,
                                  .vocab_size = VOCAB,
                                  .eos = -1,
                                  .shard_tokens = 30,
                                  .chat = {.marks = true,
                                           .labels = labels,
                                           .sequences = sequences,
                                           .template_hash = 7,
                                           .variables_hash = 8}};
}

static void add(shard_writer *w, int d, rejects *rejected) {
    int32_t ids[32];
    uint8_t marks[32];
    int64_t n = length_of(d);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(d * 20 + i);
        marks[i] = mark_at(i, rejected(d));
    }
    shard_record r = {.ids = ids,
                      .marks = marks,
                      .n = n,
                      .source = "chats.jsonl",
                      .line = (uint32_t)d + 1,
                      .text_bytes = (uint64_t)n};
    assert_ok(shard_writer_add(w, &r, e));
}

static const char *make_set(scene *s, const char *name, int documents, int sequences, bool labels,
                            rejects *rejected) {
    const char *dir = in_scene(s, name);
    shard_writer_options opt = options_of(sequences, labels);
    shard_writer *w;
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    for (int d = 0; d < documents; d++) add(w, d, rejected);
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    return dir;
}

static void check_marks(const char *dir, int documents, rejects *rejected) {
    shards *s;
    assert_ok(open_set(&s, dir, e));
    assert_ok(shards_verify(s, e));
    assert_true(s->n_shards > 2);
    uint8_t *marks = xcalloc(s->totals.tokens, 1), *at = marks;
    assert_ok(shards_copy_marks(s, 0, (int64_t)s->totals.tokens, marks, e));
    for (int d = 0; d < documents; d++)
        for (int64_t i = 0; i < length_of(d); i++) assert_int_equal(*at++, mark_at(i, rejected(d)));
    assert_int_equal(at - marks, s->totals.tokens);
    free(marks);
    shards_close(s);
}

static void test_written_marks_are_read_back(void **state) {
    const char *dir = make_set(*state, "chat", 12, 1, false, no_one);
    check_marks(dir, 12, no_one);
    shards *s;
    assert_ok(open_set(&s, dir, e));
    assert_true(s->chat.marks && !s->chat.labels);
    assert_int_equal(s->chat.sequences, 1);
    assert_int_equal(s->chat.template_hash, 7);
    assert_int_equal(s->chat.variables_hash, 8);
    uint64_t fingerprint = s->fingerprint;
    shards_close(s);
    assert_ok(open_set(&s, make_set(*state, "other", 12, 1, false, second), e));
    assert_true(s->fingerprint != fingerprint); /* the same tokens, other marks */
    shards_close(s);
}

/* A byte of the marks is changed, and one is missing. */
static void test_damage_is_noticed(void **state) {
    const char *dir = make_set(*state, "damaged", 12, 1, false, no_one);
    const char *path = path_join(((scene *)*state)->mem, dir, "shard-00001.mrk");
    FILE *f = fopen(path, "r+b");
    assert_true(fseek(f, 1, SEEK_SET) == 0 && fputc(0x3f, f) == 0x3f && fclose(f) == 0);
    shards *s;
    err why = {0};
    assert_ok(open_set(&s, dir, e));
    assert_int_equal(shards_verify(s, &why), ST_FORMAT);
    assert_non_null(strstr(why.message, "shard-00001.mrk"));
    assert_int_equal(mark_get_role(0xff), ROLE_TEMPLATE); /* a number that indexes tables */
    shards_close(s);
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(open_set(&s, dir, &why), ST_FORMAT);
    assert_non_null(strstr(why.message, "truncated"));
}

static void test_writing_goes_on(void **state) {
    const char *dir = in_scene(*state, "resumed");
    shard_writer_options opt = options_of(1, false), other = options_of(2, false);
    shard_writer *w;
    json_t *at = json_object();
    err why = {0};
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    for (int d = 0; d < 7; d++) add(w, d, no_one);
    assert_ok(shard_writer_sync(w, at, e));
    add(w, 7, no_one);
    shard_writer_free(w);
    assert_int_equal(shard_writer_resume(&w, dir, &other, at, &why), ST_FORMAT);
    assert_ok(shard_writer_resume(&w, dir, &opt, at, e));
    for (int d = 7; d < 12; d++) add(w, d, no_one);
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    json_decref(at);
    check_marks(dir, 12, no_one);
    other.append = true;
    assert_int_equal(shard_writer_open(&w, dir, &other, &why), ST_USAGE);
    assert_non_null(strstr(why.message, "samples of another kind"));
}

/* ---- the loader ---- */

static loader *open_with(const char *dir, loader_config cfg) {
    loader_source src = {.path = dir, .weight = 1};
    loader *l;
    cfg.sources = &src;
    cfg.n_sources = 1;
    cfg.seq_len = T;
    cfg.document_mask = true;
    assert_ok(loader_open(&l, &cfg, e));
    return l;
}

/* A row of one document: its inputs, then padding; its answer is the target. */
static int check_row(const int32_t *ids, const int32_t *targets) {
    int d = ids[0] / 20;
    int64_t n = length_of(d);
    for (int64_t t = 0; t < T; t++) {
        assert_int_equal(ids[t], t < n ? d * 20 + t : 0);
        assert_int_equal(targets[t], t + 1 < n && t + 1 >= 3 ? d * 20 + t + 1 : LOADER_IGNORE);
    }
    return d;
}

static void test_only_answers_are_targets(void **state) {
    const char *dir = make_set(*state, "sft", 12, 1, false, no_one);
    loader *l = open_with(dir, (loader_config){.shuffle = true, .packing = PACKING_NONE});
    int32_t ids[T], targets[T];
    loader_row info;
    int seen[12] = {0};
    assert_int_equal(loader_sequences(l), 12);
    for (uint64_t i = 0; i < 12; i++) {
        int64_t live = loader_fill(l, i, 1, ids, targets, NULL, NULL, &info);
        int d = check_row(ids, targets);
        seen[d]++;
        assert_int_equal(live, (length_of(d) < T + 1 ? length_of(d) : T + 1) - 3);
        assert_true(info.label == 1.0F);
        assert_int_equal(info.n_inputs, length_of(d) < T ? length_of(d) : T);
    }
    for (int d = 0; d < 12; d++) assert_int_equal(seen[d], 1);
    assert_int_equal(loader_packing_totals(l).documents_cut, 1); /* 14 tokens; T + 1 fit */
    loader_close(l);
}

/* Packed or in one stream, the targets of a pass are the trained tokens, each once. */
static void test_every_packing_has_the_same_targets(void **state) {
    const char *dir = make_set(*state, "packed", 12, 1, false, no_one);
    loader *l = open_with(dir, (loader_config){.shuffle = true, .packing = PACKING_AUTO});
    assert_int_equal(loader_get_packing(l), PACKING_BESTFIT);
    int32_t ids[T], targets[T], start[T];
    int seen[240] = {0};
    for (uint64_t i = 0; i < loader_sequences(l); i++) {
        loader_fill(l, i, 1, ids, targets, start, NULL, NULL);
        for (int t = 0; t < T; t++) {
            if (targets[t] == LOADER_IGNORE) continue;
            assert_int_equal(targets[t], ids[t] + 1);
            assert_int_equal(ids[start[t]] % 20, 0); /* attention begins with the document */
            seen[targets[t]]++;
        }
    }
    for (int id = 0; id < 240; id++) {
        int64_t n = length_of(id / 20), kept = n < T + 1 ? n : T + 1;
        assert_int_equal(seen[id], id % 20 >= 3 && id % 20 < kept);
    }
    loader_close(l);
    l = open_with(dir, (loader_config){.shuffle = true, .packing = PACKING_CONCAT});
    for (uint64_t i = 0; i < loader_sequences(l); i++) {
        loader_fill(l, i, 1, ids, targets, NULL, NULL, NULL);
        for (int t = 0; t < T; t++)
            assert_true(targets[t] == LOADER_IGNORE || targets[t] % 20 >= 3);
    }
    loader_close(l);
}

static void test_validation_takes_each_conversation_once(void **state) {
    const char *dir = make_set(*state, "valid", 12, 1, false, no_one);
    loader *l = open_with(dir, (loader_config){0});
    int32_t ids[4 * T], targets[4 * T];
    for (int i = 0; i < 12; i += 4) {
        loader_fill(l, (uint64_t)i, 4, ids, targets, NULL, NULL, NULL);
        for (int b = 0; b < 4; b++)
            assert_int_equal(check_row(ids + b * T, targets + b * T), i + b);
    }
    assert_int_equal(loader_fill(l, 12, 4, ids, targets, NULL, NULL, NULL), 0);
    assert_int_equal(loader_place_of(l, 12).n_inputs, 0);
    assert_int_equal(loader_place_of(l, 11).n_inputs, length_of(11) < T ? length_of(11) : T);
    loader_close(l);
}

static void check_pairs(const char *dir, bool labels, rejects *rejected) {
    loader *l = open_with(
        dir, (loader_config){
                 .shuffle = true, .packing = PACKING_AUTO, .sequences = 2, .labels = labels});
    int32_t ids[2 * T], targets[2 * T], order[2][PAIRS];
    loader_row info[2];
    assert_int_equal(loader_sequences(l), 2 * PAIRS);
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[PAIRS] = {0};
        for (int i = 0; i < PAIRS; i++) {
            uint64_t sample = (uint64_t)(epoch * PAIRS + i) * 2;
            loader_fill(l, sample, 2, ids, targets, NULL, NULL, info);
            int d = check_row(ids, targets);
            assert_int_equal(d % 2, 0);
            assert_int_equal(check_row(ids + T, targets + T), d + 1);
            assert_int_equal(info[0].label, !rejected(d));
            assert_int_equal(info[1].label, !rejected(d + 1));
            assert_int_equal(loader_place_of(l, sample + 1).epoch, epoch);
            seen[d / 2]++;
            order[epoch][i] = d / 2;
        }
        for (int i = 0; i < PAIRS; i++) assert_int_equal(seen[i], 1);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    assert_int_equal(loader_samples_of(l, 0, 8), 8);
    loader_close(l);
}

static void test_pairs_stay_together(void **state) {
    check_pairs(make_set(*state, "pairs", 2 * PAIRS, 2, false, second), false, second);
    check_pairs(make_set(*state, "kto", 2 * PAIRS, 2, true, third_pair), true, third_pair);
}

static void test_pairs_are_read_ahead_with_labels(void **state) {
    const char *dir = make_set(*state, "ahead", 2 * PAIRS, 2, false, second);
    loader *l =
        open_with(dir, (loader_config){.shuffle = true, .packing = PACKING_NONE, .sequences = 2});
    prefetch *p = prefetch_new(l, 4, 8, true);
    int32_t ids[4 * T], targets[4 * T], start[4 * T], pos[4 * T];
    loader_row info[4];
    assert_true(prefetch_begin(p, 0, 8) > 0);
    for (int m = 0; m < 2; m++) {
        prefetch_take(
            p, m,
            &(loader_rows){
                .ids = ids, .targets = targets, .start = start, .pos = pos, .info = info});
        for (int b = 0; b < 4; b++) {
            assert_int_equal(check_row(ids + b * T, targets + b * T) % 2, b % 2);
            assert_int_equal(info[b].label, b % 2 == 0);
        }
    }
    prefetch_free(p);
    loader_close(l);
}

static void expect_refusal(const char *dir, loader_config cfg, const char *where,
                           const char *words) {
    loader_source src = {.path = dir, .weight = 1};
    loader *l;
    err why = {0};
    cfg.sources = &src;
    cfg.n_sources = 1;
    cfg.seq_len = T;
    cfg.shuffle = true;
    assert_int_equal(loader_open(&l, &cfg, &why), ST_USAGE);
    assert_string_equal(why.where, where);
    if (!strstr(why.message, words)) fail_msg("\"%s\" lacks \"%s\"", why.message, words);
    assert_true(why.hint[0] != '\0');
}

static void test_samples_of_another_kind_are_refused(void **state) {
    const char *sft = make_set(*state, "a", 12, 1, false, no_one);
    const char *pairs = make_set(*state, "b", 12, 2, false, second);
    const char *kto = make_set(*state, "c", 12, 2, true, third_pair);
    const char *text = counting_set(*state, "d", 20, 30, VOCAB, 400);
    loader_config single = {0}, two = {.sequences = 2}, labels = {.sequences = 2, .labels = true};
    expect_refusal(sft, two, "train.objective", "holds single sequences, the objective learns");
    expect_refusal(text, two, "train.objective", "holds single sequences, the objective learns");
    expect_refusal(pairs, single, "train.objective", "holds pairs of a chosen and a rejected");
    expect_refusal(pairs, labels, "train.objective", "learns from single answers with labels");
    expect_refusal(kto, two, "train.objective", "holds single answers with labels");
    two.packing = PACKING_BESTFIT;
    expect_refusal(pairs, two, "data.packing", "pairs stay together");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_written_marks_are_read_back, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_damage_is_noticed, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_writing_goes_on, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_only_answers_are_targets, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_every_packing_has_the_same_targets, scene_open,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_validation_takes_each_conversation_once, scene_open,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_pairs_stay_together, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_pairs_are_read_ahead_with_labels, scene_open,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_samples_of_another_kind_are_refused, scene_open,
                                        scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
