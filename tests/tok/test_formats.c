/* Formats of other programs: what they make of a text is what we make of it, in both directions.
 * The golden files are made by tests/oracle/make_tok_formats.py. */
#include <stdio.h>
#include <unistd.h>

#include "base/gguf.h"
#include "tok/format/gguf_keys.h"
#include "tok/tok_format.h"
#include "tok/tok_test.h"

#define FORMATS(name) GOLDEN("formats/" name)

static char dir[256];

static int make_dir(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/tok_formats_XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    err e = {0};
    return file_remove_tree(dir, &e) == ST_OK ? 0 : -1;
}

static const char *in_dir(const char *name) {
    static char path[4][512];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
    return p;
}

static json_t *load_cases(const char *name) {
    json_t *all = json_load_file(FORMATS("cases.json"), JSON_ALLOW_NUL, NULL);
    json_t *list = json_incref(json_object_get(all, name));
    json_decref(all);
    assert_true(json_array_size(list) > 20);
    return list;
}

static void check_ids(const char *name, const tok *t, const json_t *c) {
    const json_t *text = json_object_get(c, "text"), *want = json_object_get(c, "ids");
    tok_ids ids = encode_ok(t, json_string_value(text), json_string_length(text), 0);
    if (ids.n != (int64_t)json_array_size(want)) {
        fail_msg("%s: \"%s\": %d ids, not %d", name, json_string_value(text), (int)ids.n,
                 (int)json_array_size(want));
    }
    for (int64_t i = 0; i < ids.n; i++) {
        int id = (int)json_integer_value(json_array_get(want, (size_t)i));
        if (ids.id[i] == id) continue;
        fail_msg("%s: \"%s\": id %d is %d, not %d", name, json_string_value(text), (int)i,
                 (int)ids.id[i], id);
    }
    tok_ids_free(&ids);
}

static void check_decoded(const char *name, const tok *t, const json_t *c) {
    const json_t *want = json_object_get(c, "decoded"), *list = json_object_get(c, "ids"), *id;
    err e = {0};
    tok_ids ids = {0};
    strbuf text = {0};
    size_t i;
    json_array_foreach((json_t *)list, i, id) tok_ids_push(&ids, (int32_t)json_integer_value(id));
    assert_int_equal(tok_decode(t, ids.id, ids.n, false, &text, &e), ST_OK);
    if (text.len != json_string_length(want) ||
        memcmp(strbuf_cstr(&text), json_string_value(want), text.len) != 0) {
        fail_msg("%s: decoded to \"%s\", not \"%s\"", name, strbuf_cstr(&text),
                 json_string_value(want));
    }
    strbuf_free(&text);
    tok_ids_free(&ids);
}

/* but: texts with this in them are left out; NULL: none. */
static void check_cases_but(const char *name, const tok *t, const char *but) {
    json_t *list = load_cases(name), *c;
    size_t i;
    json_array_foreach(list, i, c) {
        const char *text = json_string_value(json_object_get(c, "text"));
        if (text && but && strstr(text, but)) continue;
        if (text) check_ids(name, t, c);
        check_decoded(name, t, c);
    }
    json_decref(list);
}

static void check_cases(const char *name, const tok *t) {
    check_cases_but(name, t, NULL);
}

static tok *load_format(const char *name, const tok_load_options *o) {
    char path[512];
    err e = {0};
    tok *t;
    snprintf(path, sizeof(path), "%s%s", FORMATS(""), name);
    if (tok_load_with(&t, path, o, &e) != ST_OK) fail_msg("%s", e.message);
    return t;
}

/* ---- reading ---- */

static void test_sentencepiece(void **state) {
    static const char *const NAMES[] = {"bpe.model",   "llama.model", "unigram.model",
                                        "cased.model", "char.model",  "pruned.model"};
    (void)state;
    for (int i = 0; i < ARRAY_LEN(NAMES); i++) {
        tok *t = load_format(NAMES[i], NULL);
        assert_int_equal(tok_format_of(t), TOK_FORMAT_SENTENCEPIECE);
        check_cases(NAMES[i], t);
        tok_free(t);
    }
}

