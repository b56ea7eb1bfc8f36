/* Packings other than concat, and orders by score: every claim of packing.h, on sets in which a
 * token's id is its place, against definitions worked out from the document lengths. */
#include "data_test.h"

#include <math.h>
#include <unistd.h>

#include "base/file_fault.h"
#include "data/order/bestfit.h"
#include "data/order/loader.h"

enum { VOCAB = 60000, DOCS = 700, LONGEST = 150 };

/* ---- sets and loaders ---- */

/* Documents by doc_length, with scores: one in five has none. */
static float doc_score(int d) {
    return d % 5 == 3 ? NAN : (float)(mix64((uint64_t)d * 31 + 5) % 1000) / 10;
}

static const char *scored_set(scene *s, const char *name) {
    const char *dir = in_scene(s, name);
    shard_writer_options opt = {
        .tok_hash = 1, .vocab_size = VOCAB, .eos = -1, .shard_tokens = 900, .scores = true};
    shard_writer *w;
    int32_t ids[LONGEST + 16], at = 0;
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    for (int d = 0; d < DOCS; d++) {
        int64_t n = doc_length((uint64_t)d, LONGEST);
        for (int64_t i = 0; i < n; i++) ids[i] = at++;
        shard_record r = {.ids = ids, .n = n, .source = "a.jsonl", .score = doc_score(d)};
        assert_ok(shard_writer_add(w, &r, e));
    }
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    return dir;
}

static status open_packed(loader **l, const char *dir, int T, loader_packing packing,
                          loader_order order, bool mask, err *e) {
    loader_source src = {.path = dir, .weight = 1};
    loader_config cfg = {.sources = &src,
                         .n_sources = 1,
                         .seq_len = T,
                         .document_mask = mask,
                         .shuffle = true,
                         .packing = packing,
                         .order = order,
                         .seed = 4,
                         .eos = -1};
    return loader_open(l, &cfg, e);
}

/* What the set is, token by token: `document` of each, and where it ends. */
typedef struct truth {
    uint64_t N;
    int document[VOCAB];
    uint64_t end[VOCAB];
} truth;

static truth *truth_new(void) {
    truth *k = xcalloc(1, sizeof *k);
    for (int d = 0; d < DOCS; d++) {
        uint64_t n = (uint64_t)doc_length((uint64_t)d, LONGEST), end = k->N + n;
        for (; k->N < end; k->N++) {
            k->document[k->N] = d;
            k->end[k->N] = end;
        }
    }
    assert_true(k->N < VOCAB);
    return k;
}

typedef struct row {
    int T;
    int32_t *ids, *targets, *start, *pos;
} row;

static row row_new(int T) {
    size_t n = (size_t)T;
    return (row){T, xcalloc(n, 4), xcalloc(n, 4), xcalloc(n, 4), xcalloc(n, 4)};
}

static void row_free(row *r) {
    free(r->ids);
    free(r->targets);
    free(r->start);
    free(r->pos);
}

/* ---- rows ---- */

/* A row is whole pieces, then padding. Marks the inputs in `seen`; returns how many there are. */
static int check_row(const row *r, const truth *k, uint8_t *seen, bool mask, int n_inputs) {
    int start = 0;
    for (int t = 0; t < r->T; t++) {
        if (t >= n_inputs) {
            if (t == n_inputs) start = t;
            assert_int_equal(r->ids[t], 0);
            assert_int_equal(r->targets[t], LOADER_IGNORE);
        } else {
            uint64_t at = (uint64_t)r->ids[t];
            bool ends = k->end[at] == at + 1;
            bool begins =
                t > 0 && (r->ids[t - 1] + 1 != r->ids[t] || k->document[at] != k->document[at - 1]);
            if (begins) {
                assert_true(k->end[r->ids[t - 1]] == (uint64_t)r->ids[t - 1] + 1);
                start = t;
            }
            assert_int_equal(r->targets[t], ends ? LOADER_IGNORE : (int32_t)at + 1);
            assert_int_equal(seen[at]++, 0);
        }
        assert_int_equal(r->start[t], mask ? start : 0);
        assert_int_equal(r->pos[t], mask ? t - start : t);
    }
    return n_inputs;
}

