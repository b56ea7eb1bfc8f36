/* Tasks from files: what their documents are, to the byte, and what is refused, with file and
 * line. */
#include "test.h"

#include <unistd.h>

#include "base/file.h"
#include "eval/task.h"

static char dir[] = "/tmp/athanor-tasks-XXXXXX";

static const char *put(arena *a, const char *name, const char *text) {
    err e = {0};
    const char *path = path_join(a, dir, name);
    assert_int_equal(file_write_atomic(path, text, strlen(text), &e), ST_OK);
    return path;
}

static void open_task(eval_task *t, arena *a, const char *name, const char *text, int64_t limit) {
    err e = {0};
    eval_source from = {.limit = limit, .n_few = -1};
    const char *path = put(a, name, text);
    if (eval_task_open(t, path, &from, &e) != ST_OK)
        fail_msg("%s: %s (%s)", name, e.message, e.where);
}

static void refuse(arena *a, const char *name, const char *text, status want, const char *message,
                   const char *where) {
    err e = {0};
    eval_task t;
    eval_source from = {.n_few = -1};
    status st = eval_task_open(&t, put(a, name, text), &from, &e);
    if (st != want || !strstr(e.message, message) || !strstr(e.where, where))
        fail_msg("%s: %d, \"%s\" at \"%s\"", name, st, e.message, e.where);
    eval_task_close(&t);
}

static void same(eval_text got, const char *want) {
    if (got.len != strlen(want) || memcmp(got.s, want, got.len) != 0)
        fail_msg("\"%.*s\" instead of \"%s\"", (int)got.len, got.s, want);
}

#define REQUEST(id, idx, label, context, continuation)                                             \
    "{\"request_type\": \"loglikelihood\", \"doc\": {\"choices\": [\"red one\", \"blue\"]}, "      \
    "\"request\": {\"context\": \"" context "\", \"continuation\": \"" continuation "\"}, "        \
    "\"idx\": " #idx ", \"doc_id\": " #id ", \"label\": " #label "}\n"

static void test_olmes(void **state) {
    (void)state;
    arena *a = arena_new("test");
    err e = {0};
    eval_task t;
    eval_source from = {0};
    const char *folder = path_join(a, dir, "colours");
    assert_int_equal(file_make_dirs(folder, &e), ST_OK);
    put(a, "colours/config.json",
        "{\"task_name\": \"colours\", \"task_config\": {\"metric_kwargs\": "
        "{\"uncond_docid_offset\": 100}}}");
    put(a, "colours/requests.jsonl",
        REQUEST(0, 0, 1, "Q: a?", " red one") REQUEST(0, 1, 1, "Q: a?", " blue")
            REQUEST(3, 0, 0, "Q: b?", " red one") REQUEST(3, 1, 0, "Q: b?", " blue")
                REQUEST(100, 0, 1, "A:", " red one") REQUEST(100, 1, 1, "A:", " blue")
                    REQUEST(103, 0, 0, "A:", " red one") REQUEST(103, 1, 0, "A:", " blue"));
    assert_int_equal(eval_task_open(&t, folder, &from, &e), ST_OK);
    assert_string_equal(t.name, "colours");
    assert_int_equal(t.n, 2);
    assert_int_equal(json_integer_value(t.doc[1].id), 3);
    assert_int_equal(t.doc[0].gold[0], 1);
    same(t.doc[1].choice[0].pair.context, "Q: b?");
    same(t.doc[1].choice[0].pair.continuation, " red one");
    same(t.doc[1].choice[0].label, "red one");
    same(t.doc[1].choice[1].alone->context, "A:");
    assert_true(t.metrics >> METRIC_ACC_MUTUAL_INFO & 1);
    eval_task_close(&t);
    from.limit = 1;
    assert_int_equal(eval_task_open(&t, folder, &from, &e), ST_OK);
    assert_int_equal(t.n, 1);
    assert_non_null(t.doc[0].choice[1].alone);
    eval_task_close(&t);
    refuse(a, "colours/requests.jsonl", REQUEST(0, 0, 0, "a", "b"), ST_FORMAT, "none of",
           "requests.jsonl:1"); /* as a JSONL task */
    arena_free(a);
}

