/* Serving many texts at a time (see engine.h): which texts run, and which of their rows a pass has.
 *
 * Reading order: engine_step, admit, add_writing, add_reading; text_take, text_end; then pages.h,
 * engine_pass.c. */
#include "infer/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "infer/engine_int.h"

enum {
    /* Rows of a pass in which texts are written, whose next tokens wait for it; prompts get what they
     * leave of these. A row costs the same in passes of 32 and of 256 (SmolLM2-135M Q4_1 on a CPU). */
    ROWS_BESIDE = 64,
    LEAST_PIECE = 8, /* rows of a prompt, where it has as many */
    /* A module is right half of the time, and a guess costs little: it is asked again after so many misses */
    MODULE_PATIENCE = 3
};

engine *engine_new(dev *d, const engine_size *size, const generate_limits *limits) {
    engine *en = xcalloc(1, sizeof *en);
    *en = (engine){.dev = d, .size = *size, .limits = *limits};
    CHECK(size->seqs <= size->rows && size->seqs <= size->logits && size->draft <= size->logits,
          "%d texts, %d rows", size->seqs, size->rows);
    en->of_seq = engine_pages(size).of_seq;
    en->pages = pages_new(size->pages, size->page);
    en->table = xcalloc((size_t)size->seqs * (size_t)en->of_seq, sizeof *en->table);
    en->running = xcalloc((size_t)size->seqs, sizeof(text *));
    en->of_row = xcalloc((size_t)size->seqs, sizeof(text *));
    en->draft_ids = xcalloc((size_t)size->longest + DRAFT_MOST, sizeof *en->draft_ids);
    pass_new(en);
    return en;
}

void engine_set_draft_model(engine *en, generator *g) {
    en->drafter = g;
}

static void text_free(text *t) {
    generation_free(t->writing);
    tok_ids_free(&t->out);
    strbuf_free(&t->words);
    free(t);
}

void engine_free(engine *en) {
    if (!en) return;
    for (int i = 0; i < en->n_running; i++) text_free(en->running[i]);
    for (text *t = en->first, *next; t; t = next) {
        next = t->next;
        text_free(t);
    }
    pass_free(en);
    pages_free(en->pages);
    dev_room_free(&en->room);
    free(en->table);
    free(en->running);
    free(en->of_row);
    free(en->draft_ids);
    free(en->top_ids);
    free(en->top);
    free(en);
}

/* ---- the queue ---- */

/* Places for the alternatives of a prompt's tokens. */
static void make_top(engine *en, int n) {
    if (n <= en->n_top) return;
    en->n_top = n;
    en->top_ids = xrealloc(en->top_ids, sizeof *en->top_ids * (size_t)n);
    en->top = xrealloc(en->top, sizeof *en->top * (size_t)n);
}

status engine_submit(engine *en, const engine_request *rq, uint64_t *id, err *e) {
    TRY(generation_check(&rq->rq, &en->limits, e));
    text *t = xcalloc(1, sizeof *t);
    int64_t n = rq->rq.n_prompt, longest = en->limits.Tmax;
    *t = (text){.rq = *rq,
                .id = ++en->last_id,
                .result = {.finish = FINISH_INTERRUPT},
                .by_module.patience = MODULE_PATIENCE};
    /* the token picked last is not computed */
    t->most_rows = rq->rq.max_new < longest - n ? n + rq->rq.max_new - 1 : longest;
    if (t->most_rows < n) t->most_rows = n;
    t->most_pages = (int)((t->most_rows + en->size.page - 1) / en->size.page);
    if (en->last)
        en->last->next = t;
    else
        en->first = t;
    en->last = t;
    en->n_waiting++;
    en->load.requests++;
    *id = t->id;
    return ST_OK;
}

/* Takes t out of the queue. */
static void leave_queue(engine *en, const text *t) {
    text *before = NULL;
    for (text *i = en->first; i != t; i = i->next) before = i;
    if (before)
        before->next = t->next;
    else
        en->first = t->next;
    if (en->last == t) en->last = before;
    en->n_waiting--;
}

/* ---- pages of a text ---- */

static int32_t *table_of(const engine *en, const text *t) {
    return en->table + (int64_t)t->seq * en->of_seq;
}

