/* Dialogues: how they are read, what rules say of an answer, and a scripted model behind templates
 * that are sound, that drop the system prompt, or that lose the switch at turn 2. */
#include "test.h"

#include "eval/dialogue.h"
#include "eval/metric.h"
#include "eval/write.h"
#include "tok/tok_format.h"

static const eval_source any = {.n_few = -1};

static status open_text(eval_task *t, const char *yaml, err *e) {
    *t = (eval_task){.a = arena_new("task"), .made = arena_new("results"), .repeats = 1};
    t->sample = (sample_options){.top_p = 1, .repetition_penalty = 1};
    return eval_dialogues_open(t, "d.yaml", yaml, &any, e);
}

/* ---- reading ---- */

#define ONE "dialogues:\n  - turns:\n      - {user: hi, expect: {"

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *yaml, *message, *where;
    } cases[] = {
        {ONE "contain: a}}\n", "there is no rule contain", "d.yaml:2"},
        {ONE "matches: '('}}\n", "pattern", "d.yaml:2"},
        {ONE "script: Klingon}}\n", "there is no script Klingon", "d.yaml:2"},
        {ONE "ends: maybe}}\n", "ends is neither true nor false", "d.yaml:2"},
        {ONE "calls: {tool: a}}}\n", "calls has no key tool", "d.yaml:2"},
        {ONE "contains: []}}\n", "contains has no texts", "d.yaml:2"},
        {"dialogues:\n  - turns: []\n", "turns is no list of 1 to 32", "d.yaml:2"},
        {"dialogues:\n  - turn: []\n", "a dialogue has no key turn", "d.yaml:2"},
        {"dialogues:\n  - turns: [{user: a}, {tool: b, user: c}]\n", "turn 2: ", "d.yaml:2"},
        {"dialogues:\n  - turns: [{user: a}]\n  - turns: [{user: a}, {user: b}]\n",
         "has 2 turns, and the first one has 1", "d.yaml:3"},
        {"dialogues:\n  - {needs: magic, turns: [{user: a}]}\n", "needs is neither", "d.yaml:2"},
        {"dialogues: 7\n", "dialogues is no list", "d.yaml"},
        {"dialog: []\ndialogues: []\n", "has no key dialog", "d.yaml"},
        {"max_gen_toks: 0\ndialogues: []\n", "max_gen_toks", "d.yaml"}};
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        eval_task t;
        err e = {0};
        if (open_text(&t, cases[i].yaml, &e) != ST_FORMAT) fail_msg("%s", cases[i].yaml);
        if (!strstr(e.message, cases[i].message)) fail_msg("%s: %s", cases[i].yaml, e.message);
        assert_string_equal(e.where, cases[i].where);
        eval_task_close(&t);
    }
}

static void test_suite(void **state) {
    (void)state;
    eval_task t;
    err e = {0};
    assert_int_equal(eval_task_open(&t, "vibe", &any, &e), ST_OK);
    assert_true(t.n >= 5 && t.kind == EVAL_DIALOGUE && t.n_filters == 4);
    for (int i = 0; i < t.n; i++) assert_int_equal(t.doc[i].dialogue->n_turns, 3);
    assert_string_equal(t.name, "vibe");
    eval_task_close(&t);
}

/* ---- rules ---- */

static void judge(const char *rules, const char *seen, const char *written, bool want) {
    eval_task t;
    err e = {0};
    char yaml[512];
    snprintf(yaml, sizeof yaml, "dialogues: [{turns: [{user: a, expect: %s}]}]\n", rules);
    if (open_text(&t, yaml, &e) != ST_OK) fail_msg("%s: %s", rules, e.message);
    eval_turn *k = t.doc->dialogue->turn;
    k->seen = (eval_text){seen, strlen(seen)};
    k->written = (eval_text){written, strlen(written)};
    k->ended = true;
    assert_int_equal(eval_judge(k, &e), ST_OK);
    if ((k->failed < 0) != want) fail_msg("%s: \"%s\"", rules, written);
    eval_task_close(&t);
}

