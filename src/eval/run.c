/* Evaluation of a model (see run.h). All requests are encoded before weights are read: their
 * longest says how much memory the cache needs, and what is wrong with a task is known early. */
#include "eval/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "infer/source_scorer.h"

typedef struct eval_work {
    open_model *m;
    eval_task *task;
    int n;
    const eval_options *opt;
    eval_requests *requests; /* [n] */
    generation_settings settings;
    int64_t most_tok;
    int64_t longest;        /* tokens of a request, or of prompt and answer */
    int64_t longest_greedy; /* the same of tasks that ask for the most likely tokens */
    int64_t texts;          /* that are written at a time, at most; 0: none are */
    int64_t
        longest_written; /* tokens that the decoder beside an encoder scores or writes; `longest` is that of its sources */
    const eval_task *now;
} eval_work;

/* Of what is asked now, how much is done. */
typedef struct eval_progress {
    const eval_work *w;
    int64_t before, all;
} eval_progress;

static void tell(void *ctx, int64_t done, int64_t all) {
    const eval_progress *p = ctx;
    const eval_options *opt = p->w->opt;
    (void)all;
    if (opt->progress) opt->progress(opt->ctx, p->w->now, p->before + done, p->all);
}

static void tell_written(void *ctx, int64_t done, int64_t all) {
    const eval_progress *p = ctx;
    const eval_options *opt = p->w->opt;
    if (opt->progress) opt->progress(opt->ctx, p->w->now, done, all);
}

/* ---- writing ---- */

static status write_with_scorer(void *ctx, const generate_limits *limits, write_item *items,
                                int64_t n, write_done done, void *done_ctx, err *e) {
    return writer_run(ctx, limits, items, n, done, done_ctx, e);
}

/* One after the other. */
static status write_with_generator(void *ctx, const generate_limits *limits, write_item *items,
                                   int64_t n, write_done done, void *done_ctx, err *e) {
    (void)limits;
    for (int64_t i = 0; i < n; i++) {
        write_item *k = &items[i];
        TRY(generate_run(ctx, &k->rq, &k->ids, &k->text, &k->result, e));
        if (k->result.finish == FINISH_INTERRUPT)
            return err_set(e, ST_STOPPED, "stopped by a signal");
        if (done) TRY(done(done_ctx, i, e));
    }
    return ST_OK;
}

static bool has_encoder(const eval_work *w) {
    return w->m->config.num_encoder_layers > 0;
}

static bool writes(const eval_task *t) {
    return t->kind == EVAL_ANSWER || t->kind == EVAL_DIALOGUE;
}

static eval_writer writer_of(const eval_work *w) {
    int32_t vocab = (int32_t)w->m->config.vocab_size;
    int32_t known = w->m->tok ? tok_vocab_size(w->m->tok) : vocab;
    return (eval_writer){
        .tok = w->m->tok,
        .eos = w->m->eos,
        .template = w->opt->template,
        .settings = &w->settings,
        .limits = {.Tmax = (int)w->longest, .vocab = vocab, .n_ids = known < vocab ? known : vocab},
        .chat = w->opt->chat,
        .system = w->opt->system,
        .write = write_with_scorer,
        .journal = w->opt->journal,
        .interrupt = w->opt->interrupt};
}

/* Sources may be as long as the longest, whatever is written. */
static status write_answers_of(eval_work *w, eval_writer pen, eval_task *t, err *e) {
    generator g = open_model_generator(w->m);
    pen.write = write_with_generator;
    pen.ctx = &g;
    pen.limits.Tmax = (int)(w->longest + t->max_new);
    status st = eval_write_answers(&pen, t, e);
    generator_free(&g);
    return st;
}

static status write_tasks(eval_work *w, err *e) {
    eval_writer pen = writer_of(w);
    eval_progress p = {.w = w};
    scorer *s = NULL;
    status st = ST_OK;
    pen.progress = tell_written;
    pen.progress_ctx = &p;
    for (int i = 0; st == ST_OK && i < w->n; i++) {
        w->now = &w->task[i];
        if (!writes(w->now)) continue;
        if (has_encoder(w)) {
            st = write_answers_of(w, pen, &w->task[i], e);
            continue;
        }
        if (!s) pen.ctx = s = open_model_scorer(w->m);
        if (w->now->kind == EVAL_ANSWER)
            st = eval_write_answers(&pen, &w->task[i], e);
        else
            st = eval_write_dialogues(&pen, &w->task[i], e);
    }
    scorer_free(s);
    return st;
}

/* ---- scores ---- */

/* Requests that are scored between two writes to the journal. */
enum { BLOCK = 1024 };