/* Takes over the pages that the cache has of the next tokens of the prompt. Its last token is
 * always computed, since its logits are wanted. */
static void share_pages(engine *en, text *t) {
    int64_t page = en->size.page, n_shared = 0;
    const generate_request *rq = &t->rq.rq;
    int32_t *held = table_of(en, t);
    if (en->size.states || t->rq.prompt_logprobs || t->done != (int64_t)t->n_pages * page) return;
    for (; t->done + page < rq->n_prompt; t->done += page, n_shared += page) {
        int32_t before = t->n_pages ? held[t->n_pages - 1] : PAGE_NONE;
        int32_t found = pages_share(en->pages, before, rq->prompt + t->done);
        if (!found) break;
        held[t->n_pages++] = found;
    }
    t->result.n_reused += n_shared;
}

static void leave_pages(engine *en, text *t) {
    int32_t *held = table_of(en, t);
    while (t->n_pages > 0) {
        pages_leave(en->pages, held[--t->n_pages]);
        held[t->n_pages] = PAGE_NONE;
    }
}

void text_advance(engine *en, text *t, int64_t done) {
    int64_t page = en->size.page;
    int32_t *held = table_of(en, t);
    for (int64_t i = t->done / page; i < done / page && !en->size.states; i++) {
        const int32_t *ids = generation_ids(t->writing)->id + i * page;
        held[i] = pages_offer(en->pages, held[i], i ? held[i - 1] : PAGE_NONE, ids);
    }
    t->done = done;
}

/* ---- admission ---- */

static bool is_reading(const text *t) {
    return t->done < t->rq.rq.n_prompt;
}

/* Whole pages of t's prompt, in tokens, that the prompt of u begins with, too. */
static int64_t shared_tokens(const engine *en, const text *t, const text *u) {
    const generate_request *a = &t->rq.rq, *b = &u->rq.rq;
    int64_t most = a->n_prompt - 1 < b->n_prompt ? a->n_prompt - 1 : b->n_prompt, n = 0;
    while (n < most && a->prompt[n] == b->prompt[n]) n++;
    return n / en->size.page * en->size.page;
}

/* Of the running texts whose prompts are being read, the one from which t can take over most. */
static void find_leader(const engine *en, text *t) {
    if (en->size.states || t->rq.prompt_logprobs) return;
    for (int i = 0; i < en->n_running; i++) {
        text *u = en->running[i];
        if (!is_reading(u)) continue;
        int64_t shared = shared_tokens(en, t, u);
        if (shared <= t->done || shared <= t->shared_with_leader) continue;
        t->leader = u;
        t->shared_with_leader = shared;
    }
}

static int free_row(const engine *en) {
    int i = 0;
    while (i < en->size.seqs && en->of_row[i]) i++;
    return i;
}

/* The first of the queue begins to run. False: it must wait. */
static bool admit_first(engine *en) {
    text *t = en->first;
    err e = {0};
    t->seq = free_row(en);
    if (t->seq == en->size.seqs) return false;
    share_pages(en, t);
    int missing = t->most_pages - t->n_pages;
    if (en->promised + missing > pages_available(en->pages)) {
        leave_pages(en, t);
        t->done = t->result.n_reused = 0;
        return false;
    }
    find_leader(en, t);
    leave_queue(en, t);
    if (t->rq.prompt_logprobs) make_top(en, t->rq.rq.n_top); /* no callback reads them now */
    int64_t reused = t->result.n_reused;
    en->of_row[t->seq] = t;
    en->running[en->n_running++] = t;
    en->promised += missing;
    t->began_ns = clock_now_ns();
    status st =
        generation_begin(&t->writing, &t->rq.rq, &en->limits, &t->out, &t->words, &t->result, &e);
    t->result.n_reused = reused;
    if (st != ST_OK) text_end(en, t, st, &e);
    return true;
}

/* ---- the rows of a pass ---- */

/* How many of the tokens that were tried in the last pass were right. */
static void learn(engine *en, text *t) {
    int right = (int)(t->done - t->tried_from) - 1;
    if (!t->pace) return;
    if (right < 0) right = 0; /* it was cancelled before */
    draft_learn(t->pace, t->tried, right);
    if (t->pace == &t->by_module) trial_learn(en, right > 0);
    t->result.n_tried += t->tried;
    t->result.n_right += right;
    en->load.drafted += t->tried;
    en->load.accepted += right;
    t->pace = NULL;
}

