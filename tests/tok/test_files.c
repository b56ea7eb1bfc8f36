/* Saving and loading, special tokens, hashes, options of training. */
#include <stdio.h>
#include <unistd.h>

#include "tok/tok_edit.h"
#include "tok/tok_test.h"

static char dir[256];

static int make_dir(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/tok_test_XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    err e = {0};
    return file_remove_tree(dir, &e) == ST_OK ? 0 : -1;
}

static const char *in_dir(char *path, size_t n, const char *name) {
    snprintf(path, n, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const char *text) {
    char path[512];
    err e = {0};
    in_dir(path, sizeof(path), name);
    assert_int_equal(file_write_atomic(path, text, strlen(text), &e), ST_OK);
}

static void test_identical_bytes(void **state) {
    (void)state;
    err e = {0};
    char path[512];
    size_t n, m;
    char *before = read_golden(GOLDEN("bpe_gpt2.json"), &n);
    tok *t = load_golden(GOLDEN("bpe_gpt2.json"));
    assert_int_equal(tok_save_file(t, in_dir(path, sizeof(path), "copy.json"), &e), ST_OK);
    char *after = read_golden(path, &m);
    assert_int_equal(n, m);
    assert_memory_equal(before, after, n);
    free(before);
    free(after);
    tok_free(t);
}

/* Spacing, key order and the spelling of merges do not change the hash; a merge or token does. */
static void test_hash(void **state) {
    (void)state;
#define HASH_BEGIN "{\"decoder\":{\"type\":\"Fuse\"},\"model\":"
    static const char *const SAME[] = {
        HASH_BEGIN "{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}",
        "{\"model\": {\"merges\": [[\"a\", \"b\"]], \"vocab\": {\"ab\": 2, \"b\": 1, \"a\": 0}},\n"
        " \"decoder\": {\"type\": \"Fuse\"}}",
    };
    static const char *const OTHER[] = {
        HASH_BEGIN "{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[]}}",
        HASH_BEGIN "{\"vocab\":{\"a\":1,\"b\":0,\"ab\":2},\"merges\":[\"a b\"]}}",
        HASH_BEGIN "{\"vocab\":{\"a\":0,\"b\":1,\"ab\":3},\"merges\":[\"a b\"]}}",
    };
    tok *a = parse_ok(SAME[0]), *b = parse_ok(SAME[1]);
    assert_true(tok_hash(a) == tok_hash(b));
    for (int i = 0; i < ARRAY_LEN(OTHER); i++) {
        tok *c = parse_ok(OTHER[i]);
        assert_true(tok_hash(a) != tok_hash(c));
        tok_free(c);
    }
    tok_free(a);
    tok_free(b);
}

static void test_save_dir(void **state) {
    (void)state;
    err e = {0};
    char path[512];
    tok *back, *t = load_golden(GOLDEN("bpe_llama3.json"));
    in_dir(path, sizeof(path), "folder");
    assert_int_equal(tok_save_dir(t, path, 2048, &e), ST_OK);
    assert_int_equal(tok_load(&back, path, &e), ST_OK);
    assert_true(tok_hash(back) == tok_hash(t));
    assert_int_equal(tok_eos(back), tok_eos(t));
    json_t *j = json_load_file(in_dir(path, sizeof(path), "folder/tokenizer_config.json"), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(j, "eos_token")), "<|endoftext|>");
    assert_string_equal(json_string_value(json_object_get(j, "tokenizer_class")),
                        "PreTrainedTokenizerFast");
    assert_int_equal(json_integer_value(json_object_get(j, "model_max_length")), 2048);
    assert_true(json_is_false(json_object_get(j, "clean_up_tokenization_spaces")));
    json_decref(j);
    assert_true(file_exists(in_dir(path, sizeof(path), "folder/special_tokens_map.json")));
    tok_free(back);
    tok_free(t);
}

static char *member(const char *file, const char *key) {
    char path[512];
    json_t *j = json_load_file(in_dir(path, sizeof(path), file), 0, NULL);
    const json_t *v = json_object_get(j, key);
    char *text = xstrdup(json_is_string(v) ? json_string_value(v) : "");
    json_decref(j);
    return text;
}

static void expect_member(const char *file, const char *key, const char *want) {
    char *got = member(file, key);
    assert_string_equal(got, want);
    free(got);
}