/* One pass: what is a target in some document is one exactly once. */
static void check_pass(const char *dir, const truth *k, int T, loader_packing packing, bool mask) {
    loader *l;
    assert_ok(open_packed(&l, dir, T, packing, ORDER_SHUFFLE, mask, e));
    uint8_t *seen = xcalloc(k->N, 1);
    row r = row_new(T);
    int64_t targets = 0, tokens = 0, expected = 0, cut = 0;
    uint64_t n = loader_sequences(l);
    for (uint64_t i = 0; i < n; i++) {
        loader_place p = loader_place_of(l, n + i); /* the second epoch */
        assert_int_equal(p.epoch, 1);
        int64_t live = loader_fill(l, n + i, 1, r.ids, r.targets, r.start, r.pos, NULL);
        assert_int_equal(p.first_tok, r.ids[0]);
        tokens += check_row(&r, k, seen, mask, (int)p.n_inputs);
        targets += live;
    }
    for (int d = 0; d < DOCS; d++) {
        int64_t len = doc_length((uint64_t)d, LONGEST);
        expected += len - 1;
        cut += len > T + 1;
    }
    assert_int_equal(targets, expected);
    packing_totals sum = loader_packing_totals(l);
    assert_int_equal(sum.sequences, n);
    assert_int_equal(sum.targets, targets);
    assert_int_equal(sum.tokens, tokens);
    assert_int_equal(sum.documents, DOCS);
    assert_int_equal(sum.documents_cut, cut);
    assert_ok(loader_error(l, e));
    row_free(&r);
    free(seen);
    loader_close(l);
}

static void test_each_target_once(void **state) {
    const char *dir = counting_set(*state, "a", DOCS, LONGEST, VOCAB, 500);
    truth *k = truth_new();
    const int lengths[] = {1, 2, 3, 16, 63, 64, 65, 149, 150, 1000};
    for (int i = 0; i < ARRAY_LEN(lengths); i++)
        for (int mode = 0; mode < 4; mode++)
            check_pass(dir, k, lengths[i], mode & 1 ? PACKING_BESTFIT : PACKING_NONE, mode & 2);
    free(k);
}

static void test_describe_pieces(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "a", DOCS, LONGEST, VOCAB, 500);
    loader *l;
    assert_ok(open_packed(&l, dir, 100, PACKING_BESTFIT, ORDER_SHUFFLE, true, e));
    row r = row_new(100);
    for (uint64_t i = 0; i < loader_sequences(l); i++) {
        loader_span *span;
        int n, t = 0;
        loader_fill(l, i, 1, r.ids, r.targets, r.start, r.pos, NULL);
        assert_ok(loader_describe(l, i, sc->mem, &span, &n, e));
        for (int s = 0; s < n; s++) {
            assert_int_equal(span[s].row_first, t);
            assert_int_equal(r.start[t], t);
            for (uint64_t tok = span[s].first_tok; tok < span[s].end_tok; tok++)
                assert_int_equal(r.ids[t++], tok);
            assert_in_range(span[s].end_tok, span[s].first_tok + 1, span[s].place.end_tok);
        }
        assert_int_equal(t, loader_place_of(l, i).n_inputs);
    }
    row_free(&r);
    loader_close(l);
}

/* ---- best fit ---- */

/* By definition: largest first, into the fullest bin with room, found by looking at all. */
static int brute_force(int T, const uint32_t *len, int n) {
    int *free_room = xcalloc((size_t)n, sizeof *free_room), bins = 0;
    for (int l = T; l > 0; l--)
        for (int i = 0; i < n; i++) {
            if ((int)len[i] != l) continue;
            int best = -1;
            for (int b = 0; b < bins; b++)
                if (free_room[b] >= l && (best < 0 || free_room[b] < free_room[best])) best = b;
            if (best < 0) free_room[best = bins++] = T;
            free_room[best] -= l;
        }
    free(free_room);
    return bins;
}

static void check_bins(int T, const uint32_t *len, int n, const int32_t *items, const int32_t *ends,
                       int bins) {
    uint8_t *seen = xcalloc((size_t)n, 1);
    int at = 0;
    for (int b = 0; b < bins; b++) {
        uint64_t sum = 0;
        assert_true(ends[b] > at);
        for (; at < ends[b]; at++) {
            assert_int_equal(seen[items[at]]++, 0);
            sum += len[items[at]];
        }
        assert_true(sum <= (uint64_t)T);
    }
    assert_int_equal(at, n);
    free(seen);
}

