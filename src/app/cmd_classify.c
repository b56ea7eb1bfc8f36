/* athanor classify: what a head of labels says of texts, and, where their labels are known, how often it is right. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "data/build/labels.h"
#include "data/text/reader.h"
#include "infer/labels.h"
#include "interchange/open_model.h"

typedef struct text {
    tok_ids ids;
    bool labelled;
    float label;
    uint32_t line;
} text;

typedef struct work {
    open_model model;
    text_labels labels; /* that texts may have */
    text *item;
    int n, cap;
    int cut;       /* texts that were longer than the model's positions */
    int64_t empty; /* records without a text, which the reader passes over */
} work;

/* ---- texts ---- */

static status add_text(work *w, const char *s, size_t len, err *e) {
    VEC_PUSH(w->item, w->n, w->cap, (text){.line = 1});
    if (w->model.tok)
        return tok_encode(w->model.tok, s, len, TOK_ADD_SPECIAL, &w->item[w->n - 1].ids, e);
    err_set(e, ST_USAGE, "the model has no tokenizer.json, so text cannot be encoded");
    return err_hint(e, "give the text as --ids 1,2,3");
}

static status add_document(work *w, const document *d, err *e) {
    TRY(add_text(w, d->text, d->len, e));
    text *t = &w->item[w->n - 1];
    t->line = d->line;
    t->labelled = d->label && *d->label; /* an empty cell of a table is no label */
    if (!t->labelled) return ST_OK;
    status st = text_label_read(&w->labels, d->label, &t->label, e);
    return st == ST_OK ? ST_OK : err_context(e, "%s:%u", d->source, (unsigned)d->line);
}

static status check_labelled(const work *w, const char *path, const char *label, err *e) {
    for (int i = 0; i < w->n; i++)
        if (w->item[i].labelled) return ST_OK;
    err_at(e, ST_USAGE, "--label", "no record of %s has a label in the field %s", path, label);
    return err_hint(e, "name the field that has it, or leave --label out");
}

static status read_file(work *w, const cli_args *args, const char *path, err *e) {
    const char *field = cli_value(args, "field"), *label = cli_value(args, "label");
    bool joined = field && strchr(field, '{');
    reader_options opt = {.field = joined ? NULL : field,
                          .template = joined ? field : NULL,
                          .label = label ? label : "label",
                          .label_may_lack = !label,
                          .max_bad = 1};
    reader *r;
    document d;
    bool more = true;
    TRY(reader_open(&r, &path, 1, &opt, e));
    status st = ST_OK;
    while (st == ST_OK && (st = reader_next(r, &d, &more, e)) == ST_OK && more)
        st = add_document(w, &d, e);
    const reader_report *p = reader_get_report(r);
    w->empty = (int64_t)(p->records - p->documents - p->bad);
    reader_warn_of_bad_records(p);
    reader_close(r);
    return st == ST_OK && label ? check_labelled(w, path, label, e) : st;
}

static status read_texts(work *w, const cli_args *args, err *e) {
    const char *one = cli_value(args, "text"), *ids = cli_value(args, "ids");
    int ways = (one != NULL) + (ids != NULL) + (args->n_inputs > 1);
    if (ways != 1) {
        err_set(e, ST_USAGE, "classify takes one of a FILE of texts, --text TEXT and --ids 1,2,3");
        return err_hint(e, "for example: athanor classify %s --text \"Call now\"", args->inputs[0]);
    }
    if (args->n_inputs > 1) return read_file(w, args, args->inputs[1], e);
    if (one) return add_text(w, one, strlen(one), e);
    VEC_PUSH(w->item, w->n, w->cap, (text){.line = 1});
    return cli_parse_ids(ids, &w->item[0].ids, e);
}

