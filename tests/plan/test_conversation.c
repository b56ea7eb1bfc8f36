/* Conversations on a golden model with a tokenizer of characters: what the model sees, what the
 * cache saves, what is left out when the context is full, and what a failure leaves behind. */
#include "golden.h"

#include "infer/conversation.h"
#include "tok/tok_format.h"

enum { TMAX = 64 };

/* Every message is a line; an answer ends with '~', and "!" in a message is refused. */
static const char LINES[] =
    "{% for m in messages %}"
    "{% if '!' in m.content %}{{ raise_exception('no shouting') }}{% endif %}"
    "{{ m.role[0] }}:{{ m.content }}{{ '<end>' if m.role == 'assistant' }};"
    "{% endfor %}{% if add_generation_prompt %}a:{{ mood }}{% endif %}";

typedef struct lab {
    golden g;
    tok *tok;
    chat_template *template;
    generator gen;
    conversation c;
    conversation_answer a;
    generate_request options;
} lab;

static tok *make_tok(void) {
    char text[2 * 95];
    for (int i = 0; i < 95; i++) {
        text[2 * i] = (char)(32 + i);
        text[2 * i + 1] = (char)(126 - i);
    }
    tok_trainer *tr;
    tok *t = NULL;
    const char *special[] = {"<end>"};
    MUST(tok_trainer_new(
        &tr, &(tok_train_options){.kind = TOK_CHAR, .special = special, .n_special = 1}, E));
    MUST(tok_trainer_add(tr, text, sizeof text, E));
    MUST(tok_trainer_finish(tr, &t, E));
    tok_trainer_free(tr);
    assert_int_equal(tok_vocab_size(t), 96);
    return t;
}

static void lab_open(lab *l) {
    memset(l, 0, sizeof *l);
    golden_open(&l->g, "llama-gqa-tied",
                (plan_spec){.compute = DT_F32, .cache_tok = TMAX, .prefill_T = 32});
    l->tok = make_tok();
    MUST(chat_template_parse(&l->template, LINES, strlen(LINES), NULL, E));
    l->gen = plan_generator(l->g.p, l->tok);
    conversation_init(&l->c, &l->gen, l->tok, l->template, &(generation_settings){0});
    l->c.Tmax = l->gen.Tmax;
    l->options = (generate_request){.max_new = 4, .sample = {.top_p = 1, .repetition_penalty = 1}};
}

static void lab_close(lab *l) {
    conversation_answer_free(&l->a);
    conversation_free(&l->c);
    generator_free(&l->gen);
    chat_template_free(l->template);
    tok_free(l->tok);
    golden_close(&l->g);
}

static status ask(lab *l, const char *text, err *e) {
    conversation_add_user(&l->c, text, strlen(text));
    conversation_answer_free(&l->a);
    return conversation_answer_last(&l->c, &l->options, &l->a, e);
}

static size_t n_messages(const lab *l) {
    return json_array_size(l->c.messages);
}

/* The ids that a fresh generator gives for a text. */
static void expect_answer(const lab *l, const char *text) {
    generator fresh = plan_generator(l->g.p, l->tok);
    tok_ids prompt = {0}, want = {0};
    strbuf out = {0};
    generate_result result;
    MUST(tok_encode(l->tok, text, strlen(text), 0, &prompt, E));
    generate_request rq = l->options;
    rq.prompt = prompt.id;
    rq.n_prompt = prompt.n;
    rq.end = l->c.end.id;
    rq.n_end = l->c.end.n;
    rq.tok = l->tok;
    MUST(generate_run(&fresh, &rq, &want, &out, &result, E));
    if (l->a.n_prompt != prompt.n)
        fail_msg("%ld tokens, '%s' has %ld", (long)l->a.n_prompt, text, (long)prompt.n);
    assert_int_equal(l->a.ids.n, want.n);
    if (want.n) assert_memory_equal(l->a.ids.id, want.id, sizeof(int32_t) * (size_t)want.n);
    assert_string_equal(strbuf_cstr(&l->a.text), strbuf_cstr(&out));
    tok_ids_free(&prompt);
    tok_ids_free(&want);
    strbuf_free(&out);
    generator_free(&fresh);
}

static void test_turns(void **state) {
    (void)state;
    lab l;
    lab_open(&l);
    assert_int_equal(l.c.end.n, 1); /* found in the template */
    assert_int_equal(l.c.end.id[0], tok_id(l.tok, "<end>"));
    conversation_set_system(&l.c, "be");
    MUST(ask(&l, "hi", E));
    expect_answer(&l, "s:be;u:hi;a:");
    assert_int_equal(l.a.result.n_reused, 0);
    char first[64], text[256];
    snprintf(first, sizeof first, "%s", strbuf_cstr(&l.a.text));
    MUST(ask(&l, "and", E));
    /* all before and the first answer were in the cache: its last token may not have been fed */
    assert_true(l.a.result.n_reused >= (int64_t)strlen("s:be;u:hi;a:") + 3);
    snprintf(text, sizeof text, "s:be;u:hi;a:%s<end>;u:and;a:", first);
    expect_answer(&l, text);
    assert_int_equal(n_messages(&l), 5);
    /* a variable of the template, another system message: what follows is computed anew */
    json_object_set_new(l.c.variables, "mood", json_string("ok"));
    assert_true(conversation_drop_answer(&l.c));
    conversation_answer_free(&l.a);
    MUST(conversation_answer_last(&l.c, &l.options, &l.a, E));
    snprintf(text, sizeof text, "s:be;u:hi;a:%s<end>;u:and;a:ok", first);
    expect_answer(&l, text);
    conversation_set_system(&l.c, NULL);
    assert_null(conversation_system(&l.c));
    assert_true(conversation_undo(&l.c));
    MUST(ask(&l, "or", E));
    snprintf(text, sizeof text, "u:hi;a:%s<end>;u:or;a:ok", first);
    expect_answer(&l, text);
    assert_int_equal(conversation_turns(&l.c), 2);
    assert_true(conversation_undo(&l.c) && conversation_undo(&l.c) && !conversation_undo(&l.c));
    assert_false(conversation_drop_answer(&l.c));
    assert_int_equal(n_messages(&l), 0);
    lab_close(&l);
}

