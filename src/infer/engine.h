/* An engine: many texts at a time, as a server has them. Requests come and go between passes.
 *
 *   request  --engine_submit-->  queue  --admitted when its memory is free-->  running  -->  ended
 *
 * A pass (engine_step) computes rows of several texts: the next token of each that is being
 * written, a piece of the prompts of those that begin, and rows that try tokens in advance (draft.h). Keys
 * and values lie in pages of a cache of fixed size; pages whose tokens are the beginning of a new
 * prompt are not computed again (pages.h). All memory is planned: a text is admitted when the pages
 * that it may come to need are free or can be freed, else it waits, in the order of arrival. What can never fit
 * is refused at once.
 *
 * A text depends on its request and the model alone, to the bit: not on who else is served, on the
 * cutting of prompts into passes, on what the cache held, or on the number of threads. Every op
 * of its programs computes a row the same way in every pass (graph_options.by_row).
 *
 * The engine has one owner, a thread that calls it; nothing in it is locked. Callbacks run inside
 * engine_step, and may call engine_submit and engine_cancel. plan_engine makes one; engine_free frees what it
 * holds itself. */
#ifndef INFER_ENGINE_H
#define INFER_ENGINE_H

#include "infer/draft.h"
#include "infer/generate.h"
#include "model/family.h"

/* What is planned for an engine. */
typedef struct engine_size {
    int rows;    /* of a pass at most; 0: there is no engine */
    int logits;  /* rows of a pass whose logits may be asked for, at most */
    int longest; /* tokens of a text at most, prompt and answer */
    int seqs;    /* texts that run at a time at most */
    int page;    /* tokens of a page */
    int pages;   /* of the cache; one of them is the engine's own, for rows that nobody wants */
    /* Tokens are tried in advance (draft.h) while a pass has at most so many rows of texts that are
     * being written, with those; 0: never. At most `logits`. */
    int draft;
    /* The model has linear layers: each text that runs has a state beside its pages. What was read cannot be taken back
     * from it, so nothing is tried, and no text begins where another has been. */
    bool states;
    bool from_text; /* what followed the same tokens earlier in the text is tried */
    bool ahead;     /* the model's first module of multi-token prediction tries tokens, too */
    /* The module is timed, and asked only while it saves time (engine_ahead.c). False: it is always asked. */
    bool timed;
} engine_size;

/* For texts of up to `longest` tokens, `seqs` at a time, with a cache of about cache_bytes (which
 * hold one text of that length at least), numbers of cache_dt, and of activations of `compute`. States of linear layers
 * are planned for all texts that run. */
engine_size engine_size_for(const model_config *mc, dtype cache_dt, dtype compute, int longest,
                            int seqs, int64_t cache_bytes);
/* The cache, as programs have it. */
model_pages engine_pages(const engine_size *size);
/* Rows for prompts in a pass, beside n rows of texts that are being written: half as many as these at least. */
int engine_prompt_rows(const engine_size *size, int n);
/* How many rows the program `number` has, rising; 0: there is none of that number. body: of the
 * program that takes ids (TASK_BODY); else of the one that gives logits (TASK_HEAD). */
int engine_rows_at(const engine_size *size, int number, bool body);
/* The same of the module's programs. */
int engine_ahead_rows_at(const engine_size *size, int number, bool body);

typedef struct engine engine;
engine *engine_new(dev *d, const engine_size *size, const generate_limits *limits);
/* The program of a number, from engine_rows_at. */
void engine_set_program(engine *en, int number, bool body, const prog *p);
void engine_set_ahead_program(engine *en, int number, bool body, const prog *p);
/* Tokens are tried by this model, too, whose tokenizer is the same (draft_check), for one text at a
 * time. The generator is the caller's, and nobody else uses it while the engine lives. */
void engine_set_draft_model(engine *en, generator *g);
void engine_free(engine *en); /* NULL is fine; running requests end without a callback */

/* ---- requests ---- */

typedef token_report engine_token;

typedef struct engine_request {
    generate_request rq;  /* interrupt is not read; max_new 0: the prompt alone */
    bool prompt_logprobs; /* on_prompt is called for each token of the prompt but the first */
    /* Calls; each may be NULL. ctx is rq.ctx. A token of the prompt, with rq.n_top alternatives: its
     * number, from 1 on (the first has no probability). */
    void (*on_prompt)(void *ctx, int64_t index, const engine_token *t);
    /* The last call. st is not ST_OK where the model gave no probabilities, or the request was
     * cancelled (ST_STOPPED). */
    void (*on_end)(void *ctx, status st, const generate_result *result, const err *e);
} engine_request;

/* All that the request points to must stay until on_end. *id: for engine_cancel, never 0. ST_USAGE: an empty
 * prompt, an unknown id, a prompt that is too long. How many may wait is the caller's to limit. */
status engine_submit(engine *en, const engine_request *rq, uint64_t *id, err *e) ATH_MUST_USE;
/* Its place is free at once; on_end is called with ST_STOPPED before this returns. Only within a
 * callback of the same request both happen when that has returned. An unknown id (it has ended) is
 * fine. */
void engine_cancel(engine *en, uint64_t id);
/* One pass. False: there is nothing to do. */
bool engine_step(engine *en);

typedef struct engine_load {
    int running, waiting;
    /* all; held by texts; not held, but kept for prefixes to come; promised: texts may yet take them */
    int64_t pages, pages_used, pages_kept, pages_promised;
    /* since the engine began */
    int64_t requests, prompt_tokens, reused_tokens, new_tokens, passes, rows;
    int64_t drafted, accepted; /* tokens tried in advance; those of them that were right */
} engine_load;
engine_load engine_get_load(const engine *en);

/* What trying the module's tokens costs, as the last trial found: milliseconds of a pass with the next token of one
 * text, of one with another token after it, and of the module. A share of right guesses above
 * (tried_ms + module_ms) / plain_ms - 1 saves time. */
typedef struct engine_cost {
    double plain_ms, tried_ms, module_ms; /* 0: there was no trial yet */
    double right;                         /* share of the module's guesses */
    bool pays;
} engine_cost;
engine_cost engine_get_cost(const engine *en);

/* ---- one text ---- */

/* As generate_run, with all that the engine has; it must have nothing else to do. ST_OK with FINISH_INTERRUPT: the
 * request's interrupt was set. */
status engine_write(engine *en, const generate_request *rq, tok_ids *out, strbuf *text,
                    generate_result *result, err *e) ATH_MUST_USE;

#endif