/* What a taught model keeps beside its weights, and what a larger vocabulary takes along. */
static void test_save_chat(void **state) {
    (void)state;
    static const char chat[] = "{{ messages[0].content }}<|user|>";
    err e = {0};
    char path[512], *text;
    size_t n;
    tok *t = load_golden(GOLDEN("bpe_gpt2.json")), *taught, *more, *back;
    tok_new_token user = {.content = "<|user|>", .special = true};
    tok_new_token tool = {.content = "<|tool|>", .special = true};
    assert_int_equal(tok_edit_add(t, &(tok_add_options){.token = &user, .n = 1}, &taught, &e),
                     ST_OK);
    int32_t stop = tok_id(taught, "<|user|>");
    in_dir(path, sizeof(path), "taught");
    assert_int_equal(tok_save_chat(taught, path, 64, chat, stop, &e), ST_OK);
    expect_member("taught/tokenizer_config.json", "eos_token", "<|user|>");
    expect_member("taught/tokenizer_config.json", "chat_template", chat);
    expect_member("taught/special_tokens_map.json", "eos_token", "<|user|>");
    in_dir(path, sizeof(path), "taught/chat_template.jinja");
    assert_int_equal(file_read_all(path, &text, &n, &e), ST_OK);
    assert_string_equal(text, chat);
    free(text);

    assert_int_equal(tok_load(&back, in_dir(path, sizeof(path), "taught"), &e), ST_OK);
    assert_int_equal(tok_eos(back), stop);
    assert_int_equal(tok_edit_add(back, &(tok_add_options){.token = &tool, .n = 1}, &more, &e),
                     ST_OK);
    in_dir(path, sizeof(path), "more");
    assert_int_equal(tok_save_dir(more, path, 0, &e), ST_OK);
    expect_member("more/tokenizer_config.json", "eos_token", "<|user|>");
    expect_member("more/tokenizer_config.json", "chat_template", chat);
    in_dir(path, sizeof(path), "more/tokenizer_config.json");
    assert_int_equal(file_read_all(path, &text, &n, &e), ST_OK);
    assert_non_null(strstr(text, "<|tool|>")); /* among the added tokens */
    free(text);
    tok_free(more);
    tok_free(back);
    tok_free(taught);
    tok_free(t);
}

static void test_config_names_specials(void **state) {
    (void)state;
    err e = {0};
    size_t n;
    tok *t;
    char *json = read_golden(GOLDEN("bpe_gpt2.json"), &n);
    write_file("tokenizer.json", json);
    assert_int_equal(tok_load(&t, dir, &e), ST_OK);
    assert_int_equal(tok_eos(t), tok_id(t, "<|endoftext|>"));
    assert_int_equal(tok_bos(t), tok_id(t, "<s>")); /* from the template */
    tok_free(t);
    write_file("tokenizer_config.json",
               "{\"eos_token\":{\"content\":\"</s>\"},\"bos_token\":\"<|endoftext|>\"}");
    assert_int_equal(tok_load(&t, dir, &e), ST_OK);
    assert_int_equal(tok_eos(t), tok_id(t, "</s>"));
    assert_int_equal(tok_bos(t), tok_id(t, "<|endoftext|>"));
    tok_free(t);
    write_file("tokenizer_config.json", "{\"eos_token\":\"<nowhere>\"}");
    assert_int_equal(tok_load(&t, dir, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "<nowhere>"));
    assert_string_equal(e.where, "eos_token");
    free(json);
}

static void test_missing_file(void **state) {
    (void)state;
    err e = {0};
    tok *t;
    char path[512];
    assert_int_equal(tok_load(&t, in_dir(path, sizeof(path), "none.json"), &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "none.json"));
    assert_null(t);
}

static void refuse_options(tok_train_options opt, const char *where) {
    err e = {0};
    tok_trainer *tr;
    assert_int_equal(tok_trainer_new(&tr, &opt, &e), ST_USAGE);
    assert_string_equal(e.where, where);
    assert_null(tr);
}

static void test_training_options(void **state) {
    (void)state;
    const char *twice[] = {"<a>", "<a>"}, *short_one[] = {"a"};
    refuse_options((tok_train_options){.kind = TOK_BPE, .vocab_size = 256}, "vocab_size");
    refuse_options((tok_train_options){.kind = TOK_BYTE, .pattern = "words"}, "pattern");
    refuse_options((tok_train_options){.kind = TOK_BYTE, .special = twice, .n_special = 2},
                   "special");
    refuse_options((tok_train_options){.kind = TOK_BYTE, .special = short_one, .n_special = 1},
                   "special");
    err e = {0};
    tok_trainer *tr;
    tok *t;
    tok_train_options bpe = {.kind = TOK_BPE, .vocab_size = 300};
    assert_int_equal(tok_trainer_new(&tr, &bpe, &e), ST_OK);
    assert_int_equal(tok_trainer_finish(tr, &t, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "empty"));
    tok_trainer_free(tr);
}

/* A trainer may be finished twice: the second result is the first. */
static void test_finish_twice(void **state) {
    (void)state;
    err e = {0};
    tok_trainer *tr;
    tok *a, *b;
    tok_train_options opt = {.kind = TOK_BPE, .vocab_size = 280};
    const char *text = "low lower lowest new newer newest low low new";
    assert_int_equal(tok_trainer_new(&tr, &opt, &e), ST_OK);
    assert_int_equal(tok_trainer_add(tr, text, strlen(text), &e), ST_OK);
    assert_int_equal(tok_trainer_finish(tr, &a, &e), ST_OK);
    assert_int_equal(tok_trainer_finish(tr, &b, &e), ST_OK);
    assert_true(tok_vocab_size(a) > 260);
    assert_true(tok_hash(a) == tok_hash(b));
    tok_trainer_free(tr);
    tok_free(a);
    tok_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identical_bytes),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_save_dir),
        cmocka_unit_test(test_save_chat),
        cmocka_unit_test(test_config_names_specials),
        cmocka_unit_test(test_missing_file),
        cmocka_unit_test(test_training_options),
        cmocka_unit_test(test_finish_twice),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