/* The oldest turns go when less than an eighth is free, until half is; the system message stays. */
static void test_full_context(void **state) {
    (void)state;
    lab l;
    lab_open(&l);
    conversation_set_system(&l.c, "be");
    int64_t dropped = 0, turns = 0;
    for (; turns < 12; turns++) {
        int64_t before = l.a.n_prompt;
        MUST(ask(&l, "abcdefg", E));
        assert_true(l.a.n_prompt + 4 <= TMAX);
        if (l.a.n_dropped == 0) {
            assert_true(turns == 0 || l.a.n_prompt > before);
            continue;
        }
        dropped += l.a.n_dropped;
        assert_true(before > TMAX / 2 && l.a.n_prompt <= TMAX / 2);
        /* the answers that follow differ */
        int64_t same = (int64_t)strlen("s:be;u:abcdefg;a:");
        assert_int_equal(l.a.result.n_reused, same < l.a.n_prompt ? same : l.a.n_prompt - 1);
    }
    assert_true(dropped >= 4 && dropped < turns);
    assert_int_equal(n_messages(&l), 1 + 2 * turns);
    size_t first_seen = l.c.first_seen;
    conversation_set_system(&l.c, NULL);
    assert_int_equal(l.c.first_seen, first_seen - 1);
    conversation_clear(&l.c);
    assert_true(n_messages(&l) == 0 && l.c.first_seen == 0);
    lab_close(&l);
}

static void test_failures(void **state) {
    (void)state;
    lab l;
    lab_open(&l);
    err e = {0};
    char big[100] = "";
    memset(big, 'x', sizeof big - 1);
    MUST(ask(&l, "hi", E));
    assert_int_equal(ask(&l, big, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "the context holds 64"));
    assert_int_equal(n_messages(&l), 3); /* the message is the caller's to take back */
    assert_true(conversation_undo(&l.c));
    assert_int_equal(l.c.first_seen, 0);
    assert_int_equal(ask(&l, "hey!", &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "no shouting"));
    assert_true(conversation_undo(&l.c));
    volatile sig_atomic_t now = 1;
    l.options.interrupt = &now;
    MUST(ask(&l, "yes", E));
    assert_true(l.a.result.finish == FINISH_INTERRUPT && l.a.ids.n == 0);
    assert_int_equal(n_messages(&l), 3); /* no empty answer */
    l.options.interrupt = NULL;
    assert_true(conversation_undo(&l.c));
    int32_t vocab = l.gen.vocab;
    l.gen.vocab = 5; /* the tokenizer is that of a larger model */
    assert_int_equal(ask(&l, "yes", &e), ST_USAGE);
    assert_non_null(strstr(e.message, "ids below 5"));
    l.gen.vocab = vocab;
    assert_true(conversation_undo(&l.c));
    MUST(ask(&l, "yes", E));
    assert_int_equal(n_messages(&l), 4);
    assert_null(tok_special(l.tok, -1)); /* tok_bos of a tokenizer without one */
    assert_null(tok_special(l.tok, tok_vocab_size(l.tok)));
    lab_close(&l);
}

/* ---- text and stop strings ---- */

typedef struct pieces {
    char text[256];
    int n, stop_after;
    volatile sig_atomic_t stop;
} pieces;

static void take_piece(void *ctx, const char *text, size_t len) {
    pieces *p = ctx;
    assert_true(len > 0 && strlen(p->text) + len < sizeof p->text);
    strncat(p->text, text, len);
    if (++p->n == p->stop_after) p->stop = 1;
}

static void test_stop_and_stream(void **state) {
    (void)state;
    lab l;
    lab_open(&l);
    pieces p = {0};
    l.options.max_new = 20;
    l.options.sample = (sample_options){.temperature = 3, .top_p = 1, .repetition_penalty = 1};
    l.options.on_text = take_piece;
    l.options.ctx = &p;
    MUST(ask(&l, "go", E));
    assert_string_equal(p.text, strbuf_cstr(&l.a.text));
    assert_int_equal(l.a.text.len, 20);
    char whole[32], stop[3] = "";
    memcpy(whole, p.text, 21);
    memcpy(stop, whole + 9, 2);
    const char *stops[] = {"no such text", stop};
    l.options.stop = stops;
    l.options.n_stop = 2;
    p = (pieces){0};
    assert_true(conversation_undo(&l.c));
    MUST(ask(&l, "go", E));
    assert_int_equal(l.a.result.finish, FINISH_STOP);
    assert_int_equal(l.a.text.len, strstr(whole, stop) - whole);
    assert_string_equal(p.text, strbuf_cstr(&l.a.text));
    /* an interrupt keeps what is there, and the answer can be made again */
    l.options.n_stop = 0;
    p = (pieces){.stop_after = 5};
    l.options.interrupt = &p.stop;
    assert_true(conversation_undo(&l.c));
    MUST(ask(&l, "go", E));
    assert_int_equal(l.a.result.finish, FINISH_INTERRUPT);
    assert_int_equal(l.a.ids.n, 5);
    assert_memory_equal(p.text, whole, 5);
    assert_int_equal(n_messages(&l), 2);
    lab_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns), cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_stop_and_stream)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
