/* The loader: every claim of loader.h, on sets whose i-th token is i % vocab. */
#include "data_test.h"

#include <math.h>

#include "base/file_fault.h"
#include "data/order/loader.h"
#include "data/shard/shard_format.h"

typedef struct rows {
    int B, T;
    int32_t *ids, *targets, *start, *pos;
} rows;

static rows rows_new(int B, int T) {
    size_t n = (size_t)B * (size_t)T;
    rows r = {B, T, xcalloc(n, 4), xcalloc(n, 4), xcalloc(n, 4), xcalloc(n, 4)};
    memset(r.ids, 0x7f, n * 4); /* what is not written would show */
    memset(r.targets, 0x7f, n * 4);
    return r;
}

static void rows_free(rows *r) {
    free(r->ids);
    free(r->targets);
    free(r->start);
    free(r->pos);
}

static int64_t rows_fill(rows *r, loader *l, uint64_t first) {
    return loader_fill(l, first, r->B, r->ids, r->targets, r->start, r->pos, NULL);
}

static loader *open_one(const char *dir, int T, bool mask, bool shuffle, uint64_t seed) {
    loader_source src = {.path = dir, .weight = 1};
    loader_config cfg = {.sources = &src,
                         .n_sources = 1,
                         .seq_len = T,
                         .document_mask = mask,
                         .shuffle = shuffle,
                         .seed = seed,
                         .eos = -1};
    loader *l = NULL;
    assert_ok(loader_open(&l, &cfg, e));
    return l;
}

enum { VOCAB = 60000 };

static void test_epoch_covers_each_sequence_once(void **state) {
    const char *dir = counting_set(*state, "a", 700, 200, VOCAB, 500);
    const int T = 32;
    loader *l = open_one(dir, T, false, true, 5);
    uint64_t N = loader_totals(l).tokens, n = loader_sequences(l);
    assert_int_equal(n, N / (uint64_t)T);
    assert_true(N < VOCAB); /* so an id is a place */
    rows r = rows_new(1, T);
    uint64_t first_of_epoch[3];
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        uint8_t *seen = xcalloc(N, 1);
        uint64_t in_order = 0, previous = 0;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t sample = epoch * n + i;
            assert_int_equal(loader_place_of(l, sample).epoch, epoch);
            assert_int_equal(rows_fill(&r, l, sample), T);
            for (int t = 0; t < T; t++) {
                assert_int_equal(seen[r.ids[t]]++, 0);
                assert_int_equal(r.targets[t], (uint64_t)(r.ids[t] + 1) % N);
                assert_int_equal(r.pos[t], t);
                assert_int_equal(r.start[t], 0);
            }
            in_order += i && (uint64_t)r.ids[0] == (previous + (uint64_t)T) % N;
            previous = (uint64_t)r.ids[0];
            if (i == 0) first_of_epoch[epoch] = previous;
        }
        assert_true(in_order < n / 4);
        uint64_t left = 0;
        for (uint64_t i = 0; i < N; i++) left += !seen[i];
        assert_int_equal(left, N % (uint64_t)T);
        free(seen);
    }
    assert_true(first_of_epoch[0] != first_of_epoch[1] || first_of_epoch[1] != first_of_epoch[2]);
    rows_free(&r);
    loader_close(l);
}

/* Each epoch cuts the ring elsewhere and goes through it in another order. */
static void test_epochs_differ(void **state) {
    const char *dir = counting_set(*state, "a", 700, 200, VOCAB, 500);
    const uint64_t T = 32;
    loader *l = open_one(dir, (int)T, false, true, 5);
    uint64_t n = loader_sequences(l), N = loader_totals(l).tokens, phase[4], same = 0;
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        loader_place p = loader_place_of(l, epoch * n);
        phase[epoch] = (p.first_tok + N - p.sequence * T % N) % N;
        for (uint64_t i = 0; epoch && i < n; i++)
            same += loader_place_of(l, epoch * n + i).sequence == loader_place_of(l, i).sequence;
    }
    assert_true(same < 12); /* two permutations meet in one place on average */
    assert_true(phase[0] != phase[1] && phase[1] != phase[2] && phase[2] != phase[3]);
    loader_close(l);
}

