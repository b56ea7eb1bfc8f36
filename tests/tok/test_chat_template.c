/* Chat templates of tokenizer folders, and what stands around a render: names of reasoning,
 * variables, messages that stay open. */
#include "tok_test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/gguf.h"
#include "tok/chat/template.h"

static char folder[] = "/tmp/chat-template-XXXXXX";

static void put(const char *name, const char *text) {
    char path[128];
    err e = {0};
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(file_write_atomic(path, text, strlen(text), &e), ST_OK);
}

static int make_folder(void **state) {
    (void)state;
    err e = {0};
    char path[128];
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof(path), "%s/additional_chat_templates", folder);
    return file_make_dirs(path, &e) == ST_OK ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    err e = {0};
    return file_remove_tree(folder, &e) == ST_OK ? 0 : -1;
}

static chat_template *load(const char *path) {
    chat_template *t;
    err e = {0};
    if (chat_template_load(&t, path, &e) != ST_OK) fail_msg("%s", e.message);
    return t;
}

static chat_template *parse(const char *text) {
    chat_template *t;
    err e = {0};
    if (chat_template_parse(&t, text, strlen(text), NULL, &e) != ST_OK) fail_msg("%s", e.message);
    return t;
}

/* The request's text, or the message of its error behind "error: ". */
static char *render(const chat_template *t, const chat_request *q) {
    strbuf out = {0};
    err e = {0};
    if (chat_render(t, q, &out, NULL, &e) != ST_OK) {
        assert_int_equal(out.len, 0);
        strbuf_printf(&out, "error: %s", e.message);
    }
    strbuf_puts(&out, "");
    return out.data ? out.data : xstrdup("");
}

static void expect(const chat_template *t, chat_request q, const char *messages, const char *want) {
    json_t *list = json_loads(messages, 0, NULL);
    assert_non_null(list);
    q.messages = list;
    char *got = render(t, &q);
    bool same =
        strncmp(want, "error: ", 7) == 0 ? strstr(got, want + 7) != NULL : strcmp(got, want) == 0;
    if (!same) fail_msg("%s\ngave     %s\nnot just %s", messages, got, want);
    free(got);
    json_decref(list);
}

#define HELLO "[{\"role\": \"user\", \"content\": \"hello\"}]"

static void test_folder(void **state) {
    (void)state;
    chat_template *t;
    err e = {0};
    char path[128];
    put("tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", "
        "\"pad_token\": null, \"model_max_length\": 1000000000000000019884624838656, "
        "\"x\": \"99999999999999999999\\\"1\", "
        "\"chat_template\": "
        "\"{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}\"}");
    t = load(folder);
    expect(t, (chat_request){0}, HELLO, "<s></s>False");
    chat_template_free(t);
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder); /* a file of the folder */
    put("tokenizer.json", "{}");
    t = load(path);
    expect(t, (chat_request){0}, HELLO, "<s></s>False");
    chat_template_free(t);
    put("chat_template.jinja", "file {{ messages[0].content }}{{ eos_token }}\n"); /* goes before */
    put("additional_chat_templates/rag.jinja", "rag {{ documents | length }}");
    t = load(folder);
    expect(t, (chat_request){0}, HELLO, "file hello</s>");
    json_t *documents = json_pack("[{s:s}]", "text", "d");
    expect(t, (chat_request){.name = "rag", .documents = documents}, HELLO, "rag 1");
    expect(t, (chat_request){.name = "other"}, HELLO, "error: no chat template \"other\"");
    json_decref(documents);
    chat_template_free(t);
    snprintf(path, sizeof(path), "%s/chat_template.jinja", folder); /* itself, without tokens */
    t = load(path);
    expect(t, (chat_request){0}, HELLO, "file hello");
    chat_template_free(t);
    assert_int_equal(chat_template_load_other(&t, folder, path, &e), ST_OK);
    expect(t, (chat_request){0}, HELLO, "file hello</s>");
    chat_template_free(t);
    assert_int_equal(unlink(path), 0);
}

