/* Conversations: ids and masks as TRL makes them, the forms of records, roles, and a planted data set for
 * each hard stop. */
#include "data_test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "data/chat/chat.h"
#include "data/chat/records.h"

#define GOLDEN TEST_DIR "/golden/data/chat/"

static tok *load_tok(void) {
    tok *t;
    assert_ok(tok_load(&t, GOLDEN "tokenizer.json", e));
    return t;
}

static chat_template *load_template(const char *name) {
    chat_template *t;
    char path[512];
    const char *file = path;
    snprintf(path, sizeof path, GOLDEN "%s.jinja", name);
    if (strcmp(name, "marks") == 0) file = TEST_DIR "/golden/jinja/chat/chatml.jinja";
    if (strcmp(name, "chatml") == 0) file = name;
    assert_ok(chat_template_load_other(&t, GOLDEN "tokenizer.json", file, e));
    return t;
}

/* ---- golden values ---- */

static bool in_ranges(const json_t *ranges, int64_t i) {
    size_t k;
    json_t *r;
    json_array_foreach((json_t *)ranges, k, r) {
        if (i >= json_integer_value(json_array_get(r, 0)) &&
            i < json_integer_value(json_array_get(r, 1)))
            return true;
    }
    return false;
}

static void check_case(const tok *t, const json_t *c, const struct tm *now) {
    const char *name = json_string_value(json_object_get(c, "name"));
    chat_template *template = load_template(json_string_value(json_object_get(c, "template")));
    chat_encoder k = {.tok = t, .template = template, .now = now};
    const json_t *record = json_object_get(c, "record"), *ids = json_object_get(c, "ids");
    chat_sample s;
    chat_document d;
    assert_ok(chat_form_read(chat_form_of(record), record, &s, e));
    assert_ok(chat_encode(&k, &s, s.messages, json_array_size(s.messages), &d, e));
    if (d.ids.n != (int64_t)json_array_size(ids)) fail_msg("%s: %d ids", name, (int)d.ids.n);
    for (int64_t i = 0; i < d.ids.n; i++) {
        bool trained = d.marks[i] & MARK_TRAINED;
        if (d.ids.id[i] != json_integer_value(json_array_get(ids, (size_t)i)) ||
            trained != in_ranges(json_object_get(c, "trained"), i))
            fail_msg("%s: token %d", name, (int)i);
    }
    chat_document_free(&d);
    chat_sample_free(&s);
    chat_template_free(template);
}

static void test_ids_and_masks_are_those_of_trl(void **state) {
    (void)state;
    json_t *golden, *c;
    size_t i;
    assert_ok(json_read_file(&golden, GOLDEN "chat.json", JSON_FILE_MAX_BYTES, e));
    const json_t *date = json_object_get(golden, "date"), *cases = json_object_get(golden, "cases");
    struct tm now = {.tm_year = (int)json_integer_value(json_array_get(date, 0)) - 1900,
                     .tm_mon = (int)json_integer_value(json_array_get(date, 1)) - 1,
                     .tm_mday = (int)json_integer_value(json_array_get(date, 2))};
    tok *t = load_tok();
    assert_true(json_array_size(cases) > 15);
    json_array_foreach((json_t *)cases, i, c) check_case(t, c, &now);
    tok_free(t);
    json_decref(golden);
}

/* ---- forms ---- */

static chat_sample read_as(const char *text, const char *form) {
    json_t *record = json_loads(text, 0, NULL);
    chat_sample s;
    assert_non_null(record);
    const chat_form *f = chat_form_of(record);
    if (!f) fail_msg("no form: %s", text);
    assert_string_equal(chat_form_name(f), form);
    assert_ok(chat_form_read(f, record, &s, e));
    json_decref(record);
    return s;
}

/* The messages as "role:content|role:content"; tool calls as their JSON. */
static void expect_messages(const json_t *messages, const char *want) {
    strbuf b = {0};
    size_t i;
    json_t *m;
    json_array_foreach((json_t *)messages, i, m) {
        const json_t *calls = json_object_get(m, "tool_calls");
        strbuf_printf(&b, "%s%s:%s", i ? "|" : "", json_string_value(json_object_get(m, "role")),
                      json_string_value(json_object_get(m, "content")));
        if (calls) json_format(&b, calls, 0);
    }
    assert_string_equal(strbuf_cstr(&b), want);
    strbuf_free(&b);
}

static void expect_form(const char *text, const char *form, const char *want) {
    chat_sample s = read_as(text, form);
    expect_messages(s.messages, want);
    chat_sample_free(&s);
}

