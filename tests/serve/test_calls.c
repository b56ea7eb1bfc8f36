/* What a model writes is taken apart the same way however it is cut into pieces. */
#include "test.h"

#include "base/utf8.h"
#include "serve/api/calls.h"

typedef struct parts {
    strbuf thought, says, calls;
} parts;

static void on_thought(void *ctx, const char *text, size_t len) {
    strbuf_append(&((parts *)ctx)->thought, text, len);
}

static void on_says(void *ctx, const char *text, size_t len) {
    strbuf_append(&((parts *)ctx)->says, text, len);
}

static void on_call(void *ctx, const char *name, const json_t *arguments) {
    strbuf *to = &((parts *)ctx)->calls;
    strbuf_printf(to, "%s%s(", to->len ? " " : "", name);
    json_format(to, arguments, 0);
    strbuf_puts(to, ")");
}

typedef struct scene {
    const char *template; /* what it mentions */
    bool thinks;          /* the prompt opened a thought */
    const char *written, *thought, *says, *calls;
} scene;

#define TAGGED "<tool_call> <think></think>"
#define LISTED "[TOOL_CALLS] [THINK][/THINK]"
#define BARE "<|python_tag|>"
#define CALL_F "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"x\"]}}\n</tool_call>"
#define F_BARE "{\"name\": \"f\", \"parameters\": {\"a\": 1}}"
#define CALLED "f({\"a\": 1})"

static const scene scenes[] = {
    {TAGGED, false, "Hello.", "", "Hello.", ""},
    {TAGGED, false, " \n Hello. \n", "", " \n Hello. \n", ""},
    {TAGGED, false, "<think>\nWhy?\n</think>\n\nSo.", "\nWhy?\n", "So.", ""},
    {TAGGED, true, "Why?</think>So.", "Why?", "So.", ""},
    {TAGGED, true, "Why", "Why", "", ""},
    {TAGGED, false, "<thin", "", "<thin", ""},
    {TAGGED, false, "a <think> b", "", "a <think> b", ""},
    {TAGGED, false, CALL_F, "", "", "f({\"a\": [1, \"x\"]})"},
    {TAGGED, false, "I look.\n" CALL_F "\n" CALL_F "\n", "", "I look.",
     "f({\"a\": [1, \"x\"]}) f({\"a\": [1, \"x\"]})"},
    {TAGGED, false, "<think>x</think>" CALL_F "done", "x", "done", "f({\"a\": [1, \"x\"]})"},
    {TAGGED, false, "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "", "", "f({})"},
    {TAGGED, false, "<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\"}]</tool_call>", "", "",
     "f({}) g({})"},
    {TAGGED, false, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "", "", CALLED},
    {TAGGED, false, "<tool_call>{\"name\": f}</tool_call> sorry", "",
     "<tool_call>{\"name\": f}</tool_call> sorry", ""},
    {TAGGED, false, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", "",
     "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", ""},
    {TAGGED, false, "a <b> </tool_call>", "", "a <b> </tool_call>", ""},
    {TAGGED, false, "\xC3\xA9<tool_call>\xC3\xA9", "", "\xC3\xA9<tool_call>\xC3\xA9", ""},
    {LISTED, false,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\"}]", "", "",
     CALLED " g({})"},
    {LISTED, false, "Well [TOOL_CALLS]f{\"a\": 1}[TOOL_CALLS]f[ARGS]{\"a\": 1}", "", "Well",
     CALLED " " CALLED},
    {LISTED, false, "[THINK]hm[/THINK][TOOL_CALLS][]", "hm", "[TOOL_CALLS][]", ""},
    {LISTED, false, "[TOOL_", "", "[TOOL_", ""},
    {BARE, false, F_BARE, "", "", CALLED},
    {BARE, false, "\n<|python_tag|>" F_BARE "; " F_BARE, "", "", CALLED " " CALLED},
    {BARE, false, "{\"name\": \"h\", \"parameters\": {}}", "",
     "{\"name\": \"h\", \"parameters\": {}}", ""},
    {BARE, false, "{\"a\": 1}", "", "{\"a\": 1}", ""},
    {BARE, false, "It is " F_BARE, "", "It is " F_BARE, ""},
    {BARE, false, F_BARE " is it", "", F_BARE " is it", ""},
};

static void read_in_pieces(const scene *s, size_t piece, const json_t *tools) {
    chat_template *t;
    err e;
    parts p = {0};
    answer_parts to = {on_thought, on_says, on_call, &p};
    size_t len = strlen(s->written);
    assert_int_equal(chat_template_parse(&t, s->template, strlen(s->template), NULL, &e), ST_OK);
    answer_reader *r =
        answer_reader_new(call_form_of(t), thought_marks_of(t), s->thinks, tools, &to);
    for (size_t at = 0; at < len;) {
        size_t end = at + piece < len ? utf8_cut(s->written, at + piece) : len;
        if (end == at) end = at + (size_t)utf8_size(s->written[at]);
        answer_reader_push(r, s->written + at, end - at);
        at = end;
    }
    answer_reader_end(r);
    if (strcmp(strbuf_cstr(&p.thought), s->thought) || strcmp(strbuf_cstr(&p.says), s->says) ||
        strcmp(strbuf_cstr(&p.calls), s->calls))
        fail_msg("%s\nby %zu: thought '%s', says '%s', calls '%s'", s->written, piece,
                 strbuf_cstr(&p.thought), strbuf_cstr(&p.says), strbuf_cstr(&p.calls));
    answer_reader_free(r);
    strbuf_free(&p.thought);
    strbuf_free(&p.says);
    strbuf_free(&p.calls);
    chat_template_free(t);
}

static void test_scenes(void **state) {
    (void)state;
    json_t *tools = json_pack("[{s:s, s:{s:s}}, {s:s, s:{s:s}}]", "type", "function", "function",
                              "name", "f", "type", "function", "function", "name", "g");
    for (int i = 0; i < ARRAY_LEN(scenes); i++)
        for (size_t piece = 1; piece <= strlen(scenes[i].written); piece++)
            read_in_pieces(&scenes[i], piece, tools);
    json_decref(tools);
}

/* A stream tells what it can: only what may begin a mark is held back. */
static void test_prompt(void **state) {
    (void)state;
    chat_template *t;
    err e;
    parts p = {0};
    answer_parts to = {on_thought, on_says, on_call, &p};
    assert_int_equal(chat_template_parse(&t, TAGGED, strlen(TAGGED), NULL, &e), ST_OK);
    answer_reader *r = answer_reader_new(call_form_of(t), thought_marks_of(t), false, NULL, &to);
    answer_reader_push(r, "one two <", 9);
    assert_string_equal(strbuf_cstr(&p.says), "one two");
    answer_reader_push(r, "b", 1);
    assert_string_equal(strbuf_cstr(&p.says), "one two <b");
    answer_reader_free(r);
    strbuf_free(&p.says);
    chat_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scenes),
        cmocka_unit_test(test_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