/* With cut_once each epoch has the same sequences, and in_turn goes through them in their own order, with the same rows. */
static void check_same_sequences(const loader_config *base, uint64_t padding) {
    loader *l = NULL, *turn = NULL;
    loader_config cfg = *base;
    cfg.cut_once = true;
    assert_ok(loader_open(&l, &cfg, e));
    cfg.in_turn = true;
    assert_ok(loader_open(&turn, &cfg, e));
    uint64_t n = loader_sequences(l), moved = 0;
    assert_int_equal(loader_sequences(turn), n);
    rows a = rows_new(1, base->seq_len), b = rows_new(1, base->seq_len);
    for (uint64_t i = 0; i < 2 * n; i++) {
        loader_place p = loader_place_of(l, i);
        assert_int_equal(rows_fill(&a, l, i), rows_fill(&b, turn, p.sequence));
        assert_int_equal(loader_place_of(turn, p.sequence).sequence, p.sequence);
        assert_memory_equal(a.ids, b.ids, 4 * (size_t)base->seq_len);
        assert_memory_equal(a.start, b.start, 4 * (size_t)base->seq_len);
        assert_memory_equal(a.targets, b.targets, 4 * (size_t)base->seq_len);
        moved += p.sequence != i % n;
    }
    assert_true(moved > n);
    for (uint64_t i = n; i < n + padding; i++) assert_int_equal(rows_fill(&b, turn, i), 0);
    assert_ok(loader_error(turn, e));
    rows_free(&a);
    rows_free(&b);
    loader_close(l);
    loader_close(turn);
}

static void test_same_sequences(void **state) {
    loader_source src = {.path = counting_set(*state, "a", 700, 200, VOCAB, 500), .weight = 1};
    for (int packing = PACKING_CONCAT; packing <= PACKING_NONE; packing++) {
        loader_config cfg = {.sources = &src,
                             .n_sources = 1,
                             .seq_len = 32,
                             .document_mask = packing % 2,
                             .shuffle = true,
                             .packing = (loader_packing)packing,
                             .seed = 4,
                             .eos = -1};
        check_same_sequences(&cfg, 3);
    }
}

static void test_seed_changes_order(void **state) {
    const char *dir = counting_set(*state, "a", 300, 100, VOCAB, 0);
    loader *a = open_one(dir, 8, false, true, 1), *b = open_one(dir, 8, false, true, 2);
    int same = 0;
    for (uint64_t i = 0; i < 50; i++)
        same += loader_place_of(a, i).first_tok == loader_place_of(b, i).first_tok;
    assert_true(same < 10);
    loader_close(a);
    loader_close(b);
}

/* Batches of any size starting anywhere give the same rows as one sample at a time. */
static void test_seek_equals_sequential(void **state) {
    const char *dir = counting_set(*state, "a", 400, 90, VOCAB, 300);
    loader *l = open_one(dir, 24, true, true, 3);
    loader *again = open_one(dir, 24, true, true, 3);
    rows all = rows_new(64, 24), some = rows_new(5, 24);
    rows_fill(&all, l, 1000);
    for (int b = 59; b >= 0; b -= 7) {
        rows_fill(&some, again, 1000 + (uint64_t)b);
        size_t at = (size_t)b * 24, bytes = 5 * 24 * 4;
        assert_memory_equal(some.ids, all.ids + at, bytes);
        assert_memory_equal(some.targets, all.targets + at, bytes);
        assert_memory_equal(some.start, all.start + at, bytes);
        assert_memory_equal(some.pos, all.pos + at, bytes);
    }
    rows_free(&all);
    rows_free(&some);
    loader_close(l);
    loader_close(again);
}

