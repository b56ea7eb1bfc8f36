/* An answer: what one request gets, of one text or of several (its prompts, n or best_of of each).
 *
 *   made     by a thread of the desk, with all that its engine requests point to
 *   started  by the thread of the engines (worker.h), which from then on owns it: each text is an
 *            engine request, whose callbacks collect tokens and text here
 *   told     a stream gets a piece as soon as there is text; else the reply is one object at the end
 *   freed    by the same thread, when all its texts have ended and the reply has
 *
 * When the client goes, or an engine fails, the other texts are cancelled and their places are free
 * at once. */
#ifndef SERVE_API_ANSWER_H
#define SERVE_API_ANSWER_H

#include <stdatomic.h>

#include "infer/grammar/grammar.h"
#include "serve/api/calls.h"
#include "serve/api/metrics.h"
#include "serve/api/models.h"
#include "serve/api/params.h"
#include "serve/http/http.h"

typedef struct answer answer;

/* One text. What is "pending" has not been told to the client. */
typedef struct answer_text {
    answer *of;
    int index;  /* of the choice */
    int prompt; /* its prompt's number */
    engine_request rq;
    uint64_t id; /* of the engine; 0: not running */
    constraint *limit;
    answer_reader *reader; /* NULL: the text is told as it comes */
    bool began;            /* something was told */
    int n_calls;           /* told or pending */
    strbuf text, thought;  /* pending */
    json_t *calls;         /* pending: a list */
    json_t *logprobs;      /* pending, in the form of the route; NULL: not wanted */
    json_t *ids;           /* pending; NULL: not wanted */
    int64_t offset;        /* characters of all tokens so far */
    double sum_logprob;
    int64_t first_ns; /* when its first token came; 0: not yet */
    bool ended;
    generate_result result;
} answer_text;

struct answer {
    uint64_t number; /* drawn: ids are made of it */
    served *model;
    http_reply *reply;
    metrics *metrics;
    bool chat;
    api_params params;
    json_t *body; /* what params point into; once prepared, the texts of `stop` alone */
    tok_ids *prompts;
    strbuf *prompt_texts; /* for echo; NULL */
    int n_prompts;
    grammar *grammar;             /* of all texts; NULL: all may be written */
    json_t *tools;                /* offered, as templates have them; NULL */
    call_form calls;              /* CALLS_NONE: none are looked for */
    const thought_marks *thought; /* NULL: none */
    bool thinks;                  /* the prompt has opened a thought */
    /* what the engine requests point to */
    const char **stops;
    int n_stops;
    tok_ids end;
    int32_t *bias_ids;
    double *bias;
    int n_bias;
    answer_text *texts;
    int n_texts, n_running;
    char id[40];     /* as the client sees it */
    int64_t created; /* seconds since 1970 */
    int64_t began_ns;
    atomic_bool client_gone; /* set by the thread of the connections */
    bool streams, gone;      /* the stream has begun; no more is told */
    api_fault fault;         /* e.code ST_OK: none */
    answer *next;            /* in the list of the worker */
};

/* Takes the body over; params are read from it. The model, prompts and what a chat needs are the
 * caller's to fill in, then answer_prepare. */
answer *answer_new(json_t *body, http_reply *reply, metrics *m);
void answer_free(answer *a); /* NULL is fine */
/* Checks what depends on the model, and makes the texts. ST_USAGE: an answer cannot be given. */
status answer_prepare(answer *a, api_fault *f) ATH_MUST_USE;

/* Learns when the client goes; before the answer is the worker's. */
void answer_watch_client(answer *a);

/* ---- the thread of the engines ---- */

bool answer_client_gone(const answer *a);

/* Afterwards the answer may have ended already: answer_is_over. */
void answer_start(answer *a);
void answer_cancel(answer *a);
/* "stop", "length" or "tool_calls". */
const char *answer_finish(const answer_text *t);
/* All texts have ended and the reply has: it may be freed. */
bool answer_is_over(const answer *a);

/* ---- what the client sees (reply.c) ---- */

/* Adds a token to the pending log-probabilities; report NULL: the first of a prompt, which has none. */
void reply_add_logprobs(answer_text *t, int32_t id, const token_report *report);
/* An empty list for them. */
json_t *reply_new_logprobs(const answer *a);
/* Tells what is pending as a piece of the stream; finish NULL: the text goes on. False: the client
 * has gone. */
bool reply_piece(answer_text *t, const char *finish) ATH_MUST_USE;
/* The end of a stream, or all of it where there was none. */
void reply_end(answer *a);
/* The fault of the answer, as a whole reply or as the end of a stream. */
void reply_fault(answer *a);
/* Refuses a request before there is an answer. */
void reply_refuse(http_reply *r, const api_fault *f);
/* The whole reply is this object; takes the reference. */
void reply_object(http_reply *r, json_t *o);

#endif