static void test_olmes_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message, *where;
    } cases[] = {
        {"{\"doc_id\": 0}\n", "request_type", ":1"},
        {REQUEST(0, 0, 0, "a", "b") "nothing\n", "not a JSON object", ":2"},
        {REQUEST(0, 1, 0, "a", "b"), "comes as number 0", ":1"},
        {REQUEST(0, 0, 1, "a", "b"), "label of document 0 is 1", ":1"},
        {REQUEST(0, 0, -1, "a", "b"), "label", ":1"},
        {REQUEST(0, 0, 0, "a", "b") REQUEST(1000007, 0, 0, "a", "b"), "belongs to no choice", ":2"},
        {"{\"request_type\": \"generate_until\"}\n", "generate_until", ":1"},
        {"\n", "no documents", "bad"},
    };
    arena *a = arena_new("test");
    const char *folder = path_join(a, dir, "bad");
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        err e = {0};
        eval_task t;
        eval_source from = {0};
        assert_int_equal(file_make_dirs(folder, &e), ST_OK);
        put(a, "bad/requests.jsonl", cases[i].text);
        status st = eval_task_open(&t, folder, &from, &e);
        if (st == ST_OK || !strstr(e.message, cases[i].message) || !strstr(e.where, cases[i].where))
            fail_msg("case %d: %d, \"%s\" at \"%s\"", i, st, e.message, e.where);
        eval_task_close(&t);
    }
    arena_free(a);
}

static void test_jsonl(void **state) {
    (void)state;
    arena *a = arena_new("test");
    eval_task t;
    open_task(
        &t, a, "sums.v1.jsonl",
        "{\"context\": \"1 + 1 =\", \"choices\": [\" 2\", \"3\"], \"gold\": 0, \"id\": \"x\"}\n\n"
        "{\"context\": \"1 + 2 =\", \"choices\": [\" 2\", \" 3\"], \"gold\": 1}\n",
        0);
    assert_string_equal(t.name, "sums");
    assert_int_equal(t.n, 2);
    assert_string_equal(json_string_value(t.doc[0].id), "x");
    assert_int_equal(json_integer_value(t.doc[1].id), 1);
    assert_int_equal(t.doc[1].line, 3);
    same(t.doc[0].choice[0].label, "2");
    same(t.doc[0].choice[1].label, "3");
    eval_task_close(&t);
    open_task(&t, a, "ask.jsonl", "{\"prompt\": \"Q\", \"answer\": [\"a\", 7]}\n", 0);
    assert_int_equal(t.kind, EVAL_ANSWER);
    same(t.doc[0].target[1], "7");
    eval_task_close(&t);
    refuse(a, "x.jsonl", "{\"text\": \"a\"}\n{\"prompt\": \"a\", \"answer\": \"b\"}\n", ST_FORMAT,
           "another kind", "x.jsonl:2");
    refuse(a, "x.jsonl", "{\"context\": \"a\", \"choices\": [\"b\"], \"gold\": 1}\n", ST_FORMAT,
           "\"gold\"", "x.jsonl:1");
    refuse(a, "x.jsonl", "{\"prompt\": \"a\"}\n", ST_FORMAT, "\"answer\"", "x.jsonl:1");
    refuse(a, "x.jsonl", "{}\n", ST_FORMAT, "none of", "x.jsonl:1");
    arena_free(a);
}

#define ROWS                                                                                       \
    "question,A,B,answer\nOne?,yes,no,A\n\"Two, \"\"or\"\"\nnot?\",it's,no,B\nThree?,1,2,A\n"
#define HEAD                                                                                       \
    "task: quiz\ndataset_path: csv\noutput_type: multiple_choice\ntest_split: test\n"              \
    "fewshot_split: dev\n"
#define FIELDS                                                                                     \
    "doc_to_text: \"{{question}}\\nAnswer:\"\n"                                                    \
    "doc_to_choice: \"{{[A, B]}}\"\n"                                                              \
    "doc_to_target: \"{{['A', 'B'].index(answer)}}\"\n"