static int draft_by_model(engine *en, text *t, int most, int32_t *ids) {
    const tok_ids *seq = generation_ids(t->writing);
    int n = draft_next_length(&t->by_model);
    if (n == 0) return 0;
    memcpy(en->draft_ids, seq->id, sizeof *seq->id * (size_t)seq->n);
    return draft_from_model(en->drafter, en->draft_ids, seq->n, n < most ? n : most,
                            en->limits.n_ids, ids);
}

/* Up to `most` tokens to be tried after the last of t. */
static int draft(engine *en, text *t, int most, int32_t *ids) {
    const tok_ids *seq = generation_ids(t->writing);
    int64_t room = t->most_rows - seq->n; /* the last one is not computed */
    if (most > room) most = (int)room;
    if (most > DRAFT_MOST) most = DRAFT_MOST;
    if (most <= 0) return 0;
    int n = en->size.from_text ? draft_next_length(&t->by_text) : 0;
    n = n > 0 ? draft_from_text(seq->id, seq->n, n < most ? n : most, ids) : 0;
    t->pace = &t->by_text;
    if (n == 0 && t->guess_at == seq->n) {
        ids[n++] = t->guess;
        t->pace = &t->by_module;
    }
    if (n == 0 && en->drafts_for == t->id) {
        n = draft_by_model(en, t, most, ids);
        t->pace = &t->by_model;
    }
    t->tried = n;
    t->tried_from = seq->n - 1;
    if (n == 0) t->pace = NULL;
    return n;
}

static int count_writing(const engine *en) {
    int n = 0;
    for (int i = 0; i < en->n_running; i++) n += !is_reading(en->running[i]);
    return n;
}

/* The draft model stays with its text. */
static void choose_drafted(engine *en) {
    const text *first = NULL;
    for (int i = 0; i < en->n_running; i++) {
        const text *t = en->running[i];
        if (t->id == en->drafts_for) return;
        if (!first && !is_reading(t)) first = t;
    }
    en->drafts_for = en->drafter && first ? first->id : 0;
}

/* The next token of each text that is being written, and some to be tried after it: they share
 * what the tokens leave of size.draft rows. */
static void add_writing(engine *en) {
    int left = count_writing(en), room = en->size.draft - left;
    int32_t tries[DRAFT_MOST];
    choose_drafted(en);
    for (int i = 0; i < en->n_running; i++) {
        text *t = en->running[i];
        if (is_reading(t)) continue;
        const tok_ids *seq = generation_ids(t->writing);
        learn(en, t);
        int n = room > 0 ? draft(en, t, (room + left - 1) / left, tries) : 0;
        pass_add(en, t, seq->n - 1, seq->id[seq->n - 1], true);
        for (int k = 0; k < n; k++) pass_add(en, t, seq->n + k, tries[k], true);
        room -= n;
        left--;
    }
}

static bool waits_for_leader(const text *t) {
    const text *u = t->leader;
    return u && is_reading(u) && u->done < t->shared_with_leader && t->done < t->shared_with_leader;
}

/* Rows of t's prompt that a pass could have. */
static int64_t rows_wanted(engine *en, text *t) {
    if (!is_reading(t)) return 0;
    int before = t->n_pages;
    share_pages(en, t);
    en->promised -= t->n_pages - before;
    return waits_for_leader(t) ? 0 : t->rq.rq.n_prompt - t->done;
}

static void add_prompt_rows(engine *en, text *t, int64_t rows) {
    const generate_request *rq = &t->rq.rq;
    for (int64_t pos = t->done, end = t->done + rows; pos < end; pos++)
        pass_add(en, t, pos, rq->prompt[pos], t->rq.prompt_logprobs || pos + 1 == rq->n_prompt);
}

/* Rows of prompts, `room` at most. Each in the order of arrival gets half of what those before it
 * have left, so that a short prompt does not wait for a long one; then they get the rest. */
