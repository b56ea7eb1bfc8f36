/* Vocabulary surgery: ids that exist keep their meaning, texts whose tokens stay keep them, and
 * what would change silently is refused. That Hugging Face tokenizers number the results in the
 * same way is checked by tests/oracle/check_tok_edit.py. */
#include "tok/tok_edit.h"
#include "tok/tok_test.h"

static int32_t id_of(const tok *t, const char *content) {
    int32_t id = tok_id(t, content);
    if (id < 0) fail_msg("no token \"%s\"", content);
    return id;
}

static void expect_ids(const tok *t, const char *text, unsigned flags, int n, ...) {
    tok_ids ids = encode_ok(t, text, strlen(text), flags);
    va_list list;
    va_start(list, n);
    assert_int_equal(ids.n, n);
    for (int i = 0; i < n; i++) assert_int_equal(ids.id[i], va_arg(list, int));
    va_end(list);
    tok_ids_free(&ids);
}

static void check_has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* ---- add ---- */

static tok *add_ok(const tok *t, tok_add_options o) {
    err e = {0};
    tok *out;
    if (tok_edit_add(t, &o, &out, &e) != ST_OK) fail_msg("%s", e.message);
    return out;
}

static void add_fails(const tok *t, tok_add_options o, const char *why) {
    err e = {0};
    tok *out;
    assert_int_equal(tok_edit_add(t, &o, &out, &e), ST_USAGE);
    assert_null(out);
    check_has(e.message, why);
}

static void test_add(void **state) {
    (void)state;
    tok *t = load_golden(GOLDEN("bpe_gpt2.json"));
    int32_t n = tok_vocab_size(t);
    const tok_new_token new[] = {{.content = "<|user|>", .special = true},
                                 {.content = "furnaces", .single_word = true}};
    tok *u = add_ok(t, (tok_add_options){.token = new, .n = 2, .multiple = 64});
    assert_int_equal(tok_vocab_size(u) % 64, 0);
    assert_true(tok_vocab_size(u) >= n + 2);
    for (int32_t id = 0; id < n; id++) {
        size_t a, b;
        const char *x = tok_bytes(t, id, &a), *y = tok_bytes(u, id, &b);
        assert_int_equal(a, b);
        if (a) assert_memory_equal(x, y, a);
    }
    assert_int_equal(id_of(u, "<|user|>"), n);
    assert_int_equal(id_of(u, "furnaces"), n + 1);
    assert_int_equal(id_of(u, "<|reserved_0|>"), n + 2);
    assert_int_equal(tok_eos(u), tok_eos(t));
    assert_int_equal(tok_bos(u), tok_bos(t));
    assert_true(tok_hash(u) != tok_hash(t));
    expect_ids(u, "<|user|>furnaces", 0, 2, n, n + 1);
    tok_ids ids = encode_ok(u, "xfurnaces", 9, 0); /* not a word of its own */
    for (int64_t i = 0; i < ids.n; i++) assert_true(ids.id[i] < n);
    tok_ids_free(&ids);
    tok_free(u);
    tok_free(t);
}

static void test_add_refuses(void **state) {
    (void)state;
    tok *t = load_golden(GOLDEN("bpe_gpt2.json"));
    const tok_new_token known = {.content = "the"}, added = {.content = "<|endoftext|>"},
                        hides = {.content = "see <|end"}, holds = {.content = "(<|endoftext|>)"},
                        empty = {.content = ""}, bad = {.content = "\xff"};
    const tok_new_token twice[] = {{.content = "<a>"}, {.content = "<a>"}};
    int32_t id = id_of(t, "the");
    add_fails(t, (tok_add_options){.token = &known, .n = 1}, "is a token of the model");
    add_fails(t, (tok_add_options){.token = &added, .n = 1}, "added token already");
    add_fails(t, (tok_add_options){.token = &added, .n = 1, .allow = true}, "already");
    add_fails(t, (tok_add_options){.token = &hides, .n = 1}, "would hide");
    add_fails(t, (tok_add_options){.token = &holds, .n = 1}, "would hide");
    add_fails(t, (tok_add_options){.token = &empty, .n = 1}, "1 to");
    add_fails(t, (tok_add_options){.token = &bad, .n = 1}, "UTF-8");
    add_fails(t, (tok_add_options){.token = twice, .n = 2}, "twice");
    tok *u = add_ok(t, (tok_add_options){.token = &known, .n = 1, .allow = true});
    assert_int_equal(tok_vocab_size(u), tok_vocab_size(t));
    tok_ids ids = encode_ok(u, "other", 5, 0); /* now it is cut out of words */
    bool found = false;
    for (int64_t i = 0; i < ids.n; i++) found |= ids.id[i] == id;
    assert_true(found);
    tok_ids_free(&ids);
    tok_free(u);
    tok_free(t);
}

