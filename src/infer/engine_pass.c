/* A pass of an engine: rows of texts go through TASK_BODY, those whose logits are wanted through
 * TASK_HEAD, some at a time; each row of logits goes to its text at once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "infer/engine_int.h"

void pass_new(engine *en) {
    pass *p = &en->pass;
    size_t rows = (size_t)en->size.rows;
    p->ids = xcalloc(rows, sizeof *p->ids);
    p->pos = xcalloc(rows, sizeof *p->pos);
    p->at = xcalloc(rows, sizeof *p->at);
    p->place = xcalloc(rows, 2 * sizeof *p->place);
    p->of = xcalloc(rows, sizeof *p->of);
    p->wanted = xcalloc(rows, sizeof *p->wanted);
    p->span = xcalloc((size_t)en->size.seqs, 3 * sizeof *p->span);
    p->rule = xcalloc((size_t)en->size.logits, sizeof *p->rule);
    p->picked = xcalloc((size_t)en->size.logits, sizeof *p->picked);
}

void pass_free(engine *en) {
    pass *p = &en->pass;
    free(p->ids);
    free(p->pos);
    free(p->at);
    free(p->place);
    free(p->span);
    free(p->rule);
    free(p->picked);
    free(p->of);
    free(p->wanted);
}

static engine_program program_of(const prog *p, int rows) {
    return (engine_program){.p = p,
                            .rows = rows,
                            .ids = prog_find_port(p, "ids"),
                            .pos = prog_find_port(p, "pos"),
                            .at = prog_find_port(p, "at"),
                            .place = prog_find_port(p, "place"),
                            .pages = prog_find_port(p, "pages"),
                            .span = prog_find_port(p, "span"),
                            .y = prog_find_port(p, "y"),
                            .x = prog_find_port(p, "x"),
                            .logits = prog_find_port(p, "logits")};
}

void engine_set_program(engine *en, int number, bool body, const prog *p) {
    CHECK(number < ENGINE_MOST_SHAPES, "shape %d of %d", number, ENGINE_MOST_SHAPES);
    engine_program *list = body ? en->body : en->head;
    list[number] = program_of(p, engine_rows_at(&en->size, number, body));
}

void engine_set_ahead_program(engine *en, int number, bool body, const prog *p) {
    CHECK(number < ENGINE_MOST_SHAPES, "shape %d of %d", number, ENGINE_MOST_SHAPES);
    engine_program *list = body ? en->ahead_body : en->ahead_head;
    list[number] = program_of(p, engine_ahead_rows_at(&en->size, number, body));
}

/* ---- rows ---- */

/* The row of the cache for a position; its page is taken when the first row goes there. */
static int32_t place_of(engine *en, text *t, int64_t pos) {
    int page = en->size.page, number = (int)(pos / page);
    int32_t *held = en->table + (int64_t)t->seq * en->of_seq;
    if (number == t->n_pages) {
        held[t->n_pages++] = pages_take(en->pages);
        en->promised--;
    }
    return held[number] * page + (int32_t)(pos % page);
}

void pass_add(engine *en, text *t, int64_t pos, int32_t id, bool wanted) {
    pass *p = &en->pass;
    int n = p->n++;
    if (wanted) p->wanted[p->n_wanted++] = n;
    p->ids[n] = id;
    p->pos[n] = (int32_t)pos;
    p->at[n] = place_of(en, t, pos);
    p->place[2 * n] = t->seq;
    p->place[2 * n + 1] = (int32_t)pos;
    p->of[n] = t;
}

void pass_forget(engine *en, const text *t) {
    pass *p = &en->pass;
    for (int i = 0; i < p->n; i++)
        if (p->of[i] == t) p->of[i] = NULL;
}

/* ---- programs ---- */

/* The smallest program for n rows. */
const engine_program *pass_program(const engine_program *list, int n) {
    while (list->rows < n) list++;
    return list;
}

void pass_replay(const engine *en, const engine_program *g) {
    op_run run = {.dev = en->dev, .first_micro = true, .grad_scale = 1.0f};
    prog_replay(g->p, PROG_F, &run);
}

/* Rows beyond the pass's own go nowhere. */
void pass_pad(pass *p, int rows) {
    for (int i = p->n; i < rows; i++) {
        p->ids[i] = p->pos[i] = p->place[2 * i] = 0;
        p->at[i] = p->place[2 * i + 1] = -1;
    }
}

/* A text's rows are neighbours. */
static void find_spans(const engine *en) {
    const pass *p = &en->pass;
    memset(p->span, 0, sizeof *p->span * 3 * (size_t)en->size.seqs);
    for (int i = p->n - 1; i >= 0; i--) {
        int32_t *span = p->span + 3 * (int64_t)p->place[2 * i];
        span[0] = p->pos[i];
        span[1]++;
        span[2] = i;
    }
}

void pass_put(const engine *en, const engine_program *g) {
    const pass *p = &en->pass;
    prog_put(g->p, 0, g->ids, p->ids);
    prog_put(g->p, 0, g->pos, p->pos);
    prog_put(g->p, 0, g->at, p->at);
    prog_put(g->p, 0, g->place, p->place);
    prog_put(g->p, 0, g->pages, en->table);
    if (!g->span.rows) return;
    find_spans(en);
    prog_put(g->p, 0, g->span, p->span);
}

static const engine_program *run_body(engine *en) {
    const engine_program *g = pass_program(en->body, en->pass.n);
    pass_pad(&en->pass, g->rows);
    pass_put(en, g);
    pass_replay(en, g);
    return g;
}

