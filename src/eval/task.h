/* Tasks of evaluation: what a model is asked, and what the right answer is.
 *
 *   task file or folder  --eval_task_open-->          documents of texts
 *                        --eval_encode (encode.h)-->  requests of tokens
 *                        --scorer, writer (run.h)--> log-likelihoods, answers
 *                        --eval_measure (metric.h)--> results
 *
 * There are four kinds of documents, as in lm-evaluation-harness, and dialogues:
 *   choices     some continuations, of which the most likely one is the answer
 *   likelihood  one continuation: how likely it is, and whether each token of it is the most
 *               likely one (LAMBADA)
 *   text        a whole text, of which the log-likelihood is wanted (perplexity, bits per byte)
 *   answer      a prompt, after which the model writes; filters find the answer in what it wrote
 *   dialogue    turns of a user, each of which the model answers; rules judge each answer
 *
 * Sources of tasks (the form is told by what the path names):
 *   olmes.c       a folder with requests.jsonl.gz, as ai2-olmes writes it
 *   task_yaml.c   a task file of lm-evaluation-harness: templates over rows of local data
 *   adapters.c    the name of a published set, whose public files are local data
 *   task_jsonl.c  a JSONL file of documents
 *   dialogue.h    a YAML file of dialogues, and the suite "vibe"
 *
 * All texts live in the task's arena. Outside data: a document that lacks something is ST_FORMAT,
 * with file and line. */
#ifndef EVAL_TASK_H
#define EVAL_TASK_H

#include <jansson.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "infer/sample.h"

typedef struct eval_text {
    const char *s; /* UTF-8, which may have NULs in it; a NUL follows */
    size_t len;
} eval_text;

/* What is to be scored: a continuation after a context. */
typedef struct eval_pair {
    eval_text context, continuation;
    /* results, by run.c */
    double loglik;
    int32_t n_tokens; /* of the continuation */
} eval_pair;

typedef struct eval_choice {
    eval_pair pair;
    eval_pair *alone; /* the continuation after a context that says nothing; NULL: not asked for */
    eval_text label;  /* whose characters and bytes normalise the score */
} eval_choice;

/* One of the answers that are written for a document. */
typedef struct eval_attempt {
    eval_text written;      /* what the model wrote */
    bool ended;             /* by itself, or by one of `until` */
    eval_text *answer;      /* of each filter of the task */
    uint32_t strict, loose; /* bits: which instructions the first answer follows (ifeval.h) */
} eval_attempt;

typedef struct eval_doc {
    const json_t *id; /* a number or a text of the source */
    const char *file; /* where it comes from, for errors and for the viewer */
    int64_t line;     /* from 1; 0: unknown */
    /* choices */
    eval_choice *choice; /* of likelihood the one continuation */
    int n_choices;
    const int32_t *gold; /* the right choices: any of them */
    int n_gold;
    /* likelihood */
    bool greedy; /* the model would write the continuation */
    /* text */
    eval_text text;
    const char *source, *language; /* as the data say; NULL: they do not */
    double loglik;
    int64_t n_tokens;
    const int32_t *token; /* [n_tokens] */
    float *token_nll;     /* [n_tokens] the loss of each, in nats */
    /* answer */
    eval_text prompt;
    eval_text *target; /* right answers: any of them */
    int n_targets;
    eval_text seen;             /* the prompt as the model saw it: within its chat template, say */
    eval_attempt *attempt;      /* [repeats of the task] */
    struct eval_ifeval *ifeval; /* its instructions; NULL: it has none */
    /* dialogue */
    struct eval_dialogue *dialogue; /* dialogue.h */
} eval_doc;

typedef enum eval_kind {
    EVAL_CHOICES,
    EVAL_LIKELIHOOD,
    EVAL_TEXT,
    EVAL_ANSWER,
    EVAL_DIALOGUE
} eval_kind;

/* What is measured. The words are the keys of results, those of lm-evaluation-harness where it has
 * them. */
#define EVAL_METRICS(W)                                                                            \
    W(METRIC_ACC, "acc")                                                                           \
    W(METRIC_ACC_NORM, "acc_norm")                                                                 \
    W(METRIC_ACC_BYTES, "acc_bytes")                                                               \
    W(METRIC_ACC_TOKENS, "acc_tokens")                                                             \
    W(METRIC_ACC_MUTUAL_INFO, "acc_mutual_info")                                                   \
    W(METRIC_PERPLEXITY, "perplexity")                                                             \
    W(METRIC_WORD_PERPLEXITY, "word_perplexity")                                                   \
    W(METRIC_BYTE_PERPLEXITY, "byte_perplexity")                                                   \
    W(METRIC_BITS_PER_BYTE, "bits_per_byte")                                                       \
    W(METRIC_EXACT_MATCH, "exact_match")                                                           \
    W(METRIC_BLEU, "bleu")                                                                         \
    W(METRIC_ROUGE_1, "rouge1")                                                                    \
    W(METRIC_ROUGE_2, "rouge2")                                                                    \
    W(METRIC_ROUGE_L, "rougeL")                                                                    \
    W(METRIC_PASS, "pass")                                                                         \
    W(METRIC_PROMPT_STRICT, "prompt_level_strict_acc")                                             \
    W(METRIC_INST_STRICT, "inst_level_strict_acc")                                                 \
    W(METRIC_PROMPT_LOOSE, "prompt_level_loose_acc")                                               \
    W(METRIC_INST_LOOSE, "inst_level_loose_acc")