/* Masks by definition, from the document lengths, one token at a time. */
static void check_masked_row(const rows *r, const int64_t *doc_of, uint64_t N) {
    int start = 0;
    for (int t = 0; t < r->T; t++) {
        uint64_t at = (uint64_t)r->ids[t], next = (at + 1) % N;
        if (t > 0 && doc_of[at] != doc_of[r->ids[t - 1]]) start = t;
        assert_int_equal(r->start[t], start);
        assert_int_equal(r->pos[t], t - start);
        bool same = doc_of[at] == doc_of[next];
        assert_int_equal(r->targets[t], same ? (int32_t)next : LOADER_IGNORE);
    }
}

static void test_masks_and_positions(void **state) {
    const int n_docs = 600;
    const char *dir = counting_set(*state, "a", n_docs, 150, VOCAB, 700);
    int64_t *doc_of = xcalloc(VOCAB, sizeof *doc_of);
    uint64_t N = 0;
    for (int d = 0; d < n_docs; d++)
        for (int64_t i = doc_length((uint64_t)d, 150); i > 0; i--) doc_of[N++] = d;
    const int lengths[] = {1, 2, 7, 64, 333};
    for (int k = 0; k < ARRAY_LEN(lengths); k++) {
        loader *l = open_one(dir, lengths[k], true, true, 9);
        assert_int_equal(loader_totals(l).tokens, N);
        rows r = rows_new(1, lengths[k]);
        for (uint64_t i = 0; i < 2 * loader_sequences(l); i++) {
            int64_t live = rows_fill(&r, l, i), counted = 0;
            check_masked_row(&r, doc_of, N);
            for (int t = 0; t < r.T; t++) counted += r.targets[t] != LOADER_IGNORE;
            assert_int_equal(live, counted);
        }
        assert_ok(loader_error(l, e));
        rows_free(&r);
        loader_close(l);
    }
    free(doc_of);
}

/* Each token but the first is a target once, in order; the tail is padding. */
static void test_validation_covers_all_once(void **state) {
    const char *dir = counting_set(*state, "a", 97, 60, VOCAB, 200);
    const int lengths[] = {1, 5, 16, 100000};
    for (int k = 0; k < ARRAY_LEN(lengths); k++) {
        int T = lengths[k];
        loader *l = open_one(dir, T, false, false, 0);
        int64_t next = 1, N = (int64_t)loader_totals(l).tokens;
        uint64_t n = loader_sequences(l);
        assert_int_equal(n, (N - 1) / T + ((N - 1) % T != 0));
        rows r = rows_new(3, T);
        for (uint64_t first = 0; first < n; first += 3) {
            rows_fill(&r, l, first);
            for (int64_t i = 0; i < 3 * (int64_t)T; i++) {
                assert_in_range(r.ids[i], 0, VOCAB - 1);
                if (next < N) {
                    assert_int_equal(r.ids[i], next - 1);
                    assert_int_equal(r.targets[i], next++);
                } else {
                    assert_int_equal(r.targets[i], LOADER_IGNORE);
                }
            }
        }
        assert_int_equal(next, N);
        rows_free(&r);
        loader_close(l);
    }
}

static void test_sources_are_told_apart(void **state) {
    scene *sc = *state;
    loader_source src[] = {{.path = counting_set(sc, "a", 300, 50, VOCAB, 0), .weight = 3},
                           {.path = counting_set(sc, "b", 90, 50, VOCAB, 0), .weight = 1}};
    loader_config cfg = {.sources = src, .n_sources = 2, .seq_len = 16, .shuffle = true};
    loader *l;
    assert_ok(loader_open(&l, &cfg, e));
    assert_true(fabs(loader_source_share(l, 0) - 0.75) < 1e-9);
    uint64_t count[2] = {0}, n1 = loader_source_shards(l, 1)->totals.tokens / 16;
    uint8_t *seen = xcalloc(n1, 1);
    for (uint64_t i = 0; i < 4 * n1; i++) {
        loader_place p = loader_place_of(l, i);
        count[p.source]++;
        if (p.source == 1) assert_int_equal(seen[p.sequence]++, 0);
    }
    assert_int_equal(count[1], n1); /* one whole epoch of the small source */
    free(seen);
    loader_close(l);
}