/* Examples, delimiters, white space of templates, columns of CSV. */
static void test_yaml(void **state) {
    (void)state;
    arena *a = arena_new("test");
    eval_task t;
    put(a, "test.csv", ROWS);
    put(a, "dev.csv", "question,A,B,answer\nFour?,q,r,B\nFive?,s,t,A\n");
    put(a, "base.yaml", HEAD "num_fewshot: 2\nfewshot_config: {sampler: first_n}\n");
    open_task(&t, a, "quiz.yaml", "include: base.yaml\ndescription: \"Quiz.\\n\"\n" FIELDS, 2);
    assert_string_equal(t.name, "quiz");
    assert_int_equal(t.n, 2);
    assert_true(t.test_split);
    assert_int_equal(t.metrics, 1u << METRIC_ACC | 1u << METRIC_ACC_NORM);
    same(t.doc[1].choice[1].pair.context,
         "Quiz.\nFour?\nAnswer: r\n\nFive?\nAnswer: s\n\nTwo, \"or\"\nnot?\nAnswer:");
    same(t.doc[1].choice[0].pair.continuation, " it's");
    same(t.doc[1].choice[0].label, "it's");
    assert_int_equal(t.doc[1].gold[0], 1);
    assert_int_equal(t.doc[1].line, 3);
    eval_task_close(&t);
    open_task(&t, a, "quiz.yaml",
              HEAD "doc_to_text: question\ndoc_to_choice: [x, y]\ndoc_to_target: 1\n"
                   "target_delimiter: \"\"\nmetric_list: [{metric: acc_mutual_info}]\n",
              0);
    same(t.doc[0].choice[1].pair.context, "One?");
    same(t.doc[0].choice[1].pair.continuation, "y");
    same(t.doc[0].choice[1].alone->context, "");
    eval_task_close(&t);
    open_task(&t, a, "write.yaml",
              "test_split: test\noutput_type: generate_until\ndoc_to_text: \"{{question}}\\n\"\n"
              "doc_to_target: \"{{ [A, B] }}\"\ngeneration_kwargs: {until: [Q], max_gen_toks: 9}\n",
              0);
    same(t.doc[0].prompt, "One?\n");
    assert_int_equal(t.doc[2].n_targets, 2);
    same(t.doc[1].target[0], "it's");
    assert_int_equal(t.max_new, 9);
    assert_string_equal(t.until[0], "Q");
    eval_task_close(&t);
    arena_free(a);
}

static void test_yaml_refused(void **state) {
    (void)state;
    arena *a = arena_new("test");
    put(a, "test.csv", ROWS);
    static const struct {
        const char *text;
        status st;
        const char *message, *where;
    } cases[] = {
        {HEAD FIELDS "doc_to_image: x\n", ST_USAGE, "doc_to_image is not supported", "q.yaml:9"},
        {HEAD "doc_to_text: !function u.f\n", ST_USAGE, "!function", "q.yaml:6"},
        {HEAD "doc_to_text: query\ndoc_to_choice: [a]\ndoc_to_target: 0\n", ST_FORMAT,
         "the column query", "q.yaml:6"},
        {HEAD "doc_to_text: query\ndoc_to_choice: [a]\ndoc_to_target: 0\n", ST_FORMAT,
         "doc_to_text", "test.csv:2"},
        {HEAD "doc_to_text: \"{{question\"\ndoc_to_choice: [a]\ndoc_to_target: 0\n", ST_FORMAT,
         "doc_to_text", "q.yaml:6"},
        {HEAD "doc_to_text: \"{{nothing}}\"\ndoc_to_choice: [a]\ndoc_to_target: 0\n", ST_FORMAT,
         "'nothing' is undefined", "q.yaml:6"},
        {HEAD "doc_to_text: question\ndoc_to_choice: \"{{A}}\"\ndoc_to_target: 0\n", ST_FORMAT,
         "no Python list", "test.csv:2"},
        {HEAD "doc_to_text: question\ndoc_to_choice: [a]\ndoc_to_target: 3\n", ST_FORMAT,
         "none of the 1 choices", "test.csv:2"},
        {HEAD FIELDS "num_fewshot: 4\nfewshot_config: {sampler: first_n}\n", ST_USAGE, "split dev",
         "q.yaml"},
        {HEAD FIELDS "fewshot_split: test\n", ST_USAGE, "fewshot_split", "q.yaml:9"},
        {HEAD FIELDS "metric_list: [{metric: f1}]\n", ST_USAGE, "metric_list", "q.yaml:9"},
        {HEAD FIELDS "repeats: 0\n", ST_USAGE, "repeats", "q.yaml:9"},
        {"task: x\noutput_type: loglikelihoods\n", ST_USAGE, "output_type", "q.yaml:2"},
        {"task: x\noutput_type: multiple_choice\n" FIELDS, ST_USAGE, "neither test_split",
         "q.yaml"},
        {"task: x\ntest_split: gone\noutput_type: multiple_choice\n" FIELDS, ST_USAGE,
         "no data for its split gone", "q.yaml"},
        {"include: q.yaml\n", ST_FORMAT, "include each other", "q.yaml"},
        {"- a\n", ST_FORMAT, "no mapping", "q.yaml"},
    };
    assert_int_equal(unlink(path_join(a, dir, "dev.csv")), 0);
    for (int i = 0; i < ARRAY_LEN(cases); i++)
        refuse(a, "q.yaml", cases[i].text, cases[i].st, cases[i].message, cases[i].where);
    put(a, "test.csv", "question,A\nOne?\n");
    refuse(a, "q.yaml", HEAD FIELDS, ST_FORMAT, "1 columns", "test.csv:2");
    arena_free(a);
}

