/* JSON Schemas as constraints: what is accepted (answers of jsonschema, and by hand), what is refused by
 * name, that every text ends, and that hostile schemas are bounded. */
#include "test.h"

#include "base/arena.h"
#include "base/json.h"
#include "infer/generate.h"
#include "infer/grammar/acceptor.h"
#include "infer/grammar/grammar.h"
#include "infer/grammar/schema.h"

/* A small vocabulary of bytes and pieces of JSON, with an added token. */
static tok *make_tok(void) {
    static const char text[] =
        "{\"name\": \"value\", \"number\": 12.5, \"list\": [true, false, null], \"other\": "
        "\"text\"} "
        "{\"name\": \"none\", \"list\": [1, 2, 3, 10, 100, 1000], \"date\": \"2024-02-29\"}\n";
    static const char *const special[] = {"<end>", "<call>"};
    tok_train_options o = {.vocab_size = 400, .special = special, .n_special = 2};
    tok_trainer *tr;
    tok *t;
    err e = {0};
    assert_int_equal(tok_trainer_new(&tr, &o, &e), ST_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tok_trainer_add(tr, text, sizeof text - 1, &e), ST_OK);
    if (tok_trainer_finish(tr, &t, &e) != ST_OK) fail_msg("%s", e.message);
    tok_trainer_free(tr);
    return t;
}

typedef struct lab {
    tok *t;
    token_trie *v;
} lab;

static lab the_lab;

static int set_up(void **state) {
    (void)state;
    the_lab.t = make_tok();
    the_lab.v = token_trie_new(the_lab.t, tok_vocab_size(the_lab.t));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    token_trie_free(the_lab.v);
    tok_free(the_lab.t);
    return 0;
}

static json_t *parse(const char *text) {
    json_error_t je;
    json_t *j = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!j) fail_msg("%s: %s", text, je.text);
    return j;
}

/* ---- texts ---- */

static bool is_set(const uint64_t *mask, int32_t id) {
    return mask[id / 64] >> id % 64 & 1;
}

/* Takes the text byte by byte, as far as that is allowed. */
static bool accepts(grammar *g, const char *text, size_t n) {
    constraint *c = grammar_constrain(g);
    uint64_t mask[8];
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        size_t len;
        int32_t id = token_trie_longest(the_lab.v, text + i, 1, &len);
        memset(mask, 0, sizeof mask);
        ok = c->class->allow(c, 1 << 30, mask) && is_set(mask, id);
        if (ok) c->class->take(c, id);
    }
    ok = ok && c->class->may_end(c);
    constraint_free(c);
    return ok;
}

static grammar *grammar_from(const char *schema) {
    err e = {0};
    grammar *g;
    json_t *s = parse(schema);
    if (grammar_of_schema(&g, the_lab.v, s, &e) != ST_OK)
        fail_msg("%s: %s at %s", schema, e.message, e.where);
    json_decref(s);
    return g;
}

