/* Training: merges and tokens of Hugging Face's trainers, lengths of sentencepiece's
 * (tests/oracle/make_tok_train.py), the same result for any number of threads, and what each kind
 * promises. */
#include <omp.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "tok/tok_test.h"
#include "tok/train/train.h"

static const json_t *golden(const char *kind, json_t **root) {
    *root = json_load_file(GOLDEN("train.json"), 0, NULL);
    assert_non_null(*root);
    return json_object_get(*root, kind);
}

static int32_t vocab_size_of(const json_t *one) {
    return (int32_t)json_integer_value(json_object_get(one, "vocab_size"));
}

/* The tokenizer.json that training on a text gives. */
static json_t *trained_json(tok_train_options opt, const char *text, size_t len) {
    err e = {0};
    tok_trainer *tr;
    tok *t;
    if (tok_trainer_new(&tr, &opt, &e) != ST_OK) fail_msg("%s", e.message);
    if (tok_trainer_add(tr, text, len, &e) != ST_OK) fail_msg("%s", e.message);
    if (tok_trainer_finish(tr, &t, &e) != ST_OK) fail_msg("%s", e.message);
    json_t *root = json_loads(tr->json, 0, NULL);
    assert_non_null(root);
    tok_free(t);
    tok_trainer_free(tr);
    return root;
}

static const json_t *model_part(const json_t *root, const char *key) {
    return json_object_get(json_object_get(root, "model"), key);
}

/* ---- against the oracles ---- */

static void check_bpe(const json_t *one, const char *corpus, size_t n_corpus) {
    const json_t *text = json_object_get(one, "text"), *merged = json_object_get(one, "merged");
    bool own = json_is_string(text);
    json_t *root = trained_json(
        (tok_train_options){.kind = TOK_BPE,
                            .vocab_size = vocab_size_of(one),
                            .pattern = json_string_value(json_object_get(one, "pattern"))},
        own ? json_string_value(text) : corpus, own ? json_string_length(text) : n_corpus);
    assert_true(json_equal(model_part(root, "merges"), json_object_get(one, "merges")));
    const json_t *vocab = model_part(root, "vocab"), *token;
    assert_int_equal(json_object_size(vocab), 257 + json_array_size(merged));
    size_t i;
    json_array_foreach(merged, i, token) {
        const json_t *id = json_object_get(vocab, json_string_value(token));
        assert_int_equal(json_integer_value(id), 257 + (int)i);
    }
    json_decref(root);
}

static void test_bpe_golden(void **state) {
    (void)state;
    size_t i, n;
    json_t *root, *one;
    char *corpus = read_golden(GOLDEN("corpus.txt"), &n);
    const json_t *list = golden("bpe", &root);
    assert_true(json_array_size(list) > 20);
    json_array_foreach(list, i, one) {
        omp_set_num_threads(1 + (int)i % 3);
        check_bpe(one, corpus, n);
    }
    json_decref(root);
    free(corpus);
}

static void test_wordpiece_golden(void **state) {
    (void)state;
    size_t i, k;
    const char *word;
    json_t *root, *one, *token, *count;
    strbuf text = {0};
    const json_t *list = golden("wordpiece", &root);
    json_object_foreach(json_object_get(root, "words"), word, count) {
        for (json_int_t n = json_integer_value(count); n > 0; n--)
            strbuf_printf(&text, "%s ", word);
    }
    json_array_foreach(list, i, one) {
        json_t *ours = trained_json(
            (tok_train_options){.kind = TOK_WORDPIECE, .vocab_size = vocab_size_of(one)}, text.data,
            text.len);
        const json_t *want = json_object_get(one, "tokens"), *vocab = model_part(ours, "vocab");
        assert_int_equal(json_object_size(vocab), json_array_size(want));
        json_array_foreach(want, k, token) {
            if (!json_object_get(vocab, json_string_value(token))) {
                fail_msg("%d: no token %s", vocab_size_of(one), json_string_value(token));
            }
        }
        json_decref(ours);
    }
    json_decref(root);
    strbuf_free(&text);
}

/* The corpus as a text whose lines have no space at their ends and single ones inside. */
static char *tidy_corpus(size_t *len) {
    size_t n, to = 0;
    char *s = read_golden(GOLDEN("corpus.txt"), &n);
    for (size_t i = 0; i < n; i++) {
        bool space = s[i] == ' ';
        if (space && (to == 0 || s[to - 1] == '\n' || s[to - 1] == ' ')) continue;
        if (s[i] == '\n' && to > 0 && s[to - 1] == ' ') to--;
        s[to++] = s[i];
    }
    *len = to;
    return s;
}