/* A published set: one row, and the second choice as it is scored. */
typedef struct known {
    const char *name, *file, *row, *context, *continuation;
    int gold;
} known;

static const char lambada[] = "{\"text\": \"in my palm is a clear stone , said \\u2019 Gabe\"}\n";

static const known sets[] = {
    {"arc_easy", "arc_easy/test.jsonl",
     "{\"question\": \"Q?\", \"choices\": {\"text\": [\"a\", \"b\"], \"label\": [\"1\", \"2\"]}, "
     "\"answerKey\": \"2\"}",
     "Question: Q?\nAnswer:", " b", 1},
    {"boolq", "boolq/validation.jsonl",
     "{\"passage\": \"P.\", \"question\": \"is it\", \"answer\": true}",
     "P.\nQuestion: is it?\nAnswer:", " yes", 1},
    {"ceval-valid_law", "val/law_val.csv", "id,question,A,B,C,D,answer\n0, Q ,a,b,c,d,C\n",
     "以下是中国关于法学的单项选择题，请选出其中的正确答案。\n\n"
     "Q\nA. a\nB. b\nC. c\nD. d\n答案：",
     " B", 2},
    {"cmmlu_professional_law", "test/professional_law.csv",
     ",Question,A,B,C,D,Answer\n0,Q,a,b,c,d,D\n",
     "以下是关于专业法学的单项选择题，请直接给出正确答案的选项。\n\n"
     "Q\nA. a\nB. b\nC. c\nD. d\n答案：",
     " B", 3},
    {"commonsense_qa", "commonsense_qa/validation.jsonl",
     "{\"question\": \"Q? \", \"choices\": {\"text\": [\"a\", \"b\", \"c\", \"d\", \"e\"]}, "
     "\"answerKey\": \"E\"}",
     "Question: Q?\nA. a\nB. b\nC. c\nD. d\nE. e\nAnswer:", " B", 4},
    {"global_mmlu_sw", "sw/test.jsonl",
     "{\"question\": \"Q\", \"option_a\": \"a\", \"option_b\": \"b\", \"option_c\": \"c\", "
     "\"option_d\": \"d\", \"answer\": \"A\"}",
     "Q\nA. a\nB. b\nC. c\nD. d\nAnswer:", " B", 0},
    {"hellaswag", "hellaswag/validation.jsonl",
     "{\"activity_label\": \"Baking\", \"ctx_a\": \"A cook [header] stands [title] Here.\", "
     "\"ctx_b\": \"the cook\", "
     "\"endings\": [\"eats.\", \" bakes [step] a  cake [now.\"], \"label\": \"1\"}",
     "Baking: A cook stands. Here. The cook", " bakes a cake [now.", 1},
    {"mmlu_high_school_law", "test/high_school_law_test.csv", "\"Q, or?\",a,b,c,d,B\n",
     "The following are multiple choice questions (with answers) about high school law.\n\n"
     "Q, or?\nA. a\nB. b\nC. c\nD. d\nAnswer:",
     " B", 1},
    {"openbookqa", "openbookqa/test.jsonl",
     "{\"question_stem\": \"Q is\", \"choices\": {\"text\": [\"a\", \"b\"], \"label\": [\"A\", "
     "\"B\"]}, \"answerKey\": \" A\"}",
     "Q is", " b", 0},
    {"piqa", "piqa/validation.jsonl",
     "{\"goal\": \"G\", \"sol1\": \"a\", \"sol2\": \"it's b\", \"label\": 0}",
     "Question: G\nAnswer:", " it's b", 0},
    {"winogrande", "winogrande/validation.jsonl",
     "{\"sentence\": \"The _ is red. \", \"option1\": \"cup\", \"option2\": \"jug\", \"answer\": "
     "\"2\"}",
     "The jug", " is red.", 1},
};