static void key_of_score(const eval_journal *j, const score_request *r, char key[17]) {
    strbuf all = {0};
    strbuf_append(&all, r->ids, sizeof *r->ids * (size_t)r->n);
    strbuf_append(&all, &r->n_scored, sizeof r->n_scored);
    eval_journal_key(j, all.data, all.len, key);
    strbuf_free(&all);
}

/* What is known of a request, where that is all that is wanted. */
static bool take_known(const json_t *known, score_request *r) {
    if (!r->nll && json_is_number(known)) r->loglik = json_number_value(known);
    if (!r->nll) return json_is_number(known);
    if ((int32_t)json_array_size(known) != r->n_scored) return false;
    r->loglik = 0;
    for (int32_t i = 0; i < r->n_scored; i++) {
        r->nll[i] = (float)json_number_value(json_array_get(known, (size_t)i));
        r->loglik -= (double)r->nll[i];
    }
    return true;
}

static void put_score(eval_journal *j, const char *key, const score_request *r) {
    if (!r->nll) return eval_journal_put(j, key, "loglik", json_f64(r->loglik));
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_scored; i++)
        json_array_append_new(list, json_f32((double)r->nll[i]));
    eval_journal_put(j, key, "nll", list);
}

/* Takes known scores; the others come to the front of `todo`, which numbers them. Returns how many
 * these are. */
static int64_t look_up(const eval_journal *j, score_request *r, int64_t n, int64_t *todo) {
    int64_t left = 0;
    for (int64_t i = 0; i < n; i++) {
        char key[17];
        if (j) key_of_score(j, &r[i], key);
        if (!j || !take_known(eval_journal_find(j, key), &r[i])) todo[left++] = i;
    }
    return left;
}

/* The part of a block that this rank scores. */
typedef struct block_part {
    int64_t first, end;
} block_part;

static block_part part_of(const eval_ranks *r, int64_t n) {
    if (r->n < 2) return (block_part){0, n};
    return (block_part){n * r->rank / r->n, n * (r->rank + 1) / r->n};
}

/* Gives each rank the terms of request i: as share_scores. */
static void share_terms(const eval_ranks *r, score_request *q, bool own) {
    int64_t *bits = xcalloc((size_t)q->n_scored, sizeof *bits);
    for (int32_t k = 0; own && k < q->n_scored; k++) memcpy(&bits[k], &q->nll[k], sizeof q->nll[k]);
    r->sum(r->ctx, bits, q->n_scored);
    for (int32_t k = 0; k < q->n_scored; k++) memcpy(&q->nll[k], &bits[k], sizeof q->nll[k]);
    free(bits);
}

/* Gives each rank the scores of all: sums of their bits, of which all ranks but one have none. */
static void share_scores(const eval_ranks *r, score_request *block, int64_t n, block_part own) {
    int64_t bits[BLOCK] = {0};
    if (r->n < 2) return;
    for (int64_t i = own.first; i < own.end; i++)
        memcpy(&bits[i], &block[i].loglik, sizeof bits[i]);
    r->sum(r->ctx, bits, n);
    for (int64_t i = 0; i < n; i++) memcpy(&block[i].loglik, &bits[i], sizeof bits[i]);
    for (int64_t i = 0; i < n; i++)
        if (block[i].nll) share_terms(r, &block[i], i >= own.first && i < own.end);
}

/* What scores: one of them. */
typedef struct eval_scorer {
    scorer *s;          /* NULL: the model has an encoder */
    generator g;        /* of that model */
    source_scorer pair; /* by g */
} eval_scorer;

static status score_part(eval_scorer *s, score_request *r, int64_t n, const score_options *opt,
                         score_stats *stats, err *e) {
    return s->s ? scorer_run(s->s, r, n, opt, stats, e)
                : source_scorer_run(&s->pair, r, n, opt, stats, e);
}

static status score_block(const eval_work *w, eval_scorer *s, score_request *r, const int64_t *todo,
                          int64_t n, eval_progress *p, score_stats *stats, err *e) {
    score_options opt = {.interrupt = w->opt->interrupt, .progress = tell, .ctx = p};
    score_request block[BLOCK];
    score_stats more;
    const eval_ranks *ranks = &w->opt->ranks;
    block_part own = part_of(ranks, n);
    for (int64_t i = 0; i < n; i++) block[i] = r[todo[i]];
    status st = score_part(s, block + own.first, own.end - own.first, &opt, &more, e);
    if (st == ST_NONFINITE && ranks->n > 1) st = ST_OK; /* the others are to see it, too */
    TRY(st);
    share_scores(ranks, block, n, own);
    TRY(score_check(block, n, e));
    stats->passes += more.passes;
    stats->rows += more.rows;
    stats->rows_alone += more.rows_alone;
    for (int64_t i = 0; i < n; i++) {
        char key[17];
        r[todo[i]].loglik = block[i].loglik;
        if (!w->opt->journal) continue;
        key_of_score(w->opt->journal, &block[i], key);
        put_score(w->opt->journal, key, &block[i]);
    }
    p->before += n;
    return w->opt->journal ? eval_journal_flush(w->opt->journal, e) : ST_OK;
}