/* Texts that the schema accepts, then a NULL, then those it does not, then a NULL. */
static void check_texts(const char *schema, const char *const *text) {
    grammar *g = grammar_from(schema);
    for (int want = 1; want >= 0; want--, text++)
        for (; *text; text++)
            if (accepts(g, *text, strlen(*text)) != want)
                fail_msg("%s: %s is %saccepted", schema, *text, want ? "not " : "");
    grammar_free(g);
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_numbers(void **state) {
    (void)state;
    check_texts("{\"type\":\"integer\"}", TEXTS("0", "-7", "123456789012345678", NULL, "-0", "01",
                                                "1.0", "1e3", "", "-", "1234567890123456789"));
    check_texts("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":305}",
                TEXTS("-12", "-1", "0", "9", "10", "99", "100", "299", "305", NULL, "-13", "-20",
                      "306", "310", "400", "1000", "00"));
    check_texts("{\"type\":\"integer\",\"exclusiveMinimum\":7,\"exclusiveMaximum\":11}",
                TEXTS("8", "9", "10", NULL, "7", "11", "0", "-8", "80"));
    check_texts("{\"type\":\"integer\",\"multipleOf\":15,\"maximum\":100}",
                TEXTS("0", "15", "90", "-30", NULL, "5", "100", "105", "-20"));
    check_texts("{\"type\":\"number\",\"multipleOf\":1}", TEXTS("7", NULL, "7.5", "7.0", "7e1"));
    check_texts("{\"type\":\"number\"}", TEXTS("0", "-0.5", "1e-9", "12.25E+10", NULL, "1.", ".5",
                                               "+1", "1e", "1e100", "0x1", "NaN"));
    check_texts("{\"type\":\"number\",\"minimum\":-0.25,\"exclusiveMaximum\":12.5}",
                TEXTS("-0.25", "-0.2499", "0", "0.0", "12", "12.4999", "9.99", NULL, "-0.2501",
                      "-0.3", "-1", "12.5", "12.50", "13", "100", "-0", "1e1"));
    check_texts("{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}",
                TEXTS("0.00001", "1", "1.00", "0.5", NULL, "0", "0.0", "-1", "1.01", "2"));
    check_texts("{\"enum\":[0.1,3,\"a\",null,[1,{\"b\":true}]]}",
                TEXTS("0.1", "3", "\"a\"", "null", "[1, {\"b\": true}]", NULL, "0.10", "30",
                      "\"b\"", "[1]"));
}

static void test_strings(void **state) {
    (void)state;
    check_texts("{\"type\":\"string\"}",
                TEXTS("\"\"", "\"a\\n\\u00e9\\\"\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"",
                      "\"\\ud83d\\ude00\"", NULL, "\"", "\"\n\"", "\"\\x\"", "\"\\ud83d\"",
                      "\"\\ude00\"", "\"\xC3\"", "\"\xED\xA0\x80\"", "\"\xC0\x80\"", "\"a\"b"));
    check_texts("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
                TEXTS("\"ab\"", "\"\xC3\xA9\xF0\x9F\x98\x80\\n\"", "\"\\ud83d\\ude00x\"", NULL,
                      "\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\""));
    check_texts("{\"type\":\"string\",\"pattern\":\"b+c$\"}",
                TEXTS("\"bc\"", "\"xx\\nbbc\"", "\"bcbc\"", NULL, "\"bcd\"", "\"c\"", "\"\""));
    check_texts("{\"type\":\"string\",\"pattern\":\"^\\\\d[^\\\\d]\\\\w?$\",\"minLength\":3}",
                TEXTS("\"1ab\"", "\"1\xC3\xA9_\"", "\"1\\\"b\"", NULL, "\"1a\"", "\"11b\"",
                      "\"\xD9\xA1x1\"", "\"1\xD9\xA1x\"", "\"1ab1\"", "\"1a\xC3\xA9\""));
    check_texts("{\"type\":\"string\",\"format\":\"date\"}",
                TEXTS("\"2024-02-29\"", "\"2000-02-29\"", "\"0001-12-31\"", NULL, "\"2023-02-29\"",
                      "\"1900-02-29\"", "\"2024-04-31\"", "\"0000-01-01\"", "\"2024-13-01\""));
    check_texts("{\"type\":\"string\",\"format\":\"ipv4\",\"maxLength\":8}",
                TEXTS("\"10.0.0.1\"", "\"1.2.3.4\"", NULL, "\"10.0.0.12\"", "\"256.1.1.1\"",
                      "\"01.1.1.1\""));
}

