/* Ids equal those of Hugging Face tokenizers on every committed case
 * (tests/oracle/make_tok_golden.py): patterns, behaviours, added tokens, templates, normal forms.
 */
#include <unistd.h>

#include "tok/tok_test.h"

/* Keys of `patch` replace top-level keys; "model.x" replaces an option of the model. */
static void apply_patch(json_t *root, json_t *patch) {
    const char *key;
    json_t *value;
    json_object_foreach(patch, key, value) {
        bool model = strncmp(key, "model.", 6) == 0;
        json_object_set(model ? json_object_get(root, "model") : root, model ? key + 6 : key,
                        value);
    }
}

static tok *load_patched(const char *file, json_t *patch) {
    char path[512];
    snprintf(path, sizeof(path), GOLDEN("%s"), file);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    apply_patch(root, patch);
    char *text = json_dumps(root, JSON_COMPACT);
    tok *t = parse_ok(text);
    free(text);
    json_decref(root);
    return t;
}

static void check_ids(const tok *t, const json_t *one, const char *key, unsigned flags,
                      const char *name) {
    const json_t *text = json_object_get(one, "text"), *want = json_object_get(one, key);
    tok_ids ids = encode_ok(t, json_string_value(text), json_string_length(text), flags);
    for (int64_t i = 0; i < ids.n || i < (int64_t)json_array_size(want); i++) {
        int64_t expected = json_integer_value(json_array_get(want, (size_t)i));
        if (i >= ids.n || i >= (int64_t)json_array_size(want) || ids.id[i] != expected) {
            fail_msg("%s, text \"%s\": %s differ at %d of %d (%d expected)", name,
                     json_string_value(text), key, (int)i, (int)ids.n, (int)json_array_size(want));
        }
    }
    tok_ids_free(&ids);
}

static void test_cases(void **state) {
    (void)state;
    json_t *groups = json_load_file(GOLDEN("cases.json"), 0, NULL), *group, *one;
    size_t i, k, checked = 0;
    json_array_foreach(groups, i, group) {
        const char *file = json_string_value(json_object_get(group, "file"));
        json_t *patch = json_object_get(group, "patch");
        char *name = json_dumps(patch, JSON_COMPACT);
        tok *t = load_patched(file, patch);
        json_array_foreach(json_object_get(group, "cases"), k, one) {
            check_ids(t, one, "ids", 0, name);
            check_ids(t, one, "special_ids", TOK_ADD_SPECIAL, name);
            checked++;
        }
        tok_free(t);
        free(name);
    }
    assert_true(checked > 400);
    json_decref(groups);
}

/* Training on the same text gives the same vocabulary and merges. */
static void check_training(const char *file, const char *pattern, int32_t vocab_size) {
    size_t len;
    char *text = read_golden(GOLDEN("corpus.txt"), &len);
    tok *ours = train_on(
        (tok_train_options){
            .kind = TOK_BPE, .vocab_size = vocab_size, .pattern = pattern, .min_frequency = 2},
        text, len);
    const char *tmp = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof(path), "%s/tok_trained_XXXXXX", tmp ? tmp : "/tmp");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    err e = {0};
    assert_int_equal(tok_save_file(ours, path, &e), ST_OK);
    json_t *a = json_load_file(path, 0, NULL), *b = json_load_file(file, 0, NULL);
    const char *const KEYS[] = {"merges", "vocab"};
    for (int i = 0; i < ARRAY_LEN(KEYS); i++) {
        const json_t *x = json_object_get(json_object_get(a, "model"), KEYS[i]);
        assert_non_null(x);
        assert_true(json_equal(x, json_object_get(json_object_get(b, "model"), KEYS[i])));
    }
    json_decref(a);
    json_decref(b);
    remove(path);
    tok_free(ours);
    free(text);
}

static void test_training(void **state) {
    (void)state;
    check_training(GOLDEN("bpe_llama3.json"), "llama3", 1000);
    check_training(GOLDEN("bpe_gpt2.json"), "gpt2", 700);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