typedef enum eval_metric { EVAL_METRICS(LIST_ENUMERATOR) METRIC_COUNT } eval_metric;
extern const char *const eval_metric_names[METRIC_COUNT];
#define EVAL_IFEVAL_METRICS                                                                        \
    (1u << METRIC_PROMPT_STRICT | 1u << METRIC_INST_STRICT | 1u << METRIC_PROMPT_LOOSE |           \
     1u << METRIC_INST_LOOSE)

/* How exact_match compares (the keys of lm-evaluation-harness). */
typedef struct eval_match {
    bool ignore_case, ignore_punctuation, ignore_numbers;
    char **ignore; /* regular expressions whose matches are taken out */
    int n_ignore;
} eval_match;

/* How an answer is found in what a model wrote: steps of a filter, one after the other. */
typedef enum eval_step_kind {
    STEP_TAKE_FIRST, /* as it is: one answer is written for each document */
    STEP_REGEX,
    STEP_STRIP, /* white space at both ends goes */
    STEP_LOWERCASE,
    STEP_UPPERCASE
} eval_step_kind;

typedef struct eval_step {
    eval_step_kind kind;
    char *pattern; /* of STEP_REGEX */
    int group;     /* which match is taken: 0 the first, -1 the last */
    char *fallback;
} eval_step;

typedef struct eval_filter {
    char *name; /* stands in keys: "exact_match,strict-match" */
    eval_step *step;
    int n_steps;
} eval_filter;

typedef struct eval_task {
    arena *a;     /* what the source says */
    arena *made;  /* what an evaluation makes: results, ids of texts; eval_task_reset empties it */
    json_t *kept; /* values that documents point into */
    char *name;
    eval_kind kind;
    eval_doc *doc;
    int32_t n, cap;
    unsigned metrics;    /* bits of eval_metric */
    bool test_split;     /* its documents are of a split that is kept for the end */
    bool takes_examples; /* before each document; else prompts are as they are written */
    /* answer */
    eval_filter *filter; /* at least one, for all kinds */
    int n_filters;
    eval_match match;
    char **until; /* texts that end an answer */
    int n_until;
    int64_t max_new; /* tokens of an answer at most */
    int repeats;     /* answers of a document */
    sample_options sample;
    bool keep_reasoning; /* filters see what a model thought before its answer, too */
} eval_task;

typedef struct eval_source {
    const char *data; /* the folder in which data files lie; NULL: beside the task file */
    int64_t limit;    /* documents at most, the first ones; 0: all */
    int64_t n_few;    /* examples before each document, for task YAMLs; -1: as the task says */
    bool no_alone;    /* no scores of continuations alone, so no acc_mutual_info */
    int64_t repeats;  /* answers of a document; 0: as the task says */
    const double *temperature; /* of answers; NULL: as the task says */
    bool keep_reasoning;
} eval_source;

/* path: as above. Free with eval_task_close, also after a failure. ST_USAGE: there is no such task;
 * ST_FORMAT: the file cannot be read, with file and line. */
status eval_task_open(eval_task *t, const char *path, const eval_source *from, err *e) ATH_MUST_USE;
/* Forgets the results of a model, and frees their memory: a run evaluates its tasks many times. */
void eval_task_reset(eval_task *t);
void eval_task_close(eval_task *t);

/* ---- for sources ---- */

status eval_olmes_open(eval_task *t, const char *dir, const eval_source *from, err *e) ATH_MUST_USE;
status eval_jsonl_open(eval_task *t, const char *path, const eval_source *from,
                       err *e) ATH_MUST_USE;

/* known: the text of a task that is known by name (adapters.h), which `path` is then; NULL: read
 * the file. */
status eval_yaml_open(eval_task *t, const char *path, const char *known, const eval_source *from,
                      err *e) ATH_MUST_USE;

/* A new document at the end, of this file and line. */
eval_doc *eval_add_doc(eval_task *t, const char *file, int64_t line);
/* A copy of a text, for a result. */
eval_text eval_keep_result(eval_task *t, const char *s, size_t len);
/* A copy of a text in the task's arena. */
eval_text eval_keep(eval_task *t, const char *s, size_t len);
/* The same of a JSON string, number or boolean, as Python prints it; false: it is none of these. */
bool eval_keep_json(eval_task *t, const json_t *value, eval_text *out);
/* A text document: where it comes from, by its members "source" and "language" (or "lang"). */
void eval_set_origin(eval_task *t, eval_doc *d, const json_t *row);
/* Keeps a value as long as the task and returns it. */
const json_t *eval_keep_value(eval_task *t, const json_t *value);
/* One right choice. */
void eval_set_gold(eval_task *t, eval_doc *d, int32_t gold);

/* A whole file, plain or packed (gzip, zstd), of up to 4 GiB, without a byte order mark. Free `out`
 * after success. */
status eval_read_file(const char *path, strbuf *out, err *e) ATH_MUST_USE;
/* Reads a file of JSON values, one a line, plain or packed (gzip, zstd); calls `take` for each
 * object. ST_FORMAT: a line is no JSON object, with file and line. */
typedef status (*eval_take)(void *ctx, const json_t *object, int64_t line, err *e);
status eval_read_lines(const char *path, eval_take take, void *ctx, err *e) ATH_MUST_USE;

#endif