static void test_llama2c(void **state) {
    (void)state;
    tok *t = load_format("llama2c.bin", NULL);
    assert_int_equal(tok_format_of(t), TOK_FORMAT_LLAMA2C);
    assert_int_equal(tok_bos(t), 1);
    assert_int_equal(tok_eos(t), 2);
    check_cases("llama2c.bin", t);
    tok_free(t);
}

static const tok_load_options LLAMA3 = {.pattern = "llama3"};

static void test_tiktoken(void **state) {
    (void)state;
    tok *t = load_format("ours.tiktoken", &LLAMA3);
    check_cases("ours.tiktoken", t);
    tok_free(t);
    const char *special[] = {"<|a|>", "<|b|>"};
    tok_load_options o = {.pattern = "llama3", .special = special, .n_special = 2};
    t = load_format("ours.tiktoken", &o);
    assert_int_equal(tok_id(t, "<|a|>"), tok_vocab_size(t) - 2);
    assert_int_equal(tok_id(t, "<|b|>"), tok_vocab_size(t) - 1);
    tok_ids ids = encode_ok(t, "x<|b|>", 6, 0);
    assert_int_equal(ids.id[ids.n - 1], tok_id(t, "<|b|>"));
    tok_ids_free(&ids);
    tok_free(t);
}

static void test_gpt2_and_bert(void **state) {
    (void)state;
    tok *t = load_format("gpt2", NULL);
    assert_int_equal(tok_eos(t), tok_id(t, "<|endoftext|>"));
    check_cases("gpt2", t);
    tok_free(t);
    t = load_format("gpt2/merges.txt", NULL);
    check_cases("gpt2", t);
    tok_free(t);
    t = load_format("bert", NULL);
    check_cases("bert", t);
    tok_ids ids = encode_ok(t, "the", 3, TOK_ADD_SPECIAL);
    assert_int_equal(ids.id[0], tok_id(t, "[CLS]"));
    assert_int_equal(ids.id[ids.n - 1], tok_id(t, "[SEP]"));
    tok_ids_free(&ids);
    tok_free(t);
}

/* ---- writing ---- */