static void test_forms_of_conversations(void **state) {
    (void)state;
    expect_form("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                "{\"role\": \"assistant\", \"content\": \"b\"}], \"system\": \"s\"}",
                "messages", "system:s|user:a|assistant:b");
    expect_form("{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, "
                "{\"from\": \"gpt\", \"value\": \"b\"}]}",
                "sharegpt", "user:a|assistant:b");
    expect_form("{\"instruction\": \"a\", \"input\": \"i\", \"output\": \"b\", "
                "\"history\": [[\"x\", \"y\"]]}",
                "alpaca", "user:x|assistant:y|user:a\ni|assistant:b");
    expect_form("{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}", "alpaca",
                "user:a|assistant:b");
    expect_form("{\"question\": \"a\", \"answer\": \"b\"}", "alpaca", "user:a|assistant:b");
    json_t *text = json_loads("{\"text\": \"no conversation\"}", 0, NULL);
    assert_null(chat_form_of(text));
    json_decref(text);
}

static void test_tool_calls(void **state) {
    (void)state;
    const char *call = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                       "\"arguments\": {\"x\": 1}}}]";
    char want[256];
    snprintf(want, sizeof want, "user:a|assistant:%s|tool:1|assistant:b", call);
    expect_form(
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": "
        "\"function_call\", \"value\": \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
        "{\\\"x\\\": 1}}\"}, {\"from\": \"observation\", \"value\": \"1\"}, {\"from\": \"gpt\", "
        "\"value\": \"b\"}]}",
        "sharegpt", want);
    snprintf(want, sizeof want, "user:a|assistant:%s", call);
    expect_form("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                "\"assistant\", \"content\": null, \"tool_calls\": [{\"type\": \"function\", "
                "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}}]}]}",
                "messages", want);
    chat_sample s = read_as("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": "
                            "\"[{\\\"name\\\": \\\"f\\\"}]\"}",
                            "messages");
    const json_t *function = json_object_get(json_array_get(s.tools, 0), "function");
    assert_string_equal(json_string_value(json_object_get(function, "name")), "f");
    chat_sample_free(&s);
}

#define ANSWER "{\"role\": \"assistant\", \"content\": \"b\""

static void refuse_form(const char *text, const char *words) {
    err e = {0};
    chat_sample s;
    json_t *record = json_loads(text, 0, NULL);
    assert_int_equal(chat_form_read(chat_form_find("messages"), record, &s, &e), ST_USAGE);
    if (!strstr(e.message, words)) fail_msg("'%s' is not in: %s", words, e.message);
    json_decref(record);
}

/* Tables keep nested values as texts; what is neither is refused, for a template would not write it. */
static void test_values_as_texts(void **state) {
    (void)state;
    expect_form("{\"messages\": [" ANSWER ", \"tool_calls\": \"[{\\\"name\\\": \\\"f\\\", "
                "\\\"arguments\\\": {}}]\"}]}",
                "messages",
                "assistant:b[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                "\"arguments\": {}}}]");
    expect_form("{\"messages\": [" ANSWER ", \"tool_calls\": \"null\"}]}", "messages",
                "assistant:b");
    chat_sample s = read_as("{\"messages\": [" ANSWER "}], \"tools\": \"null\", \"documents\": [], "
                            "\"chat_template_kwargs\": \"{\\\"enable_thinking\\\": false}\"}",
                            "messages");
    assert_true(!s.tools && !s.documents);
    assert_true(json_is_false(json_object_get(s.variables, "enable_thinking")));
    chat_sample_free(&s);
    refuse_form("{\"messages\": [" ANSWER ", \"tool_calls\": \"f(x)\"}]}", "that are no calls");
    refuse_form("{\"messages\": [" ANSWER ", \"tool_calls\": [\"f(x)\"]}]}", "that are no calls");
    refuse_form("{\"messages\": [" ANSWER "}], \"tools\": {\"name\": \"f\"}}",
                "its \"tools\" is neither a list");
    refuse_form("{\"messages\": [" ANSWER "}], \"chat_template_kwargs\": \"fast\"}",
                "its \"chat_template_kwargs\" is neither an object");
}

static void expect_pair(const char *text, size_t n_prompt, const char *chosen,
                        const char *rejected) {
    chat_sample s = read_as(text, "preference");
    assert_int_equal(s.kind, CHAT_PAIRS);
    assert_int_equal(s.n_prompt, n_prompt);
    expect_messages(s.messages, chosen);
    expect_messages(s.rejected, rejected);
    chat_sample_free(&s);
}

static void test_preferences(void **state) {
    (void)state;
    expect_pair("{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\", \"system\": \"s\"}", 2,
                "system:s|user:p|assistant:c", "system:s|user:p|assistant:r");
    expect_pair(
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"p\"}], \"chosen\": {\"from\": "
        "\"gpt\", \"value\": \"c\"}, \"rejected\": {\"from\": \"gpt\", \"value\": \"r\"}}",
        1, "user:p|assistant:c", "user:p|assistant:r");
    /* UltraFeedback: the lists begin with the prompt, which is also there as a text. */
    expect_pair(
        "{\"prompt\": \"p\", \"chosen\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": "
        "\"assistant\", \"content\": \"c\"}], \"rejected\": [{\"role\": \"user\", \"content\": "
        "\"p\"}, {\"role\": \"assistant\", \"content\": \"r\"}]}",
        1, "user:p|assistant:c", "user:p|assistant:r");
}

static void test_labels(void **state) {
    (void)state;
    chat_sample s = read_as("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                            "\"assistant\", \"content\": \"b\"}], \"label\": false}",
                            "kto");
    assert_true(s.kind == CHAT_LABELS && s.n_prompt == 1 && !s.desirable);
    chat_sample_free(&s);
    s = read_as("{\"prompt\": \"a\", \"completion\": \"b\", \"kto_tag\": true}", "kto");
    assert_true(s.kind == CHAT_LABELS && s.n_prompt == 1 && s.desirable);
    chat_sample_free(&s);
}

/* ---- building ---- */

static const char *put_records(scene *sc, const char *name, const char *text) {
    return put_text(sc, name, text);
}

static status build_as(scene *sc, const char *file, const char *out, const char *template,
                       chat_build_options opt, err *e) {
    chat_build_result r;
    tok *t = load_tok();
    opt.template_file = template;
    status st = chat_build(&file, 1, in_scene(sc, out), GOLDEN "tokenizer.json", t, &opt, &r, e);
    json_decref(r.report);
    tok_free(t);
    return st;
}

static uint32_t allow(const char *name) {
    uint32_t bits = 0;
    assert_ok(chat_checks_parse(&name, 1, &bits, e));
    return bits;
}

/* The text is refused by the check, which names line 2 of the file; with the check allowed it is built,
 * and found in chat.json. */
static void expect_stop(scene *sc, const char *check, const char *text, const char *template) {
    char file[64], where[160];
    err why = {0};
    snprintf(file, sizeof file, "%s.jsonl", check);
    const char *path = put_records(sc, file, text);
    assert_int_equal(build_as(sc, path, check, template, (chat_build_options){0}, &why), ST_USAGE);
    snprintf(where, sizeof where, "%s:2", path);
    assert_string_equal(why.where, where);
    if (!strstr(why.message, check) || !strstr(why.message, where) || !why.hint[0])
        fail_msg("%s: %s", check, why.message);
    assert_false(file_exists(in_scene(sc, check)));
    chat_build_options opt = {.allowed = allow(check)};
    assert_ok(build_as(sc, path, check, template, opt, e));
    json_t *report;
    assert_ok(json_read_file(&report, path_join(sc->mem, in_scene(sc, check), "chat.json"),
                             JSON_FILE_MAX_BYTES, e));
    const json_t *found = json_array_get(json_object_get(report, "checks"), 0);
    assert_string_equal(json_string_value(json_object_get(found, "name")), check);
    assert_string_equal(json_string_value(json_object_get(found, "first")), where);
    json_decref(report);
    assert_ok(file_remove_tree(in_scene(sc, check), e));
}

#define GOOD                                                                                       \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "         \
    "\"content\": \"b\"}]}\n"
#define TURN "{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}"

static const char *put_template(scene *sc, const char *name, const char *text) {
    return put_text(sc, name, text);
}

static void test_planted_sets_are_stopped(void **state) {
    scene *sc = *state;
    expect_stop(sc, "nothing_trained",
                GOOD "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", "chatml");
    expect_stop(sc, "system_dropped",
                GOOD
                "{\"messages\": [{\"role\": \"system\", \"content\": \"Be a pirate.\"}, {\"role\": "
                "\"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n",
                put_template(sc, "drops.jinja",
                             "{% for m in messages if m.role != 'system' %}" TURN "{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"));
    /* What the user says is the same. */
    expect_stop(
        sc, "system_dropped",
        GOOD
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": "
        "\"user\", \"content\": \"Be kind.\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n",
        in_scene(sc, "drops.jinja"));
    expect_stop(sc, "tools_dropped",
                GOOD "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                     "\"assistant\", \"content\": \"b\"}], \"tools\": [{\"name\": \"weather\"}]}\n",
                "chatml");
    /* What the user says has the names, too. */
    expect_stop(sc, "tools_dropped",
                GOOD "{\"messages\": [{\"role\": \"user\", \"content\": \"weather?\"}, {\"role\": "
                     "\"assistant\", \"content\": \"b\"}], \"tools\": [{\"name\": \"weather\"}]}\n",
                "chatml");
    expect_stop(sc, "tools_dropped",
                GOOD "{\"messages\": [{\"role\": \"user\", \"content\": \"weather?\"}, {\"role\": "
                     "\"assistant\", \"content\": \"b\", \"tool_calls\": [{\"name\": \"weather\", "
                     "\"arguments\": {}}]}, {\"role\": \"tool\", \"content\": \"1\"}, {\"role\": "
                     "\"assistant\", \"content\": \"c\"}]}\n",
                "chatml");
    expect_stop(sc, "template_fails",
                GOOD
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"tool\", "
                "\"content\": \"1\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n",
                put_template(sc, "fails.jinja",
                             "{% for m in messages %}{% if m.role == 'tool' %}"
                             "{{ raise_exception('no tools here') }}{% endif %}" TURN "{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"));
}

static void test_planted_templates_are_stopped(void **state) {
    scene *sc = *state;
    static const char two[] =
        "\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
        "\"content\": \"d\"}]}\n";
    expect_stop(sc, "everything_trained", two,
                put_template(sc, "all.jinja",
                             "{% generation %}{% for m in messages %}" TURN
                             "{% endfor %}{% endgeneration %}"));
    expect_stop(sc, "prefix_changes", two,
                put_template(sc, "strips.jinja",
                             "{% for m in messages %}{% if loop.last %}" TURN
                             "{% else %}<|im_start|>{{ m.role }}<|im_end|>\n{% endif %}{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"));
    expect_stop(
        sc, "stop_untrained", two,
        put_template(sc, "stops.jinja",
                     "{% for m in messages %}<|im_start|>{{ m.role ~ '\n' }}{% generation %}"
                     "{{ m.content if m.role == 'assistant' }}{% endgeneration %}"
                     "{{ m.content if m.role != 'assistant' }}<|im_end|>\n{% endfor %}"));
    expect_stop(
        sc, "empty_column",
        "\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}], \"chat_template_kwargs\": {\"custom_instructions\": \"\"}}\n",
        "chatml");
}

/* The token of the golden tokenizer that is declared to begin texts is one of ChatML's. */
static void test_two_bos_are_stopped(void **state) {
    scene *sc = *state;
    err why = {0};
    char *json;
    size_t n;
    assert_ok(file_read_all(GOLDEN "tokenizer.json", &json, &n, e));
    put_bytes(sc, "tokenizer.json", json, n);
    free(json);
    put_text(sc, "tokenizer_config.json",
             "{\"bos_token\": \"<|endoftext|>\", \"eos_token\": \"<|im_end|>\"}");
    const char *chats = put_records(sc, "bos.jsonl", GOOD "\n");
    const char *template = put_template(
        sc, "bos.jinja",
        "{{ bos_token ~ bos_token }}{% for m in messages %}" TURN
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    const char *path = in_scene(sc, "tokenizer.json");
    chat_build_options opt = {.template_file = template};
    chat_build_result r;
    tok *t;
    assert_ok(tok_load(&t, path, e));
    assert_int_equal(chat_build(&chats, 1, in_scene(sc, "bos"), path, t, &opt, &r, &why), ST_USAGE);
    assert_non_null(strstr(why.message, "two beginning-of-text tokens"));
    opt.allowed = allow("two_bos");
    assert_ok(chat_build(&chats, 1, in_scene(sc, "bos"), path, t, &opt, &r, e));
    json_decref(r.report);
    tok_free(t);
}

/* ---- what a set holds ---- */

static shards *built(scene *sc, const char *name, const char *text, chat_build_options opt) {
    char file[64];
    shards *s;
    snprintf(file, sizeof file, "%s.json", name);
    assert_ok(build_as(sc, put_records(sc, file, text), name, "chatml", opt, e));
    assert_ok(open_set(&s, in_scene(sc, name), e));
    assert_ok(shards_verify(s, e));
    return s;
}

/* Document d as text, with [ ] around what is trained and ! behind what is rejected. */
static void expect_document(const shards *s, uint64_t d, const char *want) {
    uint64_t ends[2] = {0};
    strbuf b = {0};
    tok *t = load_tok();
    assert_ok(shards_bounds(s, d ? d - 1 : 0, d ? 2 : 1, d ? ends : ends + 1, NULL, e));
    int64_t n = (int64_t)(ends[1] - ends[0]);
    int32_t *ids = xcalloc((size_t)n, sizeof *ids);
    uint8_t *marks = xcalloc((size_t)n, 1);
    assert_ok(shards_copy(s, ends[0], n, ids, NULL, e));
    assert_ok(shards_copy_marks(s, ends[0], n, marks, e));
    for (int64_t i = 0; i < n; i++) {
        bool trained = marks[i] & MARK_TRAINED, before = i > 0 && marks[i - 1] & MARK_TRAINED;
        if (trained && !before) strbuf_puts(&b, "[");
        if (!trained && before) strbuf_puts(&b, "]");
        assert_ok(tok_decode(t, ids + i, 1, false, &b, e));
    }
    if (n > 0 && marks[n - 1] & MARK_TRAINED) strbuf_puts(&b, "]");
    if (n > 0 && marks[n - 1] & MARK_REJECTED) strbuf_puts(&b, "!");
    assert_string_equal(strbuf_cstr(&b), want);
    strbuf_free(&b);
    free(ids);
    free(marks);
    tok_free(t);
}

#define U "<|im_start|>user\n"
#define A "<|im_end|>\n<|im_start|>assistant\n"
#define E "<|im_end|>\n"

static const char two_turns[] = "[{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                                "{\"role\": \"assistant\", \"content\": "
                                "\"b\"}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": "
                                "\"assistant\", \"content\": \"d\"}]}]";

static void test_which_answers_are_trained(void **state) {
    shards *s = built(*state, "all", two_turns, (chat_build_options){0});
    expect_document(s, 0, U "a" A "[b" E "]" U "c" A "[d" E "]");
    shards_close(s);
    /* The first answer has no prompt, and its text stands in what is before it, too. */
    s = built(
        *state, "first",
        "[{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", "
        "\"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}]",
        (chat_build_options){0});
    expect_document(s, 0, "<|im_start|>assistant\n[a" E "]" U "c" A "[d" E "]");
    shards_close(s);
    s = built(*state, "last", two_turns, (chat_build_options){.train = CHAT_TRAIN_LAST});
    expect_document(s, 0, U "a" A "b" E U "c" A "[d" E "]");
    shards_close(s);
    s = built(*state, "each", two_turns, (chat_build_options){.train = CHAT_TRAIN_EACH});
    assert_int_equal(s->totals.documents, 2);
    expect_document(s, 0, U "a" A "[b" E "]");
    expect_document(s, 1, U "a" A "b" E U "c" A "[d" E "]");
    shards_close(s);
}

/* The template that marks answers writes a tool call and a text in stretches of their own. */
static const char marked[] =
    "{% for m in messages %}<|im_start|>{{ m.role ~ '\n' }}{% if m.role == 'assistant' %}"
    "{% if m.reasoning_content %}{% generation %}({{ m.reasoning_content }}){% endgeneration %}"
    "{% endif %}{% for c in m.tool_calls or [] %}{% generation %}<{{ c.function.name }}>{% "
    "endgeneration %}"
    "{% endfor %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ m.content }}<|im_end|>{{ '\n' }}{% endif %}{% endfor %}";

#define WEIGHED(W)                                                                                 \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "         \
    "\"content\": \"b\", \"weight\": " W "}, {\"role\": \"user\", \"content\": \"c\"}, "           \
    "{\"role\": \"assistant\", \"content\": \"b\"}]}\n"

/* OpenAI's weight: an answer of weight 0 is read, and not learned. */
static void test_weights_of_answers(void **state) {
    scene *sc = *state;
    shards *s = built(sc, "zero", WEIGHED("0"), (chat_build_options){0});
    expect_document(s, 0, U "a" A "b" E U "c" A "[b" E "]");
    shards_close(s);
    s = built(sc, "whole", WEIGHED("1") WEIGHED("1.0") WEIGHED("null"), (chat_build_options){0});
    for (uint64_t d = 0; d < 3; d++) expect_document(s, d, U "a" A "[b" E "]" U "c" A "[b" E "]");
    shards_close(s);
    s = built(sc, "each", WEIGHED("0"), (chat_build_options){.train = CHAT_TRAIN_EACH});
    assert_int_equal(s->totals.documents, 1);
    expect_document(s, 0, U "a" A "b" E U "c" A "[b" E "]");
    shards_close(s);
    static const char last[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"c\", \"weight\": 0}]}";
    s = built(sc, "last", last, (chat_build_options){.train = CHAT_TRAIN_LAST});
    expect_document(s, 0, U "a" A "[b" E "]<|im_start|>assistant\nc" E);
    shards_close(s);
    expect_stop(sc, "nothing_trained",
                GOOD "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                     "\"assistant\", \"content\": \"b\", \"weight\": 0}]}\n",
                "chatml");
}

/* Where the template marks answers, too: of two that say the same, and of one with a call. */
static void test_weights_of_marked_answers(void **state) {
    scene *sc = *state;
    static const char call[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"\", \"weight\": 0, \"reasoning_content\": \"r\", \"tool_calls\": "
        "[{\"name\": \"f\"}]}, {\"role\": "
        "\"tool\", "
        "\"content\": \"1\"}, {\"role\": \"assistant\", \"content\": \"b\", \"tool_calls\": "
        "[{\"name\": \"f\"}]}]}\n";
    const char *template = put_template(sc, "marked.jinja", marked);
    const char *path = put_records(sc, "w.jsonl", WEIGHED("0") WEIGHED("1"));
    shards *s;
    assert_ok(build_as(sc, path, "w", template, (chat_build_options){0}, e));
    assert_ok(open_set(&s, in_scene(sc, "w"), e));
    expect_document(s, 0, U "a" A "b" E U "c" A "[b<|im_end|>]\n");
    expect_document(s, 1, U "a" A "[b<|im_end|>]\n" U "c" A "[b<|im_end|>]\n");
    shards_close(s);
    path = put_records(sc, "calls.jsonl", call);
    assert_ok(build_as(sc, path, "calls", template, (chat_build_options){0}, e));
    assert_ok(open_set(&s, in_scene(sc, "calls"), e));
    expect_document(s, 0, U "a" A "(r)<f>" E "<|im_start|>tool\n1" A "[<f>b<|im_end|>]\n");
    shards_close(s);
}

static void test_pairs_and_labels(void **state) {
    shards *s = built(*state, "pairs",
                      "[{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\"},\n"
                      " {\"prompt\": \"q\", \"chosen\": \"d\", \"rejected\": \"s\"}]",
                      (chat_build_options){0});
    assert_true(s->chat.sequences == 2 && !s->chat.labels);
    expect_document(s, 0, U "p" A "[c" E "]");
    expect_document(s, 1, U "p" A "[r" E "]!");
    expect_document(s, 3, U "q" A "[s" E "]!");
    shards_close(s);
    s = built(*state, "kto",
              "[{\"prompt\": \"p\", \"completion\": \"c\", \"label\": true},\n"
              " {\"prompt\": \"q\", \"completion\": \"d\", \"label\": false},\n"
              " {\"prompt\": \"r\", \"completion\": \"e\", \"label\": true}]",
              (chat_build_options){0});
    assert_true(s->chat.sequences == 2 && s->chat.labels);
    expect_document(s, 0, U "p" A "[c" E "]");
    expect_document(s, 1, U "p" A "[d" E "]");
    expect_document(s, 2, U "q" A "[d" E "]!");
    expect_document(s, 3, U "q" A "[e" E "]!");
    expect_document(s, 5, U "r" A "[c" E "]");
    shards_close(s);
}

/* The same bytes for any number of threads; a split by samples. */
static void test_sets_do_not_depend_on_threads(void **state) {
    strbuf text = {0};
    for (int i = 0; i < 600; i++)
        strbuf_printf(&text, "{\"question\": \"q%d %d\", \"answer\": \"a%d\"}\n", i, i * i, i % 7);
    const char *path = put_records(*state, "many.jsonl", strbuf_cstr(&text));
    uint64_t fingerprint[2];
    for (int k = 0; k < 2; k++) {
        shards *s;
        chat_build_options opt = {
            .threads = k ? 3 : 1, .valid_fraction = 0.1, .shard_tokens = 4000};
        assert_ok(build_as(*state, path, "many", "chatml", opt, e));
        assert_ok(open_set(&s, in_scene(*state, "many/train"), e));
        assert_true(s->n_shards > 1 && s->totals.documents > 500 && s->totals.documents < 570);
        fingerprint[k] = s->fingerprint;
        shards_close(s);
    }
    assert_int_equal(fingerprint[0], fingerprint[1]);
    strbuf_free(&text);
}

static void expect_error(scene *sc, const char *text, status code, const char *words) {
    err why = {0};
    const char *path = put_records(sc, "bad.json", text);
    assert_int_equal(build_as(sc, path, "bad", "chatml", (chat_build_options){0}, &why), code);
    if (!strstr(why.message, words)) fail_msg("\"%s\" lacks \"%s\"", why.message, words);
    assert_true(strncmp(why.where, path, strlen(path)) == 0);
}

static void test_bad_records_are_named(void **state) {
    scene *sc = *state;
    expect_error(sc, "[\n" GOOD ",\n{\"messages\": [{\"role\": \"user\"}]}]", ST_USAGE,
                 "bad.json:4: message 1 of its \"messages\" has no \"content\"");
    expect_error(sc, GOOD "\n{\"messages\": [{\"role\": \"robot\", \"content\": \"a\"}]}", ST_USAGE,
                 "bad.json:3: message 1 of its \"messages\" has the role \"robot\"");
    expect_error(sc, GOOD "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\"}", ST_USAGE,
                 "bad.json:2: this record is a chosen and a rejected answer");
    expect_error(sc, GOOD "{\"text\": \"a\"}", ST_USAGE,
                 "bad.json:2: this record has none of the forms");
    expect_error(sc, GOOD "{\"messages\": [}]}", ST_FORMAT, "bad.json:2 is not JSON");
    expect_error(sc, GOOD "{\"messages\": [", ST_FORMAT,
                 "bad.json:2 begins an object that does not");
    expect_error(sc, "[" GOOD, ST_FORMAT, "ends inside a list");
    expect_error(sc, "[]", ST_USAGE, "holds no conversation");
    expect_error(sc, "{\"prompt\": \"p\", \"completion\": \"c\", \"label\": \"False\"}", ST_USAGE,
                 "that is true or false");
    expect_error(sc, GOOD WEIGHED("0.5"), ST_USAGE, "bad.json:2: message 2 has the weight 0.5");
    expect_error(sc, WEIGHED("\"0\""), ST_USAGE, "has the weight \"0\"");
    expect_error(sc,
                 "{\"prompt\": \"p\", \"chosen\": {\"role\": \"assistant\", \"content\": \"c\", "
                 "\"weight\": 0}, \"rejected\": \"r\"}",
                 ST_USAGE, "bad.json:1: message 2 has the weight 0, and is what is to be learned");
    strbuf many = {0};
    strbuf_puts(&many, "{\"messages\": [");
    for (int i = 0; i <= CHAT_MAX_MESSAGES; i++)
        strbuf_printf(&many, "%s{\"role\": \"user\", \"content\": \"a\"}", i ? "," : "");
    strbuf_puts(&many, "]}");
    expect_error(sc, strbuf_cstr(&many), ST_USAGE, "bad.json:1: it has more than 2000 messages");
    strbuf_free(&many);
}

/* ---- roles ---- */

/* The text of each role. */
static void roles_of(const char *record, const char *template_name, chat_train train,
                     strbuf text[MARK_ROLES]) {
    chat_sample s = read_as(record, "messages");
    tok *t = load_tok();
    chat_template *template = load_template(template_name);
    chat_encoder k = {.tok = t, .template = template, .train = train};
    chat_document d;
    assert_ok(chat_encode(&k, &s, s.messages, json_array_size(s.messages), &d, e));
    for (int64_t i = 0; i < d.ids.n; i++)
        assert_ok(tok_decode(t, d.ids.id + i, 1, false, &text[mark_get_role(d.marks[i])], e));
    chat_document_free(&d);
    chat_sample_free(&s);
    chat_template_free(template);
    tok_free(t);
}

/* They stand in what the template writes, too. */
static void test_roles_of_short_texts(void **state) {
    (void)state;
    strbuf text[MARK_ROLES] = {0};
    roles_of("{\"messages\": [{\"role\": \"system\", \"content\": \"im\"}, {\"role\": \"user\", "
             "\"content\": "
             "\"user\"}, {\"role\": \"assistant\", \"content\": \"start\"}, {\"role\": \"user\", "
             "\"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"s\"}]}",
             "chatml", CHAT_TRAIN_LAST, text);
    assert_string_equal(strbuf_cstr(&text[ROLE_SYSTEM]), "im");
    assert_string_equal(strbuf_cstr(&text[ROLE_USER]), "usera");
    assert_string_equal(strbuf_cstr(&text[ROLE_ASSISTANT]), "starts<|im_end|>\n");
    for (int r = 0; r < MARK_ROLES; r++) strbuf_free(&text[r]);
}

static void test_roles(void **state) {
    (void)state;
    static const char record[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", "
        "\"content\": \"Six?\"}, {\"role\": \"assistant\", \"content\": \"\\nFive.\", "
        "\"reasoning_content\": \"It is one less.\"}, {\"role\": \"tool\", \"content\": \"07\"}]}";
    chat_sample s = read_as(record, "messages");
    tok *t = load_tok();
    chat_template *template = load_template("marks");
    chat_encoder k = {.tok = t, .template = template};
    chat_document d;
    int64_t count[MARK_ROLES] = {0};
    strbuf text[MARK_ROLES] = {0};
    assert_ok(chat_encode(&k, &s, s.messages, 4, &d, e));
    for (int64_t i = 0; i < d.ids.n; i++) {
        mark_role role = mark_get_role(d.marks[i]);
        count[role]++;
        assert_ok(tok_decode(t, d.ids.id + i, 1, false, &text[role], e));
    }
    assert_string_equal(strbuf_cstr(&text[ROLE_SYSTEM]), "Be kind.");
    assert_string_equal(strbuf_cstr(&text[ROLE_USER]), "Six?");
    assert_string_equal(strbuf_cstr(&text[ROLE_TOOL]), "07");
    assert_string_equal(strbuf_cstr(&text[ROLE_REASONING]), "\nIt is one less.\n");
    assert_string_equal(strbuf_cstr(&text[ROLE_ASSISTANT]), "<think></think>\n\nFive.<|im_end|>");
    assert_true(d.reasons && d.ends_by_stop && count[ROLE_TEMPLATE] > 0);
    for (int r = 0; r < MARK_ROLES; r++) strbuf_free(&text[r]);
    chat_document_free(&d);
    chat_sample_free(&s);
    chat_template_free(template);
    tok_free(t);
}

/* Such as hashes, in columns that nobody reads. Elsewhere they are an error. */
static void test_integers_without_a_sign(void **state) {
    const char *good =
        put_text(*state, "a.jsonl",
                 "{\"id\": 18446744073709551615, \"at\": {\"n\": 1}, \"x\": -9223372036854775808,\n"
                 " \"a\\\"b\": 18446744073709551614, \"messages\": []}\n");
    const char *bad =
        put_text(*state, "b.jsonl", "{\"messages\": [{\"n\": 18446744073709551615}]}\n");
    records *r;
    chat_record rec;
    err why = {0};
    assert_ok(records_open(&r, &good, 1, e));
    assert_ok(records_next(r, &rec, e));
    assert_int_equal(json_integer_value(json_object_get(rec.value, "id")), 0);
    assert_true(json_integer_value(json_object_get(rec.value, "x")) == 0);
    assert_int_equal(json_array_size(json_object_get(rec.value, "messages")), 0);
    json_decref(rec.value);
    records_close(r);
    assert_ok(records_open(&r, &bad, 1, e));
    assert_int_equal(records_next(r, &rec, &why), ST_FORMAT);
    assert_non_null(strstr(why.message, "too big"));
    records_close(r);
}

static void test_pipes_are_not_looked_at(void **state) {
    static const char record[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
    const char *file = put_text(*state, "a.jsonl", record), *pipe = in_scene(*state, "b.jsonl");
    char got[sizeof record];
    assert_true(chat_is(&file, 1));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    int fd = open(pipe, O_RDWR | O_NONBLOCK); /* so that nobody waits */
    assert_true(fd >= 0);
    assert_int_equal(write(fd, record, sizeof record), sizeof record);
    assert_false(chat_is(&pipe, 1));
    assert_int_equal(read(fd, got, sizeof got), sizeof got);
    assert_memory_equal(got, record, sizeof got);
    close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_open, scene_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_and_masks_are_those_of_trl),
        cmocka_unit_test(test_forms_of_conversations),
        cmocka_unit_test(test_tool_calls),
        cmocka_unit_test(test_values_as_texts),
        cmocka_unit_test(test_preferences),
        cmocka_unit_test(test_labels),
        TEST(test_integers_without_a_sign),
        TEST(test_pipes_are_not_looked_at),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_roles_of_short_texts),
        TEST(test_planted_sets_are_stopped),
        TEST(test_planted_templates_are_stopped),
        TEST(test_two_bos_are_stopped),
        TEST(test_which_answers_are_trained),
        TEST(test_weights_of_answers),
        TEST(test_weights_of_marked_answers),
        TEST(test_pairs_and_labels),
        TEST(test_sets_do_not_depend_on_threads),
        TEST(test_bad_records_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
