/* The recipe `miniature`: a small model through its life. Each stage is a function below; what it keeps in
 * recipe.json is what the report shows.
 *
 *   text, tokenizer, data, tasks    from a text to shards, questions, conversations, pairs
 *   pretrain, evaluate              cloze before (a model without any training) and after
 *   teach, prefer, evaluate-again   conversations, pairs; cloze, and how answers to held-out questions end
 *   chat, export                    a scripted conversation; folder and GGUF file */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/recipe/recipe.h"
#include "base/file.h"
#include "base/json.h"
#include "run/metrics.h"

static const char SPECIAL_TOKENS[] = "<|endoftext|>,<|im_start|>,<|im_end|>";

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- from text to shards ---- */

/* Larger texts can teach more tokens. */
static status make_tokenizer(recipe *r, json_t *result, err *e) {
    json_t *last = NULL;
    int64_t bytes = file_size(recipe_path(r, "text/train.txt"));
    const char *size = bytes < 600000 ? "768" : bytes < 3000000 ? "1024" : "2048";
    TRY(recipe_command(r,
                       ARGS("tok", "train", recipe_path(r, "text/train.txt"), "-o",
                            recipe_path(r, "tok.json"), "--vocab-size", size, "--special",
                            SPECIAL_TOKENS),
                       &last, e));
    json_object_set(result, "vocab_size", json_object_get(last, "vocab_size"));
    json_decref(last);
    return ST_OK;
}

static status build_shards(recipe *r, const char *text, const char *shards, const char *key,
                           json_t *result, err *e) {
    json_t *last = NULL;
    TRY(recipe_command(r,
                       ARGS("data", "build", recipe_path(r, text), "-o", recipe_path(r, shards),
                            arena_printf(r->a, "tokenizer=%s", recipe_path(r, "tok.json"))),
                       &last, e));
    json_object_set(result, key, json_object_get(last, "tokens"));
    json_decref(last);
    return ST_OK;
}

static status make_data(recipe *r, json_t *result, err *e) {
    TRY(build_shards(r, "text/train.txt", "shards/train", "train_tokens", result, e));
    return build_shards(r, "text/heldout.txt", "shards/valid", "heldout_tokens", result, e);
}

/* ---- training ---- */

typedef struct training {
    json_t *start, *valid, *end;
    double margin, accuracy; /* of the last validation; NaN: it has none */
} training;

static void keep(json_t **place, const json_t *line) {
    json_decref(*place);
    *place = json_deep_copy(line);
}

static void hear_training(void *ctx, const json_t *line) {
    training *t = ctx;
    if (metrics_is(line, "start")) keep(&t->start, line);
    if (metrics_is(line, "valid")) keep(&t->valid, line);
    if (metrics_is(line, "end")) keep(&t->end, line);
}

/* The last validation of the whole run, in case that this start had none. */
static status look_for_valid(void *ctx, const json_t *event, err *e) {
    training *t = ctx;
    (void)e;
    if (metrics_is(event, "valid")) keep(&t->valid, event);
    if (metrics_is(event, "start") && !t->start) keep(&t->start, event);
    return ST_OK;
}

static status train(recipe *r, const char *name, json_t *result, err *e) {
    training t = {0};
    const char *const *args = recipe_train_args(r, name, ARGS(NULL));
    status st = recipe_command_heard(r, args, hear_training, &t, NULL, e);
    if (st == ST_OK && !t.valid)
        st = metrics_read(recipe_path(r, name), METRICS_LAST_STEP, look_for_valid, &t, e);
    static const char *const of_valid[] = {"val_loss", "val_bpb",       "margin",
                                           "accuracy", "chosen_reward", "rejected_reward"};
    if (st == ST_OK) {
        json_object_set(result, "params", json_object_get(t.start, "params"));
        json_object_set(result, "steps", json_object_get(t.end, "steps"));
        json_object_set(result, "peak_rss_bytes", json_object_get(t.end, "peak_rss_bytes"));
        for (int i = 0; i < ARRAY_LEN(of_valid); i++)
            if (json_object_get(t.valid, of_valid[i]))
                json_object_set(result, of_valid[i], json_object_get(t.valid, of_valid[i]));
    }
    json_decref(t.start);
    json_decref(t.valid);
    json_decref(t.end);
    return st;
}

static status pretrain(recipe *r, json_t *result, err *e) {
    TRY(recipe_write_pretrain(r, e));
    return train(r, "pretrain", result, e);
}

static status teach(recipe *r, json_t *result, err *e) {
    TRY(recipe_write_teach(r, e));
    return train(r, "teach", result, e);
}

static status prefer(recipe *r, json_t *result, err *e) {
    TRY(recipe_write_prefer(r, e));
    return train(r, "prefer", result, e);
}