/* A walk to sample 4 * 10^15 would not end: seeking must be arithmetic. */
static void test_far_seek(void **state) {
    const char *dir = counting_set(*state, "a", 300, 50, VOCAB, 0);
    loader *l = open_one(dir, 16, true, true, 1);
    rows r = rows_new(4, 16);
    for (uint64_t i = 0; i < 1000; i++)
        rows_fill(&r, l, UINT64_C(4000000000000000) + i * UINT64_C(1000000007));
    assert_ok(loader_error(l, e));
    rows_free(&r);
    loader_close(l);
}

static void expect_refusal(loader_config cfg, const char *where, const char *words) {
    loader *l;
    err e = {0};
    assert_int_equal(loader_open(&l, &cfg, &e), ST_USAGE);
    assert_null(l);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
    if (!strstr(e.where, where)) fail_msg("where \"%s\" lacks \"%s\"", e.where, where);
}

static void test_refusals(void **state) {
    loader_source src = {.path = counting_set(*state, "a", 10, 5, 100, 0), .weight = 1};
    loader_config good = {.sources = &src, .n_sources = 1, .seq_len = 4, .shuffle = true};
    loader_config c = good;
    c.seq_len = 5000;
    expect_refusal(c, "seq_len", "5000");
    c.seq_len = 0;
    expect_refusal(c, "seq_len", "0");
    c = good;
    c.n_sources = 0;
    expect_refusal(c, "data.train", "0");
    c = good;
    c.vocab_size = 99;
    expect_refusal(c, "vocab_size", "99");
    c = good;
    c.tok_hash = 77;
    expect_refusal(c, "a", "another tokenizer");
    src.weight = 0;
    expect_refusal(good, "weight", "not a positive");
}

static void corrupt(scene *sc, const char *name, long offset, uint64_t value, size_t bytes) {
    FILE *f = fopen(in_scene(sc, name), "r+b");
    assert_non_null(f);
    fseek(f, offset, SEEK_SET);
    assert_int_equal(fwrite(&value, 1, bytes, f), bytes);
    fclose(f);
}

static void read_all(loader *l, int T) {
    rows r = rows_new(1, T);
    for (uint64_t i = 0; i < loader_sequences(l); i++) {
        rows_fill(&r, l, i);
        for (int t = 0; t < T; t++) {
            assert_in_range(r.ids[t], 0, 99);
            assert_true(r.targets[t] == LOADER_IGNORE || (uint32_t)r.targets[t] < 100);
            assert_in_range(r.start[t], 0, t);
        }
    }
    rows_free(&r);
}

static void test_corruption_is_sticky(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "a", 50, 20, 100, 0);
    corrupt(sc, "a/shard-00000.bin", SHARD_HEADER_BYTES + 2 * 11, 100, 2);
    loader *l = open_one(dir, 8, true, true, 1);
    assert_ok(loader_error(l, e));
    read_all(l, 8);
    err e = {0};
    assert_int_equal(loader_error(l, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "shard-00000.bin"));
    assert_non_null(strstr(e.message, "token 11"));
    loader_close(l);

    dir = counting_set(sc, "b", 50, 20, 100, 0);
    const uint64_t ends[] = {0, UINT64_MAX, UINT64_C(1) << 40};
    for (int i = 0; i < ARRAY_LEN(ends); i++) {
        corrupt(sc, "b/shard-00000.idx", SHARD_HEADER_BYTES + SHARD_DOCUMENT_BYTES * 20, ends[i],
                8);
        l = open_one(dir, 8, true, true, 1);
        read_all(l, 8);
        assert_int_equal(loader_error(l, &e), ST_FORMAT);
        loader_close(l);
    }
}