/* Files other than JSONL, by their own path. */
static void test_tables(void **state) {
    (void)state;
    arena *a = arena_new("test");
    err e = {0};
    eval_task t;
    eval_source from = {.n_few = -1, .limit = 5}; /* a later row has no text */
    const char *parquet = TEST_DIR "/golden/parquet/documents.parquet";
    assert_int_equal(eval_task_open(&t, parquet, &from, &e), ST_OK);
    assert_true(t.kind == EVAL_TEXT && t.n > 1 && t.doc[1].line == 2 && t.doc[1].text.len > 0);
    assert_string_equal(t.name, "documents");
    eval_task_close(&t);
    put(a, "asks.csv", "id,prompt,answer\nx,\"1, 1?\",2\ny,2 + 2?,12345678901234569\n");
    assert_int_equal(eval_task_open(&t, path_join(a, dir, "asks.csv"), &from, &e), ST_OK);
    assert_true(t.kind == EVAL_ANSWER && t.n == 2);
    same(t.doc[0].prompt, "1, 1?");
    same(t.doc[1].target[0], "12345678901234569"); /* it is no double */
    eval_task_close(&t);
    const char *other = TEST_DIR "/golden/parquet/delta.parquet";
    assert_int_equal(eval_task_open(&t, other, &from, &e), ST_FORMAT);
    assert_non_null(strstr(e.where, "delta.parquet:1"));
    eval_task_close(&t);
    arena_free(a);
}