static void test_names(void **state) {
    (void)state;
    err e = {0};
    chat_template *t;
    json_t *tools = json_loads("[{\"type\": \"function\"}]", 0, NULL);
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, "
        "{\"name\": \"tool_use\", \"template\": \"t{{ tools | tojson }}\"}]}");
    t = load(folder);
    expect(t, (chat_request){0}, HELLO, "d");
    expect(t, (chat_request){.tools = tools}, HELLO, "t[{\"type\": \"function\"}]");
    expect(t, (chat_request){.tools = tools, .name = "default"}, HELLO, "d");
    chat_template_free(t);
    json_decref(tools);
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"x\"}]}");
    assert_int_equal(chat_template_load(&t, folder, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "lacks name or template"));
    put("tokenizer_config.json", "{\"chat_template\": \"{% if x %}\"}");
    assert_int_equal(chat_template_load(&t, folder, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "tokenizer_config.json"));
    put("tokenizer_config.json", "{}");
    assert_int_equal(chat_template_load(&t, folder, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "there is no chat template"));
    put("tokenizer_config.json", "[]");
    assert_int_equal(chat_template_load(&t, folder, &e), ST_FORMAT);
    assert_int_equal(chat_template_load(&t, "/nonexistent/folder", &e), ST_FORMAT);
}

static void test_variables(void **state) {
    (void)state;
    json_t *extra = json_pack("{s:b, s:s}", "enable_thinking", 0, "bos_token", "B");
    chat_template *t = parse("{{ bos_token }}{{ tools is none }}{{ documents is none }}"
                             "{{ add_generation_prompt }}{{ enable_thinking | default('?') }}");
    chat_template_set_token(t, "bos_token", "A");
    expect(t, (chat_request){0}, HELLO, "ATrueTrueFalse?");
    expect(t, (chat_request){.extra = extra, .add_generation_prompt = true}, HELLO,
           "BTrueTrueTrueFalse");
    expect(t, (chat_request){0}, "[1]", "error: message 0 is not an object");
    expect(t, (chat_request){0}, "{}", "error: a list of objects");
    chat_template_free(t);
    json_decref(extra);
}

/* Reasoning has each of its names, in the order in which transformers gives them. */
static void test_reasoning(void **state) {
    (void)state;
    chat_template *t = parse("{{ messages[0] | tojson }}");
    expect(t, (chat_request){0}, "[{\"role\": \"a\", \"reasoning\": \"r\"}]",
           "{\"thinking\": \"r\", \"role\": \"a\", \"reasoning\": \"r\", \"reasoning_content\": "
           "\"r\"}");
    expect(t, (chat_request){0}, "[{\"thinking\": \"t\", \"reasoning_content\": null}]",
           "{\"thinking\": \"t\", \"reasoning_content\": \"t\"}");
    expect(t, (chat_request){0}, "[{\"thinking\": \"t\", \"reasoning_content\": \"c\"}]",
           "{\"thinking\": \"t\", \"reasoning_content\": \"c\"}");
    expect(t, (chat_request){0}, "[{\"thinking\": null, \"content\": null}]", "{}");
    chat_template_free(t);
}

static void test_continue(void **state) {
    (void)state;
    chat_request open = {.continue_field = "content"};
    chat_template *t = parse("{% for m in messages %}<{{ m.content }}>{% endfor %}end");
    expect(t, open, "[{\"content\": \"a\"}, {\"content\": \"b \"}]", "<a><b ");
    expect(t, open, "[{\"content\": null}]", "error: no \"content\" to continue");
    expect(t, open, "[]", "error: no last message");
    open.add_generation_prompt = true;
    expect(t, open, HELLO, "error: not both");
    open = (chat_request){.continue_field = "thinking"};
    expect(t, open, "[{\"thinking\": \"x\", \"content\": \"b\"}]",
           "error: does not read the field");
    chat_template_free(t);
    open.continue_field = "content";
    t = parse("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}end");
    expect(t, open, "[{\"content\": \" b  \"}]", "<b");
    chat_template_free(t);
    t = parse("{% for m in messages %}<{{ m.content | upper }}>{% endfor %}end");
    expect(t, open, "[{\"content\": \"b\"}]", "error: does not stand in the text");
    chat_template_free(t);
    t = parse(
        "{% for m in messages %}{% for c in m.content %}[{{ c.text }}]{% endfor %}{% endfor %}");
    expect(t, open, "[{\"content\": [{\"text\": \"a\"}, {\"text\": \"b\"}, {\"image\": 1}]}]",
           "[a][b");
    expect(t, open, "[{\"content\": [{\"image\": 1}]}]", "error: no text to continue");
    chat_template_free(t);
    t = parse("{% for m in messages %}({{ m.reasoning_content }}){% endfor %}");
    open.continue_field = "reasoning";
    expect(t, open, "[{\"reasoning\": \"why\"}]", "(why");
    chat_template_free(t);
}

