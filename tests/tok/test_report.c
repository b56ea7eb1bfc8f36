/* The figures of a report equal those of Hugging Face tokenizers
 * (tests/oracle/make_tok_report_golden.py), however the documents are batched and whatever the
 * number of threads; what is said of a vocabulary. */
#include <omp.h>

#include "tok/tok_report.h"
#include "tok/tok_test.h"

static json_t *golden(void) {
    json_t *root = json_load_file(GOLDEN("report.json"), 0, NULL);
    assert_non_null(root);
    return root;
}

static void test_words(void **state) {
    (void)state;
    json_t *root = golden(), *one;
    size_t i, checked = 0;
    json_array_foreach(json_object_get(root, "texts"), i, one) {
        const json_t *text = json_object_get(one, "text"), *words = json_object_get(one, "words");
        const char *s = json_string_value(text);
        size_t len = json_string_length(text), n = 0;
        for (size_t at = 0, start, end; tok_next_word(s, len, &at, &start, &end); n++) {
            const json_t *want = json_array_get(words, n);
            assert_int_equal(end - start, json_string_length(want));
            assert_memory_equal(s + start, json_string_value(want), end - start);
        }
        assert_int_equal(n, json_array_size(words));
        checked += n;
    }
    assert_true(checked > 100);
    json_decref(root);
}

static void test_words_in_bad_bytes(void **state) {
    (void)state;
    size_t at = 0, start, end;
    const char text[] = "a\xff"
                        "b\xe4\xb8"; /* a broken character ends the text */
    assert_true(tok_next_word(text, 5, &at, &start, &end) && start == 0 && end == 1);
    assert_true(tok_next_word(text, 5, &at, &start, &end) && start == 2 && end == 3);
    assert_false(tok_next_word(text, 5, &at, &start, &end));
    at = 0;
    assert_false(tok_next_word("", 0, &at, &start, &end));
}

static void test_scripts(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        {"Hello мир", "Latin"},   {"привет, world!!", "Cyrillic"},
        {"中文字 ok", "Han"},     {"日本語のテキスト", "Japanese"},
        {"한국어 text", "Latin"}, {"สวัสดี", "Thai"},
        {"123 456 !?", "none"},   {"", "none"},
        {"نار A", "Arabic"},
    };
    for (int i = 0; i < ARRAY_LEN(CASES); i++)
        assert_string_equal(tok_dominant_script(CASES[i][0], strlen(CASES[i][0])), CASES[i][1]);
}

/* All texts, so many a batch, as one row; every second text is in a second row too. */
static tok_report *report_on(const tok *t, const json_t *texts, int per_batch) {
    tok_report *r = tok_report_new(&t, 1, true);
    tok_report_doc docs[16];
    err e = {0};
    int all = tok_report_row(r), odd = tok_report_row(r), total = (int)json_array_size(texts);
    for (int i = 0; i < total; i += per_batch) {
        int n = total - i < per_batch ? total - i : per_batch;
        for (int k = 0; k < n; k++) {
            const json_t *text = json_object_get(json_array_get(texts, (size_t)(i + k)), "text");
            docs[k] = (tok_report_doc){json_string_value(text),
                                       json_string_length(text),
                                       {all, (i + k) % 2 ? odd : -1, -1}};
        }
        if (tok_report_add(r, docs, n, &e) != ST_OK) fail_msg("%s", e.message);
    }
    return r;
}