static void same_file(const char *a, const char *b) {
    size_t n, m;
    char *x = read_golden(a, &n), *y = read_golden(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void export_ok(const tok *t, const char *path, tok_format f) {
    err e = {0};
    if (tok_export(t, path, f, &e) != ST_OK) fail_msg("%s", e.message);
}

/* A tok that came from a format is written back byte for byte; through tokenizer.json the ids are
 * those of the original. */
static void test_round_trips(void **state) {
    static const char *const MODELS[] = {"bpe.model", "llama.model", "unigram.model", "cased.model",
                                         "char.model"};
    (void)state;
    for (int i = 0; i < ARRAY_LEN(MODELS); i++) {
        char golden[512];
        snprintf(golden, sizeof(golden), "%s%s", FORMATS(""), MODELS[i]);
        tok *t = load_format(MODELS[i], NULL);
        export_ok(t, in_dir("same.model"), TOK_FORMAT_SENTENCEPIECE);
        same_file(golden, in_dir("same.model"));
        export_ok(t, in_dir("tokenizer.json"), TOK_FORMAT_JSON);
        tok *json = load_golden(in_dir("tokenizer.json"));
        export_ok(json, in_dir("made.model"), TOK_FORMAT_SENTENCEPIECE);
        tok *made = load_golden(in_dir("made.model"));
        check_cases(MODELS[i], made);
        tok_free(made);
        tok_free(json);
        tok_free(t);
    }
}

static void test_llama2c_both_ways(void **state) {
    (void)state;
    tok *t = load_format("llama2c.bin", NULL), *m = load_format("llama.model", NULL);
    export_ok(t, in_dir("a.bin"), TOK_FORMAT_LLAMA2C);
    same_file(FORMATS("llama2c.bin"), in_dir("a.bin"));
    export_ok(m, in_dir("b.bin"), TOK_FORMAT_LLAMA2C);
    same_file(FORMATS("llama2c.bin"), in_dir("b.bin"));
    export_ok(t, in_dir("c.model"), TOK_FORMAT_SENTENCEPIECE);
    tok *c = load_golden(in_dir("c.model"));
    check_cases("llama.model", c);
    tok_free(c);
    tok_free(m);
    tok_free(t);
}

static void test_byte_level_both_ways(void **state) {
    (void)state;
    tok *t = load_format("ours.tiktoken", &LLAMA3), *g = load_format("gpt2", NULL);
    export_ok(t, in_dir("a.tiktoken"), TOK_FORMAT_TIKTOKEN);
    same_file(FORMATS("ours.tiktoken"), in_dir("a.tiktoken"));
    export_ok(g, in_dir("gpt2"), TOK_FORMAT_GPT2);
    same_file(FORMATS("gpt2/merges.txt"), in_dir("gpt2/merges.txt"));
    tok *back = load_golden(in_dir("gpt2"));
    assert_true(tok_hash(back) == tok_hash(g));
    tok_free(back);
    tok_free(g);
    tok_free(t);
    t = load_format("bert", NULL);
    export_ok(t, in_dir("bert"), TOK_FORMAT_BERT);
    same_file(FORMATS("bert/vocab.txt"), in_dir("bert/vocab.txt"));
    back = load_golden(in_dir("bert"));
    assert_true(tok_hash(back) == tok_hash(t));
    tok_free(back);
    tok_free(t);
}

/* Trained here, written as a SentencePiece model, the ids stay: normal form KC as rules, too. */
static void test_trained_to_sentencepiece(void **state) {
    static const char *const TEXTS[] = {
        "the furnace that feeds itself", "x  y   z ", "12 caf\xC3\xA9",
        "e\xCC\x81 A\xCC\x8A e\xCC\x82\xCC\x81 \xEF\xAC\x81 \xC2\xBD",
        "\xEF\xBC\xA1\xEF\xBD\x82 \xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"};
    (void)state;
    size_t n;
    char *corpus = read_golden(GOLDEN("corpus.txt"), &n);
    tok_train_options opt[] = {{.kind = TOK_BPE, .vocab_size = 500, .pattern = "sentencepiece"},
                               {.kind = TOK_UNIGRAM, .vocab_size = 400}};
    for (int k = 0; k < ARRAY_LEN(opt); k++) {
        tok *t = train_on(opt[k], corpus, n);
        export_ok(t, in_dir("trained.model"), TOK_FORMAT_SENTENCEPIECE);
        tok *m = load_golden(in_dir("trained.model"));
        for (int i = 0; i < ARRAY_LEN(TEXTS); i++) {
            tok_ids a = encode_ok(t, TEXTS[i], strlen(TEXTS[i]), 0);
            tok_ids b = encode_ok(m, TEXTS[i], strlen(TEXTS[i]), 0);
            assert_int_equal(a.n, b.n);
            assert_memory_equal(a.id, b.id, sizeof(*a.id) * (size_t)a.n);
            tok_ids_free(&a);
            tok_ids_free(&b);
        }
        tok_free(m);
        tok_free(t);
    }
    free(corpus);
}

/* What a format cannot express is refused with the part's name. */
static void refuse(const tok *t, tok_format f, const char *word) {
    err e = {0};
    assert_int_equal(tok_export(t, in_dir("refused"), f, &e), ST_USAGE);
    if (!strstr(e.message, word)) fail_msg("no \"%s\" in: %s", word, e.message);
    assert_false(file_exists(in_dir("refused")));
}

static void test_refusals(void **state) {
    (void)state;
    tok *gpt2 = load_golden(GOLDEN("bpe_gpt2.json")),
        *llama3 = load_golden(GOLDEN("bpe_llama3.json"));
    tok *bpe = load_format("bpe.model", NULL), *bert = load_format("bert", NULL);
    refuse(gpt2, TOK_FORMAT_TIKTOKEN, "normalizer");
    refuse(gpt2, TOK_FORMAT_GPT2, "normalizer");
    refuse(gpt2, TOK_FORMAT_SENTENCEPIECE, "bytes");
    refuse(llama3, TOK_FORMAT_GPT2, "pattern");
    refuse(llama3, TOK_FORMAT_BERT, "WordPiece");
    refuse(llama3, TOK_FORMAT_LLAMA2C, "bytes");
    refuse(bpe, TOK_FORMAT_TIKTOKEN, "byte-level");
    refuse(bpe, TOK_FORMAT_LLAMA2C, "spaces");
    refuse(bert, TOK_FORMAT_SENTENCEPIECE, "neither BPE nor Unigram");
    tok_free(gpt2);
    tok_free(llama3);
    tok_free(bpe);
    tok_free(bert);
}

/* ---- what is not in the file ---- */

static void load_fails(const char *path, const tok_load_options *o, status st, const char *word) {
    err e = {0};
    tok *t;
    assert_int_equal(tok_load_with(&t, path, o, &e), st);
    assert_null(t);
    if (!strstr(e.message, word)) fail_msg("no \"%s\" in: %s", word, e.message);
}

static void test_options(void **state) {
    (void)state;
    tok_load_options wrong = {.pattern = "no such"};
    load_fails(FORMATS("ours.tiktoken"), NULL, ST_FORMAT, "how text is cut");
    load_fails(FORMATS("ours.tiktoken"), &wrong, ST_USAGE, "no such");
    load_fails(FORMATS("bpe.model"), &LLAMA3, ST_USAGE, "pattern");
    err e = {0};
    assert_int_equal(file_make_dirs(in_dir("empty"), &e), ST_OK);
    load_fails(in_dir("empty"), NULL, ST_FORMAT, "holds no tokenizer");
}

static void write_text(const char *name, const char *text, size_t len) {
    err e = {0};
    assert_int_equal(file_write_atomic(in_dir(name), text, len, &e), ST_OK);
}

static void test_hostile(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *word;
        size_t len;
    } BAD[] = {
        {"x.model",
         "\n\x03\n\x01"
         "a",
         "unknown piece", 5},
        {"x.model", "\n\x04\n\x02\xC0\x80", "UTF-8", 6},
        {"x.model",
         "\n\x08\n\x01"
         "a\x15\0\0\xC0\x7F",
         "score", 10},
        {"x.model",
         "\n\x05\n\x01"
         "a\x18\x07",
         "type 7", 7},
        {"x.model",
         "\n\x05\n\x01"
         "a\x18\x02\n\x05\n\x01"
         "b\x18\x02",
         "two unknown", 14},
        {"x.model",
         "\n\x05\n\x01"
         "a\x18\x02\n\x03\n\x01"
         "a",
         "twice", 12},
        {"x.model",
         "\n\x05\n\x01"
         "a\x18\x06",
         "byte_fallback", 7},
        {"x.model",
         "\n\x05\n\x01"
         "a\x18\x02\x12\x02\x18\x03",
         "word", 11},
        {"x.model",
         "\n\x05\n\x01"
         "a\x18\x02\x12\x03\xC0\x01\x01",
         "suffix", 12},
        {"x.tiktoken", "AA== 0\nAA== 1\n", "twice", 14},
        {"x.tiktoken", "AA== 0\nAQ== 0\n", "twice", 14},
        {"x.tiktoken", "AA== 0\nAQ== 1\n", "no rank", 14},
        {"x.tiktoken", "AA== 0\nA 1\n", "base64", 11},
        {"x.tiktoken", "AA== 0\nAQ== 99999999999999999999\n", "line 2", 33},
        {"vocab.txt", "a\nb\n", "[UNK]", 4},
        {"vocab.txt", "[UNK]\n\xFF\n", "UTF-8", 8},
        {"x.bin",
         "\x01\0\0\0\0\0\0\0\x01\0\0\0"
         "a",
         "all bytes", 13},
        {"x.bin", "what is this?", "known", 13},
    };
    for (int i = 0; i < ARRAY_LEN(BAD); i++) {
        write_text(BAD[i].name, BAD[i].text, BAD[i].len);
        bool ranks = strstr(BAD[i].name, "tiktoken");
        load_fails(in_dir(BAD[i].name), ranks ? &LLAMA3 : NULL, ST_FORMAT, BAD[i].word);
    }
}

/* ---- folders ---- */

static void test_folder_config(void **state) {
    (void)state;
    err e = {0};
    tok *t = load_golden(GOLDEN("bpe_llama3.json"));
    const char *config =
        "{\"eos_token\":\"<|endoftext|>\",\"chat_template\":\"{{ x }}\",\"my_key\":1}";
    export_ok(t, in_dir("folder"), TOK_FORMAT_JSON);
    json_t *j = json_load_file(in_dir("folder/tokenizer_config.json"), 0, NULL);
    json_t *added = json_object_get(json_object_get(j, "added_tokens_decoder"), "0");
    assert_string_equal(json_string_value(json_object_get(added, "content")), "<|endoftext|>");
    assert_true(json_is_true(json_object_get(added, "special")));
    json_decref(j);
    write_text("folder/tokenizer_config.json", config, strlen(config));
    tok_free(t);
    t = load_golden(in_dir("folder"));
    assert_int_equal(tok_save_dir(t, in_dir("second"), 512, &e), ST_OK);
    j = json_load_file(in_dir("second/tokenizer_config.json"), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(j, "chat_template")), "{{ x }}");
    assert_int_equal(json_integer_value(json_object_get(j, "my_key")), 1);
    assert_int_equal(json_integer_value(json_object_get(j, "model_max_length")), 512);
    json_decref(j);
    size_t n;
    char *template = read_golden(in_dir("second/chat_template.jinja"), &n);
    assert_string_equal(template, "{{ x }}");
    free(template);
    tok_free(t);
}