static void test_objects(void **state) {
    (void)state;
    check_texts("{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"},\"a\":true},"
                "\"required\":[\"a\",\"z\"]}",
                TEXTS("{\"b\": 1, \"a\": [], \"z\": {}}", "{\"a\":1,\"z\":2}",
                      "{\n  \"a\": 1,\n  \"z\": 2,\n  \"q\": null\n}", NULL, "{\"a\":1}",
                      "{\"a\":1,\"b\":1,\"z\":1}", "{\"a\":1,\"z\":1,\"a\":2}",
                      "{\"b\":\"x\",\"a\":1,\"z\":1}", "{\"a\" :1,\"z\":1}", "{,\"a\":1,\"z\":1}",
                      "{\"a\":1,\"z\":1,}", "{\"a\":  1,\"z\":1}"));
    check_texts("{\"properties\":{\"na\":{\"type\":\"null\"},\"name\":{\"type\":\"null\"}},"
                "\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
                TEXTS("{}", "{\"na\":null,\"nam\":1,\"names\":2,\"\":3,\"n\":4,\"x\":5}", NULL,
                      "{\"na\":1}", "{\"name\":1}", "{\"x\":1,\"na\":null}", "{\"\\u006ea\":1}"));
    check_texts("{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},"
                "\"additionalProperties\":false,\"minProperties\":1,\"maxProperties\":2}",
                TEXTS("{\"a\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}", NULL, "{}",
                      "{\"a\":1,\"b\":1,\"c\":1}", "{\"d\":1}"));
    check_texts(
        "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}},"
        "{\"properties\":{\"b\":{\"maximum\":3}},\"additionalProperties\":{\"minimum\":2}}],"
        "\"type\":\"object\",\"required\":[\"a\"]}",
        TEXTS("{\"a\":2}", "{\"a\":5,\"b\":-1,\"c\":2}", NULL, "{\"a\":1}", "{\"a\":2.5}",
              "{\"a\":2,\"b\":4}", "{\"a\":2,\"c\":1}"));
}

static void test_arrays_and_references(void **state) {
    (void)state;
    check_texts("{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":\"x\"}],"
                "\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":4}",
                TEXTS("[1]", "[1, \"x\"]", "[1,\"x\",true,false]", NULL, "[]", "[2]", "[1,true]",
                      "[1,\"x\",true,true,true]", "[1,]"));
    check_texts("{\"$ref\":\"#/$defs/n~1o\",\"$defs\":{\"n/o\":{\"type\":\"object\",\"properties\":"
                "{\"v\":{\"type\":\"integer\"},\"in\":{\"$ref\":\"#\"}},\"required\":[\"v\"],"
                "\"additionalProperties\":false}}}",
                TEXTS("{\"v\":1}", "{\"v\":1,\"in\":{\"v\":2,\"in\":{\"v\":3}}}", NULL, "{}",
                      "{\"v\":1,\"in\":{}}", "{\"v\":1,\"in\":{\"v\":2}", "{\"v\":1,\"in\":1}"));
    check_texts("{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"$ref\":\"#/$defs/n\"}],"
                "\"$defs\":{\"n\":{\"type\":[\"integer\",\"null\"]}},\"description\":\"x\"}",
                TEXTS("\"ab\"", "null", "12", NULL, "\"abc\"", "1.5", "[]"));
    check_texts(
        "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"integer\"}},"
        "\"required\":[\"k\"]},{\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}],"
        "\"type\":\"object\"}",
        TEXTS("{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\",\"x\":\"y\"}", NULL,
              "{\"k\":\"a\",\"x\":\"y\"}", "{\"k\":\"c\"}", "{}"));
    check_texts("{\"type\":\"string\",\"nullable\":true}", TEXTS("null", "\"a\"", NULL, "1"));
    check_texts("true", TEXTS("{\"a\":[1,[2,{}]]}", "true", NULL, "{\"a\"}", "[1 ,2]", "tru"));
}

/* ---- answers of jsonschema (tests/oracle/make_schema_golden.py) ---- */

static void test_golden(void **state) {
    (void)state;
    json_t *all, *one, *s;
    size_t i, k, wrong = 0, right = 0;
    err e = {0};
    assert_int_equal(json_read_file(&all, TEST_DIR "/golden/schemas.json", 1 << 24, &e), ST_OK);
    json_array_foreach(all, i, one) {
        grammar *g;
        const json_t *schema = json_object_get(one, "schema");
        if (grammar_of_schema(&g, the_lab.v, schema, &e) != ST_OK) fail_msg("%s", e.message);
        json_array_foreach(json_object_get(one, "valid"), k, s) {
            if (!accepts(g, json_string_value(s), json_string_length(s)))
                fail_msg("schema %zu: %s is not accepted", i, json_string_value(s));
            right++;
        }
        json_array_foreach(json_object_get(one, "invalid"), k, s) {
            if (accepts(g, json_string_value(s), json_string_length(s)))
                fail_msg("schema %zu: %s is accepted", i, json_string_value(s));
            wrong++;
        }
        grammar_free(g);
    }
    json_decref(all);
    assert_true(right > 50 && wrong > 50);
}