static void test_best_fit_is_best_fit(void **state) {
    (void)state;
    const int lengths[] = {1, 2, 63, 64, 65, 100, 4095, 4096, 4097, 300000};
    for (int i = 0; i < ARRAY_LEN(lengths); i++) {
        int T = lengths[i];
        uint32_t len[900];
        bestfit *b = bestfit_new(T, ARRAY_LEN(len));
        for (int trial = 0; trial < 6; trial++) { /* the packer is used again */
            int n = 1 + (int)(mix64((uint64_t)trial + 9) % ARRAY_LEN(len));
            uint32_t most = trial % 2 ? (uint32_t)T : (uint32_t)(T + 3) / 4;
            for (int k = 0; k < n; k++)
                len[k] = 1 + (uint32_t)(mix64((uint64_t)(k * 77 + trial)) % most);
            const int32_t *items, *ends;
            int bins = bestfit_pack(b, len, n, &items, &ends);
            assert_int_equal(bins, brute_force(T, len, n));
            check_bins(T, len, n, items, ends, bins);
        }
        bestfit_free(b);
    }
}

/* ---- orders by score ---- */

/* The mean score of a row's documents by tokens; NaN without any. */
static double row_score(const truth *k, uint64_t first, int64_t n) {
    double sum = 0, tokens = 0;
    for (int64_t i = 0; i < n; i++) {
        float score = doc_score(k->document[first + (uint64_t)i]);
        if (isnan(score)) continue;
        sum += (double)score;
        tokens++;
    }
    return tokens > 0 ? sum / tokens : (double)NAN;
}

static double packed_score(const truth *k, const row *r, int64_t n) {
    double sum = 0, tokens = 0;
    for (int64_t i = 0; i < n; i++) {
        double score = row_score(k, (uint64_t)r->ids[i], 1);
        if (isnan(score)) continue;
        sum += score;
        tokens++;
    }
    return tokens > 0 ? sum / tokens : (double)NAN;
}

static void check_order(loader *l, const truth *k, int T, bool descending) {
    row r = row_new(T);
    uint64_t n = loader_sequences(l), scored = 0, seen_none = 0;
    double last = 0;
    for (uint64_t i = 0; i < n; i++) {
        loader_place p = loader_place_of(l, i), again = loader_place_of(l, 3 * n + i);
        assert_int_equal(p.first_tok, again.first_tok); /* the same each epoch */
        loader_fill(l, i, 1, r.ids, r.targets, r.start, r.pos, NULL);
        double score = packed_score(k, &r, p.n_inputs);
        if (isnan(score)) {
            seen_none++;
            continue;
        }
        assert_int_equal(seen_none, 0);
        if (scored++) assert_true(descending ? score <= last + 1e-4 : score >= last - 1e-4);
        last = score;
    }
    assert_true(scored > n / 2);
    assert_ok(loader_error(l, e));
    row_free(&r);
}

static void test_orders_by_score(void **state) {
    const char *dir = scored_set(*state, "a");
    truth *k = truth_new();
    const loader_packing packings[] = {PACKING_CONCAT, PACKING_BESTFIT, PACKING_NONE};
    for (int i = 0; i < ARRAY_LEN(packings); i++)
        for (int descending = 0; descending < 2; descending++)
            for (int T = 7; T < 200; T += 60) {
                loader *l;
                loader_order order = descending ? ORDER_DESCENDING : ORDER_ASCENDING;
                assert_ok(open_packed(&l, dir, T, packings[i], order, true, e));
                if (packings[i] == PACKING_CONCAT)
                    assert_int_equal(loader_sequences(l), k->N / (uint64_t)T);
                check_order(l, k, T, descending);
                loader_close(l);
            }
    free(k);
}

static void test_order_needs_scores(void **state) {
    const char *dir = counting_set(*state, "a", 50, 20, VOCAB, 0);
    loader *l;
    err e = {0};
    assert_int_equal(open_packed(&l, dir, 8, PACKING_CONCAT, ORDER_ASCENDING, false, &e), ST_USAGE);
    assert_string_equal(e.where, "data.order");
    assert_non_null(strstr(e.hint, "score="));
}

/* ---- the file ---- */

static void expect_sequences(const char *dir, uint64_t n) {
    loader *l;
    assert_ok(open_packed(&l, dir, 32, PACKING_BESTFIT, ORDER_SHUFFLE, true, e));
    assert_int_equal(loader_sequences(l), n);
    loader_close(l);
}

static uint64_t make_and_count(const char *dir) {
    loader *l;
    assert_ok(open_packed(&l, dir, 32, PACKING_BESTFIT, ORDER_SHUFFLE, true, e));
    uint64_t n = loader_sequences(l);
    loader_close(l);
    return n;
}