/* Id 2 is nobody's: a reader would give it to the next added token. */
static void test_add_refuses_gaps(void **state) {
    (void)state;
    tok *t = parse_ok("{\"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"BPE\", "
                      "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 3}, \"merges\": [\"a b\"]}}");
    const tok_new_token new = {.content = "<x>", .special = true};
    add_fails(t, (tok_add_options){.token = &new, .n = 1}, "gaps");
    tok_free(t);
}

/* ---- prune ---- */

typedef struct pruned {
    tok *old, *new;
    tok_prune_result r;
    int32_t *new_id; /* by old id, -1: gone */
} pruned;

static void count_ids(const tok *t, const char *text, size_t len, int64_t *count) {
    tok_ids ids = encode_ok(t, text, len, 0);
    for (int64_t i = 0; i < ids.n; i++) count[ids.id[i]]++;
    tok_ids_free(&ids);
}

static pruned prune_ok(tok *t, const char *text, size_t len, tok_prune_options o) {
    pruned p = {.old = t};
    err e = {0};
    size_t n = (size_t)tok_vocab_size(t);
    int64_t *count = calloc(n, sizeof *count);
    count_ids(t, text, len, count);
    o.count = count;
    if (tok_edit_prune(t, &o, &p.new, &p.r, &e) != ST_OK) fail_msg("%s", e.message);
    free(count);
    p.new_id = malloc(n * sizeof *p.new_id);
    for (size_t i = 0; i < n; i++) p.new_id[i] = -1;
    for (int32_t i = 0; i < p.r.n; i++) {
        size_t a, b;
        const char *x = tok_bytes(t, p.r.row[i], &a), *y = tok_bytes(p.new, i, &b);
        assert_int_equal(a, b);
        if (a) assert_memory_equal(x, y, a);
        p.new_id[p.r.row[i]] = i;
    }
    assert_int_equal(tok_vocab_size(p.new), p.r.n);
    assert_int_equal(p.r.n_required + p.r.n_used + p.r.n_parts, p.r.n);
    return p;
}

static void pruned_free(pruned *p) {
    tok_free(p->old);
    tok_free(p->new);
    free(p->r.row);
    free(p->new_id);
}

/* Whether the text has the tokens that it had; false when one of them is gone. */
static bool same_tokens(const pruned *p, const char *text, size_t len, unsigned flags) {
    tok_ids a = encode_ok(p->old, text, len, flags), b = encode_ok(p->new, text, len, flags);
    bool stayed = true;
    for (int64_t i = 0; i < a.n; i++) stayed &= p->new_id[a.id[i]] >= 0;
    if (stayed) assert_int_equal(a.n, b.n);
    for (int64_t i = 0; stayed && i < a.n; i++) assert_int_equal(p->new_id[a.id[i]], b.id[i]);
    tok_ids_free(&a);
    tok_ids_free(&b);
    return stayed;
}

static int count_same_lines(const pruned *p, const char *text, size_t len) {
    int same = 0;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end + 1 - (text + at)) : len - at;
        same += same_tokens(p, text + at, n, 0);
        at += n;
    }
    return same;
}

static const char OTHER[] = "Zebra \xf0\x9f\x92\x9a \xe4\xbb\x96 \x01\x7f \xc3\xbc\xc3\xbc";

static void test_prune_bpe(void **state) {
    (void)state;
    size_t len;
    char *corpus = read_golden(GOLDEN("corpus.txt"), &len);
    /* A third of the corpus uses less than all. */
    pruned p = prune_ok(load_golden(GOLDEN("bpe_llama3.json")), corpus, len / 3,
                        (tok_prune_options){.min_count = 1});
    assert_true(p.r.n < tok_vocab_size(p.old));
    assert_true(p.r.n_parts > 0);
    assert_true(same_tokens(&p, corpus, len / 3, 0));
    assert_true(count_same_lines(&p, corpus, len) > 100);
    check_round_trip(p.new, OTHER, strlen(OTHER));
    assert_int_equal(tok_eos(p.new), p.new_id[tok_eos(p.old)]);
    pruned_free(&p);

    p = prune_ok(load_golden(GOLDEN("bpe_llama3.json")), corpus, len,
                 (tok_prune_options){.keep = 450});
    assert_int_equal(p.r.n, 450);
    check_round_trip(p.new, corpus, len);
    check_round_trip(p.new, OTHER, strlen(OTHER));
    int same = count_same_lines(&p, corpus, len);
    assert_true(same > 0 && same < 400);
    pruned_free(&p);
    free(corpus);
}