static void test_marks(void **state) {
    (void)state;
    const char *text =
        "{% for m in messages %}{% generation %}é{{ m.content }}.{% endgeneration %}|"
        "{% endfor %}";
    json_t *list = json_pack("[{s:s}, {s:s}]", "content", "ab", "content", "c");
    chat_template *t = parse(text);
    chat_request q = {.messages = list};
    strbuf out = {0};
    jinja_spans spans = {0};
    err e = {0};
    assert_true(chat_marks_generation(t, &q));
    strbuf_puts(&out, "before"); /* spans count from where the text begins */
    assert_int_equal(chat_render(t, &q, &out, &spans, &e), ST_OK);
    assert_string_equal(strbuf_cstr(&out), "beforeéab.|éc.|");
    assert_int_equal(spans.n, 2);
    assert_true(spans.span[0].start == 0 && spans.span[0].end == 5);
    assert_true(spans.span[1].start == 6 && spans.span[1].end == 10);
    strbuf_clear(&out);
    spans.n = 0;
    q.continue_field = "content";
    assert_int_equal(chat_render(t, &q, &out, &spans, &e), ST_OK);
    assert_string_equal(strbuf_cstr(&out), "éab.|éc");
    assert_true(spans.n == 2 && spans.span[1].end == 9); /* no further than the text */
    strbuf_free(&out);
    free(spans.span);
    chat_template_free(t);
    json_decref(list);
}

/* The template inside a GGUF file, with the special tokens that the file names. */
static void test_gguf(void **state) {
    (void)state;
    static const gguf_text tokens[] = {{"<s>", 3}, {"</s>", 4}, {"a", 1}}, merges[1];
    static const int32_t types[] = {3, 3, 1};
    gguf_pairs p = {0};
    strbuf file = {0};
    err e = {0};
    char path[128];
    gguf_put_string(&p, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(&p, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_texts(&p, "tokenizer.ggml.tokens", tokens, 3);
    gguf_put_texts(&p, "tokenizer.ggml.merges", merges, 0);
    gguf_put_array(&p, "tokenizer.ggml.token_type", GGUF_I32, types, 3);
    gguf_put_u32(&p, "tokenizer.ggml.bos_token_id", 0);
    gguf_put_u32(&p, "tokenizer.ggml.eos_token_id", 1);
    gguf_put_string(&p, "tokenizer.chat_template",
                    "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
    gguf_append_header(&file, 0, &p);
    strbuf_append(&file, p.bytes.data, p.bytes.len);
    snprintf(path, sizeof(path), "%s/model.gguf", folder);
    assert_int_equal(file_write_atomic(path, file.data, file.len, &e), ST_OK);
    chat_template *t = load(path);
    expect(t, (chat_request){0}, HELLO, "<s>hello</s>");
    chat_template_free(t);
    gguf_pairs_free(&p);
    strbuf_free(&file);
}

static void expect_stop(const tok *k, const char *text, const char *stop) {
    chat_template *t = parse(text);
    int32_t found = chat_find_stop(t, k, NULL);
    assert_int_equal(found, stop ? tok_id(k, stop) : -1);
    chat_template_free(t);
}

static void test_stop(void **state) {
    (void)state;
    tok *k = load_golden(GOLDEN("bpe_gpt2.json"));
    expect_stop(k, "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>\n{% endfor %}",
                "</s>");
    expect_stop(k, "{% for m in messages %}{{ m.content }} \n<|endoftext|>x{% endfor %}",
                "<|endoftext|>");
    expect_stop(k, "{% for m in messages %}{{ m.content }}\n{% endfor %}", NULL);
    expect_stop(k, "{% for m in messages %}{{ m.content }} and</s>{% endfor %}", NULL);
    expect_stop(k, "{{ messages[0].content }}</s>", NULL);
    expect_stop(k, "{{ raise_exception('no') }}", NULL);
    tok_free(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder),    cmocka_unit_test(test_names),
        cmocka_unit_test(test_variables), cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_continue),  cmocka_unit_test(test_marks),
        cmocka_unit_test(test_gguf),      cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