static void patch(const char *path, long offset, int whence, const void *bytes, size_t n) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, whence), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Used when it fits, made anew when it is of other data, cut short, or damaged at its end. */
static void test_file_is_remade_when_needed(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "a", DOCS, LONGEST, VOCAB, 500);
    uint64_t n = make_and_count(dir);
    const char *file = in_scene(sc, "a/pack-bestfit-32.seq");
    uint64_t hash, again;
    assert_ok(hash_file(file, &hash, e));
    assert_true(file_fault_arm("create:1"));
    expect_sequences(dir, n); /* only read */
    assert_false(file_fault_struck());
    file_fault_arm(NULL);

    patch(file, -20, SEEK_END, "x", 1); /* a total in the trailer */
    expect_sequences(dir, n);
    assert_ok(hash_file(file, &again, e));
    assert_int_equal(hash, again);
    assert_int_equal(truncate(file, 1000), 0);
    expect_sequences(dir, n);
    assert_int_equal(truncate(file, 0), 0);
    expect_sequences(dir, n);
    assert_ok(hash_file(file, &again, e));
    assert_int_equal(hash, again);

    counting_set(sc, "a", DOCS / 2, LONGEST, VOCAB, 500); /* other data, the same folder */
    assert_true(make_and_count(dir) < n);
}

/* As many tokens and documents, other bounds. */
static void test_index_of_other_documents(void **state) {
    scene *sc = *state;
    const char *dir = in_scene(sc, "a");
    for (int turn = 0; turn < 2; turn++) {
        shard_writer_options opt = {.tok_hash = 1, .vocab_size = 30, .eos = -1};
        shard_writer *w;
        assert_ok(shard_writer_open(&w, dir, &opt, e));
        for (int d = 0; d < 100; d++) {
            int32_t ids[20] = {d % 30};
            shard_record r = {.ids = ids, .n = d % 2 == turn ? 10 : 20, .source = "a.txt"};
            assert_ok(shard_writer_add(w, &r, e));
        }
        assert_ok(shard_writer_finish(w, e));
        shard_writer_free(w);
        loader *l;
        assert_ok(open_packed(&l, dir, 32, PACKING_BESTFIT, ORDER_SHUFFLE, true, e));
        for (uint64_t i = 0; i < loader_sequences(l); i++) {
            loader_span *span;
            int n;
            assert_ok(loader_describe(l, i, sc->mem, &span, &n, e));
            for (int k = 0; k < n; k++) {
                assert_int_equal(span[k].first_tok, span[k].place.first_tok);
                assert_int_equal(span[k].end_tok, span[k].place.end_tok);
            }
        }
        loader_close(l);
    }
}

/* What a damaged index says is a fault of the run, whatever it says. */
static void test_damaged_pieces(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "a", DOCS, LONGEST, VOCAB, 500);
    const char *file = in_scene(sc, "a/pack-bestfit-32.seq");
    uint64_t n = make_and_count(dir);
    int64_t size = file_size(file), body = size - 96 - 8 * (int64_t)n;
    row r = row_new(32);
    int struck = 0;
    for (uint64_t trial = 0; trial < 300; trial++) {
        long at = (long)(mix64(trial + 3) % (uint64_t)(size - 96));
        if (trial % 3 == 0) at = (long)(body + (int64_t)(mix64(trial) % (8 * n)));
        uint8_t byte = (uint8_t)mix64(trial * 3 + 1), old;
        FILE *f = fopen(file, "rb");
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        assert_int_equal(fread(&old, 1, 1, f), 1);
        fclose(f);
        patch(file, at, SEEK_SET, &byte, 1);
        loader *l;
        assert_ok(open_packed(&l, dir, 32, PACKING_BESTFIT, ORDER_SHUFFLE, true, e));
        for (uint64_t i = 0; i < n; i += 1) {
            loader_fill(l, i, 1, r.ids, r.targets, r.start, r.pos, NULL);
            for (int t = 0; t < 32; t++) assert_in_range(r.start[t], 0, t);
        }
        err e = {0};
        status st = loader_error(l, &e);
        if (st != ST_OK) assert_non_null(strstr(e.message, "pack-bestfit-32.seq is corrupt"));
        struck += st != ST_OK;
        loader_close(l);
        patch(file, at, SEEK_SET, &old, 1);
    }
    assert_true(struck > 30);
    row_free(&r);
}

