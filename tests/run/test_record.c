/* Alarms and stages in words. */
#include "run/run_test.h"

#include "run/record.h"

static void expect_words(void (*put)(strbuf *out, const json_t *o), const char *json,
                         const char *want) {
    strbuf text = {0};
    json_t *o = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(o);
    put(&text, o);
    assert_string_equal(strbuf_cstr(&text), want);
    json_decref(o);
    strbuf_free(&text);
}

static void test_kinds(void **state) {
    (void)state;
    expect_words(record_put_kind, "{\"kind\": \"checkpoint_damaged\"}", "checkpoint damaged");
    expect_words(record_put_kind, "{\"kind\": \"nonfinite\"}", "not finite");
    expect_words(record_put_kind, "{}", "alarm");
    expect_words(record_put_kind, "[]", "alarm");
}

static bool says(const char *json, bool (*test)(const json_t *alarm)) {
    json_t *o = json_loads(json, JSON_DECODE_ANY, NULL);
    bool answer = test(o);
    json_decref(o);
    return answer;
}

static void test_what_an_alarm_means(void **state) {
    (void)state;
    assert_true(says("{}", record_is_fatal));
    assert_true(says("{\"kind\": \"nonfinite\"}", record_is_fatal));
    assert_true(says("{\"kind\": \"spike\", \"action\": \"rewind\"}", record_is_fatal));
    assert_false(says("{\"kind\": \"spike\", \"action\": \"lower\"}", record_is_fatal));
    assert_false(says("{\"kind\": \"rewind\"}", record_is_fatal));
    assert_true(says("{\"kind\": \"rewind\"}", record_is_on_curve));
    assert_false(says("{\"kind\": \"upload_failed\"}", record_is_on_curve));
    json_t *o = json_pack("{s:s}", "action", "skip");
    assert_string_equal(record_action(o), "step skipped");
    assert_string_equal(record_action(NULL), "");
    json_decref(o);
}

static void test_documents(void **state) {
    (void)state;
    expect_words(record_put_document,
                 "{\"set\": \"shards/web\", \"shard\": \"shard-00003.bin\", \"document\": 22, "
                 "\"source\": \"crawl.jsonl\", \"line\": 23, \"id\": \"u/7\", \"first_tok\": 5, "
                 "\"end_tok\": 9, \"loss\": 0.4217, \"repeated\": 0.984}",
                 "crawl.jsonl:23 \"u/7\" (document 22 in shards/web/shard-00003.bin), "
                 "98 % repeated, loss 0.422");
    expect_words(
        record_put_document,
        "{\"set\": \"tokens\", \"shard\": \"tokens/a.npy\", \"document\": null, \"source\": "
        "null, \"line\": null, \"first_tok\": 5, \"end_tok\": 9, \"loss\": null, "
        "\"repeated\": 0}",
        "tokens (tokens 5 to 9 of tokens/a.npy)");
    expect_words(record_put_document, "{\"source\": \"book.txt\", \"document\": 0}", "book.txt");
    expect_words(record_put_document, "5", "");
}

static void test_stages(void **state) {
    (void)state;
    static const char STAGE[] =
        "{\"seq_len\": 4096, \"batch\": 16, \"rope_theta\": 5e5, \"lr\": 2e-4, \"sources\": "
        "[{\"path\": "
        "\"shards/web/train/\", \"share\": 0.7}, {\"path\": \"code\", \"share\": 0.2999999}, {}]}";
    expect_words(record_put_stage_shape, STAGE, "4096 tokens x 16, rotary base 500k, rate 2e-4");
    expect_words(record_put_mixture, STAGE, "web 70 %, code 30 %, ");
    expect_words(record_put_stage_shape, "{\"seq_len\": 8, \"batch\": 1, \"rope_theta\": null}",
                 "8 tokens x 1");
    expect_words(record_put_source, "{\"path\": \"/train\"}", "train");
    expect_words(record_put_source, "{\"path\": \"/\"}", "");
    expect_words(record_put_source, "{\"path\": \"train\"}", "train");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_what_an_alarm_means),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