/* What the post-processor adds has new ids as well. */
static void test_prune_template(void **state) {
    (void)state;
    size_t len;
    char *corpus = read_golden(GOLDEN("corpus.txt"), &len);
    pruned p = prune_ok(load_golden(GOLDEN("bpe_gpt2.json")), corpus, 2000,
                        (tok_prune_options){.min_count = 2});
    tok_ids a = encode_ok(p.old, "a", 1, TOK_ADD_SPECIAL);
    assert_true(a.n > 1 && same_tokens(&p, "a", 1, TOK_ADD_SPECIAL));
    tok_ids_free(&a);
    pruned_free(&p);
    free(corpus);
}

static void test_prune_refuses(void **state) {
    (void)state;
    err e = {0};
    tok *t = load_golden(GOLDEN("bpe_llama3.json")), *out;
    tok_prune_result r;
    int64_t *count = calloc((size_t)tok_vocab_size(t), sizeof *count);
    tok_prune_options o = {.count = count, .keep = 100};
    assert_int_equal(tok_edit_prune(t, &o, &out, &r, &e), ST_USAGE);
    assert_null(out);
    assert_null(r.row);
    check_has(e.hint, "keep 257 or more"); /* bytes and <|endoftext|> */
    free(count);
    tok_free(t);
}

static const char UNIGRAM[] =
    "{\"added_tokens\": [{\"id\": 3, \"content\": \"<u>\", \"special\": true}],"
    " \"decoder\": {\"type\": \"Fuse\"},"
    " \"model\": {\"type\": \"Unigram\", \"unk_id\": 3, \"vocab\": [[\"a\", -2.0], [\"ab\", -2.5],"
    " [\"b\", -3.0], [\"<u>\", 0.0], [\"abab\", -4.0], [\"cc\", -9.0], [\"aa\", -3.5]]}}";

static void test_prune_unigram(void **state) {
    (void)state;
    pruned p = prune_ok(parse_ok(UNIGRAM), "ababa", 5, (tok_prune_options){.min_count = 1});
    /* "aa" goes, and "ab", which longer pieces hid; "cc" alone covers its character. */
    assert_int_equal(p.r.n, 5);
    assert_int_equal(tok_id(p.new, "aa"), -1);
    assert_int_equal(tok_id(p.new, "ab"), -1);
    expect_ids(p.new, "ababa", 0, 2, id_of(p.new, "abab"), id_of(p.new, "a"));
    expect_ids(p.new, "cc", 0, 1, id_of(p.new, "cc"));
    expect_ids(p.new, "z", 0, 1, id_of(p.new, "<u>"));
    pruned_free(&p);
}

