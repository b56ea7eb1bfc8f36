/* Evaluation of a model (see run.h). All requests are encoded before weights are read: their longest says how much
 * memory the cache needs, and what is wrong with a task is known early. */
#include "eval/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "eval/answer.h"

typedef struct eval_work {
    open_model *m;
    eval_task *task;
    int n;
    const eval_options *opt;
    eval_requests *requests; /* [n] */
    int64_t most_tok;
    int64_t longest_answer; /* tokens of prompt and answer */
    const eval_task *now;
} eval_work;

static void tell(void *ctx, int64_t done, int64_t all) {
    const eval_work *w = ctx;
    if (w->opt->progress) w->opt->progress(w->opt->ctx, w->now, done, all);
}

/* ---- answers ---- */

/* As lm-evaluation-harness: the prompt has what max_new leaves of the context, and the text ends before `until`. */
static status write_answer(const eval_work *w, generator *g, const generation_settings *end,
                           eval_task *t, eval_doc *d, err *e) {
    tok_ids prompt = {0}, ids = {0};
    strbuf text = {0};
    generate_result result;
    status st = eval_encode_prompt(w->m, d->prompt, w->most_tok - t->max_new, &prompt, e);
    generate_request rq = {.prompt = prompt.id,
                           .n_prompt = prompt.n,
                           .max_new = t->max_new,
                           .sample = {.top_p = 1, .repetition_penalty = 1},
                           .end = end->end.id,
                           .n_end = end->end.n,
                           .tok = w->m->tok,
                           .stop = (const char *const *)t->until,
                           .n_stop = t->n_until,
                           .interrupt = w->opt->interrupt};
    if (st == ST_OK) st = generate_run(g, &rq, &ids, &text, &result, e);
    if (st == ST_OK && result.finish == FINISH_INTERRUPT)
        st = err_set(e, ST_STOPPED, "stopped by a signal");
    if (st == ST_OK) {
        strbuf whole = {0}; /* characters: the last one may have been cut */
        utf8_append(&whole, strbuf_cstr(&text), text.len);
        d->written = eval_keep(t, strbuf_cstr(&whole), whole.len);
        strbuf_free(&whole);
        st = eval_find_answers(t, d, e);
    }
    tok_ids_free(&prompt);
    tok_ids_free(&ids);
    strbuf_free(&text);
    return st;
}

static status write_answers(eval_work *w, eval_task *t, err *e) {
    generation_settings settings;
    TRY(open_model_settings(w->m, &settings, e));
    generator g = open_model_generator(w->m);
    status st = ST_OK;
    for (int32_t i = 0; st == ST_OK && i < t->n; i++) {
        st = write_answer(w, &g, &settings, t, &t->doc[i], e);
        tell(w, i + 1, t->n);
    }
    generator_free(&g);
    generation_settings_free(&settings);
    return st;
}

/* ---- scores ---- */

static status score(eval_work *w, scorer *s, eval_requests *r, score_stats *stats, err *e) {
    score_options opt = {.interrupt = w->opt->interrupt, .progress = tell, .ctx = w};
    score_stats more;
    TRY(scorer_run(s, r->item, r->n, &opt, &more, e));
    stats->passes += more.passes;
    stats->rows += more.rows;
    stats->rows_alone += more.rows_alone;
    eval_take_scores(r);
    return ST_OK;
}

static status score_tasks(eval_work *w, score_stats *stats, err *e) {
    scorer *s = NULL;
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < w->n; i++) {
        w->now = &w->task[i];
        if (w->task[i].kind == EVAL_ANSWER) continue;
        if (!s) s = open_model_scorer(w->m);
        st = score(w, s, &w->requests[i], stats, e);
    }
    scorer_free(s);
    return st;
}

/* ---- the whole ---- */

static status room_for_answers(eval_work *w, const eval_task *t, err *e) {
    if (t->max_new >= w->most_tok) {
        err_set(e, ST_USAGE,
                "answers of %ld tokens leave no room for a prompt in the context of %ld",
                (long)t->max_new, (long)w->most_tok);
        return err_hint(e, "lower max_gen_toks of the task %s", t->name);
    }
    for (int32_t i = 0; i < t->n; i++) {
        tok_ids ids = {0};
        status st = eval_encode_prompt(w->m, t->doc[i].prompt, w->most_tok - t->max_new, &ids, e);
        if (ids.n + t->max_new > w->longest_answer) w->longest_answer = ids.n + t->max_new;
        tok_ids_free(&ids);
        if (st != ST_OK) return err_where(e, "%s:%ld", t->doc[i].file, (long)t->doc[i].line);
    }
    return ST_OK;
}

static status encode_tasks(eval_work *w, err *e) {
    int64_t longest = 0;
    for (int i = 0; i < w->n; i++) {
        const eval_task *t = &w->task[i];
        if (t->kind == EVAL_ANSWER) TRY(room_for_answers(w, t, e));
        if (t->kind != EVAL_ANSWER) TRY(eval_encode(t, w->m, w->most_tok, &w->requests[i], e));
        if (w->requests[i].longest > longest) longest = w->requests[i].longest;
    }
    if (longest) open_model_set_scorer(w->m, longest, 0);
    return ST_OK;
}

static status run(eval_work *w, score_stats *stats, err *e) {
    TRY(encode_tasks(w, e));
    TRY(open_model_load(w->m, (int)w->longest_answer, 0, e));
    TRY(score_tasks(w, stats, e));
    for (int i = 0; i < w->n; i++) {
        w->now = &w->task[i];
        if (w->task[i].kind == EVAL_ANSWER) TRY(write_answers(w, &w->task[i], e));
    }
    return ST_OK;
}

status eval_run(open_model *m, eval_task *tasks, int n, const eval_options *opt, score_stats *stats,
                err *e) {
    eval_work w = {.m = m, .task = tasks, .n = n, .opt = opt};
    int64_t most = model_max_tokens(&m->config);
    w.most_tok = opt->most_tok && opt->most_tok < most ? opt->most_tok : most;
    w.requests = xcalloc((size_t)n + 1, sizeof *w.requests);
    *stats = (score_stats){0};
    status st = run(&w, stats, e);
    for (int i = 0; i < n; i++) eval_requests_free(&w.requests[i]);
    free(w.requests);
    return st;
}