static void test_rules(void **state) {
    (void)state;
    judge("{contains: ada}", "", "I am ADA.", true);
    judge("{contains: [bob, eve]}", "", "I am Ada.", false);
    judge("{contains: plan}", "", "<think>a plan</think>done", false); /* thought, not said */
    judge("{lacks: [bob, ada]}", "", "I am Ada.", false);
    judge("{lacks: plan}", "", "<think>a plan</think>done", true);
    judge("{matches: '^\\d+$'}", "", "<think>7</think>\n\n42", true);
    judge("{matches: '^\\d+$'}", "", "it is 42", false);
    judge("{reasoning: true}", "", "<think>hm</think>done", true);
    judge("{reasoning: true}", "", "<think>\n\n</think>done", false);
    judge("{reasoning: false}", "", "<think>\n\n</think>done", true);
    judge("{reasoning: false}", "", "<think>hm", false); /* cut in the middle of it */
    judge("{reasoning: true}", "go:<think>\n", "hm</think>done", true);
    judge("{reasoning: false}", "go:<think>\n\n</think>\n\n", "done", true);
    judge("{ends: true}", "", "a", true);
    judge("{ends: false}", "", "a", false);
    judge("{script: Cyrillic}", "", "\u0434\u0430, OK", false); /* two letters of four */
    judge("{script: Cyrillic}", "", "\u0434\u0430\u0430 OK", true);
    judge("{script: [Han, Hiragana]}", "", "\u6c34\u306f", true);
    judge("{script: Latin}", "", "123", false);
    static const char call[] = "{calls: {name: get, arguments: {city: Paris, n: 2}}}";
    judge(call, "",
          "<tool_call>{\"name\": \"get\", \"arguments\": {\"n\": 2.0, \"city\": \"paris\", "
          "\"x\": 1}}</tool_call>",
          true);
    judge(call, "", "{\"name\": \"get\", \"parameters\": {\"n\": 2}}", false);
    judge(call, "",
          "{} {\"function\": {\"name\": \"get\", \"arguments\": \"{\\\"city\\\": "
          "\\\"Paris\\\", \\\"n\\\": 2}\"}}",
          true);
    judge(call, "", "get(city='Paris', n=2) {\"name\": \"got\"} {", false);
    judge("{calls: {name: get}}", "", "{\"x\": {\"name\": \"get\", \"arguments\": {}}}", false);
}

/* ---- a scripted model ---- */

static tok *make_tok(void) {
    char text[2 * 96];
    for (int i = 0; i < 96; i++) text[i] = text[191 - i] = i < 95 ? (char)(32 + i) : '\n';
    tok_trainer *tr;
    tok *t = NULL;
    err e = {0};
    const char *special[] = {"<end>"};
    assert_int_equal(
        tok_trainer_new(
            &tr, &(tok_train_options){.kind = TOK_CHAR, .special = special, .n_special = 1}, &e),
        ST_OK);
    assert_int_equal(tok_trainer_add(tr, text, sizeof text, &e), ST_OK);
    assert_int_equal(tok_trainer_finish(tr, &t, &e), ST_OK);
    tok_trainer_free(tr);
    return t;
}

typedef struct script {
    const tok *tok;
    bool forgets; /* the switch, after the first turn */
    int calls;
} script;

/* It is who the system prompt says, and thinks unless its thought is closed before it begins. */
static void answer(const script *s, const char *prompt, strbuf *out) {
    static const char closed[] = "<think></think>";
    size_t n = strlen(prompt), m = strlen(closed);
    int turns = 0;
    for (const char *at = prompt; (at = strstr(at, "user:")); at++) turns++;
    bool off = n >= m && strcmp(prompt + n - m, closed) == 0;
    if (s->forgets && turns > 1) off = false;
    if (!off) strbuf_puts(out, "<think>hm</think>");
    strbuf_puts(out, strstr(prompt, "system:You are Ada") ? "I am Ada." : "I am a model.");
}