/* No write, sync or rename may fail unnoticed, or leave half an index behind. */
static void test_failures_while_making(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "a", DOCS, LONGEST, VOCAB, 500);
    const char *kinds[] = {"create", "write", "fsync", "rename", "read"};
    for (int k = 0; k < ARRAY_LEN(kinds); k++)
        for (int nth = 1; nth < 60; nth++) {
            char spec[32];
            snprintf(spec, sizeof spec, "%s:%d", kinds[k], nth);
            assert_true(file_fault_arm(spec));
            loader *l;
            err why = {0};
            status st = open_packed(&l, dir, 32, PACKING_BESTFIT, ORDER_SHUFFLE, true, &why);
            bool struck = file_fault_struck();
            file_fault_arm(NULL);
            assert_true(struck ? st != ST_OK && why.message[0] && why.where[0] : st == ST_OK);
            if (st == ST_OK) loader_close(l);
            char **names;
            int n;
            assert_ok(file_list_dir(sc->mem, dir, &names, &n, e));
            for (int i = 0; i < n; i++) assert_null(strstr(names[i], ".tmp"));
            unlink(in_scene(sc, "a/pack-bestfit-32.seq"));
            if (!struck) break;
        }
    make_and_count(dir);
}

/* The same documents as a set of ours and as a file without index, where the ends are found by the
 * end-of-text token: the same pieces. */
static void test_files_without_index(void **state) {
    enum { EOT = 7 };
    scene *sc = *state;
    const char *dir = in_scene(sc, "own"), *file = in_scene(sc, "theirs.bin");
    shard_writer_options opt = {.tok_hash = 1, .vocab_size = 1000, .eos = EOT};
    shard_writer *w;
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    for (uint64_t d = 0; d < 20000; d++) { /* several blocks of tokens */
        int32_t ids[LONGEST + 16];
        int64_t n = doc_length(d, LONGEST);
        for (int64_t i = 0; i <= n; i++) {
            ids[i] = 10 + (int32_t)(mix64(d * 1000 + (uint64_t)i) % 900);
            uint16_t id = (uint16_t)(i == n ? EOT : ids[i]);
            assert_int_equal(fwrite(&id, 2, 1, f), 1);
        }
        shard_record r = {.ids = ids, .n = n, .source = "a.txt"};
        assert_ok(shard_writer_add(w, &r, e));
    }
    fclose(f);
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    const char *paths[] = {dir, file};
    const char *names[] = {"own/pack-bestfit-64.seq", "theirs.bin.pack-bestfit-64.seq"};
    char *data[2];
    size_t len[2];
    for (int i = 0; i < 2; i++) {
        loader_source src = {
            .path = paths[i], .weight = 1, .format = i ? SHARDS_NANOGPT : SHARDS_AUTO};
        loader_config cfg = {.sources = &src,
                             .n_sources = 1,
                             .seq_len = 64,
                             .shuffle = true,
                             .packing = PACKING_BESTFIT,
                             .eos = EOT,
                             .tok_vocab = 1000};
        loader *l;
        assert_ok(loader_open(&l, &cfg, e));
        row r = row_new(64);
        for (uint64_t k = 0; k < 500; k++)
            loader_fill(l, k, 1, r.ids, r.targets, r.start, r.pos, NULL);
        row_free(&r);
        assert_ok(loader_error(l, e));
        loader_close(l);
        assert_ok(file_read_all(in_scene(sc, names[i]), &data[i], &len[i], e));
    }
    assert_int_equal(len[0], len[1]);
    assert_memory_equal(data[0], data[1], len[0] - 96);
    free(data[0]);
    free(data[1]);
}

static void test_nothing_to_learn(void **state) {
    scene *sc = *state;
    shard_writer_options opt = {.tok_hash = 1, .vocab_size = 10, .eos = -1};
    shard_writer *w;
    const char *dir = in_scene(sc, "a");
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    for (int32_t d = 0; d < 10; d++) {
        shard_record r = {.ids = &d, .n = 1, .source = "a.txt"};
        assert_ok(shard_writer_add(w, &r, e));
    }
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    loader *l;
    err e = {0};
    assert_int_equal(open_packed(&l, dir, 4, PACKING_BESTFIT, ORDER_SHUFFLE, true, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "nothing to predict"));
    assert_false(file_exists(in_scene(sc, "a/pack-bestfit-4.seq")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_target_once, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_describe_pieces, scene_open, scene_close),
        cmocka_unit_test(test_best_fit_is_best_fit),
        cmocka_unit_test_setup_teardown(test_orders_by_score, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_order_needs_scores, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_file_is_remade_when_needed, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_index_of_other_documents, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_damaged_pieces, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_failures_while_making, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_files_without_index, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_nothing_to_learn, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