/* ---- GGUF ---- */

static tok *through_gguf(const tok *t, const char *model, const char *pre) {
    err e = {0};
    gguf_tokenizer g;
    arena *mem = arena_new("test");
    if (tok_to_gguf(t, mem, &g, &e) != ST_OK) fail_msg("%s", e.message);
    assert_string_equal(g.model, model);
    assert_string_equal(g.pre, pre);
    tok *back;
    if (tok_from_gguf(&back, &g, "test", &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(tok_eos(back), tok_eos(t));
    arena_free(mem);
    return back;
}

static void test_gguf(void **state) {
    static const char *const NAMES[][3] = {
        {"llama.model", "llama", "default"}, {"unigram.model", "t5", "default"},
        {"cased.model", "t5", "default"},    {"gpt2", "gpt2", "gpt-2"},
        {"bert", "bert", "default"},         {"ours.tiktoken", "gpt2", "llama-bpe"}};
    (void)state;
    for (int i = 0; i < ARRAY_LEN(NAMES); i++) {
        bool ranks = strstr(NAMES[i][0], "tiktoken");
        tok *t = load_format(NAMES[i][0], ranks ? &LLAMA3 : NULL);
        tok *back = through_gguf(t, NAMES[i][1], NAMES[i][2]);
        /* what ends a text is plain text to sentencepiece, and a mark in a GGUF file */
        bool pieces = strstr(NAMES[i][0], ".model");
        check_cases_but(NAMES[i][0], back, pieces ? "</s>" : NULL);
        if (pieces) {
            tok_ids ids = encode_ok(back, "a</s>", 5, 0);
            assert_int_equal(ids.id[ids.n - 1], tok_eos(back));
            tok_ids_free(&ids);
        }
        tok_free(back);
        tok_free(t);
    }
}

static void gguf_fails(gguf_tokenizer g, const char *word) {
    err e = {0};
    tok *t;
    assert_int_equal(tok_from_gguf(&t, &g, "test", &e), ST_FORMAT);
    assert_null(t);
    if (!strstr(e.message, word)) fail_msg("no \"%s\" in: %s", word, e.message);
}

static void test_gguf_refusals(void **state) {
    (void)state;
    static const tok_string TWO[] = {{"a", 1}, {"b", 1}}, TWICE[] = {{"a", 1}, {"a", 1}},
                            EMPTY[] = {{"a", 1}, {"", 0}}, MERGE[] = {{"ab", 2}};
    gguf_tokenizer g = gguf_tokenizer_empty();
    g.model = "gpt2";
    gguf_fails(g, "no tokens");
    g.token = TWO;
    g.n_tokens = 2;
    gguf_fails(g, "pre");
    g.pre = "gpt-2";
    g.eos = 2;
    gguf_fails(g, "outside");
    g.eos = -1;
    g.merge = MERGE;
    g.n_merges = 1;
    gguf_fails(g, "merge");
    g.n_merges = 0;
    g.token = EMPTY;
    gguf_fails(g, "empty");
    g.token = TWICE;
    gguf_fails(g, "twice");
    g.token = TWO;
    g.model = "llama";
    gguf_fails(g, "scores");
    g.model = "rwkv";
    gguf_fails(g, "rwkv");
    err e = {0};
    arena *mem = arena_new("test");
    tok *cl100k = load_format("ours.tiktoken", &(tok_load_options){.pattern = "cl100k"});
    assert_int_equal(tok_to_gguf(cl100k, mem, &g, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "cl100k"));
    tok_free(cl100k);
    arena_free(mem);
}

static void put_tokens(gguf_pairs *p, const char *key, const tok_string *s, int64_t n) {
    gguf_text *texts = xcalloc((size_t)n + 1, sizeof(*texts));
    for (int64_t i = 0; i < n; i++) texts[i] = (gguf_text){s[i].text, s[i].len};
    gguf_put_texts(p, key, texts, (uint64_t)n);
    free(texts);
}

static gguf_pairs pairs_of(const gguf_tokenizer *g) {
    const uint64_t n = (uint64_t)g->n_tokens;
    gguf_pairs p = {0};
    gguf_put_string(&p, "tokenizer.ggml.model", g->model);
    gguf_put_string(&p, "tokenizer.ggml.pre", g->pre);
    put_tokens(&p, "tokenizer.ggml.tokens", g->token, g->n_tokens);
    put_tokens(&p, "tokenizer.ggml.merges", g->merge, g->n_merges);
    if (g->score) gguf_put_array(&p, "tokenizer.ggml.scores", GGUF_F32, g->score, n);
    gguf_put_array(&p, "tokenizer.ggml.token_type", GGUF_I32, g->type, n);
    if (g->eos >= 0) gguf_put_u32(&p, "tokenizer.ggml.eos_token_id", (uint32_t)g->eos);
    return p;
}

static status load_pairs(gguf_pairs *p, tok **t, err *e) {
    strbuf b = {0};
    gguf_append_header(&b, 0, p);
    if (file_write_atomic(in_dir("x.gguf"), b.data, b.len, e) != ST_OK) fail_msg("%s", e->message);
    strbuf_free(&b);
    gguf_pairs_free(p);
    return tok_load_with(t, in_dir("x.gguf"), NULL, e);
}

/* A padding token is one that is named so, whatever its text: through a folder and back. */
static void test_gguf_padding(void **state) {
    (void)state;
    err e = {0};
    gguf_tokenizer g, again;
    arena *mem = arena_new("test");
    tok *t = load_format("gpt2", NULL), *back, *folder;
    if (tok_to_gguf(t, mem, &g, &e) != ST_OK) fail_msg("%s", e.message);
    gguf_pairs p = pairs_of(&g);
    gguf_put_u32(&p, "tokenizer.ggml.padding_token_id", (uint32_t)tok_eos(t));
    if (load_pairs(&p, &back, &e) != ST_OK) fail_msg("%s", e.message);
    const char *home = in_dir("padding");
    if (file_make_dirs(home, &e) != ST_OK) fail_msg("%s", e.message);
    if (tok_export(back, home, TOK_FORMAT_JSON, &e) != ST_OK) fail_msg("%s", e.message);
    if (tok_load(&folder, home, &e) != ST_OK) fail_msg("%s", e.message);
    if (tok_to_gguf(folder, mem, &again, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(again.pad, tok_eos(t));
    tok_free(folder);
    tok_free(back);
    tok_free(t);
    arena_free(mem);
}

static void test_gguf_file(void **state) {
    (void)state;
    err e = {0};
    gguf_tokenizer g;
    arena *mem = arena_new("test");
    tok *t = load_format("gpt2", NULL), *back;
    if (tok_to_gguf(t, mem, &g, &e) != ST_OK) fail_msg("%s", e.message);
    gguf_pairs p = pairs_of(&g);
    gguf_put_string(&p, "tokenizer.chat_template", "{{ messages }}");
    gguf_put_bool(&p, "tokenizer.ggml.add_bos_token", false);
    gguf_put_array(&p, "llama.other", GGUF_F64, (double[]){1, 2}, 2);
    if (load_pairs(&p, &back, &e) != ST_OK) fail_msg("%s", e.message);
    check_cases("gpt2", back);
    assert_int_equal(tok_eos(back), tok_eos(t));
    tok_free(back);
    static const struct {
        const char *key, *expect;
    } wrong[] = {{"tokenizer.ggml.unknown_token_id", "unknown_token_id has a value of the wrong"},
                 {"tokenizer.ggml.add_bos_token", "add_bos_token has a value of the wrong"},
                 {"tokenizer.ggml.scores", "scores has a value of the wrong"},
                 {"tokenizer.ggml.precompiled_charsmap", "charsmap has a value of the wrong"},
                 {"tokenizer.ggml.tokens", "the key 'tokenizer.ggml.tokens' is there twice"},
                 {"tokenizer.chat_template", "chat_template has a value of the wrong"}};
    for (int i = 0; i < ARRAY_LEN(wrong); i++) {
        p = pairs_of(&g);
        gguf_put_f32(&p, wrong[i].key, 1);
        assert_int_equal(load_pairs(&p, &back, &e), ST_FORMAT);
        if (!strstr(e.message, wrong[i].expect)) fail_msg("%s", e.message);
    }
    p = pairs_of(&g);
    gguf_put_array(&p, "tokenizer.ggml.scores", GGUF_F32, (float[]){1}, 1);
    assert_int_equal(load_pairs(&p, &back, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "but 1 scores"));
    p = (gguf_pairs){0};
    gguf_put_string(&p, "general.architecture", "llama");
    assert_int_equal(load_pairs(&p, &back, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "holds no tokenizer"));
    p = (gguf_pairs){0};
    gguf_put_string(&p, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(&p, "tokenizer.ggml.pre", "gpt-2");
    put_tokens(&p, "tokenizer.ggml.tokens", g.token, g.n_tokens);
    assert_int_equal(load_pairs(&p, &back, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "'tokenizer.ggml.merges' is missing"));
    assert_true(e.hint[0] != '\0');
    tok_free(t);
    arena_free(mem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_llama2c),
        cmocka_unit_test(test_tiktoken),
        cmocka_unit_test(test_gpt2_and_bert),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_llama2c_both_ways),
        cmocka_unit_test(test_byte_level_both_ways),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_trained_to_sentencepiece),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_folder_config),
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_gguf_refusals),
        cmocka_unit_test(test_gguf_file),
        cmocka_unit_test(test_gguf_padding),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