static status play(void *ctx, const generate_limits *limits, write_item *items, int64_t n,
                   write_done done, void *done_ctx, err *e) {
    script *s = ctx;
    (void)limits;
    for (int64_t i = 0; i < n; i++) {
        strbuf prompt = {0};
        assert_int_equal(
            tok_decode(s->tok, items[i].rq.prompt, items[i].rq.n_prompt, false, &prompt, e), ST_OK);
        if (i > 0) assert_true(items[i].rq.sample.seed != items[0].rq.sample.seed);
        answer(s, strbuf_cstr(&prompt), &items[i].text);
        strbuf_free(&prompt);
        items[i].result.finish = FINISH_END;
        s->calls++;
        TRY(done(done_ctx, i, e));
    }
    return ST_OK;
}

static const char talk[] =
    "dialogues:\n"
    "  - id: who\n    about: the persona\n    system: You are Ada.\n    turns:\n"
    "      - {user: Who are you?, expect: {contains: Ada, ends: true}}\n"
    "      - {user: And now?, expect: {contains: Ada}}\n"
    "      - {user: And now?, expect: {contains: Ada}}\n"
    "  - id: quiet\n    about: the switch\n    needs: thinking\n"
    "    variables: {enable_thinking: false}\n    turns:\n"
    "      - {user: a, expect: {reasoning: false}}\n"
    "      - {user: b, expect: {reasoning: false}}\n"
    "      - {user: c, expect: {reasoning: false}}\n"
    "  - id: loud\n    about: the switch\n    needs: thinking\n    turns:\n"
    "      - {user: a, expect: {reasoning: true}}\n"
    "      - {user: b, variables: {enable_thinking: false}, expect: {reasoning: false}}\n"
    "      - {user: c, variables: {enable_thinking: true}, expect: {reasoning: true}}\n"
    "  - id: tool\n    needs: tools\n    turns: [{user: a}, {tool: b}, {user: c}]\n";

#define EACH(which)                                                                                \
    "{% for m in messages %}{% if " which " %}{{ m.role }}:{{ m.content }}{{ '<end>' if m.role "   \
    "== 'assistant' }}\n{% endif %}{% endfor %}{% if add_generation_prompt %}assistant:"
#define SWITCH(when)                                                                               \
    "{% if enable_thinking is defined and not enable_thinking and " when                           \
    " %}<think></think>{% endif %}{% endif %}"

/* The result of the model behind a template; the caller owns it. */
static json_t *run_script(const char *template, bool forgets, eval_journal *journal, int *calls) {
    err e = {0};
    eval_task t;
    tok *known = make_tok();
    chat_template *chat;
    generation_settings settings = {0};
    script s = {.tok = known, .forgets = forgets};
    assert_int_equal(chat_template_parse(&chat, template, strlen(template), NULL, &e), ST_OK);
    assert_int_equal(open_text(&t, talk, &e), ST_OK);
    eval_writer w = {.tok = known,
                     .template = chat,
                     .settings = &settings,
                     .limits = {.Tmax = 4096},
                     .write = play,
                     .ctx = &s,
                     .journal = journal};
    if (eval_write_dialogues(&w, &t, &e) != ST_OK) fail_msg("%s", e.message);
    json_t *o = eval_result_json(&t);
    if (calls) *calls = s.calls;
    eval_task_close(&t);
    chat_template_free(chat);
    tok_free(known);
    return o;
}

static double rate(const json_t *o, int turn) {
    char key[32];
    snprintf(key, sizeof key, "pass,turn_%d", turn);
    return json_number_value(json_object_get(o, key));
}