static status score(const eval_work *w, eval_scorer *s, eval_requests *r, score_stats *stats,
                    err *e) {
    int64_t *todo = xmalloc(sizeof *todo * (size_t)(r->n + 1));
    int64_t left = look_up(w->opt->journal, r->item, r->n, todo);
    eval_progress p = {.w = w, .before = r->n - left, .all = r->n};
    status st = ST_OK;
    for (int64_t at = 0; st == ST_OK && at < left; at += BLOCK) {
        if (w->opt->stops && w->opt->stops(w->opt->ctx))
            st = err_set(e, ST_STOPPED, "stopped by a signal");
        else
            st = score_block(w, s, r->item, todo + at, left - at < BLOCK ? left - at : BLOCK, &p,
                             stats, e);
    }
    free(todo);
    if (st == ST_OK) eval_take_scores(r);
    return st;
}

static status score_tasks(eval_work *w, score_stats *stats, err *e) {
    eval_scorer s = {0};
    status st = ST_OK;
    bool open = false;
    for (int i = 0; st == ST_OK && i < w->n; i++) {
        w->now = &w->task[i];
        if (writes(&w->task[i])) continue;
        if (!open && has_encoder(w))
            s.g = open_model_generator(w->m), s.pair.g = &s.g;
        else if (!open)
            s.s = open_model_scorer(w->m);
        open = true;
        st = score(w, &s, &w->requests[i], stats, e);
    }
    scorer_free(s.s);
    source_scorer_free(&s.pair);
    generator_free(&s.g);
    return st;
}

/* ---- most likely continuations ---- */

/* Whether each scored token is the most likely one after those before it. What as a whole is more
 * likely than not is; otherwise the logits tell. */
static status would_write(const eval_work *w, source_scorer *k, const score_request *r, bool *out,
                          err *e) {
    const volatile sig_atomic_t *stop = w->opt->interrupt;
    generator *g = k->g;
    *out = true;
    if (r->loglik > -M_LN2) return ST_OK;
    if (g->Smax) source_scorer_read(k, r);
    for (int32_t first = r->n - r->n_scored, n = first; *out && n < r->n; n++) {
        const float *logits = g->Smax ? source_scorer_logits(k, n - first, stop)
                                      : generator_continue(g, r->ids, n, stop, NULL);
        if (!logits) return err_set(e, ST_STOPPED, "stopped by a signal");
        for (int32_t i = 0; i < g->vocab && *out; i++) *out = logits[i] <= logits[r->ids[n]];
    }
    return ST_OK;
}

static status find_greedy(const eval_work *w, source_scorer *k, const score_request *r, bool *out,
                          err *e) {
    char key[17];
    eval_journal *j = w->opt->journal;
    if (!j) return would_write(w, k, r, out, e);
    strbuf all = {0};
    strbuf_puts(&all, "greedy");
    strbuf_append(&all, r->ids, sizeof *r->ids * (size_t)r->n);
    strbuf_append(&all, &r->n_scored, sizeof r->n_scored);
    eval_journal_key(j, all.data, all.len, key);
    strbuf_free(&all);
    const json_t *known = eval_journal_find(j, key);
    if (json_is_integer(known)) {
        *out = json_integer_value(known);
        return ST_OK;
    }
    TRY(would_write(w, k, r, out, e));
    eval_journal_put(j, key, "greedy", json_integer(*out));
    return eval_journal_flush(j, e);
}

static status find_all_greedy(const eval_work *w, const eval_requests *r, err *e) {
    generator g = open_model_generator(w->m);
    source_scorer k = {.g = &g};
    eval_progress p = {.w = w, .all = r->n};
    status st = ST_OK;
    for (int64_t i = 0; st == ST_OK && i < r->n; i++) {
        st = find_greedy(w, &k, &r->item[i], &r->owner[i].doc->greedy, e);
        tell(&p, i + 1, r->n);
    }
    source_scorer_free(&k);
    generator_free(&g);
    return st;
}

/* ---- the whole ---- */

