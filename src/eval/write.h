/* Writing for tasks: answers to prompts, and the turns of dialogues.
 *
 * All prompts of a task, or all dialogues' next turns, are written together (infer/writer.h). What
 * was written goes to the journal as soon as it is whole. */
#ifndef EVAL_WRITE_H
#define EVAL_WRITE_H

#include "eval/journal.h"
#include "eval/task.h"
#include "infer/settings.h"
#include "infer/writer.h"
#include "tok/chat/template.h"

typedef struct eval_writer {
    const tok *tok;
    const int32_t *eos;                  /* as open_model.eos */
    const chat_template *template;       /* NULL: the model has none */
    const generation_settings *settings; /* what ends a text */
    generate_limits limits;
    bool chat;          /* prompts of answers are a user's message in the model's template */
    const char *system; /* before that message; NULL: nothing */
    /* writer_run with a scorer, or what a test has instead of a model */
    status (*write)(void *ctx, const generate_limits *limits, write_item *items, int64_t n,
                    write_done done, void *done_ctx, err *e);
    void *ctx;
    eval_journal *journal; /* NULL: none */
    const volatile sig_atomic_t *interrupt;
    void (*progress)(void *ctx, int64_t done, int64_t all); /* texts; may be NULL */
    void *progress_ctx;
} eval_writer;

/* A text that is wanted. */
typedef struct eval_want {
    const tok_ids *prompt;
    const tok_ids *end; /* ids that end it */
    int64_t max_new;
    sample_options sample;
    char *const *until; /* texts that end it */
    int n_until;
    /* results, in the task's arena */
    eval_text text;
    bool ended; /* by one of `end` or `until` */
} eval_want;

/* Takes what the journal has and writes the others. */
status eval_write(const eval_writer *w, eval_task *t, eval_want *wants, int64_t n,
                  err *e) ATH_MUST_USE;

/* The prompt of a document as the model sees it: what eval_write_answers puts into d->seen. It
 * loses its beginning if prompt and answer have more than `most` tokens. ST_USAGE: the model lacks
 * what the task needs. */
status eval_encode_prompt_of(const eval_writer *w, eval_task *t, eval_doc *d, int64_t most,
                             tok_ids *out, err *e) ATH_MUST_USE;
/* All documents of a task of answers, or of dialogues (dialogue_run.c). */
status eval_write_answers(const eval_writer *w, eval_task *t, err *e) ATH_MUST_USE;
status eval_write_dialogues(const eval_writer *w, eval_task *t, err *e) ATH_MUST_USE;
/* Tokens that prompt and answer of a dialogue may have: what a context is wanted for. */
status eval_dialogue_tokens(const eval_writer *w, const eval_task *t, int64_t *out,
                            err *e) ATH_MUST_USE;
/* How the k-th answer to a prompt is drawn: of other prompts by other numbers, and by the same ones
 * whatever else is asked. */
sample_options eval_sampling(const eval_task *t, eval_text seen, int k);
/* Texts that may be written at a time. */
int64_t eval_texts(const eval_task *t);

#endif