/* ---- evaluating ---- */

/* The share of right answers to the cloze, with its standard error. With --samples, a killed evaluation
 * goes on. */
static status score_cloze(recipe *r, const char *model, const char *name, json_t *result, err *e) {
    json_t *last = NULL;
    TRY(file_make_dirs(recipe_path(r, "eval"), e));
    const char *samples = recipe_path(r, arena_printf(r->a, "eval/%s-cloze.jsonl", name));
    TRY(recipe_command(r,
                       ARGS("eval", recipe_path(r, model), "--tasks",
                            recipe_path(r, "tasks/cloze.yaml"), "--samples", samples),
                       &last, e));
    const json_t *scores = json_object_get(json_object_get(last, "results"), "cloze");
    json_object_set_new(result, name,
                        json_pack("{s:O?, s:O?}", "acc", json_object_get(scores, "acc,none"),
                                  "stderr", json_object_get(scores, "acc_stderr,none")));
    json_decref(last);
    return ST_OK;
}

/* A model of the same shape and seed whose one step changes nothing: its learning rate is 0. */
static status make_untrained(recipe *r, err *e) {
    const char *run = arena_printf(r->a, "run=%s", recipe_path(r, "untrained"));
    const char *const *still =
        ARGS(run, "train.steps=1", "optim.lr=0", "optim.schedule.min_lr=0", "data.valid=null");
    return recipe_command(r, recipe_train_args(r, "pretrain", still), NULL, e);
}

static status evaluate(recipe *r, json_t *result, err *e) {
    TRY(make_untrained(r, e));
    TRY(score_cloze(r, "untrained", "untrained", result, e));
    return score_cloze(r, "pretrain", "pretrained", result, e);
}

typedef struct endings {
    int64_t n, ended;
} endings;

static void hear_answer(void *ctx, const json_t *line) {
    endings *s = ctx;
    if (!json_object_get(line, "finish")) return;
    s->n++;
    s->ended += strcmp(metrics_text(line, "finish"), "eos") == 0;
}

/* How many answers to held-out questions end by themselves, taking the most likely token. */
static status count_endings(recipe *r, const char *model, json_t *result, err *e) {
    endings s = {0};
    TRY(recipe_command_heard(r,
                             ARGS("generate", recipe_path(r, model), "--batch",
                                  recipe_path(r, "tasks/prompts.jsonl"), "--max-new", "64",
                                  "--temperature", "0"),
                             hear_answer, &s, NULL, e));
    json_object_set_new(
        result, model,
        json_pack("{s:I, s:I}", "answers", (json_int_t)s.n, "ended", (json_int_t)s.ended));
    return ST_OK;
}

static status evaluate_again(recipe *r, json_t *result, err *e) {
    TRY(score_cloze(r, "teach", "taught", result, e));
    TRY(score_cloze(r, "prefer", "preferring", result, e));
    json_t *ends = json_object();
    json_object_set_new(result, "endings", ends);
    TRY(count_endings(r, "pretrain", ends, e));
    TRY(count_endings(r, "teach", ends, e));
    return count_endings(r, "prefer", ends, e);
}

/* ---- talking, giving away ---- */

/* What was asked, what the model said, what the text has. */
static json_t *turn_json(const json_t *messages, const json_t *answer) {
    return json_pack("{s:s, s:s, s:s, s:s}", "user",
                     metrics_text(json_array_get(messages, 0), "content"), "assistant",
                     metrics_text(answer, "content"), "text",
                     metrics_text(json_array_get(messages, 1), "content"), "finish",
                     metrics_text(answer, "finish"));
}

/* The first questions of the held-out conversations. */
static status chat(recipe *r, json_t *result, err *e) {
    enum { TURNS = 5 };
    json_t *list = json_array(), *o, *last;
    char *text;
    size_t len;
    json_object_set_new(result, "turns", list);
    TRY(file_read_part(recipe_path(r, "tasks/chats-heldout.jsonl"), FILE_PART_MAX_BYTES, &text,
                       &len, e));
    status st = ST_OK;
    const char *p = text;
    for (int i = 0; i < TURNS && *p && st == ST_OK; i++) {
        size_t n = strcspn(p, "\n");
        o = json_loadb(p, n, 0, NULL);
        p += n + (p[n] == '\n');
        const json_t *messages = json_object_get(o, "messages");
        const char *asked = metrics_text(json_array_get(messages, 0), "content");
        last = NULL;
        st = recipe_command(r,
                            ARGS("chat", recipe_path(r, "prefer"), "--prompt", asked,
                                 "--temperature", "0", "--max-new", "64"),
                            &last, e);
        if (st == ST_OK) json_array_append_new(list, turn_json(messages, last));
        json_decref(last);
        json_decref(o);
    }
    free(text);
    return st;
}