static void test_known(void **state) {
    (void)state;
    arena *a = arena_new("test");
    err e = {0};
    eval_task t;
    eval_source from = {.data = dir, .n_few = -1};
    for (int i = 0; i < ARRAY_LEN(sets); i++) {
        const known *k = &sets[i];
        const char *path = path_join(a, dir, k->file);
        assert_int_equal(
            file_make_dirs(arena_strndup(a, path, (size_t)(path_base(path) - path)), &e), ST_OK);
        put(a, k->file, k->row);
        if (eval_task_open(&t, k->name, &from, &e) != ST_OK)
            fail_msg("%s: %s (%s)", k->name, e.message, e.where);
        assert_string_equal(t.name, k->name);
        same(t.doc[0].choice[1].pair.context, k->context);
        same(t.doc[0].choice[1].pair.continuation, k->continuation);
        assert_int_equal(t.doc[0].gold[0], k->gold);
        eval_task_close(&t);
    }
    assert_int_equal(eval_task_open(&t, "cmmlu_law", &from, &e), ST_USAGE); /* no such subject */
    eval_task_close(&t);
    put(a, "winogrande/train.jsonl", /* an example: its right context, and what follows */
        "{\"sentence\": \"The _ is blue. \", \"option1\": \"cup\", \"option2\": \"jug\", "
        "\"answer\": "
        "\"2\"}");
    from.n_few = 1;
    assert_int_equal(eval_task_open(&t, "winogrande", &from, &e), ST_OK);
    same(t.doc[0].choice[0].pair.context, "The jug is blue.\n\nThe cup");
    eval_task_close(&t);
    from.n_few = -1;
    assert_int_equal(file_make_dirs(path_join(a, dir, "gsm8k"), &e), ST_OK);
    const char row[] = "{\"question\": \"Q\", \"answer\": \"so\\n#### 2\"}\n";
    char rows[6 * sizeof row] = "";
    for (int i = 0; i < 6; i++) strcat(rows, row);
    put(a, "gsm8k/train.jsonl", rows);
    put(a, "gsm8k/test.jsonl", row);
    char here[1024];
    assert_true(getcwd(here, sizeof here) && chdir(dir) == 0); /* a folder of the set's name */
    assert_int_equal(eval_task_open(&t, "gsm8k", &from, &e), ST_OK);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(t.n_filters, 2);
    assert_int_equal(strncmp(t.doc[0].prompt.s, "Question: Q\nAnswer: so\n#### 2\n\nQuestion", 39),
                     0);
    eval_task_close(&t);
    assert_int_equal(file_make_dirs(path_join(a, dir, "lambada_openai"), &e), ST_OK);
    put(a, "lambada_openai/test.jsonl", lambada);
    assert_int_equal(eval_task_open(&t, "lambada_openai", &from, &e), ST_OK);
    assert_int_equal(t.kind, EVAL_LIKELIHOOD);
    assert_int_equal(t.metrics, 1u << METRIC_ACC | 1u << METRIC_PERPLEXITY);
    same(t.doc[0].choice->pair.context, "in my palm is a clear stone , said \u2019");
    same(t.doc[0].choice->pair.continuation, " Gabe");
    eval_task_close(&t);
    from.data = NULL;
    assert_int_equal(eval_task_open(&t, "piqa", &from, &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "--data"));
    eval_task_close(&t);
    from.data = "/nonexistent";
    assert_int_equal(eval_task_open(&t, "piqa", &from, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "no data for its split validation"));
    eval_task_close(&t);
    assert_int_equal(eval_task_open(&t, "mmlu_", &from, &e), ST_USAGE);
    eval_task_close(&t);
    arena_free(a);
}

/* The same sets from the Parquet files of the hub, in its layouts. */
static void test_parquet(void **state) {
    (void)state;
    static const struct {
        const char *name, *context, *continuation;
        int n, gold; /* documents; of the last one */
    } hub[] = {
        {"mmlu_astronomy",
         "The following are multiple choice questions (with answers) about astronomy.\n\n"
         "Dev?\nA. a\nB. b\nC. c\nD. d\nAnswer: C\n\nThird?\nA. a\nB. b\nC. c\nD. d\nAnswer:",
         " B", 3, 1},
        {"arc_easy", "Question: Q?\nAnswer:", " b", 1, 1},
        {"boolq", "P.\nQuestion: is it?\nAnswer:", " yes", 1, 1},
        {"piqa", "Question: G\nAnswer:", " it's b", 1, 0},
    };
    err e = {0};
    for (int i = 0; i < ARRAY_LEN(hub); i++) {
        eval_task t;
        eval_source from = {.data = TEST_DIR "/golden/eval", .n_few = i == 0};
        if (eval_task_open(&t, hub[i].name, &from, &e) != ST_OK)
            fail_msg("%s: %s (%s)", hub[i].name, e.message, e.where);
        assert_int_equal(t.n, hub[i].n);
        const eval_doc *d = &t.doc[t.n - 1];
        same(d->choice[1].pair.context, hub[i].context);
        same(d->choice[1].pair.continuation, hub[i].continuation);
        assert_int_equal(d->gold[0], hub[i].gold);
        eval_task_close(&t);
    }
}

#define HUB(part) "dataset_kwargs: {data_files: {test: " TEST_DIR "/golden/eval/" part "}}\n"