/* Length of the line at s, without its end. */
static size_t line_length(const char *s, size_t left) {
    size_t n = 0;
    while (n < left && s[n] != '\n') n++;
    return n;
}

static int64_t length_by_lines(const tok *t, const char *text, size_t len) {
    int64_t total = 0;
    for (size_t at = 0; at < len;) {
        size_t n = line_length(text + at, len - at);
        tok_ids ids = encode_ok(t, text + at, n, 0);
        total += ids.n;
        tok_ids_free(&ids);
        at += n + 1;
    }
    return total;
}

static void add_lines(tok_trainer *tr, const char *text, size_t len) {
    err e = {0};
    for (size_t at = 0; at < len;) {
        size_t n = line_length(text + at, len - at);
        assert_int_equal(tok_trainer_add(tr, text + at, n, &e), ST_OK);
        at += n + 1;
    }
}

static void test_unigram_length(void **state) {
    (void)state;
    size_t i, n;
    err e = {0};
    json_t *root, *one;
    char *corpus = tidy_corpus(&n);
    const json_t *list = golden("unigram", &root);
    json_array_foreach(list, i, one) {
        tok_trainer *tr;
        tok *t;
        tok_train_options opt = {
            .kind = TOK_UNIGRAM, .vocab_size = vocab_size_of(one), .coverage = 1};
        assert_int_equal(tok_trainer_new(&tr, &opt, &e), ST_OK);
        add_lines(tr, corpus, n);
        assert_int_equal(tok_trainer_finish(tr, &t, &e), ST_OK);
        assert_int_equal(tok_vocab_size(t), vocab_size_of(one));
        int64_t want = json_integer_value(json_object_get(one, "length"));
        int64_t length = length_by_lines(t, corpus, n);
        if (length * 100 > want * 101) fail_msg("%d tokens, not %d", (int)length, (int)want);
        tok_trainer_free(tr);
        tok_free(t);
    }
    json_decref(root);
    free(corpus);
}

/* ---- the number of threads ---- */

/* Words of a skewed distribution, some lines without any space, several sections long. */
static char *long_text(size_t len) {
    rng_key key = rng_key_named(9, "train");
    char *s = xmalloc(len + 64);
    size_t n = 0;
    for (uint64_t i = 0; n < len; i++) {
        uint32_t r = rng_u32(key, i), word = (r & 1023) * (r >> 10 & 1023) >> 10;
        if (i % 97 == 0) {
            n += (size_t)sprintf(s + n, "中文%c%c錬金術。", 'a' + (int)(r % 26),
                                 '0' + (int)(r % 10));
        } else {
            for (uint32_t w = word + 1; w > 0; w /= 5) s[n++] = "aeklnorstu"[w % 10];
        }
        s[n++] = i % 11 == 10 ? '\n' : ' ';
    }
    s[len] = '\0';
    while (((uint8_t)s[len - 1] & 0xC0) == 0x80) s[--len] = '\0';
    if ((uint8_t)s[len - 1] >= 0xC0) s[len - 1] = ' ';
    return s;
}