static status export_one(recipe *r, const char *to, const char *name, json_t *result, err *e) {
    json_t *last = NULL;
    TRY(recipe_command(
        r,
        ARGS("export", recipe_path(r, "prefer"), "-o", recipe_path(r, name), "--to", to, "--force"),
        &last, e));
    json_object_set_new(
        result, to,
        json_pack("{s:o, s:O?, s:O?, s:O?}", "path", json_cstr(recipe_path(r, name)), "bytes",
                  json_object_get(last, "bytes"), "verified", json_object_get(last, "verified"),
                  "max_abs_logit_diff", json_object_get(last, "max_abs_logit_diff")));
    json_decref(last);
    return ST_OK;
}

static status export_all(recipe *r, json_t *result, err *e) {
    TRY(export_one(r, "hf", "export/hf", result, e));
    return export_one(r, "gguf", "export/model.gguf", result, e);
}

/* ---- what is promised ---- */

static double number_at(const json_t *o, const char *a, const char *b) {
    return metrics_num(json_object_get(o, a), b);
}

static void promise(json_t *list, const char *name, bool ok, const char *detail) {
    json_array_append_new(list,
                          json_pack("{s:s, s:b, s:s}", "name", name, "ok", ok, "detail", detail));
}

static const double CHANCE = 0.25;

static void promise_cloze(const recipe *r, json_t *list) {
    const json_t *v = recipe_result(r, "evaluate");
    if (!v) return;
    double before = number_at(v, "untrained", "acc"), error = number_at(v, "untrained", "stderr");
    double after = number_at(v, "pretrained", "acc"),
           low = after - 1.96 * number_at(v, "pretrained", "stderr");
    promise(list, "cloze: at chance without training",
            before - 1.96 * error <= CHANCE && before + 1.96 * error >= CHANCE,
            arena_printf(r->a, "%.1f %% +- %.1f of 25 %%", 100 * before, 196 * error));
    promise(list, "cloze: above chance after pretraining", low > CHANCE,
            arena_printf(r->a, "%.1f %%, lower end of the 95 %% interval %.1f %%", 100 * after,
                         100 * low));
}

static void promise_endings(const recipe *r, json_t *list) {
    const json_t *v = json_object_get(recipe_result(r, "evaluate-again"), "endings");
    if (!v) return;
    double ended = number_at(v, "teach", "ended"), n = number_at(v, "teach", "answers");
    promise(list, "answers end by themselves after teaching", ended >= 0.95 * n,
            arena_printf(r->a, "%.0f of %.0f (before: %.0f)", ended, n,
                         number_at(v, "pretrain", "ended")));
}

static void promise_margin(const recipe *r, json_t *list) {
    const json_t *v = recipe_result(r, "prefer");
    if (!v) return;
    double margin = metrics_num(v, "margin");
    promise(list, "preference margin on held-out pairs is positive", margin > 0,
            arena_printf(r->a, "%.3f, the preferred answer ahead in %.0f %%", margin,
                         100 * metrics_num(v, "accuracy")));
}

json_t *recipe_promises(const recipe *r) {
    json_t *list = json_array();
    promise_cloze(r, list);
    promise_endings(r, list);
    promise_margin(r, list);
    return list;
}

/* ---- the stages ---- */

#define MADE(...) ((const char *const[]){__VA_ARGS__, NULL})

static const recipe_stage stages[] = {
    {"text", "what is learned, what is held out", MADE("text"), recipe_split_text, false},
    {"tokenizer", "byte-level BPE", MADE("tok.json"), make_tokenizer, false},
    {"data", "token shards", MADE("shards"), make_data, false},
    {"tasks", "questions, conversations, pairs", MADE("tasks"), recipe_make_tasks, false},
    {"pretrain", "the text", MADE("pretrain"), pretrain, true},
    {"evaluate", "cloze, before and after", MADE("untrained", "eval"), evaluate, false},
    {"teach", "conversations (sft)", MADE("teach"), teach, true},
    {"prefer", "pairs of answers (dpo)", MADE("prefer"), prefer, true},
    {"evaluate-again", "cloze, and how answers end",
     MADE("eval/taught-cloze.jsonl", "eval/preferring-cloze.jsonl"), evaluate_again, false},
    {"chat", "a scripted conversation", MADE(NULL), chat, false},
    {"export", "Hugging Face folder, GGUF file", MADE("export"), export_all, false},
};

const recipe_class recipe_miniature = {
    .name = "miniature",
    .summary = "a small model through its life, in minutes on two cores",
    .stages = stages,
    .n_stages = ARRAY_LEN(stages)};