static status room_for_answers(eval_work *w, eval_task *t, err *e) {
    eval_writer pen = writer_of(w);
    if (t->max_new >= w->most_tok) {
        err_set(e, ST_USAGE,
                "answers of %ld tokens leave no room for a prompt in the context of %ld",
                (long)t->max_new, (long)w->most_tok);
        return err_hint(e,
                        "lower max_gen_toks of the task %s; a task file (.yaml) says it: "
                        "generation_kwargs: {max_gen_toks: %ld}",
                        t->name, (long)(w->most_tok / 2));
    }
    int64_t room = has_encoder(w) ? w->most_tok : w->most_tok - t->max_new;
    if (t->max_new > w->longest_written) w->longest_written = t->max_new;
    for (int32_t i = 0; i < t->n; i++) {
        eval_doc *d = &t->doc[i];
        tok_ids ids = {0};
        status st = eval_encode_prompt_of(&pen, t, d, room, &ids, e);
        int64_t all = has_encoder(w) ? ids.n : ids.n + t->max_new;
        if (all > w->longest) w->longest = all;
        tok_ids_free(&ids);
        if (st != ST_OK) return err_where(e, "%s:%ld", d->file, (long)d->line);
    }
    return ST_OK;
}

static status room_for_dialogues(eval_work *w, const eval_task *t, err *e) {
    eval_writer pen = writer_of(w);
    int64_t tokens;
    if (has_encoder(w)) {
        err_set(e, ST_USAGE,
                "the task %s is a dialogue; a model with an encoder answers one source", t->name);
        return err_hint(e, "leave it out");
    }
    TRY(eval_dialogue_tokens(&pen, t, &tokens, e));
    if (tokens > w->most_tok) tokens = w->most_tok;
    if (tokens > w->longest) w->longest = tokens;
    return ST_OK;
}

static status encode_task(eval_work *w, int i, err *e) {
    eval_task *t = &w->task[i];
    if (writes(t) && eval_texts(t) > w->texts) w->texts = eval_texts(t);
    if (t->kind == EVAL_ANSWER) return room_for_answers(w, t, e);
    if (t->kind == EVAL_DIALOGUE) return room_for_dialogues(w, t, e);
    int64_t longest;
    TRY(eval_encode(t, w->m, w->most_tok, &w->requests[i], e));
    longest = w->requests[i].longest;
    if (longest > w->longest) w->longest = longest;
    if (w->requests[i].longest_scored > w->longest_written)
        w->longest_written = w->requests[i].longest_scored;
    if (t->kind == EVAL_LIKELIHOOD && longest > w->longest_greedy) w->longest_greedy = longest;
    return ST_OK;
}

static status encode_tasks(eval_work *w, err *e) {
    for (int i = 0; i < w->n; i++) TRY(encode_task(w, i, e));
    if (has_encoder(w)) {
        open_model_set_source(w->m, (int)w->longest);
        return ST_OK;
    }
    if (w->longest) open_model_set_scorer(w->m, w->longest, 0);
    if (w->texts) open_model_set_writer(w->m, w->texts);
    return ST_OK;
}

static status run(eval_work *w, score_stats *stats, err *e) {
    TRY(open_model_settings(w->m, &w->settings, e));
    TRY(encode_tasks(w, e));
    int64_t cache_tok = has_encoder(w) ? w->longest_written + 1 : w->longest_greedy;
    TRY(open_model_load(w->m, (int)cache_tok, 0, e));
    TRY(score_tasks(w, stats, e));
    TRY(write_tasks(w, e));
    for (int i = 0; i < w->n; i++) {
        w->now = &w->task[i];
        if (w->task[i].kind == EVAL_LIKELIHOOD) TRY(find_all_greedy(w, &w->requests[i], e));
    }
    return ST_OK;
}

static eval_work work_of(open_model *m, eval_task *tasks, int n, const eval_options *opt) {
    eval_work w = {.m = m, .task = tasks, .n = n, .opt = opt};
    int64_t most = model_max_tokens(&m->config);
    w.most_tok = opt->most_tok && opt->most_tok < most ? opt->most_tok : most;
    w.requests = xcalloc((size_t)n + 1, sizeof *w.requests);
    return w;
}

static void work_free(eval_work *w) {
    for (int i = 0; i < w->n; i++) eval_requests_free(&w->requests[i]);
    free(w->requests);
    generation_settings_free(&w->settings);
}

status eval_plan(open_model *m, eval_task *tasks, int n, const eval_options *opt,
                 int64_t *cache_tok, err *e) {
    if (m->config.num_encoder_layers) {
        err_at(e, ST_USAGE, "eval.tasks", "a model with an encoder is not scored while it trains");
        return err_hint(e, "leave eval.tasks out; athanor eval scores its checkpoints");
    }
    eval_work w = work_of(m, tasks, n, opt);
    status st = open_model_settings(m, &w.settings, e);
    if (st == ST_OK) st = encode_tasks(&w, e);
    *cache_tok = w.longest_greedy;
    work_free(&w);
    return st;
}

status eval_run(open_model *m, eval_task *tasks, int n, const eval_options *opt, score_stats *stats,
                err *e) {
    eval_work w = work_of(m, tasks, n, opt);
    *stats = (score_stats){0};
    status st = run(&w, stats, e);
    work_free(&w);
    return st;
}