/* ---- refusals ---- */

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *schema, *where, *message;
    } cases[] = {
        {"{\"properties\":{\"a/b\":{\"not\":{}}}}", "#/properties/a~1b/not", "not: this keyword"},
        {"{\"items\":{\"if\":true}}", "#/items/if", "if: this keyword is not supported"},
        {"{\"minLenght\":1}", "#/minLenght", "minLenght: this keyword"},
        {"{\"type\":\"strin\"}", "#/type", "the name of a type"},
        {"{\"anyOf\":[]}", "#/anyOf", "a list of schemas"},
        {"{\"minItems\":-1}", "#/minItems", "a whole number"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "#/uniqueItems", "more than one item"},
        {"{\"$ref\":\"#/$defs/no\"}", "#/$ref", "there is no schema at #/$defs/no"},
        {"{\"$ref\":\"http://x/y\"}", "#/$ref", "there is no schema"},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", "#/pattern", "looking ahead"},
        {"{\"type\":\"string\",\"pattern\":\"(a\"}", "#/pattern", "pattern"},
        {"{\"type\":\"string\",\"pattern\":\"a\\\\b\"}", "#/pattern", "^ at the beginning"},
        {"{\"type\":\"string\",\"format\":\"regex\"}", "#/format", "the format regex"},
        {"{\"type\":\"number\",\"multipleOf\":0.1}", "#/multipleOf", "whole numbers"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "#/oneOf",
         "branches 0 and 1"},
        {"{\"enum\":[\"a\"],\"pattern\":\"a\"}", "#/pattern", "beside an enum"},
        {"false", "", "no value is valid"},
        {"{\"enum\":[1,\"a\"],\"type\":\"null\"}", "", "no value is valid"},
        {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":0}", "", "no value is valid"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "",
         "no value is valid"},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}", "",
         "no value is valid"},
        {"[]", "", "a JSON Schema is an object"},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        err e = {0};
        grammar *g;
        json_t *s = parse(cases[i].schema);
        status st = grammar_of_schema(&g, the_lab.v, s, &e);
        if (st != ST_USAGE || !strstr(e.message, cases[i].message) ||
            strcmp(e.where, cases[i].where) != 0)
            fail_msg("%s: %d %s at %s", cases[i].schema, st, e.message, e.where);
        json_decref(s);
    }
}

/* ---- whole texts, of random logits ---- */

static generate_finish write_text(grammar *g, int64_t max_new, uint64_t seed, strbuf *text) {
    int32_t n = tok_vocab_size(the_lab.t), prompt[] = {5};
    generate_request rq = {.prompt = prompt,
                           .n_prompt = 1,
                           .max_new = max_new,
                           .sample = {.temperature = 1, .top_p = 1, .seed = seed},
                           .end = (int32_t[]){0},
                           .n_end = 1,
                           .tok = the_lab.t,
                           .keep_special = true,
                           .limit = grammar_constrain(g)};
    generate_limits limits = {.Tmax = 1 << 20, .vocab = n, .n_ids = n};
    generate_result result;
    generation *w;
    tok_ids ids = {0};
    err e = {0};
    strbuf_clear(text);
    assert_int_equal(generation_begin(&w, &rq, &limits, &ids, text, &result, &e), ST_OK);
    for (bool ended = false; !ended;) {
        float logits[512];
        rng_key key = rng_key_numbered(seed, (uint64_t)generation_ids(w)->n);
        for (int32_t i = 0; i < n; i++)
            logits[i] = (float)rng_normal_q24(key, (uint64_t)i) / 16777216.0f * 3;
        if (generation_take(w, logits, &ended, &e) != ST_OK) fail_msg("%s", e.message);
    }
    assert_int_equal(generation_end(w, &e), ST_OK);
    assert_true(result.n_new <= max_new);
    generation_free(w);
    tok_ids_free(&ids);
    constraint_free(rq.limit);
    return result.finish;
}

