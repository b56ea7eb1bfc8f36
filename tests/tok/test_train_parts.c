/* The parts of training: sets of words, where pieces end, words that memory has no room for, and
 * merging with little memory, which must not change a merge. */
#include <math.h>
#include <omp.h>

#include "base/rng.h"
#include "tok/tok_test.h"
#include "tok/train/bpe.h"
#include "tok/train/pieces.h"
#include "tok/train/unigram.h"

/* ---- words ---- */

static int64_t count_of(const word_set *s, const char *word) {
    int64_t n, count = 0;
    word_ref *list = words_sorted(s, &n);
    for (int64_t i = 0; i < n; i++) {
        if (list[i].len == strlen(word) && memcmp(list[i].s, word, list[i].len) == 0) {
            count += list[i].count;
        }
    }
    free(list);
    return count;
}

static void add_numbers(word_set *s, int from, int to) {
    char word[16];
    for (int i = from; i < to; i++) {
        int n = snprintf(word, sizeof(word), "w%d", i);
        words_add(s, word, (size_t)n, 1 + i % 3);
    }
}

static void test_words(void **state) {
    (void)state;
    word_set a = {0}, b = {0};
    add_numbers(&a, 0, 5000);
    add_numbers(&b, 4000, 9000);
    words_add(&a, "", 0, 7);
    words_add(&a, "w\0x", 3, 1);
    for (int i = 0; i < WORD_SHARDS; i++) words_merge_shard(&a, &b, i);
    assert_int_equal(words_total(&a), 9002);
    assert_int_equal(count_of(&a, "w4001"), 6);
    assert_int_equal(count_of(&a, "w8999"), 3);
    assert_int_equal(count_of(&a, ""), 7);
    int rare = 1; /* the word with a NUL */
    for (int i = 0; i < 9000; i++) rare += (1 + i % 3) * (1 + (i >= 4000 && i < 5000)) < 3;
    assert_int_equal(words_drop_rare(&a, 3), rare);
    assert_int_equal(count_of(&a, "w4001"), 6);
    assert_int_equal(count_of(&a, "w3"), 0);
    words_add(&a, "w3", 2, 5);
    words_add(&a, "w4001", 5, 1);
    assert_int_equal(count_of(&a, "w3"), 5);
    assert_int_equal(count_of(&a, "w4001"), 7);
    int64_t n;
    word_ref *list = words_sorted(&a, &n);
    for (int64_t i = 1; i < n; i++) assert_true(list[i - 1].count >= list[i].count);
    free(list);
    words_clear(&a);
    assert_int_equal(words_total(&a), 0);
    assert_int_equal(count_of(&a, "w3"), 0);
    words_free(&a);
    words_free(&b);
}

/* ---- pieces ---- */

static void check_pieces(const char *text, bool digits, const char *want) {
    strbuf got = {0};
    for (size_t at = 0, len = strlen(text); at < len;) {
        size_t end = pieces_end(text, len, at, digits);
        if (at > 0) strbuf_putc(&got, '|');
        strbuf_append(&got, text + at, end - at);
        at = end;
    }
    assert_string_equal(strbuf_cstr(&got), want);
    strbuf_free(&got);
}

static void test_pieces(void **state) {
    (void)state;
    check_pieces("▁the▁▁cat", false, "▁the|▁|▁cat");
    check_pieces("▁don't", false, "▁don|'|t");
    check_pieces("▁3.14m", false, "▁3.14|m");
    check_pieces("▁314", true, "▁|3|1|4");
    check_pieces("a\n\nb", false, "a|\n|\n|b");
    check_pieces("日本語とカナABC", false, "日本語とカナ|ABC");
    check_pieces("Москва—αβγ", false, "Москва|—|αβγ");
    check_pieces("e\xCC\x81t", false, "e\xCC\x81t");
    check_pieces("한글中文", false, "한글|中文");
    check_pieces("हिन्दी।", false, "हिन्दी|।");
}

/* ---- words that do not fit ---- */

static tok *byte_shell(void) {
    tok_train_options opt = {.pattern = "gpt2"};
    char *json = tok_build_shell_json(&opt, FORM_BYTE_BPE);
    tok *t = parse_ok(json);
    free(json);
    return t;
}

/* 20,000 words once and 100 words often, in no more memory than the frequent ones need. */
static int64_t gather_little(const tok *shell, int n_threads, int64_t limit, int64_t *dropped) {
    err e = {0};
    tok_train_options opt = {0};
    strbuf text = {0};
    word_set *words;
    int64_t most;
    for (int i = 0; i < 40000; i++)
        strbuf_printf(&text, "%c%d ", 'a' + i % 26, i % 2 ? i : i % 200);
    omp_set_num_threads(n_threads);
    gather *g = gather_new(shell, CUT_NONE, limit, &opt);
    assert_int_equal(gather_add(g, text.data, text.len, &e), ST_OK);
    assert_int_equal(gather_words(g, &words, &e), ST_OK);
    *dropped = gather_dropped(g, &most);
    int64_t left = words_total(words);
    gather_free(g);
    strbuf_free(&text);
    return left;
}

static void test_drop(void **state) {
    (void)state;
    int64_t dropped, again;
    tok *shell = byte_shell();
    int64_t all = gather_little(shell, 1, INT64_MAX, &dropped);
    assert_int_equal(dropped, 0);
    assert_true(all > 20000);
    int64_t left = gather_little(shell, 1, 1 << 20, &dropped);
    assert_true(dropped > 10000 && left > 0);
    assert_int_equal(left + dropped, all);
    assert_int_equal(gather_little(shell, 3, 1 << 20, &again), left);
    assert_int_equal(again, dropped);
    tok_free(shell);
}