static void test_describe(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "a", 200, 60, VOCAB, 300);
    loader *l = open_one(dir, 50, true, true, 1);
    uint64_t N = loader_totals(l).tokens;
    rows r = rows_new(1, 50);
    for (uint64_t i = 0; i < loader_sequences(l); i++) {
        loader_span *span;
        int n = 0, covered = 0;
        assert_ok(loader_describe(l, i, sc->mem, &span, &n, e));
        rows_fill(&r, l, i);
        for (int k = 0; k < n; k++) {
            assert_int_equal(span[k].row_first, covered);
            assert_int_equal(span[k].first_tok, r.ids[covered]);
            assert_int_equal(span[k].first_tok,
                             (span[k ? k - 1 : 0].first_tok +
                              (k ? span[k - 1].end_tok - span[k - 1].first_tok : 0)) %
                                 N);
            assert_in_range(span[k].first_tok, span[k].place.first_tok, span[k].place.end_tok - 1);
            assert_in_range(span[k].end_tok, span[k].first_tok + 1, span[k].place.end_tok);
            assert_int_equal(span[k].place.line, span[k].place.document + 1);
            assert_int_equal(r.start[covered], covered);
            covered += (int)(span[k].end_tok - span[k].first_tok);
        }
        assert_int_equal(covered, 50);
    }
    rows_free(&r);
    loader_close(l);
}

/* Moving a set, or listing sources in another order, does not change what a sample is; the same set
 * twice in a list gets two orders. */
static void test_order_belongs_to_content(void **state) {
    scene *sc = *state;
    const char *a = counting_set(sc, "a", 300, 50, VOCAB, 0);
    const char *b = counting_set(sc, "b", 200, 70, VOCAB, 0);
    const char *copy = counting_set(sc, "moved/elsewhere", 300, 50, VOCAB, 0);
    loader_source list[][2] = {{{.path = a, .weight = 1}, {.path = b, .weight = 1}},
                               {{.path = b, .weight = 1}, {.path = copy, .weight = 1}},
                               {{.path = a, .weight = 1}, {.path = copy, .weight = 1}}};
    uint64_t first[3][2][40];
    int source[3][80];
    for (int c = 0; c < 3; c++) {
        loader_config cfg = {.sources = list[c],
                             .n_sources = 2,
                             .seq_len = 16,
                             .shuffle = true,
                             .seed = 7,
                             .eos = -1};
        loader *l;
        assert_ok(loader_open(&l, &cfg, e));
        for (uint64_t i = 0; i < 80; i++) {
            loader_place p = loader_place_of(l, i);
            first[c][p.source][p.ordinal] = p.first_tok;
            source[c][i] = p.source;
        }
        loader_close(l);
    }
    for (int i = 0; i < 80; i++) assert_int_equal(source[0][i], 1 - source[1][i]);
    assert_memory_equal(first[0][0], first[1][1], sizeof first[0][0]);
    assert_memory_equal(first[0][1], first[1][0], sizeof first[0][0]);
    assert_memory_equal(first[0][0], first[2][0], sizeof first[0][0]);
    assert_memory_not_equal(first[2][0], first[2][1], sizeof first[0][0]);
}

/* A later stage with the same source goes on where the earlier one stopped. */
static void test_consumed_goes_on(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "a", 300, 50, VOCAB, 0);
    loader *whole = open_one(dir, 16, true, true, 3);
    loader_source src = {.path = dir, .weight = 1, .consumed = 37};
    loader_config cfg = {.sources = &src,
                         .n_sources = 1,
                         .seq_len = 16,
                         .shuffle = true,
                         .document_mask = true,
                         .seed = 3,
                         .eos = -1};
    loader *later;
    assert_ok(loader_open(&later, &cfg, e));
    rows a = rows_new(8, 16), b = rows_new(8, 16);
    for (uint64_t i = 0; i < 400; i += 8) {
        assert_int_equal(rows_fill(&a, whole, 37 + i), rows_fill(&b, later, i));
        assert_memory_equal(a.ids, b.ids, 8 * 16 * 4);
        assert_memory_equal(a.start, b.start, 8 * 16 * 4);
        assert_int_equal(loader_place_of(later, i).ordinal, 37 + i);
        assert_int_equal(loader_samples_of(later, 0, i), i);
    }
    rows_free(&a);
    rows_free(&b);
    loader_close(whole);
    loader_close(later);
}

