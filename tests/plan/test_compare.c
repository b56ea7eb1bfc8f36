/* Verification of exports: what is right passes, and one changed weight does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/io_test.h"
#include "plan/interchange.h"

#define MODEL(name) TEST_DIR "/golden/models/" name

static model_comparison compare(const char *source, const char *result, dtype dt) {
    model_source s;
    model_comparison c;
    err e;
    assert_ok(model_source_open(&s, source, NULL, 0, &e), e);
    assert_ok(compare_models(&s, result, compare_limits_of(dt), &c, &e), e);
    model_source_close(&s);
    return c;
}

static char *write_folder(test_dir *d, const char *source, const char *name,
                          interchange_options opt) {
    char *path = path_join(d->mem, d->path, name);
    interchange_report r;
    err e;
    opt.verify = true;
    assert_ok(interchange_run(source, path, &opt, &r, &e), e);
    assert_true(r.verified.verified && r.verified.positions > 0);
    interchange_report_free(&r);
    return path;
}

static void test_same_bits_same_logits(void **state) {
    test_dir *d = *state;
    char *path = write_folder(d, MODEL("gpt2-tanh-tied"), "out", (interchange_options){0});
    model_comparison c = compare(MODEL("gpt2-tanh-tied"), path, DT_F32);
    assert_true(c.verified && c.ids_equal);
    assert_float_equal(c.max_abs_diff, 0, 0);
    assert_float_equal(c.top1, 1, 0);
}

/* The largest change that a lost half of a number can make in one weight. */
static void damage_weight(const char *path) {
    char *bytes;
    size_t len;
    err e;
    assert_ok(file_read_all(path, &bytes, &len, &e), e);
    uint64_t header;
    memcpy(&header, bytes, 8);
    float x;
    memcpy(&x, bytes + 8 + header, 4);
    x += 1.0f;
    memcpy(bytes + 8 + header, &x, 4);
    assert_ok(file_write_atomic(path, bytes, len, &e), e);
    free(bytes);
}

static void test_one_damaged_weight_is_seen(void **state) {
    test_dir *d = *state;
    char *path = write_folder(d, MODEL("llama-gqa-tied"), "out", (interchange_options){0});
    damage_weight(path_join(d->mem, path, "model.safetensors"));
    model_comparison c = compare(MODEL("llama-gqa-tied"), path, DT_F32);
    assert_false(c.verified);
    assert_true(c.max_abs_diff > 1e-3);
}

static void test_another_model_is_seen(void **state) {
    (void)state;
    model_source s;
    model_comparison c;
    err e;
    assert_ok(model_source_open(&s, MODEL("llama-linear"), NULL, 0, &e), e);
    assert_ok(compare_models(&s, MODEL("llama-dynamic"), compare_limits_of(DT_Q8_0), &c, &e), e);
    assert_false(c.verified);
    model_source_close(&s);
}

static void test_formats_are_told_apart(void **state) {
    test_dir *d = *state;
    const char *model = MODEL("llama-gqa-tied");
    char *path = write_folder(d, model, "bf16", (interchange_options){.format = "BF16"});
    assert_true(compare(model, path, DT_BF16).verified);
    assert_false(compare(model, path, DT_F32).verified); /* rounding is no equality */
    path = write_folder(d, model, "f16", (interchange_options){.format = "f16"});
    assert_true(compare(model, path, DT_F16).max_abs_diff > 0);
}

static void test_card_says_what_was_measured(void **state) {
    test_dir *d = *state;
    char *text, *path = write_folder(d, MODEL("mobilellm-shared"), "out", (interchange_options){0});
    size_t len;
    err e;
    assert_ok(file_read_all(path_join(d->mem, path, "README.md"), &text, &len, &e), e);
    assert_non_null(strstr(text, "# out\n"));
    assert_non_null(strstr(text, "the largest difference of a logit is 0"));
    assert_non_null(strstr(text, "- transformers: no, it has no class for model_type mobilellm"));
    free(text);
}

static void test_extensions_run_nowhere(void **state) {
    (void)state;
    arena *a = arena_new("test");
    model_config mc;
    err e;
    json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:i}", "model_type", "llama", "hidden_size", 32,
                          "num_hidden_layers", 2, "num_attention_heads", 4, "vocab_size", 50);
    assert_ok(model_config_read(a, o, 0, &mc, &e), e);
    where_runs w = where_runs_of(&mc, NULL);
    for (int t = 0; t < WHERE_TOOLS; t++) assert_true(w.tool[t].runs);
    json_object_set_new(o, "qk_norm", json_string("head"));
    assert_ok(model_config_read(a, o, 0, &mc, &e), e);
    w = where_runs_of(&mc, NULL);
    assert_true(where_runs_nowhere(&w));
    assert_non_null(strstr(w.tool[WHERE_VLLM].why, "qk_norm"));
    json_decref(o);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_same_bits_same_logits),       IO_TEST(test_one_damaged_weight_is_seen),
        cmocka_unit_test(test_another_model_is_seen), IO_TEST(test_formats_are_told_apart),
        IO_TEST(test_card_says_what_was_measured), cmocka_unit_test(test_extensions_run_nowhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