static bool is_json(const strbuf *text) {
    json_t *j = json_loadb(text->data, text->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    json_decref(j);
    return j != NULL;
}

static const char *const schemas[] = {
    "true", "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}",
    "{\"type\":\"string\",\"maxLength\":9000}",
    "{\"type\":\"string\",\"pattern\":\"(a|bc)*[^x]{5,}end\"}",
    "{\"type\":\"object\",\"properties\":{\"date\":{\"format\":\"date-time\",\"type\":\"string\"},"
    "\"list\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1}},\"required\":["
    "\"date\"]}"};

/* A text ends in time, however few tokens there are for it; with fewer than the shortest value
 * needs it ends where they do. */
static void test_texts_end(void **state) {
    (void)state;
    strbuf text = {0};
    for (int i = 0; i < ARRAY_LEN(schemas); i++) {
        grammar *g = grammar_from(schemas[i]);
        int ended = 0, cut = 0;
        for (int max_new = 1; max_new < 400; max_new += 1 + max_new / 5) {
            generate_finish f = write_text(g, max_new, (uint64_t)max_new, &text);
            bool whole = is_json(&text);
            if (ended && !whole) fail_msg("%s is not whole", strbuf_cstr(&text));
            if (f == FINISH_END) assert_true(whole);
            ended += whole;
            cut += !whole;
        }
        assert_true(ended > 10);
        assert_true(cut > 0 || i == 0);
        grammar_free(g);
    }
    strbuf_free(&text);
}

/* The same text from a grammar that served others before, and beside others. */
static void test_texts_do_not_depend(void **state) {
    (void)state;
    strbuf text = {0}, again = {0};
    for (int i = 0; i < ARRAY_LEN(schemas); i++) {
        grammar *used = grammar_from(schemas[i]);
        constraint *beside = grammar_constrain(used);
        for (uint64_t seed = 1; seed < 6; seed++) {
            grammar *fresh = grammar_from(schemas[i]);
            write_text(used, 60, seed, &text);
            write_text(fresh, 60, seed, &again);
            assert_string_equal(strbuf_cstr(&text), strbuf_cstr(&again));
            grammar_free(fresh);
        }
        constraint_free(beside);
        grammar_free(used);
    }
    strbuf_free(&text);
    strbuf_free(&again);
}

/* ---- the acceptor ---- */

static void test_forgetting(void **state) {
    (void)state;
    network net;
    json_rules rules = {.net = &net};
    net_init(&net);
    int32_t whole = net_new_rule(&net);
    net_set_rule(&net, whole, json_call(&rules, RULE_VALUE, NET_END));
    assert_true(net_finish(&net));
    acceptor *a = acceptor_new(&net), *b = acceptor_new(&net);
    static const char text[] = "{\"a\":[[1,{\"b\":\"\xC3\xA9x\"}],{}]}";
    int32_t at = a->start, kept = b->start, start = b->start;
    for (size_t i = 0; i < sizeof text - 1; i++) {
        at = acceptor_step(a, at, (uint8_t)text[i]);
        kept = acceptor_step(b, kept, (uint8_t)text[i]);
        acceptor_forget(b, (int32_t *const[]){&kept, &start}, 2);
        assert_true(at != ACCEPTOR_DEAD && kept != ACCEPTOR_DEAD);
        assert_int_equal(a->set[at].n, b->set[kept].n);
        assert_int_equal(a->set[at].dist, b->set[kept].dist);
        assert_int_equal(a->set[at].final, i == sizeof text - 2);
        assert_int_equal(b->set[kept].final, i == sizeof text - 2);
    }
    assert_int_equal(start, b->start);
    acceptor_free(a);
    acceptor_free(b);
    net_free(&net);
}

/* While there is room, a string with a limit may go on as one without; at its end only the quote may come. */
static void test_counted_masks(void **state) {
    (void)state;
    enum { MOST = 140 };
    grammar *limited = grammar_from("{\"type\":\"string\",\"maxLength\":140}");
    grammar *any = grammar_from("{\"type\":\"string\"}");
    constraint *a = grammar_constrain(limited), *b = grammar_constrain(any);
    size_t len;
    int32_t quote = token_trie_longest(the_lab.v, "\"", 1, &len);
    int32_t letter = token_trie_longest(the_lab.v, "x", 1, &len);
    for (int i = -1; i <= MOST; i++) {
        uint64_t x[8] = {0}, y[8] = {0}, one[8] = {0};
        int32_t next = i < 0 ? quote : letter;
        assert_true(a->class->allow(a, 10000, x) && b->class->allow(b, 10000, y));
        one[quote / 64] = (uint64_t)1 << quote % 64;
        if (i < MOST - 40 && memcmp(x, y, sizeof x) != 0) fail_msg("after %d characters", i);
        if (i < MOST) a->class->take(a, next);
        if (i < MOST) b->class->take(b, next);
        if (i == MOST) assert_memory_equal(x, one, sizeof x);
    }
    constraint_free(a);
    constraint_free(b);
    grammar_free(limited);
    grammar_free(any);
}

/* ---- forms ---- */

/* Two calls at most of one tool or another, as a template writes them; the marks are added tokens. */
static void test_forms(void **state) {
    (void)state;
    json_t *schema = parse("{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},"
                           "\"required\":[\"x\"],\"additionalProperties\":false}");
    const grammar_part a[] = {
        {.text = "<call>{\"name\": \"a\", \"arguments\": "}, {.schema = schema}, {.text = "}"}};
    const grammar_part b[] = {{.text = "<call>{\"name\": \"b\"}"}};
    const grammar_form forms[] = {{a, 3}, {b, 1}};
    grammar_spec spec = {.form = forms, .n_forms = 2, .most = 2, .between = "\n"};
    grammar *g;
    err e = {0};
    assert_int_equal(grammar_new(&g, the_lab.v, &spec, &e), ST_OK);
    json_decref(schema);
    check_texts("true", TEXTS("1", NULL, "<call>"));
    static const char *const good[] = {"<call>{\"name\": \"b\"}",
                                       "<call>{\"name\": \"a\", \"arguments\": {\"x\":1}}",
                                       "<call>{\"name\": \"b\"}\n<call>{\"name\": \"b\"}"};
    for (int i = 0; i < 3; i++) assert_true(accepts(g, good[i], strlen(good[i])));
    static const char three[] = "<call>{\"name\": \"b\"}\n<call>{\"name\": \"b\"}\n";
    assert_false(accepts(g, three, sizeof three - 1));
    /* The mark may be one token, at its place alone. */
    constraint *c = grammar_constrain(g);
    uint64_t mask[8] = {0};
    int32_t mark = tok_id(the_lab.t, "<call>");
    assert_true(mark >= 0 && tok_is_added(the_lab.t, mark));
    assert_true(c->class->allow(c, 1000, mask) && is_set(mask, mark));
    assert_false(is_set(mask, tok_id(the_lab.t, "<end>")));
    c->class->take(c, mark);
    memset(mask, 0, sizeof mask);
    assert_true(c->class->allow(c, 1000, mask) && !is_set(mask, mark));
    constraint_free(c);
    strbuf text = {0};
    for (uint64_t seed = 0; seed < 20; seed++) {
        assert_int_equal(write_text(g, 100, seed, &text), FINISH_END);
        if (!accepts(g, text.data, text.len)) fail_msg("%s", strbuf_cstr(&text));
    }
    strbuf_free(&text);
    grammar_free(g);
}

/* ---- hostile schemas ---- */

static json_t *nested(int depth) {
    json_t *s = json_object();
    for (int i = 0; i < depth; i++) s = json_pack("{s:s,s:o}", "type", "array", "items", s);
    return s;
}

/* $defs of which each says the one before twice: 2^n combinations of anyOf. */
static json_t *doubling(const char *keyword, int n) {
    json_t *defs = json_object(), *root = json_pack("{s:o}", "$defs", defs);
    for (int i = 0; i < n; i++) {
        char name[16], to[32];
        snprintf(name, sizeof name, "d%d", i);
        snprintf(to, sizeof to, "#/$defs/d%d", i - 1);
        json_t *s =
            i == 0 ? json_pack("{s:[{s:s},{s:s}]}", "anyOf", "type", "integer", "type", "string")
                   : json_pack("{s:[{s:s},{s:[{s:i},{s:i}]}]}", keyword, "$ref", to, "anyOf",
                               "minimum", i, "maximum", -i);
        json_object_set_new(defs, name, s);
        if (i == n - 1) json_object_set_new(root, "$ref", json_sprintf("#/$defs/%s", name));
    }
    return root;
}

static void check_refused(json_t *schema, const char *message) {
    err e = {0};
    grammar *g;
    status st = grammar_of_schema(&g, the_lab.v, schema, &e);
    if (st != ST_USAGE || !strstr(e.message, message)) fail_msg("%d %s", st, e.message);
    json_decref(schema);
}

static void test_hostile(void **state) {
    (void)state;
    check_refused(nested(2000), "nested deeper");
    check_refused(doubling("allOf", 30), "too large");
    check_refused(doubling("allOf", 80), "more than 128 schemas");
    check_refused(parse("{\"type\":\"string\",\"minLength\":1000000000}"), "more than");
    check_refused(parse("{\"type\":\"string\",\"pattern\":\"((a{1,900}){1,900}){1,900}\"}"),
                  "too large");
    json_t *many = json_object();
    for (int i = 0; i < 9; i++)
        json_object_set_new(many, (char[]){(char)('a' + i), 0},
                            json_pack("{s:s,s:i}", "type", "integer", "multipleOf", 991 + i));
    check_refused(json_pack("{s:o}", "properties", many), "too large");
    json_t *values = json_array();
    for (int i = 0; i < 300; i++) {
        json_t *v = json_array();
        for (int k = 0; k < 300; k++) json_array_append_new(v, json_integer(k + i * (k == 299)));
        json_array_append_new(values, v);
    }
    check_refused(json_pack("{s:O,s:[{s:o}]}", "enum", values, "allOf", "enum", values),
                  "too many values");
    grammar *g = grammar_from("{\"type\":\"string\",\"maxLength\":1000000000}");
    assert_true(grammar_bytes(g) > 1 << 10 && grammar_bytes(g) < 1 << 27);
    grammar_free(g);
    /* a set of places for each of many pasts; masks are cut short, the text ends all the same */
    g = grammar_from("{\"type\":\"string\",\"pattern\":\"[ab][^c]{30}$\"}");
    strbuf text = {0};
    assert_int_equal(write_text(g, 200, 3, &text), FINISH_END);
    assert_true(is_json(&text));
    grammar_free(g);
    /* closures of thousands of places, which are cut, too */
    g = grammar_from("{\"type\":\"array\",\"minItems\":100,\"items\":{\"type\":\"string\","
                     "\"pattern\":\"^(?:(?:(?:){0,170}){0,170}.)*$\",\"minLength\":30,"
                     "\"maxLength\":33}}");
    assert_int_equal(write_text(g, 30, 3, &text), FINISH_LENGTH);
    grammar_free(g);
    strbuf_free(&text);
}

/* A value far longer than there are tokens for breaks off, also where its bound is a guess. */
static void test_far_too_long(void **state) {
    (void)state;
    strbuf text = {0};
    grammar *g = grammar_from("{\"type\":\"array\",\"minItems\":4,\"items\":{"
                              "\"type\":\"string\",\"minLength\":9000}}");
    for (int64_t max_new = 1; max_new < 300; max_new *= 3)
        assert_int_equal(write_text(g, max_new, 3, &text), FINISH_LENGTH);
    strbuf_free(&text);
    grammar_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),       cmocka_unit_test(test_strings),
        cmocka_unit_test(test_objects),       cmocka_unit_test(test_arrays_and_references),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_texts_end),
        cmocka_unit_test(test_forgetting),    cmocka_unit_test(test_texts_do_not_depend),
        cmocka_unit_test(test_counted_masks), cmocka_unit_test(test_forms),
        cmocka_unit_test(test_hostile),       cmocka_unit_test(test_golden),
        cmocka_unit_test(test_far_too_long)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