/* Texts are cut where the model's positions end. *longest: of them. */
static status check_texts(work *w, int64_t *longest, err *e) {
    int64_t most = model_max_tokens(&w->model.config);
    *longest = 1;
    for (int i = 0; i < w->n; i++) {
        tok_ids *t = &w->item[i].ids;
        if (t->n == 0)
            return err_set(e, ST_USAGE, "text %u has no tokens", (unsigned)w->item[i].line);
        for (int64_t k = 0; k < t->n; k++)
            if (t->id[k] < 0 || t->id[k] >= w->model.config.vocab_size)
                return err_set(e, ST_USAGE, "token id %d is outside the vocabulary of %ld",
                               t->id[k], (long)w->model.config.vocab_size);
        w->cut += t->n > most;
        if (t->n > most) t->n = most;
        if (t->n > *longest) *longest = t->n;
    }
    if (w->cut)
        log_warn("%d of %d texts are longer than the model's %ld positions, and are cut", w->cut,
                 w->n, (long)most);
    if (w->empty)
        log_warn("%ld record%s without a text %s left out", (long)w->empty, text_s(w->empty),
                 w->empty == 1 ? "is" : "are");
    return ST_OK;
}

/* ---- what is said ---- */

/* The share of label k: softmax of classes one of which is right, else each by itself. */
static double share(const model_config *mc, const float *score, int k) {
    if (model_problem(mc) == PROBLEM_MULTI_LABEL) return 1 / (1 + exp(-(double)score[k]));
    double most = (double)score[label_best(score, (int)mc->num_labels)], sum = 0;
    for (int i = 0; i < mc->num_labels; i++) sum += exp((double)score[i] - most);
    return exp((double)score[k] - most) / sum;
}

static json_t *name_of(const model_config *mc, int k) {
    return mc->labels ? json_cstr(mc->labels[k]) : json_sprintf("LABEL_%d", k);
}

static json_t *result_json(const model_config *mc, const text *t, const float *score) {
    json_t *o = json_pack("{s:i}", "line", (int)t->line), *scores = json_array(),
           *shares = json_array();
    int best = label_best(score, (int)mc->num_labels);
    for (int k = 0; k < mc->num_labels; k++) {
        json_array_append_new(scores, json_f32((double)score[k]));
        json_array_append_new(shares, json_f32(share(mc, score, k)));
    }
    if (model_problem(mc) == PROBLEM_REGRESSION)
        json_decref(shares);
    else {
        json_object_set_new(o, "label", name_of(mc, best));
        json_object_set_new(o, "class", json_integer(best));
        json_object_set_new(o, "probs", shares);
    }
    json_object_set_new(o, "scores", scores);
    if (t->labelled) json_object_set_new(o, "gold", json_f32((double)t->label));
    return o;
}

static void print_result(const model_config *mc, const text *t, const float *score) {
    printf("%u\t", (unsigned)t->line);
    if (model_problem(mc) == PROBLEM_REGRESSION) {
        for (int k = 0; k < mc->num_labels; k++) printf("%s%.6g", k ? " " : "", (double)score[k]);
    } else {
        int best = label_best(score, (int)mc->num_labels);
        json_t *name = name_of(mc, best);
        cli_print_name(json_string_value(name), 0);
        printf("\t%.4f", share(mc, score, best));
        json_decref(name);
    }
    printf("\n");
}

static void print_summary(const label_tally *t, int texts, bool json) {
    json_t *o =
        json_pack("{s:i,s:I}", "texts", texts, "labelled", (json_int_t)label_tally_texts(t));
    if (label_tally_texts(t) > 0) json_object_update_new(o, label_tally_json(t));
    if (json) {
        cli_print_json(o);
        return;
    }
    if (label_tally_texts(t) > 0 && t->numbers)
        printf("%lld labelled text%s: mean squared error %.6g, mean absolute error %.6g\n",
               (long long)label_tally_texts(t), text_s(label_tally_texts(t)), label_tally_mse(t),
               label_tally_mae(t));
    else if (label_tally_texts(t) > 0)
        printf("%lld labelled text%s: accuracy %.4f, F1 %.4f\n", (long long)label_tally_texts(t),
               text_s(label_tally_texts(t)), label_tally_accuracy(t), label_tally_f1(t));
    json_decref(o);
}