/* ---- merging with little memory ---- */

static int32_t spell_letters(const void *ctx, const char *word, uint32_t len, int32_t *out) {
    (void)ctx;
    for (uint32_t i = 0; i < len; i++) out[i] = word[i] == '.' ? SYM_END : word[i] - 'a';
    return (int32_t)len;
}

/* Merges random words over a few letters; the text of merges. */
static char *merge_random(uint64_t seed, int64_t ram_bytes, int n_threads) {
    rng_key key = rng_key_named(seed, "merge");
    word_set words = {0};
    char word[64];
    for (uint64_t i = 0; i < 400; i++) {
        uint32_t len = 1 + rng_u32(key, 100 * i) % 40, letters = 2 + (uint32_t)seed % 5;
        for (uint32_t k = 0; k < len; k++) {
            uint32_t r = rng_u32(key, 100 * i + 1 + k);
            word[k] = r % 50 == 0 ? '.' : (char)('a' + (r >> 8) % letters * ((r >> 16) % 2));
        }
        words_add(&words, word, len, 1 + rng_u32(key, 100 * i + 90) % 9);
    }
    tok_draft d = {.mem = arena_new("test")};
    for (uint32_t c = 'a'; c < 'h'; c++) tok_draft_add_char(&d, c);
    tok_train_options opt = {0};
    bpe_job job = {.draft = &d,
                   .n_tokens = 900,
                   .longest = 1000,
                   .min_frequency = 2,
                   .ram_bytes = ram_bytes,
                   .opt = &opt};
    int64_t n;
    word_ref *list = words_sorted(&words, &n);
    bpe_text text;
    bpe_text_build(&text, list, n, spell_letters, NULL);
    omp_set_num_threads(n_threads);
    bpe_merge(&text, &job);
    strbuf out = {0};
    for (int32_t i = 0; i < d.n_merges; i++) {
        strbuf_printf(&out, "%d %d %d\n", d.merge[i].left, d.merge[i].right, d.merge[i].id);
    }
    assert_true(d.n_merges > 100);
    free(d.token);
    free(d.merge);
    free(list);
    words_free(&words);
    arena_free(d.mem);
    return out.data;
}

/* 1 byte: every merge searches the text. In between lists come in later, and their pool runs full
 * again and again. */
static void test_little_memory(void **state) {
    (void)state;
    const int64_t ram[] = {1, 60000, 90000, 110000, 130000, 160000, 200000};
    for (uint64_t seed = 0; seed < 12; seed++) {
        char *want = merge_random(seed, 0, 1);
        for (int i = 0; i < ARRAY_LEN(ram); i++) {
            char *got = merge_random(seed, ram[i], 1 + i % 3);
            assert_string_equal(got, want);
            free(got);
        }
        free(want);
    }
}

/* ---- the lattice ---- */

/* Expected uses over a long run, where plain products would leave the range of double, add up to
 * the run's characters; a boost far off changes nothing. */
static void test_lattice(void **state) {
    (void)state;
    enum { N = 3000, CHARS = 3 };
    int32_t sym[N + 2], best[N];
    for (int i = 0; i < N; i++) sym[i] = i % 7 % CHARS;
    sym[N] = sym[N + 1] = SYM_END;
    uni_piece piece[] = {{.len = 1, .score = -9},
                         {.len = 1, .score = -11},
                         {.len = 1, .score = -8},
                         {.at = 0, .len = 2, .score = -10},
                         {.at = 1, .len = 3, .score = -12.5}};
    enum { PIECES = ARRAY_LEN(piece) };
    bpe_text text = {.sym = sym, .n = N + 2};
    uni_model m = {.text = &text, .piece = piece, .n = PIECES, .n_chars = CHARS};
    uni_trie trie;
    uni_lattice l = {0};
    uni_trie_build(&trie, &m);
    uni_lattice_set(&l, &trie, sym, N);
    int64_t uses[2][PIECES] = {0};
    double log_p[2], boost[2] = {0, 7.5};
    for (int k = 0; k < 2; k++) {
        double weight[PIECES];
        for (int i = 0; i < PIECES; i++) {
            weight[i] = exp(piece[i].score + boost[k] * piece[i].len);
        }
        log_p[k] = uni_lattice_expect(&l, weight, boost[k], 5, 20, uses[k]);
    }
    double chars = 0;
    for (int i = 0; i < PIECES; i++) {
        assert_true(llabs(uses[0][i] - uses[1][i]) <= N);
        chars += ldexp((double)uses[0][i], -20) * piece[i].len;
    }
    assert_true(fabs(chars - 5.0 * N) < 0.1);
    assert_true(fabs(log_p[0] - log_p[1]) < 1e-6 * fabs(log_p[0]));
    double score, sum = 0;
    int32_t n = uni_lattice_best(&l, piece, -1, best, &score), covered = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += piece[best[i]].score;
        covered += piece[best[i]].len;
    }
    assert_int_equal(covered, N);
    assert_true(fabs(sum - score) < 1e-6 * fabs(sum));
    assert_true(score <= log_p[0]);
    uni_lattice_free(&l);
    uni_trie_free(&trie);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),   cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_drop),    cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_lattice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