static void check_figures(const tok_tally *s, const json_t *want, const char *file) {
    const struct {
        const char *key;
        double value;
    } figures[] = {{"documents", (double)s->documents},
                   {"bytes", (double)s->bytes},
                   {"chars", (double)s->chars},
                   {"words", (double)s->words},
                   {"tokens", (double)s->tokens},
                   {"exact_documents", (double)s->exact_documents},
                   {"used_tokens", (double)s->used_tokens},
                   {"fertility", (double)s->word_tokens / (double)s->words},
                   {"pcw", (double)s->split_words / (double)s->words},
                   {"bytes_per_token", (double)s->bytes / (double)s->tokens},
                   {"tokens_per_char", (double)s->tokens / (double)s->chars},
                   {"coverage", (double)(s->bytes - s->unk_bytes) / (double)s->bytes}};
    for (int i = 0; i < ARRAY_LEN(figures); i++) {
        double there = json_number_value(json_object_get(want, figures[i].key));
        if (!json_object_get(want, figures[i].key) || figures[i].value < there ||
            figures[i].value > there)
            fail_msg("%s: %s is %.17g, not %.17g", file, figures[i].key, figures[i].value, there);
    }
    assert_int_equal(s->refused_documents, 0);
}

static void test_figures(void **state) {
    (void)state;
    json_t *root = golden(), *texts = json_object_get(root, "texts"), *one;
    size_t i;
    json_array_foreach(json_object_get(root, "tokenizers"), i, one) {
        const char *file = json_string_value(json_object_get(one, "file"));
        char path[512];
        snprintf(path, sizeof path, GOLDEN("%s"), file);
        tok *t = load_golden(path);
        for (int threads = 1; threads <= 3; threads += 2) {
            omp_set_num_threads(threads);
            tok_report *r = report_on(t, texts, threads == 1 ? 16 : 2);
            tok_tally all = tok_report_tally(r, 0, 0), odd = tok_report_tally(r, 0, 1);
            check_figures(&all, json_object_get(one, "figures"), file);
            assert_int_equal(odd.documents, json_array_size(texts) / 2);
            assert_true(odd.tokens > 0 && odd.tokens < all.tokens);
            tok_report_free(r);
        }
        tok_free(t);
    }
    assert_int_equal(i, 3);
    json_decref(root);
}

/* The characters a and b, their pair by a merge, and two tokens that no merge makes: "ba" and one
 * that is cut out of a character. */
static const char SMALL[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true}],"
    " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
    " \"decoder\": {\"type\": \"ByteLevel\"},"
    " \"model\": {\"type\": \"BPE\", \"vocab\": {\"<s>\": 0, \"a\": 1, \"b\": 2, \"ab\": 3,"
    " \"ba\": 4, \"c\": 5, \"\xc3\xa4\xc2\xb8\": 6}, \"merges\": [[\"a\", \"b\"]]}}";

static void test_vocabulary(void **state) {
    (void)state;
    tok *t = parse_ok(SMALL);
    const tok *list[] = {t};
    tok_report *r = tok_report_new(list, 1, true);
    tok_report_doc docs[] = {
        {"abba", 4, {tok_report_row(r), -1, -1}},
        {"\xFF", 1, {0, -1, -1}}}; /* refused: not UTF-8, and no token for it */
    tok_vocab_report v;
    assert_int_equal(tok_report_add(r, docs, 2, NULL), ST_OK);
    tok_tally s = tok_report_tally(r, 0, 0);
    assert_int_equal(s.documents, 1);
    assert_int_equal(s.refused_documents, 1);
    assert_int_equal(s.tokens, 3);
    assert_int_equal(s.split_words, 1);
    assert_int_equal(tok_report_counts(r, 0)[3], 1);
    tok_report_vocabulary(r, 0, &v);
    assert_int_equal(v.size, 7);
    assert_int_equal(v.used, 3); /* a, b, ab */
    assert_int_equal(v.special, 1);
    assert_int_equal(v.unused.n, 3);
    assert_int_equal(v.unreachable.n, 1);
    assert_int_equal(v.unreachable.id[0], 4);
    assert_int_equal(v.partial.n, 1);
    assert_int_equal(v.partial.id[0], 6);
    assert_int_equal(v.longest.n, 6);
    assert_int_equal(v.longest.id[0], 3);
    assert_int_equal(v.longest.id[1], 4);
    tok_vocab_report_free(&v);
    tok_report_free(r);
    tok_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),      cmocka_unit_test(test_words_in_bad_bytes),
        cmocka_unit_test(test_scripts),    cmocka_unit_test(test_figures),
        cmocka_unit_test(test_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
