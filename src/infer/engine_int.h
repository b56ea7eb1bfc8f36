/* What the files of the engine share. */
#ifndef INFER_ENGINE_INT_H
#define INFER_ENGINE_INT_H

#include "infer/engine.h"
#include "infer/pages.h"

/* A request and what has come of it. Its sequence is the prompt and what was picked after it. */
typedef struct text {
    struct text *next; /* in the queue */
    uint64_t id;
    engine_request rq;
    generation *writing; /* NULL: it waits */
    tok_ids out;
    strbuf words;
    generate_result result;
    int64_t began_ns, first_ns; /* it was admitted; its first token was picked */
    int seq;                    /* its row of the table of pages */
    int n_pages, most_pages;    /* that it holds; that it may come to hold */
    int64_t most_rows;          /* tokens that may come to be in the cache */
    /* Tokens whose keys and values are in the cache, from the first on. While the prompt is read
     * they are fewer than it has; then all but the one that was picked last. */
    int64_t done;
    /* An earlier text, whose prompt is being read and begins with the same whole pages: they are
     * waited for. NULL: there is none. */
    struct text *leader;
    int64_t shared_with_leader; /* tokens */
    draft_pace by_text, by_model, by_module;
    int32_t guess; /* the module's token number guess_at; 0: it was not asked */
    int64_t guess_at;
    bool unseen;      /* the module has not seen all of its rows, and is not asked any more */
    draft_pace *pace; /* the one of these that tried `tried` tokens after the first */
    int tried;        /* `tried_from` + 1 in the last pass; NULL: none */
    int64_t tried_from;
    int64_t rows, rows_wanted;  /* of the prompt, in the next pass */
    bool in_call, is_cancelled; /* a callback of its own may be running; what it asked for */
} text;

/* The rows of a pass, in order of texts and positions. */
typedef struct pass {
    int n;
    int32_t *ids, *pos, *at, *place; /* [rows], place [rows, 2]: the inputs of TASK_BODY */
    int32_t *span; /* [seqs, 3] which rows of the pass each text has (DELTA_STATE) */
    text **of;     /* [rows] NULL: it has ended meanwhile */
    int n_wanted;
    int32_t *wanted; /* rows whose logits are wanted, rising */
    pick_rule *rule; /* [logits] where the device picks from these */
    int32_t *picked; /* [logits] */
} pass;

typedef struct engine_program {
    const prog *p;
    int rows;
    prog_port ids, pos, at, place, pages, span, y; /* of TASK_BODY; a module has x, too */
    prog_port x, logits;                           /* of TASK_HEAD */
} engine_program;

enum { ENGINE_MOST_SHAPES = 32 };

/* What a trial of the module has measured so far. */
typedef struct ahead_trial {
    int64_t plain_ns, tried_ns,
        module_ns;        /* the shortest of each kind, without what is picked; 0: none */
    int n_plain, n_tried; /* passes */
    int n_known, n_right; /* guesses of which it is known whether they were right */
    bool is_over, pays;
    int64_t again_at; /* new tokens of the engine: then comes the next one */
    engine_cost last;
} ahead_trial;

struct engine {
    dev *dev;
    engine_size size;
    generate_limits limits;
    engine_program body[ENGINE_MOST_SHAPES], head[ENGINE_MOST_SHAPES]; /* by rows, rising */
    engine_program ahead_body[ENGINE_MOST_SHAPES],
        ahead_head[ENGINE_MOST_SHAPES]; /* of the module */
    pages *pages;
    int32_t *table; /* [seqs, of_seq] pages of the running texts; 0 where there is none */
    int of_seq;
    text **running; /* [seqs] in the order of arrival */
    int n_running;
    text **of_row;      /* [seqs] who has a row of the table; NULL: nobody */
    text *first, *last; /* the queue */
    int n_waiting;
    int promised; /* pages that running texts may yet take */
    uint64_t last_id;
    pass pass;
    ahead_trial trial;
    generator *drafter;  /* NULL: there is none */
    uint64_t drafts_for; /* the text that it reads */
    int32_t *draft_ids;  /* [longest + DRAFT_MOST] its text */
    dev_room room;       /* of logits */
    int32_t *top_ids;
    double *top;
    int n_top; /* places of both */
    engine_load load;
};

/* ---- engine_pass.c: from rows to picks ---- */

void pass_new(engine *en);
void pass_free(engine *en);
/* Adds the next token of t's sequence that is not in the cache, or one that is tried in its
 * place after it. */
void pass_add(engine *en, text *t, int64_t pos, int32_t id, bool wanted);
/* Computes all rows, then takes what the logits say. */
void pass_run(engine *en);
/* What of a pass the module has to know, and what it tries next (engine_ahead.c). */
void pass_look_ahead(engine *en, const engine_program *body);
/* The module's guess was tried, and was right. */
void trial_learn(engine *en, bool right);
/* A pass of n rows, of which none is one of a prompt, took so long without the module. */
void trial_time(engine *en, int n, bool tried, int64_t ns);
/* Parts of a pass. pass_rows_to copies rows list[0..n) of `from` to the first rows of `to`; pass_put writes a
 * body's inputs, and pass_replay runs a program. */
void pass_rows_to(const engine *en, const prog *to, prog_port x, const engine_program *from,
                  const int32_t *list, int n);
const engine_program *pass_program(const engine_program *list, int n);
void pass_pad(pass *p, int rows);
void pass_put(const engine *en, const engine_program *g);
void pass_replay(const engine *en, const engine_program *g);
/* The text has ended: none of its rows is looked at any more. */
void pass_forget(engine *en, const text *t);

/* ---- engine.c: the life of a text ---- */

/* Takes the logits [vocab] after the last token of the sequence, or the token that was picked from them. */
void text_take(engine *en, text *t, float *logits, const int32_t *picked);
/* The first `done` tokens are in the cache. */
void text_advance(engine *en, text *t, int64_t done);
/* Calls on_end, if it is to be called, and frees t. */
void text_end(engine *en, text *t, status st, const err *e);

#endif