static char *train_with(tok_train_options opt, const char *text, int n_threads) {
    err e = {0};
    tok_trainer *tr;
    tok *t;
    omp_set_num_threads(n_threads);
    if (tok_trainer_new(&tr, &opt, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(tok_trainer_add(tr, text, strlen(text), &e), ST_OK);
    if (tok_trainer_finish(tr, &t, &e) != ST_OK) fail_msg("%s", e.message);
    char *json = xstrdup(tr->json);
    tok_trainer_free(tr);
    tok_free(t);
    return json;
}

static void test_threads(void **state) {
    (void)state;
    char *text = long_text(900000);
    const tok_train_options kinds[] = {
        {.kind = TOK_BPE, .vocab_size = 1200},
        {.kind = TOK_BPE, .vocab_size = 900, .pattern = "sentencepiece"},
        {.kind = TOK_BPE, .vocab_size = 700, .pattern = "smollm"},
        {.kind = TOK_WORDPIECE, .vocab_size = 600},
        {.kind = TOK_UNIGRAM, .vocab_size = 500},
    };
    for (int i = 0; i < ARRAY_LEN(kinds); i++) {
        char *one = train_with(kinds[i], text, 1);
        for (int n = 2; n < 8; n += 3) {
            char *many = train_with(kinds[i], text, n);
            assert_string_equal(one, many);
            free(many);
        }
        free(one);
    }
    free(text);
}

/* Long documents are cut in sections where no word crosses: the same as line by line. */
static void test_sections(void **state) {
    (void)state;
    err e = {0};
    tok_trainer *tr;
    tok *whole, *lines;
    char *text = long_text(700000);
    tok_train_options opt = {.kind = TOK_BPE, .vocab_size = 800, .pattern = "gpt2"};
    whole = train_on(opt, text, strlen(text));
    assert_int_equal(tok_trainer_new(&tr, &opt, &e), ST_OK);
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        n += p[n] == '\n';
        assert_int_equal(tok_trainer_add(tr, p, n, &e), ST_OK);
        p += n;
    }
    assert_int_equal(tok_trainer_finish(tr, &lines, &e), ST_OK);
    assert_true(tok_hash(whole) == tok_hash(lines));
    tok_trainer_free(tr);
    tok_free(whole);
    tok_free(lines);
    free(text);
}

/* ---- what kinds promise ---- */

static void check_text(const tok *t, const char *text, const char *want) {
    err e = {0};
    strbuf back = {0};
    tok_ids ids = encode_ok(t, text, strlen(text), 0);
    assert_int_equal(tok_decode(t, ids.id, ids.n, false, &back, &e), ST_OK);
    assert_string_equal(strbuf_cstr(&back), want);
    strbuf_free(&back);
    tok_ids_free(&ids);
}

/* Ids as in Llama 2; nothing is unknown, and digits stand alone. */
static void test_pieces(void **state) {
    (void)state;
    size_t n;
    char *corpus = read_golden(GOLDEN("corpus.txt"), &n);
    tok *t = train_on(
        (tok_train_options){.kind = TOK_BPE, .vocab_size = 600, .pattern = "sentencepiece"}, corpus,
        n);
    const char *const first[] = {"<unk>", "<s>", "</s>", "<0x00>"};
    for (int i = 0; i < ARRAY_LEN(first); i++) assert_int_equal(tok_id(t, first[i]), i);
    assert_int_equal(tok_id(t, "<0xFF>"), 258);
    assert_int_equal(tok_vocab_size(t), 600);
    assert_true(tok_id(t, "▁the") >= 259 && tok_id(t, "▁the") < tok_id(t, "e"));
    assert_int_equal(tok_id(t, "e") < 600, 1);
    assert_int_equal(tok_id(t, "20"), -1);
    assert_int_equal(tok_id(t, "\n"), -1);
    check_text(t, "the furnace\n  in 2024: \xE2\x82\xAC \x01",
               "the furnace\n  in 2024: \xE2\x82\xAC \x01");
    tok_ids ids = encode_ok(t, "gold", 4, TOK_ADD_SPECIAL);
    assert_int_equal(ids.id[0], 1);
    tok_ids_free(&ids);
    tok_free(t);
    free(corpus);
}

/* Scores fall from the first piece on; characters of the text have pieces, others are unknown or
 * bytes. */
static void test_unigram(void **state) {
    (void)state;
    size_t n;
    char *corpus = read_golden(GOLDEN("corpus.txt"), &n);
    tok_train_options opt = {.kind = TOK_UNIGRAM, .vocab_size = 250, .coverage = 1};
    json_t *root = trained_json(opt, corpus, n);
    const json_t *vocab = model_part(root, "vocab");
    assert_int_equal(json_array_size(vocab), 250);
    for (size_t i = 4; i < 250; i++) {
        assert_true(json_number_value(json_array_get(json_array_get(vocab, i - 1), 1)) >=
                    json_number_value(json_array_get(json_array_get(vocab, i), 1)));
    }
    json_decref(root);
    tok *t = train_on(opt, corpus, n);
    assert_int_equal(tok_id(t, "<pad>"), 0);
    assert_true(tok_id(t, "▁the") > 0);
    check_text(t, "feeds itself 炉火\nand gold", "feeds itself 炉火\nand gold");
    tok_ids ids = encode_ok(t, "\xE2\x82\xAC", 3, TOK_ADD_SPECIAL);
    assert_int_equal(ids.id[ids.n - 2], tok_id(t, "<unk>"));
    assert_int_equal(ids.id[ids.n - 1], tok_id(t, "</s>"));
    tok_ids_free(&ids);
    tok_free(t);
    opt.byte_fallback = true;
    opt.vocab_size = 510;
    t = train_on(opt, corpus, n);
    check_text(t, "the \xE2\x82\xAC", "the \xE2\x82\xAC");
    tok_free(t);
    free(corpus);
}

static void test_wordpiece(void **state) {
    (void)state;
    size_t n;
    char *corpus = read_golden(GOLDEN("corpus.txt"), &n);
    tok *t = train_on((tok_train_options){.kind = TOK_WORDPIECE, .vocab_size = 700}, corpus, n);
    assert_int_equal(tok_id(t, "[PAD]"), 0);
    assert_int_equal(tok_id(t, "[MASK]"), 4);
    assert_true(tok_id(t, "furnace") > 0);
    assert_true(tok_id(t, "##e") > 0);
    tok_ids ids = encode_ok(t, "The Furnace", 11, TOK_ADD_SPECIAL);
    const int32_t want[] = {2, tok_id(t, "the"), tok_id(t, "furnace"), 3};
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.id, want, sizeof(want));
    tok_ids_free(&ids);
    tok_free(t);
    free(corpus);
}