/* Samples of a source, counted by arithmetic and one by one, with and without shuffle. */
static void test_samples_of(void **state) {
    scene *sc = *state;
    loader_source src[] = {{.path = counting_set(sc, "a", 300, 50, VOCAB, 0), .weight = 0.7},
                           {.path = counting_set(sc, "b", 90, 50, VOCAB, 0), .weight = 0.02},
                           {.path = counting_set(sc, "c", 40, 50, VOCAB, 0), .weight = 0.28}};
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        loader_config cfg = {
            .sources = src, .n_sources = 3, .seq_len = 16, .shuffle = shuffle, .eos = -1};
        loader *l;
        assert_ok(loader_open(&l, &cfg, e));
        uint64_t count[3] = {0};
        for (uint64_t i = 0; i < loader_sequences(l); i++) {
            for (int k = 0; k < 3; k++) assert_int_equal(loader_samples_of(l, k, i), count[k]);
            count[loader_place_of(l, i).source]++;
        }
        loader_close(l);
    }
}

/* A file of ids and nothing else: documents end where the end-of-text token is. */
static void test_masks_without_index(void **state) {
    enum { EOT = 7, N = 5000, T = 37 };
    uint16_t tok[N];
    for (uint64_t i = 0; i < N; i++) {
        uint64_t r = mix64(i + 99);
        tok[i] = (uint16_t)(r % 23 == 0 ? EOT : 10 + r % 900);
    }
    loader_source src = {
        .path = put_bytes(*state, "a.bin", tok, sizeof tok), .weight = 1, .format = SHARDS_NANOGPT};
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        loader_config cfg = {.sources = &src,
                             .n_sources = 1,
                             .seq_len = T,
                             .shuffle = shuffle,
                             .document_mask = true,
                             .eos = EOT,
                             .tok_vocab = 1000};
        loader *l;
        assert_ok(loader_open(&l, &cfg, e));
        rows r = rows_new(1, T);
        for (uint64_t i = 0; i < loader_sequences(l); i++) {
            loader_place p = loader_place_of(l, i);
            rows_fill(&r, l, i);
            for (int t = 0, start = 0; t < p.n_inputs; t++) {
                uint64_t at = (p.first_tok + (uint64_t)t) % N, before = (at + N - 1) % N;
                if (t && (tok[before] == EOT || at == 0)) start = t;
                bool ends = tok[at] == EOT || at + 1 == N;
                assert_int_equal(r.ids[t], tok[at]);
                assert_int_equal(r.start[t], start);
                assert_int_equal(r.targets[t], ends ? LOADER_IGNORE : tok[(at + 1) % N]);
            }
        }
        assert_ok(loader_error(l, e));
        rows_free(&r);
        loader_close(l);
    }
}

/* A read that fails is a fault, not a crash and not data. */
static void test_reads_that_fail(void **state) {
    const char *dir = counting_set(*state, "a", 50, 20, 100, 0);
    loader *l = open_one(dir, 8, true, true, 1);
    loader_close(l);
    bool struck = true;
    for (int nth = 1; struck; nth++) {
        char spec[32];
        l = open_one(dir, 8, true, true, 1);
        snprintf(spec, sizeof spec, "read:%d", nth);
        assert_true(file_fault_arm(spec));
        read_all(l, 8);
        struck = file_fault_struck();
        file_fault_arm(NULL);
        err e = {0};
        assert_int_equal(loader_error(l, &e) != ST_OK, struck);
        if (struck) assert_non_null(strstr(e.message, "shard-00000"));
        loader_close(l);
        if (nth > 20) nth += 7;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_epoch_covers_each_sequence_once, scene_open,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_epochs_differ, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_same_sequences, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_seed_changes_order, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_seek_equals_sequential, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_masks_and_positions, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_validation_covers_all_once, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_sources_are_told_apart, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_far_seek, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_refusals, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_corruption_is_sticky, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_describe, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_order_belongs_to_content, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_consumed_goes_on, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_masks_without_index, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_reads_that_fail, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_samples_of, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