static status check_scores(const model_config *mc, const text *t, const float *score, err *e) {
    for (int k = 0; k < mc->num_labels; k++) {
        if (isfinite(score[k])) continue;
        err_set(e, ST_NONFINITE, "the scores of text %u are not finite", (unsigned)t->line);
        return err_hint(e, "the weights may be damaged, or have diverged in training");
    }
    return ST_OK;
}

static status classify(work *w, bool json, err *e) {
    const model_config *mc = &w->model.config;
    label_tally t = label_tally_new(w->model.a, mc);
    bool known = model_problem(mc) != PROBLEM_MULTI_LABEL;
    for (int i = 0; i < w->n; i++) {
        const text *x = &w->item[i];
        const float *score = open_model_scores(&w->model, x->ids.id, (int)x->ids.n);
        TRY(check_scores(mc, x, score, e));
        if (x->labelled && known) label_tally_add(&t, score, x->label);
        if (json)
            cli_print_json(result_json(mc, x, score));
        else
            print_result(mc, x, score);
    }
    if (w->n > 1 || label_tally_texts(&t) > 0) print_summary(&t, w->n, json);
    return ST_OK;
}

/* ---- the command ---- */

static status check_head(const work *w, err *e) {
    if (w->model.config.num_labels) return ST_OK;
    err_set(e, ST_USAGE, "the model is a language model, and has no head of labels");
    return err_hint(e,
                    "train.objective=classify trains one, with model.from and model.labels=[A,B]");
}

static status run_work(work *w, const cli_args *args, err *e) {
    const model_config *mc = &w->model.config;
    int64_t longest;
    int threads;
    TRY(cli_threads(args, &threads, e));
    TRY(open_model_read_on(&w->model, args->inputs[0], NULL, cli_value(args, "device"), threads,
                           e));
    TRY(check_head(w, e));
    TRY(open_model_set_precision(&w->model, cli_value(args, "precision"), e));
    bool numbers = model_problem(mc) == PROBLEM_REGRESSION;
    w->labels = (text_labels){.are_wanted = true,
                              .classes = numbers ? 0 : mc->num_labels,
                              .names = numbers ? NULL : mc->labels};
    TRY(read_texts(w, args, e));
    TRY(check_texts(w, &longest, e));
    TRY(open_model_load(&w->model, 0, (int)longest, e));
    return classify(w, args->json, e);
}

static status run(const cli_args *args, err *e) {
    work w = {0};
    status st = run_work(&w, args, e);
    for (int i = 0; i < w.n; i++) tok_ids_free(&w.item[i].ids);
    free(w.item);
    open_model_close(&w.model);
    return st;
}

static const cli_option options[] = {
    {"text", "TEXT", "one text"},
    {"ids", "1,2,3", "one text as token ids"},
    {"field", "NAME",
     "of FILE: the field with the text, or a template such as '{title}: {text}' (text)"},
    {"label", "NAME", "of FILE: the field with its label, if it has one (label)"},
    {"precision", "P", "auto, fp32, bf16 or fp16"},
    CLI_OPTION_DEVICE,
    CLI_OPTION_THREADS,
    {0}};
static const cli_rule rules[] = {{"text", CLI_EXCLUDES, "ids", NULL},
                                 {"field", CLI_EXCLUDES, "text|ids", NULL},
                                 {"label", CLI_EXCLUDES, "text|ids", NULL},
                                 {0}};

const cli_command command_classify = {
    .name = "classify",
    .summary = "says the labels of texts, by a model with a head of labels",
    .usage = "MODEL [FILE] [--text TEXT | --ids 1,2,3]",
    .run = run,
    .options = options,
    .rules = rules,
    .min_inputs = 1,
    .max_inputs = 2,
    .about = "FILE: .jsonl, .csv, .tsv or .parquet, a text a record. Where the records have "
             "labels, the last line says how\n"
             "often the model is right: accuracy and F1 (of two classes that of the second, of "
             "more their mean), or the\n"
             "squared and absolute error of numbers.\n"};