/* What a pattern gives, and what is wrong with files, by file and row. */
static void test_parquet_named(void **state) {
    (void)state;
    arena *a = arena_new("test");
    eval_task t;
    const char fields[] = "test_split: test\noutput_type: generate_until\n"
                          "doc_to_text: question\ndoc_to_target: question\n";
    open_task(&t, a, "p.yaml", arena_printf(a, "%s%s", fields, HUB("astronomy/test-*.parquet")), 0);
    assert_int_equal(t.n, 3);
    same(t.doc[2].prompt, "Third?");
    assert_non_null(strstr(t.doc[2].file, "test-00001-of-00002.parquet"));
    assert_int_equal(t.doc[1].line, 2);
    eval_task_close(&t);
    refuse(a, "p.yaml", arena_printf(a, "%s%s", fields, HUB("latin1/*.parquet")), ST_FORMAT,
           "row 2 of", "test-00000-of-00001.parquet:2");
    refuse(a, "p.yaml", arena_printf(a, "%s%s", fields, HUB("shards/*")), ST_FORMAT,
           "only 1 of the 2 shards", "test-00001-of-00002.parquet");
    refuse(a, "p.yaml", arena_printf(a, "%s%s", fields, HUB("gone/*.parquet")), ST_USAGE,
           "not there", "p.yaml:5");
    put(a, "broken.parquet", "PAR1");
    refuse(a, "p.yaml",
           arena_printf(a, "%sdataset_kwargs: {data_files: {test: broken.parquet}}\n", fields),
           ST_FORMAT, "Parquet", "broken.parquet");
    arena_free(a);
}

static int begin(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    err e = {0};
    return (int)file_remove_tree(dir, &e);
}

#define EXAMPLES                                                                                   \
    "output_type: generate_until\nnum_fewshot: 2\ntarget_delimiter: \"\"\n"                        \
    "fewshot_delimiter: \" \"\ndoc_to_text: q\ndoc_to_target: a\n"

static void put_questions(arena *a, const char *file, const int *number, int n) {
    strbuf rows = {0};
    for (int i = 0; i < n; i++)
        strbuf_printf(&rows, "{\"q\": \"q%d\", \"a\": \"a%d\"}\n", number[i], number[i]);
    put(a, file, strbuf_cstr(&rows));
    strbuf_free(&rows);
}

/* The examples that the sampler of lm-evaluation-harness 0.4.13 gives: it draws one more and leaves out the
 * document also where the task says neither test_split nor fewshot_split; and draws again where the
 * document stands there several times. */
static void test_examples(void **state) {
    (void)state;
    arena *a = arena_new("test");
    eval_task t;
    int number[30], same_often[14] = {0};
    for (int i = 0; i < 30; i++) number[i] = i;
    same_often[12] = 1, same_often[13] = 2;
    put_questions(a, "train.jsonl", number, 30);
    put_questions(a, "valid.jsonl", (int[]){40, 41, 42, 43}, 4);
    put_questions(a, "often.jsonl", same_often, 14);
    static const char *const want[] = {"q24a24 q14a14 q40", "q0a0 q2a2 q41", "q25a25 q18a18 q42",
                                       "q21a21 q22a22 q43"};
    open_task(&t, a, "few.yaml", "training_split: train\nvalidation_split: valid\n" EXAMPLES, 0);
    for (int i = 0; i < t.n; i++) same(t.doc[i].prompt, want[i]);
    eval_task_close(&t);
    open_task(&t, a, "few.yaml", "test_split: often\nfewshot_split: often\n" EXAMPLES, 0);
    same(t.doc[2].prompt, "q1a1 q2a2 q0");
    same(t.doc[3].prompt, "q2a2 q1a1 q0");
    same(t.doc[13].prompt, "q0a0 q0a0 q2");
    eval_task_close(&t);
    put(a, "none.jsonl", "{\"q\": \"q\", \"a\": \"\"}\n{\"q\": \"r\", \"a\": [\"\"]}\n");
    open_task(
        &t, a, "few.yaml",
        "test_split: valid\nfewshot_split: none\nfewshot_config: {sampler: first_n}\n" EXAMPLES, 1);
    same(t.doc[0].prompt, "qr q40"); /* no answer has no delimiter; an empty one of several has */
    eval_task_close(&t);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_olmes),        cmocka_unit_test(test_olmes_refused),
        cmocka_unit_test(test_jsonl),        cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_yaml_refused), cmocka_unit_test(test_known),
        cmocka_unit_test(test_tables),       cmocka_unit_test(test_examples),
        cmocka_unit_test(test_parquet),      cmocka_unit_test(test_parquet_named)};
    return cmocka_run_group_tests(tests, begin, end);
}