static const char WORDPIECE[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"[UNK]\", \"special\": true},"
    " {\"id\": 1, \"content\": \"[CLS]\", \"special\": true},"
    " {\"id\": 2, \"content\": \"[SEP]\", \"special\": true}],"
    " \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"decoder\": {\"type\": \"WordPiece\","
    " \"prefix\": \"##\", \"cleanup\": true},"
    " \"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 2],"
    " \"cls\": [\"[CLS]\", 1]},"
    " \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\","
    " \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100, \"vocab\":"
    " {\"[UNK]\": 0, \"[CLS]\": 1, \"[SEP]\": 2, \"go\": 3, \"g\": 4, \"##o\": 5, \"##ing\": 6,"
    " \"##i\": 7, \"##n\": 8, \"##g\": 9, \"going\": 10, \"##xx\": 11}}}";

static void test_prune_wordpiece(void **state) {
    (void)state;
    pruned p = prune_ok(parse_ok(WORDPIECE), "go going", 8, (tok_prune_options){.min_count = 1});
    assert_int_equal(p.r.n, 11); /* without "##ing"; "##xx" alone covers its character */
    expect_ids(p.new, "going gog", TOK_ADD_SPECIAL, 5, id_of(p.new, "[CLS]"), id_of(p.new, "going"),
               id_of(p.new, "go"), id_of(p.new, "##g"), id_of(p.new, "[SEP]"));
    pruned_free(&p);
}

/* A merge that a longer token needs stays although its own token is not used. */
static void test_prune_parts(void **state) {
    (void)state;
    pruned p = prune_ok(
        parse_ok("{\"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"BPE\", \"vocab\":"
                 " {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 4, \"abc\": 5, \"cb\": 6},"
                 " \"merges\": [\"a b\", \"b c\", \"a bc\", \"ab c\", \"c b\"]}}"),
        "abc", 3, (tok_prune_options){.min_count = 1});
    assert_int_equal(p.r.n, 5); /* a, b, c, abc, and ab, by which abc is made; not bc, cb */
    assert_int_equal(p.r.n_parts, 1);
    assert_int_equal(tok_id(p.new, "bc"), -1);
    expect_ids(p.new, "abc", 0, 1, id_of(p.new, "abc"));
    expect_ids(p.new, "bc", 0, 2, id_of(p.new, "b"), id_of(p.new, "c"));
    pruned_free(&p);
}

/* ---- extend ---- */

static const char FIRST[] =
    "{\"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", \"special\": true}],"
    " \"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"BPE\","
    " \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3}, \"merges\": [\"a b\"]}}";
static const char SECOND[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<t>\", \"special\": true},"
    " {\"id\": 1, \"content\": \"c\", \"special\": false}], \"decoder\": {\"type\": \"Fuse\"},"
    " \"model\": {\"type\": \"BPE\", \"vocab\": {\"<t>\": 0, \"c\": 1, \"b\": 2, \"a\": 3,"
    " \"d\": 4, \"ba\": 5, \"bab\": 6, \"ab\": 7, \"abab\": 8},"
    " \"merges\": [[\"b\", \"a\"], [\"a\", \"b\"], [\"ba\", \"b\"], [\"ab\", \"ab\"]]}}";

static void test_extend_bpe(void **state) {
    (void)state;
    err e = {0};
    tok *a = parse_ok(FIRST), *b = parse_ok(SECOND), *x;
    tok_extend_result r;
    if (tok_edit_extend(a, b, false, &x, &r, &e) != ST_OK) fail_msg("%s", e.message);
    for (int32_t id = 0; id < tok_vocab_size(a); id++) {
        size_t n;
        char text[8] = "";
        memcpy(text, tok_bytes(a, id, &n), 3);
        assert_int_equal(tok_id(x, text), id);
    }
    assert_int_equal(r.n_tokens, 5); /* d, ba, bab, abab, <t> */
    assert_int_equal(r.n_added, 1);
    assert_int_equal(r.n_merges, 3); /* a b is known */
    assert_int_equal(r.n_known, 3);
    assert_int_equal(r.n_left, 1); /* c */
    assert_int_equal(id_of(x, "d"), 5);
    assert_int_equal(id_of(x, "<t>"), 9);
    expect_ids(x, "bab", 0, 2, 1, 3); /* the first one's merge comes before b a */
    expect_ids(x, "abab", 0, 1, id_of(x, "abab"));
    expect_ids(x, "ba<s><t>", 0, 3, id_of(x, "ba"), 4, 9);
    tok_free(x);
    tok_free(a);
    tok_free(b);
}

static void test_extend_unigram(void **state) {
    (void)state;
    err e = {0};
    tok *a = parse_ok(UNIGRAM), *x;
    tok *b = parse_ok("{\"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"Unigram\","
                      " \"unk_id\": 0, \"vocab\": [[\"?\", 0.0], [\"a\", -1.0], [\"zb\", -2.0]]}}");
    tok_extend_result r;
    if (tok_edit_extend(a, b, false, &x, &r, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(r.n_tokens, 1);
    expect_ids(x, "azb", 0, 2, 0, 7);
    assert_int_equal(tok_id(x, "?"), -1);
    tok_free(x);
    tok_free(b);
    tok_free(a);
}

static void extend_fails(const tok *a, const char *second, const char *why) {
    err e = {0};
    tok *b = parse_ok(second), *x;
    tok_extend_result r;
    assert_int_equal(tok_edit_extend(a, b, false, &x, &r, &e), ST_USAGE);
    assert_null(x);
    check_has(e.message, why);
    tok_free(b);
}

static void test_extend_refuses(void **state) {
    (void)state;
    tok *a = parse_ok(FIRST);
    extend_fails(a, UNIGRAM, "BPE and the other Unigram");
    extend_fails(a,
                 "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
                 " \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
                 "\"vocab\": {\"a\": 0}, \"merges\": []}}",
                 "works on bytes");
    extend_fails(a,
                 "{\"normalizer\": {\"type\": \"NFC\"}, \"decoder\": {\"type\": \"Fuse\"},"
                 " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}",
                 "normalizer");
    extend_fails(a,
                 "{\"added_tokens\": [{\"id\": 1, \"content\": \"a<\"}], \"decoder\": {\"type\": "
                 "\"Fuse\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": "
                 "[]}}",
                 "would hide");
    tok_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_add_refuses),
        cmocka_unit_test(test_add_refuses_gaps),
        cmocka_unit_test(test_prune_bpe),
        cmocka_unit_test(test_prune_template),
        cmocka_unit_test(test_prune_refuses),
        cmocka_unit_test(test_prune_unigram),
        cmocka_unit_test(test_prune_wordpiece),
        cmocka_unit_test(test_prune_parts),
        cmocka_unit_test(test_extend_bpe),
        cmocka_unit_test(test_extend_unigram),
        cmocka_unit_test(test_extend_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