static void check(const char *template, bool forgets, const char *verdict, const char *cause) {
    json_t *o = run_script(template, forgets, NULL, NULL);
    char *text = json_dumps(o, 0);
    if (strcmp(json_string_value(json_object_get(o, "verdict")), verdict) != 0)
        fail_msg("%s", text);
    if (cause && !strstr(text, cause)) fail_msg("%s in %s", cause, text);
    if (!cause) assert_int_equal(json_array_size(json_object_get(o, "causes")), 0);
    free(text);
    json_decref(o);
}

static void test_planted(void **state) {
    (void)state;
    check(EACH("true") SWITCH("true"), false, "pass", NULL);
    check(EACH("m.role != 'system'") SWITCH("true"), false, "fail",
          "\\\"who\\\": the chat template drops the system prompt at turn 1");
    check(EACH("m.role != 'system' or messages | length < 3") SWITCH("true"), false, "fail",
          "drops the system prompt at turn 2 (contains \\\"Ada\\\")");
    check(EACH("true") SWITCH("messages | length < 3"), false, "fail",
          "the chat template loses the switch at turn 2 (reasoning: false)");
    check(EACH("true") SWITCH("true"), true, "fail", "the switch is lost at turn 2");
    check(EACH("true") SWITCH("true"), true, "fail",
          "the share that passes falls from 100.0 % at turn 1 to 33.3 % at turn 2");
}

/* A dialogue that asks for what the template has not is no failure, and is not counted. */
static void test_left_out(void **state) {
    (void)state;
    json_t *o = run_script(EACH("true") "{% endif %}", false, NULL, NULL);
    assert_int_equal(json_array_size(json_object_get(o, "left_out")), 3);
    assert_string_equal(json_string_value(json_object_get(o, "verdict")), "pass");
    assert_true(rate(o, 1) == 1 && rate(o, 3) == 1);
    json_decref(o);
    o = run_script(EACH("true") SWITCH("true") "{# tools #}", false, NULL, NULL);
    assert_int_equal(json_array_size(json_object_get(o, "left_out")), 0);
    assert_true(rate(o, 2) == 1);
    json_decref(o);
}

/* What is in the journal is not written again, and judged the same. */
static void test_journal(void **state) {
    (void)state;
    err e = {0};
    eval_journal j;
    int first, again;
    char path[] = "/tmp/athanor-dialogue-XXXXXX";
    assert_true(mkstemp(path) >= 0);
    assert_int_equal(eval_journal_open(&j, path, 1, &e), ST_OK);
    json_t *a = run_script(EACH("true") SWITCH("true"), true, &j, &first);
    eval_journal_close(&j);
    assert_int_equal(eval_journal_open(&j, path, 1, &e), ST_OK);
    json_t *b = run_script(EACH("true") SWITCH("true"), true, &j, &again);
    eval_journal_close(&j);
    unlink(path);
    assert_int_equal(first, 9);
    assert_int_equal(again, 0);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
}

/* Published rates of turns: the first model is the sick one. */
static void test_rates(void **state) {
    (void)state;
    int at;
    assert_false(eval_rates_hold((double[]){0.698, 0.270, 0.063}, 3, &at));
    assert_int_equal(at, 1);
    assert_true(eval_rates_hold((double[]){0.890, 0.911, 0.912}, 3, &at));
    assert_true(eval_rates_hold((double[]){0.971, 0.965, 0.954}, 3, &at));
    assert_false(eval_rates_hold((double[]){0.9, 0.9, 0.7}, 3, &at));
    assert_int_equal(at, 2);
    assert_false(eval_rates_hold((double[]){0.4, 0.9, 0.9}, 3, &at));
    assert_int_equal(at, 0);
    assert_true(eval_rates_hold((double[]){0.9, 0.8, 0.8}, 3, &at));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_suite),
        cmocka_unit_test(test_rules),    cmocka_unit_test(test_planted),
        cmocka_unit_test(test_left_out), cmocka_unit_test(test_journal),
        cmocka_unit_test(test_rates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