static void add_reading(engine *en, int64_t room) {
    for (int i = 0; i < en->n_running; i++) {
        text *t = en->running[i];
        int64_t share = room / 2 > LEAST_PIECE ? room / 2 : LEAST_PIECE;
        t->rows_wanted = rows_wanted(en, t);
        t->rows = t->rows_wanted < share ? t->rows_wanted : share;
        if (t->rows > room) t->rows = room;
        room -= t->rows;
    }
    for (int i = 0; i < en->n_running; i++) {
        text *t = en->running[i];
        int64_t more = t->rows_wanted - t->rows < room ? t->rows_wanted - t->rows : room;
        add_prompt_rows(en, t, t->rows + more);
        room -= more;
    }
}

int engine_prompt_rows(const engine_size *size, int n) {
    int left = size->rows - n, room = ROWS_BESIDE - n;
    if (n == 0) return left;
    if (room < n / 2) room = n / 2;
    if (room < LEAST_PIECE) room = LEAST_PIECE;
    return room < left ? room : left;
}

bool engine_step(engine *en) {
    while (en->first && admit_first(en)) {
    }
    if (en->n_running == 0) return false;
    add_writing(en);
    add_reading(en, engine_prompt_rows(&en->size, en->pass.n));
    pass_run(en);
    return true;
}

/* ---- what comes of a text ---- */

void text_take(engine *en, text *t, float *logits, const int32_t *picked) {
    err e = {0};
    bool ended = t->rq.rq.max_new == 0;
    status st = ST_OK;
    if (t->first_ns == 0) t->first_ns = clock_now_ns();
    t->in_call = true;
    if (ended)
        t->result.finish = FINISH_LENGTH;
    else if (picked)
        st = generation_take_id(t->writing, *picked, &ended, &e);
    else
        st = generation_take(t->writing, logits, &ended, &e);
    if (st == ST_OK && ended) st = generation_end(t->writing, &e);
    t->in_call = false;
    if (t->is_cancelled)
        engine_cancel(en, t->id);
    else if (ended || st != ST_OK)
        text_end(en, t, st, &e);
}

static double per_second(int64_t n, int64_t ns) {
    return n > 0 && ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

static void measure(engine *en, text *t) {
    generate_result *r = &t->result;
    int64_t now = clock_now_ns();
    learn(en, t);
    if (t->first_ns) {
        r->prefill_rate = per_second(t->rq.rq.n_prompt - r->n_reused, t->first_ns - t->began_ns);
        r->decode_rate = per_second(r->n_new - 1, now - t->first_ns);
    }
    en->load.prompt_tokens += t->done < t->rq.rq.n_prompt ? t->done : t->rq.rq.n_prompt;
    en->load.reused_tokens += r->n_reused;
    en->load.new_tokens += r->n_new;
}

static void leave_running(engine *en, const text *t) {
    int n = 0;
    for (int i = 0; i < en->n_running; i++) {
        if (en->running[i] == t) continue;
        if (en->running[i]->leader == t) en->running[i]->leader = NULL;
        en->running[n++] = en->running[i];
    }
    en->n_running = n;
    en->of_row[t->seq] = NULL;
}

void text_end(engine *en, text *t, status st, const err *e) {
    if (t->began_ns) {
        en->promised -= t->most_pages - t->n_pages;
        leave_pages(en, t);
        leave_running(en, t);
        pass_forget(en, t);
        measure(en, t);
    } else {
        leave_queue(en, t);
    }
    if (t->rq.on_end) t->rq.on_end(t->rq.rq.ctx, st, &t->result, e);
    text_free(t);
}

/* NULL: it has ended. */
static text *find_text(const engine *en, uint64_t id) {
    for (int i = 0; i < en->n_running; i++)
        if (en->running[i]->id == id) return en->running[i];
    text *t = en->first;
    while (t && t->id != id) t = t->next;
    return t;
}

void engine_cancel(engine *en, uint64_t id) {
    text *t = find_text(en, id);
    err e = {0};
    if (!t) return;
    t->is_cancelled = true;
    if (t->in_call) return; /* who calls looks at it */
    text_end(en, t, err_set(&e, ST_STOPPED, "the request was cancelled"), &e);
}

engine_load engine_get_load(const engine *en) {
    engine_load load = en->load;
    load.running = en->n_running;
    load.waiting = en->n_waiting;
    load.pages = en->size.pages - 1;
    load.pages_used = load.pages - pages_available(en->pages);
    load.pages_kept = pages_kept(en->pages);
    load.pages_promised = en->promised;
    return load;
}