void pass_rows_to(const engine *en, const prog *to, prog_port port, const engine_program *from,
                  const int32_t *list, int n) {
    char *x = prog_port_at(to, 0, port), *y = prog_port_at(from->p, 0, from->y);
    size_t row_bytes = (size_t)(from->y.bytes / from->rows);
    for (int i = 0, run; i < n; i += run) { /* neighbours at once */
        for (run = 1; i + run < n && list[i + run] == list[i] + run;) run++;
        dev_copy(en->dev, x + row_bytes * (size_t)i, y + row_bytes * (size_t)list[i],
                 row_bytes * (size_t)run);
    }
}

/* Computes the logits of rows wanted[0..n) of a pass. */
static const engine_program *run_head(engine *en, const engine_program *body, const int32_t *wanted,
                                      int n) {
    const engine_program *g = pass_program(en->head, n);
    pass_rows_to(en, g->p, g->x, body, wanted, n);
    pass_replay(en, g);
    return g;
}

/* Whether the device may pick after all of these rows; the rules are those of the pass. */
static bool find_rules(engine *en, const int32_t *wanted, int n) {
    pass *p = &en->pass;
    if (!pick_is_on_device(en->dev)) return false;
    for (int i = 0; i < n; i++) {
        const text *t = p->of[wanted[i]];
        int64_t after = (int64_t)p->pos[wanted[i]] + 1;
        p->rule[i] = (pick_rule){.top_p = 1}; /* nobody looks at what it picks */
        if (!t) continue;
        if (after < t->rq.rq.n_prompt || !generation_rule(t->writing, after, &p->rule[i]))
            return false;
    }
    return true;
}

/* What the head has computed of rows wanted[0..n): the tokens, picked on the device, or else NULL, and
 * *logits, which may be overwritten and stay until the next call to the device. */
static const int32_t *read_head(engine *en, const engine_program *g, const int32_t *wanted, int n,
                                float **logits) {
    void *at = prog_port_at(g->p, 0, g->logits);
    *logits = NULL;
    if (find_rules(en, wanted, n)) {
        pick_rows(en->dev, at, en->limits.vocab, n, en->limits.n_ids, en->pass.rule,
                  en->pass.picked);
        return en->pass.picked;
    }
    *logits = dev_borrow(en->dev, at, (size_t)g->logits.bytes, true, &en->room);
    return NULL;
}

/* ---- results ---- */

/* Log p of the token of the prompt after row n. */
static void tell_prompt(engine *en, text *t, int64_t pos, const float *logits) {
    const generate_request *rq = &t->rq.rq;
    token_report r = {.id = rq->prompt[pos + 1], .top_ids = en->top_ids, .top_logprobs = en->top};
    double sum = logits_log_sum(logits, en->limits.vocab);
    if (!isfinite(sum)) {
        err e = {0};
        text_end(en, t, logits_not_finite(pos + 1, &e), &e);
        return;
    }
    r.logprob = (double)logits[r.id] - sum;
    if (rq->n_top > 0)
        r.n_top = most_likely(logits, en->limits.n_ids, sum, rq->n_top, en->top_ids, en->top);
    t->in_call = true;
    if (t->rq.on_prompt) t->rq.on_prompt(rq->ctx, pos + 1, &r);
    t->in_call = false;
    if (t->is_cancelled) engine_cancel(en, t->id);
}

/* The logits after row n of the pass, or what was picked from them. It is one of a prompt, or the last of a
 * sequence, or a try that failed. */
static void take_row(engine *en, int n, float *logits, const int32_t *picked) {
    pass *p = &en->pass;
    text *t = p->of[n];
    if (!t) return;
    int64_t pos = p->pos[n];
    const tok_ids *seq = generation_ids(t->writing);
    if (pos + 1 < t->rq.rq.n_prompt) {
        tell_prompt(en, t, pos, logits);
    } else if (pos + 1 == seq->n && p->ids[n] == seq->id[pos]) {
        text_advance(en, t, pos + 1);
        text_take(en, t, logits, picked);
    }
}

/* All rows are those of one text that is being written. NULL: they are not. */
static const text *only_writer(const engine *en) {
    const text *t = en->n_running == 1 ? en->running[0] : NULL;
    return t && t->done >= t->rq.rq.n_prompt ? t : NULL;
}

void pass_run(engine *en) {
    pass *p = &en->pass;
    const text *alone = only_writer(en);
    bool tried = alone && alone->pace == &alone->by_module;
    int64_t began = clock_now_ns();
    const engine_program *body = run_body(en);
    for (int i = 0; i < p->n; i++) { /* rows of prompts are as good as they will be */
        if (p->pos[i] < p->of[i]->rq.rq.n_prompt) text_advance(en, p->of[i], p->pos[i] + 1);
    }
    for (int done = 0, n; done < p->n_wanted; done += n) {
        n = p->n_wanted - done < en->size.logits ? p->n_wanted - done : en->size.logits;
        float *logits;
        const int32_t *wanted = p->wanted + done;
        const int32_t *picked = read_head(en, run_head(en, body, wanted, n), wanted, n, &logits);
        if (alone) trial_time(en, p->n, tried, clock_now_ns() - began);
        for (int i = 0; i < n; i++)
            take_row(en, wanted[i], picked ? NULL : logits + (int64_t)i * en->limits.vocab,
                     picked ? picked + i : NULL);
    }
    en->load.passes++;
    en->load.rows += p->n;
    if (en->ahead_body[0].p) pass_look_ahead(en, body);
    p->n = p->n_wanted = 0;
}
