/* The inspector's drawings of samples that are made by hand: masks, roles, special tokens, bytes that
 * make no character, pairs. */
#include "app/data/inspect.h"
#include "tok/tok_test.h"

typedef struct lab {
    inspection x;
    inspect_row row;
} lab;

static void add_bytes(lab *l, uint8_t mark, const char *text, int pieces) {
    tok_ids ids = {0};
    err e = {0};
    size_t n = strlen(text);
    for (int k = 0; k < pieces;
         k++) { /* equal pieces, whatever the tokenizer would take together */
        assert_int_equal(tok_encode(l->x.t, text + n / (size_t)pieces * (size_t)k,
                                    n / (size_t)pieces, 0, &ids, &e),
                         ST_OK);
    }
    for (int64_t i = 0; i < ids.n; i++) {
        l->row.ids[l->row.n] = ids.id[i];
        l->row.marks[l->row.n++] = mark;
    }
    tok_ids_free(&ids);
}

static void add(lab *l, uint8_t mark, const char *text) {
    add_bytes(l, mark, text, 1);
}

static lab lab_open(bool marks) {
    lab l = {.x = {.a = arena_new("test"), .title = "set", .about = "about it", .marks = marks}};
    l.x.t = load_golden(GOLDEN("bpe_gpt2.json"));
    l.row = (inspect_row){.title = "chats.jsonl:1", .ids = ARENA_ARRAY(l.x.a, int32_t, 999)};
    l.row.marks = ARENA_ARRAY(l.x.a, uint8_t, 999);
    return l;
}

static void lab_close(lab *l) {
    tok_free((tok *)l->x.t);
    arena_free(l->x.a);
}

static void expect_row(lab *l, inspect_style st, const char *want) {
    strbuf out = {0};
    inspect_text_row(&out, &l->x, &l->row, &st);
    assert_string_equal(strbuf_cstr(&out), want);
    strbuf_free(&out);
}

static void fill(lab *l) {
    add(l, mark_of(ROLE_TEMPLATE, false), "<s>user\n");
    add(l, mark_of(ROLE_USER, false), "a\n\tb");
    add(l, mark_of(ROLE_TEMPLATE, false), "\n");
    add(l, mark_of(ROLE_ASSISTANT, true), "yes</s>");
    add(l, mark_of(ROLE_ASSISTANT, false), "\n");
}

static void test_plain(void **state) {
    (void)state;
    lab l = lab_open(true);
    fill(&l);
    expect_row(&l, (inspect_style){0},
               "  template   [[«<s>»user⏎]]\n"
               "  user       [[a⏎\n"
               "             ⇥b]]\n"
               "  template   [[⏎]]\n"
               "  assistant  yes«</s>»[[⏎]]\n");
    lab_close(&l);
}

/* What is learned is told by an underline (4), special tokens by reversal (7). */
static void test_color(void **state) {
    (void)state;
    lab l = lab_open(true);
    add(&l, mark_of(ROLE_USER, false), "a");
    add(&l, mark_of(ROLE_ASSISTANT, true), "b</s>");
    expect_row(&l, (inspect_style){.color = true},
               "  user       \033[0;34ma\033[0m\n"
               "  assistant  \033[0;32;4mb\033[0m\033[0;32;4;7m</s>\033[0m\n");
    lab_close(&l);
}

static void test_bytes(void **state) {
    (void)state;
    lab l = lab_open(true);
    uint8_t user = mark_of(ROLE_USER, false);
    add_bytes(&l, user, "\xc5\xbe", 2); /* a character of two tokens */
    add(&l, user, "x");
    add(&l, user, "\xc5"); /* half of one */
    add(&l, mark_of(ROLE_USER, true), "\xbe\xe2\x80\x8b\x1b[1m");
    expect_row(&l, (inspect_style){0}, "  user       [[žx‹c5›]]‹be›‹U+200B›‹U+001B›[1m\n");
    expect_row(&l, (inspect_style){.tokens = true},
               "  user       [[‹c5›│‹be›│x│‹c5›]]‹be›│‹e2 80›│‹8b›│‹U+001B›│[│1│m\n");
    assert_int_equal(inspect_cell(&l.x, &l.row, 0, 4), 2);
    assert_int_equal(inspect_cell(&l.x, &l.row, 2, 4), 3);
    assert_int_equal(inspect_cell(&l.x, &l.row, 3, 4), 4); /* nothing completes it */
    json_t *o = inspect_row_json(&l.x, &l.row), *pieces = json_object_get(o, "pieces");
    assert_int_equal(json_integer_value(json_array_get(json_array_get(pieces, 0), 0)), 0xc5);
    assert_string_equal(json_string_value(json_array_get(pieces, 2)), "x");
    assert_true(json_is_true(json_array_get(json_object_get(o, "trained"), 4)));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "roles"), 4)), ROLE_USER);
    json_decref(o);
    lab_close(&l);
}

/* Documents of a row, and its padding. */
static void test_spans(void **state) {
    (void)state;
    lab l = lab_open(false);
    add(&l, mark_of((mark_role)INSPECT_TEXT, false), "a");
    add(&l, mark_of((mark_role)INSPECT_TEXT, true), "b");
    add(&l, mark_of((mark_role)INSPECT_TEXT, false), "c");
    inspect_span spans[] = {{0, 2, "x.txt:1"}, {2, 3, "x.txt:2"}};
    l.row.spans = spans;
    l.row.n_spans = 2;
    l.row.room = 8;
    expect_row(&l, (inspect_style){0},
               "  --- x.txt:1 ---\n"
               "  text       [[a]]b\n"
               "  --- x.txt:2 ---\n"
               "  text       [[c]]\n"
               "  --- 5 positions of padding ---\n");
    lab_close(&l);
}

static void expect_in(const strbuf *page, const char *part) {
    if (!strstr(strbuf_cstr(page), part)) fail_msg("the page has no '%s'", part);
}

/* What the page says without its style; texts cannot leave their place in it. */
static void test_page(void **state) {
    (void)state;
    lab l = lab_open(true);
    strbuf page = {0};
    fill(&l);
    add(&l, mark_of(ROLE_USER, false), "</script><b>&\xc5");
    l.row.label = LABEL_REJECTED;
    inspect_sample sample = {.number = 7, .row = {l.row, l.row}, .n_rows = 2};
    sample.row[0].label = LABEL_CHOSEN;
    l.x.sample = &sample;
    l.x.n = 1;
    inspect_count(inspect_source_of(&l.x, "a\"<b>.jsonl"), l.row.marks, l.row.n);
    inspect_page(&page, &l.x);
    expect_in(&page, "<h2><a href=\"#s0\">sample 7</a></h2>");
    expect_in(&page, "<div class=\"rows n2\">");
    expect_in(&page, "<span class=\"label chosen\">chosen</span>");
    expect_in(&page, "<span class=\"label rejected\">rejected</span>");
    expect_in(&page, "<div class=\"line r3\"><b>assistant</b><p><span class=\"on\">");
    expect_in(&page, "<span class=\"on sp\">");
    expect_in(&page, "<u>c5</u>");
    expect_in(&page, "a&quot;&lt;b&gt;.jsonl");
    const char *text = strstr(strbuf_cstr(&page), "<main>");
    const char *script = strstr(text, "<script>");
    assert_null(strstr(script + 1, "<script>"));
    assert_ptr_equal(strstr(text, "</script>"), strstr(script, "</script>"));
    assert_null(strstr(strbuf_cstr(&page), "http"));
    strbuf_free(&page);
    lab_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain), cmocka_unit_test(test_color), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_spans), cmocka_unit_test(test_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