/* The characters of the longest token that long runs of one character give. */
static int32_t longest_of_run(tok_kind kind, char c) {
    static char text[200000];
    memset(text, c, sizeof(text));
    tok *t = train_on((tok_train_options){.kind = kind, .vocab_size = 500}, text, sizeof(text));
    int32_t longest = 0;
    for (int32_t i = 0; i < tok_vocab_size(t); i++) {
        int32_t n = 0;
        for (const char *s = t->token[i].text; *s; s++) n += !utf8_continues(*s);
        longest = n > longest ? n : longest;
    }
    tok_free(t);
    return longest;
}

/* Tokens stay as long as a file may hold them, and WordPiece's as long as words that it looks at. */
static void test_long_runs(void **state) {
    (void)state;
    assert_in_range(longest_of_run(TOK_BPE, ' '), 1000, TOK_MAX_TOKEN_BYTES / 2);
    assert_in_range(longest_of_run(TOK_WORDPIECE, 'a'), 50, WORDPIECE_MAX_CHARS + strlen("##"));
}

/* Every named pattern trains, and what it trains gives text back. */
static void test_patterns(void **state) {
    (void)state;
    size_t n;
    char *corpus = read_golden(GOLDEN("corpus.txt"), &n);
    for (int i = 0; i < PRETOK_NAMED_N; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(PRETOK_NAMED[i].names, " "),
                 PRETOK_NAMED[i].names);
        tok *t = train_on((tok_train_options){.kind = TOK_BPE, .vocab_size = 400, .pattern = name},
                          corpus, n);
        assert_int_equal(tok_vocab_size(t), 400);
        check_round_trip(t, corpus, n);
        tok_free(t);
    }
    free(corpus);
}

static void refuse_training(tok_train_options opt, const char *text, const char *where) {
    err e = {0};
    tok_trainer *tr;
    tok *t = NULL;
    status st = tok_trainer_new(&tr, &opt, &e);
    if (st == ST_OK) st = tok_trainer_add(tr, text, strlen(text), &e);
    if (st == ST_OK) st = tok_trainer_finish(tr, &t, &e);
    assert_int_equal(st, ST_USAGE);
    assert_string_equal(e.where, where);
    assert_null(t);
    tok_trainer_free(tr);
}

static void test_refused(void **state) {
    (void)state;
    const char *one[] = {"<s>"};
    refuse_training((tok_train_options){.kind = TOK_UNIGRAM, .vocab_size = 5}, "abcdef ghi",
                    "vocab_size");
    refuse_training((tok_train_options){.kind = TOK_WORDPIECE, .vocab_size = 9}, "abcdef ghi",
                    "vocab_size");
    refuse_training(
        (tok_train_options){.kind = TOK_BPE, .vocab_size = 260, .pattern = "sentencepiece"},
        "abcdef ghi", "vocab_size");
    refuse_training((tok_train_options){.kind = TOK_UNIGRAM, .vocab_size = 50, .pattern = "gpt2"},
                    "a", "pattern");
    refuse_training(
        (tok_train_options){.kind = TOK_UNIGRAM, .vocab_size = 50, .special = one, .n_special = 1},
        "a", "special");
    const char *word[] = {"<unk>", "ab"};
    refuse_training(
        (tok_train_options){
            .kind = TOK_UNIGRAM, .vocab_size = 50, .special = word, .n_special = 2, .coverage = 1},
        "ab abc ab cab", "special");
    const char *inside[] = {"[UNK]", "##b"};
    refuse_training(
        (tok_train_options){
            .kind = TOK_WORDPIECE, .vocab_size = 50, .special = inside, .n_special = 2},
        "ab abc ab cab", "special");
    refuse_training((tok_train_options){.kind = TOK_BPE, .vocab_size = 500, .ram_bytes = 1 << 20},
                    "a", "ram");
    refuse_training((tok_train_options){.kind = TOK_UNIGRAM, .vocab_size = 50, .coverage = 1.5},
                    "a", "coverage");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_golden),     cmocka_unit_test(test_wordpiece_golden),
        cmocka_unit_test(test_unigram_length), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_sections),       cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_unigram),        cmocka_unit_test(test_wordpiece),
        cmocka_unit_test(test_long_runs),      cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
