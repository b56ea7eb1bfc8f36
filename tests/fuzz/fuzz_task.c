/* libFuzzer target: a task from outside bytes. The input is
 *   one letter (y: a task YAML, j: JSONL, o: OLMES requests, c, t: CSV, TSV of a fixed YAML) | file
 *   | NUL | its data
 * Files are written to a folder of their own. What opens has documents, whose answers can be looked
 * for, and turns of dialogues, which can be judged: the data, made UTF-8 as what a model writes is,
 * are also what it said. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "eval/answer.h"
#include "eval/dialogue.h"
#include "eval/ifeval.h"
#include "eval/metric.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/athanor-fuzz-task-XXXXXX";

static void remove_folder(void) {
    (void)!file_remove_tree(folder, NULL);
}

static const char *put(arena *a, const char *name, const void *data, size_t n) {
    const char *path = path_join(a, folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f, "%s cannot be written", path);
    fwrite(data, 1, n, f);
    fclose(f);
    return path;
}

static const char table_task[] =
    "task: t\ntest_split: test\noutput_type: multiple_choice\ndoc_to_text: \"{{a}}\"\n"
    "doc_to_choice: [x, y]\ndoc_to_target: b\n";

static const char *write_files(arena *a, uint8_t kind, const char *text, size_t n, const char *rest,
                               size_t n_rest) {
    (void)!unlink(path_join(a, folder, "test.csv"));
    (void)!unlink(path_join(a, folder, "test.tsv"));
    (void)!unlink(path_join(a, folder, "test.jsonl"));
    switch (kind) {
        case 'j': return put(a, "t.jsonl", text, n);
        case 'o': put(a, "requests.jsonl", text, n); return folder;
        case 'c': put(a, "test.csv", text, n); break;
        case 't': put(a, "test.tsv", text, n); break;
        default: put(a, "test.jsonl", rest, n_rest); return put(a, "t.yaml", text, n);
    }
    return put(a, "t.yaml", table_task, sizeof table_task - 1);
}

static void judge(eval_dialogue *d, eval_text said) {
    for (int i = 0; i < d->n_turns; i++) {
        err e = {0};
        d->turn[i].seen = d->turn[i].said;
        d->turn[i].written = said;
        if (eval_judge(&d->turn[i], &e) != ST_OK) CHECK(e.message[0], "an error without words");
    }
}

static void use(eval_task *t, eval_text said) {
    json_t *result = NULL;
    CHECK(t->n > 0 && t->n_filters > 0 && t->metrics, "a task without something");
    for (int32_t i = 0; i < t->n; i++) {
        eval_doc *d = &t->doc[i];
        err e = {0};
        CHECK(t->kind != EVAL_CHOICES || (d->n_choices > 0 && d->n_gold > 0), "no choices");
        for (int g = 0; g < d->n_gold; g++)
            CHECK(d->gold[g] >= 0 && d->gold[g] < d->n_choices, "gold %d", d->gold[g]);
        if (t->kind == EVAL_DIALOGUE) judge(d->dialogue, said);
        uint32_t strict, loose = 0;
        if (d->ifeval && eval_ifeval_judge(d->ifeval, said, &strict, &loose, &e) == ST_OK)
            CHECK((strict & ~loose) == 0, "strict %x, loose %x", strict, loose);
        if (t->kind != EVAL_ANSWER) continue;
        eval_attempt a = {.written = said};
        if (eval_find_answers(t, d, &a, &e) != ST_OK) return;
        for (int k = 0; k < d->n_targets; k++)
            eval_match_exactly(&t->match, a.answer[0], d->target[k]);
    }
    if (t->kind == EVAL_DIALOGUE) result = eval_result_json(t);
    json_decref(result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool made;
    if (!made) CHECK(mkdtemp(folder) && atexit(remove_folder) == 0, "no folder");
    made = true;
    if (size < 1) return 0;
    const char *text = (const char *)data + 1, *end = memchr(text, 0, size - 1);
    size_t n = end ? (size_t)(end - text) : size - 1, n_rest = end ? size - 2 - n : 0;
    arena *a = arena_new("fuzz");
    err e = {0};
    eval_task t;
    eval_source from = {.limit = 3, .n_few = -1};
    const char *path = write_files(a, data[0], text, n, end ? end + 1 : "", n_rest);
    strbuf said = {0};
    if (n_rest)
        utf8_append(&said, end + 1, n_rest);
    else
        strbuf_puts(&said, "a 12 #### -3,4. b");
    if (eval_task_open(&t, path, &from, &e) == ST_OK)
        use(&t, (eval_text){strbuf_cstr(&said), said.len});
    else
        CHECK(e.message[0], "an error without words");
    strbuf_free(&said);
    eval_task_close(&t);
    arena_free(a);
    return 0;
}
